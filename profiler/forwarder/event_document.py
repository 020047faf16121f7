"""The search document of a stopped task: the fields of its event, and the numbers of its report or checkpoint."""

from collections.abc import Mapping
from typing import Any

from profiler.core.timestamps import NS_PER_MS
from profiler.forwarder.documents import (
    END_FIELDS,
    KNOWN_END_STATUSES,
    UNKNOWN,
    Document,
    Fields,
    cost_fields,
    drop_empty,
    event_outcome,
    format_known_moment,
    merge_fields,
    report_document,
)
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation_time import TimeBudget
from profiler.forwarder.notices.announcements import MemoryRetry
from profiler.forwarder.run_links import links_of_stopped_task
from profiler.forwarder.search_cluster.interface import SearchCluster
from profiler.forwarder.task.find_report import WAIT_RESERVED_SECONDS, ReportLine
from profiler.forwarder.task.task_containers import LogStream
from profiler.forwarder.task_lines import InvalidReport, read_line
from profiler.record.record_model import Report
from profiler.record.task_end import Outcome
from profiler.record.task_event import EventContainer, StoppedTask

_MAX_REQUEST_SECONDS = 5.0
_MIN_REQUEST_SECONDS = 1.0


def event_documents(
    task: StoppedTask,
    batch: EventContainer | None,
    outcome: Outcome,
    report_line: ReportLine | None,
    settings: ForwarderSettings,
    *,
    log: LogStream | None = None,
    retry: MemoryRetry | None = None,
) -> tuple[Document, ...]:
    """The documents to write for a stopped task.

    The event sets only its own fields in an existing document, so that it does not overwrite a report. A new document
    gets all fields that are known. If the run's final report is in the logs, it is written first.

    Args:
        task: The stopped task.
        batch: The batch container; None if it is not known.
        outcome: The outcome of the task.
        report_line: The last report or checkpoint of the run, or None.
        settings: How indices are named, and the address for the link to the run's dashboard.
        log: The log stream of the batch; None if it is not known.
        retry: The run that is its retry, or of which it is the retry; None without one.

    Returns:
        No document without a batch container, or without any time of the task.
    """
    if batch is None:
        return ()
    numbers = _reported_document(report_line, settings)
    is_final = numbers is not None and numbers.is_report
    cost = {} if numbers is None else cost_fields(numbers, task.capacity_provider)
    related = {} if retry is None else {"task": {"retry_of": retry.retry_of, "retried_as": retry.retried_as}}
    event_fields = merge_fields(_event_fields(task, outcome), cost, drop_empty(related))
    place = (numbers.index, numbers.id) if numbers is not None and is_final else _run_place(task, batch, settings)
    if place is None:
        return ()
    measured = {} if numbers is None or is_final else _without_end(numbers.fields)
    unknown_end = {"task": {"status": UNKNOWN}, "event": {"outcome": UNKNOWN}}
    links = {"links": drop_empty(links_of_stopped_task(task, log, settings.kibana_url).document_fields())}
    everything = merge_fields(
        _identity_fields(task, batch), unknown_end, measured, links, _final_fields(task), event_fields
    )
    document = Document(index=place[0], id=place[1], fields=event_fields, upsert=everything)
    if numbers is None or not is_final or (report_line is not None and report_line.is_indexed):
        return (document,)
    return numbers, document


def _without_end(fields: Mapping[str, Any]) -> Fields:
    """A checkpoint's fields that are fields of a run: without its own status and its interval."""
    task = {name: value for name, value in fields["task"].items() if name not in END_FIELDS}
    event = {name: value for name, value in fields["event"].items() if name != "outcome"}
    return {**{name: value for name, value in fields.items() if name != "interval"}, "task": task, "event": event}


def _run_place(task: StoppedTask, batch: EventContainer, settings: ForwarderSettings) -> tuple[str, str] | None:
    """The index of a run's document, by the start of the image pull, and its id. None without any time."""
    began = task.pull_started_at or task.created_at or task.started_at or task.stopped_at
    if began is None:
        return None
    return settings.index("reports", began), f"{task.id}/{batch.name}"


def _reported_document(report_line: ReportLine | None, settings: ForwarderSettings) -> Document | None:
    if report_line is None:
        return None
    document = report_document(report_line.report, report_line.text, settings)
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
                "capacity_provider": task.capacity_provider,
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


def find_indexed_report(
    cluster: SearchCluster, budget: TimeBudget, settings: ForwarderSettings, task: StoppedTask, batch: EventContainer
) -> ReportLine | None:
    """Return the final report of a run, by the id of its document; None if it is not indexed, or not yet.

    Args:
        cluster: the search cluster.
        budget: the time of the invocation; the request does not use its last 10 seconds.
        settings: how indices are named.
        task: the stopped task.
        batch: its batch container.

    Raises:
        SearchClusterError: the request failed.
    """
    place = _run_place(task, batch, settings)
    if place is None:
        return None
    left_seconds = budget.remaining_seconds() - WAIT_RESERVED_SECONDS
    timeout_seconds = max(_MIN_REQUEST_SECONDS, min(left_seconds, _MAX_REQUEST_SECONDS))
    source = cluster.get(*place, timeout_seconds) or {}
    text = source.get("record")
    report = read_line(text) if isinstance(text, str) else None
    if not isinstance(report, Report) or not isinstance(text, str):
        return None
    line = ReportLine(report, text, is_indexed=True)
    return line if line.is_final else None
