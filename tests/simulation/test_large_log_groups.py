"""The morning message without a search cluster, of an account whose lines take longer to read than
an invocation has: the invocation never times out, a message says until when it was read, and each
run is in exactly one message.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from datetime import UTC
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from msgspec import Struct, field

from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MS, format_ms, parse_ns
from profiler.forwarder.digest_delivery import DigestSender, NightMessage
from profiler.forwarder.ended_lines import EndedLineReader
from profiler.forwarder.invocation import ForwarderError, InvocationTime, ReadError
from profiler.forwarder.morning_digest import DigestPlace, summarize_night
from profiler.forwarder.night_period import NightPeriod, RememberedNight, remembered_before_first
from profiler.forwarder.night_runs import FamilyHistory, MissedTimes, night_runs_of_printed
from profiler.forwarder.notifications.notification import NightSummary, notification_key
from tests.fakes import FakeInvocationTime
from tests.notices import FakeChannel, KeyTable, fake_channel
from tests.values import present

BEGIN_NS = present(parse_ns("2026-03-01T08:00:00Z"))
GROUP = "/aws/lambda/profiler-task-stopped"
RESERVED_SECONDS = 20.0
PAGE_LINES = 10  # of 1 MB: each line stands for thirty of 3 KB
CALL_SECONDS = 0.6
REFUSAL_SECONDS = 0.05
# FilterLogEvents has 5 calls a second in an account and Region.
CALLS_A_SECOND = 5.0


def refusal(code: str, status: int) -> ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "FilterLogEvents")


THROTTLED = refusal("ThrottlingException", 400)


class LargeGroup:
    """FilterLogEvents over lines in the order of time. ``others``: how many calls a second of the
    account's are made by others.
    """

    def __init__(self, lines: Sequence[tuple[int, str]], *, others: float = 0) -> None:
        self.lines = sorted(lines)
        self.clock = FakeInvocationTime()
        self.calls = 0
        self.now_ms = 1 << 60
        self._refill = CALLS_A_SECOND - others
        self._allowed = CALLS_A_SECOND
        self._refilled_at = self.clock.left

    def filter_log_events(
        self, *, startTime: int, endTime: int = 1 << 60, nextToken: str = "0", **_: str
    ) -> dict[str, Any]:
        self.calls += 1
        passed = max(self._refilled_at - self.clock.left, 0)
        self._refilled_at = self.clock.left
        self._allowed = min(self._allowed + passed * self._refill, CALLS_A_SECOND)
        if self._allowed < 1:
            self.clock.left -= REFUSAL_SECONDS
            raise THROTTLED
        self._allowed -= 1
        self.clock.left -= CALL_SECONDS
        first = bisect_left(self.lines, (startTime,)) + int(nextToken)
        end = bisect_left(self.lines, (min(endTime + 1, self.now_ms),))
        page = self.lines[first : min(first + PAGE_LINES, end)]
        events = [
            {"timestamp": at, "message": text, "logStreamName": "2026/03/01/[$LATEST]0"}
            for at, text in page
        ]
        if first + PAGE_LINES >= end:
            return {"events": events}
        return {"events": events, "nextToken": str(int(nextToken) + PAGE_LINES)}


def ended(run: int, at_ns: int, *, ended_ns: int | None = None) -> tuple[int, str]:
    line = {
        "text": "ended",
        "taskId": f"{run:032x}",
        "family": f"family-{run % 150}",
        "status": "success",
        "stopCategory": "exit",
        "outcome": "success",
        "finishedAt": format_ms(at_ns if ended_ns is None else ended_ns),
    }
    return at_ns // NS_PER_MS, json.dumps(line)


class Messages:
    """The last message to each channel, in the table of keys."""

    def __init__(self) -> None:
        self.remembered: dict[str, RememberedNight] = {}

    def last_remembered(self, channel: str, first: RememberedNight) -> RememberedNight:
        return self.remembered.setdefault(channel, first)

    def remember(self, channel: str, remembered: RememberedNight) -> None:
        self.remembered[channel] = remembered


class Account(Struct, kw_only=True):
    """The mornings of an account. Each invocation has ``timeout_seconds``, and Lambda repeats one
    that fails twice.
    """

    group: LargeGroup
    timeout_seconds: float = 120
    messages: Messages = field(default_factory=Messages)
    table: KeyTable = field(default_factory=KeyTable)
    channel: FakeChannel = field(default_factory=fake_channel)
    told: list[Counter[str]] = []
    sent: list[NightSummary] = []
    failures: list[str] = []

    def morning(self, now_ns: int) -> None:
        self.group.now_ms = now_ns // NS_PER_MS
        for _ in range(3):
            self.group.clock.left = self.timeout_seconds
            errors: list[ForwarderError] = []
            delivery = DigestSender(
                last_messages=self.messages,
                message_of=self._message,
                once=self.table.once,
                period_of=lambda last: NightPeriod(last=last, end_ns=now_ns, zone=UTC),
                now_ns=now_ns,
            )
            self.sent += delivery.send([self.channel], errors)
            assert self.group.clock.left > 0, "Lambda ends the invocation, and nothing is sent"
            if not errors:
                return
            self.failures += map(str, errors)

    def _message(self, period: NightPeriod) -> NightMessage:
        budget = _Reserved(self.group.clock, RESERVED_SECONDS)
        printed = EndedLineReader(client=self.group, group=GROUP, budget=budget).read_printed_runs(
            period
        )
        period = printed.read_part_of(period)
        runs = night_runs_of_printed(printed, period)
        self.told.append(sum(map(Counter, runs.counts.values()), Counter()))
        summary = summarize_night(period, runs, MissedTimes(), FamilyHistory(), DigestPlace())
        remembered = period.next_remembered(runs.remembered, until_ns=runs.until_ns)
        return NightMessage(summary=summary, remembered=remembered)


class _Reserved(InvocationTime):
    """A part of the clock's time."""

    def __init__(self, clock: FakeInvocationTime, reserved_seconds: float) -> None:
        self.clock = clock
        self.reserved_seconds = reserved_seconds

    def remaining_seconds(self) -> float:
        return self.clock.left - self.reserved_seconds

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)


def spread(rng: Random, number: int, days: int, *, first: int = 0) -> list[tuple[int, str]]:
    """Lines of runs that became known within so many days, most of them at night. ``first``: the
    number of the first run.
    """
    moments = [
        BEGIN_NS
        - NS_PER_DAY // 2
        + round(rng.betavariate(2, 5) * NS_PER_DAY / 2)
        + rng.randrange(days) * NS_PER_DAY
        for _ in range(number)
    ]
    return [ended(run, at_ns) for run, at_ns in enumerate(moments, first)]


@pytest.mark.parametrize(
    ("runs_a_night", "others", "is_cut"),
    [
        (10, 0, False),
        (10, 4.8, False),
        (700, 0, False),
        (700, 4, False),
        (700, 4.8, True),
        (2_000, 0, True),
        (2_000, 4, True),
    ],
)
def test_each_run_is_in_one_message_and_no_invocation_times_out(
    runs_a_night: int, others: float, *, is_cut: bool
) -> None:
    days = 3
    group = LargeGroup(spread(Random(runs_a_night), runs_a_night * days, days), others=others)
    account = Account(group=group)
    for day in range(days + 3):
        account.morning(BEGIN_NS + day * NS_PER_DAY)
    runs = Counter(f"family-{run % 150}" for run in range(runs_a_night * days))
    assert sum(account.told, Counter()) == runs
    assert len({notification_key(one) for one in account.sent}) == len(account.sent)
    assert bool(account.failures) == is_cut
    # A message of what was read says so.
    until = "There was time to read the runs until "
    said = [line.text for one in account.sent for line in one.lines if until in line.text]
    assert bool(said) == is_cut
    assert not any("may have been in" in line.text for one in account.sent for line in one.lines)


def test_too_little_time_for_any_message_is_an_error_with_a_remedy() -> None:
    at_ns = BEGIN_NS - NS_PER_DAY // 2
    group = LargeGroup([ended(run, at_ns + run * NS_PER_MS) for run in range(2_000)], others=4.95)
    account = Account(group=group)
    account.morning(at_ns)
    assert account.failures == []
    account.sent.clear()
    account.morning(BEGIN_NS)
    assert account.sent == []
    assert set(account.failures) == {
        (
            "The invocation ran out of time before the lines of task_stopped were read (CloudWatch "
            "Logs: ThrottlingException): the next one begins anew. If it does not end either, raise "
            "TimeoutSeconds."
        )
    }


def test_a_run_whose_earlier_line_there_was_no_time_to_look_for_is_counted_and_said() -> None:
    """Such as by a redrive of a day ago."""
    lines = spread(Random(2), 1_460, 1)
    ended_ns = BEGIN_NS - 2 * NS_PER_DAY
    told_ns = BEGIN_NS - 31 * NS_PER_HOUR
    day_ms = NS_PER_DAY // NS_PER_MS
    before = spread(Random(3), 1_000, 1, first=6_000)
    lines += [(at_ms - day_ms, line) for at_ms, line in before]
    for at_ns in (told_ns, BEGIN_NS - NS_PER_HOUR):
        lines.append(ended(5_000, at_ns, ended_ns=ended_ns))
    account = Account(group=LargeGroup(lines))
    account.morning(BEGIN_NS)
    assert account.told[0].total() == 1_461
    (said,) = [line.text for line in account.sent[0].lines if "no time" in line.text]
    assert said == (
        "1 of these runs ended earlier, and may have been in an earlier message: there was no time "
        "to look"
    )


def test_an_answer_that_does_not_come_is_asked_for_again() -> None:
    lines = spread(Random(3), 300, 1)
    group = LargeGroup(lines)
    lost = [ReadTimeoutError(endpoint_url="https://logs"), refusal("ServiceUnavailable", 503)]
    answer = group.filter_log_events

    def now_and_then(**asked: Any) -> dict[str, Any]:
        if lost and group.calls == 4:
            raise lost.pop()
        return answer(**asked)

    group.filter_log_events = now_and_then  # type: ignore[method-assign]
    account = Account(group=group)
    account.morning(BEGIN_NS)
    assert account.told[0].total() == 300
    assert lost == []


def test_a_refused_reading_names_the_permission() -> None:
    group = LargeGroup([])
    group.filter_log_events = Mock(side_effect=refusal("AccessDeniedException", 400))  # type: ignore[method-assign]
    lines = EndedLineReader(client=group, group=GROUP, budget=FakeInvocationTime())
    period = NightPeriod(last=remembered_before_first(BEGIN_NS), end_ns=BEGIN_NS, zone=UTC)
    with pytest.raises(ReadError, match="logs:FilterLogEvents"):
        lines.read_printed_runs(period)
