"""The main loop of the sidecar: sample and look for notices until the batch ends or the task is stopped, then report.

start ──> tick ──> tick ──> … ──> batch STOPPED ─────────────> report ──> exit
                     │  SIGTERM ─> STOPPED within 2 s? ─ yes ──┤
                     └─ (at once)            no: "stopped" ────┘
"""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.aggregation.container_usage import BLOCK_COUNTERS, ContainerUsage
from profiler.aggregation.idle_time import NoticeReading
from profiler.aggregation.run_end import RunEnd, StopEvidence, ended
from profiler.aggregation.run_notices import Finding, RunNotices
from profiler.aggregation.task_record import container_limits
from profiler.collectors.collector import final_readings, stop_collectors
from profiler.core.clock import Clock, StopRequest
from profiler.core.ecs_terms import FARGATE
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.report_delivery import Delivery, report_target
from profiler.monitor.reporter import Reporter
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.task_metadata import (
    BatchSelection,
    ContainerMetadata,
    TaskMetadata,
    has_run_unlisted,
    select_batch,
)
from profiler.settings import MonitorSettings

if TYPE_CHECKING:
    from profiler.monitor.prometheus.exporter import PrometheusExporter

_WAIT_FOR_END_SECONDS = 2.0
# The part of that time for one reading of a batch that still runs.
_SAMPLE_PART = 1 / 8
_RETRY_SECONDS = 0.1
# A batch that is not listed, or is STOPPED without an exit code, counts as lost after this many reads, because agents
# have shown both states for a moment.
_READS_BEFORE_LOST = 3
# The part of the stop budget that is reserved for printing the line if the upload fails; of a short budget, a quarter.
_PRINT_RESERVE_SECONDS = 1.0
_REPORT_DEFECT = "report this line as a defect of task-profiler."


class _Batch(Struct):
    """One batch: its notices, its last reading, and the wall clock as it was set when the batch was found."""

    notices: RunNotices
    wall_offset_ns: int
    samples: int = 0
    attempt: tuple[str | None, int] | None = None
    task: TaskMetadata | None = None
    memory_size_bytes: float | None = None
    measures_blocks: bool = False


class _BatchNotices:
    """The notices of all batches of the task."""

    def __init__(self, settings: MonitorSettings, sampler: TaskSampler, clock: Clock) -> None:
        self._settings = settings
        self._sampler = sampler
        self._clock = clock
        self._batches: dict[str, _Batch] = {}
        self._own_line_ns: int | None = None

    def find(self, container: ContainerMetadata, task: TaskMetadata) -> Iterator[tuple[RunNotices, Finding]]:
        """The conditions that a running batch meets for the first time, with its notices so far."""
        batch = self._batches.get(container.name)
        if batch is None:
            if container.started_ns is None:
                return
            settings = self._settings
            notices = RunNotices(
                container.started_ns,
                stuck_minutes=settings.stuck_minutes,
                expected_seconds=settings.expected_seconds,
                interval_ns=round(settings.interval_seconds * NS_PER_SECOND),
            )
            batch = self._batches[container.name] = _Batch(notices, self._clock.wall_ns() - self._clock.monotonic_ns())
        usage = self._sampler.usages.get(container.name)
        if usage is not None and usage.samples != batch.samples:
            batch.samples = usage.samples
            reading = self._reading(batch, container, task, usage)
            if reading is not None:
                for finding in batch.notices.add(reading):
                    yield batch.notices, finding
        if self._settings.expected_seconds is not None:
            overdue = batch.notices.overdue(self._now_ns(batch))
            if overdue is not None:
                yield batch.notices, overdue

    def on_line(self) -> None:
        self._own_line_ns = self._clock.monotonic_ns()

    @property
    def want_silence(self) -> bool:
        """Whether the monitor's own lines should wait, because they would hide that a batch is stuck."""
        task = self._sampler.task
        if task is None or task.launch_type != FARGATE:
            return False
        return any(batch.notices.wants_silence(self._now_ns(batch)) for batch in self._batches.values())

    def _now_ns(self, batch: _Batch) -> int:
        return self._clock.monotonic_ns() + batch.wall_offset_ns

    def _reading(
        self, batch: _Batch, container: ContainerMetadata, task: TaskMetadata, usage: ContainerUsage
    ) -> NoticeReading | None:
        """The last sample; the CPU time counts as missing, not as idle, if the container was restarted."""
        sample, at_ns = usage.last_sample, usage.last_read_by_start_ns
        if sample is None or at_ns is None:
            return None
        cpu_seconds = None if sample.cpu_ns is None else usage.cpu_seconds
        if task is not batch.task:  # the task is read every few seconds
            # A container without counters of block devices has done no I/O if another one has them (cgroup v2).
            totals = [one.traffic() for one in self._sampler.usages.values()]
            batch.measures_blocks = any(one[name] is not None for one in totals for name in BLOCK_COUNTERS)
            batch.task, attempt = task, (container.docker_id, container.restart_count)
            batch.memory_size_bytes = container_limits(container, task, usage, self._sampler.host).memory_bytes
            if attempt != batch.attempt:
                batch.attempt, cpu_seconds = attempt, None
        own_line_ns = None
        # On Fargate, the log driver uses the network of the task.
        if self._own_line_ns is not None and task.launch_type == FARGATE and container.shares_network:
            own_line_ns = self._own_line_ns + batch.wall_offset_ns
        network_bytes, block_bytes = usage.traffic_bytes()
        has_blocks = sample.block_read_bytes is not None or sample.block_write_bytes is not None
        is_network_known = sample.network_rx_bytes is not None and sample.network_tx_bytes is not None
        return NoticeReading(
            at_ns=at_ns,
            cpu_ns=None if cpu_seconds is None else round(cpu_seconds * NS_PER_SECOND),
            network_bytes=network_bytes if is_network_known else None,
            block_bytes=block_bytes if has_blocks or batch.measures_blocks else None,
            own_line_ns=own_line_ns,
            memory_used_bytes=sample.memory_used_bytes,
            memory_size_bytes=batch.memory_size_bytes,
            disk_used_mb=task.ephemeral_storage_used_mib,
            disk_size_mb=task.ephemeral_storage_size_mib,
        )


class _ReportTarget(Struct):
    """One container to report on."""

    name: str
    container: ContainerMetadata | None = None
    reads_without_end: int = 0
    stop_seen_ns: int | None = None
    reported: bool = False


class MonitorLoop:
    """Samples and reports, with the reporter's settings, sampler and collectors. :meth:`run` is called once."""

    def __init__(
        self,
        reporter: Reporter,
        delivery: Delivery,
        stop: StopRequest,
        log: Log,
        exporter: "PrometheusExporter | None" = None,
    ) -> None:
        self._reporter = reporter
        self._settings, self._sampler, self._collectors = reporter.settings, reporter.sampler, reporter.collectors
        self._ticker, self._clock = reporter.ticker, reporter.clock
        self._delivery = delivery
        self._stop = stop
        self._log = log
        self._exporter = exporter
        self._targets: dict[str, _ReportTarget] = {}
        self._awaited: tuple[str, ...] = ()  # the batches without a report, as of the last read of the task
        self._selection = BatchSelection(names=())
        self._notices: _BatchNotices | None = _BatchNotices(self._settings, self._sampler, self._clock)
        self._checkpoint_ns = round(self._settings.checkpoint_seconds * NS_PER_SECOND)
        self._next_checkpoint_ns = self._clock.monotonic_ns() + self._checkpoint_ns

    def run(self) -> None:
        """Sample until every target has its report, or a stop request was handled. A defect ends the sampling early.

        No defect is raised: an orchestrator may take a monitor that fails for a batch that fails.
        """
        try:
            self._sample_until_done()
        except Exception as error:  # noqa: BLE001  the last handler: a defect must not lose the run
            self._attempt(functools.partial(self._report_after_failure, error))
        self._attempt(self._delivery.finish)  # also the reports that were on their way before a defect
        if self._exporter is not None:
            self._attempt(self._exporter.close)
        self._attempt(lambda: stop_collectors(self._collectors))

    def _attempt(self, step: Callable[[], object]) -> None:
        """Take one of the last steps. A defect in it does not keep the monitor from the next one."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  as in run()
            self._log.error(f"The monitor failed at its end ({_describe(error)}): {_REPORT_DEFECT}")

    def _sample_until_done(self) -> None:
        for warning in self._reporter.warnings:
            self._log.warning(warning)
        for collector in self._collectors:
            collector.start()
        if self._exporter is not None:
            self._add_warning(self._exporter.start())
        while True:
            if self._sampler.tick(self._awaited):
                self._check_ends()
            if self._exporter is not None:
                self._exporter.publish()
            self._delivery.print_failed()
            if self._targets and not self._awaited:
                return
            if self._settings.expected_seconds is not None or not self._sampler.is_repeated:
                self._print_notices()
            self._checkpoint_if_due()
            if self._stop.wait(self._ticker.seconds_to_next(self._clock.monotonic_ns())):
                self._handle_stop()
                return

    def _unreported(self) -> list[_ReportTarget]:
        return [target for target in self._targets.values() if not target.reported]

    def _select_targets(self, task: TaskMetadata) -> None:
        if self._settings.container is None and not self._sampler.is_own_container_settled:
            return
        selection = select_batch(task, requested=self._settings.container, own=self._sampler.own)
        for name in selection.names:
            self._targets.setdefault(name, _ReportTarget(name))
        if not selection.is_present and any(target.container is not None for target in self._targets.values()):
            return  # the batch was listed before
        if selection.problem != self._selection.problem:
            if not self._selection.is_present and self._selection.problem is not None:
                self._reporter.warnings.remove(self._selection.problem)  # of a missing batch that is listed now
            self._add_warning(selection.problem)
        self._selection = selection

    def _add_warning(self, problem: str | None) -> None:
        if problem is not None:
            self._log.error(problem)
            self._reporter.warnings.append(problem)

    def _check_ends(self) -> None:
        """After a read of the task: report on every target that has ended."""
        task = self._sampler.task
        if task is None:
            return
        self._select_targets(task)
        for target in self._unreported():
            outcome = self._find_outcome(target, task)
            if outcome is not None:
                self._report(target, task, outcome)
            elif target.container is not None:
                for collector in self._collectors:
                    collector.on_batch_started(target.container)  # it reads what only the running batch shows
        self._awaited = tuple(target.name for target in self._unreported())

    def _find_outcome(self, target: _ReportTarget, task: TaskMetadata) -> RunEnd | None:
        container = task.container(target.name)
        target.container = container or target.container
        if target.container is None and not has_run_unlisted(task, self._sampler.own):
            return None
        if container is not None and not container.is_stopped:
            target.reads_without_end = 0
            is_stop_requested = task.is_stop_requested or self._stop.requested_ns is not None
            if is_stop_requested and target.stop_seen_ns is None:
                target.stop_seen_ns = self._clock.wall_ns()
            return None
        if container is not None and container.exit_code is not None:
            return self._listed_end(target, container, task)
        target.reads_without_end += 1
        return None if target.reads_without_end < _READS_BEFORE_LOST else self._listed_end(target, container, task)

    def _listed_end(self, target: _ReportTarget, container: ContainerMetadata | None, task: TaskMetadata) -> RunEnd:
        """The end of a stopped container; of one that is not listed, only the last reading is known."""
        if container is None:
            usage = self._sampler.usages.get(target.name)
            return RunEnd(status="unknown", finished_ns=None if usage is None else usage.last_read_ns)
        signalled_ns = None
        if self._stop.requested_ns is not None:
            signalled_ns = self._clock.wall_ns() - (self._clock.monotonic_ns() - self._stop.requested_ns)
        stop = StopEvidence(
            seen_ns=target.stop_seen_ns,
            signalled_ns=signalled_ns,
            execution_stopped_ns=task.execution_stopped_ns,
            others_finished_ns=[
                other.finished_ns
                for other in task.containers
                if other.name != container.name and other.finished_ns is not None
            ],
            is_task_stopping=task.is_stop_requested,
        )
        exit_code, finished_ns = container.exit_code, container.finished_ns
        return ended(exit_code, finished_ns, was_stopped=stop.explains(exit_code, finished_ns))

    def _handle_stop(self) -> None:
        """Handle SIGTERM: ECS stops the batch only after the monitor has ended, or has stopped it already.

        So wait only briefly for the end of the batch. The batch may have run for less than a second, or its statistics
        may be many seconds old: a reading at the signal and one just before the report cover the time up to its end.
        """
        # Counted from now, not from the signal: a read of the endpoint (up to 2 s) or an upload may come in between.
        wait_seconds = min(_WAIT_FOR_END_SECONDS, (self._settings.stop_seconds - self._since_stop_seconds()) / 2)
        deadline_ns = self._clock.monotonic_ns() + round(wait_seconds * NS_PER_SECOND)
        sample_seconds = wait_seconds * _SAMPLE_PART
        task_seen = False
        while (left_seconds := self._seconds_until(deadline_ns) - sample_seconds) > 0:
            if self._sampler.refresh(max_seconds=left_seconds):
                self._check_ends()
                if self._targets and not self._awaited:
                    return
                if not task_seen:
                    self._sampler.sample(max_seconds=sample_seconds)
                task_seen = True
            self._clock.sleep(min(_RETRY_SECONDS, left_seconds))
        if self._seconds_until(deadline_ns) > 0:
            self._sampler.sample(max_seconds=sample_seconds)
        self._report_unfinished(task_seen=task_seen)

    def _seconds_until(self, deadline_ns: int) -> float:
        return (deadline_ns - self._clock.monotonic_ns()) / NS_PER_SECOND

    def _report_unfinished(self, *, task_seen: bool) -> None:
        task = self._sampler.task
        if task is None:
            reason = self._sampler.task_health.last_reason or "it was not asked"
            self._log.error(
                f"The task metadata endpoint never showed the task ({reason}), so there is nothing to report: "
                "check that the container agent serves ECS_CONTAINER_METADATA_URI_V4."
            )
            return
        for target in self._unreported():
            listed = task.container(target.name) if task_seen else None
            if listed is not None and not listed.is_stopped:
                self._report(target, task, RunEnd(status="stopped", until_ns=self._clock.wall_ns()))
            else:  # perhaps stopped without an exit code, and no time is left for another read
                self._report(target, task, self._listed_end(target, listed, task))

    def _report_after_failure(self, error: Exception) -> None:
        """Report all known values, with a warning that has the error's type and place, but not its text."""
        self._add_warning(
            f"The monitor failed ({_describe(error)}). The report holds only what was measured until then: "
            f"{_REPORT_DEFECT}"
        )
        task = self._sampler.task
        if task is None:
            return
        self._select_targets(task)  # the first tick may have failed
        for target in self._unreported():
            outcome, listed = RunEnd(status="unknown"), task.container(target.name)
            target.container = listed or target.container
            if listed is not None and listed.is_stopped:
                outcome = self._listed_end(target, listed, task)
            try:
                self._report(target, task, outcome)
            except Exception as second:  # noqa: BLE001  the same defect, or another one
                self._log.error(f"The report has no measurements ({_describe(second)}).")
                self._attempt(functools.partial(self._report, target, task, outcome, is_bare=True))

    def _report(self, target: _ReportTarget, task: TaskMetadata, outcome: RunEnd, *, is_bare: bool = False) -> None:
        container = target.container or ContainerMetadata(name=target.name)
        if is_bare:
            line, stacks = self._reporter.bare_report(container, task, outcome), None
        else:
            final_readings(self._collectors)
            is_last = self._unreported() == [target]
            line, stacks = self._reporter.report(container, task, outcome, has_cost=is_last)
        place = report_target(container, task, self._settings, self._sampler.own)
        budget_seconds = self._settings.stop_seconds  # a part of it may be spent already
        reserve_seconds = min(_PRINT_RESERVE_SECONDS, budget_seconds / 4)
        left_seconds = budget_seconds - self._since_stop_seconds() - reserve_seconds
        self._delivery.deliver(line, place, max(left_seconds, 0), stacks)
        target.reported = True

    def _since_stop_seconds(self) -> float:
        """The seconds since the stop request; 0 without one."""
        stop_ns = self._stop.requested_ns
        return 0 if stop_ns is None else (self._clock.monotonic_ns() - stop_ns) / NS_PER_SECOND

    def _print_notices(self) -> None:
        """Print the notices of the batches that run; after a defect, none."""
        task, notices = self._sampler.task, self._notices
        if task is None or notices is None:
            return
        try:
            for target in self._unreported():
                if target.container is None:
                    continue
                for so_far, finding in notices.find(target.container, task):
                    line = self._reporter.notice(target.container, task, so_far, finding)
                    self._delivery.print(line, is_kept=True)  # each kind of notice exists once
                    notices.on_line()
        except Exception as error:  # noqa: BLE001  a defect of the notices must not end the sampling
            self._notices = None
            self._add_warning(f"The notifications failed ({_describe(error)}): {_REPORT_DEFECT}")

    def _checkpoint_if_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        task, notices = self._sampler.task, self._notices
        if not self._checkpoint_ns or now_ns < self._next_checkpoint_ns or task is None:
            return
        if notices is not None and notices.want_silence:
            return
        missed = (now_ns - self._next_checkpoint_ns) // self._checkpoint_ns
        self._next_checkpoint_ns += (missed + 1) * self._checkpoint_ns
        for target in self._unreported():
            if target.container is not None:
                self._delivery.print(self._reporter.checkpoint(target.container, task))
                if notices is not None:
                    notices.on_line()


def _describe(error: Exception) -> str:
    """The error's type and the last line of code that it came from. It imports nothing: that may fail as well."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {trace.tb_frame.f_globals.get('__name__')}, line {trace.tb_lineno}"
