"""Forward a month of a simulated fleet to a real Elasticsearch: measure index sizes, rates and dashboard times.

    python -m benchmarks.scale [--sizes 10000,100000,1000000] [--codec CODEC] [--json FILE]

The cluster is empty at the start of each size. All lines go through the Lambda handler in this process. Each run has
its own log stream. So a subscription delivers one report per event: this is measured with the first thousand reports.
All others arrive as from a data stream: events of 500 records with one report each. One run in fifty includes its
checkpoints, in events of their own.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import requests
from msgspec import Struct

from benchmarks.figures import markdown_table
from benchmarks.machine import describe
from benchmarks.panels import DashboardView, PanelTime, time_panels
from benchmarks.subscription import BulkRequests, Invocation, install_templates, load_handler, stream_event
from benchmarks.subscription import event as subscription_event
from profiler.record.record_model import Report, encode
from tests.search.elasticsearch import VERSION_8, running_elasticsearch
from tools.fleet import Fleet, runs
from tools.fleet_record import checkpoints

_DAYS = 30
_SINGLE_EVENTS = 1000
_LINES_PER_EVENT = 500
_CHECKPOINTS_EVERY = 50
_LONG_RUN_MS = 600_000
_PROGRESS_EVERY = 50_000
_TIMEOUT_SECONDS = 1800
_RECOMMEND_ROUNDS = 5
_TIMESTAMP_MS = 1_793_491_200_000
# A node of a small production cluster. The test server has 256 MB and no optimising compiler.
_JAVA_OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:-UsePerfData")


class IndexSize(Struct, frozen=True, kw_only=True):
    """Size of the primary shards on disk, before and after a force merge to one segment."""

    kind: str
    documents: int
    line_bytes: float
    store_bytes: int
    segments: int
    merged_bytes: int
    merge_seconds: float


class Measurement(Struct, frozen=True, kw_only=True):
    """The results of one size.

    ``*_rate`` are reports per second of the handler's wall time, ``stream_cpu_rate`` of its CPU time, and
    ``*_requests`` bulk requests per second. ``direct`` is one report per event, ``stream`` 500 records per event.
    ``recommend_seconds`` is the wall time of ``task-profiler recommend`` for all families.
    """

    reports: int
    single_event_ms: float
    single_event_cpu_ms: float
    direct_rate: float
    direct_requests: float
    stream_rate: float
    stream_cpu_rate: float
    stream_requests: float
    recommend_seconds: float
    indices: tuple[IndexSize, ...]
    panels: tuple[PanelTime, ...]


class _Sent(Struct, frozen=True):
    """The documents and bulk requests of some events, and the handler's time for them."""

    documents: int
    requests: int
    wall_seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Documents per second."""
        return self.documents / self.wall_seconds

    @property
    def requests_per_second(self) -> float:
        """Bulk requests per second."""
        return self.requests / self.wall_seconds


class _Forwarder:
    """Sends lines through the handler and counts them."""

    def __init__(self) -> None:
        self._handler = load_handler()
        self._requests = BulkRequests()
        self.lines = {"reports": 0, "checkpoints": 0}
        self.bytes = {"reports": 0, "checkpoints": 0}
        self.example: Report | None = None

    def send(self, kind: str, lines: Sequence[str], event: Mapping[str, Any], complete: Mapping[str, object]) -> None:
        """Send one event. Raises SystemExit if the handler does not index all lines."""
        response = self._handler(event, Invocation())
        if response != complete:
            raise SystemExit(f"The forwarder did not index all of {len(lines)} {kind}: {response}.")
        self.lines[kind] += len(lines)
        self.bytes[kind] += sum(len(line) for line in lines)

    def send_direct(self, reports: Iterable[Report]) -> tuple[_Sent, float]:
        """Send one report per event. Returns the totals, and the handler's median wall time in milliseconds."""
        times, cpu, before = [], 0.0, self._requests.count
        for report in reports:
            line = encode(report).decode()
            event = subscription_event([line], stream="ecs/batch/0123", timestamp_ms=_TIMESTAMP_MS)
            started_at, started_cpu = time.perf_counter(), time.process_time()
            self.send("reports", [line], event, {"indexed": 1, "skipped": 0, "failed": 0})
            times.append(time.perf_counter() - started_at)
            cpu += time.process_time() - started_cpu
        sent = _Sent(len(times), self._requests.count - before, sum(times), cpu)
        return sent, 1000 * statistics.median(times)

    def send_stream(self, reports: Iterable[Report]) -> _Sent:
        """Send reports and checkpoints in events of a data stream. Returns the totals of the reports.

        Checkpoints are not measured: their events are smaller.
        """
        wall = cpu = 0.0
        documents = requests_made = 0
        for kind, lines in self._batches(reports):
            records = stream_event(lines, timestamp_ms=_TIMESTAMP_MS)
            started_at, started_cpu, before = time.perf_counter(), time.process_time(), self._requests.count
            self.send(kind, lines, records, {"batchItemFailures": []})
            if kind == "reports":
                wall, cpu = wall + time.perf_counter() - started_at, cpu + time.process_time() - started_cpu
                documents, requests_made = documents + len(lines), requests_made + self._requests.count - before
        return _Sent(documents, requests_made, wall, cpu)

    def _batches(self, reports: Iterable[Report]) -> Iterator[tuple[str, list[str]]]:
        numbered = enumerate(reports)
        while chunk := list(itertools.islice(numbered, _LINES_PER_EVENT)):
            yield "reports", [encode(report).decode() for _, report in chunk]
            if chunk[0][0] % _PROGRESS_EVERY == 0:
                print(f"  {chunk[0][0]:,} reports", file=sys.stderr, flush=True)
            lines: list[str] = []
            for number, report in chunk:
                if number % _CHECKPOINTS_EVERY == 0:
                    if (report.record.metrics.duration_ms or 0) > _LONG_RUN_MS:
                        self.example = report
                    lines += [encode(checkpoint).decode() for checkpoint in checkpoints(report)]
            yield from (("checkpoints", list(part)) for part in _parts(lines))


def _parts(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    return (lines[start : start + _LINES_PER_EVENT] for start in range(0, len(lines), _LINES_PER_EVENT))


def measure(url: str, reports: int) -> Measurement:
    """Empty the cluster, forward this many reports of a month, and run the searches of the dashboards."""
    for index in _request("GET", f"{url}/task-*"):  # Elasticsearch rejects DELETE with a pattern
        _request("DELETE", f"{url}/{index}")
    fleet = Fleet(runs_per_day=max(reports // _DAYS, 1), days=_DAYS)
    month = runs(fleet)
    forwarder = _Forwarder()
    direct, median_ms = forwarder.send_direct(itertools.islice(month, _SINGLE_EVENTS))
    stream = forwarder.send_stream(month)
    _request("POST", f"{url}/task-*/_flush")
    _request("POST", f"{url}/task-*/_refresh")
    example = forwarder.example
    if example is None:
        raise SystemExit(f"None of {reports} runs was long enough for the run dashboard: use more runs.")
    view = DashboardView(start=fleet.first_day, end=fleet.end, task_id=example.record.task_id)
    panels = tuple(time_panels(url, view))
    return Measurement(
        reports=forwarder.lines["reports"],
        single_event_ms=median_ms,
        single_event_cpu_ms=1000 * direct.cpu_seconds / direct.documents,
        direct_rate=direct.rate,
        direct_requests=direct.requests_per_second,
        stream_rate=stream.rate,
        stream_cpu_rate=stream.documents / stream.cpu_seconds,
        stream_requests=stream.requests_per_second,
        recommend_seconds=statistics.median(_recommend_seconds(url) for _ in range(_RECOMMEND_ROUNDS)),
        panels=panels,
        indices=tuple(
            _size(url, kind, forwarder.bytes[kind] / max(count, 1)) for kind, count in forwarder.lines.items()
        ),
    )


def _recommend_seconds(url: str) -> float:
    command = [sys.executable, "-m", "profiler", "recommend", "--json", "--elasticsearch", url]
    started_at = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started_at


def _size(url: str, kind: str, line_bytes: float) -> IndexSize:
    before = _primaries(url, kind)
    started_at = time.perf_counter()
    _request("POST", f"{url}/task-{kind}-*/_forcemerge", params={"max_num_segments": "1"})
    merge_seconds = time.perf_counter() - started_at
    after = _primaries(url, kind)
    return IndexSize(
        kind=kind,
        documents=before["docs"]["count"],
        line_bytes=line_bytes,
        store_bytes=before["store"]["size_in_bytes"],
        segments=before["segments"]["count"],
        merged_bytes=after["store"]["size_in_bytes"],
        merge_seconds=merge_seconds,
    )


def _primaries(url: str, kind: str) -> dict[str, Any]:
    _request("POST", f"{url}/task-{kind}-*/_refresh")
    result: dict[str, Any] = _request("GET", f"{url}/task-{kind}-*/_stats/docs,store,segments")["_all"]["primaries"]
    return result


def _request(method: str, url: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
    response = requests.request(method, url, params=params, timeout=_TIMEOUT_SECONDS)
    response.raise_for_status()
    result: dict[str, Any] = response.json()
    return result


def table(measurements: Sequence[Measurement]) -> str:
    """Format the results as a Markdown table with a column for each size."""
    head = ["", *(f"{measurement.reports:,} reports" for measurement in measurements)]
    rows = [
        [name, *(f"{getattr(measurement, field):,.{digits}f}" for measurement in measurements)]
        for name, field, digits in (
            ("one report per event: handler, median ms", "single_event_ms", 1),
            ("one report per event: documents/s", "direct_rate", 0),
            ("one report per event: bulk requests/s", "direct_requests", 0),
            ("500 records per event: documents/s", "stream_rate", 0),
            ("500 records per event: documents/s of the handler's CPU time", "stream_cpu_rate", 0),
            ("500 records per event: bulk requests/s", "stream_requests", 1),
            ("recommend for all families, s", "recommend_seconds", 2),
        )
    ]
    for index in range(len(measurements[0].indices)):
        sizes = [measurement.indices[index] for measurement in measurements]
        kind = sizes[0].kind
        rows += [
            [f"{kind}: documents", *(f"{size.documents:,}" for size in sizes)],
            [f"{kind}: bytes per line", *(f"{size.line_bytes:,.0f}" for size in sizes)],
            [f"{kind}: bytes per document on disk", *(f"{size.store_bytes / size.documents:,.0f}" for size in sizes)],
            [
                f"{kind}: bytes per document, force-merged",
                *(f"{size.merged_bytes / size.documents:,.0f}" for size in sizes),
            ],
            [f"{kind}: shard, MiB", *(f"{size.store_bytes / 2**20:,.0f}" for size in sizes)],
        ]
    for index, panel in enumerate(measurements[0].panels):
        medians = [f"{measurement.panels[index].median_ms:,.0f}" for measurement in measurements]
        rows.append([f"{panel.dashboard} / {panel.panel}, ms", *medians])
    return markdown_table(head, rows)


def main(arguments: Sequence[str]) -> None:
    """Measure each size, print the table, and write the results as JSON on request."""
    parser = argparse.ArgumentParser(description="Measure the forwarder and the dashboards at scale.")
    parser.add_argument("--sizes", default="10000,100000,1000000", help="numbers of reports, separated by commas")
    parser.add_argument("--codec", help="index.codec, such as best_compression (default: that of the templates)")
    parser.add_argument("--json", type=Path, help="file for the results, written after each size")
    options = parser.parse_args(arguments)
    measurements = []
    with running_elasticsearch(VERSION_8, _JAVA_OPTIONS) as server:
        os.environ["ELASTICSEARCH_URL"] = server.url
        install_templates(server.url, options.codec)
        for size in map(int, options.sizes.split(",")):
            measurements.append(measure(server.url, size))
            if options.json is not None:
                document = {"machine": msgspec.to_builtins(describe()), "steps": msgspec.to_builtins(measurements)}
                options.json.write_text(json.dumps(document, indent=2))
    print(table(measurements))


if __name__ == "__main__":
    main(sys.argv[1:])
