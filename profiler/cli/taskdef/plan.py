"""The plan for many families: what changes in each, or why nothing does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from profiler.cli.output import UNKNOWN
from profiler.cli.taskdef.ecs import revision_of
from profiler.cli.taskdef.schedules import ScheduledTarget
from profiler.cli.text import Column, Line, table
from profiler.core.errors import TaskProfilerError
from profiler.taskdef.document import TaskDefinitionDocument, read_document

Action = Literal[
    "add monitor", "update monitor", "up to date", "remove monitor", "no monitor", "left", "refused", "failed"
]
_SERVICE_REASON = "A service runs it: --services includes it."
_GAP = 2
_COLUMNS = tuple(Column(title, folds=True) for title in ("FAMILY", "BATCH", "ACTION", "NOTES"))


class Change(Struct, frozen=True, kw_only=True):
    """What the command does to one definition.

    Attributes:
        action: What happens.
        definition: The definition to register.
        notes: Notes for the user.
        batch: The name of the batch container, if it is known.
        streams: The ARNs of the log streams that the task role must allow.
        log_group: The log group that the monitor needs for its own stream, None if it uses the batch's.
    """

    action: Action
    definition: Mapping[str, object]
    notes: tuple[str, ...] = ()
    batch: str = ""
    streams: frozenset[str] = frozenset()
    log_group: str | None = None

    @property
    def is_new_revision(self) -> bool:
        """Whether a revision is to be registered."""
        return self.action in ("add monitor", "update monitor", "remove monitor")


class PlannedFamily(Struct, frozen=True, kw_only=True):
    """One family of the plan. ``change`` is None if nothing can be done, for the reason in ``notes``."""

    family: str
    action: Action
    notes: tuple[str, ...] = ()
    revision_arn: str = ""
    change: Change | None = None
    pinned: tuple[ScheduledTarget, ...] = ()

    @property
    def task_role(self) -> str | None:
        """The task role of the definition."""
        role = None if self.change is None else self.change.definition.get("taskRoleArn")
        return role if isinstance(role, str) and role else None


class Describe(Protocol):
    """Reads a family's latest active revision."""

    def __call__(self, name: str) -> bytes:
        """Return ECS's response; raises TaskProfilerError."""
        ...


def plan_families(
    families: Sequence[str],
    describe: Describe,
    change: Callable[[TaskDefinitionDocument], Change],
    *,
    targets: Sequence[ScheduledTarget],
    of_services: frozenset[str],
    on_family: Callable[[], None],
) -> tuple[PlannedFamily, ...]:
    """Plan each family. A family that cannot be read or changed gets the reason, and the others are planned.

    Args:
        families: The names of the families.
        describe: Reads a revision.
        change: Computes the change of a definition; raises TaskProfilerError if it is refused.
        targets: All scheduled targets of the account.
        of_services: The families of services, which are left out.
        on_family: Called after each family.
    """
    planned = []
    for family in families:
        of_family = tuple(one for one in targets if one.family == family)
        planned.append(_plan_family(family, describe, change, of_family, is_service=family in of_services))
        on_family()
    return tuple(planned)


def _plan_family(
    family: str,
    describe: Describe,
    change: Callable[[TaskDefinitionDocument], Change],
    targets: Sequence[ScheduledTarget],
    *,
    is_service: bool,
) -> PlannedFamily:
    if is_service:
        return PlannedFamily(family=family, action="left", notes=(_SERVICE_REASON,))
    try:
        document = read_document(describe(family), family)
    except TaskProfilerError as error:
        return PlannedFamily(family=family, action="failed", notes=(str(error),))
    try:
        changed = change(document)
    except TaskProfilerError as error:
        return PlannedFamily(family=family, action="refused", notes=(str(error),))
    arn = document.arn or ""
    newest = revision_of(arn)
    pinned = tuple(
        one
        for one in targets
        if one.pinned_revision is not None and (changed.is_new_revision or one.pinned_revision != newest)
    )
    notes = changed.notes + tuple(f"The {one.title} is pinned to {one.pinned_revision}." for one in pinned)
    return PlannedFamily(
        family=family, action=changed.action, notes=notes, revision_arn=arn, change=changed, pinned=pinned
    )


def plan_table(planned: Sequence[PlannedFamily], width: int | None) -> list[Line]:
    """The plan as a table of ``width`` columns; None: no limit."""
    rows = (
        (one.family, (one.change.batch if one.change is not None else "") or UNKNOWN, one.action, " ".join(one.notes))
        for one in planned
    )
    return table(_COLUMNS, rows, gap=_GAP, width=width)
