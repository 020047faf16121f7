"""Workloads for the comparison of profilers. Each writes its actual resource usage to a file.

    python -m benchmarks.workload FILE WORKLOAD NUMBER…

WORKLOAD is ``spike PHASE [SECONDS]``, ``pair PHASE SECONDS [MIB]``, ``burn SECONDS``, ``forks
CHILDREN`` or ``short CHILDREN``.

At its end the workload reads its usage from the kernel: CPU seconds of itself and of its children
(getrusage), and high-water marks (VmHWM).
"""

import json
import os
import resource
import sys
import time
from pathlib import Path

_SPIKE_MIB = 800
_SPIKE_SECONDS = 0.4
_REST_SECONDS = 1.2


def hold_spike(phase: float, seconds: float = _SPIKE_SECONDS) -> None:
    """Wait, then hold 800 MiB for 0.4 s. ``phase`` is the wait in seconds."""
    time.sleep(phase)
    held = bytearray(_SPIKE_MIB << 20)
    time.sleep(seconds)
    del held
    time.sleep(_REST_SECONDS)


def spike_of_pair(phase: float, seconds: float, mib: float = _SPIKE_MIB) -> float:
    """Wait, then hold memory in two children, which then exit.

    Returns the peak of all three in MiB.
    """
    time.sleep(phase)
    before_mib, shared_mib = _memory_mib("self", "VmRSS"), _memory_mib("self", "RssAnon")
    is_full, write_full = os.pipe()
    may_end, write_end = os.pipe()
    pids = []
    for _ in range(2):
        pid = os.fork()
        if pid == 0:
            os.close(write_end)
            held = bytearray(int(mib) // 2 << 20)
            os.write(write_full, b"1")
            os.read(may_end, 1)
            os._exit(len(held) == 0)
        pids.append(pid)
    for _ in pids:
        os.read(is_full, 1)
    time.sleep(seconds)
    own_mib = (
        _memory_mib(str(pid), "VmHWM") - _memory_mib(str(pid), "RssFile") - shared_mib
        for pid in pids
    )
    peak_mib = before_mib + sum(own_mib)
    os.close(write_end)
    for pid in pids:
        os.waitpid(pid, 0)
    time.sleep(_REST_SECONDS)
    return peak_mib


def burn_cpu(seconds: float) -> None:
    """Use this much CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def run_parallel_children(children: float) -> None:
    """Run children in parallel, each with 0.25 s of CPU time."""
    pids = []
    for _ in range(int(children)):
        pid = os.fork()
        if pid == 0:
            burn_cpu(0.25)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


def run_short_children(children: float) -> None:
    """Run children that exit immediately, one after the other."""
    for _ in range(int(children)):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def _memory_mib(pid: str, field: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(field)) / 1024


_WORKLOADS = {
    "spike": hold_spike,
    "pair": spike_of_pair,
    "burn": burn_cpu,
    "forks": run_parallel_children,
    "short": run_short_children,
}


def main() -> None:
    """Run the workload, then write its usage."""
    peak_mib = _WORKLOADS[sys.argv[2]](*map(float, sys.argv[3:]))  # type: ignore[operator]
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    totals = {
        "cpu_seconds": sum(usage.ru_utime + usage.ru_stime for usage in usages),
        "peak_mib": peak_mib or _memory_mib("self", "VmHWM"),
    }
    Path(sys.argv[1]).write_text(json.dumps(totals))


if __name__ == "__main__":
    main()
