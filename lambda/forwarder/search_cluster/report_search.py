"""Finds the report of a run in the cluster, where ``forward_logs`` usually has written it before the task's event."""

from forwarder.event_document import run_place
from forwarder.indices import IndexPeriod
from forwarder.invocation import TimeBudget
from forwarder.lines import read_line
from forwarder.search_cluster.interface import SearchCluster
from forwarder.task.run_log import WAIT_RESERVED_SECONDS, FoundReport
from forwarder.task.task_event import EventContainer, StoppedTask
from profiler.record.model import Report

_MAX_REQUEST_SECONDS = 5.0
_MIN_REQUEST_SECONDS = 1.0


class IndexedReports:
    """Reads the reports of runs by the ids of their documents.

    Args:
        cluster: the cluster.
        prefix: the prefix of the index names.
        period: whether an index is one of a month or of a day.
        budget: the time of the invocation; requests do not use its last 10 seconds.
    """

    def __init__(self, cluster: SearchCluster, prefix: str, period: IndexPeriod, budget: TimeBudget) -> None:
        self._cluster = cluster
        self._prefix = prefix
        self._period = period
        self._budget = budget

    def find(self, task: StoppedTask, batch: EventContainer) -> FoundReport | None:
        """Return the final report of the run; None if it is not indexed, or not yet. Raises SearchClusterError."""
        place = run_place(task, batch, prefix=self._prefix, period=self._period)
        if place is None:
            return None
        left_seconds = self._budget.remaining_seconds() - WAIT_RESERVED_SECONDS
        timeout_seconds = max(_MIN_REQUEST_SECONDS, min(left_seconds, _MAX_REQUEST_SECONDS))
        source = self._cluster.get(place.index, place.id, timeout_seconds) or {}
        text = source.get("record")
        report = read_line(text) if isinstance(text, str) else None
        if not isinstance(report, Report) or not isinstance(text, str):
            return None
        found = FoundReport(report, text, is_indexed=True)
        return found if found.is_final else None
