"""``task-profiler compare`` from record lines and the history: text, JSON, GitHub Actions, exit
codes.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from profiler.cli.compare_command import (
    append_github_summary,
    changes_above_limit_and_sentences,
    limit_annotations,
)
from profiler.cli.github_format import escaped_markdown
from profiler.cli.styled_text import render_lines
from profiler.cli.terminal.comparison_tables import change_percent_text, comparison_lines
from profiler.record.measured import Exactly
from profiler.record.record_model import (
    UNKNOWN_SIZE,
    AverageAndMaximum,
    Cost,
    Distribution,
    Gpu,
    GpuIdle,
    Report,
    Sampling,
)
from profiler.runs.comparison.change_interval import MedianChange
from profiler.runs.comparison.compared_metrics import COMPARED_METRICS, MetricChange
from profiler.runs.comparison.run_sets import RunSet
from tests.runs import lines, report
from tests.unit.cli.conftest import Cli

METRICS = {metric.name: metric for metric in COMPARED_METRICS}


pytestmark = pytest.mark.usefixtures("here")


def nights(revision: str, peak_mb: float, count: int = 8, **metrics: Any) -> list[Report]:
    """Runs of a revision whose peaks and durations scatter by 1 %."""
    first = 100 * int(revision)
    return [
        report(
            first + number,
            peak_mb=peak_mb * (1 + (number % 3 - 1) / 100),
            revision=revision,
            metrics={
                "duration_ms": 60_000 + 600 * (number % 3),
                "memory_used_mb": Distribution(avg=100.5),
                **metrics,
            },
        )
        for number in range(count)
    ]


def kept(*sets: Iterable[Report]) -> str:
    Path("runs.jsonl").write_bytes(lines(one for reports in sets for one in reports))
    return "runs.jsonl"


BOTH = ("nightly@1", "nightly@2")
GROWN = (nights("1", 400), nights("2", 500))


def test_json_is_the_object_of_the_contract(cli: Cli) -> None:
    failed = report(250, revision="2", status="failure")
    average = Distribution(avg=0.1 + 0.2)
    sets = (nights("1", 400, memory_used_mb=average), nights("2", 500, memory_used_mb=average))
    found = cli("compare", *BOTH, "--json", "--from", kept(*sets, [failed]))
    (line,) = found.out.splitlines()
    shown = json.loads(line)
    assert list(shown) == ["a", "b", "metrics"]
    marks = {"atLeast": ["maxMemoryUsedMB"], "estimated": []}
    assert shown["a"] == {"set": "nightly@1", "runs": 8, **marks}
    assert shown["b"] == {"set": "nightly@2", "runs": 8, **marks}
    assert list(shown["metrics"]) == [
        "durationMs", "cpuSeconds", "maxMemoryUsedMB", "memoryAverageMB", "blockReadBytes", "blockWriteBytes", "costUsd",
        "gpuUtilizationPercent", "maxGpuMemoryUsedMB", "gpuIdlePercent", "gpuIdleBetweenPercent",
    ]  # fmt: skip
    for change in shown["metrics"].values():
        assert list(change) == [
            "a",
            "b",
            "changePercent",
            "lowPercent",
            "highPercent",
            "verdict",
            "runsNeeded",
        ]
    peak, duration = shown["metrics"]["maxMemoryUsedMB"], shown["metrics"]["durationMs"]
    assert peak["a"] == 400
    assert peak["b"] == 500
    assert peak["changePercent"] == 25
    assert peak["verdict"] == "more"
    assert 22 < peak["lowPercent"] < 25 < peak["highPercent"] < 28
    assert duration["changePercent"] == 0
    assert duration["verdict"] == "no difference seen"
    assert shown["metrics"]["memoryAverageMB"]["a"] == 0.3  # not 0.30000000000000004
    unknown = shown["metrics"]["cpuSeconds"]
    assert unknown.pop("verdict") == "too few runs"
    assert set(unknown.values()) == {None}
    assert found.code == 0
    assert found.err == "task-profiler: Left out of nightly@2: 1 failed.\n"


def test_shares_of_a_gpus_time_fail_no_check_unless_they_are_named(cli: Cli) -> None:
    def on_gpu(revision: str, idle_percent: float) -> list[Report]:
        idle = GpuIdle(percent=idle_percent, between_percent=idle_percent / 2, gpu_hours=0.1)
        use = Distribution(avg=100 - idle_percent)
        gpus = (Gpu(uuid="a", utilization_percent=use, utilization_source="gpm"),)
        made = nights(revision, 400)
        return [replace(one, record=replace(one.record, gpus=gpus, gpu_idle=idle)) for one in made]

    source = ("--from", kept(on_gpu("1", 10), on_gpu("2", 40)), "--fail-above", "5")
    found = cli("compare", *BOTH, *source)
    assert found.code == 0
    rows = [re.split(r"  +", row.strip())[:4] for row in found.out.splitlines()]
    assert ["GPU average", "90 %", "60 %", "-33.3 %"] in rows
    assert ["GPU idle", "10 %", "40 %", "+300.0 %"] in rows
    assert ["GPU idle between", "5 %", "20 %", "+300.0 %"] in rows
    assert cli("compare", *BOTH, *source, "--metric", "gpuIdlePercent").code == 3


def test_a_few_kilobytes_are_not_0(cli: Cli) -> None:
    sets = nights("1", 400, block_write_bytes=3000), nights("2", 400, block_write_bytes=0)
    written = next(
        row
        for row in cli("compare", *BOTH, "--from", kept(*sets)).out.splitlines()
        if "written" in row
    )
    assert re.split(r"  +", written)[:4] == ["written", "2.9 KB", "0 MB", "-100.0 %"]


def test_the_text_has_both_sets_and_the_metrics_that_a_run_has(cli: Cli) -> None:
    last = report(250, revision="2", status="failure")
    found = cli("compare", *BOTH, "--from", kept(*GROWN, [last]))
    rows = [re.split(r"  +", row.strip()) for row in found.out.splitlines()]
    assert rows[0] == ["Runs of", "Runs", "Started (UTC)", "Left out"]
    assert [row[:3] for row in rows[1:3]] == [["A", "nightly@1", "8"], ["B", "nightly@2", "8"]]
    assert rows[1][-1] == "-"
    assert rows[2][-1] == "1 failed"
    assert rows[4] == ["A", "B", "Change", "95 % interval", "Verdict"]
    assert [row[0] for row in rows[5:]] == ["duration", "memory peak", "memory average"]
    assert rows[6][1:4] == ["≥400 MB", "≥500 MB", "+25.0 %"]
    assert rows[6][5] == "more"
    assert "\x1b" not in found.out
    assert found.code == 0
    assert found.err == ""


def test_the_exit_code_is_3_if_a_whole_interval_is_above_the_limit(cli: Cli) -> None:
    source = ("--from", kept(*GROWN))
    for limit in ("10%", "10", "20.0%"):
        above = cli("compare", *BOTH, *source, "--fail-above", limit)
        assert above.code == 3
        assert above.err.startswith(
            f"task-profiler: B is above A by more than {limit[:2]} %: memory peak (max"
        )
        assert above.err.count("\n") == 1
        assert "duration" not in above.err
    for limit in ("25%", "1000%"):
        within = cli("compare", *BOTH, *source, "--fail-above", limit)
        assert within.code == 0
        assert within.err == ""
    assert cli("compare", *BOTH[::-1], *source, "--fail-above", "0").code == 0
    for wrong in ("-1%", "ten", "nan%"):
        with pytest.raises(
            click.UsageError, match=r"range 0 to 10000|not a valid number|'nan%' is not a number"
        ):
            cli("compare", *BOTH, *source, "--fail-above", wrong)


def test_metrics_can_be_chosen_so_that_the_others_do_not_fail(cli: Cli) -> None:
    source = ("--from", kept(*GROWN), "--fail-above", "10%")
    chosen = cli("compare", *BOTH, *source, "--metric", "durationMs", "--json")
    assert chosen.code == 0
    assert list(json.loads(chosen.out)["metrics"]) == ["durationMs"]
    unknown = cli("compare", *BOTH, *source, "--metric", "costUsd")
    assert unknown.out.endswith("Known for 0 of 8 runs of A and 0 of 8 runs of B: cost.\n")
    assert unknown.err.endswith(": cost (costUsd).\n")
    both = cli("compare", *BOTH, *source, "--metric", "durationMs", "--metric", "costUsd")
    assert both.err.endswith(": cost (costUsd).\n")
    with pytest.raises(click.UsageError, match="'cost' is not one of 'durationMs'"):
        cli("compare", *BOTH, "--metric", "cost")


def test_too_few_runs_do_not_fail_and_that_is_said(cli: Cli) -> None:
    few = cli(
        "compare",
        *BOTH,
        "--from",
        kept(nights("1", 400, 4), nights("2", 500)),
        "--fail-above",
        "10%",
    )
    assert few.code == 0
    assert few.err.startswith(
        "task-profiler: It is unknown whether B is above A by more than 10 %: duration (durationMs"
    )
    rows = [re.split(r"  +", row.strip()) for row in few.out.splitlines()]
    assert [row[-3:] for row in rows if row[0] == "memory peak"] == [
        ["+25.6 %", "-", "fewer than five runs"]
    ]
    assert few.out.splitlines()[-1] == ("To see a change of 5 %, about 5 runs per side are needed.")
    single = cli("compare", *BOTH, "--from", kept(nights("1", 400, 1), nights("2", 500, 1)))
    assert single.out.splitlines()[-2].endswith("fewer than five runs")
    assert single.out.splitlines()[-1] == "At least 5 runs per side are needed."
    assert cli("compare", *BOTH, "--from", kept(nights("1", 400, 4), nights("2", 500))).err == ""


def test_local_runs_have_a_cost_as_if_on_fargate(cli: Cli) -> None:
    local = [
        replace(
            one,
            record=replace(one.record, launch_type="LOCAL", region=None, task_size=UNKNOWN_SIZE),
        )
        for one in (*nights("1", 400), *nights("2", 400, duration_ms=120_000))
    ]
    words = (*BOTH, "--from", kept(local), "--json", "--metric", "costUsd")
    assert json.loads(cli("compare", *words).out)["metrics"]["costUsd"]["a"] is None
    priced = json.loads(cli("compare", *words, "--on-fargate", "us-east-1").out)["metrics"][
        "costUsd"
    ]
    odd = [
        replace(one, record=replace(one.record, metrics=replace(one.record.metrics, vcpu_size=3)))
        for one in local
    ]
    without = cli("compare", *BOTH, "--from", kept(odd), "--on-fargate", "us-east-1")
    assert without.err.startswith(
        "task-profiler: No run has a price on Fargate in us-east-1: its machine has a size"
    )
    assert priced["b"] == pytest.approx(120 / 3600 * (0.04048 + 2 * 0.004445), rel=1e-4)


def test_github_gets_annotations_above_the_limit_and_a_summary(
    here: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*BOTH, "--from", kept(*GROWN), "--format", "github")
    summary = here / "summary.md"
    summary.write_text("before")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    within = cli("compare", *words)
    assert within.code == 0
    assert within.err == ""
    assert "::" not in within.out
    failed = cli("compare", *words, "--fail-above", "10%")
    commands = [line for line in failed.out.splitlines() if line.startswith("::")]
    assert failed.code == 3
    assert len(commands) == 1
    assert commands[0].startswith(
        "::error title=task-profiler compare%3A maxMemoryUsedMB::memory peak +25.0 %25 ("
    )
    assert commands[0].endswith(
        " %25), above the limit of 10 %25: ≥500 MB in nightly@2, ≥400 MB in nightly@1."
    )
    text = summary.read_text()
    assert text.startswith("before\n### nightly@2 compared with nightly@1\n\n|  | A | B |")
    assert text.count("| memory peak | ≥400 MB | ≥500 MB | +25.0 % |") == 2
    assert text.count("B is above A by more than 10 %") == 1
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(here / "no" / "summary.md"))
    assert "summary.md cannot be written (No such file or directory)" in cli("compare", *words).err
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert cli("compare", *words).err == (
        "task-profiler: GITHUB_STEP_SUMMARY is not set, so no summary was written: GitHub "
        "Actions sets it.\n"
    )


def changed(name: str, verdict: Any, low: float | None = None, **more: Any) -> MetricChange:
    change = MedianChange(a=1.0, b=2.0, change_percent=more.pop("change", 100), low_percent=low, high_percent=more.pop(
        "high", None), verdict=verdict, **more)  # fmt: skip
    return MetricChange(
        metric=METRICS[name], change=change, known_a=5, known_b=5, a=Exactly(1.0), b=Exactly(2.0)
    )


HOSTILE = (
    RunSet(text="a|b%\n::error::x", reports=(report(),)),
    RunSet(text="<img>*c*\r`d`\x1b[2J", reports=(report(),)),
)


def test_names_are_escaped_for_workflow_commands_markdown_and_the_terminal(here: Path) -> None:
    exceeded, _ = changes_above_limit_and_sentences([changed("durationMs", "more", 50.0)], 10)
    (command,) = limit_annotations(HOSTILE, exceeded, 10)
    assert command.count("\n") == 1
    assert r"in a|b%25\n::error::x." in command
    assert r"\x1b[2J" in command
    append_github_summary(
        HOSTILE, exceeded, ["it's *so*"], {"GITHUB_STEP_SUMMARY": str(here / "s.md")}
    )
    text = (here / "s.md").read_text()
    assert r"\<img\>\*c\* \`d\` [2J compared" in text.replace(r"\[", "[")
    assert r"| A | a\|b% ::error::x | 1 |" in text
    assert r"it's \*so\*" in text
    address = "see https://evil.example/x and www.evil.example or HTTP://h, a:b, x.y"
    assert escaped_markdown(address) == (
        "see https:&#47;/evil.example/x and www&#46;evil.example or HTTP:&#47;/h, a:b, x.y"
    )
    drawn = render_lines(
        comparison_lines(HOSTILE, exceeded, 80), is_coloured=False, encoding="utf-8"
    ).decode()
    assert "\n::" not in drawn
    assert "\x1b" not in drawn


def test_a_limit_is_undecided_where_the_change_is_unknown() -> None:
    changes = [
        changed("durationMs", "more", 10.0),
        changed("cpuSeconds", "more", 10.1),
        changed("maxMemoryUsedMB", "too few runs", 50.0, runs_needed=12),
        changed("blockReadBytes", "more", None, change=None),
        changed("memoryAverageMB", "no difference seen", -1.0),
        changed("costUsd", "too few runs", -3.0, high=9.9, runs_needed=7),
        changed("blockWriteBytes", "less", -20.0),
    ]
    exceeded, (above, unknown) = changes_above_limit_and_sentences(changes, 10)
    assert [one.metric.name for one in exceeded] == ["cpuSeconds"]
    assert (
        above == "B is above A by more than 10 %: CPU time (cpuSeconds) +100.0 % (+10.1 % or more)."
    )
    assert unknown == (
        "It is unknown whether B is above A by more than 10 %: memory peak (maxMemoryUsedMB), "
        "read (blockReadBytes)."
    )


def test_a_change_of_the_cpu_wait_is_named_before_the_metrics(cli: Cli) -> None:
    def waited(revision: str, percent: float, duration_ms: int) -> list[Report]:
        waits: dict[str, Any] = {
            "cpu_wait_percent": percent,
            "cpu_wait_seconds": percent / 2,
            "cpu_seconds": 50.0,
        }
        return nights(revision, 400, **waits, duration_ms=duration_ms)

    sets = (waited("1", 4, 60_000), waited("2", 35, 90_000))
    found = cli("compare", *BOTH, "--from", kept(*sets))
    sentence = (
        "Threads that could run waited for a CPU 4 % of the time in A and 35 % in B: other work"
    )
    assert 0 < found.out.index(sentence) < found.out.index("duration")
    assert sentence in cli("compare", *BOTH, "--json", "--from", kept(*sets)).err
    assert (
        "waited for a CPU"
        not in cli("compare", *BOTH, "--from", kept(waited("1", 4, 1), waited("2", 9, 2))).out
    )
    unread = Sampling(cpu_wait_covered_percent=40)
    partial = [replace(one, record=replace(one.record, sampling=unread)) for one in sets[1]]
    found = cli("compare", *BOTH, "--from", kept(sets[0], partial))
    assert "waited for a CPU 4 % of the time in A and at least 35 % in B: other" in found.out


def test_cpu_time_that_was_not_measured_to_the_end_is_compared_by_its_average(cli: Cli) -> None:
    """The same work on Fargate: of one set half was seen, of the other three quarters."""
    sets = (
        nights(name, 400, cpu_seconds=seen, vcpu_used=Distribution(avg=1))
        for name, seen in (("1", 30), ("2", 45))
    )
    covered = Sampling(cpu_covered_percent=60)
    partial = (
        [replace(one, record=replace(one.record, sampling=covered)) for one in runs]
        for runs in sets
    )
    place = kept(*partial)
    found = cli("compare", *BOTH, "--from", place).out
    shown = json.loads(cli("compare", *BOTH, "--json", "--from", place).out)
    assert shown["a"]["estimated"] == shown["b"]["estimated"] == ["cpuSeconds"]
    assert (
        "The CPU time of 16 runs is the measured part's average over the whole duration." in found
    )
    assert re.search(r"CPU time +≈ 1m 01s +≈ 1m 01s += ", found)


def on_spot(runs: Iterable[Report]) -> list[Report]:
    """The runs at the least that Spot costs."""
    cost = Cost(usd=0.12, price_basis="at least, on FARGATE_SPOT: 30% of the on-demand price")
    return [replace(one, record=replace(one.record, cost=cost)) for one in runs]


def test_the_least_that_spot_costs_is_marked_and_has_no_change_from_a_price(cli: Cli) -> None:
    priced = [
        replace(one, record=replace(one.record, cost=Cost(usd=0.4))) for one in nights("1", 400)
    ]
    spot = on_spot(nights("2", 400))
    words = ("compare", *BOTH, "--metric", "costUsd", "--fail-above", "10", "--from")
    found = cli(*words, kept(priced, spot))
    assert re.search(r"cost +\$0\.40 +≥ \$0\.12 +- +- +not comparable\n", found.out)
    assert "On Spot ran 0 runs of A and 8 runs of B. Their cost is the least" in found.out
    assert "It is unknown whether B is above A by more than 10 %: cost" in found.err
    both = cli(*words, kept(on_spot(nights("1", 400)), spot)).out
    assert re.search(r"cost +≥ \$0\.12 +≥ \$0\.12 += ", both)


def at_least(runs: Iterable[Report]) -> list[Report]:
    """The runs, whose bytes were not read to the end."""
    covered = Sampling(sources=("task-metadata",), cpu_covered_percent=50)
    return [replace(one, record=replace(one.record, sampling=covered)) for one in runs]


def test_more_bytes_than_a_lower_bound_are_not_proven_to_be_more(cli: Cli) -> None:
    words = ("compare", *BOTH, "--metric", "blockReadBytes", "--fail-above", "10", "--from")
    few = nights("1", 400, block_read_bytes=4 << 20)
    found = cli(*words, kept(at_least(few), nights("2", 400, block_read_bytes=8 << 20)))
    assert re.search(r"read +≥4 MB +8 MB +- +- +not comparable\n", found.out)
    assert "It is unknown whether B is above A by more than 10 %: read" in found.err
    assert found.code == 0


def test_a_lower_bound_that_is_more_is_more(cli: Cli) -> None:
    few = nights("1", 400, block_read_bytes=4 << 20)
    many = at_least(nights("2", 400, block_read_bytes=8 << 20))
    found = cli("compare", *BOTH, "--metric", "blockReadBytes", "--from", kept(few, many))
    assert re.search(r"read +4 MB +≥8 MB +\+100.0 % .* more\n", found.out)


def test_peaks_of_different_sources_are_compared_with_a_note(cli: Cli) -> None:
    found = cli(
        "compare",
        *BOTH,
        "--from",
        kept(nights("1", 400), nights("2", 500, memory_peak_source="kernel")),
    )
    assert (
        "The memory peak is the kernel's in 0 of 8 runs of A and in 8 of 8 of B. The others were"
        in found.out
    )
    assert "more" in found.out
    assert "is the kernel's" not in cli("compare", *BOTH, "--from", kept(*GROWN)).out


def test_memory_of_an_older_version_is_said_and_not_compared(cli: Cli) -> None:
    """Peaks that fell with the meaning of the number are no improvement."""
    apart: dict[str, Any] = {"memory_mapped_file_mb": AverageAndMaximum(avg=100, max=200)}
    found = cli("compare", *BOTH, "--from", kept(nights("1", 400), nights("2", 200, **apart)))
    assert (
        "The memory of 8 runs of A may include pages of mapped files, as older "
        "versions, Container Insights and very short runs count them, so the change of the "
        "memory is not known."
    ) in " ".join(found.out.split())
    assert re.search(r"memory peak +≥400 MB +≥200 MB +- +- +not comparable", found.out)
    both = [*nights("1", 400, 3), *nights("1", 200, 9, **apart)[3:]]
    mixed = cli("compare", *BOTH, "--from", kept(both, nights("2", 200, **apart)))
    assert (
        "The memory of 3 runs of A may include pages of mapped files, as older "
        "versions, Container Insights and very short runs count them, and is left out."
    ) in " ".join(mixed.out.split())
    assert "Known for 6 of 9 runs of A: memory peak, memory average." in mixed.out
    assert "no difference seen" in mixed.out
    same = cli("compare", *BOTH, "--from", kept(*GROWN))
    assert "mapped files" not in same.out


@pytest.mark.parametrize(
    ("percent", "text"),
    [
        (None, "-"),
        (0.04, "="),
        (-0.04, "="),
        (0.06, "+0.1 %"),
        (-99.95, "-100.0 %"),
        (999.96, "+1000.0 %"),
        (5230.4, "+5,230 %"),
    ],
)
def test_a_change_has_no_power_of_ten(percent: float | None, text: str) -> None:
    assert change_percent_text(percent) == text
