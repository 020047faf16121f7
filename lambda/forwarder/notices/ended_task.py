"""A stopped task to announce: the task, its outcome, its report, and a comparison with recent runs of the family."""

from collections.abc import Mapping

from msgspec import Struct

from forwarder.task.batch_log_stream import LogStream
from forwarder.task.find_report import ReportLine
from forwarder.task.stop_classification import Outcome
from forwarder.task.task_event import StoppedTask
from profiler.core.timestamps import format_datetime
from profiler.record.record_model import Metrics, Number, Record

_NOT_MEASURED = Metrics()


class UnusualMeasure(Struct, frozen=True, kw_only=True):
    """A metric of the record in which a success lies far outside its family, and the median of the family's runs."""

    metric: str
    value: Number
    usual: Number


class Comparison(Struct, frozen=True, kw_only=True):
    """The run compared with recent runs of its family: the duration in words, and whether it took notably longer.

    ``unusual`` are the measures of a success that did much less or much more than its family usually does.
    """

    text: str
    is_slow: bool = False
    unusual: tuple[UnusualMeasure, ...] = ()


class EndedTask(Struct, frozen=True, kw_only=True):
    """One stopped task.

    ``container`` is the name of the batch container; ``report_line`` is its report or checkpoint, and ``log`` is its
    log stream. ``labels`` are its Docker labels. ``log_lines`` are the last lines of the batch, the newest one last.
    ``comparison`` is None if there are too few recent runs of the family.
    """

    task: StoppedTask
    outcome: Outcome
    container: str | None = None
    report_line: ReportLine | None = None
    log: LogStream | None = None
    labels: Mapping[str, str] = {}
    log_lines: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def family(self) -> str:
        """The family of the task definition."""
        return self.task.family or "unknown"

    @property
    def record(self) -> Record | None:
        """The record of the report or checkpoint."""
        return None if self.report_line is None else self.report_line.report.record

    @property
    def metrics(self) -> Metrics:
        """The metrics of the record."""
        return _NOT_MEASURED if self.record is None else self.record.metrics

    @property
    def went_wrong(self) -> bool:
        """Whether the run failed or took notably longer than its family's recent runs."""
        return self.outcome.status == "failure" or (self.comparison is not None and self.comparison.is_slow)

    @property
    def unusual(self) -> tuple[UnusualMeasure, ...]:
        """The measures in which a success lies far outside its family."""
        return () if self.comparison is None else self.comparison.unusual

    @property
    def is_complete(self) -> bool:
        """Whether there is a report of the whole run, not a checkpoint or the event alone."""
        return self.report_line is not None and self.report_line.is_final

    @property
    def duration_ms(self) -> float | None:
        """The duration of the run: the report's; the event's without one, and for a run that was stopped."""
        reported = None
        if self.record is not None and self.is_complete and self.record.status != "stopped":
            reported = self.record.metrics.duration_ms
        return self.task.duration_ms if reported is None else reported

    @property
    def reason(self) -> str | None:
        """The text from ECS; None for a success, unless memory ran out."""
        is_plain_success = self.outcome.status == "success" and not self.outcome.out_of_memory
        return None if is_plain_success else self.outcome.reason

    @property
    def finished_at(self) -> str | None:
        """The end of the run: the report's, else the event's."""
        ended = self.task.execution_stopped_at or self.task.stopped_at
        reported = self.record.finished_at if self.record is not None and self.is_complete else None
        return reported or (None if ended is None else format_datetime(ended))
