"""The process collector on a fake clock: readings that are functions of time, and the record
that they make.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.aggregation.record_evidence import RunEvidence
from profiler.aggregation.record_parts import RecordPart
from profiler.collectors.collector import collected_parts
from profiler.collectors.processes.container_processes import ProcessSnapshot
from profiler.core.timestamps import format_ms
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.container_sample import ResourceLimits
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.memory_usage import MemoryReading
from profiler.record.record_model import (
    NO_INTERVAL,
    NO_READINGS,
    NOT_SAMPLED,
    AverageAndMaximum,
    Container,
    Distribution,
    Interval,
    Metrics,
    Record,
    Sampling,
    Series,
    SlowdownBounds,
    TaskSize,
)
from profiler.record.run_outcome import Status
from tests.cases import each_case
from tests.collected import draft_of, with_collected
from tests.fakes import START_NS, sample, seconds
from tests.process_world import BATCH, MIB, CollectedBatch, alone, base, fake_source, process
from tests.values import present
from tools.waiting import LIMIT_SECONDS

COARSE = Series(
    started_at="2025-11-20T00:53:20.000Z",
    step_ms=1000,
    vcpu_used=(0.4,) * 60,
    memory_used_mb=(90.0,) * 60,
    gpu_utilization_percent=(7.0,) * 60,
)
AGAIN = replace(BATCH, docker_id="c", first_docker_id="b")


def group(
    *,
    used: int = 100,
    cache: int = 0,
    peak: int = 100,
    kills: int = 0,
    cpu: float = 0,
    is_empty: bool | None = None,
) -> GroupReading:
    return GroupReading(
        memory=MemoryReading(used_bytes=used * MIB, cache_bytes=cache * MIB),
        peak_bytes=peak * MIB,
        oom_kills=kills,
        cpu_ns=seconds(cpu),
        is_empty=is_empty,
    )


def test_memory_of_no_process_counts_on_a_machine_of_its_own() -> None:
    fakes = CollectedBatch(machine_mib=lambda at: 900 if 5 <= at < 8 else 500)
    metrics = fakes.run(10).record().metrics
    assert metrics.max_memory_used_mb == 500
    assert round(present(metrics.memory_used_mb).p50 or 0) == 100


def warnings(record: Record) -> tuple[str, ...]:
    return present(record.monitor).warnings


def test_the_time_series_has_a_sample_every_second() -> None:
    record = CollectedBatch().run(60).record()
    assert present(record.metrics.vcpu_used).avg == 0.5
    assert record.metrics.cpu_seconds == 30.0
    assert present(record.metrics.memory_used_mb).avg == 100
    assert present(record.metrics.memory_utilization_percent).max == pytest.approx(9.766)
    assert record.sampling != NOT_SAMPLED
    assert record.sampling.samples == 60
    assert record.sampling.stats_period_ms == 10_000
    (shown,) = record.processes
    assert shown.name == "job"
    assert shown.count == 1
    assert shown.cpu_seconds == 30.0
    assert shown.max_memory_used_mb == 100
    # Stats that change every second keep their time series.
    record = CollectedBatch().run(60).record(sampling=Sampling(samples=60, stats_period_ms=1000))
    assert record.metrics.vcpu_used == base().metrics.vcpu_used
    assert record.sampling == Sampling(samples=60, stats_period_ms=1000, sources=("processes",))
    assert record.processes


def test_a_time_series_that_the_stats_contradict_is_not_used() -> None:
    fakes = CollectedBatch()
    for at in range(5, 60, 10):
        fakes.run(at + 1)
        fakes.collector.on_sample(
            "b", sample(START_NS + seconds(at), at * 0.9, 100 * MIB), ResourceLimits()
        )
    record = fakes.run(60).record()
    assert record.metrics.vcpu_used == base().metrics.vcpu_used
    assert present(record.metrics.memory_used_mb).avg == 100
    assert "CPU time" in warnings(record)[0]


def test_a_checkpoint_has_the_numbers_since_the_last_one() -> None:
    fakes = CollectedBatch().run(30)
    part = Interval(started_at="a", finished_at="b", cpu_seconds=1.0)
    assert fakes.record("running", None, interval=part).interval != NO_INTERVAL
    interval = present(fakes.run(50).record("running", None, interval=part).interval)
    assert interval.started_at == "a"
    assert interval.cpu_seconds == 10.0


@pytest.mark.parametrize(
    ("sizes", "of_group", "peak", "largest"),
    [
        ({"mark": 900}, None, (900, "sampled"), 900),
        # Page cache makes the group's mark an upper bound.
        ({"mark": 620}, group(used=120, cache=50, peak=600), (600, "sampled"), 600),
        ({"held": 209}, group(used=3, cache=2, peak=4), (4, "sampled"), 4),
    ],
    ids=["a spike", "page cache", "more than the group counted"],
)
def test_a_peak_that_is_not_the_groups_last_mark_is_not_exact(
    sizes: dict[str, Any], of_group: GroupReading | None, peak: tuple[int, str], largest: int
) -> None:
    fakes = CollectedBatch(snapshot=lambda at: alone(process(cpu=at / 2, **sizes)))
    fakes.group = None if of_group is None else lambda _: of_group
    record = fakes.run(60).record(metrics=Metrics())
    peak_mb, source = peak
    assert record.metrics.max_memory_used_mb == peak_mb
    assert record.metrics.memory_peak_source == source
    assert present(record.metrics.memory_used_mb).max == largest
    assert record.metrics.memory_usage_peak_mb == (of_group and present(of_group.peak_bytes) / MIB)
    assert record.processes[0].max_memory_used_mb == min(largest, max(sizes.values(), default=100))


def test_a_group_that_still_has_a_process_is_not_at_its_end() -> None:
    """A group that still has a process is not at its end and a running batch has the kernel's peak
    so far.
    """
    fakes = CollectedBatch(group=lambda _: group(peak=500, is_empty=False)).run(59)
    sources = [
        fakes.record(status, None).metrics.memory_peak_source for status in ("running", "stopped")
    ]
    fakes.snapshot = lambda _: ProcessSnapshot()
    assert [*sources, fakes.run(60).record().metrics.memory_peak_source] == [
        "kernel",
        "sampled",
        "sampled",
    ]
    known = replace(base().metrics, memory_peak_source="kernel", max_memory_used_mb=300)
    metrics = CollectedBatch().run(10).record(metrics=known).metrics
    assert metrics.memory_peak_source == "kernel"
    assert metrics.max_memory_used_mb == 300


def test_an_empty_group_is_read_before_the_processes_are_listed() -> None:
    """The kernel may remove the group while the processes are listed."""
    fakes = CollectedBatch()
    listed: list[float] = []

    def read(at: float) -> GroupReading | None:
        if at < 60:
            return group(peak=746, cpu=at / 2, is_empty=False)
        return None if listed else group(used=0, peak=807, cpu=30, is_empty=True)

    def list_none(at: float) -> ProcessSnapshot:
        listed.append(at)
        return ProcessSnapshot()

    fakes.group = read
    fakes.run(59)
    fakes.snapshot = list_none
    fakes.clock.advance(1)
    fakes.collector.tick(is_complete=True)
    metrics = fakes.run(62).record().metrics
    assert metrics.memory_peak_source == "kernel"
    assert metrics.max_memory_used_mb == 807
    assert metrics.memory_usage_peak_mb == 807
    assert metrics.cpu_seconds == 30
    assert present(metrics.memory_used_mb).max == 807
    assert present(metrics.memory_used_mb).avg == 100


def test_after_a_restart_whose_end_was_not_observed_the_mark_counts_as_sampled() -> None:
    fakes = CollectedBatch(
        group=lambda at: group(peak=500) if at < 20 else group(peak=100, is_empty=at >= 40)
    ).run(19)
    fakes.collector.on_batch_started(AGAIN)
    metrics = fakes.run(40).record().metrics
    assert metrics.memory_peak_source == "sampled"
    assert metrics.max_memory_used_mb == 500


class RestartingBatch:
    """A batch that is restarted in place at 25 s: each attempt has a process and a group of its
    own.

    It uses one vCPU from its start to 24 s, and from 25.5 s to 50 s. The kernel kills a process in
    each attempt.
    """

    def __init__(self, fakes: CollectedBatch, *, has_group: bool, gap: bool = True) -> None:
        self.fakes, self.gap = fakes, gap
        fakes.snapshot = self.snapshot
        open_cgroup = lambda pid, _: self.open_group(pid) if has_group else None  # noqa: E731
        fakes.collector._machine = replace(fakes.collector._machine, open_cgroup=open_cgroup)

    def snapshot(self, at: float) -> ProcessSnapshot:
        if at < 25:
            return alone(process(7, cpu=min(at, 24)))
        if at < 26 and self.gap:
            return ProcessSnapshot()
        return alone(process(8, cpu=max(min(at, 50) - 25.5, 0)))

    def open_group(self, pid: int) -> Any:
        begin, end = (0.0, 25.0) if pid == 7 else (25.5, 99.0)

        def read() -> GroupReading | None:
            at = self.fakes.at
            cpu = min(at, 24 if pid == 7 else 50) - begin
            return group(cpu=max(cpu, 0), kills=int(at > begin + 10)) if at < end else None

        return fake_source(read)


@each_case("has_group", [False, True])
@each_case("gap", [False, True])
@each_case("noticed", [26, 34])
def test_a_batch_that_is_restarted_in_place_is_counted_once(
    *, has_group: bool, gap: bool, noticed: float
) -> None:
    """The restart shows in the metadata up to ten seconds later."""
    fakes = CollectedBatch()
    RestartingBatch(fakes, has_group=has_group, gap=gap)
    fakes.run(noticed)
    fakes.collector.on_batch_started(
        replace(BATCH, restart_count=1, attempt_started_ns=START_NS + seconds(25.5))
    )
    record = fakes.run(60).record(metrics=Metrics())
    # A process that nobody was seen to wait for counts with what is left after rounding.
    assert record.metrics.cpu_seconds == pytest.approx(24 + 24.5, abs=0.03)
    series = present(record.series)
    assert sum(
        value or 0 for value in series.vcpu_used or ()
    ) * series.step_ms / 1000 == pytest.approx(48.5, abs=0.3)
    assert series.started_at == format_ms(START_NS)
    assert (None if record.memory_kills is None else record.memory_kills.count) == (
        2 if has_group else None
    )


@pytest.mark.parametrize(
    ("stats_cpu", "ends", "covered_percent"),
    [(4.9, 20, 100.0), (4.9, 25, 80.0), (10.1, 20, 50.0), (None, 25, 80.0)],
)
def test_cpu_time_is_covered_until_the_last_reading_of_the_fuller_source(
    stats_cpu: float | None, ends: int, covered_percent: float
) -> None:
    """The CPU time is covered until the last reading of the source that has more of it."""
    fakes = CollectedBatch().run(20)
    fakes.snapshot = lambda _: ProcessSnapshot()
    stats = Sampling(samples=1, cpu_covered_percent=None if stats_cpu is None else 50.0)
    metrics = Metrics(duration_ms=ends * 1000, cpu_seconds=stats_cpu)
    record = fakes.run(25).record(started_at=format_ms(START_NS), metrics=metrics, sampling=stats)
    assert present(record.sampling).cpu_covered_percent == covered_percent
    assert record.metrics.cpu_seconds == (10.1 if stats_cpu == 10.1 else 10)


def test_a_kill_that_only_the_early_reading_of_the_group_shows_counts() -> None:
    """The last process has ended: the group is read first, and is gone after the processes were
    read.
    """
    fakes = CollectedBatch()
    at_end = iter([group(kills=1, is_empty=True)])
    fakes.group = lambda at: group() if at < 10 else next(at_end, None)
    fakes.run(9)
    fakes.clock.advance(1)
    fakes.snapshot = lambda _: ProcessSnapshot(ended=(process(),))
    fakes.collector.tick(is_complete=True)
    record = fakes.record("failure", 137)
    assert record.likely_out_of_memory is True
    assert record.out_of_memory_evidence == "kernel-counter"


@pytest.mark.parametrize("jump", [7, -3600])
def test_a_wall_clock_that_is_set_changes_no_rate_of_the_processes(jump: int) -> None:
    fakes = CollectedBatch().run(20)
    fakes.clock.wall_offset_ns += seconds(jump)
    record = fakes.run(40).record(metrics=Metrics())
    assert present(record.metrics.vcpu_used).p50 == 0.5
    assert present(record.metrics.vcpu_used).max == 0.5


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[GroupReading | None], list[bool], int]:
    """The readings of a group, whether a process was seen alive before each, and the true peak.

    The mark grows while processes are alive. After the end, the group loses counters and
    disappears.
    """
    peaks = sorted(draw(st.lists(st.integers(1, 900), min_size=1, max_size=6)))
    is_v2 = draw(st.booleans())
    readings: list[GroupReading | None] = []
    alive = []
    for peak in peaks[: draw(st.integers(0, len(peaks)))]:
        whole = group(peak=peak, is_empty=False if is_v2 else None)
        readings.append(draw(st.sampled_from([whole, None, replace(whole, peak_bytes=None)])))
        alive.append(True)
    after = group(used=0, peak=peaks[-1], is_empty=True if is_v2 else None)
    for _ in range(draw(st.integers(0, 3))):
        torn = st.sampled_from(
            [
                after,
                None,
                replace(after, peak_bytes=None),
                replace(after, memory=None),
                GroupReading(cpu_ns=1),
            ]
        )
        readings.append(draw(torn))
        alive.append(False)
    return readings, alive, peaks[-1]


@given(lives(), st.sampled_from(["success", "failure", "stopped", "unknown"]))
def test_a_final_peak_is_the_kernels_only_if_read_after_the_end(
    life: tuple[list[GroupReading | None], list[bool], int], status: Status
) -> None:
    readings, alive, true_peak = life
    fakes = CollectedBatch(group=lambda at: readings[round(at) - 2] if at >= 2 else None)
    fakes.snapshot = lambda at: (
        alone(process(held=1)) if at < 2 or alive[round(at) - 2] else ProcessSnapshot()
    )
    metrics = (
        fakes.run(1 + len(readings)).record(status, metrics=Metrics(), sampling=NOT_SAMPLED).metrics
    )
    was_read = any(
        reading is not None and reading.has_mark and not is_alive
        for reading, is_alive in zip(readings, alive, strict=True)
    )
    assert (metrics.memory_peak_source == "kernel") == was_read
    if was_read:
        assert metrics.max_memory_used_mb == true_peak


def test_a_few_file_pages_of_other_containers_in_a_mark_do_not_count() -> None:
    """The mark of a process counts Python's own files, which another container has read first.

    The last stats are older than the last reading, in which the process ends and has freed a part
    of its memory.
    """
    fakes = CollectedBatch(
        snapshot=lambda at: alone(process(cpu=at / 2, held=180 if at < 60 else 120, mark=188))
    )
    for at in (30, 59.5):
        fakes.run(at + 0.5)
        fakes.collector.on_sample(
            "b", sample(START_NS + seconds(at), at / 2, 175 * MIB), ResourceLimits()
        )
    metrics = fakes.run(61).record(metrics=Metrics()).metrics
    assert metrics.max_memory_used_mb == 183
    assert present(metrics.memory_used_mb).p50 == pytest.approx(175, abs=1)


@pytest.mark.parametrize("stats_period_ms", [1000, 10_000])
@pytest.mark.parametrize("until", [12, 60])
def test_the_average_the_curve_and_the_peak_have_one_basis(
    stats_period_ms: int, until: int
) -> None:
    """The batch has freed memory lazily: its processes hold it, and the kernel can drop it."""
    fakes = CollectedBatch(snapshot=lambda at: alone(process(cpu=at / 2, held=500)))
    for at in range(stats_period_ms // 1000, until - 1, stats_period_ms // 1000):
        fakes.run(at + 1)
        fakes.collector.on_sample(
            "b", sample(START_NS + seconds(at), at / 2, 3 * MIB), ResourceLimits()
        )
    stats = Metrics(
        max_memory_used_mb=3, memory_used_mb=Distribution(avg=3, p50=3, p95=3, p99=3, max=3)
    )
    sampling = Sampling(samples=until * 1000 // stats_period_ms, stats_period_ms=stats_period_ms)
    limits = {"memory_size_mb": 512, "memory_peak_source": "sampled"}
    record = fakes.run(until).record(
        "failure", 137, metrics=replace(stats, **limits), sampling=sampling, series=COARSE
    )
    used = present(record.metrics.memory_used_mb)
    assert used.avg == 3
    assert used.p50 == 3
    assert used.max == 3
    assert record.metrics.memory_peak_source == "sampled"
    assert record.likely_out_of_memory is None
    assert warnings(record) == ()


@pytest.mark.parametrize(
    ("is_group_readable", "launch_type", "is_certain"),
    [(True, "EC2", True), (False, "FARGATE", True), (False, "EC2", False)],
)
def test_a_kill_in_a_successful_batch_needs_the_groups_counter_or_its_own_host(
    launch_type: str, *, is_group_readable: bool, is_certain: bool
) -> None:
    fakes = CollectedBatch()
    if is_group_readable:
        fakes.group = lambda at: group(kills=int(at > 30))
    else:
        fakes.host_kills = lambda at: 41 if at > 30 else 40
    gone = replace(alone(process()), ended=(process(9, held=400, name="worker"),))
    fakes.snapshot = lambda at: gone if at == 31 else alone(process())
    record = fakes.run(60).record(launch_type=launch_type)
    verdict = (record.likely_out_of_memory, record.out_of_memory_evidence)
    assert verdict == ((True, "kernel-counter") if is_certain else (None, None))
    kills = record.memory_kills
    shown = (
        [(one.name, one.max_memory_used_mb) for one in kills.processes] if kills is not None else []
    )
    assert shown == ([("worker", 400)] if is_certain else [])
    # A batch that was killed itself when the host's counter rose is a kill.
    fakes = CollectedBatch(host_kills=lambda at: 41 if at > 30 else 40)
    fakes.snapshot = lambda at: (
        alone(process(held=400)) if at < 31 else ProcessSnapshot(ended=(process(held=400),))
    )
    record = fakes.run(31).record("failure", 137)
    assert record.likely_out_of_memory is True
    assert present(record.memory_kills).count == 1


@pytest.mark.parametrize(
    ("group_kills", "host_kills", "restarts", "likely"),
    [
        (0, 41, 0, False),  # the machine's count rose for another task
        (None, 40, 0, False),
        (None, 41, 0, True),
        (0, 40, 1, True),  # how the first attempt ended was not seen
    ],
)
def test_a_batch_that_a_program_killed_at_its_limit_did_not_run_out_of_memory(
    group_kills: int | None, host_kills: int, restarts: int, *, likely: bool
) -> None:
    fakes = CollectedBatch(host_kills=lambda at: 40 if at < 31 else host_kills)
    if group_kills is not None:
        fakes.group = lambda _at: group(used=100, peak=980, kills=group_kills)
    at_limit = process(held=980)
    fakes.snapshot = lambda at: (
        alone(at_limit) if at < 31 else ProcessSnapshot(ended=(at_limit,) if at == 31 else ())
    )
    container = Container(name="batch", restarts=restarts or None)
    record = fakes.run(33).record("failure", 137, container=container)
    assert record.likely_out_of_memory is likely


def test_whether_memory_ran_out_follows_from_the_end_and_the_peak() -> None:
    def verdict(record: Record) -> tuple[bool | None, str | None]:
        return record.likely_out_of_memory, record.out_of_memory_evidence

    fakes = CollectedBatch(snapshot=lambda at: alone(process(cpu=at / 2, mark=980)))
    assert verdict(fakes.run(60).record("failure", 137)) == (True, "exit-137-at-limit")
    for ends in (60.5, 64.0):  # low memory in readings of the processes does not exclude a kill
        record = (
            CollectedBatch()
            .run(60)
            .record("failure", 137, finished_at=format_ms(START_NS + seconds(ends)))
        )
        assert verdict(record) == (None, None)
    # Hits of the limit, which only the task stats have, stay evidence.
    at_limit = base("failure", 137)
    at_limit = replace(at_limit, metrics=replace(at_limit.metrics, max_memory_used_mb=800))
    for hits, expected in ((1, (True, "exit-137-at-limit")), (0, (None, None))):
        draft = draft_of(at_limit)
        draft = replace(draft, evidence=(*draft.evidence, RunEvidence(limit_hits=hits)))
        parts = collected_parts((CollectedBatch().run(60).collector,), draft.run, "b")
        assert verdict(draft.build_record(parts)) == expected
    # A low mark of the whole batch excludes a kill.
    fakes = CollectedBatch(group=lambda at: group(used=100, peak=120, is_empty=at >= 2))
    record = fakes.run(2).record("failure", 137, finished_at=format_ms(START_NS + seconds(60)))
    assert record.metrics.memory_peak_source == "kernel"
    assert record.likely_out_of_memory is False
    assert record.out_of_memory_evidence is None


@pytest.mark.parametrize(
    ("news", "group_of", "kill_counts"),
    [
        ({}, group(), 1),
        ({"ended": (process(8),)}, group(), 2),
        ({}, None, 1),
        ({"missed_pids": 1}, None, 2),
    ],
    ids=["nothing ended", "a process ended", "without a group", "without a group, one was missed"],
)
def test_the_machines_kills_are_read_once_a_tick_unless_one_may_be_the_batchs(
    news: dict[str, Any], group_of: GroupReading | None, kill_counts: int
) -> None:
    counted: list[float] = []

    def host_kills(at: float) -> int:
        counted.append(at)
        return 40

    fakes = CollectedBatch(
        group=None if group_of is None else lambda _: group_of,
        host_kills=host_kills,
        snapshot=lambda _: replace(alone(process()), **news),
    )
    fakes.collector.on_batch_started(replace(BATCH, docker_id="other"))
    fakes.run(3)
    assert counted.count(3.0) == kill_counts


def test_a_batch_that_starts_during_a_tick_is_read_from_the_next_one_on() -> None:
    fakes = CollectedBatch()
    fakes.on_open = lambda: fakes.collector.on_batch_started(replace(BATCH, docker_id="later"))
    fakes.run(3)
    assert present(with_collected(base(), (fakes.collector,), "later").processes)
    assert fakes.process_reads == 3 + 2


@given(readings=st.lists(st.sampled_from(("same", "cpu", "memory", "mark", "end", "other"))))
def test_readings_that_are_the_same_again_count_as_new_ones_do(readings: list[str]) -> None:
    """The source of the processes returns the same object while nothing has changed."""
    again = CollectedBatch(group=lambda _: group())
    anew = CollectedBatch(group=lambda _: group())
    played = _played(readings)
    again.snapshot = lambda at: ProcessSnapshot(processes=played[int(at)], main_pid=7)
    anew.snapshot = lambda at: ProcessSnapshot(processes=copied(played[int(at)]), main_pid=7)
    records = [fakes.run(len(played) - 1).record() for fakes in (again, anew)]
    assert records[0] == records[1]


def copied(processes: tuple[ProcessReading, ...]) -> tuple[ProcessReading, ...]:
    return tuple([replace(reading) for reading in processes])


def _played(changes: list[str]) -> list[tuple[ProcessReading, ...]]:
    """The processes of each second, of which the second one may end and begin again."""
    processes: tuple[ProcessReading, ...] = (process(7), process(8, name="tool"))
    played = [processes]
    for change in changes:
        main, *others = processes
        if change == "cpu":
            main = replace(main, own_cpu_ns=main.own_cpu_ns + seconds(0.4))
        elif change == "memory":
            main = replace(main, share_bytes=(main.share_bytes or 0) + MIB)
        elif change == "mark":
            main = replace(main, peak_bytes=(main.peak_bytes or 0) + 300 * MIB)
        elif change == "end":
            others = []
        elif change == "other":
            others = [process(8 + len(played), name="tool", cpu=0.2)]
        if change != "same":
            processes = (main, *others)
        played.append(processes)
    return played


@given(late=st.lists(st.integers(0, 10), min_size=60, max_size=60), used=st.integers(50, 400))
def test_samples_that_come_ten_seconds_late_make_the_same_record(
    late: list[int], used: int
) -> None:
    """The monitor of an instance passes the samples of ten seconds together."""
    records: list[Record] = []
    for delays in ([0] * 60, late):
        fakes = CollectedBatch()
        waiting: list[int] = []
        for second in range(60):
            fakes.run(second + 1)
            waiting.append(second)
            if delays[second] == 0 or len(waiting) == 10:
                for at in waiting:
                    taken = sample(START_NS + seconds(at), at / 2, used * MIB)
                    fakes.collector.on_sample("b", taken, ResourceLimits())
                waiting = []
        fakes.run(62)
        records.append(fakes.record())
    assert records[0] == records[1]


def test_thousands_of_processes_are_read_less_often_and_the_group_every_second() -> None:
    fakes = CollectedBatch(
        cost_ns=20_000_000, group=lambda at: group(used=round(100 + at), peak=round(100 + at))
    )
    record = fakes.run(60).record()
    assert 10 <= fakes.process_reads <= 16
    assert present(record.sampling).samples == 60
    # No cost delays a complete reading, and that of the first one none.
    fakes = CollectedBatch(cost_ns=150_000_000).run(1)
    fakes.collector.tick(is_complete=True)
    assert fakes.process_reads == 2
    assert fakes.exit_waiter.watched == (7,)
    fakes = CollectedBatch(cost_ns=150_000_000).run(1)
    fakes.cost_ns = 0
    assert fakes.run(5).process_reads == 5


def test_the_thread_waits_for_the_events_of_a_readable_group() -> None:
    """The thread waits for the events of a readable group and is woken once by the same container."""
    fakes = CollectedBatch().run(60)
    assert fakes.attempts == [7] * 5
    assert fakes.exit_waiter.watched_files == ()
    fakes = CollectedBatch(group=lambda _: group()).run(1)
    for _ in range(3):
        fakes.collector.on_batch_started(BATCH)
    assert fakes.exit_waiter.watched_files == (42,)
    assert fakes.exit_waiter.wakes == 1


def test_a_replaced_container_continues_the_totals() -> None:
    fakes = CollectedBatch().run(20)
    fakes.collector.on_batch_started(replace(AGAIN, started_ns=START_NS + seconds(20)))
    fakes.snapshot = lambda at: alone(process(8, cpu=(at - 20) / 2, held=50))
    record = fakes.run(40).record(metrics=Metrics())
    # A process that nobody was seen to wait for counts with what is left after rounding.
    assert record.metrics.cpu_seconds == pytest.approx(20.0, abs=0.03)
    assert record.metrics.max_memory_used_mb == 100
    assert [(shown.count, shown.max_memory_used_mb) for shown in record.processes] == [(2, 100)]


def test_each_container_has_its_own_numbers_until_it_was_reported() -> None:
    """Another one may have the same name in another task."""
    fakes = CollectedBatch(snapshot=lambda _: ProcessSnapshot())
    assert fakes.run(30).record() == base()
    fakes = CollectedBatch()
    assert fakes.run(10).collector.part(base(), "other") == RecordPart(source="processes")
    fakes.collector.on_batch_started(replace(BATCH, docker_id="z"))
    fakes.snapshot = lambda at: alone(
        process(cpu=at / 2, held=100 + 50 * (fakes.process_reads % 2))
    )
    fakes.run(30)
    first = with_collected(base(), (fakes.collector,), "b")
    fakes.run(30)
    second = with_collected(base(), (fakes.collector,), "z")
    assert first.metrics.max_memory_used_mb == 150
    assert second.metrics.max_memory_used_mb == 100
    for batch in ("b", "z"):
        fakes.collector.forget(batch)
    reads = fakes.process_reads
    assert not fakes.run(40).record().processes
    assert fakes.process_reads == reads


def test_a_reports_series_is_that_of_the_processes_with_the_devices() -> None:
    """The series of a report is that of the processes with the devices of the record."""
    record = CollectedBatch().run(60).record(series=COARSE)
    expected = replace(COARSE, vcpu_used=(0.5,) * 60, memory_used_mb=(100.0,) * 60)
    assert replace(present(record.series), processes=()) == expected
    assert record.metrics.max_memory_used_at == "2025-11-20T00:53:21.000Z"
    assert CollectedBatch().run(60).record("running", None).series is None


def test_commands_have_values_on_the_series_steps_across_a_restart() -> None:
    """The commands have values on the steps of the series before and after a restart."""
    fakes = CollectedBatch().run(20)
    fakes.snapshot = lambda _: ProcessSnapshot()
    fakes.run(24)
    fakes.collector.on_batch_started(replace(AGAIN, started_ns=START_NS + seconds(24)))
    fakes.snapshot = lambda at: alone(process(8, cpu=(at - 24) / 2, held=50))
    series = present(fakes.run(40).record(series=COARSE).series)
    (shown,) = series.processes
    vcpu_used = present(shown.vcpu_used)
    assert len(vcpu_used) == len(series.vcpu_used or ()) == 60
    assert vcpu_used[:20] == (0.5,) * 20
    assert vcpu_used[25:] == (0.5,) * 15 + (None,) * 20
    # Between the last reading and the first one after the restart, it had neither of the two.
    assert shown.memory_used_mb == (100,) * 20 + (None,) * 4 + (50,) * 16 + (None,) * 20


def test_a_run_too_short_for_the_task_stats_has_its_processes_series() -> None:
    """A run too short for the task stats has the series and the slowdown of its processes."""
    bare = Metrics(vcpu_size=1, memory_size_mb=1024)
    record = (
        CollectedBatch()
        .run(5)
        .record(task_size=TaskSize(vcpu=0.5), metrics=bare, sampling=Sampling(samples=0))
    )
    assert present(record.series).vcpu_used == (0.5,) * 5
    assert record.metrics.cpu_seconds == 2.5
    assert record.metrics.vcpu_saturated_percent == 100
    assert record.metrics.max_memory_used_mb == 100
    assert record.metrics.memory_peak_source == "sampled"
    assert record.sampling == Sampling(samples=5, sources=("processes",))
    assert record.metrics.slowdown_at_vcpu == {"0.25": SlowdownBounds(min=2, max=2)}


def test_after_an_error_the_report_has_the_stats_series() -> None:
    """After an error of our own the report has the stats series and checkpoints no processes."""
    fakes = CollectedBatch().run(30)
    fakes.collector.start()  # the fake waiter refuses to wait, which ends the thread
    assert fakes.exit_waiter.has_refused.wait(LIMIT_SECONDS)  # a stop before that is no error
    fakes.collector.stop(LIMIT_SECONDS)
    record = fakes.record()
    assert [shown.name for shown in record.processes] == ["job", "other"]
    assert record.metrics.vcpu_used == base().metrics.vcpu_used
    assert present(record.metrics.memory_used_mb).avg == 90
    (warning,) = warnings(record)
    assert "The collection of process values stopped at 2025-" in warning
    checkpoint = fakes.record("running", None)
    assert checkpoint.processes == ()
    assert warnings(checkpoint) == (warning,)


def holding_huge_pages(mib: int) -> ProcessSnapshot:
    return alone(replace(process(cpu=1), huge_page_bytes=mib * MIB))


def test_huge_pages_are_in_addition_to_the_memory_used() -> None:
    def snapshot(at: float) -> ProcessSnapshot:
        return holding_huge_pages(0 if at < 3 else 300)

    record = CollectedBatch(snapshot=snapshot).run(4).record()
    assert record.metrics.memory_huge_pages_mb == AverageAndMaximum(avg=150, max=300)
    assert CollectedBatch().run(4).record().metrics.memory_huge_pages_mb == NO_READINGS


def test_the_groups_count_of_huge_pages_has_those_of_all_processes() -> None:
    group = GroupReading(cpu_ns=1, huge_page_bytes=700 * MIB)
    batch = CollectedBatch(snapshot=lambda _: holding_huge_pages(300), group=lambda _: group)
    pages = present(batch.run(4).record().metrics.memory_huge_pages_mb)
    assert pages.max == 700


def test_huge_pages_in_the_memory_used_are_not_in_addition() -> None:
    memory = MemoryReading(used_bytes=400 * MIB, has_huge_pages=True)
    group = GroupReading(cpu_ns=1, memory=memory)
    batch = CollectedBatch(snapshot=lambda _: holding_huge_pages(300), group=lambda _: group)
    assert batch.run(4).record().metrics.memory_huge_pages_mb == NO_READINGS
    by_stats = CollectedBatch(snapshot=lambda _: holding_huge_pages(300)).run(4)
    stats = replace(sample(START_NS, None, 400 * MIB), has_huge_pages=True)
    by_stats.collector.on_sample("b", stats, ResourceLimits())
    assert by_stats.record().metrics.memory_huge_pages_mb == NO_READINGS


def test_packet_rings_are_a_bound() -> None:
    """No group counts them: they are no memory used, but no smaller size is taken without them."""
    memory = MemoryReading(used_bytes=100 * MIB, cache_bytes=0, mapped_file_bytes=7 * MIB)
    reading = replace(group(is_empty=True), memory=memory)
    record = CollectedBatch(ring_bytes=128 * MIB, group=lambda _: reading).run(4).record()
    assert record.metrics.max_memory_used_mb == 100
    assert record.metrics.memory_used_bound_mb == 228
    assert record.metrics.memory_peak_source == "sampled"
    (warning,) = warnings(record)
    assert warning.startswith("The memory peak may have been 228 MB, and the average is a lower")
    without = CollectedBatch(group=lambda _: reading)
    assert without.run(4).record().metrics.memory_used_bound_mb is None
