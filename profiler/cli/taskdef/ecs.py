"""Task definitions in Amazon ECS: reads and registers them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from profiler.core.errors import TaskProfilerError


class TaskDefinitions:
    """The account's task definitions in Amazon ECS. Every method raises TaskProfilerError with ECS's reason."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._client = client

    def describe(self, name: str) -> bytes:
        """Return ECS's response for a family's latest revision, or for ``family:revision``, unparsed.

        boto3's parsed response lacks fields that are newer than boto3. Registering it would lose them.
        """
        bodies: list[bytes] = []
        # The event has more arguments than the response.
        self._client.meta.events.register_last(
            "after-call.ecs.DescribeTaskDefinition", lambda http_response, **_: bodies.append(http_response.content)
        )
        with _translate_errors(f"the task definition {name!r} could not be read"):
            self._client.describe_task_definition(taskDefinition=name, include=["TAGS"])
        return bodies[-1]

    def register(self, definition: Mapping[str, object]) -> str:
        """Register a revision and return its name, ``family:revision``."""
        with _translate_errors("no revision was registered"):
            response = self._client.register_task_definition(**definition)
        registered = response["taskDefinition"]
        return f"{registered['family']}:{registered['revision']}"


def open_task_definitions() -> TaskDefinitions:
    """Connect with boto3's own settings: region, credentials, AWS_ENDPOINT_URL."""
    import boto3  # heavy, and only for --family

    with _translate_errors("Amazon ECS cannot be reached"):
        return TaskDefinitions(boto3.client("ecs"))


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError  # as boto3

    try:
        yield
    except ParamValidationError as error:
        reason = " ".join(str(error.kwargs["report"]).split())
        raise TaskProfilerError(
            f"boto3 does not know all fields of the definition, so {what}: upgrade boto3 ({reason})."
        ) from error
    except (BotoCoreError, ClientError) as error:
        reason = str(error).rstrip(".")
        raise TaskProfilerError(
            f"{what[0].upper()}{what[1:]} ({reason}): check the family's name, the region and your credentials."
        ) from error
