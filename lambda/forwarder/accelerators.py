"""A run's GPUs and Neuron cores as a document's fields: all devices together."""

from collections.abc import Sequence
from typing import Any

from forwarder.aggregates import max_known, mean
from profiler.record import Distribution, Gpu, Neuron


def gpu_fields(gpus: Sequence[Gpu]) -> dict[str, Any] | None:
    """All GPUs of the run: mean of the averages, largest of the maxima, sum of the energy."""
    if not gpus:
        return None
    percents = [gpu.utilization_percent or Distribution() for gpu in gpus]
    memories = [gpu.memory_used_mb or Distribution() for gpu in gpus]
    energies = [gpu.energy_joules for gpu in gpus if gpu.energy_joules is not None]
    return {
        "count": len(gpus),
        "percent": {"avg": mean([one.avg for one in percents]), "max": max_known([one.max for one in percents])},
        "memory_mb": {"avg": mean([one.avg for one in memories]), "max": max_known([one.max for one in memories])},
        "energy_joules": sum(energies) if energies else None,
    }


def neuron_fields(neuron: Neuron | None) -> dict[str, Any] | None:
    """All cores of the run: mean of the averages, largest of the maxima."""
    if neuron is None:
        return None
    percents = [core.utilization_percent or Distribution() for core in neuron.cores]
    memory = neuron.device_memory_used_mb or Distribution()
    return {
        "cores": len(neuron.cores),
        "percent": {"avg": mean([one.avg for one in percents]), "max": max_known([one.max for one in percents])},
        "memory_mb": {"max": memory.max},
    }
