"""The double of AWS Batch answers as the service: what the commands' tests rely on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.batch_jobs import end_without_attempt, job_id
from tests.fake_batch import KEPT_MS, FakeBatch


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("etl")
        yield fake


def refusal(call: Callable[..., Any], **asked: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**asked)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def names(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["jobName"] for job in jobs]


def test_a_list_by_a_filter_has_pages_of_100_the_newest_first(batch: FakeBatch) -> None:
    for number in range(150):
        batch.now_ms += 1
        batch.submit(f"Orders-{number}", "nightly", "etl")
    listed = batch.client().list_jobs
    by_name = {"jobQueue": "nightly", "filters": [{"name": "JOB_NAME", "values": ["orders-*"]}]}
    first = listed(**by_name)
    assert len(first["jobSummaryList"]) == 100
    assert first["jobSummaryList"][0]["jobName"] == "Orders-149"
    second = listed(**by_name, nextToken=first["nextToken"])
    assert len(second["jobSummaryList"]) == 50
    assert "nextToken" not in second
    assert listed(jobQueue="nightly")["jobSummaryList"] == [], "RUNNING is the default"
    assert len(listed(jobQueue="nightly", jobStatus="RUNNABLE")["jobSummaryList"]) == 150


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("JOB_NAME", "ORDERS", ["orders"]),
        ("JOB_NAME", "order", []),
        ("JOB_DEFINITION", "etl", ["orders"]),
        ("JOB_DEFINITION", "e*", ["other", "orders"]),
        ("JOB_DEFINITION", "arn:aws:batch:us-west-2:111122223333:job-definition/etl:2", []),
        ("SHARE_IDENTIFIER", "a", ["other"]),
    ],
)
def test_a_filter_selects(batch: FakeBatch, name: str, value: str, found: list[str]) -> None:
    batch.define("export")
    batch.submit("orders", "nightly", "etl", arrayProperties={"size": 2})
    batch.now_ms += 1
    batch.submit("other", "nightly", "export", shareIdentifier="a")
    listed = batch.client().list_jobs(
        jobQueue="nightly", filters=[{"name": name, "values": [value]}]
    )
    assert names(listed["jobSummaryList"]) == found


def test_children_are_listed_by_their_array_alone(batch: FakeBatch) -> None:
    parent = batch.submit("orders", "nightly", "etl", arrayProperties={"size": 3})
    listed = batch.client().list_jobs(arrayJobId=parent["jobId"], jobStatus="RUNNABLE")
    assert [job["arrayProperties"]["index"] for job in listed["jobSummaryList"]] == [0, 1, 2]
    assert (
        batch.client().list_jobs(jobQueue="nightly", jobStatus="RUNNABLE")["jobSummaryList"] == []
    )


def test_ended_jobs_are_forgotten_after_seven_days(batch: FakeBatch) -> None:
    job = batch.submit("orders", "nightly", "etl")
    end_without_attempt(job, batch.now_ms, "stopped by me", isCancelled=True)
    described = batch.client().describe_jobs
    batch.now_ms += KEPT_MS
    assert names(described(jobs=[job["jobId"], job_id(77)])["jobs"]) == ["orders"]
    batch.now_ms += 1
    assert described(jobs=[job["jobId"]])["jobs"] == []


def test_limits_are_a_clients_error(batch: FakeBatch) -> None:
    client = batch.client()
    code, message = refusal(client.describe_jobs, jobs=[job_id(n) for n in range(101)])
    assert code == "ClientException"
    assert "at most 100" in message
    assert refusal(client.list_jobs)[0] == "ClientException"
    assert refusal(client.list_jobs, jobQueue="none")[0] == "ClientException"
    two = [{"name": "JOB_NAME", "values": ["a"]}] * 2
    assert refusal(client.list_jobs, jobQueue="nightly", filters=two)[0] == "ClientException"


def test_refused_failing_and_throttled_operations_have_the_services_codes(batch: FakeBatch) -> None:
    describe = batch.client().describe_job_queues
    batch.throttled = 1
    assert refusal(describe)[0] == "TooManyRequestsException"
    batch.failing.add("DescribeJobQueues")
    assert refusal(describe)[0] == "ServerException"
    batch.refused.add("DescribeJobQueues")
    code, message = refusal(describe)
    assert code == "AccessDeniedException"
    assert "batch:DescribeJobQueues" in message


def test_a_definition_is_registered_read_and_deregistered(batch: FakeBatch) -> None:
    client = batch.client()
    batch.define("etl", 2, 4096)
    active = client.describe_job_definitions(jobDefinitionName="etl", status="ACTIVE")
    assert [one["revision"] for one in active["jobDefinitions"]] == [2, 1]
    client.deregister_job_definition(jobDefinition="etl:2")
    assert batch.submit("orders", "nightly", "etl")["jobDefinition"].endswith("etl:1")
    submit = client.submit_job
    refused = refusal(submit, jobName="orders", jobQueue="nightly", jobDefinition="etl:2")
    assert "not active" in refused[1]


@pytest.mark.parametrize("monitor_vcpu", ["0.25", "0.5"])
def test_the_sum_of_the_containers_is_one_size_of_fargate(
    batch: FakeBatch, monitor_vcpu: str
) -> None:
    containers = [
        {
            "name": name,
            "image": name,
            "resourceRequirements": [
                {"type": "VCPU", "value": vcpu},
                {"type": "MEMORY", "value": memory},
            ],
        }
        for name, vcpu, memory in (("batch", "0.75", "1920"), ("task-monitor", monitor_vcpu, "128"))
    ]
    asked = {
        "jobDefinitionName": "both",
        "type": "container",
        "platformCapabilities": ["FARGATE"],
        "ecsProperties": {"taskProperties": [{"containers": containers}]},
    }
    register = batch.client().register_job_definition
    if monitor_vcpu == "0.25":
        assert register(**asked)["revision"] == 1
    else:
        assert "(1.25 vCPU, 2048 MiB) not valid" in refusal(register, **asked)[1]


def test_overrides_have_the_form_of_the_definition(batch: FakeBatch) -> None:
    memory = {"resourceRequirements": [{"type": "MEMORY", "value": "4096"}]}
    container = {"name": "batch", "image": "x", "resourceRequirements": []}
    batch.define("both", ecsProperties={"taskProperties": [{"containers": [container]}]})
    submit = batch.client().submit_job
    known = {"jobName": "orders", "jobQueue": "nightly"}
    refused = refusal(submit, **known, jobDefinition="both", containerOverrides=memory)
    assert "not allowed" in refused[1]
    job = batch.submit("orders", "nightly", "etl", containerOverrides=memory)
    assert job["container"]["resourceRequirements"][1]["value"] == "4096"
    over = {"taskProperties": [{"containers": [{"name": "batch", **memory}]}]}
    job = batch.submit("orders", "nightly", "both", ecsPropertiesOverride=over)
    (task,) = job["ecsProperties"]["taskProperties"]
    assert task["containers"][0]["resourceRequirements"] == memory["resourceRequirements"]


def test_a_queue_shows_its_first_100_runnable_jobs(batch: FakeBatch) -> None:
    for number in range(120):
        batch.submit(f"job-{number}", "nightly", "etl")
    snapshot = batch.client().get_job_queue_snapshot(jobQueue="nightly")
    assert len(snapshot["frontOfQueue"]["jobs"]) == 100
    (queue,) = batch.client().describe_job_queues(jobQueues=["nightly", "none"])["jobQueues"]
    (order,) = queue["computeEnvironmentOrder"]
    environments = batch.client().describe_compute_environments(
        computeEnvironments=[order["computeEnvironment"]]
    )["computeEnvironments"]
    assert environments[0]["computeEnvironmentName"] == "spot"
    batch.queues["nightly"]["state"] = "DISABLED"
    refused = refusal(
        batch.client().submit_job, jobName="a", jobQueue="nightly", jobDefinition="etl"
    )
    assert "ENABLED" in refused[1]
