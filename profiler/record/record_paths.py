"""A run's record as the getters of its numbers read it: by paths through a view."""

from collections.abc import Callable
from functools import cache, cached_property
from operator import attrgetter
from typing import Any, Final, Literal

from profiler.core.optional_math import known
from profiler.record.device_totals import GpuTotals, NeuronTotals, gpu_totals, neuron_totals
from profiler.record.model_base import json_name
from profiler.record.record_model import Interval, Metrics, Record

# MB is MiB, as in the record. "text" and "time" are the units of values that are not numbers.
Unit = Literal[
    "ms", "s", "h", "MB", "bytes", "%", "vCPU", "J", "USD", "count", "factor", "text", "time"
]
OPTIONAL_PARTS: Final = frozenset({"record.gpu_idle", "record.memory_kills"})
"""Where the view of a run may have None in place of an object with values."""
_OF_GPUS = ("gpus.", "record.gpu_idle.")


class RunView:
    """A record as the getters read it: parts that the record lacks are empty, and devices are
    combined once a getter asks for them.
    """

    record: Record
    metrics: Metrics
    interval: Interval

    def __init__(self, record: Record) -> None:
        self.record = record
        self.metrics = record.metrics
        self.interval = record.interval

    @cached_property
    def gpus(self) -> GpuTotals:
        """All GPUs as one."""
        return gpu_totals(self.record)

    @cached_property
    def neuron(self) -> NeuronTotals:
        """All NeuronCores as one."""
        return neuron_totals(self.record.neuron)


def is_of_gpus(path: str) -> bool:
    """Whether the number at a path of a record's view is one of GPUs."""
    return path.startswith(_OF_GPUS)


def may_be_of_others(path: str, record: Record) -> bool:
    """Whether the number at a path of the record's view may be other programs': of GPUs of the
    whole instance.
    """
    return record.are_gpus_of_instance and is_of_gpus(path)


@cache
def view_reader(path: str) -> Callable[[RunView], Any]:
    """The function that reads the value at a path of the view.

    Only its parent may be absent, one of :data:`OPTIONAL_PARTS`: then it is None.
    """
    parent, _, name = path.rpartition(".")
    if parent not in OPTIONAL_PARTS:
        return attrgetter(path)
    get_parent = attrgetter(parent)
    get_value = attrgetter(name)

    def read_value(run: RunView) -> Any:  # noqa: ANN401  the type of any value of the record
        return known(get_value, get_parent(run))

    return read_value


def json_path(path: str) -> str:
    """Where the record's JSON contains the value at a path of the view; "" for a value of all
    devices together.
    """
    names = path.removeprefix("record.").split(".")
    if names[0] in ("gpus", "neuron"):
        return ""
    return ".".join(map(json_name, names))
