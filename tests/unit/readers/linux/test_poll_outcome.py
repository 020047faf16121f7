"""What ended a poll: in these, it is ten seconds past, the poll ends between 9.5 and 9.52 s at the
latest, and the thread worked since it ended.
"""

import pytest
from msgspec.structs import replace

from profiler.readers.linux.poll_outcome import (
    ConnectionArrival,
    WorkBeginBounds,
    did_timeout_end_poll,
    has_ended_before_timeout,
    was_due_as_work_began,
    what_came,
)
from profiler.readers.linux.wait_types import BlockedThread, Connection, Wait
from tests.fakes import seconds

_NOTHING = ConnectionArrival(came=False, before_ns=seconds(5))
_CLOSED = ConnectionArrival(came=None, is_closed=True)


def _poll(until: float | None, within: float | None = 0.02) -> BlockedThread:
    return BlockedThread(
        wait=Wait("network"),
        has_timeout=True,
        until_ns=None if until is None else seconds(until),
        until_within_ns=None if within is None else seconds(within),
    )


def _came(before: float, segments: int | None = 1) -> ConnectionArrival:
    return ConnectionArrival(came=True, segments=segments, before_ns=seconds(before))


def _works_since(at: float) -> WorkBeginBounds:
    return WorkBeginBounds(seconds(at), seconds(at), is_known=True, worked_ns=seconds(10 - at))


def _worked(first: float, last: float, on_cpu: float = 0.4) -> WorkBeginBounds:
    return WorkBeginBounds(seconds(first), seconds(last), is_known=False, worked_ns=seconds(on_cpu))


@pytest.mark.parametrize(
    ("begin", "arrivals", "expected"),
    [
        pytest.param(_works_since(9.51), [_NOTHING], True, id="nothing came"),
        pytest.param(_worked(9.3, 9.6), [_NOTHING, _NOTHING], True, id="nor before it worked"),
        pytest.param(_works_since(9.2), [_came(0.8)], False, id="the timeout was later"),
        pytest.param(_works_since(9.51), [_came(0.2)], True, id="it came after the work had begun"),
        pytest.param(_works_since(9.51), [_came(0.7)], True, id="it came before"),
        pytest.param(_works_since(9.51), [_came(0.2, 3)], True, id="the moment is the timeout's"),
        pytest.param(_works_since(9.51), [_came(0.2, None)], True, id="also for an old kernel"),
        pytest.param(_works_since(9.51), [_came(0.49)], None, id="both at this moment"),
        pytest.param(_works_since(9.7), [_came(0.2, 3)], None, id="another timeout, or a row"),
        pytest.param(_works_since(9.7), [_came(0.2)], True, id="another timeout"),
        pytest.param(_worked(9.3, 9.6), [_came(0.5)], None, id="either of both"),
        pytest.param(_worked(9.3, 9.6), [_came(0.2)], True, id="only the timeout"),
        pytest.param(_worked(9.3, 9.6, 0.2), [_came(0.2)], None, id="it waited for a CPU before"),
        pytest.param(_worked(9.3, 9.4), [_came(0.65)], False, id="only what came"),
        pytest.param(
            _works_since(9.51), [ConnectionArrival(came=None)], False, id="nobody can ask"
        ),
        pytest.param(_works_since(9.51), [_CLOSED], True, id="a client's timer closed it"),
        pytest.param(_works_since(9.2), [_CLOSED], False, id="its end came before the timeout"),
        pytest.param(_worked(9.3, 9.6), [_CLOSED, _came(0.5)], None, id="another one's end, or it"),
    ],
)
def test_what_the_work_began_with(
    begin: WorkBeginBounds,
    arrivals: list[ConnectionArrival],
    expected: bool | None,  # noqa: FBT001
) -> None:
    assert did_timeout_end_poll(_poll(9.5), arrivals, begin, seconds(10)) is expected


@pytest.mark.parametrize(
    ("segments", "sent", "owes", "expected"),
    [
        (1, 1, False, True),
        (2, 3, False, True),
        (2, 1, False, None),
        (1, 0, False, None),
        (1, None, False, None),
        (None, 1, False, None),
        (1, 1, True, None),
    ],
)
def test_who_waits_for_no_answer_has_asked_for_what_came_after_the_timeout(
    segments: int | None,
    sent: int | None,
    owes: bool,  # noqa: FBT001
    expected: bool | None,  # noqa: FBT001
) -> None:
    poll = replace(_poll(9.5), connections=(Connection("10.0.3.9:80", 7, owes=owes),))
    answer = ConnectionArrival(came=True, segments=segments, sent=sent, before_ns=seconds(0.5))
    for arrivals in ([answer], [answer, _NOTHING]):
        assert did_timeout_end_poll(poll, arrivals, _worked(9.3, 9.6), seconds(10)) is expected
    if not owes:
        arrivals = [answer, _CLOSED]
        assert did_timeout_end_poll(poll, arrivals, _worked(9.3, 9.6), seconds(10)) is None


def test_a_timeout_that_is_not_known_well_is_not_told_by_the_moment() -> None:
    begin = _works_since(9.51)
    assert did_timeout_end_poll(_poll(9.3, 0.3), [_came(0.2, 3)], begin, seconds(10)) is None
    assert did_timeout_end_poll(_poll(9.5, None), [_came(0.2, 3)], begin, seconds(10)) is None
    assert did_timeout_end_poll(_poll(None), [_NOTHING], begin, seconds(10)) is False
    assert did_timeout_end_poll(_poll(None), [_came(0.7)], begin, seconds(10)) is None


@pytest.mark.parametrize(
    ("begin", "arrivals", "expected"),
    [
        pytest.param(_worked(9.3, 9.6), [_NOTHING], True, id="nothing came"),
        pytest.param(_worked(9.3, 9.6), [_came(0.2)], True, id="it came after the work"),
        pytest.param(
            _works_since(9.51), [_came(0.4, 3)], None, id="it may have ended the next poll"
        ),
        pytest.param(_worked(9.3, 9.4), [_NOTHING], False, id="a wake-up ended it"),
    ],
)
def test_what_a_short_poll_ended_with(
    begin: WorkBeginBounds,
    arrivals: list[ConnectionArrival],
    expected: bool | None,  # noqa: FBT001
) -> None:
    """Others may have followed it, so its moment says nothing."""
    assert did_timeout_end_poll(_poll(9.5, None), arrivals, begin, seconds(10)) is expected


@pytest.mark.parametrize(
    "connection",
    [Connection("10.0.3.9:5432", 7, owes=True), Connection("10.0.3.9:5432", received_bytes=0)],
    ids=["answer", "greeting"],
)
def test_polls_for_an_answer_are_no_timer_if_they_are_short_or_it_was_the_last(
    connection: Connection,
) -> None:
    poll = replace(_poll(9.5, None), connections=(connection,))
    for turns, is_timer in ((401, False), (400, True)):  # it only asks again, or it works
        begin = replace(_worked(9.3, 9.6), turns=turns)
        assert did_timeout_end_poll(poll, [_NOTHING], begin, seconds(10)) is is_timer
    poll = replace(_poll(9.5), connections=(connection,))
    assert did_timeout_end_poll(poll, [_CLOSED], _works_since(9.51), seconds(10)) is False


@pytest.mark.parametrize(
    ("owes", "came_before", "expected"),
    [(True, 0.52, False), (True, 0.51, None), (False, 0.52, None)],
    ids=["it ended the poll", "at the timeout", "a row"],
)
def test_an_answer_that_was_owed_and_came_before_the_timeout_ended_the_poll(
    owes: bool,  # noqa: FBT001
    came_before: float,
    expected: bool | None,  # noqa: FBT001
) -> None:
    poll = replace(_poll(9.5), connections=(Connection("10.0.3.9:80", 7, owes=owes),))
    arrivals = [_came(came_before, 3)]
    assert did_timeout_end_poll(poll, arrivals, _worked(9.3, 9.6), seconds(10)) is expected


@pytest.mark.parametrize("is_answer", [True, False])
def test_an_answer_of_several_segments_came_to_who_has_asked(*, is_answer: bool) -> None:
    arrival = replace(_came(0.2, 5), sent=1, is_answer=is_answer)
    expected = True if is_answer else None
    found = did_timeout_end_poll(_poll(9.5), [arrival], _worked(9.3, 9.6), seconds(10))
    assert found is expected


@pytest.mark.parametrize(("timed_out", "on_closed"), [(True, False), (False, None), (None, None)])
def test_nothing_came_on_a_connection_that_a_timer_closed(
    timed_out: bool | None,  # noqa: FBT001
    on_closed: bool | None,  # noqa: FBT001
) -> None:
    arrivals = [_CLOSED, _came(0.2), ConnectionArrival(came=None)]
    assert what_came(arrivals, timed_out=timed_out) == (on_closed, True, None)


@pytest.mark.parametrize(
    ("until", "worked", "expected"),
    [
        pytest.param(10.1, 0, True, id="its timeout is still to come"),
        pytest.param(9.9, 0.05, False, id="it may have worked since"),
        pytest.param(9.9, 0.105, False, id="it was read later than the clock"),
        pytest.param(9.9, 0.12, True, id="it has worked for longer"),
        pytest.param(None, 5, False, id="nobody knows the timeout"),
    ],
)
def test_what_has_ended_before_its_timeout_did_not_end_by_it(
    until: float | None, worked: float, *, expected: bool
) -> None:
    begin = _worked(9, 9.5, worked)
    assert has_ended_before_timeout(_poll(until), begin, seconds(10)) == expected


@pytest.mark.parametrize(
    ("within", "last", "is_able", "expected"),
    [
        pytest.param(0, 9.502, True, True, id="at the timeout"),
        pytest.param(0, 9.495, True, True, id="the counters were read after the clock"),
        pytest.param(0, 9.48, True, False, id="before it"),
        pytest.param(0, 9.48, False, False, id="before it, and it waits again"),
        pytest.param(0, 9.502, False, None, id="at any time before"),
        pytest.param(0, 9.53, True, None, id="another wait followed"),
        pytest.param(0.02, 9.502, True, None, id="the timeout is not known exactly"),
    ],
)
def test_work_that_begins_at_the_timeout_follows_it(
    within: float, last: float, *, is_able: bool, expected: bool | None
) -> None:
    begin = WorkBeginBounds(
        seconds(9), seconds(last), is_known=False, worked_ns=0, is_of_able=is_able
    )
    assert was_due_as_work_began(_poll(9.5, within), begin) is expected
