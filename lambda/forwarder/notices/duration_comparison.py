"""Compares the duration of a run, and its processor, with recent successful runs of its family."""

from collections.abc import Iterable, Mapping
from statistics import median

from msgspec.structs import replace

from forwarder.delivery_errors import SearchClusterError
from forwarder.notices.ended_task import Comparison, EndedTask
from forwarder.search_cluster.interface import SearchCluster
from profiler.core.ecs_terms import arn_part
from profiler.core.json_fields import mapping, mappings, number, text
from profiler.record.hardware import processor_difference
from profiler.record.record_model import Processor, Record

COMPARISON_SECONDS = 5.0
_MAX_RUNS = 20
_MIN_RUNS = 5
_NOTABLE_RATIO = 1.5
_ACCOUNT_PART = 4


def compare(
    cluster: SearchCluster, notice: EndedTask, *, prefix: str, timeout_seconds: float = COMPARISON_SECONDS
) -> Comparison | None:
    """Compare the duration with the median of the family's recent successful runs.

    The family's runs are those of the same account and Region. If there are enough of them, only runs in the same ECS
    cluster count. A processor other than that of the latest one is named.

    Returns:
        None without a duration, with fewer than 5 runs, or if the search cluster does not respond in time.
    """
    duration_ms = notice.duration_ms
    if duration_ms is None or duration_ms <= 0:
        return None
    try:
        response = cluster.search(f"{prefix}-reports-*", _recent_runs_query(notice), timeout_seconds)
    except SearchClusterError:
        return None
    runs = [mapping(hit.get("_source")) for hit in mappings(mapping(response.get("hits")).get("hits"))]
    durations = _durations(runs, notice.task.cluster)
    median_ms = median(durations) if len(durations) >= _MIN_RUNS else 0
    if median_ms <= 0:
        return None
    ratio = duration_ms / median_ms
    sentences = (_sentence(ratio, len(durations)), _processor_sentence(notice.record, runs[0]))
    return Comparison(text=" ".join(filter(None, sentences)), is_slow=ratio >= _NOTABLE_RATIO)


def _recent_runs_query(notice: EndedTask) -> dict[str, object]:
    """Build the query for the newest successful runs of the family; those in the same ECS cluster come first."""
    values = {
        "task.family": notice.family,
        "task.status": "success",
        "cloud.account.id": arn_part(notice.task.arn, _ACCOUNT_PART),
        "cloud.region": notice.task.region,
    }
    query: dict[str, object] = {
        "filter": [{"term": {field: value}} for field, value in values.items() if value is not None],
        "must_not": [{"term": {"task.id": notice.task.id}}],
    }
    if notice.task.cluster is not None:
        query["should"] = [{"constant_score": {"filter": {"term": {"orchestrator.cluster.name": notice.task.cluster}}}}]
    return {
        "size": _MAX_RUNS,
        "_source": ["usage.duration_ms", "orchestrator.cluster.name", "host.cpu.model"],
        "query": {"bool": query},
        "sort": [{"_score": {"order": "desc"}}, {"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
    }


def _durations(sources: Iterable[Mapping[str, object]], ecs_cluster: str | None) -> list[float]:
    """Read the durations: those in the ECS cluster if there are enough of them, else all."""
    runs = [
        (mapping(mapping(source.get("orchestrator")).get("cluster")).get("name"), duration_ms)
        for source in sources
        if (duration_ms := number(mapping(source.get("usage")).get("duration_ms"))) is not None
    ]
    same = [duration_ms for name, duration_ms in runs if name == ecs_cluster]
    return same if len(same) >= _MIN_RUNS else [duration_ms for _, duration_ms in runs]


def _processor_sentence(record: Record | None, last_success: Mapping[str, object]) -> str | None:
    model = text(mapping(mapping(last_success.get("host")).get("cpu")).get("model"))
    if record is None or model is None:
        return None
    other = replace(record, processor=Processor(model=model))
    difference = processor_difference(record, other, "the last success")
    return None if difference is None else f"It {difference}."


def _sentence(ratio: float, runs: int) -> str:
    if ratio >= _NOTABLE_RATIO:
        return f"{ratio:.1f}× longer than the median of the last {runs} successful runs."
    if ratio <= 1 / _NOTABLE_RATIO:
        return f"{1 / ratio:.1f}× shorter than the median of the last {runs} successful runs."
    return f"About as long as the median of the last {runs} successful runs."
