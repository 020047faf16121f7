"""Programs that everybody runs, whose counters say what they did.

python -m tests.programs.tools NAME SECONDS FOLDER_OR_ADDRESS
"""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.programs.phases import (
    compute,
    forget,
    fork_child,
    phase,
    rounds,
    run_child,
    started,
    time_whole,
    write_down,
)

_LINES = 200_000
# Of what ends between two looks: the parent that reaps it has its CPU time, if one does.
_SHORT_LINES, _SHORT_SECONDS = 80_000, 0.12
_WORKERS = 2


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


def gzip(seconds: float, folder: str, *, reads_output: bool = False) -> None:
    """A loop of short gzips."""
    path = Path(folder, "lines")
    with phase("any"):
        path.write_text("".join(f"{number * 7919 % 10_007}\n" for number in range(_SHORT_LINES)))
    for _ in rounds(seconds):
        run_child("any", "gzip", "--best", "--stdout", str(path), reads_output=reads_output)


def captured(seconds: float, folder: str) -> None:
    """The same, and the parent reads what each prints."""
    gzip(seconds, folder, reads_output=True)


def xargs(seconds: float, folder: str) -> None:
    """Two jobs at a time, each of which times itself."""
    jobs = round(_WORKERS * seconds / (4 * _SHORT_SECONDS))
    job = (sys.executable, "-m", "tests.programs.tools", "job", str(_SHORT_SECONDS))
    subprocess.run(
        ["xargs", f"--max-procs={_WORKERS}", "--max-args=1", *job],
        input=f"{folder}\n" * jobs,
        text=True,
        check=True,
    )


def pool(seconds: float, _: str) -> None:
    """A pool in which each task has a process of its own."""
    tasks = round(_WORKERS * seconds / (2 * _SHORT_SECONDS))
    with multiprocessing.get_context("fork").Pool(_WORKERS, maxtasksperchild=1) as made:
        made.map(_task, range(tasks), chunksize=1)


def _task(_: int) -> None:
    forget()
    time_whole(lambda: compute(_SHORT_SECONDS))
    write_down()


def double_fork(seconds: float, _folder: str) -> None:
    """The child leaves the work to its own, which somebody outside of the batch reaps, and whose
    end the parent sees by a pipe.
    """
    for _ in rounds(seconds):
        reading, writing = os.pipe()
        middle = os.fork()
        if middle == 0:
            os.close(reading)
            fork_child(lambda: compute(_SHORT_SECONDS))
            os._exit(0)
        os.close(writing)
        os.waitpid(middle, 0)
        with phase("pipe"):
            os.read(reading, 1)
        os.close(reading)


def ignored(seconds: float, _folder: str) -> None:
    """Children whose CPU time nobody has but a control group: the kernel reaps them."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in rounds(seconds):
        pid = fork_child(lambda: compute(_SHORT_SECONDS))
        with contextlib.suppress(ChildProcessError), phase("child"):
            os.waitpid(pid, 0)


def psql(seconds: float, address: str) -> None:
    """A query that takes its time in the server, which is no process of this run."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    command = ["psql", "-h", host, "-p", port, "-U", "postgres", "-qAt", "-c", "select pg_sleep(1)"]
    while time.monotonic() < end:
        run_child("network", *command)
        compute(0.2)


NAMES: dict[str, Callable[[float, str], None]] = {
    function.__name__: function
    for function in (sort, make, gzip, captured, xargs, pool, double_fork, ignored, job, psql)
}


def main() -> None:
    started()
    NAMES[sys.argv[1]](float(sys.argv[2]), sys.argv[3])
    write_down()


if __name__ == "__main__":
    main()
