"""Removes the monitor from a task definition: the inverse of :mod:`profiler.task_definitions.add_monitor`."""

from collections.abc import Mapping

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings
from profiler.task_definitions.containers import PID_MODE_ADDED, PID_MODE_LABEL, find_monitor, read_containers
from profiler.task_definitions.definition_json import ChangedDefinition


def remove_monitor(definition: Mapping[str, object], image: str | None = None) -> ChangedDefinition:
    """Remove the monitor, what depends on it, and the pidMode that was added together with it.

    Args:
        definition: The definition, which does not change.
        image: The monitor's image, if its repository has a name of the user's own.

    Raises:
        TaskProfilerError: if the monitor is the only container, or another program's container has its name.
    """
    containers = read_containers(definition)
    monitor = find_monitor(containers, image)
    if monitor is None:
        return ChangedDefinition(definition=definition)
    if len(containers) == 1:
        raise TaskProfilerError(
            "The monitor is the only container of the task definition, and ECS accepts none without a container: "
            "deregister the definition instead."
        )
    raw = list(mappings(definition.get("containerDefinitions")))
    own = raw.pop(containers.index(monitor))
    notes = [
        f"The container {container.name!r} no longer depends on the monitor."
        for container in containers
        if monitor.name in container.depends_on
    ]
    changed = {**definition, "containerDefinitions": [_independent_of(monitor.name, container) for container in raw]}
    if mapping(own.get("dockerLabels")).get(PID_MODE_LABEL) == PID_MODE_ADDED:
        changed.pop("pidMode", None)
    return ChangedDefinition(definition=changed, notes=tuple(notes), had_monitor=True)


def _independent_of(monitor: str, container: Mapping[str, object]) -> Mapping[str, object]:
    dependencies = list(mappings(container.get("dependsOn")))
    left = [dependency for dependency in dependencies if dependency.get("containerName") != monitor]
    if left == dependencies:
        return container
    without = {name: value for name, value in container.items() if name != "dependsOn"}
    return without | ({"dependsOn": left} if left else {})
