"""Sets the size of a task definition, and lowers what ECS would refuse with it: larger limits of its containers."""

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mappings
from profiler.record.record_model import TaskSize
from profiler.task_definitions.containers import DefinedContainer, read_containers, roles_of, task_memory_mb
from profiler.task_definitions.definition_json import ChangedDefinition

# The tags in which a revision remembers the size before.
TAG_PREFIX = "task-profiler:"
RESIZED_FROM, REVERTED_FROM = f"{TAG_PREFIX}resized-from", f"{TAG_PREFIX}reverted-from"
_MAX_TAGS = 50
_CPU_UNITS = 1024
_CONTAINER_SIZES = ("cpu", "memory", "memoryReservation")
_LEAST_CPU_UNITS = 2  # of a container
_TASK_CPU = re.compile(r"\s*(\d{0,6}\.?\d{1,6})\s*(vcpu)?\s*", re.ASCII | re.IGNORECASE)


def with_size(
    definition: Mapping[str, object], size: TaskSize, needs_mb: Mapping[str, float] | None = None
) -> ChangedDefinition:
    """Set the task's ``cpu`` and ``memory``; a part of ``size`` that is None does not change.

    An equal size in another notation ("1 vCPU", "2 GB") does not change. Containers that do not fit are lowered, but
    not the monitor, and no memory below ``needs_mb``, by the container's name. The memory of others stays. Raises
    TaskProfilerError if they do not fit then, or if the definition's size is not known here.
    """
    wanted: dict[str, str] = {}
    units = None if size.vcpu is None else round(size.vcpu * _CPU_UNITS)
    memory_mb = None if size.memory_mb is None else math.floor(size.memory_mb)
    if units is not None and task_cpu_units(definition) != units:
        wanted["cpu"] = str(units)
    if memory_mb is not None and task_memory_mb(definition) != memory_mb:
        wanted["memory"] = str(memory_mb)
    present = {"cpu": task_cpu_units(definition), "memory": task_memory_mb(definition)}
    for name, value in wanted.items():
        if present[name] is None and definition.get(name) is not None:
            raise TaskProfilerError(
                f"The task's {name} is {definition[name]}, which only a deployment knows: set {value} at its source."
            )
    containers = read_containers(definition)
    own = roles_of(containers).monitor
    lowered: dict[str, dict[str, int]] = {container.name: {} for container in containers}
    if units is not None:
        for name, cpu_units in _lowered_cpu(containers, own, units):
            lowered[name]["cpu"] = cpu_units
    if memory_mb is not None:
        for name, changes in _lowered_memory(containers, own, memory_mb, needs_mb or {}):
            lowered[name] |= changes
    raw = list(mappings(definition.get("containerDefinitions")))
    notes = tuple(
        f"The {field} of {one.get('name')!r} is lowered from {one.get(field)} to {value}, because ECS refuses more."
        for one in raw
        for field, value in lowered[str(one.get("name") or "")].items()
    )
    changed = wanted | {**definition} | wanted
    if notes:
        changed["containerDefinitions"] = [one | lowered[str(one.get("name") or "")] for one in map(dict, raw)]
    return ChangedDefinition(definition=changed, notes=notes, changes=notes)


def _lowered_cpu(containers: Sequence[DefinedContainer], own: str | None, units: int) -> Iterator[tuple[str, int]]:
    others = {one.name: one.cpu_units for one in containers if one.name != own and one.cpu_units}
    available = units - sum(one.cpu_units for one in containers if one.name == own)
    fitting = _fitting(others, {name: min(amount, _LEAST_CPU_UNITS) for name, amount in others.items()}, available)
    if fitting is None:
        raise TaskProfilerError(
            f"The containers reserve {sum(others.values())} CPU units, more than the {units} recommended for the task, "
            "which ECS refuses: lower their cpu first."
        )
    yield from ((name, amount) for name, amount in fitting.items() if amount != others[name])


def _lowered_memory(
    containers: Sequence[DefinedContainer], own: str | None, memory_mb: int, needs_mb: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, int]]]:
    """The limits and reservations that change, by the container's name."""
    others = [one for one in containers if one.name != own]
    for one in others:
        if one.memory_mb is not None and one.memory_mb > memory_mb and one.name not in needs_mb:
            raise TaskProfilerError(
                f"The container {one.name!r} has a limit of {one.memory_mb} MiB, above the {memory_mb} MiB recommended "
                "for the task, which ECS refuses: lower or remove its memory first."
            )
    reserved = {one.name: _reserved_mb(one) for one in others}
    floors = {name: min(amount, math.ceil(needs_mb.get(name, amount))) for name, amount in reserved.items()}
    of_monitor = sum(_reserved_mb(one) for one in containers if one.name == own)
    fitting = _fitting(reserved, floors, memory_mb - of_monitor)
    if fitting is None:
        total = sum(reserved.values()) + of_monitor
        raise TaskProfilerError(
            f"The containers reserve {total} MiB, more than the {memory_mb} MiB recommended for the task, which ECS "
            "refuses: lower their memory or memoryReservation first."
        )
    for one in others:
        limit_mb = None if one.memory_mb is None else min(one.memory_mb, memory_mb)
        if one.memory_reservation_mb is None and limit_mb is not None:
            limit_mb = min(limit_mb, fitting[one.name])
        present = {"memory": one.memory_mb, "memoryReservation": one.memory_reservation_mb}
        new = {"memory": limit_mb, "memoryReservation": one.memory_reservation_mb and fitting[one.name]}
        yield one.name, {name: value for name, value in new.items() if value is not None and value != present[name]}


def _reserved_mb(container: DefinedContainer) -> int:
    return container.memory_reservation_mb or container.memory_mb or 0


def _fitting(amounts: Mapping[str, int], floors: Mapping[str, int], available: int) -> Mapping[str, int] | None:
    """The amounts with one upper limit for all of them, so that their sum is available; None if the floors are more."""

    def limited(limit: int) -> dict[str, int]:
        return {name: max(min(amount, limit), floors[name]) for name, amount in amounts.items()}

    limit = bisect_right(
        range(max(amounts.values(), default=0) + 1), available, key=lambda one: sum(limited(one).values())
    )
    return None if limit == 0 else limited(limit - 1)


def with_size_of(definition: Mapping[str, object], old: Mapping[str, object]) -> ChangedDefinition:
    """Give the definition the size of an old revision, and the limits that its containers had there."""
    limits = {one.get("name"): _only(one, _CONTAINER_SIZES) for one in mappings(old.get("containerDefinitions"))}
    containers = [
        _without(one, _CONTAINER_SIZES) | limits.get(one.get("name"), _only(one, _CONTAINER_SIZES))
        for one in mappings(definition.get("containerDefinitions"))
    ]
    size = _only(old, ("cpu", "memory"))
    return ChangedDefinition(definition={**definition, **size, "containerDefinitions": containers})


def with_size_tag(definition: Mapping[str, object], key: str, value: str) -> Mapping[str, object]:
    """Remember the size before in a tag, in place of an earlier one. Raises TaskProfilerError if there are too many."""
    tags = [tag for tag in mappings(definition.get("tags")) if tag.get("key") not in (RESIZED_FROM, REVERTED_FROM)]
    if len(tags) >= _MAX_TAGS:
        raise TaskProfilerError(f"It has {_MAX_TAGS} tags, so the tag {key} cannot be added: remove a tag.")
    return {**definition, "tags": [*tags, {"key": key, "value": value}]}


def _only(value: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name in names}


def without_size(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The definition without its size, the containers' limits and reservations, and the tags about a size."""
    containers = [_without(one, _CONTAINER_SIZES) for one in mappings(definition.get("containerDefinitions"))]
    tags = [tag for tag in mappings(definition.get("tags")) if not str(tag.get("key")).startswith(TAG_PREFIX)]
    return {**_without(definition, ("cpu", "memory")), "containerDefinitions": containers, "tags": tags}


def _without(value: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name not in names}


def task_cpu_units(definition: Mapping[str, object]) -> float | None:
    """The task's CPU units, written as ``"1024"`` or ``"1 vCPU"``; None if it has none."""
    match = _TASK_CPU.fullmatch(str(definition.get("cpu")))
    return None if match is None else float(match[1]) * (_CPU_UNITS if match[2] else 1)
