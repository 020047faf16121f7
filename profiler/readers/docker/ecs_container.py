"""What Docker's documents say about a container that the ECS agent has started.

They hold the environment with its secrets, and options of any log driver. Only what is named here
leaves this module.
"""

import re
import signal
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from profiler.core.ecs_terms import BATCH_VARIABLES, MPS_VARIABLES
from profiler.core.json_fields import (
    Json,
    count_or_none,
    decoded_or_none,
    integer_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import all_known, known_members
from profiler.core.timestamps import parse_ns
from profiler.readers import Unavailable

_LABELS = "com.amazonaws.ecs."
TASK_ARN_LABEL = f"{_LABELS}task-arn"
_LOG_OPTIONS = ("awslogs-group", "awslogs-stream", "awslogs-region")
_RUNNING = ("running", "paused", "restarting")
_GPU = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]+|\d+")
# Docker's spelling of a signal: SIGTERM, TERM, 15, SIGRTMIN+3.
_REAL_TIME_SIGNAL = re.compile(r"RT(MIN\+|MAX-)(\d{1,2})")
_MAX_SIGNAL = 64


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
    is_running: bool
    task_arn: str = ""


class EcsContainer(Struct, frozen=True, kw_only=True):
    """A container's inspect document.

    Limits of 0 are None; ``exit_code`` is None until the container has ended.

    ``cpu_shares`` are the container's CPU units, Docker's minimum of 2 without any. ``log_options``
    are of awslogs. ``gpus`` are UUIDs (or indexes), ``mps`` the variables of MPS.
    ``metadata_address`` is ECS_CONTAINER_METADATA_URI_V4. ``stop_signal`` is what a stop of the
    container sends first. ``batch`` are AWS Batch's variables.
    """

    docker_id: str
    labels: EcsLabels
    is_running: bool
    image: str | None = None
    image_digest: str | None = None
    started_ns: int | None = None
    finished_ns: int | None = None
    exit_code: int | None = None
    stop_signal: int = signal.SIGTERM
    oom_killed: bool = False
    pid: int | None = None
    memory_limit_bytes: int | None = None
    cpu_shares: int | None = None
    cgroup_parent: str = ""
    network_mode: str | None = None
    log_driver: str | None = None
    log_options: Mapping[str, str] = {}
    metadata_address: str | None = None
    gpus: tuple[str, ...] = ()
    mps: Mapping[str, str] = {}
    batch: Mapping[str, str] = {}


def decode_list(body: bytes) -> tuple[ListedContainer, ...] | Unavailable:
    """Decode ``/containers/json``. Containers without the agent's labels are skipped."""
    document = decoded_or_none(msgspec.json.decode, body)
    if not isinstance(document, list):
        return Unavailable("Docker's list of containers is not a JSON array")
    containers = []
    for entry in mappings_in_list(document):
        docker_id = text_or_none(entry.get("Id"))
        labels = _ecs_labels(entry.get("Labels"))
        if docker_id is None or labels is None:
            continue
        is_running = entry.get("State") in _RUNNING
        containers.append(
            ListedContainer(docker_id=docker_id, is_running=is_running, task_arn=labels.task_arn)
        )
    return tuple(containers)


def decode_container(body: bytes) -> EcsContainer | Unavailable:
    """Decode ``/containers/ID/json``."""
    document = mapping_or_empty(decoded_or_none(msgspec.json.decode, body))
    state = mapping_or_empty(document.get("State"))
    config = mapping_or_empty(document.get("Config"))
    host = mapping_or_empty(document.get("HostConfig"))
    docker_id = text_or_none(document.get("Id"))
    labels = _ecs_labels(config.get("Labels"))
    if docker_id is None or labels is None:
        return Unavailable(
            "Docker's description of the container lacks its id or the labels of the ECS agent"
        )
    is_running = state.get("Running") is True
    finished_ns = None
    exit_code = None
    if not is_running:
        finished_ns = parse_ns(state.get("FinishedAt"))
    if finished_ns is not None:
        exit_code = integer_or_none(state.get("ExitCode"))
    logs = mapping_or_empty(host.get("LogConfig"))
    environment = config.get("Env")
    options = mapping_or_empty(logs.get("Config"))
    devices = (_value_of_variable(environment, "NVIDIA_VISIBLE_DEVICES") or "").split(",")
    return EcsContainer(
        docker_id=docker_id,
        labels=labels,
        is_running=is_running,
        image=text_or_none(config.get("Image")),
        image_digest=text_or_none(document.get("Image")),
        started_ns=parse_ns(state.get("StartedAt")),
        finished_ns=finished_ns,
        exit_code=exit_code,
        stop_signal=parse_stop_signal(text_or_none(config.get("StopSignal")) or ""),
        oom_killed=state.get("OOMKilled") is True,
        pid=count_or_none(state.get("Pid")) or None,
        memory_limit_bytes=count_or_none(host.get("Memory")) or None,
        cpu_shares=count_or_none(host.get("CpuShares")) or None,
        cgroup_parent=text_or_none(host.get("CgroupParent")) or "",
        network_mode=text_or_none(host.get("NetworkMode")),
        log_driver=text_or_none(logs.get("Type")),
        log_options=known_members({name: text_or_none(options.get(name)) for name in _LOG_OPTIONS}),
        metadata_address=_value_of_variable(environment, "ECS_CONTAINER_METADATA_URI_V4"),
        gpus=tuple(filter(_GPU.fullmatch, devices)),
        mps=_named_variables(environment, MPS_VARIABLES),
        batch=_named_variables(environment, BATCH_VARIABLES),
    )


def parse_stop_signal(name: str) -> int:
    """The number of an image's STOPSIGNAL; SIGTERM if it is empty or unknown, as Docker does."""
    word = name.strip().upper().removeprefix("SIG")
    if word.isdecimal():
        number = int(word)
        return number if 0 < number <= _MAX_SIGNAL else signal.SIGTERM
    real_time = _REAL_TIME_SIGNAL.fullmatch(word)
    if real_time:
        steps = int(real_time[2])
        if real_time[1] == "MIN+":
            return signal.SIGRTMIN + steps
        return signal.SIGRTMAX - steps
    try:
        return signal.Signals[f"SIG{word}"]
    except KeyError:
        return signal.SIGTERM


def _ecs_labels(read: Json) -> EcsLabels | None:
    labels = mapping_or_empty(read)
    required = all_known(
        text_or_none(labels.get(TASK_ARN_LABEL)),
        text_or_none(labels.get(f"{_LABELS}container-name")),
    )
    if required is None:
        return None
    task_arn, container_name = required
    return EcsLabels(
        task_arn=task_arn,
        container_name=container_name,
        cluster=text_or_none(labels.get(f"{_LABELS}cluster")),
        family=text_or_none(labels.get(f"{_LABELS}task-definition-family")),
        revision=text_or_none(labels.get(f"{_LABELS}task-definition-version")),
    )


def _named_variables(environment: Json, names: Iterable[str]) -> dict[str, str]:
    """The named variables that are set, and no other one."""
    return known_members({name: _value_of_variable(environment, name) for name in names})


def _value_of_variable(environment: Json, name: str) -> str | None:
    """The value of one variable; the last one counts, as for the process."""
    value = None
    for entry in environment if isinstance(environment, list) else ():
        if isinstance(entry, str) and entry.startswith(f"{name}="):
            value = entry.partition("=")[2]
    return value or None
