"""Parses ``/task`` and ``/taskWithTags``, version 3 and 4, without invalid fields; finds the
batch if it is certain.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.container_roles import ContainerRoles, TaskContainer, container_roles
from profiler.core.ecs_terms import CPU_UNITS, FARGATE
from profiler.core.json_fields import (
    Json,
    count_or_none,
    integer_or_none,
    mapping_or_empty,
    mappings_in_list,
    positive_number,
    text_or_none,
)
from profiler.core.json_levels import within_levels
from profiler.core.optional_math import difference, known, known_values
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers import Unavailable

RUNNING = "RUNNING"
STOPPED = "STOPPED"
# A container without its own CPU units has 0, or Docker's minimum of 2 shares.
CPU_UNITS_UNSET = 2
_IMPOSSIBLE_MIB = 2**40
_TAGS = "TaskTags"
_FIRELENS_DRIVER = "awsfirelens"
_NO_TASK = "/task answered with something else than a task's JSON object: "
_NO_CONTAINER = "the endpoint's root answered with something else than a container's JSON object: "

_object_decoder = msgspec.json.Decoder(dict[str, Any])


class ContainerMetadata(Struct, frozen=True, kw_only=True):
    """A container of the task. ``vcpu_share`` is its own ``cpu``: a weight, never a limit.

    :func:`with_first_start_of` sets ``first_docker_id``, ``attempt_started_ns`` (the last start,
    where ``started_ns`` is the first one) and ``seen_restarts``. Only Docker shows when a signal
    stopped it, ``is_stop_denied``, that ECS did not send the signal that it got,
    ``was_out_of_memory``, that the kernel killed one of its processes, ``excludes_memory_kill``,
    that the kernel's count of kills had not risen when it had ended, and ``is_ending``, that it has
    ended and ECS may start it again.
    """

    name: str
    docker_id: str | None = None
    first_docker_id: str | None = None
    arn: str | None = None
    image: str | None = None
    image_digest: str | None = None
    type: str | None = None
    known_status: str | None = None
    desired_status: str | None = None
    exit_code: int | None = None
    started_ns: int | None = None
    attempt_started_ns: int | None = None
    finished_ns: int | None = None
    restart_count: int = 0
    seen_restarts: int = 0
    vcpu_share: float | None = None
    memory_limit_bytes: int | None = None
    log_driver: str | None = None
    log_options: Mapping[str, str] = {}
    network_mode: str | None = None
    has_restart_policy: bool = False
    stop_signalled_ns: int | None = None
    is_stop_denied: bool = False
    was_out_of_memory: bool = False
    excludes_memory_kill: bool = False
    is_ending: bool = False

    @property
    def followed_id(self) -> str:
        """What the container is followed by: the Docker id of its first attempt.

        Other tasks have its name, too.
        """
        return self.first_docker_id or self.docker_id or ""

    @property
    def is_stopped(self) -> bool:
        return self.known_status == STOPPED

    @property
    def shares_network(self) -> bool:
        """Whether its network counters cover the whole task, and are equal in all containers
        (awsvpc).
        """
        return self.network_mode == "awsvpc"


def runs_on_instance(launch_type: str | None) -> bool:
    """Whether a task is known to run on an instance, which it may share with other tasks."""
    return launch_type is not None and launch_type != FARGATE


class TaskMetadata(Struct, frozen=True, kw_only=True, dict=True):
    """The task; None for values that the endpoint does not return. It never returns ``batch``, the
    variables of AWS Batch, which only Docker shows.
    """

    arn: str | None = None
    cluster: str | None = None
    family: str | None = None
    revision: str | None = None
    availability_zone: str | None = None
    launch_type: str | None = None
    known_status: str | None = None
    desired_status: str | None = None
    vcpu_limit: float | None = None
    memory_limit_bytes: int | None = None
    pull_started_ns: int | None = None
    execution_stopped_ns: int | None = None
    ephemeral_storage_used_mib: int | None = None
    ephemeral_storage_size_mib: int | None = None
    service: str | None = None
    batch: Mapping[str, str] = {}
    containers: tuple[ContainerMetadata, ...] = ()

    @property
    def is_stop_requested(self) -> bool:
        return self.desired_status == STOPPED

    @cached_property
    def containers_by_name(self) -> Mapping[str, ContainerMetadata]:
        """The containers by name; of several with one name (after a restart) the one started
        last.
        """
        latest: dict[str, ContainerMetadata] = {}
        for container in self.containers:
            other = latest.setdefault(container.name, container)
            if (container.started_ns or 0) > (other.started_ns or 0):
                latest[container.name] = container
        return latest

    def container_or_name_only(self, name: str) -> ContainerMetadata:
        """The container, of which only the name is known if it is not listed."""
        return self.containers_by_name.get(name) or ContainerMetadata(name=name)

    def lists_container(self, name: str) -> bool:
        return name in self.containers_by_name


def decode_task(body: bytes) -> TaskMetadata | Unavailable:
    """Decode a response of ``/task``."""
    document = _decode_object(body, _NO_TASK)
    if isinstance(document, Unavailable):
        return document
    if not isinstance(document.get("Containers"), list):
        return Unavailable(f"{_NO_TASK}it has no list of containers")
    limits = mapping_or_empty(document.get("Limits"))
    storage = mapping_or_empty(document.get("EphemeralStorageMetrics"))
    containers = map(_container_metadata, mappings_in_list(document["Containers"]))
    return TaskMetadata(
        arn=text_or_none(document.get("TaskARN")),
        cluster=text_or_none(document.get("Cluster")),
        family=text_or_none(document.get("Family")),
        revision=text_or_none(document.get("Revision")),
        availability_zone=text_or_none(document.get("AvailabilityZone")),
        launch_type=text_or_none(document.get("LaunchType")),
        known_status=text_or_none(document.get("KnownStatus")),
        desired_status=text_or_none(document.get("DesiredStatus")),
        vcpu_limit=positive_number(limits.get("CPU")),
        memory_limit_bytes=_mebibytes_to_bytes(limits.get("Memory")),
        pull_started_ns=parse_ns(document.get("PullStartedAt")),
        execution_stopped_ns=parse_ns(document.get("ExecutionStoppedAt")),
        ephemeral_storage_used_mib=count_or_none(storage.get("Utilized")),
        ephemeral_storage_size_mib=count_or_none(storage.get("Reserved")),
        service=text_or_none(document.get("ServiceName")),
        containers=known_values(containers),
    )


def decode_container(body: bytes) -> ContainerMetadata | Unavailable:
    """The container that sent the request, in a response of the endpoint's root."""
    document = _decode_object(body, _NO_CONTAINER)
    if isinstance(document, Unavailable):
        return document
    return _container_metadata(document) or Unavailable(f"{_NO_CONTAINER}it has no name")


def decode_tags(body: bytes) -> Mapping[str, str] | Unavailable:
    """The task's own tags in ``/taskWithTags``.

    Without any, and after a refusal, ``TaskTags`` is absent.

    New agents list the reasons of a refusal in ``Errors``.
    """
    document = _decode_object(body, "")
    tags = None if isinstance(document, Unavailable) else document.get(_TAGS)
    if isinstance(document, Unavailable) or not isinstance(tags, dict | None):
        return Unavailable("/taskWithTags answered with something else than a task's JSON object")
    if tags is None:
        for error in mappings_in_list(document.get("Errors")):
            if error.get("ErrorField") in (None, _TAGS):
                # Only the code of the error: its message may quote anything.
                code = (text_or_none(error.get("ErrorCode")) or "no error code")[:100]
                if "AccessDenied" not in code:
                    return Unavailable(f"ECS did not return them ({code})")
                return Unavailable(
                    f"ECS refused the agent's request ({code}); allow ecs:ListTagsForResource on "
                    "the task to the agent's role (on EC2 the role of the container instance)"
                )
    return {name: value for name, value in (tags or {}).items() if name and isinstance(value, str)}


def _decode_object(body: bytes, head: str) -> Mapping[str, Json] | Unavailable:
    """The object; else the reason after its ``head``."""
    try:
        return _object_decoder.decode(within_levels(body))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unavailable(f"{head}{error}")


def _container_metadata(document: Mapping[str, Json]) -> ContainerMetadata | None:
    name = text_or_none(document.get("Name"))
    if name is None:
        return None
    limits = mapping_or_empty(document.get("Limits"))
    cpu_units = positive_number(limits.get("CPU"))
    options = mapping_or_empty(document.get("LogOptions"))
    networks = mappings_in_list(document.get("Networks"))
    return ContainerMetadata(
        name=name,
        docker_id=text_or_none(document.get("DockerId")),
        arn=text_or_none(document.get("ContainerARN")),
        image=text_or_none(document.get("Image")),
        image_digest=text_or_none(document.get("ImageID")),
        type=text_or_none(document.get("Type")),
        known_status=text_or_none(document.get("KnownStatus")),
        desired_status=text_or_none(document.get("DesiredStatus")),
        exit_code=integer_or_none(document.get("ExitCode")),
        started_ns=parse_ns(document.get("StartedAt")),
        finished_ns=parse_ns(document.get("FinishedAt")),
        restart_count=count_or_none(document.get("RestartCount")) or 0,
        has_restart_policy="RestartCount" in document,
        vcpu_share=cpu_units / CPU_UNITS if cpu_units and cpu_units > CPU_UNITS_UNSET else None,
        memory_limit_bytes=_mebibytes_to_bytes(limits.get("Memory")),
        log_driver=text_or_none(document.get("LogDriver")),
        log_options={key: value for key, value in options.items() if isinstance(value, str)},
        network_mode=next((text_or_none(network.get("NetworkMode")) for network in networks), None),
    )


def _mebibytes_to_bytes(value: Json) -> int | None:
    """A number of MiB in bytes; None if it is absent, 0, or more than any machine has."""
    mebibytes = positive_number(value)
    if mebibytes is None or mebibytes >= _IMPOSSIBLE_MIB:
        return None
    return int(mebibytes * 1024 * 1024)


def with_first_start_of(
    before: ContainerMetadata | None, container: ContainerMetadata
) -> ContainerMetadata:
    """The container with the first start that was seen, and all else of its last attempt;
    ``before``: as joined last.

    A restart in place shows in ``RestartCount`` (endpoint v4), a new Docker id or a later start: so
    agents differ.
    """
    started_ns = container.attempt_started_ns or container.started_ns
    before = before or replace(container, attempt_started_ns=started_ns)
    seen_restarts = before.seen_restarts
    attempt_started_ns = before.attempt_started_ns or started_ns
    if _is_new_attempt(before, container, started_ns):
        seen_restarts = seen_restarts + 1
        attempt_started_ns = started_ns
    return replace(
        container,
        first_docker_id=before.first_docker_id or container.docker_id,
        started_ns=before.started_ns or attempt_started_ns,
        attempt_started_ns=attempt_started_ns,
        seen_restarts=seen_restarts,
        # An instance's monitor may see the agent's count before Docker's new start.
        restart_count=max(seen_restarts, container.restart_count, before.restart_count),
    )


def _is_new_attempt(
    before: ContainerMetadata, container: ContainerMetadata, started_ns: int | None
) -> bool:
    if (
        None not in (before.docker_id, container.docker_id)
        and before.docker_id != container.docker_id
    ):
        return True
    # A start that differs by less is the same one: ECS restarts a container a minute after its
    # start at the earliest.
    return (difference(started_ns, before.attempt_started_ns) or 0) >= NS_PER_SECOND


class BatchSelection(Struct, frozen=True, kw_only=True):
    """The containers to report on, and the ``problem`` of the choice.

    ``is_present``: the task lists them now.
    """

    names: tuple[str, ...]
    problem: str = ""
    is_present: bool = True


def select_batch(
    task: TaskMetadata, *, requested: str | None, own: ContainerMetadata | None
) -> BatchSelection:
    """The requested container, else the only application container, else all.

    Without ``own``: the usual name's.
    """
    if requested is not None:
        present = sorted({container.name for container in task.containers})
        problem = (
            f"TASK_PROFILER_CONTAINER names {requested!r}, which is not a container of this task "
            f"(it has: {', '.join(present) or 'none'}); correct the name."
        )
        is_present = requested in present
        return BatchSelection(
            names=(requested,), problem="" if is_present else problem, is_present=is_present
        )
    names = _container_roles(task, own).candidates
    problem = (
        f"Several containers could be the batch ({', '.join(sorted(names))}): set "
        "TASK_PROFILER_CONTAINER to one of them; until then each gets a report in its own log "
        "stream."
    )
    if not names:
        problem = (
            "No container of this task can be the batch: the task holds only the monitor and "
            "containers injected by AWS; set TASK_PROFILER_CONTAINER to the name of the "
            "container to report on."
        )
    return BatchSelection(
        names=names, problem="" if len(names) == 1 else problem, is_present=bool(names)
    )


def monitor_container_of(task: TaskMetadata) -> ContainerMetadata | None:
    """The task's own monitor."""
    name = _container_roles(task, None).monitor
    return known(task.container_or_name_only, name)


def has_run_unlisted(task: TaskMetadata, own: ContainerMetadata | None) -> bool:
    """Whether a batch that was never listed has ended: all have started when a task is RUNNING.

    While another container of the task runs, it may be the batch under another name.
    """
    if task.known_status not in (RUNNING, STOPPED):
        return False
    roles = _container_roles(task, own)
    ignored = {roles.monitor, *roles.injected}
    return all(
        container.is_stopped
        for container in _other_containers(task, own)
        if container.name not in ignored
    )


def _container_roles(task: TaskMetadata, own: ContainerMetadata | None) -> ContainerRoles:
    drivers = {container.log_driver for container in task.containers}
    # Version 3 of the endpoint does not return the driver.
    may_have_router = _FIRELENS_DRIVER in drivers or drivers == {None}
    others = []
    for container in _other_containers(task, own):
        is_router = None
        if not may_have_router or container.log_driver == _FIRELENS_DRIVER:
            is_router = False
        is_injected = container.type not in (None, "NORMAL")
        others.append(
            TaskContainer(
                name=container.name,
                image=container.image,
                firelens=is_router,
                injected=is_injected,
            )
        )
    return container_roles(others)


def _other_containers(task: TaskMetadata, own: ContainerMetadata | None) -> list[ContainerMetadata]:
    def is_own(container: ContainerMetadata) -> bool:
        if own is None or None in (container.docker_id, own.docker_id):
            return own is not None and container.name == own.name
        return container.docker_id == own.docker_id

    return [container for container in task.containers if not is_own(container)]
