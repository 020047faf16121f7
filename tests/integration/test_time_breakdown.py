"""What real programs wait for, as ``task-profiler run`` divides their time."""

import os
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from profiler.record.activity_model import NO_BREAKDOWN, TimeBreakdown
from profiler.record.record_model import Record
from tests.integration.profiled import RUN, as_nobody, python, report_of, run
from tests.values import present
from tools.waiting import LIMIT_SECONDS

_MOST, _LEAST = 60.0, 5.0  # percent

# The other end is a child, which waits for a signal: that is no kind.
_CONNECTED = """
import os, signal, socket
listening = socket.socket()
listening.bind(("127.0.0.1", 0))
listening.listen()
if not os.fork():
    connection, _ = listening.accept()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 2)
    signal.pause()
    os._exit(0)
connection = socket.create_connection(listening.getsockname())
"""
_PAIR = """
import os, signal, socket
own, others = socket.socketpair()
if not os.fork():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 2)
    signal.pause()
    os._exit(0)
others.close()
"""
_PROGRAMS = {
    "sleep": "import time; time.sleep(2)",
    "sleep: event": "import threading; threading.Event().wait(2)",
    "sleep: queue": """
import contextlib, queue
with contextlib.suppress(queue.Empty):
    queue.Queue().get(timeout=2)
""",
    "lock": """
import os, signal, threading
signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
signal.setitimer(signal.ITIMER_REAL, 2)
lock = threading.Lock()
lock.acquire()
lock.acquire()
""",
    # A POSIX mutex says which thread holds it.
    "lock: mutex": """
import ctypes, struct, time
mutex, libc = ctypes.create_string_buffer(64), ctypes.CDLL(None)
libc.pthread_mutex_lock(mutex)
libc.pthread_mutex_timedlock(mutex, struct.pack("=qq", int(time.time()) + 3, 0))
""",
    "pipe: socket pair": _PAIR + "own.recv(1)",
    "pipe: socket pair in epoll": _PAIR
    + "import selectors\nloop = selectors.EpollSelector()\nloop.register(own, 1)\nloop.select()",
    "pipe": (
        "import os, threading; r, w = os.pipe(); threading.Timer(2, os.write, (w, "
        "b'x')).start(); os.read(r, 1)"
    ),
    "pipe: named": (
        "import os, tempfile, threading; name = tempfile.mkdtemp() + '/pipe'; os.mkfifo(name); "
        "r = os.open(name, os.O_RDWR); threading.Timer(2, os.write, (r, b'x')).start(); "
        "os.read(r, 1)"
    ),
    "network": _CONNECTED + "connection.recv(1)",
    # The peer of a connection is named.
    "network: poll": _CONNECTED
    + "import select\npoll = select.poll()\npoll.register(connection, 1)\npoll.poll()",
    "network: select": _CONNECTED + "import select\nselect.select([connection], [], [], 900)",
    "network: epoll": _CONNECTED
    + (
        "import selectors\nloop = selectors.EpollSelector()\nloop.register(connection, "
        "1)\nloop.select()"
    ),
}
_BURN = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\n"


def _record(program: str, *prefix: str) -> Record:
    finished = run(*prefix, *python(program), options=("--interval", "0.1"))
    assert finished.returncode == 0, finished.stderr
    return report_of(finished.stderr).record


def _breakdown(program: str, *prefix: str) -> TimeBreakdown:
    return present(_record(textwrap.dedent(program), *prefix).time_breakdown)


def _of_waits(made: TimeBreakdown, kind: str) -> float:
    """The share of a wait in all waits that looks explain, but the wait for a CPU, which depends on
    the load of the machine. While the profiler itself waits for a CPU, nobody looks: that is other.
    """
    unexplained = min(100 - present(made.covered_percent), made.other_percent or 0)
    rest = 100 - (made.on_cpu_percent or 0) - (made.waiting_for_cpu_percent or 0) - unexplained
    if rest < _LEAST:
        return 100.0
    return float(100 * (getattr(made, f"{kind}_percent") or 0) / rest)


@pytest.mark.parametrize("name", _PROGRAMS)
def test_what_a_program_waits_for(name: str) -> None:
    made, (kind, _, call) = _breakdown(_PROGRAMS[name]), name.partition(": ")
    assert _of_waits(made, kind) > _MOST
    assert kind != "network" or not call or made.waiting_for[0].target.startswith("127.0.0.1:")


@pytest.mark.slow
def test_a_child_that_computes_is_on_the_cpu_and_not_waited_for() -> None:
    made = _breakdown(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_BURN!r}])")
    assert present(made.child_percent) < _MOST
    assert (made.on_cpu_percent or 0) + (made.waiting_for_cpu_percent or 0) > _MOST


def test_writes_to_a_file(tmp_path: Path) -> None:
    program = f"""
    import os, time
    end = time.monotonic() + 2
    descriptor = os.open({str(tmp_path / "written")!r}, os.O_CREAT | os.O_WRONLY)
    while time.monotonic() < end:
        os.pwrite(descriptor, bytes(1 << 20), 0)
        os.fsync(descriptor)
    """
    made = _breakdown(program)
    parts = (made.on_cpu_percent, made.waiting_for_cpu_percent, made.disk_percent)
    # On a busy machine a late reading leaves a part unknown.
    explained_percent = present(made.covered_percent)
    assert sum(part or 0 for part in parts) > _MOST * explained_percent / 100, made
    if made.disk_percent:  # a folder in memory has no waits
        assert str(tmp_path / "written") in [row.target for row in made.waiting_for]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("taskset") is None, reason="needs taskset")
def test_two_programs_on_one_cpu_wait_for_each_other() -> None:
    cpu = str(min(os.sched_getaffinity(0)))
    start = f"subprocess.Popen([sys.executable, '-c', {_BURN!r}])"
    program = f"import subprocess, sys\nfor each in [{start}, {start}]: each.wait()"
    record = _record(program, "taskset", "-c", cpu)
    assert (
        present(record.metrics.cpu_wait_seconds) > 0.7
    )  # each of them waits while the other one runs for a second
    assert max(value or 0 for value in present(record.series).cpu_wait or ()) > 0.5


_LOOKS = """
import sys, time
from profiler.readers.linux.process_tree import ProcessReading
from profiler.readers.linux.thread_reader import ThreadReader
reading = ProcessReading(pid=int(sys.argv[1]), started_ticks=1, own_cpu_ns=1, children_cpu_ns=0, state="S")
reader = ThreadReader(time.thread_time_ns)
reader.follow([reading])
look = reader.look(1, is_fresh=True)
blocked = [seen.blocked for seen in look.seen]
print(len(look.growth), [each.wait.kind for each in blocked], blocked[0].is_hidden, look.sees_calls)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_sees_the_counters_but_not_the_calls(code_for_all: Path) -> None:
    with subprocess.Popen(["sleep", "1000"]) as sleeping:
        words = (*as_nobody(code_for_all, _LOOKS), str(sleeping.pid))
        try:
            finished = subprocess.run(words, capture_output=True, text=True, check=True)
        finally:
            sleeping.kill()
    assert finished.stdout == "1 ['other'] True False\n"


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="unshare needs root"
)
def test_without_proc_nothing_is_known() -> None:
    without_proc = ("unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh")
    command = (*RUN, "--json", "--interval", "0.1", "--", "sleep", "0.5")
    finished = subprocess.run(
        (*without_proc, *command), capture_output=True, check=True, timeout=LIMIT_SECONDS
    )
    assert report_of(finished.stderr).record.time_breakdown == NO_BREAKDOWN
