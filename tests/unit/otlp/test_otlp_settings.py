"""The settings of an export."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.core.errors import UsageError
from profiler.forwarder.function_settings import has_export_address
from profiler.otlp.otlp_settings import AwsService, is_configured, parse_headers, read_targets
from tests.cases import each_case


def urls(environment: dict[str, str], **options: object) -> dict[str, str]:
    return {signal: target.url for signal, target in read_targets(environment, **options).items()}  # type: ignore[arg-type]


def test_one_address_leads_to_all_signals() -> None:
    """One address leads to all signals and the address of a signal is complete and precedes."""
    signals = {
        signal: f"https://otlp.example.com/team/v1/{signal}"
        for signal in ("traces", "logs", "metrics")
    }
    assert urls({"OTLP_ENDPOINT": "https://otlp.example.com/team/ "}) == signals
    with_query = urls({"OTLP_ENDPOINT": "https://otlp.example.com/team/?key=a/b"})
    assert with_query["logs"] == "https://otlp.example.com/team/v1/logs?key=a/b"
    found = urls(
        {"OTLP_ENDPOINT": "http://a:4318", "OTLP_LOGS_ENDPOINT": "https://b/loki/otlp?x=1"}
    )
    assert found["logs"] == "https://b/loki/otlp?x=1"
    assert found["traces"] == "http://a:4318/v1/traces"
    assert urls({"OTLP_METRICS_ENDPOINT": "https://b/m"}) == {"metrics": "https://b/m"}
    assert urls({}) == {}


def test_the_address_of_a_signal_and_a_path_that_is_none_are_left() -> None:
    of_signal = {"OTLP_TRACES_ENDPOINT": "http://a/v1/traces"}
    assert read_targets(of_signal)["traces"].url == "http://a/v1/traces"
    others = {"OTLP_ENDPOINT": "http://a/v1/traces-of-us"}
    assert read_targets(others)["logs"].url == "http://a/v1/traces-of-us/v1/logs"


def test_a_variable_of_one_signal_precedes_that_of_all() -> None:
    targets = read_targets(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a",
            "OTEL_EXPORTER_OTLP_HEADERS": "a=1",
            "OTEL_EXPORTER_OTLP_LOGS_HEADERS": "b=2",
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
        },
        prefix="OTEL_EXPORTER_OTLP",
    )
    assert targets["logs"].headers == (("b", "2"),)
    assert targets["logs"].protocol == "http/json"
    assert targets["traces"].headers == (("a", "1"),)
    assert targets["traces"].protocol == "http/protobuf"
    assert not targets["traces"].is_compressed
    secret = read_targets({"OTLP_ENDPOINT": "https://a/secret", "OTLP_HEADERS": "a=secret"})
    assert "secret" not in repr(secret)


def test_headers_are_percent_encoded() -> None:
    text = "Authorization=Basic%20dXNlcjpwdw%3D%3D, x-team = a%2Cb ,,x=a=b"
    headers = {"Authorization": "Basic dXNlcjpwdw==", "x-team": "a,b", "x": "a=b"}
    assert parse_headers(text, "OTLP_HEADERS") == tuple(headers.items())


@each_case(
    ("environment", "said"),
    [
        ({"OTLP_ENDPOINT": "localhost:4318"}, "OTLP_ENDPOINT must be an address"),
        ({"OTLP_ENDPOINT": "http://[x"}, "OTLP_ENDPOINT must be an address"),
        ({"OTLP_ENDPOINT": "http://ä"}, "OTLP_ENDPOINT must be an address"),
        ({"OTLP_TRACES_ENDPOINT": "ftp://a"}, "OTLP_TRACES_ENDPOINT must be an address"),
        ({"OTLP_ENDPOINT": "http://a/v1/traces"}, "^OTLP_ENDPOINT ends in /v1/traces, which is"),
        ({"OTLP_ENDPOINT": "http://a/x/v1/logs/"}, "^OTLP_ENDPOINT ends in /v1/logs, which is"),
        ({"OTLP_ENDPOINT": "https://me:secret@a"}, "put credentials into the headers"),
        (
            {"OTLP_ENDPOINT": "http://a", "OTLP_PROTOCOL": "grpc"},
            "OTLP_PROTOCOL must be http/protobuf or http/json",
        ),
        *(
            (
                {"OTLP_ENDPOINT": "http://a", "OTLP_HEADERS": text},
                "^OTLP_HEADERS is not a list of headers",
            )
            for text in ("secret", "a b=secret", "a=secret%0d%0aHost: x")
        ),
    ],
)
def test_invalid_settings_are_named_without_a_secret(
    environment: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read_targets(environment)
    assert "secret" not in str(caught.value)


@given(
    st.dictionaries(st.sampled_from(["OTLP_ENDPOINT", "OTLP_HEADERS", "OTLP_PROTOCOL"]), st.text()),
    st.booleans(),
)
def test_any_settings_are_read_or_refused(environment: dict[str, str], signs: bool) -> None:  # noqa: FBT001
    try:
        targets = read_targets(environment, signs_for_aws=signs)
    except UsageError:
        return
    assert bool(targets) == is_configured(environment) == has_export_address(environment)


def test_one_address_of_cloudwatch_leads_to_the_three_services() -> None:
    """One address of cloudwatch leads to the three services and other addresses are not signed."""
    targets = read_targets(
        {"OTLP_ENDPOINT": "https://xray.us-west-2.amazonaws.com"}, signs_for_aws=True
    )
    assert {signal: target.url for signal, target in targets.items()} == {
        "traces": "https://xray.us-west-2.amazonaws.com/v1/traces",
        "logs": "https://logs.us-west-2.amazonaws.com/v1/logs",
        "metrics": "https://monitoring.us-west-2.amazonaws.com/v1/metrics",
    }
    assert [target.aws for target in targets.values()] == [
        AwsService(name=name, region="us-west-2") for name in ("xray", "logs", "monitoring")
    ]
    with pytest.raises(UsageError, match="OTLP_ENDPOINT is not an address of CloudWatch"):
        read_targets({"OTLP_ENDPOINT": "https://otlp.example.com"}, signs_for_aws=True)


@pytest.mark.parametrize(
    ("url", "name", "region"),
    [
        ("https://vpce-0a-1b.logs.eu-west-1.vpce.amazonaws.com/v1/logs", "logs", "eu-west-1"),
        ("https://logs.cn-north-1.amazonaws.com.cn/v1/logs", "logs", "cn-north-1"),
        ("https://monitoring.us-gov-west-1.api.aws/v1/metrics", "monitoring", "us-gov-west-1"),
    ],
)
def test_the_address_of_a_signal_names_its_service(url: str, name: str, region: str) -> None:
    (target,) = read_targets({"OTLP_LOGS_ENDPOINT": url}, signs_for_aws=True).values()
    assert target.url == url
    assert target.aws == AwsService(name=name, region=region)
