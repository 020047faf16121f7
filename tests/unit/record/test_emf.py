"""The members that CloudWatch reads, against its published schema and against the record beside them."""

import json
import math
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.search_cluster.document_delivery import deliver
from profiler.forwarder.subscription import Counts, decode_event, forward
from profiler.record.bounded_json_line import MAX_LINE_BYTES, encode_line
from profiler.record.emf import EMF_METRICS, emf_members
from profiler.record.record_model import (
    Container,
    Cost,
    Distribution,
    Gpu,
    GpuIdle,
    Interval,
    Metrics,
    Neuron,
    NeuronCore,
    OtherContainer,
    Record,
    Report,
    decode,
    json_schema,
)
from profiler.settings import DEFAULT_EMF_METRICS
from tests.fakes import FakeInvocationTime
from tests.unit.forwarder.search_cluster.test_document_delivery import FakeCluster, KeepingStore, takes_all
from tests.unit.forwarder.test_subscription import event

REFERENCE = {"type": "string", "pattern": "^(.*)$", "minLength": 1, "maxLength": 255}
UNITS = (
    "Seconds|Microseconds|Milliseconds|Bytes|Kilobytes|Megabytes|Gigabytes|Terabytes|Bits|Kilobits|Megabits|Gigabits|"
    "Terabits|Percent|Count|Bytes\\/Second|Kilobytes\\/Second|Megabytes\\/Second|Gigabytes\\/Second|Terabytes\\/Second|"
    "Bits\\/Second|Kilobits\\/Second|Megabits\\/Second|Gigabits\\/Second|Terabits\\/Second|Count\\/Second|None"
)
# The schema that AWS prints in its specification of the format, and the limit on metrics that it states in words.
SCHEMA = {
    "type": "object",
    "required": ["_aws"],
    "properties": {
        "_aws": {
            "type": "object",
            "required": ["Timestamp", "CloudWatchMetrics"],
            "properties": {
                "Timestamp": {"type": "integer"},
                "CloudWatchMetrics": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["Namespace", "Dimensions", "Metrics"],
                        "properties": {
                            "Namespace": REFERENCE,
                            "Dimensions": {
                                "type": "array",
                                "minItems": 1,
                                "items": {"type": "array", "minItems": 0, "maxItems": 30, "items": REFERENCE},
                            },
                            "Metrics": {
                                "type": "array",
                                "maxItems": 100,
                                "items": {
                                    "type": "object",
                                    "required": ["Name"],
                                    "properties": {
                                        "Name": REFERENCE,
                                        "Unit": {"type": "string", "pattern": f"^({UNITS})$"},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        }
    },
}

RECORD = Record(
    task_id="0123",
    family="nightly-etl",
    container=Container(name="batch"),
    status="failure",
    exit_code=137,
    likely_out_of_memory=True,
    metrics=Metrics(
        duration_ms=600_250,
        billed_duration_ms=631_000,
        init_duration_ms=30_000,
        max_memory_used_mb=1990.5,
        cpu_seconds=240.1,
        cpu_utilization_percent=Distribution(avg=78.4, max=100.0),
        memory_utilization_percent=Distribution(avg=14.7, max=97.2),
        network_rx_bytes=0,
        network_tx_bytes=7,
        ephemeral_storage_used_mb=261,
    ),
    gpus=(
        Gpu(
            uuid="a",
            utilization_percent=Distribution(avg=10.0),
            sm_active_percent=Distribution(avg=8.0),
            tensor_active_percent=Distribution(avg=2.0),
            dram_active_percent=Distribution(avg=3.0),
            memory_used_mb=Distribution(avg=100.0, max=300.0),
        ),
        Gpu(uuid="b", utilization_percent=Distribution(avg=31.0), memory_used_mb=Distribution(avg=200.0, max=900.0)),
        Gpu(uuid="c"),
    ),
    gpu_idle=GpuIdle(percent=63.5, gpu_hours=0.25),
    neuron=Neuron(
        cores=(NeuronCore(index=0, utilization_percent=Distribution(avg=55.0)), NeuronCore(index=1)),
        device_memory_used_mb=Distribution(avg=5.0, max=77.0),
    ),
    cost=Cost(usd=0.0123),
)


def report(record: Record = RECORD, time: str = "2026-11-20T03:12:45.123Z", kind: Any = "task.report") -> Report:
    return Report(time=time, type=kind, record=record)


def members(record: Record = RECORD, names: tuple[str, ...] = tuple(EMF_METRICS)) -> dict[str, Any]:
    return emf_members(report(record), names)


def line_with_members(made: Report, names: tuple[str, ...] = tuple(EMF_METRICS)) -> bytes:
    return encode_line(made, emf_members(made, names))


def values(record: Record) -> dict[str, Any]:
    """The metrics alone."""
    return {name: value for name, value in members(record).items() if name not in {"_aws", "family"}}


def test_the_default_metrics_of_a_run() -> None:
    assert emf_members(report(), DEFAULT_EMF_METRICS) == {
        "_aws": {
            "Timestamp": 1_795_144_365_123,
            "CloudWatchMetrics": [
                {
                    "Namespace": "TaskProfiler",
                    "Dimensions": [["family"]],
                    "Metrics": [
                        {"Name": "durationMs", "Unit": "Milliseconds"},
                        {"Name": "maxMemoryUsedMB", "Unit": "Megabytes"},
                        {"Name": "cpuUtilizationPercent", "Unit": "Percent"},
                        {"Name": "costUsd", "Unit": "None"},
                        {"Name": "failed", "Unit": "Count"},
                    ],
                }
            ],
        },
        "family": "nightly-etl",
        "durationMs": 600_250,
        "maxMemoryUsedMB": 1990.5,
        "cpuUtilizationPercent": 78.4,
        "costUsd": 0.0123,
        "failed": 1,
    }


def test_every_metric_of_the_catalogue() -> None:
    assert values(RECORD) == {
        "durationMs": 600_250,
        "billedDurationMs": 631_000,
        "initDurationMs": 30_000,
        "cpuSeconds": 240.1,
        "cpuUtilizationPercent": 78.4,
        "maxCpuUtilizationPercent": 100.0,
        "maxMemoryUsedMB": 1990.5,
        "memoryUtilizationPercent": 14.7,
        "maxMemoryUtilizationPercent": 97.2,
        "networkRxBytes": 0,
        "networkTxBytes": 7,
        "ephemeralStorageUsedMB": 261,
        "costUsd": 0.0123,
        "failed": 1,
        "outOfMemory": 1,
        "gpuUtilizationPercent": 20.5,
        "gpuSmActivePercent": 8.0,
        "gpuTensorActivePercent": 2.0,
        "gpuDramActivePercent": 3.0,
        "gpuIdlePercent": 63.5,
        "gpuIdleHours": 0.25,
        "gpuMemoryUsedMB": 150.0,
        "maxGpuMemoryUsedMB": 900.0,
        "neuronUtilizationPercent": 55.0,
        "maxNeuronMemoryUsedMB": 77.0,
    }
    assert set(EMF_METRICS) == set(values(RECORD))
    assert set(DEFAULT_EMF_METRICS) < set(EMF_METRICS)


def test_no_member_hides_one_of_the_report() -> None:
    own = set(json_schema()["$defs"]["Report"]["properties"])
    assert own.isdisjoint(members())


@pytest.mark.parametrize(
    ("status", "failed"), [("success", 0), ("failure", 1), ("stopped", 0), ("running", None), ("unknown", None)]
)
def test_a_failure_is_counted_once_a_run_and_only_where_the_end_is_known(status: Any, failed: int | None) -> None:
    assert values(replace(RECORD, status=status)).get("failed") == failed


@pytest.mark.parametrize(("likely", "counted"), [(True, 1), (False, 0), (None, None)])
def test_running_out_of_memory_is_counted_at_the_end(likely: Any, counted: int | None) -> None:
    ended = replace(RECORD, likely_out_of_memory=likely)
    assert values(ended).get("outOfMemory") == counted
    assert "outOfMemory" not in values(replace(ended, status="running"))


def test_a_checkpoint_tells_the_averages_since_the_last_one_and_the_rest_so_far() -> None:
    interval = Interval(
        cpu_seconds=1.0,
        cpu_utilization_percent=Distribution(avg=5.0, max=6.0),
        memory_utilization_percent=Distribution(avg=90.0, max=95.0),
    )
    so_far = values(replace(RECORD, status="running"))
    lately = values(replace(RECORD, status="running", interval=interval))
    assert lately == {**so_far, "cpuUtilizationPercent": 5.0, "memoryUtilizationPercent": 90.0}


def test_a_checkpoint_without_a_reading_since_the_last_one_has_no_averages() -> None:
    told = values(replace(RECORD, status="running", interval=Interval()))
    assert {"cpuUtilizationPercent", "memoryUtilizationPercent"}.isdisjoint(told)
    assert told["maxMemoryUsedMB"] == 1990.5


def test_a_run_of_which_nothing_chosen_was_measured_carries_nothing() -> None:
    bare = Record(task_id="1", family="nightly-etl", container=Container(name="x"), status="unknown")
    assert members(bare) == {}
    assert members(RECORD, ()) == {}


@pytest.mark.parametrize("family", [None, "", " ", "\t", "tâche", "a\nb", "x" * 1025])
def test_without_a_family_that_cloudwatch_takes_there_are_no_metrics(family: str | None) -> None:
    assert members(replace(RECORD, family=family)) == {}


def test_without_a_time_there_are_no_metrics() -> None:
    assert emf_members(report(time="yesterday"), EMF_METRICS) == {}


@pytest.mark.parametrize("rejected", [math.nan, -math.inf, 2.0**361])
def test_a_number_that_cloudwatch_rejects_is_left_out(rejected: float) -> None:
    record = replace(RECORD, metrics=replace(RECORD.metrics, duration_ms=rejected))
    assert members(record, ("durationMs",)) == {}


numbers = st.none() | st.floats() | st.integers(-(2**63), 2**63 - 1)
floats = st.none() | st.floats()
distributions = st.none() | st.builds(Distribution, avg=floats, max=floats)
records = st.builds(
    Record,
    task_id=st.just("1"),
    container=st.just(Container(name="batch")),
    family=st.none() | st.text(max_size=5) | st.from_regex(r"[a-zA-Z0-9_-]{1,255}", fullmatch=True),
    status=st.sampled_from(["success", "failure", "stopped", "running", "unknown"]),
    likely_out_of_memory=st.none() | st.booleans(),
    metrics=st.builds(
        Metrics,
        duration_ms=numbers,
        max_memory_used_mb=numbers,
        cpu_seconds=floats,
        cpu_utilization_percent=distributions,
        memory_utilization_percent=distributions,
        network_rx_bytes=st.none() | st.integers(0, 2**63 - 1),
    ),
    interval=st.none() | st.builds(Interval, cpu_utilization_percent=distributions),
    gpus=st.lists(
        st.builds(Gpu, uuid=st.just("u"), utilization_percent=distributions, memory_used_mb=distributions), max_size=3
    ).map(tuple),
    cost=st.none() | st.builds(Cost, usd=floats),
)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@given(records, st.lists(st.sampled_from(sorted(EMF_METRICS)), unique=True))
def test_any_record_gives_a_valid_document(record: Record, names: list[str]) -> None:
    made = report(record, kind="task.checkpoint" if record.status == "running" else "task.report")
    line = line_with_members(made, tuple(names))
    document = json.loads(line, parse_constant=refuse)
    assert (document["type"], document["record"]["taskId"]) == (made.type, "1")
    if "_aws" not in document:
        assert emf_members(made, names) == {}
        return
    Draft202012Validator(SCHEMA).validate(document)
    ((directive,), dimension) = document["_aws"]["CloudWatchMetrics"], document["family"]
    assert directive["Dimensions"] == [["family"]]
    assert 0 < len(dimension) <= 1024
    assert dimension.isascii()
    assert dimension.strip()
    assert dimension == record.family
    listed = [metric["Name"] for metric in directive["Metrics"]]
    assert listed == [name for name in names if name in document]
    assert set(document) == {"time", "type", "schemaVersion", "record", "_aws", "family", *listed}
    for name in listed:
        assert isinstance(document[name], int | float)
        assert math.isfinite(document[name])


def test_readers_of_records_pass_over_the_members() -> None:
    line = line_with_members(report())
    assert decode(line) == report()
    document = json.loads(line)
    Draft202012Validator(json_schema()).validate(document)
    Draft202012Validator(SCHEMA).validate(document)


@pytest.mark.parametrize("kind", ["task.report", "task.checkpoint"])
def test_the_forwarder_makes_the_same_document_of_a_line_with_metrics(kind: Any) -> None:
    def forwarded(line: bytes) -> dict[str, Any]:
        log_event = {"id": "1", "timestamp": 1772359202500, "message": line.decode()}
        payloads = decode_event(event({"messageType": "DATA_MESSAGE", "logEvents": [log_event]}))
        cluster = FakeCluster(takes_all)
        counts = forward(
            payloads,
            ForwarderSettings(),
            partial(deliver, cluster, FakeInvocationTime(), lambda: 0.5),
            KeepingStore().keep,
        )
        assert counts == Counts(indexed=1)
        ((name, document),) = cluster.taken.items()
        assert document.fields["record"] == line.decode()
        return {"_id": name, "_index": document.index, **document.fields, "record": None}

    made = report(kind=kind)
    assert forwarded(line_with_members(made)) == forwarded(encode_line(made))


@given(containers=st.integers(0, 40), gpus=st.integers(0, 40), length=st.integers(1, 4000))
def test_metrics_count_towards_the_limit_of_a_line_and_outlive_its_lists(
    containers: int, gpus: int, length: int
) -> None:
    crowded = replace(
        RECORD,
        containers=tuple(OtherContainer(name="c" * length) for _ in range(containers)),
        gpus=tuple(Gpu(uuid="g" * length) for _ in range(gpus)),
    )
    line = line_with_members(report(crowded))
    assert len(line) < MAX_LINE_BYTES
    assert json.loads(line)["durationMs"] == 600_250
    record = decode(line).record
    assert record.metrics == RECORD.metrics
    assert bool(record.truncated) == (replace(record, truncated=None) != crowded)


def test_where_nothing_else_is_left_to_cut_the_metrics_go() -> None:
    bare = replace(RECORD, gpus=(), neuron=None, labels={"note": ""})
    room_bytes = MAX_LINE_BYTES - 1 - len(encode_line(report(bare)))
    added_bytes = len(line_with_members(report(bare))) - len(encode_line(report(bare)))
    fits, full = (
        report(replace(bare, labels={"note": "x" * length})) for length in (room_bytes - added_bytes, room_bytes)
    )
    assert len(line_with_members(fits)) == MAX_LINE_BYTES - 1
    assert b"_aws" in line_with_members(fits)
    assert line_with_members(full) == encode_line(full)
    assert decode(line_with_members(full)) == full
