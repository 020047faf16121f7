"""What goes to a terminal: tables, wrapped texts, and the progress of a long operation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.cli.styled_text import Span, cut_end, cut_middle, render_lines, wrapped_lines
from profiler.cli.tables import Column, aligned_table
from profiler.core.text import columns_of, printable
from tests.cases import each_case
from tests.terminals import shown_on_terminal, texts

COLUMNS = (Column("Name", folds=True), Column("Count", is_right=True), Column("Result"))
WORDS = st.text("abcXYZ019漢\u0301", min_size=1, max_size=90)
ROWS = st.lists(
    st.tuples(WORDS, st.integers(0, 10**6).map(str), st.sampled_from(["success", "failure 137"]))
)


@given(ROWS, st.integers(80, 110))
@example([("000000000漢漢" * 7, "0", "failure 137")], 80)
def test_a_table_fits_into_its_width_and_loses_no_character(
    rows: list[tuple[str, str, str]], width: int
) -> None:
    lines = texts(aligned_table(COLUMNS, rows, gap=1, width=width))
    assert all(columns_of(one) <= width for one in lines)
    shown = "".join("".join(lines).split())
    assert sorted(shown) == sorted(
        "NameCountResult" + "".join("".join(row) for row in rows).replace(" ", "")
    )


def test_the_cells_of_a_table_that_would_break_words_are_below_each_other() -> None:
    rows = [("nightlywarehouseloadoforders", "7", "success"), ("b", "8", "")]
    assert texts(aligned_table(COLUMNS, rows, width=40)) == [
        "Name    nightlywarehouseloadoforders",
        "Count   7",
        "Result  success",
        "",
        "Name    b",
        "Count   8",
    ]


def test_cells_below_each_other_have_room_for_all_columns_and_for_the_rest_of_a_long_name() -> None:
    columns = (
        Column("Family", is_cut=True, is_name=True),
        Column("Started"),
        Column("Result"),
        Column("Time", is_right=True, rank=1),
    )
    rows = [("SEQ.QUANTIFY_STAR.SORT_BY_NAME", "2026-11-28 04:39", "out of memory", "1m 05s")]
    assert texts(aligned_table(columns, rows, width=30)) == [
        "Family   SEQ.QUANTIFY_",
        "         STAR.SORT_BY_NAME",
        "Started  2026-11-28 04:39",
        "Result   out of memory",
        "Time     1m 05s",
    ]


@pytest.mark.parametrize("width", [1, 11, 18, 25])
def test_a_long_name_is_whole_on_a_terminal_without_room_for_it(width: int) -> None:
    columns = (Column("Family", is_cut=True, is_name=True), Column("Recommended size"))
    rows = [("SEQ.QUANTIFY_STAR.SORT_BY_NAME", "0.25 vCPU, 1 GB")]
    assert texts(aligned_table(columns, rows, width=width)) == [
        "Family            SEQ.QUANTIFY_",
        "                  STAR.SORT_BY_NAME",
        "Recommended size  0.25 vCPU, 1 GB",
    ]


def test_a_heading_between_cells_below_each_other_is_no_name() -> None:
    columns = (Column("Family", is_cut=True, is_name=True), Column("Recommended size"))
    rows: list[tuple[str | Span, str | Span]] = [
        (Span("Too small", "bold"), ""),
        ("  nightly-etl", Span("2 vCPU, 5 GB", "bold")),
    ]
    assert texts(aligned_table(columns, rows, width=18)) == [
        "Too small",
        "",
        "Family              nightly-etl",
        "Recommended size  2 vCPU, 5 GB",
    ]


def test_a_table_whose_words_fit_stays_a_table_on_a_narrow_terminal() -> None:
    rows = [("nightly-warehouse-load-of-orders", "7", "success")]
    first, second = texts(aligned_table(COLUMNS, rows, width=40))[1:]
    assert first.split() == ["nightly-warehouse-load-", "7", "success"]
    assert second == "of-orders"


def test_characters_that_a_terminal_acts_on_are_escaped_before_the_columns_are_aligned() -> None:
    lines = texts(aligned_table(COLUMNS, [("a\x1b[31m", "1", "x")], gap=1))
    assert lines[1].startswith("a\\x1b[31m ")
    assert lines[0].index("Count") + 4 == lines[1].index("1", 9)


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    assert texts(wrapped_lines("the largest has 69 MB", 20)) == ["the largest has", "69 MB"]


PROGRAM = """
import os
from profiler.cli.progress import progress_row
with progress_row() as show:
    show("3 runs", None)
    show("9 runs", 0.5)  # too soon after the last one
    print("registered", flush=True)
"""


def in_terminal(output: Path, **environment: str) -> str:
    """What the program writes to a terminal that is its standard error."""
    settings = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {
        "TERM": "xterm"
    }
    with output.open("wb") as file:
        shown = shown_on_terminal(
            [sys.executable, "-c", PROGRAM], settings | environment, stdout=file.fileno()
        )
    assert shown[1] == 0
    assert output.read_bytes() == b"registered\n"
    return shown[0]


def test_the_progress_is_in_the_bottom_row_until_the_end(
    tmp_path: Path,
) -> None:
    """The progress is in the bottom row until the end if the terminal has control codes."""
    written = in_terminal(tmp_path / "output")
    assert "3 runs …" in written
    assert "9 runs" not in written
    assert written.endswith("\x1b[r\x1b8")
    assert in_terminal(tmp_path / "output", TERM="dumb") == ""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert done.stdout == b"registered\n"
    assert done.stderr == b""


def test_a_long_name_loses_its_middle() -> None:
    name = "SEQ.ALIGN.SORT.SAMTOOLS_INDEX"
    assert cut_middle(name, 29) == name
    assert cut_middle(name, 15) == "SEQ.…OOLS_INDEX"
    columns = [Column("Family", is_cut=True, is_name=True), Column("Runs", is_right=True)]
    rows = [(name, "1"), (name.replace("INDEX", "STATS"), "2")]
    assert texts(aligned_table(columns, rows, width=24)) == [
        "Family              Runs",
        "SEQ.A…MTOOLS_INDEX     1",
        "SEQ.A…MTOOLS_STATS     2",
    ]


@given(st.text(), st.integers(0, 40))
def test_a_cut_name_has_no_more_columns_than_there_are(name: str, width: int) -> None:
    assert columns_of(cut_middle(name, width)) <= max(width, columns_of("…"))


def test_names_that_would_read_alike_get_the_room_of_less_needed_columns() -> None:
    columns = (
        Column("Family", is_cut=True, is_name=True),
        Column("Runs", rank=1),
        Column("Size"),
    )
    names = ("ALIGN.READS.SORT_BY_NAME", "ALIGN.PAIRS.SORT_BY_NAME", "INDEX.GENOME.SORT_BY_PLACE")
    rows = [(name, "50", "1 vCPU, 36 GB") for name in names]
    shown = [line.split("  ")[0] for line in texts(aligned_table(columns, rows, width=40))]
    assert len(set(shown)) == 1 + len(names)
    assert not any("50" in line for line in texts(aligned_table(columns, rows, width=40)))
    apart = [("A" * 30, "50", "1 vCPU, 36 GB"), ("B" * 30, "50", "1 vCPU, 36 GB")]
    assert all("50" in line for line in texts(aligned_table(columns, apart, width=40))[1:])


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_a_table_is_aligned_as_the_encoding_of_the_output_has_its_texts(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setattr("profiler.cli.tables.stdout_encoding", lambda: encoding)
    names = ["nightly", "漢字-ジョブ", "naïve", "🚀-etl", "≥ 3"]
    rows = aligned_table([Column("Family"), Column("End")], [[name, "here"] for name in names])
    shown = render_lines(rows, is_coloured=False, encoding=encoding).decode(encoding).splitlines()
    assert all(row.endswith(("End", "here")) for row in shown)
    starts = {columns_of(row.removesuffix("End").removesuffix("here")) for row in shown}
    assert len(starts) == 1


def test_a_mark_takes_no_column_and_stays_with_its_letter() -> None:
    word = "e\u0301te\u0301"
    assert columns_of(word) == 3
    assert columns_of("a\u20dd\N{HEAVY BLACK HEART}\N{VARIATION SELECTOR-16}") == 2
    assert cut_end(word, 3) == word
    assert cut_end(word, 2) == "e\u0301…"
    assert cut_end(word * 2, 5) == "e\u0301te\u0301e\u0301…"
    # The end of a name never begins with the mark of a letter that is not there.
    assert cut_middle("xe\u0301" * 4, 5) == "x…e\u0301xe\u0301"
    assert cut_middle("xe\u0301" * 4, 3) == "…xe\u0301"
    sentence = " ".join([word] * 10)
    assert texts(wrapped_lines(sentence, 23)) == [" ".join([word] * 6), " ".join([word] * 4)]
    rows = [(word, "1", ""), ("abc", "2", "")]
    assert texts(aligned_table(COLUMNS, rows, width=40))[1:] == [f"{word}       1", "abc       2"]


@each_case("width", range(2, 20))
@each_case("character", ["\u200d", "\x1b", "\u202e", "\U000e0067"])
def test_a_cut_divides_no_escape(character: str, width: int) -> None:
    """A family of people in one picture, a flag, Hebrew: what joins or turns them is escaped."""
    text = printable(f"a{character}{character}日{character}b")
    escaped = printable(character)
    shown = cut_end(text, width)
    assert columns_of(shown) <= width
    assert "\\" not in shown.replace(escaped, "")


def test_a_backslash_of_a_path_is_cut_anywhere() -> None:
    assert cut_end("C:\\users\\x", 5) == "C:\\u…"
    assert cut_end("a\\u20zz\\", 5) == "a\\u2…"
