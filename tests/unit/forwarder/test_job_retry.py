"""Retries of jobs of AWS Batch that were killed for memory: which, with how much, by which request,
never twice, and what is said.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.session import get_session
from msgspec.structs import replace

from profiler.forwarder.ended_run import MemoryRetry
from profiler.forwarder.invocation import DeliveryError, InProgressError
from profiler.forwarder.job_retry import JobAwsClients, should_retry
from tests.batch_jobs import ACCOUNT, SECRETS, job_id
from tests.fake_batch import Answer, FakeBatch
from tests.retried_jobs import (
    INSTANCE,
    KILLED,
    RETRY_OF,
    Job,
    Json,
    RetriedJobs,
    batch_with_etl,
    detail,
    fail,
    killed,
)
from tests.values import present

OTHER_ACCOUNT = "999999999999"


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with batch_with_etl() as fake:
        yield fake


@pytest.fixture
def account(batch: FakeBatch) -> RetriedJobs:
    return RetriedJobs(batch)


# When


def test_a_job_is_retried_after_its_last_attempt_was_killed(account: RetriedJobs) -> None:
    batch = account.batch
    job = batch.submit("orders", "nightly", "etl")
    fail(batch, job)
    assert account.handle(job) is None, "Batch repeats it"
    fail(batch, job, 1)
    retry = present(account.handle(job))
    new = present(retry.retried_as)
    assert retry.sentence == f"Started again with 6 GB (was 4 GB): job {new[:8]}."
    assert batch.jobs[new]["tags"] == {RETRY_OF: job["jobId"]}
    assert batch.jobs[new]["retryStrategy"] == {"attempts": 1}
    assert batch.jobs[new]["jobDefinition"] == job["jobDefinition"]
    assert account.handle(job) == retry, "a repeated event starts nothing"
    assert len(batch.requests("SubmitJob")) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"status": "SUCCEEDED"},
        {"status": "RUNNABLE"},
        {"isTerminated": True},
        {"isTerminated": True, "statusReason": KILLED},
        {"isCancelled": True},
        {"attempts": []},
        {"jobDefinition": "arn:aws:batch:us-west-2:111122223333:job-definition/other:1"},
        {
            "jobDefinition": "arn:aws:batch:us-west-2:111122223333:job-definition/task-profiler-proof:1"
        },
        {"arrayProperties": {"size": 2, "statusSummary": {"FAILED": 1}}},
        {"arrayProperties": {"index": 1}, "jobId": f"{job_id(0)}:1"},
        {"jobId": f"{job_id(0)}#1"},
    ],
)
def test_nothing_is_asked_or_said_of_other_ends(account: RetriedJobs, change: Json) -> None:
    job = killed(account.batch) | change
    assert not should_retry(detail(job), ("etl*",))
    calls = len(account.batch.calls)
    assert account.handle(job) is None
    assert account.batch.calls[calls:] == []


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        (137, None, "Essential container in task exited"),
        (137, "CannotInspectContainerError: Could not transition", "Essential container"),
        (137, None, "Job attempt duration exceeded timeout"),
        (0, KILLED, "Essential container in task exited"),
    ],
)
def test_an_exit_code_alone_is_no_proof(
    account: RetriedJobs, code: int, reason: str | None, status: str
) -> None:
    job = account.batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    account.batch.begin(job)
    account.batch.end(job, code, reason, status_reason=status)
    assert account.handle(job) is None


def test_only_the_last_attempt_counts(account: RetriedJobs) -> None:
    job = account.batch.submit("orders", "nightly", "etl")
    fail(account.batch, job)
    fail(account.batch, job, 3, None)
    assert account.handle(job) is None


@pytest.mark.parametrize("code", [1, 2, 137])
def test_aws_s_reason_is_the_proof_whatever_the_exit_code(account: RetriedJobs, code: int) -> None:
    job = account.batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    fail(account.batch, job, code, KILLED.replace("Container killed", "container killed"))
    assert present(account.handle(job)).retried_as


# What is not retried, and why


def test_jobs_of_other_kinds_are_refused(account: RetriedJobs) -> None:
    batch = account.batch
    first = batch.submit("first", "nightly", "etl")
    assert account.refusal(killed(batch, dependsOn=[{"jobId": first["jobId"]}])) == (
        "it depends on other jobs."
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tags": {RETRY_OF: job_id(9)}}, "it was a retry."),
        ({"nodeDetails": {"nodeIndex": 0, "isMainNode": True}}, "it has several nodes."),
        ({"platformCapabilities": ["MANAGED_INSTANCES"]}, "it ran neither on Fargate nor on EC2."),
        ({"eksProperties": {"podProperties": {}}}, "it ran neither on Fargate nor on EC2."),
        ({"tags": {str(number): "" for number in range(50)}}, "it has 50 tags, so that none can"),
        ({"container": {}}, "which of its containers was killed is not known."),
    ],
)
def test_what_batch_says_of_the_job_counts(account: RetriedJobs, change: Json, reason: str) -> None:
    """The event does not have it."""
    told = killed(account.batch)
    account.batch.jobs[told["jobId"]] |= change
    told = {**told, "tags": {}, **{name: None for name in change if name != "container"}}
    told["platformCapabilities"] = ["FARGATE"]
    assert account.refusal(told).startswith(reason)


@pytest.mark.parametrize(
    ("asked", "defined", "is_refused"),
    [
        ({"propagateTags": True}, {}, True),
        ({"propagateTags": False}, {"propagateTags": True}, False),
        ({}, {"propagateTags": True}, True),
        ({}, {}, False),
    ],
)
def test_the_tags_of_a_definition_count_where_a_retry_propagates_them(
    account: RetriedJobs, asked: Json, defined: Json, *, is_refused: bool
) -> None:
    """Batch fails a job with more than fifty of both."""
    own = {f"own-{number}": "" for number in range(20)}
    account.batch.define("etl-tagged", tags=own, **defined)
    tags = {str(number): "" for number in range(30)}
    job = killed(account.batch, "etl-tagged", tags=tags, **asked)
    if is_refused:
        assert account.refusal(job) == "it has 50 tags, so that none can be added."
    else:
        assert present(account.handle(job)).retried_as


@pytest.mark.parametrize(
    "asked",
    [
        {"shareIdentifier": "team", "schedulingPriorityOverride": 0},
        {"propagateTags": False},
        {"propagateTags": True},
    ],
)
def test_a_submission_of_zero_or_false_is_passed_on(account: RetriedJobs, asked: Json) -> None:
    account.batch.define("etl-urgent", schedulingPriority=9, propagateTags=True)
    assert asked.items() <= account.request(killed(account.batch, "etl-urgent", **asked)).items()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"State": "DISABLED"}, "is disabled"),
        ({"EndDate": 1_000}, "has ended"),
        ({"ScheduleExpression": "rate(1 day)", "EndDate": 1_000}, "has ended"),
    ],
)
def test_the_job_of_a_schedule_that_somebody_switched_off_is_not_started_again(
    account: RetriedJobs, settings: Json, reason: str
) -> None:
    account.schedules.add(**settings)
    assert account.refusal(killed(account.batch)) == f"its schedule night-0 {reason}."
    account.schedules.add(State="ENABLED")
    assert present(account.handle(killed(account.batch))).retried_as, "another one is in force"


def test_a_schedule_of_another_job_or_definition_does_not_count(account: RetriedJobs) -> None:
    account.schedules.add(State="DISABLED")
    (off,) = account.schedules.targets
    account.schedules.targets = [
        replace(off, job_name="others"),
        replace(off, definition_arn="etl-2"),
    ]
    assert present(account.handle(killed(account.batch))).retried_as


def test_schedules_that_may_not_be_read_start_nothing(account: RetriedJobs) -> None:
    refused = {"Code": "AccessDeniedException", "Message": "not authorized"}
    account.schedules.error = ClientError({"Error": refused}, "ListSchedules")
    assert account.refusal(killed(account.batch)).startswith("its schedule could not be read")


def test_a_forged_event_starts_nothing(account: RetriedJobs) -> None:
    """Of the event, the id alone is believed."""
    batch = account.batch
    succeeded = batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    batch.begin(succeeded)
    batch.end(succeeded, 3)
    forged = {**killed(batch), "jobId": succeeded["jobId"], "jobArn": succeeded["jobArn"]}
    assert account.refusal(forged) == "AWS Batch does not say that it was killed for memory."


@pytest.mark.parametrize("part", ["jobId", "jobArn"])
def test_a_job_of_another_account_or_region_starts_nothing(account: RetriedJobs, part: str) -> None:
    job = killed(account.batch)
    told = {**job, "jobArn": job["jobArn"].replace(ACCOUNT, OTHER_ACCOUNT)}
    if part == "jobId":
        told["jobId"] = job_id(77)
    said = account.refusal(told)
    assert said == "AWS Batch knows no such job in this account and Region."


def test_a_job_that_batch_has_forgotten_starts_nothing(account: RetriedJobs) -> None:
    job = killed(account.batch)
    account.batch.now_ms += 8 * 86_400_000
    assert account.refusal(job) == "AWS Batch knows no such job in this account and Region."


def test_an_old_event_starts_nothing(account: RetriedJobs) -> None:
    job = killed(account.batch)
    account.batch.now_ms += round(timedelta(hours=12, minutes=1).total_seconds() * 1000)
    assert account.refusal(job) == "it ended more than 12 hours ago."


def test_a_deregistered_definition_starts_nothing(account: RetriedJobs) -> None:
    job = killed(account.batch)
    account.batch.definitions[0]["status"] = "INACTIVE"
    assert account.refusal(job) == "its job definition etl:1 is deregistered."


def test_a_deleted_definition_starts_nothing(account: RetriedJobs) -> None:
    job = killed(account.batch)
    account.batch.definitions.clear()
    assert account.refusal(job) == "its job definition etl:1 is deregistered."


@pytest.mark.parametrize(
    ("definition", "variables", "name"),
    [
        ("nf-quay-io-star", [], "Nextflow"),
        ("etl", [{"name": "MANAGED_BY_AWS", "value": "STARTED_BY_STEP_FUNCTIONS"}], "AWS Step"),
    ],
)
def test_who_repeats_jobs_itself_is_left_alone(
    account: RetriedJobs, definition: str, variables: list[Json], name: str
) -> None:
    account.batch.define("nf-quay-io-star", 1, 4096)
    job = killed(account.batch, definition, containerOverrides={"environment": variables})
    assert account.refusal(job).startswith(name)


def test_the_largest_memory_is_the_setting_s(account: RetriedJobs) -> None:
    account.batch.define("etl-large", 16, 49_152)
    job = killed(account.batch, "etl-large")
    said = account.refusal(job)
    assert said == "it needs 72 GB, and RETRY_MAX_MEMORY_MB allows 60 GB."


def test_without_a_table_of_keys_nothing_is_started(account: RetriedJobs) -> None:
    job = killed(account.batch)
    account.begun = None
    assert account.refusal(job).startswith("without IDEMPOTENCY_TABLE")


# The request


def test_everything_of_a_submission_is_known() -> None:
    model = get_session().get_service_model("batch")
    passed_on = {
        *("jobName", "jobQueue", "jobDefinition", "shareIdentifier", "parameters", "timeout"),
        *("retryStrategy", "tags", "propagateTags", "schedulingPriorityOverride"),
        *("consumableResourcePropertiesOverride", "containerOverrides", "ecsPropertiesOverride"),
    }
    refused = {"arrayProperties", "dependsOn", "nodeOverrides", "eksPropertiesOverride"}
    assert set(model.operation_model("SubmitJob").input_shape.members) == passed_on | refused
    overrides = {"vcpus", "memory", "command", "environment", "resourceRequirements"}
    of_nodes = {"instanceType"}
    assert set(model.shape_for("ContainerOverrides").members) == overrides | of_nodes
    of_task = {"command", "environment", "name", "resourceRequirements"}
    assert set(model.shape_for("TaskContainerOverrides").members) == of_task


def test_the_whole_submission_is_passed_on_and_only_what_it_changed(account: RetriedJobs) -> None:
    batch = account.batch
    consumed = {"consumableResourceList": [{"consumableResource": "license", "quantity": 1}]}
    own = [{"name": "TOKEN", "value": SECRETS[0]}, {"name": "DB_PASSWORD", "value": "another"}]
    asked: Json = {
        "parameters": {"day": "2026-03-01"},
        "shareIdentifier": "team",
        "schedulingPriorityOverride": 7,
        "timeout": {"attemptDurationSeconds": 600},
        "tags": {"team": "a", "aws:batch:x": "b"},
        "propagateTags": True,
        "consumableResourcePropertiesOverride": consumed,
        "containerOverrides": {"command": ["load", "Ref::day", SECRETS[3]], "environment": own},
    }
    job = killed(batch, **asked)
    assert account.request(job) == {
        **asked,
        "jobName": "orders",
        "jobQueue": job["jobQueue"],
        "jobDefinition": job["jobDefinition"],
        "retryStrategy": {"attempts": 1},
        "tags": {"team": "a", RETRY_OF: job["jobId"]},
        "containerOverrides": {
            "command": ["load", "Ref::day", SECRETS[3]],
            "environment": [own[1], own[0]],
            "resourceRequirements": [
                {"type": "VCPU", "value": "1"},
                {"type": "MEMORY", "value": "6144"},
            ],
        },
    }


def test_a_definitions_own_command_and_variables_are_not_sent(account: RetriedJobs) -> None:
    batch = account.batch
    container = {
        "image": "etl:26",
        "command": ["load", "Ref::day"],
        "environment": [{"name": "LONG", "value": "x" * 9_000}],
        "resourceRequirements": [
            {"type": "VCPU", "value": "1"},
            {"type": "MEMORY", "value": "2048"},
        ],
    }
    more: Json = {"platformCapabilities": ["FARGATE"], "parameters": {"day": "today"}}
    batch.define("etl-own", containerProperties=container, **more)
    job = killed(batch, "etl-own")
    # Either of them is the definition's: it is not established which one Batch describes.
    batch.jobs[job["jobId"]]["container"]["command"] = ["load", "today"]
    assert [*account.request(job)["containerOverrides"]] == ["resourceRequirements"]


def test_a_word_that_is_the_name_of_a_parameter_is_no_placeholder(account: RetriedJobs) -> None:
    """``load`` is a word of the definition's command, and a parameter of that name is for others."""
    container = {"image": "etl:26", "command": ["load", "Ref::day"]}
    sizes = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "2048"}]
    account.batch.define(
        "etl-load",
        containerProperties={**container, "resourceRequirements": sizes},
        platformCapabilities=["FARGATE"],
    )
    asked: Json = {
        "parameters": {"load": "unload", "day": "today"},
        "containerOverrides": {"command": ["unload", "today"]},
    }
    request = account.request(killed(account.batch, "etl-load", **asked))
    assert request["containerOverrides"]["command"] == ["unload", "today"]


def test_a_command_that_parameters_would_change_again_is_refused(account: RetriedJobs) -> None:
    asked: Json = {
        "parameters": {"a": "Ref::b", "b": "2"},
        "containerOverrides": {"command": ["x"]},
    }
    assert account.refusal(killed(account.batch, **asked)) == "its parameters name others."


@pytest.mark.parametrize(
    ("size", "asked", "larger"),
    [
        ((0.25, 2048), {}, ("0.5", "3072")),  # Fargate has no 3 GB with 0.25 vCPU
        ((1, 8192), {}, ("2", "12288")),
        # What was asked for counts, which the definition does not say.
        ((0.25, 512), {"VCPU": "4", "MEMORY": "16384"}, ("4", "24576")),
    ],
)
def test_the_pair_on_fargate_is_legal(
    account: RetriedJobs, size: tuple[float, int], asked: dict[str, str], larger: tuple[str, str]
) -> None:
    account.batch.define("etl-sized", *size)
    requirements = [{"type": kind, "value": value} for kind, value in asked.items()]
    job = killed(
        account.batch, "etl-sized", containerOverrides={"resourceRequirements": requirements}
    )
    sent = account.request(job)["containerOverrides"]["resourceRequirements"]
    assert tuple(one["value"] for one in sent) == larger


def test_more_vcpus_than_the_queue_allows_would_wait_for_ever(account: RetriedJobs) -> None:
    account.batch.environments["spot"]["computeResources"]["maxvCpus"] = 1
    account.batch.define("etl-large", 1, 8192)
    said = account.refusal(killed(account.batch, "etl-large"))
    assert said == "12 GB need 2 vCPU on Fargate, and its queue's environments allow 1."


TWO = (("0.75", "1920"), ("0.25", "128"))


def several(batch: FakeBatch, *names: str | None, sizes: Sequence[tuple[str, str]] = TWO) -> None:
    """A definition whose containers share 1 vCPU and 2 GB."""
    containers = []
    for name, (vcpu, memory) in zip(names, sizes, strict=True):
        asked = [{"type": "VCPU", "value": vcpu}, {"type": "MEMORY", "value": memory}]
        containers.append({"image": "x", "resourceRequirements": asked} | {"name": name or ""})
        if name is None:
            del containers[-1]["name"]
    batch.define(
        "etl-two",
        ecsProperties={"taskProperties": [{"containers": containers}]},
        platformCapabilities=["FARGATE"],
    )


def test_of_several_containers_the_killed_one_grows_to_a_legal_sum(account: RetriedJobs) -> None:
    several(account.batch, "batch", "helper")
    override = {
        "taskProperties": [
            {"containers": [{"name": "batch", "environment": [{"name": "A", "value": "1"}]}]}
        ]
    }
    request = account.request(killed(account.batch, "etl-two", ecsPropertiesOverride=override))
    assert "containerOverrides" not in request
    ((first, second),) = (
        task["containers"] for task in request["ecsPropertiesOverride"]["taskProperties"]
    )
    assert first["environment"] == [{"name": "A", "value": "1"}]
    assert [one["value"] for one in first["resourceRequirements"]] == ["0.75", "2944"]
    assert [one["value"] for one in second["resourceRequirements"]] == ["0.25", "128"]
    (new,) = (job for job in account.batch.jobs.values() if job["tags"])
    assert detail(new).memory_mb == 3072


def test_fractions_of_a_vcpu_are_neither_lost_nor_a_reason_for_a_larger_size(
    account: RetriedJobs,
) -> None:
    """As floats, they are more than 1 together."""
    sizes = (("0.05", "1024"), ("0.55", "512"), ("0.3", "256"), ("0.1", "256"))
    several(account.batch, "batch", "b", "c", "d", sizes=sizes)
    request = account.request(killed(account.batch, "etl-two"))
    (task,) = request["ecsPropertiesOverride"]["taskProperties"]
    asked = [container["resourceRequirements"][0]["value"] for container in task["containers"]]
    assert asked == ["0.05", "0.55", "0.3", "0.1"]


def test_of_nameless_containers_nobody_knows_which_one_was_killed(account: RetriedJobs) -> None:
    several(account.batch, "batch", None)
    account.batch.jobs.clear()
    job = account.batch.submit("orders", "nightly", "etl-two", retryStrategy={"attempts": 1})
    account.batch.begin(job)
    containers = [{"name": "batch", "exitCode": 137, "reason": KILLED}]
    ended = {"startedAt": 1, "taskProperties": [{"containers": containers}]}
    job |= {"status": "FAILED", "attempts": [ended], "stoppedAt": account.batch.now_ms}
    said = account.refusal(job)
    assert said == "which of its containers was killed is not known."


# On EC2


def on_ec2(account: RetriedJobs, memory_mb: int, *, deprecated: bool = False) -> Job:
    asked = [{"type": "VCPU", "value": "2"}, {"type": "MEMORY", "value": str(memory_mb)}]
    container: Json = {"image": "x", "resourceRequirements": asked}
    if deprecated:
        container = {"image": "x", "vcpus": 2, "memory": memory_mb}
    batch = account.batch
    batch.define("etl-ec2", containerProperties=container)
    job = batch.submit("orders", "nightly", "etl-ec2")
    batch.begin(job, instance_arn=INSTANCE)
    batch.end(job, 137, KILLED)
    return job


def test_on_ec2_the_memory_grows_by_half(account: RetriedJobs) -> None:
    sent = account.request(on_ec2(account, 1_000))["containerOverrides"]
    assert sent == {
        "resourceRequirements": [
            {"type": "VCPU", "value": "2"},
            {"type": "MEMORY", "value": "1536"},
        ]
    }


def test_a_deprecated_member_is_overridden_by_itself(account: RetriedJobs) -> None:
    """A requirement does not replace it, says the API's reference."""
    sent = account.request(on_ec2(account, 1_000, deprecated=True))["containerOverrides"]
    assert sent == {"vcpus": 2, "memory": 1536}


@pytest.mark.parametrize(
    ("registered_mb", "reason"),
    [
        (1_024, "it needs 1.5 GB, and the instance on which it ran has 1 GB for jobs."),
        (None, "the instance on which it ran is gone, so its room is unknown."),
    ],
)
def test_a_job_that_no_instance_may_hold_would_block_its_queue(
    account: RetriedJobs, registered_mb: int | None, reason: str
) -> None:
    account.instances.registered_mb = registered_mb
    assert account.refusal(on_ec2(account, 1_000)) == reason


def test_without_an_instance_no_room_is_known(account: RetriedJobs) -> None:
    account.batch.define("etl-ec2", containerProperties={"image": "x", "vcpus": 1, "memory": 512})
    said = account.refusal(killed(account.batch, "etl-ec2"))
    assert said == "the instance on which it ran is not known."


# Once


def test_a_lost_answer_is_not_repeated(account: RetriedJobs) -> None:
    """SubmitJob has no token: it may have been done."""
    job = killed(account.batch)
    account.batch.lost.add("SubmitJob")
    retry = present(account.handle(job))
    assert retry.retried_as is None
    assert retry.sentence.startswith("It is not known whether it was started again, because AWS")
    account.batch.lost.clear()
    assert account.handle(job) == retry
    account.table.done.clear()  # as after an invocation that ended before its result was kept
    assert account.handle(job) == retry
    assert len(account.batch.requests("SubmitJob")) == 1
    assert sum(RETRY_OF in one["tags"] for one in account.batch.jobs.values()) == 1


def test_a_timeout_is_not_repeated(account: RetriedJobs) -> None:
    job = killed(account.batch)

    class Silent:
        calls = 0

        def submit_job(self, **_: object) -> None:
            self.calls += 1
            raise ReadTimeoutError(endpoint_url="https://batch")

    silent = Silent()
    account.clients = JobAwsClients(
        account.clients.batch, silent, account.instances, account.schedules
    )
    for _ in range(2):
        assert present(account.handle(job)).sentence.startswith("It is not known")
        account.table.done.clear()
    assert silent.calls == 1


class Unreadable(FakeBatch):
    """Does what it is asked, and answers something else, as a proxy may."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content

    def answer(self, request: Any, body: bytes) -> Answer:
        status, headers, _ = super().answer(request, body)
        return status, headers, self.content


@pytest.mark.parametrize("content", [b"", b"{}", b'{"jobId": "4dd5', b"<html>", b"\xff", b"[]"])
def test_an_unreadable_answer_is_not_repeated(account: RetriedJobs, content: bytes) -> None:
    """Batch has taken the job."""
    job = killed(account.batch)
    with Unreadable(content) as unreadable:
        unreadable.queues = account.batch.queues
        unreadable.definitions = account.batch.definitions
        unreadable.jobs = account.batch.jobs
        submit = unreadable.client()
        account.clients = JobAwsClients(
            account.clients.batch, submit, account.instances, account.schedules
        )
        for _ in range(2):
            assert present(account.handle(job)).sentence.startswith("It is not known")
            account.table.done.clear()
        assert len(unreadable.requests("SubmitJob")) == 1


def test_a_submission_that_was_throttled_alone_is_tried_again(account: RetriedJobs) -> None:
    job = killed(account.batch)
    client = account.clients.batch
    busy = FakeBatch()
    try:
        busy.throttled = 1
        account.clients = JobAwsClients(client, busy.client(), account.instances, account.schedules)
        with pytest.raises(DeliveryError, match="AWS Batch did not take it"):
            account.handle(job)
    finally:
        busy.close()
    account.clients = JobAwsClients(client, client, account.instances, account.schedules)
    assert present(account.handle(job)).retried_as


def test_two_deliveries_at_once_are_one_job(account: RetriedJobs) -> None:
    job = killed(account.batch)
    second: list[BaseException] = []
    submit: Callable[[Json], Json] = account.batch._SubmitJob

    def meanwhile(asked: Json) -> Json:
        with pytest.raises(InProgressError) as raised:
            account.handle(job)
        second.append(raised.value)
        return submit(asked)

    account.batch._SubmitJob = meanwhile  # type: ignore[method-assign]
    assert present(account.handle(job)).retried_as
    assert len(second) == 1
    assert len(account.batch.requests("SubmitJob")) == 1


def test_an_invocation_that_died_in_the_call_is_not_repeated(account: RetriedJobs) -> None:
    job = killed(account.batch)
    present(account.begun).busy.add(f"job/{job['jobId']}#submit")
    retry = present(account.handle(job))
    assert retry.sentence.startswith("It is not known whether it was started again")
    assert account.batch.requests("SubmitJob") == []


def test_an_answer_that_is_older_than_the_event_is_asked_for_again(account: RetriedJobs) -> None:
    job = dict(killed(account.batch))
    account.batch.jobs[job["jobId"]]["status"] = "RUNNING"
    with pytest.raises(DeliveryError, match="not started again yet"):
        account.handle(job)
    account.batch.jobs[job["jobId"]]["status"] = "FAILED"
    assert present(account.handle(job)).retried_as


# Rights and secrets


@pytest.mark.parametrize("operation", ["DescribeJobs", "DescribeJobDefinitions", "SubmitJob"])
def test_a_missing_right_is_named(account: RetriedJobs, operation: str) -> None:
    job = killed(account.batch)
    account.batch.refused.add(operation)
    retry = present(account.handle(job))
    assert f"not authorized to perform: batch:{operation}" in retry.sentence
    assert retry.retried_as is None


@pytest.mark.parametrize("operation", ["DescribeJobs", "DescribeJobDefinitions"])
def test_a_busy_batch_is_asked_again(account: RetriedJobs, operation: str) -> None:
    job = killed(account.batch)
    account.batch.failing.add(operation)
    with pytest.raises(DeliveryError):
        account.handle(job)
    account.batch.failing.clear()
    assert present(account.handle(job)).retried_as


class Newer:
    """A client that answers what its own model does not allow to submit."""

    def __init__(self, client: Any) -> None:
        self.describe_job_definitions = client.describe_job_definitions
        self._client = client

    def describe_jobs(self, jobs: list[str]) -> Any:
        answer = self._client.describe_jobs(jobs=jobs)
        answer["jobs"][0]["parameters"] = {"secret": [SECRETS[2]], SECRETS[0]: SECRETS[3]}
        return answer


@pytest.mark.parametrize("fault", ["message", "validation", "lost", None])
def test_no_secret_of_the_submission_is_said_or_kept(
    account: RetriedJobs, fault: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    batch = account.batch
    variables = [{"name": "KEY", "value": SECRETS[1]}]
    over = {"environment": variables, "command": ["load", SECRETS[3]]}
    job = killed(batch, parameters={"secret": SECRETS[2]}, containerOverrides=over)
    if fault == "message":
        batch.queues["nightly"]["jobQueueName"] = SECRETS[0]
        batch.queues["nightly"]["state"] = SECRETS[0]
        batch.queues["nightly"]["jobQueueArn"] = SECRETS[0]
    elif fault == "validation":
        newer = Newer(account.clients.batch)
        account.clients = JobAwsClients(newer, batch.client(), None, account.schedules)
    elif fault == "lost":
        batch.lost.add("SubmitJob")
    account.handle(job)
    kept = [account.table.done, present(account.begun).done, account.warnings]
    said = json.dumps(kept) + caplog.text
    assert not [secret for secret in SECRETS if secret in said]
    sent = json.dumps(batch.requests("SubmitJob"))
    if fault in ("lost", None):
        assert all(secret in sent for secret in SECRETS[1:]), "they are passed on"


# What is said at the end of a retry


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (0, "Succeeded with 6 GB after 4 GB were too little: set 6 GB."),
        (1, "This was the retry of {}: it is not started again."),
    ],
)
def test_the_end_of_a_retry_says_what_to_set(
    account: RetriedJobs, code: int, sentence: str
) -> None:
    batch = account.batch
    job = killed(batch)
    new = batch.jobs[present(present(account.handle(job)).retried_as)]
    fail(batch, new, code, KILLED if code else None)
    retry = present(account.handle(new))
    short = f"{job['jobId'][:8]} with 6 GB"
    assert retry == MemoryRetry(sentence=sentence.format(short), retry_of=job["jobId"])
    assert len(batch.requests("SubmitJob")) == 1


def test_the_end_of_a_retry_is_said_without_the_first_job_too(account: RetriedJobs) -> None:
    batch = account.batch
    job = killed(batch)
    new = batch.jobs[present(present(account.handle(job)).retried_as)]
    fail(batch, new, 0, None)
    batch.refused.add("DescribeJobs")
    retry = present(account.handle(new))
    assert retry.sentence == f"This was the retry of {job['jobId'][:8]}: it succeeded with 6 GB."


def test_a_tag_that_is_no_job_is_no_retry(account: RetriedJobs) -> None:
    job = killed(account.batch, tags={RETRY_OF: "<!channel> " + SECRETS[0]})
    assert detail(job).retry_of is None
