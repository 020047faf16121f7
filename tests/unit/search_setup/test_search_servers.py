"""How the commands sign in to a cluster or to Kibana."""

from hashlib import sha256
from pathlib import Path

import pytest
import requests
from boto3 import Session

from profiler.core.aws_signature import AwsSignature, signing_region, signing_service
from profiler.core.errors import UsageError
from profiler.search_setup.search_servers import signed_in_session
from tests.cases import each_case

KEY = {"ELASTICSEARCH_API_KEY": "a2V5"}
NAME = {"ELASTICSEARCH_USER": "me", "ELASTICSEARCH_PASSWORD": "pw"}


def sent(session: requests.Session) -> str | None:
    """The header of a request."""
    return session.prepare_request(
        requests.Request("GET", "http://search.example.com")
    ).headers.get("Authorization")


@pytest.mark.parametrize(
    ("environment", "header"),
    [
        ({}, None),
        (KEY, "ApiKey a2V5"),
        (NAME, "Basic bWU6cHc="),
        ({"ELASTICSEARCH_USER": "me", "ELASTICSEARCH_PASSWORD": "pä€"}, "Basic bWU6cMOk4oKs"),
    ],
)
def test_the_variables_sign_in_and_a_netrc_does_not_replace_them(
    environment: dict[str, str], header: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sent(signed_in_session(environment)) == header
    netrc = tmp_path / "netrc"
    netrc.write_text("machine search.example.com login other password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    assert header is None or sent(signed_in_session(environment)) == header


@pytest.mark.parametrize("name", NAME)
def test_a_name_without_a_password_is_no_sign_in(name: str) -> None:
    """As in the functions: the request would be refused, or be anybody's."""
    with pytest.raises(UsageError, match="PASSWORD is set: set both or neither"):
        signed_in_session({name: "x"})
    assert sent(signed_in_session({name: "x", **KEY})) == "ApiKey a2V5"


@each_case(
    ("url", "environment", "service"),
    [
        ("https://search-x.eu-west-1.es.amazonaws.com", {}, "es"),
        ("https://A1.eu-west-1.AOSS.amazonaws.com/team", KEY, "aoss"),
        ("https://a1.cn-north-1.aoss.amazonaws.com.cn:443", {}, "aoss"),
        ("https://search-x.eusc-de-east-1.es.amazonaws.eu", {}, "es"),
        ("https://search-x.aos.eu-west-1.on.aws", {}, "es"),
        ("https://search-x.AOS.eu-west-1.on.aws:443/team", KEY, "es"),
        ("https://search-x.aos.cn-north-1.on.amazonwebservices.com.cn", {}, "es"),
        ("https://search-x.aos.eusc-de-east-1.on.amazonwebservices.eu/", {}, "es"),
        ("https://a1.aoss.eu-west-1.on.aws", {}, "aoss"),
        ("https://a1.us-east-2.aoss-fips.amazonaws.com", {}, "aoss"),
        ("https://a1.aoss-fips.us-east-2.on.aws", {}, "aoss"),
        ("https://search-x.aos.eu-west-1.on.aws", NAME, None),
        ("https://search-x.aos.eu-west-1.on.aws.example.com", {}, None),
        ("https://a.lambda-url.eu-west-1.on.aws", {}, None),
        ("https://search-x.eu-west-1.es.amazonaws.com", NAME, None),
        ("https://search.example.com", {"ELASTICSEARCH_AWS_AUTH": "es", **NAME}, "es"),
        ("https://proxy.example.com/x.eu-west-1.es.amazonaws.com", {}, None),
        ("https://x.eu-west-1.es.amazonaws.com.example.com", {}, None),
    ],
)
def test_amazons_addresses_are_signed_without_being_asked(
    url: str, environment: dict[str, str], service: str | None
) -> None:
    assert signing_service(url, environment) == service


def test_the_region_is_the_one_in_the_address() -> None:
    """The region is the one in the address and a collection gets the hash of the body signed."""
    assert signing_region("https://search-x.eu-west-1.es.amazonaws.com") == "eu-west-1"
    assert signing_region("https://search-x.aos.eu-west-1.on.aws/a") == "eu-west-1"
    assert signing_region("https://a1.us-east-2.aoss-fips.amazonaws.com") == "us-east-2"
    assert signing_region("https://search.example.com") is None
    signature = AwsSignature(Session("key", "secret").get_credentials(), "eu-west-1", "aoss")
    headers = signature.signed_headers(
        "POST", "https://a1.eu-west-1.aoss.amazonaws.com/_search", "{}"
    )
    assert headers["X-Amz-Content-SHA256"] == sha256(b"{}").hexdigest()
    assert "x-amz-content-sha256" in headers["Authorization"]


@pytest.mark.parametrize("key", ["hunter2\n", "“hunter2”"])
def test_a_key_that_cannot_be_sent_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="an invalid character") as error:
        signed_in_session({"ELASTICSEARCH_API_KEY": key})
    assert "hunter2" not in str(error.value)
