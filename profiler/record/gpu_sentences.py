"""What is said of a run's GPUs: when they were idle, who used them, and advice on them.

``gpu_facts`` has the numbers, the errors and the lack of memory.
"""

from collections.abc import Iterator, Sequence
from operator import attrgetter

from msgspec import Struct

from profiler.core.optional_math import (
    all_known,
    difference,
    first_known,
    known_values,
    max_known,
    mean_known,
)
from profiler.core.text import as_sentence, listed, words_if_known
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.activity_model import TimeBreakdown
from profiler.record.device_totals import NEVER_USED, GpuTotals
from profiler.record.measured import Measured, measured_from
from profiler.record.mention_limits import (
    MIN_GPU_IDLE_PERCENT,
    MIN_SHOWN_GPU_PERCENT,
    MIN_WAIT_PERCENT,
    PAST_WAITS,
    is_gpu_use_estimated,
    is_gpu_use_partial,
    wait_words,
)
from profiler.record.record_model import Gpu, GpuIdle, Record, known_status
from profiler.record.units import (
    format_duration,
    format_gpu_hours,
    format_memory,
    format_percent,
    format_usd,
)

_PERCENT = 100
_ON_CPU = "on_cpu"
_ACTIVITIES = {**PAST_WAITS, _ON_CPU: "used one CPU", "disk": "read files"}
# A run that used fewer vCPUs for 95 % of its time worked on one of them.
_MAX_ONE_VCPU = 1.5
_TWO_VCPU = 2
# What the supply of data can be judged by: how long the run worked, and waited meanwhile.
_MIN_WORK_SECONDS = 30
_MIN_BETWEEN_SECONDS = 10
# What the size of a GPU can be judged by: how long the run worked, and how little it waited.
_MIN_SIZED_SECONDS = 10
_MAX_STARVED_PERCENT = 50
_SMALL_PERCENT = 25
_MIN_STARTUP_SECONDS = 2
_LARGE_PART_PERCENT = 50
_MIN_COPY_SECONDS = 2
_GB = 1e9


def gpu_idle_sentence(record: Record) -> str | None:
    """``the GPU was idle 63 % of the run: 40 % before its work began (after 6.0 s), 23 % between;
    between, the batch read files (48 %: /data/train.tar)``, if it was idle.
    """
    idle = record.gpu_idle
    if idle is None or idle.percent < MIN_SHOWN_GPU_PERCENT or record.are_gpus_of_instance:
        return None
    is_several = len(record.gpus) != 1  # a record that was too long has none
    if is_several:
        gpus = f"the {len(record.gpus) or ''} GPUs were".replace("  ", " ")
    else:
        gpus = "the GPU was"
    percent = _measured_idle_time(min(idle.percent, _PERCENT), record)
    text = (
        f"{gpus} idle {percent.sentence_words(format_percent)} of the "
        f"run{' on average' if is_several else ''}"
    )
    places = ", ".join(_idle_place_texts(idle, record))
    if places:
        text += f": {places}"
    done = _done_while_idle_text(idle, record)
    if done is None:
        return text
    if idle.between_percent is not None:
        return f"{text}; between, the batch {done}"
    return f"{text}; {'while all were idle,' if is_several else 'meanwhile'} the batch {done}"


def _measured_idle_time(value: float | None, record: Record) -> Measured:
    return measured_from(
        value, is_least=is_gpu_use_partial(record), is_estimate=is_gpu_use_estimated(record)
    )


def _idle_place_texts(idle: GpuIdle, record: Record) -> Iterator[str]:
    """Where in the run the GPUs were idle: of several, each before, between and after its own
    work, on average.
    """
    if idle.between_percent is None:
        return
    whose = "its" if len(record.gpus) == 1 else "their"
    before_percent = idle.before_percent or 0
    began = _work_beginnings_text(record)
    if before_percent >= MIN_SHOWN_GPU_PERCENT and began:
        yield f"{format_percent(before_percent)} before {whose} work began (after {began})"
    if idle.between_percent >= MIN_SHOWN_GPU_PERCENT:
        yield f"{format_percent(idle.between_percent)} between"
    after_percent = idle.after_percent or 0
    if after_percent >= MIN_SHOWN_GPU_PERCENT:
        yield f"{format_percent(after_percent)} after {whose} work"


def _work_beginnings_text(record: Record) -> str:
    """When the work on each GPU began, the first and the last: ``6.0 s``, ``1.5 s to 30.0 s``; ""
    if it is unknown.
    """
    firsts = sorted(known_values(gpu.first_used_seconds for gpu in record.gpus))
    texts = [format_duration(seconds * MS_PER_SECOND) for seconds in (*firsts[:1], *firsts[-1:])]
    return " to ".join(dict.fromkeys(texts))


def _done_while_idle_text(idle: GpuIdle, record: Record) -> str | None:
    """What the batch did between the first and the last work of its GPUs; in records without these
    times, whenever the GPUs were idle.
    """
    times = idle.waiting_for
    if first_known(idle.between_percent, _PERCENT) < MIN_SHOWN_GPU_PERCENT:
        return None
    largest = [
        activity for activity in _activity_shares(times)[:3] if activity[0] >= MIN_WAIT_PERCENT
    ]
    if not largest:
        return None
    return listed(_activity_in_words(kind, percent, times, record) for percent, kind in largest)


def sharing_sentence(gpu: Gpu) -> str | None:
    """What a GPU that is shared lets the run have, and whose the numbers are."""
    sizes = (gpu.memory_limit_mb, gpu.memory_size_mb)
    memory = " of ".join(map(format_memory, known_values(sizes)))
    parts = []
    if gpu.memory_limit_mb is not None:
        parts.append(memory)
    if gpu.compute_limit_percent is not None:
        parts.append(f"{format_percent(gpu.compute_limit_percent)} of its multiprocessors")
    if not parts and gpu.shared:
        return (
            "another program used this GPU, too: utilization, power and energy are of all programs "
            "on it"
        )
    if not parts:
        return None
    return (
        f"the run may use {listed(parts)} (MPS); utilization, power and energy are of all "
        "programs on the GPU"
    )


def instance_sentence(record: Record) -> str | None:
    """That the numbers of the GPUs may be other programs', if they may be."""
    if not record.gpus or not record.are_gpus_of_instance:
        return None
    gpus = "this GPU: its" if len(record.gpus) == 1 else "these GPUs: their"
    return f"it is not known which programs used {gpus} numbers may be those of all programs"


def gpu_idle_texts(record: Record) -> Iterator[str]:
    """Whose the numbers are, when the GPUs were idle, and ``0.63 idle GPU-hours ($1.27)``; nothing
    if the GPUs were not idle, or if that is unknown. Of a run that failed, only the first.
    """
    sharing = (sharing_sentence(gpu) for gpu in record.gpus)
    yield from known_values((*sharing, instance_sentence(record)))[:1]
    sentence = gpu_idle_sentence(record)
    idle = record.gpu_idle
    has_failed = known_status(record) == "failure"
    if sentence is not None and idle is not None and not has_failed:
        yield sentence
        usd = words_if_known(
            " ({})", _measured_idle_time(idle.usd, record).text(format_usd) or None
        )
        yield f"{_measured_idle_time(idle.gpu_hours, record).text(format_gpu_hours)}{usd}"


class _GpuWork(Struct, frozen=True, kw_only=True):
    """The time from the first to the last work on a GPU, and the share of it in which the GPU was
    idle; of several, the means. 0 if the time of one is unknown.
    """

    seconds: float
    between_percent: float


def gpu_advice(record: Record, totals: GpuTotals) -> list[str]:
    """Sentences: about GPUs that were never used, else about what the work waited for, about
    copies, and about GPUs that are too large; and when a late start of the work explains more.
    No sentence if the numbers may be other programs', or are of a run that did not do its work.

    ``totals`` are the run's, of its GPUs.
    """
    if not _can_gpu_work_be_judged(record):
        return []
    sentences: Sequence[str]
    if totals.idle:
        sentences = [_never_used_advice(totals)]
    else:
        work = _gpu_work_of(record.gpus)
        data = _data_advice(record, work)
        copies = _copy_advice(record)
        # A GPU that copies is held back: its use does not show whether it is too large.
        size = _size_advice(record.gpus, work) if copies is None else None
        sentences = known_values((data, copies, size))
    return [*sentences, *map(as_sentence, known_values([_startup_sentence(record)]))]


def _can_gpu_work_be_judged(record: Record) -> bool:
    """Whether the numbers are the run's own, and of a run that did its work."""
    if record.status not in ("success", "running") or record.are_gpus_of_instance:
        return False
    return bool(record.gpus) and not any(gpu.shared for gpu in record.gpus)


def _never_used_advice(totals: GpuTotals) -> str:
    """What to do about GPUs that were never used."""
    if totals.word_instead_of_use == NEVER_USED:
        return (
            "No GPU was ever used: run the task without one, or check why the batch did not find "
            "it."
        )
    used = (totals.count or 0) - (totals.idle or 0)
    return f"{totals.unused_text}: request {used}, or spread the work."


def _startup_sentence(record: Record) -> str | None:
    """``its work on the GPU began after 6.0 s (43 % of the run): imports and loading``, if that
    was long.
    """
    idle = record.gpu_idle
    seconds = _first_work_seconds(record)
    duration_ms = record.metrics.duration_ms
    if idle is None or seconds is None or not duration_ms:
        return None
    percent = _PERCENT * seconds * MS_PER_SECOND / duration_ms
    if seconds < _MIN_STARTUP_SECONDS or percent < MIN_GPU_IDLE_PERCENT:
        return None
    gpus = "the GPU" if len(record.gpus) == 1 else "the GPUs"
    text = (
        f"its work on {gpus} began after {format_duration(seconds * MS_PER_SECOND)} "
        f"({format_percent(percent)} of the run)"
    )
    times = idle.waiting_before
    part_percent, kind = _activity_shares(times)[0]
    if part_percent < _LARGE_PART_PERCENT:
        return f"{text}: imports and loading"
    return f"{text}; until then it {_activity_in_words(kind, part_percent, times, record)}"


def _data_advice(record: Record, work: _GpuWork) -> str | None:
    """A sentence on what the GPUs waited for between their first and last work, if the largest
    part of that time shows it.
    """
    if record.gpu_idle is None:
        return None
    times = record.gpu_idle.waiting_for
    between_percent = work.between_percent
    waited_seconds = between_percent / _PERCENT * work.seconds
    if work.seconds < _MIN_WORK_SECONDS or waited_seconds < _MIN_BETWEEN_SECONDS:
        return None
    percent, kind = _activity_shares(times)[0]
    if between_percent < MIN_GPU_IDLE_PERCENT or percent <= (times.other_percent or 0):
        return None
    gpus = "The GPU" if len(record.gpus) == 1 else "The GPUs"
    whose = "its" if len(record.gpus) == 1 else "their"
    waited = (
        f"{gpus} waited for {format_percent(between_percent)} of the time between {whose} first "
        "and last work"
    )
    if kind in ("disk", "network"):
        return f"{waited}, for {wait_words(kind)}: use more loader workers or prefetch."
    if kind != _ON_CPU or not _used_only_one_cpu(record):
        return None
    is_small = (record.metrics.vcpu_size or _TWO_VCPU) < _TWO_VCPU
    return f"{waited}, for one CPU: use more workers{', and more vCPUs' if is_small else ''}."


def _copy_advice(record: Record) -> str | None:
    """A sentence if copies over PCIe took a notable part of the run."""
    duration_seconds = (record.metrics.duration_ms or 0) / MS_PER_SECOND
    if not duration_seconds:
        return None
    for gpu in record.gpus:
        seconds = gpu.copy_seconds or 0
        percent = _PERCENT * seconds / duration_seconds
        if seconds < _MIN_COPY_SECONDS or percent < MIN_GPU_IDLE_PERCENT:
            continue
        return (
            f"It copied over PCIe at {copy_rate_text(gpu)} GB/s for {format_percent(percent)} of "
            "the run, while no kernel ran: keep the data on the GPU, or copy while kernels run."
        )
    return None


def copy_rate_text(gpu: Gpu) -> str:
    """The largest rate of copies in GB/s, of what the link can move: ``59 of 63``."""
    rate = f"{(gpu.copy_bytes_per_second or 0) / _GB:.0f}"
    if gpu.link_bytes_per_second:
        rate += f" of {gpu.link_bytes_per_second / _GB:.0f}"
    return rate


def _size_advice(gpus: Sequence[Gpu], work: _GpuWork) -> str | None:
    """A sentence if the batch used less than a quarter of the memory and, while it worked, of the
    multiprocessors of each GPU.
    """
    if work.seconds < _MIN_SIZED_SECONDS or work.between_percent >= _MAX_STARVED_PERCENT:
        return None  # with its data in time it would work more
    most = all_known(
        _max_if_all_known([_active_percent_of_use(gpu) for gpu in gpus]),
        _max_if_all_known([_gpu_memory_percent(gpu) for gpu in gpus]),
    )
    if most is None:
        return None
    most_active, most_memory = most
    if max(most_active, most_memory) >= _SMALL_PERCENT:
        return None
    subject = "The GPU is" if len(gpus) == 1 else "The GPUs are"
    return (
        f"{subject} larger than needed (memory peak {format_percent(most_memory)}, SM active "
        f"{format_percent(most_active)} while it worked): use a smaller GPU or a larger batch size."
    )


def _max_if_all_known(values: Sequence[float | None]) -> float | None:
    """The largest; None if one is unknown."""
    return None if None in values else max_known(*values)


def _active_percent_of_use(gpu: Gpu) -> float | None:
    """The share of the multiprocessors that were active while the GPU worked."""
    active = gpu.sm_active_percent.avg
    used = gpu.utilization_percent.avg
    if active is None or not used:
        return None
    return min(_PERCENT * active / used, _PERCENT)


def _gpu_memory_percent(gpu: Gpu) -> float | None:
    used_mb = gpu.memory_used_mb.max
    if used_mb is None or not gpu.memory_size_mb:
        return None
    return _PERCENT * used_mb / gpu.memory_size_mb


def _first_work_seconds(record: Record) -> float | None:
    """When the work on the first GPU began."""
    first = known_values(gpu.first_used_seconds for gpu in record.gpus)
    return min(first, default=None)


def _gpu_work_of(gpus: Sequence[Gpu]) -> _GpuWork:
    """How long the GPUs worked; the idle share is weighted by the length of each GPU's work."""
    spans = [difference(gpu.last_used_seconds, gpu.first_used_seconds) for gpu in gpus]
    known_spans = known_values(spans)
    seconds = mean_known(*known_spans)
    if not seconds or len(known_spans) < len(spans):
        return _GpuWork(seconds=0, between_percent=0)
    between = mean_known(*(gpu.idle_between_seconds or 0.0 for gpu in gpus))
    return _GpuWork(seconds=seconds, between_percent=_PERCENT * (between or 0.0) / seconds)


def _activity_shares(times: TimeBreakdown) -> list[tuple[float, str]]:
    """The known parts of the time with their shares, the largest first."""
    return sorted(
        ((getattr(times, f"{kind}_percent") or 0.0, kind) for kind in _ACTIVITIES), reverse=True
    )


def _activity_in_words(kind: str, percent: float, times: TimeBreakdown, record: Record) -> str:
    """A part with its share and its longest target."""
    if kind == _ON_CPU and not _used_only_one_cpu(record):
        done = "used the CPU"
    else:
        done = _ACTIVITIES[kind]
    share = format_percent(percent)
    named = (
        target
        for target in times.waiting_for
        if target.kind == kind and target.target != kind and target.percent > 0
    )
    longest = max(named, key=attrgetter("percent"), default=None)
    if longest is None:
        return f"{done} ({share})"
    if longest.percent * 2 >= percent:
        return f"{done} ({share}: {longest.target})"
    return f"{done} ({share}, {format_percent(longest.percent)} for {longest.target})"


def _used_only_one_cpu(record: Record) -> bool:
    return (record.metrics.vcpu_used.p95 or 0) < _MAX_ONE_VCPU
