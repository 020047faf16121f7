"""A folder and variables of its own for each test of a command."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, which has the history, too; no setting of ours or of GitHub Actions."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("TASK_PROFILER_", "GITHUB_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path
