import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.run_end import OutOfMemory, RunEnd, ended, out_of_memory, was_stopped

GIB = 2**30
SECOND = 10**9
KILLED = ended(137, 1, was_stopped=False)


@pytest.mark.parametrize(
    ("stop", "exit_code", "finished_ns", "explains"),
    [
        (was_stopped, 143, 5, False),
        (partial(was_stopped, is_task_stopping=True), 143, 5, True),
        (partial(was_stopped, is_task_stopping=True), 143, None, True),
        # Seen only after the end: an essential batch that ends by itself stops the task.
        (partial(was_stopped, is_task_stopping=True, is_stop_denied=True), 143, 5, False),
        (partial(was_stopped, is_task_stopping=True), 137, 5, False),
        (partial(was_stopped, is_task_stopping=True), 0, 5, False),
        (
            partial(was_stopped, is_task_stopping=True, signalled_ns=6, first_end_ns=6, seen_ns=6),
            137,
            5,
            False,
        ),
        (partial(was_stopped, signalled_ns=4), 137, 5, True),
        (partial(was_stopped, signalled_ns=4), 0, 5, True),
        (partial(was_stopped, first_end_ns=8 * SECOND - 1), 0, 9 * SECOND, True),
        (partial(was_stopped, first_end_ns=9 * SECOND), 0, 9 * SECOND, False),
        # The fraction of the batch's own end was cut.
        (partial(was_stopped, first_end_ns=9 * SECOND), 0, 9 * SECOND + 999_999_999, False),
        (partial(was_stopped, first_end_ns=9_123_000_000), 0, 9_123_456_789, False),
        (
            partial(was_stopped, first_end_ns=9 * SECOND, others_finished_ns=(7 * SECOND,)),
            0,
            9_999_999_999,
            False,
        ),
        (
            partial(was_stopped, first_end_ns=9 * SECOND, others_finished_ns=(9_999_999_999,)),
            0,
            9_500_000_000,
            False,
        ),
        (
            partial(was_stopped, first_end_ns=9_300_000_000, others_finished_ns=(9_200_000_000,)),
            0,
            9_500_000_000,
            True,
        ),
        (
            partial(was_stopped, first_end_ns=9 * SECOND, others_finished_ns=(9_200_000_000,)),
            0,
            9_500_000_000,
            True,
        ),
        (partial(was_stopped, seen_ns=4), 3, 5, True),
        (partial(was_stopped, seen_ns=6), 3, 5, False),
        (partial(was_stopped, seen_ns=6), 143, 5, True),
        (partial(was_stopped, seen_ns=4), 3, None, True),
        (partial(was_stopped, signalled_ns=4, first_end_ns=4), 3, None, False),
    ],
)
def test_a_stop_explains_an_end_that_followed_it(
    *,
    stop: Callable[[int | None, int | None], bool],
    exit_code: int | None,
    finished_ns: int | None,
    explains: bool,
) -> None:
    assert stop(exit_code, finished_ns) is explains


ENDED_WITHOUT_A_CODE = ended(None, 1, was_stopped=False)
AT_LIMIT = OutOfMemory(likely=True, evidence="exit-137-at-limit")
UNKNOWN = OutOfMemory()
EXCLUDED = OutOfMemory(likely=False)


def verdict(end: RunEnd, share: float | None, **more: Any) -> OutOfMemory:
    """The verdict for a sampled peak of this share of a GiB."""
    peak_bytes = None if share is None else math.ceil(share * GIB)
    return out_of_memory(
        end,
        **{
            "memory_max_bytes": peak_bytes,
            "memory_size_bytes": GIB,
            "peak_source": "sampled",
            **more,
        },
    )


@pytest.mark.parametrize(
    ("end", "share", "hits", "found"),
    [
        (KILLED, 0.95, None, AT_LIMIT),
        (KILLED, 0.90, 0, AT_LIMIT),
        (KILLED, 0.89, 0, UNKNOWN),
        (KILLED, 0.70, 1, AT_LIMIT),
        (KILLED, 0.69, 12, UNKNOWN),
        (KILLED, None, 12, UNKNOWN),
        (ENDED_WITHOUT_A_CODE, 0.95, None, OutOfMemory(likely=True, evidence="memory-at-limit")),
        (ENDED_WITHOUT_A_CODE, 0.75, 1, OutOfMemory(likely=True, evidence="memory-at-limit")),
        (ENDED_WITHOUT_A_CODE, 0.5, 1, UNKNOWN),
        (RunEnd(status="unknown", finished_ns=1), 0.95, 3, UNKNOWN),
        (ended(0, 1, was_stopped=False), 0.95, 5, EXCLUDED),
        (ended(1, 1, was_stopped=False), 0.95, None, EXCLUDED),
        (ended(143, 1, was_stopped=True), 0.95, 3, EXCLUDED),
        (ended(137, 1, was_stopped=True), 0.95, 3, UNKNOWN),
        (RunEnd(status="stopped", until_ns=1), 0.95, None, UNKNOWN),
        (RunEnd(status="running", until_ns=1), 0.95, 3, UNKNOWN),
    ],
)
def test_sampled_memory_at_the_limit_explains_a_kill_and_lower_memory_excludes_none(
    end: RunEnd, share: float | None, hits: int | None, found: OutOfMemory
) -> None:
    assert verdict(end, share, limit_hits=hits) == found


@pytest.mark.parametrize(
    ("end", "share", "found"),
    [
        (KILLED, 0.89, EXCLUDED),
        (KILLED, 0.9, AT_LIMIT),
        (ended(137, 1, was_stopped=True), 0.2, EXCLUDED),
        (RunEnd(status="unknown", finished_ns=1), 0.2, UNKNOWN),
    ],
)
def test_a_peak_from_the_kernel_below_the_limit_excludes_a_kill(
    end: RunEnd, share: float, found: OutOfMemory
) -> None:
    assert verdict(end, share, peak_source="kernel") == found
    assert verdict(KILLED, 0.95, memory_size_bytes=None, peak_source="kernel") == UNKNOWN


@pytest.mark.parametrize("exit_code", [0, 1, 137])
def test_a_child_that_may_have_been_killed_leaves_no_verdict(exit_code: int) -> None:
    end = ended(exit_code, 1, was_stopped=False)
    assert verdict(end, 0.3, peak_source="kernel") == EXCLUDED
    assert verdict(end, 0.3, peak_source="kernel", may_have_missed_a_kill=True) == UNKNOWN
    assert verdict(end, 0.3, may_have_missed_a_kill=True, memory_kills=0) == EXCLUDED


@pytest.mark.parametrize(
    "end",
    [
        ended(0, 1, was_stopped=False),
        RunEnd(status="stopped", until_ns=1),
        RunEnd(status="running", until_ns=1),
        RunEnd(status="unknown", finished_ns=1),
    ],
)
def test_a_counted_kill_is_decisive_for_any_end_of_the_batch(end: RunEnd) -> None:
    assert verdict(end, 0.1, memory_kills=1) == OutOfMemory(likely=True, evidence="kernel-counter")


@given(
    end=st.builds(ended, st.none() | st.integers(0, 255), st.just(1), was_stopped=st.booleans()),
    share=st.none() | st.floats(0, 2),
    size=st.none() | st.integers(1, GIB),
    hits=st.none() | st.integers(0, 3),
)
def test_a_sampled_peak_never_excludes_a_kill_and_evidence_names_only_what_was_seen(
    end: RunEnd, share: float | None, size: int | None, hits: int | None
) -> None:
    found = verdict(end, share, memory_size_bytes=size, limit_hits=hits)
    assert found.likely is not False or end.exit_code not in (None, 137)
    assert (found.evidence is not None) is (found.likely is True)
    assert found.evidence != "exit-137-at-limit" or end.exit_code == 137
