"""No test touches the history of the person who runs it."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def history_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the commands under test keep their history."""
    file = tmp_path / "data" / "history.sqlite3"
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(file))
    monkeypatch.delenv("TASK_PROFILER_HISTORY_RUNS", raising=False)
    return file
