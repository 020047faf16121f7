"""Finds the report of a run in the search cluster. ``forward_logs`` usually writes it before the task's event."""

from forwarder.event_document import run_place
from forwarder.index_names import IndexPeriod
from forwarder.invocation_time import TimeBudget
from forwarder.search_cluster.interface import SearchCluster
from forwarder.task.find_report import WAIT_RESERVED_SECONDS, ReportLine
from forwarder.task.task_event import EventContainer, StoppedTask
from forwarder.task_lines import read_line
from profiler.record.record_model import Report

_MAX_REQUEST_SECONDS = 5.0
_MIN_REQUEST_SECONDS = 1.0


def find_report(
    cluster: SearchCluster,
    budget: TimeBudget,
    task: StoppedTask,
    batch: EventContainer,
    *,
    prefix: str,
    period: IndexPeriod,
) -> ReportLine | None:
    """Return the final report of a run, by the id of its document; None if it is not indexed, or not yet.

    Args:
        cluster: the search cluster.
        budget: the time of the invocation; the request does not use its last 10 seconds.
        task: the stopped task.
        batch: its batch container.
        prefix: the prefix of the index names.
        period: whether an index is one of a month or of a day.

    Raises:
        SearchClusterError: the request failed.
    """
    place = run_place(task, batch, prefix=prefix, period=period)
    if place is None:
        return None
    left_seconds = budget.remaining_seconds() - WAIT_RESERVED_SECONDS
    timeout_seconds = max(_MIN_REQUEST_SECONDS, min(left_seconds, _MAX_REQUEST_SECONDS))
    source = cluster.get(place.index, place.id, timeout_seconds) or {}
    text = source.get("record")
    report = read_line(text) if isinstance(text, str) else None
    if not isinstance(report, Report) or not isinstance(text, str):
        return None
    line = ReportLine(report, text, is_indexed=True)
    return line if line.is_final else None
