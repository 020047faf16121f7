"""Panels and dashboards, independent of the product that draws them."""

from dataclasses import dataclass
from typing import Any, Final, Literal

Json = dict[str, Any]
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
"""Lower bound (inclusive), upper bound (exclusive) and colour of each band of a heatmap, in percent.

The bands are absolute, so that a low percentage never has the colour of a high one. Red means close to the limit. The
classic heatmap does not draw values outside all bands. The last band is for exactly 100, and for CPU usage above a
soft limit.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number, or for ``latest`` one value, computed from a bucket's documents."""

    operation: Operation
    field: str
    label: str
    percent: int | None = None  # for the operation "percentile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A terms aggregation: one bucket for each value of a field.

    Buckets are in order of their key, or of the panel's metric number ``order_by_metric``, highest first.
    """

    field: str
    label: str
    size: int = 20
    order_by_metric: int | None = None
    has_missing_bucket: bool = False  # for documents without the field


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """A filter that excludes documents in which the field has this value."""

    field: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart or table. Buckets are nested in this order: terms, time, metrics."""

    key: str
    title: str
    description: str
    index: Index
    kind: Kind
    metrics: tuple[Metric, ...]
    terms: tuple[Terms, ...] = ()
    has_time_axis: bool = False
    exclusions: tuple[Exclusion, ...] = ()
    bands: tuple[tuple[int, int, str], ...] = ()
    width: int = 24  # of 48 columns
    height: int = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A field by which the user can filter a dashboard."""

    field: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """Panels in reading order, and the controls that filter them.

    ``time_range`` is the beginning of the time range, such as ``now-7d``. None: the dashboard stores no time range, and
    a link to it contains one.
    """

    key: str
    title: str
    description: str
    controls: tuple[Control, ...]
    panels: tuple[Panel, ...]
    time_range: str | None


def fields_of(panel: Panel) -> tuple[tuple[str, str], ...]:
    """All fields of a panel, each with its use: an operation, ``terms``, ``time`` or ``filter``."""
    return (
        *((metric.field, metric.operation) for metric in panel.metrics),
        *((terms.field, "terms") for terms in panel.terms),
        *((exclusion.field, "filter") for exclusion in panel.exclusions),
        (TIME_FIELD, "time"),
    )
