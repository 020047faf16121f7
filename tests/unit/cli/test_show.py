"""``task-profiler show``: the page of each kind of run, and the command."""

import json
import re
from collections.abc import Iterable
from datetime import UTC
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.app import group
from profiler.cli.show import command
from profiler.cli.show.batch_log import log_lines
from profiler.cli.show.run_page import MAX_LINES, View, page_lines
from profiler.cli.show.sections import Section, arrange
from profiler.cli.show.size_lines import find_advice
from profiler.cli.show.two_runs import changed_rows, compare
from profiler.cli.styled_text import ASCII, BLOCKS, Glyphs, Line, line, render_lines
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.past_runs.moments import find_moments, series_of_checkpoints
from profiler.past_runs.run_source import PastRun
from profiler.record.activity_model import TimeBreakdown
from profiler.record.record_model import (
    Container,
    OtherContainer,
    Process,
    Processor,
    RaisedNotice,
    Recommendation,
    Report,
    encode,
)
from profiler.sizing.prices import PriceOverrides
from tests import shown_runs
from tests.documentation import ROOT
from tests.runs import lines as record_lines
from tests.shown_runs import NOW_NS, STARTED_NS, etl

KINDS = ("out_of_memory", "failure", "stopped", "running", "gpu", "neuron", "local", "unmeasured", "waiting")


def made(kind: str) -> Report:
    report: Report = getattr(shown_runs, kind)()
    return report


def page(report: Report, *, against: Report | None = None, width: int = 80, glyphs: Glyphs = BLOCKS) -> list[str]:
    run = PastRun(report=report, line=b"")
    other = None if against is None else compare(run, PastRun(report=against), "last success", is_complete=False)
    view = View(width=width, glyphs=glyphs, now_ns=NOW_NS, zone=UTC)
    return texts(page_lines(run, view, report.record.series, other, find_advice(run, None, PriceOverrides())))


def texts(lines: Iterable[Line]) -> list[str]:
    return ["".join(span.text for span in one).rstrip() for one in lines]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("kind", KINDS)
def test_every_run_fits_into_forty_lines_of_the_terminal(kind: str, width: int) -> None:
    shown = page(made(kind), against=etl(days_ago=1), width=width)
    assert len(shown) <= MAX_LINES
    assert max(map(len, shown)) <= width
    assert shown[0].startswith("● ")


def test_a_run_that_waited() -> None:
    shown = page(made("waiting"))
    assert "  size     2 vCPU, 4 GB · Fargate X86_64 · Xeon 8259CL · us-west-2d" in shown
    assert sum(one.startswith("  Time     ████") for one in shown) == 1
    assert "  waits     48 %  10.0.3.9:5432 (network)" in shown
    assert "           2 idle from +7m to +8m: load_orders → recv" in shown
    assert "           2 idle from +7m to +8m: load_orders -> recv" in page(made("waiting"), glyphs=ASCII, width=120)


def test_more_moments_than_the_axis_can_number() -> None:
    stacks = made("waiting").record.stacks
    assert stacks is not None
    report = shown_runs.waiting(stacks=replace(stacks, moments=(*stacks.moments, *(
        replace(stacks.moments[1], stack=(f"step{number} (job.py:1)",)) for number in range(9)))))  # fmt: skip
    for width in (60, 80):
        assert max(map(len, page(report, width=width))) <= width


def test_a_long_record_loses_the_least_important_lines() -> None:
    """The verdict, the usage and the curves stay; the comparison and the processes are cut."""
    report = made("gpu")
    record = replace(
        report.record,
        status="failure",
        exit_code=1,
        processes=tuple(Process(name=f"worker-{number}" * 5) for number in range(9)),
        recommendation=Recommendation(vcpu=1, memory_mb=2048, reasons=("", "long " * 80, "longer " * 80)),
    )
    shown = page(replace(report, record=record), against=made("local"))
    assert len(shown) <= MAX_LINES
    for beginning in ("● train:26 failed", "  GPU 3", "           3 memory peak"):
        assert [one for one in shown if one.startswith(beginning)], beginning


def test_a_killed_run() -> None:
    shown = page(made("out_of_memory"), against=etl(days_ago=1))
    assert shown[0] == "● nightly-etl:26 ran out of memory after 14m 06s."
    assert "  when     Fri 2026-11-20 03:12:45 → 03:26:51 UTC · 14m 06s + 18.4 s start-up" in shown
    assert "  size     2 vCPU, 4 GB · Fargate X86_64 · us-west-2d" in shown
    assert "  cost     $0.024 for 14m 25s billed" in shown
    assert "  Memory   █████████▓▓▓▓▓▓▓▓▓▓░   1.8 GB   3.8 GB    ≥4 GB  of 4 GB" in shown
    assert "           1 used all of its 2 vCPU from +2m 20s to +7m, 33 % of the run" in shown
    assert "  memory peak                 4 GB      3.2 GB       +23 %" in shown
    assert "  what if  1 vCPU, 5 GB: 1.3 to 1.6× as long, saves 2 %" in shown
    assert "  advice   2 vCPU, 5 GB, costs 4 % more (based on this run)" in shown


@pytest.mark.parametrize(
    ("count", "holders", "text"),
    [
        (9, 9, "python3 ×9 (392 MB)"),
        (500, 8, "python3 ×500 (392 MB in 8 of them)"),
        (9, None, "python3 ×9 (392 MB in 1 of them)"),  # schema 1.1: the mark of the largest
        (1, 1, "python3 (392 MB)"),
        (1, None, "python3 (392 MB)"),
    ],
)
def test_the_memory_of_a_name_is_that_of_its_processes_together(count: int, holders: int | None, text: str) -> None:
    report = made("etl")
    shown = Process(name="python3", count=count, max_memory_used_mb=392, max_memory_used_processes=holders)
    assert text in "\n".join(page(replace(report, record=replace(report.record, processes=(shown,)))))


def test_the_numbers_on_the_axis_are_those_of_the_moments() -> None:
    """Each is below the character of its time."""
    shown = page(made("failure"))
    (axis,) = [one for one in shown if re.fullmatch(r" +0[ 123]+19m 42s", one)]
    (cpu,) = [one for one in shown if one.startswith("  CPU") and "▔" in one]
    width = cpu.index(" ▔") - 11
    moments = find_moments(made("failure").record)
    assert len(moments) == 3
    for number, moment in enumerate(moments, start=1):
        share = (axis.index(str(number), 12) - 11) / width
        assert abs(share - moment.start_ms / 1_182_000) < 1.5 / width


def test_curves_end_at_the_limit_or_name_it() -> None:
    low = replace(etl(), record=replace(etl().record, metrics=replace(etl().record.metrics, memory_size_mb=65536)))
    (memory,) = [one for one in page(low) if one.startswith("  Memory") and "▔" in one]
    assert memory.endswith("▔ 3.2 GB of 64 GB")
    assert "█" in memory
    (memory,) = [one for one in page(etl()) if one.startswith("  Memory") and "▔" in one]
    assert memory.endswith("▔ 4 GB")
    assert "█" not in memory


def test_ascii_where_there_are_no_blocks() -> None:
    for kind in KINDS:
        assert "".join(page(made(kind), against=etl(days_ago=1), glyphs=ASCII)).isascii()


def test_text_of_a_record_does_not_reach_the_terminal_as_it_is() -> None:
    evil = replace(etl(), record=replace(etl().record, family="a\x1b[31m\u202eb", cluster="c\nd"))
    shown = page(evil)
    assert all(one.isprintable() for one in shown)
    assert r"a\x1b[31m\u202eb" in shown[0]


def test_a_run_with_checkpoints_alone_has_their_series() -> None:
    report = made("running")
    view = View(width=80, glyphs=BLOCKS, now_ns=STARTED_NS + 730 * 10**9, zone=UTC)
    series = series_of_checkpoints(shown_runs.checkpoints())
    shown = texts(page_lines(PastRun(report=report, line=b""), view, series, None, None))
    assert shown[0] == "● nightly-etl:26 is running, for 12m 00s so far."
    (cpu,) = [one for one in shown if one.startswith("  CPU") and "▔" in one]
    assert re.search(r"█ +█", cpu)


def test_the_notices_of_a_run_are_one_line() -> None:
    notices = (RaisedNotice(kind="stuck", at="2026-11-20T03:42:45.000Z"), RaisedNotice(kind="new\x1b", at="?"))
    report = etl()
    shown = page(replace(report, record=replace(report.record, notices=notices)))
    (row,) = [one for one in shown if one.startswith("  notices")]
    assert re.search(r"stuck at 03:42:45 . new\\x1b$", row)
    assert not [one for one in page(report) if one.startswith("  notices")]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=6), st.integers(1, 40))
def test_sections_are_cut_to_any_height(sizes: list[tuple[int, int]], height: int) -> None:
    sections = [
        Section(lines=tuple(line(f"{number}.{row}") for row in range(length)), rank=rank)
        for number, (length, rank) in enumerate(sizes)
    ]
    shown = texts(arrange(sections, height))
    assert len(shown) <= height
    is_cut = bool(shown) and shown[-1].endswith("omitted: --json prints everything.")
    kept = [one for one in shown if one and "omitted" not in one]
    left_out = sum(length for length, _ in sizes) - len(kept)
    assert is_cut == (left_out > 0)
    assert not is_cut or shown[-1].split()[0] == str(left_out)
    assert kept == sorted(kept, key=lambda one: tuple(map(int, one.split("."))))
    assert "" not in (shown[:1] + shown[-1:])


def test_colours_only_where_they_are_wanted() -> None:
    view = View(width=80, glyphs=BLOCKS, now_ns=NOW_NS, zone=UTC)
    lines = page_lines(PastRun(report=etl()), view, etl().record.series, None, None)
    plain = render_lines(lines, is_coloured=False, encoding="utf-8")
    coloured = render_lines(lines, is_coloured=True, encoding="utf-8")
    assert b"\x1b" not in plain
    assert re.sub(rb"\x1b\[[\d;]*m", b"", coloured) == plain
    assert b"\x1b[1;32m" in coloured


# --- comparison -----------------------------------------------------------------------------------


def test_only_numbers_that_changed_are_shown_of_a_failed_run() -> None:
    comparison = compare(
        PastRun(report=made("out_of_memory")), PastRun(report=etl(days_ago=1)), "last success", is_complete=False
    )
    changed = {row.name: row.change_percent for row in changed_rows(comparison.rows)}
    assert round(changed["memory peak"] or 0) == 23
    assert round(changed["read"] or 0) == 75
    assert "vCPU 95 %" not in changed
    assert len(changed) <= 6
    short = replace(etl(), record=replace(etl().record, metrics=replace(shown_runs.unmeasured().record.metrics)))
    other = compare(PastRun(report=short), PastRun(report=etl(days_ago=1)), "last success", is_complete=False)
    assert "duration" in {row.name for row in changed_rows(other.rows)}
    same = compare(PastRun(report=etl()), PastRun(report=etl(days_ago=1)), "run", is_complete=False)
    assert changed_rows(same.rows) == ()


def test_a_number_that_only_one_run_has_and_one_that_was_zero() -> None:
    this, that = etl(), etl()
    metrics = replace(that.record.metrics, block_read_bytes=0, max_pids=None)
    that = replace(that, record=replace(that.record, metrics=metrics, revision="25"))
    rows = {
        row.name: (row.other, row.change_percent, row.is_changed)
        for row in compare(PastRun(report=this), PastRun(report=that), "run", is_complete=True).rows
    }
    assert rows["read"] == ("0 MB", None, True)
    assert rows["processes"] == ("-", None, True)
    assert rows["revision"] == ("25", None, True)
    assert rows["duration"] == ("19m 42s", 0, False)
    assert "GPU average" not in rows


def test_parts_of_the_time_that_changed_are_shown_with_the_processors() -> None:
    old = TimeBreakdown(
        on_cpu_percent=41.1,
        waiting_for_cpu_percent=4,
        disk_percent=3,
        network_percent=40,
        sleep_percent=5,
        lock_percent=5,
        pipe_percent=0,
        child_percent=0,
        other_percent=1.9,
    )
    other = shown_runs.waiting(time_breakdown=old, processor=Processor(model="AMD EPYC 7R13 Processor"))
    for is_complete in (False, True):
        comparison = compare(PastRun(report=made("waiting")), PastRun(report=other), "run", is_complete=is_complete)
        rows = {row.name: (row.this, row.other) for row in changed_rows(comparison.rows)}
        assert rows == {"time network": ("55 %", "40 %")}
    shown = page(made("waiting"), against=other)
    assert "  time network                55 %        40 %  +15 points" in shown
    assert "  This run ran on Xeon 8259CL, the last success on EPYC 7R13." in shown


def test_waits_are_not_compared_between_runs_that_were_seen_differently() -> None:
    level_1 = TimeBreakdown(on_cpu_percent=11, waiting_for_cpu_percent=4, disk_percent=33, other_percent=52)
    other = shown_runs.waiting(time_breakdown=level_1)
    rows = compare(PastRun(report=made("waiting")), PastRun(report=other), "run", is_complete=False).rows
    assert [row.name for row in changed_rows(rows)] == ["time on CPU"]
    without = shown_runs.waiting(time_breakdown=None)
    assert (
        changed_rows(compare(PastRun(report=made("waiting")), PastRun(report=without), "", is_complete=True).rows) == ()
    )


# --- log lines ------------------------------------------------------------------------------------


class PlayedLogs:
    """A log stream with a line a minute, and the report at the end."""

    def __init__(self) -> None:
        start_ms = STARTED_NS // 1_000_000
        self.events = [{"timestamp": start_ms + 60_000 * n, "message": f"minute {n}\n"} for n in range(20)]
        own_lines = msgspec.json.encode(shown_runs.waiting_stacks()), encode(etl())
        self.events += [{"timestamp": start_ms + 1_182_500, "message": line.decode()} for line in own_lines]

    def get_log_events(self, **parameters: Any) -> dict[str, Any]:
        assert parameters["startFromHead"] is False
        before = [event for event in self.events if event["timestamp"] < parameters["endTime"]]
        return {"events": before[-parameters["limit"] :]}


def test_the_last_lines_before_each_moment_and_before_the_end() -> None:
    record = etl().record
    shown = texts(log_lines(PlayedLogs().get_log_events, record, find_moments(record), 2, UTC))
    assert shown[0] == f"/ecs/nightly-etl {record.log_stream}"
    assert shown[2:5] == [
        "  before +3m 10s: used all of its 2 vCPU from +3m 10s to +9m 30s, 32 % of the run",
        "  03:14:45 minute 2",
        "  03:15:45 minute 3",
    ]
    assert shown[-1] == "  before the end"  # its lines are those before the peak
    assert "  03:31:45 minute 19" in shown
    assert not [one for one in shown if "task.report" in one or "task.stacks" in one]


@pytest.mark.parametrize(
    "message",
    [
        "MemoryError",
        'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space',
        "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "fatal error: runtime: out of memory",
    ],
)
def test_the_message_of_a_runtime_is_found_above_its_stack_trace(message: str) -> None:
    logs = PlayedLogs()
    end_ms = STARTED_NS // 1_000_000 + 1_182_000
    trace = [f"{message}\n", *[f"    at com.example.Etl.step{number}\n" for number in range(30)]]
    logs.events[-2:-2] = [{"timestamp": end_ms, "message": text} for text in trace]
    shown = texts(log_lines(logs.get_log_events, made("failure").record, (), 2, UTC))
    assert shown[-1] == f"The program reported that it ran out of memory: {message}"
    assert sum("com.example" in one for one in shown) == 2


def test_no_memory_message_is_read_from_a_log_without_one() -> None:
    shown = texts(log_lines(PlayedLogs().get_log_events, made("failure").record, (), 2, UTC))
    assert not [one for one in shown if "ran out of memory" in one]


def test_a_run_without_a_log_stream_is_a_sentence() -> None:
    with pytest.raises(TaskProfilerError, match="names no log stream"):
        list(log_lines(PlayedLogs().get_log_events, made("local").record, (), 2, UTC))


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "night.jsonl"
    path.write_bytes(record_lines(shown_runs.night()))
    return path


def show(*words: str, written: list[bytes], patch: pytest.MonkeyPatch) -> Result:
    for module in ("profiler.cli.show", "profiler.cli.styled_text"):
        patch.setattr(f"{module}.write_out", written.append)
    patch.setenv("TZ", "UTC")
    return CliRunner().invoke(command, words)


def test_the_latest_run_is_shown_and_compared_with_the_last_success(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    assert show("--from", str(file), written=written, patch=monkeypatch).exit_code == 0
    text = written[0].decode()
    assert "ran out of memory" in text
    assert "(based on 3 runs)" in text
    assert "Compared with the last success of Thu 2026-11-19 03:12 (158d1c8044f2):" in text


def test_a_successful_run_is_compared_only_if_asked(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    show("158d", "--from", str(file), written=written, patch=monkeypatch)
    show("158d", "--from", str(file), "--against", "last-success", written=written, patch=monkeypatch)
    show("158d", "--from", str(file), "--against", "9c41", written=written, patch=monkeypatch)
    show("2f6b", "--from", str(file), "--against", "last-success", written=written, patch=monkeypatch)
    plain, success, other, first = (text.decode() for text in written)
    assert "Compared" not in plain
    assert "Compared with the last success of Wed 2026-11-18" in success
    assert "Compared with the run of Fri 2026-11-20" in other
    assert "No earlier success of nightly-etl in" in first


def test_json_is_the_record_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    show("nightly-etl", "--from", str(file), "--json", written=written, patch=monkeypatch)
    assert written == [encode(shown_runs.out_of_memory()) + b"\n"]
    assert json.loads(written[0])


def test_each_container_of_a_task_with_a_report_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is chosen by the order of the lines."""
    batch = etl(containers=(OtherContainer(name="side"), OtherContainer(name="task-monitor")))
    side = etl(container=Container(name="side"), containers=(OtherContainer(name="batch"),))
    path = tmp_path / "lines"
    path.write_bytes(record_lines([side, batch]))
    written: list[bytes] = []
    for words in (("158d",), ("nightly-etl", "--json"), ("158d1c8044f24c1d9d1b0f7c3f1e8a90/side",)):
        assert show(*words, "--from", str(path), written=written, patch=monkeypatch).exit_code == 0
    first, second, both, alone = (text.decode() for text in written)
    assert {"container side" in first, "container side" in second} == {True, False}
    assert "container batch" in first + second
    assert len(both.splitlines()) == 2
    assert "container side" in alone


@pytest.mark.parametrize("words", [("",), ("--against", "")])
def test_an_empty_name_is_refused(words: tuple[str, ...], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = show(*words, "--from", str(file), written=[], patch=monkeypatch).exception
    assert isinstance(error, UsageError)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rnu"], "Unknown command 'rnu': did you mean run?"),
        (["recomend", "x"], "did you mean recommend?"),
        (["sh", "-c", "exit 3"], "to profile this program, write task-profiler run -- sh -c 'exit 3'"),
        (["xyzzyx"], "task-profiler --help lists the commands."),
    ],
)
def test_a_mistyped_command(words: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        group.main(words, standalone_mode=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["history", "--last", "0"], "'0' is not a whole number (1 to 1000000)."),
        (["show", "--logs", "x"], "'x' is not a whole number (1 to 1000)."),
        (["run", "--interval", "0", "--", "true"], "'0' is not a number (0.02 to 3600)."),
    ],
)
def test_ranges_are_in_words(words: list[str], sentence: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        group.main(words, standalone_mode=False)
    assert sentence in error.value.format_message()


def test_the_help_names_the_history_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_PROFILER_HISTORY", "/data/runs.sqlite3")
    assert "Default here: /data/runs.sqlite3" in CliRunner().invoke(command, ["--help"], terminal_width=200).output


def test_the_help_of_the_monitor_lists_every_setting_of_the_page() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", (ROOT / "docs" / "monitor.md").read_text(), re.MULTILINE)
    settings = {name for row in rows for name in re.findall(r"`([A-Z_0-9]+)`", row)}
    shown = CliRunner().invoke(group, ["monitor", "--help"], terminal_width=200).output
    assert len(settings) > 15
    assert {name for name in settings if name not in shown} == set()
