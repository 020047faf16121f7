"""``task-profiler show``: the page of each kind of run, and the command."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.show_command import log_lines
from profiler.cli.styled_text import Line, build_line, render_lines
from profiler.cli.terminal.page_parts import View, fit_sections
from profiler.cli.terminal.run_page import MAX_LINES, page_lines
from profiler.core.errors import TaskProfilerError
from profiler.record.record_model import (
    NO_READINGS,
    UNKNOWN_COST,
    AverageAndMaximum,
    Container,
    Cost,
    Distribution,
    OtherContainer,
    Process,
    Processor,
    Recommendation,
    Record,
    Report,
    Sampling,
    Series,
    Visible,
    encode,
)
from profiler.record.spot_price import cost_on_provider
from profiler.runs.comparison.run_changes import (
    NO_COMPARISON,
    RunComparison,
    changed_rows,
    compare_runs,
)
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.past_run import PastRun, TaskEvent
from profiler.runs.past_runs.run_moments import find_moments
from profiler.runs.step_series import steps_of_checkpoints, with_equal_steps
from profiler.sizing.prices import PriceOverrides
from profiler.sizing.size_summary import size_story
from tests import shown_runs
from tests.cases import each_case
from tests.changed_records import KINDS
from tests.runs import lines as record_lines
from tests.shown_runs import NOW_NS, STARTED_NS, etl
from tests.terminals import texts
from tests.unit.cli.conftest import Cli
from tests.values import present


def made(kind: str) -> Report:
    report: Report = getattr(shown_runs, kind)()
    return report


def drawn(
    report: Report, comparison: RunComparison = NO_COMPARISON, *, width: int = 80
) -> list[Line]:
    run = PastRun(report=report, line=encode(report))
    view = View(width=width, now_ns=NOW_NS)
    sizes = size_story(find_advice(run, None, PriceOverrides()), run.story.usage)
    return page_lines(run, view, report.record.series, comparison, sizes)


def page(report: Report, *, against: Report | None = None, width: int = 80) -> list[str]:
    other = (
        NO_COMPARISON
        if against is None
        else compared(report, against, earlier=[against.record] * 5)
    )
    return texts(drawn(report, other, width=width))


def compared(
    this: Report,
    that: Report,
    *,
    is_complete: bool = False,
    earlier: Sequence[Record] = (),
    name: str = "last success",
) -> RunComparison:
    return compare_runs(this.record, that.record, name, is_complete=is_complete, earlier=earlier)


def etl_with(**metrics: Any) -> Report:
    return etl(metrics=replace(etl().record.metrics, **metrics))


@pytest.mark.diagonal
@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("kind", KINDS)
def test_every_run_fits_into_forty_lines_of_the_terminal(kind: str, width: int) -> None:
    shown = page(made(kind), against=etl(days_ago=1), width=width)
    assert len(shown) <= MAX_LINES
    assert max(map(len, shown)) <= width
    assert shown[0].startswith("● ")
    in_ascii = render_lines(drawn(made(kind), width=width), is_coloured=False, encoding="ascii")
    assert b"\\" not in in_ascii


def test_a_long_record_loses_the_least_important_lines() -> None:
    """The verdict, the usage and the curves stay; the comparison and the processes are cut."""
    report = made("gpu")
    record = replace(
        report.record,
        status="failure",
        exit_code=1,
        processes=tuple(Process(name=f"worker-{number}" * 5) for number in range(9)),
        recommendation=Recommendation(
            vcpu=1, memory_mb=2048, reasons=("", "long " * 80, "longer " * 80)
        ),
    )
    shown = page(replace(report, record=record), against=made("local"))
    assert len(shown) <= MAX_LINES
    for beginning in ("● train:26 failed", "  GPU 3", "           3 memory peak"):
        assert [one for one in shown if one.startswith(beginning)], beginning


@pytest.mark.parametrize("files_mb", [None, 0, 50, 600])
def test_files_in_memory_are_said_below_the_memory_used(files_mb: float | None) -> None:
    apart = NO_READINGS if files_mb is None else AverageAndMaximum(avg=files_mb / 2, max=files_mb)
    shown = page(etl_with(memory_mapped_file_mb=apart, max_memory_used_mb=60), width=120)
    sentence = (
        "it also keeps up to 600 MB of its files in memory (with less memory it reads them again)"
    )
    assert [row.strip() for row in shown if row.strip().startswith("files ")] == [
        f"files    {sentence}"
    ][: files_mb == 600]


def test_huge_pages_are_said_below_the_memory_used() -> None:
    shown = page(etl_with(memory_huge_pages_mb=AverageAndMaximum(avg=200, max=300)), width=120)
    sentence = "it also holds up to 300 MB of huge pages, which the memory used lacks"
    assert f"huge     {sentence}" in [row.strip() for row in shown]
    assert not [row for row in page(etl_with(), width=120) if "huge pages" in row]


def test_memory_that_may_include_mapped_files_has_no_change() -> None:
    apart = AverageAndMaximum(avg=500, max=1300)
    newer = etl_with(max_memory_used_mb=500, memory_mapped_file_mb=apart, cpu_seconds=40)
    note = (
        "The memory of that run may include pages of mapped files, as older versions, Container "
        "Insights and very short runs count them: its change is not known."
    )
    shown = page(newer, against=etl(), width=200)
    assert [row for row in shown if row.strip() == note]
    assert not [row for row in shown if row.strip().startswith("memory peak  ")]
    rows = {row.name: row for row in compared(newer, etl(), is_complete=True).rows}
    assert (rows["memory peak"].this, rows["memory peak"].change) == ("≥500 MB", "")
    assert rows["CPU time"].change
    back = page(etl(), against=newer, width=200)
    assert [row for row in back if row.strip() == note.replace("that run", "this run")]
    assert not [row for row in page(newer, against=newer, width=200) if "mapped files" in row]


@pytest.mark.usefixtures("los_angeles")
def test_a_run_at_the_end_of_summer_time_has_two_zones() -> None:
    """From 01:30 to 01:30: without the zones, it would seem to have taken no time."""
    shown = page(
        with_record(etl(), started_at="2026-11-01T08:30:00Z", finished_at="2026-11-01T09:30:00Z")
    )
    assert [row for row in shown if "Sun 2026-11-01 01:30:00 PDT → 01:30:00 PST" in row]


def with_record(report: Report, **record: Any) -> Report:
    return replace(report, record=replace(report.record, **record))


LISTED = Cost(usd=0.0082, price_basis="us-west-2 FARGATE X86_64 2026-09 on-demand price")
PROCESS = Process(name="python3", count=9, max_memory_used_mb=392, max_memory_used_processes=9)
# With the reports, the rows that their pages have.
ROWS: dict[str, tuple[Any, ...]] = {
    "killed": (
        made("out_of_memory"),
        "● nightly-etl:26 ran out of memory after 14m 06s.",
        "  when     Fri 2026-11-20 03:12:45 → 03:26:51 UTC · 14m 06s + 18.4 s start-up",
        "  size     2 vCPU, 4 GB · Fargate X86_64 · us-west-2d",
        "  cost     $0.024 for 14m 25s billed",
        "  Memory   █████████▓▓▓▓▓▓▓▓▓▓░   1.8 GB   3.8 GB    ≥4 GB  of 4 GB",
        "           1 used all of its 2 vCPU from +2m 20s to +7m, 33 % of the run",
        "  memory peak                ≥4 GB     ≥3.2 GB       +23 %",
        "  advice   2 vCPU, 5 GB, costs 5 % more (based on this run)",
    ),
    "it saw more memory": (
        with_record(made("out_of_memory"), visible=Visible(memory_mb=7987.2, cpus=2)),
        "           the program sees 7.8 GB and may use 4: set the container's `memory`,",
        "           or -Xmx/max_old_space_size/workers.",
    ),
    "it saw more CPUs": (
        with_record(
            etl_with(cpu_wait_seconds=4000.0, cpu_wait_percent=75.6),
            visible=Visible(memory_mb=4200, cpus=8),
        ),
        "           it sees 8 CPUs and may use 2: set the number of workers.",
    ),
    "price": (etl(cost=LISTED), "  cost     $0.0082 for 20m 01s billed, on-demand price"),
    "on an instance, which is billed in place of the task": (
        etl(launch_type="MANAGED_INSTANCES", cost=Cost(usd=0.009, price_basis="mine")),
        "  cost     $0.0090",
    ),
    "Spot": (
        etl(cost=cost_on_provider("FARGATE_SPOT", LISTED)),
        "  cost     ≥ $0.0025 (Spot) for 20m 01s billed",
    ),
    "the memory of a name is that of its processes together": (
        etl(processes=(PROCESS, replace(PROCESS, count=500, max_memory_used_processes=8))),
        "  largest  python3 ×9 (≥392 MB) · python3 ×500 (≥392 MB in 8 of them)",
    ),
    "a name has what was read of it, and the others the rest": (
        etl(
            processes=(
                Process(name="heavy", count=6, cpu_seconds=0.3),
                Process(name="other", cpu_seconds=2.1),
            )
        ),
        "  largest  heavy ×6 (≥300 ms of CPU) · other or unread programs (2.1 s of CPU)",
    ),
    "the others follow the names that are listed": (
        etl(
            processes=(
                *(Process(name=name, cpu_seconds=9) for name in ("a", "b", "c", "d")),
                Process(name="other", count=10, cpu_seconds=9.5),
            )
        ),
        "  largest  a (9.0 s of CPU) · b (9.0 s of CPU) · c (9.0 s of CPU) · other",
        "           programs ×10 (9.5 s of CPU)",
    ),
    "waited": (
        made("waiting"),
        "  size     2 vCPU, 4 GB · Fargate X86_64 · Xeon 8259CL · us-west-2d",
        "  waits     48 %  10.0.3.9:5432 (network)",
        "           2 idle from +7m to +8m: load_orders → recv",
    ),
    "any use has a cell, and only a full one has all": (
        etl_with(vcpu_used=Distribution(avg=0.001, p95=0.002, max=1.95)),
        "  CPU      █░░░░░░░░░░░░░░░░░░·    0.001    0.002     1.95  of 2 vCPU",
    ),
    "local": (made("local"), "  run      0f1e2d3c · host laptop · commit 0123456"),
    "GPUs that were never idle": (
        with_record(made("gpu"), gpu_idle=None),
        "  GPU      SM active 30 %",
    ),
}


@each_case("kind", ROWS)
def test_the_rows_of_a_page(kind: str) -> None:
    report, *rows = ROWS[kind]
    shown = page(report, against=etl(days_ago=1) if kind == "killed" else None)
    assert [row for row in rows if row not in shown] == []


def test_a_memory_near_its_limit_is_red() -> None:
    for peak_mb, is_red in ((3900, True), (3500, False)):
        rows = drawn(etl_with(max_memory_used_mb=peak_mb))
        assert (
            next(row for row in rows if row and row[0].text.startswith("  Memory"))[1].style
            == "red"
        ) is is_red


def test_estimates_and_lower_bounds_have_a_mark_in_ascii() -> None:
    lines = [build_line("GPU ≈ 3 %, ≥1.7 GB")]
    assert render_lines(lines, is_coloured=False, encoding="ascii") == b"GPU ~ 3 %, >1.7 GB\n"


def test_what_the_gpus_did() -> None:
    shown = page(made("gpu"), width=120)
    start = next(number for number, one in enumerate(shown) if one.startswith("  GPU      "))
    assert [one[11:] for one in shown[start : start + 3]] == [
        (
            "the 4 GPUs were idle 38 % of the run on average; while all were idle, the batch "
            "read files (48 %:"
        ),
        "/data/train.tar) and used the CPU (31 %)",
        "0.5 idle GPU-hours ($1.23) · SM active 30 %",
    ]


def test_a_run_shows_the_other_ones_of_its_retries() -> None:
    run = PastRun(report=etl(), event=TaskEvent(retry_of="88888888aaaa", retried_as="99999999aaaa"))
    shown = texts(page_lines(run, View(width=80, now_ns=NOW_NS)))
    assert "  retry    retry of 88888888 · retried as 99999999" in shown


def test_text_of_a_record_does_not_reach_the_terminal_as_it_is() -> None:
    shown = page(etl(family="a\x1b[31m\u202eb", cluster="c\nd"))
    assert all(one.isprintable() for one in shown)
    assert r"a\x1b[31m\u202eb" in shown[0]


def test_a_run_with_checkpoints_alone_has_their_series() -> None:
    report = made("running")
    view = View(width=80, now_ns=STARTED_NS + 730 * 10**9)
    series = with_equal_steps(
        steps_of_checkpoints(shown_runs.checkpoints()), "2026-11-20T03:12:45.000Z"
    )
    shown = texts(page_lines(PastRun(report=report, line=b""), view, series))
    assert shown[0] == "● nightly-etl:26 is running, for 12m 00s so far."
    (cpu,) = [one for one in shown if one.startswith("  CPU") and "▔" in one]
    assert re.search(r"█ +█", cpu)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=6), st.integers(1, 40))
def test_sections_are_cut_to_any_height(sizes: list[tuple[int, int]], height: int) -> None:
    sections = [
        (rank, [build_line(f"{number}.{row}") for row in range(length)])
        for number, (length, rank) in enumerate(sizes)
    ]
    shown = texts(fit_sections(sections, 80, height))
    assert len(shown) <= height
    is_cut = bool(shown) and shown[-1].endswith("omitted: --json prints everything.")
    kept = [one for one in shown if one and "omitted" not in one]
    left_out = sum(length for length, _ in sizes) - len(kept)
    assert is_cut == (left_out > 0)
    assert not is_cut or shown[-1].split()[0] == str(left_out)
    assert kept == sorted(kept, key=lambda one: tuple(map(int, one.split("."))))
    assert "" not in (shown[:1] + shown[-1:])


def test_moments_that_begin_together_stand_on_the_axis_in_their_order() -> None:
    series = Series(
        started_at=shown_runs.at(0),
        step_ms=60_000,
        vcpu_used=(0.0,) * 20,
        memory_used_mb=(3900.0, *(900.0,) * 19),
    )
    report = etl_with(max_memory_used_mb=3900.0, max_memory_used_at=shown_runs.at(1))
    rows = page(with_record(report, series=series))
    assert [row for row in rows if row.startswith("           12  ")]
    assert [row for row in rows if row.startswith("           1 idle from +0s")]


def test_colours_only_where_they_are_wanted() -> None:
    lines = drawn(etl())
    plain = render_lines(lines, is_coloured=False, encoding="utf-8")
    coloured = render_lines(lines, is_coloured=True, encoding="utf-8")
    assert b"\x1b" not in plain
    assert re.sub(rb"\x1b\[[\d;]*m", b"", coloured) == plain
    assert b"\x1b[1;32m" in coloured


# --- comparison -----------------------------------------------------------------------------------


def test_only_numbers_that_changed_are_shown_of_a_failed_run() -> None:
    comparison = compared(made("out_of_memory"), etl(days_ago=1))
    changed = {row.name: row.change_percent for row in changed_rows(comparison.rows)}
    assert round(changed["memory peak"] or 0) == 23
    assert round(changed["read"] or 0) == 75
    assert "vCPU 95 %" not in changed
    assert len(changed) <= 6
    short = etl(metrics=shown_runs.unmeasured().record.metrics)
    assert "duration" in {row.name for row in changed_rows(compared(short, etl(days_ago=1)).rows)}
    assert changed_rows(compared(etl(), etl(days_ago=1)).rows) == ()


def test_a_number_that_is_usual_for_the_family_has_not_changed() -> None:
    """Read bytes of 1 to 3 GB are usual here, so 2.1 GB are, too; a peak of 4 GB is not."""
    earlier = [
        etl_with(block_read_bytes=round(size)).record
        for size in (1.0e9, 1.4e9, 2.0e9, 2.6e9, 3.0e9)
    ]
    found = compared(made("out_of_memory"), etl(days_ago=1), earlier=earlier)
    changed = {row.name for row in changed_rows(found.rows)}
    assert "read" not in changed
    assert "memory peak" in changed
    assert not found.has_few
    few = compared(made("out_of_memory"), etl(days_ago=1), earlier=earlier[:4])
    shown = texts(drawn(made("out_of_memory"), few))
    assert [one for one in shown if one.endswith("that run      change, fewer than five runs")]
    assert [one for one in shown if one.startswith("  memory peak ") and one.endswith("%")]


def test_peaks_that_were_found_differently_are_compared_with_a_note() -> None:
    for this, that, exact in (
        ("kernel", "sampled", ["this"]),
        ("sampled", "kernel", ["that"]),
        ("sampled", None, []),
    ):
        run = etl_with(memory_peak_source=this)
        found = compared(run, etl_with(memory_peak_source=that), is_complete=True)
        shown = "\n".join(texts(drawn(run, found, width=120)))
        assert re.findall(r"The peak of (\w+) run is the kernel's; ", shown) == exact


NEW, OLD = ("sha256:" + beginning * 5 for beginning in ("a1b2c3d4e5f6", "0f9e8d7c6b5a"))


@pytest.mark.parametrize(
    ("images", "digests", "shown"),
    [
        ((f"etl@{NEW}", f"etl@{OLD}"), (None, None), ("a1b2c3d4e5", "0f9e8d7c6b")),
        (("reg:5000/etl:latest",) * 2, (NEW, OLD), ("a1b2c3d4e5", "0f9e8d7c6b")),
        (("etl:8", "etl:7"), (NEW, OLD), ("8", "7")),
    ],
)
def test_a_changed_image_is_shown_by_its_tag_or_its_digest(
    images: Any, digests: Any, shown: tuple[str, str]
) -> None:
    pairs = zip(images, digests, strict=True)
    this, that = (
        etl(container=Container(name="batch", image=one, image_digest=digest))
        for one, digest in pairs
    )
    rows = compared(this, that, is_complete=True).rows
    assert [(row.this, row.other) for row in rows if row.name == "image"] == [shown]


def test_a_number_that_only_one_run_has_and_those_that_look_alike() -> None:
    """200 bytes and nothing are both 0 MB."""
    that = etl(
        metrics=replace(etl().record.metrics, block_read_bytes=0, max_pids=None), revision="25"
    )
    found = compared(etl(), that, is_complete=True).rows
    rows = {row.name: (row.other, row.change_percent, row.is_changed) for row in found}
    assert rows["read"] == ("0 MB", None, True)
    assert rows["most threads"] == ("-", None, True)
    assert rows["revision"] == ("25", None, True)
    assert rows["duration"] == ("19m 42s", None, False)
    assert "GPU average" not in rows
    found = compared(
        etl_with(block_write_bytes=0), etl_with(block_write_bytes=200), is_complete=True
    ).rows
    (written,) = [row for row in found if row.name == "written"]
    assert written.this == "0 MB"
    assert written.other == "0 MB"
    assert written.change == "="
    assert written.is_changed is False


def test_parts_of_the_time_that_changed_are_shown_with_the_processors() -> None:
    now = made("waiting").record.time_breakdown
    old = replace(
        present(now), on_cpu_percent=41.1, network_percent=40, lock_percent=5, other_percent=1.9
    )
    other = shown_runs.waiting(
        time_breakdown=old, processor=Processor(model="AMD EPYC 7R13 Processor")
    )
    for is_complete in (False, True):
        comparison = compared(made("waiting"), other, is_complete=is_complete)
        rows = {row.name: (row.this, row.other) for row in changed_rows(comparison.rows)}
        assert rows == {"time network": ("55 %", "40 %")}
    shown = page(made("waiting"), against=other)
    assert "  time network                55 %        40 %  +15 points" in shown
    assert "  This run ran on Xeon 8259CL, the last success on EPYC 7R13." in shown


# --- log lines ------------------------------------------------------------------------------------


class PlayedLogs:
    """A log stream with a line a minute, and the report at the end.

    The first page of an answer is empty.
    """

    def __init__(self) -> None:
        start_ms = STARTED_NS // 1_000_000
        self.events = [
            {"timestamp": start_ms + 60_000 * n, "message": f"minute {n}\n"} for n in range(20)
        ]
        own_lines = msgspec.json.encode(shown_runs.waiting_stacks()), encode(etl())
        self.events += [
            {"timestamp": start_ms + 1_182_500, "message": line.decode()} for line in own_lines
        ]

    def get_log_events(self, **parameters: Any) -> dict[str, Any]:
        assert parameters["startFromHead"] is False
        before = [event for event in self.events if event["timestamp"] < parameters["endTime"]]
        first_is_empty = "nextToken" not in parameters
        return {
            "events": [] if first_is_empty else before[-parameters["limit"] :],
            "nextBackwardToken": "b/1",
        }


def test_the_last_lines_before_each_moment_and_before_the_end() -> None:
    record = etl().record
    shown = texts(log_lines(PlayedLogs().get_log_events, record, find_moments(record), 2))
    assert shown[0] == f"/ecs/nightly-etl {record.log_stream}"
    assert shown[2:5] == [
        "  before +3m 10s: used all of its 2 vCPU from +3m 10s to +9m 30s, 32 % of the run",
        "  03:14:45 minute 2",
        "  03:15:45 minute 3",
    ]
    assert shown[-1] == "  before the end"  # its lines are those before the peak
    assert "  03:31:45 minute 19" in shown
    assert not [one for one in shown if "task.report" in one or "task.stacks" in one]


def test_a_lack_of_gpu_memory_in_the_shown_lines_is_said_of_a_failed_run() -> None:
    logs = PlayedLogs()
    at_ms = STARTED_NS // 1_000_000 + 1_182_000
    lack = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    logs.events.insert(-2, {"timestamp": at_ms, "message": lack})
    succeeded = etl().record
    failed = replace(succeeded, status="failure", exit_code=1)
    shown = texts(log_lines(logs.get_log_events, failed, [], 2))
    assert shown[-3:] == [
        f"{failed.container.name} probably ran out of GPU memory.",
        f"Its log says: {lack}",
        "Use a smaller batch size, free what is not needed, or a GPU with more memory.",
    ]
    assert "Its log says" not in "".join(texts(log_lines(logs.get_log_events, succeeded, [], 2)))


@pytest.mark.parametrize("kind", ["out_of_memory", "failure", "etl", "running", "local"])
def test_a_failed_run_in_ecs_names_the_option_that_reads_its_log(kind: str) -> None:
    log = "  log      /ecs/nightly-etl: --logs shows the last lines"
    run = PastRun(report=made(kind))
    view = View(width=80, now_ns=NOW_NS)
    assert (log in texts(page_lines(run, view))) == (kind in ("out_of_memory", "failure"))
    assert log not in texts(page_lines(run, replace(view, reads_log=True)))


def test_the_output_of_a_local_run_is_not_kept(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "local.jsonl"
    file.write_bytes(encode(made("local")) + b"\n")
    with pytest.raises(TaskProfilerError, match="output of local runs is not kept"):
        cli("show", "--from", str(file), "--logs")


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "night.jsonl"
    path.write_bytes(record_lines(shown_runs.night()))
    return path


def test_cpu_time_not_measured_to_the_end_is_a_lower_bound() -> None:
    """CPU time that was not measured to the end is a lower bound without a change."""
    first, second = (
        replace(report, record=replace(report.record, sampling=Sampling(cpu_covered_percent=60)))
        for report in (etl_with(cpu_seconds=9.5), etl_with(cpu_seconds=12))
    )
    lines = drawn(first, compared(first, second, is_complete=True))
    (row,) = [text.split() for text in texts(lines) if text.strip().startswith("CPU time")]
    assert row == ["CPU", "time", "≥9.5", "s", "≥12.0", "s"]
    assert "CPU time" not in "".join(page(first, against=second))


def test_bytes_that_were_not_counted_to_the_end_are_a_lower_bound() -> None:
    covered = Sampling(cpu_covered_percent=60, sources=("task-metadata-v4",))
    first, second = (
        replace(report, record=replace(report.record, sampling=covered))
        for report in (etl_with(block_read_bytes=2**20), etl_with(block_read_bytes=2**22))
    )
    lines = drawn(first, compared(first, second, is_complete=True))
    (row,) = [text.split() for text in texts(lines) if text.strip().startswith("read  ")]
    assert row == ["read", "≥1", "MB", "≥4", "MB"]
    assert any("I/O" in text and "read ≥1 MB" in text for text in texts(lines))


def test_the_least_that_spot_costs_has_no_change_from_a_price() -> None:
    priced = shown_runs.etl(cost=Cost(usd=0.4))
    spot = shown_runs.etl(cost=Cost(usd=0.12, price_basis="at least, on FARGATE_SPOT"))
    rows = {}
    for name, other in (("priced", priced), ("spot", spot)):
        for row in compared(spot, other, is_complete=True).rows:
            rows[name, row.name] = row
    assert rows["priced", "cost"].this == "≥ $0.12"
    assert rows["priced", "cost"].change == ""
    assert rows["spot", "cost"].change == "="


def test_the_latest_run_is_compared_with_the_last_success_and_json_is_the_line(
    file: Path, cli: Cli
) -> None:
    text = cli("show", "--from", str(file)).out
    assert "ran out of memory" in text
    assert "(based on 3 runs)" in text
    assert "Compared with the last success of Thu 2026-11-19 03:12 (158d1c80):" in text
    assert " change, fewer than five runs\n" in text
    line = cli("show", "nightly-etl", "--from", str(file), "--json").out
    assert line.encode() == encode(shown_runs.out_of_memory()) + b"\n"


def test_runs_that_are_compared_have_the_price_of_the_same_machine(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines have no price of an instance: the environment gives it to both runs."""
    monkeypatch.setenv("TASK_PROFILER_PRICE_HOUR", "3")
    on_instance = partial(etl, launch_type="EC2", cost=UNKNOWN_COST)
    success = on_instance(days_ago=1)
    failure = on_instance("b" * 32, status="failure", exit_code=1)
    path = tmp_path / "runs.jsonl"
    path.write_bytes(b"\n".join(map(encode, (success, failure))))
    text = cli("show", "bbbb", "--from", str(path), "--against", "last-success").out
    (cost,) = [row.split() for row in text.splitlines() if row.startswith("  cost  ")][1:]
    assert cost[1] == cost[2]
    assert cost[1].startswith("$")


def test_a_price_that_is_none_is_said_once(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a task with two reports, of which each is compared."""
    monkeypatch.setenv("TASK_PROFILER_PRICE_HOUR", "dear")
    failure = partial(etl, status="failure", exit_code=1)
    path = tmp_path / "runs.jsonl"
    reports = (failure(), failure(container=Container(name="side")))
    path.write_bytes(b"\n".join(map(encode, reports)))
    assert cli("show", "--from", str(path)).err.count("'dear' is not a price in USD") == 1


@pytest.mark.usefixtures("here")
def test_an_id_that_the_local_history_lacks_names_the_other_sources(cli: Cli) -> None:
    with pytest.raises(
        TaskProfilerError, match=r"same source, or name another source \(--from FILE, .*logs:GLOB"
    ):
        cli("show", "0123abcd")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("158d", "--against", "last-success"), "Compared with the last success of Wed 2026-11-18"),
        (("158d", "--against", "9c41"), "Compared with the run of Fri 2026-11-20"),
        (("158d", "--against", "9c41"), " change, fewer than five runs\n"),
        (("2f6b", "--against", "last-success"), "No earlier success of nightly-etl in"),
    ],
)
def test_a_successful_run_is_compared_only_if_asked(
    words: tuple[str, ...], expected: str, file: Path, cli: Cli
) -> None:
    assert expected in cli("show", *words, "--from", str(file)).out
    assert "Compared" not in cli("show", "158d", "--from", str(file)).out


def test_each_container_of_a_task_with_a_report_is_shown(file: Path, cli: Cli) -> None:
    """Neither is chosen by the order of the lines."""
    batch = etl(containers=(OtherContainer(name="side"), OtherContainer(name="task-monitor")))
    side = etl(container=Container(name="side"), containers=(OtherContainer(name="batch"),))
    file.write_bytes(record_lines([side, batch]))
    both = cli("show", "158d", "--from", str(file)).out
    assert both.count("container side") == 1
    assert both.count("container batch") == 1
    assert len(cli("show", "nightly-etl", "--json", "--from", str(file)).out.splitlines()) == 2
    alone = cli("show", "158d1c8044f24c1d9d1b0f7c3f1e8a90/side", "--from", str(file)).out
    assert "container side" in alone
    assert "container batch" not in alone
