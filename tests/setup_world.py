"""An account in which ``setup stack`` is an act on a played stack, and the act with clients that
fail.
"""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.setup.forwarder_deployment import DeploymentRequest
from profiler.cli.setup.deployment_output import (
    DeploymentOutput,
    delete_forwarder,
    deploy_forwarder,
)
from profiler.core.errors import TaskProfilerError
from tests.fake_cloudformation import CHANGE_SET, STACK_ID, FakeCloudFormation, of_stack
from tests.nth_calls import NthCallFails

GROUP: Final = "/ecs/jobs"
BUCKET: Final = "task-profiler-123456789012-eu-west-1"
VALUES: Final = {"ElasticsearchUrl": "https://search.example.com", "LogGroups": "/ecs/old"}
NEW_VALUES: Final = VALUES | {"LogGroups": GROUP}
SECRETS: Final = {"SlackSecretId": {"slack_failure_webhook_url": "https://hooks.slack.com/x"}}
APPLY: Final = DeploymentOutput(is_applied=True, as_json=False)


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
        self._is_deleted = False
        self._last_parameters: list[Any] = []
        self.overtaken = ""
        self._asked: list[Any] = []
        self.undeletable = ""  # why a resource cannot be deleted
        if parameters is not None:
            self.stack = self._stack("UPDATE_COMPLETE", parameters)

    def _stack(self, status: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        given = [{"ParameterKey": name, "ParameterValue": parameters[name]} for name in parameters]
        return {"StackStatus": status, "Parameters": given}

    def describe_stacks(self, **arguments: Any) -> dict[str, Any]:
        """A deleted stack is found by its ARN alone."""
        is_gone = self.stack is None and self._is_deleted
        if is_gone and arguments["StackName"] == STACK_ID:
            gone = {"StackName": "tp", "StackId": STACK_ID, "StackStatus": "DELETE_COMPLETE"}
            return {"Stacks": [gone | {"Parameters": self._last_parameters}]}
        return super().describe_stacks(**arguments)

    def _deleted_stacks(self, **arguments: Any) -> list[dict[str, Any]]:
        """One of another name, and the stack if it is deleted, after one of long ago."""
        pages = super()._deleted_stacks(**arguments)
        other = {"StackName": "tp-2", "StackId": "other", "DeletionTime": 3}
        old = {"StackName": "tp", "StackId": "old", "DeletionTime": 1}
        last = {"StackName": "tp", "StackId": STACK_ID, "DeletionTime": 2}
        return [*pages, {"StackSummaries": [last, other, old] if self._is_deleted else [other]}]

    def create_change_set(self, **arguments: Any) -> dict[str, str]:
        made = super().create_change_set(**arguments)
        is_there = self.stack is not None and self.stack["StackStatus"] != "REVIEW_IN_PROGRESS"
        if arguments["ChangeSetType"] == "CREATE" and is_there:
            message = "Stack [tp] already exists and cannot be created again"
            raise answer_of_error("ValidationError", message=message)
        if arguments["ChangeSetType"] == "UPDATE" and not is_there:
            raise answer_of_error("ValidationError", message="Stack [tp] does not exist")
        self._asked = arguments["Parameters"]
        if self.stack is None:
            self.stack = {"StackStatus": "REVIEW_IN_PROGRESS"}
        made["Id"] = f"{CHANGE_SET}{len(self.called)}"
        self.pending.add(made["Id"])
        return made

    def delete_change_set(self, **arguments: Any) -> None:
        super().delete_change_set(**arguments)
        self.pending.discard(arguments["ChangeSetName"])

    def execute_change_set(self, operation: str = "ExecuteChangeSet", **arguments: Any) -> None:
        """Apply it. The other change sets of the stack are gone, as they are with AWS."""
        if self.overtaken:
            raise answer_of_error(self.overtaken, message="its execution status is [OBSOLETE]")
        if arguments["ChangeSetName"] not in self.pending:
            raise answer_of_error("ChangeSetNotFound", message="ChangeSet does not exist")
        super().execute_change_set(operation, **arguments)
        self.pending.clear()
        earlier = (self.stack or {}).get("Parameters", ())
        values = {one["ParameterKey"]: one["ParameterValue"] for one in earlier}
        for one in self._asked:
            if not one.get("UsePreviousValue"):
                values[one["ParameterKey"]] = one["ParameterValue"]
        self.stack = self._stack("UPDATE_COMPLETE", values)
        self.happens.append([of_stack("UPDATE_COMPLETE")])

    def delete_stack(self, **arguments: Any) -> None:
        """Delete it, which is no event where it is deleted already."""
        self._call("DeleteStack", arguments)
        if self.stack is None:
            return
        if self.undeletable:
            self._is_changing = True
            self.stack["StackStatus"] = "DELETE_FAILED"
            role = ("DELETE_FAILED", "Role", "AWS::IAM::Role", self.undeletable)
            self.happens.append([role, of_stack("DELETE_FAILED")])
            return
        self._last_parameters = self.stack.get("Parameters", [])
        self.stack, self._is_deleted = None, True
        self.pending.clear()
        self._is_changing = True
        self.happens.append([of_stack("DELETE_COMPLETE")])


class World:
    """An account with a stack, log groups with subscription filters, a bucket and secrets."""

    def __init__(self, parameters: Mapping[str, str] | None) -> None:
        self.cloudformation = Stack(parameters)
        self.filters: dict[str, dict[str, dict[str, Any]]] = {
            GROUP: {},
            "/ecs/old": {},
            "/ecs/b": {},
        }
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
        self.secret_versions: dict[str, int] = {}
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
                create_bucket=self._create_bucket,
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
                describe_secret=self._describe_secret,
                create_secret=self._create_secret,
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
        if self.filters[given["logGroupName"]].pop(given["filterName"], None) is None:
            raise NotFoundError(
                {"Error": {"Code": "ResourceNotFoundException"}}, "DeleteSubscriptionFilter"
            )

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

    def named_groups(self) -> list[str]:
        """The log groups that the stack names."""
        listed = (self.cloudformation.stack or {}).get("Parameters", ())
        values = {one["ParameterKey"]: one["ParameterValue"] for one in listed}
        return str(values.get("LogGroups", "")).split(",")

    def _head(self, is_there: bool) -> dict[str, Any]:  # noqa: FBT001  of one argument
        if not is_there:
            raise answer_of_error("404", 404)
        return {"BucketRegion": "eu-west-1"}

    def _get_secret(self, **given: Any) -> dict[str, str]:
        if given["SecretId"] not in self.secrets:
            raise NotFoundError({"Error": {"Code": "ResourceNotFoundException"}}, "GetSecretValue")
        name = given["SecretId"]
        return {"SecretString": self.secrets[name], "VersionId": f"{self.secret_versions[name]}"}

    def _describe_secret(self, **given: Any) -> dict[str, Any]:
        version = self.secret_versions[given["SecretId"]]
        return {
            "Tags": [{"Key": "application", "Value": "task-profiler"}],
            "VersionIdsToStages": {
                f"{version}": ["AWSCURRENT"],
                f"{version - 1}": ["AWSPREVIOUS"],
            },
        }

    def _create_bucket(self, **given: Any) -> None:
        if given["Bucket"] in self.buckets:
            raise answer_of_error("BucketAlreadyOwnedByYou", 409)
        self.buckets.add(given["Bucket"])

    def _create_secret(self, **given: Any) -> None:
        if given["Name"] in self.secrets:
            raise answer_of_error("ResourceExistsException")
        self._put_secret(given["Name"], given)

    def _put_secret(self, name: str, given: Mapping[str, Any]) -> dict[str, str]:
        self.secrets[name] = given["SecretString"]
        self.secret_versions[name] = self.secret_versions.get(name, 0) + 1
        return {"VersionId": f"{self.secret_versions[name]}"}

    def state(self) -> tuple[object, ...]:
        stack = self.cloudformation.stack or {}
        return (
            stack.get("StackStatus"),
            sorted(self.cloudformation.pending),
            {group: sorted(filters) for group, filters in self.filters.items()},
            self.secrets,
        )


def forwarder_zip(folder: Path) -> str:
    """The path of a zip file with the functions' code."""
    path = folder / "forwarder.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("handler.py", "")
    return str(path)


def deployed(calls: NthCallFails, zip_file: str) -> int:
    request = DeploymentRequest(name="tp", zip_file=zip_file, secrets=SECRETS, settings=NEW_VALUES)
    return deploy_forwarder(request, calls.open, None, APPLY)


def asking(group: str, setting: str) -> "Act":
    """The act of somebody who asks for a log group, and for a setting of the secret."""

    def act(calls: NthCallFails, zip_file: str) -> int:
        request = DeploymentRequest(
            name="tp",
            zip_file=zip_file,
            secrets={"SlackSecretId": {setting: f"https://hooks.slack.com/{setting}"}},
            settings=VALUES | {"LogGroups": group},
        )
        return deploy_forwarder(request, calls.open, None, APPLY)

    return act


def removed(calls: NthCallFails, _zip_file: str) -> int:
    delete_forwarder("tp", calls.open, APPLY)
    return 0


Act: TypeAlias = Callable[[NthCallFails, str], int]
# Each act, and the parameters of the stack before it.
ACTS: Final = pytest.mark.parametrize(
    ("act", "parameters"),
    [(deployed, VALUES), (deployed, None), (removed, VALUES)],
    ids=["update", "create", "delete"],
)


def tried(act: Act, calls: NthCallFails, zip_file: str) -> tuple[int, str]:
    """The exit code, and the error."""
    try:
        return act(calls, zip_file), ""
    except TaskProfilerError as error:
        return 1, str(error)
