"""The usual duration of a family."""

from itertools import count

from msgspec.structs import replace

from profiler.past_runs.run_source import PastRun
from profiler.past_runs.usual_times import UsualDuration, UsualDurations, usual_duration
from profiler.record.family_identity import FamilyKey
from tests.run_sources import ListedRuns
from tests.runs import report

NIGHTLY, OTHER = FamilyKey("nightly", None, "us-east-1"), FamilyKey("other", None, "us-east-1")


def test_it_is_the_median_and_the_95th_percentile() -> None:
    assert usual_duration([]) is None
    assert usual_duration([5.0]) == UsualDuration(median_ms=5, p95_ms=5, runs=1)
    assert usual_duration([1000.0, 3000.0, 2000.0]) == UsualDuration(median_ms=2000, p95_ms=2900, runs=3)


def test_the_last_20_successes_of_each_family_count_and_a_family_is_read_once() -> None:
    runs = [report(n, metrics={"duration_ms": 1000 * n}) for n in range(30)]
    runs += [report(50 + n, status="failure", metrics={"duration_ms": 1}) for n in range(9)]
    runs += [report(1, family="other", metrics={"duration_ms": None})]
    source = ListedRuns(PastRun(report=one) for one in runs)
    opened = count()
    usual = UsualDurations(lambda: source if next(opened) < 2 else None, 0)
    assert usual.of(NIGHTLY) is None
    usual.read([NIGHTLY, NIGHTLY])
    assert usual.of(NIGHTLY) == UsualDuration(median_ms=19_500, p95_ms=28_050, runs=20)
    assert source.read == 20, "no more is read than needed"
    usual.read([NIGHTLY, OTHER])
    assert (usual.of(OTHER), next(opened)) == (None, 2)
    assert not usual.lacks([NIGHTLY, OTHER])


def test_nothing_is_read_without_a_source_or_before_the_first_day() -> None:
    nowhere = UsualDurations(None, 0)
    assert nowhere.lacks([NIGHTLY]) == ()
    nowhere.read([NIGHTLY])
    later = UsualDurations(lambda: ListedRuns([PastRun(report=report())]), 2**62)
    later.read([NIGHTLY])
    assert (nowhere.of(NIGHTLY), later.of(NIGHTLY)) == (None, None)


def test_families_of_other_accounts_are_others() -> None:
    runs = [report(), replace(report(1), record=replace(report(1).record, account_id="2"))]
    usual = UsualDurations(lambda: ListedRuns(PastRun(report=one) for one in runs), 0)
    usual.read([NIGHTLY])
    found = usual.of(NIGHTLY)
    assert found is not None
    assert found.runs == 1
