"""What a search cluster is asked while it is set up, and what it answers."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.json_fields import mapping_or_empty

Method = Literal["GET", "PUT", "POST"]
Engine = Literal["elasticsearch", "opensearch"]
# A server answers so to a user without the right.
NO_RIGHTS: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class Product(Struct, frozen=True, kw_only=True):
    """What a server is.

    ``major`` is the first number of its version. ``is_serverless``: Elastic Cloud Serverless, which
    manages shards and replicas itself.
    """

    engine: Engine
    major: int
    is_serverless: bool = False


class ServerResponse(Struct, frozen=True, kw_only=True):
    """A response with the parsed body."""

    status: int
    body: Any = None
    address: str = "this address"  # for messages

    @property
    def is_success(self) -> bool:
        return self.status // 100 == 2  # noqa: PLR2004


class RejectedError(TaskProfilerError):
    """The server rejects a policy or a template, not because of missing rights."""


class SearchServer(Protocol):
    """A cluster, directly or through the dashboards' console.

    Raises TaskProfilerError without a response.
    """

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse: ...


class TemplateStep(Struct, frozen=True, kw_only=True):
    """A step of the installation; ``done`` is False if the server does not support it."""

    what: str
    done: bool


def detect_product(server: SearchServer) -> Product:
    """Detect the product.

    Raises TaskProfilerError if it is neither Elasticsearch nor OpenSearch.
    """
    response = server.request("GET", "/")
    version = version_of(response)
    major = str(version.get("number")).partition(".")[0]
    if not major.isdecimal():
        raise TaskProfilerError(
            f"There is no Elasticsearch or OpenSearch at {response.address} "
            f"({rejection_text(response)}): check URL and sign-in."
        )
    engine: Engine = "elasticsearch"
    if version.get("distribution") == "opensearch":
        engine = "opensearch"
    return Product(
        engine=engine,
        major=int(major),
        is_serverless=version.get("build_flavor") == "serverless",
    )


def put_or_raise(server: SearchServer, path: str, body: Mapping[str, Any], what: str) -> None:
    """Write a policy or a template. Raises TaskProfilerError, RejectedError."""
    check_put(server.request("PUT", path, body), what)


def check_put(response: ServerResponse, what: str) -> None:
    """Raise TaskProfilerError, RejectedError if a policy or a template was not written."""
    if not response.is_success:
        error = TaskProfilerError if response.status in NO_RIGHTS else RejectedError
        raise error(f"The {what} was rejected ({rejection_text(response)}).")


def rejection_text(response: ServerResponse) -> str:
    """The status and the reason of a failed request, which Amazon OpenSearch Service names
    ``message``.
    """
    body = mapping_or_empty(response.body)
    error = body.get("error")
    if isinstance(error, dict):
        reason = error.get("reason")
    else:
        reason = body.get("message") or body.get("Message") or error
    if not reason:
        return f"HTTP {response.status}"
    return f"HTTP {response.status}: {reason}"


def version_of(response: ServerResponse) -> Mapping[str, object]:
    """What a server says of its version; nothing after a failure."""
    if not response.is_success:
        return {}
    return mapping_or_empty(mapping_or_empty(response.body).get("version"))
