"""Cost and recommendation on the record of one run."""

import msgspec
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


def test_what_is_said_of_gpus_comes_after_the_size() -> None:
    said = "The GPU was allocated but never used: run the task without it, or check why the batch did not find it."
    idle = (Gpu(uuid="GPU-a", index=0, utilization_percent=Distribution(max=0.0)),)
    advice = present(with_recommendation(replace(report().record, gpus=idle), NONE, time=TIME).recommendation)
    assert (advice.vcpu, advice.reasons[-1]) == (0.25, said)
    unmeasured = with_recommendation(replace(report(peak_mb=None, p95=None).record, gpus=idle), NONE, time=TIME)
    assert unmeasured.recommendation == Recommendation(reasons=(said,))


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
