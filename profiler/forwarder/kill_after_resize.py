"""What the forwarder says of a task definition that ``taskdef resize`` has registered: its size
before, and a sentence about a run that was killed for memory after it was reduced.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from profiler.core.commands_to_copy import NameArgument, command_line
from profiler.core.json_fields import Json, mapping_or_empty, mappings_in_list, text_or_none
from profiler.core.optional_math import all_known
from profiler.forwarder.ended_run import EndedTask
from profiler.record.batch_job_detail import JobDetail
from profiler.record.units import format_memory
from profiler.sizing.sized_revision import RESIZED_FROM, parse_size_before_tag
from profiler.task_definitions.containers import task_memory_mb

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


class SizeChange(Struct, frozen=True, kw_only=True):
    """What a definition remembers of its resize.

    ``tag``: ``REVISION/CPU/MEMORY`` before it; None without a resize. ``memory_mb``: the
    definition's, None if unknown.
    """

    tag: str | None = None
    old_memory_mb: float | None = None
    memory_mb: float | None = None
    registered_at: object = None


NOT_RESIZED: Final = SizeChange()


def size_change_of_definition(definition: Mapping[str, object]) -> SizeChange:
    """The change of a definition with its tags, as ECS returns them.

    NOT_RESIZED without such a tag, or for another text in it.
    """
    for tag in mappings_in_list(definition.get("tags")):
        value = text_or_none(tag.get("value"))
        before = parse_size_before_tag(value)
        if tag.get("key") == RESIZED_FROM and before is not None:
            return SizeChange(
                tag=value,
                old_memory_mb=before.size.memory_mb,
                memory_mb=task_memory_mb(definition),
                registered_at=definition.get("registeredAt"),
            )
    return NOT_RESIZED


def reduced_memory_sentence(ended: EndedTask, change: SizeChange) -> str | None:
    """What reduced the memory at which the run was killed, and the command that puts it back.

    None: the run was not killed for memory, or at a size that is not the definition's, or the
    definition's memory was not reduced.
    """
    if not ended.outcome.ran_out_of_memory:
        return None
    resize = ("taskdef", "resize", NameArgument(ended.family))
    return _reduced_memory_sentence(change, ended.task.memory_mb, resize, ended.task.region)


def reduced_memory_sentence_of_job(
    job: JobDetail, definition: Mapping[str, Json] | None
) -> str | None:
    """What the message of a job that ran out of memory says of its resized definition, which Batch
    describes so; None without a smaller size.
    """
    # Only for such a job.
    from profiler.task_definitions.job_as_task_definition import described_form

    if definition is None:
        return None
    described = described_form(definition)
    change = size_change_of_definition(
        {**mapping_or_empty(described["taskDefinition"]), "tags": described["tags"]}
    )
    name = job.batch_job_of_attempt().job_definition or ""
    resize = ("taskdef", "resize", "--job-definition", name)
    return _reduced_memory_sentence(change, job.memory_mb, resize, job.region)


def _reduced_memory_sentence(
    change: SizeChange,
    killed_mb: float | None,
    resize: Sequence[str | NameArgument],
    region: str | None,
) -> str | None:
    """What reduced the memory, and the command that puts it back. None: the run was killed at
    another size, or nothing did.
    """
    sizes_mb = all_known(change.old_memory_mb, change.memory_mb)
    if sizes_mb is None:
        return None
    old_mb, memory_mb = sizes_mb
    if killed_mb not in (None, memory_mb) or old_mb <= memory_mb:
        return None
    command = command_line(*resize, "--revert", "--register", "--update-schedules", region=region)
    return (
        f"Its memory was reduced from {format_memory(old_mb)} to {format_memory(memory_mb)}"
        f"{_on_day_text(change.registered_at)}. This puts it back: {command}"
    )


def _on_day_text(registered_at: object) -> str:
    """The day in UTC, such as " on 18 November"."""
    if not isinstance(registered_at, datetime):
        return ""
    day = registered_at.astimezone(UTC)
    return f" on {day.day} {_MONTHS[day.month - 1]}"
