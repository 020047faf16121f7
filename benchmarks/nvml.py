"""Measure the cost of reading GPUs once a second, as a share of one core.

    python -m benchmarks.nvml [--gpus 8] [--real] [--json FILE]

Without ``--real``, the driver is the test library, in which each call takes the CPU time that was
measured on an H200. What GPM's calls cost there is not known: with the library their figure is the
cost of the binding and of the profiler. Memory is measured for a complete monitor with the GPUs and three containers.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

from benchmarks.figures import BenchmarkResult, Figure, benchmark_parser
from benchmarks.monitor import measure_monitor
from profiler.collectors.nvidia.gpu_collector import GpuCollector
from profiler.collectors.nvidia.nvml_calls import Nvml, load_binding
from profiler.collectors.nvidia.nvml_source import NvmlSource
from profiler.collectors.nvidia.visible_gpus import GpuScope
from profiler.core.log import Log
from tools.moto_server import fake_aws

_SOURCE = Path(__file__).parents[1] / "tests" / "integration" / "nvidia" / "fake_nvml.c"
_MAX_CPU_PERCENT = 0.1
_MAX_GPM_CPU_PERCENT = 0.5
_MAX_MEMORY_MIB = 64.0
_MONITOR_SECONDS = 8
_READINGS = 160
_SECOND_NS = 1_000_000_000


class SimulatedClock:
    """A clock that advances by one second with each reading, without waiting."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * _SECOND_NS)


def build_library(gpus: int, folder: Path) -> None:
    """Build the simulated driver library with the measured costs."""
    options = ["-shared", "-fPIC", "-O2", "-DMEASURED_COSTS", f"-DGPUS={gpus}"]
    subprocess.run(
        ["/usr/bin/cc", *options, "-o", folder / "libnvidia-ml.so.1", _SOURCE], check=True
    )


def measure_cpu_seconds(work: Callable[[], None]) -> float:
    """Measure the CPU time of this process during the work."""
    before = time.process_time()
    work()
    return time.process_time() - before


def binding_without_gpm() -> Nvml:
    """The binding for GPUs that are older than GPM."""
    unsupported = SimpleNamespace(isSupportedDevice=0)
    return SimpleNamespace(
        **{**vars(import_module("pynvml")), "nvmlGpmQueryDeviceSupport": lambda _: unsupported}
    )


def watch_work(seconds: int, *, with_gpm: bool) -> Callable[[], None]:
    """The monitor's readings, one second apart on a simulated clock."""
    clock = SimulatedClock()
    source = NvmlSource(load_binding if with_gpm else binding_without_gpm, clock)
    watch = GpuCollector(source, GpuScope(()), clock, Log(), _SECOND_NS, is_required=True)
    watch.tick()

    def work() -> None:
        for _ in range(seconds):
            clock.now_ns += _SECOND_NS
            watch.tick()

    return work


def monitor_peak_mib() -> float:
    """Measure the memory peak of a monitor that reads the GPUs, before it uploads a report."""
    with fake_aws() as aws:
        state = measure_monitor(3, _MONITOR_SECONDS, aws, {"TASK_PROFILER_GPU": "on"})
        return state.memory.peak_mib


def figures(
    ours: float, with_gpm: float, peak_mib: float, gpus: int, *, is_real: bool
) -> tuple[Figure, ...]:
    """The figures. ``ours`` and ``with_gpm`` are shares of a core."""
    driver = "this machine's driver" if is_real else f"{gpus} GPUs with the costs of an H200"
    return (
        Figure(
            f"NVML at 1 Hz, {driver}", 100 * ours, "% of a core", digits=3, at_most=_MAX_CPU_PERCENT
        ),
        Figure(
            "NVML and GPM at 1 Hz (0 with TASK_PROFILER_GPU=off)",
            100 * with_gpm,
            "% of a core",
            digits=3,
            at_most=_MAX_GPM_CPU_PERCENT,
            note="" if is_real else "without the cost of GPM in the driver, which is not known",
        ),
        Figure(
            "monitor with NVML, memory peak (VmHWM) before the upload",
            peak_mib,
            "MiB",
            digits=1,
            at_most=_MAX_MEMORY_MIB if is_real else None,
            note=""
            if is_real
            else f"the target of {_MAX_MEMORY_MIB:g} MiB applies to a real driver (--real)",
        ),
    )


def main() -> None:
    """Build the simulated library, restart with it, measure and print the results."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--gpus", type=int, default=8, help="number of simulated GPUs")
    parser.add_argument("--real", action="store_true", help="use the driver of this machine")
    options = parser.parse_args()
    if not options.real and "LD_LIBRARY_PATH" not in os.environ:
        # The loader reads this variable only at the start of a program.
        with tempfile.TemporaryDirectory() as folder:
            build_library(options.gpus, Path(folder))
            command = [sys.executable, "-m", "benchmarks.nvml", *sys.argv[1:]]
            environment = {**os.environ, "LD_LIBRARY_PATH": folder}
            sys.exit(subprocess.run(command, env=environment, check=False).returncode)
    ours, with_gpm = (
        measure_cpu_seconds(watch_work(_READINGS, with_gpm=has_gpm)) / _READINGS
        for has_gpm in (False, True)
    )
    results = figures(ours, with_gpm, monitor_peak_mib(), options.gpus, is_real=options.real)
    BenchmarkResult("NVIDIA GPUs", figures=results).print_and_save(options.json)


if __name__ == "__main__":
    main()
