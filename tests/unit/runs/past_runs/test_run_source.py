"""Lines to runs, and which run a name selects."""

from collections import deque
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.record.activity_model import is_stacks_line
from profiler.record.record_model import Container, Cost, Metrics, Report, encode
from profiler.runs.past_runs.record_files import find_run_lines, messages
from profiler.runs.past_runs.run_source import (
    PastRun,
    RunFilter,
    find_run,
    find_runs,
    group_lines,
    matching_runs,
    run_line,
)
from tests.run_sources import ListedRuns
from tests.runs import checkpoint, report


def grouped(*reports: Report) -> list[PastRun]:
    return [*matching_runs(group_lines(run_line(encode(one)) for one in reports), RunFilter(), [])]


def found(name: str | None, *runs: PastRun, **conditions: tuple[str, ...]) -> str:
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
        assert set(map(encode, run.checkpoints)) == {encode(early), encode(late)}
    (run,) = grouped(late, early)
    assert run.report == late


def test_runs_come_newest_first_and_those_without_a_time_last() -> None:
    timeless = replace(report(), time="yesterday", record=replace(report().record, task_id="x", started_at=None))
    runs = grouped(report(1), timeless, report(3), report(2), report(2))
    assert [run.report.record.task_id for run in runs] == ["task-3", "task-2", "task-1", "x"]


@pytest.mark.usefixtures("los_angeles")
def test_a_run_is_selected_by_its_id_or_a_beginning_that_no_other_has() -> None:
    """The times of the candidates are those of the tables."""
    runs = (past(1, "abc"), past(2, "abd"), past(3, "abc"))
    assert [found(name, *runs) for name in ("abc", "abd", None)] == [at(3), at(2), at(3)]
    sentence = (
        r"The ids of 2 runs in the list begin with 'ab': give more of the id \(abc .*, "
        r"abd \S+ \d{4}-\d\d-\d\d \d\d:\d\d; times in PST/PDT\)\.$"
    )
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
        runs.append(PastRun(report=report(1, container=Container(name=name), others=others, **more)))
    return runs


def test_every_container_of_a_task_with_a_report_is_found() -> None:
    both = containers("batch", "side", task_id="abc")
    for name in ("abc", "ab", "nightly", None):
        found = find_runs(ListedRuns([past(0, "xyz"), *both]), RunFilter(run=name))
        assert [run.report.record.container.name for run in found] == ["batch", "side"]


@pytest.mark.parametrize("name", ["abc", "abc/batch"])
@pytest.mark.parametrize("cost", [Cost(usd=0.0123), None])
def test_a_batch_that_ended_before_a_sidecar_has_the_cost_of_the_task(name: str, cost: Cost | None) -> None:
    batch, side = containers("batch", "side", task_id="abc")
    last = replace(side, report=replace(side.report, record=replace(side.report.record, cost=cost)))
    (found, *_) = find_runs(ListedRuns([batch, last]), RunFilter(run=name))
    assert batch.report.record.cost is None
    assert (found.report.record.container.name, found.report.record.cost) == ("batch", cost)


def test_a_container_is_chosen_by_its_name_after_the_id() -> None:
    runs = containers("batch", "side", task_id="abc")
    for name in ("batch", "side"):
        (run,) = find_runs(ListedRuns(runs), RunFilter(run=f"abc/{name}"))
        assert run.report.record.container.name == name
        assert find_run(ListedRuns(runs), RunFilter(run="abc"), name) == run
    with pytest.raises(TaskProfilerError, match="reports of 2 containers: name one of them, abc/batch or abc/side"):
        find_run(ListedRuns(runs), RunFilter(run="abc"))


@pytest.mark.parametrize(
    ("name", "conditions", "sentence"),
    [
        ("zzz", {}, "No run or family 'zzz' in the list: list the runs with task-profiler history"),
        (
            None,
            {"families": ("zzz", "y*")},
            r"No run of zzz, y\* in the list: list the runs with task-profiler history",
        ),
        (None, {"families": ("zzz",), "statuses": ("failure",)}, "No run in the list matches: use fewer filters."),
    ],
)
def test_no_run_is_a_sentence(name: str | None, conditions: dict[str, tuple[str, ...]], sentence: str) -> None:
    with pytest.raises(TaskProfilerError, match=sentence):
        found(name, past(1, "a"), **conditions)


LINES = [b"\n", b"x\n", b"{\n", b"[1]\n", b"[\n", b'{"a": [\n', b"}\n", encode(report()) + b"\n"]


@given(st.lists(st.sampled_from(LINES)))
def test_lines_that_are_no_json_of_the_aws_cli_stay_as_they_are(lines: list[bytes]) -> None:
    """However the file begins: each line keeps its number."""
    assert list(messages(lines)) == lines


@given(st.lists(st.binary(max_size=60)))
@example([b'{"type":"task.stacks"', b'{"type" :"task.stacks"', b'{"kind":"task.stacks"'])
def test_any_bytes_are_lines_or_counted(lines: list[bytes]) -> None:
    invalid: set[int] = set()
    assert [*find_run_lines(lines, invalid, deque(), deque())] == []
    assert len(invalid) == len([line for line in lines if line.strip() and not is_stacks_line(line.strip())])
