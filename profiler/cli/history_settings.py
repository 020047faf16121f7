"""Where the history is and how much of it is kept: options first, then the environment. Pure."""

from collections.abc import Mapping
from pathlib import Path

from profiler.errors import TaskProfilerError, UsageError

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
