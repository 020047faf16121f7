"""The metric catalogue against the record that it reads and the outputs that are made from it."""

import itertools
import json
from collections import Counter
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from msgspec import Struct
from msgspec.structs import fields, replace

from profiler.record.activity_model import TimeBreakdown
from profiler.record.hardware import GpuTotals, NeuronTotals, gpu_totals, neuron_totals
from profiler.record.metric_catalogue import METRICS, TIME_PARTS, Metric, view_of
from profiler.record.record_model import (
    Container,
    Distribution,
    Gpu,
    Metrics,
    Neuron,
    NeuronCore,
    Record,
    Report,
    SlowdownBounds,
    encode,
)
from profiler.record.search_document_fields import FIELDS, DocumentField
from tests.values import present

NUMBERS = itertools.count(1)


def filled(kind: Any) -> Any:
    """A value of a type of the record with all its parts. Each number is there once."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Annotated, Union, UnionType):
        return filled(arguments[0])
    if isinstance(kind, type) and issubclass(kind, Struct):
        return kind(**{field.name: filled(field.type) for field in fields(kind)})
    if origin is tuple:
        return (filled(arguments[0]),)
    if origin is Mapping:
        return {"0.25": filled(arguments[1])}
    number = next(NUMBERS)
    return True if kind is bool else float(number) if kind is float else number if kind is int else f"text {number}"


# A getter that reads another field is noticed by its number.
FULL: Record = replace(filled(Record), status="failure", stacks=None)
LINE: dict[str, Any] = json.loads(encode(Report(time="2026-03-01T00:10:12Z", type="task.report", record=FULL)))


IN_RECORD: list[Metric | DocumentField] = [
    *(metric for metric in METRICS if metric.record_path is not None),
    *(field for field in FIELDS if field.record_path is not None),
]


def at(path: str) -> Any:
    """The value at a path of the record's JSON."""
    found: Any = LINE["record"]
    for name in path.split("."):
        found = found[name]
    return found


@pytest.mark.parametrize("row", IN_RECORD, ids=lambda row: row.record_path)
def test_a_getter_reads_the_value_at_the_rows_path(row: Metric | DocumentField) -> None:
    assert row.record_path is not None
    value = present(row.get)(view_of(FULL))
    assert value == ([at(row.record_path)] if isinstance(value, list) else at(row.record_path))


@pytest.mark.parametrize("attribute", ["document_field", "text_label", "emf_name"])
def test_a_name_is_used_once(attribute: str) -> None:
    names = Counter(getattr(metric, attribute) for metric in METRICS)
    del names[None]
    assert set(names.values()) == {1}


def test_every_part_of_the_time_is_in_the_document() -> None:
    """So that the parts of a document add up to 100 % too."""
    parts = {name for name in TimeBreakdown.__struct_fields__ if name.endswith("_percent")} - {"covered_percent"}
    assert {f"{part}_percent" for part in TIME_PARTS} == parts
    assert {f"usage.time.{part}.percent" for part in TIME_PARTS} <= {field.name for field in FIELDS}


def test_gpus_are_combined() -> None:
    gpus = (
        Gpu(
            uuid="a",
            utilization_percent=Distribution(avg=10, max=90),
            sm_active_percent=Distribution(avg=4, max=80),
            memory_used_mb=Distribution(avg=7, max=9),
            energy_joules=5,
        ),
        Gpu(
            uuid="b",
            utilization_percent=Distribution(avg=0, max=0),
            sm_active_percent=Distribution(avg=0, max=0),
            energy_joules=6.5,
        ),
        Gpu(uuid="c"),
    )
    assert gpu_totals(gpus) == GpuTotals(
        count=3,
        idle=1,
        utilization_percent=Distribution(avg=5, max=90),
        sm_active_percent=Distribution(avg=2, max=80),
        memory_used_mb=Distribution(avg=7, max=9),
        energy_joules=11.5,
    )
    assert gpu_totals(()) is None


def test_neuron_cores_are_combined_and_the_memory_is_that_of_the_devices() -> None:
    cores = (NeuronCore(index=0, utilization_percent=Distribution(avg=50, max=97)), NeuronCore(index=1))
    neuron = Neuron(cores=cores, device_memory_used_mb=Distribution(avg=3, max=77))
    assert neuron_totals(neuron) == NeuronTotals(
        cores=2, utilization_percent=Distribution(avg=50, max=97), device_memory_used_mb=Distribution(avg=3, max=77)
    )
    assert neuron_totals(Neuron()) == NeuronTotals(cores=0)
    assert neuron_totals(None) is None


def test_a_size_without_slowdown_has_the_factor_1_where_cpu_was_measured() -> None:
    slowdown = {"0.25": SlowdownBounds(min=2.0, max=3.5)}
    measured = Record(
        task_id="1", container=Container(name="x"), status="success", metrics=Metrics(slowdown_at_vcpu=slowdown)
    )
    factors = {
        metric.document_field: metric.get(view_of(measured))
        for metric in METRICS
        if (metric.document_field or "").startswith("usage.cpu.slowdown.")
    }
    sizes = ("v0_25", "v0_5", "v1", "v2", "v4", "v8", "v16", "v32")
    assert set(factors) == {f"usage.cpu.slowdown.{name}.{size}" for name in ("min", "max") for size in sizes}
    assert factors.pop("usage.cpu.slowdown.min.v0_25") == 2.0
    assert factors.pop("usage.cpu.slowdown.max.v0_25") == 3.5
    assert set(factors.values()) == {1.0}
