"""What all tasks of one monitor share."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from profiler.collectors.collector import Collectors
from profiler.core.clock import Clock, StopRequest, Ticker
from profiler.core.log import Log
from profiler.monitor.upload_or_print import ReportDelivery
from profiler.readers.linux.host import OwnUsage

REPORT_DEFECT = "report this line as a defect of task-profiler."


class LiveMetrics:
    """Nobody scrapes the monitor: there are no live metrics.

    ``are_read``: at any time, so each sample counts at once.
    """

    are_read = False

    def start(self) -> str | None:
        """Start listening; returns the reason if live metrics are missing."""
        return None

    def publish(self) -> None: ...

    def close(self) -> None: ...


NO_LIVE_METRICS: Final = LiveMetrics()


class ReportedBatches:
    """No list of reports is kept: a sidecar's task has none from before."""

    def has(self, batch: str) -> bool:  # noqa: ARG002
        """Whether a batch was reported."""
        return False

    def is_unsure_of(self, batch: str) -> bool:  # noqa: ARG002
        """Whether only the log stream shows if the batch was reported."""
        return False

    def on_reported(self, batch: str) -> None:
        """The batch was reported."""


NONE_KEPT: Final = ReportedBatches()


class SharedParts(Struct, frozen=True, kw_only=True):
    """The parts of the monitor's process.

    A stop request leaves ``stop_seconds`` to the end of all tasks.
    """

    clock: Clock
    ticker: Ticker
    stop: StopRequest
    stop_seconds: float
    log: Log
    collectors: Collectors
    delivery: ReportDelivery
    read_own_usage: Callable[[], OwnUsage]
    # The batches that need no report; only of an instance's monitor.
    reported: ReportedBatches = NONE_KEPT

    @property
    def is_in_task(self) -> bool:
        """Whether this is a sidecar: a stop request is the end of its task."""
        return self.reported is NONE_KEPT

    def attempt(self, step: Callable[[], object]) -> None:
        """Take one of the last steps.

        A defect in it does not keep the monitor from the next one.
        """
        try:
            step()
        # A defect must not lose what the next steps report.
        except Exception as error:  # noqa: BLE001
            problem = f"The monitor failed at its end ({describe_error(error)}): {REPORT_DEFECT}"
            self.log.error(problem)  # noqa: TRY400  it has no traceback


def describe_error(error: Exception) -> str:
    """The error's type and line of code, not its text, which may be a secret.

    It imports nothing: that may fail.
    """
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    if not trace:
        return type(error).__name__
    return (
        f"{type(error).__name__} in {trace.tb_frame.f_globals.get('__name__')}, line "
        f"{trace.tb_lineno}"
    )
