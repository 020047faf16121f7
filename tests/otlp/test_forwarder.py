"""``handler.task_stopped`` with a real OpenTelemetry Collector."""

import json
from collections.abc import Iterator

import pytest

import handler
from tests.http_server import FakeElasticsearch
from tests.lambda_environment import (
    InvocationContext,
    create_idempotency_table,
    function_environment,
    register_revisions,
)
from tests.otlp.conftest import Collector
from tests.otlp_schema import attributes_of
from tests.unit.forwarder.test_task_event import ARN, container, definition, event
from tests.unit.forwarder.test_task_stopped import report

TASK_ID = ARN.rsplit("/", 1)[-1]
LABELS = {"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> Iterator[None]:
    with FakeElasticsearch() as cluster:
        cluster.stored[f"{TASK_ID}/batch"] = {"record": report()}
        settings = {
            "ELASTICSEARCH_URL": cluster.url,
            "IDEMPOTENCY_TABLE": "done",
            "OTLP_ENDPOINT": collector.url,
            "NOTIFY_FAMILIES": "other",
        }
        with function_environment(monkeypatch, **settings):
            batch = {**container("batch", memory=64), "dockerLabels": LABELS}
            described = definition(container("task-monitor", essential=False, memory=64), batch)
            register_revisions("nightly", described["containerDefinitions"])
            create_idempotency_table("done")
            yield


def test_an_ended_run_is_exported_once_and_below_its_caller(collector: Collector) -> None:
    for _ in range(2):
        handler.task_stopped(event(pullStoppedAt="2026-03-01T10:11:25Z"), InvocationContext())
    (root, resource), *phases = collector.spans()
    assert [span["name"] for span, _ in phases] == ["pull", "init"]
    assert (root["name"], root["traceId"]) == ("nightly", LABELS["TRACEPARENT"].split("-")[1])
    assert root["parentSpanId"] == LABELS["TRACEPARENT"].split("-")[2]
    assert (root["status"]["code"], attributes_of(root)["process.exit.code"]) == (2, 1)
    assert attributes_of(root)["task_profiler.task.id"] == TASK_ID
    assert resource["aws.ecs.task.arn"] == ARN
    assert resource["aws.ecs.cluster.arn"] == "arn:aws:ecs:us-west-2:111122223333:cluster/jobs"
    ((log, _),) = collector.logs()
    assert json.loads(log["body"]["stringValue"])["record"]["taskId"] == TASK_ID
    metrics = {metric["name"]: metric["gauge"]["dataPoints"][0] for metric, _ in collector.metrics()}
    assert metrics["task_profiler.run.memory.peak"]["asInt"] == str(500 * 2**20)
