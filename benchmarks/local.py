"""``task-profiler run`` beside its rivals from PyPI: overhead, CPU error, error of the memory peak.

    python -m benchmarks.local RIVALS_BIN [--quick] [--json FILE]

``RIVALS_BIN`` is the bin folder of an environment with con-duct, psrecord and resource-tracker
(`make bench-local` makes it). All sample once a second. Every tool runs the same commands, one
after the other in the same run, and is held against what the kernel told the command itself.
"""

import argparse
import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Part, tell

_PHASES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_QUICK_PHASES = (0.0, 0.45)
_NO_OP_RUNS, _QUICK_NO_OP_RUNS = 21, 5
_CPU_WORK = (("burn", "2"), ("forks", "8"), ("short", "2000"))
_NO_OP_FIGURE_MS = 150
_STEADY_FIGURE_PERCENT = 0.3
_CPU_FIGURE_PERCENT = 1.0
_FOUND_PERCENT = -1.0  # of the kernel's peak
_SHORT_SLEEP_SECONDS, _LONG_SLEEP_SECONDS = 2, 32


@dataclass(frozen=True)
class Found:
    """What a tool says of a command; None if it does not say."""

    peak_mib: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class Tool:
    """How to run a command under a tool, and how to read what it wrote into its folder."""

    name: str
    command: Callable[[Path, Sequence[str]], list[str]]
    read: Callable[[Path], Found]


def tools(rivals: Path) -> list[Tool]:
    """The product and its rivals."""
    runner = str(Path(__file__).with_name("resource_tracker_runner.py"))
    return [
        Tool("task-profiler run", _task_profiler, _read_task_profiler),
        Tool(
            "con-duct",
            lambda folder, words: [
                str(rivals / "con-duct"), "run", "-q", "-l", "NONE", "-p", f"{folder}/", "-c", "none", "-o", "none",
                "--sample-interval", "1", "--report-interval", "60", *words,
            ],
            _read_con_duct,
        ),
        Tool(
            "psrecord",
            lambda folder, words: [
                str(rivals / "psrecord"), "--interval", "1", "--include-children", "--log-format", "csv",
                "--log", str(folder / "series.csv"), " ".join(words),
            ],
            _read_psrecord,
        ),
        Tool(
            "resource-tracker",
            lambda folder, words: [str(rivals / "python"), runner, str(folder / "series.csv"), "--", *words],
            _read_resource_tracker,
        ),
    ]  # fmt: skip


def _task_profiler(folder: Path, words: Sequence[str]) -> list[str]:
    program = str(Path(sys.executable).with_name("task-profiler"))
    return [program, "run", "--no-history", "--output", str(folder / "report.jsonl"), "--", *words]


def _read_task_profiler(folder: Path) -> Found:
    metrics = json.loads((folder / "report.jsonl").read_text())["record"]["metrics"]
    return Found(metrics.get("maxMemoryUsedMB"), metrics.get("cpuSeconds"))


def _read_con_duct(folder: Path) -> Found:
    summary = json.loads((folder / "info.json").read_text())["execution_summary"]
    peak = summary["peak_rss"]
    return Found(peak / 2**20 if peak else None)


def _read_psrecord(folder: Path) -> Found:
    return Found(_largest(folder / "series.csv", "mem_real"))


def _read_resource_tracker(folder: Path) -> Found:
    rows = _rows(folder / "series.csv")
    cpu = sum(float(row["utime"]) + float(row["stime"]) for row in rows) if rows else None
    return Found(_largest(folder / "series.csv", "memory_mib"), cpu)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _largest(path: Path, column: str) -> float | None:
    return max((float(row[column]) for row in _rows(path)), default=None)


def profile(tool: Tool, work: Sequence[str]) -> tuple[Found, Found, float]:
    """What the tool found, the truth, and the wall time of the whole in seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        truth = folder / "truth.json"
        words = [sys.executable, "-m", "benchmarks.workload", str(truth), *work]
        began = time.monotonic()
        _run(tool.command(folder, words))
        passed = time.monotonic() - began
        return tool.read(folder), Found(**json.loads(truth.read_text())), passed


@dataclass(frozen=True)
class NoOp:
    """A tool around ``true``: milliseconds of wall time beyond those of ``true`` alone, and of CPU time in all."""

    extra_ms: float
    cpu_ms: float


def no_ops(of: Sequence[Tool], rounds: int) -> list[NoOp]:
    """Medians. The tools take turns, so that a busy moment of the machine meets all of them."""
    extra_ms: list[list[float]] = [[] for _ in of]
    cpu_ms: list[list[float]] = [[] for _ in of]
    for _ in range(rounds):
        bare_ms, _ = _timed(["true"])
        for place, tool in enumerate(of):
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                wall, cpu = _timed(tool.command(Path(folder), ["true"]))
            extra_ms[place].append(wall - bare_ms)
            cpu_ms[place].append(cpu)
    return [NoOp(*map(statistics.median, pair)) for pair in zip(extra_ms, cpu_ms, strict=True)]


def _timed(command: Sequence[str]) -> tuple[float, float]:
    """Milliseconds of wall time, and of CPU time with all that the command waited for."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    _run(command)
    passed, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * passed, 1000 * cpu


def _run(command: Sequence[str]) -> None:
    subprocess.run(
        command,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": "."},
    )


@dataclass(frozen=True)
class Row:
    """One tool's line of the table; errors in percent of the truth, None where the tool says nothing."""

    tool: str
    no_op: NoOp
    spikes: int
    spikes_found: int
    worst_peak_error_percent: float | None
    cpu_error_percent: dict[str, float | None]


def measure(tool: Tool, no_op: NoOp, *, quick: bool) -> Row:
    """Everything about one tool."""
    peak_errors = []
    for phase in _QUICK_PHASES if quick else _PHASES:
        found, truth, _ = profile(tool, ("spike", str(phase)))
        assert truth.peak_mib is not None  # noqa: S101  for the type checker
        peak_errors.append(_error_percent(found.peak_mib, truth.peak_mib))
    cpu_errors = {}
    for work in _CPU_WORK:
        found, truth, _ = profile(tool, work)
        assert truth.cpu_seconds is not None  # noqa: S101  for the type checker
        cpu_errors[" ".join(work)] = _error_percent(found.cpu_seconds, truth.cpu_seconds)
    known = [abs(error) for error in peak_errors if error is not None]
    return Row(
        tool=tool.name,
        no_op=no_op,
        spikes=len(peak_errors),
        spikes_found=sum(error is not None and error >= _FOUND_PERCENT for error in peak_errors),
        worst_peak_error_percent=max(known, default=None),
        cpu_error_percent=cpu_errors,
    )


def steady_cpu_percent() -> float:
    """The product's own share of a core: its CPU time in a long run less that in a short one."""

    def own_cpu_seconds(sleep_seconds: int) -> float:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            _run(_task_profiler(Path(name), ["sleep", str(sleep_seconds)]))
            record = json.loads((Path(name) / "report.jsonl").read_text())["record"]
            return float(record["monitor"]["cpuSeconds"])

    used = own_cpu_seconds(_LONG_SLEEP_SECONDS) - own_cpu_seconds(_SHORT_SLEEP_SECONDS)
    return 100 * used / (_LONG_SLEEP_SECONDS - _SHORT_SLEEP_SECONDS)


def _error_percent(found: float | None, truth: float) -> float | None:
    return None if found is None else 100 * (found - truth) / truth


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def table(rows: Sequence[Row]) -> str:
    """Markdown, a line for each tool."""
    works = [" ".join(work) for work in _CPU_WORK]
    head = [
        "tool",
        "around `true`",
        "its CPU time",
        f"spikes of {rows[0].spikes} found",
        "worst peak error",
        *(f"CPU: {w}" for w in works),
    ]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        peaks = [str(row.spikes_found), _shown(row.worst_peak_error_percent)]
        cpu = [_shown(row.cpu_error_percent[work]) for work in works]
        lines.append([row.tool, f"+{row.no_op.extra_ms:.0f} ms", f"{row.no_op.cpu_ms:.0f} ms", *peaks, *cpu])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def figures(ours: Row, steady_percent: float) -> tuple[Figure, ...]:
    """The product's row against what it has to reach."""
    cpu = max(abs(error) for error in ours.cpu_error_percent.values() if error is not None)
    return (
        Figure(
            what="`run` around a no-op",
            value=ours.no_op.extra_ms,
            unit="ms",
            digits=0,
            at_most=_NO_OP_FIGURE_MS,
            note=f"{ours.no_op.cpu_ms:.0f} ms of CPU",
        ),
        Figure(
            what="CPU seconds, worst error", value=cpu, unit="% of the kernel's", digits=1, at_most=_CPU_FIGURE_PERCENT
        ),
        Figure(
            what="0.4 s spikes of 800 MiB found",
            value=100 * ours.spikes_found / ours.spikes,
            unit="% of the phases",
            digits=0,
            at_least=100,
            note="found: 99 % of the kernel's peak",
        ),
        Figure(
            what="`run` beside one process, 1 Hz",
            value=steady_percent,
            unit="% of a core",
            digits=3,
            at_most=_STEADY_FIGURE_PERCENT,
        ),
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print a Markdown table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Compare local profilers.")
    parser.add_argument("rivals", type=Path, help="bin folder of the rivals' environment")
    parser.add_argument("--quick", action="store_true", help="fewer phases and repetitions")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    compared = tools(options.rivals)
    around_nothing = no_ops(compared, _QUICK_NO_OP_RUNS if options.quick else _NO_OP_RUNS)
    rows = [measure(tool, no_op, quick=options.quick) for tool, no_op in zip(compared, around_nothing, strict=True)]
    found = figures(rows[0], steady_cpu_percent())
    tell(Part(title="Local runs, beside rivals from PyPI", figures=found, tables=(table(rows),)), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
