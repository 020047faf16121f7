"""A small ECS agent: starts and stops the real containers of one task in the order in which ECS does."""

import contextlib
import datetime as dt
import graphlib
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

from tests.e2e.container import Placement, RealContainer
from tests.e2e.docker_api import DockerError
from tests.e2e.documents import TaskIdentity, TaskTimes, container_document, task_document
from tests.e2e.engine import Engine
from tests.e2e.images import BASE_IMAGE
from tests.e2e.metadata_endpoint import MetadataEndpoint
from tests.e2e.specs import ContainerSpec, TaskSpec
from tests.waiting import wait_until

PAUSE = "~internal~ecs~pause~namespace"

_STOP_SECONDS = 300.0
_JOIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """Something that happened to a container, in wall-clock seconds; `signalled` is the SIGTERM of the agent."""

    at: float
    container: str
    what: Literal["started", "signalled", "stopped"]


class Task:
    """One run of a task definition; use it as a context manager, so that nothing is left when a test fails."""

    def __init__(self, engine: Engine, spec: TaskSpec) -> None:
        """Prepare a run; containers are made by `start`."""
        self.identity = TaskIdentity(spec=spec, task_id=uuid.uuid4().hex)
        self.endpoint = MetadataEndpoint(self)
        self._engine = engine
        self._specs = {container.name: container for container in _with_pause(spec)}
        self._containers: dict[str, RealContainer] = {}
        self._endpoint_ids = {uuid.uuid4().hex: name for name in self._specs}
        self._times = TaskTimes(pull_started_at=_now(), pull_stopped_at=_now())
        self._desired_status = "RUNNING"
        self._changing = threading.RLock()
        self._events: list[TaskEvent] = []
        self._workers: list[threading.Thread] = []

    def __enter__(self) -> Self:
        """Open the metadata endpoint."""
        self.endpoint.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill and remove whatever is left of the task."""
        self._desired_status = "STOPPED"  # the ends that follow are ours, and nothing is to be done about them
        with contextlib.ExitStack() as stack:
            stack.callback(self.endpoint.close)
            stack.callback(self._join_workers)
            for name in reversed(self._start_order()):
                if name in self._containers:
                    stack.callback(self._containers[name].remove)

    def __getitem__(self, name: str) -> RealContainer:
        """Return a container of a task that was prepared or started."""
        return self._containers[name]

    @property
    def events(self) -> tuple[TaskEvent, ...]:
        """Return what happened so far, oldest first."""
        return tuple(self._events)

    def event(self, container: str, what: Literal["started", "signalled", "stopped"]) -> TaskEvent | None:
        """Return the first such event of a container, if it happened."""
        return next((event for event in self.events if (event.container, event.what) == (container, what)), None)

    def log_stream(self, container: str) -> str:
        """Return the log stream of a container."""
        return self.identity.log_stream(self._specs[container])

    def prepare(self) -> None:
        """List the containers, pulled but not created, as the agent does before their turn comes."""
        for name, spec in self._specs.items():
            self._containers[name] = RealContainer(self._engine, spec, self._placement(spec), self._on_stopped)

    def start(self) -> None:
        """Start all containers, each after those it depends on; return when the last one runs."""
        self.prepare()
        for name in self._start_order():
            with self._changing:
                self._start_one(self._containers[name])

    def stop(self) -> None:
        """Ask for the end of the task, as StopTask does, and return at once."""
        with self._changing:
            self._desire_stop()

    def wait_stopped(self, seconds: float) -> None:
        """Wait until every container has stopped."""
        wait_until(lambda: all(one.facts.stopped for one in self._containers.values()), seconds, "the task to stop")

    def container_document(self, endpoint_id: str) -> dict[str, Any] | None:
        """Return the document of the container that asks (for the endpoint)."""
        name = self._endpoint_ids.get(endpoint_id)
        return None if name is None else self._document(self._containers[name])

    def task_document(self) -> dict[str, Any]:
        """Return the document of the task (for the endpoint)."""
        containers = [self._document(container) for container in self._containers.values()]
        return task_document(self.identity, self._times, self._desired_status, containers)

    def stats_documents(self) -> dict[str, dict[str, Any]]:
        """Return the stats of every container that was created (for the endpoint)."""
        created = [container for container in self._containers.values() if container.facts.docker_id]
        return {container.facts.docker_id: container.stats or {} for container in created}

    def _document(self, container: RealContainer) -> dict[str, Any]:
        return container_document(self.identity, container.spec, container.facts, self._desired_status)

    def _start_order(self) -> tuple[str, ...]:
        graph = {name: spec.depends_on for name, spec in self._specs.items()}
        return tuple(graphlib.TopologicalSorter(graph).static_order())

    def _placement(self, spec: ContainerSpec) -> Placement:
        group = f"/e2e-task-profiler/{self.identity.docker_name(spec.name)}"
        return Placement(
            docker_name=self.identity.docker_name(spec.name),
            environment=self._environment(spec),
            labels=self.identity.labels(spec.name),
            cgroup_parent=group if self._engine.owns_cgroups else None,
            stats_period_seconds=self.identity.spec.stats_period_seconds,
            pid_mode=f"container:{self.identity.docker_name(PAUSE)}" if PAUSE in spec.depends_on else "",
        )

    def _environment(self, spec: ContainerSpec) -> Mapping[str, str]:
        endpoint_id = next(one for one, name in self._endpoint_ids.items() if name == spec.name)
        given = {"AWS_EXECUTION_ENV": "AWS_ECS_EC2", "ECS_CONTAINER_METADATA_URI_V4": self.endpoint.url(endpoint_id)}
        return given | dict(spec.environment)

    def _start_one(self, container: RealContainer) -> None:
        if self._desired_status == "STOPPED":  # an essential container ended before this one's turn came
            container.abandon()
            return
        container.start()
        self._note(container, "started")

    def _on_stopped(self, container: RealContainer) -> None:
        """React to an end: its facts are known already, and only then does the task's desired status change."""
        self._note(container, "stopped")
        if container.spec.essential:
            with self._changing:
                if self._times.execution_stopped_at is None:
                    self._times = replace(self._times, execution_stopped_at=_now())
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
        """Stop a container once no container that depends on it is left: shutdown reverses the start."""
        name = container.spec.name
        dependents = [other for other in self._containers.values() if name in other.spec.depends_on]
        wait_until(
            lambda: all(other.facts.stopped for other in dependents), _STOP_SECONDS, f"those that depend on {name}"
        )
        if container.facts.known_status == "RUNNING":
            self._note(container, "signalled")
            with contextlib.suppress(DockerError):  # removed in the meantime, because the test is over
                container.stop(container.spec.stop_timeout_seconds)

    def _join_workers(self) -> None:
        for worker in self._workers:
            worker.join(_JOIN_SECONDS)

    def _note(self, container: RealContainer, what: Literal["started", "signalled", "stopped"]) -> None:
        self._events.append(TaskEvent(at=time.time(), container=container.spec.name, what=what))


def _with_pause(spec: TaskSpec) -> tuple[ContainerSpec, ...]:
    """Return the task's containers, with the pause container whose process namespace they share if they do."""
    if not spec.pid_mode_task:
        return spec.containers
    pause = ContainerSpec(
        name=PAUSE,
        image=BASE_IMAGE,
        command=("sleep", "infinity"),
        stop_timeout_seconds=0,
        type="NAMESPACE_PAUSE",
    )
    joined = (replace(one, depends_on=(*one.depends_on, PAUSE)) for one in spec.containers)
    return (pause, *joined)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat().replace("+00:00", "Z")
