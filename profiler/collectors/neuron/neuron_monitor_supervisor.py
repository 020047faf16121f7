"""Keeps neuron-monitor running in a thread, with a backoff between its starts, and passes on each report."""

from collections.abc import Callable

from profiler.collectors.neuron.neuron_monitor_process import (
    LineSplitter,
    NeuronProcess,
    configuration,
    start_process,
)
from profiler.collectors.neuron.neuron_monitor_reports import NeuronReport, decode_report
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.threads import StoppableThread, ThreadFailure, WakeEvent
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.readers import SourceHealth, Unavailable

MIN_BACKOFF_NS = NS_PER_SECOND
MAX_BACKOFF_NS = 60 * NS_PER_SECOND
REPORTS_UNTIL_BACKOFF_RESET = 10
_MAX_PROBLEMS_LOGGED = 10


class Outage(ThreadFailure, frozen=True):
    """The time and the reason of neuron-monitor's end or silence. Its next report, after a restart, ends the outage."""

    def sentence(self, values: str) -> str:
        return f"neuron-monitor stopped at {format_ms(self.at_ns)} ({self.reason}): the {values} end there."


class Supervision:
    """When to start neuron-monitor, and when to give up waiting for it.

    ``deadline_ns`` (monotonic) is the time of the next start or, while neuron-monitor runs, the time at which it counts
    as silent.
    """

    def __init__(self, period_seconds: int) -> None:
        self.silence_timeout_ns = max(10, 5 * period_seconds) * NS_PER_SECOND
        self.deadline_ns = 0
        self.is_running = False
        self.starts = 0
        self._reports = 0
        self._backoff_ns = MIN_BACKOFF_NS

    def is_start_due(self, now_ns: int) -> bool:
        return not self.is_running and now_ns >= self.deadline_ns

    def is_silent(self, now_ns: int) -> bool:
        """Whether neuron-monitor runs and has printed nothing until the deadline."""
        return self.is_running and now_ns >= self.deadline_ns

    def on_started(self, now_ns: int) -> None:
        self.is_running, self._reports = True, 0
        self.starts += 1
        self.deadline_ns = now_ns + self.silence_timeout_ns

    def on_report(self, now_ns: int) -> None:
        self._reports += 1
        if self._reports >= REPORTS_UNTIL_BACKOFF_RESET:
            self._backoff_ns = MIN_BACKOFF_NS
        self.deadline_ns = now_ns + self.silence_timeout_ns

    def on_exit(self, now_ns: int) -> None:
        """Note that the process has ended, or could not be started."""
        self.is_running = False
        self.deadline_ns = now_ns + self._backoff_ns
        self._backoff_ns = min(2 * self._backoff_ns, MAX_BACKOFF_NS)


class NeuronMonitorSource:
    """Runs neuron-monitor again and again. ``outage`` is set from its end or silence to its next report."""

    name = "neuron-monitor"

    def __init__(self, program: str, period_seconds: int, clock: Clock, log: Log) -> None:
        self._program = program
        self._configuration = configuration(period_seconds)
        self._clock = clock
        self._log = log
        self._on_report: Callable[[NeuronReport], None] = lambda _: None
        self._health = SourceHealth(self.name, log)
        self._logged_problems: set[str] = set()
        self._state = Supervision(period_seconds)
        self._stop_deadline_ns: int | None = None
        self._wake: WakeEvent | None = None
        self._thread: StoppableThread | None = None
        self._process: NeuronProcess | None = None
        self.outage: Outage | None = None

    @property
    def restarts(self) -> int:
        return max(self._state.starts - 1, 0)

    @property
    def pid(self) -> int | None:
        """The process id of neuron-monitor while it runs: a child of this process that is not part of the batch."""
        process = self._process
        return None if process is None else process.pid

    @property
    def failure(self) -> ThreadFailure | None:
        return None if self._thread is None else self._thread.failure

    def start(self, on_report: Callable[[NeuronReport], None]) -> None:
        """Start the thread, once. It calls ``on_report`` with each report, which must be fast and must not raise."""
        if self._thread is None and self._stop_deadline_ns is None:
            self._on_report = on_report
            wake = self._wake = WakeEvent()
            self._thread = StoppableThread(self.name, lambda: self._run(wake), wake.set, self._clock)
            self._thread.start()

    def stop(self, max_seconds: float) -> None:
        """End neuron-monitor within ``max_seconds``: SIGTERM, read its last reports, SIGKILL."""
        if self._stop_deadline_ns is None:  # the rest of the time is for SIGKILL
            self._stop_deadline_ns = self._clock.monotonic_ns() + round(0.9 * max_seconds * NS_PER_SECOND)
        thread, wake = self._thread, self._wake
        if thread is None or wake is None or thread.is_current:
            return
        has_ended = thread.stop(max_seconds)
        process = self._process
        if has_ended:
            self._wake = None
            wake.close()
        elif process is not None:
            process.kill()

    def _run(self, wake: WakeEvent) -> None:
        while self._stop_deadline_ns is None:
            if not self._state.is_start_due(self._clock.monotonic_ns()):
                wake.wait(self._seconds_until(self._state.deadline_ns))
                continue
            process = start_process(self._program, self._configuration, wake)
            if isinstance(process, Unavailable):
                self._on_run_failed(process.reason)
            else:
                self._state.on_started(self._clock.monotonic_ns())
                self._process = process
                self._read_reports(process)

    def _read_reports(self, process: NeuronProcess) -> None:
        """Read reports until the process ends, is silent or must stop. It no longer runs on return."""
        splitter = LineSplitter()
        is_silent = False
        try:
            while not (is_silent or process.is_output_closed or self._stop_deadline_ns is not None):
                self._parse_chunk(splitter, process.read(self._seconds_until(self._state.deadline_ns)))
                is_silent = self._state.is_silent(self._clock.monotonic_ns())
            self._terminate(process, splitter)
        finally:
            exit_reason = process.close()
            self._process = None
        if self._stop_deadline_ns is None:
            self._on_run_failed(
                f"it was silent for {self._state.silence_timeout_ns // NS_PER_SECOND} s" if is_silent else exit_reason
            )

    def _terminate(self, process: NeuronProcess, splitter: LineSplitter) -> None:
        if process.is_output_closed:
            return
        process.terminate()
        deadline_ns = self._clock.monotonic_ns() + NS_PER_SECOND
        while not process.is_output_closed:
            if self._stop_deadline_ns is not None:  # a stop may be requested during the loop
                deadline_ns = min(deadline_ns, self._stop_deadline_ns)
            left_seconds = self._seconds_until(deadline_ns)
            if left_seconds <= 0:
                return
            self._parse_chunk(splitter, process.read(left_seconds))

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
                if problem not in self._logged_problems and len(self._logged_problems) < _MAX_PROBLEMS_LOGGED:
                    self._logged_problems.add(problem)
                    self._log.warning("neuron-monitor could not read a part of its report", reason=problem)
            self._on_report(report)

    def _on_run_failed(self, reason: str) -> None:
        self._state.on_exit(self._clock.monotonic_ns())
        self._health.on_failure(Unavailable(reason))
        self.outage = self.outage or Outage(self._clock.wall_ns(), reason)

    def _seconds_until(self, moment_ns: int) -> float:
        return min((moment_ns - self._clock.monotonic_ns()) / NS_PER_SECOND, 1.0)  # then the clock is read again
