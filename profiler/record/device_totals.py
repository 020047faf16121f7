"""All GPUs of a run as one, and all NeuronCores: their numbers, whose these are, and how outputs
write them.
"""

import math
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from profiler.core.optional_math import first_known, known, max_known, mean_known
from profiler.core.text import words_if_known
from profiler.record.measured import Number, measured_from
from profiler.record.mention_limits import MIN_SHOWN_GPU_PERCENT
from profiler.record.record_model import (
    NO_NEURON,
    NOT_MEASURED,
    WHOLE_INSTANCE,
    Distribution,
    Gpu,
    Neuron,
    Record,
)
from profiler.record.units import format_count, format_memory, format_percent

# A context takes 250 to 650 MiB of a GPU's memory: with less, no program was on it.
_UNUSED_MB = 64
# The scope of GPUs of which other programs used one, too.
SHARED = "shared"
NEVER_USED = "never used"


class GpuTotals(Struct, frozen=True, kw_only=True):
    """All GPUs of a run as one: the mean of their averages, and the largest maximum. Without a use
    that is known of all, there is none.

    ``memory_size_mb`` is what the run may hold on the GPU with the largest peak. Of a GPU that is
    ``shared`` only the memory is the run's own, so that its other values do not count. ``scope``
    says whose the numbers are, if not the run's alone: those of the whole instance, or of a GPU
    that is shared. ``idle_between_percent`` is the share of the run in which they were idle between
    their first and their last work.
    """

    count: int | None = None
    idle: int | None = None
    shared: int = 0
    scope: str | None = None
    is_use_approximate: bool = False
    utilization_percent: Distribution = NOT_MEASURED
    sm_active_percent: Distribution = NOT_MEASURED
    tensor_active_percent: Distribution = NOT_MEASURED
    dram_active_percent: Distribution = NOT_MEASURED
    memory_used_mb: Distribution = NOT_MEASURED
    memory_size_mb: Number | None = None
    idle_between_percent: float | None = None

    @property
    def word_instead_of_use(self) -> str | None:
        """What stands in tables in place of the use: that the GPUs were never used, or that their
        use is not the run's own.
        """
        if not self.count:
            return None
        if self.idle == self.count:
            return NEVER_USED
        if self.shared and self.utilization_percent.avg is None:
            return SHARED
        return WHOLE_INSTANCE if self.scope == WHOLE_INSTANCE else None

    @property
    def unused_text(self) -> str:
        """``1 of 4 GPUs was never used``, if some were; "" if all or none were."""
        idle = self.idle or 0
        if not 0 < idle < (self.count or 0) or self.scope == WHOLE_INSTANCE:
            return ""
        return f"{idle} of {self.count} GPUs {'was' if idle == 1 else 'were'} never used"

    def use_text(self, percent: float) -> str:
        """A use of the GPUs in percent, with its mark if it is an estimate, or of a part of the
        run.
        """
        return measured_from(percent, is_estimate=self.is_use_approximate).text(format_percent)

    @property
    def memory_text(self) -> str:
        """The most memory that the run was seen to hold of the GPU with the largest peak, of what
        it may hold: ``≥1.7 GB of 79.6 GB``; "" if none was seen.
        """
        return held_memory_text(self.memory_used_mb.max, self.memory_size_mb)

    @property
    def part_texts(self) -> list[str]:
        """Use, memory and idle time between in a few words each, the most important first; none
        without GPUs.
        """
        if not self.count:
            return []
        name = "GPU" if self.count == 1 else format_count(self.count, "GPU")
        whose = " of the instance" if self.word_instead_of_use == WHOLE_INSTANCE else ""
        parts = [f"{name}{whose} {self._use_words()}"]
        memory = self.memory_text
        if memory:
            parts.append(f"own memory {memory}" if self.shared else memory)
        return [*parts, *idle_between_texts(self.idle_between_percent)]

    @property
    def text(self) -> str:
        """The parts in one line: ``GPU 3 %, ≥1.7 GB of 79.6 GB, idle 30 % between its work``; ""
        without GPUs.
        """
        return ", ".join(self.part_texts)

    @property
    def in_use_text(self) -> str:
        """How many GPUs the run used: ``1 GPU``; "" without one."""
        used = (self.count or 0) - (self.idle or 0)
        return format_count(used, "GPU") if used else ""

    def _use_words(self) -> str:
        if self.word_instead_of_use == SHARED:
            return "shared with other programs"
        if self.word_instead_of_use == NEVER_USED:
            return NEVER_USED
        return known(self.use_text, self.utilization_percent.avg) or "use unknown"


NO_GPUS: Final = GpuTotals()


class NeuronTotals(Struct, frozen=True, kw_only=True):
    """All NeuronCores of a run as one, like `GpuTotals`; the memory covers all devices.

    Without devices that were watched, ``is_watched`` is false, and nothing is known.
    """

    is_watched: bool = False
    cores: int | None = None
    utilization_percent: Distribution = NOT_MEASURED
    device_memory_used_mb: Distribution = NOT_MEASURED
    device_memory_size_mb: Number | None = None

    @property
    def text(self) -> str:
        """The parts in one line: ``2 NeuronCores 45 %, 6.8 GB of 16 GB``; "" without cores."""
        return ", ".join(self.part_texts)

    @property
    def part_texts(self) -> list[str]:
        """Use and memory in a few words each; none without cores."""
        if not self.cores:
            return []
        use = known(format_percent, self.utilization_percent.avg) or "use unknown"
        parts = [f"{format_count(self.cores, 'NeuronCore')} {use}"]
        return [*parts, self.memory_text] if self.memory_text else parts

    @property
    def in_use_text(self) -> str:
        """How many cores the run used: ``2 NeuronCores``; "" without cores, or if none was ever
        used.
        """
        if not self.cores or self.utilization_percent.max == 0:
            return ""
        return format_count(self.cores, "NeuronCore")

    @property
    def memory_text(self) -> str:
        """The most memory in use, of all that the devices have: ``6.8 GB of 16 GB``; "" if it is
        unknown.
        """
        used = known(format_memory, self.device_memory_used_mb.max) or ""
        size = known(format_memory, self.device_memory_size_mb or None)
        return used and used + words_if_known(" of {}", size)


NO_NEURON_TOTALS: Final = NeuronTotals()


def gpu_totals(record: Record) -> GpuTotals:
    """Combine the GPUs of a run; without GPUs, nothing is known of them but their scope."""
    gpus = record.gpus
    if not gpus:
        return NO_GPUS if record.gpu_scope is None else GpuTotals(scope=record.gpu_scope)
    own = own_gpus(gpus)
    is_shared = len(own) < len(gpus)
    between_percent = known(attrgetter("between_percent"), record.gpu_idle)
    fullest = max(gpus, key=_peak_mb)
    return GpuTotals(
        count=len(gpus),
        idle=sum(map(was_never_used, gpus)),
        shared=len(gpus) - len(own),
        scope=record.gpu_scope or (SHARED if is_shared else None),
        is_use_approximate=any(gpu.is_use_approximate for gpu in gpus),
        utilization_percent=_combine_if_all_known(gpu.utilization_percent for gpu in own),
        sm_active_percent=_combine_if_all_known(gpu.sm_active_percent for gpu in own),
        tensor_active_percent=_combine_if_all_known(gpu.tensor_active_percent for gpu in own),
        dram_active_percent=_combine_if_all_known(gpu.dram_active_percent for gpu in own),
        memory_used_mb=_combine(gpu.memory_used_mb for gpu in gpus),
        memory_size_mb=fullest.memory_limit_mb or fullest.memory_size_mb,
        idle_between_percent=None if record.are_gpus_of_instance else between_percent,
    )


def own_gpus(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs whose values are not also other programs'."""
    return [gpu for gpu in gpus if not gpu.shared]


def held_memory_text(used_mb: float | None, size_mb: float | None) -> str:
    """The most GPU memory that a run was seen to hold, of what it may hold; "" if none was seen:
    at least 0 MB says nothing.
    """
    peak = measured_from(used_mb or None, is_least=True).text(format_memory)
    return f"{peak} of {format_memory(size_mb)}" if peak and size_mb else peak


def idle_between_texts(percent: float | None) -> list[str]:
    """The idle time between the first and the last work; none if it is short or unknown."""
    if percent is None or percent < MIN_SHOWN_GPU_PERCENT:
        return []
    return [f"idle {format_percent(percent)} between its work"]


def _peak_mb(gpu: Gpu) -> Number:
    return gpu.memory_used_mb.max or 0


def neuron_totals(neuron: Neuron) -> NeuronTotals:
    """Combine the NeuronCores of a run; nothing is known of Neuron devices that were not
    watched.
    """
    if neuron is NO_NEURON:
        return NO_NEURON_TOTALS
    return NeuronTotals(
        is_watched=True,
        cores=len(neuron.cores),
        utilization_percent=_combine_if_all_known(
            core.utilization_percent for core in neuron.cores
        ),
        device_memory_used_mb=neuron.device_memory_used_mb,
        device_memory_size_mb=neuron.device_memory_size_mb,
    )


def _combine_if_all_known(distributions: Iterable[Distribution]) -> Distribution:
    """Combine the uses; without one of them nothing is known: the others do not show it."""
    found = list(distributions)
    if any(distribution.avg is None for distribution in found):
        return NOT_MEASURED
    return _combine(found)


def _combine(distributions: Iterable[Distribution]) -> Distribution:
    averages = []
    maxima = []
    for distribution in distributions:
        averages.append(distribution.avg)
        maxima.append(distribution.max)
    return Distribution(avg=mean_known(*averages), max=max_known(*maxima))


def was_never_used(gpu: Gpu) -> bool:
    """Whether the GPU was never used: it did not work in samples without gaps, and no program held
    memory of it.
    """
    if gpu.utilization_percent.max != 0 or gpu.shared:
        return False
    if gpu.is_use_estimated or gpu.is_use_partial:
        return False
    used_mb = gpu.memory_used_mb.max
    return first_known(used_mb, math.inf) < _UNUSED_MB
