"""The jobs of AWS Batch that schedules submitted: by their queue, name and definition."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import islice, takewhile
from typing import Any

from msgspec import Struct

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
_NO_TIME = "The invocation ran out of time before all jobs were listed: increase its timeout."


def read_queues(
    open_client: OpenClient,
    schedules: Iterable[Schedule],
    now_ns: int,
    *,
    since_ns: int = 0,
    may_continue: Callable[[], bool] = lambda: True,
) -> dict[str, ClusterTasks]:
    """The jobs with the names of the schedules, by the ARN of their queue.

    A queue that cannot be read has a problem instead. Jobs from before ``since_ns`` are not listed.
    ``may_continue``: whether there is time for another name.
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
                jobs = _QueueJobs(open_client("batch"), arn, max(since_ns, now_ns - _KEPT_NS))
                queues[arn] = jobs.read(names[arn], now_ns, may_continue)
        except TaskProfilerError as error:
            queues[arn] = ClusterTasks(problem=str(error))
    return queues


class _QueueJobs(Struct, frozen=True):
    """The jobs of a queue, as far back as they are asked for."""

    client: AwsClient
    queue: str
    since_ns: int

    def read(
        self, names: Iterable[str], now_ns: int, may_continue: Callable[[], bool]
    ) -> ClusterTasks:
        """The jobs of these names that Batch still knows, of each the newest."""
        jobs: list[StartedTask] = []
        known_since_ns = self.since_ns
        for name in sorted(names):
            if not may_continue():
                return ClusterTasks(problem=_NO_TIME)
            of_name = self._of_name(name)
            if len(of_name) == _MAX_JOBS:
                known_since_ns = max(known_since_ns, of_name[-1].created_ns)
            jobs += of_name
        return ClusterTasks(tasks=tuple(jobs), read_ns=now_ns, known_since_ns=known_since_ns)

    def _of_name(self, name: str) -> list[StartedTask]:
        # With a filter, Batch lists all statuses, and the newest first.
        listed = read_items(
            self.client,
            "list_jobs",
            "jobSummaryList",
            jobQueue=self.queue,
            filters=[{"name": "JOB_NAME", "values": [name]}],
        )
        jobs = map(_job, map(mapping, listed))
        newer = takewhile(lambda job: job.created_ns >= self.since_ns, jobs)
        return list(islice(newer, _MAX_JOBS))


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
