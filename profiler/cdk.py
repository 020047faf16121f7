"""The monitor for task definitions of the AWS CDK (extra ``cdk``, which needs Node.js).

    task.task_definition.add_extension(TaskMonitor())

The module starts the CDK's Node.js process when it is imported, as each module of the CDK does.
"""

from collections.abc import Mapping
from typing import Any

import jsii
from aws_cdk import ArnFormat, Duration, IAnyProducer, IResolveContext, Lazy, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs

from profiler.core.ecs_terms import AWSLOGS, CONTAINER_VARIABLE, MONITOR_NAME, MONITOR_REPOSITORY, ReportStream
from profiler.core.errors import TaskProfilerError
from profiler.core.version import __version__
from profiler.task_definitions.containers import LOG_GROUP_VARIABLE, REPORT_STREAM_VARIABLE, Container, needs_put
from profiler.task_definitions.monitor_container import (
    DEFAULT_STREAM_PREFIX,
    GPU_VARIABLES,
    MULTILINE_OPTIONS,
    PTRACE_USER,
    RESERVATION_MB,
    STACKS_VARIABLE,
    STOP_TIMEOUT_SECONDS,
    USER,
    MonitorContainer,
    StacksAccess,
)

_ID = "TaskMonitor"


@jsii.implements(ecs.ITaskDefinitionExtension)
class TaskMonitor:
    """Adds the monitor's container as the last one, and the task role's permission to write the report.

    The report goes into the log stream of the batch, or into the monitor's own stream if the batch does not log by
    awslogs or ``log_group`` is set.

    Args:
        container: The name of the batch container; None: the default container of the task definition.
        image: The monitor's image; None: ``task-profiler:VERSION`` in the ECR registry of the stack's account.
        log_group: The log group of the monitor's own stream.
        gpu: Whether the batch has GPUs, which the monitor then reads.
        report_stream: Whose log stream gets the report; ``monitor`` needs no permission.
        stacks: When to read call stacks; grants SYS_PTRACE and sets ``pidMode: task``.
        environment: Settings of the monitor.
    """

    def __init__(
        self,
        *,
        container: str | None = None,
        image: ecs.ContainerImage | None = None,
        log_group: logs.ILogGroup | None = None,
        gpu: bool = False,
        report_stream: ReportStream = "batch",
        stacks: StacksAccess | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._container = container
        self._image = image
        self._log_group = log_group
        self._gpu = gpu
        self._report_stream = report_stream
        self._stacks = stacks
        self._environment = dict(environment or {})

    def extend(self, task_definition: ecs.TaskDefinition) -> None:
        """Add the monitor; the CDK calls this. Raises TaskProfilerError if the batch container is missing."""
        name = self._container
        batch = task_definition.default_container if name is None else task_definition.find_container(name)
        if batch is None:
            raise TaskProfilerError(
                f"The task definition has no container {name or 'yet'}: add the batch container before "
                "add_extension(TaskMonitor())."
            )
        driver = batch.log_driver_config
        options = dict(driver.options or {}) if driver is not None and driver.log_driver == AWSLOGS else {}
        variables = GPU_VARIABLES if self._gpu else {}
        if self._stacks is not None:
            variables = {**variables, STACKS_VARIABLE: self._stacks}
            resource = task_definition.node.default_child
            if task_definition.pid_mode is None and isinstance(resource, ecs.CfnTaskDefinition):
                resource.pid_mode = "task"
        if self._report_stream != "batch":
            variables = {**variables, REPORT_STREAM_VARIABLE: self._report_stream}
        environment = {CONTAINER_VARIABLE: batch.container_name} | variables | self._environment
        if options and self._log_group is None:
            kept = {name: value for name, value in options.items() if name not in MULTILINE_OPTIONS}
            logging = ecs.GenericLogDriver(log_driver=AWSLOGS, options=kept)
            if needs_put(environment):
                _allow_put(task_definition, batch, options)
        else:
            group = self._log_group or logs.LogGroup(task_definition, f"{_ID}LogGroup")
            logging = ecs.LogDrivers.aws_logs(log_group=group, stream_prefix=DEFAULT_STREAM_PREFIX)
            environment[LOG_GROUP_VARIABLE] = group.log_group_name
        self._add(task_definition, batch, logging, environment)

    def _add(
        self,
        task_definition: ecs.TaskDefinition,
        batch: ecs.ContainerDefinition,
        logging: ecs.LogDriver,
        environment: dict[str, str],
    ) -> None:
        image = self._image or ecs.ContainerImage.from_ecr_repository(
            ecr.Repository.from_repository_name(task_definition, f"{_ID}Repository", MONITOR_REPOSITORY), __version__
        )
        access = None
        if self._stacks is not None:
            access = ecs.LinuxParameters(task_definition, f"{_ID}Linux")
            access.add_capabilities(ecs.Capability.SYS_PTRACE)
        documented = MonitorContainer(image="", batch=Container(name=batch.container_name), uses_gpu=self._gpu)
        monitor = task_definition.add_container(
            MONITOR_NAME,
            image=image,
            command=["monitor"],
            essential=False,
            stop_timeout=Duration.seconds(STOP_TIMEOUT_SECONDS),
            memory_reservation_mib=RESERVATION_MB,
            memory_limit_mib=documented.memory_mb,
            user=USER if self._stacks is None else PTRACE_USER,
            linux_parameters=access,
            readonly_root_filesystem=True,
            environment=environment,
            logging=logging,
        )
        start = ecs.ContainerDependencyCondition.START
        monitor.add_container_dependencies(ecs.ContainerDependency(container=batch, condition=start))
        resource = task_definition.node.default_child
        if isinstance(resource, ecs.CfnTaskDefinition):
            resource.container_definitions = Lazy.uncached_any(_MonitorLast(resource.container_definitions))


@jsii.implements(IAnyProducer)
class _MonitorLast:
    """The containers when the template is written, which may be more than now, with the monitor at the end."""

    def __init__(self, containers: object) -> None:
        self._containers = containers

    def produce(self, context: IResolveContext) -> list[Any]:
        """Called by the CDK."""
        containers: list[Any] = context.resolve(self._containers)
        return sorted(containers, key=lambda container: bool(container["name"] == MONITOR_NAME))


def _allow_put(task_definition: ecs.TaskDefinition, batch: ecs.ContainerDefinition, options: Mapping[str, str]) -> None:
    """Give the task role the permission to write the report to the batch's log stream."""
    prefix = options.get("awslogs-stream-prefix")
    stream = f"{prefix}/{batch.container_name}/*" if prefix else "*"
    arn = Stack.of(task_definition).format_arn(
        service="logs",
        resource="log-group",
        resource_name=f"{options['awslogs-group']}:log-stream:{stream}",
        region=options.get("awslogs-region"),
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    statement = iam.PolicyStatement(actions=["logs:PutLogEvents"], resources=[arn])
    task_definition.add_to_task_role_policy(statement)
