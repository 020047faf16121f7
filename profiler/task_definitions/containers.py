"""The containers of a task definition, and their roles: which is the batch, which the monitor,
where do they log?
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from profiler.core.container_roles import (
    ContainerRoles,
    TaskContainer,
    container_roles,
    repository_of_image,
)
from profiler.core.ecs_terms import (
    AWSLOGS,
    CONTAINER_VARIABLE,
    MONITOR_NAME,
    MONITOR_REPOSITORY,
    AwslogsTarget,
    awslogs_target,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import (
    count_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.record.units import MB_PER_GB

# The monitor's setting with the report's log group.
LOG_GROUP_VARIABLE = "TASK_PROFILER_LOG_GROUP"
REPORT_STREAM_VARIABLE = "TASK_PROFILER_REPORT_STREAM"
SYS_PTRACE = "SYS_PTRACE"
# The spellings of root's user.
ROOT_USERS = ("0", "root", "0:0", "root:root")
_TASK_MEMORY = re.compile(
    r"\s*(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*(GB)?\s*", re.ASCII | re.IGNORECASE
)
# The placement in ECS's query language, and what negates it.
_ON_SYSTEM = re.compile(
    r"(?P<negation>\bnot\b\s*\(?\s*|!\s*\(?\s*)?attribute:ecs\.os-(?:type|family)\s*"
    r"(?:(?P<excludes>!=|not_equals|not_in|!~|not_matches)|==|equals|in|=~|matches)"
    r"(?P<systems>(?:(?!\b(?:and|or)\b)[^&|)])*)",
    re.IGNORECASE,
)
_ALTERNATIVE = re.compile(r"\|\||\bor\b", re.IGNORECASE)
_WITH_DRIVE = re.compile(r"[a-z]:[\\/]", re.IGNORECASE)  # a path of Windows: of Linux, one has a /
_WINDOWS_VOLUME = "fsxwindowsfileservervolumeconfiguration"
_WINDOWS_IMAGE = re.compile(
    r"mcr\.microsoft\.com/(?:windows|dotnet/framework)\b"
    r"|(?:docker\.io/)?microsoft/(?:aspnet|dotnet-framework|iis|nanoserver|windowsservercore)\b"
    # The tags of images for several systems, such as golang:1.22-windowsservercore-ltsc2022.
    r"|[^@]*:[^/@]*(?:windowsservercore|nanoserver)",
    re.IGNORECASE,
)


class DefinedContainer(TaskContainer, frozen=True, kw_only=True):
    """One container definition; None for fields that are not set."""

    command: tuple[str, ...] | None = ()
    essential: bool | None = True
    firelens: bool | None = False
    log_driver: str | None = None
    log_options: Mapping[str, object] = {}
    cpu_units: int = 0
    memory_mb: int | None = None
    memory_reservation_mb: int | None = None
    requirements: frozenset[str] = frozenset()
    neuron_devices: tuple[Mapping[str, object], ...] = ()
    depends_on: tuple[str, ...] = ()
    environment: Mapping[str, object] = {}
    user: str | None = None
    capabilities: frozenset[str] = frozenset()

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables whose values are texts."""
        return {name: value for name, value in self.environment.items() if isinstance(value, str)}

    @property
    def may_trace(self) -> bool:
        """Whether it may read other processes: an added capability has no effect for another
        user than root.
        """
        return self.user in ROOT_USERS and SYS_PTRACE in self.capabilities

    @property
    def own_log_group(self) -> str | None:
        """The log group that is set for a monitor's own stream, None if the report goes
        elsewhere.
        """
        return text_or_none(self.environment.get(LOG_GROUP_VARIABLE))

    @property
    def uses_gpu(self) -> bool:
        return "GPU" in self.requirements

    @property
    def uses_neuron(self) -> bool:
        """Whether it has Neuron devices, as mapped devices or by a resource requirement."""
        return bool(self.neuron_devices) or "NeuronDevice" in self.requirements


def read_containers(definition: Mapping[str, object]) -> tuple[DefinedContainer, ...]:
    """The containers, in the order of the definition."""
    return tuple(map(read_container, mappings_in_list(definition.get("containerDefinitions"))))


def find_monitor(
    containers: Sequence[DefinedContainer], image: str | None = None, batch: str | None = None
) -> DefinedContainer | None:
    """The monitor of the definition, None if it has none.

    Of several, it is the one for ``batch``, else the one with the monitor's name, else the last
    one. Raises TaskProfilerError if another program has the monitor's name.
    """
    monitors = find_monitors(containers, image)
    for monitor in reversed(monitors):
        if batch and is_monitor_for(monitor, batch):
            return monitor
    named = _container_named(containers, MONITOR_NAME)
    if named is None:
        return monitors[-1] if monitors else None
    if named not in monitors:
        raise TaskProfilerError(
            f"The container {MONITOR_NAME!r} is not Task Profiler's (its image is "
            f"{named.image or 'not set'}): rename that container, or name its image with "
            "--image if it is your build of the monitor."
        )
    return named


def find_monitors(
    containers: Sequence[DefinedContainer], image: str | None = None
) -> tuple[DefinedContainer, ...]:
    """All monitors of the definition, such as one for each of two batches, in its order."""
    monitors = []
    for container in containers:
        described = _with_known_image(container, image)
        if described.starts_monitor or _has_monitor_name(container):
            monitors.append(container)
    return tuple(monitors)


def _has_monitor_name(container: DefinedContainer) -> bool:
    """Whether it is a monitor by its name and something else that only a monitor has: own builds
    have images such as team-task-profiler, and the setting that add-monitor always writes shows a
    build of any other name. A container that runs a batch itself may have the setting, too; the
    monitor is never essential.
    """
    is_own_build = MONITOR_REPOSITORY in repository_of_image(container.image)
    runs_batch = container.essential or container.wraps_batch
    has_setting = CONTAINER_VARIABLE in container.environment and not runs_batch
    return container.name == MONITOR_NAME and (is_own_build or has_setting)


def other_monitors(
    containers: Sequence[DefinedContainer], monitor: DefinedContainer, image: str | None
) -> str:
    """The names of the other monitors of the definition."""
    names = [other.name for other in find_monitors(containers, image) if other is not monitor]
    return ", ".join(names)


def is_monitor_for(monitor: DefinedContainer, batch: str) -> bool:
    """Whether the monitor's setting names the container; without it, whether it starts after it."""
    named = monitor.environment.get(CONTAINER_VARIABLE)
    return named == batch or (named is None and batch in monitor.depends_on)


def monitor_of(
    definition: Mapping[str, object], image: str | None = None
) -> DefinedContainer | None:
    """The monitor of the definition; another program's container with its name does not count."""
    try:
        return find_monitor(read_containers(definition), image)
    except TaskProfilerError:
        return None


def roles_of(
    containers: Sequence[DefinedContainer],
    image: str | None = None,
    *,
    requested: str | None = None,
) -> ContainerRoles:
    """The role of each container; ``requested`` is the value of TASK_PROFILER_CONTAINER."""
    return container_roles(
        [_with_known_image(container, image) for container in containers], requested=requested
    )


def requested_batch(containers: Sequence[DefinedContainer]) -> str | None:
    """The container that the monitor's own setting names as the batch, whether it exists or not."""
    monitor = _container_named(containers, roles_of(containers).monitor)
    if monitor is None:
        return None
    return text_or_none(monitor.environment.get(CONTAINER_VARIABLE))


def _container_named(
    containers: Sequence[DefinedContainer], name: str | None
) -> DefinedContainer | None:
    for container in containers:
        if container.name == name:
            return container
    return None


def log_target(
    container: DefinedContainer, task_arn: str | None = None, container_id: str | None = None
) -> AwslogsTarget:
    """Where a container of a task logs; without the awslogs log driver, nothing is known.

    ``container_id`` is Docker's, ``runtimeId`` in ECS's event.
    """
    texts = {}
    if container.log_driver == AWSLOGS:
        texts = {name: str(value) for name, value in container.log_options.items() if value}
    return awslogs_target(texts, container.name, task_arn, container_id)


def _with_known_image(container: DefinedContainer, image: str | None) -> DefinedContainer:
    """The container, whose image is known if its repository is the one of ``image``, the user's
    own for the monitor.
    """
    if image and repository_of_image(container.image) == repository_of_image(image):
        return replace(container, image=MONITOR_REPOSITORY)
    return container


def calls_cloudwatch_logs(environment: Mapping[str, object]) -> bool:
    """Whether a monitor with these variables calls CloudWatch Logs: its log driver writes into
    its own stream.
    """
    return LOG_GROUP_VARIABLE not in environment and not prints_report(environment)


def prints_report(environment: Mapping[str, object]) -> bool:
    """Whether a monitor with these variables prints the report into its own stream."""
    return str(environment.get(REPORT_STREAM_VARIABLE)).strip().lower() == "monitor"


def task_memory_mb(definition: Mapping[str, object]) -> float | None:
    """The task's memory in MiB, written as ``"2048"``, ``"2GB"``, ``"2 GB"`` or ``".5 gb"``; None
    if it has none.
    """
    match = _TASK_MEMORY.fullmatch(str(definition.get("memory")))
    if not match:
        return None
    amount = float(match[1])
    if match[2]:
        amount *= MB_PER_GB
    return amount or None


def first_sign_of_windows(definition: Mapping[str, object]) -> str | None:
    """What says that the tasks run on Windows, in words; None: nothing does. On EC2 and on
    external instances, ``runtimePlatform`` is optional.
    """
    platform = mapping_or_empty(definition.get("runtimePlatform"))
    system = text_or_none(platform.get("operatingSystemFamily")) or ""
    if system.upper().startswith("WINDOWS"):
        return system
    shown = next(_signs_of_windows(definition), None)
    return None if shown is None else f"Windows, by {shown}"


def _signs_of_windows(definition: Mapping[str, object]) -> Iterator[str]:
    """What a definition has that tasks on Linux do not have, in words."""
    for constraint in mappings_in_list(definition.get("placementConstraints")):
        expression = text_or_none(constraint.get("expression")) or ""
        if _is_on_windows(expression):
            yield f"the placement {expression!r}"
    volumes = [*mappings_in_list(definition.get("volumes"))]
    # The API and CloudFormation write its name differently.
    if any(_WINDOWS_VOLUME in map(str.lower, volume) for volume in volumes):
        yield "its volume of FSx for Windows File Server"
    paths = [mapping_or_empty(volume.get("host")).get("sourcePath") for volume in volumes]
    for container in mappings_in_list(definition.get("containerDefinitions")):
        image = text_or_none(container.get("image")) or ""
        if _WINDOWS_IMAGE.match(image):
            yield f"the image {image}"
        paths.append(container.get("workingDirectory"))
        paths += [
            mount.get("containerPath") for mount in mappings_in_list(container.get("mountPoints"))
        ]
    for path in paths:
        if _WITH_DRIVE.match(text_or_none(path) or ""):
            yield f"the path {path}"


def _is_on_windows(expression: str) -> bool:
    """Whether a placement leaves Windows alone. Of alternatives, all that name a system have to."""
    named = [*map(_names_windows, _ON_SYSTEM.finditer(expression))]
    return any(named) and (all(named) or not _ALTERNATIVE.search(expression))


def _names_windows(placed: re.Match[str]) -> bool:
    """Whether a part of a placement leaves Windows alone: there are two systems."""
    systems = placed["systems"].lower()
    has_windows = "windows" in systems
    is_of_others = bool(placed["negation"]) is not bool(placed["excludes"])
    return has_windows is not ("linux" in systems) and has_windows is not is_of_others


def find_batch(containers: Sequence[DefinedContainer], requested: str | None) -> DefinedContainer:
    """The requested container, else the only essential one that AWS has not injected.

    Raises TaskProfilerError.
    """
    names = [container.name for container in containers if container.name != MONITOR_NAME]
    if not names:
        raise TaskProfilerError(
            "This definition has no container besides the monitor: give that of a batch; --image "
            "names the monitor's image, and not the batch's."
        )
    if requested is not None and requested not in names:
        raise TaskProfilerError(
            f"--container names {requested!r}, which cannot be the batch of this definition: "
            f"choose one of {', '.join(names)}."
        )
    chosen = _container_named(containers, requested)
    if chosen is not None:
        return chosen
    roles = roles_of(containers)
    essential = roles.candidates
    if len(essential) > 1:
        listed = ", ".join(essential)
        raise TaskProfilerError(
            f"Several containers could be the batch ({listed}): choose one with --container."
        )
    if not essential:
        others = [name for name in names if name not in roles.injected]
        raise TaskProfilerError(
            "No essential container of this definition can be the batch (others that are not "
            f"injected by AWS: {', '.join(others) or 'none'}): choose one with --container."
        )
    return next(container for container in containers if container.name == essential[0])


def read_container(raw: Mapping[str, object]) -> DefinedContainer:
    """One container definition."""
    logs = mapping_or_empty(raw.get("logConfiguration"))
    linux = mapping_or_empty(raw.get("linuxParameters"))
    return DefinedContainer(
        name=text_or_none(raw.get("name")) or "",
        image=text_or_none(raw.get("image")),
        essential=raw.get("essential") is not False,  # the default is true
        firelens=isinstance(raw.get("firelensConfiguration"), dict),
        log_driver=text_or_none(logs.get("logDriver")),
        log_options=mapping_or_empty(logs.get("options")),
        cpu_units=count_or_none(raw.get("cpu")) or 0,
        memory_mb=count_or_none(raw.get("memory")) or None,
        memory_reservation_mb=count_or_none(raw.get("memoryReservation")) or None,
        requirements=frozenset(
            str(item.get("type")) for item in mappings_in_list(raw.get("resourceRequirements"))
        ),
        neuron_devices=_neuron_devices(linux.get("devices")),
        depends_on=tuple(
            str(dependency.get("containerName"))
            for dependency in mappings_in_list(raw.get("dependsOn"))
        ),
        command=(*_list_of_texts(raw.get("entryPoint")), *_list_of_texts(raw.get("command"))),
        environment=environment_of(raw),
        user=text_or_none(raw.get("user")),
        capabilities=frozenset(
            _list_of_texts(mapping_or_empty(linux.get("capabilities")).get("add"))
        ),
    )


def _neuron_devices(devices: object) -> tuple[Mapping[str, object], ...]:
    """The mapped devices of a container that are AWS's accelerators."""
    neuron_devices = []
    for device in mappings_in_list(devices):
        if str(device.get("hostPath")).startswith("/dev/neuron"):
            neuron_devices.append(device)
    return tuple(neuron_devices)


def environment_of(container: Mapping[str, object]) -> dict[str, object]:
    """The environment variables of a container definition, by their names."""
    return {
        str(item.get("name")): item.get("value")
        for item in mappings_in_list(container.get("environment"))
    }


def _list_of_texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(map(str, value))
