"""The processors of a run: the short name of the CPU's model, and all GPUs, or all NeuronCores, together.

Sentences of advice: about unused GPUs, and about a program that sees the whole machine but may use a part of it.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from profiler.core.optional_math import max_known, mean_known, sum_known
from profiler.record.record_model import Distribution, Gpu, Neuron, Number, Record, TaskSize, Visible
from profiler.record.units import format_memory, format_vcpu
from profiler.record.worth_a_word import HIGH_USE_SHARE, SATURATED_PERCENT

# The record's ``gpuScope`` if it is not known which of the instance's GPUs belong to the batch.
WHOLE_INSTANCE = "instance"
_NOT_MEASURED = Distribution()
_SEEN_MEMORY_FACTOR = 1.2  # up to this multiple of the limit, the memory that a program sees agrees with it
_MAX_THREADS_PER_VCPU = 2  # that can run at the same time, on average
_MS_PER_SECOND = 1000
# What the names of all models have in common.
_PROCESSOR_WORDS = r"(?i)\((?:R|TM)\)|\b(?:Intel|AMD|CPU|Processor|Platinum|Gold|Silver|Bronze|\d+-Core)\b"


class GpuTotals(Struct, frozen=True, kw_only=True):
    """All GPUs of a run as one.

    ``avg`` is the mean of the GPUs' averages, ``max`` the largest maximum of any GPU; the percentiles are absent.
    """

    count: int | None = None
    idle: int | None = None
    utilization_percent: Distribution = _NOT_MEASURED
    sm_active_percent: Distribution = _NOT_MEASURED
    tensor_active_percent: Distribution = _NOT_MEASURED
    dram_active_percent: Distribution = _NOT_MEASURED
    memory_used_mb: Distribution = _NOT_MEASURED
    energy_joules: float | None = None


class NeuronTotals(Struct, frozen=True, kw_only=True):
    """All NeuronCores of a run as one, like `GpuTotals`; the memory covers all devices."""

    cores: int | None = None
    utilization_percent: Distribution = _NOT_MEASURED
    device_memory_used_mb: Distribution = _NOT_MEASURED


def gpu_totals(gpus: Sequence[Gpu]) -> GpuTotals | None:
    """Combine the GPUs of a run; None without GPUs."""
    if not gpus:
        return None
    return GpuTotals(
        count=len(gpus),
        idle=sum(map(is_idle, gpus)),
        utilization_percent=_combine([gpu.utilization_percent for gpu in gpus]),
        sm_active_percent=_combine([gpu.sm_active_percent for gpu in gpus]),
        tensor_active_percent=_combine([gpu.tensor_active_percent for gpu in gpus]),
        dram_active_percent=_combine([gpu.dram_active_percent for gpu in gpus]),
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
        subject = f"{len(idle)} of {len(gpus)} GPUs {'was' if len(idle) == 1 else 'were'}"
        return f"{subject} never used: request {len(gpus) - len(idle)}, or spread the work."
    subject, them = ("The GPU was", "it") if len(gpus) == 1 else (f"All {len(gpus)} GPUs were", "them")
    return (
        f"{subject} allocated but never used: run the task without {them}, or check why the batch did not find {them}."
    )


def unseen_memory_limit(
    visible: Visible | None, size: TaskSize | None, container_mb: Number | None
) -> tuple[str, str] | None:
    """The memory that a program sees, and the task's limit; None if they agree or are unknown.

    A program sees a limit of its container (``container_mb``, if it differs from the task's) in its control group.
    """
    seen_mb, limit_mb = (visible or Visible()).memory_mb, (size or TaskSize()).memory_mb
    if seen_mb is None or not limit_mb or container_mb != limit_mb or seen_mb <= _SEEN_MEMORY_FACTOR * limit_mb:
        return None
    return format_memory(seen_mb), format_memory(limit_mb)


def unseen_cpu_limit(visible: Visible | None, size: TaskSize | None) -> tuple[str, str] | None:
    """The number of CPUs that a program sees, and the task's vCPUs; None if they agree or are unknown."""
    cpus, vcpu = (visible or Visible()).cpus, (size or TaskSize()).vcpu
    if cpus is None or not vcpu or cpus <= vcpu:
        return None
    return f"{cpus:g} CPU{'' if cpus == 1 else 's'}", format_vcpu(vcpu)


def visible_memory_advice(record: Record, *, is_out_of_memory: bool | None = None) -> str | None:
    """A sentence for a run that was killed for memory (by its record, or by ECS: ``is_out_of_memory``), or nearly."""
    metrics = record.metrics
    unseen = unseen_memory_limit(record.visible, record.task_size, metrics.memory_size_mb)
    is_high = (metrics.max_memory_used_mb or 0) > HIGH_USE_SHARE * (metrics.memory_size_mb or 0)
    if unseen is None or not (is_out_of_memory or record.likely_out_of_memory or is_high):
        return None
    seen, limit = unseen
    may_use = limit.removesuffix(f" {seen.rpartition(' ')[2]}")
    remedy = "set the container's `memory`, or -Xmx/max_old_space_size/workers"
    return f"the program sees {seen} and may use {may_use}: {remedy}."


def visible_cpus_advice(record: Record) -> str | None:
    """A sentence for a saturated run whose threads that could run, on average, were too many for the task's vCPUs."""
    metrics, vcpu = record.metrics, (record.task_size or TaskSize()).vcpu
    unseen = unseen_cpu_limit(record.visible, record.task_size)
    used, waited, duration_ms = metrics.cpu_seconds, metrics.cpu_wait_seconds, metrics.duration_ms
    if unseen is None or not vcpu or used is None or waited is None or not duration_ms:
        return None
    is_saturated = (metrics.vcpu_saturated_percent or 0) >= SATURATED_PERCENT
    if not is_saturated or (used + waited) * _MS_PER_SECOND / duration_ms <= _MAX_THREADS_PER_VCPU * vcpu:
        return None
    return f"it sees {unseen[0]} and may use {unseen[1].removesuffix(' vCPU')}: set the number of workers."


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
    """Name both models if they differ and are known: ``ran on Xeon 8259CL, the other run on 8375C``."""
    if record.processor is None or other.processor is None or not (record.processor.model and other.processor.model):
        return None
    own, others = short_processor_name(record.processor.model), short_processor_name(other.processor.model)
    if own == others:
        return None
    brand, _, rest = others.partition(" ")
    is_same_brand = bool(rest) and own.startswith(f"{brand} ")
    return f"ran on {own}, {other_name} on {rest if is_same_brand else others}"
