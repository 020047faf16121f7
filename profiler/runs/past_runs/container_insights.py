"""The runs that Container Insights saw, read from CloudWatch Logs by FilterLogEvents alone.

Where somebody set it up, a second log group of a cluster has ECS's events of the tasks: their ends.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event, Lock

import msgspec

from profiler.core.aws_error_codes import ACCESS_DENIED, cause_code
from profiler.core.commands_to_copy import aws_command_line, container_insights_command
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import decoded_or_none
from profiler.core.text import listed
from profiler.core.timestamps import MS_PER_DAY, MS_PER_MINUTE, NS_PER_MS, format_local, local_zone
from profiler.record.stopped_task import StoppedTask, parse_stopped_task
from profiler.record.units import MIB, format_count, format_memory
from profiler.runs.past_runs.container_insights_record import (
    MinuteValues,
    PerformanceEvent,
    SeenTask,
    run_of_minutes,
    task_without_minutes,
)
from profiler.runs.past_runs.log_group_runs import ReadPages
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import OpenProgress, RunFilter, RunSource, newest_first
from profiler.sizing.prices import PriceOverrides

DEFAULT_DAYS = 14
_TASKS = '{ $.Type = "Task" }'
_CONTAINERS = '{ $.Type = "Container" }'
_STOPPED = '{ $.detail.lastStatus = "STOPPED" }'
_RETENTION_DAYS = (3, 5, 7, 14, 30, 60, 90, 180, 365, 1827, 3653)
# Numbers may be encoded as texts.
_decoder = msgspec.json.Decoder(PerformanceEvent, strict=False)
_minute_decoder = msgspec.json.Decoder(MinuteValues, strict=False)


class ContainerInsightsRuns(RunSource):
    """The tasks in the performance log events of some clusters.

    Several threads call ``read_pages``.
    """

    remedy = "use an earlier --since, or check whether tasks ran there"

    def __init__(
        self,
        read_pages: ReadPages,
        clusters: Sequence[str],
        prices: PriceOverrides,
        open_progress: OpenProgress,
        *,
        since_ns: int,
        now_ns: int,
        with_services: bool,
    ) -> None:
        self._read_pages = read_pages
        self._open_progress = open_progress
        self._clusters = clusters
        self._prices = prices
        self._with_services = with_services
        self._since_ns = since_ns
        self._now_ns = now_ns
        self._lock = Lock()
        self._notes: list[str] = []
        self._tasks: dict[tuple[str, str], SeenTask] = {}
        self._ends: dict[tuple[str, str], StoppedTask] = {}
        self._containers: dict[tuple[str, ...], dict[str, str | None]] = {}
        self._services: set[str] = set()
        self._oldest_ms: dict[str, float] = {}
        self._bytes = 0
        self._unreadable = 0
        self._runs: list[PastRun] | None = None
        self._unseen: list[PastRun] = []
        self._unseen_selected: list[PastRun] = []
        self.place = f"Container Insights of {listed(clusters)}"

    def family_names(self) -> frozenset[str]:
        """No name: the values of all tasks would be read again for it."""
        return frozenset()

    @property
    def remarks(self) -> Sequence[str]:
        durations_ms = [run.record.metrics.duration_ms for run in self._unseen_selected]
        short = sum((duration_ms or 0) < MS_PER_MINUTE for duration_ms in durations_ms)
        longer = len(durations_ms) - short
        notes = list(self._notes)
        if self._unreadable:
            notes.append(
                f"{self.place}: {format_count(self._unreadable, 'event')} could not be read."
            )
        if short:
            verb = "has" if short == 1 else "have"
            notes.append(
                f"{self.place}: {format_count(short, 'run')} shorter than a minute {verb} no "
                "values."
            )
        if longer:
            verb = "has" if longer == 1 else "have"
            notes.append(f"{self.place}: {format_count(longer, 'run')} {verb} no values.")
        return tuple(notes)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        # The whole group is read first, because the minutes of a task are spread over it.
        if self._runs is None:
            self._read_log_groups()
            self.reading = self._reading_sentence()
            if self._oldest_ms:
                self.complete_since_ns = int(max(self._oldest_ms.values())) * NS_PER_MS
            self._runs = self._build_runs()
        self._unseen_selected = [run for run in self._unseen if selection.matches(run.report)]
        for run in self._runs:
            if selection.matches(run.report):
                yield run

    def _reading_sentence(self) -> str:
        since_ms = self._since_ns // NS_PER_MS
        retention_days = self._legal_retention_days()
        read = format_memory(self._bytes / MIB)
        parts = [f"Container Insights: {read} read by FilterLogEvents, which is free"]
        for cluster, oldest_ms in sorted(self._oldest_ms.items()):
            part = f"{cluster} back to {format_local(int(oldest_ms) * NS_PER_MS)} {local_zone()}"
            if oldest_ms - since_ms > MS_PER_DAY:
                name = ("--log-group-name", performance_group(cluster))
                keep = ("put-retention-policy", *name, "--retention-in-days", f"{retention_days}")
                part += f" (to keep the events for longer: {aws_command_line('logs', *keep)})"
            parts.append(part)
        return f"{'; '.join(parts)}."

    def _legal_retention_days(self) -> int:
        """The shortest retention that CloudWatch Logs accepts for the selected time."""
        span_ms = self._now_ns // NS_PER_MS - self._since_ns // NS_PER_MS
        wanted_days = -(-span_ms // MS_PER_DAY)
        for days in _RETENTION_DAYS:
            if days >= wanted_days:
                return days
        return _RETENTION_DAYS[-1]

    def _read_log_groups(self) -> None:
        off_notes: list[str] = []
        with self._open_progress() as show:
            for cluster in self._clusters:
                add_event = partial(self._add_event, cluster)
                if self._read_group(performance_group(cluster), _TASKS, add_event, show):
                    self._read_ends(cluster, show)
                    self._read_containers(cluster)
                else:
                    off_notes.append(
                        f"Container Insights is off for {cluster}: turn it on "
                        f"({container_insights_command(cluster)}), or check the name and --region."
                    )
        if len(off_notes) == len(self._clusters):
            raise TaskProfilerError(" ".join((*self._notes, *off_notes)))
        self._notes += off_notes

    def _read_ends(self, cluster: str, show: Callable[[int, float], None]) -> None:
        try:
            self._read_group(
                f"/aws/events/ecs/containerinsights/{cluster}/performance",
                _STOPPED,
                self._add_end,
                show,
            )
        except TaskProfilerError as error:
            if cause_code(error) not in ACCESS_DENIED:
                raise
            self._notes.append(f"{error} How the runs of {cluster} ended is unknown.")

    def _read_group(
        self,
        group: str,
        pattern: str,
        add: Callable[[str], None],
        show: Callable[[int, float], None],
    ) -> bool:
        """Read a log group from the selected time to now; False if it does not exist."""
        now_ms = self._now_ns // NS_PER_MS
        starts = range(self._since_ns // NS_PER_MS, now_ms + 1, MS_PER_DAY)
        has_failed = Event()

        def read_pages(start_ms: int) -> None:
            if has_failed.is_set():
                return
            end_ms = min(start_ms + MS_PER_DAY - 1, now_ms)
            pages = self._read_pages(
                logGroupName=group, startTime=start_ms, endTime=end_ms, filterPattern=pattern
            )
            try:
                for page in pages:  # an empty page is not the last one
                    with self._lock:
                        for event in page["events"]:
                            add(event["message"])
            except TaskProfilerError:
                has_failed.set()
                raise

        try:
            # AWS allows five to ten calls a second, and a call takes some tenths of a second.
            with ThreadPoolExecutor(4, thread_name_prefix="log-group") as pool:
                for done, _ in enumerate(pool.map(read_pages, starts), 1):
                    show(len(self._tasks), done / len(starts))
        except TaskProfilerError as error:
            if cause_code(error) != "ResourceNotFoundException":
                raise
            return False
        return True

    def _read_containers(self, cluster: str) -> None:
        """The containers of each revision, from the events of one task's last minute, which
        cover other tasks, too.
        """
        for key, task in self._tasks.items():
            revision = _revision_key_of(task)
            if task.cluster != cluster or revision in self._containers or key in self._ends:
                continue
            self._containers[revision] = {}  # if the event is lost, the search is not repeated
            at_ms = int(task.event.timestamp)
            pages = self._read_pages(
                logGroupName=performance_group(cluster),
                startTime=at_ms,
                endTime=at_ms,
                filterPattern=_CONTAINERS,
            )
            for page in pages:
                for event in page["events"]:
                    self._add_event(cluster, event["message"])

    def _add_event(self, cluster: str, message: str) -> None:
        self._bytes += len(message)
        event = decoded_or_none(_decoder.decode, message)
        minute = decoded_or_none(_minute_decoder.decode, message)
        latest_ms = self._now_ns / NS_PER_MS + MS_PER_DAY
        if event is None or minute is None or not 0 < event.timestamp <= latest_ms:
            self._unreadable += 1
            return
        if event.type == "Container" and event.container_name:
            containers = self._containers.setdefault(_revision_key_of(SeenTask(cluster, event)), {})
            containers[event.container_name] = event.image
        if event.type != "Task":
            return
        oldest_ms = self._oldest_ms.get(cluster, event.timestamp)
        self._oldest_ms[cluster] = min(event.timestamp, oldest_ms)
        if event.service_name and not self._with_services:
            self._services.add(event.task_id)
        elif event.started_at is None or event.started_at >= self._since_ns / NS_PER_MS:
            task = self._tasks.setdefault((cluster, event.task_id), SeenTask(cluster, event))
            task.add_event(event, minute)

    def _add_end(self, message: str) -> None:
        self._bytes += len(message)
        end = parse_stopped_task(decoded_or_none(msgspec.json.decode, message))
        if end is not None and end.started_at is not None:
            self._ends[end.cluster or "", end.id] = end

    def _build_runs(self) -> list[PastRun]:
        """The runs, newest first. Raises TaskProfilerError if only tasks of services ran."""
        seen: list[PastRun] = []
        unseen: list[PastRun] = []
        for key in {**self._tasks, **self._ends}:
            _, task_id = key
            end = self._ends.get(key)
            if end is not None and end.is_service_task and not self._with_services:
                self._services.add(end.id)
            task = self._tasks.get(key)
            if task is None and end is not None:
                task = task_without_minutes(end)
            if task is None or task_id in self._services:
                continue
            images = self._containers.get(_revision_key_of(task), {})
            run = run_of_minutes(task, end, images, self._prices)
            if run is None or run.started_ns < self._since_ns:
                continue
            if task.minutes:
                seen.append(run)
            else:
                unseen.append(run)
        self._tasks.clear()
        if not seen and self._services:
            raise TaskProfilerError(
                f"{self.place} has only {format_count(len(self._services), 'task')} of services: "
                "--services includes them."
            )
        self._unseen = unseen
        return newest_first(seen)


def performance_group(cluster: str) -> str:
    """The log group of a cluster's performance log events."""
    return f"/aws/ecs/containerinsights/{cluster}/performance"


def _revision_key_of(task: SeenTask) -> tuple[str, ...]:
    return (
        task.cluster,
        task.event.task_definition_family or "",
        str(task.event.task_definition_revision),
    )
