"""``doctor JOB-ID`` and ``doctor --queue``: why a job does not start, and what mends it."""

from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.batch_jobs import SECRETS, end_without_attempt, job_id
from tests.command_line import run_here
from tests.fake_batch import FakeBatch
from tools.moto_server import FakeAws, fake_aws

KILLED = "OutOfMemoryError: Container killed due to memory usage"


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as made:
        yield made


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("etl", 1, 2048)
        yield fake


@pytest.fixture
def doctor(aws: FakeAws, batch: FakeBatch) -> Any:
    def run(*words: str) -> CompletedProcess[str]:
        return run_here(aws.environment() | batch.environment(), "doctor", *words)

    return run


def said(done: CompletedProcess[str]) -> str:
    text = " ".join(f"{done.stdout} {done.stderr}".split())
    assert not [secret for secret in SECRETS if secret in text]
    return text


def on_ec2(batch: FakeBatch, *types: str, vcpus: int = 16) -> None:
    resources = {"type": "EC2", "maxvCpus": vcpus, "instanceTypes": list(types)}
    batch.environments["spot"]["computeResources"] = resources


def test_a_runnable_job_says_awss_reason_its_place_and_the_usual_wait(
    batch: FakeBatch, doctor: Any
) -> None:
    for _ in range(3):
        done = batch.submit("before", "nightly", "etl")
        batch.now_ms += 120_000
        batch.begin(done)
        batch.end(done)
    batch.submit("first", "nightly", "etl")
    job = batch.submit("orders", "nightly", "etl")
    job["statusReason"] = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - no instance"
    done = doctor(job["jobId"])
    assert done.returncode == 1
    text = said(done)
    assert "orders is RUNNABLE" in text
    assert "AWS says of orders: CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY" in text
    assert "allow more types, zones, or On-Demand" in text
    assert "It is number 2 of the queue." in text
    assert "The last 3 jobs of this queue that succeeded waited 2m 00s (median)." in text


def test_a_disabled_queue_and_environment_have_their_commands(
    batch: FakeBatch, doctor: Any
) -> None:
    job = batch.submit("orders", "nightly", "etl")
    batch.queues["nightly"]["state"] = "DISABLED"
    batch.environments["spot"] |= {
        "state": "DISABLED",
        "status": "INVALID",
        "statusReason": "CLIENT_ERROR - \x1b[31mthe role cannot be assumed",
    }
    for words in ((job["jobId"],), ("--queue", "nightly")):
        text = said(doctor(*words))
        assert "aws batch update-job-queue --job-queue nightly --state ENABLED" in text
        assert "--compute-environment spot --state ENABLED" in text
        assert "spot is INVALID: CLIENT_ERROR" in text
        assert "\x1b" not in text


@pytest.mark.parametrize(
    ("types", "vcpu", "memory_mb", "is_said"),
    [
        (("m4.large",), 2, 8192, True),
        (("m4.large",), 2, 7900, False),
        (("m4",), 64, 300_000, True),
        (("m4",), 8, 16_000, False),
        (("optimal",), 96, 4_000_000, False),
    ],
)
def test_more_than_an_instance_registers(
    batch: FakeBatch,
    doctor: Any,
    types: tuple[str, ...],
    vcpu: float,
    memory_mb: int,
    *,
    is_said: bool,
) -> None:
    """An m4.large is sold with 8,192 MiB, and registers 7,985."""
    on_ec2(batch, *types, vcpus=256)
    batch.define("large", vcpu, memory_mb, platformCapabilities=["EC2"])
    job = batch.submit("orders", "nightly", "large")
    text = said(doctor(job["jobId"]))
    assert ("which no allowed instance registers" in text) is is_said


def test_a_job_for_another_platform_than_its_queues(batch: FakeBatch, doctor: Any) -> None:
    container = {"image": "etl:26", "vcpus": 1, "memory": 2048}
    batch.define("instances", containerProperties=container, platformCapabilities=["EC2"])
    job = batch.submit("orders", "nightly", "instances")
    sentence = "It is for {}, and its queue's environments are for {}."
    assert sentence.format("EC2", "FARGATE") in said(doctor(job["jobId"]))
    assert "It is for" not in said(doctor(batch.submit("orders", "nightly", "etl")["jobId"]))
    on_ec2(batch, "m5.large")
    assert "It is for" not in said(doctor(job["jobId"]))
    other = batch.submit("orders", "nightly", "etl")
    assert sentence.format("FARGATE", "EC2") in said(doctor(other["jobId"]))
    managed = {"maxvCpus": 16, "type": "ECS_MANAGED_INSTANCES"}
    batch.environments["spot"]["computeResources"] = managed
    for waiting, platform in ((job, "EC2"), (other, "FARGATE")):
        known = sentence.format(platform, "MANAGED_INSTANCES")
        assert known in said(doctor(waiting["jobId"]))
    batch.define("managed", 1, 2048, platformCapabilities=["MANAGED_INSTANCES"])
    fitting = batch.submit("orders", "nightly", "managed")
    assert "It is for" not in said(doctor(fitting["jobId"]))


def test_maxvcpus_is_used_up_by_what_runs(batch: FakeBatch, doctor: Any) -> None:
    batch.define("wide", 8, 16_384)
    for _ in range(2):
        batch.begin(batch.submit("wide", "nightly", "wide"))
    job = batch.submit("orders", "nightly", "etl")
    text = said(doctor(job["jobId"]))
    assert "2 jobs of this queue use 16 vCPU of the 16 that maxvCpus of spot allows." in text
    assert "update-compute-environment --compute-environment spot" in text
    batch.environments["spot"]["computeResources"]["maxvCpus"] = 0.5
    assert "maxvCpus" in text


def test_a_job_waits_for_another_and_for_a_consumable_resource(
    batch: FakeBatch, doctor: Any
) -> None:
    other = batch.submit("load", "nightly", "etl")
    end_without_attempt(other, batch.now_ms, "no")
    license_ = {"consumableResourceList": [{"consumableResource": "license", "quantity": 2}]}
    batch.consumables["license"] = 1
    job = batch.submit(
        "orders",
        "nightly",
        "etl",
        dependsOn=[{"jobId": other["jobId"]}],
        consumableResourcePropertiesOverride=license_,
    )
    text = said(doctor(job["jobId"]))
    assert f"It waits for the job load ({other['jobId']}), which is FAILED." in text
    assert "It needs 2 of the consumable resource license, and 1 is left." in text
    assert "--operation ADD --quantity 1" in text


@pytest.mark.parametrize(("code", "exit_code", "words"), [(0, 0, "succeeded"), (1, 1, "failed")])
def test_an_ended_job_says_how(
    batch: FakeBatch, doctor: Any, code: int, exit_code: int, words: str
) -> None:
    job = batch.submit("orders", "nightly", "etl")
    batch.begin(job)
    batch.end(job, code)
    done = doctor(job["jobId"])
    assert done.returncode == exit_code
    assert f"orders {words}" in said(done)
    assert ("task-profiler show" in said(done)) is bool(code)


def test_a_running_job_has_no_problem(batch: FakeBatch, doctor: Any) -> None:
    job = batch.submit("orders", "nightly", "etl")
    batch.begin(job)
    assert doctor(job["jobId"]).returncode == 0


def test_what_is_not_there_is_a_sentence(doctor: Any) -> None:
    assert "it forgets jobs seven days after their end" in said(doctor(job_id(9)))
    assert "There is no job queue 'none'" in said(doctor("--queue", "none"))
    assert said(doctor("--queue", "nihgtly")).endswith("Did you mean nightly?")


@pytest.mark.parametrize(
    "refused",
    [
        "DescribeJobDefinitions",
        "DescribeJobQueues",
        "DescribeComputeEnvironments",
        "ListJobs",
        "GetJobQueueSnapshot",
        "DescribeConsumableResource",
    ],
)
def test_a_missing_right_costs_one_sentence(batch: FakeBatch, doctor: Any, refused: str) -> None:
    used = {"consumableResourceList": [{"consumableResource": "license", "quantity": 2}]}
    job = batch.submit("orders", "nightly", "etl", consumableResourcePropertiesOverride=used)
    batch.consumables["license"] = 2
    batch.refused.add(refused)
    done = doctor(job["jobId"])
    assert done.returncode == 0
    assert f"allow batch:{refused}" in said(done)
    assert "orders is RUNNABLE" in said(done)


def test_a_queue_counts_its_jobs(batch: FakeBatch, doctor: Any) -> None:
    batch.begin(batch.submit("a", "nightly", "etl"))
    batch.submit("b", "nightly", "etl")
    text = said(doctor("--queue", "nightly"))
    assert "The queue nightly has 1 job RUNNABLE, 0 jobs STARTING, 1 job RUNNING." in text
    asked = [request["jobStatus"] for request in batch.requests("ListJobs")]
    assert sorted(asked) == ["PENDING", "RUNNABLE", "RUNNING", "STARTING", "SUCCEEDED"], "each once"
    assert len(batch.requests("DescribeJobQueues")) == 1


def test_a_queue_says_since_when_the_job_waits_that_waits_longest(
    batch: FakeBatch, doctor: Any
) -> None:
    ended = batch.submit("before", "nightly", "etl")
    batch.begin(ended)
    batch.end(ended, 0)
    ended["startedAt"] = ended["createdAt"] + 40_000
    for name, waited_ms in (("young", 60_000), ("old", 7_200_000), ("middle", 300_000)):
        batch.submit(name, "nightly", "etl")["createdAt"] -= waited_ms
    text = said(doctor("--queue", "nightly"))
    assert "old is RUNNABLE, " in text
    assert "young" not in text
    assert "middle" not in text
    assert "The last 1 job of this queue that succeeded waited 40.0 s (median)." in text


def test_a_queue_with_more_jobs_than_are_listed_says_so(batch: FakeBatch, doctor: Any) -> None:
    for _ in range(1_001):
        batch.submit("orders", "nightly", "etl")
    assert "has 1,000+ jobs RUNNABLE, 0 jobs STARTING" in said(doctor("--queue", "nightly"))


def test_an_array_waits_for_what_its_children_wait_for(batch: FakeBatch, doctor: Any) -> None:
    """The array itself is PENDING until the last child has ended, and no queue lists a child."""
    on_ec2(batch, "m5.xlarge", vcpus=2)
    array = batch.submit("many", "nightly", "etl", arrayProperties={"size": 4})
    for index in range(2):
        batch.begin(batch.jobs[f"{array['jobId']}:{index}"])
    waiting = batch.jobs[f"{array['jobId']}:2"]
    waiting["statusReason"] = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - no instance"
    counts = "The children of the array many: 2 RUNNABLE, 2 RUNNING."
    used_up = "2 jobs of this queue use 2 vCPU of the 2 that maxvCpus of spot allows."
    for words in ((array["jobId"],), ("--queue", "nightly"), (waiting["jobId"],)):
        text = said(doctor(*words))
        assert used_up in text, words
        assert "AWS says of many" in text, words
        assert (counts in text) is (words != (waiting["jobId"],))
    assert "It is number 1 of the queue." in said(doctor(array["jobId"]))


def test_of_an_ended_array_its_newest_child_is_to_be_looked_at(
    batch: FakeBatch, doctor: Any
) -> None:
    array = batch.submit("many", "nightly", "etl", arrayProperties={"size": 2})
    array["arrayProperties"]["statusSummary"] = {"SUCCEEDED": 1, "FAILED": 1}
    end_without_attempt(array, batch.now_ms, "Array Child Job failed")
    text = said(doctor(array["jobId"]))
    assert f"Look: task-profiler show {array['jobId']}" in text


def test_the_log_of_a_jobs_newest_attempt_has_its_command(batch: FakeBatch, doctor: Any) -> None:
    """A job without a monitor has no report for `show`."""
    retries = {"attempts": 2}
    job = batch.submit("orders", "nightly", "etl", retryStrategy=retries)
    streams = []
    for _ in range(2):
        batch.begin(job)
        streams.append(job["container"]["logStreamName"])
        batch.end(job, 1)
    text = said(doctor(job["jobId"]))
    assert streams[0] != streams[1]
    assert (
        f"Its log: aws logs tail /aws/batch/job --log-stream-names {streams[1]} --since 7d"
    ) in text


def test_two_checks_at_once_are_refused(doctor: Any) -> None:
    done = doctor(job_id(1), "--queue", "nightly")
    assert done.returncode == 2
    assert "different checks" in said(done)


def test_a_deregistered_definition_is_said_with_what_to_submit(
    batch: FakeBatch, doctor: Any
) -> None:
    old = batch.define("load", 1, 2048)
    job = batch.submit("load", "nightly", old)
    assert "deregistered" not in said(doctor(job["jobId"]))
    batch.define("load", 1, 4096)
    assert "deregistered" not in said(doctor(job["jobId"]))
    batch.definition(old)["status"] = "INACTIVE"
    done = said(doctor(job["jobId"]))
    assert "Its definition load:1 is deregistered" in done
    assert "Submit load without a revision, or load:2." in done
    batch.definition("load:2")["status"] = "INACTIVE"
    assert "No revision of load is active: register it again." in said(doctor(job["jobId"]))
