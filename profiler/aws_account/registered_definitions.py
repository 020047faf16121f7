"""Task definitions in Amazon ECS: finds, reads and registers them."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.aws_clients import AwsClient

_TASKS_PER_CALL = 100
_SERVICES_PER_CALL = 10
_WILDCARDS = re.compile(r"[*?\[]")
_STATUSES = ("RUNNING", "STOPPED")  # ECS lists stopped tasks for about an hour


class LastBody:
    """The unparsed body of the last response of an operation.

    boto3's parsed response lacks fields that are newer than boto3. Writing it back would lose them.
    """

    def __init__(self, client: AwsClient, operation: str) -> None:
        self.content = b""
        service = client.meta.service_model.service_id.hyphenize()
        # The event has more arguments than the response.
        client.meta.events.register_last(f"after-call.{service}.{operation}", self._keep)

    def _keep(self, http_response: Any, **_: object) -> None:  # noqa: ANN401  as above
        self.content = http_response.content


class TaskDefinitions:
    """The account's task definitions in Amazon ECS. Every method raises TaskProfilerError with ECS's reason."""

    def __init__(self, client: AwsClient) -> None:
        self._client = client
        self._described = LastBody(client, "DescribeTaskDefinition")

    def describe(self, name: str) -> bytes:
        """Return ECS's response for a family's latest active revision, or for ``family:revision``, unparsed."""
        with aws_errors(f"The task definition {name!r} could not be read"):
            self._client.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return self._described.content

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision and return its ARN."""
        with aws_errors("No revision was registered"):
            response = self._client.register_task_definition(**definition)
        return str(response["taskDefinition"]["taskDefinitionArn"])

    def is_active(self, name: str) -> bool:
        """Whether ``family:revision`` can be started. A deleted revision cannot be described."""
        with aws_errors(f"The task definition {name!r} could not be read"):
            try:
                described = self._client.describe_task_definition(taskDefinition=name)
            except self._client.exceptions.ClientException:
                return False
        return bool(described["taskDefinition"]["status"] == "ACTIVE")

    def families(self, glob: str) -> frozenset[str]:
        """The families with an active revision whose name matches the glob."""
        prefix = _WILDCARDS.split(glob, maxsplit=1)[0]
        start = {"familyPrefix": prefix} if prefix else {}
        with aws_errors("The task definitions could not be listed"):
            pages = self._client.get_paginator("list_task_definition_families").paginate(status="ACTIVE", **start)
            return frozenset(family for page in pages for family in page["families"] if fnmatchcase(family, glob))

    def families_of_tasks(self, cluster: str) -> frozenset[str]:
        """The families of the tasks that ECS lists for the cluster: running, and stopped within about an hour."""
        families: set[str] = set()
        with aws_errors(f"The tasks of the cluster {cluster!r} could not be listed"):
            for status in _STATUSES:
                pages = self._client.get_paginator("list_tasks").paginate(cluster=cluster, desiredStatus=status)
                arns = [arn for page in pages for arn in page["taskArns"]]
                for start in range(0, len(arns), _TASKS_PER_CALL):
                    described = self._client.describe_tasks(
                        cluster=cluster, tasks=arns[start : start + _TASKS_PER_CALL]
                    )
                    families.update(family_of(task["taskDefinitionArn"]) for task in described["tasks"])
        return frozenset(families)

    def families_of_services(self) -> frozenset[str]:
        """The families that services of all clusters run."""
        families: set[str] = set()
        with aws_errors("The services could not be listed"):
            for clusters in self._client.get_paginator("list_clusters").paginate():
                for cluster in clusters["clusterArns"]:
                    families.update(self._families_of_services(cluster))
        return frozenset(families)

    def _families_of_services(self, cluster: str) -> Iterator[str]:
        pages = self._client.get_paginator("list_services").paginate(cluster=cluster)
        arns = [arn for page in pages for arn in page["serviceArns"]]
        for start in range(0, len(arns), _SERVICES_PER_CALL):
            described = self._client.describe_services(
                cluster=cluster, services=arns[start : start + _SERVICES_PER_CALL]
            )
            for service in described["services"]:
                if service.get("taskDefinition"):
                    yield family_of(service["taskDefinition"])


def family_of(arn: str) -> str:
    """The family of a task definition's ARN, of ``family:revision`` or of a family."""
    return arn.rpartition("/")[2].split(":", 1)[0]


def previous_revision(arn: str) -> str:
    """``family:revision`` of the revision that was registered before this one."""
    family, _, revision = arn.rpartition("/")[2].partition(":")
    return f"{family}:{int(revision) - 1}"


def revision_of(arn: str) -> str | None:
    """``family:revision`` if the ARN or the name contains a revision, else None."""
    name = arn.rpartition("/")[2]
    return name if ":" in name else None
