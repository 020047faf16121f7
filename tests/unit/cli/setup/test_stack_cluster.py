"""The search cluster of ``setup stack``: its product, its index templates, and one that does not answer."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from profiler.cli.setup.stack_cluster import SearchCluster
from tests.http_server import FakeHttpServer


class Cluster(FakeHttpServer):
    """OpenSearch that is empty and takes everything."""

    def __init__(self) -> None:
        super().__init__()
        self.put: list[str] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if request.command == "PUT":
            self.put.append(request.path)
        version = {"version": {"number": "2.19.0", "distribution": "opensearch"}}
        is_there = request.command == "PUT" or request.path == "/"
        return 200 if is_there else 404, {"Content-Type": "application/json"}, json.dumps(version).encode()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    served = Cluster()
    yield served
    served.close()


def test_its_product_is_found_and_its_templates_are_installed(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    search = SearchCluster(cluster.url, None, None)
    search.find_engine()
    assert search.engine == "opensearch"
    assert cluster.put == []
    search.install("jobs")
    assert cluster.put
    assert capsys.readouterr().out == f"installed: {len(cluster.put)} index templates, policies and indices\n"
    assert any(path.startswith("/_index_template/jobs-reports") for path in cluster.put)


def test_one_that_does_not_answer_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    search = SearchCluster("http://127.0.0.1:9", None, None)
    search.find_engine()
    assert search.engine is None
    search.install("task")
    out, said = capsys.readouterr()
    assert out == ""
    assert "run task-profiler kibana import --elasticsearch http://127.0.0.1:9 where the cluster can be reached" in said
    assert said.count("\n") == 1
