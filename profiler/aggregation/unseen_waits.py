"""How much of what a thread used between two waits followed a wait that no look saw.

The threads of a pool wait in turn for one thing long and for another one shortly, as for a server
and for a disk. The work before and after a short wait that no look saw lies between two waits for
the first thing, and each of these would weigh what both kinds hold back. What the thread used where
both kinds were seen tells them apart.
"""

from msgspec import Struct

from profiler.readers.linux.wait_types import BlockedThread


class _MeanWork(Struct, eq=False):
    """The sum of what a thread used so many times."""

    sum_ns: int = 0
    times: int = 0

    def add(self, used_ns: int) -> None:
        self.sum_ns += used_ns
        self.times += 1

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.times if self.times else None


class WorkAroundKind(Struct, eq=False):
    """What a thread used beside its waits of one kind: between two of them, where others may have
    been in between, and until and since a wait of another kind.
    """

    between: _MeanWork
    until_other: _MeanWork
    since_other: _MeanWork

    @property
    def part_after(self) -> float:
        """The part of the work between two of these waits that followed the first one."""
        return self._part(self.until_other.mean_ns, self.since_other.mean_ns)

    @property
    def part_before(self) -> float:
        """The part of it that was before the second one."""
        return self._part(self.since_other.mean_ns, self.until_other.mean_ns)

    def _part(self, own_ns: float | None, others_ns: float | None) -> float:
        """The part that is not the other kind's, of which one wait may be in between. The whole if
        no wait of another kind was seen yet, and of waits so short that there are always several.
        """
        both_ns = self.between.mean_ns
        if not both_ns or own_ns is None or others_ns is None:
            return 1.0
        return min(max(own_ns, both_ns - others_ns) / both_ns, 1.0)


class WorkByKind:
    """What a thread used beside its waits of each kind."""

    def __init__(self) -> None:
        self._kinds: dict[str, WorkAroundKind] = {}

    def may_tell(self, before: BlockedThread, after: BlockedThread) -> bool:
        """Whether the thread was seen to wait for something of another kind beside the first wait,
        or does so now.
        """
        kind = before.wait.kind
        return kind != after.wait.kind or kind in self._kinds

    def add_work(
        self, before: BlockedThread, after: BlockedThread, used_ns: int, times_on_cpu: int
    ) -> WorkAroundKind | None:
        """Add what the thread used between two waits. If others may have been in between, returns
        what says which part of the work belongs to these two; None if it is all theirs.
        """
        if not (_ends_by_itself(before) and _ends_by_itself(after)):
            return None
        around = self._around(before.wait.kind)
        if before.wait.kind != after.wait.kind:
            around.until_other.add(used_ns)
            self._around(after.wait.kind).since_other.add(used_ns)
            return None
        if times_on_cpu <= 1:
            return None
        around.between.add(used_ns)
        return around

    def _around(self, kind: str) -> WorkAroundKind:
        around = self._kinds.get(kind)
        if around is None:
            around = WorkAroundKind(_MeanWork(), _MeanWork(), _MeanWork())
            self._kinds[kind] = around
        return around


def _ends_by_itself(blocked: BlockedThread) -> bool:
    """Whether the wait says what it is for: no loop's timer and no other thread ends it."""
    is_open = blocked.has_timeout or blocked.is_stopped
    return blocked.helpers == "nobody" and not is_open
