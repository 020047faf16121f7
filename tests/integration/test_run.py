"""``task-profiler run`` around real commands."""

import json
import os
import resource
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.readers.linux.process_tree import list_children
from profiler.record.notice_model import NoticeLine, decode_notice_json
from profiler.record.record_model import Record, decode
from tests.integration.profiled import (
    RUN,
    ending,
    is_memory_unsure,
    python,
    report_of,
    run,
    started,
)
from tests.terminals import fork_on_terminal, read_until
from tests.values import present, without_caused_by_others
from tools.waiting import LIMIT_SECONDS, READINGS, READINGS_OF_FILES, wait_until

# Prints a line when ready, then its signals; unbuffered, since a signal may come while it prints.
# It takes each signal when it waits for one: one that came between a handler and pause() would be
# told only with the next.
_LISTENER = """
import os, signal, sys
def say(word):
    os.write(sys.stdout.fileno(), word.encode() + b"\\n")
names = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH", "ALRM", "PWR", "XCPU", "RTMIN")
waited = [signal.Signals["SIG" + name] for name in names]
signal.pthread_sigmask(signal.SIG_BLOCK, waited)
say("ready")
while True:
    number = signal.sigwait(waited)
    say(number.name)
    if number in (signal.SIGTERM, signal.SIGINT):
        sys.exit(7)
"""
_BURN = "import time\nend = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


def _record(*words: str, options: Sequence[str] = ()) -> Record:
    return report_of(run(*words, options=options).stderr).record


# --- transparent ---------------------------------------------------------------------------------


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 3"), 3),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("sh", "-c", "kill -KILL $$"), 137),
        (("no-such-command-at-all",), 127),
        (("/no/such/path",), 127),
        (("/",), 126),
        (("",), 127),
    ],
)
def test_exit_codes(words: tuple[str, ...], expected: int) -> None:
    finished = run(*words)
    assert finished.returncode == expected
    record = report_of(finished.stderr).record
    assert record.exit_code == expected
    assert record.status == ("success" if expected == 0 else "failure")


def test_a_command_that_cannot_start_is_told_in_one_sentence_and_has_no_metrics(
    tmp_path: Path,
) -> None:
    script = tmp_path / "not-executable"
    script.write_text("echo no\n")
    finished = run(str(script))
    sentence, line = finished.stderr.decode().splitlines()
    assert finished.returncode == 126
    assert finished.stdout == b""
    assert sentence.startswith(f"task-profiler: {script} cannot be executed")
    assert json.loads(line)["record"]["metrics"] == {}
    script.write_text('echo "got $1"\n')
    script.chmod(0o755)
    assert run(str(script), "a b").stdout == b"got a b\n", (
        "without an interpreter's line it is the shell's"
    )


@pytest.mark.parametrize(
    ("first_line", "reason"),
    [
        (b"#!/no/such/python3 -u\n", "the interpreter '/no/such/python3' does not exist: correct"),
        (b"#!/bin/sh\r\n", "its lines end as on Windows: run sed -i 's/\\r$//' "),
    ],
)
def test_a_script_whose_interpreter_is_missing_says_what_to_do(
    first_line: bytes, reason: str, tmp_path: Path
) -> None:
    script = tmp_path / "job"
    script.write_bytes(first_line + b"echo no\n")
    script.chmod(0o755)
    finished = run(str(script))
    assert finished.returncode == 126
    sentence, _ = finished.stderr.decode().splitlines()
    assert sentence.startswith(f"task-profiler: {script} cannot be executed: {reason}")


def test_input_and_output_pass_byte_for_byte() -> None:
    data = bytes(range(256)) * 4096
    finished = run("cat", input=data)
    assert finished.stdout == data
    finished = run("sh", "-c", "cat >&2", input=data)
    assert finished.stdout == b""
    assert finished.stderr.startswith(data)


_SIGNALS_SEEN = ("sh", "-c", "exec grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status")


@pytest.mark.parametrize(
    "ignored", [(), (signal.SIGHUP,), (signal.SIGINT, signal.SIGQUIT), (signal.SIGCHLD,)]
)
def test_signal_dispositions_are_the_callers_and_the_exit_code_is_kept(
    ignored: tuple[signal.Signals, ...],
) -> None:
    def ignore() -> None:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})

    bare = subprocess.run(_SIGNALS_SEEN, capture_output=True, check=True, preexec_fn=ignore)
    assert run(*_SIGNALS_SEEN, preexec_fn=ignore).stdout == bare.stdout
    assert run("sh", "-c", "exit 5", preexec_fn=ignore).returncode == 5
    assert run("no-such-command-at-all", preexec_fn=ignore).returncode == 127


def test_arguments_environment_and_open_files_are_the_callers() -> None:
    words = ("-x", "--", "--format", "a b", "", "\udcff", "*", "--help")
    program = "import sys, os; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    assert run(*python(program), *words).stdout.split(b"\0") == [
        os.fsencode(word) for word in words
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), "odd": "a=b\nc"}
    bare = subprocess.run(("env", "-0"), capture_output=True, check=True, env=environment)
    assert sorted(run("env", "-0", env=environment).stdout.split(b"\0")) == sorted(
        bare.stdout.split(b"\0")
    )
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe:
        listing = "print(os.listdir('/proc/self/fd'))"
        finished = run(
            *python(f"import os; os.write({writing}, b'hello'); {listing}"), pass_fds=(writing,)
        )
        command = python(f"import os; {listing}")
        bare = subprocess.run(command, capture_output=True, check=True, pass_fds=(writing,))
        os.close(writing)
        assert pipe.read() == b"hello"
    assert finished.stdout == bare.stdout


def test_closed_standard_streams() -> None:
    finished = subprocess.run(
        ("sh", "-c", '"$@" <&- >&- 2>&-', "sh", *RUN, "--", "sh", "-c", "exit 4"),
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert finished.returncode == 4


# --- signals -------------------------------------------------------------------------------------


def test_signals_are_passed_on() -> None:
    with started(*python(_LISTENER)) as process:
        others = ("SIGALRM", "SIGPWR", "SIGXCPU", "SIGRTMIN")
        for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH", *others, "SIGTERM"):
            process.send_signal(signal.Signals[name])
            assert present(process.stdout).readline() == f"{name}\n".encode()
        _, stderr = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 7
    assert report_of(stderr).record.status == "stopped"


@pytest.mark.parametrize("seconds", [1e-6, LIMIT_SECONDS])
def test_the_alarm_of_the_caller_is_the_commands(seconds: float) -> None:
    """``perl -e 'alarm 60; exec @ARGV' task-profiler run -- CMD`` limits the time of CMD, before
    and after the profiler has started.
    """

    def set_alarm() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, seconds)

    program = (
        "import signal\n"
        "if signal.getitimer(signal.ITIMER_REAL)[0]: signal.setitimer(signal.ITIMER_REAL, 0.01)\n"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})\n"
        "signal.pause()\n"
    )
    finished = run(*python(program), preexec_fn=set_alarm)
    assert finished.returncode == 128 + signal.SIGALRM
    assert report_of(finished.stderr).record.exit_code == 128 + signal.SIGALRM


def test_a_signal_that_the_command_sends_its_group_is_not_sent_back() -> None:
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('usr1', flush=True))\n"
        "os.kill(0, signal.SIGUSR1)\n"
        "os.kill(os.getppid(), signal.SIGUSR1)\n"
        "print('done', flush=True)\n"
        "signal.sigtimedwait({signal.SIGUSR1}, 0.3)\n"
    )
    assert run(*python(program), start_new_session=True).stdout == b"usr1\ndone\n"


def _on_terminal(*words: str, inherited: int | None = None) -> tuple[int, int]:
    """The profiler around a command as the foreground job of a new terminal: its process id and
    the terminal.
    """
    return fork_on_terminal((*RUN, "--output", "/dev/null", "--", *words), inherited)


def test_ctrl_c_arrives_once() -> None:
    pid, terminal = _on_terminal(*python(_LISTENER.replace("sys.exit(7)", "pass")))
    read_until(terminal, b"ready")
    os.write(terminal, termios.tcgetattr(terminal)[tty.CC][termios.VINTR])
    seen = read_until(terminal, b"SIGINT")
    os.kill(pid, signal.SIGUSR1)
    seen += read_until(terminal, b"SIGUSR1")
    assert seen.count(b"SIGINT") == 1
    os.kill(pid, signal.SIGINT)  # this one is not the terminal's
    read_until(terminal, b"SIGINT")
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)


def test_a_terminal_that_hangs_up_is_heard_once() -> None:
    reading, writing = os.pipe()
    program = f"import os, sys\nsys.stdout = os.fdopen({writing}, 'w')\n" + _LISTENER
    pid, terminal = _on_terminal(*python(program), inherited=writing)
    os.close(writing)
    read_until(reading, b"ready")
    os.close(terminal)
    seen = read_until(reading, b"SIGHUP\n")
    os.kill(pid, signal.SIGTERM)
    seen += read_until(reading, b"SIGTERM\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with os.fdopen(reading, "rb") as rest:
        assert (seen + rest.read()).endswith(b"SIGHUP\nSIGTERM\n")


def test_a_command_on_a_terminal_is_in_its_foreground() -> None:
    program = (
        "import os; print(os.tcgetpgrp(0) == os.getpgrp(), os.isatty(1), "
        "os.get_terminal_size().columns > -1)"
    )
    pid, terminal = _on_terminal(*python(program))
    assert b"True True True" in read_until(terminal, b"\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def test_ctrl_z_where_no_shell_is_stops_no_command() -> None:
    """As in ``docker run -it``: the kernel stops no leader of a session, but would stop its command
    that has a group of its own. Nobody could continue it.
    """
    reading, ends = os.pipe()
    program = f"import os; print('ready', flush=True); os.read({reading}, 1)"
    pid, terminal = _on_terminal("timeout", "1000", *python(program), inherited=reading)
    os.close(reading)
    try:
        read_until(terminal, b"ready")
        os.write(terminal, b"\x1a")
        wait_until(lambda: not _is_pending(pid, signal.SIGTSTP), "a seen signal")
        os.close(ends)
        wait_until(lambda: _state(pid) == "Z", "the end of the run")
    finally:
        os.killpg(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    os.close(terminal)


def _is_pending(pid: int, number: signal.Signals) -> bool:
    """Whether a signal waits for the process, which has blocked it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("ShdPnd:")[2].split()[0], 16) >> (number - 1) & 1)


def _stopped_and_continued(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Both outputs of a profiler that stops when it is asked, goes on, and then gets a line."""
    process.send_signal(signal.SIGTSTP)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    return process.communicate(b"hello\n", timeout=LIMIT_SECONDS)


def test_a_job_stops_and_goes_on_with_its_command() -> None:
    program = (  # by os.write, because a print that interrupts a print is an error
        "import os, signal, sys\nsignal.signal(signal.SIGCONT, lambda *_: os.write(1, b'on\\n'))\n"
        "os.write(1, b'ready\\n')\nprint(sys.stdin.readline(), end='')\n"
    )
    with started(*python(program), stdin=subprocess.PIPE, process_group=0) as process:
        stdout, stderr = _stopped_and_continued(process)
    assert stdout == b"on\nhello\n"
    assert process.returncode == 0
    assert report_of(stderr).record.status == "success"


@pytest.mark.parametrize("has_terminal", [False, True])
def test_a_command_that_is_stopped_and_continued_alone_ends_with_the_profiler(
    *, has_terminal: bool
) -> None:
    """Who continues the command alone continues no profiler: one that stopped, too, had no end."""
    terminal, other_end = os.openpty()
    name = os.ttyname(other_end) if has_terminal else ""
    program = (
        "import os, sys\nos.write(1, f'{os.getpid()} {os.getppid()}\\n'.encode())\n"
        "sys.stdin.readline()\n"
    )
    words = (*RUN, "--json", "--interval", "0.1", "--", *python(program))
    # Its group is not an orphaned one, in which the kernel discards the signal. The leader of a
    # session gets the terminal that it opens.
    launcher = (
        "import os, subprocess, sys\n"
        "name, *words = sys.argv[1:]\n"
        "terminal = name and os.open(name, os.O_RDWR)\n"
        "sys.exit(subprocess.call(words, process_group=0))"
    )
    process = subprocess.Popen(
        (sys.executable, "-c", launcher, name, *words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    with ending(process):
        command, profiler = map(int, present(process.stdout).readline().split())
        try:
            os.kill(command, signal.SIGTSTP)
            wait_until(lambda: _state(command) == "T", "a stopped command")
            waits = _waits(profiler)
            wait_until(
                lambda: _state(profiler) == "T" or _waits(profiler) >= waits + 5,
                "a profiler that has seen it",
            )
            is_profiler_stopped = _state(profiler) == "T"
        finally:
            os.kill(command, signal.SIGCONT)
            os.kill(profiler, signal.SIGCONT)
        _, stderr = process.communicate(b"\n", timeout=LIMIT_SECONDS)
    os.close(terminal)
    os.close(other_end)
    assert not is_profiler_stopped
    assert process.returncode == 0
    assert report_of(stderr).record.status == "success"


def test_ctrl_z_stops_a_profiler_whose_command_is_stopped_already() -> None:
    program = "import sys\nprint('ready', flush=True)\nprint(sys.stdin.readline(), end='')\n"
    with started(*python(program), stdin=subprocess.PIPE, process_group=0) as process:
        (command,) = list_children(process.pid, threads=1)
        os.kill(command, signal.SIGTSTP)
        wait_until(lambda: _state(command) == "T", "a stopped command")
        stdout, _ = _stopped_and_continued(process)
    assert stdout == b"hello\n"
    assert process.returncode == 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _waits(pid: int) -> int:
    """How often the process has waited for something."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


# --- the end -------------------------------------------------------------------------------------


def test_the_processes_of_scripts_have_their_names(tmp_path: Path) -> None:
    script = tmp_path / "export.py"
    until_read = f"{READINGS}wait_for_readings(20)\n"
    script.write_text(until_read)
    shell_script = tmp_path / "all.sh"
    shell_script.write_text(
        f'export PROFILER=$PPID\n{sys.executable} {script} secret\n{sys.executable} -c "$(cat '
        f'{script})" x.py\n'
    )
    record = _record("sh", str(shell_script), options=("--interval", "0.1"))
    python = Path(sys.executable).name
    names = {process.name for process in record.processes} - {
        "cat"
    }  # on a busy machine it lives long enough
    assert names == {"sh all.sh", python, f"{python} export.py"}
    assert record.series is not None
    assert f"{python} export.py" in {row.command for row in record.series.processes}
    assert {len(row.vcpu_used or ()) for row in record.series.processes} == {
        len(record.series.vcpu_used or ())
    }
    assert "secret" not in repr(record)


# A child of the shell has the shell's name until it executes its program. dash lists no jobs in a
# substitution.
_TWO_SLEEP = """
for each in 1 2; do
    sleep 1000 >&- 2>&- &
    until grep -q sleep /proc/$!/comm; do :; done
    echo $!
done
"""


def test_processes_that_outlive_the_command_are_named_once() -> None:
    finished = run("sh", "-c", _TWO_SLEEP)
    for pid in finished.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    monitor = report_of(finished.stderr).record.monitor
    (warning,) = without_caused_by_others(present(monitor).warnings)
    assert warning.startswith("2 processes were still running when the command ended (sleep ×2)")


# --- what is measured ----------------------------------------------------------------------------

_FORKS = (
    "import os\nfor i in range(8):\n    if os.fork() == 0:\n        {}\n        os._exit(0)\n"
    "for i in range(8): os.wait()\n"
)
_THREADS = (
    "import hashlib, threading\nblock = bytes(10**6)\n"
    "def work():\n    for i in range(100): hashlib.sha256(block).digest()\n"
    "threads = [threading.Thread(target=work) for i in range(4)]\n"
    "for thread in threads: thread.start()\n"
    "for thread in threads: thread.join()\n"
)
_SHORT_LIVED = "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done"
_ORPHAN = (
    "import os\nreading, writing = os.pipe()\nif os.fork() == 0:\n"
    "    if os.fork() == 0:\n        {}\n        os._exit(0)\n"
    "    os._exit(0)\nos.wait()\nos.close(writing)\nos.read(reading, 1)\n"
)


# An independent parent: what the kernel tells it of itself and of its children.
_WITNESS = (
    "import os, resource, subprocess, sys\nsubprocess.run(sys.argv[1:])\n"
    "used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]\n"
    "print(sum(one.ru_utime + one.ru_stime for one in used), flush=True)\n"
    "os._exit(0)\n"
)


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    "words",
    [
        python(_BURN.format(0.5)),
        python(_FORKS.format(_BURN.format(0.1).replace("\n", "\n        "))),
        python(_THREADS),
        ("sh", "-c", _SHORT_LIVED),
    ],
    ids=["burner", "forks", "threads", "short-lived"],
)
def test_cpu_seconds_are_the_kernels(words: tuple[str, ...]) -> None:
    finished = run(*python(_WITNESS), *words, options=("--interval", "0.1"))
    seen = float(finished.stdout.splitlines()[-1])
    # The witness goes on a little after it has looked.
    assert report_of(finished.stderr).record.metrics.cpu_seconds == pytest.approx(
        seen, rel=0.01, abs=0.015
    )


@pytest.mark.slow
def test_cpu_seconds_hold_an_orphans() -> None:
    words = python(_ORPHAN.format(_BURN.format(0.5).replace("\n", "\n        ")))
    cpu_seconds = _record(*words).metrics.cpu_seconds
    assert 0.5 <= present(cpu_seconds) < 1  # counted once


_SPIKE = (
    f"{READINGS_OF_FILES}block = bytearray(800 * 2**20)\nwait_until_read('/proc/self/io')\n"
    "del block\ntime.sleep("
)


@pytest.mark.slow
@pytest.mark.parametrize("rest_seconds", [0.1, 1.1])
def test_a_spike_of_a_single_process_that_is_read_is_the_kernels(rest_seconds: float) -> None:
    record = _record(*python(f"{_SPIKE}{rest_seconds})"))
    assert record.metrics.memory_peak_source == "kernel" or is_memory_unsure(record)
    assert 800 <= present(record.metrics.max_memory_used_mb) < 830


def test_pages_shared_by_several_processes_count_once() -> None:
    program = (
        f"{READINGS}block = bytearray(200 * 2**20)\nfor i in range(4):\n    if os.fork() == 0:\n  "
        "      wait_for_readings(20)\n        os._exit(0)\nfor i in range(4): os.wait()\n"
    )
    record = _record(*python(program), options=("--interval", "0.1"))
    metrics = record.metrics
    # Of several processes the kernel knows the peak only in a control group of their own.
    is_known = "cgroup" in present(record.sampling).sources and not is_memory_unsure(record)
    assert metrics.memory_peak_source == ("kernel" if is_known else "sampled")
    assert 200 <= present(metrics.max_memory_used_mb) < 260
    assert metrics.max_pids == 5


# --- where the line goes -------------------------------------------------------------------------


def test_output_appends_and_keeps_stderr_clean_and_costs_no_exit_code_where_it_fails(
    tmp_path: Path,
) -> None:
    file = tmp_path / "runs.jsonl"
    for code in (0, 3):
        finished = run("sh", "-c", f"exit {code}", options=("--output", str(file)))
        assert finished.returncode == code, finished.stderr
        assert finished.stderr == b""
    assert [decode(line).record.exit_code for line in file.read_bytes().splitlines()] == [
        0,
        3,
    ]
    finished = run("sh", "-c", "exit 3", options=("--output", "/dev/full"))
    assert finished.returncode == 3, finished.stderr
    assert report_of(finished.stderr).record.exit_code == 3
    assert b"--output /dev/full cannot be written" in finished.stderr


def test_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    earlier = b"x" * 4000 + b"\n"
    file.write_bytes(earlier)

    def full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    options = ("--no-history", "--output", str(file))
    finished = run("sh", "-c", "exit 3", options=options, preexec_fn=full_disk)
    assert finished.returncode == 3, finished.stderr
    assert file.read_bytes() == earlier
    assert b"runs.jsonl cannot be written (File too large)" in finished.stderr
    assert report_of(finished.stderr).record.exit_code == 3


@pytest.mark.parametrize("is_file", [True, False])
def test_output_to_a_hyphen_follows_the_commands_output(*, is_file: bool, tmp_path: Path) -> None:
    """In a regular file it begins a line of its own, as in any file of ``--output``."""
    with (tmp_path / "out").open("wb") as file:
        words = (*RUN, "--no-history", "--output", "-", "--", "sh", "-c", "printf done; echo >&2 x")
        stdout = file if is_file else subprocess.PIPE
        finished = subprocess.run(
            words, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, check=True
        )
    written = (tmp_path / "out").read_bytes() if is_file else finished.stdout
    assert written.startswith(b"done\n{" if is_file else b"done{")
    assert decode(written.removeprefix(b"done")).record.exit_code == 0
    assert finished.stderr == b"x\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("script", "kept"),
    [
        ("rm build/runs.jsonl", b""),
        ("rm -r build; mkdir build", b""),
        ("mv build/runs.jsonl build/runs.1; echo '{}' > build/runs.jsonl", b"{}\n"),
        ("mv build older; ln -s older build", b"earlier\n"),
    ],
)
def test_the_report_is_in_the_file_that_has_the_name_at_the_end(
    script: str, kept: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "build/runs.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"earlier\n")
    options = ("--output", "build/runs.jsonl")
    finished = run("sh", "-c", script, options=options, cwd=tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == b""
    written = file.read_bytes()
    assert written.startswith(kept)
    assert decode(written[len(kept) :].splitlines()[0]).record.exit_code == 0


@pytest.mark.parametrize("loses", ["rm -r build", "mv build kept"])
def test_a_report_whose_folder_is_gone_is_printed_with_a_sentence(
    loses: str, tmp_path: Path
) -> None:
    (tmp_path / "build").mkdir()
    options = ("--output", "build/runs.jsonl")
    finished = run("sh", "-c", f"{loses}; exit 3", options=options, cwd=tmp_path)
    assert finished.returncode == 3
    sentence, line = finished.stderr.splitlines()
    assert sentence == (
        b"task-profiler: --output build/runs.jsonl was removed or moved by the command, and "
        b"cannot be created again (No such file or directory)."
    )
    assert decode(line).record.exit_code == 3
    assert not (tmp_path / "build").exists()


def test_a_report_begins_a_line_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    file.write_bytes(b'{"cut off')
    assert run("true", options=("--output", str(file))).returncode == 0
    cut_off, line = file.read_bytes().splitlines()
    assert cut_off == b'{"cut off'
    assert decode(line).record.exit_code == 0


@pytest.mark.parametrize(
    "options",
    [
        *(("--output", path) for path in ("/no/such/folder/runs.jsonl", "/", "")),
        *(("--format", "xml"), ("--interval", "0.001"), ("--nonsense",), ("--name", "")),
        *(("--name", "x" * length) for length in (256, 70_000)),
    ],
)
def test_a_bad_option_is_one_sentence_and_starts_nothing(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    marker = tmp_path / "started"
    finished = run("touch", str(marker), options=options)
    assert finished.returncode == 2
    assert len(finished.stderr.splitlines()) == 1
    assert len(finished.stderr) < 400
    assert not marker.exists()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_size_that_changes_during_a_run_without_a_tick_counts() -> None:
    """The command leaves the profiler one CPU."""
    change = "import os, time; os.sched_setaffinity(os.getppid(), {0}); time.sleep(1.1)".replace(
        "{0}", str({min(os.sched_getaffinity(0))})
    )
    record = _record(*python(change), options=("--json", "--interval", "1m"))
    assert record.metrics.vcpu_size == 1


def test_a_short_command_is_run_without_slow_modules() -> None:
    """Each of them would delay every command.

    What the history, a sample or a GPU needs is imported for these alone.
    """
    command = (
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "profiler",
        "run",
        "--json",
        "--no-history",
        "--",
        "true",
    )
    finished = subprocess.run(
        command, capture_output=True, check=True, timeout=LIMIT_SECONDS, text=True
    )
    lines = [
        line.rpartition("|")[2].strip()
        for line in finished.stderr.splitlines()
        if "import time:" in line
    ]
    assert "profiler.local_run.session" in lines
    slow = {
        "click",
        "http.client",
        "pathlib",
        "profiler.aggregation.process_table",
        "profiler.aggregation.time_series",
        "profiler.readers.linux.script_names",
        "profiler.record.report_head",
        "profiler.record.stacks_line",
        "profiler.runs.history.recorder",
        "profiler.runs.history.run_database",
        "profiler.sizing.advice",
        "pynvml",
        "select",
        "shlex",
        "sqlite3",
    }
    assert not slow & {*lines}
    # The process of the command is forked between the two.
    assert lines.index("profiler.cli.wiring.run_and_report") < lines.index(
        "profiler.local_run.session"
    )


def test_a_notice_is_on_standard_error_and_in_the_record(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TASK_PROFILER_EXPECTED_SECONDS": "0.2",
        "TASK_PROFILER_STUCK_MINUTES": "0",
    }
    done = run("sleep", "0.6", options=("--interval", "0.1"), env=environment)
    notice, report = done.stderr.splitlines()
    line = decode_notice_json(notice)
    assert isinstance(line, NoticeLine)
    assert line.notice.kind == "overdue"
    assert line.record.status == "running"
    assert line.record.family == "sleep"
    assert [(one.kind, one.at) for one in decode(report).record.notices] == [("overdue", line.time)]
    output = tmp_path / "runs.jsonl"
    done = run(
        "sleep", "0.6", options=("--interval", "0.1", "--output", str(output)), env=environment
    )
    assert done.stderr.startswith(b"task-profiler: The run has taken ")
    assert done.stderr.count(b"\n") == 1
    assert decode(output.read_bytes()).record.notices != ()
