import re

from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.task_record import ResourceLimits
from profiler.local_run.live import ROWS, LiveView, Terminal, render
from profiler.readers.ecs.container_stats import ContainerSample
from tests.fakes import START_NS, sample, seconds

MIB = 2**20
SIZES = ResourceLimits(vcpu=2, memory_bytes=512 * MIB)
ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[78])")


def plain(text: str) -> str:
    return ESCAPE.sub("", text)


class Screen:
    """What was written, and a size that a test may change."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self.terminal = Terminal(columns=columns, rows=rows)
        self.written: list[str] = []
        self.view = LiveView(lambda: self.terminal, self.written.append, SIZES, START_NS)


def test_the_lines_show_cpu_and_memory_relative_to_their_limits() -> None:
    before = sample(START_NS + seconds(64), 10.0, 100 * MIB)
    cpu, memory = render(sample(START_NS + seconds(65), 11.5, 256 * MIB, pids=3), before, SIZES, START_NS, 80)
    assert plain(cpu).split() == ["CPU", "━" * 22 + "╸" + "━" * 7, "1.50", "of", "2", "vCPU", "1:05"]
    assert plain(memory).split()[2:] == ["256", "of", "512", "MB", "3", "threads"]


def test_one_thread_and_one_unit_for_memory_and_limit() -> None:
    sizes = ResourceLimits(vcpu=0.25, memory_bytes=8 * 1024 * MIB)
    _, memory = render(sample(START_NS + seconds(1), 0.1, 256 * MIB, pids=1), None, sizes, START_NS, 80)
    assert plain(memory).split()[2:] == ["0.25", "of", "8", "GB", "1", "thread"]


def test_what_is_not_known_yet_is_a_dash() -> None:
    cpu, memory = render(ContainerSample(read_ns=START_NS), None, ResourceLimits(), START_NS, 80)
    assert "- vCPU" in plain(cpu)
    assert "- MB" in plain(memory)


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
    screen = Screen(rows=3)
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
    lines = render(now, earlier, ResourceLimits(vcpu=vcpu, memory_bytes=None), START_NS, columns)
    assert len(lines) <= ROWS
    assert all(len(plain(line)) <= columns for line in lines)
