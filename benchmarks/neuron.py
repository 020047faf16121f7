"""What a report of neuron-monitor costs, at the size of a trn1n.32xlarge with 32 processes.

    python -m benchmarks.neuron [--lines 100000] [--json FILE]

CPU time of one line of 450 kB from the pipe's chunks to the aggregates, against a plain
``json.loads`` of the same line in the same run, so that the ratio holds on any machine; and resident
memory after the first thousand lines and after the last.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Part, tell
from profiler.collectors.neuron.process import LineSplitter
from profiler.collectors.neuron.reports import NeuronReport, decode_report
from profiler.collectors.neuron.usage import NeuronUsage
from tests.neuron_documents import percentiles, report, runtime

_CORES = 32
_LINE_BYTES = 450_000
_CHUNK_BYTES = 64 * 1024  # what one read of a pipe gives
_ROUNDS = 200
_DISTINCT_LINES = 50
_SETTLED_LINES = 1000
_MIB = 2**20
_LINE_MS_FIGURE = 10
_GROWTH_MIB_FIGURE = 1


@dataclass(frozen=True)
class Costs:
    """Milliseconds of CPU time a line (medians), and MiB."""

    line_bytes: int
    split_ms: float
    decode_ms: float
    aggregate_ms: float
    json_loads_ms: float
    lines: int
    settled_mib: float
    final_mib: float

    @property
    def line_ms(self) -> float:
        """All that is done with a line."""
        return self.split_ms + self.decode_ms + self.aggregate_ms


def line(step: int) -> bytes:
    """One report: each of 32 processes owns a core, lists all, and has loaded models."""
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
        process["report"]["memory_used"]["loaded_models"] = _models(models_bytes)
    return json.dumps(document).encode() + b"\n"


def _models(size_bytes: int) -> list[object]:
    used = {"constants": 98304, "model_code": 53632, "runtime_memory": 0, "tensors": 0}
    model = {
        "name": "/var/tmp/neuron-compile-cache/MODULE_13190871343506053659/MODULE_1_SyncTensorsGraph.387",  # noqa: S108  a name in a document
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


def resident_mib() -> float:
    """VmRSS."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(row.split()[1]) for row in status if row.startswith("VmRSS")) / 1024


def cpu_ms(function: Callable[[], object]) -> float:
    """CPU time of one call, the median of many."""
    taken = []
    for _ in range(_ROUNDS):
        began = time.process_time_ns()
        function()
        taken.append(time.process_time_ns() - began)
    return statistics.median(taken) / 1e6


def split(splitter: LineSplitter, stream: bytes) -> Iterator[bytes]:
    """The lines of a stream as a pipe gives it."""
    for start in range(0, len(stream), _CHUNK_BYTES):
        yield from splitter.feed(stream[start : start + _CHUNK_BYTES])


def decoded(text: bytes) -> NeuronReport:
    """The report; the benchmark's own lines have no faults."""
    parsed = decode_report(text)
    if not isinstance(parsed, NeuronReport):
        raise SystemExit(f"The benchmark's line is no report: {parsed.reason}.")
    return parsed


def measure(lines: int) -> Costs:
    """Each step alone, then all of them over so many lines."""
    streams = [line(step) for step in range(_DISTINCT_LINES)]
    splitter, usage = LineSplitter(), NeuronUsage(1)
    text = streams[0].rstrip()
    parsed = decoded(text)
    split_ms = cpu_ms(lambda: list(split(splitter, streams[0])))
    decode_ms = cpu_ms(lambda: decode_report(text))
    aggregate_ms = cpu_ms(lambda: usage.add(parsed))
    json_loads_ms = cpu_ms(lambda: json.loads(text))
    settled_mib = resident_mib()
    for number in range(lines):
        for whole in split(splitter, streams[number % _DISTINCT_LINES]):
            usage.add(decoded(whole))
        if number == _SETTLED_LINES:
            settled_mib = resident_mib()
    return Costs(
        line_bytes=len(text),
        split_ms=split_ms,
        decode_ms=decode_ms,
        aggregate_ms=aggregate_ms,
        json_loads_ms=json_loads_ms,
        lines=lines,
        settled_mib=settled_mib,
        final_mib=resident_mib(),
    )


def figures(costs: Costs) -> tuple[Figure, ...]:
    """A line's steps, and memory over all lines."""
    return (
        *(
            Figure(what=f"{what} a line of {costs.line_bytes:,} bytes", value=value, unit="ms of a core")
            for what, value in (
                ("split", costs.split_ms),
                ("decode", costs.decode_ms),
                ("aggregate", costs.aggregate_ms),
            )
        ),
        Figure(what="all of these", value=costs.line_ms, unit="ms of a core", at_most=_LINE_MS_FIGURE),
        Figure(what="ratio to json.loads alone", value=costs.line_ms / costs.json_loads_ms, unit="×"),
        Figure(
            what=f"growth of resident memory over {costs.lines:,} lines",
            value=costs.final_mib - costs.settled_mib,
            unit="MiB",
            digits=1,
            at_most=_GROWTH_MIB_FIGURE,
            note=f"{costs.settled_mib:.1f} MiB after the first {min(_SETTLED_LINES, costs.lines):,}",
        ),
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure what neuron-monitor's reports cost.")
    parser.add_argument("--lines", type=int, default=100_000, help="how many lines memory is watched over")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    tell(Part(title="AWS Neuron", figures=figures(measure(options.lines))), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
