"""Call stacks of real programs, read by the real py-spy."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.endpoint import TASK_ID, Task, serve
from profiler.collectors.stacks.py_spy import PySpy, find_py_spy
from profiler.core.clock import SystemClock
from profiler.history.run_database import HistoryStore
from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.linux import proc
from profiler.record.activity_model import WAITING_SUFFIX
from profiler.record.record_model import decode
from tests.aws import FakeAws, fake_aws
from tests.integration.sidecar import Sidecar
from tests.waiting import remove_group, wait_until

_SPY = find_py_spy(os.environ.get("PATH"), sys.executable)
pytestmark = pytest.mark.skipif(_SPY is None, reason="py-spy is not installed")

_RUN = (sys.executable, "-m", "profiler", "run")
_GROUP = "/ecs/bench"
_STREAM = f"ecs/batch/{TASK_ID}"
# One function for each of the things that a program does; the arguments are its name and the seconds.
_PROGRAM = """
import socket, subprocess, sys, threading, time

def burn(until):
    while time.time() < until:
        sum(range(1000))

def wait_for_socket(until):
    ours, theirs = socket.socketpair()
    ours.settimeout(until - time.time())
    try:
        ours.recv(1)
    except OSError:
        pass

def sleep(until):
    time.sleep(until - time.time())

def wait_for_lock(until):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=until - time.time())

def wait_for_child(until):
    subprocess.call(["sleep", str(until - time.time())])

def burn_in_thread(until):
    thread = threading.Thread(target=burn, args=(until,))
    thread.start()
    thread.join()

def everything(until):
    for target in (wait_for_socket, sleep, wait_for_lock, wait_for_child):
        threading.Thread(target=target, args=(until,)).start()
    burn(until)

def burn_in_child(until):
    subprocess.call([sys.executable, __file__, "burn", str(until - time.time())])

globals()[sys.argv[1]](time.time() + float(sys.argv[2]))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("program") / "job.py"
    file.write_text(_PROGRAM)
    return file


def interpreters() -> list[str]:
    """The other interpreters from 3.8 on that pyenv has installed here."""
    others = sorted((Path.home() / ".pyenv" / "versions").glob("3.*/bin/python3"))
    is_old = ("3.6.", "3.7.")
    return [str(python) for python in others if not python.parts[-3].startswith(is_old)]


class Seen(NamedTuple):
    """The record of a run, and how often each stack was seen."""

    record: dict[str, Any]
    stacks: Counter[str]


def run_with_stacks(history: Path, *command: object) -> Seen:
    words = [*_RUN, "--history", str(history), "--stacks", "--", *map(str, command)]
    finished = subprocess.run(words, stderr=subprocess.PIPE, check=True, timeout=120)
    line = finished.stderr.splitlines()[-1]
    kept = HistoryStore(history, SystemClock()).stacks(decode(line))
    counted: Counter[str] = Counter()
    for step in kept.steps if kept is not None else ():
        counted.update(step.stacks)
    return Seen(json.loads(line)["record"], counted)


def run_together(folder: Path, commands: Mapping[str, Sequence[object]], at_once: int = 5) -> dict[str, Seen]:
    """Run several commands at the same time, because most of their time is a wait."""
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        calls = {
            name: pool.submit(run_with_stacks, folder / f"{number}.sqlite3", *command)
            for number, (name, command) in enumerate(commands.items())
        }
    return {name: call.result() for name, call in calls.items()}


def without_start(record: dict[str, Any]) -> float:
    """The percentage of all samples but two: on a busy machine these may see the start of the interpreter."""
    samples: int = record["stacks"]["samples"]
    return 100 * (1 - 2 / samples) - 0.1


_RUNNING = ("burn", "burn_in_thread", "burn_in_child")
_WAITING = ("wait_for_socket", "sleep", "wait_for_lock", "wait_for_child")


@pytest.fixture(scope="module")
def running(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    commands = {what: (sys.executable, program, what, 5) for what in _RUNNING}
    return run_together(tmp_path_factory.mktemp("running"), commands, at_once=2)


@pytest.fixture(scope="module")
def waiting(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    commands = {what: (sys.executable, program, what, 5) for what in _WAITING}
    return run_together(tmp_path_factory.mktemp("waiting"), {**commands, "another program": ("sleep", 7)})


@pytest.fixture(scope="module")
def elsewhere(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    commands = {python: (python, program, "everything", 6) for python in interpreters()}
    return run_together(tmp_path_factory.mktemp("elsewhere"), commands, at_once=2)


@pytest.mark.parametrize("what", _RUNNING)
def test_the_function_that_runs_is_named(program: Path, running: dict[str, Seen], what: str) -> None:
    record, _ = running[what]
    assert record["monitor"]["warnings"] == []
    stacks = record["stacks"]
    assert stacks["source"].startswith("py-spy 0.")
    assert stacks["samples"] >= 3
    top = stacks["top"][0]
    assert (top["function"], top["file"]) == ("burn", "job.py")
    assert top["selfPercent"] >= without_start(record)
    line = program.read_text().splitlines()[top["line"] - 1]
    assert "time.time() < until" in line or "sum(" in line


@pytest.mark.parametrize("what", _WAITING)
def test_the_function_that_waits_is_named(waiting: dict[str, Seen], what: str) -> None:
    record, stacks = waiting[what]
    right = sum(
        count for stack, count in stacks.items() if f"{what} (job.py)" in stack and stack.endswith(WAITING_SUFFIX)
    )
    assert right >= stacks.total() - 1  # on a busy machine, one sample may show it before it waits
    assert right >= 3
    if right == stacks.total():
        assert what not in {top["function"] for top in record["stacks"].get("top", ())}


@pytest.mark.parametrize("python", interpreters())
def test_each_thread_is_named_in_other_interpreters(elsewhere: dict[str, Seen], python: str) -> None:
    """Up to Python 3.10, py-spy does not know which of the threads run."""
    record, stacks = elsewhere[python]
    assert record["stacks"]["samples"] >= 3
    assert [top["function"] for top in record["stacks"]["top"][:1]] == ["burn"]
    for what in _WAITING:
        counts = {stack: count for stack, count in stacks.items() if f"{what} (job.py)" in stack}
        waiting = sum(count for stack, count in counts.items() if stack.endswith(WAITING_SUFFIX))
        assert waiting >= sum(counts.values()) - 1 > 0, what


def test_the_server_of_py_spy_is_not_measured(program: Path, history_file: Path) -> None:
    record, _ = run_with_stacks(history_file, sys.executable, program, "sleep", 3)
    assert [process["name"] for process in record["processes"]] == [f"{Path(sys.executable).name} job.py"]
    assert record["metrics"]["maxPids"] == 1
    assert record["metrics"]["memoryPeakSource"] == "kernel"


def test_a_program_that_is_not_python_has_one_warning(waiting: dict[str, Seen]) -> None:
    record, _ = waiting["another program"]
    assert "stacks" not in record
    assert record["monitor"]["warnings"] == ["No Python process was seen, so there are no call stacks."]


def test_in_the_mode_of_moments_a_short_run_has_no_samples(program: Path, history_file: Path) -> None:
    command = [*_RUN, "--stacks=moments", "--", sys.executable, str(program), "burn", "2"]
    finished = subprocess.run(command, stderr=subprocess.PIPE, check=True, timeout=120)
    record = json.loads(finished.stderr.splitlines()[-1])["record"]
    assert "stacks" not in record
    assert record["monitor"]["warnings"] == []


# --- the sidecar


class OwnIds(Task):
    """A task whose containers have ids that no other test uses, because their control groups are real."""

    def __init__(self) -> None:
        self._id = uuid.uuid4().hex
        super().__init__(2)

    def docker_id(self, name: str) -> str:
        return f"{self._id}{self.names.index(name):032x}"


class Served(NamedTuple):
    """A task and its address."""

    task: Task
    address: str


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as server:
        server.create_log_group(_GROUP)
        server.create_log_stream(_GROUP, _STREAM)
        yield server


@pytest.fixture
def containers() -> Iterator[Served]:
    task = OwnIds()
    server = serve(task)
    yield Served(task, f"http://127.0.0.1:{server.server_address[1]}/v4/own")
    server.shutdown()
    server.server_close()


@pytest.fixture
def join_container() -> Iterator[Callable[[str, int], None]]:
    """Puts a process into a control group that has the name of a container, as Docker makes it."""
    cgroups = read_own_cgroups()
    place = cgroups.location("cpuacct") or cgroups.location("")
    if place is None:
        pytest.skip("no control group can be made here")
    made: list[Path] = []

    def join(docker_id: str, pid: int) -> None:
        group = Path(place.folder) / docker_id
        try:
            group.mkdir(exist_ok=True)
            made.append(group)
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")

    yield join
    for group in made:
        remove_group(group)


def test_a_batch_beside_the_monitor(
    program: Path, aws: FakeAws, containers: Served, join_container: Callable[[str, int], None]
) -> None:
    before = len(aws.events(_GROUP, _STREAM))
    with (
        subprocess.Popen([sys.executable, program, "burn_in_thread", "100"]) as batch,
        Sidecar(aws.environment(), beside=containers, STACKS="on", CHECKPOINT_SECONDS="1") as sidecar,
    ):
        try:
            join_container(sidecar.task.docker_id("batch"), batch.pid)
            sidecar.wait_for_samples(50)
            sidecar.end_batch()
            checkpoints, errors = sidecar.finish()
        finally:
            batch.kill()
    assert errors == []
    stacks, report = (json.loads(event.message) for event in aws.events(_GROUP, _STREAM)[before:])
    assert report["type"] == "task.report"
    assert report["record"]["stacks"]["top"][0]["function"] == "burn"
    assert (stacks["type"], stacks["taskId"], stacks["container"]) == (
        "task.stacks",
        report["record"]["taskId"],
        "batch",
    )
    assert any("burn (job.py)" in stack for step in stacks["steps"] for stack in step["stacks"])
    assert all(line["type"] == "task.checkpoint" for line in checkpoints)
    assert any("stacks" in line["record"] for line in checkpoints)


def test_without_visible_processes_the_record_says_what_to_do(aws: FakeAws, containers: Served) -> None:
    before = len(aws.events(_GROUP, _STREAM))
    with Sidecar(aws.environment(), beside=containers, STACKS="on") as sidecar:
        sidecar.wait_for_samples(80)
        sidecar.end_batch()
        sidecar.finish()
    (report,) = (json.loads(event.message) for event in aws.events(_GROUP, _STREAM)[before:])
    assert "stacks" not in report["record"]
    assert any("set pidMode to task" in warning for warning in report["record"]["monitor"]["warnings"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may drop a capability")
def test_without_the_right_to_read_the_record_says_what_to_do(
    program: Path, aws: FakeAws, containers: Served, join_container: Callable[[str, int], None]
) -> None:
    before = len(aws.events(_GROUP, _STREAM))
    drop = "import ctypes, os, sys; ctypes.CDLL(None).prctl(24, 19)"  # PR_CAPBSET_DROP, CAP_SYS_PTRACE
    reduced = ("-c", f"{drop}; os.execv(sys.executable, [sys.executable, '-m', 'profiler', *sys.argv[1:]])")
    with (
        subprocess.Popen([sys.executable, program, "sleep", "100"]) as batch,
        Sidecar(aws.environment(), beside=containers, STACKS="on", program=reduced) as sidecar,
    ):
        try:
            join_container(sidecar.task.docker_id("batch"), batch.pid)
            sidecar.wait_for_samples(30)
            sidecar.end_batch()
            sidecar.finish()
        finally:
            batch.kill()
    (report,) = (json.loads(event.message) for event in aws.events(_GROUP, _STREAM)[before:])
    warnings = [text for text in report["record"]["monitor"]["warnings"] if "call stacks" in text]
    assert len(warnings) == 1
    assert "give it the capability SYS_PTRACE and user 0" in warnings[0]


# --- no harm


def state_of(pid: int) -> str:
    stat = proc.parse_stat(proc.read(f"/proc/{pid}/stat") or b"")
    return "" if stat is None else stat.state


def test_a_killed_server_leaves_no_stopped_process(program: Path) -> None:
    """SIGKILL of the sampler in the middle of its reading."""
    with subprocess.Popen([sys.executable, program, "burn", "1000"]) as batch:
        try:
            for attempt in range(30):
                spy = PySpy(_SPY or "", time.monotonic_ns)
                spy.start()
                assert spy.version
                killer = subprocess.Popen(["sh", "-c", f"sleep 0.0{attempt % 4}; kill -KILL {spy.pid}"])
                while spy.dump(batch.pid).failure is None:
                    pass
                killer.wait()
                spy.close()
                assert state_of(batch.pid) in ("R", "S"), attempt
        finally:
            batch.kill()


def test_a_killed_profiler_leaves_neither_a_stopped_process_nor_its_server(program: Path, tmp_path: Path) -> None:
    command = [*_RUN, "--stacks", "--no-history", "--", sys.executable, str(program), "burn", "1000"]
    for _ in range(3):
        profiler = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: len(children(profiler.pid)) >= 2, 60, "the command and the server")  # noqa: B023
            found = children(profiler.pid)
            time.sleep(0.3)  # a sample is under way, or soon
        finally:
            profiler.send_signal(signal.SIGKILL)
            profiler.wait()
        (batch,) = (pid for pid in found if b"job.py" in (proc.read(f"/proc/{pid}/cmdline") or b""))
        servers = [pid for pid in found if pid != batch]
        try:
            wait_until(lambda: not any(map(is_alive, servers)), 60, "the end of the server")  # noqa: B023
            assert state_of(batch) in ("R", "S")
        finally:
            os.kill(batch, signal.SIGKILL)


def children(pid: int) -> list[int]:
    texts = (proc.read(f"/proc/{pid}/task/{task}/children") or b"" for task in proc.all_pids(f"/proc/{pid}/task"))
    return [child for text in texts for child in proc.parse_pids(text)]


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z", "X")
