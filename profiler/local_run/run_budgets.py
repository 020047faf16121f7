"""The budgets of ``task-profiler run``: which of them the runs have exceeded."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from profiler.record.record_model import Metrics
from profiler.record.units import format_duration, format_memory

_MS_PER_SECOND = 1000


class _Check(Struct, frozen=True, kw_only=True):
    """The check of one budget: the runs that exceeded it, and the runs whose value is unknown."""

    name: str
    text: str
    exceeded: frozenset[int]
    unknown: frozenset[int]


def failed_budgets(
    runs: Sequence[Metrics],
    *,
    memory_mb: float | None,
    duration_ms: float | None,
    cpu_seconds: float | None,
    memory_bounds_mb: Sequence[float | None],
) -> tuple[str, ...]:
    """Check the budgets of runs that succeeded; None: without a budget.

    A run whose memory is unknown has not exceeded a budget above its bound in ``memory_bounds_mb``.

    Returns at most two sentences: one with all budgets that were exceeded, and one with those that could not be
    checked.
    """
    memory = [
        bound_mb
        if run.max_memory_used_mb is None and bound_mb is not None and bound_mb <= (memory_mb or 0)
        else run.max_memory_used_mb
        for run, bound_mb in zip(runs, memory_bounds_mb, strict=True)
    ]
    durations = [run.duration_ms for run in runs]
    cpu_ms = [None if run.cpu_seconds is None else run.cpu_seconds * _MS_PER_SECOND for run in runs]
    cpu_limit_ms = None if cpu_seconds is None else cpu_seconds * _MS_PER_SECOND
    checks = (
        *_check("memory", memory, memory_mb, _write_memory),
        *_check("duration", durations, duration_ms, _write_duration),
        *_check("CPU time", cpu_ms, cpu_limit_ms, _write_duration),
    )
    sentences = []
    exceeded = frozenset().union(*(check.exceeded for check in checks))
    if exceeded:
        subject = "The run" if len(runs) == 1 else f"{len(exceeded)} of {len(runs)} runs"
        sentences.append(f"{subject} exceeded the budget: {_list(check.text for check in checks if check.exceeded)}.")
    unknown = frozenset().union(*(check.unknown for check in checks))
    if unknown:
        names = _list(check.name for check in checks if check.unknown)
        of_runs = "the run" if len(runs) == 1 else f"{len(unknown)} of {len(runs)} runs"
        sentences.append(
            f"The {names} of {of_runs} could not be measured, and so the budget could not be checked: omit this budget "
            "if the command is always this short."
        )
    return tuple(sentences)


def _check(
    name: str, values: Sequence[float | None], limit: float | None, write: Callable[[float], tuple[str, str]]
) -> Iterable[_Check]:
    """Check one budget, if it is given. ``write`` returns the rounded and the exact text of a value."""
    if limit is None:
        return
    known = {number: value for number, value in enumerate(values) if value is not None}
    texts = tuple(zip(write(max(known.values(), default=0.0)), write(limit), strict=True))
    value_text, limit_text = next((pair for pair in texts if pair[0] != pair[1]), texts[-1])
    yield _Check(
        name=name,
        text=f"{name} {value_text} (limit {limit_text})",
        exceeded=frozenset(number for number, value in known.items() if value > limit),
        unknown=frozenset(range(len(values))) - known.keys(),
    )


def _write_memory(megabytes: float) -> tuple[str, str]:
    return format_memory(megabytes), f"{_exact(megabytes)} MB"


def _write_duration(milliseconds: float) -> tuple[str, str]:
    is_short = milliseconds < _MS_PER_SECOND
    exact = f"{_exact(milliseconds)} ms" if is_short else f"{_exact(milliseconds / _MS_PER_SECOND)} s"
    return format_duration(milliseconds), exact


def _exact(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")


def _list(texts: Iterable[str]) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last
