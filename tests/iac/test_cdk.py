"""``profiler.cdk.TaskMonitor``, synthesised by the real AWS CDK (Node.js)."""

import json
from typing import Any

import pytest

pytest.importorskip("aws_cdk", reason="make iac installs the CDK")

from aws_cdk import App, Environment, Stack, assertions
from aws_cdk import aws_applicationautoscaling as scaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_ecs_patterns as patterns

from profiler.cdk import TaskMonitor
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.container_snippets import camel_case
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor

IMAGE = ecs.ContainerImage.from_registry("team/task-profiler:1")


def scheduled_task(stack: Stack) -> Any:
    cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Vpc", max_azs=2))
    return patterns.ScheduledFargateTask(
        stack,
        "Nightly",
        cluster=cluster,
        schedule=scaling.Schedule.cron(hour="2", minute="0"),
        scheduled_fargate_task_image_options=patterns.ScheduledFargateTaskImageOptions(
            image=ecs.ContainerImage.from_registry("etl:26"), memory_limit_mib=1024, cpu=256
        ),
    )


def synthesised(stack: Stack) -> tuple[dict[str, Any], Any]:
    """The task definition's properties, and the whole template."""
    template = assertions.Template.from_stack(stack)
    (found,) = template.find_resources("AWS::ECS::TaskDefinition").values()
    return found["Properties"], template


def put_statements(template: Any) -> list[Any]:
    """The statements that allow the put of the report."""
    policies = template.find_resources("AWS::IAM::Policy").values()
    statements = [
        one for policy in policies for one in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    return [one for one in statements if one["Action"] == "logs:PutLogEvents"]


def added(batch: Any, **options: Any) -> Any:
    """The definition of this batch to which the command has added its monitor."""
    definition: Any = camel_case({"ContainerDefinitions": [batch], "TaskRoleArn": "x"})
    return add_monitor(
        definition, AddMonitorOptions(image="team/task-profiler:1", **options)
    ).definition


def test_the_monitor_in_a_scheduled_task_is_the_one_that_the_command_adds() -> None:
    stack = Stack(App(), "Jobs")
    scheduled_task(stack).task_definition.add_extension(TaskMonitor(image=IMAGE))
    properties, template = synthesised(stack)
    batch, monitor = properties["ContainerDefinitions"]
    assert camel_case(monitor) == added(batch)["containerDefinitions"][1]
    assert monitor["LogConfiguration"] == batch["LogConfiguration"]
    assert monitor["Environment"] == [
        {"Name": "TASK_PROFILER_CONTAINER", "Value": "ScheduledContainer"}
    ]
    (put,) = put_statements(template)
    assert ":log-stream:Nightly/ScheduledContainer/*" in json.dumps(put["Resource"])


def test_the_own_stream_needs_no_permission_and_the_monitor_is_last() -> None:
    stack = Stack(App(), "Jobs")
    task_definition = scheduled_task(stack).task_definition
    task_definition.add_extension(TaskMonitor(image=IMAGE, report_stream="monitor"))
    task_definition.add_container(
        "Later", image=ecs.ContainerImage.from_registry("proxy:1"), essential=False
    )
    properties, template = synthesised(stack)
    *_, later, monitor = properties["ContainerDefinitions"]
    assert later["Name"] == "Later"
    assert monitor["Name"] == "task-monitor"
    assert {"Name": "TASK_PROFILER_REPORT_STREAM", "Value": "monitor"} in monitor["Environment"]
    assert put_statements(template) == []


def test_stacks_are_those_of_the_command() -> None:
    stack = Stack(App(), "Jobs")
    scheduled_task(stack).task_definition.add_extension(TaskMonitor(image=IMAGE, stacks="moments"))
    properties, _ = synthesised(stack)
    batch, monitor = properties["ContainerDefinitions"]
    definition = added(batch, stacks="moments")
    assert properties["PidMode"] == definition["pidMode"]
    expected = definition["containerDefinitions"][1]
    assert camel_case(monitor) == {
        name: value for name, value in expected.items() if name != "dockerLabels"
    }


def test_the_permission_is_for_the_region_of_the_log_group() -> None:
    stack = Stack(App(), "Jobs", env=Environment(account="111122223333", region="us-east-1"))
    definition = ecs.FargateTaskDefinition(stack, "Definition")
    options = {
        "awslogs-group": "/ecs/etl",
        "awslogs-region": "eu-west-1",
        "awslogs-stream-prefix": "ecs",
    }
    logging = ecs.GenericLogDriver(log_driver="awslogs", options=options)
    definition.add_container(
        "etl", image=ecs.ContainerImage.from_registry("etl:26"), logging=logging
    )
    definition.add_extension(TaskMonitor())
    _, template = synthesised(stack)
    (put,) = put_statements(template)
    assert ":logs:eu-west-1:111122223333:log-group:/ecs/etl:log-stream:ecs/etl/*" in json.dumps(
        put["Resource"]
    )


def test_a_batch_without_awslogs_gets_a_report_in_the_monitors_own_stream() -> None:
    stack = Stack(App(), "Jobs")
    definition = ecs.FargateTaskDefinition(stack, "Definition")
    definition.add_container("etl", image=ecs.ContainerImage.from_registry("etl:26"))
    definition.add_extension(
        TaskMonitor(container="etl", environment={"TASK_PROFILER_TAGS": "true"})
    )
    properties, _ = synthesised(stack)
    _, monitor = properties["ContainerDefinitions"]
    group = monitor["LogConfiguration"]["Options"]["awslogs-group"]
    variables = {one["Name"]: one["Value"] for one in monitor["Environment"]}
    named = {
        "TASK_PROFILER_CONTAINER": "etl",
        "TASK_PROFILER_LOG_GROUP": group,
        "TASK_PROFILER_TAGS": "true",
    }
    assert variables == named
    assert "task-profiler" in json.dumps(monitor["Image"])


@pytest.mark.parametrize("container", [None, "missing"])
def test_a_missing_batch_is_one_sentence(container: str | None) -> None:
    definition = ecs.FargateTaskDefinition(Stack(App(), "Jobs"), "Definition")
    with pytest.raises((TaskProfilerError, RuntimeError), match="no container"):
        definition.add_extension(TaskMonitor(container=container))


def batch_of(stack: Stack, *, memory_mib: int = 256, **options: Any) -> Any:
    """A definition on Fargate of 512 MiB with a batch."""
    definition = ecs.FargateTaskDefinition(stack, "Definition", memory_limit_mib=512, **options)
    image = ecs.ContainerImage.from_registry("etl:26")
    definition.add_container("etl", image=image, memory_limit_mib=memory_mib)
    return definition


def test_a_definition_with_room_is_synthesised() -> None:
    stack = Stack(App(), "Jobs")
    definition = batch_of(stack)
    definition.add_extension(TaskMonitor(image=IMAGE))
    for number in range(8):
        image = ecs.ContainerImage.from_registry("proxy:1")
        definition.add_container(f"helper-{number}", image=image, essential=False)
    properties, _ = synthesised(stack)
    assert len(properties["ContainerDefinitions"]) == 10


def test_a_batch_with_all_of_the_memory_is_refused() -> None:
    stack = Stack(App(), "Jobs")
    batch_of(stack, memory_mib=512).add_extension(TaskMonitor(image=IMAGE))
    with pytest.raises(RuntimeError, match="No memory is left for the monitor"):
        synthesised(stack)


def test_an_eleventh_container_is_refused_also_if_it_is_added_later() -> None:
    stack = Stack(App(), "Jobs")
    definition = batch_of(stack)
    definition.add_extension(TaskMonitor(image=IMAGE))
    for number in range(9):
        image = ecs.ContainerImage.from_registry("proxy:1")
        definition.add_container(f"helper-{number}", image=image, essential=False)
    with pytest.raises(RuntimeError, match="ECS allows 10"):
        synthesised(stack)


def test_a_container_with_the_monitors_name_is_refused_whenever_it_is_added() -> None:
    """The CDK writes both, and ECS refuses the definition at the deployment."""
    image = ecs.ContainerImage.from_registry("proxy:1")
    name = {"container_name": "task-monitor", "image": image, "essential": False}
    early, late = Stack(App(), "Jobs"), Stack(App(), "Jobs")
    batch_of(early).add_container("own", **name)
    early.node.find_child("Definition").add_extension(TaskMonitor(image=IMAGE))
    definition = batch_of(late)
    definition.add_extension(TaskMonitor(image=IMAGE))
    definition.add_container("own", **name)
    for stack in (early, late):
        with pytest.raises(RuntimeError, match="Several containers are called 'task-monitor'"):
            synthesised(stack)


def test_windows_is_refused() -> None:
    stack = Stack(App(), "Jobs")
    platform = ecs.RuntimePlatform(
        operating_system_family=ecs.OperatingSystemFamily.WINDOWS_SERVER_2019_CORE,
        cpu_architecture=ecs.CpuArchitecture.X86_64,
    )
    definition = ecs.FargateTaskDefinition(
        stack, "Definition", cpu=1024, memory_limit_mib=2048, runtime_platform=platform
    )
    definition.add_container("etl", image=ecs.ContainerImage.from_registry("etl:26"))
    definition.add_extension(TaskMonitor(image=IMAGE))
    with pytest.raises(RuntimeError, match="WINDOWS_SERVER_2019_CORE"):
        synthesised(stack)


def test_an_instance_of_windows_is_refused_by_its_placement() -> None:
    stack = Stack(App(), "Jobs")
    definition = ecs.Ec2TaskDefinition(
        stack,
        "Definition",
        placement_constraints=[
            ecs.PlacementConstraint.member_of("attribute:ecs.os-type == windows")
        ],
    )
    image = ecs.ContainerImage.from_registry("etl:26")
    definition.add_container("etl", image=image, memory_limit_mib=256)
    definition.add_extension(TaskMonitor(image=IMAGE))
    with pytest.raises(RuntimeError, match="Windows, by the placement"):
        synthesised(stack)


def with_override(path: str, value: Any, **options: Any) -> Stack:
    """A definition with a monitor, and an override of a property after it."""
    stack = Stack(App(), "Jobs")
    definition = ecs.FargateTaskDefinition(stack, "Definition", memory_limit_mib=512)
    logging = ecs.LogDrivers.aws_logs(stream_prefix="ecs")
    image = ecs.ContainerImage.from_registry("etl:26")
    definition.add_container("etl", image=image, memory_limit_mib=256, logging=logging)
    definition.add_extension(TaskMonitor(image=IMAGE, **options))
    resource: Any = definition.node.default_child
    if path:
        resource.add_property_override(path, value)
    return stack


LOG = "ContainerDefinitions.0.LogConfiguration.Options"
OWN: dict[str, Any] = {"Name": "etl", "Image": "etl:27"}


@pytest.mark.parametrize(
    ("path", "value", "options", "said"),
    [
        ("Memory", "256", {}, "No memory is left for the monitor"),
        ("RuntimePlatform.OperatingSystemFamily", "WINDOWS_SERVER_2022_CORE", {}, "WINDOWS_SERVER"),
        ("ContainerDefinitions.2", {**OWN, "Name": "task-monitor"}, {}, "Several containers are"),
        ("ContainerDefinitions", [OWN], {}, "the container task-monitor is lost: make the change"),
        ("ContainerDefinitions.0.Name", "batch", {}, "The container etl, which the monitor follo"),
        (f"{LOG}.awslogs-group", "/ecs/x", {}, "the report would go to the former log group"),
        ("PidMode", None, {"stacks": "moments"}, "pidMode was removed"),
    ],
)
def test_an_override_that_the_monitor_cannot_have_is_refused(
    path: str, value: Any, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(RuntimeError, match=said):
        synthesised(with_override(path, value, **options))


@pytest.mark.parametrize(
    ("path", "value", "options"),
    [
        ("", "", {}),
        ("Memory", "1024", {}),
        ("ContainerDefinitions.0.Memory", 300, {}),
        ("ContainerDefinitions.1.Environment.0.Name", "TASK_PROFILER_CONTAINER", {}),
        (f"{LOG}.mode", "non-blocking", {}),
        (f"{LOG}.awslogs-group", "/ecs/x", {"report_stream": "monitor"}),
        ("PidMode", "host", {"stacks": "moments"}),
    ],
)
def test_an_override_beside_the_monitor_is_honoured(
    path: str, value: Any, options: dict[str, Any]
) -> None:
    stack = with_override(path, value, **options)
    properties, _ = synthesised(stack)
    found: Any = properties
    for part in path.split(".") if path else ():
        found = found[int(part)] if part.isdigit() else found[part]
    assert found == value or not path
    assert len(properties["ContainerDefinitions"]) == 2
    assertions.Annotations.from_stack(stack).has_no_warning("*", assertions.Match.any_value())


def test_an_override_of_the_task_role_is_warned_of() -> None:
    arn = "arn:aws:iam::123456789012:role/own"
    stack = with_override("TaskRoleArn", arn)
    assert synthesised(stack)[0]["TaskRoleArn"] == arn
    said = assertions.Match.string_like_regexp("logs:PutLogEvents. is the former role's")
    assertions.Annotations.from_stack(stack).has_warning("*", said)
    own_stream = with_override("TaskRoleArn", arn, report_stream="monitor")
    synthesised(own_stream)
    assertions.Annotations.from_stack(own_stream).has_no_warning("*", assertions.Match.any_value())


def test_containers_that_replace_all_of_them_are_refused() -> None:
    stack = with_override("", "")
    resource: Any = stack.node.find_child("Definition").node.default_child
    container = ecs.CfnTaskDefinition.ContainerDefinitionProperty
    resource.container_definitions = [container(name="etl", image="etl:27")]
    with pytest.raises(RuntimeError, match="the container task-monitor is lost"):
        synthesised(stack)
