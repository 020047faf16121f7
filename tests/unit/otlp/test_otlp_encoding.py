"""What responses say, and that the schema is the published one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from profiler.otlp.otlp_encoding import _SCHEMA, SIGNALS, encode, read_error, read_rejection
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
    values = [{"intValue": str(integer)}, {"doubleValue": number}, {"stringValue": text}, {"boolValue": truth}]
    value = {"arrayValue": {"values": values}}
    message = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": value}]}]}]}
    read = read_protobuf("logs", encode("logs", message, "http/protobuf"))
    (record,) = read["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    assert [json.dumps(one) for one in record["body"]["arrayValue"]["values"]] in (
        [json.dumps(one) for one in values],
        [json.dumps(one) for one in [values[0], {"doubleValue": str(number).replace("inf", "Infinity")}, *values[2:]]],
    )


def partial(rejected: int, message: str) -> bytes:
    response = ExportTraceServiceResponse()
    response.partial_success.rejected_spans = rejected
    response.partial_success.error_message = message
    data: bytes = response.SerializeToString()
    return data


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"", PROTOBUF, None),
        (ExportLogsServiceResponse().SerializeToString(), PROTOBUF, None),
        (partial(300, "too old"), PROTOBUF, "too old"),
        (partial(0, "a warning"), PROTOBUF, None),
        (b"{}", JSON, None),
        (b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"no"}}', JSON + "; charset=utf-8", "no"),
        (b'{"partialSuccess":{"rejectedLogRecords":5}}', JSON, ""),
        (b"<html>", "text/html", None),
        (b"\xff\xff", PROTOBUF, None),
    ],
)
def test_a_partial_success_is_read(body: bytes, content_type: str, message: str | None) -> None:
    assert read_rejection(body, content_type) == message


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        (b"\x08\x10\x12\x09bad token", PROTOBUF, "bad token"),
        (b'{"code":16,"message":"bad token"}', JSON, "bad token"),
        (b'{"error":"unauthorized"}', JSON, "unauthorized"),
        (b"no such page", "text/plain", "no such page"),
    ],
)
def test_the_message_of_an_error_is_read(body: bytes, content_type: str, message: str) -> None:
    assert read_error(body, content_type) == message


@given(st.binary(), st.sampled_from([PROTOBUF, JSON, "text/plain", ""]))
def test_any_body_is_read(body: bytes, content_type: str) -> None:
    read_rejection(body, content_type)
    read_error(body, content_type)
