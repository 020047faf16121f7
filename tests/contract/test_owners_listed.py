"""The resources of stacks, listed once for many families, in place of a question about each."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tests.resize_account import BATCH, DEFINITIONS, Account
from tools.moto_server import OwnedResource, fake_aws

# Of each test, `make test` runs one case: the cases differ by a policy, an answer or a moment.
pytestmark = pytest.mark.diagonal(1)

DEFINITION = "AWS::ECS::TaskDefinition"
SCHEDULE = "AWS::Scheduler::Schedule"
FAMILIES = [f"job-{number:02}" for number in range(24)]
LISTS = {"ListStacks", "ListStackResources"}
BEFORE = 2 * len(FAMILIES)  # calls of a plan that asks about each family and its schedule


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """Families without a monitor, each with a pinned schedule of its name, and three stacks."""
    with fake_aws() as aws:
        made = Account(aws, tmp_path)
        for family in FAMILIES:
            made.family(family, containerDefinitions=[BATCH])
            made.schedule(family, f"{family}:1")
        for number in range(3):
            own(made, f"bucket-{number}", "AWS::S3::Bucket", stack=f"data-{number}")
        yield made


@pytest.fixture
def proxy(account: Account) -> Iterator[AwsProxy]:
    with AwsProxy(account.aws.url) as made:
        account.url = made.url
        yield made


def own(
    account: Account,
    physical_id: str,
    resource_type: str,
    stack: str = "jobs",
    status: str = "CREATE_COMPLETE",
) -> None:
    account.aws.own(
        OwnedResource(
            stack_name=stack,
            physical_resource_id=physical_id,
            resource_type=resource_type,
            resource_status=status,
        )
    )


def add(account: Account, *words: str) -> CompletedProcess[str]:
    environment = account.aws.environment() | {"AWS_ENDPOINT_URL": account.url}
    named = ("add-monitor", "job-*", "--image", "team/task-profiler:1")
    return run_here(environment, "taskdef", *named, *words)


def calls(proxy: AwsProxy) -> Counter[str]:
    return Counter(name for name in proxy.operations if "Stack" in name)


def test_a_plan_of_many_families_asks_for_few_stacks_once(
    account: Account, proxy: AwsProxy
) -> None:
    last, other = FAMILIES[-1], FAMILIES[-2]
    own(account, f"{DEFINITIONS}/{last}:1", DEFINITION)
    own(account, other, SCHEDULE)
    own(account, FAMILIES[-3], "AWS::S3::Bucket")  # another resource with a schedule's name
    own(account, f"{DEFINITIONS}/{FAMILIES[-4]}:1", DEFINITION, status="DELETE_SKIPPED")
    said = " ".join(add(account).stdout.split())
    assert said.count("stack jobs of CloudFormation") == 2
    assert f"schedule {other} is pinned to {other}:1, and the stack jobs" in said
    made = calls(proxy)
    assert made.keys() >= LISTS
    assert made.total() < BEFORE / 2


@pytest.mark.slow
def test_an_act_asks_about_each_family_and_schedule_that_it_changes(
    account: Account, proxy: AwsProxy
) -> None:
    last, other = FAMILIES[-1], FAMILIES[-2]

    def take_over(operation: str, _body: bytes) -> None:
        if operation == "RegisterTaskDefinition":
            proxy.before = lambda _operation, _body: None
            own(account, f"{DEFINITIONS}/{last}:1", DEFINITION)
            own(account, other, SCHEDULE)

    proxy.before = take_over
    done = add(account, "--register", "--update-schedules", "--yes")
    assert account.newest(last) == [1]
    assert account.started_by_schedule(last) == f"{last}:1"
    assert account.started_by_schedule(other) == f"{other}:1"
    assert f"schedule {other} skipped: the stack jobs of CloudFormation owns it" in done.stdout
    changed = [family for family in FAMILIES if account.newest(family) == [2]]
    assert changed == FAMILIES[:-1]


@pytest.mark.parametrize("refused", sorted(LISTS))
def test_without_the_right_to_list_each_is_asked_about(
    account: Account, proxy: AwsProxy, refused: str
) -> None:
    last = FAMILIES[-1]
    own(account, f"{DEFINITIONS}/{last}:1", DEFINITION)
    proxy.refused = {refused}
    done = add(account)
    assert (done.returncode, done.stderr.count("authorized")) == (0, 0)
    assert "The stack jobs of CloudFormation owns it" in " ".join(done.stdout.split())
    made = calls(proxy)
    assert made[refused] == 1
    assert made["DescribeStackResources"] == BEFORE - 1  # the schedule of the stack's family


@pytest.mark.slow
def test_without_the_resources_of_one_stack_each_is_asked_about(
    account: Account, proxy: AwsProxy
) -> None:
    """A policy can allow the stacks of one team."""
    last, other = FAMILIES[-1], FAMILIES[-2]
    own(account, f"{DEFINITIONS}/{last}:1", DEFINITION, stack="theirs")
    own(account, f"{DEFINITIONS}/{other}:1", DEFINITION)

    def refuse(operation: str, body: bytes) -> None:
        is_of_theirs = operation == "ListStackResources" and b"theirs" in body
        proxy.refused = {operation} if is_of_theirs else set()

    proxy.before = refuse
    done = add(account, "--register", "--yes")
    assert done.returncode == 0, done.stderr
    assert "The stack theirs of CloudFormation owns it" in " ".join(done.stdout.split())
    changed = [family for family in FAMILIES if account.newest(family) == [2]]
    assert changed == FAMILIES[:-2]


@pytest.mark.parametrize(
    "state",
    [
        "UPDATE_IN_PROGRESS",
        "UPDATE_ROLLBACK_IN_PROGRESS",
        "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "ROLLBACK_FAILED",
        "DELETE_FAILED",
        "IMPORT_COMPLETE",
    ],
)
def test_a_stack_owns_its_resources_in_whatever_state_it_is(
    account: Account, proxy: AwsProxy, state: str
) -> None:
    """Such as the nested stack of another one, which is being updated."""
    last, other = FAMILIES[-1], FAMILIES[-2]
    stack = "app-NestedJobsStack-1A2B3C"
    own(account, f"{DEFINITIONS}/{last}:1", DEFINITION, stack, "UPDATE_IN_PROGRESS")
    own(account, other, SCHEDULE, stack)
    account.aws.set_stack_state(stack, state)
    said = " ".join(add(account).stdout.split())
    assert said.count(f"stack {stack} of CloudFormation") == 2
    assert calls(proxy).keys() >= LISTS


@pytest.mark.slow
def test_many_stacks_are_not_listed_for_few_families(account: Account, proxy: AwsProxy) -> None:
    for number in range(300):
        own(account, f"queue-{number}", "AWS::SQS::Queue", stack=f"queues-{number}")
    assert add(account).returncode == 0
    made = calls(proxy)
    assert made["DescribeStackResources"] == BEFORE
    assert made["ListStackResources"] == 0
    assert made["ListStacks"] <= 3


def test_stacks_that_are_deleted_or_only_reviewed_own_nothing(
    account: Account, proxy: AwsProxy
) -> None:
    """Nor do they take a call."""
    account.aws.set_stack_state("planned", "REVIEW_IN_PROGRESS")
    own(account, f"{DEFINITIONS}/{FAMILIES[-1]}:1", DEFINITION, stack="gone")
    account.aws.set_stack_state("gone", "DELETE_COMPLETE")
    said = add(account).stdout
    assert "of CloudFormation" not in said
    made = calls(proxy)
    assert made["ListStackResources"] == 3
    assert made.total() < BEFORE / 2


@pytest.mark.slow
def test_the_earlier_revisions_of_ours_are_looked_for_in_the_list(
    account: Account, proxy: AwsProxy
) -> None:
    """Of which each may be the one that a stack owns."""
    assert add(account, "--register").returncode == 0
    for family in FAMILIES:
        account.runs(family, 25, revision=2)
    own(account, f"{DEFINITIONS}/{FAMILIES[-1]}:1", DEFINITION)
    proxy.operations.clear()
    rows, _ = account.rows("--register", "--yes")
    reason = rows[FAMILIES[-1]]["reason"]
    assert reason.startswith("the stack jobs of CloudFormation owns it")
    changed = [family for family in FAMILIES if account.newest(family) == [3]]
    assert changed == FAMILIES[:-1]
    # Without the list, each was asked about twice: two revisions in the plan and in the act.
    assert calls(proxy).total() < 4 * len(FAMILIES) / 1.5
