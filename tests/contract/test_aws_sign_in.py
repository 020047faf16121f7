"""Amazon OpenSearch Service with IAM: the commands and the forwarder sign every request."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from profiler.cli.options import SignIn
from profiler.cli.setup.stack_output import SearchCluster
from profiler.cli.wiring.aws_options import search_session
from profiler.forwarder.documents import Document
from profiler.forwarder.function_settings import Credentials
from profiler.forwarder.search_cluster.opensearch import OpenSearchCluster
from tests.amazon_domain import KEY, REGION, AmazonDomain
from tests.command_line import run_here

ENVIRONMENT = {**KEY, "AWS_REGION": REGION, "HOME": os.devnull, "NO_PROXY": "*"}


@pytest.fixture
def domain() -> Iterator[AmazonDomain]:
    with closing(AmazonDomain()) as served:
        yield served


def test_templates_and_dashboards_are_installed_and_can_be_removed(domain: AmazonDomain) -> None:
    words = ("kibana", "import", "--elasticsearch", domain.url, "--url", f"{domain.url}/_dashboards", "--aws-auth")
    done = run_here(ENVIRONMENT, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "installed: index template task-reports" in done.stdout
    assert ("PUT", "/_index_template/task-reports") in domain.accepted
    assert ("POST", "/_dashboards/api/saved_objects/_import?overwrite=true") in domain.accepted
    done = run_here(ENVIRONMENT, "kibana", "remove", "--elasticsearch", domain.url, "--aws-auth")
    assert (done.stdout, done.stderr) == ("There is nothing to remove.\n", "")


def test_setup_stack_installs_the_templates(
    domain: AmazonDomain, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    session = search_session(SignIn(aws_auth=True))
    cluster = SearchCluster(domain.url, session)
    cluster.find_engine()
    cluster.install("task", "month")
    assert cluster.engine == "opensearch"
    assert capfd.readouterr() == ("installed: 7 index templates, policies and indices\n", "")


def test_templates_are_installed_through_the_console_of_the_dashboards(domain: AmazonDomain) -> None:
    environment = {**ENVIRONMENT, "OPENSEARCH_AWS_AUTH": "true"}
    done = run_here(environment, "kibana", "import", "--url", f"{domain.url}/_dashboards")
    assert (done.returncode, done.stderr) == (0, "")
    query = "path=%2F_index_template%2Ftask-reports&method=PUT"
    assert ("POST", f"/_dashboards/api/console/proxy?{query}") in domain.accepted


@pytest.mark.parametrize(
    "words",
    [("history", "--family", "nightly-*"), ("show", "nightly"), ("recommend",), ("report", "-o", os.devnull)],
)
def test_runs_are_read(domain: AmazonDomain, words: tuple[str, ...]) -> None:
    done = run_here(ENVIRONMENT, *words, "--elasticsearch", domain.url, "--aws-auth")
    assert "HTTP 403" not in done.stderr
    assert ("POST", "/task-reports-*/_search") in {(method, path.partition("?")[0]) for method, path in domain.accepted}


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        ((), {}, "User: anonymous is not authorized to perform: es:ESHttpGet"),
        (("--aws-auth", "--region", "eu-north-1"), {}, "Credential should be scoped to a valid region"),
        (("--aws-auth",), {"AWS_SECRET_ACCESS_KEY": "other"}, "The request signature we calculated does not match"),
        (("--aws-auth",), {"AWS_REGION": ""}, "AWS cannot be used: the Region is unknown: use --region"),
        (("--aws-auth", "--profile", "none"), {}, "The requests cannot be signed: there is no profile 'none'"),
    ],
)
def test_a_refusal_is_shown_in_its_own_words(
    domain: AmazonDomain, words: tuple[str, ...], environment: Mapping[str, str], said: str
) -> None:
    done = run_here({**ENVIRONMENT, **environment}, "kibana", "import", "--elasticsearch", domain.url, *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert domain.accepted == []


def test_the_forwarder_signs_in_the_same_way(domain: AmazonDomain, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEY.items():
        monkeypatch.setenv(name, value)
    cluster = OpenSearchCluster(domain.url, Credentials(aws=True), REGION)
    (result,) = cluster.bulk([Document(index="task-reports-2026.03", id="1", fields={"a": 1})], 5)
    assert result.status == 201
    assert cluster.search("task-reports-*", {"size": 1}, 5)
    assert {path.partition("?")[0] for _, path in domain.accepted} == {"/_bulk", "/task-reports-*/_search"}
