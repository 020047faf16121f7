"""Which of the tasks in a cluster a schedule started, and for which of its due times."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from profiler.core.ecs_terms import family_of
from profiler.core.timestamps import NS_PER_SECOND
from profiler.schedules.schedule_model import Schedule, ScheduleKind, StartedTask

# What ECS stores as ``startedBy``: the starter, then the name of the schedule, cut at this length.
STARTERS: Mapping[ScheduleKind, str] = {"schedule": "chronos-schedule/", "rule": "events-rule/"}
_MAX_STARTED_BY = 36
# EventBridge may start a task of a rate at the full minute before its due time, and clocks differ.
SKEW_NS = 60 * NS_PER_SECOND
# EventBridge starts a task within a minute of its due time, and retries for at most a day.
_PROMPT_NS = 60 * NS_PER_SECOND
MAX_RETRY_NS = 86_400 * NS_PER_SECOND


class TaskSlot(Struct, kw_only=True):
    """A due time of a schedule, and the tasks that it started, by creation; at most the number that it starts.

    ``next_ns`` is the schedule's next due time, if it is known.
    """

    schedule: Schedule
    due_ns: int
    next_ns: int | None = None
    tasks: list[StartedTask]

    @property
    def window_end_ns(self) -> int:
        """The end of the flexible time window; without a window, the due time."""
        return self.due_ns + self.schedule.window_minutes * 60 * NS_PER_SECOND

    @property
    def is_open(self) -> bool:
        return len(self.tasks) < self.schedule.task_count

    @property
    def is_certain(self) -> bool:
        """Whether the schedule was enabled and the same at the due time; always True for a rule that is enabled."""
        return self.schedule.is_enabled and self.due_ns >= (self.schedule.modified_ns or 0)

    @property
    def is_prompt(self) -> bool:
        """Whether the first of the tasks was created at the due time, or in the window."""
        return bool(self.tasks) and self.tasks[0].created_ns <= self.window_end_ns + _PROMPT_NS

    def contains(self, moment_ns: int) -> bool:
        """Whether the moment is before the next due time, or in the window."""
        return self.next_ns is None or moment_ns < max(self.next_ns, self.window_end_ns)


def family_of_schedule(schedule: Schedule) -> str:
    """The family of the tasks that a schedule starts."""
    return family_of(schedule.definition_arn)


def started_by(schedule: Schedule) -> str:
    """The ``startedBy`` of the tasks that a schedule starts, as ECS stores it."""
    return cut_started_by(STARTERS[schedule.kind] + schedule.name)


def cut_started_by(starter: str | None) -> str:
    """A task's ``startedBy`` in the length that is certain; ECS accepts a longer one today."""
    return (starter or "")[:_MAX_STARTED_BY]


def did_start(schedule: Schedule, task: StartedTask) -> bool:
    """Whether the task can be one of the schedule, by its family and its ``startedBy``.

    Schedules whose names agree in the first characters, or in different groups, cannot be distinguished.
    """
    is_its = may_be_starter(schedule.kind, schedule.name, task.started_by or "")
    return is_its and task.family == family_of_schedule(schedule)


def may_be_starter(kind: ScheduleKind, name: str, starter: str) -> bool:
    """Whether ``starter`` is the ``startedBy`` of the schedule's tasks, whole or cut."""
    whole = STARTERS[kind] + name
    return starter == whole or (len(starter) >= _MAX_STARTED_BY and whole.startswith(starter))


def assign_tasks(slots: Sequence[TaskSlot], tasks: Sequence[StartedTask], known_since_ns: int) -> None:
    """Give each task to the due time that started it. Each due time gets at most the tasks that it starts.

    A task created within a minute of a due time, or of its window, belongs to it. The others are late ones of the last
    due time before them that lacks a task. The slots have the same ``startedBy``, as the tasks, and both are ascending.
    A due time before ``known_since_ns`` may have had a task that is no longer known.
    """
    dues = [slot.due_ns for slot in slots]
    longest_ns = max((slot.window_end_ns - slot.due_ns for slot in slots), default=0) + _PROMPT_NS
    left = []
    for task in tasks:
        end = bisect_right(dues, task.created_ns + SKEW_NS)
        start = bisect_right(dues, task.created_ns - longest_ns - 1, 0, end)
        fitting = [
            slot
            for slot in slots[start:end]
            if slot.is_open and task.created_ns <= slot.window_end_ns + _PROMPT_NS and did_start(slot.schedule, task)
        ]
        if fitting:
            # The task of a due time that is too old may be forgotten. It must not take the task of the next due time.
            first = min(
                fitting, key=lambda slot: (slot.due_ns < known_since_ns, not slot.is_certain, slot.window_end_ns)
            )
            first.tasks.append(task)
        else:
            left.append((task, end))
    for task, end in left:
        for slot in reversed(slots[:end]):
            if task.created_ns - slot.window_end_ns > MAX_RETRY_NS:
                continue
            is_lacking = slot.due_ns >= known_since_ns or slot.contains(task.created_ns)
            if slot.is_open and is_lacking and did_start(slot.schedule, task):
                slot.tasks.append(task)
                slot.tasks.sort(key=lambda other: other.created_ns)
                break
