"""Imports the dashboards into Kibana or OpenSearch Dashboards, and judges what the import answers.

HTTP 200 is not success: the server says in the body what became of each object, and creates
nothing at all if a reference is missing or an object is in the way.
"""

import json
from typing import Any, Literal, Protocol

from msgspec import Struct

from profiler.errors import TaskProfilerError
from profiler.search_setup import Method, ServerResponse, with_index_prefix

Flavour = Literal["classic", "lens"]

_LAST_OPENSEARCH_DASHBOARDS = 3  # its versions run from 1 to 3, Kibana's went on from 4
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
        """The console's proxy to the cluster behind it."""
        ...


class ProxiedCluster:
    """The cluster behind a UI server, through its console's proxy: see profiler.search_setup.SearchServer."""

    def __init__(self, ui: UiServer) -> None:
        self._ui = ui

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """One request."""
        return self._ui.console(method, path, body)


class ImportResult(Struct, frozen=True, kw_only=True):
    """Which file was taken, and how many objects it brought."""

    flavour: Flavour
    objects: int


def detect_flavour(ui: UiServer) -> Flavour:
    """Lens for Kibana from 7.16 on, the classic charts for what is older and for OpenSearch Dashboards."""
    answer = ui.status()
    version = answer.body.get("version") if answer.ok and isinstance(answer.body, dict) else None
    number = version.get("number") if isinstance(version, dict) else None
    parts = str(number).split(".")
    if number is None or len(parts) < 2 or not (parts[0].isdecimal() and parts[1].isdecimal()):  # noqa: PLR2004
        found = f"HTTP {answer.status}"
        raise TaskProfilerError(
            f"There is no Kibana or OpenSearch Dashboards at this address ({found}): check URL and sign-in."
        )
    major, minor = int(parts[0]), int(parts[1])
    is_lens = major > _LAST_OPENSEARCH_DASHBOARDS and (major, minor) >= _FIRST_LENS
    return "lens" if is_lens else "classic"


def parse_objects(content: bytes, prefix: str) -> list[dict[str, Any]]:
    """The saved objects of a file, with the index patterns of the prefix."""
    return [with_index_prefix(json.loads(line), prefix) for line in content.splitlines() if line.strip()]


def import_dashboards(ui: UiServer, objects: list[dict[str, Any]], flavour: Flavour) -> ImportResult:
    """Import all objects. Raises TaskProfilerError unless the server says that it has every one of them."""
    content = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in objects).encode()
    answer = ui.import_objects(f"task-profiler-{flavour}.ndjson", content)
    body = answer.body if isinstance(answer.body, dict) else {}
    if answer.ok and body.get("success") is True and body.get("successCount") == len(objects):
        return ImportResult(flavour=flavour, objects=len(objects))
    raise TaskProfilerError(f"The dashboards were not imported: {_failure_reason(answer, body, len(objects))}.")


def _failure_reason(answer: ServerResponse, body: dict[str, Any], sent: int) -> str:
    if not answer.ok:
        hint = "; another --flavour may fit this server" if answer.status == 422 else ""  # noqa: PLR2004
        return f"HTTP {answer.status}: {body.get('message') or 'no reason given'}{hint}"
    errors = body.get("errors")
    shown = [_format_error(error) for error in errors[:_MAX_ERRORS_SHOWN]] if isinstance(errors, list) else []
    return "; ".join(shown) or f"{body.get('successCount', 0)} of {sent} objects were taken"


def _format_error(error: object) -> str:
    if not isinstance(error, dict):
        return str(error)
    detail = error.get("error")
    what = f"{error.get('type')} {error.get('id')}"
    if not isinstance(detail, dict):
        return what
    missing = ", ".join(str(one.get("id")) for one in detail.get("references", []) if isinstance(one, dict))
    return f"{what}: {detail.get('type')}{f' ({missing})' if missing else ''}"
