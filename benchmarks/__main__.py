"""Run all benchmarks, compare the results with their targets, and write a table (Markdown) and
JSON.

    python -m benchmarks [--quick] [--installed .venv-installed/bin] [--rivals .venv-rivals/bin]
    [--only BENCHMARK …] [--output build/bench]

Each benchmark runs in its own process, and can also run alone (``python -m benchmarks.monitor
--help``). If a benchmark fails, the table contains the reason, and the other benchmarks still run.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.figures import BenchmarkResult, report_page
from benchmarks.machine import Machine, describe_machine

_ROOT = Path(__file__).resolve().parent.parent


class Benchmark(Struct, frozen=True):
    """A benchmark: its module, its title, its options, and its options for a quick run.

    One with ``is_extra`` runs only if it is named.
    """

    module: str
    title: str
    options: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    is_extra: bool = False


def all_benchmarks(installed: Path, rivals: Path) -> tuple[Benchmark, ...]:
    """All benchmarks.

    The paths are the bin folders of the environments with this project and with other profilers.
    """
    environments = (str(installed), str(rivals))
    return (
        Benchmark("monitor", "Monitor", quick=("--seconds", "8")),
        Benchmark(
            "local",
            "Local runs, compared with other profilers",
            environments,
            (*environments, "--quick"),
        ),
        Benchmark("short_runs", "Short local runs", environments[:1], (str(installed), "--quick")),
        Benchmark("forwarder", "Forwarder", quick=("--reports", "5000")),
        Benchmark("report_page", "HTML report"),
        Benchmark("nvml", "NVIDIA GPUs"),
        Benchmark("resize_windows", "Windows of runs for `resize`", quick=("--runs", "20000")),
        Benchmark("job_sizes", "Sizes of job definitions of AWS Batch", quick=("--runs", "20000")),
        Benchmark(
            "why_threads",
            "Cost of the time breakdown",
            quick=("--seconds", "40", "--watchers", "2"),
        ),
        Benchmark(
            "why_cost",
            "Cost of the call stacks",
            ("--seconds", "60"),
            ("--seconds", "30", "--pairs", "2"),
        ),
        Benchmark(
            "comparison",
            "Comparison of two sets of runs",
            (),
            ("--comparisons", "60"),
            is_extra=True,
        ),
    )


def measure(benchmark: Benchmark, *, quick: bool) -> BenchmarkResult:
    """Run one benchmark. If it fails, the result contains the reason."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = Path(folder) / "part.json"
        options = benchmark.quick if quick else benchmark.options
        module = ("-m", f"benchmarks.{benchmark.module}")
        command = [sys.executable, *module, *options, "--json", str(path)]
        result = subprocess.run(command, cwd=_ROOT, check=False, stderr=subprocess.PIPE, text=True)
        if result.returncode == 0:
            return msgspec.json.decode(path.read_bytes(), type=BenchmarkResult)
    sys.stderr.write(result.stderr)
    last = result.stderr.strip().splitlines()[-1:] or [f"exit code {result.returncode}"]
    return BenchmarkResult(benchmark.title, skip_reason=last[0])


def write(
    folder: Path, machine: Machine, measured_at: datetime, results: Sequence[BenchmarkResult]
) -> None:
    """Write ``bench.json`` and ``bench.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    measured = {
        "measuredAt": measured_at.isoformat(timespec="seconds"),
        "machine": msgspec.to_builtins(machine),
    }
    document = {**measured, "parts": msgspec.to_builtins(results)}
    (folder / "bench.json").write_text(json.dumps(document, indent=2) + "\n")
    head = f"Measured on {measured_at:%Y-%m-%d}: {machine.sentence()}."
    (folder / "bench.md").write_text(f"{head}\n\n{report_page(results)}")


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks, print and write the results.

    Returns 1 if a benchmark failed. A missed target is not a failure, because the machine can be
    the reason.
    """
    parser = argparse.ArgumentParser(
        description="Run all benchmarks and compare the results with their targets."
    )
    parser.add_argument(
        "--quick", action="store_true", help="short measurements with few repetitions"
    )
    parser.add_argument(
        "--installed",
        type=Path,
        default=_ROOT / ".venv-installed" / "bin",
        help="bin folder of the environment in which this project is installed (see make bench)",
    )
    parser.add_argument(
        "--rivals",
        type=Path,
        default=_ROOT / ".venv-rivals" / "bin",
        help="bin folder of the environment with the other profilers (see make bench)",
    )
    parser.add_argument(
        "--only", nargs="+", help="benchmarks to run, by module; comparison runs only if named"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=_ROOT / "build" / "bench",
        help="folder for bench.json and bench.md",
    )
    options = parser.parse_args(arguments)
    machine, measured_at = describe_machine(), datetime.now(UTC)
    selected = [
        benchmark
        for benchmark in all_benchmarks(options.installed, options.rivals)
        if (not benchmark.is_extra if options.only is None else benchmark.module in options.only)
    ]
    if not selected:
        parser.error(f"unknown benchmark {' '.join(options.only)}: see --help")
    results = []
    for benchmark in selected:
        print(f"\n{benchmark.title}", flush=True)
        results.append(measure(benchmark, quick=options.quick))
        # Write after each benchmark, so that an interrupted run keeps its results.
        write(options.output, machine, measured_at, results)
    print("\n" + (options.output / "bench.md").read_text())
    return 0 if all(result.skip_reason is None for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
