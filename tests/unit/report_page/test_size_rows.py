"""What the page says of a family's size."""

from profiler.record.batch_job import BatchJob
from profiler.report_page.page_data import family_size_rows
from profiler.runs.past_runs.family_evidence import evidence_of_past_runs
from profiler.runs.past_runs.past_run import PastRun
from profiler.sizing.prices import PriceOverrides
from tests.runs import report


def test_the_command_for_another_size_runs_in_a_shell_with_credentials() -> None:
    runs = [PastRun(report=report(number, region="eu-west-1")) for number in range(8)]
    evidences = [evidence for evidence in evidence_of_past_runs(runs) if evidence is not None]
    labels = {evidence.family: evidence.family.name for evidence in evidences}
    (row,) = family_size_rows(evidences, labels, PriceOverrides())
    assert row["resize"] == "task-profiler taskdef resize nightly --region eu-west-1"


def test_a_family_that_is_named_like_an_option_is_none_in_the_command() -> None:
    runs = [
        PastRun(report=report(number, family="--register", region="eu-west-1"))
        for number in range(8)
    ]
    (row,) = family_size_rows(evidence_of_past_runs(runs), {}, PriceOverrides())
    assert row["resize"] == "task-profiler taskdef resize --region eu-west-1 -- --register"


def test_jobs_of_several_sizes_are_rows_of_their_own_without_a_command_of_ecs() -> None:
    job = BatchJob(
        job_id="0f8fad5b-d9cb-469f-a165-70867728950e", job_name="load-1", job_definition="etl"
    )
    runs = [
        PastRun(report=report(number, family="etl", batch=job, size=(1, 2048 * (1 + number % 2))))
        for number in range(8)
    ]
    rows = list(family_size_rows(evidence_of_past_runs(runs), {}, PriceOverrides()))
    assert [row["family"] for row in rows] == ["load (1 vCPU, 2 GB)", "load (1 vCPU, 4 GB)"]
    assert not any("resize" in row for row in rows)
