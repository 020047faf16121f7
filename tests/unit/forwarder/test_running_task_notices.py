"""Notices among the lines of an invocation: which are sent, how often, and what a failed channel
leads to.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aws_account.replay import build_subscription_event
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings
from profiler.forwarder.invocation import DeliveryError, NoticeError, SettingsError
from profiler.forwarder.notifications.notification import Notification
from profiler.forwarder.notifications.running_task_notices import (
    MAX_AGE,
    MAX_NOTICES_OF_A_STREAM,
    RunningTaskNotices,
)
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, FailedItem
from profiler.forwarder.subscription import LineCounts, LineForwarder, decode_subscription_event
from profiler.record.notice_model import NoticeLine, encode_notice_line
from profiler.record.record_model import Report, encode
from tests.cases import each_case
from tests.log_subscriptions import DOCUMENT, event, packed_data, record
from tests.notices import FakeChannel, KeyTable, fake_channel
from tests.shown_runs import stuck_notice

STUCK = stuck_notice()
TASK_ID, ACCOUNT = STUCK.record.task_id, "111122223333"
NOW = parse_datetime(STUCK.time) or pytest.fail("The notice has a time.")
NOW_MS = round(NOW.timestamp() * 1000)
STREAM = f"ecs/task-monitor/{TASK_ID}"


class NoticeDelivery:
    """The channels, the table of what was sent, and the documents of all invocations."""

    def __init__(self, **settings: Any) -> None:
        self.settings: NoticeSettings | SettingsError = NoticeSettings(**settings)
        self.slack, self.bus = (
            fake_channel("slack", "failure"),
            fake_channel("event-bus", "failure"),
        )
        self.documents: list[Document] = []
        self.cluster_error: DeliveryError | None = None
        self.store = list[FailedItem]()
        self.table = KeyTable()
        self.warnings: list[str] = []
        self.now = NOW
        self.ends: dict[str, datetime] = {}

    def deliver(self, documents: Sequence[Document]) -> DeliveryResult:
        if self.cluster_error is not None:
            raise self.cluster_error
        self.documents += documents
        return DeliveryResult(indexed=len(documents))

    def read_settings(self) -> NoticeSettings:
        if isinstance(self.settings, SettingsError):
            raise self.settings
        return self.settings

    def lines(self) -> LineForwarder:
        notices = RunningTaskNotices(
            self.read_settings,
            channels=lambda _settings: [self.slack, self.bus],
            once=self.table.once,
            now=lambda: self.now,
            warn=cache(self.warnings.append),
            ends=lambda runs: {run: self.ends[run] for run in runs if run in self.ends},
        )
        return LineForwarder(ForwarderSettings(), self.deliver, self.store.extend, notices)

    def forward(
        self, *lines: str | bytes, stream: str = STREAM, owner: str = ACCOUNT
    ) -> LineCounts:
        return self.lines().forward_payload(
            decode_subscription_event(event(document_of(*lines, stream=stream, owner=owner)))
        )

    def forward_records(self, *records: dict[str, Any]) -> tuple[str, ...]:
        """The records to deliver again."""
        return self.lines().forward_kinesis_records(records, self.warnings.append)[1]


def kinds(channel: FakeChannel) -> list[str]:
    return [line.notice.kind for line in channel.posted]


def document_of(*lines: str | bytes, stream: str = STREAM, owner: str = ACCOUNT) -> dict[str, Any]:
    texts = [line.decode() if isinstance(line, bytes) else line for line in lines]
    events = [
        {"id": str(number), "timestamp": NOW_MS, "message": text}
        for number, text in enumerate(texts)
    ]
    return {**DOCUMENT, "owner": owner, "logStream": stream, "logEvents": events}


def line(kind: str = "stuck", **changes: Any) -> bytes:
    return encode_notice_line(replace(STUCK, notice=replace(STUCK.notice, kind=kind), **changes))


def test_a_notice_is_indexed_and_posted_to_every_channel_once() -> None:
    fakes = NoticeDelivery()
    for _ in range(2):
        assert fakes.forward("hello", line()) == LineCounts(indexed=1, skipped=1)
    assert kinds(fakes.slack) == ["stuck"]
    assert kinds(fakes.bus) == ["stuck"]
    assert [document.id for document in fakes.documents] == [f"{TASK_ID}/batch/stuck"] * 2
    arn = STUCK.record.task_arn
    first = f"{ACCOUNT} {DOCUMENT['logGroup']} {STREAM}#notice-0"
    assert set(fakes.table.done) == {
        first,
        *(f"{arn}#batch#stuck#{channel}" for channel in ("slack", "event-bus")),
    }


def test_a_notice_is_posted_while_the_search_cluster_is_down() -> None:
    fakes = NoticeDelivery()
    fakes.cluster_error = DeliveryError("The cluster is away.")
    fakes.bus.error = NoticeError("The bus is away.")
    with pytest.raises(DeliveryError, match=r"The cluster is away\. The bus is away\."):
        fakes.forward(line())
    assert kinds(fakes.slack) == ["stuck"]


@pytest.mark.parametrize(
    ("run", "seconds", "posted"),
    [
        (f"{TASK_ID}/batch", 0, []),
        (f"{TASK_ID}/batch", 600, []),
        # The container was started again within its task, and the new run has a notice.
        (f"{TASK_ID}/batch", -1, ["stuck"]),
        (f"{TASK_ID}/other", 600, ["stuck"]),
    ],
)
def test_a_notice_of_a_run_that_has_ended_since_is_only_indexed(
    run: str, seconds: int, posted: list[str]
) -> None:
    fakes = NoticeDelivery()
    fakes.ends = {run: NOW + timedelta(seconds=seconds)}
    assert fakes.forward(line()) == LineCounts(indexed=1)
    assert kinds(fakes.slack) == kinds(fakes.bus) == posted
    assert bool(fakes.warnings) is not bool(posted)


@pytest.mark.parametrize(
    ("stream", "posted"),
    [
        (f"ecs/batch/{TASK_ID}", []),
        (STREAM, []),
        # Nobody vouches for the line.
        (f"ecs/other/{TASK_ID}", ["stuck"]),
        (TASK_ID.ljust(64, "0"), ["stuck"]),
    ],
)
def test_the_report_of_the_same_invocation_says_that_the_run_has_ended(
    stream: str, posted: list[str]
) -> None:
    ended = replace(STUCK.record, status="success", finished_at=format_datetime(NOW))
    report = encode(Report(time=format_datetime(NOW), type="task.report", record=ended))
    fakes = NoticeDelivery()
    fakes.forward_records(
        record(1, packed_data(document_of(line()))),
        record(2, packed_data(document_of(report, stream=stream))),
    )
    assert kinds(fakes.slack) == posted


@pytest.mark.parametrize(
    ("chosen", "posted"),
    [
        ({"subjects": frozenset({"success", "failure"})}, []),
        ({"subjects": frozenset({"running"}), "families": ("nightly-*",)}, ["stuck"]),
        ({"families": ("weekly-*",)}, []),
    ],
)
def test_the_settings_select_the_notices(chosen: dict[str, Any], posted: list[str]) -> None:
    fakes = NoticeDelivery(**chosen)
    assert fakes.forward(line()) == LineCounts(indexed=1)
    assert kinds(fakes.slack) == posted


@pytest.mark.parametrize(
    ("place", "arn"),
    [
        ({"stream": "ecs/task-monitor/" + "0" * 32}, STUCK.record.task_arn),
        ({"owner": "444455556666"}, STUCK.record.task_arn),
        ({}, "arn:aws:ecs:us-west-2:111122223333:task/jobs/" + "0" * 32),
        ({}, f"arn:aws:ecs:eu-west-1:4:task/{TASK_ID}"),
        ({}, "x"),
    ],
)
def test_a_notice_of_another_task_is_neither_kept_nor_sent(place: dict[str, str], arn: str) -> None:
    fakes = NoticeDelivery()
    assert fakes.forward(line(record=replace(STUCK.record, task_arn=arn)), **place) == LineCounts(
        untrusted=1
    )
    assert fakes.store == []
    assert fakes.slack.posted == []


def test_a_replayed_or_old_notice_is_indexed_and_not_sent() -> None:
    fakes, late = NoticeDelivery(), NoticeDelivery()
    events = [
        {"logStreamName": STREAM, "eventId": "1", "timestamp": NOW_MS, "message": line().decode()}
    ]
    payload = decode_subscription_event(build_subscription_event(events, "/ecs/jobs", ACCOUNT))
    late.now = NOW + MAX_AGE + timedelta(seconds=1)
    assert fakes.lines().forward_payload(payload) == late.forward(line()) == LineCounts(indexed=1)
    assert fakes.slack.posted == late.slack.posted == []
    assert "they are older than a day" in late.warnings[0]


def test_a_flood_of_notices_is_indexed_and_the_first_are_sent() -> None:
    """A flood of notices is indexed and the first ones of all deliveries are sent."""
    fakes = NoticeDelivery()
    first, *others = [
        [f"kind{number}-{delivery}" for number in range(7 + delivery)] for delivery in range(4)
    ]
    for number, sent in enumerate((first, *others, first)):
        assert fakes.forward(*(line(kind) for kind in [*sent, sent[0]])) == LineCounts(
            indexed=len(sent), skipped=1
        )
        assert bool(fakes.warnings) is (
            number > 0
        )  # the second delivery has eight, of which one is sent
    assert kinds(fakes.slack) == [*first, others[0][0]]
    assert len(fakes.slack.posted) == MAX_NOTICES_OF_A_STREAM
    assert set(fakes.warnings) == {
        f"Only 8 notifications in {ACCOUNT} /ecs/jobs {STREAM} are sent: the log stream has more."
    }


@each_case(
    "bad",
    [
        '{"type":"task.notice"',
        '{"type":"task.notice"}',
        '{"type":"task.notice","time":"2026-11-20T04:00:00Z","notice":[],"record":{}}',
        *(line(kind).decode() for kind in ("", "x" * 41, "a#b", "<!channel>")),
        line(time="never").decode(),
    ],
)
def test_an_invalid_notice_is_kept(bad: str) -> None:
    fakes = NoticeDelivery()
    assert fakes.forward(bad) == LineCounts(failed=1)
    assert fakes.slack.posted == []


def records(*numbers: int) -> list[dict[str, Any]]:
    """The records of a stream, each with the notice of a task."""
    found = []
    for number in numbers:
        task_id = f"{number:032x}"
        arn = f"arn:aws:ecs:us-west-2:{ACCOUNT}:task/jobs/{task_id}"
        text = line(record=replace(STUCK.record, task_id=task_id, task_arn=arn))
        found.append(
            record(number, packed_data(document_of(text, stream=f"ecs/task-monitor/{task_id}")))
        )
    return found


def channel_that_refuses(*numbers: int) -> FakeChannel:
    """Refuses the notices of these tasks."""
    refused = {f"{number:032x}" for number in numbers}

    def check(notification: Notification) -> None:
        assert isinstance(notification, NoticeLine)
        if notification.record.task_id in refused:
            raise NoticeError("Slack is away.")

    return fake_channel(check=check)


@pytest.mark.parametrize("minutes", [20, -20])
def test_a_channel_that_stays_away_does_not_hold_up_a_shard(minutes: int) -> None:
    fakes = NoticeDelivery()
    fakes.slack = channel_that_refuses(2)
    fakes.now = NOW + timedelta(minutes=minutes)
    assert fakes.forward_records(*records(1, 2)) == ()
    assert "Slack is away." in fakes.warnings[0]


def test_invalid_settings_fail_the_records_with_notices_alone() -> None:
    fakes = NoticeDelivery()
    fakes.settings = SettingsError("NOTIFY must be.")
    ordinary = record(2, packed_data(document_of("hello")))
    assert fakes.forward_records(*records(1), ordinary) == ("1",)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 5), max_size=8), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))
)
def test_every_notice_is_posted_once_however_often_channels_fail(
    numbers: list[int], failing: set[int], also_failing: set[int]
) -> None:
    fakes = NoticeDelivery()
    for refused in (failing, also_failing, set[int]()):
        fakes.slack = channel_that_refuses(*refused)
        repeated = fakes.forward_records(*records(*numbers))
        done = {
            int(key.split("#")[0][-32:], 16) for key in fakes.table.done if key.endswith("#slack")
        }
        assert set(repeated) == {str(number) for number in (set(numbers) & refused) - done}
    assert len(fakes.bus.posted) == len(set(numbers))
    assert fakes.store == []
