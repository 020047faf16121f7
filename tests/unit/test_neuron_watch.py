"""What the lives of the monitor and of ``run`` see of Neuron devices."""

import json
from collections.abc import Callable

import pytest

from profiler.accelerators.accelerator import with_collected
from profiler.accelerators.neuron_watch import NeuronCollector
from profiler.record import Container, Monitor, Record, Sampling
from profiler.sources.neuron.reports import NeuronReport, decode_report
from profiler.sources.strangers import UnrelatedChildren
from tests.fakes import FakeLog
from tests.neuron_documents import report, runtime

RECORD = Record(
    task_id="1", container=Container(name="batch"), status="success", sampling=Sampling(), monitor=Monitor()
)


def decoded(document: object) -> NeuronReport:
    answer = decode_report(json.dumps(document).encode())
    assert isinstance(answer, NeuronReport)
    return answer


BUSY = decoded(report(runtime({0: 75.0, 1: 0}, {0: 10, 1: 0})))
NOTHING = decoded({"neuron_runtime_data": [], "system_data": {"neuron_hw_counters": {"neuron_devices": None}}})


class FakeSource:
    """Stands for neuron-monitor: a test lets it report."""

    name = "neuron-monitor"
    restarts = 2
    pid = 4711

    def __init__(self, listener: Callable[[NeuronReport], None]) -> None:
        self.report = listener
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def stop(self, max_seconds: float) -> None:
        self.told.append("stop")


class Watched:
    def __init__(self, *, installed: bool = True, is_required: bool = False) -> None:
        self.log = FakeLog()
        self.sources: list[FakeSource] = []
        self.watch = NeuronCollector(self._make if installed else None, 1, self.log, is_required=is_required)

    def _make(self, listener: Callable[[NeuronReport], None]) -> FakeSource:
        self.sources.append(FakeSource(listener))
        return self.sources[0]

    def hear(self, *reports: NeuronReport) -> None:
        for one in reports:
            self.sources[0].report(one)

    def record(self) -> Record:
        return with_collected(RECORD, (self.watch,))


def test_the_record_has_what_was_reported() -> None:
    world = Watched()
    world.watch.start()
    world.hear(BUSY, BUSY)
    world.watch.final_reading(0.3)
    record = world.record()
    assert record.neuron is not None
    assert [core.index for core in record.neuron.cores] == [0, 1]
    assert record.neuron.cores[0].utilization_percent is not None
    assert record.neuron.cores[0].utilization_percent.avg == 75
    assert record.neuron.restarts == 2
    assert record.sampling is not None
    assert record.sampling.sources == ("neuron-monitor",)
    world.watch.stop(1)
    assert world.sources[0].told == ["start", "stop"]


def test_without_a_device_nothing_is_in_the_record_and_nothing_is_said() -> None:
    world = Watched()
    world.watch.start()
    world.hear(*[NOTHING] * 10)
    world.watch.final_reading(0.3)
    assert world.record() == RECORD
    assert world.log.lines == []


@pytest.mark.parametrize("reports", [0, 10])
def test_devices_that_were_asked_for_are_missed_once_on_each_side(reports: int) -> None:
    world = Watched(is_required=True)
    world.watch.start()
    world.hear(*[NOTHING] * reports)
    world.watch.final_reading(0.3)
    world.watch.final_reading(0.3)
    (warning,) = world.log.events("warning")
    assert "TASK_PROFILER_NEURON=on, but nothing can be measured" in warning
    assert world.watch.startup_error == warning
    assert world.record().monitor == Monitor(warnings=(warning,))


def test_a_missing_program_that_was_asked_for_is_told_at_once() -> None:
    world = Watched(installed=False, is_required=True)
    world.watch.start()
    world.watch.final_reading(0.3)
    world.watch.stop(1)
    assert "there is no neuron-monitor" in world.log.events("warning")[0]
    assert len(world.log.lines) == 1
    assert world.watch.child_pid is None


def test_devices_that_come_late_are_no_longer_missed() -> None:
    world = Watched(is_required=True)
    world.hear(*[NOTHING] * 5, BUSY)
    world.watch.final_reading(0.3)
    assert world.watch.startup_error is None
    assert world.record().monitor == Monitor()


def test_its_process_is_a_stranger_to_the_command() -> None:
    world = Watched()
    unrelated_children = UnrelatedChildren([7], [lambda: world.watch.child_pid, lambda: None])
    assert 7 in unrelated_children
    assert 4711 in unrelated_children
    assert 8 not in unrelated_children
