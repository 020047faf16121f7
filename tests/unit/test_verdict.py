import math

import pytest

from profiler.record import Status
from profiler.verdict import (
    End,
    OutOfMemory,
    ended,
    likely_out_of_memory,
    lost,
    out_of_memory,
    still_running,
    told_to_stop,
)

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
    assert ended(exit_code, 5, stop_was_asked=asked) == End(
        status=status, exit_code=exit_code, until_ns=5, finished_ns=5
    )


def test_a_lost_batch_has_a_last_reading_and_no_duration() -> None:
    assert lost(7) == End(status="unknown", finished_ns=7)


def test_a_batch_that_goes_on_has_no_end() -> None:
    assert still_running(7) == End(status="running", until_ns=7)
    assert told_to_stop(7) == End(status="stopped", until_ns=7)


@pytest.mark.parametrize(
    ("end", "peak", "size", "hits", "verdict"),
    [
        (ended(137, 1, stop_was_asked=False), 0.95 * GIB, GIB, None, True),
        (ended(137, 1, stop_was_asked=False), 0.90 * GIB, GIB, 0, True),
        (ended(137, 1, stop_was_asked=False), 0.2 * GIB, GIB, 12, True),
        (ended(137, 1, stop_was_asked=False), 0.2 * GIB, GIB, None, False),
        (ended(137, 1, stop_was_asked=False), 0.7 * GIB, GIB, None, None),
        (ended(137, 1, stop_was_asked=False), 0.95 * GIB, None, None, None),
        (ended(137, 1, stop_was_asked=False), None, GIB, None, None),
        (lost(1), 0.95 * GIB, GIB, None, True),
        (ended(0, 1, stop_was_asked=False), 0.95 * GIB, GIB, 5, False),
        (ended(1, 1, stop_was_asked=False), 0.95 * GIB, GIB, None, False),
        (ended(137, 1, stop_was_asked=True), 0.95 * GIB, GIB, 3, False),
        (told_to_stop(1), 0.95 * GIB, GIB, None, False),
        (still_running(1), 0.95 * GIB, GIB, 3, None),
    ],
)
def test_out_of_memory_is_said_only_with_evidence(
    *, end: End, peak: float | None, size: float | None, hits: int | None, verdict: bool | None
) -> None:
    assert (
        likely_out_of_memory(
            end, memory_max_bytes=None if peak is None else math.ceil(peak), memory_size_bytes=size, limit_hits=hits
        )
        is verdict
    )


@pytest.mark.parametrize("end", [ended(0, 1, stop_was_asked=False), told_to_stop(1), still_running(1), lost(1)])
def test_the_kernels_count_of_kills_decides_however_the_batch_ended(end: End) -> None:
    found = out_of_memory(end, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None, memory_kills=1)
    assert found == OutOfMemory(likely=True, evidence="kernel-counter")


def test_without_a_counted_kill_the_exit_code_at_the_limit_is_the_evidence() -> None:
    killed = ended(137, 1, stop_was_asked=False)
    found = out_of_memory(killed, memory_max_bytes=GIB, memory_size_bytes=GIB, limit_hits=None, memory_kills=0)
    assert found == OutOfMemory(likely=True, evidence="exit-137-at-limit")
    found = out_of_memory(killed, memory_max_bytes=1, memory_size_bytes=GIB, limit_hits=None)
    assert found == OutOfMemory(likely=False, evidence=None)
