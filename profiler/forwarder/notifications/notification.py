"""A notification, of an ended task, a running one or a schedule; and the channels that it is
posted to, once.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import MONITOR_NAME, LogTarget
from profiler.core.notice_channels import ChannelKind
from profiler.forwarder.batch_report import ReportLine
from profiler.forwarder.documents import schedule_notice_id
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.merged_run import MergedRun, completed, merge
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.run_event import run_event
from profiler.forwarder.run_links import RunLinks, links_of_run
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Cost, Metrics, Number, Record
from profiler.record.run_outcome import Outcome
from profiler.record.stop_causes import EventEnd
from profiler.record.stopped_task import EventContainer, StoppedTask


class UnusualMeasure(Struct, frozen=True, kw_only=True):
    """A metric of the record in which a success lies far outside its family, and the median of
    the family's runs.
    """

    metric: str
    value: Number
    usual: Number


class Comparison(Struct, frozen=True, kw_only=True):
    """The duration compared with recent runs of the family, in words, and the ``unusual``
    measures of a success.
    """

    text: str
    is_slow: bool = False
    unusual: tuple[UnusualMeasure, ...] = ()


class MemoryRetry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sentence about a retry, and the task that was started again, or that this one is the
    retry of.
    """

    sentence: str
    retried_as: str | None = None
    retry_of: str | None = None


class EndedTask(Struct, frozen=True, kw_only=True, dict=True):
    """One stopped task: its event, its report, and what is known around them.

    ``container``, ``log`` and ``labels`` are the batch container's, None where unknown.
    ``also_reported``: the other containers that the monitor reports on. What the run came to is
    ``run``.
    """

    task: StoppedTask
    end: EventEnd
    container: str | None = None
    also_reported: tuple[str, ...] = ()
    monitor: str = MONITOR_NAME
    report_line: ReportLine | None = None  # a report or checkpoint
    report_log: LogTarget | None = None  # the log stream that it is from
    log: LogTarget | None = None
    labels: Mapping[str, str] = {}
    log_lines: tuple[str, ...] = ()  # the newest is the last
    comparison: Comparison | None = None  # None with too few recent runs of the family
    retry: MemoryRetry | None = None
    resized_from: str | None = None  # the tag of a definition that `taskdef resize` registered
    reduced_memory: str | None = None  # in words, if the killed run's memory had been reduced

    @property
    def family(self) -> str:
        return self.task.family or "unknown"

    @property
    def batch(self) -> EventContainer | None:
        """The batch in the event; with its name alone if the event does not list it, as after a
        failed start.
        """
        if self.container is None:
            return None
        return self.task.container(self.container)

    @cached_property
    def run(self) -> MergedRun:
        """The run, merged of the report or checkpoint and the event."""
        event = run_event(
            self.task,
            self.end,
            self.container,
            log=self.log,
            monitor=self.monitor,
            retry_of=None if self.retry is None else self.retry.retry_of,
            retried_as=None if self.retry is None else self.retry.retried_as,
            resized_from=self.resized_from,
        )
        if self.report_line is None:
            return merge(None, event)
        return merge(self.report_line.report, event, self.report_line.claim)

    @property
    def outcome(self) -> Outcome:
        """How the run ended, by its report and its event."""
        return self.run.outcome

    @property
    def confirmed(self) -> "EndedTask":
        """The task without a report of a log stream that nothing confirms, on which nobody acts."""
        line = self.report_line
        if line is None or line.claim is None or self.run.is_confirmed:
            return self
        return replace(self, report_line=None, report_log=None)

    @property
    def record(self) -> Record | None:
        """The record of the report or checkpoint, with what the event decides."""
        return None if self.report_line is None else self.run.record

    @property
    def metrics(self) -> Metrics:
        """The metrics of the record, with the duration of the run."""
        return self.run.metrics

    @property
    def cost(self) -> Cost | None:
        """Only a report has a cost."""
        return self.run.cost

    @property
    def went_wrong(self) -> bool:
        """Whether the run failed or took notably longer than its family's recent runs."""
        return self.outcome.status == "failure" or (
            self.comparison is not None and self.comparison.is_slow
        )

    @property
    def unusual(self) -> tuple[UnusualMeasure, ...]:
        return () if self.comparison is None else self.comparison.unusual

    @property
    def is_complete(self) -> bool:
        return self.report_line is not None and self.report_line.is_final

    @property
    def duration_ms(self) -> float | None:
        return self.run.duration_ms

    @property
    def reason(self) -> str | None:
        """The text from ECS; None for a success, unless memory ran out."""
        is_plain_success = self.outcome.cause == "success"
        return None if is_plain_success else self.outcome.reason

    @property
    def finished_at(self) -> str | None:
        return self.run.finished_at

    def links(self, kibana_url: str | None) -> RunLinks:
        """The addresses of the run, as in its document; its log is the definition's without a
        report.
        """
        of_event = links_of_run(merge(None, self.run.event), kibana_url)
        return completed(links_of_run(self.run, kibana_url), of_event)


class SummaryLine(Struct, frozen=True, kw_only=True):
    """A line of a summary. ``at`` is when it happened, ``url`` where to look, ``command`` what to
    run.
    """

    text: str
    at: datetime | None = None
    url: str | None = None
    command: str | None = None


class NightSummary(Struct, frozen=True, kw_only=True):
    """The last night in a sentence, and what is worth a line. ``night`` is the day of its evening,
    such as 2026-11-24.
    """

    night: str
    title: str
    sentence: str
    lines: tuple[SummaryLine, ...] = ()


Notification: TypeAlias = EndedTask | NoticeLine | ScheduleNoticeLine | NightSummary


class NoticeChannel(Struct):
    """Posts stopped tasks, and notices of running tasks and of schedules."""

    name: str  # a part of the idempotency key: never change it
    # Raises DeliveryError if the notification was not accepted.
    post: Callable[[Notification, ChannelKind], None]
    # Whether it is configured; may raise SettingsError.
    accepts: Callable[[ChannelKind], bool] = lambda _kind: True


def notify(
    channels: Sequence[NoticeChannel],
    notification: Notification,
    kind: ChannelKind,
    once: Idempotently,
    errors: list[ForwarderError],
) -> tuple[str, ...]:
    """Post to each channel that accepts the kind, once.

    Returns the channels that have the notification.
    """
    posted = []
    for channel in channels:
        try:
            if channel.accepts(kind):
                once(
                    f"{notification_key(notification)}#{channel.name}",
                    partial(channel.post, notification, kind),
                )
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def notification_key(notification: Notification) -> str:
    """The key of a task's end, of a night, of a kind of notice of a run, or of a due time's
    outcome.

    Stored: never change it.
    """
    if isinstance(notification, EndedTask):
        return notification.task.arn
    if isinstance(notification, NightSummary):
        return f"night#{notification.night}"
    notice = notification.notice
    if isinstance(notification, NoticeLine):
        record = notification.record
        task = record.task_arn or f"{record.account_id or ''}/{record.task_id}"
        return f"{task}#{record.container.name}#{notice.kind}"
    return f"schedule#{schedule_notice_id(notification)}"
