"""The loop of an instance's monitor: at each tick and event of Docker, it monitors each task as
a sidecar does.

Which containers belong to a task that is followed is in
:mod:`profiler.monitor.instance.known_containers`. A task leaves ``_tasks`` after its last report,
or as soon as it is known to need none.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from msgspec import Struct

from profiler.core.ecs_terms import MONITOR_NAME
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NEVER_NS, NS_PER_SECOND
from profiler.monitor.instance.instance_container import ReadNetwork
from profiler.monitor.instance.instance_task import InstanceTask
from profiler.monitor.instance.known_containers import KnownContainers
from profiler.monitor.instance.paced_docker import PacedDocker
from profiler.monitor.instance.reported_file import ReportedFile
from profiler.monitor.loop import MonitoredTask
from profiler.monitor.shared_parts import REPORT_DEFECT, SharedParts, describe_error
from profiler.readers import Unavailable
from profiler.readers.docker.docker_api import ContainerEvent, DockerApi, DockerEvents
from profiler.readers.docker.ecs_container import EcsContainer, ListedContainer
from profiler.readers.docker.task_groups import InstanceCgroups
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.family_identity import matches_any

# Right after the event of an end, Docker keeps an inspection waiting for so long.
_AFTER_END_NS = NS_PER_SECOND // 10
# Between two steps, a task that runs without news is only sampled.
_STEP_NS = 10 * NS_PER_SECOND
_MAX_AGE_NS = 3600 * NS_PER_SECOND
# A container that is listed and started before that is not new.
_NEW_NS = 2 * NS_PER_SECOND
_FINISH_NS = 5 * NS_PER_SECOND // 2
_FINISH_SECONDS = 0.1


class InstanceAccess(Struct, frozen=True, kw_only=True):
    """What the loop reads.

    ``open_agent`` takes a container's metadata address, ``read_network`` a process's id.
    """

    docker: DockerApi
    events: DockerEvents
    groups: InstanceCgroups
    open_agent: Callable[[str], TaskMetadataSource]
    read_network: ReadNetwork = lambda _pid: None


class _Task(Struct):
    """A followed task. ``warned``: so many of its source's warnings are in its records."""

    source: InstanceTask
    monitored: MonitoredTask
    warned: int
    step_at_ns: int = 0


class InstanceLoop:
    """Monitors the tasks of the ``families``, without its own.

    ``wait``: for seconds, an event or a stop request.
    """

    def __init__(
        self,
        access: InstanceAccess,
        shared: SharedParts,
        *,
        families: tuple[str, ...],
        own_address: str,
        reported: ReportedFile,
        make_task: Callable[[InstanceTask], MonitoredTask],
        wait: Callable[[float], object],
    ) -> None:
        self._access = access
        self._docker = PacedDocker(access.docker, shared.clock, shared.log)
        self._shared = shared
        self._clock = shared.clock
        self._log = shared.log
        self._families = families
        self._own_address = own_address
        self._reported = reported
        self._make_task = make_task
        self._wait = wait
        self._started_ns = self._clock.wall_ns()
        self._own = ContainerMetadata(name=MONITOR_NAME, docker_id="")
        self._containers = KnownContainers()
        self._tasks: dict[str, _Task] = {}  # by ARN
        self._done: set[str] = set()  # the ARNs of tasks that need no report, or have it
        self._list_at_ns: float = NEVER_NS
        self._may_ask = True  # until the agent hangs in a step

    def gpus_of(self, docker_id: str) -> str | None:
        """The GPUs of a container as in ``NVIDIA_VISIBLE_DEVICES``; None without any."""
        task = self._task_of(docker_id)
        return None if task is None else task.source.gpus_of(docker_id)

    def mps_of(self, docker_id: str) -> Mapping[str, str]:
        """A container's variables of MPS, the limits on a shared GPU."""
        task = self._task_of(docker_id)
        return {} if task is None else task.source.mps_of(docker_id)

    def address_of(self, docker_id: str) -> str | None:
        """The agent's metadata address of a container."""
        task = self._task_of(docker_id)
        return None if task is None else task.source.metadata_address()

    def run(self) -> None:
        """Monitor until a stop request.

        What has ended by then is reported. What runs is left to the successor, with a checkpoint:
        on an instance that drains, there is none.
        """
        shared = self._shared
        try:
            self._watch()
        # The last handler: the reports that are on their way are delivered.
        except Exception as error:  # noqa: BLE001
            self._log.error(f"The monitor failed ({describe_error(error)}): {REPORT_DEFECT}")
        shared.attempt(shared.delivery.finish_uploads)
        shared.attempt(shared.collectors.stop)
        shared.attempt(partial(self._access.events.stop, 1.0))
        for task in self._tasks.values():
            shared.attempt(task.source.close)

    def _watch(self) -> None:
        """Step at each tick and at each event of Docker, until a stop request."""
        shared = self._shared
        events = self._access.events
        for collector in shared.collectors.threads:
            collector.start()
        events.start()
        next_tick_ns = self._clock.monotonic_ns()
        # After a failure of the events' thread, ECS starts a new monitor.
        while shared.stop.requested_ns is None and events.failure is None:
            now_ns = self._clock.monotonic_ns()
            is_tick = now_ns >= next_tick_ns
            self._step(is_tick=is_tick)
            now_ns = self._clock.monotonic_ns()
            if is_tick:
                next_tick_ns = now_ns + round(shared.ticker.seconds_to_next(now_ns) * NS_PER_SECOND)
            due_ns = min((next_tick_ns, *self._due_ns()))
            self._wait(max(due_ns - now_ns, 0) / NS_PER_SECOND)
        self._accept_last_ends()

    def _accept_last_ends(self) -> None:
        """Accept the ends that were seen before the stop request."""
        deadline_ns = self._clock.monotonic_ns() + _FINISH_NS
        self._step(is_tick=False)
        while self._is_ending() and self._clock.monotonic_ns() < deadline_ns:
            self._clock.sleep(_FINISH_SECONDS)
            self._step(is_tick=False)
        if self._shared.stop.requested_ns is not None:
            for task in self._tasks.values():
                task.monitored.print_checkpoints()

    def _is_ending(self) -> bool:
        return any(task.source.is_ending for task in self._tasks.values())

    def _due_ns(self) -> Iterator[float]:
        """When something is due before the next tick."""
        yield from self._containers.due_ns()
        yield self._list_at_ns
        if self._is_ending():
            yield self._clock.monotonic_ns() + _AFTER_END_NS

    # A step: the news of Docker, then each task

    def _step(self, *, is_tick: bool) -> None:
        """Take the news; sample the tasks at a tick, else those that have news."""
        self._take_news()
        now_ns = self._clock.monotonic_ns()
        self._may_ask = True
        for arn, task in list(self._tasks.items()):
            self._step_task(arn, task, now_ns, is_tick=is_tick)
        self._shared.delivery.print_failed()

    def _step_task(self, arn: str, task: _Task, now_ns: int, *, is_tick: bool) -> None:
        """Settle what is open, then monitor the task if there is news or it is due, or else only
        sample it at a tick.
        """
        source = task.source
        is_steady = source.is_steady
        if source.has_news or source.awaits_answer or not is_steady:
            self._step_guarded(arn, partial(self._settle, arn, source, is_tick=is_tick))
            if arn not in self._tasks:
                return
        if source.has_news or (is_tick and self._is_due(task, now_ns, is_steady=is_steady)):
            task.step_at_ns = 0 if source.has_news else now_ns + _STEP_NS
            for warning in source.warnings[task.warned :]:
                task.monitored.add_warning(warning)
            task.warned = len(source.warnings)
            if task.monitored.step() or source.is_gone:
                self._stop_following(arn)
        elif is_tick and task.monitored.keep_sample():
            self._stop_following(arn)

    def _is_due(self, task: _Task, now_ns: int, *, is_steady: bool) -> bool:
        """Whether a task without news needs more than a sample."""
        if self._shared.collectors.are_timed or not is_steady:
            return True
        return now_ns >= task.step_at_ns or task.monitored.is_checkpoint_due(now_ns)

    def _settle(self, arn: str, source: InstanceTask, *, is_tick: bool) -> None:
        """Ask the agent about a task it has not answered for, accept ends, and drop a task
        without a batch.
        """
        if source.awaits_answer and self._may_ask and (is_tick or source.has_news):
            self._may_ask = source.ask_agent()
        if source.is_ending:
            source.lacks_containers = self._containers.lacks_inspection(arn)
            self._may_ask = source.settle_ends(may_ask=self._may_ask)
        if source.has_news and source.is_without_batch:
            self._stop_following(arn)

    # What Docker shows

    def _take_news(self) -> None:
        """Take Docker's events, list the containers if events may be missing, and inspect those
        that are due, as far as the time of a step allows.
        """
        self._docker.begin_step()
        news = self._access.events.take_new_events()
        if None in news:
            self._list_at_ns = self._clock.monotonic_ns()
            self._docker.on_stream_begun()
        for event in news:
            if event is not None:
                self._step_guarded(event.docker_id, partial(self._on_event, event))
        if self._clock.monotonic_ns() >= self._list_at_ns:
            self._compare_list()
        for docker_id in self._containers.due_before(self._clock.monotonic_ns()):
            if self._docker.is_time_used:
                break
            self._step_guarded(docker_id, partial(self._inspect, docker_id))

    def _on_event(self, event: ContainerEvent) -> None:
        """Pass the event to its task, or keep it until a new container is inspected."""
        docker_id = event.docker_id
        if event.action == "destroy":
            self._on_removed(docker_id)
            self._reported.forget(docker_id)
            return
        known = self._containers.get_or_add(docker_id, event.task_arn)
        if known.status == "new":
            known.events.append(event)
            self._inspect(docker_id)
            return
        if known.status != "followed":
            return
        if event.action == "start":
            self._inspect(docker_id)
        task = self._task_of(docker_id)
        if task is not None:
            task.source.on_event(event)
            if event.action == "die":
                due_ns = self._clock.monotonic_ns() + _AFTER_END_NS
                self._containers.inspect_at(docker_id, due_ns)

    def _compare_list(self) -> None:
        """Compare Docker's list with what is followed: the stream of events may have missed
        something.
        """
        listed = self._docker.running_containers()
        if isinstance(listed, Unavailable):
            self._list_at_ns = self._docker.retry_at_ns(listed)
            return
        self._list_at_ns = NEVER_NS
        shown = {container.docker_id for container in listed}
        self._reported.keep_only(shown)
        for container in sorted(listed, key=lambda container: not container.is_running):
            self._inspect_if_different(container)
        for docker_id in self._containers.not_shown(shown):
            self._on_removed(docker_id)

    def _inspect_if_different(self, listed: ListedContainer) -> None:
        """Inspect a container that is new, or whose state differs from what was seen."""
        docker_id = listed.docker_id
        known = self._containers.get_or_add(docker_id, listed.task_arn)
        is_reported = not listed.is_running and self._reported.has(docker_id)
        if known.status == "new" and is_reported:
            known.status = "ignored"
            known.events.clear()
            self._containers.inspect_at(docker_id, NEVER_NS)
            return
        task = self._task_of(docker_id)
        has_changed = task is not None and task.source.is_running(docker_id) != listed.is_running
        if known.status == "new" or has_changed:
            self._containers.inspect_at(docker_id, self._clock.monotonic_ns())

    def _inspect(self, docker_id: str) -> None:
        """Inspect a container now, or as soon as there is time and Docker does not hang."""
        postponed_ns = self._docker.postponed_ns
        if postponed_ns is not None:
            self._containers.inspect_at(docker_id, postponed_ns)
            return
        self._containers.inspect_at(docker_id, NEVER_NS)
        inspected = self._docker.inspect_container(docker_id)
        if not isinstance(inspected, Unavailable):
            self._on_inspected(inspected)
        elif inspected.is_gone:
            self._on_removed(docker_id)
        else:
            self._containers.inspect_at(docker_id, self._docker.retry_at_ns(inspected))

    def _on_inspected(self, inspected: EcsContainer) -> None:
        """Decide about a new container, and add it to its task if that is followed."""
        docker_id = inspected.docker_id
        arn = inspected.labels.task_arn
        known = self._containers.get_or_add(docker_id, arn)
        events = known.take_events()
        if known.status == "new":
            known.task_arn = arn
            known.status = "followed" if self._is_watched(inspected) else "ignored"
        if known.status != "followed" or arn in self._done:
            return
        if arn not in self._tasks:
            self._tasks[arn] = self._new_task(inspected)
        source = self._tasks[arn].source
        source.add_container(inspected, events)
        if source.lacks_exit_code(docker_id):
            due_ns = self._clock.monotonic_ns() + _AFTER_END_NS
            self._containers.inspect_at(docker_id, due_ns)

    def _is_watched(self, inspected: EcsContainer) -> bool:
        """Whether the container belongs to a task that may need a report."""
        address = inspected.metadata_address
        if address == self._own_address:
            self._on_own_container(inspected)
            return False
        finished_ns = first_known(inspected.finished_ns, NEVER_NS)
        if finished_ns < self._started_ns:
            if finished_ns < self._started_ns - _MAX_AGE_NS:
                return False
            self._reported.on_ended_before(inspected.docker_id)
        return matches_any(inspected.labels.family or "", self._families)

    def _on_own_container(self, inspected: EcsContainer) -> None:
        """Keep where the monitor's own output goes, and do not report the monitor's task."""
        self._own = ContainerMetadata(
            name=inspected.labels.container_name,
            docker_id=inspected.docker_id,
            log_driver=inspected.log_driver,
            log_options=inspected.log_options,
        )
        arn = inspected.labels.task_arn
        self._stop_following(arn)
        self._done.add(arn)

    def _new_task(self, inspected: EcsContainer) -> _Task:
        """A task that is followed from its first container on."""
        started_ns = inspected.started_ns
        source = InstanceTask(
            inspected.labels,
            self._access.groups,
            self._clock,
            lambda: self._own,
            self._access.open_agent,
            read_network=self._access.read_network,
            is_resumed=first_known(started_ns, NEVER_NS) < self._started_ns - _NEW_NS,
        )
        return _Task(source, self._make_task(source), len(source.warnings))

    def _task_of(self, docker_id: str) -> _Task | None:
        """The task of a followed container; None before its first inspection or after its end."""
        return self._tasks.get(self._containers.task_arn_of(docker_id))

    # The end of a container or a task

    def _on_removed(self, docker_id: str) -> None:
        """Forget a container that Docker has removed, and its task with the last one."""
        task = self._task_of(docker_id)
        if task is not None:
            task.source.on_removed(docker_id)
        arn = self._containers.task_arn_of(docker_id)
        self._containers.remove(docker_id)
        if arn in self._done and not self._containers.has_followed(arn):
            self._done.discard(arn)

    def _stop_following(self, arn: str) -> None:
        """Follow the task no longer."""
        task = self._tasks.pop(arn, None)
        if self._containers.has_followed(arn):
            self._done.add(arn)
        if task is None:
            return
        task.source.close()
        for docker_id in task.source.docker_ids:
            self._containers.inspect_at(docker_id, NEVER_NS)
            self._shared.collectors.forget(docker_id)

    def _step_guarded(self, key: str, step: Callable[[], object]) -> None:
        """Handle a container, by its id, or a task, by its ARN. A defect ends the task with what
        is known of it.
        """
        try:
            step()
        except Exception as error:  # noqa: BLE001  as above
            self._log.error(
                f"The monitor cannot follow a container ({describe_error(error)}): {REPORT_DEFECT}"
            )
            self._on_defect(key, error)

    def _on_defect(self, key: str, error: Exception) -> None:
        """Report the task of the key as far as it is known; see :meth:`_step_guarded`."""
        arn = key
        if key not in self._tasks:
            known = self._containers.get(key)
            if known.status == "new":
                known.status = "broken"
            self._containers.inspect_at(key, NEVER_NS)
            arn = self._containers.task_arn_of(key)
        if arn in self._tasks:
            self._tasks[arn].monitored.fail(error)
            self._stop_following(arn)
