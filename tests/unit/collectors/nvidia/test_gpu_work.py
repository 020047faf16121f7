"""When a GPU worked for a run, by windows of its work."""

import pickle

import pytest

from profiler.collectors.nvidia.gpu_work import GpuWork
from profiler.core.timestamps import NS_PER_SECOND
from tests.fakes import seconds
from tests.values import present

LENGTH = 0.2


def work_of(length: float, *windows: tuple[float, float]) -> GpuWork:
    """Windows of 0.2 s: the second at which one begins, and its percent; of the others 0."""
    work = GpuWork(0)
    percents = {round(at / LENGTH): percent for at, percent in windows}
    for index in range(round(length / LENGTH)):
        start_ns = seconds(index * LENGTH)
        end_ns = seconds((index + 1) * LENGTH)
        percent = percents.get(index, 0.0)
        used_ns = percent / 100 * (end_ns - start_ns)
        work.add_window(start_ns, end_ns, used_ns, within=(start_ns, end_ns), percent=percent)
    return work


def parts(work: GpuWork, length: float) -> tuple[float, ...]:
    """Seconds: the first and the last work, and the idle time before, between and after."""
    found = present(work.work_limits_until(seconds(length)))
    return tuple(
        round(value / NS_PER_SECOND, 2)
        for value in (
            *(found.first_ns, found.last_ns),
            *(found.before_ns, found.between_ns, found.after_ns),
        )
    )


def test_a_context_that_begins_is_not_the_beginning_of_the_work() -> None:
    """Windows of 1 and 2 %, also right before the work, count as use but do not begin it."""
    work = work_of(10, (1, 2), (3.8, 1), *((4 + index * LENGTH, 100) for index in range(10)))
    first, last, before, between, after = parts(work, 10)
    assert (first, last) == (4.0, 6.0)
    assert before == pytest.approx(4 - 0.006, abs=0.01)
    assert between == 0
    assert after == 4
    assert before + between + after == pytest.approx(10 - work.used_ns / NS_PER_SECOND, abs=0.01)


def test_a_pause_between_two_pieces_of_work_is_between() -> None:
    work = work_of(20, (5, 100), (15, 100))
    assert parts(work, 20) == (5.0, 15.2, 5.0, 9.8, 4.8)


def test_a_small_piece_before_a_long_pause_is_not_the_beginning() -> None:
    """3 % of all use, seven seconds before the rest: a tensor that is made while loading."""
    work = work_of(40, (3, 30), *((11 + index * LENGTH, 100) for index in range(10)))
    assert parts(work, 40)[0] == 11.0


@pytest.mark.parametrize(("length", "first"), [(40, 6.0), (100, 3.14)])
def test_a_pause_separates_if_it_is_a_twentieth_of_the_run(length: float, first: float) -> None:
    """A small piece of work, 2.8 s before the rest: in a long run, it begins the work."""
    work = work_of(length, (3, 30), *((6 + index * LENGTH, 100) for index in range(10)))
    assert parts(work, length)[0] == first


@pytest.mark.parametrize(("pause", "first"), [(1.8, 4.14), (2.0, 6.2)])
def test_a_pause_of_less_than_two_seconds_separates_nothing(pause: float, first: float) -> None:
    """In a short run: a small piece of work, and the rest after the pause."""
    begin = 4.2 + pause
    work = work_of(20, (4, 30), *((begin + index * LENGTH, 100) for index in range(10)))
    assert parts(work, 20)[0] == first


def test_the_pieces_of_a_long_run_are_of_a_bounded_number() -> None:
    """Each pause is a fifteenth of the time until then: 300 pauses of a run of 1,300 years."""
    sizes = []
    for count in (60, 300):
        work = GpuWork(0)
        for number in range(count):
            start_ns = round(seconds(40) * 1.07**number)
            end_ns = start_ns + seconds(LENGTH)
            work.add_window(
                start_ns, end_ns, end_ns - start_ns, within=(start_ns, end_ns), percent=100
            )
        sizes.append(len(pickle.dumps(work)))
    assert sizes[1] < 1.5 * sizes[0]


def test_without_work_there_are_no_limits() -> None:
    assert work_of(5).work_limits_until(seconds(5)) is None
    assert work_of(5, (2, 1)).work_limits_until(seconds(5)) is not None, "weak work alone is work"
