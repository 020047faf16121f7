"""The Neuron collector: every formula of its record, worked out by hand; its warnings and its
child process.
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from profiler.aggregation.statistics import DeviceReadings
from profiler.collectors.collector import Collectors
from profiler.collectors.neuron.neuron_collector import LiveNeuron, NeuronCollector, NeuronUsage
from profiler.collectors.neuron.neuron_monitor_reports import Latency, NeuronReport
from profiler.collectors.neuron.neuron_monitor_supervisor import Outage
from profiler.core.threads import ThreadFailure
from profiler.local_run.command_usage import UnrelatedChildren
from profiler.record.record_model import (
    NO_NEURON,
    NO_READINGS,
    NOT_MEASURED,
    AverageAndMaximum,
    Container,
    Distribution,
    Monitor,
    Neuron,
    NeuronCore,
    NeuronExecutions,
    NeuronLatency,
    Record,
    Sampling,
)
from tests.collected import with_collected
from tests.fakes import FakeLog
from tests.neuron_documents import GIB, MIB, decoded, percentiles, report, runtime
from tests.values import present


def record_of(*documents: object, period_seconds: int = 1, restarts: int = 0) -> Neuron:
    usage = NeuronUsage(period_seconds)
    for document in documents:
        usage.add_report(decoded(document))
    return present(usage.neuron_so_far(restarts))


def core(record: Neuron, index: int) -> NeuronCore:
    return next(core for core in record.cores if core.index == index)


def shown(distribution: Distribution | None) -> tuple[float | None, float | None]:
    return present(distribution).avg, present(distribution).max


def test_a_run_of_two_runtimes_worked_out_by_hand() -> None:
    """Runtime A owns core 0, B core 1; the second report covers 3 s."""
    record = record_of(
        report(
            runtime({0: 80, 1: 0}, {0: 100, 1: 0}, completed=10),
            runtime({0: 0, 1: 20}, {0: 0, 1: 50}, completed=3, failed={"timed_out": 1}),
        ),
        report(
            runtime({0: 40, 1: 0}, {0: 200, 1: 0}, period=3, completed=7),
            runtime(
                {0: 0, 1: 20}, {0: 4, 1: 50}, period=3, completed=0, failed={"some_new_reason": 2}
            ),
        ),
        restarts=2,
    )
    assert [core.index for core in record.cores] == [0, 1]
    # (80 × 1 + 40 × 3) ÷ 4, and 20 throughout.
    assert shown(core(record, 0).utilization_percent) == (50.0, 80.0)
    assert shown(core(record, 1).utilization_percent) == (20.0, 20.0)
    # (100 × 1 + (200 + 4) × 3) ÷ 4, and 50 throughout.
    assert shown(core(record, 0).memory_used_mb) == (178.0, 204.0)
    assert shown(core(record, 1).memory_used_mb) == (50.0, 50.0)
    # (150 × 1 + 254 × 3) ÷ 4
    assert shown(record.device_memory_used_mb) == (228.0, 254.0)
    assert record.device_memory_size_mb == 32 * 1024
    assert record.executions == NeuronExecutions(completed=20, failed=3)
    assert record.latency_seconds is None
    assert record.ecc_uncorrected is None
    assert record.restarts == 2


def test_the_largest_of_each_percentile_stays() -> None:
    record = record_of(
        report(runtime({}, {}, total_latency=percentiles(0.1, 0.5, 0.6))),
        report(
            runtime({}, {}, total_latency=percentiles(0.2, 0.3, 0.9)),
            runtime({}, {}, device_latency={"p50": 0.15}),
        ),
        report(runtime({}, {})),
    )
    assert record.latency_seconds == NeuronLatency(p50_max=0.2, p99_max=0.5, p100_max=0.9)


def test_time_without_a_runtime_is_not_idle_time_of_a_batch() -> None:
    busy = report(runtime({0: 60, 1: 0}, {0: 10, 1: 0}))
    record = record_of(report(), busy, report(), report())
    assert shown(core(record, 0).utilization_percent) == (60.0, 60.0)
    assert shown(record.device_memory_used_mb) == (10.0, 10.0)
    assert record_of(report(ecc={0: (0, 0)})) == Neuron(
        device_memory_size_mb=32768, ecc_uncorrected=0, restarts=0
    )


def test_a_short_period_is_ignored_for_utilization_and_its_executions_count() -> None:
    first = report(runtime({0: 89.0}, {0: 70}, period=0.062, completed=14, failed={"timed_out": 1}))
    record = record_of(first, report(runtime({0: 10.0}, {0: 60}, completed=5)))
    assert shown(core(record, 0).utilization_percent) == (10.0, 10.0)
    assert record.executions == NeuronExecutions(completed=19, failed=1)
    # A core of which only the memory is known is listed. A reading of it counts even if its period
    # is 0.
    (only,) = record_of(report(runtime({0: 89.0}, {0: 70}, period=0))).cores
    assert only.utilization_percent == NOT_MEASURED
    assert shown(only.memory_used_mb) == (70.0, 70.0)


def test_a_zero_is_believed_only_when_all_runtimes_answered() -> None:
    """Core 1 is 0 for runtime A, and the one of B, which could not be read."""
    owner = runtime({0: 0, 1: 90}, {})
    silent = runtime({0: 0, 1: 90}, {})
    silent["report"]["neuroncore_counters"]["error"] = "cannot be read"
    other = runtime({0: 50, 1: 0}, {})
    record = record_of(report(other, owner), report(other, silent))
    assert shown(core(record, 1).utilization_percent) == (90.0, 90.0)
    assert shown(core(record, 0).utilization_percent) == (50.0, 50.0)


def test_a_process_that_cannot_be_read_is_told_with_the_number_of_reports() -> None:
    """Its entry has an error and no groups, as of one that ends just then: its cores are not 0."""
    owner, other = runtime({0: 0, 1: 90}, {1: 8}), runtime({0: 50, 1: 0}, {0: 4})
    gone = {"pid": 7, "neuron_runtime_tag": "7", "error": "the process is gone.", "report": None}
    without = {**gone, "report": {}}
    fakes = CollectedReports()
    parts = (report(other, owner), report(other, gone), report(other, without))
    fakes.report(*map(decoded, parts))
    record = fakes.record()
    neuron = present(record.neuron)
    assert shown(core(neuron, 1).utilization_percent) == (90.0, 90.0)
    assert shown(neuron.device_memory_used_mb) == (12.0, 12.0)
    (warning,) = present(record.monitor).warnings
    assert warning == (
        "neuron-monitor could not read a process in 2 reports, whose use and memory are left out: "
        "the process is gone."
    )


def test_the_reason_is_that_of_the_process_and_of_the_most_reports() -> None:
    """An error of another part is no reason; a reason with an id does not take memory for each."""
    fakes = CollectedReports()
    starting = {**runtime({0: 50}, {0: 4}), "report": {"execution_stats": {"period": 1.0}}}
    other_part = report(starting)
    other_part["neuron_hardware_info"]["error"] = "no sysfs"
    fakes.report(decoded(other_part))
    assert present(fakes.record().monitor).warnings == ()
    busy = {"error": "the device is busy", "report": None}
    for number in range(150):
        entry = {"error": f"the process {number} is gone", "report": None}
        fakes.report(decoded(report(entry)), decoded(report(busy)))
    (warning,) = present(fakes.record().monitor).warnings
    assert warning.startswith("neuron-monitor could not read a process in 300 reports, ")
    assert warning.endswith(": the device is busy.")
    assert len(fakes.collector._usage.unread_reasons) <= 100


def test_a_period_in_which_a_clock_was_set_weighs_as_the_others() -> None:
    periods = (1.0, 3600.0, 1.0)
    uses = (10, 70, 10)
    parts = [
        runtime({0: use}, {0: 8}, period=period) for use, period in zip(uses, periods, strict=True)
    ]
    record = record_of(*map(report, parts))
    assert shown(core(record, 0).utilization_percent) == (30.0, 70.0)


def test_unreadable_memory_of_one_runtime_is_neither_zero_nor_a_smaller_sum() -> None:
    """Runtime A owns core 0, B core 1; in the second report B's memory could not be read."""
    owner, other = runtime({0: 50, 1: 0}, {0: 100, 1: 0}), runtime({0: 0, 1: 70}, {0: 0, 1: 200})
    silent = runtime({0: 0, 1: 70}, {0: 0, 1: 200})
    silent["report"]["memory_used"] = {
        "period": 1.0,
        "error": "cannot read",
        "neuron_runtime_used_bytes": None,
    }
    usage = NeuronUsage(1)
    for document in (report(owner, other), report(owner, silent)):
        usage.add_report(decoded(document))
    record, latest = present(usage.neuron_so_far(0)), present(usage.latest())
    assert [shown(core(record, index).memory_used_mb) for index in (0, 1)] == [
        (100.0, 100.0),
        (200.0, 200.0),
    ]
    assert shown(record.device_memory_used_mb) == (300.0, 300.0)
    assert latest.core_memory_bytes == {}
    assert latest.device_memory_bytes is None
    assert latest.memory_bytes_by_category == {}


@pytest.mark.parametrize(
    ("counts", "errors"),
    [
        ([0, 0, 0], 0),
        ([5, 5, 5], 0),  # running on: from before the run
        ([5, 6, 6, 8], 3),  # running on: grew by 3
        ([0, 1, 0, 0, 2, 0], 3),  # per period: 1 + 2
        ([0, 3, 1, 0], 4),  # per period: 3 + 1
        ([7, 0, 2], 2),  # running on, and the driver was loaded again
    ],
)
def test_memory_errors_are_those_since_the_first_report(counts: list[int], errors: int) -> None:
    record = record_of(
        *(report(ecc={0: (count // 2, count - count // 2), 1: (0, 0)}) for count in counts)
    )
    assert record.ecc_uncorrected == errors


def test_the_latest_is_the_last_report_and_what_was_counted_up_to_it() -> None:
    usage = NeuronUsage(1)
    assert usage.latest() is None
    usage.add_report(decoded(report(runtime({0: 80}, {0: 100}, completed=10), ecc={0: (1, 0)})))
    last = report(
        runtime(
            {0: 30, 1: 0}, {0: 40, 1: 0}, completed=1, total_latency=percentiles(0.1, 0.2, 0.3)
        ),
        runtime(
            {0: 0, 1: 20},
            {0: 0, 1: 60},
            failed={"timed_out": 2},
            total_latency=percentiles(0.05, 0.4, 0.5),
        ),
        ecc={0: (3, 0)},
    )
    usage.add_report(decoded(last))
    latest = usage.latest()
    assert latest == LiveNeuron(
        reports=2,
        utilization_percent={0: 30.0, 1: 20.0},
        core_memory_bytes={0: 40 * MIB, 1: 60 * MIB},
        device_memory_bytes=100 * MIB,
        device_memory_size_bytes=32 * GIB,
        memory_bytes_by_category={"constants": 25 * MIB, "model_code": 0, "tensors": 75 * MIB},
        completed=21,
        failed=2,
        latency=Latency(p50_seconds=0.1, p99_seconds=0.4, p100_seconds=0.5),
        ecc_uncorrected=2,
    )


def test_recent_readings_are_those_of_all_cores_since_the_last_call() -> None:
    usage = NeuronUsage(1)
    usage.add_report(decoded(report(runtime({0: 80, 1: 20}, {0: 1, 1: 1}))))
    usage.add_report(decoded(report()))
    for expected in (AverageAndMaximum(avg=50, max=80), NO_READINGS):
        readings = DeviceReadings()
        usage.take_readings("", readings)
        assert readings.neuron_percent.average_and_maximum() == expected


RECORD = Record(
    task_id="1",
    container=Container(name="batch"),
    status="success",
    sampling=Sampling(),
    monitor=Monitor(),
)


BUSY = decoded(report(runtime({0: 75.0, 1: 0}, {0: 10, 1: 0})))
NOTHING = decoded(
    {"neuron_runtime_data": [], "system_data": {"neuron_hw_counters": {"neuron_devices": None}}}
)


class CollectedReports:
    """A collector of reports that a test makes."""

    def __init__(self, *, installed: bool = True, is_required: bool = False) -> None:
        self.log = FakeLog()
        self.calls: list[str] = []
        self.source = source = cast(
            "Any",
            SimpleNamespace(is_installed=True, restarts=2, pid=4711, failure=None, outage=None),
        )
        source.start = lambda _: self.calls.append("start")
        source.stop = lambda _: self.calls.append("stop")
        self.collector = NeuronCollector(
            source if installed else None, 1, self.log, is_required=is_required
        )

    def report(self, *reports: NeuronReport) -> None:
        for one in reports:
            self.collector._on_report(one)

    def record(self) -> Record:
        return with_collected(RECORD, (self.collector,))


def test_the_record_has_what_was_reported() -> None:
    fakes = CollectedReports(is_required=True)
    fakes.collector.start()
    fakes.report(BUSY, BUSY)
    fakes.collector.final_reading(0.3)
    record = fakes.record()
    assert fakes.log.lines == []
    neuron = present(record.neuron)
    assert [core.index for core in neuron.cores] == [0, 1]
    assert neuron.restarts == 2
    assert present(neuron.cores[0].utilization_percent).avg == 75
    assert present(record.sampling).sources == ("neuron-monitor",)
    fakes.collector.stop(1)
    assert fakes.calls == ["start", "stop"]
    unrelated_children = UnrelatedChildren([7], Collectors(fakes.collector))
    assert [pid in unrelated_children for pid in (7, 4711, 8)] == [True, True, False]


def test_impossible_values_are_missing_and_counted_in_one_warning() -> None:
    """Every other report has a negative utilization, and a negative memory of the second process."""
    good = report(runtime({0: 30, 1: 0}, {0: 100}), runtime({0: 0, 1: 60}, {0: 4, 1: 200}))
    bad = report(runtime({0: -7.5, 1: 0}, {0: 100}), runtime({0: 0, 1: 60}, {0: 4, 1: 200}))
    process = bad["neuron_runtime_data"][1]["report"]
    process["memory_used"]["neuron_runtime_used_bytes"]["neuron_device"] = -4096
    fakes = CollectedReports()
    fakes.report(*[decoded(good), decoded(bad)] * 6)
    record = fakes.record()
    neuron = present(record.neuron)
    assert shown(core(neuron, 0).utilization_percent) == (30, 30)
    assert shown(core(neuron, 1).utilization_percent) == (60, 60)
    assert shown(core(neuron, 0).memory_used_mb) == (104, 104)
    assert shown(neuron.device_memory_used_mb) == (304, 304)
    assert present(neuron.executions).completed == 240
    assert present(record.monitor).warnings == (
        "neuron-monitor reported 12 values that cannot be: left out.",
    )


def test_a_core_with_an_impossible_category_has_no_smaller_memory() -> None:
    document = report(runtime({}, {0: 100, 1: 200}), runtime({}, {0: 4}))
    process = document["neuron_runtime_data"][0]["report"]["memory_used"]
    breakdown = process["neuron_runtime_used_bytes"]["usage_breakdown"]
    breakdown["neuroncore_memory_usage"]["0"]["tensors"] = -1
    usage = NeuronUsage(1)
    usage.add_report(decoded(document))
    latest = present(usage.latest())
    assert latest.core_memory_bytes == {1: 200 * MIB}
    assert latest.device_memory_bytes == 304 * MIB
    assert latest.memory_bytes_by_category == {"constants": 76 * MIB, "model_code": 0}


def test_without_a_device_there_is_neither_a_record_entry_nor_a_log_line() -> None:
    fakes = CollectedReports()
    fakes.collector.start()
    fakes.report(*[NOTHING] * 10)
    fakes.collector.final_reading(0.3)
    assert fakes.record() == RECORD
    assert fakes.log.lines == []


@pytest.mark.parametrize(
    ("is_installed", "reports", "reason"),
    [(True, 0, "no Neuron device"), (True, 10, "sees no device"), (False, 0, "is not installed")],
)
def test_missing_required_devices_are_reported_once_in_the_log_and_in_the_record(
    reports: int, reason: str, *, is_installed: bool
) -> None:
    fakes = CollectedReports(installed=is_installed, is_required=True)
    fakes.collector.start()
    fakes.report(*[NOTHING] * reports)
    fakes.collector.final_reading(0.3)
    fakes.collector.final_reading(0.3)
    fakes.collector.stop(1)
    (warning,) = fakes.log.events("warning")
    assert "TASK_PROFILER_NEURON=on, but nothing can be measured" in warning
    assert reason in warning
    assert fakes.collector.startup_error == warning
    assert fakes.record().monitor == Monitor(warnings=(warning,))
    assert fakes.collector.child_pid == (4711 if is_installed else None)
    fakes.report(BUSY)
    assert [
        *Collectors(fakes.collector).startup_errors(),
        *present(fakes.record().monitor).warnings,
    ] == []


def test_an_error_of_the_collector_is_named_and_checkpoints_have_no_cores() -> None:
    fakes = CollectedReports()
    fakes.collector.start()
    fakes.report(BUSY)
    fakes.source.failure = ThreadFailure(0, "KeyError: 'cores'")
    record = fakes.record()
    (warning,) = present(record.monitor).warnings
    assert "The collection of Neuron values stopped at 1970-" in warning
    checkpoint = with_collected(replace(RECORD, status="running"), (fakes.collector,))
    assert present(checkpoint.monitor).warnings == (warning,)
    assert record.neuron != NO_NEURON
    assert checkpoint.neuron == NO_NEURON
    assert fakes.collector.latest() is None


def test_a_neuron_monitor_that_ended_is_no_source_until_its_next_report() -> None:
    fakes = CollectedReports()
    fakes.source.outage = Outage(0, "it ended with exit code 1")
    assert fakes.record() == RECORD  # it never had values
    fakes.report(BUSY)
    record = fakes.record()
    assert record.neuron != NO_NEURON
    assert record.sampling == Sampling()
    assert present(record.monitor).warnings == (
        (
            "neuron-monitor stopped at 1970-01-01T00:00:00.000Z (it ended with exit code 1): the "
            "Neuron values end there."
        ),
    )
    assert with_collected(replace(RECORD, status="running"), (fakes.collector,)).neuron == NO_NEURON
    assert fakes.collector.latest() is None
    fakes.source.outage = None
    assert fakes.record().sampling == Sampling(sources=("neuron-monitor",))
