"""Adds a run to the history. Determines the history's file and how many runs it keeps.

sqlite3 and pathlib are imported only when the run is added: they would delay the start of every command.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import parse_ns
from profiler.history.timeline import Timeline
from profiler.record.model import Report

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_RUNS = 10_000
_MAX_DIGITS = 9
_RUNS_VARIABLE = "TASK_PROFILER_HISTORY_RUNS"


def history_path(option: str | None, environment: Mapping[str, str]) -> "Path":
    """The history's file: ``option`` (``--history``), else TASK_PROFILER_HISTORY, else below the XDG data folder.

    Raises:
        TaskProfilerError: if none of them, nor HOME, is set.
    """
    from pathlib import Path  # see the module's docstring

    if option is not None:
        if not option:
            raise UsageError("--history is empty: name a file or leave the option out.")
        return Path(option)
    named = environment.get("TASK_PROFILER_HISTORY")
    if named:
        return Path(named)
    # The XDG base directory specification requires that relative paths are ignored.
    data, home = Path(environment.get("XDG_DATA_HOME", "")), Path(environment.get("HOME", ""))
    if not data.is_absolute():
        if not home.is_absolute():
            raise TaskProfilerError(
                "The history has no place because HOME is not set: name a file by --history or TASK_PROFILER_HISTORY."
            )
        data = home / ".local" / "share"
    return data / "task-profiler" / "history.sqlite3"


def runs_to_keep(environment: Mapping[str, str]) -> tuple[int, str | None]:
    """How many runs the history keeps (0: no history), and a sentence if the setting is invalid."""
    text = environment.get(_RUNS_VARIABLE, "").strip()
    if not text:
        return DEFAULT_RUNS, None
    if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS:
        return int(text), None
    return (
        DEFAULT_RUNS,
        f"{_RUNS_VARIABLE} must be a whole number of at most {_MAX_DIGITS} digits; {DEFAULT_RUNS} runs are kept.",
    )


class HistoryRecorder:
    """Records one run in the history. ``timeline.add`` receives the samples during the run."""

    def __init__(self, option: str | None, environment: Mapping[str, str], clock: Clock) -> None:
        self._option = option
        self._environment = environment
        self._clock = clock
        self.timeline = Timeline()

    def add(self, line: bytes, report: Report) -> tuple[str, ...]:
        """Add the run. Returns sentences about what failed; a failure affects nothing but the entry."""
        max_runs, warning = runs_to_keep(self._environment)
        failure = self._add_to_history(line, report, max_runs) if max_runs else None
        missing = None if failure is None else f"This run is not in the history. {failure}"
        return tuple(sentence for sentence in (warning, missing) if sentence is not None)

    def _add_to_history(self, line: bytes, report: Report, max_runs: int) -> str | None:
        try:
            path = history_path(self._option, self._environment)
            from profiler.history.store import HistoryStore  # see the module's docstring
        except TaskProfilerError as error:
            return str(error)
        except ImportError as error:
            return f"This Python has no SQLite ({error}): use --no-history, or another Python."
        started_ns = parse_ns(report.record.started_at)
        points = () if started_ns is None else self.timeline.points(started_ns)
        refused = HistoryStore(path, self._clock).add(line, points, max_runs=max_runs)
        return None if refused is None else refused.reason
