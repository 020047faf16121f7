"""Runs as a real OpenTelemetry Collector understands them."""

import random

import pytest
import requests
from msgspec.structs import replace

from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.otlp.otlp_encoding import SIGNALS
from profiler.otlp.otlp_export import HttpTransport, OtlpExporter, export_in_time
from profiler.otlp.otlp_settings import read_targets
from profiler.otlp.run_signals import ExportedRun, signals_of
from tests import shown_runs
from tests.otlp.conftest import Collector
from tests.otlp_schema import without_defaults
from tests.shown_runs import STARTED_NS
from tools.waiting import LIMIT_SECONDS

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ETL = ExportedRun(
    record=replace(shown_runs.etl().record, labels={"team": "data, ünïcode"}),
    pull_started_ns=STARTED_NS - 18 * NS_PER_SECOND,
    pull_stopped_ns=STARTED_NS - 3 * NS_PER_SECOND,
    context={"TRACEPARENT": PARENT},
    observed_ns=STARTED_NS + 3600 * NS_PER_SECOND,
)


def export(collector: Collector, run: ExportedRun, **settings: str) -> str | None:
    targets = read_targets({"OTLP_ENDPOINT": collector.url, **settings})
    exporter = OtlpExporter(HttpTransport(), SystemClock(), jitter=random.random)
    return export_in_time(lambda: (targets, signals_of(run)), exporter, 30)


@pytest.mark.parametrize("signal", ["traces", "logs", "metrics"])
def test_the_collector_refuses_what_is_malformed(collector: Collector, signal: str) -> None:
    """So what it takes is well-formed."""
    for content_type, body in (
        ("application/x-protobuf", b"\x0a\xff"),
        ("application/json", b'{"resource'),
    ):
        refused = requests.post(
            f"{collector.url}/v1/{signal}",
            data=body,
            headers={"Content-Type": content_type},
            timeout=LIMIT_SECONDS,
        )
        assert refused.status_code == requests.codes.bad_request
    assert collector.backend.received == {}


@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
@pytest.mark.parametrize("compression", ["gzip", "none"])
@pytest.mark.parametrize(
    "kind", ["etl", "out_of_memory", "failure", "stopped", "gpu", "local", "unmeasured", "waiting"]
)
def test_the_collector_understands_what_was_meant(
    collector: Collector, kind: str, protocol: str, compression: str
) -> None:
    run = replace(ETL, record=getattr(shown_runs, kind)().record)
    assert export(collector, run, OTLP_PROTOCOL=protocol, OTLP_COMPRESSION=compression) is None
    expected = {
        f"/v1/{signal}": [without_defaults(message)] for signal, message in signals_of(run).items()
    }
    received = collector.backend.received.items()
    assert {
        path: [without_defaults(document) for document in documents] for path, documents in received
    } == expected


def test_what_the_backend_refuses_is_reported(collector: Collector) -> None:
    collector.backend.status = 401
    reason = export(collector, ETL) or ""
    names, _, answer = reason.partition(" were not exported: ")
    assert set(names.removeprefix("The ").replace(" and ", ", ").split(", ")) == set(SIGNALS)
    assert answer.startswith("the server answered 401")
