"""Recommendations as a table for people, with the reasons below."""

from collections.abc import Iterator, Sequence

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from profiler.cli.recommend_apply import format_size
from profiler.cli.visible import printable
from profiler.sizing.advice import Advice

_UNKNOWN = "-"
_COLOURS = {"high": "green", "medium": "yellow", "low": "red"}


def table(advices: Sequence[Advice]) -> Table:
    """A line a family; nothing in it is taken for markup."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    shown.add_column("Family", overflow="fold")
    shown.add_column("Runs", justify="right", no_wrap=True)
    shown.add_column("Current", no_wrap=True)
    shown.add_column("Recommended", no_wrap=True)
    shown.add_column("Saving", justify="right", no_wrap=True)
    shown.add_column("Confidence", no_wrap=True)
    for advice in advices:
        choice = advice.choice
        shown.add_row(
            Text(printable(advice.family)),
            str(advice.evidence.runs),
            _UNKNOWN if choice.current is None else format_size(choice.current),
            Text(format_size(choice.size), style="bold" if choice.changes else ""),
            _saving(choice.saving_percent),
            Text(advice.confidence, style=_COLOURS[advice.confidence]),
        )
    return shown


def sentences(advices: Sequence[Advice]) -> Iterator[Padding | Text]:
    """The reasons of each family."""
    for advice in advices:
        yield Text(f"\n{printable(advice.family)}", style="bold")
        for reason in advice.reasons:
            yield Padding(Text(f"- {printable(reason)}"), (0, 0, 0, 2), expand=False)


def _saving(percent: float | None) -> str:
    return _UNKNOWN if percent is None else f"{percent:.0f} %"
