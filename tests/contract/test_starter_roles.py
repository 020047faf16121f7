"""Schedules and rules that are moved to a revision which their role may not start would start
nothing from then on.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy
from tests.batch_jobs import arn
from tests.fake_batch import FakeBatch
from tests.job_account import JobAccount
from tests.resize_account import ACCOUNT, BATCH, DEFINITIONS, Account
from tests.role_policies import starter_role
from tools.moto_server import create_schedule_long_ago, fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

ACT = ("--register", "--update-schedules")
CONDITION = {"Condition": {"ArnEquals": {"ecs:cluster": "*"}}}
OTHER = "arn:aws:ecs:us-east-1:123456789012:task-definition/other:*"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """A family with a schedule and a rule on its revision, each with a role of its own."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        made.oversized("nightly")
        made.schedule("night", "nightly:1")
        made.rule("often", "nightly:1")
        yield made


@pytest.mark.parametrize(
    ("allowed", "more", "is_moved"),
    [
        ((f"{DEFINITIONS}/nightly:1",), {}, False),
        ((f"{DEFINITIONS}/nightly:1",), CONDITION, False),
        ((f"{DEFINITIONS}/nightly:1", OTHER), {"Action": ["ecs:*"]}, False),
        ((f"{DEFINITIONS}/nightly:?",), {}, True),
        ((f"{DEFINITIONS}/nightly:*",), {}, True),
        ((f"{DEFINITIONS}/nightly:*",), CONDITION, True),
        (("*",), {"Action": "*"}, True),
        # It does not say what starts the present revision, either.
        ((OTHER,), {}, True),
    ],
)
def test_a_target_whose_role_allows_its_present_revision_alone_stays(
    account: Account, allowed: tuple[str, ...], more: dict[str, Any], *, is_moved: bool
) -> None:
    """The rule is the control: its role allows all revisions."""
    iam = account.aws.client("iam")
    starter_role(iam, "schedules", *allowed, **more)
    starter_role(iam, "rules", f"{DEFINITIONS}/*")
    done = account.resize(*ACT)
    assert done.returncode == 0, done.stderr
    assert account.newest("nightly") == [2]
    assert account.started_by_rule("often") == "nightly:2"
    assert account.started_by_schedule("night") == f"nightly:{2 if is_moved else 1}"
    said = (
        "schedule night skipped: its role schedules allows nightly:1 and not nightly:2: allow "
        f"ecs:RunTask on {DEFINITIONS}/nightly:*"
    )
    assert (said in done.stdout) is not is_moved
    assert ("1 schedule skipped" in done.stderr) is not is_moved


def test_a_role_of_another_account_is_not_the_one_of_its_name_here(account: Account) -> None:
    starter_role(account.aws.client("iam"), "schedules", f"{DEFINITIONS}/nightly:1")
    scheduler = account.aws.client("scheduler")
    present = scheduler.get_schedule(Name="night")
    changed = ("Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")
    request = {key: present[key] for key in changed}
    request["Target"]["RoleArn"] = "arn:aws:iam::999999999999:role/schedules"
    scheduler.update_schedule(**request)
    done = account.resize(*ACT)
    assert done.returncode == 0, done.stderr
    assert account.started_by_schedule("night") == "nightly:2"


@pytest.mark.parametrize(("pattern", "is_registered"), [("1", False), ("*", True), ("?", True)])
@pytest.mark.parametrize("command", ["resize", "add-monitor"])
def test_no_revision_is_registered_that_an_unpinned_schedule_may_not_start(
    account: Account, command: str, pattern: str, *, is_registered: bool
) -> None:
    """It starts the newest one, whether it is moved or not, and the plan says it, too. The
    control's schedules are disabled and over.
    """
    iam = account.aws.client("iam")
    account.oversized("other", "control")
    if command == "add-monitor":
        for name in ("other", "control"):
            account.family(name, containerDefinitions=[BATCH])
    number = account.newest("other")[0]
    allowed = pattern.replace("1", str(number))
    starter_role(iam, "schedules", f"{DEFINITIONS}/other:{allowed}", f"{DEFINITIONS}/control:1")
    account.schedule("day", "other")
    account.schedule("off", "control", State="DISABLED")
    account.schedule("past", "control", expression="at(2026-02-01T00:00:00)")
    create_schedule_long_ago("past", "us-east-1")
    words: tuple[str, ...] = ("resize", "other", "control", "--from", str(account.file))
    if command == "add-monitor":
        words = ("add-monitor", "other", "control", "--image", "team/task-profiler:1")
    said = (
        "With a new revision, the schedule day would start nothing: its role schedules "
        f"allows other:{number} and not other:{number + 1}: allow ecs:RunTask on "
        f"{DEFINITIONS}/other:*."
    )
    planned = account.command("taskdef", *words)
    assert planned.returncode == 0, planned.stderr
    assert (said in " ".join(planned.stdout.split())) is not is_registered
    done = account.command("taskdef", *words, "--register")
    assert done.returncode == (0 if is_registered else 1), done.stderr
    assert account.newest("other", "control") == [number + is_registered, number + 1]
    assert (f"other: {said}" in done.stderr) is not is_registered


@pytest.mark.parametrize(("pattern", "is_registered"), [("1", False), ("*", True)])
def test_a_state_machines_role_counts_likewise(
    account: Account, pattern: str, *, is_registered: bool
) -> None:
    """Of a state that names no revision; the control's names one."""
    account.oversized("other", "control")
    starter_role(
        account.aws.client("iam"),
        "machines",
        f"{DEFINITIONS}/other:{pattern}",
        f"{DEFINITIONS}/control:1",
    )
    account.state_machine("free", {"TaskDefinition": "other"})
    account.state_machine("pinned", {"TaskDefinition": "control:1"})
    words = ("resize", "other", "control", "--from", str(account.file), "--register")
    done = account.command("taskdef", *words)
    assert account.newest("other", "control") == [1 + is_registered, 2]
    said = "the state 'Run' of the state machine free would start nothing: its role machines allows"
    assert (said in done.stderr) is not is_registered
    assert done.returncode == (not is_registered)


def test_a_role_that_may_not_be_read_keeps_no_revision_from_an_unpinned_schedule(
    account: Account,
) -> None:
    """It is said once: most roles allow all revisions."""
    account.oversized("other")
    account.schedule("day", "other")
    account.schedule("noon", "other")
    starter_role(account.aws.client("iam"), "schedules", f"{DEFINITIONS}/*")
    with AwsProxy(account.aws.url) as proxy:

        def refuse(_operation: str, body: bytes) -> None:
            proxy.refused = {"POST /"} if b"Action=ListRolePolicies" in body else set()

        proxy.before = refuse
        account.url = proxy.url
        done = account.command(
            "taskdef", "resize", "other", "--from", str(account.file), "--register"
        )
        asked = [body for _, body in proxy.bodies if b"Action=ListRolePolicies" in body]
    assert done.returncode == 0, done.stderr
    assert account.newest("other") == [2]
    assert done.stderr.count("It is unknown whether schedules may start a new revision") == 1
    assert len(asked) == 1


@pytest.mark.parametrize("gone", ["policy", "version"])
def test_a_policy_that_changes_while_it_is_read_makes_no_role_a_missing_one(
    account: Account, gone: str
) -> None:
    """Somebody deletes one of two policies, or its default version, after it was listed. What
    remains allows the present revision alone.
    """
    iam = account.aws.client("iam")
    starter_role(iam, "schedules", f"{DEFINITIONS}/nightly:1")
    reads = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [reads]})
    made = iam.create_policy(PolicyName="more", PolicyDocument=document)["Policy"]
    iam.attach_role_policy(RoleName="schedules", PolicyArn=made["Arn"])
    awaited = {"policy": b"Action=GetPolicy&", "version": b"Action=GetPolicyVersion&"}[gone]
    with AwsProxy(account.aws.url) as proxy:

        def change(_operation: str, body: bytes) -> None:
            if awaited not in body or b"more" not in body or proxy.denied:
                return
            proxy.denied.add("changed")
            if gone == "policy":
                iam.detach_role_policy(RoleName="schedules", PolicyArn=made["Arn"])
                iam.delete_policy(PolicyArn=made["Arn"])
                return
            iam.create_policy_version(
                PolicyArn=made["Arn"], PolicyDocument=document, SetAsDefault=True
            )
            iam.delete_policy_version(PolicyArn=made["Arn"], VersionId="v1")

        proxy.before = change
        account.url = proxy.url
        done = account.resize(*ACT)
        assert proxy.denied
    assert done.returncode == 0, done.stderr
    assert account.started_by_schedule("night") == "nightly:1"
    assert "its role schedules allows nightly:1 and not nightly:2" in done.stdout


def test_a_statement_that_denies_the_new_revision_counts(account: Account) -> None:
    iam = account.aws.client("iam")
    more = {"Effect": "Deny", "Resource": f"{DEFINITIONS}/nightly:2"}
    starter_role(iam, "schedules", **more)
    starter_role(iam, "rules", f"{DEFINITIONS}/nightly:*")
    allow = starter_role(iam, "allows", "*")
    assert allow
    policy = iam.list_attached_role_policies(RoleName="allows")["AttachedPolicies"][0]
    iam.attach_role_policy(RoleName="schedules", PolicyArn=policy["PolicyArn"])
    assert account.resize(*ACT).returncode == 0
    assert account.started_by_schedule("night") == "nightly:1"
    assert account.started_by_rule("often") == "nightly:2"


def test_a_monitor_moves_no_target_either(account: Account) -> None:
    iam = account.aws.client("iam")
    account.family("plain", containerDefinitions=[BATCH])
    account.schedule("morning", "plain:1")
    starter_role(iam, "schedules", f"{DEFINITIONS}/plain:1")
    words = ("taskdef", "add-monitor", "plain", "--image", "team/task-profiler:1", *ACT)
    done = account.command(*words)
    assert done.returncode == 0, done.stderr
    assert account.newest("plain") == [2]
    assert account.started_by_schedule("morning") == "plain:1"
    iam.detach_role_policy(
        RoleName="schedules", PolicyArn="arn:aws:iam::123456789012:policy/schedules"
    )
    assert account.command(*words).returncode == 0
    assert account.started_by_schedule("morning") == "plain:2"


def test_without_the_right_to_read_the_role_no_target_is_moved(account: Account) -> None:
    """A role that was deleted decides nothing: its schedule starts nothing as it is."""
    starter_role(account.aws.client("iam"), "schedules", f"{DEFINITIONS}/*")
    with AwsProxy(account.aws.url) as proxy:

        def refuse(_operation: str, body: bytes) -> None:
            is_read = b"Action=ListRolePolicies" in body and b"schedules" in body
            proxy.refused = {"POST /"} if is_read else set()

        proxy.before = refuse
        account.url = proxy.url
        done = account.resize(*ACT)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert "The schedule night was not moved: its role schedules could not be read" in said
    assert account.started_by_schedule("night") == "nightly:1"
    assert account.started_by_rule("often") == "nightly:2"


def test_a_role_that_submits_one_revision_of_a_job_keeps_its_schedule(tmp_path: Path) -> None:
    with fake_aws() as aws, FakeBatch() as batch:
        account = JobAccount(aws, batch, tmp_path)
        account.oversized("orders")
        account.schedule("night", "orders:1")
        account.rule("often", "orders:1")
        iam = aws.client("iam")
        action = {"action": "batch:SubmitJob"}
        starter_role(iam, "schedules", arn("job-definition", "orders:1"), **action)
        starter_role(iam, "rules", arn("job-definition", "orders:*"), **action)
        done = account.resize(*ACT)
        assert done.returncode == 0, done.stderr
        assert account.submitted_by_schedule("night")["JobDefinition"] == "orders:1"
        moved = account.submitted_by_rule("often")["JobDefinition"]
        assert moved == "orders:2"
    assert f"allow batch:SubmitJob on {arn('job-definition', 'orders:*')}" in done.stdout


OTHER_CLUSTER = {"Condition": {"ArnEquals": {"ecs:cluster": "arn:aws:ecs:*:*:cluster/other"}}}
THIS_CLUSTER = {"Condition": {"ArnLike": {"ecs:cluster": "arn:aws:ecs:*:*:cluster/jobs"}}}
BY_TAG = {"Condition": {"StringEquals": {"aws:PrincipalTag/team": "etl"}}}
RUN = {"Effect": "Allow", "Action": "ecs:RunTask"}
PRESENT, LATER = f"{DEFINITIONS}/nightly:1", f"{DEFINITIONS}/nightly:*"


@pytest.mark.parametrize(
    ("statements", "is_moved"),
    [
        # A condition that holds, or does not, for this schedule.
        ([{**RUN, "Resource": LATER, **THIS_CLUSTER}], True),
        ([{**RUN, "Resource": PRESENT}, {**RUN, "Resource": LATER, **THIS_CLUSTER}], True),
        ([{**RUN, "Resource": PRESENT}, {**RUN, "Resource": LATER, **OTHER_CLUSTER}], False),
        ([{**RUN, "Resource": LATER}, {**RUN, **OTHER_CLUSTER, "Effect": "Deny", "Resource": "*"}], True),
        # One that nobody knows here holds for both revisions, or for neither.
        ([{**RUN, "Resource": LATER, **BY_TAG}], True),
        ([{**RUN, "Resource": LATER}, {**RUN, **BY_TAG, "Effect": "Deny", "Resource": "*"}], True),
        # … or decides about the new one alone.
        ([{**RUN, "Resource": PRESENT}, {**RUN, "Resource": LATER, **BY_TAG}], False),
        ([{**RUN, "Resource": PRESENT, **THIS_CLUSTER}, {**RUN, "Resource": LATER, **BY_TAG}], False),
        (
            [
                {**RUN, "Resource": LATER},
                {**RUN, **BY_TAG, "Effect": "Deny", "NotResource": PRESENT},
            ],
            False,
        ),
    ],
)  # fmt: skip
def test_a_conditional_statement_counts_as_it_does_for_the_present_revision(
    account: Account, statements: list[dict[str, Any]], *, is_moved: bool
) -> None:
    """The rule is the control."""
    iam = account.aws.client("iam")
    starter_role(iam, "schedules", OTHER)
    starter_role(iam, "rules", f"{DEFINITIONS}/*")
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    iam.put_role_policy(RoleName="schedules", PolicyName="run", PolicyDocument=document)
    done = account.resize(*ACT)
    assert done.returncode == 0, done.stderr
    assert account.started_by_rule("often") == "nightly:2"
    assert account.started_by_schedule("night") == f"nightly:{2 if is_moved else 1}"
    assert ("allow nightly:1 and not nightly:2" in done.stdout.replace("allows", "allow")) is (
        not is_moved
    )


@pytest.mark.parametrize(("allowed", "is_moved"), [(PRESENT, False), (LATER, True)])
def test_the_role_of_a_rule_counts_for_a_target_without_its_own(
    account: Account, allowed: str, *, is_moved: bool
) -> None:
    iam = account.aws.client("iam")
    events = account.aws.client("events")
    (target,) = events.list_targets_by_rule(Rule="often")["Targets"]
    del target["RoleArn"]
    events.put_rule(
        Name="often",
        ScheduleExpression="rate(1 day)",
        RoleArn="arn:aws:iam::123456789012:role/of-rule",
    )
    events.put_targets(Rule="often", Targets=[target])
    starter_role(iam, "of-rule", allowed)
    starter_role(iam, "schedules", f"{DEFINITIONS}/*")
    assert account.resize(*ACT).returncode == 0
    assert account.started_by_schedule("night") == "nightly:2"
    assert account.started_by_rule("often") == f"nightly:{2 if is_moved else 1}"


@pytest.mark.parametrize(
    ("resource", "is_moved"), [(PRESENT, False), (LATER, True), (f"{DEFINITIONS}/*", True)]
)
def test_a_boundary_that_allows_the_present_revision_alone_counts(
    account: Account, resource: str, *, is_moved: bool
) -> None:
    iam = account.aws.client("iam")
    starter_role(iam, "schedules", f"{DEFINITIONS}/*")
    starter_role(iam, "rules", f"{DEFINITIONS}/*")
    document = json.dumps({"Version": "2012-10-17", "Statement": [{**RUN, "Resource": resource}]})
    made = iam.create_policy(PolicyName="boundary", PolicyDocument=document)["Policy"]
    iam.put_role_permissions_boundary(RoleName="schedules", PermissionsBoundary=made["Arn"])
    assert account.resize(*ACT).returncode == 0
    assert account.started_by_rule("often") == "nightly:2"
    assert account.started_by_schedule("night") == f"nightly:{2 if is_moved else 1}"


@pytest.mark.parametrize(("withdrawn", "is_registered"), [(0, True), (2, False)])
def test_the_next_number_is_above_those_of_deregistered_revisions(
    account: Account, withdrawn: int, *, is_registered: bool
) -> None:
    """The role allows one digit. The newest active revision is the eighth, and two more were
    deregistered, or none. ECS gives no number again.
    """
    for _ in range(8 + withdrawn):
        account.family("other", containerDefinitions=[BATCH])
    for number in range(9, 9 + withdrawn):
        account.ecs.deregister_task_definition(taskDefinition=f"other:{number}")
    starter_role(account.aws.client("iam"), "schedules", f"{DEFINITIONS}/other:?")
    account.schedule("day", "other")
    words = ("add-monitor", "other", "--image", "team/task-profiler:1", "--register")
    done = account.command("taskdef", *words)
    assert account.newest("other") == [9 if is_registered else 8], done.stderr
    said = "its role schedules allows other:8 and not other:11"
    assert (said in done.stderr) is not is_registered


@pytest.mark.parametrize(("allowed", "is_said"), [(("1", "2"), True), (("*",), False)])
def test_a_size_that_is_put_back_has_a_number_that_a_role_may_not_start(
    account: Account, allowed: tuple[str, ...], *, is_said: bool
) -> None:
    """Somebody makes a schedule that the new size does not hold, while it is registered. The role
    of the other one lists the plan's two revisions.
    """
    account.oversized("other")
    resources = [f"{DEFINITIONS}/other:{one}" for one in allowed]
    starter_role(account.aws.client("iam"), "schedules", *resources)
    account.schedule("day", "other")
    override = '{"containerOverrides": [{"name": "batch", "memory": 1800}]}'
    with AwsProxy(account.aws.url) as proxy:
        made: list[str] = []

        def change(operation: str, _body: bytes) -> None:
            if operation == "RegisterTaskDefinition" and not made:
                made.append(operation)
                account.schedule("newer", "other:1", override)
                scheduler = account.aws.client("scheduler")
                names = ("ScheduleExpression", "FlexibleTimeWindow", "Target")
                present = scheduler.get_schedule(Name="day")
                present["Target"]["Input"] = override
                scheduler.update_schedule(Name="day", **{name: present[name] for name in names})

        proxy.before = change
        account.url = proxy.url
        words = ("resize", "other", "--from", str(account.file), "--register")
        done = account.command("taskdef", *words)
    assert done.returncode == 1
    assert account.newest("other") == [3]
    assert "other:1 was registered again as other:3" in done.stderr
    said = (
        "With other:3 as the newest revision, the schedule day would start nothing: its role "
        "schedules allows other:1 and not other:3: allow ecs:RunTask on"
    )
    assert (said in done.stderr) is is_said


@pytest.mark.parametrize(("allowed", "is_said"), [(("1", "2"), True), (("*",), False)])
def test_a_number_that_somebody_else_took_meanwhile_is_said(
    account: Account, allowed: tuple[str, ...], *, is_said: bool
) -> None:
    """A second person registers an equal revision at the same moment."""
    account.oversized("other")
    resources = [f"{DEFINITIONS}/other:{one}" for one in allowed]
    starter_role(account.aws.client("iam"), "schedules", *resources)
    account.schedule("day", "other")
    with AwsProxy(account.aws.url) as proxy:
        made: list[str] = []

        def change(operation: str, body: bytes) -> None:
            if operation == "RegisterTaskDefinition" and not made:
                made.append(operation)
                account.ecs.register_task_definition(**json.loads(body))

        proxy.before = change
        account.url = proxy.url
        words = ("resize", "other", "--from", str(account.file), "--register")
        done = account.command("taskdef", *words)
    assert account.newest("other") == [3]
    said = "With other:3 as the newest revision, the schedule day would start nothing"
    assert (said in done.stderr) is is_said
    assert done.returncode == is_said


ROLES = f"arn:aws:iam::{ACCOUNT}:role"


@pytest.mark.parametrize("field", ["taskRoleArn", "executionRoleArn"])
@pytest.mark.parametrize("command", ["resize", "add-monitor"])
def test_no_target_is_moved_to_a_revision_whose_role_it_may_not_pass(
    account: Account, command: str, field: str
) -> None:
    """Somebody has deployed a revision with another role: what may start it is not said by the
    statements about RunTask alone. The rule on that revision is the control.
    """
    more: dict[str, Any] = {"containerDefinitions": [BATCH]} if command == "add-monitor" else {}
    for name in ("old", "new"):
        account.family("other", **{field: f"{ROLES}/{name}", **more})
    account.runs("other", 25, revision=2)
    account.schedule("day", "other:1")
    account.rule("hour", "other:2")
    words: tuple[str, ...] = ("resize", "other", "--from", str(account.file))
    if command == "add-monitor":
        words = ("add-monitor", "other", "--image", "team/task-profiler:1")
    done = account.command("taskdef", *words, *ACT)
    assert done.returncode == 0, done.stderr
    assert account.newest("other") == [3]
    assert account.described("other")[0][field] == f"{ROLES}/new"
    assert account.started_by_schedule("day") == "other:1"
    assert account.started_by_rule("hour") == "other:3"
    assert "schedule day is pinned to other:1, which differs by more than the" in " ".join(
        done.stdout.split()
    )


@pytest.mark.parametrize("field", ["jobRoleArn", "executionRoleArn"])
def test_no_caller_of_jobs_is_moved_to_a_revision_with_another_role(
    tmp_path: Path, field: str
) -> None:
    with fake_aws() as aws, FakeBatch() as batch:
        account = JobAccount(aws, batch, tmp_path)
        account.batch.define("orders")
        properties = account.newest("orders")["containerProperties"]
        for name in ("old", "new"):
            changed = {**properties, field: f"{ROLES}/{name}"}
            account.batch.define(
                "orders", containerProperties=changed, platformCapabilities=["FARGATE"]
            )
        account.runs("orders", 25, revision=3)
        account.schedule("night", "orders:2")
        account.rule("often", "orders:3")
        done = account.resize(*ACT)
        assert done.returncode == 0, done.stderr
        assert account.newest("orders")["containerProperties"][field] == f"{ROLES}/new"
        assert account.submitted_by_schedule("night")["JobDefinition"] == "orders:2"
        assert account.submitted_by_rule("often")["JobDefinition"] == "orders:4"
    assert "schedule night is pinned to orders:2, which differs by more" in done.stdout


@pytest.mark.parametrize("command", ["resize", "add-monitor"])
def test_a_plan_says_nothing_of_roles_that_it_may_not_read(account: Account, command: str) -> None:
    """Nothing is promised but what is planned; ``--register`` asks for the right."""
    account.oversized("other")
    words: tuple[str, ...] = ("resize", "other", "--from", str(account.file))
    if command == "add-monitor":
        account.family("other", containerDefinitions=[BATCH])
        words = ("add-monitor", "other", "--image", "team/task-profiler:1")
    account.schedule("day", "other")
    starter_role(account.aws.client("iam"), "schedules", f"{DEFINITIONS}/other:*")
    with AwsProxy(account.aws.url) as proxy:

        def refuse(_operation: str, body: bytes) -> None:
            is_of_starter = b"RoleName=schedules" in body
            proxy.refused = {"POST /"} if is_of_starter else set()

        proxy.before = refuse
        account.url = proxy.url
        planned = account.command("taskdef", *words)
        done = account.command("taskdef", *words, "--register")
    said = "It is unknown whether schedules may start a new revision"
    assert (planned.returncode, done.returncode) == (0, 0), planned.stderr
    assert said not in planned.stdout + planned.stderr
    assert said in " ".join(done.stderr.split())


def test_who_only_looks_at_monitors_reads_no_role_of_schedules(account: Account) -> None:
    """IAM allows an account few calls a second, and an account has hundreds of schedules."""
    account.family("other", containerDefinitions=[BATCH])
    account.schedule("day", "other")
    starter_role(account.aws.client("iam"), "schedules", f"{DEFINITIONS}/other:1")
    calls = {}
    with AwsProxy(account.aws.url) as proxy:
        account.url = proxy.url
        for words in (("setup",), ("taskdef", "add-monitor", "other", "--image", "a/b:1")):
            seen = len(proxy.bodies)
            account.command(*words)
            calls[words[0]] = [
                one for _, one in proxy.bodies[seen:] if b"RoleName=schedules" in one
            ]
    assert calls["taskdef"]
    assert not calls["setup"]
