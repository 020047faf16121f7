"""Families whose definitions another service registers: no command changes them or says that one
should.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from moto.ecs.models import ecs_backends

from profiler.record.batch_job import BatchJob
from tests.batch_jobs import CLUSTER, job_id
from tests.resize_account import ACCOUNT, BATCH, Account
from tools.moto_server import fake_aws

BY_BATCH = f"arn:aws:sts::{ACCOUNT}:assumed-role/AWSServiceRoleForBatch/aws-batch"
BY_USER = f"arn:aws:sts::{ACCOUNT}:assumed-role/deploy/terraform"
SEQERA = "seqera-sched-eu-1"
OWNED = "AWS Batch owns it (its role AWSServiceRoleForBatch registered it)"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """A family that AWS Batch registered, and a control, each with runs, without a monitor."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        for cluster in (CLUSTER, SEQERA):
            made.ecs.create_cluster(clusterName=cluster)
        for family in ("control", "orders"):
            made.family(family, containerDefinitions=[BATCH])
            made.runs(family, 25)
        registered_by(made, "control", BY_USER)
        registered_by(made, "orders", BY_BATCH)
        yield made


def registered_by(account: Account, family: str, principal: str) -> None:
    """Who registered the family's newest revision, which moto does not keep."""
    revisions = ecs_backends[ACCOUNT][account.aws.region].task_definitions[family]
    revisions[max(revisions)].registered_by = principal  # type: ignore[attr-defined]


def flat(done: CompletedProcess[str]) -> str:
    return " ".join(f"{done.stdout} {done.stderr}".split())


def rows(done: CompletedProcess[str]) -> dict[str, str]:
    """The notes by their families."""
    objects = map(json.loads, done.stdout.splitlines())
    return {one["family"]: f"{one['action']}: {' '.join(one['notes'])}" for one in objects}


@pytest.mark.parametrize("command", ["add-monitor", "remove-monitor"])
def test_the_monitor_is_left_to_batch(account: Account, command: str) -> None:
    words = ("taskdef", command, "control", "orders")
    found = rows(account.command(*words, "--json"))
    assert found["orders"].startswith(f"refused: {OWNED}")
    assert "task-profiler run" in found["orders"]
    assert "owns" not in found["control"]
    image = ("--image", "team/task-profiler:1")
    done = account.command(*words, *image, "--register")
    assert done.returncode == 0, done.stderr
    assert "1 refused" in done.stderr
    assert account.newest("orders") == [1]
    assert account.newest("control") == [2 if command == "add-monitor" else 1]


@pytest.mark.parametrize("words", [(), ("--revert", "orders", "control")])
def test_the_size_is_left_to_batch_and_saves_nothing(
    account: Account, words: tuple[str, ...]
) -> None:
    found, _ = account.rows(*words)
    assert OWNED in found["orders"]["reason"]
    assert "taskdef resize --job-definition NAME" in found["orders"]["reason"]
    assert found["orders"].get("savingUsdPerMonth") is None
    done = account.resize("--register", *words)
    assert done.returncode == 0, done.stderr
    assert account.newest("orders") == [1]
    if not words:
        assert account.newest("control") == [2]


def test_no_sizes_are_written_for_batch(account: Account, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    assert account.resize("--write-sizes", str(sizes)).returncode == 0
    assert [*json.loads(sizes.read_text())] == ["control"]


def test_doctor_says_no_remedy_that_no_job_would_run(account: Account) -> None:
    said = flat(account.command("doctor", "orders"))
    assert OWNED in said
    assert "add-monitor" not in said
    assert "Add it: task-profiler taskdef add-monitor" in flat(account.command("doctor", "control"))


def test_doctor_of_a_cluster_of_batch_has_no_problem_with_its_families(account: Account) -> None:
    account.aws.start_task("orders", cluster=CLUSTER)
    done = account.command("doctor", "--cluster", CLUSTER)
    assert done.returncode == 0, flat(done)
    assert OWNED in flat(done)
    assert "1 family: none with a problem" in flat(done)


def test_setup_counts_no_family_of_batch(account: Account) -> None:
    account.schedule("nightly", "control")
    account.schedule("wrong", "orders")
    said = flat(account.command("setup", "--json"))
    assert "0 of 1 schedules and rules start a task with a current monitor." in said
    assert "AWS Batch registers 1 family: leave them to it." in said
    assert "refuses" not in said


@pytest.mark.parametrize(
    ("cluster", "service"), [(CLUSTER, "AWS Batch"), ("ci_Batch_0a1b-2c", "AWS Batch")]
)
def test_a_revision_of_ours_does_not_hide_the_owner(
    account: Account, cluster: str, service: str
) -> None:
    """``resize`` of an earlier version registered it; no job has ever run it."""
    account.family("orders", containerDefinitions=[BATCH])
    registered_by(account, "orders", BY_USER)
    account.ecs.create_cluster(clusterName=cluster)
    account.aws.start_task("orders:1", cluster=cluster)
    found = rows(account.command("taskdef", "add-monitor", "orders", "--json"))
    evidence = f"its tasks run in the cluster {cluster}"
    assert found["orders"].startswith(f"refused: {service} owns it ({evidence})")
    assert "add-monitor" not in flat(account.command("doctor", "orders"))


@pytest.mark.parametrize(
    "cluster",
    [SEQERA, CLUSTER],
)
def test_runs_say_whose_a_family_is(account: Account, cluster: str) -> None:
    account.family("align")
    account.runs("align", 25, cluster=cluster)
    found, _ = account.rows("--register")
    assert f"its tasks run in the cluster {cluster}" in found["align"]["reason"]
    assert account.newest("align") == [1]


def test_a_forged_variable_in_another_cluster_takes_no_family(account: Account) -> None:
    """Anybody can set AWS_BATCH_JOB_ID where Batch does not start the task."""
    account.family("load")
    account.runs("load", 25, cluster="jobs", batch=BatchJob(job_id=job_id(1)))
    account.family("local")
    account.runs("local", 25, cluster=None, batch=BatchJob(job_id=job_id(2)))
    found, _ = account.rows("--register")
    assert found["load"]["action"] == "resize"
    assert f"a run is the job {job_id(2)}" in found["local"]["reason"], "no cluster says otherwise"


@pytest.mark.parametrize("cluster", ["jobs", "my_Batch_jobs", "Batch", "seqera"])
def test_a_cluster_of_another_name_is_nobodys(account: Account, cluster: str) -> None:
    account.ecs.create_cluster(clusterName=cluster)
    account.aws.start_task("control", cluster=cluster)
    found = rows(account.command("taskdef", "add-monitor", "control", "--json"))
    assert found["control"].startswith("add monitor")


def test_a_service_in_a_cluster_of_batch_is_not_batchs(account: Account) -> None:
    """Such as the monitor of its instances."""
    account.aws.start_task("control", cluster=CLUSTER, group="service:monitor")
    found = rows(account.command("taskdef", "add-monitor", "control", "--json"))
    assert found["control"].startswith("add monitor")


def test_a_file_of_a_family_that_batch_runs_keeps_its_size(
    account: Account, tmp_path: Path
) -> None:
    account.family("align")
    account.runs("align", 25, cluster=CLUSTER)
    file = tmp_path / "align.json"
    definition = {
        "family": "align",
        "cpu": "1024",
        "memory": "2048",
        "containerDefinitions": [BATCH],
    }
    file.write_text(json.dumps(definition))
    done = account.resize("--apply", str(file))
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == definition
    assert "AWS Batch owns it" in flat(done)
