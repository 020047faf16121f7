"""CloudWatch Logs subscription payloads: decodes them, classifies their lines, and delivers the
documents. ``profiler.record.line_trust`` decides which lines count.

They come from CloudWatch Logs itself, or as the records of a Kinesis data stream, which share their
bulk requests. Lambda repeats the lowest record of the answer and all after it, which is safe:
documents are upserts. A record that can never be decoded is kept in the failure store, so that it
does not stop its shard; without one, only the answer can keep it.
"""

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from profiler.core.ecs_terms import REPLAY_FILTER
from profiler.core.json_fields import field_at, mapping_or_empty, text_or_none
from profiler.core.timestamps import format_datetime
from profiler.forwarder.document_updates import MAX_ID_BYTES, Document, ReportDocument
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import (
    ForwarderError,
    InProgressError,
    PayloadError,
    call_collecting_error,
    raise_errors,
)
from profiler.forwarder.line_kinds import (
    InvalidReport,
    contains_call_stacks,
    decode_notice_line,
    decode_report_line,
    replace_lone_surrogates,
)
from profiler.forwarder.notice_documents import notice_document
from profiler.forwarder.notifications.notification import notification_key
from profiler.forwarder.notifications.running_task_notices import RunningTaskNotices
from profiler.forwarder.report_verification import (
    INSTANCE_MONITOR,
    MONITOR_STREAM,
    OWN_STREAM,
    LogStreamClaim,
)
from profiler.forwarder.run_documents import report_document, with_claim
from profiler.forwarder.search_cluster.document_delivery import (
    DeliverDocuments,
    DeliveryResult,
    FailedItem,
    KeepFailures,
)
from profiler.record.impossible_values import is_too_long
from profiler.record.line_trust import LineVerdict, StreamTrust, claim_of, task_of_stream
from profiler.record.memory_news import is_checkpoint_near_full
from profiler.record.notice_model import NoticeLine, encode_notice_line
from profiler.record.record_model import CHECKPOINT, Report

MAX_PAYLOAD_BYTES = 64 * 1024 * 1024
# The limit of the messages that are held as documents at a time. The fields of a short line need
# more memory than its text: each line counts as a kilobyte more.
_MAX_HELD_BYTES = 5 * 1024 * 1024
_DOCUMENT_BYTES = 1024
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32  # zlib detects which of the two formats it is
_MAX_SHOWN_LENGTH = 200
_MAX_KEPT_LENGTH = 20_000  # of a line that is too long

_Decoded = TypeVar("_Decoded")


class LogEvent(Struct, frozen=True):
    """One line.

    ``timestamp`` is in milliseconds since 1970; ``id`` is text on AWS and a number on emulators.
    """

    id: Annotated[str, Meta(min_length=1, max_length=MAX_ID_BYTES)] | int
    timestamp: Annotated[int, Meta(ge=0, le=7_289_654_399_999)]  # the last millisecond of year 2200
    message: str


class SubscriptionPayload(Struct, frozen=True, rename="camel"):
    """Log events of one log stream. ``owner`` is the account of the log group."""

    message_type: str = ""
    owner: str = ""
    log_group: str = ""
    log_stream: str = ""
    log_events: tuple[msgspec.Raw, ...] = ()
    subscription_filters: tuple[str, ...] = ()

    @property
    def is_replay(self) -> bool:
        """Whether its lines were delivered before."""
        return REPLAY_FILTER in self.subscription_filters

    @property
    def has_log_lines(self) -> bool:
        """Whether there are lines of the stream: a control message, CloudWatch's health check,
        has none.
        """
        return bool(self.log_events) and self.message_type != "CONTROL_MESSAGE"

    def log_events_or_failures(self) -> Iterator[LogEvent | FailedItem]:
        """The stream's lines; a log event that is damaged is a ``FailedItem``."""
        for event in self.log_events if self.has_log_lines else ():
            try:
                yield _decode_json(event, _LOG_EVENT)
            except (msgspec.DecodeError, RecursionError) as error:
                yield FailedItem(
                    bytes(event).decode(errors="replace"), f"The log event is damaged: {error}"
                )


_LOG_EVENT = msgspec.json.Decoder(LogEvent)
_PAYLOAD = msgspec.json.Decoder(SubscriptionPayload)


class LineCounts(Struct, kw_only=True):
    """How many lines were indexed, were skipped (no records, older lines of a document, and
    documents that a pipeline of the cluster has dropped), can never be indexed, and may not speak
    for the task that they name.
    """

    indexed: int = 0
    skipped: int = 0
    failed: int = 0
    untrusted: int = 0


class UntrustedLine(Struct, frozen=True):
    """A report, checkpoint or notice that does not count, and why."""

    reason: str


# What a line may write: the document, of a report without its index, because a run has one; the
# account of a report, and the log stream that vouches for it.
_DocumentKey = tuple[str, str | None, str | None, LogStreamClaim | None]


class _HeldLine(Struct, frozen=True):
    """A line as a document, and the size and the time in milliseconds of the line."""

    document: Document
    message_bytes: int
    timestamp_ms: int

    @property
    def merge_key(self) -> _DocumentKey:
        document = self.document
        index = None if isinstance(document, ReportDocument) else document.index
        return document.id, index, document.report_account, document.claim


class LineForwarder(Struct):
    """Indexes lines, a bounded part at a time, then sends their notices.

    Raises DeliveryError; can be repeated.
    """

    settings: ForwarderSettings
    deliver: DeliverDocuments
    keep_failures: KeepFailures
    notices: RunningTaskNotices
    warn: Callable[[str], None] = lambda _sentence: None
    _lines: dict[_DocumentKey, _HeldLine] = {}
    _failures: list[FailedItem] = []
    _held_bytes: int = 0
    _counts: LineCounts = field(default_factory=LineCounts)
    # The first reason of each log stream with untrusted lines, by group and stream.
    _untrusted: dict[tuple[str, str], str] = {}

    def forward_payload(self, payload: SubscriptionPayload) -> LineCounts:
        """Forward the lines of a subscription.

        Notices are sent even if the search cluster fails.
        """
        errors: list[ForwarderError] = []
        call_collecting_error(lambda: self._index_payloads([(payload, None)]), errors)
        call_collecting_error(self._index_new_notices, errors)
        self._warn_of_untrusted_lines()
        self.notices.send_notices(errors)
        raise_errors(errors)
        return self._counts

    def forward_kinesis_records(
        self, records: Iterable[Mapping[str, Any]], warn: Callable[[str], None]
    ) -> tuple[LineCounts, tuple[str, ...]]:
        """Forward the records of a stream.

        Also returns those to deliver again: a channel refused their notice.
        """
        repeated: list[str] = []
        errors: list[ForwarderError] = []
        call_collecting_error(
            lambda: self._index_payloads(self._payloads_of_records(records, repeated, warn)), errors
        )
        call_collecting_error(self._index_new_notices, errors)
        self._warn_of_untrusted_lines()
        channel_errors: list[ForwarderError] = []
        repeated += self.notices.send_notices(channel_errors)
        if errors:
            raise_errors([*errors, *channel_errors])
        for error in channel_errors:
            warn(
                "A notification was not sent; its record is delivered again while the "
                f"notification is new: {error}"
            )
        return self._counts, tuple(dict.fromkeys(repeated))

    def _payloads_of_records(
        self, records: Iterable[Mapping[str, Any]], repeated: list[str], warn: Callable[[str], None]
    ) -> Iterator[tuple[SubscriptionPayload | FailedItem, str | None]]:
        """What the records contain, each with its record's number; records to deliver again go
        to ``repeated``.
        """
        for record in records:
            number = record["kinesis"]["sequenceNumber"]
            data = record["kinesis"].get("data")
            try:
                yield decode_subscription_data(text_or_none(data) or ""), number
            except PayloadError as error:
                if not self.settings.failed_items_queue_url:
                    warn(
                        f"Record {number} of the stream cannot be decoded and is reported as "
                        f"failed: {error}"
                    )
                    repeated.append(number)
                else:
                    # Where the record is and its data, which a message to the failure queue may
                    # cut.
                    place = {name: record.get(name) for name in ("eventID", "eventSourceARN")}
                    yield (
                        FailedItem({**place, "sequenceNumber": number, "data": data}, str(error)),
                        None,
                    )

    def _index_payloads(
        self, items: Iterable[tuple[SubscriptionPayload | FailedItem, str | None]]
    ) -> None:
        """Index the lines of payloads, each with the record that contains it; hold notices, keep
        failures.
        """
        for item, source in items:
            if isinstance(item, FailedItem):
                self._keep_failure(item)
            else:
                self._index_payload(item, source)
        self._deliver_held_lines()

    def _index_payload(self, payload: SubscriptionPayload, source: str | None) -> None:
        trust = self.settings.trusted_groups.trust_in_stream(
            payload.owner, payload.log_group, payload.log_stream
        )
        for event in payload.log_events_or_failures():
            if isinstance(event, FailedItem):
                self._keep_failure(event)
                continue
            result = document_of_log_event(payload, event, self.settings, trust)
            if isinstance(result, Document):
                self._hold_line(_HeldLine(result, len(event.message), event.timestamp))
                if not payload.is_replay:
                    self._add_notice(payload, trust, result, source)
            elif isinstance(result, FailedItem):
                self._keep_failure(result)
            elif isinstance(result, UntrustedLine):
                self._counts.untrusted += 1
                place = payload.log_group, payload.log_stream
                self._untrusted.setdefault(place, result.reason)
            else:
                self._counts.skipped += 1

    def _add_notice(
        self,
        payload: SubscriptionPayload,
        trust: StreamTrust,
        document: Document,
        source: str | None,
    ) -> None:
        """Hold a notice of a task that its place vouches for, or a checkpoint that may be one, and
        the end of a run.

        The stream of an instance monitor has the notices of many tasks: each task has its limit.
        """
        if isinstance(document, ReportDocument) and document.claim.is_of_task:
            ended = text_or_none(field_at(document.fields, "event.end"))
            self.notices.add_end(document.id, ended)
        line = document.notice or document.near_full
        if line is None:
            return
        verdict = trust.judge_line(claim_of(line), None)
        is_of_instance = verdict.voucher == INSTANCE_MONITOR
        if not (verdict.is_confirmed or (is_of_instance and self._is_on_ec2(trust, line))):
            return
        # Accounts that share the table may have groups and streams of the same names.
        place = f"{payload.owner} {payload.log_group} {payload.log_stream}"
        if is_of_instance:
            place = f"{place} {line.record.task_id}"
        if isinstance(line, NoticeLine):
            self.notices.add(line, place, source)
        else:
            self.notices.add_checkpoint(line, place, source)

    def _index_new_notices(self) -> None:
        """Index the notices that no monitor has printed, once: the month of a second one could be
        another.
        """
        for line in self.notices.select_notices_to_send():
            with suppress(InProgressError):  # another invocation indexes it
                key = f"{notification_key(line)}#document"
                self.notices.once(key, partial(self._index_notice, line))

    def _index_notice(self, line: NoticeLine) -> None:
        document = notice_document(line, encode_notice_line(line).decode(), self.settings)
        if isinstance(document, Document):
            rejected = self.deliver([document]).rejected
            if rejected:
                self.keep_failures(rejected)

    def _is_on_ec2(self, trust: StreamTrust, line: NoticeLine | Report) -> bool:
        """Whether ECS says that a task is on an instance, whose monitor speaks for it."""
        tasks = self.settings.trusted_groups.tasks
        monitor = trust.instance_monitor
        if tasks is None or monitor is None:
            return False
        return tasks.is_on_ec2(monitor, line.record.task_id)

    def _warn_of_untrusted_lines(self) -> None:
        """Log once that there were untrusted lines, with the first of their log streams."""
        if not self._untrusted:
            return
        (group, stream), reason = next(iter(self._untrusted.items()))
        self.warn(
            f"Lines that do not belong to their log stream's task were skipped: "
            f"{self._counts.untrusted} in {len(self._untrusted)} log streams. The first one is in "
            f"{group[:_MAX_SHOWN_LENGTH]}, {stream[:_MAX_SHOWN_LENGTH]}: {reason}"
        )

    def _keep_failure(self, failure: FailedItem) -> None:
        """Keep a document or line that can never be indexed, after the documents before it are
        delivered.
        """
        self._make_room_for(len(failure.document) if isinstance(failure.document, str) else 0)
        self._failures.append(failure)

    def _hold_line(self, line: _HeldLine) -> None:
        """Hold a line, the newest one of its document: each further one would be a request of its
        own, because it completes what the one before has written.
        """
        key = line.merge_key
        held = self._lines.get(key)
        if held is None:
            self._make_room_for(line.message_bytes)
            self._lines[key] = line
            return
        self._counts.skipped += 1
        if line.timestamp_ms >= held.timestamp_ms:
            self._held_bytes += line.message_bytes - held.message_bytes
            self._lines[key] = line

    def _make_room_for(self, message_bytes: int) -> None:
        """Make room for another message."""
        added_bytes = message_bytes + _DOCUMENT_BYTES
        if self._held_bytes + added_bytes > _MAX_HELD_BYTES:
            self._deliver_held_lines()
        self._held_bytes += added_bytes

    def _deliver_held_lines(self) -> None:
        delivered = DeliveryResult(indexed=0)
        if self._lines:
            delivered = self.deliver([line.document for line in self._lines.values()])
        failures = [*self._failures, *delivered.rejected]
        if failures:
            self.keep_failures(failures)
        self._counts.indexed += delivered.indexed
        self._counts.skipped += sum(delivered.dropped.values())
        self._counts.failed += len(failures)
        self._lines = {}
        self._failures = []
        self._held_bytes = 0


def document_of_log_event(
    payload: SubscriptionPayload, event: LogEvent, settings: ForwarderSettings, trust: StreamTrust
) -> Document | FailedItem | UntrustedLine | None:
    """Return the document of a report or notice, with ``FORWARD_LOG_LINES`` of any other line;
    None for a skipped line. ``trust`` is the one of the payload's log stream.
    """
    line = decode_report_line(event.message) or decode_notice_line(event.message)
    if line is None:
        is_indexed = settings.forward_log_lines and not contains_call_stacks(event.message)
        if is_indexed:
            return log_line_document(payload, event, settings)
        return None
    if not isinstance(line, InvalidReport):
        return _document_if_trusted(payload, event, line, settings, trust)
    # An outsider must not fill the failure queue.
    if trust.speaks_for_tasks:
        if is_too_long(event.message):
            return FailedItem(event.message[:_MAX_KEPT_LENGTH], f"{line.reason} It is truncated.")
        return FailedItem(event.message, line.reason)
    return UntrustedLine(line.reason)


def _document_if_trusted(
    payload: SubscriptionPayload,
    event: LogEvent,
    line: Report | NoticeLine,
    settings: ForwarderSettings,
    trust: StreamTrust,
) -> Document | FailedItem | UntrustedLine:
    """The document of a line that counts; otherwise the line with the reason."""
    verdict = trust.judge_line(claim_of(line), event.timestamp)
    if verdict.untrusted:
        return UntrustedLine(verdict.untrusted)
    if verdict.invalid:
        return FailedItem(event.message, verdict.invalid)
    claim = _claim_of_line(line, verdict, payload.log_stream)
    if not line.record.account_id:
        line = replace(line, record=replace(line.record, account_id=payload.owner or None))
    if isinstance(line, NoticeLine):
        document = notice_document(line, event.message, settings)
        if isinstance(document, Document):
            document = with_claim(document, claim)
    else:
        document = report_document(line, event.message, settings, claim)
        if isinstance(document, Document) and is_checkpoint_near_full(line):
            document = replace(document, near_full=line)
    if isinstance(document, InvalidReport):
        return FailedItem(event.message, document.reason)
    return document


def _claim_of_line(
    line: Report | NoticeLine, verdict: LineVerdict, log_stream: str
) -> LogStreamClaim:
    """The log stream of a line that only the task's event can confirm, such as a report in the
    stream of the task's monitor: the event says whether there is such a container.
    """
    is_final = isinstance(line, Report) and line.type != CHECKPOINT
    needs_event = not verdict.is_confirmed or (is_final and verdict.voucher == MONITOR_STREAM)
    if verdict.voucher is None or not needs_event:
        return OWN_STREAM
    return LogStreamClaim(voucher=verdict.voucher, stream=log_stream)


def log_line_document(
    payload: SubscriptionPayload, event: LogEvent, settings: ForwarderSettings
) -> Document:
    """Return the document of one ordinary line.

    Its id is the log event's: a repeated delivery writes it again.
    """
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=event.timestamp)
    fields: dict[str, object] = {
        "@timestamp": format_datetime(moment),
        "message": event.message,
        "event": {"kind": "event", "dataset": "task.log"},
        "cloud": {"provider": "aws"},
        "aws": {"cloudwatch": {"log_group": payload.log_group, "log_stream": payload.log_stream}},
    }
    task_stream = task_of_stream(payload.log_stream)
    if task_stream is not None:
        fields["task"] = {"id": task_stream.task_id}
        fields["container"] = {"name": task_stream.container}
    return Document(
        index=settings.indices.index_name("logs", moment), id=str(event.id), fields=fields
    )


def decode_subscription_event(event: object) -> SubscriptionPayload:
    """Decode the Lambda event of a subscription. See ``decode_subscription_data``."""
    data = mapping_or_empty(mapping_or_empty(event).get("awslogs")).get("data")
    if not isinstance(data, str):
        raise PayloadError(
            "The event has neither awslogs.data nor Records: invoke this function from a "
            "CloudWatch Logs subscription or a Kinesis data stream."
        )
    return decode_subscription_data(data)


def decode_subscription_data(data: str) -> SubscriptionPayload:
    """Decode the base64 text of CloudWatch Logs. Raises PayloadError."""
    try:
        compressed = base64.b64decode(data, validate=True)
    except ValueError as error:
        raise PayloadError(f"The event's data is not base64 ({error}).") from error
    unpacked = _decompress(compressed)
    try:
        return _decode_json(unpacked, _PAYLOAD)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PayloadError(
            f"The event's data is not a CloudWatch Logs document: {error}."
        ) from error


def _decode_json(
    json_text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[_Decoded]
) -> _Decoded:
    """Decode JSON; if it cannot be decoded, with U+FFFD in place of what is not Unicode."""
    try:
        return decoder.decode(json_text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text_of_json = bytes(json_text).decode(errors="replace")
        return decoder.decode(replace_lone_surrogates(text_of_json))


def _decompress(compressed: bytes) -> bytes:
    """Unpack gzip or zlib."""
    decompressor = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        unpacked = decompressor.decompress(compressed, MAX_PAYLOAD_BYTES + 1)
    except zlib.error as error:
        raise PayloadError(
            f"The event's data is neither gzip nor zlib ({error}): send it from a subscription."
        ) from error
    if len(unpacked) > MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"The event's data unpacks to more than {MAX_PAYLOAD_BYTES} bytes and is not read."
        )
    if not decompressor.eof:
        raise PayloadError("The event's data is incomplete: send it again.")
    if decompressor.unused_data:
        raise PayloadError("The event's data is followed by more: CloudWatch Logs sends it alone.")
    return unpacked
