"""Reads OTLP requests by the published schema (opentelemetry-proto)."""

import base64
import binascii
import json
from typing import Any

from google.protobuf.json_format import MessageToDict, Parse
from google.protobuf.message import Message as ProtobufMessage
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from profiler.otlp.otlp_encoding import Signal, encode_export_request
from profiler.otlp.run_signals import ExportedRun, signals_of

REQUESTS: dict[Signal, type[ProtobufMessage]] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
_IDS = ("traceId", "spanId", "parentSpanId")


def read_protobuf(signal: Signal, body: bytes) -> Any:
    """The request as OTLP/JSON. Fails if a field is unknown."""
    request = REQUESTS[signal].FromString(body)
    assert request.SerializeToString(deterministic=True) == _without_unknown(request)
    return _with_ids(MessageToDict(request, use_integers_for_enums=True), _to_hex)


def read_json(signal: Signal, body: bytes) -> Any:
    """The request as OTLP/JSON again. Fails if a name or a type is not that of the schema."""
    request = Parse(json.dumps(_with_ids(json.loads(body), _to_base64)), REQUESTS[signal]())
    return _with_ids(MessageToDict(request, use_integers_for_enums=True), _to_hex)


def _without_unknown(request: ProtobufMessage) -> bytes:
    known = type(request).FromString(request.SerializeToString())
    known.DiscardUnknownFields()
    return known.SerializeToString(deterministic=True)


def _with_ids(value: Any, change: Any) -> Any:
    if isinstance(value, list):
        return [_with_ids(item, change) for item in value]
    if isinstance(value, dict):
        return {
            name: change(item) if name in _IDS else _with_ids(item, change)
            for name, item in value.items()
        }
    return value


def _to_hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _to_base64(text: str) -> str:
    return base64.b64encode(binascii.unhexlify(text)).decode()


def attributes_of(holder: Any) -> dict[str, Any]:
    """The attributes of a resource, span, event, log record or data point by their names,
    without types.
    """
    return {one["key"]: _plain(one["value"]) for one in holder.get("attributes", [])}


def _plain(value: dict[str, Any]) -> Any:
    """OTLP's JSON has integers as text."""
    ((kind, content),) = value.items()
    if kind == "arrayValue":
        return [_plain(one) for one in content.get("values", [])]
    return int(content) if kind == "intValue" else content


def without_defaults(value: Any) -> Any:
    """What protobuf leaves out: numbers that are zero, empty texts, lists and messages."""
    if isinstance(value, dict):
        kept = {name: without_defaults(item) for name, item in value.items()}
        return {name: item for name, item in kept.items() if item not in (0, "", "0", [], {})}
    return [without_defaults(item) for item in value] if isinstance(value, list) else value


def spans(run: ExportedRun) -> list[Any]:
    found: list[Any] = signals_of(run)["traces"]["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return found


def check(run: ExportedRun) -> None:
    """Both encodings of all signals are what the published schema makes of them, and equal."""
    signals = signals_of(run)
    for signal, message in signals.items():
        as_json = read_json(signal, encode_export_request(signal, message, "http/json"))
        assert (
            read_protobuf(signal, encode_export_request(signal, message, "http/protobuf"))
            == as_json
        )
        assert without_defaults(message) == without_defaults(as_json)
    resources = [next(iter(message.values()))[0]["resource"] for message in signals.values()]
    assert all(resource == resources[0] for resource in resources)
    root, *children = spans(run)
    for span in (root, *children):
        assert 0 <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) < 2**64
        assert int(span["traceId"], 16)
        assert int(span["spanId"], 16)
        keys = [one["key"] for one in span.get("attributes", ())]
        assert len(keys) == len(set(keys))
    assert {child["parentSpanId"] for child in children} <= {root["spanId"]}
    assert signals == signals_of(run)
