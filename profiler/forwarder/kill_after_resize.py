"""What the forwarder says of a task definition that ``taskdef resize`` has registered: its size
before, and a sentence about a run that was killed for memory after it was reduced.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from profiler.core.command_lines import command_line
from profiler.core.json_fields import mappings, text
from profiler.forwarder.ended_run import EndedTask
from profiler.record.units import format_memory
from profiler.sizing.sized_revision import RESIZED_FROM, size_before
from profiler.task_definitions.containers import task_memory_mb

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)


def reduced_memory(ended: EndedTask, definition: Mapping[str, object] | None) -> str | None:
    """What reduced the memory at which the run was killed, and the command that puts it back.

    ``definition`` has its tags, as ECS returns them. None: the run was not killed for memory, or at
    a size that is not the definition's, or the definition's memory was not reduced by its tag.
    """
    if definition is None or not ended.outcome.ran_out_of_memory:
        return None
    before = size_before(resized_from(definition))
    memory_mb = task_memory_mb(definition)
    if before is None or before.size.memory_mb is None or memory_mb is None:
        return None
    is_at_size = ended.task.memory_mb in (None, memory_mb)
    if not is_at_size or before.size.memory_mb <= memory_mb:
        return None
    change = f"from {format_memory(before.size.memory_mb)} to {format_memory(memory_mb)}"
    command = command_line(
        *("taskdef", "resize", ended.family, "--revert", "--register", "--update-schedules"),
        region=ended.task.region,
    )
    return (
        f"Its memory was reduced {change}{_on_day(definition.get('registeredAt'))}. "
        f"This puts it back: {command}"
    )


def resized_from(definition: Mapping[str, object] | None) -> str | None:
    """The tag in which a definition remembers the size before its resize: ``REVISION/CPU/MEMORY``.

    None without one or for another text.
    """
    if definition is None:
        return None
    for tag in mappings(definition.get("tags")):
        value = text(tag.get("value"))
        if tag.get("key") == RESIZED_FROM and size_before(value) is not None:
            return value
    return None


def _on_day(registered_at: object) -> str:
    """The day in UTC, such as " on 18 November"."""
    if not isinstance(registered_at, datetime):
        return ""
    day = registered_at.astimezone(UTC)
    return f" on {day.day} {_MONTHS[day.month - 1]}"
