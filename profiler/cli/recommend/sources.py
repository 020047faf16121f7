"""Where ``recommend`` finds past runs: the history, record lines, a cluster, or CloudWatch Logs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.history.recorder import history_path
from profiler.record.model import Report
from profiler.runs.files import decode_lines, format_line_numbers, read_lines, source_name
from profiler.sizing.evidence import Evidence, families_of

_REPORT = "task.report"
_FILE_REMEDY = "it should have the lines that task-profiler writes"


class RunQuery(Struct, frozen=True, kw_only=True):
    """Which runs of which source; ``families`` are shell patterns."""

    families: tuple[str, ...] = ()
    last: int
    source: str | None = None
    url: str | None = None
    prefix: str
    api_key: str | None = None
    user: str | None = None
    groups: tuple[str, ...] = ()
    since: str
    history_file: str | None = None


class PastRuns(Struct, frozen=True, kw_only=True):
    """Families by name, None where no run was measured; notes for people; and what to do if there are none."""

    families: Sequence[tuple[str, Evidence | None]]
    place: str
    remedy: str
    notes: tuple[str, ...] = ()


def find_families(query: RunQuery, environment: Mapping[str, str], clock: Clock) -> PastRuns:
    """The families in the source that was asked for. Raises TaskProfilerError if it cannot be read."""
    if query.url is not None:
        return _from_cluster(query, query.url, environment)
    if query.groups:
        return _from_log_groups(query, clock)
    if query.source is not None:
        shown = source_name(query.source)
        return _from_lines(query, read_lines(query.source), place=shown, remedy=_FILE_REMEDY)
    return _from_history(query, environment, clock)


def _from_history(query: RunQuery, environment: Mapping[str, str], clock: Clock) -> PastRuns:
    from profiler.history.store import HistoryStore  # SQLite is for this source alone

    path = history_path(query.history_file, environment)
    history = HistoryStore(path, clock)
    families = _families((stored.report for stored in history.runs()), query)
    notes = (
        (f"{history.unreadable_count} lines of {path} could not be read and are skipped.",)
        if history.unreadable_count
        else ()
    )
    remedy = "make one with task-profiler run -- CMD, or name another source (--from, --elasticsearch, --log-group)"
    return PastRuns(families=families, place=str(path), remedy=remedy, notes=notes)


def _from_lines(
    query: RunQuery, lines: Iterable[bytes], *, place: str, remedy: str, notes: tuple[str, ...] = ()
) -> PastRuns:
    invalid_lines: list[int] = []
    counter = _FinalReports()
    families = _families(counter.only(decode_lines(lines, invalid_lines)), query)
    skipped = []
    if counter.checkpoints:
        skipped.append(f"{counter.checkpoints} checkpoint{'' if counter.checkpoints == 1 else 's'}")
    if invalid_lines:
        what = (
            "1 line that is no record" if len(invalid_lines) == 1 else f"{len(invalid_lines)} lines that are no records"
        )
        skipped.append(f"{what} ({format_line_numbers(invalid_lines)})")
    if skipped:
        notes = (*notes, f"Skipped in {place}: {' and '.join(skipped)}.")
    return PastRuns(families=families, place=place, remedy=remedy, notes=notes)


class _FinalReports:
    """Lets final reports through and counts the checkpoints."""

    def __init__(self) -> None:
        self.checkpoints = 0

    def only(self, reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            if report.type == _REPORT:
                yield report
            else:
                self.checkpoints += 1


def _families(reports: Iterable[Report], query: RunQuery) -> list[tuple[str, Evidence | None]]:
    wanted = (report for report in reports if _matches_query(report, query.families))
    families = families_of(wanted, last=query.last)
    return [(name, families[name].evidence()) for name in sorted(families)]


def _matches_query(report: Report, patterns: Sequence[str]) -> bool:
    name = report.record.family or report.record.container.name
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _from_cluster(query: RunQuery, url: str, environment: Mapping[str, str]) -> PastRuns:
    from profiler.cli.wiring.search_servers import ClusterServer, open_session  # requests, for this source alone
    from profiler.runs.cluster import ClusterRuns

    server = ClusterServer(url, open_session(query.api_key, query.user, environment))
    runs = ClusterRuns(server, query.prefix)
    families = [(family.name, family.evidence) for family in runs.families(query.families, query.last)]
    place = f"the indices {query.prefix}-reports-*"
    return PastRuns(families=families, place=place, remedy="check URL and --prefix, and that the forwarder is at work")


def _from_log_groups(query: RunQuery, clock: Clock) -> PastRuns:
    import boto3  # heavy, and for this source alone
    from botocore.exceptions import BotoCoreError, ClientError

    from profiler.cli.replay import parse_time
    from profiler.runs.logs_insights import MAX_LINES, TimeRange, find_lines

    now_ms = clock.wall_ns() // NS_PER_MS
    span = TimeRange(start_ms=parse_time(query.since, now_ms), end_ms=now_ms)
    place = " and ".join(query.groups)
    try:
        lines = find_lines(boto3.client("logs"), clock, query.groups, span, query.families)
    except (BotoCoreError, ClientError) as error:
        raise TaskProfilerError(
            f"CloudWatch Logs Insights cannot be asked about {place} ({str(error).rstrip('.')}): check the log group, "
            "region, credentials, and that logs:StartQuery and logs:GetQueryResults are allowed."
        ) from error
    cut = f"Insights answers {MAX_LINES} lines at most: runs before these are left out, so ask by --since or FAMILY."
    notes = (cut,) if len(lines) >= MAX_LINES else ()
    remedy = "ask for a longer time by --since, or for the batches' log group"
    return _from_lines(query, lines, place=place, remedy=remedy, notes=notes)
