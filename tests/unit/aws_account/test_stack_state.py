"""The states of a stack, and what they permit."""

import pytest

from profiler.aws_account.stack_state import StackState, obstacle, read_state
from profiler.core.errors import TaskProfilerError
from tests.fake_cloudformation import FakeCloudFormation


def state(status: str, **parameters: str) -> StackState:
    listed = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
    return read_state(FakeCloudFormation(stack={"StackStatus": status, "Parameters": listed}), "tp")


@pytest.mark.parametrize(
    ("status", "phase", "said"),
    [
        ("CREATE_COMPLETE", "ready", None),
        ("UPDATE_ROLLBACK_COMPLETE", "ready", None),
        ("REVIEW_IN_PROGRESS", "absent", None),
        ("DELETE_COMPLETE", "absent", None),
        ("UPDATE_IN_PROGRESS", "in progress", "wait, and run the command again"),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "in progress", "wait"),
        ("ROLLBACK_COMPLETE", "failed", "delete it (task-profiler setup stack --name tp --region eu-west-1 --delete)"),
        ("DELETE_FAILED", "failed", "delete the rest"),
        ("UPDATE_ROLLBACK_FAILED", "failed", "continue-update-rollback --stack-name tp --region eu-west-1,"),
        ("UPDATE_FAILED", "failed", "aws cloudformation rollback-stack --stack-name tp --region eu-west-1,"),
    ],
)
def test_every_status_has_its_phase_and_a_way_on(status: str, phase: str, said: str | None) -> None:
    read = state(status)
    assert read.phase == phase
    problem = obstacle(read)
    assert problem is None if said is None else problem is not None and said in problem


def test_the_version_is_that_of_the_code_and_an_absent_stack_has_no_parameters_to_keep() -> None:
    code = "task-profiler/forwarder-1.2.3rc1-0123456789abcdef.zip"
    assert state("CREATE_COMPLETE", CodeKey=code).version == "1.2.3rc1"
    assert state("CREATE_COMPLETE", CodeKey="mine/forwarder.zip").version is None
    assert state("REVIEW_IN_PROGRESS", Notify="failure").parameters == {}
    assert read_state(FakeCloudFormation(), "tp") == StackState(name="tp")


def test_without_permission_the_action_is_named() -> None:
    aws = FakeCloudFormation(refuses={"DescribeStacks": ("AccessDenied", "no")})
    with pytest.raises(
        TaskProfilerError, match=r"AWS refused \(AccessDenied: no\): allow cloudformation:DescribeStacks\."
    ):
        read_state(aws, "tp")
