"""The runs in the indices of Elasticsearch or OpenSearch: see :mod:`search_documents`."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from msgspec.structs import replace

from profiler.core.bounded_batches import batches
from profiler.core.completeness import Completeness
from profiler.core.json_fields import mapping_or_empty, mappings_in_list, positive_number
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.query_clauses import (
    ACCOUNT,
    CONTAINER,
    START,
    TASK_ID,
    TIME,
    JsonObject,
    all_of,
    any_of,
    term,
)
from profiler.record.record_model import CHECKPOINT, Report
from profiler.record.units import format_count
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import (
    OpenProgress,
    RunFilter,
    RunSource,
    no_progress,
    uncounted_note,
)
from profiler.runs.past_runs.schedule_notices import MAX_NOTICES, read_notices, select_notices
from profiler.runs.past_runs.search_conditions import (
    family_conditions,
    family_of_bucket,
    filter_conditions,
    is_in_window,
    is_of_trusted_stream,
    is_unconfirmed,
    run_conditions,
    windows_query,
)
from profiler.runs.past_runs.search_documents import report_of_document, run_of_document
from profiler.runs.past_runs.searched_indices import SearchedIndices
from profiler.search_setup.cluster_requests import SearchServer
from profiler.sizing.job_grouping import KINDS_OF_JOBS

_Hits = Sequence[Mapping[str, Any]]
_DUE = "notice.due_at"
_PAGE_SIZE = 200
# For reads that never stop early. A record line has at most 64 KiB.
_LARGE_PAGE_SIZE = 2_000
_MAX_CHECKPOINTS = 1_000
# Each family has up to five conditions, and the engines refuse a query of more than 1,024.
_MAX_FAMILIES = 100
# Of a definition of AWS Batch, at most so many runs are read.
_MAX_JOBS = 10_000
_EMPTY: Mapping[str, Any] = {}
_NEVER = datetime.max.replace(tzinfo=UTC)


class IndexedRuns(RunSource):
    """The runs in the indices of a prefix.

    ``advice_since``: without a time in a question, an index of the days since then must be open.
    """

    remedy = "check --from https://HOST/PREFIX, and that the forwarder works"
    leaves_out_older = True

    def __init__(
        self,
        server: SearchServer,
        prefix: str,
        open_progress: OpenProgress = no_progress,
        *,
        advice_since: datetime = _NEVER,
    ) -> None:
        self.server = server
        self.prefix = prefix
        self._open_progress = open_progress
        self._unreadable: set[str] = set()  # a document may be read several times
        self._is_cut = False
        # Of each filter, the runs that do not count.
        self._uncounted: dict[RunFilter, int] = {}
        self.read_one_by_one = 0  # documents over which the cluster could not compute
        self.place = f"the indices {prefix}-reports-*"
        self._indices = SearchedIndices(server, prefix, self.place, advice_since)

    @property
    def remarks(self) -> Sequence[str]:
        notes: list[str] = []
        if self._unreadable:
            notes.append(
                f"{self.place}: {format_count(len(self._unreadable), 'record')} could not be read, "
                "so numbers are missing."
            )
        uncounted = max(self._uncounted.values(), default=0)
        if uncounted:
            notes.append(uncounted_note(self.place, uncounted))
        if self._is_cut:
            notes.append(
                f"Only the newest {_MAX_CHECKPOINTS} checkpoints of a run were read: its time "
                "series begins later."
            )
        if self.read_one_by_one:
            notes.append(
                f"{self.place}: {format_count(self.read_one_by_one, 'document')} had to be read "
                "one by one: an older forwarder wrote them, or the task's size or end is unknown."
            )
        return tuple(notes)

    @property
    def completeness(self) -> Completeness:
        return self._indices.completeness

    @property
    def unsearched(self) -> Sequence[str]:
        return [f"{name}, which is closed" for name in self._indices.put_away_indices]

    def ask_since(self, since_ns: int | None) -> None:
        """The first question decides since when all runs are needed; None: all times."""
        self._indices.ask_since(since_ns)

    def require_months(self, since_ns: int, now_ns: int) -> None:
        """Somebody acts on the runs since a time: each month must have an index."""
        self._indices.require_months(since_ns, now_ns)

    def runs(self, selection: RunFilter) -> Iterator[PastRun]:
        self.ask_since(selection.since_ns)
        is_found = False
        self._count_unconfirmed(selection)
        with self._open_progress() as show:
            # Runs that never started have no start: a second search sorts them by their time.
            started = self.search_all_pages(run_conditions(selection, START), START, _PAGE_SIZE)
            never_started = self.search_all_pages(run_conditions(selection, TIME), TIME, _PAGE_SIZE)
            merged = heapq.merge(started, never_started, key=lambda run: -run.started_ns)
            for count, run in enumerate(merged, start=1):
                is_found = True
                show(count, 0)
                if selection.matches(run.report):
                    yield run
        if selection.reads_checkpoints and selection.run and not is_found:
            # The run may have only checkpoints so far.
            for hit in self._search_page("checkpoints", run_conditions(selection, START), TIME, 1):
                run = self.run_of_hit(hit)
                if selection.matches(run.report):
                    yield run

    def last_runs(self, selection: RunFilter, last: int) -> Iterator[PastRun]:
        """The ``last`` newest matching runs of each family that started: one search finds the
        starts, one the runs.
        """
        self.ask_since(selection.since_ns)
        self._count_unconfirmed(selection)
        searches = self._last_run_conditions(selection, last)
        runs = (
            self.search_all_pages(conditions, START, _LARGE_PAGE_SIZE) for conditions in searches
        )
        with self._open_progress() as show:
            for count, run in enumerate(chain.from_iterable(runs), start=1):
                show(count, 0)
                if selection.matches(run.report):
                    yield run

    def _count_unconfirmed(self, selection: RunFilter) -> None:
        """Count the runs that the filter leaves out because they do not count."""
        if not selection.only_counting or selection in self._uncounted:
            return
        matching = filter_conditions(replace(selection, only_counting=False), START)
        query: JsonObject = {
            "size": 0,
            "track_total_hits": True,
            "query": all_of([*matching, is_unconfirmed()]),
            "sort": [{START: {"order": "desc", "unmapped_type": "date"}}],
        }
        total = mapping_or_empty(
            mapping_or_empty(self.search_indices("reports", query)["hits"]).get("total")
        )
        self._uncounted[selection] = int(positive_number(total.get("value")) or 0)

    def _last_run_conditions(
        self, selection: RunFilter, last: int
    ) -> Iterator[Sequence[JsonObject]]:
        """Yield the conditions of searches for the last runs of families.

        One page holds the runs of a search.
        """
        windows: list[JsonObject] = []
        of_jobs: list[JsonObject] = []
        for bucket in self._family_buckets(selection, last):
            family = family_of_bucket(bucket)
            if not (bucket["starts"]["buckets"] and selection.matches_family(family)):
                continue
            if bucket.get("jobs", _EMPTY).get("doc_count"):
                of_jobs.append(all_of(family_conditions(family)))
            else:
                windows.append(is_in_window(bucket, family))
            if len(windows) >= _families_per_search(last):
                yield [any_of(windows), *filter_conditions(selection, START)]
                windows = []
        if windows:
            yield [any_of(windows), *filter_conditions(selection, START)]
        yield from self._last_job_conditions(selection, of_jobs, last)

    def _last_job_conditions(
        self, selection: RunFilter, families: Sequence[JsonObject], last: int
    ) -> Iterator[Sequence[JsonObject]]:
        """The conditions for families of jobs, of more runs each: the jobs of a definition can have
        several names and sizes.
        """
        more = min(KINDS_OF_JOBS * last, _MAX_JOBS)
        for asked in batches(families, _MAX_FAMILIES):
            windows = [
                is_in_window(bucket, family_of_bucket(bucket))
                for bucket in self._family_buckets(selection, more, asked)
                if bucket["starts"]["buckets"]
            ]
            if windows:
                yield [any_of(windows), *filter_conditions(selection, START)]

    def _family_buckets(
        self, selection: RunFilter, last: int, families: Sequence[JsonObject] = ()
    ) -> Iterator[Mapping[str, Any]]:
        """The families with the starts of their last runs; of some families, or of all."""
        # Both engines refuse a response of more than 65,535 buckets.
        size = max(1, 20_000 // (last + 1))
        after: Mapping[str, Any] | None = None
        while True:
            query = windows_query(selection, last, size, after)
            if families:
                query["query"]["bool"]["filter"].append(any_of(families))
            answer = self.search_indices("reports", query)
            page = (answer.get("aggregations") or _EMPTY).get("families", _EMPTY)
            buckets = page.get("buckets", ())
            yield from buckets
            after = page.get("after_key")
            if after is None or len(buckets) < size:
                return

    def schedule_notices(self, selection: RunFilter) -> Sequence[ScheduleNoticeLine]:
        conditions = [
            term("event.dataset", "schedule.notice"),
            *filter_conditions(selection, _DUE),
        ]
        hits = self._search_page("notices", conditions, _DUE, MAX_NOTICES)
        lines = [str(mapping_or_empty(hit.get("_source")).get("record")) for hit in hits]
        return select_notices(read_notices(lines), selection)

    def checkpoints(self, run: PastRun) -> tuple[Report, ...]:
        record = run.record
        conditions = [
            term(TASK_ID, record.task_id),
            term(CONTAINER, record.container.name),
        ]
        if record.account_id is not None:
            conditions.append(term(ACCOUNT, record.account_id))
        if run.is_confirmed:
            conditions.append(is_of_trusted_stream(run.container_ids))
        hits = self._search_page("checkpoints", conditions, TIME, _MAX_CHECKPOINTS)
        if len(hits) == _MAX_CHECKPOINTS:
            self._is_cut = True
        reports: list[Report] = []
        for hit in hits:
            source = mapping_or_empty(hit.get("_source"))
            read = report_of_document(source)
            if read is None:
                self._note_unreadable(source)
                continue
            report, _ = read
            if report.type == CHECKPOINT:
                reports.append(report)
        return tuple(reports)

    def search_all_pages(
        self, conditions: Sequence[JsonObject], order: str, size: int
    ) -> Iterator[PastRun]:
        after: Sequence[Any] | None = None
        while True:
            hits = self._search_page("reports", conditions, order, size, after)
            yield from map(self.run_of_hit, hits)
            if len(hits) < size:
                return
            after = hits[-1]["sort"]

    def _search_page(
        self,
        kind: str,
        conditions: Sequence[JsonObject],
        order: str,
        size: int,
        after: Sequence[Any] | None = None,
    ) -> _Hits:
        body: JsonObject = {
            "size": size,
            "track_total_hits": False,
            "query": all_of(conditions),
            "sort": [
                {order: {"order": "desc", "unmapped_type": "date"}},
                {TASK_ID: {"order": "asc", "unmapped_type": "keyword"}},
                {CONTAINER: {"order": "asc", "unmapped_type": "keyword"}},
            ],
        }
        if after is not None:
            body["search_after"] = list(after)
        return list(mappings_in_list(self.search_indices(kind, body)["hits"]["hits"]))

    def search_indices(self, kind: str, query: object) -> Mapping[str, Any]:
        """Search all indices of a kind, if any.

        Raises TaskProfilerError unless a search cluster accepts the search.
        """
        return self._indices.search_all_indices(kind, query)

    def run_of_hit(self, hit: Mapping[str, Any]) -> PastRun:
        """The run of a document that a search found."""
        source = mapping_or_empty(hit.get("_source"))
        run = run_of_document(source)
        if not run.has_record:
            self._note_unreadable(source)
        return run

    def _note_unreadable(self, source: Mapping[str, Any]) -> None:
        text = source.get("record")
        if isinstance(text, str):
            self._unreadable.add(text)


def _families_per_search(last: int) -> int:
    """The number of families whose last runs one page holds.

    A tenth of the page is room for runs that started at the same time as the oldest of the last
    ones.
    """
    return max(1, min(_MAX_FAMILIES, round(0.9 * _LARGE_PAGE_SIZE) // last))
