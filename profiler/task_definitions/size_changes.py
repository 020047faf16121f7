"""Sets the size of a task definition. Only ``cpu`` and ``memory`` of the task change."""

import re
from collections.abc import Mapping

from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import TaskSize
from profiler.task_definitions.containers import read_containers, task_memory_mb
from profiler.task_definitions.definition_json import ChangedDefinition

_CPU_UNITS = 1024
_TASK_CPU = re.compile(r"\s*(\d{0,6}\.?\d{1,6})\s*(vcpu)?\s*", re.ASCII | re.IGNORECASE)


def with_size(definition: Mapping[str, object], size: TaskSize) -> ChangedDefinition:
    """Set the task's ``cpu`` and ``memory``; a part of ``size`` that is None, and the containers, do not change.

    An equal size in another notation ("1 vCPU", "2 GB") does not change. Raises TaskProfilerError if the containers do
    not fit into the new size, which ECS would refuse, or if the definition's size is not known here.
    """
    wanted: dict[str, str] = {}
    if size.vcpu is not None:
        units = round(size.vcpu * _CPU_UNITS)
        _check_cpu(definition, units)
        if task_cpu_units(definition) != units:
            wanted["cpu"] = str(units)
    if size.memory_mb is not None:
        _check_memory(definition, size.memory_mb)
        if task_memory_mb(definition) != size.memory_mb:
            wanted["memory"] = f"{size.memory_mb:.0f}"
    present = {"cpu": task_cpu_units(definition), "memory": task_memory_mb(definition)}
    for name, value in wanted.items():
        if present[name] is None and definition.get(name) is not None:
            raise TaskProfilerError(
                f"The task's {name} is {definition[name]}, which only a deployment knows: set {value} at its source."
            )
    return ChangedDefinition(definition=wanted | {**definition} | wanted)


def task_cpu_units(definition: Mapping[str, object]) -> float | None:
    """The task's CPU units, written as ``"1024"`` or ``"1 vCPU"``; None if it has none."""
    match = _TASK_CPU.fullmatch(str(definition.get("cpu")))
    return None if match is None else float(match[1]) * (_CPU_UNITS if match[2] else 1)


def _check_cpu(definition: Mapping[str, object], units: int) -> None:
    reserved = sum(container.cpu_units for container in read_containers(definition))
    if reserved > units:
        raise TaskProfilerError(
            f"The containers reserve {reserved} CPU units, more than the {units} recommended for the task, which ECS "
            "refuses: lower their cpu first."
        )


def _check_memory(definition: Mapping[str, object], memory_mb: float) -> None:
    containers = read_containers(definition)
    for container in containers:
        if container.memory_mb is not None and container.memory_mb > memory_mb:
            raise TaskProfilerError(
                f"The container {container.name!r} has a limit of {container.memory_mb} MiB, above the {memory_mb:.0f} "
                "MiB recommended for the task, which ECS refuses: lower or remove its memory first."
            )
    reserved_mb = sum(container.memory_reservation_mb or container.memory_mb or 0 for container in containers)
    if reserved_mb > memory_mb:
        raise TaskProfilerError(
            f"The containers reserve {reserved_mb} MiB, more than the {memory_mb:.0f} MiB recommended for the task, "
            "which ECS refuses: lower their memory or memoryReservation first."
        )
