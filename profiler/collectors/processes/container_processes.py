"""Tracks the processes of another container of the task, and counts short ones that ended before
they were read.
"""

import time
from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.collectors.processes.machine_processes import MachineProcesses
from profiler.readers.linux.container_shared_memory import SharedMemoryParts
from profiler.readers.linux.followed_process import CpuClock, TrackedProcess
from profiler.readers.linux.packet_rings import PacketRings
from profiler.readers.linux.process_tree import ProcessReading, own_cpu_ns

# Each tracked process keeps two files open; the usual limit is 1024 open files.
_MAX_OPEN_PROCESSES = 100


class ProcessSnapshot(Struct, frozen=True, kw_only=True):
    """The present processes, and the last state of the processes that have ended since the last
    reading.

    ``missed_pids`` are the ids assigned since then that no live process has, such as short
    processes and threads. ``main_pid`` is the process that the container was started with.
    ``last_pid`` is the id that was assigned last before this, None if unknown.
    """

    processes: tuple[ProcessReading, ...] = ()
    ended: tuple[ProcessReading, ...] = ()
    missed_pids: int = 0
    main_pid: int | None = None
    last_pid: int | None = None


class ContainerProcesses:
    """Tracks the processes of one container, and divides its memory among them. Not thread-safe."""

    def __init__(
        self,
        docker_id: str,
        machine: MachineProcesses,
        cpu_clock: CpuClock = own_cpu_ns,
        *,
        with_arguments: bool = False,
    ) -> None:
        self._docker_id = docker_id
        self._machine = machine
        self._cpu_clock = cpu_clock
        self._with_arguments = with_arguments
        self._tracked: dict[int, TrackedProcess] = {}
        self._first_pid: int | None = None
        self._processes: tuple[ProcessReading, ...] = ()
        self._shmem_parts = SharedMemoryParts(
            machine.folder, machine.monotonic_ns, time.thread_time_ns
        )
        self._rings = PacketRings(machine.folder)
        machine.follow(docker_id)

    def read_snapshot(self) -> ProcessSnapshot:
        """All processes now, the same object if none has changed; a process that has just ended is
        in the snapshot once.
        """
        new = self._machine.take_new(self._docker_id)
        if new.pids:
            self._track(new.pids)
        ended, never_alive = self._refresh_tracked()
        if self._readings() != self._processes or self._shmem_parts.is_behind:
            self._divide_memory()
            self._processes = self._readings()
        if self._first_pid not in self._tracked:
            self._first_pid = self._oldest_entry()
        return ProcessSnapshot(
            processes=self._processes,
            ended=tuple(ended),
            missed_pids=new.missed_pids + never_alive,
            main_pid=self._first_pid,
            last_pid=self._machine.last_pid,
        )

    def ring_bytes(self) -> int:
        """The most that the rings of packet sockets take which the processes map."""
        return self._rings.held_bytes(self._processes)

    def _readings(self) -> tuple[ProcessReading, ...]:
        readings = [tracked.reading for tracked in self._tracked.values()]
        return tuple([reading for reading in readings if reading is not None])

    def _oldest_entry(self) -> int | None:
        """The process that started first among those whose parent is outside of the container.

        ``docker exec`` starts others later.
        """
        entries: list[tuple[int, int]] = []
        for tracked in self._tracked.values():
            if tracked.reading is not None and tracked.parent_pid not in self._tracked:
                entries.append((tracked.reading.started_ticks, tracked.pid))
        return min(entries)[1] if entries else None

    def close(self) -> None:
        self._machine.forget(self._docker_id)
        for tracked in self._tracked.values():
            tracked.close()
        self._tracked.clear()

    def _track(self, pids: Collection[int]) -> None:
        for pid in sorted(pids):
            if pid not in self._tracked:
                self._tracked[pid] = TrackedProcess(
                    pid,
                    self._machine.folder,
                    self._cpu_clock,
                    keep_open=len(self._tracked) < _MAX_OPEN_PROCESSES,
                    with_arguments=self._with_arguments,
                )

    def _refresh_tracked(self) -> tuple[list[ProcessReading], int]:
        """Returns the processes that have ended, and the number of those never seen alive."""
        ended: list[ProcessReading] = []
        never_alive = 0
        for pid, tracked in list(self._tracked.items()):
            was_alive = tracked.is_alive
            if not tracked.read_again():
                tracked.close()
                del self._tracked[pid]
                self._machine.on_ended(pid)
            if not was_alive or tracked.is_alive:
                continue
            if tracked.last_alive is None:
                never_alive += 1
            else:
                ended.append(tracked.last_alive)
        return ended, never_alive

    def _divide_memory(self) -> None:
        """Give each process a share of the anonymous and of the shared memory, so that no page
        counts twice: the RSS counts each mapping of a page.
        """
        shares = self._memory_shares()
        for pid, process in self._tracked.items():
            reading = process.reading
            if reading is None:
                continue
            share_bytes = shares.get(pid)
            unread_bytes = self._shmem_parts.unread_bytes(reading)
            if (reading.share_bytes, reading.unread_shmem_bytes) != (share_bytes, unread_bytes):
                process.reading = replace(
                    reading, share_bytes=share_bytes, unread_shmem_bytes=unread_bytes
                )

    def _memory_shares(self) -> Mapping[int, int]:
        """The shares by the process ids.

        Only forks that have not executed a program share anonymous memory: their share is what they
        allocated themselves. All hold at least as much as the one with most.
        """
        living: dict[int, ProcessReading] = {}
        for pid, process in self._tracked.items():
            if process.reading is not None and process.reading.rss_bytes:
                living[pid] = process.reading
        shares: dict[int, int] = {}
        largest_pid = 0
        largest_bytes = -1
        for pid, reading in living.items():
            process = self._tracked[pid]
            shares[pid] = process.allocated_bytes(living.get(process.parent_pid))
            anonymous_bytes = reading.anonymous_bytes or 0
            if anonymous_bytes > largest_bytes:
                largest_pid = pid
                largest_bytes = anonymous_bytes
        if living:
            shares[largest_pid] += max(largest_bytes - sum(shares.values()), 0)
        for (pid, _), part_bytes in self._shmem_parts.read_parts(living.values()).items():
            if pid in shares:
                shares[pid] += part_bytes
        return shares
