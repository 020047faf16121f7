"""Run a program for a measurement, and read its memory from the kernel."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure

_KIB_PER_MIB = 1024
_POLL_SECONDS = 0.01


@dataclass(frozen=True)
class ProcessMemory:
    """Resident memory, proportional memory (a page that n processes share counts 1/n), and peak
    resident memory.
    """

    rss_mib: float
    pss_mib: float
    peak_mib: float


def process_figures(
    name: str,
    command: Sequence[str],
    *,
    expected: str | None = None,
    environment: Mapping[str, str] | None = None,
    max_seconds: float | None = None,
    max_cpu_seconds: float | None = None,
    max_memory_mib: float | None = None,
) -> list[Figure]:
    """The time, the CPU time and the peak memory of a process that succeeds.

    ``expected`` is what it prints, and ``environment`` has further variables. The peak is at least that of this process. Raises RuntimeError.
    """
    begin_s = time.perf_counter()
    whole = {**os.environ, **(environment or {})}
    process = subprocess.Popen(command, env=whole, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin_s
    if status or (expected is not None and printed.strip() != expected):
        raise RuntimeError(f"{name} ended with {status}: {printed[:500]!r}")
    cpu_seconds = usage.ru_utime + usage.ru_stime
    peak_mib = usage.ru_maxrss / _KIB_PER_MIB
    return [
        Figure(f"{name}: time", seconds, "s", digits=1, at_most=max_seconds),
        Figure(f"{name}: CPU time", cpu_seconds, "s", digits=1, at_most=max_cpu_seconds),
        Figure(f"{name}: peak memory", peak_mib, "MiB", at_most=max_memory_mib),
    ]


@contextmanager
def run_process(
    command: Sequence[str],
    extra_environment: Mapping[str, str] | None = None,
    *,
    folder: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program without its output (in a folder if given), and kill it at the end of the
    block.
    """
    environment = {**os.environ, **(extra_environment or {})}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=folder)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def read_memory(pid: int) -> ProcessMemory:
    """Read the memory of a process.

    Raises:
        OSError: The process has ended.
        ValueError: The process is ending and has released its memory.
    """
    rollup = _kib(Path(f"/proc/{pid}/smaps_rollup").read_text())
    status = _kib(Path(f"/proc/{pid}/status").read_text())
    if "Rss" not in rollup or "VmHWM" not in status:
        raise ValueError(f"process {pid} has released its memory")
    return ProcessMemory(
        rollup["Rss"] / _KIB_PER_MIB, rollup["Pss"] / _KIB_PER_MIB, status["VmHWM"] / _KIB_PER_MIB
    )


def watch_until_exit(process: subprocess.Popen[bytes]) -> ProcessMemory:
    """Wait for the end of the process. Returns the maximum of each number.

    The maximum of rusage is not usable: it includes the memory of the parent process before exec.
    """
    maximum = read_memory(process.pid)
    while process.poll() is None:
        try:
            current = read_memory(process.pid)
        except (OSError, ValueError):
            process.wait()
            break
        maximum = ProcessMemory(
            max(maximum.rss_mib, current.rss_mib),
            max(maximum.pss_mib, current.pss_mib),
            max(maximum.peak_mib, current.peak_mib),
        )
        time.sleep(_POLL_SECONDS)
    return maximum


def _kib(text: str) -> dict[str, int]:
    """Parse lines such as ``VmHWM:   31200 kB``."""
    rows = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {row[0].rstrip(":"): int(row[1]) for row in rows}
