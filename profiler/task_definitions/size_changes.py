"""Sets the size of a task definition, lowers its containers' limits where ECS would refuse them,
and raises others.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mappings
from profiler.record.record_model import TaskSize
from profiler.sizing.sized_revision import RESIZED_FROM, REVERTED_FROM, TAG_PREFIX
from profiler.task_definitions.containers import (
    DefinedContainer,
    read_containers,
    roles_of,
    task_memory_mb,
)
from profiler.task_definitions.definition_json import ChangedDefinition

_MAX_TAGS = 50
_CPU_UNITS = 1024
TASK_SIZES = ("cpu", "memory")
CONTAINER_SIZES = ("cpu", "memory", "memoryReservation")
LEAST_CPU_UNITS = 2  # of a container
_TASK_CPU = re.compile(r"\s*(\d{0,6}\.?\d{1,6})\s*(vcpu)?\s*", re.ASCII | re.IGNORECASE)


class SeenMemory(Struct, frozen=True, kw_only=True):
    """By a container's name: the memory that it was seen to need, and the largest own limit at
    which it was killed.
    """

    needs_mb: Mapping[str, float] = {}
    killed_mb: Mapping[str, float] = {}

    def containers(self, definition: Mapping[str, object]) -> tuple[DefinedContainer, ...]:
        """The containers, with raised limits where a run was killed at one."""
        return tuple(map(self._raised, read_containers(definition)))

    def killed_limits(self, definition: Mapping[str, object]) -> Mapping[str, int]:
        """The limits that were too small, by the container's name."""
        pairs = zip(read_containers(definition), self.containers(definition), strict=True)
        return {one.name: one.memory_mb or 0 for one, raised in pairs if one != raised}

    def _raised(self, one: DefinedContainer) -> DefinedContainer:
        if one.memory_mb is None or one.memory_mb > self.killed_mb.get(one.name, 0):
            return one
        return replace(one, memory_mb=math.ceil(self.needs_mb[one.name]))

    def least_mb(self, one: DefinedContainer, defined_mb: int) -> int:
        """The least that a limit or a reservation may be lowered to: what was needed; if that is
        not known, itself.
        """
        return min(defined_mb, math.ceil(self.needs_mb.get(one.name, defined_mb)))

    def task_mb(self, definition: Mapping[str, object]) -> int:
        """The least memory of a task that ECS accepts with these containers.

        The monitor keeps its reservation.
        """
        containers = self.containers(definition)
        own = roles_of(containers).monitor
        reserved = (
            _reserved_mb(one) if one.name == own else self.least_mb(one, _reserved_mb(one))
            for one in containers
        )
        return max(
            sum(reserved),
            *(self.least_mb(one, one.memory_mb or 0) for one in containers if one.name != own),
            0,
        )


_NOTHING_SEEN = SeenMemory()


def with_size(
    definition: Mapping[str, object], size: TaskSize, seen: SeenMemory = _NOTHING_SEEN
) -> ChangedDefinition:
    """Set the task's ``cpu`` and ``memory``; a part of ``size`` that is None does not change.

    Nor does an equal size in another notation ("1 vCPU", "2 GB"). Containers that do not fit are
    lowered, but not the monitor, and no memory below its need. A limit at which a run was killed is
    raised. Raises TaskProfilerError if they do not fit then, or if only a deployment knows the
    definition's size.
    """
    units = None if size.vcpu is None else round(size.vcpu * _CPU_UNITS)
    memory_mb = None if size.memory_mb is None else math.floor(size.memory_mb)
    present = {"cpu": task_cpu_units(definition), "memory": task_memory_mb(definition)}
    given = {"cpu": units, "memory": memory_mb}
    wanted = {
        name: str(value)
        for name, value in given.items()
        if value is not None and value != present[name]
    }
    for name, value in wanted.items():
        if present[name] is None and definition.get(name) is not None:
            raise TaskProfilerError(
                f"The task's {name} is {definition[name]}, which only a deployment knows: set "
                f"{value} at its source."
            )
    changes: dict[str, dict[str, int]] = {
        container.name: {} for container in read_containers(definition)
    }
    if units is not None:
        for name, cpu_units in _cpu_changes(definition, units):
            changes[name]["cpu"] = cpu_units
    task_mb = present["memory"] if memory_mb is None else memory_mb
    if task_mb is not None:
        _check_fits(seen.task_mb(definition), math.floor(task_mb), "MiB")
        for name, memory in _memory_changes(definition, math.floor(task_mb), seen):
            changes[name] |= memory
    raw = list(mappings(definition.get("containerDefinitions")))
    notes = tuple(
        f"The {field} of {one.get('name')!r} is "
        + (
            f"lowered from {one[field]} to {value}, because ECS refuses more."
            if value < float(str(one[field]))
            else f"raised from {one[field]} to {value}, because a run was killed at this limit."
        )
        for one in raw
        for field, value in changes[str(one.get("name") or "")].items()
    )
    changed = wanted | {**definition} | wanted
    if notes:
        changed["containerDefinitions"] = [
            one | changes[str(one.get("name") or "")] for one in map(dict, raw)
        ]
    return ChangedDefinition(definition=changed, notes=notes, changes=notes)


def _cpu_changes(definition: Mapping[str, object], units: int) -> Iterator[tuple[str, int]]:
    containers = read_containers(definition)
    own = roles_of(containers).monitor
    others = {one.name: one.cpu_units for one in containers if one.name != own and one.cpu_units}
    of_monitor = sum(one.cpu_units for one in containers if one.name == own)
    least = {name: min(amount, LEAST_CPU_UNITS) for name, amount in others.items()}
    _check_fits(sum(least.values()) + of_monitor, units, "CPU units")
    fitting = _fitting(others, least, units - of_monitor)
    yield from ((name, amount) for name, amount in fitting.items() if amount != others[name])


def _memory_changes(
    definition: Mapping[str, object], memory_mb: int, seen: SeenMemory
) -> Iterator[tuple[str, dict[str, int]]]:
    """The limits and reservations that change, by the container's name."""
    containers = seen.containers(definition)
    own = roles_of(containers).monitor
    others = [one for one in containers if one.name != own]
    reserved = {one.name: _reserved_mb(one) for one in others}
    least = {one.name: seen.least_mb(one, reserved[one.name]) for one in others}
    of_monitor = sum(_reserved_mb(one) for one in containers if one.name == own)
    fitting = _fitting(reserved, least, memory_mb - of_monitor)
    present = {one.name: one for one in read_containers(definition)}
    for one in others:
        limit_mb = None if one.memory_mb is None else min(one.memory_mb, memory_mb)
        if one.memory_reservation_mb is None and limit_mb is not None:
            limit_mb = min(limit_mb, fitting[one.name])
        was = {
            "memory": present[one.name].memory_mb,
            "memoryReservation": one.memory_reservation_mb,
        }
        new = {
            "memory": limit_mb,
            "memoryReservation": one.memory_reservation_mb and fitting[one.name],
        }
        yield (
            one.name,
            {
                name: value
                for name, value in new.items()
                if value is not None and value != was[name]
            },
        )


def _reserved_mb(container: DefinedContainer) -> int:
    return container.memory_reservation_mb or container.memory_mb or 0


def _check_fits(least: int, given: int, unit: str) -> None:
    if least > given:
        raise TaskProfilerError(
            f"The containers need {least} {unit}, more than the task's {given}, which ECS "
            "refuses: lower what they reserve."
        )


def _fitting(
    amounts: Mapping[str, int], least: Mapping[str, int], available: int
) -> Mapping[str, int]:
    """The amounts with one upper limit for all of them, so that their sum is available.

    The least ones fit.
    """

    def limited(limit: int) -> dict[str, int]:
        return {name: max(min(amount, limit), least[name]) for name, amount in amounts.items()}

    limit = bisect_right(
        range(max(amounts.values(), default=0) + 1),
        available,
        key=lambda one: sum(limited(one).values()),
    )
    return limited(limit - 1)


def with_size_of(
    definition: Mapping[str, object], old: Mapping[str, object]
) -> Mapping[str, object]:
    """Give the definition the size of an old revision, and the limits that its containers had
    there.
    """
    limits = {
        one.get("name"): _only(one, CONTAINER_SIZES)
        for one in mappings(old.get("containerDefinitions"))
    }
    containers = [
        _without(one, CONTAINER_SIZES) | limits.get(one.get("name"), _only(one, CONTAINER_SIZES))
        for one in mappings(definition.get("containerDefinitions"))
    ]
    size = _only(old, TASK_SIZES)
    return {**definition, **size, "containerDefinitions": containers}


def with_size_tag(definition: Mapping[str, object], key: str, value: str) -> Mapping[str, object]:
    """Remember the size before in a tag, beside one that has failed.

    Raises TaskProfilerError for too many tags.
    """
    tags = [
        tag for tag in mappings(definition.get("tags")) if tag.get("key") not in (RESIZED_FROM, key)
    ]
    if len(tags) >= _MAX_TAGS:
        raise TaskProfilerError(
            f"It has {_MAX_TAGS} tags, so the tag {key} cannot be added: remove a tag."
        )
    return {**definition, "tags": [*tags, {"key": key, "value": value}]}


def _only(value: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name in names}


def without_size(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The definition without its size, the containers' limits and reservations, and the tags
    about a size.
    """
    containers = [
        _without(one, CONTAINER_SIZES) for one in mappings(definition.get("containerDefinitions"))
    ]
    tags = [
        tag
        for tag in mappings(definition.get("tags"))
        if not str(tag.get("key")).startswith(TAG_PREFIX)
    ]
    return {
        **_without(definition, TASK_SIZES),
        "containerDefinitions": containers,
        "tags": tags,
    }


def without_size_tags(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The definition without the tags in which a revision remembers the size before."""
    tags = [
        tag
        for tag in mappings(definition.get("tags"))
        if tag.get("key") not in (RESIZED_FROM, REVERTED_FROM)
    ]
    return {**definition, "tags": tags}


def _without(value: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name not in names}


def task_cpu_units(definition: Mapping[str, object]) -> float | None:
    """The task's CPU units, written as ``"1024"`` or ``"1 vCPU"``; None if it has none."""
    match = _TASK_CPU.fullmatch(str(definition.get("cpu")))
    if match is None:
        return None
    return float(match[1]) * (_CPU_UNITS if match[2] else 1)


def definition_size(definition: Mapping[str, object]) -> TaskSize:
    """The size of a definition or of a task, of which each part may be unknown."""
    units = task_cpu_units(definition)
    return TaskSize(
        vcpu=units / _CPU_UNITS if units else None, memory_mb=task_memory_mb(definition)
    )
