"""A night of workflows on the screens that list families: one sum, one order, names to tell apart."""

from collections.abc import Sequence
from datetime import UTC

import pytest

from profiler.cli.history_command import run_table_lines
from profiler.cli.recommend_command import _changed_families, _recommendation_lines
from profiler.core.optional_math import sum_known
from profiler.core.timestamps import (
    NS_PER_DAY,
    NS_PER_MINUTE,
    NS_PER_SECOND,
    format_ms,
    parse_ns,
)
from profiler.forwarder.morning_digest import DigestPlace, summarize_night
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import EarlierRun, FamilyHistory, MissedTimes, NightRuns
from profiler.record.family_identity import family_labels
from profiler.record.family_statistics import MonthlyTasks
from profiler.record.record_model import Report
from profiler.record.run_usage import run_usage_of
from profiler.report_page.page_data import family_size_rows
from profiler.runs.past_runs.family_evidence import evidence_of_past_runs
from profiler.runs.past_runs.past_run import PastRun
from profiler.sizing.advice import Advice, advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.evidence import Evidence
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.size_summary import size_story
from profiler.sizing.trend import nights_before
from tests.fakes import START_NS
from tests.runs import evidence_of, report
from tests.terminals import texts
from tests.values import present
from tests.workflow_night import ORDERED, PROCESSES, workflow_night

TERMINAL = 80
NAMES = [process.name for process in PROCESSES]
MONTH = MonthlyTasks(runs=1217.0, basis="window")
PRICES = PriceOverrides()


@pytest.fixture(scope="module")
def reports() -> Sequence[Report]:
    return [*workflow_night()]


@pytest.fixture(scope="module")
def evidences(reports: Sequence[Report]) -> Sequence[Evidence]:
    return [*map(present, evidence_of_past_runs(PastRun(report=report) for report in reports))]


@pytest.fixture(scope="module")
def advices(evidences: Sequence[Evidence]) -> Sequence[Advice]:
    return [advise_on_size(evidence, SizePolicy(), PRICES, month=MONTH) for evidence in evidences]


def test_the_pages_possible_saving_is_the_sum_of_recommend(
    evidences: Sequence[Evidence], advices: Sequence[Advice]
) -> None:
    labels = family_labels([evidence.family for evidence in evidences])
    months = {evidence.family: MONTH for evidence in evidences}
    rows = [*family_size_rows(evidences, labels, PRICES, months)]
    changed = [row for row in rows if row["changes"] and row["verdict"] in ("saves", "too small")]
    saved = sum_known(*(row["savingUsdPerMonth"] for row in changed))
    assert saved == pytest.approx(
        sum_known(*(a.saving_usd_per_month for a in _changed_families(advices)))
    )
    cost = sum_known(*(row["usdPerMonth"] for row in rows))
    assert cost == pytest.approx(sum_known(*(advice.usd_per_month for advice in advices)))
    assert {row["mark"] for row in rows} == {"≈ "}


def test_what_is_too_small_comes_first(advices: Sequence[Advice]) -> None:
    rows = texts(_recommendation_lines(advices, (), None, with_sizes=False))
    titles = [row for row in rows if row in ("Too small", "Saves", "Fits")]
    assert titles[:2] == ["Too small", "Saves"]
    assert rows[rows.index("Too small") + 1].startswith("  SEQ.MARKDUPLICATES")


def test_names_that_begin_alike_stay_apart_on_a_narrow_terminal(
    reports: Sequence[Report], advices: Sequence[Advice]
) -> None:
    rows = texts(_recommendation_lines(advices, (), TERMINAL, with_sizes=False))
    shown = {row.split()[0] for row in rows if row.startswith("  SEQ.")}
    assert len(shown) == len(NAMES)
    first = {report.record.family: PastRun(report=report) for report in reports}
    listed = texts(run_table_lines([*first.values()], TERMINAL))
    assert len({row.split()[3] for row in listed if "SEQ." in row}) == len(NAMES)


def test_the_morning_message_takes_no_order_of_inputs_for_growth() -> None:
    history: dict[str, list[EarlierRun]] = {}
    last_ns = 0
    for ended in workflow_night(ORDERED):
        record = ended.record
        ended_ns = present(parse_ns(record.finished_at))
        last_ns = max(last_ns, ended_ns)
        of_family = history.setdefault(present(record.family), [])
        run = EarlierRun(
            ended_ns=ended_ns,
            status="success",
            duration_ms=record.metrics.duration_ms,
            peak_mb=present(record.metrics.max_memory_used_mb) * (1 + len(of_family) / 50),
            size_mb=record.metrics.memory_size_mb,
            saving_usd_per_month=None,
        )
        of_family.append(run)
    end_ns = last_ns + NS_PER_SECOND
    last = RememberedNight(end_ns=end_ns - NS_PER_DAY, whole_ns=end_ns - NS_PER_DAY)
    summary = summarize_night(
        NightPeriod(last=last, end_ns=end_ns, zone=UTC),
        NightRuns(counts={"success": dict.fromkeys(history, 1)}, reports=len(history)),
        MissedTimes(times=()),
        FamilyHistory(runs=history),
        DigestPlace(),
    )
    assert summary.lines == ()


@pytest.mark.parametrize(("nights", "is_said"), [(1, False), (7, False), (8, True)])
def test_the_order_of_a_nights_inputs_is_no_trend_of_the_family(
    nights: int, *, is_said: bool
) -> None:
    """40 runs, each longer and larger than the one before, in so many nights."""
    runs = [
        report(
            peak_mb=1000 + 20 * number,
            size=(1, 4096),
            metrics={"duration_ms": 60_000 + 3000 * number},
            task_id=f"task-{number}",
            started_at=format_ms(
                START_NS + number * nights // 40 * NS_PER_DAY + number * NS_PER_MINUTE
            ),
        )
        for number in range(40)
    ]
    advice = advise_on_size(evidence_of(runs), SizePolicy(), PRICES)
    said = (
        "memory peak +20 MB a run over 40 runs, passes 4 GB in about 116 runs",
        "duration +3.0 s a run over 40 successes",
    )
    assert size_story(advice, run_usage_of(runs[-1].record)).trend == (said if is_said else ())
    reasons = [reason for reason in advice.reasons if "memory peak grows" in reason]
    grows = "The memory peak grows by about 20 MB a run: it will pass the limit of "
    assert [reason.startswith(grows) for reason in reasons] == [True] * is_said


@pytest.mark.parametrize("newest_is_late_minutes", [-40, 0, 40])
def test_a_nightly_run_that_begins_early_or_late_is_one_night(newest_is_late_minutes: int) -> None:
    late_minutes = [0, 30, 10, 25, 5, 20, 15, newest_is_late_minutes]
    started_ns = [
        START_NS + night * NS_PER_DAY + late * NS_PER_MINUTE
        for night, late in enumerate(late_minutes)
    ]
    assert [nights_before(started_ns[-1], at_ns) for at_ns in started_ns] == [*range(7, -1, -1)]
