"""A change of a family's duration on the page is more than chance, by the rule of ``compare``."""

from collections.abc import Iterable, Mapping
from random import Random

import pytest
from msgspec.structs import replace

from profiler.record.record_model import Report
from profiler.report_page.page_changes import duration_changes
from profiler.report_page.page_rows import PageRun
from profiler.runs.comparison.change_interval import median_change
from tests.report_page import content, run_of
from tests.workflow_night import ORDERED, PROCESSES, workflow_night

DAY_MS = 86_400_000


def changes(reports: Iterable[Report]) -> Mapping[str, float]:
    """What the page has of these runs, given the oldest first."""
    found = content([run_of(report) for report in reversed([*reports])])["changes"]
    assert isinstance(found, dict)
    return found


def nights(*durations_ms: float, outcome: str = "success", apart_ms: int = DAY_MS) -> list[PageRun]:
    """Runs of one family, one a night, given the oldest first."""
    runs = [
        PageRun(
            id=f"{number}",
            family="etl",
            container="batch",
            outcome=outcome,
            began=DAY_MS // 4 + number * apart_ms,
            ms=ms,
        )
        for number, ms in enumerate(durations_ms)
    ]
    return runs[::-1]


@pytest.mark.slow
def test_the_halves_of_one_night_have_no_change() -> None:
    """Neither where they differ by chance, nor where the large inputs come last."""
    assert len(PROCESSES) > 30
    assert changes(workflow_night(ORDERED)) == {}


def test_many_runs_of_each_night_are_one_value() -> None:
    """In each of twelve nights, the runs get longer."""
    night = nights(100.0, 110.0, 120.0, 200.0, 400.0, apart_ms=60_000)
    runs = [
        replace(run, began=(run.began or 0) + (12 - number) * DAY_MS)
        for number in range(12)
        for run in night
    ]
    assert duration_changes(runs) == {}


def test_it_is_the_change_of_compare_between_the_halves_of_the_last_nights() -> None:
    random = Random(1)
    older = [100 * random.lognormvariate(0, 0.1) for _ in range(10)]
    newer = [140 * random.lognormvariate(0, 0.1) for _ in range(10)]
    change = median_change(older, newer)
    assert change.is_seen
    assert duration_changes(nights(*older, *newer)) == {"etl": change.change_percent}
    killed = nights(*older, outcome="out of memory")
    assert duration_changes([*killed, *nights(*older, *newer)]) == {"etl": change.change_percent}
    many = nights(*[1.0] * 100, *[100.0] * 25, *[200.0] * 25)
    assert duration_changes(many) == {"etl": 100.0}, "of 50 nights"


def test_few_nights_small_changes_and_runs_in_progress_have_none() -> None:
    assert duration_changes(nights(*[100.0] * 4, *[200.0] * 5)) == {}
    assert duration_changes(nights(*[100.0] * 9, *[104.0] * 9)) == {}
    assert duration_changes(nights(*[100.0] * 9, *[200.0] * 9, outcome="running")) == {}
    failed = nights(*[100.0] * 9, *[200.0] * 9, outcome="failure")
    assert duration_changes(failed) == {"etl": 100.0}


def test_chance_alone_is_rarely_a_change() -> None:
    random = Random(3)
    found = 0
    for _ in range(40):
        found += bool(duration_changes(nights(*(random.lognormvariate(5, 0.5) for _ in range(30)))))
    assert found <= 4
