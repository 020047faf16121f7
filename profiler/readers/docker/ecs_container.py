"""What Docker's documents say about a container that the ECS agent has started.

The inspect document holds the environment with its secrets, the command and options of any log driver. Only the values
named here leave this module; a name that is not here is not even decoded.
"""

import re
from functools import cache

import msgspec
from msgspec import Struct

from profiler.core.ecs_terms import AWSLOGS, AwslogsTarget
from profiler.core.json_fields import Json, count, integer, text
from profiler.core.timestamps import parse_ns
from profiler.readers import Unavailable

TASK_ARN_LABEL = "com.amazonaws.ecs.task-arn"
_METADATA_ADDRESS = "ECS_CONTAINER_METADATA_URI_V4="
_GPUS = "NVIDIA_VISIBLE_DEVICES="
_GPU = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]+|\d+")


class EcsLabels(Struct, frozen=True, kw_only=True):
    """The labels that the ECS agent gives to each container."""

    task_arn: str
    container_name: str
    cluster: str | None = None
    family: str | None = None
    revision: str | None = None


class ListedContainer(Struct, frozen=True, kw_only=True):
    """One entry of the list of containers, ended ones included."""

    docker_id: str
    labels: EcsLabels
    is_running: bool


class EcsContainer(Struct, frozen=True, kw_only=True):
    """A container's inspect document. Limits of 0 are None; ``exit_code`` is None until the container has ended.

    ``cpu_shares`` are the container's CPU units, Docker's minimum of 2 without any. ``log_target`` is None for another
    log driver than awslogs. ``gpus`` are UUIDs (or indexes), ``metadata_address`` is ECS_CONTAINER_METADATA_URI_V4.
    """

    docker_id: str
    labels: EcsLabels
    is_running: bool
    image: str | None = None
    image_digest: str | None = None
    created_ns: int | None = None
    started_ns: int | None = None
    finished_ns: int | None = None
    exit_code: int | None = None
    oom_killed: bool = False
    pid: int | None = None
    restart_count: int = 0
    memory_limit_bytes: int | None = None
    memory_reservation_bytes: int | None = None
    cpu_shares: int | None = None
    cgroup_parent: str = ""
    network_mode: str | None = None
    log_driver: str | None = None
    log_target: AwslogsTarget | None = None
    metadata_address: str | None = None
    gpus: tuple[str, ...] = ()


# All values have the type ``object``, so that a wrong type makes only this value absent.


class _Labels(Struct):
    task_arn: Json = msgspec.field(name=TASK_ARN_LABEL, default=None)
    container_name: Json = msgspec.field(name="com.amazonaws.ecs.container-name", default=None)
    cluster: Json = msgspec.field(name="com.amazonaws.ecs.cluster", default=None)
    family: Json = msgspec.field(name="com.amazonaws.ecs.task-definition-family", default=None)
    revision: Json = msgspec.field(name="com.amazonaws.ecs.task-definition-version", default=None)


class _Entry(Struct, rename="pascal"):
    id: Json = None
    labels: _Labels | None = None
    state: Json = None


class _State(Struct, rename="pascal"):
    running: Json = None
    pid: Json = None
    exit_code: Json = None
    started_at: Json = None
    finished_at: Json = None
    oom_killed: Json = msgspec.field(name="OOMKilled", default=None)


class _Config(Struct, rename="pascal"):
    image: Json = None
    env: list[str] | None = None
    labels: _Labels | None = None


class _LogOptions(Struct, rename="kebab"):
    awslogs_group: Json = None
    awslogs_stream: Json = None
    awslogs_region: Json = None


class _LogConfig(Struct, rename="pascal"):
    type: Json = None
    config: _LogOptions | None = None


class _HostConfig(Struct, rename="pascal"):
    memory: Json = None
    memory_reservation: Json = None
    cpu_shares: Json = None
    cgroup_parent: Json = None
    network_mode: Json = None
    log_config: _LogConfig | None = None


class _Inspected(Struct, rename="pascal"):
    id: Json = None
    created: Json = None
    image: Json = None
    restart_count: Json = None
    state: _State | None = None
    config: _Config | None = None
    host_config: _HostConfig | None = None


@cache
def _decoders() -> tuple[msgspec.json.Decoder[list[_Entry]], msgspec.json.Decoder[_Inspected]]:
    return msgspec.json.Decoder(list[_Entry]), msgspec.json.Decoder(_Inspected)


def decode_list(body: bytes) -> tuple[ListedContainer, ...] | Unavailable:
    """Decode ``/containers/json``; containers without the agent's labels are skipped."""
    try:
        entries = _decoders()[0].decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Unavailable("Docker's list of containers is not in the known format")  # the error may quote a value
    found = ((text(entry.id), _labels(entry.labels), entry.state) for entry in entries)
    return tuple(
        ListedContainer(docker_id=docker_id, labels=labels, is_running=state == "running")
        for docker_id, labels, state in found
        if docker_id is not None and labels is not None
    )


def decode_container(body: bytes) -> EcsContainer | Unavailable:
    """Decode ``/containers/ID/json``."""
    try:
        document = _decoders()[1].decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Unavailable("Docker's description of a container is not in the known format")
    state, config = document.state or _State(), document.config or _Config()
    host = document.host_config or _HostConfig()
    docker_id, labels = text(document.id), _labels(config.labels)
    if docker_id is None or labels is None:
        return Unavailable("the container has no labels of the ECS agent")
    is_running, finished_ns = state.running is True, parse_ns(state.finished_at)
    logs = host.log_config or _LogConfig()
    return EcsContainer(
        docker_id=docker_id,
        labels=labels,
        is_running=is_running,
        image=text(config.image),
        image_digest=text(document.image),
        created_ns=parse_ns(document.created),
        started_ns=parse_ns(state.started_at),
        finished_ns=None if is_running else finished_ns,
        exit_code=None if is_running or finished_ns is None else integer(state.exit_code),
        oom_killed=state.oom_killed is True,
        pid=count(state.pid) or None,
        restart_count=count(document.restart_count) or 0,
        memory_limit_bytes=count(host.memory) or None,
        memory_reservation_bytes=count(host.memory_reservation) or None,
        cpu_shares=count(host.cpu_shares) or None,
        cgroup_parent=text(host.cgroup_parent) or "",
        network_mode=text(host.network_mode),
        log_driver=text(logs.type),
        log_target=_log_target(logs),
        metadata_address=_variable(config.env, _METADATA_ADDRESS),
        gpus=_gpus(_variable(config.env, _GPUS)),
    )


def _labels(labels: _Labels | None) -> EcsLabels | None:
    labels = labels or _Labels()
    task_arn, container_name = text(labels.task_arn), text(labels.container_name)
    if task_arn is None or container_name is None:
        return None
    return EcsLabels(
        task_arn=task_arn,
        container_name=container_name,
        cluster=text(labels.cluster),
        family=text(labels.family),
        revision=text(labels.revision),
    )


def _log_target(logs: _LogConfig) -> AwslogsTarget | None:
    if logs.type != AWSLOGS:
        return None
    options = logs.config or _LogOptions()
    return AwslogsTarget(
        group=text(options.awslogs_group), stream=text(options.awslogs_stream), region=text(options.awslogs_region)
    )


def _variable(environment: list[str] | None, name: str) -> str | None:
    """The value of the only variable that is looked at; the last one counts, as for the process."""
    return next((entry[len(name) :] for entry in reversed(environment or ()) if entry.startswith(name)), None)


def _gpus(value: str | None) -> tuple[str, ...]:
    return tuple(word for word in (value or "").split(",") if _GPU.fullmatch(word))
