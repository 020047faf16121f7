"""Measure how long the cluster takes for the search of each dashboard panel."""

import statistics
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import requests
from msgspec import Struct

from kibana.aggregations import terms_id
from kibana.all_dashboards import DASHBOARDS
from kibana.dashboard_model import Dashboard, Panel
from tests.panel_searches import other_search_body, search_body

_WARM_UP_SEARCHES, _TIMED_SEARCHES = 3, 5
_TIMEOUT_SECONDS = 300
# The time buckets that Kibana chooses for a month and for a run of some minutes.
_MONTH_INTERVAL, _RUN_INTERVAL = "12h", "1m"
_RUN_DASHBOARD = "task-run"


class PanelTime(Struct, frozen=True, kw_only=True):
    """The server's time (``took``) for the searches of a panel, and the number of documents that matched."""

    dashboard: str
    panel: str
    documents: int
    median_ms: float
    max_ms: float


class DashboardView(Struct, frozen=True, kw_only=True):
    """The user's selection on the dashboards: a time range and, on the dashboard of one run, the task."""

    start: datetime
    end: datetime
    task_id: str


def time_panels(url: str, view: DashboardView) -> Iterator[PanelTime]:
    """Measure the search of each panel several times after a warm-up, without the request cache."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.charts:
            body = panel_search(dashboard, panel, view)
            views = [_view(url, panel, body) for _ in range(_WARM_UP_SEARCHES + _TIMED_SEARCHES)][_WARM_UP_SEARCHES:]
            times_ms = [took_ms for took_ms, _ in views]
            yield PanelTime(
                dashboard=dashboard.key,
                panel=panel.key,
                documents=views[-1][1],
                median_ms=statistics.median(times_ms),
                max_ms=max(times_ms),
            )


def _view(url: str, panel: Panel, body: dict[str, Any]) -> tuple[float, int]:
    """The server's time for all searches of a panel, and the number of documents that matched."""
    response = _search(url, panel, body)
    took_ms = float(response["took"])
    if any(terms.has_other_bucket for terms in panel.terms):
        buckets = response["aggregations"][terms_id(panel, 0)]["buckets"]
        rest = other_search_body(body, panel, [bucket["key"] for bucket in buckets])
        took_ms += float(_search(url, panel, rest)["took"])
    return took_ms, response["hits"]["total"]["value"]


def panel_search(dashboard: Dashboard, panel: Panel, view: DashboardView) -> dict[str, Any]:
    """The search of a panel over the time range. On the dashboard of one run it is limited to that run."""
    is_run_dashboard = dashboard.key == _RUN_DASHBOARD
    interval = _RUN_INTERVAL if is_run_dashboard else _MONTH_INTERVAL
    body = search_body(panel, view.start, view.end, interval=interval)
    if is_run_dashboard:
        body["query"]["bool"]["filter"].append({"term": {"task.id": view.task_id}})
    return body


def _search(url: str, panel: Panel, body: Mapping[str, Any]) -> dict[str, Any]:
    response = requests.post(
        f"{url}/task-{panel.index}-*/_search",
        params={"request_cache": "false"},
        json={**body, "track_total_hits": True},
        timeout=_TIMEOUT_SECONDS,
    )
    response.raise_for_status()
    result: dict[str, Any] = response.json()
    return result
