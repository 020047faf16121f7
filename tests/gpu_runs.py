"""Runs on a GPU as the tapes of a real one tell them, each in a family of its own, with numbers of
CPU and memory beside.
"""

from functools import cache
from typing import Any

from msgspec.structs import replace

from profiler.record.device_totals import gpu_totals
from profiler.record.gpu_sentences import gpu_advice
from profiler.record.record_model import Distribution, Record, Report, Series
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import PriceOverrides
from tests.played_tapes import PlayedTape

STEP_MS = 1000


@cache
def gpu_run(tape: str, *, as_batch: bool = False) -> Report:
    """The report of the program on a tape; with ``as_batch``, of a container with this GPU."""
    record = PlayedTape(tape, as_batch=as_batch).play()
    return report_of(record, f"{tape}-{'batch' if as_batch else 'run'}")


def advice_on(record: Record) -> list[str]:
    """The advice on the GPUs of a run."""
    return gpu_advice(record, gpu_totals(record))


def report_of(record: Record, task_id: str) -> Report:
    """The report of a run on GPUs, with numbers of CPU and memory beside."""
    duration_ms = record.metrics.duration_ms or 0
    metrics = replace(
        record.metrics,
        billed_duration_ms=None if record.launch_type == "LOCAL" else duration_ms,
        vcpu_size=16,
        memory_size_mb=128_878,
        cpu_seconds=duration_ms / 1000,
        vcpu_used=Distribution(avg=1.0, p50=1.0, p95=1.2, p99=1.3, max=1.4),
        cpu_utilization_percent=Distribution(avg=6.3, p95=7.5, max=8.8),
        memory_used_mb=Distribution(avg=1500, p95=1700, max=1800),
        memory_utilization_percent=Distribution(avg=1.2, p95=1.3, max=1.4),
        max_memory_used_mb=1800,
        memory_peak_source="kernel",
    )
    record = replace(
        record,
        task_id=task_id,
        metrics=metrics,
        series=_series(record),
        likely_out_of_memory=False,
    )
    time = record.finished_at or ""
    record = with_recommendation(record, PriceOverrides(), time=time)
    return Report(time=time, type="task.report", record=record)


def _series(record: Record) -> Series:
    """CPU and memory each second; the GPU worked from its first to its last use."""
    steps = max(round((record.metrics.duration_ms or 0) / STEP_MS), 1)
    values: dict[str, Any] = {}
    if record.gpus:
        first = min(gpu.first_used_seconds or 0.0 for gpu in record.gpus)
        last = max(gpu.last_used_seconds or 0.0 for gpu in record.gpus)
        use = gpu_totals(record).utilization_percent
        works = [first <= second + 1 and second <= last for second in range(steps)]
        values["gpu_utilization_percent"] = tuple((use.max or 0.0) * work for work in works)
    return Series(
        started_at=record.started_at or "",
        step_ms=STEP_MS,
        vcpu_used=(1.0,) * steps,
        memory_used_mb=tuple(float(1800 * (step + 1) / steps) for step in range(steps)),
        **values,
    )
