"""A small ECS agent: starts and stops the real containers of one task in the order in which ECS
does.

It writes the documents of the task metadata endpoint v4, in the shapes of the agent on EC2.
"""

import contextlib
import datetime as dt
import graphlib
import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from msgspec.structs import replace

from tests.e2e.container import ContainerSpec, Placement, RealContainer
from tests.e2e.engine import DockerError, Engine
from tests.e2e.images import BASE_IMAGE
from tests.http_server import FakeHttpServer
from tools.waiting import LIMIT_SECONDS, wait_until

PAUSE = "~internal~ecs~pause~namespace"


_UNITS_PER_CPU = 1024
_FAMILY = _CLUSTER = "e2e"
_REGION = "us-east-1"
_ARN = f"arn:aws:ecs:{_REGION}:123456789012"
_LEAST_CPU_UNITS = 2  # what the agent reports for a container without CPU setting


def _known_status(containers: list[str]) -> str:
    """Return the status of a task whose containers have these: it runs until the last one has
    stopped.
    """
    if all(status == "STOPPED" for status in containers):
        return "STOPPED"
    return (
        "RUNNING" if all(status in {"RUNNING", "STOPPED"} for status in containers) else "PENDING"
    )


class MetadataEndpoint(FakeHttpServer):
    """Plays the task metadata endpoint v4.

    ``document`` gives the document for an endpoint id and a path.

    ``paths`` are those of all requests: ``/task``, ``/task/stats``, ``/stats``, or nothing for the
    root.
    """

    def __init__(self, document: Callable[[str, str], dict[str, Any] | None]) -> None:
        super().__init__()
        self._document = document
        self.paths: list[str] = []

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        _, version, endpoint_id, *rest = (*request.path.split("/"), "", "")
        path = "".join(f"/{part}" for part in rest if part)
        document: Any = self._document(endpoint_id, path) if version == "v4" else None
        self.paths.append(path)
        text = json.dumps(f"unable to find {request.path}" if document is None else document)
        return 404 if document is None else 200, {"Content-Type": "application/json"}, text.encode()


class Task:
    """One run of some containers; use it as a context manager, so that nothing is left when a
    test fails.

    ``pid_mode_task`` lets all containers share one process namespace, as `"pidMode": "task"` does.
    ``stats_period_seconds`` holds stats back for so long, as Fargate does.
    """

    def __init__(
        self,
        engine: Engine,
        *containers: ContainerSpec,
        pid_mode_task: bool = False,
        stats_period_seconds: float = 0,
    ) -> None:
        self.task_id = uuid.uuid4().hex
        self.endpoint = MetadataEndpoint(self._answer)
        self._engine = engine
        self._stats_period_seconds = stats_period_seconds
        self._specs = {
            one.name: one for one in (_with_pause(containers) if pid_mode_task else containers)
        }
        self._containers: dict[str, RealContainer] = {}
        self._endpoint_ids = {uuid.uuid4().hex: name for name in self._specs}
        self._times = {"PullStartedAt": _now(), "PullStoppedAt": _now()}
        self._desired_status = "RUNNING"
        self._changing = threading.RLock()
        self._workers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Nothing runs yet, but its end is certain from here on."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Kill and remove whatever is left of the task."""
        self._desired_status = (
            "STOPPED"  # the ends that follow are ours, and nothing is to be done about them
        )
        with contextlib.ExitStack() as stack:
            stack.callback(self.endpoint.close)
            stack.callback(self._join_workers)
            for name in reversed(self._start_order()):
                if name in self._containers:
                    stack.callback(self._containers[name].remove)

    def __getitem__(self, name: str) -> RealContainer:
        return self._containers[name]

    def log_stream(self, container: str) -> str:
        """Return the stream into which the awslogs driver would write."""
        return f"ecs/{container}/{self.task_id}"

    def start(self) -> None:
        """Start all containers, each after those it depends on; return when the last one runs."""
        for name, spec in self._specs.items():
            self._containers[name] = RealContainer(
                self._engine, spec, self._placement(spec), self._on_stopped
            )
        for name in self._start_order():
            with self._changing:
                if (
                    self._desired_status == "STOPPED"
                ):  # an essential container ended before this one's turn came
                    self._containers[name].abandon()
                else:
                    self._containers[name].start()

    def stop(self) -> None:
        """Ask for the end of the task, as StopTask does, and return at once."""
        with self._changing:
            self._desire_stop()

    def wait_stopped(self) -> None:
        """Wait until every container has stopped."""
        wait_until(
            lambda: all(one.facts.stopped for one in self._containers.values()),
            "the task to stop",
        )

    def _answer(self, endpoint_id: str, path: str) -> dict[str, Any] | None:
        name = self._endpoint_ids.get(endpoint_id)
        if name is None:
            return None
        own = self._containers[name]
        created = [
            container for container in self._containers.values() if container.facts.docker_id
        ]
        stats = {container.facts.docker_id: container.stats or {} for container in created}
        match path:
            case "":
                return self._document(own)
            case "/task":
                return self._task_document(
                    [self._document(container) for container in self._containers.values()]
                )
            case "/task/stats":
                return stats
            case "/stats":
                return stats.get(own.facts.docker_id) or None
        return None

    def _document(self, container: RealContainer) -> dict[str, Any]:
        """Return one entry of `Containers`, which is also the answer at the endpoint's root."""
        spec, facts = container.spec, container.facts
        document: dict[str, Any] = {
            "DockerId": facts.docker_id,
            "Name": spec.name,
            "DockerName": self._docker_name(spec.name) if facts.docker_id else "",
            "Image": spec.image,
            "ImageID": facts.image_id,
            "Labels": self._labels(spec.name),
            "DesiredStatus": self._desired_status,
            "KnownStatus": facts.known_status,
            "Limits": {
                "CPU": round(spec.cpus * _UNITS_PER_CPU) if spec.cpus else _LEAST_CPU_UNITS,
                "Memory": spec.memory_mib or 0,
            },
            "Type": spec.type,
            "ContainerARN": f"{_ARN}:container/{_CLUSTER}/{self.task_id}/{spec.name}",
            "Networks": [{"NetworkMode": "host", "IPv4Addresses": [""]}],
        }
        late = {
            "ExitCode": facts.exit_code,
            "CreatedAt": facts.created_at,
            "StartedAt": facts.started_at,
            "FinishedAt": facts.finished_at,
        }
        document |= {name: value for name, value in late.items() if value is not None}
        if spec.read_only_mounts:
            document["Volumes"] = [
                {"Source": str(one), "Destination": target} for one, target in spec.read_only_mounts
            ]
        if spec.log_group is not None:
            stream = {"awslogs-region": _REGION, "awslogs-stream": self.log_stream(spec.name)}
            document |= {
                "LogDriver": "awslogs",
                "LogOptions": {"awslogs-group": spec.log_group, **stream},
            }
        return document

    def _task_document(self, containers: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "Cluster": _CLUSTER,
            "TaskARN": f"{_ARN}:task/{_CLUSTER}/{self.task_id}",
            "Family": _FAMILY,
            "Revision": "1",
            "DesiredStatus": self._desired_status,
            "KnownStatus": _known_status([container["KnownStatus"] for container in containers]),
            "AvailabilityZone": f"{_REGION}a",
            "LaunchType": "EC2",
            "FaultInjectionEnabled": False,
            "Containers": containers,
            "Limits": {"CPU": 1, "Memory": 1024},
            **self._times,
        }

    def _labels(self, container: str) -> dict[str, str]:
        labels = {
            "cluster": _CLUSTER,
            "container-name": container,
            "task-arn": f"{_ARN}:task/{_CLUSTER}/{self.task_id}",
            "task-definition-family": _FAMILY,
            "task-definition-version": "1",
        }
        return {f"com.amazonaws.ecs.{name}": value for name, value in labels.items()}

    def _docker_name(self, container: str) -> str:
        plain = "".join(letter for letter in container if letter.isalnum() or letter == "-")
        return f"ecs-{_FAMILY}-1-{plain}-{self.task_id[:20]}"

    def _start_order(self) -> tuple[str, ...]:
        graph = {name: spec.depends_on for name, spec in self._specs.items()}
        return tuple(graphlib.TopologicalSorter(graph).static_order())

    def _placement(self, spec: ContainerSpec) -> Placement:
        name = self._docker_name(spec.name)
        endpoint_id = next(one for one, name in self._endpoint_ids.items() if name == spec.name)
        url = f"{self.endpoint.url}/v4/{endpoint_id}"
        return Placement(
            docker_name=name,
            environment={
                "AWS_EXECUTION_ENV": "AWS_ECS_EC2",
                "ECS_CONTAINER_METADATA_URI_V4": url,
                **spec.environment,
            },
            labels=self._labels(spec.name),
            cgroup_parent=f"/e2e-task-profiler/{name}" if self._engine.owns_cgroups else None,
            stats_period_seconds=self._stats_period_seconds,
            pid_mode=f"container:{self._docker_name(PAUSE)}" if PAUSE in spec.depends_on else "",
        )

    def _on_stopped(self, container: RealContainer) -> None:
        """React to an end: its facts are known already, and only then does the task's desired
        status change.
        """
        if container.spec.essential:
            with self._changing:
                self._times = {"ExecutionStoppedAt": _now(), **self._times}
                self._desire_stop()

    def _desire_stop(self) -> None:
        if self._desired_status == "STOPPED":
            return
        self._desired_status = "STOPPED"
        for container in self._containers.values():
            worker = threading.Thread(target=self._stop_one, args=(container,), daemon=True)
            self._workers.append(worker)
            worker.start()

    def _stop_one(self, container: RealContainer) -> None:
        """Stop a container once no container that depends on it is left: shutdown reverses the
        start.
        """
        name = container.spec.name
        dependents = [other for other in self._containers.values() if name in other.spec.depends_on]
        wait_until(
            lambda: all(other.facts.stopped for other in dependents),
            f"those that depend on {name}",
        )
        if container.facts.known_status == "RUNNING":
            with contextlib.suppress(
                DockerError
            ):  # removed in the meantime, because the test is over
                container.stop(container.spec.stop_timeout_seconds)

    def _join_workers(self) -> None:
        for worker in self._workers:
            worker.join(LIMIT_SECONDS)


def _with_pause(containers: tuple[ContainerSpec, ...]) -> tuple[ContainerSpec, ...]:
    """Return the containers with the pause container whose process namespace they share."""
    sleep = ("sleep", "infinity")
    pause = ContainerSpec(
        name=PAUSE, image=BASE_IMAGE, command=sleep, stop_timeout_seconds=0, type="NAMESPACE_PAUSE"
    )
    joined = (replace(one, depends_on=(*one.depends_on, PAUSE)) for one in containers)
    return (pause, *joined)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
