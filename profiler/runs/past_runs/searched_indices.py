"""Searches in the indices of a prefix, and what is missing in their answers.

A pattern leaves out closed indices in silence, so they are asked for: the search is refused then,
and names one. An index that is gone between two searches has no shards in the second one.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from profiler.core.completeness import Completeness, Gap
from profiler.core.errors import TaskProfilerError
from profiler.core.index_names import may_have_runs_since
from profiler.core.json_fields import (
    field_at,
    integer_or_none,
    mapping_or_empty,
    mappings_in_list,
    text_or_none,
)
from profiler.core.optional_math import known_values
from profiler.core.search_answers import (
    WITH_CLOSED,
    WITHOUT_CLOSED,
    closed_index,
    closed_indices,
    part_remedy,
    why_partial,
)
from profiler.core.text import first_names
from profiler.core.timestamps import NS_PER_SECOND
from profiler.search_setup.cluster_requests import SearchServer, ServerResponse

# Of a web server that has a page, no page, or no method POST there.
_NO_API: Final = frozenset({200, 404, 405})


class SearchedIndices:
    """Searches the indices of each kind."""

    def __init__(
        self, server: SearchServer, prefix: str, place: str, advice_since: datetime
    ) -> None:
        self._server = server
        self._advice_since = advice_since
        self._prefix = quote(prefix)
        self._place = place
        self._since: datetime | None = None
        self._is_asked = False
        self._partial: dict[str, Gap] = {}
        # The closed indices of each kind, and the first one that is open, if that is known.
        self._closed: dict[str, Sequence[str]] = {}
        self._first_open: dict[str, str] = {}
        self._shards: dict[str, int] = {}  # the most of one search

    def ask_since(self, since_ns: int | None) -> None:
        """The first question is the one whose answer must be whole; None: all times."""
        if self._is_asked:
            return
        self._is_asked = True
        if since_ns is not None:
            self._since = datetime.fromtimestamp(since_ns / NS_PER_SECOND, UTC)

    def require_months(self, since_ns: int, now_ns: int) -> None:
        """Each month from a time to the last one must have an index of reports: their names are
        known, and one that is gone had runs.
        """
        month = datetime.fromtimestamp(since_ns / NS_PER_SECOND, UTC)
        last = datetime.fromtimestamp(now_ns / NS_PER_SECOND, UTC).replace(day=1)
        while (month.year, month.month) < (last.year, last.month):
            name = f"{self._prefix}-reports-{month:%Y.%m}"
            response = self._server.request(
                "POST", f"/{name}*/_search?{WITH_CLOSED}", {"size": 0, "track_total_hits": False}
            )
            if integer_or_none(field_at(response.body, "_shards.total")) == 0:
                reason = f"{self._place}: there is none of {month:%Y.%m}, so runs may be missing."
                self._partial[name] = Gap(place=self._place, reason=reason)
            month = (month.replace(day=1) + timedelta(days=31)).replace(day=1)

    @property
    def completeness(self) -> Completeness:
        gaps = [*self._partial.values()]
        closed = [name for kind in self._closed for name in self._missing_indices(kind)]
        if closed:
            is_closed = "is closed, so its runs are missing: open it"
            if len(closed) > 1:
                is_closed = "are closed, so their runs are missing: open them"
            reason = f"{first_names(closed)} {is_closed} (POST /NAME/_open)."
            gaps.append(Gap(place=self._place, reason=reason))
        return Completeness(tuple(gaps))

    def _missing_indices(self, kind: str) -> list[str]:
        """The closed indices that can have what was asked for.

        Without a time, those that are older than all open ones, and than the runs that advice is
        of, have been put away.
        """
        closed = self._closed[kind]
        if self._since is not None:
            return [name for name in closed if may_have_runs_since(name, self._since)]
        since = self._advice_since
        first_open = self._first_open.get(kind, "")
        return [name for name in closed if name > first_open or may_have_runs_since(name, since)]

    @property
    def put_away_indices(self) -> Sequence[str]:
        """The closed indices that count as put away: of a question about all times, they were not
        searched either.
        """
        names: list[str] = []
        if self._since is not None:
            return names
        for kind, closed in self._closed.items():
            missing = self._missing_indices(kind)
            names += (name for name in closed if name not in missing)
        return names

    def search_all_indices(self, kind: str, query: object) -> Mapping[str, Any]:
        """Search all indices of a kind, if any.

        Raises TaskProfilerError unless a search cluster accepts the search.
        """
        response = self._post_search(kind, query)
        body = mapping_or_empty(response.body)
        closed = closed_index(body)
        if closed is not None and kind not in self._closed:
            self._list_closed(kind, closed)
            response = self._post_search(kind, query)
            body = mapping_or_empty(response.body)
        match body:
            case {"hits": {"hits": [*_]}} if response.is_success:
                self._note_partial(kind, body)
                return body
        raise _refusal_error(response)

    def _post_search(self, kind: str, query: object) -> ServerResponse:
        options = WITHOUT_CLOSED if kind in self._closed else WITH_CLOSED
        return self._server.request("POST", f"/{self._prefix}-{kind}-*/_search?{options}", query)

    def _list_closed(self, kind: str, closed: str) -> None:
        """Learn which indices are closed; without the right to list them, one is known."""
        listed = self._server.request(
            "GET", f"/_resolve/index/{self._prefix}-{kind}-*?expand_wildcards=all"
        )
        body = mapping_or_empty(listed.body) if listed.is_success else {}
        self._closed[kind] = closed_indices(body) or (closed,)
        names = [
            text_or_none(index.get("name")) or "" for index in mappings_in_list(body.get("indices"))
        ]
        is_open = [name for name in names if name and name not in self._closed[kind]]
        if is_open:
            self._first_open[kind] = min(is_open)

    def _note_partial(self, kind: str, body: Mapping[str, Any]) -> None:
        why = why_partial(body)
        remedy = part_remedy(why or "")
        shards = integer_or_none(field_at(body, "_shards.total")) or 0
        if why is None and shards < self._shards.get(kind, 0):
            why = "an index was closed or deleted between two searches"
            remedy = "repeat the command"
        self._shards[kind] = max(shards, self._shards.get(kind, 0))
        if why is not None:
            reason = f"{self._place}: {why}, so runs are missing: {remedy}."
            self._partial[why] = Gap(place=self._place, reason=reason)


def _refusal_error(response: ServerResponse) -> TaskProfilerError:
    body = mapping_or_empty(response.body)
    if response.body is None and response.status in _NO_API:
        return TaskProfilerError(
            f"{response.address} is no Elasticsearch or OpenSearch: it answers without JSON "
            f"(HTTP {response.status}). Check the address and its port."
        )
    return TaskProfilerError(
        f"{response.address} rejected the search (HTTP {response.status}: "
        f"{_first_reason_text(body)}): "
        "check the address, its prefix, the sign-in and proxies, and that the index "
        "templates are installed (task-profiler kibana import)."
    )


def _first_reason_text(body: Mapping[str, Any]) -> str:
    """The first reason that the answer has: a shard without a node has none."""
    error = body.get("error")
    whole = mapping_or_empty(error)
    causes = [*mappings_in_list(whole.get("root_cause")), whole]
    reasons = known_values(text_or_none(cause.get("reason")) for cause in causes)
    return next(iter(reasons), text_or_none(error) or "no reason given")
