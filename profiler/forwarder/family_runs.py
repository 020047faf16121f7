"""What the search cluster knows of a family's past: its aggregations as a :class:`Family`, and the
comparison of an ended run with it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import arn_account, arn_region, cluster_name
from profiler.core.json_fields import (
    Json,
    field_at,
    mappings_in_list,
    positive_number,
    text_or_none,
)
from profiler.core.optional_math import known, known_members, known_values
from profiler.core.timestamps import NS_PER_MS, parse_ns
from profiler.forwarder.document_updates import Document, with_runs_per_month
from profiler.forwarder.ended_run import EndedTask, FamilyComparison, UnusualMeasure
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster.bulk_client import SearchCluster, hit_sources
from profiler.record.fact_list import CPU_TIME, DURATION, READ, WRITTEN, NumberRow
from profiler.record.family_statistics import (
    LAST_SUCCESSES,
    USUAL_DAYS,
    WINDOW_DAYS,
    Family,
    FamilyRun,
    HighestPeak,
    NeedAtSize,
    ObservedNeeds,
    UsualDuration,
)
from profiler.record.hardware import processor_difference
from profiler.record.model_base import json_name
from profiler.record.query_clauses import (
    ACCOUNT,
    CLUSTER,
    CONTAINER,
    DURATION_MS,
    FAMILY,
    IS_CONFIRMED,
    IS_SUCCESS,
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
    begins_with,
    exists,
    in_range,
    none_of,
    of_last_days,
    one_of,
    place_conditions,
    term,
)
from profiler.record.record_model import Processor, TaskSize
from profiler.record.units import MIB, format_value, rounded_number
from profiler.record.unusual import MIN_FAR_RUNS, UsualRange, usual_value_of

COMPARISON_SECONDS = 5.0
_RATE_DAYS = 30
_MAX_KEPT = 10_000
# Of one invocation: each has some hundred small documents in the answer.
_MAX_ASKED = 50
_MAX_CLUSTERS = 50
_MAX_CONTAINERS = 20


class _WorkMeasure(Struct, frozen=True):
    """A measure of a run's work: an amount (values far below it count as equal), and its words."""

    row: NumberRow
    small: float
    words: str

    @property
    def name(self) -> str:
        """The field of the metrics."""
        return self.row.path.rpartition(".")[2]


# By the field of a run, which is that of the metrics.
_MEASURES = {
    measure.name: measure
    for measure in (
        _WorkMeasure(DURATION, 1000, "took {} (usually {})"),
        _WorkMeasure(CPU_TIME, 0.1, "used {} of CPU time (usually {})"),
        _WorkMeasure(READ, MIB, "read {} (usually {})"),
        _WorkMeasure(WRITTEN, MIB, "wrote {} (usually {})"),
    )
}
# The field of a document by that of a run.
RUN_NUMBERS: Final[Mapping[str, str]] = {
    "duration_ms": DURATION_MS,
    "cpu_seconds": "usage.cpu.seconds",
    "block_read_bytes": "usage.block.read_bytes",
    "block_write_bytes": "usage.block.write_bytes",
    "peak_mb": MEMORY_PEAK_MB,
    "mapped_files_mb": MAPPED_FILES_MB,
    "memory_size_mb": "usage.memory.size_mb",
    "task_memory_mb": "task.size.memory_mb",
}
_COMPLETE = "task.complete"
_PROCESSOR = "host.cpu.model"
_RUN_FIELDS = (
    *(TIME, TASK_ID, CONTAINER, "task.outcome", STATUS),
    *(_COMPLETE, CLUSTER, _PROCESSOR),
    *RUN_NUMBERS.values(),
)
# Successes whose peak has no mapped files: those of other records may be counted in it.
_APART_SUCCESS: Final = all_of([IS_SUCCESS, exists(MEMORY_PEAK_MB), exists(MAPPED_FILES_MB)])

# The values of a run by the names of the measures; None if unknown.
Measures = Mapping[str, float | None]

# A family in an account and Region: account, Region, family.
FamilyPlace = tuple[str, str, str]

# The same with a container's name.
FamilyContainer = tuple[str, str, str, str]

# By family and name of the ECS cluster.
FamilyDurations = Mapping[tuple[str, str], UsualDuration]


class FamilyRunReader(Struct, frozen=True, kw_only=True):
    """Reads the confirmed runs of families in one account and Region.

    Every method but ``compare_with_family`` and ``find_killed_run`` raises SearchClusterError,
    also for a part of an answer: what is missing may be what decides. An index that is closed is
    missing, if it can have runs of the days that are asked for; of a question about all times, of
    90 days.
    """

    cluster: SearchCluster
    prefix: str
    timeout_seconds: float
    now: datetime

    def read_successes(
        self, families: Collection[str], place: str, *conditions: JsonObject
    ) -> Mapping[str, Family]:
        """The families' last successes, in the account and Region of an ARN."""
        newest: JsonObject = {"size": LAST_SUCCESSES, "_source": _RUN_FIELDS, "sort": NEWEST_FIRST}
        clusters: JsonObject = {
            "terms": {"field": CLUSTER, "size": _MAX_CLUSTERS, "missing": ""},
            "aggs": {"newest": {"top_hits": newest}},
        }
        containers: JsonObject = {
            "terms": {"field": CONTAINER, "size": _MAX_CONTAINERS},
            "aggs": {"clusters": clusters},
        }
        found: dict[str, Family] = {}
        for name, bucket in self._search_families(
            families, place, {"containers": containers}, IS_SUCCESS, *conditions
        ):
            family = found.setdefault(name, Family())
            for container in mappings_in_list(field_at(bucket, "containers.buckets")):
                for cluster in mappings_in_list(field_at(container, "clusters.buckets")):
                    for source in hit_sources(cluster.get("newest")):
                        family.add_counted_run(family_run_of_document(source))
        return found

    def read_task_counts(self, families: Collection[str], place: str) -> Mapping[str, Family]:
        """How many tasks the families had in 30 days, in the account and Region of an ARN."""
        window: Mapping[str, Json] = {
            "tasks": {"cardinality": {"field": TASK_ID}},
            "first": {"min": {"field": TIME}},
            "last": {"max": {"field": TIME}},
        }
        found: dict[str, Family] = {}
        for name, bucket in self._search_families(
            families, place, window, of_last_days(_RATE_DAYS), days=_RATE_DAYS
        ):
            family = found.setdefault(name, Family())
            family.add_counts(
                round(positive_number(field_at(bucket, "tasks.value")) or 0),
                round((positive_number(field_at(bucket, "first.value")) or 0) * NS_PER_MS),
                round((positive_number(field_at(bucket, "last.value")) or 0) * NS_PER_MS),
            )
        return found

    def read_need_at_size(self, ended: EndedTask, size_mb: float) -> NeedAtSize:
        """What the runs of the container needed at a size of the task, on EC2 of the container,
        in 35 days.
        """
        size = "task_memory_mb" if ended.task.is_on_fargate else "memory_size_mb"
        peak: JsonObject = {"peak": {"max": {"field": MEMORY_PEAK_MB}}}
        needs: Mapping[str, Json] = {
            "successes": {"filter": IS_SUCCESS, "aggs": peak},
            "apart": {"filter": _APART_SUCCESS, "aggs": peak},
            "killed": {"filter": RAN_OUT_OF_MEMORY},
        }
        others = none_of([term(TASK_ID, ended.task.id)])
        conditions = [
            term(RUN_NUMBERS[size], size_mb),
            term(CONTAINER, ended.container),
            of_last_days(WINDOW_DAYS),
            others,
        ]
        family = Family()
        for _, bucket in self._search_families(
            [ended.family], ended.task.arn, needs, *conditions, days=WINDOW_DAYS
        ):
            observed = ObservedNeeds(
                peak_mb=positive_number(field_at(bucket, "successes.peak.value")),
                apart_peak_mb=positive_number(field_at(bucket, "apart.peak.value")),
                apart_runs=round(positive_number(field_at(bucket, "apart.doc_count")) or 0),
                was_killed=bool(positive_number(field_at(bucket, "killed.doc_count"))),
            )
            family.add_need(ended.container or "", size_mb, observed)
        return family.memory_need(ended.container or "", size_mb)

    def read_usual_durations(self, families: Collection[str], place: str) -> FamilyDurations:
        """The usual durations, of 8 to 20 successes of the last 90 days, in the account and
        Region of an ARN.
        """
        durations = {}
        found = self.read_successes(
            families, place, of_last_days(USUAL_DAYS), in_range(DURATION_MS, gt=0)
        )
        for name, family in found.items():
            for ecs_cluster in family.ecs_clusters:
                usual = family.family_in_cluster(ecs_cluster).usual_duration()
                if usual is not None and usual.runs >= MIN_FAR_RUNS:
                    durations[name, ecs_cluster or ""] = usual
        return durations

    def compare_with_family(self, notice: EndedTask) -> FamilyComparison | None:
        """Compare the run with its family's successes, preferably in its ECS cluster.

        None with fewer than 5.
        """
        duration_ms = notice.duration_ms
        if not duration_ms or duration_ms <= 0:
            return None
        others = none_of([term(TASK_ID, notice.task.id)])
        try:
            found = self.read_successes([notice.family], notice.task.arn, others)
        except SearchClusterError:
            return None
        family = found.get(notice.family, Family())
        last = family.last_success(notice.task.cluster)
        usual = usual_value_of(family.last_success_durations_ms(notice.task.cluster))
        if usual is None or last is None:
            return None
        sentences = [_duration_sentence(duration_ms, usual)]
        that = replace(notice.record, processor=Processor(model=last.processor))
        difference = processor_difference(notice.record, that, "the last success")
        if difference:
            sentences.append(f"It {difference}.")
        return FamilyComparison(
            text=" ".join(sentences),
            is_slow=usual.is_notably_more(duration_ms),
            unusual=_unusual_measures(notice, family),
        )

    def read_runs_per_month(self, families: Collection[str], place: str) -> Mapping[str, float]:
        """The runs a month of families, from the tasks of the last 30 days, in the account and
        Region of an ARN. A family with fewer than 5 tasks, or of less than a day, has none.
        """
        found = self.read_task_counts(families, place).items()
        months = known_members({name: family.month for name, family in found})
        return {name: month.runs for name, month in months.items()}

    def find_killed_run(self, ended: EndedTask, short_id: str) -> tuple[str | None, TaskSize]:
        """The whole id of the killed run, and its size (on EC2, its batch's memory limit); None
        where not certain.
        """
        wanted = {"size": 10, "_source": ["task.id", "task.size", "usage.memory.size_mb"]}
        killed = (
            term(FAMILY, ended.family),
            begins_with(TASK_ID, short_id),
            term(CONTAINER, ended.container),
        )
        try:
            answer = self._search(ended.task.arn, wanted, *killed, days=WINDOW_DAYS)
            sources = hit_sources(answer)
        except SearchClusterError:
            return None, TaskSize()
        if len(sources) != 1:
            return None, TaskSize()
        if ended.task.is_on_fargate:
            memory = "task.size.memory_mb"
        else:
            memory = "usage.memory.size_mb"
        size = TaskSize(
            vcpu=positive_number(field_at(sources[0], "task.size.vcpu")),
            memory_mb=positive_number(field_at(sources[0], memory)),
        )
        return text_or_none(field_at(sources[0], "task.id")), size

    def _search_families(
        self,
        families: Collection[str],
        place: str,
        aggregations: Mapping[str, Json],
        *conditions: JsonObject,
        days: int = USUAL_DAYS,
    ) -> list[tuple[str, Mapping[str, Json]]]:
        """The names of the families that have runs, each with its bucket of the aggregations."""
        in_families: JsonObject = {
            "terms": {"field": FAMILY, "size": len(families)},
            "aggs": aggregations,
        }
        response = self._search(
            place,
            {"size": 0, "aggs": {"families": in_families}},
            one_of(FAMILY, sorted(families)),
            *conditions,
            days=days,
        )
        buckets = mappings_in_list(field_at(response, "aggregations.families.buckets"))
        return [(str(bucket.get("key")), bucket) for bucket in buckets]

    def _search(
        self, arn: str, body: Mapping[str, Json], *conditions: JsonObject, days: int
    ) -> Mapping[str, Json]:
        """Raises SearchClusterError, also if an index is closed that can have runs of these
        days.
        """
        place = place_conditions({ACCOUNT: arn_account(arn), REGION: arn_region(arn)})
        query = all_of([IS_CONFIRMED, *place, *conditions])
        return self.cluster.search(
            f"{self.prefix}-reports-*",
            {**body, "query": query},
            self.timeout_seconds,
            self.now - timedelta(days=days),
        )


def family_run_of_document(source: Mapping[str, Json]) -> FamilyRun:
    """What a family keeps of the document of an ended run."""
    return FamilyRun(
        task_id=text_or_none(field_at(source, "task.id")) or "",
        container=text_or_none(field_at(source, "container.name")) or "",
        ended_ns=parse_ns(source.get("@timestamp")) or 0,
        outcome=text_or_none(field_at(source, "task.outcome"))
        or text_or_none(field_at(source, "task.status"))
        or "unknown",
        is_complete=field_at(source, _COMPLETE) is True,
        ecs_cluster=cluster_name(text_or_none(field_at(source, CLUSTER))),
        processor=text_or_none(field_at(source, _PROCESSOR)),
        **{name: _valid_amount(field_at(source, field)) for name, field in RUN_NUMBERS.items()},
    )


class FamilyRatesCache:
    """The runs a month of families, each looked up once in a ``period_ns``.

    A family that is not known, and one of a cluster that does not answer, has none until then.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._rates: dict[FamilyPlace, float | None] = {}
        self._since_ns = 0

    def documents_with_monthly_savings(
        self, documents: Sequence[Document], memory: Callable[[], FamilyRunReader], now_ns: int
    ) -> list[Document]:
        """The documents, those of runs that have a saving with the saving of a month."""
        if now_ns - self._since_ns > self._period_ns or len(self._rates) > _MAX_KEPT:
            self._rates.clear()
            self._since_ns = now_ns
        families = [_family_with_saving(document) for document in documents]
        unknown = {*known_values(families)} - self._rates.keys()
        if unknown:
            self._look_up_rates(unknown, memory())
        changed = []
        for document, family in zip(documents, families, strict=True):
            rate = known(self._rates.get, family)
            changed.append(document if rate is None else with_runs_per_month(document, rate))
        return changed

    def _look_up_rates(self, families: Collection[FamilyPlace], memory: FamilyRunReader) -> None:
        for place, names in _families_by_place(families):
            try:
                rates = memory.read_runs_per_month(names, _any_task_arn(place))
            except SearchClusterError:
                rates = {}
            for name in names:
                self._rates[*place, name] = rates.get(name)


class FamilyPeaksCache:
    """The highest memory peaks of families' last successes, each family asked for once in a
    ``period_ns``, and for one family a log stream: any program can print any line.

    A family of which the cluster does not say everything is not known until then.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._known: dict[FamilyPlace, tuple[int, Family]] = {}
        self._asked: dict[str, int] = {}

    def known_peaks(
        self,
        wanted: Iterable[tuple[str, FamilyContainer]],
        memory: Callable[[], FamilyRunReader],
        now_ns: int,
    ) -> Mapping[FamilyContainer, HighestPeak]:
        """The known peaks of those that runs of log streams name."""
        self._forget_old_peaks(now_ns)
        containers = []
        missing: set[FamilyPlace] = set()
        for stream, container in wanted:
            if not all(container):  # the line does not say which family it is of
                continue
            containers.append(container)
            place = container[:3]
            if place in self._known or stream in self._asked or len(missing) == _MAX_ASKED:
                continue
            self._asked[stream] = now_ns
            missing.add(place)
        if missing:
            self._look_up_peaks(missing, memory(), now_ns)
        peaks = {}
        for container in containers:
            _, family = self._known.get(container[:3], (0, Family()))
            peaks[container] = family.highest_peak(container[3])
        return known_members(peaks)

    def _forget_old_peaks(self, now_ns: int) -> None:
        if len(self._known) + len(self._asked) > _MAX_KEPT:
            self._known.clear()
            self._asked.clear()
        oldest_ns = now_ns - self._period_ns
        for place in [place for place, (at_ns, _) in self._known.items() if at_ns < oldest_ns]:
            del self._known[place]
        for stream in [stream for stream, at_ns in self._asked.items() if at_ns < oldest_ns]:
            del self._asked[stream]

    def _look_up_peaks(
        self, families: Collection[FamilyPlace], memory: FamilyRunReader, now_ns: int
    ) -> None:
        for place, names in _families_by_place(families):
            try:
                found = memory.read_successes(
                    names, _any_task_arn(place), in_range(MEMORY_PEAK_MB, gt=0)
                )
            except SearchClusterError:
                found = {}
            for name in names:
                self._known[*place, name] = (now_ns, found.get(name, Family()))


def _families_by_place(
    families: Collection[FamilyPlace],
) -> Iterator[tuple[tuple[str, str], list[str]]]:
    """The names of the families in each account and Region."""
    for place, group in groupby(sorted(families), lambda family: family[:2]):
        yield place, [name for _, _, name in group]


def _any_task_arn(place: tuple[str, str]) -> str:
    account, region = place
    return f"arn:aws:ecs:{region}:{account}:task/any"


def _family_with_saving(document: Document) -> FamilyPlace | None:
    """The family of a run that another size would have made cheaper."""
    fields = document.fields
    if not positive_number(field_at(fields, "cost.waste_usd")):
        return None
    account = text_or_none(field_at(fields, "cloud.account.id"))
    region = text_or_none(field_at(fields, "cloud.region"))
    family = text_or_none(field_at(fields, "task.family"))
    return (account, region, family) if account and region and family else None


def _unusual_measures(notice: EndedTask, family: Family) -> tuple[UnusualMeasure, ...]:
    """Compare the work of a success.

    The numbers of a checkpoint cover only a part of the run and are not compared.
    """
    if notice.outcome.status != "success" or not notice.has_final_report:
        return ()
    own: dict[str, float | None] = {}
    for name, measure in _MEASURES.items():
        if not measure.row.is_least(notice.record):
            own[name] = _valid_amount(getattr(notice.metrics, name))
    earlier = family.comparable_successes(
        notice.task.cluster, MIN_FAR_RUNS, of=lambda run: run.is_complete
    )
    return find_unusual(own, [_measures_of_run(run) for run in earlier])


def _measures_of_run(run: FamilyRun) -> Measures:
    return {name: getattr(run, name) for name in _MEASURES}


def _valid_amount(value: Json) -> float | None:
    return 0.0 if value == 0 else positive_number(value)


def find_unusual(own: Measures, earlier: Sequence[Measures]) -> tuple[UnusualMeasure, ...]:
    """Return the measures in which a run lies far outside the earlier ones, the latest of which
    is first; none if it is only one measure.
    """
    unusual = []
    for name, measure in _MEASURES.items():
        value = own.get(name)
        usual = usual_value_of(run.get(name) for run in earlier)
        if value is not None and usual is not None and usual.is_far_outside(value, measure.small):
            unusual.append(
                UnusualMeasure(
                    metric=json_name(name),
                    value=rounded_number(value) or 0,
                    usual=rounded_number(usual.middle) or 0,
                )
            )
    return tuple(unusual) if len(unusual) > 1 else ()


def unusual_words(unusual: UnusualMeasure) -> str:
    """The measure in words: ``read 0 MB (usually 2.1 GB)``."""
    for measure in _MEASURES.values():
        if json_name(measure.name) == unusual.metric:
            value = format_value(unusual.value, measure.row.unit)
            return measure.words.format(value, format_value(unusual.usual, measure.row.unit))
    return unusual.metric


def _duration_sentence(duration_ms: float, usual: UsualRange) -> str:
    runs = f"the median of the last {len(usual.values)} successful runs."
    if not usual.is_notably_different(duration_ms):
        return f"About as long as {runs}"
    if usual.is_within_spread(duration_ms):
        return f"Within the usual range of the last {len(usual.values)} successful runs."
    shorter_ms, longer_ms = sorted((duration_ms, usual.middle))
    # Nothing is a multiple of 0 ms.
    times = f"{longer_ms / shorter_ms:.1f}× " if shorter_ms else ""
    words = f"{times}{'longer' if duration_ms > usual.middle else 'shorter'} than {runs}"
    return words[0].upper() + words[1:]
