"""Panels and dashboards, independent of the product that draws them.

Conditions are in Kibana's query language, KQL.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from msgspec import Struct

from kibana.colours import Band
from profiler.record.mapped_files import INCLUDES_FILES

Json = dict[str, Any]
Index = Literal["reports", "checkpoints", "notices"]
Kind = Literal["number", "line", "bars", "ranking", "heatmap", "table"]
Operation = Literal["count", "count_distinct", "average", "sum", "max", "latest"]

TIME_FIELD: Final = "@timestamp"
ELAPSED_FIELD: Final = "usage.duration_ms"
"""The duration of a run, in its checkpoints until then."""

MISSING_LABEL: Final = "not known"

MIXED_MEMORY: Final = f"The memory of some runs may {INCLUDES_FILES}."
"""For what puts the memory of several runs into one number."""
"""The name of the bucket of documents without the field."""

COLUMN_WIDTHS: Final = {
    "task.family": 165,
    "cloud.account.id": 125,
    "cloud.region": 100,
    "task.id": 305,
    "task.stopped_reason": 300,
    "notice.message": 560,
    "container.image.name": 260,
    "links.run": 80,
    "event.start": 165,
    TIME_FIELD: 165,
}
"""The width in pixels of a table's column by field: ids of 32 digits and times are not cut. Other
columns share the rest."""


def kuery(condition: str | None) -> dict[str, str]:
    """A condition in Kibana's query language (KQL), without one for all documents, as a query of
    a saved object.
    """
    return {"query": condition or "", "language": "kuery"}


class PanelMetric(Struct, frozen=True):
    """One number of a bucket's documents; with ``share_of``, the ratio of those that fulfil this
    condition in KQL.
    """

    operation: Operation
    field: str
    label: str
    colour: str | None = None  # in a chart in which each series is a metric
    share_of: str | None = None


class TermsBuckets(Struct, frozen=True, kw_only=True):
    """A terms aggregation: one bucket for each value of a field.

    Buckets are in order of their key, or of ``order_by``, which the panel does not draw: highest
    first. All terms of a panel that have an ``order_by`` have the same.
    """

    field: str
    label: str
    size: int = 20
    order_by: PanelMetric | None = None
    has_missing_bucket: bool = False  # for documents without the field


class ColouredCase(Struct, frozen=True, kw_only=True):
    """A named condition with the colour that it has on every panel."""

    label: str
    condition: str
    colour: str


class Panel(Struct, frozen=True, kw_only=True):
    """One chart, number or table. Buckets are nested in this order: cases, terms, time, metrics.

    ``cases`` exclude each other. ``time_field`` is the clock, or the elapsed time of each run.
    ``condition`` selects the documents; "": all. ``bands`` are the colours of a heatmap, or of a
    number. Without an ``axis``, the only metric's label names it. The width is in columns of 48,
    the height in rows of 20 pixels.
    """

    key: str
    title: str
    description: str
    kind: Kind
    metrics: tuple[PanelMetric, ...]
    index: Index = "reports"
    terms: tuple[TermsBuckets, ...] = ()
    cases: tuple[ColouredCase, ...] = ()
    has_time_axis: bool = False
    time_field: str = TIME_FIELD
    condition: str = ""
    bands: tuple[Band, ...] = ()
    is_stacked: bool = False
    is_short: bool = False  # a table of few rows, without a line for its pages
    axis: str = ""
    width: int = 24
    height: int = 15

    @property
    def axis_name(self) -> str:
        """The name of the axis of the values. Kibana would take the label of the first series."""
        return self.axis or self.metrics[0].label

    @property
    def is_percentage(self) -> bool:
        """Whether all values are percentages, so that the axis ends at 100."""
        return all(
            metric.field.endswith("percent") or ".percent." in metric.field
            for metric in self.metrics
        )

    @property
    def has_legend(self) -> bool:
        """Whether the chart has more than one series.

        The axis shows the name of a single series.
        """
        return (
            len(self.metrics) > 1
            or bool(self.cases)
            or (self.has_series_of_terms and self.has_time_axis)
        )

    @property
    def has_series_of_terms(self) -> bool:
        """Whether the chart has a series for each of several values of a field."""
        return any(terms.size > 1 for terms in self.terms)

    @property
    def legend_position(self) -> str:
        """The top for the few series with long names of a line or a ranking; the right for the
        many series of bars.
        """
        return "right" if self.kind == "bars" else "top"


class SavedSearch(Struct, frozen=True, kw_only=True):
    """A list of reports, newest first. Both products open it in Discover, too."""

    key: str
    title: str
    description: str
    columns: tuple[str, ...]
    condition: str = ""
    width: int = 48
    height: int = 14


class Drawing(Struct, frozen=True, kw_only=True):
    """A chart that neither product has of its own, as a specification of Vega 5, which both draw.

    ``spec`` has its searches. Their time range and filters are the dashboard's.
    """

    key: str
    title: str
    description: str
    spec: Json
    width: int = 48
    height: int = 15


class PanelStack(Struct, frozen=True, kw_only=True):
    """Panels of the same width, one below the other, beside other panels."""

    panels: tuple[Panel | Drawing, ...]

    @property
    def width(self) -> int:
        """The width of each of them."""
        return max(panel.width for panel in self.panels)


class Control(Struct, frozen=True, kw_only=True):
    """A field by which the user can filter a dashboard.

    ``is_optional``: left out where five do not fit.
    """

    field: str
    label: str
    is_optional: bool = False


class Dashboard(Struct, frozen=True, kw_only=True):
    """Panels in reading order, and the controls that filter them, five at most.

    ``shows_unconfirmed``: also runs of which nothing proves whose task it was.
    """

    key: str
    title: str
    description: str
    controls: tuple[Control, ...]
    panels: tuple[Panel | Drawing | SavedSearch | PanelStack, ...]
    shows_unconfirmed: bool = False

    @property
    def charts(self) -> tuple[Panel, ...]:
        """The panels that each product draws in its own way."""
        return tuple(panel for panel in self._leaves() if isinstance(panel, Panel))

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """The panels that both products draw alike."""
        return tuple(panel for panel in self._leaves() if isinstance(panel, Drawing))

    def _leaves(self) -> Iterator[Panel | Drawing | SavedSearch]:
        for panel in self.panels:
            if isinstance(panel, PanelStack):
                yield from panel.panels
            else:
                yield panel


ORDER: Final = "order"
"""The name of an aggregation that no chart draws: it orders the terms."""
BY_COUNT: Final = PanelMetric(operation="count", field=TIME_FIELD, label="Documents")
"""The order of terms by their number of documents."""


def numbered_metrics(panel: Panel) -> dict[str, PanelMetric]:
    """The metrics by the id of their aggregation."""
    return {str(number): metric for number, metric in enumerate(panel.metrics, start=1)}


def cases_id(panel: Panel) -> str:
    """The id of the aggregation of a panel's cases."""
    return str(len(panel.metrics) + 1)


def terms_id(panel: Panel, number: int) -> str:
    """The id of a panel's terms aggregation."""
    return str(len(panel.metrics) + bool(panel.cases) + number + 1)


def time_id(panel: Panel) -> str:
    """The id of a panel's date histogram."""
    return terms_id(panel, len(panel.terms))
