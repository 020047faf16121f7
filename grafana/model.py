"""What a dashboard of Prometheus's metrics is, before it is Grafana's JSON."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal["none", "short", "bytes", "Bps", "percentunit", "s", "watt", "celsius", "hertz", "ops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """PromQL, and how a series is called: ``{{label}}`` is the label's value."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart, number or table. ``largest`` is the axis's end where the unit has one (1 for a ratio)."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    stacked: bool = False
    largest: float | None = None
    width: int = 12  # of 24 columns
    height: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under a heading; a collapsed one asks nothing of Prometheus until it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A choice for the reader, of the values of a label."""

    name: str
    label: str
    query: str
