"""What responses say, and that the schema is the published one."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from profiler.otlp.otlp_encoding import _SCHEMA, SIGNALS, encode_export_request, is_rejection
from tests.cases import each_case
from tests.otlp_schema import REQUESTS, read_protobuf

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_TYPES = {"varint": {"int64", "int32", "uint32", "enum", "bool"}, "hex": {"bytes"}}
_NAMES = {  # google.protobuf.descriptor.FieldDescriptor.TYPE_*
    1: "double", 3: "int64", 5: "int32", 6: "fixed64", 7: "fixed32", 8: "bool", 9: "string", 11: "message", 12: "bytes",
    13: "uint32", 14: "enum", 16: "sfixed64",
}  # fmt: skip


def compare(kind: str, published: Any, seen: set[str]) -> None:
    """Each field of our message is one of the published message, with its number and its type."""
    seen.add(kind)
    fields = {field.json_name: field for field in published.fields}
    for name, (number, own_type) in _SCHEMA[kind].items():
        field = fields[name]
        assert field.number == number, (kind, name)
        if own_type in _SCHEMA:
            assert _NAMES[field.type] == "message", (kind, name)
            if own_type not in seen:
                compare(own_type, field.message_type, seen)
        else:
            assert _NAMES[field.type] in _TYPES.get(own_type, {own_type}), (kind, name)


def test_the_schema_is_the_published_one() -> None:
    seen: set[str] = set()
    for signal in SIGNALS:
        compare(signal, REQUESTS[signal].DESCRIPTOR, seen)
    assert seen == set(_SCHEMA)


@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(), st.booleans())
def test_values_arrive_as_they_are(integer: int, number: float, text: str, truth: bool) -> None:  # noqa: FBT001
    values = [
        {"intValue": str(integer)},
        {"doubleValue": number},
        {"stringValue": text},
        {"boolValue": truth},
    ]
    value = {"arrayValue": {"values": values}}
    message = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value}]}]}]}
    read = read_protobuf("logs", encode_export_request("logs", message, "http/protobuf"))
    (record,) = read["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    if math.isinf(number):
        values[1] = {"doubleValue": str(number).replace("inf", "Infinity")}
    assert json.dumps(record["body"]["arrayValue"]["values"]) == json.dumps(values)


def partial(rejected: int, message: str) -> bytes:
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = message
    return bytes(response.SerializeToString())


@each_case(
    ("body", "content_type", "is_rejected"),
    [
        (b"", PROTOBUF, False),
        (ExportLogsServiceResponse().SerializeToString(), PROTOBUF, False),
        (partial(300, "too old"), PROTOBUF, True),
        (partial(1, "x" * 300), PROTOBUF, True),
        (partial(0, "a warning"), PROTOBUF, False),
        (b"{}", JSON, False),
        (
            b'{"partialSuccess":{"rejectedSpans":"20","errorMessage":"no"}}',
            JSON + "; charset=utf-8",
            True,
        ),
        (b'{"partialSuccess":{"rejectedLogRecords":5}}', JSON, True),
        (b'{"partialSuccess":{"rejectedLogRecords":0}}', JSON, False),
        (b"<html>", "text/html", False),
        (b"\xff\xff", PROTOBUF, False),
    ],
)
def test_a_partial_success_is_read(body: bytes, content_type: str, *, is_rejected: bool) -> None:
    assert is_rejection(body, content_type) is is_rejected


@given(st.binary(), st.sampled_from([PROTOBUF, JSON, ""]))
def test_any_body_is_read(body: bytes, content_type: str) -> None:
    is_rejection(body, content_type)
