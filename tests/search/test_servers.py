"""The test harness: the servers are real and have the behaviour that the other tests need."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.search.maven import Artifact, ServerMissingError, fetch_zip
from tests.search.server import Credentials, Launch, SearchServer, ServerFailedError, free_ports, running

pytestmark = pytest.mark.search

_SECONDS = 30.0
_ARTIFACT = Artifact(group="org.example", name="server", version="1")
_STRICT = {"mappings": {"dynamic": "strict", "properties": {"name": {"type": "keyword"}, "count": {"type": "long"}}}}


def call(
    server: SearchServer, method: str, path: str, body: Any = None, user: Credentials | None = None
) -> requests.Response:
    """Ask the server over plain HTTP; a list is sent as lines of JSON, for `_bulk`."""
    lines = "".join(f"{json.dumps(line)}\n" for line in body) if isinstance(body, list) else json.dumps(body)
    return requests.request(
        method,
        f"{server.url}/{path}",
        data=None if body is None else lines,
        headers={"Content-Type": "application/x-ndjson" if isinstance(body, list) else "application/json"},
        auth=None if user is None else user.pair,
        timeout=_SECONDS,
    )


def upsert(server: SearchServer, index: str, document: dict[str, Any]) -> requests.Response:
    path = f"{index}/_update/1?refresh=true"
    return call(server, "POST", path, {"doc": document, "doc_as_upsert": True})


def test_the_server_has_the_requested_version(search_server: SearchServer) -> None:
    answered = call(search_server, "GET", "").json()["version"]

    assert answered["number"] == search_server.version
    assert answered.get("distribution", "elasticsearch") == search_server.engine


def test_an_upserted_document_is_found(search_server: SearchServer, index: str) -> None:
    statuses = [upsert(search_server, index, document).status_code for document in ({"name": "a"}, {"count": 2})]
    hits = call(search_server, "GET", f"{index}/_search?q=name:a").json()["hits"]["hits"]

    assert statuses == [201, 200]
    assert [hit["_source"] for hit in hits] == [{"name": "a", "count": 2}]


def test_a_strict_mapping_rejects_an_unknown_field(search_server: SearchServer, index: str) -> None:
    call(search_server, "PUT", index, _STRICT).raise_for_status()

    refused = upsert(search_server, index, {"unknown": 1})

    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "strict_dynamic_mapping_exception"


def test_a_bulk_response_has_an_item_for_each_document(search_server: SearchServer, index: str) -> None:
    call(search_server, "PUT", index, _STRICT).raise_for_status()
    lines = [
        *({"index": {"_id": "good"}}, {"count": 1}),
        *({"index": {"_id": "poison"}}, {"count": "many"}),
        *({"create": {"_id": "good"}}, {"count": 2}),
        *({"index": {"_id": "last"}}, {"count": 3}),
    ]

    answer = call(search_server, "POST", f"{index}/_bulk", lines)

    assert answer.status_code == 200
    assert [result["status"] for item in answer.json()["items"] for result in item.values()] == [201, 400, 409, 201]


def test_killed_server_refuses_connections_and_has_its_documents_after_a_restart(
    search_server: SearchServer, index: str
) -> None:
    upsert(search_server, index, {"name": "a"}).raise_for_status()

    search_server.kill()
    try:
        with pytest.raises(requests.ConnectionError):
            call(search_server, "GET", "")
    finally:
        search_server.restart()  # the other tests use it too

    assert call(search_server, "GET", f"{index}/_doc/1").json()["_source"] == {"name": "a"}


class TestSecuredElasticsearch:
    @pytest.fixture
    def reader(self, secured_elasticsearch: SearchServer) -> Iterator[Credentials]:
        server, admin = secured_elasticsearch, secured_elasticsearch.admin
        role = {"indices": [{"names": ["reports-*"], "privileges": ["read"]}]}
        call(server, "PUT", "_security/role/reader", role, admin).raise_for_status()
        user = {"password": "reader-of-the-tests", "roles": ["reader"]}
        call(server, "PUT", "_security/user/reader", user, admin).raise_for_status()
        yield Credentials(name="reader", password="reader-of-the-tests")
        call(server, "DELETE", "_security/user/reader", user=admin).raise_for_status()
        call(server, "DELETE", "_security/role/reader", user=admin).raise_for_status()

    def test_strangers_are_refused(self, secured_elasticsearch: SearchServer) -> None:
        stranger = Credentials(name="admin", password="a guess")

        statuses = [call(secured_elasticsearch, "GET", "", user=user).status_code for user in (None, stranger)]

        assert statuses == [401, 401]

    def test_user_may_only_do_what_the_role_allows(
        self, secured_elasticsearch: SearchServer, reader: Credentials
    ) -> None:
        read = call(secured_elasticsearch, "GET", "reports-*/_search", user=reader)
        written = call(secured_elasticsearch, "PUT", "reports-1/_doc/1", {"count": 1}, user=reader)

        assert (read.status_code, written.status_code) == (200, 403)

    def test_api_key_opens_what_it_was_made_for(self, secured_elasticsearch: SearchServer) -> None:
        writer = {"indices": [{"names": ["reports-*"], "privileges": ["create_index", "write"]}]}
        wanted = {"name": "forwarder", "role_descriptors": {"writer": writer}}
        made = call(secured_elasticsearch, "POST", "_security/api_key", wanted, secured_elasticsearch.admin).json()
        headers = {"Authorization": f"ApiKey {made['encoded']}"}

        statuses = [
            requests.put(
                f"{secured_elasticsearch.url}/{index}/_doc/1", json={}, headers=headers, timeout=_SECONDS
            ).status_code
            for index in ("reports-1", "others-1")
        ]

        assert statuses == [201, 403]


class TestMissingServer:
    def test_reason_is_what_maven_says(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        maven = tmp_path / "mvn"
        maven.write_text("#!/bin/sh\necho no such artifact\nexit 1\n")
        maven.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(ServerMissingError, match="no such artifact"):
            fetch_zip(_ARTIFACT, tmp_path)

    def test_without_maven_the_reason_names_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(ServerMissingError, match="mvn is not installed"):
            fetch_zip(_ARTIFACT, tmp_path)


def test_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    launch = Launch(command=("/bin/sh", "-c", "echo no room; exit 3"), environment={}, folder=tmp_path)
    (port,) = free_ports(1)
    server = SearchServer(engine="opensearch", version="0", port=port, launch=launch)

    with pytest.raises(ServerFailedError, match=r"(?s)ended with 3.*no room"), running(server):
        pass
