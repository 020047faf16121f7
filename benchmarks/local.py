"""Compare ``task-profiler run`` with other profilers from PyPI: overhead, CPU error, memory peak
error.

    python -m benchmarks.local INSTALLED_BIN RIVALS_BIN [--quick] [--json FILE]

``INSTALLED_BIN`` is the bin folder of an environment with this project as users install it, and
``RIVALS_BIN`` that of one with con-duct and psrecord (`make bench-local` creates both). An environment for development would start more slowly: it has more packages, and files that
run at each start of Python. All tools sample once a second and profile the same commands. The
commands themselves read their actual usage from the kernel.
"""

import csv
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from benchmarks.figures import (
    BenchmarkResult,
    Figure,
    benchmark_parser,
    markdown_table,
)
from profiler.cli.app import group
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.record.bounded_json_line import encode_line
from profiler.record.record_model import Container, Metrics, Record, Report
from profiler.runs.history.run_database import HistoryStore

_PHASES = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
_QUICK_PHASES = (0.0, 0.45)
_NO_OP_RUNS, _QUICK_NO_OP_RUNS = 21, 5
_CPU_WORK = (("burn", "2"), ("forks", "8"), ("short", "2000"))
_MAX_NO_OP_MS = 45
_MAX_NO_OP_RATIO = 1.2  # the 45 ms belong to a machine on which psrecord takes 30 ms
_MAX_HELP_MS = 120
_MAX_HELP_RATIO = 180 / 15  # of CPU time: 180 ms on a machine on which an empty Python takes 15 ms
_MAX_HISTORY_MS = 150
_HISTORY_RUNS = 1000
_FIRST_RUN_S, _RUN_DISTANCE_S = 1_790_000_000, 3600
_MAX_CPU_ERROR_PERCENT = 1.0
# Relative to the kernel's peak: a tool has found a spike if its error is at least this.
_MIN_PEAK_ERROR_PERCENT = -1.0


@dataclass(frozen=True)
class ToolResult:
    """The numbers that a tool reports for a command; None if it does not report one."""

    peak_mib: float | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True)
class ProfilerTool:
    """A profiler: how to run a command under it, and how to read its results from its folder."""

    name: str
    command: Callable[[Path, Sequence[str]], list[str]]
    read: Callable[[Path], ToolResult]


def profiler_tools(installed: Path, rivals: Path) -> list[ProfilerTool]:
    """This profiler and the others."""
    return [
        ProfilerTool("task-profiler run", partial(_task_profiler, installed), _read_task_profiler),
        ProfilerTool(
            "con-duct",
            lambda folder, command: [
                str(rivals / "con-duct"), "run", "-q", "-l", "NONE", "-p", f"{folder}/", "-c", "none", "-o", "none",
                "--sample-interval", "1", "--report-interval", "60", *command,
            ],
            _read_con_duct,
        ),
        ProfilerTool(
            "psrecord",
            lambda folder, command: [
                str(rivals / "psrecord"), "--interval", "1", "--include-children", "--log-format", "csv",
                "--log", str(folder / "series.csv"), " ".join(command),
            ],
            _read_psrecord,
        ),
    ]  # fmt: skip


def _task_profiler(installed: Path, folder: Path, command: Sequence[str]) -> list[str]:
    options = ["--no-history", "--output", str(folder / "report.jsonl")]
    return [str(installed / "task-profiler"), "run", *options, "--", *command]


def _read_task_profiler(folder: Path) -> ToolResult:
    metrics = json.loads((folder / "report.jsonl").read_text())["record"]["metrics"]
    return ToolResult(metrics.get("maxMemoryUsedMB"), metrics.get("cpuSeconds"))


def _read_con_duct(folder: Path) -> ToolResult:
    summary = json.loads((folder / "info.json").read_text())["execution_summary"]
    peak = summary["peak_rss"]
    return ToolResult(peak / 2**20 if peak else None)


def _read_psrecord(folder: Path) -> ToolResult:
    return ToolResult(_column_max(folder / "series.csv", "mem_real"))


def _csv_rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _column_max(path: Path, column: str) -> float | None:
    return max((float(row[column]) for row in _csv_rows(path)), default=None)


def run_under_tool(tool: ProfilerTool, workload: Sequence[str]) -> tuple[ToolResult, ToolResult]:
    """Run a workload under a tool. Returns the tool's numbers and the actual ones."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        actual = folder / "actual.json"
        command = [sys.executable, "-m", "benchmarks.workload", str(actual), *workload]
        _run(tool.command(folder, command))
        return tool.read(folder), ToolResult(**json.loads(actual.read_text()))


@dataclass(frozen=True)
class NoOpOverhead:
    """A tool's cost for the command ``true``: additional wall time, and total CPU time, in
    milliseconds.
    """

    extra_ms: float
    cpu_ms: float


def measure_no_ops(compared: Sequence[ProfilerTool], rounds: int) -> list[NoOpOverhead]:
    """Measure medians. The tools alternate, so that load on the machine affects all of them."""
    extra_ms: list[list[float]] = [[] for _ in compared]
    cpu_ms: list[list[float]] = [[] for _ in compared]
    for round_number in range(rounds + 1):
        bare_ms, _ = measure_command_seconds(["true"])
        for index, tool in enumerate(compared):
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                wall, cpu = measure_command_seconds(tool.command(Path(folder), ["true"]))
            if round_number > 0:  # the first round writes bytecode, as an installation has it
                extra_ms[index].append(wall - bare_ms)
                cpu_ms[index].append(cpu)
    return [
        NoOpOverhead(*map(statistics.median, pair)) for pair in zip(extra_ms, cpu_ms, strict=True)
    ]


@dataclass(frozen=True)
class StartUp:
    """The wall times of commands that end at once, in milliseconds.

    ``help_ratios`` has the CPU time of each command's ``--help``, relative to an empty Python's.
    """

    help_ms: float
    help_ratios: dict[str, float]
    history_ms: float


def measure_start_up(installed: Path, rounds: int) -> StartUp:
    """Measure medians of ``--help`` and of ``history`` of 1,000 runs, in alternation."""
    own = str(installed / "task-profiler")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "history.sqlite3"
        fill_history(path)
        commands = {
            "help": [own, "--help"],
            "history": [own, "history", "--from", f"history:{path}"],
        }
        wall_ms: dict[str, list[float]] = {name: [] for name in commands}
        for round_number in range(rounds + 1):
            for name, command in commands.items():
                wall, _ = measure_command_seconds(command)
                if round_number > 0:  # see measure_no_ops
                    wall_ms[name].append(wall)
    medians = {name: statistics.median(values) for name, values in wall_ms.items()}
    return StartUp(
        help_ms=medians["help"],
        help_ratios=measure_help(installed, rounds),
        history_ms=medians["history"],
    )


def measure_help(installed: Path, rounds: int) -> dict[str, float]:
    """Measure the CPU time of each command's ``--help`` in alternation, relative to an empty
    Python's (medians).
    """
    commands = {"": [str(installed / "python"), "-c", ""]}
    for words in _command_names(group, ()):
        commands[" ".join(words)] = [str(installed / "task-profiler"), *words, "--help"]
    cpu_ms: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            cpu_ms[name].append(measure_command_seconds(command)[1])
    medians = {name: statistics.median(values) for name, values in cpu_ms.items()}
    empty_ms = medians.pop("")
    return {name: value / empty_ms for name, value in medians.items()}


def _command_names(
    command: click.Command | None, names: tuple[str, ...]
) -> Iterator[tuple[str, ...]]:
    if names:
        yield names
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _command_names(command.get_command(context, name), (*names, name))


def fill_history(path: Path) -> None:
    """Write a history with 1,000 runs."""
    store = HistoryStore(path, SystemClock())
    for number in range(_HISTORY_RUNS):
        moment = format_ms((_FIRST_RUN_S + number * _RUN_DISTANCE_S) * NS_PER_SECOND)
        record = Record(
            task_id=f"{number:032x}",
            family=f"nightly-{number % 20}",
            status="success",
            exit_code=0,
            started_at=moment,
            finished_at=moment,
            container=Container(name="batch"),
            metrics=Metrics(
                duration_ms=60_000,
                cpu_seconds=12.5,
                max_memory_used_mb=512.0,
                memory_size_mb=2048.0,
            ),
        )
        report = Report(time=moment, type="task.report", record=record)
        store.add_run(encode_line(report), report, b"[]", max_runs=_HISTORY_RUNS)


def measure_command_seconds(command: Sequence[str]) -> tuple[float, float]:
    """Run a command.

    Returns its wall time and its CPU time, including its children's, in milliseconds.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started_at = time.monotonic()
    _run(command)
    elapsed_seconds = time.monotonic() - started_at
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * elapsed_seconds, 1000 * cpu


def _run(command: Sequence[str]) -> None:
    # Without bytecode, each start would compile this profiler and not the rivals, which pip has
    # compiled.
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    nowhere = subprocess.DEVNULL
    subprocess.run(command, check=False, stdout=nowhere, stderr=nowhere, env=environment)


@dataclass(frozen=True)
class ToolRow:
    """One tool's row of the table.

    Errors are in percent of the actual value; None if the tool reports no number.
    """

    tool: str
    no_op: NoOpOverhead
    spikes: int
    spikes_found: int
    worst_peak_error_percent: float | None
    cpu_error_percent: dict[str, float | None]


def measure(tool: ProfilerTool, no_op: NoOpOverhead, *, quick: bool) -> ToolRow:
    """Measure the errors of one tool."""
    peak_errors = []
    for phase in _QUICK_PHASES if quick else _PHASES:
        result, actual = run_under_tool(tool, ("spike", str(phase)))
        assert actual.peak_mib is not None
        peak_errors.append(_error_percent(result.peak_mib, actual.peak_mib))
    cpu_errors = {}
    for workload in _CPU_WORK:
        result, actual = run_under_tool(tool, workload)
        assert actual.cpu_seconds is not None
        cpu_errors[" ".join(workload)] = _error_percent(result.cpu_seconds, actual.cpu_seconds)
    known = [abs(error) for error in peak_errors if error is not None]
    return ToolRow(
        tool=tool.name,
        no_op=no_op,
        spikes=len(peak_errors),
        spikes_found=sum(
            error is not None and error >= _MIN_PEAK_ERROR_PERCENT for error in peak_errors
        ),
        worst_peak_error_percent=max(known, default=None),
        cpu_error_percent=cpu_errors,
    )


def _error_percent(result: float | None, actual: float) -> float | None:
    return None if result is None else 100 * (result - actual) / actual


def _format_percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} %"


def results_table(rows: Sequence[ToolRow]) -> str:
    """Format the comparison as a Markdown table with a row for each tool."""
    workloads = [" ".join(workload) for workload in _CPU_WORK]
    head = [
        "tool",
        "added to `true`",
        "CPU time",
        f"spikes found of {rows[0].spikes}",
        "worst peak error",
        *(f"CPU: {workload}" for workload in workloads),
    ]
    lines = []
    for row in rows:
        peaks = [str(row.spikes_found), _format_percent(row.worst_peak_error_percent)]
        cpu = [_format_percent(row.cpu_error_percent[workload]) for workload in workloads]
        lines.append(
            [row.tool, f"+{row.no_op.extra_ms:.0f} ms", f"{row.no_op.cpu_ms:.0f} ms", *peaks, *cpu]
        )
    return markdown_table(head, lines)


def figures_of_tool(rows: Sequence[ToolRow], start_up: StartUp) -> tuple[Figure, ...]:
    """Compare this profiler's row, which is the first, with its targets."""
    ours = rows[0]
    psrecord = next(row for row in rows if row.tool == "psrecord")
    slowest = max(start_up.help_ratios, key=lambda name: start_up.help_ratios[name])
    cpu = max(abs(error) for error in ours.cpu_error_percent.values() if error is not None)
    return (
        Figure(
            "`run` around a no-op",
            ours.no_op.extra_ms,
            "ms",
            digits=0,
            at_most=_MAX_NO_OP_MS,
            note=f"{ours.no_op.cpu_ms:.0f} ms of CPU",
        ),
        Figure(
            "the same, relative to psrecord",
            ours.no_op.extra_ms / psrecord.no_op.extra_ms,
            "×",
            at_most=_MAX_NO_OP_RATIO,
        ),
        Figure("`--help`", start_up.help_ms, "ms", digits=0, at_most=_MAX_HELP_MS),
        Figure(
            "slowest `--help` of a command, CPU relative to an empty Python",
            start_up.help_ratios[slowest],
            "×",
            at_most=_MAX_HELP_RATIO,
            note=f"{slowest}; median {statistics.median(start_up.help_ratios.values()):.1f} ×",
        ),
        Figure(
            f"`history` of {_HISTORY_RUNS:,} runs",
            start_up.history_ms,
            "ms",
            digits=0,
            at_most=_MAX_HISTORY_MS,
        ),
        Figure(
            "CPU seconds, worst error",
            cpu,
            "% of the kernel's",
            digits=1,
            at_most=_MAX_CPU_ERROR_PERCENT,
        ),
        Figure(
            "0.4 s memory spikes of 800 MiB found",
            100 * ours.spikes_found / ours.spikes,
            "% of the phases",
            digits=0,
            at_least=100,
            note="found: at least 99 % of the kernel's peak",
        ),
    )


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("installed", type=Path, help="bin folder of this project's environment")
    parser.add_argument("rivals", type=Path, help="bin folder of the other profilers' environment")
    parser.add_argument("--quick", action="store_true", help="fewer phases and repetitions")
    options = parser.parse_args(arguments)
    installed, rivals = options.installed, options.rivals
    compared = profiler_tools(installed, rivals)
    overheads = measure_no_ops(compared, _QUICK_NO_OP_RUNS if options.quick else _NO_OP_RUNS)
    rows = [
        measure(tool, no_op, quick=options.quick)
        for tool, no_op in zip(compared, overheads, strict=True)
    ]
    start_up = measure_start_up(installed, _QUICK_NO_OP_RUNS if options.quick else _NO_OP_RUNS)
    result = figures_of_tool(rows, start_up)
    BenchmarkResult(
        title="Local runs, compared with other profilers",
        figures=result,
        tables=(results_table(rows),),
    ).print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
