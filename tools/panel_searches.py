"""The search request of each panel, as Kibana and OpenSearch Dashboards compile it, and the
fields that it reads.
"""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from kibana.dashboard_model import (
    ELAPSED_FIELD,
    ORDER,
    TIME_FIELD,
    Json,
    Panel,
    PanelMetric,
    TermsBuckets,
    cases_id,
    numbered_metrics,
    terms_id,
    time_id,
)

MATCHING: Final = "matching"
"""The name of the aggregation of the documents that a ratio counts."""
_MISSING = "__missing__"
# The products count by the number of documents: every document has the field.
_OPERATIONS = {"count": "value_count", "count_distinct": "cardinality", "average": "avg"}


def search_body(panel: Panel, start: datetime, end: datetime, *, interval: str) -> Json:
    """The request body for the time from ``start`` and before ``end``; ``interval``: of a bucket
    (``1h``).
    """
    time_range = {
        "gte": start.isoformat(),
        "lt": end.isoformat(),
        "format": "strict_date_optional_time",
    }
    filters: list[Json] = [{"range": {TIME_FIELD: time_range}}]
    if panel.condition:
        filters.append(kql_query(panel.condition))
    return {
        "size": 0,
        "query": {"bool": {"filter": filters}},
        "aggs": _aggregations(panel, interval),
    }


def _aggregations(panel: Panel, interval: str) -> Json:
    metrics: Json = {}
    for name, metric in numbered_metrics(panel).items():
        metrics.update(_metric(name, metric))
    inner = metrics
    if panel.has_time_axis and panel.time_field == ELAPSED_FIELD:
        elapsed = {"field": ELAPSED_FIELD, "interval": 60_000, "min_doc_count": 1}
        inner = {time_id(panel): {"histogram": elapsed, "aggs": inner}}
    elif panel.has_time_axis:
        histogram = {
            "field": TIME_FIELD,
            "fixed_interval": interval,
            "time_zone": "UTC",
            "min_doc_count": 1,
        }
        inner = {time_id(panel): {"date_histogram": histogram, "aggs": inner}}
    for number, terms in reversed(tuple(enumerate(panel.terms))):
        if terms.order_by is not None:
            inner = {ORDER: _operation(terms.order_by), **inner}
        inner = {terms_id(panel, number): {"terms": _terms(terms), "aggs": inner}}
    if panel.cases:
        filters = {case.label: kql_query(case.condition) for case in panel.cases}
        inner = {cases_id(panel): {"filters": {"filters": filters}, "aggs": inner}}
    return inner


def _terms(terms: TermsBuckets) -> Json:
    order = {"_key": "asc"} if terms.order_by is None else {ORDER: "desc"}
    aggregation: Json = {"field": terms.field, "size": terms.size, "order": order}
    if terms.has_missing_bucket:
        aggregation["missing"] = _MISSING
    return aggregation


def _metric(name: str, metric: PanelMetric) -> Iterator[tuple[str, Json]]:
    body = _operation(metric)
    yield name, body
    if metric.share_of is not None:
        yield f"{name}-{MATCHING}", {"filter": kql_query(metric.share_of), "aggs": {name: body}}


def _operation(metric: PanelMetric) -> Json:
    if metric.operation == "latest":
        newest = {"size": 1, "sort": [{TIME_FIELD: {"order": "desc"}}]}
        return {
            "top_hits": {**newest, "docvalue_fields": [{"field": metric.field}], "_source": False}
        }
    return {_OPERATIONS.get(metric.operation, metric.operation): {"field": metric.field}}


_LEAF = re.compile(r'([@\w.]+)(?:: (\*|true|false|"[^"]*")| ([<>]) (-?\d+))')


def _split_outside_parentheses(condition: str, word: str) -> list[str]:
    """The parts of a condition between a word that stands outside of all parentheses."""
    parts = [""]
    depth = 0
    for one in condition.split(" "):
        if one == word and not depth:
            parts.append("")
            continue
        depth += one.count("(") - one.count(")")
        parts[-1] = f"{parts[-1]} {one}".lstrip()
    return parts


def kql_query(condition: str) -> Json:
    """A condition in KQL as a query of Elasticsearch and OpenSearch."""
    for word, kind in (("or", "should"), ("and", "filter")):
        parts = _split_outside_parentheses(condition, word)
        if len(parts) > 1:
            return {"bool": {kind: [kql_query(part) for part in parts]}}
    if condition.startswith("not "):
        return {"bool": {"must_not": [kql_query(condition.removeprefix("not "))]}}
    if condition.startswith("("):
        return kql_query(condition[1:-1])
    found = _LEAF.fullmatch(condition)
    assert found is not None, condition
    field, value, sign, limit = found.groups()
    if sign is not None:
        return {"range": {field: {"gt" if sign == ">" else "lt": int(limit)}}}
    return {"exists": {"field": field}} if value == "*" else {"term": {field: json.loads(value)}}


def fields_of(panel: Panel) -> tuple[tuple[str, str], ...]:
    """All fields of a panel, each with its use: an operation, ``terms``, ``time``, or a use in a
    condition.
    """
    conditions = (
        panel.condition,
        *(case.condition for case in panel.cases),
        *(metric.share_of for metric in panel.metrics),
    )
    return (
        *((metric.field, metric.operation) for metric in panel.metrics),
        *((terms.field, "time" if terms.field == TIME_FIELD else "terms") for terms in panel.terms),
        *(
            (terms.order_by.field, terms.order_by.operation)
            for terms in panel.terms
            if terms.order_by is not None
        ),
        *(use for condition in conditions for use in fields_in(condition)),
        (panel.time_field, "time" if panel.time_field == TIME_FIELD else "comparison"),
    )


def fields_in(condition: str | None) -> Iterator[tuple[str, str]]:
    """The fields of a condition, each with its use: ``filter``, ``flag``, ``comparison`` or
    ``exists``.
    """
    for field, value, sign, _ in _LEAF.findall(condition or ""):
        yield (
            field,
            "comparison"
            if sign
            else {"*": "exists", "true": "flag", "false": "flag"}.get(value, "filter"),
        )
