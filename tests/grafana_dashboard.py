"""Reads the committed Grafana dashboard: its panels, their queries, and its variables."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

FILE: Final = Path(__file__).parents[1] / "grafana" / "task-profiler.json"
DASHBOARD: Final[Mapping[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))


class Query(Struct, frozen=True):
    """A PromQL expression, and the legend of its series. ``is_of_now``: of one moment, the end of
    the time range.
    """

    expr: str
    legend: str
    is_of_now: bool


class Panel(Struct, frozen=True, kw_only=True):
    """One chart, number or table. ``axis_max`` is the end of its axis, if it is fixed."""

    title: str
    kind: str
    unit: str
    axis_max: float | None
    queries: tuple[Query, ...]
    place: Mapping[str, int]


class Variable(Struct, frozen=True):
    """A choice at the top of the dashboard, and the query of its values."""

    name: str
    query: str


def _read_panel(panel: Mapping[str, Any]) -> Panel:
    defaults = panel["fieldConfig"]["defaults"]
    targets = panel["targets"]
    return Panel(
        title=panel["title"],
        kind=panel["type"],
        unit=defaults["unit"],
        axis_max=defaults.get("max"),
        queries=tuple(
            Query(target["expr"], target["legendFormat"], target["instant"]) for target in targets
        ),
        place=panel["gridPos"],
    )


def _read_panels() -> Iterator[Panel]:
    """The panels of the open rows and of the collapsed ones, which contain theirs."""
    for panel in DASHBOARD["panels"]:
        if panel["type"] == "row":
            yield from map(_read_panel, panel["panels"])
        else:
            yield _read_panel(panel)


def _read_variables() -> Iterator[Variable]:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield Variable(variable["name"], variable["definition"])


PANELS: Final = tuple(_read_panels())
VARIABLES: Final = tuple(_read_variables())
