"""Lens charts and their columns in the format of 8.1. Kibana 8.2 and later migrate it."""

from collections.abc import Iterator, Sequence
from typing import Final

from kibana import dashboard_model as model
from kibana.dashboard_model import Control, Dashboard, Json, Panel, PanelMetric, TermsBuckets
from kibana.saved_objects import (
    dashboard_object,
    data_view_reference,
    object_id,
    saved_object,
    to_json,
)
from profiler.core.optional_math import first_of, known_members

# The ids of columns: "rows-N" of terms, this one, "metric-N" or "metric-N-case-N" of metrics, and
# that of the order.
_TIME_COLUMN: Final = "time"
_OPERATIONS = {
    "count_distinct": "unique_count",
    "latest": "last_value",
}  # the others have the same name
VERSIONS: Final = {
    "core": "7.16.0",
    "index-pattern": "7.11.0",
    "search": "7.9.3",
    "visualization": "7.14.0",
    "lens": "8.1.0",
    "dashboard": "7.16.0",
}
_TYPES = {"number": "lnsMetric", "heatmap": "lnsHeatmap", "table": "lnsDatatable"}
_SERIES = {"line": "line", "bars": "bar_stacked", "ranking": "bar_horizontal"}
# Lens has no setting for the name of the missing bucket, "(missing value)". Only a column that has
# a format, if only an empty one, takes the parameters of the parent format.
_MISSING_LABEL: Final[Json] = {
    "format": {"id": ""},
    "parentFormat": {"id": "terms", "params": {"missingBucketLabel": model.MISSING_LABEL}},
}
_ELAPSED: Final = {
    "type": "histogram",
    "ranges": [{"from": 0, "to": 1000, "label": ""}],
    "maxBars": "auto",
}
_CLOCK: Final[Json] = {
    "label": model.TIME_FIELD,
    "dataType": "date",
    "operationType": "date_histogram",
    "sourceField": model.TIME_FIELD,
    "isBucketed": True,
    "scale": "interval",
    "params": {"interval": "auto"},
}
# Lens requires the data type of a last value; the default here is "string".
_LATEST_TYPES = {model.TIME_FIELD: "date", "event.start": "date", "task.exit_code": "number"}


def _column(
    label: str,
    operation: str,
    field: str,
    kind: str,
    scale: str,
    *,
    is_bucketed: bool,
    **more: Json,
) -> Json:
    named = {
        "label": label,
        "customLabel": True,
        "dataType": kind,
        "operationType": operation,
        "sourceField": field,
    }
    return {**named, "isBucketed": is_bucketed, "scale": scale, **more}


def _lens_columns(panel: Panel) -> Iterator[tuple[str, Json]]:
    """Yield terms, then time, then metrics: the order of buckets is their nesting."""
    for number, terms in enumerate(panel.terms):
        yield f"rows-{number}", _terms(terms)
    if panel.has_time_axis:
        elapsed = ("Elapsed", "range", model.ELAPSED_FIELD, "number", "interval")
        is_elapsed = panel.time_field == model.ELAPSED_FIELD
        yield (
            _TIME_COLUMN,
            _column(*elapsed, is_bucketed=True, params=_ELAPSED) if is_elapsed else _CLOCK,
        )
    for number, metric in enumerate(panel.metrics):
        if metric.share_of is not None:
            yield from _ratio(f"metric-{number}", metric)
        else:
            if not panel.cases:
                yield f"metric-{number}", _metric(metric, panel)
            for position, case in enumerate(panel.cases):
                column = {
                    **_metric(metric, panel),
                    "label": case.label,
                    "filter": model.kuery(case.condition),
                }
                yield f"metric-{number}-case-{position}", column
    order = first_of(terms.order_by for terms in panel.terms)
    if order is not None:  # Lens orders terms only by a column
        yield model.ORDER, _metric(order, panel)


def _ratio(name: str, metric: PanelMetric) -> Iterator[tuple[str, Json]]:
    """A formula, with the columns that it is calculated from, as the formula editor saves them."""
    part = f"{name}X0"
    whole = f"{name}X1"
    result = f"{name}X2"
    operation = _OPERATIONS.get(metric.operation, metric.operation)
    formula = f"{operation}({metric.field}, kql='{metric.share_of}') / {operation}({metric.field})"
    number = {"dataType": "number", "isBucketed": False, "scale": "ratio", "customLabel": True}
    shown = {"id": "percent", "params": {"decimals": 1}}
    params: Json = {"formula": formula, "isFormulaBroken": False, "format": shown}
    yield (
        name,
        {
            **number,
            "label": metric.label,
            "operationType": "formula",
            "params": params,
            "references": [result],
        },
    )
    inner = {**number, "label": f"Part of {metric.label}"}
    counted = {**inner, "operationType": operation, "sourceField": metric.field}
    yield part, {**counted, "filter": model.kuery(metric.share_of)}
    yield whole, counted
    divide = {"type": "function", "name": "divide", "args": [part, whole]}
    params = {
        "tinymathAst": {**divide, "location": {"min": 0, "max": len(formula)}, "text": formula}
    }
    yield result, {**inner, "operationType": "math", "params": params, "references": [part, whole]}


def _terms(terms: TermsBuckets) -> Json:
    is_by_key = terms.order_by is None
    params = {
        "size": terms.size,
        "orderBy": {"type": "alphabetical"}
        if is_by_key
        else {"type": "column", "columnId": model.ORDER},
        "orderDirection": "asc" if is_by_key else "desc",
        # Lens omits the missing bucket without an "other" bucket, which would be a second run in a
        # chart of one.
        "otherBucket": terms.has_missing_bucket and terms.size > 1,
        "missingBucket": terms.has_missing_bucket,
        **(_MISSING_LABEL if terms.has_missing_bucket else {}),
    }
    return _column(
        terms.label, "terms", terms.field, "string", "ordinal", is_bucketed=True, params=params
    )


def _metric(metric: PanelMetric, panel: Panel) -> Json:
    operation = _OPERATIONS.get(metric.operation, metric.operation)
    field = "___records___" if metric.operation == "count" else metric.field
    column = _column(metric.label, operation, field, "number", "ratio", is_bucketed=False)
    if metric.operation == "sum" or (
        metric.operation == "count_distinct" and panel.kind == "heatmap"
    ):
        # Kibana 8.2 and later: no documents are an empty cell, and not a 0
        return {**column, "params": {"emptyAsNull": True}}
    if metric.operation == "latest":
        kind = _LATEST_TYPES.get(metric.field, "string")
        scale = {"string": "ordinal", "date": "interval"}.get(kind, "ratio")
        # Without a filter, all columns of a row are of the same document.
        return {
            **column,
            "dataType": kind,
            "scale": scale,
            "params": {"sortField": model.TIME_FIELD},
        }
    if metric.operation == "max" and _LATEST_TYPES.get(metric.field) == "date":
        return {**column, "dataType": "date"}
    return column


def chart_objects(dashboard: Dashboard) -> Iterator[Json]:
    """The charts of a dashboard."""
    return map(_chart, dashboard.charts)


def saved_dashboard(dashboard: Dashboard) -> Json:
    """The saved object of a dashboard, with its dropdown lists."""
    controls = [
        (object_id("control", f"{dashboard.key}/{control.field}"), control)
        for control in dashboard.controls
    ]
    return dashboard_object(
        dashboard,
        "lens",
        _axis_settings,
        is_lens=True,
        more_attributes={"controlGroupInput": _controls(controls)},
        references=[
            data_view_reference(f"controlGroup_{identity}:optionsListDataView", "reports")
            for identity, _ in controls
        ],
    )


def _controls(controls: Sequence[tuple[str, Control]]) -> Json:
    """The dropdown lists at the top of a dashboard, in the format of 8.0."""
    panels = {
        identity: {
            "order": order,
            "width": "small",
            "grow": True,
            "type": "optionsListControl",
            "explicitInput": {
                "id": identity,
                "fieldName": control.field,
                "title": control.label,
                "selectedOptions": [],
                "enhancements": {},
            },
        }
        for order, (identity, control) in enumerate(controls)
    }
    ignored = dict.fromkeys(
        ("ignoreFilters", "ignoreQuery", "ignoreTimerange", "ignoreValidations"), False
    )
    return {
        "controlStyle": "oneLine",
        "chainingSystem": "HIERARCHICAL",
        "ignoreParentSettingsJSON": to_json(ignored),
        "panelsJSON": to_json(panels),
    }


def _chart(panel: Panel) -> Json:
    layer = object_id("layer", panel.key)
    references = [
        data_view_reference("indexpattern-datasource-current-indexpattern", panel.index),
        data_view_reference(f"indexpattern-datasource-layer-{layer}", panel.index),
    ]
    columns = dict(_lens_columns(panel))
    layers = {layer: {"columns": columns, "columnOrder": list(columns), "incompleteColumns": {}}}
    attributes = {
        "title": panel.title,
        "description": panel.description,
        "visualizationType": _TYPES.get(panel.kind, "lnsXY"),
        "state": {
            "datasourceStates": {"indexpattern": {"layers": layers}},
            "visualization": _visualization(panel, layer),
            "query": model.kuery(panel.condition),
            "filters": [],
        },
    }
    return saved_object("lens", object_id("lens", panel.key), attributes, references)


def _visualization(panel: Panel, layer: str) -> Json:
    match panel.kind:
        case "number":
            # In the format of 8.1. Kibana 8.5 and later migrate it to the legacy metric.
            shown = {"layerId": layer, "layerType": "data", "accessor": "metric-0"}
            if panel.bands:
                return {**shown, "colorMode": "Labels", "palette": _palette(panel)}
            return shown
        case "heatmap":
            return _heatmap(panel, layer)
        case "table":
            columns = [_table_column(name, column) for name, column in _lens_columns(panel)]
            return {
                "layerId": layer,
                "layerType": "data",
                "columns": columns,
                "fitRowToContent": True,
            }
        case "line" | "bars" | "ranking":
            return _xy(panel, layer)


def _table_column(name: str, column: Json) -> Json:
    is_number = column["dataType"] == "number"
    width = None if is_number else model.COLUMN_WIDTHS.get(str(column["sourceField"]))
    return {
        "columnId": name,
        "isTransposed": False,
        **known_members({"width": width}),
        **({"hidden": True} if name == model.ORDER else {}),
    }


def _colours(panel: Panel) -> Iterator[tuple[str, str]]:
    """The colour of each column of a chart in which each series is a column."""
    for number, case in enumerate(panel.cases):
        yield f"metric-0-case-{number}", case.colour
    if not panel.cases and (not panel.terms or not panel.has_time_axis):
        for number, metric in enumerate(panel.metrics):
            if metric.colour is not None:
                yield f"metric-{number}", metric.colour


def _xy(panel: Panel, layer: str) -> Json:
    shown = {"x": True, "yLeft": True, "yRight": True}
    has_series = bool(panel.terms) and panel.has_time_axis
    split = {"splitAccessor": "rows-0"} if has_series else {}
    series = _SERIES[panel.kind] + ("_stacked" if panel.is_stacked else "")
    accessors = [
        name
        for name, column in _lens_columns(panel)
        if not column["isBucketed"] and name != model.ORDER
    ]
    colours = [{"forAccessor": name, "color": colour} for name, colour in _colours(panel)]
    return {
        "legend": {
            "isVisible": panel.has_legend,
            "position": panel.legend_position,
            # The name of a metric follows the long name of a run: only a legend at the right has
            # room for both.
            **({"position": "right", "shouldTruncate": False} if panel.kind == "line" else {}),
        },
        "valueLabels": "hide",
        "fittingFunction": "Linear" if panel.kind == "line" else "None",
        "yTitle": panel.axis_name,
        "axisTitlesVisibilitySettings": {**shown, "x": False},
        **(
            {"yLeftExtent": {"mode": "custom", "lowerBound": 0, "upperBound": 100}}
            if panel.is_percentage
            else {}
        ),
        "tickLabelsVisibilitySettings": shown,
        "gridlinesVisibilitySettings": shown,
        "labelsOrientation": {"x": 0, "yLeft": 0, "yRight": 0},
        "preferredSeriesType": series,
        "layers": [
            {
                "layerId": layer,
                "layerType": "data",
                "seriesType": series,
                "position": "top",
                "showGridlines": False,
                "xAccessor": _TIME_COLUMN
                if panel.has_time_axis
                else f"rows-{len(panel.terms) - 1}",
                **split,
                "accessors": accessors,
                **({"yConfig": colours} if colours else {}),
            },
        ],
    }


def _axis_settings(panel: Panel) -> Json:
    """Settings that a chart itself cannot contain.

    Kibana before 8.8 ignores them. An axis of bars must contain 0.
    """
    is_count = all(metric.operation in {"count", "count_distinct"} for metric in panel.metrics)
    if (
        is_count and panel.kind in _SERIES
    ):  # no tick between two whole numbers; the second name is for later versions
        return {"overrides": {"axisLeft": {"integersOnly": True, "maximumFractionDigits": 0}}}
    return {}


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
    value = "metric-0"
    return {
        "shape": "heatmap",
        "layerId": layer,
        "layerType": "data",
        "xAccessor": _TIME_COLUMN,
        "yAccessor": "rows-0",
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
