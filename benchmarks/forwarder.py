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
from typing import Any

_LAMBDA = Path(__file__).resolve().parent.parent / "lambda"
sys.path.insert(0, str(_LAMBDA))

import requests  # noqa: E402

from forwarder.delivery import Delivery  # noqa: E402
from forwarder.elasticsearch_cluster import ElasticsearchCluster  # noqa: E402
from forwarder.forward import sort_lines  # noqa: E402
from forwarder.payload import decode_payload  # noqa: E402
from forwarder.settings import Credentials, ForwarderSettings  # noqa: E402
from tests.search.elasticsearch import VERSION_8, running_elasticsearch  # noqa: E402
from tests.search.server import SearchServer  # noqa: E402
from tools import lambda_zip  # noqa: E402

_A_PAYLOAD = 100
_FIGURE_A_SECOND = 5000
_FIGURE_IMPORT_SECONDS = 0.6
_IMPORTS = 7
_MOMENTS = {"avg": 0.39, "p50": 0.4, "p95": 0.49, "p99": 0.5, "max": 0.5}
_RECORD = {
    "taskArn": "arn:aws:ecs:eu-west-1:111122223333:task/jobs/0123",
    "cluster": "jobs", "family": "nightly", "revision": "26", "region": "eu-west-1", "accountId": "111122223333",
    "launchType": "FARGATE", "container": {"name": "batch", "id": "b" * 64, "image": "etl:7"},
    "logGroup": "/ecs/jobs", "logStream": "ecs/batch/0123", "status": "success", "exitCode": 0,
    "startedAt": "2026-03-01T10:00:00.000Z", "finishedAt": "2026-03-01T10:10:12.345Z",
    "sampling": {"intervalMs": 1000, "samples": 612, "duplicates": 0, "failures": 0, "sources": ["task-metadata-v4"]},
    "metrics": {
        "durationMs": 612345, "billedDurationMs": 631000, "memorySizeMB": 2048, "maxMemoryUsedMB": 512, "vcpuSize": 0.5,
        "cpuSeconds": 240.1, "vcpuUsed": _MOMENTS, "cpuUtilizationPercent": _MOMENTS, "memoryUsedMB": _MOMENTS,
        "memoryUtilizationPercent": _MOMENTS, "memoryPeakSource": "sampled", "networkRxBytes": 5, "maxPids": 12,
    },
    "containers": [{"name": "task-monitor", "metrics": {"vcpuUsed": _MOMENTS, "memoryUsedMB": _MOMENTS}}],
    "monitor": {"version": "0.1.0", "cpuSeconds": 1.9, "maxRssMB": 27.1, "restarts": 0, "warnings": []},
}  # fmt: skip


def line(number: int) -> str:
    """One report of the usual size (about 1.7 kB)."""
    record = {"taskId": f"{number:032x}", **_RECORD}
    return json.dumps(
        {"time": "2026-03-01T10:10:13.000Z", "type": "task.report", "schemaVersion": "1.0", "record": record}
    )


def payload(first: int, count: int) -> dict[str, Any]:
    """The event of a subscription with so many reports."""
    events = [
        {"id": str(number), "timestamp": 1772359813000, "message": line(number)}
        for number in range(first, first + count)
    ]
    document = {
        "messageType": "DATA_MESSAGE",
        "logGroup": "/ecs/jobs",
        "logStream": "ecs/batch/0123",
        "logEvents": events,
    }
    return {"awslogs": {"data": base64.b64encode(gzip.compress(json.dumps(document).encode(), 6)).decode()}}


def decode_and_map(reports: int) -> tuple[float, float]:
    """Reports a second of CPU time, of the forwarder and of the floor."""
    events = [payload(first, _A_PAYLOAD) for first in range(0, reports, _A_PAYLOAD)]
    settings = ForwarderSettings()
    began = time.process_time()
    for event in events:
        sort_lines(decode_payload(event), settings)
    ours = reports / (time.process_time() - began)
    began = time.process_time()
    for event in events:
        for found in json.loads(gzip.decompress(base64.b64decode(event["awslogs"]["data"])))["logEvents"]:
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


class _Minutes:
    """An invocation's time: fifteen minutes from now."""

    def __init__(self) -> None:
        self._end = time.monotonic() + 900

    def remaining_seconds(self) -> float:
        return self._end - time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def into_a_real_server(reports: int) -> tuple[float, int]:
    """Reports a second into an Elasticsearch that is killed in the middle, and how many documents it has in the end."""
    with running_elasticsearch(VERSION_8) as server:
        _install_templates(server)
        cluster = ElasticsearchCluster(server.url, Credentials())
        delivery = Delivery(cluster, _Minutes(), lambda: 0.5)
        # restart() kills first.
        crash = threading.Thread(target=server.restart)
        began = time.monotonic()
        for first in range(0, reports, _A_PAYLOAD * 5):
            if first <= reports // 2 < first + _A_PAYLOAD * 5:
                crash.start()
            delivery.deliver(sort_lines(decode_payload(payload(first, _A_PAYLOAD * 5)), ForwarderSettings()).documents)
        crash.join()
        passed = time.monotonic() - began
        requests.post(f"{server.url}/task-reports-*/_refresh", timeout=60).raise_for_status()
        count = requests.get(f"{server.url}/task-reports-*/_count", timeout=60).json()["count"]
    return reports / passed, int(count)


def _install_templates(server: SearchServer) -> None:
    for path in (_LAMBDA.parent / "kibana" / "index-templates").glob("*.json"):
        url = f"{server.url}/_index_template/{path.stem}"
        requests.put(url, json=json.loads(path.read_text()), timeout=30).raise_for_status()


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measure the forwarder.")
    parser.add_argument("--reports", type=int, default=100_000, help="how many go into the real server")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    ours, floor = decode_and_map(10_000)
    met = "met" if ours >= _FIGURE_A_SECOND else "NOT MET"
    print(f"decode and map: {ours:,.0f} reports/s a core (≥ {_FIGURE_A_SECOND:,}: {met})")
    print(f"ratio to json alone: {ours / floor:.2f}")
    seconds = cold_import_seconds("handler")
    with_client = cold_import_seconds("handler, forwarder.elasticsearch_cluster")
    met = "met" if seconds <= _FIGURE_IMPORT_SECONDS else "NOT MET"
    print(f"cold import of the handler: {seconds:.2f} s (≤ {_FIGURE_IMPORT_SECONDS}: {met})", flush=True)
    print(f"the same with the Elasticsearch client, which the first event imports: {with_client:.2f} s", flush=True)
    rate, count = into_a_real_server(options.reports)
    print(f"into Elasticsearch, killed and restarted in the middle: {rate:,.0f} reports/s")
    print(f"documents afterwards: {count:,} of {options.reports:,}")
    if options.json is not None:
        numbers: dict[str, float | None] = {"decode_and_map": ours, "json_floor": floor, "import_seconds": seconds}
        numbers |= {"indexed_a_second": rate, "documents": count, "cpus": os.cpu_count()}
        options.json.write_text(json.dumps(numbers, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
