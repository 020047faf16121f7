"""How long and how often a local run's stacks are recorded."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.stacks.recording_rate import RecordingRate
from tests.fakes import seconds

_CALL_MS = 18  # a reading and the start of a recording


def _recorded(
    until: int,
    *,
    sample_ms: float = 0.2,
    processes: int = 1,
    vcpu: float = 2,
    rate_hz: int | None = None,
    is_moment: bool = False,
) -> list[tuple[float, int, int, float]]:
    """The start, length and rate of each recording until then, and the CPU time so far."""
    rate = RecordingRate(0, vcpu, rate_hz)
    seen = []
    now_ns = 0
    while now_ns < seconds(until):
        now_ns = max(now_ns, rate.next_ns())
        recording = rate.next_recording(now_ns, processes, is_moment=is_moment)
        cost_ms = processes * (_CALL_MS + sample_ms * recording.seconds * recording.rate_hz)
        ended_ns = now_ns + seconds(recording.seconds)
        rate.add_recording(now_ns, ended_ns, round(cost_ms * 1e6), recording)
        seen.append((now_ns / 1e9, recording.seconds, recording.rate_hz, rate.spent_ns / 1e9))
        now_ns = ended_ns
    return seen


def test_the_first_minute_has_20_samples_a_second_in_recordings_that_become_longer() -> None:
    first_minute = [row for row in _recorded(60) if row[0] < 60]
    assert {rate for _, _, rate, _ in first_minute} == {20}
    assert [length for _, length, _, _ in first_minute] == [1] * 4 + [4] * 14
    assert first_minute[0][0] == 0.2
    assert first_minute[-1][3] < 0.01 * 60


def test_after_a_minute_the_rate_is_halved_while_a_recording_takes_more_than_its_share() -> None:
    later = [rate for at, _, rate, _ in _recorded(300) if at > 60]
    assert later[:2] == [10, 10]
    assert [rate for at, _, rate, _ in _recorded(300, sample_ms=0.8) if at > 60][-1] == 2
    assert [rate for at, _, rate, _ in _recorded(300, sample_ms=0.05) if at > 60][-1] == 20


def test_a_cheap_recording_doubles_the_rate_again() -> None:
    rate = RecordingRate(0, 2)
    for cost_ms, rate_hz in ((200, 10), (200, 5), (10, 10), (10, 20), (10, 20)):
        at_ns = seconds(100)
        recording = rate.next_recording(at_ns, 1, is_moment=False)
        rate.add_recording(at_ns, at_ns, cost_ms * 1_000_000, recording)
        assert rate.next_recording(at_ns, 1, is_moment=False).rate_hz == rate_hz


def test_a_rate_of_the_user_is_kept_whatever_it_costs() -> None:
    rows = _recorded(700, sample_ms=5, processes=8, rate_hz=100)
    assert {rate for _, _, rate, _ in rows} == {100}
    pauses = [after[0] - before[0] - before[1] for before, after in pairwise(rows)]
    assert max(pauses) == pytest.approx(0)


@pytest.mark.parametrize(
    ("processes", "vcpu", "rate"), [(1, 2, 20), (2, 2, 20), (8, 2, 5), (1, 1, 10), (8, 1, 1)]
)
def test_all_processes_together_have_a_bounded_rate(processes: int, vcpu: float, rate: int) -> None:
    rows = _recorded(1, processes=processes, vcpu=vcpu)
    assert rows[0][2] == rate


def test_a_moment_has_short_recordings() -> None:
    rows = _recorded(60, is_moment=True)
    assert [length for at, length, _, _ in rows if at > 4] == [2] * 28


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


@given(st.floats(0.01, 50), st.integers(1, 8), st.booleans())
def test_no_run_of_ten_minutes_or_more_costs_more_than_its_share(
    sample_ms: float,
    processes: int,
    is_moment: bool,  # noqa: FBT001  hypothesis passes it
) -> None:
    rows = _recorded(2000, sample_ms=sample_ms, processes=processes, is_moment=is_moment)
    costs = [after[3] - before[3] for before, after in pairwise(rows)]
    for at, length, _, spent in rows:
        assert spent <= 0.003 * max(at + length, 600) + max([*costs, rows[0][3]])
