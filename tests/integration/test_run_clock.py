"""``task-profiler run`` while the wall clock is set, or the machine is suspended."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiler.core.timestamps import parse_ns
from profiler.record.record_model import Record
from tests.integration.profiled import report_of
from tests.values import present, without_caused_by_others
from tools.waiting import LIMIT_SECONDS

# The wall clock moves by so many seconds when the command has made the file.
_WITH_A_CLOCK_THAT_IS_SET = """
import os, sys
from profiler.cli import main
from profiler.core.clock import SystemClock
moved_ns, flag = int(sys.argv.pop(1)) * 10**9, sys.argv.pop(1)
wall_ns = SystemClock.wall_ns
SystemClock.wall_ns = lambda clock: wall_ns(clock) + (moved_ns if os.path.exists(flag) else 0)
main()
"""

_HOLDS_MEMORY = """
import sys, time
held = bytearray(50 << 20)
open(sys.argv[1], "w").close()
time.sleep(0.3)
"""


def run_while_the_clock_moves(seconds: int, folder: Path) -> Record:
    flag = folder / "set"
    command = (sys.executable, "-c", _WITH_A_CLOCK_THAT_IS_SET, str(seconds), str(flag))
    done = subprocess.run(
        (
            *command,
            "run",
            "--json",
            "--no-history",
            "--",
            sys.executable,
            "-c",
            _HOLDS_MEMORY,
            flag,
        ),
        capture_output=True,
        check=True,
        timeout=LIMIT_SECONDS,
        env=os.environ,
    )
    return report_of(done.stderr).record


@pytest.mark.parametrize(("seconds", "direction"), [(28_800, "forward"), (-28_800, "back")])
def test_a_wall_clock_that_is_set_during_a_run_is_a_warning(
    tmp_path: Path, seconds: int, direction: str
) -> None:
    record = run_while_the_clock_moves(seconds, tmp_path)
    (warning,) = without_caused_by_others(present(record.monitor).warnings)
    assert warning.startswith(f"The wall clock was set {direction} by 28800 s during the run")
    assert not any("8h" in text for text in present(record.monitor).warnings), "nor any other time"
    assert 300 <= present(record.metrics.duration_ms) < 1000 * LIMIT_SECONDS
    moved_ns = present(parse_ns(record.finished_at)) - present(parse_ns(record.started_at))
    assert round(moved_ns / 3_600e9) == seconds // 3_600


def test_a_wall_clock_that_is_steered_during_a_run_is_no_warning(tmp_path: Path) -> None:
    record = run_while_the_clock_moves(1, tmp_path)
    assert not without_caused_by_others(present(record.monitor).warnings)
