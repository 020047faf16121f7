import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.local_run.live_view import LiveFigures, NamedProcesses, live_rows
from profiler.local_run.terminal_rows import RED, YELLOW, BottomRows, Row, Terminal
from profiler.record.family_identity import UsualDuration

MIB = 2**20
GIB = 1024 * MIB
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78D])")
MINUTE_MS = 60_000
USUAL = UsualDuration(median_ms=2.5 * MINUTE_MS, p95_ms=2.75 * MINUTE_MS, runs=20)


def text(row: Row) -> str:
    return "".join(part for part, _ in row).rstrip()


def shown(figures: LiveFigures, columns: int = 80, height: int = 24, *, ascii_only: bool = False) -> list[str]:
    return [text(row) for row in live_rows(figures, Terminal(columns=columns, rows=height), ascii_only=ascii_only)]


def busy(*notices: str, elapsed_ms: float = 1.2 * MINUTE_MS, usual: UsualDuration | None = USUAL) -> LiveFigures:
    return LiveFigures(
        elapsed_ms=elapsed_ms,
        vcpu=1.5,
        vcpu_course=[0, 0.5, 1, 2],
        vcpu_limit=2,
        memory_bytes=412 * MIB,
        memory_course=[100 * MIB, None, 512 * MIB, 412 * MIB],
        memory_limit_bytes=64 * GIB,
        threads=12,
        processes=[NamedProcesses("ffmpeg", 2, 1.9, 412 * MIB), NamedProcesses("gzip", 1, 0.34, 3 * MIB)],
        usual=usual,
        notices=notices,
    )


def test_a_wide_terminal_shows_the_course_the_time_left_and_the_processes() -> None:
    width = 38
    assert shown(busy()) == [
        f"CPU    1.50 vCPU {'▁▃▅█':<{width}} ▔ limit 2 vCPU",
        f"Memory 412 MB    {'▂ █▇':<{width}} ▔ peak 512 MB of 64 GB",
        f"Time   1:12      {'━' * width} of about 2:30, 1:18 left",
        "Top    ffmpeg ×2 1.9 vCPU 412 MB · gzip 0.3 vCPU 3 MB",
    ]


def test_a_narrow_terminal_keeps_values_and_curves() -> None:
    assert shown(busy(), 40) == [
        "CPU    1.50 vCPU ▁▃▅█",
        "Memory 412 MB    ▂ █▇",
        "Time   1:12 of about 2:30, 1:18 left",
        "Top    ffmpeg ×2 1.9 vCPU 412 MB",
    ]


def test_a_low_terminal_has_the_first_rows() -> None:
    assert [len(shown(busy(), height=height)) for height in (6, 8, 10, 12, 60)] == [2, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("elapsed_ms", "columns", "end"),
    [
        (0, 80, "0:00      ━+ of about 2:30, 2:30 left"),
        (2.5 * MINUTE_MS, 80, "2:30      ━+ of about 2:30"),
        (2.6 * MINUTE_MS, 40, "2:36 of about 2:30"),
        (71_900, 40, "1:11 of about 2:30, 1:19 left"),
        (1.2 * MINUTE_MS, 45, "1:12 of about 2:30, 1:18 left"),
        (3 * MINUTE_MS, 80, "3:00      ━+ longer than usual \\(p95 2:45\\)"),
    ],
)
def test_the_time_is_compared_with_the_usual_one(elapsed_ms: float, columns: int, end: str) -> None:
    assert re.fullmatch(f"Time   {end}", shown(busy(elapsed_ms=elapsed_ms), columns)[2])


def test_without_past_runs_the_row_counts_processes_and_threads() -> None:
    assert shown(busy(usual=None))[2] == "Time   1:12      3 processes, 12 threads"
    one = LiveFigures(elapsed_ms=0, threads=1, processes=[NamedProcesses("sh", 1, 0, 0)])
    assert shown(one)[2] == "Time   0:00      1 process, 1 thread"
    figures = replace(busy(usual=None), without_usual="no history")
    assert shown(figures)[2] == "Time   1:12      3 processes, 12 threads · time left unknown: no history"


def test_what_reaches_the_limit_has_another_colour() -> None:
    cpu, memory, *_ = live_rows(busy(), Terminal(columns=80, rows=24), ascii_only=False)
    assert ("█", YELLOW) in cpu
    assert RED not in {colour for part, colour in memory if part.strip()}, "the top of the curve is not the limit"
    full = LiveFigures(elapsed_ms=0, memory_course=[MIB, 4 * MIB], memory_limit_bytes=4 * MIB)
    _, memory, *_ = live_rows(full, Terminal(columns=80, rows=24), ascii_only=False)
    assert ("█", RED) in memory


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_notice_stays_beside_the_curve_of_the_cpu(columns: int) -> None:
    cpu, *_ = live_rows(busy("memory runs out"), Terminal(columns=columns, rows=24), ascii_only=False)
    assert (" memory runs out", RED) in cpu
    assert len(text(cpu)) <= columns

    # Names are cut and harmless.
    figures = LiveFigures(elapsed_ms=0, processes=[NamedProcesses("\x1b[2J" + "n" * 90, 1, 0, 0)])
    (row,) = shown(figures)[3:]
    assert "\x1b" not in row
    assert "nnn… 0.0 vCPU 0 MB" in row


NUMBERS = st.none() | st.floats(0, 2.0**60)


COURSE = st.lists(NUMBERS, max_size=5).map(lambda values: values * 50)


def figures_of(**fields: Any) -> LiveFigures:
    """The annotations of the class are not all there at run time, and hypothesis would look at them."""
    return LiveFigures(**fields)


FIGURES = st.builds(
    figures_of,
    elapsed_ms=st.floats(0, 1e12),
    vcpu=NUMBERS,
    vcpu_course=COURSE,
    vcpu_limit=st.none() | st.floats(0, 1e6, exclude_min=True),
    memory_bytes=NUMBERS,
    memory_course=COURSE,
    memory_limit_bytes=NUMBERS,
    threads=st.none() | st.integers(0, 10**6),
    processes=st.lists(
        st.builds(NamedProcesses, st.text(max_size=40), st.integers(1, 9999), st.floats(0, 1e4), st.integers(0, 2**50)),
        max_size=6,
    ),
    usual=st.none()
    | st.builds(UsualDuration, median_ms=st.floats(0, 1e12), p95_ms=st.floats(0, 1e12), runs=st.just(3)),
    notices=st.lists(st.sampled_from(["stuck", "memory runs out", "overdue"]), max_size=3),
)


@given(FIGURES, st.integers(30, 200), st.integers(6, 60), st.booleans())
def test_any_figures_fit_the_terminal(figures: LiveFigures, columns: int, height: int, ascii_only: bool) -> None:  # noqa: FBT001
    terminal, written = Terminal(columns=columns, rows=height), list[str]()
    rows = BottomRows(lambda: terminal, written.append, is_coloured=True)
    rows.draw(lambda size: live_rows(figures, size, ascii_only=ascii_only))
    _, *drawn = "".join(written).split("\x1b[2K")
    assert 2 <= len(drawn) <= min(4, height // 3)
    assert all(len(ESCAPE.sub("", row)) <= columns for row in drawn)
    assert not any("\n" in row for row in drawn)
