"""The notice of a stopped task: verdict, reason, numbers, and a comparison with recent runs of the family."""

from statistics import median

import msgspec
from msgspec import Struct

from forwarder.delivery_errors import ClusterError
from forwarder.search_cluster.bulk_client import Cluster
from forwarder.task.run_log import FoundReport
from forwarder.task.task_event import StoppedTask
from profiler.core.ecs_terms import arn_part
from profiler.record.accelerators import gpu_totals, neuron_totals
from profiler.record.model import Distribution, Record
from profiler.record.run_outcome import EndStatus, StopCategory

_MAX_RUNS = 20
_MIN_RUNS = 5
COMPARISON_SECONDS = 5.0
_NOTABLE_RATIO = 1.5
_MAX_PROCESSES = 3
_ACCOUNT_PART = 4
_NO_DISTRIBUTION = Distribution()


class AcceleratorUse(Struct, frozen=True, kw_only=True):
    """The use of all GPUs, or all Neuron cores, of a run together: percent from 0 to 100, memory in MiB."""

    count: int
    average_percent: float | None = None
    maximum_percent: float | None = None
    maximum_memory_mb: float | None = None


class SizeAdvice(Struct, frozen=True, kw_only=True):
    """The size to try next. ``saving_percent`` is negative if the size costs more."""

    vcpu: float | None = None
    memory_mb: float | None = None
    saving_percent: float | None = None
    reasons: tuple[str, ...] = ()


class KilledProcesses(Struct, frozen=True, kw_only=True):
    """How many of the batch's processes the kernel killed because memory ran out, and the names that are known."""

    count: int
    names: tuple[str, ...] = ()


class ProcessUse(Struct, frozen=True, kw_only=True):
    """All processes with one name: how many there were, and their memory in MiB at its highest moment.

    ``holders`` is the number of processes that held it together.
    """

    name: str
    maximum_memory_mb: float
    count: int | None = None
    holders: int | None = None


class UsageSeries(Struct, frozen=True, kw_only=True):
    """CPU and memory over the run, in steps of equal length; None: not measured."""

    vcpu_used: tuple[float | None, ...] = ()
    memory_used_mb: tuple[float | None, ...] = ()


class RunNumbers(Struct, frozen=True, kw_only=True):
    """What the run used; None where unknown. Percentages are relative to the limits of the container.

    ``processes`` are the largest by memory, the largest one first.
    """

    duration_ms: float | None = None
    billed_duration_ms: float | None = None
    cost_usd: float | None = None
    vcpu_size: float | None = None
    cpu_average_percent: float | None = None
    cpu_maximum_percent: float | None = None
    memory_size_mb: float | None = None
    memory_average_percent: float | None = None
    memory_maximum_percent: float | None = None
    memory_maximum_mb: float | None = None
    gpus: AcceleratorUse | None = None
    neuron: AcceleratorUse | None = None
    series: UsageSeries = UsageSeries()
    processes: tuple[ProcessUse, ...] = ()
    killed: KilledProcesses | None = None
    advice: SizeAdvice | None = None


class Notice(Struct, frozen=True, kw_only=True):
    """One stopped task.

    ``reason`` is the text from ECS; ``comparison`` is a sentence about recent runs of the family. ``is_complete`` is
    False if the numbers are from a checkpoint or from the event alone. ``log_lines`` are the batch's last lines, the
    newest one last. ``record`` is that of the report or checkpoint.
    """

    verdict: EndStatus
    category: StopCategory
    family: str
    revision: str | None = None
    cluster: str | None = None
    region: str | None = None
    task_id: str
    task_arn: str | None = None
    container: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    started_at: str | None = None
    numbers: RunNumbers = RunNumbers()
    is_complete: bool = False
    comparison: str | None = None
    log_group: str | None = None
    log_stream: str | None = None
    log_lines: tuple[str, ...] = ()
    finished_at: str | None = None
    record: Record | None = None


def run_numbers(task: StoppedTask, found: FoundReport | None) -> RunNumbers:
    """Return the numbers of the run. With a checkpoint, the duration is the event's, not the checkpoint's."""
    if found is None:
        return RunNumbers(duration_ms=task.duration_ms)
    record = found.report.record
    metrics = record.metrics
    cpu = metrics.cpu_utilization_percent or _NO_DISTRIBUTION
    memory = metrics.memory_utilization_percent or _NO_DISTRIBUTION
    final_duration_ms = metrics.duration_ms if found.is_final and record.status != "stopped" else None
    return RunNumbers(
        duration_ms=task.duration_ms if final_duration_ms is None else final_duration_ms,
        billed_duration_ms=metrics.billed_duration_ms if found.is_final else None,
        cost_usd=record.cost.usd if record.cost is not None and found.is_final else None,
        vcpu_size=metrics.vcpu_size,
        cpu_average_percent=cpu.avg,
        cpu_maximum_percent=cpu.max,
        memory_size_mb=metrics.memory_size_mb,
        memory_average_percent=memory.avg,
        memory_maximum_percent=memory.max,
        memory_maximum_mb=metrics.max_memory_used_mb,
        gpus=_gpus(record),
        neuron=_neuron(record),
        series=_series(record),
        processes=_processes(record),
        killed=_killed(record),
        advice=_advice(record),
    )


def _gpus(record: Record) -> AcceleratorUse | None:
    totals = gpu_totals(record.gpus)
    if totals is None or totals.count is None:
        return None
    return AcceleratorUse(
        count=totals.count,
        average_percent=totals.utilization_percent.avg,
        maximum_percent=totals.utilization_percent.max,
        maximum_memory_mb=totals.memory_used_mb.max,
    )


def _neuron(record: Record) -> AcceleratorUse | None:
    totals = neuron_totals(record.neuron)
    if totals is None or not totals.cores:
        return None
    return AcceleratorUse(
        count=totals.cores,
        average_percent=totals.utilization_percent.avg,
        maximum_percent=totals.utilization_percent.max,
        maximum_memory_mb=totals.device_memory_used_mb.max,
    )


def _series(record: Record) -> UsageSeries:
    series = record.series
    if series is None:
        return UsageSeries()
    return UsageSeries(vcpu_used=series.vcpu_used or (), memory_used_mb=series.memory_used_mb or ())


def _processes(record: Record) -> tuple[ProcessUse, ...]:
    """Return the largest processes. One process of one name is the batch itself, whose memory is known already."""
    measured = [
        ProcessUse(
            name=process.name,
            maximum_memory_mb=process.max_memory_used_mb,
            count=process.count,
            holders=process.max_memory_used_processes,
        )
        for process in record.processes
        if process.max_memory_used_mb is not None
    ]
    if len(record.processes) == 1 and record.processes[0].count in {None, 1}:
        return ()
    return tuple(sorted(measured, key=lambda process: -process.maximum_memory_mb)[:_MAX_PROCESSES])


def _killed(record: Record) -> KilledProcesses | None:
    kills = record.memory_kills
    if kills is None or kills.count < 1:
        return None
    return KilledProcesses(count=kills.count, names=tuple(process.name for process in kills.processes))


def _advice(record: Record) -> SizeAdvice | None:
    """Return the advice; without a size if the task already has the recommended size."""
    advice = record.recommendation
    if advice is None:
        return None
    size = record.task_size
    if size is not None and (size.vcpu, size.memory_mb) == (advice.vcpu, advice.memory_mb):
        return SizeAdvice(reasons=advice.reasons)
    return SizeAdvice(
        vcpu=advice.vcpu, memory_mb=advice.memory_mb, saving_percent=advice.saving_percent, reasons=advice.reasons
    )


class _Usage(Struct):
    duration_ms: float | None = None


class _Cluster(Struct):
    name: str | None = None


class _Orchestrator(Struct):
    cluster: _Cluster = msgspec.field(default_factory=_Cluster)


class _Source(Struct):
    usage: _Usage = msgspec.field(default_factory=_Usage)
    orchestrator: _Orchestrator = msgspec.field(default_factory=_Orchestrator)


class _Hit(Struct):
    source: _Source = msgspec.field(name="_source", default_factory=_Source)


class _Hits(Struct):
    hits: tuple[_Hit, ...] = ()


class _SearchResponse(Struct):
    hits: _Hits = msgspec.field(default_factory=_Hits)


def compare(
    cluster: Cluster, notice: Notice, *, prefix: str, timeout_seconds: float = COMPARISON_SECONDS
) -> str | None:
    """Compare the duration with the median of the family's recent successful runs.

    The family's runs are those of the same account and Region. If there are enough of them, only runs in the same ECS
    cluster count.

    Returns:
        A sentence; None without a duration, with fewer than 5 runs, or if the cluster does not respond in time.
    """
    duration_ms = notice.numbers.duration_ms
    if duration_ms is None or duration_ms <= 0:
        return None
    try:
        response = cluster.search(f"{prefix}-reports-*", _recent_runs_query(notice), timeout_seconds)
    except ClusterError:
        return None
    durations = _durations(response, notice.cluster)
    median_ms = median(durations) if len(durations) >= _MIN_RUNS else 0
    return _sentence(duration_ms / median_ms, len(durations)) if median_ms > 0 else None


def _recent_runs_query(notice: Notice) -> dict[str, object]:
    """Build the query for the newest successful runs of the family; those in the same ECS cluster come first."""
    values = {
        "task.family": notice.family,
        "task.status": "success",
        "cloud.account.id": arn_part(notice.task_arn, _ACCOUNT_PART),
        "cloud.region": notice.region,
    }
    query: dict[str, object] = {
        "filter": [{"term": {field: value}} for field, value in values.items() if value is not None],
        "must_not": [{"term": {"task.id": notice.task_id}}],
    }
    if notice.cluster is not None:
        query["should"] = [{"constant_score": {"filter": {"term": {"orchestrator.cluster.name": notice.cluster}}}}]
    return {
        "size": _MAX_RUNS,
        "_source": ["usage.duration_ms", "orchestrator.cluster.name"],
        "query": {"bool": query},
        "sort": [{"_score": {"order": "desc"}}, {"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
    }


def _durations(response: object, ecs_cluster: str | None) -> list[float]:
    """Read the durations: those in the ECS cluster if there are enough of them, else all."""
    try:
        hits = msgspec.convert(response, type=_SearchResponse).hits.hits
    except msgspec.ValidationError:
        return []
    runs = [
        (hit.source.orchestrator.cluster.name, hit.source.usage.duration_ms)
        for hit in hits
        if hit.source.usage.duration_ms is not None and hit.source.usage.duration_ms > 0
    ]
    same = [duration_ms for name, duration_ms in runs if name == ecs_cluster]
    return same if len(same) >= _MIN_RUNS else [duration_ms for _, duration_ms in runs]


def _sentence(ratio: float, runs: int) -> str:
    if ratio >= _NOTABLE_RATIO:
        return f"{ratio:.1f}× longer than the median of the last {runs} successful runs."
    if ratio <= 1 / _NOTABLE_RATIO:
        return f"{1 / ratio:.1f}× shorter than the median of the last {runs} successful runs."
    return f"About as long as the median of the last {runs} successful runs."
