"""How long the cluster takes for what each panel of the dashboards asks."""

import statistics
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import requests
from msgspec import Struct

from kibana.aggregations import search_body
from kibana.model import Dashboard, Panel
from kibana.panels import DASHBOARDS

_WARM_UPS, _TIMES = 3, 5
_SECONDS = 300
# What the products choose for a month and for a run of some minutes.
_MONTH_INTERVAL, _RUN_INTERVAL = "12h", "1m"
_ONE_RUN = "task-run"


class PanelTime(Struct, frozen=True, kw_only=True):
    """The server's own time (``took``) for a panel's search, and how many documents it looked at."""

    dashboard: str
    panel: str
    documents: int
    median_ms: float
    longest_ms: float


class Question(Struct, frozen=True, kw_only=True):
    """What the reader of a dashboard has chosen: a period and, on the page of one run, the run."""

    start: datetime
    end: datetime
    task_id: str


def ask_all(url: str, question: Question) -> Iterator[PanelTime]:
    """Each panel's search several times over, after some that nobody measures; the cluster's answers are not cached."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            body = search_for(dashboard, panel, question)
            answers = [_ask(url, panel, body) for _ in range(_WARM_UPS + _TIMES)][_WARM_UPS:]
            times_ms = [float(answer["took"]) for answer in answers]
            yield PanelTime(
                dashboard=dashboard.key,
                panel=panel.key,
                documents=answers[-1]["hits"]["total"]["value"],
                median_ms=statistics.median(times_ms),
                longest_ms=max(times_ms),
            )


def search_for(dashboard: Dashboard, panel: Panel, question: Question) -> dict[str, Any]:
    """The panel's search over the whole period; on the page of one run for that run alone, minute by minute."""
    is_one_run = dashboard.key == _ONE_RUN
    interval = _RUN_INTERVAL if is_one_run else _MONTH_INTERVAL
    body = search_body(panel, question.start, question.end, interval=interval)
    if is_one_run:
        body["query"]["bool"]["filter"].append({"term": {"task.id": question.task_id}})
    return body


def _ask(url: str, panel: Panel, body: Mapping[str, Any]) -> dict[str, Any]:
    answer = requests.post(
        f"{url}/task-{panel.index}-*/_search",
        params={"request_cache": "false"},
        json={**body, "track_total_hits": True},
        timeout=_SECONDS,
    )
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found
