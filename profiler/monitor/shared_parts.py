"""What all tasks of one monitor share."""

from collections.abc import Callable

from msgspec import Struct

from profiler.collectors.collector import Collectors
from profiler.core.clock import Clock, StopRequest, Ticker
from profiler.core.log import Log
from profiler.monitor.report_delivery import Delivery
from profiler.readers.linux.host import OwnUsage


class ReportedBatches:
    """The batches that were reported before this process; the sidecar has none. ``batch`` is its ``followed_id``."""

    def has(self, batch: str) -> bool:  # noqa: ARG002
        return False

    def may_have(self, batch: str) -> bool:  # noqa: ARG002
        """Whether only the log stream shows if it was reported."""
        return False

    def add(self, batch: str) -> None:
        """Note that the batch has its report now."""


REPORT_DEFECT = "report this line as a defect of task-profiler."


class SharedParts(Struct, frozen=True, kw_only=True):
    """The parts of the monitor's process. A stop request leaves ``stop_seconds`` to the end of all tasks.

    ``is_in_task``: a stop request is the end of the task. ``reported`` are the batches that need no report.
    """

    clock: Clock
    ticker: Ticker
    stop: StopRequest
    stop_seconds: float
    log: Log
    collectors: Collectors
    delivery: Delivery
    read_own_usage: Callable[[], OwnUsage]
    is_in_task: bool = True
    reported: ReportedBatches = ReportedBatches()

    def attempt(self, step: Callable[[], object]) -> None:
        """Take one of the last steps. A defect in it does not keep the monitor from the next one."""
        try:
            step()
        except Exception as error:  # noqa: BLE001  a defect must not lose what the next steps report
            problem = f"The monitor failed at its end ({describe(error)}): {REPORT_DEFECT}"
            self.log.error(problem)  # noqa: TRY400  it has no traceback


def describe(error: Exception) -> str:
    """The error's type and the last line of code that it came from. It imports nothing: that may fail as well."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    return f"{type(error).__name__} in {trace.tb_frame.f_globals.get('__name__')}, line {trace.tb_lineno}"
