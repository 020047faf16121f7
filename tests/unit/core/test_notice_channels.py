"""The list of channels, and what sends for each row."""

from profiler.core.notice_channels import CHANNELS, KINDS, SENDERS, SLACK
from profiler.forwarder.function_settings import read_notice_settings
from profiler.forwarder.notifications.channels import configured_channels
from tests.fakes import FakeInvocationTime


def test_names_and_parameters_are_distinct_and_senders_are_rows() -> None:
    assert len({channel.name for channel in CHANNELS}) == len(CHANNELS)
    assert len({channel.parameter for channel in CHANNELS}) == len(CHANNELS)
    assert {channel.sender for channel in CHANNELS} == {channel.name for channel in SENDERS}


def test_every_row_with_a_sender_sends_every_kind_when_its_settings_are_set() -> None:
    """Posted is in the order of the rows."""
    for kind in KINDS:
        environment = {channel.setting_of(kind): "https://given" for channel in SENDERS}
        channels = configured_channels(
            read_notice_settings(environment), environment, FakeInvocationTime(60), lambda: None
        )
        names = [channel.name for channel in channels if channel.accepts(kind)]
        assert names == [channel.name for channel in SENDERS]


def test_without_a_setting_no_channel_accepts_anything() -> None:
    channels = configured_channels(
        read_notice_settings({}), {}, FakeInvocationTime(60), lambda: None
    )
    assert not [channel for channel in channels for kind in KINDS if channel.accepts(kind)]


def test_the_setting_of_a_kind_is_one_that_the_secret_can_have() -> None:
    for kind in KINDS:
        assert set(SLACK.of_kind[kind]) <= set(SLACK.in_secret)
