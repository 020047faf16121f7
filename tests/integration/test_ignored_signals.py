"""The tests pass in a session that inherited ignored signals (``make test &`` in a script, ``nohup make test``)."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_session_that_inherited_ignored_signals_can_send_them() -> None:
    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(number, signal.SIG_IGN)

    test = "tests/integration/test_run.py::test_a_command_that_dies_of_a_passed_on_signal"
    options = ("-p", "no:cacheprovider", "--timeout", "30")
    finished = subprocess.run(
        (sys.executable, "-m", "pytest", "-q", *options, test),
        cwd=ROOT,
        capture_output=True,
        check=False,
        preexec_fn=ignore,
        text=True,
    )
    assert finished.returncode == 0, finished.stdout
    assert "3 passed" in finished.stdout
