"""``taskdef resize`` for an account, played by moto: the plan, the revisions, their verdict, and
what is left alone.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import profiler
from profiler.aws_account.registered_definitions import TaskDefinitions
from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.resize_account import (
    BATCH,
    CLUSTER,
    DEFINITIONS,
    KILLED,
    MONITOR,
    NEW,
    STACK_TAG,
    Account,
    lists_a_stack_early,
)
from tests.role_policies import iam_actions, starter_role
from tests.step_functions import publish
from tools.moto_server import fake_aws, start_by_schedule

ROOT = Path(profiler.__file__).parent.parent


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with fake_aws() as aws:
        yield Account(aws, tmp_path)


@pytest.mark.slow
def test_families_with_too_little_come_first_then_the_largest_saving(account: Account) -> None:
    for name in ("small", "nightly", "weekly"):
        account.family(name)
    account.runs("nightly", 25)
    account.runs("weekly", 25, peak_mb=1500, p95=0.9)
    account.runs("small", 25, peak_mb=2040, p95=0.9)
    rows, _ = account.rows()
    assert [(name, row["action"]) for name, row in rows.items()] == [
        ("small", "resize"),
        ("nightly", "resize"),
        ("weekly", "none"),
    ]
    assert rows["small"]["savingUsdPerMonth"] < 0
    chosen = account.resize("--first", "1", "--register")
    assert "registered nightly:2" in chosen.stdout
    assert "--first 1 leaves out 1 family that needs more: small." in " ".join(
        chosen.stderr.split()
    )


def test_the_plan_has_what_each_family_would_save_and_changes_nothing(account: Account) -> None:
    for name in ("nightly", "weekly", "new", "unknown"):
        account.family(name)
    account.runs("nightly", 25)
    account.runs("weekly", 25, peak_mb=1500, p95=0.9)
    account.runs("new", 3)
    rows, total = account.rows()
    assert set(rows) == {"nightly", "weekly", "new"}
    assert rows["nightly"] | {"notes": []} == {
        "type": "family",
        "family": "nightly",
        "action": "resize",
        "reason": "saves 75 %",
        "from": {"vcpu": 1, "memoryMB": 2048},
        "to": {"vcpu": 0.25, "memoryMB": 512},
        "runs": 25,
        "savingUsdPerMonth": 0.19,
        "verdict": None,
        "atLeast": ["evidence.peakMB"],
        "evidence": rows["nightly"]["evidence"],
        "notes": [],
    }
    assert rows["nightly"]["evidence"]["peakMB"] == 400
    assert rows["nightly"]["evidence"]["runs"] == 25
    assert rows["nightly"]["notes"] == [
        "The memory of 'batch' is lowered from 1900 to 480 MiB, because ECS refuses more."
    ]
    assert [rows[name]["action"] for name in ("weekly", "new")] == ["none", "none"]
    assert rows["new"]["reason"] == "3 of 20 runs seen"
    assert total == {
        "type": "total",
        "families": 3,
        "changes": 1,
        "savingUsdPerMonth": 0.19,
        "savedUsdPerMonth": 0,
    }
    shown = account.resize("nightly", "new").stdout
    assert "1 of 2 families, $0.19 a month of $0.25.\nBy runs of 35 days, and" in shown
    assert shown.endswith("--register registers the revisions.\n")
    assert account.described("nightly")[0]["revision"] == 1


def test_a_schedule_on_a_deregistered_revision_is_named_and_not_started_again(
    account: Account,
) -> None:
    for _ in range(2):
        account.family("nightly")
    account.runs("nightly", 25, revision=2)
    scheduler = account.aws.client("scheduler")
    start_by_schedule(scheduler, "stopped", "nightly:1")
    account.ecs.deregister_task_definition(taskDefinition="nightly:1")
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert (
        "The schedule stopped is pinned to nightly:1, which was deregistered, so it starts "
        "nothing. Set an active revision there."
    ) in " ".join(done.stdout.split())
    arn = scheduler.get_schedule(Name="stopped")["Target"]["EcsParameters"]["TaskDefinitionArn"]
    assert arn.endswith("nightly:1")


def test_a_revision_differs_only_in_size_and_moves_the_pinned_schedules(account: Account) -> None:
    account.family("nightly", tags=[{"key": "team", "value": "data"}])
    account.runs("nightly", 25)
    scheduler = account.aws.client("scheduler")
    start_by_schedule(scheduler, "night", "nightly:1")
    plan = account.resize("nightly")
    assert "The schedule night is pinned to nightly:1." in " ".join(plan.stdout.split())
    assert plan.stderr == (
        "task-profiler: 1 of 1 schedules and rules is pinned to another revision, which they go "
        "on starting: --register --update-schedules moves them.\n"
    )
    done = account.resize("nightly", "--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "task-profiler: 1 registered, 1 schedule moved."
    before, _ = account.described("nightly:1")
    after, found = account.described("nightly")
    assert after["cpu"] == "256"
    assert after["memory"] == "512"
    assert after["revision"] == 2
    assert found == {"team": "data", "task-profiler:resized-from": "1/1024/2048"}
    assert after["containerDefinitions"][0] == {**before["containerDefinitions"][0], "memory": 480}
    assert after["containerDefinitions"][1] == before["containerDefinitions"][1]
    target = scheduler.get_schedule(Name="night")["Target"]["EcsParameters"]["TaskDefinitionArn"]
    assert target.endswith("nightly:2")
    rows, _ = account.rows("nightly")
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"] == "no run of revision 2 is known yet"


def test_a_new_size_is_kept_or_the_old_one_comes_back(
    account: Account,
) -> None:
    """A new size is kept or the old one comes back with the image deployed meanwhile."""
    for name in ("nightly", "weekly"):
        account.family(name)
        account.runs(name, 25)
    assert account.resize("--register").returncode == 0
    account.runs("nightly", 10, revision=2, size=NEW)
    deployed, tags = account.described("weekly")
    image = [
        {**deployed["containerDefinitions"][0], "image": "etl:27"},
        deployed["containerDefinitions"][1],
    ]
    kept = [{"key": key, "value": value} for key, value in tags.items()]
    account.family("weekly", NEW, containerDefinitions=image, tags=kept)
    account.runs("weekly", 1, revision=3, size=NEW, **KILLED)
    kept_row = account.resize("nightly").stdout
    assert "10 runs at the new size went well. It saves $0.19 a month." in kept_row
    rows, total = account.rows("--register")
    assert rows["nightly"]["action"] == "keep"
    assert rows["weekly"]["action"] == "revert"
    assert rows["nightly"]["verdict"]["savedUsdPerMonth"] == total["savedUsdPerMonth"] == 0.19
    assert total["savingUsdPerMonth"] == rows["weekly"]["savingUsdPerMonth"] < 0
    after, found = account.described("weekly")
    assert after["cpu"] == "1024"
    assert after["memory"] == "2048"
    assert after["revision"] == 4
    assert found == {"task-profiler:reverted-from": "3/256/512"}
    batch = after["containerDefinitions"][0]
    assert batch["image"] == "etl:27"
    assert batch["memory"] == 1900
    account.runs("weekly", 30, revision=4)
    rows, _ = account.rows("weekly")
    assert rows["weekly"]["action"] == "none"
    assert "left alone for 60 runs" in rows["weekly"]["reason"]


def test_a_file_that_a_pipeline_puts_back_is_named_and_not_changed(account: Account) -> None:
    account.resized()
    account.runs("nightly", 1, revision=2, size=NEW)
    for _ in range(3):
        account.family("nightly")
    account.ecs.deregister_task_definition(taskDefinition="nightly:3")
    account.runs("nightly", 25, revision=5)
    rows, _ = account.rows()
    assert (
        rows["nightly"]["reason"]
        == "a later revision has the old size again: set the size at its source, or let it read a "
        "file of sizes (--write-sizes)"
    )
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["to"] == {"vcpu": 0.25, "memoryMB": 512}


@pytest.mark.slow
def test_a_revision_that_a_person_deregisters_is_not_registered_again(account: Account) -> None:
    account.resized()
    account.ecs.deregister_task_definition(taskDefinition="nightly:2")
    account.runs("nightly", 7)
    for _ in range(3):
        rows, _ = account.rows("--register")
        assert rows["nightly"]["action"] == "none"
        assert rows["nightly"]["reason"] == (
            "somebody deregistered nightly:2, which this command had registered, so that an older "
            "one is the newest: register a revision to have it sized again"
        )
        assert rows["nightly"]["to"] == {"vcpu": 0.25, "memoryMB": 512}
        assert account.newest("nightly") == [1]
    account.ecs.delete_task_definitions(taskDefinitions=["nightly:2"])
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "resize", "nothing shows that a revision was deleted"


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_older_revision_that_is_the_newest_again_is_a_persons_word(
    account: Account, *, is_deleted: bool
) -> None:
    account.family("nightly")
    account.runs("nightly", 25)
    account.family("nightly")
    account.runs("nightly", 1, revision=2)
    account.ecs.deregister_task_definition(taskDefinition="nightly:2")
    if is_deleted:
        account.ecs.delete_task_definitions(taskDefinitions=["nightly:2"])
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"].startswith("somebody deregistered nightly:2, so that an older")
    account.family("nightly")
    account.family("nightly")
    account.runs("nightly", 5, revision=4 - is_deleted)
    assert account.rows("--register")[0]["nightly"]["action"] == "resize"


def test_a_killed_run_is_put_back_although_a_later_revision_was_deregistered(
    account: Account,
) -> None:
    account.resized()
    account.family(
        "nightly", NEW, tags=[{"key": "task-profiler:resized-from", "value": "1/1024/2048"}]
    )
    account.ecs.deregister_task_definition(taskDefinition="nightly:3")
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    assert account.rows("--register")[0]["nightly"]["action"] == "revert"
    assert account.described("nightly")[0]["memory"] == "2048"


def test_a_deployment_without_tags_after_a_revert_is_no_pipeline(
    account: Account,
) -> None:
    """A deployment without tags after a revert is no pipeline that puts its file back."""
    account.reverted()
    account.family("nightly")
    account.runs("nightly", 25, revision=4)
    rows, _ = account.rows()
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"].startswith("a smaller size has failed")
    account.runs("nightly", 40, revision=4, peak_mb=700)
    rows, _ = account.rows("--days", "100")
    assert rows["nightly"]["action"] == "resize"
    assert rows["nightly"]["to"] == {"vcpu": 0.25, "memoryMB": 1024}


def test_what_others_own_is_left_alone_and_named_and_its_schedules_stay(account: Account) -> None:
    scheduler = account.aws.client("scheduler")
    given: dict[str, dict[str, Any]] = {
        "off": {"tags": [{"key": "task-profiler:resize", "value": "off"}]},
        "owned": {"tags": [STACK_TAG]},
        "windows": {"runtimePlatform": {"operatingSystemFamily": "WINDOWS_SERVER_2022_CORE"}},
        "full": {"tags": [{"key": str(number), "value": ""} for number in range(50)]},
        "api": {},
    }
    for name, more in given.items():
        account.family(name, (2.0, 4096), **more)
        account.family(name, **more)
        account.runs(name, 25, revision=2, peak_mb=390)
    for name in ("off", "owned"):
        start_by_schedule(scheduler, name, f"{name}:1")
    account.ecs.create_service(
        cluster="jobs", serviceName="api", taskDefinition="api", desiredCount=0
    )
    rows, total = account.rows("--register", "--update-schedules")
    assert {row["savingUsdPerMonth"] for row in rows.values()} == {None}
    assert {name: (row["action"], row["reason"]) for name, row in rows.items()} == {
        "off": ("none", "its tag task-profiler:resize is off"),
        "owned": (
            "none",
            (
                "the stack jobs of CloudFormation owns it: set 0.25 vCPU, 512 MB in its template, or "
                "let it read a file of sizes (--write-sizes)"
            ),
        ),
        "windows": ("none", "it is for WINDOWS_SERVER_2022_CORE, which is not measured"),
        "full": (
            "none",
            "It has 50 tags, so the tag task-profiler:resized-from cannot be added: remove a tag.",
        ),
        "api": ("none", "a service runs it"),
    }
    assert total["changes"] == 0
    for name in ("off", "owned"):
        target = scheduler.get_schedule(Name=name)["Target"]["EcsParameters"]["TaskDefinitionArn"]
        assert target.endswith(f"{name}:1")


def test_a_size_holds_what_the_containers_and_the_monitor_reserve(account: Account) -> None:
    """The need of 468 MiB alone fits into 512 MiB, and with 32 MiB of the monitor, too: not with
    100 MiB more.
    """
    account.family("fits")
    account.family("fixed", containerDefinitions=[BATCH, {**MONITOR, "memoryReservation": 100}])
    account.family("limited", containerDefinitions=[BATCH, {**MONITOR, "memory": 600}])
    names = ("fits", "fixed", "limited")
    for name in names:
        account.runs(name, 25, peak_mb=390)
    rows, total = account.rows("--register")
    assert [rows[name]["to"]["memoryMB"] for name in names] == [512, 1024, 1024]
    assert total["changes"] == 3
    limits = [
        account.described(name)[0]["containerDefinitions"][0]["memory"]
        for name in ("fits", "fixed")
    ]
    assert limits == [480, 924]


def limit_of(account: Account) -> tuple[str, str, int]:
    found, tags = account.described("nightly")
    return (
        found["memory"],
        tags.get("task-profiler:resized-from", ""),
        found["containerDefinitions"][0]["memory"],
    )


AT_LIMIT: dict[str, Any] = {"metrics": {"memory_size_mb": 450}, **KILLED}


# With a saving, at the size that fits, and at one that has no room for more.
@pytest.mark.parametrize("size", [(1.0, 2048), (0.25, 1024), (0.25, 512)])
def test_a_limit_of_a_container_at_which_a_run_was_killed_is_raised(
    account: Account, size: tuple[float, int]
) -> None:
    account.family("nightly", size, containerDefinitions=[{**BATCH, "memory": 450}, MONITOR])
    account.runs("nightly", 22, size=size)
    account.runs("nightly", 1, size=size, **AT_LIMIT)
    rows, total = account.rows("--register")
    assert rows["nightly"]["action"] == "resize"
    assert total["changes"] == 1
    assert rows["nightly"]["notes"] == [
        "The memory of 'batch' is raised from 450 to 540 MiB, because a run was killed at this limit."
    ]
    account.family("owned", size, containerDefinitions=[{**BATCH, "memory": 450}], tags=[STACK_TAG])
    account.runs("owned", 1, size=size, **AT_LIMIT)
    rows, _ = account.rows("owned")
    assert rows["owned"]["notes"] == [
        "A run was killed at the limit of 450 MiB of the container 'batch'."
    ]
    assert limit_of(account) == ("1024", f"1/{round(1024 * size[0])}/{size[1]}", 540)
    account.runs(
        "nightly", 1, revision=2, size=(0.25, 1024), metrics={"memory_size_mb": 540}, **KILLED
    )
    rows, _ = account.rows("--register")
    assert limit_of(account)[2] == 648  # raised again, also if the old size comes back


def test_few_runs_raise_the_limit_of_a_container_and_do_not_lower_the_size(
    account: Account,
) -> None:
    account.family("nightly", containerDefinitions=[{**BATCH, "memory": 450}, MONITOR])
    account.runs("nightly", 2)
    account.runs("nightly", 1, **AT_LIMIT)
    rows, _ = account.rows("--register")
    assert (
        rows["nightly"]["reason"]
        == "a run was killed at the limit of 450 MiB of the container 'batch'"
    )
    assert limit_of(account) == ("2048", "1/1024/2048", 540)


@pytest.mark.parametrize(("after", "is_lowered"), [(10, False), (16, True)])
def test_a_limit_that_a_person_raised_after_a_kill_is_not_lowered_within_days(
    account: Account,
    after: int,
    is_lowered: bool,  # noqa: FBT001
) -> None:
    """A run a day: what the run needs that was killed is seen again within two weeks."""
    account.family("nightly", containerDefinitions=[{**BATCH, "memory": 450}, MONITOR])
    account.runs("nightly", 18)
    account.runs("nightly", 1, **AT_LIMIT)
    account.family("nightly")
    raised = {"memory_size_mb": BATCH["memory"]}
    account.runs("nightly", after, revision=2, metrics=raised)
    rows, _ = account.rows("--register")
    said = f"{after - 1} of 14 days seen since a container's limit was raised"
    assert (said in rows["nightly"]["reason"]) is not is_lowered
    limit = account.described("nightly")[0]["containerDefinitions"][0]["memory"]
    assert (limit < BATCH["memory"]) is is_lowered


@pytest.mark.slow
def test_a_size_that_failed_is_remembered_after_the_next_change(account: Account) -> None:
    account.reverted()
    account.runs("nightly", 60, revision=3, peak_mb=700)
    assert account.resize("--register", "--days", "100").returncode == 0
    found, tags = account.described("nightly")
    assert found["revision"] == 4
    assert found["memory"] == "1024"
    assert tags == {
        "task-profiler:resized-from": "3/1024/2048",
        "task-profiler:reverted-from": "2/256/512",
    }
    account.runs("nightly", 25, revision=4, size=(0.25, 1024))
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "keep"
    account.runs("nightly", 1, revision=4, size=(0.25, 1024), **KILLED)
    assert account.resize("--register").returncode == 0
    _, tags = account.described("nightly")
    assert tags == {"task-profiler:reverted-from": "4/256/1024"}


def test_the_weekly_jobs_policy_has_exactly_the_actions_it_needs(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TagResource and PassRole are no calls.

    The policy's statements for reports and for the plan suffice for these.
    """
    lists_a_stack_early(account.aws, monkeypatch)
    account.family("nightly")
    account.runs("nightly", 25)
    account.ecs.create_service(
        cluster="jobs", serviceName="api", taskDefinition="nightly", desiredCount=0
    )
    account.family("weekly")
    account.runs("weekly", 25)
    start_by_schedule(account.aws.client("scheduler"), "night", "weekly:1")
    events, parameters = (
        account.aws.client("events"),
        {"TaskDefinitionArn": f"{DEFINITIONS}/weekly:1"},
    )
    events.put_rule(Name="night", ScheduleExpression="rate(1 day)")
    role = starter_role(account.aws.client("iam"), "r", f"{DEFINITIONS}/weekly:*")
    target = {
        "Id": "1",
        "Arn": CLUSTER,
        "RoleArn": role,
        "EcsParameters": parameters,
    }
    events.put_targets(Rule="night", Targets=[target])
    account.state_machine("yearly", {"TaskDefinition": "yearly"})
    publish(account.aws.client("stepfunctions"), "yearly", "live")
    account.put_reports("/ecs/jobs")
    job = YAML(typ="safe").load(ROOT / "examples" / "resize_weekly.yml")["jobs"]["resize"]
    statements = json.loads((ROOT / "taskdef" / "iam" / "resize.json").read_text())["Statement"]
    allowed = {
        one["Sid"]: {one["Action"]} if isinstance(one["Action"], str) else {*one["Action"]}
        for one in statements
    }
    words = job["steps"][-1]["run"].split()[1:]
    changes = ["--register", "--update-schedules", "--yes", "--format", "github"]
    assert words[-len(changes) :] == changes
    with AwsProxy(account.aws.url) as proxy:
        environment = account.aws.environment() | {"AWS_ENDPOINT_URL": proxy.url} | job["env"]
        for given, sids in (
            (
                words[: -len(changes)],
                ("ReadReports", "ReadStack", "Plan", "ReadServicesAndSchedules"),
            ),
            (words, allowed),
        ):
            proxy.operations.clear()
            proxy.bodies.clear()
            done = run_here(environment, *given)
            assert done.returncode == 0, done.stderr
            needed = set[str]().union(*(allowed[sid] for sid in sids)) - {
                "ecs:TagResource",
                "iam:PassRole",
            }
            made = {*proxy.operations} - {"GetCallerIdentity", "POST /"}
            assert {*map(iam_action, made)} | iam_actions(proxy.bodies) == needed


def iam_action(operation: str) -> str:
    """The action of an operation, of which those of EventBridge Scheduler are requests."""
    schedules = {"GET /schedules": "ListSchedules", "GET /schedules/night": "GetSchedule"}
    if "/schedules" in operation:
        return f"scheduler:{schedules.get(operation, 'UpdateSchedule')}"
    if "Stack" in operation:
        return f"cloudformation:{operation}"
    if "StateMachine" in operation:
        return f"states:{operation}"
    if operation == "GetResources":
        return f"tag:{operation}"
    is_of_events = operation in ("ListEventBuses", "ListRules", "ListTargetsByRule", "PutTargets")
    is_of_logs = operation in ("DescribeLogGroups", "FilterLogEvents")
    return f"{'events' if is_of_events else 'logs' if is_of_logs else 'ecs'}:{operation}"


TEMPLATE = """\
Resources:
  Nightly:
    Type: AWS::ECS::TaskDefinition
    Properties: {Family: nightly, Cpu: 1024, Memory: '2048', ContainerDefinitions: [{Name: batch, Memory: 1900}]}  # one
  Weekly:
    Type: AWS::ECS::TaskDefinition
    Properties: {Family: weekly, Cpu: 1024, Memory: '2048', ContainerDefinitions: [{Name: batch}]}
"""
PLAIN = (
    '{"family":"nightly","cpu":"1 vCPU","memory":"2048","containerDefinitions":[{"name":"batch"}]}'
)


def test_files_get_their_sizes_and_nothing_else_changes(account: Account, tmp_path: Path) -> None:
    account.runs("nightly", 25, revision=9)
    plain, described = (tmp_path / name for name in ("nightly.json", "described.json"))
    plain.write_text(PLAIN)
    answer = '{"taskDefinition": %s,\n "tags": []}'
    described.write_text(answer % PLAIN.replace("{", '{"revision": 9, "status":"ACTIVE",', 1))
    done = account.resize("--apply", str(plain), "--apply", str(described))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("was changed") == 2
    assert "1 of 1 family" in done.stdout
    assert plain.read_text() == PLAIN.replace('"1 vCPU"', '"256"').replace('"2048"', '"512"')
    sized = plain.read_text()
    assert described.read_text() == answer % sized.replace(
        "{", '{"revision": 9, "status":"ACTIVE",', 1
    )
    again = account.resize("--apply", str(plain), "--json")
    assert again.returncode == 0, again.stderr
    assert again.stderr == ""
    assert plain.read_text() == sized


def test_a_template_gets_hints_and_no_change(account: Account, tmp_path: Path) -> None:
    account.runs("nightly", 25, revision=9)
    account.runs("weekly", 3)
    template = tmp_path / "jobs.yaml"
    template.write_text(TEMPLATE)
    done = account.resize("--apply", str(template), "--json")
    assert done.returncode == 0, done.stderr
    assert template.read_text() == TEMPLATE
    nightly, weekly, total = map(json.loads, done.stdout.splitlines())
    assert nightly["notes"][-2:] == [
        f"{template}:4: cpu is 1024, set 256.",
        f"{template}:4: memory is 2048, set 512.",
    ]
    assert weekly["notes"] == []
    assert total["changes"] == 1
    assert f"{template} is not changed: set the sizes there, or let" in done.stderr
    assert "--write-sizes FILE writes" in done.stderr
    template.write_text(
        TEMPLATE.replace("Family: nightly", "Family: !Sub 'nightly-${Stage}'")
    )  # it has a row
    rows, total = account.rows("--apply", str(template))
    assert len(rows) == 2
    assert total["families"] == 2


TERRAFORM = """\
resource "aws_ecs_task_definition" "nightly" {
  family = "nightly" # one
  cpu    = 1024
  memory = "${var.memory}"
  container_definitions = jsonencode([{
    name = "batch"
    cpu = 10
  }])
}
resource "aws_ecs_task_definition" "weekly" {
  family = "weekly" // two
  cpu    = "512"
  memory = 2048
}
"""


def test_a_terraform_file_gets_a_hint_and_no_change(account: Account, tmp_path: Path) -> None:
    for name in ("nightly", "weekly"):
        account.runs(name, 25)
    file = tmp_path / "jobs.tf"
    file.write_text(TERRAFORM)
    rows, total = account.rows("--apply", str(file))
    assert rows["nightly"]["notes"] == [f"{file}:3: cpu is 1024, set 256."]
    assert rows["weekly"]["action"] == "none"
    assert rows["weekly"]["notes"] == []
    assert rows["weekly"]["reason"] == "its newest run has 1 vCPU, 2 GB, not the size of the file"
    assert total["changes"] == 1
    assert file.read_text() == TERRAFORM
    file.write_text(TERRAFORM.replace('"nightly" #', "var.family #"))
    said = account.resize("--apply", str(file)).stderr
    assert f"{file}:1: the family of aws_ecs_task_definition.nightly is computed." in said
    assert "--write-sizes FILE writes" in said
    file.write_text("# nothing")
    assert (
        "jobs.tf has no resource aws_ecs_task_definition"
        in account.resize("--apply", str(file)).stderr
    )


def test_ctrl_c_ends_after_the_family_in_work_and_prints_its_revision(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nightly", "weekly"):
        account.family(name)
        account.runs(name, 25)
    register = TaskDefinitions.register

    def interrupted(self: TaskDefinitions, definition: dict[str, object]) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return register(self, definition)

    monkeypatch.setattr(TaskDefinitions, "register", interrupted)
    done = account.resize("--register")
    assert done.returncode == 130, done.stderr
    assert done.stdout.splitlines()[-1] == "registered nightly:2"
    assert [account.described(name)[0]["revision"] for name in ("nightly", "weekly")] == [2, 1]


@pytest.mark.parametrize(
    "words", ["--update-schedules", "nightly --apply a.json", "--register --apply a.json"]
)
def test_a_mistake_is_a_sentence(account: Account, words: str) -> None:
    account.family("nightly")
    account.runs("nightly", 1)
    done = account.resize(*words.split())
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
