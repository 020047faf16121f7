"""The outputs of ``show`` and ``recommend`` in the documentation are what the commands print."""

import re
from pathlib import Path

import pytest

from profiler.cli.app import group
from profiler.cli.styled_text import render_lines
from profiler.cli.terminal.page_parts import View
from profiler.cli.terminal.run_page import page_lines
from profiler.cli.terminal.size_lines import find_advice
from profiler.cli.terminal.two_runs import compare
from profiler.record.record_model import Distribution, Metrics, Report
from profiler.runs.past_runs.run_source import PastRun
from profiler.sizing.prices import PriceOverrides
from tests.documentation import ROOT, blocks
from tests.run_sources import ListedRuns
from tests.runs import lines, report, slowdown
from tests.shown_runs import NOW_NS, etl, night, out_of_memory

PAGE = ROOT / "docs" / "right-size.md"
BLOCK = re.compile(r"^```console\n\$ task-profiler (recommend .*?)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BILLED_MS = 1_800_000
INIT_MS = 20_000
WORST_RUN = 17
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
        View(width=80, now_ns=NOW_NS),
        run.report.record.series,
        comparison,
        find_advice(run, ListedRuns([PastRun(report=one) for one in night()]), PriceOverrides()),
    )
    return render_lines(lines, is_coloured=False, encoding="utf-8").decode()


def test_the_guide_shows_the_output_with_omissions() -> None:
    text = shown("docs/after-a-bad-night.md")
    assert OMISSION in text
    assert is_shortened(text, printed())


def nightly_etl(number: int) -> Report:
    is_worst = number == WORST_RUN
    bounds = {"v0_25": (1.31, 1.62), "v0_5": (1.02, 1.1)} if is_worst else {"v0_25": (1.2, 1.4), "v0_5": (1.0, 1.05)}
    return report(
        number,
        family="nightly-etl",
        task_id=f"etl-{number}",
        size=(1, 4096),
        peak_mb=821 - 5 * (29 - number),
        p95=0.3 if number != 21 else 0.48,
        status="failure" if number in (4, 11) else "success",
        others={"task-monitor": Metrics(max_memory_used_mb=31, vcpu_used=Distribution(p95=0.01))},
        metrics={
            "slowdown_at_vcpu": slowdown(**bounds),
            "vcpu_saturated_percent": 1.0,
            "init_duration_ms": INIT_MS,
            "duration_ms": BILLED_MS - INIT_MS + (60_000 if number % 2 else -60_000),
            "billed_duration_ms": BILLED_MS + (60_000 if number % 2 else -60_000),
        },
    )


RUNS = [nightly_etl(number) for number in range(30)]


def test_the_example_is_the_commands_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ((command, shown),) = BLOCK.findall(PAGE.read_text())
    monkeypatch.chdir(tmp_path)
    Path("reports.jsonl").write_bytes(lines(RUNS))
    group.main(command.split(), standalone_mode=False)
    assert is_shortened(shown, capfd.readouterr().out)
