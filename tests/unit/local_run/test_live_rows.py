import re

from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.task_record import ResourceLimits
from profiler.local_run.live_rows import ROWS, LiveView, live_rows
from profiler.local_run.terminal_rows import BottomRows, Part, Terminal
from profiler.readers.container_sample import ContainerSample
from tests.fakes import START_NS, sample, seconds
from tests.shown_runs import stuck_notice

MIB = 2**20
SIZES = ResourceLimits(vcpu=2, memory_bytes=512 * MIB)
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78])")


def words(row: tuple[Part, ...]) -> list[str]:
    return "".join(text for text, _ in row).split()


class Screen:
    """What was written, and a size that a test may change."""

    def __init__(self, columns: int = 80, height: int = 24, *, is_coloured: bool = True) -> None:
        self.terminal = Terminal(columns=columns, rows=height)
        self.written: list[str] = []
        rows = BottomRows(ROWS, lambda: self.terminal, self.written.append, is_coloured=is_coloured)
        self.view = LiveView(rows, SIZES, START_NS)


def test_the_lines_show_cpu_and_memory_relative_to_their_limits() -> None:
    before = sample(START_NS + seconds(64), 10.0, 100 * MIB)
    cpu, memory = live_rows(sample(START_NS + seconds(65), 11.5, 256 * MIB, pids=3), before, SIZES, START_NS)
    assert words(cpu) == ["CPU", "━" * 22 + "╸" + "━" * 7, "1.50", "of", "2", "vCPU", "1:05"]
    assert words(memory)[2:] == ["256", "of", "512", "MB", "3", "threads"]


def test_one_thread_and_one_unit_for_memory_and_limit() -> None:
    sizes = ResourceLimits(vcpu=0.25, memory_bytes=8 * 1024 * MIB)
    _, memory = live_rows(sample(START_NS + seconds(1), 0.1, 256 * MIB, pids=1), None, sizes, START_NS)
    assert words(memory)[2:] == ["0.25", "of", "8", "GB", "1", "thread"]


def test_what_is_not_known_yet_is_a_dash() -> None:
    cpu, memory = live_rows(ContainerSample(read_ns=START_NS), None, ResourceLimits(), START_NS)
    assert words(cpu)[2:4] == ["-", "vCPU"]
    assert words(memory)[2:4] == ["-", "MB"]


def test_the_bottom_rows_are_reserved_once_and_given_back() -> None:
    screen = Screen()
    screen.view.on_sample(sample(START_NS + seconds(1), 0.5, MIB))
    screen.view.on_sample(sample(START_NS + seconds(2), 1.0, MIB))
    screen.view.close()
    screen.view.close()
    reserved, first, second, closed = screen.written
    assert "\x1b[1;22r" in reserved
    assert "\x1b[23;1H" in first
    assert "\x1b[24;1H" in second
    assert "\x1b[r" in closed


def test_a_resized_terminal_is_reserved_again() -> None:
    screen = Screen()
    screen.view.on_sample(sample(START_NS + seconds(1), 0.5, MIB))
    screen.terminal = Terminal(columns=60, rows=40)
    screen.view.on_sample(sample(START_NS + seconds(2), 1.0, MIB))
    assert "\x1b[1;38r" in screen.written[2]


def test_a_terminal_that_is_too_small_shows_nothing_and_keeps_nothing() -> None:
    screen = Screen(height=3)
    screen.view.on_sample(sample(START_NS + seconds(1), 0.5, MIB))
    assert screen.written == []
    screen.terminal = Terminal(columns=80, rows=24)
    screen.view.on_sample(sample(START_NS + seconds(2), 0.5, MIB))
    screen.terminal = Terminal(columns=10, rows=24)
    screen.view.on_sample(sample(START_NS + seconds(3), 0.5, MIB))
    assert "\x1b[r" in screen.written[-1]


@given(
    st.integers(0, 2**60), st.none() | st.integers(0, 2**60), st.none() | st.integers(0, 2**60), st.integers(1, 300),
    st.none() | st.floats(0, 1e6, exclude_min=True),
)  # fmt: skip
def test_any_sample_fits_its_two_lines(
    read_ns: int, cpu_ns: int | None, memory_bytes: int | None, columns: int, vcpu: float | None
) -> None:
    now = ContainerSample(read_ns=read_ns, cpu_ns=cpu_ns, memory_used_bytes=memory_bytes)
    earlier = ContainerSample(read_ns=START_NS, cpu_ns=5)
    screen = Screen(columns)
    rows = live_rows(now, earlier, ResourceLimits(vcpu=vcpu, memory_bytes=None), START_NS)
    assert len(rows) == ROWS
    BottomRows(ROWS, lambda: screen.terminal, screen.written.append, is_coloured=True).draw(rows)
    drawn = "".join(screen.written[1:]).split("\x1b[2K")[1:]
    assert all(len(ESCAPE.sub("", line)) <= columns for line in drawn)


def test_without_colours_the_rest_of_a_bar_is_empty() -> None:
    screen = Screen(is_coloured=False)
    screen.view.on_sample(sample(START_NS + seconds(1), 0.5, 256 * MIB))
    drawn = screen.written[-1]
    assert "\x1b[32m" not in drawn
    assert "━" * 15 + " " * 16 in drawn


def test_a_notice_stays_beside_the_bar_also_in_a_narrow_terminal() -> None:
    screen = Screen(columns=50)
    screen.view.on_notice(stuck_notice())
    screen.view.on_sample(sample(START_NS + seconds(61), 0.5, MIB))
    _, drawn = screen.written
    assert "\x1b[31m  stuck\x1b[0m" in drawn
