"""The peak between readings, against processes whose memory is known at every moment."""

import resource
from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.process_tree_usage import (
    GroupPeak,
    TreeBlocks,
    TreeCpu,
    TreeMemory,
)
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux.proc import ProcessBlockBytes
from profiler.readers.linux.process_tree import ProcessReading
from tests.fakes import process
from tests.values import present

MIB = 2**20
_MOMENTS = 10  # known values between two readings


class Step(Struct, frozen=True):
    """The time up to a reading: what each process holds then, and one that may hold more in
    between.
    """

    held_mib: tuple[int, ...]
    spiking: int
    spike_mib: int
    spike_at: int


class Simulated:
    """Processes whose memory changes linearly between readings, with one spike in each step."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.memory = TreeMemory()
        self.true_peak_bytes = 0
        self._marks = [0] * len(steps[0].held_mib)
        held = [size * MIB for size in steps[0].held_mib]
        self._read(held)
        for step in steps[1:]:
            target = [size * MIB for size in step.held_mib]
            for moment in range(1, _MOMENTS + 1):
                now = [
                    before + (after - before) * moment // _MOMENTS
                    for before, after in zip(held, target, strict=True)
                ]
                if moment == step.spike_at:
                    now[step.spiking] += step.spike_mib * MIB
                self._pass(now)
            held = target
            self._read(held)

    def _pass(self, now: Sequence[int]) -> None:
        self._marks = [max(mark, size) for mark, size in zip(self._marks, now, strict=True)]
        self.true_peak_bytes = max(self.true_peak_bytes, sum(now))

    def _read(self, held: Sequence[int]) -> None:
        self._pass(held)
        self.memory.add_reading(
            [process(pid, held=size, mark=self._marks[pid]) for pid, size in enumerate(held)]
        )


@st.composite
def _steps(draw: st.DrawFn) -> list[Step]:
    count = draw(st.integers(1, 5))
    step = st.builds(
        Step,
        st.tuples(*[st.integers(0, 1000)] * count),
        st.integers(0, count - 1),
        st.integers(0, 2000),
        st.integers(1, _MOMENTS - 1),
    )
    return draw(st.lists(step, min_size=2, max_size=8))


@given(_steps())
def test_the_peak_is_never_above_the_truth(steps: list[Step]) -> None:
    simulated = Simulated(steps)
    assert present(simulated.memory.peak_bytes) <= simulated.true_peak_bytes


class Forked(Struct, frozen=True):
    """The time up to a reading: what each process holds alone then, and which of them still hold
    what they share.
    """

    own_mib: tuple[int, ...]
    holders: frozenset[int]
    changes_at: int


@st.composite
def _forked(draw: st.DrawFn) -> tuple[int, list[Forked]]:
    """Workers forked from one process before the first reading, that release its data in any
    order.
    """
    count = draw(st.integers(2, 4))
    holders = frozenset(range(count))
    steps: list[Forked] = []
    for _ in range(draw(st.integers(2, 6))):
        holders -= (
            draw(st.frozensets(st.integers(0, count - 1), max_size=2)) if steps else frozenset()
        )
        own_mib = draw(st.tuples(*[st.integers(0, 1000)] * count))
        steps.append(Forked(own_mib, holders, draw(st.integers(1, _MOMENTS - 1))))
    return draw(st.integers(0, 2000)), steps


@given(_forked())
def test_pages_that_workers_share_are_never_counted_twice(drawn: tuple[int, list[Forked]]) -> None:
    shared_mib, steps = drawn
    memory, true_peak_mib = TreeMemory(), 0.0
    marks = [0.0] * len(steps[0].own_mib)
    before = steps[0]
    for step in steps:
        for moment in range(_MOMENTS + 1):
            own = [
                a + (b - a) * moment / _MOMENTS
                for a, b in zip(before.own_mib, step.own_mib, strict=True)
            ]
            holders = step.holders if moment >= step.changes_at else before.holders
            marks = [
                max(mark, one + (shared_mib if index in holders else 0))
                for index, (mark, one) in enumerate(zip(marks, own, strict=True))
            ]
            true_peak_mib = max(true_peak_mib, sum(own) + (shared_mib if holders else 0))
        memory.add_reading(
            process(
                pid,
                rss_bytes=(own_mib + (shared_mib if pid in step.holders else 0)) * MIB,
                share_bytes=own_mib * MIB
                + (shared_mib * MIB // len(step.holders) if pid in step.holders else 0),
                mark=round(marks[pid] * MIB),
            )
            for pid, own_mib in enumerate(step.own_mib)
        )
        before = step
    assert present(memory.peak_bytes) <= true_peak_mib * MIB + len(marks)


@given(
    st.tuples(*[st.integers(1, 1000)] * 3),
    st.integers(0, 2),
    st.integers(1, 4000),
    st.integers(1, _MOMENTS - 1),
)
def test_a_spike_of_one_process_among_steady_ones_is_found_exactly(
    held_mib: tuple[int, ...], spiking: int, spike_mib: int, spike_at: int
) -> None:
    simulated = Simulated([Step(held_mib, 0, 0, 1), Step(held_mib, spiking, spike_mib, spike_at)])
    assert simulated.memory.peak_bytes == simulated.true_peak_bytes


@given(
    st.integers(1, 1000), st.integers(0, 10), st.integers(1000, 4000), st.integers(1, _MOMENTS - 1)
)
def test_a_spike_with_slight_changes_of_another_process_is_found_to_99_percent(
    held_mib: int, moved_mib: int, spike_mib: int, spike_at: int
) -> None:
    steps = [
        Step((10, held_mib), 0, 0, 1),
        Step((10, held_mib + moved_mib), 0, spike_mib, spike_at),
    ]
    simulated = Simulated(steps)
    assert present(simulated.memory.peak_bytes) >= 0.99 * simulated.true_peak_bytes


@pytest.mark.parametrize("helper", ["ends", "begins"])
def test_a_spike_is_found_although_a_helper_starts_or_ends_in_the_same_step(helper: str) -> None:
    memory = TreeMemory()
    batch = process(1, rss_bytes=650 * MIB, share_bytes=500 * MIB, mark=650 * MIB)
    small = process(2, rss_bytes=20 * MIB, share_bytes=15 * MIB, mark=20 * MIB)
    before, after = ([batch, small], [batch]) if helper == "ends" else ([batch], [batch, small])
    memory.add_reading(before)
    memory.add_reading(
        [replace(one, peak_bytes=1450 * MIB) if one.pid == 1 else one for one in after]
    )
    assert memory.peak_bytes == 1300 * MIB, "without 150 MiB of files"


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_two_spikes_in_one_step_are_not_added(one_mib: int, other_mib: int) -> None:
    memory = TreeMemory()
    for marks in ((0, 0), (one_mib, other_mib)):
        memory.add_reading(
            [process(pid, held=0, mark=mark * MIB) for pid, mark in enumerate(marks)]
        )
    assert memory.peak_bytes == max(one_mib, other_mib) * MIB


def test_a_mark_is_the_peak_of_processes_only_with_hardly_any_page_cache() -> None:
    assert GroupPeak(size_bytes=800 * MIB, cache_bytes=7 * MIB).is_peak_of_processes()
    assert not GroupPeak(size_bytes=800 * MIB, cache_bytes=8 * MIB).is_peak_of_processes()
    assert not GroupPeak(size_bytes=800 * MIB, includes_all_processes=False).is_peak_of_processes()


def test_processes_are_bounded_by_their_groups_mark_without_the_shared_memory_of_others() -> None:
    group = GroupPeak(size_bytes=300 * MIB, foreign_bytes=200 * MIB)
    assert group.peak_within_group_bytes(250 * MIB) == 50 * MIB
    assert group.peak_within_group_bytes(900 * MIB) == 300 * MIB
    assert replace(group, cache_bytes=290 * MIB).peak_within_group_bytes(900 * MIB) == 10 * MIB
    assert GroupPeak().peak_within_group_bytes(900 * MIB) == 900 * MIB
    assert (
        replace(group, includes_all_processes=False).peak_within_group_bytes(900 * MIB) == 900 * MIB
    )


def _java(rss_mib: int, share_mib: int, mark_mib: int) -> ProcessReading:
    return process(rss_bytes=rss_mib * MIB, share_bytes=share_mib * MIB, mark=mark_mib * MIB)


def test_a_mark_that_counts_pages_of_files_and_repeated_mappings_is_used_without_them() -> None:
    memory = TreeMemory()
    memory.add_reading([_java(300, 290, 300)])
    memory.add_reading([_java(910, 310, 940)])
    assert memory.peak_bytes == 310 * MIB, "what was mapped in between is not known"
    memory.add_reading([_java(910, 310, 1540)])
    assert memory.peak_bytes == 940 * MIB
    memory.add_reading([_java(10, 5, 1540)])
    assert memory.peak_bytes == 940 * MIB
    assert memory.marks.seen_bytes == 1540 * MIB


@pytest.mark.parametrize(("marks_count", "peak_mib"), [(True, 210), (False, 10)])
def test_without_a_group_a_mark_that_nobody_has_read_is_a_bound(
    *, marks_count: bool, peak_mib: int
) -> None:
    """A program of 10 MiB that maps 200 MiB, perhaps 100 MiB twice, and frees all of it between two
    readings.
    """
    memory = TreeMemory(marks_count=marks_count)
    memory.add_reading([process(held=10 * MIB, mark=10 * MIB)])
    memory.add_reading([process(held=10 * MIB, mark=210 * MIB)])
    assert memory.peak_bytes == peak_mib * MIB
    assert memory.unsure_bytes == 210 * MIB
    memory.add_reading([process(held=230 * MIB, mark=230 * MIB)])
    assert memory.peak_bytes == 230 * MIB, "what was read"


@pytest.mark.parametrize(
    ("read_mib", "written_mib", "peak_mib"), [(0, 0, 210), (30, 50, 130), (0, 250, 10)]
)
def test_a_mark_counts_without_what_the_process_has_read_and_written_meanwhile(
    read_mib: int, written_mib: int, peak_mib: int
) -> None:
    """A program of 10 MiB whose mark has risen to 210, and that has deleted its file."""
    memory = TreeMemory()
    before = ProcessBlockBytes(read_bytes=400 * MIB, write_bytes=500 * MIB)
    after = before + ProcessBlockBytes(
        read_bytes=read_mib * MIB, write_bytes=written_mib * MIB, cancelled_bytes=written_mib * MIB
    )
    for mark_mib, blocks in ((10, before), (210, after)):
        faults = mark_mib * MIB // resource.getpagesize()
        reading = process(held=10 * MIB, mark=mark_mib * MIB)
        memory.add_reading([replace(reading, blocks=blocks, faults=faults)])
    assert memory.peak_bytes == peak_mib * MIB
    assert memory.unsure_bytes == 210 * MIB


def test_a_mark_counts_what_was_freed_lazily_which_was_used_before() -> None:
    memory = TreeMemory()
    memory.add_reading((process(held=10 * MIB, mark=10 * MIB),))
    freed = process(held=300 * MIB, mark=300 * MIB, lazily_freed_bytes=250 * MIB)
    assert memory.add_reading((replace(freed, share_bytes=50 * MIB),)) == 50 * MIB
    assert memory.peak_bytes == 300 * MIB


def test_a_mark_of_pages_of_files_that_came_and_went_between_two_readings_is_no_memory() -> None:
    """A program of 7 MiB that maps a file of 600 MiB, in a group of 256 MiB."""
    memory = TreeMemory()
    for rss_mib, mark_mib in ((190, 190), (190, 247), (232, 247), (246, 252), (246, 252)):
        memory.add_reading([_java(rss_mib, 7, mark_mib)])
    assert memory.peak_bytes == 7 * MIB


@pytest.mark.parametrize(("faulted_mib", "unsure_mib"), [(150, 165), (100, 0)])
def test_a_rise_of_a_mark_beside_as_many_files_may_be_memory_if_page_faults_explain_it(
    faulted_mib: int, unsure_mib: int
) -> None:
    """A program that maps a file of 200 MiB, and allocates 150 MiB between two readings."""
    memory = TreeMemory()
    faults = faulted_mib * MIB // resource.getpagesize()
    for mark_mib, all_faults in ((210, 9), (360, 9 + faults), (360, 9 + 2 * faults)):
        memory.add_reading(
            [replace(_java(210, 10, mark_mib), faults=all_faults), process(8, held=5 * MIB)]
        )
    assert memory.peak_bytes == 15 * MIB
    assert memory.unsure_bytes == unsure_mib * MIB


def test_the_first_mark_of_a_process_may_be_of_files_that_it_has_unmapped_since() -> None:
    memory = TreeMemory()
    memory.add_reading([_java(500, 100, 800)])
    assert memory.peak_bytes == 100 * MIB
    memory.add_reading([_java(500, 100, 900)])
    assert memory.peak_bytes == 500 * MIB


@pytest.mark.parametrize(
    ("readings", "most_mib"),
    [
        pytest.param([(60, 50, 60)], 50, id="one reading"),
        pytest.param([(20, 10, 20), (60, 50, 60), (60, 50, 60)], 50, id="the files stay"),
        pytest.param(
            [(20, 10, 20), (610, 10, 610), (510, 500, 610)], 600, id="files make way for memory"
        ),
    ],
)
def test_what_a_process_held_at_most_follows_from_what_it_always_mapped(
    readings: Sequence[tuple[int, int, int]], most_mib: int
) -> None:
    memory = TreeMemory()
    for rss_mib, anonymous_mib, mark_mib in readings:
        reading = _java(rss_mib, anonymous_mib, mark_mib)
        memory.add_reading([replace(reading, anonymous_bytes=anonymous_mib * MIB, shmem_bytes=0)])
    assert memory.marks.most_bytes == most_mib * MIB


def test_what_is_mapped_several_times_may_have_been_different_pages_at_the_mark() -> None:
    memory = TreeMemory()
    heap = {"anonymous_bytes": 36 * MIB, "shmem_bytes": 900 * MIB}
    memory.add_reading([replace(_java(944, 336, 944), **heap)])
    assert memory.peak_bytes == 336 * MIB
    assert memory.marks.most_bytes == 936 * MIB


@pytest.mark.parametrize(
    ("waited_ns", "faults", "total_ns"), [(0, 0, 10**8), (2 * 10**8, 9, 2 * 10**8)]
)
def test_a_child_is_lost_only_if_nobody_waited_for_it(
    waited_ns: int, faults: int, total_ns: int
) -> None:
    """A child is lost with all its known time only if nobody waited for it."""
    cpu, parent = TreeCpu(), process(1, children_faults=0)
    child = process(
        2, own_cpu_ns=10**8, parent_pid=1, faults=9, blocks=ProcessBlockBytes(write_bytes=7)
    )
    for present_then in ([parent, child], [parent]):
        cpu.add_reading(present_then, 0)
    assert not cpu.has_lost, "its parent may have waited for it after it was read"
    is_waited_for = faults > 0
    last = process(1, children_cpu_ns=waited_ns, children_faults=faults)
    assert cpu.add_reading([last], 0, is_last=is_waited_for) == total_ns
    assert cpu.has_lost != is_waited_for
    assert cpu.lost_blocks == ProcessBlockBytes(write_bytes=7 * (faults == 0))


def test_nothing_counts_twice_at_whatever_moment_a_chain_of_processes_ends() -> None:
    """The first waits for the second, which waits for the third; a reading takes one second a
    process.
    """
    for third, second in combinations_with_replacement(range(1, 40), 2):
        cpu, blocks = TreeCpu(), TreeBlocks()
        for start in range(0, 70, 10):
            readings = [_used(1, 0, (third + second) * (second <= start))]
            if second > start + 1:
                readings.append(_used(2, start + 1, third * (third <= start + 1)))
            if third > start + 2:
                readings.append(_used(3, start + 2, 0))
            total_ns = cpu.add_reading(readings, 0)
            counted = present(
                blocks.add_reading(readings, ProcessBlockBytes(), cpu.lost_blocks)
            ).write_bytes
            used = min(second, start + 2) + min(third, start + 2)
            assert max(total_ns // NS_PER_SECOND, counted) <= used, (third, second)
        assert total_ns == used * NS_PER_SECOND, (
            third,
            second,
        )
        assert counted == used, (
            third,
            second,
        )
        assert cpu.has_lost is False, (
            third,
            second,
        )


def _used(pid: int, own: int, children: int) -> ProcessReading:
    """A process with its own and its children's CPU time in seconds; it wrote one byte in each
    second.
    """
    return process(
        pid,
        parent_pid=pid - 1,
        own_cpu_ns=own * NS_PER_SECOND,
        children_cpu_ns=children * NS_PER_SECOND,
        faults=1,
        children_faults=children,
        blocks=ProcessBlockBytes(write_bytes=own + children),
    )


_nanoseconds, _counts = st.integers(0, 10**12), st.integers(0, 1)
_numbers = {"pid": st.integers(1, 4), "started_ticks": _counts, "own_cpu_ns": _nanoseconds}
_processes = st.lists(
    st.builds(ProcessReading, **_numbers, children_cpu_ns=_nanoseconds), max_size=4
)


@given(st.lists(st.tuples(_processes, _nanoseconds)))
def test_cpu_time_never_falls(steps: Sequence[tuple[Sequence[ProcessReading], int]]) -> None:
    cpu = TreeCpu()
    totals = [0, *(cpu.add_reading(processes, reaped_ns) for processes, reaped_ns in steps)]
    assert totals == sorted(totals)
