"""The processors of a run: the short name of the CPU's model, and all GPUs, or all NeuronCores, together.

Unused GPUs get a sentence of advice.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from profiler.core.optional_math import max_known, mean_known, sum_known
from profiler.record.record_model import Distribution, Gpu, Neuron, Record

# The record's ``gpuScope`` if it is not known which of the instance's GPUs belong to the batch.
WHOLE_INSTANCE = "instance"
_NOT_MEASURED = Distribution()
# What the names of all models have in common.
_PROCESSOR_WORDS = r"(?i)\((?:R|TM)\)|\b(?:Intel|AMD|CPU|Processor|Platinum|Gold|Silver|Bronze|\d+-Core)\b"


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


def short_processor_name(model: str) -> str:
    """The model without what most models have: ``Xeon 8259CL``, ``EPYC 7R13``, ``Neoverse-N1``.

    The frequency is left out if the name has a number without it.
    """
    name, at, frequency = model.partition("@")
    short = " ".join(re.sub(_PROCESSOR_WORDS, " ", name).split())
    if at and not any(character.isdigit() for character in short):
        short = f"{short} @ {frequency.strip()}".strip()
    return short or model.strip()


def processor_difference(record: Record, other: Record, other_name: str = "the other run") -> str | None:
    """Name both models if the runs had different processors: ``ran on Xeon 8259CL, the other run on 8375C``.

    None if one of them is unknown.
    """
    if record.processor is None or other.processor is None or not (record.processor.model and other.processor.model):
        return None
    own, others = short_processor_name(record.processor.model), short_processor_name(other.processor.model)
    if own == others:
        return None
    brand, _, rest = others.partition(" ")
    is_same_brand = bool(rest) and own.startswith(f"{brand} ")
    return f"ran on {own}, {other_name} on {rest if is_same_brand else others}"
