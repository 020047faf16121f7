"""A search cluster in memory that applies bulk requests as Elasticsearch does: updates, upserts,
versions; and finds documents by id after a refresh.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from profiler.forwarder.document_updates import Document
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster.bulk_client import ItemResult, SearchCluster

_Place = tuple[str, str]


class FakeSearchCluster(SearchCluster):
    """Keeps documents by index and id, each with the number of its last write.

    A search finds them at once, or with ``is_stale`` never.
    """

    def __init__(self) -> None:
        self.documents: dict[_Place, dict[str, Any]] = {}
        self.is_stale = False
        self.searches = 0
        self.requests = 0
        self._versions: dict[_Place, int] = {}
        self._writes = 0

    def request(self, path: str, body: bytes | Mapping[str, object], timeout_seconds: float) -> Any:
        if isinstance(body, Mapping):
            self.searches += 1
            return self._search_ids(path, body)
        assert path == "/_bulk"
        self.requests += 1
        lines = [json.loads(line) for line in body.removesuffix(b"\n").split(b"\n")]
        items = [
            self._apply(action, fields)
            for action, fields in zip(lines[::2], lines[1::2], strict=True)
        ]
        return json.loads(json.dumps({"items": items}))

    def _search_ids(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The documents with these ids in the indices of the path, as a search finds them."""
        indices, _, rest = path.removeprefix("/").partition("/")
        assert rest.partition("?")[0] == "_search"
        ids = body["query"]["ids"]["values"]
        assert len(set(ids)) <= body["size"] <= 10_000
        hits = [
            {"_index": index, "_id": name, "_source": _filtered(fields, body["_source"])}
            for (index, name), fields in self.documents.items()
            if name in ids and any(fnmatchcase(index, glob) for glob in indices.split(","))
        ]
        return {"hits": {"hits": [] if self.is_stale else hits}}

    def _apply(self, action: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
        ((operation, meta),) = action.items()
        place = (meta["_index"], meta["_id"])
        present = self.documents.get(place)
        if "if_seq_no" in meta and (meta["if_seq_no"], meta["if_primary_term"]) != (
            self._versions.get(place),
            1,
        ):
            return {
                operation: {"status": 409, "error": {"type": "version_conflict_engine_exception"}}
            }
        if operation == "index":
            return {operation: self._write(place, body)}
        if present is None:
            given = body["doc"] if body.get("doc_as_upsert") else body["upsert"]
            answer = {**self._write(place, given), "status": 201, "result": "created"}
        else:
            changed = _merged(present, body["doc"])
            answer = {"status": 200, "result": "noop"}
            if changed != present:
                answer = self._write(place, changed)
        if "_source" in body:
            answer["get"] = {
                "_seq_no": self._versions[place],
                "_primary_term": 1,
                "found": True,
                "_source": _filtered(self.documents[place], body["_source"]),
            }
        return {operation: answer}

    def _write(self, place: _Place, fields: dict[str, Any]) -> dict[str, Any]:
        self._writes += 1
        self._versions[place] = self._writes
        self.documents[place] = fields
        return {"status": 200, "result": "updated"}


class AnsweringSearch(FakeSearchCluster):
    """Gives one answer to every search, or raises the error. Keeps the searches."""

    def __init__(
        self, answer: Mapping[str, Any] | None = None, error: SearchClusterError | None = None
    ) -> None:
        super().__init__()
        self.answer, self.error = answer or {}, error
        self.bodies: list[Mapping[str, Any]] = []

    def request(self, path: str, body: bytes | Mapping[str, object], timeout_seconds: float) -> Any:
        assert path.partition("?")[0] == "/task-reports-*/_search"
        assert isinstance(body, Mapping)
        assert timeout_seconds == 5
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        return self.answer


def _merged(present: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    result = dict(present)
    for name, value in given.items():
        old = result.get(name)
        result[name] = (
            _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
        )
    return result


def _filtered(fields: dict[str, Any], paths: Sequence[str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for path in paths:
        *objects, name = path.split(".")
        found, target = fields, kept
        for part in objects:
            found = found.get(part, {})
        if name in found:
            for part in objects:
                target = target.setdefault(part, {})
            target[name] = found[name]
    return kept


Answer = Callable[[Sequence[Document]], list[ItemResult]]


class FakeCluster(FakeSearchCluster):
    """Responds to each request with the next item of its script, and repeats the last one.

    Keeps the documents.
    """

    def __init__(self, *script: Answer) -> None:
        super().__init__()
        self._script = list(script)
        self.batches: list[list[str]] = []
        self.taken: dict[str, Document] = {}

    def write_documents(
        self, documents: Sequence[Document], timeout_seconds: float
    ) -> list[ItemResult]:
        assert timeout_seconds >= 1
        self.batches.append([document.id for document in documents])
        answer = self._script.pop(0) if len(self._script) > 1 else self._script[0]
        results = answer(documents)
        for document, result in zip(documents, results, strict=True):
            if not result.is_failed:
                self.taken[document.id] = document
        return results


def documents(count: int) -> list[Document]:
    return [
        Document(index="task-reports-2026.03", id=str(number), fields={"n": number})
        for number in range(count)
    ]


def takes_all(batch: Sequence[Document]) -> list[ItemResult]:
    return [ItemResult(status=200) for _ in batch]


def fails(status: int | None) -> Answer:
    def answer(_batch: Sequence[Document]) -> list[ItemResult]:
        raise SearchClusterError(f"HTTP {status}", status=status)

    return answer
