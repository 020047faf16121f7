"""When to look: spread over each step, as often as it may cost."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.look_times import LookTimes
from profiler.core.timestamps import NEVER_NS
from tests.fakes import seconds


def taken(
    cost: float, *, steps: int = 40, place: float = 0.3, late: float = 0.0, is_enough: bool = False
) -> list[float]:
    """The times of the looks of so many steps of a second, in seconds; each costs the same."""
    looks = LookTimes(0, seconds(1), 0.003, place)
    times = []
    while looks.due_ns < seconds(steps):
        if looks.is_peek:
            looks.note_peek(looks.due_ns, 0)
            continue
        times.append(looks.due_ns / seconds(1))
        looks.note_look(looks.due_ns + seconds(late), seconds(cost), is_enough=is_enough)
    return times


@pytest.mark.parametrize(
    ("cost", "looks"), [(0.0001, 5), (0.0006, 5), (0.00075, 4), (0.0014, 2), (0.1, 1)]
)
def test_as_many_as_they_may_cost_but_never_none(cost: float, looks: int) -> None:
    times = taken(cost)
    for step in range(20, 40):
        assert sum(int(at) == step for at in times) == looks


def test_a_first_look_that_is_expensive_costs_little_of_the_others() -> None:
    looks = LookTimes(0, seconds(1), 0.003, 0.5)
    looks.note_look(looks.due_ns, seconds(0.02))
    while looks.due_ns < seconds(8):
        looks.note_look(looks.due_ns, seconds(0.0003))
    assert looks.part_ns == seconds(0.2)


@pytest.mark.parametrize("expensive", [0.0015, 0.003])
def test_looks_of_different_costs_keep_their_share_together(expensive: float) -> None:
    """As of many threads: their counters are read in some looks, and their calls in others."""
    looks = LookTimes(0, seconds(1), 0.003, 0.3)
    costs = itertools.cycle([0.0002, 0.0002, expensive])
    spent = 0.0
    while looks.due_ns < seconds(300):
        cost = next(costs)
        spent += cost if looks.due_ns >= seconds(100) else 0
        looks.note_look(looks.due_ns, seconds(cost), can_peek=False)
    assert 0.0015 < spent / 200 <= 0.003


class FoundBy(NamedTuple):
    """What a look has found."""

    is_still: bool
    has_other_waits: bool
    open_ns: int | None


def looks_of_steps(
    steps: int,
    *,
    is_same: Callable[[float], bool] = lambda _: True,
    is_still: Callable[[float], bool] = lambda _: False,
    open_part: Callable[[float], float | None] = lambda _: 0.0,
) -> list[list[float]]:
    """Where in each step of a second its looks lie, 0 for one with a reading at its begin."""

    def found_at(at: float) -> FoundBy:
        part = open_part(at)
        open_ns = None if part is None else seconds(part)
        return FoundBy(is_still(at), has_other_waits=not is_same(at), open_ns=open_ns)

    looks = LookTimes(0, seconds(1), 0.003, 0.3)
    places: list[list[float]] = []
    for step in range(steps):
        places.append([])
        now_ns = seconds(step) + 1000
        if looks.leave_out_if_long_same(now_ns):
            assert looks.due_ns >= seconds(step + 1)
        elif looks.is_with_reading(now_ns):
            places[-1].append(0)
            looks.note_with_reading(now_ns, found_at(step))
        while looks.due_ns < seconds(step + 1):
            assert not looks.is_peek
            at = looks.due_ns / seconds(1)
            places[-1].append(at - step)
            looks.note_look(looks.due_ns, seconds(0.0001), look=found_at(at))
    return places


def test_one_in_a_step_is_enough_while_each_finds_the_same() -> None:
    places = looks_of_steps(60, is_same=lambda at: at < 50)
    assert [len(step) for step in places[:20]] == [5] * 20
    assert {step[0] for step in places[21:50]} == {0}
    placed = [step for step in range(21, 50) if places[step] != [0]]
    assert placed == [24, 32, 40, 48]
    assert len({places[step][1] for step in placed}) == 4
    assert {len(places[step]) for step in placed} == {2}
    assert [len(step) for step in places[51:]] == [5] * 9


def test_other_waits_that_a_reading_finds_are_looked_at_in_its_step() -> None:
    places = looks_of_steps(60, is_same=lambda at: not 41 <= at < 41.1)
    assert places[41][0] == 0
    assert len(places[41]) == 6
    assert [len(step) for step in places[42:60]] == [5] * 18


@pytest.mark.parametrize(("part", "steps"), [(0.1, 0), (0.3, 3), (None, 5), (1.0, 10), (16.0, 10)])
def test_what_a_step_leaves_open_costs_ten_times_as_many_steps(
    part: float | None, steps: int
) -> None:
    places = looks_of_steps(60, open_part=lambda at: part if at == 22 else 0.0)
    with_more = [step for step in range(21, 60) if len(places[step]) > 2]
    assert len(with_more) == max(steps - 1, 0)  # one was gained in advance
    assert all(step[0] == 0 for step in places[21 + steps :])


def test_as_many_steps_are_gained_in_advance() -> None:
    places = looks_of_steps(60, open_part=lambda at: 0.9 if at == 40 else 0.0)
    assert all(step[0] == 0 for step in places[21:])


def test_a_minute_of_the_same_outlasts_a_step_that_is_wholly_open() -> None:
    places = looks_of_steps(120, open_part=lambda at: 1.0 if at == 90 else 0.0)
    assert [len(step) for step in places[93:120:2]] == [0] * 14


def test_looks_that_leave_more_than_a_tenth_open_on_average_do_not_get_fewer() -> None:
    places = looks_of_steps(200, open_part=lambda at: 0.5 if at % 4 < 0.2 else 0.0)
    assert [len(step) for step in places] == [5] * 200


def test_after_a_minute_of_the_same_each_second_reading_comes_without_a_look() -> None:
    places = looks_of_steps(120, is_same=lambda at: at < 90)
    assert all(step[0] == 0 for step in places[21:60])
    assert [len(step) for step in places[61:90]] == [
        0 if step % 2 else 2 if step % 8 == 0 else 1 for step in range(61, 90)
    ]
    assert [len(step) for step in places[91:]] == [5] * 29


def test_readings_are_enough_while_nothing_runs_for_long() -> None:
    places = looks_of_steps(60, is_same=lambda at: at < 45, is_still=lambda at: at < 45)
    assert places[31:45] == [[0]] * 14
    assert [len(step) for step in places[46:]] == [5] * 14


def test_one_in_a_step_where_more_would_cost_too_much() -> None:
    assert len(taken(0.0001, is_enough=True)) == 40


@given(place=st.floats(0, 0.99))
def test_one_in_each_part_of_a_step_at_places_that_are_spread(place: float) -> None:
    times = taken(0.0001, steps=20, place=place)
    assert [int(5 * at + 1e-6) for at in times] == list(range(100))
    places = sorted(5 * at % 1 for at in times)
    gaps = [later - earlier for earlier, later in itertools.pairwise(places)]
    assert max(gaps) < 0.03


@pytest.mark.parametrize(
    ("cost", "peek_cost", "can_peek", "peeks"),
    [
        (0.0001, 0.00001, True, 0),
        (0.0014, 0.00003, True, 5),
        (0.0029, 0.00001, True, 5),
        (0.0014, 0.00003, False, 0),
        (0.0014, 0.00005, True, 0),
        (0.1, 0.00001, True, 0),
    ],
)
def test_peeks_are_spread_where_looks_are_fewer_and_leave_room(
    cost: float,
    peek_cost: float,
    can_peek: bool,  # noqa: FBT001
    peeks: int,
) -> None:
    looks = LookTimes(0, seconds(1), 0.003, 0.3)
    times = []
    while looks.due_ns < seconds(100):
        if looks.is_peek:
            times.append(looks.due_ns / seconds(1))
            looks.note_peek(looks.due_ns, seconds(peek_cost))
        else:
            looks.note_look(looks.due_ns, seconds(cost), can_peek=can_peek)
    for step in range(80, 100):
        assert sum(int(at) == step for at in times) == peeks
    places = sorted(5 * at % 1 for at in times if at >= 80)
    assert all(later - earlier < 0.03 for earlier, later in itertools.pairwise(places))


@pytest.mark.parametrize(("peek_cost", "peeks"), [(0.0001, 5), (0.0007, 0)])
def test_peeks_lie_between_looks_that_are_taken_with_other_readings(
    peek_cost: float, peeks: int
) -> None:
    looks = LookTimes(0, seconds(1), 0.003, 0.3)
    assert looks.peek_due_ns == NEVER_NS
    times = []
    for step in range(100):
        looks.looked_with_others(seconds(step), can_peek=step != 90)
        while looks.peek_due_ns < seconds(step + 1):
            times.append(looks.peek_due_ns / seconds(1))
            looks.note_peek(seconds(times[-1]), seconds(peek_cost))
    for step in range(80, 100):
        expected = 0 if step == 90 else peeks
        assert sum(int(at) == step for at in times) == expected


def test_after_a_pause_no_peek_is_made_up_for() -> None:
    looks = LookTimes(0, seconds(1), 0.003, 0.3)
    while not looks.is_peek:
        looks.note_look(looks.due_ns, seconds(0.0029))
    looks.note_peek(seconds(30.5), 0)
    while not looks.is_peek:
        looks.note_look(seconds(30.5), seconds(0.0029))
    assert looks.due_ns >= seconds(30.4)


def test_after_a_pause_no_look_is_made_up_for() -> None:
    looks = LookTimes(0, seconds(1), 0.003, 0.3)
    looks.note_look(seconds(30.5), seconds(0.0001))
    assert seconds(30) <= looks.due_ns <= seconds(31)
    assert len(taken(0.0001, late=2.0)) <= 21
