"""A Snapshot as the text that Prometheus reads.

Always the plain text format: every Prometheus reads it, and writing OpenMetrics takes half as long again. Heads of
metrics and numbers are prometheus_client's. Its lines are not: it makes each series' labels anew, which is most
of the work, and a container's, GPU's or core's are the same in every metric and at every scrape.
"""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from profiler.prometheus.catalogue import CATALOGUE
from profiler.prometheus.metric import PREFIX, TASK_LABELS, Metric
from profiler.prometheus.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# No name in ECS is longer than that.
MAX_LABEL_LENGTH = 255
# Twice what there can be at once: 16 containers, 32 GPUs with 8 reasons each, 128 cores.
_LABEL_CACHE_SIZE = 1024
_number: Callable[[float], str] = floatToGoString
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def metrics_text(snapshot: Snapshot) -> bytes:
    """The exposition: every series once, label values bounded and escaped."""
    own = (snapshot.task.family or "", snapshot.task.task_id or "")
    return "".join(part for metric in CATALOGUE for part in _render_metric(metric, snapshot, own)).encode()


def _render_metric(metric: Metric, snapshot: Snapshot, own: tuple[str, str]) -> Iterator[str]:
    """A metric's head and series, nothing if it has none."""
    # By labels: two values that are equal up to the bound would be one series twice, and cost the whole scrape.
    series = {
        _labels(metric.labels, own + labels): value for labels, value in metric.rows(snapshot) if value is not None
    }
    if series:
        yield _head(metric)
        name = metric.full_name
        for labels, value in series.items():
            yield f"{name}{labels} {_number(value)}\n"


@cache
def _head(metric: Metric) -> str:
    """What stands above a metric's series, of which there are as many as in the catalogue."""
    return generate_latest(_SingleFamilyCollector(_FAMILIES[metric.kind](PREFIX + metric.name, metric.help))).decode()


class _SingleFamilyCollector(Collector):
    """One family, as prometheus_client wants it."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        """It alone."""
        yield self._family


@lru_cache(_LABEL_CACHE_SIZE)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The braces of a series: the task's labels and the metric's ``names``, in the order of the alphabet."""
    pairs = sorted(zip((*TASK_LABELS, *names), map(label_value, values), strict=True))
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"


def label_value(text: str) -> str:
    """A label's value: not longer than 255 characters, and without what UTF-8 has no bytes for."""
    cut = text[:MAX_LABEL_LENGTH]
    return cut if cut.isascii() else cut.encode(errors="replace").decode()
