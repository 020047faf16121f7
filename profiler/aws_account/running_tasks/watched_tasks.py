"""The tasks that run in an ECS cluster, and what ``task-profiler watch`` shows of them,
refreshed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC
from operator import itemgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.aws_errors import OpenClient, aws_errors, noted_errors
from profiler.aws_account.clusters_and_log_groups import raise_on_missing_cluster
from profiler.aws_account.instance_monitor_log_groups import MONITOR_PERMISSIONS, monitor_groups_of
from profiler.aws_account.running_tasks.running_runs import (
    MonitorLogFollower,
    RunKey,
    RunningRun,
    RunningRuns,
    SeenNotice,
    container_key,
)
from profiler.aws_account.started_tasks import read_tasks
from profiler.core.clock import Clock
from profiler.core.ecs_terms import (
    EC2,
    SERVICE_GROUP,
    arn_account,
    arn_region,
    cluster_name,
    family_of,
    revision_text,
    task_id,
)
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values
from profiler.core.timestamps import format_datetime, format_ms
from profiler.record.ecs_event_outcome import judge_candidates
from profiler.record.family_identity import family_key
from profiler.record.family_statistics import Family, UsualDuration
from profiler.record.memory_news import MEMORY_NOTICE, memory_news_text, memory_now
from profiler.record.record_model import Container, Metrics, Record, Report
from profiler.record.run_outcome import Status
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import parse_stopped_task
from profiler.runs.past_runs.family_evidence import FamilyCache
from profiler.runs.past_runs.run_lookup import similar_families_sentence
from profiler.task_definitions.containers import (
    DefinedContainer,
    log_target,
    monitor_of,
    read_containers,
    requested_batch,
    roles_of,
)
from profiler.task_definitions.size_changes import definition_size

_STOPPED = "STOPPED"


class _DefinitionFacts(Struct, frozen=True, kw_only=True):
    """The facts of a task definition: its containers, and where the monitor and the batch write
    lines. ``unmonitored``: the groups of one without a monitor, of which an instance monitor may
    write; None: there is one.
    """

    monitor: str | None = None
    candidates: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    unmonitored: tuple[str, ...] | None = None

    @property
    def batch_container(self) -> str:
        """Empty if several containers could be the batch."""
        return self.candidates[0] if len(self.candidates) == 1 else ""


class RunningTaskLister(Struct):
    """Lists the running tasks of a cluster, which is a name or an ARN; those of services only
    ``with_services``.
    """

    open_client: OpenClient
    cluster: str
    with_services: bool
    _definitions: dict[str, _DefinitionFacts] = {}
    _running: set[str] = set()
    # Of the cluster's instance monitors, and why they could not be found; None: nobody needed them.
    _monitors: tuple[Sequence[str], Sequence[str]] | None = None
    groups: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def read_running_tasks(self, now_ns: int) -> tuple[Report, ...]:
        """The running tasks, and those that have ended since the last call.

        Raises TaskProfilerError.
        """
        what = f"The tasks of the cluster {self.cluster!r} cannot be listed"
        with (
            raise_on_missing_cluster(self.open_client, self.cluster),
            aws_errors(what, "ecs:ListTasks and ecs:DescribeTasks"),
        ):
            running_tasks = read_tasks(
                self.open_client("ecs"), self.cluster, statuses=("RUNNING",), also=self._running
            )
            tasks = []
            for task in sorted(running_tasks, key=itemgetter("taskArn")):
                is_of_service = str(task.get("group", "")).startswith(SERVICE_GROUP)
                if self.with_services or not is_of_service:
                    tasks.append(task)
        self._running = {task["taskArn"] for task in tasks if task.get("lastStatus") != _STOPPED}
        problems: list[str] = []
        definitions = [
            self._read_definition_facts(task["taskDefinitionArn"], problems) for task in tasks
        ]
        groups: set[str] = set()
        for task, definition in zip(tasks, definitions, strict=True):
            if task.get("launchType") == EC2 and definition.unmonitored is not None:
                monitors = self._monitor_groups(problems)
                groups.update(monitors, definition.unmonitored if monitors else ())
        self.problems = tuple(dict.fromkeys(problems))
        for definition in definitions:
            groups.update(definition.groups)
        self.groups = tuple(sorted(groups))
        time = format_ms(now_ns)
        return tuple(
            _checkpoint_of_task(task, definition, time)
            for task, definition in zip(tasks, definitions, strict=True)
        )

    def _monitor_groups(self, problems: list[str]) -> Sequence[str]:
        """The log groups of the cluster's instance monitors, which are looked for once."""
        if self._monitors is None:
            found: list[str] = []
            refused: list[str] = []
            what = "It is unknown whether an instance monitor writes about these tasks"
            with noted_errors(refused.append, what, MONITOR_PERMISSIONS):
                for monitor in monitor_groups_of(self.open_client("ecs"), self.cluster, None):
                    found.append(monitor.log_group)
            self._monitors = found, refused
        groups, refusals = self._monitors
        problems += refusals
        return groups

    def _read_definition_facts(self, arn: str, problems: list[str]) -> _DefinitionFacts:
        """The definition's data; empty if it cannot be read now: the task is then shown with
        ECS's data alone.
        """
        if arn not in self._definitions:
            what = "Task definitions of running tasks cannot be read"
            with noted_errors(problems.append, what, "ecs:DescribeTaskDefinition"):
                described = self.open_client("ecs").describe_task_definition(taskDefinition=arn)[
                    "taskDefinition"
                ]
                self._definitions[arn] = _read_definition(described)
        return self._definitions.get(arn, _DefinitionFacts())


def _read_definition(definition: Mapping[str, object]) -> _DefinitionFacts:
    containers = read_containers(definition)
    monitor = monitor_of(definition)
    candidates = roles_of(containers, requested=requested_batch(containers)).candidates
    known = _DefinitionFacts(candidates=candidates)
    if monitor is None:
        groups = _groups_of(containers)
        if any(container.wraps_batch for container in containers):
            return replace(known, groups=groups)
        return replace(known, unmonitored=groups)
    # Each of several batches has its report in its own stream.
    writers = containers
    if known.batch_container:
        writers = tuple(
            container
            for container in containers
            if container.name in (monitor.name, known.batch_container)
        )
    own_group = known_values((monitor.own_log_group,))
    groups = tuple(dict.fromkeys((*_groups_of(writers), *own_group)))
    return replace(known, monitor=monitor.name, groups=groups)


def _groups_of(containers: Iterable[DefinedContainer]) -> tuple[str, ...]:
    """The log groups of containers."""
    groups = known_values(log_target(container).group for container in containers)
    return tuple(dict.fromkeys(groups))


def _checkpoint_of_task(task: Mapping[str, Any], definition: _DefinitionFacts, time: str) -> Report:
    """The task as a checkpoint without measurements."""
    arn = task["taskArn"]
    definition_arn = task["taskDefinitionArn"]
    size = definition_size(task)
    status: Status = "running"
    exit_code = None
    is_killed = None
    started_at = None
    if task.get("startedAt"):
        started_at = format_datetime(task["startedAt"].astimezone(UTC))
    end = parse_stopped_task({"detail": task})  # ECS's event has the same fields
    if end is not None:
        candidates = [end.container_or_name_only(name) for name in definition.candidates]
        judged, _ = judge_candidates(end, candidates, monitor=definition.monitor)
        outcome = outcome_of(None, judged)
        status = outcome.status
        exit_code = outcome.exit_code
        is_killed = outcome.ran_out_of_memory or None
    record = Record(
        task_id=task_id(arn),
        task_arn=arn,
        cluster=cluster_name(task.get("clusterArn")),
        family=family_of(definition_arn),
        revision=revision_text(definition_arn),
        region=arn_region(arn),
        account_id=arn_account(arn),
        launch_type=task.get("launchType"),
        container=Container(name=definition.batch_container),
        status=status,
        exit_code=exit_code,
        likely_out_of_memory=is_killed,
        started_at=started_at,
        metrics=Metrics(vcpu_size=size.vcpu, memory_size_mb=size.memory_mb),
    )
    return Report(time=time, type="task.checkpoint", record=record)


class WatchedRun(Struct, frozen=True, kw_only=True):
    """A run, the time since its start, and how long its family usually takes."""

    run: RunningRun
    elapsed_ms: float | None
    usual: UsualDuration | None

    @property
    def share_of_usual_duration(self) -> float | None:
        if self.elapsed_ms is None or self.usual is None or not self.usual.median_ms:
            return None
        return self.elapsed_ms / self.usual.median_ms


class WatchedTasks(Struct, kw_only=True):
    """Reads the running tasks of a cluster and of its log groups; without a cluster, of
    ``log_groups`` alone.

    ``family_names`` returns the families of which a wrong name may be similar to one.
    """

    seconds_between_reads: int

    collected: RunningRuns
    logs: MonitorLogFollower
    families: FamilyCache
    log_groups: tuple[str, ...] = ()
    cluster: RunningTaskLister | None = None
    clock: Clock
    family_names: Callable[[], Collection[str]] = frozenset
    similar: str = ""  # a sentence about the families that may be meant
    # The memory notices of runs above everything that their families reached.
    _news: dict[RunKey, SeenNotice] = {}
    _has_similar: bool = False
    _found: tuple[RunningRun, ...] = ()

    @property
    def groups(self) -> tuple[str, ...]:
        return self.log_groups if self.cluster is None else self.cluster.groups

    def read_new_data(self) -> tuple[str, ...]:
        """Read the new data. Returns a sentence about each unreadable part."""
        tasks = None
        refused: tuple[str, ...] = ()
        now_ns = self.clock.wall_ns()
        if self.cluster is not None:
            try:
                tasks = self.cluster.read_running_tasks(now_ns)
                refused = self.cluster.problems
            except TaskProfilerError as error:
                return (str(error),)  # the last data stay
        problems = self.logs.read_new_lines(self.groups, self.collected.add_line)
        self._found = self.collected.current_runs(now_ns, tasks)
        if self._found:
            self._has_similar = True  # the name is right
            self.similar = ""
        return (*refused, *problems)

    @property
    def has_unread_usual(self) -> bool:
        """Whether :meth:`read_usual` has anything to read. Such a read can take long."""
        return bool(
            self.families.unread_families(family_key(run.report.record) for run in self._found)
        )

    def read_usual(self) -> tuple[str, ...]:
        """Read the usual durations of new families. Returns why they are unknown, or of a part."""
        try:
            self.families.read_families(family_key(run.report.record) for run in self._found)
        except TaskProfilerError as error:
            return (f"The usual durations are unknown. {error}",)
        return self.families.completeness.sentences

    @property
    def has_unread_similar(self) -> bool:
        """Whether :meth:`read_similar` has anything to read: a name has found nothing yet."""
        is_named = bool(self.collected.selection.run)
        return is_named and not self._has_similar and not self._found

    def read_similar(self) -> None:
        """Read which families may be meant, once. Such a read can take long."""
        self.similar = similar_families_sentence(
            self.collected.selection, self.family_names
        ).strip()
        self._has_similar = True

    def runs_now(self) -> tuple[WatchedRun, ...]:
        """The runs at this moment: those that have ended, the newest end first, then the largest
        share of the usual duration first.
        """
        now_ns = self.clock.wall_ns()
        watched = []
        for run in self._found:
            family = self.families.known_family(family_key(run.report.record))
            watched.append(
                WatchedRun(
                    run=self._run_with_memory_news(run, family),
                    elapsed_ms=run.elapsed_ms(now_ns),
                    usual=family.usual_duration(),
                )
            )
        return tuple(
            sorted(
                watched,
                key=lambda task: (
                    task.run.is_running,
                    task.run.is_running and -(task.share_of_usual_duration or 0),
                    task.run.is_running and -(task.elapsed_ms or 0),
                ),
            )
        )

    def _run_with_memory_news(self, run: RunningRun, family: Family) -> RunningRun:
        """The run with the notice that its memory is news, in place of the monitor's forecast,
        where its family is known.
        """
        record = run.report.record
        peak = family.highest_peak(record.container.name)
        now = memory_now(record)
        if peak is None or (now is not None and not now.is_comparable_with(peak)):
            return run
        if not run.is_running or not self.families.completeness.is_whole:
            return run
        forecasts = [notice for notice in run.notices if notice.kind == MEMORY_NOTICE]
        others = [notice for notice in run.notices if notice.kind != MEMORY_NOTICE]
        key = container_key(run.report)
        for evidence in (*(notice.evidence for notice in forecasts), None):
            now = memory_now(record, evidence)
            text = "" if now is None else memory_news_text(now, peak)
            if text:
                notice = SeenNotice(kind=MEMORY_NOTICE, at=run.report.time, message=f"{text}.")
                self._news.setdefault(key, notice)
        if key in self._news:
            others.append(self._news[key])
        return replace(run, notices=tuple(others))
