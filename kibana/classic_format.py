"""Classic visualizations in the format of 7.10, for OpenSearch Dashboards and for Kibana 7.10 to
8.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kibana import colours
from kibana import dashboard_model as model
from kibana.dashboard_model import Control, Dashboard, Json, Panel, PanelMetric, TermsBuckets
from kibana.saved_objects import (
    MAX_FILTERS,
    SOURCE,
    classic_visualization,
    dashboard_object,
    data_view_reference,
    filter_key,
    object_id,
)
from profiler.core.optional_math import known_members

VERSIONS: Final = {
    "index-pattern": "7.6.0",
    "search": "7.9.3",
    "visualization": "7.10.0",
    "dashboard": "7.9.3",
}
_TYPES = {
    "number": "metric",
    "bars": "histogram",
    "ranking": "horizontal_bar",
}  # the others have the same name
_WIDTHS: Final = {
    **model.COLUMN_WIDTHS,
    "task.id": 285,
    "container.name": 100,
    "task.status": 95,
    "task.outcome": 190,
    "task.exit_code": 95,
    "task.stopped_reason": 220,
    "usage.duration_ms": 120,
    "usage.cpu.size": 90,
    "usage.memory.kills": 90,
    "cost.usd": 80,
    "event.start": 160,
    model.TIME_FIELD: 160,
}
"""The widths of columns. The others share the rest, and have at least 100 pixels."""
_LONG_TEXT = "notice.message"
_WIDTHS_BESIDE_IT = {"notice.kind": 90, "count": 80}
"""The column that has the rest for itself, and the widths that columns have only in its table."""
_ABOVE_ALL_VALUES: Final = 1_000_000_000


def chart_objects(dashboard: Dashboard) -> Iterator[Json]:
    """The visualizations of a dashboard."""
    for control in _chosen_controls(dashboard):
        yield _dropdown_list(dashboard, control)
    yield from (_visualization(panel) for panel in dashboard.charts)


def saved_dashboard(dashboard: Dashboard) -> Json:
    """The saved object of a dashboard. Each of its dropdown lists is a panel."""
    return dashboard_object(
        dashboard,
        "visualization",
        _settings,
        is_lens=False,
        filters=[control.field for control in _chosen_controls(dashboard)],
    )


def _chosen_controls(dashboard: Dashboard) -> list[Control]:
    """The dropdown lists for which there is room beside the links."""
    chosen = list(dashboard.controls)
    for control in reversed(dashboard.controls):
        if control.is_optional and len(chosen) > MAX_FILTERS:
            chosen.remove(control)
    return chosen


def _dropdown_list(dashboard: Dashboard, control: Control) -> Json:
    """The visualization of one of a dashboard's dropdown lists: of several in one, a phone shows
    the first alone.

    Pinned filters stay when the user opens another dashboard.
    """
    view = "control_0_index_pattern"
    shown = {
        "id": f"{dashboard.key}-{control.field}",
        "fieldName": control.field,
        "parent": "",
        "label": control.label,
        "type": "list",
        "options": {
            "type": "terms",
            "multiselect": True,
            "dynamicOptions": True,
            "size": 10,
            "order": "desc",
        },
        "indexPatternRefName": view,
    }
    title = f"{dashboard.title}: filter by {control.label}"
    params = {
        "controls": [shown],
        "updateFiltersOnChange": True,
        "useTimeFilter": False,
        "pinFilters": True,
    }
    state = {"title": title, "type": "input_control_vis", "aggs": [], "params": params}
    identity = object_id("visualization", filter_key(dashboard, control.field))
    return classic_visualization(identity, state, [data_view_reference(view, "reports")])


def _settings(panel: Panel) -> Json:
    """A panel's settings on its dashboard.

    OpenSearch Dashboards ignores the colours in a visualization's own state.
    """
    colours = colours_of(panel)
    settings: Json = {"colors": colours} if colours else {}
    if panel.kind == "table":
        fields = [terms.field for terms in panel.terms]
        fields += [
            metric.field if metric.operation in {"latest", "max"} else metric.operation
            for metric in panel.metrics
        ]
        widths: Mapping[str, int | None] = _WIDTHS
        if _LONG_TEXT in fields:
            widths = {**_WIDTHS, **_WIDTHS_BESIDE_IT, _LONG_TEXT: None}
        settings["columnsWidth"] = [
            {"colIndex": number, "width": width}
            for number, field in enumerate(fields)
            if (width := widths.get(field)) is not None
        ]
    return {"vis": settings} if settings else {}


def colours_of(panel: Panel) -> dict[str, str]:
    """The colours of a panel by legend label. They override the colour schema."""
    is_number = panel.kind == "number"  # TSVB has its own colour rules
    if is_number:
        bands = {}
    else:
        bands = {f"{low:,} - {high:,}": colour for low, high, colour in panel.bands}
    cases = {case.label: case.colour for case in panel.cases}
    metrics = known_members({metric.label: metric.colour for metric in panel.metrics})
    return {
        **bands,
        **cases,
        **({} if panel.has_series_of_terms and panel.kind != "ranking" else metrics),
    }


def _visualization(panel: Panel) -> Json:
    source: Json = {"query": model.kuery(panel.condition), "filter": []}
    references = []
    if panel.kind == "number" and panel.bands:
        state = _coloured_number_object(panel)
    else:
        source["indexRefName"] = f"{SOURCE}.index"
        references.append(data_view_reference(f"{SOURCE}.index", panel.index))
        aggregations = list(_aggregations(panel))
        state = {
            "title": panel.title,
            "type": _TYPES.get(panel.kind, panel.kind),
            "aggs": aggregations,
            "params": _params(panel),
        }
    identity = object_id("visualization", panel.key)
    return classic_visualization(
        identity, state, references, description=panel.description, source=source
    )


def _coloured_number_object(panel: Panel) -> Json:
    """A large number, also a ratio, that is red above 0: only TSVB takes our colour, which the
    dark theme needs.
    """
    (metric,) = panel.metrics
    kind, _ = _metric(metric)
    ratio = {
        "type": "filter_ratio",
        "numerator": model.kuery(metric.share_of),
        "denominator": model.kuery("*"),
        "metric_agg": kind,
    }
    shown = {"type": kind} if metric.share_of is None else ratio
    series = {
        "id": object_id("series", panel.key),
        "label": metric.label,
        "metrics": [{"id": object_id("metric", panel.key), "field": metric.field, **shown}],
        "color": colours.FAILURE,
        "split_mode": "everything",
        "formatter": "0,0" if metric.share_of is None else "0.0%",
        "value_template": "{{value}}",
        "chart_type": "line",
        "stacked": "none",
        "line_width": 1,
        "point_size": 1,
        "fill": 0.5,
        "axis_position": "right",
        "separate_axis": 0,
    }
    params = {
        "id": object_id("params", panel.key),
        "type": "metric",
        "series": [series],
        "index_pattern": f"task-{panel.index}-*",
        "time_field": model.TIME_FIELD,
        "time_range_mode": "entire_time_range",
        "interval": "",
        "axis_position": "left",
        "axis_formatter": "number",
        "axis_scale": "normal",
        "show_legend": 1,
        "show_grid": 1,
        "tooltip_mode": "show_all",
        "filter": model.kuery(panel.condition),
        "background_color_rules": [
            {
                "id": object_id("rule", panel.key),
                "operator": "gt",
                "value": 0,
                "color": colours.FAILURE,
            }
        ],
    }
    return {"title": panel.title, "type": "metrics", "aggs": [], "params": params}


def _aggregations(panel: Panel) -> Iterator[Json]:
    """Yield metrics, then buckets from the outermost to the innermost: the order of buckets is
    their nesting.
    """
    for name, metric in model.numbered_metrics(panel).items():
        yield _aggregation(name, "metric", *_metric(metric))
    if panel.cases:
        filters = [
            {"input": model.kuery(case.condition), "label": case.label} for case in panel.cases
        ]
        yield _aggregation(model.cases_id(panel), "group", "filters", {"filters": filters})
    rows_schema = {"table": "bucket", "ranking": "segment"}.get(panel.kind, "group")
    for number, terms in enumerate(panel.terms):
        # The name of a single bucket is next to the chart: in a legend, it would cut the name of
        # the metric.
        is_row = terms.size > 1 or panel.kind == "table"
        schema = rows_schema if is_row else "split"
        schema = "segment" if terms.field == model.TIME_FIELD else schema
        yield _aggregation(model.terms_id(panel, number), schema, "terms", _terms(terms))
    if panel.has_time_axis and panel.time_field == model.ELAPSED_FIELD:
        elapsed = {"field": model.ELAPSED_FIELD, "interval": "auto", "min_doc_count": False}
        yield _aggregation(
            model.time_id(panel), "segment", "histogram", {**elapsed, "customLabel": "Elapsed"}
        )
    elif panel.has_time_axis:
        histogram = {
            "field": model.TIME_FIELD,
            "interval": "auto",
            "drop_partials": False,
            "min_doc_count": 1,
        }
        yield _aggregation(
            model.time_id(panel), "segment", "date_histogram", {**histogram, "extended_bounds": {}}
        )
    if panel.kind == "number" and panel.metrics[0].operation == "sum":
        # One bucket for all values, and none without a value: the sum of no amounts is not $0.00.
        everything = {
            "field": panel.metrics[0].field,
            "interval": _ABOVE_ALL_VALUES,
            "min_doc_count": False,
        }
        yield _aggregation(model.time_id(panel), "group", "histogram", everything)


def _aggregation(identity: str, schema: str, kind: str, params: Json) -> Json:
    return {"id": identity, "enabled": True, "type": kind, "schema": schema, "params": params}


def _metric(metric: PanelMetric) -> tuple[str, Json]:
    params: Json = {"field": metric.field, "customLabel": metric.label}
    match metric.operation:
        case "count":
            return "count", {"customLabel": metric.label}
        case "count_distinct":
            return "cardinality", params
        case "average":
            return "avg", params
        case "sum" | "max":
            return metric.operation, params
        case "latest":
            newest = {
                "aggregate": "concat",
                "size": 1,
                "sortField": model.TIME_FIELD,
                "sortOrder": "desc",
            }
            return "top_hits", {**params, **newest}


def _terms(terms: TermsBuckets) -> Json:
    order = terms.order_by
    return {
        "field": terms.field,
        "customLabel": terms.label,
        "orderBy": "_key" if order is None else "custom",
        **(
            {}
            if order is None
            else {"orderAgg": _aggregation(model.ORDER, "orderAgg", *_metric(order))}
        ),
        "order": "asc" if order is None else "desc",
        "size": terms.size,
        "otherBucket": False,
        "otherBucketLabel": "Other",
        "missingBucket": terms.has_missing_bucket,
        "missingBucketLabel": model.MISSING_LABEL,
    }


def _params(panel: Panel) -> Json:
    match panel.kind:
        case "number":
            metric = {
                "percentageMode": False,
                "useRanges": False,
                "colorSchema": "Green to Red",
                "metricColorMode": "None",
                "colorsRange": [{"from": 0, "to": _ABOVE_ALL_VALUES}],
                "labels": {"show": False},
                "invertColors": False,
                "style": {
                    "bgFill": "#000",
                    "bgColor": False,
                    "labelColor": False,
                    "subText": "",
                    "fontSize": 36,
                },
            }
            return {"type": "metric", "addTooltip": True, "addLegend": False, "metric": metric}
        case "heatmap":
            return _heatmap_params(panel)
        case "table":
            return {
                "perPage": "" if panel.is_short else 20,
                "showPartialRows": False,
                "showMetricsAtAllLevels": False,
                "showTotal": False,
                "totalFunc": "sum",
                "percentageCol": "",
                "sort": {"columnIndex": None, "direction": None},
            }
        case "line" | "bars" | "ranking":
            return _xy_params(panel)


def _heatmap_params(panel: Panel) -> Json:
    return {
        "type": "heatmap",
        "addTooltip": True,
        "addLegend": True,
        "enableHover": False,
        "legendPosition": "right",
        "times": [],
        "colorsNumber": len(panel.bands),
        "colorSchema": "Blues",
        "setColorRange": True,
        "colorsRange": [{"from": low, "to": high} for low, high, _ in panel.bands],
        "invertColors": False,
        "percentageMode": False,
        "valueAxes": [
            {
                "show": False,
                "id": "ValueAxis-1",
                "type": "value",
                "scale": {"type": "linear", "defaultYExtents": False},
                "labels": {"show": False, "rotate": 0, "overwriteColor": False, "color": "black"},
            }
        ],
    }


def _value_scale(panel: Panel) -> Json:
    scale = {"type": "linear", "mode": "normal"}
    return {**scale, "setYExtents": True, "min": 0, "max": 100} if panel.is_percentage else scale


def _xy_params(panel: Panel) -> Json:
    shape = "line" if panel.kind == "line" else "histogram"
    sideways = panel.kind == "ranking"
    series: list[dict[str, Any]] = [
        {
            "show": True,
            "type": shape,
            "mode": "stacked" if panel.kind == "bars" or panel.is_stacked else "normal",
            "data": {"label": metric.label, "id": name},
            "valueAxis": "ValueAxis-1",
            "drawLinesBetweenPoints": True,
            "lineWidth": 2,
            "interpolate": "linear",
            "showCircles": True,
        }
        for name, metric in model.numbered_metrics(panel).items()
    ]
    return {
        "type": shape,
        "grid": {"categoryLines": False},
        "categoryAxes": [
            {
                "id": "CategoryAxis-1",
                "type": "category",
                "position": "left" if sideways else "bottom",
                "show": True,
                "style": {},
                "scale": {"type": "linear"},
                "labels": {"show": True, "rotate": 0, "filter": not sideways, "truncate": 200},
                "title": {},
            }
        ],
        "valueAxes": [
            {
                "id": "ValueAxis-1",
                "name": "BottomAxis-1" if sideways else "LeftAxis-1",
                "type": "value",
                "position": "bottom" if sideways else "left",
                "show": True,
                "style": {},
                "scale": _value_scale(panel),
                "labels": {"show": True, "rotate": 0, "filter": sideways, "truncate": 100},
                "title": {"text": panel.axis_name},
            }
        ],
        "seriesParams": series,
        "addTooltip": True,
        "addLegend": panel.has_legend,
        "legendPosition": panel.legend_position,
        "times": [],
        "addTimeMarker": False,
        "labels": {"show": False},
        "thresholdLine": {
            "show": False,
            "value": 0,
            "width": 2,
            "style": "dashed",
            "color": colours.LIMIT,
        },
    }
