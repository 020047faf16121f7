"""The evidence of families from the runs of a source."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.runs.families import RunFamilies, pattern_of
from profiler.runs.source import PastRun, RunFilter
from tests.run_sources import ListedRuns
from tests.runs import checkpoint, report


def past(number: int, **more: Any) -> PastRun:
    return PastRun(report=report(number, **more))


def test_each_family_has_the_evidence_of_its_newest_runs() -> None:
    listed = ListedRuns(
        [past(n, peak_mb=100 + n) for n in range(9)] + [past(20, family="weekly", peak_mb=None, p95=None)]
    )
    nightly, weekly = RunFamilies(listed).families(RunFilter(), 3)
    assert nightly.evidence is not None
    assert (nightly.name, nightly.evidence.peaks_mb) == ("nightly", (106, 107, 108))
    assert (weekly.name, weekly.evidence) == ("weekly", None)
    assert listed.read == 10


@pytest.mark.parametrize(("last", "read"), [(3, 4), (9, 9), (50, 9)])
def test_reading_stops_when_the_only_family_is_complete(last: int, read: int) -> None:
    listed = ListedRuns(past(n) for n in range(9))
    (family,) = RunFamilies(listed).families(RunFilter(families=("nightly",)), last)
    assert family.evidence is not None
    assert (family.evidence.runs, listed.read) == (min(last, 9), read)


def test_runs_without_a_report_are_left_out_with_a_note() -> None:
    running = replace(checkpoint(report(1)), time="2099-01-01T00:00:00.000Z")
    families = RunFamilies(ListedRuns([past(0), PastRun(report=running)]))
    (family,) = families.families(RunFilter(), 50)
    assert family.evidence is not None
    assert family.evidence.runs == 1
    assert families.notes == ("the list: 1 run with checkpoints but no report left out.",)


def test_a_family_with_the_characters_of_a_pattern_is_matched_alone() -> None:
    for name in ("a*", "a?b", "[ab]", "plain"):
        wanted = RunFilter(families=(pattern_of(name),))
        assert wanted.matches(report(family=name))
        assert not wanted.matches(report(family="aab"))
