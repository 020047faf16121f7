"""One line of advice for the end of a run. Each follows from numbers of the record."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from profiler.cli.charts.series_curve import NEAR_LIMIT
from profiler.cli.styled_text import Glyphs
from profiler.record.activity_model import WaitTarget
from profiler.record.hardware import idle_advice
from profiler.record.record_model import Metrics, Record, known_status
from profiler.record.units import format_count, format_duration, format_memory, format_task_size, format_vcpu

_PERCENT = 100
_MIN_SATURATED_PERCENT = 30
_MIN_WAIT_PERCENT = 30
_MIN_CPU_WAIT_PERCENT, _MIN_CPU_WAIT_SECONDS = 10, 0.1
_ONE_CPU = (0.9, 1.05)
_MS_PER_SECOND = 1000
# A shorter run says little about a size.
_MIN_SIZED_MS = 1000
_OTHER = "other"


class NextStep(Struct, frozen=True):
    """What to do. ``names_wait``: the longest wait is named in it."""

    text: str
    names_wait: bool = False


def next_step(record: Record, waits: Sequence[WaitTarget], glyphs: Glyphs, recommend: str) -> NextStep | None:
    """The most useful advice that the record supports; None if there is none.

    ``recommend`` is the command for a size; "" without one.
    """
    metrics = record.metrics
    if record.likely_out_of_memory:
        return NextStep(_more_memory(metrics))
    if known_status(record) != "success":
        return None
    texts: tuple[Callable[[], str | None], ...] = (
        lambda: idle_advice(record.gpus),
        lambda: _near_limit(metrics),
        lambda: _saturated(metrics, glyphs),
        lambda: _waited_for_cpu(metrics),
    )
    for text in texts:
        found = text()
        if found is not None:
            return NextStep(found)
    wait = next((one for one in waits if one.kind != _OTHER and one.percent >= _MIN_WAIT_PERCENT), None)
    if wait is not None:
        return NextStep(
            f"{min(wait.percent, _PERCENT):.0f} % of the time it waited for {wait.target} ({wait.kind}): more CPU or "
            "memory would not help there.",
            names_wait=True,
        )
    rest = _one_cpu(metrics) or _enough(record, recommend)
    return None if rest is None else NextStep(rest)


def _more_memory(metrics: Metrics) -> str:
    limit = f"than {format_memory(metrics.memory_size_mb)} " if metrics.memory_size_mb else ""
    return f"give it more memory {limit}or process less data at a time."


def _near_limit(metrics: Metrics) -> str | None:
    peak_mb, size_mb = metrics.max_memory_used_mb, metrics.memory_size_mb
    if peak_mb is None or not size_mb or peak_mb < NEAR_LIMIT * size_mb:
        return None
    left = f"only {format_memory(size_mb - peak_mb)} of" if peak_mb < size_mb else "no"
    return f"{left} memory was left: with a little more data it would be killed."


def _saturated(metrics: Metrics, glyphs: Glyphs) -> str | None:
    percent, vcpu, threads = metrics.vcpu_saturated_percent, metrics.vcpu_size, metrics.max_pids
    if percent is None or not vcpu or percent < _MIN_SATURATED_PERCENT:
        return None
    used = f"it used all of its CPU ({format_vcpu(vcpu)}) for {min(percent, _PERCENT):.0f} % of the time"
    if threads is not None and 0 < threads <= vcpu:
        return f"{used}, but with at most {format_count(threads, 'thread')}: more CPUs would hardly help."
    least = 1 - min(percent, _PERCENT) / _PERCENT / 2
    return f"{used}: with {format_vcpu(2 * vcpu)} it would take {least:.2g} to 1{glyphs.times} as long."


def _waited_for_cpu(metrics: Metrics) -> str | None:
    percent, seconds, duration_ms = metrics.cpu_wait_percent, metrics.cpu_wait_seconds, metrics.duration_ms
    if percent is None or seconds is None or not duration_ms or percent < _MIN_CPU_WAIT_PERCENT:
        return None
    waited_ms = seconds * _MS_PER_SECOND
    if seconds < _MIN_CPU_WAIT_SECONDS or waited_ms < duration_ms * _MIN_CPU_WAIT_PERCENT / _PERCENT:
        return None
    waited = f"its threads waited {format_duration(waited_ms)} in total for a CPU"
    if metrics.max_pids and metrics.vcpu_size and metrics.max_pids > metrics.vcpu_size:
        threads = format_count(metrics.max_pids, "thread")
        return f"{waited}: up to {threads} shared {format_vcpu(metrics.vcpu_size)}, perhaps with other programs."
    return f"{waited}: other programs used the CPUs, or it works in short bursts."


def _one_cpu(metrics: Metrics) -> str | None:
    used, size = metrics.vcpu_used, metrics.vcpu_size
    least, most = _ONE_CPU
    if used is None or used.avg is None or used.p95 is None or not size or size < 2:  # noqa: PLR2004
        return None
    if used.avg < least or used.p95 > most:
        return None
    return f"it kept one of {size:g} CPUs busy: more CPUs help only if it works in parallel."


def _enough(record: Record, recommend: str) -> str | None:
    """The size that the run would have needed as a task; a run that is one has a size to compare with."""
    recommended = record.recommendation
    if recommended is None or record.task_size is not None or (record.metrics.duration_ms or 0) < _MIN_SIZED_MS:
        return None
    size = format_task_size(recommended.vcpu, recommended.memory_mb)
    return size and f"{size} would have been enough{recommend and f' ({recommend})'}."
