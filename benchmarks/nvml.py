"""Measure the cost of watching GPUs in real time, as a share of one core.

    python -m benchmarks.nvml [--seconds 60] [--real] [--json FILE]

The thread of the collector reads once a second and sleeps in between: a call of the driver takes
several times as long then as in a loop. Without ``--real``, the driver is the test library, with
one GPU and with eight, in which each call takes the CPU time that it took on an H100 once a second.
Memory is measured for a complete monitor with the GPUs and three containers.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.monitor import measure_monitor
from tools.moto_server import fake_aws

_SOURCE = Path(__file__).parents[1] / "tests" / "integration" / "nvidia" / "fake_nvml.c"
# In percent of a core, by the number of GPUs.
_MAX_CPU_PERCENT = {1: 0.25, 8: 1.2}
_MAX_MEMORY_MIB = 64.0
_MONITOR_SECONDS = 8


def build_library(gpus: int, folder: Path) -> None:
    """Build the simulated driver library with the measured costs."""
    options = ["-shared", "-fPIC", "-O2", "-DMEASURED_COSTS", f"-DGPUS={gpus}"]
    subprocess.run(
        ["/usr/bin/cc", *options, "-o", folder / "libnvidia-ml.so.1", _SOURCE], check=True
    )


def share_in_own_process(seconds: float, library: Path | None) -> float:
    """As ``cpu_share``: the loader reads its search path only at the start of a program."""
    environment = dict(os.environ)
    if library is not None:
        environment["LD_LIBRARY_PATH"] = str(library)
    code = f"from benchmarks.gpu_cost import cpu_share; print(cpu_share({seconds}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True
    )
    return float(done.stdout)


def monitor_peak_mib(library: Path | None) -> float:
    """Measure the memory peak of a monitor that reads the GPUs, before it uploads a report."""
    environment = {"TASK_PROFILER_GPU": "on"}
    if library is not None:
        environment["LD_LIBRARY_PATH"] = str(library)
    with fake_aws() as aws:
        return measure_monitor(3, _MONITOR_SECONDS, aws, environment).memory.peak_mib


def memory_figure(peak_mib: float, *, is_real: bool) -> Figure:
    """The memory of a monitor; the target is for a real driver."""
    note = "" if is_real else f"the target of {_MAX_MEMORY_MIB:g} MiB is for a real driver (--real)"
    return Figure(
        "monitor with NVML, memory peak (VmHWM) before the upload",
        peak_mib,
        "MiB",
        digits=1,
        at_most=_MAX_MEMORY_MIB if is_real else None,
        note=note,
    )


def cpu_figure(name: str, share: float, at_most: float | None) -> Figure:
    """The cost of all readings, those of the processes between two seconds included."""
    return Figure(
        f"NVML and GPM in real time, {name}", 100 * share, "% of a core", digits=3, at_most=at_most
    )


def simulated_figures(seconds: float) -> list[Figure]:
    """The figures with the test library."""
    found: list[Figure] = []
    peak_mib = 0.0
    for gpus, at_most in _MAX_CPU_PERCENT.items():
        with tempfile.TemporaryDirectory() as folder:
            build_library(gpus, Path(folder))
            name = f"{gpus} simulated with the costs of an H100"
            share = share_in_own_process(seconds, Path(folder))
            found.append(cpu_figure(name, share, at_most))
            peak_mib = monitor_peak_mib(Path(folder))
    return [*found, memory_figure(peak_mib, is_real=False)]


def main() -> None:
    """Measure and print the results."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="time of each measurement")
    parser.add_argument("--real", action="store_true", help="use the driver of this machine")
    options = parser.parse_args()
    if options.real:
        share = share_in_own_process(options.seconds, None)
        results = [
            cpu_figure("this machine", share, None),
            memory_figure(monitor_peak_mib(None), is_real=True),
        ]
    else:
        results = simulated_figures(options.seconds)
    BenchmarkResult("NVIDIA GPUs", figures=tuple(results)).print_and_save(options.json)


if __name__ == "__main__":
    main()
