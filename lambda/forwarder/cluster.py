"""The seam to a search cluster: one bulk request of upserts, answered item by item."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from forwarder.documents import Document

RETRIES_ON_CONFLICT = 5
_RETRYABLE_ITEM_STATUSES = frozenset({409, 429, 502, 503, 504})
_FORBIDDEN_STATUSES = frozenset({401, 403})
_FIRST_FAILURE_STATUS = 300
_MAX_REASON_LENGTH = 500
# What the engines call their refusals (security_exception).
_CODE = re.compile(r"[a-z][a-z_]{1,99}", re.ASCII)


class ItemResult(Struct, frozen=True, kw_only=True):
    """What became of one document: HTTP status and, if it failed, the cluster's reason."""

    status: int
    reason: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the document was not written."""
        return self.status >= _FIRST_FAILURE_STATUS

    @property
    def retryable(self) -> bool:
        """Whether writing it again may work: the cluster is busy, or others wrote the same document."""
        return self.status in _RETRYABLE_ITEM_STATUSES

    @property
    def forbidden(self) -> bool:
        """Whether the index is at fault, not the document: no right to write or to make it, or a block on it."""
        return self.status in _FORBIDDEN_STATUSES


class Cluster(Protocol):
    """Elasticsearch or OpenSearch."""

    def search(self, index: str, body: Mapping[str, object], timeout_seconds: float) -> Mapping[str, object]:
        """One search; the answer as JSON. Raises ClusterError."""
        ...

    def bulk(self, documents: Sequence[Document], timeout_seconds: float) -> list[ItemResult]:
        """Write documents as upserts, in one request; a result for each, in order.

        Raises ClusterError if the request failed as a whole.
        """
        ...


def bulk_lines(documents: Sequence[Document]) -> list[str]:
    """The lines of a bulk request: what is there is kept, what is given is set; no scripts."""
    lines = []
    for document in documents:
        action = {"_index": document.index, "_id": document.id, "retry_on_conflict": RETRIES_ON_CONFLICT}
        lines.append(_text({"update": action}))
        first_time = {"doc_as_upsert": True} if document.upsert is None else {"upsert": document.upsert}
        lines.append(_text({"doc": document.fields, **first_time}))
    return lines


def bulk_results(answer: object, count: int) -> list[ItemResult]:
    """The results in a bulk answer. Raises ValueError if there is not one for each document."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != count:
        raise ValueError(f"the answer holds no result for each of {count} documents")
    return [_result(item) for item in items]


def rejection_message(engine: str, status: int | None, error: object) -> str:
    """A sentence for a whole request that was refused.

    The engine's own code is shown; any other words are those of a proxy, and may quote the request with
    its credentials.
    """
    code = f": {error}" if isinstance(error, str) and _CODE.fullmatch(error) else ""
    return f"{engine} answered HTTP {status}{code}."


def _result(item: object) -> ItemResult:
    outcome = next(iter(item.values()), None) if isinstance(item, dict) else None
    if not isinstance(outcome, dict) or not isinstance(outcome.get("status"), int):
        raise ValueError("the answer holds a result without a status")  # noqa: TRY004  a value of foreign JSON
    error = outcome.get("error")
    return ItemResult(status=outcome["status"], reason=None if error is None else _reason(error))


def _reason(error: object) -> str:
    """The cluster's words with those of their cause, which names the field."""
    parts: list[str] = []
    while isinstance(error, dict):
        parts.append(f"{error.get('type')}: {error.get('reason')}")
        error = error.get("caused_by")
    return ", because ".join(parts or [str(error)])[:_MAX_REASON_LENGTH]


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
