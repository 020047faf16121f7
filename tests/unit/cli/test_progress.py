"""The progress of a long operation, in a real terminal and without one."""

import os
import pty
import subprocess
import sys
import termios

PROGRAM = """
import os
from profiler.cli.progress import progress_row
with progress_row(os.environ) as show:
    show("3 runs", None)
    show("9 runs", 0.5)  # too soon after the last one
    print("registered", flush=True)
"""


def in_terminal(**environment: str) -> str:
    """What the program writes to a terminal that is its standard error."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    termios.tcsetwinsize(theirs, (24, 80))
    settings = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=theirs, env=settings | environment, check=True
    )
    assert done.stdout == b"registered\n"
    os.close(theirs)
    try:
        return os.read(ours, 65536).decode()
    except (BlockingIOError, OSError):
        return ""
    finally:
        os.close(ours)


def test_the_progress_is_in_the_bottom_row_until_the_end() -> None:
    written = in_terminal()
    assert "3 runs …" in written
    assert "9 runs" not in written
    assert written.endswith("\x1b[r\x1b8")


def test_a_terminal_without_control_codes_shows_no_progress() -> None:
    assert in_terminal(TERM="dumb") == ""


def test_without_a_terminal_there_is_no_progress() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"registered\n", b"")
