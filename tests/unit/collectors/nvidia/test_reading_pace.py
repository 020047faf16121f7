"""How often the processes on a GPU are read between two ticks."""

from profiler.collectors.nvidia.reading_pace import QuickReadings
from profiler.core.timestamps import NS_PER_MS, NS_PER_SECOND
from tests.fakes import FakeClock


def pauses(count: int, *, is_changing: bool) -> list[int]:
    """Milliseconds from each reading, which costs 20 ms of CPU time, to the next."""
    clock = FakeClock()
    cpu_ms = [0]

    def read() -> None:
        cpu_ms[0] += 20

    readings = QuickReadings(read, clock, lambda: cpu_ms[0] * NS_PER_MS, lambda: is_changing)
    found = []
    due_ns = readings.read_due()
    for _ in range(count):
        clock.advance((due_ns - clock.now_ns) / NS_PER_SECOND)
        due_ns = readings.read_due()
        found.append((due_ns - clock.now_ns) // NS_PER_MS)
    return found


def test_the_first_50_ms_of_cpu_time_are_free_then_the_pace_is_that_of_the_budget() -> None:
    """20 ms are 0.04 % of 50 s."""
    assert pauses(6, is_changing=False) == [100, 100, 24_800, 50_000, 50_000, 50_000]


def test_while_memory_changes_the_budget_is_overdrawn_by_50_ms_at_most() -> None:
    found = pauses(9, is_changing=True)
    assert found[:5] == [100] * 5
    assert found[6:] == [50_000] * 3
