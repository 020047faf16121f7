"""Workloads for the comparison of profilers. Each writes its actual resource usage to a file.

    python -m benchmarks.workload FILE spike PHASE | burn SECONDS | forks CHILDREN | short CHILDREN

At its end the workload reads its usage from the kernel: CPU seconds of itself and of its children (getrusage), and its
high-water mark (VmHWM).
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


def spike(phase: float) -> None:
    """Wait, then hold 800 MiB for 0.4 s. ``phase`` is the wait in seconds."""
    time.sleep(phase)
    held = bytearray(_SPIKE_MIB << 20)
    time.sleep(_SPIKE_SECONDS)
    del held
    time.sleep(_REST_SECONDS)


def burn(seconds: float) -> None:
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
            burn(0.25)
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


def main() -> None:
    """Run the workload, then write its usage."""
    {"spike": spike, "burn": burn, "forks": run_parallel_children, "short": run_short_children}[sys.argv[2]](
        float(sys.argv[3])
    )
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    status = Path("/proc/self/status").read_text().splitlines()
    totals = {
        "cpu_seconds": sum(usage.ru_utime + usage.ru_stime for usage in usages),
        "peak_mib": next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024,
    }
    Path(sys.argv[1]).write_text(json.dumps(totals))


if __name__ == "__main__":
    main()
