"""Puts a target's record together: the batch's numbers and what the monitor knows of itself."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from profiler import __version__
from profiler.accelerators.accelerator import Accelerator, with_accelerators
from profiler.clock import Clock, Grid
from profiler.delivery import log_target
from profiler.emf import emf_members
from profiler.line import encode_line
from profiler.observation import Observation
from profiler.record import SCHEMA_VERSION, Monitor, OtherContainer, Record, RecordType, Report, Sampling
from profiler.settings import MonitorSettings, problems_message
from profiler.sinks.cloudwatch_logs import LogTarget
from profiler.sources.host import Host
from profiler.sources.own_process import OwnUsage
from profiler.sources.task_metadata import ContainerMetadata, TaskMetadata
from profiler.summary import batch_record, container_sizes, interval, other_container
from profiler.times import format_ms
from profiler.usage import ContainerUsage
from profiler.verdict import End, still_running


class Reporter:
    """Builds the lines of one task."""

    def __init__(
        self,
        settings: MonitorSettings,
        observation: Observation,
        *,
        grid: Grid,
        clock: Clock,
        host: Host,
        own_usage: Callable[[], OwnUsage],
        accelerators: Sequence[Accelerator] = (),
        notes: Callable[[TaskMetadata], Sequence[str]] = lambda _: (),
    ) -> None:
        self._settings = settings
        self._observation = observation
        self._grid = grid
        self._clock = clock
        self._host = host
        self._own_usage = own_usage
        self._accelerators = accelerators
        self._notes = notes
        self._interval_started_ns: dict[str, int] = {}
        self.warnings = [problems_message(settings.problems)] if settings.problems else []

    def report(self, container: ContainerMetadata, task: TaskMetadata, end: End) -> bytes:
        """The final line of a batch."""
        from profiler.sizing.advised import advised  # noqa: PLC0415  until the end its memory is the batch's

        record = with_accelerators(self._record(container, task, end), self._accelerators)
        time = format_ms(self._clock.wall_ns())
        return self._line("task.report", advised(record, self._settings.prices, time=time))

    def checkpoint(self, container: ContainerMetadata, task: TaskMetadata) -> bytes:
        """The line of a batch that goes on: everything so far, and the time since the last one."""
        now_ns = self._clock.wall_ns()
        record = self._record(container, task, still_running(now_ns))
        usage = self._observation.usages.get(container.name)
        if usage is not None:
            started_ns = self._interval_started_ns.get(container.name, container.started_ns or now_ns)
            sizes = container_sizes(container, task, usage, self._host)
            numbers = interval(usage.end_interval(), sizes, started_ns=started_ns, finished_ns=now_ns)
            record = replace(record, interval=numbers)
            self._interval_started_ns[container.name] = now_ns
        return self._line("task.checkpoint", with_accelerators(record, self._accelerators))

    def _line(self, kind: RecordType, record: Record) -> bytes:
        time = format_ms(self._clock.wall_ns())
        report = Report(time=time, type=kind, schema_version=SCHEMA_VERSION, record=record)
        return encode_line(report, emf_members(report, self._metrics_of(kind)))

    def _metrics_of(self, kind: RecordType) -> Sequence[str]:
        """What CloudWatch is to make metrics of in a line of this kind."""
        settings = self._settings
        wanted = settings.emf == "live" or (settings.emf == "report" and kind == "task.report")
        return settings.emf_metrics if wanted else ()

    def _record(self, container: ContainerMetadata, task: TaskMetadata, end: End) -> Record:
        usage = self._observation.usages.get(container.name)
        record = batch_record(container, task, usage, end, self._host, others=self._others(container, task))
        target = log_target(container, task, self._settings)
        if isinstance(target, LogTarget):
            record = replace(record, log_group=target.group, log_stream=target.stream)
        return replace(record, sampling=self._sampling(usage), monitor=self._monitor(container.name, task))

    def _others(self, batch: ContainerMetadata, task: TaskMetadata) -> list[OtherContainer]:
        now_ns = self._clock.wall_ns()
        usages = self._observation.usages
        return [
            other_container(container, task, usages.get(container.name), now_ns, self._host)
            for container in task.containers
            if container.name != batch.name
        ]

    def _sampling(self, usage: ContainerUsage | None) -> Sampling:
        longest_ms, median_ms = (usage.longest_step_ms, usage.median_step_ms) if usage else (None, None)
        interval_ms = self._settings.interval_seconds * 1000
        return Sampling(
            interval_ms=int(interval_ms) if interval_ms.is_integer() else interval_ms,
            samples=usage.samples if usage else 0,
            duplicates=usage.duplicates if usage else 0,
            failures=self._observation.failures,
            missed_ticks=self._grid.missed,
            longest_gap_ms=None if longest_ms is None else round(longest_ms),
            stats_period_ms=None if median_ms is None else round(median_ms),
            sources=(self._observation.source_name,),
        )

    def _monitor(self, name: str, task: TaskMetadata) -> Monitor:
        used = self._own_usage()
        own = self._observation.own
        return Monitor(
            version=__version__,
            cpu_seconds=round(used.cpu_seconds, 3),
            max_rss_mb=used.max_rss_mb,
            restarts=own.restart_count if own is not None else 0,
            warnings=(*self.warnings, *self._observation.warnings(name), *self._notes(task)),
        )
