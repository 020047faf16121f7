"""The monitor's container for people who keep task definitions in code: JSON, Terraform,
CloudFormation and CDK.
"""

import json
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from profiler.core.ecs_terms import AWSLOGS, ReportStream
from profiler.task_definitions.containers import (
    REPORT_STREAM_VARIABLE,
    DefinedContainer,
    environment_of,
)
from profiler.task_definitions.json_yaml_style import TEMPLATE_REGION, TextStyle
from profiler.task_definitions.monitor_container import (
    DEFAULT_STREAM_PREFIX,
    CallStacksAccess,
    MonitorContainer,
    OwnLog,
)

ContainerFormat = Literal["json", "terraform", "cloudformation", "cdk"]
DEFAULT_CONTAINER = "batch"
_INDENT = "  "
# Their keys are names of the user's or of the log driver, not fields of the API.
FREE_KEYS = frozenset({"options", "dockerLabels"})


class ContainerRequest(Struct, frozen=True, kw_only=True):
    """The choices of ``taskdef container``. ``region`` None: the Region of the deployment."""

    image: str
    container: str = DEFAULT_CONTAINER
    log_group: str
    region: str | None = None
    stream_prefix: str = DEFAULT_STREAM_PREFIX
    report_stream: ReportStream = "batch"
    stacks: CallStacksAccess | None = None


def monitor_container(
    request: ContainerRequest, *, default_region: str | None = None
) -> Mapping[str, object]:
    """The container definition of the monitor for a batch with the awslogs log driver."""
    region = request.region or default_region
    log = OwnLog(group=request.log_group, region=region, stream_prefix=request.stream_prefix)
    batch = DefinedContainer(
        name=request.container, log_driver=AWSLOGS, log_options=log.log_options
    )
    settings: dict[str, str] = {}
    if request.report_stream != "batch":
        settings[REPORT_STREAM_VARIABLE] = request.report_stream
    monitor = MonitorContainer(
        image=request.image, batch=batch, stacks=request.stacks, settings=settings
    )
    return monitor.container_definition()


def container_text(request: ContainerRequest, container_format: ContainerFormat) -> str:
    """The container in a format, to paste."""
    match container_format:
        case "json":
            return json.dumps(monitor_container(request), indent=_INDENT, ensure_ascii=False) + "\n"
        case "terraform":
            # An object for jsonencode() in container_definitions of aws_ecs_task_definition.
            return f"{_hcl_text(monitor_container(request), '')}\n"
        case "cloudformation":
            # An item of ContainerDefinitions, in YAML.
            container = pascal_case(monitor_container(request, default_region=TEMPLATE_REGION))
            return TextStyle(is_yaml=True).block([container], "") + "\n"
        case "cdk":
            return _cdk_text(request)


def _hcl_text(value: object, indent: str) -> str:
    """The value in the language of Terraform; further lines begin with ``indent``."""
    inner_indent = indent + _INDENT
    if isinstance(value, dict):
        names = [name if name.isidentifier() else json.dumps(name) for name in value]
        width = max(map(len, names))
        lines = ""
        for name, item in zip(names, value.values(), strict=True):
            lines += f"{inner_indent}{name:<{width}} = {_hcl_text(item, inner_indent)}\n"
        return f"{{\n{lines}{indent}}}"
    if isinstance(value, list):
        items = [_hcl_text(item, indent) for item in value]
        return f"[{', '.join(items)}]"
    json_text = json.dumps(value, ensure_ascii=False)
    return json_text.replace("${", "$${").replace("%{", "%%{")  # no interpolation


def pascal_case(value: object) -> object:
    """A definition of the API with the names of CloudFormation: ``logConfiguration`` becomes
    ``LogConfiguration``.
    """
    return _with_case(value, str.upper)


def camel_case(value: object) -> object:
    """Properties of CloudFormation with the names of the API."""
    return _with_case(value, str.lower)


def _with_case(value: object, change: Callable[[str], str]) -> object:
    """The value with changed first letters of the keys, but for those of ``FREE_KEYS`` inside."""
    if isinstance(value, list):
        return [_with_case(item, change) for item in value]
    if not isinstance(value, dict):
        return value
    changed = {}
    for name, item in value.items():
        is_free = name[:1].lower() + name[1:] in FREE_KEYS
        changed[change(name[:1]) + name[1:]] = item if is_free else _with_case(item, change)
    return changed


_CDK_ACCESS = """\
monitor.linuxParameters!.addCapabilities(ecs.Capability.SYS_PTRACE);
(taskDefinition.node.defaultChild as ecs.CfnTaskDefinition).pidMode = "task";
"""


def _typescript_literal(value: object) -> str:
    """The text as a literal of TypeScript."""
    return json.dumps(value, ensure_ascii=False)


def _cdk_text(request: ContainerRequest) -> str:
    """TypeScript that adds the monitor to a ``taskDefinition`` of aws-cdk-lib/aws-ecs."""
    monitor = monitor_container(request)
    variables = [
        f"{name}: {_typescript_literal(value)}" for name, value in environment_of(monitor).items()
    ]
    group = _typescript_literal(request.log_group)
    access = ""
    grants = ""
    if request.stacks:
        access = '  linuxParameters: new ecs.LinuxParameters(taskDefinition, "TaskMonitorLinux"),\n'
        grants = _CDK_ACCESS
    return f"""\
const monitor = taskDefinition.addContainer({_typescript_literal(monitor["name"])}, {{
  image: ecs.ContainerImage.fromRegistry({_typescript_literal(request.image)}),
  command: ["monitor"],
  essential: false,
  stopTimeout: cdk.Duration.seconds({monitor["stopTimeout"]}),
  memoryReservationMiB: {monitor["memoryReservation"]},
  memoryLimitMiB: {monitor["memory"]},
  user: {_typescript_literal(monitor["user"])},
  readonlyRootFilesystem: true,
{access}  environment: {{ {", ".join(variables)} }},
  logging: ecs.LogDrivers.awsLogs({{
    logGroup: logs.LogGroup.fromLogGroupName(taskDefinition, "TaskMonitorLogGroup", {group}),
    streamPrefix: {_typescript_literal(request.stream_prefix)},
  }}),
}});
monitor.addContainerDependencies({{
  container: taskDefinition.findContainer({_typescript_literal(request.container)})!,
  condition: ecs.ContainerDependencyCondition.START,
}});
{grants}"""
