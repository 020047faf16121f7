"""Builds the lines of a task: the batch's numbers, and the monitor's own usage and warnings."""

from collections.abc import Iterator
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.record_assembly import RecordDraft
from profiler.aggregation.record_evidence import DemandEvidence
from profiler.aggregation.record_parts import (
    build_interval,
    build_other_container,
    build_sampling,
    container_limits,
    metadata_evidence,
    statistics_evidence,
    unmeasured_record,
)
from profiler.aggregation.run_end import RunEnd
from profiler.aggregation.run_notices import NoticeFinding, RunNotices
from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.collector import collected_parts
from profiler.core.timestamps import format_ms
from profiler.core.version import __version__
from profiler.monitor.followed_container import FollowedContainer
from profiler.monitor.shared_parts import SharedParts
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.task_metadata import TaskMetadata
from profiler.record.batch_job import NO_JOB, job_of_variables
from profiler.record.bounded_json_line import encode_line, without_lists
from profiler.record.record_model import (
    SCHEMA_VERSION,
    UNKNOWN_COST,
    Monitor,
    OtherContainer,
    Record,
    RecordType,
    Report,
)
from profiler.settings import TaskSettings


class LineBuilder(Struct, eq=False):
    """Builds the lines of one task.

    ``missed_before`` are the ticks that were missed before the task, ``cpu_seconds_before`` is the
    CPU time of the process before it.
    """

    settings: TaskSettings
    sampler: TaskSampler
    shared: SharedParts
    warnings: list[str]
    missed_before: int = 0
    cpu_seconds_before: float = 0

    def report_lines(
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
        # Imported late: it takes no memory while the batch runs.
        from profiler.sizing.advice import with_recommendation

        self.sampler.add_device_readings()
        draft = self._draft_of_stats(batch, task, outcome)
        record = self._record_of(batch, draft)
        record = with_recommendation(
            record, self.settings.prices, time=format_ms(self.shared.clock.wall_ns())
        )
        line = self._line("task.report", record if has_cost else replace(record, cost=UNKNOWN_COST))
        return line, self.shared.collectors.stacks_line(record, batch.container.followed_id)

    def bare_report(self, batch: FollowedContainer, task: TaskMetadata, outcome: RunEnd) -> bytes:
        """The final line without measurements, if the complete one cannot be built."""
        record = self._draft_of_metadata(batch, task, outcome).build_record()
        monitor = Monitor(version=__version__, warnings=tuple(self.warnings))
        return self._line("task.report", replace(record, monitor=monitor))

    def checkpoint_line(self, batch: FollowedContainer, task: TaskMetadata) -> bytes:
        """The line of a running batch: everything so far, and the interval since the last
        checkpoint.
        """
        now_ns = self.shared.clock.wall_ns()
        container = batch.container
        usage = batch.usage
        draft = self._draft_of_stats(batch, task, self._end_for_now(batch, now_ns))
        if usage.samples:
            interval = build_interval(
                usage.end_interval(),
                batch.interval_devices,
                draft.sizes,
                started_ns=batch.interval_started_ns or container.started_ns or now_ns,
                finished_ns=now_ns,
            )
            draft = replace(draft, run=replace(draft.run, interval=interval))
            batch.interval_devices = DeviceReadings()
            batch.interval_started_ns = now_ns
        if batch.notices is not None:
            batch.notices.notices.is_fuller = False
        return self._line("task.checkpoint", self._record_of(batch, draft))

    def notice_line(
        self,
        batch: FollowedContainer,
        task: TaskMetadata,
        notices: RunNotices,
        finding: NoticeFinding,
    ) -> bytes:
        """The line of a notice about a running batch; all later records of the batch list it."""
        # Most runs have no notice.
        from profiler.record.notice_model import NoticeLine, encode_notice_line

        now_ns = self.shared.clock.wall_ns()
        draft = self._draft_of_stats(batch, task, self._end_for_now(batch, now_ns))
        record = without_lists(self._record_of(batch, draft))
        longest_wait = partial(self.shared.collectors.longest_wait, batch.container.followed_id)
        notice = notices.raise_notice(finding, longest_wait)
        return encode_notice_line(
            NoticeLine(
                time=format_ms(now_ns),
                notice=notice,
                record=replace(record, notices=notices.raised),
            )
        )

    def _end_for_now(self, followed: FollowedContainer, now_ns: int) -> RunEnd:
        """The end for now of a container that runs."""
        return self.sampler.by_clock_of_start(followed, RunEnd(status="running", until_ns=now_ns))

    def _line(self, kind: RecordType, record: Record) -> bytes:
        """The line of a record, with CloudWatch's embedded metrics if they are configured."""
        time = format_ms(self.shared.clock.wall_ns())
        report = Report(time=time, type=kind, schema_version=SCHEMA_VERSION, record=record)
        settings = self.settings
        if settings.emf == "off" or (settings.emf == "report" and kind != "task.report"):
            return encode_line(report)
        from profiler.record.report_text_and_emf import emf_members  # its catalogue takes memory

        return encode_line(report, emf_members(report, settings.emf_metrics))

    def _record_of(self, batch: FollowedContainer, draft: RecordDraft) -> Record:
        """The record by the draft and by what the collectors measured of the batch."""
        batch_id = batch.container.followed_id
        return draft.build_record(collected_parts(self.shared.collectors, draft.run, batch_id))

    def _draft_of_metadata(
        self,
        batch: FollowedContainer,
        task: TaskMetadata,
        outcome: RunEnd,
        stats_limit_bytes: int | None = None,
    ) -> RecordDraft:
        """The draft of what ECS knows; ``stats_limit_bytes``: the memory limit of the stats."""
        container = batch.container
        host = self.sampler.host
        sizes = container_limits(container, task, host, stats_limit_bytes)
        run = unmeasured_record(container, task, outcome, host, sizes)
        return RecordDraft(run, outcome, sizes, (metadata_evidence(container),))

    def _draft_of_stats(
        self, batch: FollowedContainer, task: TaskMetadata, outcome: RunEnd
    ) -> RecordDraft:
        """The draft with the evidence of the task stats, and the data about the profiler itself."""
        usage = batch.usage
        sampler = self.sampler
        is_job = self.settings.batch_job is not NO_JOB
        containers = tuple(self._other_containers(batch, task))
        monitor = self._monitor(batch)
        series = None
        if outcome.status != "running" and usage.series is not None:
            series = usage.series.series_so_far()
        demand = self._demand_of(batch)
        draft = self._draft_of_metadata(batch, task, outcome, usage.memory_limit_bytes)
        evidence = draft.evidence
        if usage.samples:
            evidence += (statistics_evidence(usage, draft.sizes, series=series, demand=demand),)
        run = replace(
            draft.run,
            batch=self.settings.batch_job if is_job else job_of_variables(task.batch),
            containers=containers,
            sampling=build_sampling(
                usage,
                (sampler.source_name,),
                interval_ns=sampler.interval_ns,
                failures=sampler.stats_health.failures,
                missed=self.shared.ticker.missed - self.missed_before,
            ),
            monitor=monitor,
            notices=() if batch.notices is None else batch.notices.notices.raised,
            log_group=batch.streams.log_group,
            log_stream=batch.streams.log_stream,
            log_region=batch.streams.log_region,
        )
        return replace(draft, run=run, evidence=evidence)

    def _demand_of(self, followed: FollowedContainer) -> DemandEvidence | None:
        """The vCPUs that the task used; None with another container than the batch."""
        if not followed.may_be_batch:
            return None
        return DemandEvidence(
            demand=followed.demand,
            vcpu_size=followed.vcpu_size,
            max_threads=self.sampler.max_threads,
        )

    def _other_containers(
        self, batch: FollowedContainer, task: TaskMetadata
    ) -> Iterator[OtherContainer]:
        """The task's other containers, with what was measured of them so far."""
        now_ns = self.shared.clock.wall_ns()
        sampler = self.sampler
        for other in sampler.followed.listed:
            if other is not batch:
                running = self._end_for_now(other, now_ns)
                yield build_other_container(
                    other.container, task, other.usage, running, sampler.host
                )

    def _monitor(self, batch: FollowedContainer) -> Monitor:
        own = self.sampler.own
        used = self.shared.read_own_usage()
        return Monitor(
            version=__version__,
            cpu_seconds=round(used.cpu_seconds - self.cpu_seconds_before, 3),
            max_rss_mb=used.max_rss_mb,
            restarts=0 if own is None else own.restart_count,
            warnings=(*self.warnings, *self.sampler.warnings(batch)),
        )
