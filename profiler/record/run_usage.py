"""What a run used, each beside its size: CPU, memory, GPUs and NeuronCores.

It is decided here once. The terminal, the report page, Slack and the events draw and write it, and
ask the record nothing else about these numbers.
"""

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import first_known, product, quotient
from profiler.core.text import listed, words_if_known
from profiler.record.cpu_wait import is_cpu_wait_partial
from profiler.record.device_totals import GpuTotals, NeuronTotals, gpu_totals, neuron_totals
from profiler.record.fact_list import Fact, count_fact
from profiler.record.measured import Measured, Number
from profiler.record.record_model import NOT_MEASURED, Distribution, Metrics, Record
from profiler.record.task_needs import is_cpu_limited, task_size_of
from profiler.record.units import (
    format_count,
    format_memory,
    format_part,
    format_percent,
    format_vcpu,
)

# As a whole percent, 100 at most.
_ALL_PERCENT = 100.5


class CpuUse(Struct, frozen=True, kw_only=True):
    """The vCPUs that a run used: ``size`` is the task's size, else the machine's, and ``percent``
    the use as a share of it.

    If ``is_asked``, the size is what a job asked for, which is no limit: the share can be larger
    than 100. If ``is_wait_partial``, the run may have waited longer for a CPU than was read.
    """

    used: Distribution
    percent: Distribution
    size: Number | None
    is_asked: bool
    is_wait_partial: bool

    @property
    def is_more_than_asked(self) -> bool:
        """Whether the use is no part of what was asked for, because nothing limits it."""
        most = max(self.percent.avg or 0, self.percent.max or 0)
        return self.is_asked and most > _ALL_PERCENT

    @property
    def curve_limit(self) -> Number | None:
        """The limit of a curve of the vCPUs in use; None if the run used more than its size."""
        return None if self.is_more_than_asked else self.size

    @property
    def text(self) -> str:
        """The mean use in percent of the size, or, where it is more than was asked for, against
        it: ``6 of 4 vCPU``; "" if it is unknown.
        """
        percent = self.percent.avg
        used = self.used.avg
        if percent is None:
            return ""
        if not self.is_asked or percent <= _ALL_PERCENT or used is None or self.size is None:
            return format_percent(percent)
        return format_part(format_vcpu(used), format_vcpu(self.size))


class MemoryUse(Struct, frozen=True, kw_only=True):
    """The memory that a run used in MB: ``used`` has the peak that was counted, else the largest
    sample. ``percent`` is the use as a share of the size, ``peak`` the peak with what is known of
    it.
    """

    used: Distribution
    percent: Distribution
    size_mb: Number | None
    peak: Measured

    @property
    def peak_text_if_known(self) -> str:
        """The peak with its mark; "" if it is unknown."""
        return self.peak.text(format_memory)


class RunUsage(Struct, frozen=True, kw_only=True):
    """What a run used. ``devices`` are its GPUs and its NeuronCores as facts, ``4× A10G`` and
    ``2 NeuronCores``.
    """

    cpu: CpuUse
    memory: MemoryUse
    gpus: GpuTotals
    neuron: NeuronTotals
    devices: tuple[Fact, ...]

    @property
    def beside_text(self) -> str:
        """What a size of vCPU and memory leaves out: `` beside 1 GPU and 2 NeuronCores``; ""
        without an accelerator in use.
        """
        devices = filter(None, (self.gpus.in_use_text, self.neuron.in_use_text))
        return words_if_known(" beside {}", listed(devices) or None)


def run_usage_of(record: Record) -> RunUsage:
    """What the run used."""
    return RunUsage(
        cpu=cpu_use_of(record),
        memory=_memory_use_of(record.metrics),
        gpus=gpu_totals(record),
        neuron=neuron_totals(record.neuron),
        devices=tuple(_device_facts(record)),
    )


def cpu_use_of(record: Record) -> CpuUse:
    """The vCPUs that the run used."""
    metrics = record.metrics
    used = metrics.vcpu_used
    percent = metrics.cpu_utilization_percent
    asked = None if is_cpu_limited(record) else task_size_of(record).vcpu
    if asked and used != NOT_MEASURED:
        average = quotient(product(used.avg, 100), asked)
        percent = Distribution(avg=average, max=quotient(product(used.max, 100), asked))
    return CpuUse(
        used=used,
        percent=percent,
        size=first_known(asked, metrics.vcpu_size),
        is_asked=asked is not None,
        is_wait_partial=is_cpu_wait_partial(record),
    )


def _memory_use_of(metrics: Metrics) -> MemoryUse:
    used = metrics.memory_used_mb
    if metrics.has_memory:
        used = replace(used, max=metrics.max_memory_used_mb)
    return MemoryUse(
        used=used,
        percent=metrics.memory_utilization_percent,
        size_mb=metrics.memory_size_mb,
        peak=metrics.memory_peak,
    )


def _device_facts(record: Record) -> list[Fact]:
    facts = []
    names = {gpu.name or "GPU" for gpu in record.gpus}
    if names:
        count = len(record.gpus)
        name = names.pop() if len(names) == 1 else "GPU"
        facts.append(count_fact("GPU", count, f"{count}× {name}", format_count(count, "GPU")))
    neuron = neuron_totals(record.neuron)
    if neuron.is_watched:
        count = neuron.cores or 0
        text = format_count(count, "NeuronCore")
        facts.append(count_fact("Neuron", count, text, text))
    return facts
