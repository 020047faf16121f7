"""Cost and recommendation on the record of one run."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.bounded_json_line import MAX_LINE_BYTES, encode_line
from profiler.record.record_model import (
    Container,
    Distribution,
    Gpu,
    Metrics,
    OtherContainer,
    Recommendation,
    Record,
    Report,
    SlowdownBounds,
    TaskSize,
    decode,
)
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import PriceOverrides
from tests.runs import report
from tests.unit.monitor.test_loop import World
from tests.values import present

NONE = PriceOverrides()
TIME = "2026-11-20T03:12:45.123Z"


def test_a_run_gets_its_cost_and_what_it_says_about_the_size() -> None:
    record = with_recommendation(report(peak_mb=400, p95=0.2).record, NONE, time=TIME)
    assert present(record.cost).usd == 0.00822833
    advice = present(record.recommendation)
    assert (advice.vcpu, advice.memory_mb, advice.saving_percent) == (0.25, 512, 75.0)
    assert advice.reasons[0].startswith("1 run used at most 400 MB of memory (sampled)")
    assert any("1 run is a small sample" in reason for reason in advice.reasons)


def test_a_run_that_goes_on_is_left_alone() -> None:
    running = replace(report().record, status="running")
    assert with_recommendation(running, NONE, time=TIME) == running


def test_a_run_without_numbers_has_a_cost_and_no_recommendation() -> None:
    record = with_recommendation(report(peak_mb=None, p95=None).record, NONE, time=TIME)
    assert record.cost is not None
    assert record.recommendation is None


def test_what_is_said_of_gpus_comes_after_the_size() -> None:
    said = "The GPU was allocated but never used: run the task without it, or check why the batch did not find it."
    idle = (Gpu(uuid="GPU-a", index=0, utilization_percent=Distribution(max=0.0)),)
    record = with_recommendation(replace(report().record, gpus=idle), NONE, time=TIME)
    assert record.recommendation is not None
    assert record.recommendation.vcpu == 0.25
    assert record.recommendation.reasons[-1] == said
    unmeasured = with_recommendation(replace(report(peak_mb=None, p95=None).record, gpus=idle), NONE, time=TIME)
    assert unmeasured.recommendation == Recommendation(reasons=(said,))


def test_a_stopped_run_may_need_more() -> None:
    record = with_recommendation(replace(report().record, status="stopped"), NONE, time=TIME)
    assert "Every run was stopped before its end, so the task may need more." in present(record.recommendation).reasons


@dataclass
class _Told:
    """The record of a monitor in a Fargate task."""

    report: Record
    checkpoint: Record


@pytest.fixture(scope="module")
def told() -> _Told:
    world = World(
        batch_ends=90.5, checkpoint_seconds=60.0, prices=PriceOverrides(vcpu_hour_usd=0.04, gb_hour_usd=0.004)
    )
    usual = world.task_at

    def on_fargate(at: float) -> object:
        return replace(usual(at), launch_type="FARGATE", vcpu_limit=1.0, memory_limit_bytes=2 * 1024**3)

    world.task_at = on_fargate  # type: ignore[assignment]
    world.run()
    ((_, line),) = world.streams.lines
    checkpoint, *_ = world.output.lines
    return _Told(report=decode(line).record, checkpoint=decode(checkpoint).record)


def test_the_monitors_report_has_both(told: _Told) -> None:
    """At 0.04 and 0.004 USD, 1 vCPU and 2 GiB for the billed time."""
    record = told.report
    billed_ms = record.metrics.billed_duration_ms or 0
    assert present(record.cost).usd == pytest.approx(billed_ms / 3_600_000 * 0.048, abs=1e-8)
    advice = present(record.recommendation)
    assert (advice.vcpu, advice.memory_mb) == (1, 2048)
    assert advice.reasons[0].startswith("1 run used at most ")


def test_the_monitors_checkpoints_have_neither(told: _Told) -> None:
    assert told.checkpoint.cost is None
    assert told.checkpoint.recommendation is None


numbers = st.none() | st.floats(min_value=0, allow_nan=False, allow_infinity=False)
odd = st.floats(allow_nan=False, allow_infinity=False)
distributions = st.none() | st.builds(Distribution, p95=numbers, p99=numbers)
anything = st.builds(
    Metrics,
    billed_duration_ms=numbers,
    memory_size_mb=numbers,
    vcpu_size=numbers,
    max_memory_used_mb=numbers,
    vcpu_used=distributions,
    memory_used_mb=distributions,
    memory_peak_source=st.sampled_from([None, "kernel", "sampled"]),
    vcpu_saturated_percent=numbers,
    slowdown_at_vcpu=st.none()
    | st.dictionaries(st.sampled_from(["0.25", "0.5", "1", "2", "many"]), st.builds(SlowdownBounds, min=odd, max=odd)),
    max_pids=st.none() | st.integers(min_value=0, max_value=9),
    ephemeral_storage_size_mb=st.none() | st.floats(min_value=0, max_value=1e9),
)
records = st.builds(
    Record,
    task_id=st.just("0123"),
    family=st.none() | st.text(max_size=20),
    region=st.sampled_from([None, "us-east-1", "mars-1"]),
    launch_type=st.sampled_from([None, "FARGATE", "EC2", "LOCAL"]),
    cpu_architecture=st.sampled_from([None, "X86_64", "ARM64"]),
    container=st.builds(Container, name=st.text(max_size=20)),
    status=st.sampled_from(["success", "failure", "stopped", "unknown"]),
    likely_out_of_memory=st.none() | st.booleans(),
    started_at=st.none() | st.text(max_size=10),
    metrics=anything,
    containers=st.lists(
        st.builds(OtherContainer, name=st.text(max_size=300), metrics=st.none() | anything), max_size=20
    ).map(tuple),
    task_size=st.none() | st.builds(TaskSize, vcpu=numbers, memory_mb=numbers),
)


@given(records)
def test_no_record_is_lost_for_its_advice(record: Record) -> None:
    """For any record, the line is written, is short enough and has no invalid number."""
    line = encode_line(Report(time=TIME, type="task.report", record=with_recommendation(record, NONE, time=TIME)))
    assert len(line) < MAX_LINE_BYTES
    assert msgspec.json.decode(line, type=Report).record.metrics == record.metrics
    decode(line)
    assert b"nan" not in line
    assert b"inf " not in line
