"""Compares what arrived of a proof with what is known: one row for each assumption of this project.

A row that differs ends with the remedy of ``doctor``, which looks at the same family and stack.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from operator import attrgetter
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from profiler.aws_account.doctor.findings import Finding
from profiler.aws_account.proof.arrivals import DOCUMENTS, FUNCTION_LOG, ProofTask, WitnessLine
from profiler.aws_account.proof.check_results import (
    NO,
    NO_WITNESS,
    CheckResult,
    compare_values,
    reported_record_of,
    text_to_seconds,
    unknown_result,
)
from profiler.aws_account.proof.job_verdicts import (
    check_cluster_of_job,
    check_family_of_job,
    check_memory_of_command,
    check_report_names_job,
    check_stream_of_job,
)
from profiler.aws_account.proof.plan import ON_INSTANCE, ProofPlan, RunKind
from profiler.aws_account.proof.witness import FAILURE_EXIT_CODE, WRITTEN_BYTES
from profiler.aws_account.report_prerequisites import LogGroupState
from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import MONITOR_NAME
from profiler.core.optional_math import (
    all_known,
    difference,
    first_known,
    known,
    known_values,
    product,
    quotient,
)
from profiler.core.text import words_if_known
from profiler.core.timestamps import NS_PER_SECOND
from profiler.record.measured import AtLeast
from profiler.record.run_outcome import SIGKILL_EXIT_CODE
from profiler.record.stop_causes import outcome_of, says_unreached_network
from profiler.record.units import MIB, billed_time_ms, format_count, format_duration
from profiler.sizing.prices import PriceOverrides, cost_of

_BOTH: tuple[RunKind, ...] = ("tasks", "jobs")
_TASKS: tuple[RunKind, ...] = ("tasks",)
_JOBS: tuple[RunKind, ...] = ("jobs",)
RowState = Literal["ok", "differs", "not checked"]
_TOLERANCE = 0.02
_CPU_TOLERANCE_SECONDS = 0.1
_REPORT_SECONDS = 30.0  # the monitor has 25 s
_INIT_SECONDS = 1.0
_EXIT_CODES = {"failure": FAILURE_EXIT_CODE, "memory": SIGKILL_EXIT_CODE}
_SUCCESSES = ("success", ON_INSTANCE)
_OWN_MONITOR = ("success", "failure", "memory")
_ALL = (*_OWN_MONITOR, ON_INSTANCE)
_PERIODS = {True: 10.0, False: 1.0}  # seconds, by whether it is Fargate's
_PERIOD_TOLERANCE = 0.2
# Members that this project reads, and others that are known: of /task, of its containers, and of
# each container's statistics.
_READ: Mapping[str, frozenset[str]] = {
    "task": frozenset(["Cluster", "TaskARN", "Family", "Revision", "KnownStatus", "Containers"]),
    "container": frozenset(
        [
            "DockerId",
            "Name",
            "Image",
            "KnownStatus",
            "Limits",
            "CreatedAt",
            "StartedAt",
            "Type",
            "LogDriver",
            "LogOptions",
            "ContainerARN",
            "Labels",
        ]
    ),
    "stats": frozenset(["read", "cpu_stats", "memory_stats", "blkio_stats"]),
}
_KNOWN: Mapping[str, frozenset[str]] = {
    "task": frozenset(
        [
            "DesiredStatus",
            "Limits",
            "AvailabilityZone",
            "AvailabilityZoneID",
            "LaunchType",
            "PullStartedAt",
            "PullStoppedAt",
            "ExecutionStoppedAt",
            "EphemeralStorageMetrics",
            "ClockDrift",
            "FaultInjectionEnabled",
            "Group",
            "ServiceName",
            "VPCID",
            "Errors",
        ]
    ),
    "container": frozenset(
        [
            "DockerName",
            "ImageID",
            "DesiredStatus",
            "Volumes",
            "Ports",
            "Networks",
            "ExitCode",
            "FinishedAt",
            "Health",
            "RestartCount",
            "Snapshotter",
            "ClockDrift",
        ]
    ),
    "stats": frozenset(
        [
            "preread",
            "precpu_stats",
            "pids_stats",
            "num_procs",
            "storage_stats",
            "name",
            "id",
            "networks",
            "network_rate_stats",
            "os_type",
        ]
    ),
}


class ProofRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row of the table. ``detail`` has AWS's words, all others are this project's."""

    task: str
    check: str
    state: RowState
    expected: str = ""
    seen: str = ""
    detail: str | None = None
    remedy: str | None = None


class ProofCheck(Struct, frozen=True):
    """An assumption about some of the tasks.

    ``topics``: of doctor's findings that can explain a difference. ``needs_report``: it compares
    the report's values. ``kinds``: where it is made.
    """

    name: str
    scenarios: tuple[str, ...]
    judge: Callable[[ProofPlan, ProofTask], CheckResult]
    topics: tuple[str, ...] = ()
    needs_report: bool = True
    kinds: tuple[RunKind, ...] = _BOTH


def _check_start_of_batch(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    batch = text_to_seconds(task.started_at.get(task.container))
    before = difference(text_to_seconds(task.started_at.get(MONITOR_NAME)), batch)
    if before is None:
        return NO_WITNESS
    return CheckResult(before >= 0, "before the monitor", f"{before:.2f} s before it")


def _check_report_in_stream(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    assert task.run is not None  # noqa: S101  as in _record
    place = known(attrgetter("stream"), task.run.place) or ""
    expected = f"the batch's stream, within {_REPORT_SECONDS:.0f} s"
    if place != task.stream:
        return CheckResult(
            NO, expected, f"the stream of {place.rpartition('/')[0].rpartition('/')[2]}"
        )
    after = difference(
        text_to_seconds(task.run.report.time), text_to_seconds(reported_record_of(task).finished_at)
    )
    if after is None:
        return CheckResult(NO, expected, "a report without its times")
    return CheckResult(0 <= after <= _REPORT_SECONDS, expected, f"{after:.2f} s after the exit")


def _check_cpu_seconds(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    record = reported_record_of(task)
    started = text_to_seconds(record.started_at)
    duration_ms = record.metrics.duration_ms
    if not task.witness or started is None or duration_ms is None:
        return NO_WITNESS
    covered = first_known(record.sampling.cpu_covered_percent, 100.0)
    witnessed = _cpu_until(task.witness, started + duration_ms / 1000 * covered / 100)
    tolerance = _TOLERANCE * witnessed + _CPU_TOLERANCE_SECONDS
    return compare_values(record.metrics.cpu_seconds, witnessed, tolerance, "s")


def _cpu_until(lines: Sequence[WitnessLine], moment: float) -> float:
    """The witness's CPU time at a moment: between two lines it is used evenly."""
    for earlier, later in pairwise(lines):
        if earlier.time <= moment < later.time:
            share = (moment - earlier.time) / (later.time - earlier.time)
            return earlier.cpu_seconds + share * (later.cpu_seconds - earlier.cpu_seconds)
    return lines[-1].cpu_seconds


def _check_memory_peak(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    """A sampled peak is a lower bound."""
    needed = known_values(line.needed_bytes for line in task.witness)
    if not needed:
        return unknown_result("the batch cannot read its control group")
    metrics = reported_record_of(task).metrics
    needed_mb = max(needed) / MIB
    peak = metrics.memory_peak
    result = compare_values(peak.value, needed_mb, _TOLERANCE * needed_mb, "MB")
    if isinstance(peak, AtLeast):
        is_below = peak.value <= (1 + _TOLERANCE) * needed_mb
        return CheckResult(is_below, result.expected, peak.text("{:.2f} MB".format))
    return result


def _check_written_bytes(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    if not task.witness or not task.witness[-1].written_bytes:
        return NO_WITNESS
    seen = quotient(reported_record_of(task).metrics.block_write_bytes, MIB)
    return compare_values(seen, WRITTEN_BYTES / MIB, _TOLERANCE * WRITTEN_BYTES / MIB, "MiB")


def _check_network(plan: ProofPlan, task: ProofTask) -> CheckResult:
    metrics = reported_record_of(task).metrics
    seen = words_if_known("{} bytes received", metrics.network_rx_bytes) or "absent"
    if plan.network_mode == "host":
        return CheckResult(seen == "absent", "absent (host network)", seen)
    return CheckResult(bool(metrics.network_rx_bytes), "some bytes received", seen)


def _check_exit_code(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    expected = _EXIT_CODES.get(task.scenario, 0)
    of_ecs = task.exit_code
    of_report = reported_record_of(task).exit_code
    seen = f"{of_report} in the report, {of_ecs} in ECS"
    return CheckResult(of_report == of_ecs == expected, str(expected), seen)


def _check_kill(plan: ProofPlan, task: ProofTask) -> CheckResult:
    expected = f"killed for memory at {plan.memory_mb} MB"
    record = reported_record_of(task)
    limit = record.metrics.memory_size_mb
    cause = outcome_of(record, task.event_end).cause
    if task.ended:
        cause = task.ended.get("outcome", task.ended.get("stopCategory"))
    size = words_if_known("{:g} MB", limit) or "no limit"
    seen = f"{'killed for memory' if cause == 'oom' else cause} at {size}"
    return CheckResult(cause == "oom" and limit == plan.memory_mb, expected, seen)


def _check_statistics_period(plan: ProofPlan, task: ProofTask) -> CheckResult:
    sampling = reported_record_of(task).sampling
    period = _PERIODS[plan.is_on_fargate]
    seen = quotient(sampling.stats_period_ms, 1000)
    return compare_values(seen, period, period * _PERIOD_TOLERANCE, "s")


def _check_members(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    seen: dict[str, set[str]] = {}
    for line in task.witness:
        for kind, names in line.members.items():
            seen.setdefault(kind, set()).update(names)
    if not any(seen.values()):
        return NO_WITNESS
    differences = []
    for kind, read in _READ.items():
        names_seen = seen.get(kind, set())
        differences += [f"new {kind}.{name}" for name in names_seen - read - _KNOWN[kind]]
        differences += [f"no {kind}.{name}" for name in read - names_seen]
    return CheckResult(
        not differences, "those that are known", ", ".join(sorted(differences)) or "the same"
    )


def _check_init_duration(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    has_pull = any("PullStartedAt" in line.members.get("task", ()) for line in task.witness)
    batch = text_to_seconds(task.started_at.get(task.container))
    took = difference(batch, known(datetime.timestamp, task.end.pull_started_at))
    if took is None or not has_pull:
        return unknown_result("ECS shows no start of the pull")
    return compare_values(
        quotient(reported_record_of(task).metrics.init_duration_ms, 1000), took, _INIT_SECONDS, "s"
    )


def _check_end_of_monitor(_plan: ProofPlan, task: ProofTask) -> CheckResult:
    if not task.has_stopped:
        return CheckResult(NO, "exit code 0", "the task has not stopped")
    code = task.end.container_or_name_only(MONITOR_NAME).exit_code
    return CheckResult(code == 0, "exit code 0", f"exit code {code}")


def _check_event(plan: ProofPlan, task: ProofTask) -> CheckResult:
    """Whether ECS's event reached the functions, and the document is written and confirmed."""
    if not plan.has_stack and task.document is None:
        return unknown_result(plan.why_no_stack_checks)
    if plan.reads_documents:
        expected = "a confirmed document"
        if task.document is None:
            return CheckResult(NO, expected, "no document")
        seen = expected if task.document.is_confirmed else "a document that no event confirms"
        return CheckResult(task.document.is_confirmed, expected, seen)
    if "TaskStoppedFunctionName" not in plan.stack.outputs:
        return unknown_result("the stack has no task_stopped")
    if not task.ended:
        return CheckResult(NO, "a task.ended line", "none")
    is_indexed = bool(task.ended.get("indexed"))
    expected = "a document" if plan.indexes else "a task.ended line"
    return CheckResult(
        is_indexed or not plan.indexes, expected, "a document" if is_indexed else "no document"
    )


def _check_notice(plan: ProofPlan, task: ProofTask) -> CheckResult:
    if plan.why_notices_are_unlogged:
        return unknown_result(plan.why_notices_are_unlogged)
    if not plan.notifies_of(task.scenario):
        return unknown_result("the stack does not notify of it")
    posted = task.ended.get("notified")
    expected = "failure" if task.scenario in ("failure", "memory") else "success"
    return CheckResult(posted == expected, expected, str(posted or "none"))


def _check_cost(plan: ProofPlan, task: ProofTask) -> CheckResult:
    """The formula over ECS's times; two seconds of rounding are no difference."""
    if not plan.is_on_fargate:
        return unknown_result("a task on EC2 has no price of its own")
    end = task.end
    if not (end.pull_started_at and end.execution_stopped_at):
        return unknown_result("ECS shows no times")
    record = reported_record_of(task)
    billed = billed_time_ms(_moment_ns(end.pull_started_at), _moment_ns(end.execution_stopped_at))
    priced, slack = (
        cost_of(
            replace(record, metrics=replace(record.metrics, billed_duration_ms=ms)),
            PriceOverrides(),
        )
        for ms in (billed, 2000)
    )
    amounts_usd = all_known(priced.usd, slack.usd)
    if amounts_usd is None:
        return unknown_result("the Region's prices are unknown")
    expected, tolerance = (1000 * usd for usd in amounts_usd)
    return compare_values(product(record.cost.usd, 1000), expected, tolerance, "USD per 1,000 runs")


def _moment_ns(moment: datetime) -> int:
    return round(moment.timestamp() * NS_PER_SECOND)


CHECKS = (
    ProofCheck(
        "the batch starts without waiting for the monitor",
        ("success",),
        _check_start_of_batch,
        needs_report=False,
        kinds=_TASKS,
    ),
    ProofCheck("cluster", ("success",), check_cluster_of_job, needs_report=False, kinds=_JOBS),
    ProofCheck("family", ("success",), check_family_of_job, needs_report=False, kinds=_JOBS),
    ProofCheck("log stream", ("success",), check_stream_of_job, needs_report=False, kinds=_JOBS),
    ProofCheck("report", _ALL, _check_report_in_stream, ("role", "log group", "monitor")),
    ProofCheck("job", _ALL, check_report_names_job, kinds=_JOBS),
    ProofCheck("CPU time", _SUCCESSES, _check_cpu_seconds),
    ProofCheck("memory peak", _SUCCESSES, _check_memory_peak, kinds=_TASKS),
    ProofCheck("memory peak", _SUCCESSES, check_memory_of_command, kinds=_JOBS),
    ProofCheck("written bytes", _SUCCESSES, _check_written_bytes),
    ProofCheck("network", _SUCCESSES, _check_network, kinds=_TASKS),
    ProofCheck("exit code", _ALL, _check_exit_code),
    ProofCheck("verdict and limit", ("memory",), _check_kill, ("task_stopped",)),
    ProofCheck("period of the statistics", ("success",), _check_statistics_period, kinds=_TASKS),
    ProofCheck("members of the metadata", ("success",), _check_members, needs_report=False),
    ProofCheck("time to start", ("success",), _check_init_duration, kinds=_TASKS),
    ProofCheck(
        "end of the monitor", _OWN_MONITOR, _check_end_of_monitor, needs_report=False, kinds=_TASKS
    ),
    ProofCheck(
        "ECS's event",
        _ALL,
        _check_event,
        ("subscription", "stack", "forward_logs", "task_stopped", "queues"),
        needs_report=False,
    ),
    ProofCheck(
        "notification", _OWN_MONITOR, _check_notice, ("task_stopped", "queues"), needs_report=False
    ),
    ProofCheck("cost", ("success",), _check_cost),
)


_DID_NOT_RUN = "it did not run ({})"
SUBSCRIPTION = "subscription"
_OF_FUNCTIONS = ("ECS's event", "notification")
_REFUSED: Mapping[RunKind, str] = {
    "tasks": (
        "Correct what AWS names, or choose others: --like, --subnets, --security-groups, "
        "--task-role, --execution-role."
    ),
    "jobs": "Correct what AWS names, or choose others: --like, --execution-role.",
}
_NO_NETWORK: Mapping[RunKind, str] = {
    "tasks": (
        "The subnets lead neither to that service nor to its endpoint: name others with --subnets, "
        "or give them a NAT gateway, VPC endpoints, or the tasks a public address."
    ),
    "jobs": (
        "The subnets of the queue's compute environments lead neither to that service nor to its "
        "endpoint: give them a NAT gateway or VPC endpoints, or name with --like a job definition "
        "that assigns a public address."
    ),
}


def _markdown_remedy() -> str:
    command = command_line("setup", "proof", "--markdown")
    return f"This project assumes otherwise: please send the table, which {command} prints."


def task_rows(
    plan: ProofPlan,
    tasks: Sequence[ProofTask],
    problems: Mapping[str, str],
    wait_seconds: float,
) -> Iterator[ProofRow]:
    """The rows of all tasks, without those of the queues.

    ``problems``: why a source could not be read.
    """
    for task in tasks:
        reason = _why_not_run(task, wait_seconds)
        yield _task_row(plan, task, reason)
        for check in CHECKS:
            if task.scenario in check.scenarios and plan.kind in check.kinds:
                row = _check_row(plan, task, check, wait_seconds, has_run=not reason)
                source = DOCUMENTS if plan.reads_documents else FUNCTION_LOG
                if row.check in _OF_FUNCTIONS and row.state == "differs" and source in problems:
                    row = unreadable_row(row, problems[source])
                yield row


def unreadable_row(row: ProofRow, why: str) -> ProofRow:
    """The row of what cannot be read."""
    return ProofRow(
        task=row.task, check=row.check, state="not checked", seen="it cannot be read", detail=why
    )


def _task_row(plan: ProofPlan, task: ProofTask, reason: str) -> ProofRow:
    """Whether a task ran, or else the ``reason``; the cause of its end decides the remedy."""
    row = ProofRow(task=task.scenario, check="task", state="ok", expected="it ran", seen="it ran")
    if not reason:
        return row
    cause = "resources"  # a task that waits, waits for capacity
    if task.has_stopped:
        cause = task.event_end.cause
    elif task.failure and not _is_about_capacity(reason):
        cause = "refused"
    no_image = f"Run {command_line('setup', 'image')}, or name another image with --image."
    remedy = {"image": no_image, "resources": plan.capacity_remedy}.get(cause)
    if cause in ("image", "resources") and says_unreached_network(reason):
        remedy = _NO_NETWORK[plan.kind]
    seen = _DID_NOT_RUN.format(cause)
    return replace(row, state="differs", seen=seen, detail=reason, remedy=remedy)


def _is_about_capacity(reason: str) -> bool:
    return reason.startswith(("RESOURCE:", "AGENT", "Capacity")) or "container instance" in reason


def _why_not_run(task: ProofTask, wait_seconds: float) -> str:
    """Why the task of the proof did not run; "" if it did."""
    if task.failure or task.has_run:
        return task.failure
    if not task.has_stopped:
        return f"it was {task.state or 'unknown'} after {_duration_text(wait_seconds)}"
    return task.event_end.reason or "ECS gave no reason"


def _check_row(
    plan: ProofPlan, task: ProofTask, check: ProofCheck, wait_seconds: float, *, has_run: bool
) -> ProofRow:
    if not has_run:
        verdict = unknown_result("the task did not run")
    elif check.needs_report and task.run is None:
        verdict = CheckResult(NO, "a report", f"no report within {_duration_text(wait_seconds)}")
    else:
        verdict = check.judge(plan, task)
    states: Mapping[bool | None, RowState] = {True: "ok", False: "differs", None: "not checked"}
    return ProofRow(
        task=task.scenario,
        check=check.name,
        state=states[verdict.is_ok],
        expected=verdict.expected,
        seen=verdict.seen,
    )


def _duration_text(seconds: float) -> str:
    return (
        format_duration(seconds * 1000)
        if seconds % 60
        else format_count(round(seconds / 60), "minute")
    )


def queue_rows(
    before: Mapping[str, int], after: Mapping[str, int], with_own: Sequence[str]
) -> Iterator[ProofRow]:
    """The queues by their names in the stack. A message about these tasks differs; older ones are
    named.
    """
    for name, count in before.items():
        has_own = name in with_own
        seen = f"{format_count(count, 'message')} before this proof"
        if has_own:
            seen = f"{seen}, {after.get(name, count)} after it, some about its tasks"
        yield ProofRow(
            task="all",
            check=name,
            state="differs" if has_own else "ok",
            expected="no message about these tasks",
            seen=seen,
        )


def subscription_row(plan: ProofPlan, group: LogGroupState) -> ProofRow:
    """Whether the group's lines are delivered, as doctor looks at it."""
    row = ProofRow(
        task="all", check=SUBSCRIPTION, state="not checked", expected="it delivers reports"
    )
    if not plan.has_stack:
        return replace(row, expected="", seen=plan.why_no_stack_checks)
    if "ForwardLogsFunctionName" not in plan.stack.outputs:
        return replace(row, expected="", seen="the stack has no forward_logs")
    if group.exists is None or not group.is_forwarding_known:
        return replace(row, expected="", seen="it cannot be read")
    if group.forwarded_to:
        return replace(row, state="ok", seen="it delivers reports")
    return replace(row, state="differs", seen="none delivers reports")


def with_remedies(
    judged: Sequence[ProofRow], findings: Sequence[Finding], kind: RunKind
) -> Iterator[ProofRow]:
    """Each row that differs with a remedy: of doctor's problems, those that can explain it."""
    topics = {check.name: check.topics for check in CHECKS}
    for row in judged:
        if row.state != "differs" or row.remedy:
            yield row
            continue
        wanted = topics.get(row.check, ("queues",))
        if row.check == SUBSCRIPTION:
            wanted = (SUBSCRIPTION,)
        if row.seen.startswith("no report"):
            wanted = topics["report"]
        if row.check == "task":
            wanted = ("execution role", "role", "log group")
        sentences = []
        for topic in wanted:
            for finding in findings:
                if finding.level == "problem" and finding.topic == topic:
                    sentences.append(f"{finding.text} {finding.advice or ''}".rstrip())
        is_refused = row.check == "task" and row.seen == _DID_NOT_RUN.format("refused")
        without = _REFUSED[kind] if is_refused else _markdown_remedy()
        yield replace(row, remedy=" ".join(dict.fromkeys(sentences)) or without)
