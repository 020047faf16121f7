"""``task-profiler setup stack`` with one of its calls to AWS refused, throttled, or carried out
without an answer, each in turn: an update, a creation and a deletion.

What is half done is said, and the command, run again, does the rest.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from profiler.aws_account.doctor.deployment_checks import forwarder_finding
from profiler.aws_account.forwarder_stack import read_existing_stack, read_forwarder
from profiler.core.errors import TaskProfilerError
from tests.nth_calls import BY_ORGANIZATION, SAID, Failure, NthCallFails
from tests.setup_world import ACTS, VALUES, Act, World, deployed, forwarder_zip, removed, tried

# What may be left, by the words that say it.
LEFT: Final = (
    "keeps a change set",
    "CloudFormation may have made the change set",
    "CloudFormation may have begun",
    "CloudFormation goes on",
    "is left empty",
)


@pytest.fixture(scope="module")
def zip_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return forwarder_zip(tmp_path_factory.mktemp("forwarder"))


# What is throttled is as refused, with other words.
@pytest.mark.diagonal
@pytest.mark.parametrize(
    "failure", ["denied", "lost", pytest.param("throttled", marks=pytest.mark.slow)]
)
@ACTS
def test_one_failed_call_leaves_nothing_unsaid_and_the_next_run_does_the_rest(
    act: Act,
    parameters: Mapping[str, str] | None,
    failure: Failure,
    zip_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    whole = World(parameters)
    calls = NthCallFails(whole.open)
    assert tried(act, calls, zip_file) == (0, "")
    for nth, name in enumerate(calls.calls, 1):
        world = World(parameters)
        capfd.readouterr()
        failing = NthCallFails(world.open, nth, failure)
        code, error = tried(act, failing, zip_file)
        output = "".join(capfd.readouterr())
        said = error + output
        where = f"{nth} {name}: {said}"
        assert SAID[failure] in said, where
        assert code == 1 or world.state() == whole.state(), where
        status = (world.cloudformation.stack or {}).get("StackStatus")
        if world.cloudformation.pending or status == "REVIEW_IN_PROGRESS":
            assert any(words in said for words in LEFT), where
        assert tried(act, NthCallFails(world.open), zip_file) == (0, ""), where
        if "delete-subscription-filter --log-group-name /ecs/old --filter-name tp-groups" in said:
            world.filters["/ecs/old"] = {}
        world.cloudformation.pending = set()  # that were said
        assert world.state() == whole.state(), where


@pytest.mark.parametrize("also", ["", "delete_change_set", "delete_stack", "describe_stacks"])
@ACTS
def test_what_an_organization_denies_leaves_nothing_unsaid(
    act: Act,
    parameters: Mapping[str, str] | None,
    also: str,
    zip_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The policy denies one operation, or one and another, each time: also where a refusal is
    tidied up. Without the policy, the command does the rest.
    """
    whole = World(parameters)
    calls = NthCallFails(whole.open)
    assert tried(act, calls, zip_file) == (0, "")
    for name in sorted(set(calls.calls)):
        world = World(parameters)
        before = world.state()
        capfd.readouterr()
        denied = NthCallFails(world.open, denied=frozenset({name, also}))
        code, error = tried(act, denied, zip_file)
        said = error + "".join(capfd.readouterr())
        where = f"{name}, {also}: {code} {said}"
        assert "change the service control policy (the administrators of the" in said, where
        assert code == 1 or world.state() == whole.state(), where
        status = (world.cloudformation.stack or {}).get("StackStatus")
        if world.cloudformation.pending or status == "REVIEW_IN_PROGRESS":
            assert any(words in said for words in LEFT), where
        for secret in world.secrets:
            assert f"secret {secret}" in said, where
        is_subscribed = any(world.filters.values())
        if act is removed and is_subscribed:
            assert world.state() == before, where
        assert tried(act, NthCallFails(world.open), zip_file)[0] == 0, where


def test_a_stack_whose_resource_may_not_be_deleted_can_only_be_deleted(
    zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """CloudFormation keeps a stack that it could delete in part, and takes no update of it. The
    control may not even begin.
    """
    world = World(VALUES)
    world.cloudformation.undeletable = f"User is not authorized: {BY_ORGANIZATION}"
    code, error = tried(removed, NthCallFails(world.open), zip_file)
    capfd.readouterr()
    assert code == 1
    assert error == (
        f"The stack tp could not be deleted (DELETE_FAILED): Role: User is not authorized: "
        f"{BY_ORGANIZATION}. It forwards nothing now: remove the cause, and delete it again."
    )
    code, again = tried(deployed, NthCallFails(world.open), zip_file)
    assert "delete it (task-profiler setup stack --name tp --delete" in again
    world.cloudformation.undeletable = ""
    assert tried(removed, NthCallFails(world.open), zip_file) == (0, "")
    world = World(VALUES)
    denied = NthCallFails(world.open, denied=frozenset({"delete_stack"}))
    code, error = tried(removed, denied, zip_file)
    assert "subscribe again with task-profiler setup stack --name tp --yes" in error


@pytest.mark.parametrize("code", ["InvalidChangeSetStatus", "ChangeSetNotFound"])
def test_of_two_people_the_second_is_told_that_the_stack_has_changed(
    code: str, zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """CloudFormation calls a change set obsolete once another one of the stack was applied."""
    world = World(VALUES)
    world.cloudformation.overtaken = code
    refusal, error = tried(deployed, NthCallFails(world.open), zip_file)
    assert refusal == 1
    assert error == (
        "The stack tp is not changed, because somebody has changed it since this change was "
        "planned: run the command again."
    )
    assert not world.cloudformation.pending
    assert "subscribed" not in "".join(capfd.readouterr())
    world.cloudformation.overtaken = ""
    assert tried(deployed, NthCallFails(world.open), zip_file) == (0, "")


NESTED = "prod-Forwarder-1CL6V8VUPHS0P"


def with_a_nested_forwarder(parameters: Mapping[str, str] | None, status: str) -> World:
    """An account in which the stack prod has a forwarder as a part of it."""
    world = World(parameters)
    root = "arn:aws:cloudformation:eu-west-1:123456789012:stack/prod/1"
    own = ("CodeBucket", "CodeKey", "ElasticsearchUrl", "TaskStopped")
    world.cloudformation.other_stacks = [
        {
            "StackName": NESTED,
            "StackId": root.replace("prod", NESTED),
            "StackStatus": status,
            "ParentId": root,
            "RootId": root,
            "Parameters": [{"ParameterKey": name, "ParameterValue": "x"} for name in own],
        },
        {"StackName": "prod", "StackId": root, "StackStatus": status},
    ]
    return world


@pytest.mark.parametrize("status", ["UPDATE_COMPLETE", "UPDATE_ROLLBACK_FAILED"])
def test_a_nested_forwarder_is_neither_changed_nor_deleted(
    status: str, zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stack that it is a part of could not be updated any more. ``setup doctor`` reads it."""
    world = with_a_nested_forwarder(VALUES, status)
    (nested, _) = world.cloudformation.other_stacks
    world.cloudformation.stack = nested
    for act in (deployed, removed):
        code, error = tried(act, NthCallFails(world.open), zip_file)
        assert code == 1
        assert error == (
            f"The stack {NESTED} is a part of the stack prod, and is neither changed nor deleted "
            "without it: do that in the template of the stack prod, or give another name with "
            "--name."
        )
    assert {name for name, _ in world.cloudformation.called} == {"DescribeStacks"}
    finding = forwarder_finding(read_forwarder(world.open, NESTED))
    assert finding.level == ("ok" if status == "UPDATE_COMPLETE" else "problem")
    if finding.level == "problem":
        assert finding.advice is not None
        assert "repair the stack prod, of which it is a part" in finding.advice


INSTANCE = "StackSet-tp-0f7c7a5e-3d4b-4c58-9f4e-6a1c5d2b8e90"


@pytest.mark.parametrize("status", ["UPDATE_COMPLETE", "UPDATE_ROLLBACK_FAILED"])
def test_an_instance_of_a_stack_set_is_neither_changed_nor_deleted(
    status: str, zip_file: str
) -> None:
    """A StackSet knows nothing of a change of its instance, and undoes it at its next operation; an
    instance whose stack is gone fails there. CloudFormation describes it as any other stack.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/stacksets-drift.html
    """
    world = World(VALUES)
    assert world.cloudformation.stack is not None
    world.cloudformation.stack |= {"StackName": INSTANCE, "StackStatus": status}
    where = "with the StackSet tp, in the account that administers it"
    for act in (deployed, removed):
        code, error = tried(act, NthCallFails(world.open), zip_file)
        assert code == 1
        assert error == (
            f"The stack {INSTANCE} is by its name an instance of the StackSet tp, and is neither "
            f"changed nor deleted without it: do that {where}, or give another name with --name."
        )
    assert {name for name, _ in world.cloudformation.called} == {"DescribeStacks"}
    assert world.filters["/ecs/old"], "its subscription filter stays"
    finding = forwarder_finding(read_forwarder(world.open, INSTANCE))
    assert finding.level == ("ok" if status == "UPDATE_COMPLETE" else "problem")
    assert finding.level == "ok" or f"repair it {where}." in str(finding.advice)


@pytest.mark.parametrize("name", ["StackSet-tp", f"my-{INSTANCE}", f"{INSTANCE}-2"])
def test_a_stack_that_no_stack_set_names_is_changed(name: str, zip_file: str) -> None:
    world = World(VALUES)
    assert world.cloudformation.stack is not None
    world.cloudformation.stack["StackName"] = name
    assert not read_forwarder(world.open, name).is_owned
    assert tried(deployed, NthCallFails(world.open), zip_file) == (0, "")


def test_a_second_forwarder_is_said_before_it_is_made(
    zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """An update of a stack that is there is the control, and so is a stack that is not ours."""
    already = f"There is a forwarder already, the stack {NESTED}: each of the two sends its own"
    for parameters in (None, VALUES):
        world = with_a_nested_forwarder(parameters, "UPDATE_COMPLETE")
        assert tried(deployed, NthCallFails(world.open), zip_file) == (0, "")
        output = "".join(capfd.readouterr())
        assert (already in output) is (parameters is None)
        assert "the stack prod:" not in output
    world = with_a_nested_forwarder(None, "UPDATE_COMPLETE")
    with pytest.raises(TaskProfilerError, match=f"of another one, such as {NESTED}, or deploy it"):
        read_existing_stack(world.open, "tp")
    world.cloudformation.other_stacks[1] |= {
        "StackName": INSTANCE,
        "Parameters": world.cloudformation.other_stacks[0]["Parameters"],
    }
    assert tried(deployed, NthCallFails(world.open), zip_file) == (0, "")
    said = "it is by its name an instance of the StackSet tp, so change it there."
    assert said in "".join(capfd.readouterr())
    world.cloudformation.stack = None
    world.cloudformation.other_stacks[0].pop("RootId")
    world.cloudformation.other_stacks[0].pop("ParentId")
    assert tried(deployed, NthCallFails(world.open), zip_file) == (0, "")
    assert f"to change it instead, add --name {NESTED}." in "".join(capfd.readouterr())
