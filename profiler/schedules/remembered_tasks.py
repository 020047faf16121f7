"""What a process remembers of started tasks, of rules and of schedules that AWS has deleted: AWS
forgets a stopped task after an hour, and does not return when a rule was changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_DAY, NS_PER_SECOND
from profiler.schedules.due_times import ScheduleExpressionError, next_due
from profiler.schedules.schedule_model import EFFECTIVE_NS, ReadTasks, Schedule, StartedTask

# A schedule retries for a day at most, and a flexible window lasts a day at most.
_KEPT_NS = 2 * NS_PER_DAY
# CloudTrail shows most calls within five minutes.
_SETTLED_NS = 15 * 60 * NS_PER_SECOND


class TaskMemory(Struct):
    """Adds the tasks that were read before to those that were read now."""

    _clusters: dict[str, ReadTasks] = {}

    def remember_tasks(self, clusters: Mapping[str, ReadTasks]) -> dict[str, ReadTasks]:
        """Remember the tasks of clusters. Returns the clusters with all tasks that are known."""
        merged: dict[str, ReadTasks] = {}
        for arn, cluster in clusters.items():
            merged[arn] = _merge_readings(self._clusters.get(arn), cluster)
            if merged[arn].tasks is not None:
                self._clusters[arn] = merged[arn]
        return merged


def _merge_readings(before: ReadTasks | None, now: ReadTasks) -> ReadTasks:
    """A gap of more than an hour between two readings hides tasks, so the earlier ones do not
    count then. Nor do those of a cluster that existed at the last reading, and is gone: it may have
    had others since, whenever it was first seen to be gone before it was created again.
    """
    if before is None or before.tasks is None or now.tasks is None:
        return now
    oldest_ns = now.read_ns - _KEPT_NS
    if now.is_gone:
        since_ns = before.known_since_ns if before.is_gone else now.read_ns
        return replace(now, known_since_ns=max(since_ns, oldest_ns))
    if before.read_ns < now.known_since_ns:
        return now
    tasks: dict[str, StartedTask] = {}
    for task in before.tasks:
        if task.has_stopped and task.end_ns > oldest_ns:
            tasks[task.arn] = task
    for task in now.tasks:
        tasks[task.arn] = task
    return ReadTasks(
        tasks=tuple(tasks.values()),
        read_ns=now.read_ns,
        known_since_ns=max(before.known_since_ns, oldest_ns),
    )


class RuleMemory(Struct):
    """Keeps the time since which each rule was seen without a change."""

    _since_ns: dict[Schedule, int] = {}

    def remember_rules(self, schedules: Iterable[Schedule], now_ns: int) -> None:
        """Remember the rules that were read now. One that is not among them counts as new later."""
        since_ns: dict[Schedule, int] = {}
        for schedule in schedules:
            if schedule.kind == "rule":
                since_ns[schedule] = self._since_ns.get(schedule, now_ns)
        self._since_ns = since_ns

    def is_settled(self, schedule: Schedule, now_ns: int) -> bool:
        """Whether CloudTrail shows every change that has an effect on earlier due times."""
        return (
            schedule.kind != "rule" or now_ns - self._since_ns.get(schedule, now_ns) >= _SETTLED_NS
        )

    def was_seen_before(self, schedule: Schedule, due_ns: int) -> bool:
        """Whether the schedule is unchanged since before the due time.

        AWS returns the change of schedules only.
        """
        return (
            schedule.kind != "rule" or self._since_ns.get(schedule, due_ns) <= due_ns - EFFECTIVE_NS
        )


class EndedScheduleMemory(Struct):
    """Keeps schedules that AWS deletes after their last due time, until this is judged: AWS deletes
    one at once that it could not start anything for.
    """

    _seen_ns: dict[Schedule, int] = {}

    def with_deleted(
        self, schedules: Sequence[Schedule], now_ns: int, *, are_all: bool
    ) -> tuple[Schedule, ...]:
        """The schedules that were read now, and those of earlier readings that were over before
        they were missing. ``are_all``: one that is missing was deleted.
        """
        listed = {(one.kind, one.group, one.name) for one in schedules}
        deleted = []
        seen_ns = {one: now_ns for one in schedules if one.is_deleted_at_end}
        for schedule, last_seen_ns in self._seen_ns.items():
            is_listed = (schedule.kind, schedule.group, schedule.name) in listed
            if is_listed or now_ns - last_seen_ns > _KEPT_NS:
                continue
            is_over = _is_over(schedule, now_ns)
            if is_over:
                deleted.append(schedule)
            if is_over or not are_all:
                seen_ns[schedule] = last_seen_ns
        self._seen_ns = seen_ns
        return (*schedules, *deleted)

    def may_be_deleted_before(self, schedule: Schedule, due_ns: int) -> bool:
        """Whether somebody may have deleted the schedule before it was due."""
        return self._seen_ns.get(schedule, due_ns) < due_ns

    def last_seen_ns(self, schedule: Schedule) -> int:
        return self._seen_ns[schedule]


def _is_over(schedule: Schedule, now_ns: int) -> bool:
    with suppress(ScheduleExpressionError):
        return next_due(schedule, now_ns) is None
    return False
