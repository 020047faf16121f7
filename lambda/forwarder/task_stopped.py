"""Handles one stopped task: determines the outcome, completes the run's document, and posts a notice.

A failure to write the document does not prevent the notice, and the other way round. Errors are raised after both
attempts, so that Lambda retries the event.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from forwarder.delivery_errors import DeliveryError, ForwarderError, attempt, raise_errors
from forwarder.documents import Document
from forwarder.event_document import event_documents
from forwarder.function_settings import NoticeSettings, Subject
from forwarder.index_names import IndexPeriod
from forwarder.notices.channel import ChannelKind, NoticeChannel, announce
from forwarder.notices.ended_task import Comparison, EndedTask
from forwarder.notices.idempotency import Idempotently
from forwarder.search_cluster.document_delivery import DeliverDocuments
from forwarder.task.batch_log_stream import TaskContainers, docker_labels, identify_containers
from forwarder.task.find_report import FindIndexedReport, ReportFinder, ReportLine
from forwarder.task.stop_classification import judge
from forwarder.task.task_event import EventContainer, StoppedTask
from profiler.record.run_outcome import EndStatus

_Errors = list[ForwarderError]


# Returns the task definition of an ARN; None if it does not exist or may not be read. Raises DeliveryError.
DescribeDefinition = Callable[[str], Mapping[str, object] | None]


class Index(Struct, frozen=True, kw_only=True):
    """The search cluster: writes documents, finds reports, and compares runs with recent ones of their family.

    ``find`` returns the report of a task's batch; None if it is not there yet. It raises ForwarderError. ``compare``
    returns None without a comparison.
    """

    prefix: str
    period: IndexPeriod = "month"
    kibana_url: str | None = None
    deliver: DeliverDocuments
    find: Callable[[StoppedTask, EventContainer], ReportLine | None] | None = None
    compare: Callable[[EndedTask], Comparison | None] = lambda _notice: None


class TaskStoppedResult(Struct, frozen=True, kw_only=True):
    """The status of the task, whether its document was written, and the kind of the posted notice."""

    status: EndStatus | None = None
    indexed: bool = False
    notified: ChannelKind | None = None

    def as_response(self) -> Mapping[str, object]:
        """Return the response of ``task_stopped``."""
        return {"status": self.status, "indexed": self.indexed, "notified": self.notified}


class TaskStoppedHandler:
    """Handles stopped tasks.

    Args:
        settings: reads the settings. This call and ``index`` may raise SettingsError.
        describe: reads a task definition.
        run_log: returns the finder of the report for a task and its batch container.
        index: connects to the search cluster; returns None without one.
        channels: returns the channels for notices.
        once: returns the guard that posts a notice only once for a key.
        export: exports the run after everything else; it raises nothing.
        warn: logs a sentence.
    """

    def __init__(
        self,
        settings: Callable[[], NoticeSettings],
        *,
        describe: DescribeDefinition,
        run_log: Callable[[StoppedTask, str | None], ReportFinder],
        index: Callable[[], Index | None],
        channels: Callable[[NoticeSettings], Sequence[NoticeChannel]],
        once: Callable[[NoticeSettings], Idempotently] = lambda _settings: lambda _key, work: work(),
        export: Callable[[EndedTask], None] = lambda _ended: None,
        warn: Callable[[str], None] = lambda _sentence: None,
    ) -> None:
        self._settings = settings
        self._describe = describe
        self._run_log = run_log
        self._open_index = index
        self._channels = channels
        self._once = once
        self._export = export
        self._warn = warn

    def handle(self, task: StoppedTask) -> TaskStoppedResult:
        """Write the document and post the notice to every channel.

        Raises:
            ForwarderError: one of them failed, and all were tried; or AWS did not return what both need, and neither
                was tried.
        """
        errors: _Errors = []
        settings = attempt(self._settings, errors)
        definition = None if task.definition_arn is None else self._describe(task.definition_arn)
        identified = identify_containers(definition, task)
        judgement = judge(task, identified)
        if judgement.warning is not None:
            self._warn(judgement.warning)
        batch, outcome = judgement.batch, judgement.outcome
        containers = replace(identified, batch=None if batch is None else batch.name)
        index = attempt(self._open_index, errors)
        run_log = self._run_log(task, containers.batch)
        report_line = run_log.find(
            containers.batch_log,
            containers.monitor_log,
            (settings or NoticeSettings()).report_wait_seconds if _is_report_expected(task, containers) else 0,
            find_indexed=_find_indexed(index, task, batch),
        )
        indexed = index is not None and self._write(
            index,
            event_documents(
                task,
                batch,
                outcome,
                report_line,
                prefix=index.prefix,
                period=index.period,
                log=containers.batch_log,
                kibana_url=index.kibana_url,
            ),
            task,
            errors,
        )
        notified: ChannelKind | None = None
        ended = notice = EndedTask(
            task=task,
            outcome=outcome,
            container=containers.batch,
            report_line=report_line,
            log=containers.batch_log,
            labels=docker_labels(definition, containers.batch),
        )
        if settings is not None:
            if should_notify(notice, settings, if_unusual=True):
                if outcome.status == "failure":
                    notice = replace(notice, log_lines=run_log.last_lines(containers.batch_log, settings.log_lines))
                if index is not None:
                    notice = _with_comparison(notice, index)
            is_selected = should_notify(notice, settings)
            notified = self._notify(notice, settings, errors, is_selected=is_selected)
        self._export(ended)
        raise_errors(errors)
        return TaskStoppedResult(status=outcome.status, indexed=indexed, notified=notified)

    def _write(self, index: Index, documents: Sequence[Document], task: StoppedTask, errors: _Errors) -> bool:
        if not documents:
            self._warn(f"Task {task.id} is not indexed: its batch container or all of its times are unknown.")
            return False
        return _deliver(index, documents, errors)

    def _notify(
        self, notice: EndedTask, settings: NoticeSettings, errors: _Errors, *, is_selected: bool
    ) -> ChannelKind | None:
        """Post the notice. Returns its kind if a channel that selects tasks has it."""
        is_success = notice.outcome.status == "success" and not (settings.unusual_as_failures and notice.unusual)
        kind: ChannelKind = "success" if is_success else "failure"
        channels = [channel for channel in self._channels(settings) if is_selected or not channel.is_selective]
        posted = announce(channels, notice, kind, self._once(settings), errors)
        return kind if any(channel.is_selective and channel.name in posted for channel in channels) else None


def _is_report_expected(task: StoppedTask, containers: TaskContainers) -> bool:
    """Whether to wait for a report: only if the task has a monitor, was started, and has a readable log stream."""
    has_log = containers.batch_log is not None or containers.monitor_log is not None
    return containers.monitor is not None and task.started_at is not None and has_log


def _find_indexed(index: Index | None, task: StoppedTask, batch: EventContainer | None) -> FindIndexedReport | None:
    """Return a function that queries the search cluster once; None without a search cluster or a batch."""
    if index is None or index.find is None or batch is None:
        return None
    find = index.find
    return lambda: find(task, batch)


def _deliver(index: Index, documents: Sequence[Document], errors: _Errors) -> bool:
    delivered = attempt(lambda: index.deliver(documents), errors)
    if delivered is None:
        return False
    if delivered.rejected:
        errors.append(DeliveryError(f"The cluster refused the task's document: {delivered.rejected[0].reason}"))
    return delivered.indexed > 0


def _with_comparison(notice: EndedTask, index: Index) -> EndedTask:
    """Add the comparison; if it fails, the notice is posted without it."""
    try:
        comparison = index.compare(notice)
    except ForwarderError:
        return notice
    return notice if comparison is None else replace(notice, comparison=comparison)


def should_notify(notice: EndedTask, settings: NoticeSettings, *, if_unusual: bool = False) -> bool:
    """Whether the settings select this task for a notice; with ``if_unusual``, also a success unlike its family."""
    if notice.task.is_service_task and not settings.services:
        return False
    subject: Subject = "success" if notice.outcome.status == "success" else "failure"
    is_failure = settings.unusual_as_failures and (if_unusual or bool(notice.unusual))
    return settings.selects(subject, notice.family) or (is_failure and settings.selects("failure", notice.family))
