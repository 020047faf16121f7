"""Handles one stopped task: determines the outcome, completes the run's document, and posts a
notice.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.core.ecs_terms import MONITOR_NAME, LogTarget
from profiler.core.notice_channels import ChannelKind
from profiler.core.optional_math import known
from profiler.forwarder.end_outputs import (
    EndDocumentIndex,
    EndOutputs,
    post_notice,
    print_once,
    write_documents,
)
from profiler.forwarder.ended_run import (
    NO_COMPARISON,
    EndedRun,
    EndedTask,
    FamilyComparison,
    MemoryRetry,
    retry_or_reason,
)
from profiler.forwarder.function_settings import NO_NOTICES, NoticeSettings, Subject
from profiler.forwarder.invocation import ForwarderError, call_collecting_error, raise_errors
from profiler.forwarder.kill_after_resize import (
    NOT_RESIZED,
    SizeChange,
    reduced_memory_sentence,
    size_change_of_definition,
)
from profiler.forwarder.merged_run import run_of_event, runs_of_witnesses
from profiler.forwarder.notifications.event_details import ended_line
from profiler.forwarder.notifications.notification import notification_key
from profiler.forwarder.report_finder import (
    ReportFinder,
    ReportLine,
    TaskContainers,
    identify_containers,
)
from profiler.forwarder.run_documents import event_documents
from profiler.forwarder.run_event import run_event_of_task, seen_report
from profiler.record.batch_job import NO_JOB
from profiler.record.ecs_event_outcome import end_of_other, judge_candidates
from profiler.record.gpu_memory_texts import SEARCHED_LINES, gpu_memory_error_line
from profiler.record.record_model import UNKNOWN_COST
from profiler.record.run_outcome import Status
from profiler.record.stop_causes import EventEnd
from profiler.record.stopped_task import UNKNOWN_CONTAINER, EventContainer, StoppedTask

_Errors = list[ForwarderError]


class TaskStoppedResult(Struct, frozen=True, kw_only=True):
    """The status of the task, whether its document was written, and the kind of the notice that
    every channel has.
    """

    status: Status | None = None
    indexed: bool = False
    notified: ChannelKind | None = None


class RunDocumentIndex(EndDocumentIndex, Protocol):
    """The search cluster."""

    def find_report(self, task: StoppedTask, batch: EventContainer) -> ReportLine | None:
        """Return a batch's report, if it is indexed. Raises ForwarderError."""

    def compare_with_family(self, ended: EndedTask) -> FamilyComparison | None:
        """Compare a run with its family; None if that is not possible."""


class AccountAccess(Protocol):
    """What the account knows of a stopped task, and where its run is started again."""

    def describe_definition(self, definition_arn: str) -> Mapping[str, object] | None:
        """Return the task definition; None if it does not exist or may not be read."""

    def report_finder(self, task: StoppedTask, containers: TaskContainers) -> ReportFinder:
        """Return what reads the log streams of the task's containers."""

    def is_on_instance(self, task: StoppedTask) -> bool:
        """Whether a monitor of its instance reports the task."""

    def start_again(
        self, ended: EndedTask, definition: Mapping[str, object] | None
    ) -> MemoryRetry | None:
        """Start a run that was killed for memory again; None if it must not be.

        Raises ForwarderError.
        """


class RunOutputs(EndOutputs, Protocol):
    """Where the ended run goes, and the settings of that."""

    def document_index(self) -> RunDocumentIndex | None:
        """The search cluster; None without one. Raises SettingsError."""

    def export(self, ended: EndedTask) -> None:
        """Export the run, after everything else. Raises nothing."""


class _TaskByEvent(Struct, frozen=True, kw_only=True):
    """What the event and the definition say of a task, before its report is looked for.

    ``batch`` and ``monitor``: the two containers as the event has them; ``others``: the containers
    that ran beside the batch, and that the monitor reports on.
    """

    task: StoppedTask
    definition: Mapping[str, object] | None
    containers: TaskContainers
    batch: EventContainer
    monitor: EventContainer
    end: EventEnd
    others: Sequence[tuple[EventContainer, EventEnd]] = ()
    size_change: SizeChange = NOT_RESIZED


class NoticeSelection(Struct, frozen=True, kw_only=True):
    """Whether a run has a notice: ``always``, or ``if_unusual``, if it is unlike its family."""

    always: bool
    if_unusual: bool


class TaskStoppedHandler(Struct, frozen=True):
    """Handles stopped tasks."""

    account: AccountAccess
    outputs: RunOutputs

    def handle(self, task: StoppedTask) -> TaskStoppedResult:
        """Start a killed run again, write the document, post the notice.

        Raises ForwarderError after all were tried.
        """
        errors: _Errors = []
        settings = call_collecting_error(self.outputs.settings, errors) or NO_NOTICES
        index = call_collecting_error(self.outputs.document_index, errors)
        judged = self._judge_by_event(task)
        reports = self.account.report_finder(task, judged.containers)
        merged = self._find_report_and_merge(judged, reports, settings, index)
        # First: neither the log nor the GPU decides whether a run that was killed for memory starts
        # again.
        confirmed = merged.without_unconfirmed_report
        start = partial(self.account.start_again, confirmed, judged.definition)
        retry = retry_or_reason(start, errors)
        selected = notice_selection(confirmed, settings)
        log_lines: tuple[str, ...] = ()
        if selected.if_unusual:
            log_lines = self._failed_container_lines(
                confirmed, settings, reports, judged.containers
            )
        merged = _with_gpu_memory_error(merged, reports)
        confirmed = merged.without_unconfirmed_report
        indexed = False
        comparison = NO_COMPARISON
        if index is not None:
            indexed = self._index_task(merged, index, retry, errors)
            if selected.if_unusual:
                comparison = index.compare_with_family(confirmed) or NO_COMPARISON
        run = EndedRun(
            **asdict(confirmed),
            retry=retry,
            comparison=comparison,
            log_lines=log_lines,
            reduced_memory=reduced_memory_sentence(confirmed, judged.size_change),
        )
        notified = self._notify(run, selected, settings, errors)
        result = TaskStoppedResult(status=run.outcome.status, indexed=indexed, notified=notified)
        self._print_ended_line(run, result, settings.kibana_url, errors)
        self.outputs.export(run)
        raise_errors(errors)
        return result

    def _judge_by_event(self, task: StoppedTask) -> _TaskByEvent:
        """How the task ended and which container is its batch, by the event and the definition."""
        definition = known(self.account.describe_definition, task.definition_arn)
        containers = identify_containers(definition, task)
        candidates = [task.container_or_name_only(name) for name in containers.candidates]
        reported = [task.container_or_name_only(name) for name in containers.reported]
        monitor = task.container_or_name_only(containers.monitor or MONITOR_NAME)
        end, batch = judge_candidates(
            task, candidates, default=containers.default, monitor=containers.monitor
        )
        if len(containers.candidates) > 1:
            self.outputs.warn(
                f"Task {task.id} has several possible batch containers "
                f"({', '.join(containers.candidates)}), which are judged together: set "
                "TASK_PROFILER_CONTAINER in the monitor's environment to the batch's name."
            )
        return _TaskByEvent(
            task=task,
            definition=definition,
            containers=replace(containers, batch=batch),
            batch=next((one for one in candidates if one.name == batch), UNKNOWN_CONTAINER),
            monitor=monitor,
            end=end,
            others=[
                (other, end_of_other(task, other))
                for other in reported
                if other.name != batch and other.has_run
            ],
            size_change=size_change_of_definition(definition or {}),
        )

    def _find_report_and_merge(
        self,
        judged: _TaskByEvent,
        reports: ReportFinder,
        settings: NoticeSettings,
        index: RunDocumentIndex | None,
    ) -> EndedTask:
        """The task with its report or its last checkpoint, merged with the event."""
        task = judged.task
        containers = judged.containers
        batch, monitor = judged.batch, judged.monitor
        streams = self._possible_report_streams(judged, settings)
        is_monitored = False
        if streams or judged.others:
            # ECS starts no monitor of the task's own for a batch of milliseconds.
            has_own = bool(containers.monitor and task.started_at)
            is_monitored = has_own or (batch.has_run and self.account.is_on_instance(task))
        find_indexed = None
        if index is not None and containers.batch:
            find_indexed = partial(index.find_report, task, batch)
        line = reports.find(
            streams,
            settings.report_wait_seconds,
            is_expected=bool(streams) and is_monitored,
            find_indexed=find_indexed,
        )
        if not reports.has_time:
            self.outputs.warn(
                f"CloudWatch Logs throttles or is slow: the report of task {task.id} was not "
                "looked for everywhere."
            )
        cost = UNKNOWN_COST if line is None else reports.task_cost(line)
        report_log = containers.log_with_line(line)
        log = containers.batch_log
        existing_log = log if reports.may_exist(log) else None
        resized_from = judged.size_change.tag
        event = run_event_of_task(
            task, judged.end, batch, monitor, log=existing_log, resized_from=resized_from
        )
        others = judged.others if is_monitored else ()
        events = [run_event_of_task(task, end, other, monitor) for other, end in others]
        reported = None if line is None else seen_report(line.report, line.claim, event)
        runs = runs_of_witnesses(event, reported, task_cost=cost)
        return EndedTask(
            task=task,
            runs=runs,
            others=tuple(map(run_of_event, events)),
            container=containers.batch,
            monitor=monitor.name,
            report_line=line,
            report_log=report_log,
            log=log,
            labels=containers.batch_labels,
        )

    @staticmethod
    def _possible_report_streams(
        judged: _TaskByEvent, settings: NoticeSettings
    ) -> Sequence[LogTarget]:
        """The log streams in which the report is looked for."""
        # Without a monitor, a batch that is wrapped by ``run`` has a report. Services stop by the
        # hundred.
        containers = judged.containers
        is_read = (
            bool(containers.monitor)
            or not judged.task.is_service_task
            or selects_task(settings, judged.task, is_success=judged.end.cause == "success")
        )
        return containers.possible_report_logs if is_read else ()

    def _failed_container_lines(
        self,
        ended: EndedTask,
        settings: NoticeSettings,
        reports: ReportFinder,
        containers: TaskContainers,
    ) -> tuple[str, ...]:
        """The last lines of the container that failed, for the notice.

        If they cannot be read, the notice is posted without them.
        """
        if ended.outcome.status != "failure" and not ended.other_failed_container:
            return ()
        try:
            log = containers.logs.get(ended.other_failed_container or ended.container or "")
            return reports.read_last_lines(log, settings.log_lines)
        except ForwarderError as error:
            self.outputs.warn(f"The notification of task {ended.task.id} has no log lines. {error}")
            return ()

    def _index_task(
        self,
        merged: EndedTask,
        index: RunDocumentIndex,
        retry: MemoryRetry,
        errors: _Errors,
    ) -> bool:
        """Write the task's documents. Returns whether the cluster took one."""
        documents = event_documents(merged, index.settings, retry)
        if documents:
            return write_documents(index, documents, "task", errors)
        self.outputs.warn(
            f"Task {merged.task.id} is not indexed: its batch container or all of its times are "
            "unknown."
        )
        return False

    def _notify(
        self, run: EndedRun, selected: NoticeSelection, settings: NoticeSettings, errors: _Errors
    ) -> ChannelKind | None:
        """Post the notice of a selected run. Returns its kind if every channel has it."""
        if not (selected.always or (selected.if_unusual and run.unusual)):
            return None
        counts_as_failure = settings.unusual_as_failures and run.unusual
        is_success = run.outcome.status == "success" and not counts_as_failure
        return post_notice(self.outputs, run, settings, errors, is_success=is_success)

    def _print_ended_line(
        self, run: EndedRun, result: TaskStoppedResult, kibana_url: str | None, errors: _Errors
    ) -> None:
        line = ended_line(
            run, kibana_url=kibana_url, indexed=result.indexed, notified=result.notified
        )
        print_once(line, f"{notification_key(run)}#log", self.outputs, errors)


def _with_gpu_memory_error(merged: EndedTask, reports: ReportFinder) -> EndedTask:
    """The task with what its last lines say of a lack of GPU memory, if they were read already."""
    if merged.outcome.status != "failure":
        return merged
    lines = reports.last_lines_already_read(merged.log, SEARCHED_LINES)
    error = gpu_memory_error_line(lines)
    if error is None:
        return merged
    return replace(merged, runs=merged.runs.with_log_words(error))


def selects_task(settings: NoticeSettings, task: StoppedTask, *, is_success: bool) -> bool:
    """Whether the settings select a task with this end for a notice."""
    if task.is_service_task and not settings.services:
        return False
    if settings.batch_jobs and task.batch is not NO_JOB:
        return False  # its job has a message
    subject: Subject = "success" if is_success else "failure"
    return settings.selects(subject, task.family or "unknown")


def notice_selection(ended: EndedTask, settings: NoticeSettings) -> NoticeSelection:
    """For which of the run's ends the settings select it for a notice."""
    always = selects_task(settings, ended.task, is_success=ended.outcome.status == "success")
    if_unusual = settings.unusual_as_failures and selects_task(
        settings, ended.task, is_success=False
    )
    return NoticeSelection(always=always, if_unusual=always or if_unusual)
