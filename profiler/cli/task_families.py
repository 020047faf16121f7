"""Task definitions in Amazon ECS, read and registered through boto3."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from profiler.errors import TaskProfilerError


class TaskDefinitions:
    """The account's task definitions. Every call raises TaskProfilerError with ECS's reason."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._client = client

    def describe(self, name: str) -> bytes:
        """The answer for a family's latest revision, or for ``family:revision``, as ECS sent it.

        boto3 leaves out of its own reading the fields that are newer than itself; registering that
        would lose them.
        """
        bodies: list[bytes] = []
        # boto3 passes much more than the answer.
        self._client.meta.events.register_last(
            "after-call.ecs.DescribeTaskDefinition", lambda http_response, **_: bodies.append(http_response.content)
        )
        with _translate_errors(f"the task definition {name!r} could not be read"):
            self._client.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return bodies[-1]

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision; its name, ``family:revision``."""
        with _translate_errors("no revision was registered"):
            answer = self._client.register_task_definition(**definition)
        registered = answer["taskDefinition"]
        return f"{registered['family']}:{registered['revision']}"


def open_task_definitions() -> TaskDefinitions:
    """With boto3's own settings: region, credentials, AWS_ENDPOINT_URL."""
    import boto3  # noqa: PLC0415  heavy, and only for --family

    with _translate_errors("Amazon ECS cannot be asked"):
        return TaskDefinitions(boto3.client("ecs"))


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError  # noqa: PLC0415  as boto3

    try:
        yield
    except ParamValidationError as error:
        reason = " ".join(str(error.kwargs["report"]).split())
        raise TaskProfilerError(
            f"boto3 does not know all that the definition holds, so {what}: upgrade boto3 ({reason})."
        ) from error
    except (BotoCoreError, ClientError) as error:
        reason = str(error).rstrip(".")
        raise TaskProfilerError(
            f"{what[0].upper()}{what[1:]} ({reason}): check the family's name, the region and your credentials."
        ) from error
