"""The jobs of AWS Batch that schedules submitted: by their queue, name and definition."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import cluster_name, family_of
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import count_or_none, mapping_or_empty, text_or_none
from profiler.core.optional_math import known
from profiler.core.redaction import redact_line
from profiler.core.text import on_one_line
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_MS
from profiler.record.batch_job_detail import FAILED
from profiler.schedules.due_outcomes import FAILED_TO_START
from profiler.schedules.schedule_model import ReadTasks, Schedule, StartedTask

# Batch keeps a job at least seven days; the rest is for the time that reading takes.
_KEPT_NS = 7 * NS_PER_DAY - NS_PER_MINUTE
_MAX_JOBS = 2_000  # of a name: 20 calls
# AWS Batch takes 50 calls a second of an account in a Region, those that submit jobs included.
_SECONDS_BETWEEN_CALLS = 0.1
_MAX_REASON_CHARS = 200
_NO_TIME = "The invocation ran out of time before all jobs were listed: increase its timeout."


def read_queues(
    open_client: OpenClient,
    schedules: Iterable[Schedule],
    now_ns: int,
    *,
    pause: Callable[[float], None],
    since_ns: int = 0,
    may_continue: Callable[[], bool] = lambda: True,
) -> dict[str, ReadTasks]:
    """The jobs with the names of the schedules, by the ARN of their queue.

    A queue that cannot be read has a problem instead. Jobs from before ``since_ns`` are not listed.
    ``pause`` takes seconds. ``may_continue``: whether there is time for another name.
    """
    names: defaultdict[str, set[str]] = defaultdict(set)
    for schedule in schedules:
        if schedule.job_name and schedule.why_unknown is None:
            names[schedule.cluster_arn].add(schedule.job_name)
    queues = {}
    for arn in sorted(names):
        what = f"The jobs of the queue {cluster_name(arn)} could not be listed"
        try:
            with aws_errors(what, "batch:ListJobs"):
                oldest_ns = max(since_ns, now_ns - _KEPT_NS)
                jobs = _QueueJobReader(open_client("batch"), arn, oldest_ns, pause)
                queues[arn] = jobs.read_jobs_named(names[arn], now_ns, may_continue)
        except TaskProfilerError as error:
            queues[arn] = ReadTasks(problem=str(error))
    return queues


class _QueueJobReader(Struct, frozen=True):
    """The jobs of a queue, as far back as they are asked for."""

    client: AwsClient
    queue: str
    since_ns: int
    pause: Callable[[float], None]

    def read_jobs_named(
        self, names: Collection[str], now_ns: int, may_continue: Callable[[], bool]
    ) -> ReadTasks:
        """The jobs of these names that Batch still knows, of each the newest."""
        jobs = self._list_jobs_of_queue(names) if len(names) > 1 and may_continue() else None
        known_since_ns = self.since_ns
        if jobs is not None:
            return ReadTasks(tasks=tuple(jobs), read_ns=now_ns, known_since_ns=known_since_ns)
        jobs = []
        for name in sorted(names):
            if not may_continue():
                return ReadTasks(problem=_NO_TIME)
            of_name = self._list_jobs_of_name(name)
            if len(of_name) == _MAX_JOBS:
                known_since_ns = max(known_since_ns, of_name[-1].created_ns)
            jobs += of_name
        return ReadTasks(tasks=tuple(jobs), read_ns=now_ns, known_since_ns=known_since_ns)

    def _list_jobs_of_queue(self, names: Collection[str]) -> list[StartedTask] | None:
        """The jobs of these names by a listing of the whole queue; None if that takes more calls
        than there are names.
        """
        jobs: list[StartedTask] = []
        after_ms = self.since_ns // NS_PER_MS - 1
        for number, page in enumerate(self._list_pages("AFTER_CREATED_AT", str(after_ms))):
            if number == len(names):
                return None
            jobs += (job for job in page if job.job_name in names)
        return [job for job in jobs if job.created_ns >= self.since_ns]

    def _list_jobs_of_name(self, name: str) -> list[StartedTask]:
        jobs: list[StartedTask] = []
        for page in self._list_pages("JOB_NAME", name):
            newer = [job for job in page if job.created_ns >= self.since_ns]
            jobs += (job for job in newer if job.job_name == name)
            # The newest come first, but by the spellings of the name and the definition's versions.
            if not newer or len(jobs) >= _MAX_JOBS:
                break
        return jobs[:_MAX_JOBS]

    def _list_pages(self, name: str, value: str) -> Iterator[list[StartedTask]]:
        """The pages of a filter, with which Batch lists all statuses, and the newest first."""
        pages = self.client.get_paginator("list_jobs").paginate(
            jobQueue=self.queue, filters=[{"name": name, "values": [value]}]
        )
        self.pause(_SECONDS_BETWEEN_CALLS)
        for page in pages:
            yield [_submitted_job(mapping_or_empty(summary)) for summary in page["jobSummaryList"]]
            if page.get("nextToken"):
                self.pause(_SECONDS_BETWEEN_CALLS)


def _submitted_job(summary: Mapping[str, Any]) -> StartedTask:
    """A job of ListJobs. An array has no start of its own."""
    definition = family_of(text_or_none(summary.get("jobDefinition")) or "")
    started_ms = count_or_none(summary.get("startedAt"))
    is_array = "size" in mapping_or_empty(summary.get("arrayProperties"))
    is_stopped_by_hand = summary.get("isCancelled") or summary.get("isTerminated")
    is_unstarted = summary.get("status") == FAILED and not (started_ms or is_array)
    reason = on_one_line(text_or_none(summary.get("statusReason")) or "")[:_MAX_REASON_CHARS]
    return StartedTask(
        arn=f"job/{text_or_none(summary.get('jobId')) or ''}",
        family=definition,
        job_name=text_or_none(summary.get("jobName")),
        created_ns=(count_or_none(summary.get("createdAt")) or 0) * NS_PER_MS,
        started_ns=known(lambda at_ms: at_ms * NS_PER_MS, started_ms),
        stopped_ns=known(lambda at_ms: at_ms * NS_PER_MS, count_or_none(summary.get("stoppedAt"))),
        stop_code=FAILED_TO_START if is_unstarted and not is_stopped_by_hand else None,
        stopped_reason=redact_line(reason) or None,
    )
