"""Handles one stopped task: determines the outcome, completes the run's document, and posts a notice.

A failure of the index does not prevent the notice, and the other way round: each is built only when it is needed, and
errors are raised after both were tried, so that Lambda retries the event.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from forwarder.documents import Document, event_document
from forwarder.errors import DeliveryError, ForwarderError
from forwarder.indices import IndexPeriod
from forwarder.notices.channel import NoticeChannel, NoticeKind
from forwarder.notices.notice import Notice, run_numbers
from forwarder.search.delivery import DocumentWriter
from forwarder.settings import NoticeSettings
from forwarder.task.containers import TaskContainers, batch_container, identify_containers
from forwarder.task.event import StoppedTask
from forwarder.task.outcome import Outcome, Verdict, determine_outcome
from forwarder.task.run_log import FoundReport, ReportFinder

_Result = TypeVar("_Result")
_Errors = list[ForwarderError]


class Definitions(Protocol):
    """Reads ECS task definitions."""

    def describe(self, arn: str) -> Mapping[str, object] | None:
        """Return the task definition; None if it cannot be read."""
        ...


class Index(Struct, frozen=True, kw_only=True):
    """The cluster: where documents are written, and a comparison of the run with recent runs of its family.

    ``compare`` returns a sentence, or None without a comparison.
    """

    prefix: str
    period: IndexPeriod = "month"
    writer: DocumentWriter
    compare: Callable[[Notice], str | None] = lambda _notice: None


class TaskStoppedResult(Struct, frozen=True, kw_only=True):
    """The outcome, whether the document was written, and the kind of the notice that was posted."""

    status: Verdict | None = None
    indexed: bool = False
    notified: NoticeKind | None = None

    def as_response(self) -> Mapping[str, object]:
        """Return the response of ``task_stopped``."""
        return {"status": self.status, "indexed": self.indexed, "notified": self.notified}


class TaskStoppedHandler:
    """Handles stopped tasks.

    Args:
        settings: reads the settings. This call, ``index`` and ``channel`` may raise SettingsError.
        definitions: reads task definitions.
        run_log: returns the finder of the report for a task and its batch container.
        index: connects to the cluster; returns None without a cluster.
        channel: opens the channel for notices.
    """

    def __init__(
        self,
        settings: Callable[[], NoticeSettings],
        *,
        definitions: Definitions,
        run_log: Callable[[StoppedTask, str | None], ReportFinder],
        index: Callable[[], Index | None],
        channel: Callable[[NoticeSettings], NoticeChannel],
    ) -> None:
        self._settings = settings
        self._definitions = definitions
        self._run_log = run_log
        self._open_index = index
        self._open_channel = channel

    def handle(self, task: StoppedTask) -> TaskStoppedResult:
        """Write the document and post the notice.

        Raises:
            ForwarderError: one of them failed; both were tried.
        """
        errors: _Errors = []
        settings = _attempt(self._settings, errors)
        definition = None if task.definition_arn is None else self._definitions.describe(task.definition_arn)
        containers = identify_containers(definition, task)
        batch = batch_container(task, containers.batch)
        outcome = determine_outcome(task, batch)
        found = self._find_report(task, containers, (settings or NoticeSettings()).report_wait_seconds)
        index = _attempt(self._open_index, errors)
        indexed = index is not None and _write(
            index, event_document(task, batch, outcome, found, prefix=index.prefix, period=index.period), errors
        )
        notice = _notice(task, containers, outcome, found)
        notified = None if settings is None else self._notify(notice, task, settings, index, errors)
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise DeliveryError(" ".join(str(error) for error in errors)) from errors[0]
        return TaskStoppedResult(status=outcome.verdict, indexed=indexed, notified=notified)

    def _find_report(self, task: StoppedTask, containers: TaskContainers, wait_seconds: float) -> FoundReport | None:
        """Find the report; wait for it only if the task has a monitor, was started, and has a readable log stream."""
        has_log = containers.batch_log is not None or containers.monitor_log is not None
        is_expected = containers.has_monitor and task.started_at is not None and has_log
        finder = self._run_log(task, containers.batch)
        return finder.find(containers.batch_log, containers.monitor_log, wait_seconds if is_expected else 0)

    def _notify(
        self, notice: Notice, task: StoppedTask, settings: NoticeSettings, index: Index | None, errors: _Errors
    ) -> NoticeKind | None:
        if not should_notify(notice, task, settings):
            return None
        kind: NoticeKind = "success" if notice.verdict == "success" else "failure"
        compared = notice if index is None else _with_comparison(notice, index)
        is_posted = _attempt(lambda: self._open_channel(settings).post(compared, kind), errors)
        return kind if is_posted else None


def _attempt(call: Callable[[], _Result], errors: _Errors) -> _Result | None:
    """Return the result of the call; if it fails, add its error to ``errors`` and return None."""
    try:
        return call()
    except ForwarderError as error:
        errors.append(error)
        return None


def _write(index: Index, document: Document | None, errors: _Errors) -> bool:
    if document is None:
        return False
    delivered = _attempt(lambda: index.writer.deliver([document]), errors)
    if delivered is None:
        return False
    if delivered.rejected:
        errors.append(DeliveryError(f"The cluster refused the task's document: {delivered.rejected[0].reason}"))
    return delivered.indexed > 0


def _with_comparison(notice: Notice, index: Index) -> Notice:
    """Add the comparison; if it fails, the notice is posted without it."""
    try:
        comparison = index.compare(notice)
    except ForwarderError:
        return notice
    return notice if comparison is None else replace(notice, comparison=comparison)


def should_notify(notice: Notice, task: StoppedTask, settings: NoticeSettings) -> bool:
    """Whether the settings select this task for a notice."""
    if task.is_service_task and not settings.services:
        return False
    if settings.only_failures and notice.verdict == "success":
        return False
    return not settings.families or any(fnmatchcase(notice.family, pattern) for pattern in settings.families)


def _notice(task: StoppedTask, containers: TaskContainers, outcome: Outcome, found: FoundReport | None) -> Notice:
    log = containers.batch_log
    return Notice(
        verdict=outcome.verdict,
        category=outcome.category,
        family=task.family or "unknown",
        revision=task.revision,
        cluster=task.cluster,
        region=task.region,
        task_id=task.id,
        task_arn=task.arn,
        container=containers.batch,
        exit_code=outcome.exit_code,
        reason=outcome.reason if outcome.verdict != "success" or outcome.out_of_memory else None,
        started_at=None if task.started_at is None else task.started_at.isoformat(timespec="seconds"),
        numbers=run_numbers(task, found),
        is_complete=found is not None and found.is_final,
        log_group=log.group if log is not None else None,
        log_stream=log.stream if log is not None else None,
    )
