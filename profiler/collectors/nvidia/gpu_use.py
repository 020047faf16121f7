"""What a run did on one GPU: which of its processes were there, how much memory they held, and
when the GPU worked for them.

Everything has a constant size: what is older than a few seconds is summed up.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Literal

from msgspec import Struct

from profiler.aggregation.out_of_gpu_memory import MemoryGrowth
from profiler.aggregation.statistics import TimeWeightedStatistics
from profiler.collectors.nvidia.gpu_owners import MPS_SERVER
from profiler.collectors.nvidia.visible_gpus import UseWindow
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.units import MIB

# Work that is separated by a longer pause begins or ends anew: the larger of both.
_MIN_PAUSE_NS = 2 * NS_PER_SECOND
_PAUSE_SHARE = 20
# The first piece of work that has this share of all of it is the beginning of the work. At most 21
# pieces are separated by a twentieth of the run, so one has more.
_MIN_PIECE_SHARE = 0.04
_MAX_PIECES = 64
# The making and the end of a context show as 1 or 2 % of a window.
_WEAK_PERCENT = 2
_KEPT_NS = 60 * NS_PER_SECOND
_MAX_OTHERS = 64
# Up to so long before the end of the run, its last window may not be readable yet.
_MAX_TAIL_NS = NS_PER_SECOND // 2
# The driver's own need of memory is 9 MiB a process; a context takes 250 to 650 MiB.
HIDDEN_BYTES = 64 * MIB

UseSource = Literal["driver-samples", "gpm", "once-a-second"]
# The best first.
_SOURCES: tuple[UseSource, ...] = ("driver-samples", "gpm", "once-a-second")
Owns = Callable[[object], bool | None]


class ProcessesReading(Struct, frozen=True, kw_only=True, gc=False):
    """The processes with a context on the GPU, read at ``end_ns``, for the time since
    ``start_ns`` (monotonic).

    ``processes`` are (identity, memory in bytes, whether it only draws), None if they were not read;
    an identity is what the owner of the pid was recognized by, None if there is no such process
    here. ``used_bytes`` is the device's memory in use, if it was read at the same time.
    """

    start_ns: int
    end_ns: int
    processes: tuple[tuple[object, int | None, bool], ...] | None = None
    used_bytes: int | None = None


class Piece(Struct):
    """Work on the GPU without a long pause."""

    start_ns: int
    end_ns: int
    used_ns: float


class Pieces:
    """The pieces of work of a run, in constant size: the pauses that separate them grow with the
    run.
    """

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self._pieces: list[Piece] = []

    def add(self, start_ns: int, end_ns: int, used_ns: float) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last is not None and start_ns - last.end_ns < self._pause_ns(end_ns):
            last.end_ns = max(last.end_ns, end_ns)
            last.used_ns += used_ns
        else:
            self._pieces.append(Piece(start_ns, end_ns, used_ns))
        if len(self._pieces) > _MAX_PIECES:
            self._pieces = self._merged(end_ns)

    def _pause_ns(self, until_ns: int) -> int:
        return max(_MIN_PAUSE_NS, (until_ns - self._started_ns) // _PAUSE_SHARE)

    def _merged(self, until_ns: int) -> list[Piece]:
        merged: list[Piece] = []
        pause_ns = self._pause_ns(until_ns)
        for piece in self._pieces:
            if merged and piece.start_ns - merged[-1].end_ns < pause_ns:
                merged[-1].end_ns = piece.end_ns
                merged[-1].used_ns += piece.used_ns
            else:
                merged.append(Piece(piece.start_ns, piece.end_ns, piece.used_ns))
        return merged

    def work(self, until_ns: int) -> tuple[Piece, Piece] | None:
        """The first and the last piece of the work; None without any."""
        pieces = self._merged(until_ns)
        least_ns = _MIN_PIECE_SHARE * sum(piece.used_ns for piece in pieces)
        large = [piece for piece in pieces if piece.used_ns and piece.used_ns >= least_ns]
        return (large[0], large[-1]) if large else None

    def used_before(self, at_ns: int, until_ns: int) -> float:
        return sum(piece.used_ns for piece in self._merged(until_ns) if piece.start_ns < at_ns)


class Work(Struct, frozen=True, kw_only=True):
    """When a GPU worked for a run (monotonic), and how long it did not: before, between, after."""

    first_ns: int
    last_ns: int
    before_ns: float
    between_ns: float
    after_ns: float


class UseTotals:
    """The work of a GPU in one run."""

    def __init__(self, started_ns: int) -> None:
        self._started_ns = started_ns
        self.utilization = TimeWeightedStatistics()
        self.used_ns = 0.0
        self.covered_ns = 0
        self._pieces = Pieces(started_ns)
        self._strong_pieces = Pieces(started_ns)
        self._strong_ns = 0.0
        self._used_until_ns: int | None = None

    def add(
        self,
        start_ns: int,
        end_ns: int,
        possible: tuple[int, int],
        used_ns: float,
        share: float,
    ) -> None:
        """Add a time with its work, which lies within the ``possible`` part of it."""
        first_ns, last_ns = possible
        self.covered_ns += end_ns - start_ns
        self.used_ns += used_ns
        self.utilization.add(100 * used_ns / (end_ns - start_ns), end_ns - start_ns)
        if not used_ns:
            return
        # Work that ends a pause is at the end of its window, and work before one at its begin.
        was_used = self._used_until_ns == first_ns
        begin_ns = first_ns if was_used else round(last_ns - used_ns)
        until_ns = round(first_ns + used_ns) if was_used else last_ns
        self._pieces.add(begin_ns, until_ns, used_ns)
        if 100 * share > _WEAK_PERCENT:
            self._strong_ns += used_ns
            self._strong_pieces.add(begin_ns, until_ns, used_ns)
        self._used_until_ns = last_ns

    def work(self, until_ns: int) -> Work | None:
        """When the GPU worked; None if it did not."""
        pieces = self._pieces
        if self._strong_ns >= self.used_ns / 2:
            pieces = self._strong_pieces
        found = pieces.work(until_ns)
        if found is None:
            return None
        first, last = found
        used_before_ns = self._pieces.used_before(first.start_ns, until_ns)
        used_until_ns = self._pieces.used_before(last.start_ns + 1, until_ns)
        before_ns = max(first.start_ns - self._started_ns - used_before_ns, 0)
        between_ns = max(last.end_ns - first.start_ns - (used_until_ns - used_before_ns), 0)
        after_ns = max(until_ns - last.end_ns - (self.used_ns - used_until_ns), 0)
        return Work(
            first_ns=first.start_ns,
            last_ns=last.end_ns,
            before_ns=before_ns,
            between_ns=between_ns,
            after_ns=after_ns,
        )


class RunUse:
    """The use of one GPU by one run.

    ``owns``: whether an identity is the run's; None for all: the processes are not visible here.
    """

    def __init__(self, started_ns: int, owns: Owns | None = None) -> None:
        self.started_ns = started_ns
        self._owns = owns
        self._presence: deque[tuple[int, int]] = deque()
        self._was_present = False
        self._lists_hidden = False
        self.has_own = False
        self.is_seen = False  # a process of the run, also in a reading that is not added yet
        self.has_unjudged = False
        self.has_judged = False
        self.has_mps_server = False
        self.others: set[object] = set()
        self.has_hidden_use = False
        self.own_memory = TimeWeightedStatistics()
        self.device_memory = TimeWeightedStatistics()
        self._used_until_ns = started_ns
        self.memory_covered_ns = 0
        self.listed_ns = 0  # the time that the lists of processes cover
        self.growth = MemoryGrowth()
        self.own = UseTotals(started_ns)
        self.device = UseTotals(started_ns)
        self.lacks_memory = False  # the driver does not say what a process of the run holds
        self._last: UseWindow | None = None
        self.windows_until_ns = started_ns

    def __deepcopy__(self, memo: dict[int, object]) -> "RunUse":
        copied = RunUse(self.started_ns, self._owns)
        for name, value in vars(self).items():
            if name != "_owns":
                setattr(copied, name, deepcopy(value, memo))
        return copied

    # The processes

    @property
    def sees_owner(self) -> bool:
        return self._owns is not None

    def set_owner(self, owns: Owns | None) -> None:
        self._owns = owns

    def look(self, reading: ProcessesReading) -> None:
        """Note at once what a reading shows: it is added only later."""
        for identity, _, _ in reading.processes or ():
            verdict = None
            if self._owns is not None and identity is not None and identity != MPS_SERVER:
                verdict = self._owns(identity)
            if verdict is None:
                self.has_unjudged = self.has_unjudged or identity != MPS_SERVER
            else:
                self.has_judged = True
                self.is_seen = self.is_seen or verdict

    @property
    def sees_processes(self) -> bool:
        """Whether the driver's list says whether a process of the run uses the GPU."""
        return self._owns is not None and (self.has_judged or not self.has_unjudged)

    @property
    def is_shared(self) -> bool:
        """Whether a program that is not the run's had a context on the GPU meanwhile."""
        return bool(self.others) or self.has_hidden_use

    def add_processes(self, reading: ProcessesReading, finished_ns: int | None = None) -> None:
        """Add a reading, in the order of time."""
        if reading.end_ns <= self.started_ns:
            return
        if finished_ns is not None and reading.end_ns > finished_ns:
            return
        start_ns = max(reading.start_ns, self.started_ns)
        if reading.used_bytes is not None:
            since_ns = max(self._used_until_ns, start_ns)
            self.device_memory.add(reading.used_bytes, max(reading.end_ns - since_ns, 1))
            self._used_until_ns = reading.end_ns
        self.memory_covered_ns += reading.end_ns - start_ns
        if reading.processes is None or self._owns is None:
            return
        self.listed_ns += reading.end_ns - start_ns
        own_bytes: int | None = 0
        is_present = False
        listed_bytes = 0
        for identity, size_bytes, is_only_graphics in reading.processes:
            listed_bytes += size_bytes or 0
            if identity == MPS_SERVER:
                self.has_mps_server = True
                continue
            verdict = None if identity is None else self._owns(identity)
            if verdict is None:
                self.has_unjudged = True
                continue
            self.has_judged = True
            if verdict:
                is_present = True
                self.lacks_memory = self.lacks_memory or size_bytes is None
                known_bytes = own_bytes is not None and size_bytes is not None
                own_bytes = own_bytes + size_bytes if known_bytes else None
            elif not is_only_graphics and len(self.others) < _MAX_OTHERS:
                self.others.add(identity)  # a display server takes next to nothing
        if (
            reading.used_bytes is not None
            and not reading.processes
            and not self._was_present
            and reading.used_bytes >= HIDDEN_BYTES
        ):
            self.has_hidden_use = True
        if is_present:
            self.has_own = True
            if self._was_present:
                self._presence[-1] = (self._presence[-1][0], reading.end_ns)
            else:
                self._presence.append((start_ns, reading.end_ns))
                while self._presence[0][1] < reading.end_ns - _KEPT_NS and len(self._presence) > 1:
                    self._presence.popleft()
        elif self._was_present:
            # It left between the two readings.
            begin_ns, end_ns = self._presence[-1]
            self._presence[-1] = (begin_ns, (end_ns + reading.end_ns) // 2)
        self._was_present = is_present
        if own_bytes is not None:
            extra_bytes = 0
            if is_present and reading.used_bytes is not None and not self.is_shared:
                # What the driver counts for no process: its own need, and managed memory.
                extra_bytes = max(reading.used_bytes - listed_bytes, 0)
            self.own_memory.add(own_bytes + extra_bytes, max(reading.end_ns - start_ns, 1))
            if is_present:
                self.growth.add(reading.end_ns, own_bytes, reading.used_bytes)

    # The work

    def add_window(self, window: UseWindow, finished_ns: int | None = None) -> None:
        """Add a window, in the order of time, after the processes of its time."""
        start_ns = max(window.start_ns, self.started_ns, self.windows_until_ns)
        end_ns = window.end_ns
        if finished_ns is not None:
            end_ns = min(end_ns, finished_ns)
        if end_ns <= start_ns:
            return
        share = window.percent / 100
        self.device.add(start_ns, end_ns, (start_ns, end_ns), share * (end_ns - start_ns), share)
        if self._owns is not None:
            first_ns, last_ns = self._present(start_ns, end_ns)
            used_ns = share * (window.end_ns - window.start_ns)
            is_end = last_ns < window.end_ns and last_ns < end_ns
            if is_end and not (self._last is not None and self._last.percent):
                used_ns = 0.0  # the driver clears the memory of a process that has ended
            used_ns = min(used_ns, max(last_ns - first_ns, 0))
            self.own.add(start_ns, end_ns, (first_ns, last_ns), used_ns, share)
        self.windows_until_ns = end_ns
        self._last = window

    def _present(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """The part of a time, from the first to the last moment, in which a process of the run
        was on the GPU; an empty one if none was.
        """
        first_ns, last_ns = end_ns, end_ns
        for begin_ns, until_ns in self._presence:
            if begin_ns < end_ns and until_ns > start_ns:
                first_ns = min(first_ns, max(begin_ns, start_ns))
                last_ns = min(until_ns, end_ns)
        return first_ns, last_ns

    def finish(self, finished_ns: int) -> None:
        """The last window of the run may not be readable yet: it is taken as the one before."""
        left_ns = finished_ns - self.windows_until_ns
        if self._last is not None and 0 < left_ns <= _MAX_TAIL_NS:
            self.add_window(UseWindow(self.windows_until_ns, finished_ns, self._last.percent))

    @property
    def totals(self) -> "UseTotals":
        """The work while a process of the run was there; of the device if that is unknown."""
        return self.own if self.has_own else self.device


class GpuTimeline:
    """The readings of the processes and the windows of one GPU: the last seconds of them, and the
    runs that they belong to.
    """

    def __init__(self, notice_ns: int) -> None:
        self._notice_ns = notice_ns
        self._processes: deque[ProcessesReading] = deque()
        self._windows: deque[UseWindow] = deque()
        self.runs: dict[str, RunUse] = {}
        self.known_until_ns = 0
        self.source: UseSource | None = None

    def begin_run(self, run: str, started_ns: int, find_owner: Callable[[], Owns | None]) -> None:
        """Begin a run, or look again for its processes, which may not have been visible."""
        use = self.runs.get(run)
        if use is None:
            self.runs[run] = RunUse(started_ns, find_owner())
        elif not use.sees_owner:
            use.set_owner(find_owner())

    def add_processes(self, reading: ProcessesReading) -> None:
        self._processes.append(reading)
        for use in self.runs.values():
            if reading.end_ns > use.started_ns:
                use.look(reading)
        while self._processes[0].end_ns < reading.end_ns - self._notice_ns:
            old = self._processes.popleft()
            for use in self.runs.values():
                use.add_processes(old)

    def add_windows(self, windows: Sequence[UseWindow], source: UseSource) -> None:
        if self.source is None or _SOURCES.index(source) < _SOURCES.index(self.source):
            self.source = source
        if source != self.source:
            return
        for window in windows:
            if window.end_ns <= self.known_until_ns:
                continue
            self._windows.append(window)
            self.known_until_ns = window.end_ns
        if not self._processes:
            return
        folded_ns = self._processes[0].start_ns
        while self._windows and self._windows[0].end_ns < folded_ns - NS_PER_SECOND:
            old = self._windows.popleft()
            for use in self.runs.values():
                use.add_window(old)

    def idle_ns(self, start_ns: int, end_ns: int) -> int:
        """For how long the GPU did not work, of the last seconds, between two moments."""
        idle_ns = 0.0
        for window in reversed(self._windows):
            if window.end_ns <= start_ns:
                break
            part_ns = min(window.end_ns, end_ns) - max(window.start_ns, start_ns)
            if part_ns > 0:
                idle_ns += part_ns * (1 - window.percent / 100)
        return round(idle_ns)

    def until(self, run: str, finished_ns: int | None) -> RunUse | None:
        """The use of a run with the readings of the last seconds."""
        if run not in self.runs:
            return None
        use = deepcopy(self.runs[run])
        for reading in self._processes:
            use.add_processes(reading, finished_ns)
        for window in self._windows:
            use.add_window(window, finished_ns)
        if finished_ns is not None:
            use.finish(finished_ns)
        return use

    def recent_windows(self) -> Iterable[UseWindow]:
        return tuple(self._windows)
