"""Collects readings of the batch's processes in a thread, where these are visible.

The thread wakes up when a batch's main process or the last process of its control group ends, to read the group before
it is removed.
"""

import threading
from collections.abc import Callable

from msgspec import Struct

from profiler.aggregation.task_record import RecordPart
from profiler.aggregation.time_breakdown import IdleBetween, never_idle
from profiler.aggregation.usage_by_command import ShowArguments
from profiler.collectors.collector import Collector, failure_warnings
from profiler.collectors.processes.process_fields import processes_values
from profiler.collectors.processes.process_reader import ContainerProcesses, ProcessSnapshot
from profiler.collectors.processes.process_usage import BatchProcesses, ReadingContext
from profiler.core.clock import Clock, DutyCycle
from profiler.core.threads import PeriodicReader
from profiler.readers.cgroup.container_group import ContainerCgroup, GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.followed_process import ProcessExitWaiter
from profiler.readers.linux.thread_times import ThreadReader, ThreadSample
from profiler.readers.linux.waited_target import Wait
from profiler.record.record_model import Record

# With thousands of processes a reading takes 10 to 50 ms of CPU time; this share makes it one every few seconds.
_MAX_CPU_FRACTION = 0.005
# After this many refusals the control group counts as unreadable. (A process may belong to another user.)
_MAX_CGROUP_ATTEMPTS = 5
# The source's name in ``sampling.sources``.
_SOURCE_NAME = "processes"


class ProcessAccess(Struct, frozen=True, kw_only=True):
    """How to read the processes of this machine.

    Args:
        open_processes: Opens the processes of a container by its Docker id.
        open_cgroup: Opens the control group of a process by its id and Docker id; None if it is not readable.
        oom_kills: Reads the host's counter of OOM kills; None if it is not readable.
        own_cpu_ns: The CPU time of the calling thread.
        exit_waiter: The wait between readings.
        open_threads: Opens the threads of a container's processes; None to read none.
    """

    open_processes: Callable[[str], ContainerProcesses]
    open_cgroup: Callable[[int, str], ContainerCgroup | None]
    oom_kills: Callable[[], int | None]
    own_cpu_ns: Callable[[], int]
    exit_waiter: ProcessExitWaiter
    open_threads: Callable[[], ThreadReader] | None = None


class _TrackedContainer:
    """The sources of one batch container, and its aggregates over all its restarts.

    The number of the incarnation rises with each new container, and with each new control group of one container.
    """

    def __init__(self, batch: BatchProcesses) -> None:
        self.batch = batch
        self.duty_cycle = DutyCycle(_MAX_CPU_FRACTION)
        self.has_opened = False
        self.docker_id = ""
        self.incarnation = 0
        self.source: ContainerProcesses | None = None
        self.threads: ThreadReader | None = None
        self.group: ContainerCgroup | None = None
        self.is_group_gone = False
        self.attempts_left = 0
        self.main_pid: int | None = None
        self.group_main_pid: int | None = None

    def begin(self, docker_id: str, machine: ProcessAccess) -> None:
        """Open the sources of a container if it is a new one. A restart in place shows in its control group."""
        if docker_id == self.docker_id:
            return
        self.close()
        self.docker_id = docker_id
        self.source = machine.open_processes(docker_id)
        self.threads = None if machine.open_threads is None else machine.open_threads()
        self._begin_incarnation()

    def _begin_incarnation(self) -> None:
        self.incarnation += 1
        self.is_group_gone = False
        self.attempts_left = _MAX_CGROUP_ATTEMPTS

    def read_processes(self, machine: ProcessAccess) -> ProcessSnapshot:
        """Read the processes, and open the control group through one of them."""
        snapshot = ProcessSnapshot() if self.source is None else self.source.read()
        if self.is_group_gone and self.group is not None and snapshot.main_pid not in (None, self.group_main_pid):
            self.group.close()
            self.group = None
            self._begin_incarnation()
        self.main_pid = snapshot.main_pid
        for process in snapshot.processes:
            if self.group is not None or self.attempts_left == 0:
                break
            self.attempts_left -= 1
            self.group, self.group_main_pid = machine.open_cgroup(process.pid, self.docker_id), snapshot.main_pid
        return snapshot

    def read_threads(
        self, snapshot: ProcessSnapshot, now_ns: int, own_cpu_ns: Callable[[], int], *, is_required: bool
    ) -> tuple[ThreadSample | None, int]:
        """Read the threads; also returns the CPU time of this reading, which has its own limit."""
        if self.threads is None:
            return None, 0
        began_ns = own_cpu_ns()
        return self.threads.read(snapshot.processes, now_ns, is_required=is_required), own_cpu_ns() - began_ns

    def read_group(self) -> GroupReading | None:
        """Read the control group; None if it was not found or is removed."""
        reading = None if self.group is None else self.group.read()
        self.is_group_gone = self.group is not None and reading is None
        return reading

    def close(self) -> None:
        for source in (self.source, self.group, self.threads):
            if source is not None:
                source.close()
        self.source = self.group = self.threads = None


class ProcessCollector(Collector):
    """Reads the batch's processes at every tick, and when the main process of a batch ends.

    ``series_points`` is half the largest number of steps of a batch's time series; 0 for none. ``idle_ns`` is the time
    between two moments (monotonic) in which all GPUs were idle.
    """

    def __init__(
        self,
        machine: ProcessAccess,
        clock: Clock,
        interval_ns: int,
        show_arguments: ShowArguments,
        series_points: int = 0,
        *,
        idle_ns: IdleBetween = never_idle,
    ) -> None:
        self._idle_ns = idle_ns
        self._series_points = series_points
        self._machine = machine
        self._clock = clock
        self._interval_ns = interval_ns
        self._show_arguments = show_arguments
        self._containers: dict[str, ContainerMetadata] = {}
        self._tracked: dict[str, _TrackedContainer] = {}
        self._lock = threading.Lock()
        self._reader = PeriodicReader(
            "processes",
            self._read_batches,
            self._close,
            waiter=machine.exit_waiter,
            clock=clock,
            interval_ns=interval_ns,
        )

    @property
    def has_data(self) -> bool:
        return any(tracked.batch.has_data for tracked in list(self._tracked.values()))

    def start(self) -> None:
        self._machine.exit_waiter.open()
        self._reader.start()

    def on_batch_started(self, container: ContainerMetadata) -> None:
        if container != self._containers.get(container.name):
            self._containers = {**self._containers, container.name: container}
            self._machine.exit_waiter.wake()

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        with self._lock:
            tracked = self._tracked.get(name)
            if tracked is not None:
                tracked.batch.on_sample(sample)

    def final_reading(self, max_seconds: float) -> None:
        if self._reader.is_started:
            self._reader.final_reading(max_seconds)

    def stop(self, max_seconds: float) -> None:
        self._reader.stop(max_seconds)

    def part(self, record: Record) -> RecordPart:
        """Return the processes of the record's container, and a warning if the task stats contradict them.

        After an error has ended the readings, checkpoints have none of their values, and a report has the time series
        of the task stats.
        """
        stopped = failure_warnings(self._reader.failure, "process values")
        if stopped and record.status == "running":
            return RecordPart(warnings=stopped)
        name = _SOURCE_NAME if self.has_data else None
        with self._lock:
            tracked = self._tracked.get(record.container.name)
            if tracked is None or not tracked.batch.has_data:
                return RecordPart(source=name, warnings=stopped)
            values = processes_values(record, tracked.batch, is_current=not stopped)
            warnings = (*tracked.batch.comparison.warnings(), *stopped)
            while_idle = tracked.batch.time.idle_breakdown()
            return RecordPart(values=values, source=name, warnings=warnings, while_idle=while_idle)

    def longest_wait(self, name: str, since_ns: int) -> Wait | None:
        with self._lock:
            tracked = self._tracked.get(name)
            return None if tracked is None else tracked.batch.time.longest_wait(since_ns)

    def _read_batches(self, *, is_complete: bool) -> bool:
        self.tick(force=is_complete)
        return True

    def _close(self) -> None:
        for tracked in self._tracked.values():
            tracked.close()
        self._machine.exit_waiter.close()

    def tick(self, *, force: bool = False) -> None:
        """Read all batches; the processes only if the CPU share allows it, or with ``force``.

        With ``force`` a process may have ended just now. All groups are then read first, because listing the processes
        takes longer than the kernel may keep a group.
        """
        if force:
            self._read_groups()
        for name, container in self._containers.items():
            if container.docker_id:
                tracked = self._tracked.get(name) or self._track(container)
                tracked.begin(container.docker_id, self._machine)
                self._read(tracked, force=force)
        main_pids = (tracked.main_pid for tracked in self._tracked.values())
        groups = (tracked.group for tracked in self._tracked.values())
        descriptors = (None if group is None else group.events_descriptor for group in groups)
        self._machine.exit_waiter.watch(
            tuple(pid for pid in main_pids if pid is not None),
            tuple(descriptor for descriptor in descriptors if descriptor is not None),
        )

    def _track(self, container: ContainerMetadata) -> _TrackedContainer:
        batch = BatchProcesses(
            self._interval_ns,
            self._show_arguments,
            self._series_points,
            started_ns=container.started_ns,
            is_new=not container.restart_count,
            idle_ns=self._idle_ns,
        )
        tracked = _TrackedContainer(batch)
        with self._lock:
            self._tracked[container.name] = tracked
        return tracked

    def _read_groups(self) -> None:
        for tracked in self._tracked.values():
            group = tracked.read_group()
            if group is not None:
                with self._lock:
                    tracked.batch.add_early_group(group)

    def _read(self, tracked: _TrackedContainer, *, force: bool) -> None:
        now_ns, wall_ns = self._clock.monotonic_ns(), self._clock.wall_ns()
        if tracked.duty_cycle.is_due(now_ns) or force:
            self._read_processes(tracked, now_ns, wall_ns, force=force)
        elif (group := tracked.read_group()) is not None:
            with self._lock:
                tracked.batch.add_group(group, ReadingContext(tracked.docker_id, tracked.incarnation, now_ns, wall_ns))

    def _read_processes(self, tracked: _TrackedContainer, now_ns: int, wall_ns: int, *, force: bool) -> None:
        cpu_before_ns = self._machine.own_cpu_ns()
        snapshot = tracked.read_processes(self._machine)
        group = tracked.read_group()
        threads, threads_cpu_ns = tracked.read_threads(snapshot, now_ns, self._machine.own_cpu_ns, is_required=force)
        host_kills = self._machine.oom_kills()
        context = ReadingContext(tracked.docker_id, tracked.incarnation, now_ns, wall_ns)
        with self._lock:
            tracked.batch.add(snapshot, group, host_kills, context, threads)
        if tracked.has_opened:
            tracked.duty_cycle.add_cost(self._machine.own_cpu_ns() - cpu_before_ns - threads_cpu_ns, now_ns)
        tracked.has_opened = True  # only the first reading opens the files of all processes
