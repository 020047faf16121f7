"""py-spy: its server and its caller, with programs that stand for it; the stacks it prints; the
processes to read.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from profiler.collectors.stacks.py_spy import (
    PySpy,
    StackFrame,
    ThreadStack,
    decode_dump,
    decode_recording,
    find_py_spy,
    short_file,
    shorten_stack,
)
from profiler.collectors.stacks.python_processes import (
    MAX_PROCESSES,
    PythonProcesses,
    runs_python,
    still_running_identities,
    without_torn_stacks,
)
from profiler.readers import Unavailable
from profiler.readers.linux import proc
from profiler.record.activity_model import WAITING_SUFFIX
from tests.values import present
from tools.waiting import wait_until


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], PySpy]]:
    """Makes the caller of a program, which is the text of a shell script."""
    made = []

    def make(script: str) -> PySpy:
        program = tmp_path / "py-spy"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        spy = PySpy(str(program))
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
    spy = make(
        '[ "$*" = "dump --nonblocking --json --pid 77" ] && echo '
        f"'{json.dumps([thread(frame('f'))])}'"
    )
    dump = spy.dump_stacks(77)
    assert dump.failure is None
    assert [stack.folded for stack in dump.stacks] == ["f (job.py)"]
    assert spy.cpu_ns > 0
    assert make('[ "$*" = --version ] && echo "py-spy 0.4.3"').version == "py-spy 0.4.3"


def test_the_cpu_time_has_the_start_of_the_server(make: Callable[[str], PySpy]) -> None:
    spy = make("echo []")
    pid = present(spy.pid)
    clock_id = (~pid << 3) | 2  # that of the CPU time of a process

    def waits_for_calls() -> bool:
        stat = proc.read_stat(f"/proc/{pid}")
        return stat.state == "S" and b"dump_server" in (proc.read_or_none(stat_path) or b"")

    stat_path = f"/proc/{pid}/cmdline"
    wait_until(waits_for_calls, "the server to wait")
    start_ns = time.clock_gettime_ns(clock_id)
    assert spy.dump_stacks(77).failure is None
    assert spy.cpu_ns >= start_ns


@pytest.mark.parametrize(
    ("script", "failure"),
    [
        # The first line of what it prints.
        (
            'echo "Error: Unsupported: 3.15.0" >&2; echo "Stack backtrace: /root/x" >&2; exit 1',
            "Unsupported: 3.15.0",
        ),
        *(
            (script, "its output is not the JSON of py-spy")
            for script in ("echo nonsense", "echo '{}'", "head -c 100000 /dev/urandom", ":")
        ),
        ("exec cat /dev/zero", "it was ended by signal 25, after its deadline or too much output"),
        # Its alarm comes after 5 s; this one comes at once.
        ("trap 'exit 3' ALRM; kill -ALRM $$; sleep 1", "exit code 3"),
        ("kill -ALRM $$", "it was ended by signal 14, after its deadline or too much output"),
    ],
)
def test_a_failure_has_its_reason(make: Callable[[str], PySpy], script: str, failure: str) -> None:
    assert make(script).dump_stacks(1).failure == failure


def test_a_program_that_cannot_be_executed(tmp_path: Path) -> None:
    spy = PySpy(str(tmp_path / "none"))
    assert spy.dump_stacks(1).failure == "it cannot be started"
    spy.start()
    assert spy.dump_stacks(1).failure == "exit code 126"
    assert spy.version == "py-spy"
    spy.close()
    assert spy.dump_stacks(1).failure is not None


def test_the_program_gets_no_environment_no_input_and_no_blocked_signals(
    make: Callable[[str], PySpy],
) -> None:
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        spy = make(
            "exec >&2; env -u PWD -u SHLVL -u _ -u OLDPWD; grep -E 'SigBlk' /proc/self/status; "
            "exit 1"
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
    assert spy.dump_stacks(1).failure == "SigBlk: 0000000000000000"


def test_an_interpreter_that_needs_its_libraries_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server starts with their folder, and py-spy without it."""
    interpreter, program = tmp_path / "python3", tmp_path / "py-spy"
    interpreter.write_text(
        f'#!/bin/sh\n[ "$LD_LIBRARY_PATH" = {tmp_path} ] && exec {sys.executable} "$@"\nexit 127\n'
    )
    program.write_text('#!/bin/sh\necho "libraries: $LD_LIBRARY_PATH" >&2; exit 1\n')
    for file in (interpreter, program):
        file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    spy = PySpy(str(program), str(tmp_path))
    spy.start()
    assert spy.dump_stacks(1).failure == "libraries:"
    spy.close()


def test_a_call_is_killed_with_its_server(make: Callable[[str], PySpy], tmp_path: Path) -> None:
    spy = make(f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    assert spy.pid is not None
    server = spy.pid
    if (child := os.fork()) == 0:
        # The call is made by another process, because it would wait for the answer.
        spy.dump_stacks(1)
        os._exit(0)
    wait_until(
        lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(),
        "the call",
    )
    called = int((tmp_path / "pid").read_text())
    assert server != called
    spy.kill()
    os.waitpid(child, 0)
    wait_until(lambda: has_ended(called), "the end of the call")


def has_ended(pid: int) -> bool:
    stat = proc.parse_stat(proc.read_or_none(f"/proc/{pid}/stat") or b"")
    return stat is None or stat.is_exiting


def test_the_server_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        "import time\nfrom profiler.collectors.stacks.py_spy import PySpy\n"
        "spy = PySpy('/bin/true')\nspy.start()\nspy.version\nprint(spy.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        server = int(present(parent.stdout).readline())
        assert not has_ended(server)
        parent.kill()
    wait_until(lambda: has_ended(server), "the end of the server")


PID = 100


def frame(name: str, file: str = "/app/job.py", line: int | None = 3) -> dict[str, Any]:
    return {
        "name": name,
        "filename": file,
        "short_filename": file.rpartition("/")[2],
        "line": line,
        "locals": None,
    }


def thread(*frames: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A thread as py-spy prints it; its frames begin with the innermost one."""
    usual = {
        "pid": PID,
        "thread_id": 7,
        "thread_name": "MainThread",
        "os_thread_id": PID,
        "active": True,
    }
    return {**usual, "owns_gil": True, "frames": list(frames), **more}


def decoded(*threads: dict[str, Any]) -> tuple[ThreadStack, ...]:
    stacks = decode_dump(json.dumps(threads).encode(), PID)
    assert not isinstance(stacks, Unavailable)
    return stacks


def test_a_stack_begins_with_the_outermost_function() -> None:
    (stack,) = decoded(thread(frame("parse_row", line=88), frame("<module>", line=12)))
    assert stack.folded == "<module> (job.py);parse_row (job.py)"
    assert [each.text_with_line for each in stack.frames] == [
        "<module> (job.py:12)",
        "parse_row (job.py:88)",
    ]
    assert stack.is_main is True
    assert stack.is_active is True
    # The main thread is known without its name, too.
    own, other = (
        thread(frame("f"), thread_name=None, os_thread_id=number) for number in (PID, 101)
    )
    assert [stack.is_main for stack in decoded(own, other)] == [True, False]


def test_ids_of_another_namespace_of_processes_are_not_known() -> None:
    """py-spy takes their threads for running: it looks for their ids in its own namespace."""
    worker = thread(frame("serve"), thread_name="w", os_thread_id=2)
    inner = decoded(thread(frame("recv"), os_thread_id=1), worker)
    assert [each.kernel_id for each in inner] == [0, 0]
    assert [each.kernel_id for each in decoded(thread(frame("recv")), worker)] == [PID, 2]


def test_separators_and_control_characters_are_replaced_and_long_names_and_deep_stacks_are_cut() -> (
    None
):
    strange, long = decoded(
        thread(frame("a;b\n\x1b[31mc", "/app/a;b.py")), thread(frame("x" * 500))
    )
    assert strange.folded == "a,b  [31mc (a,b.py)"
    assert len(long.frames[0].function) == 100
    deep = tuple(StackFrame(f"f{index}", "job.py") for index in range(1000))
    short = shorten_stack(deep)
    assert len(short) == 76
    assert short[0] == deep[0]
    assert short[15] == StackFrame("…", "")
    assert short[-1] == deep[-1]

    # A line that cannot be right is left out.
    stacks = decoded(*(thread(frame("f", line=line)) for line in (0, -1, 10**9)))
    assert [stack.frames[0].line for stack in stacks] == [None] * 3


def test_libraries_are_not_own_code() -> None:
    files = {
        "/app/job.py": True,
        "/home/lib/etl/load.py": True,
        "/usr/lib/python3.11/socket.py": False,
        "/usr/local/lib/python3.12/site-packages/boto3/client.py": False,
        "<frozen runpy>": False,
    }
    assert {file: decoded(thread(frame("f", file)))[0].frames[0].is_own for file in files} == files


def test_an_idle_worker_says_less_than_the_main_thread() -> None:
    root = frame("_bootstrap", "/usr/lib/python3.11/threading.py")
    worker = thread(
        frame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py"), root, active=False
    )
    (main,) = decoded(thread(frame("recv"), active=False))
    (idle,) = decoded({**worker, "thread_name": "w", "os_thread_id": 9})
    (fetch,) = decoded(
        {**thread(frame("fetch"), root, active=False), "thread_name": "w", "os_thread_id": 9}
    )
    (joining,) = decoded(
        thread(frame("join", "/usr/lib/python3.11/threading.py"), frame("<module>"), active=False)
    )
    (running,) = decoded(thread(frame("burn"), thread_name="w", os_thread_id=9))
    ranked = sorted((idle, joining, fetch, main, running), key=lambda stack: stack.rank)
    assert ranked == [running, main, fetch, joining, idle]


def test_a_running_thread_that_begins_elsewhere_is_torn() -> None:
    roots: dict[int, str] = {}
    whole = decoded(thread(frame("leaf"), frame("<module>")))
    torn = decoded(thread(frame("leaf"), frame("deep")))
    waiting = decoded(thread(frame("_shutdown"), active=False))
    assert without_torn_stacks(torn, roots) == torn  # nothing else is known of the thread yet
    assert without_torn_stacks(whole, roots) == whole
    assert without_torn_stacks(torn, roots) == ()
    assert without_torn_stacks(waiting, roots) == waiting


@given(st.binary(max_size=300))
@example(b"[{}]")
@example(b'[{"other":' + b"[" * 100_000)
@example(b'[{"thread_id":1,"active":true,"frames":[{"name":"\xff"}]}]')
@example(
    b'[{"thread_id":1,"active":true,"frames":[{"name":"\\ud800","filename":"\\udfff","line":1}]}]'
)
def test_any_output_is_understood_or_refused(output: bytes) -> None:
    stacks = decode_dump(output, PID)
    assert isinstance(stacks, Unavailable | tuple)


_texts = st.text(max_size=150)
_frames = st.fixed_dictionaries(
    {
        "name": _texts,
        "filename": _texts,
        "short_filename": st.none() | _texts,
        "line": st.integers(-(2**40), 2**40),
    }
)


@given(frames=st.lists(_frames, min_size=1, max_size=200), is_active=st.booleans())
def test_a_hostile_process_cannot_break_the_folded_text(
    *, frames: list[dict[str, Any]], is_active: bool
) -> None:
    (stack,) = decoded(thread(*frames, active=is_active))
    assert stack.folded.isprintable()
    assert stack.folded.count(";") == len(shorten_stack(stack.frames)) - 1
    assert stack.folded.endswith(WAITING_SUFFIX) is not is_active
    stack.folded.encode()


class Machine:
    """Processes by their ids: the program, and what it used."""

    def __init__(self, programs: dict[int, str]) -> None:
        self.programs = programs
        self.cpu_ns: dict[int, int] = {}
        self.decided: list[int] = []
        self.processes = PythonProcesses(self.runs, lambda pid: self.cpu_ns.get(pid, 0))

    def runs(self, pid: int, last_program: str) -> tuple[str, bool | None] | None:
        program = self.programs[pid]
        if program == last_program:
            return None
        self.decided.append(pid)
        return program, None if program == "secret" else "python" in program

    def choose(self, at: float = 0) -> list[int]:
        return [
            pid for pid, _ in self.processes.choose_busiest([(pid, 1) for pid in self.programs], at)
        ]


def test_only_python_processes_are_chosen_and_each_program_is_looked_at_once() -> None:
    machine = Machine({1: "/bin/sh", 2: "/usr/bin/python3.11", 3: "/usr/bin/java"})
    assert [machine.choose(), machine.choose()] == [[2], [2]]
    assert machine.decided == [1, 2, 3]
    machine.programs[1] = "/usr/bin/python3"  # executed in place of the shell
    assert machine.choose() == [1, 2]
    assert machine.processes.found_python
    assert not machine.processes.is_refused


def test_the_busiest_since_the_last_sample_come_first() -> None:
    machine = Machine(dict.fromkeys(range(1, 21), "python3"))
    machine.cpu_ns = {pid: 1000 - pid for pid in machine.programs}
    assert machine.choose() == list(range(1, MAX_PROCESSES + 1))
    machine.cpu_ns[7] += 9
    machine.cpu_ns[20] += 50
    assert machine.choose()[:3] == [20, 7, 1]


def test_a_process_that_keeps_failing_is_tried_less_and_less_often() -> None:
    machine = Machine({1: "python3"})
    reason = "Unsupported version of Python: 3.15.0"
    tried = {
        at: machine.processes.add_failure((1, 1), at, reason)
        for at in range(4000)
        if machine.choose(at)
    }
    seconds = list(tried)
    assert seconds[:9] == [0, 1, 2, 3, 4, 5, 7, 11, 19]
    assert seconds[-1] - seconds[-2] == 600
    assert sum(tried.values()) == 1  # reported


def test_a_program_runs_python_by_its_name_or_by_its_library(
    tmp_path: Path,
) -> None:
    """A program runs Python by its name or by its library and a process has its start."""
    maps = "7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0\n"
    programs = (
        ("/usr/sbin/uwsgi", maps, True),
        ("/usr/bin/pypy3", "", False),
        ("/usr/bin/python3.12 (deleted)", "", True),
    )
    for pid, (program, mapped, expected) in enumerate(programs):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "exe").symlink_to(program)
        (folder / "maps").write_text(mapped)
        assert runs_python(pid, "/bin/sh", str(tmp_path)) == (program, expected)
        assert runs_python(pid, program, str(tmp_path)) is None
    assert runs_python(9, "", str(tmp_path)) is None
    stat = proc.parse_stat(proc.read_or_none("/proc/self/stat") or b"")
    assert still_running_identities([os.getpid(), 2**22 + 1]) == (
        (os.getpid(), present(stat).started_ticks),
    )


_RECORDING = (
    "thread (7): MainThread;<module> (/app/job.py:14);parse; rows (/app/job.py:8) 12",
    "thread (9);run (/usr/lib/python3.11/threading.py:3) 3",
    "py-spy> behind",
)


def test_a_recording_has_what_ran_and_how_often() -> None:
    stacks = decode_recording("\n".join(_RECORDING).encode())
    assert not isinstance(stacks, Unavailable)
    main, other = stacks
    assert main.count == 12
    assert main.is_main
    assert main.is_active
    assert main.frames[0] == StackFrame("<module>", "job.py", 14, is_own=True)
    assert other.count == 3
    assert not other.is_main
    assert other.frames == (StackFrame("run", "threading.py", 3),)


@pytest.mark.parametrize("output", ["", "\n"])
def test_a_recording_in_which_nothing_ran_has_no_stacks(output: str) -> None:
    assert decode_recording(output.encode()) == ()


@given(st.binary(max_size=200))
@example(b"thread (7): x;f (a:99999999999999999999) 1")
@example(b"thread (7);f 99999999999999999999999")
def test_any_recording_is_read_or_refused(output: bytes) -> None:
    stacks = decode_recording(output)
    assert isinstance(stacks, Unavailable) or all(stack.count >= 0 for stack in stacks)


def test_a_file_is_named_from_its_outermost_package_on(tmp_path: Path) -> None:
    package = tmp_path / "lib" / "outer" / "inner"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    assert short_file(f"{package}/job.py") == "outer/inner/job.py"
    assert short_file(f"{tmp_path}/job.py") == "job.py"
    assert short_file("<string>") == "<string>"


# Writes its recording into the file after --output, as py-spy does, and other words to stdout.
_RECORDS = """
[ "$1" = record ] || exit 1
echo 'py-spy> Sampling process'
for word; do last=$word; [ "$before" = --output ] && file=$word; before=$word; done
[ "$last" = 2 ] && echo 'Error: gone' >&2 && exit 1
echo "thread ($last): MainThread;f (/app/job.py:1) 5" > $file
echo 'py-spy> Wrote raw flamegraph data'
"""


def test_several_processes_are_recorded_at_the_same_time(make: Callable[[str], PySpy]) -> None:
    first, gone, third = make(_RECORDS).record_stacks((1, 2, 3), 1, 20)
    assert [stack.thread_id for stack in first.stacks] == [1]
    assert gone.failure == "gone"
    assert [stack.thread_id for stack in third.stacks] == [3]


_UNTIL_INTERRUPTED = """
[ "$1" = record ] || exit 1
trap 'echo "thread (1): MainThread;f (/app/job.py:1) 5" > $file; kill $!; exit 0' INT
for word; do [ "$before" = --output ] && file=$word; before=$word; done
sleep 1000 & wait
"""


def test_an_interrupted_recording_answers_with_what_it_has(make: Callable[[str], PySpy]) -> None:
    spy = make(_UNTIL_INTERRUPTED)
    assert spy.dump_stacks(1).failure == "exit code 1"  # the server has started
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(spy.record_stacks, (1,), 1000, 20)
        while not recording.done():
            spy.interrupt()
            time.sleep(0.05)
        (dump,) = recording.result()
    assert dump.failure is None
    assert {stack.count for stack in dump.stacks} <= {5}
    spy.interrupt()  # nothing is recorded: it does not touch the server
    assert spy.dump_stacks(1).failure == "exit code 1"
