from typing import Any

import pytest

from profiler.core.ecs_terms import BATCH_VARIABLES
from profiler.record.batch_job import (
    NO_JOB,
    BatchJob,
    batch_job_of_document,
    is_job_id,
    job_of_overrides,
    job_of_variables,
    job_text,
    known_job_fields,
    parent_id,
)
from profiler.record.stopped_task import parse_stopped_task
from tests.batch_jobs import SECRETS, arn, job_id, task_event
from tests.cases import each_case
from tests.values import present

ID = job_id(1)
VARIABLES = {
    "AWS_BATCH_JOB_ID": f"{ID}:17",
    "AWS_BATCH_JQ_NAME": "nightly",
    "AWS_BATCH_CE_NAME": "spot",
    "AWS_BATCH_JOB_ATTEMPT": "2",
    "AWS_BATCH_JOB_ARRAY_INDEX": "17",
}


def test_a_containers_environment_names_its_job() -> None:
    assert job_of_variables({**VARIABLES, "HOME": "/root"}) == BatchJob(
        job_id=f"{ID}:17",
        queue="nightly",
        compute_environment="spot",
        attempt=2,
        array_index=17,
    )


@pytest.mark.parametrize("mark", [":", "#"])
def test_a_child_and_a_node_are_parts_of_their_job(mark: str) -> None:
    assert is_job_id(f"{ID}{mark}3")
    assert parent_id(f"{ID}{mark}3") == ID
    assert parent_id(ID) == ID


@each_case(
    "forged",
    ["", "job", f"{ID}:", f"{ID} <!channel>", ID.upper(), f"{ID}\n", "\x1b[31m", "\uff11" * 36],
)
def test_what_is_no_id_of_a_job_names_none(forged: str) -> None:
    variables = {**VARIABLES, "AWS_BATCH_JOB_ID": forged}
    found = job_of_variables(variables)
    assert found is NO_JOB or found.job_id == ID


def test_a_value_that_is_no_number_or_has_control_characters_is_dropped_or_cleaned() -> None:
    variables = {
        **VARIABLES,
        "AWS_BATCH_JOB_ATTEMPT": "\uff19",
        "AWS_BATCH_JOB_ARRAY_INDEX": "-1",
        "AWS_BATCH_JQ_NAME": "night\x1b[31mly\n\u202e" + "x" * 1_000,
        "AWS_BATCH_CE_NAME": "arn:aws:batch:us-west-2:111122223333:compute-environment/spot",
    }
    job = job_of_variables(variables)
    assert job.attempt is job.array_index is None
    assert job.compute_environment == "spot"
    assert job.queue is not None
    assert job.queue.isprintable()
    assert len(job.queue) == 256


def test_an_instances_monitor_reads_all_variables_of_a_job() -> None:
    index = {"AWS_BATCH_JOB_NODE_INDEX": "3"}
    variables = {name: VARIABLES[name] for name in BATCH_VARIABLES if name in VARIABLES} | index
    assert job_of_variables(variables) == job_of_variables(VARIABLES | index)


def test_of_a_tasks_overrides_only_batchs_variables_are_read() -> None:
    """The submitters' own variables stand between them, and any of them may be a secret."""

    class Secret(dict[str, Any]):
        def get(self, name: str, default: object = None) -> Any:
            assert name != "value", "the value of a submitter's variable"
            return super().get(name, default)

    secret = Secret(name="DB_PASSWORD", value=SECRETS[0])
    environment = [secret, *({"name": name, "value": VARIABLES[name]} for name in VARIABLES)]
    job = job_of_overrides([{"name": "x"}, {"name": "default", "environment": environment}])
    assert job == job_of_variables(VARIABLES)


@pytest.mark.parametrize(
    "environment", [None, "x", [None], [{"name": 5, "value": "x"}], [{"name": "AWS_BATCH_JOB_ID"}]]
)
def test_overrides_without_a_job_name_none(environment: Any) -> None:
    assert job_of_overrides([{"name": "default", "environment": environment}]) is NO_JOB


def test_a_document_has_the_known_values_and_is_read_back() -> None:
    job = BatchJob(job_id=ID, job_definition="etl", job_definition_revision=3, queue="nightly")
    fields = known_job_fields(job)
    assert fields == {
        "job_id": ID,
        "job_definition": "etl",
        "job_definition_revision": 3,
        "queue": "nightly",
    }
    assert batch_job_of_document(fields) == job
    assert (
        batch_job_of_document({**fields, "attempt": "2", "array_index": True, "node_index": -1})
        == job
    )
    assert batch_job_of_document({}) is NO_JOB
    assert batch_job_of_document("x") is NO_JOB


def test_the_event_of_a_task_in_another_region_is_of_that_region() -> None:
    region = "eu-west-1"
    job = {
        "jobId": ID,
        "jobArn": arn("job", ID, region),
        "jobQueue": arn("job-queue", "nightly", region),
        "jobDefinition": arn("job-definition", "orders:7", region),
    }
    stopped = present(parse_stopped_task(task_event(job)))
    assert (stopped.region, present(stopped.batch).job_id) == (region, ID)


def test_a_task_in_no_cluster_of_batch_has_no_job() -> None:
    job = {"jobId": ID, "jobArn": arn("job", ID), "jobQueue": "x", "jobDefinition": "y"}
    assert present(parse_stopped_task(task_event(job, cluster="jobs"))).batch is NO_JOB


@pytest.mark.parametrize(
    ("attempt", "allowed", "text"),
    [
        (2, 3, "orders, attempt 2 of 3, queue nightly"),
        (2, None, "orders, attempt 2, queue nightly"),
        (2, 1, "orders, attempt 2, queue nightly"),
        (None, 3, "orders, queue nightly"),
    ],
)
def test_an_attempt_is_said_of_how_many_where_that_is_known(
    attempt: int | None, allowed: int | None, text: str
) -> None:
    job = BatchJob(job_name="orders", queue="nightly", attempt=attempt, allowed_attempts=allowed)
    assert job_text(job) == text
