"""The page of ``task-profiler show`` in the documentation is what the command prints."""

import re
from datetime import UTC
from pathlib import Path

from profiler.cli.styled_text import BLOCKS, render_lines
from profiler.cli.terminal.page_parts import View
from profiler.cli.terminal.run_page import page_lines
from profiler.cli.terminal.size_lines import find_advice
from profiler.cli.terminal.two_runs import compare
from profiler.runs.past_runs.run_source import PastRun
from profiler.sizing.prices import PriceOverrides
from tests.documentation import blocks
from tests.run_sources import ListedRuns
from tests.shown_runs import NOW_NS, etl, night, out_of_memory

OMISSION = "  …"


def shown(page: str) -> str:
    """The output of ``show`` on a page."""
    (block,) = [one.text for one in blocks(Path(page), "console") if one.text.startswith("$ task-profiler show")]
    return block.partition("\n")[2]


def is_shortened(text: str, whole: str) -> bool:
    """Whether the text is the whole, except for what a line with an ellipsis replaces."""
    parts = [re.escape(part) for part in f"\n{text}".split(f"\n{OMISSION}\n")]
    return re.fullmatch(r"\n(?:.*\n)+?".join(parts), f"\n{whole}") is not None


def printed() -> str:
    """The command's page for the documentation's example."""
    run = PastRun(report=out_of_memory(), line=b"")
    comparison = compare(run, PastRun(report=etl(days_ago=1)), "last success", is_complete=False)
    lines = page_lines(
        run,
        View(width=80, glyphs=BLOCKS, now_ns=NOW_NS, zone=UTC),
        run.report.record.series,
        comparison,
        find_advice(run, ListedRuns([PastRun(report=one) for one in night()]), PriceOverrides()),
    )
    return render_lines(lines, is_coloured=False, encoding="utf-8").decode()


def test_the_guide_shows_the_output_with_omissions() -> None:
    text = shown("docs/after-a-bad-night.md")
    assert OMISSION in text
    assert is_shortened(text, printed())


def test_a_line_that_the_command_does_not_print_is_found() -> None:
    whole = "a\nb\nc\nd\n"
    assert is_shortened(f"a\n{OMISSION}\nd\n", whole)
    for text in (f"a\n{OMISSION}\nx\n", f"b\n{OMISSION}\nd\n", f"a\n{OMISSION}\nc\n", "a\nd\n"):
        assert not is_shortened(text, whole)
