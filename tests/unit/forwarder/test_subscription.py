"""Decoding of subscription payloads, valid and invalid."""

import base64
import gzip
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forwarder.errors import PayloadError
from forwarder.lines import InvalidReport, read_line
from forwarder.subscription import MAX_PAYLOAD_BYTES, LogEvent, Payload, decode_payload
from profiler.record.model import Report

DOCUMENT = {
    "messageType": "DATA_MESSAGE",
    "owner": "111122223333",
    "logGroup": "/ecs/jobs",
    "logStream": "ecs/batch/0123",
    "subscriptionFilters": ["task-profiler"],
    "logEvents": [{"id": "1", "timestamp": 1772359202500, "message": "hello", "extractedFields": {"a": "b"}}],
    "policyLevel": "ACCOUNT_LEVEL_POLICY",
}
CONTROL = {
    "messageType": "CONTROL_MESSAGE",
    "owner": "CloudwatchLogs",
    "logGroup": "",
    "logStream": "",
    "subscriptionFilters": [],
    "logEvents": [{"id": "", "timestamp": 1, "message": "CWL CONTROL MESSAGE: Checking health of destination"}],
}
REPORT = {
    "time": "2026-03-01T10:00:03Z",
    "type": "task.report",
    "schemaVersion": "1.0",
    "record": {"taskId": "0123", "container": {"name": "batch"}, "status": "success"},
}


def event(document: object, compress: Any = gzip.compress) -> dict[str, Any]:
    return {"awslogs": {"data": base64.b64encode(compress(json.dumps(document).encode())).decode()}}


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_reads_gzip_and_zlib(compress: Any) -> None:
    assert decode_payload(event(DOCUMENT, compress)) == Payload(
        message_type="DATA_MESSAGE",
        log_group="/ecs/jobs",
        log_stream="ecs/batch/0123",
        log_events=(LogEvent("1", 1772359202500, "hello"),),
    )


def test_a_control_message_has_no_lines() -> None:
    assert decode_payload(event(CONTROL)).lines == ()


def cut(document: object) -> dict[str, Any]:
    data = base64.b64decode(event(document)["awslogs"]["data"])
    return {"awslogs": {"data": base64.b64encode(data[:-12]).decode()}}


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({}, "no awslogs.data"),
        ({"awslogs": {"data": 5}}, "no awslogs.data"),
        ([], "no awslogs.data"),
        ({"awslogs": {"data": "no base64!"}}, "not base64"),
        ({"awslogs": {"data": base64.b64encode(b"plain").decode()}}, "neither gzip nor zlib"),
        (cut(DOCUMENT), "is incomplete"),
        (event([1, 2]), "not a CloudWatch Logs document"),
        (event({"logEvents": [{"id": [5]}]}), "not a CloudWatch Logs document"),
        (
            {"awslogs": {"data": base64.b64encode(gzip.compress(b"{not json")).decode()}},
            "not a CloudWatch Logs document",
        ),
    ],
)
def test_what_cannot_be_decoded_is_said_in_a_sentence(bad: Any, said: str) -> None:
    with pytest.raises(PayloadError, match=said):
        decode_payload(bad)


def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * (MAX_PAYLOAD_BYTES + 10))
    assert len(bomb) < 100_000
    with pytest.raises(PayloadError, match="unpacks to more than"):
        decode_payload({"awslogs": {"data": base64.b64encode(bomb).decode()}})


@given(st.binary(max_size=300))
def test_any_data_is_a_payload_or_a_payload_error(data: bytes) -> None:
    for packed in (data, gzip.compress(data)):
        try:
            decode_payload({"awslogs": {"data": base64.b64encode(packed).decode()}})
        except PayloadError:
            continue


@pytest.mark.parametrize(
    "line",
    [
        "",
        "plain text",
        '{"json": true}',
        '{"type": "platform.report"}',
        'we saw "task.report" in a log',
        '{"message": "a \\"task.report\\" quoted"}',
        '["task.report"]',
        '{"type": 5, "x": "task.report"}',
    ],
)
def test_lines_of_others_are_skipped(line: str) -> None:
    assert read_line(line) is None


def test_a_report_is_read() -> None:
    report = read_line(json.dumps(REPORT))
    assert isinstance(report, Report)
    assert report.record.task_id == "0123"


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({**REPORT, "record": {"taskId": "0123"}}),
        json.dumps({**REPORT, "record": {**REPORT["record"], "metrics": {"cpuSeconds": "many"}}}),  # type: ignore[dict-item]
        json.dumps(REPORT).replace('"0123"', "NaN"),
        json.dumps(REPORT).replace('"0123"', "Infinity"),
        json.dumps(REPORT)[:-10],
    ],
)
def test_a_broken_report_says_why(line: str) -> None:
    broken = read_line(line)
    assert isinstance(broken, InvalidReport)
    assert "not a valid report" in broken.reason


def test_huge_and_wide_lines_are_read_or_refused() -> None:
    wide = {**REPORT, "extra": {f"k{index}": index for index in range(10_000)}, "text": "x" * 1_000_000}
    assert isinstance(read_line(json.dumps(wide)), Report)
    deep = '{"type": "task.report", "record": ' + "[" * 100_000
    assert isinstance(read_line(deep), InvalidReport)


@given(st.text(max_size=200))
def test_any_line_is_a_report_broken_or_skipped(text: str) -> None:
    for line in (text, '{"type": "task.report", ' + text):
        result = read_line(line)
        assert result is None or isinstance(result, Report | InvalidReport)
