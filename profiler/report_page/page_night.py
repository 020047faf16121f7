"""The sentence about the last night at the top of the page, in parts: the page makes links of the
named runs.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from profiler.record.last_night import (
    MISSED,
    Night,
    last_night,
    night_beginning,
    night_of,
    night_parts,
    number_of_runs,
)
from profiler.record.units import format_usd
from profiler.report_page.page_rows import PageNight, PageNightPart, PageNotice, PageRun

_LOCAL = "LOCAL"


def page_night(
    runs: Sequence[PageRun], notices: Sequence[PageNotice], now: datetime
) -> PageNight | None:
    """The last night in the zone of ``now``, else the newest night with runs or missed due times.

    A page of local runs has today. None without a run that has a start.
    """
    is_day = all(run.launch == _LOCAL for run in runs)
    last = last_night(now, is_day=is_day)
    latest_ns = round((now + timedelta(days=1)).timestamp()) * NS_PER_SECOND
    missed = [
        notice for notice in notices if notice.outcome == MISSED and notice.came_late is not True
    ]
    starts_ms = [run.began for run in runs] + [notice.began for notice in missed]
    starts_ns = [
        began_ms * NS_PER_MS
        for began_ms in starts_ms
        if began_ms is not None and began_ms * NS_PER_MS <= latest_ns
    ]
    if not starts_ns:
        return None
    night = last
    if not any(last.start_ns <= start_ns < last.end_ns for start_ns in starts_ns):
        night = night_of(max(starts_ns), _zone_of(now), is_day=is_day)
    counts: dict[str, dict[str, int]] = {}
    newest: dict[tuple[str, str], int] = {}
    prices = []
    for position, run in _newest_first(runs, night):
        families = counts.setdefault(run.outcome, {})
        families[run.family] = families.get(run.family, 0) + 1
        newest.setdefault((run.outcome, run.family), position)
        if run.usd is not None:
            prices.append(float(run.usd))
    for notice in missed:
        if _is_in(night, notice.began):
            families = counts.setdefault(MISSED, {})
            families[notice.family] = families.get(notice.family, 0) + 1
    parts = []
    for part in night_parts(counts):
        parts.append(
            PageNightPart(
                text=part.text,
                families=[
                    (name, count, newest.get((part.outcome, name)))
                    for name, count in part.families.items()
                ],
                more=part.more_families or None,
            )
        )
    return PageNight(
        beginning=night_beginning(night, last),
        runs=number_of_runs(counts),
        parts=parts,
        usd=format_usd(sum(prices)) if prices else None,
    )


def _zone_of(now: datetime) -> tzinfo:
    if now.tzinfo is None:
        raise ValueError("The time has no zone.")
    return now.tzinfo


def _is_in(night: Night, began_ms: int | None) -> bool:
    return began_ms is not None and night.start_ns <= began_ms * NS_PER_MS < night.end_ns


def _newest_first(runs: Sequence[PageRun], night: Night) -> list[tuple[int, PageRun]]:
    """The runs of the night with their positions on the page, which are links' targets."""
    of_night = [(at, run) for at, run in enumerate(runs) if _is_in(night, run.began)]
    return sorted(of_night, key=lambda place: -(place[1].began or 0))
