"""Make the screenshots of the dashboards: fill a cluster with made-up runs, and open the dashboards in Chromium.

    python -m tools.dashboard_pictures --url DASHBOARDS_URL --cluster CLUSTER_URL [FOLDER]

The cluster must be an empty one for tests, with the templates and dashboards of `task-profiler kibana import`. Requires
Debian's chromium. The environment variable CHROMIUM names another executable.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import requests
from playwright.sync_api import Browser, sync_playwright

from tools import example_documents
from tools.pictures import BROWSER_ARGS, FOLDER

from forwarder.notices.links import kibana_task  # isort: skip  example_documents puts its folder on the path
from kibana.saved_objects import object_id  # isort: skip

_HEIGHTS: Final = {"task-overview": 1240, "task-run": 1340, "right-sizing": 1420}
_TIMEOUT_MS, _DRAWING_MS = 120_000, 8_000


def take(browser: Browser, address: str, path: Path, *, height: int) -> None:
    """Take a screenshot of a dashboard when all of its panels are drawn."""
    tab = browser.new_page(viewport={"width": 1440, "height": height}, timezone_id="UTC", color_scheme="light")
    tab.goto(address, wait_until="domcontentloaded")
    tab.wait_for_selector('[data-render-complete="true"]', timeout=_TIMEOUT_MS)
    tab.wait_for_timeout(_DRAWING_MS)
    tab.screenshot(path=path, animations="disabled")
    tab.close()
    print(f"{path}: {path.stat().st_size // 1000} kB")


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
    found: dict[str, Any] = hits[0]["_source"]
    return found


def main(arguments: Sequence[str]) -> None:
    """Fill the cluster and take all screenshots."""
    parser = argparse.ArgumentParser(description="Make the screenshots of the dashboards.")
    parser.add_argument("--url", required=True, help="OpenSearch Dashboards or Kibana")
    parser.add_argument("--cluster", required=True, help="Elasticsearch or OpenSearch")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    options = parser.parse_args(arguments)
    example_documents.main([options.cluster])
    run = killed_run(options.cluster)
    started = datetime.fromisoformat(run["event"]["start"]).astimezone(UTC)
    addresses = {key: f"{options.url}/app/dashboards#/view/{object_id('dashboard', key)}" for key in _HEIGHTS}
    addresses["task-run"] = str(kibana_task(options.url, run["task"]["id"], started, run["usage"]["duration_ms"]))
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(BROWSER_ARGS))
        for key, address in addresses.items():
            take(browser, address, options.folder / f"dashboard-{key}.png", height=_HEIGHTS[key])
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
