"""Lens charts in the format of 7.16. Kibana 7.16 and 7.17 read it directly; Kibana 8 and 9 migrate it."""

from collections.abc import Iterator
from typing import Final

from kibana.model import TIME_FIELD, Dashboard, Json, Metric, Panel, Terms
from kibana.objects import (
    dashboard_object,
    data_view,
    data_view_reference,
    disabled_filter,
    exclusion_filter,
    object_id,
    place_panels,
    saved_object,
)
from kibana.panels import DASHBOARDS

MIGRATION_VERSIONS: Final = {"core": "7.16.0", "index-pattern": "7.11.0", "lens": "7.16.0", "dashboard": "7.16.0"}
_PANEL_VERSION = "7.16.0"
_DASHBOARD_SOURCE = "kibanaSavedObjectMeta.searchSourceJSON"
_TIME_COLUMN = "time"
_TYPES = {
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
_LATEST_TYPES = {TIME_FIELD: "date", "task.exit_code": "number"}
_MEDIAN = 50


def build_lens_objects() -> Iterator[Json]:
    """Yield the lines of the file: data views, then charts, then dashboards.

    An object follows the objects that it refers to.
    """
    yield data_view("reports", MIGRATION_VERSIONS, has_precise_durations=True)
    yield data_view("checkpoints", MIGRATION_VERSIONS, has_precise_durations=True)
    for dashboard in DASHBOARDS:
        yield from (_chart(panel) for panel in dashboard.panels)
    yield from (_dashboard(dashboard) for dashboard in DASHBOARDS)


def _dashboard(dashboard: Dashboard) -> Json:
    """Offer the controls as disabled filters in the filter bar: Kibana 7.16 has no controls in this format."""
    filters, references = [], []
    for number, control in enumerate(dashboard.controls):
        name = f"{_DASHBOARD_SOURCE}.filter[{number}].meta.index"
        filters.append(disabled_filter(control, name))
        references.append(data_view_reference(name, "reports"))
    return dashboard_object(
        dashboard,
        place_panels(dashboard.panels, "lens"),
        filters=filters,
        references=references,
        panel_version=_PANEL_VERSION,
        has_panel_prefix=True,
        migration_versions=MIGRATION_VERSIONS,
    )


def _chart(panel: Panel) -> Json:
    layer = object_id("layer", panel.key)
    references = [
        data_view_reference("indexpattern-datasource-current-indexpattern", panel.index),
        data_view_reference(f"indexpattern-datasource-layer-{layer}", panel.index),
    ]
    filters = []
    for number, exclusion in enumerate(panel.exclusions):
        name = f"filter-index-pattern-{number}"
        filters.append(exclusion_filter(exclusion.field, exclusion.value, name))
        references.append(data_view_reference(name, panel.index))
    columns = dict(_columns(panel))
    one_layer = {"columns": columns, "columnOrder": list(columns), "incompleteColumns": {}}
    attributes = {
        "title": panel.title,
        "description": panel.description,
        "visualizationType": _TYPES[panel.kind],
        "state": {
            "datasourceStates": {"indexpattern": {"layers": {layer: one_layer}}},
            "visualization": _visualization(panel, layer),
            "query": {"query": "", "language": "kuery"},
            "filters": filters,
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
        yield _metric_column(number), _metric(metric)


def _terms(terms: Terms) -> Json:
    order_by_metric = terms.order_by_metric is not None
    order = (
        {"type": "column", "columnId": _metric_column(terms.order_by_metric or 0)}
        if order_by_metric
        else {"type": "alphabetical"}
    )
    return {
        "label": terms.label,
        "customLabel": True,
        "dataType": "string",
        "operationType": "terms",
        "sourceField": terms.field,
        "isBucketed": True,
        "scale": "ordinal",
        "params": {
            "size": terms.size,
            "orderBy": order,
            "orderDirection": "desc" if order_by_metric else "asc",
            "otherBucket": terms.has_missing_bucket,  # Lens omits the missing bucket if there is no "other" bucket
            "missingBucket": terms.has_missing_bucket,
        },
    }


def _metric(metric: Metric) -> Json:
    column: Json = {
        "label": metric.label,
        "customLabel": True,
        "dataType": "number",
        "operationType": _OPERATIONS[metric.operation],
        "sourceField": metric.field,
        "isBucketed": False,
        "scale": "ratio",
    }
    if metric.operation == "percentile" and metric.percent == _MEDIAN:
        return {**column, "operationType": "median"}
    if metric.operation == "percentile":
        return {**column, "params": {"percentile": metric.percent}}
    if metric.operation == "latest":
        kind = _LATEST_TYPES.get(metric.field, "string")
        scale = {"string": "ordinal", "date": "interval"}.get(kind, "ratio")
        exists = {"query": f'"{metric.field}": *', "language": "kuery"}
        return {**column, "dataType": kind, "scale": scale, "filter": exists, "params": {"sortField": TIME_FIELD}}
    return column


def _visualization(panel: Panel, layer: str) -> Json:
    match panel.kind:
        case "heatmap":
            return _heatmap(panel, layer)
        case "table":
            columns = [{"columnId": column, "isTransposed": False} for column, _ in _columns(panel)]
            return {"layerId": layer, "layerType": "data", "columns": columns}
        case "line" | "bars" | "ranking":
            return _xy(panel, layer)


def _xy(panel: Panel, layer: str) -> Json:
    shown = {"x": True, "yLeft": True, "yRight": True}
    split = {"splitAccessor": _terms_column(0)} if panel.terms and panel.has_time_axis else {}
    series = _SERIES[panel.kind]
    return {
        "legend": {"isVisible": True, "position": "right"},
        "valueLabels": "hide",
        "fittingFunction": "Linear" if panel.kind == "line" else "None",
        "axisTitlesVisibilitySettings": {**shown, "x": False},
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
                "xAccessor": _TIME_COLUMN if panel.has_time_axis else _terms_column(0),
                **split,
                "accessors": [_metric_column(number) for number in range(len(panel.metrics))],
            }
        ],
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
        "palette": {
            "type": "palette",
            "name": "custom",
            "accessor": value,
            "params": {
                "name": "custom",
                "reverse": False,
                "rangeType": "number",
                "rangeMin": 0,
                "rangeMax": None,
                "progression": "fixed",
                "continuity": "above",
                "steps": len(panel.bands),
                "colorStops": [{"color": colour, "stop": low} for low, _, colour in panel.bands],
                "stops": [{"color": colour, "stop": high} for _, high, colour in panel.bands],
            },
        },
    }
