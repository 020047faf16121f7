"""Watches the batch's processes beside the main loop, where they are visible.

In a thread of its own: it wakes up when the batch's first process ends, and reads the control
group once more before that is gone.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from profiler.clock import Clock, Grid
from profiler.processes.batch_processes import BatchProcesses, Moment
from profiler.processes.process_record import Found, with_processes
from profiler.processes.process_totals import ShowArguments
from profiler.record import Record
from profiler.sources.budget import Budget
from profiler.sources.container_cgroup import GroupReading
from profiler.sources.container_stats import ContainerSample
from profiler.sources.processes import Census
from profiler.sources.task_metadata import ContainerMetadata
from profiler.times import NS_PER_SECOND

# With thousands of processes a reading takes 10 to 50 ms of CPU time: it is then taken every few seconds.
_SHARE_OF_A_CORE = 0.005
_FARGATE = "FARGATE"
# Each process may be another user's; after so many refusals the control group is not ours to read.
_ATTEMPTS_AT_THE_GROUP = 5


class ProcessSource(Protocol):
    """Reads the processes of one container."""

    def read(self) -> Census:
        """The processes now."""
        ...

    def close(self) -> None:
        """Let go of them."""
        ...


class GroupSource(Protocol):
    """Reads the control group of one container."""

    def read(self) -> GroupReading | None:
        """The counters now; None once the group is gone."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class Alarm(Protocol):
    """A pause that a process's end cuts short."""

    def open(self) -> None:
        """Make ready, before any other call."""
        ...

    def watch(self, pids: tuple[int, ...]) -> None:
        """Wake up for the end of these processes."""
        ...

    def wait(self, seconds: float) -> bool:
        """Pause; says whether one of the processes has ended."""
        ...

    def ring(self) -> None:
        """End the pause, from another thread."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Machine(Struct, frozen=True, kw_only=True):
    """How to look at the processes of this machine: the real one's, or a test's."""

    processes_of: Callable[[str], ProcessSource]
    group_of: Callable[[int, str], GroupSource | None]
    oom_kills: Callable[[], int | None]
    own_cpu_ns: Callable[[], int]
    alarm: Alarm


class _Follower:
    """The sources of one batch container in its present life, and what is known of it in all of them."""

    def __init__(self, batch: BatchProcesses) -> None:
        self.batch = batch
        self.budget = Budget(_SHARE_OF_A_CORE)
        self.docker_id = ""
        self.life = ""
        self.started_ns: int | None = None
        self.source: ProcessSource | None = None
        self.group: GroupSource | None = None
        self.attempts_left = 0
        self.first_pid: int | None = None

    def begin(self, container: ContainerMetadata, docker_id: str, machine: Machine) -> None:
        """Follow a container, or its next life."""
        life = f"{docker_id}/{container.restart_count}"
        if life == self.life:
            return
        self.close()
        self.docker_id, self.life = docker_id, life
        self.started_ns = None if container.restart_count else container.started_ns
        self.source = machine.processes_of(docker_id)
        self.attempts_left = _ATTEMPTS_AT_THE_GROUP

    def read_processes(self, machine: Machine) -> Census:
        """The processes now; by one of them the container's control group may be found."""
        census = Census() if self.source is None else self.source.read()
        self.first_pid = census.first_pid
        for process in census.processes:
            if self.group is not None or self.attempts_left == 0:
                break
            self.attempts_left -= 1
            self.group = machine.group_of(process.pid, self.docker_id)
        return census

    def read_group(self) -> GroupReading | None:
        """The control group now, if it was found and is still there."""
        return None if self.group is None else self.group.read()

    def close(self) -> None:
        """Let go of the sources."""
        for source in (self.source, self.group):
            if source is not None:
                source.close()
        self.source = self.group = None


class ProcessWatch:
    """Reads every interval, and when the first process of a batch ends."""

    name = "processes"
    complaint: str | None = None
    helper_pid: int | None = None

    def __init__(self, machine: Machine, clock: Clock, interval_ns: int, show_arguments: ShowArguments) -> None:
        self._machine = machine
        self._clock = clock
        self._interval_ns = interval_ns
        self._show_arguments = show_arguments
        self._containers: dict[str, ContainerMetadata] = {}
        self._followers: dict[str, _Follower] = {}
        self._lock = threading.Lock()
        self._settled = threading.Event()
        self._asked_to_settle = False
        self._ending = False
        self._thread: threading.Thread | None = None
        self._disagreements: tuple[str, ...] = ()

    @property
    def has_read(self) -> bool:
        """Whether any process of a batch was visible."""
        return any(follower.batch.has_read for follower in list(self._followers.values()))

    def start(self) -> None:
        """Begin to watch."""
        self._machine.alarm.open()
        self._thread = threading.Thread(target=self._work, name="processes", daemon=True)
        self._thread.start()

    def batch_seen(self, container: ContainerMetadata) -> None:
        """Follow this container, from now on."""
        if container != self._containers.get(container.name):
            self._containers = {**self._containers, container.name: container}
            self._machine.alarm.ring()

    def heard(self, name: str, sample: ContainerSample) -> None:
        """Compare with a sample of the task stats."""
        with self._lock:
            follower = self._followers.get(name)
            if follower is not None:
                follower.batch.agreement.heard(sample)

    def settle(self, at_most_seconds: float) -> None:
        """Read once more."""
        if self._thread is None:
            return
        self._settled.clear()
        self._asked_to_settle = True
        self._machine.alarm.ring()
        self._settled.wait(at_most_seconds)

    def stop(self, at_most_seconds: float) -> None:
        """End the thread."""
        if self._thread is None:
            return
        self._ending = True
        self._machine.alarm.ring()
        self._thread.join(at_most_seconds)

    def onto(self, record: Record) -> Record:
        """The record with what is known of the processes of its container."""
        with self._lock:
            follower = self._followers.get(record.container.name)
            if follower is None or not follower.batch.has_read:
                self._disagreements = ()
                return record
            batch = follower.batch
            self._disagreements = batch.agreement.warnings()
            found = Found(
                usage=batch.usage,
                cpu_ns=batch.cpu_ns,
                peak_bytes=batch.peak_bytes,
                group_peak=batch.group_peak,
                processes=batch.totals.top(),
                kills=batch.kills.kills(machine_is_the_tasks=record.launch_type == _FARGATE),
                agrees_on_cpu=batch.agreement.on_cpu,
                agrees_on_memory=batch.agreement.on_memory,
                since_checkpoint=None if record.interval is None else batch.usage.end_interval(),
            )
            return with_processes(record, found)

    def latest(self) -> None:
        """Nothing is shown while it runs."""

    def warnings(self) -> tuple[str, ...]:
        """Where the processes and the task stats differ, in the record that was written last."""
        return self._disagreements

    def _work(self) -> None:
        grid = Grid(self._clock.monotonic_ns(), self._interval_ns)
        alarm = self._machine.alarm
        next_ns, has_ended = 0, False
        while not self._ending:
            is_asked, self._asked_to_settle = self._asked_to_settle, False
            now_ns = self._clock.monotonic_ns()
            if now_ns >= next_ns:
                next_ns = now_ns + round(grid.seconds_to_next(now_ns) * NS_PER_SECOND)
            self.tick(at_any_cost=is_asked or has_ended)
            if is_asked:
                self._settled.set()
            has_ended = alarm.wait((next_ns - self._clock.monotonic_ns()) / NS_PER_SECOND)
        for follower in self._followers.values():
            follower.close()
        alarm.close()

    def tick(self, *, at_any_cost: bool = False) -> None:
        """Read all batches once; their processes only if it is their turn, unless at any cost."""
        for name, container in self._containers.items():
            if container.docker_id:
                follower = self._followers.get(name) or self._new_follower(name)
                follower.begin(container, container.docker_id, self._machine)
                self._read(follower, at_any_cost=at_any_cost)
        first_pids = (follower.first_pid for follower in self._followers.values())
        self._machine.alarm.watch(tuple(pid for pid in first_pids if pid is not None))

    def _new_follower(self, name: str) -> _Follower:
        follower = _Follower(BatchProcesses(self._interval_ns, self._show_arguments))
        with self._lock:
            self._followers[name] = follower
        return follower

    def _read(self, follower: _Follower, *, at_any_cost: bool) -> None:
        now_ns = self._clock.monotonic_ns()
        moment = Moment(
            life=follower.life, monotonic_ns=now_ns, wall_ns=self._clock.wall_ns(), started_ns=follower.started_ns
        )
        if follower.budget.allows(now_ns) or at_any_cost:
            self._read_processes(follower, moment)
        elif (group := follower.read_group()) is not None:
            with self._lock:
                follower.batch.add_group(group, moment)

    def _read_processes(self, follower: _Follower, moment: Moment) -> None:
        began_ns = self._machine.own_cpu_ns()
        census = follower.read_processes(self._machine)
        group = follower.read_group()
        machine_kills = self._machine.oom_kills()
        with self._lock:
            follower.batch.add(census, group, machine_kills, moment)
        follower.budget.spend(self._machine.own_cpu_ns() - began_ns, moment.monotonic_ns)
