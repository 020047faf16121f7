"""A month of a made-up fleet through the forwarder into a real Elasticsearch: sizes, rates, the dashboards' times.

    python -m benchmarks.scale [--sizes 10000,100000,1000000] [--codec CODEC] [--json FILE]

For each size the cluster begins empty. All lines go through the Lambda handler itself, in this
process: a first thousand one report an event, as subscriptions deliver them (each run has a log
stream of its own), the others 500 an event, which is what one bulk request takes. One run in fifty
brings its checkpoints, too.
"""

import argparse
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import requests
from msgspec import Struct

from benchmarks.fleet import Fleet, runs
from benchmarks.fleet_record import checkpoints
from benchmarks.machine import describe
from benchmarks.panels import PanelTime, Question, ask_all
from benchmarks.subscription import Invocation, event, forward_logs, install_templates
from profiler.record.model import Report, encode
from tests.search.elasticsearch import VERSION_8, running_elasticsearch

_DAYS = 30
_SINGLE_EVENTS = 1000
_LINES_AN_EVENT = 500
_CHECKPOINTED_EVERY = 50
_LONG_RUN_MS = 600_000
_SHOWN_EVERY = 50_000
_SECONDS = 1800
# A node of a small production cluster; the tests' own has 256 MB and no optimising compiler.
_JAVA_OPTIONS = ("-Xms2g", "-Xmx2g", "-XX:-UsePerfData")


class IndexSize(Struct, frozen=True, kw_only=True):
    """Primary shards on disk, as written and after a force-merge to one segment."""

    kind: str
    documents: int
    line_bytes: float
    store_bytes: int
    segments: int
    merged_bytes: int
    merge_seconds: float


class Step(Struct, frozen=True, kw_only=True):
    """All that was measured at one size. Rates are documents a second of wall time."""

    reports: int
    single_event_ms: float
    single_event_cpu_ms: float
    bulk_rate: float
    bulk_cpu_rate: float
    indices: tuple[IndexSize, ...]
    panels: tuple[PanelTime, ...]


class _Feed:
    """Lines on their way through the handler, counted."""

    def __init__(self) -> None:
        self._handler = forward_logs()
        self.lines = {"reports": 0, "checkpoints": 0}
        self.bytes = {"reports": 0, "checkpoints": 0}
        self.example: Report | None = None

    def send(self, kind: str, lines: Sequence[str]) -> None:
        """One event. Ends the program if the handler does not index each line."""
        answer = self._handler(event(lines, stream="ecs/batch/0123", timestamp_ms=1_793_491_200_000), Invocation())
        if answer != {"indexed": len(lines), "skipped": 0, "failed": 0}:
            raise SystemExit(f"The forwarder did not index all of {len(lines)} {kind}: {answer}.")
        self.lines[kind] += len(lines)
        self.bytes[kind] += sum(len(line) for line in lines)

    def singly(self, reports: Iterable[Report]) -> tuple[float, float]:
        """One report an event: the median wall time of the handler, and its mean CPU time, in milliseconds."""
        times, began_cpu = [], time.process_time()
        for report in reports:
            line = encode(report).decode()
            began = time.perf_counter()
            self.send("reports", [line])
            times.append(1000 * (time.perf_counter() - began))
        return statistics.median(times), 1000 * (time.process_time() - began_cpu) / len(times)

    def in_bulk(self, reports: Iterable[Report]) -> tuple[float, float]:
        """Many an event: documents a second of the handler's wall time, and of its CPU time."""
        wall = cpu = 0.0
        before = sum(self.lines.values())
        for kind, lines in self._batches(reports):
            began, began_cpu = time.perf_counter(), time.process_time()
            self.send(kind, lines)
            wall, cpu = wall + time.perf_counter() - began, cpu + time.process_time() - began_cpu
        sent = sum(self.lines.values()) - before
        return sent / wall, sent / cpu

    def _batches(self, reports: Iterable[Report]) -> Iterator[tuple[str, list[str]]]:
        numbered = enumerate(reports)
        while some := list(itertools.islice(numbered, _LINES_AN_EVENT)):
            yield "reports", [encode(report).decode() for _, report in some]
            if some[0][0] % _SHOWN_EVERY == 0:
                print(f"  {some[0][0]:,} reports", file=sys.stderr, flush=True)
            for number, report in some:
                if number % _CHECKPOINTED_EVERY == 0:
                    if (report.record.metrics.duration_ms or 0) > _LONG_RUN_MS:
                        self.example = report
                    lines = [encode(one).decode() for one in checkpoints(report)]
                    yield from (("checkpoints", list(part)) for part in _parts(lines))


def _parts(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    return (lines[start : start + _LINES_AN_EVENT] for start in range(0, len(lines), _LINES_AN_EVENT))


def measure(url: str, reports: int) -> Step:
    """Fill the empty cluster with so many reports of a month, then ask."""
    for index in _ask("GET", f"{url}/task-*"):  # a pattern alone is refused
        _ask("DELETE", f"{url}/{index}")
    fleet = Fleet(runs_per_day=max(reports // _DAYS, 1), days=_DAYS)
    line = runs(fleet)
    feed = _Feed()
    single_ms, single_cpu_ms = feed.singly(itertools.islice(line, _SINGLE_EVENTS))
    rate, cpu_rate = feed.in_bulk(line)
    _ask("POST", f"{url}/task-*/_flush")
    _ask("POST", f"{url}/task-*/_refresh")
    example = feed.example
    if example is None:
        raise SystemExit(f"No run of {reports} was long enough to be looked at: ask for more.")
    question = Question(start=fleet.first_day, end=fleet.end, task_id=example.record.task_id)
    panels = tuple(ask_all(url, question))
    return Step(
        reports=feed.lines["reports"],
        single_event_ms=single_ms,
        single_event_cpu_ms=single_cpu_ms,
        bulk_rate=rate,
        bulk_cpu_rate=cpu_rate,
        panels=panels,
        indices=tuple(_size(url, kind, feed.bytes[kind] / max(count, 1)) for kind, count in feed.lines.items()),
    )


def _size(url: str, kind: str, line_bytes: float) -> IndexSize:
    before = _primaries(url, kind)
    began = time.perf_counter()
    _ask("POST", f"{url}/task-{kind}-*/_forcemerge", params={"max_num_segments": "1"})
    merge_seconds = time.perf_counter() - began
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
    _ask("POST", f"{url}/task-{kind}-*/_refresh")
    found: dict[str, Any] = _ask("GET", f"{url}/task-{kind}-*/_stats/docs,store,segments")["_all"]["primaries"]
    return found


def _ask(method: str, url: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
    answer = requests.request(method, url, params=params, timeout=_SECONDS)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()
    return found


def table(steps: Sequence[Step]) -> str:
    """Markdown: sizes and rates, then each panel's median, a column a size."""
    head = ["", *(f"{step.reports:,} reports" for step in steps)]
    rows = [
        ["one report an event, handler, median ms", *(f"{step.single_event_ms:.1f}" for step in steps)],
        ["500 an event, documents/s", *(f"{step.bulk_rate:,.0f}" for step in steps)],
        ["the same a second of the handler's CPU", *(f"{step.bulk_cpu_rate:,.0f}" for step in steps)],
    ]
    for place in range(len(steps[0].indices)):
        sizes = [step.indices[place] for step in steps]
        kind = sizes[0].kind
        rows += [
            [f"{kind}: documents", *(f"{size.documents:,}" for size in sizes)],
            [f"{kind}: bytes of a line", *(f"{size.line_bytes:,.0f}" for size in sizes)],
            [f"{kind}: bytes a document on disk", *(f"{size.store_bytes / size.documents:,.0f}" for size in sizes)],
            [f"{kind}: the same force-merged", *(f"{size.merged_bytes / size.documents:,.0f}" for size in sizes)],
            [f"{kind}: shard, MiB", *(f"{size.store_bytes / 2**20:,.0f}" for size in sizes)],
        ]
    for place, panel in enumerate(steps[0].panels):
        medians = [f"{step.panels[place].median_ms:,.0f}" for step in steps]
        rows.append([f"{panel.dashboard} / {panel.panel}, ms", *medians])
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def main(arguments: Sequence[str]) -> None:
    """Measure each size, print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure the forwarder and the dashboards at scale.")
    parser.add_argument("--sizes", default="10000,100000,1000000", help="reports, with commas")
    parser.add_argument("--codec", help="index.codec, such as best_compression; else the templates' own")
    parser.add_argument("--json", type=Path, help="write the numbers here too, after each size")
    options = parser.parse_args(arguments)
    steps = []
    with running_elasticsearch(VERSION_8, _JAVA_OPTIONS) as server:
        os.environ["ELASTICSEARCH_URL"] = server.url
        install_templates(server.url, options.codec)
        for size in map(int, options.sizes.split(",")):
            steps.append(measure(server.url, size))
            if options.json is not None:
                document = {"machine": msgspec.to_builtins(describe()), "steps": msgspec.to_builtins(steps)}
                options.json.write_text(json.dumps(document, indent=2))
    print(table(steps))


if __name__ == "__main__":
    main(sys.argv[1:])
