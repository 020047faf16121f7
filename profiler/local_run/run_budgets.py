"""The budgets of ``task-profiler run``: which of them the runs have exceeded."""

import math
from collections.abc import Callable, Sequence

from msgspec import Struct

from profiler.core.optional_math import first_known, known_values
from profiler.core.text import listed
from profiler.core.timestamps import MS_PER_SECOND
from profiler.record.fact_list import GPU_IDLE, GPU_MEMORY_PEAK, measured_number, number_of_row
from profiler.record.measured import Approximately, AtLeast, Measured
from profiler.record.record_model import Metrics, Record
from profiler.record.units import format_duration, format_memory, format_percent

_GPU_MEMORY = "GPU memory"
_GPU_IDLE = "GPU idle time"


class _Budget(Struct, frozen=True):
    """A limit, and its value of each run; None is unknown.

    ``write`` writes a value as usual, and exactly.
    """

    name: str
    limit: float
    values: Sequence[float | None]
    write: Callable[[float], tuple[str, str]]

    @property
    def unknown_runs(self) -> set[int]:
        """The numbers of the runs whose value is not known."""
        return {number for number, value in enumerate(self.values) if value is None}

    @property
    def exceeding_runs(self) -> set[int]:
        """The numbers of the runs above the limit."""
        return {
            number
            for number, value in enumerate(self.values)
            if first_known(value, -math.inf) > self.limit
        }

    def largest_and_limit_text(self) -> str:
        """The largest value and the limit: exactly if they are written the same."""
        largest = max(known_values(self.values))
        value_text, exact_value_text = self.write(largest)
        limit_text, exact_limit_text = self.write(self.limit)
        if value_text == limit_text:
            return f"{self.name} {exact_value_text} (limit {exact_limit_text})"
        return f"{self.name} {value_text} (limit {limit_text})"


class GpuUse(Struct, frozen=True):
    """The largest memory peak of a run's GPUs, and their idle time."""

    memory_mb: float | None
    idle: Measured

    def idle_percent(self, limit: float) -> float | None:
        """The idle time; None if it is an estimate, or within the limit only as far as seen."""
        is_open = isinstance(self.idle, AtLeast) and self.idle.value <= limit
        is_open = is_open or isinstance(self.idle, Approximately)
        return None if is_open else self.idle.value


def gpu_use(record: Record) -> GpuUse:
    """What the budgets of GPUs are compared with; nothing where it may be another program's."""
    return GpuUse(number_of_row(GPU_MEMORY_PEAK, record), measured_number(GPU_IDLE, record))


def failed_budgets(
    runs: Sequence[Metrics],
    *,
    memory_mb: float | None,
    duration_ms: float | None,
    cpu_seconds: float | None,
    memory_bounds_mb: Sequence[float | None],
    gpu_memory_mb: float | None = None,
    gpu_idle_percent: float | None = None,
    gpu_uses: Sequence[GpuUse] = (),
) -> tuple[str, ...]:
    """A sentence about the budgets that the successful runs exceeded, and one about those that
    could not be checked.

    A run whose memory is unknown has not exceeded a budget above its bound in ``memory_bounds_mb``.
    """
    memory = _memory_values(runs, memory_bounds_mb, memory_mb or 0)
    gpu_idle = [use.idle_percent(gpu_idle_percent or 0) for use in gpu_uses]
    candidates = (
        ("memory", memory_mb, memory, _write_memory),
        ("duration", duration_ms, [run.duration_ms for run in runs], _write_duration),
        ("CPU time", cpu_seconds, [run.cpu_seconds for run in runs], _write_seconds),
        (_GPU_MEMORY, gpu_memory_mb, [use.memory_mb for use in gpu_uses], _write_memory),
        (_GPU_IDLE, gpu_idle_percent, gpu_idle, _write_percent),
    )
    budgets: list[_Budget] = []
    for name, limit, values, write in candidates:
        if limit is not None:
            budgets.append(_Budget(name, limit, values, write))
    exceeded: set[int] = set()
    unknown: set[int] = set()
    texts: list[str] = []
    names: list[str] = []
    for budget in budgets:
        if budget.unknown_runs:
            unknown |= budget.unknown_runs
            names.append(budget.name)
        if budget.exceeding_runs:
            exceeded |= budget.exceeding_runs
            texts.append(budget.largest_and_limit_text())
    sentences: list[str] = []
    if exceeded:
        subject = "The run" if len(runs) == 1 else f"{len(exceeded)} of {len(runs)} runs"
        sentences.append(f"{subject} exceeded the budget: {listed(texts)}.")
    if unknown:
        of_runs = "the run" if len(runs) == 1 else f"{len(unknown)} of {len(runs)} runs"
        remedy = "omit this budget if the command is always this short."
        if {_GPU_MEMORY, _GPU_IDLE} & {*names}:
            remedy = (
                "it needs a GPU that can be read, and its idle time one that is not shared and is "
                "read throughout."
            )
        sentences.append(
            f"The {listed(names)} of {of_runs} could not be measured, and so the budget could not "
            f"be checked: {remedy}"
        )
    return tuple(sentences)


def _memory_values(
    runs: Sequence[Metrics], bounds_mb: Sequence[float | None], limit_mb: float
) -> list[float | None]:
    """The memory peaks of the runs in MB, or their huge pages if these are more; of a run without a
    peak, its bound if that is within the limit.
    """
    values: list[float | None] = []
    for run, bound_mb in zip(runs, bounds_mb, strict=True):
        value_mb = run.max_memory_used_mb
        if value_mb is not None:
            value_mb = max(value_mb, run.memory_huge_pages_mb.max or 0)
        if value_mb is None and bound_mb is not None and bound_mb <= limit_mb:
            value_mb = bound_mb
        values.append(value_mb)
    return values


def _write_memory(size_mb: float) -> tuple[str, str]:
    return format_memory(size_mb), f"{_exact_text(size_mb)} MB"


def _write_percent(percent: float) -> tuple[str, str]:
    return format_percent(percent), f"{_exact_text(percent)} %"


def _write_seconds(seconds: float) -> tuple[str, str]:
    return _write_duration(seconds * MS_PER_SECOND)


def _write_duration(milliseconds: float) -> tuple[str, str]:
    """The duration as it is usually written, and exactly."""
    is_short = milliseconds < MS_PER_SECOND
    if is_short:
        exact = f"{_exact_text(milliseconds)} ms"
    else:
        exact = f"{_exact_text(milliseconds / MS_PER_SECOND)} s"
    return format_duration(milliseconds), exact


def _exact_text(value: float) -> str:
    return f"{value:.6f}".rstrip("0").rstrip(".")
