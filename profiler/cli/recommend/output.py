"""Recommendations as a table, and their reasons as lists."""

from collections.abc import Iterator, Sequence

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profiler.cli.output import UNKNOWN, plain_table, printable
from profiler.record.model import TaskSize
from profiler.record.units import format_task_size
from profiler.sizing.advice import Advice

_COLOURS = {"high": "green", "medium": "yellow", "low": "red"}


def table(advices: Sequence[Advice]) -> Table:
    """Build a table with one row per family. Family names are never read as markup."""
    families = plain_table(column_gap=2)
    families.add_column("Family", overflow="fold")
    families.add_column("Runs", justify="right", no_wrap=True)
    families.add_column("Current", no_wrap=True)
    families.add_column("Recommended", no_wrap=True)
    families.add_column("Saving", justify="right", no_wrap=True)
    families.add_column("Confidence", no_wrap=True)
    for advice in advices:
        choice = advice.choice
        families.add_row(
            Text(printable(advice.family)),
            str(advice.evidence.runs),
            _size(choice.current),
            Text(_size(choice.size), style="bold" if choice.changes else ""),
            UNKNOWN if choice.saving_percent is None else f"{choice.saving_percent:.0f} %",
            Text(advice.confidence, style=_COLOURS[advice.confidence]),
        )
    return families


def reason_lists(advices: Sequence[Advice]) -> Iterator[Padding | Text]:
    """Yield the name of each family and its reasons."""
    for advice in advices:
        yield Text(f"\n{printable(advice.family)}", style="bold")
        for reason in advice.reasons:
            yield Padding(Text(f"- {printable(reason)}"), (0, 0, 0, 2), expand=False)


def _size(size: TaskSize | None) -> str:
    return (None if size is None else format_task_size(size.vcpu, size.memory_mb)) or UNKNOWN
