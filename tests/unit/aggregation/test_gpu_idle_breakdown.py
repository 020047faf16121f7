"""What a run did while its GPUs were idle, by the place in the run."""

import pytest

from profiler.aggregation.busy_time import BusyTime
from profiler.aggregation.gpu_idle_breakdown import IdleTimeByPlace
from profiler.aggregation.stretch import Stretch
from profiler.core.timestamps import NS_PER_MS
from tests.fakes import seconds
from tests.values import present


def stretch_at(index: int) -> Stretch:
    """100 ms in which two threads could run for 60 ms each; every other look found both."""
    start_ns = index * 100 * NS_PER_MS
    stretch = Stretch(start_ns, start_ns + 100 * NS_PER_MS, 4, able_threads=1 + index % 2)
    stretch.able_ns = stretch.length_ns
    for _ in range(2):
        stretch.add_thread_time(60 * NS_PER_MS, 0)
    return stretch


@pytest.mark.parametrize(("until", "is_known"), [(3.9, True), (4.1, False)])
def test_what_was_done_in_less_than_half_of_a_time_says_nothing_of_it(
    until: float, *, is_known: bool
) -> None:
    """What the run did is known for its first two seconds."""
    places = IdleTimeByPlace(0)
    for index in range(20):
        stretch = stretch_at(index)
        places.add_stretch(stretch, stretch.length_ns, 1.0, 1.0)
    before, between = places.idle_parts_before_and_between(seconds(until), seconds(10))
    assert (before is not None) == is_known
    assert between is None


def test_places_that_are_merged_know_how_many_threads_could_run() -> None:
    whole = BusyTime()
    places = IdleTimeByPlace(0)
    for index in range(4000):
        stretch = stretch_at(index)
        whole.add_part_of_interval(stretch)
        places.add_stretch(stretch, stretch.length_ns, 1.0, 1.0)
    assert whole.open_share == pytest.approx(0.5)
    _, between = places.idle_parts_before_and_between(0, seconds(400))
    assert present(between).busy.open_share == pytest.approx(0.5, abs=0.01)
