"""A notification's content, and its posting to each channel, once; and the notices of running tasks.

The notices among the lines of an invocation are sent after their documents are written. Any program can print the
line of a notice into its own log. Therefore at most eight notices of a log stream, and so of a run, are sent; all of
them are indexed. With a table of the sent ones, this is the number of all invocations. A notice that is older than a
day, or is sent again by ``task-profiler replay``, is indexed and not sent: its run is over, and the table may no longer
contain it.

A record of a stream whose notice a channel did not accept is repeated until the notice is 15 minutes old: it holds up
the records after it in its shard, and a wrong setting of a channel must not cost the reports in them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.aws_clients import bounded_config
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder.batch_report import LogStream, ReportLine
from profiler.forwarder.documents import schedule_notice_id
from profiler.forwarder.function_settings import NoticeSettings
from profiler.forwarder.invocation import DeliveryError, ForwarderError, InProgressError, attempt
from profiler.forwarder.run_links import RunLinks, links_of_line, links_of_stopped_task
from profiler.record.notice_model import NoticeLine, ScheduleNoticeLine
from profiler.record.record_model import Cost, Metrics, Number, Record
from profiler.record.task_end import Outcome, StoppedTask

_S = TypeVar("_S", bound=Struct)
_Result = TypeVar("_Result")
ChannelKind = Literal["success", "failure"]
# Runs the work at most once for a key: (key, work).
Idempotently = Callable[[str, Callable[[], object]], object]
MAX_NOTICES_OF_A_STREAM = 8
MAX_AGE = timedelta(days=1)
MAX_AGE_IN_STREAM = timedelta(minutes=15)


class UnusualMeasure(Struct, frozen=True, kw_only=True):
    """A metric of the record in which a success lies far outside its family, and the median of the family's runs."""

    metric: str
    value: Number
    usual: Number


class Comparison(Struct, frozen=True, kw_only=True):
    """The run compared with recent runs of its family: the duration in words, and whether it took notably longer.

    ``unusual`` are the measures of a success that did much less or much more than its family usually does.
    """

    text: str
    is_slow: bool = False
    unusual: tuple[UnusualMeasure, ...] = ()


class MemoryRetry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sentence about the retry of a run that was killed for memory, and the ids of the other task if it has one.

    ``retried_as`` is the task that was started again; ``retry_of`` is the task of which this one is the retry.
    """

    sentence: str
    retried_as: str | None = None
    retry_of: str | None = None


class EndedTask(Struct, frozen=True, kw_only=True):
    """One stopped task.

    ``container`` is the name of the batch container; ``report_line`` is its report or checkpoint, of the log stream
    ``report_log``; ``log`` is its log stream. ``labels`` are its Docker labels. ``log_lines`` are the last lines of
    the batch, the newest one last. ``comparison`` is None if there are too few recent runs of the family. ``retry`` is
    None without a retry.
    """

    task: StoppedTask
    outcome: Outcome
    container: str | None = None
    report_line: ReportLine | None = None
    report_log: LogStream | None = None
    log: LogStream | None = None
    labels: Mapping[str, str] = {}
    log_lines: tuple[str, ...] = ()
    comparison: Comparison | None = None
    retry: MemoryRetry | None = None

    @property
    def family(self) -> str:
        return self.task.family or "unknown"

    @property
    def record(self) -> Record | None:
        return None if self.report_line is None else self.report_line.report.record

    @property
    def metrics(self) -> Metrics:
        """The metrics of the record, with the duration of the run. Only a report has the billed duration."""
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
        return self.outcome.status == "failure" or (self.comparison is not None and self.comparison.is_slow)

    @property
    def unusual(self) -> tuple[UnusualMeasure, ...]:
        return () if self.comparison is None else self.comparison.unusual

    @property
    def is_complete(self) -> bool:
        return self.report_line is not None and self.report_line.is_final

    @property
    def duration_ms(self) -> float | None:
        """The duration of the run: the report's; the event's without one, and for a run that was stopped."""
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
        return reported or (None if ended is None else format_datetime(ended))

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
    """Posts stopped tasks, and notices of running tasks and of schedules.

    ``name`` is a part of the idempotency key: never change it. ``post`` raises DeliveryError if the notification was
    not accepted; Lambda must retry the event. ``accepts`` is True if the channel is configured for successes, or
    for everything else; it may raise SettingsError. NOTIFY, NOTIFY_FAMILIES and NOTIFY_SERVICES select the tasks,
    except for a channel that is not selective.
    """

    name: str
    post: Callable[[Notification, ChannelKind], None]
    accepts: Callable[[ChannelKind], bool] = lambda _kind: True
    is_selective: bool = True


def notify(
    channels: Sequence[NoticeChannel],
    notification: Notification,
    kind: ChannelKind,
    once: Idempotently,
    errors: list[ForwarderError],
) -> tuple[str, ...]:
    """Post the notification to each channel that accepts its kind, at most once for each channel.

    A channel that fails does not prevent the others: its error is added to ``errors``. Returns the names of the
    channels that have the notification, now or since an earlier invocation.
    """
    posted = []
    for channel in channels:
        try:
            if channel.accepts(kind):
                once(f"{notification_key(notification)}#{channel.name}", partial(channel.post, notification, kind))
                posted.append(channel.name)
        except ForwarderError as error:
            errors.append(error)
    return tuple(posted)


def notification_key(notification: Notification) -> str:
    """Return the key of a notification: a task's end, a kind of notice of a run, or the outcome of a due time.

    Keys are stored for days: never change them.
    """
    if isinstance(notification, EndedTask):
        return notification.task.arn
    notice = notification.notice
    if isinstance(notification, NoticeLine):
        record = notification.record
        return f"{record.task_arn or record.task_id}#{record.container.name}#{notice.kind}"
    return f"schedule#{schedule_notice_id(notification)}"


def run_idempotently(
    table: str | None,
    context: Any,  # noqa: ANN401  Lambda's context
    key: str,
    work: Callable[[], _Result],
) -> _Result:
    """Run ``work`` unless it succeeded before for this key; return its result, now or of the earlier run.

    The DynamoDB table stores the results for seven days; without one, the work runs each time. An error of the work
    releases the key, so that a retry runs it again. Powertools derives the time limit of a running attempt from
    Lambda's context. Raises InProgressError if another invocation is running the work, and DeliveryError if the table
    cannot be used.
    """
    if table is None:
        return work()
    from aws_lambda_powertools.utilities import idempotency  # slow to import, and needed only with a table
    from aws_lambda_powertools.utilities.idempotency import exceptions

    layer = idempotency.DynamoDBPersistenceLayer(
        table_name=table, key_attr="id", expiry_attr="expiration", boto_config=bounded_config()
    )
    config = idempotency.IdempotencyConfig(expires_after_seconds=7 * 24 * 3600, lambda_context=context)

    def run_work(*, notice_key: str) -> _Result:
        assert notice_key == key  # noqa: S101  Powertools reads the key from the argument
        return work()

    try:
        guarded: Callable[..., _Result] = idempotency.idempotent_function(
            run_work, data_keyword_argument="notice_key", persistence_store=layer, config=config
        )
        return guarded(notice_key=key)
    except exceptions.IdempotencyAlreadyInProgressError as error:
        raise InProgressError("Another invocation is posting this task's notification.") from error
    except exceptions.IdempotencyPersistenceLayerError as error:
        raise DeliveryError(
            f"The table {table} cannot be used: check IDEMPOTENCY_TABLE and that the function's role may write to it."
        ) from error


class TaskNotices(Struct):
    """Holds the notices of an invocation, and sends them.

    ``settings`` may raise SettingsError. Without a notice, neither it nor ``channels`` and ``once`` are called.
    ``warn`` gets the same sentence for each notice that is not sent for the same reason.
    """

    settings: Callable[[], NoticeSettings]
    channels: Callable[[NoticeSettings], Sequence[NoticeChannel]]
    now: Callable[[], datetime]
    once: Callable[[NoticeSettings], Idempotently] = lambda _settings: lambda _key, work: work()
    warn: Callable[[str], None] = lambda _sentence: None
    # By log stream: its notices by task, container and kind, each with its time and the record that contains it.
    _held: dict[str, dict[tuple[str, str, str], tuple[NoticeLine, datetime, str | None]]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._held

    def add(self, line: NoticeLine, place: str, source: str | None = None) -> None:
        """Hold a notice that is neither too old nor beyond the limit of its log stream, which is ``place``.

        ``source`` is the record of the Kinesis stream that contains it.
        """
        written, where = parse_datetime(line.time), place[:200]
        if written is None or self.now() - written > MAX_AGE:
            self.warn(f"Notifications in {where} are not sent, because they are older than a day.")
            return
        held = self._held.setdefault(place, {})
        key = (line.record.task_id, line.record.container.name, line.notice.kind)
        if len(held) < MAX_NOTICES_OF_A_STREAM:
            held.setdefault(key, (line, written, source))
        elif key not in held:
            self._warn_of_more(place)

    def send(self, errors: list[ForwarderError]) -> list[str]:
        """Send the notices that the settings select. The errors of the channels are added to ``errors``.

        Returns the records of the stream to deliver again: those with a notice that a channel did not accept.
        """
        held = [(place, *each) for place, notices in self._held.items() for each in notices.values()]
        settings = attempt(self.settings, errors) if held else None
        failed: list[ForwarderError] = []
        refused = held
        if settings is not None:
            channels, once = self.channels(settings), self.once(settings)
            refused = []
            for place, line, written, source in held:
                before = len(failed)
                is_selected = settings.selects("running", line.record.family or "unknown")
                if is_selected and attempt(partial(self._may_send, line, place, once), failed):
                    notify(channels, line, "failure", once, failed)
                if len(failed) > before:
                    refused.append((place, line, written, source))
        errors += {str(error): error for error in failed}.values()  # most notices fail for the same reason
        now = self.now()
        return [source for *_, at, source in refused if source is not None and abs(now - at) <= MAX_AGE_IN_STREAM]

    def _may_send(self, line: NoticeLine, place: str, once: Idempotently) -> bool:
        """Whether the notice is one of the first eight of its log stream: each of these keeps a numbered key."""
        own = notification_key(line)
        keys = (f"{place}#notice-{number}" for number in range(MAX_NOTICES_OF_A_STREAM))
        is_first = any(once(key, lambda: own) == own for key in keys)
        if not is_first:
            self._warn_of_more(place)
        return is_first

    def _warn_of_more(self, place: str) -> None:
        number = MAX_NOTICES_OF_A_STREAM
        self.warn(f"Only {number} notifications in {place[:200]} are sent: the log stream has more.")
