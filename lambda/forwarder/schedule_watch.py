"""Watches schedules: announces due times that started no task, and tasks that are late, overlap or are slow.

Every invocation looks at the last day again, so that the next one repeats what failed. One part that cannot be read
does not hide the others: the errors are raised after all of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from forwarder.delivery_errors import DeliveryError, ForwarderError, ReadError
from forwarder.schedule_announcements import (
    Complete,
    ScheduleAnnouncer,
    elapsed_ms,
    late_line,
    missed_line,
    overlapped_line,
    slow_line,
    with_reason,
)
from forwarder.search_cluster.family_durations import FamilyDurations
from profiler.aws_account.account_schedules import FoundSchedules
from profiler.aws_account.missed_reasons import MissedReasons
from profiler.core.ecs_terms import cluster_name
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.schedules.due_outcomes import JudgedSchedule, judge_schedules
from profiler.schedules.due_times import ScheduleExpressionError, last_due
from profiler.schedules.rule_memory import RuleMemory
from profiler.schedules.schedule_model import ClusterTasks, DueTime, Schedule, StartedTask
from profiler.schedules.task_matching import SKEW_NS, did_start, family_of_schedule

_NS_PER_MINUTE = 60 * NS_PER_SECOND
# EventBridge retries for a day at most, so a task can be so late.
_JUDGED_NS = 25 * 60 * _NS_PER_MINUTE
_SLOW_RATIO = 1.5
_MAX_ERRORS = 5


class Account(Struct, frozen=True, kw_only=True):
    """What is read from AWS.

    Attributes:
        schedules: Reads the schedules and rules.
        tasks: Reads the tasks of the cluster with this ARN, at this time.
        remember: Adds the tasks that earlier invocations have read, which ECS may have forgotten.
        rules: The rules that earlier invocations have read.
        reasons: Finds out why a run was missed.
        usual: Reads the usual durations of families in the account and Region of an ARN; None without a search cluster.
    """

    schedules: Callable[[], FoundSchedules]
    tasks: Callable[[str, int], ClusterTasks]
    remember: Callable[[Mapping[str, ClusterTasks]], Mapping[str, ClusterTasks]]
    rules: RuleMemory
    reasons: MissedReasons
    usual: Callable[[Collection[str], str], FamilyDurations] | None = None


class WatchCounts(Struct, frozen=True, kw_only=True):
    """How many schedules there are, how many have unknown due times, and the new notices of each kind."""

    schedules: int = 0
    unknown: int = 0
    missed: int = 0
    late: int = 0
    overlapped: int = 0
    slow: int = 0

    def as_response(self) -> Mapping[str, int]:
        """Return the response of ``watch_schedules``."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class ScheduleWatch:
    """Looks at all schedules once.

    Args:
        account: reads from AWS and from the search cluster.
        announcer: announces the notices.
        grace_minutes: the time after a due time, or its window, at which a missing task is missed.
        now_ns: the time.
        may_read: whether there is time to read another cluster.
        may_announce: whether there is time for another notice.
    """

    def __init__(
        self,
        account: Account,
        announcer: ScheduleAnnouncer,
        *,
        grace_minutes: float,
        now_ns: Callable[[], int],
        may_read: Callable[[], bool] = lambda: True,
        may_announce: Callable[[], bool] = lambda: True,
    ) -> None:
        self._account = account
        self._announcer = announcer
        self._grace_ns = round(grace_minutes * _NS_PER_MINUTE)
        self._now_ns = now_ns
        self._may_read = may_read
        self._may_announce = may_announce

    def look(self) -> WatchCounts:
        """Judge the due times of the last day and announce what is new.

        Raises:
            ForwarderError: a part could not be read or announced, and all others were.
        """
        now_ns = self._now_ns()
        found = self._account.schedules()
        self._account.rules.add(found.schedules, now_ns)
        errors: list[Exception] = [ReadError(problem) for problem in found.problems]
        clusters = self._clusters(found.schedules, now_ns, errors)
        longest_ns = max((schedule.window_minutes for schedule in found.schedules), default=0) * _NS_PER_MINUTE
        since_ns = now_ns - _JUDGED_NS - longest_ns
        judged = judge_schedules(found.schedules, clusters, now_ns=now_ns, since_ns=since_ns, grace_ns=self._grace_ns)
        counts: Counter[str] = Counter()
        for line, complete in self._notices(judged, clusters, now_ns, errors):
            if not self._may_announce():
                errors.append(
                    DeliveryError(
                        "The invocation ran out of time before all notices were sent: the next one continues."
                    )
                )
                break
            try:
                counts[line.notice.kind] += self._announcer.announce(line, complete)
            except ForwarderError as error:
                errors.append(error)
        if errors:
            raise _joined(errors) from errors[0]
        unknown = sum(one.problem is not None for one in judged)
        return WatchCounts(schedules=len(found.schedules), unknown=unknown, **counts)

    def _clusters(
        self, schedules: Iterable[Schedule], now_ns: int, errors: list[Exception]
    ) -> Mapping[str, ClusterTasks]:
        clusters: dict[str, ClusterTasks] = {}
        for arn in sorted({schedule.cluster_arn for schedule in schedules if schedule.is_enabled}):
            if not self._may_read():
                errors.append(
                    ReadError(
                        "The invocation ran out of time before all clusters were read: increase the function's timeout."
                    )
                )
                break
            clusters[arn] = self._account.tasks(arn, now_ns)
            problem = clusters[arn].problem
            if problem is not None:
                errors.append(ReadError(problem))
        return self._account.remember(clusters)

    def _notices(
        self,
        judged: Sequence[JudgedSchedule],
        clusters: Mapping[str, ClusterTasks],
        now_ns: int,
        errors: list[Exception],
    ) -> Iterator[tuple[ScheduleNoticeLine, Complete]]:
        """All notices, of which some were announced before. Those of slow tasks need a search, and come last."""
        for one in judged:
            for due in one.due_times:
                schedule = one.schedule
                if due.outcome in ("missed", "late") and not self._account.rules.is_settled(schedule, now_ns):
                    continue
                if due.outcome == "missed":
                    line = missed_line(schedule, due, now_ns=now_ns, grace_ns=self._grace_ns)
                    yield line, partial(self._with_reason, schedule, due, now_ns)
                elif due.outcome == "late":
                    yield late_line(schedule, due, now_ns=now_ns), partial(self._unless_changed, schedule, due, now_ns)
                elif due.outcome == "overlapped":
                    yield overlapped_line(schedule, due, now_ns=now_ns), _unchanged
        try:
            for line in self._slow([one.schedule for one in judged], clusters, now_ns):
                yield line, _unchanged
        except ForwarderError as error:
            errors.append(error)

    def _with_reason(
        self, schedule: Schedule, due: DueTime, now_ns: int, line: ScheduleNoticeLine
    ) -> ScheduleNoticeLine | None:
        if self._unless_changed(schedule, due, now_ns, line) is None:
            return None
        return with_reason(line, self._account.reasons.find(schedule, due.due_ns))

    def _unless_changed(
        self, schedule: Schedule, due: DueTime, now_ns: int, line: ScheduleNoticeLine
    ) -> ScheduleNoticeLine | None:
        """No line if its rule was changed after the due time."""
        was_changed = self._account.reasons.was_changed(schedule, due.due_ns, now_ns)
        if was_changed is None:
            raise ReadError(f"CloudTrail cannot be read, so it is unknown whether {schedule.name} was {due.outcome}.")
        return None if was_changed else line

    def _slow(
        self, schedules: Iterable[Schedule], clusters: Mapping[str, ClusterTasks], now_ns: int
    ) -> Iterator[ScheduleNoticeLine]:
        running = list(_running(schedules, clusters))
        if self._account.usual is None or not running:
            return
        families = {family_of_schedule(schedule) for schedule, _ in running}
        usual = self._account.usual(families, running[0][0].cluster_arn)
        for schedule, task in running:
            duration = usual.get((family_of_schedule(schedule), cluster_name(schedule.cluster_arn) or ""))
            elapsed = elapsed_ms(task, now_ns)
            if duration is not None and elapsed is not None and elapsed > _SLOW_RATIO * duration.p95_ms:
                due_ns = _due_of(schedule, task)
                yield slow_line(schedule, task, duration, due_ns=due_ns, elapsed_ms=elapsed, now_ns=now_ns)


def _running(
    schedules: Iterable[Schedule], clusters: Mapping[str, ClusterTasks]
) -> Iterator[tuple[Schedule, StartedTask]]:
    """The running tasks that schedules started, each with one of the schedules that can have started it."""
    by_family: dict[tuple[str, str], list[Schedule]] = {}
    for schedule in schedules:
        by_family.setdefault((schedule.cluster_arn, family_of_schedule(schedule)), []).append(schedule)
    for arn, cluster in clusters.items():
        for task in cluster.tasks or ():
            if task.stopped_ns is None and task.started_ns is not None:
                starters = (one for one in by_family.get((arn, task.family), ()) if did_start(one, task))
                starter = next(starters, None)
                if starter is not None:
                    yield starter, task


def _due_of(schedule: Schedule, task: StartedTask) -> int | None:
    try:
        return last_due(schedule, task.created_ns + SKEW_NS)
    except ScheduleExpressionError:
        return None


def _unchanged(line: ScheduleNoticeLine) -> ScheduleNoticeLine:
    return line


def _joined(errors: Sequence[Exception]) -> ForwarderError:
    """One error of the kind of the first one, with the sentences of the first ones."""
    kind = ReadError if isinstance(errors[0], ReadError) else DeliveryError
    more = f" There are {len(errors) - _MAX_ERRORS} more errors." if len(errors) > _MAX_ERRORS else ""
    return kind(" ".join(str(error) for error in errors[:_MAX_ERRORS]) + more)
