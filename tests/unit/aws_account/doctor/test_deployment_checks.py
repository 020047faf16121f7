"""The findings about a deployed forwarder: states of the stack."""

import pytest

from profiler.aws_account.doctor.deployment_checks import stack_finding
from profiler.aws_account.doctor.findings import Level
from profiler.aws_account.stack_state import StackState


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("CREATE_COMPLETE", "ok"),
        ("UPDATE_COMPLETE", "ok"),
        ("UPDATE_IN_PROGRESS", "note"),
        ("UPDATE_ROLLBACK_COMPLETE", "note"),
        ("ROLLBACK_COMPLETE", "problem"),
        ("CREATE_FAILED", "problem"),
        ("UPDATE_ROLLBACK_FAILED", "problem"),
        ("DELETE_FAILED", "problem"),
    ],
)
def test_the_state_of_the_stack_is_judged(status: str, level: Level) -> None:
    found = stack_finding(StackState(name="tp", status=status, reason="A reason."))
    assert (found.level, found.text) == (level, f"The stack tp is in state {status}: A reason.")
    assert (found.advice is None) == (level == "ok")
