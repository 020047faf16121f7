"""The lint's rules over single charts: Lens, classic visualizations, and the heatmaps of both."""

import json
from collections.abc import Iterator
from typing import Any

from kibana.lint_finding import Finding, Json, name_of

_MOST_PERCENT = 100
_CLASSIC_HEATMAP_PARAMS = (
    *("type", "addTooltip", "addLegend", "enableHover", "legendPosition", "times", "colorsNumber", "colorSchema"),
    *("setColorRange", "colorsRange", "invertColors", "percentageMode", "valueAxes"),
)


def classic_findings(one: Json) -> Iterator[Finding]:
    """Rules over a visualization; its JSON strings are known to be JSON."""
    name = name_of(one)
    state = json.loads(one["attributes"].get("visState", "{}"))
    aggregations, params = state.get("aggs", []), state.get("params", {})
    if state.get("type") == "input_control_vis":
        return
    identities = [entry["id"] for entry in aggregations]
    metrics = {entry["id"] for entry in aggregations if entry["schema"] == "metric"}
    if not metrics or len(set(identities)) != len(identities):
        yield Finding("A03", f"{name} has no metric, or two aggregations of one id.")
    orders = {entry["params"].get("orderBy") for entry in aggregations if entry["type"] == "terms"}
    if not orders <= {*metrics, "_key"}:
        yield Finding("A01", f"{name} orders its terms by something that is neither a metric of its own nor _key.")
    if not {series["data"]["id"] for series in params.get("seriesParams", ())} <= metrics:
        yield Finding("A02", f"{name} draws a series of a metric that it does not have.")
    if state.get("type") == "heatmap":
        yield from _classic_heatmap(name, aggregations, params)


def _classic_heatmap(name: str, aggregations: list[Json], params: Json) -> Iterator[Finding]:
    schemas = [entry["schema"] for entry in aggregations]
    if sorted(schemas) != ["group", "metric", "segment"]:
        yield Finding("H01", f"{name} needs one metric, one group (rows) and one segment (time).")
    elif schemas.index("group") > schemas.index("segment"):
        yield Finding("H06", f"{name} has time before rows: each moment would have rows of its own.")
    if missing := [key for key in _CLASSIC_HEATMAP_PARAMS if key not in params]:
        yield Finding("H02", f"{name} lacks {', '.join(missing)}, without which it is not drawn.")
    if not params.get("setColorRange") or not params.get("colorsRange") or params.get("percentageMode"):
        yield Finding("H04", f"{name} has colours relative to its data: 3 % can look red.")
    ranges = params.get("colorsRange", [])
    meet = [entry["to"] for entry in ranges[:-1]] == [entry["from"] for entry in ranges[1:]]
    if ranges and (not meet or ranges[-1]["to"] <= _MOST_PERCENT):
        yield Finding("H08", f"{name} does not draw some values, such as 100: its colours have gaps or an end.")


def lens_findings(one: Json) -> Iterator[Finding]:
    """Rules over a Lens chart in the dialect of 7.16."""
    name, state = name_of(one), one["attributes"].get("state", {})
    sources, drawing = state.get("datasourceStates", {}), state.get("visualization", {})
    layers = sources.get("indexpattern", {}).get("layers", {})
    if set(sources) != {"indexpattern"} or len(layers) != 1 or "___records___" in json.dumps(layers):
        yield Finding("L01", f"{name} is not one layer in the dialect of 7.16.")
        return
    ((layer, content),) = layers.items()
    columns, order = content.get("columns", {}), content.get("columnOrder", [])
    drawn = drawing.get("layers", [drawing])
    if any(part.get("layerId") != layer for part in drawn):
        yield Finding("L02", f"{name} draws a layer that it does not have.")
    if sorted(order) != sorted(columns):
        yield Finding("L03", f"{name} has a columnOrder that is not the list of its columns.")
    else:
        yield from _column_order(name, columns, order)
    is_heatmap = one["attributes"].get("visualizationType") == "lnsHeatmap"
    accessors = {accessor for part in drawn for accessor in _accessors(part)}
    if not accessors or not accessors <= set(columns):
        yield Finding("H05" if is_heatmap else "L04", f"{name} draws a column that it does not have, or none.")
    if is_heatmap:
        yield from _lens_heatmap(name, drawing, columns, order)


def _column_order(name: str, columns: Json, order: list[str]) -> Iterator[Finding]:
    bucketed = [bool(columns[column].get("isBucketed")) for column in order]
    if bucketed != sorted(bucketed, reverse=True):
        yield Finding("L06", f"{name} has a metric before a bucket.")
    for column in columns.values():
        by = column.get("params", {}).get("orderBy", {})
        if by.get("type") == "column" and by.get("columnId") not in columns:
            yield Finding("L07", f"{name} orders its terms by a column that it does not have.")


def _accessors(part: Json) -> Iterator[str]:
    yield from (part[key] for key in ("xAccessor", "yAccessor", "valueAccessor", "splitAccessor") if key in part)
    yield from part.get("accessors", ())
    yield from (column["columnId"] for column in part.get("columns", ()))


def _lens_heatmap(name: str, drawing: Json, columns: Json, order: list[str]) -> Iterator[Finding]:
    if not drawing.get("legend") or not drawing.get("gridConfig"):
        yield Finding("H02", f"{name} has no legend or gridConfig: drawing it throws.")
    if missing := [key for key in ("xAccessor", "yAccessor", "valueAccessor") if key not in drawing]:
        yield Finding("H03", f"{name} has no {', '.join(missing)}.")
        return
    x, y = drawing["xAccessor"], drawing["yAccessor"]
    if x in order and y in order and order.index(y) > order.index(x):
        yield Finding("H06", f"{name} has time before rows: each moment would have rows of its own.")
    palette = drawing.get("palette", {})
    params = palette.get("params", {})
    if not _is_absolute(palette, params):
        yield Finding("H04", f"{name} has colours relative to its data: 3 % can look red.")
    if palette.get("accessor") != drawing["valueAccessor"] or drawing["valueAccessor"] not in columns:
        yield Finding("H05", f"{name} colours another column than the one it shows.")
    if not _stops_fit(params.get("colorStops", []), params.get("stops", [])):
        yield Finding("H07", f"{name} has colours whose lower and upper bounds do not meet.")


def _is_absolute(palette: Json, params: Json) -> bool:
    named = palette.get("name") == params.get("name") == "custom"
    return named and params.get("rangeType") == "number" and params.get("rangeMin") == 0


def _stops_fit(lower: list[dict[str, Any]], upper: list[dict[str, Any]]) -> bool:
    same_colours = [one.get("color") for one in lower] == [one.get("color") for one in upper]
    return (
        bool(lower)
        and same_colours
        and [one.get("stop") for one in lower[1:]] == [one.get("stop") for one in upper[:-1]]
    )
