"""Keeps the subprocess neuron-monitor running in a thread, and passes on each report.

Its end leaves nothing behind.
"""

import math
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.optional_math import known_values
from profiler.core.threads import StoppableThread, ThreadFailure, WakeEvent
from profiler.core.timestamps import NEVER_NS, NS_PER_SECOND, format_ms
from profiler.readers import SourceHealth, Unavailable

if TYPE_CHECKING:
    import subprocess

_MAX_LINE_BYTES = 16 * 1024 * 1024
_RUNTIME_GROUPS = ("neuroncore_counters", "memory_used", "execution_stats")
_CHUNK_BYTES = 64 * 1024
_MIN_BACKOFF_NS = NS_PER_SECOND
_MAX_BACKOFF_NS = 60 * NS_PER_SECOND
_REPORTS_UNTIL_BACKOFF_RESET = 10
_MAX_PROBLEMS_LOGGED = 10


class LineSplitter:
    """Splits bytes into lines (up to 450 kB) and skips empty ones.

    A line above 16 MiB is not a report.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add the next bytes; returns the lines that they complete, without newlines."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._rest = rest if len(rest) <= _MAX_LINE_BYTES else b"too long"
        return [line for line in lines if line]


def neuron_period_seconds(interval_seconds: float) -> int:
    """Whole seconds, at least 1: neuron-monitor takes other values for 5 s, or prints nothing."""
    return max(1, int(interval_seconds))


def configuration_json(period_seconds: int) -> bytes:
    """The configuration as JSON for the neuron-monitor of October 2022 and later."""
    return msgspec.json.encode(
        {
            "period": f"{period_seconds}s",
            "neuron_runtimes": [
                {"tag_filter": ".*", "metrics": [{"type": group} for group in _RUNTIME_GROUPS]}
            ],
            "system_metrics": [
                {"type": "neuron_hw_counters", "period": f"{max(period_seconds, 5)}s"}
            ],
        }
    )


class _NeuronProcess:
    """A running neuron-monitor.

    A descendant that outlives it and holds its output open counts as silence.
    """

    def __init__(self, popen: "subprocess.Popen[bytes]", wake: WakeEvent) -> None:
        self._popen = popen
        self.pid = popen.pid
        self._streams = known_values((popen.stdout, popen.stderr))
        self._stdout, self._stderr = (stream.fileno() for stream in self._streams)
        self._wake = wake
        self._poll = select.poll()
        for descriptor in (self._stdout, self._stderr, wake.descriptor):
            self._poll.register(descriptor, select.POLLIN)
        os.set_blocking(self._stderr, False)
        self._stderr_tail = b""
        self.is_output_closed = False

    def read_output(self, max_seconds: float) -> bytes:
        """Wait for output until the timeout or the wake event; returns it, or empty bytes."""
        ready = {
            descriptor for descriptor, _ in self._poll.poll(math.ceil(max(max_seconds, 0) * 1000))
        }
        if self._wake.descriptor in ready:
            self._wake.clear()
        if self._stderr in ready:
            self._read_stderr_chunk()
        if self._stdout not in ready:
            return b""
        chunk = os.read(self._stdout, _CHUNK_BYTES)
        self.is_output_closed = not chunk
        return chunk

    def signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def kill_and_reap(self) -> str:
        """Kill and reap the process; returns how it ended, with the last line of its stderr."""
        import subprocess  # see _start_process

        self.signal(signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            # A process that hangs in the driver cannot be reaped.
            self._popen.wait(1)
        self._read_stderr_chunk()
        for stream in self._streams:
            stream.close()
        last_error_line = (
            self._stderr_tail.decode("utf-8", "replace").strip().rpartition("\n")[2].strip()
        )
        reason = _describe_exit(self._popen.returncode)
        if last_error_line:
            reason = f"{reason}: {last_error_line}"
        return reason

    def _read_stderr_chunk(self) -> None:
        try:
            chunk = os.read(self._stderr, _CHUNK_BYTES)
        except BlockingIOError:
            return
        self._stderr_tail = (self._stderr_tail + chunk)[-4096:]
        if not chunk:
            with suppress(KeyError):
                self._poll.unregister(self._stderr)


def _start_process(program: str, content: bytes, wake: WakeEvent) -> _NeuronProcess | Unavailable:
    import subprocess  # 0.5 MiB that only a monitor with Neuron devices needs

    try:
        # Only this process and its children can read this file.
        with os.fdopen(os.memfd_create("neuron-monitor.json"), "wb", buffering=0) as file:
            file.write(content)
            starter = str(Path(__file__).with_name("end_with_parent.py"))
            tied = (sys.executable, "-I", "-S", starter, str(os.getpid()))
            popen = subprocess.Popen(  # noqa: S603  an absolute path, found in folders of root
                (*tied, program, "-c", f"/proc/self/fd/{file.fileno()}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=(file.fileno(),),
            )
    except OSError as error:
        return Unavailable(f"it cannot be started: {error.strerror}")
    return _NeuronProcess(popen, wake)


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "it does not end, even when killed"
    if code == 0:  # ``run`` may have reaped it with all other children: the code is then lost
        return "it ended"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


class Outage(ThreadFailure, frozen=True):
    """The time and the reason of neuron-monitor's end or silence.

    Its next report, after a restart, ends the outage.
    """

    def sentence(self, values: str) -> str:
        return (
            f"neuron-monitor stopped at {format_ms(self.at_ns)} ({self.reason}): the {values} end "
            "there."
        )


def silence_seconds(period_seconds: int) -> int:
    """How long neuron-monitor may be silent before it is started again."""
    return max(10, 5 * period_seconds)


class Supervision:
    """When neuron-monitor starts next or, while it runs, counts as silent: at ``deadline_ns``
    (monotonic).
    """

    def __init__(self, period_seconds: int) -> None:
        self.silence_timeout_ns = silence_seconds(period_seconds) * NS_PER_SECOND
        self.deadline_ns = 0
        self.starts = 0
        self._reports = 0
        self._backoff_ns = _MIN_BACKOFF_NS

    def on_started(self, now_ns: int) -> None:
        self._reports = 0
        self.starts += 1
        self.deadline_ns = now_ns + self.silence_timeout_ns

    def on_report(self, now_ns: int) -> None:
        self._reports += 1
        if self._reports >= _REPORTS_UNTIL_BACKOFF_RESET:
            self._backoff_ns = _MIN_BACKOFF_NS
        self.deadline_ns = now_ns + self.silence_timeout_ns

    def on_exit(self, now_ns: int) -> None:
        """Note that the process has ended, or could not be started."""
        self.deadline_ns = now_ns + self._backoff_ns
        self._backoff_ns = min(2 * self._backoff_ns, _MAX_BACKOFF_NS)


class NoNeuronMonitor:
    """neuron-monitor is not installed: nothing runs, and nothing is reported."""

    is_installed = False
    restarts = 0
    pid: int | None = None
    failure: ThreadFailure | None = None
    outage: Outage | None = None

    def start(self, on_report: Callable[[NeuronReport], None]) -> None:
        """There is nothing to start."""

    def stop(self, max_seconds: float) -> None:
        """There is nothing to stop."""


NO_NEURON_MONITOR = NoNeuronMonitor()


class NeuronMonitorSource:
    """Runs neuron-monitor again and again.

    ``outage`` is set from its end or silence to its next report.
    """

    name = "neuron-monitor"
    is_installed = True

    def __init__(self, program: str, period_seconds: int, clock: Clock, log: Log) -> None:
        self._program = program
        self._configuration = configuration_json(period_seconds)
        self._clock = clock
        self._log = log
        self._on_report: Callable[[NeuronReport], None] = lambda _: None
        self._health = SourceHealth(self.name, log)
        self._logged_problems: set[str] = set()
        self._state = Supervision(period_seconds)
        self._stop_deadline_ns = NEVER_NS
        self._wake: WakeEvent | None = None
        self._thread: StoppableThread | None = None
        self._process: _NeuronProcess | None = None
        self.outage: Outage | None = None

    @property
    def restarts(self) -> int:
        return max(self._state.starts - 1, 0)

    @property
    def pid(self) -> int | None:
        """The process id of neuron-monitor while it runs: a child of this process that is not
        part of the batch.
        """
        process = self._process
        return None if process is None else process.pid

    @property
    def failure(self) -> ThreadFailure | None:
        return None if self._thread is None else self._thread.failure

    @property
    def _is_stopping(self) -> bool:
        return self._stop_deadline_ns < NEVER_NS

    def start(self, on_report: Callable[[NeuronReport], None]) -> None:
        """Start the thread, once.

        It calls ``on_report`` with each report, which must be fast and must not raise.
        """
        if self._thread is None and not self._is_stopping:
            self._on_report = on_report
            wake = WakeEvent()
            self._wake = wake
            self._thread = StoppableThread(
                self.name, lambda: self._supervise(wake), wake.set, self._clock
            )
            self._thread.start()

    def stop(self, max_seconds: float) -> None:
        """End neuron-monitor within ``max_seconds``: SIGTERM, read its last reports, SIGKILL,
        all in its thread.
        """
        if not self._is_stopping:  # the rest of the time is for SIGKILL
            self._stop_deadline_ns = self._clock.monotonic_ns() + round(
                0.9 * max_seconds * NS_PER_SECOND
            )
        thread = self._thread
        wake = self._wake
        if thread is not None and wake is not None and thread.stop(max_seconds):
            self._wake = None
            wake.close()

    def _supervise(self, wake: WakeEvent) -> None:
        while not self._is_stopping:
            left_seconds = self._seconds_until(self._state.deadline_ns)
            if left_seconds > 0:
                wake.wait(left_seconds)
                continue
            process = _start_process(self._program, self._configuration, wake)
            if isinstance(process, Unavailable):
                self._on_run_failed(process.reason)
            else:
                self._state.on_started(self._clock.monotonic_ns())
                self._process = process
                self._read_reports(process)

    def _read_reports(self, process: _NeuronProcess) -> None:
        """Read reports until the process ends, is silent or must stop.

        It no longer runs on return.
        """
        splitter = LineSplitter()
        is_silent = False
        try:
            while not (is_silent or process.is_output_closed or self._is_stopping):
                self._parse_chunk(
                    splitter, process.read_output(self._seconds_until(self._state.deadline_ns))
                )
                is_silent = self._seconds_until(self._state.deadline_ns) <= 0
            self._terminate(process, splitter)
        finally:
            exit_reason = process.kill_and_reap()
            self._process = None
        if not self._is_stopping:
            reason = exit_reason
            if is_silent:
                seconds = self._state.silence_timeout_ns // NS_PER_SECOND
                reason = f"it was silent for {seconds} s"
            self._on_run_failed(reason)

    def _terminate(self, process: _NeuronProcess, splitter: LineSplitter) -> None:
        if process.is_output_closed:
            return
        process.signal(signal.SIGTERM)
        deadline_ns = self._clock.monotonic_ns() + NS_PER_SECOND
        while not process.is_output_closed:
            # A stop may be requested during the loop.
            left_seconds = self._seconds_until(min(deadline_ns, self._stop_deadline_ns))
            if left_seconds <= 0:
                return
            self._parse_chunk(splitter, process.read_output(left_seconds))

    def _parse_chunk(self, splitter: LineSplitter, chunk: bytes) -> None:
        for line in splitter.feed(chunk):
            report = decode_report(line)
            if isinstance(report, Unavailable):
                self._health.on_failure(report)
                continue
            self._state.on_report(self._clock.monotonic_ns())
            self._health.on_success()
            self.outage = None
            for problem in report.problems:
                if (
                    problem not in self._logged_problems
                    and len(self._logged_problems) < _MAX_PROBLEMS_LOGGED
                ):
                    self._logged_problems.add(problem)
                    self._log.warning(
                        "neuron-monitor could not read a part of its report", reason=problem
                    )
            self._on_report(report)

    def _on_run_failed(self, reason: str) -> None:
        self._state.on_exit(self._clock.monotonic_ns())
        self._health.on_failure(Unavailable(reason))
        self.outage = self.outage or Outage(self._clock.wall_ns(), reason)

    def _seconds_until(self, moment_ns: float) -> float:
        # Then the clock is read again.
        return min((moment_ns - self._clock.monotonic_ns()) / NS_PER_SECOND, 1.0)
