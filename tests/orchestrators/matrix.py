"""Tasks of every outcome of batch and monitor, and an AWS that describes them and has their log
lines.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from msgspec import Struct

from profiler.core.ecs_terms import ReportStream
from profiler.record.record_model import encode
from profiler.task_definitions.containers import prints_report, read_containers
from profiler.task_definitions.monitor_changes import AddMonitorOptions, add_monitor
from tests.http_server import FakeHttpServer
from tests.runs import report
from tests.sidecars import awslogs

GROUP, LAST_LINE = "/ecs/jobs", "wrote 42 rows"
_TASK = "arn:aws:ecs:us-east-1:123456789012:task"
_BATCH = {"name": "batch", "image": "etl:26", "essential": True, "logConfiguration": awslogs(GROUP)}
_BATCHES: dict[str, dict[str, Any]] = {
    "0": {"exitCode": 0},
    "1": {"exitCode": 1},
    "killed": {"exitCode": 137, "reason": "OutOfMemoryError: Container killed due to memory usage"},
}
PULL_FAILED = "pull failed"
# The last two are as ECS describes a container that has no exit code.
_MONITORS: dict[str, dict[str, Any]] = {
    "exited 0": {"lastStatus": "STOPPED", "exitCode": 0},
    "killed (137)": {"lastStatus": "STOPPED", "exitCode": 137},
    PULL_FAILED: {
        "lastStatus": "STOPPED",
        "reason": "CannotPullContainerError: pull image manifest: not found",
    },
    "never started": {"lastStatus": "PENDING"},
}
WITHOUT, WRAPPER = "none", "`run` instead"
MONITORS = (WITHOUT, *_MONITORS, WRAPPER)
BATCHES = tuple(_BATCHES)
STREAMS: tuple[ReportStream, ...] = ("batch", "monitor")


class Case(Struct, frozen=True):
    """How the batch and the monitor ended, and whose stream the report goes to."""

    batch: str
    monitor: str
    stream: ReportStream

    @property
    def name(self) -> str:
        """The name of its cluster, and the ID of its task."""
        return f"{BATCHES.index(self.batch)}-{MONITORS.index(self.monitor)}-{self.stream}"

    def definition(self) -> dict[str, Any]:
        """The task definition, with the monitor that add-monitor adds."""
        definition: dict[str, Any] = {
            "family": "etl",
            "containerDefinitions": [_BATCH],
            "taskRoleArn": "role",
        }
        if self.monitor in _MONITORS:
            options = AddMonitorOptions(image="task-profiler:1", report_stream=self.stream)
            definition = dict(add_monitor(definition, options).definition)
        return {**definition, "taskDefinitionArn": f"{_TASK}-definition/etl:1"}

    def task(self) -> dict[str, Any]:
        """The stopped task, as DescribeTasks returns it."""
        arn = f"{_TASK}/{self.name}/{self.name}"
        ends = {
            "batch": {"lastStatus": "STOPPED", **_BATCHES[self.batch]},
            "task-monitor": _MONITORS.get(self.monitor),
        }
        containers = [
            {
                "name": one.name,
                "taskArn": arn,
                "runtimeId": f"{self.name}-{one.name}",
                **(ends[one.name] or {}),
            }
            for one in read_containers(self.definition())
        ]
        return {
            "taskArn": arn,
            "clusterArn": f"arn:aws:ecs:us-east-1:123456789012:cluster/{self.name}",
            "taskDefinitionArn": f"{_TASK}-definition/etl:1",
            "lastStatus": "STOPPED",
            "desiredStatus": "STOPPED",
            "createdAt": 1_795_000_000.0,
            "startedAt": 1_795_000_020.0,
            "stoppedAt": 1_795_000_030.0,
            "stopCode": "EssentialContainerExited",
            "stoppedReason": "Essential container in task exited",
            "containers": containers,
        }

    def has_stream(self, container: str) -> bool:
        """Whether the log driver made the stream of a container: it did when the container was
        started.
        """
        return container == "batch" or "exitCode" in _MONITORS[self.monitor]

    def lines(self, container: str) -> list[str]:
        """The lines in the log stream of a container: those of the batch, and the report where
        it arrives.
        """
        lines = ["reading", LAST_LINE] if container == "batch" else []
        printing = {
            one.name for one in read_containers(self.definition()) if prints_report(one.environment)
        }
        writer = next(iter(printing), "batch")
        if self.monitor in ("exited 0", WRAPPER) and container == writer:
            lines.append(encode(report()).decode())
        return lines


def cases() -> Iterator[Case]:
    """All combinations; a task without a monitor has one stream only."""
    for batch in BATCHES:
        for monitor in MONITORS:
            for stream in STREAMS if monitor in _MONITORS else STREAMS[:1]:
                yield Case(batch, monitor, stream)


class OrchestratorAws(FakeHttpServer):
    """ECS and CloudWatch Logs: the name of a cluster, or the ID of a task, selects the case."""

    def __init__(self) -> None:
        super().__init__()
        self._cases = {case.name: case for case in cases()}

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        operation = request.headers.get("X-Amz-Target", "").rpartition(".")[2]
        given = json.loads(body or b"{}")
        headers = {"Content-Type": "application/x-amz-json-1.1"}
        if operation in ("GetLogEvents", "DescribeLogStreams"):
            name = given.get("logStreamName") or given["logStreamNamePrefix"]
            _, container, task_id = name.split("/")
            is_there = self._cases[task_id].has_stream(container)
            if operation == "DescribeLogStreams":
                return (
                    200,
                    headers,
                    json.dumps({"logStreams": [{"logStreamName": name}] * is_there}).encode(),
                )
            if not is_there:
                missing = {
                    "__type": "ResourceNotFoundException",
                    "message": "The specified log stream does not exist.",
                }
                return 400, headers, json.dumps(missing).encode()
            return 200, headers, json.dumps(self._events(container, task_id, given)).encode()
        case = self._cases[
            str(given.get("cluster") or given.get("taskDefinition")).rpartition("/")[2]
        ]
        match operation:
            case "RunTask" | "DescribeTasks":
                answer: dict[str, Any] = {"tasks": [case.task()], "failures": []}
            case "DescribeTaskDefinition":
                answer = {"taskDefinition": case.definition()}
            case _:
                raise NotImplementedError(operation)
        return 200, headers, json.dumps(answer).encode()

    def _events(self, container: str, task_id: str, given: dict[str, Any]) -> dict[str, Any]:
        lines = list(enumerate(self._cases[task_id].lines(container)))
        if given.get("nextToken"):
            lines = []
        limited = lines[-given["limit"] :] if given.get("limit") else lines
        events = [
            {"timestamp": 1_795_000_029_000 + n, "message": line, "ingestionTime": 1}
            for n, line in limited
        ]
        return {"events": events, "nextForwardToken": "f/end", "nextBackwardToken": "b/end"}
