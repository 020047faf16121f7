"""The evidence of families from the runs of a source."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.past_runs.families import last_success, read_families
from profiler.past_runs.run_source import PastRun, RunFilter, pattern_of
from profiler.record.family_identity import FamilyKey, family_key
from tests.run_sources import ListedRuns
from tests.runs import checkpoint, report


def past(number: int, **more: Any) -> PastRun:
    return PastRun(report=report(number, **more))


def test_each_family_has_the_evidence_of_its_newest_runs() -> None:
    listed = ListedRuns(
        [past(n, peak_mb=100 + n) for n in range(9)] + [past(20, family="weekly", peak_mb=None, p95=None)]
    )
    nightly, weekly = read_families(listed, RunFilter(), 3).families
    assert nightly.evidence is not None
    assert (nightly.family.name, nightly.evidence.peaks_mb) == ("nightly", (106, 107, 108))
    assert (weekly.family.name, weekly.evidence) == ("weekly", None)
    assert listed.read == 10


ACCOUNTS = (None, "111122223333", "444455556666")
REGIONS = (None, "eu-west-1", "us-east-1")


def test_families_of_one_name_in_several_accounts_and_regions_are_apart() -> None:
    """Together, the small runs of one account would get the large size of another."""
    runs = [
        past(number, task_id=f"{account}-{region}-{number}", account_id=account, region=region, peak_mb=peak_mb)
        for account, peak_mb in (("1", 100), ("2", 9000))
        for region in ("eu-west-1", "us-east-1")
        for number in range(3)
    ]
    found = read_families(ListedRuns(runs), RunFilter(families=("nightly",)), 2).families
    assert [(one.family.account_id, one.family.region) for one in found] == [
        ("1", "eu-west-1"),
        ("1", "us-east-1"),
        ("2", "eu-west-1"),
        ("2", "us-east-1"),
    ]
    assert [one.evidence and (one.evidence.runs, one.evidence.required_memory_mb) for one in found] == [
        (2, 100),
        (2, 100),
        (2, 9000),
        (2, 9000),
    ]


@given(
    st.lists(st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(REGIONS), st.integers(1, 9000)), max_size=30),
    st.randoms(),
)
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
    for one in found:
        own = [run for run in runs if family_key(run.report.record) == one.family]
        assert list(read_families(ListedRuns(own), RunFilter(family=one.family), 5).families) == [one]
    assert len(found) == len({place[:2] for place in places})


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
    only = RunFilter(family=FamilyKey("nightly", None, "us-east-1"))
    (family,) = read_families(listed, only, last).families
    assert family.evidence is not None
    assert (family.evidence.runs, listed.read) == (min(last, 9), read)


def test_runs_without_a_report_are_left_out_with_a_note() -> None:
    running = replace(checkpoint(report(1)), time="2099-01-01T00:00:00.000Z")
    found = read_families(ListedRuns([past(0), PastRun(report=running)]), RunFilter(), 50)
    (family,) = found.families
    assert family.evidence is not None
    assert family.evidence.runs == 1
    assert found.notes == ("the list: skipped 1 run with checkpoints but no report.",)


def test_a_family_with_the_characters_of_a_pattern_is_matched_alone() -> None:
    for name in ("a*", "a?b", "[ab]", "plain"):
        selection = RunFilter(families=(pattern_of(name),))
        assert selection.matches(report(family=name))
        assert not selection.matches(report(family="aab"))
