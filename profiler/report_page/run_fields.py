"""The fields of a run on the report page. Fields without a value are left out."""

from collections.abc import Mapping, Sequence
from typing import Any

from profiler.core.text import as_sentence
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.record.hardware import gpu_advice, gpu_idle_texts
from profiler.record.record_model import Cost, Distribution, Gpu, Neuron, Process, outcome
from profiler.record.spot_price import is_on_spot
from profiler.record.worth_a_word import is_cpu_partial
from profiler.report_page.page_activity import activity_fields
from profiler.report_page.page_series import Run, finite_number, memory_course, without_none
from profiler.runs.past_runs.moments import elapsed, find_moments
from profiler.runs.past_runs.verdict_sentence import verdict_of
from profiler.runs.step_series import with_equal_steps

_NO_DISTRIBUTION = Distribution()


def run_fields(run: Run, family: str, cost: Cost | None) -> dict[str, Any]:
    """Return the fields that tables and overview charts show.

    ``family`` is a label that only this family has.
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
            "startUnknown": parse_ns(record.started_at) is None or None,
            "ms": finite_number(metrics.duration_ms),
            "init": finite_number(metrics.init_duration_ms),
            "billed": finite_number(metrics.billed_duration_ms),
            "cpu": finite_number(cpu.avg),
            "memory": finite_number(memory.avg),
            "vcpuSize": finite_number(metrics.vcpu_size),
            "vcpuAvg": finite_number(vcpu.avg),
            "vcpuP95": finite_number(vcpu.p95),
            "vcpuMax": finite_number(vcpu.max),
            "saturated": finite_number(metrics.vcpu_saturated_percent),
            "cpuSeconds": finite_number(metrics.cpu_seconds),
            "cpuPartial": is_cpu_partial(record) or None,
            "size": finite_number(metrics.memory_size_mb),
            "peak": finite_number(metrics.max_memory_used_mb),
            "peakBy": metrics.memory_peak_source,
            "usd": finite_number(cost.usd) if cost else None,
            "spot": is_on_spot(cost) or None,
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
    kills = record.memory_kills
    series = record.series or with_equal_steps(run.steps, run.past.started_at)
    moments = [
        [
            moment.kind,
            round(moment.start_ms),
            round(moment.end_ms),
            moment.text,
        ]  # the times in ms after the start
        for moment in find_moments(record, series)
    ]
    return without_none(
        {
            "verdict": [
                verdict.tone,
                verdict.text,
                *([verdict.evidence] if verdict.evidence else []),
            ],
            "moments": moments or None,
            "peakAt": _ms_after(record.started_at, record.metrics.max_memory_used_at),
            "command": run.past.command,
            "image": record.container.image,
            "logGroup": record.log_group,
            "logStream": record.log_stream,
            "processes": _processes(record.processes) or None,
            "kills": None if kills is None else [kills.count, _processes(kills.processes)],
            "gpus": [_gpu(gpu) for gpu in record.gpus] or None,
            "gpuNotes": [*map(as_sentence, gpu_idle_texts(record)), *gpu_advice(record)] or None,
            "neuron": None if record.neuron is None else _neuron(record.neuron) or None,
            "labels": _pairs(record.labels),
            "tags": _pairs(record.tags),
            "warnings": list(record.monitor.warnings) or None if record.monitor else None,
            "notices": [
                notice.kind if after_ms is None else f"{notice.kind} at {elapsed(after_ms)}"
                for notice in record.notices
                for after_ms in [_ms_after(record.started_at, notice.at)]
            ]
            or None,
            **activity_fields(record),
        }
    )


def _ms_after(started_at: str | None, at: str | None) -> int | None:
    started_ns = parse_ns(started_at)
    at_ns = parse_ns(at)
    if started_ns is None or at_ns is None or at_ns < started_ns:
        return None
    return (at_ns - started_ns) // NS_PER_MS


def _processes(processes: Sequence[Process]) -> list[list[object]]:
    """Name, arguments, number, CPU seconds, peak memory in MB, and the number of processes that
    held it.
    """
    return [
        [
            process.name,
            process.arguments,
            process.count,
            finite_number(process.cpu_seconds),
            finite_number(process.max_memory_used_mb),
            process.max_memory_used_processes,
        ]
        for process in processes
    ]


def _gpu(gpu: Gpu) -> dict[str, Any]:
    utilization = gpu.utilization_percent or _NO_DISTRIBUTION
    memory = gpu.memory_used_mb or _NO_DISTRIBUTION
    return without_none(
        {
            "name": gpu.name or gpu.uuid,
            "percent": finite_number(utilization.avg),
            "top": finite_number(utilization.max),
            "sm": finite_number((gpu.sm_active_percent or _NO_DISTRIBUTION).avg),
            "idle": finite_number(gpu.idle_percent),
            "mb": finite_number(memory.max),
            "size": finite_number(gpu.memory_size_mb),
            "watts": finite_number((gpu.power_watts or _NO_DISTRIBUTION).avg),
            "celsius": finite_number((gpu.temperature_celsius or _NO_DISTRIBUTION).max),
            "xids": list(gpu.xids) or None,
        }
    )


def _neuron(neuron: Neuron) -> dict[str, Any]:
    executions = neuron.executions
    memory = neuron.device_memory_used_mb or _NO_DISTRIBUTION
    cores = [
        [core.index, finite_number(use.avg), finite_number(use.max)]
        for core in neuron.cores
        if (use := core.utilization_percent) is not None
    ]
    return without_none(
        {
            "cores": cores or None,
            "mb": finite_number(memory.max),
            "size": finite_number(neuron.device_memory_size_mb),
            "completed": None if executions is None else executions.completed,
            "failed": None if executions is None else executions.failed,
        }
    )


def _pairs(texts: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in texts.items()] if texts else None
