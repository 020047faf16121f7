"""``task-profiler kibana import`` against real clusters."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from tests.search.server import SearchServer

pytestmark = pytest.mark.search

TEMPLATES = Path(__file__).parents[2] / "kibana" / "index-templates"


def import_(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profiler", "kibana", "import", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_templates_can_be_installed_repeatedly(search_server: SearchServer) -> None:
    done, again = (import_("--elasticsearch", search_server.url, "--prefix", "team") for _ in range(2))
    assert (done.returncode, again.returncode) == (0, 0), done.stderr + again.stderr
    assert "installed: index template team-reports" in again.stdout
    assert ("index team-reports-2" in done.stdout, "index team-reports-2" in again.stdout) == (True, False)
    created = requests.get(f"{search_server.url}/team-*", timeout=30).json()
    assert {name.rsplit("-", 1)[0] for name in created} == {"team-reports", "team-checkpoints", "team-notices"}
    # These distributions of the servers come without lifecycles.
    assert "skipped: lifecycle policy" in done.stdout
    for name, index in created.items():
        written = json.loads((TEMPLATES / f"task-{name.split('-')[1]}.json").read_text())["template"]["mappings"]
        assert set(index["mappings"]["properties"]) == set(written["properties"])
        requests.delete(f"{search_server.url}/{name}", timeout=30).raise_for_status()
    for name in ("reports", "checkpoints", "logs", "notices"):
        answer = requests.get(f"{search_server.url}/_index_template/team-{name}", timeout=30).json()
        template = answer["index_templates"][0]["index_template"]
        assert template["index_patterns"] == [f"team-{name}-*"]
        written = json.loads((TEMPLATES / f"task-{name}.json").read_text())["template"]["mappings"]["properties"]
        assert set(template["template"]["mappings"]["properties"]) == set(written)
        requests.delete(f"{search_server.url}/_index_template/team-{name}", timeout=30).raise_for_status()


def test_a_dry_run_installs_nothing(search_server: SearchServer) -> None:
    done = import_("--elasticsearch", search_server.url, "--prefix", "dry", "--dry-run")
    assert "would install: index template dry-reports" in done.stdout
    assert "would install: index dry-checkpoints-2" in done.stdout
    assert requests.get(f"{search_server.url}/_index_template/dry-reports", timeout=30).status_code == 404
    assert requests.get(f"{search_server.url}/dry-*", timeout=30).json() == {}


def test_sign_in(secured_elasticsearch: SearchServer) -> None:
    admin = secured_elasticsearch.admin
    assert admin is not None
    refused = import_("--elasticsearch", secured_elasticsearch.url)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "check URL and sign-in" in refused.stderr
    done = import_("--elasticsearch", secured_elasticsearch.url, "--user", f"{admin.name}:{admin.password}")
    assert done.returncode == 0, done.stderr


def test_an_unreachable_cluster_is_an_error() -> None:
    done = import_("--elasticsearch", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert (
        done.stderr
        == "task-profiler: http://127.0.0.1:9 refused the connection: check the port, and whether the server runs.\n"
    )
