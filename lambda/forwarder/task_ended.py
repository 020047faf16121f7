"""One ended task, from its event to the index and the people who want to know.

Slack is told even if the cluster takes nothing or its settings are wrong, and the other way round: each
is built when its turn comes. What failed is raised afterwards, so that Lambda tries again. Telling
twice is prevented by the caller's ``once``.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from forwarder.delivery import DeliveryResult
from forwarder.documents import Document
from forwarder.errors import DeliveryError, ForwarderError
from forwarder.event_document import event_document
from forwarder.notice import Notice, Verdict
from forwarder.notice_numbers import run_numbers
from forwarder.outcome import Outcome, determine_outcome
from forwarder.run_log import FoundReport, ReportFinder
from forwarder.settings import NoticeSettings
from forwarder.task_definition import TaskContainers, batch_container, identify_containers
from forwarder.task_event import StoppedTask

_Result = TypeVar("_Result")
_Problems = list[ForwarderError]


class Definitions(Protocol):
    """ECS's task definitions."""

    def describe(self, arn: str) -> Mapping[str, object] | None:
        """The task definition; None if it cannot be read."""
        ...


class DocumentWriter(Protocol):
    """Brings documents to the cluster."""

    def deliver(self, documents: list[Document]) -> DeliveryResult:
        """See forwarder.delivery."""
        ...


class NoticeChannel(Protocol):
    """Tells people, once for each task."""

    def post(self, notice: Notice, kind: str) -> bool:
        """Send the notice to the channel of ``kind`` (success or failure); False if that channel is off.

        Raises DeliveryError.
        """
        ...


class Index(Struct, frozen=True, kw_only=True):
    """The cluster's part: where documents go, and what recent runs say of this one."""

    prefix: str
    writer: DocumentWriter
    compare: Callable[[Notice], str | None] = lambda _notice: None


class TaskStoppedResult(Struct, frozen=True, kw_only=True):
    """What became of the event."""

    status: Verdict | None = None
    indexed: bool = False
    notified: str | None = None

    def as_response(self) -> Mapping[str, object]:
        """What ``task_stopped`` returns."""
        return {"status": self.status, "indexed": self.indexed, "notified": self.notified}


class TaskStoppedHandler:
    """Handles ended tasks. What is built by a call may raise SettingsError; ``index`` is None without a cluster."""

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
        """Index and tell. Raises ForwarderError if either failed, after trying both."""
        problems: _Problems = []
        settings = _attempt(self._settings, problems)
        definition = None if task.definition_arn is None else self._definitions.describe(task.definition_arn)
        chosen = identify_containers(definition, task)
        batch = batch_container(task, chosen.batch)
        outcome = determine_outcome(task, batch)
        found = self._find(task, chosen, (settings or NoticeSettings()).report_wait_seconds)
        index = _attempt(self._open_index, problems)
        indexed = index is not None and _index(
            index, event_document(task, batch, outcome, found, prefix=index.prefix), problems
        )
        notice = _notice(task, chosen, outcome, found)
        notified = None if settings is None else self._notify(notice, task, settings, index, problems)
        if len(problems) == 1:
            raise problems[0]
        if problems:
            raise DeliveryError(" ".join(str(problem) for problem in problems)) from problems[0]
        return TaskStoppedResult(status=outcome.verdict, indexed=indexed, notified=notified)

    def _find(self, task: StoppedTask, chosen: TaskContainers, wait_seconds: float) -> FoundReport | None:
        """Without a monitor, a start, or a stream that can be read, there is no report to wait for."""
        is_readable = chosen.batch_log is not None or chosen.monitor_log is not None
        is_awaited = chosen.has_monitor and task.started_at is not None and is_readable
        log = self._run_log(task, chosen.batch)
        return log.find(chosen.batch_log, chosen.monitor_log, wait_seconds if is_awaited else 0)

    def _notify(
        self, notice: Notice, task: StoppedTask, settings: NoticeSettings, index: Index | None, problems: _Problems
    ) -> str | None:
        if not should_notify(notice, task, settings):
            return None
        kind = "success" if notice.verdict == "success" else "failure"
        compared = notice if index is None else _compared(notice, index)
        is_sent = _attempt(lambda: self._open_channel(settings).post(compared, kind), problems)
        return kind if is_sent else None


def _attempt(build: Callable[[], _Result], problems: _Problems) -> _Result | None:
    """What is built; None if it cannot be, and the problem is kept for the end."""
    try:
        return build()
    except ForwarderError as error:
        problems.append(error)
        return None


def _index(index: Index, document: Document | None, problems: _Problems) -> bool:
    if document is None:
        return False
    delivered = _attempt(lambda: index.writer.deliver([document]), problems)
    if delivered is None:
        return False
    if delivered.rejected:
        problems.append(DeliveryError(f"The task's document was refused: {delivered.rejected[0].reason}"))
    return delivered.indexed > 0


def _compared(notice: Notice, index: Index) -> Notice:
    """A comparison is worth a sentence of the notice, not the notice."""
    try:
        comparison = index.compare(notice)
    except ForwarderError:
        return notice
    return notice if comparison is None else replace(notice, comparison=comparison)


def should_notify(notice: Notice, task: StoppedTask, settings: NoticeSettings) -> bool:
    """Whether people want to hear of this task."""
    if task.is_service_task and not settings.services:
        return False
    if settings.only_failures and notice.verdict == "success":
        return False
    return not settings.families or any(fnmatchcase(notice.family, pattern) for pattern in settings.families)


def _notice(task: StoppedTask, chosen: TaskContainers, outcome: Outcome, found: FoundReport | None) -> Notice:
    place = chosen.batch_log
    return Notice(
        verdict=outcome.verdict,
        category=outcome.category,
        family=task.family or "unknown",
        revision=task.revision,
        cluster=task.cluster,
        region=task.region,
        task_id=task.id,
        task_arn=task.arn,
        container=chosen.batch,
        exit_code=outcome.exit_code,
        reason=outcome.reason if outcome.verdict != "success" or outcome.out_of_memory else None,
        started_at=None if task.started_at is None else task.started_at.isoformat(timespec="seconds"),
        numbers=run_numbers(task, found),
        is_complete=found is not None and found.is_final,
        log_group=place.group if place is not None else None,
        log_stream=place.stream if place is not None else None,
    )
