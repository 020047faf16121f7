"""The windows of families' runs, of which a search cluster computes counts and extremes.

Only the runs that decide are fetched: the newest ones, a sample, and those with the largest values.
The cluster computes over documents that have all fields it needs; runs of others, such as those of
an older forwarder, are read one by one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from profiler.core.ecs_terms import FARGATE, VCPU_SIZES
from profiler.core.optional_math import all_known, known, product
from profiler.core.timestamps import NS_PER_MS
from profiler.record.family_identity import FamilyKey
from profiler.record.query_clauses import (
    CONTAINER,
    DURATION_MS,
    FAMILY,
    IS_CONFIRMED,
    IS_SUCCESS,
    MAPPED_FILES_MB,
    MEMORY_PEAK_MB,
    RAN_OUT_OF_MEMORY,
    START,
    STATUS,
    TASK_ID,
    TIME,
    JsonObject,
    all_of,
    any_of,
    exists,
    in_range,
    none_of,
    one_of,
    term,
)
from profiler.record.record_model import SlowdownBounds, TaskSize
from profiler.runs.past_runs.defined_jobs import AllRunsByFamily
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.past_runs.search_conditions import (
    FAMILY_FIELDS,
    JOB_DEFINITION,
    composite_aggregation,
    family_conditions,
    family_of_bucket,
    filter_conditions,
    term_or_missing,
)
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.sizing.family_window import FamilyWindow, WindowSpan
from profiler.sizing.run_counts import (
    SAMPLED_DURATIONS,
    Outcome,
    RunCounts,
    container_limit_mb,
    is_container_limit,
)
from profiler.sizing.run_facts import run_facts_of
from profiler.sizing.runs_at_size import NEWEST_RUNS, SAMPLED_RUNS
from profiler.sizing.slowdown_factors import Factors

_VCPU: Final = "task.size.vcpu"
_MEMORY: Final = "task.size.memory_mb"
_LAUNCH_TYPE: Final = "task.launch_type"
_LIMIT: Final = "usage.memory.size_mb"
_MEMORY_NEED: Final = "usage.task.memory_mb"
_OUTCOMES: Final[Mapping[str, Outcome]] = {
    "success": "success",
    "failure": "failed",
    "stopped": "stopped",
}
_RUN_FIELDS: Final = {
    "revision": "task.revision",
    "vcpu": _VCPU,
    "memory": _MEMORY,
    "launch": _LAUNCH_TYPE,
    "status": STATUS,
    "container": CONTAINER,
}
# What Batch has named, beside what the forwarder named the task after.
_JOB_FIELDS: Final = {
    "definition": JOB_DEFINITION,
    "definition_revision": "batch.job_definition_revision",
}
# A field, and those without which older documents have it.
_NEEDED_FIELDS: Final = (
    ("usage.memory.used_mb.max", _MEMORY_NEED),
    (MAPPED_FILES_MB, "usage.task.memory_with_files_mb"),
    ("usage.cpu.used.p95", "usage.task.vcpu_p95"),
    ("usage.memory.usage_peak_mb", "usage.memory.uncached_peak_mb"),
    ("usage.cpu.slowdown.max.v0_25", "usage.cpu.slowdown.max.v32"),
)
_MEASURED: Final = any_of([exists(MEMORY_PEAK_MB), exists("usage.cpu.used.p95")])
_EXTREMES: Final = (
    _MEMORY_NEED,
    "usage.task.memory_with_files_mb",
    "usage.task.memory_bound_mb",
    "usage.task.others_memory_mb",
    "usage.task.vcpu_p95",
    "usage.memory.used_mb.max",
    "usage.memory.uncached_peak_mb",
    "monitor.stats_period_ms",
)
# Both engines refuse an answer with more than 65,535 buckets.
_PAGE_BUCKETS: Final = 1_000
# The largest ones, of a thousand groups in an answer.
_LIMITS: Final = 20
_READ_PAGE: Final = 1_000
_PERCENTS: Final = tuple(range(1, 100, 2))


class _SizeGroup(Struct, frozen=True):
    """The runs of a family at one size of the task, of one launch type."""

    family: FamilyKey
    size: TaskSize
    launch_type: str | None


class IndexedWindows:
    """Reads the windows of the families in the indices."""

    def __init__(
        self,
        runs: IndexedRuns,
        selection: RunFilter,
        span: WindowSpan,
        jobs: AllRunsByFamily,
    ) -> None:
        self._runs = runs
        self._selection = selection
        self._span = span
        self._jobs = jobs
        self._windows: dict[FamilyKey, FamilyWindow] = {}
        self._durations_ms: dict[tuple[_SizeGroup, str], list[float]] = {}

    def read_into_windows(
        self, windows: dict[FamilyKey, FamilyWindow], add: Callable[[PastRun], None]
    ) -> None:
        """Add the runs within the span to the windows; ``add`` gets those read one by one.

        Raises TaskProfilerError if the cluster rejects a search.
        """
        self._windows = windows
        self._runs.ask_since(self._selection.since_ns)
        self._runs.require_months(self._span.since_ns, self._span.now_ns)
        self._count_unconfirmed()
        groups = dict.fromkeys(self._count_size_groups(is_killed=False))
        groups.update(dict.fromkeys(self._count_size_groups(is_killed=True)))
        self._add_collected_durations()
        for group in groups:
            self._fetch_deciding(group)
        for run in self._uncountable_runs():
            if self._selection.matches(run.report):
                add(run)

    def _window_of_family(self, family: FamilyKey) -> FamilyWindow:
        if family not in self._windows:
            self._windows[family] = self._jobs.new_window(family, self._span)
        return self._windows[family]

    def _count_unconfirmed(self) -> None:
        conditions = [
            *self._selection_conditions(START),
            exists(START),
            none_of([IS_CONFIRMED]),
        ]
        for bucket in self._buckets(conditions, FAMILY_FIELDS, {}):
            family = family_of_bucket(bucket)
            if self._selection.matches_family(family):
                self._window_of_family(family).unconfirmed += bucket["doc_count"]

    def _count_size_groups(self, *, is_killed: bool) -> Iterator[_SizeGroup]:
        """Count the runs that were killed for memory, or the others; yields their groups."""
        conditions = [*self._selection_conditions(START), *self._computable_conditions()]
        conditions.append(RAN_OUT_OF_MEMORY if is_killed else none_of([RAN_OUT_OF_MEMORY]))
        fields = {**FAMILY_FIELDS, **_RUN_FIELDS}
        if self._jobs.of_definitions:
            fields |= _JOB_FIELDS
        for bucket in self._buckets(conditions, fields, _aggregations_of_group()):
            family = family_of_bucket(bucket)
            key = bucket["key"]
            if not self._selection.matches_family(family):
                continue
            if not self._jobs.reads_name(family.name):
                continue
            if self._jobs.of_definitions and not _is_named_by_batch(key):
                continue
            size = TaskSize(vcpu=float(key["vcpu"]), memory_mb=float(key["memory"]))
            group = _SizeGroup(family, size, key["launch"])
            outcome: Outcome = "killed" if is_killed else _OUTCOMES[key["status"]]
            revision = key["revision"] or ""
            counts = _run_counts(bucket, outcome)
            window = self._window_of_family(family)
            window.add_counts(revision, size, counts, launch_type=group.launch_type)
            for limit_mb in _limits_mb(bucket, size):
                window.add_container_limit(
                    revision,
                    size,
                    key["container"],
                    limit_mb,
                    launch_type=group.launch_type,
                )
            if outcome == "success":
                percentiles = bucket["timed"]["durations"]["values"].values()
                known_ms = [value for value in percentiles if isinstance(value, int | float)]
                self._durations_ms.setdefault((group, revision), []).extend(known_ms)
            yield group

    def _add_collected_durations(self) -> None:
        for (group, revision), durations_ms in self._durations_ms.items():
            step = -(-len(durations_ms) // SAMPLED_DURATIONS) or 1
            sample = sorted(durations_ms)[::step]
            window = self._window_of_family(group.family)
            window.add_counts(
                revision, group.size, RunCounts(), sample, launch_type=group.launch_type
            )

    def _fetch_deciding(self, group: _SizeGroup) -> None:
        """Add the runs of a group that may decide."""
        conditions = [
            *self._selection_conditions(START),
            *self._computable_conditions(),
            *_group_conditions(group),
        ]
        window = self._window_of_family(group.family)
        newest = _runs_query(conditions, NEWEST_RUNS, START, "desc")
        newest["aggs"] = _extreme_aggregations()
        answer = self._runs.search_indices("reports", newest)
        sample = self._runs.search_indices(
            "reports", _runs_query(conditions, SAMPLED_RUNS, TASK_ID, "asc")
        )
        self._add_hits(window, answer["hits"]["hits"], is_sampled=False)
        self._add_hits(window, sample["hits"]["hits"], is_sampled=True)
        extremes = answer["aggregations"]
        for name, result in extremes.items():
            if name.startswith("top "):
                self._add_hits(window, _hits_of_result(result), is_sampled=False)
        for began_ns, duration_ms in _longest_by_hour(extremes):
            window.add_longest_success(
                group.size, began_ns, duration_ms, launch_type=group.launch_type
            )
        bounds = _slowdown_bounds(extremes)
        if bounds:
            window.add_slowdowns(
                group.size, _slowdowns_above_one(bounds), launch_type=group.launch_type
            )

    def _add_hits(
        self, window: FamilyWindow, hits: Sequence[Mapping[str, Any]], *, is_sampled: bool
    ) -> None:
        for hit in hits:
            run = self._runs.run_of_hit(hit)
            if self._jobs.indexed_run_under_read_name(run) is None:
                continue
            facts = run_facts_of(run.report, run.outcome, is_confirmed=run.is_confirmed)
            window.add_counted_run(facts, is_sampled=is_sampled)

    def _uncountable_runs(self) -> Iterator[PastRun]:
        """The confirmed runs over which the cluster cannot compute."""
        started = [*self._selection_conditions(START), exists(START), IS_CONFIRMED]
        incomplete = none_of([all_of(self._computable_conditions())])
        for run in self._runs.search_all_pages([*started, incomplete], START, _READ_PAGE):
            self._runs.read_one_by_one += 1
            yield run
        never_started = [*self._selection_conditions(TIME), none_of([exists(START)])]
        yield from self._runs.search_all_pages(never_started, TIME, _READ_PAGE)

    def _selection_conditions(self, time_field: str) -> list[JsonObject]:
        conditions = [*filter_conditions(self._selection, time_field), exists(FAMILY)]
        if self._jobs.of_definitions:
            conditions.append(exists(JOB_DEFINITION))
        return conditions

    def _computable_conditions(self) -> list[JsonObject]:
        """The conditions of a document over which the cluster can compute. On EC2, the size of a
        job is its container's.
        """
        if self._jobs.of_definitions:
            return [*_computable_conditions(), term(_LAUNCH_TYPE, FARGATE)]
        return _computable_conditions()

    def _buckets(
        self,
        conditions: Sequence[JsonObject],
        fields: Mapping[str, str],
        aggregations: Mapping[str, JsonObject],
    ) -> Iterator[Mapping[str, Any]]:
        """The buckets of documents that have the same values in all fields."""
        composite = composite_aggregation(fields, _PAGE_BUCKETS)
        while True:
            groups: JsonObject = {"composite": composite}
            if aggregations:
                groups["aggs"] = dict(aggregations)
            query = {**_runs_query(conditions, 0, START, "desc"), "aggs": {"groups": groups}}
            answer = self._runs.search_indices("reports", query)
            page = answer.get("aggregations", {}).get("groups", {})
            buckets = page.get("buckets", ())
            yield from buckets
            if len(buckets) < _PAGE_BUCKETS:
                return
            composite = {**composite, "after": page["after_key"]}


def _is_named_by_batch(key: Mapping[str, Any]) -> bool:
    """Whether the task is named after its job's definition."""
    of_task = (key["name"], key["revision"])
    return of_task == (key["definition"], str(key["definition_revision"]))


def _runs_query(
    conditions: Sequence[JsonObject], size: int, order: str, direction: str
) -> JsonObject:
    unmapped_type = "date" if order == START else "keyword"
    return {
        "size": size,
        "track_total_hits": False,
        "query": all_of(conditions),
        "sort": [{order: {"order": direction, "unmapped_type": unmapped_type}}],
    }


def _computable_conditions() -> list[JsonObject]:
    """The conditions of a document over which the cluster can compute."""
    conditions = [IS_CONFIRMED, term("task.complete", value=True)]
    conditions.append(one_of(STATUS, _OUTCOMES))
    conditions += [exists(field) for field in (START, _VCPU, _MEMORY, CONTAINER)]
    conditions += [any_of([none_of([exists(old)]), exists(new)]) for old, new in _NEEDED_FIELDS]
    return conditions


def _group_conditions(group: _SizeGroup) -> list[JsonObject]:
    return [
        *family_conditions(group.family),
        term_or_missing(_VCPU, group.size.vcpu),
        term_or_missing(_MEMORY, group.size.memory_mb),
        term_or_missing(_LAUNCH_TYPE, group.launch_type),
    ]


def _aggregations_of_group() -> dict[str, JsonObject]:
    times: dict[str, JsonObject] = {
        "first": {"min": {"field": START}},
        "last": {"max": {"field": START}},
    }
    durations = {"percentiles": {"field": DURATION_MS, "percents": list(_PERCENTS)}}
    return {
        **times,
        "measured": {"filter": _MEASURED, "aggs": times},
        "limits": {"terms": {"field": _LIMIT, "size": _LIMITS, "order": {"_key": "desc"}}},
        "timed": {
            "filter": in_range(DURATION_MS, gt=0),
            "aggs": {"durations": durations},
        },
    }


def _extreme_aggregations() -> dict[str, JsonObject]:
    """The runs with the largest values, and the largest slowdowns."""
    aggregations: dict[str, JsonObject] = {}
    for field in _EXTREMES:
        aggregations[f"top {field}"] = {
            "filter": exists(field),
            "aggs": _largest_by_aggregation(field),
        }
    says_files = exists(MAPPED_FILES_MB)
    for meaning, condition in (("newer", says_files), ("older", none_of([says_files]))):
        aggregations[f"top {meaning} memory"] = {
            "filter": all_of([exists(_MEMORY_NEED), condition]),
            "aggs": _largest_by_aggregation(_MEMORY_NEED),
        }
    has_slowdown = exists("usage.cpu.slowdown.max.v0_25")
    aggregations["top without slowdown"] = {
        "filter": all_of([exists("usage.task.vcpu_p95")], but_none_of=[has_slowdown]),
        "aggs": _largest_by_aggregation("usage.task.vcpu_p95"),
    }
    killed_values = (_LIMIT, "usage.task.others_memory_mb", _MEMORY_NEED)
    for field in killed_values:
        aggregations[f"top killed {field}"] = {
            "filter": RAN_OUT_OF_MEMORY,
            "aggs": _largest_by_aggregation(field),
        }
    aggregations["timed"] = {
        "filter": all_of([IS_SUCCESS, none_of([RAN_OUT_OF_MEMORY])]),
        "aggs": {
            "hours": {
                "date_histogram": {"field": START, "fixed_interval": "1h", "min_doc_count": 1},
                "aggs": {"longest": {"max": {"field": DURATION_MS}}},
            }
        },
    }
    for vcpu in VCPU_SIZES:
        name = f"v{vcpu:g}".replace(".", "_")
        for bound in ("min", "max"):
            field = f"usage.cpu.slowdown.{bound}.{name}"
            aggregations[f"{bound} {vcpu:g}"] = {"max": {"field": field}}
    return aggregations


def _largest_by_aggregation(field: str) -> dict[str, JsonObject]:
    order = {"order": "desc", "missing": "_last", "unmapped_type": "double"}
    return {"run": {"top_hits": {"size": 1, "sort": [{field: order}]}}}


def _hits_of_result(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    hits: Sequence[Mapping[str, Any]] = result["run"]["hits"]["hits"]
    return hits


def _run_counts(bucket: Mapping[str, Any], outcome: Outcome) -> RunCounts:
    count = bucket["doc_count"]
    measured = bucket["measured"]
    counts = RunCounts(
        first_ns=_milliseconds_to_ns(bucket["first"]), last_ns=_milliseconds_to_ns(bucket["last"])
    )
    container = bucket["key"]["container"]
    counts.ends[container, outcome] = count
    counts.measured[container] = measured["doc_count"]
    if outcome == "killed":
        counts.killed_unmeasured[container] = count - measured["doc_count"]
    if outcome == "success":
        counts.first_success_ns = _milliseconds_to_ns(measured["first"])
        counts.last_success_ns = _milliseconds_to_ns(measured["last"])
    return counts


def _milliseconds_to_ns(result: Mapping[str, Any]) -> int | None:
    value_ms = result["value"]
    return product(known(int, value_ms), NS_PER_MS)


def _limits_mb(bucket: Mapping[str, Any], size: TaskSize) -> Iterator[float | None]:
    """The largest memory limits of a bucket's containers; None: the task's."""
    for limit in bucket["limits"]["buckets"]:
        limit_mb = float(limit["key"])
        if is_container_limit(limit_mb):
            yield container_limit_mb(limit_mb, size.memory_mb or 0)


def _longest_by_hour(extremes: Mapping[str, Any]) -> Iterator[tuple[int, float]]:
    """The longest success of each hour, with a moment of that hour."""
    for bucket in extremes["timed"]["hours"]["buckets"]:
        duration_ms = bucket["longest"]["value"]
        if duration_ms is not None:
            yield int(bucket["key"]) * NS_PER_MS, duration_ms


def _slowdown_bounds(extremes: Mapping[str, Any]) -> Factors:
    """The largest slowdowns of the group's runs, by the size in vCPUs."""
    bounds: dict[float, SlowdownBounds] = {}
    for vcpu in VCPU_SIZES:
        factors = all_known(*(extremes[f"{end} {vcpu:g}"]["value"] for end in ("min", "max")))
        if factors is not None:
            least, most = factors
            bounds[vcpu] = SlowdownBounds(min=least, max=most)
    return bounds


def _slowdowns_above_one(bounds: Factors) -> Factors:
    """The bounds of the sizes at which a run was slower: the record leaves out the others, too."""
    return {vcpu: slowdown for vcpu, slowdown in bounds.items() if slowdown.max > 1}
