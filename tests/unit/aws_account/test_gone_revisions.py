"""Revisions of which ECS starts no task, and those of which that is not known."""

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.gone_revisions import why_revision_is_gone
from profiler.aws_account.revision_read_limit import BoundedReads
from profiler.core.errors import TaskProfilerError
from profiler.task_definitions.definition_json import TaskDefinitionDocument, read_document


def raised(code: str | None) -> TaskProfilerError:
    error = TaskProfilerError("It was not read.")
    if code is not None:
        details = {"Error": {"Code": code, "Message": "Unable to describe task definition."}}
        error.__cause__ = ClientError(details, "DescribeTaskDefinition")
    return error


@pytest.mark.parametrize(
    ("code", "why"),
    [("ClientException", "does not exist"), ("AccessDeniedException", None), (None, None)],
)
def test_only_aws_says_that_a_revision_was_deleted(code: str | None, why: str | None) -> None:
    unread: list[TaskProfilerError] = []
    error = raised(code)

    def read(_revision: str) -> TaskDefinitionDocument:
        raise error

    assert why_revision_is_gone(read, "nightly:2", unread.append) == why
    assert unread == ([] if why else [error])


def test_a_revision_beyond_the_bound_of_reads_is_not_called_deleted() -> None:
    """``resize`` reads three revisions of a family, and said of a fourth one that it was deleted."""
    body = b'{"taskDefinition": {"family": "nightly", "containerDefinitions": [{"name": "a"}]}}'
    reads = BoundedReads(lambda _name: body, reads_twice=False)
    for number in range(3):
        reads.describe(f"nightly:{number}")
    unread: list[TaskProfilerError] = []
    why = why_revision_is_gone(
        lambda name: read_document(reads.describe(name), name), "nightly:7", unread.append
    )
    assert why is None
    assert "nightly:7 was not read" in str(unread[0])
