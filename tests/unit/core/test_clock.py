"""The budget of expensive work, and a wall clock that is set."""

import pytest

from profiler.core.clock import ClockJumpDetector, CpuBudget
from tests.fakes import FakeClock, seconds


def test_work_begins_when_the_cost_of_what_was_before_has_accrued() -> None:
    now_ns, budget = 0, CpuBudget(0.01, 300)
    for is_urgent, is_allowed, passed_ns in (
        (False, True, 5_000),  # of the 100 ns at the start, 20 are left
        (False, False, 2_000),  # 70: less than the last piece cost
        (True, True, 1_000),
        (True, True, 1_000),  # 20, and then 60 too much
        (True, False, 100_000),
    ):
        assert budget.allows(now_ns, is_urgent=is_urgent) == is_allowed
        if is_allowed:
            budget.add_cost(80, now_ns)
        now_ns += passed_ns
    assert budget.allows(now_ns, is_urgent=False)


def test_without_an_advance_work_pauses_for_its_cost_divided_by_the_share() -> None:
    budget = CpuBudget(0.005)
    assert budget.allows(7)
    budget.add_cost(50, 1_000)
    budget.add_cost(50, 2_000)  # work that cannot wait
    assert not budget.allows(11_999)
    assert budget.allows(12_000)
    budget.add_cost(50, 100_000)
    assert not budget.allows(109_999)


@pytest.mark.parametrize(
    ("jump", "words"),
    [
        (28_800, "set forward by 28800 s during the run, or the machine was suspended: "),
        (-40, "set back by 40 s during the run: "),
    ],
)
def test_a_wall_clock_that_is_set_is_a_warning(jump: int, words: str) -> None:
    clock = FakeClock()
    jumps = ClockJumpDetector(clock)
    jumps.check()
    clock.advance(6)
    clock.wall_offset_ns += seconds(jump)
    jumps.check()
    (warning,) = jumps.warnings
    assert words in warning


def test_a_wall_clock_that_is_not_set_is_no_warning() -> None:
    clock = FakeClock()
    jumps = ClockJumpDetector(clock)
    for _ in range(3):
        jumps.check()
        clock.advance(3600)
    assert jumps.warnings == ()
