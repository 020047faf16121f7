"""A real Chromium, and pages that the real command made."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser, Error, Page, ViewportSize, sync_playwright

from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import Report, encode
from profiler.runs.history.run_database import HistoryStore
from tests import shown_runs
from tests.fakes import FakeClock
from tests.prerequisites import skip_or_fail
from tests.runs import lines
from tools.example_runs import generate_runs
from tools.waiting import LIMIT_SECONDS

LIMIT_MS = 1000 * LIMIT_SECONDS
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
FLAGS = ["--no-sandbox", "--no-first-run"]
FLAGS += [
    f"--disable-{name}" for name in ("gpu", "background-networking", "component-update", "sync")
]
AXE = Path(__file__).resolve().parents[2] / "profiler/report_page/node_modules/axe-core/axe.min.js"
RUNS = 120
MANY = 5000
# A line with which a page of few runs has all charts: a missed run is never hidden.
MISSED = encode_notice_line(shown_runs.missed_notice()) + b"\n"
# One run of each other kind of end, each in its own family.
OTHER_RUNS = tuple(
    replace(made, record=replace(made.record, family=family, task_id=f"{family}-1"))
    for family, made in (
        ("invoices", shown_runs.failure()),
        ("stopped-one", shown_runs.stopped()),
        ("running-one", shown_runs.running()),
        ("train", shown_runs.gpu()),
        ("infer", shown_runs.neuron()),
        ("laptop", shown_runs.local()),
        ("unmeasured-one", shown_runs.unmeasured()),
    )
)

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
Opener = Callable[..., Page]
Theme = Literal["light", "dark"]
# The theme changes the colours alone, and the width the places alone.
LOOKS = pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1440, "light")])


def count(tab: Page) -> int:
    return int(tab.get_attribute("#runs", "data-count") or "-1")


def wait_for_count(tab: Page, expected: int) -> None:
    tab.wait_for_selector(f"#runs[data-count='{expected}']")


def is_foreign(url: str, page: Path) -> bool:
    return url.partition("#")[0] != page.as_uri() and not url.startswith(("data:", "blob:"))


def ready(tab: Page) -> None:
    tab.wait_for_selector("html[data-ready]", state="attached")


def violations(tab: Page) -> list[str]:
    """Each element that breaks a rule of axe-core. What axe-core cannot judge is no violation."""
    if not AXE.exists():
        skip_or_fail(f"{AXE} is missing: run npm ci.")
    tab.evaluate(AXE.read_text("utf-8"))
    found = tab.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def make_page(out: Path, *options: str) -> Path:
    words = (sys.executable, "-m", "profiler", "report", "-o", str(out), *options)
    finished = subprocess.run(words, capture_output=True, check=False, timeout=LIMIT_SECONDS)
    assert finished.returncode == 0, finished.stderr
    return out


def page_of(
    folder: Path, *reports: Report, more: bytes = b"", options: tuple[str, ...] = ()
) -> Path:
    (folder / "lines").write_bytes(lines(reports) + more)
    return make_page(folder / "page.html", "--from", str(folder / "lines"), *options)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        skip_or_fail(
            f"{CHROMIUM} is missing: on Debian, apt-get install chromium (or name another by "
            "CHROMIUM)."
        )
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(
                executable_path=str(CHROMIUM), args=FLAGS, timeout=LIMIT_MS
            )
        except Error as error:
            skip_or_fail(f"{CHROMIUM} does not start: {error.message.splitlines()[0]}")
        yield started
        started.close()


@contextmanager
def filled_history(count: int, max_points: int) -> Iterator[Path]:
    """A history of example runs, in memory: the history flushes each run to its disk."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="task-profiler-") as folder:
        file = Path(folder) / "history.sqlite3"
        store = HistoryStore(file, FakeClock())
        for report, points in generate_runs(count, max_points=max_points):
            store.add_run(encode(report), report, msgspec.json.encode(points), max_runs=count)
        yield file


@pytest.fixture(scope="session")
def history() -> Iterator[Path]:
    with filled_history(RUNS, max_points=300) as file:
        yield file


@pytest.fixture(scope="session")
def dashboard(history: Path) -> Path:
    """A page of the history's 120 runs."""
    return make_page(history.with_name("page.html"), "--from", f"history:{history}")


@pytest.fixture(scope="session")
def long_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with filled_history(MANY, max_points=60) as file:
        return make_page(tmp_path_factory.mktemp("long") / "page.html", "--from", f"history:{file}")


@pytest.fixture
def opened(browser: Browser) -> Iterator[Opener]:
    """Open pages, and wait until each is drawn; after the test, check that there was no error
    and no request.
    """
    trouble: list[str] = []

    def open_page(
        file: Path,
        address: str = "",
        *,
        width: int = 1280,
        theme: Literal["light", "dark"] = "light",
        zone: str = "UTC",
    ) -> Page:
        size: ViewportSize = {"width": width, "height": 900}
        context = browser.new_context(viewport=size, timezone_id=zone, color_scheme=theme)
        context.set_default_timeout(LIMIT_MS)
        tab = context.new_page()
        tab.on(
            "console",
            lambda said: trouble.append(said.text) if said.type in {"error", "warning"} else None,
        )
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.on(
            "request",
            lambda asked: trouble.append(asked.url) if is_foreign(asked.url, file) else None,
        )
        tab.goto(file.as_uri() + address)
        ready(tab)
        return tab

    yield open_page
    for context in tuple(browser.contexts):
        context.close()
    assert trouble == []


@pytest.fixture(scope="session")
def ecs_dashboard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of runs on ECS: three nights of a family, and one run of each kind of end."""
    return page_of(tmp_path_factory.mktemp("ecs"), *shown_runs.night(), *OTHER_RUNS, more=MISSED)
