"""The metric catalogue: a row for each value of a run in the REPORT line, in CloudWatch and in
search documents.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct

from profiler.core.ecs_terms import VCPU_SIZES
from profiler.core.optional_math import known, sum_known
from profiler.record.device_totals import own_gpus
from profiler.record.hardware import most_telling_gpu_error
from profiler.record.measured import Number
from profiler.record.model_base import json_name
from profiler.record.record_model import (
    NO_INTERVAL,
    NO_RECOMMENDATION,
    Record,
    SlowdownBounds,
    known_status,
)
from profiler.record.record_paths import RunView, Unit, json_path, view_reader
from profiler.record.task_needs import (
    bound_memory_mb,
    is_cpu_limited,
    memory_with_files_mb,
    needed_memory_mb,
    needed_vcpu,
    others_memory_mb,
    uncached_peak_mb,
    vcpu_size,
)

IndexType = Literal["boolean", "date", "double", "float", "keyword", "long", "object"]

# The types that are not double.
_INDEX_TYPES: Mapping[Unit, IndexType] = {
    **dict.fromkeys(("%", "vCPU", "factor"), "float"),
    **dict.fromkeys(("bytes", "count"), "long"),
    "text": "keyword",
    "time": "date",
}
# The parts of the wall time, which add up to 100 %.
TIME_PARTS = (
    "on_cpu",
    "waiting_for_cpu",
    "disk",
    "network",
    "sleep",
    "lock",
    "pipe",
    "child",
    "other",
)
_NO_NAMES: Mapping[str, str] = {}
_STATISTICS = ("avg", "p50", "p95", "p99", "max")
_MEAN_AND_MAX = ("avg", "max")
_Bound: TypeAlias = Literal["min", "max"]


class Metric(Struct, frozen=True, kw_only=True):
    """A row of the catalogue. What is empty is not in the output concerned.

    ``path`` is where the view of a record has the value, and ``record_path`` where the record's
    JSON contains it, if it is not calculated.
    ``field_type`` is the type in the index if it is not the usual one of the unit. ``text_digits``
    are those after the point in the REPORT text line; None: all. ``gpu_field`` is the field of one
    GPU of which the value is the sum; ``live_name``: a live metric.
    """

    unit: Unit
    get: Callable[[RunView], Number | str | None]
    path: str = ""
    record_path: str = ""
    document_field: str = ""
    field_type: IndexType | None = None
    text_label: str = ""
    text_digits: int | None = None
    emf_name: str = ""
    gpu_field: str = ""
    live_name: str = ""
    live_help: str = ""

    @property
    def index_type(self) -> IndexType:
        return self.field_type or _INDEX_TYPES.get(self.unit, "double")


def _metric_row(
    unit: Unit,
    path: str,
    document_field: str = "",
    **outputs: Any,  # noqa: ANN401
) -> Metric:
    return Metric(
        unit=unit,
        get=view_reader(path),
        path=path,
        record_path=json_path(path),
        document_field=document_field,
        **outputs,
    )


def _emf_metric_row(
    unit: Unit,
    path: str,
    document_field: str = "",
    **outputs: Any,  # noqa: ANN401
) -> Metric:
    """A row that is also a CloudWatch metric, with the record's name."""
    return _metric_row(
        unit, path, document_field, emf_name=json_name(path.rpartition(".")[2]), **outputs
    )


def _gpu_total_row(
    unit: Unit,
    name: str,
    document_field: str = "",
    **outputs: Any,  # noqa: ANN401
) -> Metric:
    """A row for the sum of a counter over all GPUs that are not shared.

    ``profiler/collectors/nvidia`` reads it, ``Gpu`` has its field.
    """
    return Metric(
        unit=unit,
        get=partial(_sum_of_own_gpus, name),
        document_field=document_field,
        gpu_field=name,
        **outputs,
    )


def _sum_of_own_gpus(name: str, run: RunView) -> Number | None:
    return sum_known(*(getattr(gpu, name) for gpu in own_gpus(run.record.gpus)))


def _statistic_rows(
    unit: Unit,
    path: str,
    document_field: str,
    *,
    names: tuple[str, ...] = _STATISTICS,
    text: Mapping[str, str] = _NO_NAMES,
    emf: Mapping[str, str] = _NO_NAMES,
) -> Iterator[Metric]:
    """One row for each statistic of a distribution; ``text`` and ``emf`` have its label and
    CloudWatch name.
    """
    for name in names:
        outputs = {"text_label": text.get(name, ""), "emf_name": emf.get(name, "")}
        yield _metric_row(unit, f"{path}.{name}", f"{document_field}.{name}", **outputs)


def _share_of_size_row(path: str, document_field: str) -> Metric:
    """A row for a share of the run's vCPUs in a document. The record's own share is one of the
    machine's, of which a job that nothing limits asked for a part.
    """
    of_machine = view_reader(path)
    return Metric(
        unit="%",
        get=lambda run: _share_of_size(of_machine(run), run.record),
        document_field=document_field,
    )


def _share_of_size(percent: float | None, record: Record) -> float | None:
    if percent is None or is_cpu_limited(record):
        return percent
    machine, size = record.metrics.vcpu_size, vcpu_size(record)
    return percent * machine / size if machine and size else percent


def _latest_mean_getter(name: str) -> Callable[[RunView], float | None]:
    """The mean over the run, or in a checkpoint since the last one: the mean of a long run
    hardly changes any more.
    """
    whole = view_reader(f"metrics.{name}.avg")
    latest = view_reader(f"interval.{name}.avg")
    return lambda run: whole(run) if run.interval is NO_INTERVAL else latest(run)


def _waste_usd(run: RunView) -> float | None:
    """What the recommended size would have saved of this run."""
    record = run.record
    usd = record.cost.usd
    if record.recommendation == NO_RECOMMENDATION:
        saving_percent = None
    else:
        saving_percent = record.recommendation.saving_percent
    if usd is None or saving_percent is None or saving_percent < 0:
        return None
    return usd * saving_percent / 100


def _failed_count(run: RunView) -> int | None:
    """1 or 0, once for each run.

    A stopped run did not fail; if the end was not observed, the result is not known.
    """
    status = known_status(run.record)
    if status in ("running", "unknown"):
        return None
    return int(status == "failure")


def _out_of_memory_count(run: RunView) -> int | None:
    likely = run.record.likely_out_of_memory
    return None if run.record.status == "running" else known(int, likely)


def _out_of_gpu_memory_count(run: RunView) -> int | None:
    if run.record.status == "running" or not run.record.gpus:
        return None
    return int(bool(run.record.likely_out_of_gpu_memory))


def _gpu_failed_count(run: RunView) -> int | None:
    """Whether the driver of the run's GPUs has reported an error."""
    record = run.record
    if record.status == "running" or not record.gpus or record.are_gpus_of_instance:
        return None
    return int(most_telling_gpu_error(run.record) is not None)


def _active_percent_rows(unit: str) -> Iterator[Metric]:
    """The shares of the time in which a unit of the GPUs was active."""
    return _statistic_rows(
        "%",
        f"gpus.{unit}_active_percent",
        f"usage.gpu.{unit}_active.percent",
        names=_MEAN_AND_MAX,
        emf={"avg": f"gpu{unit.title()}ActivePercent"},
    )


def _link_total_rows(link: str) -> Iterator[Metric]:
    """The bytes that all GPUs together received and sent over a link."""
    for direction, verb, done in (("rx", "receive", "received"), ("tx", "transmit", "sent")):
        yield _gpu_total_row(
            "bytes",
            f"{link.lower()}_{direction}_bytes",
            live_name=f"gpu_{link.lower()}_{verb}_bytes_total",
            live_help=f"Bytes {done} over {link}. From Hopper on.",
        )


def _slowdown_rows(bound: _Bound) -> Iterator[Metric]:
    """One row for each smaller size: a bound of the slowdown there."""
    for size, field in zip(_SIZES, SLOWDOWN_FIELDS[bound], strict=True):
        yield Metric(
            unit="factor", get=partial(_slowdown_at_size, size, bound), document_field=field
        )


_SIZES = tuple(f"{vcpu:g}" for vcpu in VCPU_SIZES)
_NOT_SLOWER = SlowdownBounds(min=1.0, max=1.0)
SLOWDOWN_FIELDS: Final[Mapping[_Bound, Sequence[str]]] = {
    bound: [f"usage.cpu.slowdown.{bound}.v{size.replace('.', '_')}" for size in _SIZES]
    for bound in get_args(_Bound)
}
"""The fields of a document with a bound of the slowdown at each smaller size."""


def _slowdown_at_size(size: str, bound: _Bound, run: RunView) -> float | None:
    """1 for a size that the record leaves out, because the run would not have been slower there."""
    slowdown = run.metrics.slowdown_at_vcpu
    if slowdown is None:
        return None
    bounds: float = getattr(slowdown.get(size, _NOT_SLOWER), bound)
    return bounds


def slowdown_values(bound: _Bound, slowdown: Mapping[str, SlowdownBounds]) -> tuple[float, ...]:
    """The values of the ``SLOWDOWN_FIELDS`` of a bound, read at once."""
    read = attrgetter(bound)
    return tuple([read(slowdown.get(size, _NOT_SLOWER)) for size in _SIZES])


def _calculated_row(unit: Unit, value: Callable[[Record], Number | None], field: str) -> Metric:
    return Metric(
        unit=unit, get=lambda run: value(run.record), document_field=field, field_type="double"
    )


METRICS: tuple[Metric, ...] = (
    # Times. The REPORT line has two digits where Lambda prints them.
    _emf_metric_row(
        "ms", "metrics.duration_ms", "usage.duration_ms", text_label="Duration", text_digits=2
    ),
    _emf_metric_row(
        "ms", "metrics.billed_duration_ms", "usage.billed_duration_ms", text_label="Billed Duration"
    ),
    _emf_metric_row(
        "ms",
        "metrics.init_duration_ms",
        "usage.init_duration_ms",
        text_label="Init Duration",
        text_digits=2,
    ),
    # CPU
    _metric_row("vCPU", "metrics.vcpu_size", text_label="vCPU Size"),
    Metric(unit="vCPU", get=lambda run: vcpu_size(run.record), document_field="usage.cpu.size"),
    _emf_metric_row("s", "metrics.cpu_seconds", "usage.cpu.seconds", text_label="CPU Time"),
    *_statistic_rows(
        "vCPU",
        "metrics.vcpu_used",
        "usage.cpu.used",
        text={"avg": "Avg vCPU Used", "max": "Max vCPU Used"},
    ),
    Metric(
        unit="%",
        get=_latest_mean_getter("cpu_utilization_percent"),
        emf_name="cpuUtilizationPercent",
    ),
    _metric_row("%", "metrics.cpu_utilization_percent.avg", text_label="Avg CPU"),
    _metric_row("%", "metrics.cpu_utilization_percent.max", emf_name="maxCpuUtilizationPercent"),
    *(
        _share_of_size_row(f"metrics.cpu_utilization_percent.{name}", f"usage.cpu.percent.{name}")
        for name in _STATISTICS
    ),
    _metric_row(
        "%", "metrics.vcpu_saturated_percent", "usage.cpu.saturated_percent", field_type="double"
    ),
    _metric_row("s", "metrics.cpu_wait_seconds", "usage.cpu.wait_seconds"),
    *_slowdown_rows("min"),
    *_slowdown_rows("max"),
    # Where the time went
    *(
        _metric_row("%", f"record.time_breakdown.{part}_percent", f"usage.time.{part}.percent")
        for part in TIME_PARTS
    ),
    # Memory
    _metric_row("MB", "metrics.memory_size_mb", "usage.memory.size_mb", text_label="Memory Size"),
    # The maximum is the next row: the kernel's high-water mark may be above the sampled maximum.
    *_statistic_rows(
        "MB",
        "metrics.memory_used_mb",
        "usage.memory.used_mb",
        text={"avg": "Avg Memory Used"},
        names=("avg", "p50", "p95", "p99"),
    ),
    _emf_metric_row(
        "MB", "metrics.max_memory_used_mb", "usage.memory.used_mb.max", text_label="Max Memory Used"
    ),
    Metric(
        unit="%",
        get=_latest_mean_getter("memory_utilization_percent"),
        emf_name="memoryUtilizationPercent",
    ),
    *_statistic_rows(
        "%",
        "metrics.memory_utilization_percent",
        "usage.memory.percent",
        emf={"max": "maxMemoryUtilizationPercent"},
    ),
    _metric_row(
        "text",
        "metrics.memory_peak_source",
        "usage.memory.peak_source",
        text_label="Memory Peak Source",
    ),
    *_statistic_rows("MB", "metrics.memory_cache_mb", "usage.memory.cache_mb", names=_MEAN_AND_MAX),
    *_statistic_rows(
        "MB",
        "metrics.memory_mapped_file_mb",
        "usage.memory.mapped_file_mb",
        names=_MEAN_AND_MAX,
    ),
    *_statistic_rows(
        "MB", "metrics.memory_huge_pages_mb", "usage.memory.huge_pages_mb", names=_MEAN_AND_MAX
    ),
    _metric_row("MB", "metrics.memory_used_bound_mb", "usage.memory.used_bound_mb"),
    _metric_row("MB", "metrics.memory_usage_peak_mb", "usage.memory.usage_peak_mb"),
    _metric_row("count", "record.memory_kills.count", "usage.memory.kills"),
    # What a search cluster needs to find the runs that decide on a size
    _calculated_row("MB", needed_memory_mb, "usage.task.memory_mb"),
    _calculated_row("MB", memory_with_files_mb, "usage.task.memory_with_files_mb"),
    _calculated_row("MB", bound_memory_mb, "usage.task.memory_bound_mb"),
    _calculated_row("MB", others_memory_mb, "usage.task.others_memory_mb"),
    _calculated_row("vCPU", needed_vcpu, "usage.task.vcpu_p95"),
    Metric(
        unit="MB",
        get=lambda run: uncached_peak_mb(run.metrics),
        document_field="usage.memory.uncached_peak_mb",
    ),
    # Network and storage
    _emf_metric_row("bytes", "metrics.network_rx_bytes", "usage.network.rx_bytes"),
    _emf_metric_row("bytes", "metrics.network_tx_bytes", "usage.network.tx_bytes"),
    _metric_row("bytes", "metrics.block_read_bytes", "usage.block.read_bytes"),
    _metric_row("bytes", "metrics.block_write_bytes", "usage.block.write_bytes"),
    _emf_metric_row("MB", "metrics.ephemeral_storage_used_mb"),
    # The time since the last checkpoint, in checkpoints only
    _metric_row("time", "interval.started_at", "interval.start"),
    _metric_row("time", "interval.finished_at", "interval.end"),
    _share_of_size_row("interval.cpu_utilization_percent.avg", "interval.cpu_percent"),
    _metric_row("MB", "interval.memory_used_mb.max", "interval.memory_mb"),
    _metric_row("%", "interval.gpu_utilization_percent.avg", "interval.gpu_percent"),
    _metric_row("MB", "interval.gpu_memory_used_mb.max", "interval.gpu_memory_mb"),
    _metric_row("%", "interval.neuron_utilization_percent.avg", "interval.neuron_percent"),
    # The task's size, which Fargate bills, and how often its readings were refreshed
    _metric_row("vCPU", "record.task_size.vcpu", "task.size.vcpu", field_type="double"),
    _metric_row("MB", "record.task_size.memory_mb", "task.size.memory_mb"),
    _metric_row("ms", "record.sampling.stats_period_ms", "monitor.stats_period_ms"),
    # Cost and outcome
    _metric_row("USD", "record.cost.usd", "cost.usd", text_label="Cost", emf_name="costUsd"),
    Metric(unit="USD", get=_waste_usd, document_field="cost.waste_usd"),
    Metric(unit="count", get=_failed_count, emf_name="failed"),
    Metric(unit="count", get=_out_of_memory_count, emf_name="outOfMemory"),
    Metric(unit="count", get=_out_of_gpu_memory_count, emf_name="outOfGpuMemory"),
    Metric(unit="count", get=_gpu_failed_count, emf_name="gpuError"),
    # All GPUs; without a scope, they are known to be the run's
    _metric_row("count", "gpus.count", "usage.gpu.count", text_label="GPUs"),
    Metric(
        unit="text",
        get=lambda run: run.gpus.scope,
        document_field="usage.gpu.scope",
        text_label="GPU Scope",
    ),
    _metric_row("count", "gpus.idle", text_label="Idle GPUs"),
    *_statistic_rows(
        "%",
        "gpus.utilization_percent",
        "usage.gpu.percent",
        names=_MEAN_AND_MAX,
        text={"avg": "Avg GPU"},
        emf={"avg": "gpuUtilizationPercent"},
    ),
    *_active_percent_rows("sm"),
    *_active_percent_rows("tensor"),
    *_active_percent_rows("dram"),
    _metric_row(
        "%", "record.gpu_idle.percent", "usage.gpu.idle.percent", emf_name="gpuIdlePercent"
    ),
    _metric_row("h", "record.gpu_idle.gpu_hours", "usage.gpu.idle.hours", emf_name="gpuIdleHours"),
    *_statistic_rows(
        "MB",
        "gpus.memory_used_mb",
        "usage.gpu.memory_mb",
        names=_MEAN_AND_MAX,
        text={"max": "Max GPU Memory Used"},
        emf={"avg": "gpuMemoryUsedMB", "max": "maxGpuMemoryUsedMB"},
    ),
    _gpu_total_row("J", "energy_joules", "usage.gpu.energy_joules", text_label="GPU Energy"),
    *_link_total_rows("PCIe"),
    *_link_total_rows("NVLink"),
    # All NeuronCores, and the memory of all Neuron devices
    _metric_row("count", "neuron.cores", "usage.neuron.cores", text_label="Neuron Cores"),
    *_statistic_rows(
        "%",
        "neuron.utilization_percent",
        "usage.neuron.percent",
        names=_MEAN_AND_MAX,
        text={"avg": "Avg Neuron Core"},
        emf={"avg": "neuronUtilizationPercent"},
    ),
    *_statistic_rows(
        "MB",
        "neuron.device_memory_used_mb",
        "usage.neuron.memory_mb",
        names=("max",),
        text={"max": "Max Neuron Memory Used"},
        emf={"max": "maxNeuronMemoryUsedMB"},
    ),
    # The recommended size
    _metric_row(
        "vCPU", "record.recommendation.vcpu", "recommendation.vcpu", text_label="Recommended vCPU"
    ),
    _metric_row(
        "MB",
        "record.recommendation.memory_mb",
        "recommendation.memory_mb",
        text_label="Recommended Memory",
    ),
    _metric_row(
        "%",
        "record.recommendation.saving_percent",
        "recommendation.saving_percent",
        text_label="Saving",
    ),
    # The monitor itself
    _metric_row("text", "record.monitor.version", "monitor.version"),
    _metric_row("s", "record.monitor.cpu_seconds", "monitor.cpu_seconds"),
    _metric_row("MB", "record.monitor.max_rss_mb", "monitor.max_rss_mb"),
)

# The live metrics of a GPU's totals.
LIVE_GPU_TOTALS = tuple(metric for metric in METRICS if metric.live_name)
