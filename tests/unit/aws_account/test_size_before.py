"""The size to which a revision of ours can be put back, and what is not believed about it."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.aws_errors import aws_errors
from profiler.aws_account.size_before import EarlierRevisionReader
from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import TaskSize
from profiler.task_definitions.definition_json import TaskDefinitionDocument

FAMILY = "arn:aws-cn:ecs:cn-north-1:111122223333:task-definition/nightly"
OLD = {"cpu": "1024", "memory": "2048", "containerDefinitions": [{"name": "batch"}]}


def revisions(tag: str, answer: object) -> EarlierRevisionReader:
    """Of a revision 5 with the tag; ``answer`` is ECS's, or the code of its error."""
    definition: dict[str, Any] = {
        **OLD,
        "cpu": "256",
        "memory": "512",
        "tags": [{"key": "task-profiler:resized-from", "value": tag}],
    }

    def describe(_name: str) -> bytes:
        with aws_errors("It could not be read"):
            if isinstance(answer, str):
                details = {"Error": {"Code": answer, "Message": "No."}}
                raise ClientError(details, "DescribeTaskDefinition")
            return json.dumps(answer).encode()

    newest = TaskDefinitionDocument(definition=definition, arn=f"{FAMILY}:5")
    return EarlierRevisionReader("nightly", newest, describe)


@pytest.mark.parametrize("answer", [OLD, "ClientException"], ids=["there", "deleted"])
def test_the_size_before_is_that_of_the_revision_or_of_one_that_was_deleted(
    answer: object,
) -> None:
    assert revisions("4/1024/2048", answer).find_old_size().size == TaskSize(vcpu=1, memory_mb=2048)


@pytest.mark.parametrize(
    ("tag", "answer", "sentence"),
    [
        ("4/16384/122880", OLD, "has 1 vCPU, 2 GB, so somebody changed the tag"),
        ("5/16384/122880", "ClientException", "nightly:5, which is not an earlier revision"),
        ("999/16384/122880", "ClientException", "nightly:999, which is not an earlier revision"),
        ("4/1024/99", "ClientException", "which Fargate does not have"),
        ("4/16384/122880", "ThrottlingException", "too many calls"),
        ("4/16384/122880", "AccessDeniedException", "AWS refused"),
        ("4/16384/122880", "ServerException", "ServerException"),
    ],
)
def test_a_tag_that_cannot_be_compared_with_its_revision_puts_nothing_back(
    tag: str, answer: object, sentence: str
) -> None:
    with pytest.raises(TaskProfilerError, match=sentence):
        revisions(tag, answer).find_old_size()
