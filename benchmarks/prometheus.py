"""Measure the cost of live metrics: a scrape, and the monitor's memory and CPU with and without live metrics.

    python -m benchmarks.prometheus [--seconds 20] [--json FILE]

The cost of a scrape is the CPU time of the serving process, including ended threads, as a mean over many scrapes. The
first scrape of a tick renders the text, further ones reuse it. The serving process uses simulated metrics, so it needs
no devices. Memory is the monitor's high-water mark (VmHWM) after some scrapes.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from benchmarks.figures import BenchmarkResult, Figure, print_and_save
from benchmarks.measured_process import read_memory, run_process
from benchmarks.monitor import measure_steady_state, run_endpoint
from profiler.prometheus.snapshot import MAX_CONTAINERS
from profiler.record.bounded_json_line import MAX_GPUS, MAX_NEURON_CORES
from tests.search.server import free_ports
from tests.waiting import wait_until

_CONTAINERS = (3, 10, 100)
_SIZES = (
    (3, 0, 0),
    (10, 0, 0),
    (MAX_CONTAINERS, 0, 0),
    (3, 8, 0),
    (3, 0, 32),
    (3, 0, MAX_NEURON_CORES),
    (MAX_CONTAINERS, MAX_GPUS, MAX_NEURON_CORES),
)
_WARM_UP_SCRAPES, _SCRAPES = 20, 300
_START_SECONDS = 30
_MAX_SCRAPE_MS = 2.0


@contextmanager
def run_monitor(address: str, port: int | None) -> Iterator[int]:
    """Run a monitor, with live metrics if a port is given. Yields its process id."""
    environment = {"ECS_CONTAINER_METADATA_URI_V4": address, "TASK_PROFILER_CONTAINER": "batch"}
    if port is not None:
        environment["TASK_PROFILER_PROMETHEUS_PORT"] = str(port)
    with run_process((sys.executable, "-m", "profiler", "monitor"), environment) as process:
        yield process.pid


def cpu_clock_seconds(pid: int) -> float:
    """CPU time from the clock of ``clock_getcpuclockid``. Unlike schedstat it includes ended threads, as of scrapes."""
    return time.clock_gettime(~pid << 3 | 2)


def scrape(port: int) -> bytes:
    """Scrape the metrics."""
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).content


def is_available(port: int) -> bool:
    """Whether there are metrics to scrape."""
    try:
        return scrape(port) != b""
    except requests.ConnectionError:
        return False


def monitor_figures(containers: int, seconds: float) -> Iterator[Figure]:
    """Measure a monitor without live metrics, and one with them."""
    (port,) = free_ports(1)
    with run_endpoint(containers) as (address, _):
        for name, monitor_port in (("off", None), ("on", port)):
            with run_monitor(address, monitor_port) as pid:
                cpu_percent = measure_steady_state(pid, seconds).cpu_percent
                for _ in range(0 if monitor_port is None else _WARM_UP_SCRAPES):
                    scrape(port)
                peak_mib = read_memory(pid).peak_mib
            scope = f"{containers} containers, live metrics {name}"
            yield Figure(name=f"{scope}: CPU", value=cpu_percent, unit="% of a core", digits=3)
            yield Figure(name=f"{scope}: memory peak", value=peak_mib, unit="MiB", digits=1)


def measure_scrape_cost(containers: int, gpus: int, cores: int, *flags: str) -> tuple[float, bytes]:
    """Measure the CPU time of a scrape. Returns milliseconds and the scraped text."""
    (port,) = free_ports(1)
    numbers = map(str, (port, containers, gpus, cores))
    with run_process((sys.executable, "-m", "benchmarks.simulated_metrics", *numbers, *flags)) as process:
        wait_until(lambda: is_available(port), _START_SECONDS, "the first scrape")
        for _ in range(_WARM_UP_SCRAPES):
            scrape(port)
        before = cpu_clock_seconds(process.pid)
        for _ in range(_SCRAPES):
            text = scrape(port)
        return 1000 * (cpu_clock_seconds(process.pid) - before) / _SCRAPES, text


def scrape_figures(containers: int, gpus: int, cores: int) -> Iterator[Figure]:
    """Measure the first and a repeated scrape of a tick."""
    first_ms, text = measure_scrape_cost(containers, gpus, cores, "ticks")
    repeat_ms, _ = measure_scrape_cost(containers, gpus, cores)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    scope = f"{containers} containers, {gpus} GPUs, {cores} cores"
    note = f"{series:,} series, {len(text):,} bytes"
    yield Figure(name=f"{scope}: scrape", value=first_ms, unit="ms", at_most=_MAX_SCRAPE_MS, note=note)
    yield Figure(name=f"{scope}: repeated in the same tick", value=repeat_ms, unit="ms")


def main(arguments: Sequence[str]) -> None:
    """Measure, print the results, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description="Measure live metrics.")
    parser.add_argument("--seconds", type=float, default=20, help="duration of each measurement")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    scrapes = (figure for size in _SIZES for figure in scrape_figures(*size))
    monitors = (figure for containers in _CONTAINERS for figure in monitor_figures(containers, options.seconds))
    print_and_save(BenchmarkResult(title="Live metrics", figures=(*scrapes, *monitors)), options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
