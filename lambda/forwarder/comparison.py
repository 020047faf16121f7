"""How a run's duration compares with its family's recent successful runs, in a sentence."""

from statistics import median

import msgspec
from msgspec import Struct

from forwarder.cluster import Cluster
from forwarder.errors import ClusterError

_MAX_RUNS = 20
_MIN_RUNS = 5
_TIMEOUT_SECONDS = 5.0
_NOTABLE_RATIO = 1.5


class _Usage(Struct):
    duration_ms: float | None = None


class _Source(Struct):
    usage: _Usage = msgspec.field(default_factory=_Usage)


class _Hit(Struct):
    source: _Source = msgspec.field(name="_source", default_factory=_Source)


class _Hits(Struct):
    hits: tuple[_Hit, ...] = ()


class _Answer(Struct):
    hits: _Hits = msgspec.field(default_factory=_Hits)


def compare(cluster: Cluster, *, prefix: str, family: str, task_id: str, duration_ms: float | None) -> str | None:
    """The sentence; None with too few runs, no duration, or a cluster that does not answer at once."""
    if duration_ms is None or duration_ms <= 0:
        return None
    query = {
        "bool": {
            "filter": [{"term": {"task.family": family}}, {"term": {"task.status": "success"}}],
            "must_not": [{"term": {"task.id": task_id}}],
        }
    }
    body = {
        "size": _MAX_RUNS,
        "_source": ["usage.duration_ms"],
        "query": query,
        "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
    }
    try:
        durations = _durations(cluster.search(f"{prefix}-reports-*", body, _TIMEOUT_SECONDS))
    except ClusterError:
        return None
    usual_ms = median(durations) if len(durations) >= _MIN_RUNS else 0
    return _sentence(duration_ms / usual_ms, len(durations)) if usual_ms > 0 else None


def _durations(answer: object) -> list[float]:
    try:
        hits = msgspec.convert(answer, type=_Answer).hits.hits
    except msgspec.ValidationError:
        return []
    durations = (hit.source.usage.duration_ms for hit in hits)
    return [duration for duration in durations if duration is not None and duration > 0]


def _sentence(ratio: float, runs: int) -> str:
    if ratio >= _NOTABLE_RATIO:
        return f"{ratio:.1f}× longer than the median of the last {runs} successful runs."
    if ratio <= 1 / _NOTABLE_RATIO:
        return f"{1 / ratio:.1f}× shorter than the median of the last {runs} successful runs."
    return f"About as long as the median of the last {runs} successful runs."
