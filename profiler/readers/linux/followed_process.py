"""Processes of another container: how to read one repeatedly at low cost, and how to wait until
one of several ends.
"""

import os
import select
from collections.abc import Callable, Collection

from msgspec.structs import replace

from profiler.core.files import close_files, open_or_none
from profiler.core.threads import Waiter, WakeEvent
from profiler.readers.linux import proc
from profiler.readers.linux.process_tree import ProcessReading, inherited_bytes
from profiler.readers.linux.program_names import read_name_with_script, read_program_name
from profiler.readers.linux.undivided_memory import is_fork, lacks_memory_parts, with_memory_parts

# Returns the CPU time of a process in nanoseconds. Arguments: its pid, and the result if it has
# ended.
CpuClock = Callable[[int, int], int]


class TrackedProcess:
    """A process to its end.

    With ``keep_open`` a reading costs half, and its pid cannot mean another process.
    """

    def __init__(
        self,
        pid: int,
        proc_folder: str,
        cpu_clock: CpuClock,
        *,
        keep_open: bool,
        with_arguments: bool,
    ) -> None:
        self.pid = pid
        self.is_alive = True
        self.reading: ProcessReading | None = None
        self.last_alive: ProcessReading | None = None
        self.parent_pid = 0
        self._inherited_bytes: int | None = None
        self._is_forked = False
        self._proc_folder = proc_folder
        self._folder = f"{proc_folder}/{pid}"
        self._cpu_clock = cpu_clock
        self._ns_per_tick = proc.ns_per_tick()
        names = ("stat", "status") if keep_open else ()
        self._files = {name: open_or_none(f"{self._folder}/{name}") for name in names}
        self._with_arguments = with_arguments
        self._name = ""
        self._arguments: tuple[str, ...] = ()
        self._stat_text: bytes | None = None
        self._stat: proc.ProcessStat | None = None
        self._status = proc.ProcessStatus()
        self._memory_facts: tuple[int, int, str] | None = None

    def read_again(self) -> bool:
        """Read the process, except for its share of the memory; False if it has ended."""
        text = self._read("stat")
        if text != self._stat_text or self._stat is None:
            stat = proc.parse_stat(text)
            if stat is None or (
                self._stat is not None and stat.started_ticks != self._stat.started_ticks
            ):
                self.is_alive = False
                return False
            before = self._stat
            # Memory grows only through page faults, and the high-water mark only with the memory.
            memory_facts = (stat.faults, stat.resident_pages, stat.state)
            if memory_facts != self._memory_facts:
                self._memory_facts = memory_facts
                self._status = self._read_status(stat)
            if before is None or proc.may_run_another_program(before, stat):
                if self._with_arguments:
                    self._name = read_program_name(self._folder, stat.name)
                    self._arguments = proc.read_arguments(self._folder)
                else:
                    self._name = read_name_with_script(self._folder, stat.name)
            self._stat_text = text
            self._stat = stat
            self.parent_pid = stat.parent_pid
            self.is_alive = not stat.is_exiting
            self.reading = ProcessReading(
                pid=self.pid,
                started_ticks=stat.started_ticks,
                own_cpu_ns=self._cpu_clock(self.pid, stat.cpu_ticks * self._ns_per_tick),
                children_cpu_ns=stat.children_cpu_ticks * self._ns_per_tick,
                name=self._name,
                arguments=self._arguments,
                threads=stat.threads,
                state=stat.state,
                blocks_signals=stat.blocks_signals,
                shows_function=stat.stack_start != 0,
                virtual_bytes=stat.virtual_bytes,
                rss_bytes=self._status.rss_bytes,
                anonymous_bytes=self._status.anonymous_bytes,
                shmem_bytes=self._status.shmem_bytes,
                share_bytes=None if self.reading is None else self.reading.share_bytes,
                peak_bytes=self._status.peak_bytes,
                parent_pid=stat.parent_pid,
                huge_page_bytes=self._status.huge_page_bytes,
            )
        elif self.reading is not None:
            # The stat file is unchanged: only the CPU time can have changed, by less than a tick.
            cpu_ns = self._cpu_clock(self.pid, self._stat.cpu_ticks * self._ns_per_tick)
            if cpu_ns != self.reading.own_cpu_ns:
                self.reading = replace(self.reading, own_cpu_ns=cpu_ns)
        if self.is_alive:
            self.last_alive = self.reading
        return True

    def allocated_bytes(self, parent: ProcessReading | None) -> int:
        """The least anonymous memory that the process allocated itself."""
        if self._inherited_bytes is None:
            if self.reading is None:
                self._inherited_bytes = 0
            else:
                self._inherited_bytes = inherited_bytes(self.reading, parent)
        inherited_bytes_now = self._inherited_bytes if self._is_forked else 0
        return max((self._status.anonymous_bytes or 0) - inherited_bytes_now, 0)

    def _read_status(self, stat: proc.ProcessStat) -> proc.ProcessStatus:
        status = proc.parse_status(self._read("status"))
        self._is_forked = stat.is_forked
        if not lacks_memory_parts(status):
            return status
        parent_folder = f"{self._proc_folder}/{stat.parent_pid}"
        self._is_forked = stat.is_forked or is_fork(self._folder, parent_folder)
        return with_memory_parts(status, self._folder)

    def close(self) -> None:
        close_files(self._files.values())
        self._files = {}

    def _read(self, name: str) -> bytes:
        descriptor = self._files.get(name)
        if descriptor is None:
            return proc.read_or_none(f"{self._folder}/{name}") or b""
        return proc.reread_descriptor(descriptor)


class ProcessExitWaiter(Waiter):
    """Waits in one thread until one of several processes ends; any thread may call :meth:`wake`.

    It is seen by pidfds (Linux 5.3). A change of a group's ``cgroup.events`` ends a wait, too: its
    last process may have ended.
    """

    def __init__(self) -> None:
        self._wake_event: WakeEvent | None = None
        self._pidfds: dict[int, int] = {}
        self._events_descriptors: frozenset[int] = frozenset()
        self._poll: select.poll | None = None  # for these; None if they have changed

    def open(self) -> None:
        self._wake_event = WakeEvent()
        self._poll = None

    def watch_only(self, pids: Collection[int], events_descriptors: Collection[int] = ()) -> None:
        """Wait for these only.

        The files remain the caller's, who calls this again between closing one and a wait.
        """
        if self._events_descriptors != set(events_descriptors):
            self._events_descriptors = frozenset(events_descriptors)
            self._poll = None
        if self._pidfds.keys() == set(pids):
            return
        self._poll = None
        for pid in self._pidfds.keys() - set(pids):
            os.close(self._pidfds.pop(pid))
        for pid in set(pids) - self._pidfds.keys():
            try:
                self._pidfds[pid] = os.pidfd_open(pid)
            except OSError:
                continue

    def wait(self, seconds: float) -> bool:
        """True if a process ended or a group changed (once each)."""
        if self._poll is None:
            self._poll = self._poll_for_all()
        events = self._poll.poll(max(seconds, 0) * 1000)
        if not events:
            return False
        ready = {descriptor for descriptor, _ in events}
        if self._wake_event is not None and self._wake_event.descriptor in ready:
            self._wake_event.clear()
        ended = [pid for pid, descriptor in self._pidfds.items() if descriptor in ready]
        for pid in ended:
            os.close(self._pidfds.pop(pid))
        changed = ready & self._events_descriptors
        self._events_descriptors -= changed
        if not (ended or changed):
            return False
        self._poll = None
        return True

    def _poll_for_all(self) -> select.poll:
        poll = select.poll()
        for descriptor in self._pidfds.values():
            poll.register(descriptor, select.POLLIN)
        for descriptor in self._events_descriptors:
            poll.register(descriptor, select.POLLPRI)
        if self._wake_event is not None:
            poll.register(self._wake_event.descriptor, select.POLLIN)
        return poll

    def wake(self) -> None:
        wake_event = self._wake_event  # close sets it to None in another thread
        if wake_event is not None:
            wake_event.set()

    def close(self) -> None:
        """Release the wake event. Only the thread that waits may call this, after its last wait."""
        self.watch_only(())
        wake_event = self._wake_event
        self._wake_event = None
        if wake_event is not None:
            wake_event.close()
