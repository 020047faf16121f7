"""What a run may have used beyond its measured peak holds a smaller memory back."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.aws_account.resize_plan import _seen_memory_of_containers
from profiler.record.record_model import AverageAndMaximum, Metrics, Report, TaskSize
from profiler.record.task_needs import bound_memory_mb
from profiler.sizing.memory_margin import UNKNOWN_MARGIN
from profiler.sizing.runs_at_size import NEWEST_RUNS, SAMPLED_RUNS, RunsAtSize
from profiler.sizing.sized_revision import SizedRevision
from tests.family_windows import decision_on, window_of
from tests.runs import report, reported_facts
from tests.sized_runs import GB, advice

RUNS = 30
HELD = "a run may have used up to 2 GB, as its warnings say: less is not recommended"


def run_with_bound(number: int, bound_mb: float | None = 2 * GB, **more: Any) -> Report:
    made = report(number, **more)
    metrics = replace(
        made.record.metrics,
        memory_used_bound_mb=bound_mb,
        memory_mapped_file_mb=AverageAndMaximum(avg=0, max=0),
    )
    return replace(made, record=replace(made.record, metrics=metrics))


def runs_with_bound(bound_mb: float | None) -> list[Report]:
    """Runs of 1 vCPU and 4 GB that used 20 MB; one of them may have used more."""
    return [
        run_with_bound(n, bound_mb if n == 3 else None, peak_mb=20, p95=0.9, size=(1, 4 * GB))
        for n in range(RUNS)
    ]


def test_no_size_below_the_bound_is_advised_and_a_sentence_says_why() -> None:
    found = advice(runs_with_bound(2 * GB))
    assert found.choice.size == TaskSize(vcpu=1, memory_mb=3 * GB)
    assert f"A{HELD[1:]}." in found.reasons


@pytest.mark.parametrize("bound_mb", [None, 100])
def test_without_a_bound_that_matters_the_same_runs_shrink(bound_mb: float | None) -> None:
    found = advice(runs_with_bound(bound_mb))
    assert found.choice.size.memory_mb == 2 * GB, "the least with one vCPU"
    assert "may have used" not in " ".join(found.reasons)


def test_a_bound_makes_no_size_larger() -> None:
    found = advice(runs_with_bound(9 * GB))
    assert found.choice.size == TaskSize(vcpu=1, memory_mb=4 * GB)


def test_the_doubts_of_all_containers_count_together() -> None:
    beside = {"proxy": Metrics(max_memory_used_mb=10, memory_used_bound_mb=300)}
    record = run_with_bound(0, 50, peak_mb=20, others=beside).record
    assert bound_memory_mb(record) == 20 + 10 + 30 + 290
    assert bound_memory_mb(report(others={"proxy": Metrics(max_memory_used_mb=10)}).record) is None
    unmeasured = replace(record, metrics=Metrics())
    assert bound_memory_mb(unmeasured) is None


def test_resize_leaves_the_size_and_the_containers_limit() -> None:
    revision = SizedRevision(revision="3", size=TaskSize(vcpu=1, memory_mb=3 * GB))
    runs = [
        run_with_bound(
            n, 2 * GB if n == 3 else None, peak_mb=20, p95=0.9, size=(1, 3 * GB), revision="3"
        )
        for n in range(RUNS)
    ]
    window = window_of(runs)
    decision = decision_on(window, revision)
    assert decision.action == "none"
    assert decision.reason == f"the size fits: {HELD}"
    assert _seen_memory_of_containers(window, revision.size, UNKNOWN_MARGIN).held_mb == {
        "batch": 2 * GB
    }


@pytest.mark.parametrize(
    "made",
    [
        run_with_bound(0, 300, peak_mb=200),
        report(peak_mb=200),
    ],
    ids=["a bound", "an older peak"],
)
def test_the_run_that_holds_a_size_back_is_kept(made: Report) -> None:
    """It is neither among the newest runs nor in the sample, nor has it the largest need."""
    holds = reported_facts(made)
    runs = RunsAtSize()
    runs.keep_if_deciding(0, holds)
    for number in range(1, 2 * (NEWEST_RUNS + SAMPLED_RUNS)):
        runs.keep_if_deciding(number, reported_facts(run_with_bound(number, None, peak_mb=400)))
    assert holds in runs.deciding_runs()
