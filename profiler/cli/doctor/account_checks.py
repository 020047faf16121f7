"""``doctor FILE|FAMILY`` and ``doctor --cluster``: what a task definition, or each family of a
cluster, lacks.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from shlex import quote

from profiler.aws_account.clusters_and_log_groups import STANDARD, container_insights_sentences
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
from profiler.aws_account.scheduled_targets import Schedules, is_timed, schedule_of
from profiler.cli.options import SourceOptions
from profiler.cli.printing import UNKNOWN, warn, write_json_lines
from profiler.cli.progress import progress_row
from profiler.cli.styled_text import (
    Span,
    folding,
    sentences_about,
    table,
    table_width,
    write_lines,
    write_paragraph,
)
from profiler.cli.taskdef_command import read_input
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_log_groups import log_trust, open_pages
from profiler.cli.wiring.open_past_runs import names_of, open_source
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import format_local, local_zone, parse_ns, with_local_times
from profiler.record.units import format_count
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.record_files import STANDARD_INPUT, source_name
from profiler.runs.past_runs.run_lookup import similar_families
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from profiler.task_definitions.definition_json import read_document
from profiler.task_definitions.definition_texts import read_definitions
from profiler.task_definitions.monitor_container import default_image

_ADD = "task-profiler taskdef add-monitor"
_LEVEL_STYLES = {"ok": "", "note": "yellow", "problem": "red"}
_TITLES = ("Family", "Monitor", "Role", "Log group", "Forwarded to")
_TOPICS = ("", "monitor", "role", "log group", "subscription", "report")


def findings_of_file(file: str) -> Iterator[Finding]:
    """The findings about the definition in a file, a template or standard input.

    Raises TaskProfilerError.
    """
    data = read_input(file)
    name = source_name(file)
    command = f"{_ADD} {quote(file)}"
    if file != STANDARD_INPUT:
        command += " --in-place"
    for definition, arn in read_definitions(data, name):
        yield from definition_findings(definition, command, default_image=default_image(arn))


def findings_of_family(family: str, region: str | None, profile: str | None) -> Iterator[Finding]:
    """The findings about a family's latest revision in ECS, or ``family:revision``, and its
    pinned schedules.
    """
    open_client = open_clients(region, profile)
    definitions = TaskDefinitions(open_client("ecs"))
    document = read_document(_described(definitions, family), family)
    command = f"{_ADD} --family {quote(family.partition(':')[0])} --register"
    yield from definition_findings(
        document.definition, command, default_image=default_image(document.arn)
    )
    paths = ReportPaths(open_client)
    yield from filter(None, (execution_role_finding(document.definition, paths),))
    yield from (note(EXECUTION_ROLE, sentence) for sentence in sorted(paths.problems))
    try:
        targets = Schedules(open_client).targets()
        pinned = []
        for target in targets:
            pin = target.pinned_revision
            if pin is not None and target.is_pin_of(document.arn or ""):
                started = read_document(definitions.describe(pin), pin)
                pinned.append((target, started.definition))
    except TaskProfilerError as error:
        yield note(SCHEDULES, f"{error} Whether they start this revision is unknown.")
        return
    yield from schedule_findings(
        revision_of(document.arn or "") or family, pinned, f"{command} --update-schedules"
    )


def _described(definitions: TaskDefinitions, family: str) -> bytes:
    """ECS's response for a family. Raises TaskProfilerError, with the name that may be meant."""
    try:
        return definitions.describe(family)
    except TaskProfilerError as error:
        name = family.partition(":")[0]
        similar = similar_families(RunFilter(run=name), partial(definitions.families, "*"))
        raise TaskProfilerError(f"{error}{similar}") from error


def check_cluster(cluster: str, options: SourceOptions, now_ns: int, *, as_json: bool) -> int:
    """Print the families of the cluster and their problems; return the exit code.

    TaskProfilerError without any.
    """
    open_client = open_clients(options.region, options.profile)
    add_command = f"{_ADD} --cluster {quote(cluster)}"
    rollout = plan_monitors(open_client, (cluster,), scheduled=False, on_problem=warn)
    families = rollout.families()
    paths = ReportPaths(open_client)
    monitors: list[FamilyMonitor] = []
    healths: list[FamilyHealth] = []
    with progress_row() as show:
        for monitor in read_monitors(rollout, families):
            monitors.append(monitor)
            healths.append(family_health(monitor, paths, add_command))
            show("Reading families", len(monitors) / len(families))
    reports = _last_reports(monitors, healths, options, now_ns)
    is_indexed = bool(names_of(options, "search")) or any(health.forwarded_to for health in healths)
    schedules = [schedule_of(target) for target in rollout.targets if is_timed(target)]
    checks = ClusterChecks(add_command, schedules, reports, now_ns, is_indexed=is_indexed)
    judged = tuple(checks.judged(monitors, healths))
    for sentence in sorted(paths.problems):
        warn(sentence)
    if as_json:
        write_json_lines(judged)
    else:
        write_lines(_lines(judged, table_width()))
        for sentence in container_insights_sentences(open_client, (cluster,)):
            write_paragraph(sentence)
    wrong = sum(health.level == "problem" for health in judged)
    warn(f"{format_count(len(judged), 'family')}: {wrong or 'none'} with a problem.")
    return 1 if wrong else 0


def _last_reports(
    monitors: Sequence[FamilyMonitor],
    healths: Sequence[FamilyHealth],
    options: SourceOptions,
    now_ns: int,
) -> LastReports | None:
    """The last reports; None, and a warning, if they are unreadable.

    A group is read until its families have one.
    """
    arn = next(
        (monitor.planned.revision_arn for monitor in monitors if monitor.planned.revision_arn), ""
    )
    pages = LimitedPages(open_pages(options))
    trust = log_trust(options)
    reporting = [health for health in healths if health.has_reports]
    urls = names_of(options, "search")

    def sources() -> Iterator[tuple[RunSource, Sequence[FamilyHealth]]]:
        if urls and reporting:
            yield open_source(replace(options, sources=urls)), reporting
        if urls:
            return
        groups = set[str]()
        for health in reporting:
            if health.log_group and health.log_group_exists and health.log_group_class == STANDARD:
                groups.add(health.log_group)
        for group in sorted(groups):
            of_group = [health for health in reporting if health.log_group == group]
            yield LogGroupRuns(pages, (group,), now_ns, trust=trust), of_group

    newest_ns: dict[str, int] = {}
    try:
        with progress_row() as show:
            show("Looking for the last reports", None)
            for source, families in sources():
                newest_in_group = newest_reports(
                    source, frozenset(health.family for health in families), arn, now_ns
                )
                for family, at_ns in newest_in_group.items():
                    newest_ns[family] = max(at_ns, newest_ns.get(family, 0))
    except TaskProfilerError as error:
        warn(f"The last reports are unknown. {error}")
        return None
    return LastReports(newest_ns=newest_ns, unread=frozenset(pages.unread))


def _lines(judged: Sequence[FamilyHealth], width: int | None) -> Iterator[tuple[Span, ...]]:
    columns = folding(*_TITLES, f"Last report ({local_zone()})")
    yield from table(columns, map(_cells, judged), width=width)
    problems = []
    for health in judged:
        for finding in health.findings:
            sentence = f"{with_local_times(finding.text)} {finding.advice or ''}".rstrip()
            problems.append((health.family, sentence, _LEVEL_STYLES[finding.level]))
    yield from sentences_about(problems, width)


def _cells(health: FamilyHealth) -> Sequence[str | Span]:
    levels: Mapping[str, str] = {
        finding.topic: finding.level for finding in reversed(health.findings)
    }
    group = health.log_group or UNKNOWN
    if health.log_group is not None and health.log_group_exists is False:
        group += " (missing)"
    cells = (
        health.family,
        health.monitor,
        health.permission or UNKNOWN,
        group,
        ", ".join(health.forwarded_to) or UNKNOWN,
        format_local(parse_ns(health.last_report)) or UNKNOWN,
    )
    return [
        Span(cell, _LEVEL_STYLES[levels.get(topic, "ok")])
        for cell, topic in zip(cells, _TOPICS, strict=True)
    ]
