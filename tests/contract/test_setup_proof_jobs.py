"""``task-profiler setup proof --queue``: the plan, the rights, the table, and what is left of the
jobs afterwards.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.aws_account.proof.job_plan import JOB_PLAN_RIGHTS, JOB_RIGHTS
from tests.job_proof_account import IMAGE, QUEUE, JobProofAccount, PlayedJob, job_proof_account
from tests.proof_account import deploy_stack
from tools.local_answers import answer_over_sockets

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

GROUP = "/ecs/task-profiler-proof-"
_CHANGING = {"RegisterJobDefinition", "SubmitJob", "TerminateJob", "DeregisterJobDefinition"}
_WORDS = ("--queue", QUEUE, "--image", IMAGE)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[JobProofAccount]:
    with job_proof_account(tmp_path) as made:
        yield made


def rows_of(account: JobProofAccount, *words: str) -> list[dict[str, Any]]:
    done = account.prove(*_WORDS, "--yes", "--json", *words)
    assert done.stdout, done.stderr
    first, *_ = done.stdout.splitlines()
    found: list[dict[str, Any]] = json.loads(first)["rows"]
    assert done.returncode == any(row["state"] == "differs" for row in found)
    assert all(row["remedy"] for row in found if row["state"] == "differs")
    return found


def differing(found: list[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(row["task"], row["check"]) for row in found if row["state"] == "differs"}


def check_nothing_is_left(account: JobProofAccount) -> None:
    groups = account.aws.client("logs").describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]
    assert groups == []
    active = [one for one in account.batch.definitions if one["status"] == "ACTIVE"]
    assert [one["jobDefinitionName"] for one in active] == ["etl"]
    ended = ("SUCCEEDED", "FAILED")
    assert [job for job in account.batch.jobs.values() if job["status"] not in ended] == []


def called(account: JobProofAccount) -> set[str]:
    return {operation for operation, _ in account.batch.calls}


def test_the_plan_of_jobs_names_everything_and_changes_nothing(account: JobProofAccount) -> None:
    done = account.prove(*_WORDS, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["queue"] == QUEUE
    assert plan["as"] == f"A job of the queue {QUEUE}"
    assert plan["executionRole"].endswith(":role/etl-execution")
    assert plan["publicAddress"] is True
    assert plan["runs"] == ["success", "failure", "memory"]
    assert plan["problems"] == []
    assert 0 < plan["usd"] < 0.01
    assert plan["makes"][0].startswith(GROUP)
    assert not called(account) & _CHANGING
    people = account.prove(*_WORDS)
    assert "A job of the queue nightly" in people.stdout
    assert "Nothing was changed" in people.stderr


def test_every_row_of_jobs_is_ok_and_nothing_is_left(account: JobProofAccount) -> None:
    found = rows_of(account)
    assert {row["state"] for row in found} == {"ok"}
    assert {row["check"] for row in found} >= {"job", "family", "log stream", "cost"}
    assert len(account.played) == 3
    check_nothing_is_left(account)


def test_the_rights_of_the_plan_are_the_calls_to_batch(account: JobProofAccount) -> None:
    assert account.prove(*_WORDS, "--yes").returncode == 0
    account.change = run_on
    press_ctrl_c(account, "DescribeJobs")
    assert account.prove(*_WORDS, "--yes").returncode == 130
    rights = {f"batch:{operation}" for operation in called(account)}
    assert rights == {*JOB_PLAN_RIGHTS, *JOB_RIGHTS}


def test_the_jobs_have_no_overrides_and_one_attempt(account: JobProofAccount) -> None:
    rows_of(account)
    for asked in account.batch.requests("SubmitJob"):
        assert {*asked} == {"jobName", "jobQueue", "jobDefinition"}
    for definition in account.batch.requests("RegisterJobDefinition"):
        assert definition["retryStrategy"] == {"attempts": 1}
        assert definition["containerProperties"]["command"][:2] == ["run", "--no-history"]


def test_a_queue_with_a_scheduling_policy_gets_a_share(account: JobProofAccount) -> None:
    account.batch.queues[QUEUE]["schedulingPolicyArn"] = "arn:aws:batch:::scheduling-policy/fair"
    rows_of(account)
    shares = {asked["shareIdentifier"] for asked in account.batch.requests("SubmitJob")}
    assert shares == {"taskprofilerproof"}


def test_the_markdown_of_jobs_names_nothing_of_the_account(account: JobProofAccount) -> None:
    done = account.prove(*_WORDS, "--yes", "--markdown")
    assert "| success | family | ok |" in done.stdout
    ids = [played.id for played in account.played]
    for private in ("123456789012", "111122223333", "arn:", QUEUE, "etl", GROUP, *ids):
        assert private not in done.stdout


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"state": "DISABLED"}, "aws batch update-job-queue --job-queue nightly --state ENABLED"),
        ({"status": "INVALID", "statusReason": "no role"}, "The queue nightly is INVALID: no role"),
    ],
)
def test_a_queue_that_takes_no_jobs_is_refused(
    account: JobProofAccount, state: dict[str, str], sentence: str
) -> None:
    account.batch.queues[QUEUE] |= state
    refused(account, sentence)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"computeResources": {"type": "EC2"}}, "is not one of Fargate alone (EC2)"),
        ({"containerOrchestrationType": "EKS"}, "is not one of Fargate alone (EKS)"),
        ({"state": "DISABLED"}, "task-profiler doctor --queue nightly"),
    ],
)
def test_a_queue_without_fargate_is_refused(
    account: JobProofAccount, environment: dict[str, Any], sentence: str
) -> None:
    account.batch.add_environment("fargate", **environment)
    refused(account, sentence)


def test_an_unknown_queue_is_refused(account: JobProofAccount) -> None:
    refused(account, "Did you mean nightly?", "--queue", "nihgtly")


def refused(account: JobProofAccount, sentence: str, *words: str) -> None:
    done = account.prove(*_WORDS, *words, "--yes")
    assert done.returncode == 1
    assert sentence in " ".join(done.stderr.split())
    assert not called(account) & _CHANGING
    assert "CreateLogGroup" not in account.proxy.operations


def test_a_definition_of_somebody_else_is_left_alone(account: JobProofAccount) -> None:
    account.batch.define("task-profiler-proof")
    account.batch.calls.clear()
    refused(account, "that setup proof did not register")


def test_without_a_job_a_definition_or_a_role_is_asked_for(account: JobProofAccount) -> None:
    account.batch.jobs.clear()
    refused(account, "name a job definition with --like, or a role with --execution-role")
    refused(account, "There is no job definition 'nope'", "--like", "nope")
    refused(account, "--execution-role. Did you mean etl?", "--like", "elt")
    like = json.loads(account.prove(*_WORDS, "--json", "--like", "etl").stdout)
    assert like["as"] == "The job definition etl"
    role = "arn:aws:iam::123456789012:role/other"
    given = json.loads(account.prove(*_WORDS, "--json", "--execution-role", role).stdout)
    assert given["as"] == "The options"
    assert given["problems"] == ["There is no execution role other, so Batch starts no job."]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give either --cluster or --queue"),
        (("--cluster", "jobs", "--queue", QUEUE), "give either --cluster or --queue"),
        (("--queue", QUEUE, "--subnets", "subnet-1"), "the queue's compute environment"),
    ],
)
def test_places_that_do_not_fit_are_refused_as_usage(
    account: JobProofAccount, words: tuple[str, ...], sentence: str
) -> None:
    done = account.prove(*words)
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())
    assert account.batch.calls == []


def test_without_a_stack_the_wrapper_alone_is_proven(account: JobProofAccount) -> None:
    def end_alone(played: PlayedJob) -> None:
        played.ended = None

    account.delete_stack()
    account.change = end_alone
    found = rows_of(account)
    assert differing(found) == set()
    assert "PutSubscriptionFilter" not in account.proxy.operations
    check_nothing_is_left(account)


def test_batchs_own_messages_are_not_checked(account: JobProofAccount) -> None:
    account.delete_stack()
    account.aws.client("iam").delete_role(RoleName="lambda")
    deploy_stack(account.aws, BatchJobs="true")
    found = rows_of(account)
    (why,) = {row["seen"] for row in found if row["check"] == "notification"}
    assert "one message a job" in why


@pytest.mark.slow
def test_what_differs_from_the_assumptions_is_a_row(account: JobProofAccount) -> None:
    def change(played: PlayedJob) -> None:
        played.described["taskDefinitionArn"] = "arn:aws:ecs:us-east-1:1:task-definition/other:1"
        report = played.lines[-1]["record"]
        report["batch"]["queue"] = "other"
        report["metrics"]["maxMemoryUsedMB"] = 20

    account.change = change
    found = rows_of(account)
    jobs = {(scenario, "job") for scenario in ("success", "failure", "memory")}
    assert differing(found) == jobs | {("success", "family"), ("success", "memory peak")}


@pytest.mark.slow
def test_a_job_that_waits_is_a_row_and_is_ended(account: JobProofAccount) -> None:
    account.change = lambda _played: False
    found = rows_of(account)
    details = [row["detail"] for row in found if row["check"] == "task"]
    assert details == ["it was RUNNABLE after 6 minutes"] * 3
    remedy = next(row["remedy"] for row in found if row["check"] == "task")
    assert "task-profiler doctor --queue nightly" in remedy
    assert len(account.batch.requests("TerminateJob")) == 3
    check_nothing_is_left(account)


def test_a_job_that_fails_without_a_task_is_a_row(account: JobProofAccount) -> None:
    def fail(played: PlayedJob) -> bool:
        reason = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
        played.job |= {"status": "FAILED", "statusReason": reason, "stoppedAt": 1}
        played.job["stoppedAt"] = account.batch.now_ms
        return False

    account.change = fail
    found = rows_of(account)
    details = [row["detail"] for row in found if row["check"] == "task"]
    assert details == ["CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"] * 3
    check_nothing_is_left(account)


def run_on(played: PlayedJob) -> None:
    """Let the job run until it is ended."""
    played.is_ended = False


def press_ctrl_c(account: JobProofAccount, step: str) -> None:
    """Press Ctrl-C in the first call of an operation, which AWS still does."""
    interrupted: list[str] = []

    def interrupt(operation: str) -> None:
        if operation == step and not interrupted:
            interrupted.append(step)
            os.kill(os.getpid(), signal.SIGINT)

    answer_over_sockets(account.proxy.url)
    answer_over_sockets(account.batch.url)
    account.batch.before = lambda operation, _asked: interrupt(operation)
    account.proxy.before = lambda operation, _body: interrupt(operation)


@pytest.mark.parametrize(
    "step",
    ["CreateLogGroup", "PutSubscriptionFilter", "RegisterJobDefinition", "SubmitJob"],
)
def test_an_interrupted_proof_of_jobs_leaves_nothing_behind(
    account: JobProofAccount, step: str
) -> None:
    account.change = run_on
    press_ctrl_c(account, step)
    done = account.prove(*_WORDS, "--yes")
    assert done.returncode == 130
    assert done.stdout == ""
    check_nothing_is_left(account)


@pytest.mark.parametrize(
    "operation",
    [
        *("DescribeJobQueues", "DescribeComputeEnvironments", "DescribeJobDefinitions"),
        *("RegisterJobDefinition", "SubmitJob", "DescribeJobs"),
    ],
)
def test_a_missing_right_is_named_and_leaves_nothing_behind(
    account: JobProofAccount, operation: str
) -> None:
    account.batch.refused = {operation}
    account.change = run_on
    done = account.prove(*_WORDS, "--yes")
    assert done.returncode == 1
    assert f"batch:{operation}" in done.stdout + done.stderr
    if operation == "DescribeJobs":  # then nobody can know whether they ended
        assert "aws batch list-jobs --job-queue nightly" in done.stderr
        return
    account.batch.refused = set()
    check_nothing_is_left(account)


@pytest.mark.slow
def test_an_answer_that_is_lost_leaves_nothing_behind(account: JobProofAccount) -> None:
    """Batch keeps the job and the revision of a call that seems to have failed."""
    lost: list[str] = []

    def play_and_lose(job: dict[str, Any]) -> None:
        play(job)
        if job["jobName"].endswith("-failure") and not lost:
            lost.append(job["jobId"])
            account.batch.failing = {"SubmitJob"}

    account.change = run_on
    play = account.batch.on_submit
    account.batch.on_submit = play_and_lose
    done = account.prove(*_WORDS, "--yes")
    assert done.returncode == 1
    assert lost
    account.batch.failing = set()
    check_nothing_is_left(account)


def test_two_proofs_of_jobs_at_once_do_not_meet(account: JobProofAccount) -> None:
    """The second one's revisions and jobs run while the first one cleans up."""
    foreign = account.batch.define(
        "task-profiler-proof",
        containerProperties={
            "image": "m:1",
            "resourceRequirements": [
                {"type": "VCPU", "value": "1"},
                {"type": "MEMORY", "value": "2048"},
            ],
            "logConfiguration": {
                "logDriver": "awslogs",
                "options": {"awslogs-group": f"{GROUP}0a1b2c3d"},
            },
        },
        platformCapabilities=["FARGATE"],
    )
    play = account.batch.on_submit
    account.batch.on_submit = lambda _job: None
    other = account.batch.submit("task-profiler-proof-0a1b2c3d-success", QUEUE, foreign)
    account.batch.on_submit = play
    assert {row["state"] for row in rows_of(account)} == {"ok"}
    assert other["status"] == "RUNNABLE"
    assert account.batch.definition(foreign)["status"] == "ACTIVE"
