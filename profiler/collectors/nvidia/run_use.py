"""The use of one GPU by one run: which of its processes were there, how much memory they held, and
when the GPU worked for them.

Everything has a constant size, however long the run is.
"""

from collections import deque
from collections.abc import Hashable

from msgspec import Struct

from profiler.aggregation.out_of_gpu_memory import GpuMemoryGrowth
from profiler.aggregation.statistics import TimeWeightedStatistics, UseWindow
from profiler.collectors.nvidia.gpu_owners import MPS_SERVER, Owns
from profiler.collectors.nvidia.gpu_work import GpuWork
from profiler.collectors.nvidia.visible_gpus import CHANGED_BYTES
from profiler.core.optional_math import difference, first_known, sum_of_both
from profiler.core.timestamps import NEVER_NS, NS_PER_MS, NS_PER_SECOND

_PERCENT = 100
# Presence on the GPU is kept for windows that are read up to 10 s late.
_KEPT_NS = 60 * NS_PER_SECOND
_MAX_OTHERS = 64
# Up to so long before the end of the run, its last window may not be readable yet.
_MAX_TAIL_NS = NS_PER_SECOND // 2
# A process of the run was there at the last list, which is usually 0.1 s old at the end, or as old
# as the last memory. If it is older, nobody knows when the process left.
_MAX_UNSEEN_NS = 1200 * NS_PER_MS
# The time between two lists, which are read ten times a second, and what a reading takes.
_QUICK_NS = 150 * NS_PER_MS
# So short is a window that has nothing but the clearing of memory: one of the driver's, of 200 ms.
_MAX_CLEARING_NS = NS_PER_SECOND // 2
# The driver's own need beside the bytes of each process: 9 MiB on an H100.
_DRIVER_BYTES = 32 << 20
# So long after the end of a process, the driver has cleared its memory.
_CLEARED_NS = 2 * NS_PER_SECOND
# A reading counts for the time since the one before, but not for a gap without readings.
_MAX_COVERED_NS = 2 * NS_PER_SECOND


class ProcessOnGpu(Struct, frozen=True, gc=False):
    """A process with a context on the GPU.

    ``identity`` is what its owner is recognized by, None if there is no such process here.
    ``memory_bytes`` is None if the driver does not say it. ``is_only_graphics``: it draws, as a
    display server.
    """

    identity: Hashable
    memory_bytes: int | None
    is_only_graphics: bool = False


class GpuReading(Struct, frozen=True, kw_only=True, gc=False):
    """The processes on a GPU and its memory in use at ``end_ns``; None is not read.

    It counts for the time since ``start_ns`` (monotonic), the reading of the same kind before it.
    """

    start_ns: int
    end_ns: int
    processes: tuple[ProcessOnGpu, ...] | None = None
    used_bytes: int | None = None


class _ListedProcesses(Struct, kw_only=True):
    """The processes of a reading, counted: ``own_bytes`` is None if the driver does not say what
    one of the run's processes holds.
    """

    all_bytes: int = 0
    own_bytes: int | None = 0
    largest_bytes: int = 0  # of a process of the run
    lacks_others: bool = False  # the driver does not say what another program holds
    has_own: bool = False
    has_unmatched: bool = False


class _UnlistedMemory:
    """Which memory of the readings, in the order of time, may be of a process that is not listed.

    ``sees_all``: none is, as the lists have the processes of all containers.
    """

    def __init__(self, *, sees_all: bool) -> None:
        self._sees_all = sees_all
        # What all listed processes held, and when: the last lists.
        self._lists: deque[tuple[int, int]] = deque()

    def add_reading(self, reading: GpuReading, all_bytes: int) -> None:
        """Add a reading with a list, whose processes hold ``all_bytes``."""
        if self._sees_all:
            return  # no memory is another container's
        self._lists.append((reading.end_ns, all_bytes))
        while self._lists[0][0] < reading.end_ns - _CLEARED_NS:
            self._lists.popleft()

    def is_of_nobody(self, reading: GpuReading, all_bytes: int) -> bool:
        """Whether what the last reading has in use beside ``all_bytes`` is more than what the
        listed processes held before, which may not be cleared yet.
        """
        needed_bytes = CHANGED_BYTES + len(reading.processes or ()) * _DRIVER_BYTES
        unlisted_bytes = (reading.used_bytes or 0) - all_bytes - needed_bytes
        if self._sees_all or unlisted_bytes < 0:
            return False
        return unlisted_bytes >= max([held for _, held in self._lists]) - all_bytes


class ProcessListFacts(Struct):
    """The driver's lists of the processes on all GPUs.

    ``sees_all``: they have the processes of all containers. ``has_listed``: they had a process so
    far. The driver of a virtual GPU never lists one.
    """

    sees_all: bool = True
    has_listed: bool = False


class _HiddenMemory:
    """The memory in use while the driver lists no process, by readings in the order of time.

    ``has_come``: some of it came into use meanwhile. The desktop of a machine holds some before.
    """

    def __init__(self) -> None:
        self.has_come = False
        self._was_free: bool | None = None  # at the first list
        self._least_bytes: int | None = None

    def add_reading(self, reading: GpuReading) -> None:
        used_bytes = reading.used_bytes
        if used_bytes is None:
            return
        if self._was_free is None:
            self._was_free = used_bytes < CHANGED_BYTES
        if reading.processes:
            return
        self._least_bytes = min(used_bytes, first_known(self._least_bytes, used_bytes))
        is_first = used_bytes >= CHANGED_BYTES and self._was_free
        has_grown = used_bytes - self._least_bytes >= CHANGED_BYTES
        self.has_come = self.has_come or is_first or has_grown


class RunUse:
    """Takes the readings and windows of one GPU in the order of time.

    ``owns``: whether an identity is the run's; None if the processes of the run are not visible.
    """

    def __init__(
        self, started_ns: int, owns: Owns | None = None, lists: ProcessListFacts | None = None
    ) -> None:
        self.started_ns = started_ns
        self.owns = owns
        self._lists = lists or ProcessListFacts()
        sees_all = self._lists.sees_all
        self._has_memory_beside = False
        self._unlisted = _UnlistedMemory(sees_all=sees_all)
        self._seen_unlisted = _UnlistedMemory(sees_all=sees_all)
        self._was_unmatched = False
        # From when to when a process of the run was on the GPU, the last ones.
        self._presence: deque[tuple[int, int]] = deque()
        self._was_present = False
        self._unseen_from_ns: float = NEVER_NS
        self._left_ns: int | None = None  # at the end of the run
        self._listed_used_bytes: int | None = None
        self._listed_own_bytes: int | None = None
        self.has_own = False
        # As ``has_own``, with the readings that wait to be added; so below.
        self.is_seen = False
        self._has_seen_other = False
        self._has_seen_unlisted = False
        self._seen_hidden = _HiddenMemory()
        self._has_seen_hidden = False
        self._is_listed = False  # the driver lists processes
        self.has_unmatched = False
        self._has_matched = False
        self._others: set[Hashable] = set()
        self._has_hidden_use = False
        self._hidden = _HiddenMemory()
        self.own_memory = TimeWeightedStatistics()
        self.device_memory = TimeWeightedStatistics()
        self.lacks_memory = False  # the driver does not say what a process of the run holds
        self._memory_until_ns = started_ns
        self._own_memory_until_ns = started_ns
        self.read_until_ns = started_ns
        self.watched_ns = 0  # the time that readings cover
        self.listed_ns = 0  # the time that lists of processes cover
        # The time in which the device's memory was another one than at the last list: a process
        # has come or gone, and the driver does not list them any more.
        self.unlisted_ns = 0
        self.growth = GpuMemoryGrowth()
        self.own_work = GpuWork(started_ns)
        self.device_work = GpuWork(started_ns)
        self.has_estimates = False  # some of the work was read at one moment of each second
        self._last_window: UseWindow | None = None
        self.windows_until_ns = started_ns

    @property
    def sees_processes(self) -> bool:
        """Whether the lists of processes say whether the run uses the GPU."""
        return self.owns is not None and (self._has_matched or not self.has_unmatched)

    @property
    def may_match(self) -> bool:
        """Whether the next list may say it: where ids are not those of another container, a process
        that could not be looked up has ended meanwhile.
        """
        return self.sees_processes or (self.owns is not None and self._lists.sees_all)

    @property
    def lists_nobody(self) -> bool:
        """Whether memory came into use during the run, and the driver listed no process on any GPU:
        of a virtual GPU, or where only programs of other containers use the GPUs.
        """
        return self._hidden.has_come and not self._lists.has_listed

    @property
    def is_shared(self) -> bool:
        """Whether a program that is not the run's had a context on the GPU meanwhile."""
        return bool(self._others) or (self._has_hidden_use and not self.lists_nobody)

    @property
    def has_unlisted(self) -> bool:
        """Whether memory was in use that no listed process holds: a process of another container
        holds it, it is managed memory of the run, or the driver does not say whose it is.
        """
        return self._has_memory_beside or self.lists_nobody

    @property
    def _is_seen_listing_nobody(self) -> bool:
        return self._seen_hidden.has_come and not self._lists.has_listed

    @property
    def is_seen_shared(self) -> bool:
        is_others = self._has_seen_hidden and not self._is_seen_listing_nobody
        return self._has_seen_other or is_others

    @property
    def is_seen_unlisted(self) -> bool:
        return self._has_seen_unlisted or self._is_seen_listing_nobody

    @property
    def work(self) -> GpuWork:
        """The work while a process of the run was there; of the device if that is unknown."""
        return self.own_work if self.has_own else self.device_work

    @property
    def is_unused(self) -> bool:
        """Whether the lists of processes show that the run has not been on the GPU so far."""
        return self._is_listed and self.sees_processes and not self.is_seen

    def note_reading(self, reading: GpuReading) -> None:
        """Note at once what a reading shows, which is added only later."""
        if reading.processes is None:
            return
        self._is_listed = True
        has_own = False
        all_bytes = 0
        for process in reading.processes:
            all_bytes += process.memory_bytes or 0
            is_own = self._is_of_this_run(process)
            if is_own:
                has_own = True
            elif is_own is False and not process.is_only_graphics:
                self._has_seen_other = True
        self.is_seen = self.is_seen or has_own
        self._look_at_unlisted(reading, all_bytes, has_own=has_own)

    def _look_at_unlisted(self, reading: GpuReading, all_bytes: int, *, has_own: bool) -> None:
        if self.owns is None:
            return
        self._seen_hidden.add_reading(reading)
        self._seen_unlisted.add_reading(reading, all_bytes)
        if has_own and self._seen_unlisted.is_of_nobody(reading, all_bytes):
            self._has_seen_unlisted = True
        elif not reading.processes and not self.is_seen:
            is_used = (reading.used_bytes or 0) >= CHANGED_BYTES
            self._has_seen_hidden = self._has_seen_hidden or is_used

    def _is_of_this_run(self, process: ProcessOnGpu) -> bool | None:
        """Whether the process is the run's; None if nobody knows."""
        if process.identity == MPS_SERVER:
            return None
        is_own = None
        if self.owns is not None and process.identity is not None:
            is_own = self.owns(process.identity)
        if is_own is None:
            self.has_unmatched = True
        else:
            self._has_matched = True
        return is_own

    def add_reading(self, reading: GpuReading, finished_ns: int | None = None) -> None:
        """Add a reading; one after the end of the run is none of its own."""
        if not self.started_ns < reading.end_ns <= first_known(finished_ns, NEVER_NS):
            return
        start_ns = max(reading.start_ns, self.started_ns)
        covered_ns = min(reading.end_ns - start_ns, _MAX_COVERED_NS)
        self.watched_ns += covered_ns
        self.read_until_ns = reading.end_ns
        if reading.used_bytes is not None:
            # Lists alone may have been read since the memory was.
            held_ns = min(reading.end_ns - self._memory_until_ns, _MAX_COVERED_NS)
            self.device_memory.add_value(reading.used_bytes, max(held_ns, 1))
            self._memory_until_ns = reading.end_ns
        if reading.processes is None:
            self._extend_list(reading, covered_ns)
        if reading.processes is None or self.owns is None:
            return
        self.listed_ns += covered_ns
        listed = self._count(reading.processes)
        self._unlisted.add_reading(reading, listed.all_bytes)
        if reading.used_bytes is not None:
            self._listed_used_bytes = reading.used_bytes
        self._find_hidden_use(reading, listed)
        self._add_presence(start_ns, reading.end_ns, is_present=listed.has_own)
        own_bytes = self._with_unlisted(reading, listed)
        self._listed_own_bytes = None
        if own_bytes is None or listed.own_bytes is None:
            return
        self._add_own_memory(own_bytes, reading.end_ns)
        if listed.has_own:
            self.growth.add_reading(
                reading.end_ns, listed.own_bytes, reading.used_bytes, listed.largest_bytes
            )

    def _with_unlisted(self, reading: GpuReading, listed: _ListedProcesses) -> int | None:
        """What the run's processes hold, with what the driver counts for no process: its own need,
        and managed memory.
        """
        if not listed.has_own or reading.used_bytes is None or self.is_shared:
            return listed.own_bytes
        if self._unlisted.is_of_nobody(reading, listed.all_bytes):
            self._has_memory_beside = True
            return listed.own_bytes
        if listed.lacks_others:
            return listed.own_bytes
        return sum_of_both(listed.own_bytes, max(reading.used_bytes - listed.all_bytes, 0))

    def _find_hidden_use(self, reading: GpuReading, listed: _ListedProcesses) -> None:
        """Whether a process was there that is not the run's, and that cannot be seen here."""
        self._hidden.add_reading(reading)
        is_hidden = not reading.processes and (reading.used_bytes or 0) >= CHANGED_BYTES
        if is_hidden:
            gone_ns = reading.end_ns - self._presence[-1][1] if self._presence else _CLEARED_NS
            self._has_hidden_use = self._has_hidden_use or gone_ns >= _CLEARED_NS
        # An id without a process here, beside those of the run, is another user's process where
        # /proc hides these (hidepid). One that ends between the list and the look misses once.
        is_unmatched = listed.has_own and listed.has_unmatched
        self._has_hidden_use = self._has_hidden_use or (is_unmatched and self._was_unmatched)
        self._was_unmatched = is_unmatched

    def _count(self, processes: tuple[ProcessOnGpu, ...]) -> _ListedProcesses:
        listed = _ListedProcesses()
        for process in processes:
            listed.all_bytes += process.memory_bytes or 0
            is_own = self._is_of_this_run(process)
            if is_own:
                listed.has_own = True
                self.lacks_memory = self.lacks_memory or process.memory_bytes is None
                listed.own_bytes = sum_of_both(listed.own_bytes, process.memory_bytes)
                listed.largest_bytes = max(listed.largest_bytes, process.memory_bytes or 0)
            elif is_own is False:
                self._add_other(process)
                listed.lacks_others = listed.lacks_others or process.memory_bytes is None
            elif process.identity is None:
                listed.has_unmatched = True
        return listed

    def _add_other(self, process: ProcessOnGpu) -> None:
        if not process.is_only_graphics and len(self._others) < _MAX_OTHERS:
            self._others.add(process.identity)

    def _add_own_memory(self, own_bytes: int, end_ns: int) -> None:
        """What was held for longer before a reading, as before a late first list, is not known."""
        held_ns = min(end_ns - self._own_memory_until_ns, _MAX_COVERED_NS)
        self.own_memory.add_value(own_bytes, max(held_ns, 1))
        self._own_memory_until_ns = end_ns
        self._listed_own_bytes = own_bytes

    def _extend_list(self, reading: GpuReading, covered_ns: int) -> None:
        """Between two lists, the processes are there, and hold what they held, as long as the
        memory does not change.
        """
        change_bytes = difference(reading.used_bytes, self._listed_used_bytes)
        if change_bytes is None:
            return
        if abs(change_bytes) >= CHANGED_BYTES:
            self.unlisted_ns += covered_ns
            return
        if self._was_present:
            self._presence[-1] = (self._presence[-1][0], reading.end_ns)
        if self._listed_own_bytes is not None:
            self._add_own_memory(self._listed_own_bytes, reading.end_ns)

    def _add_presence(self, start_ns: int, end_ns: int, *, is_present: bool) -> None:
        if is_present and self._was_present:
            self._presence[-1] = (self._presence[-1][0], end_ns)
        elif is_present:
            self.has_own = True
            self._presence.append((start_ns, end_ns))
            while len(self._presence) > 1 and self._presence[0][1] < end_ns - _KEPT_NS:
                self._presence.popleft()
        elif self._was_present:
            # The last one left between the two readings.
            begin_ns, last_ns = self._presence[-1]
            self._presence[-1] = (begin_ns, (last_ns + end_ns) // 2)
        self._was_present = is_present

    def end_presence(self, finished_ns: int) -> None:
        """End the run after its last reading: what was there then has left until the end."""
        if not self._was_present:
            return
        listed_ns = self._presence[-1][1]
        unseen_ns = finished_ns - listed_ns
        if unseen_ns > _MAX_UNSEEN_NS:
            self._unseen_from_ns = listed_ns
        if unseen_ns <= _QUICK_NS:
            # How long it was gone is less than what the lists can tell.
            self._add_presence(finished_ns, finished_ns, is_present=True)
            self._left_ns = finished_ns
        else:
            self._add_presence(finished_ns, finished_ns, is_present=False)

    def add_window(self, window: UseWindow, finished_ns: int | None = None) -> None:
        """Add a window after the readings of its time."""
        start_ns = max(window.start_ns, self.started_ns, self.windows_until_ns)
        end_ns = min(window.end_ns, first_known(finished_ns, window.end_ns))
        if end_ns <= start_ns:
            return
        share = window.percent / _PERCENT
        self.device_work.add_window(
            start_ns,
            end_ns,
            share * (end_ns - start_ns),
            within=(start_ns, end_ns),
            percent=window.percent,
        )
        if self.owns is not None and end_ns <= self._unseen_from_ns:
            first_ns, last_ns = self._presence_between(start_ns, end_ns)
            used_ns = min(share * (window.end_ns - window.start_ns), last_ns - first_ns)
            has_left = last_ns == self._left_ns or last_ns < min(window.end_ns, end_ns)
            # A longer one, as GPM's of a second, may have all of the work of a short run.
            is_short = window.end_ns - window.start_ns <= _MAX_CLEARING_NS
            if (
                has_left
                and is_short
                and not (self._last_window is not None and self._last_window.percent)
            ):
                used_ns = 0.0  # the driver clears the memory of a process that has ended
            self.own_work.add_window(
                start_ns, end_ns, used_ns, within=(first_ns, last_ns), percent=window.percent
            )
        self.windows_until_ns = end_ns
        self._last_window = window

    def _presence_between(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """The part of a time from the first to the last moment in which a process of the run was
        on the GPU; an empty one if none was.
        """
        first_ns = end_ns
        last_ns = end_ns
        for begin_ns, until_ns in self._presence:
            if begin_ns < end_ns and until_ns > start_ns:
                first_ns = min(first_ns, max(begin_ns, start_ns))
                last_ns = min(until_ns, end_ns)
        return first_ns, last_ns

    def repeat_last_window(self, finished_ns: int) -> None:
        """The last window of the run may not be readable yet: it is taken as the one before."""
        left_ns = finished_ns - self.windows_until_ns
        if self._last_window is not None and 0 < left_ns <= _MAX_TAIL_NS:
            percent = self._last_window.percent
            self.add_window(UseWindow(self.windows_until_ns, finished_ns, percent))
