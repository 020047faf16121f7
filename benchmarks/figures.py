"""A measured number beside the figure it has to reach, and the table of them. Pure."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured number. With neither bound it is there for comparison; ``note`` says what it should be read with."""

    what: str
    value: float
    unit: str
    digits: int = 2
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bound is kept; None where there is none."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least

    @property
    def measured(self) -> str:
        """The value with its unit."""
        return f"{self.value:,.{self.digits}f} {self.unit}".rstrip()

    @property
    def bound(self) -> str:
        """The bound, or nothing."""
        if self.at_most is not None:
            return f"≤ {self.at_most:,g}"
        return "" if self.at_least is None else f"≥ {self.at_least:,g}"

    @property
    def verdict(self) -> str:
        """``met``, ``NOT MET``, or nothing."""
        return {True: "met", False: "NOT MET", None: ""}[self.met]

    def line(self) -> str:
        """For a terminal."""
        judged = f" ({self.bound}: {self.verdict})" if self.bound else ""
        noted = f", {self.note}" if self.note else ""
        return f"{self.what}: {self.measured}{judged}{noted}"


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one of the measurements found; ``missing`` is why it found nothing."""

    title: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[str, ...] = ()
    missing: str | None = None


def table(figures: Sequence[Figure]) -> str:
    """Markdown."""
    rows = [["what", "measured", "figure", ""], ["---", "--:", "--:", "---"]]
    for figure in figures:
        verdict = "**not met**" if figure.met is False else figure.verdict
        rows.append([figure.what, figure.measured, figure.bound, ", ".join(filter(None, (verdict, figure.note)))])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def page(parts: Sequence[Part]) -> str:
    """Markdown: a section for each part, and before them how many figures are met."""
    judged = [figure.met for part in parts for figure in part.figures if figure.met is not None]
    sections = [f"{sum(judged)} of {len(judged)} figures met."]
    for part in parts:
        body = [table(part.figures)] if part.figures else []
        missing = [] if part.missing is None else [f"Not measured: {part.missing}"]
        sections.append("\n\n".join([f"## {part.title}", *body, *part.tables, *missing]))
    return "\n\n".join(sections) + "\n"


def tell(part: Part, path: Path | None) -> None:
    """Print a part's figures, and write the part as JSON if there is a path."""
    for figure in part.figures:
        print(figure.line())
    for one in part.tables:
        print(one)
    if path is not None:
        path.write_text(json.dumps(msgspec.to_builtins(part), indent=2))
