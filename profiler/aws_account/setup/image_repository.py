"""The repository of the monitor's image in Amazon ECR."""

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.core.aws_clients import AwsClient
from profiler.core.ecs_terms import MONITOR_REPOSITORY
from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping, mappings, text
from profiler.core.version import __version__
from profiler.task_definitions.permissions import concerns, listed, statements_of


class Login(Struct, frozen=True, kw_only=True):
    """The arguments of ``docker login``. The password is valid for 12 hours."""

    registry: str
    user: str
    password: str


class ImageRepository:
    """One repository, which may not exist yet."""

    def __init__(self, ecr: AwsClient, name: str) -> None:
        self.region: str = ecr.meta.region_name
        self.name = name
        self._ecr = ecr

    def uri(self) -> str | None:
        """The repository's URI; None if it does not exist."""
        found = self._read("describe_repositories", "RepositoryNotFoundException", repositoryNames=[self.name])
        return None if found is None else str(found["repositories"][0]["repositoryUri"])

    def create(self) -> str:
        """Create the repository, with immutable tags, and return its URI."""
        with aws_errors(f"The repository {self.name} cannot be created", "ecr:CreateRepository"):
            made = self._ecr.create_repository(repositoryName=self.name, imageTagMutability="IMMUTABLE")
        return str(made["repository"]["repositoryUri"])

    def has_tag(self, tag: str) -> bool:
        """Whether an image with this tag is in the repository, which exists."""
        ids = [{"imageTag": tag}]
        return self._read("describe_images", "ImageNotFoundException", imageIds=ids) is not None

    def login(self) -> Login:
        """Ask for a password of the registry."""
        with aws_errors("Docker cannot sign in to Amazon ECR", "ecr:GetAuthorizationToken"):
            (given,) = self._ecr.get_authorization_token()["authorizationData"]
        user, _, password = b64decode(given["authorizationToken"]).decode().partition(":")
        return Login(registry=given["proxyEndpoint"].removeprefix("https://"), user=user, password=password)

    def warnings(self, tag: str) -> Iterator[str]:
        """Sentences about settings that would later remove the image, or keep tasks from pulling it."""
        try:
            yield from self._warnings(tag)
        except TaskProfilerError as error:
            yield f"It is unknown whether a rule of {self.name} expires the image. {error}"

    def _warnings(self, tag: str) -> Iterator[str]:
        found = self._read("describe_repositories", "RepositoryNotFoundException", repositoryNames=[self.name])
        if found is not None and found["repositories"][0].get("imageTagMutability") == "MUTABLE":
            yield (
                f"The tags of {self.name} are mutable, so a push can replace the image under running schedules: "
                "aws ecr put-image-tag-mutability makes them immutable."
            )
        lifecycle = self._read("get_lifecycle_policy", "LifecyclePolicyNotFoundException")
        for rule in mappings(_document(lifecycle, "lifecyclePolicyText").get("rules")):
            if _selects(mapping(rule.get("selection")), tag):
                title = " ".join(filter(None, (str(rule.get("rulePriority", "")), text(rule.get("description")))))
                yield (
                    f"The lifecycle rule {title} of {self.name} also expires the image {tag}, and then no task with "
                    "the monitor's container starts: exclude the tag from the rule."
                )
        policy = self._read("get_repository_policy", "RepositoryPolicyNotFoundException")
        for statement in statements_of(_document(policy, "policyText")):
            title = f"The statement {text(statement.get('Sid')) or 'without a Sid'} in the policy of {self.name}"
            if statement.get("Effect") == "Deny" and concerns(
                statement, "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"
            ):
                yield f"{title} denies the pull to some principals: tasks with such an execution role do not start."
            if statement.get("Effect") == "Allow" and concerns(statement, "ecr:BatchDeleteImage"):
                yield f"{title} allows others to delete the image."

    def _read(self, operation: str, missing: str, **arguments: object) -> Mapping[str, Any] | None:
        """Call an operation that reads; None if the answer is the error ``missing``."""
        from botocore.exceptions import ClientError  # slow to import

        if operation != "describe_repositories":
            arguments["repositoryName"] = self.name
        with aws_errors(f"The repository {self.name} cannot be read"):
            try:
                found: Mapping[str, Any] = getattr(self._ecr, operation)(**arguments)
            except ClientError as error:
                if error.response.get("Error", {}).get("Code") != missing:
                    raise
                return None
        return found


def has_default_image(open_client: OpenClient) -> bool:
    """Whether the image is there that ``setup image`` pushes without options. Raises TaskProfilerError."""
    repository = ImageRepository(open_client("ecr"), MONITOR_REPOSITORY)
    return repository.uri() is not None and repository.has_tag(__version__)


def _document(answer: Mapping[str, Any] | None, field: str) -> Mapping[str, object]:
    return {} if answer is None else mapping(json.loads(answer[field]))


def _selects(selection: Mapping[str, object], tag: str) -> bool:
    """Whether a lifecycle rule selects an image that has this tag alone. It must match all prefixes or patterns.

    A rule for untagged images never selects the images of an index that has a tag.
    """
    if selection.get("tagStatus") == "any":
        return True
    prefixes, patterns = (
        [str(one) for one in listed(selection.get(field)) if one] for field in ("tagPrefixList", "tagPatternList")
    )
    if selection.get("tagStatus") != "tagged" or not (prefixes or patterns):
        return False
    return all(map(tag.startswith, prefixes)) and all(fnmatchcase(tag, pattern) for pattern in patterns)
