"""Reads a night from the search cluster, in four requests.

A task can have a document of each of its containers. The one of the batch has the event's word for
the end, ``task.event_outcome``, and decides; without it, the worst end of the task's containers.
Each task counts once: cardinalities of sets that contain each other are subtracted. Of a job of
AWS Batch, the last attempt counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate

from msgspec import Struct

from profiler.core.completeness import Completeness, joined
from profiler.core.json_fields import Json, field_at, mapping, mappings, positive_number, text
from profiler.core.optional_math import (
    first_known,
    known,
    known_members,
    known_values,
    min_known,
    product,
)
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND, format_ms, parse_ns
from profiler.forwarder.night_period import MAX_REMEMBERED, NightPeriod
from profiler.forwarder.night_runs import (
    FAILED_OUTCOMES,
    EarlierRun,
    FailedRun,
    FamilyHistory,
    MissedTime,
    MissedTimes,
    NightRuns,
    ResizedCost,
)
from profiler.forwarder.search_cluster.interface import SearchCluster, hit_sources
from profiler.record.event_end import document_outcome
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.measured import UNKNOWN, Measured, measured
from profiler.record.record_model import TaskSize
from profiler.record.run_outcome import OUT_OF_MEMORY
from profiler.record.search_document_fields import RAN_OUT_OF_MEMORY
from profiler.record.spot_price import FARGATE_SPOT

# Named, and compared with their past. The rest is counted.
_MAX_FAMILIES = 200
_MAX_MISSED = 1000
_MAX_REPEATED_JOBS = 10_000
# Below it, a cardinality is nearly exact: of 10,000 tasks, it can be off by some.
_EXACT_TASKS = 40_000
_EXACT_TASKS_OF_FAMILY = 1000
# Of each family. More runs are no better evidence of what is usual.
_MAX_EARLIER_RUNS = 40
_HISTORY_DAYS = 35
_SAVED_DAYS = 30
_MAPPED_FILES = "usage.memory.mapped_file_mb.max"
_NEWEST: Json = [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}]
_PRICED_ON_SPOT: Json = [
    {"term": {"task.capacity_provider": FARGATE_SPOT}},
    {"exists": {"field": "cost.usd"}},
]
_OUTCOME_FIELDS = (
    *("task.outcome", "task.status", "task.exit_code", "task.stopped_reason", "task.first_end"),
    *("task.stop_category", "task.stop_code", "task.out_of_memory", "container.name"),
    *("task.likely_out_of_memory", "task.gpu_error"),
)
# The worst first. What is in none of them is unknown.
_GROUPS = (*FAILED_OUTCOMES, "stopped", "success")
_UNKNOWN = "unknown"
# ECS's name for the tasks of a service begins with it.
_OF_SERVICE: Json = {"prefix": {"task.started_by": "ecs-svc/"}}
_RUNNING: Json = {"term": {"task.status": "running"}}
# By Batch's events: it makes another attempt.
_REPEATED: Json = {
    "bool": {
        "filter": [{"term": {"task.repeated": True}}],
        "must_not": [{"term": {"task.last_attempt": True}}],
    }
}
_DECIDES: Json = {
    "bool": {
        "filter": [{"exists": {"field": "task.event_outcome"}}],
        "must_not": [{"term": {"task.event_outcome": _UNKNOWN}}],
    }
}

_CONFIRMED: Json = {"term": {"task.confirmed": True}}
# ECS's event is there, and knows the run. Only the numbers are those of a stream that nothing
# vouches for.
_CONFIRMED_BUT_FOR_ITS_NUMBERS: Json = {
    "bool": {
        "filter": [
            {"exists": {"field": "task.event_outcome"}},
            {"exists": {"field": "task.voucher"}},
        ]
    }
}


class ClusterNight(Struct, frozen=True, kw_only=True):
    """Reads the confirmed runs of the families that ``globs`` select, all without one. A run of
    ECS's event whose numbers nothing confirms counts, without its cost. Each method raises
    SearchClusterError.
    """

    cluster: SearchCluster
    prefix: str
    account_id: str | None
    region: str | None
    timeout_seconds: float
    globs: Sequence[str] = ()
    with_services: bool = False

    def runs(self, period: NightPeriod) -> NightRuns:
        known_since = _became_known(period, period.late_ns, period.arrived_from_ns)
        is_new: Json = {
            "bool": {
                "filter": [known_since],
                "must_not": [{"terms": {"task.id": list(period.last.tasks)}}],
            }
        }
        # An attempt that is repeated counts once it turns out to be the last one.
        late: Json = {
            "bool": {
                "filter": [
                    _became_known(period, period.remembered_from_ns, period.remembered_from_ns)
                ],
                "must_not": [_REPEATED],
            }
        }
        repeated, of_attempts = self._repeated(period)
        ends: Json = {
            "terms": {
                "field": "task.id",
                "size": MAX_REMEMBERED + 1,
                "order": [{"end": "desc"}, {"_key": "asc"}],
            },
            "aggs": {"end": {"max": {"field": "@timestamp"}}},
        }
        body = {
            "size": 0,
            "aggs": {
                "night": {"filter": is_new, "aggs": _of_night(repeated, period.start_ns)},
                "remembered": {"filter": late, "aggs": {"tasks": ends}},
            },
        }
        conditions = (
            _any_of([known_since, late]),
            _any_of([_CONFIRMED, _CONFIRMED_BUT_FOR_ITS_NUMBERS]),
        )
        since_ns = min(period.late_ns, period.oldest_ns)
        response, completeness = self._search("reports", body, *conditions, since_ns=since_ns)
        whole = joined((completeness, of_attempts))
        return _night_runs(mapping(response.get("aggregations")), period, whole)

    def _repeated(self, period: NightPeriod) -> tuple[Sequence[Json], Completeness]:
        """The conditions that each match attempts of jobs after which Batch made another one."""
        jobs: Json = {
            "terms": {"field": "batch.job_id", "size": _MAX_REPEATED_JOBS},
            "aggs": {
                "last": {"max": {"field": "batch.attempt"}},
                "repeated": {
                    "filter": _REPEATED,
                    "aggs": {"last": {"max": {"field": "batch.attempt"}}},
                },
            },
        }
        response, completeness = self._search(
            "reports",
            {"size": 0, "aggs": {"jobs": jobs}},
            _became_known(period, period.late_ns, period.late_ns),
            _any_of([{"range": {"batch.attempt": {"gte": 2}}}, _REPEATED]),
            since_ns=min(period.late_ns, period.oldest_ns),
        )
        by_last: dict[int, list[str]] = {}
        for bucket in mappings(field_at(response, "aggregations.jobs.buckets")):
            # The next one of a repeated attempt may still run.
            next_one = round(positive_number(field_at(bucket, "repeated.last.value")) or 0) + 1
            last = max(round(positive_number(field_at(bucket, "last.value")) or 0), next_one)
            by_last.setdefault(last, []).append(str(bucket.get("key")))
        conditions: list[Json] = [
            {
                "bool": {
                    "filter": [
                        {"terms": {"batch.job_id": names}},
                        {"range": {"batch.attempt": {"lt": last}}},
                    ]
                }
            }
            for last, names in sorted(by_last.items())
        ]
        return conditions, completeness

    def missed(self, period: NightPeriod) -> MissedTimes:
        """The due times of which it became known that they were missed, and whose task did not
        come late.
        """
        body = {
            "size": _MAX_MISSED,
            "sort": _NEWEST,
            "_source": ["notice", "schedule", "task.family"],
            "aggs": {"missed": {"filter": {"term": {"notice.kind": "missed"}}}},
        }
        kinds = {"terms": {"notice.kind": ["missed", "late"]}}
        told = _within("@timestamp", period.late_ns, period.end_ns)
        response, completeness = self._search("notices", body, kinds, told, since_ns=period.late_ns)
        missed: dict[str, MissedTime] = {}
        late: set[str] = set()
        for source in hit_sources(response):
            schedule = mapping(source.get("schedule"))
            notice = mapping(source.get("notice"))
            named = schedule.get("group"), schedule.get("name"), notice.get("due_at")
            due_time = "/".join(str(part) for part in named)
            if notice.get("kind") == "late":
                late.add(due_time)
            elif notice.get("kind") == "missed":
                missed[due_time] = MissedTime(
                    family=text(field_at(source, "task.family")) or str(schedule.get("name")),
                    message=text(notice.get("message")) or "",
                )
        found = int(positive_number(field_at(response, "aggregations.missed.doc_count")) or 0)
        told_before = late.union(period.last.due_times)
        return MissedTimes(
            times=tuple(missed[due_time] for due_time in missed if due_time not in told_before),
            others=max(0, found - len(missed)),
            remembered=tuple(missed),
            completeness=completeness,
        )

    def history(self, families: Iterable[str]) -> FamilyHistory:
        """The families' confirmed runs of 35 days, and what resized ones have cost in 30."""
        names = sorted(families)
        if not names:
            return FamilyHistory()
        response, completeness = self._search(
            "reports",
            {"size": 0, "aggs": {"families": _earlier_by_family(len(names))}},
            _CONFIRMED,
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
            runs[str(family.get("key"))] = known_values(earlier)
            costs.extend(_resized_costs(field_at(family, "resized.tags.buckets")))
        return FamilyHistory(runs=runs, resized=tuple(costs))

    def _search(
        self,
        index: str,
        body: Mapping[str, Json],
        *conditions: Json,
        since_ns: int | None = None,
    ) -> tuple[Mapping[str, Json], Completeness]:
        since = None
        if since_ns is not None:
            since = datetime.fromtimestamp(since_ns / NS_PER_SECOND, UTC)
        required = list(conditions)
        excluded: list[Json] = [{"term": {"task.family": PROOF_FAMILY}}]
        if index == "reports":
            excluded.append(_RUNNING)
            if not self.with_services:
                excluded.append(_OF_SERVICE)
        place = {"cloud.account.id": self.account_id, "cloud.region": self.region}
        required += [{"term": {field: value}} for field, value in known_members(place).items()]
        if self.globs:
            required.append(_any_of([_family_like(glob) for glob in self.globs]))
        query = {"bool": {"filter": required, "must_not": excluded}}
        return self.cluster.search_part(
            f"{self.prefix}-{index}-*", {**body, "query": query}, self.timeout_seconds, since
        )


def _any_of(conditions: Sequence[Json]) -> Json:
    return {"bool": {"should": list(conditions), "minimum_should_match": 1}}


def _family_like(glob: str) -> Json:
    """The condition that a shell pattern matches the family, as ``matches_any`` has it."""
    pattern = ""
    at = 0
    while at < len(glob):
        one = glob[at]
        end = glob.find("]", at + 2) if one == "[" else -1
        if one == "*":
            pattern += ".*"
        elif one == "?":
            pattern += "."
        elif end > 0:
            inside = glob[at + 1 : end]
            negation = "^" if inside.startswith("!") else ""
            pattern += f"[{negation}{_escaped(inside.removeprefix('!'), kept='-')}]"
            at = end
        else:
            pattern += _escaped(one)
        at += 1
    return {"regexp": {"task.family": {"value": pattern, "flags": "NONE"}}}


def _escaped(literal: str, *, kept: str = "") -> str:
    """The text for a regular expression of Lucene."""
    return "".join(one if one.isalnum() or one in {"_", *kept} else f"\\{one}" for one in literal)


def _within(field: str, start_ns: int, end_ns: int) -> Json:
    return {"range": {field: {"gte": format_ms(start_ns), "lt": format_ms(end_ns)}}}


def _ended_within(start_ns: int, end_ns: int) -> Json:
    """A task that failed to start has no end of a container."""
    without_end: Json = {
        "bool": {
            "filter": [_within("@timestamp", start_ns, end_ns)],
            "must_not": [{"exists": {"field": "event.end"}}],
        }
    }
    return _any_of([_within("event.end", start_ns, end_ns), without_end])


def _became_known(period: NightPeriod, from_ns: int, arrived_ns: float) -> Json:
    """What ended from then on, or ended before and arrived from ``arrived_ns`` on."""
    ended = _ended_within(from_ns, period.end_ns)
    if arrived_ns >= period.end_ns or from_ns <= period.oldest_ns:
        return ended
    arrived: Json = {
        "bool": {
            "filter": [
                _within("event.ingested", round(arrived_ns), period.end_ns),
                _ended_within(period.oldest_ns, from_ns),
            ]
        }
    }
    return _any_of([ended, arrived])


def _of_night(repeated: Sequence[Json], start_ns: int) -> Mapping[str, Json]:
    """The aggregations of the period's documents: what all tasks have cost, and the number of those
    that were not repeated, of all and of each family, the families with killed and failed ones
    first. What a repeated attempt has cost is in the message of its own end.
    """
    newest: Json = {
        "size": 1,
        "sort": _NEWEST,
        "_source": [*_OUTCOME_FIELDS, "event.end", "links.run", "links.logs"],
    }
    failed: dict[str, Json] = {
        f"newest {group}": {"filter": _in_group(group), "aggs": {"newest": {"top_hits": newest}}}
        for group in FAILED_OUTCOMES
    }
    order = [*({name: "desc"} for name in failed), {"latest": "desc"}, {"_key": "asc"}]
    counts: Mapping[str, Json] = {
        **_task_counts(_EXACT_TASKS),
        "families": {"cardinality": {"field": "task.family", "precision_threshold": _EXACT_TASKS}},
        "reports": _tasks({"term": {"task.complete": True}}, _EXACT_TASKS),
        "by_family": {
            "terms": {"field": "task.family", "size": _MAX_FAMILIES, "order": order},
            "aggs": {
                **_task_counts(_EXACT_TASKS_OF_FAMILY),
                **failed,
                "latest": {"max": {"field": "@timestamp"}},
            },
        },
    }
    was_paid: Json = {
        "bool": {
            "filter": [
                {"term": {"task.repeated": True}},
                {"range": {"event.end": {"lt": format_ms(start_ns)}}},
            ]
        }
    }
    with_usage: Json = {
        "filter": {"bool": {"filter": [_CONFIRMED], "must_not": [was_paid]}},
        "aggs": {
            "usd": {"sum": {"field": "cost.usd"}},
            "priced": {"value_count": {"field": "cost.usd"}},
            "spot": {"filter": {"bool": {"filter": _PRICED_ON_SPOT}}},
        },
    }
    is_last: Json = {"bool": {"must_not": list(repeated)}} if repeated else {"match_all": {}}
    return {"measured": with_usage, "last": {"filter": is_last, "aggs": counts}}


def _in_group(group: str) -> Json:
    if group == OUT_OF_MEMORY:
        return RAN_OUT_OF_MEMORY
    has_status: Json = {"term": {"task.status": group}}
    return {"bool": {"filter": [has_status], "must_not": [RAN_OUT_OF_MEMORY]}}


def _task_counts(exact: int) -> Mapping[str, Json]:
    """The tasks: all, those with a document that decides, and for each group those with one, or
    with such a document, in it or in a worse group.
    """
    counts: dict[str, Json] = {
        "all": _tasks({"match_all": {}}, exact),
        "decided": _tasks(_DECIDES, exact),
    }
    for groups in accumulate((group,) for group in _GROUPS):
        within = _any_of([_in_group(group) for group in groups])
        both: Json = {"bool": {"filter": [_DECIDES, within]}}
        counts[f"decided {groups[-1]}"] = _tasks(both, exact)
        counts[f"any {groups[-1]}"] = _tasks(_any_of([_DECIDES, within]), exact)
    return counts


def _tasks(condition: Json, exact: int) -> Json:
    tasks = {"field": "task.id", "precision_threshold": exact}
    return {"filter": condition, "aggs": {"tasks": {"cardinality": tasks}}}


def _number_of_tasks(bucket: Mapping[str, Json], name: str) -> int:
    """The estimated tasks, of which each has a document."""
    counted = mapping(bucket.get(name))
    tasks = positive_number(field_at(counted, "tasks.value"))
    return int(min_known(tasks, positive_number(counted.get("doc_count"))) or 0)


def _tasks_by_group(bucket: Mapping[str, Json]) -> Mapping[str, int]:
    """The tasks of each group by the counts of ``_task_counts``."""
    counts: dict[str, int] = {}
    decided = _number_of_tasks(bucket, "decided")
    before = 0
    for group in _GROUPS:
        undecided = max(0, _number_of_tasks(bucket, f"any {group}") - decided)
        within = _number_of_tasks(bucket, f"decided {group}") + undecided
        counts[group] = max(0, within - before)
        before = max(before, within)
    counts[_UNKNOWN] = max(0, _number_of_tasks(bucket, "all") - before)
    return counts


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
            _MAPPED_FILES,
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


def _night_runs(
    aggregations: Mapping[str, Json], period: NightPeriod, completeness: Completeness
) -> NightRuns:
    whole = mapping(aggregations.get("night"))
    night = mapping(whole.get("last"))
    totals = _tasks_by_group(night)
    buckets = [*mappings(field_at(night, "by_family.buckets"))]
    buckets.sort(key=lambda bucket: -(positive_number(field_at(bucket, "latest.value")) or 0))
    counts: dict[str, dict[str, int]] = {}
    failed: list[FailedRun] = []
    for bucket in buckets:
        family = str(bucket.get("key"))
        for group, tasks in _tasks_by_group(bucket).items():
            if not tasks:
                continue
            counts.setdefault(group, {})[family] = tasks
            for source in hit_sources(field_at(bucket, f"newest {group}.newest")):
                failed.append(_failed_run(group, family, source))
    named = {group: sum(families.values()) for group, families in counts.items()}
    others = {group: tasks - named.get(group, 0) for group, tasks in totals.items()}
    other_families = int(positive_number(field_at(night, "families.value")) or 0) - len(buckets)
    cost: Measured = UNKNOWN
    with_usage = mapping(whole.get("measured"))
    if positive_number(field_at(with_usage, "priced.value")):
        usd = positive_number(field_at(with_usage, "usd.value")) or 0.0
        cost = measured(usd, is_least=bool(positive_number(field_at(with_usage, "spot.doc_count"))))
    ends = mappings(field_at(aggregations, "remembered.tasks.buckets"))
    return NightRuns(
        counts=counts,
        others={group: tasks for group, tasks in others.items() if tasks > 0},
        other_families=max(0, other_families),
        failed=tuple(sorted(failed, key=lambda run: run.order)),
        cost=cost,
        reports=_number_of_tasks(night, "reports"),
        remembered=tuple(_remembered(end, period) for end in ends),
        completeness=completeness,
    )


def _remembered(bucket: Mapping[str, Json], period: NightPeriod) -> tuple[str, int]:
    """A task and its end."""
    ended_ms = positive_number(field_at(bucket, "end.value"))
    ended_ns = first_known(product(known(round, ended_ms), NS_PER_MS), period.end_ns)
    return str(bucket.get("key")), ended_ns


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
        duration_ms=positive_number(field_at(source, "usage.duration_ms")),
        peak_mb=positive_number(field_at(source, "usage.memory.used_mb.max")),
        size_mb=positive_number(field_at(source, "usage.memory.size_mb")),
        saving_usd_per_month=positive_number(
            field_at(source, "recommendation.saving_usd_per_month")
        ),
        counts_files=field_at(source, _MAPPED_FILES) is None,
    )


def _resized_costs(buckets: Json) -> Iterable[ResizedCost]:
    for bucket in mappings(buckets):
        for source in hit_sources(bucket.get("newest")):
            size = TaskSize(
                vcpu=positive_number(field_at(source, "task.size.vcpu")),
                memory_mb=positive_number(field_at(source, "task.size.memory_mb")),
            )
            usd = positive_number(field_at(bucket, "usd.value")) or 0.0
            yield ResizedCost(tag=str(bucket.get("key")), size=size, usd=usd)
