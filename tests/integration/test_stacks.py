"""Call stacks of real programs, read by the real py-spy."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from profiler.collectors.stacks.py_spy import decode_dump, find_py_spy
from profiler.collectors.stacks.stack_profile import StackProfile
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers import Unavailable
from profiler.readers.cgroup.hierarchy import read_own_cgroups
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.record.activity_model import WAITING_SUFFIX
from profiler.record.record_model import decode
from profiler.runs.history.run_database import HistoryStore
from profiler.runs.past_runs.stack_functions import frames_of_moment, what_ran_text
from tests.integration.profiled import RUN
from tests.integration.sidecar import Line, Sidecar, problems
from tests.values import present, without_caused_by_others
from tools.moto_server import FakeAws
from tools.waiting import LIMIT_SECONDS, remove_group, wait_until

_SPY = find_py_spy(os.environ.get("PATH"), sys.executable)
pytestmark = pytest.mark.skipif(_SPY is None, reason="py-spy is not installed")

NewLines = Callable[[], list[Line]]
# One function for each of the things that a program does; the arguments are its name and the
# seconds, for those that compute of CPU time: where others delay py-spy, they last longer. They last
# longer by a multiple of the time that Python needed to start, on this machine now.
_PROGRAM = """
import os, socket, subprocess, sys, threading, time

def burn(cpu_seconds):
    while time.process_time() < cpu_seconds:
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

def burn_in_thread(cpu_seconds):
    thread = threading.Thread(target=burn, args=(cpu_seconds,))
    thread.start()
    thread.join()

def burn_in_child(cpu_seconds):
    subprocess.call([sys.executable, __file__, "burn", str(cpu_seconds)])

with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
    began_ticks = int(stat.read().rpartition(")")[2].split()[19])
    start_seconds = float(uptime.read().split()[0]) - began_ticks / os.sysconf("SC_CLK_TCK")
name, seconds = sys.argv[1], float(sys.argv[2])
if name.startswith("burn"):
    globals()[name](seconds + 2 * start_seconds)
else:
    globals()[name](time.time() + seconds + 10 * start_seconds)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("program") / "job.py"
    file.write_text(_PROGRAM)
    return file


class Seen(NamedTuple):
    record: dict[str, Any]
    stacks: Counter[str]


def run_with_stacks(history: Path, *command: object) -> Seen:
    words = [*RUN, "--json", "--stacks", "--", *map(str, command)]
    environment = {**os.environ, "TASK_PROFILER_HISTORY": str(history)}
    finished = subprocess.run(
        words, env=environment, stderr=subprocess.PIPE, check=True, timeout=LIMIT_SECONDS
    )
    line = finished.stderr.splitlines()[-1]
    kept = HistoryStore(history, SystemClock()).stacks(decode(line))
    counted: Counter[str] = Counter()
    for step in kept.steps if kept is not None else ():
        counted.update(step.stacks)
    return Seen(json.loads(line)["record"], counted)


def run_until_seen(history: Path, samples: int, program: Path, what: str, seconds: float) -> Seen:
    """Run the program for these seconds, and for more of them until so many samples show one of
    its functions: a busy machine takes few.
    """
    for factor in (1, 4, 16, 64):
        words = (sys.executable, program, what, factor * seconds)
        seen = run_with_stacks(history.with_suffix(f".{factor}"), *words)
        if sum(n for stack, n in seen.stacks.items() if _names_own_function(stack)) >= samples:
            break
    return seen


def run_together(calls: Mapping[str, Callable[[], Seen]], at_once: int) -> dict[str, Seen]:
    """Several at the same time, because most of their time is a wait."""
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        begun = {name: pool.submit(call) for name, call in calls.items()}
    return {name: call.result() for name, call in begun.items()}


_RUNNING = ("burn", "burn_in_thread", "burn_in_child")
_WAITING = ("wait_for_socket", "sleep", "wait_for_lock", "wait_for_child")


@pytest.fixture(scope="module")
def running(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("running")
    calls = {
        what: partial(run_until_seen, folder / what, 12, program, what, 1.8) for what in _RUNNING
    }
    return run_together(calls, at_once=2)


@pytest.fixture(scope="module")
def waiting(program: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    folder = tmp_path_factory.mktemp("waiting")
    calls = {
        what: partial(run_until_seen, folder / what, 50, program, what, 5) for what in _WAITING
    }
    calls["another program"] = partial(run_with_stacks, folder / "another", "sleep", 7)
    return run_together(calls, at_once=5)


@pytest.mark.slow
@pytest.mark.parametrize("what", _RUNNING)
def test_the_function_that_runs_is_named(
    program: Path, running: dict[str, Seen], what: str
) -> None:
    record, seen = running[what]
    assert not without_caused_by_others(record["monitor"]["warnings"])
    stacks = record["stacks"]
    assert stacks["source"].startswith("py-spy 0.")
    assert stacks["samples"] >= 12
    top = stacks["top"][0]
    assert top["function"] == "burn"
    assert top["file"] == "job.py"
    # On a busy machine, samples see the start of the interpreter, and some see the call of the
    # function, or a stack that changed while it was read.
    running_stacks = {
        stack: n
        for stack, n in seen.items()
        if "job.py" in stack and not stack.endswith(WAITING_SUFFIX)
    }
    burning = sum(n for stack, n in running_stacks.items() if "burn (job.py)" in stack)
    assert burning >= 0.8 * sum(running_stacks.values())
    line = program.read_text().splitlines()[top["line"] - 1]
    assert "time.process_time() < cpu_seconds" in line or "sum(" in line


def _names_own_function(stack: str) -> bool:
    """Whether the stack is inside one of the program's functions."""
    return any(f"{name} (job.py)" in stack for name in (*_RUNNING, *_WAITING))


@pytest.mark.slow
@pytest.mark.parametrize("what", _WAITING)
def test_the_function_that_waits_is_named(waiting: dict[str, Seen], what: str) -> None:
    record, seen = waiting[what]
    # The samples before are of Python's start and of imports, for seconds on a busy machine.
    stacks = Counter({stack: n for stack, n in seen.items() if _names_own_function(stack)})
    right = sum(
        count
        for stack, count in stacks.items()
        if f"{what} (job.py)" in stack and stack.endswith(WAITING_SUFFIX)
    )
    assert right >= 0.9 * stacks.total()  # on a busy machine, some show it before it waits
    assert right >= seen.total() / 2
    assert right >= 40
    if right == stacks.total():
        assert what not in {top["function"] for top in record["stacks"].get("top", ())}


_TWO_FUNCTIONS = """
import sys, time

def rows(count):
    for _ in range(count): sum(range(20000))

def columns(count):
    for _ in range(count): sum(range(20000))

used = [0.0, 0.0]
end = time.monotonic() + 12
while time.monotonic() < end:
    for place, function, count in ((0, rows, 70), (1, columns, 30)):
        before = time.process_time()
        function(count)
        used[place] += time.process_time() - before
print(used[0] / sum(used))
"""
# Two standard deviations of 200 samples, and what changes while it is read.
_POINTS = 10


@pytest.mark.slow
def test_the_shares_of_two_functions_are_those_of_their_cpu_time(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(_TWO_FUNCTIONS)
    command = (*RUN, "--json", "--no-history", "--stacks", "--", sys.executable, str(program))
    finished = subprocess.run(command, capture_output=True, check=True, timeout=LIMIT_SECONDS)
    stacks = json.loads(finished.stderr.splitlines()[-1])["record"]["stacks"]
    shares = {row["function"]: row["totalPercent"] for row in stacks["top"]}
    of_both = 100 * shares["rows"] / (shares["rows"] + shares["columns"])
    assert stacks["runningSamples"] >= 100
    assert abs(of_both - 100 * float(finished.stdout)) < _POINTS


# In a folder with the name of a module of Python. The prompt waits for a line.
_USERS_MODULE = """
import click, json

def load_orders():
    json.loads("{}", object_hook=lambda _: click.prompt("name"))
"""


def test_the_users_code_is_told_from_packages_and_from_python(tmp_path: Path) -> None:
    assert _SPY is not None
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "__init__.py").touch()
    (tmp_path / "code" / "load.py").write_text(_USERS_MODULE)
    job = (
        "import sys; sys.modules.pop('code', None)\nfrom code.load import "
        "load_orders\nload_orders()\n"
    )
    (tmp_path / "job.py").write_text(job)
    words = (sys.executable, str(tmp_path / "job.py"))
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        present(process.stdout).read(4)  # the prompt
        state = Path(f"/proc/{process.pid}/stat")
        wait_until(
            lambda: state.read_text().rpartition(")")[2].split()[0] == "S",
            "the program to wait for an answer",
        )
        dump = subprocess.run(
            (_SPY, "dump", "--nonblocking", "--json", "--pid", str(process.pid)),
            capture_output=True,
            check=True,
        )
        process.kill()
    stacks = decode_dump(dump.stdout, process.pid)
    assert not isinstance(stacks, Unavailable)
    profile = StackProfile()
    for second in range(40):
        sample = ContainerSample(read_ns=second * NS_PER_SECOND, cpu_ns=0)
        profile.moments.add_usage(sample, ResourceLimits(), second * NS_PER_SECOND)
    profile.add_dumps([stacks], 40 * NS_PER_SECOND)
    known = profile.stacks_of_run("py-spy")
    (moment,) = present(known).moments
    own = {
        text.partition(" ")[0]
        for text, is_own in zip(moment.stack, moment.own, strict=True)
        if is_own
    }
    assert own == {"<module>", "load_orders", "load_orders.<locals>.<lambda>"}
    frames = frames_of_moment(moment)
    assert frames[-1].file == "click/termui.py"
    assert what_ran_text(frames) == f"load_orders → {frames[-1].name}"
    assert profile.own_files(profile.folded.steps_of_run(None)) == ("code/load.py", "job.py")


@pytest.mark.slow
def test_the_server_of_py_spy_is_not_measured(waiting: dict[str, Seen]) -> None:
    record, _ = waiting["sleep"]
    assert [process["name"] for process in record["processes"]] == [
        f"{Path(sys.executable).name} job.py"
    ]
    assert record["metrics"]["maxPids"] == 1


@pytest.mark.slow
def test_a_program_that_is_not_python_has_one_warning(waiting: dict[str, Seen]) -> None:
    record, _ = waiting["another program"]
    assert "stacks" not in record
    assert without_caused_by_others(record["monitor"]["warnings"]) == [
        "No Python process was seen, so there are no call stacks."
    ]


def test_a_batch_beside_the_monitor(
    program: Path, aws: FakeAws, new_lines: NewLines, tmp_path: Path
) -> None:
    """It is in a control group that has the name of a container, as Docker makes it."""
    cgroups, printed = read_own_cgroups(), tmp_path / "printed"
    place = cgroups.location_in("cpuacct") or cgroups.location_in("")
    if place is None:
        pytest.skip("no control group can be made here")
    with (
        subprocess.Popen([sys.executable, program, "burn_in_thread", "1000"]) as batch,
        printed.open("wb") as output,
        Sidecar(aws.environment(), output=output, STACKS="on", CHECKPOINT_SECONDS="1") as sidecar,
    ):
        group = Path(place.folder) / sidecar.task.docker_id("batch")
        try:
            try:
                group.mkdir(exist_ok=True)
                (group / "cgroup.procs").write_text(str(batch.pid))
            except OSError as error:
                pytest.skip(f"no control group can be made here: {error}")
            wait_until(lambda: b'"stacks":{' in printed.read_bytes(), "a checkpoint with stacks")
            sidecar.end_batch()
            _, errors = sidecar.finish()
        finally:
            batch.kill()
            batch.wait()
            remove_group(group)
    checkpoints = [json.loads(line) for line in printed.read_bytes().splitlines()]
    assert problems(errors) == []
    stacks, report = new_lines()
    record = report["record"]
    assert report["type"] == "task.report"
    assert record["stacks"]["top"][0]["function"] == "burn"
    assert stacks["type"] == "task.stacks"
    assert stacks["taskId"] == record["taskId"]
    assert stacks["container"] == "batch"
    assert any("burn (job.py)" in stack for step in stacks["steps"] for stack in step["stacks"])
    assert all(line["type"] == "task.checkpoint" for line in checkpoints)
    assert any("stacks" in line["record"] for line in checkpoints)
