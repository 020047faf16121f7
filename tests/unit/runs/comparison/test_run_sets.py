"""Sets of runs, named by texts, from a source of past runs; and the change of a metric between
two sets.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable
from random import Random
from statistics import mean, median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.record_model import UNKNOWN_COST, Container, Cost, Metrics, Report
from profiler.runs.comparison.change_interval import (
    MedianChange,
    Verdict,
    _resampled_medians,
    median_change,
)
from profiler.runs.comparison.compared_metrics import COMPARED_METRICS, is_measured
from profiler.runs.comparison.run_sets import RunSet, read_run_sets
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter
from tests.run_sources import ListedRuns
from tests.runs import checkpoint, report
from tests.shown_runs import etl, gpu
from tests.values import present

amounts = st.floats(min_value=0.001, max_value=1e15)
some_runs = st.lists(amounts, min_size=5, max_size=12)


def interval(change: MedianChange) -> tuple[float, float]:
    """The ends of a known interval."""
    return present(change.low_percent), present(change.high_percent)


def noisy(random: Random, runs: int, noise: float = 0.02, middle: float = 100) -> list[float]:
    return [random.gauss(middle, noise * middle) for _ in range(runs)]


def test_a_change_beyond_the_noise_has_a_verdict_and_an_interval_around_it() -> None:
    a, b = [100.0, 101, 99, 102, 98], [110.0, 111, 109, 112, 108]
    more, less = median_change(a, b), median_change(b, a)
    assert more.a == 100
    assert more.b == 110
    assert more.verdict == "more"
    assert less.verdict == "less"
    assert more.change_percent == pytest.approx(10)
    low, high = interval(more)
    assert 5 < low < 10 < high < 15
    random = Random(4)  # ten percent more is always seen in ten runs with little noise
    assert {
        median_change(noisy(random, 10), noisy(random, 10, middle=110)).verdict for _ in range(30)
    } == {"more"}


def certain(percent: float, verdict: Verdict, **more: Any) -> MedianChange:
    return MedianChange(
        change_percent=percent, low_percent=percent, high_percent=percent, verdict=verdict, **more
    )


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param([], [2], MedianChange(a=None, b=2), id="no base"),
        pytest.param(
            [100] * 4,
            [200] * 400,
            MedianChange(a=100, b=200, change_percent=100, runs_needed=5),
            id="four runs",
        ),
        pytest.param(
            [100] * 5,
            [100] * 5,
            certain(0, "no difference seen", a=100, b=100, runs_needed=5),
            id="the same",
        ),
        pytest.param([100] * 5, [125] * 5, certain(25, "more", a=100, b=125), id="certain"),
        pytest.param([0] * 5, [3] * 5, MedianChange(a=0, b=3, verdict="more"), id="from zero"),
        pytest.param([3] * 5, [0] * 5, certain(-100, "less", a=3, b=0), id="to zero"),
        pytest.param([0, 0, 0, 0, 9], [0, 0, 0, 9, 9], MedianChange(a=0, b=0), id="mostly zeros"),
        pytest.param(
            [0, 0, 0, 4, 4, 4],
            [4] * 6,
            MedianChange(a=2, b=4, change_percent=100, low_percent=0),
            id="maybe from 0",
        ),
    ],
)
def test_few_runs_constant_sets_and_zeros(
    a: list[float], b: list[float], expected: MedianChange
) -> None:
    assert median_change(a, b) == expected


@pytest.mark.parametrize("runs", [1, 2, 3, 4, 5, 6])
def test_the_medians_are_those_of_resampled_sets(runs: int) -> None:
    values = [float(n**2) for n in range(runs)]
    exact = Counter(median(resampled) for resampled in itertools.product(values, repeat=runs))
    drawn = Counter(_resampled_medians(values, 0))
    assert drawn.keys() <= exact.keys()
    for value, number in exact.items():
        assert drawn[value] / drawn.total() == pytest.approx(number / runs**runs, abs=0.02)


@settings(max_examples=25)
@given(some_runs, some_runs)
def test_the_interval_holds_the_change_and_agrees_with_the_verdict(
    a: list[float], b: list[float]
) -> None:
    change = median_change(a, b)
    low, high = interval(change)
    assert -100 <= low <= high
    assert low - 1e-6 <= present(change.change_percent) <= high + 1e-6 * (1 + abs(high))
    assert (change.verdict == "more") == (low > 1e-7)
    assert (change.verdict == "less") == (high < -1e-7)
    assert (change.runs_needed is None) == change.is_seen
    assert change.is_seen or present(change.runs_needed) >= 5
    if change.verdict == "too few runs":
        assert present(change.runs_needed) > min(len(a), len(b))
        assert low <= 100 / 1.05 - 100 or high >= 5, "else a change of 5 % is excluded"
    if change.verdict == "no difference seen":
        assert high - low < 12


def test_an_interval_without_a_change_of_5_percent_is_no_lack_of_runs() -> None:
    """Although a change of 5 % is more likely seen with more runs."""
    random = Random(7)
    changes = [
        median_change(*([random.gauss(100, 4) for _ in range(20)] for _ in range(2)))
        for _ in range(12)
    ]
    narrow = [one for one in changes if -4.7 < interval(one)[0] <= 0 <= interval(one)[1] < 5]
    assert {one.verdict for one in narrow} == {"no difference seen"}
    assert any(present(one.runs_needed) > 20 for one in narrow)


@pytest.mark.parametrize(
    ("step", "needed"), [(1, 8), (0.1, 10)], ids=["some noise", "little noise"]
)
@pytest.mark.parametrize("outlier", [200, 1e9])
def test_an_outlier_demands_few_more_runs(step: float, needed: int, outlier: float) -> None:
    usual = [100 + step * number for number in range(5)]
    change = median_change([*usual[:4], outlier], usual)
    assert change.verdict == "too few runs"
    assert change.runs_needed == needed


DISTRIBUTIONS: dict[str, Callable[[Random], float]] = {
    "normal": lambda random: random.gauss(100, 10),
    "two modes": lambda random: random.gauss(100, 2) * (1.5 if random.random() < 0.4 else 1),
    "heavy tail": lambda random: (
        100 * math.exp(0.05 * random.gauss(0, 1) / math.sqrt(random.expovariate(1)))
    ),
    "whole numbers": lambda random: round(random.gauss(100, 2)),
}


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("runs", [(5, 5), (6, 6), (10, 10), (7, 200)], ids=str)
def test_equal_sets_raise_few_alarms(runs: tuple[int, int]) -> None:
    random = Random(f"{runs}")
    verdicts = Counter(
        median_change(*([value(random) for _ in range(count)] for count in runs)).verdict
        for value in DISTRIBUTIONS.values()
        for _ in range(15)
    )
    assert verdicts["more"] + verdicts["less"] <= 0.08 * verdicts.total()


def test_the_runs_needed_show_five_percent() -> None:
    random, seen = Random(5), []
    for _ in range(8):
        needed = present(median_change(noisy(random, 8, 0.06), noisy(random, 8, 0.06)).runs_needed)
        seen.append(
            median_change(noisy(random, needed, 0.06), noisy(random, needed, 0.06, 105)).verdict
            == "more"
        )
    assert mean(seen) > 0.6


def runs_of(name: str, count: int = 3, *, first: int = 0, **more: Any) -> list[Report]:
    """Runs of a family, each on another day; their ids begin with the name."""
    return [
        report(number, family=name, task_id=f"{name}-{number}", **more)
        for number in range(first, first + count)
    ]


def read(
    a: str,
    b: str,
    *reports: Report,
    last: int = 50,
    container: str | None = None,
    **conditions: Any,
) -> tuple[tuple[RunSet, RunSet], list[str]]:
    source = ListedRuns(PastRun(report=one) for one in reports)
    sets, remarks = read_run_sets(source, (a, b), RunFilter(**conditions), last, container)
    return sets, list(remarks)


def ids(one: RunSet) -> list[str]:
    return [record.task_id for record in one.records]


WEEKLY = runs_of("weekly")


def test_a_set_is_a_family_or_one_of_its_revisions_or_labels() -> None:
    old = runs_of("nightly", revision="25", labels={"branch": "main", "host": "a"})
    new = runs_of("nightly", first=10, revision="26", labels={"branch": "pr=1@x", "host": "a"})
    (a, b), remarks = read("nightly@25", "nightly@branch=pr=1@x", *old, *new, *WEEKLY)
    assert ids(a) == ["nightly-2", "nightly-1", "nightly-0"]
    assert remarks == []
    assert ids(b) == ["nightly-12", "nightly-11", "nightly-10"]
    (a, b), _ = read("nightly", "weekly", *old, *new, *WEEKLY)
    assert len(a.reports) == 6
    assert len(b.reports) == 3
    assert a.has_more is False


def test_only_successes_of_a_name_count_and_the_others_are_counted() -> None:
    mixed = [
        report(0),
        report(1, status="failure", exit_code=1),
        report(2, status="failure", exit_code=1),
        report(3, status="stopped", exit_code=None),
        report(4, status="unknown", exit_code=None),
        report(5, status="a newer word"),
        checkpoint(report(6)),
        report(7, metrics=dict.fromkeys(("duration_ms", "max_memory_used_mb"))),
    ]
    (a, _), _ = read("nightly", "weekly", *mixed, *WEEKLY)
    assert ids(a) == ["task-0"]
    assert (
        a.left_out_text
        == "2 failed, 1 not measured, 1 stopped, 1 unfinished, 2 with an unknown result"
    )


def test_the_newest_successes_count_and_no_more_is_read() -> None:
    nights = [PastRun(report=one) for one in (*runs_of("nightly", 30), *runs_of("weekly", 30))]
    source = ListedRuns(nights)
    (a, b), _ = read_run_sets(source, ("nightly", "weekly"), RunFilter(), 5)
    assert ids(a) == [f"nightly-{number}" for number in (29, 28, 27, 26, 25)]
    assert a.has_more is True
    assert a.left_out_text == "all but the newest 5"
    assert b.has_more is True
    assert source.read == 12
    (a, b), _ = read("nightly", "weekly", *runs_of("nightly", 5), *WEEKLY, last=5)
    assert a.has_more is False
    assert a.left_out_text == ""


def test_ids_and_their_beginnings_count_whatever_the_status() -> None:
    runs = [
        report(0, task_id="abc1", status="failure"),
        report(1, task_id="abd2"),
        report(2, task_id="xyz3"),
    ]
    (a, b), _ = read("abc,abd2/batch, abc1", "xyz3", *runs)
    assert ids(a) == ["abc1", "abd2"]
    assert ids(b) == ["xyz3"]
    for text, kind, sentence in (
        ("ab", TaskProfilerError, "ids of 2 runs in the list begin with 'ab': give more of the id"),
        ("zzz", TaskProfilerError, "No run or family 'zzz' in the list"),
        ("abc1,", UsageError, "'abc1,' has an empty run id"),
        (
            "abc1,nightly",
            UsageError,
            "nightly is not the id of a run: name one family, or run ids joined by commas",
        ),
        ("nightly@", UsageError, "'nightly@' has nothing after the @: write nightly, nightly@REV"),
        ("@", TaskProfilerError, "No run or family '@' in the list"),
        ("night*", UsageError, r"night\* is not the id of a run"),
        ("task-9", TaskProfilerError, "The run task-9 has no report yet"),
    ):
        with pytest.raises(kind, match=sentence):
            read(text, "xyz3", *runs, checkpoint(report(9)))


def test_a_name_in_several_accounts_or_regions_is_refused_with_the_options() -> None:
    runs = [
        *(
            report(number, task_id=f"a{number}", account_id="1", region="eu-west-1", revision="1")
            for number in (0, 1)
        ),
        *(
            report(number, task_id=f"b{number}", account_id="2", region="us-east-1", revision="2")
            for number in (0, 1)
        ),
    ]
    for first, second in (("nightly", "weekly"), ("nightly@1", "nightly@2")):
        with pytest.raises(UsageError) as failure:
            read(first, second, *runs, *WEEKLY)
        assert str(failure.value) == (
            "nightly is a family in several accounts (1, 2) and Regions (eu-west-1, us-east-1): "
            "choose one with --account and --task-region, or name runs by their ids."
        )
    (a, _), _ = read(
        "nightly", "weekly", *runs, *runs_of("weekly", account_id="2"), accounts=("2",)
    )
    assert ids(a) == ["b1", "b0"]


def test_tasks_with_reports_of_several_containers_need_a_choice() -> None:
    def container(name: str, number: int, **more: Any) -> Report:
        return report(number, task_id=f"t{number}", container=Container(name=name), **more)

    runs = [
        *(container("load", number) for number in (0, 1, 9)),
        *(container("export", n, cost=Cost(usd=0.1)) for n in (0, 1)),
    ]
    with pytest.raises(
        UsageError, match=r"2 containers \(export, load\): choose one with --container"
    ):
        read("nightly", "weekly", *runs, *WEEKLY)
    for text in ("nightly", "nightly@1"):
        with pytest.raises(
            TaskProfilerError,
            match=r"No run of nightly in the list is of container x: they are of load, export\.$",
        ):
            read(text, "weekly", *runs, *WEEKLY, container="x")
    (a, b), _ = read("nightly", "t9", *runs, container="load")
    assert [record.container.name for record in a.records] == ["load"] * 3
    assert ids(b) == ["t9"]
    assert [record.cost != UNKNOWN_COST for record in a.records] == [
        False,
        True,
        True,
    ]  # those of tasks with an export


def test_sets_that_are_the_same_are_refused_and_common_runs_are_said() -> None:
    runs = runs_of("nightly", revision="1")
    with pytest.raises(UsageError, match="A and B are both nightly"):
        read("nightly", "nightly", *runs)
    with pytest.raises(UsageError, match="nightly and nightly@1 are the same 3 runs"):
        read("nightly", "nightly@1", *runs)
    _, remarks = read("nightly", "nightly-1,nightly-2", *runs)
    assert remarks == ["2 runs are in both sets, which makes a difference look smaller than it is."]
    _, remarks = read("nightly", "nightly-1", *runs)
    assert remarks == ["1 run is in both sets, which makes a difference look smaller than it is."]


@pytest.mark.parametrize("suffix", ["27", "user=x"])
def test_a_revision_or_label_that_no_run_has_names_those_that_there_are(suffix: str) -> None:
    runs = [
        report(0, revision="25", labels={"branch": "main"}),
        report(1, revision="26", labels={"branch": "pr"}),
    ]
    with pytest.raises(TaskProfilerError) as failure:
        read(f"nightly@{suffix}", "weekly", *runs, *WEEKLY)
    assert str(failure.value) == (
        f"No run of nightly in the list is in nightly@{suffix}: its runs have 26, branch=pr, 25, "
        "branch=main."
    )


def test_a_revision_or_label_that_is_nearly_right_is_proposed() -> None:
    runs = [report(0, revision="25", labels={"branch": "main"}), report(1)]
    with pytest.raises(TaskProfilerError, match=r"branch=main\. Did you mean branch=main\?$"):
        read("nightly@branch=mian", "weekly", *runs, *WEEKLY)
    with pytest.raises(TaskProfilerError) as failure:
        read("nightly@25", "weekly", report(1), *WEEKLY)
    assert str(failure.value) == (
        "No run of nightly in the list is in nightly@25: its runs have neither revisions nor "
        "labels."
    )


def test_ids_beside_a_family_that_has_runs_are_ids() -> None:
    """The name of a family is the beginning of its runs' ids here."""
    (a, b), _ = read("nightly-0", "nightly-1", *runs_of("nightly"))
    assert (ids(a), ids(b)) == (["nightly-0"], ["nightly-1"])


def test_the_metrics_are_those_of_the_record() -> None:
    record = etl().record
    of_gpus = {"maxGpuMemoryUsedMB": 64_800, "gpuIdlePercent": 38}
    on_gpus = {metric.name: metric.read(gpu().record) for metric in COMPARED_METRICS}
    assert on_gpus.items() >= {"gpuUtilizationPercent": 60, **of_gpus}.items()
    assert {metric.name: metric.read(record) for metric in COMPARED_METRICS} == {
        "durationMs": 1_182_000,
        "cpuSeconds": 1290.4,
        "maxMemoryUsedMB": 3310,
        "memoryAverageMB": 1420,
        "blockReadBytes": 1_200_000_000,
        "blockWriteBytes": 380_000_000,
        "costUsd": 0.0329,
        "gpuUtilizationPercent": None,
        "maxGpuMemoryUsedMB": None,
        "gpuIdlePercent": None,
        "gpuIdleBetweenPercent": None,
    }
    bare = report(metrics={field.name: field.default for field in fields(Metrics)}).record
    assert [metric.read(bare) for metric in COMPARED_METRICS] == [None] * 11
    assert is_measured(record) is True
    assert is_measured(bare) is False


@given(
    name=st.text("ab=,*", min_size=1, max_size=6), suffix=st.text("ab@=,", min_size=1, max_size=6)
)
def test_names_and_values_have_any_character(name: str, suffix: str) -> None:
    mine = runs_of(name, revision=suffix)
    (a, b), _ = read(name, "other", *mine, *runs_of("other"))
    assert len(a.reports) == 3
    assert len(b.reports) == 3
    (a, _), _ = read(
        f"{name}@{suffix}",
        "other",
        *mine,
        *runs_of("other"),
        *runs_of(name, first=10, revision="9"),
    )
    assert ids(a) == [one.record.task_id for one in reversed(mine)]
