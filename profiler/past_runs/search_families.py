"""The evidence of families in Elasticsearch or OpenSearch.

A first search finds the families and the start of the oldest of their last runs, a second one reads the records of
these runs, page by page. So the evidence is the same as that of the same records in a file.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from profiler.past_runs.families import FamilyEvidence
from profiler.past_runs.run_source import CHECKPOINT, PastRun, RunFilter
from profiler.past_runs.search_queries import (
    ACCOUNT,
    FAMILY,
    REGION,
    REMEDY,
    START,
    JsonObject,
    any_of,
    exists,
    filter_conditions,
    indices_path,
    none_of,
    reports_place,
    search,
    term,
)
from profiler.past_runs.search_runs import ClusterRuns
from profiler.record.family import FamilyKey
from profiler.record.model import Metrics, Report
from profiler.search_setup.template_install import SearchServer
from profiler.sizing.evidence import Families

# Both engines refuse a response of more than 65,535 buckets.
_MAX_BUCKETS = 10_000
_MAX_FAMILIES = 100
_EMPTY: Mapping[str, Any] = {}


class _Window(Struct, frozen=True, kw_only=True):
    """A family, and the start of the oldest of its last runs."""

    family: FamilyKey
    first_start_ms: int


class ClusterFamilies:
    """The families of the reports in the indices of a prefix.

    Args:
        server: The cluster.
        prefix: The prefix of the index names.
        on_fargate: The Region in which runs outside Fargate count as if they had run on Fargate; None: they do not.
    """

    remedy = REMEDY

    def __init__(self, server: SearchServer, prefix: str, on_fargate: str | None = None) -> None:
        self._server = server
        self._prefix = prefix
        self._on_fargate = on_fargate
        self._runs = ClusterRuns(server, prefix)
        self.place = reports_place(prefix)

    @property
    def notes(self) -> Sequence[str]:
        """How many records could not be read."""
        return self._runs.notes

    def families(self, wanted: RunFilter, last: int) -> Sequence[FamilyEvidence]:
        """See profiler.past_runs.families. Raises TaskProfilerError if the cluster fails or rejects a query."""
        families = Families(last, self._on_fargate)
        for windows in self._pages(wanted, last):
            conditions = [any_of([_in_window(window) for window in windows]), *filter_conditions(wanted, START)]
            for run in self._runs.started(conditions):
                if wanted.matches(run.report):
                    families.add(_report_of(run))
        return [FamilyEvidence(family=key, evidence=evidence) for key, evidence in families.evidence().items()]

    def _pages(self, wanted: RunFilter, last: int) -> Iterator[Sequence[_Window]]:
        path = indices_path(self._prefix, "reports")
        after: Mapping[str, Any] | None = None
        while True:
            found = search(self._server, path, _windows_query(wanted, last, after)).get("aggregations") or _EMPTY
            page = found.get("families", _EMPTY)
            windows = [window for bucket in page.get("buckets", ()) if (window := _window(bucket)) is not None]
            chosen = [window for window in windows if _is_wanted(window.family, wanted)]
            if chosen:
                yield chosen
            after = page.get("after_key")
            if after is None:
                return


def _windows_query(wanted: RunFilter, last: int, after: Mapping[str, Any] | None) -> JsonObject:
    """Build the query for a page of families, with the start times of their last runs.

    Args:
        wanted: The filter. The query matches too much for patterns with sets of characters: filter the result.
        last: Number of runs per family.
        after: ``after_key`` of the previous page.
    """
    conditions = [exists(FAMILY), exists(START), *filter_conditions(wanted, START)]
    fields = (("name", FAMILY), ("account", ACCOUNT), ("region", REGION))
    composite: JsonObject = {
        "size": max(1, min(_MAX_FAMILIES, _MAX_BUCKETS // (last + 1))),
        "sources": [{name: {"terms": {"field": field, "missing_bucket": True}}} for name, field in fields],
    }
    if after is not None:
        composite["after"] = dict(after)
    starts = {"terms": {"field": START, "size": last, "order": {"_key": "desc"}}}
    return {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": conditions}},
        "aggs": {"families": {"composite": composite, "aggs": {"starts": starts}}},
    }


def _window(bucket: Mapping[str, Any]) -> _Window | None:
    starts, key = bucket["starts"]["buckets"], bucket["key"]
    if not starts:
        return None
    family = FamilyKey(str(key["name"]), key["account"], key["region"])
    return _Window(family=family, first_start_ms=int(starts[-1]["key"]))


def _is_wanted(family: FamilyKey, wanted: RunFilter) -> bool:
    is_named = not wanted.families or any(fnmatchcase(family.name, pattern) for pattern in wanted.families)
    return is_named and wanted.family in (None, family)


def _in_window(window: _Window) -> JsonObject:
    key = window.family
    values = ((FAMILY, key.name), (ACCOUNT, key.account_id), (REGION, key.region))
    start = {"gte": window.first_start_ms, "format": "epoch_millis"}
    same = [none_of([exists(field)]) if value is None else term(field, value) for field, value in values]
    return {"bool": {"filter": [*same, {"range": {START: start}}]}}


def _report_of(run: PastRun) -> Report:
    """The report of an ended run. Of a run that left only checkpoints, the numbers count if it ran out of memory."""
    report = run.report
    if report.type != CHECKPOINT:
        return report
    record = report.record
    if not record.likely_out_of_memory:
        record = replace(record, metrics=Metrics(), containers=())
    return replace(report, type="task.report", record=record)
