"""What the search cluster knows of a family's runs: durations, memory, a killed run, and a
comparison.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import Json, field_at, mappings, number, text
from profiler.core.timestamps import DAYS_PER_MONTH
from profiler.forwarder.documents import Document, with_runs_per_month
from profiler.forwarder.ended_run import Comparison, EndedTask, UnusualMeasure
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.search_cluster.interface import SearchCluster, hit_sources
from profiler.record.fact_list import CPU_TIME, DURATION, READ, WRITTEN, NumberRow, bound_of
from profiler.record.family_identity import MAX_RUNS_OF_A_FAMILY, UsualDuration, usual_duration
from profiler.record.hardware import processor_difference
from profiler.record.model_base import json_name
from profiler.record.record_model import Processor, TaskSize
from profiler.record.units import MIB, as_number, format_value
from profiler.record.unusual import MIN_FAR_RUNS, MIN_RUNS, Usual, usual_of

COMPARISON_SECONDS = 5.0
# A value that occurs once in a month of daily runs, or once in a day of hourly runs, is usual.
MAX_RUNS = 40
# As `recommend`: of fewer tasks, or of less than a day, nothing is extrapolated.
_MIN_TASKS_OF_RATE = 5
_MS_PER_DAY = 86_400_000
_MAX_KEPT_RATES = 10_000
_MAX_DURATIONS = 20


class _Measure(Struct, frozen=True):
    """A measure of a run's work: an amount (values far below it count as equal), and its words."""

    row: NumberRow
    small: float
    words: str

    @property
    def name(self) -> str:
        """The field of the metrics."""
        return self.row.path.rpartition(".")[2]


# By the field of a document.
_MEASURES = {
    "usage.duration_ms": _Measure(DURATION, 1000, "took {} (usually {})"),
    "usage.cpu.seconds": _Measure(CPU_TIME, 0.1, "used {} of CPU time (usually {})"),
    "usage.block.read_bytes": _Measure(READ, MIB, "read {} (usually {})"),
    "usage.block.write_bytes": _Measure(WRITTEN, MIB, "wrote {} (usually {})"),
}
_COMPLETE = "task.complete"
_CLUSTER = "orchestrator.cluster.name"
_PROCESSOR = "host.cpu.model"
_SUCCESS = {"term": {"task.status": "success"}}
# A report alone can name any family.
_CONFIRMED = {"term": {"task.confirmed": True}}

# The values of a run by the names of the measures; None if unknown.
Measures = Mapping[str, float | None]

# A family in an account and Region: account, Region, family.
FamilyPlace = tuple[str, str, str]

# By family and name of the ECS cluster.
FamilyDurations = Mapping[tuple[str, str], UsualDuration]


class FamilyMemory(Struct, frozen=True, kw_only=True):
    """Reads the confirmed runs of families in one account and Region."""

    cluster: SearchCluster
    prefix: str
    timeout_seconds: float

    def durations(self, families: Collection[str], place: str) -> FamilyDurations:
        """The usual durations, of 8 to 20 successes of the last 90 days, in the account and
        Region of an ARN.
        """
        runs = {
            "top_hits": {
                "size": MAX_RUNS_OF_A_FAMILY,
                "_source": ["usage.duration_ms"],
                "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
            }
        }
        clusters = {"terms": {"field": _CLUSTER, "size": 50}, "aggs": {"runs": runs}}
        in_families = {
            "terms": {"field": "task.family", "size": len(families)},
            "aggs": {"clusters": clusters},
        }
        response = self._search(
            place,
            {"size": 0, "aggs": {"families": in_families}},
            {"terms": {"task.family": sorted(families)}},
            _SUCCESS,
            {"range": {"@timestamp": {"gte": "now-90d"}}},
            {"range": {"usage.duration_ms": {"gt": 0}}},
        )
        durations = {}
        for family in mappings(field_at(response, "aggregations.families.buckets")):
            for in_cluster in mappings(field_at(family, "clusters.buckets")):
                known = [_duration_ms(run) or 0 for run in hit_sources(in_cluster.get("runs"))]
                usual = usual_duration([duration_ms for duration_ms in known if duration_ms])
                if usual is not None and usual.runs >= MIN_FAR_RUNS:
                    durations[str(family.get("key")), str(in_cluster.get("key"))] = usual
        return durations

    def compare(self, notice: EndedTask) -> Comparison | None:
        """Compare the run with its family's successes, preferably in its ECS cluster.

        None with fewer than 5.
        """
        duration_ms = notice.duration_ms
        ecs_cluster = notice.task.cluster
        if duration_ms is None or duration_ms <= 0:
            return None
        newest = {
            "size": MAX_RUNS,
            "_source": [*_MEASURES, _COMPLETE, _CLUSTER, _PROCESSOR],
            "sort": [
                {"_score": {"order": "desc"}},
                {"@timestamp": {"order": "desc", "unmapped_type": "date"}},
            ],
        }
        # Runs in the same ECS cluster come first.
        preferred = []
        if ecs_cluster is not None:
            preferred.append({"constant_score": {"filter": {"term": {_CLUSTER: ecs_cluster}}}})
        others = {"must_not": [{"term": {"task.id": notice.task.id}}], "should": preferred}
        try:
            response = self._search(notice.task.arn, newest, _of_family(notice), _SUCCESS, **others)
        except SearchClusterError:
            return None
        runs = hit_sources(response)
        timed = [run for run in runs[:_MAX_DURATIONS] if _duration_ms(run) is not None]
        usual = usual_of(map(_duration_ms, _in_cluster(timed, ecs_cluster, MIN_RUNS)))
        if usual is None:
            return None
        sentences = [_duration_sentence(duration_ms, usual)]
        model = text(field_at(runs[0], _PROCESSOR))
        if notice.record is not None and model is not None:
            last = replace(notice.record, processor=Processor(model=model))
            difference = processor_difference(notice.record, last, "the last success")
            if difference is not None:
                sentences.append(f"It {difference}.")
        return Comparison(
            text=" ".join(sentences),
            is_slow=duration_ms > usual.middle
            and usual.differs(duration_ms)
            and not usual.holds(duration_ms),
            unusual=_unusual_measures(notice, runs),
        )

    def runs_per_month(self, families: Collection[str], place: str) -> Mapping[str, float]:
        """The runs a month of families, from the tasks of the last 30 days, in the account and
        Region of an ARN. A family with fewer than 5 tasks, or of less than a day, has none.

        Raises SearchClusterError.
        """
        window = {
            "tasks": {"cardinality": {"field": "task.id"}},
            "first": {"min": {"field": "@timestamp"}},
            "last": {"max": {"field": "@timestamp"}},
        }
        in_families = {"terms": {"field": "task.family", "size": len(families)}, "aggs": window}
        response = self._search(
            place,
            {"size": 0, "aggs": {"families": in_families}},
            {"terms": {"task.family": sorted(families)}},
            {"range": {"@timestamp": {"gte": "now-30d"}}},
        )
        rates = {}
        for family in mappings(field_at(response, "aggregations.families.buckets")):
            tasks = number(field_at(family, "tasks.value")) or 0
            first_ms = number(field_at(family, "first.value")) or 0
            last_ms = number(field_at(family, "last.value")) or 0
            days = (last_ms - first_ms) / _MS_PER_DAY
            if tasks >= _MIN_TASKS_OF_RATE and days >= 1:
                rates[str(family.get("key"))] = (tasks - 1) / days * DAYS_PER_MONTH
        return rates

    def highest_peak_mb(self, ended: EndedTask) -> float | None:
        """The highest peak of the family's successes; None without one, or if the search is
        refused for good.
        """
        peak = {"size": 0, "aggs": {"peak": {"max": {"field": "usage.memory.used_mb.max"}}}}
        try:
            answer = self._search(ended.task.arn, peak, _of_family(ended), _SUCCESS)
        except SearchClusterError as error:
            if error.is_retryable:
                raise
            return None
        return number(field_at(answer, "aggregations.peak.value"))

    def killed_run(self, ended: EndedTask, short_id: str) -> tuple[str | None, TaskSize]:
        """The whole id of the killed run, and its size (on EC2, its batch's memory limit); None
        where not certain.
        """
        wanted = {"size": 10, "_source": ["task.id", "task.size", "usage.memory.size_mb"]}
        killed = {"prefix": {"task.id": short_id}}, {"term": {"container.name": ended.container}}
        try:
            sources = hit_sources(self._search(ended.task.arn, wanted, _of_family(ended), *killed))
        except SearchClusterError:
            return None, TaskSize()
        if len(sources) != 1:
            return None, TaskSize()
        if ended.task.is_on_fargate:
            memory = "task.size.memory_mb"
        else:
            memory = "usage.memory.size_mb"
        size = TaskSize(
            vcpu=number(field_at(sources[0], "task.size.vcpu")),
            memory_mb=number(field_at(sources[0], memory)),
        )
        return text(field_at(sources[0], "task.id")), size

    def _search(
        self, arn: str, body: Mapping[str, Json], *conditions: Json, **others: Json
    ) -> Mapping[str, Json]:
        place = {"cloud.account.id": arn_account(arn), "cloud.region": arn_region(arn)}
        known = ({"term": {field: value}} for field, value in place.items() if value is not None)
        query = {"bool": {"filter": [_CONFIRMED, *known, *conditions], **others}}
        return self.cluster.search(
            f"{self.prefix}-reports-*", {**body, "query": query}, self.timeout_seconds
        )


class FamilyRates:
    """The runs a month of families, each looked up once in a ``period_ns``.

    A family that is not known, and one of a cluster that does not answer, has none until then.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._rates: dict[FamilyPlace, float | None] = {}
        self._since_ns = 0

    def with_savings(
        self, documents: Sequence[Document], memory: Callable[[], FamilyMemory], now_ns: int
    ) -> list[Document]:
        """The documents, those of runs that have a saving with the saving of a month."""
        if now_ns - self._since_ns > self._period_ns or len(self._rates) > _MAX_KEPT_RATES:
            self._rates.clear()
            self._since_ns = now_ns
        families = [_family_to_save(document) for document in documents]
        unknown = {family for family in families if family is not None} - self._rates.keys()
        if unknown:
            self._look_up(unknown, memory())
        changed = []
        for document, family in zip(documents, families, strict=True):
            rate = None if family is None else self._rates.get(family)
            changed.append(document if rate is None else with_runs_per_month(document, rate))
        return changed

    def _look_up(self, families: Collection[FamilyPlace], memory: FamilyMemory) -> None:
        for (account, region), group in groupby(sorted(families), lambda family: family[:2]):
            names = [family for _, _, family in group]
            try:
                rates = memory.runs_per_month(names, f"arn:aws:ecs:{region}:{account}:task/any")
            except SearchClusterError:
                rates = {}
            for name in names:
                self._rates[account, region, name] = rates.get(name)


def _family_to_save(document: Document) -> FamilyPlace | None:
    """The family of a run that another size would have made cheaper."""
    fields = document.fields
    if not number(field_at(fields, "cost.waste_usd")):
        return None
    account = text(field_at(fields, "cloud.account.id"))
    region = text(field_at(fields, "cloud.region"))
    family = text(field_at(fields, "task.family"))
    if account is None or region is None or family is None:
        return None
    return account, region, family


def _of_family(ended: EndedTask) -> Json:
    return {"term": {"task.family": ended.family}}


def _duration_ms(source: Json) -> float | None:
    return number(field_at(source, "usage.duration_ms"))


def _in_cluster(runs: Sequence[Json], ecs_cluster: str | None, enough: int) -> Sequence[Json]:
    """Return the runs in the ECS cluster if there are enough of them, else all."""
    same = [run for run in runs if field_at(run, _CLUSTER) == ecs_cluster]
    return same if len(same) >= enough else runs


def _unusual_measures(notice: EndedTask, runs: Sequence[Json]) -> tuple[UnusualMeasure, ...]:
    """Compare the work of a success.

    The numbers of a checkpoint cover only a part of the run and are not compared.
    """
    if notice.outcome.status != "success" or not notice.is_complete:
        return ()
    own: dict[str, float | None] = {}
    for measure in _MEASURES.values():
        if notice.record is None or not bound_of(measure.row, notice.record):
            own[measure.name] = _amount(getattr(notice.metrics, measure.name))
    complete = [run for run in runs if field_at(run, _COMPLETE) is True]
    earlier = [
        _measures_of(run) for run in _in_cluster(complete, notice.task.cluster, MIN_FAR_RUNS)
    ]
    return find_unusual(own, earlier)


def _amount(value: Json) -> float | None:
    return 0.0 if value == 0 else number(value)


def _measures_of(run: Json) -> Measures:
    return {measure.name: _amount(field_at(run, field)) for field, measure in _MEASURES.items()}


def find_unusual(own: Measures, earlier: Sequence[Measures]) -> tuple[UnusualMeasure, ...]:
    """Return the measures in which a run lies far outside the earlier ones, the latest of which
    is first; none if it is only one measure.
    """
    unusual = []
    for measure in _MEASURES.values():
        value = own.get(measure.name)
        usual = usual_of(run.get(measure.name) for run in earlier)
        if value is not None and usual is not None and usual.is_far(value, measure.small):
            unusual.append(
                UnusualMeasure(
                    metric=json_name(measure.name),
                    value=as_number(value) or 0,
                    usual=as_number(usual.middle) or 0,
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


def _duration_sentence(duration_ms: float, usual: Usual) -> str:
    runs = f"the median of the last {len(usual.values)} successful runs."
    if not usual.differs(duration_ms):
        return f"About as long as {runs}"
    if usual.holds(duration_ms):
        return f"Within the usual range of the last {len(usual.values)} successful runs."
    if duration_ms > usual.middle:
        return f"{duration_ms / usual.middle:.1f}× longer than {runs}"
    return f"{usual.middle / duration_ms:.1f}× shorter than {runs}"
