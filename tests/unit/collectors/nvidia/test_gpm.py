"""GPM through the real binding: pairs of samples, their metrics, and what happens when the driver refuses them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuSample
from tests.fake_nvml import GPM_NUMBERS, MIB, FakeGpu, FakeNvml
from tests.fakes import FakeClock, seconds

FIELDS = {
    name: f"{name}_percent" if name.endswith(("active", "occupancy")) else f"{name}_bytes" for name in GPM_NUMBERS
}
GPM_FUNCTIONS = ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet", "nvmlGpmMetricsGet")


class Machine:
    """A source over a driver whose GPUs have GPM; a reading every second."""

    def __init__(self, *uuids: str) -> None:
        self.clock = FakeClock()
        self.gpus = [FakeGpu(uuid) for uuid in uuids or ("GPU-0",)]
        for gpu in self.gpus:
            gpu.gpm(**dict.fromkeys(GPM_NUMBERS, 0))
        self.nvml = FakeNvml(*self.gpus)
        self.source = NvmlSource(lambda: self.nvml.binding, self.clock)

    def read(self, after: float = 1, *, counters: bool = False) -> DriverReading:
        self.clock.advance(after)
        reading = self.source.read(counters=counters)
        assert isinstance(reading, DriverReading), reading
        return reading

    def sample(self, after: float = 1) -> GpuSample:
        return self.read(after).samples[0]


def gpm_values(sample: GpuSample) -> dict[str, float]:
    """The metrics that the sample has."""
    values = {name: getattr(sample, field) for name, field in FIELDS.items()}
    return {name: value for name, value in values.items() if value is not None}


def test_a_reading_has_the_metrics_of_the_time_since_the_one_before() -> None:
    machine = Machine()
    assert gpm_values(machine.sample()) == {}
    machine.gpus[0].gpm(sm_active=91.5, sm_occupancy=44, tensor_active=80, dram_active=12.5)
    machine.gpus[0].gpm(pcie_tx=100, pcie_rx=200, nvlink_tx=300, nvlink_rx=400)
    sample = machine.sample(2)
    assert (sample.sm_active_percent, sample.sm_occupancy_percent) == (91.5, 44)
    assert (sample.tensor_active_percent, sample.dram_active_percent) == (80, 12.5)
    assert (sample.pcie_tx_bytes, sample.pcie_rx_bytes) == (2 * 100 * MIB, 2 * 200 * MIB)
    assert (sample.nvlink_tx_bytes, sample.nvlink_rx_bytes) == (2 * 300 * MIB, 2 * 400 * MIB)
    assert sample.gpm_ns == seconds(2)


def test_a_pair_less_than_100_ms_apart_is_not_used_and_the_earlier_sample_is_kept() -> None:
    machine = Machine()
    machine.sample()
    assert gpm_values(machine.sample(0.0999)) == {}
    assert machine.sample(0.9).gpm_ns == seconds(0.9999)
    assert machine.sample(0.1).gpm_ns == seconds(0.1)


class SlowClock(FakeClock):
    """Each look at it takes some time, as the calls of the driver do on a device."""

    milliseconds = 0.0

    def monotonic_ns(self) -> int:
        self.advance(self.milliseconds / 1000)
        return super().monotonic_ns()


def test_where_a_sample_takes_4_ms_there_is_one_in_8_seconds_and_no_gap() -> None:
    machine = Machine()
    machine.clock = clock = SlowClock()
    machine.source = NvmlSource(lambda: machine.nvml.binding, clock)
    machine.sample()
    clock.milliseconds = 4
    spans = [sample.gpm_ns for sample in (machine.sample() for _ in range(60))]
    assert [span for span in spans if span is not None] == [seconds(1.004), *[seconds(8.068)] * 7]


def test_percents_stay_between_0_and_100() -> None:
    machine = Machine()
    machine.sample()
    machine.gpus[0].gpm(sm_active=100.4, dram_active=-0.1, pcie_rx=-1)
    sample = machine.sample()
    assert (sample.sm_active_percent, sample.dram_active_percent, sample.pcie_rx_bytes) == (100, 0, 0)


@pytest.mark.parametrize("name", GPM_NUMBERS)
@pytest.mark.parametrize(("result", "value"), [(3, 50.0), (999, 50.0), (0, float("nan")), (0, float("inf"))])
def test_a_metric_with_an_error_of_its_own_or_without_a_number_is_absent_alone(
    name: str, result: int, value: float
) -> None:
    machine = Machine()
    machine.sample()
    machine.gpus[0].gpm(result=result, **{name: value})
    assert set(gpm_values(machine.sample())) == set(GPM_NUMBERS) - {name}
    machine.gpus[0].gpm(**{name: 7})
    assert gpm_values(machine.sample())[name] == (7 if FIELDS[name].endswith("percent") else 7 * MIB)


@pytest.mark.parametrize("function", GPM_FUNCTIONS)
@pytest.mark.parametrize("value", [3, 13])
def test_a_driver_without_the_functions_gives_no_values_and_no_warning(function: str, value: int) -> None:
    machine = Machine()
    machine.nvml.fail(function, value, always=True)
    readings = [machine.read() for _ in range(3)]
    assert not any(gpm_values(reading.samples[0]) or reading.notes for reading in readings)
    assert readings[-1].samples[0].utilization_percent == 0
    assert machine.nvml.calls[function] <= 2
    assert machine.nvml.live_samples == 0


def test_a_device_that_is_older_gives_no_values_and_no_warning_beside_a_new_one() -> None:
    machine = Machine("GPU-0", "GPU-1")
    machine.gpus[0].has_gpm = 0
    machine.read()
    reading = machine.read()
    old, new = reading.samples
    assert (gpm_values(old), len(gpm_values(new)), reading.notes) == ({}, len(GPM_NUMBERS), ())
    assert machine.nvml.live_samples == 2


@pytest.mark.parametrize(
    ("function", "readings_before"), [*((function, 0) for function in GPM_FUNCTIONS), ("nvmlGpmSampleGet", 2)]
)
def test_a_refusal_is_one_warning_for_all_gpus_and_the_other_values_go_on(function: str, readings_before: int) -> None:
    machine = Machine("GPU-0", "GPU-1")
    for _ in range(readings_before):
        machine.read()
    machine.nvml.fail(function, 4, always=True)
    machine.read()
    for _ in range(3):
        reading = machine.read()
        (note,) = reading.notes
        assert note.startswith("The driver does not allow this container to read the GPUs' performance counters (GPM)")
        assert [gpm_values(sample) for sample in reading.samples] == [{}, {}]
        assert [sample.utilization_percent for sample in reading.samples] == [0, 0]
    assert machine.nvml.live_samples == 0


@pytest.mark.parametrize("function", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_an_error_that_passes_costs_one_reading(function: str) -> None:
    machine = Machine()
    machine.sample()
    machine.nvml.fail(function, 999)
    assert gpm_values(machine.sample()) == {}
    sample = machine.sample()
    assert len(gpm_values(sample)) == len(GPM_NUMBERS)
    # Without the sample in between, a pair spans two readings.
    assert sample.gpm_ns == seconds(2 if function == "nvmlGpmSampleGet" else 1)


def test_a_device_that_is_lost_frees_its_samples_and_begins_anew_when_it_is_found() -> None:
    machine = Machine("GPU-0", "GPU-1")
    machine.read()
    machine.read()
    assert machine.nvml.live_samples == 4
    machine.nvml.fail("nvmlDeviceGetUtilizationRates", 15, uuid="GPU-0")
    assert [sample.facts.uuid for sample in machine.read().samples] == ["GPU-1"]
    assert machine.nvml.live_samples == 2
    machine.read(30)
    first, second = (next(one for one in machine.read().samples if one.facts.uuid == "GPU-0") for _ in range(2))
    assert (gpm_values(first), second.gpm_ns) == ({}, seconds(1))


ERRORS = st.one_of(st.none(), st.sampled_from([1, 2, 3, 4, 6, 10, 13, 15, 25, 999]))


@given(st.lists(st.tuples(st.sampled_from([*GPM_FUNCTIONS, "nvmlGpmSampleFree"]), ERRORS), max_size=40))
def test_no_error_of_these_functions_costs_another_value(script: list[tuple[str, int | None]]) -> None:
    machine = Machine("GPU-0", "GPU-1")
    for function, value in script:
        machine.nvml.fail(function, value)
    for _ in range(20):
        reading = machine.read()
        assert [sample.utilization_percent for sample in reading.samples] == [0, 0]
        assert len(reading.notes) <= 1
        assert machine.nvml.live_samples <= 2 * 2 + sum(name == "nvmlGpmSampleFree" for name, _ in script)
