"""Whether processes were killed for lack of memory: the verdict, and the kernel's count."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.memory_peak import MemoryPeak
from profiler.aggregation.out_of_memory import (
    OomKillTracker,
    OutOfMemoryVerdict,
    judge_out_of_memory,
)
from profiler.aggregation.record_evidence import KillEvidence
from profiler.aggregation.run_end import RunEnd, run_end_of_exit
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import MemoryKills, PeakSource, Process
from tests import fakes
from tests.cases import each_case

MIB = 2**20
GIB = 2**30
SECOND = 10**9
KILLED = run_end_of_exit(137, 1, was_stopped=False)
Counts = tuple[int | None, int | None]  # in the container, on the host
Step = tuple[Counts, Sequence[ProcessReading], int]

ENDED_WITHOUT_A_CODE = run_end_of_exit(None, 1, was_stopped=False)
AT_LIMIT = OutOfMemoryVerdict(likely=True, evidence="exit-137-at-limit")
UNKNOWN = OutOfMemoryVerdict()
NO_KILL = KillEvidence(own_count=0)
UNCOUNTED = KillEvidence()
EXCLUDED = OutOfMemoryVerdict(likely=False)


def verdict(
    end: RunEnd,
    share: float | None,
    counted: KillEvidence = UNCOUNTED,
    *,
    source: PeakSource = "sampled",
    **more: Any,
) -> OutOfMemoryVerdict:
    """The verdict for a peak of this share of a GiB."""
    peak_bytes = None if share is None else math.ceil(share * GIB)
    return judge_out_of_memory(
        end,
        counted,
        MemoryPeak(size_bytes=peak_bytes, source=source),
        **{"charged_bytes": peak_bytes, "memory_size_bytes": GIB, **more},
    )


@each_case(
    ("end", "share", "hits", "found"),
    [
        (KILLED, 0.95, None, AT_LIMIT),
        (KILLED, 0.90, 0, AT_LIMIT),
        (KILLED, 0.89, 0, UNKNOWN),
        (KILLED, 0.70, 1, AT_LIMIT),
        (KILLED, 0.69, 12, UNKNOWN),
        (KILLED, None, 12, UNKNOWN),
        (
            ENDED_WITHOUT_A_CODE,
            0.95,
            None,
            OutOfMemoryVerdict(likely=True, evidence="memory-at-limit"),
        ),
        (
            ENDED_WITHOUT_A_CODE,
            0.75,
            1,
            OutOfMemoryVerdict(likely=True, evidence="memory-at-limit"),
        ),
        (ENDED_WITHOUT_A_CODE, 0.5, 1, UNKNOWN),
        (RunEnd(status="unknown", finished_ns=1), 0.95, 3, UNKNOWN),
        (run_end_of_exit(0, 1, was_stopped=False), 0.95, 5, EXCLUDED),
        (run_end_of_exit(1, 1, was_stopped=False), 0.95, None, EXCLUDED),
        (run_end_of_exit(143, 1, was_stopped=True), 0.95, 3, EXCLUDED),
        (run_end_of_exit(137, 1, was_stopped=True), 0.95, 3, UNKNOWN),
        (RunEnd(status="stopped", until_ns=1), 0.95, None, UNKNOWN),
        (RunEnd(status="running", until_ns=1), 0.95, 3, UNKNOWN),
    ],
)
def test_sampled_memory_at_the_limit_explains_a_kill_and_lower_memory_excludes_none(
    end: RunEnd, share: float | None, hits: int | None, found: OutOfMemoryVerdict
) -> None:
    assert verdict(end, share, limit_hits=hits) == found


@pytest.mark.parametrize(
    ("end", "share", "found"),
    [
        (KILLED, 0.89, EXCLUDED),
        (KILLED, 0.9, AT_LIMIT),
        (run_end_of_exit(137, 1, was_stopped=True), 0.2, EXCLUDED),
        (RunEnd(status="unknown", finished_ns=1), 0.2, UNKNOWN),
    ],
)
def test_a_peak_from_the_kernel_below_the_limit_excludes_a_kill(
    end: RunEnd, share: float, found: OutOfMemoryVerdict
) -> None:
    assert verdict(end, share, source="kernel") == found
    assert verdict(KILLED, 0.95, memory_size_bytes=None, source="kernel") == UNKNOWN


@each_case("end", [KILLED, ENDED_WITHOUT_A_CODE])
@each_case("share", [0.47, 0.92, 1.0])
@each_case("hits", [None, 12])
def test_a_count_that_did_not_rise_outranks_the_exit_code_and_the_memory(
    end: RunEnd, share: float, hits: int | None
) -> None:
    assert verdict(end, share, NO_KILL, limit_hits=hits) == EXCLUDED
    at_end = KillEvidence(excludes_kill_at_end=True)
    assert verdict(end, share, at_end, limit_hits=hits) == EXCLUDED
    # A child may have been killed earlier.
    found = verdict(end, share, at_end, limit_hits=hits, may_have_missed_a_kill=True)
    assert found == UNKNOWN


@pytest.mark.parametrize("exit_code", [0, 1, 137])
def test_a_child_that_may_have_been_killed_leaves_no_verdict(exit_code: int) -> None:
    end = run_end_of_exit(exit_code, 1, was_stopped=False)
    assert verdict(end, 0.3, source="kernel") == EXCLUDED
    assert verdict(end, 0.3, source="kernel", may_have_missed_a_kill=True) == UNKNOWN
    assert verdict(end, 0.3, NO_KILL, may_have_missed_a_kill=True) == EXCLUDED


@pytest.mark.parametrize(
    "end",
    [
        run_end_of_exit(0, 1, was_stopped=False),
        RunEnd(status="stopped", until_ns=1),
        RunEnd(status="running", until_ns=1),
        RunEnd(status="unknown", finished_ns=1),
    ],
)
def test_a_counted_kill_is_decisive_for_any_end_of_the_batch(end: RunEnd) -> None:
    assert verdict(end, 0.1, KillEvidence(own_count=1)) == OutOfMemoryVerdict(
        likely=True, evidence="kernel-counter"
    )


@given(
    end=st.builds(
        run_end_of_exit, st.none() | st.integers(0, 255), st.just(1), was_stopped=st.booleans()
    ),
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


def ended_process(name: str, mib: int = 100) -> ProcessReading:
    return fakes.process(7, name=name, held=mib * MIB, mark=mib * MIB)


def kills(
    steps: Sequence[Step], *, on_fargate: bool = False, exit_code: int = 137
) -> MemoryKills | None:
    watch = OomKillTracker()
    for counted, gone, missed_pids in steps:
        has_main_ended = any(one.name == "main" for one in gone)
        watch.add_reading(*counted, gone, missed_pids, has_main_ended=has_main_ended)
    return watch.attributed_kills(is_host_dedicated=on_fargate, was_killed=exit_code == 137)


def group(count: int) -> Counts:
    return count, count + 40


def machine(count: int) -> Counts:
    return None, count


def killed(*names: str, mib: int = 100) -> MemoryKills:
    return MemoryKills(
        count=1, processes=tuple(Process(name=name, max_memory_used_mb=mib) for name in names)
    )


LIFE: list[Step] = [(group(0), [], 0)] * 50
QUIET: list[Step] = [(machine(44), [], 0)] * 50
BUSY: list[Step] = [(machine(44), [ended_process("sh")], 3)] * 50
WORKER, MAIN = [ended_process("worker")], [ended_process("main")]


@each_case(
    ("steps", "found"),
    [
        # The group's counter identifies the largest process, also if it ends only with the next
        # reading.
        ([(group(0), [], 0), (group(1), [ended_process("cat", 1), *WORKER], 0)], killed("worker")),
        (
            [
                (group(0), [], 0),
                (group(1), [], 0),
                (group(1), WORKER, 0),
                (group(1), [ended_process("x")], 0),
            ],
            killed("worker"),
        ),
        # Kills before the first reading count, and those of an old group stay.
        ([(group(3), [], 0)], MemoryKills(count=3)),
        ([(group(2), [], 0), (group(0), [], 0), (group(1), [], 0)], MemoryKills(count=3)),
        # A group that was gone too early leaves the machine's counter.
        ([*LIFE, (machine(41), MAIN, 0)], killed("main")),
        ([*LIFE, (group(1), [], 0), (machine(41), WORKER, 0)], killed("worker")),
        ([*LIFE, (machine(40), MAIN, 0)], None),
        # A kill on the machine may be another task's, unless it ended the batch. It counts from the
        # first reading.
        ([(machine(44), MAIN, 0)], None),
        ([*QUIET, (machine(45), [], 0)], None),
        ([*QUIET, (machine(45), WORKER, 0)], None),
        ([*QUIET, (machine(45), [], 0), (machine(45), MAIN, 0)], killed("main")),
        ([*BUSY, (machine(45), WORKER, 3), (machine(46), MAIN, 0)], killed("main")),
        ([*QUIET, (machine(45), WORKER, 0), (machine(45), [], 0), (machine(45), MAIN, 0)], None),
    ],
)
def test_a_kill_is_that_of_a_process_that_ended_at_this_time(
    steps: Sequence[Step], found: MemoryKills | None
) -> None:
    assert kills(steps) == found


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([*BUSY, (machine(45), [ended_process("sh")], 3)], killed("sh")),
        ([*QUIET, (machine(45), [], 0), (machine(45), MAIN, 0)], killed("main")),
        ([*QUIET, (machine(45), [], 1)], MemoryKills(count=1)),  # of a process that was never seen
    ],
)
def test_where_no_other_task_runs_a_kill_is_the_batchs(
    steps: Sequence[Step], found: MemoryKills
) -> None:
    assert kills(steps, on_fargate=True, exit_code=0) == found
    assert kills(steps, exit_code=0) is None


Ends = list[tuple[Counts, bool, bool]]  # whether the main process ended, and the group was read
ALIVE: Ends = [(group(0), False, True), (machine(40), False, False)]


@each_case(
    ("steps", "counted_none", "excludes"),
    [
        (ALIVE, False, False),  # no end was seen
        ([*ALIVE, (group(0), True, True)], True, True),
        ([*ALIVE, (group(1), True, True)], False, False),
        # The group's count was read before the end: then the machine's counts.
        ([*ALIVE, (group(0), True, False)], False, True),
        ([*ALIVE, (machine(40), True, False)], False, True),
        ([*ALIVE, (machine(41), True, False)], False, False),
        ([*ALIVE, ((None, None), True, False)], False, False),
        # A machine that has never killed a process.
        ([(machine(0), False, False), (machine(0), True, False)], True, True),
        # Both ends of a batch that was restarted, or one that is missing.
        ([*ALIVE, (group(0), True, True), *ALIVE, (group(0), True, True)], False, False),
    ],
)
def test_a_count_that_is_read_after_the_end_and_did_not_rise_excludes_a_kill(
    steps: Ends, *, counted_none: bool, excludes: bool
) -> None:
    watch = OomKillTracker()
    for counted, has_main_ended, is_group_current in steps:
        watch.add_reading(
            *counted, (), 0, has_main_ended=has_main_ended, is_group_current=is_group_current
        )
    assert watch.has_certainly_no_kill(1) is counted_none
    assert watch.has_certainly_no_kill_at_end(1) is excludes
    ends = sum(has_main_ended for _, has_main_ended, _ in steps)
    if ends > 1:
        assert watch.has_certainly_no_kill(ends)


@pytest.mark.parametrize("on_fargate", [True, False])
@given(
    steps=st.lists(
        st.tuples(
            st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 99)),
            st.lists(st.builds(ended_process, st.text(max_size=3), st.integers(0, 9)), max_size=4),
            st.integers(0, 5),
        ),
        max_size=20,
    )
)
def test_names_are_few_and_a_kill_is_never_counted_without_a_rise(
    steps: list[tuple[Counts, list[ProcessReading], int]], *, on_fargate: bool
) -> None:
    found = kills(steps, on_fargate=on_fargate)
    rises = any(in_container for (in_container, _), _, _ in steps) or any(
        (later[1] or 0) > (earlier[1] or 0) for (earlier, _, _), (later, _, _) in pairwise(steps)
    )
    assert found is None or (rises and found.count > 0 and len(found.processes) <= 5)
