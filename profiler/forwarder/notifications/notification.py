"""A notification, of an ended task, a running one or a schedule; and the channels that it is
posted to, once.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import LogTarget
from profiler.core.optional_math import known
from profiler.core.timestamps import format_datetime
from profiler.forwarder.batch_report import ReportLine
from profiler.forwarder.documents import schedule_notice_id
from profiler.forwarder.invocation import ForwarderError
from profiler.forwarder.notifications.idempotency import Idempotently
from profiler.forwarder.run_links import RunLinks, links_of_line, links_of_stopped_task
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Cost, Metrics, Number, Record
from profiler.record.task_end import EventContainer, Outcome, StoppedTask

_S = TypeVar("_S", bound=Struct)
ChannelKind = Literal["success", "failure"]


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


class EndedTask(Struct, frozen=True, kw_only=True):
    """One stopped task: ``container``, ``log`` and ``labels`` are the batch container's, None
    where unknown.
    """

    task: StoppedTask
    outcome: Outcome
    container: str | None = None
    report_line: ReportLine | None = None  # a report or checkpoint
    report_log: LogTarget | None = None  # the log stream that it is from
    log: LogTarget | None = None
    labels: Mapping[str, str] = {}
    log_lines: tuple[str, ...] = ()  # the newest is the last
    comparison: Comparison | None = None  # None with too few recent runs of the family
    retry: MemoryRetry | None = None
    reduced_memory: str | None = None  # in words, if the killed run's memory had been reduced

    @property
    def family(self) -> str:
        return self.task.family or "unknown"

    @property
    def batch(self) -> EventContainer | None:
        """The batch in the event; with its name alone if the event does not list it, as after a
        failed start.
        """
        return None if self.container is None else self.task.container(self.container)

    @property
    def record(self) -> Record | None:
        return None if self.report_line is None else self.report_line.report.record

    @property
    def metrics(self) -> Metrics:
        """The metrics of the record, with the duration of the run.

        Only a report has the billed duration.
        """
        metrics = Metrics() if self.record is None else self.record.metrics
        billed_ms = metrics.billed_duration_ms if self.is_complete else None
        return replace(metrics, duration_ms=self.duration_ms, billed_duration_ms=billed_ms)

    @property
    def cost(self) -> Cost | None:
        """Only a report has a cost."""
        return self.record.cost if self.record is not None and self.is_complete else None

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
        """The duration of the run: the report's; the event's without one, and for a run that was
        stopped.
        """
        reported = None
        if self.record is not None and self.is_complete and self.record.status != "stopped":
            reported = self.record.metrics.duration_ms
        return self.task.duration_ms if reported is None else reported

    @property
    def reason(self) -> str | None:
        """The text from ECS; None for a success, unless memory ran out."""
        is_plain_success = self.outcome.status == "success" and not self.outcome.out_of_memory
        return None if is_plain_success else self.outcome.reason

    @property
    def finished_at(self) -> str | None:
        """The end of the run: the report's, else the event's."""
        ended = self.task.execution_stopped_at or self.task.stopped_at
        reported = self.record.finished_at if self.record is not None and self.is_complete else None
        return reported or known(format_datetime, ended)

    def links(self, kibana_url: str | None) -> RunLinks:
        """The addresses of the run: its report's, as in the document; else the event's."""
        of_event = links_of_stopped_task(self.task, self.log, kibana_url)
        if self.report_line is None or not self.is_complete:
            return of_event
        return completed(links_of_line(self.report_line.report, kibana_url), of_event)


def completed(value: _S, other: _S) -> _S:
    """Return the value with the fields of the other where its own are unknown."""
    unknown = [name for name in value.__struct_fields__ if getattr(value, name) is None]
    return replace(value, **{name: getattr(other, name) for name in unknown})


Notification: TypeAlias = EndedTask | NoticeLine | ScheduleNoticeLine


class NoticeChannel(Struct):
    """Posts stopped tasks, and notices of running tasks and of schedules."""

    name: str  # a part of the idempotency key: never change it
    post: Callable[
        [Notification, ChannelKind], None
    ]  # raises DeliveryError if the notification was not accepted
    accepts: Callable[[ChannelKind], bool] = lambda _kind: (
        True
    )  # whether it is configured; may raise SettingsError
    is_selective: bool = True  # NOTIFY and the like apply


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
    """The key of a task's end, of a kind of notice of a run, or of a due time's outcome.

    Stored: never change it.
    """
    if isinstance(notification, EndedTask):
        return notification.task.arn
    notice = notification.notice
    if isinstance(notification, NoticeLine):
        record = notification.record
        return f"{record.task_arn or record.task_id}#{record.container.name}#{notice.kind}"
    return f"schedule#{schedule_notice_id(notification)}"
