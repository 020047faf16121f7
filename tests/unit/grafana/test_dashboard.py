"""The Grafana dashboard, a file that is edited in Grafana and exported, uses metrics that exist."""

import re
from collections import Counter

from profiler.monitor.prometheus.prometheus_metrics import LIVE_METRICS, TASK_LABELS
from tests.cases import each_case
from tests.grafana_dashboard import DASHBOARD, PANELS, VARIABLES, Panel, Query

METRICS = {metric.full_name: metric for metric in LIVE_METRICS}
# Metrics without a panel: they only carry labels for joins.
NOT_DRAWN = {
    "task_profiler_batch_job_info",
    "task_profiler_gpu_info",
    "task_profiler_monitor_info",
}
QUERIES = [(panel, query) for panel in PANELS for query in panel.queries]


def used_names(query: Query) -> list[str]:
    return re.findall(r"task_profiler_\w+", query.expr)


@each_case(("panel", "query"), QUERIES)
def test_a_query_uses_exported_metrics(panel: Panel, query: Query) -> None:
    assert used_names(query)
    assert set(used_names(query)) <= set(METRICS)


@each_case(("panel", "query"), QUERIES)
def test_a_query_selects_the_chosen_tasks(panel: Panel, query: Query) -> None:
    selectors = re.findall(r"task_profiler_\w+(\{[^}]*\})", query.expr)
    assert set(selectors) == {'{task_family=~"$family",task_id=~"$task"}'}


@each_case(("panel", "query"), QUERIES)
def test_a_legend_has_labels_of_its_panels_metrics(panel: Panel, query: Query) -> None:
    names = {name for every in panel.queries for name in used_names(every)}
    known = {label for name in names for label in METRICS[name].labels} | set(TASK_LABELS)
    assert set(re.findall(r"{{(\w+)}}", query.legend)) <= known


@each_case(("panel", "query"), QUERIES)
def test_counters_and_only_counters_are_drawn_as_rates(panel: Panel, query: Query) -> None:
    for name in used_names(query):
        is_rate = re.search(rf"(?:rate|increase)\({name}\b", query.expr) is not None
        assert is_rate == (METRICS[name].kind == "counter"), name


def test_every_metric_is_drawn() -> None:
    drawn = {name for panel in PANELS for query in panel.queries for name in used_names(query)}
    assert set(METRICS) - drawn == NOT_DRAWN


def test_panels_stay_on_the_grid_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        left, top = panel.place["x"], panel.place["y"]
        columns = range(left, left + panel.place["w"])
        lines = range(top, top + panel.place["h"])
        cells = {(column, line) for column in columns for line in lines}
        assert cells, panel.title
        assert not cells & taken, panel.title
        assert max(columns) < 24, panel.title
        taken |= cells


def test_every_panel_and_row_has_an_id_of_its_own() -> None:
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    inner = [panel for row in rows for panel in row["panels"]]
    ids = Counter(panel["id"] for panel in (*DASHBOARD["panels"], *inner))
    assert set(ids.values()) == {1}


def test_each_panel_reads_the_data_source_that_the_user_chooses() -> None:
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    rows = [panel for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    drawn = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    drawn += [panel for row in rows for panel in row["panels"]]
    for panel in drawn:
        assert panel["datasource"] == chosen, panel["title"]
        for target in panel["targets"]:
            assert target["datasource"] == chosen, panel["title"]


def test_a_ratio_has_an_axis_to_one_hundred_percent() -> None:
    for panel in PANELS:
        if panel.axis_max is not None:
            assert panel.unit == "percentunit", panel.title
            assert panel.axis_max == 1, panel.title


def test_family_and_task_can_be_chosen() -> None:
    assert [variable.name for variable in VARIABLES] == ["family", "task"]


def test_a_number_of_now_is_not_that_of_tasks_that_have_ended() -> None:
    """Grafana shows the last known value of a range, however old it is."""
    numbers = [panel for panel in PANELS if panel.kind == "stat"]
    assert numbers
    for panel in numbers:
        for query in panel.queries:
            is_of_range = "[$__range]" in query.expr
            is_zero_without_tasks = query.expr.endswith(" or vector(0)")
            assert is_of_range or is_zero_without_tasks or query.is_of_now, panel.title
