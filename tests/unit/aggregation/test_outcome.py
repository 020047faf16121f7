import math

import pytest

from profiler.aggregation.outcome import (
    Outcome,
    OutOfMemory,
    exited_outcome,
    likely_out_of_memory,
    out_of_memory,
    running_outcome,
    stopped_outcome,
    unknown_outcome,
)
from profiler.record.model import Status

GIB = 2**30


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


def test_a_lost_batch_has_a_last_reading_and_no_duration() -> None:
    assert unknown_outcome(7) == Outcome(status="unknown", finished_ns=7)


def test_a_running_batch_has_no_end() -> None:
    assert running_outcome(7) == Outcome(status="running", until_ns=7)
    assert stopped_outcome(7) == Outcome(status="stopped", until_ns=7)


@pytest.mark.parametrize(
    ("end", "peak", "size", "hits", "verdict"),
    [
        (exited_outcome(137, 1, is_stop_requested=False), 0.95 * GIB, GIB, None, True),
        (exited_outcome(137, 1, is_stop_requested=False), 0.90 * GIB, GIB, 0, True),
        (exited_outcome(137, 1, is_stop_requested=False), 0.2 * GIB, GIB, 12, True),
        (exited_outcome(137, 1, is_stop_requested=False), 0.2 * GIB, GIB, None, False),
        (exited_outcome(137, 1, is_stop_requested=False), 0.7 * GIB, GIB, None, None),
        (exited_outcome(137, 1, is_stop_requested=False), 0.95 * GIB, None, None, None),
        (exited_outcome(137, 1, is_stop_requested=False), None, GIB, None, None),
        (unknown_outcome(1), 0.95 * GIB, GIB, None, True),
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
            end, memory_max_bytes=None if peak is None else math.ceil(peak), memory_size_bytes=size, limit_hits=hits
        )
        is verdict
    )


@pytest.mark.parametrize(
    "end", [exited_outcome(0, 1, is_stop_requested=False), stopped_outcome(1), running_outcome(1), unknown_outcome(1)]
)
def test_a_counted_kill_is_decisive_for_any_end_of_the_batch(end: Outcome) -> None:
    found = out_of_memory(end, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None, memory_kills=1)
    assert found == OutOfMemory(likely=True, evidence="kernel-counter")


def test_without_a_counted_kill_the_exit_code_at_the_limit_is_the_evidence() -> None:
    killed = exited_outcome(137, 1, is_stop_requested=False)
    found = out_of_memory(killed, memory_max_bytes=GIB, memory_size_bytes=GIB, limit_hits=None, memory_kills=0)
    assert found == OutOfMemory(likely=True, evidence="exit-137-at-limit")
    found = out_of_memory(killed, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None)
    assert found == OutOfMemory(likely=False, evidence=None)
