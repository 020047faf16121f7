"""The end of ``run``: its lines for each kind of run, on terminals of each width; the lines of
change and of advice.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.cli.terminal.end_page import (
    MAX_LINES,
    EndView,
    end_page_lines,
    one_line_end,
    printed_summary,
)
from profiler.cli.terminal.next_step import next_step
from profiler.cli.terminal.page_parts import MAX_WIDTH, View
from profiler.cli.terminal.run_curves import run_curves
from profiler.cli.terminal.run_page import page_lines
from profiler.cli.terminal.show_comparison import change_spans
from profiler.core.text import columns_of
from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown, WaitTarget
from profiler.record.hardware import UNREAD_GPU
from profiler.record.record_model import (
    NO_RECOMMENDATION,
    AverageAndMaximum,
    Container,
    Distribution,
    Metrics,
    Monitor,
    Processor,
    Recommendation,
    Record,
    Report,
    Sampling,
    Series,
    TaskSize,
    Visible,
    decode,
)
from profiler.record.run_usage import run_usage_of
from profiler.runs.past_runs.past_run import PastRun
from tests import shown_runs
from tests.cases import each_case
from tests.changed_records import changed_lines
from tests.runs import reported_story
from tests.shown_runs import NOW_NS, STARTED
from tests.terminals import texts
from tests.values import present

TIMES = TimeBreakdown(
    on_cpu_percent=61,
    waiting_for_cpu_percent=4,
    disk_percent=20,
    network_percent=15,
    waiting_for=(
        WaitTarget(kind="disk", target="/data/orders.parquet", percent=18.2),
        WaitTarget(kind="network", target="10.0.0.3:5432", percent=14.6),
    ),
    covered_percent=100,
)
METRICS = Metrics(
    duration_ms=12_430,
    cpu_seconds=14.9,
    vcpu_size=2,
    memory_size_mb=4096,
    max_memory_used_mb=1843,
    memory_peak_source="kernel",
    vcpu_used=Distribution(avg=1.2, p95=1.9, max=2),
    vcpu_saturated_percent=12,
    max_pids=9,
    block_read_bytes=300 * 2**20,
    block_write_bytes=0,
)
SERIES = Series(
    started_at=STARTED,
    step_ms=1000,
    vcpu_used=(0.2, 0.8, 1.5, 2.0, 1.9, 0.4),
    memory_used_mb=(90, 500, 900, 1300, 1700, 1800),
)


def etl(metrics: dict[str, Any] | None = None, **record: Any) -> Report:
    made: dict[str, Any] = {
        "task_id": "3f2a91bc-7055-4303-90e2-819175188d64",
        "family": "etl",
        "launch_type": "LOCAL",
        "container": Container(name="etl"),
        "status": "success",
        "exit_code": 0,
        "started_at": STARTED,
        "finished_at": "2026-11-20T03:12:57.430Z",
        "metrics": replace(METRICS, **(metrics or {})),
        "time_breakdown": TIMES,
        "series": SERIES,
        "monitor": Monitor(version="1"),
        "recommendation": Recommendation(vcpu=2, memory_mb=2560),
    }
    return Report(
        time="2026-11-20T03:12:57.431Z", type="task.report", record=Record(**{**made, **record})
    )


def last(**metrics: Any) -> Record:
    return etl(metrics, finished_at="2026-11-20T07:10:00.000Z").record


def shown(
    report: Report,
    other: Record | None = None,
    *,
    width: int = 80,
    max_lines: int = 8,
    history: Sequence[str] | None = (),
) -> list[str]:
    view = EndView(width=width, now_ns=NOW_NS, max_lines=max_lines, history=history)
    return texts(end_page_lines(report, () if other is None else (other,) * 5, view))


def test_the_end_of_a_run() -> None:
    assert shown(etl(), last(duration_ms=10_100, max_memory_used_mb=1300)) == [
        "● etl succeeded in 12.4 s · 14.9 s of CPU time       task-profiler show 3f2a91bc",
        "  CPU     ▂▂▂▂▂▄▄▄▄▆▆▆▆▆█████████▂▂▂▂ ▔ limit 2 vCPU, average 1.2",
        "  Memory  ▁▁▁▁▁▂▂▂▂▃▃▃▃▃▃▃▃▃▄▄▄▄▄▄▄▄▄ ▔ limit 4 GB, peak 1.8 GB (45 %)",
        "  Time    ████████████████▓▓▒▒▒▒▒░░░░ █ on CPU 61 %  ▒ disk 20 %  ░ network 15 %",
        "  waits   18 % /data/orders.parquet (disk) · 15 % 10.0.0.3:5432 (network)",
        "  I/O     read 300 MB, wrote 0 MB",
        "  change  duration +23 %, memory +42 % since the last success 2 h ago",
        "  advice  2 vCPU, 2.5 GB would have been enough (task-profiler recommend etl).",
    ]


def test_the_end_and_show_draw_the_same_curves() -> None:
    series = Series(
        started_at=STARTED,
        step_ms=1000,
        vcpu_used=(0.002, 0.01, 0.004),
        memory_used_mb=(90, 301, 250),
    )
    report = etl({"max_memory_used_mb": 418}, series=series)
    ended = [row for row in shown(report, width=120) if "▔" in row]
    assert [row[row.index("▔") :].partition(",")[0] for row in ended] == [
        "▔ 0.1 of 2 vCPU",
        "▔ peak 418 MB",
    ]
    view = View(width=120, now_ns=NOW_NS)
    read = [row for row in texts(page_lines(PastRun(report=report), view, series)) if "▔" in row]
    curves = [row[11 : row.index("▔")].strip() for row in (*ended, *read)]
    levels = [
        "".join(level for level, _ in groupby(curve)) for curve in curves
    ]  # the widths differ
    assert levels[:2] == levels[2:]


def test_the_peak_is_not_raised_by_rounding_nor_hidden_by_a_flat_curve() -> None:
    flat = replace(SERIES, memory_used_mb=(7.2,) * 6)
    (memory,) = [
        row for row in shown(etl({"max_memory_used_mb": 308}, series=flat)) if "Memory" in row
    ]
    assert memory == "  Memory  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ ▔ peak 308 MB, 8 % of 4 GB"
    for value, top in ((8.15, "8.1 MB"), (8.3, "8.3 MB")):
        curve = run_curves(
            run_usage_of(etl({"max_memory_used_mb": 8.148}).record),
            replace(SERIES, memory_used_mb=(value,)),
        )[1]
        assert curve.limit_text == f"▔ {top} of 4 GB"


def test_the_top_of_a_curve_is_the_peak_with_its_mark() -> None:
    sampled = {"max_memory_used_mb": 308, "memory_peak_source": "sampled"}
    for highest, top in ((308, "≥308 MB"), (7.2, "≥308 MB"), (340, "340 MB")):
        series = replace(SERIES, memory_used_mb=(highest,) * 6)
        curve = run_curves(run_usage_of(etl(sampled).record), series)[1]
        assert curve.limit_text == f"▔ {top} of 4 GB"


def test_a_narrow_terminal_gets_shorter_texts_and_less_of_them() -> None:
    assert shown(etl(), last(duration_ms=10_100), width=40, max_lines=7) == [
        "● etl succeeded in 12.4 s",
        "  CPU     ▂▂▄▄▆▆████▂▂ ▔ limit 2 vCPU",
        "  Memory  ▁▁▂▂▃▃▃▃▄▄▄▄ ▔ 4 GB, peak 45 %",
        "  Time    ███████▓▒▒░░ █ on CPU 61 %",
        "  advice  2 vCPU, 2.5 GB would have been",
        "          enough (task-profiler",
        "          recommend etl).",
    ]


def test_a_run_without_a_sample_has_no_empty_rows() -> None:
    metrics = {
        "duration_ms": 3.2,
        "cpu_seconds": 0.001,
        "max_memory_used_mb": 1.24,
        "block_read_bytes": 0,
    }
    true = etl(metrics, series=None, time_breakdown=NO_BREAKDOWN, recommendation=NO_RECOMMENDATION)
    assert shown(true) == [
        "● etl succeeded in 3 ms · memory peak 1.2 MB of 4 GB · 1 ms of CPU time"
    ]
    partial = etl(
        metrics, series=None, sampling=Sampling(cpu_covered_percent=80), time_breakdown=NO_BREAKDOWN
    )
    assert shown(partial)[0].endswith(" · ≥1 ms of CPU time")
    assert shown(true, width=50) == ["● etl succeeded in 3 ms · memory peak 1.2 MB"]
    assert shown(true, width=40) == ["● etl succeeded in 3 ms"]
    assert shown(etl(series=None, time_breakdown=NO_BREAKDOWN, metrics={"duration_ms": None}))[
        0
    ].startswith("● etl succeeded")


def test_the_verdict_and_how_it_is_known() -> None:
    failed = shown(etl(status="failure", exit_code=3))
    assert failed[0].startswith("● etl failed with exit code 3 after 12.4 s · 14.9 s of CPU time")
    assert failed[1].startswith("  CPU")
    stopped = shown(etl(status="stopped", exit_code=130), max_lines=7)
    assert stopped[0].startswith("● etl was stopped after 12.4 s")
    assert stopped[1] == "  A signal asked it to stop, and it ended with exit code 130 (SIGINT)."
    killed = shown(etl(status="failure", exit_code=137, likely_out_of_memory=False), max_lines=7)
    assert killed[1] == "  The memory limit was not reached: at most 45 % of 4 GB was used."
    assert max(len(stopped), len(killed)) <= 7


def test_the_commands_for_more_name_the_history() -> None:
    assert "task-profiler" not in "".join(shown(etl(), history=None))
    assert (
        shown(etl(status="failure", exit_code=143))[-1] == "  more    task-profiler show 3f2a91bc"
    )
    other = shown(etl(), history=("--history", "my runs.sqlite3"))
    assert other[-1] == "  more    task-profiler show 3f2a91bc --history 'my runs.sqlite3'"


@pytest.mark.usefixtures("los_angeles")
def test_a_warning_is_shown_with_local_times_and_the_others_are_counted() -> None:
    lines = shown(
        etl(monitor=Monitor(warnings=("1 process was still running.", "Another."))), max_lines=7
    )
    assert "  warning 1 process was still running. (and 1 more)" in lines
    assert not [row for row in lines if "I/O" in row]
    lines = shown(etl(monitor=Monitor(warnings=("The GPU was lost at 2026-11-20T03:12:50.000Z.",))))
    assert "  warning The GPU was lost at 2026-11-19 19:12." in lines


def test_a_gpu_that_is_not_read_has_a_line_of_its_own() -> None:
    """On a busy machine it was the "1 more" of another warning."""
    warnings = ("1 process was still running.", "Another.", UNREAD_GPU)
    lines = shown(etl(monitor=Monitor(warnings=warnings), time_breakdown=TIMES))
    assert f"  warning {UNREAD_GPU}" in lines
    assert len(f"  warning {UNREAD_GPU}") <= 80
    assert "  warning 1 process was still running. (and 1 more)" in lines
    lines = shown(etl(monitor=Monitor(warnings=(UNREAD_GPU,))))
    assert [row for row in lines if "warning" in row] == [f"  warning {UNREAD_GPU}"]


def test_a_long_warning_is_one_line_and_the_time_stays() -> None:
    """A job with short children warns each time, and lost the line that says where time went."""
    warnings = ("The CPU time of each process is a lower bound. " * 4, "Another.")
    lines = shown(etl(monitor=Monitor(warnings=warnings), time_breakdown=TIMES), max_lines=7)
    warned = [row for row in lines if "warning" in row]
    assert len(warned) == 1
    assert warned[0].endswith("… (and 1 more)")
    assert [row for row in lines if row.startswith("  Time")]
    assert len(lines) <= 7


@given(changed_lines(), st.integers(40, MAX_WIDTH), st.sampled_from([None, last()]))
def test_any_record_fits_the_terminal(line: bytes, width: int, other: Record | None) -> None:
    try:
        report = decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    lines = shown(report, other, width=width)
    assert 1 <= len(lines) <= MAX_LINES
    lines += texts([one_line_end(report, EndView(width=width, now_ns=NOW_NS))])
    assert max(map(columns_of, lines)) <= width


def test_one_of_several_runs_is_a_line() -> None:
    view = EndView(width=80, now_ns=NOW_NS)
    drawn, alone = texts(
        [one_line_end(etl(), view), one_line_end(etl(), replace(view, history=None))]
    )
    assert drawn.split("  ")[0] == "● etl succeeded in 12.4 s · memory peak 1.8 GB"
    assert drawn.endswith("  task-profiler show 3f2a91bc")
    assert len(drawn) == 80
    assert "task-profiler" not in alone


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            ((400, 18), (390, 17), (500, 16)),
            (
                "Median of 3 runs: 400 ms (390 to 500 ms), memory peak 17 MB (16 to 18 MB), CPU "
                "time 17 ms (16 to 18 ms)."
            ),
        ),
        (
            ((300, 5), (302, 5)),
            "Median of 2 runs: 301 ms (300 to 302 ms), memory peak 5 MB, CPU time 5 ms.",
        ),
        (((1000, None), (1000, None)), "Median of 2 runs: 1.0 s."),
        (((300, 5),), ""),
        (((None, None), (None, None)), ""),
    ],
)
def test_several_runs_have_a_median_and_a_range(values: Any, sentence: str) -> None:
    successes = [
        Metrics(duration_ms=ms, max_memory_used_mb=mb, cpu_seconds=mb and mb / 1000)
        for ms, mb in values
    ]
    lines = printed_summary(successes, is_file=True).decode().split("\n")
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).strip() == sentence


@each_case("width", [40, 80, 120])
@each_case("name", ["a\x1b[31m\nb", "日本語ジョブ", "ジョブ" * 40, "\u200d" * 9])
def test_wide_and_escaped_names_fit_the_terminal(name: str, width: int) -> None:
    assert max(map(columns_of, shown(etl(family=name), width=width))) <= width
    assert shown(etl(family="夜間バッチ🚀"), width=40)[0] == "● 夜間バッチ🚀 succeeded in 12.4 s"


NOTHING = "nothing notable since the last success 2 h ago"


def text(record: Record, earlier: Sequence[Record], width: int = 110, now_ns: int = NOW_NS) -> str:
    return "".join(span.text for span in change_spans(record, earlier, now_ns, width))


def changes(record: dict[str, Any], last_metrics: dict[str, Any], width: int = 110) -> str:
    return text(etl(**record).record, [last(**last_metrics)] * 5, width)


@pytest.mark.parametrize(
    ("last_metrics", "expected"),
    [
        ({}, NOTHING),
        (
            {"max_memory_used_mb": 1500},
            "memory +23 % (1.5 GB → 1.8 GB) since the last success 2 h ago",
        ),
        ({"max_memory_used_mb": 1500, "memory_peak_source": "sampled"}, NOTHING),
        ({"cpu_seconds": 29.8}, "CPU time -50 % (29.8 s → 14.9 s) since the last success 2 h ago"),
        ({"duration_ms": 100}, "duration 124× (100 ms → 12.4 s) since the last success 2 h ago"),
        ({"duration_ms": None, "cpu_seconds": 0}, NOTHING),
    ],
)
def test_only_what_changed_by_5_percent_is_said(
    last_metrics: dict[str, Any], expected: str
) -> None:
    assert changes({}, last_metrics) == expected


def test_milliseconds_of_a_short_run_are_noise() -> None:
    short = {"duration_ms": 12, "cpu_seconds": 0.004}
    assert changes({"metrics": short}, {"duration_ms": 4, "cpu_seconds": 0.001}) == ""
    assert "duration" not in changes(
        {"metrics": {"duration_ms": 340}}, {"duration_ms": 300, "cpu_seconds": 1}
    )


def test_a_narrow_terminal_loses_the_values_before_the_changes() -> None:
    faster = {"duration_ms": 24_000, "max_memory_used_mb": 900}
    assert changes({}, faster, 70) == "duration -48 %, memory +105 % since the last success 2 h ago"
    assert changes({}, faster, 30) == "duration -48 %"
    assert changes({}, faster, 5) == ""


def test_a_run_that_failed_is_not_compared_but_the_last_success_is_named() -> None:
    failed = {"status": "failure", "exit_code": 3}
    assert changes(failed, {}) == "the last success 2 h ago took 12.4 s and 1.8 GB of memory"
    assert changes(failed, {"duration_ms": None}) == ""


def test_files_in_memory_are_said_at_the_end() -> None:
    apart = {"memory_mapped_file_mb": AverageAndMaximum(avg=500, max=1300)}
    sentence = (
        "it also keeps up to 1.3 GB of its files in memory (with less memory it reads them again)"
    )
    assert sentence in " ".join(" ".join(shown(etl(metrics=apart), width=120)).split())
    assert "files in memory" not in " ".join(shown(etl(), width=120))


def test_huge_pages_are_said_at_the_end() -> None:
    pages = {"memory_huge_pages_mb": AverageAndMaximum(avg=200, max=300)}
    sentence = "it also holds up to 300 MB of huge pages, which the memory used lacks"
    assert sentence in " ".join(" ".join(shown(etl(metrics=pages), width=120)).split())


def test_memory_that_may_include_mapped_files_is_not_compared() -> None:
    """After an update, 500 MB less is no improvement."""
    apart = {"memory_mapped_file_mb": AverageAndMaximum(avg=500, max=1300)}
    newer = etl(metrics={**apart, "max_memory_used_mb": 500}).record
    assert text(newer, [last()] * 5) == NOTHING
    assert text(newer, [newer] * 5).startswith("nothing notable")
    failed = replace(newer, status="failure", exit_code=3)
    assert text(failed, [last()] * 5) == "the last success 2 h ago took 12.4 s"


def test_another_processor_is_named() -> None:
    own, other = (etl(processor=Processor(model=model)).record for model in ("7R13", "8259CL"))
    assert text(own, [other] * 5).endswith("5 h ago on another processor")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, ""),
        (1, " 1 s ago"),
        (119, " 119 s ago"),
        (120, " 2 min ago"),
        (7200, " 2 h ago"),
        (200_000, " 2 days ago"),
    ],
)
def test_how_long_ago_the_last_success_ended(seconds: int, expected: str) -> None:
    now_ns = NOW_NS - 2 * 3600 * 10**9 + (seconds + 8) * 10**9  # 07:10 is 2 h 2 min 45 s before NOW
    other = replace(last(), finished_at="2026-11-20T07:12:53.000Z")
    assert text(etl().record, [other] * 5, now_ns=now_ns).endswith(f"success{expected}")


def test_a_change_since_fewer_than_five_runs_has_no_verdict() -> None:
    """Its colour would be one."""
    own, one = etl().record, last(duration_ms=10_000)
    since = "duration +24 % (10.0 s → 12.4 s) since the last success 2 h ago"
    assert text(own, [one] * 4) == f"{since} (fewer than five runs)"
    assert [change_spans(own, [one] * runs, NOW_NS, 110)[1].style for runs in (4, 5)] == [
        "",
        "yellow",
    ]
    assert (
        text(own, [last()])
        == "nothing notable since the last success 2 h ago (fewer than five runs)"
    )
    assert text(own, [one] * 5) == since


RECOMMEND = "task-profiler recommend etl"
ENOUGH = f"2 vCPU, 2.5 GB would have been enough ({RECOMMEND})."
ONE_CPU = Distribution(avg=0.98, p95=1.0, max=1.2)
SATURATED, SATURATION = (
    {"vcpu_saturated_percent": 80.0},
    "it used all of its CPU (2 vCPU) for 80 % of the time",
)
WAITED = {"cpu_wait_percent": 30.0, "cpu_wait_seconds": 6.0}
WAIT = "its threads waited 6.0 s in total for a CPU"


def advice(metrics: dict[str, Any] | None = None, **record: Any) -> str:
    ended = etl(metrics, **record).record
    return next_step(ended, reported_story(ended), RECOMMEND)


@each_case(
    ("metrics", "expected"),
    [
        ({}, ENOUGH),
        (
            {"max_memory_used_mb": 4000},
            "only 96 MB of memory was left: a run that needs 3 % more would be killed.",
        ),
        (
            {"max_memory_used_mb": 4000, "memory_peak_source": "sampled"},
            "at most 96 MB of memory was left: a run that needs 3 % more would be killed.",
        ),
        (
            {"max_memory_used_mb": 4096},
            "no memory was left: a run that needs more would be killed.",
        ),
        (SATURATED, f"{SATURATION}: with 4 vCPU it would take 0.6 to 1× as long."),
        (
            SATURATED | {"max_pids": 2},
            f"{SATURATION}, but with at most 2 threads: more CPUs would hardly help.",
        ),
        (WAITED, f"{WAIT}: up to 9 threads shared 2 vCPU."),
        (
            WAITED | {"cpu_seconds": 0.37},  # 8 threads that waited for it had waited 3 s
            f"{WAIT}: it shares its CPU with others, or its threads run in short bursts.",
        ),
        # A limit of a quarter of a CPU lets no thread run for three quarters of the time.
        (
            WAITED | {"vcpu_size": 0.25, "max_pids": 1, "cpu_seconds": 2},
            f"{WAIT}: up to 1 thread had 0.25 vCPU.",
        ),
        (
            WAITED | {"vcpu_size": 0.25, "max_pids": 2, "cpu_seconds": 0.86},
            f"{WAIT}: up to 2 threads shared 0.25 vCPU.",
        ),
        (
            WAITED | {"max_pids": 2},
            f"{WAIT}: it shares its CPU with others, or its threads run in short bursts.",
        ),
        (
            {"vcpu_used": ONE_CPU},
            "it kept one of 2 CPUs busy: more CPUs help only if it works in parallel.",
        ),
        ({"vcpu_used": replace(ONE_CPU, p95=1.9, max=2)}, ENOUGH),
        ({"duration_ms": 999}, ""),
    ],
)
def test_the_advice_follows_from_the_numbers(metrics: dict[str, Any], expected: str) -> None:
    assert advice(metrics) == expected


def test_a_machines_memory_was_not_all_for_the_run_and_may_be_swapped() -> None:
    machine = Visible(memory_mb=4096)
    assert advice({"max_memory_used_mb": 4000}, visible=machine) == (
        "at most 96 MB of memory was left: a run that needs 3 % more would not fit."
    )


def test_out_of_memory_comes_first_whatever_the_end() -> None:
    text = "give it more memory than 4 GB or process less data at a time."
    assert advice({"vcpu_saturated_percent": 90.0}, likely_out_of_memory=True) == text
    unsized = advice(
        {"memory_size_mb": None},
        likely_out_of_memory=True,
        status="failure",
        recommendation=NO_RECOMMENDATION,
    )
    assert unsized == text.replace(" than 4 GB", "")
    sized = advice(
        likely_out_of_memory=True,
        status="failure",
        recommendation=Recommendation(vcpu=1, memory_mb=5120),
    )
    assert sized == f"give it 5 GB of memory ({RECOMMEND}) or process less data at a time."


def test_a_long_wait_is_named_unless_its_kind_is_unknown() -> None:
    database = WaitTarget(kind="network", target="db:5432", percent=55)
    unknown = WaitTarget(kind="other", target="other", percent=60)
    sentence = (
        "56 % of the time it waited for the network, 55 % for db:5432: more CPU or memory would not "
        "help there."
    )
    times = TimeBreakdown(network_percent=56, other_percent=40, waiting_for=(unknown, database))
    assert advice(time_breakdown=times) == sentence
    assert advice(time_breakdown=TimeBreakdown(other_percent=96, waiting_for=(unknown,))) == ENOUGH


@pytest.mark.parametrize(
    ("network_percent", "cpu_percent", "begins"),
    [(60, 30, "60 % of the time it waited for the network"), (31, 60, WAIT)],
)
def test_the_advice_comes_from_the_largest_part_of_the_time(
    network_percent: float, cpu_percent: float, begins: str
) -> None:
    """A network job that also waits for a CPU is a network job."""
    times = TimeBreakdown(
        on_cpu_percent=5, network_percent=network_percent, waiting_for_cpu_percent=cpu_percent
    )
    assert (advice(WAITED, time_breakdown=times) or "").startswith(begins)


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        (1.5, "other programs used 1.5 of the machine's 4 CPUs"),
        (0.02, "its threads run in short bursts, or are held at a CPU limit"),
        (None, "it shares its CPU with others, or its threads run in short bursts"),
    ],
)
def test_what_others_used_of_the_machine_is_measured_or_not_said(
    others: float | None, reason: str
) -> None:
    processor = Processor(count=4, others_vcpu_used=others)
    assert advice(WAITED | {"max_pids": 2}, processor=processor) == f"{WAIT}: {reason}."


def test_threads_that_shared_the_cpus_are_named_with_what_others_used() -> None:
    processor = Processor(count=4, others_vcpu_used=1.5)
    assert advice(WAITED, processor=processor) == (
        f"{WAIT}: up to 9 threads shared 2 vCPU, and other programs used 1.5 of the machine's 4 "
        "CPUs."
    )


@pytest.mark.parametrize(
    ("lock", "named"),
    [
        (53, "53 % of the time it waited for a lock:"),
        (45, "46 % of the time it waited for the network, 46 % for db:5432"),
    ],
)
def test_a_target_is_not_named_beside_a_longer_wait_without_one(lock: float, named: str) -> None:
    waits = (WaitTarget(kind="network", target="db:5432", percent=46),)
    times = TimeBreakdown(
        on_cpu_percent=1, network_percent=46, lock_percent=lock, waiting_for=waits
    )
    assert (advice(time_breakdown=times) or "").startswith(named)


def test_a_failed_run_and_a_task_with_a_size_get_no_size() -> None:
    assert advice(status="failure", exit_code=1) == ""
    assert advice(task_size=TaskSize(vcpu=2, memory_mb=4096)) == ""
    assert advice(recommendation=NO_RECOMMENDATION) == ""


def test_a_run_on_neuron_cores_without_their_curve_names_them_beside_its_verdict() -> None:
    one = shown_runs.neuron()
    curves = present(one.record.series)
    without = replace(curves, neuron_utilization_percent=None)
    view = EndView(width=200, now_ns=NOW_NS)

    def head(series: Series | None) -> str:
        report = replace(one, record=replace(one.record, series=series))
        return texts(end_page_lines(report, (), view))[0]

    assert "2 NeuronCores 45 %, 6.8 GB of 16 GB" in head(without)
    assert "2 NeuronCores 45 %, 6.8 GB of 16 GB" in head(None)
    assert "NeuronCores" not in head(curves)
    shown = one_line_end(one, view)
    assert "2 NeuronCores 45 %" in "".join(span.text for span in shown)


def test_gpus_and_neuron_cores_of_one_run_are_both_beside_its_verdict() -> None:
    cores, gpus = shown_runs.neuron(), shown_runs.gpu()
    curves = present(cores.record.series)
    undrawn = replace(curves, neuron_utilization_percent=None)

    def head(series: Series | None, width: int = 200) -> str:
        record = replace(cores.record, gpus=gpus.record.gpus, series=series)
        view = EndView(width=width, now_ns=NOW_NS)
        return texts(end_page_lines(replace(cores, record=record), (), view))[0]

    assert "GPUs" in head(None)
    assert "2 NeuronCores 45 %, 6.8 GB of 16 GB" in head(None)
    for width in range(70, 200, 10):
        shown = head(undrawn, width)
        assert "NeuronCore" not in shown or "GPU" in shown, "the longer kind has taken the room"
    gpu_undrawn = head(curves)
    assert "GPUs" in gpu_undrawn
    assert "NeuronCores" not in gpu_undrawn, "their curve is drawn"
