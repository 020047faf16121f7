"""The committed files are the generated ones.

The saved objects obey the rules and use fields of the documents.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from typing import Any, get_args

import pytest

from kibana import colours
from kibana.build import DASHBOARDS, DRAWINGS, FOLDER, PANELS, SEARCHES, build_files
from kibana.classic_format import colours_of
from kibana.dashboard_model import (
    MIXED_MEMORY,
    ORDER,
    Dashboard,
    Drawing,
    Index,
    Panel,
)
from kibana.index_definitions import data_view_fields
from kibana.panel_builders import OUTCOMES
from kibana.saved_objects import object_id
from kibana.usage_drawings import USAGES
from profiler.forwarder.run_links import TASK_RUN_DASHBOARD_ID
from profiler.record.run_outcome import Cause
from tests.cases import each_case
from tools.panel_searches import MATCHING, fields_of, search_body

CLASSIC, LENS = "opensearch-dashboards.ndjson", "kibana.ndjson"
FILES = (CLASSIC, LENS)
TEMPLATES = tuple(
    f"index-templates/task-{name}.json" for name in ("reports", "checkpoints", "logs", "notices")
)

by_key = each_case("panel", PANELS, ids=lambda panel: panel.key)
each_file = each_case("name", FILES)


@cache
def objects_in(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


def by_id(name: str, identity: str) -> dict[str, Any]:
    return next(one for one in objects_in(name) if one["id"] == identity)


def test_the_committed_files_are_what_the_generator_writes() -> None:
    """If this fails: `make kibana`."""
    files = build_files()
    assert set(files) == {*FILES, *TEMPLATES}
    assert [
        name for name in files if (FOLDER / name).read_text(encoding="utf-8") != files[name]
    ] == []


@each_file
def test_every_reference_is_in_the_file_and_no_panel_covers_another(name: str) -> None:
    objects = objects_in(name)
    known = {(one["type"], one["id"]) for one in objects}
    assert len(known) == len(objects)
    assert {
        (target["type"], target["id"]) for one in objects for target in one["references"]
    } <= known
    for one in objects:
        taken = Counter[tuple[int, int]]()
        for panel in json.loads(one["attributes"].get("panelsJSON", "[]")):
            x, y, width, height = (panel["gridData"][key] for key in "xywh")
            taken.update(itertools.product(range(x, x + width), range(y, y + height)))
        assert set(taken.values()) <= {1}
        assert max((column for column, _ in taken), default=0) < 48


@by_key
def test_no_column_of_a_table_is_outside_of_a_screen_of_1440_pixels(panel: Panel) -> None:
    if panel.kind != "table":
        return
    chart = by_id(LENS, object_id("lens", panel.key))
    columns = chart["attributes"]["state"]["visualization"]["columns"]
    # A column without a width of its own gets at least about these pixels.
    pixels = sum(column.get("width", 98) for column in columns if not column.get("hidden"))
    assert pixels <= panel.width * 1440 // 48 - 30


@each_file
def test_the_list_of_the_newest_runs_has_the_peaks_of_memory_and_of_cpu(name: str) -> None:
    (listed,) = (one for one in objects_in(name) if one["attributes"].get("title") == "Newest runs")
    peaks = {"usage.cpu.percent.max", "usage.memory.percent.max"}
    assert peaks <= set(listed["attributes"]["columns"])


@each_file
def test_panel_ids_are_unique_and_stable_and_a_notice_links_to_its_run(
    name: str,
) -> None:
    """Kibana keeps a panel that has the same id on the next dashboard.

    A new import must keep the panels.
    """
    dashboards = [one for one in objects_in(name) if one["type"] == "dashboard"]
    titles = {one["id"]: one["attributes"]["title"] for one in dashboards}
    assert titles[str(TASK_RUN_DASHBOARD_ID)] == "Task run"
    ids = [
        panel["panelIndex"]
        for one in dashboards
        for panel in json.loads(one["attributes"]["panelsJSON"])
    ]
    assert len(set(ids)) == len(ids)
    for board in DASHBOARDS:
        keys = [panel.key for panel in board.charts] + [panel.key for panel in board.drawings]
        for key in keys:
            assert object_id("panel", f"{board.key}/{key}") in ids


# The first pixel of the grid at 1440 x 900, below the header, the search bar and, in Kibana, one
# line of dropdown lists; then each row has 20 pixels and a margin of 8.
GRID_TOP_PX = {CLASSIC: 150, LENS: 237}
ROW_PX = 28


def placed(name: str, dashboard: Dashboard) -> list[tuple[dict[str, int], dict[str, Any]]]:
    """The place of each panel, and the object that it shows."""
    saved = by_id(name, object_id("dashboard", dashboard.key))
    targets = {target["name"].rpartition(":")[2]: target["id"] for target in saved["references"]}
    panels = json.loads(saved["attributes"]["panelsJSON"])
    return [(panel["gridData"], by_id(name, targets[panel["panelRefName"]])) for panel in panels]


def is_chart(shown: dict[str, Any]) -> bool:
    """Whether it is neither links nor dropdown lists."""
    title = shown["attributes"]["title"]
    return ": filter by " not in title and title != "Task Profiler: links"


@each_file
@each_case("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.key)
def test_the_first_chart_begins_above_320_pixels(name: str, dashboard: Dashboard) -> None:
    first = min(place["y"] for place, shown in placed(name, dashboard) if is_chart(shown))
    assert GRID_TOP_PX[name] + first * ROW_PX < 320


@each_file
def test_tiles_are_beside_the_first_chart_and_not_above_it(name: str) -> None:
    for dashboard in DASHBOARDS[:3]:
        charts = [place for place, shown in placed(name, dashboard) if is_chart(shown)]
        first = charts[0]
        below = [place for place in charts if place["y"] < first["y"] + first["h"]]
        assert all(place["x"] >= first["w"] for place in below[1:])
        assert sum(place["h"] for place in below[1:]) in {0, first["h"]}


def test_links_and_dropdown_lists_share_a_row_where_each_list_is_a_panel() -> None:
    """A list needs 250 pixels of the 1,424 of the grid, and four of its rows. A phone puts panels
    one below the other, but hides the second list of a panel.
    """
    for dashboard in DASHBOARDS:
        (links, _), *others = placed(CLASSIC, dashboard)
        lists = [(place, shown) for place, shown in others if not is_chart(shown)]
        assert len(lists) == min(len(dashboard.controls), 4)
        fields = []
        for place, shown in lists:
            assert (place["y"], place["h"]) == (links["y"], links["h"]) == (0, 4)
            assert place["w"] / 48 * 1424 >= 250
            (field,) = classic_controls(shown)
            fields.append(field)
        left_out = {control.field for control in dashboard.controls} - {*fields}
        assert left_out <= {"cloud.region", "batch.queue"}


def classic_controls(shown: dict[str, Any]) -> list[str]:
    """The fields of the dropdown lists in a visualization."""
    controls = json.loads(shown["attributes"]["visState"])["params"]["controls"]
    return [control["fieldName"] for control in controls]


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.key)
def test_kibana_has_all_dropdown_lists_of_a_dashboard_small_in_one_line(
    dashboard: Dashboard,
) -> None:
    saved = by_id(LENS, object_id("dashboard", dashboard.key))
    group = saved["attributes"]["controlGroupInput"]
    panels = json.loads(group["panelsJSON"]).values()
    assert group["controlStyle"] == "oneLine"
    assert {panel["width"] for panel in panels} == {"small"}
    fields = [panel["explicitInput"]["fieldName"] for panel in panels]
    assert fields == [control.field for control in dashboard.controls]
    assert len(fields) <= 5


def test_the_list_of_outcomes_has_the_words_of_the_forwarder_alone() -> None:
    template = json.loads((FOLDER / "index-templates" / "task-reports.json").read_text())
    task = template["template"]["mappings"]["properties"]["task"]["properties"]
    assert task["outcome"]["type"] == "keyword"
    assert [name for name, one in task.items() if "copy_to" in one] == []


@each_file
def test_a_table_of_few_rows_is_not_higher_than_three_of_them(name: str) -> None:
    short = {panel.title for panel in PANELS if panel.is_short}
    assert len(short) == 5
    for dashboard in DASHBOARDS:
        for place, shown in placed(name, dashboard):
            if shown["attributes"]["title"] in short:
                assert place["h"] <= 8


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.key)
def test_no_two_charts_of_a_dashboard_answer_the_same_question(dashboard: Dashboard) -> None:
    questions = Counter(
        (
            tuple((metric.operation, metric.field, metric.share_of) for metric in panel.metrics),
            tuple(terms.field for terms in panel.terms),
            panel.index,
            panel.condition,
            panel.has_time_axis,
        )
        for panel in dashboard.charts
    )
    assert set(questions.values()) <= {1}
    titles = [panel.title for panel in dashboard.charts]
    titles += [drawing.title for drawing in dashboard.drawings]
    assert len({*titles}) == len(titles)


# --- drawings -------------------------------------------------------------------------------------------------------

by_drawing = pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.key)


def parts_of(value: Any) -> Iterator[tuple[str, Any]]:
    """All members of all objects in a specification, with their names."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name, member
            yield from parts_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from parts_of(member)


@by_drawing
def test_both_files_have_the_same_drawing(drawing: Drawing) -> None:
    for name in FILES:
        attributes = by_id(name, object_id("visualization", drawing.key))["attributes"]
        state = json.loads(attributes["visState"])
        assert state["type"] == "vega"
        assert json.loads(state["params"]["spec"]) == drawing.spec


@by_drawing
def test_a_drawing_is_of_vega_5_on_a_canvas_with_the_dashboards_time_and_filters(
    drawing: Drawing,
) -> None:
    assert drawing.spec["$schema"].endswith("/vega/v5.json")
    assert drawing.spec["config"]["kibana"]["renderer"] == "canvas"
    searches = [data["url"] for data in drawing.spec["data"] if "url" in data]
    assert searches
    for search in searches:
        assert search["%context%"] is True
        assert search["%timefield%"] == "@timestamp"
        assert "query" not in search["body"]
        assert search["body"]["size"] == 0


@by_drawing
def test_texts_and_axes_have_the_colours_of_the_theme(drawing: Drawing) -> None:
    """Only the word of a kill, the verdict's bar, and marks within a coloured cell have ours."""
    for name, axes in parts_of(drawing.spec):
        if name == "axes":
            used = {member for member, _ in parts_of(axes)}
            assert not used & {"labelColor", "titleColor", "gridColor", "tickColor", "fill"}
    for name, marks in parts_of(drawing.spec):
        if name != "marks":
            continue
        for mark in marks:
            if mark["type"] == "text" and "fill" in mark["encode"]["update"]:
                assert drawing.key in {"families-by-night", "run-curves"}
    kills = [value for name, value in parts_of(drawing.spec) if name == "stroke"]
    assert {"value": colours.OUT_OF_MEMORY} not in kills


@by_drawing
def test_every_field_of_a_drawing_is_in_the_template(drawing: Drawing) -> None:
    known = {**template_fields("reports"), **template_fields("checkpoints")}
    bodies = [data["url"]["body"] for data in drawing.spec["data"] if "url" in data]
    fields = {value for name, value in parts_of(bodies) if name == "field"}
    for name, value in parts_of(bodies):
        if name == "exists":
            fields.add(value["field"])
        if name in {"term", "range"}:
            fields.update(value)
        if name == "_source":
            stored = [field for field in value if field != "series"]
            for field in stored:
                assert any(one == field or one.startswith(f"{field}.") for one in known), field
    assert fields <= set(known)


def mixes_memory(found: object) -> bool:
    """Whether searches put the memory of several runs into one number."""
    return any(
        name in {"avg", "max", "stats"} and value.get("field", "").startswith("usage.memory.")
        for name, value in parts_of(found)
        if isinstance(value, dict)
    )


def test_a_number_of_the_memory_of_several_runs_says_which_may_mean_another() -> None:
    """Before schema 1.4, mapped files counted as used."""
    mixed = {
        drawing.title: drawing.description for drawing in DRAWINGS if mixes_memory(drawing.spec)
    }
    mixed |= {
        panel.title: panel.description
        for panel in PANELS
        for metric in panel.metrics
        if metric.operation != "latest" and metric.field.startswith("usage.memory.")
    }
    assert len(mixed) == 6
    assert [title for title, text in mixed.items() if MIXED_MEMORY not in text] == []


def test_a_label_has_one_colour_on_all_panels() -> None:
    used: dict[str, set[str]] = {}
    for label, colour in itertools.chain(*(colours_of(panel).items() for panel in PANELS)):
        used.setdefault(label, set()).add(colour)
    assert {label for label, found in used.items() if len(found) > 1} == set()
    assert {case.label for case in OUTCOMES} <= set(used)


def test_no_band_is_above_what_a_device_can_use() -> None:
    """Its colour would be in the legend, and in no cell: only a limit of CPUs can be exceeded."""
    highest = {panel.title: panel.bands[-1][0] for panel in PANELS if panel.kind == "heatmap"}
    assert [*highest.values()] == [90, 90]
    assert all(title.startswith(("GPU %", "Neuron %")) for title in highest)
    usages = {drawing.title: drawing.spec["scales"][-1]["domain"][-1] for drawing in USAGES}
    assert {title for title, low in usages.items() if low > 100} == {
        title for title in usages if "CPU" in title
    }


# --- fields ---------------------------------------------------------------------------------------------------------

NUMBERS = {"long", "float", "double"}
FITTING = {
    "count": {"date"},
    "count_distinct": {"keyword"},
    "terms": {"keyword"},
    "filter": {"keyword"},
    "flag": {"boolean"},
    "comparison": NUMBERS,
    "exists": {"keyword"} | NUMBERS,
    "control": {"keyword"},
    "time": {"date"},
    "latest": {"keyword", "date"} | NUMBERS,
    "max": {"date"} | NUMBERS,
    **dict.fromkeys(("average", "sum"), NUMBERS),
}


def template_fields(index: str) -> dict[str, str]:
    template = json.loads((FOLDER / "index-templates" / f"task-{index}.json").read_text())
    return dict(leaves(template["template"]["mappings"]["properties"]))


def leaves(properties: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, mapping in properties.items():
        if "properties" in mapping:
            yield from leaves(mapping["properties"], f"{path}{name}.")
        elif mapping.get("doc_values", True) and mapping.get("enabled", True):
            yield f"{path}{name}", mapping["type"]


@by_key
def test_every_field_of_a_panel_is_in_the_template_with_a_suitable_type(panel: Panel) -> None:
    known = template_fields(panel.index)
    assert {
        (field, use) for field, use in fields_of(panel) if known.get(field) not in FITTING[use]
    } == set()


def test_every_column_is_in_the_template() -> None:
    """One column links to the run, and controls are keywords."""
    known = template_fields("reports")
    for search in SEARCHES:
        assert {"task.id"} <= {*search.columns} <= {*known}
        peaks = [f"usage.{part}.percent.max" in search.columns for part in ("cpu", "memory")]
        assert len({*peaks}) == 1, search.title
    fields = {control.field for dashboard in DASHBOARDS for control in dashboard.controls}
    assert {known.get(field) for field in fields} == FITTING["control"]


def test_each_cause_of_an_end_is_shown_in_words_by_both_products() -> None:
    for name in FILES:
        attributes = by_id(name, object_id("data-view", "reports"))["attributes"]
        shown = json.loads(attributes["fieldFormatMap"])["task.outcome"]
        assert shown["id"] == "static_lookup"
        words = {entry["key"]: entry["value"] for entry in shown["params"]["lookupEntries"]}
        assert set(words) == set(get_args(Cause))
        assert words["oom"] == "Out of memory"
        assert words["failure"] == "Failure"
        assert not [text for text in words.values() if "{" in text]


@pytest.mark.parametrize("index", get_args(Index))
def test_a_data_view_lists_the_fields_of_the_template_and_has_no_format_of_another(
    index: Index,
) -> None:
    for name in FILES:
        attributes = by_id(name, object_id("data-view", index))["attributes"]
        assert attributes["title"] == f"task-{index}-*"
        assert attributes["timeFieldName"] == "@timestamp"
        assert set(json.loads(attributes["fieldFormatMap"])) <= set(template_fields(index))
    listed = {
        entry["name"]: entry["esTypes"]
        for entry in data_view_fields(index)
        if entry["name"][0] != "_"
    }
    assert listed.pop("record") == [
        "keyword"
    ]  # Kibana marks a field of a document that its data view does not list
    assert listed == {name: [kind] for name, kind in template_fields(index).items()}
    (record,) = [entry for entry in data_view_fields(index) if entry["name"] == "record"]
    assert {record["searchable"], record["aggregatable"], record["readFromDocValues"]} == {False}


@pytest.mark.parametrize("index", get_args(Index))
def test_a_list_of_documents_fetches_neither_the_curves_nor_the_record_of_a_run(
    index: Index,
) -> None:
    for name in FILES:
        attributes = by_id(name, object_id("data-view", index))["attributes"]
        hidden = [entry["value"] for entry in json.loads(attributes["sourceFilters"])]
        assert hidden == ["series", "series.*", "record"]


# --- both flavours and the tested search are equivalent -------------------------------------------------------------


def nested(aggregations: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and fields of a search body, from the outermost to the innermost, without the part
    of a ratio.
    """
    buckets = {
        name: one for name, one in aggregations.items() if "aggs" in one and MATCHING not in name
    }
    for name, one in buckets.items():
        (kind,) = set(one) - {"aggs"}
        return [(name, one[kind].get("field", "")), *nested(one["aggs"])]
    return [(name, "") for name in aggregations if MATCHING not in name and name != ORDER]


def classic_state(panel: Panel) -> dict[str, Any]:
    found = by_id(CLASSIC, object_id("visualization", panel.key))["attributes"]["visState"]
    return dict(json.loads(found))


def lens_layer(panel: Panel) -> dict[str, Any]:
    state = by_id(LENS, object_id("lens", panel.key))["attributes"]["state"]
    return dict(next(iter(state["datasourceStates"]["indexpattern"]["layers"].values())))


@by_key
def test_both_flavours_nest_as_the_search_that_is_tested(panel: Panel) -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    wanted = nested(search_body(panel, moment, moment, interval="1h")["aggs"])
    state, layer = classic_state(panel), lens_layer(panel)
    aggs = state["aggs"] or [
        {"id": "1", "schema": "metric", "params": state["params"]["series"][0]["metrics"][0]}
    ]
    buckets = [
        (one["id"], one["params"].get("field", "")) for one in aggs if one["schema"] != "metric"
    ]
    if panel.kind == "number" and aggs[0].get("type") == "sum":
        assert [name for name, _ in buckets] == ["2"]  # no documents are no bucket, and so no $0.00
        buckets = []
    assert [*buckets, *((one["id"], "") for one in aggs if one["schema"] == "metric")] == wanted
    shown = [metric.field for metric in panel.metrics if metric.operation != "count"]
    fields = [
        one["params"]["field"]
        for one in aggs
        if one["schema"] == "metric" and one.get("type") != "count"
    ]
    assert fields == shown
    columns = [layer["columns"][column] for column in layer["columnOrder"] if column != ORDER]
    sources = (column.get("sourceField", "___records___") for column in columns)
    drawn = [source for source in sources if source != "___records___"]
    repeated = len(panel.cases) or (2 if panel.metrics[0].share_of else 1)
    assert drawn == [*(field for _, field in wanted if field), *shown * repeated]


def requires(condition: str, field: str) -> bool:
    """Whether documents without the field are left out."""
    return any(
        part.startswith((f"{field}: ", f"{field} > ", f"{field} < "))
        for part in condition.split(" and ")
    )


@by_key
def test_documents_without_the_value_are_neither_first_nor_zero(panel: Panel) -> None:
    """Kibana sorts families without a measurement first.

    OpenSearch Dashboards draws them, and unknown money, as 0.
    """
    for metric in panel.metrics:
        if metric.field == "cost.usd" and metric.operation == "sum":
            assert requires(panel.condition, metric.field)
    if "waste" in "".join(metric.field for metric in panel.metrics if metric.operation == "sum"):
        assert requires(panel.condition, "cost.waste_usd") or requires(panel.condition, "cost.usd")
    if panel.kind in {"heatmap", "ranking"}:
        value = panel.metrics[0]
        assert value.operation == "count_distinct" or requires(panel.condition, value.field)


@by_key
def test_both_flavours_count_the_same_documents(panel: Panel) -> None:
    classic = by_id(CLASSIC, object_id("visualization", panel.key))["attributes"]
    source = json.loads(classic["kibanaSavedObjectMeta"]["searchSourceJSON"])
    lens = by_id(LENS, object_id("lens", panel.key))["attributes"]["state"]
    assert source["query"] == lens["query"] == {"query": panel.condition, "language": "kuery"}
    state, columns = classic_state(panel), lens_layer(panel)["columns"].values()
    queries = [
        one["filter"]["query"] for one in columns if not one["isBucketed"] and "filter" in one
    ]
    if panel.cases:
        (filters,) = [one["params"]["filters"] for one in state["aggs"] if one["type"] == "filters"]
        assert (
            [one["input"]["query"] for one in filters]
            == queries
            == [case.condition for case in panel.cases]
        )
    if panel.metrics[0].share_of is not None:
        assert [state["params"]["series"][0]["metrics"][0]["numerator"]["query"]] == queries


@each_case("flavour", [CLASSIC, LENS])
@each_case("dashboard", DASHBOARDS, ids=lambda dashboard: dashboard.key)
def test_dashboards_leave_unconfirmed_runs_out_but_that_of_one_run(
    dashboard: Dashboard, flavour: str
) -> None:
    saved = by_id(flavour, object_id("dashboard", dashboard.key))
    source = json.loads(saved["attributes"]["kibanaSavedObjectMeta"]["searchSourceJSON"])
    if dashboard.key == "task-run":
        assert source["filter"] == []
        return
    (added,) = source["filter"]
    assert added["meta"]["negate"]
    assert not added["meta"]["disabled"]
    assert json.loads(added["meta"]["value"]) == added["query"]
    assert added["query"]["bool"]["filter"] == [{"term": {"task.confirmed": False}}]
    (view,) = [
        each for each in saved["references"] if each["name"] == added["meta"]["indexRefName"]
    ]
    assert view["type"] == "index-pattern"


def test_the_scale_of_a_drawing_fits_a_phone() -> None:
    """Beside its title, the red part was cut."""
    legends = [legend for drawing in DRAWINGS for legend in drawing.spec["legends"]]
    assert legends
    assert {legend["titleOrient"] for legend in legends} == {"top"}
