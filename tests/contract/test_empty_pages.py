"""Lists of AWS whose first page is empty: AWS filters a page after it was cut, so only a missing
token says that there is no more.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from profiler.aws_account.gone_revisions import has_no_active_job_definition
from tests.aws_proxy import AwsProxy
from tests.resize_account import Account
from tools.moto_server import FakeAws, fake_aws, start_by_schedule


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as made:
        yield made


@pytest.mark.slow
def test_each_list_is_read_behind_an_empty_page(aws: FakeAws, tmp_path: Path) -> None:
    """A revision of ours that a person deregistered, schedules, rules, services and tasks."""
    account = Account(aws, tmp_path)
    account.resized()
    account.family("weekly")
    account.runs("weekly", 25)
    account.ecs.deregister_task_definition(taskDefinition="nightly:2")
    start_by_schedule(aws.client("scheduler"), "nightly")
    start_by_schedule(aws.client("scheduler"), "weekly", "weekly:1")
    account.ecs.create_service(
        cluster="jobs", serviceName="api", taskDefinition="weekly", desiredCount=0
    )
    commands: tuple[tuple[str, ...], ...] = (
        ("taskdef", "resize", "--from", str(account.file)),
        ("taskdef", "resize", "--from", str(account.file), "--scheduled"),
        ("taskdef", "add-monitor", "--cluster", "jobs"),
        ("doctor", "nightly"),
        ("doctor", "--cluster", "jobs"),
        ("schedules",),
        ("setup", "--cluster", "jobs"),
    )
    whole = [account.command(*words) for words in commands]
    assert "Somebody deregistered nightly:2" in " ".join(whole[0].stdout.split())
    with AwsProxy(aws.url, page_size=0) as proxy:
        account.url = proxy.url
        for words, expected in zip(commands, whole, strict=True):
            found = account.command(*words)
            assert without_times(found.stdout) == without_times(expected.stdout), words
            assert without_times(found.stderr) == without_times(expected.stderr), words
            assert found.returncode == expected.returncode


def without_times(text: str) -> str:
    return re.sub(r"\d\d:\d\d(:\d\d)?", "", text)


@pytest.mark.parametrize(("listed", "is_gone"), [([], True), ([{"status": "ACTIVE"}], False)])
def test_a_job_definition_behind_an_empty_page_is_active(
    listed: list[dict[str, Any]], *, is_gone: bool
) -> None:
    batch = boto3.client("batch", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    asked = {"jobDefinitionName": "etl", "status": "ACTIVE"}
    found = [
        {"jobDefinitionName": "etl", "jobDefinitionArn": "a", "revision": 1, "type": "container"}
        | one
        for one in listed
    ]
    with Stubber(batch) as stub:
        operation = "describe_job_definitions"
        stub.add_response(operation, {"jobDefinitions": [], "nextToken": "2"}, asked)
        stub.add_response(operation, {"jobDefinitions": found}, {**asked, "nextToken": "2"})
        assert has_no_active_job_definition(lambda _service: batch, "etl") is is_gone
