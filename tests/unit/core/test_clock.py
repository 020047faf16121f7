"""The ticker and the system's clocks."""

from profiler.core.clock import Ticker
from tests.fakes import seconds


def test_ticks_lie_on_a_grid_and_lateness_does_not_accumulate() -> None:
    ticker = Ticker(seconds(100), seconds(1))
    assert ticker.seconds_to_next(seconds(100)) == 1
    assert ticker.seconds_to_next(seconds(101.25)) == 0.75
    assert ticker.missed == 0
    assert ticker.seconds_to_next(seconds(104.5)) == 0.5
    assert ticker.missed == 2
    assert ticker.seconds_to_next(seconds(104.5)) == 1.5
