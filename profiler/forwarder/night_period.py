"""The time of a morning message: what ended since the last one, each run once.

What ended shortly before the last message can have become known after it: a report or an event
comes up to six hours late, because Lambda repeats it for so long. So each message remembers the
tasks of the hours before it that it counted, and the next one looks at these hours again. A search
cluster also says when a document arrived first, or when a late event confirmed it
(``event.ingested``), and a line when it was written: a run that becomes known later than that, such
as after a redrive, is in the next message for a week.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from profiler.core.timestamps import NEVER_NS, NS_PER_DAY, NS_PER_HOUR, NS_PER_SECOND
from profiler.record.last_night import NOON, Night

# Of the first message, and the most of one after several that failed. The week of a weekly
# schedule can have 169 hours (the end of summer time), and a message that begins some minutes late.
FIRST_NS = NS_PER_DAY
MAX_PERIOD_NS = 7 * NS_PER_DAY + 2 * NS_PER_HOUR
# A repeated invocation of the same morning is no message.
MIN_PERIOD_NS = NS_PER_HOUR // 2
LATE_NS = 6 * NS_PER_HOUR
# They fit into an item of DynamoDB and into a search.
MAX_REMEMBERED = 4096


class Remembered(Struct, frozen=True, kw_only=True):
    """What a message and those before it have counted: what ended before ``whole_ns``, and after it
    only these tasks and due times, which were known before ``end_ns``.
    """

    end_ns: int
    whole_ns: int
    tasks: tuple[str, ...] = ()
    due_times: tuple[str, ...] = ()


class NightPeriod(Struct, frozen=True, kw_only=True):
    """What ended after ``last`` counted, and before ``end_ns``. Times are shown in ``zone``."""

    last: Remembered
    end_ns: int
    zone: tzinfo

    @property
    def start_ns(self) -> int:
        """The end of the last message."""
        return self.last.end_ns

    @property
    def days(self) -> float:
        return (self.end_ns - self.start_ns) / NS_PER_DAY

    @property
    def late_ns(self) -> int:
        """The moment from which on tasks are looked for that the last message did not count."""
        return max(self.last.whole_ns, self.start_ns - LATE_NS)

    @property
    def oldest_ns(self) -> int:
        """What ended before is in no message, however late its document arrives."""
        return self.end_ns - MAX_PERIOD_NS

    @property
    def arrived_from_ns(self) -> float:
        """What ended before ``late_ns`` and arrived from here on is in no message yet. The last
        message remembers all that arrived since ``late_ns``, unless it was too much: then it
        counted what arrived until its end. The first message has nothing older than a day.
        """
        if self.last.whole_ns <= self.start_ns - LATE_NS:
            return self.late_ns
        return self.start_ns if self.last.whole_ns < self.start_ns else NEVER_NS

    @property
    def remembered_from_ns(self) -> int:
        """The moment from which on the next message looks again."""
        return max(self.end_ns - LATE_NS, self.late_ns)

    @property
    def began(self) -> datetime:
        return datetime.fromtimestamp(self.start_ns // NS_PER_SECOND, self.zone)

    @property
    def title(self) -> str:
        """The period in words: "Since yesterday 08:00 CET"; the night's name from noon to noon."""
        began = self.began
        ended = datetime.fromtimestamp(self.end_ns // NS_PER_SECOND, self.zone)
        clock = f"{began:%H:%M %Z}"
        if began.date() == ended.date():
            return f"Since {clock}"
        if began.date() + timedelta(days=1) != ended.date():
            return f"Since {began.day} {began:%B} {clock}"
        noons = {moment.time().replace(second=0) for moment in (began, ended)}
        if noons == {NOON}:
            return Night(day=began.date(), zone=self.zone).title
        return f"Since yesterday {clock}"

    def to_remember(
        self, tasks: Sequence[tuple[str, int]], due_times: Sequence[str] = ()
    ) -> Remembered:
        """What the next message must know: all tasks since ``remembered_from_ns`` with their ends,
        newest first, and the due times.
        """
        kept = tasks[:MAX_REMEMBERED]
        whole_ns = self.remembered_from_ns
        if len(tasks) > len(kept):
            # Not all that arrived since ``remembered_from_ns`` is remembered.
            whole_ns = max(kept[-1][1], self.end_ns - LATE_NS) + 1
        return Remembered(
            end_ns=self.end_ns,
            whole_ns=whole_ns,
            tasks=tuple(task for task, _ in kept),
            due_times=tuple(due_times[:MAX_REMEMBERED]),
        )


def first_period(now_ns: int) -> Remembered:
    """What stands for the message before the first one: it ended a day ago, and counted nothing."""
    start_ns = now_ns - FIRST_NS
    return Remembered(end_ns=start_ns, whole_ns=start_ns)


def bounded(last: Remembered, now_ns: int) -> Remembered:
    """The last message's, but not longer ago than a message looks back."""
    start_ns = now_ns - MAX_PERIOD_NS
    return last if last.end_ns >= start_ns else Remembered(end_ns=start_ns, whole_ns=start_ns)
