"""Runs commands under ``task-profiler run`` in a process of its own."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, AnyStr

import pytest

from profiler.readers.cgroup.command_group import make_command_cgroup
from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.linux.process_tree import list_children
from profiler.record.record_model import Record, Report, decode
from tests.readable_code import home_of
from tests.values import present
from tools.waiting import LIMIT_SECONDS, remove_group

PROGRAM = (sys.executable, "-m", "profiler")
RUN = (*PROGRAM, "run")


PYTHON = os.path.realpath(sys.executable)


def python(program: str) -> tuple[str, str, str]:
    """The command that runs this code without the virtual environment."""
    return PYTHON, "-c", program


def system_python() -> str:
    """The system's Python, in a place where everybody can execute it; else the test is skipped."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin:/bin")
    if found is None:
        pytest.skip("needs a Python that every user can execute")
    return found


def counts_memory() -> bool:
    """Whether a control group can be made here that counts memory."""
    own = make_command_cgroup(read_own_cgroups(), os.getpid(), "probe")
    try:
        return own.read_memory() is not None
    finally:
        own.remove(time.sleep)


def run(
    *words: str, options: Sequence[str] = (), **settings: Any
) -> subprocess.CompletedProcess[bytes]:
    """Profile a command to its end, whatever its exit code is. The last line on stderr is its
    report.
    """
    command = (*RUN, "--json", *options, "--", *words)
    return subprocess.run(
        command, capture_output=True, check=False, timeout=LIMIT_SECONDS, **settings
    )


@contextmanager
def ending(process: subprocess.Popen[AnyStr]) -> Iterator[subprocess.Popen[AnyStr]]:
    """A profiler that has ended afterwards, and its command with it, also when the test fails."""
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                commands = list_children(process.pid, threads=1)
                process.kill()
                for pid in commands:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)


@contextmanager
def started(
    *words: str, options: Sequence[str] = (), **settings: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A profiled command that has said that it is ready."""
    command = (*RUN, "--json", *options, "--", *words)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, **settings
    )
    with ending(process):
        assert present(process.stdout).readline() == b"ready\n"
        yield process


@contextmanager
def alone(resource: str) -> Iterator[None]:
    """No other test changes this resource of the machine, of which nothing tells who has it."""
    with Path(f"/var/tmp/task-profiler-test-{os.geteuid()}-{resource}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def limited_group(limit_mib: int, name: str = "") -> Iterator[Path]:
    """A control group of version 1 below the own one, with so much memory; a process enters it by
    :func:`entering`.
    """
    place = read_own_cgroups().location_in("memory")
    if place is None:
        pytest.skip("needs version 1 of the memory controller")
    group = Path(place.folder, name or f"test-limited-{os.getpid()}")
    try:
        group.mkdir()
    except PermissionError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit_mib << 20))
        yield group
    finally:
        remove_group(group)


def entering(group: Path, *words: str) -> tuple[str, ...]:
    """The command that runs these words in a group."""
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *words)


def report_of(stderr: bytes) -> Report:
    return decode(stderr.splitlines()[-1])


def profiled(
    environment: Mapping[str, str], *words: str, **settings: str
) -> tuple[Record, list[str]]:
    """The record of a command that succeeds, with these settings, and what stood on stderr
    before it.
    """
    own = {f"TASK_PROFILER_{name}": value for name, value in settings.items()}
    done = run(*words, options=("--interval", "0.1"), env={**os.environ, **environment, **own})
    assert done.returncode == 0, done.stderr
    return report_of(done.stderr).record, done.stderr.decode().splitlines()[:-1]


def is_memory_unsure(record: Record) -> bool:
    """Whether memory grew during the run of which nothing tells who made it, as that of another
    test: the peak is ``sampled`` then, and there is no advice.
    """
    return any("memory peak may have been" in text for text in present(record.monitor).warnings)


def lacks_advice(record: Record) -> bool:
    """Whether memory, or huge pages of the machine, may be another test's: there is no advice."""
    huge_pages = "huge pages were taken during the run"
    is_unsure = any(huge_pages in text for text in present(record.monitor).warnings)
    return is_unsure or is_memory_unsure(record)


_NOBODY = 65534
_BECOMES_NOBODY = """
import os, sys
os.environ.pop("PYTHONHOME", None)  # the command's Python has a home of its own
sys.path.insert(0, sys.argv.pop(1))
os.setgroups([])
os.setgid(_NOBODY)
os.setuid(_NOBODY)
"""
_MAIN = "from profiler.cli import main\nmain()\n"


def as_nobody(code: Path, program: str = _MAIN, user: int = _NOBODY) -> tuple[str, ...]:
    """The beginning of a command: the profiler, or another program, as another user. It imports
    all modules as this user, from ``code``, the folder of the fixture `code_for_all`.
    """
    home = home_of(code)
    settings = () if home is None else (f"PYTHONHOME={home}",)
    becomes = _BECOMES_NOBODY.replace("_NOBODY", str(user))
    return ("env", *settings, *python(f"{becomes}{program}"), str(code))
