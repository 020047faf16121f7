"""``task-profiler kibana import`` against a server that answers as Kibana and OpenSearch Dashboards do."""

import email
import json
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.command_line import run_here
from tests.http_server import FakeHttpServer


class PlayedDashboards(FakeHttpServer):
    """Takes imports and console requests as the real ones do; keeps what it got."""

    def __init__(self, version: str) -> None:
        super().__init__()
        self.version = version
        self.has_console = True
        self.imports: list[tuple[str, list[dict[str, Any]]]] = []
        self.put: dict[str, Any] = {}
        self.deleted: list[tuple[str, str]] = []

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, str], bytes]:
        status, answer = self._answered(request, body)
        return status, {"Content-Type": "application/json"}, json.dumps(answer).encode()

    def _answered(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Any]:
        if request.command == "DELETE":
            *_, kind, identity = request.path.split("/")
            self.deleted.append((kind, identity))
            return 200, {}
        if request.command == "GET":
            return 200, {"name": "ui", "version": {"number": self.version}}
        if not request.headers.get("kbn-xsrf") or not request.headers.get("osd-xsrf"):
            return 400, {"message": "Request must contain a kbn-xsrf header."}
        if request.path == "/api/saved_objects/_bulk_get":
            return self._find(json.loads(body))
        if request.path.startswith("/api/saved_objects/_import?overwrite=true"):
            return self._import(request.headers["Content-Type"], body)
        return self._console(request.path, body)

    def _find(self, wanted: list[dict[str, Any]]) -> tuple[int, Any]:
        known = {(one["type"], one["id"]) for _, objects in self.imports for one in objects} - {*self.deleted}
        absent = {"error": {"statusCode": 404}}
        return 200, {"saved_objects": [one if (one["type"], one["id"]) in known else one | absent for one in wanted]}

    def _import(self, content_type: str, body: bytes) -> tuple[int, dict[str, Any]]:
        message = email.message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
        (part,) = [part for part in message.walk() if part.get_filename()]
        name = part.get_filename() or ""
        if not name.endswith(".ndjson"):
            return 400, {"message": f"Invalid file extension {name}"}
        payload = part.get_payload(decode=True)
        assert isinstance(payload, bytes)
        objects = [json.loads(line) for line in payload.splitlines()]
        self.imports.append((name, objects))
        return 200, {"success": True, "successCount": len(objects), "successResults": []}

    def _console(self, path: str, body: bytes) -> tuple[int, Any]:
        query = parse_qs(urlsplit(path).query)
        target, method = query["path"][0], query["method"][0]
        if not self.has_console:
            return 404, {"message": "Not Found"}
        if target == "/":
            return 200, {"version": {"number": "8.7.1"}}
        if target.startswith("/_cat/indices/") or target.endswith("/_refresh"):
            return 200, []
        if method == "GET":
            return 404, {"error": {"reason": "Lifecycle policy not found: task-profiler"}}
        self.put[target] = json.loads(body)
        return 200, {"acknowledged": True}


@pytest.fixture
def played(request: pytest.FixtureRequest) -> Iterator[PlayedDashboards]:
    with PlayedDashboards(getattr(request, "param", "8.11.0")) as server:
        yield server


kibana = partial(run_here, {}, "kibana")
import_ = partial(kibana, "import")


@pytest.mark.parametrize("played", ["8.12.0", "7.17.0", "2.19.2"], indirect=True)
def test_remove_deletes_the_imported_objects_by_their_ids_dashboards_first(played: PlayedDashboards) -> None:
    assert import_("--url", played.url).returncode == 0
    ((_, objects),) = played.imports
    plan = kibana("remove", "--url", played.url)
    assert plan.returncode == 0, plan.stderr
    assert plan.stdout.count("would remove: ") == len(objects)
    assert "would remove: dashboard Task overview\n" in plan.stdout
    assert played.deleted == []
    done = kibana("remove", "--url", played.url, "--yes")
    assert done.returncode == 0, done.stderr
    assert sorted(played.deleted) == sorted((one["type"], one["id"]) for one in objects)
    assert {kind for kind, _ in played.deleted[:5]} == {"dashboard"}
    assert kibana("remove", "--url", played.url).stdout == "There is nothing to remove.\n"


@pytest.mark.parametrize(
    ("played", "flavour"), [("8.11.0", "lens"), ("7.10.2", "classic"), ("2.19.2", "classic")], indirect=["played"]
)
def test_dashboards_and_templates_go_through_one_address(played: PlayedDashboards, flavour: str) -> None:
    for _ in range(2):
        done = import_("--url", played.url, "--prefix", "team")
        assert done.returncode == 0, done.stderr
    assert f"objects ({flavour})" in done.stdout
    assert "/_index_template/team-reports" in played.put
    indices = ["team-reports", "team-checkpoints", "team-notices"]
    assert [path.rsplit("-", 1)[0] for path in played.put][-3:] == [f"/{index}" for index in indices]
    name, objects = played.imports[-1]
    assert name == f"task-profiler-{flavour}.ndjson"
    titles = {one["attributes"]["title"] for one in objects if one["type"] == "index-pattern"}
    assert titles == {f"{index}-*" for index in indices}


def test_an_import_says_what_it_overwrites_and_can_leave_it(played: PlayedDashboards) -> None:
    assert "overwrit" not in import_("--url", played.url).stdout
    count = len(played.imports[0][1])
    played.imports = [(name, objects[1:]) for name, objects in played.imports]
    kept = import_("--url", played.url, "--keep-existing")
    assert f"kept: {count - 1} existing objects" in kept.stdout
    assert len(played.imports[-1][1]) == 1
    again = import_("--url", played.url)
    assert f"overwriting: {count} existing objects and your edits of them; --keep-existing keeps them" in again.stdout
    assert again.stdout.index("overwriting") < again.stdout.index("imported")


def test_a_dry_run_imports_nothing(played: PlayedDashboards) -> None:
    done = import_("--url", played.url, "--dry-run")
    assert "would import" in done.stdout
    rows = [*map(json.loads, import_("--url", played.url, "--dry-run", "--json").stdout.splitlines())]
    assert [f"{row['action']}: {row['what']}" for row in rows] == done.stdout.splitlines()
    assert (played.imports, played.put) == ([], {})


def test_without_a_console_the_dashboards_are_installed_in_the_wanted_flavour(
    played: PlayedDashboards,
) -> None:
    played.has_console = False
    done = import_("--url", played.url, "--flavour", "classic")
    assert done.returncode == 0
    assert "give --elasticsearch URL" in done.stderr
    ((_, objects),) = played.imports
    assert "lens" not in {one["type"] for one in objects}


def test_usage() -> None:
    for option in ("--url", "--elasticsearch"):
        done = import_(option, "localhost:5601")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "add http:// or https://" in done.stderr
    nothing = import_()
    assert (nothing.returncode, nothing.stderr.count("\n")) == (2, 1)
    assert import_("--url", "http://127.0.0.1:9").returncode == 1
    assert import_("--elasticsearch", "http://x", "--prefix", "Not Good").returncode == 2
    assert import_("--elasticsearch", "http://x", "--user", "nobody").returncode == 2
