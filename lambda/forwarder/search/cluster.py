"""The interface to a search cluster: sign-in, one bulk request of upserts, and one result for each document."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec
from msgspec import Struct

from forwarder.documents import Document
from forwarder.errors import SettingsError
from forwarder.settings import Credentials

_SCHEMES = ("https://", "http://")
_INVALID_URL = "ELASTICSEARCH_URL is not the address of a cluster: set it to one like https://search.example.com:9200."
_MAX_RETRIES_ON_CONFLICT = 5
_RETRYABLE_ITEM_STATUSES = frozenset({409, 429, 502, 503, 504})
_FORBIDDEN_STATUSES = frozenset({401, 403})
_MIN_FAILURE_STATUS = 300
_MAX_REASON_LENGTH = 500
# The engines' names of errors, such as security_exception.
_ERROR_CODE = re.compile(r"[a-z][a-z_]{1,99}", re.ASCII)


class ItemResult(Struct, frozen=True, kw_only=True):
    """The result of writing one document: the HTTP status and, if it failed, the cluster's reason."""

    status: int
    reason: str | None = None

    @property
    def is_failed(self) -> bool:
        """Whether the document was not written."""
        return self.status >= _MIN_FAILURE_STATUS

    @property
    def is_retryable(self) -> bool:
        """Whether writing again can succeed: the cluster is busy, or another request wrote the same document."""
        return self.status in _RETRYABLE_ITEM_STATUSES

    @property
    def is_forbidden(self) -> bool:
        """Whether the cause is the index, not the document: no permission to write or create it, or a block on it."""
        return self.status in _FORBIDDEN_STATUSES


class Cluster(Protocol):
    """Elasticsearch or OpenSearch."""

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        """Search once and return the response as JSON. Raises ClusterError."""
        ...

    def get(self, index: str, document_id: str, timeout_seconds: float) -> Mapping[str, object] | None:
        """Read the source of a document, which may have been written a moment ago; None if it does not exist.

        Raises ClusterError.
        """
        ...

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
        """Write documents as upserts in one request. Returns a result for each document, in order.

        Raises ClusterError if the whole request failed.
        """
        ...


def authorization(credentials: Credentials) -> dict[str, str]:
    """Return the HTTP header for an API key or, without one, for a user name and password; else no header.

    Raises:
        SettingsError: the key cannot be a header's value; the clients would quote it in their errors.
    """
    key = credentials.api_key
    if key is not None:
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(
                "ELASTICSEARCH_API_KEY, or api_key in the secret of ELASTICSEARCH_SECRET_ID, contains a line break or "
                "another character that is invalid in an API key: set it to the encoded key alone."
            )
        return {"authorization": f"ApiKey {key}"}
    if credentials.basic is not None:
        return {"authorization": "Basic " + b64encode(":".join(credentials.basic).encode()).decode()}
    return {}


@contextmanager
def checked_url(url: str) -> Iterator[None]:
    """Raise SettingsError for an invalid address, including one that a client refuses within this context.

    An address without a scheme is invalid: one client would send the password unencrypted, the other refuses it.
    """
    if not url.lower().startswith(_SCHEMES):
        raise SettingsError(_INVALID_URL)
    try:
        yield
    except (TypeError, ValueError):
        # Not "from": the client's error may quote the address, which may contain a password.
        raise SettingsError(_INVALID_URL) from None


def bulk_lines(documents: Sequence[Document]) -> list[str]:
    """Return the lines of a bulk request of updates: the given fields are set, all others are kept, without scripts."""
    lines = []
    for document in documents:
        action = {"_index": document.index, "_id": document.id, "retry_on_conflict": _MAX_RETRIES_ON_CONFLICT}
        lines.append(_text({"update": action}))
        insertion = {"doc_as_upsert": True} if document.upsert is None else {"upsert": document.upsert}
        lines.append(_text({"doc": document.fields, **insertion}))
    return lines


def bulk_results(response: object, count: int) -> list[ItemResult]:
    """Return the results in the response to a bulk request. Raises ValueError without a result for each document."""
    items = response.get("items") if isinstance(response, dict) else None
    if not isinstance(items, list) or len(items) != count:
        raise ValueError(f"the response does not contain a result for each of {count} documents")
    return [_result(item) for item in items]


def found_source(response: object) -> Mapping[str, object] | None:
    """Return the source of the only document in the response to a multi-get; None if it does not exist."""
    documents = response.get("docs") if isinstance(response, dict) else None
    found = documents[0] if isinstance(documents, list) and documents else None
    source = found.get("_source") if isinstance(found, dict) and found.get("found") is True else None
    return source if isinstance(source, dict) else None


def rejection_message(engine: str, status: int | None, error: object) -> str:
    """Return a sentence about a whole request that was refused.

    It contains the engine's error code. Any other text may come from a proxy and may quote the request with its
    credentials, so it is left out.
    """
    code = f": {error}" if isinstance(error, str) and _ERROR_CODE.fullmatch(error) else ""
    return f"{engine} answered HTTP {status}{code}."


def _result(item: object) -> ItemResult:
    outcome = next(iter(item.values()), None) if isinstance(item, dict) else None
    if not isinstance(outcome, dict) or not isinstance(outcome.get("status"), int):
        raise ValueError("the response contains a result without a status")  # noqa: TRY004  a value of foreign JSON
    error = outcome.get("error")
    return ItemResult(status=outcome["status"], reason=None if error is None else _reason(error))


def _reason(error: object) -> str:
    """Return the cluster's reason with those of its causes, which name the field."""
    parts: list[str] = []
    while isinstance(error, dict):
        parts.append(f"{error.get('type')}: {error.get('reason')}")
        error = error.get("caused_by")
    return ", because ".join(parts or [str(error)])[:_MAX_REASON_LENGTH]


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
