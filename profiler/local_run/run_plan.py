"""How a command is run and profiled, and the outcome."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from profiler.collectors.collector import Collectors
from profiler.core.background_call import NoCall
from profiler.local_run.local_record import TaskPlacement
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.record_model import Report

if TYPE_CHECKING:
    from profiler.aggregation.time_series import RunSeries
    from profiler.record.family_statistics import HighestPeak
    from profiler.record.notice_model import NoticeLine
    from profiler.sizing.prices import PriceOverrides

# The run until now, as the profiler reports it if nobody sees the end.
BuildSoFar = Callable[[], "tuple[Report, RunSeries | None]"]


class RunSurroundings:
    """What is around one run: the place, the people who watch it, and the history.

    The thread that samples calls the methods, all after the command has started. These do nothing.
    """

    def find_labels(self) -> Mapping[str, str]:
        """The labels of the place. Those of the plan replace them."""
        return {}

    def find_batch_job(self) -> BatchJob:
        """The job of AWS Batch that runs the command."""
        return NO_JOB

    def request_placement(self) -> NoCall[TaskPlacement]:
        """Start to read the ECS task, in ECS."""
        return NoCall()

    def request_earlier_peak(self) -> "NoCall[HighestPeak]":
        """Start to read what earlier successes of the family reached, if that is known."""
        return NoCall()

    def import_for_end(self) -> None:
        """Import what the end needs: while the command runs, if it does so for a while."""

    def on_sample(self, sample: ContainerSample, processes: Sequence[ProcessReading]) -> None:
        """All processes of the command were read."""

    def on_notice(self, line: "NoticeLine") -> None:
        """The command meets the condition of a notice for the first time."""

    def before_stop(self) -> None:
        """The profiler is about to stop with the command, as on Ctrl-Z."""

    def keep_so_far(self, build: BuildSoFar) -> None:
        """Write down the run until now, if that is due: the profiler may be killed."""


class RunPlan(Struct, frozen=True, kw_only=True):
    """How a command is run and profiled.

    The caller stops the collectors: the report need not wait for it. ``series_points`` is half the
    largest number of steps of the record's time series, ``max_history_steps`` the largest number
    of the history's; 0 for none.
    """

    name: str | None
    interval_seconds: float
    labels: Mapping[str, str]
    surroundings: RunSurroundings
    collectors: Collectors
    prices: "PriceOverrides | None"
    series_points: int
    max_history_steps: int
    stuck_minutes: float
    expected_seconds: float | None


class RunResult(Struct, frozen=True, kw_only=True):
    """The result of a run.

    ``series`` is for the history; ``warnings``: what was required has no readings.
    ``memory_bound_mb`` is the most that the command can have used, if that is known.
    """

    exit_code: int
    report: Report
    series: "RunSeries | None" = None
    stacks_line: bytes | None = None
    startup_error: str | None = None
    warnings: tuple[str, ...] = ()
    got_stop_signal: bool = False
    memory_bound_mb: float | None = None
