"""Revisions of which ECS starts no task any more, or AWS Batch takes no job."""

from collections.abc import Callable

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import may_exist
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_json import TaskDefinitionDocument


def why_gone(
    read: Callable[[str], TaskDefinitionDocument],
    revision: str,
    on_unread: Callable[[TaskProfilerError], object] = lambda _: None,
) -> str | None:
    """Why ECS starts no task of a revision, in words; None: it starts them, or the revision could
    not be read. ``read`` raises TaskProfilerError.
    """
    try:
        return None if read(revision).is_active else "was deregistered"
    except TaskProfilerError as error:
        if not may_exist(error):
            return "was deleted"
        on_unread(error)
        return None


def why_job_definition_gone(
    open_client: OpenClient,
    revision: str,
    on_unread: Callable[[TaskProfilerError], object] = lambda _: None,
) -> str | None:
    """As above, of a job definition's ``name:revision``, which AWS Batch describes until 180 days
    after its end.
    """
    permission = "batch:DescribeJobDefinitions"
    try:
        with aws_errors(f"The job definition {revision} could not be read", permission):
            answer = open_client("batch").describe_job_definitions(jobDefinitions=[revision])
    except TaskProfilerError as error:
        on_unread(error)
        return None
    described = next(iter(answer["jobDefinitions"]), None)
    if described is None:
        return "was deleted"
    return None if described.get("status") == "ACTIVE" else "was deregistered"
