"""The monitor's container in a task definition."""

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from profiler.core.aws_clients import service_domain
from profiler.core.ecs_terms import AWSLOGS, CONTAINER_VARIABLE, MONITOR_NAME, MONITOR_REPOSITORY
from profiler.core.version import __version__
from profiler.task_definitions.containers import LOG_GROUP_VARIABLE, SYS_PTRACE, Container

# When the monitor reads call stacks. "off" grants the access without the stacks, for the kinds of waiting.
StacksAccess = Literal["on", "moments", "off"]

RESERVATION_MB = 32
STACKS_VARIABLE = "TASK_PROFILER_STACKS"
# The label that remembers that pidMode was not set before the monitor was added.
PID_MODE_LABEL = "task-profiler.pid-mode"
PID_MODE_ADDED = "added"
DEFAULT_STREAM_PREFIX = "ecs"
_MEMORY_MB = 128
_MEMORY_WITH_GPU_MB = 192  # NVML's library and its Python module
_MEMORY_WITH_NEURON_MB = 512  # neuron-monitor, which ran out of memory with less
STOP_TIMEOUT_SECONDS = 120  # the maximum of Fargate
USER = "65532"
_ROOT = "root"  # by name: ECS's documentation allows only positive numbers
# An added capability has no effect for another user. By number: not every base image has a list of users.
PTRACE_USER = "0"
GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
# They would join the monitor's one-line records to one event, which no subscription filter matches.
MULTILINE_OPTIONS = frozenset({"awslogs-datetime-format", "awslogs-multiline-pattern"})
_REVISION_ARN = re.compile(r"arn:(aws[a-z-]*):ecs:([a-z0-9-]+):(\d{12}):task-definition/\S+", re.ASCII)


class OwnLog(Struct, frozen=True, kw_only=True):
    """The log group of the monitor's own log stream, into which the report is written.

    ``region`` None: not known. ``is_requested`` is False for a default.
    """

    group: str
    region: str | Mapping[str, object] | None = None
    stream_prefix: str = DEFAULT_STREAM_PREFIX
    is_requested: bool = False

    def configuration(self) -> Mapping[str, object]:
        region = {} if self.region is None else {"awslogs-region": self.region}
        options = {"awslogs-group": self.group, **region, "awslogs-stream-prefix": self.stream_prefix}
        return {"logDriver": AWSLOGS, "options": options}


class MonitorContainer(Struct, frozen=True, kw_only=True):
    """The monitor's container for a batch.

    TASK_PROFILER_CONTAINER is always the batch: at run time nothing else distinguishes it from other containers.
    Without ``own_log``, the report is written into the batch's log stream. Without ``stacks``, the monitor has no
    privileges. ``settings`` are further environment variables.
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
        return self.uses_neuron or self.stacks is not None

    @property
    def memory_mb(self) -> int:
        if self.uses_neuron:
            return _MEMORY_WITH_NEURON_MB
        return _MEMORY_WITH_GPU_MB if self.uses_gpu else _MEMORY_MB

    def definition(self) -> Mapping[str, object]:
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
            neuron = ["IPC_LOCK"] if self.uses_neuron else []
            ptrace = [SYS_PTRACE] if self.stacks is not None else []
            devices = [dict(device) for device in self.batch.neuron_devices]
            access = {"capabilities": {"add": [*neuron, *ptrace]}}
            definition["linuxParameters"] = {**access, "devices": devices} if devices else access
        if self.own_log is not None:
            definition["logConfiguration"] = self.own_log.configuration()
        elif self.batch.log_driver == AWSLOGS:
            options = {name: value for name, value in self.batch.log_options.items() if name not in MULTILINE_OPTIONS}
            definition["logConfiguration"] = {"logDriver": AWSLOGS, "options": options}
        return definition


def default_image(revision_arn: str | None, version: str = __version__) -> str:
    """``task-profiler:VERSION`` in the ECR registry of the revision's account and Region; without one, no registry."""
    match = _REVISION_ARN.fullmatch(revision_arn or "")
    if match is None:
        return f"{MONITOR_REPOSITORY}:{version}"
    partition, region, account = match.groups()
    return f"{account}.dkr.ecr.{region}.{service_domain(partition)}/{MONITOR_REPOSITORY}:{version}"
