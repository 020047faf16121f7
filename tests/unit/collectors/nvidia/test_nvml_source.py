"""The NVML source and GPM on a fake driver: every row of the table of errors, and what is read."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from profiler.collectors.nvidia import is_driver_present
from profiler.collectors.nvidia.driver_samples import DriverSamples
from profiler.collectors.nvidia.nvml_calls import NOT_INSTALLED, load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuSample, Xid, match_uuids
from profiler.readers import Unavailable
from tests.cases import each_case
from tests.fake_nvml import COMPUTING, DRAWING, GPM_NUMBERS, MIB, OF_MPS, FakeGpu, FakeNvml
from tests.fakes import FakeClock, seconds

# Those of the record: that any kernel ran is no value of its own.
METRICS = tuple(name for name in GPM_NUMBERS if name != "any_kernel")
FIELDS = {
    "nvmlDeviceGetUtilizationRates": "utilization_percent",
    "nvmlDeviceGetPowerUsage": "power_watts",
    "nvmlDeviceGetClockInfo": "sm_clock_mhz",
    "nvmlDeviceGetTemperature": "temperature_celsius",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "throttle_reasons",
    "nvmlDeviceGetTotalEnergyConsumption": "energy_millijoules",
    "nvmlDeviceGetTotalEccErrors": "ecc_uncorrected",
}


def value_of(sample: GpuSample, field: str) -> float | None:
    """The value of a field, or of a counter."""
    value: float | None = {**asdict(sample), **sample.counters, **sample.amounts}.get(field)
    return value


class Machine:
    """A source over a fake driver."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.clock = FakeClock()
        self.gpus = gpus
        self.nvml = FakeNvml(*gpus)
        self.source = NvmlSource(lambda: self.nvml.binding, self.clock)

    def read(self, *, counters: bool = False) -> DriverReading:
        reading = self.source.read_all_gpus(counters=counters)
        assert isinstance(reading, DriverReading), reading
        return reading

    def sample(self, *, counters: bool = False) -> GpuSample:
        (sample,) = self.read(counters=counters).samples
        return sample

    def refused(self) -> str:
        reading = self.source.read_all_gpus(counters=False)
        assert isinstance(reading, Unavailable)
        return reading.reason


def test_a_reading_has_all_cheap_fields_in_the_records_units() -> None:
    """A reading has all cheap fields in the record's units and the slow counters on request."""
    gpu = FakeGpu(
        utilization_percent=98,
        used_bytes=11_250 * MIB,
        power_milliwatts=690_500,
        clock_mhz=1980,
        celsius=61,
    )
    gpu.energy_millijoules, gpu.ecc_uncorrected = 7, 2
    machine = Machine(gpu)
    sample = machine.sample()
    assert sample.facts.uuid == "GPU-0"
    assert sample.facts.index == 0
    assert sample.facts.name == "NVIDIA A10G"
    assert sample.utilization_percent == 98
    assert sample.memory_used_bytes == 11_250 * MIB
    assert sample.memory_size_bytes == 24_000 * MIB
    assert sample.power_watts == 690.5
    assert sample.sm_clock_mhz == 1980
    assert sample.temperature_celsius == 61
    assert sample.counters == {}
    assert machine.nvml.calls["nvmlDeviceGetTotalEnergyConsumption"] == 0
    sample = machine.sample(counters=True)
    assert sample.counters == {"energy_millijoules": 7, "ecc_uncorrected": 2}


def test_the_driver_is_started_once_handles_are_kept_and_closing_gives_it_back() -> None:
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    machine.source.close()
    for _ in range(100):
        machine.read()
    assert machine.nvml.starts == 1
    assert machine.nvml.calls["nvmlDeviceGetHandleByIndex"] == 2
    machine.source.close()
    assert machine.nvml.is_open is False
    assert machine.nvml.calls["nvmlEventSetFree"] == 1


@each_case("value", [3, 13])
@each_case(("function", "name"), FIELDS.items())
def test_an_unsupported_field_is_absent_and_not_read_again(
    function: str, name: str, value: int
) -> None:
    machine = Machine(FakeGpu(utilization_percent=5))
    machine.nvml.fail(function, value, always=True)
    for _ in range(3):
        assert value_of(machine.sample(counters=True), name) is None
    assert machine.nvml.calls[function] == 1


@pytest.mark.diagonal
@pytest.mark.parametrize("value", [6, 21, 10, 999, 17, 2, 555])
@pytest.mark.parametrize(("function", "name"), FIELDS.items())
def test_what_failed_once_is_absent_once_and_leaves_the_others_alone(
    function: str, name: str, value: int
) -> None:
    machine = Machine(FakeGpu())
    usual = machine.sample(counters=True)
    machine.nvml.fail(function, value)
    counters = {one: value for one, value in usual.counters.items() if one != name}
    absent: dict[str, Any] = {"counters": counters} if name in usual.counters else {name: None}
    assert machine.sample(counters=True) == replace(usual, **absent)
    assert machine.sample(counters=True) == usual


def test_a_forbidden_field_or_gpu_is_noted_once_and_the_others_are_read() -> None:
    machine = Machine(FakeGpu())
    machine.nvml.fail("nvmlDeviceGetPowerUsage", 4, always=True)
    machine.read()
    reading = machine.read()
    (note,) = reading.notes
    assert reading.samples[0].power_watts is None
    assert "does not allow" in note
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    machine.nvml.fail("nvmlDeviceGetHandleByIndex", 4, uuid="GPU-0", always=True)
    reading = machine.read()
    assert [sample.facts.uuid for sample in reading.samples] == ["GPU-1"]
    assert reading.notes == (
        "GPU 0 is visible and cannot be read: Insufficient Permissions (NVML error 4).",
    )


def test_gpus_that_cannot_be_read_for_one_reason_are_one_sentence() -> None:
    """A container that may use one of eight GPUs, and whose driver counts all."""
    machine = Machine(*(FakeGpu(f"GPU-{index}") for index in range(8)))
    for index in (0, 1, 2, 4, 5, 6, 7):
        machine.nvml.fail("nvmlDeviceGetHandleByIndex", 4, uuid=f"GPU-{index}", always=True)
    (note,) = machine.read().notes
    assert note == (
        "GPUs 0, 1, 2, 4, 5, 6 and 7 are visible and cannot be read: Insufficient Permissions "
        "(NVML error 4)."
    )


def test_the_error_of_a_lost_gpu_is_its_own_and_later_ones_of_others_are_known() -> None:
    """A lost GPU does not say its UUID, and the driver waits for no GPU beside it."""
    first, second = FakeGpu("GPU-0"), FakeGpu("GPU-1")
    machine = Machine(first, second)
    machine.read()
    first.fall_with(79)
    first.is_lost = 1
    reading = machine.read()
    assert reading.xids == (Xid("GPU-0", 79),)
    assert [facts.uuid for facts in reading.lost] == ["GPU-0"]
    second.fall_with(31)
    assert machine.read().xids == (Xid("GPU-1", 31),)
    assert machine.read().notes == ()
    assert machine.nvml.calls["nvmlEventSetCreate"] == 2


@pytest.mark.parametrize("value", [15, 16])
def test_a_lost_gpu_leaves_the_others_and_is_found_again(value: int) -> None:
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    machine.read()
    machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", value, uuid="GPU-0", always=True)
    reading = machine.read()
    assert [facts.uuid for facts in reading.lost] == ["GPU-0"]
    assert [sample.facts.uuid for sample in reading.samples] == ["GPU-1"]
    looks = []
    for second in range(1, 100):
        before = machine.nvml.calls["nvmlDeviceGetMemoryInfo_v2"]
        machine.clock.advance(1)
        assert machine.read().lost == ()
        if machine.nvml.calls["nvmlDeviceGetMemoryInfo_v2"] - before == 2:
            looks.append(second)
    assert looks == [1, 3, 7, 15, 31, 61, 91]
    machine.nvml.clear_failures()
    machine.clock.advance(30)
    assert [sample.facts.uuid for sample in machine.read().samples] == ["GPU-0", "GPU-1"]
    assert machine.nvml.starts == 1
    assert machine.nvml.calls["nvmlDeviceRegisterEvents"] == 2 + 1


def test_a_gpu_that_is_reset_misses_a_second_and_one_that_is_lost_again_is_asked_ever_later() -> (
    None
):
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    lost_at, found_at = [], []
    was_present = True
    for second in range(200):
        if was_present and second:
            machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", 15, uuid="GPU-0")
        reading = machine.read()
        is_present = "GPU-0" in [sample.facts.uuid for sample in reading.samples]
        if was_present and not is_present:
            lost_at.append(second)
        elif is_present and not was_present:
            found_at.append(second)
        was_present = is_present
        machine.clock.advance(1)
    pauses = [found - lost for lost, found in zip(lost_at, found_at, strict=False)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert set(pauses[6:]) <= {30}


def test_the_errors_of_the_only_gpu_are_known_when_it_is_back() -> None:
    machine = Machine(gpu := FakeGpu("GPU-0"))
    machine.read()
    gpu.is_lost = 1
    for _ in range(3):
        machine.read()
    gpu.is_lost = 0
    machine.clock.advance(31)
    assert machine.read().notes == ()
    gpu.fall_with(31)
    assert machine.read().xids == (Xid("GPU-0", 31),)


def test_a_gpu_that_cannot_be_opened_after_the_driver_was_changed_is_found_later() -> None:
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    machine.read()
    machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", 1)
    machine.nvml.fail("nvmlDeviceGetHandleByIndex", 999, uuid="GPU-1")
    machine.nvml.fail("nvmlDeviceGetHandleByUUID", 999, uuid="GPU-1")
    machine.refused()
    machine.clock.advance(1)
    for seconds_later, uuids in (
        (0, ["GPU-0"]),
        (29, ["GPU-0"]),
        (30, ["GPU-0", "GPU-1"]),
        (30, ["GPU-0", "GPU-1"]),
    ):
        machine.clock.advance(seconds_later)
        assert [sample.facts.uuid for sample in machine.read().samples] == uuids
    assert machine.nvml.starts == 2


@pytest.mark.parametrize("value", [1, 18])
def test_a_driver_changed_under_us_is_started_anew(value: int) -> None:
    machine = Machine(FakeGpu(used_bytes=5 * MIB))
    machine.read()
    machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", value)
    assert f"NVML error {value}" in machine.refused()
    assert machine.sample().memory_used_bytes == 5 * MIB
    assert machine.nvml.starts == 2
    assert machine.nvml.calls["nvmlDeviceRegisterEvents"] == 2


def test_a_driver_that_is_being_loaded_is_looked_for_ever_more_rarely() -> None:
    """It was looked for again after half a minute, although it was there after three seconds."""
    machine = Machine(FakeGpu())
    machine.read()
    machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", 1)
    machine.nvml.fail("nvmlInit", *[18] * 7)
    seen = []
    for second in range(95):
        if isinstance(machine.source.read_all_gpus(counters=False), DriverReading):
            seen.append(second)
        machine.clock.advance(1)
    assert machine.nvml.calls["nvmlInit"] == 1 + 7 + 1
    assert seen[0] == 92  # after 1, 2, 4, 8, 16, 30 and 30 s


def test_a_driver_that_only_starts_is_not_started_each_second() -> None:
    machine = Machine(FakeGpu())
    machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", 1, always=True)
    for _ in range(180):
        machine.source.read_all_gpus(counters=False)
        machine.clock.advance(1)
    assert machine.nvml.starts <= 12


@pytest.mark.parametrize("value", [12, 9])
def test_a_missing_driver_is_tried_again_every_half_minute(value: int) -> None:
    machine = Machine(FakeGpu())
    machine.nvml.fail("nvmlInit", value, always=True)
    for _ in range(61):
        machine.refused()
        machine.clock.advance(1)
    assert machine.nvml.calls["nvmlInit"] == 3
    assert machine.source.is_driver_missing is True
    assert machine.refused().startswith("no NVIDIA driver was found: ")
    machine = Machine()  # a driver that shows no GPU counts as none
    assert "no GPU is visible" in machine.refused()
    assert machine.source.is_driver_missing is True
    assert machine.nvml.is_open is False


def test_a_gpu_that_answers_nothing_three_times_is_started_anew() -> None:
    """A GPU that answers nothing three times is started anew at most twice a minute."""
    machine = Machine(FakeGpu())
    machine.read()
    machine.clock.advance(60)
    for function in (*FIELDS, "nvmlDeviceGetMemoryInfo_v2"):
        machine.nvml.fail(function, 999, always=True)
    answers = [machine.source.read_all_gpus(counters=False) for _ in range(6)]
    assert isinstance(answers[2], Unavailable)
    assert machine.nvml.starts == 2
    machine.clock.advance(29)
    for _ in range(5):
        assert machine.read().samples == ()
    assert machine.nvml.starts == 2


def test_xids_come_with_their_gpu_and_only_once() -> None:
    """GPUs whose errors the driver does not report are noted and read."""
    broken = FakeGpu("GPU-1")
    machine = Machine(FakeGpu("GPU-0"), broken)
    assert machine.read().xids == ()
    broken.fall_with(31, 43)
    assert machine.read().xids == (Xid("GPU-1", 31), Xid("GPU-1", 43))
    assert machine.read().xids == ()
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    machine.nvml.fail("nvmlDeviceRegisterEvents", 4, uuid="GPU-1", always=True)
    assert machine.read().notes == (
        "The driver does not report the errors (Xid) of GPU-1: xids stay empty there.",
    )
    machine = Machine(FakeGpu())
    assert machine.read().notes == ()
    machine.nvml.fail("nvmlEventSetWait_v2", 4, always=True)
    machine.read()
    assert machine.read().notes == (
        "The driver does not report the errors (Xid) of GPU-0: xids stay empty there.",
    )
    for function in ("nvmlEventSetCreate", "nvmlDeviceRegisterEvents"):
        machine = Machine(FakeGpu())
        machine.nvml.fail(function, 3, always=True)
        assert machine.read().xids == ()
    assert machine.nvml.calls["nvmlEventSetWait_v2"] == 0
    assert machine.nvml.calls["nvmlEventSetFree"] == 1


def test_a_process_in_several_lists_counts_once_with_its_largest_memory() -> None:
    """As nvidia-smi shows them: M+C, a client of MPS; C, the server of MPS on each GPU; C+G; G."""
    gpu = FakeGpu()
    of_mps = COMPUTING | OF_MPS
    kinds = (COMPUTING, of_mps, of_mps, COMPUTING | DRAWING, DRAWING, OF_MPS)
    sizes = (30, 456, 107, 200, 60, 300)
    gpu.list_processes(
        *((pid, size * MIB) for pid, size in enumerate(sizes, start=50)), lists=kinds
    )
    machine = Machine(gpu)
    # Only complete readings ask for the lists of MPS and of graphics before one had an entry.
    assert [one.pid for one in machine.sample().processes or ()] == [50, 51, 52, 53]
    for counters in (True, False):
        found = machine.sample(counters=counters).processes or ()
        assert [(one.pid, one.memory_bytes, one.is_only_graphics) for one in found] == [
            *((50, 30 * MIB, False), (51, 456 * MIB, False), (52, 107 * MIB, False)),
            *((53, 200 * MIB, False), (55, 300 * MIB, False), (54, 60 * MIB, True)),
        ]


@pytest.mark.parametrize("held_bytes", [2**63, 24_001 * MIB])
def test_a_process_that_holds_more_than_the_gpu_has_holds_an_unknown_amount(
    held_bytes: int,
) -> None:
    gpu = FakeGpu(used_bytes=500 * MIB)
    gpu.list_processes((50, 400 * MIB), (51, held_bytes))
    machine = Machine(gpu)
    sample = machine.sample()
    found = [(process.pid, process.memory_bytes) for process in sample.processes or ()]
    assert found == [(50, 400 * MIB), (51, None)]
    assert sample.impossible == ("processes",)
    gpu.list_processes((50, 24_000 * MIB))
    sample = machine.sample()
    assert sample.impossible == ()
    assert [process.memory_bytes for process in sample.processes or ()] == [24_000 * MIB]


@pytest.mark.parametrize("kind", [OF_MPS, DRAWING])
def test_memory_that_no_listed_process_holds_asks_for_the_other_lists_at_once(kind: int) -> None:
    """A program that is only in one of these lists comes between two complete readings."""
    gpu = FakeGpu(used_bytes=5 * MIB, reserved_bytes=0)
    gpu.list_processes((50, 400 * MIB), lists=(COMPUTING,))
    machine = Machine(gpu)
    machine.sample(counters=True)
    asked = machine.nvml.calls[_LIST_OF_MPS]
    gpu.used_bytes = 405 * MIB
    assert [one.pid for one in machine.sample().processes or ()] == [50]
    assert machine.nvml.calls[_LIST_OF_MPS] == asked
    gpu.used_bytes = 705 * MIB
    gpu.list_processes((50, 400 * MIB), (51, 290 * MIB), lists=(COMPUTING, kind))
    assert [one.pid for one in machine.sample().processes or ()] == [50, 51]


def test_a_sample_of_use_counts_once_for_the_time_since_the_one_before_but_not_for_a_gap() -> None:
    """The driver truncates, so 99 is all of the time. A second reading has none of the first."""
    gpu = FakeGpu()
    machine = Machine(gpu)
    machine.clock.advance(20)
    wall = machine.clock.wall_offset_ns // 1000
    samples = [(wall + round(at * 1e6), percent) for at, percent in ((16, 5), (17, 99), (19, 98))]
    gpu.keep_samples(*samples)
    windows = machine.sample(counters=True).windows or ()
    assert [(one.start_ns, one.end_ns, one.percent) for one in windows] == [
        (seconds(15), seconds(16), 5),
        (seconds(16), seconds(17), 100),
        (seconds(18), seconds(19), 98),
    ]
    gpu.keep_samples(*samples, (wall + 20_000_000, 7))
    assert [one.percent for one in machine.sample(counters=True).windows or ()] == [7]


def test_a_sample_that_the_driver_gives_again_counts_once() -> None:
    """The driver is asked for newer ones: one that gives all of them changes nothing."""
    clock = FakeClock()
    clock.advance(20)
    kept = [
        SimpleNamespace(
            timeStamp=(clock.wall_ns() - seconds(age)) // 1000,
            sampleValue=SimpleNamespace(uiVal=percent),
        )
        for age, percent in ((2, 50), (1, 60))
    ]
    driver: Any = SimpleNamespace(
        NVML_GPU_UTILIZATION_SAMPLES=1,
        NVMLError=OSError,
        nvmlDeviceGetSamples=lambda *_: (2, kept),
    )
    samples = DriverSamples(driver, None, clock)
    assert [one.percent for one in samples.read_new_windows(is_complete=True) or ()] == [50, 60]
    assert samples.read_new_windows(is_complete=True) == ()


@pytest.mark.parametrize("back", [30, 3600])
def test_a_wall_clock_that_is_set_back_costs_the_samples_of_before(back: int) -> None:
    """The driver stamps by the wall clock, and is asked for newer stamps than the last one."""
    machine = Machine(gpu := FakeGpu())
    machine.clock.advance(20)
    wall = machine.clock.wall_offset_ns // 1000
    before = [(wall + round(at * 1e6), 40) for at in (18, 19, 20)]
    gpu.keep_samples(*before)
    assert len(machine.sample(counters=True).windows or ()) == 3
    machine.clock.wall_offset_ns -= seconds(back)
    machine.clock.advance(10)
    after = [(wall + round((at - back) * 1e6), 70) for at in (28, 29, 30)]
    gpu.keep_samples(*before, *after)
    windows = machine.sample(counters=True).windows or ()
    assert [(one.end_ns, one.percent) for one in windows] == [
        (seconds(at), 70) for at in (28, 29, 30)
    ]
    machine.clock.advance(10)
    gpu.keep_samples(*before, *after, (wall + round((31 - back) * 1e6), 5))
    assert [one.percent for one in machine.sample(counters=True).windows or ()] == [5]


@pytest.mark.parametrize("by", [-30, 30])
def test_after_a_wall_clock_was_set_while_there_were_no_samples_the_next_ones_count(
    by: int,
) -> None:
    machine = Machine(gpu := FakeGpu())
    machine.clock.advance(20)
    wall = machine.clock.wall_offset_ns // 1000
    before = [(wall + round(at * 1e6), 40) for at in (18, 19, 20)]
    gpu.keep_samples(*before)
    machine.sample(counters=True)
    machine.clock.wall_offset_ns += seconds(by)
    for _ in range(20):
        machine.clock.advance(1)
        assert not machine.sample(counters=False).windows
    after = [(wall + round((at + by) * 1e6), 70) for at in (40.5, 40.7)]
    gpu.keep_samples(*before, *after)
    machine.clock.advance(1)
    windows = machine.sample(counters=True).windows or ()
    assert [(one.end_ns, one.percent) for one in windows] == [
        (seconds(at), 70) for at in (40.5, 40.7)
    ]


@pytest.mark.parametrize("step", [0.166, 0.2, 1.0])
def test_the_first_sample_after_a_gap_is_of_a_usual_window(step: float) -> None:
    """The windows are of 1/6 to 1 s: what was before the first one is not known."""
    machine = Machine(gpu := FakeGpu())
    machine.clock.advance(20)
    wall = machine.clock.wall_offset_ns // 1000
    gpu.keep_samples(*((wall + round((18 + number * step) * 1e6), 40) for number in range(2)))
    first, second = machine.sample(counters=True).windows or ()
    assert (first.end_ns - first.start_ns) / 1e9 == pytest.approx(max(step, 0.2), abs=1e-6)
    assert (second.end_ns - second.start_ns) / 1e9 == pytest.approx(step, abs=1e-6)


def test_a_sample_of_more_than_a_minute_ago_is_none_of_this_time() -> None:
    machine = Machine(gpu := FakeGpu())
    machine.clock.advance(100)
    wall = machine.clock.wall_offset_ns // 1000
    gpu.keep_samples(*((wall + round(at * 1e6), 40) for at in (38, 39, 99)))
    windows = machine.sample(counters=True).windows or ()
    assert [one.end_ns for one in windows] == [seconds(99)]


def test_a_gpu_that_is_found_again_has_its_samples() -> None:
    machine = Machine(gpu := FakeGpu())
    machine.read()
    gpu.is_lost = 1
    machine.clock.advance(1)
    assert [facts.uuid for facts in machine.read().lost] == ["GPU-0"]
    gpu.is_lost = 0
    machine.clock.advance(5)
    wall = machine.clock.wall_offset_ns // 1000
    gpu.keep_samples(*((wall + round(at * 1e6), 40) for at in (4, 5, 6)))
    assert len(machine.sample().windows or ()) == 3


@pytest.mark.parametrize(
    ("generation", "width", "gigabytes"),
    [(1, 16, 4.0), (2, 8, 4.0), (3, 16, 15.76), (4, 16, 31.504), (5, 16, 63.008), (6, 16, 121.008)],
)
def test_what_a_link_can_move(generation: int, width: int, gigabytes: float) -> None:
    """Bytes of one way after the line code, as PCI-SIG says them."""
    sample = Machine(FakeGpu(link_generation=generation, link_width=width)).sample()
    assert sample.facts.link_bytes_per_second == pytest.approx(gigabytes * 1e9)


def test_of_a_link_that_is_not_known_nothing_is_said() -> None:
    assert Machine(FakeGpu(link_generation=9, link_width=16)).sample().facts == replace(
        Machine(FakeGpu()).sample().facts, link_bytes_per_second=None
    )


def test_a_stamp_that_is_not_yet_ends_no_samples() -> None:
    machine = Machine(gpu := FakeGpu())
    machine.clock.advance(20)
    wall = machine.clock.wall_offset_ns // 1000
    never = (2**64 - 1, 50)
    gpu.keep_samples((wall + 19_000_000, 40), never)
    assert [one.percent for one in machine.sample(counters=True).windows or ()] == [40]
    gpu.keep_samples((wall + 19_000_000, 40), (wall + 20_000_000, 60), never)
    assert [one.percent for one in machine.sample(counters=True).windows or ()] == [60]


_LIST_OF_MPS = "nvmlDeviceGetMPSComputeRunningProcesses"
_OF_WHOLE_GPUS = (*FIELDS, "nvmlDeviceGetSamples", "nvmlGpmQueryDeviceSupport")


def test_the_parts_of_a_gpu_that_mig_divides_have_their_memory_and_their_processes() -> None:
    first, second = FakeGpu("MIG-1", used_bytes=700 * MIB), FakeGpu("MIG-2", used_bytes=5 * MIB)
    first.instance, second.instance = 9, 11
    first.list_processes((7, 640 * MIB))
    divided = FakeGpu("GPU-0")
    divided.divide(None, first, None, second)
    machine = Machine(divided, FakeGpu("GPU-1", utilization_percent=5))
    reading = machine.read(counters=True)
    assert [
        (sample.facts.uuid, sample.facts.index, (sample.memory_used_bytes or 0) // MIB)
        for sample in reading.samples
    ] == [("MIG-1", 0, 700), ("MIG-2", 2, 5), ("GPU-1", 1, 0)]
    part = reading.samples[0]
    assert [process.pid for process in part.processes or ()] == [7]
    assert [value_of(part, name) for name in FIELDS.values()] == [None] * len(FIELDS)
    assert part.windows is None
    (note,) = reading.notes
    assert note == (
        "MIG divides the GPU GPU-0: the memory and the processes of its parts are read, not how much "
        "they work."
    )
    assert [machine.nvml.calls[function] for function in _OF_WHOLE_GPUS] == [1] * len(
        _OF_WHOLE_GPUS
    ), "they are asked of the other GPU alone"


def test_an_error_of_a_part_is_its_own_and_that_of_the_whole_gpu_nobodys() -> None:
    part = FakeGpu("MIG-1")
    part.instance = 9
    divided = FakeGpu("GPU-0")
    divided.divide(part)
    machine = Machine(divided)
    machine.read()
    divided.xid_instance = 9
    divided.fall_with(31)
    assert machine.read().xids == (Xid("MIG-1", 31),)
    divided.xid_instance = 2**32 - 1
    divided.fall_with(79)
    assert machine.read().xids == (Xid(None, 79),)


def test_the_errors_of_no_part_are_known_where_the_driver_refuses_those_of_the_whole_gpu() -> None:
    divided = FakeGpu("GPU-0")
    divided.divide(FakeGpu("MIG-1"), FakeGpu("MIG-2"))
    machine = Machine(divided)
    machine.nvml.fail("nvmlDeviceRegisterEvents", 4, uuid="GPU-0", always=True)
    note = "The driver does not report the errors (Xid) of MIG-1, MIG-2: xids stay empty there."
    assert note in machine.read().notes
    assert machine.read().xids == ()
    assert machine.nvml.calls["nvmlEventSetWait_v2"] == 0


def test_a_divided_gpu_whose_parts_are_not_visible_has_neither_memory_nor_work() -> None:
    divided = FakeGpu("GPU-0", used_bytes=700 * MIB, utilization_percent=50)
    divided.list_processes((7, 640 * MIB))
    divided.divide()
    machine = Machine(divided)
    reading = machine.read(counters=True)
    (sample,) = reading.samples
    assert sample.memory_used_bytes is None
    assert sample.utilization_percent is None
    assert sample.processes is None
    assert sample.power_watts == 60
    (note,) = reading.notes
    assert note == (
        "MIG divides the GPU GPU-0, and its parts are not visible here: how much they work and "
        "what memory they use is not known."
    )


def test_a_part_that_is_lost_is_found_again_by_its_uuid() -> None:
    part = FakeGpu("MIG-1")
    divided = FakeGpu("GPU-0")
    divided.divide(part)
    machine = Machine(divided)
    machine.read()
    machine.nvml.fail("nvmlDeviceGetMemoryInfo_v2", 15, uuid="MIG-1")
    assert machine.read().samples == ()
    machine.clock.advance(31)
    assert machine.sample().facts.part is not None


def test_the_words_of_nvidia_visible_devices_select_parts() -> None:
    divided = FakeGpu("GPU-0")
    divided.divide(None, FakeGpu("MIG-1"), FakeGpu("MIG-2"))
    facts = [sample.facts for sample in Machine(divided, FakeGpu("GPU-1")).read().samples]
    for words, uuids in {
        ("MIG-1",): {"MIG-1"},
        ("0:1",): {"MIG-1"},
        ("0:0",): set(),
        ("0",): {"MIG-1", "MIG-2"},
        ("GPU-0",): {"MIG-1", "MIG-2"},
        ("1",): {"GPU-1"},
        ("GPU-1",): {"GPU-1"},
    }.items():
        assert match_uuids(words, facts) == uuids, words


ERRORS = st.one_of(
    st.none(),
    st.sampled_from([1, 2, 3, 4, 6, 9, 10, 12, 13, 15, 16, 17, 18, 21, 25, 28, 999, 12345]),
)
FUNCTIONS = [*FIELDS, "nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetMemoryInfo_v2"]


@given(
    st.lists(
        st.tuples(st.sampled_from([*FUNCTIONS, "nvmlEventSetWait_v2", "nvmlShutdown"]), ERRORS),
        max_size=60,
    )
)
def test_no_sequence_of_errors_ends_the_reading(script: list[tuple[str, int | None]]) -> None:
    machine = Machine(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    for function, value in script:
        machine.nvml.fail(function, value)
    for _ in range(20):
        machine.clock.advance(31)
        answer = machine.source.read_all_gpus(counters=True)
        assert isinstance(answer, DriverReading | Unavailable)
    machine.nvml.clear_failures()
    machine.clock.advance(61)
    machine.source.read_all_gpus(counters=True)
    machine.clock.advance(31)
    machine.source.read_all_gpus(counters=True)
    assert {sample.facts.uuid for sample in machine.read().samples} == {"GPU-0", "GPU-1"}


def test_a_driver_is_near_where_its_device_or_its_library_is() -> None:
    assert is_driver_present(None, {"/dev/nvidiactl"}.__contains__)
    assert is_driver_present("", {"/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"}.__contains__)
    assert is_driver_present("/opt/a:/opt/b", {"/opt/b/libnvidia-ml.so.1"}.__contains__)
    assert not is_driver_present("/opt/a", {"/opt/b/libnvidia-ml.so.1", "/dev/null"}.__contains__)


def test_without_the_binding_the_reason_names_the_package() -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    answer = load_binding(missing)
    assert answer == Unavailable(NOT_INSTALLED)
    source = NvmlSource(lambda: load_binding(missing), FakeClock())
    assert source.read_all_gpus(counters=False) == Unavailable(NOT_INSTALLED)
    assert source.permanently_unavailable
    assert not source.is_driver_missing
    assert load_binding(missing, has_driver=False) == Unavailable("no NVIDIA driver was found")


GPM_FIELDS = {
    name: f"{name}_percent" if name.endswith(("active", "occupancy")) else f"{name}_bytes"
    for name in METRICS
}
GPM_FUNCTIONS = (
    "nvmlGpmQueryDeviceSupport",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleGet",
    "nvmlGpmMetricsGet",
)


class GpmMachine(Machine):
    """A source over a driver whose GPUs have GPM; a reading every second."""

    def __init__(self, *uuids: str) -> None:
        super().__init__(*map(FakeGpu, uuids or ("GPU-0",)))
        for gpu in self.gpus:
            gpu.gpm(**dict.fromkeys(METRICS, 0))

    def after(self, passed: float = 1) -> DriverReading:
        self.clock.advance(passed)
        return self.read()

    def sample_after(self, passed: float = 1) -> GpuSample:
        return self.after(passed).samples[0]


def gpm_values(sample: GpuSample) -> dict[str, float]:
    """The metrics that the sample has."""
    values = {name: value_of(sample, field) for name, field in GPM_FIELDS.items()}
    return {name: value for name, value in values.items() if value is not None}


def test_a_reading_has_the_metrics_of_the_time_since_the_one_before() -> None:
    """A reading has the metrics of the time since the one before with percents of 0 to 100."""
    machine = GpmMachine()
    assert gpm_values(machine.sample_after()) == {}
    machine.gpus[0].gpm(sm_active=91.5, sm_occupancy=44, tensor_active=80, dram_active=12.5)
    machine.gpus[0].gpm(pcie_tx=100, pcie_rx=200, nvlink_tx=300, nvlink_rx=400)
    sample = machine.sample_after(2)
    assert sample.sm_active_percent == 91.5
    assert sample.sm_occupancy_percent == 44
    assert sample.tensor_active_percent == 80
    assert sample.dram_active_percent == 12.5
    names = ("pcie_tx_bytes", "pcie_rx_bytes", "nvlink_tx_bytes", "nvlink_rx_bytes")
    assert sample.amounts == {
        name: 2 * (position + 1) * 100 * MIB for position, name in enumerate(names)
    }
    assert sample.gpm_ns == seconds(2)
    machine.gpus[0].gpm(sm_active=100.4, dram_active=-0.1, pcie_rx=-1)
    sample = machine.sample_after()
    assert sample.sm_active_percent == 100
    assert sample.dram_active_percent == 0
    assert sample.amounts["pcie_rx_bytes"] == 0


def test_a_pair_less_than_100_ms_apart_is_not_used() -> None:
    """A pair less than 100 ms apart is not used and the earlier sample is kept."""
    machine = GpmMachine()
    machine.sample_after()
    assert gpm_values(machine.sample_after(0.0999)) == {}
    assert machine.sample_after(0.9).gpm_ns == seconds(0.9999)
    assert machine.sample_after(0.1).gpm_ns == seconds(0.1)


class SlowClock(FakeClock):
    """Each look at it takes some time, as the calls of the driver do on a device."""

    milliseconds = 0.0

    def monotonic_ns(self) -> int:
        self.advance(self.milliseconds / 1000)
        return super().monotonic_ns()


def test_where_a_sample_takes_4_ms_there_is_one_in_8_seconds_without_shares_of_cycles() -> None:
    machine = GpmMachine()
    machine.clock = clock = SlowClock()
    machine.source = NvmlSource(lambda: machine.nvml.binding, clock)
    machine.sample_after()
    clock.milliseconds = 4
    read = [machine.sample_after() for _ in range(60)]
    spans = [sample.gpm_ns for sample in read]
    # A single slow call changes nothing; five do.
    assert [span for span in spans if span is not None] == [
        seconds(1.02),
        *[seconds(1.024)] * 3,
        *[seconds(8.136)] * 7,
    ]
    ended = [sample for sample in read if sample.gpm_ns is not None]
    assert all(sample.amounts and sample.kernel_percent is not None for sample in ended)
    of_cycles = [sample.sm_active_percent is not None for sample in ended]
    assert of_cycles == [True] * 4 + [False] * 7


@pytest.mark.diagonal
@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    ("result", "value"), [(3, 50.0), (999, 50.0), (0, float("nan")), (0, float("inf"))]
)
def test_a_metric_with_an_error_of_its_own_is_absent_alone(
    name: str, result: int, value: float
) -> None:
    """A metric with an error of its own or without a number is absent alone."""
    machine = GpmMachine()
    machine.sample_after()
    machine.gpus[0].gpm(result=result, **{name: value})
    sample = machine.sample_after()
    assert set(gpm_values(sample)) == set(METRICS) - {name}
    assert sample.impossible == (), "which is said, and counted, of other values"
    machine.gpus[0].gpm(**{name: 7})
    assert gpm_values(machine.sample_after())[name] == (
        7 if GPM_FIELDS[name].endswith("percent") else 7 * MIB
    )


@each_case("function", GPM_FUNCTIONS)
@each_case("value", [3, 13])
def test_a_driver_or_a_device_without_the_functions_has_no_values_and_no_warning(
    function: str, value: int
) -> None:
    machine = GpmMachine()
    machine.nvml.fail(function, value, always=True)
    readings = [machine.after() for _ in range(3)]
    assert not any(gpm_values(reading.samples[0]) or reading.notes for reading in readings)
    assert readings[-1].samples[0].utilization_percent == 0
    assert machine.nvml.calls[function] <= 2
    assert machine.nvml.live_samples == 0
    machine = GpmMachine("GPU-0", "GPU-1")
    machine.gpus[0].has_gpm = 0
    machine.after()
    reading = machine.after()
    old, new = reading.samples
    assert gpm_values(old) == {}
    assert len(gpm_values(new)) == len(METRICS)
    assert reading.notes == ()
    assert machine.nvml.live_samples == 2


@pytest.mark.parametrize(
    ("function", "readings_before"),
    [*((function, 0) for function in GPM_FUNCTIONS), ("nvmlGpmSampleGet", 2)],
)
def test_a_refusal_is_one_warning_for_all_gpus_and_the_other_values_go_on(
    function: str, readings_before: int
) -> None:
    machine = GpmMachine("GPU-0", "GPU-1")
    for _ in range(readings_before):
        machine.after()
    machine.nvml.fail(function, 4, always=True)
    machine.after()
    for _ in range(3):
        reading = machine.after()
        (note,) = reading.notes
        assert note.startswith(
            "The driver does not allow this container to read the GPUs' performance counters (GPM)"
        )
        assert [gpm_values(sample) for sample in reading.samples] == [{}, {}]
        assert [sample.utilization_percent for sample in reading.samples] == [0, 0]
    assert machine.nvml.live_samples == 0


@pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_an_error_that_passes_costs_one_reading(function: str) -> None:
    machine = GpmMachine()
    machine.sample_after()
    machine.nvml.fail(function, 999)
    assert gpm_values(machine.sample_after()) == {}
    sample = machine.sample_after()
    assert len(gpm_values(sample)) == len(METRICS)
    # Without the sample in between, a pair spans two readings.
    assert sample.gpm_ns == seconds(2 if function == "nvmlGpmSampleGet" else 1)
    machine = GpmMachine()
    machine.nvml.fail("nvmlGpmSampleAlloc", None, 999)  # there is memory for one of the two
    assert [len(gpm_values(machine.sample_after())) for _ in range(3)] == [0, 0, len(METRICS)]


def test_a_lost_device_frees_its_samples_and_begins_anew() -> None:
    """A device that is lost frees its samples and begins anew when it is found."""
    machine = GpmMachine("GPU-0", "GPU-1")
    machine.after()
    machine.after()
    assert machine.nvml.live_samples == 4
    machine.nvml.fail("nvmlDeviceGetUtilizationRates", 15, uuid="GPU-0")
    assert [sample.facts.uuid for sample in machine.after().samples] == ["GPU-1"]
    assert machine.nvml.live_samples == 2
    first, second = machine.sample_after(30), machine.sample_after()
    assert first.facts.uuid == "GPU-0"
    assert gpm_values(first) == {}
    assert second.gpm_ns == seconds(1)
    machine.source.close()
    assert machine.nvml.live_samples == 0
