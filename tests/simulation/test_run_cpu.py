"""The CPU time that ``task-profiler run`` reports without a control group, against what the processes say."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.record.record_model import Record, decode
from profiler.record.worth_a_word import is_cpu_partial
from tests.simulation.known_runs import WITHOUT_GROUPS
from tests.values import present, without_lost_waits

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")

# Each process writes the CPU time that it has used at its end.
_BURNS = """
import ctypes, os, signal, sys, time
def burn(seconds):
    while time.process_time() < seconds: sum(range(1000))
    with open(sys.argv[1], "a") as file: print(time.process_time(), file=file)
def burn_in_children():
    for number in range(4):
        if os.fork() == 0:
            burn(0.7)
            os._exit(0)
    try:
        while True: os.wait()
    except ChildProcessError: pass
"""
_NOT_WAITED_FOR = """
class Action(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_ulong * 16), ("flags", ctypes.c_int),
                ("restorer", ctypes.c_void_p)]
assert ctypes.CDLL(None).sigaction(signal.SIGCHLD, ctypes.byref(Action(flags=2)), None) == 0  # SA_NOCLDWAIT
"""
_IGNORED = "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"


def _profiled(folder: Path, command: Sequence[str]) -> tuple[Record, float]:
    """The record, and the CPU time that the processes have used at least."""
    report, truth = folder / "report.json", folder / "truth"
    run = (sys.executable, "-m", "profiler", "run", "--no-history", "--output", str(report), "--", *command, str(truth))
    subprocess.run([*WITHOUT_GROUPS, *run], check=True)
    return decode(report.read_bytes()).record, sum(map(float, truth.read_text().split()))


def _listed_seconds(record: Record) -> float:
    return sum(process.cpu_seconds or 0 for process in record.processes)


@pytest.mark.parametrize("action", [_NOT_WAITED_FOR, _IGNORED], ids=["SA_NOCLDWAIT", "SIG_IGN"])
def test_the_time_of_children_that_nobody_waits_for_is_a_lower_bound(tmp_path: Path, action: str) -> None:
    record, used_seconds = _profiled(tmp_path, (sys.executable, "-c", f"{_BURNS}{action}burn_in_children()"))
    cpu_seconds = present(record.metrics.cpu_seconds)
    assert is_cpu_partial(record)
    assert present(record.monitor).warnings[0].startswith("A process ignores the end of its children")
    assert _listed_seconds(record) <= cpu_seconds + 1e-6
    assert cpu_seconds <= used_seconds + 0.3  # the processes' starts and ends


@pytest.mark.parametrize("is_command", [True, False])
def test_a_process_that_was_waited_for_has_all_its_time(tmp_path: Path, *, is_command: bool) -> None:
    python = (sys.executable, "-c", f"{_BURNS}burn(1.4)")
    command = python if is_command else ("sh", "-c", '"$@"; true', "sh", *python)
    record, used_seconds = _profiled(tmp_path, command)
    (largest,) = [process for process in record.processes if process.name.startswith("python")]
    assert used_seconds - 0.03 <= present(largest.cpu_seconds) <= present(record.metrics.cpu_seconds)
    assert _listed_seconds(record) <= present(record.metrics.cpu_seconds) + 1e-6
    assert not is_cpu_partial(record)
    assert not without_lost_waits(present(record.monitor).warnings)


def test_a_short_run_has_its_average(tmp_path: Path) -> None:
    record, used_seconds = _profiled(tmp_path, (sys.executable, "-c", f"{_BURNS}burn(0.1)"))
    metrics = record.metrics
    assert present(metrics.cpu_seconds) >= used_seconds
    average = present(metrics.vcpu_used).avg
    assert average == pytest.approx(1000 * present(metrics.cpu_seconds) / present(metrics.duration_ms), rel=0.3)
