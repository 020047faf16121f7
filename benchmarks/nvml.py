"""What watching GPUs costs: a share of one core at one reading a second, beside the bare calls.

    python -m benchmarks.nvml [--gpus 8] [--real] [--json FILE]

Without ``--real`` the driver is the tests' own library, built so that each call takes the CPU time
that was measured on an H200. The floor is the same calls of the binding in a plain loop. Memory is
that of a whole monitor beside three containers, with the GPUs.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Part, tell
from benchmarks.monitor import measure_monitor
from profiler.collectors.nvidia.collector import GpuCollector
from profiler.collectors.nvidia.driver import NvmlSource
from profiler.collectors.nvidia.library import load_binding
from profiler.collectors.nvidia.ownership import GpuScope
from profiler.core.clock import SystemClock
from profiler.core.log import NullLog
from tests.aws import fake_aws

_SOURCE = Path(__file__).parents[1] / "tests" / "integration" / "nvidia" / "fake_nvml.c"
_FIGURE_PERCENT = 0.1
_FIGURE_MIB = 64.0
_MONITOR_SECONDS = 8
_READINGS = 160
_SECOND_NS = 1_000_000_000


class SimulatedClock:
    """A second passes with each reading; nobody waits."""

    def __init__(self) -> None:
        self.now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * _SECOND_NS)


def build(gpus: int, folder: Path) -> None:
    """The driver's library with the measured costs."""
    options = ["-shared", "-fPIC", "-O2", "-DMEASURED_COSTS", f"-DGPUS={gpus}"]
    subprocess.run(["/usr/bin/cc", *options, "-o", folder / "libnvidia-ml.so.1", _SOURCE], check=True)


def cpu_seconds_of(work: Callable[[], None]) -> float:
    """CPU time of this process while it works."""
    before = time.process_time()
    work()
    return time.process_time() - before


def watch_for(seconds: int) -> Callable[[], None]:
    """Readings as the monitor makes them, a second apart on a simulated clock."""
    clock = SimulatedClock()
    watch = GpuCollector(
        NvmlSource(load_binding, SystemClock()), GpuScope(()), clock, NullLog(), _SECOND_NS, is_required=True
    )
    watch.tick()

    def work() -> None:
        for _ in range(seconds):
            clock.now_ns += _SECOND_NS
            watch.tick()

    return work


def bare_calls(nvml: Any, seconds: int) -> Callable[[], None]:  # noqa: ANN401  the binding has no types
    """The same calls with nothing around them, energy as seldom as the monitor reads it."""
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def work() -> None:
        for second in range(seconds):
            for handle in handles:
                nvml.nvmlDeviceGetUtilizationRates(handle)
                nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
                nvml.nvmlDeviceGetPowerUsage(handle)
                nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
                nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
                if second % (10 * len(handles)) == 0:
                    nvml.nvmlDeviceGetTotalEnergyConsumption(handle)

    return work


def monitor_peak_mib() -> float:
    """The high-water mark of a monitor that watches the GPUs, before it puts anything."""
    with fake_aws() as aws:
        return measure_monitor(3, _MONITOR_SECONDS, aws, {"TASK_PROFILER_GPU": "on"}).memory.peak_mib


def figures(ours: float, floor: float, peak_mib: float, gpus: int, *, real: bool) -> tuple[Figure, ...]:
    """Of the watch and of the bare calls, as shares of a core."""
    driver = "this machine's driver" if real else f"{gpus} GPUs with the costs of an H200"
    return (
        Figure(what=f"NVML at 1 Hz, {driver}", value=100 * ours, unit="% of a core", digits=3, at_most=_FIGURE_PERCENT),
        Figure(what="the bare calls", value=100 * floor, unit="% of a core", digits=3),
        Figure(what="ratio to the bare calls", value=ours / floor, unit="×"),
        Figure(
            what="monitor with NVML, memory peak (VmHWM) before the put",
            value=peak_mib,
            unit="MiB",
            digits=1,
            # The played library has not the memory of a driver's own.
            at_most=_FIGURE_MIB if real else None,
            note="" if real else f"the figure of {_FIGURE_MIB:g} MiB is for a real driver's library: --real",
        ),
    )


def main() -> None:
    """Build the library, start again with it, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--real", action="store_true", help="the driver of this machine")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args()
    if not options.real and "LD_LIBRARY_PATH" not in os.environ:
        # The loader reads this variable when a program starts.
        with tempfile.TemporaryDirectory() as folder:
            build(options.gpus, Path(folder))
            words = [sys.executable, "-m", "benchmarks.nvml", *sys.argv[1:]]
            sys.exit(subprocess.run(words, env={**os.environ, "LD_LIBRARY_PATH": folder}, check=False).returncode)
    nvml = load_binding()
    ours = cpu_seconds_of(watch_for(_READINGS)) / _READINGS
    floor = cpu_seconds_of(bare_calls(nvml, _READINGS)) / _READINGS
    found = figures(ours, floor, monitor_peak_mib(), options.gpus, real=options.real)
    tell(Part(title="NVIDIA GPUs", figures=found), options.json)


if __name__ == "__main__":
    main()
