from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.collectors.processes.process_reader import ProcessSnapshot
from profiler.collectors.processes.process_usage import SourceComparison
from profiler.core.timestamps import format_ms
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.thread_times import ThreadGrowth, ThreadSample
from profiler.readers.linux.waited_target import Wait
from profiler.record.record_model import Series
from tests.fakes import START_NS, sample, seconds
from tests.unit.collectors.processes.test_process_collector import World, base, process
from tests.values import present

MIB = 2**20


def compared(
    *, stats_cpu: float = 0.5, processes_cpu: float = 0.5, stats_mib: int = 200, processes_mib: int = 200
) -> SourceComparison:
    """A minute at constant rates, with stats every ten seconds that come late."""
    agreement = SourceComparison()
    for second in range(61):
        agreement.on_reading(sample(START_NS + seconds(second), second * processes_cpu, processes_mib * MIB))
        if second % 10 == 5:
            at = second - 2.3
            agreement.on_sample(sample(START_NS + seconds(at), at * stats_cpu, stats_mib * MIB))
    return agreement


@pytest.mark.parametrize(
    ("rates", "cpu_agrees", "memory_agrees", "said"),
    [
        ({}, True, True, ()),
        ({"processes_cpu": 0.49}, True, True, ()),
        ({"processes_mib": 170}, True, True, ()),
        ({"stats_mib": 2000, "processes_mib": 1850}, True, True, ()),
        ({"stats_cpu": 0.5, "processes_cpu": 0.2}, False, True, ("25.0 s against 10.0 s",)),  # processes never seen
        ({"stats_mib": 900, "processes_mib": 300}, True, False, ("900 MB against 300 MB", "page cache")),
        ({"stats_mib": 300, "processes_mib": 2400}, True, False, ("memory that the processes share",)),
    ],
)
def test_the_sources_agree_within_a_tolerance(
    rates: dict[str, Any], said: tuple[str, ...], *, cpu_agrees: bool, memory_agrees: bool
) -> None:
    agreement = compared(**rates)
    assert (agreement.cpu_agrees, agreement.memory_agrees) == (cpu_agrees, memory_agrees)
    assert agreement.counts_shared_memory_twice == ("memory that the processes share" in said)
    assert len(agreement.warnings()) == bool(said)
    assert all(text in agreement.warnings()[0] for text in said)


def test_a_sample_between_two_readings_is_held_against_both() -> None:
    """Memory that moves fast is no contradiction."""
    agreement = SourceComparison()
    for second in range(20):
        size_bytes = (100 if second % 2 else 900) * MIB
        agreement.on_reading(sample(START_NS + seconds(second), second, size_bytes))
        agreement.on_sample(sample(START_NS + seconds(second + 0.5), second + 0.5, 500 * MIB))
    assert agreement.memory_agrees
    assert agreement.cpu_agrees


def test_a_spike_in_one_source_alone_and_nothing_to_compare_are_no_contradiction() -> None:
    agreement = compared()
    agreement.on_sample(sample(START_NS + seconds(59.5), 29.75, 5000 * MIB))
    agreement.on_reading(sample(START_NS + seconds(61), 30.5, 200 * MIB))
    assert agreement.warnings() == ()
    agreement = SourceComparison()
    agreement.on_sample(sample(START_NS, 5.0, MIB))
    assert (agreement.cpu_agrees, agreement.memory_agrees, agreement.warnings()) == (True, True, ())


class FakeThreads:
    """Threads that run for a quarter of the time, wait for a CPU for another, and then for a peer."""

    def __init__(self) -> None:
        self.is_paused = False
        self.was_required = False
        self.is_closed = False
        self.cost_ns = self.used_ns = self.readings = 0
        self._read_ns = 0

    def read(
        self, processes: Sequence[ProcessReading], now_ns: int, *, is_required: bool = False
    ) -> ThreadSample | None:
        self.was_required = is_required
        self.used_ns += self.cost_ns
        self.readings += 1
        if self.is_paused and not is_required:
            return None
        quarter_ns, self._read_ns = (now_ns - self._read_ns) // 4, now_ns
        if not processes:
            return ThreadSample(sees_calls=True)
        growth = (ThreadGrowth(quarter_ns, quarter_ns),)
        return ThreadSample(growth=growth, waits={Wait("network", "10.0.3.9:5432"): 1}, sees_calls=True)

    def close(self) -> None:
        self.is_closed = True


def quarter(threads: FakeThreads) -> World:
    """A batch that uses a quarter of a vCPU."""
    world = World(threads)
    world.snapshot = lambda at: ProcessSnapshot(processes=(process(cpu=at / 4),))
    return world


def test_reports_and_checkpoints_have_the_division_and_the_waits() -> None:
    world = quarter(FakeThreads()).run(60)
    for record in (world.record(), world.record("running", None)):
        made = present(record.time_breakdown)
        assert (made.on_cpu_percent, made.waiting_for_cpu_percent, made.network_percent) == (25.0, 25.0, 50.0)
        assert [row.target for row in made.waiting_for] == ["10.0.3.9:5432"]
        assert (record.metrics.cpu_wait_seconds, record.metrics.cpu_wait_percent) == (15.0, 50.0)
        assert (record.series is None) == (record.status == "running")


def test_the_series_of_the_task_stats_gets_the_waits_in_its_own_steps() -> None:
    stats = Series(started_at=format_ms(START_NS), step_ms=4000, vcpu_used=(0.4,) * 15)
    coarse = present(base().sampling)
    record = quarter(FakeThreads()).run(60).record(series=stats, sampling=replace(coarse, stats_period_ms=1000))
    found = present(record.series)
    assert (found.vcpu_used, found.cpu_wait) == ((0.4,) * 15, (0.25,) * 15)
    finer = present(quarter(FakeThreads()).run(60).record().series)
    assert (finer.step_ms, finer.cpu_wait) == (1000, (0.25,) * 60)


def test_the_time_after_the_end_does_not_count() -> None:
    threads = FakeThreads()
    world = quarter(threads).run(30)
    world.snapshot = lambda _: ProcessSnapshot()
    world.clock.advance(1)
    world.collector.tick(is_complete=True)
    assert threads.was_required
    made = present(world.run(60).record().time_breakdown)
    # Nothing is known of the last second: it is divided like the one before, but without time on a CPU.
    assert (made.network_percent, made.covered_percent) == (50.5, 100.0)


def test_the_cost_of_the_threads_does_not_make_the_processes_pause_and_their_files_are_closed_at_the_end() -> None:
    threads = FakeThreads()
    threads.cost_ns = seconds(0.1)
    world = quarter(threads).run(20)
    assert threads.readings == 20
    world.collector._close()
    assert threads.is_closed


def test_a_pause_of_the_readings_makes_one_longer_step_that_is_not_covered_as_a_whole() -> None:
    threads = FakeThreads()
    world = quarter(threads).run(10)
    threads.is_paused = True
    world.run(11)
    threads.is_paused = False
    made = present(world.run(20).record().time_breakdown)
    assert (made.network_percent, made.covered_percent) == (50.0, 97.5)
