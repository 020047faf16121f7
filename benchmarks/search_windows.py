"""Measure ``recommend``, and the windows of ``taskdef resize``, from a real search cluster.

    python -m benchmarks.search_windows [--engine elasticsearch8] [--families 40]
        [--runs 1000000] [--json FILE]

The documents are those of ``benchmarks.resize_windows``, confirmed. Each measurement is a process
of its own.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice

import requests

from benchmarks.figures import BenchmarkResult, benchmark_parser
from benchmarks.measured_process import process_figures
from benchmarks.resize_windows import NOW_NS, report_lines
from benchmarks.subscription import install_templates
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_documents import report_document
from profiler.record.record_model import decode
from tools.search_engines import VERSION_7, VERSION_8, running_elasticsearch, running_opensearch
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

_figures = partial(process_figures, max_seconds=20.0, max_memory_mib=200.0)
_DOCUMENTS_A_REQUEST = 2_000
_READ_WINDOWS = """
import sys, requests
from profiler.runs.past_runs.family_evidence import read_windows
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.search_setup.search_servers import ClusterServer
from profiler.sizing.family_window import WindowSpan
source = IndexedRuns(ClusterServer(sys.argv[1], requests.Session()), "task")
windows = read_windows(source, RunFilter(), WindowSpan(now_ns=int(sys.argv[2])))
print(sum(window.deciding_counts.task_count for window in windows.values()))
"""


def started_server(engine: str) -> AbstractContextManager[SearchServer]:
    """The engine, which ends with the block."""
    if engine == "opensearch":
        return running_opensearch()
    return running_elasticsearch(VERSION_7 if engine == "elasticsearch7" else VERSION_8)


def _bulk_lines(families: int, runs: int) -> Iterator[bytes]:
    settings = ForwarderSettings()
    for line in report_lines(families, runs, random.Random(7)):
        document = report_document(decode(line), line.decode(), settings)
        assert isinstance(document, Document)
        task = {**document.fields["task"], "confirmed": True}
        action = {"index": {"_index": document.index, "_id": document.id}}
        fields = {**document.fields, "task": task}
        yield json.dumps(action).encode() + b"\n" + json.dumps(fields).encode() + b"\n"


def index_documents(url: str, lines: Iterator[bytes]) -> None:
    """Send the lines of bulk requests, each an action and its document."""
    session = requests.Session()
    headers = {"content-type": "application/x-ndjson"}
    while batch := b"".join(islice(lines, _DOCUMENTS_A_REQUEST)):
        answer = session.post(
            f"{url}/_bulk", data=batch, headers=headers, timeout=LIMIT_SECONDS
        ).json()
        if answer["errors"]:
            raise RuntimeError(f"the server refused documents: {str(answer)[:500]}")
    session.post(f"{url}/task-*/_refresh", timeout=LIMIT_SECONDS).raise_for_status()


def measure(engine: str, families: int, runs: int) -> BenchmarkResult:
    """Index the runs, and read them as the two commands do."""
    with started_server(engine) as server:
        install_templates(server.url)
        index_documents(server.url, _bulk_lines(families, runs))
        windows = [sys.executable, "-c", _READ_WINDOWS, server.url, str(NOW_NS)]
        recommend = [sys.executable, "-m", "profiler", "recommend", "--from", server.url, "--json"]
        counted = str(runs // families * families)
        figures = (
            *_figures("windows of resize", windows, expected=counted),
            *_figures("recommend", recommend),
        )
    title = f"{families} families with {runs:,} runs in {engine}"
    return BenchmarkResult(title, figures=figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = benchmark_parser(__doc__)
    parser.add_argument(
        "--engine", choices=("elasticsearch7", "elasticsearch8", "opensearch"), required=True
    )
    parser.add_argument("--families", type=int, default=40)
    parser.add_argument("--runs", type=int, default=1_000_000, help="of all families together")
    options = parser.parse_args(arguments)
    result = measure(options.engine, options.families, options.runs)
    result.print_and_save(options.json)


if __name__ == "__main__":
    main()
