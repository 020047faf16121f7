"""The runs of the lines that ``task_stopped`` printed, all of which were read."""

from collections.abc import Iterable
from typing import Any

from profiler.forwarder.ended_lines import runs_of_ended_lines
from profiler.forwarder.night_period import NightPeriod
from profiler.forwarder.night_runs import NightRuns, night_runs_of_printed


def runs_of_lines(
    lines: Iterable[tuple[int, str]], period: NightPeriod, *is_selected: Any, **more: Any
) -> NightRuns:
    """The period's runs of lines, each with the time in milliseconds at which it was written."""
    return night_runs_of_printed(runs_of_ended_lines(lines), period, *is_selected, **more)
