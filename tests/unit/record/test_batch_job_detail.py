import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from profiler.record.batch_job import BatchJob
from profiler.record.batch_job_detail import (
    ContainerEnd,
    JobContainer,
    JobDetail,
    parse_job,
    parse_job_event,
)
from tests.batch_jobs import (
    SECRET_VARIABLES,
    SECRETS,
    arn,
    end_without_attempt,
    job_id,
    queue_blocked_event,
    task_arn,
)
from tests.fake_batch import NOW_MS, FakeBatch
from tests.values import present

KILLED = "OutOfMemoryError: Container killed due to memory usage"
TWO_CONTAINERS = {
    "taskProperties": [
        {
            "containers": [
                {
                    "name": "batch",
                    "image": "etl",
                    "essential": True,
                    "environment": SECRET_VARIABLES,
                    "resourceRequirements": [
                        {"type": "VCPU", "value": "0.75"},
                        {"type": "MEMORY", "value": "1920"},
                    ],
                },
                {
                    "name": "task-monitor",
                    "image": "task-profiler",
                    "essential": False,
                    "resourceRequirements": [
                        {"type": "VCPU", "value": "0.25"},
                        {"type": "MEMORY", "value": "128"},
                    ],
                },
            ]
        }
    ]
}


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        yield fake


def of_event(batch: FakeBatch, job: dict[str, Any]) -> JobDetail:
    """The job in its event, which DescribeJobs says as well, and which has no secret."""
    found = present(parse_job_event(batch.event(job)))
    assert not found.is_queue_blocked
    (described,) = batch.client().describe_jobs(jobs=[job["jobId"]])["jobs"]
    assert parse_job(described) == found.job
    assert not [secret for secret in SECRETS if secret in repr(found)]
    return found.job


def test_a_job_has_its_attempts_and_what_it_asks_for(batch: FakeBatch) -> None:
    batch.define("etl", 2, 4096, retryStrategy={"attempts": 3})
    job = batch.submit("orders", "nightly", "etl", parameters={"key": SECRETS[3]})
    batch.begin(job)
    batch.now_ms += 60_000
    batch.end(job, 137, KILLED)
    read = of_event(batch, job)
    assert (read.status, read.has_ended, read.allowed_attempts) == ("RUNNABLE", False, 3)
    assert read.containers == (JobContainer(vcpu=2, memory_mb=4096),)
    assert (read.vcpu, read.memory_mb) == (2, 4096)
    (attempt,) = read.attempts
    assert attempt.number == 1
    assert attempt.task_arn == task_arn(job["jobId"], 1)
    assert (attempt.started_ms, attempt.stopped_ms) == (NOW_MS, NOW_MS + 60_000)
    (ended,) = attempt.containers
    assert (ended.exit_code, ended.reason) == (137, KILLED)
    assert read.batch_job_of_attempt(2) == BatchJob(
        job_id=job["jobId"],
        job_name="orders",
        job_definition="etl",
        job_definition_revision=1,
        queue="nightly",
        attempt=2,
        allowed_attempts=3,
    )


def test_several_containers_are_read_of_the_task(batch: FakeBatch) -> None:
    """Of a job with ``ecsProperties``, ``container`` is empty."""
    batch.define("etl", ecsProperties=TWO_CONTAINERS, platformCapabilities=["FARGATE"])
    job = batch.submit("orders", "nightly", "etl")
    batch.begin(job, instance_arn="arn:aws:ecs:us-west-2:111122223333:container-instance/a/b")
    batch.end(job, 0, others={"task-monitor": 1})
    read = of_event(batch, job)
    assert [(one.name, one.is_essential) for one in read.containers] == [
        ("batch", True),
        ("task-monitor", False),
    ]
    assert (read.vcpu, read.memory_mb) == (1, 2048)
    (attempt,) = read.attempts
    stream = f"etl/{{}}/{task_arn(job['jobId'], 1).rpartition('/')[2]}"
    assert attempt.task_arn == task_arn(job["jobId"], 1)
    assert attempt.containers == tuple(
        ContainerEnd(name=name, exit_code=code, log_stream=stream.format(name))
        for name, code in (("batch", 0), ("task-monitor", 1))
    )


def test_an_array_and_its_children(batch: FakeBatch) -> None:
    batch.define("etl")
    parent = batch.submit("orders", "nightly", "etl", arrayProperties={"size": 3})
    parent["arrayProperties"]["statusSummary"] = {"SUCCEEDED": 2, "FAILED": 1}
    whole = of_event(batch, parent)
    assert whole.is_array_parent
    assert present(whole.array).children == {"SUCCEEDED": 2, "FAILED": 1}
    child = of_event(batch, batch.jobs[f"{parent['jobId']}:2"])
    assert not child.is_array_parent
    assert child.parent_id == parent["jobId"]
    assert child.batch_job_of_attempt(1).array_index == 2


def test_a_job_without_an_attempt_keeps_awss_reason(batch: FakeBatch) -> None:
    batch.define("etl")
    job = batch.submit("orders", "nightly", "etl", dependsOn=[{"jobId": job_id(9)}])
    assert of_event(batch, job).depends_on == (job_id(9),)
    end_without_attempt(job, NOW_MS, "Dependent Job failed", isTerminated=True)
    read = of_event(batch, job)
    assert (read.status_reason, read.attempts) == ("Dependent Job failed", ())
    assert (read.is_terminated, read.is_cancelled) == (True, False)


def test_an_event_of_a_blocked_queue_names_its_first_job(batch: FakeBatch) -> None:
    batch.define("etl")
    job = batch.submit("orders", "nightly", "etl")
    reason = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job requires too much."
    found = present(parse_job_event(queue_blocked_event(job, reason, NOW_MS)))
    assert found.is_queue_blocked
    assert (found.job.id, found.job.status_reason) == (job["jobId"], reason)


@pytest.mark.parametrize(
    "event",
    [
        {"source": "aws.ecs", "detail-type": "ECS Task State Change", "detail": {}},
        {"source": "aws.batch", "detail-type": "Batch Service Job State Change", "detail": {}},
        {"source": "aws.batch", "detail-type": "Batch Job State Change", "detail": {"jobId": "x"}},
        {"source": "aws.batch", "detail-type": "Batch Job State Change"},
        [],
        None,
    ],
)
def test_another_event_is_none_of_a_job(event: object) -> None:
    assert parse_job_event(event) is None


def test_a_name_and_a_reason_are_anybodys_words(batch: FakeBatch) -> None:
    batch.define("etl")
    job = batch.submit("orders", "nightly", "etl")
    job |= {"jobName": "\x1b[2J<!channel>\n\u202e" + "x" * 9_000}
    job["statusReason"] = "stop \ud800it\r\n" * 9_000
    read = present(parse_job(json.loads(json.dumps(job))))
    for text, most in ((read.name, 256), (read.status_reason, 1_024)):
        assert text is not None
        assert text.isprintable()
        assert len(text) <= most
    msgspec.json.encode(read)


@pytest.mark.parametrize("wrong", [None, 5, "x", [], {}, [5], {"a": 5}, [{"a": {}}], True, -1, 1e9])
def test_a_value_of_another_type_counts_as_absent(batch: FakeBatch, wrong: Any) -> None:
    """Each member of a job, and each of its parts, in turn."""
    batch.define("etl", ecsProperties=TWO_CONTAINERS, platformCapabilities=["FARGATE"])
    job = batch.submit("orders", "nightly", "etl", arrayProperties={"size": 2})
    batch.begin(job)
    batch.end(job, 1, others={"task-monitor": 0})
    job |= {"nodeProperties": {"numNodes": 2}, "nodeDetails": {"nodeIndex": 1}, "container": {}}
    job |= {"consumableResourceProperties": {"consumableResourceList": [{"quantity": 1}]}}
    for name in job.keys() - {"jobId"}:
        assert present(parse_job({**job, name: wrong})).id == job["jobId"]
    for part in ("attempts", "ecsProperties", "nodeProperties", "consumableResourceProperties"):
        (only,) = job[part] if part == "attempts" else (job[part],)
        for name in only:
            changed = {**only, name: wrong}
            parse_job({**job, part: [changed] if part == "attempts" else changed})


def test_nodes_and_pods_are_read() -> None:
    """The main node's container is the job's."""
    sizes = [{"type": "MEMORY", "value": "8192"}, {"type": "GPU", "value": "1"}]
    ranges = [
        {"targetNodes": "0:0", "container": {"vcpus": 4, "memory": 1024}},
        {"targetNodes": "1:", "container": {"vcpus": 2, "resourceRequirements": sizes}},
    ]
    nodes = {"numNodes": 3, "mainNode": 1, "nodeRangeProperties": ranges}
    read = present(parse_job({"jobId": f"{job_id(1)}#1", "nodeProperties": nodes}))
    assert read.containers == (JobContainer(vcpu=2, memory_mb=8192, gpus=1),)
    assert present(read.nodes).main == 1
    limits = {"memory": "2Gi", "cpu": "0.5", "nvidia.com/gpu": "2"}
    pod = {"podProperties": {"containers": [{"name": "x", "resources": {"limits": limits}}]}}
    attempts = [{"startedAt": 5, "containers": [{"name": "x", "exitCode": 3}]}]
    job = {"jobId": job_id(1), "eksProperties": pod, "eksAttempts": attempts}
    on_eks = present(parse_job({**job, "jobArn": arn("job", job_id(1), "eu-west-1")}))
    assert on_eks.containers == (JobContainer(name="x", vcpu=0.5, memory_mb=2048, gpus=2),)
    assert on_eks.is_on_eks
    assert on_eks.region == "eu-west-1"
    (attempt,) = on_eks.attempts
    assert attempt.task_arn is None
    assert attempt.containers == (ContainerEnd(name="x", exit_code=3),)


@pytest.mark.parametrize("digits", ["9" * 60, "9" * 5_000, "٣", "²"])
def test_a_number_that_aws_never_writes_counts_as_absent(digits: str) -> None:
    ranges = [{"targetNodes": f"{digits}:{digits}", "container": {"vcpus": 4, "memory": 1024}}]
    read = present(
        parse_job(
            {
                "jobId": job_id(1),
                "jobDefinition": arn("job-definition", f"etl:{digits[:200]}"),
                "nodeProperties": {"mainNode": 3, "nodeRangeProperties": ranges},
            }
        )
    )
    assert read.batch_job_of_attempt().job_definition == "etl"
    assert read.batch_job_of_attempt().job_definition_revision is None
