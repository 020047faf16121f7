"""Container Insights: what ECS writes of a task each minute and at its end, and CloudWatch Logs
that returns it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler
from typing import Any

from profiler.core.timestamps import NS_PER_MS, format_ms
from tests.http_server import FakeHttpServer

ACCOUNT, REGION = "111122223333", "us-east-1"
MINUTE_MS = 60_000
# The groups of a cluster's performance log events, and of ECS's events.
PERFORMANCE = "/aws/ecs/containerinsights/jobs/performance"
LIFECYCLE = "/aws/events/ecs/containerinsights/jobs/performance"
_KINDS = re.compile(r'\$\.(?:detail\.)?(Type|lastStatus) = "(\w+)"')


def task_minute(
    end_ms: int,
    started_ms: int,
    *,
    cpu: float = 512,
    memory: float = 1000,
    size: tuple[int, int] = (1024, 4096),
    **own: Any,
) -> dict[str, Any]:
    """The event of a task on Fargate for a minute, as AWS documents it; ``own`` replaces fields,
    None drops them.
    """
    event = {
        "Version": "0",
        "Type": "Task",
        "TaskId": "0123456789abcdef0123456789abcdef",
        "TaskDefinitionFamily": "nightly-etl",
        "TaskDefinitionRevision": "26",
        "ClusterName": "jobs",
        "AccountID": ACCOUNT,
        "Region": REGION,
        "AvailabilityZone": f"{REGION}a",
        "KnownStatus": "RUNNING",
        "LaunchType": "FARGATE",
        "PullStartedAt": started_ms - 20_000,
        "StartedAt": started_ms,
        "Timestamp": end_ms,
        "CpuUtilized": cpu,
        "CpuReserved": float(size[0]),
        "MemoryUtilized": memory,
        "MemoryReserved": size[1],
        "StorageReadBytes": 1_000 * (end_ms - started_ms),
        "StorageWriteBytes": 0,
        "NetworkRxBytes": 600,
        "NetworkTxBytes": 60,
        "EphemeralStorageUtilized": 1.07,
        "EphemeralStorageReserved": 21.47,
    }
    return {name: value for name, value in (event | own).items() if value is not None}


def container_minute(of: Mapping[str, Any], name: str = "batch") -> dict[str, Any]:
    """The event of a container of a task for the same minute."""
    kept = (
        "TaskId",
        "TaskDefinitionFamily",
        "TaskDefinitionRevision",
        "ServiceName",
        "ClusterName",
        "Timestamp",
    )
    shared = {field: of[field] for field in kept if field in of}
    used = {"CpuUtilized": 1, "MemoryUtilized": 1}
    return {"Type": "Container", "ContainerName": name, "Image": "etl:26", **shared, **used}


def minutes(started_ms: int, count: int, **own: Any) -> list[dict[str, Any]]:
    """The events of a task and its batch at the ``count`` whole minutes after its start."""
    first_ms = (started_ms // MINUTE_MS + 1) * MINUTE_MS
    tasks = [
        task_minute(first_ms + number * MINUTE_MS, started_ms, **own) for number in range(count)
    ]
    return [event for task in tasks for event in (task, container_minute(task))]


def stopped(
    of: Mapping[str, Any],
    finished_ms: int,
    *containers: Mapping[str, Any],
    architecture: str = "x86_64",
    **own: Any,
) -> dict[str, Any]:
    """The event of a stopped task, as EventBridge has it; by default its batch exited with 0."""
    cluster, task = of["ClusterName"], of["TaskId"]
    batch = {"name": "batch", "image": "etl:26", "lastStatus": "STOPPED", "exitCode": 0}
    arn = f"arn:aws:ecs:{REGION}:{ACCOUNT}"
    family = f"{of['TaskDefinitionFamily']}:{of['TaskDefinitionRevision']}"
    detail = {
        "taskArn": f"{arn}:task/{cluster}/{task}",
        "clusterArn": f"{arn}:cluster/{cluster}",
        "taskDefinitionArn": f"{arn}:task-definition/{family}",
        "attributes": [{"name": "ecs.cpu-architecture", "value": architecture}],
        "lastStatus": "STOPPED",
        "desiredStatus": "STOPPED",
        "launchType": "FARGATE",
        "group": f"family:{family}",
        "startedBy": "chronos-schedule/nightly",
        "stopCode": "EssentialContainerExited",
        "stoppedReason": "Essential container in task exited",
        "startedAt": format_ms(of["StartedAt"] * NS_PER_MS),
        "executionStoppedAt": format_ms(finished_ms * NS_PER_MS),
        "stoppedAt": format_ms((finished_ms + 20_000) * NS_PER_MS),
        "containers": [*containers] or [batch],
    }
    kept = {name: value for name, value in (detail | own).items() if value is not None}
    return {
        "detail-type": "ECS Task State Change",
        "account": ACCOUNT,
        "region": REGION,
        "detail": kept,
    }


class PlayedLogs(FakeHttpServer):
    """FilterLogEvents and ListClusters. Each page has few events, and every other page is empty.

    ``refused`` groups may not be read, ``throttled`` ones only their first page. Other than
    ``groups`` there are none. EventBridge and EventBridge Scheduler refuse every call.
    """

    def __init__(self, *clusters: str) -> None:
        super().__init__()
        self.clusters = clusters
        self.groups: dict[str, list[tuple[int, str]]] = {}
        self.refused: set[str] = set()
        self.throttled: set[str] = set()
        self.operations: set[str] = set()
        self.page_size = 40

    def put(self, group: str, events: Sequence[Mapping[str, Any] | str], at_ms: int = 0) -> None:
        """Add events: at ``at_ms``, else at their own time."""
        for event in events:
            text = event if isinstance(event, str) else json.dumps(event)
            moment = at_ms if isinstance(event, str) else int(event.get("Timestamp", at_ms))
            self.groups.setdefault(group, []).append((moment, text))

    def environment(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        return keys | {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": REGION,
            "TZ": "UTC",
            "AWS_MAX_ATTEMPTS": "3",
        }

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        # EventBridge Scheduler's are paths.
        called = request.headers["X-Amz-Target"] or f"scheduler.{request.path}"
        operation = called.rpartition(".")[2]
        self.operations.add(operation)
        if operation == "ListClusters":
            arns = [
                f"arn:aws:ecs:{REGION}:{ACCOUNT}:cluster/{cluster}" for cluster in self.clusters
            ]
            return _answered(200, {"clusterArns": arns})
        if operation != "FilterLogEvents":
            return self.other_answer(called, body)
        asked = json.loads(body)
        group, (token, _, kind) = (
            asked["logGroupName"],
            asked.get("nextToken", "0/full").partition("/"),
        )
        if group in self.refused or group not in self.groups:
            code = "AccessDeniedException" if group in self.refused else "ResourceNotFoundException"
            return _answered(
                400, {"__type": code, "message": "The specified log group cannot be read."}
            )
        if group in self.throttled and token != "0":
            return _answered(400, {"__type": "ThrottlingException", "message": "Rate exceeded"})
        conditions = [
            f'"{name}": "{value}"' for name, value in _KINDS.findall(asked.get("filterPattern", ""))
        ]
        found = [
            {"timestamp": moment, "message": text, "logStreamName": "FargateTelemetry-2681"}
            for moment, text in sorted(self.groups[group])
            if asked["startTime"] <= moment <= asked["endTime"]
            and all(one in text for one in conditions)
        ]
        if kind == "full":
            return _answered(200, {"events": [], "nextToken": f"{token}/events"})
        end = int(token) + self.page_size
        more = {"nextToken": f"{end}/full"} if end < len(found) else {}
        return _answered(200, {"events": found[int(token) : end], **more})

    def other_answer(self, called: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer of another operation: ``TARGET.NAME``, or ``scheduler.PATH``."""
        if not called.startswith("scheduler."):
            name = called.rpartition(".")[2]
            return _answered(
                400, {"__type": "AccessDeniedException", "message": f"not allowed: {name}"}
            )
        message = (
            "User: arn:aws:iam::1:user/a is not authorized to perform: scheduler:ListSchedules"
        )
        error = {"X-Amzn-ErrorType": "AccessDeniedException"}
        return 403, error, json.dumps({"Message": message}).encode()


class PlayedAccount(PlayedLogs):
    """Also EventBridge Scheduler with these schedules, and EventBridge with timed rules: the
    expressions by the names of families. The target of a schedule in ``universal`` is RunTask's
    request, and one in ``disabled`` is off.
    """

    def __init__(self, *clusters: str) -> None:
        super().__init__(*clusters)
        self.schedules: dict[str, str] = {}
        self.rules: dict[str, str] = {}
        self.universal: set[str] = set()
        self.disabled: set[str] = set()
        self.calls: list[str] = []

    def other_answer(self, called: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        self.calls.append(called)
        if called.startswith("scheduler."):
            name = called.removeprefix("scheduler./schedules").partition("?")[0].strip("/")
            if name:
                return 200, {}, json.dumps(self._schedule(name)).encode()
            listed = [self._schedule(one) for one in self.schedules]
            return 200, {}, json.dumps({"Schedules": listed}).encode()
        if called.endswith(".ListRules"):
            rules = []
            for family, expression in self.rules.items():
                rules.append({"Name": family, "ScheduleExpression": expression, "State": "ENABLED"})
            return _answered(200, {"Rules": rules})
        if called.endswith(".ListTargetsByRule"):
            target = {"Id": "1", **_target(json.loads(body)["Rule"])}
            return _answered(200, {"Targets": [target]})
        return super().other_answer(called, body)

    def _schedule(self, family: str) -> dict[str, Any]:
        target = _target(family)
        if family in self.universal:
            request = {"Cluster": "jobs", "TaskDefinition": family, "Count": 2}
            arn = "arn:aws:scheduler:::aws-sdk:ecs:runTask"
            target = {"Arn": arn, "RoleArn": target["RoleArn"], "Input": json.dumps(request)}
        return {
            "Name": family,
            "GroupName": "default",
            "Arn": f"arn:aws:scheduler:{REGION}:{ACCOUNT}:schedule/default/{family}",
            "State": "DISABLED" if family in self.disabled else "ENABLED",
            "ScheduleExpression": self.schedules[family],
            "ScheduleExpressionTimezone": "UTC",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "LastModificationDate": 1_700_000_000,
            "CreationDate": 1_700_000_000,
            "Target": target,
        }


def _target(family: str) -> dict[str, Any]:
    """A target that starts a task of a family in the cluster jobs."""
    arn = f"arn:aws:ecs:{REGION}:{ACCOUNT}"
    started = {"TaskDefinitionArn": f"{arn}:task-definition/{family}", "TaskCount": 1}
    return {
        "Arn": f"{arn}:cluster/jobs",
        "RoleArn": "arn:aws:iam::1:role/a",
        "EcsParameters": started,
    }


def _answered(status: int, document: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(document).encode()
