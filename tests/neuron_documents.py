"""Reports as neuron-monitor prints them, of the shapes that were seen on Trn1 and Trn1n."""

import json
from collections.abc import Mapping
from typing import Any

from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report

NOTHING_FAILED = {
    "completed_with_err": 0,
    "completed_with_num_err": 0,
    "timed_out": 0,
    "incorrect_input": 0,
    "failed_to_queue": 0,
}
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
    """One runtime: like the real ones it lists every core, its own or not."""
    return {
        "pid": 784315,
        "neuron_runtime_tag": "535",
        "error": "",
        "report": {
            "execution_stats": {
                "period": period,
                "error_summary": {"generic": 23654, "numerical": 0},
                "execution_summary": {"completed": completed, **NOTHING_FAILED, **(failed or {})},
                "latency_stats": {"total_latency": total_latency, "device_latency": device_latency},
                "error": "",
            },
            "memory_used": {
                "period": period,
                "neuron_runtime_used_bytes": {
                    "host": 610705408,
                    "neuron_device": sum(memory_mib.values()) * MIB,
                    "usage_breakdown": {
                        "host": {"application_memory": 609656832, "constants": 0, "dma_buffers": 1048576},
                        "neuroncore_memory_usage": {
                            str(core): {"constants": mib * MIB // 4, "model_code": 0, "tensors": mib * MIB * 3 // 4}
                            for core, mib in memory_mib.items()
                        },
                    },
                },
                "loaded_models": [{"name": "/var/tmp/model", "model_id": 10001, "is_running": False}],
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
                "vcpu_usage": {"user": 0, "system": 0},
                "error": "open /proc/784315/stat: no such file or directory",
            },
        },
    }


def report(*runtimes: Mapping[str, Any], ecc: Mapping[int, tuple[int, int]] | None = None) -> dict[str, Any]:
    """A report of a trn1.2xlarge: one device of two cores and 32 GiB; ``ecc`` by device (memory, SRAM)."""
    devices = [
        {
            "neuron_device_index": device,
            "mem_ecc_corrected": 0,
            "mem_ecc_uncorrected": memory,
            "sram_ecc_uncorrected": sram,
            "sram_ecc_corrected": 0,
        }
        for device, (memory, sram) in (ecc or {}).items()
    ]
    return {
        "neuron_runtime_data": list(runtimes),
        "system_data": {"neuron_hw_counters": {"period": 5.0, "neuron_devices": devices or None, "error": ""}},
        "instance_info": {"instance_type": "trn1.2xlarge", "error": ""},
        "neuron_hardware_info": {
            "neuron_device_type": "trainium",
            "neuron_device_count": 1,
            "neuron_device_memory_size": 32 * GIB,
            "neuroncore_per_device_count": 2,
            "error": "",
        },
    }


def decoded(document: object) -> NeuronReport:
    """The document as it is read."""
    found = decode_report(json.dumps(document).encode())
    assert isinstance(found, NeuronReport)
    return found
