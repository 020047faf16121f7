"""Notices about due times of schedules, from any source of past runs: nothing ran, or too late,
or two at a time.
"""

from collections.abc import Iterable, Iterator

from profiler.core.ecs_terms import cluster_name
from profiler.core.json_fields import decoded_or_none
from profiler.core.timestamps import parse_ns
from profiler.record.family_identity import FamilyKey
from profiler.record.notice_model import ScheduleNoticeLine, decode_notice_json
from profiler.runs.past_runs.run_source import RunFilter

MAX_NOTICES = 1_000
NOTICE_MARKER = '"schedule.notice"'


def read_notices(lines: Iterable[str]) -> Iterator[ScheduleNoticeLine]:
    """Yield the notices about schedules among these lines."""
    for line in lines:
        if NOTICE_MARKER not in line:
            continue
        notice = decoded_or_none(decode_notice_json, line)
        if isinstance(notice, ScheduleNoticeLine):
            yield notice


def family_of_notice(line: ScheduleNoticeLine) -> FamilyKey:
    """The family that the schedule starts; it has the name of the schedule if the family is
    unknown.
    """
    return FamilyKey(
        line.family or line.schedule.name, line.account_id or None, line.region or None
    )


def due_ns_of_notice(line: ScheduleNoticeLine) -> int | None:
    """The due time; None for a notice about something else, such as a task that takes long."""
    return parse_ns(line.notice.due_at)


def select_notices(
    lines: Iterable[ScheduleNoticeLine], selection: RunFilter
) -> tuple[ScheduleNoticeLine, ...]:
    """The newest notices about due times that the filter selects, each once, the latest due time
    first.
    """
    # A run that did not start has neither tags, labels nor a status.
    of_runs = (selection.tags, selection.labels, selection.statuses)
    if any(of_runs) or selection.run:
        return ()
    line_of_notice: dict[object, ScheduleNoticeLine] = {}
    for line in lines:
        if _matches_notice(line, selection):
            line_of_notice[_notice_identity(line)] = line
    latest_first = sorted(
        line_of_notice.values(), key=lambda line: due_ns_of_notice(line) or 0, reverse=True
    )
    return tuple(latest_first[:MAX_NOTICES])


def _notice_identity(line: ScheduleNoticeLine) -> object:
    """Equal for a notice that was delivered twice; a rule may start several families."""
    schedule = line.schedule
    notice = line.notice
    return (
        (line.account_id, line.region, line.cluster, line.family),
        (schedule.kind, schedule.group, schedule.name),
        (notice.kind, notice.due_at),
    )


def _matches_notice(line: ScheduleNoticeLine, selection: RunFilter) -> bool:
    at_ns = due_ns_of_notice(line)
    cluster = cluster_name(line.cluster)
    return at_ns is not None and selection.matches_place_and_time(
        family_of_notice(line), cluster, at_ns
    )
