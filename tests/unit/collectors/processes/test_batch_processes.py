from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.collectors.processes.container_processes import ProcessSnapshot
from profiler.collectors.processes.task_stats_comparison import SourceComparison
from profiler.core.timestamps import NEVER_NS, format_ms
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.linux.look import ProcessSeen, ThreadSeen, ThreadsLook
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.reading_turns import SkippedReading
from profiler.readers.linux.thread_counters import ThreadTimeGrowth
from profiler.readers.linux.wait_types import BlockedThread, Wait
from profiler.record.record_model import Series
from tests.cases import each_case
from tests.fakes import START_NS, sample, seconds
from tests.process_world import CollectedBatch, base, process
from tests.values import present

MIB = 2**20


def readings(
    sizes_mib: Sequence[int], stats: Mapping[float, int]
) -> tuple[SourceComparison, list[float]]:
    """A reading each second, and stats at some times that come two seconds late; the memory of
    each reading.
    """
    comparison = SourceComparison()
    found: list[ContainerSample] = []
    for second, size_mib in enumerate(sizes_mib):
        for at, figure_mib in stats.items():
            if at <= second - 2 < at + 1:
                comparison.on_sample(sample(START_NS + seconds(at), None, figure_mib * MIB))
        reading = sample(START_NS + seconds(second), float(second), size_mib * MIB)
        found += comparison.on_reading(reading)
    found += comparison.readings_until()
    assert [one.read_ns for one in found] == [
        START_NS + seconds(second) for second in range(len(sizes_mib))
    ]
    return comparison, [(one.memory_used_bytes or 0) / MIB for one in found]


@each_case(
    ("sizes_mib", "stats", "found"),
    [
        ((100, 200, 300), {}, [100, 200, 300]),
        # What the processes lack counts from the stats before to these, and after the last ones.
        ((9,) * 9, {4: 709}, [709] * 9),
        ((9,) * 9, {2: 9, 5: 709}, [9] * 3 + [709] * 6),
        # But the sum is not above the stats: the memory may have been freed.
        ((9, 9, 9, 500, 800, 9, 9), {2: 709}, [709, 709, 709, 709, 800, 709, 709]),
        ((100, 300, 200, 100, 200), {2: 250}, [150, 300, 250, 150, 250]),
        # Stats between two readings are compared with both of them.
        ((100, 900, 100, 900, 100, 900), {1.5: 500, 2.5: 500}, [100, 900, 100, 900, 100, 900]),
        # What the container was not charged for never counts (memory that was freed lazily).
        ((500,) * 5, {1: 3, 2: 3}, [3] * 5),
        ((158, 158, 158, 40, 3), {1: 152, 2: 152}, [152, 152, 152, 40, 3]),
        # That is still so at stats that lie between the last two readings: a process frees its
        # memory while it ends.
        ((162, 162, 162, 114, 114, 114), {1: 156, 2.5: 156}, [156] * 3 + [114] * 3),
        ((162, 162, 162, 157, 157, 157), {1: 156, 2.5: 156}, [156] * 6),
    ],
)
def test_the_memory_at_a_reading_is_a_lower_bound_completed_by_the_stats(
    sizes_mib: Sequence[int], stats: Mapping[float, int], found: Sequence[int]
) -> None:
    _, memory = readings(sizes_mib, stats)
    assert memory == found


@pytest.mark.parametrize(
    ("held_mib", "machine_mib", "stats", "found"),
    [
        # Forks copy pages, and a file in tmpfs is removed, before the only stats.
        (
            [290, 290, 290, 290, 290],
            [990, 1270, 1270, 990, 990],
            {4: 297},
            [297, 577, 577, 297, 297],
        ),
        ([9, 9, 9, 9], [709, 709, 1409, 709], {}, [9, 9, 709, 9]),
        # What the container was not charged for is freed.
        ([310, 310, 10, 10], [510, 510, 210, 210], {1: 12}, [12, 12, 10, 10]),
        # A mapped file in tmpfs counts once.
        ([10, 10, 10], [510, 810, 810], {1: 312}, [12, 312, 312]),
        # Stats between two readings; the machine's memory is that of one of them.
        ([10, 10, 10, 10], [500, 500, 800, 800], {0: 10, 1.5: 310}, [10, 10, 310, 310]),
    ],
)
def test_on_its_own_machine_the_batch_changes_as_the_machine_does(
    held_mib: Sequence[int],
    machine_mib: Sequence[int],
    stats: Mapping[float, int],
    found: Sequence[int],
) -> None:
    """On a machine of its own the batch changes by as much as the machine."""
    comparison, memory = SourceComparison(), list[ContainerSample]()
    for at, figure_mib in stats.items():
        comparison.on_sample(sample(START_NS + seconds(at), None, figure_mib * MIB))
    for second, (held, machine) in enumerate(zip(held_mib, machine_mib, strict=True)):
        reading = sample(START_NS + seconds(second), float(second), held * MIB)
        memory += comparison.on_reading(reading, machine * MIB)
    memory += comparison.readings_until()
    assert [(one.memory_used_bytes or 0) // MIB for one in memory] == found


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=40),
    st.dictionaries(
        st.integers(0, 300).map(lambda tenth: tenth / 10), st.integers(0, 3000), max_size=6
    ),
)
def test_no_memory_is_above_both_what_the_processes_hold_and_what_the_stats_said(
    sizes_mib: list[int], stats: dict[float, int]
) -> None:
    _, memory = readings(sizes_mib, dict(sorted(stats.items())))
    for held, total in zip(sizes_mib, memory, strict=True):
        assert min((held, *stats.values())) <= total <= max(held, *stats.values(), 0)


@pytest.mark.parametrize(
    ("processes_cpu", "said"), [(0.5, ()), (0.49, ()), (0.2, ("25.0 s against 10.0 s",))]
)
def test_the_sources_agree_on_the_cpu_time_within_a_tolerance(
    processes_cpu: float, said: Sequence[str]
) -> None:
    """A minute at constant rates, with stats every ten seconds that come late, and at first a
    single one.
    """
    comparison = SourceComparison()
    comparison.on_sample(sample(START_NS, 5.0, MIB))
    for second in range(61):
        list(comparison.on_reading(sample(START_NS + seconds(second), second * processes_cpu, 0)))
        if second % 10 == 5:
            at = second - 2.3
            comparison.on_sample(sample(START_NS + seconds(at), at * 0.5, 0))
    assert comparison.cpu_agrees == (not said)
    assert all(text in sentence for text, sentence in zip(said, comparison.warnings(), strict=True))


@pytest.mark.parametrize(
    ("processes_cpu", "stats_cpu", "unread"),
    [
        (0.5, 0.5, 0),
        (0.5, 0.4, 0),
        (0.0, 0.5, 25.0),
        (0.2, 0.5, 14.8),  # 25 s, less what the processes may have used meanwhile
    ],
)
def test_the_stats_know_cpu_time_that_no_process_has(
    processes_cpu: float, stats_cpu: float, unread: float
) -> None:
    """A lower bound, by stats that come late; it never falls, also after a restart."""
    comparison = SourceComparison()
    found: list[float] = []
    for second in range(71):
        own = second % 61
        at = START_NS + seconds(second)
        list(comparison.on_reading(sample(at, own * processes_cpu, 0)))
        if second % 10 == 5 and own:
            late = sample(at - seconds(2.3), max(own - 2.3, 0) * stats_cpu, 0)
            comparison.on_sample(late)
        found.append(comparison.unread_cpu_ns / 1e9)
    assert found == sorted(found)
    assert found[-1] == pytest.approx(unread)


class FakeThreads:
    """Threads that run for a quarter of the time, wait for a CPU for another, and then for a
    peer. One look stands for so many ``readings_per_look``.
    """

    def __init__(self, readings_per_look: int = 1) -> None:
        self.readings_per_look = self.until_look = readings_per_look
        self.sees_calls = False  # then it is looked at with each reading of the processes
        self.between = 0  # as many looks lie between these
        self.was_required = False
        self.is_closed = False
        self.is_steady = True
        self.cost_ns = self.used_ns = self.readings = 0
        self.search_ns = self.lookup_cpu_ns = 0  # of each look, and so far
        self.can_peek = self.has_other_waits = True
        self.peeks = self.with_reading = self.left_out = 0
        self.leaves_many = False
        self._read_ns = 0
        self._processes: Sequence[ProcessReading] = ()

    def follow(self, processes: Sequence[ProcessReading], last_pid: int | None) -> None:
        self._processes = processes

    def skip_if_all_asleep(
        self, processes: Sequence[ProcessReading], now_ns: int
    ) -> SkippedReading | None:
        if self.sees_calls:
            return None
        self.until_look -= 1
        return SkippedReading() if self.until_look else None

    def take_read_ended_ns(self) -> int:
        """All that was read, once the processes have ended."""
        return 0 if self._processes else self._read_ns // 4

    def look(
        self, now_ns: int, *, is_fresh: bool = False, is_required: bool = False
    ) -> ThreadsLook:
        assert is_fresh or self.can_look_between
        self.between -= not is_fresh
        self.was_required = is_required
        self.used_ns += self.cost_ns + self.search_ns
        self.lookup_cpu_ns += self.search_ns
        self.readings += 1
        self.until_look = self.readings_per_look
        quarter_ns, self._read_ns = (now_ns - self._read_ns) // 4, now_ns
        if not self._processes:
            return ThreadsLook(sees_calls=True, have_all_ended=True)
        growth = (ThreadTimeGrowth(quarter_ns, quarter_ns),)
        seen = (ThreadSeen(0, 7, BlockedThread(wait=Wait("network", "10.0.3.9:5432"))),)
        processes = {each.pid: ProcessSeen(0, 0) for each in self._processes}
        return ThreadsLook(
            growth=growth,
            seen=seen,
            processes=processes,
            sees_calls=True,
            readings=self.readings_per_look + self.left_out,
            has_other_waits=self.has_other_waits,
        )

    def look_with_reading(self, now_ns: int) -> ThreadsLook:
        self.with_reading += 1
        look = self.look(now_ns, is_fresh=True)
        self.left_out = 0
        return look

    @property
    def can_look_between(self) -> bool:
        return self.sees_calls or self.between > 0

    def leave_out_reading(self) -> None:
        self.left_out += 1

    def is_one_enough(self, look: ThreadsLook) -> bool:
        return self.leaves_many and bool(look.growth)

    def peek(self) -> None:
        self.used_ns += self.cost_ns // 10
        self.peeks += 1

    def close(self) -> None:
        self.is_closed = True


def quarter(threads: FakeThreads) -> CollectedBatch:
    """A batch that uses a quarter of a vCPU."""
    return CollectedBatch(
        threads, snapshot=lambda at: ProcessSnapshot(processes=(process(cpu=at / 4),))
    )


@pytest.mark.parametrize("readings_per_look", [1, 4])
def test_reports_and_checkpoints_have_the_division_and_the_waits(readings_per_look: int) -> None:
    threads = FakeThreads(readings_per_look)
    fakes = quarter(threads).run(60)
    assert threads.readings == 60 // readings_per_look
    for record in (fakes.record(), fakes.record("running", None)):
        made = present(record.time_breakdown)
        assert made.on_cpu_percent == 25.0
        assert made.waiting_for_cpu_percent == 25.0
        assert made.network_percent == 50.0
        assert made.covered_percent == 100.0
        assert [row.target for row in made.waiting_for] == ["10.0.3.9:5432"]
        assert record.metrics.cpu_wait_seconds == 15.0
        assert record.metrics.cpu_wait_percent == 50.0
        assert (record.series is None) == (record.status == "running")


def test_waits_of_processes_that_are_too_short_to_be_read_make_a_lower_bound() -> None:
    fakes = CollectedBatch(FakeThreads())
    fakes.snapshot = lambda at: ProcessSnapshot(
        processes=(process(cpu=at / 2),)
    )  # the threads that are read use half
    record = fakes.run(60).record()
    assert present(record.sampling).cpu_wait_covered_percent == 50.0
    assert (
        present(record.monitor)
        .warnings[-1]
        .startswith("The time waiting for a CPU is a lower bound: threads ended")
    )
    assert not present(quarter(FakeThreads()).run(60).record().monitor).warnings


def test_cpu_time_that_only_the_task_stats_have_is_on_a_cpu() -> None:
    """As that of a double fork's child, which a process of another container reaps."""
    fakes = quarter(FakeThreads())
    for second in range(60):
        fakes.run(second + 1)
        stats = sample(START_NS + seconds(second + 0.5), 0.75 * (second + 0.5), MIB)
        fakes.collector.on_sample("b", stats, ResourceLimits())
    record = fakes.record()
    assert 70 <= present(record.time_breakdown.on_cpu_percent) <= 75
    assert 33 <= present(record.sampling.cpu_wait_covered_percent) <= 35
    assert present(quarter(FakeThreads()).run(60).record().time_breakdown).on_cpu_percent == 25.0


def test_the_series_of_the_task_stats_gets_the_waits_in_its_own_steps() -> None:
    stats = Series(started_at=format_ms(START_NS), step_ms=4000, vcpu_used=(0.4,) * 15)
    coarse = present(base().sampling)
    record = (
        quarter(FakeThreads())
        .run(60)
        .record(series=stats, sampling=replace(coarse, stats_period_ms=1000))
    )
    found = present(record.series)
    assert found.vcpu_used == (0.4,) * 15
    assert found.cpu_wait == (0.25,) * 15
    finer = present(quarter(FakeThreads()).run(60).record().series)
    assert finer.step_ms == 1000
    assert finer.cpu_wait == (0.25,) * 60


@pytest.mark.parametrize(
    ("search", "leaves_many", "looks"), [(0, False, 300), (0.01, False, 300), (0, True, 60)]
)
def test_where_system_calls_are_readable_looks_lie_between_the_readings(
    search: float, looks: int, *, leaves_many: bool
) -> None:
    """The search for peers has its own limit, and makes no look rarer. Where a look leaves some of
    many threads for the next ones, one in a step is enough.
    """
    threads = FakeThreads()
    threads.sees_calls = True
    threads.leaves_many = leaves_many
    threads.search_ns = seconds(search)
    fakes = quarter(threads)
    assert fakes.collector.look() == NEVER_NS  # before the first reading
    fakes.run(1)
    assert threads.readings == 0
    due_ns = fakes.collector.look()
    end_ns = fakes.clock.now_ns + seconds(60)
    while due_ns < end_ns:
        fakes.clock.advance((due_ns - fakes.clock.now_ns) / seconds(1))
        fakes.collector.tick()
        due_ns = fakes.collector.look()
    assert threads.readings == pytest.approx(looks, abs=5)
    made = present(fakes.record().time_breakdown)
    assert made.network_percent == pytest.approx(50, abs=1)
    fakes.collector.tick(is_complete=True)
    assert threads.was_required


@pytest.mark.parametrize(
    ("cost", "can_peek", "peeks"), [(0.0006, True, 300), (0.0006, False, 0), (0.0008, True, 0)]
)
def test_peeks_and_looks_cost_no_more_than_their_share(
    cost: float,
    can_peek: bool,  # noqa: FBT001
    peeks: int,
) -> None:
    threads = FakeThreads()
    threads.sees_calls = True
    threads.cost_ns = seconds(cost)
    threads.can_peek = can_peek
    fakes = quarter(threads)
    fakes.run(1)
    for step in range(120 * 20):
        if step == 60 * 20:  # the mean cost rises slowly
            threads.peeks = threads.used_ns = 0
        fakes.clock.advance(0.05)
        fakes.collector.tick()
        fakes.collector.look()
    assert threads.peeks == pytest.approx(peeks, abs=5)
    assert threads.used_ns <= 0.001 * seconds(60)


@pytest.mark.parametrize(
    ("from_second", "with_reading", "looks", "is_steady"),
    [(30, 30, 34, True), (70, 15, 19, True), (70, 30, 34, False)],
)
def test_looks_that_find_the_same_for_long_are_taken_with_the_readings(
    from_second: int, with_reading: int, looks: int, *, is_steady: bool
) -> None:
    threads = FakeThreads()
    threads.is_steady = is_steady
    threads.sees_calls = True
    threads.has_other_waits = False
    fakes = quarter(threads)
    fakes.run(1)
    for step in range((from_second + 30) * 100):
        if step == from_second * 100:
            threads.readings = threads.with_reading = 0
        fakes.clock.advance(0.01)
        if fakes.clock.now_ns % seconds(1) == 0:
            fakes.collector.tick()
        fakes.collector.look()
    assert threads.with_reading == pytest.approx(with_reading, abs=1)
    assert threads.readings == pytest.approx(looks, abs=1)
    made = present(fakes.record().time_breakdown)
    assert made.on_cpu_percent == pytest.approx(25, abs=1)
    assert made.network_percent == pytest.approx(50, abs=1)
    assert made.covered_percent == 100.0


def test_without_system_calls_only_peeks_lie_between_the_readings() -> None:
    threads = FakeThreads()
    fakes = quarter(threads)
    for _ in range(60 * 20):
        fakes.clock.advance(0.05)
        fakes.collector.look()
        if fakes.clock.now_ns % seconds(1) == 0:
            fakes.collector.tick()
    assert threads.readings == 60
    assert threads.peeks == pytest.approx(300, abs=10)


def test_without_system_calls_the_first_looks_lie_between_the_readings() -> None:
    threads = FakeThreads()
    threads.between = 100
    fakes = quarter(threads)
    for _ in range(60 * 20):
        fakes.clock.advance(0.05)
        fakes.collector.look()
        if fakes.clock.now_ns % seconds(1) == 0:
            fakes.collector.tick()
    assert threads.readings == 60 + 100
    assert threads.peeks == pytest.approx(40 * 5, abs=10)
    made = present(fakes.record().time_breakdown)
    assert made.on_cpu_percent == pytest.approx(25, abs=1)
    assert made.network_percent == pytest.approx(50, abs=1)
    assert made.covered_percent == 100.0


def test_the_time_after_the_end_does_not_count() -> None:
    """The time after the end does not count and the cost of the threads does not make the processes
    pause.
    """
    threads = FakeThreads()
    threads.cost_ns = seconds(0.1)
    fakes = quarter(threads).run(30)
    assert threads.readings == 30
    fakes.snapshot = lambda _: ProcessSnapshot()
    fakes.clock.advance(1)
    fakes.collector.tick(is_complete=True)
    assert threads.was_required
    made = present(fakes.run(60).record().time_breakdown)
    # Nothing is known of the last second: it is divided like the look before.
    assert made.network_percent == 51.6
    assert made.covered_percent == 100.0
    fakes.collector._close()
    assert threads.is_closed
    reported = FakeThreads()
    fakes = quarter(reported).run(1)
    fakes.collector.forget("b")
    fakes.collector.tick()
    assert reported.is_closed
