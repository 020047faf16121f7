"""The search document of a stopped task: the fields of its event, and the numbers of its report
or checkpoint.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from profiler.core.json_fields import mapping, text
from profiler.core.timestamps import parse_datetime
from profiler.forwarder.batch_report import WAIT_RESERVED_SECONDS, ReportLine
from profiler.forwarder.document_fields import (
    Fields,
    event_fields,
    merge_fields,
    outcome_fields,
    record_cost_fields,
    run_fields,
)
from profiler.forwarder.documents import (
    Document,
    EventDocument,
    EventPart,
    final_document,
    indices_of_runs,
    run_id,
)
from profiler.forwarder.ended_run import NO_RETRY, EndedTask, MemoryRetry
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import InvocationTime
from profiler.forwarder.line_kinds import InvalidReport, read_line
from profiler.forwarder.merged_run import MergedRun, run_of_event
from profiler.forwarder.run_event import RunEvent, read_claim, run_event
from profiler.forwarder.search_cluster.interface import SearchCluster
from profiler.record.event_end import end_of_event
from profiler.record.record_model import Report
from profiler.record.run_outcome import Cause
from profiler.record.stopped_task import EventContainer, StoppedTask

_MAX_REQUEST_SECONDS = 5.0


def event_documents(
    ended: EndedTask, settings: ForwarderSettings, retry: MemoryRetry = NO_RETRY
) -> tuple[Document, ...]:
    """The documents to write, a final report of the logs first; none without a batch or any time
    of the task. Each other container that the monitor reports on has a document of its own.

    ``retry``: the task that was started again, or that this one is the retry of.
    """
    task = ended.task
    batch = ended.batch
    line = ended.report_line
    event = ended.run.event
    if not ended.container or event is None:
        return ()
    event = replace(event, retry_of=retry.retry_of, retried_as=retry.retried_as)
    numbers = _numbers(ended, settings)
    moment = task.execution_stopped_at or task.stopped_at or task.created_at or task.started_at
    moment = moment or task.pull_started_at
    if moment is None and line is not None:
        moment = parse_datetime(line.report.time)
    place = _run_place(task, batch, settings)
    is_indexed = ended.is_indexed
    if numbers and not is_indexed:
        place = numbers[0].index, numbers[0].id
    if place is None or moment is None:
        return ()
    # A final report has a document of its own.
    if line is None or line.is_final:
        everything = run_fields(run_of_event(event), None, settings.kibana_url, moment=moment)
    else:
        whole = replace(ended.run, event=event)
        everything = run_fields(
            whole, line.text, settings.kibana_url, moment=moment, claim=line.claim
        )
    document = EventDocument(
        index=place[0],
        id=place[1],
        fields=merge_fields(_own_fields(ended.run, event), _cost_fields(numbers, ended)),
        upsert=everything,
        event=EventPart(event=event, task_id=task.id),
        kibana_url=settings.kibana_url,
        searched=None if is_indexed else indices_of_runs(settings, moment),
    )
    others = _documents_of_others(ended, settings, moment)
    return (document, *others) if is_indexed else (*numbers, document, *others)


def _documents_of_others(
    ended: EndedTask, settings: ForwarderSettings, moment: datetime
) -> tuple[Document, ...]:
    """What the event says of the other containers' runs: it confirms the reports of each.

    The task's end is the batch's: the status of another container is its report's.
    """
    task = ended.task
    documents = []
    for name in ended.also_reported:
        container = task.container(name)
        place = _run_place(task, container, settings)
        if place is None:
            continue
        of_task = end_of_event(task, container)
        cause: Cause = "oom" if of_task.out_of_memory else "unknown"
        end = replace(of_task, cause=cause, exit_code=None)
        event = run_event(task, end, name, monitor=ended.monitor)
        run = run_of_event(event)
        documents.append(
            EventDocument(
                index=place[0],
                id=place[1],
                fields=_own_fields(run, event),
                upsert=run_fields(run, None, settings.kibana_url, moment=moment),
                event=EventPart(event=event, task_id=task.id),
                kibana_url=settings.kibana_url,
                searched=indices_of_runs(settings, moment),
            )
        )
    return tuple(documents)


def _numbers(ended: EndedTask, settings: ForwarderSettings) -> tuple[Document, ...]:
    """The document of the final report, in the account of the task; none without one, or if it is
    invalid.
    """
    line = ended.report_line
    if line is None or not line.is_final:
        return ()
    record = replace(line.report.record, account_id=ended.task.account_id)
    report = replace(line.report, record=record)
    document = final_document(report, line.text, settings, line.claim)
    if isinstance(document, InvalidReport):
        return ()
    return (replace(document, is_of_event=True),)


def _own_fields(run: MergedRun, event: RunEvent) -> Fields:
    """What the event says, in a document that a report may have written."""
    fields = event_fields(event)
    if run.outcome.status != "unknown":
        fields = merge_fields(fields, outcome_fields(run))
    fields["task"]["confirmed"] = event.vouches_for()
    return fields


def _cost_fields(numbers: Sequence[Document], ended: EndedTask) -> Fields:
    """The cost on the task's capacity provider, which a report does not know; none, if the task
    cannot have cost what the report says.
    """
    fields = record_cost_fields(ended.run.record)
    of_report = mapping(numbers[0].fields.get("cost")) if numbers else {}
    if not of_report or fields["cost"] == of_report:
        return {}
    fields["cost"] = {**dict.fromkeys(of_report), **fields["cost"]}
    if fields["cost"].get("usd") is None:
        fields["recommendation"] = {"saving_usd_per_month": None}
    return fields


def _run_place(
    task: StoppedTask, batch: EventContainer, settings: ForwarderSettings
) -> tuple[str, str] | None:
    """The index of a run's document, by the same time as a report's, and its id.

    None without any time.
    """
    # ECS does not pull a cached image. No report has the time of the creation.
    began = task.pull_started_at or task.started_at or task.created_at or task.stopped_at
    if began is None:
        return None
    return settings.index("reports", began), run_id(task.id, batch.name)


def find_indexed_report(
    cluster: SearchCluster,
    time: InvocationTime,
    settings: ForwarderSettings,
    task: StoppedTask,
    batch: EventContainer,
) -> ReportLine | None:
    """Return the run's final report, None if it is not indexed (yet), or if the task's event does
    not vouch for its log stream. Raises SearchClusterError.
    """
    place = _run_place(task, batch, settings)
    if place is None:
        return None
    left_seconds = time.remaining_seconds() - WAIT_RESERVED_SECONDS
    source = cluster.get(*place, max(1.0, min(left_seconds, _MAX_REQUEST_SECONDS))) or {}
    event = run_event(task, end_of_event(task, batch), batch.name)
    claim = read_claim(source)
    report_account = text(mapping(source.get("task")).get("report_account"))
    if not claim.is_own and not event.vouches_for(claim):
        return None
    if event.is_of_other_account(report_account):
        return None
    line = str(source.get("record"))
    report = read_line(line)
    if not isinstance(report, Report):
        return None
    report_line = ReportLine(report, line, is_indexed=True, claim=claim)
    return report_line if report_line.is_final else None
