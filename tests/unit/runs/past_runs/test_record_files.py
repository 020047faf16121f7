"""Record lines and call stacks in files."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from profiler.record.record_model import encode
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from tests.runs import report
from tests.shown_runs import waiting, waiting_stacks

STACKS = msgspec.json.encode(waiting_stacks())
OTHERS = msgspec.json.encode(replace(waiting_stacks(), container="other", steps=()))


def source(folder: Path, text: bytes, *, keeps_stacks: bool = True) -> FileRuns:
    path = folder / "lines"
    path.write_bytes(text)
    return FileRuns(str(path), keeps_stacks=keeps_stacks)


@pytest.mark.parametrize("in_json", [False, True])
def test_the_stacks_of_a_run_are_found(tmp_path: Path, *, in_json: bool) -> None:
    """Also in what ``aws logs filter-log-events`` prints."""
    lines = (STACKS, OTHERS, encode(waiting()), encode(report()))
    events = json.dumps({"events": [{"message": line.decode()} for line in lines]}, indent=4).encode()
    runs = source(tmp_path, events if in_json else b"\n".join(lines))
    assert len(list(runs.runs(RunFilter()))) == 2
    assert runs.notes == ()
    assert runs.stacks(waiting()) == waiting_stacks()
    assert runs.stacks(report()) is None


def test_stacks_are_skipped_silently_and_not_kept(tmp_path: Path) -> None:
    damaged = STACKS[:-5]
    lines = (STACKS, damaged, b"hello", STACKS.replace(b'":', b'": '), encode(waiting()))
    runs = source(tmp_path, b"\n".join(lines), keeps_stacks=False)
    assert len(list(runs.runs(RunFilter()))) == 1
    assert runs.notes == (f"{tmp_path}/lines: skipped 1 invalid line: 3",)
    assert runs.stacks(waiting()) is None
