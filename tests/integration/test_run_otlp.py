"""``run --otlp``: what is exported, after what, and what a failing export changes."""

import gzip
import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.http_server import OneAnswer
from tests.integration.profiled import RUN, ending
from tests.otlp_schema import attributes_of
from tools.waiting import LIMIT_SECONDS

ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("OTEL_", "TRACEPARENT"))
}


class Backend(OneAnswer):
    """Takes every export in JSON. ``look`` is called for each request."""

    def __init__(self) -> None:
        super().__init__()
        self.look: Callable[[], None] = lambda: None

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        self.look()
        return super().answer(request, body)


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend() as started:
        yield started


def to_backend(backend: Backend) -> dict[str, str]:
    return ENVIRONMENT | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": backend.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
    }


def profile(
    backend: Backend,
    *words: str,
    options: tuple[str, ...] = ("--no-history",),
    environment: dict[str, str],
) -> subprocess.CompletedProcess[str]:
    settings = to_backend(backend) | environment
    return subprocess.run(
        [*RUN, "--json", "--otlp", *options, "--", *words],
        env=settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )


def test_a_run_is_exported_after_its_report_and_the_history(
    backend: Backend, tmp_path: Path, history_file: Path
) -> None:
    report = tmp_path / "report.jsonl"
    seen: list[tuple[int, int]] = []

    def look() -> None:
        with closing(sqlite3.connect(history_file)) as database:
            (count,) = database.execute("SELECT count(*) FROM run").fetchone()
        seen.append((len(report.read_text().splitlines()), count))

    backend.look = look
    options = ("--output", str(report), "--name", "small")
    environment = {
        "TASK_PROFILER_HISTORY": str(history_file),
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b",
        "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=desk",
        "OTEL_SERVICE_NAME": "etl",
        "TRACEPARENT": f"00-{'a' * 32}-{'b' * 16}-01",
    }
    done = profile(backend, "sh", "-c", "exit 3", options=options, environment=environment)
    assert done.returncode == 3, done.stderr
    assert done.stderr == ""
    assert seen == [(1, 1)] * 3
    documents = dict(zip(backend.paths, backend.bodies, strict=True))
    assert sorted(documents) == ["/v1/logs", "/v1/metrics", "/v1/traces"]
    assert {(one["api-key"], one["content-encoding"]) for one in backend.headers} == {
        ("a b", "gzip")
    }
    (spans,) = json.loads(gzip.decompress(documents["/v1/traces"]))["resourceSpans"]
    (span,) = spans["scopeSpans"][0]["spans"]
    assert span["name"] == "small"
    assert span["status"]["code"] == 2
    assert span["traceId"] == "a" * 32
    assert span["parentSpanId"] == "b" * 16
    assert (
        attributes_of(span)["task_profiler.task.id"]
        == json.loads(report.read_text())["record"]["taskId"]
    )
    resource = attributes_of(spans["resource"])
    assert resource["service.name"] == "etl"
    assert resource["deployment.environment.name"] == "desk"


def test_the_environment_of_the_command_stays_the_callers(backend: Backend) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    environments: tuple[dict[str, str], ...] = ({}, {"TRACEPARENT": parent})
    for environment in environments:
        done = profile(backend, "sh", "-c", 'printf %s "$TRACEPARENT"', environment=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout == environment.get("TRACEPARENT", "")


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        (
            "ENDPOINT",
            "http://127.0.0.1:1",
            "traces, logs and metrics were not exported: the server cannot be reached",
        ),
        (
            "PROTOCOL",
            "grpc",
            "run was not exported: OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or http/json.",
        ),
    ],
)
def test_a_failing_export_is_a_sentence_and_changes_no_exit_code(
    backend: Backend, setting: str, value: str, sentence: str
) -> None:
    done = profile(
        backend, "sh", "-c", "exit 5", environment={f"OTEL_EXPORTER_OTLP_{setting}": value}
    )
    report, shown = done.stderr.splitlines()
    assert json.loads(report)["record"]["exitCode"] == done.returncode == 5
    assert shown.startswith(f"task-profiler: The {sentence}")


@pytest.mark.parametrize(("runs", "exit_code"), [("1", 7), ("2", 0)])
def test_a_signal_ends_an_export_at_once(
    backend: Backend, tmp_path: Path, runs: str, exit_code: int
) -> None:
    asked, hangs = threading.Event(), threading.Event()

    def look() -> None:
        asked.set()
        hangs.wait()

    backend.look = look
    command = "test $0 = 2 || exit 7"  # two runs must succeed
    options = ("--no-history", "--runs", runs, "--output", str(tmp_path / "report.jsonl"))
    process = subprocess.Popen(
        [*RUN, "--json", "--otlp", *options, "--", "sh", "-c", command, runs],
        env=to_backend(backend),
        stderr=subprocess.PIPE,
        text=True,
    )
    with ending(process):
        assert asked.wait(LIMIT_SECONDS)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_SECONDS)
    hangs.set()
    assert process.returncode == exit_code
    assert errors.startswith("task-profiler: The export was interrupted.")
    assert (tmp_path / "report.jsonl").read_text().count("task.report") == int(runs)


def test_after_a_failed_export_the_later_runs_are_not_exported(backend: Backend) -> None:
    backend.status = 400
    done = profile(backend, "true", options=("--no-history", "--runs", "3"), environment={})
    sentences = [line for line in done.stderr.splitlines() if line.startswith("task-profiler: ")]
    assert done.returncode == 0, done.stderr
    assert len(sentences) == 1
    assert backend.paths.count("/v1/traces") == 1
    assert sentences[0].endswith("Later runs are not exported.")
