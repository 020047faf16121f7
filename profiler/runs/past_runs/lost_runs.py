"""When a run that only wrote checkpoints counts as lost."""

from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.record_model import Report

# The monitor writes a checkpoint a minute. Without one for this long, the task was lost or its
# report is elsewhere.
MAX_SILENCE_NS = 600 * NS_PER_SECOND
USUAL_PERIOD_NS = 60 * NS_PER_SECOND
LATE_PERIODS = 2.5
# No writer uses this word, so filters and pages count such a run as unknown.
LOST = "lost"


def checkpoint_period_ns(report: Report) -> int:
    """The time between two checkpoints, as the newest one shows it."""
    interval = report.record.interval
    started_ns = interval.started_ns
    finished_ns = interval.finished_ns
    if started_ns is None or finished_ns is None:
        return USUAL_PERIOD_NS
    return max(finished_ns - started_ns, USUAL_PERIOD_NS)


def is_silent(report: Report, now_ns: int) -> bool:
    """Whether the batch of this newest checkpoint would have written another one by now."""
    silence_ns = now_ns - (report.time_ns or 0)
    return silence_ns >= max(MAX_SILENCE_NS, LATE_PERIODS * checkpoint_period_ns(report))
