"""The evidence of families from the runs of a source."""

from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.record.family_identity import FamilyKey, UsualDuration, family_key
from profiler.record.record_model import encode
from profiler.runs.past_runs.families import (
    UsualDurations,
    evidence_of_past_runs,
    family_evidence,
    last_success,
    read_families,
)
from profiler.runs.past_runs.run_source import PastRun, RunFilter, TaskEvent, filter_of
from tests.run_sources import ListedRuns
from tests.runs import checkpoint, report
from tests.values import present

NIGHTLY, OTHER = FamilyKey("nightly", None, "us-east-1"), FamilyKey("other", None, "us-east-1")


def past(number: int, **more: Any) -> PastRun:
    return PastRun(report=report(number, **more))


def test_each_family_has_the_evidence_of_its_newest_runs() -> None:
    listed = ListedRuns(
        [past(n, peak_mb=100 + n) for n in range(9)] + [past(20, family="weekly", peak_mb=None, p95=None)]
    )
    found = read_families(listed, RunFilter(), 3).families
    peaks = {family.name: evidence and evidence.peaks_mb for family, evidence in found.items()}
    assert peaks == {"nightly": (106, 107, 108), "weekly": None}
    assert listed.read == 10


def test_the_last_success_is_of_the_same_account_and_region_and_if_possible_of_the_same_cluster() -> None:
    here = {"account_id": "1", "region": "eu-west-1", "cluster": "jobs"}
    failed = past(9, task_id="failed", status="failure", **here)
    runs = [
        past(1, task_id="in cluster", **here),
        past(2, task_id="other cluster", **{**here, "cluster": "test"}),
        past(3, task_id="other account", **{**here, "account_id": "2"}),
        past(4, task_id="other Region", **{**here, "region": "us-east-1"}),
        past(5, task_id="unknown account", **{**here, "account_id": None}),
    ]
    found = []
    while (success := last_success(failed, ListedRuns(runs))) is not None:
        found.append(success.report.record.task_id)
        runs = [run for run in runs if run is not success]
    assert found == ["in cluster", "other cluster"]


@pytest.mark.parametrize(("last", "read"), [(3, 4), (9, 9), (50, 9)])
def test_reading_stops_when_the_only_family_is_complete(last: int, read: int) -> None:
    listed = ListedRuns(past(n) for n in range(9))
    only = filter_of(FamilyKey("nightly", None, "us-east-1"))
    (evidence,) = read_families(listed, only, last).families.values()
    assert (present(evidence).runs, listed.read) == (min(last, 9), read)


@pytest.mark.parametrize("status", ["running", "failure", "pausing"])
def test_a_run_without_a_report_and_an_event_is_left_out_with_a_note(status: str) -> None:
    """Whatever its status says: only ECS's event brings the end of such a run."""
    last = checkpoint(report(1))
    report_of_status = replace(last, record=replace(last.record, status=status))
    seen = PastRun(report=report_of_status, line=encode(report_of_status))
    unfinished = read_families(ListedRuns([past(0), seen]), RunFilter(), 50)
    assert [present(evidence).runs for evidence in unfinished.families.values()] == [1]
    assert unfinished.notes == ("the list: skipped 1 run with checkpoints but no report.",)
    ended = replace(seen, event=TaskEvent(stop_category="oom"))
    assert read_families(ListedRuns([past(0), ended]), RunFilter(), 50).notes == ()


def test_a_task_that_never_started_is_none_of_the_last_runs() -> None:
    """The search for the last runs leaves it out, and the page reads it: both have the same evidence."""
    runs = [PastRun(report=report(number), line=encode(report(number))) for number in range(3)]
    never = report(9, peak_mb=None, p95=None, size=(4, 8192), started_at=None, status="failure", exit_code=None)
    (with_it,) = evidence_of_past_runs([*runs, PastRun(report=never)])
    (without,) = evidence_of_past_runs(runs)
    assert with_it == without
    assert family_evidence(PastRun(report=never), ListedRuns(runs)) == without


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


ACCOUNTS = st.sampled_from((None, "111122223333", "444455556666"))
REGIONS = st.sampled_from((None, "eu-west-1", "us-east-1"))


@given(st.lists(st.tuples(ACCOUNTS, REGIONS, st.integers(1, 9000)), max_size=30), st.randoms())
def test_each_familys_evidence_is_that_of_its_own_runs_in_any_order(
    places: list[tuple[str | None, str | None, int]], random: Random
) -> None:
    runs = [
        past(number, account_id=account, region=region, peak_mb=peak_mb)
        for number, (account, region, peak_mb) in enumerate(places)
    ]
    found = read_families(ListedRuns(runs), RunFilter(), 5).families
    shuffled = list(runs)
    random.shuffle(shuffled)
    assert read_families(ListedRuns(shuffled), RunFilter(), 5).families == found
    for family, evidence in found.items():
        own = [run for run in runs if family_key(run.report.record) == family]
        assert read_families(ListedRuns(own), filter_of(family), 5).families == {family: evidence}
    assert len(found) == len({place[:2] for place in places})
