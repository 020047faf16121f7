"""The monitor for task definitions of the AWS CDK (extra ``cdk``, which needs Node.js).

    task.task_definition.add_extension(TaskMonitor())

The module starts the CDK's Node.js process when it is imported, as each module of the CDK does.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jsii
from aws_cdk import (
    Annotations,
    ArnFormat,
    DockerImageAssetLocation,
    DockerImageAssetSource,
    Duration,
    FileAssetLocation,
    FileAssetSource,
    IAnyProducer,
    IResolveContext,
    ISynthesisSession,
    Lazy,
    Stack,
    StackSynthesizer,
    cx_api,
)
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import IValidation

from profiler.core.ecs_terms import AWSLOGS, MONITOR_NAME, MONITOR_REPOSITORY, ReportStream
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values
from profiler.core.version import __version__
from profiler.task_definitions.container_snippets import camel_case
from profiler.task_definitions.containers import (
    REPORT_STREAM_VARIABLE,
    DefinedContainer,
    calls_cloudwatch_logs,
    environment_of,
)
from profiler.task_definitions.monitor_changes import refusal_of
from profiler.task_definitions.monitor_container import (
    DEFAULT_STREAM_PREFIX,
    NO_OWN_LOG,
    CallStacksAccess,
    MonitorContainer,
    OwnLog,
)

_ID = "TaskMonitor"


@jsii.implements(ecs.ITaskDefinitionExtension)
class TaskMonitor:
    """Adds the monitor's container as the last one, and the task role's permission to write the
    report.

    Args:
        container: The name of the batch container; None: the default container of the task
            definition.
        image: The monitor's image; None: ``task-profiler:VERSION`` in the ECR registry of the
            stack's account.
        log_group: The log group of the monitor's own stream, for the report, also if the batch does
            not log by awslogs.
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
        stacks: CallStacksAccess | None = None,
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
        """Add the monitor; the CDK calls this.

        Raises TaskProfilerError if the batch container is missing. What ``taskdef add-monitor``
        refuses is an error when the template is made.
        """
        batch = self._batch_of(task_definition)
        if self._stacks is not None:
            _share_processes(task_definition)
        log_options = _awslogs_options(batch)
        group = self._log_group
        if group is None and not log_options:
            group = logs.LogGroup(task_definition, f"{_ID}LogGroup")
        monitor = self._monitor_container(batch, log_options, group)
        if group is not None:
            logging = ecs.LogDrivers.aws_logs(log_group=group, stream_prefix=DEFAULT_STREAM_PREFIX)
        else:
            logging = ecs.GenericLogDriver(
                log_driver=AWSLOGS, options=monitor["logConfiguration"]["options"]
            )
            if calls_cloudwatch_logs(environment_of(monitor)):
                _allow_put(task_definition, batch, log_options)
        self._add_monitor_container(task_definition, batch, logging, monitor)

    def _batch_of(self, task_definition: ecs.TaskDefinition) -> ecs.ContainerDefinition:
        name = self._container
        if name is None:
            batch = task_definition.default_container
        else:
            batch = task_definition.find_container(name)
        if batch is None:
            raise TaskProfilerError(
                f"The task definition has no container {name or 'yet'}: add the batch container "
                "before add_extension(TaskMonitor())."
            )
        return batch

    def _monitor_container(
        self,
        batch: ecs.ContainerDefinition,
        log_options: Mapping[str, str],
        group: logs.ILogGroup | None,
    ) -> Mapping[str, Any]:
        """The container as the API has it, without its image."""
        settings: dict[str, str] = {}
        if self._report_stream != "batch":
            settings[REPORT_STREAM_VARIABLE] = self._report_stream
        settings |= self._environment
        own_log = NO_OWN_LOG
        if group is not None:
            own_log = OwnLog(group=group.log_group_name)
        defined_batch = DefinedContainer(
            name=batch.container_name,
            log_driver=AWSLOGS if log_options else None,
            log_options=log_options,
        )
        return MonitorContainer(
            image="",
            batch=defined_batch,
            uses_gpu=self._gpu,
            own_log=own_log,
            stacks=self._stacks,
            settings=settings,
        ).container_definition()

    def _add_monitor_container(
        self,
        task_definition: ecs.TaskDefinition,
        batch: ecs.ContainerDefinition,
        logging: ecs.LogDriver,
        monitor: Mapping[str, Any],
    ) -> None:
        image = self._image
        if image is None:
            repository = ecr.Repository.from_repository_name(
                task_definition, f"{_ID}Repository", MONITOR_REPOSITORY
            )
            image = ecs.ContainerImage.from_ecr_repository(repository, __version__)
        access = None
        if self._stacks is not None:
            access = ecs.LinuxParameters(task_definition, f"{_ID}Linux")
            access.add_capabilities(ecs.Capability.SYS_PTRACE)
        added = task_definition.add_container(
            monitor["name"],
            image=image,
            command=monitor["command"],
            essential=monitor["essential"],
            stop_timeout=Duration.seconds(monitor["stopTimeout"]),
            memory_reservation_mib=monitor["memoryReservation"],
            memory_limit_mib=monitor["memory"],
            user=monitor["user"],
            linux_parameters=access,
            readonly_root_filesystem=monitor["readonlyRootFilesystem"],
            environment={name: str(value) for name, value in environment_of(monitor).items()},
            logging=logging,
        )
        start = ecs.ContainerDependencyCondition.START
        added.add_container_dependencies(ecs.ContainerDependency(container=batch, condition=start))
        resource = task_definition.node.default_child
        if isinstance(resource, ecs.CfnTaskDefinition):
            monitor_last = _MonitorLast(resource.container_definitions)
            resource.container_definitions = Lazy.uncached_any(monitor_last)
            follows_log = self._log_group is None and calls_cloudwatch_logs(environment_of(monitor))
            validation = _FinalDefinition(
                resource,
                monitor["memory"],
                batch.container_name,
                follows_log=follows_log,
                needs_pid_mode=self._stacks is not None,
            )
            task_definition.node.add_validation(validation)


@jsii.implements(IAnyProducer)
class _MonitorLast:
    """The containers when the template is written, which may be more than now, with the monitor
    at the end.
    """

    def __init__(self, containers: object) -> None:
        self._containers = containers

    def produce(self, context: IResolveContext) -> list[Any]:
        """Called by the CDK."""
        containers: list[Any] = context.resolve(self._containers)
        return sorted(containers, key=lambda container: bool(container["name"] == MONITOR_NAME))


@jsii.implements(IValidation)
class _FinalDefinition:
    """Whether the definition of the template, with all of its containers and with the overrides of
    its properties, can have a monitor, and has the one that was added.
    """

    def __init__(
        self,
        resource: ecs.CfnTaskDefinition,
        monitor_mb: int,
        batch: str,
        *,
        follows_log: bool,
        needs_pid_mode: bool,
    ) -> None:
        self._resource = resource
        self._monitor_mb = monitor_mb
        self._batch = batch
        self._follows_log = follows_log
        self._needs_pid_mode = needs_pid_mode

    def validate(self) -> list[str]:
        """Called by the CDK when it writes the template."""
        resource = self._resource
        definition = _final_definition(resource)
        role = Stack.of(resource).resolve(resource.task_role_arn)
        if self._follows_log and definition.get("taskRoleArn") != camel_case(role):
            Annotations.of(resource).add_warning(
                "The task role was overridden. The permission to write the report "
                "(logs:PutLogEvents) is the former role's: give it to the new one."
            )
        refusal = refusal_of(definition, self._monitor_mb)
        return [*known_values((refusal or self._change_after_monitor(definition),))]

    def _change_after_monitor(self, definition: Mapping[str, Any]) -> str | None:
        """What was changed after the monitor was added, so that it is lost or works no more; None:
        nothing.
        """
        containers = {one["name"]: one for one in definition["containerDefinitions"]}
        changed = None
        if MONITOR_NAME not in containers:
            changed = f"The containers were replaced, and the container {MONITOR_NAME} is lost"
        elif self._batch not in containers:
            changed = f"The container {self._batch}, which the monitor follows, is not there"
        elif self._follows_log and _stream_of(containers[MONITOR_NAME]) != _stream_of(
            containers[self._batch]
        ):
            changed = (
                f"The log configuration of {self._batch} was changed, and the report would go to "
                "the former log group"
            )
        elif self._needs_pid_mode and not definition.get("pidMode"):
            changed = "pidMode was removed, without which the monitor reads no call stacks"
        return changed and f"{changed}: make the change before add_extension(TaskMonitor())."


class _TemplateOnly(StackSynthesizer):  # type: ignore[misc]  # the CDK is optional
    """Writes a stack's template, and nothing else."""

    def add_docker_image_asset(self, asset: DockerImageAssetSource) -> DockerImageAssetLocation:
        """Not called, as no assets are published."""
        raise NotImplementedError

    def add_file_asset(self, asset: FileAssetSource) -> FileAssetLocation:
        """Not called, as no assets are published."""
        raise NotImplementedError

    def synthesize(self, session: ISynthesisSession) -> None:
        """Write the template into the session's folder."""
        self._synthesize_template(session)


@jsii.implements(ISynthesisSession)
class _FolderSession:
    """The folder of a template."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._assembly = cx_api.CloudAssemblyBuilder(folder)

    @property
    def assembly(self) -> cx_api.CloudAssemblyBuilder:
        return self._assembly

    @property
    def outdir(self) -> str:
        return self._folder

    @property
    def validate_on_synth(self) -> bool:
        return False


def _final_definition(resource: ecs.CfnTaskDefinition) -> Mapping[str, Any]:
    """The definition in the form of the API, as the template has it.

    Only the template has the overrides of properties: the CDK gives no program another way to them.
    """
    stack = Stack.of(resource)
    with tempfile.TemporaryDirectory(prefix="task-profiler-cdk-") as folder:
        synthesizer = _TemplateOnly()
        synthesizer.bind(stack)
        synthesizer.synthesize(_FolderSession(folder))
        template = json.loads((Path(folder) / stack.template_file).read_text(encoding="utf-8"))
    properties = template["Resources"][stack.resolve(resource.logical_id)]["Properties"]
    return cast("Mapping[str, Any]", camel_case(properties))


def _stream_of(container: Mapping[str, Any]) -> Mapping[str, object]:
    """The place of a container's log, as far as two of one task can share it."""
    configuration = container.get("logConfiguration", {})
    options = configuration.get("options", {})
    names = ("awslogs-group", "awslogs-region", "awslogs-stream-prefix")
    return {"driver": configuration.get("logDriver"), **{name: options.get(name) for name in names}}


def _awslogs_options(batch: ecs.ContainerDefinition) -> dict[str, str]:
    """The options of the batch's log driver; empty for another driver than awslogs."""
    driver = batch.log_driver_config
    if driver is None or driver.log_driver != AWSLOGS:
        return {}
    return dict(driver.options or {})


def _share_processes(task_definition: ecs.TaskDefinition) -> None:
    """Set ``pidMode: task``, unless the owner has set another one."""
    resource = task_definition.node.default_child
    if task_definition.pid_mode is None and isinstance(resource, ecs.CfnTaskDefinition):
        resource.pid_mode = "task"


def _allow_put(
    task_definition: ecs.TaskDefinition,
    batch: ecs.ContainerDefinition,
    log_options: Mapping[str, str],
) -> None:
    """Give the task role the permission to write the report to the batch's log stream."""
    prefix = log_options.get("awslogs-stream-prefix")
    stream = f"{prefix}/{batch.container_name}/*" if prefix else "*"
    arn = Stack.of(task_definition).format_arn(
        service="logs",
        resource="log-group",
        resource_name=f"{log_options['awslogs-group']}:log-stream:{stream}",
        region=log_options.get("awslogs-region"),
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    statement = iam.PolicyStatement(actions=["logs:PutLogEvents"], resources=[arn])
    task_definition.add_to_task_role_policy(statement)
