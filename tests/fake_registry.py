"""``setup image`` against a played registry of ECR, with a played Docker."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.setup.monitor_image import ImageBuild
from profiler.cli.setup import setup_commands
from profiler.core.errors import TaskProfilerError
from tests.nth_calls import NthCallFails

REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
IMAGE = f"{REGISTRY}/task-profiler:1"


class Registry:
    """A registry of ECR, and the Docker that pushes into it."""

    def __init__(self) -> None:
        self.repositories: set[str] = set()
        self.images: list[str] = []
        self.ecr = SimpleNamespace(
            meta=SimpleNamespace(region_name="eu-west-1"),
            describe_repositories=self._describe,
            create_repository=self._create,
            describe_images=self._describe_images,
            get_authorization_token=lambda: {
                "authorizationData": [
                    {
                        "authorizationToken": b64encode(b"AWS:secret").decode(),
                        "proxyEndpoint": f"https://{REGISTRY}",
                    }
                ]
            },
            get_lifecycle_policy=lambda **_: self._refuse("LifecyclePolicyNotFoundException"),
            get_repository_policy=lambda **_: self._refuse("RepositoryPolicyNotFoundException"),
        )

    def open(self, _service: str) -> Any:
        return self.ecr

    def _refuse(self, code: str) -> Any:
        error: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        raise ClientError(error, "Operation")

    def _described(self, name: str) -> dict[str, str]:
        return {"repositoryUri": f"{REGISTRY}/{name}", "imageTagMutability": "IMMUTABLE"}

    def _describe(self, **given: Any) -> dict[str, Any]:
        (name,) = given["repositoryNames"]
        if name not in self.repositories:
            self._refuse("RepositoryNotFoundException")
        return {"repositories": [self._described(name)]}

    def _create(self, **given: Any) -> dict[str, Any]:
        if given["repositoryName"] in self.repositories:
            self._refuse("RepositoryAlreadyExistsException")
        self.repositories.add(given["repositoryName"])
        return {"repository": self._described(given["repositoryName"])}

    def _describe_images(self, **_: Any) -> dict[str, Any]:
        if not self.images:
            self._refuse("ImageNotFoundException")
        return {"imageDetails": []}

    # Docker's part.

    def check_docker(self) -> None:
        """It is there."""

    def plan_build(self, *_: object) -> ImageBuild:
        return ImageBuild()

    @contextmanager
    def signed_in(self, *_: object) -> Iterator["Registry"]:
        yield self

    def build_and_push(self, _build: ImageBuild, image: str, *_: object) -> None:
        """Docker's exit code is 1 where the repository refuses a tag that it has."""
        if image in self.images:
            raise TaskProfilerError("docker push failed with exit code 1")
        self.images.append(image)


def built(calls: NthCallFails, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of the command."""
    monkeypatch.setattr(setup_commands, "open_clients", lambda *_: calls.open)
    monkeypatch.setattr(setup_commands, "DockerProgram", lambda _: registry)
    try:
        setup_commands.image.callback(  # type: ignore[misc]  # click's callback is optional
            options=(),
            repository="task-profiler",
            tag="1",
            platforms=(),
            yes=True,
            as_json=False,
            region="eu-west-1",
            profile=None,
        )
    except TaskProfilerError as error:
        return str(error)
    return ""
