"""Compares revisions of a family: are they the same job, with another monitor or without?"""

from collections.abc import Mapping
from typing import Literal

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping
from profiler.task_definitions.remove_monitor import remove_monitor

Difference = Literal["none", "monitor", "other"]

# Lists whose order has no meaning, and the field that names an item. ECS may return them in another order.
_NAMED = {"environment": "name", "secrets": "name", "tags": "key"}


def difference(first: Mapping[str, object], second: Mapping[str, object], image: str | None = None) -> Difference:
    """Whether two definitions are equal, differ by the monitor alone, or differ in something else.

    Args:
        first: A definition, as RegisterTaskDefinition accepts it.
        second: Another one.
        image: The monitor's image, if its repository has a name of the user's own.
    """
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
