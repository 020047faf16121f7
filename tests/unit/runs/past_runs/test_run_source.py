"""Lines to runs, and which run a name selects."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.completeness import WHOLE, Completeness, Gap
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.notice_model import ScheduleNoticeLine, encode_notice_line
from profiler.record.record_model import (
    UNKNOWN_COST,
    Container,
    Cost,
    Metrics,
    Report,
    decode,
    encode,
)
from profiler.record.stacks_line import is_stacks_line
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.joined_runs import JoinedRuns
from profiler.runs.past_runs.local_history import LocalRuns
from profiler.runs.past_runs.log_group_runs import LogGroupRuns
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.record_files import FileRuns, record_messages
from profiler.runs.past_runs.record_lines import group_lines, matching_runs, read_run_line
from profiler.runs.past_runs.run_lookup import find_run, find_runs, no_run_sentence
from profiler.runs.past_runs.run_source import RunFilter
from profiler.runs.past_runs.schedule_notices import select_notices
from profiler.sizing.prices import PriceOverrides
from tests import shown_runs
from tests.batch_jobs import job_id
from tests.run_sources import ListedRuns, log_event
from tests.runs import checkpoint, history_of, report
from tests.values import present


def grouped(*reports: Report) -> list[PastRun]:
    invalid: list[int] = []
    return [
        *matching_runs(
            group_lines(filter(None, map(read_run_line, map(encode, reports)))),
            RunFilter(),
            invalid.append,
            0,
        )
    ]


def found(name: str, *runs: PastRun, **conditions: tuple[str, ...]) -> str:
    return find_run(ListedRuns(runs), RunFilter(run=name, **conditions)).started_at  # type: ignore[arg-type]


def past(number: int, task_id: str, family: str = "nightly") -> PastRun:
    return PastRun(report=report(number, task_id=task_id, family=family))


def at(number: int) -> str | None:
    return report(number).record.started_at


def test_a_report_and_its_checkpoints_are_one_run_in_any_order() -> None:
    end = report()
    early, late = checkpoint(end), replace(checkpoint(end), time="2099-01-01T00:00:00.000Z")
    for lines in ((early, end, late), (late, early, end), (end, late, early)):
        (run,) = grouped(*lines)
        assert run.report == end
        assert run.line == encode(end)
        assert set(map(encode, run.checkpoints)) == {
            encode(early),
            encode(late),
        }
    (run,) = grouped(late, early)
    assert run.report == late


def test_runs_come_newest_first_and_those_without_a_time_last() -> None:
    timeless = replace(
        report(), time="yesterday", record=replace(report().record, task_id="x", started_at=None)
    )
    runs = grouped(report(1), timeless, report(3), report(2), report(2))
    assert [run.report.record.task_id for run in runs] == ["task-3", "task-2", "task-1", "x"]


def test_a_run_is_selected_by_its_id_or_a_beginning_that_no_other_has() -> None:
    runs = (past(1, "abc"), past(2, "abd"), past(3, "abc"))
    assert [found(name, *runs) for name in ("abc", "abd", "")] == [at(3), at(2), at(3)]
    sentence = r"The ids of 2 runs in the list begin with 'ab': give more of the id \(abc, abd\)\.$"
    with pytest.raises(TaskProfilerError, match=sentence):
        found("ab", *runs)


def test_a_family_selects_its_latest_run_and_comes_before_an_id() -> None:
    runs = (past(1, "x1", "etl"), past(2, "x2", "etl"), past(3, "etl-9", "load"))
    assert [found(name, *runs) for name in ("etl", "l*", "etl-")] == [at(2), at(3), at(3)]


def containers(*names: str, **more: Any) -> list[PastRun]:
    """The reports of the containers of one task, each listing the others and the monitor."""
    runs = []
    for name in names:
        others = {other: Metrics() for other in ("task-monitor", *names) if other != name}
        runs.append(
            PastRun(report=report(1, container=Container(name=name), others=others, **more))
        )
    return runs


def test_every_container_of_a_task_with_a_report_is_found() -> None:
    both = containers("batch", "side", task_id="abc")
    for name in ("abc", "ab", "nightly", ""):
        found = find_runs(ListedRuns([past(0, "xyz"), *both]), RunFilter(run=name))
        assert [run.report.record.container.name for run in found] == ["batch", "side"]


@pytest.mark.parametrize("name", ["abc", "abc/batch"])
@pytest.mark.parametrize("cost", [Cost(usd=0.0123), UNKNOWN_COST])
def test_a_batch_that_ended_before_a_sidecar_has_the_cost_of_the_task(
    name: str, cost: Cost | None
) -> None:
    batch, side = containers("batch", "side", task_id="abc")
    last = replace(side, report=replace(side.report, record=replace(side.report.record, cost=cost)))
    (found, *_) = find_runs(ListedRuns([batch, last]), RunFilter(run=name))
    assert batch.report.record.cost == UNKNOWN_COST
    assert found.report.record.container.name == "batch"
    assert found.report.record.cost == cost


def test_a_container_is_chosen_by_its_name_after_the_id() -> None:
    runs = containers("batch", "side", task_id="abc")
    for name in ("batch", "side"):
        (run,) = find_runs(ListedRuns(runs), RunFilter(run=f"abc/{name}"))
        assert run.report.record.container.name == name
        assert find_run(ListedRuns(runs), RunFilter(run="abc"), name) == run
    with pytest.raises(
        TaskProfilerError, match="reports of 2 containers: name one of them, abc/batch or abc/side"
    ):
        find_run(ListedRuns(runs), RunFilter(run="abc"))


JOB_ID = job_id(1)


@pytest.mark.parametrize(
    ("name", "conditions", "sentence"),
    [
        ("zzz", {}, "No run or family 'zzz' in the list: list the runs with task-profiler history"),
        (
            JOB_ID,
            {},
            f"in the list: task-profiler doctor {JOB_ID} says how the job ended, and where",
        ),
        (
            "",
            {"families": ("zzz", "y*")},
            r"No run of zzz, y\* in the list: list the runs with task-profiler his",
        ),
        (
            "",
            {"families": ("zzz",), "statuses": ("failure",)},
            "No run in the list matches: use fewer filters.",
        ),
        ("", {"regions": (None,)}, r"No run in the list matches: use fewer filters\.$"),
    ],
)
def test_no_run_is_a_sentence(name: str, conditions: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TaskProfilerError, match=sentence):
        found(name, past(1, "a"), **conditions)


class PartlyRead(ListedRuns):
    """A list of which a part was read, or a part is put away."""

    def __init__(self, completeness: Completeness, unsearched: Sequence[str]) -> None:
        super().__init__([])
        self._completeness, self._unsearched = completeness, unsearched

    @property
    def completeness(self) -> Completeness:
        return self._completeness

    @property
    def unsearched(self) -> Sequence[str]:
        return self._unsearched


@pytest.mark.parametrize(
    ("selection", "what"),
    [
        (RunFilter(), "No run"),
        (RunFilter(run="abc"), "No run or family 'abc'"),
        (RunFilter(families=("etl", "dwh")), "No run of etl, dwh"),
        (RunFilter(statuses=("failure",)), "No run"),
    ],
)
def test_of_a_part_nobody_says_that_there_are_no_runs(selection: RunFilter, what: str) -> None:
    part = PartlyRead(Completeness((Gap(place="the list"),)), ())
    joined = JoinedRuns([part], lambda _: None)
    for source in (part, joined):
        assert no_run_sentence(source, selection) == (
            f"{what} was found in the part of the list that could be read."
        )


def test_who_finds_nothing_hears_what_was_not_searched() -> None:
    away = PartlyRead(WHOLE, ["task-reports-2025.01, which is closed"])
    for source in (away, JoinedRuns([away], lambda _: None)):
        said = no_run_sentence(source, RunFilter(run="abc"))
        assert said.endswith(" Not searched: task-reports-2025.01, which is closed.")


LINES = [
    b"\n",
    b"x\n",
    b"{\n",
    b"[1]\n",
    b"[\n",
    b'{"a": [\n',
    b"}\n",
    encode(report()) + b"\n",
]


@given(st.lists(st.sampled_from(LINES)))
def test_lines_that_are_no_json_of_the_aws_cli_stay_as_they_are(lines: list[bytes]) -> None:
    """However the file begins: each line keeps its number."""
    read = list(record_messages(lines))
    assert b"".join(read).split() == b"".join(lines).split()
    assert [line == LINES[-1] for line in read] == [line == LINES[-1] for line in lines]


@pytest.mark.parametrize("end", [b"", b"\n", b"no JSON\n", b'{\n  "record": {\n'])
@pytest.mark.parametrize("indent", [1, 4, "\t"])
def test_records_over_several_lines_are_read(end: bytes, indent: int | str, tmp_path: Path) -> None:
    """As ``jq .`` prints them; what is no record between them has its number."""
    lines = (
        encode(report(1)),
        STACKS,
        encode(shown_runs.waiting()),
        encode(report(2)),
    )
    documents = [json.dumps(json.loads(line), indent=indent).encode() + b"\n" for line in lines]
    before = documents[0] + end
    runs = source(tmp_path, before + b"".join(documents[1:]))
    assert len(list(runs.runs(RunFilter()))) == 3
    assert runs.stacks(shown_runs.waiting()) == shown_runs.waiting_stacks()
    first = len(documents[0].splitlines()) + 1
    numbers = [*range(first, first + len(end.splitlines()))] if end.strip() else []
    assert [*runs._unreadable_numbers] == numbers


@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_records_is_read(indent: int | None, tmp_path: Path) -> None:
    """As ``jq -s .`` prints it; also several ones."""
    lines = (encode(report(1)), STACKS, encode(shown_runs.waiting()))
    array = json.dumps([json.loads(line) for line in lines], indent=indent).encode() + b"\n"
    runs = source(tmp_path, array + encode(report(2)))
    assert len(list(runs.runs(RunFilter()))) == 3
    assert runs.notes == ()
    assert runs.stacks(shown_runs.waiting()) == shown_runs.waiting_stacks()


@given(st.lists(st.binary(max_size=60)))
@example([b'{"type":"task.stacks"', b'{"type" :"task.stacks"', b'{"kind":"task.stacks"'])
@example([b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\xef\xbb\xbfx"])
def test_any_bytes_are_lines_or_counted(lines: list[bytes]) -> None:
    source = FileRuns("lines", 0)
    assert [*source.run_lines(lines)] == []
    texts = [line.strip().removeprefix(b"\xef\xbb\xbf") for line in lines]
    invalid = [text for text in texts if text and not is_stacks_line(text)]
    assert len(source._unreadable_numbers) == len(invalid)


def local_runs(folder: Path, *reports: Report) -> LocalRuns:
    return LocalRuns(history_of(folder / "history.sqlite3", *reports))


def test_the_advice_for_a_run_includes_that_run(tmp_path: Path) -> None:
    """Its start in nanoseconds lies between two milliseconds of the history."""
    killed = shown_runs.out_of_memory()
    advice = present(
        find_advice(PastRun(report=killed), local_runs(tmp_path, killed), PriceOverrides())
    )
    assert advice.evidence.outcomes.out_of_memory == 1


def test_until_is_exclusive_to_the_nanosecond(tmp_path: Path) -> None:
    odd = report(1, started_at="2026-11-02T00:00:00.123456789Z")
    source = local_runs(tmp_path, report(0), odd)
    started_ns = PastRun(report=odd).started_ns
    assert len(list(source.runs(RunFilter(until_ns=started_ns + 1)))) == 2
    assert len(list(source.runs(RunFilter(until_ns=started_ns)))) == 1


STACKS = msgspec.json.encode(shown_runs.waiting_stacks())
OTHERS = msgspec.json.encode(replace(shown_runs.waiting_stacks(), container="other"))


def source(folder: Path, text: bytes, *, keeps_stacks: bool = True) -> FileRuns:
    path = folder / "lines"
    path.write_bytes(text)
    return FileRuns(str(path), 0, keeps_stacks=keeps_stacks)


@pytest.mark.parametrize("in_json", [False, True])
def test_the_stacks_of_a_run_are_found(tmp_path: Path, *, in_json: bool) -> None:
    """Also in what ``aws logs filter-log-events`` prints."""
    lines = (STACKS, OTHERS, encode(shown_runs.waiting()), encode(report()))
    events = json.dumps(
        {"events": [{"message": line.decode()} for line in lines]}, indent=4
    ).encode()
    runs = source(tmp_path, events if in_json else b"\n".join(lines))
    assert len(list(runs.runs(RunFilter()))) == 2
    assert runs.notes == ()
    assert runs.stacks(shown_runs.waiting()) == shown_runs.waiting_stacks()
    assert runs.stacks(report()) is None


class PlayedGroup:
    """FilterLogEvents with one page of these messages, which takes no notice of the filter."""

    def __init__(self, *messages: bytes) -> None:
        self.messages = [text.decode() for text in messages]
        self.calls: list[Mapping[str, Any]] = []
        self.is_in_another_stream = False

    def read_pages(self, **parameters: Any) -> Iterator[Mapping[str, Any]]:
        self.calls.append(parameters)
        yield {"events": []}
        if self.is_in_another_stream and "logStreamNames" in parameters:
            return
        yield {"events": [log_event(text) for text in self.messages]}

    def source(self, *groups: str) -> LogGroupRuns:
        return LogGroupRuns(self.read_pages, groups, shown_runs.NOW_NS)


def test_one_search_in_the_stream_around_the_end() -> None:
    group = PlayedGroup(
        b"hello",
        STACKS + b"\n",
        OTHERS,
        b'{"type":"task.stacks"',
        encode(shown_runs.waiting()),
    )
    record = shown_runs.waiting().record
    assert (
        group.source("/ecs/other", "/ecs/nightly-etl").stacks(shown_runs.waiting())
        == shown_runs.waiting_stacks()
    )
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
    assert (
        group.source("/ecs/other", "/ecs/nightly-etl").stacks(shown_runs.waiting())
        == shown_runs.waiting_stacks()
    )
    group, nowhere = PlayedGroup(), shown_runs.waiting(log_group=None, log_stream=None)
    assert group.source("/a", "/b").stacks(nowhere) is None
    assert [(call["logGroupName"], "logStreamNames" in call) for call in group.calls] == [
        ("/a", False),
        ("/b", False),
    ]


MISSED = shown_runs.missed_notice()
DUE_NS = parse_ns(MISSED.notice.due_at) or 0


def notice(hour: int, kind: str = "missed", **changes: Any) -> ScheduleNoticeLine:
    due_at = f"2026-11-20T{hour:02}:00:00.000Z"
    return replace(MISSED, notice=replace(MISSED.notice, due_at=due_at, kind=kind), **changes)


def test_a_filter_of_runs_selects_notices() -> None:
    here: dict[str, Any] = {
        "clusters": ("jobs",),
        "accounts": ("111122223333",),
        "regions": ("us-west-2",),
    }
    times: dict[str, Any] = {"since_ns": DUE_NS, "until_ns": DUE_NS + 1}
    for selecting in (
        RunFilter(),
        RunFilter(families=("nightly-*",)),
        RunFilter(**here),
        RunFilter(**times),
    ):
        assert select_notices([MISSED], selecting) == (MISSED,)
    excluding: dict[str, Any] = {
        "families": ("hourly",),
        "clusters": ("other",),
        "accounts": ("1",),
        "regions": ("eu-west-1",),
        "since_ns": DUE_NS + 1,
        "until_ns": DUE_NS,
        "statuses": ("failure",),
        "tags": (("team", "data"),),
        "run": "nightly-etl",
    }
    for name, value in excluding.items():
        assert select_notices([MISSED], RunFilter(**{name: value})) == (), name


def test_each_notice_is_there_once_the_latest_due_time_first() -> None:
    lines = [
        notice(1),
        notice(3),
        notice(3),
        notice(3, "late"),
        notice(2, family=None, cluster="arn:x:cluster/jobs"),
    ]
    assert select_notices(lines, RunFilter()) == (lines[1], lines[3], lines[4], lines[0])
    other = notice(3, family="another target of the rule")
    assert len(select_notices([notice(3), other], RunFilter())) == 2
    slow = replace(MISSED, notice=replace(MISSED.notice, kind="slow", due_at=None))
    assert select_notices([slow], RunFilter()) == (), "it is about a task, not about a due time"
    named = RunFilter(families=(MISSED.schedule.name,), clusters=("jobs",))
    assert len(select_notices([lines[4]], named)) == 1


def test_notices_and_stacks_between_the_records_of_a_file_are_no_invalid_lines(
    tmp_path: Path,
) -> None:
    """A file that does not keep the stacks has none."""
    notices = (
        encode_notice_line(MISSED),
        encode_notice_line(shown_runs.stuck_notice()),
        encode_notice_line(MISSED),
    )
    lines = (
        encode(shown_runs.waiting()),
        *notices,
        b"hello",
        STACKS,
        STACKS[:-5],
        STACKS.replace(b'":', b'": '),
    )
    runs = source(tmp_path, b"\n".join(lines), keeps_stacks=False)
    assert len([*runs.runs(RunFilter())]) == 1
    assert runs.schedule_notices(RunFilter()) == (MISSED,)
    assert runs.notes == (f"{tmp_path}/lines: skipped 1 invalid line: 5",)
    assert runs.stacks(shown_runs.waiting()) is None


def test_log_groups_are_read_once_for_runs_and_notices() -> None:
    group = PlayedGroup(
        encode(shown_runs.etl()),
        encode_notice_line(MISSED),
        b'{"type":"schedule.notice"}',
        b"hello",
    )
    source = LogGroupRuns(
        group.read_pages,
        ("/aws/lambda/tp-watch-schedules",),
        shown_runs.STARTED_NS + 3600 * NS_PER_SECOND,
    )
    selection = RunFilter(since_ns=shown_runs.STARTED_NS - 3600 * NS_PER_SECOND)
    assert len([*source.runs(selection)]) == 1
    assert source.schedule_notices(selection) == (MISSED,)
    assert len(group.calls) == 1
    assert source.notes == ()


def test_a_line_is_printed_with_the_identity_that_ecs_decided() -> None:
    """Also fields of the line that this version does not know."""
    written = {
        "time": "2026-03-01T10:00:00Z",
        "type": "task.report",
        "later": 1,
        "record": {"taskId": "1", "container": {"name": "batch"}, "family": "payroll", "new": [2]},
    }
    line = msgspec.json.encode(written)
    read = decode(line)
    assert PastRun(report=read, line=line).json_line() == line
    corrected = replace(read.record, family="nightly", account_id="111122223333")
    run = PastRun(report=replace(read, record=corrected), line=line)
    printed = msgspec.json.decode(run.json_line())
    assert printed["record"]["family"] == "nightly"
    assert printed["record"]["accountId"] == "111122223333"
    assert printed["record"]["new"] == [2]
    assert printed["later"] == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_a_confirmed_run_of_a_task_comes_before_an_unconfirmed_one(*, is_first: bool) -> None:
    """In a cluster of several accounts, another one may have written a report of the task."""
    own = report(account_id="111122223333")
    started_at = "2027-01-01T00:00:00Z" if is_first else "2020-01-01T00:00:00Z"
    record = replace(own.record, account_id="999988887777", started_at=started_at)
    forged = PastRun(report=replace(own, record=record), is_confirmed=False)
    source = ListedRuns([PastRun(report=own), forged])
    run = find_run(source, RunFilter(run=own.record.task_id))
    assert run.report.record.account_id == "111122223333"
    assert find_run(ListedRuns([forged]), RunFilter(run=own.record.task_id)) == forged
