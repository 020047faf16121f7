"""``taskdef resize --job-definition``: the plan, the revisions, their verdict, and what is left
alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import profiler
from profiler.cli.wiring import aws_options
from profiler.record.record_model import Container
from tests import batch_jobs
from tests.aws_proxy import AwsProxy
from tests.batch_jobs import arn
from tests.fake_batch import FakeBatch
from tests.job_account import KILLED, NEW, OLD, JobAccount, ec2, two_containers
from tests.resize_account import lists_a_stack_early
from tests.role_policies import iam_actions, starter_role
from tests.runs import slowdown
from tests.step_functions import publish
from tools.moto_server import fake_aws

EXIT = {"onReason": "OutOfMemoryError*", "action": "EXIT"}
TAG = "task-profiler:resized-from"
ROOT = Path(profiler.__file__).parent.parent


@pytest.fixture
def account(tmp_path: Path) -> Iterator[JobAccount]:
    with fake_aws() as aws, FakeBatch() as batch:
        yield JobAccount(aws, batch, tmp_path)


def flat(text: str) -> str:
    return " ".join(text.split())


def without_sizes(definition: dict[str, Any]) -> dict[str, Any]:
    """What the command may not change."""
    own = ("revision", "jobDefinitionArn", "status", "tags", "containerProperties", "ecsProperties")
    kept = {name: value for name, value in definition.items() if name not in own}
    tasks = definition.get("ecsProperties", {}).get("taskProperties")
    containers = tasks[0]["containers"] if tasks else [definition["containerProperties"]]
    sizes = ("resourceRequirements", "vcpus", "memory")
    kept["containers"] = [
        {name: value for name, value in one.items() if name not in sizes} for one in containers
    ]
    return kept


# The plan and the revisions.


def test_the_plan_has_what_each_definition_would_save_and_changes_nothing(
    account: JobAccount,
) -> None:
    account.oversized("nightly")
    account.batch.define("weekly")
    account.runs("weekly", 25, peak_mb=1500, p95=0.9)
    account.batch.define("new")
    account.runs("new", 3)
    account.batch.define("unknown")
    rows, total = account.rows()
    assert rows["nightly"] | {"notes": [], "evidence": {}} == {
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
        "evidence": {},
        "notes": [],
    }
    assert [rows[name]["action"] for name in ("weekly", "new", "unknown")] == ["none"] * 3
    assert rows["new"]["reason"] == "3 of 20 runs seen"
    assert rows["unknown"]["reason"] == "no run of revision 1 is known yet"
    assert (total["changes"], total["savingUsdPerMonth"]) == (1, 0.19)
    shown = account.resize("--job-definition", "nightly", "--job-definition", "new")
    assert "1 of 2 families, $0.19 a month of $0.25." in shown.stdout
    assert "Step Functions" in shown.stderr
    assert account.newest("nightly")["revision"] == 1


@pytest.mark.parametrize("tags", [{}, {"team": "data"}])
def test_a_revision_differs_only_in_size_and_keeps_its_tags(
    account: JobAccount, tags: dict[str, str]
) -> None:
    more: dict[str, Any] = {
        "tags": tags,
        "parameters": {"day": "1"},
        "retryStrategy": {"attempts": 2, "evaluateOnExit": [EXIT]},
        "timeout": {"attemptDurationSeconds": 3600},
        "propagateTags": True,
        "schedulingPriority": 3,
    }
    account.batch.define("nightly", **more)
    account.runs("nightly", 25)
    before = account.newest("nightly")
    done = account.resize("--register")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "task-profiler: 1 registered."
    assert "registered nightly:2" in done.stdout
    after = account.newest("nightly")
    assert account.sizes("nightly") == [NEW]
    assert after["tags"] == {**tags, TAG: "1/1024/2048"}
    assert without_sizes(after) == without_sizes(before)
    assert not [secret for secret in batch_jobs.SECRETS if secret in done.stdout + done.stderr]
    rows, _ = account.rows()
    assert rows["nightly"]["reason"] == "no run of revision 2 is known yet"


def test_deprecated_members_stay_members_on_instances(account: JobAccount) -> None:
    account.batch.define("old", **ec2(4, 8192))
    account.runs_on_instances("old", 25, (4, 8192), peak_mb=3000, p95=1.2)
    before = account.newest("old")
    rows, total = account.rows("--register")
    assert rows["old"]["action"] == "resize", rows
    assert rows["old"]["savingUsdPerMonth"] is None
    assert rows["old"]["to"]["vcpu"] == 2, "whole vCPUs"
    after = account.newest("old")
    assert after["containerProperties"]["vcpus"] == 2
    assert 3000 < after["containerProperties"]["memory"] < 4096
    assert "resourceRequirements" not in after["containerProperties"]
    assert without_sizes(after) == without_sizes(before)
    assert total["changes"] == 1


def test_requirements_on_instances_are_sized_and_a_gpu_stays(account: JobAccount) -> None:
    sizes = [("GPU", "1"), ("MEMORY", "8192"), ("VCPU", "4")]
    needs = [{"type": kind, "value": value} for kind, value in sizes]
    properties = {"image": "etl:26", "resourceRequirements": needs}
    account.batch.define("train", containerProperties=properties)
    account.runs_on_instances("train", 25, (4, 8192), peak_mb=3000, p95=3.6)
    account.rows("--register")
    gpu, memory, vcpu = account.newest("train")["containerProperties"]["resourceRequirements"]
    assert gpu == needs[0]
    assert vcpu == needs[2]
    assert 3000 < int(memory["value"]) < 4096


def test_the_sum_of_several_containers_is_a_size_of_fargate(account: JobAccount) -> None:
    account.batch.define("both", **two_containers((1.75, 3968), (0.25, 128)))
    account.runs("both", 25, size=(2, 4096), metrics={"memory_size_mb": 3968}, **of_etl())
    rows, _ = account.rows("--register")
    assert rows["both"]["to"] == {"vcpu": 0.5, "memoryMB": 1024}, rows
    assert account.sizes("both") == [(0.25, 896), (0.25, 128)]
    assert rows["both"]["notes"] == [
        "The container 'etl' changes from 1.75 vCPU, 3.9 GB to 0.25 vCPU, 896 MB; the others stay."
    ]


def of_etl() -> dict[str, Any]:
    return {"container": Container(name="etl")}


def test_of_several_containers_the_batch_keeps_what_it_needs_of_its_own_limit(
    account: JobAccount,
) -> None:
    account.batch.define("both", **two_containers((0.75, 3072), (0.25, 1024)))
    # 900 MB fit into a task of 2 GB, beside 1 GB.
    account.runs(
        "both", 25, size=(1, 4096), peak_mb=900, metrics={"memory_size_mb": 3072}, **of_etl()
    )
    rows, _ = account.rows("--register")
    assert rows["both"]["to"] == {"vcpu": 0.5, "memoryMB": 2048}, rows
    assert account.sizes("both") == [(0.25, 1024), (0.25, 1024)]


def test_a_kill_at_the_containers_own_limit_enlarges_it(account: JobAccount) -> None:
    account.batch.define("both", **two_containers((0.75, 1920), (0.25, 128)))
    known = {"memory_size_mb": 1920}
    account.runs("both", 1, metrics=known, peak_mb=1910, **of_etl(), **KILLED)
    account.runs("both", 3, metrics=known, **of_etl())
    account.rows("--register")
    (_, batch_mb), beside = account.sizes("both")
    assert batch_mb >= 1.2 * 1920
    assert beside == (0.25, 128)


SLOWER = {"slowdown_at_vcpu": slowdown(v0_25=(1.8, 2), v0_5=(1.1, 1.2)), "duration_ms": 780_000}


@pytest.mark.parametrize(
    ("seconds", "scheduled"), [(900, None), (None, 900), (3600, 900), (60_000, None), (900, 3600)]
)
def test_a_smaller_size_keeps_the_longest_run_within_its_timeout(
    account: JobAccount, seconds: int | None, scheduled: int | None
) -> None:
    """Of 13 minutes, up to 1.2 times as long with half a vCPU; a schedule sets its own timeout."""
    timeout: dict[str, Any] = {}
    if seconds is not None:
        timeout["timeout"] = {"attemptDurationSeconds": seconds}
    account.batch.define("nightly", **timeout)
    account.runs("nightly", 25, p95=0.4, metrics=SLOWER)
    if scheduled is not None:
        account.schedule("one", "nightly", Timeout={"AttemptDurationSeconds": scheduled})
    rows, _ = account.rows()
    if 900 not in (seconds, scheduled):
        assert rows["nightly"]["to"] == {"vcpu": 0.5, "memoryMB": 1024}
        return
    assert rows["nightly"]["action"] == "none"
    assert rows["nightly"]["reason"] == (
        "with 0.5 vCPU, 1 GB, a run would take up to 15m 36s, and AWS Batch stops an attempt after "
        "15m 00s"
    )


def test_more_memory_after_a_kill_costs_no_vcpu_that_the_timeout_needs(account: JobAccount) -> None:
    for name, seconds in (("tight", 900), ("wide", 3600)):
        account.batch.define(name, timeout={"attemptDurationSeconds": seconds})
        account.runs(name, 25, p95=0.4, metrics=SLOWER)
        account.runs(name, 1, **KILLED)
    rows, _ = account.rows()
    assert rows["tight"]["to"] == {"vcpu": 1, "memoryMB": 3072}
    assert rows["wide"]["to"] == {"vcpu": 0.5, "memoryMB": 3072}


@pytest.mark.parametrize(("vcpus", "is_taken"), [((1,), False), ((1, 16), True), ((16,), True)])
def test_no_size_is_taken_that_no_environment_of_the_queue_can_start(
    account: JobAccount, vcpus: tuple[int, ...], *, is_taken: bool
) -> None:
    """More than 8 GB need 2 vCPU on Fargate; a job that cannot start blocks its queue."""
    names = [f"fargate-{number}" for number in range(len(vcpus))]
    for name, most in zip(names, vcpus, strict=True):
        account.batch.add_environment(name, computeResources={"maxvCpus": most})
    account.batch.add_queue("nightly", *names)
    account.batch.define("large", 1, 8192)
    account.runs("large", 25, size=(1, 8192), peak_mb=7000, p95=0.9)
    account.runs("large", 1, size=(1, 8192), **KILLED)
    rows, _ = account.rows()
    if is_taken:
        assert rows["large"]["to"] == {"vcpu": 2, "memoryMB": 9216}
        return
    assert rows["large"]["action"] == "none"
    assert "the environments of a queue of its jobs allow 1 vCPU" in rows["large"]["reason"]


def test_several_containers_on_instances_leave_the_batch_a_vcpu(account: JobAccount) -> None:
    def container(name: str, vcpu: int, memory_mb: int, **more: Any) -> dict[str, Any]:
        sizes = {"VCPU": str(vcpu), "MEMORY": str(memory_mb)}
        asked = [{"type": kind, "value": value} for kind, value in sizes.items()]
        return {"name": name, "image": "etl:26", "resourceRequirements": asked, **more}

    containers = [container("etl", 4, 8192), container("router", 1, 512, essential=False)]
    account.batch.define("beside", ecsProperties={"taskProperties": [{"containers": containers}]})
    etl = Container(name="etl")
    account.runs_on_instances("beside", 25, (5, 8704), peak_mb=900, p95=0.3, container=etl)
    rows, _ = account.rows("--register")
    assert rows["beside"]["action"] == "resize", rows
    assert account.sizes("beside") == [(1, 1536 - 512), (1, 512)]


def test_a_definition_by_a_queue_is_of_its_jobs_and_of_its_schedules(account: JobAccount) -> None:
    account.oversized("nightly", "elsewhere", "planned", "gone", "task-profiler-proof")
    account.batch.submit("proof", "nightly", "task-profiler-proof")
    account.batch.add_queue("other", "spot")
    account.batch.submit("nightly-1", "nightly", "nightly")
    account.batch.submit("elsewhere-1", "other", "elsewhere")
    account.batch.submit("gone-1", "nightly", "gone")
    account.batch.client().deregister_job_definition(jobDefinition="gone:1")
    account.rule("day", "planned")
    rows, _ = account.rows("--queue", "nightly")
    assert set(rows) == {"nightly", "planned"}
    done = account.resize("--queue", "nothing")
    assert done.returncode == 1
    assert done.stderr == (
        "task-profiler: There is no job queue 'nothing': check the name, --region and --profile.\n"
    )


def test_enlarging_after_a_kill_needs_no_twenty_runs(account: JobAccount) -> None:
    account.batch.define("nightly")
    account.runs("nightly", 3, peak_mb=1500)
    account.runs("nightly", 1, peak_mb=2040, **KILLED)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "resize"
    assert account.sizes("nightly")[0][1] > 2048


def test_a_job_on_instances_gets_no_more_than_an_instance_has(account: JobAccount) -> None:
    for name, seen_mb in (("room", 15_900), ("small", 8_100)):
        account.batch.define(name, **ec2(4, 7600))
        size = (4, 7600)
        account.runs_on_instances(name, 3, size, seen_mb, peak_mb=5000)
        account.runs_on_instances(name, 1, size, seen_mb, peak_mb=7590, **KILLED)
    rows, _ = account.rows("--register")
    assert rows["room"]["action"] == "resize"
    assert account.sizes("room")[0][1] > 7600
    assert rows["small"]["action"] == "none"
    assert "no instance that its jobs have seen has room for" in rows["small"]["reason"]
    assert account.newest("small")["revision"] == 1


def test_a_kill_that_batch_repeats_at_the_same_size_is_named(account: JobAccount) -> None:
    retries: dict[str, dict[str, Any]] = {
        "repeats": {"attempts": 3},
        "late": {"attempts": 3, "evaluateOnExit": [{"onExitCode": "1*", "action": "RETRY"}, EXIT]},
        "ends": {"attempts": 3, "evaluateOnExit": [EXIT]},
        "host": {
            "attempts": 3,
            "evaluateOnExit": [
                {"onStatusReason": "Host EC2*", "action": "RETRY"},
                {"onReason": "*", "action": "EXIT"},
            ],
        },
        "once": {"attempts": 1},
    }
    for name, retry in retries.items():
        account.batch.define(name, retryStrategy=retry)
        account.runs(name, 3)
        account.runs(name, 1, **KILLED)
    rows, _ = account.rows()
    named = [
        name
        for name, row in rows.items()
        if any("OutOfMemoryError*" in one for one in row["notes"])
    ]
    assert sorted(named) == ["late", "repeats"]


@pytest.mark.parametrize("is_done", [True, False])
def test_a_registration_without_an_answer_is_looked_for(
    account: JobAccount,
    monkeypatch: pytest.MonkeyPatch,
    is_done: bool,  # noqa: FBT001  of pytest
) -> None:
    monkeypatch.setattr(aws_options, "_MAX_RETRIES", 0)
    account.batch.define("nightly")
    account.runs("nightly", 25)
    unanswered = account.batch.lost if is_done else account.batch.failing
    unanswered.add("RegisterJobDefinition")
    done = account.resize("--register")
    assert done.returncode == (0 if is_done else 1), done.stderr
    assert ("registered nightly:2" in done.stdout) is is_done
    assert ("No revision was registered" in done.stderr) is not is_done
    assert account.newest("nightly")["revision"] == (2 if is_done else 1)


# The verdict, and taking back.


def resized(account: JobAccount, **more: Any) -> None:
    """A definition that the command has made smaller."""
    account.batch.define("nightly", **more)
    account.runs("nightly", 25)
    assert account.resize("--register").returncode == 0


def test_a_size_that_went_well_is_kept(account: JobAccount) -> None:
    resized(account)
    account.runs("nightly", 10, revision=2, size=NEW)
    rows, _ = account.rows()
    assert rows["nightly"]["action"] == "keep"
    assert rows["nightly"]["verdict"]["savedUsdPerMonth"] > 0


def test_a_size_that_was_too_small_is_taken_back_by_deregistration(account: JobAccount) -> None:
    resized(account)
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    plan = account.resize()
    assert "nightly:2 is deregistered, so that nightly:1 is the newest again." in flat(plan.stdout)
    done = account.resize("--register")
    assert done.returncode == 0, done.stderr
    assert "deregistered nightly:2: nightly:1 is the newest again" in done.stdout
    newest = account.newest("nightly")
    assert (newest["revision"], newest["tags"]) == (1, {"task-profiler:reverted-from": "2/256/512"})
    assert account.sizes("nightly") == [OLD]
    # It is left alone, as long as the failed size is remembered.
    account.runs("nightly", 25)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "none"
    assert "a smaller size has failed" in rows["nightly"]["reason"]


def test_without_the_older_revision_or_beside_a_pin_the_old_size_is_a_new_revision(
    account: JobAccount,
) -> None:
    resized(account)
    account.batch.client().deregister_job_definition(jobDefinition="nightly:1")
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "revert"
    newest = account.newest("nightly")
    assert newest["revision"] == 3
    assert newest["tags"] == {"task-profiler:reverted-from": "2/256/512"}
    assert account.sizes("nightly") == [OLD]


def test_a_schedule_on_our_revision_moves_with_the_old_size(account: JobAccount) -> None:
    account.batch.define("nightly")
    account.runs("nightly", 25)
    account.schedule("night", "nightly:1")
    assert account.resize("--register", "--update-schedules").returncode == 0
    assert account.submitted_by_schedule("night")["JobDefinition"] == "nightly:2"
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    assert account.resize("--register", "--update-schedules").returncode == 0
    assert account.newest("nightly")["revision"] == 3
    assert account.submitted_by_schedule("night")["JobDefinition"] == "nightly:3"
    assert account.sizes("nightly") == [OLD]


def test_a_deployment_after_ours_is_not_lost_by_a_revert(account: JobAccount) -> None:
    resized(account)
    ours = account.newest("nightly")
    container = {**ours["containerProperties"], "image": "etl:27"}
    account.batch.define(
        "nightly",
        containerProperties=container,
        platformCapabilities=["FARGATE"],
        tags=ours["tags"],
    )
    account.runs("nightly", 1, revision=3, size=NEW, **KILLED)
    account.rows("--register")
    newest = account.newest("nightly")
    assert newest["revision"] == 4
    assert newest["containerProperties"]["image"] == "etl:27"
    assert account.sizes("nightly") == [OLD]


def test_a_definition_is_put_back_on_request_without_any_run(account: JobAccount) -> None:
    resized(account)
    done = account.resize("--job-definition", "nightly", "--revert", "--register")
    assert done.returncode == 0, done.stderr
    assert account.newest("nightly")["revision"] == 1
    again = account.resize("--job-definition", "nightly", "--revert", "--register")
    assert "It has the size before already." in flat(again.stdout)


def test_a_file_that_a_pipeline_puts_back_is_named_and_not_changed(account: JobAccount) -> None:
    resized(account)
    account.runs("nightly", 10, revision=2, size=NEW)
    account.batch.define("nightly")
    account.runs("nightly", 25, revision=3)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "none"
    assert "set the size at its source" in rows["nightly"]["reason"]
    assert account.newest("nightly")["revision"] == 3


@pytest.mark.parametrize(("allowed", "is_back"), [((2,), False), (("*",), True), ((1, 2), True)])
def test_no_revision_is_deregistered_after_which_a_schedule_may_not_submit_the_older(
    account: JobAccount, allowed: tuple[object, ...], *, is_back: bool
) -> None:
    """Its role allows ours alone, and it names no revision."""
    account.oversized("nightly")
    assert account.resize("--register").returncode == 0
    account.schedule("night", "nightly")
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    arns = (arn("job-definition", f"nightly:{one}") for one in allowed)
    starter_role(account.aws.client("iam"), "schedules", *arns, action="batch:SubmitJob")
    done = account.resize("--register")
    said = (
        "nightly: With nightly:1 as the newest revision, the schedule night would start nothing: "
        "its role schedules allows nightly:2 and not nightly:1: allow batch:SubmitJob on "
    )
    assert (said in done.stderr) is not is_back
    assert done.returncode == (not is_back)
    assert account.newest("nightly")["revision"] == (1 if is_back else 2)


def test_a_revision_that_a_person_deregisters_is_not_registered_again(account: JobAccount) -> None:
    resized(account)
    account.batch.client().deregister_job_definition(jobDefinition="nightly:2")
    account.runs("nightly", 5)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "none"
    assert "somebody deregistered nightly:2" in rows["nightly"]["reason"]
    assert account.newest("nightly")["revision"] == 1


def test_a_schedule_on_a_deregistered_definition_is_named_and_not_started_again(
    account: JobAccount,
) -> None:
    for _ in range(2):
        account.batch.define("nightly")
    account.runs("nightly", 25, revision=2)
    account.schedule("stopped", "nightly:1")
    account.schedule("alive", "nightly:2")
    account.batch.definition("nightly:1")["status"] = "INACTIVE"
    sentence = (
        "The schedule stopped is pinned to nightly:1, which was deregistered, so it starts "
        "nothing. Set an active revision there."
    )
    plan = account.resize()
    assert sentence in flat(plan.stdout)
    assert "1 of 2 schedules and rules is pinned" in plan.stderr
    done = account.resize("--register", "--update-schedules")
    assert sentence in flat(done.stdout)
    assert account.submitted_by_schedule("stopped")["JobDefinition"] == "nightly:1"
    assert account.submitted_by_schedule("alive")["JobDefinition"] == "nightly:3"


def test_a_size_on_instances_is_judged_and_taken_back(account: JobAccount) -> None:
    old = (4, 8192)
    account.batch.define("old", **ec2(*old))
    account.runs_on_instances("old", 25, old, peak_mb=3000, p95=1.2)
    account.rows("--register")
    assert account.newest("old")["tags"] == {TAG: "1/4096/8192"}
    new = (2, account.sizes("old")[0][1])
    account.runs_on_instances("old", 10, new, peak_mb=3000, p95=1.2, revision=2)
    rows, _ = account.rows()
    assert rows["old"]["action"] == "keep"
    assert rows["old"]["verdict"]["savedUsdPerMonth"] is None, "instances are paid for"
    account.runs_on_instances("old", 1, new, peak_mb=new[1], revision=2, **KILLED)
    rows, _ = account.rows("--register")
    assert rows["old"]["action"] == "revert"
    assert account.newest("old")["revision"] == 1


def test_the_old_sizes_of_several_containers_come_back_in_a_new_revision(
    account: JobAccount,
) -> None:
    account.batch.define("both", **two_containers((1.75, 3968), (0.25, 128)))
    account.runs("both", 25, size=(2, 4096), metrics={"memory_size_mb": 3968}, **of_etl())
    account.rows("--register")
    assert account.sizes("both") == [(0.25, 896), (0.25, 128)]
    account.batch.client().deregister_job_definition(jobDefinition="both:1")
    account.runs(
        "both",
        1,
        revision=2,
        size=(0.5, 1024),
        metrics={"memory_size_mb": 896},
        **of_etl(),
        **KILLED,
    )
    account.rows("--register")
    assert account.newest("both")["revision"] == 3
    assert account.sizes("both") == [(1.75, 3968), (0.25, 128)]


# Schedules and rules.


def test_the_first_families_schedules_are_counted_among_those_of_the_whole_plan(
    account: JobAccount,
) -> None:
    for name in ("nightly", "weekly"):
        account.oversized(name)
        account.schedule(name, f"{name}:1")
    assert "2 of 2 schedules and rules are pinned" in account.resize().stderr
    done = account.resize("--register", "--first", "1")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 schedules and rules is pinned" in done.stderr


def test_pinned_rules_and_schedules_are_named_and_moved(account: JobAccount) -> None:
    account.oversized("nightly")
    account.schedule("night", "nightly:1")
    account.rule("day", batch_jobs.arn("job-definition", "nightly:1"))
    account.schedule("free", "nightly")
    before = account.submitted_by_schedule("night")
    plan = account.resize()
    assert "The schedule night is pinned to nightly:1." in flat(plan.stdout)
    assert "2 of 3 schedules and rules are pinned" in plan.stderr
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert account.submitted_by_schedule("night") == {**before, "JobDefinition": "nightly:2"}
    moved = account.submitted_by_rule("day")
    assert moved == {
        "JobDefinition": batch_jobs.arn("job-definition", "nightly:2"),
        "JobName": "day",
    }
    assert account.submitted_by_schedule("free")["JobDefinition"] == "nightly"
    assert batch_jobs.SECRETS[2] not in plan.stdout + plan.stderr + done.stdout + done.stderr


def test_a_schedule_put_back_moves_again_only_if_its_definition_is_named(
    account: JobAccount,
) -> None:
    account.oversized("nightly")
    account.schedule("night", "nightly:1")
    assert account.resize("--register").returncode == 0
    plan = account.resize("--queue", "nightly", "--register", "--update-schedules")
    assert account.submitted_by_schedule("night")["JobDefinition"] == "nightly:1"
    command = "task-profiler taskdef resize --job-definition nightly"
    assert command in flat(plan.stdout)
    named = ("--job-definition", "nightly", "--register", "--update-schedules")
    assert account.resize(*named).returncode == 0
    assert account.submitted_by_schedule("night")["JobDefinition"] == "nightly:2"


def test_a_moved_schedule_keeps_each_value_of_its_input_as_it_was_written(
    account: JobAccount,
) -> None:
    """A number that no float holds was Infinity afterwards, which AWS does not read."""
    numbers = '{"a": 1e999, "b": 0.10, "c": 12345678901234567890123, "d": "ü"}'
    text = f'{{"JobName": "n", "JobQueue": "nightly", "JobDefinition": "%s", "Odd": {numbers}}}'
    account.oversized("nightly")
    account.schedule_input("night", text % "nightly:1")
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    moved = account.schedule_text("night")
    assert f'"Odd":{numbers}' in moved
    assert json.loads(moved)["JobDefinition"] == "nightly:2"


@pytest.mark.parametrize("odd", ["NaN", "-Infinity", '"\\ud800"'])
def test_an_input_that_is_no_json_of_aws_is_not_moved_and_named(
    account: JobAccount, odd: str
) -> None:
    text = f'{{"JobQueue": "nightly", "JobDefinition": "nightly:1", "Odd": {odd}}}'
    account.oversized("nightly")
    account.schedule_input("night", text)
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 1
    assert "The schedule night was not updated, because its input is not plain JSON" in flat(
        done.stdout + done.stderr
    )
    assert account.schedule_text("night") == text


def memory(value: object) -> dict[str, Any]:
    return {"ResourceRequirements": [{"Type": "MEMORY", "Value": value}]}


@pytest.mark.parametrize(
    "overrides",
    [
        {"ContainerOverrides": memory("8192")},
        {"ContainerOverrides": memory("<aws.scheduler.execution-id>")},
        {"EcsPropertiesOverride": {"TaskProperties": [{"Containers": [memory("512")]}]}},
    ],
)
def test_a_schedule_whose_overrides_do_not_fit_the_new_size_is_named(
    account: JobAccount, overrides: dict[str, Any]
) -> None:
    account.oversized("nightly", "control")
    account.schedule("night", "nightly", **overrides)
    rows, _ = account.rows("--register")
    assert "the schedule night" in rows["nightly"]["reason"], rows["nightly"]
    assert account.sizes("nightly")[0][1] == OLD[1]
    assert account.sizes("control") == [NEW]


@pytest.mark.parametrize(
    "overrides",
    [
        {"ContainerOverrides": memory("8192")},
        {"ContainerOverrides": {"ResourceRequirements.$": "$.sizes"}},
        {"EcsPropertiesOverride": {"TaskProperties": [{"Containers": [memory("512")]}]}},
    ],
)
def test_a_state_whose_overrides_do_not_fit_the_new_size_is_named(
    account: JobAccount, overrides: dict[str, Any]
) -> None:
    """One that overrides the command alone, or the size of the same name's task, is in nobody's
    way.
    """
    account.oversized("nightly", "control")
    account.state_machine("night", "nightly", **overrides)
    account.state_machine("day", "control", ContainerOverrides={"Command.$": "$.command"})
    rows, _ = account.rows("--register")
    assert "the state 'Run' of the state machine night" in rows["nightly"]["reason"]
    assert account.sizes("nightly")[0][1] == OLD[1]
    assert account.sizes("control") == [NEW]


def test_a_state_that_is_pinned_to_our_revision_keeps_it(account: JobAccount) -> None:
    """A size is then taken back by a new revision: the state would submit nothing without ours."""
    resized(account)
    account.state_machine("night", "nightly:2")
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 0, done.stderr
    assert "set the revision there by hand" in flat(done.stdout)
    assert account.newest("nightly")["revision"] == 3
    assert account.batch.definition("nightly:2")["status"] == "ACTIVE"
    assert account.sizes("nightly") == [OLD]


def test_a_revision_that_a_state_may_name_stays_if_states_cannot_be_read(
    account: JobAccount,
) -> None:
    resized(account)
    account.state_machine("night", "nightly:2")
    account.runs("nightly", 1, revision=2, size=NEW, **KILLED)
    with AwsProxy(account.aws.url) as proxy:
        proxy.refused = {"ListStateMachines"}
        account.url = proxy.url
        done = account.resize("--register")
    assert done.returncode == 0, done.stderr
    assert "It is unknown what state machines of Step Functions start" in done.stderr
    kept = "nightly:2 stays registered, because state machines that could not be read may start it."
    assert kept in flat(done.stdout)
    assert account.newest("nightly")["revision"] == 3
    assert account.batch.definition("nightly:2")["status"] == "ACTIVE"


def test_a_size_that_a_schedule_made_meanwhile_does_not_fit_is_put_back(
    account: JobAccount,
) -> None:
    account.oversized("nightly")
    account.schedule("night", "nightly:1")

    def change(operation: str, _asked: object) -> None:
        if operation == "RegisterJobDefinition" and not account.batch.requests(operation)[1:]:
            account.schedule("newer", "nightly", ContainerOverrides=memory("8192"))

    account.batch.before = change
    done = account.resize("--register", "--update-schedules")
    assert done.returncode == 1
    assert "so nightly:1 was registered again as nightly:3: call it again." in done.stderr
    assert account.sizes("nightly") == [OLD]
    assert account.newest("nightly")["tags"] == {"task-profiler:restored-over": "2"}
    assert account.submitted_by_schedule("night")["JobDefinition"] == "nightly:3"
    assert account.resize("--register", "--update-schedules").returncode == 0
    assert account.newest("nightly")["revision"] == 3


@pytest.mark.parametrize(
    "template",
    [
        "<sizes>",
        '{"ContainerOverrides": <sizes>}',
        '{"ContainerOverrides": {"ResourceRequirements": <sizes>}}',
        '{"ContainerOverrides": {"ResourceRequirements": [<sizes>]}}',
        '{"ContainerOverrides": {"ResourceRequirements": [{"Type": <sizes>, "Value": "8192"}]}}',
        '{"ContainerOverrides": {"Memory": <sizes>}}',
        '{"EcsPropertiesOverride": <sizes>}',
    ],
)
def test_a_rule_whose_event_can_override_sizes_leaves_the_size_alone(
    account: JobAccount, template: str
) -> None:
    account.oversized("nightly", "control")
    paths = {"sizes": "$.detail.sizes"}
    transformer = {"InputPathsMap": paths, "InputTemplate": template}
    account.rule("by-event", "nightly", InputTransformer=transformer)
    account.rule("plain", "control", Input='{"Parameters": {"day": "<b>today</b>"}}')
    rows, _ = account.rows("--register")
    assert "the rule by-event" in rows["nightly"]["reason"], rows["nightly"]
    assert account.sizes("nightly")[0][1] == OLD[1]
    assert account.sizes("control") == [NEW]


# What is left alone.


def test_what_has_no_size_of_its_own_is_left_alone_and_named(account: JobAccount) -> None:
    node = {"targetNodes": "0:", "container": {"image": "mpi"}}
    nodes = {"numNodes": 2, "mainNode": 0, "nodeRangeProperties": [node]}
    account.batch.define("mpi", type="multinode", nodeProperties=nodes)
    pod = {"podProperties": {"containers": [{"image": "etl"}]}}
    account.batch.define("pods", eksProperties=pod)
    account.batch.define("nf-star-align")
    account.batch.define("snakejob-def-map-1f0c3b52")
    account.oversized("control")
    rows, _ = account.rows("--register")
    assert {name for name, row in rows.items() if row["action"] != "none"} == {"control"}
    assert "several nodes" in rows["mpi"]["reason"]
    assert "EKS" in rows["pods"]["reason"]
    assert "recommend --format nextflow" in rows["nf-star-align"]["reason"]
    assert "recommend --format snakemake" in rows["snakejob-def-map-1f0c3b52"]["reason"]


def test_jobs_that_override_the_size_leave_the_definition_alone(account: JobAccount) -> None:
    for name, own, others in (("mostly", 10, 15), ("rarely", 25, 5)):
        account.batch.define(name)
        account.runs(name, own)
        account.runs(name, others, size=(2, 4096))
    rows, _ = account.rows("--register")
    assert rows["mostly"]["action"] == "none"
    assert rows["mostly"]["reason"].startswith("15 of 25 jobs had another size")
    assert rows["rarely"]["action"] == "resize"


def test_a_stack_owns_its_definition_and_what_was_registered_from_it(account: JobAccount) -> None:
    account.oversized("nightly", "control")
    account.own("nightly")
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "none"
    assert "the stack jobs of CloudFormation owns it" in rows["nightly"]["reason"]
    assert "0.25 vCPU, 512 MB" in rows["nightly"]["reason"]
    assert account.newest("nightly")["revision"] == 1
    assert account.sizes("control") == [NEW]


def test_the_tag_off_forbids_changes(account: JobAccount) -> None:
    account.batch.define("nightly", tags={"task-profiler:resize": "off"})
    account.runs("nightly", 25)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "none"
    assert account.newest("nightly")["revision"] == 1


def test_fifty_tags_are_too_many(account: JobAccount) -> None:
    account.batch.define("nightly", tags={f"t{number}": "1" for number in range(50)})
    account.runs("nightly", 25)
    rows, _ = account.rows("--register")
    assert "50 tags" in rows["nightly"]["reason"]
    assert account.newest("nightly")["revision"] == 1


def test_tags_that_go_to_jobs_leave_room_for_the_jobs_own(account: JobAccount) -> None:
    """Batch ends a job that has more than 50 tags, of its own and of its definition."""
    tags = {f"t{number}": "1" for number in range(45)}
    for name, is_propagated in (("goes", True), ("stays", False)):
        account.batch.define(name, tags=tags, propagateTags=is_propagated)
        account.runs(name, 25)
    rows, _ = account.rows("--register")
    assert "its 45 tags go to its jobs (propagateTags)" in rows["goes"]["reason"]
    assert account.newest("goes")["revision"] == 1
    assert account.sizes("stays") == [NEW]


@pytest.mark.parametrize(
    "words",
    [
        ("nightly", "--job-definition", "nightly"),
        ("--queue", "nightly", "--scheduled"),
        ("--queue", "nightly", "--revert"),
        ("--queue", "nightly", "--cluster", "jobs"),
    ],
)
def test_a_mistake_is_a_sentence(account: JobAccount, words: tuple[str, ...]) -> None:
    done = account.resize(*words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) <= 3


def test_an_unknown_name_is_said_with_a_similar_one(account: JobAccount) -> None:
    account.oversized("nightly")
    done = account.resize("--job-definition", "nightyl")
    assert done.returncode == 1
    assert "No job definition with an active revision is selected by 'nightyl'" in done.stderr
    assert "nightly" in done.stderr.replace("'nightyl'", "")


# The sizes as data.


def test_the_file_of_sizes_has_job_definitions_and_nothing_is_registered(
    account: JobAccount, tmp_path: Path
) -> None:
    account.oversized("nightly")
    account.batch.define("old", **ec2(4, 8192))
    account.runs_on_instances("old", 25, (4, 8192), peak_mb=3000, p95=1.2)
    account.batch.define("both", **two_containers((1.75, 3968), (0.25, 128)))
    account.runs("both", 25, size=(2, 4096), metrics={"memory_size_mb": 3968}, **of_etl())
    account.batch.define("nf-star-align")
    account.runs("nf-star-align", 25)
    account.own("nightly")
    file = tmp_path / "sizes.json"
    done = account.resize("--write-sizes", str(file))
    assert done.returncode == 0, done.stderr
    sizes = json.loads(file.read_text())
    assert list(sizes) == ["both", "nightly", "old"]
    assert sizes["nightly"] == {"cpu": 256, "memory": 512, "why": "Saves 75 %."}, "also of a stack"
    assert sizes["both"]["cpu"] == 512
    assert sizes["both"]["containers"] == {"etl": {"cpu": 256, "memory": 896}}
    assert sizes["old"]["cpu"] == 2048
    assert 3000 < sizes["old"]["memory"] < 4096
    assert not account.batch.requests("RegisterJobDefinition")
    before = file.read_text()
    again = account.resize("--write-sizes", str(file))
    assert "has this size, which is not deployed yet" in again.stderr
    assert file.read_text() == before


# The rights.


def test_the_policy_has_exactly_the_actions_that_sizing_jobs_needs(
    account: JobAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PassRole and the tags of a registration are no calls."""
    lists_a_stack_early(account.aws, monkeypatch)
    statements = json.loads((ROOT / "taskdef" / "iam" / "resize-jobs.json").read_text())
    allowed: set[str] = set()
    for one in statements["Statement"]:
        allowed |= {one["Action"]} if isinstance(one["Action"], str) else {*one["Action"]}
    account.oversized("nightly", "weekly")
    account.schedule("night", "nightly:1")
    account.rule("day", "nightly:1")
    iam = account.aws.client("iam")
    starter_role(iam, "schedules", arn("job-definition", "nightly:*"), action="batch:SubmitJob")
    account.state_machine("noon", "nightly")
    publish(account.aws.client("stepfunctions"), "noon", "live")
    account.batch.submit("weekly", "nightly", "weekly")
    account.batch.define("large", 1, 8192)
    account.runs("large", 25, size=(1, 8192), peak_mb=7900, **KILLED)
    account.batch.submit("large", "nightly", "large")
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        words = ("--queue", "nightly", "--register", "--update-schedules")
        assert account.resize(*words).returncode == 0
        account.runs("weekly", 1, revision=2, size=NEW, **KILLED)
        assert account.resize(*words).returncode == 0
        made = {*map(action_of, {*proxy.operations} - {"POST /"})} | iam_actions(proxy.bodies)
    made |= {f"batch:{operation}" for operation, _ in account.batch.calls}
    assert made == allowed - {"iam:PassRole"}


def action_of(operation: str) -> str:
    """The action of an operation; those of EventBridge Scheduler are requests."""
    if "/schedules" in operation:
        kinds = {"GET /schedules": "ListSchedules", "GET /schedules/night": "GetSchedule"}
        return f"scheduler:{kinds.get(operation, 'UpdateSchedule')}"
    if "StateMachine" in operation:
        return f"states:{operation}"
    service = "cloudformation" if "Stack" in operation else "events"
    return f"{service}:{operation}"
