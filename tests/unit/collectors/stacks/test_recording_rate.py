"""How long and how often a local run's stacks are recorded."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from profiler.collectors.stacks.recording_rate import RecordingRate
from tests.fakes import seconds

_CALL_MS = 18  # a reading and the start of a recording
_MAX_SECONDS = 0.003 * 600


class Recorded(Struct, frozen=True):
    """A recording, and the CPU time that was spent until its end."""

    at: float
    seconds: int
    rate_hz: int
    spent_seconds: float


def _recorded(
    until: int,
    *,
    sample_ms: float = 0.2,
    processes: int = 1,
    vcpu: float = 2,
    rate_hz: int | None = None,
    is_moment: bool = False,
    load: Callable[[float], float] = lambda _: 1,
) -> list[Recorded]:
    """The recordings until then; ``load``: how many times dearer all is at a second."""
    rate = RecordingRate(0, vcpu, rate_hz)
    seen = []
    now_ns = spent_ns = 0
    while now_ns < seconds(until):
        now_ns = max(now_ns, rate.next_ns(is_moment=is_moment))
        recording = rate.next_recording(now_ns, processes, is_moment=is_moment)
        cost_ms = processes * (_CALL_MS + sample_ms * recording.seconds * recording.rate_hz)
        ended_ns = now_ns + seconds(recording.seconds)
        spent_ns += round(cost_ms * load(now_ns / 1e9) * 1e6)
        reading_ns = round(processes * _CALL_MS / 2 * load(now_ns / 1e9) * 1e6)
        rate.add_recording(now_ns, ended_ns, spent_ns, recording, reading_ns)
        seen.append(Recorded(now_ns / 1e9, recording.seconds, recording.rate_hz, spent_ns / 1e9))
        now_ns = ended_ns
    return seen


def test_the_first_minute_has_20_samples_a_second_in_recordings_that_become_longer() -> None:
    first_minute = [row for row in _recorded(60) if row.at < 60]
    assert {row.rate_hz for row in first_minute} == {20}
    assert [row.seconds for row in first_minute] == [1] * 4 + [4] * 14
    assert first_minute[0].at == 0.2
    assert first_minute[-1].spent_seconds < 0.01 * 60


def _rates_after(second: float, rows: list[Recorded]) -> list[int]:
    return [row.rate_hz for row in rows if row.at > second]


def test_after_a_minute_the_rate_is_halved_while_a_recording_takes_more_than_is_left() -> None:
    assert set(_rates_after(60, _recorded(500, sample_ms=0.15))) == {5, 10}
    assert _rates_after(60, _recorded(300, sample_ms=0.8))[-1] == 1
    assert set(_rates_after(60, _recorded(300, sample_ms=0.05))) == {20}


def test_the_first_minute_takes_little_more_than_half_of_what_ten_may_take() -> None:
    rows = _recorded(60, sample_ms=1)
    assert max(row.spent_seconds for row in rows) < 0.6 * _MAX_SECONDS
    assert _rates_after(0, rows)[-1] < 20


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_a_busy_machine_has_samples_until_the_end_within_the_budget(times: float) -> None:
    rows = _recorded(600, load=lambda _: times)
    pauses = [after.at - before.at - before.seconds for before, after in pairwise(rows)]
    assert max(pauses) < 150
    assert rows[-1].spent_seconds < _MAX_SECONDS
    assert rows[-1].at > 540
    # Not by far fewer than it may have.
    assert rows[-1].spent_seconds > 0.6 * _MAX_SECONDS


def test_cheap_recordings_double_the_rate_again() -> None:
    rate = RecordingRate(0, 2)
    at_ns, spent_ms = seconds(100), 0
    for cost_ms, rate_hz in ((50, 20), (10, 5), (12, 5), (12, 10), (12, 20)):
        recording = rate.next_recording(at_ns, 1, is_moment=False)
        spent_ms += cost_ms
        ended_ns = at_ns + seconds(recording.seconds)
        rate.add_recording(at_ns, ended_ns, spent_ms * 1_000_000, recording)
        assert rate.next_recording(at_ns, 1, is_moment=False).rate_hz == rate_hz


def test_a_recording_that_was_interrupted_says_how_dear_a_sample_is() -> None:
    rate = RecordingRate(0, 2)
    for length, cost_seconds, rate_hz in ((1, 0.02, 20), (1, 0.001, 20), (20, 0.02, 5)):
        recording = rate.next_recording(seconds(100), 1, is_moment=False)
        assert recording.seconds == length
        spent_ns = rate.budget.spent_ns + seconds(cost_seconds)
        rate.add_recording(seconds(100), seconds(101), spent_ns, recording)
        assert rate.next_recording(seconds(130), 1, is_moment=False).rate_hz == rate_hz


def test_a_moment_does_not_wait_until_the_budget_lasts() -> None:
    rate = RecordingRate(0, 2)
    for at, cost_seconds in ((70, 0.01), (80, 0.01), (90, 0.4)):
        recording = rate.next_recording(seconds(at), 1, is_moment=False)
        spent_ns = rate.budget.spent_ns + seconds(cost_seconds)
        ended_ns = seconds(at + recording.seconds)
        rate.add_recording(seconds(at), ended_ns, spent_ns, recording, seconds(cost_seconds / 2))
    assert rate.next_ns(is_moment=True) == ended_ns
    assert rate.next_ns() > ended_ns + seconds(60)


def test_a_rate_of_the_user_is_kept_whatever_it_costs() -> None:
    rows = _recorded(700, sample_ms=5, processes=8, rate_hz=100)
    assert {row.rate_hz for row in rows} == {100}
    pauses = [after.at - before.at - before.seconds for before, after in pairwise(rows)]
    assert max(pauses) == pytest.approx(0)


@pytest.mark.parametrize(
    ("processes", "vcpu", "rate"), [(1, 2, 20), (2, 2, 20), (8, 2, 5), (1, 1, 10), (8, 1, 1)]
)
def test_all_processes_together_have_a_bounded_rate(processes: int, vcpu: float, rate: int) -> None:
    rows = _recorded(1, processes=processes, vcpu=vcpu)
    assert rows[0].rate_hz == rate


def test_a_moment_has_short_recordings() -> None:
    rows = _recorded(60, is_moment=True)
    assert [row.seconds for row in rows if row.at > 4] == [2] * 28


@pytest.mark.parametrize(("at", "step"), [(0.2, 0.1), (3, 0.1), (5, 1)])
def test_a_python_process_is_searched_for_often_at_the_start(at: float, step: float) -> None:
    rate = RecordingRate(0, 2)
    rate.add_recording(seconds(at), seconds(at), 1000, None)
    assert rate.next_ns() == seconds(at + step)


def test_a_recording_that_fails_at_once_is_not_repeated_at_once() -> None:
    rate = RecordingRate(0, 2, 100)
    recording = rate.next_recording(seconds(5), 1, is_moment=False)
    rate.add_recording(seconds(5), seconds(5), 1000, recording)
    assert rate.next_ns() == seconds(6)


@given(
    st.floats(0.01, 50),
    st.integers(1, 8),
    st.booleans(),
    st.lists(st.floats(1, 2), min_size=1, max_size=8),
)
def test_no_run_of_ten_minutes_or_more_costs_more_than_its_share(
    sample_ms: float,
    processes: int,
    is_moment: bool,  # noqa: FBT001  hypothesis passes it
    loads: list[float],
) -> None:
    rows = _recorded(
        2000,
        sample_ms=sample_ms,
        processes=processes,
        is_moment=is_moment,
        load=lambda at: loads[int(at / 7) % len(loads)],
    )
    first_seconds = rows[1].spent_seconds  # nobody knows what the first ones take
    for row in rows:
        bound_seconds = 0.003 * max(row.at + row.seconds, 600)
        assert row.spent_seconds <= max(bound_seconds, first_seconds)
