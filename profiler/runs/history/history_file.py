"""The history's file. The help of commands shows it, so this module imports nothing slow."""

from collections.abc import Mapping

from profiler.core.errors import TaskProfilerError

LOCK_TIMEOUT_SECONDS = 5
HISTORY_VARIABLE = "TASK_PROFILER_HISTORY"


def history_path(environment: Mapping[str, str], file: str | None = None) -> str:
    """The history's file: ``file``, else TASK_PROFILER_HISTORY, else below the XDG data folder,
    or HOME.
    """
    named = file or environment.get(HISTORY_VARIABLE)
    if named:
        return named
    # The XDG base directory specification requires that relative paths are ignored.
    data = environment.get("XDG_DATA_HOME", "")
    home = environment.get("HOME", "")
    if not data.startswith("/"):
        if not home.startswith("/"):
            raise TaskProfilerError(
                f"The history has no place because HOME is {'not absolute' if home else 'not set'}"
                f": name a file by {HISTORY_VARIABLE}."
            )
        data = f"{home}/.local/share"
    return f"{data.rstrip('/')}/task-profiler/history.sqlite3"
