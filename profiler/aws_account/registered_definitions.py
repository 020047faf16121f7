"""Task definitions in Amazon ECS: finds, reads and registers them.

The revisions with our tags are found in a few calls for all families: a pipeline that registers its
own file again hides a revision of ours behind others without tags.
https://docs.aws.amazon.com/resourcegroupstagging/latest/APIReference/API_GetResources.html
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import Any, Protocol

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.aws_error_codes import error_code
from profiler.core.bounded_batches import batches
from profiler.core.ecs_terms import cluster_name, family_of, revision_text
from profiler.core.errors import TaskProfilerError
from profiler.core.optional_math import known_values
from profiler.core.text import did_you_mean
from profiler.sizing.sized_revision import RESIZED_FROM, RESTORED_OVER, REVERTED_FROM

GET_TAGGED_RIGHT = "tag:GetResources"
_TASK_DEFINITION_TYPE = "ecs:task-definition"
_SERVICES_PER_CALL = 10
# ECS's code for a definition that does not exist.
_NO_SUCH_DEFINITION = "ClientException"
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
    """The items of a field of all pages of an operation, of which AWS can leave any empty. Raises
    boto3's errors.
    """
    for page in client.get_paginator(operation).paginate(**parameters):
        yield from page[field]


def read_services(client: AwsClient, cluster: str, **selection: str) -> Iterator[Mapping[str, Any]]:
    """The services of a cluster, of a ``selection`` of ListServices, by DescribeServices.

    Raises boto3's errors.
    """
    arns = [*read_items(client, "list_services", "serviceArns", cluster=cluster, **selection)]
    for chunk in batches(arns, _SERVICES_PER_CALL):
        yield from client.describe_services(cluster=cluster, services=chunk)["services"]


class AccountDefinitions(Protocol):
    """The definitions of an account that a rollout changes, in the form of task definitions: those
    of ECS, or of jobs. Every method raises TaskProfilerError.
    """

    def describe(self, name: str) -> bytes:
        """The newest active revision of a name, or ``name:revision``, as ECS answers."""
        ...

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision, and return its ARN."""
        ...

    def families(self, glob: str) -> frozenset[str]:
        """The names with an active revision that match the glob."""
        ...

    def newest_withdrawn(self, family: str, /) -> int | None:
        """The number of the newest revision that somebody has deregistered."""
        ...

    def families_of_services(self) -> frozenset[str]:
        """The names whose tasks are run by services."""
        ...

    def clusters(self) -> tuple[str, ...]:
        """The clusters whose tasks are looked at."""
        ...


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
        """Register a revision, and return its ARN."""
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

    def newest_withdrawn(self, family: str) -> int | None:
        """The number of the newest revision that somebody has deregistered, or is deleting."""
        numbers: list[int] = []
        with aws_errors(
            f"The deregistered revisions of {family} could not be listed", "ecs:ListTaskDefinitions"
        ):
            for status in ("INACTIVE", "DELETE_IN_PROGRESS"):
                arns = read_items(
                    self._client,
                    "list_task_definitions",
                    "taskDefinitionArns",
                    familyPrefix=family,
                    status=status,
                    sort="DESC",
                    maxResults=1,
                )
                numbers += [int(revision_text(arn)) for arn in islice(arns, 1)]
        return max(numbers, default=None)

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
            return tuple(sorted(known_values(map(cluster_name, arns))))


def _definitions_of_service(service: Mapping[str, Any]) -> Iterator[str]:
    """The definitions that a service runs. With an EXTERNAL controller, only its task sets have
    one.
    """
    for part in (service, *service.get("taskSets", ()), *service.get("deployments", ())):
        definition = part.get("taskDefinition")
        if definition:
            yield str(definition)


@contextmanager
def missing_definition_named(definitions: TaskDefinitions, name: str) -> Iterator[None]:
    """Raise an error that names a similar definition, if ECS says that there is none of a name."""
    try:
        yield
    except TaskProfilerError as error:
        if not is_definition_missing(error):
            raise
        known: frozenset[str] = frozenset()
        with suppress(TaskProfilerError):  # without the right to list them, no name is similar
            known = definitions.families("*")
        raise TaskProfilerError(
            f"There is no task definition {name!r}: check the name, --region and --profile."
            f"{did_you_mean([family_of(name)], sorted(known))}"
        ) from error.__cause__


def may_definition_exist(error: TaskProfilerError) -> bool:
    """Whether a definition that was not read may exist, because AWS gave another reason than that
    it has none.
    """
    return isinstance(error.__cause__, Exception) and not is_definition_missing(error)


def is_definition_missing(error: TaskProfilerError) -> bool:
    """Whether a definition was not read because AWS says that it has none."""
    cause = error.__cause__
    return isinstance(cause, Exception) and error_code(cause) == _NO_SUCH_DEFINITION


def revision_of(arn: str) -> str | None:
    """``family:revision`` if the ARN or the name contains a revision, else None."""
    name = arn.rpartition("/")[2]
    return name if ":" in name else None


class TaggedRevisions:
    """Finds revisions of ours. Methods raise TaskProfilerError with AWS's reason."""

    def __init__(self, open_client: OpenClient) -> None:
        self._open_client = open_client

    def of_family(self, newest_arn: str) -> Mapping[int, Mapping[str, str]]:
        """The tags of the family's revisions with our tags, by their numbers."""
        family_arn = newest_arn.rpartition(":")[0]
        return self._by_family.get(family_arn, {})

    @cached_property
    def _by_family(self) -> Mapping[str, Mapping[int, Mapping[str, str]]]:
        families: dict[str, dict[int, Mapping[str, str]]] = {}
        client = self._open_client("resourcegroupstaggingapi")
        with aws_errors("The revisions with our tags could not be listed", GET_TAGGED_RIGHT):
            for key in (RESIZED_FROM, REVERTED_FROM, RESTORED_OVER):
                resources = read_items(
                    client,
                    "get_resources",
                    "ResourceTagMappingList",
                    TagFilters=[{"Key": key}],
                    ResourceTypeFilters=[_TASK_DEFINITION_TYPE],
                )
                for resource in resources:
                    family_arn, _, number = resource["ResourceARN"].rpartition(":")
                    tags = {tag["Key"]: tag["Value"] for tag in resource["Tags"]}
                    families.setdefault(family_arn, {})[int(number)] = tags
        return families
