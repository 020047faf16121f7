"""What AWS Batch says of jobs: their names and definitions, which ECS does not know."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.errors import TaskProfilerError
from profiler.record.batch_job import BatchJob, parent_id
from profiler.record.batch_job_detail import JobDetail, parse_job

_MAX_KEPT = 1_000
# Batch answers a few calls a second for the whole account, and forgets a job after seven days.
_SECONDS_PER_CALL = 1 / 3
_REFUSED_SECONDS = 60
_UNKNOWN_SECONDS = 600
_ANY_JOB = ""
_FAILED = "FAILED"


class BatchJobReader:
    """The jobs of an account and Region.

    ``warn`` gets a sentence where Batch may not be asked, or does not answer: what is known stays.
    Batch is asked a few times a second at most, since others of the account ask it, too, and for
    some minutes not again what it refused or does not know.
    """

    def __init__(
        self,
        open_client: Callable[[], AwsClient],
        warn: Callable[[str], object],
        *,
        now_s: Callable[[], float],
        pause: Callable[[float], object],
    ) -> None:
        self._open_client = open_client
        self._warn = warn
        self._now_s = now_s
        self._pause = pause
        self._known: dict[str, JobDetail] = {}
        self._not_before_s: dict[str, float] = {}  # by the jobs that were asked for in vain
        self._next_s = 0.0

    def with_batch_names(self, job: BatchJob) -> BatchJob:
        """The job with the name and the definition of Batch: the same for all children of an array
        and all attempts, so that 10,000 of them are one call.
        """
        if not job.job_id:
            return job
        detail = self._job_detail(parent_id(job.job_id))
        if detail is None:
            return job
        known = detail.batch_job_of_attempt()
        return replace(
            job,
            job_name=known.job_name,
            job_definition=known.job_definition,
            job_definition_revision=known.job_definition_revision,
            queue=job.queue or known.queue,
            allowed_attempts=known.allowed_attempts,
        )

    def _job_detail(self, job_id: str) -> JobDetail | None:
        known = self._known.get(job_id)
        if known is not None:
            return known
        now_s = self._now_s()
        if now_s < max(self._not_before_s.get(key, 0) for key in (job_id, _ANY_JOB)):
            return None
        if now_s < self._next_s:
            self._pause(self._next_s - now_s)
        self._next_s = max(now_s, self._next_s) + _SECONDS_PER_CALL
        try:
            with aws_errors("The names of jobs are not known", "batch:DescribeJobs"):
                listed = self._open_client().describe_jobs(jobs=[job_id])["jobs"]
        except TaskProfilerError as error:
            self._warn(str(error))
            self._not_before_s[_ANY_JOB] = self._now_s() + _REFUSED_SECONDS
            return None
        detail = parse_job(next(iter(listed), None))
        for kept in (self._known, self._not_before_s):
            if len(kept) >= _MAX_KEPT:
                kept.clear()
        if detail is None:
            self._not_before_s[job_id] = self._now_s() + _UNKNOWN_SECONDS
        else:
            self._known[job_id] = detail
        return detail

    def describe_definition(self, arn: str) -> Mapping[str, Any] | None:
        """The job definition as Batch describes it, with what users put into it; None, and a
        warning, if it may not be read.
        """
        try:
            with aws_errors("A job definition could not be read", "batch:DescribeJobDefinitions"):
                answer = self._open_client().describe_job_definitions(jobDefinitions=[arn])
        except TaskProfilerError as error:
            self._warn(str(error))
            return None
        return next(iter(answer["jobDefinitions"]), None)

    def failed_children(self, array_job_id: str) -> Iterator[Any]:
        """The failed children of an array, as ListJobs returns them.

        Raises TaskProfilerError if Batch may not be asked, or does not answer.
        """
        with aws_errors("The children of an array could not be listed", "batch:ListJobs"):
            pages = self._open_client().get_paginator("list_jobs")
            for page in pages.paginate(arrayJobId=array_job_id, jobStatus=_FAILED):
                yield from page["jobSummaryList"]
