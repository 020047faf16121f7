import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.record_parts import usage_metrics
from profiler.aggregation.statistics import DeviceReadings
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.linux.host import Host
from profiler.record.record_model import NO_READINGS, NOT_MEASURED, AverageAndMaximum, Series
from tests.fakes import START_NS, sample, seconds
from tests.values import present

MIB = 2**20
VCPU = 4
HOST = Host(vcpu=VCPU, memory_bytes=2**34)


class Feed:
    """Feeds samples whose ``read`` moves with the monotonic clock, by default."""

    def __init__(
        self, started: float | None = 0, *, series_points: int = 0, machine: Host | None = None
    ) -> None:
        self.usage = ContainerUsage(seconds(1), series_points, machine or Host())
        self.started_ns = None if started is None else START_NS + seconds(started)

    def add(
        self,
        at: float,
        cpu: float | None = None,
        memory_mib: int | None = None,
        *,
        received: float | None = None,
        docker_id: str = "a",
        shares_network: bool = False,
        began: float | None = None,
        **more: int,
    ) -> "Feed":
        memory_bytes = None if memory_mib is None else memory_mib * MIB
        taken = sample(START_NS + seconds(at), cpu, memory_bytes, **more)
        self.usage.add_sample(
            taken,
            epoch=docker_id,
            received_ns=seconds(at if received is None else received),
            started_ns=self.started_ns,
            attempt_started_ns=None if began is None else START_NS + seconds(began),
            shares_network=shares_network,
        )
        return self


def test_a_short_first_step_is_joined_with_the_next() -> None:
    """The counter holds the container runtime's work from before the start: 0.06 s of CPU in
    0.03 s.
    """
    feed = Feed().add(0.03, cpu=0.06)
    assert feed.usage.run.vcpu.distribution() is NOT_MEASURED
    feed.add(1.03, cpu=0.5).add(2.03, cpu=1.0)
    vcpu = present(feed.usage.run.vcpu.distribution(digits=4))
    assert vcpu.max == pytest.approx(0.5, abs=0.0001)
    assert vcpu.avg == pytest.approx(1.0 / 2.03, abs=0.0001)
    assert feed.usage.cpu_seconds == 1.0


def test_without_a_known_start_the_first_sample_gives_no_rate() -> None:
    feed = Feed(started=None, series_points=5).add(7, cpu=100.0, memory_mib=50)
    assert feed.usage.run.vcpu.distribution() is NOT_MEASURED
    feed.add(8, cpu=100.5, memory_mib=60)
    assert present(feed.usage.run.vcpu.distribution()).avg == 0.5
    assert feed.usage.cpu_seconds == 100.5
    found = series_of(feed)
    assert found.started_at == "2025-11-20T00:53:27.000Z"
    assert found.vcpu_used == (0.5,)
    assert found.memory_used_mb == (60,)


def test_of_a_reset_counter_nothing_is_known_before_the_new_start() -> None:
    feed = Feed(series_points=10)
    for at, cpu, began in ((1, 1.0, 0), (2, 2.0, 0), (8, 1.0, 7)):
        feed.add(at, cpu, 10, began=began)
    assert feed.usage.cpu_seconds == 3.0
    series = series_of(feed)
    assert series.vcpu_used == (1, 1, None, None, None, None, None, 1)
    assert series.memory_used_mb == (10, 10, None, None, None, None, None, 10)


@pytest.mark.parametrize(("memory_mib", "is_possible"), [(1536, True), (1600, False)])
def test_memory_that_the_machine_does_not_have_is_left_out(
    memory_mib: int, *, is_possible: bool
) -> None:
    usage = Feed(machine=Host(memory_bytes=1024 * MIB)).add(1, 0.5, memory_mib).usage
    assert (usage.memory_max_bytes is not None) == is_possible
    assert usage.impossible == (0 if is_possible else 1)


@pytest.mark.parametrize(
    ("readings", "total", "impossible"),
    [
        # A new container started 1 s ago: 2 s can be its own, and with 50.5 s it continues the
        # counters.
        ([(25, 50.0, "a"), (26, 2.0, "b")], 52.0, 0),
        ([(25, 50.0, "a"), (26, 50.5, "b")], 50.5, 0),
        # In 6 s, with 60 s for late counters.
        ([(6, 130.0, "a")], 130.0, 0),
        ([(6, 133.0, "a")], None, 1),
        # A counter that falls by little is no restart.
        ([(1000, 999.0, "a"), (1001, 998.9, "a"), (1002, 1001.0, "a")], 1001.0, 1),
    ],
)
def test_cpu_time_that_two_cpus_cannot_have_provided_is_left_out(
    readings: list[tuple[int, float, str]], total: float | None, impossible: int
) -> None:
    feed = Feed(machine=Host(vcpu=2))
    for at, cpu, docker_id in readings:
        feed.add(at, cpu, docker_id=docker_id)
    assert feed.usage.cpu_seconds == total
    assert feed.usage.impossible == impossible


def test_a_rate_beyond_the_machine_is_joined_with_the_next() -> None:
    """Stats of every 10 s, and one that has another time."""
    feed = Feed(machine=Host(vcpu=2))
    for at, received, cpu in ((10, 10, 10.0), (10.1, 20, 20.0), (20.1, 30, 30.0)):
        feed.add(at, cpu, received=received)
    assert feed.usage.cpu_seconds == feed.usage.run.cpu_seconds == 30.0
    assert present(feed.usage.run.vcpu.maximum) < 2


@pytest.mark.parametrize("wrong", [0, 99.5], ids=["zero", "a little less"])
def test_a_lower_cpu_time_without_a_restart_is_left_out(wrong: float) -> None:
    """The counters go on in the next sample: nothing is counted twice."""
    feed = Feed(machine=HOST)
    for second in range(1, 101):
        feed.add(second, cpu=second, network_rx_bytes=second * 1000)
    feed.add(101, cpu=wrong, network_rx_bytes=0)
    feed.add(102, cpu=102, network_rx_bytes=102_000)
    assert feed.usage.cpu_seconds == 102
    assert feed.usage.run.vcpu.maximum == pytest.approx(1)
    assert feed.usage.traffic_by_counter()["network_rx_bytes"] == 102_000
    assert feed.usage.impossible == 1


def test_a_sample_that_is_older_than_the_last_one_counts_for_nothing() -> None:
    feed = Feed(machine=HOST).add(10, cpu=10).add(20, cpu=20)
    feed.add(10, cpu=10, received=21).add(30, cpu=30)
    assert feed.usage.cpu_seconds == 30
    assert feed.usage.duplicates == 1
    assert feed.usage.run.vcpu.maximum == pytest.approx(1)


def test_a_total_above_the_integers_of_readers_is_absent() -> None:
    feed = Feed()
    for at, received in enumerate((2**63 - 1, 0, 1)):
        feed.add(at + 1, network_rx_bytes=received)
    assert feed.usage.traffic_by_counter()["network_rx_bytes"] is None


def test_cpu_time_without_a_value_for_a_while_is_spread_over_that_time() -> None:
    feed = Feed(series_points=5)
    for at, cpu in ((1, None), (2, 1.0), (3, None), (4, None), (5, 2.5)):
        feed.add(at, cpu=cpu)
    assert series_of(feed).vcpu_used == (0.5,) * 5
    assert feed.usage.run.cpu_seconds == 2.5


@pytest.mark.parametrize(
    ("shares_network", "received", "sent"), [(True, 1100, 650), (False, 2100, 1250)]
)
def test_a_shared_network_counter_continues_when_a_container_is_replaced(
    *, shares_network: bool, received: int, sent: int
) -> None:
    feed = Feed()
    for at, rx, tx, docker_id in ((1, 1000, 600, "a"), (2, 1100, 650, "b")):
        feed.add(
            at,
            network_rx_bytes=rx,
            network_tx_bytes=tx,
            shares_network=shares_network,
            docker_id=docker_id,
        )
    total = feed.usage.traffic_by_counter()
    assert total["network_rx_bytes"] == received
    assert total["network_tx_bytes"] == sent


def test_page_cache_is_weighted_as_the_memory_is() -> None:
    feed = Feed()
    assert feed.usage.memory_cache_bytes.average_and_maximum() == NO_READINGS
    feed.add(1, memory_mib=100).add(1.5, memory_mib=100, memory_cache_bytes=500 * MIB)
    feed.add(2.5, memory_mib=200, memory_cache_bytes=50 * MIB)
    cache = feed.usage.memory_cache_bytes.average_and_maximum(per=MIB)
    assert cache == AverageAndMaximum(avg=(500 * 0.5 + 50 * 1) / 1.5, max=500)


def test_what_quick_readings_lack_counts_for_their_time() -> None:
    """In 2 of 10 seconds, 60 MiB in huge pages and 30 of a file; a whole reading each second."""
    feed = Feed()
    for step in range(1, 101):
        at = step / 10
        if step % 10:
            feed.add(at, memory_mib=100)
            continue
        part = 30 * MIB * (at <= 2)
        feed.add(at, memory_mib=100, memory_huge_page_bytes=2 * part, memory_mapped_file_bytes=part)
    metrics = usage_metrics(feed.usage, ResourceLimits())
    assert metrics.memory_huge_pages_mb == AverageAndMaximum(avg=12, max=60)
    assert metrics.memory_mapped_file_mb == AverageAndMaximum(avg=6, max=30)


def test_huge_pages_are_said_only_where_there_are_some() -> None:
    feed = Feed().add(1, memory_mib=100).add(2, memory_mib=100, memory_huge_page_bytes=0)
    assert usage_metrics(feed.usage, ResourceLimits()).memory_huge_pages_mb == NO_READINGS
    feed.add(3, memory_mib=200, memory_huge_page_bytes=60 * MIB)
    pages = usage_metrics(feed.usage, ResourceLimits()).memory_huge_pages_mb
    assert pages == AverageAndMaximum(avg=20, max=60)


def test_mapped_files_are_weighted_as_the_memory_is() -> None:
    feed = Feed()
    assert feed.usage.memory_mapped_file_bytes.average_and_maximum() == NO_READINGS
    feed.add(1, memory_mib=100).add(2, memory_mib=100, memory_mapped_file_bytes=0)
    feed.add(3, memory_mib=200, memory_mapped_file_bytes=60 * MIB)
    mapped = feed.usage.memory_mapped_file_bytes.average_and_maximum(per=MIB)
    assert mapped == AverageAndMaximum(avg=20, max=60)


@pytest.mark.parametrize(
    ("cache_mib", "kernel_mib"),
    [
        pytest.param((100, 100), 150, id="a spike"),
        pytest.param((100, 200), 50, id="the mark is that of the page cache"),
        pytest.param((100, 99), 151, id="a little less page cache than before"),
        pytest.param((200, 0), None, id="page cache that was dropped since, or memory"),
        pytest.param((210, 200), 50, id="dropped for the memory that was sampled"),
    ],
)
def test_a_mark_counts_without_the_page_cache_if_that_is_known(
    cache_mib: tuple[int, int], kernel_mib: int | None
) -> None:
    before, after = (size_mib * MIB for size_mib in cache_mib)
    feed = Feed().add(1, memory_mib=50, memory_cache_bytes=before)
    feed.add(2, memory_mib=50, memory_cache_bytes=after, memory_usage_peak_bytes=250 * MIB)
    feed.add(3, memory_cache_bytes=after, memory_usage_peak_bytes=250 * MIB, is_mark_complete=True)
    expected = None if kernel_mib is None else kernel_mib * MIB
    assert feed.usage.kernel_peak_bytes == expected


@pytest.mark.parametrize(
    ("cache_mib", "marked_mib"),
    [
        pytest.param((10, 20, 600), 900, id="a spike, and page cache later"),
        pytest.param((600, 10, 10), 320, id="page cache that was dropped since, or memory"),
        pytest.param((10, 600, 600), 320, id="page cache that was there soon after"),
    ],
)
def test_a_mark_is_compared_with_the_page_cache_around_its_rise(
    cache_mib: tuple[int, int, int], marked_mib: int
) -> None:
    feed = Feed()
    for at, (cache, mark) in enumerate(zip(cache_mib, (0, 920, 920), strict=True), start=1):
        mark_bytes = mark * MIB
        feed.add(
            at, memory_mib=200, memory_cache_bytes=cache * MIB, memory_usage_peak_bytes=mark_bytes
        )
    assert feed.usage.memory_marked_bytes == marked_mib * MIB


def test_memory_of_an_unobserved_period_is_not_counted() -> None:
    """A monitor that came after an hour, and then lost the endpoint for ten minutes: two holes."""
    feed = Feed().add(3600, cpu=1800.0, memory_mib=1000)
    for at in range(3601, 3641):
        feed.add(at, cpu=at * 0.5, memory_mib=100)
    feed.add(4240, cpu=2120.0, memory_mib=1000)
    memory, vcpu = (
        present(one.distribution()) for one in (feed.usage.run.memory_bytes, feed.usage.run.vcpu)
    )
    assert present(memory.avg) / MIB == pytest.approx(
        (1000 * 1 + 100 * 40 + 1000 * 1) / 42, rel=0.01
    )
    assert vcpu.avg == 0.5
    assert feed.usage.cpu_seconds == 2120.0


def test_a_period_that_is_longer_than_any_stats_are_old_is_one_step() -> None:
    feed = Feed()
    feed.usage = ContainerUsage(seconds(60))
    for minute, memory_mib in ((1, 100), (2, 300)):
        feed.add(60 * minute, memory_mib=memory_mib)
    assert present(feed.usage.run.memory_bytes.distribution(per=MIB)).avg == 200


counts = st.none() | st.integers(min_value=0, max_value=2**62)
COUNTS = (
    *("cpu_ns", "memory_used_bytes", "memory_cache_bytes", "memory_usage_peak_bytes"),
    *("network_rx_bytes", "block_write_bytes", "pids"),
)
samples = st.builds(ContainerSample, read_ns=st.integers(1, 2**62), **dict.fromkeys(COUNTS, counts))


@given(
    st.lists(st.tuples(samples, st.integers(0, 2**60), st.sampled_from("ab")), max_size=20),
    st.none() | st.integers(1, 2**61),
)
def test_any_order_of_any_samples_gives_no_negative_number(
    feed: list[tuple[ContainerSample, int, str]], started_ns: int | None
) -> None:
    usage = ContainerUsage(seconds(1), 3)
    received_ns = 0
    for taken, own_step_ns, docker_id in feed:
        received_ns += own_step_ns
        usage.add_sample(taken, epoch=docker_id, received_ns=received_ns, started_ns=started_ns)
    assert usage.samples + usage.duplicates == len(feed)
    series = None if usage.series is None else usage.series.series_so_far()
    for column in (series.vcpu_used, series.memory_used_mb) if series is not None else ():
        assert all(value is None or value >= 0 for value in column or ())
        assert len(column or ()) <= 6
    for value in (
        *usage.traffic_by_counter().values(),
        usage.cpu_seconds,
        usage.max_pids,
        usage.steps_ms.maximum,
    ):
        assert value is None or value >= 0
    for summary in (usage.memory_cache_bytes.average_and_maximum(), usage.run.vcpu.distribution()):
        if summary not in (NO_READINGS, NOT_MEASURED):
            assert 0 <= present(summary.avg) <= present(summary.max) + 0.001


def series_of(feed: Feed) -> Series:
    return present(present(feed.usage.series).series_so_far())


def test_a_step_is_taken_once() -> None:
    feed = Feed()
    assert feed.usage.take_ended_step_ns() == 0
    for step_ns in (seconds(1), 0):
        feed.add(1, cpu=0.25)
        assert feed.usage.last_vcpu == 0.25
        assert feed.usage.take_ended_step_ns() == step_ns


def test_readings_of_devices_are_on_the_time_line_of_the_samples() -> None:
    feed = Feed(series_points=5)
    readings = DeviceReadings()
    readings.gpu_percent.add_reading(50)
    feed.usage.add_devices(readings, seconds(1))
    feed.add(1, cpu=0.5, received=1.2)
    feed.usage.add_devices(readings, seconds(3.5))
    assert series_of(feed).gpu_utilization_percent == (None, None, None, 50)


def test_the_first_interval_begins_at_the_start() -> None:
    feed = Feed(series_points=5)
    feed.usage.keep_totals_only()
    feed.add(1, cpu=0.5, memory_mib=10).add(2, cpu=1.0, memory_mib=20)
    assert feed.usage.run.cpu_seconds == 1.0
    assert feed.usage.series is None
    assert feed.usage.memory_max_bytes == 20 * MIB
    assert feed.usage.end_interval().cpu_seconds == 1.0
    feed.add(3, cpu=1.2, memory_mib=20)
    assert feed.usage.end_interval().cpu_seconds == pytest.approx(0.2)


class Attempt(NamedTuple):
    """From ``start`` to ``end`` a container uses ``vcpu``."""

    start: int
    end: int
    vcpu: float


class Run(NamedTuple):
    """All times are seconds since the start.

    The agent refreshes its statistics every ``period``.

    In ``holes`` the endpoint does not answer. At ``clock_steps`` the wall clock is set by so many
    seconds. The metadata is read ``metadata_lag`` after a restart.
    """

    attempts: tuple[Attempt, ...]
    period: int
    holes: tuple[tuple[int, int], ...]
    clock_steps: tuple[tuple[int, int], ...]
    are_counters_continued: bool
    has_new_ids: bool
    metadata_lag: int

    def shift(self, at: float) -> int:
        return sum(step for moment, step in self.clock_steps if moment <= at)

    def attempt_at(self, at: float) -> int | None:
        """The number of the attempt that runs then."""
        return next(
            (number for number, one in enumerate(self.attempts) if one.start < at <= one.end), None
        )

    def counter(self, at: int, number: int) -> float:
        first = 0 if self.are_counters_continued else number
        return sum(
            (min(at, one.end) - one.start) * one.vcpu for one in self.attempts[first : number + 1]
        )

    @property
    def cpu_seconds(self) -> float:
        return sum((one.end - one.start) * one.vcpu for one in self.attempts)

    def readings(self) -> Iterator[tuple[int, int, int]]:
        """When the statistics were refreshed and when they arrive, and the number of the
        attempt.
        """
        for taken in range(self.period, self.attempts[-1].end + 1, self.period):
            arrives = taken + min(self.period - 1, 2)
            number = self.attempt_at(taken)
            is_lost = any(begin <= arrives < end for begin, end in self.holes)
            if number is not None and not is_lost:
                yield taken, arrives, number


@st.composite
def runs(draw: st.DrawFn) -> Run:
    period = draw(st.sampled_from([1, 10]))
    attempts: list[Attempt] = []
    at = 0
    for _ in range(draw(st.integers(1, 3))):
        lasts = draw(st.integers(6, 30)) * period
        attempts.append(Attempt(at, at + lasts, draw(st.sampled_from([0.25, 1.0, 4.0]))))
        at += lasts + draw(st.integers(0, 3))
    moments = st.integers(5 * period, attempts[-1].end)
    holes = draw(st.lists(moments, max_size=2))
    steps = draw(
        st.lists(st.tuples(moments, st.sampled_from([-3600, -30, -5, 5, 30, 3600])), max_size=1)
    )
    has_new_ids = draw(st.booleans())
    return Run(
        attempts=tuple(attempts),
        period=period,
        holes=tuple((begin, begin + draw(st.integers(1, 4)) * period) for begin in holes),
        clock_steps=tuple(steps),
        are_counters_continued=not has_new_ids and draw(st.booleans()),
        has_new_ids=has_new_ids,
        metadata_lag=draw(st.integers(0, 10)),
    )


def measured(run: Run) -> ContainerUsage:
    usage = ContainerUsage(seconds(1), 2000, HOST)
    for taken, arrives, number in run.readings():
        attempt = run.attempts[number]
        # A new container is known by its metadata; a restart in place is noticed later.
        known = (
            attempt
            if run.has_new_ids or arrives >= attempt.start + run.metadata_lag
            else run.attempts[0]
        )
        usage.add_sample(
            ContainerSample(
                read_ns=START_NS
                + seconds(taken + run.shift(taken))
                - taken,  # a set clock never shows the same nanosecond
                cpu_ns=seconds(run.counter(taken, number)),
                memory_used_bytes=100 * MIB,
            ),
            epoch=str(number) if run.has_new_ids else "same",
            received_ns=seconds(arrives),
            started_ns=START_NS,
            attempt_started_ns=START_NS + seconds(known.start + run.shift(known.start)),
            clock_shift_ns=seconds(run.shift(arrives)),
        )
    return usage


@given(runs())
def test_the_cpu_time_is_the_sum_over_all_attempts_within_a_step(run: Run) -> None:
    usage, seen = measured(run), list(run.readings())
    assert usage.cpu_seconds is not None
    assert usage.cpu_seconds <= run.cpu_seconds + 1e-6
    unseen = 0.0
    for number, attempt in enumerate(run.attempts):
        last = max((taken for taken, _, of in seen if of == number), default=attempt.start)
        unseen += (attempt.end - last) * attempt.vcpu
    longest_step = max(
        (later[0] - earlier[0] for earlier, later in itertools.pairwise(seen)), default=0
    )
    assert usage.cpu_seconds >= run.cpu_seconds - unseen - VCPU * longest_step - 1e-6
    assert usage.impossible == 0


@given(runs())
def test_the_series_holds_all_cpu_time_and_no_rate_is_above_the_real_ones(run: Run) -> None:
    usage = measured(run)
    assert sum(used_ns for used_ns, _ in present(usage.series).cpu.cells) == round(
        (usage.cpu_seconds or 0) * 1e9
    )
    assert present(usage.run.vcpu.maximum) <= max(attempt.vcpu for attempt in run.attempts) * (
        1 + 1e-6
    )
    longest = max(later[0] - earlier[0] for earlier, later in itertools.pairwise(run.readings()))
    assert usage.steps_ms.maximum == pytest.approx(longest * 1000)


@given(runs())
def test_the_memory_is_known_where_it_was_read_and_nowhere_else(run: Run) -> None:
    usage, taken = measured(run), [taken for taken, _, _ in run.readings()]
    series = present(None if usage.series is None else usage.series.series_so_far())
    assert series.step_ms == 1000
    values = series.memory_used_mb or ()
    known = {second for second, value in enumerate(values) if value is not None}
    # A step of the series counts as read if the period before a reading touches it.
    read = {second for at in taken for second in range(at - run.period - 1, at)}
    assert known <= read
    assert {at - 1 for at in taken} <= known
