"""A task of the instance as a source of samples: Docker's documents, the control groups, and the
agent's metadata.

The phases of its containers are in :mod:`profiler.monitor.instance.instance_container`.
"""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.optional_math import any_known, difference, first_of
from profiler.core.timestamps import LONG_AGO_NS, NS_PER_SECOND
from profiler.monitor.instance.accepted_end import is_last_end
from profiler.monitor.instance.group_totals import (
    cpu_ns_now,
    final_sample,
    keep_totals,
    read_totals,
    sharers_of,
)
from profiler.monitor.instance.instance_container import InstanceContainer, ReadNetwork
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_api import ContainerEvent
from profiler.readers.docker.ecs_container import EcsContainer, EcsLabels
from profiler.readers.docker.task_groups import (
    CLOSED_GROUP,
    InstanceCgroups,
    OpenGroup,
    UnopenedGroup,
)
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.task_metadata import (
    STOPPED,
    ContainerMetadata,
    TaskMetadata,
    monitor_container_of,
)

_ASK_SECONDS = 0.2
_ASK_AGAIN_NS = NS_PER_SECOND // 5
_UNANSWERED = (
    "The ECS agent never answered for the task, so its size and its service are unknown: check "
    "that the monitor reaches 169.254.170.2."
)
_RESUMED = (
    "The monitor of the instance started after the batch: of the time before, only totals and "
    "peaks are known."
)


def _is_earlier(event: ContainerEvent, container: InstanceContainer) -> bool:
    """Whether an event is of an attempt before the inspected one."""
    return event.time_ns < (container.inspected.started_ns or 0)


# A container that Docker has not shown, or shows no longer.
_NOT_SHOWN = InstanceContainer(
    EcsContainer(docker_id="", labels=EcsLabels(task_arn="", container_name=""), is_running=False),
    phase="ended",
)


class InstanceTask:
    """The containers of one task. ``own`` is the monitor's container.

    ``lacks_containers``: one of the task's containers could not be inspected yet. ``has_news``:
    something has changed since the last step.
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
        self._labels = labels
        self._groups = groups
        self._clock = clock
        self.read_own_container = own
        self._open_agent = open_agent
        self._read_network = read_network
        self._containers: dict[str, InstanceContainer] = {}  # by Docker id
        self._lost: set[str] = set()
        self._is_abandoned = False
        self._group: OpenGroup | UnopenedGroup = CLOSED_GROUP
        self._answer: TaskMetadata | None = None
        self._asked_ns: float = LONG_AGO_NS
        self._shown: TaskMetadata | None = None
        self.is_resumed = is_resumed
        self.lacks_containers = False
        self.has_news = True
        self.warnings: list[str] = [_RESUMED] if is_resumed else []

    # What the loop asks

    @property
    def docker_ids(self) -> tuple[str, ...]:
        return tuple(self._containers)

    @property
    def is_ending(self) -> bool:
        """Whether the end of a container was seen, and is not settled yet."""
        return any(container.is_ending for container in self._containers.values())

    @property
    def is_steady(self) -> bool:
        """Whether all containers run and are sampled."""
        if self._lost:
            return False
        return all(container.group.is_open for container in self._containers.values())

    @property
    def is_gone(self) -> bool:
        """Whether Docker has removed all containers, after their ends were reported: others will
        not start.
        """
        if self.has_news or not self._containers:
            return False
        return all(
            container.is_removed and container.is_settled for container in self._containers.values()
        )

    @property
    def is_without_batch(self) -> bool:
        """Whether no report is due: of a service, of a task that never started, or whose own
        monitor has started.
        """
        if self._is_abandoned:
            return True
        if (self._answer or TaskMetadata()).service is not None:
            return True
        task = self._describe()
        has_started = any(container.has_run for container in self._containers.values())
        has_started |= any_known(*(container.started_ns for container in task.containers))
        if task.known_status == STOPPED and not self._lost and not has_started:
            return True
        monitor = monitor_container_of(task)
        return monitor is not None and monitor.started_ns is not None

    @property
    def awaits_answer(self) -> bool:
        """Whether the agent has not answered at all, or not since a signal."""
        if self._answer is None:
            return True
        return any(container.stop_signals.awaits_answer for container in self._containers.values())

    def gpus_of(self, docker_id: str) -> str | None:
        """The container's GPUs as in ``NVIDIA_VISIBLE_DEVICES``; None without any."""
        return ",".join(self._container(docker_id).inspected.gpus) or None

    def mps_of(self, docker_id: str) -> Mapping[str, str]:
        """The container's variables of MPS."""
        return self._container(docker_id).inspected.mps

    def metadata_address(self) -> str | None:
        """The address at which the agent answers for the task."""
        containers = self._containers.values()
        return first_of(container.inspected.metadata_address for container in containers)

    def is_running(self, docker_id: str) -> bool:
        """Whether the end of a container was not seen yet."""
        return not self._container(docker_id).has_ended

    def _container(self, docker_id: str) -> InstanceContainer:
        return self._containers.get(docker_id, _NOT_SHOWN)

    def lacks_exit_code(self, docker_id: str) -> bool:
        container = self._containers[docker_id]
        return container.has_ended and container.inspected.exit_code is None

    # What Docker shows

    def add_container(self, inspected: EcsContainer, events: Sequence[ContainerEvent] = ()) -> None:
        """Add a container, or its present state: running, running again, or ended.

        ``events`` were before that.
        """
        container = self._containers.get(inspected.docker_id)
        if container is None:
            container = InstanceContainer(
                inspected, earlier_starts_ns=_earlier_starts(inspected.started_ns, events)
            )
            self._containers[inspected.docker_id] = container
        before = container.inspected
        is_same_attempt = inspected.started_ns == before.started_ns
        if inspected.is_running and container.has_ended and is_same_attempt:
            return  # Docker has not noted the end yet
        container.inspected = inspected
        self.has_news = True
        self._open_group(inspected.cgroup_parent)
        if inspected.is_running:
            if container.has_ended or not is_same_attempt:
                self._follow_next_attempt(container)
            elif not container.group.is_open or before.pid != inspected.pid:
                container.open_group(self._groups)
        elif inspected.exit_code is not None and not (container.has_ended and is_same_attempt):
            container.died = None  # of an earlier attempt, if this one was over before it was seen
            self._on_end(container)
        for event in events:
            if event.action != "start" and event.time_ns > (inspected.started_ns or 0):
                self.on_event(event)

    def _open_group(self, cgroup_parent: str) -> None:
        """Open the task's group once; the agent may have made none."""
        if self._group.is_open or not cgroup_parent:
            return
        group = self._groups.open_task(cgroup_parent)
        if not isinstance(group, Unavailable):
            self._group = group

    def on_removed(self, docker_id: str) -> None:
        """Docker knows the container no longer; if its end was not seen, nothing is known of it."""
        container = self._containers.get(docker_id)
        if container is None:
            return
        self.has_news = True
        container.is_removed = True
        container.note_seen("removed")
        self._is_abandoned = not any(other.has_run for other in self._containers.values())
        if container.phase == "lost":
            container.close()
            self._lost.add(docker_id)
            del self._containers[docker_id]

    def on_event(self, event: ContainerEvent) -> None:
        """Note what Docker's event says of a container of the task."""
        container = self._containers.get(event.docker_id)
        if container is None:
            return
        if event.action == "kill":
            is_stop_signal = event.signal == container.inspected.stop_signal
            container.stop_signals = container.stop_signals.with_signal(
                event.time_ns, is_stop_signal=is_stop_signal
            )
        elif event.action == "oom":
            container.was_out_of_memory = True
        elif event.action == "start":
            self._on_start(container, event.time_ns)
        elif (
            event.action == "die" and not container.has_ended and not _is_earlier(event, container)
        ):
            container.died = event
            self._on_end(container)
        self.has_news = True

    def _on_start(self, container: InstanceContainer, started_ns: int) -> None:
        """Begin the next attempt where Docker hangs: else the inspection shows it."""
        container.start_seen_ns = started_ns
        if container.died is None or started_ns <= container.died.time_ns:
            return
        container.inspected = replace(
            container.inspected, is_running=True, finished_ns=None, exit_code=None
        )
        self._follow_next_attempt(container)

    def _follow_next_attempt(self, container: InstanceContainer) -> None:
        """Open the group of another attempt.

        The end of the attempt before may have been unseen, or its totals were read when this one
        was already running: the task's total less the present groups is what came before.
        """
        container.begin_again()
        container.open_group(self._groups)
        earlier_ns = difference(self._group.cpu_ns(), container.group.cpu_ns())
        for other_ns in self._others_cpu_ns(container).values():
            earlier_ns = difference(earlier_ns, other_ns)
        if earlier_ns is not None:
            container.base_cpu_ns = max(earlier_ns, 0)

    def _on_end(self, container: InstanceContainer) -> None:
        """Keep the task's totals: another attempt, or another container, would add to them."""
        container.end_attempt(self._clock.monotonic_ns(), self._groups.machine_oom_kills())
        reading = read_totals(container, self._group)
        if isinstance(reading, Unavailable):
            return
        container.at_end_ns = self._clock.wall_ns()
        others = self._others_that_ran(container)
        others_cpu_ns = self._others_cpu_ns(container)
        started_ids = {other.docker_id for other in others}
        container.starting_at_end = frozenset(others_cpu_ns) - started_ids
        keep_totals(container, reading, others, others_cpu_ns)

    def _others_that_ran(self, container: InstanceContainer) -> list[InstanceContainer]:
        return [
            other for other in self._containers.values() if other is not container and other.has_run
        ]

    def _others_cpu_ns(self, container: InstanceContainer) -> dict[str, int | None]:
        """The CPU time of the task's other containers, by their Docker ids: of those that have
        run, and of those that Docker is starting.
        """
        others_ns = {
            other.docker_id: cpu_ns_now(other, self._sharers(other), self._clock)
            for other in self._others_that_ran(container)
        }
        starting_ns = self._groups.cpu_ns_of_unseen(
            container.inspected.cgroup_parent, {container.docker_id, *others_ns}
        )
        return {**others_ns, **starting_ns}

    def _sharers(self, container: InstanceContainer) -> frozenset[str]:
        """The others in the task's group; see :func:`sharers_of`."""
        return sharers_of(container, self._describe(), lacks_containers=self.lacks_containers)

    # What the agent answers

    def ask_agent(self) -> bool:
        """Ask the agent for the task, unless it has just been asked; returns False if it hangs."""
        now_ns = self._clock.monotonic_ns()
        address = self.metadata_address()
        if address is None:
            return True
        if now_ns - self._asked_ns < _ASK_AGAIN_NS:
            return True
        self._asked_ns = now_ns
        agent = self._open_agent(address)
        answer = agent.read_task(_ASK_SECONDS)
        agent.close()
        if isinstance(answer, Unavailable):
            return not answer.timed_out
        self.has_news = self.has_news or answer != self._answer
        self._answer = answer
        for container in self._containers.values():
            signals = container.stop_signals.with_answer(answer, container.name)
            if signals != container.stop_signals:
                container.stop_signals = signals
                self.has_news = True
        return True

    def settle_ends(self, *, may_ask: bool) -> bool:
        """Accept the ends after which no attempt follows, or ask the agent if that ``may_ask``;
        False: it hangs.
        """
        now_ns = self._clock.monotonic_ns()
        answer = self._answer or TaskMetadata()
        for container in self._containers.values():
            if container.is_ending and is_last_end(container, answer, now_ns - container.died_ns):
                container.note_seen("settled")
                self.has_news = True
                if self._answer is None and _UNANSWERED not in self.warnings:
                    self.warnings.append(_UNANSWERED)
        if may_ask and self.is_ending:
            return self.ask_agent()
        return may_ask

    # What the sampler reads

    def read_task(self, max_seconds: float | None = None) -> TaskMetadata:  # noqa: ARG002
        """The task as the agent and Docker show it now. It does not wait."""
        if self.has_news or self._shown is None:
            self.has_news = False
            self._shown = self._describe()
        return self._shown

    def _describe(self) -> TaskMetadata:
        """The agent's answer, else the labels, with the containers as Docker shows them."""
        labels = self._labels
        known = self._answer or TaskMetadata(
            arn=labels.task_arn,
            cluster=labels.cluster,
            family=labels.family,
            revision=labels.revision,
        )
        inspected_names = {container.name for container in self._containers.values()}
        described: list[ContainerMetadata] = []
        for listed in known.containers:
            if listed.docker_id not in self._lost and listed.name not in inspected_names:
                described.append(listed)
        for container in self._containers.values():
            described.append(container.as_described(known.container_or_name_only(container.name)))
        batch: dict[str, str] = {}
        for container in self._containers.values():
            batch.update(container.inspected.batch)
        return replace(known, batch=batch, containers=tuple(described))

    # It does not wait.
    def read_stats(self, max_seconds: float | None = None) -> StatsReading:  # noqa: ARG002
        """The samples of what runs, and the totals of what has ended."""
        reading: dict[str, ContainerSample | Unavailable] = {}
        for docker_id, container in self._containers.items():
            sample = self._sample(container)
            if isinstance(sample, ContainerSample):
                container.note_mark(sample, self._group)
            if sample is not None:
                reading[docker_id] = sample
        return reading

    def _sample(self, container: InstanceContainer) -> ContainerSample | Unavailable | None:
        """The totals of a settled container, else a new sample; None between the two."""
        if container.group.is_missing:
            container.open_group(self._groups)
        if container.is_settled:
            return final_sample(container, self._sharers(container))
        return container.read_sample(self._clock.wall_ns(), self._read_network)

    def close(self) -> None:
        for container in self._containers.values():
            container.close()
        self._group.close()


def _earlier_starts(started_ns: int | None, events: Sequence[ContainerEvent]) -> tuple[int, ...]:
    """The times of the attempts before the one that began at ``started_ns``."""
    earlier: list[int] = []
    for event in events:
        if event.action == "start" and event.time_ns < (started_ns or 0):
            earlier.append(event.time_ns)
    return tuple(earlier)
