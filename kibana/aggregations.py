"""The search request of each panel, as Kibana and OpenSearch Dashboards compile it.

The tests run these requests on real servers.
"""

from datetime import datetime

from kibana.model import TIME_FIELD, Json, Metric, Panel

_MISSING = "__missing__"


def metric_id(number: int) -> str:
    """The id of the aggregation of a panel's metric. The classic flavour uses the same ids."""
    return str(number + 1)


def terms_id(panel: Panel, number: int) -> str:
    """The id of a panel's terms aggregation."""
    return str(len(panel.metrics) + number + 1)


def time_id(panel: Panel) -> str:
    """The id of a panel's date histogram."""
    return terms_id(panel, len(panel.terms))


def search_body(panel: Panel, start: datetime, end: datetime, *, interval: str) -> Json:
    """The request body.

    Args:
        panel: The panel to search for.
        start: The beginning of the time range (inclusive).
        end: The end of the time range (exclusive).
        interval: The width of a time bucket, such as ``1h``. The products choose it from the length of the time range.
    """
    time_range = {"gte": start.isoformat(), "lt": end.isoformat(), "format": "strict_date_optional_time"}
    return {
        "size": 0,
        "query": {
            "bool": {
                "filter": [{"range": {TIME_FIELD: time_range}}],
                "must_not": [{"match_phrase": {exclusion.field: exclusion.value}} for exclusion in panel.exclusions],
            }
        },
        "aggs": _aggregations(panel, interval),
    }


def _aggregations(panel: Panel, interval: str) -> Json:
    metrics = {metric_id(number): _metric(metric) for number, metric in enumerate(panel.metrics)}
    inner = metrics
    if panel.has_time_axis:
        histogram = {"field": TIME_FIELD, "fixed_interval": interval, "time_zone": "UTC", "min_doc_count": 1}
        inner = {time_id(panel): {"date_histogram": histogram, "aggs": inner}}
    for number, terms in reversed(tuple(enumerate(panel.terms))):
        order = {"_key": "asc"} if terms.order_by_metric is None else {metric_id(terms.order_by_metric): "desc"}
        aggregation: Json = {"field": terms.field, "size": terms.size, "order": order}
        if terms.has_missing_bucket:
            aggregation["missing"] = _MISSING
        if terms.order_by_metric is not None:  # terms can be ordered only by a metric at the same level
            ordering = metric_id(terms.order_by_metric)
            inner = {ordering: metrics[ordering], **inner}
        inner = {terms_id(panel, number): {"terms": aggregation, "aggs": inner}}
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
