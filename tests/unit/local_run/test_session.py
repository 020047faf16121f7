"""What the session of a command does with a reading."""

from unittest.mock import Mock, call

import pytest

from profiler.collectors.collector import COMMAND
from profiler.local_run.sampling_pace import Reading
from profiler.local_run.session import _Session
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from tests.fakes import START_NS, sample

SIZES = ResourceLimits(vcpu=2, memory_bytes=2**30)
SAMPLE = sample(START_NS, 1, 2**20)


def read(reading: Reading, taken: ContainerSample | None) -> tuple[Mock, Mock]:
    """The collector that follows samples, and the session, after a reading."""
    follower = Mock()
    session = Mock(_has_shown=True, _sizes=SIZES)
    session._plan.collectors.sample_followers = (follower,)
    session._sampler.pace.begin_reading.return_value = reading
    session._sampler.read_everything.return_value = taken
    _Session._read(session, 0)
    return follower, session


def test_the_sample_of_a_tick_is_for_collectors_notices_and_view() -> None:
    follower, session = read("tick", SAMPLE)
    assert follower.on_sample.mock_calls == [call(COMMAND, SAMPLE, SIZES)]
    assert session._look_for_notices.mock_calls == [call(SAMPLE)]
    session._around.on_sample.assert_called_once()


def test_the_sample_between_two_ticks_is_for_the_view_alone() -> None:
    follower, session = read("full", SAMPLE)
    follower.on_sample.assert_not_called()
    session._look_for_notices.assert_not_called()
    session._around.on_sample.assert_called_once()


@pytest.mark.parametrize(("reading", "taken"), [("quick", SAMPLE), ("tick", None)])
def test_a_quick_reading_and_an_unreadable_command_are_not_passed_on(
    reading: Reading, taken: ContainerSample | None
) -> None:
    follower, session = read(reading, taken)
    follower.on_sample.assert_not_called()
    session._around.on_sample.assert_not_called()
