"""The search document of a stopped task: the fields of its event, and the numbers of its report or checkpoint."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from forwarder.documents import (
    END_FIELDS,
    KNOWN_END_STATUSES,
    UNKNOWN,
    Document,
    Fields,
    drop_empty,
    event_outcome,
    format_known_moment,
    merge_fields,
    report_document,
)
from forwarder.index_names import IndexPeriod, index_name
from forwarder.run_links import ecs_task, kibana_task, log_stream
from forwarder.task.batch_log_stream import LogStream
from forwarder.task.find_report import ReportLine
from forwarder.task.stop_classification import Outcome
from forwarder.task.task_event import EventContainer, StoppedTask
from forwarder.task_lines import InvalidReport
from profiler.core.timestamps import NS_PER_MS


class RunPlace(Struct, frozen=True, kw_only=True):
    """The index and the id of a run's document."""

    index: str
    id: str


def event_documents(
    task: StoppedTask,
    batch: EventContainer | None,
    outcome: Outcome,
    report_line: ReportLine | None,
    *,
    prefix: str,
    period: IndexPeriod = "month",
    log: LogStream | None = None,
    kibana_url: str | None = None,
) -> tuple[Document, ...]:
    """The documents to write for a stopped task.

    The event sets only its own fields in an existing document, so that it does not overwrite a report. A new document
    gets all fields that are known. If the run's final report is in the logs, it is written first.

    Args:
        task: The stopped task.
        batch: The batch container; None if it is not known.
        outcome: The outcome of the task.
        report_line: The last report or checkpoint of the run; None if there is none.
        prefix: The prefix of the index name.
        period: Whether the index is one of a month or of a day.
        log: The log stream of the batch; None if it is not known.
        kibana_url: The address for the link to the run's dashboard; None: no such link.

    Returns:
        No document without a batch container, or without any time of the task.
    """
    if batch is None:
        return ()
    event_fields = _event_fields(task, outcome)
    numbers = _reported_document(report_line, prefix, period, kibana_url)
    is_final = numbers is not None and numbers.is_report
    place = (
        RunPlace(index=numbers.index, id=numbers.id)
        if numbers is not None and is_final
        else run_place(task, batch, prefix=prefix, period=period)
    )
    if place is None:
        return ()
    measured = {} if numbers is None or is_final else _without_end(numbers.fields)
    unknown_end = {"task": {"status": UNKNOWN}, "event": {"outcome": UNKNOWN}}
    links = {"links": _links(task, log, kibana_url)}
    everything = merge_fields(
        _identity_fields(task, batch), unknown_end, measured, links, _final_fields(task), event_fields
    )
    document = Document(index=place.index, id=place.id, fields=event_fields, upsert=everything)
    if numbers is None or not is_final or (report_line is not None and report_line.is_indexed):
        return (document,)
    return numbers, document


def _without_end(fields: Mapping[str, Any]) -> Fields:
    """A checkpoint's fields that are fields of a run: without its own status and its interval."""
    task = {name: value for name, value in fields["task"].items() if name not in END_FIELDS}
    event = {name: value for name, value in fields["event"].items() if name != "outcome"}
    return {**{name: value for name, value in fields.items() if name != "interval"}, "task": task, "event": event}


def run_place(task: StoppedTask, batch: EventContainer, *, prefix: str, period: IndexPeriod) -> RunPlace | None:
    """Where the document of a run is: in the index of the start of the image pull. None without any time."""
    began = task.pull_started_at or task.created_at or task.started_at or task.stopped_at
    if began is None:
        return None
    return RunPlace(index=index_name("reports", began, prefix=prefix, period=period), id=f"{task.id}/{batch.name}")


def _reported_document(
    report_line: ReportLine | None, prefix: str, period: IndexPeriod, kibana_url: str | None
) -> Document | None:
    if report_line is None:
        return None
    document = report_document(
        report_line.report, report_line.text, prefix=prefix, period=period, kibana_url=kibana_url
    )
    return None if isinstance(document, InvalidReport) else document


def _event_fields(task: StoppedTask, outcome: Outcome) -> Fields:
    """The fields that the task's event provides. An unknown status leaves the end to the run's report."""
    is_known = outcome.status in KNOWN_END_STATUSES
    return drop_empty(
        {
            "task": {
                "status": outcome.status if is_known else None,
                "exit_code": outcome.exit_code if is_known else None,
                "stop_code": task.stop_code,
                "stop_category": outcome.category,
                "stopped_reason": outcome.reason,
                "started_by": task.started_by,
                "out_of_memory": outcome.out_of_memory,
            },
            "event": {"outcome": event_outcome(outcome.status) if is_known else None},
        }
    )


def _identity_fields(task: StoppedTask, batch: EventContainer) -> Fields:
    """The identity of the run."""
    return drop_empty(
        {
            "cloud": {
                "provider": "aws",
                "region": task.region,
                "availability_zone": task.availability_zone,
                "account": {"id": task.account_id},
            },
            "orchestrator": {"type": "ecs", "cluster": {"name": task.cluster}},
            "service": {"name": task.family},
            "container": {
                "id": batch.runtime_id,
                "name": batch.name,
                "image": {"name": batch.image, "hash": {"all": [batch.image_digest] if batch.image_digest else None}},
            },
            "task": {
                "id": task.id,
                "arn": task.arn,
                "family": task.family,
                "revision": task.revision,
                "launch_type": task.launch_type,
            },
        }
    )


def _links(task: StoppedTask, log: LogStream | None, kibana_url: str | None) -> Fields:
    ended = task.execution_stopped_at or task.stopped_at
    return drop_empty(
        {
            "run": kibana_task(kibana_url, task.id, task.started_at or task.created_at or ended, ended),
            "logs": None if log is None else log_stream(task.region, log.group, log.stream),
            "task": ecs_task(task.region, task.cluster, task.id),
        }
    )


def _final_fields(task: StoppedTask) -> Fields:
    """The fields that turn a checkpoint's fields into a final document."""
    ended = task.execution_stopped_at or task.stopped_at
    return drop_empty(
        {
            "@timestamp": format_known_moment(ended or task.created_at),
            "event": {
                "kind": "metric",
                "dataset": "task.report",
                "start": format_known_moment(task.started_at),
                "end": format_known_moment(ended),
                "duration": None if task.duration_ms is None else round(task.duration_ms * NS_PER_MS),
            },
            "task": {"complete": False},
            "usage": {"duration_ms": task.duration_ms},
        }
    )
