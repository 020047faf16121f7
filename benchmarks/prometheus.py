"""What live metrics cost: a scrape, and the monitor's memory and CPU with them and without.

    python -m benchmarks.prometheus [--seconds 20] [--json FILE]

A scrape's cost is CPU time of the process that answers, all its threads and those that have ended, over many
scrapes: of a tick's first, which writes the text, and of another, which shares it. That process only shows, so
that devices need not be there. Memory is the monitor's high-water mark (VmHWM), after a few scrapes.
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
from profiler.prometheus.metrics import MAX_CORES, MAX_GPUS
from profiler.prometheus.snapshot import MAX_CONTAINERS
from tests.search.server import free_ports
from tests.waiting import wait_until

_CONTAINERS = (3, 10, 100)
_SHOWN = (
    (3, 0, 0),
    (10, 0, 0),
    (MAX_CONTAINERS, 0, 0),
    (3, 8, 0),
    (3, 0, 32),
    (3, 0, MAX_CORES),
    (MAX_CONTAINERS, MAX_GPUS, MAX_CORES),
)
_WARM_UP_SCRAPES, _SCRAPES = 20, 300
_START_SECONDS = 30
_SCRAPE_FIGURE_MS = 2.0


@dataclass(frozen=True)
class Cost:
    """A monitor beside so many containers, without live metrics and with them."""

    containers: int
    off_cpu_percent: float
    off_peak_mib: float
    on_cpu_percent: float
    on_peak_mib: float

    def row(self) -> str:
        """One line of the table."""
        return (
            f"{self.containers:4} containers   off {self.off_cpu_percent:.3f} % {self.off_peak_mib:.1f} MiB   "
            f"on {self.on_cpu_percent:.3f} % {self.on_peak_mib:.1f} MiB"
        )


@dataclass(frozen=True)
class Scrape:
    """One scrape of so much."""

    containers: int
    gpus: int
    cores: int
    series: int
    size_bytes: int
    first_ms: float
    again_ms: float

    def row(self) -> str:
        """One line of the table."""
        met = "met" if self.first_ms <= _SCRAPE_FIGURE_MS else "NOT MET"
        return (
            f"{self.containers:4} containers {self.gpus:3} GPUs {self.cores:4} cores: {self.series:4} series, "
            f"{self.size_bytes:6} bytes   scrape {self.first_ms:.2f} ms (≤ {_SCRAPE_FIGURE_MS:g}: {met}), "
            f"another of the same tick {self.again_ms:.2f} ms"
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


def scraped(port: int) -> bytes:
    """What a scrape shows."""
    return requests.get(f"http://127.0.0.1:{port}/metrics", timeout=10).content


def is_shown(port: int) -> bool:
    """Whether there is anything to scrape yet."""
    try:
        return scraped(port) != b""
    except requests.ConnectionError:
        return False


def measure(containers: int, seconds: float) -> Cost:
    """One monitor without live metrics, one with them."""
    (port,) = free_ports(1)
    with endpoint(containers) as (address, _):
        with monitor(address, None) as pid:
            off = steady(pid, seconds)
        with monitor(address, port) as pid:
            on_cpu_percent = steady(pid, seconds).cpu_percent
            for _ in range(_WARM_UP_SCRAPES):
                scraped(port)
            on_peak_mib = memory(pid).peak_mib
    return Cost(containers, off.cpu_percent, off.memory.peak_mib, on_cpu_percent, on_peak_mib)


def scrape_ms(containers: int, gpus: int, cores: int, *more: str) -> tuple[float, bytes]:
    """Milliseconds of CPU that a scrape takes, and what it shows."""
    (port,) = free_ports(1)
    numbers = map(str, (port, containers, gpus, cores))
    with running((sys.executable, "-m", "benchmarks.shown", *numbers, *more)) as process:
        wait_until(lambda: is_shown(port), _START_SECONDS, "the first scrape")
        for _ in range(_WARM_UP_SCRAPES):
            scraped(port)
        before = process_seconds(process.pid)
        for _ in range(_SCRAPES):
            text = scraped(port)
        return 1000 * (process_seconds(process.pid) - before) / _SCRAPES, text


def measure_scrape(containers: int, gpus: int, cores: int) -> Scrape:
    """Of a tick's first scrape and of another."""
    first_ms, text = scrape_ms(containers, gpus, cores, "ticks")
    again_ms, _ = scrape_ms(containers, gpus, cores)
    series = sum(not line.startswith(b"#") for line in text.splitlines())
    return Scrape(containers, gpus, cores, series, len(text), first_ms, again_ms)


def main(arguments: Sequence[str]) -> None:
    """Measure, print the table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description="Measure live metrics.")
    parser.add_argument("--seconds", type=float, default=20, help="length of each stretch")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    scrapes = []
    for shown in _SHOWN:
        scrapes.append(measure_scrape(*shown))
        print(scrapes[-1].row(), flush=True)
    costs = []
    for containers in _CONTAINERS:
        costs.append(measure(containers, options.seconds))
        print(costs[-1].row(), flush=True)
    if options.json is not None:
        found = {"scrapes": [asdict(one) for one in scrapes], "monitors": [asdict(one) for one in costs]}
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
