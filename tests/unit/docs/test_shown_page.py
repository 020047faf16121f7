"""The page of ``task-profiler show`` in the documentation is what the command prints."""

from datetime import UTC
from pathlib import Path

import pytest

from profiler.cli.show.run_page import View, page_lines
from profiler.cli.show.size_lines import find_advice
from profiler.cli.show.two_runs import compare
from profiler.cli.styled_text import BLOCKS, render_lines
from profiler.past_runs.run_source import PastRun
from profiler.sizing.prices import PriceOverrides
from tests.documentation import blocks
from tests.run_sources import ListedRuns
from tests.shown_runs import NOW_NS, etl, night, out_of_memory


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/after-a-bad-night.md"])
def test_the_output_is_that_of_the_command(page: str) -> None:
    run = PastRun(report=out_of_memory(), line=b"")
    comparison = compare(run, PastRun(report=etl(days_ago=1)), "last success", is_complete=False)
    lines = page_lines(
        run,
        View(width=80, glyphs=BLOCKS, now_ns=NOW_NS, zone=UTC),
        run.report.record.series,
        comparison,
        find_advice(run, ListedRuns([PastRun(report=one) for one in night()]), PriceOverrides()),
    )
    printed = render_lines(lines, is_coloured=False, encoding="utf-8").decode()
    (block,) = [one.text for one in blocks(Path(page), "console") if one.text.startswith("$ task-profiler show")]
    assert block.partition("\n")[2] == printed
