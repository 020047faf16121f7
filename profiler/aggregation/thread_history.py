"""One thread of a run, followed from look to look: its waits, and how these have ended so far."""

from collections import defaultdict

from msgspec import Struct, field

from profiler.aggregation.awaited_events import AwaitedEvents
from profiler.aggregation.end_counts import NO_ENDS, EndCounts, PollEnds, TimedEnds
from profiler.aggregation.thread_wait import MIN_WORK_NS, ThreadWait
from profiler.aggregation.unseen_waits import WorkByKind
from profiler.aggregation.wait_proofs import is_told_as_due
from profiler.readers.linux.wait_types import BlockedThread

# A thread that was seen to wait for something else between its sleeps does so again, unless it was
# seen to sleep so many times as often since.
_TIMES_AS_MANY_SLEEPS = 3


class ThreadHistory(Struct, eq=False):
    """One thread: how many looks its last growth covers, and for how long it could run then; its
    present wait, its last one in which it was blocked, which may be the present one, and the one
    before that if it is not known yet what followed it; the one after which it asked for an answer
    that has not come yet; whether timeouts have ended waits after which it only asked again; how
    its waits for a limited time have ended, and its polls, those for an owed answer and the others;
    how many of its waits for something else than threads are over, and how many of these with waits
    of threads of its process that work; whether it was seen to work since its last wait; how often
    it was seen to sleep since it waited for something else but threads, and the most of these
    sleeps before; what ends its waits for others; what it used beside its waits of each kind.
    """

    process: int
    steps: int = 1
    run_ns: int = 0
    able_ns: int = 0
    slices: bytes = b"0"
    present: ThreadWait | None = None
    last: ThreadWait | None = None
    earlier: ThreadWait | None = None
    asked: ThreadWait | None = None
    only_asked_again: bool = False
    timed_ends: TimedEnds | None = None
    poll_ends: dict[bool, PollEnds] = field(default_factory=lambda: defaultdict(PollEnds))
    end_counts: EndCounts = NO_ENDS
    has_worked: bool = False
    sleeps: int = 0
    most_sleeps: int = 0
    awaited: AwaitedEvents | None = None
    works: WorkByKind = field(default_factory=WorkByKind)

    def count_end(self, over: ThreadWait) -> None:
        """Count that a wait of the thread for something else than threads is over."""
        counts = self.end_counts
        self._note_end_counts(over, EndCounts(counts.ends + 1, counts.with_workers))

    def count_end_with_workers(self, over: ThreadWait) -> None:
        """Count that such a wait was over with those of workers of its process."""
        counts = self.end_counts
        self._note_end_counts(over, EndCounts(counts.ends, counts.with_workers + 1))

    def _note_end_counts(self, over: ThreadWait, counts: EndCounts) -> None:
        """Note in a wait that is over, and in the present one, how many were over so far."""
        self.end_counts = counts
        for wait in (over, self.present):
            if wait is not None:
                wait.end_counts = counts

    def count_timed_end(self, before: ThreadWait, wait: ThreadWait) -> None:
        """Count how a wait for a limited time has ended which others might have ended."""
        is_early = before.was_woken or before.was_due is False
        is_due = before.was_due and not is_told_as_due(before)
        if not (is_early or is_due) or wait.run_ns - before.run_ns < MIN_WORK_NS:
            return
        if self.timed_ends is None:
            self.timed_ends = TimedEnds()
        if is_early:
            self.timed_ends.woken += 1
        else:
            self.timed_ends.due += 1
        before.timed_ends = wait.timed_ends = self.timed_ends

    def poll_ends_of(self, blocked: BlockedThread | None) -> PollEnds | None:
        """What ended the thread's polls that are for an owed answer as this one, or not so."""
        if blocked is None or not blocked.may_go_on:
            return None
        return self.poll_ends[blocked.awaits_answer]

    def note_whether_asleep(self, wait: ThreadWait) -> None:
        """Note whether the thread sleeps, or waits for something else but threads."""
        if wait.is_sleep:
            self.sleeps += 1
            wait.is_of_worker = self.sleeps < _TIMES_AS_MANY_SLEEPS * self.most_sleeps
        elif wait.blocked is not None and wait.blocked.helpers != "threads":
            self.most_sleeps = max(self.most_sleeps, self.sleeps)
            self.sleeps = 0
