"""The jobs of a queue of AWS Batch that wait, start and run."""

from itertools import islice
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.job_queues import raise_on_missing_queue
from profiler.aws_account.registered_definitions import read_items
from profiler.core.json_fields import count_or_none, mapping_or_empty, text_or_none
from profiler.core.text import on_one_line
from profiler.record.batch_job import MAX_NAME_CHARS
from profiler.record.batch_job_detail import (
    PENDING,
    RUNNABLE,
    RUNNING,
    STARTING,
    children_text,
    parse_array,
)

STATUSES = (RUNNING, STARTING, RUNNABLE, PENDING)
MAX_JOBS = 100  # of each status
# What one call lists: the whole list is read again and again, and thousands may wait for others.
_MAX_LISTED = 1_000
_MAX_REASON_CHARS = 200


class QueuedJob(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job of the queue; ``since_ms`` is its start, else its submission. ``children``: of an
    array, whose children are not listed: it is PENDING until all of them have ended, and
    ``reason`` has them by their status.
    """

    status: str
    job_id: str
    job_name: str
    since_ms: int | None = None
    reason: str | None = None
    children: int | None = None


def read_queue(open_client: OpenClient, queue: str) -> list[QueuedJob]:
    """The first jobs of each status; of the first 1,000 that are PENDING, the arrays: the others
    wait for jobs that they depend on. Raises TaskProfilerError.
    """
    jobs: list[QueuedJob] = []
    what = f"The jobs of the queue {queue!r} could not be listed"
    for status in STATUSES:
        with raise_on_missing_queue(open_client, queue), aws_errors(what, "batch:ListJobs"):
            client = open_client("batch")
            listed = read_items(
                client, "list_jobs", "jobSummaryList", jobQueue=queue, jobStatus=status
            )
            of_status = (_queued_job(one, status) for one in islice(listed, _MAX_LISTED))
            shown = (job for job in of_status if status != PENDING or job.children is not None)
            jobs += islice(shown, MAX_JOBS)
    return jobs


def _queued_job(summary: Any, status: str) -> QueuedJob:  # noqa: ANN401  boto3's own
    values = mapping_or_empty(summary)
    name = on_one_line(text_or_none(values.get("jobName")) or "")[:MAX_NAME_CHARS]
    reason = on_one_line(text_or_none(values.get("statusReason")) or "")[:_MAX_REASON_CHARS]
    started_ms = count_or_none(values.get("startedAt"))
    array = parse_array(values)
    return QueuedJob(
        status=status,
        job_id=text_or_none(values.get("jobId")) or "",
        job_name=name,
        since_ms=started_ms or count_or_none(values.get("createdAt")),
        reason=reason or children_text(array) or None,
        children=array.size,
    )
