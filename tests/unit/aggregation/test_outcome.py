import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.outcome import (
    MemoryReadings,
    Outcome,
    OutOfMemory,
    StopEvidence,
    exited_outcome,
    likely_out_of_memory,
    out_of_memory,
    running_outcome,
    stopped_outcome,
    unknown_outcome,
)
from profiler.record.model import Status

GIB = 2**30
SECOND_NS = 10**9
KILLED = exited_outcome(137, 1, is_stop_requested=False)


@pytest.mark.parametrize(
    ("exit_code", "asked", "status"),
    [
        (0, False, "success"),
        (1, False, "failure"),
        (137, False, "failure"),
        (None, False, "unknown"),
        (0, True, "stopped"),
        (143, True, "stopped"),
    ],
)
def test_status_of_a_batch_whose_end_was_seen(*, exit_code: int | None, asked: bool, status: Status) -> None:
    assert exited_outcome(exit_code, 5, is_stop_requested=asked) == Outcome(
        status=status, exit_code=exit_code, until_ns=5, finished_ns=5
    )


@pytest.mark.parametrize(
    ("stop", "exit_code", "finished_ns", "explains"),
    [
        (StopEvidence(), 143, 5, False),
        (StopEvidence(is_task_stopping=True), 143, 5, True),
        (StopEvidence(is_task_stopping=True), 143, None, True),
        # Seen only after the end: an essential batch that ends by itself stops the task.
        (StopEvidence(is_task_stopping=True), 137, 5, False),
        (StopEvidence(is_task_stopping=True), 0, 5, False),
        (StopEvidence(is_task_stopping=True, signalled_ns=6, execution_stopped_ns=6, seen_ns=6), 137, 5, False),
        (StopEvidence(signalled_ns=4), 137, 5, True),
        (StopEvidence(signalled_ns=4), 0, 5, True),
        (StopEvidence(execution_stopped_ns=4), 0, 5, True),
        (StopEvidence(execution_stopped_ns=5), 0, 5, False),
        (StopEvidence(seen_ns=4), 3, 5, True),
        (StopEvidence(seen_ns=4), 3, None, True),
        (StopEvidence(signalled_ns=4, execution_stopped_ns=4), 3, None, False),
    ],
)
def test_a_stop_explains_an_end_that_followed_it(
    *, stop: StopEvidence, exit_code: int | None, finished_ns: int | None, explains: bool
) -> None:
    assert stop.explains(exit_code, finished_ns) is explains


def test_a_lost_batch_has_a_last_reading_and_no_duration() -> None:
    assert unknown_outcome(7) == Outcome(status="unknown", finished_ns=7)


def test_a_running_batch_has_no_end() -> None:
    assert running_outcome(7) == Outcome(status="running", until_ns=7)
    assert stopped_outcome(7) == Outcome(status="stopped", until_ns=7)


@pytest.mark.parametrize(
    ("end", "peak", "size", "hits", "verdict"),
    [
        (KILLED, 0.95 * GIB, GIB, None, True),
        (KILLED, 0.90 * GIB, GIB, 0, True),
        (KILLED, 0.2 * GIB, GIB, 12, True),
        (KILLED, 0.2 * GIB, GIB, None, False),
        (KILLED, 0.7 * GIB, GIB, None, None),
        (KILLED, 0.95 * GIB, None, None, None),
        (KILLED, None, GIB, None, None),
        (exited_outcome(None, 1, is_stop_requested=False), 0.95 * GIB, GIB, None, True),
        (unknown_outcome(1), 0.95 * GIB, GIB, 3, None),
        (exited_outcome(0, 1, is_stop_requested=False), 0.95 * GIB, GIB, 5, False),
        (exited_outcome(1, 1, is_stop_requested=False), 0.95 * GIB, GIB, None, False),
        (exited_outcome(137, 1, is_stop_requested=True), 0.95 * GIB, GIB, 3, False),
        (stopped_outcome(1), 0.95 * GIB, GIB, None, False),
        (running_outcome(1), 0.95 * GIB, GIB, 3, None),
    ],
)
def test_out_of_memory_requires_evidence(
    *, end: Outcome, peak: float | None, size: float | None, hits: int | None, verdict: bool | None
) -> None:
    assert (
        likely_out_of_memory(
            end,
            memory_max_bytes=None if peak is None else math.ceil(peak),
            memory_size_bytes=size,
            limit_hits=hits,
            is_end_covered=True,
        )
        is verdict
    )


@pytest.mark.parametrize(
    ("end", "is_end_covered", "verdict"),
    [
        (KILLED, True, False),
        (KILLED, False, None),
        (unknown_outcome(1), True, None),
        (exited_outcome(None, 1, is_stop_requested=False), True, None),
        (exited_outcome(1, 1, is_stop_requested=False), False, False),
        (exited_outcome(137, 1, is_stop_requested=True), False, False),
    ],
)
def test_low_memory_excludes_a_kill_only_if_the_end_was_measured(
    *, end: Outcome, is_end_covered: bool, verdict: bool | None
) -> None:
    found = out_of_memory(
        end, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None, is_end_covered=is_end_covered
    )
    assert found == OutOfMemory(likely=verdict)


@pytest.mark.parametrize(
    ("read_at", "end", "reaches"),
    [
        ((), 1.0, False),
        ((0.5,), 1.0, False),
        ((0.5, 1.5), 2.0, False),
        ((0.5, 1.5, 2.5), 3.0, True),
        ((0.5, 1.5, 2.5), 5.5, True),
        ((0.5, 1.5, 2.5), 5.6, False),
        ((10.0, 20.0, 30.0), 39.0, False),
        ((10.0, 20.0, 30.0), 30.5, True),
        # The wall clock was set back before the end.
        ((110.0, 111.0, 112.0), 13.0, False),
        ((0.5, 1.5, 2.5), None, False),
    ],
)
def test_readings_reach_the_end_if_there_are_three_and_the_last_is_close(
    *, read_at: tuple[float, ...], end: float | None, reaches: bool
) -> None:
    readings = MemoryReadings()
    for at in read_at:
        readings.add(round(at * SECOND_NS))
    assert readings.reach(None if end is None else round(end * SECOND_NS)) is reaches


@given(
    st.none() | st.integers(0, 255),
    st.booleans(),
    st.none() | st.integers(0, 2 * GIB),
    st.none() | st.integers(1, GIB),
    st.none() | st.integers(0, 3),
)
def test_without_a_measured_end_a_verdict_is_the_same_or_unknown(
    exit_code: int | None,
    stopped: bool,  # noqa: FBT001
    peak: int | None,
    size: int | None,
    hits: int | None,
) -> None:
    end = exited_outcome(exit_code, 1, is_stop_requested=stopped)
    covered, uncovered = (
        out_of_memory(
            end, memory_max_bytes=peak, memory_size_bytes=size, limit_hits=hits, is_end_covered=is_end_covered
        ).likely
        for is_end_covered in (True, False)
    )
    assert uncovered is covered or (covered is False and uncovered is None)


@pytest.mark.parametrize(
    "end", [exited_outcome(0, 1, is_stop_requested=False), stopped_outcome(1), running_outcome(1), unknown_outcome(1)]
)
def test_a_counted_kill_is_decisive_for_any_end_of_the_batch(end: Outcome) -> None:
    found = out_of_memory(
        end, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None, is_end_covered=True, memory_kills=1
    )
    assert found == OutOfMemory(likely=True, evidence="kernel-counter")


def test_without_a_counted_kill_the_exit_code_at_the_limit_is_the_evidence() -> None:
    found = out_of_memory(
        KILLED, memory_max_bytes=GIB, memory_size_bytes=GIB, limit_hits=None, is_end_covered=True, memory_kills=0
    )
    assert found == OutOfMemory(likely=True, evidence="exit-137-at-limit")
    found = out_of_memory(KILLED, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None, is_end_covered=True)
    assert found == OutOfMemory(likely=False, evidence=None)
