"""Builds the lines of a task: the batch's numbers, and the monitor's own usage and warnings."""

from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.run_end import RunEnd, with_clock_shift
from profiler.aggregation.run_notices import NoticeFinding, RunNotices
from profiler.aggregation.task_record import (
    build_batch_record,
    build_interval,
    build_other_container,
    build_sampling,
    container_limits,
    with_cpu_covered,
    with_cpu_demand,
)
from profiler.aggregation.time_series import DeviceReadings
from profiler.collectors.collector import with_collected
from profiler.core.timestamps import format_ms
from profiler.core.version import __version__
from profiler.monitor.followed_container import FollowedContainer
from profiler.monitor.report_delivery import log_target
from profiler.monitor.shared_parts import SharedParts
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.task_metadata import TaskMetadata
from profiler.record.bounded_json_line import encode_line, without_lists
from profiler.record.record_model import SCHEMA_VERSION, Monitor, Record, RecordType, Report
from profiler.settings import TaskSettings
from profiler.sinks import DeliveryFailure, LogTarget


class Reporter(Struct, eq=False):
    """Builds the lines of one task.

    ``missed_before`` are the ticks that were missed before the task.
    """

    settings: TaskSettings
    sampler: TaskSampler
    shared: SharedParts
    warnings: list[str]
    missed_before: int = 0

    def report(
        self,
        batch: FollowedContainer,
        task: TaskMetadata,
        outcome: RunEnd,
        *,
        has_cost: bool = True,
    ) -> tuple[bytes, bytes | None]:
        """The final line of a batch, and that of its call stacks.

        Only a task's last report ``has_cost``.
        """
        from profiler.sizing.advice import (
            with_recommendation,
        )  # imported late: it takes no memory while the batch runs

        self.sampler.add_device_readings()
        record = self._record(batch, task, outcome)
        if batch.usage is not None and batch.usage.series is not None:
            record = replace(record, series=batch.usage.series.values())
        collectors, batch_id = self.shared.collectors, batch.container.followed_id
        record = with_collected(record, collectors, batch_id)
        record = with_recommendation(
            record, self.settings.prices, time=format_ms(self.shared.clock.wall_ns())
        )
        line = self._line("task.report", record if has_cost else replace(record, cost=None))
        return line, collectors.stacks_line(record, batch_id)

    def bare_report(self, batch: FollowedContainer, task: TaskMetadata, outcome: RunEnd) -> bytes:
        """The final line without measurements, if the complete one cannot be built."""
        record = build_batch_record(batch.container, task, None, outcome, self.sampler.host)
        monitor = Monitor(version=__version__, warnings=tuple(self.warnings))
        return self._line("task.report", replace(record, monitor=monitor))

    def checkpoint(self, batch: FollowedContainer, task: TaskMetadata) -> bytes:
        """The line of a running batch: everything so far, and the interval since the last
        checkpoint.
        """
        now_ns, container, usage = self.shared.clock.wall_ns(), batch.container, batch.usage
        record = self._record(batch, task, RunEnd(status="running", until_ns=now_ns))
        if usage is not None:
            started_ns = batch.interval_started_ns or container.started_ns or now_ns
            sizes = container_limits(container, task, usage, self.sampler.host)
            totals, devices = usage.end_interval(), batch.interval_devices
            interval = build_interval(
                totals, devices, sizes, started_ns=started_ns, finished_ns=now_ns
            )
            record = replace(record, interval=interval)
            batch.interval_devices = DeviceReadings()
            batch.interval_started_ns = now_ns
        record = with_collected(record, self.shared.collectors, container.followed_id)
        return self._line("task.checkpoint", record)

    def notice(
        self,
        batch: FollowedContainer,
        task: TaskMetadata,
        notices: RunNotices,
        finding: NoticeFinding,
    ) -> bytes:
        """The line of a notice about a running batch; all later records of the batch list it."""
        from profiler.record.notice_model import (
            NoticeLine,
            encode_notice,
        )  # most runs have no notice

        now_ns, collectors, batch_id = (
            self.shared.clock.wall_ns(),
            self.shared.collectors,
            batch.container.followed_id,
        )
        record = self._record(batch, task, RunEnd(status="running", until_ns=now_ns))
        record = without_lists(with_collected(record, collectors, batch_id))
        notice = notices.describe(finding, partial(collectors.longest_wait, batch_id))
        return encode_notice(
            NoticeLine(
                time=format_ms(now_ns),
                notice=notice,
                record=replace(record, notices=notices.raised),
            )
        )

    def _line(self, kind: RecordType, record: Record) -> bytes:
        time = format_ms(self.shared.clock.wall_ns())
        report = Report(time=time, type=kind, schema_version=SCHEMA_VERSION, record=record)
        settings = self.settings
        if settings.emf == "off" or (settings.emf == "report" and kind != "task.report"):
            return encode_line(report)
        from profiler.record.report_line import emf_members  # its catalogue takes memory

        return encode_line(report, emf_members(report, settings.emf_metrics))

    def _record(self, batch: FollowedContainer, task: TaskMetadata, outcome: RunEnd) -> Record:
        container, usage, sampler = batch.container, batch.usage, self.sampler
        outcome = with_clock_shift(outcome, container.started_ns, sampler.clock_shift_ns(batch))
        now_ns = self.shared.clock.wall_ns()
        others = [
            build_other_container(
                other.container,
                task,
                other.usage,
                now_ns,
                sampler.host,
                clock_shift_ns=sampler.clock_shift_ns(other),
            )
            for other in sampler.followed.listed
            if other is not batch
        ]
        record = build_batch_record(container, task, usage, outcome, sampler.host, others=others)
        metrics = record.metrics
        if batch.demand is not None:
            metrics = with_cpu_demand(
                metrics, batch.demand, vcpu_size=batch.vcpu_size, max_threads=sampler.max_threads
            )
        own, used = sampler.own, self.shared.read_own_usage()
        target = log_target(container, task, self.settings, own)
        sampling = build_sampling(
            usage,
            (sampler.source_name,),
            interval_ns=sampler.interval_ns,
            failures=sampler.stats_health.failures,
            missed=self.shared.ticker.missed - self.missed_before,
        )
        record = replace(
            record,
            metrics=metrics,
            log_group=None if isinstance(target, DeliveryFailure) else target.group,
            log_stream=None if isinstance(target, DeliveryFailure) else target.stream,
            log_region=target.region
            if isinstance(target, LogTarget) and target.region != record.region
            else None,
            sampling=sampling,
            monitor=Monitor(
                version=__version__,
                cpu_seconds=round(used.cpu_seconds, 3),
                max_rss_mb=used.max_rss_mb,
                restarts=own.restart_count if own is not None else 0,
                warnings=(*self.warnings, *sampler.warnings(batch)),
            ),
            notices=() if batch.notices is None else batch.notices.notices.raised,
        )
        return with_cpu_covered(record, None if usage is None else usage.last_read_by_start_ns)
