"""Moments of a run: what stands out is named where it is, and nothing else is."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import format_ms
from profiler.record.record_model import Container, Metrics, PeakSource, Record, Series
from profiler.record.worth_a_word import SATURATED_SHARE, idle_vcpu
from profiler.runs.past_runs.moments import MIN_STRETCH_STEPS, find_moments, series_length_ms
from tests.fakes import START_NS
from tests.values import present

STEP_MS = 10_000
SIZE = 2.0
LIMIT_MB = 1000.0


def record(
    cpu: Sequence[float | None] = (),
    memory: Sequence[float | None] = (),
    *,
    duration_ms: float | None = None,
    peak_at_ms: float | None = None,
    size: float | None = SIZE,
    limit_mb: float | None = LIMIT_MB,
) -> Record:
    started_at = format_ms(START_NS)
    metrics = Metrics(
        duration_ms=duration_ms,
        vcpu_size=size,
        memory_size_mb=limit_mb,
        max_memory_used_mb=max((value for value in memory if value is not None), default=None),
        max_memory_used_at=None if peak_at_ms is None else format_ms(START_NS + round(peak_at_ms * 1_000_000)),
    )
    vcpu_used, memory_used_mb = tuple(cpu) or None, tuple(memory) or None
    series = Series(started_at=started_at, step_ms=STEP_MS, vcpu_used=vcpu_used, memory_used_mb=memory_used_mb)
    return Record(task_id="t", container=Container(name="batch"), started_at=started_at, metrics=metrics, series=series)


def texts(made: Record) -> list[str]:
    return [moment.text for moment in find_moments(made)]


shares = st.lists(st.none() | st.sampled_from([0.0, 0.01, 0.03, 1.0, 1.89, 1.95, 2.0, 2.1]), max_size=60)
sizes_mb = st.lists(st.none() | st.floats(0, 1200), max_size=60)


@given(cpu=shares, memory=sizes_mb, ended=st.floats(0, 1.2), peak_at=st.none() | st.floats(-1e6, 1e6))
def test_every_moment_lies_in_the_run_and_in_order(
    cpu: list[float | None], memory: list[float | None], ended: float, peak_at: float | None
) -> None:
    """Also if the run ended within the last step, and if the time of the peak is wrong."""
    duration_ms = ended * max(len(cpu), len(memory)) * STEP_MS
    made = record(cpu, memory, duration_ms=duration_ms or None, peak_at_ms=peak_at)
    moments = find_moments(made)
    assert list(moments) == sorted(moments, key=lambda moment: moment.start_ms)
    for moment in moments:
        assert 0 <= moment.start_ms <= moment.end_ms <= series_length_ms(made, present(made.series))


def test_the_words_of_each_kind() -> None:
    cpu = [0.5] * 3 + [2.0] * 6 + [0.0] * 4 + [1.0] * 6
    memory = [100.0] * 18 + [950.0]
    made = record(cpu, memory, duration_ms=185_000, peak_at_ms=184_500)
    assert texts(made) == [
        "used all of its 2 vCPU from +30s to +1m 30s, 32 % of the run",
        "idle from +1m 30s to +2m 10s",
        "memory peak ≥950 MB at +3m 04s, 95 % of 1000 MB",
    ]


def test_two_steps_are_no_stretch_and_a_gap_ends_one() -> None:
    assert texts(record([1.0] * 10, size=64)) == [], "one busy vCPU of many is not idle"
    assert texts(record([2.0, 2.0, 1.0, 0.0, 0.0, 1.0])) == []
    assert texts(record([0.0, 0.0, None, 0.0, 0.0])) == []
    assert texts(record([0.0, 0.0, 0.0, None, 2.0, 2.0, 2.0])) == [
        "idle from +0s to +30s",
        "used all of its 2 vCPU from +40s to the end, 43 % of the run",
    ]
    three = [0.0] * 3 + [1.0] + [0.0] * 5 + [1.0] + [0.0] * 4 + [1.0]
    assert texts(record(three)) == ["idle from +40s to +1m 30s", "idle from +1m 40s to +2m 20s"], "the two longest"


def test_a_flat_memory_near_its_limit_stands_out() -> None:
    assert texts(record(memory=[899.0] * 9)) == []
    assert texts(record(memory=[900.0] * 9)) == ["memory peak ≥900 MB at +0s, 90 % of 1000 MB"]
    assert texts(record(memory=[900.0] * 9, limit_mb=None)) == []


@pytest.mark.parametrize(("peak_mb", "source", "expected"), [
    (950, "kernel", "memory peak 950 MB between samples (kernel), 95 % of 1000 MB; highest sample 800 MB at +20s"),
    (805, "kernel", "memory peak 805 MB at +20s, 81 % of 1000 MB"),
    (950, "sampled", "memory peak ≥950 MB at +20s, 95 % of 1000 MB"),
])  # fmt: skip
def test_a_peak_that_only_the_kernel_saw_has_no_time(peak_mb: int, source: PeakSource, expected: str) -> None:
    made = record(memory=[100.0, 100.0, 800.0, 100.0])
    metrics = replace(made.metrics, max_memory_used_mb=peak_mb, memory_peak_source=source)
    assert texts(replace(made, metrics=metrics)) == [expected]


@given(cpu=shares)
def test_a_stretch_is_what_it_is_called(cpu: list[float | None]) -> None:
    """And as long as it can be, without a gap in it."""
    for moment in find_moments(record(cpu)):
        low, high = (SATURATED_SHARE * SIZE, math.inf) if moment.kind == "saturated" else (0, idle_vcpu(SIZE))
        first, after = round(moment.start_ms / STEP_MS), round(moment.end_ms / STEP_MS)
        assert after - first >= MIN_STRETCH_STEPS
        assert all(value is not None and low <= value <= high for value in cpu[first:after])
        assert all(value is None or not low <= value <= high for value in cpu[after : after + 1])
