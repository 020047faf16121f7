"""The sentence with which the report page begins: the last night of all runs, whatever the filters.

It has the words of the morning message, which has the runs that became known since the last one. A
page of local runs has days instead of nights.
"""

from collections.abc import Collection, Iterator, Sequence
from datetime import timedelta

from msgspec import Struct

from profiler.core.timestamps import NS_PER_DAY, NS_PER_MS, format_local, local_time, local_zone
from profiler.record.fact_list import COST
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.last_night import (
    MIDNIGHT,
    MISSED,
    Night,
    NightTextPiece,
    count_runs,
    last_night,
    night_text_pieces,
    severity_rank,
)
from profiler.record.measured import Measured, measured_from, total_of_known
from profiler.report_page.page_rows import PageNight, PageNightText, PageNotice, PageRun


class _Calendar(Struct, frozen=True, kw_only=True):
    """How time is divided: into nights, or into the days of a developer's machine."""

    has_days: bool

    def newest_night(self, now_ns: int) -> Night:
        """The last night, or today."""
        now = local_time(now_ns)
        if self.has_days:
            return Night(day=now.date(), begins_at=MIDNIGHT)
        return Night(day=last_night(now).day)

    def night_containing(self, moment_ns: int) -> Night:
        """The night, or the day, of a moment."""
        night = self.newest_night(moment_ns)
        if moment_ns >= night.end_ns:
            return Night(day=night.day + timedelta(days=1), begins_at=night.begins_at)
        return night

    def night_title(self, night: Night, newest: Night) -> str:
        """What the sentence calls a night: the newest one, or one before it, or one that has
        begun since.
        """
        if night == newest:
            return f"Today ({night.day_text})" if self.has_days else night.title
        if self.has_days:
            return f"Nothing ran today. {night.day.isoformat()}"
        return f"Nothing ran last night. Night of {night.day.isoformat()}"


def night_of_page(
    runs: Sequence[PageRun],
    notices: Sequence[PageNotice],
    now_ns: int,
    *,
    left_out: Collection[int] = (),
    are_others_local: bool = True,
) -> PageNight | None:
    """The last night, else the newest one with runs; None if no run has a start. The newest run
    of the page is first.

    A task is one run, with the worst end of its containers. A start of more than a day after now
    was written by a wrong clock. A missed due time counts unless its task came late. ``left_out``:
    the rows that do not count. ``are_others_local``: whether the page's other runs are a
    developer's.
    """
    latest_ms = (now_ns + NS_PER_DAY) // NS_PER_MS
    started = []
    for row, run in enumerate(runs):
        is_counted = row not in left_out and PROOF_FAMILY not in (run.family, run.name)
        if run.began is not None and run.began <= latest_ms and is_counted:
            started.append((row, run, run.began))
    missed = []
    for notice in notices:
        if notice.outcome == MISSED and not notice.came_late and notice.began is not None:
            missed.append((notice, notice.began))
    starts_ms = [began for _, _, began in started] + [began for _, began in missed]
    if not starts_ms:
        return None
    has_days = are_others_local and all(run.launch == "LOCAL" for run in runs)
    calendar = _Calendar(has_days=has_days)
    newest = calendar.newest_night(now_ns)
    night = newest
    if not any(_began_in_night(night, began) for began in starts_ms):
        night = calendar.night_containing(max(starts_ms) * NS_PER_MS)
    runs_of_night = [(row, run) for row, run, began in started if _began_in_night(night, began)]
    missed_of_night = [notice for notice, began in missed if _began_in_night(night, began)]
    of_tasks = _worst_run_of_each_task(runs_of_night)
    outcomes = [(run.outcome, run.family) for _, run in of_tasks]
    outcomes += [(MISSED, notice.family) for notice in missed_of_night]
    texts = night_text_pieces(
        calendar.night_title(night, newest),
        count_runs(outcomes),
        _cost_of_runs([run for _, run in runs_of_night]),
    )
    return PageNight(
        texts=[*_with_links_to_runs(texts, of_tasks)],
        start=night.start_ns // NS_PER_MS,
        end=night.end_ns // NS_PER_MS,
        begins=format_local(night.start_ns) or "",
        ends=format_local(night.end_ns) or "",
        zone=local_zone(),
    )


def _began_in_night(night: Night, began_ms: int) -> bool:
    return night.start_ns <= began_ms * NS_PER_MS < night.end_ns


def _worst_run_of_each_task(
    runs_of_night: Sequence[tuple[int, PageRun]],
) -> Sequence[tuple[int, PageRun]]:
    """The run of each task whose container ended worst, as in the message."""
    worst: dict[str, tuple[int, PageRun]] = {}
    for row, run in runs_of_night:
        known = worst.setdefault(run.id, (row, run))
        if severity_rank(run.outcome) < severity_rank(known[1].outcome):
            worst[run.id] = row, run
    return list(worst.values())


def _with_links_to_runs(
    texts: Iterator[NightTextPiece], runs_of_night: Sequence[tuple[int, PageRun]]
) -> Iterator[PageNightText]:
    """The pieces, each family's name with the row of its newest run of that outcome."""
    rows: dict[tuple[str | None, str | None], int] = {}
    for row, run in runs_of_night:
        rows.setdefault((run.outcome, run.family), row)
    for piece in texts:
        is_number = piece.outcome is not None and piece.family is None
        yield PageNightText(
            text=piece.text,
            is_number=is_number or None,
            run=rows.get((piece.outcome, piece.family)),
        )


def _cost_of_runs(runs: Sequence[PageRun]) -> Measured:
    """What the runs cost. A task is paid once, however many of its containers have a report."""
    usd_of_task: dict[str, float] = {}
    for run in runs:
        if run.usd is not None:
            usd_of_task[run.id] = max(usd_of_task.get(run.id, 0.0), run.usd)
    is_least = any(COST.page_field in (run.at_least or ()) for run in runs)
    return total_of_known(measured_from(usd, is_least=is_least) for usd in usd_of_task.values())
