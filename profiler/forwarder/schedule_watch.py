"""Watches schedules: alerts to due times without a task, and to tasks that are late, overlap or
are slow.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.eventbridge_calls import FoundSchedules
from profiler.aws_account.missed_reasons import MissedReasonFinder
from profiler.core.ecs_terms import (
    arn_account,
    arn_region,
    cluster_name,
    is_of_aws_batch,
    task_id,
)
from profiler.core.optional_math import known, known_values
from profiler.core.timestamps import NS_PER_MINUTE, NS_PER_MS, format_ms
from profiler.forwarder.family_runs import FamilyDurations
from profiler.forwarder.function_settings import NoticeSettings, Subject
from profiler.forwarder.invocation import (
    NO_TIME_TO_NOTIFY,
    DeliveryError,
    ForwarderError,
    ReadError,
    call_collecting_error,
    raise_errors,
)
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.notifications.notification import (
    NoticeChannel,
    notification_key,
    post_to_accepting_channels,
)
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.family_statistics import UsualDuration
from profiler.record.notice_model import (
    NoticedSchedule,
    ScheduleNotice,
    ScheduleNoticeKind,
    ScheduleNoticeLine,
)
from profiler.record.units import format_duration
from profiler.schedules.due_outcomes import JudgedSchedule, judge_schedules
from profiler.schedules.due_times import ScheduleExpressionError, last_due, next_due
from profiler.schedules.remembered_tasks import EndedScheduleMemory, RuleMemory
from profiler.schedules.schedule_model import (
    SKEW_NS,
    DueTime,
    ReadTasks,
    Schedule,
    StartedTask,
    may_have_started,
)

# The outcomes of due times that are notices.
_KINDS: Mapping[str, ScheduleNoticeKind] = {
    "missed": "missed",
    "late": "late",
    "overlapped": "overlapped",
}
# EventBridge retries for a day at most, so a task can be so late.
_JUDGED_NS = 25 * 60 * NS_PER_MINUTE

# A due time of a schedule.
_JudgedTime: TypeAlias = tuple[Schedule, DueTime]

# Adds the reason, if AWS returns one; None: no notification is needed.
Complete = Callable[[ScheduleNoticeLine], ScheduleNoticeLine | None]


class ScheduleNotifier(Struct, frozen=True):
    """Sends and stores notices, each once.

    ``finished``: keys for which this process need not ask the table.
    """

    settings: NoticeSettings
    channels: Sequence[NoticeChannel]
    once: Idempotently
    store: Callable[[ScheduleNoticeLine], None]
    finished: set[str]

    def complete_and_send(self, line: ScheduleNoticeLine, complete: Complete) -> bool:
        """Complete, send and store the line unless that was done.

        Raises ForwarderError after all channels.
        """
        key = f"{notification_key(line)}#whole"
        if key in self.finished:
            return False
        sent: list[ScheduleNoticeLine] = []

        def work() -> None:
            whole = complete(line)
            if whole is not None:
                self._send_and_store(whole)
                sent.append(whole)

        self.once(key, work)
        self.finished.add(key)
        return bool(sent)

    def _send_and_store(self, line: ScheduleNoticeLine) -> None:
        errors: list[ForwarderError] = []
        kind: Subject = "running" if line.notice.kind == "slow" else "failure"
        families = line.families or ("",)
        is_selected = any(self.settings.selects(kind, family) for family in families)
        channels = self.channels if is_selected else ()
        post_to_accepting_channels(channels, line, "failure", self.once, errors)
        call_collecting_error(
            lambda: self.once(f"{notification_key(line)}#stored", partial(self.store, line)), errors
        )
        raise_errors(errors)


def _time_of_day(moment_ns: int) -> str:
    """The time of day, to the minute."""
    minute_ns = moment_ns // NS_PER_MINUTE * NS_PER_MINUTE
    return f"{format_ms(minute_ns).partition('T')[2].removesuffix(':00.000Z')} UTC"


class ScheduleWatch(Struct, frozen=True, kw_only=True):
    """Looks at all schedules once.

    A task that is missing ``grace_minutes`` after its due time or window is missed.
    """

    schedules: Callable[[], FoundSchedules]
    # Reads the tasks of a cluster, or the jobs of a queue, that these schedules start.
    tasks: Callable[[str, Sequence[Schedule], int], ReadTasks]
    # Adds the tasks that earlier invocations have read, which ECS may have forgotten.
    remember: Callable[[Mapping[str, ReadTasks]], Mapping[str, ReadTasks]]
    rules: RuleMemory  # those that earlier invocations have read
    ended: EndedScheduleMemory  # those that AWS may have deleted since
    reasons: MissedReasonFinder
    # The usual durations of families in the account and Region of an ARN. None without a search
    # cluster.
    usual: Callable[[Collection[str], str], FamilyDurations] | None = None
    notifier: ScheduleNotifier
    grace_minutes: float
    now_ns: int
    may_read: Callable[[], bool]  # there is time to read another cluster
    may_notify: Callable[[], bool]  # … for another notice
    _errors: list[ForwarderError] = []

    @property
    def _grace_ns(self) -> int:
        return round(self.grace_minutes * NS_PER_MINUTE)

    def judge_and_notify(self) -> dict[str, int]:
        """Judge the due times of the last day and alert to what is new.

        Returns what ``watch_schedules`` does.
        """
        read = self.schedules()
        self.rules.remember_rules(read.schedules, self.now_ns)
        self._errors.extend(map(ReadError, read.problems))
        counts = dict.fromkeys(("missed", "late", "overlapped", "slow"), 0)
        if read.unread:
            # Tasks are matched with all schedules. The next invocation continues, and looks at the
            # same day.
            raise_errors(self._errors)
            return {
                "schedules": len(read.schedules) + read.unread,
                "unknown": read.unread,
                **counts,
            }
        schedules = self.ended.with_deleted(read.schedules, self.now_ns, are_all=not read.problems)
        clusters = self._read_cluster_tasks(schedules)
        longest = max((schedule.window_minutes for schedule in schedules), default=0)
        since_ns = self.now_ns - _JUDGED_NS - longest * NS_PER_MINUTE
        judged = judge_schedules(
            [schedule for schedule in schedules if schedule.family != PROOF_FAMILY],
            clusters,
            now_ns=self.now_ns,
            since_ns=since_ns,
            grace_ns=self._grace_ns,
        )
        for line, complete in self._all_notices(judged, clusters):
            if not self.may_notify():
                self._errors.append(DeliveryError(NO_TIME_TO_NOTIFY))
                break
            is_new = call_collecting_error(
                partial(self.notifier.complete_and_send, line, complete), self._errors
            )
            counts[line.notice.kind] += is_new is True
        raise_errors(self._errors)
        unknown = sum(bool(item.problem or item.schedule.why_unknown) for item in judged)
        return {"schedules": len(read.schedules), "unknown": unknown, **counts}

    def _read_cluster_tasks(self, schedules: Iterable[Schedule]) -> Mapping[str, ReadTasks]:
        clusters: dict[str, ReadTasks] = {}
        by_place: dict[str, list[Schedule]] = {}
        for schedule in schedules:
            if schedule.is_enabled and schedule.why_unknown is None:
                by_place.setdefault(schedule.cluster_arn, []).append(schedule)
        for arn in sorted(by_place):
            if not self.may_read():
                late = (
                    "The invocation ran out of time before all clusters were read: increase the "
                    "function's timeout."
                )
                self._errors.append(ReadError(late))
                break
            found = self.tasks(arn, by_place[arn], self.now_ns)
            if found.is_gone:
                found = (
                    call_collecting_error(partial(self._tasks_of_gone_cluster, arn), self._errors)
                    or found
                )
            if found.problem:
                self._errors.append(ReadError(found.problem))
            clusters[arn] = found
        return self.remember(clusters)

    def _tasks_of_gone_cluster(self, arn: str) -> ReadTasks:
        """The tasks of a cluster that does not exist: none since it was first missed, which the
        table knows for the rest of the day. Before, it may have had tasks. Raises ForwarderError.
        """
        day, _, _ = format_ms(self.now_ns).partition("T")
        first = self.notifier.once(f"{arn}#gone#{day}", lambda: str(self.now_ns))
        return ReadTasks(
            tasks=(), read_ns=self.now_ns, known_since_ns=int(str(first)), is_gone=True
        )

    def _all_notices(
        self, judged: Sequence[JudgedSchedule], clusters: Mapping[str, ReadTasks]
    ) -> Iterator[tuple[ScheduleNoticeLine, Complete]]:
        """All notices, also those sent before.

        The notices of slow tasks need a search, and come last.
        """
        for kind, members in self._due_times_to_tell(judged):
            yield (
                self._due_time_line(members, kind),
                partial(self._line_with_aws_reason, members),
            )
        schedules = [item.schedule for item in judged]
        slow = call_collecting_error(
            lambda: self._slow_task_lines(schedules, clusters), self._errors
        )
        for line in slow or ():
            yield line, lambda line: line

    def _due_times_to_tell(
        self, judged: Sequence[JudgedSchedule]
    ) -> Iterator[tuple[ScheduleNoticeKind, Sequence[_JudgedTime]]]:
        """The due times that are notices. Those of one time of a rule with several targets are one
        notice.
        """
        told: dict[tuple[str, str, str, int, ScheduleNoticeKind], list[_JudgedTime]] = {}
        for item in judged:
            schedule = item.schedule
            for due in item.due_times:
                kind = _KINDS.get(due.outcome)
                was_seen = self.rules.was_seen_before(schedule, due.due_ns)
                is_known = was_seen or self.rules.is_settled(schedule, self.now_ns)
                if kind and (is_known or kind == "overlapped"):
                    key = (schedule.kind, schedule.group, schedule.name, due.due_ns, kind)
                    told.setdefault(key, []).append((schedule, due))
        for (*_, kind), members in told.items():
            yield kind, members

    def _notice_line(
        self,
        schedule: Schedule,
        kind: ScheduleNoticeKind,
        message: str,
        due_ns: int | None,
        task: StartedTask | None,
    ) -> ScheduleNoticeLine:
        place = cluster_name(schedule.cluster_arn)
        is_of_tasks = not (schedule.is_of_jobs or schedule.is_of_machine)
        return ScheduleNoticeLine(
            time=format_ms(self.now_ns),
            notice=ScheduleNotice(
                kind=kind,
                message=message,
                due_at=known(format_ms, due_ns),
                next_due_at=known(format_ms, self._next_due_ns(schedule)),
                task_id=None if schedule.is_of_machine else known(_task_id_of, task),
            ),
            schedule=msgspec.convert(schedule, NoticedSchedule, from_attributes=True),
            cluster=place if is_of_tasks else None,
            queue=place if schedule.is_of_jobs else None,
            family=schedule.family,
            region=arn_region(schedule.cluster_arn),
            account_id=arn_account(schedule.cluster_arn),
        )

    def _next_due_ns(self, schedule: Schedule) -> int | None:
        with suppress(ScheduleExpressionError):
            return next_due(schedule, self.now_ns)
        return None

    def _due_time_line(
        self, members: Sequence[_JudgedTime], kind: ScheduleNoticeKind
    ) -> ScheduleNoticeLine:
        """The line of a due time without a task, with a late one, or with the previous one still
        running; its family may be several ones.
        """
        schedule, due = members[0]
        day, _, _ = format_ms(due.due_ns).partition("T")
        sentence = f"{schedule.name} was due on {day} at {_time_of_day(due.due_ns)}"
        if kind == "missed":
            until_ns = due.due_ns + schedule.window_minutes * NS_PER_MINUTE + self._grace_ns
            nothing = "no task had started"
            if schedule.is_of_jobs:
                nothing = "no job was submitted"
            if schedule.is_of_machine:
                nothing = f"no execution of the state machine {schedule.machine_name} had begun"
            sentence += f", and {nothing} by {_time_of_day(until_ns)}"
        reasons = dict.fromkeys(known_values(one.reason for _, one in members))
        line = self._notice_line(
            schedule, kind, " ".join((f"{sentence}.", *reasons)), due.due_ns, due.task
        )
        families = sorted({one.family for one, _ in members})
        return replace(line, family=", ".join(families))

    def _line_with_aws_reason(
        self, members: Sequence[_JudgedTime], line: ScheduleNoticeLine
    ) -> ScheduleNoticeLine | None:
        """The line with AWS's reasons, if any.

        None if CloudTrail shows a change of a new rule after the due time, or that somebody deleted
        the schedule before it.
        """
        schedule, due = members[0]
        if due.outcome != "overlapped":
            was_changed = self._was_changed(schedule, due.due_ns)
            if was_changed is None:
                raise ReadError(
                    f"CloudTrail cannot be read, so it is unknown whether {schedule.name} was "
                    f"{due.outcome}."
                )
            if was_changed:
                return None
        reasons: dict[str, None] = {}
        if due.outcome == "missed":
            found = (self.reasons.find_reason(one, due.due_ns) for one, _ in members)
            reasons = dict.fromkeys(known_values(found))
        if not reasons:
            return line
        reason = " ".join(reasons)
        return replace(
            line,
            notice=replace(line.notice, reason=reason, message=f"{line.notice.message} {reason}"),
        )

    def _was_changed(self, schedule: Schedule, due_ns: int) -> bool | None:
        """Whether somebody may have wanted no task at a due time; None if that cannot be read."""
        if self.ended.may_be_deleted_before(schedule, due_ns):
            since_ns = self.ended.last_seen_ns(schedule)
            return self.reasons.was_deleted(schedule, since_ns, self.now_ns)
        if self.rules.was_seen_before(schedule, due_ns):
            return False
        return self.reasons.was_rule_changed(schedule, due_ns, self.now_ns)

    def _slow_task_lines(
        self, schedules: Iterable[Schedule], clusters: Mapping[str, ReadTasks]
    ) -> list[ScheduleNoticeLine]:
        """The lines of the tasks that are slower than nearly all earlier ones."""
        # An execution takes longer than its tasks.
        of_runs = [schedule for schedule in schedules if not schedule.is_of_machine]
        running = list(_running_scheduled_tasks(of_runs, clusters))
        if self.usual is None or not running:
            return []
        families = {schedule.family for schedule, _ in running}
        durations = self.usual(families, running[0][0].cluster_arn)
        lines = []
        for schedule, task in running:
            usual = _usual_duration_of(schedule, durations)
            elapsed_ms = (self.now_ns - (task.started_ns or self.now_ns)) / NS_PER_MS
            if usual is None or not usual.is_slow(elapsed_ms):
                continue
            message = (
                f"{schedule.name} has been running for {format_duration(elapsed_ms)}. 95 % of its "
                f"family's last {usual.runs} successes took at most "
                f"{format_duration(usual.p95_ms)}."
            )
            due_ns = None
            with suppress(ScheduleExpressionError):
                due_ns = last_due(schedule, task.created_ns + SKEW_NS)
            lines.append(self._notice_line(schedule, "slow", message, due_ns, task))
        return lines


def _task_id_of(task: StartedTask) -> str:
    return task_id(task.arn)


def _usual_duration_of(schedule: Schedule, durations: FamilyDurations) -> UsualDuration | None:
    """The usual duration in the schedule's cluster; of a job, the longest one in a cluster of AWS
    Batch, because its queue may choose any.
    """
    if not schedule.is_of_jobs:
        return durations.get((schedule.family, cluster_name(schedule.cluster_arn) or ""))
    of_batch = (
        usual
        for (family, cluster), usual in durations.items()
        if family == schedule.family and is_of_aws_batch(cluster)
    )
    return max(of_batch, key=lambda usual: usual.p95_ms, default=None)


def _running_scheduled_tasks(
    schedules: Iterable[Schedule], clusters: Mapping[str, ReadTasks]
) -> Iterator[tuple[Schedule, StartedTask]]:
    """The running tasks that schedules started, each with one of the schedules that can have
    started it.
    """
    by_family: dict[tuple[str, str], list[Schedule]] = {}
    for schedule in schedules:
        by_family.setdefault((schedule.cluster_arn, schedule.family), []).append(schedule)
    for arn, cluster in clusters.items():
        for task in cluster.tasks or ():
            if task.has_stopped or task.started_ns is None:
                continue
            for schedule in by_family.get((arn, task.family), ()):
                if may_have_started(schedule, task):
                    yield schedule, task
                    break
