"""What happens beside the waits of a thread, by how often it does."""

from collections.abc import Collection

import pytest

from profiler.aggregation.awaited_events import (
    ANY_CONNECTION,
    END_OF_CHILD,
    TIMEOUT_OF_LOOP,
    AwaitedEvents,
    Event,
    EventCounts,
    ProcessEvents,
)
from profiler.core.timestamps import NS_PER_MS

_ANSWERS, _ROWS, _SLEEPER, _OTHER_SLEEPER = b"answers", b"rows", 7, 8


def _events(*counts: tuple[Event, tuple[int, int, int, int]]) -> AwaitedEvents:
    """How many ends, with how many of them it happened, looks in vain, and at how many of these."""
    return AwaitedEvents({event: EventCounts(*each) for event, each in counts})


class TestArrivals:
    @pytest.mark.parametrize(
        ("any_connection", "ended_with", "expected"),
        [
            pytest.param((2, 2, 4, 2), (ANY_CONNECTION,), True, id="awaited"),
            pytest.param((2, 2, 4, 2), (), False, id="nothing came"),
            pytest.param((2, 2, 4, 2), None, True, id="nobody saw the end"),
            pytest.param((2, 2, 4, 3), (ANY_CONNECTION,), False, id="as often in vain"),
            pytest.param((4, 2, 9, 0), (ANY_CONNECTION,), False, id="not the most ends"),
            pytest.param((4, 2, 9, 0), None, False, id="nor mostly"),
        ],
    )
    def test_what_comes_at_most_ends_and_seldom_in_vain_is_awaited(
        self,
        any_connection: tuple[int, int, int, int],
        ended_with: Collection[Event] | None,
        *,
        expected: bool,
    ) -> None:
        events = _events((ANY_CONNECTION, any_connection))
        assert events.are_arrivals(ended_with) == expected
        assert not AwaitedEvents().are_arrivals(ended_with)

    def test_answers_are_awaited_beside_rows_and_own_times(self) -> None:
        """Half of the thread's waits end with an answer, the others with its time."""
        events = _events(
            (ANY_CONNECTION, (10, 7, 30, 9)), (_ANSWERS, (10, 5, 30, 0)), (_ROWS, (10, 3, 30, 9))
        )
        assert events.are_arrivals((ANY_CONNECTION, _ANSWERS, _ROWS))
        assert not events.are_arrivals((ANY_CONNECTION, _ROWS))

    def test_what_came_by_chance_is_not_awaited(self) -> None:
        events = _events((ANY_CONNECTION, (6, 3, 9, 2)), (_ROWS, (6, 3, 9, 2)))
        assert not events.are_arrivals((ANY_CONNECTION, _ROWS))

    def test_what_comes_more_often_than_by_chance_and_often_in_vain_is_not_awaited(self) -> None:
        often = (100, 60, 100, 40)
        events = _events((ANY_CONNECTION, often), (_ROWS, often))
        assert not events.are_arrivals((ANY_CONNECTION, _ROWS))

    def test_only_a_sleeper_with_which_waits_mostly_end_and_no_child_is_awaited_instead(
        self,
    ) -> None:
        rows = (ANY_CONNECTION, (9, 6, 18, 5))
        for event, counts in ((END_OF_CHILD, (9, 9, 18, 0)), (_SLEEPER, (9, 8, 18, 15))):
            assert _events(rows, (event, counts)).are_arrivals((ANY_CONNECTION,))

    def test_a_sleeper_with_which_more_waits_end_is_awaited(self) -> None:
        """Rows come nearly as often as it wakes the thread."""
        rows = (ANY_CONNECTION, (9, 6, 18, 5))
        assert _events(rows).are_arrivals((ANY_CONNECTION,))
        for ends, expected in ((9, False), (5, True)):
            events = _events(rows, (_SLEEPER, (9, ends, 18, 0)))
            assert events.are_arrivals((ANY_CONNECTION,)) == expected

    @pytest.mark.parametrize(
        ("counts", "expected"),
        [
            pytest.param((8, 3, 16, 4), True, id="as often in vain"),
            pytest.param((8, 6, 16, 4), False, id="more often at the ends"),
            pytest.param((8, 3, 16, 9), False, id="all the time"),
            pytest.param((3, 1, 6, 2), False, id="not known yet"),
        ],
    )
    def test_what_comes_as_often_in_vain_is_for_others(
        self, counts: tuple[int, int, int, int], *, expected: bool
    ) -> None:
        assert _events((ANY_CONNECTION, counts)).has_others_arrivals == expected
        assert not _events((_ROWS, counts)).has_others_arrivals

    @pytest.mark.parametrize(
        ("counts", "expected"),
        [
            pytest.param((8, 8, 16, 0), True, id="at most ends"),
            pytest.param((8, 3, 16, 0), False, id="seldom"),
            pytest.param((8, 8, 8, 0), False, id="hardly a look in between"),
        ],
    )
    def test_timeouts_are_awaited_if_there_are_looks_in_between(
        self, counts: tuple[int, int, int, int], *, expected: bool
    ) -> None:
        assert _events((TIMEOUT_OF_LOOP, counts)).are_timeouts == expected
        assert not _events((_SLEEPER, counts)).are_timeouts

    @pytest.mark.parametrize(("ended", "expected"), [(6, True), (3, False)])
    def test_ends_of_children_are_awaited_if_most_waits_end_with_them(
        self, ended: int, *, expected: bool
    ) -> None:
        assert _events((END_OF_CHILD, (8, ended, 16, 1))).are_ends_of_children == expected
        assert not _events((_SLEEPER, (8, ended, 16, 1))).are_ends_of_children


class TestLikelyPlaces:
    @pytest.mark.parametrize(
        ("sleeper", "rows", "expected"),
        [
            pytest.param((9, 9, 18, 0), (9, 4, 18, 7), [0], id="only one at most ends"),
            pytest.param((9, 9, 18, 0), (9, 9, 18, 9), [0, 1], id="both"),
            pytest.param((9, 4, 18, 0), (9, 4, 18, 7), [0, 1], id="none, as in a pool"),
            pytest.param((9, 9, 18, 0), (3, 0, 6, 2), [0, 1], id="one is new"),
            pytest.param((3, 3, 6, 0), (9, 1, 18, 7), [0, 1], id="the other is new"),
        ],
    )
    def test_who_seldom_ends_a_wait_did_not_beside_who_mostly_does(
        self,
        sleeper: tuple[int, int, int, int],
        rows: tuple[int, int, int, int],
        expected: list[int],
    ) -> None:
        events = _events((_SLEEPER, sleeper), (_ROWS, rows))
        ends: list[tuple[Event, ...]] = [(_SLEEPER,), (_OTHER_SLEEPER, _ROWS)]
        assert list(events.likely_places(ends)) == expected

    def test_one_of_which_nothing_is_known_may_have_ended_it(self) -> None:
        events = _events((_SLEEPER, (9, 9, 18, 0)))
        assert list(events.likely_places([(_SLEEPER,), (_OTHER_SLEEPER,)])) == [0, 1]


class TestCounts:
    def test_each_wait_adds_its_looks_and_its_end(self) -> None:
        happened = ProcessEvents()
        for look in (2, 3, 6):
            happened.note(_ROWS, look)
        events = AwaitedEvents()
        events.count_wait(happened, range(2, 5), (_ROWS,), own=_SLEEPER)
        events.count_wait(happened, range(6, 8), None, own=_SLEEPER)
        (counts,) = events.counts.values()
        assert (counts.ends, counts.ends_with_event) == (1, 1)
        assert (counts.looks_in_vain, counts.events_in_vain) == (5, 3)

    def test_what_its_own_waits_do_says_nothing(self) -> None:
        happened = ProcessEvents()
        happened.note(_SLEEPER, 2)
        events = AwaitedEvents()
        events.count_wait(happened, range(1, 3), (_SLEEPER,), own=_SLEEPER)
        assert not events.counts

    @pytest.mark.parametrize(("work_ms", "expected"), [(20, [_ROWS]), (40, [])])
    def test_what_came_after_the_work_began_did_not_end_the_wait(
        self, work_ms: int, expected: list[Event]
    ) -> None:
        happened = ProcessEvents()
        happened.note(_ROWS, 2, 20 * NS_PER_MS)
        assert happened.before(2, work_ms * NS_PER_MS) == expected
        assert not happened.before(3, 0)

    def test_of_what_happened_twice_before_a_look_the_first_counts(self) -> None:
        happened = ProcessEvents()
        for before_ms in (60, 5):
            happened.note(_ROWS, 2, before_ms * NS_PER_MS)
        assert happened.before(2, 60 * NS_PER_MS) == [_ROWS]

    @pytest.mark.parametrize(
        ("came_ms", "begin_ms", "expected"),
        [(None, 50, False), (50, 50, True), (60, 50, True), (80, 50, False), (20, 50, False)],
    )
    def test_what_came_as_the_work_began_may_have_ended_the_wait(
        self, came_ms: int | None, begin_ms: int, *, expected: bool
    ) -> None:
        happened = ProcessEvents()
        if came_ms is not None:
            happened.note(ANY_CONNECTION, 2, came_ms * NS_PER_MS)
        assert happened.may_have_come(2, begin_ms * NS_PER_MS) == expected
        happened.note(ANY_CONNECTION, 3)
        assert happened.may_have_come(3, begin_ms * NS_PER_MS)

    def test_what_happened_long_ago_is_forgotten(self) -> None:
        happened = ProcessEvents()
        for look in range(100):
            happened.note(_ROWS, look)
        assert min(happened.looks[_ROWS]) == 36
        for event in range(100):
            happened.note(event, 100)
        assert len(happened.looks) == 8
        happened.note(ANY_CONNECTION, 101)
        assert happened.before(101, 0) == [ANY_CONNECTION]
