"""Job queues of AWS Batch that people name."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.core.aws_error_codes import cause_code
from profiler.core.errors import TaskProfilerError
from profiler.core.text import did_you_mean
from profiler.record.batch_job import resource_name

_WRONG_REQUEST = "ClientException"


@contextmanager
def raise_on_missing_queue(open_client: OpenClient, queue: str) -> Iterator[None]:
    """Say that there is no such queue, where AWS refuses to list its jobs for that: its answer
    names no remedy.
    """
    try:
        yield
    except TaskProfilerError as error:
        if cause_code(error) == _WRONG_REQUEST:
            known = _known_queues(open_client)
            if known is not None and queue not in known:
                raise _missing_queue_error(queue, known) from error
        raise


def missing_queue_error(open_client: OpenClient, queue: str) -> TaskProfilerError:
    """The error about a queue that does not exist, with a similar name if one is known."""
    return _missing_queue_error(queue, _known_queues(open_client) or ())


def _missing_queue_error(queue: str, known: Collection[str]) -> TaskProfilerError:
    meant = did_you_mean([resource_name(queue)], dict.fromkeys(map(resource_name, known)))
    return TaskProfilerError(
        f"There is no job queue {queue!r}: check the name, --region and --profile.{meant}"
    )


def _known_queues(open_client: OpenClient) -> Collection[str] | None:
    """The names and the ARNs of the account's queues; None if they cannot be read."""
    known: set[str] = set()
    try:
        with aws_errors("The job queues could not be read", "batch:DescribeJobQueues"):
            for queue in read_items(open_client("batch"), "describe_job_queues", "jobQueues"):
                known |= {queue["jobQueueName"], queue["jobQueueArn"]}
    except TaskProfilerError:
        return None
    return known
