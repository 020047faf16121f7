"""The search documents of runs: of a report, of a checkpoint, and of a stopped task's event with
the numbers of its report or checkpoint.
"""

import hashlib
from collections.abc import Iterator, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict, replace

from profiler.core.ecs_terms import MAX_RUN_LENGTH
from profiler.core.index_names import IndexNames
from profiler.core.json_fields import mapping_or_empty
from profiler.core.timestamps import parse_datetime, subtract_ms
from profiler.forwarder.document_fields import (
    merged_fields,
    own_event_fields,
    record_fields,
    run_fields,
    unconfirmed_claim_fields,
)
from profiler.forwarder.document_updates import (
    TOO_LONG,
    Document,
    EventDocument,
    EventWithTaskId,
    KeptReport,
    ReportDocument,
    is_id_too_long,
    run_document_id,
)
from profiler.forwarder.ended_run import NO_RETRY, EndedTask, MemoryRetry
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.line_kinds import InvalidReport, replace_lone_surrogates
from profiler.forwarder.merged_run import MergedRun, run_of_report
from profiler.forwarder.report_verification import OWN_STREAM, LogStreamClaim
from profiler.forwarder.run_event import RunAsSeen, RunEvent
from profiler.forwarder.run_links import links_of_line
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.stop_causes import outcome_of

_STREAM_DIGITS = 16


def report_document(
    report: Report, line: str, settings: ForwarderSettings, claim: LogStreamClaim = OWN_STREAM
) -> Document | InvalidReport:
    """The document of a report or checkpoint; a checkpoint's lies at most 60 days back.

    ``claim``: its log stream. Of two reports, the document that is stored chooses.
    """
    if report.type == CHECKPOINT:
        document = _checkpoint_document(report, line, settings)
        return document if isinstance(document, InvalidReport) else with_claim(document, claim)
    run = run_of_report(report, claim)
    if run.written_at is None:
        return _invalid_time_report(report)
    place = index_and_document_id(run, settings.indices, run.written_at)
    if place is None or is_id_too_long(place.id):
        return TOO_LONG
    return ReportDocument(
        index=place.index,
        id=place.id,
        searched=place.searched,
        fields=run_fields(run, line, settings.kibana_url),
        report=KeptReport(text=line, account_id=report.record.account_id),
        kibana_url=settings.kibana_url,
    )


def with_claim(document: Document, claim: LogStreamClaim) -> Document | InvalidReport:
    """The document of a checkpoint or notice in this log stream. One whose stream does not name
    the task has an id of its own, so that it replaces none of the task's streams.
    """
    if claim.is_own:
        return document
    fields = merged_fields(document.fields, {"task": unconfirmed_claim_fields(claim)})
    digest = hashlib.sha256(claim.stream.encode()).hexdigest()[:_STREAM_DIGITS]
    document_id = f"{document.id}/{digest}"
    if is_id_too_long(document_id):
        return TOO_LONG
    return replace(document, id=document_id, fields=fields)


class DocumentPlace(Struct, frozen=True, kw_only=True):
    """Where a run's document is: its index, by the start of the image pull, else of the batch, and
    its id.

    ``searched``: the indices, separated by commas, that may have it under another start.
    """

    index: str
    id: str
    searched: str | None = None


class _SeenByEvent(Struct, frozen=True, kw_only=True):
    """A run of which the event speaks.

    ``initial``, and the ``text`` of its checkpoint: the whole document, if there is none yet.
    ``numbers``: the run as its final report alone shows it, whose line is ``line``; None without a
    valid one. ``is_indexed``: the report has its document already.
    """

    run: MergedRun
    initial: MergedRun
    text: str | None = None
    numbers: MergedRun | None = None
    line: str = ""
    is_indexed: bool = False


def event_documents(
    ended: EndedTask, settings: ForwarderSettings, retry: MemoryRetry = NO_RETRY
) -> tuple[Document, ...]:
    """The documents to write, a final report of the logs first; none without a batch or any time
    of the task. Each other container that the monitor reports on has a document of its own.

    ``retry``: the task that was started again, or that this one is the retry of.
    """
    event = ended.run.event
    if not ended.container or event is None:
        return ()
    event = replace(event, retry_of=retry.retry_of, retried_as=retry.retried_as)
    run = replace(ended.run, event=event)
    alone = replace(ended.runs.by_event, event=event)
    moment = alone.finished_at or event.created_at or alone.started_at or alone.began_at
    moment = moment or run.written_at
    if moment is None:
        return ()
    runs = [_batch_seen_by_event(ended, run, alone)]
    runs += [_SeenByEvent(run=other, initial=other) for other in ended.others]
    documents: list[Document] = []
    for seen in runs:
        documents += _documents_of_run(seen, settings, moment)
    return tuple(documents)


def _batch_seen_by_event(ended: EndedTask, run: MergedRun, alone: MergedRun) -> _SeenByEvent:
    """The batch's run by both witnesses, and by the event alone, with what a retry adds."""
    line = ended.report_line
    numbers = ended.runs.by_report
    if line is not None and not line.is_final:
        return _SeenByEvent(run=run, initial=run, text=line.text)
    if line is None or numbers is None or numbers.written_at is None:
        return _SeenByEvent(run=run, initial=alone, is_indexed=ended.is_indexed)
    return _SeenByEvent(
        run=run, initial=alone, numbers=numbers, line=line.text, is_indexed=ended.is_indexed
    )


def _documents_of_run(
    seen: _SeenByEvent, settings: ForwarderSettings, moment: datetime
) -> Iterator[Document]:
    """The document of its final report, if one is to be written, and what the event says of the
    run, in the same document; nothing without any time.

    ``moment``: its time if its end is not known.
    """
    numbers = seen.numbers
    shown_by = seen.initial if numbers is None or seen.is_indexed else numbers
    place = index_and_document_id(shown_by, settings.indices, None if seen.is_indexed else moment)
    if place is None:
        return
    reported_cost: Mapping[str, object] = {}
    if numbers is not None and numbers.written_at is not None and not is_id_too_long(place.id):
        of_report = replace(place, searched=settings.indices.names_for_runs(numbers.written_at))
        fields = run_fields(numbers, seen.line, settings.kibana_url)
        reported_cost = mapping_or_empty(fields.get("cost"))
        if not seen.is_indexed:
            yield ReportDocument(
                **asdict(of_report),
                fields=fields,
                report=KeptReport(text=seen.line, account_id=numbers.report_account),
                kibana_url=settings.kibana_url,
                is_of_event=True,
            )
    event = seen.run.event or RunEvent()
    yield EventDocument(
        **asdict(place),
        upsert=run_fields(seen.initial, seen.text, settings.kibana_url, moment=moment),
        fields=own_event_fields(seen.run, event, reported_cost),
        event=EventWithTaskId(event=event, task_id=seen.run.record.task_id),
        kibana_url=settings.kibana_url,
    )


def index_and_document_id(
    run: MergedRun | RunAsSeen, indices: IndexNames, ended: datetime | None = None
) -> DocumentPlace | None:
    """The place of a run's document; None without any time.

    ``ended``: about when it ended. None: only one place is of interest.
    """
    if run.began_at is None:
        return None
    record = run.record
    return DocumentPlace(
        index=indices.index_name("reports", run.began_at),
        id=run_document_id(record.task_id, record.container.name),
        searched=None if ended is None else indices.names_for_runs(ended),
    )


def _checkpoint_document(
    report: Report, line: str, settings: ForwarderSettings
) -> Document | InvalidReport:
    record = report.record
    written = parse_datetime(report.time)
    if written is None:
        return _invalid_time_report(report)
    started = parse_datetime(record.started_at)
    began = subtract_ms(started, record.metrics.init_duration_ms) or written
    document_id = f"{run_document_id(record.task_id, record.container.name)}/{report.time}"
    if is_id_too_long(document_id):
        return TOO_LONG
    fields = record_fields(record, CHECKPOINT, written)
    fields["task"]["outcome"] = outcome_of(record).cause
    fields["record"] = replace_lone_surrogates(line)
    links = links_of_line(report, settings.kibana_url).document_fields()
    if links:
        fields["links"] = links
    index = settings.indices.index_name("checkpoints", max(began, written - MAX_RUN_LENGTH))
    return Document(index=index, id=document_id, fields=fields)


def _invalid_time_report(report: Report) -> InvalidReport:
    return InvalidReport(
        f"The report's time {report.time[:40]!r} is not an RFC 3339 time between 1970 and 2200."
    )
