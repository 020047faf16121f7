"""Diagnoses the families of a cluster: will each run have a report, and does it arrive?"""

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.family_monitors import FamilyMonitor, MonitorState
from profiler.aws_account.report_paths import Permission, ReportPaths
from profiler.core.ecs_terms import AWSLOGS, arn_region
from profiler.core.json_fields import text
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.doctor.findings import Finding, Level, note, problem
from profiler.doctor.last_reports import DAYS, LastReports
from profiler.schedules.due_times import ScheduleExpressionError, last_due
from profiler.schedules.schedule_model import Schedule
from profiler.schedules.task_matching import family_of_schedule
from profiler.task_definitions.containers import Container, read_containers

_DAY_NS = 86_400 * NS_PER_SECOND
_MONITOR, _SCHEDULES, _ROLE, _LOG = "monitor", "schedules", "role", "log group"
_SUBSCRIPTION, _REPORT = "subscription", "report"
_REPORTING: frozenset[MonitorState] = frozenset({"current", "outdated", "wrapper"})


class FamilyHealth(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A family of the cluster, as ``doctor --cluster --json`` prints it.

    Attributes:
        family: The family's name.
        monitor: The state of its monitor.
        role: The name of the task role.
        permission: Whether the role may write the report; None: it need not.
        log_group: Where the report goes.
        log_group_exists: None: unknown.
        forwarded_to: The functions and streams that get the reports of the log group.
        last_report: The time of the newest report; None: none was found.
        findings: What is wrong.
    """

    family: str
    monitor: MonitorState
    role: str | None = None
    permission: Permission | None = None
    log_group: str | None = None
    log_group_exists: bool | None = None
    forwarded_to: tuple[str, ...] = ()
    last_report: str | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def has_reports(self) -> bool:
        """Whether its runs leave reports, if the rest is right."""
        return self.monitor in _REPORTING

    @property
    def level(self) -> Level:
        """The worst level of the findings."""
        levels = {finding.level for finding in self.findings}
        return "problem" if "problem" in levels else "note" if "note" in levels else "ok"


def family_health(monitor: FamilyMonitor, paths: ReportPaths) -> FamilyHealth:
    """What AWS says about a family, without findings."""
    health = FamilyHealth(family=monitor.family, monitor=monitor.state)
    if not (health.has_reports or monitor.state == "missing"):
        return health
    planned, is_wrapper = monitor.planned, monitor.state == "wrapper"  # a wrapper needs no permission
    role = (text(planned.definition.get("taskRoleArn")) or "").rpartition("/")[2] or None
    streams = frozenset[str]() if is_wrapper else planned.streams
    batch = _batch(monitor)
    group = planned.log_group
    if is_wrapper or group is None:
        group = text(batch.log_options.get("awslogs-group")) if batch.log_driver == AWSLOGS else None
    is_created = monitor.state == "missing" and group == planned.log_group  # by --register
    here = arn_region(planned.revision_arn)
    is_here = batch.log_options.get("awslogs-region", here) == here
    found = paths.log_group(group) if group is not None and is_here and not is_created else None
    exists = None if found is None else found.exists
    return replace(
        health,
        role=role,
        permission=None if not streams else "no role" if role is None else paths.permission(role, streams),
        log_group=group,
        log_group_exists=exists or (None if batch.log_options.get("awslogs-create-group") == "true" else exists),
        forwarded_to=() if found is None else found.forwarded_to,
    )


def _batch(monitor: FamilyMonitor) -> Container:
    containers = read_containers(monitor.planned.definition)
    named = (one for one in containers if one.name == monitor.planned.batch or one.wraps_batch)
    return next(named, Container(name=""))


class ClusterChecks:
    """Judges the families.

    Args:
        cluster: The cluster's name, for the commands in the advice.
        schedules: The schedules of the account.
        reports: The last reports.
        now_ns: The time.
        is_indexed: Whether a log group without a subscription is wrong, because reports are indexed.
    """

    def __init__(
        self,
        cluster: str,
        schedules: Iterable[Schedule],
        reports: LastReports,
        now_ns: int,
        *,
        is_indexed: bool,
    ) -> None:
        self._add = f"task-profiler taskdef add-monitor --cluster {quote(cluster)}"
        self._reports = reports
        self._now_ns = now_ns
        self._is_indexed = is_indexed
        self._schedules: dict[str, list[Schedule]] = {}
        for schedule in schedules:
            self._schedules.setdefault(family_of_schedule(schedule), []).append(schedule)

    def judged(self, monitors: Sequence[FamilyMonitor], healths: Sequence[FamilyHealth]) -> Iterator[FamilyHealth]:
        """The families with their last reports and the findings."""
        for monitor, health in zip(monitors, healths, strict=True):
            newest_ns = self._reports.newest_ns.get(health.family)
            findings = (
                *self._monitor_findings(monitor, health),
                *self._role_findings(health),
                *self._log_findings(health),
                *self._report_findings(monitor, health),
            )
            yield replace(health, last_report=None if newest_ns is None else format_ms(newest_ns), findings=findings)

    def _monitor_findings(self, monitor: FamilyMonitor, health: FamilyHealth) -> Iterator[Finding]:
        notes = " ".join(monitor.planned.notes)
        match monitor.state:
            case "missing":
                advice = f"Add it: {self._add} --register."
                yield problem(_MONITOR, "There is no monitor, so the runs have no report.", advice)
            case "outdated":
                what = "The monitor differs from the one that would be added today."
                yield problem(_MONITOR, what, f"Update it: {self._add} --register.")
            case "impossible":
                yield problem(_MONITOR, f"The monitor cannot be added. {notes}")
            case "unknown":
                yield problem(_MONITOR, notes)
        for target in monitor.planned.unmonitored if health.has_reports else ():
            yield problem(
                _SCHEDULES,
                f"The {target.title} is pinned to {target.pinned_revision}, which has no monitor.",
                f"Move it: {self._add} --register --update-schedules; by hand if that skips it.",
            )

    def _role_findings(self, health: FamilyHealth) -> Iterator[Finding]:
        if health.permission == "no role":
            what = "has no task role" if health.role is None else f"has a task role that does not exist ({health.role})"
            yield problem(_ROLE, f"The task definition {what}.", "Give it a role, or use add-monitor --log-group.")
        elif health.permission == "denied":
            yield problem(
                _ROLE,
                f"The task role {health.role} does not allow logs:PutLogEvents for the report.",
                f"Allow it: {self._add} --attach-policy.",
            )

    def _log_findings(self, health: FamilyHealth) -> Iterator[Finding]:
        if health.log_group_exists is False:
            yield problem(
                _LOG,
                f"The log group {health.log_group} does not exist, so ECS starts no task.",
                f"Create it: aws logs create-log-group --log-group-name {quote(health.log_group or '')}.",
            )
        elif health.log_group_exists and not health.forwarded_to and health.has_reports and self._is_indexed:
            yield problem(
                _SUBSCRIPTION,
                f"No subscription of the log group {health.log_group} forwards reports.",
                "Subscribe all: task-profiler setup stack --all-log-groups.",
            )

    def _report_findings(self, monitor: FamilyMonitor, health: FamilyHealth) -> Iterator[Finding]:
        reports = self._reports
        if not health.has_reports or not reports.is_known or health.family in reports.newest_ns:
            return
        if health.log_group in reports.unread:
            yield note(_REPORT, f"Looking for reports in {health.log_group} takes too long.", "Use --elasticsearch.")
            return
        due_ns = self._missing_due(monitor)
        if due_ns is None:
            yield note(_REPORT, f"There is no report of the last {DAYS} days.")
        else:
            yield problem(
                _REPORT,
                f"A run was due at {format_ms(due_ns)}, and there is no report of the last {DAYS} days.",
                "See why: task-profiler schedules, then docs/troubleshooting.md.",
            )

    def _missing_due(self, monitor: FamilyMonitor) -> int | None:
        """A due time of more than a day ago, after the revision was registered."""
        document = monitor.planned.document
        if document is None or document.registered_ns is None:
            return None
        since_ns = max(document.registered_ns, self._now_ns - DAYS * _DAY_NS)
        for schedule in self._schedules.get(monitor.family, ()):
            try:
                due_ns = last_due(schedule, self._now_ns - _DAY_NS) if schedule.is_enabled else None
            except ScheduleExpressionError:
                continue
            if due_ns is not None and due_ns > since_ns:
                return due_ns
        return None
