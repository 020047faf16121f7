"""An instance on a fake clock: its containers, as Docker, the control groups and the ECS agent
show them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from profiler.core.optional_math import sum_known
from profiler.core.threads import ThreadFailure
from profiler.monitor.instance.instance_container import ReadNetwork
from profiler.monitor.instance.instance_loop import InstanceAccess, InstanceLoop
from profiler.monitor.instance.instance_task import InstanceTask
from profiler.monitor.instance.reported_file import ReportedFile
from profiler.monitor.loop import MonitoredTask
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_api import ContainerEvent, DockerApi, DockerEvents
from profiler.readers.docker.ecs_container import EcsContainer, EcsLabels, ListedContainer
from profiler.readers.docker.task_groups import InstanceCgroups, OpenGroup
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.task_metadata import RUNNING, STOPPED, ContainerMetadata, TaskMetadata
from profiler.readers.memory_usage import MemoryReading
from tests.fakes import START_NS, FakeClock, seconds, task_settings
from tests.monitor_world import MIB, FakeMonitor

GONE = Unavailable("it does not exist", is_gone=True)


@dataclass
class FakeContainer:
    """A container: it runs in each of the ``runs`` (start, end), and uses half a CPU and 100
    MiB.

    It gets ``signal`` at ``killed_at``, and SIGKILL at ``forced_at``: from the agent's stop of the
    task, or from another program.
    """

    task: str = "0123"
    name: str = "batch"
    runs: tuple[tuple[float, float | None], ...] = ((0.0, 10.0),)
    exit_code: int = 0
    image: str = "etl"
    family: str = "etl"
    driver: str = "awslogs"
    vcpu: float = 0.5
    docker_seconds: float = 0.0  # for which Docker works in the group before a start
    memory_mib: Callable[[float], float] = lambda _at: 100
    cache_mib: Callable[[float], float] = lambda _at: 0
    peak_mib: float = 0
    killed_at: float | None = None
    signal: int = 15
    stop_signal: int = 15
    forced_at: float | None = None
    is_stopped_by_ecs: bool = True
    is_out_of_memory: bool = False
    group_kills: int | None = None  # of version 2 of the control groups
    gpus: tuple[str, ...] = ()
    mps: Mapping[str, str] = field(default_factory=dict)
    batch: Mapping[str, str] = field(default_factory=dict)  # the variables of AWS Batch
    has_group: bool = True
    container_id: str | None = None
    has_prefix: bool = True

    @property
    def docker_id(self) -> str:
        return self.container_id or f"{self.task}-{self.name}"

    @property
    def arn(self) -> str:
        return f"arn:aws:ecs:eu-west-1:111122223333:task/jobs/{self.task}"

    def run_at(self, at: float) -> tuple[float, float | None] | None:
        """The last run that had started."""
        return next((run for run in reversed(self.runs) if run[0] <= at), None)

    def is_running(self, at: float) -> bool:
        run = self.run_at(at)
        return run is not None and (run[1] is None or at < run[1])

    def cpu_seconds(self, at: float, *, since: float = -1e9) -> float:
        used = (
            min(at, at if end is None else end) - start + self.docker_seconds
            for start, end in self.runs
            if since <= start and start - self.docker_seconds <= at
        )
        return self.vcpu * sum(used)

    def mark_mib(self, at: float, *, is_task: bool) -> float:
        """The high-water mark, by quarters of a second, page cache included; a container's is
        since its last start.
        """
        start, end = (
            self.runs[0][0] if is_task else (self.run_at(at) or self.runs[0])[0],
            self.runs[-1][1],
        )
        last = at if end is None else min(at, end)
        times = [start + 0.25 * step for step in range(int(max(last - start, 0) / 0.25) + 1)]
        return max(self.peak_mib, *(self.memory_mib(time) + self.cache_mib(time) for time in times))

    def inspect(self, at: float) -> EcsContainer:
        run = self.run_at(at)
        is_running = self.is_running(at)
        start, end = (None, None) if run is None else run
        of_task = {"cluster": "jobs", "family": self.family, "revision": "7"}
        return EcsContainer(
            docker_id=self.docker_id,
            labels=EcsLabels(task_arn=self.arn, container_name=self.name, **of_task),
            is_running=is_running,
            image=self.image,
            started_ns=None if start is None else START_NS + seconds(start),
            finished_ns=None if is_running or end is None else START_NS + seconds(end),
            exit_code=None if is_running or end is None else self.exit_code,
            stop_signal=self.stop_signal,
            oom_killed=self.is_out_of_memory and not is_running,
            pid=100 + self.runs.index(run) if run is not None and is_running else None,
            memory_limit_bytes=1024 * MIB,
            cgroup_parent=f"/ecs/{self.task}" if self.has_group else "",
            log_driver=self.driver,
            log_options=self.log_options(),
            metadata_address=f"http://agent/{self.task}",
            gpus=self.gpus,
            mps=self.mps,
            batch=self.batch,
        )

    def log_options(self) -> dict[str, str]:
        if self.driver != "awslogs":
            return {}
        options = {"awslogs-group": "/ecs/jobs", "awslogs-region": "eu-west-1"}
        if self.has_prefix:
            options["awslogs-stream"] = f"ecs/{self.name}/{self.task}"
        return options


@dataclass
class FakeGroup(OpenGroup):
    """The group of a container or of a task. Counts its reads."""

    fakes: "FakeInstance"
    boxes: list[FakeContainer]
    is_task: bool
    run: tuple[float, float | None] | None = None  # of the container, which ends with its group
    reads: int = 0
    is_closed: bool = False

    def read_sample(self, read_ns: int) -> ContainerSample | Unavailable:
        self.reads += 1
        assert not self.is_closed
        ((box,), at) = self.boxes, self.fakes.now
        if not box.is_running(at) or box.run_at(at) != self.run:
            return GONE
        (start, _) = box.run_at(at) or (0, 0)
        return ContainerSample(
            read_ns=read_ns,
            cpu_ns=seconds(box.cpu_seconds(at, since=start)),
            memory_used_bytes=round(box.memory_mib(at) * MIB),
            memory_cache_bytes=round(box.cache_mib(at) * MIB),
            memory_usage_peak_bytes=round(box.mark_mib(at, is_task=False) * MIB),
            pids=3,
        )

    def read_totals(self) -> GroupReading | Unavailable:
        at = self.fakes.now
        cache = round(sum(box.cache_mib(at) for box in self.boxes) * MIB)
        return GroupReading(
            memory=MemoryReading(used_bytes=4 * MIB, cache_bytes=cache, reclaimable_bytes=cache),
            peak_bytes=self.mark_bytes(),
            cpu_ns=seconds(sum(box.cpu_seconds(at) for box in self.boxes)),
            oom_kills=sum_known(*(box.group_kills for box in self.boxes)),
        )

    def cpu_ns(self) -> int | None:
        at = self.fakes.now
        starts = [-1e9 if self.is_task else (box.run_at(at) or (0, 0))[0] for box in self.boxes]
        used = [
            box.cpu_seconds(at, since=start) for box, start in zip(self.boxes, starts, strict=True)
        ]
        return seconds(sum(used))

    def mark_bytes(self) -> int:
        """A task's group has two pages of its own."""
        mark_mib = sum(box.mark_mib(self.fakes.now, is_task=self.is_task) for box in self.boxes)
        return round(mark_mib * MIB) + 8192 * self.is_task

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeGroups(InstanceCgroups):
    fakes: "FakeInstance"
    opened: list[FakeGroup] = field(default_factory=list)

    def open_container(self, docker_id: str, cgroup_parent: str) -> OpenGroup | Unavailable:
        boxes = [
            box
            for box in self.fakes.boxes
            if box.docker_id == docker_id and box.is_running(self.fakes.now)
        ]
        for box in boxes:
            run = box.run_at(self.fakes.now)
            self.opened.append(FakeGroup(self.fakes, [box], is_task=False, run=run))
        return self.opened[-1] if boxes else GONE

    def cpu_ns_of_unseen(
        self, cgroup_parent: str, seen_ids: AbstractSet[str]
    ) -> Mapping[str, int | None]:
        at = self.fakes.now
        unseen: dict[str, int | None] = {}
        for box in self.fakes.boxes:
            start = next((start for start, _ in box.runs if start > at), inf)
            is_there = box.is_running(at) or start - box.docker_seconds <= at
            if cgroup_parent == f"/ecs/{box.task}" and is_there and box.docker_id not in seen_ids:
                unseen[box.docker_id] = seconds(box.cpu_seconds(at, since=start))
        return unseen

    def machine_oom_kills(self) -> int | None:
        return self.fakes.machine_kills(self.fakes.now)

    def open_task(self, cgroup_parent: str) -> OpenGroup | Unavailable:
        boxes = [box for box in self.fakes.boxes if cgroup_parent == f"/ecs/{box.task}"]
        self.opened.append(FakeGroup(self.fakes, boxes, is_task=True))
        return self.opened[-1]


@dataclass
class FakeDockerApi(DockerApi):
    """Shows no container from ``is_empty_from`` on.

    ``failing`` returns why an inspection fails, None if not.

    ``change`` returns another answer.
    """

    fakes: "FakeInstance"
    inspected: list[str] = field(default_factory=list)
    is_empty_from: float = inf
    failing: Callable[[str], Unavailable | None] = lambda _docker_id: None
    change: Callable[[EcsContainer], EcsContainer | Unavailable] = lambda inspected: inspected

    def _shown(self) -> list[FakeContainer]:
        return [box for box in self.fakes.boxes if box.runs[0][0] <= self.fakes.now]

    def list_containers(self) -> tuple[ListedContainer, ...] | Unavailable:
        at = self.fakes.now
        return tuple(
            ListedContainer(
                docker_id=box.docker_id, is_running=box.is_running(at), task_arn=box.arn
            )
            for box in self._shown()
            if at < self.is_empty_from
        )

    def inspect_container(self, docker_id: str) -> EcsContainer | Unavailable:
        self.inspected.append(docker_id)
        if (failure := self.failing(docker_id)) is not None:
            return failure
        found = [box for box in self._shown() if box.docker_id == docker_id]
        return self.change(found[0].inspect(self.fakes.now)) if found else GONE


@dataclass
class FakeEvents(DockerEvents):
    """The stream: what happens in ``gap`` is not in it, and it begins again then.

    Kills come ``delay`` late, all events ``late``.
    """

    fakes: "FakeInstance"
    gap: tuple[float, float] = (-1.0, -1.0)
    taken: float = -1.0
    delay: float = 0.0
    late: float = 0.0
    is_new: bool = True
    failure: ThreadFailure | None = None

    def start(self) -> None:
        self.taken = self.fakes.now

    def stop(self, max_seconds: float) -> None:
        """There is nothing to stop."""

    def all(self) -> list[tuple[float, ContainerEvent]]:
        return sorted(
            (
                (at + self.late, event)
                for box in self.fakes.boxes
                for at, event in self._events_of(box)
            ),
            key=lambda one: one[0],
        )

    def _events_of(self, box: FakeContainer) -> Iterator[tuple[float, ContainerEvent]]:
        for start, end in box.runs:
            yield start + 0.001, self._event("start", box, start)
            if end is not None:
                yield end + 0.05, self._event("die", box, end, exit_code=box.exit_code)
        if box.is_out_of_memory:
            end = box.runs[-1][1] or 0
            yield end + 0.04, self._event("oom", box, end)
        if box.killed_at is not None:
            yield (
                box.killed_at + self.delay,
                self._event("kill", box, box.killed_at, signal=box.signal),
            )
        if box.forced_at is not None:
            yield box.forced_at + self.delay, self._event("kill", box, box.forced_at, signal=9)

    def _event(self, action: str, box: FakeContainer, at: float, **more: int) -> ContainerEvent:
        time_ns = START_NS + seconds(at)
        return ContainerEvent(
            action=action, docker_id=box.docker_id, time_ns=time_ns, task_arn=box.arn, **more
        )

    def next_at(self) -> float | None:
        return next((at for at, _ in self.all() if at > self.taken and not self._is_lost(at)), None)

    def _is_lost(self, at: float) -> bool:
        return self.gap[0] <= at < self.gap[1]

    def take_new_events(self) -> list[ContainerEvent | None]:
        before, self.taken = self.taken, self.fakes.now
        is_first, self.is_new = self.is_new, False
        events = [
            event for at, event in self.all() if before < at <= self.taken and not self._is_lost(at)
        ]
        return [*([None] if is_first or before < self.gap[1] <= self.taken else []), *events]


@dataclass
class FakeAgent(TaskMetadataSource):
    fakes: "FakeInstance"
    task_id: str

    def close(self) -> None:
        """There is no connection."""

    def read_task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        self.fakes.asked.append(self.task_id)
        return self.fakes.answer(self.task_id)


class FakeInstance(FakeMonitor):
    """Runs the loop until ``until``.

    ``tasks`` are changes of the agent's answers by task; None: it does not answer.

    ``change`` returns another answer.
    """

    def __init__(
        self,
        *boxes: FakeContainer,
        folder: Path,
        began: float = 0.0,
        until: float = 30.0,
        **settings: Any,
    ) -> None:
        super().__init__(FakeClock(), until)
        self.boxes, self.began = boxes, began
        self.tasks: dict[str, dict[str, Any] | None] = {}
        self.change: Callable[[TaskMetadata], TaskMetadata | Unavailable] = lambda task: task
        self.policies: set[str] = set()
        self.asked: list[str] = []
        self.clock.advance(began)
        self.docker, self.groups, self.events = (
            FakeDockerApi(self),
            FakeGroups(self),
            FakeEvents(self),
        )
        self.reported: ReportedFile = ReportedFile(folder / "reported", self.log)
        self.reported.load()
        self.settings = task_settings(checkpoint_seconds=0, **settings)
        self.families: tuple[str, ...] = ("*",)
        self.own_address = "http://agent/own"
        self.made: list[InstanceTask] = []
        self.read_network: ReadNetwork = lambda _pid: None
        self.on_wait: Callable[[], object] = lambda: None
        self.machine_kills: Callable[[float], int | None] = lambda _at: None

    @property
    def now(self) -> float:
        return self.clock.now_ns / seconds(1)

    def answer(self, task_id: str) -> TaskMetadata | Unavailable:
        changes = self.tasks.get(task_id, {})
        if changes is None:
            return Unavailable("/task cannot be read: ConnectionRefusedError")
        boxes = [box for box in self.boxes if box.task == task_id]
        is_over = all(
            box.runs[-1][1] is not None and self.now > box.runs[-1][1] + 0.1 for box in boxes
        )
        known = TaskMetadata(
            arn=boxes[0].inspect(0).labels.task_arn,
            cluster="jobs",
            family=boxes[0].family,
            revision="7",
            availability_zone="eu-west-1a",
            launch_type="EC2",
            known_status=STOPPED if is_over else RUNNING,
            desired_status=STOPPED if is_over or self._is_stopping(boxes) else RUNNING,
            vcpu_limit=1.0,
            memory_limit_bytes=2048 * MIB,
            containers=tuple(self._known(box) for box in boxes),
        )
        return self.change(replace(known, **changes))

    def _is_stopping(self, boxes: list[FakeContainer]) -> bool:
        """The agent wants the task STOPPED before it asks Docker to stop a container."""
        for box in boxes:
            times = [at for at in (box.killed_at, box.forced_at) if at is not None]
            if box.is_stopped_by_ecs and times and min(times) <= self.now:
                return True
        return False

    def _known(self, box: FakeContainer) -> ContainerMetadata:
        end = box.runs[-1][1]
        is_over = end is not None and self.now > end + 0.1
        known = ContainerMetadata(
            name=box.name,
            docker_id=box.docker_id,
            image=box.image,
            known_status=STOPPED if is_over else RUNNING,
        )
        return replace(known, has_restart_policy=box.docker_id in self.policies)

    def wait(self, wait_seconds: float) -> None:
        """Until the time is over or, as in the real program, the next event."""
        self.on_wait()
        event_at = self.events.next_at()
        until_event = wait_seconds if event_at is None else max(event_at - self.now, 0)
        self.stop.wait(min(wait_seconds, until_event + 1e-6))

    def run(self) -> "FakeInstance":
        shared = self.shared()

        def make_task(source: InstanceTask) -> MonitoredTask:
            self.made.append(source)
            return self.task_of(source, shared, tuple(source.warnings))

        access = InstanceAccess(
            docker=self.docker,
            events=self.events,
            groups=self.groups,
            open_agent=lambda address: FakeAgent(self, address.rpartition("/")[2]),
            read_network=self.read_network,
        )
        self.loop = InstanceLoop(
            access,
            shared,
            families=self.families,
            own_address=self.own_address,
            reported=self.reported,
            make_task=make_task,
            wait=self.wait,
        )
        self.loop.run()
        return self

    def records(self) -> dict[str, Any]:
        """The records in the log streams, by task and container."""
        found: dict[str, Any] = {}
        for target, line in self.streams.lines:
            document = json.loads(line)
            assert document["type"] == "task.report"
            name = f"{document['record']['taskId']}-{document['record']['container']['name']}"
            assert target.stream == "ecs/{1}/{0}".format(*name.split("-", 1))
            assert name not in found, "reported twice"
            found[name] = document["record"]
        return found

    def record(self) -> dict[str, Any]:
        (record,) = self.records().values()
        return dict(record)
