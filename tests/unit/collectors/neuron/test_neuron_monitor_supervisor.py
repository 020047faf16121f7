import json
import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.collectors.neuron.neuron_collector import NeuronUsage
from profiler.collectors.neuron.neuron_monitor_reports import Latency, NeuronReport, decode_report
from profiler.collectors.neuron.neuron_monitor_supervisor import LineSplitter, Supervision
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.record.record_model import Neuron
from tests.cases import each_case
from tests.fakes import seconds
from tests.neuron_documents import MIB, decoded, inf1_report, percentiles, report, runtime
from tests.values import any_json, mutated


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    splitter = LineSplitter()
    for _ in range(20):
        assert splitter.feed(b"x" * 2**20) == []
    assert len(splitter._rest) < 4 * 2**20
    assert splitter.feed(b"\nnext\n")[1:] == [b"next"]


@given(st.lists(st.binary(max_size=30)), st.lists(st.integers(0, 200)))
def test_any_chunking_of_a_stream_gives_the_same_lines(parts: list[bytes], cuts: list[int]) -> None:
    stream = b"\n".join(parts)
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    splitter = LineSplitter()
    lines = [line for start, end in pairwise(places) for line in splitter.feed(stream[start:end])]
    assert lines == [line for line in stream.split(b"\n")[:-1] if line]


def waits_after(*reports: int) -> list[float]:
    """The seconds from the end of each life, which prints so many reports, to the next start."""
    state, now_ns, waits = Supervision(1), 0, []
    for number in reports:
        state.on_started(now_ns)
        for _ in range(number):
            state.on_report(now_ns)
        state.on_exit(now_ns)
        waits.append((state.deadline_ns - now_ns) / NS_PER_SECOND)
        now_ns = state.deadline_ns
    assert state.starts == len(reports)
    return waits


def test_the_backoff_doubles_from_one_second_to_a_minute() -> None:
    """The backoff doubles from one second to a minute and ten reports in a row reset it."""
    assert waits_after(*[1] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert waits_after(9, 9, 10, 1) == [1, 2, 1, 2]


def test_silence_is_ten_seconds_or_five_periods_since_the_start_or_the_last_report() -> None:
    for period, silence in ((1, 10), (2, 10), (3, 15), (60, 300)):
        state = Supervision(period)
        state.on_started(0)
        for last_ns in (0, seconds(silence - 1)):
            assert state.deadline_ns == last_ns + seconds(silence)
            state.on_report(seconds(silence - 1))


def test_reads_a_report_of_runtime_1() -> None:
    parsed = decoded(inf1_report())
    (daemon,) = parsed.runtimes
    assert daemon.utilization_percent == {0: 42.0, 1: 43.0, 2: 44.0, 3: 45.0}
    assert daemon.core_memory_bytes == {}
    assert daemon.device_memory_bytes == 2 * MIB
    assert daemon.completed == 123
    assert daemon.failed == 2
    assert daemon.latency == Latency(p50_seconds=0.011, p99_seconds=0.012, p100_seconds=0.013)
    assert parsed.ecc_uncorrected == {0: 3}
    assert parsed.device_count is None
    assert parsed.device_memory_size_bytes is None


def test_the_device_latency_replaces_a_missing_total_latency() -> None:
    device = percentiles(0.1, 0.2, 0.3)
    for total in (None, {}, {"p50": None}):
        (process,) = decoded(
            report(runtime({}, {}, total_latency=total, device_latency=device))
        ).runtimes
        assert process.latency == Latency(p50_seconds=0.1, p99_seconds=0.2, p100_seconds=0.3)
    (idle,) = decoded(report(runtime({}, {}))).runtimes
    assert idle.latency == Latency()


@pytest.mark.parametrize("runtimes", [[], None, [{"pid": 1, "error": "", "report": {}}]])
def test_no_runtime_and_nothing_due_are_a_report_all_the_same(
    runtimes: object,
) -> None:
    """No runtime and one of which nothing was due are a report all the same."""
    assert decoded({**report(), "neuron_runtime_data": runtimes}).runtimes == ()


def test_an_error_of_the_hardware_or_a_runtime_is_reported() -> None:
    """Neither costs another field."""
    document = report(runtime({0: 50.0}, {0: 8}))
    document["neuron_hardware_info"]["error"] = "no device"
    document["neuron_runtime_data"][0]["error"] = "the process is gone"
    cores = document["neuron_runtime_data"][0]["report"]["neuroncore_counters"][
        "neuroncores_in_use"
    ]
    cores.update({"nc_v3.0": {"neuroncore_utilization": 5}, "1": None})
    parsed = decoded(document)
    assert parsed.device_count is None
    assert parsed.runtimes[0].utilization_percent == {0: 50.0}
    assert parsed.problems == ("the process is gone", "no device")


@pytest.mark.parametrize(
    ("given_percent", "percent"), [(100.00001, 100.0), (-0.5, 0.0), (0, 0.0), (55, 55.0)]
)
def test_rounded_utilization_is_within_0_to_100(given_percent: float, percent: float) -> None:
    parsed = decoded(report(runtime({3: given_percent}, {})))
    assert parsed.runtimes[0].utilization_percent == {3: percent}
    assert parsed.impossible == 0


WRONG_PLACES: dict[tuple[str, ...], dict[str, object]] = {
    ("neuroncore_counters", "neuroncores_in_use", "0", "neuroncore_utilization"): {
        "utilization_percent": {0: None, 1: 20.0}
    },
    ("neuroncore_counters", "period"): {"utilization_period_seconds": None},
    ("memory_used", "period"): {"memory_period_seconds": None},
    ("memory_used", "neuron_runtime_used_bytes", "neuron_device"): {"device_memory_bytes": None},
    ("execution_stats", "execution_summary", "completed"): {"completed": None},
    ("execution_stats", "execution_summary", "timed_out"): {"failed": 1},
    ("execution_stats", "latency_stats", "total_latency", "p50"): {
        "latency": Latency(p99_seconds=0.2, p100_seconds=0.3)
    },
}


@pytest.mark.diagonal
@pytest.mark.parametrize("wrong", [-4096, -7.5, 2**60, "12", True, [1]])
@pytest.mark.parametrize("path", WRONG_PLACES, ids="-".join)
def test_an_impossible_value_costs_itself_alone_and_is_counted(
    path: tuple[str, ...], wrong: object
) -> None:
    failed = {"completed_with_err": 1}
    latency = percentiles(0.1, 0.2, 0.3)
    document = report(
        runtime({0: 80, 1: 20}, {0: 4, 1: 8}, failed=failed, total_latency=latency), ecc={0: (1, 2)}
    )
    usual = decoded(document)
    part = document["neuron_runtime_data"][0]["report"]
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = wrong
    process = replace(usual.runtimes[0], **WRONG_PLACES[path])
    assert decoded(document) == replace(usual, runtimes=(process,), impossible=1)


def test_impossible_sizes_and_errors_of_devices_cost_themselves_alone() -> None:
    document = report(runtime({0: 50}, {0: 4}), ecc={0: (-1, 2), 1: (3, 4)})
    document["neuron_hardware_info"]["neuron_device_memory_size"] = -1
    document["system_data"]["neuron_hw_counters"]["neuron_devices"].append(
        {"neuron_device_index": -1, "mem_ecc_uncorrected": 5, "sram_ecc_uncorrected": 0}
    )
    usual = decoded(report(runtime({0: 50}, {0: 4}), ecc={1: (3, 4)}))
    assert decoded(document) == replace(usual, device_memory_size_bytes=None, impossible=3)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "Inf", "+Inf", "nan", "1e999"])
def test_a_number_that_json_does_not_have_costs_itself_alone(number: str) -> None:
    text = json.dumps(report(runtime({0: 30, 1: 61.5}, {0: 8}))).replace("61.5", number)
    parsed = decode_report(text.encode())
    assert isinstance(parsed, NeuronReport)
    assert parsed.runtimes[0].utilization_percent == {0: 30.0, 1: None}
    assert parsed.runtimes[0].completed == 10
    assert parsed.impossible == 1


PARTS = (
    "neuroncore_counters",
    "neuroncore_counters/neuroncores_in_use",
    "neuroncore_counters/neuroncores_in_use/0",
    "memory_used",
    "memory_used/neuron_runtime_used_bytes",
    "memory_used/neuron_runtime_used_bytes/usage_breakdown",
    "memory_used/neuron_runtime_used_bytes/usage_breakdown/neuroncore_memory_usage/0",
    "execution_stats/execution_summary",
    "execution_stats/latency_stats",
    "execution_stats/latency_stats/total_latency",
)


@each_case("wrong", ["n/a", 7, [None]])
@each_case("path", PARTS)
def test_a_part_of_another_type_costs_itself_alone(path: str, wrong: object) -> None:
    document = report(runtime({0: 80}, {0: 4}), runtime({0: 20, 1: 20}, {0: 4}), ecc={0: (1, 2)})
    usual = decoded(document)
    part: Any = document["neuron_runtime_data"][1]["report"]
    *names, last = path.split("/")
    for name in names:
        part = part[name]
    part[last] = wrong
    found = decoded(document)
    assert found.impossible == 1
    assert found.runtimes[0] == usual.runtimes[0]
    assert replace(found, runtimes=usual.runtimes, impossible=0) == usual
    # What the process used is not told by the other one.
    usage = NeuronUsage(1)
    usage.add_report(found)
    taken = usage.neuron_so_far(0)
    cores = [core.utilization_percent.max for core in taken.cores]
    is_use = path.startswith("neuroncore_counters")
    assert (80 in cores) is not is_use
    is_memory = path in PARTS[3:5]
    assert (taken.device_memory_used_mb.max is None) is is_memory


@pytest.mark.parametrize("wrong", [None, "n/a", {"error": "", "report": ["n/a"]}])
def test_a_process_without_a_report_leaves_the_use_of_the_cores_open(wrong: object) -> None:
    document = report(runtime({0: 80}, {0: 4}))
    document["neuron_runtime_data"].append(wrong)
    found = decoded(document)
    assert [process.problem for process in found.runtimes] == ["", "its report is malformed"]
    usage = NeuronUsage(1)
    usage.add_report(found)
    assert usage.neuron_so_far(0).cores == ()


def test_more_memory_than_the_devices_have_is_impossible() -> None:
    full = decoded(report(runtime({}, {0: 32 * 1024})))
    assert full.runtimes[0].device_memory_bytes == 32 * 1024 * MIB
    assert full.impossible == 0
    above = report(runtime({}, {0: 4}))
    used = above["neuron_runtime_data"][0]["report"]["memory_used"]["neuron_runtime_used_bytes"]
    used["neuron_device"] = 33 * 1024 * MIB
    assert decoded(above).runtimes[0].device_memory_bytes is None
    assert decoded(above).impossible == 1


def test_unknown_categories_of_memory_count_and_an_impossible_one_leaves_no_smaller_sum() -> None:
    document = report(runtime({}, {0: 4}))
    breakdown = document["neuron_runtime_data"][0]["report"]["memory_used"][
        "neuron_runtime_used_bytes"
    ]
    breakdown["usage_breakdown"]["neuroncore_memory_usage"] = {
        "0": {"constants": 100, "collectives": 20, "new": {"a": 1}},
        "1": {"constants": 3},
        "2": None,
        "3": {"constants": 5, "odd": 2**60},
    }
    parsed = decoded(document)
    (process,) = parsed.runtimes
    assert process.core_memory_bytes == {0: 120, 1: 3, 3: None}
    assert process.memory_bytes_by_category == {"constants": 108, "collectives": 20, "odd": None}
    assert parsed.impossible == 1


@each_case(
    "line",
    [
        *(
            b"",
            b"{",
            b"null",
            b"[1]",
            b"{}",
            b'{"usage": 1}',
            b"\xff",
            b"Usage of neuron-monitor:",
            b"[" * 100_000,
        ),
        *(
            b'{"other":' + b"[" * 100_000,
            b'{"neuron_runtime_data":[{"error":"\xff"}]}',
            b'{"system_data": 1e999}',
        ),
    ],
)
def test_a_line_that_is_not_a_report_gives_a_reason(line: bytes) -> None:
    assert isinstance(decode_report(line), Unavailable)


two_runtimes = report(
    runtime({0: 9.5, 1: 0}, {0: 1, 1: 0}, total_latency=percentiles(0.1, 0.2, 0.3)),
    runtime({0: 0, 1: 3}, {0: 0, 1: 2}),
    ecc={0: (0, 1)},
)


@given(st.lists(mutated(two_runtimes, inf1_report()) | any_json, max_size=4))
def test_any_json_gives_reports_or_reasons_and_a_record_that_can_be_written(
    documents: list[Any],
) -> None:
    usage = NeuronUsage(1)
    for document in documents:
        parsed = decode_report(json.dumps(document).encode())
        assert isinstance(parsed, NeuronReport | Unavailable)
        if isinstance(parsed, NeuronReport):
            usage.add_report(parsed)
    record = usage.neuron_so_far(restarts=0)
    for number in numbers(json.loads(msgspec.json.encode(record))):
        assert math.isfinite(number)
        assert number >= 0
    assert msgspec.json.decode(msgspec.json.encode(record), type=Neuron) == record


def numbers(value: Any) -> list[float]:
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return (
        [value]
        if isinstance(value, int | float)
        else [number for child in children for number in numbers(child)]
    )
