"""Reads the schedules of an account and judges their last due times."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from profiler.aws_account.account_schedules import AccountSchedules
from profiler.aws_account.aws_errors import OpenClient
from profiler.aws_account.missed_reasons import MissedReasons
from profiler.aws_account.started_tasks import read_clusters
from profiler.cli.printing import warn
from profiler.core.clock import Clock
from profiler.core.ecs_terms import arn_account, arn_region, cluster_name, task_id
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND
from profiler.past_runs.past_tasks import past_tasks
from profiler.past_runs.run_source import RunSource
from profiler.record.family_identity import FamilyKey
from profiler.record.units import format_count
from profiler.schedules.due_outcomes import CHANGED, TOO_OLD, JudgedSchedule, as_refused, judge_last
from profiler.schedules.schedule_model import ClusterTasks, DueTime, Schedule
from profiler.schedules.task_matching import SKEW_NS, family_of_schedule

_GRACE_NS = 15 * 60 * NS_PER_SECOND  # as SCHEDULE_GRACE_MINUTES of the forwarder
_MAX_PAST_NS = 32 * 86_400 * NS_PER_SECOND
_MAX_PROBLEMS = 3
_CHANGES_UNKNOWN = "CloudTrail, which shows changes of rules, cannot be read, so the rule may have been changed."


def read_schedules(open_client: OpenClient, cluster: str | None) -> list[Schedule]:
    """The schedules that start tasks in the cluster, or in any. What cannot be read is a warning.

    Raises:
        TaskProfilerError: there is none, or nothing can be read.
    """
    found = AccountSchedules(open_client("events"), open_client("scheduler")).read()
    if found.problems and not found.schedules:
        raise TaskProfilerError(found.problems[0])
    for problem in found.problems[:_MAX_PROBLEMS]:
        warn(problem)
    if found.problems[_MAX_PROBLEMS:]:
        warn(f"{format_count(len(found.problems) - _MAX_PROBLEMS, 'more schedule')} could not be read.")
    schedules = [one for one in found.schedules if cluster in (None, cluster_name(one.cluster_arn), one.cluster_arn)]
    if schedules:
        return schedules
    where = "" if cluster is None else f" in the cluster {cluster}"
    check = "--region and --profile" if cluster is None else "--cluster, --region and --profile"
    raise TaskProfilerError(f"No schedule and no rule of EventBridge starts an ECS task{where}: check {check}.")


def family_key_of(schedule: Schedule) -> FamilyKey:
    """The family that a schedule starts, in the account and the Region of its cluster."""
    arn = schedule.cluster_arn
    return FamilyKey(family_of_schedule(schedule), arn_account(arn), arn_region(arn))


def judge_account(
    schedules: Sequence[Schedule],
    open_client: OpenClient,
    past: RunSource | None,
    clock: Clock,
    now_ns: int,
) -> list[JudgedSchedule]:
    """Judge the last due time of each schedule.

    Args:
        schedules: The schedules.
        open_client: Makes boto3's client of a service.
        past: Past runs with ECS's events, for due times that ECS has forgotten.
        clock: Waits between two calls of CloudTrail.
        now_ns: The time.
    """
    clusters = read_clusters(open_client("ecs"), {schedule.cluster_arn for schedule in schedules}, now_ns)
    judged = judge_last(schedules, clusters, now_ns=now_ns, grace_ns=_GRACE_NS)
    forgotten = [one for one in judged if any(due.reason == TOO_OLD for due in one.due_times)]
    if forgotten and past is not None:
        try:
            judged = _judged_with_past(schedules, clusters, forgotten, past, now_ns)
        except TaskProfilerError as error:
            warn(f"Due times of more than an hour ago are unknown. {error}")
    problems: set[str] = set()
    reasons = MissedReasons(
        lambda: open_client("cloudtrail"), lambda: open_client("sqs"), pause=clock.sleep, warn=problems.add
    )
    explained = [_with_reason(one, reasons, now_ns) for one in judged]
    for problem in sorted(problems):
        warn(problem)
    return explained


def _judged_with_past(
    schedules: Sequence[Schedule],
    clusters: dict[str, ClusterTasks],
    forgotten: Iterable[JudgedSchedule],
    source: RunSource,
    now_ns: int,
) -> list[JudgedSchedule]:
    """Judge with the tasks of past runs, too."""
    families = {family_key_of(one.schedule) for one in forgotten}
    oldest_ns = min(due.due_ns for one in forgotten for due in one.due_times) - SKEW_NS
    past = past_tasks(source, families, max(oldest_ns, now_ns - _MAX_PAST_NS))
    known = {arn: {task_id(task.arn) for task in cluster.tasks or ()} for arn, cluster in clusters.items()}
    merged = {}
    for arn, cluster in clusters.items():
        forgotten_tasks = [
            task for task in past.get(cluster_name(arn) or "", ()) if task_id(task.arn) not in known[arn]
        ]
        merged[arn] = cluster if cluster.tasks is None else replace(cluster, tasks=(*cluster.tasks, *forgotten_tasks))
    judged = judge_last(schedules, merged, now_ns=now_ns, grace_ns=_GRACE_NS)
    return [
        replace(
            one,
            due_times=tuple(_without_guess(due, known.get(one.schedule.cluster_arn, set())) for due in one.due_times),
        )
        for one in judged
    ]


def _without_guess(due: DueTime, known: set[str]) -> DueTime:
    """A past run does not tell when its task was created, so it does not tell that the task is late."""
    if due.outcome == "late" and due.task is not None and task_id(due.task.arn) not in known:
        return replace(due, outcome="unknown", reason=TOO_OLD, task=None)
    return due


def _with_reason(judged: JudgedSchedule, reasons: MissedReasons, now_ns: int) -> JudgedSchedule:
    """Add AWS's reason to a missed due time. One before a change of its rule is unknown."""

    def explained(due: DueTime) -> DueTime:
        if due.outcome not in ("missed", "late"):
            return due
        was_changed = reasons.was_changed(judged.schedule, due.due_ns, now_ns)
        if was_changed is not False:
            return replace(due, outcome="unknown", reason=CHANGED if was_changed else _CHANGES_UNKNOWN)
        return as_refused(due, reasons.find(judged.schedule, due.due_ns))

    return replace(judged, due_times=tuple(map(explained, judged.due_times)))
