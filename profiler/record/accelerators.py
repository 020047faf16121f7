"""All GPUs, or all NeuronCores, of a run together, and what to say about GPUs that a run did not use."""

from collections.abc import Sequence

from msgspec import Struct

from profiler.core.optional_math import max_known, mean_known, sum_known
from profiler.record.record_model import Distribution, Gpu, Neuron

# The record's ``gpuScope`` if it is not known which of the instance's GPUs belong to the batch.
WHOLE_INSTANCE = "instance"
_NOT_MEASURED = Distribution()


class GpuTotals(Struct, frozen=True, kw_only=True):
    """All GPUs of a run as one.

    ``avg`` is the mean of the GPUs' averages, ``max`` the largest maximum of any GPU; the percentiles are absent.
    """

    count: int | None = None
    idle: int | None = None
    utilization_percent: Distribution = _NOT_MEASURED
    memory_used_mb: Distribution = _NOT_MEASURED
    energy_joules: float | None = None


class NeuronTotals(Struct, frozen=True, kw_only=True):
    """All NeuronCores of a run as one, like `GpuTotals`; the memory is that of all devices."""

    cores: int | None = None
    utilization_percent: Distribution = _NOT_MEASURED
    device_memory_used_mb: Distribution = _NOT_MEASURED


def gpu_totals(gpus: Sequence[Gpu]) -> GpuTotals | None:
    """Combine the GPUs of a run. Returns None if there are no GPUs."""
    if not gpus:
        return None
    return GpuTotals(
        count=len(gpus),
        idle=sum(map(is_idle, gpus)),
        utilization_percent=_combine([gpu.utilization_percent for gpu in gpus]),
        memory_used_mb=_combine([gpu.memory_used_mb for gpu in gpus]),
        energy_joules=sum_known(*(gpu.energy_joules for gpu in gpus)),
    )


def neuron_totals(neuron: Neuron | None) -> NeuronTotals | None:
    """Combine the NeuronCores of a run. Returns None if Neuron devices were not watched."""
    if neuron is None:
        return None
    return NeuronTotals(
        cores=len(neuron.cores),
        utilization_percent=_combine([core.utilization_percent for core in neuron.cores]),
        device_memory_used_mb=neuron.device_memory_used_mb or _NOT_MEASURED,
    )


def _combine(distributions: Sequence[Distribution | None]) -> Distribution:
    measured = [distribution for distribution in distributions if distribution is not None]
    return Distribution(
        avg=mean_known(*(distribution.avg for distribution in measured)),
        max=max_known(*(distribution.max for distribution in measured)),
    )


def is_idle(gpu: Gpu) -> bool:
    """Whether the GPU's utilization was measured and no kernel ran on the GPU at any time."""
    return gpu.utilization_percent is not None and gpu.utilization_percent.max == 0


def idle_advice(gpus: Sequence[Gpu]) -> str | None:
    """A sentence about the GPUs that were never used; None if all were used."""
    idle = [gpu for gpu in gpus if is_idle(gpu)]
    if not idle:
        return None
    if len(idle) < len(gpus):
        return f"{len(idle)} of {len(gpus)} GPUs were never used: request {len(gpus) - len(idle)}, or spread the work."
    subject, them = ("The GPU was", "it") if len(gpus) == 1 else (f"All {len(gpus)} GPUs were", "them")
    return (
        f"{subject} allocated but never used: run the task without {them}, or check why the batch did not find {them}."
    )
