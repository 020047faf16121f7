"""``doctor FILE|FAMILY`` and ``doctor --cluster``: what a task definition, or each family of a
cluster, lacks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from profiler.aws_account.clusters_and_log_groups import STANDARD, container_insights_sentences
from profiler.aws_account.doctor.cluster_checks import (
    ClusterChecks,
    FamilyHealth,
    LastReportsByFamily,
    LimitedPageReader,
    family_health,
    newest_reports,
)
from profiler.aws_account.doctor.definition_checks import (
    MONITOR,
    SCHEDULES,
    UNKNOWN_PART,
    add_monitor_command,
    definition_findings,
    execution_role_findings,
    schedule_findings,
)
from profiler.aws_account.doctor.findings import Finding, note
from profiler.aws_account.doctor.job_definition_checks import job_definition_findings
from profiler.aws_account.family_monitors import (
    FamilyMonitor,
    MonitorState,
    plan_monitors,
    read_monitors,
)
from profiler.aws_account.registered_definitions import TaskDefinitions, missing_definition_named
from profiler.aws_account.report_prerequisites import ReportPathReader
from profiler.aws_account.rollout import Rollout
from profiler.aws_account.scheduled_targets import has_due_times, schedule_of
from profiler.cli.options import SourceOptions
from profiler.cli.printing import UNKNOWN, warn, write_json_lines
from profiler.cli.progress import progress_row
from profiler.cli.styled_text import Span, sentences_about, write_lines, write_paragraph
from profiler.cli.tables import aligned_table, folding_columns, table_width
from profiler.cli.taskdef_command import read_input
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_log_groups import defined_log_places, log_trust, page_reader
from profiler.cli.wiring.open_past_runs import open_source, source_names
from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import format_local, local_zone, parse_ns, with_local_times
from profiler.record.units import format_count
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.record_files import STANDARD_INPUT, source_name
from profiler.runs.past_runs.run_source import RunSource
from profiler.task_definitions.definition_json import read_document
from profiler.task_definitions.definition_texts import read_definitions, read_job
from profiler.task_definitions.monitor_container import default_image

_LEVEL_STYLES = {"ok": "", "note": "yellow", "problem": "red"}
# add-monitor --cluster changes no family in these states.
_LEFT_ALONE: frozenset[MonitorState] = frozenset({"service", "owned", "impossible", "instance"})
# The place of a command for several families.
_SHARED_COMMAND = "\0"
_TITLES = ("Family", "Monitor", "Role", "Log group", "Forwarded to")
_TOPICS = ("", "monitor", "role", "log group", "subscription", "report")


def findings_of_file(file: str) -> Iterator[Finding]:
    """The findings about the definition in a file, a template or standard input, or about a job
    definition of AWS Batch.

    Raises TaskProfilerError.
    """
    data = read_input(file)
    name = source_name(file)
    in_place = () if file == STANDARD_INPUT else ("--in-place",)
    command = command_line("taskdef", "add-monitor", file, *in_place)
    job = read_job(data, name)
    if job is not None:
        yield from job_definition_findings(job, command)
        return
    for definition, arn in read_definitions(data, name):
        yield from definition_findings(definition, command, default_image=default_image(arn))


def findings_of_family(family: str, options: SourceOptions, now_ns: int) -> Iterator[Finding]:
    """The findings about a family's latest revision in ECS, or ``family:revision``: those of the
    definition, those of ``--cluster``, and those of its pinned schedules.
    """
    open_client = open_clients(options.region, options.profile)
    definitions = TaskDefinitions(open_client("ecs"))
    name = family_of(family)
    revision = _describe_definition(definitions, family)
    document = read_document(revision, family)

    def describe(asked: str) -> bytes:
        return revision if asked == name else definitions.describe(asked)

    problems: list[str] = []
    rollout = plan_monitors(
        open_client,
        scheduled=False,
        now_ns=now_ns,
        on_problem=problems.append,
        services=True,
        read_revision=describe,
    )
    targets = rollout.starters.starting_targets
    unread_targets = [*problems]
    problems.clear()
    (monitor,) = read_monitors(rollout, (name,))
    of_definition: list[Finding] = []
    if monitor.state == "owned":
        yield note(MONITOR, " ".join(monitor.planned.notes))
    else:
        of_definition += definition_findings(
            document.definition,
            f"{add_monitor_command(name)} --register",
            default_image=default_image(document.arn),
        )
    yield from of_definition
    yield from (note(SCHEDULES, sentence) for sentence in unread_targets)
    paths = ReportPathReader(open_client, partial(open_clients, profile=options.profile))
    health = family_health(monitor, paths)
    yield from execution_role_findings(monitor.planned, paths, "ok")
    checks = _make_cluster_checks(rollout, [monitor], [health], options, now_ns)
    said = {finding.text for finding in of_definition}
    for finding in checks.account_findings(monitor, health):
        if finding.text not in said:
            yield finding
    for sentence in sorted({*problems, *paths.problems}):
        yield note(UNKNOWN_PART, sentence)
    yield from schedule_findings(monitor.planned, targets)


def _describe_definition(definitions: TaskDefinitions, family: str) -> bytes:
    """ECS's response for a family. Raises TaskProfilerError, with the name that may be meant."""
    with missing_definition_named(definitions, family):
        return definitions.describe(family)


def check_cluster(cluster: str, options: SourceOptions, now_ns: int, *, as_json: bool) -> int:
    """Print the families of the cluster and their problems; return the exit code.

    TaskProfilerError without any.
    """
    open_client = open_clients(options.region, options.profile)
    rollout = plan_monitors(
        open_client, (cluster,), scheduled=False, now_ns=now_ns, on_problem=warn
    )
    families = rollout.selected_families()
    paths = ReportPathReader(open_client, partial(open_clients, profile=options.profile))
    monitors: list[FamilyMonitor] = []
    healths: list[FamilyHealth] = []
    with progress_row() as show:
        for monitor in read_monitors(rollout, families):
            monitors.append(monitor)
            healths.append(family_health(monitor, paths))
            show("Reading families", len(monitors) / len(families))
    checks = _make_cluster_checks(rollout, monitors, healths, options, now_ns)
    judged = tuple(checks.judge_families(monitors, healths))
    for sentence in sorted(paths.problems):
        warn(sentence)
    if as_json:
        write_json_lines(judged)
    else:
        write_lines(_family_table_lines(judged, cluster, table_width()))
        for sentence in container_insights_sentences(open_client, (cluster,)):
            write_paragraph(sentence)
    wrong = sum(health.level == "problem" for health in judged)
    warn(f"{format_count(len(judged), 'family')}: {wrong or 'none'} with a problem.")
    return 1 if wrong else 0


def _make_cluster_checks(
    rollout: Rollout,
    monitors: Sequence[FamilyMonitor],
    healths: Sequence[FamilyHealth],
    options: SourceOptions,
    now_ns: int,
) -> ClusterChecks:
    """The checks of families, with the last reports of those that have some."""
    reports = _last_reports(monitors, healths, options, now_ns)
    is_indexed = bool(source_names(options, "search")) or any(
        health.forwarded_to for health in healths
    )
    schedules = [
        schedule_of(target)
        for target in rollout.starters.scheduled_targets
        if has_due_times(target)
    ]
    return ClusterChecks(schedules, reports, now_ns, is_indexed=is_indexed)


def _last_reports(
    monitors: Sequence[FamilyMonitor],
    healths: Sequence[FamilyHealth],
    options: SourceOptions,
    now_ns: int,
) -> LastReportsByFamily | None:
    """The last reports; None, and a warning, if they are unreadable.

    A group is read until its families have one.
    """
    arn = next(
        (monitor.planned.revision_arn for monitor in monitors if monitor.planned.revision_arn), ""
    )
    open_client = open_clients(options.region, options.profile)
    pages = LimitedPageReader(page_reader(open_client))
    trust = log_trust(open_client)
    planned = [monitor.planned for monitor in monitors]
    places = defined_log_places(
        open_client, {one.family: one.document.definition for one in planned}
    )

    def open_group(group: str) -> RunSource:
        source = LogGroupRuns(pages, (group,), now_ns, trust=trust)
        source.places = places
        return source

    reporting = [health for health in healths if health.has_reports]
    newest_ns: dict[str, int] = {}
    try:
        with progress_row() as show:
            show("Looking for the last reports", None)
            for source, families in _sources_of_reports(reporting, options, open_group):
                newest_in_source = newest_reports(source, families, arn, now_ns)
                for family, at_ns in newest_in_source.items():
                    newest_ns[family] = max(at_ns, newest_ns.get(family, 0))
    except TaskProfilerError as error:
        warn(f"The last reports are unknown. {error}")
        return None
    return LastReportsByFamily(newest_ns=newest_ns, unread=frozenset(pages.unread))


def _sources_of_reports(
    reporting: Sequence[FamilyHealth],
    options: SourceOptions,
    open_group: Callable[[str], RunSource],
) -> Iterator[tuple[RunSource, frozenset[str]]]:
    """The sources that have reports of some of the families: the search cluster, else each log
    group that can be read.
    """
    urls = source_names(options, "search")
    if urls:
        if reporting:
            families = frozenset(health.family for health in reporting)
            yield open_source(replace(options, sources=urls)), families
        return
    families_by_group: defaultdict[str, set[str]] = defaultdict(set)
    readable: set[str] = set()
    for health in reporting:
        families_by_group[health.log_group or ""].add(health.family)
        if health.log_group and health.log_group_exists and health.log_group_class == STANDARD:
            readable.add(health.log_group)
    for group in sorted(readable):
        yield open_group(group), frozenset(families_by_group[group])


def _family_table_lines(
    judged: Sequence[FamilyHealth], cluster: str, width: int | None
) -> Iterator[tuple[Span, ...]]:
    columns = folding_columns(*_TITLES, f"Last report ({local_zone()})")
    yield from aligned_table(columns, map(_family_cells, judged), width=width)
    yield from sentences_about(_shared_sentences(judged, cluster), width)


def _shared_sentences(
    judged: Sequence[FamilyHealth], cluster: str
) -> Iterator[tuple[str, str, str]]:
    """The sentences about the families, with one command for those with the same problem: for
    the whole cluster if it changes no other family.
    """
    families: dict[tuple[str, str], list[str]] = {}
    for health in judged:
        for finding in health.findings:
            sentence = f"{with_local_times(finding.text)} {finding.advice or ''}".rstrip()
            shared = sentence.replace(add_monitor_command(health.family), _SHARED_COMMAND)
            families.setdefault((shared, finding.level), []).append(health.family)
    changed = [health for health in judged if health.monitor not in _LEFT_ALONE]
    everyone = [health.family for health in changed]
    with_policy = [health.family for health in changed if health.permission is not None]
    for (shared, level), names in families.items():
        command = add_monitor_command(*names)
        is_of_policies = names == with_policy and f"{_SHARED_COMMAND} --attach-policy" in shared
        if len(names) > 1 and (names == everyone or is_of_policies):
            command = add_monitor_command(clusters=(cluster,))
        for name in names:
            yield name, shared.replace(_SHARED_COMMAND, command), _LEVEL_STYLES[level]


def _family_cells(health: FamilyHealth) -> Sequence[str | Span]:
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
