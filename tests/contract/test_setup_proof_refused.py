"""``task-profiler setup proof`` with one of its calls to AWS refused, throttled, or carried out
without an answer, each in turn: what happened is said, and what is left has its command.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from profiler.cli.setup import proof_output
from profiler.cli.wiring import aws_options
from profiler.record.batch_job_detail import ENDED
from tests.job_proof_account import IMAGE, QUEUE, JobProofAccount, job_proof_account
from tests.nth_calls import SAID, Failure, KilledError, NthCallFails
from tests.proof_account import ProofAccount, proof_account

GROUP = "/ecs/task-profiler-proof-"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobProofAccount]:
    with job_proof_account(tmp_path) as made:
        yield made


@pytest.fixture
def account(tmp_path: Path) -> Iterator[ProofAccount]:
    with proof_account(tmp_path) as made:
        made.change = lambda task: task.described.update(desiredStatus="RUNNING")
        yield made


class Proved:
    """A proof whose call with the number ``nth`` fails."""

    def __init__(
        self,
        account: ProofAccount | JobProofAccount,
        nth: int,
        failure: Failure,
        *,
        is_killed: bool = False,
    ) -> None:
        calls = NthCallFails(lambda _service: None, nth, failure, is_killed=is_killed)

        def open_clients(region: str | None, profile: str | None) -> object:
            calls.opens = aws_options.open_clients(region, profile)
            return calls.open

        is_of_jobs = isinstance(account, JobProofAccount)
        words = ("--queue", QUEUE, "--image", IMAGE) if is_of_jobs else ()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(proof_output, "open_clients", open_clients)
            done = account.prove(*words, "--yes", "--json")
        self.calls = calls.calls
        self.name = [*calls.calls, ""][nth - 1]
        self.code = done.returncode
        self.said = " ".join((done.stderr + done.stdout).split())
        self.left = [*groups_in(account)]
        if isinstance(account, JobProofAccount):
            self.left += jobs_in(account)
        else:
            self.left += tasks_in(account)


def groups_in(account: ProofAccount | JobProofAccount) -> Iterator[str]:
    """The log groups that a proof has left, by the words that tell of them; they are deleted."""
    logs = account.aws.client("logs")
    for group in logs.describe_log_groups(logGroupNamePrefix=GROUP)["logGroups"]:
        yield f"--log-group-name {group['logGroupName']}"
        logs.delete_log_group(logGroupName=group["logGroupName"])


def jobs_in(account: JobProofAccount) -> Iterator[str]:
    """What a proof of jobs has left, likewise."""
    for definition in account.batch.definitions:
        if definition["status"] == "ACTIVE" and definition["jobDefinitionName"] != "etl":
            yield "--job-definition-name task-profiler-proof"
            definition["status"] = "INACTIVE"
    for job in account.batch.jobs.values():
        if job["status"] not in ENDED:
            yield f"--job-queue {QUEUE}"
            job["status"] = "FAILED"


def tasks_in(account: ProofAccount) -> Iterator[str]:
    """What a proof of tasks has left, likewise."""
    ecs, iam = map(account.aws.client, ("ecs", "iam"))
    for name in iam.list_role_policies(RoleName="nightly-task")["PolicyNames"]:
        yield f"--policy-name {name}"
        iam.delete_role_policy(RoleName="nightly-task", PolicyName=name)
    for status in ("ACTIVE", "INACTIVE"):
        listed = ecs.list_task_definitions(familyPrefix="task-profiler-proof", status=status)
        for arn in listed["taskDefinitionArns"]:
            yield "--family-prefix task-profiler-proof"
            ecs.deregister_task_definition(taskDefinition=arn)
            ecs.delete_task_definitions(taskDefinitions=[arn])
    for task in account.tasks:
        if task.described["lastStatus"] != "STOPPED":
            yield "--started-by task-profiler-proof-"
    account.tasks.clear()


def check(proved: Proved, failure: Failure) -> None:
    where = f"{proved.name}: {proved.code} {proved.said}"
    assert "Traceback" not in proved.said, where
    for thing in proved.left:
        assert thing in proved.said, (thing, where)
    if proved.code == 0:
        assert not proved.left, where
        return
    assert proved.code == 1, where
    assert SAID[failure] in proved.said, where


@pytest.mark.slow
@pytest.mark.parametrize("failure", get_args(Failure))
@pytest.mark.parametrize("kind", ["account", "jobs"])
def test_one_failed_call_is_said_and_leaves_nothing_unsaid(
    request: pytest.FixtureRequest, kind: str, failure: Failure
) -> None:
    made = request.getfixturevalue(kind)
    whole = Proved(made, 0, failure)
    assert (whole.code, whole.left) == (0, [])
    for nth in range(1, len(whole.calls) + 1):
        check(Proved(made, nth, failure), failure)


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("name", ["register_task_definition", "run_task"])
def test_a_lost_answer_leaves_nothing_unsaid(account: ProofAccount, name: str) -> None:
    nth = Proved(account, 0, "lost").calls.index(name) + 1
    check(Proved(account, nth, "lost"), "lost")


CHANGES = ("create", "delete", "deregister", "put", "register", "run", "stop", "submit")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("account", ("put_role_policy",)),
        pytest.param("account", CHANGES, marks=pytest.mark.slow),
        pytest.param("jobs", CHANGES, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("failure", ["denied", "lost"])
def test_a_proof_that_is_killed_is_in_the_way_of_no_later_one(
    request: pytest.FixtureRequest, kind: str, names: tuple[str, ...], failure: Failure
) -> None:
    """SIGKILL before AWS has carried a change out, and after it. What it leaves has the name of the
    proof, and the later one's is gone.
    """
    made = request.getfixturevalue(kind)
    calls = Proved(made, 0, "lost").calls
    for nth in [nth for nth, name in enumerate(calls, 1) if name.startswith(names)]:
        with pytest.raises(KilledError):
            Proved(made, nth, failure, is_killed=True)
        later = Proved(made, 0, "lost")
        assert later.code == 0, (nth, later.said)
        for kind_of_thing in ("--log-group-name", "--policy-name"):
            assert sum(kind_of_thing in name for name in later.left) <= 1, (nth, later.left)
        assert all("task-profiler-proof" in name or QUEUE in name for name in later.left)


@pytest.mark.parametrize(
    ("operation", "answer", "sentence"),
    [
        (
            "DeleteTaskDefinitions",
            {"taskDefinitions": [], "failures": [{"reason": "SERVICE_BUSY"}]},
            "Revisions of task-profiler-proof stay (SERVICE_BUSY).",
        ),
        pytest.param(
            "DescribeTasks",
            {"tasks": [], "failures": [{"reason": "MISSING"}]},
            "The proof's tasks did not stop within 3 minutes.",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_partial_answer_is_no_success(
    account: ProofAccount, operation: str, answer: dict[str, object], sentence: str
) -> None:
    account.proxy.answers[operation] = answer
    done = account.prove("--yes")
    assert done.returncode == 1
    assert sentence in " ".join(done.stderr.split())
