"""The variables of OpenTelemetry that ``run --otlp`` reads."""

import pytest

from profiler.cli.wiring.build_export import max_export_seconds, standard_targets, user_attributes
from profiler.core.errors import UsageError

PREFIX = "OTEL_EXPORTER_OTLP"


def addresses(**environment: str) -> dict[str, str]:
    return {signal: target.url for signal, target in standard_targets(environment).items()}


def test_without_an_address_all_signals_whose_exporter_is_not_none_go_to_the_local_collector() -> None:
    traces = {"traces": "http://localhost:4318/v1/traces"}
    others = {signal: f"http://localhost:4318/v1/{signal}" for signal in ("logs", "metrics")}
    assert addresses() == traces | others
    assert addresses(OTEL_LOGS_EXPORTER="none", OTEL_METRICS_EXPORTER="None", OTEL_TRACES_EXPORTER="otlp") == traces


def test_grpc_is_refused_in_a_sentence() -> None:
    sentence = "^The run was not exported: OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf or"
    with pytest.raises(UsageError, match=sentence):
        standard_targets({f"{PREFIX}_PROTOCOL": "grpc"})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 5), ("10000", 5), ("2500", 2.5), (" 300 ", 0.3), ("0", 5), ("-1", 5), ("2s", 5), ("1e3", 5), ("²", 5)],
)
def test_the_time_is_that_of_the_variable_and_at_most_ours(text: str, seconds: float) -> None:
    assert max_export_seconds({f"{PREFIX}_TIMEOUT": text}) == seconds


def test_the_users_attributes_are_decoded_and_the_service_has_its_own_variable() -> None:
    text = "deployment.environment.name=pre%2Cprod, team = data%20platform ,broken,=x,empty=,service.name=b,a=b=c"
    attributes = {"deployment.environment.name": "pre,prod", "team": "data platform", "service.name": "b", "a": "b=c"}
    assert user_attributes({"OTEL_RESOURCE_ATTRIBUTES": text}) == attributes
    named = user_attributes({"OTEL_RESOURCE_ATTRIBUTES": text, "OTEL_SERVICE_NAME": "etl"})
    assert named == attributes | {"service.name": "etl"}
    assert user_attributes({}) == {}
