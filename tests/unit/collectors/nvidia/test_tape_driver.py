"""Recordings of a real driver, played back through the real binding: each reading of the source is
what the driver showed at that moment, in any phase of the second.
"""

import pytest

from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import DriverReading, GpuScope
from profiler.record.record_model import Container, Metrics, Monitor, Record, Sampling
from tests.collected import with_collected
from tests.fakes import FakeClock, FakeLog, seconds
from tests.gpu_runs import advice_on
from tests.nvml_tape import TAPES, Tape
from tests.tape_driver import UUID, TapeDriver

NAMES = sorted(path.stem for path in TAPES.glob("*.tape"))
PHASES = (0.0, 0.17, 0.33, 0.5, 0.67, 0.83)


def readings(name: str, phase: float) -> list[tuple[float, DriverReading]]:
    """A reading a second, with its second of the tape."""
    tape = Tape(name)
    clock = FakeClock()
    driver = TapeDriver(tape, clock, phase)
    source = NvmlSource(lambda: driver.nvml.binding, clock)
    taken = []
    while (at := clock.now_ns / 1e9 + phase) < tape.ended + 1:
        reading = source.read_all_gpus(counters=True)
        assert isinstance(reading, DriverReading)
        taken.append((at, reading))
        clock.advance(1.0)
    source.close()
    return taken


def test_there_are_twelve_small_tapes() -> None:
    assert len(NAMES) == 12
    assert sum((TAPES / f"{name}.tape").stat().st_size for name in NAMES) < 80_000


@pytest.mark.diagonal
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", NAMES)
def test_a_reading_is_what_the_driver_showed_then(name: str, phase: float) -> None:
    tape = Tape(name)
    for at, reading in readings(name, phase):
        (sample,) = reading.samples
        row = tape.at(at)
        assert sample.facts.uuid == UUID
        assert sample.memory_used_bytes == row.used_bytes
        assert sample.memory_size_bytes == tape.total_bytes
        assert sample.utilization_percent == row.utilization_percent
        assert sample.power_watts == row.power_milliwatts / 1000
        assert sample.sm_clock_mhz == row.clock_mhz
        assert sample.temperature_celsius == row.celsius
        assert sample.throttle_reasons == row.reasons
        assert sample.counters["energy_millijoules"] == tape.millijoules(at)


@pytest.mark.parametrize("phase", PHASES)
def test_the_error_of_an_illegal_address_is_reported_once(phase: float) -> None:
    taken = readings("illegal", phase)
    errors = [(at, xid.code) for at, reading in taken for xid in reading.xids]
    ((at, code),) = errors
    assert code == 31
    assert 0 <= at - Tape("illegal").xids[0][0] < 1


@pytest.mark.parametrize("phase", PHASES)
def test_the_spans_of_gpm_have_no_gaps(phase: float) -> None:
    """One block of threads is 0.7 % of the multiprocessors while it runs."""
    active = [
        reading.samples[0].sm_active_percent or 0.0 for _, reading in readings("one-block", phase)
    ]
    assert 0.6 < max(active) < 0.8
    assert sum(active) == pytest.approx(2.8, abs=0.7)


def recorded(name: str, phase: float) -> Record:
    """The record of the tape's program, by a collector that reads once a second."""
    tape = Tape(name)
    clock = FakeClock()
    driver = TapeDriver(tape, clock, tape.started + phase)
    source = NvmlSource(lambda: driver.nvml.binding, clock)
    collector = GpuCollector(
        source, GpuScope((UUID,)), clock, FakeLog(), seconds(1), is_required=False
    )
    while clock.now_ns / 1e9 + tape.started + phase < tape.ended:
        collector.take_reading()
        clock.advance(1.0)
    record = Record(
        task_id="1",
        container=Container(name="batch"),
        status="success" if tape.exit_code == 0 else "failure",
        exit_code=tape.exit_code,
        sampling=Sampling(),
        monitor=Monitor(),
        metrics=Metrics(duration_ms=1000 * tape.seconds),
    )
    return with_collected(record, (collector,))


@pytest.mark.diagonal
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", NAMES)
def test_no_gpu_that_a_program_used_was_never_used(name: str, phase: float) -> None:
    """Whichever moments of the run are read."""
    record = recorded(name, phase)
    assert record.gpus
    assert not any("ever used" in text for text in advice_on(record))


@pytest.mark.parametrize("phase", PHASES)
def test_a_program_that_failed_gets_no_advice_on_its_gpu(phase: float) -> None:
    for name in ("oom", "illegal"):
        assert advice_on(recorded(name, phase)) == []
