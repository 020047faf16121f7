"""Where the view of a run has its values."""

from functools import cached_property
from types import NoneType
from typing import Any, get_args, get_type_hints

from profiler.record.fact_list import NUMBERS
from profiler.record.metric_catalogue import METRICS
from profiler.record.record_paths import OPTIONAL_PARTS, RunView


def type_of(kind: type, name: str) -> Any:
    found = getattr(kind, name, None)
    if isinstance(found, cached_property):
        return get_type_hints(found.func)["return"]
    return get_type_hints(kind)[name]


def test_only_the_optional_parts_of_a_view_can_be_absent() -> None:
    """A path below another absent part would fail."""
    optional = set()
    for path in {metric.path for metric in METRICS if metric.path} | {row.path for row in NUMBERS}:
        parent = path.rpartition(".")[0]
        kind: Any = RunView
        walked = []
        for name in parent.split("."):
            kind = type_of(kind, name)
            walked.append(name)
            if NoneType in get_args(kind):
                assert walked == parent.split(".")
                optional.add(parent)
    assert optional == OPTIONAL_PARTS
