"""Samples one run: what a reading adds, and what is kept of it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.container_usage import BLOCK_COUNTERS, ContainerUsage
from profiler.aggregation.slowdown import CpuDemand
from profiler.collectors.collector import COMMAND, Collectors
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.local_run.command_supervisor import ReapedUsage
from profiler.local_run.command_usage import (
    MIN_CPU_STEP_NS,
    CommandReader,
    UnrelatedChildren,
)
from profiler.local_run.prepared_run import PreparedRun, StartedRun
from profiler.local_run.run_plan import RunPlan
from profiler.local_run.sampling_pace import FINEST_NS, SamplingPace
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.process_tree import ProcessReading

if TYPE_CHECKING:
    from profiler.aggregation.process_table import ProcessTotals
    from profiler.aggregation.time_breakdown import TimeAccount
    from profiler.core.look_times import LookTimes
    from profiler.readers.linux.look import ThreadsLook
    from profiler.readers.linux.thread_reader import ThreadReader


_MAX_PENDING = 64
# The share of a core that looks at the threads may take beyond one a step, and that of all
# readings up to which there are such.
_MAX_LOOKS_SHARE = 0.003
_MAX_SHARE_WITH_LOOKS = 0.006
_ADVANCE_NS = 40 * NS_PER_MS
_PLACES = 9973  # the first look is at one of so many places in its part of the step


class SampleBuffer:
    """Passes samples to the statistics with a delay, to merge a short last step, whose rate
    would be mostly rounding.

    ``series_points`` is half the largest number of steps of the time series; 0 for none.
    """

    def __init__(
        self,
        interval_ns: int,
        started_ns: int,
        vcpu_size: float | None = None,
        series_points: int = 0,
    ) -> None:
        self.usage = ContainerUsage(interval_ns, series_points, finest_ns=FINEST_NS)
        self.demand = CpuDemand(vcpu_size)
        self.failures = 0
        self._interval_ns = interval_ns
        self._started_ns = started_ns
        self._blocks_ns = started_ns
        self._pending: list[tuple[ContainerSample, int]] = []
        self._devices_ns: int | None = None

    def add_sample(self, sample: ContainerSample | Unavailable, received_ns: int) -> None:
        """Add the sample of a tick, or count a failure."""
        if isinstance(sample, Unavailable):
            self.failures += 1
            return
        self._merge_short_cpu_step(sample.read_ns)
        self._flush()
        self._pending.append((sample, received_ns))

    def add_quick(self, sample: ContainerSample, received_ns: int) -> None:
        """Add a sample between two others."""
        self._pending.append((sample, received_ns))
        if len(self._pending) > _MAX_PENDING:
            self._flush(keep=_MAX_PENDING // 2)

    def add_devices(self, collectors: Collectors, now_ns: int) -> None:
        """Add the devices' readings to the time since the last call in the time series, which
        begins with a sample.
        """
        if not collectors.devices or not self.usage.samples:
            return
        since_ns = first_known(self._devices_ns, now_ns - self._interval_ns)
        readings = collectors.take_readings()
        at_ns = (since_ns + now_ns) // 2
        around_ns = (now_ns - since_ns) // 2
        self._devices_ns = now_ns
        self.usage.add_devices(readings, at_ns, around_ns=around_ns)

    def add_final_sample(self, final: ContainerSample, received_ns: int) -> None:
        """Add the counters at the end, if there was a sample before."""
        if not self._pending:
            return
        last = self._pending[-1][0]
        if final.read_ns - last.read_ns < self._interval_ns // 2:
            self._pending.pop()
            final = replace(last, read_ns=final.read_ns, cpu_ns=final.cpu_ns)
        self._merge_short_cpu_step(final.read_ns)
        self._pending.append((final, received_ns))
        self._flush()

    def _merge_short_cpu_step(self, end_ns: int) -> None:
        """Merge the step of the CPU time that ends now with the one before if it is short."""
        shortest_ns = min(MIN_CPU_STEP_NS, self._interval_ns // 2)
        for index, (sample, received_ns) in enumerate(self._pending):
            if end_ns - sample.read_ns < shortest_ns:
                self._pending[index] = replace(sample, cpu_ns=None), received_ns

    def _flush(self, keep: int = 0) -> None:
        """Pass the samples on, without the last ``keep``."""
        ready = len(self._pending) - keep
        for sample, received_ns in self._pending[:ready]:
            usage = self.usage
            before = usage.traffic_by_counter()
            usage.add_sample(sample, received_ns=received_ns, started_ns=self._started_ns)
            self.demand.add_step(usage.last_vcpu or 0.0, usage.take_ended_step_ns())
            if sample.block_read_bytes is None:
                continue
            if usage.series is not None:
                now = usage.traffic_by_counter()
                read, written = ((now[name] or 0) - (before[name] or 0) for name in BLOCK_COUNTERS)
                usage.series.add_blocks(
                    sample.read_ns, read, written, held_ns=sample.read_ns - self._blocks_ns
                )
            self._blocks_ns = sample.read_ns
        del self._pending[:ready]


class Details(Struct):
    """What a full reading measures in addition.

    The shortest runs have none, and do not import the modules.
    """

    processes: "ProcessTotals"
    threads: "ThreadReader"
    time: "TimeAccount"
    looks: "LookTimes"


def _next_look_ns(details: Details) -> float:
    """When the next look or peek at the threads is due, beside the readings."""
    looks = details.looks
    return looks.due_ns if details.threads.can_look_between else looks.peek_due_ns


class RunSampler:
    """Takes the readings of one run, and keeps what they measured.

    ``vcpu_size`` is the command's limit.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        started: StartedRun,
        plan: RunPlan,
        unrelated_children: UnrelatedChildren,
        vcpu_size: float | None,
    ) -> None:
        self._clock = prepared.clock
        self.prepared = prepared
        self.started = started
        self.plan = plan
        self._interval_ns = round(plan.interval_seconds * NS_PER_SECOND)
        self.command = CommandReader(prepared, started, unrelated_children)
        self._unrelated_children = unrelated_children
        points = max(plan.series_points, plan.max_history_steps // 2)
        self.samples = SampleBuffer(self._interval_ns, started.started_wall_ns, vcpu_size, points)
        self.pace = SamplingPace(started.started_ns, self._interval_ns, time.thread_time_ns())
        self.details: Details | None = None
        self.has_tick = False
        self._last_look: ThreadsLook | None = None
        self._reading_ns: int | None = None  # when the next reading is due by the pace
        self._began_cpu_ns = time.thread_time_ns()
        self._lookup_ns = 0

    def next_ns(self) -> int:
        """When the next reading or look is due (monotonic)."""
        if self._reading_ns is None:
            self._reading_ns = self.pace.next_ns(self._clock.monotonic_ns(), time.thread_time_ns())
        if self.details is None:
            return self._reading_ns
        return int(min(self._reading_ns, _next_look_ns(self.details)))

    def is_due(self, now_ns: int) -> bool:
        """Whether a reading is due; the next one is then asked for."""
        if self._reading_ns is not None and now_ns < self._reading_ns:
            return False
        self._reading_ns = None
        return True

    def look_if_due(self, now_ns: int, stops: list[tuple[int, int]]) -> None:
        """Look at the threads if that is due; ``stops`` are the times in which this process and
        the command were stopped, and are taken.
        """
        details = self.details
        if details is None:
            return
        while stops:
            stopped_ns, continued_ns = stops.pop(0)
            details.time.add_stopped(
                self.started.wall_ns(stopped_ns), self.started.wall_ns(continued_ns)
            )
        if now_ns < _next_look_ns(details) or not self.command.processes:
            return
        if details.looks.is_peek or not details.threads.can_look_between:
            began_ns = time.thread_time_ns()
            self._read_threads(details, details.threads.peek)
            details.looks.note_peek(now_ns, time.thread_time_ns() - began_ns)
            return
        began_ns = time.thread_time_ns() - details.threads.lookup_cpu_ns
        look = self._take_look(details, now_ns)
        if look is not None:
            details.time.add_look(
                self.started.wall_ns(now_ns),
                look,
                self.samples.usage.series,
                details.looks.part_ns,
            )
        lookup_ns = details.threads.lookup_cpu_ns
        self.pace.leave_out(lookup_ns - self._lookup_ns)
        self._lookup_ns = lookup_ns
        used_ns = time.thread_time_ns() - lookup_ns
        share = (used_ns - self._began_cpu_ns - _ADVANCE_NS) / max(
            now_ns - self.started.started_ns, 1
        )
        details.looks.note_look(
            now_ns,
            used_ns - began_ns,
            is_enough=share > _MAX_SHARE_WITH_LOOKS or details.threads.is_one_enough(look),
            can_peek=details.threads.can_peek,
            look=look,
        )

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Leave a block out of the CPU time of the pace: it imports modules, once."""
        began_ns = time.thread_time_ns()
        yield
        self.pace.leave_out(time.thread_time_ns() - began_ns)

    def read_quickly(self, now_ns: int) -> None:
        sample = self.command.sample_quickly(self.started.wall_ns(now_ns))
        if sample is not None:
            self.samples.add_quick(sample, now_ns)

    def read_everything(self, reaped: ReapedUsage, *, is_tick: bool) -> ContainerSample | None:
        """Read everything; None if no process could be read.

        ``reaped`` is the usage of the processes that were reaped so far.
        """
        self.has_tick = self.has_tick or is_tick
        if self.details is None:
            with self.left_out():
                self.details = self._new_details()
            self._began_cpu_ns = time.thread_time_ns()
        details = self.details
        now_ns = self._clock.monotonic_ns()  # the imports take some milliseconds
        read_ns = self.started.wall_ns(now_ns)
        command = self.command
        sample = command.read_sample(read_ns, reaped.cpu_ns, reaped.blocks)
        self.pace.leave_out(command.take_pages_cpu_ns())
        self.samples.add_sample(sample, now_ns)
        if is_tick:
            self.add_devices(now_ns)
        processes = command.processes
        details.processes.add_reading(
            processes, read_ns if processes else None, cpu_ns=command.cpu_ns
        )
        if isinstance(sample, Unavailable):
            return None
        details.threads.follow(processes, command.last_pid)
        if not details.threads.sees_calls:  # only what is read with the processes
            look = self._take_look(details, now_ns, is_fresh=True)
            if look is not None:
                details.time.add_look(read_ns, look, self.samples.usage.series)
            can_peek = details.threads.can_peek and not details.threads.can_look_between
            details.looks.looked_with_others(now_ns, can_peek=can_peek)
        elif is_tick and self._may_leave_look_out(details, now_ns):
            details.threads.leave_out_reading()
        elif is_tick and details.looks.is_with_reading(now_ns):
            look = self._read_threads(details, partial(details.threads.look_with_reading, now_ns))
            details.looks.note_with_reading(now_ns, look)
            if look is not None:
                details.time.add_look(read_ns, look, self.samples.usage.series)
        self._add_ended_cpu(details, read_ns, processes)
        return sample

    def _may_leave_look_out(self, details: Details, now_ns: int) -> bool:
        return details.threads.is_steady and details.looks.leave_out_if_long_same(now_ns)

    def _take_look(
        self, details: Details, now_ns: int, *, is_fresh: bool = False
    ) -> "ThreadsLook | None":
        return self._read_threads(details, lambda: details.threads.look(now_ns, is_fresh=is_fresh))

    def _read_threads(
        self, details: Details, read: "Callable[[], ThreadsLook | None]"
    ) -> "ThreadsLook | None":
        """A look at the threads; None also after a defect, which must not end the run."""
        if details.time.failure is not None:
            return None
        try:
            return read()
        except Exception as error:  # noqa: BLE001  the record names it
            details.time.failure = error
            return None

    def _add_ended_cpu(
        self, details: Details, read_ns: int, processes: Sequence[ProcessReading]
    ) -> None:
        """Add the CPU time of the processes that have ended."""
        details.time.loses_cpu_time = self.command.has_lost_children
        living_ns = sum([process.own_cpu_ns for process in processes])
        ended_ns = self.command.cpu_ns - living_ns
        details.time.add_total(read_ns, ended_ns, details.threads.take_read_ended_ns())

    def add_devices(self, now_ns: int) -> None:
        self.samples.add_devices(self.plan.collectors, now_ns)

    def read_ended(self, finished_ns: int, reaped: ReapedUsage) -> None:
        """Read the processes and threads that have ended, which is possible until the command is
        reaped.
        """
        details = self.details
        if details is None or not self.command.max_processes:
            return
        self._last_look = details.threads.read_last(finished_ns)
        ended = self.command.sample_ended(reaped.cpu_ns)
        details.processes.add_reading(
            ended, self.started.wall_ns(finished_ns), cpu_ns=self.command.cpu_ns
        )

    def add_final_counters(self, finished_ns: int, reaped: ReapedUsage) -> None:
        """Add the counters of the ended command."""
        final = self.command.final_sample(self.started.wall_ns(finished_ns), reaped.cpu_ns)
        if self.details is not None and self._last_look is not None:
            series = self.samples.usage.series
            self.details.time.add_look(final.read_ns, self._last_look, series)
            self.details.threads.follow(())
            self._add_ended_cpu(self.details, final.read_ns, ())
        self.samples.add_final_sample(final, finished_ns)

    @property
    def min_series_step_ms(self) -> float:
        """The steps of the time series are not much shorter than those between the samples."""
        usage = self.samples.usage
        if usage.last_read_ns is None:
            return 0.0
        mean_ns = (usage.last_read_ns - self.started.started_wall_ns) / usage.samples
        return min(0.75 * mean_ns, self._interval_ns) / NS_PER_MS

    def _new_details(self) -> Details:
        # A command that ends before its first full reading does without these modules.
        import profiler.readers.linux.memory_shares
        import profiler.readers.linux.merged_pages
        import profiler.readers.linux.program_names  # noqa: F401
        from profiler.aggregation.process_table import ProcessTotals
        from profiler.aggregation.series_by_command import SeriesByCommand
        from profiler.aggregation.time_breakdown import TimeAccount
        from profiler.core.look_times import LookTimes
        from profiler.readers.cgroup.group_pressure import open_group_pressure
        from profiler.readers.cgroup.process_groups import is_frozen
        from profiler.readers.linux.sockets import KernelSockets
        from profiler.readers.linux.thread_reader import ThreadReader

        started_ns = self.started.started_wall_ns
        now_ns = self._clock.monotonic_ns()
        interval_ns = self._interval_ns
        plan = self.plan
        offset_ns = self.started.wall_ns(0)

        def new_series() -> SeriesByCommand[Any]:
            return SeriesByCommand(started_ns, interval_ns, plan.series_points, finest_ns=FINEST_NS)

        return Details(
            processes=ProcessTotals(make_series=new_series if plan.series_points else None),
            threads=ThreadReader(
                time.thread_time_ns,
                sockets=KernelSockets(),
                open_pressure=open_group_pressure,
                is_frozen=is_frozen,
                is_of_batch=lambda pid: pid not in self._unrelated_children,
            ),
            time=TimeAccount(
                started_ns, interval_ns, plan.collectors.idle_gpus(COMMAND, offset_ns)
            ),
            looks=LookTimes(now_ns, interval_ns, _MAX_LOOKS_SHARE, now_ns % _PLACES / _PLACES),
        )
