"""How often the processes on a GPU are read between two ticks."""

import pytest

from profiler.collectors.nvidia.process_lists import ProcessLists
from profiler.collectors.nvidia.reading_pace import QuickReadings, RetryPauses, SlowCall
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


@pytest.mark.parametrize(
    ("took_ms", "due_ms"),
    [
        ((0.2, 0.2, 0.2, 0.2, 40), 0),
        ((5, 5, 0.2, 0.2, 0.2), 0),
        ((3, 3, 3, 3), 0),
        ((1, 1, 1, 1, 1), 0),
        ((4.5, 0.2, 4.5, 4.5, 0.2), 9000),
    ],
    ids=["one that waits", "the first ones", "too few", "a millisecond", "usually"],
)
def test_a_call_is_rare_if_it_is_usually_slow(took_ms: tuple[float, ...], due_ms: int) -> None:
    """A list of 4.5 ms (a 4090) is read every 9 s."""
    call = SlowCall()
    began_ns = 0
    for took in took_ms:
        began_ns += NS_PER_SECOND
        call.add_call(began_ns, began_ns + round(took * NS_PER_MS))
    assert call.is_due(began_ns + due_ms * NS_PER_MS)
    assert not due_ms or not call.is_due(began_ns + due_ms * NS_PER_MS - 1)


def test_a_complete_reading_has_its_list_whatever_it_costs() -> None:
    clock = FakeClock()

    def ask(_: str) -> list[object]:
        clock.advance(0.1)
        return []

    lists = ProcessLists(ask, clock)
    found = [lists.read_processes() is not None for _ in range(8)]
    assert found == [True] * 5 + [False] * 3
    assert lists.read_processes(is_complete=True) == ()


def due_after_seconds(retries: RetryPauses, now_ns: int) -> int:
    """The whole seconds until it is tried again."""
    return next(
        seconds for seconds in range(100) if retries.is_due(now_ns + seconds * NS_PER_SECOND)
    )


def test_the_pause_after_trouble_is_short_and_grows_up_to_half_a_minute() -> None:
    retries = RetryPauses()
    assert retries.is_due(0)
    retries.wait_longer(0)
    assert due_after_seconds(retries, 0) == 30  # it never worked
    retries.wait_after_trouble(0, is_longer_each_time=True)
    waited = []
    for _ in range(7):
        waited.append(due_after_seconds(retries, 0))
        retries.wait_longer(0)
    assert waited == [0, 1, 2, 4, 8, 16, 30]
    retries.wait_longest(0)
    assert due_after_seconds(retries, 0) == 30


@pytest.mark.parametrize(
    ("is_longer_each_time", "seconds"), [(True, [1, 2, 4, 1]), (False, [1, 1, 1, 1])]
)
def test_trouble_that_comes_again_soon_has_no_first_pause(
    *, is_longer_each_time: bool, seconds: list[int]
) -> None:
    """Each time five seconds after the last one; then half a minute after the last retry."""
    retries = RetryPauses(first_ns=NS_PER_SECOND)
    waited = []
    for at_seconds in (100, 105, 110, 144):
        now_ns = at_seconds * NS_PER_SECOND
        retries.wait_after_trouble(now_ns, is_longer_each_time=is_longer_each_time)
        waited.append(due_after_seconds(retries, now_ns))
    assert waited == seconds
