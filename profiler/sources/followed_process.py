"""One process of another container, read again and again at the least cost."""

import os
from collections.abc import Callable

from msgspec.structs import replace

from profiler.sources import proc
from profiler.sources.process_tree import ProcessReading

# How the CPU time of a process is asked for: its number, and what to answer if it is gone.
CpuClock = Callable[[int, int], int]

_MAX_FILE_BYTES = 8192


class TrackedProcess:
    """A process from its first reading to its end.

    With ``keep_open`` its files stay open: that halves the cost, and a number that was given out
    again is not taken for the same process.
    """

    def __init__(
        self,
        pid: int,
        proc_folder: str,
        cpu_clock: CpuClock,
        ns_per_tick: int,
        *,
        keep_open: bool,
        with_arguments: bool = False,
    ) -> None:
        self.pid = pid
        self.is_alive = True
        self.reading: ProcessReading | None = None
        self.last_alive: ProcessReading | None = None
        self.parent_pid = 0
        self._folder = f"{proc_folder}/{pid}"
        self._cpu_clock = cpu_clock
        self._ns_per_tick = ns_per_tick
        self._files = (
            {name: _open_or_none(f"{self._folder}/{name}") for name in ("stat", "status")} if keep_open else {}
        )
        self._with_arguments = with_arguments
        self._arguments: tuple[str, ...] = ()
        self._stat_text: bytes | None = None
        self._stat: proc.ProcessStat | None = None
        self._status = proc.ProcessStatus()

    def refresh(self, *, several: bool) -> bool:
        """Read it; False if it is gone. ``several``: its share is its anonymous memory only."""
        text = self._read("stat")
        if text != self._stat_text or self._stat is None:
            stat = proc.parse_stat(text or b"")
            if stat is None or (self._stat is not None and stat.started_ticks != self._stat.started_ticks):
                self.is_alive = False
                return False
            if self._memory_may_have_changed(stat):
                self._status = proc.parse_status(self._read("status") or b"")
            if self._with_arguments and (self._stat is None or stat.name != self._stat.name):
                self._arguments = proc.parse_arguments(proc.read(f"{self._folder}/cmdline") or b"")
            self._stat_text, self._stat, self.parent_pid = text, stat, stat.parent_pid
            self.is_alive = not stat.is_exiting
            self.reading = self._new_reading(stat, several=several)
        elif self.reading is not None:
            self.reading = self._refresh_reading(self.reading, self._stat, several=several)
        if self.is_alive:
            self.last_alive = self.reading
        return True

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._files.values():
            if descriptor is not None:
                os.close(descriptor)
        self._files = {}

    def _memory_may_have_changed(self, now: proc.ProcessStat) -> bool:
        """Memory grows by page faults, and a mark only with memory."""
        before = self._stat
        return before is None or (before.faults, before.resident_pages, before.state) != (
            now.faults,
            now.resident_pages,
            now.state,
        )

    def _new_reading(self, stat: proc.ProcessStat, *, several: bool) -> ProcessReading:
        return ProcessReading(
            pid=self.pid,
            started_ticks=stat.started_ticks,
            own_cpu_ns=self._cpu_clock(self.pid, stat.cpu_ticks * self._ns_per_tick),
            children_cpu_ns=stat.children_cpu_ticks * self._ns_per_tick,
            name=stat.name,
            arguments=self._arguments,
            threads=stat.threads,
            rss_bytes=self._status.rss_bytes,
            share_bytes=self._share_bytes(several=several),
            peak_bytes=self._status.peak_bytes,
        )

    def _refresh_reading(self, reading: ProcessReading, stat: proc.ProcessStat, *, several: bool) -> ProcessReading:
        """The same text means less than 10 ms of CPU time and nothing else."""
        cpu_ns = self._cpu_clock(self.pid, stat.cpu_ticks * self._ns_per_tick)
        share_bytes = self._share_bytes(several=several)
        if cpu_ns == reading.own_cpu_ns and share_bytes == reading.share_bytes:
            return reading
        return replace(reading, own_cpu_ns=cpu_ns, share_bytes=share_bytes)

    def _share_bytes(self, *, several: bool) -> int | None:
        status = self._status
        if several and status.anonymous_bytes is not None:
            return status.anonymous_bytes
        return status.rss_bytes

    def _read(self, name: str) -> bytes | None:
        descriptor = self._files.get(name)
        if descriptor is None:
            return proc.read(f"{self._folder}/{name}")
        try:
            return os.pread(descriptor, _MAX_FILE_BYTES, 0)
        except OSError:
            return None


def _open_or_none(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
