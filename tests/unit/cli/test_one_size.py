"""One size for one family: ``recommend``, ``show``, the end of ``run``, the page and the page of
one run give it.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.run_family import with_family_size
from profiler.cli.terminal.size_lines import find_advice
from profiler.record.family_identity import family_labels
from profiler.record.record_model import Metrics, Recommendation, Report
from profiler.report_page.page_data import size_rows
from profiler.runs.past_runs.families import evidence_of_past_runs, family_evidence, read_families
from profiler.runs.past_runs.local_history import LocalRuns
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from profiler.sizing.advice import advise, as_json
from profiler.sizing.choose_size import Policy
from profiler.sizing.evidence import LAST_RUNS
from profiler.sizing.fargate_sizes import LEGAL_SIZES
from profiler.sizing.prices import PriceOverrides
from tests.runs import checkpoint, history_of, lines, report, slowdown
from tests.values import present

FAMILIES = 60
NONE = PriceOverrides()


def family(random: Random, name: str) -> Iterator[Report]:
    """Runs of one batch, which grows, is resized, killed, and not always measured."""
    launch_type = random.choice(["FARGATE", "FARGATE", "EC2", "LOCAL"])
    size = random.choice(LEGAL_SIZES[:60])
    peak_mb, growth = size.memory_mb * random.uniform(0.05, 1), random.choice([1, 1, 1.03])
    for number in range(random.choice([1, 2, 5, 9, LAST_RUNS + 3])):
        if random.random() < 0.05:
            size = random.choice(LEGAL_SIZES[:60])
        peak_mb *= growth
        is_killed = peak_mb > size.memory_mb or random.random() < 0.03
        p95 = size.vcpu * random.uniform(0.05, 1.1)
        seconds, pull_seconds = random.uniform(1, 900), random.uniform(5, 60)
        least = random.uniform(1, 2)
        metrics = {
            "duration_ms": round(1000 * seconds),
            "init_duration_ms": None if launch_type == "LOCAL" else round(1000 * pull_seconds),
            "billed_duration_ms": None
            if launch_type == "LOCAL"
            else 1000 * max(60, int(seconds + pull_seconds) + 1),
            "slowdown_at_vcpu": slowdown(
                **{f"v{size.vcpu / 2:g}".replace(".", "_"): (least, least * 1.2)}
            ),
            "vcpu_saturated_percent": random.uniform(0, 30),
        }
        made = report(
            number,
            family=name,
            task_id=f"{name}-{number}",
            launch_type=launch_type,
            peak_mb=None if random.random() < 0.05 else min(peak_mb, size.memory_mb),
            p95=None if random.random() < 0.05 else p95,
            size=None if launch_type == "LOCAL" else (size.vcpu, size.memory_mb),
            others={"side": Metrics(max_memory_used_mb=20)} if random.random() < 0.5 else None,
            status="failure" if is_killed else "success",
            exit_code=137 if is_killed else 0,
            likely_out_of_memory=is_killed,
            metrics={
                **metrics,
                **({"vcpu_size": 4, "memory_size_mb": 8192} if launch_type == "LOCAL" else {}),
            },
        )
        yield checkpoint(made) if random.random() < 0.05 else made


@pytest.mark.parametrize("on_fargate", [None, "us-east-1"])
def test_every_place_gives_a_family_the_same_size_and_money(
    tmp_path: Path, on_fargate: str | None
) -> None:
    file = tmp_path / "lines"
    random = Random(20261122)
    made = {
        f"family-{number}": list(family(random, f"family-{number}")) for number in range(FAMILIES)
    }
    file.write_bytes(lines(one for reports in made.values() for one in reports))
    source = FileRuns(str(file), 0)
    every = list(source.runs(RunFilter()))
    found = read_families(source, RunFilter(), LAST_RUNS, on_fargate).families
    labels = family_labels(found.keys())
    page = {
        row["family"]: row
        for row in size_rows(evidence_of_past_runs(every, on_fargate), labels, NONE)
    }
    checked = 0
    for key, evidence in found.items():
        if evidence is None:
            assert labels[key] not in page
            continue
        recommended: Any = as_json(advise(evidence, Policy(), NONE))
        row = page[labels[key]]
        same = ("recommended", "current", "savingPercent", "savingUsdPerMonth", "reasons")
        assert [row.get(name) for name in same] == [recommended[name] for name in same]
        run = random.choice([run for run in every if run.report.record.family == key.name])
        (alone,) = size_rows([family_evidence(run, source, on_fargate)], labels, NONE)
        assert alone == row
        if on_fargate is None:
            shown = present(find_advice(run, source, NONE)).choice
            assert shown.size == advise(evidence, Policy(), NONE).choice.size
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
    size = advise(present(found), Policy(), NONE).choice.size
    assert shown is not None
    assert (shown.vcpu, shown.memory_mb) == (size.vcpu, size.memory_mb) == (0.25, 896)
