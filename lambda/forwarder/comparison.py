"""How a run's duration compares with its family's recent successful runs, in a sentence."""

from statistics import median

from forwarder.cluster import Cluster
from forwarder.errors import ClusterError

_RUNS = 20
_FEWEST_RUNS = 5
_SECONDS = 5.0
_WORTH_TELLING = 1.5


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
        "size": _RUNS,
        "_source": ["usage.duration_ms"],
        "query": query,
        "sort": [{"@timestamp": {"order": "desc", "unmapped_type": "date"}}],
    }
    try:
        durations = _durations(cluster.search(f"{prefix}-reports-*", body, _SECONDS))
    except ClusterError:
        return None
    usual_ms = median(durations) if len(durations) >= _FEWEST_RUNS else 0
    return _sentence(duration_ms / usual_ms, len(durations)) if usual_ms > 0 else None


def _durations(answer: object) -> list[float]:
    hits = answer.get("hits", {}).get("hits", []) if isinstance(answer, dict) else []
    found = [hit.get("_source", {}).get("usage", {}).get("duration_ms") for hit in hits]
    return [float(value) for value in found if isinstance(value, int | float) and value > 0]


def _sentence(ratio: float, runs: int) -> str:
    if ratio >= _WORTH_TELLING:
        return f"{ratio:.1f}× longer than the median of the last {runs} successful runs."
    if ratio <= 1 / _WORTH_TELLING:
        return f"{1 / ratio:.1f}× shorter than the median of the last {runs} successful runs."
    return f"About as long as the median of the last {runs} successful runs."
