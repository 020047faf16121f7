"""Adds a run to the history: where the history is, how many runs it keeps, and the series of this run.

sqlite3 is imported only when the run is added: it would delay the start of every command.
"""

from collections.abc import Mapping
from pathlib import Path

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import parse_ns
from profiler.history.timeline import Timeline
from profiler.record.model import Report

DEFAULT_RUNS = 10_000
_MAX_DIGITS = 9
_RUNS_VARIABLE = "TASK_PROFILER_HISTORY_RUNS"


def history_path(option: str | None, environment: Mapping[str, str]) -> Path:
    """The history's file. Raises TaskProfilerError if nothing says where it could be."""
    if option is not None:
        if not option:
            raise UsageError("--history is empty: name a file or leave the option out.")
        return Path(option)
    named = environment.get("TASK_PROFILER_HISTORY")
    if named:
        return Path(named)
    # The XDG base directory specification: relative paths there are to be ignored.
    data, home = Path(environment.get("XDG_DATA_HOME", "")), Path(environment.get("HOME", ""))
    if not data.is_absolute():
        if not home.is_absolute():
            raise TaskProfilerError(
                "There is no HOME for the history: name a file by --history or TASK_PROFILER_HISTORY."
            )
        data = home / ".local" / "share"
    return data / "task-profiler" / "history.sqlite3"


def runs_to_keep(environment: Mapping[str, str]) -> tuple[int, str | None]:
    """How many runs the history keeps (0: no history), and a sentence if the setting is no such number."""
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
    """The history as one run sees it. ``timeline.add`` listens to the samples."""

    def __init__(self, option: str | None, environment: Mapping[str, str], clock: Clock) -> None:
        self._option = option
        self._environment = environment
        self._clock = clock
        self.timeline = Timeline()

    def add(self, line: bytes, report: Report) -> tuple[str, ...]:
        """Add the run. Trouble costs nothing but the entry and is answered in sentences."""
        max_runs, complaint = runs_to_keep(self._environment)
        trouble = self._add_to_history(line, report, max_runs) if max_runs else None
        missing = None if trouble is None else f"This run is not in the history. {trouble}"
        return tuple(sentence for sentence in (complaint, missing) if sentence is not None)

    def _add_to_history(self, line: bytes, report: Report, max_runs: int) -> str | None:
        try:
            path = history_path(self._option, self._environment)
            from profiler.history.store import HistoryStore  # see the module's docstring
        except TaskProfilerError as error:
            return str(error)
        except ImportError as error:
            return f"This Python comes without SQLite ({error}): use --no-history, or another Python."
        started_ns = parse_ns(report.record.started_at)
        points = () if started_ns is None else self.timeline.points(started_ns)
        refused = HistoryStore(path, self._clock).add(line, points, max_runs=max_runs)
        return None if refused is None else refused.reason
