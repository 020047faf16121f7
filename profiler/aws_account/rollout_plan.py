"""The plan for many families: what changes in each, or why nothing does."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.started_tasks import AIRFLOW, starter_notes
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.add_monitor import AddMonitorOptions, add_monitor, default_image_note, log_group_note
from profiler.task_definitions.containers import has_monitor, has_own_report_stream, own_log_group
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_document
from profiler.task_definitions.monitor_container import default_image
from profiler.task_definitions.permissions import report_streams
from profiler.task_definitions.remove_monitor import Difference, difference, remove_monitor

Action = Literal[
    "add monitor", "update monitor", "up to date", "remove monitor", "no monitor", "skipped", "refused", "failed"
]


class PlannedFamily(Struct, frozen=True, kw_only=True):
    """One family of the plan.

    Attributes:
        family: The family's name.
        action: The change of the family.
        notes: Notes for the user; the reason if nothing can be done.
        document: The revision that the plan starts from, if it can be read.
        definition: The definition that the plan ends with.
        batch: The name of the batch container, if it is known.
        started_by: Who started the family's tasks; empty if none was seen.
        streams: The ARNs of the log streams that the task role must allow.
        log_group: The log group that the monitor needs for its own stream, None if it uses the batch's.
        pinned: The targets whose revision differs from the one that the plan ends with.
        unmonitored: The pinned targets whose revision has no monitor.
    """

    family: str
    action: Action
    notes: tuple[str, ...] = ()
    document: TaskDefinitionDocument | None = None
    definition: Mapping[str, object] = {}
    batch: str = ""
    started_by: tuple[str, ...] = ()
    streams: frozenset[str] = frozenset()
    log_group: str | None = None
    pinned: tuple[ScheduledTarget, ...] = ()
    unmonitored: tuple[ScheduledTarget, ...] = ()

    @property
    def is_new_revision(self) -> bool:
        """Whether a revision is to be registered."""
        return self.action in ("add monitor", "update monitor", "remove monitor")

    @property
    def revision_arn(self) -> str:
        """The ARN of the revision that the plan starts from."""
        return (None if self.document is None else self.document.arn) or ""

    @property
    def revision(self) -> str:
        """``family:revision`` of the revision that the plan starts from."""
        return revision_of(self.revision_arn) or self.family


# Plans the change of a family's definition: (family, definition, who starts it). Raises TaskProfilerError if it is
# refused.
PlanChange: TypeAlias = Callable[[str, TaskDefinitionDocument, Sequence[str]], PlannedFamily]


def plan_addition(
    family: str, document: TaskDefinitionDocument, options: AddMonitorOptions, started_by: Sequence[str] = ()
) -> PlannedFamily:
    """Plan to add the monitor. Raises TaskProfilerError if it is refused."""
    if AIRFLOW in started_by:
        options = replace(options, default_report_stream="monitor")
    added = add_monitor(document.definition, options, revision_arn=document.arn)
    image = options.image or default_image(document.arn)
    log_group = own_log_group(added.definition, image)
    # The plan shows the default image once, and whether the log group exists.
    general = {default_image_note(image), log_group_note(log_group)}
    is_changed = added.definition != document.definition
    return PlannedFamily(
        family=family,
        action="up to date" if not is_changed else "update monitor" if added.had_monitor else "add monitor",
        notes=(
            *(note for note in added.notes if note not in general),
            *starter_notes(started_by, is_printed=has_own_report_stream(added.definition, image)),
        ),
        document=document,
        definition=added.definition,
        batch=added.batch,
        streams=report_streams(added.definition, added.batch, document.arn or "", image=image),
        log_group=log_group,
    )


def plan_removal(family: str, document: TaskDefinitionDocument, image: str | None) -> PlannedFamily:
    """Plan to remove the monitor. Raises TaskProfilerError if it is refused."""
    removed = remove_monitor(document.definition, image)
    log_group = own_log_group(document.definition, image)
    kept = () if log_group is None else (f"The log group {log_group} is kept.",)
    return PlannedFamily(
        family=family,
        action="remove monitor" if removed.had_monitor else "no monitor",
        notes=(*removed.notes, *kept),
        document=document,
        definition=removed.definition,
    )


class Planner(Struct):
    """Plans families. A family that cannot be read or changed gets the reason.

    Attributes:
        describe: Returns ECS's response for a family's latest active revision, or for ``family:revision``; raises
            TaskProfilerError.
        plan_change: Plans the change of a family's definition; raises TaskProfilerError.
        targets: All scheduled targets of the account.
        image: The monitor's image, if its repository has a name of the user's own.
    """

    describe: Callable[[str], bytes]
    plan_change: Callable[[str, TaskDefinitionDocument], PlannedFamily]
    targets: Sequence[ScheduledTarget]
    image: str | None
    _pinned: dict[str, Mapping[str, object]] = {}

    def plan(self, family: str) -> PlannedFamily:
        """Read the latest active revision, and plan its change."""
        try:
            document = read_document(self.describe(family), family)
        except TaskProfilerError as error:
            return PlannedFamily(family=family, action="failed", notes=(str(error),))
        try:
            planned = self.plan_change(family, document)
        except TaskProfilerError as error:
            return PlannedFamily(family=family, action="refused", notes=(str(error),), document=document)
        pins = tuple(self._pins(planned))
        pinned = tuple(target for target, _ in pins)
        return replace(
            planned,
            notes=(*planned.notes, *(note for _, note in pins)),
            pinned=pinned,
            unmonitored=tuple(target for target in pinned if not self._starts_monitor(planned, target)),
        )

    def pin_difference(self, planned: PlannedFamily, target: ScheduledTarget) -> Difference:
        """How the revision of a pinned target differs from the one that the plan ends with.

        The revision that the plan starts from differs by the monitor alone. Raises TaskProfilerError.
        """
        pinned = target.pinned_revision or ""
        if planned.action == "refused" or pinned == planned.revision:
            return "monitor" if planned.is_new_revision else "none"
        return difference(self._pinned_definition(pinned), planned.definition, self.image)

    def _pinned_definition(self, revision: str) -> Mapping[str, object]:
        if revision not in self._pinned:  # many schedules may start one revision, which never changes
            self._pinned[revision] = read_document(self.describe(revision), revision).definition
        return self._pinned[revision]

    def _starts_monitor(self, planned: PlannedFamily, target: ScheduledTarget) -> bool:
        revision = target.pinned_revision or ""
        if planned.document is not None and revision == planned.revision:
            return has_monitor(planned.document.definition, self.image)
        try:
            return has_monitor(self._pinned_definition(revision), self.image)
        except TaskProfilerError:  # the note reports that it cannot be read
            return True

    def _pins(self, planned: PlannedFamily) -> Iterator[tuple[ScheduledTarget, str]]:
        """The targets that are pinned to another revision, each with a note."""
        for target in self.targets:
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
