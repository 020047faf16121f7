"""Whose word counts: decides whether a line of CloudWatch Logs may speak for a task.

The forwarder and every reader of log groups ask this module. It is the threat model.

Who is heard: everybody whose output is in a log group that is subscribed or read. With
``--all-log-groups`` that includes a web function that logs the body of a request, so everybody on
the internet. Nothing in a line is proof of its writer. CloudWatch Logs alone vouches for three
things, which a writer cannot choose in the text of a line: the account of the log group, the name
of the log stream, and the timestamp, which is at most 14 days old and 2 hours ahead.

- **A task's stream.** ECS names the streams of awslogs ``PREFIX/CONTAINER/TASK-ID``. Such a stream
  speaks for this task alone, and for this container alone; the stream of the container
  ``task-monitor`` speaks for all containers of its task. No sidecar speaks for the batch, whatever
  the line says of it. What runs in a container called ``task-monitor`` is the monitor: its report
  of another container is unconfirmed until the task's event, which names the containers.
- **The stream of an instance monitor** speaks for the tasks of its own cluster and account, in its
  own log group alone. The group is not enough: every task definition can name it. The stream is
  ``PREFIX/task-monitor/TASK-ID``, or the container's id, and ECS says that this task or container
  is one of the monitor's family (:class:`MonitorTasks`); where it is another's, the stream is an
  ordinary one. Where ECS does not know it any more, the line is unconfirmed for good. A report is
  confirmed by the task's event, if the task ran on EC2, and never replaces one from the task's own
  stream; a notice counts if ECS says that the task is on EC2. A reader of log groups finds the
  monitors by the DAEMON services of the clusters, and lists what their streams say of families
  with another log driver than awslogs; nobody acts on it.
- **A stream named by Docker's container id**: awslogs without a prefix, on EC2. Its name contains
  no task, so the line is unconfirmed until the task's event names this container id
  (``runtimeId``).
- **A trusted log group** (``TRUSTED_LOG_GROUPS``), whose streams have other names, is its owner's
  decision. Its lines stay unconfirmed. Streams of tasks in it speak for their task alone.
- **Any other stream is not a task's**: its lines are *untrusted*. They are counted, and neither
  indexed nor kept as failures, because an outsider must not fill the failure queue, either.

A line is also untrusted if its account is not the log group's, or its task's ARN does not agree
with its task, account and cluster. A line without an account is the log group's account's.

**Times are CloudWatch's.** The start of a run names its index. A line is *invalid* if its time or
its end is more than a day from the timestamp, if its start is more than a day after the timestamp,
or if it took more than a day to start. A report is also invalid if its start is more than 60 days
before its end. A checkpoint or notice of a batch that has run for longer is not: it would be a
failure each minute. Their indices lie at most 60 days before their own time. So the lines of a
stream can name at most four monthly or 79 daily indices of each kind, whoever writes them. An
invalid line comes from a stream that may speak for its task: it is kept as a failure.

**A notice about a schedule** belongs to no task. A reader counts it from the log group of a stack's
watch_schedules function, whose name ends in ``-watch-schedules``, and from trusted groups. In a
function's log group only the streams of Lambda are the function's, ``YYYY/MM/DD/[VERSION]ID``:
every task definition can name this group.

**An act needs more.** A line names its family itself. ``taskdef resize`` counts a line of a log
group only where the newest definition of this family sends it: in its group and under its prefix
(``profiler.runs.past_runs.log_places``). Any definition can name the same place, so to register it
also needs the word of ECS: a line of task_stopped about the task and its family
(``profiler.runs.past_runs.report_agreement``).

Not defended: a batch can lie about its own numbers, because it shares the monitor's role and log
stream. Families that share a group, a prefix and the name of a container can resize each other by
files (``--apply``), and where ``--believe-logs`` is given.
Whoever may call PutLogEvents on a task's stream counts as this task, and whoever may
choose the names of streams in an account as all of its tasks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import (
    MAX_RUN_LENGTH,
    MONITOR_NAME,
    arn_parts,
    cluster_name,
)
from profiler.core.text import split_names, words_if_known
from profiler.core.timestamps import parse_datetime
from profiler.record.family_identity import matches_any
from profiler.record.notice_model import NoticeLine
from profiler.record.record_model import CHECKPOINT, Record, Report
from profiler.record.report_head import RecordHead, ReportHead
from profiler.record.stacks_line import StacksLine

MAX_CLOCK_DIFFERENCE = timedelta(days=1)
MAX_INIT_MS = 86_400_000

# PREFIX/CONTAINER/TASK-ID; the prefix may contain slashes. A task id is 32 hexadecimal digits, in
# old accounts with dashes. Streams of Lambda functions and of other programs have the same number
# of parts.
_TASK_STREAM = re.compile(
    r".+/([A-Za-z0-9_-]{1,255})/([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
    re.DOTALL,
)
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
# YYYY/MM/DD/[VERSION]ID; in a log group that the function's configuration names, as the stack's
# does, YYYY/MM/DD/FUNCTION[VERSION][ID].
# https://docs.aws.amazon.com/lambda/latest/dg/monitoring-cloudwatchlogs-loggroups.html
# It cannot be a task's: awslogs adds /CONTAINER/TASK-ID to a prefix.
_LAMBDA_STREAM = re.compile(
    r"[0-9]{4}/[0-9]{2}/[0-9]{2}/([A-Za-z0-9_-]*)\[[A-Za-z0-9$_-]+\]\[?[A-Za-z0-9-]+\]?"
)
_WATCH_GROUP = re.compile(r"/aws/lambda/[A-Za-z0-9-]+-watch-schedules")
# setup stack gives it this name.
_MONITOR_GROUP = re.compile(r"/ecs/[A-Za-z0-9-]+-instance-monitor")
_TASK_RESOURCE = "task/"
_NAMES_WITH_CLUSTER = 3  # task/CLUSTER/ID; in an old account task/ID
_EPOCH = datetime.fromtimestamp(0, UTC)
_MAX_SHOWN_LENGTH = 100

# What vouches for a line.
Voucher = Literal[
    "task-stream",
    "monitor-stream",
    "instance-monitor",
    "defined-monitor",
    "unproven-monitor",
    "container-id",
    "trusted-group",
]
# CloudWatch Logs itself vouches for the task; of the others only the task's event can.
CONFIRMING_VOUCHERS = frozenset({"task-stream", "monitor-stream"})
# An instance monitor: ECS knows it, or its definition names the stream.
MONITOR_VOUCHERS = frozenset({"instance-monitor", "defined-monitor"})
# Whose runs count in advice without an event: those of the task's own streams, those of an instance
# monitor, and those that the owner of their log group trusts.
_COUNTING_VOUCHERS = frozenset({*CONFIRMING_VOUCHERS, *MONITOR_VOUCHERS, "trusted-group"})


class InstanceMonitorGroup(Struct, frozen=True, kw_only=True):
    """The log group of an instance monitor, the cluster of its instance, and of its task definition
    the family and the prefix of its stream; None if that is unknown.
    """

    account_id: str | None
    log_group: str
    cluster: str | None
    family: str | None = None
    stream_prefix: str | None = None


class MonitorTasks(Protocol):
    """What ECS says of the tasks of instance monitors, and of those that they report."""

    def has_stream(self, monitor: InstanceMonitorGroup, log_stream: str) -> bool | None:
        """Whether a stream is the monitor's; None: ECS does not say, or not any more."""

    def is_on_ec2(self, monitor: InstanceMonitorGroup, id_of_task: str) -> bool:
        """Whether ECS says that a task of the monitor's cluster is on EC2."""


class TaskStream(Struct, frozen=True):
    """The container and the task that a log stream's name contains."""

    container: str
    task_id: str


def task_of_stream(log_stream: str) -> TaskStream | None:
    """Return whose stream it is; None if the name is not ``PREFIX/CONTAINER/TASK-ID``."""
    match = _TASK_STREAM.fullmatch(log_stream)
    return TaskStream(match[1], match[2]) if match else None


def is_container_id(log_stream: str) -> bool:
    """Whether a stream has the name that Docker gives it without a prefix: a container's id."""
    return bool(_CONTAINER_ID.fullmatch(log_stream))


def is_lambda_stream(log_group: str, log_stream: str) -> bool:
    """Whether a stream in a function's log group is one that Lambda made for this function.

    Only such streams are the function's: a task definition can name any group.
    """
    match = _LAMBDA_STREAM.fullmatch(log_stream)
    return match is not None and match[1] in ("", log_group.rpartition("/")[2])


def does_run_count(voucher: str | None, *, is_confirmed: bool | None = None) -> bool:
    """Whether a run counts in advice, comparisons, checks and charts; others are only listed.

    ``is_confirmed``: what the task's event says, None before it. Until then, what vouches for the
    line decides; None is the batch's own stream. Before an event, only the batch's word is there
    for a run of a made-up container in the monitor's stream: a document has it as unconfirmed.
    """
    if is_confirmed is None:
        return voucher is None or voucher in _COUNTING_VOUCHERS
    return is_confirmed or voucher == "trusted-group"


class LineClaim(Struct, frozen=True, kw_only=True):
    """What a line says about itself; None: it does not say.

    ``is_final``: it is a report, not the checkpoint or notice of a batch that runs. ``time``,
    ``started_at`` and ``finished_at`` are RFC 3339 texts.
    """

    task_id: str
    container: str
    account_id: str | None = None
    task_arn: str | None = None
    cluster: str | None = None
    time: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    init_duration_ms: float | None = None
    is_final: bool = False


def claim_of(line: Report | NoticeLine) -> LineClaim:
    """The claim of a report, a checkpoint or a notice."""
    return _claim_of_record(
        line.record,
        line.time,
        init_duration_ms=line.record.metrics.init_duration_ms,
        is_final=isinstance(line, Report) and line.type != CHECKPOINT,
    )


def claim_of_head(head: ReportHead) -> LineClaim:
    """The claim of a report or checkpoint of which only the head is decoded."""
    return _claim_of_record(head.record, head.time, is_final=head.type != CHECKPOINT)


def _claim_of_record(
    record: Record | RecordHead,
    time: str | None,
    *,
    is_final: bool,
    init_duration_ms: float | None = None,
) -> LineClaim:
    return LineClaim(
        task_id=record.task_id,
        container=record.container.name,
        account_id=record.account_id,
        task_arn=record.task_arn,
        cluster=record.cluster,
        time=time,
        started_at=record.started_at,
        finished_at=record.finished_at,
        init_duration_ms=init_duration_ms,
        is_final=is_final,
    )


def claim_of_stacks(line: StacksLine) -> LineClaim:
    """The claim of a line of call stacks, which has neither an account nor times."""
    return LineClaim(task_id=line.task_id, container=line.container)


class LineVerdict(Struct, frozen=True, kw_only=True):
    """Whether a line counts: one of the three is set.

    ``untrusted`` and ``invalid`` are sentences, "" if they are not.
    """

    voucher: Voucher | None = None
    untrusted: str = ""
    invalid: str = ""

    @property
    def counts(self) -> bool:
        return self.voucher is not None

    @property
    def is_confirmed(self) -> bool:
        """Whether CloudWatch Logs itself vouches for the task; else only the task's event can."""
        return self.voucher in CONFIRMING_VOUCHERS

    @property
    def awaits_container_id_check(self) -> bool:
        """Whether the task's event vouches for the line if the log stream is the ``runtimeId``
        of the line's container, or of the task's monitor.
        """
        return self.voucher == "container-id"


# The same for nearly all lines.
_OF_TASK_STREAM = LineVerdict(voucher="task-stream")
_OF_MONITOR_STREAM = LineVerdict(voucher="monitor-stream")
_OF_INSTANCE_MONITOR = LineVerdict(voucher="instance-monitor")
_OF_DEFINED_MONITOR = LineVerdict(voucher="defined-monitor")
_OF_UNPROVEN_MONITOR = LineVerdict(voucher="unproven-monitor")
_OF_CONTAINER_ID = LineVerdict(voucher="container-id")
_OF_TRUSTED_GROUP = LineVerdict(voucher="trusted-group")
_NO_TASK_STREAM = LineVerdict(
    untrusted="Its log stream is not a task's: the name is not PREFIX/CONTAINER/TASK-ID."
)


class StreamTrust(Struct, frozen=True, kw_only=True):
    """What one log stream vouches for. ``account_id``: the log group's; None if unknown.

    ``monitor`` is the name of the task's monitor. ``instance_monitor``: the one whose stream it is,
    or may be; ``is_proven``: ECS says so.
    """

    account_id: str | None
    monitor: str = MONITOR_NAME
    task: TaskStream | None = None
    is_container_id: bool = False
    instance_monitor: InstanceMonitorGroup | None = None
    is_proven: bool = False
    is_trusted_group: bool = False
    is_watch_group: bool = False

    @property
    def speaks_for_schedules(self) -> bool:
        """Whether a notice about a schedule in the stream can count."""
        return not self._is_of_task and (self.is_watch_group or self.is_trusted_group)

    @property
    def speaks_for_tasks(self) -> bool:
        """Whether any line of the stream can count."""
        return self._is_of_task or self.is_trusted_group

    @property
    def is_named_as_monitor(self) -> bool:
        """Whether the stream's name contains the container of an instance monitor."""
        return self.task is not None and self.task.container == MONITOR_NAME

    @property
    def _is_of_task(self) -> bool:
        return self.task is not None or self.is_container_id

    def judge_line(self, claim: LineClaim, timestamp_ms: int | None) -> LineVerdict:
        """Judge a line by its claim and CloudWatch's timestamp, in milliseconds since 1970.

        Without a timestamp, times are not judged.
        """
        verdict = self._judge_task_of_line(claim)
        if not verdict.counts:
            return verdict
        foreign = self._foreign_account_reason(claim) or _foreign_arn_reason(claim, self.account_id)
        if foreign:
            return LineVerdict(untrusted=foreign)
        if timestamp_ms is not None:
            invalid = _impossible_times_reason(claim, timestamp_ms)
            if invalid:
                return LineVerdict(invalid=invalid)
        return verdict

    def _judge_task_of_line(self, claim: LineClaim) -> LineVerdict:
        """What vouches for the line's task. The order matters: the narrowest comes first."""
        if self.instance_monitor is not None and not self._is_of_stream_task(claim):
            return self._judge_line_of_instance_monitor(self.instance_monitor, claim)
        if self.task is not None:
            return self._judge_line_of_task_stream(self.task, claim)
        if self.is_container_id:
            return _OF_CONTAINER_ID
        if self.is_trusted_group:
            return _OF_TRUSTED_GROUP
        return _NO_TASK_STREAM

    def _is_of_stream_task(self, claim: LineClaim) -> bool:
        """Whether a line is about the task that the stream's name contains."""
        return self.task is not None and self.task.task_id == claim.task_id

    def _judge_line_of_instance_monitor(
        self, monitor: InstanceMonitorGroup, claim: LineClaim
    ) -> LineVerdict:
        if monitor.cluster not in (None, cluster_name(claim.cluster)):
            return LineVerdict(
                untrusted="Its cluster is not the cluster of the log group's instance monitor."
            )
        if self.is_proven:
            return _OF_INSTANCE_MONITOR
        return _OF_UNPROVEN_MONITOR if monitor.stream_prefix is None else _OF_DEFINED_MONITOR

    def _judge_line_of_task_stream(self, stream: TaskStream, claim: LineClaim) -> LineVerdict:
        if claim.task_id != stream.task_id:
            return LineVerdict(
                untrusted=f"It contains task {_shortened_text(claim.task_id)}, "
                f"but its log stream belongs "
                f"to task {stream.task_id}."
            )
        if stream.container not in (claim.container, self.monitor):
            return LineVerdict(
                untrusted=f"It contains container {_shortened_text(claim.container)}, "
                f"but its log stream "
                f"belongs to container {_shortened_text(stream.container)}."
            )
        return _OF_TASK_STREAM if stream.container == claim.container else _OF_MONITOR_STREAM

    def _foreign_account_reason(self, claim: LineClaim) -> str:
        if not claim.account_id or self.account_id in (None, claim.account_id):
            return ""
        return (
            f"It contains account {_shortened_text(claim.account_id)}, but its log group "
            f"belongs to "
            f"account {_shortened_text(self.account_id or 'unknown')}."
        )


class TrustedGroups(Struct, frozen=True, kw_only=True):
    """The log groups that are known on purpose: of instance monitors, and globs of others.

    ``tasks`` None: ECS is not asked.
    """

    instance_monitors: tuple[InstanceMonitorGroup, ...] = ()
    globs: tuple[str, ...] = ()
    tasks: MonitorTasks | None = None

    def trust_in_stream(
        self,
        account_id: str | None,
        log_group: str,
        log_stream: str,
        *,
        monitor: str = MONITOR_NAME,
    ) -> StreamTrust:
        """What a log stream vouches for; ``account_id`` is its log group's, None if unknown.

        ``monitor``: the name of the task's monitor, where the task's definition is known.
        """
        trust = StreamTrust(
            account_id=account_id,
            monitor=monitor,
            task=task_of_stream(log_stream),
            is_container_id=is_container_id(log_stream),
            is_trusted_group=bool(self.globs) and matches_any(log_group, self.globs),
            is_watch_group=(
                bool(_WATCH_GROUP.fullmatch(log_group)) and is_lambda_stream(log_group, log_stream)
            ),
        )
        for known in self.instance_monitors:
            if (known.account_id, known.log_group) == (account_id, log_group):
                return self._trust_in_monitors_group(trust, known, log_stream)
        return trust

    def _trust_in_monitors_group(
        self, trust: StreamTrust, monitor: InstanceMonitorGroup, log_stream: str
    ) -> StreamTrust:
        """The trust in a stream of an instance monitor's group, which may be the monitor's."""
        prefix = words_if_known(f"{{}}/{MONITOR_NAME}/", monitor.stream_prefix)
        is_named = trust.is_named_as_monitor and log_stream.startswith(prefix)
        if not (is_named or trust.is_container_id):
            return trust
        is_monitors = None
        if self.tasks is not None:
            is_monitors = self.tasks.has_stream(monitor, log_stream)
        if is_monitors is False:
            return trust
        return replace(trust, instance_monitor=monitor, is_proven=is_monitors is True)


class AccountTrust(Struct, frozen=True, kw_only=True):
    """Which lines count for a reader of the log groups of one account and Region; None: it is
    unknown.

    Without an account nothing is confirmed; ``problem`` is why AWS did not say it, as a sentence.
    ``find_monitors`` asks ECS for the instance monitors, when a line needs them; None: it was.
    """

    account_id: str | None = None
    problem: str = ""
    region: str | None = None
    groups: TrustedGroups = TrustedGroups()
    find_monitors: Callable[[], Sequence[InstanceMonitorGroup]] | None = None

    def trust_in_stream(self, log_group: str, log_stream: str) -> StreamTrust:
        return self.groups.trust_in_stream(self.account_id, log_group, log_stream)

    def is_decided_by_monitors(
        self, trust: StreamTrust, log_group: str, verdict: LineVerdict
    ) -> bool:
        """Whether a line counts only if its stream is an instance monitor's, which is unknown."""
        if self.find_monitors is None:
            return False
        if trust.is_container_id:
            return bool(_MONITOR_GROUP.fullmatch(log_group))
        return trust.is_named_as_monitor and bool(verdict.untrusted)

    def trust_with_monitors(self, log_group: str) -> "AccountTrust":
        """The trust with the instance monitors that ECS has; in the log group that a stack made for
        one, also with a monitor that was removed.
        """
        monitors = [*self.groups.instance_monitors]
        if self.find_monitors is not None:
            monitors += self.find_monitors()
        known = {monitor.log_group for monitor in monitors}
        if _MONITOR_GROUP.fullmatch(log_group) and log_group not in known:
            monitors.append(
                InstanceMonitorGroup(account_id=self.account_id, log_group=log_group, cluster=None)
            )
        groups = replace(self.groups, instance_monitors=tuple(monitors))
        return replace(self, groups=groups, find_monitors=None)


def read_trusted_globs(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The globs of trusted log groups in ``TRUSTED_LOG_GROUPS``, separated by commas."""
    return split_names(environment.get("TRUSTED_LOG_GROUPS", ""))


def _foreign_arn_reason(claim: LineClaim, account_id: str | None) -> str:
    """The reason not to trust a line whose ARN is another task's, whose document and notices it
    would change; "" if there is none.
    """
    arn = claim.task_arn
    if arn is None or _agrees_with_arn(claim, arn, account_id):
        return ""
    return (
        f"Its ARN {_shortened_text(arn)} does not agree with its task, its cluster and the "
        "account of its log group."
    )


def _agrees_with_arn(claim: LineClaim, arn: str, account_id: str | None) -> bool:
    """Whether a line's ARN is that of its task, in its cluster and the account."""
    parts = arn_parts(arn)
    if not parts:
        return False
    _, _, service, _, account, resource = parts
    if service != "ecs" or not resource.startswith(_TASK_RESOURCE):
        return False
    names = resource.split("/")
    if names[-1] != claim.task_id or account_id not in (None, account or None):
        return False
    if len(names) != _NAMES_WITH_CLUSTER:
        return True
    return cluster_name(claim.cluster) in (None, names[1])


def _impossible_times_reason(claim: LineClaim, timestamp_ms: int) -> str:
    """The reason why a line's times cannot be those of its run; "" if they can.

    A time that is no time counts as absent.
    """
    arrived = _EPOCH + timedelta(milliseconds=timestamp_ms)
    written = parse_datetime(claim.time)
    finished = parse_datetime(claim.finished_at)
    started = parse_datetime(claim.started_at)
    for name, text, moment in (
        ("time", claim.time, written),
        ("end", claim.finished_at, finished),
    ):
        if moment is not None and abs(moment - arrived) > MAX_CLOCK_DIFFERENCE:
            return (
                f"Its {name} {_shortened_text(text or '')} is more than a day from the "
                f"timestamp of its log "
                "event."
            )
    if started is not None:
        if started - arrived > MAX_CLOCK_DIFFERENCE:
            return (
                f"Its start {_shortened_text(claim.started_at or '')} is more than a day after the "
                "timestamp of its log event."
            )
        end = finished or written or arrived
        if claim.is_final and end - started > MAX_RUN_LENGTH:
            return (
                f"Its start {_shortened_text(claim.started_at or '')} is more than "
                f"{MAX_RUN_LENGTH.days} days before its end."
            )
    if (claim.init_duration_ms or 0) > MAX_INIT_MS:
        return "It took more than a day to start."
    return ""


def _shortened_text(text: str) -> str:
    return text[:_MAX_SHOWN_LENGTH]
