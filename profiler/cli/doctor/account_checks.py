"""``doctor --task``, ``--family`` and ``--cluster``: what a task definition, or each family of a cluster, lacks."""

import os
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote

from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.clusters_and_log_groups import container_insights_sentences
from profiler.aws_account.doctor.cluster_checks import (
    ClusterChecks,
    FamilyHealth,
    LastReports,
    LimitedPages,
    family_health,
    newest_reports,
)
from profiler.aws_account.doctor.definition_checks import (
    EXECUTION_ROLE,
    SCHEDULES,
    definition_findings,
    execution_role_finding,
    schedule_findings,
)
from profiler.aws_account.doctor.findings import Finding, note
from profiler.aws_account.family_monitors import FamilyMonitor, plan_monitors, read_monitors
from profiler.aws_account.registered_definitions import TaskDefinitions, revision_of
from profiler.aws_account.report_paths import ReportPaths
from profiler.aws_account.scheduled_targets import ScheduledTarget, Schedules, is_timed, schedule_of
from profiler.cli.options import SourceOptions
from profiler.cli.printing import UNKNOWN, warn, write_json_lines
from profiler.cli.progress import progress_row
from profiler.cli.styled_text import (
    EMPTY,
    Column,
    Line,
    Span,
    sentences_about,
    table,
    table_width,
    wrapped,
    write_lines,
)
from profiler.cli.taskdef_command import STANDARD_INPUT, read_input, source_name
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_pages, open_source
from profiler.core.clock import Clock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import format_local, local_zone, parse_ns, with_local_times
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.run_source import RunSource
from profiler.task_definitions.cloudformation import change_template, is_template
from profiler.task_definitions.definition_json import ChangedDefinition, TaskDefinitionDocument, read_document
from profiler.task_definitions.monitor_container import default_image

_ADD = "task-profiler taskdef add-monitor"
_LEVEL_STYLES = {"ok": "", "note": "yellow", "problem": "red"}
_TITLES = ("Family", "Monitor", "Role", "Log group", "Forwarded to")
_TOPICS = ("", "monitor", "role", "log group", "subscription", "report")


def findings_of_file(file: str) -> Iterator[Finding]:
    """The findings about the definition in a file, a template or standard input. Raises TaskProfilerError."""
    data, name = read_input(file), source_name(file)
    command = f"{_ADD} {quote(file)}" + ("" if file == STANDARD_INPUT else " --in-place")
    if is_template(data):
        definitions: list[Mapping[str, object]] = []

        def collect(definition: Mapping[str, object], _region: Mapping[str, object]) -> ChangedDefinition:
            definitions.append(definition)
            return ChangedDefinition(definition=definition)

        change_template(data, name, collect)
        for definition in definitions:
            yield from definition_findings(definition, command, default_image=default_image(None))
    else:
        yield from _findings(read_document(data, name), command)


def findings_of_family(family: str, region: str | None, profile: str | None) -> Iterator[Finding]:
    """The findings about a family's latest revision in ECS, or ``family:revision``, and its pinned schedules."""
    open_client = open_clients(region, profile)
    definitions = TaskDefinitions(open_client("ecs"))
    document = read_document(definitions.describe(family), family)
    command = f"{_ADD} --family {quote(family.partition(':')[0])} --register"
    yield from _findings(document, command)
    paths = ReportPaths(open_client)
    finding = execution_role_finding(document.definition, paths)
    if finding is not None:
        yield finding
    yield from (note(EXECUTION_ROLE, sentence) for sentence in sorted(paths.problems))
    try:
        pinned = tuple(_pinned_schedules(open_client, definitions, document.arn or ""))
    except TaskProfilerError as error:
        yield note(SCHEDULES, f"{error} Whether they start this revision is unknown.")
        return
    revision = revision_of(document.arn or "") or family
    yield from schedule_findings(revision, pinned, f"{command} --update-schedules")


def _findings(document: TaskDefinitionDocument, command: str) -> Iterator[Finding]:
    return definition_findings(document.definition, command, default_image=default_image(document.arn))


def _pinned_schedules(
    open_client: OpenClient, definitions: TaskDefinitions, revision_arn: str
) -> Iterator[tuple[ScheduledTarget, Mapping[str, object]]]:
    for target in Schedules(open_client).targets():
        if target.is_pin_of(revision_arn):
            revision = target.pinned_revision or ""
            yield target, read_document(definitions.describe(revision), revision).definition


def check_cluster(cluster: str, options: SourceOptions, clock: Clock, *, as_json: bool) -> int:
    """Print the families of the cluster and their problems; return the exit code. TaskProfilerError without any."""
    open_client = open_clients(options.region, options.profile)
    rollout = plan_monitors(open_client, (cluster,), scheduled=False, on_problem=warn)
    families, paths = rollout.families(), ReportPaths(open_client)
    monitors: list[FamilyMonitor] = []
    healths: list[FamilyHealth] = []
    with progress_row(os.environ) as show:
        for monitor in read_monitors(rollout, families):
            monitors.append(monitor)
            healths.append(family_health(monitor, paths))
            show("Reading families", len(monitors) / len(families))
    reports = _last_reports(monitors, healths, options, clock)
    checks = ClusterChecks(
        cluster,
        [schedule_of(target) for target in rollout.targets if is_timed(target)],
        reports,
        clock.wall_ns(),
        is_indexed=options.url is not None or any(health.forwarded_to for health in healths),
    )
    judged = tuple(checks.judged(monitors, healths))
    for sentence in sorted(paths.problems):
        warn(sentence)
    if as_json:
        write_json_lines(judged)
    else:
        write_lines(_lines(judged, table_width()))
        for sentence in container_insights_sentences(open_client, (cluster,)):
            write_lines([EMPTY, *wrapped(sentence, table_width(), first="")])
    wrong = sum(health.level == "problem" for health in judged)
    warn(f"{len(judged)} families: {wrong or 'none'} with a problem.")
    return 1 if wrong else 0


def _last_reports(
    monitors: Sequence[FamilyMonitor], healths: Sequence[FamilyHealth], options: SourceOptions, clock: Clock
) -> LastReports:
    """The last reports. An unreadable part is a warning."""
    arn = next((one.planned.revision_arn for one in monitors if one.planned.revision_arn), "")
    pages = LimitedPages(open_pages(options))
    now_ns = clock.wall_ns()
    reporting = [one for one in healths if one.has_reports]
    newest_ns: dict[str, int] = {}
    try:
        with progress_row(os.environ) as show:
            show("Looking for the last reports", None)
            for source, families in _sources(reporting, options, clock, pages):
                found = newest_reports(source, families, arn, now_ns)
                newest_ns |= {family: max(at_ns, newest_ns.get(family, 0)) for family, at_ns in found.items()}
    except TaskProfilerError as error:
        warn(f"The last reports are unknown. {error}")
        return LastReports(is_known=False)
    return LastReports(newest_ns=newest_ns, unread=frozenset(pages.unread))


def _sources(
    reporting: Sequence[FamilyHealth], options: SourceOptions, clock: Clock, pages: LimitedPages
) -> Iterator[tuple[RunSource, frozenset[str]]]:
    """The sources of the reports and their families. Each log group is read until each of its families has a report."""
    if options.url is not None and reporting:
        yield open_source(options, os.environ, clock), frozenset(health.family for health in reporting)
        return
    for group in sorted({one.log_group for one in reporting if one.log_group is not None and one.log_group_exists}):
        families = frozenset(health.family for health in reporting if health.log_group == group)
        yield LogGroupRuns(pages, (group,), clock.wall_ns()), families


def _lines(judged: Sequence[FamilyHealth], width: int | None) -> Iterator[Line]:
    """One row per family, then the problems, each with its families."""
    columns = tuple(Column(title, folds=True) for title in (*_TITLES, f"Last report ({local_zone()})"))
    yield from table(columns, map(_cells, judged), width=width)
    found = (
        (one.family, f"{with_local_times(finding.text)} {finding.advice or ''}".rstrip(), _LEVEL_STYLES[finding.level])
        for one in judged
        for finding in one.findings
    )
    yield from sentences_about(found, width)


def _cells(health: FamilyHealth) -> Sequence[str | Span]:
    levels: Mapping[str, str] = {finding.topic: finding.level for finding in reversed(health.findings)}
    exists = "" if health.log_group_exists is not False else " (missing)"
    cells = (
        health.family,
        health.monitor,
        health.permission or UNKNOWN,
        UNKNOWN if health.log_group is None else f"{health.log_group}{exists}",
        ", ".join(health.forwarded_to) or UNKNOWN,
        format_local(parse_ns(health.last_report)) or UNKNOWN,
    )
    return [Span(cell, _LEVEL_STYLES[levels.get(topic, "ok")]) for cell, topic in zip(cells, _TOPICS, strict=True)]
