"""CloudWatch Embedded Metric Format (EMF): selected numbers of a record as members of the line's root object.

CloudWatch Logs extracts metrics from such a line when it receives the line, without any header in the request
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).

CloudWatch bills each name in each family as one metric. A name that begins with ``max`` is a maximum; the name of any
other distribution is its average. Values cover the run so far, except the averages of CPU and memory in a checkpoint:
they cover the time since the last checkpoint.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.metric_catalogue import METRICS, Metric, RunView, Unit, view_of
from profiler.record.record_model import Number, Report

EmfUnit = Literal["Milliseconds", "Seconds", "Megabytes", "Bytes", "Percent", "Count", "None"]

NAMESPACE = "TaskProfiler"
DIMENSION = "family"
_DIGITS = 3
# CloudWatch has no unit for MiB, vCPU, joules and dollars.
_EMF_UNITS: Mapping[Unit, EmfUnit] = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "MB": "Megabytes",
    "bytes": "Bytes",
    "%": "Percent",
    "count": "Count",
}


EMF_METRICS: Mapping[str, Metric] = {metric.emf_name: metric for metric in METRICS if metric.emf_name is not None}


def emf_unit(metric: Metric) -> EmfUnit:
    """The unit of a metric in CloudWatch."""
    return _EMF_UNITS.get(metric.unit, "None")


def _read(metric: Metric, run: RunView) -> Number | None:
    value = metric.get(run)
    if isinstance(value, str) or value is None:
        return None
    # The record's own numbers are rounded already.
    return round(value, _DIGITS) if metric.record_path is None else value


def emf_members(report: Report, names: Iterable[str]) -> dict[str, Any]:
    """The members to add to the root object of the report's line, without values that were not measured.

    Empty if no value is left, or if the record has no family, which is the metrics' only dimension.
    """
    record = report.record
    time_ns = parse_ns(report.time)
    run = view_of(record)
    values = {name: value for name in names if (value := _read(EMF_METRICS[name], run)) is not None}
    if time_ns is None or not record.family or not values:
        return {}
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [[DIMENSION]],
        "Metrics": [{"Name": name, "Unit": emf_unit(EMF_METRICS[name])} for name in values],
    }
    return {
        "_aws": {"Timestamp": time_ns // NS_PER_MS, "CloudWatchMetrics": [directive]},
        DIMENSION: record.family,
        **values,
    }
