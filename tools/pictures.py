"""Makes the pictures of the documentation: a made-up history, the real page, a real browser.

    python tools/pictures.py [FOLDER]

Needs Debian's chromium, or another one that CHROMIUM names.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from profiler.core.clock import SystemClock
from profiler.history.store import HistoryStore
from profiler.record.model import encode

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.example_runs import runs  # noqa: E402  the repository's root is known only now

FOLDER = ROOT / "docs" / "images"
RUNS = 230
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")


def main(arguments: Sequence[str]) -> None:
    """Fill a history, make both pages, and photograph them."""
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, sync_playwright() as playwright:
        history = Path(name) / "history.sqlite3"
        killed = fill(history)
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        photograph(browser, page(history), folder / "report.png", height=930)
        photograph(browser, page(history, "--run", killed), folder / "report-run.png", height=1130)
        browser.close()


def fill(file: Path) -> str:
    """Write the history; the id of its last run that ran out of memory comes back."""
    history = HistoryStore(file, SystemClock())
    killed = ""
    for report, points in runs(RUNS):
        undelivered = history.add(encode(report), points, max_runs=RUNS)
        if undelivered is not None:
            sys.exit(str(undelivered))
        killed = report.record.task_id if report.record.likely_out_of_memory else killed
    return killed


def page(history: Path, *options: str) -> Path:
    """The page that the command makes."""
    out = history.with_name(f"page{len(options)}.html")
    words = (sys.executable, "-m", "profiler", "report", "--history", str(history), "-o", str(out), *options)
    subprocess.run(words, check=True)
    return out


def photograph(browser: Browser, file: Path, picture: Path, *, height: int) -> None:
    """What a person with a laptop sees first."""
    tab = browser.new_page(viewport={"width": 1280, "height": height}, timezone_id="UTC", color_scheme="light")
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.screenshot(path=picture, animations="disabled")
    tab.close()
    print(f"{picture}: {picture.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
