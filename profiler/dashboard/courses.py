"""The courses of the runs as columns of numbers, as many as a page can bear. Pure."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from profiler.dashboard.embedded import round_significant, round_to, to_script_json
from profiler.dashboard.runs import Run
from profiler.dashboard.series import BYTES_PER_MB, Step, downsample
from profiler.record import Number

MAX_STEPS = 100_000
MAX_STEPS_PER_RUN = 600
MIN_STEPS_PER_RUN = 60
_MS_PER_SECOND = 1000

Column = list[Number | None]


def steps_per_run(runs: int) -> int:
    """How finely the course of a run is shown among so many."""
    return max(MIN_STEPS_PER_RUN, min(MAX_STEPS_PER_RUN, MAX_STEPS // max(runs, 1)))


def series_members(runs: Sequence[Run], max_bytes: int) -> Iterator[str]:
    """JSON members: by the run's place in the list, the columns of its course; those that do not fit are left out."""
    of_each = steps_per_run(sum(1 for run in runs if run.steps))
    left_steps, left_bytes = MAX_STEPS, max_bytes
    for place, run in enumerate(runs):
        steps = downsample(run.steps, of_each)
        numbers = columns(steps)
        if not numbers:
            continue
        text = f'"{place}":{to_script_json(numbers)},'
        if len(steps) > left_steps or len(text) > left_bytes:
            continue
        left_steps -= len(steps)
        left_bytes -= len(text)
        yield text[:-1]


def columns(steps: Sequence[Step]) -> dict[str, Column]:
    """Elapsed milliseconds and what was measured up to each; empty if nothing was.

    vCPU, MB of memory, MB read and written a second, percent and MB of the GPUs. A column without
    a number is left out.
    """
    measured: dict[str, Column] = {
        "vcpu": [round_to(step.vcpu_used) for step in steps],
        "mb": [round_to(step.memory_used_mb, digits=1) for step in steps],
        "read": list(_rates(steps, lambda step: step.block_read_bytes)),
        "written": list(_rates(steps, lambda step: step.block_write_bytes)),
        "gpu": [round_to(step.gpu_percent, digits=1) for step in steps],
        "gpuMb": [round_to(step.gpu_memory_mb, digits=0) for step in steps],
    }
    known = {name: column for name, column in measured.items() if any(value is not None for value in column)}
    return {"ms": [step.elapsed_ms for step in steps], **known} if known else {}


def _rates(steps: Iterable[Step], of: Callable[[Step], int | None]) -> Iterator[Number | None]:
    """MB a second, over the time since the bytes were last known."""
    known_at_ms = 0
    for step in steps:
        grown_bytes, length_ms = of(step), step.elapsed_ms - known_at_ms
        if grown_bytes is None or length_ms <= 0:
            yield None
            continue
        known_at_ms = step.elapsed_ms
        yield round_significant(grown_bytes / BYTES_PER_MB * _MS_PER_SECOND / length_ms)
