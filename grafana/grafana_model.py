"""The parts of a dashboard, independent of Grafana's JSON."""

from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

Kind = Literal["timeseries", "stat", "table"]
Unit = Literal["none", "short", "bytes", "Bps", "percentunit", "s", "watt", "celsius", "hertz", "ops"]


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression, and the legend of its series. Grafana replaces ``{{label}}`` by the label's value."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart, number or table. ``axis_max`` is the end of the axis, if the unit has a maximum (1 for a ratio)."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    is_stacked: bool = False
    axis_max: float | None = None
    width: int = 12  # of 24 columns
    height: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under a heading. Grafana runs the queries of a collapsed row only when a user opens it."""

    title: str
    panels: tuple[Panel, ...]
    is_collapsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A dashboard variable: the user selects values of a label."""

    name: str
    label: str
    query: str


class Options(TypedDict, total=False):
    """What a panel may have in addition to its texts, unit and queries: see ``Panel``."""

    is_stacked: bool
    axis_max: float
    width: int
    height: int


def chart(title: str, description: str, unit: Unit, *queries: Query, **options: Unpack[Options]) -> Panel:
    """Lines over time."""
    return Panel(title=title, description=description, unit=unit, queries=queries, **options)


def number(title: str, description: str, unit: Unit, query: Query, **options: Unpack[Options]) -> Panel:
    """One large number."""
    size: Options = {"width": 4, "height": 5}
    return Panel(title=title, description=description, unit=unit, queries=(query,), kind="stat", **(size | options))
