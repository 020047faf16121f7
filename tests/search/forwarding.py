"""The forwarder over a real search cluster; a stopped task whose report is in a played
CloudWatch Logs.
"""

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import pytest
import requests

import handler
from tests import log_subscriptions
from tests.fake_slack import FakeSlack
from tests.lambda_environment import (
    create_idempotency_table,
    forget_environment,
    function_environment,
    register_revisions,
)
from tests.log_subscriptions import put_lines
from tests.task_events import container
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

TEMPLATES = Path(__file__).parents[2] / "kibana" / "index-templates"
ACCOUNT = "111122223333"
TASK_ID = "4dd5853f44b341ee8281f38229bee377"
STREAM = f"ecs/batch/{TASK_ID}"
FAMILY = "nightly"
TIME = "2026-03-01T10:00:03Z"
CONTAINERS = [container("task-monitor", essential=False, memory=64), container("batch", memory=64)]


class Context:
    """An invocation of these seconds. The default are Lambda's most: more than a busy machine
    needs for any test.
    """

    function_name = "function"

    def __init__(self, seconds: float = 900) -> None:
        self._end = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return round((self._end - time.monotonic()) * 1000)


def event(
    *messages: str, stream: str = "ecs/batch/0123", owner: str | None = None
) -> dict[str, Any]:
    """An event of the lines of a stream. ``owner``: the account of its log group, else the one
    that the first line names.
    """
    events = [
        {"id": f"e{number}", "timestamp": written_ms(text), "message": text}
        for number, text in enumerate(messages)
    ]
    named = re.search(r'"accountId": ?"(\d+)"', messages[0]) if messages else None
    if owner is None:
        owner = named[1] if named else ACCOUNT
    document = {
        "owner": owner,
        "logGroup": "/ecs/jobs",
        "logStream": stream,
    }
    return log_subscriptions.event({**document, "logEvents": events})


def written_ms(message: str) -> int:
    """The time in a line, in milliseconds; of another line, that of :func:`report`."""
    found = re.search(r'"time": ?"([^"]+)"', message)
    moment = datetime.fromisoformat(TIME if found is None else found[1])
    return round(moment.timestamp() * 1000)


def report(task_id: str = "0123", **record: Any) -> str:
    """A run of two seconds. Its line is written at its end."""
    finished = record.get("finishedAt")
    if finished is not None:
        record.setdefault("startedAt", finished)
    written = finished or record.get("startedAt")
    is_moment = written is not None and written[:1].isdigit()
    whole = {
        "taskId": task_id,
        "family": "nightly",
        "container": {"name": "batch"},
        "status": "success",
        "startedAt": "2026-03-01T10:00:00Z",
        "finishedAt": written if is_moment else "2026-03-01T10:00:02Z",
        "metrics": {"durationMs": 2000, "cpuUtilizationPercent": {"avg": 50.0}},
        **record,
    }
    time_text = written if is_moment else TIME
    return json.dumps({"time": time_text, "type": "task.report", "record": whole})


Forward = Callable[..., Any]


def call(server: SearchServer, method: str, path: str, body: object = None) -> Any:
    answer = requests.request(method, f"{server.url}/{path}", json=body, timeout=LIMIT_SECONDS)
    assert answer.ok, answer.text
    return answer.json()


def index_without_a_node(server: SearchServer) -> None:
    """An index of reports whose only shard has no place."""
    nowhere = {"index.routing.allocation.require._name": "none", "index.number_of_replicas": 0}
    path = "task-reports-2020.01?wait_for_active_shards=0&timeout=1s"
    call(server, "PUT", path, {"settings": nowhere})


def confirm(server: SearchServer, *task_ids: str) -> None:
    """Set in the documents of these runs what the events of their tasks would set."""
    found = search(server, query={"terms": {"task.id": task_ids}})["hits"]["hits"]
    assert {hit["_source"]["task"]["id"] for hit in found} == set(task_ids)
    for hit in found:
        path = f"{hit['_index']}/_update/{quote(hit['_id'], safe='')}"
        call(server, "POST", path, {"doc": {"task": {"confirmed": True}}})


# What each server answers about its templates, when it has ours alone.
_INSTALLED: dict[str, Any] = {}


def _templates(server: SearchServer) -> Any:
    return call(server, "GET", "_index_template")


@contextlib.contextmanager
def forwarding(server: SearchServer, patch: pytest.MonkeyPatch) -> Iterator[Forward]:
    """The handler set up for a server that has the index templates and no documents. The templates
    stay for the next test, because a server makes an index to check each.
    """
    if _templates(server) != _INSTALLED.get(server.url):
        server.remove_ours()
        for path in TEMPLATES.glob("*.json"):
            call(server, "PUT", f"_index_template/{path.stem}", json.loads(path.read_text()))
        _INSTALLED[server.url] = _templates(server)
    patch.setenv("ELASTICSEARCH_URL", server.url)
    patch.setenv("SEARCH_ENGINE", server.engine)
    # Many tests forward the reports of several tasks, with words as ids, in one event.
    patch.setenv("TRUSTED_LOG_GROUPS", "/ecs/jobs")
    forget_environment()
    yield handler.forward_logs
    server.remove_indices()
    forget_environment()


def search(server: SearchServer, index: str = "task-reports-*", **body: Any) -> dict[str, Any]:
    call(server, "POST", f"{index}/_refresh")
    found: dict[str, Any] = call(server, "POST", f"{index}/_search", {"size": 100, **body})
    return found


@contextlib.contextmanager
def played_aws(patch: pytest.MonkeyPatch, slack: FakeSlack) -> Iterator[Any]:
    """ECS with the task's definition, CloudWatch Logs with its streams, DynamoDB; Slack by
    webhook.
    """
    settings = {
        "IDEMPOTENCY_TABLE": "posted-once",
        "REPORT_WAIT_SECONDS": "0",
        "SLACK_SUCCESS_WEBHOOK_URL": slack.webhook_url,
        "SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url,
        "KIBANA_URL": "https://kibana.example.com",
    }
    with function_environment(patch, **settings):
        register_revisions(FAMILY, CONTAINERS)
        create_idempotency_table("posted-once")
        logs = boto3.client("logs")
        logs.create_log_group(logGroupName="/ecs/jobs")
        for name in ("batch", "task-monitor"):
            logs.create_log_stream(logGroupName="/ecs/jobs", logStreamName=f"ecs/{name}/{TASK_ID}")
        yield logs


def put(logs: Any, line: str, stream: str = STREAM) -> None:
    put_lines(logs, "/ecs/jobs", stream, line)
