"""Keeps neuron-monitor running and hands each of its reports on, in a thread of its own."""

import random
import threading
from collections.abc import Callable

from profiler.clock import Clock
from profiler.logs import Log
from profiler.sources import Unavailable
from profiler.sources.health import Health
from profiler.sources.neuron.config import configurations
from profiler.sources.neuron.lines import LONGEST_LINE_BYTES, LineSplitter
from profiler.sources.neuron.process import NeuronProcess, Wake, start_process
from profiler.sources.neuron.program import is_program
from profiler.sources.neuron.reports import NeuronReport, decode_report
from profiler.sources.neuron.supervision import ENDS_UNTIL_UNAVAILABLE, supervision
from profiler.times import NS_PER_SECOND

# The clock is looked at this often, whatever it is waited for.
_LONGEST_WAIT_SECONDS = 1.0
_TERMINATE_NS = NS_PER_SECOND
# Of the time that stop may take, what the process has to end by itself; the rest is for killing it.
_OWN_SHARE = 0.9
_MOST_PROBLEMS_TOLD = 10


class NeuronMonitorSource:
    """neuron-monitor, restarted when it dies, falls silent or was not there.

    ``listener`` gets each report in the source's thread; it must be quick and may not raise. Failing
    is logged once per change of state, an error of a part of a report once each.
    """

    name = "neuron-monitor"

    def __init__(
        self,
        program: str,
        period_seconds: int,
        listener: Callable[[NeuronReport], None],
        clock: Clock,
        log: Log,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._program = program
        self._configurations = configurations(period_seconds)
        self._listener = listener
        self._clock = clock
        self._log = log
        self._jitter = jitter
        self._health = Health(self.name, log)
        self._told: set[str] = set()
        self._half_lines = 0
        self._state = supervision(period_seconds)
        self._stop_by_ns: int | None = None
        self._wake: Wake | None = None
        self._thread: threading.Thread | None = None
        self._process: NeuronProcess | None = None

    @property
    def restarts(self) -> int:
        """How often it was started again."""
        return self._state.restarts

    @property
    def failures(self) -> int:
        """Lines that were no report, ends, starts that were refused, and silences that were ended."""
        return self._health.failures + self._half_lines

    @property
    def pid(self) -> int | None:
        """The process while it runs: it is this process's child, and no part of any batch."""
        process = self._process
        return None if process is None else process.pid

    @property
    def unavailable(self) -> bool:
        """Whether there is no neuron-monitor, or none that reports anything; it is still tried once a minute."""
        return self._state.unavailable

    def start(self) -> None:
        """Begin, and return at once. Only the first call does anything."""
        if self._thread is None and self._stop_by_ns is None:
            wake = self._wake = Wake()
            self._thread = threading.Thread(target=self._run, args=(wake,), name=self.name, daemon=True)
            self._thread.start()

    def stop(self, at_most_seconds: float) -> None:
        """End neuron-monitor: SIGTERM, its last reports, SIGKILL, within so many seconds in all."""
        if self._stop_by_ns is None:
            self._stop_by_ns = self._clock.monotonic_ns() + round(_OWN_SHARE * at_most_seconds * NS_PER_SECOND)
        thread, wake = self._thread, self._wake
        if thread is None or wake is None or thread is threading.current_thread():
            return
        wake.set()
        thread.join(max(at_most_seconds, 0))
        process = self._process
        if not thread.is_alive():
            self._wake = None
            wake.close()
        elif process is not None:
            process.kill()

    def _run(self, wake: Wake) -> None:
        while self._stop_by_ns is None:
            if not self._state.start_is_due(self._clock.monotonic_ns()):
                wake.wait(self._seconds_until(self._state.alarm_ns))
            elif (process := self._started(wake)) is not None:
                self._listen(process)

    def _started(self, wake: Wake) -> NeuronProcess | None:
        if not is_program(self._program):
            self._state = self._state.missing(self._clock.monotonic_ns())
            self._health.failed(Unavailable(f"there is no program {self._program}"))
            return None
        configuration = self._configurations[self._state.ends_without_report % len(self._configurations)]
        process = start_process(self._program, configuration, wake)
        if isinstance(process, Unavailable):
            self._failed(process.reason)
            return None
        self._state = self._state.started(self._clock.monotonic_ns())
        self._process = process
        return process

    def _listen(self, process: NeuronProcess) -> None:
        """Take its reports until it ends, falls silent or is to stop; nothing of it is left afterwards."""
        splitter = LineSplitter()
        silent = False
        try:
            while not (silent or process.output_ended or self._stop_by_ns is not None):
                self._take(splitter, process.read(self._seconds_until(self._state.alarm_ns)))
                silent = self._state.is_silent(self._clock.monotonic_ns())
            self._let_it_end(process, splitter)
        finally:
            how = process.close()
            self._process = None
        self._half_lines += splitter.end()
        if self._stop_by_ns is None:
            self._failed(f"it was silent for {self._state.silence_ns // NS_PER_SECOND} s" if silent else how)

    def _let_it_end(self, process: NeuronProcess, splitter: LineSplitter) -> None:
        if process.output_ended:
            return
        process.terminate()
        by_ns = self._clock.monotonic_ns() + _TERMINATE_NS
        while not process.output_ended:
            # The request to stop may come meanwhile.
            left_seconds = self._seconds_until(by_ns if self._stop_by_ns is None else min(by_ns, self._stop_by_ns))
            if left_seconds <= 0:
                return
            self._take(splitter, process.read(left_seconds))

    def _take(self, splitter: LineSplitter, chunk: bytes) -> None:
        dropped = splitter.dropped
        for line in splitter.feed(chunk):
            report = decode_report(line)
            if isinstance(report, Unavailable):
                self._health.failed(report)
                continue
            self._state = self._state.reported(self._clock.monotonic_ns())
            self._health.worked()
            self._tell(report.problems)
            self._listener(report)
        if splitter.dropped > dropped:
            self._health.failed(Unavailable(f"it printed a line above {LONGEST_LINE_BYTES} bytes"))

    def _failed(self, reason: str) -> None:
        self._state = self._state.ended(self._clock.monotonic_ns(), self._jitter())
        if self._state.unavailable:
            # The same words each time, so that they are told once.
            reason = f"it ended {ENDS_UNTIL_UNAVAILABLE} times in a row without a report"
        self._health.failed(Unavailable(reason))

    def _tell(self, problems: tuple[str, ...]) -> None:
        for problem in problems:
            if problem not in self._told and len(self._told) < _MOST_PROBLEMS_TOLD:
                self._told.add(problem)
                self._log.warning("neuron-monitor could not read a part of its report", reason=problem)

    def _seconds_until(self, moment_ns: int) -> float:
        return min((moment_ns - self._clock.monotonic_ns()) / NS_PER_SECOND, _LONGEST_WAIT_SECONDS)
