"""A report as one line of text, with the labels and tabs of Lambda's REPORT line."""

import math

from profiler.record.metric_catalogue import METRICS, Metric, view_of
from profiler.record.record_model import Number, Report

_SEPARATOR = "\t"
# The line begins in the order of Lambda's line and ends with the cost. All other metrics are in the catalogue's order.
_FIRST_LABELS = (
    "Duration",
    "Billed Duration",
    "vCPU Size",
    "Max vCPU Used",
    "Memory Size",
    "Max Memory Used",
    "Memory Peak Source",
    "Init Duration",
)
_LAST_LABELS = ("Cost", "Recommended vCPU", "Recommended Memory", "Saving")
_LABELLED = {metric.text_label: metric for metric in METRICS if metric.text_label is not None}
_MEASURED_LABELS = (*_FIRST_LABELS, *(label for label in _LABELLED if label not in {*_FIRST_LABELS, *_LAST_LABELS}))
_UNITS_WITHOUT_SYMBOL = {"vCPU", "count"}


def report_text(report: Report) -> str:
    """The line without its newline; values that are not known are left out."""
    record = report.record
    run = view_of(record)
    reasons = record.recommendation.reasons if record.recommendation is not None else ()
    texts = {label: _format(metric, metric.get(run)) for label, metric in _LABELLED.items()}
    fields = (
        ("REPORT TaskId", record.task_id),
        *((label, texts[label]) for label in _MEASURED_LABELS),
        ("Name", _one_line(record.family)),
        ("Status", record.status),
        ("Exit Code", None if record.exit_code is None else str(record.exit_code)),
        ("Likely Out Of Memory", "true" if record.likely_out_of_memory else None),
        *((label, texts[label]) for label in _LAST_LABELS),
        ("Advice", _one_line(" ".join(reasons)) or None),
    )
    return _SEPARATOR.join(f"{label}: {text}" for label, text in fields if text is not None)


def _format(metric: Metric, value: Number | str | None) -> str | None:
    """The value with its unit. A count of zero is left out."""
    if value is None or isinstance(value, str):
        return value
    if metric.unit == "count" and value == 0:
        return None
    if metric.unit == "USD":
        # At least four digits after the point, four of them significant: most runs cost less than a cent.
        return f"{value:.{max(4, 3 - math.floor(math.log10(value)))}f} USD" if value > 0 else "0 USD"
    text = _format_number(value) if metric.text_digits is None else f"{value:.{metric.text_digits}f}"
    return text if metric.unit in _UNITS_WITHOUT_SYMBOL else f"{text} {metric.unit}"


def _format_number(value: Number) -> str:
    """At most two digits after the point, four below 1, without trailing zeros."""
    digits = 2 if value >= 1 else 4
    return f"{value:.{digits}f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _one_line(text: str | None) -> str | None:
    """Replace tabs and line ends, which would divide a field."""
    return None if text is None else " ".join(text.split())
