"""The interface to a search cluster: sign-in, one bulk request of upserts, and one result for
each document.
"""

import gzip
import re
from abc import ABC, abstractmethod
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

from msgspec import Struct

from profiler.core.completeness import WHOLE, Completeness, Gap
from profiler.core.http_statuses import RETRYABLE_STATUSES, TOO_MANY_REQUESTS
from profiler.core.index_names import may_have_runs_since
from profiler.core.json_fields import (
    Json,
    field_at,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import known
from profiler.core.search_answers import WITH_CLOSED, WITHOUT_CLOSED, why_partial
from profiler.core.timestamps import parse_datetime
from profiler.forwarder.document_updates import Document, StoredRun
from profiler.forwarder.function_settings import (
    Credentials,
    FetchSecret,
    call_with_secret,
    fetch_secret,
)
from profiler.forwarder.invocation import PartialAnswerError, SearchClusterError, SettingsError
from profiler.forwarder.report_verification import CLAIM_FIELDS, claim_of_document

_INVALID_URL = (
    "ELASTICSEARCH_URL is not the address of a cluster: set it to one like "
    "https://search.example.com:9200."
)
# 409: another request wrote the same document.
_RETRYABLE_ITEM_STATUSES = RETRYABLE_STATUSES | {409}
_BAD_REQUEST = 400
_CONTENT_TOO_LARGE = 413
# Of a disk that is full, with the status of a cluster that is busy. It stays until somebody makes
# room.
_BLOCKED = "cluster_block_exception"
# Errors with HTTP 400 that are the index's, whatever their reason names: it is closed, or has a
# mapping that is not the template's.
_INDEX_ERRORS = frozenset(
    {
        *("validation_exception", "index_closed_exception", _BLOCKED),
        *("strict_dynamic_mapping_exception", "routing_missing_exception"),
        *("document_source_missing_exception", "invalid_index_name_exception"),
    }
)
# What a reason or its cause says that is about the document: a field, the document itself or its
# id, a place in its JSON. Only the elected master names an error of the index as such: from any
# other node, the same one is an illegal_argument_exception; and too many fields are a failure to
# parse. https://github.com/elastic/elasticsearch/issues/70349
_OF_DOCUMENT = re.compile(
    r"\bfield\b|\bdocument\b|\bmapper \[|\bobject mapping for\b|\bid\b.* too long|\[\d+:\d+\]",
    re.IGNORECASE,
)
# What names a field or a document, and is the index's: its mapping, or its template's; its limit,
# which newer servers report with a place in the document: "[1:2047] failed to parse: Limit of total
# fields"; a type that a server has guessed, because the index lacks our template; a data stream of
# time series; and a collection of OpenSearch Serverless behind another name.
_OF_INDEX = re.compile(
    r"failed to parse mapping|no handler for type|limit of total fields"
    r"|cannot be changed from type|ranges of currently writable indices"
    r"|document id is not supported",
    re.IGNORECASE,
)
# A field that an index with "dynamic": "strict" refuses, because it has an older mapping.
# It is said first: a later part of a reason may quote a field's value.
_UNKNOWN_FIELD = re.compile(
    r"(?:strict_dynamic_mapping_exception: )+(?:\[\d+:\d+\] )?mapping set to \w+, "
    r"dynamic introduction of \[([^\[\]]+)\] within \[([^\[\]]+)\]"
)
# How the reason of a failed processor begins, which names a field, too. The pipeline is the
# index's: default_pipeline, final_pipeline.
OF_PIPELINE = re.compile(
    r"(?:script_exception|fail_processor_exception|dissect_exception): "
    r"|illegal_argument_exception: (?:field \[|cannot resolve \[|unable to (?:convert|parse)\b"
    r"|Provided Grok expressions|pipeline with id )"
    r"|illegal_state_exception: (?:pipeline processor|final pipeline)\b",
    re.IGNORECASE,
)
_MIN_FAILURE_STATUS = 300
# Both clients compress at level 9, which takes 3.5 times the time of this one for a third less.
_COMPRESSION = 1
# Of one search. A run has one document, unless its reports claim different starts.
_MAX_HITS = 10_000
_MAX_INDICES_OF_RUN = 8
# Closed indices that a search leaves out by name. Old ones are often closed.
_MAX_CLOSED = 12
_EVER = datetime.fromtimestamp(0, UTC)
# The engines' names of errors, such as security_exception.
_ERROR_CODE = re.compile(r"[a-z][a-z_]{1,99}", re.ASCII)


class ItemResult(Struct, frozen=True, kw_only=True):
    """The result of writing one document.

    ``stored``: what the cluster has now, if it was asked and the document existed before.
    ``is_dropped``: an ingest pipeline has dropped the document, which is nowhere.
    """

    status: int
    reason: str | None = None
    error: str | None = None
    stored: StoredRun | None = None
    is_dropped: bool = False

    @property
    def is_failed(self) -> bool:
        return self.status >= _MIN_FAILURE_STATUS

    @property
    def is_retryable(self) -> bool:
        """Whether writing again can succeed: the cluster is busy, or another request wrote the
        same document.
        """
        is_full = self.status == TOO_MANY_REQUESTS and self.error == _BLOCKED
        return self.status in _RETRYABLE_ITEM_STATUSES and not is_full

    @property
    def is_of_working_index(self) -> bool:
        """Whether the index has taken the document: of one that it had before, nothing may have
        been written.
        """
        return not (self.is_failed or self.is_dropped) and self.stored is None

    @property
    def unknown_field(self) -> str | None:
        """The path of the field because of which the index refuses the document."""
        found = _UNKNOWN_FIELD.match(self.reason or "")
        if found is None or not self.is_failed:
            return None
        name, parent = found.groups()
        return name if parent == "_doc" else f"{parent}.{name}"

    def is_refused_for_good(self, *, is_index_working: bool) -> bool:
        """Whether the cluster will never accept the document.

        Else a failure is the index's or the cluster's: a permission, a block, a limit, a fault. A
        reason that names neither a field nor a document is the document's only if the index has
        taken others.
        """
        if self.status != _BAD_REQUEST:
            return self.status == _CONTENT_TOO_LARGE
        reason = self.reason or ""
        if self.error in _INDEX_ERRORS or _OF_INDEX.search(reason):
            return False
        if is_index_working:
            return True
        return OF_PIPELINE.match(reason) is None and bool(_OF_DOCUMENT.search(reason))


def hit_sources(response: Json) -> list[Mapping[str, Json]]:
    """The documents that a search, or an aggregation of top hits, has found."""
    return [
        mapping_or_empty(hit.get("_source"))
        for hit in mappings_in_list(field_at(response, "hits.hits"))
    ]


class SearchCluster(ABC):
    """Elasticsearch or OpenSearch.

    Every method raises SearchClusterError if the whole request failed.
    """

    engine: ClassVar[str]

    @abstractmethod
    # JSON.
    def request(
        self,
        path: str,
        body: bytes | Mapping[str, object],
        timeout_seconds: float,
    ) -> Any:  # noqa: ANN401
        """POST lines of JSON or an object once, and return the response.

        ``deliver`` retries, not the client.
        """

    def search(
        self,
        index: str,
        body: Mapping[str, object],
        timeout_seconds: float,
        since: datetime | None = None,
    ) -> Mapping[str, object]:
        """The whole answer. Raises PartialAnswerError if a part of the documents is missing:
        with ``since``, also if an index is closed that can have runs since then.
        """
        closed: str | None = None
        with self._raise_on_malformed_response():
            if since is None:
                answer = mapping_or_empty(self.request(f"/{index}/_search", body, timeout_seconds))
            else:
                answer, closed = self._search_since(index, body, timeout_seconds, since)
        why = why_partial(answer)
        if closed:
            why = f"{closed} is closed"
        if why:
            raise PartialAnswerError(answer, why, is_closed=bool(closed))
        return answer

    def search_part(
        self,
        index: str,
        body: Mapping[str, object],
        timeout_seconds: float,
        since: datetime | None = None,
    ) -> tuple[Mapping[str, object], Completeness]:
        """The answer, also a part of it, and what is missing in it. See ``search``."""
        try:
            return self.search(index, body, timeout_seconds, since), WHOLE
        except PartialAnswerError as error:
            return error.answer, Completeness((Gap(place=index, reason=error.why),))

    def _search_since(
        self, index: str, body: Mapping[str, object], timeout_seconds: float, since: datetime
    ) -> tuple[Mapping[str, object], str | None]:
        """The answer of the open indices, and the name of a closed one that can have runs. Each
        refusal names one.
        """
        closed: str | None = None
        pattern = index
        for _ in range(_MAX_CLOSED):
            try:
                path = f"/{pattern}/_search?{WITH_CLOSED}"
                return mapping_or_empty(self.request(path, body, timeout_seconds)), None
            except SearchClusterError as error:
                closed = error.closed_index
                if closed is None:
                    raise
            if may_have_runs_since(closed, since):
                break
            pattern += f",-{closed}"
            closed = None
        path = f"/{index}/_search?{WITHOUT_CLOSED}"
        return mapping_or_empty(self.request(path, body, timeout_seconds)), closed

    def get_document(
        self, index: str, document_id: str, timeout_seconds: float
    ) -> Mapping[str, object] | None:
        """Read a document in real time.

        A multi-get has the id in its body: no proxy changes its slash.
        """
        with self._raise_on_malformed_response():
            response = self.request(f"/{index}/_mget", {"ids": [document_id]}, timeout_seconds)
        document = next(mappings_in_list(mapping_or_empty(response).get("docs")), {})
        return mapping_or_empty(document.get("_source")) or None

    def indices_of_runs(
        self, searched: str, document_ids: Sequence[str], timeout_seconds: float
    ) -> tuple[Mapping[str, str], Completeness]:
        """The indices, among those that are ``searched``, of the runs that have a document, by its
        id, and what was not searched.

        A document is found some seconds after it was written. One whose log stream may be another
        task's does not count. Of a part of the answer, only confirmed documents count: an
        unconfirmed one may stand beside one that is missing.
        """
        body = {
            "size": min(_MAX_HITS, _MAX_INDICES_OF_RUN * len(document_ids)),
            "_source": ["task.confirmed", *CLAIM_FIELDS],
            "query": {"ids": {"values": list(document_ids)}},
        }
        # None of them may be closed.
        response, completeness = self.search_part(searched, body, timeout_seconds, _EVER)
        places: dict[str, str] = {}
        for hit in mappings_in_list(mapping_or_empty(response.get("hits")).get("hits")):
            index = text_or_none(hit.get("_index"))
            document_id = text_or_none(hit.get("_id"))
            source = mapping_or_empty(hit.get("_source"))
            task = mapping_or_empty(source.get("task"))
            if not (index and document_id and claim_of_document(source).is_of_task):
                continue
            is_confirmed = task.get("confirmed") is True
            if is_confirmed or (completeness.is_whole and document_id not in places):
                places[document_id] = index
        return places, completeness

    def ends_of_runs(
        self, searched: str, document_ids: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, datetime]:
        """The known ends of runs that have a document in the indices that are ``searched``, by its
        id. A document is found some seconds after it was written.
        """
        body = {
            "size": min(_MAX_HITS, _MAX_INDICES_OF_RUN * len(document_ids)),
            "_source": ["event.end", *CLAIM_FIELDS],
            "query": {"ids": {"values": list(document_ids)}},
        }
        response, _ = self.search_part(searched, body, timeout_seconds)
        ends: dict[str, datetime] = {}
        for hit in mappings_in_list(field_at(response, "hits.hits")):
            ended = parse_datetime(text_or_none(field_at(hit, "_source.event.end")))
            document_id = text_or_none(hit.get("_id"))
            claim = claim_of_document(mapping_or_empty(hit.get("_source")))
            if document_id and ended and claim.is_of_task:
                ends[document_id] = max(ended, ends.get(document_id, ended))
        return ends

    def write_documents(
        self, documents: Sequence[Document], timeout_seconds: float
    ) -> list[ItemResult]:
        """Write documents as upserts in one request.

        Returns a result for each document, in order.
        """
        lines = bulk_lines(documents)
        with self._raise_on_malformed_response():
            return bulk_results(self.request("/_bulk", lines, timeout_seconds), len(documents))

    @contextmanager
    def _raise_on_malformed_response(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise SearchClusterError(
                f"{self.engine} sent an invalid response: {error}.", status=0
            ) from error


class SecretCluster(SearchCluster):
    """A cluster whose credentials are in a secret.

    ``connect`` reads it; equal credentials give the same client.
    """

    engine = "The search cluster"

    def __init__(self, connect: Callable[[FetchSecret], SearchCluster]) -> None:
        self._connect = connect
        connect(fetch_secret)  # a secret that cannot be read fails here

    # JSON.
    def request(
        self,
        path: str,
        body: bytes | Mapping[str, object],
        timeout_seconds: float,
    ) -> Any:  # noqa: ANN401
        return call_with_secret(
            lambda fetch: self._connect(fetch).request(path, body, timeout_seconds)
        )


def authorization_headers(credentials: Credentials) -> dict[str, str]:
    """The HTTP header for an API key, or a user and a password; else none.

    Raises SettingsError for an odd key.
    """
    key = credentials.api_key
    if key:
        if not (key.isascii() and key.isprintable()):
            raise SettingsError(
                "ELASTICSEARCH_API_KEY, or api_key in the secret of ELASTICSEARCH_SECRET_ID, "
                "contains a line break or another character that is invalid in an API key: set "
                "it to the encoded key alone."
            )
        return {"authorization": f"ApiKey {key}"}
    if credentials.user_and_password:
        return {
            "authorization": "Basic "
            + b64encode(":".join(credentials.user_and_password).encode()).decode()
        }
    return {}


@contextmanager
def raise_on_bad_url(url: str) -> Iterator[None]:
    """Raise SettingsError for an address without a scheme or with credentials, and for one that
    a client refuses.
    """
    if not url.lower().startswith(("https://", "http://")):
        raise SettingsError(_INVALID_URL)
    if "@" in url:
        raise SettingsError(
            "ELASTICSEARCH_URL contains credentials: leave them out, and set ELASTICSEARCH_USER "
            "and ELASTICSEARCH_PASSWORD."
        )
    try:
        yield
    except (TypeError, ValueError):
        # Not "from": the client's error may quote the address, which may contain a password.
        raise SettingsError(_INVALID_URL) from None


def gzip_compressed(body: bytes) -> bytes:
    """Compress the body of a request with gzip."""
    return gzip.compress(body, _COMPRESSION)


def bulk_lines(documents: Sequence[Document]) -> bytes:
    """Return the lines of a bulk request, two for each document."""
    lines: list[bytes] = []
    for document in documents:
        lines += document.bulk_lines
    return b"\n".join([*lines, b""])


def bulk_results(response: object, count: int) -> list[ItemResult]:
    """Return the results in the response to a bulk request.

    Raises ValueError without a result for each document.
    """
    items = response.get("items") if isinstance(response, dict) else None
    if not isinstance(items, list) or len(items) != count:
        raise ValueError(f"the response does not contain a result for each of {count} documents")
    return [_item_result(item) for item in items]


def rejection_sentence(engine: str, status: int | None, error: object) -> str:
    """Return a sentence with the engine's error code alone: another text may quote the request
    with its credentials.
    """
    if isinstance(error, str) and _ERROR_CODE.fullmatch(error):
        code = f": {error}"
    else:
        code = ""
    return f"{engine} answered HTTP {status}{code}."


def undecodable_answer(engine: str) -> SearchClusterError:
    """The error for an answer that is not JSON, as a proxy may send it for a while: it can be
    retried. It does not quote the answer, which may repeat the request.
    """
    return SearchClusterError(f"{engine} sent an invalid response: it is not JSON.", status=None)


def _item_result(item: object) -> ItemResult:
    outcome = None
    if isinstance(item, dict):
        outcome = next(iter(item.values()), None)
    if not isinstance(outcome, dict) or not isinstance(outcome.get("status"), int):
        # A value of foreign JSON.
        raise ValueError("the response contains a result without a status")  # noqa: TRY004
    error = outcome.get("error")
    return ItemResult(
        status=outcome["status"],
        reason=known(_rejection_reason, error),
        error=text_or_none(mapping_or_empty(error).get("type")),
        stored=None if outcome.get("result") == "created" else _stored_of_outcome(outcome),
        is_dropped=_is_dropped_by_pipeline(outcome),
    )


def _is_dropped_by_pipeline(outcome: Mapping[str, object]) -> bool:
    """Whether a pipeline has dropped the document: no shard was asked, and it has no version. An
    update that changes nothing has its document's.
    """
    if outcome.get("result") != "noop" or "_seq_no" in outcome:
        return False
    return field_at(outcome, "_shards.total") == 0


def _stored_of_outcome(outcome: Mapping[str, object]) -> StoredRun | None:
    """Return the document in the result of an update; None if it was not asked for."""
    document = mapping_or_empty(outcome.get("get"))
    fields, seq_no, primary_term = (
        document.get(name) for name in ("_source", "_seq_no", "_primary_term")
    )
    if not (isinstance(fields, dict) and isinstance(seq_no, int) and isinstance(primary_term, int)):
        return None
    return StoredRun(fields=fields, seq_no=seq_no, primary_term=primary_term)


def _rejection_reason(error: object) -> str:
    """Return the cluster's reason with its causes, which contain the field."""
    parts: list[str] = []
    while isinstance(error, dict):
        parts.append(f"{error.get('type')}: {error.get('reason')}")
        error = error.get("caused_by")
    return ", because ".join(parts or [str(error)])[:500]
