"""What a metric is.

Names are those of Prometheus's conventions: base units, the unit at the end, ``_total`` for what
counts up. Every series has the labels ``task_family`` and ``task_id``, and those of its metric.
"""

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from profiler.prometheus.snapshot import Snapshot

Kind = Literal["gauge", "counter"]
# The values of a metric's labels, and its value.
Row = tuple[tuple[str, ...], float | None]

PREFIX = "task_profiler_"
TASK_LABELS = ("task_family", "task_id")


class Metric(Struct, frozen=True):
    """A metric. ``name`` stands without the prefix, and a counter's without ``_total``."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    rows: Callable[[Snapshot], Iterable[Row]]

    @property
    def full_name(self) -> str:
        """As in a query."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")
