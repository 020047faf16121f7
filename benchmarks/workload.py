"""Commands with a known need, for comparing profilers; each writes what it really used to a file.

    python -m benchmarks.workload TRUTH spike PHASE | burn SECONDS | forks CHILDREN | short CHILDREN

The truth is the kernel's, read by the command itself at its end: CPU seconds of itself and the
children it waited for (getrusage), and its own high-water mark (VmHWM).
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
    """Hold 800 MiB for 0.4 s, after so many seconds."""
    time.sleep(phase)
    held = bytearray(_SPIKE_MIB << 20)
    time.sleep(_SPIKE_SECONDS)
    del held
    time.sleep(_REST_SECONDS)


def burn(seconds: float) -> None:
    """Use so much CPU."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def forks(children: float) -> None:
    """Children that use a quarter of a second each, all at once."""
    pids = []
    for _ in range(int(children)):
        pid = os.fork()
        if pid == 0:
            burn(0.25)
            os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)


def short(children: float) -> None:
    """Children that end at once, one after the other."""
    for _ in range(int(children)):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)


def main() -> None:
    """Work, then tell the truth."""
    {"spike": spike, "burn": burn, "forks": forks, "short": short}[sys.argv[2]](float(sys.argv[3]))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    status = Path("/proc/self/status").read_text().splitlines()
    truth = {
        "cpu_seconds": sum(usage.ru_utime + usage.ru_stime for usage in used),
        "peak_mib": next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024,
    }
    Path(sys.argv[1]).write_text(json.dumps(truth))


if __name__ == "__main__":
    main()
