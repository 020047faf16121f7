"""The file of sizes that definitions in code read: one JSON object, by family.

A family keeps its member until its size changes, because a definition may have no other source of
its size.
"""

import json
from collections.abc import Mapping

from msgspec import Struct

from profiler.core.ecs_terms import CPU_UNITS
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty, mappings_in_list
from profiler.core.optional_math import known
from profiler.record.record_model import TaskSize
from profiler.record.units import rounded_number
from profiler.sizing.fargate_sizes import LEGAL_SIZES, Size
from profiler.task_definitions.job_as_task_definition import is_job_definition, is_on_fargate
from profiler.task_definitions.json_yaml_tree import read_json
from profiler.task_definitions.size_changes import CONTAINER_SIZES, definition_size

# Of a member. ``containers`` has those that ECS would refuse beside the new size, or that change.
_CPU = "cpu"
_MEMORY = "memory"
_CONTAINERS = "containers"
_WHY = "why"


class SizesFile(Struct, frozen=True, kw_only=True):
    """The members of a file, by family."""

    members: Mapping[str, Mapping[str, object]] = {}

    def size_of(self, family: str) -> TaskSize | None:
        """The size of a family; None if the file has none."""
        member = self.members.get(family)
        return known(definition_size, member)

    def with_size(self, family: str, sizes: Mapping[str, object], why: str) -> "SizesFile":
        """The file with other sizes of a family. What else the family's member has is kept."""
        member = self.members.get(family, {})
        changed = {**member, **sizes, _WHY: why}
        containers = {**mapping_or_empty(member.get(_CONTAINERS))}
        for name, fields in mapping_or_empty(sizes.get(_CONTAINERS)).items():
            containers[name] = {
                **mapping_or_empty(containers.get(name)),
                **mapping_or_empty(fields),
            }
        if containers:
            changed[_CONTAINERS] = containers
        return SizesFile(members={**self.members, family: changed})

    def has_sizes(self, family: str, sizes: Mapping[str, object]) -> bool:
        """Whether the file has these sizes of a family already."""
        same = self.with_size(family, sizes, why="").members[family]
        return {**same, _WHY: None} == {**self.members.get(family, {}), _WHY: None}

    @property
    def file_content(self) -> bytes:
        """The file, in the order of the families' names."""
        text = json.dumps(self.members, indent=2, sort_keys=True, ensure_ascii=False)
        return f"{text}\n".encode(errors="surrogatepass")  # as it was read


def read_sizes(data: bytes, source_name: str) -> SizesFile:
    """Read the file. Raises TaskProfilerError for one that is something else."""
    value = read_json(data, source_name)
    if not isinstance(value, dict):
        raise _not_sizes_error(source_name, "it is no object")
    for family, member in value.items():
        sizes = [mapping_or_empty(member).get(name) for name in (_CPU, _MEMORY)]
        if not all(type(size) is int and size > 0 for size in sizes):
            raise _not_sizes_error(source_name, f"{family!r} has no whole numbers cpu and memory")
    return SizesFile(members=value)


def _not_sizes_error(source_name: str, reason: str) -> TaskProfilerError:
    return TaskProfilerError(
        f"{source_name} is not a file of sizes, because {reason}: name a file that --write-sizes "
        "has written, or a new one."
    )


def source_sizes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    """The CPU units and the memory of a changed definition, and the sizes of its containers that
    have changed. Raises TaskProfilerError for a size that Fargate does not have.
    """
    size = definition_size(after)
    can_have_any = is_job_definition(after) and not is_on_fargate(after)
    if not can_have_any and Size(size.vcpu or 0, size.memory_mb or 0) not in LEGAL_SIZES:
        raise TaskProfilerError(
            f"Fargate has no size with cpu {after.get(_CPU)} and memory {after.get(_MEMORY)}: set "
            "the size by hand."
        )
    sizes: dict[str, object] = {
        _CPU: rounded_number((size.vcpu or 0) * CPU_UNITS),
        _MEMORY: rounded_number(size.memory_mb),
    }
    containers = _changed_containers(before, after)
    if containers:
        sizes[_CONTAINERS] = containers
    return sizes


def _changed_containers(
    before: Mapping[str, object], after: Mapping[str, object]
) -> dict[str, dict[str, object]]:
    """The sizes of containers that differ, by the container's name and the field's."""
    changed: dict[str, dict[str, object]] = {}
    pairs = zip(
        mappings_in_list(before.get("containerDefinitions")),
        mappings_in_list(after.get("containerDefinitions")),
        strict=True,
    )
    for old, new in pairs:
        for name in CONTAINER_SIZES:
            if new.get(name) not in (None, old.get(name)):
                changed.setdefault(str(new.get("name")), {})[name] = new[name]
    return changed
