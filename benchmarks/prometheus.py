"""What live metrics cost: a scrape, and the monitor's memory and CPU with them and without.

    python -m benchmarks.prometheus [--seconds 20] [--json FILE]

A scrape's cost is CPU time of the monitor, all its threads and those that have ended: over a stretch with scrapes,
less that of a stretch without, by their number. Memory is the high-water mark (VmHWM).
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import requests

from benchmarks.monitor import endpoint, steady
from benchmarks.process_memory import memory
from benchmarks.running import running
from tests.search.server import free_ports

_CONTAINERS = (3, 10, 100)
_PAUSE_SECONDS = 0.1
_SCRAPE_FIGURE_MS = 2.0


@dataclass(frozen=True)
class Cost:
    """A monitor beside so many containers."""

    containers: int
    off_cpu_percent: float
    off_peak_mib: float
    on_cpu_percent: float
    on_peak_mib: float
    scrape_ms: float
    scrape_bytes: int

    def row(self) -> str:
        """One line of the table."""
        met = "met" if self.scrape_ms <= _SCRAPE_FIGURE_MS else "NOT MET"
        return (
            f"{self.containers:4} containers   off {self.off_cpu_percent:.3f} % {self.off_peak_mib:.1f} MiB   "
            f"on {self.on_cpu_percent:.3f} % {self.on_peak_mib:.1f} MiB   "
            f"scrape {self.scrape_ms:.2f} ms (≤ {_SCRAPE_FIGURE_MS:g}: {met}), {self.scrape_bytes} bytes"
        )


@contextmanager
def monitor(address: str, port: int | None) -> Iterator[int]:
    """The process id of a monitor, with live metrics if there is a port."""
    environment = {"ECS_CONTAINER_METADATA_URI_V4": address, "TASK_PROFILER_CONTAINER": "batch"}
    if port is not None:
        environment["TASK_PROFILER_PROMETHEUS_PORT"] = str(port)
    with running((sys.executable, "-m", "profiler", "monitor"), environment) as process:
        yield process.pid


def process_seconds(pid: int) -> float:
    """By the clock that ``clock_getcpuclockid`` gives; schedstat forgets threads that have ended, as a scrape's do."""
    return time.clock_gettime(~pid << 3 | 2)


def scrape(pid: int, port: int, idle_cpu_percent: float, seconds: float) -> tuple[float, int]:
    """Milliseconds of CPU that a scrape takes, and its size in bytes, over so many seconds of scraping."""
    before, began = process_seconds(pid), time.monotonic()
    sizes = []
    while time.monotonic() < began + seconds:
        sizes.append(len(requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).content))
        time.sleep(_PAUSE_SECONDS)
    passed = time.monotonic() - began
    used_seconds = process_seconds(pid) - before - passed * idle_cpu_percent / 100
    return 1000 * used_seconds / len(sizes), sizes[-1]


def measure(containers: int, seconds: float) -> Cost:
    """One monitor without live metrics, one with them that is not scraped at first."""
    (port,) = free_ports(1)
    with endpoint(containers) as (address, _):
        with monitor(address, None) as pid:
            off = steady(pid, seconds)
        with monitor(address, port) as pid:
            on_cpu_percent = steady(pid, seconds).cpu_percent
            scrape_ms, size_bytes = scrape(pid, port, on_cpu_percent, seconds)
            on_peak_mib = memory(pid).peak_mib
    return Cost(containers, off.cpu_percent, off.memory.peak_mib, on_cpu_percent, on_peak_mib, scrape_ms, size_bytes)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure live metrics.")
    parser.add_argument("--seconds", type=float, default=20, help="length of each stretch")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    costs = []
    for containers in _CONTAINERS:
        costs.append(measure(containers, options.seconds))
        print(costs[-1].row(), flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(cost) for cost in costs], indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
