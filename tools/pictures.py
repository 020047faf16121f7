"""Make the screenshots of the documentation: write a simulated history, generate the page, and open it in Chromium.

    python tools/pictures.py [FOLDER]

Requires Debian's chromium. The environment variable CHROMIUM names another executable.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from profiler.core.clock import SystemClock
from profiler.history.run_database import HistoryStore
from profiler.record.model import encode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, which puts only this folder on the path
from tools.example_runs import runs

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images"
RUNS = 230
BROWSER_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
)


def main(arguments: Sequence[str]) -> None:
    """Write the history, generate both pages, and take their screenshots."""
    folder = Path(arguments[0]) if arguments else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, sync_playwright() as playwright:
        history = Path(name) / "history.sqlite3"
        killed_task_id = write_history(history)
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(BROWSER_ARGS))
        take_screenshot(browser, write_page(history), folder / "report.png", height=1390)
        take_screenshot(browser, write_page(history, "--run", killed_task_id), folder / "report-run.png", height=1180)
        browser.close()


def write_history(file: Path) -> str:
    """Write the history. Returns the task id of the last run that ran out of memory."""
    history = HistoryStore(file, SystemClock())
    killed_task_id = ""
    for report, points in runs(RUNS):
        undelivered = history.add(encode(report), report, points, max_runs=RUNS)
        if undelivered is not None:
            sys.exit(str(undelivered))
        killed_task_id = report.record.task_id if report.record.likely_out_of_memory else killed_task_id
    return killed_task_id


def write_page(history: Path, *options: str) -> Path:
    """Generate the HTML report with these additional options."""
    out = history.with_name(f"page{len(options)}.html")
    command = (sys.executable, "-m", "profiler", "report", "--history", str(history), "-o", str(out), *options)
    subprocess.run(command, check=True)
    return out


def take_screenshot(browser: Browser, file: Path, path: Path, *, height: int) -> None:
    """Take a screenshot of the part that a laptop screen shows first."""
    tab = browser.new_page(viewport={"width": 1280, "height": height}, timezone_id="UTC", color_scheme="light")
    tab.goto(file.as_uri())
    tab.wait_for_selector("html[data-ready]", state="attached")
    tab.screenshot(path=path, animations="disabled")
    tab.close()
    print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
