"""docs/dashboards.md on real servers: minimal API keys, and a pipeline that matches the forwarder."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests

import handler
from profiler.forwarder.documents import Document, report_document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import DeliveryError, SearchClusterError
from profiler.record.record_model import decode
from tests.command_line import run_here
from tests.documentation import ROOT, blocks
from tests.lambda_environment import forget_environment
from tests.search.forwarding import Context, call, event, report, search
from tests.search.produced import produced
from tests.shown_runs import waiting_stacks
from tools.search_server import SearchServer

pytestmark = pytest.mark.search

PAGE = Path("docs/dashboards.md")
PIPELINE = json.loads((ROOT / "kibana" / "ingest" / "task-profiler.json").read_text())
# What only the forwarder can compute, as the page says.
COMPUTED = ("event.duration", "cost.waste_usd", "usage.cpu.slowdown", "usage.gpu", "usage.neuron", "links", "tags")


def key_of_the_page(name: str) -> dict[str, Any]:
    bodies = [json.loads(block.text) for block in blocks(PAGE, "json")]
    (body,) = [body for body in bodies if body.get("name") == name]
    return dict(body)


def created(server: SearchServer, body: dict[str, Any]) -> str:
    """Make the key as the administrator does; returns it encoded."""
    answer = requests.post(f"{server.url}/_security/api_key", json=body, auth=server.admin, timeout=120)
    assert answer.ok, answer.text
    return str(answer.json()["encoded"])


def ask(server: SearchServer, key: str, method: str, path: str, body: object | None = None) -> int:
    headers = {"Authorization": f"ApiKey {key}"}
    return requests.request(method, server.url + path, json=body, headers=headers, timeout=120).status_code


def without(body: dict[str, Any], privilege: str) -> dict[str, Any]:
    """The same key with one privilege on indices less."""
    less = copy.deepcopy(body)
    (role,) = less["role_descriptors"].values()
    for one in role["indices"]:
        one["privileges"] = [name for name in one["privileges"] if name != privilege]
    role["indices"] = [one for one in role["indices"] if one["privileges"]]
    assert less["role_descriptors"] != body["role_descriptors"]
    return less


@pytest.fixture
def cluster(secured_elasticsearch: SearchServer) -> Iterator[SearchServer]:
    """The secured server, without indices and templates of ours before and afterwards."""
    secured_elasticsearch.remove_ours()
    yield secured_elasticsearch
    secured_elasticsearch.remove_ours()


def forwarded(server: SearchServer, key: str, line: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ELASTICSEARCH_URL", server.url)
    monkeypatch.setenv("ELASTICSEARCH_API_KEY", key)
    forget_environment()
    try:
        return handler.forward_logs(event(line), Context())
    finally:
        forget_environment()


def test_each_key_is_sufficient_for_its_purpose(cluster: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = created(cluster, key_of_the_page("task-profiler-import"))
    done = run_here({**os.environ, "ELASTICSEARCH_API_KEY": key}, "kibana", "import", "--elasticsearch", cluster.url)
    assert done.returncode == 0, done.stderr
    assert "installed: index template task-reports" in done.stdout

    key = created(cluster, key_of_the_page("task-profiler-forwarder"))
    for status in ("success", "stopped"):
        assert forwarded(cluster, key, report(status=status), monkeypatch)["indexed"] == 1
    assert ask(cluster, key, "POST", "/task-reports-*/_search", {"size": 20}) == 200


def test_the_forwarders_key_allows_nothing_else(cluster: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = created(cluster, key_of_the_page("task-profiler-forwarder"))
    assert forwarded(cluster, key, report(), monkeypatch)["indexed"] == 1
    refused = [
        ("DELETE", "/task-reports-2026.03", None),
        ("DELETE", "/task-reports-2026.03/_doc/0123%2Fbatch", None),
        ("PUT", "/_index_template/task-reports", {"index_patterns": ["task-reports-*"]}),
        ("PUT", "/other-2026.03/_doc/1", {"a": 1}),
        ("GET", "/_cluster/health", None),
        ("GET", "/_security/user", None),
        ("GET", "/", None),
    ]
    assert [(*request, ask(cluster, key, *request)) for request in refused] == [(*one, 403) for one in refused]


def test_the_forwarder_needs_each_privilege(cluster: SearchServer, monkeypatch: pytest.MonkeyPatch) -> None:
    body = key_of_the_page("task-profiler-forwarder")
    with pytest.raises(SearchClusterError, match="HTTP 403"):
        forwarded(cluster, created(cluster, without(body, "index")), report(), monkeypatch)
    # The month's index cannot be made: the event has to come again when the right is given.
    with pytest.raises(DeliveryError, match="auto_configure"):
        forwarded(cluster, created(cluster, without(body, "auto_configure")), report(), monkeypatch)


def test_a_report_whose_run_has_a_document_needs_no_privilege_to_read(
    cluster: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = created(cluster, without(key_of_the_page("task-profiler-forwarder"), "read"))
    for status in ("unknown", "success"):
        assert forwarded(cluster, key, report(status=status), monkeypatch)["indexed"] == 1
    address = f"{cluster.url}/task-reports-2026.03/_doc/0123%2Fbatch"
    assert requests.get(address, auth=cluster.admin, timeout=120).json()["_source"]["task"]["status"] == "success"


@pytest.fixture
def opensearch_with_pipeline(opensearch: SearchServer) -> Iterator[SearchServer]:
    """The one of the servers that has ingest processors, with the pipeline as an index' default, as for Firehose."""
    incoming = {
        "index_patterns": ["task-incoming*"],
        "priority": 201,
        "template": {"settings": {"index.default_pipeline": "task-profiler"}},
    }
    call(opensearch, "PUT", "_ingest/pipeline/task-profiler", PIPELINE)
    call(opensearch, "PUT", "_index_template/task-incoming", incoming)
    yield opensearch
    opensearch.remove_ours()
    for path in ("_index_template/task-incoming", "_ingest/pipeline/task-profiler"):
        call(opensearch, "DELETE", path)


def lines_of_the_monitor() -> list[str]:
    return [line for lines in produced().values() for line in lines]


def expected_documents(lines: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The forwarder's documents by index and id, as the page says that they differ."""
    wanted = {}
    for line in lines:
        document = report_document(decode(line.encode()), line, ForwarderSettings())
        assert isinstance(document, Document)
        wanted[document.index, document.id] = pruned(dict(document.initial_fields))
    return wanted


def pruned(fields: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Without what only the forwarder computes, and without what is empty then."""
    kept = {}
    for name, value in fields.items():
        whole = f"{path}{name}"
        rest = pruned(value, f"{whole}.") if isinstance(value, dict) else value
        if whole not in COMPUTED and rest is not None and rest != {}:
            kept[name] = rest
    return kept


def bulk(server: SearchServer, sources: list[dict[str, Any]]) -> None:
    actions = [json.dumps(part) for source in sources for part in ({"index": {"_index": "task-incoming"}}, source)]
    headers = {"Content-Type": "application/x-ndjson"}
    answer = requests.post(
        f"{server.url}/_bulk?refresh=true", data="\n".join([*actions, ""]).encode(), headers=headers, timeout=60
    )
    assert answer.ok, answer.text
    assert not answer.json()["errors"], answer.text[:2000]


def indexed(server: SearchServer) -> dict[tuple[str, str], dict[str, Any]]:
    hits = search(server, "task-*", size=1000)["hits"]["hits"]
    return {(hit["_index"], hit["_id"]): hit["_source"] for hit in hits}


def test_the_pipeline_creates_the_same_documents_as_the_forwarder(opensearch_with_pipeline: SearchServer) -> None:
    lines = lines_of_the_monitor()
    assert len(lines) >= 10
    noise = [
        {"message": "an ordinary line"},
        {"message": '{"type": "other"}'},
        {"message": '{"type": "task.report"}'},
        {"message": msgspec.json.encode(waiting_stacks()).decode()},
        msgspec.to_builtins(waiting_stacks()),
        {},
    ]
    for _ in range(2):
        bulk(opensearch_with_pipeline, [*noise, *({"message": line} for line in lines)])
    found = {key: pruned(source) for key, source in indexed(opensearch_with_pipeline).items()}
    assert found == expected_documents(lines)


def test_the_pipeline_accepts_documents_that_are_the_line_itself(opensearch_with_pipeline: SearchServer) -> None:
    lines = lines_of_the_monitor()
    bulk(opensearch_with_pipeline, [json.loads(line) for line in lines])
    wanted = expected_documents(lines)
    for document in wanted.values():
        del document["record"]
    assert {key: pruned(source) for key, source in indexed(opensearch_with_pipeline).items()} == wanted


# What Filebeat's aws-cloudwatch input makes of a line, of which the pipeline makes fields of the same names.
FILEBEAT = {
    "@timestamp": "2026-03-01T10:00:04.000Z",
    "agent": {"type": "filebeat", "version": "8.19.0"},
    "aws.cloudwatch": {"ingestion_time": "2026-03-01T10:00:05.000Z", "log_group": "/other", "log_stream": "other"},
    "awscloudwatch": {"log_group": "/other", "log_stream": "other"},
    "cloud": {"provider": "aws", "region": "eu-west-1"},
    "container": {"id": "shipper"},
    "event": {"id": "37", "ingested": "2026-03-01T10:00:05.000Z", "original": "..."},
    "input": {"type": "aws-cloudwatch"},
    "log": {"file": {"path": "/other/other"}},
    "service": {"type": "filebeat"},
}


@pytest.mark.parametrize("aws", [{}, {"aws": {"cloudwatch": {"log_group": "/other"}}}], ids=["dotted", "nested"])
def test_fields_that_a_shipper_adds_do_not_lose_a_report(
    opensearch_with_pipeline: SearchServer, aws: dict[str, Any]
) -> None:
    lines = lines_of_the_monitor()
    bulk(opensearch_with_pipeline, [{**FILEBEAT, **aws, "message": line} for line in lines])
    found = {key: pruned(source) for key, source in indexed(opensearch_with_pipeline).items()}
    added = FILEBEAT.keys() - {"@timestamp", "cloud", "container", "event", "service"}
    own = {key: {name: value for name, value in source.items() if name not in added} for key, source in found.items()}
    assert own == expected_documents(lines)


@pytest.mark.parametrize("status", ["rebooted", None])
def test_a_status_of_a_newer_monitor_is_unknown(opensearch_with_pipeline: SearchServer, status: str | None) -> None:
    times = {"startedAt": "2026-03-01T10:00:00.000Z", "finishedAt": "2026-03-01T10:00:02.000Z"}
    line = json.loads(report(**times).replace(":03Z", ":03.000Z"))
    line["record"].pop("status", None)
    if status is not None:
        line["record"]["status"] = status
    text = json.dumps(line)
    bulk(opensearch_with_pipeline, [{"message": text}])
    (found,) = indexed(opensearch_with_pipeline).values()
    assert (found["task"]["status"], found["event"]["outcome"]) == ("unknown", "unknown")
    assert {key: pruned(source) for key, source in indexed(opensearch_with_pipeline).items()} == expected_documents(
        [text]
    )
