"""Whether the next runs of a schedule will probably overlap, by how long they usually take."""

from itertools import islice, pairwise

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.units import format_duration
from profiler.schedules.due_times import due_times
from profiler.schedules.schedule_model import Schedule

_MAX_DUE_TIMES = 50
_AHEAD_NS = 366 * 86_400 * NS_PER_SECOND


def overlap_ahead(schedule: Schedule, now_ns: int, median_ms: float, p95_ms: float) -> str | None:
    """A clause such as ``takes 1h 10m, due every 1h 00m``; None if the next runs will probably not overlap.

    Args:
        schedule: The schedule.
        now_ns: The time from which on its due times count.
        median_ms: The median of the durations of past successes.
        p95_ms: Their 95th percentile.

    Raises:
        ScheduleExpressionError: The expression or the time zone cannot be read.
    """
    dues = islice(due_times(schedule, now_ns, now_ns + _AHEAD_NS), _MAX_DUE_TIMES)
    gaps_ms = [(later_ns - due_ns) / NS_PER_MS for due_ns, later_ns in pairwise(dues)]
    if not gaps_ms or p95_ms <= min(gaps_ms):
        return None
    shortest_ms = min(gaps_ms)
    takes = "takes" if median_ms > shortest_ms else "takes up to"
    due = "due every" if shortest_ms == max(gaps_ms) else "due again after"
    duration_ms = median_ms if median_ms > shortest_ms else p95_ms
    return f"{takes} {format_duration(duration_ms)}, {due} {format_duration(shortest_ms)}"
