"""The committed Grafana dashboard is the generated one, and its panels use metrics that exist."""

import json
import re

import pytest

from grafana.build_grafana import FILE, render_dashboard
from grafana.grafana_panels import PANELS, Panel
from profiler.monitor.prometheus.prometheus_metrics import LIVE_METRICS, TASK_LABELS

NAMES = {metric.full_name: metric for metric in LIVE_METRICS}
# Metrics without a panel: they only carry labels for joins.
NOT_DRAWN = {"task_profiler_gpu_info", "task_profiler_monitor_info"}


def used_names(panel: Panel) -> set[str]:
    return {
        name for query in panel.queries for name in re.findall(r"task_profiler_\w+", query.expr)
    }


def test_the_committed_dashboard_is_the_generated_one() -> None:
    assert FILE.read_text() == render_dashboard(), "run `make grafana`"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_has_exported_metrics_and_labels_of_the_chosen_tasks_and_draws_counters_as_rates(
    panel: Panel,
) -> None:
    used = used_names(panel)
    assert set() < used <= set(NAMES)
    known = {label for name in used for label in NAMES[name].labels} | set(TASK_LABELS)
    for query in panel.queries:
        selectors = re.findall(r"task_profiler_\w+(\{[^}]*\})", query.expr)
        assert set(selectors) == {'{task_family=~"$family",task_id=~"$task"}'}
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= known
        for name in re.findall(r"task_profiler_\w+", query.expr):
            is_rate = re.search(rf"(?:rate|increase)\({name}\b", query.expr) is not None
            assert is_rate == (NAMES[name].kind == "counter")


def test_every_metric_is_drawn() -> None:
    assert set(NAMES) - {name for panel in PANELS for name in used_names(panel)} == NOT_DRAWN


def test_panels_stay_on_the_grid_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    rows = json.loads(render_dashboard())["panels"]
    for panel in (*rows, *(inner for row in rows for inner in row.get("panels", ()))):
        place = panel["gridPos"]
        columns, rows = (
            range(place["x"], place["x"] + place["w"]),
            range(place["y"], place["y"] + place["h"]),
        )
        cells = {(column, row) for column in columns for row in rows}
        assert cells
        assert not cells & taken, panel["title"]
        assert max(column for column, _ in cells) < 24
        taken |= cells
