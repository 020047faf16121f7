import threading
from collections.abc import Callable

import pytest

from profiler.aggregation.task_record import ResourceLimits
from profiler.local_run.live_view import LiveView, NamedProcesses, top_processes
from profiler.local_run.terminal_rows import BottomRows, Terminal
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.family_identity import UsualDuration
from tests.fakes import START_NS, sample, seconds
from tests.shown_runs import stuck_notice

MIB = 2**20
SIZES = ResourceLimits(vcpu=2, memory_bytes=512 * MIB)


class Shown:
    """A view, and what it has drawn."""

    def __init__(self, read_usual: Callable[[], UsualDuration | None] | None = None) -> None:
        self.drawn: list[str] = []
        rows = BottomRows(lambda: Terminal(columns=80, rows=24), self.drawn.append, is_coloured=False)
        self.view = LiveView(rows, SIZES, START_NS, read_usual)

    def at(self, elapsed_seconds: float, cpu_seconds: float = 0.0, memory_mb: int = 1) -> list[str]:
        """The rows, each as its words, after a sample at that time."""
        self.view.on_sample(sample(START_NS + seconds(elapsed_seconds), cpu_seconds, memory_mb * MIB), ())
        return [] if not self.drawn else self.drawn[-1].removesuffix("\x1b8").split("\x1b[2K")[1:]


def process(pid: int, name: str, cpu_seconds: float, memory_mb: int | None) -> ProcessReading:
    share = None if memory_mb is None else memory_mb * MIB
    return ProcessReading(
        pid=pid, started_ticks=1, name=name, own_cpu_ns=seconds(cpu_seconds), children_cpu_ns=0, share_bytes=share
    )


def test_it_draws_at_most_four_times_a_second_and_not_at_once() -> None:
    shown = Shown()
    for step in range(1, 101):  # 20 ms, as at the start of a run
        shown.at(step * 0.02)
    assert len(shown.drawn) == 7
    assert not Shown().at(0.24)


def test_the_numbers_are_those_since_the_last_draw() -> None:
    """A notice is shown from its time on."""
    shown = Shown()
    assert "CPU    1.50 vCPU" in shown.at(1, 1.5)[0]
    shown.at(1.1, 1.7)
    assert "CPU    0.50 vCPU" in shown.at(2, 2.0)[0]
    shown.view.on_notice(stuck_notice())
    cpu, _, time, *_ = shown.at(65, 3.0)
    assert (" stuck " in cpu, "1:05" in time, " stuck " in shown.at(66)[0]) == (True, True, True)


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


@pytest.mark.parametrize(
    ("past", "reason"),
    [
        (None, "no earlier success known"),
        (usual(100, 120, runs=2), "fewer than 3 earlier successes"),
        (usual(100, 301), "earlier durations differ too much"),
    ],
)
def test_where_the_time_left_would_be_a_guess_the_row_names_the_reason(past: UsualDuration | None, reason: str) -> None:
    assert f"time left unknown: {reason}\x1b" in time_row(past)


def test_a_history_that_hangs_is_not_waited_for_and_short_runs_do_not_read_it() -> None:
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
    processes = (
        process(1, "sh", 10, 1),
        process(2, "etl.py", 2, 30),
        process(3, "etl.py", 0.5, 40),
        process(4, "database", 0.1, 900),
        process(5, "ended", 9, None),
    )
    assert top_processes(processes, before, seconds(2)) == [
        NamedProcesses("etl.py", 2, 0.75, 70 * MIB),
        NamedProcesses("database", 1, 0.05, 900 * MIB),
        NamedProcesses("sh", 1, 0.0, MIB),
    ]
