"""The rows at the bottom of a terminal, on a small model of one, and what they show of a run."""

import re
import threading
from collections.abc import Callable, Sequence
from os import terminal_size

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.local_run.live_view import (
    LiveFigures,
    LiveView,
    NamedProcesses,
    live_rows,
    top_processes,
)
from profiler.local_run.terminal_rows import GREEN, RED, YELLOW, BottomRows, Row
from profiler.readers.container_sample import ResourceLimits
from profiler.record.family_statistics import UsualDuration
from tests.fakes import START_NS, process, sample, seconds
from tests.shown_runs import stuck_notice

TOKEN = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])|\x1b([78D])|([\r\n])|([^\x1b\r\n])")
ROWS: tuple[Row, ...] = ((("first", ""),), (("second", GREEN),))


class Screen:
    """What a terminal does with the codes that are used here.

    A line feed goes to the first column.
    """

    def __init__(self, columns: int = 40, rows: int = 10) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [" " * self.columns for _ in range(self.rows)]
        self.region = 0, self.rows - 1
        self.row = self.column = 0  # a column after the last one: the next character wraps
        self.saved = 0, 0

    def resize(self, rows: int) -> None:
        """The last row stays the last one if the cursor needs it, as in most terminals."""
        lost = max(self.row + 1 - rows, 0)
        self.lines = (self.lines[lost:] + [" " * self.columns] * rows)[:rows]
        self.row, self.rows, self.region = self.row - lost, rows, (0, rows - 1)

    def write(self, text: str) -> None:
        for numbers, code, short, control, character in TOKEN.findall(text):
            if character:
                self.put(character)
            elif control:
                self.column = 0
                if control == "\n":
                    self.index()
            elif short == "7":
                self.saved = self.row, self.column
            elif short == "8":
                self.row, self.column = self.saved
            elif short:
                self.index()
            else:
                self.control(code, [int(number or 0) for number in numbers.split(";")])

    def put(self, character: str) -> None:
        if self.column == self.columns:
            self.column = 0
            self.index()
        line = self.lines[self.row]
        self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
        self.column += 1

    def index(self) -> None:
        top, bottom = self.region
        if self.row == bottom:
            self.lines[top : bottom + 1] = [*self.lines[top + 1 : bottom + 1], " " * self.columns]
        else:
            self.row = min(self.row + 1, self.rows - 1)

    def control(self, code: str, numbers: list[int]) -> None:
        if code == "r":
            self.region = (numbers[0] - 1, numbers[1] - 1) if numbers[0] else (0, self.rows - 1)
            self.row = self.column = 0
        elif code == "H":
            self.row, self.column = numbers[0] - 1, numbers[1] - 1
        elif code == "A":
            self.row = max(self.row - numbers[0], 0)
        elif code == "K":
            self.lines[self.row] = " " * self.columns
        elif code == "J":
            self.lines[self.row] = self.lines[self.row][: self.column].ljust(self.columns)
            self.lines[self.row + 1 :] = [" " * self.columns] * (self.rows - self.row - 1)
        else:
            assert code == "m"

    @property
    def text(self) -> list[str]:
        return [line.rstrip() for line in self.lines]

    @property
    def rows_here(self) -> BottomRows:
        return BottomRows(
            lambda: terminal_size((self.columns, self.rows)), self.write, is_coloured=True
        )


def draw(rows: BottomRows, shown: Sequence[Row] = ROWS) -> None:
    rows.draw(lambda _: shown)


def test_the_rows_are_below_the_output_which_goes_on_where_it_was() -> None:
    screen = Screen()
    rows = screen.rows_here
    screen.write("one\nPassword: ")
    draw(rows)
    screen.write("secret\n")
    draw(rows)
    assert screen.text == ["one", "Password: secret", *[""] * 6, "first", "second"]
    rows.close()
    assert screen.text == ["one", "Password: secret", *[""] * 8]
    assert screen.row == 2
    assert screen.column == 0
    assert screen.region == (0, 9)


def test_a_resized_terminal_keeps_no_old_rows() -> None:
    for rows_now in (7, 9, 14):
        screen = Screen()
        rows = screen.rows_here
        screen.write("one\ntwo")
        draw(rows)
        screen.resize(rows_now)
        draw(rows)
        assert screen.text == ["one", "two", *[""] * (rows_now - 4), "first", "second"]
        screen.resize(8)
        rows.close()
        assert screen.text == ["one", "two", *[""] * 6]
        assert screen.row == 1
        assert screen.column == 3
        assert screen.region == (0, 7)


WRITES = st.lists(st.sampled_from(["a", "word ", "x" * 7, "\n", "\r", "line\n"]), max_size=40)


@given(WRITES, st.integers(30, 50), st.integers(6, 12), st.integers(1, 4))
def test_any_output_is_as_on_a_smaller_screen(
    writes: list[str], columns: int, height: int, count: int
) -> None:
    screen, smaller = Screen(columns, height), Screen(columns, height - count)
    rows = screen.rows_here
    draw(rows, [(("row", ""),)] * count)
    for written in writes:
        screen.write(written)
        smaller.write(written)
        if screen.column < columns:  # else the terminal forgets now and then to wrap
            draw(rows, [(("row", ""),)] * count)
    rows.close()
    assert screen.text == smaller.text + [""] * count
    assert screen.row == smaller.row
    assert screen.column == smaller.column


def test_a_terminal_that_is_too_small_shows_nothing_and_keeps_nothing() -> None:
    size, written = terminal_size((80, 5)), list[str]()
    rows = BottomRows(lambda: size, written.append, is_coloured=True)
    draw(rows)
    assert written == []
    size = terminal_size((80, 24))
    draw(rows)
    size = terminal_size((29, 24))
    draw(rows)
    assert "\x1b[r" in written[-1]
    assert "first" not in written[-1]


MIB = 2**20
GIB = 1024 * MIB
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78D])")
MINUTE_MS = 60_000
USUAL = UsualDuration(median_ms=2.5 * MINUTE_MS, p95_ms=2.75 * MINUTE_MS, runs=20)


def text(row: Row) -> str:
    return "".join(part for part, _ in row).rstrip()


def shown(figures: LiveFigures, columns: int = 80, height: int = 24) -> list[str]:
    return [text(row) for row in live_rows(figures, terminal_size((columns, height)))]


def busy(
    *notices: str, elapsed_ms: float = 1.2 * MINUTE_MS, usual: UsualDuration | None = USUAL
) -> LiveFigures:
    return LiveFigures(
        elapsed_ms=elapsed_ms,
        vcpu=1.5,
        vcpu_course=[0, 0.5, 1, 2],
        vcpu_limit=2,
        memory_bytes=412 * MIB,
        memory_digits=[100 * MIB, None, 512 * MIB, 412 * MIB],
        memory_limit_bytes=64 * GIB,
        threads=12,
        processes=[
            NamedProcesses("ffmpeg", 2, 1.9, 412 * MIB),
            NamedProcesses("gzip", 1, 0.34, 3 * MIB),
        ],
        usual=usual,
        notices=notices,
    )


def test_a_wide_terminal_shows_all_and_a_narrow_one_keeps_values_and_curves() -> None:
    width = 38
    assert shown(busy()) == [
        f"CPU    1.50 vCPU {'▁▃▅█':<{width}} ▔ limit 2 vCPU",
        f"Memory 412 MB    {'▂ █▇':<{width}} ▔ peak 512 MB of 64 GB",
        f"Time   1:12      {'━' * width} of about 2:30, 1:18 left",
        "Top    ffmpeg ×2 1.9 vCPU 412 MB · gzip 0.3 vCPU 3 MB",
    ]
    assert shown(busy(), 40) == [
        "CPU    1.50 vCPU ▁▃▅█",
        "Memory 412 MB    ▂ █▇",
        "Time   1:12 of about 2:30, 1:18 left",
        "Top    ffmpeg ×2 1.9 vCPU 412 MB",
    ]


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


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_notice_stays_beside_the_curve_of_the_cpu(columns: int) -> None:
    cpu, *_ = live_rows(busy("memory runs out"), terminal_size((columns, 24)))
    assert (" memory runs out", RED) in cpu
    assert len(text(cpu)) <= columns


def test_what_reaches_the_limit_has_another_colour_and_names_are_cut_and_harmless() -> None:
    cpu, memory, *_ = live_rows(busy(), terminal_size((80, 24)))
    assert ("█", YELLOW) in cpu
    assert RED not in {colour for part, colour in memory if part.strip()}, (
        "the top of the curve is not the limit"
    )
    full = LiveFigures(elapsed_ms=0, memory_digits=[MIB, 4 * MIB], memory_limit_bytes=4 * MIB)
    _, memory, *_ = live_rows(full, terminal_size((80, 24)))
    assert ("█", RED) in memory
    figures = LiveFigures(elapsed_ms=0, processes=[NamedProcesses("\x1b[2J" + "n" * 90, 1, 0, 0)])
    (row,) = shown(figures)[3:]
    assert "\x1b" not in row
    assert "nnn… 0.0 vCPU 0 MB" in row


NUMBERS = st.none() | st.floats(0, 2.0**60)
COURSE = st.lists(NUMBERS, max_size=5).map(lambda values: values * 50)


FIGURES = st.builds(
    # Not the class itself: its annotations are not all there at run time, and hypothesis would look
    # at them.
    lambda **fields: LiveFigures(**fields),  # noqa: PLW0108  see above
    elapsed_ms=st.floats(0, 1e12),
    vcpu=NUMBERS,
    vcpu_course=COURSE,
    vcpu_limit=st.none() | st.floats(0, 1e6, exclude_min=True),
    memory_bytes=NUMBERS,
    memory_digits=COURSE,
    memory_limit_bytes=NUMBERS,
    threads=st.none() | st.integers(0, 10**6),
    processes=st.lists(
        st.builds(
            NamedProcesses,
            st.text(max_size=40),
            st.integers(1, 9999),
            st.floats(0, 1e4),
            st.integers(0, 2**50),
        ),
        max_size=6,
    ),
    usual=st.none()
    | st.builds(
        UsualDuration, median_ms=st.floats(0, 1e12), p95_ms=st.floats(0, 1e12), runs=st.just(3)
    ),
    notices=st.lists(st.sampled_from(["stuck", "memory runs out", "overdue"]), max_size=3),
)


@given(FIGURES, st.integers(30, 200), st.integers(6, 60))
def test_any_figures_fit_the_terminal(figures: LiveFigures, columns: int, height: int) -> None:
    terminal, written = terminal_size((columns, height)), list[str]()
    rows = BottomRows(lambda: terminal, written.append, is_coloured=True)
    rows.draw(lambda size: live_rows(figures, size))
    _, *drawn = "".join(written).split("\x1b[2K")
    assert 2 <= len(drawn) <= min(4, height // 3)
    assert all(len(ESCAPE.sub("", row)) <= columns for row in drawn)
    assert not any("\n" in row for row in drawn)


SIZES = ResourceLimits(vcpu=2, memory_bytes=512 * MIB)


class Shown:
    """A view, and what it has drawn."""

    def __init__(self, read_usual: Callable[[], UsualDuration | None] | None = None) -> None:
        self.drawn: list[str] = []
        rows = BottomRows(lambda: terminal_size((80, 24)), self.drawn.append, is_coloured=False)
        self.view = LiveView(rows, SIZES, START_NS, read_usual)

    def at(self, elapsed_seconds: float, cpu_seconds: float = 0.0, memory_mb: int = 1) -> list[str]:
        """The rows, each as its words, after a sample at that time."""
        self.view.on_sample(
            sample(START_NS + seconds(elapsed_seconds), cpu_seconds, memory_mb * MIB), ()
        )
        return [] if not self.drawn else self.drawn[-1].removesuffix("\x1b8").split("\x1b[2K")[1:]


def test_the_numbers_are_those_since_the_last_draw_of_at_most_four_a_second() -> None:
    """A notice is shown from its time on."""
    shown = Shown()
    for step in range(1, 101):  # 20 ms, as at the start of a run
        assert bool(shown.at(step * 0.02)) == (step * 0.02 >= 0.25)
    assert len(shown.drawn) == 7
    shown = Shown()
    assert "CPU    1.50 vCPU" in shown.at(1, 1.5)[0]
    shown.at(1.1, 1.7)
    assert "CPU    0.50 vCPU" in shown.at(2, 2.0)[0]
    shown.view.on_notice(stuck_notice())
    cpu, _, time, *_ = shown.at(65, 3.0)
    assert " stuck " in cpu
    assert "1:05" in time
    assert " stuck " in shown.at(66)[0]


def usual(median_seconds: float, p95_seconds: float, runs: int = 20) -> UsualDuration:
    return UsualDuration(median_ms=1000 * median_seconds, p95_ms=1000 * p95_seconds, runs=runs)


def time_row(past: UsualDuration | None) -> str:
    """The row of the time, after the history was read."""
    shown = Shown(lambda: past)
    shown.at(2)
    for thread in threading.enumerate():
        if thread.name == "usual-duration":
            thread.join()
    return shown.at(30)[2]


@pytest.mark.parametrize("past", [None, usual(100, 120, runs=2), usual(100, 301)])
def test_where_the_time_left_would_be_a_guess_there_is_none(past: UsualDuration | None) -> None:
    assert "left" in time_row(usual(100, 120))
    assert "left" not in time_row(past)


def test_a_history_that_hangs_is_not_waited_for() -> None:
    """A history that hangs is not waited for and short runs do not read it."""
    reads, may_end = list[int](), threading.Event()

    def read() -> None:
        reads.append(1)
        may_end.wait()

    shown = Shown(read)
    assert shown.at(1.9)
    assert not reads
    assert "0:02" in shown.at(2.2)[2]
    assert "0:03" in shown.at(3)[2]
    may_end.set()
    assert len(reads) <= 1


def test_processes_are_summed_up_by_name_the_largest_by_cpu_and_memory_first() -> None:
    before = {(1, 1): seconds(10), (2, 1): seconds(1)}
    processes = [
        process(
            pid,
            name=name,
            own_cpu_ns=seconds(cpu),
            held=None if memory_mb is None else memory_mb * MIB,
        )
        for pid, (name, cpu, memory_mb) in enumerate(
            (
                ("sh", 10, 1),
                ("etl.py", 2, 30),
                ("etl.py", 0.5, 40),
                ("database", 0.1, 900),
                ("ended", 9, None),
            ),
            1,
        )
    ]
    assert top_processes(processes, before, seconds(2)) == [
        NamedProcesses("etl.py", 2, 0.75, 70 * MIB),
        NamedProcesses("database", 1, 0.05, 900 * MIB),
        NamedProcesses("sh", 1, 0.0, MIB),
    ]
