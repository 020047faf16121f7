"""Programs that know how their time was spent, and what ``task-profiler run`` says about them.

The truth is of the same run: what each thread measured of its own phases, what the kernel counted
for a group, and when this test stopped and continued a run.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from profiler.record.record_model import Record, decode
from tests.counterparts import answering_server
from tests.integration.profiled import PROGRAM, RUN
from tests.programs.phases import FOLDER
from tests.simulation.known_runs import Limits, can_limit, control_group
from tests.timed_programs import PROGRAMS, Lane, of_lane
from tests.timed_runs import ROOT, check
from tests.values import present
from tools.waiting import LIMIT_SECONDS, wait_until

_POINTS = 3.0
_THROTTLED_POINTS, _CHILD_POINTS = 5.0, 2.0
_STOPPED_SECONDS, _FULL_SECONDS = 1.0, 2.0
_STEP_SECONDS = 0.25


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["test", pytest.param("slow", marks=pytest.mark.waits)])
def test_each_part_is_what_the_program_itself_says(lane: Lane) -> None:
    wrong, _missing = check(of_lane(lane), at_once=6)
    assert wrong == {}


_ALSO_BY_MONITOR = (
    *("beside accept: child", "shell beside a listener", "web server to which nobody comes"),
    *("lock of processes: joinable_queue, sleep", "lock of processes: held_lock, network"),
    *("asyncio beside rows: sleep", "server of the run: udp_server"),
    "chain: broker",
)


@pytest.mark.waits
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
def test_a_monitor_says_the_same() -> None:
    programs = {name: PROGRAMS[name] for name in _ALSO_BY_MONITOR}
    wrong, missing = check(programs, at_once=1, by_monitor=True)
    assert (wrong, missing) == ({}, {})


def _row(record: Record, target: str) -> float:
    """The share of a wait with a word of its own."""
    rows = present(record.time_breakdown).waiting_for
    return sum(row.percent for row in rows if (row.kind, row.target) == ("other", target))


def _unexplained(record: Record) -> float:
    return 100 - present(present(record.time_breakdown).covered_percent)


def _percent_of(record: Record, seconds: float) -> float:
    return 100_000 * seconds / present(record.metrics.duration_ms)


def _tolerance(record: Record) -> float:
    """A wait begins and ends between two looks, which on a busy machine are a step apart."""
    return _POINTS + _unexplained(record) + _percent_of(record, 2 * _STEP_SECONDS)


@contextmanager
def _running(
    words: tuple[str, ...], folder: Path, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The command under ``run``, as the job of a shell: a process group of its own, whose parent
    is in the same session.
    """
    output = ("--interval", str(_STEP_SECONDS), "--output", str(folder / "report"), *options)
    environment = {**os.environ, FOLDER: str(folder), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*RUN, *output, "--", *words],
        env=environment,
        stdout=subprocess.PIPE,
        process_group=0,
    ) as process:
        try:
            yield process
            assert process.wait(LIMIT_SECONDS) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _record(folder: Path) -> Record:
    return decode((folder / "report").read_bytes().splitlines()[-1]).record


_SLEEPS = "import time; print(flush=True); time.sleep(2)"
_RECEIVES = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"2")
print(flush=True)
connection.recv(1)
"""


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        (_SLEEPS, "sleep"),
        pytest.param(_RECEIVES, "network", marks=pytest.mark.waits),
    ],
    ids=["sleep", "network"],
)
def test_a_suspended_run_is_stopped_and_waits_for_nothing(
    program: str, kind: str, tmp_path: Path
) -> None:
    with (
        answering_server() as port,
        _running((sys.executable, "-c", program, str(port)), tmp_path) as process,
    ):
        present(process.stdout).readline()
        time.sleep(_STOPPED_SECONDS / 3)
        began = time.monotonic()
        os.killpg(process.pid, signal.SIGTSTP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(_STOPPED_SECONDS)
        os.killpg(process.pid, signal.SIGCONT)
        stopped_seconds = time.monotonic() - began
    record = _record(tmp_path)
    stopped_percent = _percent_of(record, stopped_seconds)
    assert abs(_row(record, "stopped") - stopped_percent) <= _tolerance(record)
    # Where no look found it waiting, as the profiler had no CPU, the kind is absent.
    said = getattr(present(record.time_breakdown), f"{kind}_percent")
    assert said is None or 0 < said <= 100 - stopped_percent + _tolerance(record)
    assert _row(record, "stopped") > 0
    assert any("stopped" in warning for warning in present(record.monitor).warnings)


# A busy machine lets it wait for a CPU, too.
_NEEDS_MEMORY = """
import time
def runnable_seconds():
    with open("/proc/self/schedstat") as file:
        return sum(map(int, file.read().split()[:2])) / 1e9
blocks = []
began, ran = time.monotonic(), runnable_seconds()
for _ in range(100):
    blocks.append(b"x" * (1 << 20))
print(time.monotonic() - began - (runnable_seconds() - ran), flush=True)
"""


def _memory_group(folder: Path, mib: int) -> None:
    (folder / "memory.limit_in_bytes").write_text(str(mib << 20))
    (folder / "memory.oom_control").write_text("1")


@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
def test_a_wait_for_memory_under_a_limit_is_no_disk(tmp_path: Path) -> None:
    """The group's kills are off, as `memory.high` has it in version 2."""
    with control_group(Limits(), f"task-profiler-test-{os.getpid()}", tmp_path) as folders:
        group = next(folder for folder in folders if folder.parent.name == "memory")
        _memory_group(group, 60)
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        words = ("sh", "-c", enter, "sh", sys.executable, "-c", _NEEDS_MEMORY)
        with _running(words, tmp_path) as process:
            wait_until(
                lambda: "under_oom 1" in (group / "memory.oom_control").read_text(),
                "the group to be full",
            )
            time.sleep(_FULL_SECONDS)
            _memory_group(group, 300)
            waited_seconds = float(present(process.stdout).readline())
    record = _record(tmp_path)
    waited_percent = _percent_of(record, waited_seconds)
    assert abs(_row(record, "memory") - waited_percent) <= _tolerance(record)
    assert (present(record.time_breakdown).disk_percent or 0) <= _POINTS


def _throttled_seconds(group: Path) -> float:
    rows = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(rows["throttled_time"]) / 1e9


@pytest.mark.waits
@pytest.mark.skipif(not can_limit(), reason="needs root and version 1 of the control groups")
def test_short_programs_under_a_quota_wait_for_a_cpu_and_for_no_child(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(1 << 15))
    loop = f"for i in $(seq 800); do gzip -c {tmp_path}/file > /dev/null; done"
    name = f"task-profiler-test-{os.getpid()}"
    with control_group(Limits(cpus=0.5), name, tmp_path) as folders:
        group = next(folder for folder in folders if folder.parent.name == "cpu")
        enter = f"echo $$ > {group}/cgroup.procs; {loop}"
        # On one CPU, so that shell and program cannot run at the same time.
        one_cpu = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
        with _running((*one_cpu, "sh", "-c", enter), tmp_path):
            pass
        throttled_seconds = _throttled_seconds(group)
    record = _record(tmp_path)
    made = present(record.time_breakdown)
    waited_percent = made.waiting_for_cpu_percent or 0
    assert waited_percent >= _percent_of(record, throttled_seconds) - _THROTTLED_POINTS, made
    # One program can run at any time, so it waits for a CPU while it does not: also for others'.
    used_percent = _percent_of(record, present(record.metrics.cpu_seconds))
    assert abs(waited_percent - (100 - used_percent)) <= _THROTTLED_POINTS, made
    assert (made.child_percent or 0) <= _CHILD_POINTS, made


# Waits for a lock that nobody releases, or for a queue into which nobody puts anything, beside a
# subscriber to whom nobody writes.
_WAITS_BESIDE_A_SUBSCRIBER = """
import os, queue, signal, sys, threading
from tests.programs.bystanders import BYSTANDERS
from tests.programs.phases import compute
def wait_for_orders(wait):
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, 5)
    wait()
lock = threading.Lock()
lock.acquire()
waits = {"lock": lock.acquire, "queue": queue.Queue().get}
BYSTANDERS[sys.argv[1]]()
compute(1.5)
wait_for_orders(waits[sys.argv[-1]])
"""


def _shown(environment: Mapping[str, str]) -> str:
    words = (*PROGRAM, "show", "orders")
    finished = subprocess.run(
        words, capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return " ".join(finished.stdout.split())


@pytest.mark.waits
@pytest.mark.parametrize("wait", ["lock", "queue"])
def test_an_idle_moment_of_seconds_names_the_waiting_function_and_no_bystander(
    wait: str, tmp_path: Path, history_file: Path
) -> None:
    with answering_server() as port:
        peer = f"127.0.0.1:{port}"
        program = tmp_path / "orders.py"
        program.write_text(_WAITS_BESIDE_A_SUBSCRIBER)
        words = (sys.executable, str(program), "subscriber", *4 * ("0",), peer, wait)
        with _running(words, tmp_path, "--name", "orders", "--stacks"):
            pass
    text = _shown({"TASK_PROFILER_HISTORY": str(history_file), "NO_COLOR": "1"})
    assert "wait_for_orders" in text.partition("idle from ")[2], text
    assert peer not in text.partition(" Time ")[2], text  # before, it is an argument of the command
