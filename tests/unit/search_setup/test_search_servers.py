"""How the commands sign in to a cluster or to Kibana."""

from pathlib import Path

import pytest
import requests

from profiler.core.errors import UsageError
from profiler.search_setup.search_servers import ClusterServer, DashboardsServer, open_session

KEY = {"ELASTICSEARCH_API_KEY": "a2V5"}
NAME = {"ELASTICSEARCH_USERNAME": "me", "ELASTICSEARCH_PASSWORD": "pw"}
OF_THE_FUNCTIONS = {"ELASTICSEARCH_SECRET_ID": "search"}


def sent(session: requests.Session) -> str | None:
    """The header of a request."""
    return session.prepare_request(requests.Request("GET", "http://search.example.com")).headers.get("Authorization")


@pytest.mark.parametrize(
    ("api_key", "user", "environment", "header"),
    [
        (None, None, {}, None),
        (None, None, KEY, "ApiKey a2V5"),
        (None, None, NAME, "Basic bWU6cHc="),
        ("b3du", None, KEY, "ApiKey b3du"),
        (None, "me:pw", KEY, "Basic bWU6cHc="),
        (None, None, {**OF_THE_FUNCTIONS, **KEY}, "ApiKey a2V5"),
        (None, "me:pä€", {}, "Basic bWU6cMOk4oKs"),
    ],
)
def test_the_sign_in_is_the_given_one_or_the_variables(
    api_key: str | None, user: str | None, environment: dict[str, str], header: str | None
) -> None:
    assert sent(open_session(api_key, user, environment)) == header


@pytest.mark.parametrize(
    ("api_key", "user", "header"), [("b3du", None, "ApiKey b3du"), (None, "me:pw", "Basic bWU6cHc=")]
)
def test_a_netrc_does_not_replace_what_was_given(
    api_key: str | None, user: str | None, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine search.example.com login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert sent(open_session(api_key, user, {})) == header


def test_a_secret_that_only_the_functions_can_read_is_not_passed_over() -> None:
    with pytest.raises(UsageError, match=r"for the forwarder's functions only: give --api-key, --user or --aws-auth"):
        open_session(None, None, {"ELASTICSEARCH_SECRET_ID": "search"})


@pytest.mark.parametrize("host", ["A1.eu-west-1.AOSS.amazonaws.com", "a1.cn-north-1.aoss.amazonaws.com.cn:443"])
def test_a_collection_of_opensearch_serverless_is_refused_at_once(host: str) -> None:
    for server in (ClusterServer, DashboardsServer):
        with pytest.raises(UsageError, match=r"^OpenSearch Serverless is not supported"):
            server(f"https://{host}/_dashboards", requests.Session())
        server(f"https://proxy.example.com/{host}", requests.Session())


@pytest.mark.parametrize("key", ["hunter2\n", "“hunter2”"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="an invalid character") as error:
        open_session(key, None, {})
    assert "hunter2" not in str(error.value)
