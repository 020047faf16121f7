"""OTLP messages as JSON or as protobuf, and the content of a response.

A message is a ``dict`` as OTLP/JSON has it: names in lower camel case, ids in hexadecimal digits,
64-bit integers as texts, enums as numbers. The schema below has the parts of opentelemetry-proto
1.x that are used; the package ``protobuf`` would take a fifth of a second of a cold start.
"""

import re
import struct
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from profiler.core.json_fields import decoded_or_none, mapping_or_empty

Signal = Literal["traces", "logs", "metrics"]
SIGNALS: tuple[Signal, ...] = ("traces", "logs", "metrics")
Protocol = Literal["http/protobuf", "http/json"]
Message: TypeAlias = Mapping[str, Any]

CONTENT_TYPES: Mapping[Protocol, str] = {
    "http/protobuf": "application/x-protobuf",
    "http/json": "application/json",
}

_VARINT = 0
_FIXED64 = 1
_BYTES = 2
_FIXED32 = 5
# By message (a request by its signal): the number and the type of each field. A type is a scalar of
# protobuf or another message. "hex": bytes.
_SCHEMA: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "traces": {"resourceSpans": (1, "ResourceSpans")},
    "ResourceSpans": {"resource": (1, "Resource"), "scopeSpans": (2, "ScopeSpans")},
    "ScopeSpans": {"scope": (1, "Scope"), "spans": (2, "Span")},
    "Span": {
        "traceId": (1, "hex"),
        "spanId": (2, "hex"),
        "parentSpanId": (4, "hex"),
        "flags": (16, "fixed32"),
        "name": (5, "string"),
        "kind": (6, "varint"),
        "startTimeUnixNano": (7, "fixed64"),
        "endTimeUnixNano": (8, "fixed64"),
        "attributes": (9, "KeyValue"),
        "events": (11, "Event"),
        "status": (15, "Status"),
    },
    "Event": {"timeUnixNano": (1, "fixed64"), "name": (2, "string"), "attributes": (3, "KeyValue")},
    "Status": {"message": (2, "string"), "code": (3, "varint")},
    "logs": {"resourceLogs": (1, "ResourceLogs")},
    "ResourceLogs": {"resource": (1, "Resource"), "scopeLogs": (2, "ScopeLogs")},
    "ScopeLogs": {"scope": (1, "Scope"), "logRecords": (2, "LogRecord")},
    "LogRecord": {
        "timeUnixNano": (1, "fixed64"),
        "observedTimeUnixNano": (11, "fixed64"),
        "severityNumber": (2, "varint"),
        "severityText": (3, "string"),
        "body": (5, "AnyValue"),
        "attributes": (6, "KeyValue"),
        "traceId": (9, "hex"),
        "spanId": (10, "hex"),
    },
    "metrics": {"resourceMetrics": (1, "ResourceMetrics")},
    "ResourceMetrics": {"resource": (1, "Resource"), "scopeMetrics": (2, "ScopeMetrics")},
    "ScopeMetrics": {"scope": (1, "Scope"), "metrics": (2, "Metric")},
    "Metric": {
        "name": (1, "string"),
        "description": (2, "string"),
        "unit": (3, "string"),
        "gauge": (5, "Gauge"),
    },
    "Gauge": {"dataPoints": (1, "NumberDataPoint")},
    "NumberDataPoint": {
        "attributes": (7, "KeyValue"),
        "timeUnixNano": (3, "fixed64"),
        "asDouble": (4, "double"),
        "asInt": (6, "sfixed64"),
    },
    "Resource": {"attributes": (1, "KeyValue")},
    "Scope": {"name": (1, "string"), "version": (2, "string")},
    "KeyValue": {"key": (1, "string"), "value": (2, "AnyValue")},
    "AnyValue": {
        "stringValue": (1, "string"),
        "boolValue": (2, "varint"),
        "intValue": (3, "varint"),
        "doubleValue": (4, "double"),
        "arrayValue": (5, "ArrayValue"),
    },
    "ArrayValue": {"values": (1, "AnyValue")},
}
_FIXED = {"fixed64": ("<Q", _FIXED64), "sfixed64": ("<q", _FIXED64), "fixed32": ("<I", _FIXED32)}
# The start of a response: its field 1 is the partial success, which begins with the number of
# rejected items.
_REJECTION = re.compile(rb"\x0a[\x80-\xff]{0,9}[\x00-\x7f]\x08(?!\x00)", re.DOTALL)


def encode_export_request(signal: Signal, message: Message, protocol: Protocol) -> bytes:
    """Encode the export request of a signal."""
    if protocol == "http/json":
        return msgspec.json.encode(message)
    return _encode(signal, message)


def _encode(kind: str, message: Message) -> bytes:
    parts: list[bytes] = []
    for name, value in message.items():
        number, field_kind = _SCHEMA[kind][name]
        items = value if isinstance(value, list) else (value,)
        parts += [_encode_field(number, field_kind, item) for item in items]
    return b"".join(parts)


def _encode_field(number: int, kind: str, value: Any) -> bytes:  # noqa: ANN401  any value of JSON
    if kind == "varint":
        return _encode_key(number, _VARINT) + _encode_varint(int(value) % 2**64)
    if kind in _FIXED:
        form, wire = _FIXED[kind]
        return _encode_key(number, wire) + struct.pack(form, int(value))
    if kind == "double":
        return _encode_key(number, _FIXED64) + struct.pack("<d", value)
    data: bytes = {"string": str.encode, "hex": bytes.fromhex}.get(kind, partial(_encode, kind))(
        value
    )
    return _encode_key(number, _BYTES) + _encode_varint(len(data)) + data


def _encode_key(number: int, wire: int) -> bytes:
    return _encode_varint(number << 3 | wire)


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:  # noqa: PLR2004  seven bits a byte
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def is_rejection(body: bytes, content_type: str) -> bool:
    """Whether a response of status 200 rejects items (a partial success)."""
    if "protobuf" in content_type:
        return bool(_REJECTION.match(body))
    counts = mapping_or_empty(
        mapping_or_empty(decoded_or_none(msgspec.json.decode, body)).get("partialSuccess")
    ).items()
    return any(
        name.startswith("rejected") and str(count).strip("0").isdecimal() for name, count in counts
    )
