"""A process's memory as the kernel tells it, in MiB."""

import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_KIB_A_MIB = 1024
_LOOK_EVERY_SECONDS = 0.01


@dataclass(frozen=True)
class Memory:
    """Resident, proportional (a page shared by n counts one n-th), and the resident high-water mark."""

    rss_mib: float
    pss_mib: float
    peak_mib: float


def memory(pid: int) -> Memory:
    """Of one process, now. Raises OSError when it is gone, ValueError when it is just going."""
    rollup = _kib(Path(f"/proc/{pid}/smaps_rollup").read_text())
    status = _kib(Path(f"/proc/{pid}/status").read_text())
    if "Rss" not in rollup or "VmHWM" not in status:
        raise ValueError(f"process {pid} has given its memory back")
    return Memory(rollup["Rss"] / _KIB_A_MIB, rollup["Pss"] / _KIB_A_MIB, status["VmHWM"] / _KIB_A_MIB)


def watch_to_the_end(process: subprocess.Popen[bytes]) -> Memory:
    """Each number's largest value until the process has ended.

    Not rusage's maximum, which begins with the memory of the process that forked.
    """
    largest = memory(process.pid)
    while process.poll() is None:
        try:
            now = memory(process.pid)
        except (OSError, ValueError):
            process.wait()
            break
        largest = Memory(
            max(largest.rss_mib, now.rss_mib), max(largest.pss_mib, now.pss_mib), max(largest.peak_mib, now.peak_mib)
        )
        time.sleep(_LOOK_EVERY_SECONDS)
    return largest


def _kib(text: str) -> dict[str, int]:
    """Lines such as ``VmHWM:   31200 kB``."""
    rows = (line.split() for line in text.splitlines() if line.endswith(" kB"))
    return {row[0].rstrip(":"): int(row[1]) for row in rows}
