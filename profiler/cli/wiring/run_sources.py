"""Sources of past runs for ``recommend``: the local history, record lines, a cluster, or CloudWatch Logs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from profiler.cli.options import parse_time
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS
from profiler.history.recorder import history_path
from profiler.record.model import Report
from profiler.record.units import format_count
from profiler.runs.files import decode_lines, format_line_numbers, read_lines, source_name
from profiler.sizing.evidence import Evidence, families_of

_REPORT = "task.report"


class RunQuery(Struct, frozen=True, kw_only=True):
    """The options that select runs and their source; ``families`` are shell patterns."""

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
    """The evidence of past runs.

    Attributes:
        families: Names and evidence, which is None if no run of the family was measured.
        place: The source's name in a sentence.
        remedy: What to do if there are no runs, for an error sentence.
        notes: Sentences about runs that were left out.
    """

    families: Sequence[tuple[str, Evidence | None]]
    place: str
    remedy: str
    notes: tuple[str, ...] = ()


def find_families(query: RunQuery, environment: Mapping[str, str], clock: Clock) -> PastRuns:
    """Read the runs of the selected source, by family. Raises TaskProfilerError if it cannot be read."""
    if query.url is not None:
        return _from_cluster(query, query.url, environment)
    if query.groups:
        return _from_log_groups(query, clock)
    if query.source is not None:
        place, remedy = source_name(query.source), "it should contain the lines that task-profiler writes"
        return _from_lines(query, read_lines(query.source), place=place, remedy=remedy)
    return _from_history(query, environment, clock)


def _from_history(query: RunQuery, environment: Mapping[str, str], clock: Clock) -> PastRuns:
    from profiler.history.store import HistoryStore  # SQLite is only for this source

    path = history_path(query.history_file, environment)
    history = HistoryStore(path, clock)
    families = _group_by_family((stored.report for stored in history.runs()), query)
    unreadable = history.unreadable_count
    notes = (f"{unreadable} lines of {path} could not be read and are left out.",) if unreadable else ()
    remedy = "make one with task-profiler run -- CMD, or name another source (--from, --elasticsearch, --log-group)"
    return PastRuns(families=families, place=str(path), remedy=remedy, notes=notes)


def _from_lines(
    query: RunQuery, lines: Iterable[bytes], *, place: str, remedy: str, notes: tuple[str, ...] = ()
) -> PastRuns:
    invalid_lines: list[int] = []
    checkpoints = _CheckpointFilter()
    families = _group_by_family(checkpoints.drop(decode_lines(lines, invalid_lines)), query)
    skipped = []
    if checkpoints.count:
        skipped.append(format_count(checkpoints.count, "checkpoint"))
    if invalid_lines:
        not_records = "that is not a record" if len(invalid_lines) == 1 else "that are not records"
        numbers = format_line_numbers(invalid_lines)
        skipped.append(f"{format_count(len(invalid_lines), 'line')} {not_records} ({numbers})")
    if skipped:
        notes = (*notes, f"Skipped in {place}: {' and '.join(skipped)}.")
    return PastRuns(families=families, place=place, remedy=remedy, notes=notes)


class _CheckpointFilter:
    """Drops and counts checkpoints."""

    def __init__(self) -> None:
        self.count = 0

    def drop(self, reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            if report.type == _REPORT:
                yield report
            else:
                self.count += 1


def _group_by_family(reports: Iterable[Report], query: RunQuery) -> list[tuple[str, Evidence | None]]:
    matching = (report for report in reports if _has_family(report, query.families))
    families = families_of(matching, last=query.last)
    return [(name, families[name].evidence()) for name in sorted(families)]


def _has_family(report: Report, patterns: Sequence[str]) -> bool:
    name = report.record.family or report.record.container.name
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _from_cluster(query: RunQuery, url: str, environment: Mapping[str, str]) -> PastRuns:
    from profiler.cli.wiring.search_servers import ClusterServer, open_session  # requests, only for this source
    from profiler.runs.cluster import ClusterRuns

    server = ClusterServer(url, open_session(query.api_key, query.user, environment))
    runs = ClusterRuns(server, query.prefix)
    families = [(family.name, family.evidence) for family in runs.families(query.families, query.last)]
    place = f"the indices {query.prefix}-reports-*"
    return PastRuns(families=families, place=place, remedy="check URL and --prefix, and that the forwarder works")


def _from_log_groups(query: RunQuery, clock: Clock) -> PastRuns:
    import boto3  # heavy, and only for this source
    from botocore.exceptions import BotoCoreError, ClientError

    from profiler.runs.logs_insights import MAX_LINES, TimeRange, find_lines

    now_ms = clock.wall_ns() // NS_PER_MS
    span = TimeRange(start_ms=parse_time(query.since, now_ms), end_ms=now_ms)
    place = " and ".join(query.groups)
    try:
        lines = find_lines(boto3.client("logs"), clock, query.groups, span, query.families)
    except (BotoCoreError, ClientError) as error:
        raise TaskProfilerError(
            f"CloudWatch Logs Insights cannot be queried for {place} ({str(error).rstrip('.')}): check the log group, "
            "region, credentials, and that logs:StartQuery and logs:GetQueryResults are allowed."
        ) from error
    cut = f"Insights returns at most {MAX_LINES} lines, so older runs are left out: narrow it by --since or FAMILY."
    notes = (cut,) if len(lines) >= MAX_LINES else ()
    remedy = "use an earlier --since, or the batches' log group"
    return _from_lines(query, lines, place=place, remedy=remedy, notes=notes)
