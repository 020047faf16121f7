"""Schedules that start ECS tasks or submit jobs of AWS Batch, and what they started."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf
from typing import Literal

from msgspec import Struct

from profiler.core.ecs_terms import arn_account, arn_region, family_of
from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_SECOND
from profiler.record.family_identity import FamilyKey

ScheduleKind = Literal["schedule", "rule"]
# ``refused``: AWS did not start the task. ``started twice``: more tasks than the schedule starts.
# ``due``: within the grace period or the window. ``none``: nothing was due.
DueOutcome = Literal[
    "ran",
    "missed",
    "late",
    "refused",
    "overlapped",
    "started twice",
    "running",
    "disabled",
    "due",
    "none",
    "unknown",
]
# What ECS stores as ``startedBy``: the starter, then the name of the schedule, cut at this length.
STARTERS: Mapping[ScheduleKind, str] = {"schedule": "chronos-schedule/", "rule": "events-rule/"}
_MAX_STARTED_BY = 36
# EventBridge may start a task of a rate at the full minute before its due time, and clocks differ.
SKEW_NS = 60 * NS_PER_SECOND
# EventBridge starts a task within a minute of its due time, and retries for at most a day.
_PROMPT_NS = 60 * NS_PER_SECOND
_MAX_RETRY_NS = NS_PER_DAY
# Only then is a due time without a task called missed.
DEFAULT_GRACE_MINUTES = 15
# EventBridge needs a moment to use a change.
EFFECTIVE_NS = 60 * NS_PER_SECOND


_CHANGING = "<aws."  # the beginning of a variable of EventBridge Scheduler
_CHANGING_NAME = "The name of its jobs changes each time, so they are not known."
# Step Functions does not say who started an execution.
EXECUTION = "execution"
_NO_STARTER = (
    "It calls RunTask without a StartedBy of its own, so ECS does not say which tasks it started."
)


class Schedule(Struct, frozen=True, kw_only=True):
    """A schedule of EventBridge Scheduler in its group, or a rule of EventBridge on its event
    bus.
    """

    kind: ScheduleKind
    name: str
    group: str = "default"
    expression: str
    time_zone: str = "UTC"
    is_enabled: bool = True
    window_minutes: int = 0  # the flexible time window, which begins at each due time
    created_ns: int | None = None  # AWS returns neither time of a rule
    modified_ns: int | None = None  # the last change; the values are known since then
    starts_ns: int | None = None
    ends_ns: int | None = None
    is_deleted_at_end: bool = False  # by AWS, after its last due time
    cluster_arn: str  # of a job: its queue
    definition_arn: str  # or a family
    job_name: str | None = None  # of the jobs that it submits to AWS Batch; None: it starts tasks
    # Of the state machine of Step Functions that it starts, without a version or an alias;
    # ``cluster_arn`` is the same one, and the family those that its states start, with commas.
    machine_arn: str | None = None
    machine_created_ns: int | None = None
    # The ``startedBy`` that a request of RunTask has in place of EventBridge's own; empty: none.
    requested_starter: str | None = None
    task_count: int = 1
    dead_letter_arn: str | None = None  # the queue of the invocations that failed

    @property
    def title(self) -> str:
        """Its name, with its group unless that is the default one."""
        return self.name if self.group == "default" else f"{self.group}/{self.name}"

    @property
    def family(self) -> str:
        return family_of(self.definition_arn)

    @property
    def family_key(self) -> FamilyKey:
        """The family that it starts, in the account and the Region of its cluster."""
        return FamilyKey(self.family, arn_account(self.cluster_arn), arn_region(self.cluster_arn))

    @property
    def started_by(self) -> str:
        """The ``startedBy`` of the tasks that it starts, as ECS stores it; the name of its jobs."""
        if self.machine_arn is not None:
            return EXECUTION
        if self.requested_starter is not None:
            return certain_started_by(self.requested_starter)
        return self.job_name or certain_started_by(STARTERS[self.kind] + self.name)

    @property
    def is_of_jobs(self) -> bool:
        """Whether it submits jobs of AWS Batch."""
        return self.job_name is not None

    @property
    def is_of_machine(self) -> bool:
        """Whether it starts a state machine of Step Functions."""
        return self.machine_arn is not None

    @property
    def families(self) -> tuple[str, ...]:
        """The families that it starts: of a state machine, perhaps several."""
        return tuple(self.family.split(", "))

    @property
    def family_of_tasks(self) -> str:
        """The family of its tasks; empty for executions, which have none, whatever they start."""
        return "" if self.is_of_machine else self.family

    @property
    def machine_name(self) -> str | None:
        """The name of the state machine that it starts."""
        return None if self.machine_arn is None else self.machine_arn.rpartition(":")[2]

    @property
    def started_kind_words(self) -> str:
        """What it starts, in words, in the plural."""
        if self.is_of_machine:
            return "executions"
        return "jobs" if self.is_of_jobs else "tasks"

    @property
    def why_unknown(self) -> str | None:
        """The reason, as a sentence, for which nobody can tell its tasks or jobs from others; None
        if they can be told.
        """
        if _CHANGING in (self.job_name or ""):  # EventBridge Scheduler makes another one each time
            return _CHANGING_NAME
        starter = self.requested_starter
        is_unknown = starter is not None and (not starter or _CHANGING in starter)
        return _NO_STARTER if is_unknown else None


class StartedTask(Struct, frozen=True, kw_only=True):
    """A task as ECS shows it, or a job as AWS Batch lists it: ``family`` is its definition's name.
    Or an execution of Step Functions, without a family, which anybody may have started.

    Times are in nanoseconds since 1970; ECS shows a stopped task for an hour, Batch a job for seven
    days.
    """

    arn: str
    family: str
    started_by: str | None = None
    created_ns: int
    started_ns: int | None = None
    stopped_ns: int | None = None
    exit_code: int | None = None
    stop_code: str | None = None
    stopped_reason: str | None = None
    job_name: str | None = None  # None: a task

    @property
    def is_job(self) -> bool:
        return self.job_name is not None

    @property
    def is_execution(self) -> bool:
        return self.started_by == EXECUTION

    @property
    def has_stopped(self) -> bool:
        return self.stopped_ns is not None

    @property
    def end_ns(self) -> float:
        """When it stopped; never, as far as is known, while it runs."""
        return first_known(self.stopped_ns, inf)

    @property
    def starter(self) -> str:
        """What its schedule has as ``started_by``."""
        return self.job_name or certain_started_by(self.started_by)


class ReadTasks(Struct, frozen=True, kw_only=True):
    """The tasks of a cluster, or the jobs of a queue: all that stopped after ``known_since_ns`` or
    run.

    ``tasks`` None: ``problem`` is why. ``is_gone``: AWS says that there is no such cluster.
    """

    tasks: tuple[StartedTask, ...] | None = None
    read_ns: int = 0
    known_since_ns: int = 0
    problem: str | None = None
    is_gone: bool = False


class DueTime(Struct, frozen=True, kw_only=True):
    """The outcome of one due time of a schedule.

    ``reason`` is a sentence; ``task`` is the task that it started.
    """

    due_ns: int
    outcome: DueOutcome
    reason: str | None = None
    task: StartedTask | None = None


class TaskSlot(Struct, kw_only=True):
    """A due time of a schedule, the next one if it is known, and the tasks that it started, by
    creation. ``extra``: more tasks at the same time than it starts.
    """

    schedule: Schedule
    due_ns: int
    next_ns: int | None = None
    tasks: list[StartedTask]
    extra: list[StartedTask] = []

    @property
    def window_end_ns(self) -> int:
        """The end of the flexible time window; without a window, the due time."""
        return self.due_ns + self.schedule.window_minutes * NS_PER_MINUTE

    @property
    def is_open(self) -> bool:
        return len(self.tasks) < self.schedule.task_count

    @property
    def is_certain(self) -> bool:
        """Whether the schedule was enabled and the same at the due time; always True for a rule
        that is enabled.
        """
        return self.schedule.is_enabled and self.due_ns >= (self.schedule.modified_ns or 0)

    @property
    def is_prompt(self) -> bool:
        """Whether the first of the tasks was created at the due time, or in the window."""
        return bool(self.tasks) and self.tasks[0].created_ns <= self.window_end_ns + _PROMPT_NS


def certain_started_by(starter: str | None) -> str:
    """A task's ``startedBy`` in the length that is certain; ECS accepts a longer one today."""
    return (starter or "")[:_MAX_STARTED_BY]


def may_have_started(schedule: Schedule, task: StartedTask) -> bool:
    """Whether the task can be the schedule's, by its family and ``startedBy``, which similar
    names may share; a job by its definition and its name.
    """
    if schedule.is_of_jobs:
        return (task.job_name, task.family) == (schedule.job_name, schedule.family)
    if task.family != schedule.family_of_tasks:
        return False
    if schedule.is_of_machine:
        return task.is_execution
    return may_have_starter(schedule, task.started_by)


def may_have_starter(schedule: Schedule, started_by: str | None) -> bool:
    """Whether a schedule may give this ``startedBy``, whole or cut, to its tasks."""
    if schedule.requested_starter is not None:
        return certain_started_by(started_by) == schedule.started_by
    return may_be_starter(schedule.kind, schedule.name, started_by or "")


def may_be_starter(kind: ScheduleKind, name: str, starter: str) -> bool:
    """Whether ``starter`` is the ``startedBy`` of the schedule's tasks, whole or cut."""
    whole = STARTERS[kind] + name
    return starter == whole or (len(starter) >= _MAX_STARTED_BY and whole.startswith(starter))


def assign_tasks(
    slots: Sequence[TaskSlot], tasks: Sequence[StartedTask], known_since_ns: int
) -> None:
    """Give each task to the due time that started it.

    Each due time gets at most the tasks that it starts.

    A task created within a minute of a due time, or of its window, belongs to it, also one task
    more than it starts: EventBridge may start a target twice. The others are late ones of the last
    due time before them that lacks a task. Slots and tasks have the same ``startedBy``, and are
    ascending.
    """
    dues = [slot.due_ns for slot in slots]
    longest_ns = max((slot.window_end_ns - slot.due_ns for slot in slots), default=0) + _PROMPT_NS
    left = []
    for task in tasks:
        end = bisect_right(dues, task.created_ns + SKEW_NS)
        start = bisect_right(dues, task.created_ns - longest_ns - 1, 0, end)
        due = [
            slot
            for slot in slots[start:end]
            if task.created_ns <= slot.window_end_ns + _PROMPT_NS
            and may_have_started(slot.schedule, task)
        ]
        fitting = [slot for slot in due if slot.is_open]
        if fitting:
            # The task of a due time that is too old may be forgotten. It must not take the task of
            # the next due time.
            first = min(
                fitting,
                key=lambda slot: (
                    slot.due_ns < known_since_ns,
                    not slot.is_certain,
                    slot.window_end_ns,
                ),
            )
            first.tasks.append(task)
        elif due:
            due[-1].extra.append(task)
        else:
            left.append((task, end))
    for task, end in left:
        for slot in reversed(slots[:end]):
            is_retry = task.created_ns - slot.window_end_ns <= _MAX_RETRY_NS
            is_next_later = slot.next_ns is None or task.created_ns < max(
                slot.next_ns, slot.window_end_ns
            )
            is_lacking = slot.due_ns >= known_since_ns or is_next_later
            if is_retry and slot.is_open and is_lacking and may_have_started(slot.schedule, task):
                slot.tasks.append(task)
                slot.tasks.sort(key=lambda other: other.created_ns)
                break
