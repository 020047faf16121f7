from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.aws_account.replay import (
    MAX_PAYLOAD_BYTES,
    WINDOW_MS,
    ReplayCounts,
    ReplayProgressFile,
    parse_response,
    replay_reports,
    split_into_payloads,
)
from profiler.cli.options import parse_time
from profiler.cli.replay_command import _progress_file_path
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.forwarder.subscription import LogEvent, decode_subscription_event
from tests.cases import each_case

REPORT = '{"type":"task.report"}'


def event(number: int, stream: str = "ecs/batch/1", message: str = REPORT) -> dict[str, Any]:
    return {
        "logStreamName": stream,
        "eventId": str(number),
        "timestamp": number,
        "message": message,
    }


def logs_with(events: list[dict[str, Any]]) -> Mock:
    """The client of CloudWatch Logs, which ignores the filter pattern."""

    def pages(**asked: Any) -> Iterator[dict[str, Any]]:
        return (
            {"events": [one]}
            for one in events
            if asked["startTime"] <= one["timestamp"] <= asked["endTime"]
        )

    return Mock(get_paginator=lambda _operation: Mock(paginate=pages))


class FakeFunction:
    def __init__(self, fail_at: str | None = None) -> None:
        self.ids: list[str] = []
        self._fail_at = fail_at

    def invoke(self, event: Mapping[str, object]) -> ReplayCounts:
        ids = [
            str(line.id)
            for line in decode_subscription_event(event).log_events_or_failures()
            if isinstance(line, LogEvent)
        ]
        if self._fail_at in ids:
            raise TaskProfilerError("The function failed.")
        self.ids += ids
        return Counter({"indexed": len(ids)})


def run(
    events: list[dict[str, Any]], function: FakeFunction | None, windows: list[int]
) -> ReplayCounts:
    """Replay the events. ``windows`` gets the ends of the windows that are done."""
    return replay_reports(
        logs_with(events),
        "/g",
        "111122223333",
        None if function is None else function.invoke,
        lambda done_until_ms, _counts: windows.append(done_until_ms),
        start_ms=0,
        end_ms=3 * WINDOW_MS,
    )


def test_every_report_goes_through_the_function_once() -> None:
    function = FakeFunction()
    events = [event(number * 1000, f"ecs/batch/{number % 7}") for number in range(500)]
    windows: list[int] = []
    others = [
        event(5, message="plain line"),
        event(6, message='{"type":"task.stacks","taskId":"1"}'),
    ]
    counts = run([*events, *others], function, windows)
    assert counts == {"read": 500, "indexed": 500}
    assert sorted(function.ids) == sorted(event["eventId"] for event in events)
    assert windows == [WINDOW_MS, 2 * WINDOW_MS, 3 * WINDOW_MS]
    windows.clear()  # a function that fails breaks off
    with pytest.raises(TaskProfilerError):
        run([event(1), event(WINDOW_MS + 1)], FakeFunction(str(WINDOW_MS + 1)), windows)
    assert windows == [WINDOW_MS]


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.sampled_from("abc"), st.integers(1, 700_000)), max_size=12
    )
)
def test_payloads_hold_one_stream_in_order_and_fit(lines: list[tuple[int, str, int]]) -> None:
    events = [
        event(at, stream, "x" * size) | {"eventId": index}
        for index, (at, stream, size) in enumerate(lines)
    ]
    packed = list(split_into_payloads(events))
    assert sorted(one["eventId"] for payload in packed for one in payload) == [*range(len(lines))]
    for payload in packed:
        assert len({one["logStreamName"] for one in payload}) == 1
        times = [one["timestamp"] for one in payload]
        assert times == sorted(times)
        assert len(payload) == 1 or sum(len(one["message"]) for one in payload) <= MAX_PAYLOAD_BYTES


def test_answers_of_the_function() -> None:
    counts = {"indexed": 2, "failed": 3, "untrusted": 4}
    answer = b'{"indexed": 2, "skipped": 1, "failed": 3, "untrusted": 4}'
    assert parse_response(answer, None) == counts
    for answer, said in (
        (b'{"errorMessage": "no route", "errorType": "X"}', "no route"),
        (b"{}", "Unhandled"),
    ):
        with pytest.raises(TaskProfilerError, match=rf"failed \({said}\)"):
            parse_response(answer, "Unhandled")
    for answer in (b"", b"null", b"{}", b'{"indexed": "x"}', b"nonsense"):
        with pytest.raises(TaskProfilerError, match="--function"):
            parse_response(answer, None)


def test_the_memory_resumes_what_was_broken_off_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "replay"
    memory = partial(ReplayProgressFile, path)
    assert memory(1000).resume_ms() == 1000
    memory(1000).save_progress(5000)
    assert [memory(since).resume_ms() for since in (1000, 1200, 900, 6000)] == [
        5000,
        5000,
        900,
        6000,
    ]
    memory(1000).remove_file()
    assert memory(1000).resume_ms() == 1000
    path.write_text("nonsense")
    assert memory(1000).resume_ms() == 1000


def test_the_memory_is_of_one_region_and_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    places = ("eu-west-1 111122223333", "us-east-1 111122223333", "eu-west-1 444455556666")
    assert len({_progress_file_path("/ecs/jobs", "forwarder", place) for place in places}) == 3


@each_case(
    ("text", "expected"),
    [
        ("0m", 10**12),
        ("2h", 10**12 - 7_200_000),
        ("7d", 10**12 - 604_800_000),
        ("1h30m", 10**12 - 5_400_000),
        ("20010909T014640Z", 10**12),
        ("2001-09-09T01:46:40Z", 10**12),
        ("2001-09-09T01:46:40", 10**12),
        ("99999999d", 0),
        ("0001-01-01T00:00:00Z", 0),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, 10**12) == expected


@pytest.mark.parametrize("text", ["", "soon", "-1d"])
def test_bad_times(text: str) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        parse_time(text, 10**12)


def test_a_number_without_a_unit_is_no_time() -> None:
    with pytest.raises(UsageError, match="without a unit"):
        parse_time("90", 10**12)
