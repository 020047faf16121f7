"""The time of a morning message: what became known since the last one, each run once.

A run becomes known when ECS's first event of it arrives, however late that is: the forwarder
writes the moment into the document (``task.known_at``), and ``task_stopped`` prints the run's line
then. Shortly after such a moment, neither can be found for certain: a function may still write, and
an index shows what was written only after a while. So each message remembers the tasks that it has
found of its last minutes, and the next one looks at these minutes again. If these are too many, the
message leaves them to the next one.

A job of AWS Batch counts once, by its last attempt. Only Batch knows whether there will be another
one, and its word may come after the message, or never: so each message remembers the jobs that it
has told by an attempt that may not be the last one, and those that had several. No later message
counts an attempt of theirs, whose cost it adds.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from msgspec import Struct

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, NS_PER_SECOND
from profiler.record.last_night import NOON, Night

# Of the first message.
FIRST_NS = NS_PER_DAY
# The most of a message after others that failed: two months, of a monthly schedule.
MAX_PERIOD_NS = 62 * NS_PER_DAY
# A repeated invocation of the same morning is no message.
MIN_PERIOD_NS = NS_PER_HOUR // 2
# How long what became known may stay invisible. A function of Lambda works for 15 minutes at most.
UNSEEN_NS = 20 * NS_PER_MINUTE
# How long Batch may take to say whether it makes another attempt after a failed one.
JUDGED_NS = 5 * NS_PER_MINUTE
# They fit into an item of DynamoDB and into a search.
MAX_REMEMBERED = 4096
# They stay for as long as Batch may take to say more of a job, which may be days.
MAX_JOBS = 1024


class RememberedNight(Struct, frozen=True, kw_only=True):
    """What a message and those before it have counted: what became known before ``whole_ns``, and
    of what did after it, until ``end_ns``, only these tasks. Notices of due times alike, with
    ``due_whole_ns`` if that is another moment. ``jobs``: the jobs of AWS Batch that these messages
    have told, and that may have another attempt than the one that was known, the newest first.
    """

    end_ns: int
    whole_ns: int
    tasks: tuple[str, ...] = ()
    due_whole_ns: int | None = None
    due_times: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


class NightPeriod(Struct, frozen=True, kw_only=True):
    """What became known after ``last`` counted, and before ``end_ns``. Times are shown in
    ``zone``.
    """

    last: RememberedNight
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
    def known_from_ns(self) -> int:
        """What became known before has been counted: all that its message could find for certain.
        An earlier version, which looked at ends instead, remembered more tasks.
        """
        return max(self.last.whole_ns, self.last.end_ns - UNSEEN_NS)

    @property
    def due_from_ns(self) -> int:
        """Notices of due times from before have been counted."""
        return first_known(self.last.due_whole_ns, self.last.whole_ns)

    @property
    def seen_until_ns(self) -> int:
        """What became known before is certainly found."""
        return max(self.end_ns - UNSEEN_NS, self.known_from_ns)

    @property
    def judged_until_ns(self) -> int:
        """Of a failed attempt of a job that became known before, Batch has said whether it makes
        another one, if it ever does.
        """
        return max(self.end_ns - JUDGED_NS, self.seen_until_ns)

    @property
    def local_begin(self) -> datetime:
        return datetime.fromtimestamp(self.start_ns // NS_PER_SECOND, self.zone)

    @property
    def local_end(self) -> datetime:
        return datetime.fromtimestamp(self.end_ns // NS_PER_SECOND, self.zone)

    @property
    def title_text(self) -> str:
        """The period in words: "Since yesterday 08:00 CET"; the night's name from noon to noon."""
        began, ended = self.local_begin, self.local_end
        clock = f"{began:%H:%M %Z}"
        if began.date() == ended.date():
            return f"Since {clock}"
        if began.date() + timedelta(days=1) != ended.date():
            return f"Since {began.day} {began:%B} {clock}"
        noons = {moment.time().replace(second=0) for moment in (began, ended)}
        if noons == {NOON}:
            return Night(day=began.date(), zone=self.zone).title
        return f"Since yesterday {clock}"

    def counting_end_ns(self, number: int) -> int:
        """The moment until which the message counts, of ``number`` tasks that became known since
        ``seen_until_ns``: what it could not remember is left to the next message.
        """
        return self.end_ns if number <= MAX_REMEMBERED else self.seen_until_ns

    def next_remembered(
        self,
        tasks: Sequence[str],
        due_times: Sequence[str] = (),
        *,
        jobs: Sequence[str] = (),
        until_ns: int | None = None,
        due_until_ns: int | None = None,
    ) -> RememberedNight:
        """What the next message must know: the tasks that became known since ``seen_until_ns``, and
        the due times, and the told ``jobs`` that may have another attempt. ``until_ns``,
        ``due_until_ns``: the message counted until then.
        """
        end_ns = first_known(until_ns, self.end_ns)
        due_end_ns = first_known(due_until_ns, self.end_ns)
        whole_ns, due_whole_ns = (min(self.seen_until_ns, one) for one in (end_ns, due_end_ns))
        return RememberedNight(
            end_ns=end_ns,
            whole_ns=whole_ns,
            tasks=tuple(tasks[:MAX_REMEMBERED]),
            due_whole_ns=due_whole_ns,
            due_times=tuple(due_times[:MAX_REMEMBERED]),
            jobs=tuple(dict.fromkeys((*jobs, *self.last.jobs)))[:MAX_JOBS],
        )


def remembered_before_first(now_ns: int) -> RememberedNight:
    """What stands for the message before the first one: it ended a day ago, and counted nothing."""
    start_ns = now_ns - FIRST_NS
    return RememberedNight(end_ns=start_ns, whole_ns=start_ns)


def night_within_lookback(last: RememberedNight, now_ns: int) -> RememberedNight:
    """The last message's, but not longer ago than a message looks back."""
    start_ns = now_ns - MAX_PERIOD_NS
    if last.end_ns >= start_ns:
        return last
    return RememberedNight(end_ns=start_ns, whole_ns=start_ns, jobs=last.jobs)
