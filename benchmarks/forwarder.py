"""What the forwarder does in a second, and whether it loses or doubles anything.

    python -m benchmarks.forwarder [--reports 100000] [--json FILE]

Decode and map: CPU time of one core from compressed payload to documents, against a plain
``json.loads`` of the same lines as the floor. Import: CPU and wall time of a cold ``import
handler`` from the built zip, unpacked. Delivery: reports into a real Elasticsearch that is killed
and restarted in the middle.
"""

import argparse
import base64
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import requests

from benchmarks.figures import Figure, Part, tell
from benchmarks.fleet import Fleet, runs
from benchmarks.subscription import Invocation, event, forward_logs, install_templates
from forwarder.settings import ForwarderSettings
from forwarder.subscription import (
    classify_lines,  # found since benchmarks.subscription knows lambda/
    decode_payload,
)
from profiler.record.model import encode
from tests.search.elasticsearch import VERSION_8, running_elasticsearch
from tools import lambda_zip

_A_PAYLOAD, _A_REQUEST = 100, 500
_MAPPED = 10_000
_FIGURE_A_SECOND = 5000
_FIGURE_IMPORT_SECONDS = 0.6
_IMPORTS = 7


def lines(reports: int) -> list[str]:
    """Reports of a made-up fleet's first day."""
    return [encode(report).decode() for report in runs(Fleet(runs_per_day=reports, days=1))]


def decode_and_map(reports: int) -> tuple[float, float]:
    """Reports a second of CPU time, of the forwarder and of the floor."""
    texts = lines(reports)
    events = [
        event(texts[first : first + _A_PAYLOAD], stream="ecs/batch/0123", timestamp_ms=0)
        for first in range(0, reports, _A_PAYLOAD)
    ]
    settings = ForwarderSettings()
    began = time.process_time()
    for one in events:
        classify_lines(decode_payload(one), settings)
    ours = reports / (time.process_time() - began)
    began = time.process_time()
    for one in events:
        for found in json.loads(gzip.decompress(base64.b64decode(one["awslogs"]["data"])))["logEvents"]:
            json.loads(found["message"])
    return ours, reports / (time.process_time() - began)


def cold_import_seconds(modules: str) -> float:
    """The median wall time of importing these from the zip, in a fresh process and without compiled files."""
    with tempfile.TemporaryDirectory(prefix="bench-zip-") as name:
        folder = Path(name)
        lambda_zip.main([str(folder / "forwarder.zip")])
        with zipfile.ZipFile(folder / "forwarder.zip") as archive:
            archive.extractall(folder / "task")
        code = (
            f"import sys, time; sys.path.insert(0, {str(folder / 'task')!r}); "
            f"t = time.perf_counter(); import {modules}; "
            "print(time.perf_counter() - t)"
        )
        command = [sys.executable, "-I", "-B", "-c", code]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(_IMPORTS)]
    return statistics.median(float(run.stdout) for run in runs)


def into_a_real_server(reports: int) -> tuple[float, int]:
    """Reports a second into an Elasticsearch that is killed in the middle, and how many documents it has in the end."""
    texts = lines(reports)
    with running_elasticsearch(VERSION_8) as server:
        install_templates(server.url)
        os.environ["ELASTICSEARCH_URL"] = server.url
        forward = forward_logs()
        # restart() kills first.
        crash = threading.Thread(target=server.restart)
        began = time.monotonic()
        for first in range(0, reports, _A_REQUEST):
            if first <= reports // 2 < first + _A_REQUEST:
                crash.start()
            forward(event(texts[first : first + _A_REQUEST], stream="ecs/batch/0123", timestamp_ms=0), Invocation())
        crash.join()
        passed = time.monotonic() - began
        requests.post(f"{server.url}/task-reports-*/_refresh", timeout=60).raise_for_status()
        count = requests.get(f"{server.url}/task-reports-*/_count", timeout=60).json()["count"]
    return reports / passed, int(count)


def figures(reports: int) -> tuple[Figure, ...]:
    """Measure all of it."""
    ours, floor = decode_and_map(_MAPPED)
    handler_seconds = cold_import_seconds("handler")
    client_seconds = cold_import_seconds("handler, forwarder.search.elasticsearch")
    rate, count = into_a_real_server(reports)
    return (
        Figure(what="decode and map", value=ours, unit="reports/s a core", digits=0, at_least=_FIGURE_A_SECOND),
        Figure(what="its speed, beside gzip and json alone", value=ours / floor, unit="×"),
        Figure(what="cold import of the handler", value=handler_seconds, unit="s", at_most=_FIGURE_IMPORT_SECONDS),
        Figure(
            what="the same with the Elasticsearch client",
            value=client_seconds,
            unit="s",
            note="imported at the first event",
        ),
        Figure(
            what="into a real Elasticsearch that is killed in the middle",
            value=rate,
            unit="reports/s",
            digits=0,
            note="the handler, the server and its restart on the same cores",
        ),
        Figure(
            what="documents lost or doubled then",
            value=abs(count - reports),
            unit=f"of {reports:,}",
            digits=0,
            at_most=0,
        ),
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure the forwarder.")
    parser.add_argument("--reports", type=int, default=100_000, help="how many go into the real server")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    tell(Part(title="Forwarder", figures=figures(options.reports)), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
