"""Reads the batch's processes in a thread.

Ends of main processes and groups wake it, before the group is removed.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.gpu_idle_breakdown import IdleGpus
from profiler.aggregation.memory_peak import (
    MemoryEvidence,
    choose_memory_peak,
    evidence_from,
    group_evidence,
)
from profiler.aggregation.process_table import ShowArguments
from profiler.aggregation.process_tree_usage import GroupPeak, counts_too_little
from profiler.aggregation.record_evidence import (
    CpuEvidence,
    KillEvidence,
    ProcessReadings,
    ProcessRows,
    RunEvidence,
)
from profiler.aggregation.record_parts import RecordPart, build_interval, usage_metrics
from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.processes.batch_processes import (
    BatchProcesses,
    ThreadReadings,
)
from profiler.collectors.processes.container_processes import ContainerProcesses, ProcessSnapshot
from profiler.collectors.processes.task_stats_comparison import MAX_PENDING
from profiler.core.clock import Clock, CpuBudget
from profiler.core.ecs_terms import FARGATE
from profiler.core.look_times import LookTimes
from profiler.core.optional_math import min_known, product
from profiler.core.threads import PeriodicReadingThread, failure_warnings
from profiler.core.timestamps import NEVER_NS, NS_PER_SECOND
from profiler.readers.cgroup.container_group import ContainerCgroup, GroupReading
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.followed_process import ProcessExitWaiter
from profiler.readers.linux.thread_reader import ThreadReader
from profiler.readers.linux.wait_types import Wait
from profiler.record.measured import Number
from profiler.record.record_model import NO_INTERVAL, Record, Series
from profiler.record.run_outcome import SIGKILL_EXIT_CODE
from profiler.record.units import CPU_SECONDS_DIGITS, MIB, bytes_to_mebibytes, format_memory

# After this many refusals the control group counts as unreadable. (A process may belong to another
# user.)
_MAX_CGROUP_ATTEMPTS = 5
# Samples that come at most ten seconds late find the readings that were taken at their time.
_MIN_PENDING_NS = 20 * NS_PER_SECOND
# The share of a core that looks at the threads of a batch may take beyond one in each interval.
_MAX_LOOKS_SHARE = 0.001
_RINGS_ARE_NOT_COUNTED = (
    "The memory peak may have been {}, and the average is a lower bound: the batch maps rings of "
    "packet sockets, which no control group counts."
)
_PLACES = 9973  # the first look is at one of so many places in its part of the interval

SeriesWithCommands = Callable[[Series | None], Series | None]
IdleOfBatch = Callable[[str, int], IdleGpus | None]


def _run_evidence(
    record: Record,
    batch: BatchProcesses,
    with_commands: SeriesWithCommands,
    *,
    is_current: bool,
) -> RunEvidence:
    """What the processes say of a run; their readings only if they are still read
    (``is_current``).
    """
    batch.add_remaining_readings()
    batch.time.pass_cpu_waits_on(batch.usage.series)
    is_running = record.status == "running"
    group_peak = batch.group_peak(is_running=is_running)
    kills = batch.kills.attributed_kills(
        is_host_dedicated=record.launch_type == FARGATE,
        was_killed=record.exit_code == SIGKILL_EXIT_CODE,
    )
    own_count = None if kills is None else kills.count
    attempts = 1 + (record.container.restarts or 0)
    if kills is None and batch.kills.has_certainly_no_kill(attempts):
        own_count = 0
    rows = ProcessRows(rows=batch.totals.largest_process_rows())
    if not is_running:  # checkpoints have no series
        rows = replace(rows, with_commands=with_commands)
    cpu_seconds = round(batch.cpu_ns / NS_PER_SECOND, CPU_SECONDS_DIGITS)
    readings = _readings(record, batch)
    memory = _memory_evidence(batch, group_peak)
    return RunEvidence(
        cpu=CpuEvidence(cpu_seconds=cpu_seconds, until_ns=batch.cpu_read_ns),
        memory=memory,
        memory_bound_mb=bytes_to_mebibytes(batch.ring_bound_bytes or None),
        usage_peak_mb=bytes_to_mebibytes(group_peak.size_bytes),
        max_pids=batch.usage.max_pids,
        huge_pages=batch.huge_pages,
        kills=KillEvidence(
            own_count=own_count,
            own=kills,
            excludes_kill_at_end=batch.kills.has_certainly_no_kill_at_end(attempts),
            may_have_missed=batch.kills.host_kills.total() > 0,
        ),
        processes=readings if is_current else None,
        activity=batch.time.activity_so_far(record.metrics.duration_ms, batch.known_cpu_ns),
        rows=rows,
        warnings=(
            *batch.comparison.warnings(),
            *batch.totals.unread_process_warnings(batch.cpu_ns),
            *batch.time.defect_warnings,
            *_ring_warnings(batch, memory),
        ),
    )


def _readings(record: Record, batch: BatchProcesses) -> ProcessReadings:
    """A copy of the readings so far, which later readings do not change."""
    usage = batch.usage
    sizes = ResourceLimits(
        vcpu=record.metrics.vcpu_size, memory_bytes=_bytes(record.metrics.memory_size_mb)
    )
    interval = None
    if record.interval is not NO_INTERVAL:
        window = usage.end_interval()
        interval = build_interval(window, DeviceReadings(), sizes, started_ns=0, finished_ns=0)
    series = None
    if usage.series is not None and record.status != "running":  # checkpoints have no series
        series = usage.series.copy_within_limits()
    return ProcessReadings(
        samples=usage.samples,
        step_ms=usage.steps_ms.median(),
        agrees_on_cpu=batch.comparison.cpu_agrees,
        metrics=usage_metrics(usage, sizes),
        demand=deepcopy(batch.demand),
        interval=interval,
        series=series,
    )


def _memory_evidence(batch: BatchProcesses, group: GroupPeak) -> tuple[MemoryEvidence, ...]:
    """What the processes and the group's mark, which bounds them, say of the memory of a batch."""
    sampled_bytes = min_known(batch.peak_bytes, group.size_bytes)
    bound_bytes = batch.ring_bound_bytes or None
    return (
        *evidence_from("samples", sampled_bytes),
        *group_evidence(group),
        *evidence_from("kernel memory", bound_bytes, "unsure"),
    )


def _ring_warnings(batch: BatchProcesses, memory: tuple[MemoryEvidence, ...]) -> Iterator[str]:
    """A warning if packet rings may have taken notably more than was measured."""
    bound_bytes = batch.ring_bound_bytes
    if counts_too_little(choose_memory_peak(memory).size_bytes or 0, bound_bytes):
        yield _RINGS_ARE_NOT_COUNTED.format(format_memory(bound_bytes / MIB))


def _bytes(size_mb: Number | None) -> float | None:
    return product(size_mb, MIB)


class ProcessAccess(Struct, frozen=True, kw_only=True):
    """How to read this machine's processes, by Docker id.

    ``begin_tick``: what was read of the whole machine is out of date. ``machine_memory``: if the
    batch has the machine alone.
    """

    begin_tick: Callable[[], None]
    open_processes: Callable[[str], ContainerProcesses]
    open_cgroup: Callable[[int, str], ContainerCgroup | None]
    oom_kills: Callable[[], int | None]
    own_cpu_ns: Callable[[], int]
    exit_waiter: ProcessExitWaiter
    open_threads: Callable[[str], ThreadReader] | None = None
    machine_memory: Callable[[], int | None] = lambda: None


class _TrackedContainer(Struct):
    """The sources of one batch container, and its aggregates over all its restarts, which
    ``lock`` protects.
    """

    batch: BatchProcesses
    lock: threading.Lock
    # With thousands of processes a reading takes 10 to 50 ms of CPU time: one every few seconds.
    budget: CpuBudget = field(default_factory=partial(CpuBudget, 0.005))
    has_opened: bool = False
    docker_id: str = ""
    source: ContainerProcesses | None = None
    threads: ThreadReader | None = None
    looks: LookTimes | None = None
    group: ContainerCgroup | None = None
    is_group_gone: bool = False
    attempts_left: int = 0
    main_pid: int | None = None
    group_main_pid: int | None = None

    def open_sources(self, docker_id: str, machine: ProcessAccess) -> None:
        """Open the sources of a new container. A restart in place shows in its control group."""
        if docker_id == self.docker_id:
            return
        self.close()
        self.docker_id = docker_id
        self.source = machine.open_processes(docker_id)
        self.threads = None if machine.open_threads is None else machine.open_threads(docker_id)
        self._begin_incarnation()

    def _begin_incarnation(self) -> None:
        """Continue with another control group: the container's first one, or that of a restart."""
        with self.lock:
            self.batch.begin_incarnation()
        self.is_group_gone = False
        self.attempts_left = _MAX_CGROUP_ATTEMPTS

    def read_processes(self, machine: ProcessAccess) -> ProcessSnapshot:
        """Read the processes, and open the control group through one of them."""
        snapshot = ProcessSnapshot() if self.source is None else self.source.read_snapshot()
        if (
            self.is_group_gone
            and self.group is not None
            and snapshot.main_pid not in (None, self.group_main_pid)
        ):
            self.group.close()
            self.group = None
            self._begin_incarnation()
        self.main_pid = snapshot.main_pid
        for process in snapshot.processes:
            if self.group is not None or self.attempts_left == 0:
                break
            self.attempts_left -= 1
            self.group = machine.open_cgroup(process.pid, self.docker_id)
            self.group_main_pid = snapshot.main_pid
        return snapshot

    def ring_bytes(self) -> int:
        """The packet rings that the processes map."""
        return 0 if self.source is None else self.source.ring_bytes()

    def read_group(self, now_ns: int | None = None) -> GroupReading | None:
        """The group's counters; None without a group, or after the kernel has removed it.

        ``now_ns`` (monotonic): see :meth:`ContainerCgroup.read`.
        """
        reading = None if self.group is None else self.group.read_counters(now_ns)
        self.is_group_gone = self.group is not None and reading is None
        return reading

    def add_group(self, read_ns: int | None = None) -> None:
        """Read the group alone, without its processes; without a time this adds no sample."""
        group = self.read_group()
        if group is not None:
            with self.lock:
                self.batch.add_group(group, read_ns)

    def close(self) -> None:
        for source in (self.source, self.group, self.threads):
            if source is not None:
                source.close()
        self.source = None
        self.group = None
        self.threads = None


class ProcessCollector:
    """Reads the batch's processes at every tick, and at the end of a main process.

    No ``series_points``: no series.
    """

    def __init__(
        self,
        machine: ProcessAccess,
        clock: Clock,
        interval_ns: int,
        show_arguments: ShowArguments,
        series_points: int = 0,
        *,
        idle_of: IdleOfBatch = lambda _batch, _offset_ns: None,
    ) -> None:
        self._machine = machine
        self._clock = clock
        # Wall-clock time that is not set during the run.
        self._wall_offset_ns = clock.wall_ns() - clock.monotonic_ns()
        self._new_batch = partial(BatchProcesses, interval_ns, show_arguments, series_points)
        self._idle_of = idle_of
        self._containers: dict[str, ContainerMetadata] = {}
        self._tracked: dict[str, _TrackedContainer] = {}
        self._host_kills: int | None = None  # as of this tick
        self.takes_late_samples = MAX_PENDING * interval_ns >= _MIN_PENDING_NS
        self._lock = threading.Lock()
        self._reader = PeriodicReadingThread(
            "processes",
            self.tick,
            self._close,
            waiter=machine.exit_waiter,
            clock=clock,
            interval_ns=interval_ns,
            between=self.look,
        )
        self._interval_ns = interval_ns

    @property
    def has_data(self) -> bool:
        return any(tracked.batch.has_data for tracked in list(self._tracked.values()))

    def start(self) -> None:
        self._machine.exit_waiter.open()
        self._reader.start()

    def on_batch_started(self, container: ContainerMetadata) -> None:
        if container != self._containers.get(container.followed_id):
            self._containers = {**self._containers, container.followed_id: container}
            self._machine.exit_waiter.wake()

    def on_sample(
        self,
        batch: str,
        sample: ContainerSample,
        sizes: ResourceLimits,  # noqa: ARG002
    ) -> None:
        """Compare the statistics of the container with the sum of its processes."""
        with self._lock:
            tracked = self._tracked.get(batch)
            if tracked is not None:
                tracked.batch.add_stats(sample)

    def forget(self, batch: str) -> None:
        """Read the batch no longer; the thread, which may be reading it, closes its files."""
        containers = dict(self._containers)
        containers.pop(batch, None)
        self._containers = containers

    def final_reading(self, max_seconds: float) -> None:
        if self._reader.is_started:
            self._reader.final_reading(max_seconds)

    def stop(self, max_seconds: float) -> None:
        self._reader.stop(max_seconds)

    def part(self, record: Record, batch: str) -> RecordPart:
        """The evidence so far; only a warning after the thread has stopped early."""
        stopped = failure_warnings(self._reader.failure, "process values")
        if stopped and record.status == "running":
            return RecordPart(warnings=stopped)
        name = "processes" if self.has_data else None
        with self._lock:
            tracked = self._tracked.get(batch)
            if tracked is None or not tracked.batch.has_data:
                return RecordPart(source=name, warnings=stopped)
            evidence = _run_evidence(
                record,
                tracked.batch,
                partial(self._with_commands, tracked.batch),
                is_current=not stopped,
            )
            return RecordPart(evidence=evidence, source=name, warnings=stopped)

    def _with_commands(self, batch: BatchProcesses, series: Series | None) -> Series | None:
        """The series with the rows of the commands, which the reading thread may be adding to."""
        with self._lock:
            return batch.totals.with_commands(series)

    def longest_wait(self, batch: str, since_ns: int) -> Wait | None:
        """What the batch waited for longest since then (wall clock); None if unknown."""
        with self._lock:
            tracked = self._tracked.get(batch)
            return None if tracked is None else tracked.batch.time.longest_wait(since_ns)

    def held_back_ns(self, batch: str) -> Mapping[int, float]:
        """The work that the present wait of each thread of the batch holds back."""
        with self._lock:
            tracked = self._tracked.get(batch)
            return {} if tracked is None else tracked.batch.time.held_back_ns()

    def _close(self) -> None:
        for tracked in self._tracked.values():
            tracked.close()
        self._machine.exit_waiter.close()

    def tick(self, *, is_complete: bool = False) -> bool:
        """Read all batches.

        Before a complete reading, groups come first: the kernel may remove them at any moment.
        """
        self._drop_forgotten()
        if is_complete:
            for tracked in self._tracked.values():
                tracked.add_group()
        self._machine.begin_tick()
        self._host_kills = None
        followed: list[_TrackedContainer] = []
        for batch_id, container in self._containers.items():
            if container.docker_id:
                tracked = self._follow(batch_id, container)
                tracked.open_sources(container.docker_id, self._machine)
                followed.append(tracked)
        for tracked in followed:
            self._read(tracked, is_complete=is_complete)
        main_pids: list[int] = []
        events: list[int] = []
        for tracked in self._tracked.values():
            if tracked.main_pid is not None:
                main_pids.append(tracked.main_pid)
            if tracked.group is not None and tracked.group.events_descriptor is not None:
                events.append(tracked.group.events_descriptor)
        self._machine.exit_waiter.watch_only(main_pids, events)
        return True

    def look(self) -> float:
        """Look at the threads of the batches for which that is due; returns when the next look is
        due, NEVER_NS without any.
        """
        due_ns = NEVER_NS
        for tracked in self._tracked.values():
            looks, threads = tracked.looks, tracked.threads
            if looks is None or threads is None:
                continue
            if not threads.can_look_between:
                if looks.peek_due_ns <= self._clock.monotonic_ns():
                    self._peek(threads, looks)
                due_ns = min(due_ns, looks.peek_due_ns)
                continue
            if looks.due_ns <= self._clock.monotonic_ns():
                self._look(tracked, threads, looks)
            due_ns = min(due_ns, looks.due_ns)
        return due_ns

    def _peek(self, threads: ThreadReader, looks: LookTimes) -> None:
        began_ns = self._machine.own_cpu_ns()
        threads.peek()
        looks.note_peek(self._clock.monotonic_ns(), self._machine.own_cpu_ns() - began_ns)

    def _look(self, tracked: _TrackedContainer, threads: ThreadReader, looks: LookTimes) -> None:
        if looks.is_peek:
            self._peek(threads, looks)
            return
        now_ns = self._clock.monotonic_ns()
        began_ns = self._machine.own_cpu_ns() - threads.lookup_cpu_ns
        look = threads.look(now_ns)
        if look is not None:
            with self._lock:
                batch = tracked.batch
                read_ns = now_ns + self._wall_offset_ns
                batch.time.add_look(read_ns, look, batch.usage.series, looks.part_ns)
        used_ns = self._machine.own_cpu_ns() - threads.lookup_cpu_ns
        looks.note_look(
            now_ns,
            used_ns - began_ns,
            is_enough=threads.is_one_enough(look),
            can_peek=threads.can_peek,
            look=look,
        )

    def _follow_threads(
        self,
        tracked: _TrackedContainer,
        threads: ThreadReader,
        snapshot: ProcessSnapshot,
        now_ns: int,
        *,
        is_complete: bool,
    ) -> ThreadReadings:
        """Let the reader of threads follow the processes.

        It looks at the same time if it has to be complete, or sees only what is read with the
        processes.
        """
        skipped = None if is_complete else threads.skip_if_all_asleep(snapshot.processes, now_ns)
        if skipped is not None:
            return ThreadReadings(look=skipped.look, is_skipped=True)
        threads.follow(snapshot.processes, snapshot.last_pid)
        if tracked.looks is None:
            place = now_ns % _PLACES / _PLACES
            tracked.looks = LookTimes(now_ns, self._interval_ns, _MAX_LOOKS_SHARE, place)
        look = None
        if is_complete or not threads.sees_calls:
            look = threads.look(now_ns, is_fresh=True, is_required=is_complete)
        elif threads.is_steady and tracked.looks.leave_out_if_long_same(now_ns):
            threads.leave_out_reading()
        elif tracked.looks.is_with_reading(now_ns):
            look = threads.look_with_reading(now_ns)
            tracked.looks.note_with_reading(now_ns, look)
        if not threads.sees_calls:
            can_peek = threads.can_peek and not threads.can_look_between
            tracked.looks.looked_with_others(now_ns, can_peek=can_peek)
        return ThreadReadings(look=look, read_ended_ns=threads.take_read_ended_ns())

    def _drop_forgotten(self) -> None:
        for batch_id in self._tracked.keys() - self._containers.keys():
            with self._lock:
                forgotten = self._tracked.pop(batch_id)
            forgotten.close()

    def _follow(self, batch_id: str, container: ContainerMetadata) -> _TrackedContainer:
        """The tracked container of a batch, which is new at its first tick."""
        tracked = self._tracked.get(batch_id)
        if tracked is None:
            batch = self._new_batch(
                started_ns=container.started_ns,
                is_new=not container.restart_count,
                gpus=self._idle_of(batch_id, self._wall_offset_ns),
            )
            tracked = _TrackedContainer(batch, self._lock)
            with self._lock:
                self._tracked[batch_id] = tracked
        return tracked

    def _read(self, tracked: _TrackedContainer, *, is_complete: bool) -> None:
        """Read one container; only its group while the processes have cost more than their share,
        unless the reading has to be complete.
        """
        now_ns = self._clock.monotonic_ns()
        read_ns = now_ns + self._wall_offset_ns
        if not (tracked.budget.allows(now_ns) or is_complete):
            tracked.add_group(read_ns)
            return
        cpu_before_ns = self._machine.own_cpu_ns()
        snapshot = tracked.read_processes(self._machine)
        machine_bytes = self._machine.machine_memory()
        group = tracked.read_group(None if is_complete else now_ns)
        ring_bytes = tracked.ring_bytes()
        # The reading of threads has its own limit.
        threads = None
        threads_cpu_ns = 0
        if tracked.threads is not None:
            began_ns = self._machine.own_cpu_ns()
            threads = self._follow_threads(
                tracked, tracked.threads, snapshot, now_ns, is_complete=is_complete
            )
            threads_cpu_ns = self._machine.own_cpu_ns() - began_ns
        # A kill is counted before its process has ended: after an end, the count is read again.
        may_have_unseen_end = group is None and snapshot.missed_pids > 0
        if self._host_kills is None or snapshot.ended or may_have_unseen_end:
            self._host_kills = self._machine.oom_kills()
        with self._lock:
            tracked.batch.add_reading(
                snapshot,
                group,
                self._host_kills,
                read_ns,
                threads,
                machine_bytes=machine_bytes,
                ring_bytes=ring_bytes,
            )
        if tracked.has_opened:
            tracked.budget.add_cost(
                self._machine.own_cpu_ns() - cpu_before_ns - threads_cpu_ns, now_ns
            )
        tracked.has_opened = True  # only the first reading opens the files of all processes
