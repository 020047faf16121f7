"""Notices about due times: which ones a filter selects, in a file and in log groups."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.notice_model import ScheduleNoticeLine, encode_notice
from profiler.record.record_model import encode
from profiler.runs.past_runs.log_group_runs import LogGroupRuns, filter_pattern
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.past_runs.schedule_notices import select_notices
from tests.shown_runs import STARTED_NS, etl, missed_notice, stuck_notice

MISSED = missed_notice()
DUE_NS = parse_ns(MISSED.notice.due_at) or 0


def notice(hour: int, kind: str = "missed", **changes: Any) -> ScheduleNoticeLine:
    due_at = f"2026-11-20T{hour:02}:00:00.000Z"
    return replace(MISSED, notice=replace(MISSED.notice, due_at=due_at, kind=kind), **changes)


def test_a_filter_of_runs_selects_notices() -> None:
    selecting: tuple[dict[str, Any], ...] = (
        {},
        {"families": ("nightly-*",)},
        {"clusters": ("jobs",), "accounts": ("111122223333",), "regions": ("us-west-2",)},
        {"since_ns": DUE_NS, "until_ns": DUE_NS + 1},
    )
    excluding: tuple[dict[str, Any], ...] = (
        {"families": ("hourly",)},
        {"clusters": ("other",)},
        {"accounts": ("1",)},
        {"regions": ("eu-west-1",)},
        {"since_ns": DUE_NS + 1},
        {"until_ns": DUE_NS},
        {"statuses": ("failure",)},
        {"tags": (("team", "data"),)},
        {"run": "nightly-etl"},
    )
    for conditions in (*selecting, *excluding):
        found = select_notices([MISSED], RunFilter(**conditions))
        assert found == ((MISSED,) if conditions in selecting else ()), conditions


def test_each_notice_is_there_once_the_latest_due_time_first() -> None:
    lines = [notice(1), notice(3), notice(3), notice(3, "late"), notice(2, family=None, cluster="arn:x:cluster/jobs")]
    assert select_notices(lines, RunFilter()) == (lines[1], lines[3], lines[4], lines[0])
    other = notice(3, family="another target of the rule")
    assert len(select_notices([notice(3), other], RunFilter())) == 2
    slow = replace(MISSED, notice=replace(MISSED.notice, kind="slow", due_at=None))
    assert select_notices([slow], RunFilter()) == (), "it is about a task, not about a due time"
    named = RunFilter(families=(MISSED.schedule.name,), clusters=("jobs",))
    assert len(select_notices([lines[4]], named)) == 1


def test_a_file_has_notices_between_its_records_and_they_are_no_invalid_lines(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    lines = (encode(etl()), encode_notice(MISSED), encode_notice(stuck_notice()), encode_notice(MISSED), b"hello")
    path.write_bytes(b"\n".join(lines))
    source = FileRuns(str(path))
    assert len([*source.runs(RunFilter())]) == 1
    assert source.schedule_notices(RunFilter()) == (MISSED,)
    assert source.notes == (f"{path}: skipped 1 invalid line: 5",)


@pytest.mark.parametrize("keeps", [True, False])
def test_log_groups_are_read_once_for_runs_and_notices(*, keeps: bool) -> None:
    messages = [encode(etl()).decode(), encode_notice(MISSED).decode(), '{"type":"schedule.notice"}', "hello"]
    patterns = []

    def pages(**parameters: Any) -> Any:
        patterns.append(parameters["filterPattern"])
        return [{"events": [{"timestamp": 0, "message": message} for message in messages]}]

    source = LogGroupRuns(pages, ("/ecs/jobs",), STARTED_NS + 3600 * NS_PER_SECOND, keeps_notices=keeps)
    selection = RunFilter(since_ns=STARTED_NS - 3600 * NS_PER_SECOND)
    assert len([*source.runs(selection)]) == 1
    assert source.schedule_notices(selection) == ((MISSED,) if keeps else ())
    assert len(patterns) == 1
    assert ('($.type = "schedule.notice")' in patterns[0]) == keeps
    assert source.notes == ()


def test_the_pattern_finds_all_notices_besides_the_matching_reports() -> None:
    one = RunFilter(families=("a", "b"), clusters=("c",))
    assert filter_pattern(one, with_notices=True) == (
        '{ ($.type = "task.report" && ($.record.family = "a" || $.record.family = "b") && $.record.cluster = "c")'
        ' || ($.type = "schedule.notice") }'
    )
    many = RunFilter(families=tuple(f"family-{n}" for n in range(100)))
    assert filter_pattern(many, with_notices=True) == '{ ($.type = "task.report") || ($.type = "schedule.notice") }'
    assert filter_pattern(many) == '{ $.type = "task.report" }'
