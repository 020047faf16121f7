"""Errors of AWS as sentences."""

import pytest
from botocore.exceptions import ClientError, ParamValidationError
from botocore.parsers import ResponseParserError

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.errors import TaskProfilerError
from profiler.forwarder.batch_report import EcsDefinitions
from profiler.sinks import LogTarget, TransientFailure
from profiler.sinks.logs_client import failure_of


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            ResponseParserError("Unable to parse response, invalid XML received: b'<!doctype html>hunter2'"),
            "It cannot be read: the response is not one of AWS: check HTTPS_PROXY",
        ),
        (
            ParamValidationError(report="Invalid length for parameter logGroupName, value: 0"),
            "It cannot be read: wrong name (Invalid length",
        ),
    ],
)
def test_a_page_of_a_proxy_and_a_name_that_aws_cannot_have_are_sentences(raised: Exception, said: str) -> None:
    with pytest.raises(TaskProfilerError) as error, aws_errors("It cannot be read"):
        raise raised
    assert str(error.value).startswith(said)
    assert "hunter2" not in str(error.value)


THROTTLED = ("ThrottlingException", "EC2ThrottledException", "KMSThrottling", "TooManyRequestsException", "SlowDown")


@pytest.mark.parametrize("code", [*THROTTLED, "RequestLimitExceeded", "ProvisionedThroughputExceededException"])
def test_a_throttled_call_is_known_to_commands_to_the_forwarder_and_to_the_monitor(code: str) -> None:
    """Nobody has to repeat a command that repeats the call itself, as watch does, and no report is given up for it."""
    refused = ClientError({"Error": {"Code": code, "Message": "Rate exceeded"}}, "List")
    with pytest.raises(TaskProfilerError) as error, aws_errors("The list is unknown"):
        raise refused
    assert str(error.value) == (
        f"The list is unknown: AWS returned {code} (Rate exceeded), because there are too many calls: wait a minute."
    )
    assert isinstance(failure_of(refused, LogTarget(group="/ecs/a", stream="s")), TransientFailure)
    answers: list[object] = [refused, {"taskDefinition": {"family": "etl"}}]

    class Ecs:
        def describe_task_definition(self, **_: str) -> object:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    assert EcsDefinitions(Ecs(), print).describe("arn", lambda: True) == {"family": "etl"}


REFUSED = (
    "User: arn:aws:iam::111122223333:user/dev is not authorized to perform: {0} on resource: * because no "
    "identity-based policy allows the {0} action"
)


@pytest.mark.parametrize(
    ("code", "message", "permission", "said"),
    [
        (
            "AccessDeniedException",
            REFUSED.format("ecs:ListTasks"),
            "ecs:ListTasks and ecs:DescribeTasks",
            "policy allows the ecs:ListTasks action): allow ecs:ListTasks and ecs:DescribeTasks.",
        ),
        ("AccessDenied", REFUSED.format("iam:PassRole"), "events:PutTargets", "action): allow iam:PassRole."),
        ("AccessDenied", REFUSED.format("iam:GetRole"), None, "action): allow iam:GetRole."),
        ("403", "Forbidden", "s3:ListBucket", "AWS refused (403: Forbidden): allow s3:ListBucket."),
        ("404", "Not Found", None, "AWS cannot find it (Not Found): check the name, --region and --profile."),
        ("ValidationError", "Template\nerror: x.", None, "It cannot be read: Template error: x."),
        ("301", "Moved Permanently", None, "it is in another Region (301: Moved Permanently): use --region."),
        (
            "KMS.DisabledException",
            "arn:aws:kms:eu-west-1:111122223333:key/0f3c is disabled.",
            None,
            "AWS KMS refused (KMS.DisabledException: arn:aws:kms:eu-west-1:111122223333:key/0f3c is disabled): check",
        ),
    ],
)
def test_a_refusal_names_the_permission_and_has_the_sentence_of_aws(
    code: str, message: str, permission: str | None, said: str
) -> None:
    with pytest.raises(TaskProfilerError) as error, aws_errors("It cannot be read", permission):
        raise ClientError({"Error": {"Code": code, "Message": message}}, "Read")
    assert said in str(error.value)
