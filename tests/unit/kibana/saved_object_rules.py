"""Lint rules for a file of saved objects.

Kibana and OpenSearch Dashboards import some files that they then cannot draw, or that break the dashboards. These
rules find such files. The letter of a rule is its subject: I = envelope, J = JSON in strings, R = references,
D = dashboards, L = Lens, A = classic aggregations, H = heatmaps. ``display_rules.py`` has the rules for what a reader
sees.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kibana.dashboard_model import Json
from tests.unit.kibana.display_rules import Finding, lint_display

__all__ = ["Finding", "lint_file"]

_UUID_VERSION = 5
_GRID_COLUMNS = 48
_ENVELOPE = {"type": str, "id": str, "attributes": dict, "references": list}
_ATTRIBUTES: Final[Mapping[str, frozenset[str]]] = {
    "index-pattern": frozenset({"title", "timeFieldName", "fields", "fieldFormatMap", "fieldAttrs", "name"}),
    "visualization": frozenset(
        {"title", "description", "version", "kibanaSavedObjectMeta", "uiStateJSON", "visState", "savedSearchRefName"}
    ),
    "search": frozenset(
        {"title", "description", "hits", "columns", "sort", "grid", "version", "kibanaSavedObjectMeta"}
    ),
    "lens": frozenset({"title", "description", "visualizationType", "state"}),
    "dashboard": frozenset(
        {"title", "description", "kibanaSavedObjectMeta", "timeRestore", "timeFrom", "timeTo", "refreshInterval"}
        | {"panelsJSON", "optionsJSON", "hits", "version", "controlGroupInput"}
    ),
}
_JSON_STRINGS: Final = (
    "fields",
    "fieldFormatMap",
    "fieldAttrs",
    "visState",
    "uiStateJSON",
    "panelsJSON",
    "optionsJSON",
)
# The newest migration versions that the oldest supported product of each flavour knows.
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
    "lens": (7, 16, 0),
    "dashboard": (7, 16, 0),
}
_CORE_VERSION: Final = (7, 16, 0)
_MAX_PERCENT = 100
_MAX_HEATMAP_ROWS = 25
_CLASSIC_HEATMAP_PARAMS = (
    *("type", "addTooltip", "addLegend", "enableHover", "legendPosition", "times", "colorsNumber", "colorSchema"),
    *("setColorRange", "colorsRange", "invertColors", "percentageMode", "valueAxes"),
)


def lint_file(text: str) -> list[Finding]:
    """Check the text of a file. Returns an empty list if the file follows all rules."""
    problems: list[Finding] = []
    objects: list[Json] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            obj = json.loads(line)
        except ValueError:
            obj = None
        if isinstance(obj, dict) and all(isinstance(obj.get(key), kind) for key, kind in _ENVELOPE.items()):
            objects.append(obj)
        else:
            problems.append(
                Finding("I02", f"Line {number} is not a saved object with type, id, attributes and references.")
            )
    is_lens = any(obj["type"] == "lens" for obj in objects)
    problems += _duplicates(objects)
    problems += _repeated_panels(objects)
    known = {(obj["type"], obj["id"]) for obj in objects}
    for obj in objects:
        problems += _envelope(obj, is_lens=is_lens)
        problems += _content(obj, known)
    if not any(finding.rule in {"J01", "R01"} for finding in problems):  # the other rules parse these parts
        problems += lint_display(objects, is_lens=is_lens)
    return problems


def _content(obj: Json, known: set[tuple[str, str]]) -> Iterator[Finding]:
    broken = list(_json_strings(obj))
    yield from broken
    if broken:  # the other rules parse these strings
        return
    yield from _references(obj, known)
    if obj["type"] == "index-pattern":
        yield from _data_view(obj)
    elif obj["type"] == "dashboard":
        yield from _dashboard(obj)
    elif obj["type"] == "visualization":
        yield from _visualization(obj)
    elif obj["type"] == "lens":
        yield from _lens(obj)


def _duplicates(objects: Sequence[Json]) -> Iterator[Finding]:
    counts = Counter((obj["type"], obj["id"]) for obj in objects)
    for (kind, identity), count in counts.items():
        if count > 1:
            yield Finding("I01", f"{kind} {identity} is in the file {count} times; the server rejects the whole file.")


def _repeated_panels(objects: Sequence[Json]) -> Iterator[Finding]:
    """Kibana shows the panels of the dashboard before, if the next one has panels with the same ids."""
    first: dict[str, str] = {}
    for obj in objects:
        for panel in _panels(obj) if obj["type"] == "dashboard" else ():
            if first.setdefault(str(panel.get("panelIndex")), obj["id"]) != obj["id"]:
                yield Finding("D06", f"{_name(obj)} has a panel with the id of a panel on another dashboard.")


def _panels(dashboard: Json) -> list[Json]:
    try:
        panels: list[Json] = json.loads(dashboard["attributes"].get("panelsJSON", "[]"))
    except (TypeError, ValueError):  # J01
        return []
    return panels


def _envelope(obj: Json, *, is_lens: bool) -> Iterator[Finding]:
    kind, name = obj["type"], _name(obj)
    allowed = _LENS_VERSIONS if is_lens else _CLASSIC_VERSIONS
    if kind not in allowed:
        yield Finding("I03", f"{name} has a type that the products of this file do not support.")
        return
    if unknown := sorted(set(obj["attributes"]) - _ATTRIBUTES[kind]):
        yield Finding("I05", f"{name} has attributes that the strict mapping rejects: {', '.join(unknown)}.")
    version = _version(obj.get("migrationVersion", {}).get(kind))
    core = obj.get("coreMigrationVersion")
    if version is None:
        yield Finding("I04", f"{name} has no migrationVersion: the product would run all migrations on it.")
    elif version > allowed[kind] or (core is not None and (_version(core) or _CORE_VERSION) > _CORE_VERSION):
        yield Finding("I06", f"{name} is newer than the oldest product, which rejects the whole file.")
    if core is not None and not is_lens:
        yield Finding("I06", f"{name} has a coreMigrationVersion, which OpenSearch Dashboards rejects.")
    if not _is_stable_id(obj["id"]):
        yield Finding("I07", f"{name} has an id that is not a version 5 UUID.")


def _version(text: object) -> tuple[int, ...] | None:
    if isinstance(text, str) and re.fullmatch(r"\d+\.\d+\.\d+", text):
        return tuple(int(part) for part in text.split("."))
    return None


def _is_stable_id(text: str) -> bool:
    try:
        return UUID(text).version == _UUID_VERSION
    except ValueError:
        return False


def _json_strings(obj: Json) -> Iterator[Finding]:
    attributes = obj["attributes"]
    members = {key: attributes[key] for key in _JSON_STRINGS if key in attributes}
    if "controlGroupInput" in attributes:
        members["controlGroupInput"] = attributes["controlGroupInput"].get("panelsJSON")
    if obj["type"] in {"visualization", "dashboard", "search"}:
        meta = attributes.get("kibanaSavedObjectMeta")
        members["searchSourceJSON"] = meta.get("searchSourceJSON") if isinstance(meta, dict) else None
    for key, text in members.items():
        try:
            json.loads(text)
        except (TypeError, ValueError):
            yield Finding("J01", f"{_name(obj)}: {key} is not a string of JSON.")


def _references(obj: Json, known: set[tuple[str, str]]) -> Iterator[Finding]:
    name = _name(obj)
    try:
        targets = {entry["name"]: (entry["type"], entry["id"]) for entry in obj["references"]}
    except (KeyError, TypeError):
        yield Finding("R01", f"{name} has a reference without name, type or id.")
        return
    if len(targets) != len(obj["references"]):
        yield Finding("R01", f"{name} has two references with the same name.")
    for kind, identity in targets.values():
        if (kind, identity) not in known:
            rule = "R02" if kind == "index-pattern" else "R03"
            yield Finding(rule, f"{name} refers to the {kind} {identity}, which is not in the file.")
    used = _used_names(obj)
    for missing in sorted(used - set(targets)):
        yield Finding("R04", f"{name} uses the reference {missing}, which it does not declare.")
    for unused in sorted(set(targets) - used):
        yield Finding("R05", f"{name} declares the reference {unused}, which it does not use.")


def _used_names(obj: Json) -> set[str]:
    attributes = obj["attributes"]
    if obj["type"] == "lens":
        layers = attributes.get("state", {}).get("datasourceStates", {}).get("indexpattern", {}).get("layers", {})
        own = {f"indexpattern-datasource-layer-{layer}" for layer in layers}
        return own | {"indexpattern-datasource-current-indexpattern"} | set(_ref_names(attributes))
    parts = [json.loads(attributes.get("kibanaSavedObjectMeta", {}).get("searchSourceJSON", "{}"))]
    parts.append(json.loads(attributes.get("visState", "{}")))
    used = {name for part in parts for name in _ref_names(part)}
    controls = json.loads(attributes.get("controlGroupInput", {}).get("panelsJSON", "{}"))
    used |= {f"controlGroup_{identity}:optionsListDataView" for identity in controls}
    is_prefixed = obj.get("coreMigrationVersion") is not None  # since 7.11
    for panel in json.loads(attributes.get("panelsJSON", "[]")):
        prefix = f"{panel.get('panelIndex')}:" if is_prefixed else ""
        used |= {f"{prefix}{name}" for name in _ref_names(panel)}
    return used


def _ref_names(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key.endswith("RefName") and isinstance(inner, str):
                yield inner
            else:
                yield from _ref_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _ref_names(inner)


def _data_view(obj: Json) -> Iterator[Finding]:
    """Kibana 7.14 added precise durations, so every Kibana that reads the Lens file (7.16) supports them."""
    formats = json.loads(obj["attributes"].get("fieldFormatMap", "{}"))
    outputs = {entry.get("params", {}).get("outputFormat") for entry in formats.values()}
    if "humanizePrecise" in outputs and obj.get("coreMigrationVersion") is None:
        yield Finding("I08", f"{_name(obj)} has a field format that makes OpenSearch Dashboards fail to draw.")


def _dashboard(obj: Json) -> Iterator[Finding]:
    name = _name(obj)
    taken: set[tuple[int, int]] = set()
    source = json.loads(obj["attributes"].get("kibanaSavedObjectMeta", {}).get("searchSourceJSON", "{}"))
    if source.get("filter") or (
        obj.get("coreMigrationVersion") is not None and "controlGroupInput" not in obj["attributes"]
    ):
        yield Finding("D05", f"{name} has no dropdown lists to filter it, or filters that the reader must edit.")
    for panel in json.loads(obj["attributes"].get("panelsJSON", "[]")):
        number, grid = panel.get("panelIndex"), panel.get("gridData", {})
        if number != grid.get("i"):
            yield Finding("D01", f"{name}: panel {number} and its position on the grid have different numbers.")
        if not panel.get("version"):
            yield Finding("D02", f"{name}: panel {number} has no version, so the migrations of 7.17 fail.")
        if "panelRefName" not in panel:
            yield Finding("D04", f"{name}: panel {number} has no visualization.")
        x, y, width, height = (grid.get(key, -1) for key in "xywh")
        cells = {(column, row) for column in range(x, x + width) for row in range(y, y + height)}
        if x < 0 or y < 0 or not cells or x + width > _GRID_COLUMNS or cells & taken:
            yield Finding("D03", f"{name}: panel {number} extends beyond the grid or covers another panel.")
        taken |= cells


def _name(obj: Json) -> str:
    """The name of a saved object in the sentences of findings."""
    return f"{obj['type']} {obj['attributes'].get('title', obj['id'])!r}"


def _visualization(obj: Json) -> Iterator[Finding]:
    """Rules for a classic visualization whose JSON strings are valid."""
    name = _name(obj)
    state = json.loads(obj["attributes"].get("visState", "{}"))
    aggregations, params = state.get("aggs", []), state.get("params", {})
    if state.get("type") in {"input_control_vis", "markdown"}:
        return
    if state.get("type") == "metrics":
        yield from _coloured_number(name, params)
        return
    identities = [entry["id"] for entry in aggregations]
    metrics = {entry["id"] for entry in aggregations if entry["schema"] == "metric"}
    if not metrics or len(set(identities)) != len(identities):
        yield Finding("A03", f"{name} has no metric, or two aggregations with the same id.")
    terms = [entry["params"] for entry in aggregations if entry["type"] == "terms"]
    orders = {one.get("orderBy") for one in terms if one.get("orderBy") != "custom" or "orderAgg" not in one}
    if not orders <= {*metrics, "_key"}:
        yield Finding("A01", f"{name} orders its terms neither by one of its metrics, nor by _key, nor by a count.")
    if not {series["data"]["id"] for series in params.get("seriesParams", ())} <= metrics:
        yield Finding("A02", f"{name} draws a series for a metric that it does not have.")
    if state.get("type") == "heatmap":
        yield from _classic_heatmap(name, aggregations, params)


def _coloured_number(name: str, params: Json) -> Iterator[Finding]:
    """TSVB names its indices, because it has no reference to a data view."""
    metrics = [metric for series in params.get("series", []) for metric in series.get("metrics", [])]
    ratios = [metric for metric in metrics if metric.get("type") == "filter_ratio"]
    is_complete = all(metric.get("numerator") and metric.get("denominator") for metric in ratios)
    if not metrics or not is_complete or not str(params.get("index_pattern")).endswith("-*"):
        yield Finding("A04", f"{name} is not a number, or a ratio of two queries, on the indices of the reports.")


def _classic_heatmap(name: str, aggregations: list[Json], params: Json) -> Iterator[Finding]:
    schemas = [entry["schema"] for entry in aggregations]
    if any(entry["params"]["size"] > _MAX_HEATMAP_ROWS for entry in aggregations if entry["type"] == "terms"):
        yield Finding("H09", f"{name} has more than {_MAX_HEATMAP_ROWS} rows: their names are not readable.")
    if sorted(schemas) != ["group", "metric", "segment"]:
        yield Finding("H01", f"{name} needs one metric, one group (rows) and one segment (time).")
    elif schemas.index("group") > schemas.index("segment"):
        yield Finding("H06", f"{name} has time before rows: each time bucket would have its own rows.")
    if missing := [key for key in _CLASSIC_HEATMAP_PARAMS if key not in params]:
        yield Finding("H02", f"{name} lacks {', '.join(missing)}, so the product does not draw it.")
    if not params.get("setColorRange") or not params.get("colorsRange") or params.get("percentageMode"):
        yield Finding("H04", f"{name} has colours relative to its data: 3 % can be red.")
    ranges = params.get("colorsRange", [])
    is_contiguous = [entry["to"] for entry in ranges[:-1]] == [entry["from"] for entry in ranges[1:]]
    if ranges and (not is_contiguous or ranges[-1]["to"] <= _MAX_PERCENT):
        yield Finding("H08", f"{name} does not draw some values: its colour ranges have gaps or end at or below 100.")


def _lens(obj: Json) -> Iterator[Finding]:
    """Rules for a Lens chart in the format of 7.16."""
    name, state = _name(obj), obj["attributes"].get("state", {})
    sources, drawing = state.get("datasourceStates", {}), state.get("visualization", {})
    layers = sources.get("indexpattern", {}).get("layers", {})
    lines = {key for key, content in layers.items() if _is_reference_line(content)}
    layers = {key: content for key, content in layers.items() if key not in lines}
    if set(sources) != {"indexpattern"} or len(layers) != 1 or "___records___" in json.dumps(layers):
        yield Finding("L01", f"{name} is not a single layer in the format of 7.16.")
        return
    ((layer, content),) = layers.items()
    columns, order = content.get("columns", {}), content.get("columnOrder", [])
    drawn = [part for part in drawing.get("layers", [drawing]) if part.get("layerId") not in lines]
    if any(part.get("layerId") != layer for part in drawn):
        yield Finding("L02", f"{name} draws a layer that it does not have.")
    if sorted(order) != sorted(columns):
        yield Finding("L03", f"{name} has a columnOrder that does not list its columns exactly once.")
    else:
        yield from _column_order(name, columns, order)
    is_heatmap = obj["attributes"].get("visualizationType") == "lnsHeatmap"
    if any(reference not in columns for column in columns.values() for reference in column.get("references", ())):
        yield Finding("L08", f"{name} has a formula of a column that it does not have.")
    accessors = {accessor for part in drawn for accessor in _accessors(part)}
    if not accessors or not accessors <= set(columns):
        yield Finding("H05" if is_heatmap else "L04", f"{name} draws no column, or a column that it does not have.")
    if is_heatmap:
        yield from _lens_heatmap(name, drawing, columns, order)
    elif obj["attributes"].get("visualizationType") == "lnsXY":
        yield from _lens_axis(name, drawing)


def _is_reference_line(layer: Json) -> bool:
    return all(column.get("operationType") == "static_value" for column in layer.get("columns", {}).values())


def _lens_axis(name: str, drawing: Json) -> Iterator[Finding]:
    if not drawing.get("yTitle") or drawing.get("axisTitlesVisibilitySettings", {}).get("yLeft") is not True:
        yield Finding("L10", f"{name} has an axis with the name of its first series.")
    has_bars = any(str(part.get("seriesType")).startswith("bar") for part in drawing.get("layers", ()))
    if has_bars and drawing.get("yLeftExtent", {}).get("lowerBound", 0) > 0:
        yield Finding("L11", f"{name} has bars that do not begin at 0, which Kibana refuses to draw.")


def _column_order(name: str, columns: Json, order: list[str]) -> Iterator[Finding]:
    for column in columns.values():
        if column.get("operationType") == "sum" and _has_zeros(column):
            yield Finding("L09", f"{name} shows a sum of money where no amount is known.")
    bucketed = [bool(columns[column].get("isBucketed")) for column in order]
    if bucketed != sorted(bucketed, reverse=True):
        yield Finding("L06", f"{name} has a metric before a bucket.")
    for column in columns.values():
        by = column.get("params", {}).get("orderBy", {})
        if by.get("type") == "column" and by.get("columnId") not in columns:
            yield Finding("L07", f"{name} orders its terms by a column that it does not have.")


def _accessors(part: Json) -> Iterator[str]:
    keys = ("accessor", "xAccessor", "yAccessor", "valueAccessor", "splitAccessor")
    yield from (part[key] for key in keys if key in part)
    yield from part.get("accessors", ())
    yield from (column["columnId"] for column in part.get("columns", ()))


def _lens_heatmap(name: str, drawing: Json, columns: Json, order: list[str]) -> Iterator[Finding]:
    if not drawing.get("legend") or not drawing.get("gridConfig"):
        yield Finding("H02", f"{name} has no legend or gridConfig: Kibana fails to draw it.")
    if missing := [key for key in ("xAccessor", "yAccessor", "valueAccessor") if key not in drawing]:
        yield Finding("H03", f"{name} has no {', '.join(missing)}.")
        return
    x, y = drawing["xAccessor"], drawing["yAccessor"]
    if columns.get(y, {}).get("params", {}).get("size", 0) > _MAX_HEATMAP_ROWS:
        yield Finding("H09", f"{name} has more than {_MAX_HEATMAP_ROWS} rows: their names are not readable.")
    if x in order and y in order and order.index(y) > order.index(x):
        yield Finding("H06", f"{name} has time before rows: each time bucket would have its own rows.")
    palette = drawing.get("palette", {})
    params = palette.get("params", {})
    if not _is_absolute(palette, params):
        yield Finding("H04", f"{name} has colours relative to its data: 3 % can be red.")
    if palette.get("accessor") != drawing["valueAccessor"] or drawing["valueAccessor"] not in columns:
        yield Finding("H05", f"{name} does not colour the column that it shows.")
    if _has_zeros(columns.get(drawing["valueAccessor"], {})):
        yield Finding("H10", f"{name} draws cells without documents as 0.")
    if not _are_stops_contiguous(params.get("colorStops", []), params.get("stops", [])):
        yield Finding("H07", f"{name} has colours whose lower and upper bounds are not contiguous.")


def _has_zeros(column: Json) -> bool:
    """A count or a sum of no documents is 0, unless the column says that it is nothing."""
    is_counted = column.get("operationType") in {"count", "unique_count", "sum"}
    return is_counted and column.get("params", {}).get("emptyAsNull") is not True


def _is_absolute(palette: Json, params: Json) -> bool:
    named = palette.get("name") == params.get("name") == "custom"
    first = (params.get("colorStops") or [{}])[0].get("stop")
    return named and params.get("rangeType") == "number" and params.get("rangeMin", -1) == first


def _are_stops_contiguous(lower: list[dict[str, Any]], upper: list[dict[str, Any]]) -> bool:
    same_colours = [obj.get("color") for obj in lower] == [obj.get("color") for obj in upper]
    return (
        bool(lower)
        and same_colours
        and [obj.get("stop") for obj in lower[1:]] == [obj.get("stop") for obj in upper[:-1]]
    )
