"""What the search cluster knows of a family's runs: their durations, their memory, a killed run, and a comparison.

A run is compared with the recent successful runs of its family: its duration, its processor, and how much it did. A
batch that does nothing can end with exit code 0. Such a success differs from its family in several measures.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import arn_account, arn_region
from profiler.core.json_fields import Json, mapping, mappings, number, text
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.notices.announcements import Comparison, EndedTask, UnusualMeasure
from profiler.forwarder.search_cluster.interface import SearchCluster, terms
from profiler.forwarder.task_lines import read_line
from profiler.record.family_identity import MAX_RUNS_OF_A_FAMILY, UsualDuration, usual_duration
from profiler.record.hardware import processor_difference
from profiler.record.record_model import Processor, Record, Report
from profiler.record.units import MIB, as_number

COMPARISON_SECONDS = 5.0
# A value that occurs once in a month of daily runs, or once in a day of hourly runs, is usual.
MAX_RUNS = 40
MIN_RUNS = 8
_MIN_DURATIONS = 5
_NOTABLE_RATIO = 1.5
# Each measure, its JSON name in the record, and an amount: values far below it count as equal.
_MEASURES: Mapping[str, tuple[str, float]] = {
    "duration_ms": ("durationMs", 1000),
    "cpu_seconds": ("cpuSeconds", 0.1),
    "block_read_bytes": ("blockReadBytes", MIB),
    "block_write_bytes": ("blockWriteBytes", MIB),
}
_FIELDS = (
    "usage.duration_ms",
    "usage.cpu.seconds",
    "usage.block.read_bytes",
    "usage.block.write_bytes",
    "task.complete",
    "orchestrator.cluster.name",
    "host.cpu.model",
)

# The values of a run by the names of ``_MEASURES``; None if unknown.
Measures = Mapping[str, float | None]

# By family and name of the ECS cluster.
FamilyDurations = Mapping[tuple[str, str], UsualDuration]


class FamilyMemory(Struct, frozen=True, kw_only=True):
    """Reads the runs of families in one account and Region."""

    cluster: SearchCluster
    prefix: str
    timeout_seconds: float

    def durations(self, families: Collection[str], place: str) -> FamilyDurations:
        """The durations of the last 20 successful runs of each family in each ECS cluster, from the last 90 days.

        A family with fewer than 8 of them is left out. ``place`` is an ARN of the account and Region of the runs.
        """
        runs = {
            "top_hits": {
                "size": MAX_RUNS_OF_A_FAMILY,
                "_source": ["usage.duration_ms"],
                "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
            }
        }
        clusters = {"terms": {"field": "orchestrator.cluster.name", "size": 50}, "aggs": {"runs": runs}}
        in_families = {"terms": {"field": "task.family", "size": len(families)}, "aggs": {"clusters": clusters}}
        response = self._search(
            place,
            {"size": 0, "aggs": {"families": in_families}},
            {"terms": {"task.family": sorted(families)}},
            {"term": {"task.status": "success"}},
            {"range": {"@timestamp": {"gte": "now-90d"}}},
            {"range": {"usage.duration_ms": {"gt": 0}}},
        )
        found = {}
        for family in _buckets(response.get("aggregations"), "families"):
            for in_cluster in _buckets(family, "clusters"):
                sources = _sources(mapping(in_cluster.get("runs")))
                lasted = [number(mapping(source.get("usage")).get("duration_ms")) for source in sources]
                known = [duration_ms for duration_ms in lasted if duration_ms]
                usual = usual_duration(known) if len(known) >= MIN_RUNS else None
                if usual is not None:
                    found[str(family.get("key")), str(in_cluster.get("key"))] = usual
        return found

    def highest_peak_mb(self, ended: EndedTask) -> float | None:
        """The highest peak of the family's successes; None without one, or if the search is refused for good."""
        peak = {"size": 0, "aggs": {"peak": {"max": {"field": "usage.memory.used_mb.max"}}}}
        of_family = {"term": {"task.family": ended.family}}
        try:
            found = self._search(ended.task.arn, peak, of_family, {"term": {"task.status": "success"}})
        except SearchClusterError as error:
            if error.is_retryable:
                raise
            return None
        return number(mapping(mapping(found.get("aggregations")).get("peak")).get("value"))

    def killed_run(self, ended: EndedTask, short_id: str) -> tuple[str | None, Record | None]:
        """The whole id of the killed run, and its record; None for what is not found, or not certain."""
        wanted, of_family = {"size": 10, "_source": ["task.id", "record"]}, {"term": {"task.family": ended.family}}
        try:
            found = self._search(ended.task.arn, wanted, of_family, {"prefix": {"task.id": short_id}})
        except SearchClusterError:
            return None, None
        sources = _sources(found)
        ids = {text(mapping(source.get("task")).get("id")) for source in sources}
        if len(ids) != 1:
            return None, None
        lines = (read_line(str(source.get("record"))) for source in sources)
        return ids.pop(), next((line.record for line in lines if isinstance(line, Report)), None)

    def _search(self, arn: str, body: Mapping[str, Json], *conditions: Json) -> Mapping[str, Json]:
        place = terms({"cloud.account.id": arn_account(arn), "cloud.region": arn_region(arn)})
        query = {"bool": {"filter": [*place, *conditions]}}
        return self.cluster.search(f"{self.prefix}-reports-*", {**body, "query": query}, self.timeout_seconds)


def _buckets(parent: Json, name: str) -> Iterator[Mapping[str, Json]]:
    return mappings(mapping(mapping(parent).get(name)).get("buckets"))


def _sources(response: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    return [mapping(hit.get("_source")) for hit in mappings(mapping(response.get("hits")).get("hits"))]


class _Run(Struct, frozen=True, kw_only=True):
    """An earlier run. ``measures`` is empty without a complete report."""

    cluster: Json
    processor: str | None
    duration_ms: float | None
    measures: Measures


def compare(
    cluster: SearchCluster, notice: EndedTask, *, prefix: str, timeout_seconds: float = COMPARISON_SECONDS
) -> Comparison | None:
    """Compare the run with the family's recent successful runs, which one search returns.

    The family's runs are the runs in the same account and Region. If there are enough of them, only runs in the same
    ECS cluster count. If the processor differs from the latest run's, the text contains both. None without a duration,
    with fewer than 5 runs, or if the search cluster does not respond in time.
    """
    duration_ms = notice.duration_ms
    if duration_ms is None or duration_ms <= 0:
        return None
    try:
        response = cluster.search(f"{prefix}-reports-*", _recent_runs_query(notice), timeout_seconds)
    except SearchClusterError:
        return None
    runs = [_run(source) for source in _sources(response)]
    timed = [run for run in runs[:20] if run.duration_ms is not None]
    durations = [run.duration_ms or 0 for run in _in_cluster(timed, notice.task.cluster, _MIN_DURATIONS)]
    if len(durations) < _MIN_DURATIONS:
        return None
    ratio = duration_ms / median(durations)
    sentences = (_sentence(ratio, len(durations)), _processor_sentence(notice.record, runs[0].processor))
    return Comparison(
        text=" ".join(filter(None, sentences)),
        is_slow=ratio >= _NOTABLE_RATIO,
        unusual=_unusual_measures(notice, runs),
    )


def _recent_runs_query(notice: EndedTask) -> dict[str, object]:
    """Build the query for the newest successful runs of the family; those in the same ECS cluster come first."""
    values = {
        "task.family": notice.family,
        "task.status": "success",
        "cloud.account.id": arn_account(notice.task.arn),
        "cloud.region": notice.task.region,
    }
    query: dict[str, object] = {"filter": terms(values), "must_not": [{"term": {"task.id": notice.task.id}}]}
    if notice.task.cluster is not None:
        query["should"] = [{"constant_score": {"filter": {"term": {"orchestrator.cluster.name": notice.task.cluster}}}}]
    return {
        "size": MAX_RUNS,
        "_source": list(_FIELDS),
        "query": {"bool": query},
        "sort": [{"_score": {"order": "desc"}}, {"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
    }


def _run(source: Mapping[str, Json]) -> _Run:
    usage = mapping(source.get("usage"))
    block = mapping(usage.get("block"))
    duration_ms = number(usage.get("duration_ms"))
    measures = {
        "duration_ms": duration_ms,
        "cpu_seconds": _amount(mapping(usage.get("cpu")).get("seconds")),
        "block_read_bytes": _amount(block.get("read_bytes")),
        "block_write_bytes": _amount(block.get("write_bytes")),
    }
    return _Run(
        cluster=mapping(mapping(source.get("orchestrator")).get("cluster")).get("name"),
        processor=text(mapping(mapping(source.get("host")).get("cpu")).get("model")),
        duration_ms=duration_ms,
        measures=measures if mapping(source.get("task")).get("complete") is True else {},
    )


def _amount(value: Json) -> float | None:
    return 0.0 if value == 0 else number(value)


def _in_cluster(runs: Sequence[_Run], ecs_cluster: str | None, enough: int) -> Sequence[_Run]:
    """Return the runs in the ECS cluster if there are enough of them, else all."""
    same = [run for run in runs if run.cluster == ecs_cluster]
    return same if len(same) >= enough else runs


def _unusual_measures(notice: EndedTask, runs: Sequence[_Run]) -> tuple[UnusualMeasure, ...]:
    """Compare the work of a success. The numbers of a checkpoint cover only a part of the run and are not compared."""
    if notice.outcome.status != "success" or not notice.is_complete:
        return ()
    own = {name: _amount(getattr(notice.metrics, name)) for name in _MEASURES}
    complete = [run for run in runs if run.measures]
    return find_unusual(own, [run.measures for run in _in_cluster(complete, notice.task.cluster, MIN_RUNS)])


def find_unusual(own: Measures, earlier: Sequence[Measures]) -> tuple[UnusualMeasure, ...]:
    """Return the measures in which a run lies far outside the earlier ones; none if it is only one measure.

    Such a value lies beyond median ± 6 × MAD (median absolute deviation) of the logarithms, and is below a third or
    above three times the median. Many families have a larger run, for example once a week. Therefore, it must also be
    below half or above twice of all earlier values. Only the latest one does not count, so that a second unusual run
    in a row is found as well. ``earlier`` has the latest run first.
    """
    found = []
    for name, (json_name, small) in _MEASURES.items():
        value = own.get(name)
        values = [amount for run in earlier if (amount := run.get(name)) is not None]
        if value is None or len(values) < MIN_RUNS:
            continue
        usual = median(values)
        if _is_far(value, usual, values, small):
            found.append(UnusualMeasure(metric=json_name, value=as_number(value) or 0, usual=as_number(usual) or 0))
    return tuple(found) if len(found) > 1 else ()


def _is_far(value: float, usual: float, earlier: Sequence[float], small: float) -> bool:
    level, usual_level, *levels = (math.log(amount + small) for amount in (value, usual, *earlier))
    middle = median(levels)
    deviation = median(abs(other - middle) for other in levels)
    beyond_all = level - max(levels[1:]) if level > usual_level else min(levels[1:]) - level
    return abs(level - middle) > 6 * deviation and abs(level - usual_level) > math.log(3) and beyond_all > math.log(2)


def _processor_sentence(record: Record | None, model: str | None) -> str | None:
    if record is None or model is None:
        return None
    difference = processor_difference(record, replace(record, processor=Processor(model=model)), "the last success")
    return None if difference is None else f"It {difference}."


def _sentence(ratio: float, runs: int) -> str:
    if ratio >= _NOTABLE_RATIO:
        return f"{ratio:.1f}× longer than the median of the last {runs} successful runs."
    if ratio <= 1 / _NOTABLE_RATIO:
        return f"{1 / ratio:.1f}× shorter than the median of the last {runs} successful runs."
    return f"About as long as the median of the last {runs} successful runs."
