"""The time between the fork of a command's process and its execution: nothing runs that the
profiler does not watch.
"""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.profiled import as_nobody, report_of
from tests.values import present
from tools.waiting import LIMIT_SECONDS

# The command writes the file "executed". The pipes end only when all processes have ended.
_HOLD = """
import os, signal, sys
from profiler.local_run.prepared_run import CallerSignals, HeldCommand

def enter():
    {enter}

mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGCHLD))
signals = CallerSignals(mask=frozenset(mask), ignored=frozenset(), set_alarm=lambda: None)
with HeldCommand(("touch", "executed"), os.environb, signals, enter, bytes) as held:
    {body}
"""
_EXECUTE = "pid, measured = held.execute(); print(measured, os.waitpid(pid, 0)[1])"


def _hold(folder: Path, *, body: str, enter: str = "pass") -> subprocess.CompletedProcess[str]:
    program = _HOLD.format(enter=enter, body=body)
    settings: Any = {
        "cwd": folder,
        "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    }
    words = [sys.executable, "-c", program]
    return subprocess.run(
        words, capture_output=True, check=False, text=True, timeout=LIMIT_SECONDS, **settings
    )


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "raise ValueError",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
    ],
)
def test_a_command_is_not_executed_if_the_profiler_ends_before(body: str, tmp_path: Path) -> None:
    assert _hold(tmp_path, body=body).stdout == ""
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_signal_may_end_the_process_before_the_command(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C, for example: the signal is blocked, so it ends the process just before the command
    would start.
    """
    finished = _hold(tmp_path, enter=f"os.kill(os.getpid(), {int(number)})", body=_EXECUTE)
    assert finished.stdout == f"b'' {int(number)}\n"
    assert not (tmp_path / "executed").exists()


def test_ctrl_z_before_the_start_stops_the_profiler_and_the_command_starts_afterwards() -> None:
    program = """
import os, signal
from profiler.core.clock import SystemClock
from profiler.local_run.prepared_run import prepare_run, take_over_signals
clock = SystemClock()
signals = take_over_signals(clock)
with prepare_run(("true",), os.environb, clock, signals, lambda: None) as (prepared, _):
    os.killpg(0, signal.SIGTSTP)
    print(os.waitpid(prepared.execute().pid, 0)[1])
"""
    # The kernel discards the signal in a group without a parent in the same session.
    with subprocess.Popen(
        [sys.executable, "-c", program], process_group=0, stdout=subprocess.PIPE
    ) as process:
        try:
            stopped = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert stopped is not None
            assert stopped.si_code == os.CLD_STOPPED
            assert stopped.si_status == signal.SIGTSTP
            os.killpg(process.pid, signal.SIGCONT)
            assert process.communicate(timeout=LIMIT_SECONDS)[0] == b"0\n"
        finally:
            os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None


_WITH_LIMIT = """
import resource, sys
from profiler.cli import main
kind, limit = map(int, sys.argv[1:3])
del sys.argv[1:3]
resource.setrlimit(kind, (limit, limit))
main()
"""


@pytest.mark.parametrize(
    ("kind", "limit", "user", "said"),
    [
        (resource.RLIMIT_NOFILE, 8, os.getuid(), "-n is 8;"),
        (resource.RLIMIT_AS, 48 * 2**20, os.getuid(), "-v is 49152;"),
        (resource.RLIMIT_DATA, 24 * 2**20, os.getuid(), "-d is 24576;"),
        (resource.RLIMIT_STACK, 80 * 2**10, os.getuid(), "-s is 80;"),
        pytest.param(
            *(resource.RLIMIT_NPROC, 2, 61_234, "-u is 2;"),
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
        ),
    ],
)
def test_a_command_starts_under_limits_that_are_too_low_for_a_profiler(
    kind: int, limit: int, user: int, said: str, code_for_all: Path
) -> None:
    start: tuple[str, ...] = (sys.executable, "-c", _WITH_LIMIT)
    if user != os.getuid():
        start = as_nobody(code_for_all, _WITH_LIMIT, user)
    command = ("run", "--no-history", "--", "sh", "-c", "echo started; exit 7")
    done = subprocess.run(
        (*start, *map(str, (kind, limit)), *command),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == "started\n"
    assert done.stderr.startswith(
        f"task-profiler: The command runs without a profile: ulimit {said}"
    )


# The look that fails, or is done, makes the file that the command waits for.
_WITH_A_DEFECT = """
import sys
from profiler.cli import main
from profiler.cli.wiring.build_session import RunSession
from profiler.local_run.sampler import RunSampler

def fail(*_, **__):
    raise MemoryError

for owner in (RunSampler, RunSession):
    if hasattr(owner, sys.argv[1]):
        setattr(owner, sys.argv[1], fail)
looked, look = sys.argv[2], RunSampler.look_if_due

def noted_look(*words, **named):
    open(looked, "w").close()
    return look(*words, **named)

RunSampler.look_if_due = noted_look
del sys.argv[1:3]
main()
"""


@pytest.mark.parametrize(
    ("defective", "said"),
    [
        ("look_if_due", "The profiler failed (MemoryError)"),
        ("add_final_counters", "The profiler failed (MemoryError)"),
        ("record_and_printed_lines", "The run was not reported (MemoryError())"),
    ],
)
def test_a_defect_of_the_profiler_changes_no_exit_code(
    defective: str, said: str, tmp_path: Path
) -> None:
    looked = tmp_path / "looked"
    script = f"until [ -e {looked} ]; do sleep 0.02; done; sleep 0.1; echo end; exit 7"
    command = ("run", "--json", "--no-history", "--", "sh", "-c", script)
    done = subprocess.run(
        (sys.executable, "-c", _WITH_A_DEFECT, defective, str(looked), *command),
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout == "end\n"
    assert said in done.stderr
    if defective != "record_and_printed_lines":
        record = report_of(done.stderr.encode()).record
        assert record.exit_code == 7
        assert present(record.metrics.duration_ms) >= 100
