"""The jobs of a queue of AWS Batch that wait, start and run."""

from itertools import islice
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.core.json_fields import count, mapping, text
from profiler.core.text import on_one_line
from profiler.record.batch_detail import RUNNABLE, RUNNING, STARTING
from profiler.record.batch_job import MAX_NAME_CHARS

STATUSES = (RUNNING, STARTING, RUNNABLE)
MAX_JOBS = 100  # of each status
_MAX_REASON_CHARS = 200


class QueuedJob(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A job of the queue; ``since_ms`` is its start, else its submission. ``children``: of an
    array, whose children are not listed.
    """

    status: str
    job_id: str
    job_name: str
    since_ms: int | None = None
    reason: str | None = None
    children: int | None = None


def read_queue(open_client: OpenClient, queue: str) -> list[QueuedJob]:
    """The first jobs of each status. Raises TaskProfilerError."""
    jobs: list[QueuedJob] = []
    for status in STATUSES:
        with aws_errors(f"The jobs of the queue {queue!r} could not be listed", "batch:ListJobs"):
            client = open_client("batch")
            listed = read_items(
                client, "list_jobs", "jobSummaryList", jobQueue=queue, jobStatus=status
            )
            jobs += [_job(one, status) for one in islice(listed, MAX_JOBS)]
    return jobs


def _job(summary: Any, status: str) -> QueuedJob:  # noqa: ANN401  boto3's own
    values = mapping(summary)
    name = on_one_line(text(values.get("jobName")) or "")[:MAX_NAME_CHARS]
    reason = on_one_line(text(values.get("statusReason")) or "")[:_MAX_REASON_CHARS]
    started_ms = count(values.get("startedAt"))
    return QueuedJob(
        status=status,
        job_id=text(values.get("jobId")) or "",
        job_name=name,
        since_ms=started_ms or count(values.get("createdAt")),
        reason=reason or None,
        children=count(mapping(values.get("arrayProperties")).get("size")),
    )
