"""Measure the throughput of the forwarder, and check that it neither loses nor duplicates
documents.

    python -m benchmarks.forwarder [--reports 100000] [--json FILE]

Decode and map: CPU time from compressed payload to documents, without and with curves.
The whole handler: CPU time of ``forward_logs``, from the event to the answers of the cluster.
Import: wall and CPU time of ``import handler`` in a new process, from the unpacked zip.
Delivery: reports into a real Elasticsearch that is killed and restarted halfway, in events of a
subscription and in events of a data stream.
"""

import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import requests
from msgspec.structs import replace

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.subscription import (
    LOG_GROUP,
    Invocation,
    install_templates,
    kinesis_event,
    load_handler,
    own_stream,
    subscription_event,
    written_ms,
)
from benchmarks.whole_handler import measure_handler
from profiler.aws_account.setup.forwarder_zip import build_zip
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.subscription import (  # benchmarks.subscription adds lambda/ to the path
    LogEvent,
    decode_subscription_event,
    document_of_log_event,
)
from profiler.record.equal_steps import rounded_column
from profiler.record.record_model import Report, Series, encode
from tools.fleet import Fleet, generate_runs
from tools.search_engines import VERSION_8, running_elasticsearch
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

_EVENTS_PER_PAYLOAD, _EVENTS_PER_REQUEST = 100, 500
_MAPPED_REPORTS = 10_000
_MIN_REPORTS_PER_SECOND = 5000
_STEPS = 120  # the most of a record with the monitor's default settings
_MAX_IMPORT_SECONDS = 0.6
_IMPORT_RUNS = 7


def encode_reports(reports: int, *, steps: int = 0) -> list[str]:
    """The lines of this many reports of a simulated fleet, with curves of so many steps."""
    rng = random.Random(7)
    lines = []
    for report in generate_runs(Fleet(runs_per_day=reports, days=1)):
        record = replace(report.record, series=_curves(report, steps, rng) if steps else None)
        lines.append(encode(replace(report, record=record)).decode())
    return lines


def _curves(report: Report, steps: int, rng: random.Random) -> Series:
    """Curves of any values, rounded as the monitor's: real ones repeat values, and are compressed
    better.
    """
    return Series(
        started_at=report.time,
        step_ms=1000,
        vcpu_used=rounded_column(rng.uniform(0, 4) for _ in range(steps)),
        memory_used_mb=rounded_column(rng.uniform(100, 8000) for _ in range(steps)),
    )


def measure_decode_and_map(reports: int, *, steps: int = 0) -> float:
    """Measure reports per second of CPU time."""
    lines = encode_reports(reports, steps=steps)
    streams = [own_stream(line) for line in lines]
    events = [
        subscription_event(
            lines[first : first + _EVENTS_PER_PAYLOAD],
            stream=streams[first],
            timestamp_ms=written_ms(lines[first]),
        )
        for first in range(0, reports, _EVENTS_PER_PAYLOAD)
    ]
    settings = ForwarderSettings()
    indexed = 0
    started_at = time.process_time()
    for number, payload in enumerate(events):
        decoded = decode_subscription_event(payload)
        for position, line in enumerate(decoded.log_events_or_failures()):
            # Each report is in the stream of its own task.
            stream = streams[number * _EVENTS_PER_PAYLOAD + position]
            trust = settings.trusted_groups.trust_in_stream(
                decoded.owner, decoded.log_group, stream
            )
            if isinstance(line, LogEvent):
                result = document_of_log_event(decoded, line, settings, trust)
                indexed += isinstance(result, Document)
    ours = reports / (time.process_time() - started_at)
    if indexed != reports:
        raise SystemExit(f"Only {indexed} of {reports} reports became documents.")
    return ours


def measure_cold_import(modules: str) -> tuple[float, float]:
    """Measure the import of these modules in a new process, without bytecode files.

    Returns:
        The medians of wall time and CPU time, in seconds.
    """
    with tempfile.TemporaryDirectory(prefix="bench-zip-") as name:
        folder = Path(name)
        build_zip(folder / "forwarder.zip")
        with zipfile.ZipFile(folder / "forwarder.zip") as archive:
            archive.extractall(folder / "task")
        code = (
            f"import sys, time; sys.path.insert(0, {str(folder / 'task')!r}); "
            f"t, c = time.perf_counter(), time.process_time(); import {modules}; "
            "print(time.perf_counter() - t, time.process_time() - c)"
        )
        command = [sys.executable, "-I", "-B", "-c", code]
        runs = [
            subprocess.run(command, check=True, capture_output=True, text=True)
            for _ in range(_IMPORT_RUNS)
        ]
    wall, cpu = zip(*(map(float, run.stdout.split()) for run in runs), strict=True)
    return statistics.median(wall), statistics.median(cpu)


def as_subscription(lines: Sequence[str]) -> dict[str, Any]:
    """One event of a subscription, with all lines in one log stream of a trusted log group."""
    return subscription_event(lines, stream="fleet", timestamp_ms=written_ms(lines[0]))


def as_stream(lines: Sequence[str]) -> dict[str, Any]:
    """One event of a data stream, with a record for each line."""
    return kinesis_event(lines, timestamp_ms=written_ms(lines[0]))


def measure_deliveries(reports: int) -> dict[str, tuple[float, int]]:
    """Send reports to an Elasticsearch that is killed halfway, in both kinds of events.

    Returns:
        Reports per second and the final number of documents, by kind of event.
    """
    lines = encode_reports(reports)
    results = {}
    with running_elasticsearch(VERSION_8) as server:
        install_templates(server.url)
        os.environ["ELASTICSEARCH_URL"] = server.url
        os.environ["TRUSTED_LOG_GROUPS"] = LOG_GROUP
        for way, make_event in (("subscription", as_subscription), ("data stream", as_stream)):
            elapsed_seconds = _send_through_a_crash(server, lines, make_event)
            requests.post(
                f"{server.url}/task-reports-*/_refresh", timeout=LIMIT_SECONDS
            ).raise_for_status()
            count = requests.get(
                f"{server.url}/task-reports-*/_count", timeout=LIMIT_SECONDS
            ).json()["count"]
            results[way] = (reports / elapsed_seconds, int(count))
            print(
                f"{way}: {count:,} of {reports:,} reports in {elapsed_seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )
            for index in requests.get(f"{server.url}/task-*", timeout=LIMIT_SECONDS).json():
                requests.delete(f"{server.url}/{index}", timeout=LIMIT_SECONDS).raise_for_status()
    return results


def _send_through_a_crash(
    server: SearchServer,
    lines: Sequence[str],
    make_event: Callable[[Sequence[str]], dict[str, Any]],
) -> float:
    forward = load_handler()
    restart = threading.Thread(target=server.restart)  # restart() kills the server first
    started_at = time.monotonic()
    for first in range(0, len(lines), _EVENTS_PER_REQUEST):
        if first <= len(lines) // 2 < first + _EVENTS_PER_REQUEST:
            restart.start()
        response = forward(make_event(lines[first : first + _EVENTS_PER_REQUEST]), Invocation())
        if response.get("failed") or response.get("batchItemFailures"):
            raise SystemExit(f"The forwarder did not index all lines: {response}.")
    restart.join()
    return time.monotonic() - started_at


def measure(reports: int) -> tuple[Figure, ...]:
    """Run all measurements."""
    decoded_a_second = measure_decode_and_map(_MAPPED_REPORTS)
    decoded_with_curves = measure_decode_and_map(_MAPPED_REPORTS, steps=_STEPS)
    lines = encode_reports(_MAPPED_REPORTS)
    by_subscription = measure_handler(lines, as_subscription)
    by_stream = measure_handler(lines, as_stream)
    with_curves = measure_handler(encode_reports(_MAPPED_REPORTS, steps=_STEPS), as_subscription)
    handler_seconds, handler_cpu_seconds = measure_cold_import("handler")
    client_seconds, client_cpu_seconds = measure_cold_import(
        "handler, profiler.forwarder.search_cluster.elasticsearch"
    )
    delivered = measure_deliveries(reports)
    return (
        Figure(
            "decode and map",
            decoded_a_second,
            "reports/s per core",
            digits=0,
            at_least=_MIN_REPORTS_PER_SECOND,
        ),
        Figure(
            f"the same, of reports with curves of {_STEPS} steps",
            decoded_with_curves,
            "reports/s per core",
            digits=0,
            at_least=_MIN_REPORTS_PER_SECOND,
        ),
        Figure(
            "the whole handler, by subscription",
            by_subscription,
            "reports/s per core",
            digits=0,
            at_least=_MIN_REPORTS_PER_SECOND,
            note="with the client, compression and answers; without network and cluster",
        ),
        Figure(
            "the same, by data stream, with a report in each record",
            by_stream,
            "reports/s per core",
            digits=0,
        ),
        Figure(
            f"the same, by subscription, of reports with curves of {_STEPS} steps",
            with_curves,
            "reports/s per core",
            digits=0,
        ),
        Figure("cold import of the handler", handler_seconds, "s", at_most=_MAX_IMPORT_SECONDS),
        Figure("the same, CPU time", handler_cpu_seconds, "s", at_most=_MAX_IMPORT_SECONDS),
        Figure(
            "cold import with the Elasticsearch client",
            client_seconds,
            "s",
            note="imported at the first event",
        ),
        Figure("the same with the client, CPU time", client_cpu_seconds, "s"),
        *(
            figure
            for way, (rate, count) in delivered.items()
            for figure in _delivery_figures(way, rate, count, reports)
        ),
    )


def _delivery_figures(way: str, rate: float, count: int, reports: int) -> tuple[Figure, ...]:
    return (
        Figure(
            f"delivery by {way} to a real Elasticsearch that is killed halfway",
            rate,
            "reports/s",
            digits=0,
            note="handler, server and restart share the cores",
        ),
        Figure(
            f"documents lost or duplicated, by {way}",
            abs(count - reports),
            f"of {reports:,}",
            digits=0,
            at_most=0,
        ),
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--reports", type=int, default=100_000, help="reports to deliver to the real server"
    )
    options = parser.parse_args(arguments)
    BenchmarkResult("Forwarder", figures=measure(options.reports)).print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
