"""The search that each panel makes of the cluster, as the products compile it: what the tests run on real servers."""

from datetime import datetime
from typing import Any

from kibana.model import TIME_FIELD, Metric, Panel

Json = dict[str, Any]

_MISSING = "__missing__"


def metric_id(number: int) -> str:
    """The aggregation of a panel's metric; the classic flavour has the same ids."""
    return str(number + 1)


def rows_id(panel: Panel, number: int) -> str:
    """The aggregation of a panel's rows."""
    return str(len(panel.metrics) + number + 1)


def time_id(panel: Panel) -> str:
    """The aggregation of a panel's time."""
    return rows_id(panel, len(panel.rows))


def search_body(panel: Panel, start: datetime, end: datetime, *, interval: str) -> Json:
    """The whole body; ``interval`` is what the products choose by the length of the period, such as ``1h``."""
    period = {"gte": start.isoformat(), "lt": end.isoformat(), "format": "strict_date_optional_time"}
    return {
        "size": 0,
        "query": {
            "bool": {
                "filter": [{"range": {TIME_FIELD: period}}],
                "must_not": [{"match_phrase": {one.field: one.value}} for one in panel.unless],
            }
        },
        "aggs": _aggregations(panel, interval),
    }


def _aggregations(panel: Panel, interval: str) -> Json:
    metrics = {metric_id(number): _metric(metric) for number, metric in enumerate(panel.metrics)}
    inner = metrics
    if panel.over_time:
        histogram = {"field": TIME_FIELD, "fixed_interval": interval, "time_zone": "UTC", "min_doc_count": 1}
        inner = {time_id(panel): {"date_histogram": histogram, "aggs": inner}}
    for number, rows in reversed(tuple(enumerate(panel.rows))):
        order = {"_key": "asc"} if rows.by_metric is None else {metric_id(rows.by_metric): "desc"}
        terms: Json = {"field": rows.field, "size": rows.size, "order": order}
        if rows.with_missing:
            terms["missing"] = _MISSING
        if rows.by_metric is not None:  # the order needs its metric at the same level
            ordering = metric_id(rows.by_metric)
            inner = {ordering: metrics[ordering], **inner}
        inner = {rows_id(panel, number): {"terms": terms, "aggs": inner}}
    return inner


def _metric(metric: Metric) -> Json:
    match metric.operation:
        case "count_distinct":
            return {"cardinality": {"field": metric.field}}
        case "average":
            return {"avg": {"field": metric.field}}
        case "percentile":
            return {"percentiles": {"field": metric.field, "percents": [metric.percent], "keyed": False}}
        case "latest":
            return {
                "top_hits": {
                    "size": 1,
                    "sort": [{TIME_FIELD: {"order": "desc"}}],
                    "docvalue_fields": [{"field": metric.field}],
                    "_source": False,
                }
            }
        case "sum" | "max":
            return {metric.operation: {"field": metric.field}}
