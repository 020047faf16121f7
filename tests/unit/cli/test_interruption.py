"""A signal ends a command without a traceback, wherever it comes."""

import signal
import subprocess
import sys

import pytest

from tools.waiting import LIMIT_SECONDS

_HALF_MADE = """
import os, signal, sys
class File:
    def __init__(self, number):
        os.kill(os.getpid(), number)
        self.is_open = True
    def __del__(self):
        self.is_open
"""
_COMMAND = f"""{_HALF_MADE}
from profiler.cli.interruption import StoppedBySignal, signals_end_command
try:
    with signals_end_command():
        File(int(sys.argv[1]))
except StoppedBySignal as stopped:
    code = stopped.exit_code
sys.exit(code)
"""
_WATCH = f"""{_HALF_MADE}
from profiler.cli.watch_command import _screen_until_signal
with _screen_until_signal():
    File(int(sys.argv[1]))
"""


@pytest.mark.diagonal
@pytest.mark.parametrize("program", [_COMMAND, _WATCH], ids=["command", "watch"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_object_that_a_signal_leaves_half_made_prints_nothing(program: str, number: int) -> None:
    words = (sys.executable, "-c", program, str(int(number)))
    ended = subprocess.run(words, capture_output=True, timeout=LIMIT_SECONDS, check=False)
    assert (ended.returncode, ended.stderr) == (128 + number, b"")


_IMPORTED = """
import builtins, os, signal, sys
from profiler.cli import main
module, imported = sys.argv.pop(1), __import__
def interrupted(name, *others):
    if name == module:
        os.kill(os.getpid(), signal.SIGINT)
    return imported(name, *others)
builtins.__import__ = interrupted
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("profiler.cli.app", ("history",)),
        ("profiler.cli.run_options", ("run", "--", "true")),
        ("profiler.cli.wiring.run_and_report", ("run", "--", "true")),
    ],
)
def test_ctrl_c_while_a_command_is_imported_prints_nothing(
    module: str, words: tuple[str, ...]
) -> None:
    started = (sys.executable, "-c", _IMPORTED, module)
    ended = subprocess.run(
        (*started, *words), capture_output=True, timeout=LIMIT_SECONDS, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")
