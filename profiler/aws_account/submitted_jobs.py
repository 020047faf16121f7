"""The jobs of AWS Batch that schedules submitted: by their queue, name and definition."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import cluster_name
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import count, mapping, text
from profiler.core.optional_math import known
from profiler.core.text import on_one_line
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_MS
from profiler.record.batch_detail import FAILED
from profiler.record.batch_job import resource_name
from profiler.schedules.due_outcomes import FAILED_TO_START
from profiler.schedules.schedule_model import ClusterTasks, Schedule, StartedTask

# Batch keeps a job at least seven days; the rest is for the time that reading takes.
_KEPT_NS = 7 * NS_PER_DAY - NS_PER_MINUTE
_MAX_JOBS = 2_000  # of a name: 20 calls
_MAX_REASON_CHARS = 200


def read_queues(
    open_client: OpenClient, schedules: Iterable[Schedule], now_ns: int
) -> dict[str, ClusterTasks]:
    """The jobs with the names of the schedules, by the ARN of their queue.

    A queue that cannot be read has a problem instead.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    for schedule in schedules:
        if schedule.job_name and not schedule.has_changing_job:
            names[schedule.cluster_arn].add(schedule.job_name)
    queues = {}
    for arn in sorted(names):
        what = f"The jobs of the queue {cluster_name(arn)} could not be listed"
        try:
            with aws_errors(what, "batch:ListJobs"):
                queues[arn] = _read_queue(open_client("batch"), arn, names[arn], now_ns)
        except TaskProfilerError as error:
            queues[arn] = ClusterTasks(problem=str(error))
    return queues


def _read_queue(client: AwsClient, queue: str, names: Iterable[str], now_ns: int) -> ClusterTasks:
    """The jobs of these names that Batch still knows, of each the newest."""
    jobs: list[StartedTask] = []
    known_since_ns = now_ns - _KEPT_NS
    for name in sorted(names):
        # With a filter, Batch lists all statuses, and the newest first.
        listed = read_items(
            client,
            "list_jobs",
            "jobSummaryList",
            jobQueue=queue,
            filters=[{"name": "JOB_NAME", "values": [name]}],
        )
        of_name = [_job(mapping(one)) for one in islice(listed, _MAX_JOBS)]
        if len(of_name) == _MAX_JOBS:
            known_since_ns = max(known_since_ns, of_name[-1].created_ns)
        jobs += of_name
    return ClusterTasks(tasks=tuple(jobs), read_ns=now_ns, known_since_ns=known_since_ns)


def _job(summary: Mapping[str, Any]) -> StartedTask:
    """A job of ListJobs. An array has no start of its own."""
    definition = resource_name(text(summary.get("jobDefinition")) or "").partition(":")[0]
    started_ms = count(summary.get("startedAt"))
    is_array = "size" in mapping(summary.get("arrayProperties"))
    is_stopped_by_hand = summary.get("isCancelled") or summary.get("isTerminated")
    is_unstarted = summary.get("status") == FAILED and started_ms is None and not is_array
    reason = on_one_line(text(summary.get("statusReason")) or "")[:_MAX_REASON_CHARS]
    return StartedTask(
        arn=f"job/{text(summary.get('jobId')) or ''}",
        family=definition,
        job_name=text(summary.get("jobName")),
        created_ns=(count(summary.get("createdAt")) or 0) * NS_PER_MS,
        started_ns=known(lambda at_ms: at_ms * NS_PER_MS, started_ms),
        stopped_ns=known(lambda at_ms: at_ms * NS_PER_MS, count(summary.get("stoppedAt"))),
        stop_code=FAILED_TO_START if is_unstarted and not is_stopped_by_hand else None,
        stopped_reason=reason or None,
    )
