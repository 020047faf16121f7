"""Every run is in exactly one morning message of each channel, whatever fails or comes late."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from zoneinfo import ZoneInfo

import msgspec
import pytest
from msgspec import Struct

from profiler.core.timestamps import NS_PER_HOUR, NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.forwarder.digest_delivery import DigestSender, NightMessage
from profiler.forwarder.invocation import DeliveryError, ForwarderError
from profiler.forwarder.morning_digest import DigestPlace, summarize_night
from profiler.forwarder.night_period import (
    MAX_REMEMBERED,
    NightPeriod,
    RememberedNight,
    night_within_lookback,
    remembered_before_first,
)
from profiler.forwarder.night_runs import FamilyHistory, MissedTimes
from profiler.forwarder.notifications.notification import NightSummary, NoticeChannel, Notification
from tests.printed_lines import runs_of_lines

BERLIN = ZoneInfo("Europe/Berlin")


def at(day: int, hour: float, month: int = 11) -> int:
    midnight = datetime(2026, month, day, tzinfo=UTC)
    return round(midnight.timestamp()) * NS_PER_SECOND + round(hour * NS_PER_HOUR)


class Ended(Struct, frozen=True):
    """A run, and how many minutes after its end its line was written."""

    task: str
    ended_ns: int
    late_minutes: float = 0.5

    @property
    def written_ns(self) -> int:
        return self.ended_ns + round(self.late_minutes * NS_PER_MINUTE)

    @property
    def line(self) -> tuple[int, str]:
        fields = {
            "text": "ended",
            "taskId": self.task,
            "family": self.task,
            "status": "failure",
            "outcome": "failure",
            "stopCategory": "exit",
            "exitCode": 1,
            "finishedAt": format_ms(self.ended_ns),
        }
        return self.written_ns // NS_PER_MS, msgspec.json.encode(fields).decode()


class Account:
    """The table of keys and the channels' messages, in memory. What ``breaks`` refuses posts."""

    def __init__(self, *runs: Ended, channels: Sequence[str] = ("slack",)) -> None:
        self.runs = runs
        self.last_of: dict[str, RememberedNight] = {}
        self.keys: dict[str, object] = {}
        self.posted: dict[str, list[NightSummary]] = {name: [] for name in channels}
        self.breaks: set[str] = set()
        self.forgets = False
        self.reads = 0
        self.sent: list[NightSummary] = []  # as the function says

    def last_remembered(self, channel: str, first: RememberedNight) -> RememberedNight:
        return self.last_of.setdefault(channel, first)

    def remember(self, channel: str, remembered: RememberedNight) -> None:
        if self.forgets:
            raise DeliveryError("The table cannot be used.")
        self.last_of[channel] = remembered

    def once(self, key: str, work: Callable[[], object]) -> object:
        if key not in self.keys:
            self.keys[key] = work()
        return self.keys[key]

    def post(self, channel: str, notification: Notification, _kind: str) -> None:
        if channel in self.breaks:
            raise DeliveryError(f"{channel} is down")
        assert isinstance(notification, NightSummary)
        self.posted[channel].append(notification)

    def message_of(self, period: NightPeriod) -> NightMessage:
        self.reads += 1
        lines = [run.line for run in self.runs if run.written_ns < period.end_ns]
        runs = runs_of_lines(lines, period)
        summary = summarize_night(period, runs, MissedTimes(), FamilyHistory(), DigestPlace())
        # Its lines name five families; the sentence counts all.
        named = msgspec.structs.replace(summary, title=",".join(sorted(runs.family_names)))
        remembered = period.next_remembered(runs.remembered, until_ns=runs.until_ns)
        return NightMessage(summary=named, remembered=remembered)

    def morning(self, now_ns: int) -> list[ForwarderError]:
        errors: list[ForwarderError] = []
        self.sent += DigestSender(
            last_messages=self,
            message_of=self.message_of,
            once=self.once,
            period_of=lambda last: NightPeriod(last=last, end_ns=now_ns, zone=UTC),
            now_ns=now_ns,
        ).send(
            [NoticeChannel(name=name, post=partial(self.post, name)) for name in self.posted],
            errors,
        )
        return errors

    def told(self, channel: str = "slack") -> list[str]:
        """The tasks of each message."""
        return [summary.title for summary in self.posted[channel]]


MORNINGS = [at(day, 8) for day in (24, 25, 26)]


def test_ten_runs_of_two_days_are_in_one_message_each() -> None:
    runs = [
        Ended("a", at(23, 9.5)),  # a nightly job until half past nine
        Ended("b", at(24, 9.5)),
        Ended("c", at(25, 9.5)),
        Ended("d", at(24, 9)),  # begins at 22:00, fails at nine
        Ended("e", at(24, 10)),  # a daily job at nine
        Ended("f", at(25, 10)),
        Ended("g", at(24, 2)),
        Ended("h", at(25, 2)),
        Ended("i", at(24, 7.9999)),
        Ended("j", at(25, 8)),
    ]
    account = Account(*runs)
    for morning in MORNINGS:
        assert account.morning(morning) == []
    assert account.told() == ["a,g", "b,d,e,h,i", "c,f,j"]


def test_a_run_that_became_known_after_the_message_is_in_the_next() -> None:
    runs = [
        Ended("in-time", at(24, 7.9)),
        Ended("late", at(24, 7.9), late_minutes=90),
        Ended("very-late", at(24, 3), late_minutes=6 * 60 - 1),
        Ended("later-than-the-retries", at(24, 3), late_minutes=12 * 60),
    ]
    account = Account(*runs)
    for morning in MORNINGS:
        account.morning(morning)
    assert account.told() == ["in-time", "late,later-than-the-retries,very-late", ""]


def test_a_repeated_invocation_sends_nothing() -> None:
    account = Account(Ended("a", at(24, 2)), Ended("b", at(24, 8.01)))
    for minutes in (0, 0, 1, 3, 29):
        account.morning(MORNINGS[0] + minutes * NS_PER_MINUTE)
    account.morning(MORNINGS[1])
    assert account.told() == ["a", "b"]


def test_a_morning_that_failed_is_part_of_the_next() -> None:
    account = Account(Ended("a", at(24, 2)), Ended("b", at(25, 2)))
    account.breaks = {"slack"}
    for minutes in (0, 1, 3):  # Lambda retries twice
        (error,) = account.morning(MORNINGS[0] + minutes * NS_PER_MINUTE)
        assert str(error) == "slack is down"
    account.breaks = set()
    account.morning(MORNINGS[1])
    account.morning(MORNINGS[2])
    assert account.told() == ["a,b", ""]
    assert account.posted["slack"][0].sentence.startswith("Since 23 November 08:00 UTC: 2 runs")


def test_a_channel_that_fails_holds_no_other_up_and_gets_what_it_missed() -> None:
    runs = (Ended("a", at(24, 2)), Ended("b", at(25, 2)), Ended("c", at(26, 2)))
    account = Account(*runs, channels=("bus", "slack"))
    account.breaks = {"bus"}
    account.morning(MORNINGS[0])
    account.morning(MORNINGS[0] + NS_PER_MINUTE)
    account.morning(MORNINGS[1])
    account.breaks = set()
    account.morning(MORNINGS[2])
    assert account.told("slack") == ["a", "b", "c"]
    assert account.told("bus") == ["a,b,c"]


def test_channels_with_the_same_past_are_read_for_once() -> None:
    account = Account(Ended("a", at(24, 2)), channels=("bus", "slack", "teams"))
    account.morning(MORNINGS[0])
    assert account.reads == 1


def test_a_crash_after_the_message_neither_repeats_nor_loses_anything() -> None:
    account = Account(Ended("a", at(24, 2)), Ended("b", at(24, 8.01)), Ended("c", at(25, 2)))
    account.forgets = True
    account.morning(MORNINGS[0])
    account.forgets = False
    account.morning(MORNINGS[0] + 2 * NS_PER_MINUTE)  # the retry
    account.morning(MORNINGS[1])
    assert account.told() == ["a", "b,c"]
    assert [summary.title for summary in account.sent] == ["b,c"], "nobody knew of the first one"


def test_a_table_that_answers_only_a_day_later_repeats_nothing() -> None:
    account = Account(Ended("a", at(24, 2)), Ended("b", at(25, 2)))
    account.forgets = True
    account.morning(MORNINGS[0])
    account.forgets = False
    account.morning(MORNINGS[1])
    account.morning(MORNINGS[2])
    assert account.told() == ["a", "b", ""]


def test_a_message_looks_back_two_months_at_most() -> None:
    long_ago = remembered_before_first(at(1, 8, month=9))
    assert night_within_lookback(long_ago, at(20, 8)).end_ns == at(19, 8, month=9)
    assert night_within_lookback(long_ago, at(31, 8, month=10)) is long_ago


@pytest.mark.parametrize("monday", [19, 12], ids=["the clocks change", "a minute late"])
def test_a_weekly_schedule_leaves_out_nothing_of_its_week(monday: int) -> None:
    begun, ended = (
        round(datetime(2026, 10, day, 8, tzinfo=BERLIN).timestamp()) * NS_PER_SECOND
        for day in (monday, monday + 7)
    )
    runs = (
        Ended("late", begun - NS_PER_HOUR, late_minutes=90),
        Ended("at its beginning", begun + NS_PER_SECOND),
    )
    account = Account(*runs)
    account.morning(begun)
    account.morning(ended + NS_PER_MINUTE)
    assert account.told() == ["", "at its beginning,late"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [MAX_REMEMBERED, MAX_REMEMBERED + 1, 3 * MAX_REMEMBERED])
def test_a_night_with_more_tasks_than_can_be_remembered_repeats_none(count: int) -> None:
    """Those of its last minutes that are too many are in the next one."""
    runs = [Ended(f"t{one}", at(24, 7.65) + one * NS_PER_SECOND // 10) for one in range(count)]
    account = Account(*runs)
    for morning in MORNINGS:
        account.morning(morning)
    told = [name for message in account.told() for name in message.split(",") if name]
    assert sorted(told) == sorted(run.task for run in runs)


@pytest.mark.parametrize(("month", "day", "hours"), [(3, 29, 23), (10, 25, 25)])
def test_a_night_in_which_the_clocks_change_has_no_hole(month: int, day: int, hours: int) -> None:
    before, after = (
        round(datetime(2026, month, one, 8, tzinfo=BERLIN).timestamp()) * NS_PER_SECOND
        for one in (day - 1, day)
    )
    assert after - before == hours * NS_PER_HOUR
    last = RememberedNight(end_ns=before, whole_ns=before)
    period = NightPeriod(last=last, end_ns=after, zone=BERLIN)
    assert period.title_text.startswith("Since yesterday 08:00 CE")
    ends = [before + round(hour * NS_PER_HOUR) for hour in range(hours)]
    lines = [Ended(f"t{end}", end).line for end in ends]
    assert len(runs_of_lines(lines, period).family_names) == hours


@pytest.mark.parametrize(
    ("begin", "end", "title"),
    [
        (at(24, 12), at(25, 12), "Last night (24 November)"),
        (at(24, 8), at(25, 8), "Since yesterday 08:00 UTC"),
        (at(25, 2), at(25, 8), "Since 02:00 UTC"),
        (at(22, 8), at(25, 8), "Since 22 November 08:00 UTC"),
    ],
)
def test_the_title_says_what_the_message_covers(begin: int, end: int, title: str) -> None:
    last = RememberedNight(end_ns=begin, whole_ns=begin)
    assert NightPeriod(last=last, end_ns=end, zone=UTC).title_text == title
