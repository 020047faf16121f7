"""Plays Amazon ECS for its agent: the API, the websocket of commands, and the one of telemetry,
which it ignores.

A task is started from a definition as `register-task-definition` reads it; `stopped_event` is
EventBridge's event.
"""

import datetime as dt
import hashlib
import json
import struct
import threading
import time
import uuid
from base64 import b64encode
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import Any

from tests.http_server import FakeHttpServer
from tools.waiting import wait_until

REGION = "us-east-1"
ACCOUNT = "123456789012"
CLUSTER = "jobs"
_ARN = f"arn:aws:ecs:{REGION}:{ACCOUNT}"
_INSTANCE = "0123456789abcdef0123456789abcdef"
_WEBSOCKET_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_HEARTBEAT_SECONDS = 20.0
_USER_STOP = ("UserInitiated", "Task stopped by user")
_SPOT_STOP = ("SpotInterruption", "Your Spot Task was interrupted.")


class StartedTask:
    """A task, and what the agent has reported of it.

    The ``overrides`` of RunTask are variables of its first container, as AWS Batch gives them.
    """

    def __init__(
        self,
        definition: dict[str, Any],
        cluster: str = CLUSTER,
        overrides: dict[str, str] | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex
        self._cluster = cluster
        self._overrides = overrides or {}
        self.arn = f"{_ARN}:task/{cluster}/{self.id}"
        self.family = str(definition["family"])
        self.definition = definition
        self.credentials_id = str(uuid.uuid4())
        self.stop = ("", "")
        self.times = {"createdAt": time.time()}
        self.containers: dict[str, dict[str, Any]] = {}

    @property
    def has_stopped(self) -> bool:
        return "stoppedAt" in self.times

    def payload(self, desired_status: str) -> dict[str, Any]:
        """The task as the websocket of commands carries it."""
        definition = self.definition
        return {
            "arn": self.arn,
            "taskClusterArn": _cluster_arn(self._cluster),
            "family": self.family,
            "version": "1",
            "desiredStatus": desired_status,
            "launchType": "EC2",
            "overrides": "{}",
            "roleCredentials": self.credentials(),
            "containers": [
                self._container(one, self._overrides if at == 0 else {})
                for at, one in enumerate(definition["containerDefinitions"])
            ],
            "volumes": [{"type": "host", **one} for one in definition.get("volumes", ())],
            **(
                {"cpu": int(definition["cpu"]) / 1024, "memory": int(definition["memory"])}
                if "cpu" in definition
                else {}
            ),
            **{
                name: definition[name]
                for name in ("pidMode", "networkMode", "serviceName")
                if name in definition
            },
        }

    def credentials(self) -> dict[str, str]:
        keys = {
            "accessKeyId": "ASIATESTING",
            "secretAccessKey": "testing",
            "sessionToken": "testing",
        }
        role = {
            "credentialsId": self.credentials_id,
            "roleArn": str(self.definition["taskRoleArn"]),
        }
        return {**keys, **role, "expiration": _text(time.time() + 6 * 3600)}

    def _container(self, given: dict[str, Any], overrides: dict[str, str]) -> dict[str, Any]:
        host = {
            "NetworkMode": self.definition.get("networkMode", "bridge"),
            "ReadonlyRootfs": given.get("readonlyRootFilesystem", False),
            "MemoryReservation": given.get("memoryReservation", 0) << 20,
            "CapDrop": given.get("linuxParameters", {}).get("capabilities", {}).get("drop", []),
            "LogConfig": self._log_configuration(given["name"], given.get("logConfiguration")),
        }
        config = {"User": given["user"]} if "user" in given else {}
        own = ("dependsOn", "restartPolicy")
        kept = (
            "name",
            "image",
            "command",
            "entryPoint",
            "stopTimeout",
            "mountPoints",
            "portMappings",
        )
        return {
            **{name: given[name] for name in (*kept, *own) if name in given},
            "containerArn": self._container_arn(given["name"]),
            "essential": given.get("essential", True),
            "cpu": given.get("cpu", 0),
            "memory": given.get("memory", 0),
            "environment": {one["name"]: one["value"] for one in given.get("environment", ())}
            | overrides,
            "overrides": "{}",
            "dockerConfig": {
                "version": "1.17",
                "config": json.dumps(config),
                "hostConfig": json.dumps(host),
            },
        }

    def _log_configuration(self, container: str, given: dict[str, Any] | None) -> dict[str, Any]:
        if given is None:
            return {"Type": "json-file"}
        options = dict(given.get("options", {}))
        if prefix := options.pop("awslogs-stream-prefix", None):
            options["awslogs-stream"] = f"{prefix}/{container}/{self.id}"
        return {"Type": given["logDriver"], "Config": options}

    def learn(self, given: dict[str, Any]) -> None:
        """Keep what the agent submits of a container, or of the task with its containers."""
        is_container = "containerName" in given
        for one in [given] if is_container else given.get("containers", []):
            known = {name: value for name, value in one.items() if value is not None}
            self.containers.setdefault(one["containerName"], {}).update(known)
        times = ("pullStartedAt", "pullStoppedAt", "executionStoppedAt")
        self.times |= {name: given[name] for name in times if given.get(name) is not None}
        moment = (
            None
            if is_container
            else {"RUNNING": "startedAt", "STOPPED": "stoppedAt"}.get(given["status"])
        )
        if moment:
            self.times[moment] = time.time()

    def stopped_event(self) -> dict[str, Any]:
        """What EventBridge sends of the ended task."""
        containers = [self._event_container(one) for one in self.definition["containerDefinitions"]]
        has_run = any("exitCode" in one for one in containers)
        code, reason = self.stop
        detail = {
            "taskArn": self.arn,
            "clusterArn": _cluster_arn(self._cluster),
            "taskDefinitionArn": f"{_ARN}:task-definition/{self.family}:1",
            "availabilityZone": f"{REGION}a",
            "containers": containers,
            **{name: _text(moment) for name, moment in self.times.items()},
            "group": f"family:{self.family}",
            "launchType": "EC2",
            "desiredStatus": "STOPPED",
            "lastStatus": "STOPPED",
            "stopCode": code or ("EssentialContainerExited" if has_run else "TaskFailedToStart"),
            "stoppedReason": reason or "Essential container in task exited",
            "version": 5,
        }
        if self._overrides:
            variables = [{"name": name, "value": self._overrides[name]} for name in self._overrides]
            first = {"name": containers[0]["name"], "environment": variables}
            detail["overrides"] = {"containerOverrides": [first]}
        event = {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "ECS Task State Change",
            "source": "aws.ecs",
        }
        place = {"account": ACCOUNT, "region": REGION, "time": detail["stoppedAt"]}
        return {**event, **place, "detail": detail}

    def _event_container(self, given: dict[str, Any]) -> dict[str, Any]:
        seen = self.containers.get(given["name"], {})
        known = ("exitCode", "reason", "runtimeId", "imageDigest")
        return {
            "containerArn": self._container_arn(given["name"]),
            "name": given["name"],
            "image": given["image"],
            "cpu": str(given.get("cpu", 0)),
            "lastStatus": "STOPPED",
            **{name: seen[name] for name in known if seen.get(name) is not None},
        }

    def _container_arn(self, name: str) -> str:
        return f"{_ARN}:container/{self._cluster}/{self.id}/{name}"


def _cluster_arn(cluster: str) -> str:
    return f"{_ARN}:cluster/{cluster}"


class _Session:
    """One websocket of the agent."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._lock = threading.Lock()

    def send(self, kind: str, message: dict[str, Any]) -> None:
        self.frame(_TEXT, json.dumps({"type": kind, "message": message}).encode())

    def frame(self, code: int, data: bytes) -> None:
        length = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
        with self._lock:
            self._file.write(bytes([0x80 | code]) + length + data)


class ControlPlane(FakeHttpServer):
    """On a free port until ``close``; ``tasks`` has all tasks by their ARNs. Its agent is of the
    ``cluster``.
    """

    def __init__(self) -> None:
        self.cluster = CLUSTER
        self.tasks: dict[str, StartedTask] = {}
        self.acknowledged: set[str] = set()
        self._commands: _Session | None = None
        self._sequence = 0
        super().__init__()

    def start(
        self, definition: dict[str, Any], overrides: dict[str, str] | None = None
    ) -> StartedTask:
        """Give a task to the agent, and return when it has taken it."""
        task = StartedTask(definition, self.cluster, overrides)
        self.tasks[task.arn] = task
        self._command(task, "RUNNING")
        return task

    def stop(self, task: StartedTask, *, spot: bool = False) -> None:
        """Stop a task, as StopTask or a Spot interruption does."""
        task.stop = _SPOT_STOP if spot else _USER_STOP
        self._command(task, "STOPPED")

    def _instance_arn(self) -> str:
        return f"{_ARN}:container-instance/{self.cluster}/{_INSTANCE}"

    @property
    def is_connected(self) -> bool:
        return self._commands is not None

    def wait_connected(self) -> None:
        wait_until(lambda: self.is_connected, "the agent's connection")

    def _command(self, task: StartedTask, desired_status: str) -> None:
        self.wait_connected()
        identity = str(uuid.uuid4())
        self._sequence += 1
        message = {
            "clusterArn": _cluster_arn(self.cluster),
            "containerInstanceArn": self._instance_arn(),
            "messageId": identity,
            "seqNum": self._sequence,
            "generatedAt": int(time.time() * 1000),
            "tasks": [task.payload(desired_status)],
        }
        assert self._commands is not None
        self._commands.send("PayloadMessage", message)
        wait_until(
            lambda: identity in self.acknowledged,
            f"the agent to take {task.family}",
        )

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        given = json.loads(body or b"{}")
        answer: dict[str, Any] = {"acknowledgment": "ok"}
        match request.headers.get("X-Amz-Target", "").rpartition(".")[2]:
            case "RegisterContainerInstance":
                attributes = [
                    *given.get("attributes", []),
                    {"name": "ecs.availability-zone", "value": f"{REGION}a"},
                ]
                answer = {
                    "containerInstance": {
                        "containerInstanceArn": self._instance_arn(),
                        "attributes": attributes,
                    }
                }
            case "DiscoverPollEndpoint":
                answer = {"endpoint": self.url, "telemetryEndpoint": f"{self.url}/tcs"}
            case "SubmitContainerStateChange" | "SubmitTaskStateChange":
                self.tasks[given["task"]].learn(given)
        return 200, {"Content-Type": "application/x-amz-json-1.1"}, json.dumps(answer).encode()

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        if request.headers.get("Upgrade", "").lower() != "websocket":
            super().serve(request)
            return
        request.close_connection = True
        digest = hashlib.sha1(
            request.headers["Sec-WebSocket-Key"].encode() + _WEBSOCKET_KEY.encode()
        ).digest()
        request.send_response(101)
        accepted = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": b64encode(digest).decode(),
        }
        for name, value in accepted.items():
            request.send_header(name, value)
        request.end_headers()
        session = _Session(request.wfile)
        ended = threading.Event()
        threading.Thread(target=self._keep_alive, args=(session, ended), daemon=True).start()
        is_commands = request.path.startswith("/ws?")
        try:
            if is_commands:
                self._send_credentials(session)
                self._commands = session
            with suppress(OSError, EOFError):
                self._listen(session, request.rfile)
        finally:
            ended.set()
            if is_commands and self._commands is session:
                self._commands = None

    def _keep_alive(self, session: _Session, ended: threading.Event) -> None:
        with suppress(OSError):
            while not ended.wait(_HEARTBEAT_SECONDS):
                session.send("HeartbeatMessage", {"healthy": True, "messageId": str(uuid.uuid4())})

    def _send_credentials(self, session: _Session) -> None:
        """An agent that has restarted has lost the credentials of its tasks."""
        for task in [one for one in self.tasks.values() if not one.has_stopped]:
            message = {
                "messageId": str(uuid.uuid4()),
                "taskArn": task.arn,
                "taskClusterArn": _cluster_arn(self.cluster),
                "roleType": "TaskApplication",
                "roleCredentials": task.credentials(),
            }
            session.send("IAMRoleCredentialsMessage", message)

    def _listen(self, session: _Session, file: BufferedIOBase) -> None:
        while True:
            code, data = _read_frame(file)
            if code == _CLOSE:
                return
            if code == _PING:
                session.frame(_PONG, data)
            with suppress(ValueError, KeyError, TypeError):  # telemetry is not JSON
                self.acknowledged.add(json.loads(data)["message"]["messageId"])


def _read_frame(file: BufferedIOBase) -> tuple[int, bytes]:
    first, second = _exactly(file, 2)
    length = second & 0x7F
    if length >= 126:
        length = int.from_bytes(_exactly(file, 2 if length == 126 else 8), "big")
    mask = _exactly(file, 4)
    data = _exactly(file, length)
    return first & 0x0F, bytes(byte ^ mask[index % 4] for index, byte in enumerate(data))


def _exactly(file: BufferedIOBase, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _text(seconds: float) -> str:
    return (
        dt.datetime.fromtimestamp(seconds, dt.UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
