"""The batch of a proof: it uses what is known, and prints what it used as JSON lines.

The definition carries the text of this file, and Python of the monitor's image runs it: it imports
the standard library alone. A killed program prints nothing at its end, so it prints a line at its
start and before each step; the last line counts.
"""

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

TYPE = "proof.witness"
HELD_BYTES = 150_000_000
WRITTEN_BYTES = 64 << 20
FAILURE_EXIT_CODE = 3
_STEP_BYTES = 8_000_000
_BUSY_SECONDS = 20.0
_ASLEEP_SECONDS = 15.0
_FAILURE_SECONDS = 2.0
# The same values on v1 and v2, as a container without privileges sees its own control group.
_GROUPS = (
    ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "/sys/fs/cgroup/memory/memory.stat", "total_"),
    ("/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", ""),
)


def needed_bytes() -> int | None:
    """The group's usage without what the kernel drops before it kills; None: it cannot be read."""
    for usage, statistics, prefix in _GROUPS:
        try:
            values = dict(line.split() for line in Path(statistics).read_text().splitlines())
            return int(Path(usage).read_text()) - int(values[f"{prefix}inactive_file"])
        except (OSError, KeyError, ValueError):
            continue
    return None


def read_metadata(path: str) -> dict[str, Any]:
    """What the task metadata endpoint returns; empty if it does not answer."""
    address = os.environ.get("ECS_CONTAINER_METADATA_URI_V4", "")
    try:
        with urlopen(f"{address}{path}", timeout=2) as answer:  # noqa: S310  ECS's own address
            document: dict[str, Any] = json.load(answer)
            return document
    except (OSError, ValueError):
        return {}


def print_witness_line(step: str, held_bytes: int = 0, written_bytes: int = 0) -> None:
    """Print a line about the moment before a step."""
    task = read_metadata("/task")
    containers = task.get("Containers", [])
    statistics = read_metadata("/task/stats").values()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    started = [container for container in containers if "StartedAt" in container]
    line = {
        "type": TYPE,
        "step": step,
        "time": time.time(),
        "cpuSeconds": usage.ru_utime + usage.ru_stime,
        "neededBytes": needed_bytes(),
        "heldBytes": held_bytes,
        "writtenBytes": written_bytes,
        "startedAt": {container["Name"]: container["StartedAt"] for container in started},
        "members": {
            "task": sorted(task),
            "container": sorted(set().union(*containers)),
            "stats": sorted(set().union(*filter(None, statistics))),
        },
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def run_success() -> None:
    """One vCPU for 20 s, 150 MB, and 64 MiB on disk; then it sleeps, so that slow statistics see
    all of it.
    """
    end = time.monotonic() + _BUSY_SECONDS
    while time.monotonic() < end:
        sum(range(10_000))
    print_witness_line("hold")
    held = bytearray(os.urandom(1)) * HELD_BYTES
    print_witness_line("write", len(held))
    with tempfile.TemporaryFile() as file:
        for _ in range(WRITTEN_BYTES >> 20):
            file.write(bytes(1 << 20))
            file.flush()
            # At once: the end of another container writes what waits, and nobody is charged.
            os.fsync(file.fileno())
        print_witness_line("sleep", len(held), WRITTEN_BYTES)
        time.sleep(_ASLEEP_SECONDS)
        print_witness_line("end", len(held), WRITTEN_BYTES)


def exhaust_memory() -> None:
    """8 MB more each second, until the kernel ends it."""
    held = [bytearray(os.urandom(1)) * HELD_BYTES]
    while True:
        print_witness_line("grow", sum(map(len, held)))
        time.sleep(1)
        held.append(bytearray(os.urandom(1)) * _STEP_BYTES)


def main(scenario: str) -> int:
    """Run a scenario; returns the exit code."""
    print_witness_line("start")
    if scenario == "success":
        run_success()
        return 0
    if scenario == "memory":
        exhaust_memory()
    time.sleep(_FAILURE_SECONDS)
    return FAILURE_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
