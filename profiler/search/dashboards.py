"""Imports the dashboards into Kibana or OpenSearch Dashboards, and checks the response.

HTTP 200 does not mean success: the body has the result of each object. The server creates no object at all if a
reference is missing or an object conflicts.
"""

import json
from typing import Any, Literal, Protocol

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.search.setup import Method, ServerResponse, with_index_prefix

Flavour = Literal["classic", "lens"]

_LAST_OPENSEARCH_DASHBOARDS = 3  # OpenSearch Dashboards has versions 1 to 3, Kibana from 4
_FIRST_LENS = (7, 16)
_MAX_ERRORS_SHOWN = 5


class UiServer(Protocol):
    """Kibana or OpenSearch Dashboards."""

    def status(self) -> ServerResponse:
        """``GET /api/status``."""
        ...

    def import_objects(self, file_name: str, content: bytes) -> ServerResponse:
        """``POST /api/saved_objects/_import?overwrite=true``."""
        ...

    def console(self, method: Method, path: str, body: object | None) -> ServerResponse:
        """Send a request to the cluster through the console's proxy."""
        ...


class ProxiedCluster:
    """The cluster behind a UI server, as a ``SearchServer``, through the console's proxy."""

    def __init__(self, ui: UiServer) -> None:
        self._ui = ui

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """Send a request."""
        return self._ui.console(method, path, body)


class ImportResult(Struct, frozen=True, kw_only=True):
    """The imported flavour and its number of objects."""

    flavour: Flavour
    objects: int


def detect_flavour(ui: UiServer) -> Flavour:
    """Choose Lens for Kibana from 7.16, classic charts for older versions and for OpenSearch Dashboards.

    Raises TaskProfilerError if the server is neither.
    """
    response = ui.status()
    version = response.body.get("version") if response.ok and isinstance(response.body, dict) else None
    number = version.get("number") if isinstance(version, dict) else None
    parts = str(number).split(".")
    if number is None or len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):  # noqa: PLR2004
        raise TaskProfilerError(
            f"There is no Kibana or OpenSearch Dashboards at this address (HTTP {response.status}): "
            "check URL and sign-in."
        )
    major, minor = int(parts[0]), int(parts[1])
    is_lens = major > _LAST_OPENSEARCH_DASHBOARDS and (major, minor) >= _FIRST_LENS
    return "lens" if is_lens else "classic"


def parse_objects(content: bytes, prefix: str) -> list[dict[str, Any]]:
    """Parse the saved objects of a file, and put the prefix into their index patterns."""
    return [with_index_prefix(json.loads(line), prefix) for line in content.splitlines() if line.strip()]


def import_dashboards(ui: UiServer, objects: list[dict[str, Any]], flavour: Flavour) -> ImportResult:
    """Import all objects. Raises TaskProfilerError unless the response confirms each of them."""
    content = "".join(json.dumps(saved_object, separators=(",", ":")) + "\n" for saved_object in objects).encode()
    response = ui.import_objects(f"task-profiler-{flavour}.ndjson", content)
    body = response.body if isinstance(response.body, dict) else {}
    if response.ok and body.get("success") is True and body.get("successCount") == len(objects):
        return ImportResult(flavour=flavour, objects=len(objects))
    raise TaskProfilerError(f"The dashboards were not imported: {_failure_reason(response, body, len(objects))}.")


def _failure_reason(response: ServerResponse, body: dict[str, Any], sent: int) -> str:
    if not response.ok:
        hint = "; another --flavour may fit this server" if response.status == 422 else ""  # noqa: PLR2004
        return f"HTTP {response.status}: {body.get('message') or 'no reason given'}{hint}"
    errors = body.get("errors")
    texts = [_format_error(error) for error in errors[:_MAX_ERRORS_SHOWN]] if isinstance(errors, list) else []
    return "; ".join(texts) or f"{body.get('successCount', 0)} of {sent} objects were imported"


def _format_error(error: object) -> str:
    if not isinstance(error, dict):
        return str(error)
    detail = error.get("error")
    what = f"{error.get('type')} {error.get('id')}"
    if not isinstance(detail, dict):
        return what
    missing = ", ".join(
        str(reference.get("id")) for reference in detail.get("references", []) if isinstance(reference, dict)
    )
    return f"{what}: {detail.get('type')}{f' ({missing})' if missing else ''}"
