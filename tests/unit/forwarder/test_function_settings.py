from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from profiler.core.index_names import IndexNames
from profiler.forwarder.function_settings import (
    Credentials,
    ForwarderSettings,
    read_credentials,
    read_export_targets,
    read_grace_minutes,
    read_notice_settings,
    read_retry_settings,
    read_settings,
)
from profiler.forwarder.invocation import SettingsError
from tests.cases import each_case

SECRET = "hunter2-hunter2"


def test_settings_that_the_test_of_the_deployed_template_does_not_set() -> None:
    environment = {
        "SEARCH_ENGINE": "OpenSearch",
        "ELASTICSEARCH_USER": "me",
        "ELASTICSEARCH_PASSWORD": SECRET,
        "ELASTICSEARCH_SECRET_ID": "ssm:/x",
        "ELASTICSEARCH_AWS_AUTH": "ES",
        "ELASTICSEARCH_CA_FILE": "/opt/ca.pem",
        "INDEX_PERIOD": "Day",
        "AWS_REGION": "eu-west-1",
    }
    credentials = Credentials(username="me", password=SECRET, aws="es")
    expected = ForwarderSettings(
        engine="opensearch", credentials=credentials, secret_id="ssm:/x", region="eu-west-1"
    )
    assert read_settings(environment) == replace(
        expected, ca_file="/opt/ca.pem", indices=IndexNames(period="day")
    )
    assert (
        read_settings({"SEARCH_ENGINE": "", "INDEX_PREFIX": " ", "FORWARD_LOG_LINES": ""})
        == ForwarderSettings()
    )


OTLP = {"OTLP_ENDPOINT": "https://otlp.example.com"}
INVALID: list[tuple[Callable[[dict[str, str]], object], dict[str, str], str]] = [
    (read_settings, {"SEARCH_ENGINE": SECRET}, "SEARCH_ENGINE"),
    (read_settings, {"FORWARD_LOG_LINES": SECRET}, "FORWARD_LOG_LINES"),
    (read_settings, {"INDEX_PREFIX": "Team A"}, "INDEX_PREFIX"),
    (read_settings, {"INDEX_PERIOD": SECRET}, "must be month or day"),
    (read_settings, {"ELASTICSEARCH_PASSWORD": SECRET}, "set both or neither"),
    (read_settings, {"ELASTICSEARCH_AWS_AUTH": "es"}, "SEARCH_ENGINE=opensearch"),
    (read_settings, {"ELASTICSEARCH_AWS_AUTH": SECRET}, "ELASTICSEARCH_AWS_AUTH must be es"),
    (
        read_settings,
        {"ELASTICSEARCH_URL": "https://a1.eu-west-1.aoss.amazonaws.com"},
        "Serverless is not supported",
    ),
    (
        read_settings,
        {"ELASTICSEARCH_URL": "https://a1.aoss.eu-west-1.on.aws"},
        "Serverless is not supported",
    ),
    (
        read_notice_settings,
        {"NOTIFY": "failure,never"},
        "must be all, or a list of success, failure and running",
    ),
    (
        read_notice_settings,
        {"NOTIFY_FAMILIES": "nightly-etl hourly"},
        "NOTIFY_FAMILIES must be names of families or globs, separated by commas",
    ),
    (
        read_retry_settings,
        {"RETRY_OUT_OF_MEMORY": "a, b c"},
        "RETRY_OUT_OF_MEMORY must be names of families or globs, separated by commas",
    ),
    (
        read_retry_settings,
        {"RETRY_MAX_MEMORY_MB": "8 GB"},
        "RETRY_MAX_MEMORY_MB must be a number of MiB",
    ),
    (
        partial(read_export_targets, fetch=str),
        {**OTLP, "OTLP_AWS_AUTH": "aws"},
        "OTLP_AWS_AUTH must be true or false",
    ),
    (
        partial(read_export_targets, fetch=str),
        {**OTLP, "OTLP_PROTOCOL": "grpc"},
        "OTLP_PROTOCOL must be",
    ),
    *(
        (read_grace_minutes, {"SCHEDULE_GRACE_MINUTES": text}, r"^SCHEDULE_GRACE_MINUTES must be")
        for text in ("0", "46", "nan", "soon")
    ),
    *(
        (
            partial(read_export_targets, fetch={"x": secret}.__getitem__),
            {**OTLP, "OTLP_SECRET_ID": "x"},
            "The secret x",
        )
        for secret in (SECRET, "{}", f'{{"otlp_headers":["{SECRET}"]}}')
    ),
]


def test_spaces_beside_the_commas_of_families_are_no_mistake() -> None:
    environment = {"NOTIFY_FAMILIES": " etl-* ,load ", "RETRY_OUT_OF_MEMORY": "etl , [a-c]x"}
    assert read_notice_settings(environment).families == ("etl-*", "load")
    assert read_retry_settings(environment)[0] == ("etl", "[a-c]x")


@each_case(("read", "environment", "message"), INVALID)
def test_an_invalid_setting_is_named_without_its_value(
    read: Callable[[dict[str, str]], object], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        read(environment)
    assert SECRET not in str(error.value)


def test_the_repr_of_credentials_has_no_secret() -> None:
    for credentials in (Credentials(api_key=SECRET), Credentials(username="me", password=SECRET)):
        assert (
            SECRET
            not in f"{credentials} {credentials!r} {ForwarderSettings(credentials=credentials)!r}"
        )


@pytest.mark.parametrize(
    ("secret", "credentials"),
    [
        ('{"api_key": "k"}', Credentials(api_key="k")),
        ('{"username": "u", "password": "p", "more": 1}', Credentials(username="u", password="p")),
        (
            '{"username": "u", "password": "p", "api_key": ""}',
            Credentials(username="u", password="p"),
        ),
        ('{"username": "", "password": "", "api_key": "k"}', Credentials(api_key="k")),
    ],
)
def test_a_secret_holds_a_key_or_a_user(secret: str, credentials: Credentials) -> None:
    assert read_credentials("name", lambda _name: secret) == credentials


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        "{}",
        '{"api_key": ""}',
        f'{{"username": "{SECRET}"}}',
        f'["{SECRET}"]',
        f'{{"api_key": ["{SECRET}"]}}',
    ],
)
def test_an_invalid_secret_is_named_without_its_value(secret: str) -> None:
    with pytest.raises(SettingsError, match="The secret /my/secret") as error:
        read_credentials("/my/secret", lambda _name: secret)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None


def test_notify_lists_what_is_sent() -> None:
    for text in ("", "ALL", "success,all"):
        assert read_notice_settings({"NOTIFY": text}).subjects == {"success", "failure", "running"}
    assert read_notice_settings({"NOTIFY": "failure, Running,"}).subjects == {"failure", "running"}


def test_the_headers_of_an_export_may_be_in_a_secret() -> None:
    environment = {**OTLP, "OTLP_SECRET_ID": "ssm:/otlp"}
    secret = '{"otlp_headers":"api-key=a%20b"}'
    targets = read_export_targets(environment, {"ssm:/otlp": secret}.__getitem__)
    assert {target.headers for target in targets.values()} == {(("api-key", "a b"),)}
    own = read_export_targets({**environment, "OTLP_HEADERS": "api-key=own"}, lambda _name: SECRET)
    assert own["traces"].headers == (("api-key", "own"),)


def test_cloudwatch_gets_log_records_in_the_stream_of_the_function() -> None:
    """The role allows it to write there; CloudWatch refuses log records without a stream."""
    environment = {
        "OTLP_ENDPOINT": "https://xray.eu-west-1.amazonaws.com",
        "OTLP_AWS_AUTH": "true",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/f",
        "AWS_LAMBDA_LOG_STREAM_NAME": "2026/11/20/[$LATEST]ab",
    }
    targets = read_export_targets(environment, str)
    own = {"x-aws-log-group": "/aws/lambda/f", "x-aws-log-stream": "2026/11/20/[$LATEST]ab"}
    assert dict(targets["logs"].headers) == own
    assert targets["traces"].headers == ()
    named = read_export_targets({**environment, "OTLP_HEADERS": "X-Aws-Log-Group=/runs"}, str)
    assert dict(named["logs"].headers) == {"X-Aws-Log-Group": "/runs"}


def test_the_grace_of_schedules_and_the_bounds_of_a_retry() -> None:
    assert [read_grace_minutes({"SCHEDULE_GRACE_MINUTES": text}) for text in ("", "7.5")] == [
        15,
        7.5,
    ]
    assert read_retry_settings({}) == ((), 61_440)
    read = read_retry_settings({"RETRY_OUT_OF_MEMORY": "a-*, b", "RETRY_MAX_MEMORY_MB": "8192"})
    assert read == (("a-*", "b"), 8192)
