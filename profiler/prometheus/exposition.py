"""A snapshot in Prometheus' plain text format.

Every version of Prometheus reads this format, and generating OpenMetrics takes 50 % longer. prometheus_client formats
the numbers. It would take six times as long to generate the whole text, because it formats the labels of each series
again, while the labels of a container, a GPU or a NeuronCore are the same in every metric and in every scrape.
"""

from collections.abc import Callable
from functools import lru_cache

from prometheus_client import utils

from profiler.core.text import without_surrogates
from profiler.prometheus.prometheus_metrics import LIVE_METRICS, TASK_LABELS, live_values, task_labels
from profiler.prometheus.snapshot import Snapshot

# The longest name in ECS.
MAX_LABEL_LENGTH = 255
# Twice the largest possible number: 16 containers, 32 GPUs with 8 reasons each, 128 NeuronCores.
_LABEL_CACHE_SIZE = 1024
_format_number: Callable[[float], str] = utils.floatToGoString
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_LABELS_BY_METRIC = {metric.name: metric.labels for metric in LIVE_METRICS}


def metrics_text(snapshot: Snapshot) -> bytes:
    """The text of a snapshot: each series once, with label values cut and escaped."""
    # By labels: with two names that are equal after the cut, a series would be there twice, and Prometheus would
    # reject the whole scrape.
    series: dict[str, dict[str, float]] = {metric.name: {} for metric in LIVE_METRICS}
    labels_of_task = task_labels(snapshot)
    for labels, values in live_values(snapshot):
        text = ""
        for name, value in values.items():
            if value is not None:
                text = text or _labels(_LABELS_BY_METRIC[name], labels_of_task + labels)
                series[name][text] = value
    parts: list[str] = []
    for metric in LIVE_METRICS:
        name = metric.full_name
        if series[metric.name]:
            parts.append(f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n")
            parts += [f"{name}{labels} {_format_number(value)}\n" for labels, value in series[metric.name].items()]
    return "".join(parts).encode()


@lru_cache(_LABEL_CACHE_SIZE)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """The labels of a series in braces: those of the task and the metric's ``names``, sorted by name."""
    pairs = sorted(zip((*TASK_LABELS, *names), map(label_value, values), strict=True))
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in pairs) + "}"


def label_value(text: str) -> str:
    """The value of a label: at most 255 characters, with characters that UTF-8 cannot encode replaced."""
    return without_surrogates(text[:MAX_LABEL_LENGTH])
