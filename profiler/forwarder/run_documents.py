"""The search documents of runs: of a report, of a checkpoint, and of a stopped task's event with
the numbers of its report or checkpoint.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

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
from profiler.forwarder.documents import (
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
from profiler.forwarder.run_event import OWN_STREAM, LogStreamClaim, RunAsSeen, RunEvent
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
    return _document_of_final_report(run_of_report(report, claim), report, line, settings)


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
    ``reported_cost``: the cost in the document of its report; empty without one.
    """

    run: MergedRun
    place: DocumentPlace
    initial: MergedRun
    text: str | None = None
    reported_cost: Mapping[str, object] = {}


def event_documents(
    ended: EndedTask, settings: ForwarderSettings, retry: MemoryRetry = NO_RETRY
) -> tuple[Document, ...]:
    """The documents to write, a final report of the logs first; none without a batch or any time
    of the task. Each other container that the monitor reports on has a document of its own.

    ``retry``: the task that was started again, or that this one is the retry of.
    """
    event = ended.run.event
    line = ended.report_line
    if not ended.container or event is None:
        return ()
    event = replace(event, retry_of=retry.retry_of, retried_as=retry.retried_as)
    run = replace(ended.run, event=event)
    alone = replace(ended.alone, event=event)
    moment = alone.finished_at or event.created_at or alone.started_at or alone.began_at
    moment = moment or run.written_at
    numbers = _final_report_document(ended, settings)
    if numbers is None or ended.is_indexed:
        written: tuple[Document, ...] = ()
        place = index_and_document_id(alone, settings.indices, None if ended.is_indexed else moment)
    else:
        written = (numbers,)
        place = index_and_document_id(ended.reported or alone, settings.indices, moment)
    if place is None or moment is None:
        return ()
    of_batch = _SeenByEvent(run=run, place=place, initial=alone)
    if numbers is not None:
        of_batch = replace(of_batch, reported_cost=mapping_or_empty(numbers.fields.get("cost")))
    elif line is not None and not line.is_final:
        of_batch = replace(of_batch, initial=run, text=line.text)
    others = [
        _SeenByEvent(run=other, place=place, initial=other)
        for other in ended.others
        if (place := index_and_document_id(other, settings.indices, moment)) is not None
    ]
    runs = [of_batch, *others]
    return (*written, *[_document_of_event(seen, settings, moment) for seen in runs])


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


def _final_report_document(ended: EndedTask, settings: ForwarderSettings) -> ReportDocument | None:
    """The document of the final report; None without one, or if it is invalid."""
    run, line = ended.reported, ended.report_line
    if run is None or run.report is None or line is None:
        return None
    document = _document_of_final_report(run, run.report, line.text, settings)
    return None if isinstance(document, InvalidReport) else replace(document, is_of_event=True)


def _document_of_final_report(
    run: MergedRun, report: Report, line: str, settings: ForwarderSettings
) -> ReportDocument | InvalidReport:
    """The document of the final report that alone shows the run."""
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


def _document_of_event(
    seen: _SeenByEvent, settings: ForwarderSettings, moment: datetime
) -> EventDocument:
    """What the event of a run says, in a document that a report may have written.

    ``moment``: its time if its end is not known.
    """
    run = seen.run
    event = run.event or RunEvent()
    return EventDocument(
        index=seen.place.index,
        id=seen.place.id,
        searched=seen.place.searched,
        upsert=run_fields(seen.initial, seen.text, settings.kibana_url, moment=moment),
        fields=own_event_fields(run, event, seen.reported_cost),
        event=EventWithTaskId(event=event, task_id=run.record.task_id),
        kibana_url=settings.kibana_url,
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
