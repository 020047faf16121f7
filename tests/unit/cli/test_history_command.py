"""The table of past runs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler.cli.history_command import run_table_lines
from profiler.cli.printing import write_record_lines
from profiler.core.errors import TaskProfilerError
from profiler.core.text import columns_of
from profiler.core.timestamps import local_zone
from profiler.record.record_model import AverageAndMaximum, Distribution, Report
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.record_files import FileRuns
from profiler.runs.past_runs.run_source import RunFilter
from tests.command_line import run_here
from tests.gpu_runs import gpu_run
from tests.runs import history_of, lines, report
from tests.terminals import texts
from tests.unit.cli.conftest import Cli


def head(*reports: Report) -> list[str]:
    return texts(run_table_lines([PastRun(report=one) for one in reports], None))[0].split()


def test_account_and_region_have_columns_only_where_there_are_several() -> None:
    first = ["Run", "Started", f"({local_zone()})", "Family"]
    rest = ["Result", "Time", "CPU", "Memory"]
    assert head(report(), report(1)) == [*first, *rest]
    assert head(report(account_id="1"), report(1, account_id="2")) == [*first, "Account", *rest]
    assert head(report(account_id="1"), report(1, account_id="1", region="eu-west-1")) == [
        *first,
        "Region",
        *rest,
    ]


@pytest.mark.usefixtures("here")
def test_runs_that_count_mapped_files_have_a_note_beside_others(cli: Cli) -> None:
    apart = {"memory_mapped_file_mb": AverageAndMaximum(avg=1, max=2)}
    Path("runs.jsonl").write_bytes(lines([report(), report(1, metrics=apart)]))
    listed = cli("history", "--from", "runs.jsonl")
    assert "The memory of 1 run may include pages of mapped files" in listed.err
    assert cli("history", "--json", "--from", "runs.jsonl").err == ""
    Path("runs.jsonl").write_bytes(lines([report(), report(1)]))
    assert cli("history", "--from", "runs.jsonl").err == ""


def test_runs_on_gpus_have_columns_for_them() -> None:
    runs = [PastRun(report=gpu_run(tape)) for tape in ("two", "beside", "neighbour")]
    titles, *rows = texts(run_table_lines(runs, None))
    assert titles.split("Memory")[1].split() == ["GPU", "GPU", "memory", "Idle", "between"]
    ends = [row.split()[-5:] for row in rows]
    assert ends[0] == ["35", "%", "≥2.8", "GB", "0.03", "%"][-5:]
    assert ends[1][-4:] == ["shared", "≥838", "MB", "-"]
    assert ends[2][-3:] == ["-", "-", "-"]
    narrow = texts(run_table_lines(runs, 80))
    assert "GPU" in narrow[0].split()
    assert max(map(columns_of, narrow)) <= 80


def test_a_retry_is_marked() -> None:
    rows = run_table_lines(
        [PastRun(report=report(number)) for number in range(2)], None, {report(1).record.task_id}
    )
    assert [" retry" in row for row in texts(rows)] == [False, False, True]


@pytest.mark.parametrize(
    ("width", "end", "left_out"),
    [
        (None, "20 % job.py --day 2026-11-20", ""),
        (93, "20 % job.py --day 2026…", ""),
        (80, "20 %", ""),
        (60, "9m 50s ≥400 MB", "CPU"),
        (45, "success", "CPU Memory Time"),
    ],
)
def test_the_command_line_is_the_first_column_that_gives_way_to_the_width(
    width: int | None, end: str, left_out: str
) -> None:
    name, long = "日本語夜間バッチ", "nightly-etl-customer-reports-of-all-regions"
    commands = {name: "job.py --day 2026-11-20", long: None, "nightly": None}
    runs = [
        PastRun(report=report(family=family), command=command)
        for family, command in commands.items()
    ]
    head, first, second, third = rows = texts(run_table_lines(runs, width))
    assert first.endswith(end)
    assert (long in second) == (width is None)
    assert max(map(columns_of, rows)) <= (width or 200)
    family = first.split()[3]
    assert third.index("success") - first.index("success") == columns_of(family) - len(family)
    assert {"Time", "CPU", "Memory"} - {*head.split()} == {*left_out.split()}


@pytest.mark.usefixtures("los_angeles")
def test_a_time_of_the_table_selects_its_run(tmp_path: Path, cli: Cli) -> None:
    """Runs start at 22:00, 06:00 and 14:00 UTC, which are 14:00 of the day before, 22:00 of it,
    and 06:00.
    """
    file = tmp_path / "lines"
    starts = ("2026-11-19T22:00:00.000Z", "2026-11-20T06:00:00.000Z", "2026-11-20T14:00:00.000Z")
    file.write_bytes(lines(report(number, started_at=start) for number, start in enumerate(starts)))

    def shown(*words: str) -> list[str]:
        head, *rows = cli("history", "--from", str(file), *words).out.splitlines()
        assert "Started (PST/PDT)" in head
        return [" ".join(row.split()[1:3]) for row in rows]

    assert shown() == ["2026-11-20 06:00", "2026-11-19 22:00", "2026-11-19 14:00"]
    assert shown("--since", "2026-11-20") == ["2026-11-20 06:00"]
    assert shown("--until", "2026-11-20") == ["2026-11-19 22:00", "2026-11-19 14:00"]
    assert shown("--since", "2026-11-19 22:00", "--until", "2026-11-20T06:00") == [
        "2026-11-19 22:00"
    ]
    assert shown("--since", "2026-11-20T06:00:00Z") == ["2026-11-20 06:00", "2026-11-19 22:00"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("b",), None),
        (("ab", "b"), None),
        (("b", "nobody"), "No run 'nobody'"),
        (("b", ""), "FAMILY is empty"),
        (("b", "a"), "several runs .* begin with 'a'"),
        (("b", "--status", "failure"), "--delete is for ids in the local history"),
    ],
)
def test_runs_are_deleted_by_the_beginnings_of_their_ids_or_not_at_all(
    words: tuple[str, ...], message: str | None, tmp_path: Path, cli: Cli
) -> None:
    """An id that is the beginning of another one is not ambiguous."""
    file = tmp_path / "history.sqlite3"
    store = history_of(
        file,
        *(report(number, task_id=task_id) for number, task_id in enumerate(("ab", "abc", "bcd"))),
    )
    kept = 3 - (len(words) if message is None else 0)
    arguments = ["history", "--from", f"history:{file}", "--delete", *words]
    if message is None:
        assert cli(*arguments).out == f"Deleted {len(words)} run{'s' * (len(words) > 1)}.\n"
    else:
        with pytest.raises(TaskProfilerError, match=message):
            cli(*arguments)
    assert len(list(store.candidate_rows(RunFilter()))) == kept


def test_runs_that_are_not_shown_are_mentioned(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(lines(report(number) for number in range(3)))
    shown = run_here({}, "history", "--from", str(file), "--last", "2")
    assert len(shown.stdout.splitlines()) == 3
    assert "Only the newest 2 runs are shown" in shown.stderr
    assert (
        "Only the newest run is shown"
        in run_here({}, "history", "--from", str(file), "--last", "1").stderr
    )
    assert run_here({}, "history", "--from", str(file), "--last", "3").stderr == ""


def test_no_runs_is_an_error_for_every_command_that_reads_runs(tmp_path: Path) -> None:
    missing = tmp_path / "data" / "history.sqlite3"
    environment = {"TASK_PROFILER_HISTORY": str(missing)}
    (tmp_path / "notes.txt").write_text("no record\n")
    for command in ("history", "show", "recommend", "report"):
        shown = run_here(environment, command)
        assert shown.returncode == 1, shown.stderr
        assert shown.stdout == ""
        assert "task-profiler run -- CMD" in shown.stderr
        assert run_here(environment, command, "--from", str(tmp_path / "notes.txt")).returncode == 1
    assert not missing.parent.exists()


def test_more_cpu_than_a_job_asked_for_is_no_part_of_it() -> None:
    """As the wrapper measures it: its limit is the machine's."""
    used = {
        "cpu_utilization_percent": Distribution(avg=91, max=100),
        "vcpu_used": Distribution(avg=14.6, max=16),
        "vcpu_size": 16,
        "vcpu_share": 4,
    }
    place: dict[str, Any] = {"launch_type": "EC2", "cluster": "AWSBatch-spot-1"}
    (_, row) = texts(
        run_table_lines([PastRun(report=report(size=None, metrics=used, **place))], None)
    )
    assert " 14.6 of 4 vCPU " in row
    (_, row) = texts(run_table_lines([PastRun(report=report(size=None, metrics=used))], None))
    assert " 91 % " in row
    less = {**used, "vcpu_used": Distribution(avg=1, max=2)}
    (_, row) = texts(
        run_table_lines([PastRun(report=report(size=None, metrics=less, **place))], None)
    )
    assert " 25 % " in row


def test_a_job_of_container_insights_has_its_size() -> None:
    used = {
        "cpu_utilization_percent": Distribution(avg=365, max=400),
        "vcpu_used": Distribution(avg=14.6, max=16),
    }
    place: dict[str, Any] = {"launch_type": "EC2", "cluster": "AWSBatch-spot-1"}
    job = report(size=(4, 8_192), metrics=used, **place)
    (_, row) = texts(run_table_lines([PastRun(report=job)], None))
    assert " 14.6 of 4 vCPU " in row


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("words", "holders"), [(("--json",), 0), ((), 1)])
def test_the_json_of_many_runs_needs_their_lines_alone(
    cli: Cli, words: tuple[str, ...], holders: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run in memory is seven times as large; the table needs them for its columns."""
    Path("runs.jsonl").write_bytes(lines(report(number) for number in range(3)))
    references: list[int] = []
    read = FileRuns.runs

    def watched(source: FileRuns, selection: RunFilter) -> Iterator[PastRun]:
        seen = []
        for run in read(source, selection):
            seen.append(run)
            yield run
            references.append(sys.getrefcount(seen[0]))

    monkeypatch.setattr(FileRuns, "runs", watched)
    printed = cli("history", "--from", "runs.jsonl", *words)
    assert len(printed.out.splitlines()) == 3 + holders
    assert references[-1] == 2 + holders


def test_lines_of_json_are_written_before_all_are_there(capfdbinary: Any) -> None:
    written = []

    def made() -> Iterator[bytes]:
        for number in range(2_500):
            written.append(capfdbinary.readouterr().out.count(b"\n"))
            yield b"%d" % number

    write_record_lines(made())
    assert sum(written) == 2_000
    assert capfdbinary.readouterr().out.count(b"\n") == 500
