"""The short way to moto within a process: the same answers as over a socket, and no shared state of
templates.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # moto depends on it
from botocore.exceptions import ClientError

from tests.cases import each_case
from tools.local_answers import answer_over_sockets
from tools.moto_server import FakeAws, FastLoader, fake_aws, patched_moto

_OF_A_MOMENT = {"date", "last-modified", "server", "x-amzn-requestid", "connection"}


def _in_s3(aws: FakeAws) -> Any:
    s3 = aws.client("s3")
    s3.create_bucket(Bucket="reports")
    s3.put_object(Bucket="reports", Key="a b/ü?.json", Body=b'{"n": 1}')
    return s3.get_object(Bucket="reports", Key="a b/ü?.json")


def _in_iam(aws: FakeAws) -> Any:
    iam = aws.client("iam")
    with suppress(ClientError):
        document = json.dumps({"a b": "ü&=+%/?", "none": ""})
        iam.create_role(RoleName="jobs", AssumeRolePolicyDocument=document, Description="<ü> & +")
    return iam.get_role(RoleName="jobs")


@each_case(
    "call",
    [
        lambda aws: aws.client("sts").get_caller_identity(),
        lambda aws: aws.client("ecs").list_clusters(),
        lambda aws: aws.client("logs").describe_log_groups(),
        lambda aws: aws.client("ecs").describe_task_definition(taskDefinition="none"),
        lambda aws: aws.client("sqs").create_queue(QueueName="none"),
        lambda aws: aws.client("scheduler").list_schedules(),
        lambda aws: aws.client("lambda").get_function(FunctionName="none"),
        lambda aws: aws.client("events").list_rules(),
        lambda aws: aws.client("cloudformation").describe_stacks(),
        _in_iam,
        _in_s3,
        lambda aws: aws.client("s3").head_object(Bucket="none", Key="none"),
    ],
)
def test_an_answer_within_the_process_is_that_of_the_server(call: Callable[[FakeAws], Any]) -> None:
    with fake_aws() as aws:
        within = _told(call, aws)
        answer_over_sockets(aws.url)
        assert within == _told(call, aws)


def _told(call: Callable[[FakeAws], Any], aws: FakeAws) -> Any:
    """What a client gets: the content, the status and the headers that do not change."""
    try:
        answer = call(aws)
    except ClientError as error:
        answer = error.response
    answer.pop("LastModified", None)
    body = answer.pop("Body", None)
    metadata = answer.pop("ResponseMetadata")
    headers = {
        name: text for name, text in metadata["HTTPHeaders"].items() if name not in _OF_A_MOMENT
    }
    return answer, body and body.read(), metadata["HTTPStatusCode"], headers


@pytest.mark.parametrize("event", ["request-created", "before-sign"])
def test_a_handler_that_may_change_a_request_is_still_asked(event: str) -> None:
    """Requests are made the short way only without one."""
    with fake_aws() as aws:
        ecs = aws.client("ecs")
        ecs.create_cluster(clusterName="jobs")
        asked: list[str] = []
        ecs.meta.events.register(f"{event}.ecs", lambda event_name, **_: asked.append(event_name))
        assert ecs.list_clusters()["clusterArns"]
        assert asked == [f"{event}.ecs.ListClusters"]


def test_a_template_that_moto_changes_is_as_written_the_next_time() -> None:
    text = "Resources: {Function: {Type: 'AWS::Lambda::Function', Name: !Sub '${A}'}}"
    with patched_moto():
        first = yaml.load(text, FastLoader)
        first["Resources"].clear()
        assert yaml.load(text, FastLoader) == {
            "Resources": {
                "Function": {"Type": "AWS::Lambda::Function", "Name": {"Fn::Sub": "${A}"}}
            }
        }
