"""The zip alone, run by the real Lambda runtime client with a minimal Runtime API and a fake
cluster.
"""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from profiler.aws_account.setup import forwarder_zip
from profiler.core.errors import TaskProfilerError
from tests.fake_slack import FakeSlack
from tests.http_server import FakeElasticsearch, FakeHttpServer, OneAnswer
from tests.lambda_environment import runtime_command, runtime_folder
from tests.log_subscriptions import REPORT, TASK_ID, subscription_event
from tests.otlp_schema import read_protobuf
from tests.task_events import event as task_event
from tools.moto_server import fake_aws, start_by_schedule
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
SECRET = "hunter2-hunter2"
STREAM_EVENT = Path(__file__).parents[1] / "data" / "kinesis-event.json"
# pip fetches the zip's wheels from the package index, nine times, for twelve seconds of a CPU.
with_wheels = pytest.mark.slow
# Lambda's longest: no test here is about a function that runs out of time.
_DEADLINE_MS = 15 * 60_000


class RuntimeApi(FakeHttpServer):
    """Returns one invocation after the other and keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.events: Queue[dict[str, Any]] = Queue()
        self.answers: Queue[tuple[str, Any]] = Queue()

    def answer(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        if request.path.endswith("/invocation/next"):
            headers = {
                "Lambda-Runtime-Aws-Request-Id": "1",
                "Lambda-Runtime-Deadline-Ms": str(int(time.time() * 1000) + _DEADLINE_MS),
                "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:eu-west-1:111122223333:function:forwarder",
                # The native part of the runtime client requires these.
                "Lambda-Runtime-Trace-Id": "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Sampled=0",
                "Lambda-Runtime-Client-Context": "",
                "Lambda-Runtime-Cognito-Identity": "",
                "Content-Type": "application/json",
            }
            return 200, headers, json.dumps(self.events.get()).encode()
        self.answers.put((request.path.rsplit("/", 1)[-1], json.loads(body or b"null")))
        return 202, {}, b""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("zip") / "forwarder.zip"
    forwarder_zip.build_zip(out)
    return out


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runtime_folder(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The functions' folder, which Lambda shares between them as well."""
    folder = tmp_path_factory.mktemp("task")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder)
    return folder


Lambda = Callable[..., tuple[list[tuple[str, Any]], str]]


@pytest.fixture
def function(unpacked: Path, runtime: Path) -> Iterator[Lambda]:
    """The runtime client, started as Lambda does: with its own folder and the zip's, and nothing
    else.
    """

    def answers(
        handler: str, *events: dict[str, Any], **settings: str
    ) -> tuple[list[tuple[str, Any]], str]:
        environment = {
            "PATH": os.environ["PATH"],
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{api.port}",
            "LAMBDA_TASK_ROOT": str(unpacked),
            "AWS_REGION": "eu-west-1",
            "AWS_DEFAULT_REGION": "eu-west-1",
            **settings,
        }
        words = runtime_command(unpacked, runtime, handler)
        process = subprocess.Popen(
            words,
            env=environment,
            cwd=unpacked,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        given = []
        try:
            for event in events:
                api.events.put(event)
                wait_until(
                    lambda: not api.answers.empty() or process.poll() is not None,
                    "the answer",
                )
                given.append(api.answers.get_nowait())
        finally:
            process.kill()
            output, _ = process.communicate()
        return given, output

    with RuntimeApi() as api:
        yield answers


@with_wheels
def test_two_builds_are_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.zip"
    forwarder_zip.build_zip(again)
    assert (
        hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(built.read_bytes()).digest()
    )


@with_wheels
def test_a_wheel_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    requirements, options = next(
        forwarder_zip.wheel_sets(
            forwarder_zip.requirements_with_hashes(forwarder_zip.requirements_file())
        )
    )
    forged = [
        re.sub("sha256:[0-9a-f]{8}", "sha256:00000000", requirement) for requirement in requirements
    ]
    with pytest.raises(TaskProfilerError, match="DO NOT MATCH THE HASHES"):
        forwarder_zip.install_wheels(tmp_path, forged, options)
    assert list(tmp_path.iterdir()) == []


def test_building_needs_only_the_standard_library_and_pip() -> None:
    """The environment that builds a release has nothing else."""
    code = (
        f"import sys; sys.path.append({str(ROOT)!r}); import "
        "profiler.aws_account.setup.forwarder_zip"
    )
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_any_pip_will_do_and_without_one_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(forwarder_zip, "find_spec", lambda _: None)
    (tmp_path / "pip3").write_text("#!/bin/sh\n>&2 echo ERROR: no index\nexit 1\n")
    (tmp_path / "pip3").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TaskProfilerError, match=r"check the package index \(no index\)\.$"):
        forwarder_zip.build_zip(tmp_path / "out.zip")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(TaskProfilerError, match="run python -m ensurepip"):
        forwarder_zip.build_zip(tmp_path / "out.zip")
    assert not (tmp_path / "out.zip").exists()


@with_wheels
def test_the_zip_holds_what_the_handlers_need_and_no_more(built: Path) -> None:
    names = zipfile.ZipFile(built).namelist()
    assert {
        "handler.py",
        "profiler/forwarder/subscription.py",
        "profiler/record/record_model.py",
    } <= set(names)
    assert {
        path.split("/")[1] for path in names if path.startswith("profiler/") and path.count("/") > 1
    } == {
        *("aggregation", "aws_account", "core", "forwarder", "otlp", "record"),
        *("runs", "schedules", "search_setup", "sizing", "task_definitions"),
    }
    modules = [name for name in names if name.startswith("profiler/") and name.count("/") == 1]
    assert modules == ["profiler/__init__.py", "profiler/settings.py"]
    assert not [name for name in names if name.startswith("profiler/") and not name.endswith(".py")]
    tops = {name.split("/")[0] for name in names}
    assert tops.isdisjoint({"boto3", "botocore", "structlog", "click", "tests", "bin"})
    for python in ("311", "312", "313", "314"):
        for processor in ("x86_64", "aarch64"):
            assert f"msgspec/_core.cpython-{python}-{processor}-linux-gnu.so" in names


@with_wheels
def test_the_real_runtime_client_runs_the_zip(function: Lambda, cluster: FakeElasticsearch) -> None:
    events = (subscription_event("hello", json.dumps(REPORT)), {"awslogs": {"data": "broken!"}})
    settings = {"ELASTICSEARCH_URL": cluster.url, "ELASTICSEARCH_API_KEY": SECRET}
    (indexed, (kind, error)), output = function("forward_logs", *events, **settings)
    assert indexed == ("response", {"indexed": 1, "skipped": 1, "failed": 0, "untrusted": 0})
    assert kind == "error"
    assert error["errorType"] == "PayloadError"
    assert "not base64" in error["errorMessage"]
    ((action, body),) = cluster.bulks
    assert action["update"]["_id"] == f"{TASK_ID}/batch"
    assert body["upsert"]["task"]["complete"] is True
    assert cluster.authorizations == [f"ApiKey {SECRET}"]
    assert SECRET not in output


@with_wheels
def test_the_real_runtime_client_reads_a_stream(
    function: Lambda, cluster: FakeElasticsearch
) -> None:
    """A health check, a report and a damaged record; Lambda's partial batch response is one key
    with a list.
    """
    event = json.loads(STREAM_EVENT.read_text())
    (answer,), output = function("forward_logs", event, ELASTICSEARCH_URL=cluster.url)
    damaged = event["Records"][-1]["kinesis"]["sequenceNumber"]
    assert answer == ("response", {"batchItemFailures": [{"itemIdentifier": damaged}]})
    ((action, _body),) = cluster.bulks
    assert action["update"]["_id"] == f"{TASK_ID}/batch"
    logged = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert damaged in next(line["event"] for line in logged if line["level"] == "warning")
    assert {
        "level": "info",
        "indexed": 1,
        "skipped": 0,
        "failed": 0,
        "untrusted": 0,
    }.items() <= logged[-1].items()


@with_wheels
def test_the_runtime_client_runs_task_stopped(function: Lambda) -> None:
    """In an account that does not know the task definition any more. The run is exported, too."""
    with fake_aws() as aws, FakeSlack() as slack, OneAnswer(body=b"") as backend:
        settings = {
            "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
            "REPORT_WAIT_SECONDS": "0",
            **aws.environment(),
        }
        settings |= {"OTLP_ENDPOINT": backend.url, "OTLP_HEADERS": f"api-key={SECRET}"}
        (answer,), output = function("task_stopped", task_event(), **settings)
    assert answer == ("response", {"status": "failure", "indexed": False, "notified": "failure"})
    assert len(slack.messages) == 1
    assert slack.webhook_url not in output
    assert SECRET not in output
    assert {headers["api-key"] for headers in backend.headers} == {SECRET}
    assert backend.paths == ["/v1/traces", "/v1/logs", "/v1/metrics"]
    (resource,) = read_protobuf("traces", gzip.decompress(backend.bodies[0]))["resourceSpans"]
    root = resource["scopeSpans"][0]["spans"][0]
    assert root["name"] == "nightly"
    assert root["status"]["code"] == 2


@with_wheels
def test_the_runtime_client_runs_watch_schedules(function: Lambda) -> None:
    """The time zone comes from the zip: Lambda's base may have none."""
    with fake_aws() as aws:
        aws.client("ecs").create_cluster(clusterName="jobs")
        start_by_schedule(
            aws.client("scheduler"), "nightly", ScheduleExpressionTimezone="Europe/Berlin"
        )
        settings = {"IDEMPOTENCY_TABLE": "notices", "PYTHONTZPATH": "", **aws.environment()}
        (answer,), output = function("watch_schedules", {}, **settings)
    nothing = dict.fromkeys(("unknown", "missed", "late", "overlapped", "slow"), 0)
    assert answer == ("response", {"schedules": 1, **nothing}), output


@with_wheels
def test_importing_the_handler_builds_no_client(unpacked: Path, runtime: Path) -> None:
    """And without an endpoint the export of a run imports nothing."""
    imports = f"import sys; sys.path[:0] = {[str(unpacked), str(runtime)]!r}; import handler"
    code = f"{imports}; handler._export(None, None); print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True, env={}
    )
    loaded = set(done.stdout.split())
    clients = (
        "elasticsearch opensearchpy boto3 botocore aws_lambda_powertools slack_sdk zoneinfo "
        "profiler.otlp"
    )
    assert loaded.isdisjoint(clients.split())
