"""What a window of a family's runs keeps, and that order, repetition and parts do not matter."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR
from profiler.record.batch_job import BatchJob
from profiler.record.record_model import (
    CONTAINER_INSIGHTS,
    Metrics,
    OtherContainer,
    Sampling,
    TaskSize,
)
from profiler.sizing.family_window import OLDER_REVISIONS, REVISIONS, FamilyWindow, WindowSpan
from profiler.sizing.resize_limits import ResizeDecision
from profiler.sizing.run_counts import RunCounts
from profiler.sizing.run_facts import RunFacts
from profiler.sizing.runs_at_size import NEWEST_RUNS
from profiler.sizing.sized_revision import SizedRevision
from profiler.sizing.window_evidence import evidence_at_size, with_all_needs
from tests.fakes import START_NS
from tests.family_windows import decision_on, window_of, window_of_runs
from tests.runs import report, reported_facts, slowdown
from tests.values import present

SIZE = TaskSize(vcpu=1, memory_mb=2048)
LATER_NS = START_NS + 40 * NS_PER_DAY
FIRST = SizedRevision(revision="1", size=SIZE)


def fact(number: int, *, is_confirmed: bool = True, **more: Any) -> RunFacts:
    return reported_facts(report(number, **{"revision": "1"} | more), is_confirmed=is_confirmed)


ENDINGS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"status": "failure", "exit_code": 1},
    {"status": "stopped"},
    {"status": "lost"},
    {"likely_out_of_memory": True, "status": "failure"},
)
facts = st.builds(
    lambda number, peak, size, revision, ending, factor: fact(
        number,
        peak_mb=min(peak, size[1]),
        size=size,
        revision=str(revision),
        metrics={"slowdown_at_vcpu": slowdown(v0_25=(1, factor), v0_5=(1, factor / 2))},
        **ending,
    ),
    st.integers(0, 60),
    st.floats(10, 4000),
    st.sampled_from([(1, 2048), (1, 2048), (1, 2048), (4, 8192), (0.25, 512)]),
    st.integers(1, 3),
    st.sampled_from(ENDINGS),
    st.floats(1, 4),
)
runs_of_family = st.lists(facts, min_size=1, max_size=60, unique_by=lambda run: run.container_key)


def decided(runs: list[RunFacts], revision: SizedRevision = FIRST) -> ResizeDecision:
    return decision_on(window_of_runs(runs, days=35, now_ns=START_NS + 61 * NS_PER_DAY), revision)


@given(runs_of_family, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(runs: list[RunFacts], shuffler: random.Random) -> None:
    shuffled = list(runs)
    shuffler.shuffle(shuffled)
    assert decided(shuffled) == decided(runs)


@given(runs_of_family)
def test_a_repeated_run_counts_once(runs: list[RunFacts]) -> None:
    assert decided([*runs, *runs]) == decided(runs)


@given(runs_of_family, st.integers(0, 60))
def test_windows_of_parts_are_merged_to_the_whole(runs: list[RunFacts], count: int) -> None:
    span = WindowSpan(now_ns=START_NS + 61 * NS_PER_DAY)
    total = FamilyWindow(span)
    part = FamilyWindow(span)
    for run in runs[:count]:
        total.add_run(run)
    for run in runs[count:]:
        part.add_run(run)
    total.merge(part)
    total.add_newest_before_span()
    assert decision_on(total, FIRST) == decided(runs)


@given(runs_of_family, runs_of_family)
def test_unconfirmed_runs_change_nothing_but_their_count(
    runs: list[RunFacts], others: list[RunFacts]
) -> None:
    forged = [replace(run, is_confirmed=False) for run in others]
    expected = decided(runs)
    found = decided([*forged, *runs])
    shown = replace(present(found.evidence), unconfirmed=0)
    assert replace(found, evidence=shown) == expected


@given(runs_of_family, st.floats(0, 2048))
def test_a_run_with_a_larger_need_never_makes_the_size_smaller(
    runs: list[RunFacts], peak_mb: float
) -> None:
    """Among enough runs of the right size over enough days."""
    usual = [fact(100 + number, task_id=f"usual-{number}") for number in range(30)]
    more = fact(129, peak_mb=peak_mb, task_id="more")

    def memory_mb(of: list[RunFacts]) -> float:
        window = window_of_runs(of, days=400, now_ns=START_NS + 131 * NS_PER_DAY)
        decision = decision_on(window, FIRST)
        size = decision.size if decision.action == "resize" else None
        return (size or SIZE).memory_mb or 0

    assert memory_mb([*runs, *usual, more]) >= memory_mb([*runs, *usual])


def test_the_largest_need_counts_however_many_runs_came_after_it() -> None:
    runs = [fact(number % 30, task_id=f"task-{number}", peak_mb=100) for number in range(3000)]
    runs.append(fact(2, task_id="month end", peak_mb=1900))
    window = window_of_runs(runs, now_ns=START_NS + 31 * NS_PER_DAY)
    evidence = with_all_needs(present(evidence_at_size(window, SIZE)), window)
    assert evidence.needs.required_memory_mb == 1900
    assert evidence.outcomes.runs == 3001
    kept = window.sizes[SIZE].deciding_runs()
    assert len(kept) <= 210


def test_a_queue_is_known_however_many_runs_came_after_its_job() -> None:
    """Where no job of the size has room, a resize must not register it."""
    runs = [fact(number, batch=BatchJob(queue="often")) for number in range(NEWEST_RUNS + 50)]
    window = window_of_runs([fact(0, task_id="first", batch=BatchJob(queue="rare")), *runs])
    assert window.runs_at(SIZE).queues == {"rare", "often"}


def test_runs_before_the_span_count_only_for_rare_families() -> None:
    weekly = [report(7 * number, revision="1") for number in range(30)]
    now_ns = START_NS + 211 * NS_PER_DAY
    window = window_of(weekly, days=35, min_runs=20, now_ns=now_ns)
    assert window.deciding_counts.run_count == 20
    assert window.deciding_counts.first_ns == START_NS + 70 * NS_PER_DAY
    daily = [report(number, revision="1") for number in range(200)]
    often = window_of(daily, days=35, min_runs=20, now_ns=START_NS + 200 * NS_PER_DAY)
    assert often.deciding_counts.run_count == 35


def test_of_many_revisions_the_newest_are_known_in_any_order() -> None:
    numbers = [*range(300, 0, -2), *range(1, 301, 2)]
    runs = [fact(20, task_id=f"task-{number}", revision=str(number)) for number in numbers]
    revisions = window_of_runs(runs, now_ns=LATER_NS).sizes[SIZE].revisions
    newest = {str(number) for number in range(301 - REVISIONS, 301)}
    assert set(revisions) == {*newest, ""}
    assert revisions[""].counts.run_count == 300 - REVISIONS


def test_counts_of_a_search_cluster_with_the_runs_that_decide_are_like_all_runs() -> None:
    runs = [
        fact(number % 30, task_id=f"task-{number}", peak_mb=100 + number) for number in range(90)
    ]
    whole = window_of_runs(runs, now_ns=LATER_NS)
    counts = RunCounts()
    for run in runs:
        counts.count_run(run)
    window = FamilyWindow(whole.span)
    window.add_counts("1", SIZE, counts, [590_000.0] * 90)
    for run in runs:
        window.add_counted_run(run)
    window.add_newest_before_span()
    assert decision_on(window, FIRST) == decision_on(whole, FIRST)


def test_what_a_search_cluster_says_of_many_runs_is_what_the_runs_say_themselves() -> None:
    """The limits of all containers, the longest success of each hour and the largest slowdowns:
    without one, a size would be lowered that a run needs, or that overlaps the next run.
    """
    bounds = slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2))
    side = {"side": Metrics(max_memory_used_mb=20, memory_size_mb=256)}
    run = fact(3, others=side, metrics={"slowdown_at_vcpu": bounds, "memory_size_mb": 900})
    whole = window_of_runs([run], now_ns=LATER_NS).sizes[SIZE]
    window = FamilyWindow(WindowSpan(now_ns=LATER_NS))
    window.add_container_limit("1", SIZE, "batch", 900, launch_type="FARGATE")
    window.add_container_limit("1", SIZE, "side", 256, launch_type="FARGATE")
    window.add_longest_success(SIZE, run.began_ns, 590_000, launch_type="FARGATE")
    window.add_slowdowns(SIZE, {0.25: bounds["0.25"], 0.5: bounds["0.5"]})
    window.add_slowdowns(TaskSize(memory_mb=2048), {0.25: bounds["0.25"]})
    counted = window.sizes[SIZE]
    assert counted.revisions["1"].limits_mb == whole.revisions["1"].limits_mb
    assert counted.revisions["1"].limits_mb == {"batch": {900}, "side": {256}}
    assert counted.longest_ms == whole.longest_ms == {run.began_ns // NS_PER_HOUR % 24: 590_000}
    assert {vcpu: counted.factors[vcpu] for vcpu in whole.factors if vcpu >= 1} == {
        vcpu: factors for vcpu, factors in whole.factors.items() if vcpu >= 1
    }
    # Of many runs, nobody knows whether the slowest at 0.25 vCPU was slower at 0.5, too.
    assert counted.factors[0.5][0.25].max == 2 > whole.factors[0.5][0.25].max
    deciding = FamilyWindow(WindowSpan(now_ns=LATER_NS))
    deciding.add_counted_run(run)
    (at_size,) = deciding.sizes.values()
    assert at_size.revisions["1"].limits_mb == {"side": {256}}, "add_counts has the batch's own"


def test_a_container_without_a_measurement_is_no_container_that_used_nothing() -> None:
    """Its limit would be lowered to Docker's least."""
    run = fact(3, others={"measured": Metrics(max_memory_used_mb=20)})
    others = (*run.record.containers, OtherContainer(name="unmeasured"))
    run = reported_facts(report(3, revision="1", containers=others))
    assert {*window_of_runs([run], now_ns=LATER_NS).sizes[SIZE].containers} == {
        "batch",
        "measured",
    }


def by_minute(number: int, **more: Any) -> RunFacts:
    """A run that Container Insights saw, and whose peak nobody knows."""
    sampling = Sampling(interval_ms=60_000, samples=20, sources=(CONTAINER_INSIGHTS,))
    return fact(number, task_id=f"insights-{number}", sampling=sampling, **more)


@pytest.mark.parametrize("are_insights_first", [False, True])
def test_runs_of_container_insights_only_forbid_beside_those_of_reports(
    *, are_insights_first: bool
) -> None:
    """Whichever part of a source was read first."""
    minutes = window_of_runs(
        [*(by_minute(number, peak_mb=700) for number in range(4)), by_minute(4, **ENDINGS[-1])],
        now_ns=LATER_NS,
    )
    reports = window_of_runs([fact(number) for number in range(6)], now_ns=LATER_NS)
    assert minutes.is_by_minute
    assert minutes.deciding_counts.task_count == 5
    first, second = (minutes, reports) if are_insights_first else (reports, minutes)
    first.merge(second)
    assert not first.is_by_minute
    assert first.deciding_counts.task_count == 6
    assert (first.by_minute, first.used_by_minute_mb, first.killed_by_minute_mb) == (5, 700, 2048)


def test_open_windows_of_container_insights_are_merged_before_they_count() -> None:
    span = WindowSpan(now_ns=LATER_NS)
    total, other = FamilyWindow(span), FamilyWindow(span)
    total.add_run(by_minute(1))
    other.add_run(by_minute(2, peak_mb=900))
    other.add_run(fact(3))
    total.merge(other)
    total.add_newest_before_span()
    assert total.deciding_counts.task_count == 1
    assert (total.by_minute, total.used_by_minute_mb) == (2, 900)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        ({}, "success"),
        ({"status": "failure"}, "failed"),
        ({"status": "unknown"}, "failed"),
        ({"status": "lost"}, "failed"),
        ({"status": "stopped"}, "stopped"),
        ({"status": "success", "likely_out_of_memory": True}, "killed"),
        ({"status": "stopped", "likely_out_of_memory": True}, "killed"),
    ],
)
def test_a_run_has_one_outcome(ending: dict[str, Any], outcome: str) -> None:
    counts = RunCounts()
    counts.count_run(fact(0, **ending))
    assert counts.counts_by_outcome == {outcome: 1}


@pytest.mark.parametrize("revision", ["9" * 5000, "٣", "-1", "1.0", "nightly"])
def test_a_run_with_an_impossible_revision_is_one_of_the_older(revision: str) -> None:
    window = window_of_runs([fact(1, revision=revision)], days=35, now_ns=LATER_NS)
    assert list(window.sizes[SIZE].revisions) == [OLDER_REVISIONS]
