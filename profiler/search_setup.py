"""Installs what the documents need in a cluster: index templates and, where the server has them, lifecycles.

Everything is put as a whole, so doing it again changes nothing. Elasticsearch attaches a
lifecycle policy (ILM) through a setting in the template, which a server without ILM would refuse:
it is added only where there is one. OpenSearch's policy (ISM) names its indices itself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from profiler.errors import TaskProfilerError

Method = Literal["GET", "PUT", "POST"]
Engine = Literal["elasticsearch", "opensearch"]

DEFAULT_PREFIX = "task"
POLICY = "task-profiler"
_HTTP_OK = 200
_HTTP_NOT_FOUND = 404


class ServerResponse(Struct, frozen=True, kw_only=True):
    """What a server said."""

    status: int
    body: Any = None

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked for."""
        return _HTTP_OK <= self.status < _HTTP_OK + 100


class SearchServer(Protocol):
    """A cluster's HTTP interface."""

    def request(self, method: Method, path: str, body: object | None = None) -> ServerResponse:
        """One request. Raises TaskProfilerError if there is no answer."""
        ...


class SetupFiles(Struct, frozen=True, kw_only=True):
    """What is installed: templates by name, and a policy for each engine."""

    templates: Mapping[str, Mapping[str, Any]]
    policies: Mapping[Engine, Mapping[str, Any]]


class SetupStep(Struct, frozen=True, kw_only=True):
    """One thing that was done, would be done, or could not be."""

    what: str
    done: bool


def install_templates(server: SearchServer, files: SetupFiles, *, prefix: str, dry_run: bool) -> Iterator[SetupStep]:
    """Install the policy first, then the templates. Raises TaskProfilerError if the server refuses one."""
    engine = detect_engine(server)
    has_policy = False
    policy = _LifecyclePolicy(server, engine)
    if policy.is_supported():
        if not dry_run:
            policy.put(with_index_prefix(files.policies[engine], prefix))
        has_policy = True
        yield SetupStep(what=f"lifecycle policy {POLICY}", done=True)
    else:
        yield SetupStep(what=f"lifecycle policy {POLICY}: this server has no {policy.feature}", done=False)
    for name, template in files.templates.items():
        own_name = _with_index_prefix_text(name, prefix)
        body = with_index_prefix(template, prefix)
        if engine == "elasticsearch" and has_policy:
            body["template"]["settings"]["index"]["lifecycle"] = {"name": POLICY}
        if not dry_run:
            _raise_unless_ok(server.request("PUT", f"/_index_template/{own_name}", body), f"index template {own_name}")
        yield SetupStep(what=f"index template {own_name}", done=True)


def detect_engine(server: SearchServer) -> Engine:
    """Which product this is. Raises TaskProfilerError if it is neither."""
    answer = server.request("GET", "/")
    version = answer.body.get("version") if answer.ok and isinstance(answer.body, dict) else None
    if not isinstance(version, dict) or "number" not in version:
        raise TaskProfilerError(
            f"There is no Elasticsearch or OpenSearch at this address (HTTP {answer.status}): check URL and sign-in."
        )
    return "opensearch" if version.get("distribution") == "opensearch" else "elasticsearch"


class _LifecyclePolicy:
    """The lifecycle policy, in the words of either engine."""

    def __init__(self, server: SearchServer, engine: Engine) -> None:
        self._server = server
        self._is_opensearch = engine == "opensearch"
        self.feature = "ISM" if self._is_opensearch else "ILM"
        self._path = f"/_plugins/_ism/policies/{POLICY}" if self._is_opensearch else f"/_ilm/policy/{POLICY}"

    def is_supported(self) -> bool:
        """Whether the server has lifecycles at all: both engines then say of an unknown one "policy not found".

        Without them the path is taken for an index (Elasticsearch 7) or for nothing (8, OpenSearch).
        """
        answer = self._server.request("GET", self._path)
        return answer.ok or (answer.status == _HTTP_NOT_FOUND and "policy not found" in str(answer.body).lower())

    def put(self, body: Mapping[str, Any]) -> None:
        """Put the policy; OpenSearch wants to hear which version is replaced."""
        present = self._server.request("GET", self._path)
        path = self._path
        if self._is_opensearch and present.ok:
            path += f"?if_seq_no={present.body['_seq_no']}&if_primary_term={present.body['_primary_term']}"
        _raise_unless_ok(self._server.request("PUT", path, body), f"lifecycle policy {POLICY}")


def with_index_prefix(body: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """A copy in which index patterns begin with the prefix."""

    def copy(value: Any) -> Any:  # noqa: ANN401  any JSON
        if isinstance(value, dict):
            return {key: copy(child) for key, child in value.items()}
        if isinstance(value, list | tuple):
            return [copy(child) for child in value]
        return _with_index_prefix_text(value, prefix) if isinstance(value, str) and value.endswith("-*") else value

    copied: dict[str, Any] = copy(body)
    return copied


def _with_index_prefix_text(text: str, prefix: str) -> str:
    return prefix + text.removeprefix(DEFAULT_PREFIX) if text.startswith(f"{DEFAULT_PREFIX}-") else text


def _raise_unless_ok(answer: ServerResponse, what: str) -> None:
    if not answer.ok:
        error = answer.body.get("error") if isinstance(answer.body, dict) else None
        reason = error.get("reason") if isinstance(error, dict) else error
        raise TaskProfilerError(f"The {what} was refused (HTTP {answer.status}: {reason or 'no reason given'}).")
