"""Samples the call stacks of the batch's Python processes in a thread, at a bounded cost."""

import math
import threading
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.task_record import RecordPart
from profiler.collectors.stacks.py_spy import PySpy, ThreadStack
from profiler.collectors.stacks.python_processes import Identity, PythonProcesses, runs_python
from profiler.collectors.stacks.stack_profile import StackProfile
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.threads import StoppableThread, Waiter, failure_warnings
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.activity_model import StacksLine
from profiler.record.record_model import Record
from profiler.settings import StacksMode

_FAST_AT_START_NS = 60 * NS_PER_SECOND
# The share of one core that all samples of a run may use, from this duration on.
_MAX_SHARE = 0.003
_MIN_RUN_NS = 600 * NS_PER_SECOND
# The periods and the shares of one core of samples at the fast and at the slow rate. This leaves
# some of the budget for moments.
_FAST = (NS_PER_SECOND, 0.018)
_SLOW = (10 * NS_PER_SECOND, 0.001)
# At the start of a local run with a CPU to spare. More would take the budget of later samples.
_FINE = (NS_PER_SECOND // 20, 0.2)
_FINE_AT_START_NS = 2 * NS_PER_SECOND
_FINE_VCPU = 2
_MAX_WAIT_NS = 60 * NS_PER_SECOND
# If the processes were not seen in this number of readings, they are not visible.
_MAX_LOOKS = 5
_LOOK_NS = NS_PER_SECOND
# After this many failed calls in a row, py-spy is not called again.
_MAX_FAILURES = 50
# The attempts of a reading that fails, because the process runs on meanwhile.
_MAX_ATTEMPTS = 3


class StackAdvice(Struct, frozen=True, kw_only=True):
    """Sentences about a missing requirement and its remedy: py-spy, visible processes, the
    permission to read them.
    """

    missing: str
    invisible: str
    refused: str


class StackAccess(Struct, frozen=True, kw_only=True):
    """The sources of the stacks: without py-spy no ``reader``; processes by Docker id.

    ``vcpu`` is what a local command can use. Its reader is a child of the process whose children
    are measured, so it is started before the first measurement.
    """

    reader: PySpy | None
    find_processes: Callable[[str], Iterable[Identity]]
    own_cpu_ns: Callable[[], int]
    advice: StackAdvice
    vcpu: float | None = None
    runs_python: Callable[[int, str], tuple[str, bool | None] | None] = runs_python


class SamplingSchedule:
    """When the next sample is due (monotonic): the contract's rates, stretched to keep a budget
    of CPU time.

    Until ``fine_until_ns``, samples are taken at a rate that only a short run can afford.
    """

    def __init__(self, mode: StacksMode, started_ns: int, *, begins_fine: bool = False) -> None:
        self._is_always_on = mode == "on"
        self._started_ns = started_ns
        self.fine_until_ns = started_ns
        if begins_fine:
            self.fine_until_ns += _FINE_AT_START_NS
        self._last_ns: int | None = None
        self._last_cost_ns = 0
        self.spent_ns = 0

    def next_ns(self, now_ns: int, *, is_moment: bool) -> int | None:
        """The time of the next sample, which may be in the past; None if none is due."""
        if not (is_moment or self._is_always_on):
            return None
        if self._last_ns is None:
            return (
                self._started_ns + NS_PER_SECOND // 5
            )  # until then, an interpreter is still starting
        is_fast = is_moment or now_ns - self._started_ns < _FAST_AT_START_NS
        if now_ns < self.fine_until_ns:
            period_ns, share = _FINE
        elif is_fast:
            period_ns, share = _FAST
        else:
            period_ns, share = _SLOW
        due_ns = self._last_ns + max(period_ns, round(self._last_cost_ns / share))
        # From then on the budget suffices for another sample like the last one.
        needed_ns = self.spent_ns + self._last_cost_ns
        if needed_ns <= _MAX_SHARE * _MIN_RUN_NS:
            affordable_ns = 0
        else:
            affordable_ns = round(needed_ns / _MAX_SHARE)
        return max(due_ns, self._started_ns + affordable_ns)

    def add(self, at_ns: int, cost_ns: int) -> None:
        self._last_ns = at_ns
        self._last_cost_ns = cost_ns
        self.spent_ns += cost_ns


class _Batch(Struct):
    find: Callable[[], Iterable[Identity]]
    python: PythonProcesses
    profile: StackProfile = field(default_factory=StackProfile)
    fine: StackProfile | None = field(default_factory=StackProfile)
    last_ns: float = -math.inf
    looks: int = 0

    @property
    def shown(self) -> StackProfile:
        """All samples of a short run; of a longer one, whose start they would outweigh, at most
        one a second.
        """
        return self.fine or self.profile

    @property
    def is_to_look_for(self) -> bool:
        return not self.python.scans and self.looks < _MAX_LOOKS


class StackCollector:
    """Samples the batches that were passed to :meth:`follow` or :meth:`on_batch_started`."""

    name = "py-spy"

    def __init__(self, access: StackAccess, mode: StacksMode, clock: Clock, log: Log) -> None:
        self._access = access
        self._reader = access.reader
        self._mode = mode
        self._clock = clock
        self._log = log
        begins_fine = mode == "on" and (access.vcpu or 0) >= _FINE_VCPU
        self._schedule = SamplingSchedule(mode, clock.monotonic_ns(), begins_fine=begins_fine)
        # Wall-clock time that is not set during the run.
        self._wall_offset_ns = clock.wall_ns() - clock.monotonic_ns()
        self._batches: dict[str, _Batch] = {}
        self._lock = threading.Lock()
        self._waiter = Waiter()
        self._thread = StoppableThread("stacks", self._run, self._waiter.wake, clock)
        self._is_reading = False
        self._source = self.name
        self._reader_cpu_ns = 0
        self._failures = 0
        self._last_failure: str | None = None
        self._failure: str | None = None

    @property
    def startup_error(self) -> str | None:
        return self._access.advice.missing if self._reader is None else None

    @property
    def child_pid(self) -> int | None:
        return None if self._reader is None else self._reader.pid

    def start(self) -> None:
        if self._reader is None:
            self._log.warning(self._access.advice.missing)
            return
        if self._access.vcpu is not None:
            self._reader.start()
        self._thread.start()

    def follow(self, batch_id: str, find: Callable[[], Iterable[Identity]]) -> None:
        with self._lock:
            batch = self._batches.get(batch_id)
            if batch is not None:
                batch.find = find
                return
            self._batches[batch_id] = _Batch(find, PythonProcesses(self._access.runs_python))
        self._waiter.wake()

    def on_batch_started(self, container: ContainerMetadata) -> None:
        if container.docker_id and self._reader is not None:
            self.follow(
                container.followed_id, partial(self._access.find_processes, container.docker_id)
            )

    def on_sample(self, batch: str, sample: ContainerSample, sizes: ResourceLimits) -> None:
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            followed = self._batches.get(batch)
            if followed is None:
                return
            moments = followed.profile.moments
            was_sampling = moments.is_sampling(now_ns)
            moments.add_usage(sample, sizes, now_ns)
            begins = moments.is_sampling(now_ns) and not was_sampling
        if begins:
            self._waiter.wake()

    def forget(self, batch: str) -> None:
        with self._lock:
            self._batches.pop(batch, None)

    def final_reading(self, max_seconds: float) -> None:
        """Take none: a sample may take longer."""

    def part(self, record: Record, batch: str) -> RecordPart:
        with self._lock:
            followed = self._batches.get(batch)
            stacks = None
            if followed is not None:
                stacks = followed.shown.record(self._source)
        has_ended = record.status != "running"
        if stacks is not None and not has_ended:
            # A checkpoint is written repeatedly, and log drivers split a line at 16 KB.
            moments = [
                replace(moment, stack=moment.stack[-8:], own=moment.own[-8:])
                for moment in stacks.moments
            ]
            stacks = replace(stacks, moments=tuple(moments))
        return RecordPart(
            values={} if stacks is None else {"stacks": stacks},
            warnings=self._warnings(followed, has_samples=stacks is not None, has_ended=has_ended),
            reader_cpu_ns=self._reader_cpu_ns,
        )

    def stacks_line(self, record: Record, batch: str) -> bytes | None:
        with self._lock:
            followed = self._batches.get(batch)
            if followed is None or not followed.shown.samples:
                return None
            steps = followed.shown.folded.steps(
                parse_ns(record.started_at), parse_ns(record.finished_at)
            )
            line = StacksLine(
                type="task.stacks",
                task_id=record.task_id,
                container=record.container.name,
                steps=steps,
                own_files=followed.shown.own_files(steps),
            )
        return msgspec.json.encode(line)

    def stop(self, max_seconds: float) -> None:
        self._thread.is_stopping = True
        if self._reader is not None:
            self._reader.kill()  # ends a call in progress
        self._thread.stop(max_seconds)

    def _warnings(
        self, batch: _Batch | None, *, has_samples: bool, has_ended: bool
    ) -> tuple[str, ...]:
        advice = self._access.advice
        if self._reader is None:
            return (advice.missing,)
        stopped = failure_warnings(self._thread.failure, "call stacks")
        if stopped or batch is None:
            return stopped
        python = batch.python
        if not has_samples and python.is_refused:
            return (advice.refused,)
        if not has_samples and not python.scans and batch.looks >= _MAX_LOOKS:
            return (advice.invisible,)
        failure = self._failure
        if not has_samples:
            failure = failure or self._last_failure
        if failure is not None:
            return (f"py-spy could not read a Python process: {failure}.",)
        return self._without_python(batch, has_samples=has_samples, has_ended=has_ended)

    def _without_python(
        self, batch: _Batch, *, has_samples: bool, has_ended: bool
    ) -> tuple[str, ...]:
        """Why nothing could be read, although nothing failed."""
        enough_scans = 1 if has_ended else _MAX_LOOKS
        if batch.python.scans >= enough_scans and not batch.python.found_python:
            return ("No Python process was seen, so there are no call stacks.",)
        if not has_samples and has_ended and (self._mode == "on" or self._is_reading):
            return ("There are no call stacks: the command ended before py-spy had read one.",)
        return ()

    def _run(self) -> None:
        try:
            while not self._thread.is_stopping and self._failures < _MAX_FAILURES:
                self._waiter.wait(self.tick())
        finally:
            if self._reader is not None:
                self._reader.close()

    def tick(self) -> float:
        """Take a sample if one is due; returns the seconds to wait."""
        now_ns = self._clock.monotonic_ns()
        if self._reader is not None and self._next_ns(now_ns) <= now_ns:
            self._sample(self._reader, now_ns)
        batches = list(self._batches.values())
        for batch in batches:  # to find out early whether processes are visible and readable
            if batch.is_to_look_for:
                batch.looks += 1
                batch.python.choose(batch.find(), self._clock.monotonic_ns() / NS_PER_SECOND)
        max_wait_ns = _MAX_WAIT_NS
        if any(batch.is_to_look_for for batch in batches):
            max_wait_ns = _LOOK_NS
        now_ns = self._clock.monotonic_ns()
        return min(self._next_ns(now_ns) - now_ns, max_wait_ns) / NS_PER_SECOND

    def _next_ns(self, now_ns: int) -> int:
        with self._lock:
            batches = list(self._batches.values())
        is_moment = any(batch.profile.moments.is_sampling(now_ns) for batch in batches)
        due_ns = None
        if batches:
            due_ns = self._schedule.next_ns(now_ns, is_moment=is_moment)
        if due_ns is None:
            return now_ns + _MAX_WAIT_NS
        return due_ns

    def _sample(self, reader: PySpy, now_ns: int) -> None:
        before_ns = self._access.own_cpu_ns() + self._reader_cpu_ns
        for batch in list(self._batches.values()):
            dumps = []
            now_seconds = self._clock.monotonic_ns() / NS_PER_SECOND
            for identity in batch.python.choose(batch.find(), now_seconds):
                if self._thread.is_stopping:
                    return
                dumps.append(self._read(reader, batch, identity, now_seconds))
            with self._lock:
                wall_ns = self._wall_offset_ns + self._clock.monotonic_ns()
                if now_ns >= self._schedule.fine_until_ns:
                    batch.fine = None
                if batch.fine is not None:
                    batch.fine.add(dumps, wall_ns)
                if now_ns - batch.last_ns >= _FAST[0]:
                    batch.last_ns = now_ns
                    batch.profile.add(dumps, wall_ns)
            if any(dumps):  # not earlier: the call may hang
                self._source = reader.version
        self._schedule.add(now_ns, self._access.own_cpu_ns() + self._reader_cpu_ns - before_ns)

    def _read(
        self, reader: PySpy, batch: _Batch, identity: Identity, now_seconds: float
    ) -> tuple[ThreadStack, ...]:
        """Read one process; again if it changed meanwhile."""
        reader.start()
        for _ in range(_MAX_ATTEMPTS):
            self._is_reading = True
            dump = reader.dump(identity[0])
            self._is_reading = False
            self._reader_cpu_ns += dump.cpu_ns
            if (
                self._thread.is_stopping
                or dump.failure is None
                or batch.python.is_failing(identity)
            ):
                break
        if dump.failure is None:
            self._failures = 0
            return batch.python.add_stacks(identity, dump.stacks)
        if identity not in batch.find() or self._thread.is_stopping:
            return ()  # the process has ended meanwhile
        self._failures += 1
        self._last_failure = dump.failure.rstrip(".")
        if (
            batch.python.add_failure(identity, now_seconds, dump.failure)
            or self._failures == _MAX_FAILURES
        ):
            self._failure = self._failure or self._last_failure
            self._log.warning("py-spy cannot read a Python process", reason=dump.failure)
        return ()
