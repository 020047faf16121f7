"""``task-profiler run`` beside its rivals from PyPI: overhead, CPU error, error of the memory peak.

    python -m benchmarks.local RIVALS_BIN [--json FILE]

``RIVALS_BIN`` is the bin folder of an environment with con-duct, psrecord and resource-tracker
(`make bench-local` makes it). All sample once a second. Every tool runs the same commands, one
after the other in the same run, and is held against what the kernel told the command itself.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

_PHASES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_NO_OP_RUNS = 15
_CPU_WORK = (("burn", "2"), ("forks", "8"), ("short", "2000"))
_NO_OP_FIGURE_MS = 150
_STEADY_FIGURE_PERCENT = 0.3
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


def no_op_ms(tool: Tool | None) -> float:
    """The median wall time around ``true``, with the tool or bare."""
    times = []
    for _ in range(_NO_OP_RUNS):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            command = ["true"] if tool is None else tool.command(Path(folder), ["true"])
            began = time.monotonic()
            _run(command)
            times.append(time.monotonic() - began)
    return 1000 * statistics.median(times)


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
    no_op_extra_ms: float
    spikes_found: int
    worst_peak_error_percent: float | None
    cpu_error_percent: dict[str, float | None]


def measure(tool: Tool, bare_ms: float) -> Row:
    """Everything about one tool."""
    peak_errors = []
    for phase in _PHASES:
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
        no_op_extra_ms=no_op_ms(tool) - bare_ms,
        spikes_found=sum(error is not None and error >= -1 for error in peak_errors),
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


def _met(value: float, figure: float) -> str:
    return f"(≤ {figure:g}: {'met' if value <= figure else 'NOT MET'})"


def _error_percent(found: float | None, truth: float) -> float | None:
    return None if found is None else 100 * (found - truth) / truth


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def main(arguments: Sequence[str]) -> None:
    """Measure, print a Markdown table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Compare local profilers.")
    parser.add_argument("rivals", type=Path, help="bin folder of the rivals' environment")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    bare_ms = no_op_ms(None)
    works = [" ".join(work) for work in _CPU_WORK]
    print(
        f"| tool | around `true` | spikes of {len(_PHASES)} found | worst peak error | "
        + " | ".join(f"CPU: {w}" for w in works)
        + " |"
    )
    print("|" + "---|" * (4 + len(works)))
    rows = []
    for tool in tools(options.rivals):
        row = measure(tool, bare_ms)
        rows.append(row)
        cells = [row.tool, f"+{row.no_op_extra_ms:.0f} ms", str(row.spikes_found), _shown(row.worst_peak_error_percent)]
        print("| " + " | ".join([*cells, *(_shown(row.cpu_error_percent[work]) for work in works)]) + " |", flush=True)
    steady_percent = steady_cpu_percent()
    print(f"\naround a no-op {rows[0].no_op_extra_ms:.0f} ms {_met(rows[0].no_op_extra_ms, _NO_OP_FIGURE_MS)}")
    print(f"steady, one process, 1 Hz: {steady_percent:.3f} % of a core {_met(steady_percent, _STEADY_FIGURE_PERCENT)}")
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
