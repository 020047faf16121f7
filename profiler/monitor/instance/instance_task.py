"""A task of the instance as a source of samples: Docker's documents, the control groups, and the
agent's metadata.

running ──> die ──> inspected, and the agent says that the task stops ──> STOPPED, with the exact
totals └─> start again (restart policy) ──> running
"""

import signal
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_api import ContainerEvent
from profiler.readers.docker.ecs_container import EcsContainer, EcsLabels
from profiler.readers.docker.task_groups import InstanceCgroups, OpenGroup
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.task_metadata import (
    CPU_UNITS_UNSET,
    RUNNING,
    STOPPED,
    ContainerMetadata,
    TaskMetadata,
    monitor_of,
)

# Most containers are stopped by one of these signals. Of others, the agent shows if they are a
# stop.
_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL})
# A restart policy starts a container again 0.2 to 0.4 s after its end, on a busy machine later.
_MAX_SETTLE_NS, _MAX_RESTART_NS = 2 * NS_PER_SECOND, 30 * NS_PER_SECOND
# Docker may hang or be restarting; from then on its event is enough, although its time is that of
# Docker's answer.
_MAX_INSPECT_NS = 30 * NS_PER_SECOND
# Whether the task's own monitor starts is known when the task has stopped.
_MAX_OWN_MONITOR_NS = 60 * NS_PER_SECOND
# The agent's own container uses next to nothing.
_PAUSE = "~internal~"
_ASK_SECONDS, _ASK_AGAIN_NS = 0.2, NS_PER_SECOND // 5
_UNANSWERED = (
    "The ECS agent never answered for the task, so its size and its service are unknown: check "
    "that the monitor reaches 169.254.170.2."
)
_RESUMED = (
    "The monitor of the instance started after the batch: of the time before, only totals and "
    "peaks are known."
)
# The bytes that a process's network namespace has received and sent; None if they are not visible.
ReadNetwork = Callable[[int], tuple[int, int] | None]


class _Followed(Struct, eq=False):
    """A container, which ``is_settled`` when it has ended and no attempt may follow.

    ``earlier_starts_ns`` are those of the attempts before it was inspected for the first time.
    ``cpu_ns`` is the CPU time of all its attempts, ``base_cpu_ns`` that of the earlier ones.
    ``died`` is the event of its end, which was seen at ``died_ns`` (monotonic), ``at_end`` the
    task's group at ``at_end_ns`` (wall clock). Then ``cpu_ns`` is the group's less that of the
    ``counted`` containers, None if that of one of them was unknown. ``task_mark_bytes`` is that
    group's mark when the container's rose to ``mark_bytes``: it includes some memory of the group's
    own, so it is above the container's.
    """

    inspected: EcsContainer
    group: OpenGroup | None = None
    no_group: Unavailable | None = None
    last: ContainerSample | None = None
    earlier_starts_ns: tuple[int, ...] = ()
    cpu_ns: int | None = None
    base_cpu_ns: int = 0
    died_ns: int | None = None
    died: ContainerEvent | None = None
    at_end: GroupReading = GroupReading()
    at_end_ns: int = 0
    counted: frozenset[str] | None = None
    mark_bytes: int | None = None
    task_mark_bytes: int | None = None
    stop_signalled_ns: int | None = None
    was_out_of_memory: bool = False
    is_removed: bool = False
    is_settled: bool = False

    @property
    def name(self) -> str:
        return self.inspected.labels.container_name

    @property
    def is_pause(self) -> bool:
        return self.name.startswith(_PAUSE)

    @property
    def has_run(self) -> bool:
        return self.inspected.started_ns is not None

    @property
    def is_ending(self) -> bool:
        return self.died_ns is not None and not self.is_settled

    @property
    def finished_ns(self) -> int | None:
        return self.inspected.finished_ns or (None if self.died is None else self.died.time_ns)

    @property
    def exit_code(self) -> int | None:
        known = self.inspected.exit_code
        return self.died.exit_code if known is None and self.died is not None else known

    def open(self, groups: InstanceCgroups) -> None:
        """Open the group of the attempt that runs."""
        self.close()
        found = groups.open_container(self.inspected.docker_id, self.inspected.cgroup_parent)
        self.group, self.no_group = (
            (None, found) if isinstance(found, Unavailable) else (found, None)
        )

    def read(
        self, read_ns: int, read_network: ReadNetwork = lambda _pid: None
    ) -> ContainerSample | Unavailable | None:
        """The sample of a running container, with the CPU time of its earlier attempts; None if
        it has just ended.
        """
        if self.group is None:
            return self.no_group
        sample = self.group.sample(read_ns)
        if isinstance(sample, Unavailable):
            return None if sample.is_gone else sample
        if self.base_cpu_ns and sample.cpu_ns is not None:
            sample = replace(sample, cpu_ns=sample.cpu_ns + self.base_cpu_ns)
        network = (
            None if self.inspected.network_mode == "host" else read_network(self.inspected.pid or 0)
        )
        if network is not None:
            sample = replace(sample, network_rx_bytes=network[0], network_tx_bytes=network[1])
        self.last, self.cpu_ns = sample, sample.cpu_ns
        return sample

    def note_mark(self, sample: ContainerSample, task_group: OpenGroup) -> None:
        """Read the task's mark if the container's has changed: else it rose without this
        container, or not at all.
        """
        if self.task_mark_bytes is None or sample.memory_usage_peak_bytes != self.mark_bytes:
            self.mark_bytes, self.task_mark_bytes = (
                sample.memory_usage_peak_bytes,
                task_group.mark_bytes(),
            )

    def begin_again(self) -> None:
        """Another attempt has begun, whose group counts from 0."""
        self.base_cpu_ns, self.died_ns, self.died, self.stop_signalled_ns = (
            self.cpu_ns or 0,
            None,
            None,
            None,
        )

    def close(self) -> None:
        if self.group is not None:
            self.group.close()
        self.group = self.no_group = None


class InstanceTask:
    """The containers of one task. ``own`` is the monitor's container.

    The CPU time of a container that has ended is the task's, less that of the other containers; of
    the only container the task's high-water mark is its own. Both last until the agent's clean-up.
    ``lacks_containers``: one of the task's containers could not be inspected yet.
    """

    name = "docker"

    def __init__(
        self,
        labels: EcsLabels,
        groups: InstanceCgroups,
        clock: Clock,
        own: Callable[[], ContainerMetadata],
        open_agent: Callable[[str], TaskMetadataSource],
        *,
        read_network: ReadNetwork,
        is_resumed: bool,
    ) -> None:
        self._labels, self._read_network = labels, read_network
        self._groups, self._clock, self.own_container, self._open_agent = (
            groups,
            clock,
            own,
            open_agent,
        )
        self._containers: dict[str, _Followed] = {}
        self._lost: set[str] = set()
        self._is_abandoned = False
        self._group: OpenGroup | None = None
        self._answer: TaskMetadata | None = None
        self._asked_ns: int | None = None
        self._shown: TaskMetadata | None = None
        self.is_resumed = is_resumed
        self.lacks_containers = False
        self.has_news = True
        self.warnings: list[str] = [_RESUMED] if is_resumed else []

    @property
    def docker_ids(self) -> tuple[str, ...]:
        return tuple(self._containers)

    @property
    def is_ending(self) -> bool:
        """Whether the end of a container was seen, and is not settled yet."""
        return any(one.is_ending for one in self._containers.values())

    @property
    def is_steady(self) -> bool:
        """Whether all containers run and are sampled."""
        return not self._lost and None not in [one.group for one in self._containers.values()]

    @property
    def is_gone(self) -> bool:
        """Whether Docker has removed all containers, after their ends were reported: others will
        not start.
        """
        containers = self._containers.values()
        return (
            not self.has_news
            and bool(containers)
            and all(one.is_removed and one.is_settled for one in containers)
        )

    @property
    def is_without_batch(self) -> bool:
        """Whether no report is due: of a service, of a task that never started, or whose own
        monitor has started.
        """
        if self._is_abandoned or (self._answer is not None and self._answer.service is not None):
            return True
        task = self._describe()
        if (
            task.known_status == STOPPED
            and not self._lost
            and all(one.started_ns is None for one in task.containers)
        ):
            return True
        monitor = monitor_of(task)
        return monitor is not None and monitor.started_ns is not None

    def gpus_of(self, docker_id: str) -> str | None:
        one = self._containers.get(docker_id)
        return None if one is None else ",".join(one.inspected.gpus) or None

    def metadata_address(self) -> str | None:
        """The address at which the agent answers for the task."""
        addresses = (one.inspected.metadata_address for one in self._containers.values())
        return next((address for address in addresses if address is not None), None)

    def add(self, inspected: EcsContainer, events: Sequence[ContainerEvent] = ()) -> None:
        """Add a container, or its present state: running, running again, or ended.

        ``events`` were before that.
        """
        starts_ns = (event.time_ns for event in events if event.action == "start")
        earlier_ns = tuple(
            start_ns for start_ns in starts_ns if start_ns < (inspected.started_ns or 0)
        )
        one = self._containers.setdefault(
            inspected.docker_id, _Followed(inspected, earlier_starts_ns=earlier_ns)
        )
        before = one.inspected
        if (
            inspected.is_running
            and one.died_ns is not None
            and inspected.started_ns == before.started_ns
        ):
            return  # Docker has not noted the end yet
        one.inspected, self.has_news = inspected, True
        if self._group is None and inspected.cgroup_parent:
            group = self._groups.open_task(inspected.cgroup_parent)
            self._group = None if isinstance(group, Unavailable) else group
        if inspected.is_running:
            if one.died_ns is not None:
                one.begin_again()
            if one.group is None or before.pid != inspected.pid:
                one.open(self._groups)
        elif inspected.exit_code is not None and (
            one.died_ns is None or inspected.started_ns != before.started_ns
        ):
            one.died = None  # of an earlier attempt, if this one was over before it was inspected
            self._on_end(one)
        for event in events:
            if event.action != "start" and event.time_ns > (inspected.started_ns or 0):
                self.on_event(event)

    def is_running(self, docker_id: str) -> bool:
        """Whether the end of a container was not seen yet."""
        return docker_id in self._containers and self._containers[docker_id].died_ns is None

    def lacks_exit_code(self, docker_id: str) -> bool:
        one = self._containers[docker_id]
        return one.died_ns is not None and one.inspected.exit_code is None

    def on_removed(self, docker_id: str) -> None:
        """Docker knows the container no longer; if its end was not seen, nothing is known of it."""
        one = self._containers.get(docker_id)
        if one is None:
            return
        one.is_removed = self.has_news = True
        self._is_abandoned = not any(other.has_run for other in self._containers.values())
        if one.died_ns is None:
            one.close()
            self._lost.add(docker_id)
            del self._containers[docker_id]

    def on_event(self, event: ContainerEvent) -> None:
        one = self._containers.get(event.docker_id)
        if one is None:
            return
        if event.action == "kill" and (
            event.signal in _STOP_SIGNALS or self._is_stop_requested_for(one)
        ):
            one.stop_signalled_ns = one.stop_signalled_ns or event.time_ns
        elif event.action == "oom":
            one.was_out_of_memory = True
        elif event.action == "start" and one.died is not None and event.time_ns > one.died.time_ns:
            one.inspected = replace(
                one.inspected, is_running=True, finished_ns=None, exit_code=None
            )  # Docker hangs
            one.begin_again()
            one.open(self._groups)
        elif event.action == "die" and one.died_ns is None:
            one.died = event
            self._on_end(one)
        self.has_news = True

    def _is_stop_requested_for(self, one: _Followed) -> bool:
        """Whether the agent stops the running container: after its end, it stops the task in any
        case.
        """
        self.ask_agent()
        answer = self._answer or TaskMetadata()
        container = answer.container(one.name)
        return answer.is_stop_requested and (container is None or not container.is_stopped)

    def _on_end(self, one: _Followed) -> None:
        """Keep the task's totals: another attempt, or another container, would add to them."""
        one.died_ns, one.counted = self._clock.monotonic_ns(), None
        one.close()
        reading = None if self._group is None else self._group.totals()
        if reading is None or isinstance(reading, Unavailable):
            return
        one.at_end_ns = self._clock.wall_ns()
        if (
            one.last is not None and reading.peak_bytes == one.task_mark_bytes
        ):  # no rise since the last sample
            reading = replace(reading, peak_bytes=one.last.memory_usage_peak_bytes)
        if (reading.peak_bytes or 0) >= (one.at_end.peak_bytes or 0):
            one.at_end = reading
        others = {
            key: other
            for key, other in self._containers.items()
            if other is not one and other.has_run
        }
        used_ns = [self._cpu_ns_now(other) for other in others.values()]
        known_ns = [cpu_ns for cpu_ns in used_ns if cpu_ns is not None]
        if reading.cpu_ns is not None and len(known_ns) == len(used_ns):
            one.cpu_ns = max(reading.cpu_ns - sum(known_ns), one.cpu_ns or 0)
            one.counted = frozenset(others)
        if reading.oom_kills and all(other.is_pause for other in others.values()):
            one.was_out_of_memory = True

    def _cpu_ns_now(self, one: _Followed) -> int | None:
        """The CPU time of a container in the task's group; None if it is known only of some time
        ago.
        """
        if one.died_ns is not None:
            is_known = one.counted is not None and self._sharers(one) <= one.counted
        else:
            is_known = isinstance(one.read(self._clock.wall_ns()), ContainerSample)
        return one.cpu_ns if is_known and one.cpu_ns is not None else 0 if one.is_pause else None

    def _sharers(self, one: _Followed) -> set[str | None]:
        """The other containers that had used the task's group when it was read at the end of
        this one.
        """
        started = {
            other.docker_id: other
            for other in self._describe().containers
            if other.started_ns is not None
        }
        found = {
            docker_id
            for docker_id, other in started.items()
            if docker_id != one.inspected.docker_id and not other.name.startswith(_PAUSE)
            if (other.started_ns or 0) < one.at_end_ns
        }
        return found | {None} if self.lacks_containers else found

    def _final_sample(self, one: _Followed) -> ContainerSample:
        """The totals at the end, which replace the last ones before it."""
        last, memory, peak_bytes = (
            one.last or ContainerSample(read_ns=0),
            one.at_end.memory,
            one.at_end.peak_bytes,
        )
        reclaimable_bytes = None if memory is None else memory.reclaimable_bytes
        sharers = self._sharers(one)
        is_complete = not sharers and peak_bytes is not None and reclaimable_bytes is not None
        return replace(
            last,
            read_ns=max(one.finished_ns or 0, last.read_ns + 1),
            cpu_ns=one.cpu_ns if one.counted is not None and sharers <= one.counted else None,
            memory_used_bytes=None,
            memory_usage_peak_bytes=peak_bytes if is_complete else None,
            memory_cache_bytes=None,
            memory_reclaimable_bytes=reclaimable_bytes if is_complete else None,
            is_mark_complete=is_complete,
        )

    def ask_agent(self) -> bool:
        """Ask the agent for the task, unless it has just been asked; returns False if it hangs."""
        now_ns, address = self._clock.monotonic_ns(), self.metadata_address()
        if address is None or (
            self._asked_ns is not None and now_ns - self._asked_ns < _ASK_AGAIN_NS
        ):
            return True
        self._asked_ns = now_ns
        agent = self._open_agent(address)
        answer = agent.task(_ASK_SECONDS)
        agent.close()
        if isinstance(answer, Unavailable):
            return not answer.timed_out
        self.has_news = self.has_news or answer != self._answer
        self._answer = answer
        return True

    @property
    def is_unanswered(self) -> bool:
        return self._answer is None

    def settle(self, *, may_ask: bool) -> bool:
        """Accept the ends after which no attempt follows, or ask the agent if that ``may_ask``;
        False: it hangs.
        """
        for one in self._containers.values():
            if one.is_ending and self._may_settle(one, one.died_ns or 0):
                one.is_settled = self.has_news = True
                if self._answer is None and _UNANSWERED not in self.warnings:
                    self.warnings.append(_UNANSWERED)
        return self.ask_agent() if may_ask and self.is_ending else may_ask

    def _may_settle(self, one: _Followed, died_ns: int) -> bool:
        waited_ns = self._clock.monotonic_ns() - died_ns
        if one.inspected.exit_code is None and not one.is_removed and waited_ns < _MAX_INSPECT_NS:
            return False
        answer = self._answer or TaskMetadata()
        container, monitor = answer.container(one.name), monitor_of(answer)
        has_policy = container is not None and container.has_restart_policy
        # The agent decides on another attempt before it lists the container as STOPPED.
        is_final = container is not None and (
            not has_policy or container.is_stopped or answer.is_stop_requested
        )
        if not is_final and waited_ns < (_MAX_RESTART_NS if has_policy else _MAX_SETTLE_NS):
            return False
        is_known = monitor is None or monitor.name == one.name or answer.known_status == STOPPED
        return is_known or waited_ns >= _MAX_OWN_MONITOR_NS

    # It does not wait.
    def task(self, max_seconds: float | None = None) -> TaskMetadata:  # noqa: ARG002
        if self.has_news or self._shown is None:
            self.has_news, self._shown = False, self._describe()
        return self._shown

    def _describe(self) -> TaskMetadata:
        labels = self._labels
        known = self._answer or TaskMetadata(
            arn=labels.task_arn,
            cluster=labels.cluster,
            family=labels.family,
            revision=labels.revision,
        )
        names = {one.name for one in self._containers.values()}
        unseen = (
            one
            for one in known.containers
            if one.docker_id not in self._lost and one.name not in names
        )
        seen = (
            self._container(one, known.container(one.name) or ContainerMetadata(name=one.name))
            for one in self._containers.values()
        )
        return replace(known, containers=(*unseen, *seen))

    @staticmethod
    def _container(one: _Followed, known: ContainerMetadata) -> ContainerMetadata:
        """The container as Docker shows it; what is left is from the agent."""
        inspected = one.inspected
        cpu_shares = inspected.cpu_shares or 0
        return replace(
            known,
            docker_id=inspected.docker_id,
            image=known.image or inspected.image,
            image_digest=known.image_digest or inspected.image_digest,
            known_status=STOPPED
            if one.is_settled
            else RUNNING
            if one.has_run
            else known.known_status,
            exit_code=one.exit_code if one.is_settled else None,
            started_ns=min((*one.earlier_starts_ns, inspected.started_ns), key=lambda ns: ns or 0),
            attempt_started_ns=inspected.started_ns,
            seen_restarts=len(one.earlier_starts_ns),
            finished_ns=one.finished_ns if one.is_settled else None,
            is_ending=one.is_ending,
            vcpu_share=known.vcpu_share
            or (cpu_shares / 1024 if cpu_shares > CPU_UNITS_UNSET else None),
            memory_limit_bytes=inspected.memory_limit_bytes or known.memory_limit_bytes,
            log_driver=inspected.log_driver,
            log_options=inspected.log_options,
            stop_signalled_ns=one.stop_signalled_ns,
            was_out_of_memory=one.was_out_of_memory or inspected.oom_killed,
        )

    # It does not wait.
    def stats(self, max_seconds: float | None = None) -> StatsReading:  # noqa: ARG002
        """The samples of what runs, and the totals of what has ended."""
        reading: dict[str, ContainerSample | Unavailable] = {}
        for docker_id, one in self._containers.items():
            if one.no_group is not None:
                one.open(self._groups)
            sample = (
                self._final_sample(one)
                if one.is_settled
                else one.read(self._clock.wall_ns(), self._read_network)
            )
            if self._group is not None and isinstance(sample, ContainerSample):
                one.note_mark(sample, self._group)
            if sample is not None:
                reading[docker_id] = sample
        return reading

    def close(self) -> None:
        for one in self._containers.values():
            one.close()
        if self._group is not None:
            self._group.close()
