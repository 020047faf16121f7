"""The driver's lists of the processes with a context on a GPU."""

from collections.abc import Callable, Sequence
from typing import Any

from profiler.collectors.nvidia.reading_pace import SlowCall
from profiler.collectors.nvidia.visible_gpus import CHANGED_BYTES, GpuProcess
from profiler.core.clock import Clock
from profiler.core.optional_math import difference
from profiler.record.device_limits import MAX_MEMORY_BYTES

_COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
# Asked for complete readings, when memory is in use that the processes which compute do not hold,
# and always once they had an entry.
_MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
# Drivers before 510 have only the second version of each list. The first 535 ones (535.54) have
# longer entries in the newest one, under the same name: from its second entry on, the binding reads
# wrong numbers (XuehaiPan/nvitop#79, wookayin/gpustat#161).
_BEFORE = "_v2"
LISTS = tuple(
    f"{name}{version}" for name in (_COMPUTE, _MPS, _GRAPHICS) for version in ("", _BEFORE)
)
# Linux has no larger ids, and 0 is the kernel's.
_MAX_PID = 1 << 22
# Asks the driver; returns None if it has no answer.
Ask = Callable[[str], Any]


class ProcessLists:
    """Reads the lists of one GPU.

    Where they are slow (4.5 ms with a 4090 and driver 610), they are read rarely, but at once when
    the device's memory has changed: a process has come or gone. ``impossible`` counts processes
    that hold more than the device's memory, as far as that is known: what they hold is unknown.
    """

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._call = SlowCall()
        self._used_lists: set[str] = set()
        self._is_newest_wrong = False
        self._memory_bytes: int | None = None  # at the last list
        self._unlisted_bytes = 0  # what the processes that compute did not hold of it
        self.device_bytes = MAX_MEMORY_BYTES
        self.impossible = 0

    def read_processes(
        self, *, memory_bytes: int | None = None, is_complete: bool = False
    ) -> tuple[GpuProcess, ...] | None:
        """The processes; None if no reading is due, or if the driver does not list them.

        A process may be in several lists, and in a container several times in one.
        """
        began_ns = self._clock.monotonic_ns()
        if not (is_complete or self._call.is_due(began_ns) or self._has_changed(memory_bytes)):
            return None
        computing = self._processes_on_list(_COMPUTE)
        self._call.add_call(began_ns, self._clock.monotonic_ns())
        if computing is None:
            return None
        if memory_bytes is not None:
            self._memory_bytes = memory_bytes
            is_complete = self._has_unlisted(computing, memory_bytes) or is_complete
        computing = [*computing, *self._other_processes(_MPS, is_complete=is_complete)]
        drawing = self._other_processes(_GRAPHICS, is_complete=is_complete)
        programs = {process.pid for process in computing}
        held: dict[int, int] = {}
        for process in (*computing, *drawing):
            held[process.pid] = max(held.get(process.pid, 0), self._plausible_held_bytes(process))
        return tuple(
            GpuProcess(pid, size_bytes or None, pid not in programs)
            for pid, size_bytes in held.items()
        )

    # The binding's type.
    def _plausible_held_bytes(self, process: Any) -> int:  # noqa: ANN401
        """What a process holds; 0 if the driver does not say it."""
        held_bytes = int(process.usedGpuMemory or 0)
        if held_bytes <= self.device_bytes:
            return held_bytes
        self.impossible += 1
        return 0

    def _has_changed(self, memory_bytes: int | None) -> bool:
        return abs(difference(memory_bytes, self._memory_bytes) or 0) >= CHANGED_BYTES

    def _has_unlisted(self, computing: Sequence[Any], memory_bytes: int) -> bool:
        """Whether memory has come into use that no process holds which computes."""
        listed_bytes = sum(
            min(process.usedGpuMemory or 0, self.device_bytes) for process in computing
        )
        before_bytes = self._unlisted_bytes
        self._unlisted_bytes = max(memory_bytes - listed_bytes, 0)
        return self._unlisted_bytes - before_bytes >= CHANGED_BYTES

    def _other_processes(self, function: str, *, is_complete: bool) -> list[Any]:
        if not is_complete and function not in self._used_lists:
            return []
        found = list(self._processes_on_list(function) or ())
        if found:
            self._used_lists.add(function)
        return found

    def _processes_on_list(self, function: str) -> list[Any] | None:
        """One of the driver's lists; None if it has none, or one that cannot be read."""
        if not self._is_newest_wrong:
            newest = self._ask(function)
            self._is_newest_wrong = not _are_ids_possible(newest or ())
            if newest is not None and not self._is_newest_wrong:
                return list(newest)
        before = self._ask(f"{function}{_BEFORE}")
        return list(before) if before is not None and _are_ids_possible(before) else None


def _are_ids_possible(processes: Sequence[Any]) -> bool:
    """Whether all ids are those of processes."""
    return all(0 < process.pid <= _MAX_PID for process in processes)
