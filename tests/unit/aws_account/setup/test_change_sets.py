"""Change sets: empty, rejected, in pages; applied, failed, deleted; and what an hour is."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError, ReadTimeoutError
from botocore.session import Session

from profiler.aws_account.forwarder_stack import ForwarderStack
from profiler.aws_account.setup.change_sets import (
    CloudFormationEvent,
    ResourceChange,
    StackChanger,
    StillRunningError,
)
from profiler.core.errors import TaskProfilerError
from tests.fake_cloudformation import CHANGE_SET, STACK_ID, FakeCloudFormation, of_stack
from tests.fakes import FakeClock

URL = "https://s3.eu-west-1.amazonaws.com/code/template.yaml"
NO_CHANGES = (
    "The submitted information didn't contain changes. Submit different information to create a "
    "change set."
)


def resource_change(
    action: str, resource: str, replacement: str | None = None
) -> dict[str, object]:
    change = {"Action": action, "LogicalResourceId": resource, "ResourceType": "AWS::SQS::Queue"}
    return {
        "Type": "Resource",
        "ResourceChange": change | ({"Replacement": replacement} if replacement else {}),
    }


def changes_of(
    aws: FakeCloudFormation, events: list[CloudFormationEvent] | None = None
) -> StackChanger:
    return StackChanger("tp", aws, FakeClock(), ([] if events is None else events).append)


def apply(changes: StackChanger, *, is_new: bool = False) -> ForwarderStack:
    prepared = changes.create_change_set(URL, [], {}, is_new=is_new)
    assert prepared is not None
    changes.read_earlier(prepared.stack_id)
    return changes.apply_change_set(prepared)


def test_a_change_set_is_read_page_by_page() -> None:
    aws = FakeCloudFormation()
    aws.change_set_pages = [
        {"Status": "CREATE_COMPLETE", "Changes": [resource_change("Add", "A")]},
        {"Status": "CREATE_COMPLETE", "Changes": [resource_change("Modify", "B", "Conditional")]},
    ]
    changes = changes_of(aws)
    parameters = [{"ParameterKey": "Notify", "UsePreviousValue": True}]
    prepared = changes.create_change_set(URL, parameters, {"team": "data"}, is_new=False)
    assert prepared is not None
    assert prepared.changes == (
        ResourceChange(action="Add", resource="A", type="AWS::SQS::Queue"),
        ResourceChange(
            action="Modify", resource="B", type="AWS::SQS::Queue", replacement="Conditional"
        ),
    )
    (asked,) = aws.calls("CreateChangeSet")
    assert asked["ChangeSetType"] == "UPDATE"
    assert asked["Parameters"] == parameters
    assert asked["Tags"] == [{"Key": "team", "Value": "data"}]
    assert asked["Capabilities"] == ["CAPABILITY_IAM"]
    assert not aws.calls("DeleteChangeSet")


@pytest.mark.parametrize("status", ["REVIEW_IN_PROGRESS", "CREATE_IN_PROGRESS"])
def test_an_empty_or_rejected_change_set_leaves_neither_itself_nor_the_empty_stack(
    status: str,
) -> None:
    """Somebody else may have applied another change set to the new stack."""
    aws = FakeCloudFormation(change_set_pages=[{"Status": "FAILED", "StatusReason": NO_CHANGES}])
    assert changes_of(aws).create_change_set(URL, [], {}, is_new=False) is None
    assert aws.calls("DeleteChangeSet") == [{"ChangeSetName": CHANGE_SET}]
    assert not aws.calls("DeleteStack")
    aws.change_set_pages = [{"Status": "FAILED", "StatusReason": "Transform failed."}]
    aws.stack = {"StackStatus": status}
    with pytest.raises(
        TaskProfilerError, match=r"^CloudFormation rejects the change of .* tp: Transform failed\.$"
    ):
        changes_of(aws).create_change_set(URL, [], {}, is_new=True)
    assert len(aws.calls("DeleteChangeSet")) == 2
    assert aws.calls("DeleteStack") == [{"StackName": STACK_ID}] * (status == "REVIEW_IN_PROGRESS")


def test_only_the_events_of_this_change_are_followed_to_its_end() -> None:
    """An update's cleanup is still part of it."""
    aws = FakeCloudFormation(stack={"StackStatus": "UPDATE_COMPLETE", "StackId": STACK_ID})
    aws.add_events(
        [("CREATE_COMPLETE", f"Old{number}") for number in range(4)] + [of_stack("CREATE_COMPLETE")]
    )
    aws.happens = [
        [],
        [of_stack("UPDATE_IN_PROGRESS"), ("UPDATE_IN_PROGRESS", "A"), ("UPDATE_COMPLETE", "A")],
        [("CREATE_COMPLETE", f"New{number}") for number in range(4)],
        [
            of_stack("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS"),
            ("DELETE_COMPLETE", "B"),
            of_stack("UPDATE_COMPLETE"),
        ],
    ]
    events: list[CloudFormationEvent] = []
    changes = changes_of(aws, events)
    assert apply(changes).possible_action == "ready"
    assert [f"{event.status} {event.resource}" for event in events] == [
        "UPDATE_COMPLETE A",
        *(f"CREATE_COMPLETE New{number}" for number in range(4)),
        "DELETE_COMPLETE B",
        "UPDATE_COMPLETE tp",
    ]


@pytest.mark.parametrize(
    ("is_new", "end", "said"),
    [
        (
            True,
            "ROLLBACK_COMPLETE",
            r" tp --delete --region eu-west-1\), and .*; cause: Table: taken; Role: denied\.$",
        ),
        (
            False,
            "UPDATE_ROLLBACK_COMPLETE",
            "not be updated, and its previous version is active: .*; cause: Table: t",
        ),
    ],
)
def test_a_failure_is_explained_by_its_causes(*, is_new: bool, end: str, said: str) -> None:
    aws = FakeCloudFormation(stack={"StackStatus": end})
    aws.happens = [
        [
            ("CREATE_FAILED", "Table", "AWS::DynamoDB::Table", "taken"),
            ("CREATE_FAILED", "Role", "AWS::IAM::Role", "denied."),
            ("CREATE_FAILED", "Other", "AWS::SQS::Queue", "Resource creation cancelled"),
        ],
        [of_stack(end)],
    ]
    changes = changes_of(aws)
    with pytest.raises(TaskProfilerError, match=said):
        apply(changes, is_new=is_new)


def test_deleting_returns_what_stays_or_explains_the_failure() -> None:
    ended = [("DELETE_SKIPPED", "Queue"), ("DELETE_COMPLETE", "Role"), of_stack("DELETE_COMPLETE")]
    changes = changes_of(FakeCloudFormation(happens=[ended]))
    (kept,) = changes.delete_stack(STACK_ID)
    assert kept.resource == "Queue"
    assert kept.physical_id == "physical-Queue"
    failing = [("DELETE_FAILED", "Role", "AWS::IAM::Role", "in\n use"), of_stack("DELETE_FAILED")]
    changes = changes_of(FakeCloudFormation(happens=[failing]))
    with pytest.raises(
        TaskProfilerError,
        match=r"could not be deleted \(DELETE_FAILED\): Role: in use\. It forwards",
    ):
        changes.delete_stack(STACK_ID)


def test_a_deletion_that_has_ended_at_once_is_told_like_any_other() -> None:
    ended = [("DELETE_SKIPPED", "Queue"), ("DELETE_COMPLETE", "Role"), of_stack("DELETE_COMPLETE")]
    events: list[CloudFormationEvent] = []
    aws = FakeCloudFormation(stack={"StackStatus": "DELETE_COMPLETE"}, happens=[ended])
    (kept,) = changes_of(aws, events).delete_stack(STACK_ID)
    assert kept.resource == "Queue"
    assert [f"{event.status} {event.resource}" for event in events] == [
        "DELETE_SKIPPED Queue",
        "DELETE_COMPLETE Role",
        "DELETE_COMPLETE tp",
    ]


class FirstAnswersLost(FakeCloudFormation):
    """Carries the first call of each operation out, whose answer is lost, so that boto3 repeats it.
    A repetition succeeds by its token alone.
    """

    def __init__(self) -> None:
        super().__init__(happens=[[of_stack("UPDATE_COMPLETE")]])
        self.stack = {"StackStatus": "UPDATE_COMPLETE"}
        self.tokens: dict[str, list[str]] = {}
        credentials = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "x")
        self.client = Session().create_client(
            "cloudformation", region_name="eu-west-1", **credentials
        )
        self.client.meta.events.register("before-send.cloudformation", self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        form = {name: values[0] for name, values in parse_qs(request.body).items()}
        operation = form["Action"]
        tokens = self.tokens.setdefault(operation, [])
        tokens.append(form.get("ClientToken") or form.get("ClientRequestToken") or "")
        if len(tokens) == 1:
            raise ReadTimeoutError(endpoint_url=request.url)
        status = 200 if "" not in tokens and len(set(tokens)) == 1 else 400
        content = (
            f"<R><{operation}Result><Id>{CHANGE_SET}</Id><StackId>{STACK_ID}</StackId>"
            f"</{operation}Result></R>"
            if status == 200
            else "<R><Error><Code>InvalidChangeSetStatus</Code></Error></R>"
        )
        raw = SimpleNamespace(stream=lambda: iter([content.encode()]))
        return AWSResponse(request.url, status, {}, raw)

    def create_change_set(self, **arguments: Any) -> Any:
        return self.client.create_change_set(**arguments)

    def execute_change_set(self, operation: str = "ExecuteChangeSet", **arguments: Any) -> None:
        self.client.execute_change_set(**arguments)
        super().execute_change_set(operation, **arguments)


def test_a_call_that_boto3_repeats_without_an_answer_is_not_somebody_elses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)
    aws = FirstAnswersLost()
    assert apply(changes_of(aws)).possible_action == "ready"
    assert {operation: len(tokens) for operation, tokens in aws.tokens.items()} == {
        "CreateChangeSet": 2,
        "ExecuteChangeSet": 2,
    }
    assert len({*aws.tokens["CreateChangeSet"], *aws.tokens["ExecuteChangeSet"]}) == 2
    assert not aws.calls("DeleteChangeSet")


def test_a_failure_of_cloudformation_is_an_answer_that_says_not_what_was_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(**_: Any) -> None:
        answer: Any = {
            "Error": {"Code": "ServiceUnavailable", "Message": "busy"},
            "ResponseMetadata": {"HTTPStatusCode": 503},
        }
        raise ClientError(answer, "ExecuteChangeSet")

    aws = FakeCloudFormation()
    monkeypatch.setattr(aws, "execute_change_set", fail)
    with pytest.raises(StillRunningError) as failure:
        apply(changes_of(aws))
    assert str(failure.value) == (
        "The stack tp cannot be changed: AWS failed (ServiceUnavailable: busy): try again in a "
        "minute. CloudFormation may have begun the change: run the command again later."
    )
    assert not aws.calls("DeleteChangeSet")
