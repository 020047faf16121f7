"""What became of the due times of schedules, judged by the tasks and the jobs that AWS shows.

The creation of a task counts as its start. Nothing is ``missed`` by guess: a due time is
``unknown`` if a task that it started could have stopped before the tasks are known, or if the
schedule was changed since.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import inf
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import cluster_name, task_id
from profiler.core.text import first_names, listed
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.run_outcome import explained_refusal, is_vague
from profiler.record.units import format_duration
from profiler.schedules.due_times import (
    ScheduleExpressionError,
    due_times,
    has_known_anchor,
    last_due,
)
from profiler.schedules.schedule_model import (
    EFFECTIVE_NS,
    SKEW_NS,
    DueOutcome,
    DueTime,
    ReadTasks,
    Schedule,
    StartedTask,
    TaskSlot,
    assign_tasks,
)

# ECS shows a stopped task for an hour; the rest is for differing clocks and the time that reading
# takes.
KEPT_NS = 55 * 60 * NS_PER_SECOND
FAILED_TO_START = "TaskFailedToStart"
_MAX_CONTEXT_NS = 7 * NS_PER_DAY
_UNREAD = ReadTasks(problem="The tasks of its cluster were not read.")
_NO_ANCHOR = (
    "AWS does not return when a rule was created, so the due times of its rate are unknown."
)
TOO_OLD = "ECS shows a stopped task for about an hour, so a task of this time is no longer known."
JOB_TOO_OLD = "A job of this time is no longer known."
_EXECUTION_TOO_OLD = "An execution of this time is no longer known."
CHANGED = "The schedule was changed after this time."
_NEW = (
    "The schedule was created or changed less than a minute before this time, so AWS may not "
    "have used it yet."
)
_RESTARTED = (
    "The schedule was changed, and AWS does not document whether that starts its rate again."
)


class JudgedSchedule(Struct, frozen=True, kw_only=True):
    """A schedule and its due times, ascending.

    ``problem`` is why its due times are unknown, as a sentence.
    """

    schedule: Schedule
    due_times: tuple[DueTime, ...] = ()
    problem: str | None = None


def judge_schedules(
    schedules: Sequence[Schedule],
    clusters: Mapping[str, ReadTasks],
    *,
    now_ns: int,
    since_ns: int | None = None,
    grace_ns: int,
) -> list[JudgedSchedule]:
    """Judge the due times from ``since_ns`` to ``now_ns``; without ``since_ns``, the last due
    time of each schedule.

    A task can start up to a day late, so ``late`` may follow ``missed``. ``schedules`` are all of
    them, so that tasks of schedules with similar names are distinguished; ``clusters`` the tasks by
    the ARN of the cluster.
    """
    judge = _Judge(now_ns=now_ns, since_ns=since_ns, grace_ns=grace_ns)
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for place, schedule in enumerate(schedules):
        key = (schedule.cluster_arn, schedule.family_of_tasks, schedule.started_by)
        groups[key].append(place)
    tasks: defaultdict[tuple[str, str, str], list[StartedTask]] = defaultdict(list)
    for arn, cluster in clusters.items():
        for task in sorted(cluster.tasks or (), key=lambda task: (task.created_ns, task.arn)):
            tasks[arn, task.family, task.starter].append(task)
    judged: dict[int, JudgedSchedule] = {}
    for key, places in groups.items():
        members = [schedules[place] for place in places]
        results = judge.judge_group(members, clusters.get(key[0], _UNREAD), tasks[key])
        for place, result in zip(places, results, strict=True):
            shown = result.due_times[-1:]
            if since_ns is not None:
                shown = tuple(due for due in result.due_times if due.due_ns >= since_ns)
            judged[place] = replace(result, due_times=shown)
    return [judged[place] for place in range(len(schedules))]


def with_refusal(due_time: DueTime, reason: str | None) -> DueTime:
    """The due time with AWS's reason why a missed run was not started; unchanged without a
    reason.
    """
    if due_time.outcome != "missed" or not reason:
        return due_time
    return replace(due_time, outcome="refused", reason=reason)


def _tasks_of(slots: Sequence[TaskSlot]) -> list[StartedTask]:
    tasks: list[StartedTask] = []
    for slot in slots:
        tasks += slot.tasks
    return sorted(tasks, key=attrgetter("created_ns"))


def _last_ended_before_each(tasks: Sequence[StartedTask]) -> dict[str, StartedTask | None]:
    """The task that ended last among those created before a task, by the ARN of that."""
    last_ends: dict[str, StartedTask | None] = {}
    latest: StartedTask | None = None
    for task in tasks:
        last_ends[task.arn] = latest
        if latest is None or task.end_ns > latest.end_ns:
            latest = task
    return last_ends


class _Judge(Struct, frozen=True, kw_only=True):
    """Judges groups of schedules: those whose tasks ECS does not distinguish."""

    now_ns: int
    since_ns: int | None
    grace_ns: int

    def judge_group(
        self, members: Sequence[Schedule], cluster: ReadTasks, tasks: Sequence[StartedTask]
    ) -> Iterator[JudgedSchedule]:
        """The outcomes of all due times of each schedule; ``tasks`` are those of the group, in the
        order of their creation.
        """
        is_alone = len(members) == 1
        # Anybody may have started an execution, at any time.
        is_certain = is_alone and not members[0].is_of_machine
        rows = [self._task_slots(schedule, tasks, is_alone=is_certain) for schedule in members]
        of_all: list[TaskSlot] = []
        for row in rows:
            if not isinstance(row, str):
                of_all += row
        # The last one gets a late task.
        of_all.sort(key=lambda slot: (slot.due_ns, slot.is_certain))
        assign_tasks(of_all, tasks, cluster.known_since_ns)
        for schedule, row in zip(members, rows, strict=True):
            if isinstance(row, str):
                yield JudgedSchedule(schedule=schedule, problem=row)
                continue
            others = sorted({other.title for other in members if other is not schedule})
            last_ends = _last_ended_before_each(tasks if is_certain else _tasks_of(row))
            is_restarted = _may_be_restarted(schedule, row)
            due: list[DueTime] = []
            for slot in row:
                if slot.due_ns <= self.now_ns:
                    judged = self._due_time(slot, cluster, last_ends, others)
                    due.append(_unknown_if_doubtful(judged, schedule, is_restarted=is_restarted))
            yield JudgedSchedule(schedule=schedule, due_times=tuple(due))

    def _task_slots(
        self, schedule: Schedule, tasks: Sequence[StartedTask], *, is_alone: bool
    ) -> list[TaskSlot] | str:
        """The due times that matter for the tasks; a sentence if they are not known."""
        try:
            context_ns = self.now_ns
            if not is_alone:
                context_ns = self._context_start_ns(schedule, tasks)
            if self.since_ns is None:
                first_ns = last_due(schedule, self.now_ns) or context_ns
            else:
                first_ns = self.since_ns or context_ns
            first_ns = min(first_ns, context_ns)
            dues = list(due_times(schedule, first_ns, self.now_ns + SKEW_NS + 1))
            if not dues and not has_known_anchor(schedule):
                if is_alone:
                    dues = self._inferred_due_times(schedule, tasks)
                if not dues:
                    return _NO_ANCHOR
        except ScheduleExpressionError as error:
            return str(error)
        return [
            TaskSlot(schedule=schedule, due_ns=due_ns, next_ns=next_ns, tasks=[])
            for due_ns, next_ns in zip_longest(dues, dues[1:])
        ]

    def _context_start_ns(self, schedule: Schedule, tasks: Sequence[StartedTask]) -> int:
        """The first due time of a schedule that explains tasks, which also others can have
        started.
        """
        if not tasks:
            return self.now_ns
        window_ns = schedule.window_minutes * NS_PER_MINUTE
        oldest_ns = max(tasks[0].created_ns + SKEW_NS, self.now_ns - _MAX_CONTEXT_NS) - window_ns
        return last_due(schedule, oldest_ns) or oldest_ns

    def _inferred_due_times(self, schedule: Schedule, tasks: Sequence[StartedTask]) -> list[int]:
        """The due times of a rule's rate: when it started tasks, and the ends of the periods
        without a task since.
        """
        starts_ns: list[int] = []
        before_ns: float = -inf
        for task in tasks:
            if task.created_ns - before_ns > SKEW_NS:
                starts_ns.append(task.created_ns)
            before_ns = task.created_ns
        dues: list[int] = []
        last_ns = self.now_ns + self.grace_ns
        for start_ns, next_start_ns in zip_longest(starts_ns, starts_ns[1:], fillvalue=last_ns):
            end_ns = next_start_ns - self.grace_ns
            placed = replace(schedule, starts_ns=start_ns)
            dues += due_times(placed, start_ns, max(end_ns, start_ns) + 1)
        return dues

    def _due_time(
        self,
        slot: TaskSlot,
        cluster: ReadTasks,
        last_ends: Mapping[str, StartedTask | None],
        others: Sequence[str],
    ) -> DueTime:
        if slot.is_open:
            outcome, reason = self._outcome_without_task(slot, cluster, others)
        else:
            outcome = None
            reason = None
        if outcome is None:
            outcome, reason = self._outcome_with_task(slot, last_ends)
        return DueTime(
            due_ns=slot.due_ns,
            outcome=outcome,
            reason=reason,
            task=slot.tasks[0] if slot.tasks else None,
        )

    def _outcome_without_task(
        self, slot: TaskSlot, cluster: ReadTasks, others: Sequence[str]
    ) -> tuple[DueOutcome | None, str | None]:
        """The outcome of a due time that lacks tasks; None if those that were found decide it."""
        schedule = slot.schedule
        kind = schedule.started_kind_words
        if slot.tasks:
            some = f"{len(slot.tasks)} of {schedule.task_count} {kind} were started."
        else:
            some = None
        if cluster.tasks is None:
            return "unknown", cluster.problem
        if not schedule.is_enabled:
            return (None, None) if some else ("disabled", None)
        if schedule.why_unknown is not None:
            return "unknown", schedule.why_unknown
        if self.now_ns < slot.window_end_ns + self.grace_ns:
            return "due", some
        if slot.due_ns < cluster.known_since_ns:
            return (None, None) if some else ("unknown", _too_old_reason(schedule))
        doubt = (
            f"AWS does not distinguish its {kind} from the {kind} of {first_names(others)}, which "
            "may be concerned."
        )
        why = None
        if cluster.is_gone:
            why = f"The cluster {cluster_name(schedule.cluster_arn)} does not exist."
        return "missed", " ".join(filter(None, (some, why or (doubt if others else None)))) or None

    def _outcome_with_task(
        self, slot: TaskSlot, last_ends: Mapping[str, StartedTask | None]
    ) -> tuple[DueOutcome, str | None]:
        first = slot.tasks[0]
        last = slot.tasks[-1]
        created = (*slot.tasks, *slot.extra)
        started = [task for task in created if task.stop_code != FAILED_TO_START]
        if not started:
            what = "job" if first.is_job else "task"
            stated = None if is_vague(first.stopped_reason) else first.stopped_reason
            reason = explained_refusal(stated or "AWS gives no reason")
            return "refused", f"The {what} failed to start: {reason}"
        if last.created_ns >= slot.window_end_ns + self.grace_ns:
            return _late_outcome(slot, last)
        if slot.extra and not first.is_execution and len(started) > slot.schedule.task_count:
            names = listed(task_id(task.arn) for task in started)
            kind = "Jobs" if first.is_job else "Tasks"
            return "started twice", f"{kind} {names} were started for the same time."
        previous = last_ends[first.arn]
        if previous is not None and previous.end_ns > first.created_ns:
            run = f"{task_id(previous.arn)} of {format_ms(previous.created_ns)}"
            return "overlapped", f"The previous run was still running: {run}."
        if all(task.has_stopped for task in slot.tasks):
            return "ran", None
        waits = first.is_job and first.started_ns is None
        return "running", f"The job {task_id(first.arn)} has not started yet." if waits else None


def _late_outcome(slot: TaskSlot, last: StartedTask) -> tuple[DueOutcome, str]:
    """The outcome of a due time whose last task came late."""
    after = format_duration((last.created_ns - slot.window_end_ns) / NS_PER_MS)
    end = "window" if slot.schedule.window_minutes else "due time"
    if last.is_execution:
        return "unknown", (
            f"An execution began {after} after the {end}, and Step Functions does not say who "
            "started it."
        )
    what = "job was submitted" if last.is_job else "task started"
    return "late", f"The {what} {after} after the {end}."


def _too_old_reason(schedule: Schedule) -> str:
    if schedule.is_of_machine:
        return _EXECUTION_TOO_OLD
    return JOB_TOO_OLD if schedule.is_of_jobs else TOO_OLD


def _may_be_restarted(schedule: Schedule, slots: Iterable[TaskSlot]) -> bool:
    """Whether a change may have moved the due times of a rate: no task since then shows them."""
    modified_ns = schedule.modified_ns
    created_ns = schedule.created_ns
    if modified_ns is None or created_ns is None or modified_ns < created_ns + EFFECTIVE_NS:
        return False
    if schedule.starts_ns is not None or not schedule.expression.lstrip().startswith("rate"):
        return False
    return not any(slot.due_ns >= modified_ns and slot.is_prompt for slot in slots)


def _unknown_if_doubtful(due: DueTime, schedule: Schedule, *, is_restarted: bool) -> DueTime:
    """The due time; unknown instead of missed or late if it was perhaps none, as may be the
    creation of a rate.
    """
    if due.outcome not in ("missed", "late"):
        return due
    changed_ns = max(schedule.modified_ns or 0, schedule.created_ns or 0)
    if due.due_ns < changed_ns:
        return replace(due, outcome="unknown", reason=CHANGED)
    if due.due_ns < changed_ns + EFFECTIVE_NS:
        return replace(due, outcome="unknown", reason=_NEW)
    if is_restarted:
        return replace(due, outcome="unknown", reason=_RESTARTED)
    return due
