"""Programs that everybody runs, whose counters say what they did.

python -m tests.programs.tools NAME SECONDS FOLDER_OR_ADDRESS
"""

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.programs.phases import compute, phase, run_child, started, write_down

_LINES = 200_000


def sort(seconds: float, folder: str) -> None:
    """Sort a file with one thread, again and again."""
    path, end = Path(folder, "lines"), time.monotonic() + seconds
    with phase("any"):
        path.write_text("".join(f"{random.random()}\n" for _ in range(_LINES)))
    while time.monotonic() < end:
        run_child("any", "sort", "--parallel=1", "--output", f"{path}.sorted", str(path))


def make(seconds: float, folder: str) -> None:
    """Two jobs at a time, each of which times itself."""
    job = f"\t@{sys.executable} -m tests.programs.tools job {seconds / 4} .\n"
    names = "a b c d"
    Path(folder, "Makefile").write_text(f"all: {names}\n{names}:\n{job}")
    subprocess.run(["make", "--silent", "--jobs=2", "--directory", folder, "all"], check=True)


def job(seconds: float, _: str) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        compute(0.1)


def psql(seconds: float, address: str) -> None:
    """A query that takes its time in the server, which is no process of this run."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    command = ["psql", "-h", host, "-p", port, "-U", "postgres", "-qAt", "-c", "select pg_sleep(1)"]
    while time.monotonic() < end:
        run_child("network", *command)
        compute(0.2)


NAMES: dict[str, Callable[[float, str], None]] = {
    function.__name__: function for function in (sort, make, job, psql)
}


def main() -> None:
    started()
    NAMES[sys.argv[1]](float(sys.argv[2]), sys.argv[3])
    write_down()


if __name__ == "__main__":
    main()
