"""Rules for a file of saved objects: what the products import and then cannot draw, or draw wrongly."""

import json
from collections.abc import Iterator, Mapping
from typing import Final

from kibana.dashboard_model import Json
from kibana.panel_builders import OUTCOMES

# The strict mapping of a product rejects other attributes.
_ATTRIBUTES: Final[Mapping[str, set[str]]] = {
    "index-pattern": {"title", "timeFieldName", "fields", "fieldFormatMap", "fieldAttrs", "name"},
    "visualization": {"title", "description", "version", "kibanaSavedObjectMeta", "uiStateJSON", "visState"},
    "search": {"title", "description", "hits", "columns", "sort", "grid", "version", "kibanaSavedObjectMeta"},
    "lens": {"title", "description", "visualizationType", "state"},
    "dashboard": {"title", "description", "kibanaSavedObjectMeta", "timeRestore", "timeFrom", "timeTo", "version"}
    | {"refreshInterval", "panelsJSON", "optionsJSON", "hits", "controlGroupInput"},
}
# The newest formats that the oldest supported product of each flavour knows; it rejects a file with a newer one.
_CLASSIC_VERSIONS: Final = {
    "index-pattern": (7, 6, 0),
    "search": (7, 9, 3),
    "visualization": (7, 10, 0),
    "dashboard": (7, 9, 3),
}
_LENS_VERSIONS: Final = {
    "index-pattern": (7, 11, 0),
    "search": (7, 9, 3),
    "visualization": (7, 14, 0),
    "lens": (8, 1, 0),
    "dashboard": (7, 16, 0),
}
_CORE_VERSION: Final = (7, 16, 0)
_GRID_COLUMNS = 48
_MAX_HEATMAP_ROWS = 25
# Without one of them, OpenSearch Dashboards draws no heatmap.
_CLASSIC_HEATMAP_PARAMS: Final = {
    *("type", "addTooltip", "addLegend", "enableHover", "legendPosition", "times", "colorsNumber", "colorSchema"),
    *("setColorRange", "colorsRange", "invertColors", "percentageMode", "valueAxes"),
}
_OUTCOME_COLOURS: Final = {case.label: case.colour for case in OUTCOMES}


def broken_rules(text: str) -> list[str]:
    """A sentence for each object of the file that breaks a rule."""
    objects: list[Json] = [json.loads(line) for line in text.splitlines()]
    is_lens = any(one["type"] == "lens" for one in objects)
    known = {(one["type"], one["id"]) for one in objects}
    drawn = {one["id"]: json.loads(one["attributes"]["visState"]) for one in objects if one["type"] == "visualization"}
    return [
        f"{one['type']} {one['attributes']['title']!r} {problem}"
        for one in objects
        for problem in (*_envelope(one, known, is_lens=is_lens), *_content(one, drawn, is_lens=is_lens))
    ]


def _envelope(one: Json, known: set[tuple[str, str]], *, is_lens: bool) -> Iterator[str]:
    kind, core = one["type"], one.get("coreMigrationVersion")
    newest = (_LENS_VERSIONS if is_lens else _CLASSIC_VERSIONS).get(kind, ())
    if _version(one["migrationVersion"][kind]) > newest or (core and (not is_lens or _version(core) > _CORE_VERSION)):
        yield "is newer than the oldest product."
    if set(one["attributes"]) - _ATTRIBUTES[kind]:
        yield "has attributes that the strict mapping rejects."
    if not {(target["type"], target["id"]) for target in one["references"]} <= known:
        yield "refers to an object that is not in the file."


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def _content(one: Json, drawn: Mapping[str, Json], *, is_lens: bool) -> Iterator[str]:
    attributes = one["attributes"]
    if one["type"] == "index-pattern":
        yield from _data_view(attributes, is_lens=is_lens)
    elif one["type"] == "dashboard":
        yield from _dashboard(attributes)
        if not is_lens:
            yield from _classic_colours(one, drawn)
    elif one["type"] == "visualization" and drawn[one["id"]]["type"] == "heatmap":
        yield from _classic_heatmap(drawn[one["id"]])
    elif one["type"] == "lens":
        yield from _lens(attributes)


def _data_view(attributes: Json, *, is_lens: bool) -> Iterator[str]:
    formats = json.loads(attributes["fieldFormatMap"])
    outputs = {one["params"]["outputFormat"] for one in formats.values() if one["id"] == "duration"}
    if not outputs <= ({"humanizePrecise"} if is_lens else {"asMinutes"}):
        yield "has durations that the product cannot draw, or that are hard to read."
    link = formats["task.id"]["params"]["urlTemplate"]
    if not link.startswith("../app/dashboards#/view/") or "time:" not in link or "{{value}}" not in link:
        yield "has task ids without a link to the run at its time."


def _dashboard(attributes: Json) -> Iterator[str]:
    if not (attributes["timeRestore"] and attributes["timeFrom"].startswith("now-") and attributes["timeTo"] == "now"):
        yield "would show the last 15 minutes."
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(attributes["panelsJSON"]):
        x, y, width, height = (panel["gridData"][key] for key in "xywh")
        cells = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        if x + width > _GRID_COLUMNS or cells & taken:
            yield "has a panel that leaves the grid or covers another one."
        taken |= cells


def _classic_colours(dashboard: Json, drawn: Mapping[str, Json]) -> Iterator[str]:
    """OpenSearch Dashboards takes colours from the dashboard only. A label without one changes its colour."""
    targets = {entry["name"]: entry["id"] for entry in dashboard["references"]}
    for panel in json.loads(dashboard["attributes"]["panelsJSON"]):
        state = drawn.get(targets[panel["panelRefName"]], {})
        colours = panel["embeddableConfig"].get("vis", {}).get("colors", {})
        filters = [one["params"]["filters"] for one in state.get("aggs", ()) if one["type"] == "filters"]
        labels = [one["label"] for part in filters for one in part]
        labels += [f"{one['from']:,} - {one['to']:,}" for one in state.get("params", {}).get("colorsRange", ())]
        wanted = {label: _OUTCOME_COLOURS.get(label, colours.get(label)) for label in labels}
        if None in wanted.values() or not wanted.items() <= colours.items():
            yield f"has no fixed colours of {state['title']!r}."


def _classic_heatmap(state: Json) -> Iterator[str]:
    schemas = [one["schema"] for one in state["aggs"]]
    params, ranges = state["params"], state["params"]["colorsRange"]
    if schemas != ["metric", "group", "segment"]:
        yield "has time before rows, so that each time would have rows of its own."
    if any(one["params"]["size"] > _MAX_HEATMAP_ROWS for one in state["aggs"] if one["type"] == "terms"):
        yield "has too many rows: their names are not readable."
    if not params.keys() >= _CLASSIC_HEATMAP_PARAMS:
        yield "is not drawn."
    if not params["setColorRange"] or params["percentageMode"]:
        yield "has colours relative to its data: 3 % can be red."
    if [one["to"] for one in ranges[:-1]] != [one["from"] for one in ranges[1:]] or ranges[-1]["to"] <= 100:
        yield "does not draw some values."


def _lens(attributes: Json) -> Iterator[str]:
    state, kind = attributes["state"], attributes["visualizationType"]
    drawing = state["visualization"]
    for layer in state["datasourceStates"]["indexpattern"]["layers"].values():
        columns = [layer["columns"][name] for name in layer["columnOrder"]]
        bucketed = [column["isBucketed"] for column in columns]
        if bucketed != sorted(bucketed, reverse=True):
            yield "has a metric before a bucket."
        if any(column["operationType"] == "sum" and not _is_empty_as_null(column) for column in columns):
            yield "shows a sum of money where no amount is known."
        if kind == "lnsHeatmap":
            yield from _lens_heatmap(drawing, layer)
    if kind == "lnsXY":
        bars = any(part.get("seriesType", "").startswith("bar") for part in drawing["layers"])
        if bars and drawing.get("yLeftExtent", {}).get("lowerBound", 0) > 0:
            yield "has bars that do not begin at 0, which Kibana refuses to draw."


def _lens_heatmap(drawing: Json, layer: Json) -> Iterator[str]:
    order, palette = layer["columnOrder"], drawing["palette"]
    colours = palette["params"]
    if not drawing.get("legend") or not drawing.get("gridConfig"):
        yield "is not drawn."
    if order.index(drawing["yAccessor"]) > order.index(drawing["xAccessor"]):
        yield "has time before rows, so that each time would have rows of its own."
    if layer["columns"][drawing["yAccessor"]]["params"]["size"] > _MAX_HEATMAP_ROWS:
        yield "has too many rows: their names are not readable."
    if palette["name"] != "custom" or colours["name"] != "custom" or colours["rangeType"] != "number":
        yield "has colours relative to its data: 3 % can be red."
    if [one["stop"] for one in colours["colorStops"][1:]] != [one["stop"] for one in colours["stops"][:-1]]:
        yield "does not draw some values."
    value = layer["columns"][drawing["valueAccessor"]]
    if value["operationType"] in {"count", "unique_count", "sum"} and not _is_empty_as_null(value):
        yield "draws cells without documents as 0."


def _is_empty_as_null(column: Json) -> bool:
    return column.get("params", {}).get("emptyAsNull") is True
