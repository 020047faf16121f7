"""The container definition of the monitor, made for a batch. Pure."""

import re
from collections.abc import Mapping

from msgspec import Struct

from profiler.taskdef.containers import AWSLOGS, MONITOR_NAME, Container

RESERVATION_MB = 32
_MEMORY_MB = 128
_MEMORY_WITH_GPU_MB = 192  # NVML's library and its Python module
_MEMORY_WITH_NEURON_MB = 512  # neuron-monitor, which was killed for memory below that
_STOP_TIMEOUT_SECONDS = 120  # the most that Fargate allows
_USER = "65532"
_ROOT = "root"  # by name: ECS wants numbers to be positive
_BATCH_VARIABLE = "TASK_PROFILER_CONTAINER"
_GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
# They would glue the monitor's one-line records to one event that no filter matches.
_MULTILINE_OPTIONS = frozenset({"awslogs-datetime-format", "awslogs-multiline-pattern"})

_REPOSITORY = "task-profiler"
_REVISION_ARN = re.compile(r"arn:(aws[a-z-]*):ecs:([a-z0-9-]+):(\d{12}):task-definition/\S+", re.ASCII)


class MonitorContainer(Struct, frozen=True, kw_only=True):
    """What the container is made for; ``has_batch_variable``: the monitor has to be told which one is the batch."""

    image: str
    batch: Container
    has_batch_variable: bool
    uses_gpu: bool
    uses_neuron: bool

    @property
    def memory_mb(self) -> int:
        """Its hard limit in MiB."""
        if self.uses_neuron:
            return _MEMORY_WITH_NEURON_MB
        return _MEMORY_WITH_GPU_MB if self.uses_gpu else _MEMORY_MB

    def definition(self) -> Mapping[str, object]:
        """The container as RegisterTaskDefinition takes it."""
        definition: dict[str, object] = {
            "name": MONITOR_NAME,
            "image": self.image,
            "command": ["monitor"],
            "essential": False,
            "dependsOn": [{"containerName": self.batch.name, "condition": "START"}],
            "stopTimeout": _STOP_TIMEOUT_SECONDS,
            "memoryReservation": RESERVATION_MB,
            "memory": self.memory_mb,
            "user": _ROOT if self.uses_neuron else _USER,
            "readonlyRootFilesystem": True,
        }
        environment = self._environment()
        if environment:
            definition["environment"] = [{"name": name, "value": value} for name, value in environment.items()]
        if self.uses_neuron:
            definition["linuxParameters"] = self._neuron_access()
        if self.batch.log_driver == AWSLOGS:
            options = {name: value for name, value in self.batch.log_options.items() if name not in _MULTILINE_OPTIONS}
            definition["logConfiguration"] = {"logDriver": AWSLOGS, "options": options}
        return definition

    def _environment(self) -> dict[str, str]:
        batch = {_BATCH_VARIABLE: self.batch.name} if self.has_batch_variable else {}
        return batch | (_GPU_VARIABLES if self.uses_gpu else {})

    def _neuron_access(self) -> dict[str, object]:
        access: dict[str, object] = {"capabilities": {"add": ["IPC_LOCK"]}}
        if self.batch.neuron_devices:
            access["devices"] = [dict(device) for device in self.batch.neuron_devices]
        return access


def default_image(revision_arn: str | None, version: str) -> str:
    """The image when none was named: ``task-profiler:VERSION`` in the registry of the definition's account and region.

    For a definition that does not say where it is registered, the bare name.
    """
    match = _REVISION_ARN.fullmatch(revision_arn or "")
    if match is None:
        return f"{_REPOSITORY}:{version}"
    partition, region, account = match.groups()
    domain = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{domain}/{_REPOSITORY}:{version}"
