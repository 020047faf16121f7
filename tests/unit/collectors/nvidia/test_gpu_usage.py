"""From readings of GPUs to the record's numbers. Programs on a device are in ``tests/gpu``."""

from collections.abc import Collection
from typing import Any

import pytest

from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.nvidia.gpu_owners import Descendants, NoOwners, Owns
from profiler.collectors.nvidia.gpu_usage import GpuSoFar, GpuUsage, gpu_idle
from profiler.collectors.nvidia.nvml_calls import THROTTLE_REASONS
from profiler.collectors.nvidia.visible_gpus import (
    ENERGY,
    DriverReading,
    GpuFacts,
    GpuProcess,
    GpuSample,
    GpuSelection,
    Xid,
)
from profiler.record.record_model import (
    NO_READINGS,
    NOT_MEASURED,
    AverageAndMaximum,
    Container,
    Distribution,
    Gpu,
    GpuIdle,
    Record,
)
from tests.fakes import START_NS, seconds
from tests.gpu_runs import advice_on
from tests.values import present

MIB = 1024 * 1024
FACTS = GpuFacts(uuid="GPU-a", index=0, name="NVIDIA A10G")
OTHER = GpuFacts(uuid="GPU-b", index=1)


def at_each_second(*samples: GpuSample) -> GpuUsage:
    usage = GpuUsage(seconds(1))
    for second, sample in enumerate(samples):
        usage.add_reading(
            DriverReading(samples=(sample,)), seconds(second), START_NS + seconds(second)
        )
    return usage


def only(usage: GpuUsage) -> Gpu:
    (found,) = usage.gpus_of_run(None)
    return found.gpu


def live(usage: GpuUsage) -> tuple[GpuSoFar, ...]:
    return usage.latest(GpuSelection(is_known=True, is_assigned=True), with_mps=False)


def reading(**values: Any) -> GpuSample:
    return GpuSample(facts=FACTS, **values)


def add_both(
    usage: GpuUsage, second: float, first_percent: float, other_percent: float | None
) -> None:
    """Add a reading of two GPUs."""
    other = GpuSample(facts=OTHER, utilization_percent=other_percent)
    samples = (reading(utilization_percent=first_percent), other)
    usage.add_reading(DriverReading(samples=samples), seconds(second), START_NS)


def test_a_worked_example() -> None:
    """Five readings, a second apart: the first at the start, each other one counted for the
    second before it.

    Utilization 0, 50, 100, 50: mean 50. Memory 1, 2, 3, 2 GiB: mean 2048 MB, most 3072. Power 100,
    200, 300, 200 W; the driver's energy counter grew from 1,000,000 to 1,650,500 mJ: 650.5 J. The
    power cap (bit 4) held in one of four readings, the thermal slowdown (bit 0x20) in two.
    The first reading, 90 %, 1 GiB, 900 W and all slowed down, stands for no time.
    """
    always = {"memory_size_bytes": 24 * 1024 * MIB, "sm_clock_mhz": 1000, "temperature_celsius": 60}
    columns = {
        "utilization_percent": (90.0, 0.0, 50.0, 100.0, 50.0),
        "memory_used_bytes": tuple(gib * 1024 * MIB for gib in (1, 1, 2, 3, 2)),
        "power_watts": (900.0, 100.0, 200.0, 300.0, 200.0),
        "throttle_reasons": (0x24, 1, 4, 0x20, 0x21),
        "counters": (
            {ENERGY: 1_000_000, "ecc_uncorrected": 7},
            {},
            {},
            {},
            {ENERGY: 1_650_500, "ecc_uncorrected": 9},
        ),
    }
    rows = zip(*columns.values(), strict=True)
    gpu = only(
        at_each_second(*(reading(**always, **dict(zip(columns, row, strict=True))) for row in rows))
    )
    assert gpu.uuid == "GPU-a"
    assert gpu.index == 0
    assert gpu.name == "NVIDIA A10G"
    assert gpu.memory_size_mb == 24 * 1024
    assert present(gpu.utilization_percent).avg == 50
    assert present(gpu.utilization_percent).max == 100
    assert present(gpu.memory_used_mb).avg == 2048
    assert present(gpu.memory_used_mb).max == 3072
    assert present(gpu.power_watts).avg == 200
    assert gpu.energy_joules == 650.5
    assert gpu.throttle_reasons == {"swPowerCap": 25, "swThermalSlowdown": 50}
    assert gpu.ecc_uncorrected == 2
    assert gpu.sm_clock_mhz == Distribution(avg=1000, p50=1000, p95=1000, p99=1000, max=1000)
    assert gpu.temperature_celsius == Distribution(avg=60, p50=60, p95=60, p99=60, max=60)


def test_gpm_is_weighted_with_the_time_between_its_samples_and_bytes_are_summed() -> None:
    """60 % over 1 s and 90 % over 2 s: mean 80. The reading without a pair counts for nothing."""
    usage = at_each_second(
        reading(),
        reading(
            sm_active_percent=60.0,
            amounts={"pcie_rx_bytes": 1000, "nvlink_tx_bytes": 5},
            gpm_ns=seconds(1),
        ),
        reading(utilization_percent=50.0),
        reading(sm_active_percent=90.0, amounts={"pcie_rx_bytes": 500}, gpm_ns=seconds(2)),
    )
    gpu = only(usage)
    assert present(gpu.sm_active_percent).avg == 80
    assert present(gpu.sm_active_percent).max == 90
    assert gpu.tensor_active_percent == NOT_MEASURED
    assert gpu.sm_occupancy_percent == NOT_MEASURED
    assert gpu.dram_active_percent == NOT_MEASURED
    assert gpu.pcie_tx_bytes is None
    assert gpu.pcie_rx_bytes == 1500
    assert gpu.nvlink_tx_bytes == 5
    assert gpu.nvlink_rx_bytes is None
    (latest,) = live(usage)
    assert latest.totals == {"pcie_rx_bytes": 1500, "nvlink_tx_bytes": 5}
    assert latest.sample.sm_active_percent == 90
    for second, percent in ((4, 90), (34, None)):
        usage.add_reading(
            DriverReading(samples=(reading(utilization_percent=1.0),)), seconds(second), START_NS
        )
        assert live(usage)[0].sample.sm_active_percent == percent


def idle_of(
    *percents: float | None, duration_ms: float | None = 10_000
) -> tuple[float | None, float | None]:
    usage = at_each_second(*(reading(utilization_percent=percent) for percent in percents))
    usage.begin_run("batch", 0)
    (found,) = usage.gpus_of_run(None, "batch", duration_ms)
    return found.gpu.idle_seconds, found.gpu.idle_percent


def test_idle_time_is_what_the_readings_leave_of_the_time_before_them() -> None:
    assert idle_of(0, 0, 0.5, 0, 100) == (2.995, 29.95)
    assert idle_of(90, 90) == (0.1, 1)
    assert idle_of(0, 0, duration_ms=None) == (1, 100)  # of the time so far
    assert idle_of(0, 0, 0, duration_ms=1500) == (1.5, 100)  # never more than the run
    # What was not read is not idle.
    assert idle_of(0, None, 0, None) == (1, 10)
    assert idle_of(0) == idle_of(None, None) == (None, None)
    # A gap without readings is idle for two intervals at most.
    usage = GpuUsage(seconds(1))
    for second, span in ((0, 0), (1, 1), (100, 2)):
        sample = reading(utilization_percent=0.0, kernel_percent=0.0, gpm_ns=seconds(span))
        usage.add_reading(DriverReading(samples=(sample,)), seconds(second), START_NS)
    (latest,) = live(usage)
    assert (latest.idle_seconds, latest.known_seconds) == (3, 3)


def test_the_time_before_the_run_is_not_idle_time_of_the_run() -> None:
    """The monitor runs for 60 s before the batch starts, which it notices 8 s later."""
    usage = at_each_second(*(reading(utilization_percent=0.0) for _ in range(61)))
    for second in range(61, 71):
        usage.add_reading(
            DriverReading(samples=(reading(utilization_percent=0.0),)), seconds(second), START_NS
        )
        if second == 68:
            usage.begin_run("batch", seconds(60))
    usage.begin_run("batch", seconds(70))
    assert [one.gpu.idle_seconds for one in usage.gpus_of_run(None, "batch", 10_000)] == [10]
    # Prometheus has no mark for an estimate.
    assert [gpu.idle_seconds for gpu in live(usage)] == [None]


def test_the_numbers_of_a_run_are_those_between_its_start_and_its_end() -> None:
    """A monitor of an instance sees one batch for 1,000 s and then another one for a minute, whose
    start it notices 3 s later, and whose end 13 s later, when another program uses the GPU.
    """
    usage = GpuUsage(seconds(1))
    usage.begin_run("first", 0)
    millijoules = 0
    xids = {500: 31, 1061: 43, 1064: 79}
    for second in range(1074):
        is_first = second <= 1000
        is_second = 1000 < second <= 1060
        watts = 60 if is_second else 300
        millijoules += watts * 1000
        sample = reading(
            utilization_percent=100.0 if is_first else 10.0 if is_second else 0.0,
            memory_used_bytes=(20 if is_first else 1) * 1024 * MIB,
            power_watts=float(watts),
            throttle_reasons=4 if is_first else 0,
            amounts={"pcie_rx_bytes": 9000 if is_first else 10},
            gpm_ns=seconds(1),
            counters={ENERGY: millijoules} if second % 30 == 0 else {},
        )
        errors = tuple(Xid("GPU-a", xids[second]) for _ in range(second in xids))
        usage.add_reading(DriverReading(samples=(sample,), xids=errors), seconds(second), START_NS)
        if second == 1003:
            usage.begin_run("second", seconds(1000))
            usage.forget("first")
    (found,) = usage.gpus_of_run(None, "second", 60_000, seconds(1060))
    gpu = found.gpu
    assert gpu.utilization_percent == Distribution(avg=10, p50=10, p95=10, p99=10, max=10)
    assert present(gpu.memory_used_mb).max == 1024
    assert present(gpu.power_watts).max == 60
    assert gpu.energy_joules == 60 * 60
    assert gpu.throttle_reasons == {}
    assert gpu.pcie_rx_bytes == 60 * 10
    assert gpu.xids == (43,)  # the first reading after the end has it


def test_a_run_without_a_reading_has_no_numbers() -> None:
    usage = at_each_second(*(reading(utilization_percent=50.0) for _ in range(60)))
    usage.begin_run("batch", seconds(59.2))
    (found,) = usage.gpus_of_run(None, "batch", 500, seconds(59.7))
    gpu = found.gpu
    assert gpu.uuid == "GPU-a"
    assert gpu.utilization_percent == NOT_MEASURED
    assert gpu.energy_joules is None


def test_gpus_are_idle_together_while_each_of_them_was_read_as_idle() -> None:
    usage = GpuUsage(seconds(1))
    for second, other_percent in enumerate([0.0, 0.0, 7.0, 0.0]):
        add_both(usage, second, 0.0, other_percent)
    # 7 % of the second before its reading; of the rest, all is idle.
    assert usage.idle_ns("", None, 0, seconds(10)) == seconds(1 + 0.93 + 1)
    assert usage.idle_ns("", None, seconds(0.5), seconds(1)) == seconds(0.5)
    assert usage.idle_ns("", None, seconds(4), seconds(10)) == 0
    # Each batch has the idle time of its own GPUs.
    usage = GpuUsage(seconds(1))
    for second in range(4):
        add_both(usage, second, 0.0, 50.0)
    found = [usage.idle_ns("", selectors, 0, seconds(9)) for selectors in ({"GPU-a"}, {"GPU-b"})]
    assert found == [seconds(3), seconds(1.5)]
    assert usage.idle_ns("", {"GPU-zz"}, 0, seconds(9)) == 0


def test_the_idle_time_of_a_task_is_the_mean_of_its_gpus() -> None:
    """The idle time of a task is the mean of its GPUs and its share of the price."""
    gpus = (
        Gpu(uuid="a", idle_seconds=1800.0, idle_percent=25.0),
        Gpu(uuid="b", idle_seconds=5400.0, idle_percent=75.0),
    )
    two_hours_ms = 7_200_000
    assert gpu_idle(gpus, two_hours_ms, 12.0) == GpuIdle(percent=50, gpu_hours=2, usd=12)
    assert gpu_idle(gpus[:1], two_hours_ms, None) == GpuIdle(percent=25, gpu_hours=0.5)
    assert gpu_idle((*gpus, Gpu(uuid="c")), two_hours_ms, 12.0) is None, "of one it is unknown"
    assert gpu_idle((), two_hours_ms, 12.0) is None
    assert gpu_idle(gpus, None, 12.0) is None
    second = Gpu(uuid="a", idle_seconds=1.0, idle_percent=0.014)
    assert present(gpu_idle((second,), two_hours_ms, None)).gpu_hours == 0.000278


def test_a_single_reading_has_numbers_and_no_energy() -> None:
    """A single reading has numbers and no energy and the latest is what the last reading found."""
    usage = at_each_second(reading(utilization_percent=40.0, power_watts=150.0, throttle_reasons=4))
    gpu = only(usage)
    assert gpu.utilization_percent == Distribution(avg=40, p50=40, p95=40, p99=40, max=40)
    assert gpu.throttle_reasons == {"swPowerCap": 100}
    assert gpu.energy_joules is None
    (latest,) = live(usage)
    assert set(present(latest.throttled_seconds).values()) == {0}
    first = reading(power_watts=100.0, throttle_reasons=0x24, counters={ENERGY: 5_000})
    (latest,) = live(at_each_second(first, reading(utilization_percent=30.0, throttle_reasons=4)))
    assert latest.sample.utilization_percent == 30
    assert latest.sample.power_watts is None
    assert latest.energy_joules == 5
    assert latest.throttled_seconds == {
        **dict.fromkeys(THROTTLE_REASONS.values(), 0),
        "swPowerCap": 1,
    }


def test_energy_is_power_by_time_without_a_counter() -> None:
    """Energy is power by time without a counter and a reloaded driver counts on from zero."""
    usage = at_each_second(*(reading(power_watts=watts) for watts in (900.0, 100.0, 300.0)))
    assert [only(usage).energy_joules, *(one.energy_joules for one in live(usage))] == [
        400,
        400,
    ]
    energies = (5_000_000, 5_100_000, 20_000, 50_000)
    assert (
        only(at_each_second(*(reading(counters={ENERGY: one}) for one in energies))).energy_joules
        == 100 + 50
    )
    (latest,) = live(at_each_second(*(reading(counters={ENERGY: one}) for one in (5_000_000, 0))))
    assert latest.energy_joules == 5000


def test_xids_are_kept_once_each() -> None:
    """Xids are kept once each and those without a GPU and a lost GPU are noted."""
    usage = at_each_second(reading(utilization_percent=70.0))
    for code in (31, 43, 31):
        usage.add_reading(DriverReading(xids=(Xid("GPU-a", code),)), seconds(5), START_NS)
    usage.add_reading(
        DriverReading(xids=(Xid(None, 79), Xid("GPU-unheard", 79))), seconds(6), START_NS
    )
    assert only(usage).xids == (31, 43)
    unidentified = "A GPU that could not be identified had the driver errors (Xid) 79."
    assert usage.gap_and_error_sentences() == (unidentified,)
    for second in (9, 99):
        usage.add_reading(
            DriverReading(lost=(FACTS,)), seconds(second), START_NS + seconds(second - 9)
        )
    assert only(usage).utilization_percent != NOT_MEASURED
    assert usage.gap_and_error_sentences() == (
        "GPU 0 (GPU-a) was lost by its driver at 2025-11-20T00:53:20.000Z.",
        unidentified,
    )
    for second in (100, 101):
        back = DriverReading(samples=(reading(utilization_percent=70.0),))
        usage.add_reading(back, seconds(second), START_NS + seconds(second - 9))
    assert usage.gap_and_error_sentences()[0] == (
        "GPU 0 (GPU-a) was lost by its driver at 2025-11-20T00:53:20.000Z. "
        "It answered again at 2025-11-20T00:54:51.000Z."
    )
    usage.add_reading(DriverReading(lost=(FACTS,)), seconds(102), START_NS + seconds(102))
    assert (
        usage.gap_and_error_sentences()[0]
        == "GPU 0 (GPU-a) was lost by its driver at 2025-11-20T00:53:20.000Z."
    )


@pytest.mark.parametrize("sees_all", [True, False])
def test_a_process_that_ends_while_it_is_looked_up_stops_no_quick_list(*, sees_all: bool) -> None:
    """In a container, an id may be another container's, and no list ever tells."""
    usage = GpuUsage(seconds(1), Descendants(1, lambda _pid: None, sees_all=sees_all))
    usage.add_reading(DriverReading(samples=(reading(),)), seconds(0), START_NS)
    usage.begin_run("", seconds(0))
    assert usage.may_match
    ended = reading(processes=(GpuProcess(4711, MIB),), memory_used_bytes=MIB)
    usage.add_quick([ended], seconds(0.1))
    assert usage.may_match is sees_all


def taken(
    usage: GpuUsage, selectors: Collection[str] | None = None, batch: str = ""
) -> DeviceReadings:
    readings = DeviceReadings()
    usage.take_readings(batch, selectors, readings)
    return readings


def test_each_batch_takes_the_readings_of_its_own_gpus_since_its_own_last_call() -> None:
    usage = GpuUsage(seconds(1))

    def percent(uuid: str, batch: str) -> AverageAndMaximum:
        return taken(usage, {uuid}, batch).gpu_percent.average_and_maximum()

    add_both(usage, 0, 10, 90)
    assert percent("GPU-a", "x") == AverageAndMaximum(avg=10, max=10)
    assert percent("GPU-b", "y") == NO_READINGS  # it is new, and the other batch took the readings
    add_both(usage, 1, 20, 80)
    assert percent("GPU-a", "x") == AverageAndMaximum(avg=20, max=20)
    add_both(usage, 2, 30, 70)
    assert percent("GPU-a", "x") == AverageAndMaximum(avg=30, max=30)
    assert percent("GPU-b", "y") == AverageAndMaximum(avg=75, max=80)
    usage.forget("x")
    add_both(usage, 3, 40, 60)
    assert percent("GPU-b", "y") == AverageAndMaximum(avg=60, max=60)


def used(percent: float | None, source: str | None = "driver-samples") -> Gpu:
    utilization = NOT_MEASURED if percent is None else Distribution(max=percent)
    return Gpu(
        uuid="GPU",
        utilization_percent=utilization,
        utilization_source=source,
        memory_used_mb=Distribution(max=0),
    )


def advice_on_all(*gpus: Gpu) -> list[str]:
    return advice_on(
        Record(task_id="1", container=Container(name="batch"), status="success", gpus=gpus)
    )


def test_idle_gpus_are_named_in_the_advice() -> None:
    assert advice_on_all() == []
    assert advice_on_all(used(5), used(None)) == []
    (advice,) = advice_on_all(used(0), used(0))
    assert advice.startswith("No GPU was ever used: run the task without one")
    assert advice_on_all(used(0), used(90), used(0)) == [
        "2 of 3 GPUs were never used: request 1, or spread the work."
    ]
    for source in ("once-a-second", None):
        assert advice_on_all(used(0, source)) == [], "between its readings it may have used it"


def test_recent_readings_are_those_of_the_selected_gpus() -> None:
    """Recent readings are those of the selected GPUs since the last call and their memory is added."""
    usage = GpuUsage(seconds(1))
    other = GpuSample(facts=OTHER, utilization_percent=99.0, memory_used_bytes=5000)
    for second, percent in enumerate((10.0, 30.0)):
        first = reading(utilization_percent=percent, memory_used_bytes=int(percent))
        usage.add_reading(DriverReading(samples=(first, other)), seconds(second), START_NS)
    found = taken(usage, {"GPU-a"})
    assert (
        found.gpu_percent.average_and_maximum()
        == found.gpu_memory_bytes.average_and_maximum()
        == AverageAndMaximum(avg=20, max=30)
    )
    assert found.gpus_memory_bytes == 30
    nothing = taken(usage)
    assert nothing.gpu_percent.average_and_maximum() == NO_READINGS
    assert nothing.gpus_memory_bytes is None
    usage.add_reading(
        DriverReading(samples=(reading(memory_used_bytes=100), other)), seconds(3), START_NS
    )
    again = taken(usage)
    assert again.gpu_percent.average_and_maximum() == AverageAndMaximum(avg=99, max=99)
    assert again.gpus_memory_bytes == 5100
    usage.add_reading(DriverReading(samples=(other,)), seconds(4), START_NS)
    assert taken(usage).gpus_memory_bytes == 5000


class _CountingOwners(NoOwners):
    """Notes each search for the processes of a batch."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def owner_of(self, batch: str) -> Owns | None:
        self.asked.append(batch)
        return None


def test_the_processes_of_a_run_are_looked_for_once_for_all_its_gpus() -> None:
    owners = _CountingOwners()
    usage = GpuUsage(seconds(1), owners)
    add_both(usage, 0, 0, 0)
    usage.begin_run("run", seconds(0))
    assert owners.asked == ["run"]
    usage.begin_run("run", seconds(0))  # they may be visible now
    assert owners.asked == ["run", "run"]


def test_nothing_waits_for_a_lost_gpu_or_for_one_whose_use_the_driver_does_not_say() -> None:
    usage = at_each_second(reading(utilization_percent=5), reading(utilization_percent=5))
    add_both(usage, 2, 5, None)
    add_both(usage, 3, 5, None)
    assert usage.known_until_ns() == seconds(3)
    usage.add_reading(
        DriverReading(samples=(GpuSample(facts=OTHER),), lost=(FACTS,)), seconds(9), START_NS
    )
    assert usage.known_until_ns() == seconds(9)


def test_the_first_reading_of_a_gpu_does_not_say_its_use_yet() -> None:
    usage = at_each_second(reading(utilization_percent=5))
    assert usage.known_until_ns() == 0
