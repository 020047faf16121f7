"""What is known of a night: its runs and missed schedules, and earlier runs of its families.

They come from the search cluster; without one, the night's runs come from the lines that
``task_stopped`` has printed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.core.aws_clients import AwsClient, error_code
from profiler.core.completeness import WHOLE, Completeness, Gap
from profiler.core.json_fields import (
    Json,
    decoded,
    field_at,
    mapping,
    mappings,
    number,
    text,
)
from profiler.core.timestamps import NS_PER_MS, format_ms, parse_ns
from profiler.forwarder.invocation import PartialAnswerError, ReadError
from profiler.forwarder.notifications.event_details import LINE_TYPE, EndedRunDetail
from profiler.forwarder.search_cluster.interface import SearchCluster, hit_sources
from profiler.record.event_end import document_outcome
from profiler.record.family_identity import PROOF_FAMILY, matches_any
from profiler.record.last_night import Night, NightCost, count_runs
from profiler.record.line_trust import is_lambda_stream
from profiler.record.record_model import TaskSize
from profiler.record.run_outcome import OUT_OF_MEMORY, Outcome
from profiler.record.search_document_fields import RAN_OUT_OF_MEMORY
from profiler.record.spot_price import FARGATE_SPOT, is_on_spot

_MAX_FAMILIES = 200
_MAX_MISSED = 50
# Of each family. More runs are no better evidence of what is usual.
_MAX_EARLIER_RUNS = 40
_HISTORY_DAYS = 35
_SAVED_DAYS = 30
_NEWEST: Json = [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}]
_DECODER = msgspec.json.Decoder(EndedRunDetail)
_PRICED_ON_SPOT: Json = [
    {"term": {"task.capacity_provider": FARGATE_SPOT}},
    {"exists": {"field": "cost.usd"}},
]
_OUTCOME_FIELDS = (
    *("task.outcome", "task.status", "task.exit_code", "task.stopped_reason", "task.first_end"),
    *("task.stop_category", "task.stop_code", "task.out_of_memory", "container.name"),
    "task.likely_out_of_memory",
)
_FAILED_OUTCOMES = (OUT_OF_MEMORY, "failure")


class FailedRun(Struct, frozen=True, kw_only=True):
    """The newest failed run of a family in the night. ``ended_at`` is RFC 3339."""

    outcome: str
    family: str
    reason: str | None = None
    ended_at: str | None = None
    url: str | None = None


class NightRuns(Struct, frozen=True, kw_only=True):
    """The runs of a night by outcome and family, the newest family first.

    ``costs`` are those of the families with a known cost. ``reports`` is the number of runs with a
    report, None if it is unknown.
    """

    counts: Mapping[str, Mapping[str, int]]
    failed: tuple[FailedRun, ...] = ()
    costs: Mapping[str, NightCost] = {}
    reports: int | None = None
    completeness: Completeness = WHOLE

    @property
    def cost(self) -> NightCost | None:
        """What the runs cost together; None if no run has a cost."""
        total: NightCost | None = None
        for cost in self.costs.values():
            total = cost.plus(total)
        return total

    def selected(self, globs: Sequence[str]) -> "NightRuns":
        """The runs of the families that the globs select; of all without a glob."""
        counts: dict[str, Mapping[str, int]] = {}
        for outcome, families in self.counts.items():
            names = [family for family in families if matches_any(family, globs)]
            counts[outcome] = {family: families[family] for family in names}
        failed = [run for run in self.failed if matches_any(run.family, globs)]
        priced = [family for family in self.costs if matches_any(family, globs)]
        costs = {family: self.costs[family] for family in priced}
        return replace(self, counts=counts, failed=tuple(failed), costs=costs)

    @property
    def families(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for families in self.counts.values():
            names.update(dict.fromkeys(families))
        return tuple(names)


class MissedTime(Struct, frozen=True, kw_only=True):
    """A due time of a schedule without a task, in the words of its notification."""

    family: str
    message: str


class MissedTimes(Struct, frozen=True, kw_only=True):
    """The missed due times of a night."""

    times: tuple[MissedTime, ...] = ()
    completeness: Completeness = WHOLE


class EarlierRun(Struct, frozen=True, kw_only=True):
    """A run of a family's history. ``peak_mb`` and ``size_mb`` are the container's memory."""

    ended_ns: int
    status: str | None
    duration_ms: float | None
    peak_mb: float | None
    size_mb: float | None
    saving_usd_per_month: float | None


class ResizedCost(Struct, frozen=True, kw_only=True):
    """What runs have cost since ``taskdef resize`` changed their size; ``tag`` names the size
    before.
    """

    tag: str
    size: TaskSize
    usd: float


class FamilyHistory(Struct, frozen=True, kw_only=True):
    """The earlier runs of the night's families, the oldest first, and the costs of resized ones;
    none of a part of them.
    """

    runs: Mapping[str, Sequence[EarlierRun]] = {}
    resized: tuple[ResizedCost, ...] = ()
    completeness: Completeness = WHOLE


class ClusterNight(Struct, frozen=True, kw_only=True):
    """Reads the search cluster, in three requests. Each raises SearchClusterError."""

    cluster: SearchCluster
    prefix: str
    account_id: str | None
    region: str | None
    timeout_seconds: float

    def runs(self, night: Night) -> NightRuns:
        # A task that failed to start has no start.
        did_not_start = {
            "bool": {
                "filter": [_within("@timestamp", night)],
                "must_not": [{"exists": {"field": "event.start"}}],
            }
        }
        in_night = {"bool": {"should": [_within("event.start", night), did_not_start]}}
        body = {"size": 0, "aggs": {"outcomes": _runs_by_outcome()}}
        response, completeness = self._search("reports", body, in_night)
        runs = _night_runs(mapping(field_at(response, "aggregations.outcomes.buckets")))
        return replace(runs, completeness=completeness)

    def missed(self, night: Night) -> MissedTimes:
        """The due times that were missed, and whose task did not come late."""
        body = {
            "size": _MAX_MISSED,
            "sort": _NEWEST,
            "_source": ["notice", "schedule", "task.family"],
        }
        kinds = {"terms": {"notice.kind": ["missed", "late"]}}
        response, completeness = self._search(
            "notices", body, kinds, _within("notice.due_at", night)
        )
        missed: dict[tuple[Json, ...], MissedTime] = {}
        late: set[tuple[Json, ...]] = set()
        for source in hit_sources(response):
            schedule = mapping(source.get("schedule"))
            notice = mapping(source.get("notice"))
            due_time = (schedule.get("group"), schedule.get("name"), notice.get("due_at"))
            if notice.get("kind") == "late":
                late.add(due_time)
            elif notice.get("kind") == "missed":
                missed[due_time] = MissedTime(
                    family=text(field_at(source, "task.family")) or str(schedule.get("name")),
                    message=text(notice.get("message")) or "",
                )
        times = tuple(missed[due_time] for due_time in missed if due_time not in late)
        return MissedTimes(times=times, completeness=completeness)

    def history(self, families: Iterable[str]) -> FamilyHistory:
        """The families' confirmed runs of 35 days, and what resized ones have cost in 30."""
        names = sorted(families)
        if not names:
            return FamilyHistory()
        response, completeness = self._search(
            "reports",
            {"size": 0, "aggs": {"families": _earlier_by_family(len(names))}},
            {"terms": {"task.family": names}},
            {"range": {"@timestamp": {"gte": f"now-{_HISTORY_DAYS}d"}}},
        )
        if not completeness.is_whole:
            return FamilyHistory(completeness=completeness)
        runs: dict[str, Sequence[EarlierRun]] = {}
        costs: list[ResizedCost] = []
        for family in mappings(field_at(response, "aggregations.families.buckets")):
            oldest_first = reversed(list(hit_sources(family.get("newest"))))
            earlier = [_earlier_run(source) for source in oldest_first]
            runs[str(family.get("key"))] = [run for run in earlier if run is not None]
            costs.extend(_resized_costs(field_at(family, "resized.tags.buckets")))
        return FamilyHistory(runs=runs, resized=tuple(costs))

    def _search(
        self, index: str, body: Mapping[str, Json], *conditions: Json
    ) -> tuple[Mapping[str, Json], Completeness]:
        required = list(conditions)
        if index == "reports":
            required.append({"term": {"task.confirmed": True}})
        if self.account_id is not None:
            required.append({"term": {"cloud.account.id": self.account_id}})
        if self.region is not None:
            required.append({"term": {"cloud.region": self.region}})
        proof = {"term": {"task.family": PROOF_FAMILY}}
        query = {"bool": {"filter": required, "must_not": [proof]}}
        searched = f"{self.prefix}-{index}-*"
        try:
            answer = self.cluster.search(searched, {**body, "query": query}, self.timeout_seconds)
        except PartialAnswerError as error:
            return error.answer, Completeness((Gap(place=searched, reason=error.why),))
        return answer, WHOLE


def _within(field: str, night: Night) -> Json:
    bounds = {"gte": format_ms(night.start_ns), "lt": format_ms(night.end_ns)}
    return {"range": {field: bounds}}


def _runs_by_outcome() -> Mapping[str, Json]:
    """The aggregation of runs by outcome and family, the family of the newest run first."""
    newest: Json = {
        "size": 1,
        "sort": _NEWEST,
        "_source": [*_OUTCOME_FIELDS, "event.end", "links.run", "links.logs"],
    }
    families: Json = {
        "terms": {"field": "task.family", "size": _MAX_FAMILIES, "order": {"latest": "desc"}},
        "aggs": {
            "latest": {"max": {"field": "@timestamp"}},
            "newest": {"top_hits": newest},
            "usd": {"sum": {"field": "cost.usd"}},
            "priced": {"value_count": {"field": "cost.usd"}},
            "spot": {"filter": {"bool": {"filter": _PRICED_ON_SPOT}}},
            "reports": {"filter": {"term": {"task.complete": True}}},
        },
    }
    filters: dict[str, Json] = {OUT_OF_MEMORY: RAN_OUT_OF_MEMORY}
    for status in ("failure", "stopped", "success"):
        has_status: Json = {"term": {"task.status": status}}
        filters[status] = {"bool": {"filter": [has_status], "must_not": [RAN_OUT_OF_MEMORY]}}
    return {
        "filters": {"other_bucket_key": "unknown", "filters": filters},
        "aggs": {"families": families},
    }


def _earlier_by_family(count: int) -> Mapping[str, Json]:
    """The aggregation of ``count`` families: their newest runs, and the costs of resized ones."""
    newest: Json = {
        "size": _MAX_EARLIER_RUNS,
        "sort": _NEWEST,
        "_source": [
            "@timestamp",
            "task.status",
            "usage.duration_ms",
            "usage.memory.used_mb.max",
            "usage.memory.size_mb",
            "recommendation.saving_usd_per_month",
        ],
    }
    size_now: Json = {"size": 1, "sort": _NEWEST, "_source": ["task.size"]}
    tags: Json = {
        "terms": {"field": "task.resized_from", "size": _MAX_FAMILIES},
        "aggs": {"usd": {"sum": {"field": "cost.usd"}}, "newest": {"top_hits": size_now}},
    }
    resized: Json = {
        "filter": {"range": {"@timestamp": {"gte": f"now-{_SAVED_DAYS}d"}}},
        "aggs": {"tags": tags},
    }
    return {
        "terms": {"field": "task.family", "size": count},
        "aggs": {"newest": {"top_hits": newest}, "resized": resized},
    }


def _night_runs(outcomes: Mapping[str, Json]) -> NightRuns:
    """The runs in the buckets of the outcomes."""
    counts: dict[str, dict[str, int]] = {}
    failed: list[FailedRun] = []
    costs: dict[str, NightCost] = {}
    reports = 0
    for outcome, bucket in outcomes.items():
        families = counts.setdefault(outcome, {})
        for family in mappings(field_at(bucket, "families.buckets")):
            name = str(family.get("key"))
            families[name] = int(number(family.get("doc_count")) or 0)
            reports += int(number(field_at(family, "reports.doc_count")) or 0)
            if number(field_at(family, "priced.value")):
                usd = number(field_at(family, "usd.value")) or 0.0
                is_least = bool(number(field_at(family, "spot.doc_count")))
                costs[name] = NightCost(usd=usd, is_least=is_least).plus(costs.get(name))
            if outcome in _FAILED_OUTCOMES:
                for source in hit_sources(family.get("newest")):
                    failed.append(_failed_run(outcome, name, source))
    failed.sort(key=_outcome_order)
    return NightRuns(counts=counts, failed=tuple(failed), costs=costs, reports=reports)


def _outcome_order(run: FailedRun) -> int:
    return _FAILED_OUTCOMES.index(run.outcome)


def _failed_run(outcome: str, family: str, source: Mapping[str, Json]) -> FailedRun:
    return FailedRun(
        outcome=outcome,
        family=family,
        reason=document_outcome(
            mapping(source.get("task")), text(field_at(source, "container.name"))
        ).sentence,
        ended_at=text(field_at(source, "event.end")),
        url=text(field_at(source, "links.run")) or text(field_at(source, "links.logs")),
    )


def _earlier_run(source: Mapping[str, Json]) -> EarlierRun | None:
    ended_ns = parse_ns(source.get("@timestamp"))
    if ended_ns is None:
        return None
    return EarlierRun(
        ended_ns=ended_ns,
        status=text(field_at(source, "task.status")),
        duration_ms=number(field_at(source, "usage.duration_ms")),
        peak_mb=number(field_at(source, "usage.memory.used_mb.max")),
        size_mb=number(field_at(source, "usage.memory.size_mb")),
        saving_usd_per_month=number(field_at(source, "recommendation.saving_usd_per_month")),
    )


def _resized_costs(buckets: Json) -> Iterable[ResizedCost]:
    for bucket in mappings(buckets):
        for source in hit_sources(bucket.get("newest")):
            size = TaskSize(
                vcpu=number(field_at(source, "task.size.vcpu")),
                memory_mb=number(field_at(source, "task.size.memory_mb")),
            )
            usd = number(field_at(bucket, "usd.value")) or 0.0
            yield ResizedCost(tag=str(bucket.get("key")), size=size, usd=usd)


def ended_lines(client: AwsClient, group: str, night: Night) -> Iterator[tuple[int, str]]:
    """The ``task.ended`` lines since the night began, with the time in milliseconds of each.

    Lines in streams that are not the function's do not count. Raises ReadError.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # slow to import

    pages = client.get_paginator("filter_log_events").paginate(
        logGroupName=group,
        startTime=night.start_ns // NS_PER_MS,
        filterPattern=f'{{ $.type = "{LINE_TYPE}" }}',
    )
    try:
        for page in pages:
            for event in page.get("events", ()):
                if is_lambda_stream(group, event["logStreamName"]):
                    yield event["timestamp"], event["message"]
    except (ClientError, BotoCoreError) as error:
        raise ReadError(
            f"The log group {group} of task_stopped cannot be read ({error_code(error)}): check "
            "that the function's role has the permission logs:FilterLogEvents on it."
        ) from error


def runs_of_lines(lines: Iterable[tuple[int, str]], night: Night) -> NightRuns:
    """The night's runs of ``task.ended`` lines, each with the time in milliseconds at which it was
    written. A task that was printed twice counts once.
    """
    runs: dict[str, EndedRunDetail] = {}
    for written_ms, line in lines:
        run = decoded(_DECODER.decode, line)
        if run is None:
            continue
        began_ns = parse_ns(run.started_at) or written_ms * NS_PER_MS
        if night.start_ns <= began_ns < night.end_ns and run.family != PROOF_FAMILY:
            runs[run.task_id] = run
    outcomes: list[tuple[str, str]] = []
    failed: dict[tuple[str, str], FailedRun] = {}
    for run in reversed(runs.values()):
        outcome = _line_outcome(run).group
        outcomes.append((outcome, run.family))
        if outcome in _FAILED_OUTCOMES:
            failed.setdefault((outcome, run.family), _failed_line(outcome, run))
    costs: dict[str, NightCost] = {}
    for run in runs.values():
        if run.cost is not None and run.cost.usd is not None:
            cost = NightCost(usd=run.cost.usd, is_least=is_on_spot(run.cost))
            costs[run.family] = cost.plus(costs.get(run.family))
    return NightRuns(
        counts=count_runs(outcomes),
        failed=tuple(sorted(failed.values(), key=_outcome_order)),
        costs=costs,
        reports=sum(_has_report(run) for run in runs.values()),
    )


def _failed_line(outcome: str, run: EndedRunDetail) -> FailedRun:
    url = None
    if run.links is not None:
        url = run.links.kibana or run.links.log_stream
    return FailedRun(
        outcome=outcome,
        family=run.family,
        reason=run.outcome_sentence or _line_outcome(run).sentence,
        ended_at=run.finished_at,
        url=url,
    )


def _line_outcome(run: EndedRunDetail) -> Outcome:
    """How the run of a line ended."""
    return document_outcome(
        {
            "outcome": run.outcome,
            "status": run.status,
            "exit_code": run.exit_code,
            "stop_category": run.stop_category,
            "stopped_reason": run.stopped_reason,
        },
        run.container,
    )


def _has_report(run: EndedRunDetail) -> bool:
    """Whether the line has a report's numbers: without one, only the duration is known."""
    return run.metrics is not None and run.metrics.billed_duration_ms is not None
