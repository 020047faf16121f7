"""What changed since the last success: only what matters, with both values where there is room."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.styled_text import BLOCKS
from profiler.cli.terminal.change_line import change_spans
from profiler.record.record_model import Processor, Record
from profiler.sizing.trend import usual_range
from tests.shown_runs import NOW_NS
from tests.unit.cli.terminal.test_end_page import etl, last
from tests.values import present

NOTHING = "nothing notable since the last success 2 h ago"


def text(record: Record, earlier: Sequence[Record], width: int = 110, now_ns: int = NOW_NS) -> str:
    return "".join(span.text for span in change_spans(record, earlier, now_ns, width, BLOCKS))


def changes(record: dict[str, Any], last_metrics: dict[str, Any], width: int = 110) -> str:
    return text(etl(**record).record, [last(**last_metrics)] * 5, width)


@pytest.mark.parametrize(
    ("last_metrics", "expected"),
    [
        ({}, NOTHING),
        ({"max_memory_used_mb": 1500}, "memory +23 % (1.5 GB → 1.8 GB) since the last success 2 h ago"),
        ({"max_memory_used_mb": 1500, "memory_peak_source": "sampled"}, NOTHING),
        ({"cpu_seconds": 29.8}, "CPU time -50 % (29.8 s → 14.9 s) since the last success 2 h ago"),
        ({"duration_ms": 100}, "duration 124× (100 ms → 12.4 s) since the last success 2 h ago"),
        ({"duration_ms": None, "cpu_seconds": 0}, NOTHING),
    ],
)
def test_only_what_changed_by_5_percent_is_said(last_metrics: dict[str, Any], expected: str) -> None:
    assert changes({}, last_metrics) == expected


def test_milliseconds_of_a_short_run_are_noise() -> None:
    short = {"duration_ms": 12, "cpu_seconds": 0.004}
    assert changes({"metrics": short}, {"duration_ms": 4, "cpu_seconds": 0.001}) == ""
    assert "duration" not in changes({"metrics": {"duration_ms": 340}}, {"duration_ms": 300, "cpu_seconds": 1})


def test_a_narrow_terminal_loses_the_values_before_the_changes() -> None:
    faster = {"duration_ms": 24_000, "max_memory_used_mb": 900}
    assert changes({}, faster, 70) == "duration -48 %, memory +105 % since the last success 2 h ago"
    assert changes({}, faster, 30) == "duration -48 %"
    assert changes({}, faster, 5) == ""


def test_a_run_that_failed_is_not_compared_but_the_last_success_is_named() -> None:
    failed = {"status": "failure", "exit_code": 3}
    assert changes(failed, {}) == "the last success 2 h ago took 12.4 s and 1.8 GB of memory"
    assert changes(failed, {"duration_ms": None}) == ""


def test_another_commit_and_another_processor_are_named() -> None:
    commits = ({"gitCommit": "a" * 40}, {"gitCommit": "b" * 40})
    own, other = (etl(labels=labels).record for labels in commits)
    assert text(own, [other] * 5) == "nothing notable since the last success 5 h ago at bbbbbbb"
    own, other = replace(own, processor=Processor(model="7R13")), replace(other, processor=Processor(model="8259CL"))
    assert text(own, [other] * 5).endswith("5 h ago on another processor")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, ""), (1, " 1 s ago"), (119, " 119 s ago"), (120, " 2 min ago"), (7200, " 2 h ago"), (200_000, " 2 days ago")],
)
def test_how_long_ago_the_last_success_ended(seconds: int, expected: str) -> None:
    now_ns = NOW_NS - 2 * 3600 * 10**9 + (seconds + 8) * 10**9  # 07:10 is 2 h 2 min 45 s before NOW
    other = replace(last(), finished_at="2026-11-20T07:12:53.000Z")
    assert text(etl().record, [other] * 5, now_ns=now_ns).endswith(f"success{expected}")


def test_a_difference_within_the_familys_own_spread_is_noise() -> None:
    """Durations from 9 to 16 s, median 12 s: two median deviations are 4 s. 12.4 s is usual, 18 s is not."""
    times_ms = (9_000, 10_000, 12_000, 14_000, 16_000)
    earlier = [last(duration_ms=duration_ms) for duration_ms in times_ms]
    for usual_ms in (12_430, 15_900):
        assert text(etl({"duration_ms": usual_ms}).record, earlier) == NOTHING
    shown = text(etl({"duration_ms": 18_000}).record, earlier)
    assert shown == "duration +100 % (9.0 s → 18.0 s) since the last success 2 h ago"


def test_fewer_than_five_runs_have_no_change_in_percent() -> None:
    own, one = etl().record, last(duration_ms=10_000)
    assert text(own, [one] * 4) == "duration 10.0 s → 12.4 s since the last success 2 h ago (fewer than five runs)"
    assert text(own, [last()]) == "nothing notable since the last success 2 h ago (fewer than five runs)"
    assert text(own, [one] * 5) == "duration +24 % (10.0 s → 12.4 s) since the last success 2 h ago"


@given(st.lists(st.floats(0.001, 1e9), min_size=5, max_size=50))
@settings(max_examples=300)
def test_half_of_the_runs_are_always_within_the_usual_range(values: list[float]) -> None:
    usual = usual_range(values)
    assert sum(map(present(usual).holds, values)) * 2 >= len(values)
    assert usual_range(values[:4]) is None
