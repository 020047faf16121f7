"""The command that writes the report page."""

import json
import random
import re
from functools import partial
from pathlib import Path
from typing import Any, Literal

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from profiler.cli.app import group
from profiler.cli.commands.runs import report as command
from profiler.cli.report_command import StacksReader
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.activity_model import StacksLine
from profiler.record.notice_model import encode_notice
from profiler.record.record_model import Report, encode
from profiler.runs.history.run_database import HistoryStore
from tests import shown_runs
from tests.fakes import FakeClock
from tests.report_page import checkpoint, labelled, parsed, report, unpacked
from tests.run_sources import ListedRuns
from tests.runs import lines
from tests.runs import report as sized_run
from tests.values import present


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TASK_PROFILER_HISTORY", str(tmp_path / "history.sqlite3"))
    # CliRunner replaces the stream, not the file descriptor.
    monkeypatch.setattr("profiler.cli.printing.write_out", partial(click.echo, nl=False))
    return tmp_path


def call(*words: str, given: bytes = b"") -> Result:
    return CliRunner().invoke(command, words, input=given)


def data_of(file: Path) -> Any:
    texts = dict(re.findall(r'<script type="application/gzip" id="task-(\w+)">(.*)</script>', file.read_text()))
    return {**unpacked(texts["data"]), "series": parsed(texts["series"])}


def keep(file: Path, *task_ids: str) -> None:
    history = HistoryStore(file, FakeClock())
    for day, task_id in enumerate(task_ids, start=1):
        history.add(encode(report(task_id, day=day)), report(task_id, day=day), b"[[1000,0.5,1048576]]", max_runs=100)


def test_the_history_becomes_a_page_and_json_names_the_file_and_counts_the_runs(here: Path) -> None:
    keep(here / "history.sqlite3", "a", "b")
    result = call()
    assert result.exit_code == 0
    file = here / "task-report.html"
    assert result.output == f"task-report.html: 2 runs, {file.stat().st_size / 1e6:.1f} MB\n"
    assert file.stat().st_size < 8_000_000
    data = data_of(file)
    assert [run["id"] for run in data["runs"]] == ["b", "a"]
    assert data["series"][0] == {"ms": [1000], "vcpu": [0.5], "mb": [1]}
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []
    expected = {"file": "task-report.html", "bytes": file.stat().st_size, "runs": 2}
    assert json.loads(call("--json").stdout) == expected
    for option in ("--json", "--open"):
        assert f"{option} needs a file" in str(call(option, "-o", "-").exception)


def test_the_page_on_standard_output_is_all_that_is_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(here / "history.sqlite3", "a")
    written: list[bytes] = []
    monkeypatch.setattr("profiler.cli.report_command.write_out", written.append)
    result = call("-o", "-")
    assert (result.exit_code, result.output) == (0, "")
    assert written[0].startswith(b"<!DOCTYPE html>")
    assert [path.name for path in here.iterdir() if path.suffix != ".sqlite3"] == []
    assert isinstance(call("-o", "-", "--open").exception, UsageError)


def test_what_does_not_fit_into_the_page_is_said(here: Path) -> None:
    chance = random.Random(1)
    ids = [chance.randbytes(48_000).hex() for _ in range(120)]
    lines = b"\n".join(
        encode(labelled(task_id, {"own": chance.randbytes(100_000).hex()}).past.report) for task_id in ids
    )
    result = call("--from", "-", given=lines)
    assert result.exit_code == 0
    shown = data_of(here / "task-report.html")
    kept = len(shown["runs"])
    assert 50 < kept < 120
    assert result.stdout.startswith(f"task-report.html: {kept} runs, ")
    runs, details = result.stderr.splitlines()
    assert runs.startswith(f"task-profiler: The oldest {120 - kept} of 120 runs do not fit into a page of 8 MB")
    assert details.startswith(f"task-profiler: Labels, processes, GPUs and the like of {kept} runs do not fit")
    assert (here / "task-report.html").stat().st_size < 8_000_000


def test_lines_that_are_no_records_are_counted_and_named(here: Path) -> None:
    lines = b"\n".join([b"hello", encode(report("a")), b"", b"{}", b"\xff", encode(checkpoint("a", 1))])
    result = call("--from", "-", given=lines)
    assert result.exit_code == 0
    assert result.stderr == "task-profiler: standard input: skipped 3 invalid lines: 1, 4, 5\n"
    assert data_of(here / "task-report.html")["series"][0]["ms"] == [60_000]


def test_files_that_cannot_be_used_are_a_sentence(here: Path) -> None:
    keep(here / "history.sqlite3", "a")
    for option, name, sentence in (("--from", "nowhere", "cannot be read"), ("-o", "no/a.html", "cannot be written")):
        error = call(option, name).exception
        assert isinstance(error, TaskProfilerError)
        assert f"{name} {sentence}" in str(error)


def test_a_page_for_one_run_has_the_last_success_and_open_says_when_it_cannot_show_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(here / "history.sqlite3", "a", "b", "c")
    assert call("--run", "b").stdout.startswith("task-report.html: 1 run, ")
    assert [run["id"] for run in data_of(here / "task-report.html")["runs"]] == ["b", "a"]
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = call("--open")
    assert opened == [(here / "task-report.html").as_uri()]
    assert result.exit_code == 0
    assert "No browser could be started: open task-report.html" in result.stderr


@pytest.mark.parametrize("order", [None, "sorted"])
def test_the_page_has_the_call_stacks_of_the_file(here: Path, order: Literal["sorted"] | None) -> None:
    lines = (msgspec.json.encode(shown_runs.waiting_stacks(), order=order), encode(shown_runs.waiting()))
    (here / "lines").write_bytes(b"\n".join(line.strip() for line in lines))
    result = call("--from", "lines")
    assert result.exit_code == 0
    text = re.search('id="task-activity">([^<]*)<', Path("task-report.html").read_text())
    assert len(parsed(present(text)[1])["stacks"]) == 3
    assert result.stderr == ""


class BrokenStacks(ListedRuns):
    """A source that cannot read call stacks."""

    asked = 0

    def stacks(self, report: Report) -> StacksLine | None:
        self.asked += 1
        raise TaskProfilerError(f"No stacks of {report.record.task_id} could be read.")


def test_a_source_that_cannot_read_stacks_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    source = BrokenStacks([])
    reader = StacksReader(source)
    assert [reader.read(shown_runs.waiting()) for _ in range(3)] == [None] * 3
    assert source.asked == 1
    assert capsys.readouterr().err.count("The page lacks call stacks.") == 1


def test_the_page_has_the_missed_runs_since_the_oldest_run(here: Path) -> None:
    missed = shown_runs.missed_notice()
    older = replace(missed, notice=replace(missed.notice, due_at="2026-11-01T00:00:00.000Z"))
    run = shown_runs.etl(days_ago=1)
    (here / "lines").write_bytes(b"\n".join((encode(run), encode_notice(missed), encode_notice(older))))
    assert call("--from", "lines").exit_code == 0
    assert [one["text"] for one in data_of(here / "task-report.html")["notices"]] == [missed.notice.message]
    assert call("--from", "lines", "--run", run.record.task_id).exit_code == 0
    assert data_of(here / "task-report.html")["notices"] == []


def test_the_page_of_one_run_gives_the_size_that_recommend_gives(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The run alone needs 0.25 vCPU with 512 MB; another one of its family was killed with 2 GB."""
    runs = [sized_run(number) for number in range(6)]
    killed = sized_run(6, peak_mb=2000, status="failure", exit_code=137, likely_out_of_memory=True)
    (here / "lines").write_bytes(lines([*runs, killed]))
    group.main(["recommend", "--json", "--from", "lines"], standalone_mode=False)
    recommended = json.loads(capfd.readouterr().out)["recommended"]
    assert recommended == {"vcpu": 0.5, "memoryMB": 3072}
    for words in ((), ("--run", "task-3"), ("--run", "task-6")):
        assert call("--from", "lines", *words).exit_code == 0
        (row,) = data_of(here / "task-report.html")["sizing"]
        assert row["size"] == {"vcpu": recommended["vcpu"], "mb": recommended["memoryMB"]}
