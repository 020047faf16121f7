"""``task-profiler kibana import`` against real clusters, and the tutorial with 101 nightly tasks
and Elasticsearch.
"""

import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import requests
from msgspec import Struct

import profiler
from profiler.core.json_fields import mapping_or_empty
from profiler.search_setup.cluster_requests import Method, ServerResponse
from profiler.search_setup.search_servers import ClusterServer
from profiler.search_setup.template_install import install_templates, setup_files
from tests.command_line import run_here
from tests.integration.conftest import aws_cli  # noqa: F401  pytest finds the fixture by this name
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import search
from tests.tutorial import (
    FAMILY,
    TutorialReader,
    answers,
    build_wheel,
    monitored_families,
    register_families,
)
from tests.values import present
from tools.moto_server import FakeAws, fake_aws
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.search

TEMPLATES = Path(__file__).parents[2] / "kibana" / "index-templates"


def kibana(*words: str) -> CompletedProcess[str]:
    return run_here(os.environ, "kibana", *words)


@pytest.mark.parametrize("has_mappings", [False, True])
def test_a_template_of_others_before_ours_is_named_unless_it_has_the_mappings(
    search_server: SearchServer, *, has_mappings: bool
) -> None:
    template = json.loads((TEMPLATES / "task-reports.json").read_text())["template"]
    theirs = {
        "index_patterns": ["team-rep*"],
        "priority": 900,
        "template": {"mappings": template["mappings"]} if has_mappings else {},
    }
    address = f"{search_server.url}/_index_template/theirs"
    requests.put(address, json=theirs, timeout=LIMIT_SECONDS).raise_for_status()
    try:
        done = kibana("import", "--elasticsearch", search_server.url, "--prefix", "team")
    finally:
        for template in (address, address.replace("theirs", "team-*")):
            requests.delete(template, timeout=LIMIT_SECONDS).raise_for_status()
        for name in requests.get(f"{search_server.url}/team-*", timeout=LIMIT_SECONDS).json():
            requests.delete(f"{search_server.url}/{name}", timeout=LIMIT_SECONDS).raise_for_status()
    assert done.returncode == 0, done.stderr
    named = "skipped: index template team-reports in new indices: theirs with priority 900 counts"
    assert (named in done.stdout) is not has_mappings


def test_the_templates_can_be_installed_repeatedly_and_a_dry_run_installs_nothing(
    search_server: SearchServer,
) -> None:
    words = ("import", "--elasticsearch", search_server.url, "--prefix", "team")
    dry = kibana(*words, "--dry-run").stdout
    assert "would install: index template team-reports" in dry
    assert "would install: index team-checkpoints-2" in dry
    assert (
        requests.get(
            f"{search_server.url}/_index_template/team-reports", timeout=LIMIT_SECONDS
        ).status_code
        == 404
    )
    assert requests.get(f"{search_server.url}/team-*", timeout=LIMIT_SECONDS).json() == {}
    done, again = kibana(*words), kibana(*words)
    assert done.returncode == 0, done.stderr + again.stderr
    assert again.returncode == 0, done.stderr + again.stderr
    assert "installed: index template team-reports" in again.stdout
    assert "index team-reports-2" in done.stdout
    assert "index team-reports-2" not in again.stdout
    created = requests.get(f"{search_server.url}/team-*", timeout=LIMIT_SECONDS).json()
    assert {name.rsplit("-", 1)[0] for name in created} == {
        "team-reports",
        "team-checkpoints",
        "team-notices",
    }
    # An index of a day is one, too.
    (of_month,) = (name for name in created if name.startswith("team-reports"))
    requests.delete(f"{search_server.url}/{of_month}", timeout=LIMIT_SECONDS).raise_for_status()
    of_day = f"{search_server.url}/team-reports-2026.11.03"
    requests.put(of_day, timeout=LIMIT_SECONDS).raise_for_status()
    assert "index team-reports-2" not in kibana(*words).stdout
    requests.post(f"{of_day}/_close", timeout=LIMIT_SECONDS).raise_for_status()
    assert f"installed: index {of_month}\n" in kibana(*words).stdout
    requests.delete(of_day, timeout=LIMIT_SECONDS).raise_for_status()
    # These distributions of the servers come without lifecycles.
    assert "skipped: lifecycle policy" in done.stdout
    for name, index in created.items():
        written = json.loads((TEMPLATES / f"task-{name.split('-')[1]}.json").read_text())[
            "template"
        ]["mappings"]
        assert set(index["mappings"]["properties"]) == set(written["properties"])
        requests.delete(f"{search_server.url}/{name}", timeout=LIMIT_SECONDS).raise_for_status()
    for name in ("reports", "checkpoints", "logs", "notices"):
        answer = requests.get(
            f"{search_server.url}/_index_template/team-{name}", timeout=LIMIT_SECONDS
        ).json()
        template = answer["index_templates"][0]["index_template"]
        assert template["index_patterns"] == [f"team-{name}-*"]
        written = json.loads((TEMPLATES / f"task-{name}.json").read_text())["template"]["mappings"][
            "properties"
        ]
        assert set(template["template"]["mappings"]["properties"]) == set(written)
        requests.delete(
            f"{search_server.url}/_index_template/team-{name}", timeout=LIMIT_SECONDS
        ).raise_for_status()


def test_sign_in(secured_elasticsearch: SearchServer) -> None:
    secured_elasticsearch.remove_ours()
    there = ("--elasticsearch", secured_elasticsearch.url)
    name, password = present(secured_elasticsearch.admin)
    user = {**os.environ, "ELASTICSEARCH_USER": name, "ELASTICSEARCH_PASSWORD": password}
    refused = run_here(os.environ, "recommend", "--from", secured_elasticsearch.url)
    assert refused.returncode == 1
    assert "check the address, its prefix, the sign-in" in refused.stderr
    assert "No runs in" in run_here(user, "recommend", "--from", secured_elasticsearch.url).stderr
    refused = kibana("import", *there)
    assert refused.returncode == 1
    assert refused.stderr.count("\n") == 1
    assert "check URL and sign-in" in refused.stderr
    done = run_here(user, "kibana", "import", *there)
    assert done.returncode == 0, done.stderr


class PlayedLifecycles(ClusterServer):
    """Elasticsearch with lifecycles, whose policy the user may read or not."""

    may_read = True

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        if path.startswith("/_ilm"):
            status = 200 if self.may_read else 403
            return ServerResponse(status=status, body={"error": {"reason": "not yours"}})
        if method == "PUT" and path.startswith("/_index_template"):
            # This distribution refuses the setting.
            body["template"]["settings"]["index"].pop("lifecycle", None)
        return super().request(method, path, body)


def test_a_role_without_the_policy_installs_the_templates_and_keeps_the_indices(
    secured_elasticsearch: SearchServer,
) -> None:
    secured_elasticsearch.remove_ours()
    session = requests.Session()
    session.auth = present(secured_elasticsearch.admin)
    there = f"{secured_elasticsearch.url}/_security"
    privileges = [{"names": ["task-*"], "privileges": ["manage"]}]
    role = {"cluster": ["monitor", "manage_index_templates"], "indices": privileges}
    for path, body in (
        ("role/importer", role),
        ("user/importer", {"password": "of-the-importer", "roles": ["importer"]}),
    ):
        session.put(f"{there}/{path}", json=body, timeout=LIMIT_SECONDS).raise_for_status()
    session.auth = ("importer", "of-the-importer")
    server = PlayedLifecycles(secured_elasticsearch.url, session)
    now = datetime(2026, 11, 27, tzinfo=UTC)
    for server.may_read, refused in (
        (False, ["lifecycle policy task-profiler (HTTP 403: not yours)"]),
        (
            True,
            [
                (
                    "lifecycle policy task-profiler in task-checkpoints-2026.11, "
                    "task-notices-2026.11, task-reports-2026.11: they have none and are kept; PUT "
                    '/NAME/_settings {"index.lifecycle.name": "task-profiler"} adds it'
                )
            ],
        ),
    ):
        steps = [*install_templates(server, setup_files(), prefix="task", now=now, dry_run=False)]
        assert [step.what for step in steps if not step.done] == refused
        assert sum(step.what.startswith("index template") for step in steps) == 4


class StoredPolicies(ClusterServer):
    """OpenSearch with its index state management, which keeps a policy as a document: the versions,
    and what is in conflict with them, are the server's own.
    """

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        if path.startswith("/_plugins/_ism/explain/"):
            return ServerResponse(status=200, body={})
        if not path.startswith("/_plugins/_ism/policies/"):
            return super().request(method, path, body)
        name, _, versions = path.removeprefix("/_plugins/_ism/policies/").partition("?")
        operation = "_doc" if versions or method == "GET" else "_create"
        answer = super().request(method, f"/ism-policies/{operation}/{name}?{versions}", body)
        told = mapping_or_empty(answer.body)
        if method == "GET" and answer.is_success:
            return ServerResponse(status=200, body={**told, **mapping_or_empty(told["_source"])})
        if answer.status == HTTPStatus.NOT_FOUND:
            return ServerResponse(status=404, body={"error": {"reason": "Policy not found"}})
        return answer


class MeetsAnother(Struct):
    """A server at which somebody else installs everything before the request number ``nth``."""

    server: ClusterServer
    nth: int
    asked: int = 0

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        self.asked += 1
        if self.asked == self.nth:
            _install(self.server)
        return self.server.request(method, path, body)


def _install(server: ClusterServer | MeetsAnother) -> list[str]:
    """What was not done."""
    now = datetime(2026, 11, 27, tzinfo=UTC)
    steps = [*install_templates(server, setup_files(), prefix="task", now=now, dry_run=False)]
    return [step.what for step in steps if not step.done]


@TWO_SERVERS
def test_of_two_imports_at_once_both_end_as_one_would(search_server: SearchServer) -> None:
    """Whenever the other one comes."""

    def removed() -> None:
        search_server.remove_ours()
        session.delete(f"{search_server.url}/ism-policies", timeout=LIMIT_SECONDS)

    with requests.Session() as session:
        has_lifecycles = search_server.engine == "opensearch"
        kind = StoredPolicies if has_lifecycles else ClusterServer
        server = kind(search_server.url, session)
        removed()
        alone = MeetsAnother(server, 0)
        undone = _install(alone)
        assert bool(undone) is not has_lifecycles  # this Elasticsearch has no ILM
        for nth in range(1, alone.asked + 1):
            removed()
            assert _install(MeetsAnother(server, nth)) == undone, nth
        removed()


FAMILIES = 101  # one more than AWS lists on a page


@pytest.fixture
def aws() -> Iterator[FakeAws]:
    with fake_aws() as played:
        yield played


@pytest.mark.filterwarnings("ignore")  # moto's server warns of its own gaps
def test_an_account_of_more_families_than_a_page_reports_after_four_commands(
    aws: FakeAws,
    aws_cli: Path,  # noqa: F811  the fixture
    tmp_path: Path,
    elasticsearch7: SearchServer,
) -> None:
    elasticsearch7.remove_ours()
    register_families(aws, FAMILIES)
    reader = TutorialReader(
        aws,
        aws_cli,
        tmp_path,
        build_wheel(tmp_path / "wheel"),
        search_url=elasticsearch7.url,
        after_run=f"{sys.executable} -m tests.search.deployed_forwarder",
    )
    try:
        done = reader.type()
        assert done.returncode == 0, done.stdout + done.stderr
        install, image, stack, monitors, check, run, clean = answers(done.stdout)
        assert f"3 monitors  not done  0 of {FAMILIES} schedules and rules start" in install
        uri = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/task-profiler:{profiler.__version__}"
        assert image == f"{uri}\n"
        assert f"push {uri}" in reader.docker.commands()
        deployed, export = stack.splitlines()[-2:]
        assert deployed.endswith(f"is deployed: version {profiler.__version__}.")
        assert export == f"export TASK_PROFILER_FROM={elasticsearch7.url}"
        assert monitors.count("registered ") == FAMILIES
        assert check.count(" current ") == FAMILIES
        assert run.startswith(f"● {FAMILY}:2 succeeded")
        assert "DELETE_COMPLETE  task-profiler" in clean
        assert monitored_families(aws) == []
        (hit,) = search(elasticsearch7)["hits"]["hits"]
        assert hit["_source"]["task"]["family"] == FAMILY
    finally:
        elasticsearch7.remove_ours()
