"""The change of each family's duration, from the older to the newer half of its last runs.

It is one only by the rule of ``compare``: its interval excludes none.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from profiler.record.family import LAST_SUCCESSES
from profiler.record.unusual import MIN_RUNS, MIN_SHARE
from profiler.report_page.page_rows import PageRun
from profiler.runs.comparison.change_interval import median_change


def duration_changes(runs: Iterable[PageRun]) -> Mapping[str, float]:
    """The changes of the families that have one, in percent; the newest runs are first.

    The last successes of a family count, or its last runs if none succeeded.
    """
    changes: dict[str, float] = {}
    by_family: dict[str, list[PageRun]] = {}
    for run in runs:
        if run.ms is not None and run.began is not None and run.outcome != "running":
            by_family.setdefault(run.family, []).append(run)
    durations_ms = {family: _durations_ms(some) for family, some in by_family.items()}
    # The interval of as many runs as before takes less time.
    for family, newest_first in sorted(durations_ms.items(), key=lambda item: len(item[1])):
        half = len(newest_first) // 2
        if half < MIN_RUNS:
            continue
        change = median_change(newest_first[-half:], newest_first[:half])
        percent = change.change_percent
        if change.is_seen and percent is not None and abs(percent) >= 100 * MIN_SHARE:
            changes[family] = percent
    return changes


def _durations_ms(runs: Sequence[PageRun]) -> list[float]:
    succeeded = [run for run in runs if run.outcome == "success"]
    newest = islice(succeeded or runs, LAST_SUCCESSES)
    return [run.ms for run in newest if run.ms is not None]
