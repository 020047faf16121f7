"""A Snapshot as the text that Prometheus reads, written by prometheus_client.

Always the plain text format: every Prometheus reads it, and writing OpenMetrics takes half as long again.
"""

from collections.abc import Iterator

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from profiler.prometheus.catalogue import CATALOGUE
from profiler.prometheus.metric import PREFIX, TASK_LABELS
from profiler.prometheus.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# No name in ECS is longer than that.
LONGEST_LABEL = 255
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


def metrics_text(snapshot: Snapshot) -> bytes:
    """The exposition: every series once, label values bounded and escaped."""
    return generate_latest(_SnapshotCollector(snapshot))


class _SnapshotCollector(Collector):
    """Collects from a snapshot alone: a scrape never samples."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Each metric that has a series."""
        task = self._snapshot.task
        own = (label_value(task.family or ""), label_value(task.task_id or ""))
        for metric in CATALOGUE:
            # By labels: two values that are equal up to the bound would be one series twice, and cost the whole scrape.
            rows = {
                tuple(map(label_value, labels)): value
                for labels, value in metric.rows(self._snapshot)
                if value is not None
            }
            if rows:
                family = _FAMILIES[metric.kind](
                    PREFIX + metric.name, metric.help, labels=(*TASK_LABELS, *metric.labels)
                )
                for labels, value in rows.items():
                    family.add_metric((*own, *labels), value)
                yield family


def label_value(text: str) -> str:
    """A label's value: not longer than 255 characters, and without what UTF-8 has no bytes for."""
    cut = text[:LONGEST_LABEL]
    return cut if cut.isascii() else cut.encode(errors="replace").decode()
