from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.stacks.stack_collector import SamplingSchedule
from profiler.core.timestamps import NS_PER_SECOND
from profiler.settings import StacksMode
from tests.fakes import seconds

_MS = NS_PER_SECOND // 1000


def taken(schedule: SamplingSchedule, until: float, cost_ms: float, moments: tuple[range, ...] = ()) -> list[float]:
    """The seconds at which samples are taken."""
    now_ns, times = 0, []
    while now_ns < seconds(until):
        is_moment = any(now_ns // NS_PER_SECOND in moment for moment in moments)
        due_ns = schedule.next_ns(now_ns, is_moment=is_moment)
        if due_ns is not None and due_ns <= now_ns:
            schedule.add(now_ns, round(cost_ms * _MS))
            times.append(now_ns / NS_PER_SECOND)
        now_ns += NS_PER_SECOND // 5
    return times


def test_the_first_minute_has_a_sample_a_second_then_every_ten() -> None:
    times = taken(SamplingSchedule("on", 0), 300, cost_ms=10)
    assert len([at for at in times if at < 60]) == 60
    assert [round(after - before) for before, after in pairwise(times[60:])] == [10] * 23


def test_a_moment_has_a_sample_a_second_and_expensive_samples_are_rarer() -> None:
    times = taken(SamplingSchedule("on", 0), 300, cost_ms=5, moments=(range(100, 130),))
    assert len([at for at in times if 101 <= at < 130]) == 29
    times = taken(SamplingSchedule("on", 0), 600, cost_ms=90)
    assert [round(after - before) for before, after in pairwise(times)][:10] == [5] * 10
    assert 90 * len(times) <= 1800


@given(
    st.sampled_from(["on", "moments"]),
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2000)), max_size=4),
)
def test_no_run_of_ten_minutes_or_more_costs_more_than_its_share(
    mode: StacksMode, costs_ms: list[int], moments: list[tuple[int, int]]
) -> None:
    schedule, now_ns, spent_ns, index = SamplingSchedule(mode, 0), 0, 0, 0
    while now_ns < seconds(3000):
        is_moment = any(first <= now_ns / NS_PER_SECOND < first + length for first, length in moments)
        due_ns = schedule.next_ns(now_ns, is_moment=is_moment)
        if due_ns is not None and due_ns <= now_ns:
            cost_ns = costs_ms[index % len(costs_ms)] * _MS
            schedule.add(now_ns, cost_ns)
            spent_ns, index = spent_ns + cost_ns, index + 1
            # The cost of the next sample is not known before; it may be above that of the last one.
            assert spent_ns <= 0.003 * max(now_ns, seconds(600)) + max(costs_ms) * _MS
        now_ns += NS_PER_SECOND
    assert schedule.spent_ns == spent_ns
