"""The metric catalogue: each value that a run is reported with is one row.

These outputs are made from the catalogue:

- the REPORT text line (``record/text_line.py``), from ``text_label``;
- the CloudWatch metrics (``record/emf.py``), from ``emf_name``;
- the search documents (``record/document_fields.py``, ``lambda/forwarder/documents.py``), their index templates and the
  ingest pipeline for other shippers (``kibana/``), from ``document_field`` and ``record_path``.

The order of the rows is the order of the document's fields and of the CloudWatch metrics.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from profiler.record.accelerators import GpuTotals, NeuronTotals, gpu_totals, neuron_totals
from profiler.record.model import (
    AverageAndMaximum,
    Cost,
    Distribution,
    Interval,
    Metrics,
    Monitor,
    Number,
    Recommendation,
    Record,
    SlowdownBounds,
    TaskSize,
    known_status,
)

# MB is MiB, as in the record. "text" and "time" are the units of values that are not numbers.
Unit = Literal["ms", "s", "MB", "bytes", "%", "vCPU", "J", "USD", "count", "factor", "text", "time"]
IndexType = Literal["boolean", "date", "double", "float", "keyword", "long"]

_INDEX_TYPES: Mapping[Unit, IndexType] = {
    "ms": "double",
    "s": "double",
    "MB": "double",
    "bytes": "long",
    "%": "float",
    "vCPU": "float",
    "J": "double",
    "USD": "double",
    "count": "long",
    "factor": "float",
    "text": "keyword",
    "time": "date",
}
# The sizes in vCPU with a slowdown in the search document.
SLOWDOWN_SIZES = ("0.25", "0.5", "1", "2", "4", "8", "16", "32")
# The record rounds its own numbers to three digits, too.
_MEAN_DIGITS = 3
_NO_INTERVAL, _NO_COST, _NO_RECOMMENDATION, _NO_MONITOR = Interval(), Cost(), Recommendation(), Monitor()
_NO_GPUS, _NO_NEURON = GpuTotals(), NeuronTotals()


class RunView(Struct, frozen=True):
    """A record as the getters read it: parts that the record lacks are empty, and devices are combined."""

    record: Record
    metrics: Metrics
    interval: Interval
    cost: Cost
    recommendation: Recommendation
    monitor: Monitor
    gpus: GpuTotals
    neuron: NeuronTotals


class Metric(Struct, frozen=True, kw_only=True):
    """A row of the catalogue.

    Attributes:
        unit: The unit of the value.
        get: Reads the value; None if it was not measured.
        record_path: Where the record's JSON contains the value; None if the value is calculated.
        document_field: The field of the search document; None if the document does not contain the value.
        field_type: The field's type in the index if it is not the usual one of the unit.
        text_label: The label in the REPORT text line; None if the line does not contain the value.
        text_digits: The number of digits after the point in that line; None: as many as the value needs.
        emf_name: The name of the CloudWatch metric; None if there is none.
        emf_digits: The number of digits to which the CloudWatch metric is rounded; None: it is not rounded.
    """

    unit: Unit
    get: Callable[[RunView], Number | str | None]
    record_path: str | None = None
    document_field: str | None = None
    field_type: IndexType | None = None
    text_label: str | None = None
    text_digits: int | None = None
    emf_name: str | None = None
    emf_digits: int | None = None

    @property
    def index_type(self) -> IndexType:
        """The field's type in the index."""
        return self.field_type or _INDEX_TYPES[self.unit]


def view_of(record: Record) -> RunView:
    """Prepare a record for the getters of the catalogue."""
    return RunView(
        record,
        record.metrics,
        record.interval or _NO_INTERVAL,
        record.cost or _NO_COST,
        record.recommendation or _NO_RECOMMENDATION,
        record.monitor or _NO_MONITOR,
        gpu_totals(record.gpus) or _NO_GPUS,
        neuron_totals(record.neuron) or _NO_NEURON,
    )


def _statistics(
    unit: Unit,
    get: Callable[[RunView], Distribution | AverageAndMaximum | None],
    *,
    document_field: str,
    record_path: str | None = None,
    text_labels: Mapping[str, str] | None = None,
    emf_names: Mapping[str, str] | None = None,
    names: tuple[str, ...] = ("avg", "p50", "p95", "p99", "max"),
) -> Iterator[Metric]:
    """One row for each statistic of a distribution; labels and CloudWatch names are by statistic."""
    for name in names:
        yield Metric(
            unit=unit,
            get=_statistic(get, name),
            record_path=None if record_path is None else f"{record_path}.{name}",
            document_field=f"{document_field}.{name}",
            text_label=(text_labels or {}).get(name),
            emf_name=(emf_names or {}).get(name),
            emf_digits=_MEAN_DIGITS if record_path is None and name == "avg" else None,
        )


def _statistic(
    get: Callable[[RunView], Distribution | AverageAndMaximum | None], name: str
) -> Callable[[RunView], float | None]:
    def read(run: RunView) -> float | None:
        distribution = get(run)
        return None if distribution is None else getattr(distribution, name)

    return read


def _latest(run: RunView) -> Metrics | Interval:
    """In a checkpoint, the time since the last one: the mean of a long run hardly changes any more."""
    return run.metrics if run.record.interval is None else run.interval


def _waste_usd(run: RunView) -> float | None:
    """What the recommended size would have saved of this run."""
    usd, saving_percent = run.cost.usd, run.recommendation.saving_percent
    if usd is None or saving_percent is None or saving_percent < 0:
        return None
    return usd * saving_percent / 100


def _task_size(part: Callable[[TaskSize], Number | None]) -> Callable[[RunView], Number | None]:
    def read(run: RunView) -> Number | None:
        size = run.record.task_size
        return None if size is None else part(size)

    return read


def _stats_period_ms(run: RunView) -> int | None:
    sampling = run.record.sampling
    return None if sampling is None else sampling.stats_period_ms


def _failed(run: RunView) -> int | None:
    """1 or 0, once for each run. A stopped run did not fail; if the end was not observed, the result is not known."""
    status = known_status(run.record)
    return None if status in ("running", "unknown") else int(status == "failure")


def _out_of_memory(run: RunView) -> int | None:
    """1 or 0, once for each run."""
    likely = run.record.likely_out_of_memory
    return None if run.record.status == "running" or likely is None else int(likely)


def slowdown_field(bound: str, size: str) -> str:
    """The document's field with a bound (``min`` or ``max``) of the slowdown at one of ``SLOWDOWN_SIZES``."""
    return f"usage.cpu.slowdown.{bound}.v{size.replace('.', '_')}"


def _slowdowns(name: str, bound: Callable[[SlowdownBounds], float]) -> Iterator[Metric]:
    """One row for each smaller size: a bound of the slowdown there."""
    for size in SLOWDOWN_SIZES:
        yield Metric(unit="factor", get=_slowdown(size, bound), document_field=slowdown_field(name, size))


def _slowdown(size: str, bound: Callable[[SlowdownBounds], float]) -> Callable[[RunView], float | None]:
    def read(run: RunView) -> float | None:
        """1 for a size that the record leaves out, because the run would not have been slower there."""
        slowdown = run.metrics.slowdown_at_vcpu
        if slowdown is None:
            return None
        bounds = slowdown.get(size)
        return 1.0 if bounds is None else bound(bounds)

    return read


METRICS: tuple[Metric, ...] = (
    # Times
    Metric(
        unit="ms",
        get=lambda run: run.metrics.duration_ms,
        record_path="metrics.durationMs",
        document_field="usage.duration_ms",
        text_label="Duration",
        text_digits=2,  # as Lambda prints it
        emf_name="durationMs",
    ),
    Metric(
        unit="ms",
        get=lambda run: run.metrics.billed_duration_ms,
        record_path="metrics.billedDurationMs",
        document_field="usage.billed_duration_ms",
        text_label="Billed Duration",
        emf_name="billedDurationMs",
    ),
    Metric(
        unit="ms",
        get=lambda run: run.metrics.init_duration_ms,
        record_path="metrics.initDurationMs",
        document_field="usage.init_duration_ms",
        text_label="Init Duration",
        text_digits=2,  # as Lambda prints it
        emf_name="initDurationMs",
    ),
    # CPU
    Metric(
        unit="vCPU",
        get=lambda run: run.metrics.vcpu_size,
        record_path="metrics.vcpuSize",
        document_field="usage.cpu.size",
        text_label="vCPU Size",
    ),
    Metric(
        unit="s",
        get=lambda run: run.metrics.cpu_seconds,
        record_path="metrics.cpuSeconds",
        document_field="usage.cpu.seconds",
        text_label="CPU Time",
        emf_name="cpuSeconds",
    ),
    *_statistics(
        "vCPU",
        lambda run: run.metrics.vcpu_used,
        record_path="metrics.vcpuUsed",
        document_field="usage.cpu.used",
        text_labels={"avg": "Avg vCPU Used", "max": "Max vCPU Used"},
    ),
    Metric(
        unit="%",
        get=_statistic(lambda run: _latest(run).cpu_utilization_percent, "avg"),
        emf_name="cpuUtilizationPercent",
    ),
    *_statistics(
        "%",
        lambda run: run.metrics.cpu_utilization_percent,
        record_path="metrics.cpuUtilizationPercent",
        document_field="usage.cpu.percent",
        text_labels={"avg": "Avg CPU"},
        emf_names={"max": "maxCpuUtilizationPercent"},
    ),
    Metric(
        unit="%",
        get=lambda run: run.metrics.vcpu_saturated_percent,
        record_path="metrics.vcpuSaturatedPercent",
        document_field="usage.cpu.saturated_percent",
        field_type="double",  # exact, because `recommend` prints the mean
    ),
    *_slowdowns("min", lambda bounds: bounds.min),
    *_slowdowns("max", lambda bounds: bounds.max),
    # Memory
    Metric(
        unit="MB",
        get=lambda run: run.metrics.memory_size_mb,
        record_path="metrics.memorySizeMB",
        document_field="usage.memory.size_mb",
        text_label="Memory Size",
    ),
    # The maximum is the next row: the kernel's high-water mark may be above the sampled maximum.
    *_statistics(
        "MB",
        lambda run: run.metrics.memory_used_mb,
        record_path="metrics.memoryUsedMB",
        document_field="usage.memory.used_mb",
        text_labels={"avg": "Avg Memory Used"},
        names=("avg", "p50", "p95", "p99"),
    ),
    Metric(
        unit="MB",
        get=lambda run: run.metrics.max_memory_used_mb,
        record_path="metrics.maxMemoryUsedMB",
        document_field="usage.memory.used_mb.max",
        text_label="Max Memory Used",
        emf_name="maxMemoryUsedMB",
    ),
    Metric(
        unit="%",
        get=_statistic(lambda run: _latest(run).memory_utilization_percent, "avg"),
        emf_name="memoryUtilizationPercent",
    ),
    *_statistics(
        "%",
        lambda run: run.metrics.memory_utilization_percent,
        record_path="metrics.memoryUtilizationPercent",
        document_field="usage.memory.percent",
        emf_names={"max": "maxMemoryUtilizationPercent"},
    ),
    Metric(
        unit="text",
        get=lambda run: run.metrics.memory_peak_source,
        record_path="metrics.memoryPeakSource",
        document_field="usage.memory.peak_source",
        text_label="Memory Peak Source",
    ),
    *_statistics(
        "MB",
        lambda run: run.metrics.memory_cache_mb,
        record_path="metrics.memoryCacheMB",
        document_field="usage.memory.cache_mb",
        names=("avg", "max"),
    ),
    Metric(
        unit="MB",
        get=lambda run: run.metrics.memory_usage_peak_mb,
        record_path="metrics.memoryUsagePeakMB",
        document_field="usage.memory.usage_peak_mb",
    ),
    Metric(
        unit="count",
        get=lambda run: None if run.record.memory_kills is None else run.record.memory_kills.count,
        record_path="memoryKills.count",
        document_field="usage.memory.kills",
    ),
    # Network and storage
    Metric(
        unit="bytes",
        get=lambda run: run.metrics.network_rx_bytes,
        record_path="metrics.networkRxBytes",
        document_field="usage.network.rx_bytes",
        emf_name="networkRxBytes",
    ),
    Metric(
        unit="bytes",
        get=lambda run: run.metrics.network_tx_bytes,
        record_path="metrics.networkTxBytes",
        document_field="usage.network.tx_bytes",
        emf_name="networkTxBytes",
    ),
    Metric(
        unit="bytes",
        get=lambda run: run.metrics.block_read_bytes,
        record_path="metrics.blockReadBytes",
        document_field="usage.block.read_bytes",
    ),
    Metric(
        unit="bytes",
        get=lambda run: run.metrics.block_write_bytes,
        record_path="metrics.blockWriteBytes",
        document_field="usage.block.write_bytes",
    ),
    Metric(
        unit="MB",
        get=lambda run: run.metrics.ephemeral_storage_used_mb,
        record_path="metrics.ephemeralStorageUsedMB",
        emf_name="ephemeralStorageUsedMB",
    ),
    # The time since the last checkpoint, in checkpoints only
    Metric(
        unit="time",
        get=lambda run: run.interval.started_at,
        record_path="interval.startedAt",
        document_field="interval.start",
    ),
    Metric(
        unit="time",
        get=lambda run: run.interval.finished_at,
        record_path="interval.finishedAt",
        document_field="interval.end",
    ),
    Metric(
        unit="%",
        get=_statistic(lambda run: run.interval.cpu_utilization_percent, "avg"),
        record_path="interval.cpuUtilizationPercent.avg",
        document_field="interval.cpu_percent",
    ),
    Metric(
        unit="MB",
        get=_statistic(lambda run: run.interval.memory_used_mb, "max"),
        record_path="interval.memoryUsedMB.max",
        document_field="interval.memory_mb",
    ),
    Metric(
        unit="%",
        get=_statistic(lambda run: run.interval.gpu_utilization_percent, "avg"),
        record_path="interval.gpuUtilizationPercent.avg",
        document_field="interval.gpu_percent",
    ),
    Metric(
        unit="MB",
        get=_statistic(lambda run: run.interval.gpu_memory_used_mb, "max"),
        record_path="interval.gpuMemoryUsedMB.max",
        document_field="interval.gpu_memory_mb",
    ),
    Metric(
        unit="%",
        get=_statistic(lambda run: run.interval.neuron_utilization_percent, "avg"),
        record_path="interval.neuronUtilizationPercent.avg",
        document_field="interval.neuron_percent",
    ),
    # The task's size, which Fargate bills, and how often its readings were refreshed
    Metric(
        unit="vCPU",
        get=_task_size(lambda size: size.vcpu),
        record_path="taskSize.vcpu",
        document_field="task.size.vcpu",
        field_type="double",
    ),
    Metric(
        unit="MB",
        get=_task_size(lambda size: size.memory_mb),
        record_path="taskSize.memoryMB",
        document_field="task.size.memory_mb",
    ),
    Metric(
        unit="ms",
        get=_stats_period_ms,
        record_path="sampling.statsPeriodMs",
        document_field="monitor.stats_period_ms",
    ),
    # Cost and outcome
    Metric(
        unit="USD",
        get=lambda run: run.cost.usd,
        record_path="cost.usd",
        document_field="cost.usd",
        text_label="Cost",
        emf_name="costUsd",
    ),
    Metric(unit="USD", get=_waste_usd, document_field="cost.waste_usd"),
    Metric(unit="count", get=_failed, emf_name="failed"),
    Metric(unit="count", get=_out_of_memory, emf_name="outOfMemory"),
    # All GPUs
    Metric(unit="count", get=lambda run: run.gpus.count, document_field="usage.gpu.count", text_label="GPUs"),
    Metric(unit="count", get=lambda run: run.gpus.idle, text_label="Idle GPUs"),
    *_statistics(
        "%",
        lambda run: run.gpus.utilization_percent,
        document_field="usage.gpu.percent",
        text_labels={"avg": "Avg GPU"},
        emf_names={"avg": "gpuUtilizationPercent"},
        names=("avg", "max"),
    ),
    *_statistics(
        "MB",
        lambda run: run.gpus.memory_used_mb,
        document_field="usage.gpu.memory_mb",
        text_labels={"max": "Max GPU Memory Used"},
        emf_names={"avg": "gpuMemoryUsedMB", "max": "maxGpuMemoryUsedMB"},
        names=("avg", "max"),
    ),
    Metric(
        unit="J",
        get=lambda run: run.gpus.energy_joules,
        document_field="usage.gpu.energy_joules",
        text_label="GPU Energy",
    ),
    # All NeuronCores, and the memory of all Neuron devices
    Metric(
        unit="count",
        get=lambda run: run.neuron.cores,
        document_field="usage.neuron.cores",
        text_label="Neuron Cores",
    ),
    *_statistics(
        "%",
        lambda run: run.neuron.utilization_percent,
        document_field="usage.neuron.percent",
        text_labels={"avg": "Avg Neuron Core"},
        emf_names={"avg": "neuronUtilizationPercent"},
        names=("avg", "max"),
    ),
    *_statistics(
        "MB",
        lambda run: run.neuron.device_memory_used_mb,
        document_field="usage.neuron.memory_mb",
        text_labels={"max": "Max Neuron Memory Used"},
        emf_names={"max": "maxNeuronMemoryUsedMB"},
        names=("max",),
    ),
    # The recommended size
    Metric(
        unit="vCPU",
        get=lambda run: run.recommendation.vcpu,
        record_path="recommendation.vcpu",
        document_field="recommendation.vcpu",
        text_label="Recommended vCPU",
    ),
    Metric(
        unit="MB",
        get=lambda run: run.recommendation.memory_mb,
        record_path="recommendation.memoryMB",
        document_field="recommendation.memory_mb",
        text_label="Recommended Memory",
    ),
    Metric(
        unit="%",
        get=lambda run: run.recommendation.saving_percent,
        record_path="recommendation.savingPercent",
        document_field="recommendation.saving_percent",
        text_label="Saving",
    ),
    # The monitor itself
    Metric(
        unit="text",
        get=lambda run: run.monitor.version,
        record_path="monitor.version",
        document_field="monitor.version",
    ),
    Metric(
        unit="s",
        get=lambda run: run.monitor.cpu_seconds,
        record_path="monitor.cpuSeconds",
        document_field="monitor.cpu_seconds",
    ),
    Metric(
        unit="MB",
        get=lambda run: run.monitor.max_rss_mb,
        record_path="monitor.maxRssMB",
        document_field="monitor.max_rss_mb",
    ),
)
