"""The states of a stack, what they permit, and what the doctor finds."""

from msgspec.structs import replace

from profiler.aws_account.doctor.deployment_checks import forwarder_finding
from profiler.aws_account.doctor.findings import Level
from profiler.aws_account.forwarder_stack import (
    ForwarderStack,
    change_obstacle,
    export_lines,
    read_forwarder,
)
from tests.cases import each_case
from tests.fake_cloudformation import FakeCloudFormation


def state(status: str, **parameters: str) -> ForwarderStack:
    listed = [{"ParameterKey": name, "ParameterValue": value} for name, value in parameters.items()]
    return read_forwarder(
        FakeCloudFormation(stack={"StackStatus": status, "Parameters": listed}), "tp"
    )


@each_case(
    ("status", "phase", "level", "said"),
    [
        ("CREATE_COMPLETE", "ready", "ok", None),
        ("UPDATE_COMPLETE", "ready", "ok", None),
        ("UPDATE_ROLLBACK_COMPLETE", "ready", "note", None),
        ("REVIEW_IN_PROGRESS", "absent", None, None),
        ("DELETE_COMPLETE", "absent", None, None),
        ("UPDATE_IN_PROGRESS", "in progress", "note", "wait, and run the command again"),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "in progress", "note", "wait"),
        (
            "ROLLBACK_COMPLETE",
            "failed",
            "problem",
            "(task-profiler setup stack --name tp --delete --region eu-west-1)",
        ),
        ("CREATE_FAILED", "failed", "problem", "is incomplete and cannot be updated"),
        ("DELETE_FAILED", "failed", "problem", "--region eu-west-1), and run the command again"),
        (
            "UPDATE_ROLLBACK_FAILED",
            "failed",
            "problem",
            "continue-update-rollback --stack-name tp --region eu-west-1,",
        ),
        (
            "UPDATE_FAILED",
            "failed",
            "problem",
            "aws cloudformation rollback-stack --stack-name tp --region eu-west-1,",
        ),
    ],
)
def test_every_status_has_its_phase_its_finding_and_a_way_on(
    status: str, phase: str, level: Level | None, said: str | None
) -> None:
    read = state(status)
    assert read.possible_action == phase
    problem = change_obstacle(read)
    assert problem is None if said is None else problem is not None and said in problem
    if level is not None:
        found = forwarder_finding(replace(read, reason="A reason."))
        assert found.level == level
        assert found.text == f"The stack tp is in state {status}: A reason."
        assert (found.advice is None) == (level == "ok")


def test_the_version_is_that_of_the_code() -> None:
    """The version is that of the code and an absent stack has no parameters to keep."""
    code = "task-profiler/forwarder-1.2.3rc1-0123456789abcdef.zip"
    assert state("CREATE_COMPLETE", CodeKey=code).version == "1.2.3rc1"
    assert state("CREATE_COMPLETE", CodeKey="mine/forwarder.zip").version is None
    assert state("REVIEW_IN_PROGRESS", Notify="failure").parameters == {}
    assert read_forwarder(FakeCloudFormation(), "tp") == ForwarderStack(name="tp")


def test_the_line_to_export_names_the_cluster_with_its_prefix_or_the_log_groups() -> None:
    url = {"ElasticsearchUrl": "https://search:9200/", "IndexPrefix": "task", "LogGroups": "/ecs/a"}
    assert [*export_lines(url)] == ["export TASK_PROFILER_FROM=https://search:9200/"]
    assert [*export_lines({**url, "IndexPrefix": "team"})] == [
        "export TASK_PROFILER_FROM=https://search:9200/team"
    ]
    groups = {"ElasticsearchUrl": "", "LogGroups": "/ecs/a,/ecs/b*"}
    assert [*export_lines(groups)] == ["export TASK_PROFILER_FROM='logs:/ecs/a logs:/ecs/b*'"]
    assert [*export_lines({"LogGroups": ""})] == []
