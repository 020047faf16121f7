"""Which runs count for a job definition."""

from typing import Any

import pytest
from msgspec.structs import replace

from profiler.record.batch_job import BatchJob
from profiler.record.family_identity import FamilyKey
from profiler.runs.past_runs.defined_jobs import RunsOfDefinedJobs
from profiler.runs.past_runs.past_run import PastRun
from profiler.sizing.family_window import WindowSpan
from tests.batch_jobs import CLUSTER, job_id
from tests.runs import report

KNOWN = {"nightly": "FARGATE", "train": "EC2"}


def run(definition: str | None, revision: int | None = 3, **more: Any) -> PastRun:
    job = BatchJob(job_id=job_id(1), job_definition=definition, job_definition_revision=revision)
    return PastRun(report=report(cluster=CLUSTER, batch=job, **more))


def test_a_run_counts_under_the_definition_of_its_job() -> None:
    jobs = RunsOfDefinedJobs(KNOWN)
    named = jobs.run_under_read_name(run("nightly", family="of-batch"))
    assert named is not None
    record = named.report.record
    assert (record.family, record.revision) == ("nightly", "3")


@pytest.mark.parametrize(
    ("definition", "revision", "unnamed"),
    [("other", 3, 0), (None, None, 1), ("nightly", None, 1)],
)
def test_a_run_of_another_or_an_unknown_definition_does_not_count(
    definition: str | None, revision: int | None, unnamed: int
) -> None:
    jobs = RunsOfDefinedJobs(KNOWN)
    assert jobs.run_under_read_name(run(definition, revision)) is None
    assert jobs.unnamed == unnamed


def test_a_task_is_no_job() -> None:
    jobs = RunsOfDefinedJobs(KNOWN)
    assert (
        jobs.run_under_read_name(PastRun(report=report(family="nightly", cluster="jobs"))) is None
    )
    assert jobs.unnamed == 0


@pytest.mark.parametrize(
    ("family", "revision", "is_counted"),
    [("nightly", "3", True), ("of-batch", "3", False), ("nightly", "7", False)],
)
def test_a_document_counts_if_the_forwarder_named_the_task_after_the_definition(
    family: str, revision: str, *, is_counted: bool
) -> None:
    """A line can name any definition, and ECS's event names the task."""
    made = run("nightly")
    record = made.report.record
    of_task = replace(record, family=family, revision=revision)
    found = replace(made, report=replace(made.report, record=of_task))
    assert (RunsOfDefinedJobs(KNOWN).indexed_run_under_read_name(found) is not None) is is_counted


def test_a_window_is_of_the_platform_of_its_definition() -> None:
    jobs = RunsOfDefinedJobs(KNOWN)
    span = WindowSpan(now_ns=0)
    assert jobs.new_window(FamilyKey("train"), span).launch_type == "EC2"
    assert jobs.new_window(FamilyKey("nightly"), span).launch_type == "FARGATE"
