"""The plan for many families: what changes in each, or why nothing does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.aws_account.started_tasks import AIRFLOW, starter_notes
from profiler.task_definitions.add_monitor import AddMonitorOptions, add_monitor, default_image_note, log_group_note
from profiler.task_definitions.containers import has_own_report_stream, own_log_group
from profiler.task_definitions.definition_json import TaskDefinitionDocument
from profiler.task_definitions.monitor_container import default_image
from profiler.task_definitions.permissions import report_streams
from profiler.task_definitions.remove_monitor import remove_monitor

Action = Literal[
    "add monitor", "update monitor", "up to date", "remove monitor", "no monitor", "skipped", "refused", "failed"
]


class PlannedFamily(Struct, frozen=True, kw_only=True):
    """One family of the plan.

    ``notes`` contain the reason if nothing can be done. ``document`` is the revision that the plan starts from, None if
    it cannot be read, and ``definition`` what it ends with. ``started_by`` is empty if no task was seen. ``streams``
    are the ARNs of the log streams that the task role must allow. ``log_group`` is the one of the monitor's own stream;
    None: it uses the batch's. ``pinned`` targets start another revision than the plan's last, and ``unmonitored`` are
    those of them without a monitor.
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
        return self.action in ("add monitor", "update monitor", "remove monitor")

    @property
    def revision_arn(self) -> str:
        """Of the revision that the plan starts from; empty without one."""
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
