"""The plan for many families: what changes in each, or why nothing does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.schedules import ScheduledTarget
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text
from profiler.task_definitions.add_monitor import (
    AddMonitorOptions,
    add_monitor_to,
    default_image_note,
    log_group_note,
)
from profiler.task_definitions.containers import default_image, own_log_group
from profiler.task_definitions.document import TaskDefinitionDocument, read_document
from profiler.task_definitions.permissions import report_streams
from profiler.task_definitions.remove_monitor import remove_monitor
from profiler.task_definitions.revisions import Difference, difference

Action = Literal[
    "add monitor", "update monitor", "up to date", "remove monitor", "no monitor", "left", "refused", "failed"
]


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


def plan_addition(document: TaskDefinitionDocument, options: AddMonitorOptions) -> Change:
    """Plan to add the monitor. Raises TaskProfilerError if it is refused."""
    added = add_monitor_to(document.definition, options, revision_arn=document.arn)
    image = options.image or default_image(document.arn)
    log_group = own_log_group(added.definition, image)
    # The plan names the default image once, and knows whether the log group exists.
    general = {default_image_note(image), log_group_note(log_group)}
    is_changed = added.definition != document.definition
    return Change(
        action="up to date" if not is_changed else "update monitor" if added.had_monitor else "add monitor",
        definition=added.definition,
        notes=tuple(note for note in added.notes if note not in general),
        batch=added.batch,
        streams=report_streams(added.definition, added.batch, document.arn or "", image=image),
        log_group=log_group,
    )


def plan_removal(document: TaskDefinitionDocument, image: str | None) -> Change:
    """Plan to remove the monitor. Raises TaskProfilerError if it is refused."""
    removed = remove_monitor(document.definition, image)
    log_group = own_log_group(document.definition, image)
    kept = () if log_group is None else (f"The log group {log_group} is kept.",)
    return Change(
        action="remove monitor" if removed.had_monitor else "no monitor",
        definition=removed.definition,
        notes=(*removed.notes, *kept),
    )


class PlannedFamily(Struct, frozen=True, kw_only=True):
    """One family of the plan. ``change`` is None if nothing can be done, for the reason in ``notes``.

    ``document`` is the revision that the plan starts from. ``pinned`` are the targets whose revision differs from the
    one that the plan ends with.
    """

    family: str
    action: Action
    notes: tuple[str, ...] = ()
    document: TaskDefinitionDocument | None = None
    change: Change | None = None
    pinned: tuple[ScheduledTarget, ...] = ()

    @property
    def revision_arn(self) -> str:
        """The ARN of the revision that the plan starts from."""
        return (None if self.document is None else self.document.arn) or ""

    @property
    def revision(self) -> str:
        """``family:revision`` of the revision that the plan starts from."""
        return revision_of(self.revision_arn) or self.family

    @property
    def definition(self) -> Mapping[str, object]:
        """The definition that the plan ends with."""
        if self.change is not None:
            return self.change.definition
        return {} if self.document is None else self.document.definition

    @property
    def task_role(self) -> str | None:
        """The task role of the definition."""
        return text(self.definition.get("taskRoleArn"))


class Planner:
    """Plans families. A family that cannot be read or changed gets the reason.

    Args:
        describe: Returns ECS's response for a family's latest active revision, or for ``family:revision``; raises
            TaskProfilerError.
        change: Computes the change of a definition; raises TaskProfilerError if it is refused.
        targets: All scheduled targets of the account.
        image: The monitor's image, if its repository has a name of the user's own.
    """

    def __init__(
        self,
        describe: Callable[[str], bytes],
        change: Callable[[TaskDefinitionDocument], Change],
        *,
        targets: Sequence[ScheduledTarget],
        image: str | None,
    ) -> None:
        self._describe = describe
        self._change = change
        self._targets = targets
        self._image = image
        self._pinned: dict[str, Mapping[str, object]] = {}

    def plan(self, family: str, revision: str | None = None) -> PlannedFamily:
        """Read a revision (None: the latest active one), and plan its change."""
        try:
            document = read_document(self._describe(revision or family), family)
        except TaskProfilerError as error:
            return PlannedFamily(family=family, action="failed", notes=(str(error),))
        try:
            changed = self._change(document)
        except TaskProfilerError as error:
            return PlannedFamily(family=family, action="refused", notes=(str(error),), document=document)
        planned = PlannedFamily(
            family=family, action=changed.action, notes=changed.notes, document=document, change=changed
        )
        pins = tuple(self._pins(planned))
        return replace(
            planned, notes=(*planned.notes, *(note for _, note in pins)), pinned=tuple(target for target, _ in pins)
        )

    def pin_difference(self, planned: PlannedFamily, target: ScheduledTarget) -> Difference:
        """How the revision of a pinned target differs from the one that the plan ends with.

        The revision that the plan starts from differs by the monitor alone. Raises TaskProfilerError.
        """
        pinned = target.pinned_revision or ""
        if planned.change is None or pinned == planned.revision:
            return "monitor" if planned.change is not None and planned.change.is_new_revision else "none"
        if pinned not in self._pinned:  # many schedules may start one revision, which never changes
            self._pinned[pinned] = read_document(self._describe(pinned), pinned).definition
        return difference(self._pinned[pinned], planned.definition, self._image)

    def _pins(self, planned: PlannedFamily) -> Iterator[tuple[ScheduledTarget, str]]:
        """The targets that are pinned to another revision, each with a note."""
        for target in self._targets:
            if not target.is_pin_of(planned.revision_arn):
                continue
            note = f"The {target.title} is pinned to {target.pinned_revision}"
            try:
                pinned_difference = self.pin_difference(planned, target)
            except TaskProfilerError as error:
                yield target, f"{note}. {error}"
                continue
            if pinned_difference == "monitor":
                yield target, f"{note}."
            elif pinned_difference == "other":
                yield target, f"{note}, which differs by more than the monitor: --update-schedules skips it."
