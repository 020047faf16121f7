"""Finds a run's numbers: the report in the batch's stream or the monitor's, else the last checkpoint."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from forwarder.delivery import TimeBudget
from forwarder.lines import read_line
from forwarder.task_definition import LogStream
from profiler.record import Report

RESERVED_SECONDS = 10.0
_POLL_SECONDS = 2.0
_REPORT, _CHECKPOINT = "task.report", "task.checkpoint"


class LogTail(Protocol):
    """The newest lines of a stream."""

    def newest(self, place: LogStream) -> Sequence[str]:
        """Oldest first; empty if there is no such stream or it may not be read."""
        ...


class FoundReport(Struct, frozen=True):
    """A report or checkpoint and its line."""

    report: Report
    text: str

    @property
    def is_final(self) -> bool:
        """Whether it is the report of the whole run."""
        return self.report.type == _REPORT


class ReportFinder:
    """Looks for one container's run in one task's streams."""

    def __init__(self, tail: LogTail, time: TimeBudget, task_id: str, container: str | None) -> None:
        self._tail = tail
        self._time = time
        self._task_id = task_id
        self._container = container

    def find(self, batch: LogStream | None, monitor: LogStream | None, wait_seconds: float) -> FoundReport | None:
        """The best there is, waiting so long for the report, but not into the last 10 s of the invocation."""
        waited = 0.0
        while True:
            report = self._last(batch, _REPORT) or self._last(monitor, _REPORT)
            if report is not None:
                return report
            pause = min(_POLL_SECONDS, wait_seconds - waited)
            if pause <= 0 or self._time.remaining_seconds() - pause < RESERVED_SECONDS:
                return self._last(monitor, _CHECKPOINT)
            self._time.sleep(pause)
            waited += pause

    def _last(self, place: LogStream | None, kind: str) -> FoundReport | None:
        if place is None:
            return None
        for text in reversed(self._tail.newest(place)):
            report = read_line(text)
            if isinstance(report, Report) and report.type == kind and self._is_ours(report):
                return FoundReport(report, text)
        return None

    def _is_ours(self, report: Report) -> bool:
        record = report.record
        return record.task_id == self._task_id and self._container in (None, record.container.name)
