"""The columns of a Lens chart: buckets of terms and of time, and metrics, in the format of 8.1."""

from collections.abc import Iterator
from typing import Final

from kibana.aggregations import ORDER, hidden_order
from kibana.conditions import kql, kuery
from kibana.dashboard_model import ELAPSED_FIELD, MISSING_LABEL, TIME_FIELD, Json, Metric, Panel, Terms

TIME_COLUMN: Final = "time"
_OPERATIONS = {
    "count": "count",
    "count_distinct": "unique_count",
    "average": "average",
    "sum": "sum",
    "max": "max",
    "percentile": "percentile",
    "latest": "last_value",
}
# Lens has no setting for the name of the missing bucket, "(missing value)". Only a column that has a format, if only an
# empty one, takes the parameters of the parent format.
_MISSING_LABEL: Final[Json] = {
    "format": {"id": ""},
    "parentFormat": {"id": "terms", "params": {"missingBucketLabel": MISSING_LABEL}},
}
_ELAPSED: Final[Json] = {
    "label": "Elapsed",
    "customLabel": True,
    "dataType": "number",
    "operationType": "range",
    "sourceField": ELAPSED_FIELD,
    "isBucketed": True,
    "scale": "interval",
    "params": {"type": "histogram", "ranges": [{"from": 0, "to": 1000, "label": ""}], "maxBars": "auto"},
}
_CLOCK: Final[Json] = {
    "label": TIME_FIELD,
    "dataType": "date",
    "operationType": "date_histogram",
    "sourceField": TIME_FIELD,
    "isBucketed": True,
    "scale": "interval",
    "params": {"interval": "auto"},
}
# Lens requires the data type of a last value; the default here is "string".
_LATEST_TYPES = {TIME_FIELD: "date", "event.start": "date", "task.exit_code": "number"}


def metric_column(number: int) -> str:
    """The id of the column of a panel's metric."""
    return f"metric-{number}"


def terms_column(number: int) -> str:
    """The id of the column of a panel's terms."""
    return f"rows-{number}"


def lens_columns(panel: Panel) -> Iterator[tuple[str, Json]]:
    """Yield terms, then time, then metrics: the order of buckets is their nesting."""
    for number, terms in enumerate(panel.terms):
        yield terms_column(number), _terms(terms)
    if panel.has_time_axis:
        yield TIME_COLUMN, _ELAPSED if panel.time_field == ELAPSED_FIELD else _CLOCK
    for number, metric in enumerate(panel.metrics):
        if metric.share_of is not None:
            yield from _ratio(metric_column(number), metric)
        else:
            if not panel.cases:
                yield metric_column(number), _metric(metric, panel)
            for position, case in enumerate(panel.cases):
                column = {**_metric(metric, panel), "label": case.label, "filter": kuery(case.condition)}
                yield f"{metric_column(number)}-case-{position}", column
    order = next((found for terms in panel.terms if (found := hidden_order(terms)) is not None), None)
    if order is not None:  # Lens orders terms only by a column
        yield ORDER, _metric(order, panel)


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
    yield part, {**counted, "filter": kuery(metric.share_of)}
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
    is_by_key = hidden_order(terms) is None
    # Lens has terms of numbers, but none of times. An ordinal axis would combine all checkpoints of the same
    # text, such as "1.2 h".
    is_checkpoint = terms.field == TIME_FIELD
    return {
        "label": terms.label,
        "customLabel": True,
        "dataType": "number" if is_checkpoint else "string",
        "operationType": "terms",
        "sourceField": ELAPSED_FIELD if is_checkpoint else terms.field,
        "isBucketed": True,
        "scale": "interval" if is_checkpoint else "ordinal",
        "params": {
            "size": terms.size,
            "orderBy": {"type": "alphabetical"} if is_by_key else {"type": "column", "columnId": ORDER},
            "orderDirection": "asc" if is_by_key else "desc",
            # Lens omits the missing bucket without an "other" bucket, which would be a second run in a chart of one.
            "otherBucket": terms.has_other_bucket or (terms.has_missing_bucket and terms.size > 1),
            "missingBucket": terms.has_missing_bucket,
            **(_MISSING_LABEL if terms.has_missing_bucket else {}),
        },
    }


def _metric(metric: Metric, panel: Panel) -> Json:
    column: Json = {
        "label": metric.label,
        "customLabel": True,
        "dataType": "number",
        "operationType": _OPERATIONS[metric.operation],
        "sourceField": "___records___" if metric.operation == "count" else metric.field,
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
    return {**column, "dataType": "date"} if metric.operation == "max" and metric.field == TIME_FIELD else column
