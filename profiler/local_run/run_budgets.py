"""The budgets of ``task-profiler run``: which of them the runs have exceeded."""

from collections.abc import Sequence

from profiler.core.text import listed
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.record_model import Metrics
from profiler.record.units import format_duration, format_memory


def failed_budgets(
    runs: Sequence[Metrics],
    *,
    memory_mb: float | None,
    duration_ms: float | None,
    cpu_seconds: float | None,
    memory_bounds_mb: Sequence[float | None],
) -> tuple[str, ...]:
    """A sentence about the budgets that the successful runs exceeded, and one about those that
    could not be checked.

    A run whose memory is unknown has not exceeded a budget above its bound in ``memory_bounds_mb``.
    """
    memory: list[float | None] = []
    for run, bound_mb in zip(runs, memory_bounds_mb, strict=True):
        used_mb = run.max_memory_used_mb
        if used_mb is None and bound_mb is not None and bound_mb <= (memory_mb or 0):
            used_mb = bound_mb
        memory.append(used_mb)
    durations = [run.duration_ms for run in runs]
    cpu_ms = [None if run.cpu_seconds is None else run.cpu_seconds * MS_PER_SECOND for run in runs]
    cpu_limit_ms = None if cpu_seconds is None else cpu_seconds * MS_PER_SECOND
    exceeded = set[int]()
    texts = list[str]()
    unknown = set[int]()
    names = list[str]()
    for name, values, limit, write in (
        (
            "memory",
            memory,
            memory_mb,
            lambda size_mb: (format_memory(size_mb), f"{_exact(size_mb)} MB"),
        ),
        ("duration", durations, duration_ms, _write_duration),
        ("CPU time", cpu_ms, cpu_limit_ms, _write_duration),
    ):
        if limit is None:
            continue
        known = {number: value for number, value in enumerate(values) if value is not None}
        if len(known) < len(runs):
            names.append(name)
            unknown.update(set(range(len(runs))) - known.keys())
        if known and max(known.values()) > limit:
            pairs = tuple(zip(write(max(known.values())), write(limit), strict=True))
            value_text, limit_text = next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
            texts.append(f"{name} {value_text} (limit {limit_text})")
            exceeded.update(number for number, value in known.items() if value > limit)
    sentences = []
    if exceeded:
        subject = "The run" if len(runs) == 1 else f"{len(exceeded)} of {len(runs)} runs"
        sentences.append(f"{subject} exceeded the budget: {listed(texts)}.")
    if unknown:
        of_runs = "the run" if len(runs) == 1 else f"{len(unknown)} of {len(runs)} runs"
        sentences.append(
            f"The {listed(names)} of {of_runs} could not be measured, and so the budget could not "
            "be checked: omit this budget if the command is always this short."
        )
    return tuple(sentences)


def _write_duration(milliseconds: float) -> tuple[str, str]:
    is_short = milliseconds < MS_PER_SECOND
    if is_short:
        exact = f"{_exact(milliseconds)} ms"
    else:
        exact = f"{_exact(milliseconds / MS_PER_SECOND)} s"
    return format_duration(milliseconds), exact


def _exact(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
