"""docs/dashboards.md on real servers: the minimal API keys."""

import copy
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

import handler
from profiler.forwarder.invocation import DeliveryError, SearchClusterError
from tests.command_line import run_here
from tests.documentation import blocks
from tests.lambda_environment import forget_environment
from tests.search.forwarding import Context, event, report
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.search

PAGE = Path("docs/dashboards.md")


def key_of_the_page(name: str) -> dict[str, Any]:
    bodies = [json.loads(block.text) for block in blocks(PAGE, "json")]
    (body,) = [body for body in bodies if body.get("name") == name]
    return dict(body)


def created(server: SearchServer, body: dict[str, Any]) -> str:
    """Make the key as the administrator does; returns it encoded."""
    answer = requests.post(
        f"{server.url}/_security/api_key", json=body, auth=server.admin, timeout=LIMIT_SECONDS
    )
    assert answer.ok, answer.text
    return str(answer.json()["encoded"])


def ask(server: SearchServer, key: str, method: str, path: str, body: object | None = None) -> int:
    headers = {"Authorization": f"ApiKey {key}"}
    return requests.request(
        method, server.url + path, json=body, headers=headers, timeout=LIMIT_SECONDS
    ).status_code


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
    monkeypatch.setenv("TRUSTED_LOG_GROUPS", "/ecs/jobs")
    forget_environment()
    try:
        return handler.forward_logs(event(line), Context())
    finally:
        forget_environment()


def test_each_key_is_sufficient_for_its_purpose(
    cluster: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = created(cluster, key_of_the_page("task-profiler-import"))
    done = run_here(
        {**os.environ, "ELASTICSEARCH_API_KEY": key},
        "kibana",
        "import",
        "--elasticsearch",
        cluster.url,
    )
    assert done.returncode == 0, done.stderr
    assert "installed: index template task-reports" in done.stdout

    key = created(cluster, key_of_the_page("task-profiler-forwarder"))
    for status in ("success", "stopped"):
        assert forwarded(cluster, key, report(status=status), monkeypatch)["indexed"] == 1
    assert ask(cluster, key, "POST", "/task-reports-*/_search", {"size": 20}) == 200


def test_a_reader_needs_no_privilege_but_read_to_see_that_an_index_is_closed(
    cluster: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    importer = created(cluster, key_of_the_page("task-profiler-import"))
    templates = ("kibana", "import", "--elasticsearch", cluster.url)
    assert run_here({**os.environ, "ELASTICSEARCH_API_KEY": importer}, *templates).returncode == 0
    key = created(cluster, key_of_the_page("task-profiler-forwarder"))
    for month in ("02", "03"):
        line = report(f"run-{month}", finishedAt=f"2026-{month}-02T10:00:00Z")
        assert forwarded(cluster, key, line, monkeypatch)["indexed"] == 1
    words = ("history", "--since", "2026-02-01", "--from", cluster.url)
    environment = {**os.environ, "ELASTICSEARCH_API_KEY": key}
    requests.post(f"{cluster.url}/task-*/_refresh", auth=cluster.admin, timeout=LIMIT_SECONDS)
    assert run_here(environment, *words).stderr == ""
    close = f"{cluster.url}/task-reports-2026.02/_close"
    requests.post(close, auth=cluster.admin, timeout=LIMIT_SECONDS).raise_for_status()
    assert "task-reports-2026.02 is closed" in run_here(environment, *words).stderr


def test_the_forwarders_key_allows_nothing_else(
    cluster: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert [(*request, ask(cluster, key, *request)) for request in refused] == [
        (*one, 403) for one in refused
    ]


def test_the_forwarder_needs_each_privilege(
    cluster: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert (
        requests.get(address, auth=cluster.admin, timeout=LIMIT_SECONDS).json()["_source"]["task"][
            "status"
        ]
        == "success"
    )
