"""The monitor's container in a task definition: a new one, and the upgrade of an existing one.

The upgrade keeps what the owner added: also ``user`` and ``readonlyRootFilesystem``, unless the
monitor must be root.
"""

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from profiler.core.aws_clients import service_domain
from profiler.core.ecs_terms import (
    AWSLOGS,
    CONTAINER_VARIABLE,
    MONITOR_NAME,
    MONITOR_REPOSITORY,
    MONITOR_RESERVATION_MB,
    arn_part,
)
from profiler.core.json_fields import (
    count_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import known_members
from profiler.core.version import __version__
from profiler.task_definitions.containers import (
    LOG_GROUP_VARIABLE,
    ROOT_USERS,
    SYS_PTRACE,
    DefinedContainer,
    environment_of,
)

# When the monitor reads call stacks. "off" grants the access without the stacks, for the kinds of
# waiting.
CallStacksAccess = Literal["on", "moments", "off"]

CALL_STACKS_VARIABLE = "TASK_PROFILER_STACKS"
# The label that remembers that pidMode was not set before the monitor was added.
PID_MODE_LABEL = "task-profiler.pid-mode"
PID_MODE_ADDED = "added"
DEFAULT_STREAM_PREFIX = "ecs"
_MEMORY_MB = 128
_JOB_VCPU = "0.25"  # the least that AWS Batch is known to give a container on Fargate
_MEMORY_WITH_GPU_MB = 192  # NVML's library and its Python module
_MEMORY_WITH_NEURON_MB = 512  # neuron-monitor, which ran out of memory with less
STOP_TIMEOUT_SECONDS = 120  # the maximum of Fargate
USER = "65532"
_ROOT = "root"  # by name: ECS's documentation allows only positive numbers
# An added capability has no effect for another user. By number: not every base image has a list of
# users.
PTRACE_USER = "0"
GPU_VARIABLES = {"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "utility"}
# They would join the monitor's one-line records to one event, which no subscription filter matches.
MULTILINE_OPTIONS = frozenset({"awslogs-datetime-format", "awslogs-multiline-pattern"})


class OwnLog(Struct, frozen=True, kw_only=True):
    """The log group of the monitor's own log stream, into which the report is written; empty if it
    is written into the batch's.
    """

    group: str
    region: str | None = None
    stream_prefix: str = DEFAULT_STREAM_PREFIX
    is_requested: bool = False

    @property
    def log_options(self) -> Mapping[str, object]:
        options = {
            "awslogs-group": self.group,
            "awslogs-region": self.region,
            "awslogs-stream-prefix": self.stream_prefix,
        }
        return known_members(options)


NO_OWN_LOG: Final = OwnLog(group="")


class MonitorContainer(Struct, frozen=True, kw_only=True):
    """The monitor's container for a batch, which TASK_PROFILER_CONTAINER always names.

    Without ``own_log``, the report is written into the batch's log stream. Without ``stacks``, the
    monitor has no privileges. ``settings`` are further environment variables. ``is_of_job``: it is
    beside a job of AWS Batch, where containers have a share of the job and log to Batch's log group
    by default.
    """

    image: str
    batch: DefinedContainer
    uses_gpu: bool = False
    uses_neuron: bool = False
    own_log: OwnLog = NO_OWN_LOG
    stacks: CallStacksAccess | None = None
    settings: Mapping[str, str] = {}
    is_of_job: bool = False

    @property
    def is_root(self) -> bool:
        return self.uses_neuron or bool(self.stacks)

    @property
    def user(self) -> str:
        if self.uses_neuron:
            return _ROOT
        if self.stacks:
            return PTRACE_USER
        return USER

    @property
    def memory_mb(self) -> int:
        if self.uses_neuron:
            return _MEMORY_WITH_NEURON_MB
        if self.uses_gpu:
            return _MEMORY_WITH_GPU_MB
        return _MEMORY_MB

    @property
    def has_log_configuration(self) -> bool:
        """Whether the container names its log group."""
        if self.own_log.group:
            return self.own_log.is_requested or not self.is_of_job
        return self.batch.log_driver == AWSLOGS

    def container_definition(self) -> Mapping[str, object]:
        """The container definition, as RegisterTaskDefinition, or AWS Batch, takes it."""
        variables = self._environment_variables()
        definition: dict[str, object] = {
            "name": MONITOR_NAME,
            "image": self.image,
            "command": ["monitor"],
            "essential": False,
            "dependsOn": [{"containerName": self.batch.name, "condition": "START"}],
            "stopTimeout": STOP_TIMEOUT_SECONDS,
            **self._size_fields(),
            "user": self.user,
            "readonlyRootFilesystem": True,
            "environment": [{"name": name, "value": value} for name, value in variables.items()],
        }
        if self.is_root:
            definition["linuxParameters"] = self._linux_parameters()
        if self.has_log_configuration:
            options = self.own_log.log_options if self.own_log.group else self.batch.log_options
            definition["logConfiguration"] = {
                "logDriver": AWSLOGS,
                "options": _one_line_options(options),
            }
        return definition

    def _size_fields(self) -> Mapping[str, object]:
        if not self.is_of_job:
            return {"memoryReservation": MONITOR_RESERVATION_MB, "memory": self.memory_mb}
        size = {"VCPU": _JOB_VCPU, "MEMORY": str(self.memory_mb)}
        return {
            "resourceRequirements": [{"type": kind, "value": size[kind]} for kind in size],
        }

    def _environment_variables(self) -> Mapping[str, str]:
        variables = {CONTAINER_VARIABLE: self.batch.name}
        if self.own_log.group:
            variables[LOG_GROUP_VARIABLE] = self.own_log.group
        if self.uses_gpu:
            variables |= GPU_VARIABLES
        if self.stacks:
            variables[CALL_STACKS_VARIABLE] = self.stacks
        return {**variables, **self.settings}

    def _linux_parameters(self) -> Mapping[str, object]:
        """``linuxParameters``: the capabilities of root that it needs, and Neuron devices."""
        capabilities = []
        if self.uses_neuron:
            capabilities.append("IPC_LOCK")
        if self.stacks:
            capabilities.append(SYS_PTRACE)
        access: dict[str, object] = {"capabilities": {"add": capabilities}}
        if self.batch.neuron_devices:
            access["devices"] = [dict(device) for device in self.batch.neuron_devices]
        return access


def _one_line_options(options: Mapping[str, object]) -> Mapping[str, object]:
    """The options of awslogs without those that join lines."""
    return {name: value for name, value in options.items() if name not in MULTILINE_OPTIONS}


def default_image(revision_arn: str | None) -> str:
    """``task-profiler:VERSION`` in the ECR registry of the revision's account and Region;
    without one, no registry.
    """
    image = f"{MONITOR_REPOSITORY}:{__version__}"
    partition, region, account = (arn_part(revision_arn, position) for position in (1, 3, 4))
    if not (partition and region and account):
        return image
    return f"{account}.dkr.ecr.{region}.{service_domain(partition)}/{image}"


def upgrade_container(
    container: Mapping[str, object],
    present: MonitorContainer,
    *,
    has_image: bool,
    is_stricter: bool,
) -> tuple[Mapping[str, object], tuple[str, ...]]:
    """Upgrade the container of a monitor to ``present``, which would be added today.

    Returns a note for each change.

    Without ``has_image``, its image stays. If the batch depends on the monitor (``is_stricter``),
    ``essential`` and ``dependsOn`` stay.
    """
    kept_fields: set[str] = set()
    if not has_image:
        kept_fields.add("image")
    if is_stricter:
        kept_fields |= {"essential", "dependsOn"}
    changed = {**container}
    notes: list[str] = []
    for field, added_today in present.container_definition().items():
        if field in kept_fields:
            continue
        old = container.get(field)
        new = _upgraded_value(field, container, added_today, present)
        if new != old:
            changed[field] = new
            notes.append(_change_note(field, old, new))
    return changed, tuple(notes)


def _upgraded_value(
    field: str, container: Mapping[str, object], added_today: object, present: MonitorContainer
) -> object:
    """The new value of the field; ``added_today`` is a new monitor's."""
    old = container.get(field)
    if old is None or field in ("image", "essential"):
        return added_today
    new = old
    match field:
        case "stopTimeout" | "memoryReservation" | "memory":
            new = _larger_number(old, added_today)
        case "command":
            if not isinstance(old, list) or "monitor" not in old:
                new = added_today
        case "dependsOn":
            new = _with_dependencies(old, added_today, present.batch.name)
        case "environment":
            new = _with_variables(
                list(mappings_in_list(old)), list(mappings_in_list(added_today)), present
            )
        case "linuxParameters":
            new = _with_access(mapping_or_empty(old), mapping_or_empty(added_today))
        case "logConfiguration":
            new = _upgraded_log(
                container, mapping_or_empty(old), mapping_or_empty(added_today), present
            )
        case "user":
            new = added_today if present.is_root and old not in ROOT_USERS else old
    return new


def _larger_number(old: object, new: object) -> object:
    return new if (count_or_none(old) or 0) < (count_or_none(new) or 0) else old


def _with_dependencies(old: object, new: object, batch: str) -> object:
    """The owner's dependencies, of which the one on the batch is the monitor's."""
    dependencies = list(mappings_in_list(old))
    (start,) = mappings_in_list(new)
    if start in dependencies:
        return old
    others = [item for item in dependencies if item.get("containerName") != batch]
    return [*others, start]


def _with_variables(
    old: list[Mapping[str, object]], new: list[Mapping[str, object]], present: MonitorContainer
) -> list[Mapping[str, object]]:
    """The owner's variables with the new ones; the owner's values stay for GPUs and for a log
    group by default.
    """
    variables = {str(variable.get("name")): variable for variable in old}
    kept_names = variables.keys() & (GPU_VARIABLES.keys() - present.settings.keys())
    has_place = LOG_GROUP_VARIABLE in variables or "TASK_PROFILER_LOG_STREAM" in variables
    if has_place and not present.own_log.is_requested:
        kept_names.add(LOG_GROUP_VARIABLE)
    for variable in new:
        name = str(variable["name"])
        if name not in kept_names:
            variables[name] = {**variables.get(name, {}), **variable}
    return list(variables.values())


def _with_access(old: Mapping[str, object], new: Mapping[str, object]) -> Mapping[str, object]:
    """The owner's ``linuxParameters`` with the monitor's capabilities and devices."""
    capabilities = mapping_or_empty(old.get("capabilities"))
    added = _with_new_items(
        capabilities.get("add"), mapping_or_empty(new.get("capabilities")).get("add")
    )
    devices = _with_new_items(old.get("devices"), new.get("devices"))
    changed: dict[str, object] = {**old, "capabilities": {**capabilities, "add": added}}
    if devices:
        changed["devices"] = devices
    return changed


def _with_new_items(old: object, new: object) -> list[object]:
    """The items of the old list, and the new ones that it lacks; anything else is no list."""
    joined: list[object] = list(old) if isinstance(old, list) else []
    if not isinstance(new, list):
        return joined
    return joined + [item for item in new if item not in joined]


def _upgraded_log(
    container: Mapping[str, object],
    old: Mapping[str, object],
    new: Mapping[str, object],
    present: MonitorContainer,
) -> Mapping[str, object]:
    """The owner's log configuration, without options that join lines, unless the report would
    not arrive by it.
    """
    own_log = present.own_log
    options = mapping_or_empty(old.get("options"))
    if own_log.group:
        is_awslogs = old.get("logDriver") == AWSLOGS
        if own_log.is_requested:
            arrives = is_awslogs and text_or_none(options.get("awslogs-group")) == own_log.group
        else:
            arrives = is_awslogs or "TASK_PROFILER_LOG_STREAM" in environment_of(container)
        if not arrives:
            return new
    if not MULTILINE_OPTIONS & set(options):
        return old
    return {**old, "options": _one_line_options(options)}


def _change_note(field: str, old: object, new: object) -> str:
    if old is None:
        return f"The monitor gets {field}."
    if isinstance(new, str | int):
        return f"The monitor's {field} changes from {_as_written(old)} to {_as_written(new)}."
    return (
        f"The monitor's {field} changes: {', '.join(_difference_texts(old, new)) or 'its order'}."
    )


def _as_written(value: object) -> object:
    """A value as a definition has it: true and false are JSON's words."""
    return str(value).lower() if isinstance(value, bool) else value


def _difference_texts(old: object, new: object) -> list[str]:
    """What differs in an object or a list; nothing if a template has a function in place of it."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [str(name) for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if not (isinstance(old, list) and isinstance(new, list)):
        return []
    added = [item for item in new if item not in old]
    removed = [item for item in old if item not in new]
    names = []
    for item in added or removed:
        fields = mapping_or_empty(item)
        names.append(str(fields.get("name") or fields.get("containerName") or item))
    return names
