"""The plan for one family: the change of its definition, and the schedules that it concerns."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.started_tasks import AIRFLOW, starter_notes
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known
from profiler.record.family_owner import FamilyOwner
from profiler.sizing.resize_limits import ResizeAction, ResizeDecision
from profiler.sizing.sized_revision import SizeBefore
from profiler.task_definitions.containers import DefinedContainer, calls_cloudwatch_logs
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument
from profiler.task_definitions.monitor_changes import (
    AddMonitorOptions,
    add_monitor,
    default_image_note,
    log_group_note,
    remove_monitor,
)
from profiler.task_definitions.monitor_container import default_image
from profiler.task_definitions.permissions import report_streams

_NewRevision = Literal["add monitor", "update monitor", "remove monitor", "resize", "revert"]
Action = Literal[
    _NewRevision, "up to date", "no monitor", "on instance", "skipped", "refused", "failed"
]


class DeadTarget(Struct, frozen=True, kw_only=True):
    """A schedule or a rule that starts nothing, as ``sentence`` says; ``is_movable`` by
    --update-schedules, and otherwise ``remedy`` says what to do.
    """

    target: ScheduledTarget
    sentence: str
    is_movable: bool = False
    remedy: str = "Set an active revision there."

    @property
    def problem_text(self) -> str:
        """The sentence with what to do, for the plan."""
        remedy = "--register --update-schedules moves it." if self.is_movable else self.remedy
        return f"{self.sentence} {remedy}"


class PlannedFamily(Struct, frozen=True, kw_only=True):
    """One family of the plan, from ``document`` (empty if it cannot be read) to ``changed``."""

    family: str
    action: Action | ResizeAction
    notes: tuple[str, ...] = ()  # with the reason if nothing can be done
    document: TaskDefinitionDocument = TaskDefinitionDocument(definition={})
    changed: ChangedDefinition = ChangedDefinition(definition={})
    problems: tuple[str, ...] = ()  # what ``doctor`` would find afterwards
    started_by: tuple[str, ...] = ()  # empty if no task was seen, and no schedule
    pinned: tuple[ScheduledTarget, ...] = ()  # they start another revision than the plan's last
    movable: tuple[ScheduledTarget, ...] = ()  # those of them that --update-schedules may move
    unmonitored: tuple[ScheduledTarget, ...] = ()  # those of them without a monitor
    dead: tuple[DeadTarget, ...] = ()
    resize: ResizeDecision | None = None
    owner: FamilyOwner | None = None  # the service to which it is left
    obstacle: str | None = None  # why tasks of the new revision would not start
    # The size from which the newest revision was put back, if runs were killed at it.
    failed: SizeBefore | None = None
    # A revert deregisters the newest revision, so that this older one is the newest again.
    uncovered_arn: str | None = None

    @property
    def is_new_revision(self) -> bool:
        return self.action in get_args(_NewRevision)

    @property
    def is_left_alone(self) -> bool:
        """Whether an obstacle keeps its new revision from being registered."""
        return self.is_new_revision and bool(self.obstacle)

    @property
    def is_wrapped(self) -> bool:
        """Whether the batch starts with ``task-profiler run``."""
        return any(container.wraps_batch for container in self.changed.containers)

    @property
    def counts_targets(self) -> bool:
        """Whether its schedules and rules count: not of a family that is left alone or unread."""
        is_left = self.owner is not None or self.action in ("skipped", "refused", "failed")
        return self.is_wrapped or not is_left

    @property
    def living_targets(self) -> tuple[ScheduledTarget, ...]:
        """The pinned targets that start a task."""
        dead = [dead.target for dead in self.dead]
        return tuple(target for target in self.pinned if target not in dead)

    @property
    def revision_arn(self) -> str:
        """The ARN of the revision that the plan starts from; empty without one."""
        return self.document.arn or ""

    @property
    def revision(self) -> str:
        return revision_of(self.revision_arn) or self.family

    @property
    def added_monitor_log_group(self) -> str | None:
        """The log group of the stream of an added monitor, if the report goes there."""
        return known(attrgetter("own_log_group"), self.changed.monitor)

    @property
    def report_stream_arns(self) -> frozenset[str]:
        """The ARNs of the log streams that the task role must allow."""
        return report_streams(self.changed, self.revision_arn)


def planned_size_decisions(planned: Iterable[PlannedFamily]) -> list[ResizeDecision]:
    """The decisions on the families that get a new revision."""
    return [
        family_plan.resize
        for family_plan in planned
        if family_plan.is_new_revision and family_plan.resize is not None
    ]


# Plans the change of a family's definition: (family, definition, who starts it). Raises
# TaskProfilerError if refused.
PlanChange: TypeAlias = Callable[[str, TaskDefinitionDocument, Sequence[str]], PlannedFamily]


def plan_addition(
    family: str,
    document: TaskDefinitionDocument,
    started_by: Sequence[str] = (),
    *,
    options: AddMonitorOptions,
) -> PlannedFamily:
    """Plan to add the monitor. Raises TaskProfilerError if it is refused."""
    if AIRFLOW in started_by:
        options = replace(options, default_report_stream="monitor")
    added = add_monitor(document.definition, options, revision_arn=document.arn)
    monitor = added.monitor or DefinedContainer(name="")
    # The plan shows the default image once, and whether the log group exists.
    general = {
        default_image_note(options.image or default_image(document.arn)),
        log_group_note(monitor.own_log_group),
    }
    action: Action = "update monitor" if added.old_monitor else "add monitor"
    if added.definition == document.definition:
        action = "up to date"
    return PlannedFamily(
        family=family,
        action=action,
        notes=(
            *(note for note in added.notes if note not in general),
            *starter_notes(started_by, is_printed=not calls_cloudwatch_logs(monitor.environment)),
        ),
        document=document,
        changed=added,
    )


def plan_removal(family: str, document: TaskDefinitionDocument, image: str | None) -> PlannedFamily:
    """Plan to remove the monitor. Raises TaskProfilerError if it is refused."""
    removed = remove_monitor(document.definition, image)
    notes = list(removed.notes)
    action: Action = "no monitor"
    if removed.old_monitor is not None:
        action = "remove monitor"
        log_group = removed.old_monitor.own_log_group
        if log_group:
            notes.append(f"The log group {log_group} is kept.")
    return PlannedFamily(
        family=family, action=action, notes=tuple(notes), document=document, changed=removed
    )


class LeftAloneError(TaskProfilerError):
    """An obstacle keeps a plan from being carried out."""


def check_obstacle(planned: PlannedFamily) -> None:
    """Raise LeftAloneError if the family must be left alone."""
    if planned.obstacle:
        raise LeftAloneError(f"It is left alone. {planned.obstacle}")
