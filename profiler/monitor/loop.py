"""The main loop of the monitor: at each tick a step of the task, until its batches have reports
or a stop request.

start ──> step ──> step ──> … ──> batch STOPPED ─────────────> report
                     │  SIGTERM ─> STOPPED within 2 s? ─ yes ──┤
                     └─ finish              no: "stopped" ─────┘
"""

from collections.abc import Callable
from functools import partial

from profiler.aggregation.run_end import RunEnd, run_end_of_exit, was_ended_by_stop
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.batch_notices import BatchNotices
from profiler.monitor.followed_container import FollowedContainer
from profiler.monitor.line_builder import LineBuilder
from profiler.monitor.report_destination import batch_streams
from profiler.monitor.shared_parts import (
    NO_LIVE_METRICS,
    REPORT_DEFECT,
    LiveMetrics,
    SharedParts,
    describe_error,
)
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.task_metadata import (
    BatchSelection,
    ContainerMetadata,
    TaskMetadata,
    has_run_unlisted,
    select_batch,
)
from profiler.settings import TaskSettings

_WAIT_FOR_END_SECONDS = 2.0
# The part of that time for one reading of a batch that still runs.
_SAMPLE_PART = 1 / 8
_RETRY_SECONDS = 0.1
# A batch that is not listed, or is STOPPED without an exit code, counts as lost after this many
# reads, because agents have shown both states for a moment.
_READS_BEFORE_LOST = 3
# The part of the stop budget that is reserved for printing the line if the upload fails; of a short
# budget, a quarter.
_PRINT_RESERVE_SECONDS = 1.0


class MonitoredTask:
    """A task of the monitor, which may have several. ``warnings`` are for all of its records."""

    def __init__(
        self,
        settings: TaskSettings,
        sampler: TaskSampler,
        shared: SharedParts,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._settings = settings
        self._sampler = sampler
        self._shared = shared
        self._clock = shared.clock
        self._stop = shared.stop
        self._log = shared.log
        cpu_seconds_before = 0.0
        if not shared.is_in_task:
            cpu_seconds_before = shared.read_own_usage().cpu_seconds
        self._line_builder = LineBuilder(
            settings,
            sampler,
            shared,
            list(warnings),
            missed_before=shared.ticker.missed,
            cpu_seconds_before=cpu_seconds_before,
        )
        self._batches: list[FollowedContainer] = []
        # Without a report, as of the last read of the task.
        self._awaited: tuple[FollowedContainer, ...] = ()
        self._selection = BatchSelection(names=())
        self._notices: BatchNotices | None = BatchNotices(settings, sampler, self._clock)
        self._checkpoint_ns = round(settings.checkpoint_seconds * NS_PER_SECOND)
        self._next_checkpoint_ns = self._clock.monotonic_ns() + self._checkpoint_ns

    def step(self, *, may_wait: bool = False) -> bool:
        """Take one sample, and report what it shows; returns True after the last report.

        ``may_wait``: what is no news may be added at a later step, at most ten seconds later.
        """
        return self._is_over_after(partial(self._step, may_wait=may_wait))

    def keep_sample(self) -> bool:
        """Take one sample for the next step; returns True after a defect."""
        return self._is_over_after(self._sampler.read_stats_for_next_tick)

    def finish(self) -> None:
        """End the task after a stop request."""
        self._is_over_after(self._wait_for_end)

    def print_checkpoints(self) -> None:
        """Print a checkpoint of each batch that goes on without this monitor: it may have no
        successor, as on an instance that drains.
        """
        self._shared.attempt(self._print_last_checkpoints)

    def _print_last_checkpoints(self) -> None:
        task = self._sampler.task
        if task is None:
            return
        self._sampler.read_stats_for_next_tick()
        self._add_kept()
        for batch in self._awaited:
            if batch.was_listed:
                line = self._line_builder.checkpoint_line(batch, task)
                self._shared.delivery.write_line(line, is_kept=True)

    def _is_over_after(self, step: Callable[[], bool | None]) -> bool:
        """Take the step; a defect ends the task with a report."""
        try:
            return bool(step())
        # A defect ends the task: it must not lose the run, nor another task's.
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            return True

    def _step(self, *, may_wait: bool) -> bool:
        """Take one sample and print what is due; True after the last report."""
        sampler = self._sampler
        may_wait = may_wait and not self._shared.collectors.are_timed
        on_late = self._print_notices if may_wait else None
        if sampler.tick(self._awaited, may_wait=may_wait, on_late=on_late):
            self._check_ends()
        self._shared.delivery.print_failed()
        if self._is_over:
            return True
        if not (sampler.is_repeated or sampler.is_waiting):
            self._print_notices()
        if self._settings.expected_seconds is not None:
            self._print_notices(overdue=True)
        self._checkpoint_if_due()
        return False

    def fail(self, error: Exception) -> None:
        """Report what is known in spite of a defect, and in spite of another one in the report."""
        self._shared.attempt(self._sampler.add_kept)
        self._shared.attempt(partial(self._report_after_failure, error))

    @property
    def _is_over(self) -> bool:
        return bool(self._batches) and not self._awaited

    def _unreported(self) -> list[FollowedContainer]:
        return [batch for batch in self._batches if not batch.is_reported]

    def _select_batches(self, task: TaskMetadata) -> None:
        """Choose the batches among the listed containers, and warn if there is none."""
        if self._settings.container is None and not self._sampler.is_own_container_settled:
            return
        requested = self._settings.container
        if not self._shared.is_in_task and not task.lists_container(requested or ""):
            requested = None  # it is that of other tasks
        selection = select_batch(task, requested=requested, own=self._sampler.own)
        for name in selection.names:
            batch = self._sampler.followed.container_named(name)
            if batch not in self._batches:
                self._batches.append(batch)
        for batch in self._batches:
            batch.streams = batch_streams(batch.container, task, self._settings, self._sampler.own)
        if not selection.is_present and any(batch.was_listed for batch in self._batches):
            return  # the batch was listed before
        if selection.problem != self._selection.problem:
            if not self._selection.is_present and self._selection.problem:
                # Of a missing batch that is listed now.
                self._line_builder.warnings.remove(self._selection.problem)
            self.add_warning(selection.problem)
        self._selection = selection

    def add_warning(self, problem: str) -> None:
        """Log a problem that is in all records from now on; "" is no problem."""
        if problem:
            self._log.error(problem)
            self._line_builder.warnings.append(problem)

    def _check_ends(self) -> None:
        """Report the batches that have ended, and note which have not."""
        task = self._sampler.task
        if task is None:
            return
        self._select_batches(task)
        for batch in self._unreported():
            outcome = self._find_outcome(batch, task)
            if outcome is not None:
                self._deliver_report(batch, task, outcome)
            elif batch.was_listed:
                # What only the running batch shows.
                self._shared.collectors.on_batch_started(batch.container)
        self._awaited = tuple(self._unreported())

    def _find_outcome(self, batch: FollowedContainer, task: TaskMetadata) -> RunEnd | None:
        """The end of a batch; None if it runs, or if its end is not certain yet."""
        container = batch.container if batch.is_listed else None
        if not batch.was_listed and not has_run_unlisted(task, self._sampler.own):
            return None
        if container is not None and not container.is_stopped:
            batch.reads_without_end = 0
            is_stop_requested = task.is_stop_requested or self._task_stop_ns is not None
            if is_stop_requested and batch.stop_seen_ns is None:
                batch.stop_seen_ns = self._clock.wall_ns()
            return None
        if container is not None and container.exit_code is not None:
            return self._listed_end(batch, container, task)
        batch.reads_without_end += 1
        if batch.reads_without_end < _READS_BEFORE_LOST:
            return None
        return self._listed_end(batch, container, task)

    @property
    def _task_stop_ns(self) -> int | None:
        """When ECS stopped the task (monotonic), by the stop of this process in it; None without
        a stop.
        """
        return self._stop.requested_ns if self._shared.is_in_task else None

    def _listed_end(
        self, batch: FollowedContainer, container: ContainerMetadata | None, task: TaskMetadata
    ) -> RunEnd:
        """The end of a stopped container; of one that is not listed, only the last reading is
        known.
        """
        if container is None:
            return RunEnd(status="unknown", finished_ns=batch.usage.last_read_ns)
        signalled_ns = None
        if self._task_stop_ns is not None:
            signalled_ns = self._clock.wall_ns() - (self._clock.monotonic_ns() - self._task_stop_ns)
        exit_code = container.exit_code
        finished_ns = container.finished_ns
        is_stopped = was_ended_by_stop(
            exit_code,
            finished_ns,
            seen_ns=container.stop_signalled_ns or batch.stop_seen_ns,
            signalled_ns=signalled_ns,
            first_end_ns=task.execution_stopped_ns,
            others_finished_ns=[
                other.finished_ns
                for other in task.containers
                if other.name != container.name and other.finished_ns is not None
            ],
            is_task_stopping=task.is_stop_requested,
            is_stop_denied=container.is_stop_denied,
        )
        end = run_end_of_exit(exit_code, finished_ns, was_stopped=is_stopped)
        return self._sampler.by_clock_of_start(batch, end)

    def _wait_for_end(self) -> None:
        """Handle SIGTERM: ECS stops the batch only after the monitor has ended, or has stopped
        it already.

        So wait only briefly for the end of the batch. The batch may have run for less than a
        second, or its statistics may be many seconds old: a reading at the signal and one just
        before the report cover the time up to its end.
        """
        # Counted from now, not from the signal: a read of the endpoint (up to 2 s) or an upload may
        # come in between.
        wait_seconds = min(
            _WAIT_FOR_END_SECONDS, (self._shared.stop_seconds - self._since_stop_seconds()) / 2
        )
        deadline_ns = self._clock.monotonic_ns() + round(wait_seconds * NS_PER_SECOND)
        sample_seconds = wait_seconds * _SAMPLE_PART
        task_seen = False
        self._add_kept()
        while (left_seconds := self._seconds_until(deadline_ns) - sample_seconds) > 0:
            if self._sampler.read_task_again(max_seconds=left_seconds):
                self._check_ends()
                if self._is_over:
                    return
                if not task_seen:
                    self._sampler.read_stats(max_seconds=sample_seconds)
                task_seen = True
            self._clock.sleep(min(_RETRY_SECONDS, left_seconds))
        if self._seconds_until(deadline_ns) > 0:
            self._sampler.read_stats(max_seconds=sample_seconds)
        self._report_unfinished(task_seen=task_seen)

    def _seconds_until(self, deadline_ns: int) -> float:
        return (deadline_ns - self._clock.monotonic_ns()) / NS_PER_SECOND

    def _report_unfinished(self, *, task_seen: bool) -> None:
        """Report the batches whose end was not seen, because no time is left."""
        task = self._sampler.task
        if task is None:
            reason = self._sampler.task_health.last_reason or "it was not asked"
            self._log.error(
                f"The task metadata endpoint never showed the task ({reason}), so there is "
                "nothing to report: check that the container agent serves "
                "ECS_CONTAINER_METADATA_URI_V4."
            )
            return
        for batch in self._unreported():
            listed = batch.container if task_seen and batch.is_listed else None
            if listed is not None and not listed.is_stopped:
                stopped = RunEnd(status="stopped", until_ns=self._clock.wall_ns())
                self._deliver_report(batch, task, self._sampler.by_clock_of_start(batch, stopped))
            else:  # perhaps stopped without an exit code, and no time is left for another read
                self._deliver_report(batch, task, self._listed_end(batch, listed, task))

    def _report_after_failure(self, error: Exception) -> None:
        """Report each batch with the defect as a warning, without measurements if those fail."""
        self.add_warning(
            f"The monitor failed ({describe_error(error)}). The report holds only what was "
            f"measured until then: {REPORT_DEFECT}"
        )
        task = self._sampler.task
        if task is None:
            return
        # The first tick may have failed.
        self._shared.attempt(partial(self._select_batches, task))
        for batch in self._unreported():
            outcome = RunEnd(status="unknown")
            if batch.is_listed and batch.container.is_stopped:
                outcome = self._listed_end(batch, batch.container, task)
            try:
                self._deliver_report(batch, task, outcome)
            except Exception as second:  # noqa: BLE001  the same defect, or another one
                self._log.error(f"The report has no measurements ({describe_error(second)}).")
                self._shared.attempt(
                    partial(self._deliver_report, batch, task, outcome, is_bare=True)
                )

    def _deliver_report(
        self,
        batch: FollowedContainer,
        task: TaskMetadata,
        outcome: RunEnd,
        *,
        is_bare: bool = False,
    ) -> None:
        """Deliver the batch's report, once; ``is_bare``: without measurements."""
        reported = self._shared.reported
        batch_id = batch.container.followed_id
        if reported.has(batch_id):
            batch.is_reported = True
            return
        if is_bare:
            line = self._line_builder.bare_report(batch, task, outcome)
            stacks = None
        else:
            self._shared.collectors.final_readings()
            is_last = self._unreported() == [batch]
            line, stacks = self._line_builder.report_lines(batch, task, outcome, has_cost=is_last)
        budget_seconds = self._shared.stop_seconds - self._since_stop_seconds()
        reserve_seconds = min(_PRINT_RESERVE_SECONDS, self._shared.stop_seconds / 4)
        self._shared.delivery.start_delivery(
            line,
            batch.streams.report,
            budget_seconds - reserve_seconds,
            stacks,
            on_done=partial(reported.on_reported, batch_id),
            may_be_there=batch_id if reported.is_unsure_of(batch_id) else None,
        )
        batch.is_reported = True

    def _since_stop_seconds(self) -> float:
        stop_ns = self._stop.requested_ns
        return 0 if stop_ns is None else (self._clock.monotonic_ns() - stop_ns) / NS_PER_SECOND

    def _add_kept(self) -> None:
        """Add the samples that wait, before a line that should have them."""
        self._sampler.add_kept(self._print_notices)

    def _print_notices(self, *, overdue: bool = False) -> None:
        """Print what the last samples of the batches that run show, or which are ``overdue``; after
        a defect, nothing.
        """
        task = self._sampler.task
        notices = self._notices
        if task is None or notices is None:
            return
        try:
            for batch in self._awaited:
                found = notices.find_overdue(batch) if overdue else notices.find_new(batch, task)
                for so_far, finding in found:
                    self._add_kept()
                    self._send_notice(
                        batch, self._line_builder.notice_line(batch, task, so_far, finding)
                    )
                    notices.on_line()
        # A defect of the notices must not end the sampling.
        except Exception as error:  # noqa: BLE001
            self._notices = None
            self.add_warning(f"The notifications failed ({describe_error(error)}): {REPORT_DEFECT}")

    def _send_notice(self, batch: FollowedContainer, line: bytes) -> None:
        """Print the line; of another task than the monitor's it is trusted in that task's own
        log stream only.
        """
        if self._shared.is_in_task:
            self._shared.delivery.write_line(line, is_kept=True)  # each kind of notice exists once
        else:
            self._shared.delivery.start_delivery(
                line, batch.streams.report, self._shared.stop_seconds
            )

    def is_checkpoint_due(self, now_ns: int) -> bool:
        return bool(self._checkpoint_ns) and now_ns >= self._next_checkpoint_ns

    def _checkpoint_if_due(self) -> None:
        """Print a checkpoint of each batch, unless the lines would hide that it is idle; between
        two of them, of a batch whose memory fills.
        """
        task = self._sampler.task
        if not self._checkpoint_ns or task is None:
            return
        now_ns = self._clock.monotonic_ns()
        is_due = self.is_checkpoint_due(now_ns)
        if is_due:
            self._add_kept()
        batches = [
            batch for batch in self._awaited if batch.was_listed and (is_due or batch.is_fuller)
        ]
        if not (is_due or batches):
            return
        notices = self._notices
        if notices is not None and notices.want_silence:
            return
        if is_due:
            missed = (now_ns - self._next_checkpoint_ns) // self._checkpoint_ns
            self._next_checkpoint_ns += (missed + 1) * self._checkpoint_ns
        for batch in batches:
            self._shared.delivery.write_line(self._line_builder.checkpoint_line(batch, task))
            if notices is not None:
                notices.on_line()


def monitor_task(
    task: MonitoredTask, shared: SharedParts, live_metrics: LiveMetrics = NO_LIVE_METRICS
) -> None:
    """Monitor a sidecar's task to its end.

    It raises nothing: a monitor that fails may be taken for the batch.
    """
    try:
        _sample_until_end(task, shared, live_metrics)
    except Exception as error:  # noqa: BLE001  the last handler: a defect must not lose the run
        task.fail(error)
    # Also the reports that were on their way before a defect.
    shared.attempt(shared.delivery.finish_uploads)
    shared.attempt(live_metrics.close)
    shared.attempt(shared.collectors.stop)


def _sample_until_end(task: MonitoredTask, shared: SharedParts, live_metrics: LiveMetrics) -> None:
    """Sample at each tick until all batches are reported, or a stop request."""
    for collector in shared.collectors.threads:
        collector.start()
    task.add_warning(live_metrics.start() or "")
    is_over = False
    while not is_over:
        is_over = task.step(may_wait=not live_metrics.are_read)
        live_metrics.publish()
        if not is_over and shared.stop.wait(
            shared.ticker.seconds_to_next(shared.clock.monotonic_ns())
        ):
            task.finish()
            is_over = True
