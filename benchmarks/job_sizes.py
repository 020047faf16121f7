"""Measure ``taskdef resize --job-definition`` in an account with many job definitions of AWS Batch,
whose double throttles.

    python -m benchmarks.job_sizes [--definitions 500] [--runs 100000] [--json FILE]

The double of Batch answers a number of calls at once, and so many a second: more are throttled.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.measured_process import process_figures
from benchmarks.resize_windows import write_runs
from tools.moto_server import fake_aws

_CALLS_AT_ONCE = 20
_CALLS_A_SECOND = 5
_MAX_CPU_SECONDS = 60.0
_MAX_MEMORY_MIB = 600.0
_REVISIONS = 3
_PAGE = 100
_ARN = "arn:aws:batch:us-east-1:123456789012:job-definition"


class ThrottlingBatch:
    """Answers DescribeJobDefinitions, a bounded number of calls a second; counts both."""

    def __init__(self, definitions: int) -> None:
        self.calls = 0
        self.throttled = 0
        self._jobs = [
            _definition(f"family-{number}", revision)
            for number in range(definitions)
            for revision in range(1, _REVISIONS + 1)
        ]
        self._left = float(_CALLS_AT_ONCE)
        self._filled_s = time.monotonic()

    def answer(self, asked: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """The status and the body."""
        self.calls += 1
        now_s = time.monotonic()
        self._left += (now_s - self._filled_s) * _CALLS_A_SECOND
        self._left = min(self._left, _CALLS_AT_ONCE)
        self._filled_s = now_s
        if self._left < 1:
            self.throttled += 1
            return HTTPStatus.TOO_MANY_REQUESTS, {"message": "Too Many Requests"}
        self._left -= 1
        name = asked.get("jobDefinitionName")
        found = [one for one in self._jobs if name in (None, one["jobDefinitionName"])]
        start = int(asked.get("nextToken", 0))
        page: dict[str, Any] = {"jobDefinitions": found[start : start + _PAGE]}
        if start + _PAGE < len(found):
            page["nextToken"] = str(start + _PAGE)
        return HTTPStatus.OK, page


@contextmanager
def batch_server(batch: ThrottlingBatch) -> Iterator[str]:
    """The address of a server that answers as Batch."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, body = batch.answer(json.loads(self.rfile.read(length) or b"{}"))
            written = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            if status != HTTPStatus.OK:
                self.send_header("x-amzn-ErrorType", "TooManyRequestsException")
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _definition(name: str, revision: int) -> Mapping[str, Any]:
    sizes = (("VCPU", "1"), ("MEMORY", "4096"))
    container = {
        "image": "etl:26",
        "resourceRequirements": [{"type": kind, "value": value} for kind, value in sizes],
    }
    return {
        "jobDefinitionName": name,
        "jobDefinitionArn": f"{_ARN}/{name}:{revision}",
        "revision": revision,
        "status": "ACTIVE",
        "type": "container",
        "platformCapabilities": ["FARGATE"],
        "containerProperties": container,
        "tags": {},
    }


def measure(definitions: int, runs: int) -> BenchmarkResult:
    """Plan the sizes of all definitions, each with three active revisions."""
    batch = ThrottlingBatch(definitions)
    with tempfile.TemporaryDirectory() as folder, fake_aws() as aws, batch_server(batch) as url:
        file = Path(folder) / "runs.jsonl"
        write_runs(file, definitions, runs, time.time_ns(), of_jobs=True)
        command = [sys.executable, "-m", "profiler", "taskdef", "resize", "--json"]
        command += ["--from", str(file), "--job-definition", "*"]
        figures = process_figures(
            f"plan of {definitions:,} job definitions, {runs:,} runs",
            command,
            environment={**aws.environment(), "AWS_ENDPOINT_URL_BATCH": url},
            max_cpu_seconds=_MAX_CPU_SECONDS,
            max_memory_mib=_MAX_MEMORY_MIB,
        )
    figures.append(Figure("calls of Batch", batch.calls, "", digits=0, at_most=2.0 * definitions))
    figures.append(Figure("throttled calls", batch.throttled, "", digits=0, at_most=0))
    return BenchmarkResult("Job definitions of AWS Batch", figures=tuple(figures))


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
