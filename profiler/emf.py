"""CloudWatch Embedded Metric Format: chosen numbers of a record as members of the line's root.

CloudWatch Logs makes metrics of such a line as it arrives, whoever sends it and without a header
(https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html).
Pure: a report and names in, members out.

Each name is a metric of its own in every family, and paid as one. A name that begins with
``max`` is a maximum, that of any other distribution the average. All values are those of the run
so far, but for the averages of CPU and memory: in a checkpoint these are of the time since the
last one, as a mean over the whole run hardly moves any more.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import Struct

from profiler.known import max_known, mean_known
from profiler.record import Distribution, Interval, Metrics, Number, Record, Report
from profiler.times import NS_PER_MS, parse_ns

Unit = Literal["Milliseconds", "Seconds", "Megabytes", "Bytes", "Percent", "Count", "None"]

NAMESPACE = "TaskProfiler"
DIMENSION = "family"
# What CloudWatch takes as a dimension's value: printable ASCII, not blank.
_DIMENSION_VALUE = re.compile(r"(?=.*[!-~])[ -~]{1,1024}")
_MAX_VALUE = 2**360
_DIGITS = 3


class EmfMetric(Struct, frozen=True):
    """A metric that can be chosen. ``value`` is None where the record does not tell.

    CloudWatch has no unit for MiB: what the record calls MB stands there as Megabytes.
    """

    name: str
    unit: Unit
    value: Callable[[Record], Number | None]


def emf_members(report: Report, names: Iterable[str]) -> dict[str, Any]:
    """The members to add to the root of the report's line; ``names`` are of ``METRIC_NAMES``.

    A number that was not measured, or that CloudWatch refuses (not finite, beyond 2^360), is left
    out. Empty if there is none, or without a family to tell the metrics of one batch from those
    of another.
    """
    record = report.record
    time_ns = parse_ns(report.time)
    if time_ns is None or record.family is None or not _DIMENSION_VALUE.fullmatch(record.family):
        return {}
    found = {name: _CATALOGUE[name].value(record) for name in names}
    values = {name: value for name, value in found.items() if value is not None and abs(value) <= _MAX_VALUE}
    if not values:
        return {}
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [[DIMENSION]],
        "Metrics": [{"Name": name, "Unit": _CATALOGUE[name].unit} for name in values],
    }
    return {
        "_aws": {"Timestamp": time_ns // NS_PER_MS, "CloudWatchMetrics": [directive]},
        DIMENSION: record.family,
        **values,
    }


def _avg(distribution: Distribution | None) -> float | None:
    return distribution.avg if distribution is not None else None


def _max(distribution: Distribution | None) -> float | None:
    return distribution.max if distribution is not None else None


def _mean(*values: float | None) -> float | None:
    found = mean_known(*values)
    return None if found is None else round(found, _DIGITS)


def _current_interval(record: Record) -> Metrics | Interval:
    return record.interval if record.interval is not None else record.metrics


def _cost_usd(record: Record) -> float | None:
    return record.cost.usd if record.cost is not None else None


def _failed(record: Record) -> int | None:
    """1 or 0, once a run; a stopped run did not fail by itself, and of an end unseen nothing is known."""
    if record.status in ("running", "unknown"):
        return None
    return int(record.status == "failure")


def _out_of_memory(record: Record) -> int | None:
    """1 or 0, once a run."""
    if record.status == "running" or record.likely_out_of_memory is None:
        return None
    return int(record.likely_out_of_memory)


def _gpu_utilization_percent(record: Record) -> float | None:
    return _mean(*(_avg(gpu.utilization_percent) for gpu in record.gpus))


def _gpu_memory_used_mb(record: Record) -> float | None:
    return _mean(*(_avg(gpu.memory_used_mb) for gpu in record.gpus))


def _max_gpu_memory_used_mb(record: Record) -> float | None:
    return max_known(*(_max(gpu.memory_used_mb) for gpu in record.gpus))


def _neuron_utilization_percent(record: Record) -> float | None:
    cores = record.neuron.cores if record.neuron is not None else ()
    return _mean(*(_avg(core.utilization_percent) for core in cores))


def _max_neuron_memory_used_mb(record: Record) -> float | None:
    return _max(record.neuron.device_memory_used_mb) if record.neuron is not None else None


CATALOGUE = (
    EmfMetric("durationMs", "Milliseconds", lambda record: record.metrics.duration_ms),
    EmfMetric("billedDurationMs", "Milliseconds", lambda record: record.metrics.billed_duration_ms),
    EmfMetric("initDurationMs", "Milliseconds", lambda record: record.metrics.init_duration_ms),
    EmfMetric("cpuSeconds", "Seconds", lambda record: record.metrics.cpu_seconds),
    EmfMetric(
        "cpuUtilizationPercent", "Percent", lambda record: _avg(_current_interval(record).cpu_utilization_percent)
    ),
    EmfMetric("maxCpuUtilizationPercent", "Percent", lambda record: _max(record.metrics.cpu_utilization_percent)),
    EmfMetric("maxMemoryUsedMB", "Megabytes", lambda record: record.metrics.max_memory_used_mb),
    EmfMetric(
        "memoryUtilizationPercent", "Percent", lambda record: _avg(_current_interval(record).memory_utilization_percent)
    ),
    EmfMetric("maxMemoryUtilizationPercent", "Percent", lambda record: _max(record.metrics.memory_utilization_percent)),
    EmfMetric("networkRxBytes", "Bytes", lambda record: record.metrics.network_rx_bytes),
    EmfMetric("networkTxBytes", "Bytes", lambda record: record.metrics.network_tx_bytes),
    EmfMetric("ephemeralStorageUsedMB", "Megabytes", lambda record: record.metrics.ephemeral_storage_used_mb),
    EmfMetric("costUsd", "None", _cost_usd),
    EmfMetric("failed", "Count", _failed),
    EmfMetric("outOfMemory", "Count", _out_of_memory),
    EmfMetric("gpuUtilizationPercent", "Percent", _gpu_utilization_percent),
    EmfMetric("gpuMemoryUsedMB", "Megabytes", _gpu_memory_used_mb),
    EmfMetric("maxGpuMemoryUsedMB", "Megabytes", _max_gpu_memory_used_mb),
    EmfMetric("neuronUtilizationPercent", "Percent", _neuron_utilization_percent),
    EmfMetric("maxNeuronMemoryUsedMB", "Megabytes", _max_neuron_memory_used_mb),
)
_CATALOGUE = {metric.name: metric for metric in CATALOGUE}
METRIC_NAMES = tuple(_CATALOGUE)
DEFAULT_METRICS = ("durationMs", "maxMemoryUsedMB", "cpuUtilizationPercent", "costUsd", "failed")
