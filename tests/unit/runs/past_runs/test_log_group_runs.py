"""Call stacks in a log group: which part of it is read."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from profiler.core.timestamps import parse_ns
from profiler.record.record_model import encode
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from tests.shown_runs import NOW_NS, waiting, waiting_stacks

STACKS = msgspec.json.encode(waiting_stacks()).decode()


class PlayedGroup:
    """FilterLogEvents with one page of these messages, which takes no notice of the filter."""

    def __init__(self, *messages: str) -> None:
        self.messages = messages
        self.calls: list[Mapping[str, Any]] = []
        self.is_in_another_stream = False

    def read_pages(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        self.calls.append(parameters)
        yield {"events": []}
        if self.is_in_another_stream and "logStreamNames" in parameters:
            return
        yield {"events": [{"message": text} for text in self.messages]}

    def source(self, *groups: str) -> LogGroupRuns:
        return LogGroupRuns(self.read_pages, groups, NOW_NS)


def test_one_search_in_the_stream_around_the_end() -> None:
    others = msgspec.json.encode(replace(waiting_stacks(), container="other")).decode()
    group = PlayedGroup("hello", STACKS + "\n", others, '{"type":"task.stacks"', encode(waiting()).decode())
    record = waiting().record
    assert group.source("/ecs/other", "/ecs/nightly-etl").stacks(waiting()) == waiting_stacks()
    finished_ms = (parse_ns(record.finished_at) or 0) // 1_000_000
    assert group.calls == [
        {
            "logGroupName": "/ecs/nightly-etl",
            "logStreamNames": [record.log_stream],
            "startTime": finished_ms - 10_000,
            "endTime": finished_ms + 61_000,
            "filterPattern": f'{{ $.type = "task.stacks" && $.taskId = "{record.task_id}" }}',
        }
    ]

    # The record names the batch's stream also where TASK_PROFILER_REPORT_STREAM is monitor.
    group = PlayedGroup(STACKS)
    group.is_in_another_stream = True
    assert group.source("/ecs/other", "/ecs/nightly-etl").stacks(waiting()) == waiting_stacks()


def test_all_groups_are_searched_if_the_stream_is_unknown() -> None:
    group, report = PlayedGroup(), waiting()
    report = replace(report, record=replace(report.record, log_group=None, log_stream=None))
    assert group.source("/a", "/b").stacks(report) is None
    assert [(call["logGroupName"], "logStreamNames" in call) for call in group.calls] == [("/a", False), ("/b", False)]
