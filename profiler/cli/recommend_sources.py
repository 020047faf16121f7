"""Where ``recommend`` finds past runs: the history, record lines, a cluster, or CloudWatch Logs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from profiler.cli.history_settings import history_path
from profiler.cli.record_lines import decoded, listed, read_lines, shown_source
from profiler.clock import Clock
from profiler.errors import TaskProfilerError
from profiler.record import Report
from profiler.sizing.evidence import Evidence, families_of
from profiler.times import NS_PER_MS

_REPORT = "task.report"
_A_FILE = "it should have the lines that task-profiler writes"


class Asked(Struct, frozen=True, kw_only=True):
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


class Found(Struct, frozen=True, kw_only=True):
    """Families by name, None where no run was measured; notes for people; and what to do if there are none."""

    families: Sequence[tuple[str, Evidence | None]]
    place: str
    remedy: str
    notes: tuple[str, ...] = ()


def found_families(asked: Asked, environment: Mapping[str, str], clock: Clock) -> Found:
    """The families in the source that was asked for. Raises TaskProfilerError if it cannot be read."""
    if asked.url is not None:
        return _of_cluster(asked, asked.url, environment)
    if asked.groups:
        return _of_log_groups(asked, clock)
    if asked.source is not None:
        shown = shown_source(asked.source)
        return _of_lines(asked, read_lines(asked.source), place=shown, remedy=_A_FILE)
    return _of_history(asked, environment, clock)


def _of_history(asked: Asked, environment: Mapping[str, str], clock: Clock) -> Found:
    from profiler.sinks.history import History  # noqa: PLC0415  SQLite is for this source alone

    path = history_path(asked.history_file, environment)
    history = History(path, clock)
    families = _families((stored.report for stored in history.runs()), asked)
    notes = (f"{history.unreadable} lines of {path} could not be read and are skipped.",) if history.unreadable else ()
    remedy = "make one with task-profiler run -- CMD, or name another source (--from, --elasticsearch, --log-group)"
    return Found(families=families, place=str(path), remedy=remedy, notes=notes)


def _of_lines(asked: Asked, lines: Iterable[bytes], *, place: str, remedy: str, notes: tuple[str, ...] = ()) -> Found:
    refused: list[int] = []
    counter = _Finals()
    families = _families(counter.only(decoded(lines, refused)), asked)
    skipped = []
    if counter.checkpoints:
        skipped.append(f"{counter.checkpoints} checkpoint{'' if counter.checkpoints == 1 else 's'}")
    if refused:
        what = "1 line that is no record" if len(refused) == 1 else f"{len(refused)} lines that are no records"
        skipped.append(f"{what} ({listed(refused)})")
    if skipped:
        notes = (*notes, f"Skipped in {place}: {' and '.join(skipped)}.")
    return Found(families=families, place=place, remedy=remedy, notes=notes)


class _Finals:
    """Lets final reports through and counts the checkpoints."""

    def __init__(self) -> None:
        self.checkpoints = 0

    def only(self, reports: Iterable[Report]) -> Iterator[Report]:
        for report in reports:
            if report.type == _REPORT:
                yield report
            else:
                self.checkpoints += 1


def _families(reports: Iterable[Report], asked: Asked) -> list[tuple[str, Evidence | None]]:
    wanted = (report for report in reports if _is_asked(report, asked.families))
    families = families_of(wanted, last=asked.last)
    return [(name, families[name].evidence()) for name in sorted(families)]


def _is_asked(report: Report, patterns: Sequence[str]) -> bool:
    name = report.record.family or report.record.container.name
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _of_cluster(asked: Asked, url: str, environment: Mapping[str, str]) -> Found:
    from profiler.cli.search_servers import ClusterServer, signed_in  # noqa: PLC0415  requests, for this source alone
    from profiler.sizing.cluster_evidence import ClusterRuns  # noqa: PLC0415

    server = ClusterServer(url, signed_in(asked.api_key, asked.user, environment))
    runs = ClusterRuns(server, asked.prefix)
    families = [(family.name, family.evidence) for family in runs.families(asked.families, asked.last)]
    place = f"the indices {asked.prefix}-reports-*"
    return Found(families=families, place=place, remedy="check URL and --prefix, and that the forwarder is at work")


def _of_log_groups(asked: Asked, clock: Clock) -> Found:
    import boto3  # noqa: PLC0415  heavy, and for this source alone
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from profiler.cli.replay import parse_time  # noqa: PLC0415
    from profiler.sizing.insights import MOST_LINES, Span, found_lines  # noqa: PLC0415

    now_ms = clock.wall_ns() // NS_PER_MS
    span = Span(start_ms=parse_time(asked.since, now_ms), end_ms=now_ms)
    place = " and ".join(asked.groups)
    try:
        lines = found_lines(boto3.client("logs"), clock, asked.groups, span, asked.families)
    except (BotoCoreError, ClientError) as error:
        raise TaskProfilerError(
            f"CloudWatch Logs Insights cannot be asked about {place} ({str(error).rstrip('.')}): check the log group, "
            "region, credentials, and that logs:StartQuery and logs:GetQueryResults are allowed."
        ) from error
    cut = f"Insights answers {MOST_LINES} lines at most: runs before these are left out, so ask by --since or FAMILY."
    notes = (cut,) if len(lines) >= MOST_LINES else ()
    remedy = "ask for a longer time by --since, or for the batches' log group"
    return _of_lines(asked, lines, place=place, remedy=remedy, notes=notes)
