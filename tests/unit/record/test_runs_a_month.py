"""The runs of a month: measured, by the schedules, as the window shows, or assumed."""

import pytest

from profiler.cli.recommended_months import basis_sentences
from profiler.core.timestamps import DAYS_PER_MONTH, NS_PER_SECOND, format_ms
from profiler.record.family_statistics import (
    MonthBasis,
    MonthlyTasks,
    estimated_month,
    measured_month,
)
from profiler.record.record_model import Report
from profiler.sizing.evidence import Evidence
from profiler.sizing.run_collector import FamilyRunCollector
from tests.cases import each_case
from tests.fakes import START_NS
from tests.runs import add_reports, evidence_of, report
from tests.sized_runs import advice

HOUR = 1.0


def run_after(hours: float, number: int) -> Report:
    started_ns = START_NS + round(hours * 3600 * NS_PER_SECOND)
    return report(started_at=format_ms(started_ns), task_id=f"task-{number}")


def runs_each(hours: float, count: int) -> Evidence:
    return evidence_of(run_after(number * hours, number) for number in range(count))


def month_each(hours: float, count: int, due: float | None, covered_days: float) -> MonthlyTasks:
    window_ns = round((count - 1) * hours * 3600 * NS_PER_SECOND)
    return estimated_month(count, window_ns, due, covered_days)


def test_five_tasks_in_a_day_measure_a_month() -> None:
    found = runs_each(24 * HOUR, 5).usage.tasks_in_a_month
    assert found is not None
    assert found.basis == "measured"
    assert found.runs == pytest.approx(DAYS_PER_MONTH)


@each_case(
    ("hours", "count", "is_of_few_days"),
    [
        (24 * HOUR, 5, True),
        (15 * HOUR, 5, True),
        (24 * HOUR, 7, False),
        (24 * HOUR - 2 / 60, 7, False),  # each night two minutes earlier
        (24 * HOUR, 30, False),
    ],
)
def test_less_than_seven_nights_do_not_show_what_a_week_has(
    hours: float, count: int, *, is_of_few_days: bool
) -> None:
    """Runs of three days gave a month's money, to the cent and without a mark."""
    made = advice(run_after(number * hours, number) for number in range(count))
    assert made.month is not None
    assert made.month.basis == "measured"
    assert made.monthly_amount_mark == ("≈ " if is_of_few_days else "")
    assert [*basis_sentences([made])] == (
        ["≈ is an estimate: as many runs a day as seen of 1 family."] if is_of_few_days else []
    )


@pytest.mark.parametrize(("hours", "count"), [(24 * HOUR, 4), (0.25, 50), (1.0, 1)])
def test_fewer_tasks_or_a_shorter_window_measure_none(hours: float, count: int) -> None:
    assert runs_each(hours, count).usage.tasks_in_a_month is None


@each_case(
    ("hours", "count", "covered_days", "basis", "a_day"),
    [
        (1.0, 1, 1.0, "nightly", 1),
        (1.0, 1, 0.0, "nightly", 1),
        # One in two weeks is no nightly one.
        (1.0, 1, 14.0, "window", 1 / 14),
        # Two nights, of which the second began two minutes early.
        (24 * HOUR - 2 / 60, 2, 1.0, "window", 1 / (1 - 2 / 60 / 24)),
        # A retry after a minute: two tasks a day, not 1,440.
        (1 / 60, 2, 1.0, "window", 2),
        # Each hour of a day.
        (1.0, 24, 1.0, "window", 24),
        # Every 15 minutes: of a window of half a day, what it shows at least.
        (0.25, 50, 1.0, "window", 50),
        # Weekly.
        (7 * 24 * HOUR, 3, 21.0, "window", 1 / 7),
    ],
)
def test_the_estimate_without_a_schedule(
    hours: float, count: int, covered_days: float, basis: MonthBasis, a_day: float
) -> None:
    found = month_each(hours, count, None, covered_days)
    assert found.basis == basis
    assert found.runs == pytest.approx(a_day * DAYS_PER_MONTH)
    assert found.is_estimate


def test_tasks_at_one_moment_are_those_of_a_day() -> None:
    found = month_each(0, 5, None, 1)
    assert found.runs == pytest.approx(5 * DAYS_PER_MONTH)


def test_known_due_times_are_the_months_runs() -> None:
    found = month_each(0.25, 50, 2922.0, 1)
    assert found.basis == "schedule"
    assert found.runs == 2922.0


def test_an_advice_without_an_estimate_has_no_month() -> None:
    assert advice([run_after(0, 0)]).month is None
    assert advice([run_after(0, 0)]).usd_per_month is None


def test_all_runs_that_were_read_measure_a_month_where_the_last_ones_do_not() -> None:
    """Every 15 minutes: 50 runs are half a day, 600 are six."""
    families = FamilyRunCollector(50)
    for number in range(600):
        add_reports(families, [run_after(0.25 * number, number)] * 2)
    (evidence,) = families.evidence_by_row().values()
    assert evidence is not None
    assert evidence.outcomes.runs == 50
    assert evidence.usage.tasks_in_a_month is None
    (read,) = families.tasks_read_by_row().values()
    assert read.tasks == 600
    found = measured_month(read.tasks, read.window_ns)
    assert found is not None
    assert found.basis == "measured"
    assert found.runs == pytest.approx(96 * DAYS_PER_MONTH)
