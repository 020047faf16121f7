"""A program that waits for a process which somebody stops for most of the time.

python -m tests.programs.stopped WAIT SECONDS [freezer.state|cgroup.freeze GROUPS]

With the name of a file, a group below this folder of control groups is frozen in place of a signal.
"""

import contextlib
import fcntl
import functools
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.programs.phases import FOLDER, compute, forget, phase, rounds, started, write_down

_WORK_SECONDS = 0.2
_STOPPED_SECONDS = 0.9
_BY_SIGNAL = ("kill -STOP $1", "kill -CONT $1")
_BY_FILE = {"freezer.state": ("FROZEN", "THAWED"), "cgroup.freeze": ("1", "0")}
# The line says that the process is stopped. What waits is no other process of this program.
_STOP = "{stop}; echo; exec >&-; sleep {seconds}; {go_on}"


def _commands() -> tuple[str, str]:
    """Shell commands that stop the process ``$1`` and let it go on."""
    if not sys.argv[3:]:
        return _BY_SIGNAL
    name, group = sys.argv[3], Path(sys.argv[4], f"task-profiler-stopped-{os.getpid()}")
    group.mkdir(exist_ok=True)
    stop, go_on = (f"echo {state} > {group}/{name}" for state in _BY_FILE[name])
    return f"echo $1 > {group}/cgroup.procs; {stop}", go_on


@contextlib.contextmanager
def _stopped(
    work: Callable[[], object] = lambda: None, before: Callable[[], object] = lambda: None
) -> Iterator[int]:
    """A child that is stopped between both works."""
    stop, go_on = _commands()
    reading, writing = os.pipe()
    is_ready, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        forget()
        before()
        os.write(ready, b".")
        os.read(reading, 1)
        work()
        os._exit(0)
    os.read(is_ready, 1)
    compute(_WORK_SECONDS)  # a reading finds the child meanwhile
    script = _STOP.format(stop=stop, go_on=go_on, seconds=_STOPPED_SECONDS)
    with subprocess.Popen(["sh", "-c", script, "sh", str(pid)], stdout=writing):
        yield pid
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    for descriptor in (reading, writing, is_ready, ready):
        os.close(descriptor)


def _child() -> None:
    with _stopped() as pid, phase("other"):
        os.waitpid(pid, 0)


def _thread() -> None:
    """The main thread waits for a thread that waits for the child."""
    with _stopped() as pid:
        thread = threading.Thread(target=os.waitpid, args=(pid, 0))
        with phase("other"):
            thread.start()
            thread.join()


def _pipe() -> None:
    reading, writing = os.pipe()
    with _stopped(lambda: os.write(writing, b".")), phase("other"):
        os.close(writing)
        os.read(reading, 1)
    os.close(reading)


def _answer() -> None:
    """The child is a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    with client, server, _stopped(lambda: server.sendall(b".")):
        server.close()
        with phase("other"):
            client.recv(1)


def _file_lock() -> None:
    path = Path(os.environ[FOLDER], f"lock-{os.getpid()}")

    def hold() -> None:
        fcntl.flock(os.open(path, os.O_WRONLY), fcntl.LOCK_EX)

    with path.open("w") as wanted, _stopped(before=hold), phase("other"):
        fcntl.flock(wanted, fcntl.LOCK_EX)


_new_lock = functools.cache(multiprocessing.get_context("fork").Lock)


def _memory_lock() -> None:
    lock = _new_lock()
    with _stopped(lock.release, before=lock.acquire), phase("other"):
        lock.acquire()
    lock.release()


_WAITS: dict[str, Callable[[], None]] = {
    function.__name__.removeprefix("_"): function
    for function in (_child, _thread, _pipe, _answer, _file_lock, _memory_lock)
}


def main() -> None:
    started()
    for _ in rounds(float(sys.argv[2])):
        _WAITS[sys.argv[1]]()
    for folder in sys.argv[4:]:
        Path(folder, f"task-profiler-stopped-{os.getpid()}").rmdir()
    write_down()


if __name__ == "__main__":
    main()
