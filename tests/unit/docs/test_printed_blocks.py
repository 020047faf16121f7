"""Each block of the documentation that shows what a command prints is what it prints.

A run is made of the numbers and curves of its block. Where a block's numbers come from several
runs, other numbers do as well: its words and rows are those of the command.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.cli.app import group
from profiler.cli.terminal.end_page import MAX_LINES, EndView, end_page_lines, printed_summary
from profiler.core.timestamps import NS_PER_DAY, NS_PER_SECOND, format_ms
from profiler.forwarder.morning_digest import DigestPlace, NightSaving, summarize_night
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import (
    EarlierRun,
    FailedRun,
    FamilyHistory,
    MissedTimes,
    NightRuns,
)
from profiler.forwarder.notifications.slack_messages import slack_message_of
from profiler.local_run.local_record import _WRITES_ARE_UNSURE
from profiler.local_run.run_budgets import failed_budgets
from profiler.record.activity_model import (
    StackMoment,
    Stacks,
    TimeBreakdown,
    WaitTarget,
)
from profiler.record.batch_job import BatchJob
from profiler.record.family_statistics import HighestPeak
from profiler.record.measured import Exactly
from profiler.record.memory_news import MemoryNow, memory_news_text
from profiler.record.record_model import (
    Container,
    Distribution,
    Metrics,
    Monitor,
    Processor,
    Record,
    Report,
    Series,
)
from profiler.record.run_outcome import OUT_OF_MEMORY
from profiler.record.stop_causes import outcome_of
from profiler.record.units import MIB
from tests.documentation import blocks, is_shortened, pages
from tests.fakes import START_NS
from tests.runs import lines, report, slowdown
from tests.shown_runs import out_of_memory
from tests.terminals import texts

LEVELS = "▁▂▃▄▅▆▇█"
MACHINE_MB = 23.5 * 1024
# Where each block is compared, by its page and a text of it.
HERE = "here"
COMPARED = {
    ("README.md", "words succeeded"): HERE,
    ("docs/after-a-bad-night.md", "task-profiler show"): "test_docs.py",
    ("docs/after-a-bad-night.md", "filter type"): "test_docs.py",
    ("docs/aws-batch.md", "Less is enough"): HERE,
    ("docs/dashboards.md", "installed: "): "tests/integration/test_kibana_import.py",
    ("docs/notifications.md", "Out of memory after"): "test_docs.py",
    ("docs/notifications.md", "above everything"): HERE,
    ("docs/notifications.md", "Since yesterday"): HERE,
    ("docs/past-runs.md", "task-profiler history"): "test_docs.py",
    ("docs/right-size.md", "task-profiler recommend"): "test_docs.py",
    ("docs/run.md", "nightly-etl succeeded"): HERE,
    ("docs/run.md", "Median of"): HERE,
    ("docs/run.md", "Verdict"): HERE,
    ("docs/run.md", "Recommended"): HERE,
    ("docs/tutorial.md", "1 image"): "tests/contract/test_docs_commands.py",
    ("docs/why-slow.md", "task-profiler show"): HERE,
}


def test_every_block_of_printed_text_is_compared() -> None:
    found = []
    for page in pages():
        for block in blocks(page, "text", "console"):
            found += [key for key in COMPARED if key[0] == str(page) and key[1] in block.text] or [
                (str(page), block.text)
            ]
    assert sorted(found) == sorted(COMPARED)


def printed(page: str, mark: str) -> str:
    """The block's text, without the command that printed it."""
    assert COMPARED[page, mark] == HERE
    (block,) = (one for one in blocks(Path(page), "text", "console") if mark in one.text)
    return re.sub(r"\A\$ .*\n", "", block.text)


def words_of(text: str) -> str:
    """The text with each number as 0, and without what the numbers decide: signs and columns."""
    rows = [re.sub(r" {2,}", "  ", row.strip()) for row in text.splitlines()]
    return "".join(f"{re.sub(r'[+-]?[0-9][0-9.,]*', '0', row)}\n" for row in rows)


def curve(text: str, label: str, top: float) -> tuple[float, ...]:
    """Values of which the curve of the text with this label is drawn."""
    (levels,) = re.findall(rf"^ +{label} +([{LEVELS}]+) ▔", text, re.MULTILINE)
    return tuple((LEVELS.index(level) + 0.5) * top / len(LEVELS) for level in levels)


def local_run(text: str, family: str, *, peak_mb: float, **metrics: Any) -> Report:
    """A run of two CPUs on a laptop that was always on CPU, with the curves of the text."""
    known: dict[str, Any] = {
        "vcpu_size": 2,
        "memory_size_mb": MACHINE_MB,
        "max_memory_used_mb": peak_mb,
        "memory_peak_source": "kernel",
        "vcpu_used": Distribution(avg=1.0, p95=1.0, max=1.0),
    }
    started_at = format_ms(START_NS)
    series = Series(
        started_at=started_at,
        step_ms=30,
        vcpu_used=curve(text, "CPU", 2),
        memory_used_mb=curve(text, "Memory", peak_mb),
    )
    record = Record(
        task_id="0259b5bc",
        family=family,
        launch_type="LOCAL",
        container=Container(name=family),
        status="success",
        exit_code=0,
        started_at=started_at,
        finished_at=format_ms(START_NS + 2 * NS_PER_SECOND),
        metrics=Metrics(**(known | metrics)),
        time_breakdown=TimeBreakdown(on_cpu_percent=100, covered_percent=100),
        series=series,
    )
    return Report(time=started_at, type="task.report", record=record)


def end_of(made: Report, *earlier: Record) -> str:
    """What ``run`` prints a second after the end of the last run."""
    view = EndView(width=80, max_lines=MAX_LINES - 1, now_ns=START_NS + 3 * NS_PER_SECOND)
    return "".join(f"{row}\n" for row in texts(end_page_lines(made, earlier, view)))


def test_the_end_of_the_readmes_run() -> None:
    text = printed("README.md", "words succeeded")
    made = local_run(text, "words", peak_mb=572, duration_ms=1300, cpu_seconds=1.3)
    assert end_of(made, made.record) == text


def test_the_end_of_the_first_run() -> None:
    """Of a user without a control group."""
    text = printed("docs/run.md", "nightly-etl succeeded")
    made = local_run(
        text,
        "nightly-etl",
        peak_mb=81,
        duration_ms=2600,
        cpu_seconds=2.5,
        vcpu_used=Distribution(avg=0.99, p95=1.0, max=1.0),
        block_write_bytes=37 * MIB,
    )
    warned = replace(made.record, monitor=Monitor(warnings=(_WRITES_ARE_UNSURE,)))
    assert end_of(replace(made, record=warned)) == text


def test_the_median_of_several_runs_and_a_budget() -> None:
    text = printed("docs/run.md", "Median of")
    runs = [
        Metrics(duration_ms=duration_ms, max_memory_used_mb=41, cpu_seconds=1.1)
        for duration_ms in (948, *(1300,) * 8, 1800)
    ]
    (sentence,) = failed_budgets(
        [Metrics(duration_ms=1300, cpu_seconds=1.1, max_memory_used_mb=61)],
        memory_mb=40,
        duration_ms=600_000,
        cpu_seconds=60,
        memory_bounds_mb=(None,),
    )
    summary = printed_summary(runs, is_file=True).decode()
    assert f"{summary.lstrip()}task-profiler: {sentence}\n" == text


def of_revision(family: str, number: int, cpu_seconds: float, peak_mb: float) -> Report:
    """A run of one of two revisions of a program on a quiet laptop, within a minute of the others."""
    share = 1 + (number % 3 - 1) / 100
    started_ns = START_NS + 2 * number * NS_PER_SECOND
    return report(
        number,
        task_id=f"{family}-{number}",
        family=family,
        launch_type="LOCAL",
        started_at=format_ms(started_ns),
        finished_at=format_ms(started_ns + NS_PER_SECOND),
        region=None,
        size=None,
        peak_mb=peak_mb,
        p95=0.99,
        metrics={
            "memory_peak_source": "kernel",
            "duration_ms": 1000,
            "billed_duration_ms": None,
            "cpu_seconds": cpu_seconds * share,
            "vcpu_size": 2,
            "memory_size_mb": MACHINE_MB,
            "slowdown_at_vcpu": slowdown(v0_25=(3.8, 3.9), v0_5=(1.92, 1.96), v1=(1.0, 1.0)),
        },
    )


Said = Callable[[str, Iterable[Report]], str]


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Said:
    """What a command prints about runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def run(command: str, reports: Iterable[Report]) -> str:
        Path("runs.jsonl").write_bytes(lines(reports))
        group.main([*command.split(), "--from", "runs.jsonl"], standalone_mode=False)
        return "".join(capfd.readouterr())

    return run


RUNS = [
    *(of_revision("base", number, 0.922, 41) for number in range(10)),
    *(of_revision("new", number, 0.954, 49) for number in range(10, 20)),
]


@pytest.mark.parametrize(
    ("mark", "command"),
    [
        (
            "Verdict",
            "compare base new --metric cpuSeconds --metric maxMemoryUsedMB --fail-above 10%",
        ),
        ("Recommended", "recommend base --on-fargate us-east-1"),
    ],
)
def test_what_is_said_of_two_revisions(mark: str, command: str, said: Said) -> None:
    shown = words_of(printed("docs/run.md", mark))
    assert is_shortened(shown, words_of(said(command, RUNS)))


def job_runs(name: str, size: tuple[float, float], vcpu: float, peak_mb: float) -> list[Report]:
    """Runs of jobs of AWS Batch on EC2."""
    return [
        report(
            number,
            family=name,
            task_id=f"{name}-{number}",
            launch_type="EC2",
            size=size,
            p95=vcpu,
            peak_mb=peak_mb,
            batch=BatchJob(job_id=f"{name}-{number}", job_definition=name, attempt=1),
        )
        for number in range(30)
    ]


def test_the_advice_for_jobs(said: Said) -> None:
    shown = printed("docs/aws-batch.md", "Less is enough")
    small, large = ("FASTQC", (2, 4096), 1.7, 1450), ("STAR_ALIGN", (4, 65_536), 3.2, 40_000)
    assert is_shortened(shown, said("recommend", [*job_runs(*small), *job_runs(*large)]))


def test_the_configuration_of_an_engine(said: Said) -> None:
    (block,) = blocks(Path("docs/right-size.md"), "groovy")
    runs = job_runs("STAR_ALIGN", (4, 65_536), 3.2, 26_050)
    assert said("recommend --format nextflow", runs) == block.text


def test_the_sentence_of_a_run_above_everything() -> None:
    now = MemoryNow(used_mb=3318, size_mb=4096, minutes_left=6.0)
    peak = HighestPeak(peak_mb=2540, runs=40)
    said = memory_news_text(now, peak)
    assert f"{said}.\n" == printed("docs/notifications.md", "above everything")


def test_the_run_that_waited(said: Said) -> None:
    def at(seconds: float) -> str:
        return format_ms(START_NS + round(seconds * NS_PER_SECOND))

    whole = ("<module> (nightly.py:31)", "main (nightly.py:24)")
    loads = (*whole, "load_orders (nightly.py:9)", "SocketIO.readinto (socket.py:706)")
    builds = (*whole, "build_index (nightly.py:15)", "checksum (nightly.py:12)")
    made = report(
        family="nightly-etl",
        launch_type="LOCAL",
        region=None,
        size=None,
        started_at=at(0),
        finished_at=at(128),
        metrics={
            "duration_ms": 128_000,
            "cpu_seconds": 35.3,
            "cpu_wait_seconds": 51.1,
            "cpu_wait_percent": 59.1,
            "vcpu_size": 2,
            "memory_size_mb": MACHINE_MB,
        },
        processor=Processor(count=2, others_vcpu_used=1.4),
        time_breakdown=TimeBreakdown(
            on_cpu_percent=27.6,
            waiting_for_cpu_percent=39.7,
            network_percent=32.7,
            waiting_for=(WaitTarget(kind="network", target="127.0.0.1:5432", percent=32.7),),
            covered_percent=100,
        ),
        stacks=Stacks(
            source="py-spy 0.4.3",
            samples=100,
            moments=(
                StackMoment(
                    kind="idle", from_at=at(2), to_at=at(42), samples=40, stack=loads, percent=100
                ),
                StackMoment(
                    kind="memory",
                    from_at=at(122),
                    to_at=at(128),
                    samples=6,
                    stack=builds,
                    percent=100,
                ),
            ),
        ),
        series=Series(
            started_at=at(0),
            step_ms=2000,
            vcpu_used=(0.9, *(0.0,) * 20, *(0.9,) * 43),
            memory_used_mb=(*(100,) * 61, *(500,) * 3),
            cpu_wait=(0.0,) * 64,
        ),
    )
    shown = printed("docs/why-slow.md", "task-profiler show")
    assert is_shortened(f"{shown}  …\n", said("show nightly-etl", [made]))


def test_the_morning_message() -> None:
    text = printed("docs/notifications.md", "Since yesterday")
    zone = timezone(timedelta(hours=1), "CET")
    night = datetime(2026, 11, 25, 8, tzinfo=zone)
    end_ns = round(night.timestamp()) * NS_PER_SECOND
    last = RememberedNight(end_ns=end_ns - NS_PER_DAY, whole_ns=end_ns - NS_PER_DAY)
    killed = FailedRun(
        outcome=OUT_OF_MEMORY,
        family="nightly-etl",
        reason=outcome_of(out_of_memory().record).sentence,
        ended_at="2026-11-25T02:14:00Z",
        url="https://kibana.example.com/run",
    )
    growing = [
        EarlierRun(
            ended_ns=end_ns - round((day + 0.3) * NS_PER_DAY),
            status="success",
            duration_ms=600_000.0,
            peak_mb=4096 * (0.89 - 0.007 * day),
            size_mb=4096.0,
            saving_usd_per_month=9.0,
        )
        for day in range(20, -1, -1)
    ]
    summary = summarize_night(
        NightPeriod(last=last, end_ns=end_ns, zone=zone),
        NightRuns(
            counts={OUT_OF_MEMORY: {"nightly-etl": 1}, "success": {"orders": 38}},
            failed=(killed,),
            reports=39,
            cost=Exactly(4.1),
        ),
        MissedTimes(),
        FamilyHistory(runs={"orders": growing, "dwh-load": growing[-5:]}),
        DigestPlace(region=None, source="https://search.example.com", stack="task-profiler"),
        saving=NightSaving(asked=2, families=("dwh-load", "orders"), usd_per_month=41.2),
    )
    _, said = slack_message_of(summary, kibana_url=None).blocks
    in_words = re.sub(
        r"<[^|]*\|(.*?)(?: UTC)?>", r"\1", f"{summary.title}: {said['text']['text']}\n"
    )
    assert in_words.replace("search.example.com", "…").replace("`", "") == text


def test_the_program_that_reads_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (block,) = blocks(Path("docs/record.md"), "python")
    monkeypatch.chdir(tmp_path)
    Path("reports.jsonl").write_bytes(lines([report(peak_mb=400), report(peak_mb=None)]))
    exec(block.text, {})
    assert capfd.readouterr().out == "nightly success 400\nnightly success None\n"
