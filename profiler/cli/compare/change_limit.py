"""``--fail-above``: which metrics rose by more than the limit, and of which that is not known."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import click
from msgspec import Struct

from profiler.cli.compare.change_texts import interval_text, percent_text
from profiler.cli.options import Number
from profiler.comparison.compared_metrics import MetricChange


class Percent(Number):
    """A number within limits, with or without the sign."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401  click's signature
        """Convert the text of the command line."""
        return super().convert(value.removesuffix("%") if isinstance(value, str) else value, param, ctx)


class ChangeLimit(Struct, frozen=True, kw_only=True):
    """The result of a limit.

    Attributes:
        percent: The limit.
        exceeded: The metrics whose whole interval is above it.
        undecided: The metrics of which that is not known.
    """

    percent: float
    exceeded: tuple[MetricChange, ...]
    undecided: tuple[MetricChange, ...]

    def sentences(self) -> Iterator[str]:
        """What to say about the metrics."""
        if self.exceeded:
            listed = ", ".join(
                f"{_names(one)} {percent_text(one.change.change_percent)} ({interval_text(one.change)})"
                for one in self.exceeded
            )
            yield f"B is above A by more than {self.percent:g} %: {listed}."
        if self.undecided:
            listed = ", ".join(map(_why_undecided, self.undecided))
            yield f"It is unknown whether B is above A by more than {self.percent:g} %: {listed}."


def check_limit(changes: Sequence[MetricChange], percent: float, *, needs_all: bool) -> ChangeLimit:
    """Check the changes. ``needs_all``: metrics that no run has are undecided, because the user named them."""
    exceeded = tuple(one for one in changes if _low_percent(one) > percent)
    undecided = tuple(one for one in changes if _is_undecided(one, percent, needs_all=needs_all))
    return ChangeLimit(percent=percent, exceeded=exceeded, undecided=undecided)


def _low_percent(one: MetricChange) -> float:
    """The least rise that a verdict is sure of."""
    change = one.change
    return -math.inf if change.verdict != "more" or change.low_percent is None else change.low_percent


def _is_undecided(one: MetricChange, percent: float, *, needs_all: bool) -> bool:
    change = one.change
    if not (one.known_a and one.known_b):
        return needs_all or bool(one.known_a or one.known_b)
    if change.verdict == "too few runs":
        return change.high_percent is None or change.high_percent > percent
    return change.verdict == "more" and change.low_percent is None


def _why_undecided(one: MetricChange) -> str:
    change = one.change
    if not (one.known_a and one.known_b):
        return _names(one, f"no run of {'B' if one.known_a else 'A'} has it")
    if change.verdict == "more":
        return _names(one, "its median is 0 in A")
    return _names(one, "too few runs")


def _names(one: MetricChange, *more: str) -> str:
    return f"{one.metric.title} ({', '.join((one.metric.name, *more))})"
