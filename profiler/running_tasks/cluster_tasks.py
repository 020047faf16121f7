"""The tasks that run in an ECS cluster, and the log groups of their monitors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import family_of
from profiler.core.ecs_terms import CONTAINER_VARIABLE, arn_account, arn_region, awslogs_target, cluster_name, task_id
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import text
from profiler.core.timestamps import format_datetime, format_ms, parse_datetime
from profiler.record.record_model import Container, Metrics, Record, Report
from profiler.record.run_outcome import Status, end_status
from profiler.task_definitions.containers import Container as DefinedContainer
from profiler.task_definitions.containers import find_batch, find_monitor, own_log_group, read_containers

_TASKS_PER_CALL = 100
_OF_SERVICE = "service:"
_STOPPED = "STOPPED"
_CPU_UNITS = 1024
_STOP_CODES = frozenset({"UserInitiated", "ServiceSchedulerInitiated", "SpotInterruption", "TerminationNotice"})


class _Definition(Struct, frozen=True, kw_only=True):
    """What a task definition says of its tasks: the batch, and where the monitor and the batch write lines."""

    batch: str = ""
    groups: tuple[str, ...] = ()


class RunningTasks:
    """Lists the running tasks of a cluster.

    Args:
        open_client: Makes boto3's client of a service.
        cluster: The name or the ARN of the cluster.
        with_services: Whether the tasks of services are listed, too.
    """

    def __init__(self, open_client: OpenClient, cluster: str, *, with_services: bool) -> None:
        self._open = open_client
        self._cluster = cluster
        self._with_services = with_services
        self._definitions: dict[str, _Definition] = {}
        self._running: set[str] = set()
        self.groups: tuple[str, ...] = ()

    def read(self, now_ns: int) -> tuple[Report, ...]:
        """The running tasks, and those that have ended since the last call. ``groups`` are then their log groups.

        Raises TaskProfilerError if ECS cannot be read.
        """
        with aws_errors(
            f"The tasks of the cluster {self._cluster!r} cannot be listed", "ecs:ListTasks and ecs:DescribeTasks"
        ):
            client = self._open("ecs")
            pages = client.get_paginator("list_tasks").paginate(cluster=self._cluster, desiredStatus="RUNNING")
            listed = {arn for page in pages for arn in page["taskArns"]}
            tasks = [task for task in self._described(sorted(listed | self._running)) if self._is_wanted(task)]
        self._running = {task["taskArn"] for task in tasks if task.get("lastStatus") != _STOPPED}
        definitions = [self._definition(task["taskDefinitionArn"]) for task in tasks]
        self.groups = tuple(sorted({group for definition in definitions for group in definition.groups}))
        time = format_ms(now_ns)
        return tuple(_report(task, definition, time) for task, definition in zip(tasks, definitions, strict=True))

    def _described(self, arns: list[str]) -> Iterator[Mapping[str, Any]]:
        for start in range(0, len(arns), _TASKS_PER_CALL):
            chunk = arns[start : start + _TASKS_PER_CALL]
            yield from self._open("ecs").describe_tasks(cluster=self._cluster, tasks=chunk)["tasks"]

    def _is_wanted(self, task: Mapping[str, Any]) -> bool:
        return self._with_services or not str(task.get("group", "")).startswith(_OF_SERVICE)

    def _definition(self, arn: str) -> _Definition:
        """What the definition says; nothing if it cannot be read: the task is shown with what ECS knows."""
        if arn not in self._definitions:
            try:
                with aws_errors(f"{arn} cannot be read"):
                    described = self._open("ecs").describe_task_definition(taskDefinition=arn)["taskDefinition"]
                self._definitions[arn] = _read_definition(described)
            except TaskProfilerError:
                self._definitions[arn] = _Definition()
        return self._definitions[arn]


def _read_definition(definition: Mapping[str, object]) -> _Definition:
    containers = read_containers(definition)
    monitor = find_monitor(containers)
    batch = _find_batch(containers, None if monitor is None else text(monitor.environment.get(CONTAINER_VARIABLE)))
    name = "" if batch is None else batch.name
    if monitor is None and not any(container.wraps_batch for container in containers):
        return _Definition(batch=name)
    # Of several batches, each has its report in its own stream.
    writers = containers if monitor is None or batch is None else (monitor, batch)
    groups = [awslogs_target(_texts(container.log_options), container.name, None).group for container in writers]
    found = [group for group in (*groups, own_log_group(definition)) if group is not None]
    return _Definition(batch=name, groups=tuple(dict.fromkeys(found)))


def _find_batch(containers: Sequence[DefinedContainer], requested: str | None) -> DefinedContainer | None:
    try:
        return find_batch(containers, requested)
    except TaskProfilerError:  # several containers could be the batch
        return None


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


def _report(task: Mapping[str, Any], definition: _Definition, time: str) -> Report:
    """The task as a checkpoint without measurements."""
    arn, definition_arn = task["taskArn"], task["taskDefinitionArn"]
    exit_code = _exit_code(task.get("containers", ()), definition.batch)
    record = Record(
        task_id=task_id(arn),
        task_arn=arn,
        cluster=cluster_name(task.get("clusterArn")),
        family=family_of(definition_arn),
        revision=definition_arn.rpartition(":")[2],
        region=arn_region(arn),
        account_id=arn_account(arn),
        launch_type=task.get("launchType"),
        container=Container(name=definition.batch),
        status=_status(task, exit_code),
        exit_code=exit_code,
        started_at=_time(task.get("startedAt")),
        metrics=Metrics(vcpu_size=_size(task.get("cpu"), _CPU_UNITS), memory_size_mb=_size(task.get("memory"), 1)),
    )
    return Report(time=time, type="task.checkpoint", record=record)


def _status(task: Mapping[str, Any], exit_code: int | None) -> Status:
    if task.get("lastStatus") != _STOPPED:
        return "running"
    return end_status(exit_code, was_stopped=task.get("stopCode") in _STOP_CODES, has_failed="stopCode" in task)


def _exit_code(containers: Iterable[Mapping[str, Any]], batch: str) -> int | None:
    return next((one.get("exitCode") for one in containers if one.get("name") == batch), None)


def _time(moment: object) -> str | None:
    utc = parse_datetime(moment.isoformat()) if isinstance(moment, datetime) else None
    return None if utc is None else format_datetime(utc)


def _size(text_of_size: object, per_unit: int) -> float | None:
    try:
        size = int(str(text_of_size)) / per_unit
    except ValueError:
        return None
    return size or None
