"""CloudWatch Embedded Metric Format (EMF): selected numbers of a record as members of the line's root object.

CloudWatch Logs extracts metrics from such a line when it receives the line, without any header in the request
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).

CloudWatch bills each name in each family as one metric. A name that begins with ``max`` is a maximum; the name of any
other distribution is its average. Values cover the run so far, except the averages of CPU and memory in a checkpoint:
they cover the time since the last checkpoint.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.metric_catalogue import METRICS, Metric, RunView, Unit, view_of
from profiler.record.model import Number, Report

EmfUnit = Literal["Milliseconds", "Seconds", "Megabytes", "Bytes", "Percent", "Count", "None"]

NAMESPACE = "TaskProfiler"
DIMENSION = "family"
# The values that CloudWatch accepts for a dimension: printable ASCII, not only spaces.
_DIMENSION_VALUE = re.compile(r"(?=.*[!-~])[ -~]{1,1024}")
_MAX_VALUE = 2**360
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


class EmfMetric(Struct, frozen=True):
    """A metric that users can select. ``get`` returns None if the record does not contain the value."""

    name: str
    unit: EmfUnit
    get: Callable[[RunView], Number | None]


def _emf_metric(name: str, metric: Metric) -> EmfMetric:
    def get(run: RunView) -> Number | None:
        value = metric.get(run)
        if isinstance(value, str) or value is None:
            return None
        # The record's own numbers are rounded already.
        return round(value, _DIGITS) if metric.record_path is None else value

    return EmfMetric(name, _EMF_UNITS.get(metric.unit, "None"), get)


EMF_METRICS = tuple(_emf_metric(metric.emf_name, metric) for metric in METRICS if metric.emf_name is not None)
_BY_NAME = {metric.name: metric for metric in EMF_METRICS}
METRIC_NAMES = tuple(_BY_NAME)


def emf_members(report: Report, names: Iterable[str]) -> dict[str, Any]:
    """The members to add to the root object of the report's line.

    Values that were not measured or that CloudWatch rejects (not finite, above 2^360) are left out.

    Args:
        report: The report or checkpoint.
        names: The selected metrics, each of ``METRIC_NAMES``.

    Returns:
        The members; empty if no value is left, or if the record has no family, which is the metrics' only dimension.
    """
    record = report.record
    time_ns = parse_ns(report.time)
    if time_ns is None or record.family is None or not _DIMENSION_VALUE.fullmatch(record.family):
        return {}
    run = view_of(record)
    found = {name: _BY_NAME[name].get(run) for name in names}
    values = {name: value for name, value in found.items() if value is not None and abs(value) <= _MAX_VALUE}
    if not values:
        return {}
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [[DIMENSION]],
        "Metrics": [{"Name": name, "Unit": _BY_NAME[name].unit} for name in values],
    }
    return {
        "_aws": {"Timestamp": time_ns // NS_PER_MS, "CloudWatchMetrics": [directive]},
        DIMENSION: record.family,
        **values,
    }
