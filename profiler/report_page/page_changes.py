"""The change of each family's duration, from the older to the newer half of its nights.

It is one only by the rule of ``compare``: its interval excludes none. The interval takes
independent values. Runs of one night are none: a workflow has its small inputs first, or last. So
each night counts once, with the median of its runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from itertools import islice
from statistics import median

from profiler.core.timestamps import NS_PER_MS, local_time
from profiler.record.family_statistics import LAST_SUCCESSES
from profiler.record.unusual import MIN_RUNS, MIN_SHARE
from profiler.report_page.page_rows import PageRun
from profiler.runs.comparison.change_interval import median_change

# A night lasts from noon to noon.
_HALF_DAY = timedelta(hours=12)


def duration_changes(runs: Iterable[PageRun]) -> Mapping[str, float]:
    """The changes of the families that have one, in percent; the newest runs are first.

    The nights of the last successes of a family count, or of its last runs if none succeeded.
    """
    by_family: dict[str, list[PageRun]] = {}
    for run in runs:
        if run.ms is not None and run.began is not None and run.outcome != "running":
            by_family.setdefault(run.family, []).append(run)
    nights_ms = {family: _median_ms_by_night(some) for family, some in by_family.items()}
    changes: dict[str, float] = {}
    # The interval of as many nights as before takes less time.
    for family, newest_first in sorted(nights_ms.items(), key=lambda item: len(item[1])):
        half = len(newest_first) // 2
        if half < MIN_RUNS:
            continue
        change = median_change(newest_first[-half:], newest_first[:half])
        percent = change.change_percent
        if change.is_seen and percent is not None and abs(percent) >= 100 * MIN_SHARE:
            changes[family] = percent
    return changes


def _median_ms_by_night(runs: Sequence[PageRun]) -> list[float]:
    """The median duration of each of the newest nights, the newest first."""
    succeeded = [run for run in runs if run.outcome == "success"]
    nights: dict[date, list[float]] = {}
    for run in succeeded or runs:
        if run.ms is not None and run.began is not None:
            night = (local_time(run.began * NS_PER_MS) - _HALF_DAY).date()
            nights.setdefault(night, []).append(run.ms)
    return [median(durations_ms) for durations_ms in islice(nights.values(), LAST_SUCCESSES)]
