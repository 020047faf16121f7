"""The metrics of a report in its lines: as a text like Lambda's, and in CloudWatch's Embedded
Metric Format (EMF).

The CloudWatch User Guide specifies it: "Specification: Embedded metric format". CloudWatch bills
each name in each family as one metric. A name that begins with ``max`` is a maximum; the name of
any other distribution is its average.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from profiler.core.optional_math import known, known_members
from profiler.core.timestamps import NS_PER_MS
from profiler.record.fact_list import (
    CPU_TIME,
    GPU_AVERAGE,
    GPU_MEMORY_PEAK,
    estimated_paths,
    lower_bound_paths,
    measured_number,
)
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.measured import Number
from profiler.record.metric_catalogue import METRICS, Metric
from profiler.record.record_model import Report
from profiler.record.record_paths import RunView, Unit, may_be_of_others

# The line begins in the order of Lambda's line and ends with the cost. All other metrics are in the
# catalogue's order.
_FIRST_LABELS = (
    *("Duration", "Billed Duration", "vCPU Size", "Max vCPU Used"),
    *("Memory Size", "Max Memory Used", "Memory Peak Source", "Init Duration"),
)
_LAST_LABELS = ("Cost", "Recommended vCPU", "Recommended Memory", "Saving")
_LABELLED = {metric.text_label: metric for metric in METRICS if metric.text_label}
# A peak's label has its source beside it, and a cost its own.
_MARKED = {
    "CPU Time": CPU_TIME,
    "Max GPU Memory Used": GPU_MEMORY_PEAK,
    "Avg GPU": GPU_AVERAGE,
}
_MEASURED_LABELS = (
    *_FIRST_LABELS,
    *(label for label in _LABELLED if label not in {*_FIRST_LABELS, *_LAST_LABELS}),
)
NAMESPACE = "TaskProfiler"
DIMENSION = "family"
# CloudWatch has no unit for MiB, vCPU, joules and dollars.
_EMF_UNITS: Mapping[Unit, str] = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "MB": "Megabytes",
    "bytes": "Bytes",
    "%": "Percent",
    "count": "Count",
}
EMF_METRICS: Mapping[str, Metric] = {
    metric.emf_name: metric for metric in METRICS if metric.emf_name
}


def report_text(report: Report) -> str:
    """The REPORT line without its newline; values that are not known are left out."""
    record = report.record
    run = RunView(record)
    advice = _on_one_line(" ".join(record.recommendation.reasons)) or None
    texts = {label: _format_metric(metric, metric.get(run)) for label, metric in _LABELLED.items()}
    for label, row in _MARKED.items():
        as_text = partial(_format_value, _LABELLED[label])
        texts[label] = measured_number(row, record).text(as_text) or None
    fields = (
        ("REPORT TaskId", record.task_id),
        *((label, texts[label]) for label in _MEASURED_LABELS),
        ("Name", _on_one_line(record.family)),
        ("Status", record.status),
        ("Exit Code", known(str, record.exit_code)),
        ("Likely Out Of Memory", "true" if record.likely_out_of_memory else None),
        ("Likely Out Of GPU Memory", "true" if record.likely_out_of_gpu_memory else None),
        ("GPU Error (Xid)", known(str, most_telling_gpu_error(record))),
        *((label, texts[label]) for label in _LAST_LABELS),
        ("Advice", advice),
    )
    return "\t".join(f"{label}: {text}" for label, text in fields if text is not None)


def _format_metric(metric: Metric, value: Number | str | None) -> str | None:
    """The value with its unit. A count of zero is left out."""
    if value is None or isinstance(value, str):
        return value
    if metric.unit == "count" and value == 0:
        return None
    return _format_value(metric, value)


def _format_value(metric: Metric, value: Number) -> str:
    if metric.unit == "USD":
        # At least four digits after the point, four of them significant: most runs cost less than a
        # cent.
        if value > 0:
            return f"{value:.{max(4, 3 - math.floor(math.log10(value)))}f} USD"
        return "0 USD"
    if metric.text_digits is None:
        text = _format_number(value)
    else:
        text = f"{value:.{metric.text_digits}f}"
    if metric.unit in ("vCPU", "count"):
        return text
    return f"{text} {metric.unit}"


def _format_number(value: Number) -> str:
    """Format with at most two decimals, four below 1, without trailing zeros."""
    digits = 2 if value >= 1 else 4
    if isinstance(value, float):
        return f"{value:.{digits}f}".rstrip("0").rstrip(".")
    return str(value)


def _on_one_line(text: str | None) -> str | None:
    """Replace tabs and line ends, which would divide a field."""
    return None if text is None else " ".join(text.split())


def emf_unit_of(metric: Metric) -> str:
    """The unit of a metric in CloudWatch."""
    return _EMF_UNITS.get(metric.unit, "None")


def _emf_value(
    metric: Metric, run: RunView, least: Collection[str], estimated: Collection[str]
) -> Number | None:
    """The value for CloudWatch, which averages shares and has no mark: none of a share that may
    have been larger, as those at the paths ``least``, no estimate, and none that may be other
    programs'. Totals and peaks are what was seen.
    """
    if metric.path in estimated or (metric.unit == "%" and metric.path in least):
        return None
    if may_be_of_others(metric.path, run.record):
        return None
    value = metric.get(run)
    if isinstance(value, str) or value is None:
        return None
    # The record's own numbers are rounded already.
    if not metric.record_path:
        return round(value, 3)
    return value


def emf_members(report: Report, names: Iterable[str]) -> dict[str, Any]:
    """The members to add to the root of the report's line; empty without a family (their
    dimension) or any value.
    """
    record = report.record
    time_ns = report.time_ns
    run = RunView(record)
    least, estimated = lower_bound_paths(run), estimated_paths(run)
    values = known_members(
        {name: _emf_value(EMF_METRICS[name], run, least, estimated) for name in names}
    )
    if time_ns is None or not record.family or not values:
        return {}
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [[DIMENSION]],
        "Metrics": [{"Name": name, "Unit": emf_unit_of(EMF_METRICS[name])} for name in values],
    }
    return {
        "_aws": {"Timestamp": time_ns // NS_PER_MS, "CloudWatchMetrics": [directive]},
        DIMENSION: record.family,
        **values,
    }
