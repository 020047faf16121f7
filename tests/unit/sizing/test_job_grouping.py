"""Which runs of AWS Batch's jobs are one row, and how many of them are read."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.family_identity import family_labels
from profiler.record.record_model import Report
from profiler.runs.past_runs.family_evidence import evidence_of_family, read_families
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from profiler.sizing.job_grouping import MAX_NAMES, JobsBy
from profiler.sizing.run_collector import FamilyRunCollector
from tests.runs import add_reports, lines, report

SMALL, LARGE = (2, 4096), (4, 65_536)
CLUSTER = "AWSBatch-spot-0a1b2c3d-1111-2222-3333-444455556666"


def job(
    number: int,
    name: str | None,
    *,
    definition: str | None = "etl",
    revision: int | None = 1,
    size: tuple[float, float] = SMALL,
    family: str = "etl",
    account_id: str | None = None,
) -> Report:
    """The run of a job; without a name, as a source knows it that has no events of Batch."""
    batch = NO_JOB
    if name is not None:
        batch = BatchJob(
            job_id="0f8fad5b-d9cb-469f-a165-70867728950e",
            job_name=name,
            job_definition=definition,
            job_definition_revision=revision,
        )
    return report(
        number, size=size, family=family, cluster=CLUSTER, batch=batch, account_id=account_id
    )


def rows(reports: Iterable[Report], jobs_by: JobsBy | None = None) -> Mapping[str, int]:
    """The runs of each row by its label."""
    families = FamilyRunCollector(jobs_by=jobs_by)
    add_reports(families, reports)
    evidence = families.evidence_by_row()
    labels = family_labels(evidence.keys())
    assert families.tasks_read_by_row().keys() == evidence.keys()
    return {
        labels[row]: found.outcomes.runs for row, found in evidence.items() if found is not None
    }


def test_jobs_of_one_size_are_a_row_of_their_definition() -> None:
    jobs = [job(number, f"etl-2026-11-{number + 1:02}") for number in range(4)]
    assert rows(jobs) == {"etl": 4}
    assert rows(jobs, "name") == {"etl (2 vCPU, 4 GB)": 4}


def test_jobs_of_several_sizes_are_rows_by_name_and_size() -> None:
    jobs = [
        job(0, "load-1"),
        job(1, "load-2"),
        job(2, "load-3", size=LARGE),
        job(3, "clean-1", size=LARGE),
    ]
    by_name = {"clean (4 vCPU, 64 GB)": 1, "load (2 vCPU, 4 GB)": 2, "load (4 vCPU, 64 GB)": 1}
    assert rows(jobs) == by_name == rows(jobs, "name")
    assert rows(jobs, "definition") == {"etl": 4}


def test_another_revision_with_another_size_is_a_resized_definition() -> None:
    jobs = [job(0, "load-1"), job(1, "load-2", revision=2, size=LARGE)]
    assert rows(jobs) == {"etl": 2}
    unknown = [job(0, "load-1", revision=None), job(1, "load-2", revision=None, size=LARGE)]
    assert len(rows(unknown)) == 2


def test_without_the_names_of_jobs_the_family_and_the_size_count() -> None:
    jobs = [job(0, None, family="nf-star-2-7"), job(1, None, family="nf-star-2-7", size=LARGE)]
    assert rows(jobs) == {"nf-star-2-7 (2 vCPU, 4 GB)": 1, "nf-star-2-7 (4 vCPU, 64 GB)": 1}


def test_a_resized_family_of_ecs_stays_one_row() -> None:
    assert rows([report(0), report(1, size=LARGE)]) == {"nightly": 2}


@pytest.mark.parametrize(
    ("definition", "name", "row"),
    [
        ("nf-quay-io-star", "STAR_ALIGN_S{}", "STAR_ALIGN"),
        ("snakejob-def-map-{}", "snakejob-map-{}", "snakejob-map"),
        (
            "metaflow_0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a3{}",
            "ann-Flow-{}-train-1",
            "ann-Flow-train",
        ),
        ("cromwell_alpine_0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a3{}", "wf-call-{}", "wf-call"),
    ],
)
def test_definitions_of_engines_are_rows_by_name(definition: str, name: str, row: str) -> None:
    uuid = "0f8fad5b-d9cb-469f-a165-70867728950{}"
    parts = {"snakejob-map-{}": uuid}.get(name, "{}")
    jobs = [
        job(
            number,
            name.format(parts.format(number)),
            definition=definition.format(parts.format(number)),
            family="anything",
        )
        for number in (1, 2)
    ]
    assert rows(jobs) == {f"{row} (2 vCPU, 4 GB)": 2}
    assert sum(rows(jobs, "definition").values()) == 2


def test_jobs_of_two_accounts_are_two_rows() -> None:
    jobs = [job(number, "load", account_id=f"11112222333{number}") for number in range(2)]
    assert list(rows(jobs, "name")) == [
        "load (111122223330, 2 vCPU, 4 GB)",
        "load (111122223331, 2 vCPU, 4 GB)",
    ]


def test_further_names_than_are_kept_count_under_their_definition() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [f"{first}{second}" for first in letters for second in letters][: MAX_NAMES + 3]
    found = rows([job(number, word) for number, word in enumerate(words)], "name")
    assert len(found) == MAX_NAMES + 1
    assert found["etl (2 vCPU, 4 GB)"] == 3


def test_a_file_is_read_for_the_last_runs_of_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = [job(number, f"load-{number}") for number in range(20)]
    jobs += [job(number, f"load-{number}", size=LARGE) for number in range(20, 50)]
    jobs += [job(number, f"clean-{number}", size=LARGE) for number in range(50, 90)]
    Path("jobs.jsonl").write_bytes(lines(jobs))
    source = FileRuns("jobs.jsonl", 0)
    assert len(list(source.last_runs(RunFilter(), 5))) == 15
    found = read_families(source, RunFilter(), 5)
    assert [one.outcomes.runs for one in found.families.values() if one is not None] == [5, 5, 5]
    one_family = read_families(source, RunFilter(families=("etl",)), 5)
    assert one_family.families == found.families


def test_the_advice_on_a_job_is_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    jobs = [job(number, "load") for number in range(3)]
    jobs += [job(number, "load", size=LARGE) for number in range(3, 8)]
    file.write_bytes(lines(jobs))
    source = FileRuns(str(file), 0)
    newest = next(source.runs(RunFilter()))
    evidence = evidence_of_family(newest, source)
    assert evidence is not None
    assert evidence.outcomes.runs == 5
    alone = evidence_of_family(replace(newest, counts=False), None)
    assert alone is None
