"""Call stacks of real programs, read by the real py-spy."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profiler.collectors.stacks.py_spy import find_py_spy

_RUN = (sys.executable, "-m", "profiler", "run", "--no-history")
_SPY = find_py_spy(os.environ.get("PATH"), sys.executable)
pytestmark = pytest.mark.skipif(_SPY is None, reason="py-spy is not installed")

# One function for each of the things that a program does; the argument is its name.
_PROGRAM = """
import socket, subprocess, sys, threading, time

def burn(until):
    while time.monotonic() < until:
        sum(range(1000))

def wait_for_socket(until):
    ours, theirs = socket.socketpair()
    ours.settimeout(until - time.monotonic())
    try:
        ours.recv(1)
    except TimeoutError:
        pass

def sleep(until):
    time.sleep(until - time.monotonic())

def wait_for_lock(until):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=until - time.monotonic())

def wait_for_child(until):
    subprocess.call(["sleep", str(until - time.monotonic())])

def in_thread(until):
    thread = threading.Thread(target=burn, args=(until,))
    thread.start()
    thread.join()

def in_child(until):
    subprocess.call([sys.executable, __file__, "burn", str(until - time.monotonic())])

globals()[sys.argv[1]](time.monotonic() + float(sys.argv[2]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "job.py"
    file.write_text(_PROGRAM)
    return file


def run_with_stacks(*command: object, option: str = "--stacks") -> dict[str, Any]:
    finished = subprocess.run(
        [*_RUN, option, "--", *map(str, command)], stderr=subprocess.PIPE, check=True, timeout=120
    )
    record: dict[str, Any] = json.loads(finished.stderr.splitlines()[-1])["record"]
    return record


@pytest.mark.parametrize(
    ("what", "function"),
    [("burn", "burn"), ("in_thread", "burn"), ("in_child", "burn")],
)
def test_the_function_that_runs_is_named(program: Path, what: str, function: str) -> None:
    record = run_with_stacks(sys.executable, program, what, 4)
    assert record["monitor"]["warnings"] == []
    stacks = record["stacks"]
    assert stacks["source"].startswith("py-spy 0.")
    assert stacks["samples"] >= 3
    top = stacks["top"][0]
    assert (top["function"], top["file"]) == (function, "job.py")
    assert top["selfPercent"] >= 95
    text = program.read_text().splitlines()
    assert "time.monotonic() < until" in text[top["line"] - 1] or "sum(" in text[top["line"] - 1]
