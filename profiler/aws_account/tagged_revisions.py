"""The revisions of an account that have our tags, in a few calls for all families.

A pipeline that registers its own file again hides a revision of ours behind others without tags.
https://docs.aws.amazon.com/resourcegroupstagging/latest/APIReference/API_GetResources.html
"""

from collections.abc import Mapping
from functools import cached_property

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.registered_definitions import read_items
from profiler.sizing.sized_revision import RESIZED_FROM, RESTORED_OVER, REVERTED_FROM

GET_RIGHT = "tag:GetResources"
_TYPE = "ecs:task-definition"


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
        with aws_errors("The revisions with our tags could not be listed", GET_RIGHT):
            for key in (RESIZED_FROM, REVERTED_FROM, RESTORED_OVER):
                resources = read_items(
                    client,
                    "get_resources",
                    "ResourceTagMappingList",
                    TagFilters=[{"Key": key}],
                    ResourceTypeFilters=[_TYPE],
                )
                for resource in resources:
                    family_arn, _, number = resource["ResourceARN"].rpartition(":")
                    tags = {tag["Key"]: tag["Value"] for tag in resource["Tags"]}
                    families.setdefault(family_arn, {})[int(number)] = tags
        return families
