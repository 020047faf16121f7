"""The containers of a task definition: which is the batch, and the monitor's container made for it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from profiler.core.ecs import AWSLOGS, CONTAINER_VARIABLE, MONITOR_NAME, MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import count, mapping, mappings, text
from profiler.sources.ecs.batch import select_batch
from profiler.sources.ecs.task_metadata import ContainerMetadata, TaskMetadata

_NEURON_DEVICE = "/dev/neuron"
_GPU = "GPU"
_NEURON = "NeuronDevice"
_MB_PER_GB = 1024
_TASK_MEMORY = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(GB)?\s*", re.ASCII | re.IGNORECASE)


class Container(Struct, frozen=True, kw_only=True):
    """One container definition. Sizes in MiB, None where nothing is said; ``depends_on``: its dependsOn."""

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

    @property
    def uses_gpu(self) -> bool:
        """Whether it has a GPU requirement."""
        return _GPU in self.requirements

    @property
    def uses_neuron(self) -> bool:
        """Whether Neuron devices are mapped into it or required by it.

        A requirement of type InferenceAccelerator is none: that is Elastic Inference.
        """
        return bool(self.neuron_devices) or _NEURON in self.requirements


def read_containers(definition: Mapping[str, object]) -> tuple[Container, ...]:
    """The containers in their order."""
    return tuple(_container(raw) for raw in mappings(definition.get("containerDefinitions")))


def task_memory_mb(definition: Mapping[str, object]) -> float | None:
    """The task's memory in MiB, written as ``"2048"``, ``"2GB"`` or ``"2 GB"``; None if it has none."""
    match = _TASK_MEMORY.fullmatch(str(definition.get("memory")))
    if match is None:
        return None
    return float(match[1]) * (_MB_PER_GB if match[2] else 1) or None


def candidates(containers: Sequence[Container]) -> tuple[str, ...]:
    """The names among which the monitor chooses at run time, by its own rule (``profiler.sources.ecs.batch``)."""
    seen = tuple(
        ContainerMetadata(name=one.name, image=one.image, log_driver=one.log_driver)
        for one in containers
        if one.name != MONITOR_NAME
    )
    return select_batch(TaskMetadata(containers=seen), requested=None, own=None).names


def find_batch(containers: Sequence[Container], wanted: str | None) -> Container:
    """The wanted container, else the only essential one that was not injected.

    Raises TaskProfilerError with the names to choose from.
    """
    if wanted is not None:
        return _named_container(containers, wanted)
    names = candidates(containers)
    essential = [one for one in containers if one.name in names and one.essential and not one.is_log_router]
    if len(essential) > 1:
        listed = ", ".join(one.name for one in essential)
        raise TaskProfilerError(f"Several containers could be the batch ({listed}): choose one by --container.")
    if not essential:
        listed = ", ".join(names) or "none"
        raise TaskProfilerError(
            "No essential container of this task definition can be the batch "
            f"(others that are not injected by AWS: {listed}): choose one by --container."
        )
    return essential[0]


def depends_on_monitor(containers: Sequence[Container], name: str) -> bool:
    """Whether the container depends on the monitor, itself or through others."""
    edges = {one.name: one.depends_on for one in containers}
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in reached:
            reached.add(one)
            waiting.extend(edges.get(one, ()))
    return MONITOR_NAME in reached


def _named_container(containers: Sequence[Container], wanted: str) -> Container:
    others = {one.name: one for one in containers if one.name != MONITOR_NAME}
    if wanted not in others:
        listed = ", ".join(others) or "none"
        raise TaskProfilerError(
            f"--container names {wanted!r}, which cannot be the batch of this task definition: choose one of {listed}."
        )
    return others[wanted]


def _container(raw: Mapping[str, object]) -> Container:
    logs = mapping(raw.get("logConfiguration"))
    return Container(
        name=text(raw.get("name")) or "",
        image=text(raw.get("image")),
        essential=raw.get("essential") is not False,  # ECS takes it for true when it is not given
        is_log_router=isinstance(raw.get("firelensConfiguration"), dict),
        log_driver=text(logs.get("logDriver")),
        log_options=mapping(logs.get("options")),
        cpu_units=count(raw.get("cpu")) or 0,
        memory_mb=count(raw.get("memory")) or None,
        memory_reservation_mb=count(raw.get("memoryReservation")) or None,
        requirements=frozenset(str(one.get("type")) for one in mappings(raw.get("resourceRequirements"))),
        neuron_devices=tuple(_neuron_devices(raw)),
        depends_on=tuple(str(one.get("containerName")) for one in mappings(raw.get("dependsOn"))),
    )


def _neuron_devices(raw: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for device in mappings(mapping(raw.get("linuxParameters")).get("devices")):
        if str(device.get("hostPath")).startswith(_NEURON_DEVICE):
            yield device


RESERVATION_MB = 32
_MEMORY_MB = 128
_MEMORY_WITH_GPU_MB = 192  # NVML's library and its Python module
_MEMORY_WITH_NEURON_MB = 512  # neuron-monitor, which was killed for memory below that
_STOP_TIMEOUT_SECONDS = 120  # the most that Fargate allows
_USER = "65532"
_ROOT = "root"  # by name: ECS wants numbers to be positive
_GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
# They would glue the monitor's one-line records to one event that no filter matches.
_MULTILINE_OPTIONS = frozenset({"awslogs-datetime-format", "awslogs-multiline-pattern"})

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
        batch = {CONTAINER_VARIABLE: self.batch.name} if self.has_batch_variable else {}
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
        return f"{MONITOR_REPOSITORY}:{version}"
    partition, region, account = match.groups()
    domain = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
    return f"{account}.dkr.ecr.{region}.{domain}/{MONITOR_REPOSITORY}:{version}"
