"""The source with a real process that plays neuron-monitor (``tests/fake_neuron_monitor.py``),
and its records.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from profiler.collectors.neuron import (
    NEURON_TOOLS_FOLDER,
    find_neuron_monitor,
    neuron_devices,
)
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport
from profiler.collectors.neuron.neuron_monitor_supervisor import NeuronMonitorSource
from profiler.core.clock import Clock, SystemClock
from profiler.record.record_model import NO_NEURON
from tests.fake_neuron_monitor import install, starts
from tests.fakes import FakeClock, FakeLog
from tests.integration.profiled import profiled
from tests.neuron_documents import report, runtime
from tests.open_files import open_files
from tests.values import present
from tools.waiting import LIMIT_SECONDS, wait_until

BUSY = {"line": report(runtime({0: 75.0, 1: 0}, {0: 10, 1: 0}))}
STAY = {"stay": True}
_FIRST_WAIT_SECONDS = 1
# The tools' own folder comes before PATH, where these tests put their program.
without_neuron_tools = pytest.mark.skipif(
    Path(NEURON_TOOLS_FOLDER).exists(), reason="this machine has AWS's Neuron tools"
)


class Watched:
    """A source and its reports. The fake clock moves only by ``pass_time``."""

    def __init__(self, program: Path, clock: Clock, period_seconds: int = 1) -> None:
        self.program = program
        self.clock = clock
        self.log = FakeLog()
        self.reports: list[NeuronReport] = []
        self.source = NeuronMonitorSource(str(program), period_seconds, clock, self.log)

    def start(self) -> None:
        self.source.start(self.reports.append)

    @property
    def failures(self) -> int:
        """Lines that were no report, ends, failed starts, and timeouts of a silent process."""
        return self.source._health.failures

    @property
    def starts(self) -> list[dict[str, Any]]:
        return starts(self.program)

    def wait_for(self, *, reports: int = 0, failures: int = 0) -> None:
        wait_until(lambda: len(self.reports) >= reports, f"{reports} reports")
        wait_until(lambda: self.failures >= failures, f"{failures} failures")

    def pass_time(self, seconds: float) -> None:
        """Move the fake clock, and wake the source so that it reads the clock at once."""
        assert isinstance(self.clock, FakeClock)
        self.clock.advance(seconds)
        if self.source._wake is not None:
            self.source._wake.set()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Any]:
    begun: list[Watched] = []

    def begin(
        *lives: list[dict[str, Any]], clock: Clock | None = None, period_seconds: int = 1
    ) -> Watched:
        watched = Watched(install(tmp_path, *lives), clock or FakeClock(), period_seconds)
        begun.append(watched)
        watched.start()
        return watched

    yield begin
    for watched in begun:
        watched.source.stop(0)
        wait_until(lambda: not threads(), "the end of the threads")


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "neuron-monitor"]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; an unreaped one remains as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_it_is_started_alone_with_a_configuration_that_it_takes(watch: Any) -> None:
    watched = watch([BUSY, STAY], period_seconds=7)
    watched.wait_for(reports=1)
    (start,) = watched.starts
    assert start["refused"] is None
    assert start["config"]["period"] == "7s"
    assert start["stdin"] == "/dev/null"
    assert watched.source.pid == start["pid"]
    assert os.getsid(start["pid"]) == os.getpgid(start["pid"]) == start["pid"]
    assert os.getsid(0) != start["pid"]


def test_stderr_is_drained_and_its_last_line_is_the_reason(watch: Any) -> None:
    flood = {"complain": "a lot of words\n" * 100_000}
    watched = watch([flood, BUSY, {"complain": "driver: no such device\n"}, {"exit": 3}], [STAY])
    watched.wait_for(reports=1, failures=1)
    (line,) = watched.log.lines
    assert line[0] == "warning"
    assert line[2] == {"reason": "it ended with exit code 3: driver: no such device"}


def test_lines_that_are_no_report_are_counted_and_skipped(watch: Any) -> None:
    watched = watch([{"text": 'Usage:\n{"half\n\n[]\n'}, BUSY, BUSY, STAY])
    watched.wait_for(reports=2)
    assert watched.failures == 3
    assert watched.source.restarts == 0
    assert watched.log.events("warning") == ["neuron-monitor cannot be read and is tried again"]
    assert watched.log.events("info") == ["neuron-monitor can be read again"]


def test_an_error_of_a_part_of_a_report_of_450_kilobytes_is_logged_once(watch: Any) -> None:
    broken = runtime({0: 1}, {0: 1})
    broken["report"]["memory_used"]["error"] = "cannot read the memory"
    watched = watch([{"line": report(broken), "pad_to": 450_000}] * 3 + [STAY])
    watched.wait_for(reports=3)
    assert watched.reports == [watched.reports[0]] * 3
    assert watched.failures == 0
    assert [fields for _, _, fields in watched.log.lines] == [{"reason": "cannot read the memory"}]


def test_it_is_started_again_after_half_a_line_and_death(watch: Any) -> None:
    watched = watch([BUSY, {"text": '{"neuron_runtime_da'}, {"exit": 1}], [BUSY, STAY])
    watched.wait_for(reports=1, failures=1)
    assert len(watched.starts) == 1
    watched.pass_time(_FIRST_WAIT_SECONDS)
    watched.wait_for(reports=2)
    assert watched.source.restarts == 1
    assert watched.failures == 1
    assert watched.log.events("info") == ["neuron-monitor can be read again"]


def test_silence_ends_it_even_if_it_ignores_sigterm(watch: Any) -> None:
    watched = watch([{"ignore_sigterm": True}, BUSY, STAY], [BUSY, STAY])
    watched.wait_for(reports=1)
    (first,) = watched.starts
    watched.pass_time(9.9)
    watched.pass_time(0.1)
    # The time to end after SIGTERM passes on the fake clock, too.
    wait_until(lambda: watched.failures or watched.pass_time(0.5), "its end")
    assert is_gone(first["pid"])
    assert [fields for _, _, fields in watched.log.lines] == [{"reason": "it was silent for 10 s"}]
    watched.pass_time(_FIRST_WAIT_SECONDS)
    watched.wait_for(reports=2)
    assert watched.source.restarts == 1
    assert watched.failures == 1


@pytest.mark.parametrize("stubborn", [False, True])
def test_stop_ends_it_whether_it_listens_or_not(watch: Any, *, stubborn: bool) -> None:
    before = open_files()
    watched = watch([{"ignore_sigterm": True}] * stubborn + [BUSY, STAY], clock=SystemClock())
    watched.wait_for(reports=1)
    (start,) = watched.starts
    watched.source.stop(LIMIT_SECONDS)
    assert is_gone(start["pid"])
    assert not Path(f"/proc/{start['pid']}").exists()  # reaped, no zombie
    assert watched.failures == 0
    assert watched.source.restarts == 0
    assert watched.log.lines == []
    assert watched.source.pid is None
    assert open_files() <= before
    watched.source.stop(1)


def test_stop_cuts_the_wait_for_the_next_start_short(watch: Any) -> None:
    watched = watch([{"exit": 0}])
    watched.wait_for(failures=1)
    assert threads()
    watched.source.stop(LIMIT_SECONDS)
    assert not threads()


_PARENT = """
import signal, sys
from profiler.core.clock import SystemClock
from profiler.collectors.neuron.neuron_monitor_supervisor import NeuronMonitorSource
from tests.fakes import FakeLog
NeuronMonitorSource(sys.argv[1], 1, SystemClock(), FakeLog()).start(print)
signal.pause()
"""


def test_no_orphan_is_left_when_the_monitor_is_killed(tmp_path: Path) -> None:
    """It writes nothing and ignores SIGTERM, so that neither a broken pipe nor SIGTERM ends it."""
    program = install(tmp_path, [{"ignore_sigterm": True}, STAY])
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(program)])
    try:
        (start,) = wait_until(lambda: starts(program), "its start")
        assert not is_gone(start["pid"])
    finally:
        parent.kill()
        parent.wait()
    try:
        wait_until(lambda: is_gone(start["pid"]), "the end of the orphan")
    finally:
        with suppress(ProcessLookupError):
            os.kill(start["pid"], signal.SIGKILL)


def test_neuron_monitor_is_found_only_as_a_program(
    tmp_path: Path,
) -> None:
    """It is found in path only as a program and device nodes by their numbers."""
    program = install(tmp_path, [STAY])
    missing = f"{tmp_path}/missing"
    assert find_neuron_monitor(f"/nonexistent:{tmp_path}", missing) == str(program)
    assert find_neuron_monitor(missing, str(tmp_path)) == str(program)
    program.chmod(0o644)
    assert find_neuron_monitor(str(tmp_path), missing) is None
    for name in ("neuron0", "neuron10", "neuron_x", "neuron", "null"):
        (tmp_path / name).touch()
    assert neuron_devices(str(tmp_path)) == (f"{tmp_path}/neuron0", f"{tmp_path}/neuron10")
    assert neuron_devices(f"{tmp_path}/missing") == ()


def in_path(program: Path) -> dict[str, str]:
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


@without_neuron_tools
def test_run_reports_the_cores_and_neuron_monitor_is_no_part_of_the_command(tmp_path: Path) -> None:
    """neuron-monitor ends and is started anew while the command runs: neither life is counted or
    left.
    """
    burn = {"burn_seconds": 0.2}
    # The command ends, however slow the machine is, once the program has played a step.
    fifo = tmp_path / "until-reported"
    os.mkfifo(fifo)
    let_go = {"let_go": str(fifo)}
    program = install(
        tmp_path, [burn, BUSY, {"exit": 1}], [{"ignore_sigterm": True}, BUSY, let_go, STAY]
    )
    record, before = profiled(in_path(program), "cat", str(fifo), NEURON="on")
    assert before == []
    assert record.neuron != NO_NEURON
    assert present(record.neuron.cores[0].utilization_percent).max == 75
    # A program that a busy machine keeps silent for 10 s is started anew, too.
    assert present(record.neuron.restarts) >= 1
    # On a busy machine, the run may end before the report of the second life is read: a warning
    # names the outage then.
    is_out = any("Neuron values" in warning for warning in present(record.monitor).warnings)
    assert ("neuron-monitor" in present(record.sampling).sources) is not is_out
    assert len(starts(program)) == 1 + present(record.neuron.restarts)
    for start in starts(program):
        assert not Path(f"/proc/{start['pid']}").exists()
    # The fake is a Python program of 10 MiB.
    assert present(record.metrics.cpu_seconds) < burn["burn_seconds"]
    assert present(record.metrics.max_memory_used_mb) < 8
    assert record.metrics.max_pids == 1


@without_neuron_tools
@pytest.mark.skipif(bool(neuron_devices()), reason="this machine has Neuron devices")
@pytest.mark.parametrize("settings", [{}, {"NEURON": "off"}])
def test_a_program_with_the_name_is_no_device_and_off_starts_nothing(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    program = install(tmp_path, [BUSY, STAY])
    record, before = profiled(in_path(program), "sleep", "0.5", **settings)
    assert record.neuron == NO_NEURON
    assert starts(program) == []
    assert before == []
