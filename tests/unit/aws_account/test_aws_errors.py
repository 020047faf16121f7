"""Errors of AWS as sentences."""

import pytest
from botocore.exceptions import ClientError, ParamValidationError
from botocore.parsers import ResponseParserError

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.errors import TaskProfilerError


def test_a_page_of_a_proxy_is_not_an_answer_of_aws() -> None:
    with (
        pytest.raises(TaskProfilerError, match=r"^The stack cannot be read: the response is not one of AWS: check HTT"),
        aws_errors("The stack cannot be read"),
    ):
        raise ResponseParserError("Unable to parse response, invalid XML received: b'<!doctype html>hunter2'")


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ('Unknown parameter in input: "new"', "The group cannot be read: boto3 does not know all fields, so upgrade"),
        ("Invalid length for parameter logGroupName, value: 0", "The group cannot be read: wrong name (Invalid length"),
    ],
)
def test_a_name_that_aws_cannot_have_is_no_reason_to_upgrade_boto3(report: str, said: str) -> None:
    with pytest.raises(TaskProfilerError) as error, aws_errors("The group cannot be read"):
        raise ParamValidationError(report=report)
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("code", ["ThrottlingException", "ProvisionedThroughputExceededException"])
def test_a_throttled_call_needs_no_other_name(code: str) -> None:
    """And nobody has to repeat a command that repeats the call itself, as watch does."""
    with pytest.raises(TaskProfilerError) as error, aws_errors("The list is unknown"):
        raise ClientError({"Error": {"Code": code, "Message": "Rate exceeded"}}, "List")
    assert str(error.value) == (
        f"The list is unknown: AWS returned {code} (Rate exceeded), because there are too many calls: wait a minute."
    )
