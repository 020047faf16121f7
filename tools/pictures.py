"""Make the screenshots of the documentation in Chromium: of the report page, or of the
dashboards.

    python -m tools.pictures [FOLDER]
    python -m tools.pictures --dashboards URL --cluster URL [--name kibana] [FOLDER]

The report page shows the example account in a fixed morning. For the dashboards, the cluster must
be an empty one for tests, with the templates and dashboards of `task-profiler kibana import`; it is
filled with made-up runs. Requires Debian's chromium. The environment variable CHROMIUM names
another executable.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import requests
from msgspec.structs import replace
from playwright.sync_api import Browser, Page, sync_playwright

from profiler.core.timestamps import format_datetime
from profiler.core.version import __version__
from profiler.forwarder.run_links import kibana_task_url
from profiler.record.record_model import Report, encode
from profiler.report_page.html_document import read_assets, render_page
from profiler.report_page.page_data import PageRequest, build_page_data
from profiler.report_page.page_series import Run
from profiler.runs.past_runs.family_evidence import evidence_of_past_runs
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.step_series import steps_of_record
from tools import example_documents
from tools.example_documents import ended_reports
from tools.example_fleet import FLEET, MORNING
from tools.waiting import LIMIT_SECONDS

from kibana.saved_objects import object_id  # isort: skip

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "images"
_DAYS = 7
_PAGE_WIDTH = 1040  # a README is 830 wide: the text stays readable
_BROWSER_ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
)
_DASHBOARD_HEIGHTS: Final = {"task-overview": 948, "task-run": 1160, "right-sizing": 1160}
# A drawing says that it is complete before its canvas is there.
_IS_DRAWN: Final = """() => {
  const panels = [...document.querySelectorAll('[data-render-complete]')];
  const isComplete = (panel) => panel.getAttribute('data-render-complete') === 'true';
  return panels.length > 0 && panels.every(isComplete) && document.querySelector('canvas');
}"""
# Kibana explains its search sessions over the page where a search takes ten seconds.
_NO_TOUR: Final = "localStorage.setItem('data.searchSession.tour.takingTooLong', 'true')"
# What the server says of itself ("Your data is not secure") covers panels.
_NO_MESSAGES: Final = "document.querySelectorAll('.euiToast').forEach((toast) => toast.remove())"
_TIMEOUT_MS = 300_000
_DRAWING_MS = 8_000


def main(arguments: Sequence[str]) -> None:
    """Take the screenshots."""
    parser = argparse.ArgumentParser(description="Make the screenshots of the documentation.")
    parser.add_argument("--dashboards", metavar="URL", help="OpenSearch Dashboards or Kibana")
    parser.add_argument(
        "--cluster", metavar="URL", help="with --dashboards: Elasticsearch or OpenSearch"
    )
    parser.add_argument(
        "--name", default="dashboard", help="the beginning of the names of the dashboards' files"
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
            files = options.folder / options.name
            take_dashboards(browser, options.dashboards, options.cluster, files)
        browser.close()


def take_report(browser: Browser, folder: Path) -> None:
    """Take the page of all runs, and the page of the last run that ran out of memory."""
    families = [batch.family for batch in FLEET]
    reports = sorted(
        ended_reports(MORNING, families=families, days=_DAYS),
        key=lambda report: report.record.started_at or "",
        reverse=True,
    )
    killed = next(report for report in reports if report.record.likely_out_of_memory)
    with tempfile.TemporaryDirectory(prefix="pictures-") as name:
        for file, height, shown in (("report", 1300, None), ("report-run", 1100, killed)):
            page = Path(name) / f"{file}.html"
            write_page(page, reports, shown)
            tab = open_tab(
                browser, page.as_uri(), width=_PAGE_WIDTH, height=height, pixels_per_point=1.5
            )
            tab.wait_for_selector("html[data-ready]", state="attached")
            if shown is not None:
                tab.hover("#run-plot .nsewdrag >> nth=1", position={"x": 560, "y": 40})
            save(tab, folder / f"{file}.png")


def write_page(file: Path, reports: Sequence[Report], shown: Report | None) -> None:
    """Write the page of these runs, the newest first, or of one of them, with the last success
    of its family before it.
    """
    runs = [_page_run(report) for report in reports]
    request = PageRequest(generated_at=format_datetime(MORNING), version=__version__)
    if shown is not None:
        family = [run for run in runs if run.record.family == shown.record.family]
        earlier = family[[run.past.report for run in family].index(shown) :]
        success = next(run for run in earlier if run.record.status == "success")
        evidence = [*evidence_of_past_runs([run.past for run in family])]
        request = replace(request, only_one=True, evidence=evidence)
        runs = [earlier[0], success]
    file.write_text(render_page(build_page_data(runs, request), read_assets(), title="Task report"))


def _page_run(report: Report) -> Run:
    past = PastRun(report=report, line=encode(report))
    return Run(past=past, steps=steps_of_record(report.record))


def take_dashboards(browser: Browser, url: str, cluster: str, files: Path) -> None:
    """Fill the cluster, and take each dashboard when all of its panels are drawn.

    ``files``: the beginning of the paths.
    """
    example_documents.main([cluster, "--dashboards", url])
    run = killed_run(cluster)
    started, ended = (
        datetime.fromisoformat(run["event"][name]).astimezone(UTC) for name in ("start", "end")
    )
    addresses = {
        key: f"{url}/app/dashboards#/view/{object_id('dashboard', key)}"
        for key in _DASHBOARD_HEIGHTS
    }
    addresses["task-run"] = str(kibana_task_url(url, run["task"]["id"], started, ended))
    for key, address in addresses.items():
        tab = open_tab(browser, address, width=1440, height=_DASHBOARD_HEIGHTS[key])
        tab.wait_for_function(_IS_DRAWN, timeout=_TIMEOUT_MS)
        tab.wait_for_timeout(_DRAWING_MS)
        tab.evaluate(_NO_MESSAGES)
        save(tab, files.with_name(f"{files.name}-{key}.png"))


def killed_run(cluster: str) -> dict[str, Any]:
    """The last run that ran out of memory."""
    body = {
        "size": 1,
        "query": {"term": {"task.outcome": "oom"}},
        "sort": [{"@timestamp": "desc"}],
    }
    response = requests.post(f"{cluster}/task-reports-*/_search", json=body, timeout=LIMIT_SECONDS)
    response.raise_for_status()
    hits = response.json()["hits"]["hits"]
    if not hits:
        raise SystemExit("No run ran out of memory: use more days.")
    source: dict[str, Any] = hits[0]["_source"]
    return source


def open_tab(
    browser: Browser, address: str, *, width: int, height: int, pixels_per_point: float = 1
) -> Page:
    """Open an address in a tab with the size of the screenshot."""
    tab = browser.new_page(
        viewport={"width": width, "height": height},
        device_scale_factor=pixels_per_point,
        timezone_id="UTC",
        color_scheme="light",
    )
    tab.add_init_script(_NO_TOUR)
    tab.goto(address, wait_until="domcontentloaded")
    return tab


def save(tab: Page, path: Path) -> None:
    """Save the part that a laptop screen shows first, and close the tab."""
    tab.screenshot(path=path, animations="disabled", timeout=_TIMEOUT_MS)
    tab.close()
    print(f"{path}: {path.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
