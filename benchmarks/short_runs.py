"""Measure short runs under ``task-profiler run``: memory peaks without an own control group,
CPU, and the end of a run.

    python -m benchmarks.short_runs INSTALLED_BIN [--quick] [--json FILE]

INSTALLED_BIN is the bin folder of an environment with this project as users install it. Root needs
``unshare`` and ``mount`` for the peaks: they make the control groups read-only, as in most
containers.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from benchmarks.figures import (
    BenchmarkResult,
    Figure,
    benchmark_parser,
    markdown_table,
)
from benchmarks.local import fill_history, measure_command_seconds
from profiler.record.record_model import NO_MONITOR, NOT_SAMPLED, Record, decode

_READ_ONLY_GROUPS = (
    "while read -r _ _ _ _ place _; do case $place in /sys/fs/cgroup*)"
    ' mount -o remount,bind,ro "$place";; esac; done < /proc/self/mountinfo; exec "$@"'
)
_SPIKE_SECONDS = (0.2, 0.4)
_EARLY_PHASES, _LATE_PHASES = (0.1, 0.37, 0.64, 0.91, 1.18, 1.45), (3.13, 4.49, 6.71)
_QUICK_EARLY_PHASES, _QUICK_LATE_PHASES = (0.1, 0.91), (3.13,)
_WORKLOADS = {
    "spike": "one process",
    "pair 200": "two children, 200 MiB",
    "pair": "two children, 800 MiB",
}
_MAX_PEAK_ERROR_PERCENT = 10
_SLEEP_SECONDS, _QUICK_SLEEP_SECONDS = (3, 10, 60), (3, 10)
_START_UP_SECONDS = 0.3
_START_UP = ("sleep", str(_START_UP_SECONDS))
_CPU_REPETITIONS = 5
_MAX_SAMPLING_PERCENT = 1
_MAX_STEADY_PERCENT = 0.3  # of a single process for a minute
# Processes, interval, and the most percent of a core beyond their start.
_MANY = ((500, "1s", 1.2), (100, "20ms", 3.0))
_MANY_START_SECONDS, _MANY_SECONDS = 3, 33
_IDLE_PROCESSES = 20
_END_ROUNDS, _QUICK_END_ROUNDS = 21, 5


class PeakErrors(Struct, frozen=True):
    """The errors of the memory peaks of one kind of spike, in percent of the kernel's marks."""

    workload: str
    spike_seconds: float
    when: str
    errors_percent: tuple[float, ...]

    @property
    def worst_percent(self) -> float:
        """The largest error without its sign."""
        return max(map(abs, self.errors_percent))


def measure_peaks(installed: Path, *, quick: bool) -> list[PeakErrors]:
    """Measure spikes that begin in the first two seconds, and later."""
    times = {
        "in the first 2 s": _QUICK_EARLY_PHASES if quick else _EARLY_PHASES,
        "later": _QUICK_LATE_PHASES if quick else _LATE_PHASES,
    }
    return [
        PeakErrors(
            workload,
            seconds,
            when,
            tuple(_peak_error_percent(installed, workload, at, seconds) for at in phases),
        )
        for workload in _WORKLOADS
        for seconds in _SPIKE_SECONDS
        for when, phases in times.items()
    ]


def _peak_error_percent(installed: Path, workload: str, phase: float, seconds: float) -> float:
    read_only = (
        ("unshare", "--mount", "sh", "-ec", _READ_ONLY_GROUPS, "sh") if os.geteuid() == 0 else ()
    )
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        actual = Path(name) / "actual.json"
        kind, *mib = workload.split()
        workload_command = (sys.executable, "-m", "benchmarks.workload", str(actual))
        program = (*workload_command, kind, str(phase), str(seconds), *mib)
        record = _run(installed, Path(name), program, wrapper=read_only)
        peak_mib = float(json.loads(actual.read_text())["peak_mib"])
    if record.sampling == NOT_SAMPLED or "cgroup" in record.sampling.sources:
        message = (
            "The command got its own control group: run the benchmark as root with unshare, or "
            "in a container."
        )
        raise SystemExit(message)
    assert record.metrics.max_memory_used_mb is not None
    return 100 * (record.metrics.max_memory_used_mb - peak_mib) / peak_mib


def _run(
    installed: Path,
    folder: Path,
    command: Sequence[str],
    *,
    wrapper: Sequence[str] = (),
    interval: str = "1s",
) -> Record:
    path = folder / "report.jsonl"
    options = ("--no-history", "--interval", interval, "--output", str(path))
    own = (str(installed / "task-profiler"), "run", *options, "--")
    subprocess.run([*wrapper, *own, *command], check=True, stdout=subprocess.DEVNULL)
    return decode(path.read_bytes().splitlines()[-1]).record


def measure_sampling_percent(installed: Path, command: Sequence[str], seconds: int) -> float:
    """Measure the CPU time of a run beyond its start-up, in percent of a core; the median of
    some pairs.

    The start-up is a run of 0.3 s, which has imported all that the readings need.
    """
    percents = []
    for _ in range(_CPU_REPETITIONS if seconds <= max(_QUICK_SLEEP_SECONDS) else 1):
        start_up, whole = (_own_cpu_seconds(installed, one) for one in (_START_UP, command))
        percents.append(100 * (whole - start_up) / (seconds - _START_UP_SECONDS))
    return statistics.median(percents)


def measure_many_percent(installed: Path, processes: int, interval: str) -> float:
    """Measure the CPU time of a run of many processes beyond their start, in percent of a core."""
    begun, whole = (
        _own_cpu_seconds(installed, _sleeps(seconds, processes), interval)
        for seconds in (_MANY_START_SECONDS, _MANY_SECONDS)
    )
    return 100 * (whole - begun) / (_MANY_SECONDS - _MANY_START_SECONDS)


def _own_cpu_seconds(installed: Path, command: Sequence[str], interval: str = "1s") -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        record = _run(installed, Path(name), command, interval=interval)
    assert record.monitor != NO_MONITOR
    assert record.monitor.cpu_seconds is not None
    return record.monitor.cpu_seconds


def _sleeps(seconds: int, processes: int) -> tuple[str, ...]:
    if processes == 1:
        return ("sleep", str(seconds))
    return ("sh", "-c", f"for _ in $(seq {processes - 1}); do sleep {seconds} & done; wait")


def measure_end(installed: Path, rounds: int) -> dict[str, float]:
    """Measure the median wall time of ``run -- true`` in milliseconds, by format, in alternation.

    All rounds add to a history that has 1,000 runs.
    """
    wall_ms: dict[str, list[float]] = {"json": [], "human": []}
    options = {"json": "--json", "human": "--format=human"}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        history = Path(name) / "history.sqlite3"
        fill_history(history)
        os.environ["TASK_PROFILER_HISTORY"] = str(history)
        for round_number in range(rounds + 1):
            for output_format, values in wall_ms.items():
                wall, _ = measure_command_seconds(
                    [str(installed / "task-profiler"), "run", options[output_format], "--", "true"]
                )
                if round_number > 0:  # the first round writes bytecode
                    values.append(wall)
    return {output_format: statistics.median(values) for output_format, values in wall_ms.items()}


def table(peaks: Sequence[PeakErrors]) -> str:
    """Format the errors of the peaks as a Markdown table."""
    rows = [
        [
            _WORKLOADS[one.workload],
            f"{one.spike_seconds:g} s",
            one.when,
            ", ".join(f"{error:+.1f} %" for error in one.errors_percent),
        ]
        for one in peaks
    ]
    return markdown_table(["spike of", "lasts", "begins", "errors of the peak"], rows)


def figures(
    peaks: Sequence[PeakErrors],
    sampling: Sequence[tuple[int, int, float]],
    many: Sequence[float],
    end_ms: dict[str, float],
) -> tuple[Figure, ...]:
    """Compare with the targets.

    ``sampling`` has processes, seconds and percent of a core, ``many`` the percent.
    """
    return (
        *(
            Figure(
                f"memory peak, {one.spike_seconds:g} s of {_WORKLOADS[one.workload]}, {one.when}",
                one.worst_percent,
                "% worst error",
                digits=1,
                at_most=None if one.when == "later" else _MAX_PEAK_ERROR_PERCENT,
            )
            for one in peaks
        ),
        *(
            Figure(
                f"sampling, {seconds} s, {processes} process{'es' if processes > 1 else ''}",
                percent,
                "% of a core",
                at_most=_max_sampling_percent(processes, seconds),
            )
            for processes, seconds, percent in sampling
        ),
        *(
            Figure(
                f"sampling, {processes} processes, interval {interval}",
                percent,
                "% of a core",
                at_most=most_percent,
            )
            for (processes, interval, most_percent), percent in zip(_MANY, many, strict=True)
        ),
        Figure(
            "`run` for a person around a no-op, relative to JSON",
            end_ms["human"] / end_ms["json"],
            "×",
            note=f"{end_ms['human']:.0f} ms and {end_ms['json']:.0f} ms in all",
        ),
    )


def _max_sampling_percent(processes: int, seconds: int) -> float:
    is_steady = processes == 1 and seconds == max(_SLEEP_SECONDS)
    return _MAX_STEADY_PERCENT if is_steady else _MAX_SAMPLING_PERCENT


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("installed", type=Path, help="bin folder of this project's environment")
    parser.add_argument("--quick", action="store_true", help="fewer phases and repetitions")
    options = parser.parse_args(arguments)
    peaks = measure_peaks(options.installed, quick=options.quick)
    sampling = [
        (
            processes,
            seconds,
            measure_sampling_percent(options.installed, _sleeps(seconds, processes), seconds),
        )
        for processes in (1, _IDLE_PROCESSES)
        for seconds in (_QUICK_SLEEP_SECONDS if options.quick else _SLEEP_SECONDS)
    ]
    many = [
        measure_many_percent(options.installed, processes, interval)
        for processes, interval, _ in _MANY
    ]
    end_ms = measure_end(options.installed, _QUICK_END_ROUNDS if options.quick else _END_ROUNDS)
    result = BenchmarkResult(
        title="Short runs", figures=figures(peaks, sampling, many, end_ms), tables=(table(peaks),)
    )
    result.print_and_save(options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
