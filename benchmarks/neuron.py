"""Measure the cost of a report of neuron-monitor, with the size of a trn1n.32xlarge that runs 32 processes.

    python -m benchmarks.neuron [--lines 100000] [--json FILE]

CPU: the time for one line of 450 kB, from the chunks of the pipe to the aggregates. ``json.loads`` of the same line is
measured in the same run, so that the ratio is valid on any machine. Memory: resident memory after the first thousand
lines and after the last.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, print_and_save
from benchmarks.measured_process import read_memory
from profiler.collectors.neuron.neuron_monitor_process import LineSplitter
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report
from profiler.collectors.neuron.neuron_usage import NeuronUsage
from tests.neuron_documents import percentiles, report, runtime

_CORES = 32
_LINE_BYTES = 450_000
_CHUNK_BYTES = 64 * 1024  # maximum size of one read from a pipe
_REPETITIONS = 200
_DISTINCT_LINES = 50
_WARM_UP_LINES = 1000
_MAX_LINE_MS = 10
_MAX_GROWTH_MIB = 1


@dataclass(frozen=True)
class Costs:
    """CPU time per line in milliseconds (medians), and resident memory in MiB."""

    line_bytes: int
    split_ms: float
    decode_ms: float
    aggregate_ms: float
    json_loads_ms: float
    lines: int
    warm_up_mib: float
    final_mib: float

    @property
    def line_ms(self) -> float:
        """Total CPU time of a line."""
        return self.split_ms + self.decode_ms + self.aggregate_ms


def make_line(step: int) -> bytes:
    """Generate one report of 32 processes. Each process uses one core, lists all cores, and has loaded models."""
    processes = [
        runtime(
            {core: (37 * step + 13 * core) % 1000 / 10 if core == owner else 0 for core in range(_CORES)},
            {core: 1000 + (71 * step + core) % 500 if core == owner else 0 for core in range(_CORES)},
            pid=1000 + owner,
            total_latency=percentiles(0.001, 0.002, 0.003),
        )
        for owner in range(_CORES)
    ]
    document = report(*processes, ecc=dict.fromkeys(range(16), (0, 0)))
    models_bytes = (_LINE_BYTES - len(json.dumps(document))) // _CORES
    for process in processes:
        process["report"]["memory_used"]["loaded_models"] = _loaded_models(models_bytes)
    return json.dumps(document).encode() + b"\n"


def _loaded_models(size_bytes: int) -> list[object]:
    used = {"constants": 98304, "model_code": 53632, "runtime_memory": 0, "tensors": 0}
    model = {
        "name": "/opt/cache/neuron-compile-cache/MODULE_13190871343506053659/MODULE_1_SyncTensorsGraph.387",
        "uuid": "2b28572e7dd811edb0250e0372b2eb59",
        "is_running": False,
        "subgraphs": {
            "sg_00": {
                "memory_used_bytes": {
                    "host": 20608,
                    "neuron_device": 151936,
                    "usage_breakdown": {"neuron_device": used},
                },
                "neuroncore_index": 0,
                "neuron_device_index": 0,
            }
        },
    }
    return [model] * (size_bytes // len(json.dumps(model)))


def cpu_ms(function: Callable[[], object]) -> float:
    """The median CPU time of a call."""
    times_ns = []
    for _ in range(_REPETITIONS):
        started_ns = time.process_time_ns()
        function()
        times_ns.append(time.process_time_ns() - started_ns)
    return statistics.median(times_ns) / 1e6


def split_lines(splitter: LineSplitter, stream: bytes) -> Iterator[bytes]:
    """Split a stream into lines, in chunks as from a pipe."""
    for start in range(0, len(stream), _CHUNK_BYTES):
        yield from splitter.feed(stream[start : start + _CHUNK_BYTES])


def decode(line: bytes) -> NeuronReport:
    """Decode a line. The benchmark's lines are valid."""
    parsed = decode_report(line)
    if not isinstance(parsed, NeuronReport):
        raise SystemExit(f"The benchmark's line is not a valid report: {parsed.reason}.")
    return parsed


def measure(lines: int) -> Costs:
    """Measure each step alone, then the memory over this many lines."""
    streams = [make_line(step) for step in range(_DISTINCT_LINES)]
    splitter, usage = LineSplitter(), NeuronUsage(1)
    line = streams[0].rstrip()
    parsed = decode(line)
    split_ms = cpu_ms(lambda: list(split_lines(splitter, streams[0])))
    decode_ms = cpu_ms(lambda: decode_report(line))
    aggregate_ms = cpu_ms(lambda: usage.add(parsed))
    json_loads_ms = cpu_ms(lambda: json.loads(line))
    warm_up_mib = read_memory(os.getpid()).rss_mib
    for number in range(lines):
        for received in split_lines(splitter, streams[number % _DISTINCT_LINES]):
            usage.add(decode(received))
        if number == _WARM_UP_LINES:
            warm_up_mib = read_memory(os.getpid()).rss_mib
    return Costs(
        line_bytes=len(line),
        split_ms=split_ms,
        decode_ms=decode_ms,
        aggregate_ms=aggregate_ms,
        json_loads_ms=json_loads_ms,
        lines=lines,
        warm_up_mib=warm_up_mib,
        final_mib=read_memory(os.getpid()).rss_mib,
    )


def figures(costs: Costs) -> tuple[Figure, ...]:
    """The figures of the steps and of memory."""
    return (
        *(
            Figure(name=f"{name} one line of {costs.line_bytes:,} bytes", value=value, unit="ms of a core")
            for name, value in (
                ("split", costs.split_ms),
                ("decode", costs.decode_ms),
                ("aggregate", costs.aggregate_ms),
            )
        ),
        Figure(name="total", value=costs.line_ms, unit="ms of a core", at_most=_MAX_LINE_MS),
        Figure(name="ratio to json.loads alone", value=costs.line_ms / costs.json_loads_ms, unit="×"),
        Figure(
            name=f"growth of resident memory over {costs.lines:,} lines",
            value=costs.final_mib - costs.warm_up_mib,
            unit="MiB",
            digits=1,
            at_most=_MAX_GROWTH_MIB,
            note=f"{costs.warm_up_mib:.1f} MiB after the first {min(_WARM_UP_LINES, costs.lines):,}",
        ),
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description="Measure the cost of neuron-monitor's reports.")
    parser.add_argument("--lines", type=int, default=100_000, help="lines for the memory measurement")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    print_and_save(BenchmarkResult(title="AWS Neuron", figures=figures(measure(options.lines))), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
