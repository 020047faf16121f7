"""A search cluster in memory that evaluates the queries and aggregations with which the forwarder
asks for a family's past, as Elasticsearch does.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from profiler.core.json_fields import field_at
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MS, parse_ns
from profiler.forwarder.invocation import SearchClusterError
from tests.fake_search import FakeSearchCluster

_Document = Mapping[str, Any]


class CountingSearch(FakeSearchCluster):
    """Searches its documents. ``answer`` is added to each answer; an ``error`` is raised instead.

    ``closed``: an index that a search refuses to leave out.
    """

    def __init__(self, *sources: _Document, now_ns: int = 0) -> None:
        super().__init__()
        self.now_ns = now_ns
        self.bodies: list[Mapping[str, Any]] = []
        self.answer: Mapping[str, Any] = {}
        self.error: SearchClusterError | None = None
        self.closed: str | None = None
        for number, source in enumerate(sources):
            self.documents["task-reports-2026.03", str(number)] = dict(source)

    def request(self, path: str, body: bytes | Mapping[str, Any], timeout_seconds: float) -> Any:
        assert timeout_seconds > 0
        if not isinstance(body, Mapping) or "ids" in body["query"]:
            return super().request(path, body, timeout_seconds)
        index = path.removeprefix("/").partition("/")[0].partition(",-")[0]
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        if self.closed is not None and "open,closed" in path and f"-{self.closed}" not in path:
            raise SearchClusterError("closed", status=400, closed_index=self.closed)
        matches = self._matching(body["query"])
        found = [
            source
            for (name, _), source in self.documents.items()
            if fnmatchcase(name, index) and matches(source)
        ]
        if "sort" in body:
            found.sort(key=lambda source: str(source.get("@timestamp", "")), reverse=True)
        hits = {"hits": [{"_source": source} for source in found[: body["size"]]]}
        return {"hits": hits, "aggregations": self._counted(found, body.get("aggs", {}))} | dict(
            self.answer
        )

    def _matching(self, query: Mapping[str, Any]) -> Callable[[_Document], bool]:
        """Whether the query finds a document."""
        ((kind, asked),) = query.items()
        if kind == "bool":
            assert asked.keys() <= {"filter", "must_not", "should", "minimum_should_match"}
            filters, forbidden, chosen = (
                [self._matching(one) for one in asked.get(name, ())]
                for name in ("filter", "must_not", "should")
            )
            is_any = "should" not in asked
            return lambda source: (
                all(matches(source) for matches in filters)
                and not any(matches(source) for matches in forbidden)
                and (is_any or any(matches(source) for matches in chosen))
            )
        if kind == "match_all":
            return lambda _source: True
        if kind == "exists":
            return lambda source: field_at(source, asked["field"]) is not None
        ((field, wanted),) = asked.items()
        if kind == "range":
            limits = [(_COMPARE[name], self._moment(limit)) for name, limit in wanted.items()]
            return lambda source: self._is_within(field_at(source, field), limits)
        tests: dict[str, Callable[[_Document], bool]] = {
            "term": lambda source: field_at(source, field) == wanted,
            "terms": lambda source: field_at(source, field) in wanted,
            "prefix": lambda source: str(field_at(source, field)).startswith(wanted),
        }
        return tests[kind]

    def _is_within(
        self, value: Any, limits: Sequence[tuple[Callable[[float, float], bool], float]]
    ) -> bool:
        if value is None:
            return False
        moment = self._moment(value)
        return all(compare(moment, limit) for compare, limit in limits)

    def _moment(self, value: Any) -> float:
        match = re.fullmatch(r"now-(\d+)d", str(value))
        if match is not None:
            return self.now_ns - int(match[1]) * NS_PER_DAY
        ns = parse_ns(value)
        return float(value) if ns is None else ns

    def _counted(self, found: Sequence[_Document], aggs: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._counted_one(found, asked) for name, asked in aggs.items()}

    def _counted_one(self, found: Sequence[_Document], asked: Mapping[str, Any]) -> Any:
        inner = asked.get("aggs", {})
        if "filter" in asked:
            matching = [*filter(self._matching(asked["filter"]), found)]
            return {"doc_count": len(matching), **self._counted(matching, inner)}
        if "terms" in asked:
            return {"buckets": self._buckets(found, asked["terms"], inner)}
        if "top_hits" in asked:
            newest = sorted(found, key=lambda source: source.get("@timestamp", ""), reverse=True)
            hits = newest[: asked["top_hits"]["size"]]
            return {"hits": {"hits": [{"_source": source} for source in hits]}}
        ((kind, field),) = asked.items()
        return {"value": _value(kind, _values(found, field["field"]))}

    def _buckets(
        self, found: Sequence[_Document], terms: Mapping[str, Any], inner: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        by_key: dict[Any, list[_Document]] = {}
        for source in found:
            key = field_at(source, terms["field"])
            key = terms.get("missing") if key is None else key
            if key is not None:
                by_key.setdefault(key, []).append(source)
        buckets = [
            {"key": key, "doc_count": len(sources), **self._counted(sources, inner)}
            for key, sources in sorted(by_key.items(), key=lambda item: str(item[0]))
        ]
        order = terms.get("order", [{"_count": "desc"}])
        for one in reversed([one for one in order if "_key" not in one]):
            ((name, direction),) = one.items()
            assert direction == "desc"
            buckets.sort(key=partial(_place_of, name), reverse=True)
        return buckets[: terms["size"]]


def _place_of(name: str, bucket: Mapping[str, Any]) -> float:
    """The value of a bucket by which it is sorted: of a metric, or the number of its documents."""
    asked = bucket if name == "_count" else bucket[name]
    value = asked.get("value", asked.get("doc_count"))
    return -math.inf if value is None else float(value)


_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "gt": lambda value, limit: value > limit,
    "gte": lambda value, limit: value >= limit,
    "lt": lambda value, limit: value < limit,
}


def _values(found: Iterable[_Document], field: str) -> list[Any]:
    values = (field_at(source, field) for source in found)
    return [value for value in values if value is not None]


def _value(kind: str, values: Sequence[Any]) -> float | None:
    """The value of an aggregation of numbers or times."""
    numbers = [_milliseconds(value) for value in values if kind in ("min", "max")]
    counted: dict[str, Callable[[], float | None]] = {
        "cardinality": lambda: len(set(values)),
        "value_count": lambda: len(values),
        "sum": lambda: sum(values),
        "min": lambda: min(numbers, default=None),
        "max": lambda: max(numbers, default=None),
    }
    return counted[kind]()


def _milliseconds(value: Any) -> float:
    ns = parse_ns(value)
    return float(value) if ns is None else ns / NS_PER_MS
