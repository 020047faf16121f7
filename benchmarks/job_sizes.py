"""Measure ``taskdef resize --job-definition`` in an account with many job definitions of AWS Batch,
whose double throttles.

    python -m benchmarks.job_sizes [--definitions 500] [--runs 100000] [--json FILE]

The double of Batch answers a number of calls at once, and so many a second: more are throttled.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.measured_process import process_figures
from benchmarks.resize_windows import write_runs
from tests.fake_batch import BatchError, FakeBatch
from tools.moto_server import fake_aws

_CALLS_AT_ONCE = 20
_CALLS_A_SECOND = 5
_MAX_CPU_SECONDS = 60.0
_MAX_MEMORY_MIB = 400.0
_REGION, _ACCOUNT = "us-east-1", "123456789012"


class ThrottlingBatch(FakeBatch):
    """Answers a bounded number of calls a second. ``refused_calls`` counts the others."""

    def __init__(self) -> None:
        super().__init__()
        self._tokens = float(_CALLS_AT_ONCE)
        self._filled_s = time.monotonic()
        self.refused_calls = 0

    def _check(self, model: Any, asked: dict[str, Any]) -> None:  # noqa: ANN401  botocore's
        now_s = time.monotonic()
        filled = self._tokens + (now_s - self._filled_s) * _CALLS_A_SECOND
        self._tokens = min(filled, _CALLS_AT_ONCE)
        self._filled_s = now_s
        if self._tokens < 1:
            self.refused_calls += 1
            raise BatchError("TooManyRequestsException", "Too Many Requests")
        self._tokens -= 1
        super()._check(model, asked)


def measure(definitions: int, runs: int) -> BenchmarkResult:
    """Plan the sizes of all definitions, of which each tenth has three active revisions."""
    with tempfile.TemporaryDirectory() as folder, fake_aws() as aws, ThrottlingBatch() as batch:
        file = Path(folder) / "runs.jsonl"
        write_runs(file, definitions, runs, time.time_ns(), of_jobs=True)
        for number in range(definitions):
            for _ in range(3):
                batch.define(f"family-{number}", 1, 4096)
        _move(batch)
        environment = {**aws.environment(), **batch.environment()}
        command = [sys.executable, "-m", "profiler", "taskdef", "resize", "--json"]
        command += ["--from", str(file), "--job-definition", "*"]
        name = f"plan of {definitions:,} job definitions, {runs:,} runs"
        figures = process_figures(
            name,
            command,
            environment=environment,
            max_cpu_seconds=_MAX_CPU_SECONDS,
            max_memory_mib=_MAX_MEMORY_MIB,
        )
        calls = len(batch.requests("DescribeJobDefinitions"))
    figures.append(Figure("calls of Batch", calls, "", digits=0, at_most=2.0 * definitions))
    figures.append(Figure("throttled calls", batch.refused_calls, "", digits=0, at_most=0))
    return BenchmarkResult("Job definitions of AWS Batch", figures=tuple(figures))


def _move(batch: FakeBatch) -> None:
    """Let the definitions be where the runs were."""
    for one in batch.definitions:
        parts = one["jobDefinitionArn"].split(":")
        one["jobDefinitionArn"] = ":".join([*parts[:3], _REGION, _ACCOUNT, *parts[5:]])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--definitions", type=int, default=500)
    parser.add_argument("--runs", type=int, default=100_000, help="of all definitions together")
    options = parser.parse_args(arguments)
    result = measure(options.definitions, options.runs)
    result.print_and_save(options.json)


if __name__ == "__main__":
    main()
