"""Measure the searches of all panels and drawings with a million documents.

    python -m benchmarks.dashboard_searches --engine elasticsearch8 [--documents 1000000]

The documents are those of a simulated fleet of 40 families, in the 30 days before now. Each search
runs three times over the week that a dashboard shows at first, and over all 30 days, with its
result cache off; the time is the server's own, the shortest of the three.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import requests

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.search_windows import index_documents, started_server
from benchmarks.subscription import install_templates
from kibana.build import DRAWINGS, PANELS
from profiler.core.timestamps import format_datetime
from tools import example_documents
from tools.panel_searches import search_body
from tools.waiting import LIMIT_SECONDS

_DAYS = 30
_MAX_SECONDS = 1.0
_REPEATS = 3


def _documents(count: int, now: datetime) -> Iterator[bytes]:
    """Lines of bulk requests: the example's documents, repeated with other ids and times. Half of
    them are reports. They lack what no search reads but from the newest: record and series.
    """
    by_kind: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for document in example_documents.documents(now, count=40, days=2):
        stored = dict(document.fields)
        stored.pop("record", None)
        stored.pop("series", None)
        sample = (document.index, json.dumps(stored), stored)
        by_kind.setdefault(stored["event"]["dataset"], []).append(sample)
    reports = by_kind["task.report"]
    samples = [*reports, *random.Random(7).sample(by_kind["task.checkpoint"], len(reports))]
    rng = random.Random(7)
    for number in range(count):
        index, text, fields = samples[number % len(samples)]
        task_id = str(fields["task"]["id"])
        ended = format_datetime(now - timedelta(seconds=rng.uniform(0, _DAYS * 86_400)))
        text = text.replace(task_id, f"{task_id[:24]}{number // len(samples):08x}")
        text = text.replace(str(fields["@timestamp"]), ended)
        kind = index.rsplit("-", 1)[0]
        action = f'{{"index":{{"_index":"{kind}-{ended[:7].replace("-", ".")}"}}}}\n{text}\n'
        yield action.encode()


def _searches(start: datetime, end: datetime) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name, the index and the body of each search."""
    for panel in PANELS:
        interval = "3h" if end - start < timedelta(days=8) else "12h"
        yield panel.key, f"task-{panel.index}-*", search_body(panel, start, end, interval=interval)
    time_range = {"range": {"@timestamp": {"gte": start.isoformat(), "lt": end.isoformat()}}}
    for drawing in DRAWINGS:
        for data in drawing.spec["data"]:
            if "url" in data:
                body = {**data["url"]["body"], "query": {"bool": {"must": [time_range]}}}
                yield drawing.key, data["url"]["index"], body


def measure(engine: str, count: int) -> BenchmarkResult:
    """Fill a server, and search it as the dashboards do."""
    now = datetime.now(UTC)
    figures = []
    with started_server(engine) as server:
        install_templates(server.url)
        index_documents(server.url, _documents(count, now))
        for days in (7, _DAYS):
            times = {}
            for key, index, body in _searches(now - timedelta(days=days), now):
                address = f"{server.url}/{index}/_search?request_cache=false"
                took_ms = []
                for _ in range(_REPEATS):
                    answer = requests.post(address, json=body, timeout=LIMIT_SECONDS)
                    answer.raise_for_status()
                    took_ms.append(answer.json()["took"])
                times[key] = min(took_ms) / 1000
            slowest = sorted(times, key=lambda key: -times[key])[:3]
            for key in slowest:
                figures.append(Figure(f"{days} days: {key}", times[key], "s", at_most=_MAX_SECONDS))
    title = f"Slowest of {len(times)} searches of the dashboards, {count:,} documents in {engine}"
    return BenchmarkResult(title, figures=tuple(figures))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--engine", choices=("elasticsearch8", "opensearch"), required=True)
    parser.add_argument("--documents", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    measure(options.engine, options.documents).print_and_save(options.json)


if __name__ == "__main__":
    main()
