"""The Neuron collector: its record, its warnings and its child process."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from profiler.collectors.collector import Collector, with_collected
from profiler.collectors.neuron.neuron_collector import NeuronCollector
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport
from profiler.collectors.neuron.neuron_monitor_supervisor import Outage
from profiler.core.threads import ThreadFailure
from profiler.local_run.sampler import UnrelatedChildren
from profiler.record.record_model import Container, Monitor, Record, Sampling
from tests.fakes import FakeLog
from tests.neuron_documents import decoded, report, runtime
from tests.values import present

RECORD = Record(
    task_id="1", container=Container(name="batch"), status="success", sampling=Sampling(), monitor=Monitor()
)


BUSY = decoded(report(runtime({0: 75.0, 1: 0}, {0: 10, 1: 0})))
NOTHING = decoded({"neuron_runtime_data": [], "system_data": {"neuron_hw_counters": {"neuron_devices": None}}})


class FakeSource:
    """Replaces neuron-monitor: a test makes its reports."""

    name = "neuron-monitor"
    restarts = 2
    pid = 4711
    failure: ThreadFailure | None = None
    outage: Outage | None = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, on_report: Callable[[NeuronReport], None]) -> None:
        self.calls.append("start")

    def stop(self, max_seconds: float) -> None:
        self.calls.append("stop")


class World:
    def __init__(self, *, installed: bool = True, is_required: bool = False) -> None:
        self.log = FakeLog()
        self.source = cast("Any", FakeSource())
        self.collector = NeuronCollector(self.source if installed else None, 1, self.log, is_required=is_required)

    def report(self, *reports: NeuronReport) -> None:
        for one in reports:
            self.collector._on_report(one)

    def record(self) -> Record:
        return with_collected(RECORD, (self.collector,))


def test_the_record_has_what_was_reported() -> None:
    world = World()
    world.collector.start()
    world.report(BUSY, BUSY)
    world.collector.final_reading(0.3)
    record = world.record()
    neuron = present(record.neuron)
    assert ([core.index for core in neuron.cores], neuron.restarts) == ([0, 1], 2)
    assert present(neuron.cores[0].utilization_percent).avg == 75
    assert present(record.sampling).sources == ("neuron-monitor",)
    world.collector.stop(1)
    assert world.source.calls == ["start", "stop"]


def test_without_a_device_there_is_neither_a_record_entry_nor_a_log_line() -> None:
    world = World()
    world.collector.start()
    world.report(*[NOTHING] * 10)
    world.collector.final_reading(0.3)
    assert world.record() == RECORD
    assert world.log.lines == []


@pytest.mark.parametrize("reports", [0, 10])
def test_missing_required_devices_are_reported_once_in_the_log_and_in_the_record(reports: int) -> None:
    world = World(is_required=True)
    world.collector.start()
    world.report(*[NOTHING] * reports)
    world.collector.final_reading(0.3)
    world.collector.final_reading(0.3)
    (warning,) = world.log.events("warning")
    assert "TASK_PROFILER_NEURON=on, but nothing can be measured" in warning
    assert world.collector.startup_error == warning
    assert world.record().monitor == Monitor(warnings=(warning,))


def test_a_missing_required_program_is_reported_at_once() -> None:
    world = World(installed=False, is_required=True)
    world.collector.start()
    world.collector.final_reading(0.3)
    world.collector.stop(1)
    assert "neuron-monitor is not installed" in world.log.events("warning")[0]
    assert len(world.log.lines) == 1
    assert world.collector.child_pid is None


def test_its_process_is_unrelated_to_the_command() -> None:
    world = World()
    unrelated_children = UnrelatedChildren([7], [world.collector, Collector()])
    assert [pid in unrelated_children for pid in (7, 4711, 8)] == [True, True, False]


def test_after_an_error_of_our_own_the_report_names_it_and_checkpoints_have_no_cores() -> None:
    world = World()
    world.collector.start()
    world.report(BUSY)
    world.source.failure = ThreadFailure(0, "KeyError: 'cores'")
    record = world.record()
    (warning,) = present(record.monitor).warnings
    assert "The collection of Neuron values stopped at 1970-" in warning
    checkpoint = with_collected(replace(RECORD, status="running"), (world.collector,))
    assert present(checkpoint.monitor).warnings == (warning,)
    assert (record.neuron is None, checkpoint.neuron, world.collector.latest()) == (False, None, None)


def test_a_neuron_monitor_that_ended_is_named_and_is_no_source_until_its_next_report() -> None:
    world = World()
    world.source.outage = Outage(0, "it ended with exit code 1")
    assert world.record() == RECORD  # it never had values
    world.report(BUSY)
    record = world.record()
    assert record.neuron is not None
    assert record.sampling == Sampling()
    assert present(record.monitor).warnings == (
        "neuron-monitor stopped at 1970-01-01T00:00:00.000Z (it ended with exit code 1): the Neuron values end there.",
    )
    assert with_collected(replace(RECORD, status="running"), (world.collector,)).neuron is None
    assert world.collector.latest() is None
    world.source.outage = None
    assert world.record().sampling == Sampling(sources=("neuron-monitor",))
