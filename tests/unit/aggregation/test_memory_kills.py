from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.usage_by_command import OomKillTracker
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import MemoryKills, Process

MIB = 2**20
Counts = tuple[int | None, int | None]  # in the container, on the host
Step = tuple[Counts, Sequence[ProcessReading], int]


def ended(name: str, mib: int = 100) -> ProcessReading:
    return ProcessReading(
        pid=7, started_ticks=1, own_cpu_ns=0, children_cpu_ns=0, name=name, rss_bytes=mib * MIB, peak_bytes=mib * MIB
    )


def kills(steps: Sequence[Step], *, on_fargate: bool = False) -> MemoryKills | None:
    watch = OomKillTracker()
    for counted, gone, missed_pids in steps:
        watch.add(*counted, gone, missed_pids)
    return watch.kills(is_host_dedicated=on_fargate)


def group(count: int) -> Counts:
    return count, count + 40


def machine(count: int) -> Counts:
    return None, count


def test_the_groups_counter_identifies_the_killed_process() -> None:
    found = kills([(group(0), [], 0), (group(1), [ended("cat", 1), ended("worker", 480)], 0)])
    assert found == MemoryKills(count=1, processes=(Process(name="worker", max_memory_used_mb=480),))


def test_a_process_that_is_seen_to_end_only_with_the_next_reading_is_named() -> None:
    found = kills([(group(0), [], 0), (group(1), [], 0), (group(1), [ended("worker")], 0), (group(1), [ended("x")], 0)])
    assert found == MemoryKills(count=1, processes=(Process(name="worker", max_memory_used_mb=100),))


def test_kills_before_the_first_reading_count_and_those_of_an_old_group_stay() -> None:
    assert kills([(group(3), [], 0)]) == MemoryKills(count=3)
    assert kills([(group(2), [], 0), (group(0), [], 0), (group(1), [], 0)]) == MemoryKills(count=3)


def test_a_group_that_was_gone_too_early_leaves_the_machines_counter() -> None:
    life: list[Step] = [(group(0), [], 0)] * 50
    found = kills([*life, (machine(41), [ended("batch", 900)], 0)])
    assert found == MemoryKills(count=1, processes=(Process(name="batch", max_memory_used_mb=900),))
    assert kills([*life, (group(1), [], 0), (machine(41), [ended("batch", 900)], 0)]) == found
    assert kills([*life, (machine(40), [ended("batch", 900)], 0)]) is None


def test_a_kill_on_the_machine_is_the_batchs_if_a_process_of_it_ended() -> None:
    assert kills([(machine(44), [ended("worker")], 0)]) is None  # it counts from the first reading
    quiet: list[Step] = [(machine(44), [], 0)] * 50
    assert kills([*quiet, (machine(45), [], 0)]) is None
    assert kills([*quiet, (machine(45), [ended("worker")], 0)]) == MemoryKills(
        count=1, processes=(Process(name="worker", max_memory_used_mb=100),)
    )
    assert kills([*quiet, (machine(45), [], 0), (machine(45), [ended("late")], 0)]) is not None
    assert kills([*quiet, (machine(45), [], 1)]) == MemoryKills(count=1)  # of a process that was never seen


def test_where_processes_end_all_the_time_a_kill_on_a_shared_machine_proves_nothing() -> None:
    busy: list[Step] = [(machine(44), [ended("sh")], 3)] * 50
    assert kills([*busy, (machine(45), [ended("sh")], 3)]) is None
    assert kills([*busy, (machine(45), [ended("sh")], 3)], on_fargate=True) is not None


@pytest.mark.parametrize("on_fargate", [True, False])
@given(
    steps=st.lists(
        st.tuples(
            st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 99)),
            st.lists(st.builds(ended, st.text(max_size=3), st.integers(0, 9)), max_size=4),
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
