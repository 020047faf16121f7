"""A snapshot in Prometheus' plain text format.

Every version of Prometheus reads this format, and generating OpenMetrics takes 50 % longer. prometheus_client generates
the header lines of a metric and formats the numbers. This module generates the lines of the series: prometheus_client
would format the labels of each series again, which is most of the work, while the labels of a container, a GPU or a
NeuronCore are the same in every metric and in every scrape.
"""

from collections.abc import Callable, Iterator
from functools import cache, lru_cache

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from profiler.core.text import without_surrogates
from profiler.prometheus.live_metrics import LIVE_METRICS, PREFIX, TASK_LABELS, LiveMetric
from profiler.prometheus.snapshot import Snapshot

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The longest name in ECS.
MAX_LABEL_LENGTH = 255
# Twice the largest possible number: 16 containers, 32 GPUs with 8 reasons each, 128 NeuronCores.
_LABEL_CACHE_SIZE = 1024
_format_number: Callable[[float], str] = floatToGoString
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def metrics_text(snapshot: Snapshot) -> bytes:
    """The text of a snapshot: each series once, with label values cut and escaped."""
    task_values = (snapshot.task.family or "", snapshot.task.task_id or "")
    return "".join(part for metric in LIVE_METRICS for part in _render_metric(metric, snapshot, task_values)).encode()


def _render_metric(metric: LiveMetric, snapshot: Snapshot, task_values: tuple[str, str]) -> Iterator[str]:
    """The header lines and the series of a metric; nothing without series."""
    # By labels: with two names that are equal after the cut, a series would be there twice, and Prometheus would
    # reject the whole scrape.
    series = {
        _labels(metric.labels, task_values + labels): value
        for labels, value in metric.rows(snapshot)
        if value is not None
    }
    if series:
        yield _header(metric)
        name = metric.full_name
        for labels, value in series.items():
            yield f"{name}{labels} {_format_number(value)}\n"


@cache
def _header(metric: LiveMetric) -> str:
    """The lines with the metric's help text and type. The cache holds one entry for each metric."""
    return generate_latest(_SingleFamilyCollector(_FAMILIES[metric.kind](PREFIX + metric.name, metric.help))).decode()


class _SingleFamilyCollector(Collector):
    """A collector of one metric family, for ``generate_latest``."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def collect(self) -> Iterator[Family]:
        """Yield the family."""
        yield self._family


@lru_cache(_LABEL_CACHE_SIZE)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a series in braces: those of the task and the metric's ``names``, sorted by name."""
    pairs = sorted(zip((*TASK_LABELS, *names), map(label_value, values), strict=True))
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"


def label_value(text: str) -> str:
    """The value of a label: at most 255 characters, with characters that UTF-8 cannot encode replaced."""
    return without_surrogates(text[:MAX_LABEL_LENGTH])
