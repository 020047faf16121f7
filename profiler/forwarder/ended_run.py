"""One ended run: the task's event, its report and its definition in one value, merged once.

:class:`EndedTask` is what is known when the report was looked for. :class:`EndedRun` is what the
outputs print: the same, with what the search cluster, the log and a retry add.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import MONITOR_NAME, LogTarget
from profiler.forwarder.invocation import DeliveryError, ForwarderError, InProgressError
from profiler.forwarder.merged_run import (
    MergedRun,
    WitnessedRuns,
    with_unknown_fields_from,
)
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.report_verification import OWN_STREAM, LogStreamClaim
from profiler.forwarder.run_links import RunLinks, links_of_run
from profiler.record.ecs_event_outcome import failures_of_others
from profiler.record.measured import Number
from profiler.record.record_model import Cost, Metrics, Record
from profiler.record.run_outcome import Outcome
from profiler.record.stopped_task import EventContainer, StoppedTask

_RETRY_IS_UNKNOWN = (
    "It is not known yet whether the run is started again: Lambda retries the event."
)


class UnusualMeasure(Struct, frozen=True, kw_only=True):
    """A metric of the record in which a success lies far outside its family, and the median of
    the family's runs.
    """

    metric: str
    value: Number
    usual: Number


class FamilyComparison(Struct, frozen=True, kw_only=True):
    """The duration compared with recent runs of the family, in words, and the ``unusual``
    measures of a success.
    """

    text: str
    is_slow: bool = False
    unusual: tuple[UnusualMeasure, ...] = ()


class MemoryRetry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sentence about a retry, and the task or the job that was started again, or that this one
    is the retry of.
    """

    sentence: str
    retried_as: str | None = None
    retry_of: str | None = None


NO_COMPARISON: Final = FamilyComparison(text="")
NO_RETRY: Final = MemoryRetry(sentence="")


def retry_or_reason(
    start_again: Callable[[], MemoryRetry | None], errors: list[ForwarderError]
) -> MemoryRetry:
    """Start a run again; NO_RETRY if it must not be. If that is not possible now, the notice says
    so: Lambda retries the event.
    """
    try:
        return start_again() or NO_RETRY
    except InProgressError:
        raise  # the other invocation posts the notice
    except ForwarderError as error:
        errors.append(error)
        if isinstance(error, DeliveryError):
            return MemoryRetry(sentence=_RETRY_IS_UNKNOWN)
        return NO_RETRY


class EndedTask(Struct, frozen=True, kw_only=True):
    """One stopped task: its event, its report, and the run that both make.

    ``container``, ``log`` and ``labels`` are the batch container's, None where unknown.
    ``others``: the runs of the other containers that the monitor reports on, by the event alone.
    """

    task: StoppedTask
    runs: WitnessedRuns
    container: str | None = None
    others: tuple[MergedRun, ...] = ()
    monitor: str = MONITOR_NAME
    report_line: ReportLine | None = None  # a report or checkpoint
    report_log: LogTarget | None = None  # the log stream that it is from
    log: LogTarget | None = None
    labels: Mapping[str, str] = {}

    @property
    def run(self) -> MergedRun:
        """The run that the event and the report make."""
        return self.runs.by_both

    @property
    def family(self) -> str:
        return self.task.family or "unknown"

    @property
    def batch_container(self) -> EventContainer:
        """The batch in the event; with its name alone if the event does not list it, as after a
        failed start, and without a name if it is not known.
        """
        return self.task.container_or_name_only(self.container or "")

    @property
    def has_line(self) -> bool:
        """Whether there is a report or a checkpoint."""
        return self.report_line is not None

    @property
    def outcome(self) -> Outcome:
        """How the run ended, by its report and its event."""
        return self.run.outcome

    @property
    def has_started(self) -> bool:
        """Whether the batch has run, as far as anybody knows."""
        return self.has_line or bool(self.task.started_at) or self.batch_container.has_run

    @property
    def other_failed_container(self) -> str | None:
        """The other container that failed, so that the batch did not start or was stopped."""
        if self.outcome.cause not in ("dependency", "sidecar"):
            return None
        failed = failures_of_others(self.task, self.batch_container, self.monitor)
        return failed[0].name if failed else None

    @property
    def record(self) -> Record:
        """The record of the report or checkpoint, with what the event decides; the event's own
        without one, which has no measurements.
        """
        return self.run.record

    @property
    def metrics(self) -> Metrics:
        """The metrics of the record, with the duration of the run."""
        return self.run.metrics

    @property
    def cost(self) -> Cost:
        """The cost that the report has; a run without one has none."""
        return self.run.cost

    @property
    def claim(self) -> LogStreamClaim:
        """The log stream of the report."""
        return OWN_STREAM if self.report_line is None else self.report_line.claim

    @property
    def has_final_report(self) -> bool:
        return self.report_line is not None and self.report_line.is_final

    @property
    def is_indexed(self) -> bool:
        """Whether the report is in the search cluster already."""
        return self.report_line is not None and self.report_line.is_indexed

    @property
    def duration_ms(self) -> float | None:
        return self.run.duration_ms

    @property
    def reason(self) -> str | None:
        """The text from ECS; None for a success, unless memory ran out."""
        is_plain_success = self.outcome.cause == "success"
        return None if is_plain_success else self.outcome.reason

    @property
    def additional_reason(self) -> str | None:
        """The reason, if it says more than the outcome."""
        return self.reason and self.outcome.additional_reason

    @property
    def without_unconfirmed_report(self) -> "EndedTask":
        """The task without a report of a log stream that nothing confirms, on which nobody acts."""
        line = self.report_line
        if line is None or line.claim.is_own or self.run.is_confirmed:
            return self
        by_event = self.runs.by_event
        runs = WitnessedRuns(by_both=by_event, by_event=by_event)
        return replace(self, runs=runs, report_line=None, report_log=None)

    def console_links(self, kibana_url: str | None) -> RunLinks:
        """The addresses of the run, as in its document; its log is the definition's without a
        report.
        """
        links = links_of_run(self.run, kibana_url)
        return with_unknown_fields_from(links, links_of_run(self.runs.by_event, kibana_url))


class EndedRun(EndedTask, frozen=True, kw_only=True):
    """One ended run as the outputs print it.

    ``comparison``: empty with too few recent runs of the family. ``log_lines`` are the batch's,
    else those of the ``other_failed_container``. ``reduced_memory``: in words, if the killed run's
    memory had been reduced.
    """

    retry: MemoryRetry = NO_RETRY
    comparison: FamilyComparison = NO_COMPARISON
    log_lines: tuple[str, ...] = ()  # the newest is the last
    reduced_memory: str | None = None

    @property
    def failed_or_was_slow(self) -> bool:
        """Whether the run failed or took notably longer than its family's recent runs."""
        return self.outcome.status == "failure" or self.comparison.is_slow

    @property
    def unusual(self) -> tuple[UnusualMeasure, ...]:
        return self.comparison.unusual
