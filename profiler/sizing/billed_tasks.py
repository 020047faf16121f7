"""The billed time of tasks, and what it would be if their runs took longer."""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from profiler.core.optional_math import first_known
from profiler.core.timestamps import NS_PER_MS
from profiler.record.record_model import Record
from profiler.record.units import billed_time_ms


class BilledRun(NamedTuple):
    """The billed time of a run, and its parts: until the start, and after it, which alone
    depends on the size.
    """

    was_ms: float
    before_ms: float
    duration_ms: float


# The runs of each task whose billed time is known.
BilledTasks = tuple[tuple[BilledRun, ...], ...]


def collect_billed_tasks(records: Iterable[Record]) -> BilledTasks:
    """Collect the billed times of runs by task. A run of unknown duration changes as a whole."""
    tasks: dict[str, list[BilledRun]] = {}
    for record in records:
        metrics = record.metrics
        billed = metrics.billed_duration_ms
        init_ms = metrics.init_duration_ms
        if billed:
            duration_ms = first_known(metrics.duration_ms, billed)
            before_ms = first_known(init_ms, max(billed - duration_ms, 0))
            tasks.setdefault(record.task_id, []).append(BilledRun(billed, before_ms, duration_ms))
    return tuple(map(tuple, tasks.values()))


@lru_cache(maxsize=64)
def mean_billed_ms(tasks: BilledTasks, factor: float) -> float | None:
    """The mean over the tasks if each run took ``factor`` times as long; None if no billed time
    is known.
    """

    def scaled_time_ms(run: BilledRun) -> float:
        until_ns = round((run.before_ms + run.duration_ms * factor) * NS_PER_MS)
        if factor == 1:
            return run.was_ms
        return billed_time_ms(0, until_ns) or run.was_ms

    if not tasks:
        return None
    return round(math.fsum(max(map(scaled_time_ms, runs)) for runs in tasks) / len(tasks), 3)
