"""``task-profiler doctor --cluster``: diagnoses all families of a cluster, as a table or as JSON lines."""

import os
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from profiler.aws_account.family_monitors import FamilyMonitor, FamilyMonitors
from profiler.aws_account.report_paths import ReportPaths
from profiler.cli.options import SourceOptions
from profiler.cli.printing import UNKNOWN, warn, write_out
from profiler.cli.progress import progress_row
from profiler.cli.styled_text import EMPTY, Column, Line, Span, table, table_width, wrapped, write_lines
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_pages, open_source
from profiler.core.clock import Clock
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.errors import TaskProfilerError
from profiler.doctor.cluster_checks import ClusterChecks, FamilyHealth, family_health
from profiler.doctor.last_reports import LastReports, LimitedPages, newest_reports
from profiler.past_runs.log_group_runs import LogGroupRuns
from profiler.past_runs.run_source import RunSource

_GAP = 2
_MAX_FAMILIES = 3
_PIPE_COLUMNS = 10_000  # a program gets every sentence on one line
_LEVEL_STYLES = {"ok": "", "note": "yellow", "problem": "red"}
_TITLES = ("Family", "Monitor", "Role", "Log group", "Forwarded to", "Last report")
_TOPICS = ("", "monitor", "role", "log group", "subscription", "report")


def check_cluster(cluster: str, options: SourceOptions, clock: Clock, *, as_json: bool) -> int:
    """Print the families of the cluster and what is wrong with them. Returns the exit code.

    Raises:
        TaskProfilerError: if the families cannot be listed, or if there are none.
    """
    open_client = open_clients(options.region, options.profile)
    monitors_of = FamilyMonitors(open_client, (cluster,), scheduled=False, on_problem=warn)
    families, paths = monitors_of.families(), ReportPaths(open_client)
    monitors: list[FamilyMonitor] = []
    healths: list[FamilyHealth] = []
    with progress_row(os.environ) as show:
        for monitor in monitors_of.read(families):
            monitors.append(monitor)
            healths.append(family_health(monitor, paths))
            show("Reading families", len(monitors) / len(families))
    reports = _last_reports(monitors, healths, options, clock)
    checks = ClusterChecks(
        cluster,
        monitors_of.schedules(),
        reports,
        clock.wall_ns(),
        is_indexed=options.url is not None or any(health.forwarded_to for health in healths),
    )
    judged = tuple(checks.judged(monitors, healths))
    for sentence in sorted(paths.problems):
        warn(sentence)
    if as_json:
        write_out(b"".join(msgspec.json.encode(health) + b"\n" for health in judged))
    else:
        write_lines(_lines(judged, table_width()), os.environ)
    wrong = sum(health.level == "problem" for health in judged)
    warn(f"{len(judged)} families: {wrong or 'none'} with a problem.")
    return 1 if wrong else 0


def _last_reports(
    monitors: Sequence[FamilyMonitor], healths: Sequence[FamilyHealth], options: SourceOptions, clock: Clock
) -> LastReports:
    """The last reports. What cannot be read is a warning."""
    arn = next((one.planned.revision_arn for one in monitors if one.planned.revision_arn), "")
    pages = LimitedPages(open_pages(options))
    now_ns = clock.wall_ns()
    reporting = [one for one in healths if one.has_reports]
    families = frozenset(one.family for one in reporting)
    newest_ns: dict[str, int] = {}
    try:
        with progress_row(os.environ) as show:
            show("Looking for the last reports", None)
            for source, awaited in _sources(reporting, options, clock, pages):
                found = newest_reports(source, families, arn_account(arn), arn_region(arn), now_ns, awaited=awaited)
                newest_ns |= {family: max(at_ns, newest_ns.get(family, 0)) for family, at_ns in found.items()}
    except TaskProfilerError as error:
        warn(f"The last reports are unknown. {error}")
        return LastReports(is_known=False)
    return LastReports(newest_ns=newest_ns, unread=frozenset(pages.unread))


def _sources(
    reporting: Sequence[FamilyHealth], options: SourceOptions, clock: Clock, pages: LimitedPages
) -> Iterator[tuple[RunSource, frozenset[str]]]:
    """Where the reports of which families are. Each log group is read until its own families have one."""
    if options.url is not None:
        yield open_source(options, os.environ, clock), frozenset(health.family for health in reporting)
        return
    for group in sorted({one.log_group for one in reporting if one.log_group is not None and one.log_group_exists}):
        families = frozenset(health.family for health in reporting if health.log_group == group)
        yield LogGroupRuns(pages, (group,), clock.wall_ns()), families


def _lines(judged: Sequence[FamilyHealth], width: int | None) -> Iterator[Line]:
    """One row per family, then what is wrong, each with the families that it concerns."""
    columns = tuple(Column(title, folds=True) for title in _TITLES)
    yield from table(columns, map(_cells, judged), gap=_GAP, width=width)
    concerned: dict[tuple[str, str | None, str], list[str]] = {}
    for health in judged:
        for finding in health.findings:
            concerned.setdefault((finding.text, finding.advice, finding.level), []).append(health.family)
    if concerned:
        yield EMPTY
    for (sentence, advice, level), families in concerned.items():
        more = f" and {len(families) - _MAX_FAMILIES} more" if len(families) > _MAX_FAMILIES else ""
        text = f"{', '.join(families[:_MAX_FAMILIES])}{more}: {sentence} {advice or ''}".rstrip()
        yield from wrapped(text, width or _PIPE_COLUMNS, first="- ", style=_LEVEL_STYLES[level])


def _cells(health: FamilyHealth) -> Sequence[str | Span]:
    levels: Mapping[str, str] = {finding.topic: finding.level for finding in reversed(health.findings)}
    exists = "" if health.log_group_exists is not False else " (missing)"
    cells = (
        health.family,
        health.monitor,
        health.permission or UNKNOWN,
        UNKNOWN if health.log_group is None else f"{health.log_group}{exists}",
        ", ".join(health.forwarded_to) or UNKNOWN,
        UNKNOWN if health.last_report is None else f"{health.last_report[:16].replace('T', ' ')}Z",
    )
    return [Span(cell, _LEVEL_STYLES[levels.get(topic, "ok")]) for cell, topic in zip(cells, _TOPICS, strict=True)]
