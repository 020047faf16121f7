"""What one look at the threads of a batch sees: what has run since the last look, and what the
blocked threads wait for.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.readers.linux.cpu_pressure import CpuPressure
from profiler.readers.linux.process_threads import ProcessThreads
from profiler.readers.linux.thread_counters import ReadingNumberAndTime, ThreadTimeGrowth
from profiler.readers.linux.wait_types import BlockedThread


class ThreadSeen(Struct, frozen=True, gc=False):
    """What a thread that was new, or has run since the last look, does now.

    ``blocked`` is None for a thread that can run. ``came``: on which connections of its wait before
    something has come since its first look, None where this is not known, and ``came_before_ns``
    how long ago, None if that is not known. ``was_woken``: that wait was over before its timeout.
    ``timed_out``: its timeout ended it, None if something that came may have. ``has_client``:
    whether anybody may have connected to what it listened to, None if nobody asked.
    ``was_due``: whether the work that followed began as its timeout ended, or before; None if that
    is not known. ``is_correction``: it is the same wait as before, which the look before took for
    another one.
    """

    thread: int
    process: int
    blocked: BlockedThread | None
    came: tuple[bool | None, ...] = ()
    was_woken: bool = False
    timed_out: bool | None = False
    has_client: bool | None = None
    is_correction: bool = False
    came_before_ns: int | None = None
    was_due: bool | None = None


class ProcessSeen(Struct, frozen=True, gc=False):
    """A process, as of the last reading of the batch's processes.

    ``children_cpu_ns`` is the CPU time of the children that it has waited for.
    """

    parent: int
    children_cpu_ns: int


class ThreadsLook(Struct, frozen=True, kw_only=True):
    """The threads since the last look.

    ``growth`` has those that ran or waited for a CPU since then; None if the kernel does not count
    this. ``seen`` are the threads that were asked what they do, ``ended`` those that have ended.
    ``unread_run_ns`` is the CPU time of threads that ended unread in processes that still run.
    ``later_run_ns`` is that of threads whose counters are left for the next looks, which will have
    it once more, in a growth of several readings.
    ``processes`` are all processes, the same object if none has changed. ``sees_calls``: any
    system call was readable so far. ``is_behind``: the counters of threads are left for the next
    looks; ``is_nobodys_turn``: those of all. ``asked_share``: those of the threads that may
    be able to run which were asked have used so much of what all have. ``able_on_machine``: so
    many threads of the whole machine could run when it began, without the one that looks; None if
    unknown. ``misses_child``: a thread waited for a child, and none that lived was seen: it ended
    meanwhile, or began just now. ``have_all_ended``: no thread lives. ``pressure``: for how long
    any threads have waited for a CPU so far. ``cpus``: on how many the batch may run.
    ``readings``: so many readings of the processes were since the last look, which found the same.
    ``peeks``: so many times since the last look it was read whether a thread that works can run,
    and in ``able_peeks`` of them one could. ``has_other_waits``: a thread waits for something else
    than when it was asked before, or has ended.
    """

    growth: Sequence[ThreadTimeGrowth] | None = ()
    seen: Sequence[ThreadSeen] = ()
    ended: Sequence[int] = ()
    unread_run_ns: int = 0
    later_run_ns: int = 0
    processes: Mapping[int, ProcessSeen] = {}
    sees_calls: bool = False
    is_behind: bool = False
    is_nobodys_turn: bool = False
    asked_share: float = 1.0
    able_on_machine: int | None = None
    misses_child: bool = False
    have_all_ended: bool = False
    pressure: CpuPressure | None = None
    cpus: int = 1
    readings: int = 1
    peeks: int = 0
    able_peeks: int = 0
    has_other_waits: bool = False

    @property
    def open_ns(self) -> int | None:
        """For how long the counters leave open whether any thread could run, at most; None if some
        are left for the next looks.
        """
        if self.is_behind:
            return None
        able_ns = [grown.run_ns + grown.wait_ns for grown in self.growth or ()]
        return sum(able_ns) - max(able_ns, default=0)

    @property
    def is_still(self) -> bool:
        """Whether nothing has run since the last look, begun or ended, or could be asked."""
        return not (self.growth or self.seen or self.ended or self.is_behind)


class PresentLook(Struct):
    """What a look has found so far, from its beginning at ``now``.

    ``before`` is the look before, or this moment if there was none. ``is_group_frozen``: the
    batch's group is stopped. ``parents`` are the processes that wait for a child. The other fields
    are those of :class:`ThreadsLook`.
    """

    now: ReadingNumberAndTime
    before: ReadingNumberAndTime
    is_group_frozen: bool
    ended: list[int]
    growth: list[ThreadTimeGrowth] = []
    seen: list[ThreadSeen] = []
    unread_run_ns: int = 0
    later_run_ns: int = 0
    asked_share: float = 1.0
    has_other_waits: bool = False
    parents: list[ProcessThreads] = []

    @property
    def is_first(self) -> bool:
        """Whether no look was before."""
        return self.before.number == 0
