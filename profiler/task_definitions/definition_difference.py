"""Compares definitions: are they the same job?"""

from collections.abc import Mapping
from typing import Literal

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty
from profiler.task_definitions.monitor_changes import remove_monitor
from profiler.task_definitions.size_changes import without_size

# What a plan changes in a definition.
Part = Literal["monitor", "size"]
Difference = Literal["none", "monitor", "size", "other"]

# Lists whose order has no meaning, and the field that identifies an item. ECS may return them in
# another order.
_NAMED = {"environment": "name", "secrets": "name", "tags": "key"}


def difference(
    first: Mapping[str, object],
    second: Mapping[str, object],
    image: str | None = None,
    *,
    part: Part = "monitor",
) -> Difference:
    """Whether two definitions are equal, differ by ``part`` alone, or differ in something else."""
    if _without_added_defaults(first) == _without_added_defaults(second):
        return "none"
    try:
        if part == "size":
            first = without_size(first)
            second = without_size(second)
        else:
            first = remove_monitor(first, image).definition
            second = remove_monitor(second, image).definition
    except TaskProfilerError:  # another program's container has the monitor's name
        return "other"
    return part if _without_added_defaults(first) == _without_added_defaults(second) else "other"


def _without_added_defaults(value: object, field: str = "") -> object:
    """The value without what ECS adds to a definition that it returns: empty lists, and ``cpu:
    0``.
    """
    if isinstance(value, Mapping):
        items = {}
        for name, item in value.items():
            comparable = _without_added_defaults(item, name)
            if (name, item) != ("cpu", 0) and comparable not in (None, [], {}):
                items[name] = comparable
        return items
    if isinstance(value, list):
        items_of_list = [_without_added_defaults(item) for item in value]
        if field in _NAMED:
            return sorted(
                items_of_list, key=lambda item: str(mapping_or_empty(item).get(_NAMED[field]))
            )
        return items_of_list
    return value
