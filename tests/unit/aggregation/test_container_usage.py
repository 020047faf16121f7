import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aggregation.container_usage import ContainerUsage
from profiler.aggregation.time_series import DeviceReadings
from profiler.readers.container_sample import ContainerSample
from profiler.readers.linux.host import Host
from profiler.record.record_model import AverageAndMaximum, Series
from tests.fakes import START_NS, sample, seconds
from tests.values import present

MIB = 1024 * 1024


class Feed:
    """Feeds samples whose ``read`` moves with the monotonic clock, by default."""

    def __init__(self, started: float | None = 0, *, series_points: int = 0) -> None:
        self.usage = ContainerUsage(seconds(1), series_points)
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
        **more: int,
    ) -> bool:
        memory_bytes = None if memory_mib is None else memory_mib * MIB
        taken = sample(START_NS + seconds(at), cpu, memory_bytes, **more)
        return self.usage.add(
            taken,
            epoch=docker_id,
            received_ns=seconds(at if received is None else received),
            started_ns=self.started_ns,
            shares_network=shares_network,
        )


def test_a_short_first_step_is_joined_with_the_next() -> None:
    """The counter holds the container runtime's work from before the start: 0.06 s of CPU in 0.03 s."""
    feed = Feed()
    feed.add(0.03, cpu=0.06)
    assert feed.usage.run.vcpu.distribution() is None
    feed.add(1.03, cpu=0.5)
    feed.add(2.03, cpu=1.0)
    vcpu = present(feed.usage.run.vcpu.distribution(digits=4))
    assert vcpu.max == 0.5
    assert vcpu.avg == pytest.approx(1.0 / 2.03, abs=0.0001)
    assert feed.usage.cpu_seconds == 1.0


def test_without_a_known_start_the_first_sample_gives_no_rate() -> None:
    feed = Feed(started=None, series_points=5)
    feed.add(7, cpu=100.0, memory_mib=50)
    assert feed.usage.run.vcpu.distribution() is None
    feed.add(8, cpu=100.5, memory_mib=60)
    assert present(feed.usage.run.vcpu.distribution()).avg == 0.5
    assert feed.usage.cpu_seconds == 100.5
    found = series_of(feed)
    assert found.started_at == "2025-11-20T00:53:27.000Z"
    assert (found.vcpu_used, found.memory_used_mb) == ((0.5,), (60,))


@pytest.mark.parametrize(("cpu", "total"), [(50.5, 50.5), (2.0, 52.0)])
def test_a_new_docker_id_with_more_than_its_time_allows_continues_the_counters(cpu: float, total: float) -> None:
    """It started 1 s ago on 2 CPUs: 2 s can be its own, 50.5 s cannot."""
    usage = ContainerUsage(seconds(1), machine=Host(vcpu=2))
    for at, docker_id, cpu_seconds in ((25, "a", 50.0), (26, "b", cpu)):
        taken = sample(START_NS + seconds(at), cpu_seconds)
        usage.add(taken, epoch=docker_id, received_ns=seconds(at), started_ns=START_NS)
    assert usage.cpu_seconds == total


def test_of_a_reset_counter_nothing_is_known_before_the_new_start() -> None:
    usage = ContainerUsage(seconds(1), 10)
    for at, cpu, began in ((1, 1.0, 0), (2, 2.0, 0), (8, 1.0, 7)):
        taken = sample(START_NS + seconds(at), cpu, 10 * MIB)
        usage.add(
            taken, epoch="a", received_ns=seconds(at), started_ns=START_NS, attempt_started_ns=START_NS + seconds(began)
        )
    assert usage.cpu_seconds == 3.0
    series = present(None if usage.series is None else usage.series.values())
    assert series.vcpu_used == (1, 1, None, None, None, None, None, 1)
    assert series.memory_used_mb == (10, 10, None, None, None, None, None, 10)


@pytest.mark.parametrize(("memory_mib", "is_possible"), [(1536, True), (1600, False)])
def test_memory_that_the_machine_does_not_have_is_left_out(memory_mib: int, *, is_possible: bool) -> None:
    usage = ContainerUsage(seconds(1), machine=Host(memory_bytes=1024 * MIB))
    usage.add(sample(START_NS + seconds(1), 0.5, memory_mib * MIB), received_ns=seconds(1), started_ns=START_NS)
    assert (usage.memory_max_bytes is not None, usage.impossible) == (is_possible, 0 if is_possible else 1)


@pytest.mark.parametrize(("cpu", "is_possible"), [(130.0, True), (133.0, False), (24_282.0, False)])
def test_cpu_time_that_all_cpus_cannot_have_provided_is_left_out(cpu: float, *, is_possible: bool) -> None:
    """On 2 CPUs in 6 s, with 60 s for late counters."""
    usage = ContainerUsage(seconds(1), machine=Host(vcpu=2))
    usage.add(sample(START_NS + seconds(6), cpu), received_ns=seconds(6), started_ns=START_NS)
    assert (usage.cpu_seconds, usage.impossible) == ((cpu, 0) if is_possible else (None, 1))


def test_a_counter_that_falls_by_little_is_no_restart() -> None:
    usage = ContainerUsage(seconds(1), machine=Host(vcpu=2))
    for at, cpu in ((1000, 999.0), (1001, 998.9), (1002, 1001.0)):
        usage.add(sample(START_NS + seconds(at), cpu), received_ns=seconds(at), started_ns=START_NS)
    assert (usage.cpu_seconds, usage.run.vcpu.maximum, usage.impossible) == (1001.0, 1.0, 1)


def test_a_rate_beyond_the_machine_is_joined_with_the_next() -> None:
    """Stats of every 10 s, and a wall clock that is set back by 9.9 s."""
    usage = ContainerUsage(seconds(1), machine=Host(vcpu=2))
    for at, received, cpu in ((10, 10, 10.0), (10.1, 20, 20.0), (20.1, 30, 30.0)):
        usage.add(sample(START_NS + seconds(at), cpu), received_ns=seconds(received), started_ns=START_NS)
    assert usage.cpu_seconds == usage.run.cpu_seconds == 30.0
    assert present(usage.run.vcpu.maximum) < 2


def test_a_total_above_the_integers_of_readers_is_absent() -> None:
    feed = Feed()
    for at, received in enumerate((2**63 - 1, 0, 1)):
        feed.add(at + 1, network_rx_bytes=received)
    assert feed.usage.traffic()["network_rx_bytes"] is None


def test_cpu_time_without_a_value_for_a_while_is_spread_over_that_time() -> None:
    feed = Feed(series_points=5)
    for at, cpu in ((1, None), (2, 1.0), (3, None), (4, None), (5, 2.5)):
        feed.add(at, cpu=cpu)
    assert series_of(feed).vcpu_used == (0.5,) * 5
    assert feed.usage.run.cpu_seconds == 2.5


@pytest.mark.parametrize(("shares_network", "received", "sent"), [(True, 1100, 650), (False, 2100, 1250)])
def test_a_shared_network_counter_continues_when_a_container_is_replaced(
    *, shares_network: bool, received: int, sent: int
) -> None:
    feed = Feed()
    feed.add(1, network_rx_bytes=1000, network_tx_bytes=600, shares_network=shares_network)
    feed.add(
        2, network_rx_bytes=1100, network_tx_bytes=650, shares_network=shares_network, docker_id="b", block_read_bytes=1
    )
    total = feed.usage.traffic()
    assert (total["network_rx_bytes"], total["network_tx_bytes"]) == (received, sent)


def test_page_cache_is_weighted_as_the_memory_is() -> None:
    feed = Feed()
    assert feed.usage.memory_cache_bytes.summary() is None
    feed.add(1, memory_mib=100)
    feed.add(1.5, memory_mib=100, memory_cache_bytes=500 * MIB)
    feed.add(2.5, memory_mib=200, memory_cache_bytes=50 * MIB)
    cache = feed.usage.memory_cache_bytes.summary(per=MIB)
    assert cache == AverageAndMaximum(avg=(500 * 0.5 + 50 * 1) / 1.5, max=500)


def test_memory_of_an_unobserved_period_is_not_counted() -> None:
    """A monitor that came after an hour, and then lost the endpoint for ten minutes: two holes."""
    feed = Feed()
    feed.add(3600, cpu=1800.0, memory_mib=1000)
    for at in range(3601, 3641):
        feed.add(at, cpu=at * 0.5, memory_mib=100)
    feed.add(4240, cpu=2120.0, memory_mib=1000)
    memory = present(feed.usage.run.memory_bytes.distribution(per=MIB))
    assert memory.avg == pytest.approx((1000 * 1 + 100 * 40 + 1000 * 1) / 42, rel=0.01)
    vcpu = present(feed.usage.run.vcpu.distribution())
    assert (vcpu.avg, feed.usage.cpu_seconds) == (0.5, 2120.0)


def test_a_period_that_is_longer_than_any_stats_are_old_is_one_step() -> None:
    usage = ContainerUsage(seconds(60))
    for minute, memory_mib in ((1, 100), (2, 300)):
        taken = sample(START_NS + seconds(60 * minute), None, memory_mib * MIB)
        usage.add(taken, epoch="a", received_ns=seconds(60 * minute), started_ns=START_NS)
    memory = present(usage.run.memory_bytes.distribution(per=MIB))
    assert memory.avg == 200


counts = st.none() | st.integers(min_value=0, max_value=2**62)
samples = st.builds(
    ContainerSample,
    read_ns=st.integers(min_value=1, max_value=2**62),
    cpu_ns=counts,
    memory_used_bytes=counts,
    memory_cache_bytes=counts,
    memory_usage_peak_bytes=counts,
    network_rx_bytes=counts,
    block_write_bytes=counts,
    pids=counts,
)


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
        usage.add(taken, epoch=docker_id, received_ns=received_ns, started_ns=started_ns)
    assert usage.samples + usage.duplicates == len(feed)
    series = None if usage.series is None else usage.series.values()
    for column in (series.vcpu_used, series.memory_used_mb) if series is not None else ():
        assert all(value is None or value >= 0 for value in column or ())
        assert len(column or ()) <= 6
    for value in (*usage.traffic().values(), usage.cpu_seconds, usage.max_pids, usage.steps_ms.maximum):
        assert value is None or value >= 0
    cache = usage.memory_cache_bytes.summary()
    assert cache is None or (cache.avg is not None and cache.max is not None and 0 <= cache.avg <= cache.max + 0.001)
    vcpu = usage.run.vcpu.distribution()
    assert vcpu is None or (vcpu.avg is not None and vcpu.max is not None and 0 <= vcpu.avg <= vcpu.max)


def series_of(feed: Feed) -> Series:
    return present(present(feed.usage.series).values())


def test_the_series_has_the_mean_cpu_and_the_largest_memory_of_each_step() -> None:
    feed = Feed(series_points=5)
    feed.add(1.5, cpu=1.5, memory_mib=100)
    feed.add(2, cpu=1.5, memory_mib=300)
    feed.add(4, cpu=3.5, memory_mib=200)
    found = series_of(feed)
    assert (found.started_at, found.step_ms) == ("2025-11-20T00:53:20.000Z", 1000)
    assert found.vcpu_used == (1, 0.5, 1, 1)
    assert found.memory_used_mb == (100, 300, None, 200)


def test_a_step_is_taken_once() -> None:
    feed = Feed()
    assert feed.usage.take_ended_step_ns() == 0
    feed.add(1, cpu=0.25)
    assert (feed.usage.last_vcpu, feed.usage.take_ended_step_ns()) == (0.25, seconds(1))
    feed.add(1, cpu=0.25)
    assert (feed.usage.last_vcpu, feed.usage.take_ended_step_ns()) == (0.25, 0)


def test_readings_of_devices_are_on_the_time_line_of_the_samples() -> None:
    feed = Feed(series_points=5)
    readings = DeviceReadings()
    readings.gpu_percent.add(50)
    feed.usage.add_devices(readings, seconds(1))
    feed.add(1, cpu=0.5, received=1.2)
    feed.usage.add_devices(readings, seconds(3.5))
    assert series_of(feed).gpu_utilization_percent == (None, None, None, 50)
    feed.usage.keep_totals_only()
    feed.add(2, cpu=0.5)
    feed.usage.add_devices(readings, seconds(4))
    assert feed.usage.series is None


def test_a_container_that_is_no_batch_keeps_its_totals_and_no_interval() -> None:
    feed = Feed(series_points=5)
    feed.usage.keep_totals_only()
    feed.add(1, cpu=0.5, memory_mib=10)
    feed.add(2, cpu=1.0, memory_mib=20)
    assert feed.usage.run.cpu_seconds == 1.0
    assert feed.usage.memory_max_bytes == 20 * MIB
    assert feed.usage.end_interval().cpu_seconds is None
    feed.add(3, cpu=1.2, memory_mib=20)
    assert feed.usage.end_interval().cpu_seconds == pytest.approx(0.2)
