"""Removes the monitor from a task definition, and compares definitions without it: are they the same job?"""

from collections.abc import Mapping
from typing import Literal

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings
from profiler.task_definitions.containers import find_monitor, read_containers
from profiler.task_definitions.definition_json import ChangedDefinition
from profiler.task_definitions.monitor_container import PID_MODE_ADDED, PID_MODE_LABEL

Difference = Literal["none", "monitor", "other"]

# Lists whose order has no meaning, and the field that identifies an item. ECS may return them in another order.
_NAMED = {"environment": "name", "secrets": "name", "tags": "key"}


def remove_monitor(definition: Mapping[str, object], image: str | None = None) -> ChangedDefinition:
    """Remove the monitor, what depends on it, and the pidMode that was added together with it.

    ``image`` is the monitor's, if its repository has a name of the user's own. Raises TaskProfilerError if another
    program's container has the monitor's name.
    """
    containers = read_containers(definition)
    monitor = find_monitor(containers, image)
    if monitor is None:
        return ChangedDefinition(definition=definition)
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


def difference(first: Mapping[str, object], second: Mapping[str, object], image: str | None = None) -> Difference:
    """Whether two definitions are equal, differ by the monitor alone, or differ in something else."""
    if _comparable(first) == _comparable(second):
        return "none"
    try:
        jobs = [_comparable(remove_monitor(definition, image).definition) for definition in (first, second)]
    except TaskProfilerError:  # another program's container has the monitor's name
        return "other"
    return "monitor" if jobs[0] == jobs[1] else "other"


def _comparable(value: object, field: str = "") -> object:
    """The value without what ECS adds to a definition that it returns: empty lists, and ``cpu: 0``."""
    if isinstance(value, Mapping):
        items = {name: _comparable(item, name) for name, item in value.items() if (name, item) != ("cpu", 0)}
        return {name: item for name, item in items.items() if item not in (None, [], {})}
    if isinstance(value, list):
        items_of_list = [_comparable(item) for item in value]
        if field in _NAMED:
            return sorted(items_of_list, key=lambda item: str(mapping(item).get(_NAMED[field])))
        return items_of_list
    return value
