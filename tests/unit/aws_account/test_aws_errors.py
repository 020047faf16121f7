"""Errors of AWS as sentences."""

import pytest
from botocore.parsers import ResponseParserError

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.errors import TaskProfilerError


def test_a_page_of_a_proxy_is_not_an_answer_of_aws() -> None:
    with (
        pytest.raises(TaskProfilerError, match=r"^The stack cannot be read: the response is not one of AWS: check HTT"),
        aws_errors("The stack cannot be read"),
    ):
        raise ResponseParserError("Unable to parse response, invalid XML received: b'<!doctype html>hunter2'")
