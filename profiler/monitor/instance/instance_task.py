"""A task of the instance as a source of samples: Docker's documents, the control groups, and the agent's metadata.

running ──> die ──> inspected, and the agent says that the task stops ──> STOPPED, with the exact totals
                └─> start again (restart policy) ──> running
"""

import signal
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.clock import Clock
from profiler.core.container_roles import TaskContainer, is_injected
from profiler.core.ecs_terms import AwslogsTarget
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ContainerSample
from profiler.readers.docker.docker_events import ContainerEvent
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

# The signals by which ECS stops a container: its stop signal, which is usually the first one, and SIGKILL.
_STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGKILL})
# A restart policy starts a container again 0.2 to 0.4 s after its end.
_MAX_SETTLE_NS = 2 * NS_PER_SECOND
# Docker may be restarting; from then on its event is enough.
_MAX_INSPECT_NS = 10 * NS_PER_SECOND
# Whether the task's own monitor starts is known when the task has stopped.
_MAX_OWN_MONITOR_NS = 60 * NS_PER_SECOND
_ASK_SECONDS, _ASK_AGAIN_NS = 0.2, NS_PER_SECOND // 5
_UNANSWERED = (
    "The ECS agent never answered for the task, so its size and its service are unknown: check that the monitor "
    "reaches 169.254.170.2."
)
_RESUMED = "The monitor of the instance started while the batch ran: before that, only totals and peaks are known."


class _Followed(Struct, eq=False):
    """A container, which is ``stopped`` when no attempt may follow.

    ``base_cpu_ns`` is the CPU time of its earlier attempts, ``died`` the event of its end, which was seen at
    ``died_ns`` (monotonic), ``at_end`` the task's group then.
    """

    inspected: EcsContainer
    group: OpenGroup | None = None
    base_cpu_ns: int = 0
    last: ContainerSample | None = None
    died_ns: int | None = None
    died: ContainerEvent | None = None
    at_end: GroupReading | None = None
    others_cpu_ns: int = 0
    stopped: ContainerMetadata | None = None
    stop_signalled_ns: int | None = None
    was_out_of_memory: bool = False
    is_removed: bool = False

    @property
    def has_run(self) -> bool:
        return self.inspected.started_ns is not None

    @property
    def is_injected(self) -> bool:
        return is_injected(TaskContainer(name=self.inspected.labels.container_name))

    @property
    def cpu_ns(self) -> int:
        return self.base_cpu_ns if self.last is None else self.last.cpu_ns or 0


def log_options(inspected: EcsContainer) -> Mapping[str, str]:
    """The options of the awslogs log driver, as the agent shows them."""
    target = inspected.log_target or AwslogsTarget()
    options = {"group": target.group, "stream": target.stream, "region": target.region}
    return {f"awslogs-{name}": value for name, value in options.items() if value is not None}


class InstanceTask:
    """The containers of one task. ``own`` is the monitor's container, ``service`` the task's service if it has one.

    The CPU time of a container that has ended is the task's, less that of the other containers; of the only container
    the task's high-water mark is its own. Both last until the agent's clean-up.
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
        is_resumed: bool,
    ) -> None:
        self._labels = labels
        self._groups, self._clock, self._own, self._open_agent = groups, clock, own, open_agent
        self._containers: dict[str, _Followed] = {}
        self._lost: set[str] = set()
        self._group: OpenGroup | None = None
        self._answer: TaskMetadata | None = None
        self._asked_ns: int | None = None
        self._shown: TaskMetadata | None = None
        self.is_resumed = is_resumed
        self.has_news = True
        self.warnings: list[str] = [_RESUMED] if is_resumed else []

    def own_container(self) -> ContainerMetadata:
        return self._own()

    @property
    def docker_ids(self) -> tuple[str, ...]:
        return tuple(self._containers)

    @property
    def is_ending(self) -> bool:
        """Whether the end of a container was seen, and is not settled yet."""
        return any(one.died_ns is not None and one.stopped is None for one in self._containers.values())

    @property
    def is_without_batch(self) -> bool:
        """Whether no report is due: the task belongs to a service, or its own monitor has started."""
        if self._answer is not None and self._answer.service is not None:
            return True
        monitor = monitor_of(self._describe())
        return monitor is not None and monitor.started_ns is not None

    def gpus_of(self, docker_id: str) -> tuple[str, ...]:
        one = self._containers.get(docker_id)
        return () if one is None else one.inspected.gpus

    def metadata_address(self) -> str | None:
        """The address at which the agent answers for the task."""
        addresses = (one.inspected.metadata_address for one in self._containers.values())
        return next((address for address in addresses if address is not None), None)

    def add(self, inspected: EcsContainer) -> None:
        """Add a container, or its present state: running, running again, or ended."""
        one = self._containers.setdefault(inspected.docker_id, _Followed(inspected))
        before = one.inspected
        if inspected.is_running and one.died_ns is not None and inspected.started_ns == before.started_ns:
            return  # Docker has not noted the end yet
        one.inspected, self.has_news = inspected, True
        if self._group is None and inspected.cgroup_parent:
            group = self._groups.open_task(inspected.cgroup_parent)
            self._group = None if isinstance(group, Unavailable) else group
        if inspected.is_running:
            if one.died_ns is not None:  # another attempt, whose group counts from 0
                one.base_cpu_ns = self._final_cpu_ns(one) or one.cpu_ns
                one.died_ns = one.died = one.at_end = None
            if one.group is None or before.pid != inspected.pid:
                self._close(one)
                found = self._groups.open_container(inspected.docker_id, inspected.cgroup_parent)
                one.group = None if isinstance(found, Unavailable) else found
        elif inspected.exit_code is not None and one.died_ns is None:
            self._on_end(one)

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
        if one.died is None and one.inspected.exit_code is None:
            self._close(self._containers.pop(docker_id))
            self._lost.add(docker_id)
        one.is_removed = self.has_news = True

    def on_event(self, event: ContainerEvent) -> None:
        one = self._containers.get(event.docker_id)
        if one is None:
            return
        if event.action == "kill" and event.signal in _STOP_SIGNALS:
            one.stop_signalled_ns = one.stop_signalled_ns or event.time_ns
        elif event.action == "oom":
            one.was_out_of_memory = True
        elif event.action == "die" and one.died_ns is None:
            one.died = event
            self._on_end(one)
        self.has_news = True

    def _on_end(self, one: _Followed) -> None:
        """Keep the task's totals: another attempt, or another container, would add to them."""
        one.died_ns = self._clock.monotonic_ns()
        self._close(one)
        reading = None if self._group is None else self._group.totals()
        one.at_end = None if isinstance(reading, Unavailable) else reading
        others = [other for other in self._containers.values() if other is not one]
        for other in others:
            if other.group is not None:
                self._read(other)
        one.others_cpu_ns = sum(other.cpu_ns for other in others)

    def _final_cpu_ns(self, one: _Followed) -> int | None:
        total_ns = None if one.at_end is None else one.at_end.cpu_ns
        return None if total_ns is None else max(total_ns - one.others_cpu_ns, one.cpu_ns)

    def _final_sample(self, one: _Followed, read_ns: int) -> ContainerSample:
        """The totals at the end, which replace the last ones before it."""
        last, at_end = one.last or ContainerSample(read_ns=0), one.at_end
        final = replace(last, read_ns=max(read_ns, last.read_ns + 1), memory_used_bytes=None, pids=None)
        cpu_ns = self._final_cpu_ns(one)
        final = replace(final, cpu_ns=cpu_ns if cpu_ns is not None else last.cpu_ns)
        memory = None if at_end is None else at_end.memory
        is_alone = all(other is one or other.is_injected for other in self._containers.values())
        if at_end is None or memory is None or at_end.peak_bytes is None or not is_alone:
            return replace(final, memory_usage_peak_bytes=None, memory_cache_bytes=None)
        return replace(
            final,
            memory_usage_peak_bytes=at_end.peak_bytes,
            memory_cache_bytes=memory.unmapped_bytes,
            is_mark_complete=memory.unmapped_bytes is not None,
        )

    def ask_agent(self) -> bool:
        """Ask the agent for the task, unless it has just been asked; returns False if it hangs."""
        now_ns, address = self._clock.monotonic_ns(), self.metadata_address()
        if address is None or (self._asked_ns is not None and now_ns - self._asked_ns < _ASK_AGAIN_NS):
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

    def settle(self) -> None:
        """Accept the ends after which no attempt follows, and about whose task all is known."""
        for one in self._containers.values():
            if one.died_ns is not None and one.stopped is None and self._is_settled(one, one.died_ns):
                one.stopped = self._stopped(one)
                self.has_news = True
                if self._answer is None and _UNANSWERED not in self.warnings:
                    self.warnings.append(_UNANSWERED)

    def _is_settled(self, one: _Followed, died_ns: int) -> bool:
        waited_ns = self._clock.monotonic_ns() - died_ns
        if one.inspected.exit_code is None and not one.is_removed and waited_ns < _MAX_INSPECT_NS:
            return False
        answer = self._answer
        container = None if answer is None else answer.container(one.inspected.labels.container_name)
        is_final = container is not None and (not container.has_restart_policy or self._is_task_stopping)
        if not is_final and waited_ns < _MAX_SETTLE_NS:
            self.ask_agent()
            return False
        if answer is None or answer.known_status == STOPPED or waited_ns >= _MAX_OWN_MONITOR_NS:
            return True
        monitor = monitor_of(answer)
        if monitor is None or monitor.name == one.inspected.labels.container_name:
            return True
        self.ask_agent()
        return False

    @property
    def _is_task_stopping(self) -> bool:
        return self._answer is not None and self._answer.is_stop_requested

    def task(self, max_seconds: float | None = None) -> TaskMetadata:  # noqa: ARG002  it does not wait
        if self.has_news or self._shown is None:
            self.has_news, self._shown = False, self._describe()
        return self._shown

    def _describe(self) -> TaskMetadata:
        labels = self._labels
        known = self._answer or TaskMetadata(
            arn=labels.task_arn, cluster=labels.cluster, family=labels.family, revision=labels.revision
        )
        names = {one.inspected.labels.container_name for one in self._containers.values()}
        listed = [one for one in known.containers if one.docker_id not in self._lost and one.name not in names]
        for one in self._containers.values():
            name = one.inspected.labels.container_name
            listed.append(one.stopped or self._running(known.container(name) or ContainerMetadata(name=name), one))
        return replace(known, containers=tuple(listed))

    def _running(self, known: ContainerMetadata, one: _Followed) -> ContainerMetadata:
        """The container as Docker shows it; what is left is from the agent."""
        inspected = one.inspected
        cpu_shares = inspected.cpu_shares or 0
        return replace(
            known,
            docker_id=inspected.docker_id,
            image=known.image or inspected.image,
            image_digest=known.image_digest or inspected.image_digest,
            known_status=RUNNING if one.has_run else known.known_status,
            exit_code=None,
            started_ns=inspected.started_ns,
            finished_ns=None,
            vcpu_share=known.vcpu_share or (cpu_shares / 1024 if cpu_shares > CPU_UNITS_UNSET else None),
            memory_limit_bytes=inspected.memory_limit_bytes or known.memory_limit_bytes,
            log_driver=inspected.log_driver,
            log_options=log_options(inspected),
            stop_signalled_ns=one.stop_signalled_ns,
            was_out_of_memory=one.was_out_of_memory or inspected.oom_killed,
        )

    def _stopped(self, one: _Followed) -> ContainerMetadata:
        event, inspected = one.died, one.inspected
        name = inspected.labels.container_name
        known = None if self._answer is None else self._answer.container(name)
        running = self._running(known or ContainerMetadata(name=name), one)
        exit_code = inspected.exit_code if inspected.exit_code is not None or event is None else event.exit_code
        finished_ns = inspected.finished_ns or (None if event is None else event.time_ns)
        return replace(running, known_status=STOPPED, exit_code=exit_code, finished_ns=finished_ns)

    def stats(self, max_seconds: float | None = None) -> StatsReading:  # noqa: ARG002  it does not wait
        """The samples of what runs, and the totals of what has ended."""
        reading: dict[str, ContainerSample | Unavailable] = {}
        for docker_id, one in self._containers.items():
            if one.stopped is not None:
                reading[docker_id] = self._final_sample(one, one.stopped.finished_ns or 0)
            elif one.group is not None and (sample := self._read(one)) is not None:
                reading[docker_id] = sample
        return reading

    def _read(self, one: _Followed) -> ContainerSample | Unavailable | None:
        """The sample of a running container, with the CPU time of its earlier attempts; None if it has just ended."""
        if one.group is None:
            return None
        sample = one.group.sample(self._clock.wall_ns())
        if isinstance(sample, Unavailable):
            return None if sample.is_gone else sample
        if one.base_cpu_ns and sample.cpu_ns is not None:
            sample = replace(sample, cpu_ns=sample.cpu_ns + one.base_cpu_ns)
        one.last = sample
        return sample

    def _close(self, one: _Followed) -> None:
        if one.group is not None:
            one.group.close()
            one.group = None

    def close(self) -> None:
        for one in self._containers.values():
            self._close(one)
        if self._group is not None:
            self._group.close()
