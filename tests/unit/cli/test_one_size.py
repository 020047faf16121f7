"""One size for one family: ``recommend``, ``show``, the end of ``run``, the page and the page of
one run give it.
"""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.local_family_history import with_family_size
from profiler.record.family_identity import family_labels
from profiler.record.record_model import Recommendation, Report
from profiler.report_page.page_data import family_size_rows
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.family_evidence import (
    evidence_of_family,
    evidence_of_past_runs,
    read_families,
)
from profiler.runs.past_runs.local_history import LocalRuns
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from profiler.sizing.advice import advise_on_size
from profiler.sizing.advice_document import advice_as_json
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.run_collector import LAST_RUNS
from tests.runs import history_of, lines, report
from tests.sized_runs import any_family
from tests.values import present

FAMILIES = 60
NONE = PriceOverrides()


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("on_fargate", [None, "us-east-1"])
def test_every_place_gives_a_family_the_same_size_and_money(
    tmp_path: Path, on_fargate: str | None
) -> None:
    file = tmp_path / "lines"
    random = Random(20261122)
    made = {
        f"family-{number}": list(any_family(random, f"family-{number}"))
        for number in range(FAMILIES)
    }
    file.write_bytes(lines(one for reports in made.values() for one in reports))
    source = FileRuns(str(file), 0)
    every = list(source.runs(RunFilter()))
    found = read_families(source, RunFilter(), LAST_RUNS, on_fargate).families
    labels = family_labels(found.keys())
    page = {
        row["family"]: row
        for row in family_size_rows(evidence_of_past_runs(every, on_fargate), labels, NONE)
    }
    checked = 0
    for key, evidence in found.items():
        if evidence is None:
            assert labels[key] not in page
            continue
        recommended: Any = advice_as_json(advise_on_size(evidence, SizePolicy(), NONE))
        row = page[labels[key]]
        same = ("recommended", "current", "savingPercent", "reasons")
        assert [row.get(name) for name in same] == [recommended[name] for name in same]
        saved = recommended["savingUsdPerMonth"]
        assert row.get("savingUsdPerMonth") == pytest.approx(saved, abs=0.005)
        run = random.choice([run for run in every if run.report.record.family == key.name])
        (alone,) = family_size_rows([evidence_of_family(run, source, on_fargate)], labels, NONE)
        assert alone == row
        if on_fargate is None:
            shown = present(find_advice(run, source, NONE)).choice
            assert shown.size == advise_on_size(evidence, SizePolicy(), NONE).choice.size
            assert shown.saving_percent == recommended["savingPercent"]
        checked += 1
    assert checked > FAMILIES * 0.9


def local(number: int, peak_mb: float) -> Report:
    made = report(number, peak_mb=peak_mb, launch_type="LOCAL", size=None, region=None)
    return replace(
        made, record=replace(made.record, recommendation=Recommendation(vcpu=0.25, memory_mb=64))
    )


def test_the_end_of_run_names_the_size_of_the_family_with_this_run(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    store = history_of(path, *(local(number, 500 + 10 * number) for number in range(9)))
    run = local(9, 300)
    shown = with_family_size(run, store, None).record.recommendation
    (found,) = read_families(
        LocalRuns(history_of(path, run)), RunFilter(), LAST_RUNS
    ).families.values()
    size = advise_on_size(present(found), SizePolicy(), NONE).choice.size
    assert shown.vcpu == size.vcpu == 0.25
    assert shown.memory_mb == size.memory_mb == 896
