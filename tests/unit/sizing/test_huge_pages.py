"""Huge pages, which no container's limit counts, hold a smaller memory back."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.record_model import NO_READINGS, AverageAndMaximum, Metrics, Report, TaskSize
from profiler.sizing.sized_revision import SizedRevision
from tests.family_windows import decision_on, window_of
from tests.runs import report
from tests.sized_runs import GB, advice

RUNS = 30
HELD = (
    "a run also holds up to 300 MB of huge pages, which the memory used lacks: a smaller size is "
    "not recommended"
)


def with_huge_pages(number: int, huge_mb: float | None = 300, **more: Any) -> Report:
    made = report(number, **more)
    pages = NO_READINGS if huge_mb is None else AverageAndMaximum(avg=huge_mb, max=huge_mb)
    metrics = replace(
        made.record.metrics,
        memory_huge_pages_mb=pages,
        memory_mapped_file_mb=AverageAndMaximum(avg=0, max=0),
    )
    return replace(made, record=replace(made.record, metrics=metrics))


def runs_of_size(size: tuple[float, float], huge_mb: float | None = 300) -> list[Report]:
    return [
        with_huge_pages(number, huge_mb, peak_mb=20, p95=0.9 * size[0], size=size, revision="3")
        for number in range(RUNS)
    ]


def test_the_memory_stays_and_a_sentence_says_why() -> None:
    found = advice(runs_of_size((1, 4 * GB)))
    assert found.choice.size == TaskSize(vcpu=1, memory_mb=4 * GB)
    assert f"A{HELD[1:]}." in found.reasons
    assert found.possible_saving_sentence(10) == ""


def test_what_holds_a_smaller_vcpu_size_back_is_not_called_files() -> None:
    found = advice(runs_of_size((0.5, 4 * GB)))
    assert found.choice.size == TaskSize(vcpu=0.5, memory_mb=4 * GB)
    assert "0.25 vCPU allows at most 2 GB of memory, which may be less than a run had." in (
        found.reasons
    )


def test_without_huge_pages_the_same_runs_shrink() -> None:
    found = advice(runs_of_size((1, 4 * GB), huge_mb=None))
    assert found.choice.size.memory_mb == 2 * GB
    assert "huge pages" not in " ".join(found.reasons)


def test_those_of_other_containers_count_too() -> None:
    pages = AverageAndMaximum(avg=100, max=300)
    beside = {"database": Metrics(max_memory_used_mb=10, memory_huge_pages_mb=pages)}
    runs = [report(n, peak_mb=20, p95=0.9, size=(1, 4 * GB), others=beside) for n in range(RUNS)]
    assert advice(runs).choice.size.memory_mb == 4 * GB


@pytest.mark.parametrize(("limit_mb", "memory_mb"), [(16 * GB, 320), (128, 128), (None, 320)])
def test_a_machine_without_a_size_needs_them_within_its_limit(
    limit_mb: float | None, memory_mb: float
) -> None:
    """The limit of a group counts no huge pages: a run in one of 128 MB has shown that it fits."""
    run = with_huge_pages(0, peak_mb=8, launch_type="LOCAL", size=None)
    metrics = replace(run.record.metrics, memory_size_mb=limit_mb)
    found = advice([replace(run, record=replace(run.record, metrics=metrics))])
    assert found.choice.size.memory_mb == memory_mb


def test_on_fargate_it_is_not_the_machine_that_is_needed_but_its_huge_pages() -> None:
    more: dict[str, Any] = {"launch_type": "LOCAL", "size": (8, 24 * GB), "peak_mb": 8}
    for huge_mb, memory_mb in ((300, 512), (1500, 2 * GB)):
        runs = [with_huge_pages(n, huge_mb, **more) for n in range(RUNS)]
        found = advice(runs, on_fargate="us-east-1")
        assert found.choice.size == TaskSize(vcpu=0.25, memory_mb=memory_mb)


def test_resize_leaves_the_size() -> None:
    size = (1.0, 4.0 * GB)
    revision = SizedRevision(revision="3", size=TaskSize(vcpu=1, memory_mb=4 * GB))
    decision = decision_on(window_of(runs_of_size(size)), revision)
    assert decision.action == "none"
    assert decision.reason == f"the size fits: {HELD}"
