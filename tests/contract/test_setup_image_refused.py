"""``task-profiler setup image`` with one of its calls to ECR refused, throttled, or carried out
without an answer, each in turn: the error is said, and the command, run again, pushes the image
once.
"""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from botocore.exceptions import ClientError

from profiler.aws_account.setup.monitor_image import ImageBuild
from profiler.cli.setup import setup_commands
from profiler.core.errors import TaskProfilerError
from tests.nth_calls import SAID, Failure, NthCallFails

REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"


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
            get_lifecycle_policy=lambda **_: self._absent("LifecyclePolicyNotFoundException"),
            get_repository_policy=lambda **_: self._absent("RepositoryPolicyNotFoundException"),
        )

    def open(self, _service: str) -> Any:
        return self.ecr

    def _absent(self, code: str) -> Any:
        error: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
        raise ClientError(error, "Operation")

    def _described(self, name: str) -> dict[str, str]:
        return {"repositoryUri": f"{REGISTRY}/{name}", "imageTagMutability": "IMMUTABLE"}

    def _describe(self, **given: Any) -> dict[str, Any]:
        (name,) = given["repositoryNames"]
        if name not in self.repositories:
            self._absent("RepositoryNotFoundException")
        return {"repositories": [self._described(name)]}

    def _create(self, **given: Any) -> dict[str, Any]:
        assert given["repositoryName"] not in self.repositories
        self.repositories.add(given["repositoryName"])
        return {"repository": self._described(given["repositoryName"])}

    def _describe_images(self, **_: Any) -> dict[str, Any]:
        if not self.images:
            self._absent("ImageNotFoundException")
        return {"imageDetails": []}

    # Docker's part.

    def check(self) -> None:
        """It is there."""

    def plan(self, *_: object) -> ImageBuild:
        return ImageBuild()

    @contextmanager
    def signed_in(self, *_: object) -> Iterator["Registry"]:
        yield self

    def build_and_push(self, _build: ImageBuild, image: str, *_: object) -> None:
        assert image not in self.images
        self.images.append(image)


def built(calls: NthCallFails, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> str:
    """The error of the command."""
    monkeypatch.setattr(setup_commands, "open_clients", lambda *_: calls.open)
    monkeypatch.setattr(setup_commands, "Docker", lambda _: registry)
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


@pytest.mark.parametrize("failure", get_args(Failure))
def test_one_failed_call_is_said_and_the_next_run_pushes_the_image_once(
    failure: Failure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = Registry()
    calls = NthCallFails(whole.open)
    assert built(calls, whole, monkeypatch) == ""
    assert whole.images == [f"{REGISTRY}/task-profiler:1"]
    for nth, name in enumerate(calls.calls, 1):
        registry = Registry()
        capfd.readouterr()
        error = built(NthCallFails(registry.open, nth, failure), registry, monkeypatch)
        said = error + "".join(capfd.readouterr())
        assert SAID[failure] in said, (nth, name, said)
        assert error or registry.images == whole.images, (nth, name)
        assert built(NthCallFails(registry.open), registry, monkeypatch) == "", (nth, name)
        assert registry.images == whole.images, (nth, name)
        assert f"{REGISTRY}/task-profiler:1\n" in capfd.readouterr().out
