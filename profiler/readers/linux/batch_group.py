"""The control group of a batch, as far as looks at its threads ask for it."""

import os
from collections.abc import Callable, Collection

from profiler.readers.linux.cpu_pressure import (
    CpuPressure,
    PressureFiles,
    open_machine_pressure,
)


class BatchGroup:
    """The group of the batch's first process, opened when it is read first; without
    ``open_pressure`` the machine stands for it.

    ``is_frozen``: it was stopped when the present look began.
    """

    def __init__(
        self, proc_folder: str, open_pressure: Callable[[int], PressureFiles] | None
    ) -> None:
        self._folder = proc_folder
        self._open_pressure = open_pressure
        self._files: PressureFiles | None = None
        self._cpus = 0
        self._look_ns = 0
        self._is_short_of_memory: bool | None = None  # None: not asked in this look
        self.is_frozen = False

    def begin_look(self, now_ns: int) -> bool:
        """Begin a look; returns whether the group was stopped or goes on since the last one."""
        self._look_ns = now_ns
        self._is_short_of_memory = None
        was_frozen = self.is_frozen
        self.is_frozen = self._files is not None and self._files.is_frozen()
        return self.is_frozen != was_frozen

    def is_short_of_memory(self) -> bool:
        """Whether the group waits for memory under its limit, asked once in a look."""
        if self._is_short_of_memory is None:
            files = self._files
            self._is_short_of_memory = files is not None and files.waits_for_memory(self._look_ns)
        return self._is_short_of_memory

    def read_pressure(self, pids: Collection[int]) -> CpuPressure | None:
        """The counters of the group of the first of these processes; None if there is none."""
        if self._files is None:
            if not pids:
                return None
            if self._open_pressure is None:
                self._files = PressureFiles(open_machine_pressure(self._folder))
            else:
                self._files = self._open_pressure(next(iter(pids)))
        return self._files.read_pressure()

    def usable_cpus(self, pids: Collection[int]) -> int:
        """The number of CPUs on which the first of these processes may run."""
        if pids and not self._cpus:
            try:
                self._cpus = len(os.sched_getaffinity(next(iter(pids))))
            except OSError:
                self._cpus = os.cpu_count() or 1
        return self._cpus or os.cpu_count() or 1

    @property
    def known_cpus(self) -> int:
        """As :meth:`usable_cpus` said last; 1 before."""
        return self._cpus or 1

    def close(self) -> None:
        if self._files is not None:
            self._files.close()
            self._files = None
