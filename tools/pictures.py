"""Make the screenshots of the documentation in Chromium: of the report page, or of the
dashboards.

    python -m tools.pictures [FOLDER]
    python -m tools.pictures --dashboards URL --cluster URL [FOLDER]

The report page shows a simulated history. For the dashboards, the cluster must be an empty one for
tests, with the templates and dashboards of `task-profiler kibana import`; it is filled with made-up
runs. Requires Debian's chromium. The environment variable CHROMIUM names another executable.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import requests
from playwright.sync_api import Browser, Page, sync_playwright

from profiler.core.clock import SystemClock
from profiler.forwarder.run_links import kibana_task
from profiler.record.record_model import encode
from profiler.runs.history.run_database import HistoryStore
from tools import example_documents
from tools.example_runs import END, runs

from kibana.saved_objects import object_id  # isort: skip

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
RUNS = 230
_BROWSER_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
)
_DASHBOARD_HEIGHTS: Final = {"task-overview": 900, "task-run": 900, "right-sizing": 1240}
# A drawing says that it is complete before its canvas is there.
_IS_DRAWN: Final = """() => {
  const panels = [...document.querySelectorAll('[data-render-complete]')];
  const isComplete = (panel) => panel.getAttribute('data-render-complete') === 'true';
  return panels.length > 0 && panels.every(isComplete) && document.querySelector('canvas');
}"""
_TIMEOUT_MS = 300_000
_DRAWING_MS = 8_000


def main(arguments: Sequence[str]) -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description="Make the screenshots of the documentation.")
    parser.add_argument("--dashboards", metavar="URL", help="OpenSearch Dashboards or Kibana")
    parser.add_argument(
        "--cluster", metavar="URL", help="with --dashboards: Elasticsearch or OpenSearch"
    )
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(_BROWSER_ARGS))
        if options.dashboards is None:
            take_report(browser, options.folder)
        else:
            take_dashboards(browser, options.dashboards, options.cluster, options.folder)
        browser.close()


def take_report(browser: Browser, folder: Path) -> None:
    """Write the history, and take the page of all runs and the page of a run that ran out of
    memory.
    """
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        history = Path(name) / "history.sqlite3"
        killed_task_id = write_history(history)
        for file, height, options in (
            ("report", 1390, ()),
            ("report-run", 1180, ("--run", killed_task_id)),
        ):
            tab = open_tab(
                browser, write_page(history, *options).as_uri(), width=1280, height=height
            )
            tab.wait_for_selector("html[data-ready]", state="attached")
            if options:
                tab.hover("#run-plot .nsewdrag >> nth=1", position={"x": 700, "y": 40})
            save(tab, folder / f"{file}.png")


def write_history(file: Path) -> str:
    """Write the history. Returns the task id of the last run that ran out of memory."""
    history = HistoryStore(file, SystemClock())
    killed_task_id = ""
    for report, points in runs(RUNS):
        history.add(encode(report), report, msgspec.json.encode(points), max_runs=RUNS)
        if report.record.likely_out_of_memory:
            killed_task_id = report.record.task_id
    return killed_task_id


def write_page(history: Path, *options: str) -> Path:
    """Generate the HTML report with these additional options."""
    out = history.with_name(f"page{len(options)}.html")
    command = (
        sys.executable,
        "-m",
        "profiler",
        "report",
        "--from",
        f"history:{history}",
        "-o",
        str(out),
        *options,
    )
    subprocess.run(command, check=True)
    return out


def take_dashboards(browser: Browser, url: str, cluster: str, folder: Path) -> None:
    """Fill the cluster, and take each dashboard when all of its panels are drawn."""
    example_documents.main([cluster, "--dashboards", url])
    run = killed_run(cluster)
    started, ended = (
        datetime.fromisoformat(run["event"][name]).astimezone(UTC) for name in ("start", "end")
    )
    addresses = {
        key: f"{url}/app/dashboards#/view/{object_id('dashboard', key)}"
        for key in _DASHBOARD_HEIGHTS
    }
    addresses["task-run"] = str(kibana_task(url, run["task"]["id"], started, ended))
    for key, address in addresses.items():
        tab = open_tab(browser, address, width=1440, height=_DASHBOARD_HEIGHTS[key])
        tab.wait_for_function(_IS_DRAWN, timeout=_TIMEOUT_MS)
        tab.wait_for_timeout(_DRAWING_MS)
        save(tab, folder / f"dashboard-{key}.png")


def killed_run(cluster: str) -> dict[str, Any]:
    """The last run that ran out of memory."""
    body = {
        "size": 1,
        "query": {"term": {"task.stop_category": "oom"}},
        "sort": [{"@timestamp": "desc"}],
    }
    response = requests.post(f"{cluster}/task-reports-*/_search", json=body, timeout=60)
    response.raise_for_status()
    hits = response.json()["hits"]["hits"]
    if not hits:
        raise SystemExit("No run ran out of memory: use more days.")
    source: dict[str, Any] = hits[0]["_source"]
    return source


def open_tab(browser: Browser, address: str, *, width: int, height: int) -> Page:
    """Open an address in a tab with the size of the screenshot."""
    tab = browser.new_page(
        viewport={"width": width, "height": height}, timezone_id="UTC", color_scheme="light"
    )
    if address.startswith("file:"):
        tab.clock.set_fixed_time(END)  # the last runs are those of the last night
    tab.goto(address, wait_until="domcontentloaded")
    return tab


def save(tab: Page, path: Path) -> None:
    """Save the part that a laptop screen shows first, and close the tab."""
    tab.screenshot(path=path, animations="disabled", timeout=_TIMEOUT_MS)
    tab.close()
    print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
