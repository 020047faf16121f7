"""Diagnoses the families of a cluster: will each run have a report, and does it arrive?"""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.clusters_and_log_groups import STANDARD
from profiler.aws_account.doctor.definition_checks import (
    add_monitor_command,
    pinned_target_problems,
    start_problems,
)
from profiler.aws_account.doctor.findings import Finding, Level, note, problem
from profiler.aws_account.doctor.secret_checks import secret_problem_findings
from profiler.aws_account.family_monitors import FamilyMonitor, MonitorState
from profiler.aws_account.report_prerequisites import (
    LogGroupState,
    Permission,
    ReportPathReader,
    task_role,
)
from profiler.aws_account.started_tasks import AIRFLOW
from profiler.core.commands_to_copy import aws_command_line, command_line
from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_DAY, format_ms
from profiler.runs.past_runs.log_group_runs import ReadPages
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from profiler.schedules.due_times import ScheduleExpressionError, last_due
from profiler.schedules.schedule_model import Schedule
from profiler.task_definitions.containers import (
    DefinedContainer,
    calls_cloudwatch_logs,
    log_target,
    prints_report,
)

_MONITOR = "monitor"
_LOG = "log group"
_SUBSCRIPTION = "subscription"
_REPORT = "report"
_REPORTING: frozenset[MonitorState] = frozenset({"current", "outdated", "wrapper", "instance"})
DAYS = 8  # a weekly run, and a day
# The pages of each log group, for each of the three stretches of time that the source reads.
_MAX_PAGES = 5


class LastReportsByFamily(Struct, frozen=True, kw_only=True):
    """The newest reports by family. ``unread`` groups were not read to the end."""

    newest_ns: Mapping[str, int] = {}
    unread: frozenset[str] = frozenset()


class FamilyHealth(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A family of the cluster, as ``doctor --cluster --json`` prints it.

    ``permission`` None: it needs none.
    """

    family: str
    monitor: MonitorState
    role: str | None = None
    permission: Permission | None = None
    log_group: str | None = None
    log_group_exists: bool | None = None
    log_group_class: str = STANDARD
    is_forwarding_known: bool = True
    forwarded_to: tuple[str, ...] = ()
    last_report: str | None = None
    findings: tuple[Finding, ...] = ()  # at first the findings that need no other family

    @property
    def has_reports(self) -> bool:
        """Whether its runs leave reports if nothing else is wrong."""
        return self.monitor in _REPORTING

    @property
    def level(self) -> Level:
        levels = {finding.level for finding in self.findings}
        if "problem" in levels:
            return "problem"
        if "note" in levels:
            return "note"
        return "ok"


def family_health(monitor: FamilyMonitor, paths: ReportPathReader) -> FamilyHealth:
    """AWS's data of a family, with the findings about its image and its roles."""
    health = FamilyHealth(family=monitor.planned.family, monitor=monitor.state)
    if not (health.has_reports or monitor.state == "missing"):
        return health
    planned = monitor.planned
    has_own_monitor = monitor.state not in ("wrapper", "instance")
    role = task_role(planned.changed.definition)
    streams = planned.report_stream_arns if has_own_monitor else frozenset()
    permission = paths.may_role_write(role, streams)
    writer = _report_container(monitor)
    group = planned.added_monitor_log_group
    target = log_target(writer)
    if not has_own_monitor or not group or prints_report(writer.environment):
        group = target.group
    # --register will create it.
    is_created = monitor.state == "missing" and group == planned.added_monitor_log_group
    is_here = target.region in (None, arn_region(planned.revision_arn))
    is_made_by_ecs = writer.log_options.get("awslogs-create-group") == "true"
    group_state = LogGroupState(exists=None)
    if group and is_here and not is_created:
        group_state = paths.log_group(group)
    if is_made_by_ecs and not group_state.exists:
        group_state = replace(group_state, exists=None)
    findings = [
        *start_problems(planned, permission, paths, add_monitor_command(planned.family)),
        *secret_problem_findings(planned, paths),
    ]
    return replace(
        health,
        role=role,
        permission=permission,
        findings=tuple(findings),
        log_group=group,
        log_group_exists=group_state.exists,
        log_group_class=group_state.group_class,
        is_forwarding_known=group_state.is_forwarding_known,
        forwarded_to=group_state.forwarded_to,
    )


def _report_container(monitor: FamilyMonitor) -> DefinedContainer:
    """The container whose log stream contains the report: the batch, or a monitor that prints
    the report.
    """
    containers = monitor.planned.changed.containers
    for container in containers:
        if prints_report(container.environment):
            return container
    for container in containers:
        if container.name == monitor.planned.changed.batch or container.wraps_batch:
            return container
    return DefinedContainer(name="")


class ClusterChecks(Struct):
    """Judges the families of the cluster.

    ``is_indexed``: a log group without a subscription is wrong.
    """

    schedules: Sequence[Schedule]
    reports: LastReportsByFamily | None  # None: unknown
    now_ns: int
    is_indexed: bool

    def judge_families(
        self, monitors: Sequence[FamilyMonitor], healths: Sequence[FamilyHealth]
    ) -> Iterator[FamilyHealth]:
        """Each family with all of its findings."""
        for monitor, health in zip(monitors, healths, strict=True):
            newest_ns = None
            if self.reports is not None:
                newest_ns = self.reports.newest_ns.get(health.family)
            findings = (
                *self._monitor_findings(monitor, health),
                *self.account_findings(monitor, health),
            )
            yield replace(
                health,
                last_report=known(format_ms, newest_ns),
                findings=findings,
            )

    def account_findings(self, monitor: FamilyMonitor, health: FamilyHealth) -> Iterator[Finding]:
        """What the account lacks for the family's reports, and what neither the definition nor
        its schedules say.
        """
        present = monitor.planned.changed.old_monitor
        has_own_stream = present is not None and not calls_cloudwatch_logs(present.environment)
        is_present = monitor.state in ("current", "outdated", "instance")
        if is_present and AIRFLOW in monitor.planned.started_by and not has_own_stream:
            command = add_monitor_command(monitor.planned.family)
            yield problem(
                _MONITOR,
                (
                    "Airflow starts it, and reads XCom from the last line of the batch's log "
                    "stream: the report."
                ),
                "Send the report to the monitor's own stream: "
                f"{command} --report-stream monitor --register.",
            )
        yield from health.findings
        yield from self._log_findings(health)
        yield from self._report_findings(monitor, health)

    def _monitor_findings(self, monitor: FamilyMonitor, health: FamilyHealth) -> Iterator[Finding]:
        """Whether the monitor is there and current, and every schedule starts it."""
        notes = " ".join(monitor.planned.notes)
        register = f"{add_monitor_command(monitor.planned.family)} --register"
        match monitor.state:
            case "missing":
                what = "There is no monitor, so the runs have no report."
                yield problem(_MONITOR, what, f"Add it: {register}.")
            case "outdated":
                what = "The monitor differs from a newly added one."
                yield problem(_MONITOR, what, f"Update it: {register}.")
            case "owned":
                yield note(_MONITOR, notes)
            case "impossible":
                yield problem(_MONITOR, f"The monitor cannot be added. {notes}")
            case "unknown":
                yield problem(_MONITOR, notes)
        planned = monitor.planned
        if not health.has_reports:
            planned = replace(planned, unmonitored=())
        yield from dict.fromkeys(pinned_target_problems(planned).values())

    def _log_findings(self, health: FamilyHealth) -> Iterator[Finding]:
        if health.log_group_exists is False:
            words = ("logs", "create-log-group", "--log-group-name", health.log_group or "")
            advice = f"Create it: {aws_command_line(*words)}."
            yield problem(
                _LOG,
                f"The log group {health.log_group} does not exist, so ECS starts no task.",
                advice,
            )
        elif health.log_group_class != STANDARD:
            yield problem(
                _LOG,
                f"The log group {health.log_group} has the class {health.log_group_class}, so "
                "CloudWatch Logs does not forward its reports, and only Logs Insights reads them.",
                (
                    "Let the batch log to a group of the class Standard. The class of a group "
                    "cannot be changed."
                ),
            )
        elif (
            health.log_group_exists
            and health.is_forwarding_known
            and not health.forwarded_to
            and health.has_reports
            and self.is_indexed
        ):
            what = f"No subscription of the log group {health.log_group} forwards reports."
            yield problem(
                _SUBSCRIPTION,
                what,
                f"Add --log-group {quote(health.log_group or '')} to those of "
                f"{command_line('setup', 'stack')}, or subscribe all with --all-log-groups.",
            )

    def _report_findings(self, monitor: FamilyMonitor, health: FamilyHealth) -> Iterator[Finding]:
        """Whether a report of the last days is there, if one should be."""
        reports = self.reports
        is_read = health.has_reports and health.log_group_class == STANDARD
        if not is_read or reports is None or health.family in reports.newest_ns:
            return
        if health.log_group in reports.unread:
            what = f"Looking for reports in {health.log_group} takes too long."
            yield note(_REPORT, what, "Use --from https://HOST.")
            return
        due_ns = self._unreported_due_ns(monitor)
        if due_ns is None:
            yield note(_REPORT, f"There is no report of the last {DAYS} days.")
        else:
            what = (
                f"A run was due at {format_ms(due_ns)}, and there is no report of the last {DAYS} "
                "days."
            )
            reasons = command_line("schedules")
            yield problem(_REPORT, what, f"See why: {reasons}, then docs/troubleshooting.md.")

    def _unreported_due_ns(self, monitor: FamilyMonitor) -> int | None:
        """The last due time of more than a day ago, after the revision's registration and the
        schedule's change.
        """
        registered_ns = monitor.planned.document.registered_ns
        if registered_ns is None:
            return None
        since_ns = max(registered_ns, self.now_ns - DAYS * NS_PER_DAY)
        for schedule in self.schedules:
            if schedule.family != monitor.planned.family:
                continue
            try:
                due_ns = 0
                if schedule.is_enabled:
                    due_ns = last_due(schedule, self.now_ns - NS_PER_DAY) or 0
            except ScheduleExpressionError:
                continue
            if due_ns > max(since_ns, schedule.modified_ns or 0):
                return due_ns
        return None


class LimitedPageReader(Struct):
    """Reads only some pages of each log group, as one can have thousands.

    ``unread`` groups have more pages.
    """

    read_pages: ReadPages
    unread: set[str] = set()

    # Boto3's own.
    def __call__(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401
        for count, page in enumerate(self.read_pages(**parameters), start=1):
            yield page
            if count == _MAX_PAGES and page.get("nextToken"):
                self.unread.add(parameters["logGroupName"])
                return


def newest_reports(
    source: RunSource, families: frozenset[str], arn: str, now_ns: int
) -> Mapping[str, int]:
    """The start of the newest run of each family, in the account and Region of the ARN: of those
    that count, because any stream can name any family. Raises TaskProfilerError.
    """
    newest: dict[str, int] = {}
    since_ns = max(now_ns - DAYS * NS_PER_DAY, 0)
    for run in source.last_runs(RunFilter(since_ns=since_ns, only_counting=True), 1):
        record = run.record
        is_here = record.account_id in (None, arn_account(arn)) and record.region in (
            None,
            arn_region(arn),
        )
        if record.family in families and is_here and run.has_record:
            newest[record.family] = max(newest.get(record.family, 0), run.started_ns)
        if families <= newest.keys():
            break
    return newest
