"""Installs index templates, the first indices and, if the server supports them, lifecycle
policies.

Repeating the installation changes nothing. Elasticsearch attaches a lifecycle policy (ILM) through
a setting in the index template. Servers without ILM reject this setting, so it is added only if the
policy was installed. An OpenSearch policy (ISM) contains its index patterns.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from profiler.core.errors import TaskProfilerError
from profiler.core.files import package_data_folder
from profiler.core.index_names import DEFAULT_PREFIX, IndexKind, index_name
from profiler.core.json_fields import mapping

Method = Literal["GET", "PUT", "POST"]
Engine = Literal["elasticsearch", "opensearch"]

_POLICY = "task-profiler"
_PATTERN = re.compile(rf"\b{DEFAULT_PREFIX}-(\w+)-\*")
_POLICY_FILES: Mapping[Engine, str] = {
    "elasticsearch": "elasticsearch-ilm.json",
    "opensearch": "opensearch-ism.json",
}
# The indices behind the data views of the dashboards: as long as one does not exist, its panels are
# errors.
_FIRST_INDICES: tuple[IndexKind, ...] = ("reports", "checkpoints", "notices")


class Product(Struct, frozen=True, kw_only=True):
    """What a server is.

    ``is_serverless``: Elastic Cloud Serverless, which manages shards and replicas itself.
    """

    engine: Engine
    is_serverless: bool = False


class ServerResponse(Struct, frozen=True, kw_only=True):
    """A response with the parsed body."""

    status: int
    body: Any = None
    address: str = "this address"  # for messages

    @property
    def ok(self) -> bool:
        return self.status // 100 == 2  # noqa: PLR2004


class RejectedError(TaskProfilerError):
    """The server rejects a policy or a template, not because of missing rights."""


class SearchServer(Protocol):
    """A cluster, directly or through the dashboards' console.

    Raises TaskProfilerError without a response.
    """

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse: ...


class SetupFiles(Struct, frozen=True, kw_only=True):
    """The installed content: index templates by name, and the lifecycle policy of each engine."""

    templates: Mapping[str, Mapping[str, Any]]
    policies: Mapping[Engine, Mapping[str, Any]]


def setup_folder() -> Path:
    """The folder of the templates, policies and dashboards of this installation."""
    return package_data_folder("kibana", what="The index templates are")


def setup_files() -> SetupFiles:
    """The index templates and lifecycle policies of this installation."""
    folder = setup_folder()
    paths = sorted((folder / "index-templates").glob("*.json"))
    templates = {path.stem: json.loads(path.read_text()) for path in paths}
    policies = {
        engine: json.loads((folder / "lifecycle" / name).read_text())
        for engine, name in _POLICY_FILES.items()
    }
    return SetupFiles(templates=templates, policies=policies)


class TemplateStep(Struct, frozen=True, kw_only=True):
    """A step of the installation; ``done`` is False if the server does not support it."""

    what: str
    done: bool


def install_templates(
    server: SearchServer,
    files: SetupFiles,
    *,
    prefix: str,
    now: datetime,
    dry_run: bool,
    period: str = "month",
) -> Iterator[TemplateStep]:
    """Install the policy, the templates, then the empty indices of the period.

    Raises TaskProfilerError.
    """
    product = detect_product(server)
    engine = product.engine
    policy = _LifecyclePolicy(server, engine, prefixed_name(_POLICY, prefix))
    if policy.is_supported and not dry_run:
        policy.put(with_index_prefix(json.dumps(files.policies[engine]), prefix))
    absence = ""
    if not policy.is_supported:
        absence = f": this server has no {policy.feature}"
    yield TemplateStep(what=f"lifecycle policy {policy.name}{absence}", done=policy.is_supported)
    for name, template in files.templates.items():
        full_name = prefixed_name(name, prefix)
        body = with_index_prefix(json.dumps(template), prefix)
        settings = body["template"]["settings"]["index"]
        if product.is_serverless:
            for setting in ("number_of_shards", "auto_expand_replicas"):  # it rejects them
                settings.pop(setting, None)
        if engine == "elasticsearch" and policy.is_supported:
            settings["lifecycle"] = {"name": policy.name}
        if not dry_run:
            _put(server, f"/_index_template/{full_name}", body, f"index template {full_name}")
        yield TemplateStep(what=f"index template {full_name}", done=True)
    for kind in _FIRST_INDICES:
        yield from _create_index(
            server, index_name(kind, now, prefix=prefix, period=period), dry_run=dry_run
        )


def _create_index(server: SearchServer, name: str, *, dry_run: bool) -> Iterator[TemplateStep]:
    """Create the index if it is missing.

    The templates apply to it. Without the right to create it, they suffice.
    """
    if server.request("GET", f"/{name}").ok:
        return
    if dry_run:
        yield TemplateStep(what=f"index {name}", done=True)
        return
    response = server.request("PUT", f"/{name}", {})
    if response.ok:
        yield TemplateStep(what=f"index {name}", done=True)
    elif "resource_already_exists" not in str(response.body):  # the forwarder was faster
        what = f"index {name} ({rejection(response)}): its panels are errors until it exists"
        yield TemplateStep(what=what, done=False)


def detect_product(server: SearchServer) -> Product:
    """Detect the product.

    Raises TaskProfilerError if it is neither Elasticsearch nor OpenSearch.
    """
    response = server.request("GET", "/")
    version = version_of(response)
    if "number" not in version:
        raise TaskProfilerError(
            f"There is no Elasticsearch or OpenSearch at {response.address} "
            f"({rejection(response)}): check URL and sign-in."
        )
    engine: Engine = "elasticsearch"
    if version.get("distribution") == "opensearch":
        engine = "opensearch"
    return Product(engine=engine, is_serverless=version.get("build_flavor") == "serverless")


class _LifecyclePolicy:
    """The lifecycle policy in the API of either engine."""

    def __init__(self, server: SearchServer, engine: Engine, name: str) -> None:
        self._server = server
        self._is_opensearch = engine == "opensearch"
        self.feature = "ILM"
        self.name = name
        self.path = f"/_ilm/policy/{name}"
        if self._is_opensearch:
            self.feature = "ISM"
            self.path = f"/_plugins/_ism/policies/{name}"
        self.existing = server.request("GET", self.path)
        # Without support, the server reads the path as an index (Elasticsearch 7) or has no handler
        # (8, OpenSearch).
        said = str(self.existing.body).lower()
        is_unknown = self.existing.status == HTTPStatus.NOT_FOUND and "policy not found" in said
        self.is_supported = self.existing.ok or is_unknown

    def put(self, body: Mapping[str, Any]) -> None:
        """Install or replace the policy.

        OpenSearch requires the version of the policy to be replaced.
        """
        path = self.path
        existing = self.existing
        if self._is_opensearch and existing.ok:
            path += f"?if_seq_no={existing.body['_seq_no']}"
            path += f"&if_primary_term={existing.body['_primary_term']}"
        _put(self._server, path, body, f"lifecycle policy {self.name}")


def with_index_prefix(text: str, prefix: str) -> dict[str, Any]:
    """Parse an object of JSON, with the prefix in its index patterns, also in those within other
    texts.
    """
    parsed: dict[str, Any] = json.loads(_PATTERN.sub(rf"{prefix}-\1-*", text))
    return parsed


def prefixed_name(text: str, prefix: str) -> str:
    """The name of an index, a pattern, a template or a policy with this prefix instead of the
    default.
    """
    if text.startswith(f"{DEFAULT_PREFIX}-"):
        return prefix + text.removeprefix(DEFAULT_PREFIX)
    return text


def _put(server: SearchServer, path: str, body: Mapping[str, Any], what: str) -> None:
    response = server.request("PUT", path, body)
    if not response.ok:
        error = TaskProfilerError if response.status in {401, 403} else RejectedError
        raise error(f"The {what} was rejected ({rejection(response)}).")


def rejection(response: ServerResponse) -> str:
    """The status and the reason of a failed request, which Amazon OpenSearch Service names
    ``message``.
    """
    body = mapping(response.body)
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
    if not response.ok:
        return {}
    return mapping(mapping(response.body).get("version"))
