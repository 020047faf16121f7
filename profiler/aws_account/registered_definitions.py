"""Task definitions in Amazon ECS: finds, reads and registers them."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from profiler.aws_account.aws_errors import aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import family_of
from profiler.core.errors import TaskProfilerError

# Of the revisions of a family: ECS allows some 20 calls a second to all programs of an account.
_MAX_READS = 3
_SERVICES_PER_CALL = 10
_WILDCARDS = re.compile(r"[*?\[]")


def glob_prefix(glob: str) -> str:
    """The beginning of a glob, up to its first wildcard, for calls that list by a prefix."""
    return _WILDCARDS.split(glob, maxsplit=1)[0]


class LastBody:
    """The unparsed body of the last response of an operation: boto3's parsed one lacks fields
    that it does not know.
    """

    def __init__(self, client: AwsClient, operation: str) -> None:
        self.content = b""
        service = client.meta.service_model.service_id.hyphenize()
        # The event has more arguments than the response.
        client.meta.events.register_last(f"after-call.{service}.{operation}", self._keep)

    def _keep(self, http_response: Any, **_: object) -> None:  # noqa: ANN401  as above
        self.content = http_response.content


def read_items(
    client: AwsClient, operation: str, field: str, **parameters: object
) -> Iterator[Any]:
    """The items of a field of all pages of an operation. Raises boto3's errors."""
    for page in client.get_paginator(operation).paginate(**parameters):
        yield from page[field]


def read_services(client: AwsClient, cluster: str, **selection: str) -> Iterator[Mapping[str, Any]]:
    """The services of a cluster, of a ``selection`` of ListServices, by DescribeServices.

    Raises boto3's errors.
    """
    arns = [*read_items(client, "list_services", "serviceArns", cluster=cluster, **selection)]
    for start in range(0, len(arns), _SERVICES_PER_CALL):
        chunk = arns[start : start + _SERVICES_PER_CALL]
        yield from client.describe_services(cluster=cluster, services=chunk)["services"]


class TaskDefinitions:
    """The account's task definitions in Amazon ECS. Every method raises TaskProfilerError with
    ECS's reason.
    """

    def __init__(self, client: AwsClient) -> None:
        self._client = client
        self._described = LastBody(client, "DescribeTaskDefinition")

    def describe(self, name: str) -> bytes:
        """Return ECS's response for a family's latest active revision, or for
        ``family:revision``, unparsed.
        """
        with aws_errors(
            f"The task definition {name!r} could not be read", "ecs:DescribeTaskDefinition"
        ):
            self._client.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return self._described.content

    def register(self, definition: Mapping[str, object]) -> str:
        with aws_errors(
            "No revision was registered",
            "ecs:RegisterTaskDefinition, ecs:TagResource and iam:PassRole",
        ):
            response = self._client.register_task_definition(**definition)
        return str(response["taskDefinition"]["taskDefinitionArn"])

    def families(self, glob: str) -> frozenset[str]:
        """The families with an active revision whose name matches the glob."""
        prefix = glob_prefix(glob)
        start = {"familyPrefix": prefix} if prefix else {}
        with aws_errors(
            "The task definitions could not be listed", "ecs:ListTaskDefinitionFamilies"
        ):
            families = read_items(
                self._client, "list_task_definition_families", "families", status="ACTIVE", **start
            )
            return frozenset(family for family in families if fnmatchcase(family, glob))

    def families_of_services(self) -> frozenset[str]:
        families: set[str] = set()
        permission = "ecs:ListClusters, ecs:ListServices and ecs:DescribeServices"
        with aws_errors("The services could not be listed", permission):
            for cluster in self.clusters():
                for service in read_services(self._client, cluster):
                    families.update(map(family_of, _definitions_of_service(service)))
        return frozenset(families)

    def clusters(self) -> tuple[str, ...]:
        with aws_errors("The clusters could not be listed", "ecs:ListClusters"):
            arns = read_items(self._client, "list_clusters", "clusterArns")
            return tuple(sorted(arn.rpartition("/")[2] for arn in arns))


class BoundedReads:
    """Reads at most three revisions of each family.

    ``describe`` has the form of :meth:`TaskDefinitions.describe`. The newest revision of a family
    is read each time, because it may have changed. ``reads_twice``: one call is kept for that.
    """

    def __init__(self, describe: Callable[[str], bytes], *, reads_twice: bool) -> None:
        self._describe = describe
        self._reads_twice = reads_twice
        self._known: dict[str, bytes] = {}
        self._reads: Counter[str] = Counter()
        self._newest_reads: Counter[str] = Counter()

    def describe(self, name: str) -> bytes:
        """ECS's response for a family, or for ``family:revision``. Raises TaskProfilerError."""
        family, _, revision = name.partition(":")
        if not revision:
            self._newest_reads[family] += 1
            self._reads[family] += 1
            return self._describe(name)
        if name not in self._known:
            self._check(family, name)
            self._reads[family] += 1
            self._known[name] = self._describe(name)
        return self._known[name]

    def _check(self, family: str, name: str) -> None:
        is_second_to_come = self._reads_twice and self._newest_reads[family] < 2  # noqa: PLR2004
        if self._reads[family] + is_second_to_come >= _MAX_READS:
            raise TaskProfilerError(
                f"{name} was not read: a call reads {_MAX_READS} revisions of a family at most."
            )


def _definitions_of_service(service: Mapping[str, Any]) -> Iterator[str]:
    """The definitions that a service runs. With an EXTERNAL controller, only its task sets have
    one.
    """
    for part in (service, *service.get("taskSets", ()), *service.get("deployments", ())):
        definition = part.get("taskDefinition")
        if definition:
            yield str(definition)


def revision_of(arn: str) -> str | None:
    """``family:revision`` if the ARN or the name contains a revision, else None."""
    name = arn.rpartition("/")[2]
    return name if ":" in name else None
