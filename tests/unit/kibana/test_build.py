"""The committed files are the generated ones. The saved objects obey the rules and use fields of the documents."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import pytest

from forwarder.run_links import TASK_RUN_DASHBOARD_ID
from kibana.aggregations import ORDER, grouped_metrics
from kibana.all_dashboards import DASHBOARDS, PANELS, SEARCHES
from kibana.build import FOLDER, build_files
from kibana.classic_format import colours_of
from kibana.conditions import Above, AllOf, AnyOf, Below, Condition, Exists, Is, Not, kql
from kibana.dashboard_model import ELAPSED_FIELD, FAILURE_COLOUR, SUCCESS_COLOUR, TIME_FIELD, Index, Panel
from kibana.index_definitions.index_templates import data_view_fields
from kibana.panel_builders import OUTCOMES
from kibana.saved_objects import object_id
from profiler.record.search_document_fields import FIELDS
from tests.documentation import ROOT
from tests.panel_searches import MATCHING, fields_of, search_body
from tests.unit.kibana.saved_object_rules import lint_file

CLASSIC, LENS = "opensearch-dashboards.ndjson", "kibana.ndjson"
FILES = (CLASSIC, LENS)
OTHER_FILES = (
    *(f"index-templates/task-{name}.json" for name in ("reports", "checkpoints", "logs", "notices")),
    "ingest/task-profiler.json",
)
HEATMAP = object_id("lens", "task-usage-cpu")
CLASSIC_HEATMAP = object_id("visualization", "task-usage-cpu")
BARS = object_id("lens", "task-count-by-family")
CLASSIC_BARS = object_id("visualization", "task-count-by-family")
RATE, RATE_LENS = object_id("visualization", "failure-rate"), object_id("lens", "failure-rate")
OUTCOME_BARS = object_id("visualization", "task-count-by-outcome")
OUTCOME_BARS_LENS = object_id("lens", "task-count-by-outcome")
COUNTS, COST = object_id("lens", "task-out-of-memory"), object_id("lens", "cost-total")
DASHBOARD = object_id("dashboard", "task-overview")
REPORTS = object_id("data-view", "reports")

Objects = list[dict[str, Any]]
by_key = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.key)
each_file = pytest.mark.parametrize("name", FILES)


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return build_files()


def loaded(text: str) -> Objects:
    return [json.loads(line) for line in text.splitlines()]


def by_id(objects: Objects, identity: str) -> dict[str, Any]:
    return next(one for one in objects if one["id"] == identity)


@pytest.mark.parametrize("name", [*FILES, *OTHER_FILES])
def test_the_committed_file_is_what_the_generator_writes(name: str, files: dict[str, str]) -> None:
    """If this fails: `make kibana`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == files[name]


def test_the_script_writes_all_files_wherever_it_is_called(tmp_path: Path, files: dict[str, str]) -> None:
    assert set(files) == {*FILES, *OTHER_FILES}
    folder = tmp_path / "kibana"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("*.ndjson", "task-*.json", "__pycache__"))
    assert not [name for name in files if (folder / name).exists()]
    subprocess.run([sys.executable, str(folder / "build.py")], check=True, cwd="/", timeout=60)
    assert {name: (folder / name).read_text(encoding="utf-8") for name in files} == files


@each_file
def test_the_generated_files_break_no_rule(name: str, files: dict[str, str]) -> None:
    assert lint_file(files[name]) == []


@each_file
def test_each_dashboard_has_its_panels_in_order(name: str, files: dict[str, str]) -> None:
    objects = loaded(files[name])
    kind = "visualization" if name == CLASSIC else "lens"
    for dashboard in DASHBOARDS:
        written = by_id(objects, object_id("dashboard", dashboard.key))
        shown = [entry["id"] for entry in written["references"]]
        kinds = [(kind if isinstance(panel, Panel) else "search", panel.key) for panel in dashboard.panels]
        wanted = [object_id(*kind_and_key) for kind_and_key in kinds]
        assert shown[-len(wanted) :] == wanted
    assert len({panel.key for panel in PANELS}) == len(PANELS)


@each_file
def test_panel_ids_are_unique_over_all_dashboards_and_stable(name: str, files: dict[str, str]) -> None:
    """Kibana keeps a panel that has the same id on the next dashboard. A new import must keep the panels."""
    dashboards = [one for one in loaded(files[name]) if one["type"] == "dashboard"]
    ids = [panel["panelIndex"] for one in dashboards for panel in json.loads(one["attributes"]["panelsJSON"])]
    assert len(set(ids)) == len(ids)
    assert {object_id("panel", f"{board.key}/{panel.key}") for board in DASHBOARDS for panel in board.panels} <= {*ids}


@each_file
def test_both_files_have_the_saved_searches_newest_first(name: str, files: dict[str, str]) -> None:
    found = {one["attributes"]["title"]: one for one in loaded(files[name]) if one["type"] == "search"}
    assert list(found) == ["Failures", "Newest runs"]
    for search in SEARCHES:
        attributes = found[search.title]["attributes"]
        assert attributes["sort"] == [["@timestamp", "desc"]]
        assert {*attributes["columns"]} <= {*template_fields(search.index)}
        assert "task.id" in attributes["columns"]  # a link to the run
        source = json.loads(attributes["kibanaSavedObjectMeta"]["searchSourceJSON"])
        assert source["query"]["query"] == kql(search.condition)
    assert kql(next(search for search in SEARCHES if search.title == "Failures").condition) != ""


@each_file
def test_every_dashboard_begins_with_links_to_all_others(name: str, files: dict[str, str]) -> None:
    objects = loaded(files[name])
    written = by_id(objects, object_id("visualization", "navigation"))
    text = json.loads(written["attributes"]["visState"])["params"]["markdown"]
    linked = re.findall(r"\[([^]]+)\]\((#|discover#)/view/([0-9a-f-]{36})(?:\?_g=\S+)?\)", text)
    wanted = [(board.title, "#", object_id("dashboard", board.key)) for board in DASHBOARDS]
    wanted += [(search.title, "discover#", object_id("search", search.key)) for search in SEARCHES]
    assert linked == wanted
    for board in (one for one in objects if one["type"] == "dashboard"):
        panels = json.loads(board["attributes"]["panelsJSON"])
        (name_of_links,) = [one["name"] for one in board["references"] if one["id"] == written["id"]]
        (links,) = [panel for panel in panels if panel["panelRefName"] == name_of_links.rpartition(":")[2]]
        assert (links["gridData"]["x"], links["gridData"]["y"], links["gridData"]["w"]) == (0, 0, 48)


@each_file
def test_the_link_in_a_notice_opens_the_run_dashboard(name: str, files: dict[str, str]) -> None:
    found = by_id(loaded(files[name]), str(TASK_RUN_DASHBOARD_ID))
    assert (found["type"], found["attributes"]["title"]) == ("dashboard", "Task run")


@each_file
def test_every_dashboard_has_its_controls(name: str, files: dict[str, str]) -> None:
    for dashboard in DASHBOARDS:
        objects = loaded(files[name])
        if name == CLASSIC:
            controls = by_id(objects, object_id("visualization", f"{dashboard.key}-filters"))
            offered = [one["fieldName"] for one in json.loads(controls["attributes"]["visState"])["params"]["controls"]]
        else:
            written = by_id(objects, object_id("dashboard", dashboard.key))["attributes"]
            lists = json.loads(written["controlGroupInput"]["panelsJSON"])
            offered = [
                one["explicitInput"]["fieldName"] for one in sorted(lists.values(), key=lambda one: one["order"])
            ]
            assert all(one["explicitInput"]["id"] == identity for identity, one in lists.items())
        assert offered == [control.field for control in dashboard.controls]


def test_a_label_has_one_colour_on_all_panels() -> None:
    colours: dict[str, set[str]] = {}
    for panel in PANELS:
        for label, colour in colours_of(panel).items():
            colours.setdefault(label, set()).add(colour)
    assert {label for label, found in colours.items() if len(found) > 1} == set()
    assert {case.label for case in OUTCOMES} <= set(colours)


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
    "control": {"keyword", "boolean"},
    "time": {"date"},
    "latest": {"keyword", "date"} | NUMBERS,
    "max": {"date"} | NUMBERS,
    **dict.fromkeys(("average", "sum", "percentile"), NUMBERS),
}


def template_fields(index: str) -> dict[str, str]:
    template = json.loads((FOLDER / "index-templates" / f"task-{index}.json").read_text())
    return dict(leaves(template["template"]["mappings"]["properties"]))


def leaves(properties: dict[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for name, mapping in properties.items():
        if "properties" in mapping:
            yield from leaves(mapping["properties"], f"{path}{name}.")
        elif mapping.get("doc_values", True):
            yield f"{path}{name}", mapping["type"]


@by_key
def test_every_field_of_a_panel_is_in_the_template_with_a_suitable_type(panel: Panel) -> None:
    known = template_fields(panel.index)
    assert {(field, use) for field, use in fields_of(panel) if known.get(field) not in FITTING[use]} == set()


def test_every_control_is_a_keyword_or_a_flag_of_reports() -> None:
    known = template_fields("reports")
    fields = {control.field for dashboard in DASHBOARDS for control in dashboard.controls}
    assert {known.get(field) for field in fields} == FITTING["control"]


@each_file
def test_every_format_of_a_data_view_has_a_field(name: str, files: dict[str, str]) -> None:
    for index in get_args(Index):
        attributes = by_id(loaded(files[name]), object_id("data-view", index))["attributes"]
        assert (attributes["title"], attributes["timeFieldName"]) == (f"task-{index}-*", "@timestamp")
        assert set(json.loads(attributes["fieldFormatMap"])) <= set(template_fields(index))


@each_file
def test_money_has_two_digits_and_durations_have_units(name: str, files: dict[str, str]) -> None:
    formats = json.loads(by_id(loaded(files[name]), REPORTS)["attributes"]["fieldFormatMap"])
    money = [entry["params"]["pattern"] for field, entry in formats.items() if field.endswith("usd")]
    assert {"$0,0.00"} == {*money}
    assert {entry["params"]["showSuffix"] for entry in formats.values() if entry["id"] == "duration"} == {True}


@pytest.mark.parametrize("index", get_args(Index))
def test_a_data_view_lists_the_fields_of_the_template(index: Index) -> None:
    listed = {entry["name"]: entry["esTypes"] for entry in data_view_fields(index) if entry["name"][0] != "_"}
    assert listed.pop("record") == ["keyword"]  # Kibana marks a field of a document that its data view does not list
    assert listed == {name: [kind] for name, kind in template_fields(index).items()}
    (record,) = [entry for entry in data_view_fields(index) if entry["name"] == "record"]
    assert {record["searchable"], record["aggregatable"], record["readFromDocValues"]} == {False}


def written_by_the_pipeline(field: str) -> bool:
    """Whether the pipeline sets the field, alone or with its object."""
    processors = json.loads((FOLDER / "ingest" / "task-profiler.json").read_text())["processors"]
    written = {one["target_field"] for step in processors for kind, one in step.items() if kind == "rename"}
    written |= {one["field"] for step in processors for kind, one in step.items() if kind in {"set", "append"}}
    return bool({field, field.rsplit(".", 1)[0]} & written)


def test_the_pipeline_moves_every_field_that_the_record_contains() -> None:
    moved = [field.name for field in FIELDS if field.record_path is not None]
    assert [name for name in moved if not written_by_the_pipeline(name)] == []


def test_the_page_names_every_field_that_the_pipeline_leaves_out() -> None:
    absent = {field.name for field in FIELDS if not written_by_the_pipeline(field.name)}
    differences = (ROOT / "docs" / "how-to" / "existing-elk.md").read_text().partition("### Differences")[2]
    names = [name.removesuffix(".*") for name in re.findall(r"`([\w.*]+)`", differences)]
    named = [name if "." in name or name in {"links", "tags"} else f"task.{name}" for name in names]
    found = {name: {field for field in absent if f"{field}.".startswith(f"{name}.")} for name in named}
    assert set().union(*found.values()) == absent
    assert all(found.values())


# --- both flavours and the tested search are equivalent -------------------------------------------------------------


def nested(aggregations: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and fields of a search body, from the outermost to the innermost, without the part of a ratio."""
    buckets = {name: one for name, one in aggregations.items() if "aggs" in one and MATCHING not in name}
    for name, one in buckets.items():
        (kind,) = set(one) - {"aggs"}
        return [(name, one[kind].get("field", "")), *nested(one["aggs"])]
    return [(name, "") for name in aggregations if MATCHING not in name and name != ORDER]


@by_key
def test_both_flavours_nest_as_the_search_that_is_tested(panel: Panel, files: dict[str, str]) -> None:
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    wanted = nested(search_body(panel, moment, moment, interval="1h")["aggs"])
    classic = by_id(loaded(files[CLASSIC]), object_id("visualization", panel.key))
    state = json.loads(classic["attributes"]["visState"])
    aggs = state["aggs"] or [{"id": "1", "schema": "metric", "params": state["params"]["series"][0]["metrics"][0]}]
    buckets = [(one["id"], one["params"].get("field", "")) for one in aggs if one["schema"] != "metric"]
    if panel.kind == "number" and aggs[0].get("type") == "sum":
        assert [name for name, _ in buckets] == ["2"]  # no documents are no bucket, and so no $0.00
        buckets = []
    assert [*buckets, *((one["id"], "") for one in aggs if one["schema"] == "metric")] == wanted
    shown = [metric.field for metric in panel.metrics if metric.operation != "count"]
    grouped = [group[0].field for group in grouped_metrics(panel).values() if group[0].operation != "count"]
    assert [
        one["params"]["field"] for one in aggs if one["schema"] == "metric" and one.get("type") != "count"
    ] == grouped
    percents = [percent for one in aggs for percent in one["params"].get("percents", ())]
    assert percents == [metric.percent for metric in panel.metrics if metric.operation == "percentile"]
    lens = by_id(loaded(files[LENS]), object_id("lens", panel.key))["attributes"]["state"]["datasourceStates"]
    layer = next(iter(lens["indexpattern"]["layers"].values()))
    columns = [layer["columns"][column] for column in layer["columnOrder"] if column != ORDER]
    drawn = [column["sourceField"] for column in columns if column.get("sourceField", "Records") != "Records"]
    repeated = len(panel.cases) or (2 if panel.metrics[0].share_of else 1)
    if panel.has_checkpoint_axis:
        wanted = [(name, field.replace(TIME_FIELD, ELAPSED_FIELD)) for name, field in wanted]
    assert drawn == [*(field for _, field in wanted if field), *shown * repeated]


@pytest.mark.parametrize(
    "panel",
    [panel for panel in PANELS if panel.kind in {"line", "bars", "ranking"}],
    ids=lambda panel: panel.key,
)
def test_an_axis_has_its_own_name_and_percentages_end_at_100(panel: Panel, files: dict[str, str]) -> None:
    assert panel.axis or len(panel.metrics) == 1
    classic = by_id(loaded(files[CLASSIC]), object_id("visualization", panel.key))["attributes"]
    (axis,) = json.loads(classic["visState"])["params"]["valueAxes"]
    drawn = by_id(loaded(files[LENS]), object_id("lens", panel.key))["attributes"]["state"]["visualization"]
    assert axis["title"]["text"] == drawn["yTitle"] == panel.axis_name != ""
    extents = (axis["scale"].get("min"), axis["scale"].get("max"))
    extent = drawn.get("yLeftExtent", {})
    if panel.is_logarithmic:  # in Lens, the bars' axis begins there by a setting of the panel
        assert (extents, extent) == ((1000, None), {})
        return
    if panel.limit is not None:  # the axis does not end at the limit
        (line,) = [one for one in drawn["layers"] if one["layerType"] == "referenceLine"]
        assert (extent, line["accessors"]) == ({"mode": "custom", "lowerBound": 0}, ["limit"])
        threshold = json.loads(classic["visState"])["params"]["thresholdLine"]
        assert (threshold["show"], threshold["value"]) == (True, panel.limit)
        assert extents[1] > panel.limit
        return
    assert extents == (extent.get("lowerBound"), extent.get("upperBound"))
    assert extents == ((0, 100) if panel.is_percentage else (None, None))
    assert panel.is_percentage == any("%" in metric.label or "%" in panel.axis_name for metric in panel.metrics)


def test_kibana_counts_in_whole_numbers_and_durations_begin_at_a_second(files: dict[str, str]) -> None:
    settings = dict[str, Any]()
    for dashboard in (one for one in loaded(files[LENS]) if one["type"] == "dashboard"):
        targets = {reference["name"]: reference["id"] for reference in dashboard["references"]}
        for panel in json.loads(dashboard["attributes"]["panelsJSON"]):
            target = targets[f"{panel['panelIndex']}:{panel['panelRefName']}"]
            settings[target] = panel["embeddableConfig"].get("overrides", {}).get("axisLeft", {})
    for panel in PANELS:
        found = settings[object_id("lens", panel.key)]
        assert found.get("integersOnly", False) is panel.has_whole_numbers
        assert found.get("domain") == ({"min": 1000} if panel.is_logarithmic else None)
    assert {"running-notices", "task-count-by-family"} <= {one.key for one in PANELS if one.has_whole_numbers}


def test_each_checkpoint_has_its_own_point(files: dict[str, str]) -> None:
    """Kibana formats the values of an ordinal axis before it draws them: "1.2 h" would be six checkpoints."""
    for panel in (one for one in PANELS if one.has_checkpoint_axis):
        lens = by_id(loaded(files[LENS]), object_id("lens", panel.key))["attributes"]["state"]
        layer = next(iter(lens["datasourceStates"]["indexpattern"]["layers"].values()))
        column = layer["columns"][lens["visualization"]["layers"][0]["xAccessor"]]
        assert (column["sourceField"], column["scale"]) == (ELAPSED_FIELD, "interval")


def test_no_cell_of_a_table_is_cut(files: dict[str, str]) -> None:
    tables = [one for one in loaded(files[LENS]) if one["attributes"].get("visualizationType") == "lnsDatatable"]
    assert tables
    assert all(one["attributes"]["state"]["visualization"]["fitRowToContent"] for one in tables)


def test_a_chart_of_one_run_has_no_line_of_all_others(files: dict[str, str]) -> None:
    """Lens combines all other runs in one line if it has an "other" bucket."""
    for panel in PANELS:
        lens = by_id(loaded(files[LENS]), object_id("lens", panel.key))["attributes"]["state"]["datasourceStates"]
        layer = next(iter(lens["indexpattern"]["layers"].values()))
        for number, terms in enumerate(panel.terms):
            params = layer["columns"][f"rows-{number}"]["params"]
            assert not (terms.size == 1 and params["otherBucket"]), panel.key


def requires(condition: Condition | None, field: str) -> bool:
    """Whether documents without the field are left out."""
    match condition:
        case Exists(known) | Above(known) | Below(known) | Is(known):
            return known == field
        case AllOf():
            return any(requires(one, field) for one in condition)
        case _:
            return False


@by_key
def test_documents_without_the_value_are_neither_first_nor_zero(panel: Panel) -> None:
    """Kibana sorts families without a measurement first. OpenSearch Dashboards draws them, and unknown money, as 0."""
    for metric in panel.metrics:
        if metric.field == "cost.usd" and metric.operation == "sum":
            assert requires(panel.condition, metric.field)
    if "waste" in "".join(metric.field for metric in panel.metrics if metric.operation == "sum"):
        assert requires(panel.condition, "cost.waste_usd") or requires(panel.condition, "cost.usd")
    if panel.kind in {"heatmap", "ranking"}:
        value = panel.metrics[0]
        assert value.operation == "count_distinct" or requires(panel.condition, value.field)
    for terms in panel.terms:
        by = None if terms.order_by_metric is None else panel.metrics[terms.order_by_metric]
        assert by is None or by.operation in {"count", "count_distinct"} or requires(panel.condition, by.field)


def test_the_failure_rate_is_red_in_both_flavours(files: dict[str, str]) -> None:
    drawn = by_id(loaded(files[LENS]), RATE_LENS)["attributes"]["state"]["visualization"]["palette"]["params"]
    assert [one["color"] for one in drawn["colorStops"]] == [SUCCESS_COLOUR, FAILURE_COLOUR]
    assert 0 < drawn["colorStops"][1]["stop"] < 1e-4
    params = json.loads(by_id(loaded(files[CLASSIC]), RATE)["attributes"]["visState"])["params"]
    assert [one["color"] for one in params["background_color_rules"]] == [FAILURE_COLOUR]


@pytest.mark.parametrize("flavour", [CLASSIC, LENS])
def test_a_coloured_text_is_readable_on_its_background(flavour: str, files: dict[str, str]) -> None:
    formats = by_id(loaded(files[flavour]), object_id("data-view", "reports"))["attributes"]["fieldFormatMap"]
    coloured = [one["params"]["colors"] for one in json.loads(formats).values() if one["id"] == "color"]
    assert len(coloured) == 2
    for one in itertools.chain(*coloured):
        assert contrast(one["text"], one["background"]) >= 4.5, one


@by_key
def test_both_flavours_count_the_same_documents(panel: Panel, files: dict[str, str]) -> None:
    classic = by_id(loaded(files[CLASSIC]), object_id("visualization", panel.key))["attributes"]
    source = json.loads(classic["kibanaSavedObjectMeta"]["searchSourceJSON"])
    lens = by_id(loaded(files[LENS]), object_id("lens", panel.key))["attributes"]["state"]
    assert source["query"] == lens["query"] == {"query": kql(panel.condition), "language": "kuery"}
    state = json.loads(classic["visState"])
    layer = next(iter(lens["datasourceStates"]["indexpattern"]["layers"].values()))
    queries = [one["filter"]["query"] for one in layer["columns"].values() if not one["isBucketed"] and "filter" in one]
    if panel.cases:
        (filters,) = [one["params"]["filters"] for one in state["aggs"] if one["type"] == "filters"]
        assert [one["input"]["query"] for one in filters] == queries == [kql(case.condition) for case in panel.cases]
    if panel.metrics[0].share_of is not None:
        assert [state["params"]["series"][0]["metrics"][0]["numerator"]["query"]] == queries


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (None, ""),
        (Is("a", "b"), 'a: "b"'),
        (Is("a", value=True), "a: true"),
        (AllOf((Not(AnyOf((Exists("a"), Above("b", 0)))), Below("c", 1))), "not (a: * or b > 0) and c < 1"),
        (Not(AllOf((Exists("a"),))), "not (a: *)"),
        (AnyOf((AllOf((Exists("a"), Exists("b"))), Exists("c"))), "(a: * and b: *) or c: *"),
    ],
)
def test_a_condition_in_the_query_language(condition: Condition | None, text: str) -> None:
    assert kql(condition) == text


# --- the rules ------------------------------------------------------------------------------------------------------

Change = Callable[[Objects], object]


def inside(objects: Objects, identity: str, member: str, change: Callable[[Any], object]) -> None:
    """Change the JSON in a string."""
    attributes = by_id(objects, identity)["attributes"]
    value = json.loads(attributes[member])
    change(value)
    attributes[member] = json.dumps(value)


def on_vis(identity: str, change: Callable[[Any], object]) -> Change:
    return lambda objects: inside(objects, identity, "visState", change)


def on_panel(change: Callable[[Any], object]) -> Change:
    return lambda objects: inside(objects, DASHBOARD, "panelsJSON", lambda panels: change(panels[0]))


def on_lens(identity: str, change: Callable[[Any, Any], object]) -> Change:
    """Change the layer and the drawing of a Lens chart."""

    def apply(objects: Objects) -> None:
        state = by_id(objects, identity)["attributes"]["state"]
        (layer,) = state["datasourceStates"]["indexpattern"]["layers"].values()
        change(layer, state["visualization"])

    return apply


def dialect_of_8(objects: Objects) -> None:
    states = by_id(objects, BARS)["attributes"]["state"]["datasourceStates"]
    states["formBased"] = states["indexpattern"]


def renamed_layer(objects: Objects) -> None:
    by_id(objects, BARS)["attributes"]["state"]["visualization"]["layers"][0]["layerId"] = "another"


def drop_controls(objects: Objects) -> None:
    written = by_id(objects, DASHBOARD)
    written["attributes"].pop("controlGroupInput")
    written["references"] = [one for one in written["references"] if "controlGroup" not in one["name"]]


def same_panel_twice(objects: Objects) -> None:
    """Two dashboards with panels of the same id, as when panels are numbered."""
    panels = json.loads(by_id(objects, DASHBOARD)["attributes"]["panelsJSON"])
    other = by_id(objects, object_id("dashboard", "task-run"))
    own = json.loads(other["attributes"]["panelsJSON"])[0]["panelIndex"]
    other["attributes"]["panelsJSON"] = other["attributes"]["panelsJSON"].replace(own, panels[0]["panelIndex"])
    for one in other["references"]:
        one["name"] = one["name"].replace(own, panels[0]["panelIndex"])


def taller(panels: list[dict[str, Any]]) -> None:
    panels[-2]["gridData"]["h"] += 1


def colours_in(panel: dict[str, Any]) -> dict[str, str]:
    colours: dict[str, str] = panel["embeddableConfig"]["vis"]["colors"]
    return colours


def precise_duration(formats: dict[str, Any]) -> None:
    formats["usage.duration_ms"]["params"]["outputFormat"] = "humanizePrecise"


def on_formats(change: Callable[[Any], object]) -> Change:
    return lambda objects: inside(objects, REPORTS, "fieldFormatMap", change)


def on_panels(change: Callable[[Any], object], identity: str) -> Change:
    """Change the panel of a dashboard that shows this visualization."""

    def apply(objects: Objects) -> None:
        (name,) = [one["name"] for one in by_id(objects, DASHBOARD)["references"] if one["id"] == identity]
        inside(
            objects,
            DASHBOARD,
            "panelsJSON",
            lambda panels: change(next(panel for panel in panels if panel["panelRefName"] == name)),
        )

    return apply


def in_seconds(formats: dict[str, Any]) -> None:
    formats["usage.duration_ms"]["params"]["outputFormat"] = "asSeconds"


def elsewhere(formats: dict[str, Any]) -> None:
    formats["task.id"]["params"]["urlTemplate"] = "../app/dashboards#/view/another?_g=(time:(from:a))&_a={{value}}"


MUTATIONS: list[tuple[str, str, Change]] = [
    ("I01", CLASSIC, lambda o: o.append(by_id(o, CLASSIC_BARS))),
    ("I02", CLASSIC, lambda o: o.append({"exportedCount": 3})),
    ("I02", LENS, lambda o: by_id(o, BARS).pop("references")),
    ("I03", CLASSIC, lambda o: o.append({**by_id(o, REPORTS), "type": "map"})),
    ("I04", LENS, lambda o: by_id(o, BARS).pop("migrationVersion")),
    ("I05", CLASSIC, lambda o: by_id(o, DASHBOARD)["attributes"].update(owner="me")),
    ("I06", CLASSIC, lambda o: by_id(o, DASHBOARD).update(migrationVersion={"dashboard": "7.11.0"})),
    ("I06", CLASSIC, lambda o: by_id(o, REPORTS).update(coreMigrationVersion="7.10.0")),
    ("I06", LENS, lambda o: by_id(o, BARS).update(coreMigrationVersion="8.0.0")),
    ("I07", CLASSIC, lambda o: o.append({**by_id(o, REPORTS), "id": "task-reports-*"})),
    ("I08", CLASSIC, lambda o: inside(o, REPORTS, "fieldFormatMap", precise_duration)),
    ("J01", CLASSIC, lambda o: by_id(o, CLASSIC_BARS)["attributes"].update(visState="{")),
    ("J01", LENS, lambda o: by_id(o, DASHBOARD)["attributes"].update(panelsJSON=[])),
    ("J01", LENS, lambda o: by_id(o, DASHBOARD)["attributes"].pop("kibanaSavedObjectMeta")),
    ("R01", CLASSIC, lambda o: by_id(o, CLASSIC_BARS)["references"][0].pop("name")),
    ("R01", LENS, lambda o: by_id(o, BARS)["references"].append(by_id(o, BARS)["references"][0])),
    ("R02", LENS, lambda o: o.remove(by_id(o, REPORTS))),
    ("R03", CLASSIC, lambda o: o.remove(by_id(o, CLASSIC_BARS))),
    ("R04", CLASSIC, lambda o: by_id(o, CLASSIC_BARS)["references"].clear()),
    ("R04", LENS, lambda o: by_id(o, BARS)["references"].pop()),
    ("R05", LENS, lambda o: by_id(o, BARS)["references"].append({**by_id(o, BARS)["references"][0], "name": "x"})),
    ("D01", CLASSIC, on_panel(lambda panel: panel["gridData"].update(i="99"))),
    ("D02", LENS, on_panel(lambda panel: panel.pop("version"))),
    ("D03", LENS, on_panel(lambda panel: panel["gridData"].update(x=-1))),
    ("D03", LENS, lambda o: inside(o, DASHBOARD, "panelsJSON", taller)),
    ("D04", LENS, on_panel(lambda panel: panel.pop("panelRefName"))),
    ("A01", CLASSIC, on_vis(CLASSIC_BARS, lambda state: state["aggs"][1]["params"].update(orderBy="9"))),
    ("A02", CLASSIC, on_vis(CLASSIC_BARS, lambda state: state["params"]["seriesParams"][0]["data"].update(id="9"))),
    ("A03", CLASSIC, on_vis(CLASSIC_BARS, lambda state: state["aggs"][2].update(id="2"))),
    ("H01", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["aggs"].pop())),
    ("H02", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["params"].pop("times"))),
    ("H04", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["params"].update(setColorRange=False))),
    ("H06", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["aggs"].reverse())),
    ("H08", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["params"]["colorsRange"].pop())),
    ("H08", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["params"]["colorsRange"].pop(2))),
    ("D05", LENS, drop_controls),
    ("D06", CLASSIC, same_panel_twice),
    ("D06", LENS, same_panel_twice),
    ("A04", CLASSIC, on_vis(RATE, lambda state: state["params"].update(index_pattern=""))),
    ("A04", CLASSIC, on_vis(RATE, lambda state: state["params"]["series"][0]["metrics"][0].pop("numerator"))),
    ("H09", CLASSIC, on_vis(CLASSIC_HEATMAP, lambda state: state["aggs"][1]["params"].update(size=50))),
    ("H09", LENS, on_lens(HEATMAP, lambda layer, _: layer["columns"]["rows-0"]["params"].update(size=50))),
    ("L08", LENS, on_lens(RATE_LENS, lambda layer, _: layer["columns"]["metric-0"].update(references=["x"]))),
    ("F01", CLASSIC, lambda o: by_id(o, REPORTS)["attributes"].update(fields="[]")),
    ("F01", LENS, lambda o: inside(o, REPORTS, "fields", lambda fields: fields.pop())),
    ("F02", CLASSIC, on_formats(in_seconds)),
    ("F03", CLASSIC, on_formats(lambda formats: formats.pop("task.id"))),
    ("F03", LENS, on_formats(elsewhere)),
    ("T01", CLASSIC, lambda o: by_id(o, DASHBOARD)["attributes"].update(timeRestore=False)),
    ("T01", LENS, lambda o: by_id(o, DASHBOARD)["attributes"].pop("timeFrom")),
    ("C01", CLASSIC, on_panels(lambda panel: panel["embeddableConfig"].pop("vis"), CLASSIC_HEATMAP)),
    ("C01", CLASSIC, on_panels(lambda panel: colours_in(panel).update(Success="#ff0000"), OUTCOME_BARS)),
    ("C01", LENS, on_lens(OUTCOME_BARS_LENS, lambda _, drawing: drawing["layers"][0].pop("yConfig"))),
    (
        "C01",
        LENS,
        on_lens(OUTCOME_BARS_LENS, lambda _, drawing: drawing["layers"][0]["yConfig"][0].update(color="#f00")),
    ),
    ("C02", CLASSIC, lambda o: by_id(o, CLASSIC_BARS)["attributes"].update(uiStateJSON='{"vis":{"colors":{}}}')),
    ("L01", LENS, dialect_of_8),
    ("L02", LENS, renamed_layer),
    ("L03", LENS, on_lens(BARS, lambda layer, _: layer["columnOrder"].pop())),
    ("L04", LENS, on_lens(BARS, lambda _, drawing: drawing["layers"][0].update(splitAccessor="nothing"))),
    ("L06", LENS, on_lens(BARS, lambda layer, _: layer["columnOrder"].reverse())),
    ("L07", LENS, on_lens(BARS, lambda layer, _: layer["columns"]["rows-0"]["params"]["orderBy"].update(columnId="x"))),
    ("H02", LENS, on_lens(HEATMAP, lambda _, drawing: drawing.pop("legend"))),
    ("H02", LENS, on_lens(HEATMAP, lambda _, drawing: drawing.pop("gridConfig"))),
    ("H03", LENS, on_lens(HEATMAP, lambda _, drawing: drawing.pop("xAccessor"))),
    ("H04", LENS, on_lens(HEATMAP, lambda _, drawing: drawing["palette"]["params"].update(rangeType="percent"))),
    ("H04", LENS, on_lens(HEATMAP, lambda _, drawing: drawing["palette"]["params"].update(name="status"))),
    ("H05", LENS, on_lens(HEATMAP, lambda _, drawing: drawing.update(yAccessor="nothing"))),
    ("H05", LENS, on_lens(HEATMAP, lambda _, drawing: drawing["palette"].update(accessor="nothing"))),
    ("H06", LENS, on_lens(HEATMAP, lambda layer, _: layer["columnOrder"].insert(0, layer["columnOrder"].pop(1)))),
    ("H10", LENS, on_lens(COUNTS, lambda layer, _: layer["columns"]["metric-0"].pop("params"))),
    ("H04", LENS, on_lens(COUNTS, lambda _, drawing: drawing["palette"]["params"].update(rangeMin=0))),
    ("L10", LENS, on_lens(BARS, lambda _, drawing: drawing.pop("yTitle"))),
    ("L11", LENS, on_lens(BARS, lambda _, drawing: drawing.update(yLeftExtent={"mode": "custom", "lowerBound": 1}))),
    ("L09", LENS, on_lens(COST, lambda layer, _: layer["columns"]["metric-0"].pop("params"))),
    ("H07", LENS, on_lens(HEATMAP, lambda _, drawing: drawing["palette"]["params"]["stops"].pop())),
]
# A missing object also breaks the rules of the objects that refer to it.
ALSO = {("R02", LENS): {"R02"}, ("I02", LENS): {"I02", "R03"}, ("D04", LENS): {"D04", "R05"}}


@pytest.mark.parametrize(
    ("rule", "name", "change"), MUTATIONS, ids=[f"{m[0]}-{m[1][0]}-{n}" for n, m in enumerate(MUTATIONS)]
)
def test_each_mutation_breaks_exactly_one_rule(rule: str, name: str, change: Change, files: dict[str, str]) -> None:
    objects = loaded(files[name])
    change(objects)
    found = lint_file("".join(f"{json.dumps(one)}\n" for one in objects))
    counts = Counter(finding.rule for finding in found)
    assert set(counts) == ALSO.get((rule, name), {rule})
    if rule != "R02":
        assert counts[rule] == 1, found
    assert all(finding.text.endswith(".") for finding in found)


def test_every_rule_has_a_mutation() -> None:
    source = "".join(path.read_text() for path in Path(__file__).parent.glob("*_rules.py"))
    assert set(re.findall(r'"([A-Z]\d\d)"', source)) == {rule for rule, _, _ in MUTATIONS}


def test_a_line_that_is_not_json_breaks_a_rule() -> None:
    assert [finding.rule for finding in lint_file("not json\n[]\n")] == ["I02", "I02"]


def test_a_lens_table_hides_the_column_that_only_orders_it(files: dict[str, str]) -> None:
    drawn = by_id(loaded(files[LENS]), object_id("lens", "families"))["attributes"]["state"]["visualization"]
    assert [column["columnId"] for column in drawn["columns"] if column.get("hidden")] == [ORDER]


def test_id_columns_have_a_width_and_the_number_of_ids_does_not(files: dict[str, str]) -> None:
    dashboard = by_id(loaded(files[CLASSIC]), DASHBOARD)["attributes"]
    widths = [
        panel["embeddableConfig"].get("vis", {}).get("columnsWidth") for panel in json.loads(dashboard["panelsJSON"])
    ]
    failures, notices, families = (found for found in widths if found)
    assert [one["colIndex"] for one in failures] == [1, 3, 4, 5, 6, 7, 8]  # not the family and its number of tasks
    assert [one["colIndex"] for one in notices] == [0, 1, 2, 4, 5]  # the message has the rest
    assert [one["colIndex"] for one in families] == [5, 7]  # longest, latest task


def contrast(colour: str, background: str) -> float:
    """The ratio of WCAG."""
    low, high = sorted(map(luminance, (colour, background)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@by_key
def test_colours_are_readable_in_light_and_in_dark_mode(panel: Panel) -> None:
    """Numbers are text. Bars and lines next to each other may be lighter than text on a white background."""
    if panel.kind == "number":
        drawn, least_on_white = [colour for *_, colour in panel.bands], 3.0
    else:
        drawn = [case.colour for case in panel.cases]
        drawn += [metric.colour for metric in panel.metrics if metric.colour is not None]
        least_on_white = 1.5
    for colour in drawn:
        assert contrast(colour, "#1d1e24") >= 2.5, colour
        assert contrast(colour, "#ffffff") >= least_on_white, colour


def test_the_headings_of_the_newest_runs_are_not_cut(files: dict[str, str]) -> None:
    """Kibana draws the type of the field before a heading, and a menu after it."""
    search = by_id(loaded(files[LENS]), object_id("search", "newest-runs"))["attributes"]
    labels = json.loads(by_id(loaded(files[LENS]), REPORTS)["attributes"]["fieldAttrs"])
    widths = {column: entry["width"] for column, entry in search["grid"]["columns"].items() if column in labels}
    assert widths
    assert all(width >= 52 + 7.5 * len(labels[column]["customLabel"]) for column, width in widths.items())


def test_all_panels_of_a_dashboard_have_their_rows_in_one_order() -> None:
    for dashboard in DASHBOARDS:
        orders = {
            (terms.order_by or terms.is_by_count)
            for panel in dashboard.charts
            for terms in panel.terms
            if terms.field == "task.family" and panel.kind in {"heatmap", "ranking"}
        }
        assert len(orders) <= 1, dashboard.key


def test_the_columns_of_a_row_are_of_one_document(files: dict[str, str]) -> None:
    """A filter on one column would take its value from an older document."""
    for one in loaded(files[LENS]):
        if one["type"] == "lens":
            layers = one["attributes"]["state"]["datasourceStates"]["indexpattern"]["layers"].values()
            columns = [column for layer in layers for column in layer["columns"].values()]
            assert not [column for column in columns if column["operationType"] == "last_value" and "filter" in column]
