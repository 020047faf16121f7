"""The rows of the processes against the kernel's own counts: each program writes down its CPU time
at its end.
"""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.record.measured import AtLeast
from profiler.record.process_rows import is_other_processes, measured_rows
from profiler.record.record_model import Record
from tests.integration.profiled import report_of, run
from tests.values import present

# The kernel has the CPU time of the children in clock ticks, of the user and of the system.
_ROUNDING_SECONDS = 0.06
_SHORT = """
import pathlib, time
while time.process_time() < {seconds}: pass
with pathlib.Path(__file__).with_suffix(".seconds").open("a") as used:
    print(time.process_time(), file=used)
"""
_DRIVER = """
import pathlib, subprocess, sys
folder = pathlib.Path(__file__).parent
for _ in range(40):
    for name in ("heavy.py", "light.py"):
        subprocess.run([sys.executable, "-I", "-S", folder / name], check=True)
"""
# Children come and go beside their parent, which grows and shrinks.
_MEMORY = """
import subprocess, sys, time
held = bytearray(90 << 20)
for _ in range(5):
    subprocess.run([sys.executable, "-c", "import time; b = bytearray(40 << 20); time.sleep(0.3)"])
grown = []
for _ in range(10):
    grown.append(bytearray(10 << 20))
    time.sleep(0.1)
del grown
time.sleep(0.5)
"""
_RENAMED = """
import ctypes, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
burn(0.6)
ctypes.CDLL(None).prctl(15, b"MainThread", 0, 0, 0)
burn(0.6)
"""


@pytest.fixture(scope="module")
def short_programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Record, Path]:
    """A run of many short programs of two names, and the folder with what they wrote."""
    folder = tmp_path_factory.mktemp("short")
    (folder / "heavy.py").write_text(_SHORT.format(seconds=0.02))
    (folder / "light.py").write_text(_SHORT.format(seconds=0))
    return _record(folder / "driver.py", _DRIVER), folder


def _record(script: Path, program: str) -> Record:
    script.write_text(textwrap.dedent(program))
    finished = run(sys.executable, str(script))
    assert finished.returncode == 0, finished.stderr
    return report_of(finished.stderr).record


@pytest.mark.slow
def test_a_short_program_has_no_more_cpu_time_than_it_used(
    short_programs: tuple[Record, Path],
) -> None:
    record, folder = short_programs
    for row in record.processes:
        script = folder / row.name.rpartition(" ")[2]
        if script.with_suffix(".seconds").exists():
            used = sum(map(float, script.with_suffix(".seconds").read_text().split()))
            # The end of an interpreter is after its last word.
            assert (row.cpu_seconds or 0) <= 1.5 * used + _ROUNDING_SECONDS


@pytest.mark.slow
def test_all_rows_together_have_the_cpu_time_of_the_run(
    short_programs: tuple[Record, Path],
) -> None:
    record, _ = short_programs
    total = present(record.metrics.cpu_seconds)
    listed = sum(row.cpu_seconds or 0 for row in record.processes)
    assert listed == pytest.approx(total, abs=max(_ROUNDING_SECONDS, 0.01 * total))


@pytest.mark.slow
def test_unread_cpu_time_is_in_the_last_row_and_in_the_series(
    short_programs: tuple[Record, Path],
) -> None:
    record, _ = short_programs
    assert is_other_processes(record.processes[-1])
    rows = measured_rows(record.processes, record.metrics.memory_peak)
    assert all(isinstance(row.cpu_seconds, AtLeast) for row in rows[:-1])
    assert present(record.series).processes[-1].command == "other"


def _rows_above(record: Record, column: str) -> Iterator[tuple[str, int, float, float]]:
    """The values of commands that are above the run's in the same step."""
    series = present(record.series)
    totals = getattr(series, column)
    for row in series.processes:
        values = getattr(row, column) or ()
        for index, value in enumerate(values):
            if value is not None and totals[index] is not None and value > totals[index]:
                yield row.command, index, value, totals[index]


def test_no_command_is_above_the_run_in_any_step(tmp_path: Path) -> None:
    record = _record(tmp_path / "memory.py", _MEMORY)
    assert len(present(record.series).processes) > 1
    assert not list(_rows_above(record, "memory_used_mb"))
    assert not list(_rows_above(record, "vcpu_used"))


def test_a_run_of_one_program_is_its_program_in_all_steps(tmp_path: Path) -> None:
    """Its last reading, after its end, is no reading of the time before."""
    program = "import time; held = bytearray(90 << 20); time.sleep(1.6)"
    series = present(_record(tmp_path / "alone.py", program).series)
    (row,) = series.processes
    totals = present(series.memory_used_mb)
    for size, total in zip(present(row.memory_used_mb), totals, strict=True):
        assert size is None or total is None or size >= total - 5


@pytest.mark.slow
def test_a_program_that_renames_its_main_thread_is_one_row(tmp_path: Path) -> None:
    record = _record(tmp_path / "renamed.py", _RENAMED)
    (row,) = [row for row in record.processes if not is_other_processes(row)]
    assert row.name == f"{Path(sys.executable).name} renamed.py"
    assert row.count == 1
