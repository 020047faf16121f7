"""Reports as neuron-monitor prints them, of the shapes that were seen on Inf1, Trn1 and Trn1n."""

import json
from collections.abc import Mapping
from typing import Any

from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report

_FAILURES = (
    "completed_with_err",
    "completed_with_num_err",
    "timed_out",
    "incorrect_input",
    "failed_to_queue",
)
MIB = 2**20
GIB = 2**30


def percentiles(p50: float, p99: float, p100: float) -> dict[str, float]:
    return {"p0": p50, "p1": p50, "p100": p100, "p25": p50, "p50": p50, "p75": p99, "p99": p99}


def runtime(
    utilization: Mapping[int, float],
    memory_mib: Mapping[int, int],
    *,
    period: float = 1.0,
    completed: int = 10,
    failed: Mapping[str, int] | None = None,
    total_latency: object = None,
    device_latency: object = None,
) -> dict[str, Any]:
    """One runtime of schema 2.x: like the real ones it lists every core, its own or not."""
    return {
        "pid": 784315,
        "neuron_runtime_tag": "535",
        "error": "",
        "report": {
            "execution_stats": {
                "period": period,
                "error_summary": {"generic": 23654, "numerical": 0},
                "execution_summary": {
                    "completed": completed,
                    **dict.fromkeys(_FAILURES, 0),
                    **(failed or {}),
                },
                "latency_stats": {"total_latency": total_latency, "device_latency": device_latency},
                "error": "",
            },
            "memory_used": {
                "period": period,
                "neuron_runtime_used_bytes": {
                    "host": 610705408,
                    "neuron_device": sum(memory_mib.values()) * MIB,
                    "usage_breakdown": {
                        "host": {
                            "application_memory": 609656832,
                            "constants": 0,
                            "dma_buffers": 1048576,
                        },
                        "neuroncore_memory_usage": {
                            str(core): {
                                "constants": mib * MIB // 4,
                                "model_code": 0,
                                "tensors": mib * MIB * 3 // 4,
                            }
                            for core, mib in memory_mib.items()
                        },
                    },
                },
                "loaded_models": [
                    {"name": "/var/tmp/model", "model_id": 10001, "is_running": False}
                ],
                "error": "",
            },
            "neuroncore_counters": {
                "period": period,
                "neuroncores_in_use": {
                    str(core): {"neuroncore_utilization": percent, "flops": 1.0e12}
                    for core, percent in utilization.items()
                },
                "error": "",
            },
            "neuron_runtime_vcpu_usage": {
                "period": period,
                "error": "open /proc/784315/stat: no such file",
            },
        },
    }


def report(
    *runtimes: Mapping[str, Any], ecc: Mapping[int, tuple[int, int]] | None = None
) -> dict[str, Any]:
    """A report of a trn1.2xlarge: one device of two cores and 32 GiB; ``ecc`` by device (memory,
    SRAM).
    """
    devices = [
        {"neuron_device_index": device, "mem_ecc_uncorrected": memory, "sram_ecc_uncorrected": sram}
        for device, (memory, sram) in (ecc or {}).items()
    ]
    return {
        "neuron_runtime_data": list(runtimes),
        "system_data": {
            "neuron_hw_counters": {"period": 5.0, "neuron_devices": devices or None, "error": ""}
        },
        "instance_info": {"instance_type": "trn1.2xlarge", "error": ""},
        "neuron_hardware_info": {
            "neuron_device_count": 1,
            "neuron_device_memory_size": 32 * GIB,
            "error": "",
        },
    }


def inf1_report() -> dict[str, Any]:
    """Runtime 1.x: ``inference_stats``, the hardware's counters in the runtime, memory without
    cores.
    """
    total, device = percentiles(0.011, 0.012, 0.013), percentiles(0.010, 0.011, 0.012)
    cores = {core: 42.0 + core for core in range(4)}
    daemon = runtime(
        cores,
        {0: 2},
        completed=123,
        failed={"timed_out": 2},
        total_latency=total,
        device_latency=device,
    )
    groups = daemon["report"]
    stats = groups["inference_stats"] = groups.pop("execution_stats")
    stats["inference_summary"] = stats.pop("execution_summary")
    del groups["memory_used"]["neuron_runtime_used_bytes"]["usage_breakdown"]
    counters = {"neuron_device_index": 0, "mem_ecc_uncorrected": 1, "sram_ecc_uncorrected": 2}
    groups["hw_counters"] = {"period": 1.0, "neuron_devices": [counters], "error": ""}
    return {
        "neuron_runtime_data": [{"neuron_runtime_index": 0, "error": "", "report": groups}],
        "system_data": {
            "memory_info": {"period": 5.3, "memory_total_bytes": 49345835008, "error": ""}
        },
        "instance_data": {"instance_type": "inf1.xlarge", "error": ""},
    }


def decoded(document: object) -> NeuronReport:
    """The document as it is read."""
    found = decode_report(json.dumps(document).encode())
    assert isinstance(found, NeuronReport)
    return found
