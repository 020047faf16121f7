"""``task-profiler setup stack`` with one of its calls to AWS refused, throttled, or carried out
without an answer, each in turn: an update, a creation and a deletion.

What is half done is said, and the command, run again, does the rest.
"""

import zipfile
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
from profiler.cli.setup.deployment_output import DeploymentOutput, deploy, remove
from profiler.core.errors import TaskProfilerError
from tests.fake_cloudformation import CHANGE_SET, FakeCloudFormation, of_stack
from tests.nth_calls import SAID, Failure, NthCallFails

GROUP: Final = "/ecs/jobs"
BUCKET: Final = "task-profiler-123456789012-eu-west-1"
VALUES: Final = {"ElasticsearchUrl": "https://search.example.com", "LogGroups": "/ecs/old"}
NEW_VALUES: Final = VALUES | {"LogGroups": GROUP}
SECRETS: Final = {"SlackSecretId": {"slack_failure_webhook_url": "https://hooks.slack.com/x"}}
APPLY: Final = DeploymentOutput(is_applied=True, as_json=False)
# What may be left, by the words that say it.
LEFT: Final = (
    "keeps a change set",
    "CloudFormation may have made the change set",
    "CloudFormation may have begun",
    "CloudFormation goes on",
)


def answer_of_error(code: str, status: int = 400, message: str = "") -> ClientError:
    error: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(error, "Operation")


class NotFoundError(ClientError):  # type: ignore[misc]  # boto3 has no types
    """There is no such thing."""


class OtherError(Exception):
    """An error that nothing here raises."""


class Stack(FakeCloudFormation):
    """A stack whose change sets are kept until they are applied or deleted."""

    def __init__(self, parameters: Mapping[str, str] | None) -> None:
        change = {"Action": "Modify", "LogicalResourceId": "Table", "ResourceType": "T"}
        super().__init__(
            change_set_pages=[
                {"Status": "CREATE_COMPLETE", "Changes": [{"ResourceChange": change}]}
            ]
        )
        self.pending: set[str] = set()
        self.overtaken = ""
        if parameters is not None:
            self.stack = self._stack("UPDATE_COMPLETE", parameters)

    def _stack(self, status: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        given = [{"ParameterKey": name, "ParameterValue": parameters[name]} for name in parameters]
        return {"StackStatus": status, "Parameters": given}

    def create_change_set(self, **arguments: Any) -> dict[str, str]:
        made = super().create_change_set(**arguments)
        self.pending.add(CHANGE_SET)
        if self.stack is None:
            self.stack = {"StackStatus": "REVIEW_IN_PROGRESS"}
        return made

    def delete_change_set(self, **arguments: Any) -> None:
        super().delete_change_set(**arguments)
        self.pending.discard(CHANGE_SET)

    def execute_change_set(self, operation: str = "ExecuteChangeSet", **arguments: Any) -> None:
        if self.overtaken:
            raise answer_of_error(self.overtaken, message="its execution status is [OBSOLETE]")
        super().execute_change_set(operation, **arguments)
        self.pending.discard(CHANGE_SET)
        self.stack = self._stack("UPDATE_COMPLETE", NEW_VALUES)
        self.happens = [[of_stack("UPDATE_COMPLETE")]]

    def delete_stack(self, **arguments: Any) -> None:
        self._call("DeleteStack", arguments)
        self.stack = None
        self._is_changing = True
        self.happens = [[of_stack("DELETE_COMPLETE")]]


class World:
    """An account with a stack, log groups with subscription filters, a bucket and secrets."""

    def __init__(self, parameters: Mapping[str, str] | None) -> None:
        self.cloudformation = Stack(parameters)
        self.filters: dict[str, dict[str, dict[str, Any]]] = {GROUP: {}, "/ecs/old": {}}
        if parameters is not None:
            self.put_filter(
                logGroupName="/ecs/old",
                filterName="tp-groups",
                filterPattern="",
                destinationArn="arn:aws:lambda:eu-west-1:123456789012:function:tp-forward-logs",
            )
        self.objects: set[str] = set()
        self.buckets: set[str] = set()
        self.secrets: dict[str, str] = {}
        self.clients: dict[str, Any] = {
            "cloudformation": self.cloudformation,
            "logs": SimpleNamespace(
                get_paginator=self._paginator,
                put_subscription_filter=self.put_filter,
                delete_subscription_filter=self._delete_filter,
                exceptions=SimpleNamespace(
                    ResourceNotFoundException=NotFoundError,
                    InvalidParameterException=OtherError,
                    LimitExceededException=OtherError,
                ),
            ),
            "s3": SimpleNamespace(
                head_bucket=lambda **given: self._head(given["Bucket"] in self.buckets),
                create_bucket=lambda **given: self.buckets.add(given["Bucket"]),
                head_object=lambda **given: self._head(given["Key"] in self.objects),
                put_object=lambda **given: self.objects.add(given["Key"]),
                meta=SimpleNamespace(
                    region_name="eu-west-1", partition="aws", endpoint_url="https://s3"
                ),
            ),
            "sts": SimpleNamespace(
                get_caller_identity=lambda: {"Account": "123456789012"},
                meta=SimpleNamespace(region_name="eu-west-1"),
            ),
            "batch": SimpleNamespace(get_paginator=self._paginator),
            "secretsmanager": SimpleNamespace(
                get_secret_value=self._get_secret,
                create_secret=lambda **given: self._put_secret(given["Name"], given),
                put_secret_value=lambda **given: self._put_secret(given["SecretId"], given),
                exceptions=SimpleNamespace(
                    InvalidRequestException=OtherError, ResourceNotFoundException=NotFoundError
                ),
            ),
        }

    def open(self, service: str) -> Any:
        return self.clients[service]

    def put_filter(self, **given: Any) -> None:
        self.filters[given["logGroupName"]][given["filterName"]] = given

    def _delete_filter(self, **given: Any) -> None:
        del self.filters[given["logGroupName"]][given["filterName"]]

    def _paginator(self, name: str) -> Any:
        return SimpleNamespace(paginate=lambda **given: iter([self._page(name, given)]))

    def _page(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        if name == "describe_job_queues":
            return {"jobQueues": []}
        if name == "describe_subscription_filters":
            return {"subscriptionFilters": [*self.filters[given["logGroupName"]].values()]}
        prefix = given.get("logGroupNamePrefix", "")
        names = [group for group in sorted(self.filters) if group.startswith(prefix)]
        return {"logGroups": [{"logGroupName": group} for group in names]}

    def _head(self, is_there: bool) -> dict[str, Any]:  # noqa: FBT001  of one argument
        if not is_there:
            raise answer_of_error("404", 404)
        return {"BucketRegion": "eu-west-1"}

    def _get_secret(self, **given: Any) -> dict[str, str]:
        if given["SecretId"] not in self.secrets:
            raise NotFoundError({"Error": {"Code": "ResourceNotFoundException"}}, "GetSecretValue")
        return {"SecretString": self.secrets[given["SecretId"]]}

    def _put_secret(self, name: str, given: Mapping[str, Any]) -> None:
        self.secrets[name] = given["SecretString"]

    def state(self) -> tuple[object, ...]:
        stack = self.cloudformation.stack or {}
        return (
            stack.get("StackStatus"),
            sorted(self.cloudformation.pending),
            {group: sorted(filters) for group, filters in self.filters.items()},
            self.secrets,
        )


@pytest.fixture(scope="module")
def zip_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("forwarder") / "forwarder.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("handler.py", "")
    return str(path)


def deployed(calls: NthCallFails, zip_file: str) -> int:
    request = DeploymentRequest(name="tp", zip_file=zip_file, secrets=SECRETS, settings=NEW_VALUES)
    return deploy(request, calls.open, None, APPLY)


def removed(calls: NthCallFails, _zip_file: str) -> int:
    remove("tp", calls.open, APPLY)
    return 0


def tried(
    act: Callable[[NthCallFails, str], int], calls: NthCallFails, zip_file: str
) -> tuple[int, str]:
    """The exit code, and the error."""
    try:
        return act(calls, zip_file), ""
    except TaskProfilerError as error:
        return 1, str(error)


# What is throttled is as refused, with other words.
@pytest.mark.diagonal
@pytest.mark.parametrize(
    "failure", ["denied", "lost", pytest.param("throttled", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("act", "parameters"),
    [(deployed, VALUES), (deployed, None), (removed, VALUES)],
    ids=["update", "create", "delete"],
)
def test_one_failed_call_leaves_nothing_unsaid_and_the_next_run_does_the_rest(
    act: Callable[[NthCallFails, str], int],
    parameters: Mapping[str, str] | None,
    failure: Failure,
    zip_file: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    whole = World(parameters)
    calls = NthCallFails(whole.open)
    assert tried(act, calls, zip_file) == (0, "")
    for nth, name in enumerate(calls.calls, 1):
        world = World(parameters)
        capfd.readouterr()
        failing = NthCallFails(world.open, nth, failure)
        code, error = tried(act, failing, zip_file)
        output = "".join(capfd.readouterr())
        said = error + output
        where = f"{nth} {name}: {said}"
        assert SAID[failure] in said, where
        assert code == 1 or world.state() == whole.state(), where
        status = (world.cloudformation.stack or {}).get("StackStatus")
        if world.cloudformation.pending or status == "REVIEW_IN_PROGRESS":
            assert any(words in said for words in LEFT), where
        assert tried(act, NthCallFails(world.open), zip_file) == (0, ""), where
        if "delete-subscription-filter --log-group-name /ecs/old --filter-name tp-groups" in said:
            world.filters["/ecs/old"] = {}
        world.cloudformation.pending = set()  # that were said
        assert world.state() == whole.state(), where


@pytest.mark.parametrize("code", ["InvalidChangeSetStatus", "ChangeSetNotFound"])
def test_of_two_people_the_second_is_told_that_the_stack_has_changed(
    code: str, zip_file: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """CloudFormation calls a change set obsolete once another one of the stack was applied."""
    world = World(VALUES)
    world.cloudformation.overtaken = code
    refusal, error = tried(deployed, NthCallFails(world.open), zip_file)
    assert refusal == 1
    assert error == (
        "The stack tp is not changed, because somebody has changed it since this change was "
        "planned: run the command again."
    )
    assert not world.cloudformation.pending
    assert "subscribed" not in "".join(capfd.readouterr())
    world.cloudformation.overtaken = ""
    assert tried(deployed, NthCallFails(world.open), zip_file) == (0, "")
