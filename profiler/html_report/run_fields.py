"""The fields of a run on the report page. Fields without a value are left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.html_report.page_activity import activity_fields
from profiler.html_report.page_runs import Run, series_of_steps
from profiler.html_report.page_series import memory_course
from profiler.html_report.rounding import round_to
from profiler.past_runs.moments import elapsed, find_moments
from profiler.past_runs.verdict_sentence import verdict_of
from profiler.record.record_model import (
    Cost,
    Distribution,
    Gpu,
    MemoryKills,
    Neuron,
    Process,
    RaisedNotice,
    Record,
    known_status,
)

_NO_DISTRIBUTION = Distribution()


def outcome(record: Record) -> str:
    """Return the status, or ``out of memory`` for a run that was probably killed for it."""
    return "out of memory" if record.likely_out_of_memory else known_status(record)


def run_fields(run: Run, family: str, cost: Cost | None) -> dict[str, Any]:
    """Return the fields that tables and overview charts show.

    Args:
        run: The run.
        family: The family's label, which no other family of the page has.
        cost: What the task of the run cost.
    """
    record = run.record
    metrics = record.metrics
    cpu = metrics.cpu_utilization_percent or _NO_DISTRIBUTION
    memory = metrics.memory_utilization_percent or _NO_DISTRIBUTION
    vcpu = metrics.vcpu_used or _NO_DISTRIBUTION
    started_ns = parse_ns(run.past.started_at)
    size = record.task_size
    return without_none(
        {
            "id": record.task_id,
            "family": family,
            "name": None if family == record.family else record.family,
            "revision": record.revision,
            "container": record.container.name,
            "outcome": outcome(record),
            "exit": record.exit_code,
            "began": None if started_ns is None else started_ns // NS_PER_MS,
            "ms": round_to(metrics.duration_ms),
            "init": round_to(metrics.init_duration_ms, digits=0),
            "billed": round_to(metrics.billed_duration_ms, digits=0),
            "cpu": round_to(cpu.avg),
            "memory": round_to(memory.avg),
            "vcpuSize": round_to(metrics.vcpu_size),
            "vcpuAvg": round_to(vcpu.avg),
            "vcpuP95": round_to(vcpu.p95),
            "vcpuMax": round_to(vcpu.max),
            "saturated": round_to(metrics.vcpu_saturated_percent, digits=1),
            "cpuSeconds": round_to(metrics.cpu_seconds),
            "size": round_to(metrics.memory_size_mb),
            "peak": round_to(metrics.max_memory_used_mb, digits=1),
            "peakBy": metrics.memory_peak_source,
            "usd": round_to(cost.usd, digits=6) if cost else None,
            "account": record.account_id,
            "cluster": record.cluster,
            "launch": record.launch_type,
            "region": record.region,
            "taskSize": None if size is None else [size.vcpu, size.memory_mb],
            "read": metrics.block_read_bytes,
            "written": metrics.block_write_bytes,
            "received": metrics.network_rx_bytes,
            "sent": metrics.network_tx_bytes,
            "pids": metrics.max_pids,
            "course": memory_course(run.steps),
        }
    )


def run_details(run: Run, now_ns: int) -> dict[str, Any]:
    """Return the fields that only an opened run shows."""
    record = run.record
    verdict = verdict_of(run.past, now_ns)
    return without_none(
        {
            "verdict": [verdict.tone, verdict.text, *([verdict.evidence] if verdict.evidence else [])],
            "moments": _moments(run) or None,
            "peakAt": _peak_at_ms(record),
            "image": record.container.image,
            "logGroup": record.log_group,
            "logStream": record.log_stream,
            "processes": _processes(record.processes) or None,
            "kills": None if record.memory_kills is None else _kills(record.memory_kills),
            "gpus": [_gpu(gpu) for gpu in record.gpus] or None,
            "neuron": None if record.neuron is None else _neuron(record.neuron) or None,
            "labels": _pairs(record.labels),
            "tags": _pairs(record.tags),
            "warnings": list(record.monitor.warnings) or None if record.monitor else None,
            "notices": [_notice(notice, record.started_at) for notice in record.notices] or None,
            **activity_fields(record),
        }
    )


def _moments(run: Run) -> list[list[object]]:
    """Kind, start and end in ms after the start, and text of each moment."""
    series = run.record.series or series_of_steps(run.past.started_at, run.steps)
    return [
        [moment.kind, round(moment.start_ms), round(moment.end_ms), moment.text]
        for moment in find_moments(run.record, series)
    ]


def _notice(notice: RaisedNotice, started_at: str | None) -> str:
    """Return the kind, and when it was raised after the start."""
    started_ns, at_ns = parse_ns(started_at), parse_ns(notice.at)
    if started_ns is None or at_ns is None or at_ns < started_ns:
        return notice.kind
    return f"{notice.kind} at {elapsed((at_ns - started_ns) / NS_PER_MS)}"


def _peak_at_ms(record: Record) -> int | None:
    started_ns, at_ns = parse_ns(record.started_at), parse_ns(record.metrics.max_memory_used_at)
    if started_ns is None or at_ns is None or at_ns < started_ns:
        return None
    return (at_ns - started_ns) // NS_PER_MS


def _processes(processes: Sequence[Process]) -> list[list[object]]:
    """Name, arguments, number, CPU seconds, peak memory in MB, and the number of processes that held it."""
    return [
        [
            process.name,
            process.arguments,
            process.count,
            round_to(process.cpu_seconds),
            round_to(process.max_memory_used_mb, digits=1),
            process.max_memory_used_processes,
        ]
        for process in processes
    ]


def _kills(kills: MemoryKills) -> list[object]:
    return [kills.count, _processes(kills.processes)]


def _gpu(gpu: Gpu) -> dict[str, Any]:
    utilization, memory = gpu.utilization_percent or _NO_DISTRIBUTION, gpu.memory_used_mb or _NO_DISTRIBUTION
    return without_none(
        {
            "name": gpu.name or gpu.uuid,
            "percent": round_to(utilization.avg, digits=1),
            "top": round_to(utilization.max, digits=1),
            "mb": round_to(memory.max, digits=1),
            "size": round_to(gpu.memory_size_mb),
            "watts": round_to((gpu.power_watts or _NO_DISTRIBUTION).avg, digits=1),
            "celsius": round_to((gpu.temperature_celsius or _NO_DISTRIBUTION).max, digits=0),
            "xids": list(gpu.xids) or None,
        }
    )


def _neuron(neuron: Neuron) -> dict[str, Any]:
    executions = neuron.executions
    memory = neuron.device_memory_used_mb or _NO_DISTRIBUTION
    cores = [
        [core.index, round_to(use.avg, digits=1), round_to(use.max, digits=1)]
        for core in neuron.cores
        if (use := core.utilization_percent) is not None
    ]
    return without_none(
        {
            "cores": cores or None,
            "mb": round_to(memory.max, digits=1),
            "size": round_to(neuron.device_memory_size_mb),
            "completed": None if executions is None else executions.completed,
            "failed": None if executions is None else executions.failed,
        }
    )


def _pairs(texts: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in texts.items()] if texts else None


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}
