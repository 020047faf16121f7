"""From a batch to the index: real monitor, simulated CloudWatch Logs and subscription, handler, real cluster."""

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import requests
from moto.awslambda import models as played_lambda

import handler
from benchmarks.endpoint import TASK_ID, Task, serve
from tests.aws import FakeAws, fake_aws
from tests.lambda_environment import forget_environment
from tests.search.server import SearchServer
from tests.search.test_forwarder import Context, search
from tests.waiting import wait_until

pytestmark = pytest.mark.search

GROUP = "/ecs/bench"
FUNCTION = "forwarder"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    """A played AWS whose forwarder function is the real handler; it gets the event that the subscription makes."""

    def invoke(_function: object, body: str | bytes, *_rest: object) -> bytes:
        return json.dumps(handler.forward_logs(json.loads(body), Context())).encode()

    monkeypatch.setattr(played_lambda.LambdaFunction, "invoke", invoke)
    with fake_aws() as server:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        server.create_log_group(GROUP)
        server.create_log_stream(GROUP, f"ecs/batch/{TASK_ID}")
        _subscribe(_create_function())
        yield server


def _create_function() -> str:
    trust = {
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}]
    }
    role = boto3.client("iam").create_role(RoleName="forwarder", AssumeRolePolicyDocument=json.dumps(trust))
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", "")
    function = boto3.client("lambda").create_function(
        FunctionName=FUNCTION,
        Runtime="python3.13",
        Role=role["Role"]["Arn"],
        Handler="handler.forward_logs",
        Code={"ZipFile": code.getvalue()},
    )
    arn: str = function["FunctionArn"]
    return arn


def _subscribe(function_arn: str) -> None:
    boto3.client("logs").put_subscription_filter(
        logGroupName=GROUP, filterName="reports", filterPattern='{ $.type = "task.*" }', destinationArn=function_arn
    )


@pytest.fixture
def forwarder(elasticsearch8: SearchServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SearchServer]:
    monkeypatch.setenv("ELASTICSEARCH_URL", elasticsearch8.url)
    for path in (Path(__file__).parents[2] / "kibana" / "index-templates").glob("*.json"):
        template = json.loads(path.read_text())
        requests.put(f"{elasticsearch8.url}/_index_template/{path.stem}", json=template, timeout=30).raise_for_status()
    forget_environment()
    yield elasticsearch8
    for index in requests.get(f"{elasticsearch8.url}/_cat/indices/task-*?format=json", timeout=30).json():
        requests.delete(f"{elasticsearch8.url}/{index['index']}", timeout=30).raise_for_status()
    forget_environment()


def monitored_run() -> None:
    """One batch from its start to the monitor's end."""
    task = Task(2)
    server = serve(task)
    address = f"http://127.0.0.1:{server.server_address[1]}/v4/own"
    environment = {**os.environ, "ECS_CONTAINER_METADATA_URI_V4": address, "TASK_PROFILER_INTERVAL_SECONDS": "0.1"}
    process = subprocess.Popen([sys.executable, "-m", "profiler", "monitor"], env=environment)
    try:
        wait_until(lambda: task.stats_reads >= 5, 30, "samples of the monitor")
        task.ended = time.time()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        server.shutdown()
        server.server_close()


def only_document(server: SearchServer) -> dict[str, Any]:
    (hit,) = search(server)["hits"]["hits"]
    assert hit["_id"] == f"{TASK_ID}/batch"
    source: dict[str, Any] = hit["_source"]
    return source


def test_a_run_is_indexed_and_a_replay_changes_nothing(aws: FakeAws, forwarder: SearchServer) -> None:
    monitored_run()
    document = only_document(forwarder)
    assert document["task"]["status"] == "success"
    assert document["usage"]["cpu"]["percent"]["avg"] == pytest.approx(40, rel=0.05)
    assert document["usage"]["memory"]["size_mb"] == 512
    (line,) = aws.events(GROUP, f"ecs/batch/{TASK_ID}")
    assert document["record"] == line.message
    command = [sys.executable, "-m", "profiler", "replay", "--log-group", GROUP, "--function", FUNCTION]
    counted = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, check=True)
    assert counted.stdout == "1 lines would be sent.\n"
    replayed = subprocess.run([*command, "--since", "1h"], capture_output=True, text=True, check=True)
    assert replayed.stdout == "1 lines sent: 1 indexed, 0 failed.\n"
    assert only_document(forwarder) == document
