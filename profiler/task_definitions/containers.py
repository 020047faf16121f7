"""The containers of a task definition: reads them, selects the batch, and creates the monitor's container."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from profiler.core.container_roles import ContainerRoles, TaskContainer, container_roles, repository
from profiler.core.ecs_terms import AWSLOGS, CONTAINER_VARIABLE, MONITOR_NAME, MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import count, mapping, mappings, text
from profiler.core.version import __version__

# When the monitor reads call stacks. "off" grants the access without the stacks, for the kinds of waiting.
StacksAccess = Literal["on", "moments", "off"]

RESERVATION_MB = 32
# The monitor's setting that names the log group of the report.
LOG_GROUP_VARIABLE = "TASK_PROFILER_LOG_GROUP"
STACKS_VARIABLE = "TASK_PROFILER_STACKS"
SYS_PTRACE = "SYS_PTRACE"
# The label that remembers that pidMode was not set before the monitor was added.
PID_MODE_LABEL = "task-profiler.pid-mode"
PID_MODE_ADDED = "added"
DEFAULT_STREAM_PREFIX = "ecs"
_MEMORY_MB = 128
_MEMORY_WITH_GPU_MB = 192  # NVML's library and its Python module
_MEMORY_WITH_NEURON_MB = 512  # neuron-monitor, which ran out of memory with less
# The spellings of root's user.
ROOT_USERS = ("0", "root", "0:0", "root:root")
STOP_TIMEOUT_SECONDS = 120  # the maximum of Fargate
USER = "65532"
_ROOT = "root"  # by name: ECS's documentation allows only positive numbers
# An added capability has no effect for another user. By number: not every base image has a list of users.
PTRACE_USER = "0"
GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
# They would join the monitor's one-line records to one event, which no subscription filter matches.
MULTILINE_OPTIONS = frozenset({"awslogs-datetime-format", "awslogs-multiline-pattern"})
_REVISION_ARN = re.compile(r"arn:(aws[a-z-]*):ecs:([a-z0-9-]+):(\d{12}):task-definition/\S+", re.ASCII)
_NEURON_DEVICE = "/dev/neuron"
_GPU = "GPU"
_NEURON = "NeuronDevice"
_MB_PER_GB = 1024
_TASK_MEMORY = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(GB)?\s*", re.ASCII | re.IGNORECASE)


class Container(Struct, frozen=True, kw_only=True):
    """One container definition; None for fields that are not set."""

    name: str
    image: str | None = None
    essential: bool = True
    is_log_router: bool = False
    log_driver: str | None = None
    log_options: Mapping[str, object] = {}
    cpu_units: int = 0
    memory_mb: int | None = None
    memory_reservation_mb: int | None = None
    requirements: frozenset[str] = frozenset()
    neuron_devices: tuple[Mapping[str, object], ...] = ()
    depends_on: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: Mapping[str, object] = {}
    user: str | None = None
    capabilities: frozenset[str] = frozenset()
    is_privileged: bool = False

    @property
    def may_trace(self) -> bool:
        """Whether it may read other processes: an added capability has no effect for another user than root."""
        return self.user in ROOT_USERS and (self.is_privileged or bool(self.capabilities & {SYS_PTRACE, "ALL"}))

    @property
    def wraps_batch(self) -> bool:
        """Whether it runs a batch by ``task-profiler run``."""
        return _as_task_container(self, None).wraps_batch

    @property
    def uses_gpu(self) -> bool:
        """Whether it has a GPU requirement."""
        return _GPU in self.requirements

    @property
    def uses_neuron(self) -> bool:
        """Whether it has Neuron devices, as mapped devices or by a resource requirement.

        A requirement of type InferenceAccelerator does not count: it is for Elastic Inference.
        """
        return bool(self.neuron_devices) or _NEURON in self.requirements


def read_containers(definition: Mapping[str, object]) -> tuple[Container, ...]:
    """The containers, in the order of the definition."""
    return tuple(_container(raw) for raw in mappings(definition.get("containerDefinitions")))


def find_monitor(containers: Sequence[Container], image: str | None = None) -> Container | None:
    """The monitor of the definition, None if it has none.

    Args:
        containers: The containers of the definition.
        image: The monitor's image, if its repository has a name of the user's own.

    Raises:
        TaskProfilerError: if a container of another program has the monitor's name.
    """
    name = _roles(containers, image).monitor
    monitor = next((container for container in containers if container.name == name), None)
    if monitor is None:
        return None
    described = _as_task_container(monitor, image)
    # Own builds have names such as team-task-profiler.
    is_ours = described.starts_monitor or MONITOR_REPOSITORY in repository(described.image)
    if not is_ours:
        raise TaskProfilerError(
            f"The container {MONITOR_NAME!r} is not Task Profiler's (its image is {monitor.image or 'not set'}): "
            "rename that container, or name its image with --image if it is your build of the monitor."
        )
    return monitor


def has_monitor(definition: Mapping[str, object], image: str | None = None) -> bool:
    """Whether the definition has the monitor; another program's container with its name is none."""
    try:
        return find_monitor(read_containers(definition), image) is not None
    except TaskProfilerError:
        return False


def _roles(containers: Sequence[Container], image: str | None = None) -> ContainerRoles:
    return container_roles([_as_task_container(container, image) for container in containers])


def _as_task_container(container: Container, image: str | None) -> TaskContainer:
    """Describe a container. ``image`` is the monitor's image, if its repository has a name of the user's own."""
    is_own_build = image is not None and repository(container.image) == repository(image)
    return TaskContainer(
        name=container.name,
        image=MONITOR_REPOSITORY if is_own_build else container.image,
        command=container.command,
        essential=container.essential,
        firelens=container.is_log_router,
    )


def own_log_group(definition: Mapping[str, object], image: str | None = None) -> str | None:
    """The log group into whose stream of the monitor the report goes, None if it goes to the batch's stream."""
    monitor = find_monitor(read_containers(definition), image)
    return None if monitor is None else text(monitor.environment.get(LOG_GROUP_VARIABLE))


def task_memory_mb(definition: Mapping[str, object]) -> float | None:
    """The task's memory in MiB, written as ``"2048"``, ``"2GB"`` or ``"2 GB"``; None if it has none."""
    match = _TASK_MEMORY.fullmatch(str(definition.get("memory")))
    if match is None:
        return None
    return float(match[1]) * (_MB_PER_GB if match[2] else 1) or None


def find_batch(containers: Sequence[Container], requested: str | None) -> Container:
    """The requested container, else the only essential one that AWS has not injected.

    Raises:
        TaskProfilerError: if there is no such container, with the names to choose from.
    """
    if requested is not None:
        return _named_container(containers, requested)
    roles = _roles(containers)
    essential = roles.candidates
    if len(essential) > 1:
        listed = ", ".join(essential)
        raise TaskProfilerError(f"Several containers could be the batch ({listed}): choose one with --container.")
    if not essential:
        others = [container.name for container in containers if container.name not in (MONITOR_NAME, *roles.injected)]
        listed = ", ".join(others) or "none"
        raise TaskProfilerError(
            "No essential container of this task definition can be the batch "
            f"(others that are not injected by AWS: {listed}): choose one with --container."
        )
    return next(container for container in containers if container.name == essential[0])


def depends_on(containers: Sequence[Container], name: str, other: str) -> bool:
    """Whether the container depends on the other one, directly or indirectly."""
    edges = {container.name: container.depends_on for container in containers}
    reached: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current not in reached:
            reached.add(current)
            pending.extend(edges.get(current, ()))
    return other in reached - {name}


def _named_container(containers: Sequence[Container], requested: str) -> Container:
    others = {container.name: container for container in containers if container.name != MONITOR_NAME}
    if requested not in others:
        listed = ", ".join(others) or "none"
        raise TaskProfilerError(
            f"--container names {requested!r}, which cannot be the batch of this task definition: choose one of "
            f"{listed}."
        )
    return others[requested]


def _container(raw: Mapping[str, object]) -> Container:
    logs = mapping(raw.get("logConfiguration"))
    return Container(
        name=text(raw.get("name")) or "",
        image=text(raw.get("image")),
        essential=raw.get("essential") is not False,  # the default is true
        is_log_router=isinstance(raw.get("firelensConfiguration"), dict),
        log_driver=text(logs.get("logDriver")),
        log_options=mapping(logs.get("options")),
        cpu_units=count(raw.get("cpu")) or 0,
        memory_mb=count(raw.get("memory")) or None,
        memory_reservation_mb=count(raw.get("memoryReservation")) or None,
        requirements=frozenset(str(item.get("type")) for item in mappings(raw.get("resourceRequirements"))),
        neuron_devices=tuple(_neuron_devices(raw)),
        depends_on=tuple(str(dependency.get("containerName")) for dependency in mappings(raw.get("dependsOn"))),
        command=(*_words(raw.get("entryPoint")), *_words(raw.get("command"))),
        environment=environment_of(raw),
        user=text(raw.get("user")),
        capabilities=frozenset(_words(mapping(mapping(raw.get("linuxParameters")).get("capabilities")).get("add"))),
        is_privileged=raw.get("privileged") is True,
    )


def environment_of(container: Mapping[str, object]) -> dict[str, object]:
    """The environment variables of a container definition, by their names."""
    return {str(item.get("name")): item.get("value") for item in mappings(container.get("environment"))}


def _words(value: object) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else ()


def _neuron_devices(raw: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for device in mappings(mapping(raw.get("linuxParameters")).get("devices")):
        if str(device.get("hostPath")).startswith(_NEURON_DEVICE):
            yield device


class OwnLog(Struct, frozen=True, kw_only=True):
    """The log group of the monitor's own log stream, into which the report is written.

    ``region`` None: not known. ``is_requested`` is False for a default.
    """

    group: str
    region: str | Mapping[str, object] | None = None
    stream_prefix: str = DEFAULT_STREAM_PREFIX
    is_requested: bool = False

    def configuration(self) -> Mapping[str, object]:
        """The logConfiguration of the monitor."""
        region = {} if self.region is None else {"awslogs-region": self.region}
        options = {"awslogs-group": self.group, **region, "awslogs-stream-prefix": self.stream_prefix}
        return {"logDriver": AWSLOGS, "options": options}


class MonitorContainer(Struct, frozen=True, kw_only=True):
    """The monitor's container for a batch.

    TASK_PROFILER_CONTAINER always names the batch: at run time nothing else tells it from other containers. Without
    ``own_log``, the report is written into the batch's log stream. Without ``stacks``, the monitor has no privileges.
    ``settings`` are further environment variables.
    """

    image: str
    batch: Container
    uses_gpu: bool = False
    uses_neuron: bool = False
    own_log: OwnLog | None = None
    stacks: StacksAccess | None = None
    settings: Mapping[str, str] = {}

    @property
    def is_root(self) -> bool:
        """Whether the monitor must be root."""
        return self.uses_neuron or self.stacks is not None

    @property
    def memory_mb(self) -> int:
        """The hard memory limit in MiB."""
        if self.uses_neuron:
            return _MEMORY_WITH_NEURON_MB
        return _MEMORY_WITH_GPU_MB if self.uses_gpu else _MEMORY_MB

    def definition(self) -> Mapping[str, object]:
        """The container definition for RegisterTaskDefinition."""
        log_group = {} if self.own_log is None else {LOG_GROUP_VARIABLE: self.own_log.group}
        variables = {CONTAINER_VARIABLE: self.batch.name} | log_group | (GPU_VARIABLES if self.uses_gpu else {})
        if self.stacks is not None:
            variables[STACKS_VARIABLE] = self.stacks
        variables |= self.settings
        definition: dict[str, object] = {
            "name": MONITOR_NAME,
            "image": self.image,
            "command": ["monitor"],
            "essential": False,
            "dependsOn": [{"containerName": self.batch.name, "condition": "START"}],
            "stopTimeout": STOP_TIMEOUT_SECONDS,
            "memoryReservation": RESERVATION_MB,
            "memory": self.memory_mb,
            "user": _ROOT if self.uses_neuron else PTRACE_USER if self.stacks is not None else USER,
            "readonlyRootFilesystem": True,
            "environment": [{"name": name, "value": value} for name, value in variables.items()],
        }
        if self.is_root:
            definition["linuxParameters"] = self._access()
        if self.own_log is not None:
            definition["logConfiguration"] = self.own_log.configuration()
        elif self.batch.log_driver == AWSLOGS:
            options = {name: value for name, value in self.batch.log_options.items() if name not in MULTILINE_OPTIONS}
            definition["logConfiguration"] = {"logDriver": AWSLOGS, "options": options}
        return definition

    def _access(self) -> dict[str, object]:
        neuron = ["IPC_LOCK"] if self.uses_neuron else []
        ptrace = [SYS_PTRACE] if self.stacks is not None else []
        access: dict[str, object] = {"capabilities": {"add": [*neuron, *ptrace]}}
        if self.batch.neuron_devices:
            access["devices"] = [dict(device) for device in self.batch.neuron_devices]
        return access


def default_image(revision_arn: str | None, version: str = __version__) -> str:
    """The default image: ``task-profiler:VERSION`` in the ECR registry of the definition's account and Region.

    Args:
        revision_arn: The ARN of the definition's revision. Without one, the image has no registry.
        version: The image's tag.
    """
    match = _REVISION_ARN.fullmatch(revision_arn or "")
    if match is None:
        return f"{MONITOR_REPOSITORY}:{version}"
    partition, region, account = match.groups()
    domain = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{domain}/{MONITOR_REPOSITORY}:{version}"
