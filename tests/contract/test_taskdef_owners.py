"""``taskdef add-monitor`` and ``remove-monitor`` of families that a stack of CloudFormation owns."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.resize_account import BATCH, DEFINITIONS, MONITOR, Account
from tools.moto_server import OwnedResource, fake_aws

DEFINITION = "AWS::ECS::TaskDefinition"
SCHEDULE = "AWS::Scheduler::Schedule"
ROLE = "AWS::IAM::Role"
IMAGE = "team/task-profiler:1"


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """An account with two families without a monitor, of which nobody owns the control."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        for family in ("control", "nightly"):
            made.family(family, containerDefinitions=[{**BATCH, "memory": 1900}])
        yield made


@pytest.fixture
def proxy(account: Account) -> Iterator[AwsProxy]:
    with AwsProxy(account.aws.url) as made:
        account.url = made.url
        yield made


def own(account: Account, physical_id: str, resource_type: str, stack: str = "jobs") -> None:
    account.aws.own(
        OwnedResource(
            stack_name=stack, physical_resource_id=physical_id, resource_type=resource_type
        )
    )


def taskdef(account: Account, *words: str) -> CompletedProcess[str]:
    environment = account.aws.environment() | {"AWS_ENDPOINT_URL": account.url}
    return run_here(environment, "taskdef", *words)


def add(account: Account, *words: str, image: str = IMAGE) -> CompletedProcess[str]:
    return taskdef(account, "add-monitor", "control", "nightly", "--image", image, *words)


def test_a_family_of_a_stack_is_left_to_it_in_the_plan_and_in_the_act(account: Account) -> None:
    own(account, f"{DEFINITIONS}/nightly:1", DEFINITION)
    plan = add(account)
    assert plan.returncode == 0
    assert "The stack jobs of CloudFormation owns it" in " ".join(plan.stdout.split())
    done = add(account, "--register")
    assert done.returncode == 0
    assert account.newest("nightly") == [1]
    assert account.newest("control") == [2]
    assert "1 registered, 1 refused" in done.stderr


def test_a_schedule_of_a_stack_is_named_in_the_plan_and_stays(account: Account) -> None:
    account.schedule("free", "control:1")
    account.schedule("stacks", "control:1")
    own(account, "stacks", SCHEDULE)
    plan = " ".join(add(account).stdout.split())
    assert "schedule free is pinned to control:1." in plan
    assert "schedule stacks is pinned to control:1, and the stack jobs of CloudFormation" in plan
    done = add(account, "--register", "--update-schedules")
    assert account.started_by_schedule("free") == "control:2"
    assert account.started_by_schedule("stacks") == "control:1"
    assert "schedule stacks skipped: the stack jobs of CloudFormation owns it" in done.stdout


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("image", [IMAGE, "team/watcher:1"])
def test_what_add_monitor_registered_does_not_hide_the_owner(account: Account, image: str) -> None:
    """The stack took the family over after its monitor was added, and again after an update."""
    assert add(account, "--register", image=image).returncode == 0
    done = add(account, "--register", "--report-stream", "monitor", image=image)
    assert done.returncode == 0, done.stderr
    assert account.newest("nightly") == [3]
    for family in ("control", "nightly"):
        account.runs(family, 25, revision=3)
    own(account, f"{DEFINITIONS}/nightly:1", DEFINITION)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["reason"].startswith("the stack jobs of CloudFormation owns it")
    assert account.newest("nightly") == [3]
    assert account.newest("control") == [4]


def test_an_owned_revision_with_another_image_owns_nothing(account: Account) -> None:
    account.family("nightly", containerDefinitions=[{**BATCH, "image": "etl:27"}, MONITOR])
    own(account, f"{DEFINITIONS}/nightly:1", DEFINITION)
    account.runs("nightly", 25, revision=2)
    rows, _ = account.rows("--register")
    assert rows["nightly"]["action"] == "resize"


def test_what_was_added_may_be_removed_but_not_the_stacks_own(account: Account) -> None:
    assert add(account, "--register").returncode == 0
    account.family("theirs", containerDefinitions=[BATCH, MONITOR])
    own(account, f"{DEFINITIONS}/nightly:1", DEFINITION)
    own(account, f"{DEFINITIONS}/theirs:1", DEFINITION)
    done = taskdef(account, "remove-monitor", "nightly", "theirs", "--register")
    assert done.returncode == 0
    assert account.newest("nightly") == [3]
    assert account.newest("theirs") == [1]
    assert "The stack jobs of CloudFormation owns it" in " ".join(done.stdout.split())


def test_without_the_right_to_ask_nothing_is_registered_and_the_right_is_named(
    account: Account, proxy: AwsProxy
) -> None:
    proxy.refused = {"DescribeStackResources"}
    plan = add(account)
    assert plan.returncode == 0
    assert "add monitor" in plan.stdout
    assert "allow cloudformation:DescribeStackResources" in " ".join(plan.stdout.split())
    done = add(account, "--register")
    assert done.returncode == 1
    assert "nightly: It is left alone. CloudFormation could not be asked" in done.stderr
    assert "RegisterTaskDefinition" not in proxy.operations
    proxy.refused = set()
    assert add(account, "--register").returncode == 0


def test_a_family_that_is_left_alone_gets_no_policy(account: Account, proxy: AwsProxy) -> None:
    """Nor does the role of a family whose owner is unknown get one without a new revision."""
    iam = account.aws.client("iam")
    containers = [{**BATCH, "memory": 1900}]
    role = iam.create_role(RoleName="jobs", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
    account.family("nightly", containerDefinitions=containers, taskRoleArn=role)
    proxy.refused = {"DescribeStackResources"}
    words = ("add-monitor", "nightly", "--image", IMAGE, "--attach-policy")
    for act in ("--yes", "--register"):
        done = taskdef(account, *words, act)
        assert done.returncode == 1, act
        assert "nightly: It is left alone. CloudFormation could not be asked" in done.stderr
        assert iam.list_role_policies(RoleName="jobs")["PolicyNames"] == []
    proxy.refused = set()
    assert taskdef(account, *words, "--yes").returncode == 0
    assert iam.list_role_policies(RoleName="jobs")["PolicyNames"] == ["task-profiler"]


def test_a_stack_that_deploys_between_the_plan_and_the_act_is_seen(
    account: Account, proxy: AwsProxy
) -> None:

    def deploy(operation: str, _body: bytes) -> None:
        if operation == "RegisterTaskDefinition":
            account.family("nightly", containerDefinitions=[{**BATCH, "image": "etl:27"}])
            own(account, f"{DEFINITIONS}/nightly:2", DEFINITION)

    proxy.before = deploy
    done = add(account, "--register")
    assert "nightly changed meanwhile" in done.stdout
    assert account.newest("nightly") == [2]
    assert account.newest("control") == [2]


def test_two_calls_at_once_add_one_monitor(account: Account, proxy: AwsProxy) -> None:
    other: list[CompletedProcess[Any]] = []

    def also(operation: str, _body: bytes) -> None:
        if operation == "DescribeStackResources" and not other:
            proxy.before = lambda _operation, _body: None
            other.append(add(account, "--register"))

    proxy.before = also
    done = add(account, "--register")
    assert (done.returncode, other[0].returncode) == (0, 0)
    assert account.newest("nightly") == [2]
    assert account.newest("control") == [2]


# Roles, whose stack cannot delete them with a policy that it does not know.

BOOTSTRAP = "cdk-hnb659fds-jobs-123456789012-us-east-1"


def with_roles(account: Account, **roles: str) -> None:
    """Families of these names with task roles."""
    iam = account.aws.client("iam")
    for family, role in roles.items():
        made = iam.create_role(Path="/team/", RoleName=role, AssumeRolePolicyDocument="{}")
        account.family(
            family,
            containerDefinitions=[{**BATCH, "memory": 1900}],
            taskRoleArn=made["Role"]["Arn"],
        )


def policies(account: Account, *roles: str) -> list[list[str]]:
    iam = account.aws.client("iam")
    return [iam.list_role_policies(RoleName=role)["PolicyNames"] for role in roles]


def taken_back(account: Account, proxy: AwsProxy) -> list[str]:
    """Three families, whose monitor was added. Somebody takes that of ``nightly`` back; of
    ``control``, an older revision is cleaned up, and of ``free`` one without a monitor goes.
    """
    account.family("free", containerDefinitions=[{**BATCH, "memory": 1900}])
    assert add(account, "--register").returncode == 0
    assert account.newest("nightly", "control") == [2, 2]
    account.family("control", containerDefinitions=[{**BATCH, "memory": 1800}])
    account.family("free", containerDefinitions=[{**BATCH, "memory": 1800}])
    for gone in ("nightly:2", "control:1", "free:2"):
        account.ecs.deregister_task_definition(taskDefinition=gone)
    proxy.operations.clear()
    return ["control", "free", "nightly"]


def test_a_monitor_that_somebody_took_back_by_deregistration_is_added_on_request_alone(
    account: Account, proxy: AwsProxy
) -> None:
    families = taken_back(account, proxy)
    words = ("add-monitor", "--family", "*", "--image", IMAGE)
    said = (
        "Somebody deregistered nightly:2, which had the monitor: name the family to add it again."
    )
    plan = taskdef(account, *words)
    assert plan.returncode == 0, plan.stderr
    assert said in " ".join(plan.stdout.split())
    assert proxy.operations.count("ListTaskDefinitions") == 2 * len(families)
    done = taskdef(account, *words, "--register")
    assert done.returncode == 0, done.stderr
    assert account.newest(*families) == [4, 3, 1]
    proxy.operations.clear()
    named = taskdef(account, "add-monitor", "nightly", "--image", IMAGE, "--register")
    assert named.returncode == 0, named.stderr
    assert account.newest("nightly") == [3]
    assert proxy.operations.count("ListTaskDefinitions") == 0


@pytest.mark.parametrize("refused", ["ListTaskDefinitions", "nightly:2"])
def test_without_the_right_to_list_revisions_it_is_said_once_that_nobody_knows(
    account: Account, proxy: AwsProxy, refused: str
) -> None:
    families = taken_back(account, proxy)

    def refuse(operation: str, body: bytes) -> None:
        is_of_it = refused == operation or f'"{refused}"'.encode() in body
        proxy.refused = {operation} if is_of_it else set()

    proxy.before = refuse
    words = ("add-monitor", "--family", "*", "--image", IMAGE)
    done = taskdef(account, *words)
    assert done.stderr.count("It is unknown whether somebody has taken a monitor back.") == 1
    assert "Somebody deregistered" not in done.stdout
    assert account.newest(*families) == [3, 1, 1]


@pytest.mark.parametrize("act", ["--yes", "--register"])
def test_a_role_of_a_stack_gets_no_policy_and_is_named(account: Account, act: str) -> None:
    """Also of a nested stack, and one of CDK's own; the control is attached."""
    nested = "NightlyTaskRole-0A1B"
    with_roles(account, control="free", nightly=nested, weekly=BOOTSTRAP)
    own(account, nested, ROLE, "app-NestedJobs-1A2B")
    own(account, BOOTSTRAP, ROLE, "CDKToolkit")
    words = ("control", "nightly", "weekly", "--image", IMAGE, "--attach-policy")
    plan = taskdef(account, "add-monitor", *words)
    done = taskdef(account, "add-monitor", *words, act)
    for said in (plan.stderr, done.stderr):
        for role, stack in ((nested, "app-NestedJobs-1A2B"), (BOOTSTRAP, "CDKToolkit")):
            sentence = f"The role {role} is left alone: the stack {stack} of CloudFormation owns it"
            assert said.count(sentence) == 1
    assert done.returncode == 0, done.stderr
    assert "1 policy attached, 2 roles left alone" in done.stderr
    assert policies(account, "free", nested, BOOTSTRAP) == [["task-profiler"], [], []]


def test_a_role_whose_owner_is_not_proven_is_left_alone(account: Account) -> None:
    """CloudFormation answers for one of two resources of the same name."""
    with_roles(account, nightly="jobs")
    own(account, "jobs", "AWS::IAM::InstanceProfile")
    words = ("nightly", "--image", IMAGE, "--attach-policy", "--yes")
    done = taskdef(account, "add-monitor", *words)
    assert "CloudFormation answers only for the AWS::IAM::InstanceProfile" in done.stderr
    assert policies(account, "jobs") == [[]]


def test_a_role_that_a_stack_imports_after_the_plan_is_left_to_it(
    account: Account, proxy: AwsProxy
) -> None:
    with_roles(account, control="free", nightly="imported")
    reads = 0

    def take_over(_operation: str, body: bytes) -> None:
        nonlocal reads
        reads += b"Action=ListRolePolicies" in body
        if reads == 3:  # of two roles in the plan, and of the first one in the act
            proxy.before = lambda _operation, _body: None
            own(account, "imported", ROLE)

    proxy.before = take_over
    done = add(account, "--attach-policy", "--yes")
    assert done.returncode == 0, done.stderr
    assert policies(account, "free", "imported") == [["task-profiler"], []]
    assert done.stderr.count("The role imported is left alone") == 1


def test_without_the_right_to_ask_no_role_changes(account: Account, proxy: AwsProxy) -> None:
    """What suffices needs no question."""
    with_roles(account, control="free", nightly="other")
    assert add(account, "--attach-policy", "--yes").returncode == 0
    iam = account.aws.client("iam")
    iam.delete_role_policy(RoleName="other", PolicyName="task-profiler")

    def refuse(_operation: str, body: bytes) -> None:
        is_of_role = b"PhysicalResourceId=other" in body or b"PhysicalResourceId=free" in body
        proxy.refused = {"DescribeStackResources"} if is_of_role else set()

    proxy.before = refuse
    done = add(account, "--attach-policy", "--yes")
    assert done.returncode == 1
    assert policies(account, "free", "other") == [["task-profiler"], []]
    assert done.stderr.count("CloudFormation could not be asked who owns other") == 1
    assert "who owns free" not in done.stderr
