"""One ended task, from its event to the index and the people who want to know.

Slack is told even if the cluster takes nothing; what failed is raised afterwards, so that Lambda
tries again. Telling twice is prevented by the caller's ``once``.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from forwarder.delivery import Delivered
from forwarder.documents import Document
from forwarder.errors import DeliveryError
from forwarder.event_document import event_document
from forwarder.notice import Notice, Verdict
from forwarder.notice_numbers import numbers_of
from forwarder.outcome import Outcome, decide
from forwarder.run_log import FoundReport, RunLog
from forwarder.settings import NoticeSettings
from forwarder.task_definition import Chosen, batch_container, choose
from forwarder.task_event import EventContainer, StoppedTask


class Definitions(Protocol):
    """ECS's task definitions."""

    def describe(self, arn: str) -> Mapping[str, object] | None:
        """The task definition; None if it cannot be read."""
        ...


class Deliverer(Protocol):
    """Brings documents to the cluster."""

    def deliver(self, documents: list[Document]) -> Delivered:
        """See forwarder.delivery."""
        ...


class Telling(Protocol):
    """Tells people, once for each task."""

    def tell(self, notice: Notice, kind: str) -> bool:
        """Send the notice to the channel of ``kind`` (success or failure); False if that channel is off.

        Raises DeliveryError.
        """
        ...


class Ended(Struct, frozen=True, kw_only=True):
    """What became of the event."""

    status: Verdict | None = None
    indexed: bool = False
    notified: str | None = None

    def as_answer(self) -> Mapping[str, object]:
        """What ``task_stopped`` returns."""
        return {"status": self.status, "indexed": self.indexed, "notified": self.notified}


class TaskEnded:
    """Handles ended tasks. ``deliverer`` and ``compare`` are None without a cluster."""

    def __init__(
        self,
        settings: NoticeSettings,
        *,
        definitions: Definitions,
        run_log: Callable[[StoppedTask, str | None], RunLog],
        deliverer: Deliverer | None,
        telling: Telling,
        compare: Callable[[Notice], str | None] | None = None,
    ) -> None:
        self._settings = settings
        self._definitions = definitions
        self._run_log = run_log
        self._deliverer = deliverer
        self._telling = telling
        self._compare = compare

    def handle(self, task: StoppedTask) -> Ended:
        """Index and tell. Raises DeliveryError if either failed, after trying both."""
        definition = None if task.definition_arn is None else self._definitions.describe(task.definition_arn)
        chosen = choose(definition, task)
        batch = batch_container(task, chosen.batch)
        outcome = decide(task, batch)
        found = self._find(task, chosen)
        problems: list[DeliveryError] = []
        indexed = self._index(task, batch, outcome, found, problems)
        notified = self._tell(_notice(task, chosen, outcome, found), task, problems)
        if problems:
            raise DeliveryError(" ".join(str(problem) for problem in problems)) from problems[0]
        return Ended(status=outcome.verdict, indexed=indexed, notified=notified)

    def _find(self, task: StoppedTask, chosen: Chosen) -> FoundReport | None:
        """A task without a monitor, or one that never started, has no report to wait for."""
        wait_seconds = self._settings.report_wait_seconds if chosen.has_monitor and task.started_at is not None else 0
        return self._run_log(task, chosen.batch).find(chosen.batch_log, chosen.monitor_log, wait_seconds)

    def _index(
        self,
        task: StoppedTask,
        batch: EventContainer | None,
        outcome: Outcome,
        found: FoundReport | None,
        problems: list[DeliveryError],
    ) -> bool:
        document = event_document(task, batch, outcome, found, prefix=self._settings.index_prefix)
        if self._deliverer is None or document is None:
            return False
        try:
            delivered = self._deliverer.deliver([document])
        except DeliveryError as error:
            problems.append(error)
            return False
        if delivered.poison:
            problems.append(DeliveryError(f"The task's document was refused: {delivered.poison[0].reason}"))
        return delivered.indexed > 0

    def _tell(self, notice: Notice, task: StoppedTask, problems: list[DeliveryError]) -> str | None:
        kind = "success" if notice.verdict == "success" else "failure"
        if not is_wanted(notice, task, self._settings):
            return None
        try:
            return kind if self._telling.tell(self._compared(notice), kind) else None
        except DeliveryError as error:
            problems.append(error)
            return None

    def _compared(self, notice: Notice) -> Notice:
        comparison = None if self._compare is None else self._compare(notice)
        return notice if comparison is None else replace(notice, comparison=comparison)


def is_wanted(notice: Notice, task: StoppedTask, settings: NoticeSettings) -> bool:
    """Whether people want to hear of this task."""
    if task.is_of_a_service and not settings.services:
        return False
    if settings.only_failures and notice.verdict == "success":
        return False
    return not settings.families or any(fnmatchcase(notice.family, pattern) for pattern in settings.families)


def _notice(task: StoppedTask, chosen: Chosen, outcome: Outcome, found: FoundReport | None) -> Notice:
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
        numbers=numbers_of(task, found),
        is_complete=found is not None and found.is_final,
        log_group=place.group if place is not None else None,
        log_stream=place.stream if place is not None else None,
    )
