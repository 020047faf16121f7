"""Reads a night from the search cluster, in four to six requests.

A task can have a document of each of its containers. The one of the batch has the event's word for
the end, ``task.event_outcome``, and decides; without it, the worst end of the task's containers.
Each task counts once: cardinalities of sets that contain each other are subtracted. Of a job of
AWS Batch, the last attempt counts.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Final

from msgspec import Struct

from profiler.core.completeness import WHOLE, Completeness, joined_completeness
from profiler.core.json_fields import (
    Json,
    field_at,
    mapping_or_empty,
    mappings_in_list,
    positive_number,
    text_or_none,
)
from profiler.core.optional_math import known_values, min_known
from profiler.core.timestamps import NS_PER_DAY, NS_PER_SECOND, format_ms, parse_ns
from profiler.forwarder.document_updates import JOB_DATASET
from profiler.forwarder.night_period import MAX_PERIOD_NS, MAX_REMEMBERED, NightPeriod
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
from profiler.forwarder.search_cluster.bulk_client import SearchCluster, hit_sources
from profiler.record.ecs_event_outcome import document_outcome
from profiler.record.family_identity import PROOF_FAMILY, matches_any
from profiler.record.family_statistics import USUAL_DAYS
from profiler.record.measured import UNKNOWN, Measured, measured_from
from profiler.record.query_clauses import (
    ACCOUNT,
    ATTEMPT,
    CONTAINER,
    COST_USD,
    DURATION_MS,
    FAMILY,
    IN_TRUSTED_GROUP,
    IS_CONFIRMED,
    IS_SUCCESS,
    JOB_ID,
    MAPPED_FILES_MB,
    MEMORY_PEAK_MB,
    NEWEST_FIRST,
    RAN_OUT_OF_MEMORY,
    REGION,
    STATUS,
    TASK_ID,
    TIME,
    JsonObject,
    all_of,
    any_of,
    begins_with,
    exists,
    in_range,
    none_of,
    of_last_days,
    one_of,
    place_conditions,
    term,
)
from profiler.record.record_model import TaskSize
from profiler.record.run_outcome import OUT_OF_MEMORY
from profiler.record.spot_price import FARGATE_SPOT

# Named, and compared with their past. The rest is counted.
_MAX_FAMILIES = 200
_MAX_MISSED = 1000
_MAX_REPEATED_JOBS = 10_000
_MAX_LATE = 10_000
# Below it, a cardinality is nearly exact: of 10,000 tasks, it can be off by some.
_EXACT_TASKS = 40_000
# Of a family, in 16 KiB each.
_EXACT_TASKS_OF_FAMILY = 3000
_EXACT_CONTAINERS = 100
# Of each family. More runs are no better evidence of what is usual.
_MAX_EARLIER_RUNS = 40
_SAVED_DAYS = 30
_PRICED_ON_SPOT: Final = all_of([term("task.capacity_provider", FARGATE_SPOT), exists(COST_USD)])
_OUTCOME_FIELDS = (
    *("task.outcome", "task.status", "task.exit_code", "task.stopped_reason", "task.first_end"),
    *("task.stop_category", "task.stop_code", "task.out_of_memory", "container.name"),
    *("task.likely_out_of_memory", "task.gpu_error"),
)
# The worst first. What is in none of them is unknown.
_GROUPS = (*FAILED_OUTCOMES, "stopped", "success")
_UNKNOWN = "unknown"
# ECS's name for the tasks of a service begins with it.
_OF_SERVICE: Final = begins_with("task.started_by", "ecs-svc/")
_RUNNING: Final = term(STATUS, "running")
# By Batch's events: it makes another attempt.
_WAS_REPEATED: Final = term("task.repeated", value=True)
_IS_LAST_ATTEMPT: Final = term("task.last_attempt", value=True)
_REPEATED: Final = all_of([_WAS_REPEATED], but_none_of=[_IS_LAST_ATTEMPT])
# Failed attempts of jobs of which Batch has not spoken yet: only it knows how many attempts a job
# has.
_UNJUDGED: Final = all_of(
    [exists(ATTEMPT)], but_none_of=[exists("batch.allowed_attempts"), IS_SUCCESS]
)
_HAS_EVENT: Final = exists("task.event_outcome")
_DECIDES: Final = all_of([_HAS_EVENT], but_none_of=[term("task.event_outcome", _UNKNOWN)])
# ECS's event is there, and knows the run. Only the numbers are those of a stream that nothing
# vouches for.
_CONFIRMED_BUT_FOR_ITS_NUMBERS: Final = all_of([_HAS_EVENT, exists("task.voucher")])
# What Batch alone has told.
_OF_JOB_ALONE: Final = term("event.dataset", JOB_DATASET)
# What counts as a run.
_IS_RUN: Final = any_of([IS_CONFIRMED, _CONFIRMED_BUT_FOR_ITS_NUMBERS])


class _LateTasks(Struct, frozen=True, kw_only=True):
    """The conditions that each match attempts of jobs after which Batch made another one, and the
    tasks that became known in the period's last minutes, without those that wait; ``newest`` is
    their number with them, one more than can be remembered at most.
    ``jobs``: those that the message tells and that may have another attempt; ``seen_jobs``: the
    same of a message without the last minutes.
    ``late``: the tasks that stopped before the last message, without repeated attempts.
    ``unconfirmed``: the number of tasks with a report and without a word of ECS.
    """

    repeated: Sequence[JsonObject]
    tasks: tuple[str, ...]
    newest: int
    jobs: tuple[str, ...]
    seen_jobs: tuple[str, ...]
    late: tuple[str, ...]
    unconfirmed: int
    completeness: Completeness


class _ScheduleNotices(Struct):
    """The notices of missed and of late tasks, by their due time.

    ``families``: those of a missed task that the message is about. ``late``: the families whose
    task came after its due time was said to be missed. ``newest``: the missed due times that became
    known in the period's last minutes.
    """

    missed: dict[str, MissedTime] = {}
    families: dict[str, frozenset[str]] = {}
    late: dict[str, frozenset[str]] = {}
    newest: list[str] = []

    def add_notice(
        self, source: Mapping[str, Json], globs: Sequence[str], seen_until_ns: int
    ) -> None:
        """Add a notice, which is not about the families that ``globs`` leave out."""
        schedule = mapping_or_empty(source.get("schedule"))
        notice = mapping_or_empty(source.get("notice"))
        named = schedule.get("group"), schedule.get("name"), notice.get("due_at")
        due_time = "/".join(str(part) for part in named)
        started = _texts(field_at(source, "task.family")) or (str(schedule.get("name")),)
        if notice.get("kind") == "late":
            self.late[due_time] = self.late.get(due_time, frozenset()).union(started)
        elif notice.get("kind") == "missed":
            selected = frozenset(family for family in started if matches_any(family, globs))
            self.families[due_time] = selected or frozenset(started)
            self.missed[due_time] = MissedTime(
                family=", ".join(started), message=text_or_none(notice.get("message")) or ""
            )
            if (parse_ns(source.get("@timestamp")) or 0) >= seen_until_ns:
                self.newest.append(due_time)

    def came_late(self, due_time: str) -> bool:
        """Whether the tasks of all families came: of several targets of a rule, one may have."""
        return self.families[due_time] <= self.late.get(due_time, frozenset())


class NightReader(Struct, frozen=True, kw_only=True):
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

    def read_runs(self, period: NightPeriod) -> NightRuns:
        found = self._read_late_tasks(period)
        until_ns = period.counting_end_ns(found.newest)
        is_whole = until_ns == period.end_ns
        counted, of_counted = self._tasks_counted_before(found.late, period)
        is_new = none_of([one_of(TASK_ID, [*period.last.tasks, *counted])])
        # What Batch has said since does not change what the next message is told.
        told_jobs = found.jobs if is_whole else found.seen_jobs
        is_told = [one_of(TASK_ID, found.tasks), one_of(JOB_ID, told_jobs)]
        repeated = all_of([_REPEATED], but_none_of=is_told)
        was_told = one_of(JOB_ID, period.last.jobs)
        aggregations = _night_aggregations([*found.repeated, repeated, was_told], period)
        body = {"size": 0, "aggs": {"night": {"filter": is_new, "aggs": aggregations}}}
        became_known = _counted_runs_condition(period, found.tasks if is_whole else None)
        response, completeness = self._search(
            "reports", body, became_known, _IS_RUN, since_ns=_oldest_index_ns(period)
        )
        return _night_runs(
            mapping_or_empty(field_at(response, "aggregations.night")),
            remembered=found.tasks if is_whole else (),
            told_jobs=told_jobs,
            until_ns=until_ns,
            unconfirmed=found.unconfirmed,
            completeness=joined_completeness((completeness, found.completeness, of_counted)),
        )

    def _tasks_counted_before(
        self, late: Sequence[str], period: NightPeriod
    ) -> tuple[tuple[str, ...], Completeness]:
        """Those of the tasks that another container's document had made known before the period,
        such as where a redriven event wrote the second one.
        """
        if not late:
            return (), WHOLE
        tasks: JsonObject = {"terms": {"field": TASK_ID, "size": _MAX_LATE}}
        response, completeness = self._search(
            "reports",
            {"size": 0, "aggs": {"tasks": tasks}},
            _known_between(period.known_from_ns - MAX_PERIOD_NS, period.known_from_ns),
            _IS_RUN,
            one_of(TASK_ID, late),
        )
        return _bucket_task_ids(
            mappings_in_list(field_at(response, "aggregations.tasks.buckets"))
        ), completeness

    def _read_late_tasks(self, period: NightPeriod) -> _LateTasks:
        """What must be known before the runs are counted."""
        body = {"size": 0, "aggs": _late_task_aggregations(period)}
        became_known = _known_between(period.known_from_ns, period.end_ns)
        response, completeness = self._search(
            "reports", body, became_known, since_ns=_oldest_index_ns(period)
        )
        jobs = [*mappings_in_list(field_at(response, "aggregations.attempts.jobs.buckets"))]
        newest = [*mappings_in_list(field_at(response, "aggregations.newest.tasks.buckets"))]
        return _LateTasks(
            repeated=_repeated_attempt_conditions(jobs),
            jobs=_jobs_to_tell(jobs, "repeated", "waiting"),
            seen_jobs=_jobs_to_tell(jobs, "repeated", "waiting", "newest"),
            tasks=_bucket_task_ids(newest),
            newest=len(newest),
            late=_bucket_task_ids(
                mappings_in_list(field_at(response, "aggregations.late.tasks.buckets"))
            ),
            unconfirmed=_unconfirmed_tasks(mapping_or_empty(response.get("aggregations"))),
            completeness=completeness,
        )

    def read_missed_times(self, period: NightPeriod) -> MissedTimes:
        """The due times of which it became known that they were missed, and whose task did not
        come late.
        """
        until_ns = period.end_ns
        response, completeness = self._read_missed_notices(period, until_ns)
        newest = field_at(response, "aggregations.newest.doc_count")
        if (positive_number(newest) or 0) > _MAX_MISSED:
            until_ns = period.seen_until_ns
            response, completeness = self._read_missed_notices(period, until_ns)
        notices = _ScheduleNotices()
        for source in hit_sources(response):
            notices.add_notice(source, self.globs, period.seen_until_ns)
        found = int(positive_number(field_at(response, "aggregations.missed.doc_count")) or 0)
        told_before = set(period.last.due_times)
        # Of more than were read, those of the last message are the oldest.
        unread = found - len(notices.missed) - len(told_before - notices.missed.keys())
        return MissedTimes(
            times=tuple(
                time
                for due_time, time in notices.missed.items()
                if due_time not in told_before and not notices.came_late(due_time)
            ),
            others=max(0, unread),
            remembered=tuple(notices.newest),
            until_ns=until_ns,
            completeness=completeness,
        )

    def _read_missed_notices(
        self, period: NightPeriod, until_ns: int
    ) -> tuple[Mapping[str, Json], Completeness]:
        """The notices that the last message does not have, the newest first."""
        body = {
            "size": _MAX_MISSED,
            "sort": NEWEST_FIRST,
            "_source": ["@timestamp", "notice", "schedule", "task.family"],
            "aggs": {
                "missed": {"filter": term("notice.kind", "missed")},
                "newest": {"filter": _time_condition(TIME, period.seen_until_ns, until_ns)},
            },
        }
        kinds = one_of("notice.kind", ["missed", "late"])
        due = _time_condition(TIME, period.due_from_ns, until_ns)
        return self._search("notices", body, kinds, due, since_ns=period.due_from_ns)

    def read_history(self, families: Iterable[str]) -> FamilyHistory:
        """The families' confirmed runs of 90 days, and what resized ones have cost in 30."""
        names = sorted(families)
        if not names:
            return FamilyHistory()
        response, completeness = self._search(
            "reports",
            {"size": 0, "aggs": {"families": _earlier_runs_aggregation(len(names))}},
            IS_CONFIRMED,
            one_of(FAMILY, names),
            of_last_days(USUAL_DAYS),
        )
        if not completeness.is_whole:
            return FamilyHistory(completeness=completeness)
        runs: dict[str, Sequence[EarlierRun]] = {}
        costs: list[ResizedCost] = []
        for family in mappings_in_list(field_at(response, "aggregations.families.buckets")):
            oldest_first = reversed(list(hit_sources(family.get("newest"))))
            earlier = [_earlier_run(source) for source in oldest_first]
            runs[str(family.get("key"))] = known_values(earlier)
            costs.extend(_costs_since_resize(field_at(family, "resized.tags.buckets")))
        return FamilyHistory(runs=runs, resized=tuple(costs))

    def _search(
        self,
        index: str,
        body: Mapping[str, Json],
        *conditions: JsonObject,
        since_ns: int | None = None,
    ) -> tuple[Mapping[str, Json], Completeness]:
        since = None
        if since_ns is not None:
            since = datetime.fromtimestamp(since_ns / NS_PER_SECOND, UTC)
        required = [*conditions, *place_conditions({ACCOUNT: self.account_id, REGION: self.region})]
        excluded = [term(FAMILY, PROOF_FAMILY)]
        if index == "reports":
            excluded.append(_RUNNING)
            if not self.with_services:
                excluded.append(_OF_SERVICE)
        if self.globs:
            required.append(any_of([_family_matches_glob(glob) for glob in self.globs]))
        query = all_of(required, but_none_of=excluded)
        return self.cluster.search_part(
            f"{self.prefix}-{index}-*", {**body, "query": query}, self.timeout_seconds, since
        )


def _texts(value: Json) -> tuple[str, ...]:
    """The texts of a field that has one or several values."""
    values = value if isinstance(value, list) else [value]
    return tuple(known_values(map(text_or_none, values)))


def _family_matches_glob(glob: str) -> JsonObject:
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
            pattern += f"[{negation}{_escaped_for_lucene(inside.removeprefix('!'), kept='-')}]"
            at = end
        else:
            pattern += _escaped_for_lucene(one)
        at += 1
    return {"regexp": {FAMILY: {"value": pattern, "flags": "NONE"}}}


def _escaped_for_lucene(literal: str, *, kept: str = "") -> str:
    """The text for a regular expression of Lucene."""
    return "".join(one if one.isalnum() or one in {"_", *kept} else f"\\{one}" for one in literal)


def _time_condition(field: str, start_ns: int, end_ns: int) -> JsonObject:
    return in_range(field, gte=format_ms(start_ns), lt=format_ms(end_ns))


def _known_between(start_ns: int, end_ns: int) -> JsonObject:
    """What became known between the moments. Documents of an index that does not know the field
    have ``event.ingested``; the oldest ones, only their end.
    """
    known_at, ingested = "task.known_at", "event.ingested"
    by_end = any_of(
        [
            _time_condition("event.end", start_ns, end_ns),
            # A task that failed to start has no end of a container.
            _unless_any_field([_time_condition(TIME, start_ns, end_ns)], "event.end"),
        ]
    )
    return any_of(
        [
            _time_condition(known_at, start_ns, end_ns),
            _unless_any_field([_time_condition(ingested, start_ns, end_ns)], known_at),
            _unless_any_field([by_end], known_at, ingested),
        ]
    )


def _counted_runs_condition(period: NightPeriod, newest: Sequence[str] | None) -> JsonObject:
    """What the message counts: of the last minutes only the ``newest`` tasks, which the next one
    will know, though others may have become visible since they were asked for; and what is
    repeated, which only costs. None: nothing of these minutes.
    """
    seen = _known_between(period.known_from_ns, period.seen_until_ns)
    if newest is None:
        return seen
    remembered = any_of([one_of(TASK_ID, newest), _REPEATED])
    return any_of([seen, all_of([_known_between(period.seen_until_ns, period.end_ns), remembered])])


def _unjudged_runs_condition(period: NightPeriod) -> JsonObject:
    """Those of the last minutes that Batch has not judged yet. The next message counts them, if
    they are not repeated.
    """
    return all_of([_known_between(period.judged_until_ns, period.end_ns), _UNJUDGED])


def _unless_any_field(conditions: Sequence[JsonObject], *fields: str) -> JsonObject:
    return all_of(conditions, but_none_of=[exists(field) for field in fields])


def _oldest_index_ns(period: NightPeriod) -> int:
    """An index with documents from then on is missed if it is closed. Older runs may be in the
    message, too, but not in such an index: nothing can be written into it.
    """
    return period.known_from_ns - 7 * NS_PER_DAY


def _late_task_aggregations(period: NightPeriod) -> Mapping[str, Json]:
    """The aggregations of ``_LateTasks``."""
    became_known = _known_between(period.seen_until_ns, period.end_ns)
    last: Mapping[str, Json] = {"last": {"max": {"field": ATTEMPT}}}
    jobs: JsonObject = {
        "terms": {"field": JOB_ID, "size": _MAX_REPEATED_JOBS},
        "aggs": {
            **last,
            "ended": {"max": {"field": "event.end"}},
            "repeated": {"filter": _REPEATED, "aggs": last},
            "waiting": {"filter": _unjudged_runs_condition(period), "aggs": last},
            "newest": {"filter": became_known, "aggs": last},
        },
    }
    is_of_several = any_of([in_range(ATTEMPT, gte=2), _REPEATED, _UNJUDGED])
    of_attempts = all_of([_IS_RUN, is_of_several])
    newest = all_of([_IS_RUN, became_known])
    # An attempt that is repeated counts once it turns out to be the last one. A document of another
    # container of its task does not know that.
    waiting: JsonObject = {"filter": any_of([_REPEATED, _unjudged_runs_condition(period)])}
    tasks: JsonObject = {
        "terms": {"field": TASK_ID, "size": MAX_REMEMBERED + 1},
        "aggs": {"waiting": waiting},
    }
    before = format_ms(period.start_ns)
    # What becomes known anew is in no message before.
    late = all_of([_IS_RUN, in_range("task.stopped_at", lt=before)], but_none_of=[_WAS_REPEATED])
    of_late: JsonObject = {"terms": {"field": TASK_ID, "size": _MAX_LATE}}
    # The event of a newer report may be on its way. A line of a trusted group has no word of ECS on
    # purpose.
    unconfirmed = all_of(
        [_known_between(period.known_from_ns, period.seen_until_ns)],
        but_none_of=[_IS_RUN, _OF_JOB_ALONE, IN_TRUSTED_GROUP],
    )
    return {
        "attempts": {"filter": of_attempts, "aggs": {"jobs": jobs}},
        "newest": {"filter": newest, "aggs": {"tasks": tasks}},
        "late": {"filter": late, "aggs": {"tasks": of_late}},
        "runs": _count_tasks_aggregation(_IS_RUN, _EXACT_TASKS),
        "runs and unconfirmed": _count_tasks_aggregation(
            any_of([_IS_RUN, unconfirmed]), _EXACT_TASKS
        ),
    }


def _unconfirmed_tasks(counted: Mapping[str, Json]) -> int:
    """The tasks of which no container is confirmed. An estimate finds none without a document."""
    tasks, documents = (
        (positive_number(field_at(counted, f"runs and unconfirmed.{number}")) or 0)
        - (positive_number(field_at(counted, f"runs.{number}")) or 0)
        for number in ("tasks.value", "doc_count")
    )
    return max(0, int(min(tasks, documents)))


def _bucket_task_ids(buckets: Iterable[Mapping[str, Json]]) -> tuple[str, ...]:
    """The tasks, without those that wait."""
    return tuple(
        str(bucket.get("key")) for bucket in buckets if not field_at(bucket, "waiting.doc_count")
    )


def _last_attempt_number(bucket: Mapping[str, Json], path: str) -> int:
    """The number of a job's last attempt; 0 without one."""
    return round(positive_number(field_at(bucket, path)) or 0)


def _jobs_to_tell(jobs: Iterable[Mapping[str, Json]], *left_out: str) -> tuple[str, ...]:
    """The jobs of which the last attempt counts: it is none of those that are ``left_out``. The
    newest first.
    """
    newest_first = sorted(
        jobs, key=lambda bucket: -(positive_number(field_at(bucket, "ended.value")) or 0)
    )
    return tuple(
        str(bucket.get("key"))
        for bucket in newest_first
        if _last_attempt_number(bucket, "last.value")
        > max(_last_attempt_number(bucket, f"{name}.last.value") for name in left_out)
    )


def _repeated_attempt_conditions(jobs: Iterable[Mapping[str, Json]]) -> Sequence[JsonObject]:
    """The conditions that each match attempts of jobs after which Batch made another one."""
    by_last: dict[int, list[str]] = {}
    for bucket in jobs:
        # The next one of a repeated attempt may still run.
        next_one = _last_attempt_number(bucket, "repeated.last.value") + 1
        last = max(_last_attempt_number(bucket, "last.value"), next_one)
        if last > 1:
            by_last.setdefault(last, []).append(str(bucket.get("key")))
    return [
        all_of([one_of(JOB_ID, names), in_range(ATTEMPT, lt=last)])
        for last, names in sorted(by_last.items())
    ]


def _night_aggregations(repeated: Sequence[JsonObject], period: NightPeriod) -> Mapping[str, Json]:
    """The aggregations of the period's documents: what all tasks have cost, and the number of those
    that were not repeated, of all and of each family, the families with killed and failed ones
    first. What a repeated attempt has cost is in the message of its own end.
    """
    newest: JsonObject = {
        "size": 1,
        "sort": NEWEST_FIRST,
        "_source": [*_OUTCOME_FIELDS, "event.end", "links.run", "links.logs"],
    }
    failed: dict[str, Json] = {
        f"newest {group}": {
            "filter": _group_condition(group),
            "aggs": {"newest": {"top_hits": newest}},
        }
        for group in FAILED_OUTCOMES
    }
    order = [*({name: "desc"} for name in failed), {"latest": "desc"}, {"_key": "asc"}]
    counts: Mapping[str, Json] = {
        **_task_count_aggregations(_EXACT_TASKS),
        "families": {"cardinality": {"field": FAMILY, "precision_threshold": _EXACT_TASKS}},
        "reports": _count_tasks_aggregation(term("task.complete", value=True), _EXACT_TASKS),
        "by_family": {
            "terms": {"field": FAMILY, "size": _MAX_FAMILIES, "order": order},
            "aggs": {
                **_task_count_aggregations(_EXACT_TASKS_OF_FAMILY),
                **failed,
                "latest": {"max": {"field": TIME}},
                "containers": {
                    "cardinality": {
                        "field": CONTAINER,
                        "precision_threshold": _EXACT_CONTAINERS,
                    }
                },
            },
        },
    }
    before = format_ms(period.start_ns)
    # The last attempt of a job that waited became known again when the job ended.
    is_again = all_of([_IS_LAST_ATTEMPT, in_range("event.end", lt=before)])
    was_known = any_of([is_again, _known_between(period.known_from_ns, period.start_ns)])
    was_paid = all_of([_WAS_REPEATED, was_known])
    with_usage: JsonObject = {
        "filter": all_of([IS_CONFIRMED], but_none_of=[was_paid]),
        "aggs": {
            "usd": {"sum": {"field": COST_USD}},
            "priced": {"value_count": {"field": COST_USD}},
            "spot": {"filter": _PRICED_ON_SPOT},
        },
    }
    is_last = none_of(repeated)
    return {
        "measured": with_usage,
        "last": {"filter": is_last, "aggs": counts},
        "corrected": _corrected_job_aggregations(period),
    }


def _corrected_job_aggregations(period: NightPeriod) -> Mapping[str, Json]:
    """The successes of jobs that an earlier message told: by another attempt, as a job ends with
    its success.
    """
    of_earlier_message = one_of(JOB_ID, period.last.jobs)
    jobs: JsonObject = {"cardinality": {"field": JOB_ID, "precision_threshold": _EXACT_TASKS}}
    families: JsonObject = {
        "terms": {"field": FAMILY, "size": _MAX_FAMILIES},
        "aggs": {"jobs": jobs},
    }
    condition = all_of([of_earlier_message, _group_condition("success")])
    return {"filter": condition, "aggs": {"families": families}}


def _group_condition(group: str) -> JsonObject:
    if group == OUT_OF_MEMORY:
        return RAN_OUT_OF_MEMORY
    return all_of([term(STATUS, group)], but_none_of=[RAN_OUT_OF_MEMORY])


def _task_count_aggregations(exact: int) -> Mapping[str, Json]:
    """The tasks: all, those with a document that decides, and for each group those with one, or
    with such a document, in it or in a worse group.
    """
    counts: dict[str, Json] = {
        "all": _count_tasks_aggregation({"match_all": {}}, exact),
        "decided": _count_tasks_aggregation(_DECIDES, exact),
    }
    for groups in accumulate((group,) for group in _GROUPS):
        within = any_of([_group_condition(group) for group in groups])
        counts[f"decided {groups[-1]}"] = _count_tasks_aggregation(
            all_of([_DECIDES, within]), exact
        )
        counts[f"any {groups[-1]}"] = _count_tasks_aggregation(any_of([_DECIDES, within]), exact)
    return counts


def _count_tasks_aggregation(condition: JsonObject, exact: int) -> JsonObject:
    tasks = {"field": TASK_ID, "precision_threshold": exact}
    return {"filter": condition, "aggs": {"tasks": {"cardinality": tasks}}}


def _task_count_of_bucket(bucket: Mapping[str, Json], name: str) -> int:
    """The tasks: the documents of a family with one container; else the estimated tasks, of which
    each has a document.
    """
    counted = mapping_or_empty(bucket.get(name))
    documents = positive_number(counted.get("doc_count"))
    if positive_number(field_at(bucket, "containers.value")) == 1:
        return int(documents or 0)
    tasks = positive_number(field_at(counted, "tasks.value"))
    return int(min_known(tasks, documents) or 0)


def _task_counts_by_group(bucket: Mapping[str, Json]) -> Mapping[str, int]:
    """The tasks of each group by the counts of ``_task_count_aggregations``."""
    counts: dict[str, int] = {}
    decided = _task_count_of_bucket(bucket, "decided")
    before = 0
    for group in _GROUPS:
        undecided = max(0, _task_count_of_bucket(bucket, f"any {group}") - decided)
        within = _task_count_of_bucket(bucket, f"decided {group}") + undecided
        counts[group] = max(0, within - before)
        before = max(before, within)
    counts[_UNKNOWN] = max(0, _task_count_of_bucket(bucket, "all") - before)
    return counts


def _earlier_runs_aggregation(count: int) -> Mapping[str, Json]:
    """The aggregation of ``count`` families: their newest runs, and the costs of resized ones."""
    newest: JsonObject = {
        "size": _MAX_EARLIER_RUNS,
        "sort": NEWEST_FIRST,
        "_source": [
            TIME,
            STATUS,
            DURATION_MS,
            MEMORY_PEAK_MB,
            MAPPED_FILES_MB,
            "usage.memory.size_mb",
            "recommendation.saving_usd_per_month",
            COST_USD,
            "task.known_at",
        ],
    }
    size_now: JsonObject = {"size": 1, "sort": NEWEST_FIRST, "_source": ["task.size"]}
    tags: JsonObject = {
        "terms": {"field": "task.resized_from", "size": _MAX_FAMILIES},
        "aggs": {"usd": {"sum": {"field": COST_USD}}, "newest": {"top_hits": size_now}},
    }
    resized: JsonObject = {
        "filter": of_last_days(_SAVED_DAYS),
        "aggs": {"tags": tags},
    }
    return {
        "terms": {"field": FAMILY, "size": count},
        "aggs": {"newest": {"top_hits": newest}, "resized": resized},
    }


def _night_runs(
    whole: Mapping[str, Json],
    *,
    remembered: tuple[str, ...],
    told_jobs: tuple[str, ...],
    until_ns: int,
    unconfirmed: int,
    completeness: Completeness,
) -> NightRuns:
    night = mapping_or_empty(whole.get("last"))
    totals = _task_counts_by_group(night)
    buckets = [*mappings_in_list(field_at(night, "by_family.buckets"))]
    buckets.sort(key=lambda bucket: -(positive_number(field_at(bucket, "latest.value")) or 0))
    counts: dict[str, dict[str, int]] = {}
    failed: list[FailedRun] = []
    others = totals  # less those of the families that are named
    for bucket in buckets:
        family = str(bucket.get("key"))
        tasks_by_group = _task_counts_by_group(bucket)
        others = {group: tasks - tasks_by_group[group] for group, tasks in others.items()}
        for group, tasks in tasks_by_group.items():
            if not tasks:
                continue
            counts.setdefault(group, {})[family] = tasks
            for source in hit_sources(field_at(bucket, f"newest {group}.newest")):
                failed.append(_failed_run(group, family, source))
    other_families = int(positive_number(field_at(night, "families.value")) or 0) - len(buckets)
    if other_families <= 0:
        others = {}  # the difference is that of an estimate
    return NightRuns(
        counts=counts,
        others={group: tasks for group, tasks in others.items() if tasks > 0},
        other_families=max(0, other_families),
        failed=tuple(sorted(failed, key=lambda run: run.outcome_rank)),
        cost=_cost_of_runs(mapping_or_empty(whole.get("measured"))),
        reports=_task_count_of_bucket(night, "reports"),
        remembered=remembered,
        told_jobs=told_jobs,
        until_ns=until_ns,
        unconfirmed=unconfirmed,
        corrected={
            str(bucket.get("key")): int(positive_number(field_at(bucket, "jobs.value")) or 0)
            for bucket in mappings_in_list(field_at(whole, "corrected.families.buckets"))
        },
        completeness=completeness,
    )


def _cost_of_runs(with_usage: Mapping[str, Json]) -> Measured:
    """What the runs have cost in USD: at least that, if some ran on Fargate Spot."""
    if not positive_number(field_at(with_usage, "priced.value")):
        return UNKNOWN
    usd = positive_number(field_at(with_usage, "usd.value")) or 0.0
    return measured_from(
        usd, is_least=bool(positive_number(field_at(with_usage, "spot.doc_count")))
    )


def _failed_run(outcome: str, family: str, source: Mapping[str, Json]) -> FailedRun:
    return FailedRun(
        outcome=outcome,
        family=family,
        reason=document_outcome(
            mapping_or_empty(source.get("task")), text_or_none(field_at(source, "container.name"))
        ).sentence,
        ended_at=text_or_none(field_at(source, "event.end")),
        url=text_or_none(field_at(source, "links.run"))
        or text_or_none(field_at(source, "links.logs")),
    )


def _earlier_run(source: Mapping[str, Json]) -> EarlierRun | None:
    ended_ns = parse_ns(source.get("@timestamp"))
    if ended_ns is None:
        return None
    return EarlierRun(
        ended_ns=ended_ns,
        status=text_or_none(field_at(source, "task.status")),
        duration_ms=positive_number(field_at(source, "usage.duration_ms")),
        peak_mb=positive_number(field_at(source, "usage.memory.used_mb.max")),
        size_mb=positive_number(field_at(source, "usage.memory.size_mb")),
        saving_usd_per_month=_saving_usd_per_month(source),
        counts_files=field_at(source, MAPPED_FILES_MB) is None,
        known_ns=parse_ns(field_at(source, "task.known_at")),
    )


def _saving_usd_per_month(source: Mapping[str, Json]) -> float | None:
    """The saving of a run's own advice: see :class:`EarlierRun`."""
    saving_usd = positive_number(field_at(source, "recommendation.saving_usd_per_month"))
    if positive_number(field_at(source, COST_USD)):
        return saving_usd or 0
    return saving_usd


def _costs_since_resize(buckets: Json) -> Iterable[ResizedCost]:
    for bucket in mappings_in_list(buckets):
        for source in hit_sources(bucket.get("newest")):
            size = TaskSize(
                vcpu=positive_number(field_at(source, "task.size.vcpu")),
                memory_mb=positive_number(field_at(source, "task.size.memory_mb")),
            )
            usd = positive_number(field_at(bucket, "usd.value")) or 0.0
            yield ResizedCost(tag=str(bucket.get("key")), size=size, usd=usd)
