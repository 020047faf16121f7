"""Whether a run that was killed for memory is started again, with how much memory, and with which call of RunTask."""

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct

from profiler.aws_account.scheduled_targets import ScheduledTarget
from profiler.core.ecs_terms import FARGATE
from profiler.core.json_fields import integer, mappings, text
from profiler.forwarder.notices.announcements import EndedTask
from profiler.record.spot_price import FARGATE_SPOT
from profiler.record.task_end import StoppedTask, ran_out_of_memory
from profiler.record.units import format_memory
from profiler.schedules.task_matching import STARTERS
from profiler.sizing.fargate import LEGAL_SIZES

RETRY_STARTER = "task-profiler-retry/"
SHORT_ID_LENGTH = 8
_GROWTH = 1.5
_EC2_STEP_MB = 128
_CPU_UNITS = 1024  # of one vCPU
# What a target of EventBridge or of its Scheduler passes on to RunTask, as EventBridge writes the names.
_PARAMETERS = (
    *("LaunchType", "CapacityProviderStrategy", "NetworkConfiguration", "PlatformVersion", "Group"),
    *("PlacementConstraints", "PlacementStrategy", "PropagateTags", "EnableECSManagedTags", "EnableExecuteCommand"),
    "ReferenceId",
)


class RetryRefusedError(Exception):
    """Why a run cannot be started again, as the rest of a sentence."""


class LargerMemory(Struct, frozen=True, kw_only=True):
    """The memory of the retry.

    ``old_mb`` is what was too little: the task's memory, on EC2 the batch container's hard limit. ``vcpu`` is None on
    EC2. ``limit_mb`` is the batch container's hard limit in the retry; None without one.
    """

    old_mb: int
    new_mb: int
    vcpu: float | None = None
    limit_mb: int | None = None


def should_retry(ended: EndedTask, families: tuple[str, ...]) -> bool:
    """Whether the run is of a selected family, was started by a schedule, and was killed for memory for certain."""
    is_selected = any(fnmatchcase(ended.family, family) for family in families)
    is_scheduled = (ended.task.started_by or "").startswith(tuple(STARTERS.values()))
    return is_selected and is_scheduled and is_proven_out_of_memory(ended)


def is_proven_out_of_memory(ended: EndedTask) -> bool:
    """Whether the batch failed because memory ran out, as ECS says or the kernel counted.

    The exit code does not prove it. The reason of the task can be another container's, whose kill does not either.
    """
    if ended.outcome.status != "failure" or ended.container is None:
        return False
    record, batch = ended.record, ended.task.container(ended.container)
    is_final = ended.is_complete and record is not None and record.container.name == batch.name
    if is_final and record is not None and record.out_of_memory_evidence == "kernel-counter":
        return True
    is_of_another = not ran_out_of_memory(batch) and any(map(ran_out_of_memory, ended.task.containers))
    return ended.outcome.out_of_memory and not is_of_another


def larger_memory(
    task: StoppedTask, definition: Mapping[str, object], batch: str, peak_mb: float | None, max_memory_mb: float
) -> LargerMemory:
    """Choose the memory of the retry. Raises RetryRefusedError if no size is both enough and allowed.

    The killed task may have been started with another size than its definition's. ``peak_mb`` is the highest peak of
    the family's successes; None if it is unknown.
    """
    limits = _hard_limits(task, definition)
    limit_mb, others_mb = limits.pop(batch, None), sum(limits.values())
    least_mb = 1.25 * (peak_mb or 0)  # with a margin
    grown_limit_mb = None if limit_mb is None else math.ceil(max(_GROWTH * limit_mb, least_mb))
    if not is_on_fargate(task):
        if definition.get("memory") is not None:
            raise RetryRefusedError("the size of a task on EC2 is not changed")
        if limit_mb is None or grown_limit_mb is None:
            raise RetryRefusedError("its batch container has no memory limit of its own")
        grown_limit_mb = math.ceil(grown_limit_mb / _EC2_STEP_MB) * _EC2_STEP_MB
        _check(grown_limit_mb, max_memory_mb)
        return LargerMemory(old_mb=limit_mb, new_mb=grown_limit_mb, limit_mb=grown_limit_mb)
    vcpu, memory_mb = task.vcpu, task.memory_mb
    if vcpu is None or memory_mb is None:
        raise RetryRefusedError("the size of its task is unknown")
    needed_mb = max(_GROWTH * memory_mb, least_mb, 0 if grown_limit_mb is None else grown_limit_mb + others_mb)
    size = min((size for size in LEGAL_SIZES if size.vcpu >= vcpu and size.memory_mb >= needed_mb), default=None)
    if size is None:
        raise RetryRefusedError(f"Fargate has no size with {format_memory(needed_mb)}")
    _check(size.memory_mb, max_memory_mb)
    return LargerMemory(old_mb=memory_mb, new_mb=int(size.memory_mb), vcpu=size.vcpu, limit_mb=grown_limit_mb)


def is_on_fargate(task: StoppedTask) -> bool:
    """Whether the size is the task's own."""
    return task.launch_type == FARGATE or task.capacity_provider in (FARGATE, FARGATE_SPOT)


def _check(memory_mb: float, max_memory_mb: float) -> None:
    if memory_mb > max_memory_mb:
        raise RetryRefusedError(
            f"it needs {format_memory(memory_mb)}, and RETRY_MAX_MEMORY_MB allows {format_memory(max_memory_mb)}"
        )


def _hard_limits(task: StoppedTask, definition: Mapping[str, object]) -> dict[str, int]:
    """The memory limits of the containers that have one: those of the killed task, else the definition's."""
    defined = mappings(definition.get("containerDefinitions"))
    known = {str(one.get("name")): integer(one.get("memory")) for one in defined}
    known |= {one.name: one.memory_mb for one in task.containers if one.memory_mb is not None}
    return {name: limit_mb for name, limit_mb in known.items() if limit_mb}


def run_task_request(
    target: ScheduledTarget, task: StoppedTask, batch: str, memory: LargerMemory
) -> Mapping[str, object]:
    """The arguments of RunTask: what the schedule's own target says, with the killed revision and more memory.

    Raises RetryRefusedError if it is not known what the schedule passes to its tasks.
    """
    started = target.content if target.kind == "rule" else target.content["Target"]
    parameters = started["EcsParameters"]
    overrides = _with_memory(_input(started), batch, memory)
    retry_tag = {"key": "task-profiler:retry-of", "value": task.id}
    return {
        "cluster": target.cluster_arn,
        "taskDefinition": task.definition_arn,
        "count": 1,
        "startedBy": f"{RETRY_STARTER}{task.id[:SHORT_ID_LENGTH]}",
        "clientToken": f"task-profiler-retry-{task.id}",
        **{_lowered(name): _for_ecs(parameters[name]) for name in _PARAMETERS if name in parameters},
        "overrides": overrides,
        "tags": [*_tags(parameters.get("Tags", ())), retry_tag],
    }


def _input(started: Mapping[str, Any]) -> dict[str, Any]:
    """The overrides that the target passes to each task."""
    source = text(started.get("Input")) or "{}"
    if started.get("InputPath") or started.get("InputTransformer") or "<aws.scheduler." in source:
        raise RetryRefusedError("the input of its schedule is different for each run")
    try:
        return msgspec.json.decode(source, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError):
        raise RetryRefusedError("the input of its schedule is not a JSON object") from None


def _with_memory(overrides: dict[str, Any], batch: str, memory: LargerMemory) -> dict[str, Any]:
    if memory.vcpu is not None:
        overrides |= {"cpu": str(round(memory.vcpu * _CPU_UNITS)), "memory": str(memory.new_mb)}
    elif overrides.get("memory") is not None:
        raise RetryRefusedError("the size of a task on EC2 is not changed")
    if memory.limit_mb is None:
        return overrides
    containers = [dict(one) for one in mappings(overrides.get("containerOverrides"))]
    if not any(one.get("name") == batch for one in containers):
        containers.append({"name": batch})
    for one in containers:
        if one.get("name") == batch:
            one["memory"] = memory.limit_mb
    return {**overrides, "containerOverrides": containers}


def _for_ecs(value: Any) -> Any:  # noqa: ANN401  JSON of the API
    """The value with the names that ECS uses, which begin in lower case."""
    if isinstance(value, dict):
        return {_lowered(name): _for_ecs(item) for name, item in value.items()}
    return [_for_ecs(item) for item in value] if isinstance(value, list) else value


def _lowered(name: str) -> str:
    return name[:1].lower() + name[1:]


def _tags(tags: Any) -> list[Mapping[str, str]]:  # noqa: ANN401  as above
    """Tags have a key and a value; Scheduler also accepts objects whose names are the keys."""
    pairs: list[Mapping[str, str]] = []
    for tag in tags:
        is_pair = {name.lower() for name in tag} <= {"key", "value"}
        pairs += [_for_ecs(tag)] if is_pair else [{"key": key, "value": value} for key, value in tag.items()]
    return pairs
