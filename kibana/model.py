"""What a panel and a dashboard are, whatever product draws them."""

from dataclasses import dataclass
from typing import Final, Literal

Index = Literal["reports", "checkpoints"]
Kind = Literal["line", "bars", "ranking", "heatmap", "table"]
Operation = Literal["count_distinct", "average", "sum", "max", "percentile", "latest"]

TIME_FIELD: Final = "@timestamp"
PERCENT_BANDS: Final = (
    (0, 10, "#f1f5f9"),
    (10, 25, "#d6e6f4"),
    (25, 50, "#9fc9e2"),
    (50, 75, "#4a98c9"),
    (75, 90, "#1764ab"),
    (90, 100, "#c0392b"),
    (100, 10_000, "#7b241c"),
)
"""From, to (without it), colour: absolute, so that 3 % never looks like much. Red is what has no room left.

The classic heatmap does not draw what is in no band: exactly 100, and CPU beyond a soft limit, need one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number (or, for ``latest``, one value) of a bucket's documents."""

    operation: Operation
    field: str
    label: str
    percent: int | None = None  # of a percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A bucket for each value of a field: by name, or those with the most of the panel's ``by_metric``-th metric."""

    field: str
    label: str
    size: int = 20
    by_metric: int | None = None
    with_missing: bool = False  # documents without the field have a bucket of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Unless:
    """Leaves out the documents in which the field has this value."""

    field: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart or table. Buckets are nested as written: rows first, then time, then the metrics."""

    key: str
    title: str
    description: str
    index: Index
    kind: Kind
    metrics: tuple[Metric, ...]
    rows: tuple[Rows, ...] = ()
    over_time: bool = False
    unless: tuple[Unless, ...] = ()
    bands: tuple[tuple[int, int, str], ...] = ()
    width: int = 24  # of 48 columns
    height: int = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A field that the reader of a dashboard chooses a value of."""

    field: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Panels in reading order, and what they can be filtered by. ``period`` None: the address says it."""

    key: str
    title: str
    description: str
    choices: tuple[Choice, ...]
    panels: tuple[Panel, ...]
    period: str | None


def fields_of(panel: Panel) -> tuple[tuple[str, str], ...]:
    """All fields that a panel names, each with what it is used for: an operation, ``rows``, ``time`` or ``filter``."""
    return (
        *((metric.field, metric.operation) for metric in panel.metrics),
        *((rows.field, "rows") for rows in panel.rows),
        *((unless.field, "filter") for unless in panel.unless),
        (TIME_FIELD, "time"),
    )
