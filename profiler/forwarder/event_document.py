"""The search document of a stopped task: the fields of its event, and the numbers of its report
or checkpoint.
"""

from collections.abc import Mapping
from typing import Any

from profiler.core.optional_math import known
from profiler.core.timestamps import format_datetime, parse_datetime
from profiler.forwarder import documents
from profiler.forwarder.batch_report import WAIT_RESERVED_SECONDS, ReportLine
from profiler.forwarder.documents import Document, Fields
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import InvocationTime
from profiler.forwarder.notifications.notification import EndedTask
from profiler.forwarder.run_links import links_of_stopped_task
from profiler.forwarder.search_cluster.interface import SearchCluster
from profiler.forwarder.task_lines import InvalidReport, read_line
from profiler.record.record_model import Container, Metrics, Record, Report, TaskSize
from profiler.record.task_end import EventContainer, Outcome, StoppedTask

_MAX_REQUEST_SECONDS = 5.0


def event_documents(ended: EndedTask, settings: ForwarderSettings) -> tuple[Document, ...]:
    """The documents to write, a final report of the logs first; none without a batch or any time
    of the task.
    """
    task, batch, line, retry = ended.task, ended.batch, ended.report_line, ended.retry
    if batch is None:
        return ()
    numbers = None if line is None else documents.report_document(line.report, line.text, settings)
    if isinstance(numbers, InvalidReport):
        numbers = None
    is_final = numbers is not None and numbers.is_report
    cost = {} if numbers is None else documents.cost_fields(numbers, task.capacity_provider)
    related = (
        {}
        if retry is None
        else {"task": {"retry_of": retry.retry_of, "retried_as": retry.retried_as}}
    )
    event_fields = documents.merge_fields(
        _event_fields(task, ended.outcome), cost, documents.drop_empty(related)
    )
    place = (
        (numbers.index, numbers.id)
        if numbers is not None and is_final
        else _run_place(task, batch, settings)
    )
    moment = (
        task.execution_stopped_at
        or task.stopped_at
        or task.created_at
        or task.started_at
        or task.pull_started_at
    )
    if moment is None and line is not None:
        moment = parse_datetime(line.report.time)
    if place is None or moment is None:
        return ()
    measured = {} if numbers is None or is_final else _without_end(numbers.fields)
    report = Report(time="", type="task.report", record=event_record(ended))
    of_event = documents.run_fields(report, moment)
    links = {"links": links_of_stopped_task(task, ended.log, settings.kibana_url).document_fields()}
    everything = documents.merge_fields(
        measured, of_event, {"task": {"complete": False}}, links, event_fields
    )
    document = Document(index=place[0], id=place[1], fields=event_fields, upsert=everything)
    if numbers is None or not is_final or (line is not None and line.is_indexed):
        return (document,)
    return numbers, document


def _without_end(fields: Mapping[str, Any]) -> Fields:
    """A checkpoint's fields that are fields of a run: without its exit code and its interval."""
    task = {name: value for name, value in fields["task"].items() if name != "exit_code"}
    return {**{name: value for name, value in fields.items() if name != "interval"}, "task": task}


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
    return settings.index("reports", began), f"{task.id}/{batch.name}"


def _event_fields(task: StoppedTask, outcome: Outcome) -> Fields:
    """The fields that the task's event provides.

    An unknown status leaves the end to the run's report.
    """
    is_known = outcome.status in documents.KNOWN_END_STATUSES
    return documents.drop_empty(
        {
            "task": {
                "status": outcome.status if is_known else None,
                "exit_code": outcome.exit_code if is_known else None,
                "stop_code": task.stop_code,
                "stop_category": outcome.category,
                "stopped_reason": outcome.reason,
                "started_by": task.started_by,
                "capacity_provider": task.capacity_provider,
                "out_of_memory": outcome.out_of_memory,
            },
            "event": {"outcome": documents.event_outcome(outcome.status) if is_known else None},
        }
    )


def event_record(ended: EndedTask) -> Record:
    """The event's data as a record, without the end that it tells."""
    task, log, batch = ended.task, ended.log, ended.batch or EventContainer(name="")
    return Record(
        task_id=task.id,
        task_arn=task.arn,
        cluster=task.cluster,
        family=task.family,
        revision=task.revision,
        region=task.region,
        account_id=task.account_id,
        availability_zone=task.availability_zone,
        launch_type=task.launch_type,
        task_size=TaskSize(vcpu=task.vcpu, memory_mb=task.memory_mb)
        if task.is_on_fargate
        else None,
        container=Container(
            name=batch.name,
            id=batch.runtime_id,
            arn=batch.arn,
            image=batch.image,
            image_digest=batch.image_digest,
        ),
        log_group=None if log is None else log.group,
        log_stream=None if log is None else log.stream,
        started_at=known(format_datetime, task.started_at),
        finished_at=known(format_datetime, task.execution_stopped_at or task.stopped_at),
        metrics=Metrics(duration_ms=task.duration_ms, memory_size_mb=batch.memory_mb),
    )


def find_indexed_report(
    cluster: SearchCluster,
    time: InvocationTime,
    settings: ForwarderSettings,
    task: StoppedTask,
    batch: EventContainer,
) -> ReportLine | None:
    """Return the run's final report, None if it is not indexed (yet). Raises SearchClusterError."""
    place = _run_place(task, batch, settings)
    if place is None:
        return None
    left_seconds = time.remaining_seconds() - WAIT_RESERVED_SECONDS
    source = cluster.get(*place, max(1.0, min(left_seconds, _MAX_REQUEST_SECONDS))) or {}
    text = str(source.get("record"))
    report = read_line(text)
    line = ReportLine(report, text, is_indexed=True) if isinstance(report, Report) else None
    return line if line is not None and line.is_final else None
