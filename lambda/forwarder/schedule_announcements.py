"""Notices of schedules: their lines, and the announcement of each line once."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from forwarder.delivery_errors import DeliveryError, ForwarderError
from forwarder.function_settings import NoticeSettings, Subject
from forwarder.notices.channel import NoticeChannel, announce, announcement_key
from forwarder.notices.idempotency import Idempotently
from forwarder.search_cluster.family_durations import FamilyDuration
from profiler.core.ecs_terms import arn_account, arn_region, cluster_name, task_id
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms
from profiler.record.notice_model import NoticedSchedule, ScheduleNotice, ScheduleNoticeKind, ScheduleNoticeLine
from profiler.record.units import format_duration
from profiler.schedules.schedule_model import DueTime, Schedule, StartedTask
from profiler.schedules.task_matching import family_of_schedule

_NS_PER_MINUTE = 60 * NS_PER_SECOND
_SLOW: ScheduleNoticeKind = "slow"

# Adds the reason, if AWS returns one; None: it is no notice after all.
Complete = Callable[[ScheduleNoticeLine], ScheduleNoticeLine | None]


class ScheduleAnnouncer:
    """Announces notices of schedules, each at most once.

    Args:
        settings: what is announced.
        channels: the channels.
        once: posts a notice only once for a key.
        store: indexes or prints the line of every notice. It raises ForwarderError.
        finished: the keys for which this process need not ask the table. It grows by those of new notices.
    """

    def __init__(
        self,
        settings: NoticeSettings,
        channels: Sequence[NoticeChannel],
        once: Idempotently,
        store: Callable[[ScheduleNoticeLine], None],
        finished: set[str],
    ) -> None:
        self._settings = settings
        self._channels = channels
        self._once = once
        self._store = store
        self._finished = finished

    def announce(self, line: ScheduleNoticeLine, complete: Complete) -> bool:
        """Complete the line, announce and store it. Returns False if that was done before, or if it is no notice.

        Raises:
            ForwarderError: a channel failed, and all were tried. The next call repeats only what failed.
        """
        key = f"{announcement_key(line)}#whole"
        if key in self._finished:
            return False
        announced: list[ScheduleNoticeLine] = []

        def work() -> bool:
            whole = complete(line)
            if whole is not None:
                self._announce(whole)
                announced.append(whole)
            return whole is not None

        self._once(key, work)
        self._finished.add(key)
        return bool(announced)

    def _announce(self, line: ScheduleNoticeLine) -> None:
        errors: list[ForwarderError] = []
        subject: Subject = "running" if line.notice.kind == _SLOW else "failure"
        is_selected = self._settings.selects(subject, line.family or "")
        channels = [channel for channel in self._channels if is_selected or not channel.is_selective]
        announce(channels, line, "failure", self._once, errors)
        try:
            self._once(f"{announcement_key(line)}#stored", lambda: self._stored(line))
        except ForwarderError as error:
            errors.append(error)
        if errors:
            raise DeliveryError(" ".join(str(error) for error in errors)) from errors[0]

    def _stored(self, line: ScheduleNoticeLine) -> bool:
        self._store(line)
        return True


def missed_line(schedule: Schedule, due: DueTime, *, now_ns: int, grace_ns: int) -> ScheduleNoticeLine:
    """No task was started at the due time."""
    until_ns = due.due_ns + schedule.window_minutes * _NS_PER_MINUTE + grace_ns
    sentences = [f"{_due(schedule, due.due_ns)}, and no task had started by {_clock(until_ns)}."]
    return _line(schedule, "missed", [*sentences, due.reason], due_ns=due.due_ns, task=due.task, now_ns=now_ns)


def with_reason(line: ScheduleNoticeLine, reason: str | None) -> ScheduleNoticeLine:
    """Add AWS's reason, if there is one."""
    if reason is None:
        return line
    notice = replace(line.notice, reason=reason, message=f"{line.notice.message} {reason}")
    return replace(line, notice=notice)


def late_line(schedule: Schedule, due: DueTime, *, now_ns: int) -> ScheduleNoticeLine:
    """The task was started after the grace period."""
    return _line(
        schedule,
        "late",
        [f"{_due(schedule, due.due_ns)}.", due.reason],
        due_ns=due.due_ns,
        task=due.task,
        now_ns=now_ns,
    )


def overlapped_line(schedule: Schedule, due: DueTime, *, now_ns: int) -> ScheduleNoticeLine:
    """The task was started while the previous one was running."""
    sentences = [f"{_due(schedule, due.due_ns)}.", due.reason]
    return _line(schedule, "overlapped", sentences, due_ns=due.due_ns, task=due.task, now_ns=now_ns)


def slow_line(
    schedule: Schedule, task: StartedTask, usual: FamilyDuration, *, due_ns: int | None, elapsed_ms: float, now_ns: int
) -> ScheduleNoticeLine:
    """A task is slower than nearly all earlier ones."""
    sentence = (
        f"{schedule.name} has been running for {format_duration(elapsed_ms)}. 95 % of its family's last {usual.runs} "
        f"successes took at most {format_duration(usual.p95_ms)}."
    )
    return _line(schedule, _SLOW, [sentence], due_ns=due_ns, task=task, now_ns=now_ns)


def _line(
    schedule: Schedule,
    kind: ScheduleNoticeKind,
    sentences: Sequence[str | None],
    *,
    due_ns: int | None,
    task: StartedTask | None,
    now_ns: int,
) -> ScheduleNoticeLine:
    return ScheduleNoticeLine(
        time=format_ms(now_ns),
        notice=ScheduleNotice(
            kind=kind,
            message=" ".join(filter(None, sentences)),
            due_at=None if due_ns is None else format_ms(due_ns),
            task_id=None if task is None else task_id(task.arn),
        ),
        schedule=NoticedSchedule(
            kind=schedule.kind,
            name=schedule.name,
            group=schedule.group,
            expression=schedule.expression,
            time_zone=schedule.time_zone,
        ),
        cluster=cluster_name(schedule.cluster_arn),
        family=family_of_schedule(schedule),
        region=arn_region(schedule.cluster_arn),
        account_id=arn_account(schedule.cluster_arn),
    )


def _due(schedule: Schedule, due_ns: int) -> str:
    day, _, _ = format_ms(due_ns).partition("T")
    return f"{schedule.name} was due on {day} at {_clock(due_ns)}"


def _clock(moment_ns: int) -> str:
    """The time of day, to the minute."""
    minute_ns = moment_ns // _NS_PER_MINUTE * _NS_PER_MINUTE
    return f"{format_ms(minute_ns).partition('T')[2].removesuffix(':00.000Z')} UTC"


def elapsed_ms(task: StartedTask, now_ns: int) -> float | None:
    """How long a task has been running; None if it does not run, or not yet."""
    if task.started_ns is None or task.stopped_ns is not None:
        return None
    return (now_ns - task.started_ns) / NS_PER_MS
