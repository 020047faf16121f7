"""The hardware of a run: the short name of the CPU's model, all GPUs or NeuronCores together,
and advice on them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from profiler.core.optional_math import max_known, mean_known
from profiler.core.text import listed
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.mention_limits import (
    MIN_GPU_IDLE_PERCENT,
    MIN_WAIT_PERCENT,
    PAST_WAITS,
    SATURATED_PERCENT,
    is_near_limit,
    wait_in_words,
    whole_cpu_seconds,
)
from profiler.record.record_model import (
    Distribution,
    Gpu,
    Neuron,
    Number,
    Record,
    TaskSize,
    Visible,
)
from profiler.record.units import (
    format_duration,
    format_gpu_hours,
    format_memory,
    format_percent,
    format_usd,
    format_vcpu,
)

# The record's ``gpuScope`` if it is not known which of the instance's GPUs belong to the batch.
WHOLE_INSTANCE = "instance"
_NOT_MEASURED = Distribution()
_SEEN_MEMORY_FACTOR = (
    1.2  # up to this multiple of the limit, the memory that a program sees agrees with it
)
_MAX_THREADS_PER_VCPU = 2  # that can run at the same time, on average
# What the names of all models have in common.
_PROCESSOR_WORDS = (
    r"(?i)\((?:R|TM)\)|\b(?:Intel|AMD|CPU|Processor|Platinum|Gold|Silver|Bronze|\d+-Core)\b"
)
_ON_CPU = "on_cpu"
_ACTIVITIES = {**PAST_WAITS, _ON_CPU: "used one CPU", "disk": "read files"}
_MIN_SHOWN_PERCENT = 1
# A run that used fewer vCPUs for 95 % of its time worked on one of them.
_MAX_ONE_VCPU = 1.5
_TWO_VCPU = 2
_SMALL_PERCENT = 25
_PERCENT = 100
# A context takes 250 to 650 MiB of a GPU's memory: with less, no program was on it.
_UNUSED_MB = 64
# What a pause between the first and the last work shows about the supply of data: only a run that
# worked for so long, and waited for so long.
_MIN_WORK_SECONDS = 30
_MIN_BETWEEN_SECONDS = 10
# What the size of a GPU can be judged by.
_MIN_SIZED_SECONDS = 10
_MAX_STARVED_PERCENT = 50
_MIN_STARTUP_SECONDS = 2
_MIN_COPY_SECONDS = 2
_GAP_FREE = ("driver-samples", "gpm")


class GpuTotals(Struct, frozen=True, kw_only=True):
    """All GPUs of a run as one: the mean of their averages, and the largest maximum."""

    count: int | None = None
    idle: int | None = None
    utilization_percent: Distribution = _NOT_MEASURED
    sm_active_percent: Distribution = _NOT_MEASURED
    tensor_active_percent: Distribution = _NOT_MEASURED
    dram_active_percent: Distribution = _NOT_MEASURED
    memory_used_mb: Distribution = _NOT_MEASURED


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
        utilization_percent=_combine(gpu.utilization_percent for gpu in gpus),
        sm_active_percent=_combine(gpu.sm_active_percent for gpu in gpus),
        tensor_active_percent=_combine(gpu.tensor_active_percent for gpu in gpus),
        dram_active_percent=_combine(gpu.dram_active_percent for gpu in gpus),
        memory_used_mb=_combine(gpu.memory_used_mb for gpu in gpus),
    )


def neuron_totals(neuron: Neuron | None) -> NeuronTotals | None:
    """Combine the NeuronCores of a run. Returns None if Neuron devices were not watched."""
    if neuron is None:
        return None
    return NeuronTotals(
        cores=len(neuron.cores),
        utilization_percent=_combine(core.utilization_percent for core in neuron.cores),
        device_memory_used_mb=neuron.device_memory_used_mb or _NOT_MEASURED,
    )


def _combine(distributions: Iterable[Distribution | None]) -> Distribution:
    averages = []
    maxima = []
    for distribution in distributions:
        if distribution is not None:
            averages.append(distribution.avg)
            maxima.append(distribution.max)
    return Distribution(avg=mean_known(*averages), max=max_known(*maxima))


def is_idle(gpu: Gpu) -> bool:
    """Whether the GPU was never used: it did not work in samples without gaps, and no program held
    memory of it.
    """
    if gpu.utilization_percent is None or gpu.utilization_percent.max != 0 or gpu.shared:
        return False
    if gpu.utilization_source not in _GAP_FREE:
        return False
    used_mb = (gpu.memory_used_mb or _NOT_MEASURED).max
    return used_mb is not None and used_mb < _UNUSED_MB


def idle_advice(gpus: Sequence[Gpu]) -> str | None:
    """A sentence about the GPUs that were never used; None if all were used."""
    idle = sum(map(is_idle, gpus))
    if not idle:
        return None
    if idle == len(gpus):
        return (
            "No GPU was ever used: run the task without one, or check why the batch did not find "
            "it."
        )
    were = "was" if idle == 1 else "were"
    return (
        f"{idle} of {len(gpus)} GPUs {were} never used: request {len(gpus) - idle}, or spread the "
        "work."
    )


def unseen_memory_limit(
    visible: Visible | None, size: TaskSize | None, container_mb: Number | None
) -> tuple[str, str] | None:
    """The memory that a program sees, and the task's limit; None if they agree, or if the
    container has its own.
    """
    seen_mb = (visible or Visible()).memory_mb
    limit_mb = (size or TaskSize()).memory_mb
    if (
        seen_mb is None
        or not limit_mb
        or container_mb != limit_mb
        or seen_mb <= _SEEN_MEMORY_FACTOR * limit_mb
    ):
        return None
    return format_memory(seen_mb), format_memory(limit_mb)


def unseen_cpu_limit(visible: Visible | None, size: TaskSize | None) -> tuple[str, str] | None:
    """The number of CPUs that a program sees, and the task's vCPUs; None if they agree or are
    unknown.
    """
    cpus = (visible or Visible()).cpus
    vcpu = (size or TaskSize()).vcpu
    if cpus is None or not vcpu or cpus <= vcpu:
        return None
    return f"{cpus:g} CPU{'' if cpus == 1 else 's'}", format_vcpu(vcpu)


def visible_memory_advice(record: Record, *, is_out_of_memory: bool) -> str | None:
    """A sentence for a run that was killed for memory (``is_out_of_memory``), or nearly."""
    metrics = record.metrics
    unseen = unseen_memory_limit(record.visible, record.task_size, metrics.memory_size_mb)
    is_high = is_near_limit(metrics.max_memory_used_mb, metrics.memory_size_mb)
    if unseen is None or not (is_out_of_memory or is_high):
        return None
    seen, limit = unseen
    may_use = limit.removesuffix(f" {seen.rpartition(' ')[2]}")
    remedy = "set the container's `memory`, or -Xmx/max_old_space_size/workers"
    return f"the program sees {seen} and may use {may_use}: {remedy}."


def visible_cpus_advice(record: Record) -> str | None:
    """A sentence for a saturated run whose threads that could run, on average, were too many for
    the task's vCPUs.
    """
    metrics = record.metrics
    vcpu = (record.task_size or TaskSize()).vcpu
    unseen = unseen_cpu_limit(record.visible, record.task_size)
    used = whole_cpu_seconds(record)
    waited = metrics.cpu_wait_seconds
    duration_ms = metrics.duration_ms
    if unseen is None or not vcpu or used is None or waited is None or not duration_ms:
        return None
    is_saturated = (metrics.vcpu_saturated_percent or 0) >= SATURATED_PERCENT
    if (
        not is_saturated
        or (used + waited) * MS_PER_SECOND / duration_ms <= _MAX_THREADS_PER_VCPU * vcpu
    ):
        return None
    return (
        f"it sees {unseen[0]} and may use {unseen[1].removesuffix(' vCPU')}: set the number of "
        "workers."
    )


def short_processor_name(model: str) -> str:
    """The model without what most models have: ``EPYC 7R13``.

    A frequency is left in if it is the only number.
    """
    name, at, frequency = model.partition("@")
    short = " ".join(re.sub(_PROCESSOR_WORDS, " ", name).split())
    if at and not any(character.isdigit() for character in short):
        short = f"{short} @ {frequency.strip()}".strip()
    return short or model.strip()


def processor_difference(
    record: Record, other: Record, other_name: str = "the other run"
) -> str | None:
    """Name both models if they differ and are known: ``ran on Xeon 8259CL, the other run on
    8375C``.
    """
    if (
        record.processor is None
        or other.processor is None
        or not (record.processor.model and other.processor.model)
    ):
        return None
    own = short_processor_name(record.processor.model)
    others = short_processor_name(other.processor.model)
    if own == others:
        return None
    brand, _, rest = others.partition(" ")
    is_same_brand = bool(rest) and own.startswith(f"{brand} ")
    return f"ran on {own}, {other_name} on {rest if is_same_brand else others}"


def gpu_idle_sentence(record: Record) -> str | None:
    """``the GPU was idle 63 % of the run: 40 % before its work began (after 6 s), 23 % between;
    between, the batch read files (48 %: /data/train.tar)``, if it was idle.
    """
    idle = record.gpu_idle
    if idle is None or idle.percent < _MIN_SHOWN_PERCENT:
        return None
    several = len(record.gpus) != 1  # a record that was too long has none
    whose = " of the instance" if record.gpu_scope == WHOLE_INSTANCE else ""
    if several:
        gpus = f"the {len(record.gpus) or ''} GPUs{whose} were".replace("  ", " ")
    else:
        gpus = f"the GPU{whose} was"
    text = (
        f"{gpus} idle {format_percent(min(idle.percent, _PERCENT))} of the "
        f"run{' on average' if several else ''}"
    )
    places = list(_idle_places(record))
    if places:
        text += f": {', '.join(places)}"
    times = idle.waiting_for or TimeBreakdown()
    largest = [activity for activity in _activities(times)[:3] if activity[0] >= MIN_WAIT_PERCENT]
    between_percent = idle.between_percent
    if not largest or (between_percent is not None and between_percent < _MIN_SHOWN_PERCENT):
        return text
    if idle.between_percent is not None:
        when = "between"
    else:
        when = "while all were idle" if several else "meanwhile"
    done = listed(_in_words(kind, percent, times, record) for percent, kind in largest)
    return f"{text}; {when}{',' if when != 'meanwhile' else ''} the batch {done}"


def _idle_places(record: Record) -> Iterator[str]:
    """Where in the run the GPUs were idle."""
    idle = record.gpu_idle
    if idle is None or idle.between_percent is None:
        return
    first = [gpu.first_used_seconds for gpu in record.gpus if gpu.first_used_seconds is not None]
    if (idle.before_percent or 0) >= _MIN_SHOWN_PERCENT and first:
        began = format_duration(min(first) * MS_PER_SECOND)
        yield f"{format_percent(idle.before_percent or 0)} before its work began (after {began})"
    if idle.between_percent >= _MIN_SHOWN_PERCENT:
        yield f"{format_percent(idle.between_percent)} between"
    if (idle.after_percent or 0) >= _MIN_SHOWN_PERCENT:
        yield f"{format_percent(idle.after_percent or 0)} after its work"


def startup_sentence(record: Record) -> str | None:
    """``its work on the GPU began after 6 s (43 % of the run): imports and loading``, if that was
    long.
    """
    idle = record.gpu_idle
    first = [gpu.first_used_seconds for gpu in record.gpus if gpu.first_used_seconds is not None]
    if idle is None or not first or not record.metrics.duration_ms or record.status == "failure":
        return None
    seconds = min(first)
    percent = _PERCENT * seconds * MS_PER_SECOND / record.metrics.duration_ms
    if seconds < _MIN_STARTUP_SECONDS or percent < MIN_GPU_IDLE_PERCENT:
        return None
    gpus = "the GPU" if len(record.gpus) == 1 else "the GPUs"
    text = (
        f"its work on {gpus} began after {format_duration(seconds * MS_PER_SECOND)} "
        f"({format_percent(percent)} of the run)"
    )
    times = idle.waiting_before
    done = [] if times is None else _activities(times)[:1]
    if times is None or not done or done[0][0] < _LARGE_PART_PERCENT:
        return f"{text}: imports and loading"
    return f"{text}; until then it {_in_words(done[0][1], done[0][0], times, record)}"


_LARGE_PART_PERCENT = 50


def gpu_idle_texts(record: Record) -> Iterator[str]:
    """The sentence, and ``0.63 idle GPU-hours ($1.27)``; nothing if the GPUs were not idle, or
    if that is unknown.
    """
    for gpu in record.gpus:
        sharing = sharing_sentence(gpu)
        if sharing is not None:
            yield sharing
            break
    sentence = gpu_idle_sentence(record)
    idle = record.gpu_idle
    if sentence is not None and idle is not None:
        yield sentence
        yield format_gpu_hours(idle.gpu_hours) + (
            "" if idle.usd is None else f" ({format_usd(idle.usd)})"
        )


def gpu_advice(record: Record) -> Iterator[str]:
    """Sentences: about GPUs that were never used, else about what the work waited for, copies, and
    GPUs that are too large.

    None about a failed run, and about GPUs that other programs used, too.
    """
    if record.status not in ("success", "running"):
        return
    never_used = idle_advice(record.gpus)
    if never_used:
        yield never_used
        return
    if not record.gpus or any(gpu.shared for gpu in record.gpus):
        return
    for text in (_data_advice(record), _copy_advice(record), _size_advice(record)):
        if text is not None:
            yield text


def sharing_sentence(gpu: Gpu) -> str | None:
    """What a GPU that is shared lets the run have, and whose the numbers are."""
    if gpu.memory_limit_mb is not None or gpu.compute_limit_percent is not None:
        parts = []
        if gpu.memory_limit_mb is not None:
            of = "" if gpu.memory_size_mb is None else f" of {format_memory(gpu.memory_size_mb)}"
            parts.append(f"{format_memory(gpu.memory_limit_mb)}{of}")
        if gpu.compute_limit_percent is not None:
            parts.append(f"{format_percent(gpu.compute_limit_percent)} of its multiprocessors")
        return (
            f"the run may use {' and '.join(parts)} (MPS); utilization, power and energy are of all "
            "programs on the GPU"
        )
    if gpu.shared:
        return (
            "another program used this GPU, too: utilization, power and energy are of all programs "
            "on it"
        )
    return None


def _activities(times: TimeBreakdown) -> list[tuple[float, str]]:
    """The known parts of the time with their shares, the largest first."""
    return sorted(
        ((getattr(times, f"{kind}_percent") or 0.0, kind) for kind in _ACTIVITIES), reverse=True
    )


def _in_words(kind: str, percent: float, times: TimeBreakdown, record: Record) -> str:
    """A part with its share and its longest target."""
    if kind == _ON_CPU and not _is_one_cpu(record):
        done = "used the CPU"
    else:
        done = _ACTIVITIES[kind]
    share = format_percent(percent)
    longest: WaitTarget | None = None
    for target in times.waiting_for:
        if target.kind != kind or target.target == kind or target.percent <= 0:
            continue
        if longest is None or target.percent > longest.percent:
            longest = target
    if longest is None:
        return f"{done} ({share})"
    if longest.percent * 2 >= percent:
        return f"{done} ({share}: {longest.target})"
    return f"{done} ({share}, {format_percent(longest.percent)} for {longest.target})"


def _is_one_cpu(record: Record) -> bool:
    p95 = (record.metrics.vcpu_used or _NOT_MEASURED).p95
    return p95 is None or p95 < _MAX_ONE_VCPU


def _work_seconds(record: Record) -> float:
    """From the first to the last work on the GPUs."""
    first = [gpu.first_used_seconds for gpu in record.gpus if gpu.first_used_seconds is not None]
    last = [gpu.last_used_seconds for gpu in record.gpus if gpu.last_used_seconds is not None]
    return max(last) - min(first) if first and last else 0.0


def _between_percent(record: Record) -> float:
    """The share of the time between the first and the last work in which the GPUs were idle."""
    work = _work_seconds(record)
    between = [gpu.idle_between_seconds or 0.0 for gpu in record.gpus]
    return _PERCENT * sum(between) / len(between) / work if work and between else 0.0


def _data_advice(record: Record) -> str | None:
    """A sentence on what the GPUs waited for between their first and last work, if the largest part
    of that time shows it.
    """
    idle = record.gpu_idle
    if idle is None or idle.waiting_for is None:
        return None
    between_percent = _between_percent(record)
    waited = between_percent / _PERCENT * _work_seconds(record)
    if _work_seconds(record) < _MIN_WORK_SECONDS or waited < _MIN_BETWEEN_SECONDS:
        return None
    if between_percent < MIN_GPU_IDLE_PERCENT:
        return None
    percent, kind = _activities(idle.waiting_for)[0]
    if percent <= (idle.waiting_for.other_percent or 0):
        return None
    subject = "The GPU waited" if len(record.gpus) == 1 else "The GPUs waited"
    share = f"for {format_percent(between_percent)} of the time between its first and last work"
    if kind in ("disk", "network"):
        return f"{subject} {share}, for {wait_in_words(kind)}: use more loader workers or prefetch."
    if kind != _ON_CPU or not _is_one_cpu(record):
        return None
    is_small = (record.metrics.vcpu_size or _TWO_VCPU) < _TWO_VCPU
    return (
        f"{subject} {share}, for one CPU: use more workers{', and more vCPUs' if is_small else ''}."
    )


def _copy_advice(record: Record) -> str | None:
    """A sentence if copies over PCIe took a notable part of the run."""
    duration = (record.metrics.duration_ms or 0) / MS_PER_SECOND
    for gpu in record.gpus:
        seconds = gpu.copy_seconds or 0
        if not duration or seconds < _MIN_COPY_SECONDS:
            continue
        percent = _PERCENT * seconds / duration
        if percent < MIN_GPU_IDLE_PERCENT:
            continue
        rate = f"{(gpu.copy_bytes_per_second or 0) / 1e9:.0f}"
        if gpu.link_bytes_per_second:
            rate += f" of {gpu.link_bytes_per_second / 1e9:.0f}"
        return (
            f"It copied over PCIe at {rate} GB/s for {format_percent(percent)} of the run, "
            "while no kernel ran: keep the data on the GPU, or copy while kernels run."
        )
    return None


def _size_advice(record: Record) -> str | None:
    """A sentence if the batch used less than a quarter of the memory and, while it worked, of the
    multiprocessors of each GPU.
    """
    gpus = record.gpus
    if _work_seconds(record) < _MIN_SIZED_SECONDS or _copy_advice(record) is not None:
        return None
    if _between_percent(record) >= _MAX_STARVED_PERCENT:
        return None  # with data in time it would work more
    use = [_sm_percent_while_used(gpu) for gpu in gpus]
    name = "SM active"
    if None in use:
        use = [(gpu.utilization_percent or _NOT_MEASURED).avg for gpu in gpus]
        name = "utilization"
    memory = [_memory_percent(gpu) for gpu in gpus]
    most_use = max_known(*use)
    most_memory = max_known(*memory)
    if most_use is None or most_memory is None or None in (*use, *memory):
        return None
    if max(most_use, most_memory) >= _SMALL_PERCENT:
        return None
    subject = "The GPU is" if len(gpus) == 1 else "The GPUs are"
    return (
        f"{subject} larger than needed (memory peak {format_percent(most_memory)}, {name} "
        f"{format_percent(most_use)} while it worked): use a smaller GPU or a larger batch size."
    )


def _sm_percent_while_used(gpu: Gpu) -> float | None:
    """The share of the multiprocessors in use, in the time in which the GPU worked."""
    active = (gpu.sm_active_percent or _NOT_MEASURED).avg
    used = (gpu.utilization_percent or _NOT_MEASURED).avg
    if active is None or not used:
        return None
    return min(_PERCENT * active / used, _PERCENT)


def _memory_percent(gpu: Gpu) -> float | None:
    used_mb = (gpu.memory_used_mb or _NOT_MEASURED).max
    if used_mb is None or not gpu.memory_size_mb:
        return None
    return _PERCENT * used_mb / gpu.memory_size_mb
