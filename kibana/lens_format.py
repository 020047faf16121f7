"""Lens charts in the format of 7.16. Kibana 7.16 and 7.17 read it directly; Kibana 8 and 9 migrate it."""

from collections.abc import Iterator
from typing import Final, get_args

from kibana.aggregations import ORDER, hidden_order
from kibana.all_dashboards import DASHBOARDS, SEARCHES
from kibana.conditions import kql
from kibana.dashboard_model import (
    COLUMN_WIDTHS,
    ELAPSED_FIELD,
    LIMIT_COLOUR,
    SHORTEST_DURATION_MS,
    TIME_FIELD,
    Dashboard,
    Index,
    Json,
    Metric,
    Panel,
    Terms,
)
from kibana.dropdown_lists import lens_controls
from kibana.saved_objects import (
    NAVIGATION_HEIGHT,
    dashboard_object,
    data_view,
    data_view_reference,
    navigation,
    navigation_position,
    object_id,
    place_panels,
    saved_object,
    saved_search,
)

MIGRATION_VERSIONS: Final = {
    "core": "7.16.0",
    "index-pattern": "7.11.0",
    "search": "7.9.3",
    "visualization": "7.14.0",
    "lens": "7.16.0",
    "dashboard": "7.16.0",
}
_PANEL_VERSION = "7.16.0"
_TIME_COLUMN = "time"
_LIMIT_COLUMN = "limit"
_TYPES = {
    "number": "lnsMetric",
    "line": "lnsXY",
    "bars": "lnsXY",
    "ranking": "lnsXY",
    "heatmap": "lnsHeatmap",
    "table": "lnsDatatable",
}
_SERIES = {"line": "line", "bars": "bar_stacked", "ranking": "bar_horizontal"}
_OPERATIONS = {
    "count_distinct": "unique_count",
    "average": "average",
    "sum": "sum",
    "max": "max",
    "percentile": "percentile",
    "latest": "last_value",
}
# Lens requires the data type of a last value; the default here is "string".
_LATEST_TYPES = {TIME_FIELD: "date", "event.start": "date", "task.exit_code": "number"}


def build_lens_objects() -> Iterator[Json]:
    """Yield the lines of the file: data views, then charts, then dashboards.

    An object follows the objects that it refers to.
    """
    for index in get_args(Index):
        yield data_view(index, MIGRATION_VERSIONS, is_lens=True)
    yield from (saved_search(search, MIGRATION_VERSIONS) for search in SEARCHES)
    yield navigation(DASHBOARDS, SEARCHES, MIGRATION_VERSIONS)
    for dashboard in DASHBOARDS:
        yield from (_chart(panel) for panel in dashboard.charts)
    yield from (_dashboard(dashboard) for dashboard in DASHBOARDS)


def _dashboard(dashboard: Dashboard) -> Json:
    controls = [(object_id("control", f"{dashboard.key}/{control.field}"), control) for control in dashboard.controls]
    return dashboard_object(
        dashboard,
        (navigation_position(dashboard), *place_panels(dashboard, "lens", top=NAVIGATION_HEIGHT)),
        panel_version=_PANEL_VERSION,
        has_panel_prefix=True,
        migration_versions=MIGRATION_VERSIONS,
        more_attributes={"controlGroupInput": lens_controls(controls)},
        references=[
            data_view_reference(f"controlGroup_{identity}:optionsListDataView", "reports") for identity, _ in controls
        ],
    )


def _chart(panel: Panel) -> Json:
    layer = object_id("layer", panel.key)
    references = [
        data_view_reference("indexpattern-datasource-current-indexpattern", panel.index),
        data_view_reference(f"indexpattern-datasource-layer-{layer}", panel.index),
    ]
    columns = dict(_columns(panel))
    layers = {layer: {"columns": columns, "columnOrder": list(columns), "incompleteColumns": {}}}
    if panel.limit is not None:
        limit, limit_columns = _limit_layer(panel)
        layers[limit] = limit_columns
        references.append(data_view_reference(f"indexpattern-datasource-layer-{limit}", panel.index))
    attributes = {
        "title": panel.title,
        "description": panel.description,
        "visualizationType": _TYPES[panel.kind],
        "state": {
            "datasourceStates": {"indexpattern": {"layers": layers}},
            "visualization": _visualization(panel, layer),
            "query": {"query": kql(panel.condition), "language": "kuery"},
            "filters": [],
        },
    }
    return saved_object("lens", object_id("lens", panel.key), attributes, references, MIGRATION_VERSIONS)


def _metric_column(number: int) -> str:
    return f"metric-{number}"


def _terms_column(number: int) -> str:
    return f"rows-{number}"


def _columns(panel: Panel) -> Iterator[tuple[str, Json]]:
    """Yield terms, then time, then metrics: the order of buckets is their nesting."""
    for number, terms in enumerate(panel.terms):
        yield _terms_column(number), _terms(terms)
    if panel.has_time_axis:
        yield (
            _TIME_COLUMN,
            {
                "label": TIME_FIELD,
                "dataType": "date",
                "operationType": "date_histogram",
                "sourceField": TIME_FIELD,
                "isBucketed": True,
                "scale": "interval",
                "params": {"interval": "auto"},
            },
        )
    for number, metric in enumerate(panel.metrics):
        if metric.share_of is not None:
            yield from _ratio(_metric_column(number), metric)
        else:
            yield from _by_case(_metric_column(number), metric, panel)
    order = next((found for terms in panel.terms if (found := hidden_order(terms)) is not None), None)
    if order is not None:  # Lens orders terms only by a column
        yield ORDER, _metric(order, panel)


def _by_case(name: str, metric: Metric, panel: Panel) -> Iterator[tuple[str, Json]]:
    """One column for each case, so that each can have its colour in every version."""
    if not panel.cases:
        yield name, _metric(metric, panel)
    for number, case in enumerate(panel.cases):
        condition = {"query": kql(case.condition), "language": "kuery"}
        yield f"{name}-case-{number}", {**_metric(metric, panel), "label": case.label, "filter": condition}


def _count(label: str) -> Json:
    return {
        "label": label,
        "customLabel": True,
        "dataType": "number",
        "operationType": "count",
        "sourceField": "Records",
        "isBucketed": False,
        "scale": "ratio",
    }


def _ratio(name: str, metric: Metric) -> Iterator[tuple[str, Json]]:
    """A formula, with the columns that it is calculated from, as the formula editor saves them."""
    condition = kql(metric.share_of)
    part, whole, result = f"{name}X0", f"{name}X1", f"{name}X2"
    operation = _OPERATIONS[metric.operation]
    formula = f"{operation}({metric.field}, kql='{condition}') / {operation}({metric.field})"
    number = {"dataType": "number", "isBucketed": False, "scale": "ratio", "customLabel": True}
    divide = {
        "type": "function",
        "name": "divide",
        "args": [part, whole],
        "location": {"min": 0, "max": len(formula)},
        "text": formula,
    }
    shown = {"id": "percent", "params": {"decimals": 1}}
    yield (
        name,
        {
            **number,
            "label": metric.label,
            "operationType": "formula",
            "params": {"formula": formula, "isFormulaBroken": False, "format": shown},
            "references": [result],
        },
    )
    counted = {**number, "label": f"Part of {metric.label}", "operationType": operation, "sourceField": metric.field}
    yield part, {**counted, "filter": {"query": condition, "language": "kuery"}}
    yield whole, counted
    yield (
        result,
        {
            **number,
            "label": f"Part of {metric.label}",
            "operationType": "math",
            "params": {"tinymathAst": divide},
            "references": [part, whole],
        },
    )


def _terms(terms: Terms) -> Json:
    if hidden_order(terms) is not None:
        order = {"type": "column", "columnId": ORDER}
    elif terms.order_by_metric is not None:
        order = {"type": "column", "columnId": _metric_column(terms.order_by_metric)}
    else:
        order = {"type": "alphabetical"}
    is_checkpoint = terms.field == TIME_FIELD  # Lens has terms of numbers, but none of times
    return {
        "label": terms.label,
        "customLabel": True,
        "dataType": "number" if is_checkpoint else "string",
        "operationType": "terms",
        "sourceField": ELAPSED_FIELD if is_checkpoint else terms.field,
        "isBucketed": True,
        "scale": "ordinal",
        "params": {
            "size": terms.size,
            "orderBy": order,
            "orderDirection": "asc" if order["type"] == "alphabetical" else "desc",
            # Lens omits the missing bucket without an "other" bucket, which would be a second run in a chart of one.
            "otherBucket": terms.has_other_bucket or (terms.has_missing_bucket and terms.size > 1),
            "missingBucket": terms.has_missing_bucket,
        },
    }


def _metric(metric: Metric, panel: Panel) -> Json:
    if metric.operation == "count":
        return _count(metric.label)
    column: Json = {
        "label": metric.label,
        "customLabel": True,
        "dataType": "number",
        "operationType": _OPERATIONS[metric.operation],
        "sourceField": metric.field,
        "isBucketed": False,
        "scale": "ratio",
    }
    if metric.operation == "percentile":
        return {**column, "params": {"percentile": metric.percent}}
    if metric.operation == "sum" or (metric.operation == "count_distinct" and panel.kind == "heatmap"):
        # Kibana 8.2 and later: no documents are an empty cell, and not a 0
        return {**column, "params": {"emptyAsNull": True}}
    if metric.operation == "latest":
        kind = _LATEST_TYPES.get(metric.field, "string")
        scale = {"string": "ordinal", "date": "interval"}.get(kind, "ratio")
        # Without a filter, all columns of a row are of the same document.
        return {**column, "dataType": kind, "scale": scale, "params": {"sortField": TIME_FIELD}}
    return {**column, "dataType": "date"} if metric.field == TIME_FIELD else column


def _visualization(panel: Panel, layer: str) -> Json:
    match panel.kind:
        case "number":
            return _number(panel, layer)
        case "heatmap":
            return _heatmap(panel, layer)
        case "table":
            columns = [_table_column(name, column) for name, column in _columns(panel)]
            return {"layerId": layer, "layerType": "data", "columns": columns}
        case "line" | "bars" | "ranking":
            return _xy(panel, layer)


def _table_column(name: str, column: Json) -> Json:
    is_number = column["dataType"] == "number"
    width = None if is_number else COLUMN_WIDTHS.get(str(column["sourceField"]))
    return {
        "columnId": name,
        "isTransposed": False,
        **({"width": width} if width is not None else {}),
        **({"hidden": True} if name == ORDER else {}),
    }


def _colours(panel: Panel) -> Iterator[tuple[str, str]]:
    """The colour of each column of a chart in which each series is a column."""
    for number, case in enumerate(panel.cases):
        yield f"{_metric_column(0)}-case-{number}", case.colour
    if not panel.cases and (not panel.terms or not panel.has_time_axis):
        for number, metric in enumerate(panel.metrics):
            if metric.colour is not None:
                yield _metric_column(number), metric.colour


def _xy(panel: Panel, layer: str) -> Json:
    shown = {"x": True, "yLeft": True, "yRight": True}
    has_series = bool(panel.terms) and (panel.has_time_axis or panel.has_checkpoint_axis)
    split = {"splitAccessor": _terms_column(0)} if has_series else {}
    # Kibana refuses an axis of bars that does not begin at 0, and a logarithmic one begins at a millisecond.
    kind = "line" if panel.is_logarithmic else panel.kind
    series = _SERIES[kind] + ("_stacked" if panel.is_stacked else "")
    accessors = [name for name, column in _columns(panel) if not column["isBucketed"] and name != ORDER]
    colours = [{"forAccessor": name, "color": colour} for name, colour in _colours(panel)]
    return {
        "legend": {
            "isVisible": panel.has_legend,
            "position": panel.legend_position,
            # The name of a metric follows the long name of a run: only a legend at the right has room for both.
            **({"position": "right", "shouldTruncate": False} if panel.kind == "line" else {}),
        },
        "valueLabels": "hide",
        "fittingFunction": "Linear" if panel.kind == "line" else "None",
        "yTitle": panel.axis_name,
        "axisTitlesVisibilitySettings": {**shown, "x": False},
        **_extent(panel),
        "tickLabelsVisibilitySettings": shown,
        "gridlinesVisibilitySettings": shown,
        # Level names of families would leave out every second one.
        "labelsOrientation": {"x": -45 if panel.is_logarithmic else 0, "yLeft": 0, "yRight": 0},
        "preferredSeriesType": series,
        **({"yLeftScale": "log"} if panel.is_logarithmic else {}),  # Kibana before 8.5 draws a linear axis
        "layers": [
            {
                "layerId": layer,
                "layerType": "data",
                "seriesType": series,
                "position": "top",
                "showGridlines": False,
                "xAccessor": _TIME_COLUMN if panel.has_time_axis else _terms_column(len(panel.terms) - 1),
                **split,
                "accessors": accessors,
                **({"yConfig": colours} if colours else {}),
            },
            *([] if panel.limit is None else [_limit_line(panel)]),
        ],
    }


def _extent(panel: Panel) -> Json:
    if panel.is_logarithmic:
        return {"yLeftExtent": {"mode": "custom", "lowerBound": SHORTEST_DURATION_MS}}
    if panel.is_percentage:
        top = {"upperBound": 100} if panel.limit is None else {}
        return {"yLeftExtent": {"mode": "custom", "lowerBound": 0, **top}}
    return {}


def _limit_layer(panel: Panel) -> tuple[str, Json]:
    """The id of the layer of the line at the limit, and its only column."""
    column = {
        "label": "Limit",
        "customLabel": True,
        "dataType": "number",
        "operationType": "static_value",
        "isStaticValue": True,
        "isBucketed": False,
        "scale": "ratio",
        "params": {"value": str(panel.limit)},
        "references": [],
    }
    columns = {"columns": {_LIMIT_COLUMN: column}, "columnOrder": [_LIMIT_COLUMN], "incompleteColumns": {}}
    return object_id("layer", f"{panel.key}/limit"), columns


def _limit_line(panel: Panel) -> Json:
    style = {"axisMode": "left", "color": LIMIT_COLOUR, "lineStyle": "dashed", "lineWidth": 2}
    return {
        "layerId": _limit_layer(panel)[0],
        "layerType": "referenceLine",
        "accessors": [_LIMIT_COLUMN],
        "yConfig": [{"forAccessor": _LIMIT_COLUMN, **style}],
    }


def _number(panel: Panel, layer: str) -> Json:
    """A single number in the format of 7.16. Kibana 8.5 and later migrate it to the legacy metric."""
    shown = {"layerId": layer, "layerType": "data", "accessor": _metric_column(0)}
    return {**shown, "colorMode": "Labels", "palette": _palette(panel)} if panel.bands else shown


def _palette(panel: Panel) -> Json:
    """Colours of absolute values. The stops are ignored unless both names are `custom`."""
    return {
        "type": "palette",
        "name": "custom",
        "params": {
            "name": "custom",
            "reverse": False,
            "rangeType": "number",
            "rangeMin": panel.bands[0][0],
            "rangeMax": None,
            "progression": "fixed",
            "continuity": "above",
            "steps": len(panel.bands),
            "colorStops": [{"color": colour, "stop": low} for low, _, colour in panel.bands],
            "stops": [{"color": colour, "stop": high} for _, high, colour in panel.bands],
        },
    }


def _heatmap(panel: Panel, layer: str) -> Json:
    value = _metric_column(0)
    return {
        "shape": "heatmap",
        "layerId": layer,
        "layerType": "data",
        "xAccessor": _TIME_COLUMN,
        "yAccessor": _terms_column(0),
        "valueAccessor": value,
        "legend": {"type": "heatmap_legend", "isVisible": True, "position": "right"},
        "gridConfig": {
            "type": "heatmap_grid",
            "isCellLabelVisible": False,
            "isXAxisLabelVisible": True,
            "isYAxisLabelVisible": True,
        },
        "palette": {**_palette(panel), "accessor": value},
    }
