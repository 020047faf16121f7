"""Measured figures and their targets, as a table and as text."""

import argparse
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct


class Figure(Struct, frozen=True, omit_defaults=True):
    """One measured number. A figure without a bound is only for comparison."""

    name: str
    value: float
    unit: str
    digits: int = 2
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the value is within the bound; None without a bound."""
        if self.at_most is not None:
            return self.value <= self.at_most
        return None if self.at_least is None else self.value >= self.at_least

    @property
    def measured_text(self) -> str:
        """The value with its unit."""
        return f"{self.value:,.{self.digits}f} {self.unit}".rstrip()

    @property
    def bound_text(self) -> str:
        """The bound, or an empty text."""
        if self.at_most is not None:
            return f"≤ {self.at_most:,g}"
        return "" if self.at_least is None else f"≥ {self.at_least:,g}"

    @property
    def verdict_text(self) -> str:
        """``met``, ``NOT MET``, or an empty text."""
        return {True: "met", False: "NOT MET", None: ""}[self.is_met]

    def figure_line(self) -> str:
        """The figure as one line for a terminal."""
        result = f" ({self.bound_text}: {self.verdict_text})" if self.bound_text else ""
        note = f", {self.note}" if self.note else ""
        return f"{self.name}: {self.measured_text}{result}{note}"


class BenchmarkResult(Struct, frozen=True, omit_defaults=True):
    """The results of one benchmark. ``skip_reason`` is the reason why it has none."""

    title: str
    figures: tuple[Figure, ...] = ()
    tables: tuple[str, ...] = ()
    skip_reason: str | None = None

    def print_and_save(self, path: Path | None) -> None:
        """Print the results, and write them as JSON if a path is given."""
        for figure in self.figures:
            print(figure.figure_line())
        for table_text in self.tables:
            print(table_text)
        if path is not None:
            path.write_text(json.dumps(msgspec.to_builtins(self), indent=2))


def figures_table(figures: Sequence[Figure]) -> str:
    """Format figures as a Markdown table."""
    rows = []
    for figure in figures:
        verdict = "**not met**" if figure.is_met is False else figure.verdict_text
        rows.append(
            [
                figure.name,
                figure.measured_text,
                figure.bound_text,
                ", ".join(filter(None, (verdict, figure.note))),
            ]
        )
    return markdown_table(["name", "measured", "target", ""], rows, right_aligned=(1, 2))


def markdown_table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, right_aligned: Collection[int] = ()
) -> str:
    """Format a Markdown table. ``right_aligned`` are the numbers of columns."""
    rule = ["--:" if column in right_aligned else "---" for column in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def report_page(results: Sequence[BenchmarkResult]) -> str:
    """Format the results as Markdown: the number of met targets, and a section for each
    benchmark.
    """
    met = [
        figure.is_met
        for result in results
        for figure in result.figures
        if figure.is_met is not None
    ]
    sections = [f"{sum(met)} of {len(met)} targets met."]
    for result in results:
        body = [figures_table(result.figures)] if result.figures else []
        reason = [] if result.skip_reason is None else [f"Not measured: {result.skip_reason}"]
        sections.append("\n\n".join([f"## {result.title}", *body, *result.tables, *reason]))
    return "\n\n".join(sections) + "\n"


def benchmark_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the first line of a description (a docstring), and with ``--json``."""
    parser = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, help="file for the results")
    return parser
