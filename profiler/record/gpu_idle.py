"""What the batch did while its GPUs were idle, in a sentence, and advice on GPUs that are used too little."""

from collections.abc import Iterator

from profiler.core.optional_math import max_known
from profiler.record.activity_model import TimeBreakdown
from profiler.record.hardware import WHOLE_INSTANCE, idle_advice
from profiler.record.record_model import Distribution, Gpu, Record
from profiler.record.units import format_gpu_hours, format_percent, format_usd
from profiler.record.worth_a_word import MIN_GPU_IDLE_PERCENT, MIN_WAIT_PERCENT, PAST_WAITS, wait_in_words

_ON_CPU = "on_cpu"
_ACTIVITIES = {**PAST_WAITS, _ON_CPU: "used one CPU", "disk": "read files"}
_MAX_ACTIVITIES = 3
_MIN_SHOWN_PERCENT = 1
# A run that used fewer vCPUs for 95 % of its time worked on one of them.
_MAX_ONE_VCPU, _TWO_VCPU = 1.5, 2
_SMALL_PERCENT, _PERCENT = 25, 100
_NO_DISTRIBUTION = Distribution()


def gpu_idle_sentence(record: Record) -> str | None:
    """``the GPU was idle 63 % of the run; meanwhile the batch read files (48 %: /data/train.tar)``.

    None if the GPUs were not idle, or if that is unknown. The first half alone if the processes were not seen.
    """
    idle = record.gpu_idle
    if idle is None or idle.percent < _MIN_SHOWN_PERCENT:
        return None
    several = len(record.gpus) != 1  # a record that was too long has none
    whose = " of the instance" if record.gpu_scope == WHOLE_INSTANCE else ""
    gpus = f"the {len(record.gpus) or ''} GPUs{whose} were".replace("  ", " ") if several else f"the GPU{whose} was"
    text = f"{gpus} idle {format_percent(min(idle.percent, _PERCENT))} of the run{' on average' if several else ''}"
    times = idle.waiting_for or TimeBreakdown()
    largest = [activity for activity in _activities(times)[:_MAX_ACTIVITIES] if activity[0] >= MIN_WAIT_PERCENT]
    if not largest:
        return text
    *others, last = (_in_words(kind, percent, times, record) for percent, kind in largest)
    listed = f"{', '.join(others)} and {last}" if others else last
    return f"{text}; {'while all were idle,' if several else 'meanwhile'} the batch {listed}"


def gpu_idle_texts(record: Record) -> Iterator[str]:
    """The sentence, and ``0.63 idle GPU-hours ($1.27)``; nothing if the GPUs were not idle, or if that is unknown."""
    sentence, idle = gpu_idle_sentence(record), record.gpu_idle
    if sentence is not None and idle is not None:
        yield sentence
        yield format_gpu_hours(idle.gpu_hours) + ("" if idle.usd is None else f" ({format_usd(idle.usd)})")


def gpu_advice(record: Record) -> Iterator[str]:
    """Sentences: about GPUs that were never used, else about idle time, and about GPUs that are too large."""
    never_used = idle_advice(record.gpus)
    texts = (never_used,) if never_used else (_data_advice(record), _size_advice(record.gpus))
    yield from (text for text in texts if text is not None)


def _activities(times: TimeBreakdown) -> list[tuple[float, str]]:
    """The known parts of the time with their shares, the largest first."""
    return sorted(((getattr(times, f"{kind}_percent") or 0.0, kind) for kind in _ACTIVITIES), reverse=True)


def _in_words(kind: str, percent: float, times: TimeBreakdown, record: Record) -> str:
    """A part with its share and its longest target."""
    done = "used the CPU" if kind == _ON_CPU and not _is_one_cpu(record) else _ACTIVITIES[kind]
    share = format_percent(percent)
    targets = [one for one in times.waiting_for if one.kind == kind != one.target and one.percent > 0]
    if not targets:
        return f"{done} ({share})"
    longest = max(targets, key=lambda target: target.percent)
    if longest.percent * 2 >= percent:
        return f"{done} ({share}: {longest.target})"
    return f"{done} ({share}, {format_percent(longest.percent)} for {longest.target})"


def _is_one_cpu(record: Record) -> bool:
    p95 = (record.metrics.vcpu_used or _NO_DISTRIBUTION).p95
    return p95 is None or p95 < _MAX_ONE_VCPU


def _data_advice(record: Record) -> str | None:
    """A sentence on what the GPUs waited for, if the largest part of their idle time shows that."""
    idle = record.gpu_idle
    if idle is None or idle.percent < MIN_GPU_IDLE_PERCENT or idle.waiting_for is None:
        return None
    percent, kind = _activities(idle.waiting_for)[0]
    if percent <= (idle.waiting_for.other_percent or 0):
        return None
    subject = "The GPU waited for" if len(record.gpus) == 1 else "The GPUs waited for"
    if kind in ("disk", "network"):
        return f"{subject} {wait_in_words(kind)}: use more loader workers or prefetch."
    if kind != _ON_CPU or not _is_one_cpu(record):
        return None
    is_small = (record.metrics.vcpu_size or _TWO_VCPU) < _TWO_VCPU
    return f"{subject} one CPU: use more workers{', and more vCPUs' if is_small else ''}."


def _size_advice(gpus: tuple[Gpu, ...]) -> str | None:
    """A sentence if the batch used less than a quarter of the memory and of the multiprocessors of each GPU."""
    use, name = [(gpu.sm_active_percent or _NO_DISTRIBUTION).avg for gpu in gpus], "SM active"
    if None in use:
        use, name = [(gpu.utilization_percent or _NO_DISTRIBUTION).avg for gpu in gpus], "utilization"
    memory = [_memory_percent(gpu) for gpu in gpus]
    most_use, most_memory = max_known(*use), max_known(*memory)
    if most_use is None or most_memory is None or None in (*use, *memory):
        return None
    if max(most_use, most_memory) >= _SMALL_PERCENT:
        return None
    subject = "The GPU is" if len(gpus) == 1 else "The GPUs are"
    return (
        f"{subject} larger than needed (memory peak {format_percent(most_memory)}, {name} {format_percent(most_use)}): "
        "use a smaller GPU or a larger batch size."
    )


def _memory_percent(gpu: Gpu) -> float | None:
    used_mb = (gpu.memory_used_mb or _NO_DISTRIBUTION).max
    return None if used_mb is None or not gpu.memory_size_mb else _PERCENT * used_mb / gpu.memory_size_mb
