"""The search documents of runs: of a report, of a checkpoint, and of a stopped task's event with
the numbers of its report or checkpoint.
"""

import hashlib
from datetime import datetime

from msgspec.structs import replace

from profiler.core.json_fields import mapping
from profiler.core.timestamps import parse_datetime, subtract_ms
from profiler.forwarder.document_fields import (
    claim_fields,
    corrected_cost,
    merge_fields,
    own_fields,
    record_fields,
    run_fields,
)
from profiler.forwarder.documents import (
    TOO_LONG,
    Document,
    EventDocument,
    EventPart,
    ReportDocument,
    ReportPart,
    is_id_too_long,
    run_id,
)
from profiler.forwarder.ended_run import NO_RETRY, EndedTask, MemoryRetry
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.line_kinds import InvalidReport, replace_lone_surrogates
from profiler.forwarder.merged_run import MergedRun, run_of_report
from profiler.forwarder.run_event import OWN_STREAM, RunEvent, SeenRun, StreamClaim
from profiler.forwarder.run_links import links_of_line
from profiler.record.line_trust import MAX_RUN_LENGTH
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.stop_causes import outcome_of

_STREAM_DIGITS = 16


def report_document(
    report: Report, line: str, settings: ForwarderSettings
) -> Document | InvalidReport:
    """The document of a report or checkpoint; a checkpoint's lies at most 60 days back."""
    if report.type == CHECKPOINT:
        return _checkpoint_document(report, line, settings)
    return _final_document(report, line, settings)


def unconfirmed_document(document: Document, claim: StreamClaim) -> Document | InvalidReport:
    """The document of a line whose log stream does not name the task.

    A checkpoint or notice has an id of its own, so that it replaces none of the task's streams; of
    two reports, the document that is stored chooses.
    """
    fields = merge_fields(document.fields, {"task": claim_fields(claim)})
    if isinstance(document, ReportDocument):
        return replace(document, fields=fields)
    digest = hashlib.sha256(claim.stream.encode()).hexdigest()[:_STREAM_DIGITS]
    document_id = f"{document.id}/{digest}"
    if is_id_too_long(document_id):
        return TOO_LONG
    return replace(document, id=document_id, fields=fields)


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
    numbers = _numbers(ended, settings)
    place = place_of(alone, settings)
    if numbers is not None and not ended.is_indexed:
        place = numbers.index, numbers.id
    if place is None or moment is None:
        return ()
    # A final report has a document of its own.
    text = None if line is None or line.is_final else line.text
    initial = alone if text is None else run
    document = _event_document(run, initial, place, settings, moment, text=text)
    if numbers is not None:
        cost = corrected_cost(run.record, mapping(numbers.fields.get("cost")))
        document = replace(document, fields={**document.fields, **cost})
    if ended.is_indexed:
        document = replace(document, searched=None)
    others = [
        _event_document(other, other, place, settings, moment)
        for other in ended.others
        if (place := place_of(other, settings)) is not None
    ]
    if numbers is None or ended.is_indexed:
        return (document, *others)
    return (numbers, document, *others)


def place_of(run: MergedRun | SeenRun, settings: ForwarderSettings) -> tuple[str, str] | None:
    """The index of a run's document, by the start of the image pull, else of the batch, and its id.

    None without any time.
    """
    if run.began_at is None:
        return None
    record = run.record
    index = settings.index("reports", run.began_at)
    return index, run_id(record.task_id, record.container.name)


def _numbers(ended: EndedTask, settings: ForwarderSettings) -> ReportDocument | None:
    """The document of the final report, in the account of the task; None without one, or if it is
    invalid.
    """
    line = ended.report_line
    if line is None or not line.is_final:
        return None
    record = replace(line.report.record, account_id=ended.task.account_id)
    report = replace(line.report, record=record)
    document = _final_document(report, line.text, settings, line.claim)
    if isinstance(document, InvalidReport):
        return None
    return replace(document, is_of_event=True)


def _final_document(
    report: Report, line: str, settings: ForwarderSettings, claim: StreamClaim = OWN_STREAM
) -> ReportDocument | InvalidReport:
    """The document of a final report. ``claim``: the report's log stream."""
    run = run_of_report(report, claim)
    if run.written_at is None:
        return _without_time(report)
    place = place_of(run, settings)
    if place is None or is_id_too_long(place[1]):
        return TOO_LONG
    return ReportDocument(
        index=place[0],
        id=place[1],
        fields=run_fields(run, line, settings.kibana_url),
        report=ReportPart(report=report, text=line),
        kibana_url=settings.kibana_url,
        searched=settings.indices_of_runs(run.written_at),
    )


def _event_document(
    run: MergedRun,
    initial: MergedRun,
    place: tuple[str, str],
    settings: ForwarderSettings,
    moment: datetime,
    *,
    text: str | None = None,
) -> EventDocument:
    """What the event of a run says, in a document that a report may have written.

    ``initial``, and the ``text`` of its checkpoint: the whole document, if there is none yet.
    ``moment``: its time if its end is not known.
    """
    event = run.event or RunEvent()
    return EventDocument(
        index=place[0],
        id=place[1],
        upsert=run_fields(initial, text, settings.kibana_url, moment=moment),
        fields=own_fields(run, event),
        event=EventPart(event=event, task_id=run.record.task_id),
        kibana_url=settings.kibana_url,
        searched=settings.indices_of_runs(moment),
    )


def _checkpoint_document(
    report: Report, line: str, settings: ForwarderSettings
) -> Document | InvalidReport:
    record = report.record
    written = parse_datetime(report.time)
    if written is None:
        return _without_time(report)
    started = parse_datetime(record.started_at)
    began = subtract_ms(started, record.metrics.init_duration_ms) or written
    document_id = f"{run_id(record.task_id, record.container.name)}/{report.time}"
    if is_id_too_long(document_id):
        return TOO_LONG
    fields = record_fields(record, CHECKPOINT, written)
    fields["task"]["outcome"] = outcome_of(record).cause
    fields["record"] = replace_lone_surrogates(line)
    links = links_of_line(report, settings.kibana_url).document_fields()
    if links:
        fields["links"] = links
    index = settings.index("checkpoints", max(began, written - MAX_RUN_LENGTH))
    return Document(index=index, id=document_id, fields=fields)


def _without_time(report: Report) -> InvalidReport:
    return InvalidReport(
        f"The report's time {report.time[:40]!r} is not an RFC 3339 time between 1970 and 2200."
    )
