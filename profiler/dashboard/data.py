"""What the page's program works on: one JSON text, safe inside a script element. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from profiler.dashboard.courses import series_members
from profiler.dashboard.embedded import round_to, to_script_json
from profiler.dashboard.packed import SHARED_TEXTS, pack_runs
from profiler.dashboard.runs import Run
from profiler.dashboard.sizing import sizing
from profiler.record import Distribution, Gpu, Record
from profiler.sizing.prices import PriceOverrides
from profiler.times import NS_PER_MS, parse_ns

# With plotly's 5 MB the page stays below 8 MB: labels and courses that do not fit are left out, then whole runs,
# the oldest first.
MAX_BYTES = 2_700_000
_SHARE_OF_SIZING = 20
# The names of the block's parts and what stands between them.
_KEYS_BYTES = 200
_NONE = Distribution()


class PageData(Struct, frozen=True, kw_only=True):
    """The JSON text, how many of the runs are in it, and how many of these without their labels, warnings and GPUs."""

    text: str
    runs: int
    without_details: int


def build_page_data(
    runs: Sequence[Run],
    *,
    generated_at: str,
    version: str,
    only_one: bool = False,
    price_overrides: PriceOverrides | None = None,
    max_bytes: int = MAX_BYTES,
) -> PageData:
    """These runs, newest first, as far as they fit, and the right sizes of their families."""
    advice = sizing(runs, price_overrides or PriceOverrides(), max_bytes // _SHARE_OF_SIZING)
    about = {
        "version": version,
        "generatedAt": generated_at,
        "onlyOne": only_one,
        "shared": sorted(SHARED_TEXTS),
        "sizing": advice,
    }
    kept = pack_runs([_run(run) for run in runs], max_bytes - len(to_script_json(about)) - _KEYS_BYTES)
    left_out = {"runs": len(runs) - len(kept.rows), "details": kept.without_details}
    content = {**about, "leftOut": left_out, "fields": kept.fields, "runs": kept.rows, "texts": kept.texts}
    without_series = to_script_json(content)
    shown = ",".join(series_members(runs[: len(kept.rows)], max_bytes - len(without_series) - _KEYS_BYTES))
    text = f'{without_series[:-1]},"courses":{{{shown}}}}}'
    return PageData(text=text, runs=len(kept.rows), without_details=kept.without_details)


def _run(run: Run) -> dict[str, Any]:
    record = run.report.record
    metrics = record.metrics
    vcpu = metrics.vcpu_used or _NONE
    cpu = metrics.cpu_utilization_percent or _NONE
    memory = metrics.memory_utilization_percent or _NONE
    began_ns = parse_ns(run.began)
    return _without_none(
        {
            "id": record.task_id,
            "family": record.family,
            "container": record.container.name,
            "outcome": outcome(record),
            "exit": record.exit_code,
            "began": None if began_ns is None else began_ns // NS_PER_MS,
            "ms": round_to(metrics.duration_ms),
            "cpu": round_to(cpu.avg),
            "memory": round_to(memory.avg),
            "vcpuSize": round_to(metrics.vcpu_size),
            "vcpuP95": round_to(vcpu.p95),
            "vcpuMax": round_to(vcpu.max),
            "cpuSeconds": round_to(metrics.cpu_seconds),
            "size": round_to(metrics.memory_size_mb),
            "peak": round_to(metrics.max_memory_used_mb),
            "peakBy": metrics.memory_peak_source,
            "usd": round_to(record.cost.usd, digits=6) if record.cost else None,
            "cluster": record.cluster,
            "launch": record.launch_type,
            "read": metrics.block_read_bytes,
            "written": metrics.block_write_bytes,
            "received": metrics.network_rx_bytes,
            "sent": metrics.network_tx_bytes,
            "gpus": [_gpu(gpu) for gpu in record.gpus] or None,
            "labels": _labels(record.labels),
            "warnings": list(record.monitor.warnings) or None if record.monitor else None,
        }
    )


def outcome(record: Record) -> str:
    """The status; a run that probably was killed for its memory is an outcome of its own."""
    return "out of memory" if record.likely_out_of_memory else record.status


def _gpu(gpu: Gpu) -> dict[str, Any]:
    used, memory = gpu.utilization_percent or _NONE, gpu.memory_used_mb or _NONE
    return _without_none(
        {
            "name": gpu.name or gpu.uuid,
            "percent": round_to(used.avg),
            "mb": round_to(memory.max),
            "size": round_to(gpu.memory_size_mb),
        }
    )


def _labels(labels: Mapping[str, str] | None) -> list[str] | None:
    return [f"{name}={value}" for name, value in labels.items()] if labels else None


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
