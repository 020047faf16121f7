"""Takes a size of a job definition back by deregistering our revision, so that jobs get the one
before it again.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from profiler.aws_account.planned_family import PlannedFamily
from profiler.aws_account.registered_definitions import revision_of
from profiler.aws_account.registered_job_definitions import JobDefinitions
from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.ecs_terms import revision_text
from profiler.core.errors import TaskProfilerError
from profiler.sizing.sized_revision import (
    RESIZED_FROM,
    REVERTED_FROM,
    SizeBefore,
    parse_size_before_tag,
)
from profiler.task_definitions.definition_difference import difference
from profiler.task_definitions.definition_json import read_described
from profiler.task_definitions.size_changes import definition_size


def plan_uncovering(
    planned: PlannedFamily,
    jobs: JobDefinitions,
    starting: Iterable[ScheduledTarget],
    *,
    are_states_known: bool,
) -> PlannedFamily:
    """The plan of a revert by deregistration, where this alone changes the size: the revision that
    ours replaced is the newest active one but for ours, and the same but for the size. Else, and if
    a schedule, a rule or a state (``starting``: all that could be read) is pinned to ours, or a
    state that could not be read may be, a revert is a new revision.
    """
    before = parse_size_before_tag(planned.document.tags.get(RESIZED_FROM))
    is_pinned = any(
        target.is_pin_of(planned.revision_arn) and target.pinned_revision == planned.revision
        for target in starting
    )
    if before is None or is_pinned:
        return planned
    try:
        older_arn = jobs.active_before(planned.revision_arn)
        if not older_arn or revision_text(older_arn) != before.revision:
            return planned
        name = revision_of(older_arn) or ""
        older = read_described(jobs.describe, name).definition
    except TaskProfilerError:  # a new revision needs none of this
        return planned
    changed = planned.document.definition
    is_same = difference(older, changed, part="size") in ("none", "size")
    if not is_same or definition_size(older) != before.size:
        return planned
    if not are_states_known:
        note = (
            f"{planned.revision} stays registered, because state machines that could not be read "
            "may start it."
        )
        return replace(planned, notes=(*planned.notes, note))
    note = f"{planned.revision} is deregistered, so that {name} is the newest again."
    return replace(planned, uncovered_arn=older_arn, notes=(*planned.notes, note))


def restore_older_revision(planned: PlannedFamily, older_arn: str, jobs: JobDefinitions) -> None:
    """Carry the plan out: the older revision remembers the size that has failed.

    Raises TaskProfilerError.
    """
    failed = SizeBefore(
        revision=revision_text(planned.revision),
        size=definition_size(planned.document.definition),
    )
    jobs.reinstate_older(planned.revision_arn, older_arn, REVERTED_FROM, failed.tag_value)
