"""Builds the lines of a task: the batch's numbers, and the monitor's own usage and warnings."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.run_end import RunEnd, with_clock_shift
from profiler.aggregation.run_notices import Finding, RunNotices
from profiler.aggregation.task_record import (
    build_batch_record,
    build_interval,
    build_other_container,
    build_sampling,
    container_limits,
    with_cpu_covered,
    with_cpu_demand,
    with_devices,
)
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import Collector, longest_wait, stacks_line, with_collected
from profiler.core.clock import Clock, Ticker
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.core.version import __version__
from profiler.monitor.report_delivery import log_target
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.host import OwnUsage
from profiler.record.bounded_json_line import encode_line, without_lists
from profiler.record.record_model import (
    SCHEMA_VERSION,
    Monitor,
    OtherContainer,
    RaisedNotice,
    Record,
    RecordType,
    Report,
)
from profiler.settings import MonitorSettings, problems_message
from profiler.sinks import DeliveryFailure, LogTarget


class Reporter(Struct, eq=False):
    """Builds the lines of one task. ``warnings`` come from the settings and the loop."""

    settings: MonitorSettings
    sampler: TaskSampler
    ticker: Ticker
    clock: Clock
    read_own_usage: Callable[[], OwnUsage]
    collectors: Sequence[Collector] = ()
    warnings: list[str] = field(default_factory=list)
    _interval_started_ns: dict[str, int] = field(default_factory=dict)
    _raised: dict[str, tuple[RaisedNotice, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Begin with the warning about the settings."""
        if self.settings.problems:
            self.warnings.append(problems_message(self.settings.problems))

    def report(
        self, container: ContainerMetadata, task: TaskMetadata, outcome: RunEnd, *, has_cost: bool = True
    ) -> tuple[bytes, bytes | None]:
        """The final line of a batch, and the line of its call stacks if there are any.

        ``has_cost`` is True only for the last report of a task: a task is paid once, up to its end.
        """
        from profiler.sizing.advice import with_recommendation  # imported late: it takes no memory while the batch runs

        self.sampler.add_device_readings()
        record = self._record(container, task, outcome)
        usage = self.sampler.usages.get(container.name)
        if usage is not None and usage.series is not None:
            record = replace(record, series=usage.series.values())
        record = with_collected(record, self.collectors)
        record = with_recommendation(record, self.settings.prices, time=format_ms(self.clock.wall_ns()))
        line = self._line("task.report", record if has_cost else replace(record, cost=None))
        return line, stacks_line(record, self.collectors)

    def bare_report(self, container: ContainerMetadata, task: TaskMetadata, outcome: RunEnd) -> bytes:
        """The final line without measurements, if the complete one cannot be built."""
        record = build_batch_record(container, task, None, outcome, self.sampler.host)
        monitor = Monitor(version=__version__, warnings=tuple(self.warnings))
        return self._line("task.report", replace(record, monitor=monitor))

    def checkpoint(self, container: ContainerMetadata, task: TaskMetadata) -> bytes:
        """The line of a running batch: everything so far, and the interval since the last checkpoint."""
        now_ns = self.clock.wall_ns()
        record = self._record(container, task, RunEnd(status="running", until_ns=now_ns))
        usage = self.sampler.usages.get(container.name)
        if usage is not None:
            started_ns = self._interval_started_ns.get(container.name, container.started_ns or now_ns)
            sizes = container_limits(container, task, usage, self.sampler.host)
            numbers = build_interval(usage.end_interval(), sizes, started_ns=started_ns, finished_ns=now_ns)
            load = self.sampler.loads.get(container.name)
            if load is not None:
                numbers = with_devices(numbers, load.interval_devices)
                load.interval_devices = DeviceReadings()
            record = replace(record, interval=numbers)
            self._interval_started_ns[container.name] = now_ns
        return self._line("task.checkpoint", with_collected(record, self.collectors))

    def notice(self, container: ContainerMetadata, task: TaskMetadata, notices: RunNotices, finding: Finding) -> bytes:
        """The line of a notice about a running batch; all later records of the batch list it."""
        from profiler.record.notice_model import NoticeLine, encode_notice  # most runs have no notice

        now_ns = self.clock.wall_ns()
        record = self._record(container, task, RunEnd(status="running", until_ns=now_ns))
        record = without_lists(with_collected(record, self.collectors))
        waits = partial(longest_wait, self.collectors, container.name)
        notice = notices.describe(finding, waits)
        self._raised[container.name] = notices.raised
        return encode_notice(
            NoticeLine(time=format_ms(now_ns), notice=notice, record=replace(record, notices=notices.raised))
        )

    def _line(self, kind: RecordType, record: Record) -> bytes:
        time = format_ms(self.clock.wall_ns())
        report = Report(time=time, type=kind, schema_version=SCHEMA_VERSION, record=record)
        settings = self.settings
        if settings.emf == "off" or (settings.emf == "report" and kind != "task.report"):
            return encode_line(report)
        from profiler.record.report_line import emf_members  # its catalogue takes memory

        return encode_line(report, emf_members(report, settings.emf_metrics))

    def _record(self, container: ContainerMetadata, task: TaskMetadata, outcome: RunEnd) -> Record:
        usage = self.sampler.usages.get(container.name)
        outcome = with_clock_shift(outcome, container.started_ns, self.sampler.clock_shift_ns(container.name))
        record = build_batch_record(
            container, task, usage, outcome, self.sampler.host, others=self._other_containers(container, task)
        )
        load, metrics = self.sampler.loads.get(container.name), record.metrics
        if load is not None:
            metrics = with_cpu_demand(
                metrics, load.demand, vcpu_size=load.vcpu_size, max_threads=self.sampler.max_threads
            )
        own, used = self.sampler.own, self.read_own_usage()
        target = log_target(container, task, self.settings, own)
        sampling = build_sampling(
            usage,
            (self.sampler.source_name,),
            interval_ns=round(self.settings.interval_seconds * NS_PER_SECOND),
            failures=self.sampler.stats_health.failures,
            missed=self.ticker.missed,
        )
        record = replace(
            record,
            metrics=metrics,
            log_group=None if isinstance(target, DeliveryFailure) else target.group,
            log_stream=None if isinstance(target, DeliveryFailure) else target.stream,
            log_region=target.region if isinstance(target, LogTarget) and target.region != record.region else None,
            sampling=sampling,
            monitor=Monitor(
                version=__version__,
                cpu_seconds=round(used.cpu_seconds, 3),
                max_rss_mb=used.max_rss_mb,
                restarts=own.restart_count if own is not None else 0,
                warnings=(*self.warnings, *self.sampler.warnings(container.name)),
            ),
            notices=self._raised.get(container.name, ()),
        )
        return with_cpu_covered(record, None if usage is None else usage.last_read_by_start_ns)

    def _other_containers(self, batch: ContainerMetadata, task: TaskMetadata) -> list[OtherContainer]:
        sampler, now_ns = self.sampler, self.clock.wall_ns()
        return [
            build_other_container(
                container,
                task,
                sampler.usages.get(container.name),
                now_ns,
                sampler.host,
                clock_shift_ns=sampler.clock_shift_ns(container.name),
            )
            for container in task.containers
            if container.name != batch.name
        ]
