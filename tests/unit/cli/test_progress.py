"""The progress of a long operation, in a real terminal and without one."""

import os
import subprocess
import sys
from pathlib import Path

from tests.terminals import shown_on_terminal

PROGRAM = """
import os
from profiler.cli.progress import progress_row
with progress_row(os.environ) as show:
    show("3 runs", None)
    show("9 runs", 0.5)  # too soon after the last one
    print("registered", flush=True)
"""


def in_terminal(output: Path, **environment: str) -> str:
    """What the program writes to a terminal that is its standard error."""
    settings = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    with output.open("wb") as file:
        shown = shown_on_terminal([sys.executable, "-c", PROGRAM], settings | environment, stdout=file.fileno())
    assert (shown[1], output.read_bytes()) == (0, b"registered\n")
    return shown[0]


def test_the_progress_is_in_the_bottom_row_until_the_end(tmp_path: Path) -> None:
    written = in_terminal(tmp_path / "output")
    assert "3 runs …" in written
    assert "9 runs" not in written
    assert written.endswith("\x1b[r\x1b8")


def test_without_a_terminal_or_its_control_codes_there_is_no_progress(tmp_path: Path) -> None:
    assert in_terminal(tmp_path / "output", TERM="dumb") == ""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"registered\n", b"")
