"""The command that writes the report page."""

import io
import random
import re
from base64 import b64encode
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock

import msgspec
import pytest
from msgspec.structs import replace

from profiler.cli.report_command import CallStacksReader
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.record.notice_model import encode_notice_line
from profiler.record.record_model import encode
from profiler.runs.history.run_database import HistoryStore
from tests import shown_runs
from tests.fakes import FakeClock
from tests.report_page import checkpoint, parsed, report, run_of, step, unpacked
from tests.runs import lines
from tests.runs import report as sized_run
from tests.unit.cli.conftest import Cli
from tests.values import present

pytestmark = pytest.mark.usefixtures("here")
PAGE = Path("task-report.html")


def data_of_page() -> Any:
    texts = dict(
        re.findall(
            r'<script type="application/gzip" id="task-(\w+)">(.*)</script>', PAGE.read_text()
        )
    )
    return {**unpacked(texts["data"]), "series": parsed(texts["series"])}


def keep(here: Path, *task_ids: str) -> None:
    (here / "task-profiler").mkdir()
    history = HistoryStore(here / "task-profiler" / "history.sqlite3", FakeClock())
    for day, task_id in enumerate(task_ids, start=1):
        history.add_run(
            encode(report(task_id, day=day)),
            report(task_id, day=day),
            b"[[1000,0.5,1048576]]",
            max_runs=100,
        )


def test_the_history_becomes_a_page_and_json_names_the_file_and_counts_the_runs(
    here: Path, cli: Cli
) -> None:
    keep(here, "a", "b")
    assert cli("report").out == f"task-report.html: 2 runs, {PAGE.stat().st_size / 1e6:.1f} MB\n"
    assert PAGE.stat().st_size < 8_000_000
    data = data_of_page()
    assert [run["id"] for run in data["runs"]] == ["b", "a"]
    assert data["series"][0] == {"ms": [1000], "vcpu": [0.5], "mb": [1]}
    assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []
    assert cli("report", "--json").objects == [
        {"file": str(PAGE), "bytes": PAGE.stat().st_size, "runs": 2}
    ]


def test_the_page_on_standard_output_is_all_that_is_there(here: Path, cli: Cli) -> None:
    keep(here, "a")
    done = cli("report", "-o", "-")
    assert done.out[:15] == "<!DOCTYPE html>"
    assert done.err == ""
    assert PAGE.exists() is False
    for option in ("--json", "--open"):
        with pytest.raises(UsageError, match=f"{option} needs a file"):
            cli("report", option, "-o", "-")


@pytest.mark.slow  # it compresses 18 MB of random texts several times: six seconds of a CPU
def test_what_does_not_fit_into_the_page_is_said(cli: Cli) -> None:
    chance = random.Random(1)
    texts = (b64encode(chance.randbytes(size)).decode() for size in (18_000, 24_000) * 320)
    made = [
        run_of(report(next(texts), labels={"own": next(texts)}), (step(1000),)) for _ in range(320)
    ]
    Path("lines").write_bytes(lines(run.past.report for run in made))
    done = cli("report", "--from", "lines")
    kept = len(data_of_page()["runs"])
    assert 133 < kept < 320
    assert done.out.startswith(f"task-report.html: {kept} runs, ")
    runs, details = done.err.splitlines()
    assert runs.startswith(
        f"task-profiler: A page of 8 MB has no room for {320 - kept} older runs of 320: select"
    )
    assert details.startswith(
        "task-profiler: A page of 8 MB has no room for labels, processes, GPUs and the like of "
        f"{kept} runs: "
    )
    assert PAGE.stat().st_size < 8_000_000


def test_lines_that_are_no_records_are_counted_and_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = b"\n".join(
        [
            b"hello",
            encode(report("a")),
            b"",
            b"{}",
            b"\xff",
            encode(checkpoint(1, task_id="a")),
        ]
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert (
        cli("report", "--from", "-").err
        == "task-profiler: standard input: skipped 3 invalid lines: 1, 4, 5\n"
    )
    assert data_of_page()["series"][0]["ms"] == [60_000]


def test_files_that_cannot_be_used_are_a_sentence(here: Path, cli: Cli) -> None:
    keep(here, "a")
    for option, name, sentence in (
        (
            "--from",
            "nowhere",
            "There is no file nowhere: for a log group in CloudWatch, write logs:nowhere.",
        ),
        ("-o", "no/a.html", "no/a.html cannot be written"),
    ):
        with pytest.raises(TaskProfilerError, match=sentence):
            cli("report", option, name)


def test_a_page_replaces_no_file_of_another_kind(here: Path, cli: Cli) -> None:
    kept = lines([report("a")])
    Path("runs.jsonl").write_bytes(kept)
    with pytest.raises(UsageError, match=r"runs\.jsonl exists and is no HTML page: name another"):
        cli("report", "--from", "runs.jsonl", "-o", "runs.jsonl")
    assert Path("runs.jsonl").read_bytes() == kept
    for beginning in ("", "\n<html>"):
        PAGE.write_text(beginning)
        assert cli("report", "--from", "runs.jsonl").out.startswith("task-report.html: 1 run, ")


def test_a_page_for_one_run_has_the_last_success(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page for one run has the last success and open says when it cannot show it."""
    keep(here, "a", "b", "c")
    assert cli("report", "--run", "b").out.startswith("task-report.html: 1 run, ")
    assert [run["id"] for run in data_of_page()["runs"]] == ["b", "a"]
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert "No browser could be started: open task-report.html" in cli("report", "--open").err
    assert opened == [(here / PAGE).as_uri()]


@pytest.mark.parametrize("order", [None, "sorted"])
def test_the_page_has_the_call_stacks_of_the_file(
    cli: Cli, order: Literal["sorted"] | None
) -> None:
    stacks = msgspec.json.encode(shown_runs.waiting_stacks(), order=order)
    Path("lines").write_bytes(stacks + b"\n" + encode(shown_runs.waiting()))
    assert cli("report", "--from", "lines").err == ""
    text = re.search('id="task-activity">([^<]*)<', PAGE.read_text())
    assert len(parsed(present(text)[1])["stacks"]) == 3


def test_a_source_that_cannot_read_stacks_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    stacks = Mock(side_effect=TaskProfilerError("No stacks could be read."))
    reader = CallStacksReader(Mock(stacks=stacks))
    assert [reader.read(shown_runs.waiting()) for _ in range(3)] == [None] * 3
    assert stacks.call_count == 1
    assert capsys.readouterr().err.count("The page lacks call stacks.") == 1


def test_the_page_has_the_missed_runs_since_the_oldest_run(cli: Cli) -> None:
    missed = shown_runs.missed_notice()
    older = replace(missed, notice=replace(missed.notice, due_at="2026-11-01T00:00:00.000Z"))
    run = shown_runs.etl(days_ago=1)
    Path("lines").write_bytes(
        b"\n".join((encode(run), encode_notice_line(missed), encode_notice_line(older)))
    )
    for words, notices in ((), [missed.notice.message]), (("--run", run.record.task_id), []):
        cli("report", "--from", "lines", *words)
        assert [one["text"] for one in data_of_page()["notices"]] == notices


def test_the_page_of_one_run_gives_the_size_that_recommend_gives(cli: Cli) -> None:
    """The run alone needs 0.25 vCPU with 512 MB; another one of its family was killed with 2 GB."""
    runs = [sized_run(number) for number in range(6)]
    killed = sized_run(6, peak_mb=2000, status="failure", exit_code=137, likely_out_of_memory=True)
    Path("lines").write_bytes(lines([*runs, killed]))
    (found,) = cli("recommend", "--json", "--from", "lines").objects
    assert found["recommended"] == {"vcpu": 0.5, "memoryMB": 3072}
    for words in ((), ("--run", "task-3"), ("--run", "task-6")):
        cli("report", "--from", "lines", *words)
        (row,) = data_of_page()["sizing"]
        assert row["recommended"] == {"vcpu": 0.5, "memoryMB": 3072}
