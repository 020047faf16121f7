"""A real Chromium, and pages that the real command made."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

from profiler.history.store import HistoryStore
from profiler.record.model import encode
from tests.fakes import FakeClock
from tests.prerequisites import skip_or_fail
from tools.example_runs import runs

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
RUNS = 120
MANY = 5000


def make_page(out: Path, *options: str) -> Path:
    """Write a page with the command."""
    words = (sys.executable, "-m", "profiler", "report", "-o", str(out), *options)
    finished = subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stderr
    return out


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        skip_or_fail(f"{CHROMIUM} is missing: on Debian, apt-get install chromium (or name another by CHROMIUM).")
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=list(FLAGS))
        except Error as error:
            skip_or_fail(f"{CHROMIUM} does not start: {error.message.splitlines()[0]}")
        yield started
        started.close()


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("history") / "history.sqlite3"
    store = HistoryStore(file, FakeClock())
    for report, points in runs(RUNS, max_points=300):
        assert store.add(encode(report), points, max_runs=RUNS) is None
    return file


@pytest.fixture(scope="session")
def dashboard(history: Path) -> Path:
    """A page of the history's 120 runs."""
    return make_page(history.with_name("page.html"), "--history", str(history))


@pytest.fixture(scope="session")
def long_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 5,000 runs with time series."""
    file = tmp_path_factory.mktemp("long") / "history.sqlite3"
    store = HistoryStore(file, FakeClock())
    for report, points in runs(MANY, max_points=60):
        assert store.add(encode(report), points, max_runs=MANY) is None
    return make_page(file.with_name("page.html"), "--history", str(file))
