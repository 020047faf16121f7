"""The tasks of a family in a month, and where their number is from."""

from profiler.core.timestamps import DAYS_PER_MONTH, NS_PER_DAY
from profiler.record.family import Month
from profiler.sizing.evidence import TasksRead

# One task in a longer time is no nightly one.
_MIN_COVERED_DAYS = 2


def estimated_month(read: TasksRead, due_a_month: float | None, covered_days: float) -> Month:
    """The tasks per month where the window is too short to measure them.

    ``due_a_month``: of the family's schedules; None: they are not known. ``covered_days``: the
    source has all tasks of so many days. A window shorter than a day may hold all tasks of the
    day, so that no more of them are assumed.
    """
    if due_a_month is not None:
        return Month(runs=due_a_month, basis="schedule")
    days = read.window_ns / NS_PER_DAY
    per_day: float = read.tasks
    if read.tasks > 1 and days > 0:
        per_day = min(read.tasks, (read.tasks - 1) / days)
    elif read.tasks <= 1 and covered_days < _MIN_COVERED_DAYS:
        return Month(runs=DAYS_PER_MONTH, basis="nightly")
    elif read.tasks <= 1:
        per_day = 1 / covered_days
    return Month(runs=per_day * DAYS_PER_MONTH, basis="window")
