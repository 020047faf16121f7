"""The tasks of past runs of which ECS's event named the starter: what ECS itself forgets after an hour."""

from collections.abc import Collection

from profiler.core.timestamps import NS_PER_MS
from profiler.past_runs.run_source import PastRun, RunFilter, RunSource, pattern_of
from profiler.record.family_identity import FamilyKey, family_key
from profiler.schedules.schedule_model import StartedTask


def past_tasks(source: RunSource, families: Collection[FamilyKey], since_ns: int) -> dict[str, list[StartedTask]]:
    """The tasks of the families by the name of their cluster.

    The start of a run stands for the creation of its task, which is earlier by the time that ECS needed.

    Raises:
        TaskProfilerError: The source cannot be read.
    """
    found: dict[str, dict[str, StartedTask]] = {}
    patterns = tuple(sorted({pattern_of(family.name) for family in families}))
    for run in source.runs(RunFilter(families=patterns, since_ns=since_ns)):
        if family_key(run.report.record) not in families:
            continue
        cluster, task = run.report.record.cluster, _task(run)
        if cluster is not None and task is not None:
            found.setdefault(cluster, {})[task.arn] = task
    return {cluster: list(tasks.values()) for cluster, tasks in found.items()}


def _task(run: PastRun) -> StartedTask | None:
    record = run.report.record
    if run.event is None or run.event.started_by is None or record.family is None or not run.started_ns:
        return None
    duration_ms = record.metrics.duration_ms
    return StartedTask(
        arn=record.task_arn or record.task_id,
        family=record.family,
        started_by=run.event.started_by,
        created_ns=run.started_ns,
        started_ns=run.started_ns,
        stopped_ns=run.started_ns + round((duration_ms or 0) * NS_PER_MS),
        exit_code=record.exit_code,
        stop_code=run.event.stop_code,
        stopped_reason=run.event.stopped_reason,
    )
