"""The server and its caller, with programs that stand for py-spy."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler.collectors.stacks.py_spy import PySpy, find_py_spy
from profiler.readers.linux import proc
from tests.values import present
from tests.waiting import wait_until

_FRAME = {"name": "f", "filename": "/app/job.py", "short_filename": "job.py", "line": 2}
_THREADS = [{"thread_id": 1, "os_thread_id": 5, "active": True, "frames": [_FRAME]}]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], PySpy]]:
    """Makes the caller of a program, which is the text of a shell script."""
    made = []

    def make(script: str) -> PySpy:
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        spy = PySpy(str(program), time.monotonic_ns)
        spy.start()
        made.append(spy)
        return spy

    yield make
    for spy in made:
        spy.close()


def test_the_program_beside_the_interpreter_comes_first(tmp_path: Path) -> None:
    for folder in ("venv", "usr"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "py-spy").write_text("")
    (tmp_path / "usr" / "py-spy").chmod(0o755)
    path = f"relative:.:{tmp_path}/none:{tmp_path}/usr"
    assert find_py_spy(path, f"{tmp_path}/venv/python") == f"{tmp_path}/usr/py-spy"
    (tmp_path / "venv" / "py-spy").chmod(0o755)
    assert find_py_spy(path, f"{tmp_path}/venv/python") == f"{tmp_path}/venv/py-spy"
    assert find_py_spy(None, "") is None


def test_the_stacks_of_a_process(make: Callable[[str], PySpy]) -> None:
    spy = make(f'[ "$*" = "dump --nonblocking --json --pid 77" ] && echo \'{json.dumps(_THREADS)}\'')
    dump = spy.dump(77)
    assert (dump.failure, [stack.folded for stack in dump.stacks]) == (None, ["f (job.py)"])
    assert dump.cpu_ns > 0
    assert make('[ "$*" = --version ] && echo "py-spy 0.4.3"').version == "py-spy 0.4.3"


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        # The first line of what it prints.
        (
            'echo "Error: Unsupported version of Python: 3.15.0" >&2; echo "Stack backtrace: /root/x" >&2; exit 1',
            "Unsupported version of Python: 3.15.0",
        ),
        *(
            (script, "its output is not the JSON of py-spy")
            for script in ("echo nonsense", "echo '{}'", "head -c 100000 /dev/urandom", ":")
        ),
        ("exec cat /dev/zero", "it was ended by signal 25, after 5 s or too much output"),
        # Its alarm comes after 5 s; this one comes at once.
        ("trap 'exit 3' ALRM; kill -ALRM $$; sleep 1", "exit code 3"),
        ("kill -ALRM $$", "it was ended by signal 14, after 5 s or too much output"),
    ],
)
def test_a_failure_has_its_reason(make: Callable[[str], PySpy], script: str, failure: str) -> None:
    assert make(script).dump(1).failure == failure


def test_a_program_that_cannot_be_executed(tmp_path: Path) -> None:
    spy = PySpy(str(tmp_path / "none"), time.monotonic_ns)
    assert spy.dump(1).failure == "it cannot be started"
    spy.start()
    assert spy.dump(1).failure == "exit code 126"
    assert spy.version == "py-spy"
    spy.close()
    assert spy.dump(1).failure is not None


def test_the_program_gets_no_environment_no_input_and_no_blocked_signals(make: Callable[[str], PySpy]) -> None:
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        spy = make("exec >&2; env -u PWD -u SHLVL -u _ -u OLDPWD; grep -E 'SigBlk' /proc/self/status; exit 1")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    assert spy.dump(1).failure == "SigBlk: 0000000000000000"


def test_a_call_is_killed_with_its_server(make: Callable[[str], PySpy], tmp_path: Path) -> None:
    spy = make(f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    assert spy.pid is not None
    server = spy.pid
    if (child := os.fork()) == 0:
        # The call is made by another process, because it would wait for the answer.
        spy.dump(1)
        os._exit(0)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), 60, "the call")
    called = int((tmp_path / "pid").read_text())
    assert server != called
    spy.kill()
    os.waitpid(child, 0)
    wait_until(lambda: has_ended(called), 60, "the end of the call")


def has_ended(pid: int) -> bool:
    stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
    return stat is None or stat.is_exiting


def test_the_server_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import time\nfrom profiler.collectors.stacks.py_spy import PySpy\n"
        "spy = PySpy('/bin/true', time.monotonic_ns)\nspy.start()\nspy.version\nprint(spy.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        server = int(present(parent.stdout).readline())
        assert not has_ended(server)
        parent.kill()
    wait_until(lambda: has_ended(server), 60, "the end of the server")
