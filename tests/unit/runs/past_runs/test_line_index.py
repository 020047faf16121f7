"""The runs of a file, of which only the places are in memory, are those of all its lines."""

import sys
from collections import Counter
from collections.abc import Sequence
from errno import ENOSPC
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import parse_ns
from profiler.record.record_model import Report, encode
from profiler.runs.past_runs import line_index
from profiler.runs.past_runs.family_evidence import read_families
from profiler.runs.past_runs.line_index import LineFile, LineIndex
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.record_lines import group_lines, matching_runs, read_run_line
from profiler.runs.past_runs.run_source import RunFilter
from tests.runs import checkpoint, report
from tests.values import present

MINUTE_NS = 60_000_000_000


def made(number: int, task_id: str, kind: str, **record: Any) -> Report:
    known = report(number, task_id=task_id, **record)
    if kind == "without a start":
        known = replace(known, record=replace(known.record, started_at=None))
    if kind == "checkpoint":
        known = checkpoint(known)
    if kind == "late checkpoint":
        known = replace(checkpoint(known), time="2099-01-01T00:00:00.000Z")
    return known


REPORTS = st.builds(
    made,
    st.integers(0, 3),
    st.sampled_from(["a1", "a2", "b/1", 'a"1', "ä1"]),
    st.sampled_from(["report", "without a start", "checkpoint", "late checkpoint"]),
    family=st.sampled_from(["nightly", "weekly", None]),
    cluster=st.sampled_from(["jobs", None]),
    status=st.sampled_from(["success", "failure", "odd"]),
    tags=st.sampled_from([None, {"team": "a"}]),
)
TIMES_NS = st.none() | st.integers(0, 4).map(
    lambda number: (parse_ns(report(number).record.started_at) or 0) + number % 2 * MINUTE_NS
)
FILTERS = st.builds(
    RunFilter,
    families=st.sampled_from([(), ("night*",), ("weekly", "batch")]),
    clusters=st.sampled_from([(), ("jobs",)]),
    tags=st.sampled_from([(), (("team", "a"),)]),
    statuses=st.sampled_from([(), ("success",), ("unknown",)]),
    since_ns=TIMES_NS,
    until_ns=TIMES_NS,
    run=st.sampled_from([None, "a", "a1", "a1/batch", "b/1", 'a"', "ä", "night*", "x"]),
)


def text_of(reports: Sequence[Report]) -> bytes:
    return b"".join(encode(one) + b"\n" for one in reports)


def all_at_once(reports: Sequence[Report], selection: RunFilter) -> list[PastRun]:
    """The runs by their lines in memory."""
    lines = (read_run_line(encode(one), number) for number, one in enumerate(reports, 1))
    groups = group_lines(filter(None, lines))
    return list(matching_runs(groups, selection, lambda _: None, 0))


def indexed(reports: Sequence[Report]) -> LineIndex:
    kept = LineFile()
    index = LineIndex(kept)
    for one in reports:
        line = read_run_line(encode(one))
        assert line is not None
        index.add_line(replace(line, number=kept.add_line(line.line + b"\n")))
    index.sort_runs()
    return index


@given(st.lists(REPORTS, max_size=8), FILTERS)
def test_the_runs_are_those_of_all_lines(reports: list[Report], selection: RunFilter) -> None:
    found = matching_runs(
        indexed(reports).lines_of_runs(selection, print), selection, lambda _: None, 0
    )
    assert list(found) == all_at_once(reports, selection)


@given(st.lists(REPORTS, max_size=8))
def test_runs_of_one_digest_are_told_apart(reports: list[Report]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_index, "hash", lambda _: 7, raising=False)
        index = indexed(reports)
    found = matching_runs(index.lines_of_runs(RunFilter(), print), RunFilter(), lambda _: None, 0)
    expected = all_at_once(reports, RunFilter())
    assert Counter(map(repr, found)) == Counter(map(repr, expected))


@given(st.lists(REPORTS, max_size=12), FILTERS, st.integers(1, 3))
def test_the_last_runs_have_the_newest_ones_of_each_family(
    reports: list[Report], selection: RunFilter, last: int
) -> None:
    stream = SimpleNamespace(buffer=BytesIO(text_of(reports)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", stream)
        found = list(FileRuns("-", 0).last_runs(selection, last))
    expected = all_at_once(reports, selection)
    assert [run for run in expected if run in found] == found
    for family in {run.report.record.family for run in expected}:
        ended = [run for run in expected if is_end(run, family)]
        assert [run for run in found if is_end(run, family)][:last] == ended[:last]


def is_end(run: PastRun, family: str | None) -> bool:
    return run.report.record.family == family and run.report.type == "task.report"


def test_only_the_runs_that_count_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = [report(number, family=f"f{number % 2}") for number in range(40)]
    file = tmp_path / "runs.jsonl"
    file.write_bytes(text_of(reports))
    source = FileRuns(str(file), 0)
    next(source.runs(RunFilter()))
    reads: list[int] = []
    read = LineFile.read_line

    def counted(lines: LineFile, number: int) -> bytes:
        reads.append(number)
        return read(lines, number)

    monkeypatch.setattr(LineFile, "read_line", counted)
    # Three of each family; one more of each is read, whose earlier start ends them.
    assert len(list(source.last_runs(RunFilter(), 3))) == 6
    assert len(reads) == 8


def test_the_order_of_the_lines_chooses_none_of_several_runs_of_one_start(tmp_path: Path) -> None:
    started_at = report(0).record.started_at
    reports = [report(number, started_at=started_at) for number in range(6)]
    found = []
    for name, lines in (("a", reports), ("b", reports[::-1])):
        file = tmp_path / name
        file.write_bytes(text_of(lines))
        families = read_families(FileRuns(str(file), 0), RunFilter(), 3).families
        found += [evidence.latest.task_id for evidence in map(present, families.values())]
    assert found[0] == found[1]


def test_a_file_that_was_cut_since_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(text_of([report(0), report(1)]))
    source = FileRuns(str(file), 0)
    newest = next(source.runs(RunFilter()))
    file.write_bytes(text_of([report(0)]))
    assert newest.report == report(1)
    assert [run.report for run in source.runs(RunFilter())] == [report(0)]
    assert source.notes == (f"{file}: skipped 1 invalid line: 2",)


@pytest.mark.parametrize("memory_bytes", [1, 1000])
def test_lines_that_cannot_be_read_again_are_kept(
    monkeypatch: pytest.MonkeyPatch, memory_bytes: int
) -> None:
    monkeypatch.setattr(line_index, "_MEMORY_BYTES", memory_bytes)
    kept = LineFile()
    numbers = [kept.add_line(line) for line in (b"a\n", b"  b \r\n", b"c")]
    assert kept.read_line(numbers[1]) == b"b"
    assert kept.read_line(kept.add_line(b"d")) == b"d"
    assert [kept.read_line(number) for number in numbers] == [b"a", b"b", b"c"]


class FullFile(BytesIO):
    def write(self, _text: object) -> int:
        raise OSError(ENOSPC, "No space left on device")


def test_a_temporary_folder_without_space_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_index, "SpooledTemporaryFile", lambda **_: FullFile())
    with pytest.raises(TaskProfilerError, match=r"No space left on device.*set TMPDIR"):
        LineFile().add_line(b"line")
