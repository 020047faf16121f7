"""What reads runs, on terminals of any width and encoding: hostile names break no line and no
column, and no code reaches a terminal that wants none.
"""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from profiler.cli.history_command import run_table_lines
from profiler.cli.recommend_command import _recommendation_lines
from profiler.cli.styled_text import Line, render_lines
from profiler.cli.terminal.comparison_tables import comparison_lines
from profiler.cli.terminal.page_parts import View
from profiler.cli.terminal.run_page import page_lines
from profiler.core.text import columns_of
from profiler.record.record_model import Report
from profiler.runs.comparison.compared_metrics import compare_metrics
from profiler.runs.comparison.run_sets import RunSet
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.past_run import PastRun
from profiler.sizing.advice import advise_on_size
from profiler.sizing.choose_size import SizePolicy
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.size_summary import size_story
from tests.documentation import ROOT
from tests.runs import evidence_of, lines, report
from tests.shown_runs import NOW_NS
from tests.terminals import shown_on_terminal

NAMES = {
    "plain": "nightly-etl",
    "codes": "a\x1b[31m\x1b[2Jb\u009b2J\u202ex" * 3,
    "two columns": "\u591c\u9593\u30d0\u30c3\u30c1\U0001f680" * 6,
    "one word": "x" * 200,
    "combining": "e\u0301t\u0301l " * 20,
    "lines": "tab\tnew\nline" * 8,
    "accents": "na\u00efve-\u2265-caf\u00e9" * 5,
}
ENCODINGS = ["ascii", "latin-1", "cp1252", "cp437", "cp932", "gb18030", "koi8-r", "utf-8"]
every_name = pytest.mark.parametrize("family", NAMES.values(), ids=NAMES)


def runs_of(family: str) -> list[Report]:
    return [report(number, family=family, revision=str(1 + number % 2)) for number in range(12)]


def show(reports: Sequence[Report], width: int) -> Iterable[Line]:
    run = PastRun(report=reports[-1])
    view = View(width=width, now_ns=NOW_NS)
    sizes = size_story(find_advice(run, None, PriceOverrides()), run.story.usage)
    return page_lines(run, view, sizes=sizes)


def compare(reports: Sequence[Report], width: int) -> Iterable[Line]:
    family = reports[0].record.family
    sets = [
        RunSet(text=f"{family}@{number + 1}", reports=tuple(reports[number::2]))
        for number in range(2)
    ]
    changes = compare_metrics(sets[0].records, sets[1].records)
    return comparison_lines(sets, changes, width)


def recommend(reports: Sequence[Report], width: int) -> Iterable[Line]:
    advice = advise_on_size(evidence_of(reports), SizePolicy(), PriceOverrides())
    return _recommendation_lines([advice], [advice], width, with_sizes=True)


SCREENS: Mapping[str, Callable[[Sequence[Report], int], Iterable[Line]]] = {
    "history": lambda reports, width: run_table_lines(
        [PastRun(report=one) for one in reports], width
    ),
    "show": show,
    "compare": compare,
    "recommend": recommend,
}


@pytest.mark.diagonal
@every_name
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(
    family: str, encoding: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the encoding has it: what it lacks is an escape, which is longer."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    for name, screen in SCREENS.items():
        drawn = render_lines(screen(runs_of(family), width), is_coloured=False, encoding=encoding)
        rows = drawn.decode(encoding).splitlines()
        assert rows
        assert [row for row in rows if columns_of(row) > width] == [], name
        assert all(row.isprintable() for row in rows), name


# Runs all commands, each behind a row with its first word.
PROGRAM = """
import json, sys
from profiler.cli.app import run_command_line
for words in json.loads(sys.argv[1]):
    print(f"## {words[0]}", flush=True)
    sys.argv = ["task-profiler", *words]
    try:
        run_command_line()
    except SystemExit as ended:
        assert not ended.code, (words, ended.code)
"""
_CODE = r"\x1b\[[0-9;]*m"


def commands(family: str) -> list[list[str]]:
    source = ("--from", "runs")
    return [
        ["history", *source],
        ["show", *source],
        ["recommend", family, *source],
        ["compare", f"{family}@1", f"{family}@2", *source],
    ]


@pytest.mark.diagonal(2)
@pytest.mark.parametrize(
    ("columns", "settings", "is_coloured"),
    [
        (40, {"TERM": "xterm"}, True),
        (80, {"TERM": "xterm"}, True),
        (200, {"TERM": "xterm"}, True),
        (40, {"TERM": "dumb"}, False),
        (80, {"TERM": "xterm", "NO_COLOR": "1"}, False),
    ],
)
def test_a_terminal_gets_lines_that_fit_and_colours_if_it_wants_them(
    columns: int,
    settings: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_coloured: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    family = NAMES["codes"]
    Path("runs").write_bytes(lines(runs_of(family)))
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-X", "utf8", "-c", PROGRAM, json.dumps(commands(family))]
    text, code = shown_on_terminal(words, {**own, **settings}, columns=columns)
    assert code == 0, text
    rows = re.sub(_CODE, "", text).splitlines()
    assert [row for row in rows if row.startswith("## ")] == [
        "## history",
        "## show",
        "## recommend",
        "## compare",
    ]
    assert [row for row in rows if columns_of(row) > columns] == []
    assert all(row.isprintable() for row in rows)
    assert bool(re.search(_CODE, text)) == is_coloured


def test_what_a_report_says_at_its_end_fits_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").write_bytes(lines(runs_of(NAMES["plain"])))
    own = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "profiler", "report", "--from", "runs", "-o", "a" * 30 + ".html"]
    text, code = shown_on_terminal(words, {**own, "TERM": "dumb"}, columns=40)
    assert code == 0, text
    first, *others = text.splitlines()
    assert first.startswith("a" * 30 + ".html: ")
    assert others
    assert [row for row in (first, *others) if columns_of(row) > 40] == []


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_report_says_its_end_in_any_encoding_and_its_page_is_in_utf_8(
    encoding: str, tmp_path: Path
) -> None:
    everyone = [report(number, family=family) for number, family in enumerate(NAMES.values())]
    (tmp_path / "runs").write_bytes(lines(everyone))
    pages = ["plain.html", "\u591c\u9593-\U0001f680.html", "e\u0301te\u0301.html"]
    reports = [["report", "--from", "runs", "-o", page] for page in pages]
    # Three times from one process: the encoding is of the streams, not of the names.
    process = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", PROGRAM, json.dumps(reports)],
        cwd=tmp_path,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": encoding,
        },
        check=False,
        capture_output=True,
    )
    said = process.stderr.decode(encoding) + process.stdout.decode(encoding)
    assert process.returncode == 0, said
    assert all(row.isprintable() for row in said.splitlines())
    assert said.count(f": {len(NAMES)} runs, ") == said.count("## report") == len(pages)
    for page in pages:
        assert "</html>" in (tmp_path / page).read_bytes().decode()


@pytest.mark.slow
def test_a_reader_that_wants_no_more_ends_a_command_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``| head -1`` does, before the first line."""
    monkeypatch.chdir(tmp_path)
    family = NAMES["plain"]
    Path("runs").write_bytes(lines(runs_of(family)))
    for words in commands(family):
        process = subprocess.Popen(
            [sys.executable, "-m", "profiler", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        )
        assert process.stdout is not None
        process.stdout.close()
        _, said = process.communicate()
        assert said == b"", words
