"""Sets the size of a task definition, lowers its containers' limits where ECS would refuse them,
and raises others.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import CPU_UNITS
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mappings_in_list
from profiler.core.optional_math import first_known, known, known_members, product
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
TASK_SIZES = ("cpu", "memory")
CONTAINER_SIZES = ("cpu", "memory", "memoryReservation")
LEAST_CPU_UNITS = 2  # of a container
_LEAST_MB = 6  # Docker starts no container with less
_TASK_CPU = re.compile(r"\s*(\d{0,6}\.?\d{1,6})\s*(vcpu)?\s*", re.ASCII | re.IGNORECASE)


class SeenMemory(Struct, frozen=True, kw_only=True):
    """What containers were seen to need, by name: their memory, the memory with their mapped
    files, and the largest limit of its own at which one was killed.
    """

    needs_mb: Mapping[str, float] = {}
    held_mb: Mapping[str, float] = {}
    killed_mb: Mapping[str, float] = {}

    def containers_with_raised_limits(
        self, definition: Mapping[str, object]
    ) -> tuple[DefinedContainer, ...]:
        """The containers, with raised limits where a run was killed at one."""
        return tuple(map(self._with_needed_limit, read_containers(definition)))

    def killed_limits(self, definition: Mapping[str, object]) -> Mapping[str, int]:
        """The limits that were too small, by the container's name."""
        limits_mb = {}
        for container in read_containers(definition):
            if container != self._with_needed_limit(container):
                limits_mb[container.name] = container.memory_mb or 0
        return limits_mb

    def _with_needed_limit(self, container: DefinedContainer) -> DefinedContainer:
        """The container with the limit that it needs, if a run was killed at its own limit."""
        limit_mb = first_known(container.memory_mb, math.inf)
        if limit_mb > self.killed_mb.get(container.name, 0):
            return container
        return replace(container, memory_mb=math.ceil(self.needs_mb[container.name]))

    def least_mb(self, container: DefinedContainer, defined_mb: int) -> int:
        """The least that a limit or a reservation may be lowered to: what was needed, what it had
        with its mapped files, and what Docker needs; if the need is not known, itself.
        """
        needed_mb = math.ceil(self.needs_mb.get(container.name, defined_mb))
        held_mb = math.ceil(self.held_mb.get(container.name, 0))
        return min(defined_mb, max(needed_mb, held_mb, _LEAST_MB))

    def task_mb(self, definition: Mapping[str, object]) -> int:
        """The least memory of a task that ECS accepts with these containers.

        The monitor keeps its reservation and its limit.
        """
        containers = self.containers_with_raised_limits(definition)
        own = roles_of(containers).monitor
        reserved_mb = 0
        largest_limit_mb = 0
        for container in containers:
            if container.name == own:
                reserved_mb += _reserved_mb(container)
                largest_limit_mb = max(largest_limit_mb, container.memory_mb or 0)
                continue
            reserved_mb += self.least_mb(container, _reserved_mb(container))
            limit_mb = self.least_mb(container, container.memory_mb or 0)
            largest_limit_mb = max(largest_limit_mb, limit_mb)
        return max(reserved_mb, largest_limit_mb)


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
    wanted = _wanted_size(definition, size)
    changes: dict[str, dict[str, int]] = {
        container.name: {} for container in read_containers(definition)
    }
    if size.vcpu is not None:
        for name, cpu_units in _cpu_changes(definition, round(size.vcpu * CPU_UNITS)):
            changes[name]["cpu"] = cpu_units
    task_mb = first_known(size.memory_mb, task_memory_mb(definition))
    if task_mb is not None:
        _check_fits(seen.task_mb(definition), math.floor(task_mb), "MiB")
        for name, limits_mb in _memory_changes(definition, math.floor(task_mb), seen):
            changes[name] |= limits_mb
    containers = []
    notes = []
    for container in mappings_in_list(definition.get("containerDefinitions")):
        container_changes = changes[str(container.get("name") or "")]
        containers.append({**container, **container_changes})
        for field, value in container_changes.items():
            notes.append(_change_note(container, field, value))
    # A new size is first, and a present one keeps its place.
    changed = wanted | {**definition} | wanted
    if notes:
        changed["containerDefinitions"] = containers
    return ChangedDefinition(definition=changed, notes=tuple(notes), changes=tuple(notes))


def _wanted_size(definition: Mapping[str, object], size: TaskSize) -> dict[str, object]:
    """The fields of the task's size that change.

    Raises TaskProfilerError if only a deployment knows the present value.
    """
    present = {"cpu": task_cpu_units(definition), "memory": task_memory_mb(definition)}
    cpu_units = known(round, product(size.vcpu, CPU_UNITS))
    given = {"cpu": cpu_units, "memory": known(math.floor, size.memory_mb)}
    wanted: dict[str, object] = {}
    for name, value in known_members(given).items():
        if value == present[name]:
            continue
        if present[name] is None and definition.get(name) is not None:
            raise TaskProfilerError(
                f"The task's {name} is {definition[name]}, which only a deployment knows: set "
                f"{value} at its source."
            )
        wanted[name] = str(value)
    return wanted


def _change_note(container: Mapping[str, object], field: str, value: int) -> str:
    """The sentence about a container's value that changes with the task's size."""
    old = container[field]
    subject = f"The {field} of {container.get('name')!r}"
    unit = "CPU units" if field == "cpu" else "MiB"
    if value < float(str(old)):
        return f"{subject} is lowered from {old} to {value} {unit}, because ECS refuses more."
    return (
        f"{subject} is raised from {old} to {value} {unit}, because a run was killed at this limit."
    )


def _cpu_changes(definition: Mapping[str, object], units: int) -> Iterator[tuple[str, int]]:
    """The CPU units that change, by the container's name. The monitor keeps its own."""
    containers = read_containers(definition)
    own = roles_of(containers).monitor
    present: dict[str, int] = {}
    of_monitor = 0
    for container in containers:
        if container.name == own:
            of_monitor += container.cpu_units
        elif container.cpu_units:
            present[container.name] = container.cpu_units
    least = {name: min(amount, LEAST_CPU_UNITS) for name, amount in present.items()}
    _check_fits(sum(least.values()) + of_monitor, units, "CPU units")
    for name, amount in _amounts_lowered_in_proportion(present, least, units - of_monitor).items():
        if amount != present[name]:
            yield name, amount


def _memory_changes(
    definition: Mapping[str, object], memory_mb: int, seen: SeenMemory
) -> Iterator[tuple[str, dict[str, int]]]:
    """The limits and reservations that change, by the container's name."""
    containers = seen.containers_with_raised_limits(definition)
    own = roles_of(containers).monitor
    reserved: dict[str, int] = {}
    least: dict[str, int] = {}
    of_monitor = 0
    for container in containers:
        if container.name == own:
            of_monitor += _reserved_mb(container)
            continue
        reserved[container.name] = _reserved_mb(container)
        least[container.name] = seen.least_mb(container, reserved[container.name])
    fitting = _amounts_within_limit(reserved, least, memory_mb - of_monitor)
    # The containers as they are defined, beside those with raised limits.
    for present, container in zip(read_containers(definition), containers, strict=True):
        if container.name == own:
            continue
        changes: dict[str, int] = {}
        reservation_mb = container.memory_reservation_mb
        limit_mb = container.memory_mb
        fitting_mb = fitting[container.name]
        if limit_mb is not None:
            limit_mb = min(limit_mb, memory_mb)
            if reservation_mb is None:
                limit_mb = min(limit_mb, fitting_mb)
            if limit_mb != present.memory_mb:
                changes["memory"] = limit_mb
        if reservation_mb not in (None, fitting_mb):
            changes["memoryReservation"] = fitting_mb
        yield container.name, changes


def _reserved_mb(container: DefinedContainer) -> int:
    return container.memory_reservation_mb or container.memory_mb or 0


def _check_fits(least: int, given: int, unit: str) -> None:
    if least > given:
        raise TaskProfilerError(
            f"The containers need {least} {unit}, more than the task's {given}, which ECS "
            "refuses: lower what they reserve."
        )


def _amounts_within_limit(
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
        key=lambda limit: sum(limited(limit).values()),
    )
    return limited(limit - 1)


def _amounts_lowered_in_proportion(
    amounts: Mapping[str, int], least: Mapping[str, int], available: int
) -> Mapping[str, int]:
    """The amounts, all lowered by the same factor if their sum is not available: shares of the CPU
    count only in relation to each other.

    The least ones fit, and no amount is lowered further.
    """
    lowered = dict(amounts)
    at_least: set[str] = set()
    while True:
        rest = sum(amount for name, amount in amounts.items() if name not in at_least)
        fixed = sum(least[name] for name in at_least)
        if rest + fixed <= available:
            return lowered
        for name, amount in amounts.items():
            if name not in at_least:
                lowered[name] = amount * (available - fixed) // rest
        too_low = {name for name in amounts.keys() - at_least if lowered[name] < least[name]}
        if not too_low:
            return lowered
        at_least |= too_low
        lowered.update({name: least[name] for name in too_low})


def with_size_of(
    definition: Mapping[str, object], old: Mapping[str, object]
) -> Mapping[str, object]:
    """Give the definition the size of an old revision, and the limits that its containers had
    there.
    """
    old_limits = {}
    for container in mappings_in_list(old.get("containerDefinitions")):
        old_limits[container.get("name")] = _with_only_members(container, CONTAINER_SIZES)
    containers = []
    for container in mappings_in_list(definition.get("containerDefinitions")):
        limits = old_limits.get(
            container.get("name"), _with_only_members(container, CONTAINER_SIZES)
        )
        containers.append(_without_members(container, CONTAINER_SIZES) | limits)
    return {**definition, **_with_only_members(old, TASK_SIZES), "containerDefinitions": containers}


def with_size_tag(definition: Mapping[str, object], key: str, value: str) -> Mapping[str, object]:
    """Remember the size before in a tag, beside one that has failed.

    Raises TaskProfilerError for too many tags.
    """
    without_old = {**definition, "tags": _tags_without(definition, (RESIZED_FROM,))}
    return with_tag(without_old, key, value)


def with_tag(definition: Mapping[str, object], key: str, value: str) -> Mapping[str, object]:
    """The definition with the tag. Raises TaskProfilerError for too many tags."""
    tags = _tags_without(definition, (key,))
    if len(tags) >= _MAX_TAGS:
        raise TaskProfilerError(
            f"It has {_MAX_TAGS} tags, so the tag {key} cannot be added: remove a tag."
        )
    return {**definition, "tags": [*tags, {"key": key, "value": value}]}


def _with_only_members(value: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name in names}


def without_size(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The definition without its size, the containers' limits and reservations, and the tags
    about a size.
    """
    containers = []
    for container in mappings_in_list(definition.get("containerDefinitions")):
        containers.append(_without_members(container, CONTAINER_SIZES))
    tags = []
    for tag in mappings_in_list(definition.get("tags")):
        if not str(tag.get("key")).startswith(TAG_PREFIX):
            tags.append(tag)
    return {
        **_without_members(definition, TASK_SIZES),
        "containerDefinitions": containers,
        "tags": tags,
    }


def without_size_tags(definition: Mapping[str, object]) -> Mapping[str, object]:
    """The definition without the tags in which a revision remembers the size before."""
    return {**definition, "tags": _tags_without(definition, (RESIZED_FROM, REVERTED_FROM))}


def _tags_without(
    definition: Mapping[str, object], keys: Collection[str]
) -> list[Mapping[str, object]]:
    return [tag for tag in mappings_in_list(definition.get("tags")) if tag.get("key") not in keys]


def _without_members(value: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name not in names}


def task_cpu_units(definition: Mapping[str, object]) -> float | None:
    """The task's CPU units, written as ``"1024"`` or ``"1 vCPU"``; None if it has none."""
    match = _TASK_CPU.fullmatch(str(definition.get("cpu")))
    if not match:
        return None
    if match[2]:
        return float(match[1]) * CPU_UNITS
    return float(match[1])


def definition_size(definition: Mapping[str, object]) -> TaskSize:
    """The size of a definition or of a task, of which each part may be unknown."""
    units = task_cpu_units(definition)
    return TaskSize(vcpu=units / CPU_UNITS if units else None, memory_mb=task_memory_mb(definition))
