"""The GPU collector: its thread, its warnings, and which GPUs belong to the batch."""

import threading

import pytest
from msgspec.structs import replace

from profiler.collectors.collector import Collectors
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuFacts, GpuScope, GpuSelection
from profiler.core.timestamps import format_ms
from profiler.readers import Unavailable
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    NOT_MEASURED,
    Container,
    Gpu,
    Metrics,
    Monitor,
    Record,
    Sampling,
)
from profiler.sizing.advice import with_recommendation
from profiler.sizing.prices import PriceOverrides
from tests.cases import each_case
from tests.collected import with_collected
from tests.fake_nvml import MIB, FakeGpu, FakeNvml
from tests.fakes import FakeClock, FakeLog, seconds
from tests.scripted_gpus import ScriptedSource, reading
from tests.values import present
from tools.waiting import LIMIT_SECONDS, wait_until

BATCH = ContainerMetadata(name="batch", docker_id="b" * 64)
RECORD = Record(
    task_id="1",
    container=Container(name="batch"),
    status="success",
    sampling=Sampling(),
    monitor=Monitor(),
)


class CollectedGpus:
    def __init__(
        self, source: NvmlSource, *, is_required: bool = False, scope: GpuScope | None = None
    ) -> None:
        self.clock = FakeClock()
        self.log = FakeLog()
        scope = scope or GpuScope(())
        self.collector = GpuCollector(
            source, scope, self.clock, self.log, seconds(1), is_required=is_required, hour_usd=7.2
        )

    def record(self, of: Record = RECORD) -> Record:
        collected = with_collected(of, (self.collector,), BATCH.followed_id)
        return with_recommendation(collected, PriceOverrides(), time="2026-11-20T03:12:45.123Z")

    def ticks(self, count: int) -> None:
        for _ in range(count):
            self.collector.take_reading()
            self.clock.advance(1)

    def warnings(self) -> tuple[str, ...]:
        return present(self.record().monitor).warnings


@pytest.mark.parametrize("gpus", [1, 3])
def test_the_slow_counters_are_read_every_minute_and_on_request(gpus: int) -> None:
    """The slow counters are read at the start, every minute and on request."""
    source = ScriptedSource(reading(*(f"GPU-{index}" for index in range(gpus))))
    fakes = CollectedGpus(source)
    fakes.ticks(121)
    at = [second for second, counters in enumerate(source.counters_read) if counters]
    assert at == [0, 60, 120]
    fakes.collector.take_reading(is_complete=True)
    assert source.counters_read[-1]


def test_the_record_has_the_idle_time_of_the_run_and_its_price() -> None:
    fakes = CollectedGpus(ScriptedSource(reading("GPU-a", "GPU-b")))
    fakes.ticks(1)
    fakes.collector.on_batch_started(replace(BATCH, started_ns=fakes.clock.wall_ns()))
    fakes.ticks(4)
    run = replace(RECORD, metrics=Metrics(duration_ms=10_000))
    idle = present(fakes.record(run).gpu_idle)
    assert idle.percent == 30
    assert idle.gpu_hours == round(2 * 3 / 3600, 6)
    assert idle.usd == round(0.3 * 7.2 / 360, 8)
    assert fakes.record().gpu_idle is None
    of_batch = Collectors(fakes.collector).idle_gpus("", 0)
    assert of_batch.idle_ns(0, fakes.clock.monotonic_ns()) == seconds(4)
    # The report is made after further readings, when the end of the batch is noticed.
    finished_at = format_ms(fakes.clock.wall_ns() - seconds(1))
    ended = replace(run, finished_at=finished_at, metrics=Metrics(duration_ms=3000))
    fakes.ticks(9)
    assert present(fakes.record(ended).gpu_idle) == replace(idle, percent=100)


def test_what_was_read_before_the_start_of_a_batch_is_not_its_own() -> None:
    """The image of the batch is pulled for two minutes while the monitor runs."""
    fakes = CollectedGpus(ScriptedSource(reading("GPU-a")))
    fakes.ticks(120)
    collectors = Collectors(fakes.collector)
    batch = BATCH.followed_id
    assert collectors.take_readings(batch).gpu_percent.weight == 0
    fakes.collector.on_batch_started(replace(BATCH, started_ns=fakes.clock.wall_ns() - seconds(3)))
    assert collectors.take_readings(batch).gpu_percent.weight == 2
    fakes.ticks(1)
    assert collectors.take_readings(batch).gpu_percent.weight == 1


def test_known_gpus_of_the_batch_have_no_scope() -> None:
    """Known GPUs of the batch have no scope and advice and uuids without a GPU are reported."""
    fakes = CollectedGpus(ScriptedSource(reading("GPU-a", "GPU-b")))
    fakes.collector.take_reading()
    record = fakes.record()
    assert [gpu.uuid for gpu in record.gpus] == ["GPU-a", "GPU-b"]
    assert record.gpu_scope == "instance"
    assert record.recommendation == NO_RECOMMENDATION
    assert present(record.sampling).sources == ("nvml",)
    fakes = CollectedGpus(ScriptedSource(reading("GPU-a", "GPU-b")), scope=GpuScope(("GPU-b",)))
    fakes.collector.take_reading()
    record = fakes.record(replace(RECORD, status="success", metrics=Metrics(duration_ms=10_000)))
    assert [gpu.uuid for gpu in record.gpus] == ["GPU-b"]
    assert record.gpu_scope is None
    assert record.recommendation == NO_RECOMMENDATION, (
        "one moment of a second does not show that it was unused"
    )
    fakes = CollectedGpus(ScriptedSource(reading("GPU-a")), scope=GpuScope(("GPU-zz",)))
    fakes.collector.take_reading()
    assert fakes.record().gpus == ()
    assert any("TASK_PROFILER_GPU_UUIDS" in warning for warning in fakes.warnings())


@pytest.mark.parametrize(
    ("value", "uuids"),
    [
        *(
            (" 0, 1 ", ["GPU-p1", "GPU-q1"]),
            ("GPU-q1,GPU-p1", ["GPU-p1", "GPU-q1"]),
            ("none", []),
            ("void", []),
        ),
        *(("all", ["GPU-p1", "GPU-q1", "GPU-r1"]), ("", ["GPU-p1", "GPU-q1", "GPU-r1"])),
    ],
)
def test_the_batchs_gpus_are_found_however_they_are_spelled(value: str, uuids: list[str]) -> None:
    nvml = FakeNvml(FakeGpu("GPU-p1"), FakeGpu("GPU-q1"), FakeGpu("GPU-r1"))
    fakes = CollectedGpus(
        NvmlSource(lambda: nvml.binding, FakeClock()), scope=GpuScope((), lambda _: value)
    )
    fakes.collector.on_batch_started(BATCH)
    fakes.collector.take_reading()
    record = fakes.record()
    assert [gpu.uuid for gpu in record.gpus] == uuids
    assert record.gpu_scope == (None if value else "instance")
    # The batch's processes are not visible here.
    assert len(fakes.warnings()) == (0 if value else 1)


_BROKEN = 2**32 - 1


def gpu_of(
    *seconds_of_values: dict[str, int], has_begun: bool = False
) -> tuple[Gpu, tuple[str, ...]]:
    """The record's GPU and warnings after a reading of each of the values, a second apart.

    ``has_begun``: the batch's start is known.
    """
    gpu = FakeGpu()
    nvml = FakeNvml(gpu)
    clock = FakeClock()
    source = NvmlSource(lambda: nvml.binding, clock)
    collector = GpuCollector(source, GpuScope(()), clock, FakeLog(), seconds(1), is_required=False)
    if has_begun:
        collector.on_batch_started(replace(BATCH, started_ns=clock.wall_ns()))
    for values in (seconds_of_values[0], *seconds_of_values):
        for name, value in values.items():
            setattr(gpu, name, value)
        collector.take_reading()
        clock.advance(1)
    run = replace(RECORD, metrics=Metrics(duration_ms=1000 * len(seconds_of_values)))
    record = with_collected(run, (collector,), BATCH.followed_id)
    (found,) = record.gpus
    return found, present(record.monitor).warnings


@each_case(
    ("name", "good", "bad", "field", "value"),
    [
        ("utilization_percent", 40, _BROKEN, "utilization_percent", 40),
        ("utilization_percent", 40, 686_103, "utilization_percent", 40),
        ("utilization_percent", 40, 150, "utilization_percent", 40),
        ("power_milliwatts", 100_000, _BROKEN, "power_watts", 100),
        ("power_milliwatts", 100_000, 5_000_001, "power_watts", 100),
        ("celsius", 60, 511, "temperature_celsius", 60),
        ("celsius", 60, 200, "temperature_celsius", 60),
        ("clock_mhz", 1410, _BROKEN, "sm_clock_mhz", 1410),
        ("used_bytes", 500 * MIB, 24_001 * MIB, "memory_used_mb", 500),
        ("used_bytes", 500 * MIB, 2**64 - 1, "memory_used_mb", 500),
        ("total_bytes", 24_000 * MIB, 2**64 - 1, "memory_used_mb", 0),
    ],
)
def test_an_impossible_reading_is_missing_and_counted(
    name: str, good: int, bad: int, field: str, value: float
) -> None:
    gpu, warnings = gpu_of(*({name: number} for number in (good, bad, bad, good, good)))
    assert (getattr(gpu, field).avg, getattr(gpu, field).max) == (value, value)
    assert warnings == ("The GPU driver reported 2 values that cannot be: left out.",)
    gpu, warnings = gpu_of(*[{name: bad}] * 3)
    assert getattr(gpu, field) == NOT_MEASURED
    assert warnings == ("The GPU driver reported 4 values that cannot be: left out.",)


@pytest.mark.parametrize("reasons", [_BROKEN, 2**64 - 1])
def test_a_mask_of_all_reasons_is_none(reasons: int) -> None:
    """A GPU is not idle, slowed down by heat and by its power cap at once."""
    gpu, warnings = gpu_of({"reasons": 4}, *[{"reasons": reasons}] * 2, {"reasons": 4})
    assert gpu.throttle_reasons == {"swPowerCap": 100}
    assert warnings == ("The GPU driver reported 2 values that cannot be: left out.",)
    gpu, _ = gpu_of({"reasons": 4 + 1024}, {"reasons": 4 + 1024})  # of a newer driver
    assert gpu.throttle_reasons == {"swPowerCap": 100}


def test_a_memory_of_nothing_is_no_memory() -> None:
    gpu, _ = gpu_of(*[{"used_bytes": 0, "total_bytes": 0}] * 3)
    assert gpu.memory_used_mb == NOT_MEASURED
    assert gpu.memory_size_mb is None


def test_an_impossible_utilization_leaves_an_idle_gpu_idle() -> None:
    numbers = (0, 0, 686_103, 0, 0)
    readings = [{"utilization_percent": number} for number in numbers]
    gpu, _ = gpu_of(*readings, has_begun=True)
    assert gpu.idle_percent == 100
    assert gpu.idle_seconds == 4
    assert present(gpu.utilization_percent).max == 0


@pytest.mark.parametrize(
    ("name", "number", "field", "value"),
    [
        ("utilization_percent", 100, "utilization_percent", 100),
        ("utilization_percent", 102, "utilization_percent", 100),
        ("power_milliwatts", 1_400_000, "power_watts", 1400),
        ("celsius", 105, "temperature_celsius", 105),
        ("used_bytes", 24_000 * MIB, "memory_used_mb", 24_000),
        ("used_bytes", 0, "memory_used_mb", 0),
    ],
)
def test_large_readings_and_zeros_count(name: str, number: int, field: str, value: float) -> None:
    gpu, warnings = gpu_of(*[{name: number}] * 3)
    assert (getattr(gpu, field).avg, getattr(gpu, field).max) == (value, value)
    assert warnings == ()


@pytest.mark.parametrize(
    ("millijoules", "joules", "impossible"),
    [
        ((5_000_000, 5_900_000, 6_500_000), 1500, 0),
        ((5_000_000, 4_999_999, 6_500_000), 1500, 1),  # it went back
        ((5_000_000, 0, 0, 6_500_000), 1500, 2),
        ((5_000_000, 2**64 - 1, 6_500_000), 1500, 1),
        ((5_000_000, 20_000, 50_000, 90_000), 90, 1),  # the driver was loaded again
    ],
)
def test_energy_that_goes_back_or_leaps_is_missing(
    millijoules: tuple[int, ...], joules: float, impossible: int
) -> None:
    steps: list[dict[str, int]] = []
    for number in millijoules:
        steps.extend([{"energy_millijoules": number}, *([{}] * 59)])
    gpu, warnings = gpu_of(*steps[1:-59])  # the last reading has the counter
    assert gpu.energy_joules == joules
    assert len(warnings) == min(impossible, 1)


def test_a_machine_without_a_gpu_is_silent_and_an_unreadable_gpu_is_noted() -> None:
    """A machine without a GPU is silent and a GPU that cannot be read is noted in the record alone."""
    source = ScriptedSource(Unavailable("fake error 999"))
    fakes = CollectedGpus(source)
    fakes.collector.take_reading()
    assert fakes.warnings() == ("There is a GPU that cannot be read: fake error 999.",)
    source.is_driver_missing = True
    fakes = CollectedGpus(source)
    fakes.collector.take_reading()
    assert fakes.record() == RECORD
    assert fakes.log.lines == []
    assert fakes.collector.startup_error is None


def test_a_missing_required_gpu_is_reported_once_in_the_log_and_in_the_record() -> None:
    source = ScriptedSource(Unavailable("no GPU is visible here"))
    source.is_driver_missing = True
    fakes = CollectedGpus(source, is_required=True)
    fakes.ticks(3)
    (warning,) = fakes.log.events("warning")
    assert fakes.warnings() == (warning,)
    assert fakes.collector.startup_error == warning
    assert "no GPU is visible here" in warning
    assert "NVIDIA_VISIBLE_DEVICES=all" in warning
    assert "on your own machine, install NVIDIA's driver" in warning


def test_a_driver_that_stays_unreadable_is_told_with_since_when_until_it_works_again() -> None:
    mismatch = Unavailable("Driver/library version mismatch (NVML error 18)")
    fakes = CollectedGpus(
        ScriptedSource(
            reading("GPU-a"),
            mismatch,
            Unavailable("another reason"),
            reading("GPU-a"),
            reading("GPU-a"),
        )
    )
    fakes.ticks(1)
    assert fakes.warnings() == ()
    fakes.ticks(2)
    (warning,) = fakes.warnings()
    assert warning == (
        "NVML could not be read since 2025-11-20T00:53:21.000Z, and the GPUs' numbers end there: "
        "Driver/library version mismatch (NVML error 18)."
    )
    fakes.collector.take_reading()
    assert fakes.warnings() == ()
    assert len(fakes.log.events("warning")) == 1
    assert len(fakes.log.events("info")) == 1
    assert len(fakes.record().gpus) == 1


def test_a_time_of_the_run_without_readings_is_told_after_it() -> None:
    """A gap of two seconds leaves no number out."""
    lost = Unavailable("Uninitialized (NVML error 1)")
    found = reading("GPU-a")
    answers: list[DriverReading | Unavailable] = [found, lost, lost, found, *[lost] * 6, found]
    fakes = CollectedGpus(ScriptedSource(*answers))
    fakes.ticks(len(answers))
    (warning,) = fakes.warnings()
    assert warning == (
        "NVML could not be read for 6.0 s from 2025-11-20T00:53:24.000Z on: "
        "Uninitialized (NVML error 1)."
    )
    for started, finished in (("31", "59"), ("20", "23")):
        other = replace(
            RECORD,
            started_at=f"2025-11-20T00:53:{started}.000Z",
            finished_at=f"2025-11-20T00:53:{finished}.000Z",
        )
        assert "NVML" not in "".join(present(fakes.record(other).monitor).warnings)


def test_a_gpu_that_is_missing_after_the_driver_was_changed_is_told_as_lost() -> None:
    gpus, clock = (FakeGpu("GPU-a"), FakeGpu("GPU-b")), FakeClock()
    nvml = FakeNvml(*gpus)
    fakes = CollectedGpus(ScriptedSource(reading()))
    collector = fakes.collector = GpuCollector(
        NvmlSource(lambda: nvml.binding, clock),
        GpuScope(()),
        clock,
        fakes.log,
        seconds(1),
        is_required=False,
    )
    collector.take_reading()
    nvml.show(gpus[0])
    nvml.fail("nvmlDeviceGetMemoryInfo_v2", 1)
    for _ in range(3):
        collector.take_reading()
        clock.advance(1)
    assert fakes.warnings() == (
        "GPU 1 (GPU-b) was lost by its driver at 2025-11-20T00:53:21.000Z.",
    )
    assert [gpu.sample.facts.uuid for gpu in present(collector.latest()).gpus] == ["GPU-a"]


def start_reading(fakes: CollectedGpus) -> None:
    """Start the collector and wait for its thread's first reading."""
    fakes.collector.start()
    wait_until(lambda: fakes.collector.has_data, "the first reading")


def start_hanging(fakes: CollectedGpus, source: ScriptedSource) -> None:
    """Start the collector with a driver that hangs until it is released."""
    source.release.clear()
    source.called.clear()
    fakes.collector.start()
    assert source.called.wait(LIMIT_SECONDS)


def test_a_driver_that_hangs_is_reported_until_it_answers_and_delays_nothing() -> None:
    source = ScriptedSource(reading("GPU-a"))
    fakes = CollectedGpus(source)
    fakes.collector.take_reading()
    start_hanging(fakes, source)
    assert fakes.warnings() == ()
    fakes.clock.advance(35)
    during = fakes.warnings()
    fakes.collector.final_reading(0.01)
    at_end = fakes.warnings()
    assert during == at_end
    assert during[0].startswith("The GPU driver does not answer;")
    assert len(fakes.record().gpus) == 1
    source.release.set()
    fakes.collector.final_reading(LIMIT_SECONDS)
    assert fakes.warnings() == ()
    fakes.collector.stop(LIMIT_SECONDS)


def test_a_driver_that_cannot_be_closed_does_not_delay_the_stop() -> None:
    class HangingClose(ScriptedSource):
        def close(self) -> None:
            self.closing.set()
            self.release.wait()

        closing = threading.Event()

    source = HangingClose(reading("GPU-a"))
    fakes = CollectedGpus(source)
    start_reading(fakes)
    source.release.clear()
    fakes.collector.stop(600)  # the test has a timeout
    assert source.closing.wait(LIMIT_SECONDS)
    source.release.set()


def test_a_final_reading_has_all_counters_and_stopping_closes_the_source() -> None:
    source = ScriptedSource(reading("GPU-a"))
    fakes = CollectedGpus(source)
    fakes.collector.take_reading()
    fakes.collector.start()
    fakes.collector.final_reading(LIMIT_SECONDS)
    assert any(source.counters_read[1:])
    fakes.collector.stop(LIMIT_SECONDS)
    wait_until(lambda: source.closed, "the end of the thread")
    fakes.collector.stop(LIMIT_SECONDS)


def test_a_missing_required_gpu_is_reported_also_of_a_short_run() -> None:
    """A missing required GPU is reported even if the run ends before the first reading."""
    source = ScriptedSource(Unavailable("no GPU is visible here"))
    fakes = CollectedGpus(source, is_required=True)
    start_hanging(fakes, source)
    threading.Timer(0.05, source.release.set).start()
    fakes.collector.final_reading(LIMIT_SECONDS)
    assert "no GPU can be read (no GPU is visible here)" in fakes.warnings()[0]
    fakes.collector.stop(LIMIT_SECONDS)
    assert fakes.log.events("warning") == [fakes.collector.startup_error]


WHOLE = tuple(GpuFacts(uuid=f"GPU-{letter}", index=index) for index, letter in enumerate("abcd"))


@each_case(
    ("value", "visible", "meant"),
    [
        ("all", WHOLE, None),
        ("2", WHOLE, {"GPU-c"}),
        ("1,GPU-d", WHOLE, {"GPU-b", "GPU-d"}),
        ("0,1,2,3", WHOLE, None),
        # In a container, where the runtime assigns new indices.
        ("3", WHOLE[:1], None),
        ("1,2", WHOLE[:2], None),
        # UUIDs do not change.
        ("GPU-c", WHOLE[:1], "unknown"),
        ("GPU-c,GPU-a", WHOLE[:1], {"GPU-a"}),
        ("7,8", WHOLE[:1], "unknown"),
        ("none", WHOLE, "unknown"),
        ("void", WHOLE, "unknown"),
        (" ", WHOLE, "unknown"),
    ],
)
def test_what_the_own_environment_says_depends_on_what_is_visible(
    value: str, visible: tuple[GpuFacts, ...], meant: set[str] | str | None
) -> None:
    choice = GpuScope((), own=value).selection_for("batch", visible)
    if isinstance(meant, str):
        assert choice == GpuSelection()
    else:
        assert choice.is_known is True
        assert choice.selectors == (None if meant is None else frozenset(meant))


def test_live_readings_have_the_gpus_of_all() -> None:
    """The batch's processes are read until the selection is known and live readings have the GPUs
    of all.
    """
    asked: list[str] = []
    answers: dict[str, str] = {"c": "GPU-c"}

    def ask(docker_id: str) -> str | None:
        asked.append(docker_id)
        return answers.get(docker_id)

    def known(*uuids: str, is_assigned: bool = False) -> GpuSelection:
        return GpuSelection(selectors=frozenset(uuids), is_known=True, is_assigned=is_assigned)

    scope = GpuScope((), ask)
    scope.discover_selection(BATCH)
    assert (
        scope.selection_for(BATCH.followed_id, WHOLE)
        == scope.selection_for_all(WHOLE)
        == GpuSelection()
    )
    answers["b" * 64] = "GPU-a,GPU-b"
    scope.discover_selection(BATCH)
    scope.discover_selection(BATCH)
    own = known("GPU-a", "GPU-b", is_assigned=True)
    assert scope.selection_for(BATCH.followed_id, WHOLE) == own
    assert scope.selection_for("another", WHOLE) == GpuSelection()
    assert len(asked) == 2
    scope.discover_selection(replace(BATCH, docker_id="c"))  # of another task
    of_both = known("GPU-a", "GPU-b", "GPU-c", is_assigned=True)
    assert scope.selection_for_all(WHOLE) == of_both
    of_a_person = known("GPU-x", is_assigned=True)
    assert GpuScope(("GPU-x",)).selection_for_all(WHOLE) == of_a_person


def test_an_error_of_the_collector_is_named_and_checkpoints_have_no_gpus() -> None:
    """An answer of another type than the binding documents, for example."""
    fakes = CollectedGpus(
        ScriptedSource(reading("GPU-a", percent=50), TypeError("unsupported operand"))
    )
    start_reading(fakes)
    fakes.collector.final_reading(LIMIT_SECONDS)
    fakes.collector.stop(LIMIT_SECONDS)
    fakes.clock.advance(60)
    assert len(fakes.record().gpus) == 1
    (warning,) = fakes.warnings()
    assert "The collection of GPU values stopped at 2025-" in warning
    assert "(TypeError: unsupported operand)" in warning
    checkpoint = fakes.record(replace(RECORD, status="running"))
    assert checkpoint == replace(RECORD, status="running", monitor=Monitor(warnings=(warning,)))
    assert fakes.collector.latest() is None
    fakes.collector.final_reading(3600)
    assert fakes.warnings() == (warning,)
