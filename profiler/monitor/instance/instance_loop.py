"""The loop of an instance's monitor: at each tick and event of Docker, it monitors each task as
a sidecar does.
"""

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from profiler.core.ecs_terms import MONITOR_NAME
from profiler.core.timestamps import NS_PER_SECOND
from profiler.monitor.instance.instance_task import InstanceTask, ReadNetwork
from profiler.monitor.instance.reported_file import ReportedFile
from profiler.monitor.loop import MonitoredTask
from profiler.monitor.shared_parts import REPORT_DEFECT, SharedParts, describe
from profiler.readers import SourceHealth, Unavailable
from profiler.readers.docker.docker_api import ContainerEvent, DockerApi, DockerEvents
from profiler.readers.docker.ecs_container import EcsContainer
from profiler.readers.docker.task_groups import InstanceCgroups
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.family_identity import matches_any

# Right after the event of an end, Docker keeps an inspection waiting for so long.
_AFTER_END_NS = NS_PER_SECOND // 10
# Inspections between two samples take at most so long.
_INSPECTIONS_NS = NS_PER_SECOND // 2
# Between two steps, a task that runs without news is only sampled.
_STEP_NS = 10 * NS_PER_SECOND
_MAX_AGE_NS = 3600 * NS_PER_SECOND
# A container that is listed and started before that is not new.
_NEW_NS = 2 * NS_PER_SECOND
_FINISH_NS, _FINISH_SECONDS = 5 * NS_PER_SECOND // 2, 0.1
# A daemon that hangs is seldom asked, because the samples wait for it.
_RETRY_NS, _RETRY_HUNG_NS = NS_PER_SECOND, 10 * NS_PER_SECOND


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
        self._docker, self._access, self._shared = access.docker, access, shared
        self._families, self._own_address = families, own_address
        self._reported, self._make_task, self._wait = reported, make_task, wait
        self._clock, self._log = shared.clock, shared.log
        self._health = SourceHealth("Docker's API", shared.log)
        self._started_ns = self._clock.wall_ns()
        self._own = ContainerMetadata(name=MONITOR_NAME, docker_id="")
        self._tasks: dict[str, _Task] = {}  # by ARN
        self._arns: dict[
            str, str
        ] = {}  # of the containers that Docker shows; empty for those that are not followed
        # The task's ARN and the events of those that were not inspected yet.
        self._unseen: dict[str, tuple[str, list[ContainerEvent]]] = {}
        self._done: set[str] = set()  # the ARNs of tasks that need no report, or have it
        self._inspect_at_ns: dict[str, int] = {}
        self._list_at_ns: int | None = None
        self._hung_until_ns = self._inspect_until_ns = 0
        self._may_ask = True  # until the agent hangs in a step

    def gpus_of(self, docker_id: str) -> str | None:
        """The GPUs of a container as in ``NVIDIA_VISIBLE_DEVICES``; None without any."""
        task = self._task_of(docker_id)
        return None if task is None else task.source.gpus_of(docker_id)

    def address_of(self, docker_id: str) -> str | None:
        """The agent's metadata address of a container."""
        task = self._task_of(docker_id)
        return None if task is None else task.source.metadata_address()

    def run(self) -> None:
        """Monitor until a stop request.

        What has ended by then is reported; what runs is left to the successor.
        """
        shared = self._shared
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001  the last handler: the reports that are on their way are delivered
            self._log.error(f"The monitor failed ({describe(error)}): {REPORT_DEFECT}")
        shared.attempt(shared.delivery.finish)
        shared.attempt(shared.collectors.stop)
        shared.attempt(partial(self._access.events.stop, 1.0))
        for task in self._tasks.values():
            shared.attempt(task.source.close)

    def _watch(self) -> None:
        shared = self._shared
        for collector in shared.collectors.threads:
            collector.start()
        self._access.events.start()
        next_tick_ns = self._clock.monotonic_ns()
        while (
            shared.stop.requested_ns is None and self._access.events.failure is None
        ):  # else ECS starts a new one
            now_ns = self._clock.monotonic_ns()
            is_tick = now_ns >= next_tick_ns
            self._step(is_tick=is_tick)
            now_ns = self._clock.monotonic_ns()
            if is_tick:
                next_tick_ns = now_ns + round(shared.ticker.seconds_to_next(now_ns) * NS_PER_SECOND)
            self._wait(max(min((next_tick_ns, *self._due_ns())) - now_ns, 0) / NS_PER_SECOND)
        deadline_ns = self._clock.monotonic_ns() + _FINISH_NS
        self._step(is_tick=False)
        while (
            any(task.source.is_ending for task in self._tasks.values())
            and self._clock.monotonic_ns() < deadline_ns
        ):
            self._clock.sleep(_FINISH_SECONDS)
            self._step(is_tick=False)

    def _due_ns(self) -> Iterator[int]:
        """When something is due before the next tick."""
        yield from self._inspect_at_ns.values()
        if self._list_at_ns is not None:
            yield self._list_at_ns
        if any(task.source.is_ending for task in self._tasks.values()):
            yield self._clock.monotonic_ns() + _AFTER_END_NS

    def _take_news(self) -> None:
        self._inspect_until_ns = self._clock.monotonic_ns() + _INSPECTIONS_NS
        news = self._access.events.take()
        if None in news:
            self._list_at_ns, self._hung_until_ns = self._clock.monotonic_ns(), 0
        for event in filter(None, news):
            self._guard(event.docker_id, partial(self._on_event, event))
        if self._list_at_ns is not None and self._clock.monotonic_ns() >= self._list_at_ns:
            self._list()
        self._inspect_due()

    def _step(self, *, is_tick: bool) -> None:
        """Take the news; sample the tasks at a tick, else those that have news."""
        self._take_news()
        now_ns, self._may_ask = self._clock.monotonic_ns(), True
        for arn, task in list(self._tasks.items()):
            source, is_steady = task.source, task.source.is_steady
            if source.has_news or source.awaits_answer or not is_steady:
                self._guard(arn, partial(self._settle, arn, source, is_tick=is_tick))
                if arn not in self._tasks:
                    continue
            is_due = self._shared.collectors.are_timed or now_ns >= task.step_at_ns
            is_due = is_due or not is_steady or task.monitored.is_checkpoint_due(now_ns)
            if source.has_news or (is_tick and is_due):
                task.step_at_ns = 0 if source.has_news else now_ns + _STEP_NS
                for warning in source.warnings[task.warned :]:
                    task.monitored.add_warning(warning)
                task.warned = len(source.warnings)
                if task.monitored.step() or source.is_gone:
                    self._drop(arn)
            elif is_tick and task.monitored.keep_sample():
                self._drop(arn)
        self._shared.delivery.print_failed()

    def _settle(self, arn: str, source: InstanceTask, *, is_tick: bool) -> None:
        """Ask the agent about a task it has not answered for, accept ends, and drop a task
        without a batch.
        """
        if source.awaits_answer and self._may_ask and (is_tick or source.has_news):
            self._may_ask = source.ask_agent()
        if source.is_ending:
            source.lacks_containers = any(arn == task_arn for task_arn, _ in self._unseen.values())
            self._may_ask = source.settle(may_ask=self._may_ask)
        if source.has_news and source.is_without_batch:
            self._drop(arn)

    def _on_event(self, event: ContainerEvent) -> None:
        docker_id = event.docker_id
        if event.action == "destroy":
            self._on_removed(docker_id)
            self._reported.forget(docker_id)
            return
        if self._arns.get(docker_id) == "":
            return
        if docker_id not in self._arns:
            self._unseen.setdefault(docker_id, (event.task_arn, []))[1].append(event)
            self._inspect(docker_id)
            return
        if event.action == "start":
            self._inspect(docker_id)
        task = self._task_of(docker_id)
        if task is not None:
            task.source.on_event(event)
            if event.action == "die":
                self._inspect_at_ns[docker_id] = self._clock.monotonic_ns() + _AFTER_END_NS

    def _list(self) -> None:
        """Compare Docker's list with what is followed: the stream of events may have missed
        something.
        """
        listed = self._docker.containers()
        if isinstance(listed, Unavailable):
            self._list_at_ns = self._retry_at_ns(listed)
            return
        self._health.on_success()
        self._list_at_ns, now_ns = None, self._clock.monotonic_ns()
        shown = {one.docker_id for one in listed}
        self._reported.keep_only(shown)
        for one in sorted(listed, key=lambda one: not one.is_running):
            if (
                one.docker_id not in self._arns
                and not one.is_running
                and self._reported.has(one.docker_id)
            ):
                self._arns[one.docker_id] = ""
            task, is_new = self._task_of(one.docker_id), one.docker_id not in self._arns
            if is_new:
                self._unseen.setdefault(one.docker_id, (one.task_arn, []))
            if is_new or (
                task is not None and task.source.is_running(one.docker_id) != one.is_running
            ):
                self._inspect_at_ns[one.docker_id] = now_ns
        for docker_id in self._arns.keys() - shown:
            self._on_removed(docker_id)

    def _retry_at_ns(self, failure: Unavailable) -> int:
        self._health.on_failure(failure)
        retry_ns = self._clock.monotonic_ns() + (_RETRY_HUNG_NS if failure.timed_out else _RETRY_NS)
        if failure.timed_out:
            self._hung_until_ns = retry_ns
        return retry_ns

    def _inspect_due(self) -> None:
        began_ns = self._clock.monotonic_ns()
        for docker_id, due_ns in sorted(self._inspect_at_ns.items(), key=lambda item: item[1]):
            if due_ns > began_ns or self._clock.monotonic_ns() > self._inspect_until_ns:
                break
            self._guard(docker_id, partial(self._inspect, docker_id))

    def _inspect(self, docker_id: str) -> None:
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._hung_until_ns or now_ns > self._inspect_until_ns:
            self._inspect_at_ns[docker_id] = max(now_ns, self._hung_until_ns)
            return
        self._inspect_at_ns.pop(docker_id, None)
        inspected = self._docker.inspect(docker_id)
        if isinstance(inspected, Unavailable):
            if inspected.is_gone:
                self._on_removed(docker_id)
            else:
                self._inspect_at_ns[docker_id] = self._retry_at_ns(inspected)
            return
        self._health.on_success()
        _, early = self._unseen.pop(docker_id, ("", ()))
        if docker_id not in self._arns:
            self._arns[docker_id] = inspected.labels.task_arn if self._is_watched(inspected) else ""
        arn = self._arns[docker_id]
        if not arn or arn in self._done:
            return
        if arn not in self._tasks:
            self._tasks[arn] = self._new_task(inspected)
        source = self._tasks[arn].source
        source.add(inspected, early)
        if source.lacks_exit_code(docker_id):
            self._inspect_at_ns[docker_id] = self._clock.monotonic_ns() + _AFTER_END_NS

    def _is_watched(self, inspected: EcsContainer) -> bool:
        arn, finished_ns = inspected.labels.task_arn, inspected.finished_ns
        if (
            inspected.metadata_address is not None
            and inspected.metadata_address == self._own_address
        ):
            self._own = ContainerMetadata(
                name=inspected.labels.container_name,
                docker_id=inspected.docker_id,
                log_driver=inspected.log_driver,
                log_options=inspected.log_options,
            )
            self._drop(arn)
            self._done.add(arn)
            return False
        if finished_ns is not None and finished_ns < self._started_ns:
            if finished_ns < self._started_ns - _MAX_AGE_NS:
                return False
            self._reported.on_ended_before(inspected.docker_id)
        return matches_any(inspected.labels.family or "", self._families)

    def _new_task(self, inspected: EcsContainer) -> _Task:
        started_ns = inspected.started_ns
        source = InstanceTask(
            inspected.labels,
            self._access.groups,
            self._clock,
            lambda: self._own,
            self._access.open_agent,
            read_network=self._access.read_network,
            is_resumed=started_ns is not None and started_ns < self._started_ns - _NEW_NS,
        )
        return _Task(source, self._make_task(source), len(source.warnings))

    def _task_of(self, docker_id: str) -> _Task | None:
        return self._tasks.get(self._arns.get(docker_id, ""))

    def _on_removed(self, docker_id: str) -> None:
        self._inspect_at_ns.pop(docker_id, None)
        self._unseen.pop(docker_id, None)
        task = self._task_of(docker_id)
        if task is not None:
            task.source.on_removed(docker_id)
        arn = self._arns.pop(docker_id, "")
        if arn in self._done and arn not in self._arns.values():
            self._done.discard(arn)

    def _drop(self, arn: str) -> None:
        task = self._tasks.pop(arn, None)
        if arn in self._arns.values():
            self._done.add(arn)
        if task is None:
            return
        task.source.close()
        for docker_id in task.source.docker_ids:
            self._inspect_at_ns.pop(docker_id, None)
            self._shared.collectors.forget(docker_id)

    def _guard(self, key: str, step: Callable[[], object]) -> None:
        """Handle a container, by its id, or a task, by its ARN. A defect ends the task with what
        is known of it.
        """
        try:
            step()
        except Exception as error:  # noqa: BLE001  as above
            self._log.error(
                f"The monitor cannot follow a container ({describe(error)}): {REPORT_DEFECT}"
            )
            arn = key if key in self._tasks else self._arns.setdefault(key, "")
            self._inspect_at_ns.pop(key, None)
            if arn in self._tasks:
                self._tasks[arn].monitored.fail(error)
                self._drop(arn)
