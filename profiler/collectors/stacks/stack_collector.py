"""Samples the call stacks of the batch's Python processes in a thread, at a bounded cost."""

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from profiler.aggregation.record_parts import RecordPart
from profiler.collectors.stacks.py_spy import PySpy, ThreadStack
from profiler.collectors.stacks.python_processes import Identity, PythonProcesses, runs_python
from profiler.collectors.stacks.recording_rate import Recording, RecordingRate
from profiler.collectors.stacks.stack_profile import StackProfile
from profiler.collectors.stacks.stacks_budget import StacksBudget
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.threads import StoppableThread, Waiter, failure_warnings
from profiler.core.timestamps import NEVER_NS, NS_PER_SECOND
from profiler.readers.container_sample import ContainerSample, ResourceLimits
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.activity_model import NO_STACKS
from profiler.record.record_model import Record
from profiler.record.stacks_line import StacksLine
from profiler.settings import StacksMode

_FAST_AT_START_NS = 60 * NS_PER_SECOND
# The periods and the shares of one core of samples at the fast and at the slow rate. This leaves
# some of the budget for moments.
_FAST = (NS_PER_SECOND, 0.018)
_SLOW = (10 * NS_PER_SECOND, 0.001)
# A local run with less is sampled as rarely as a task: the samples would take its CPU.
_MIN_RECORDED_VCPU = 1
# A waiting thread that was read counts for at most this time before.
_MAX_WAIT_WEIGHT_NS = 20 * NS_PER_SECOND
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
    """The sources of the stacks: py-spy, and the processes by Docker id.

    ``own_cpu_ns`` is the calling thread's CPU time. ``vcpu`` is what a local command can use. Its
    reader is a child of the process whose children are measured, so it is started before the first
    measurement.
    """

    reader: PySpy
    find_processes: Callable[[str], Iterable[Identity]]
    own_cpu_ns: Callable[[], int]
    advice: StackAdvice
    vcpu: float | None = None
    runs_python: Callable[[int, str], tuple[str, bool | None] | None] = runs_python


class SamplingSchedule:
    """When the next sample is due (monotonic): the contract's rates, stretched to keep a budget
    of CPU time.
    """

    def __init__(self, mode: StacksMode, started_ns: int) -> None:
        self._is_always_on = mode == "on"
        self._started_ns = started_ns
        self._last_ns: int | None = None
        self.budget = StacksBudget(started_ns)

    def next_ns(self, now_ns: int, *, is_moment: bool) -> float:
        """The time of the next sample, which may be in the past; NEVER_NS if none is due."""
        if not (is_moment or self._is_always_on):
            return NEVER_NS
        if self._last_ns is None:
            return (
                self._started_ns + NS_PER_SECOND // 5
            )  # until then, an interpreter is still starting
        is_fast = is_moment or now_ns - self._started_ns < _FAST_AT_START_NS
        if is_fast:
            period_ns, share = _FAST
        else:
            period_ns, share = _SLOW
        due_ns = self._last_ns + max(period_ns, round(self.budget.last_cost_ns / share))
        return max(due_ns, self.budget.affordable_ns(self.budget.last_cost_ns))

    def add_sample(self, at_ns: int, spent_ns: int) -> None:
        """Add a sample, and the CPU time that was spent until its end."""
        self._last_ns = at_ns
        self.budget.set_spent(spent_ns)


class _SampledBatch(Struct):
    find: Callable[[], Iterable[Identity]]
    python: PythonProcesses
    profile: StackProfile = field(default_factory=StackProfile)
    last_ns: int = 0
    rate_hz: int = 0  # of the last recording, before which the stacks were read
    looks: int = 0

    @property
    def is_to_look_for(self) -> bool:
        return not self.python.scans and self.looks < _MAX_LOOKS

    @property
    def may_run_python(self) -> bool:
        return self.python.found_python or not self.python.scans


def _with_waits(stacks: Iterable[ThreadStack], weight: int) -> tuple[ThreadStack, ...]:
    """The stacks, of which those that wait count for the time since the last reading: a recording
    has none of them.
    """
    weighted = []
    for stack in stacks:
        weighted.append(stack if stack.is_active else replace(stack, count=weight))
    return tuple(weighted)


class StackCollector:
    """Samples the batches that were passed to :meth:`follow` or :meth:`on_batch_started`."""

    name = "py-spy"
    takes_late_samples = False  # a sample may begin a moment

    def __init__(
        self,
        access: StackAccess,
        mode: StacksMode,
        clock: Clock,
        log: Log,
        rate_hz: int | None = None,
    ) -> None:
        self._access = access
        self._reader = access.reader
        self._mode = mode
        self._clock = clock
        self._log = log
        self._schedule = SamplingSchedule(mode, clock.monotonic_ns())
        vcpu = access.vcpu
        self._rate: RecordingRate | None = None
        if mode == "on" and vcpu is not None and (rate_hz or vcpu >= _MIN_RECORDED_VCPU):
            self._rate = RecordingRate(clock.monotonic_ns(), vcpu, rate_hz)
        # Wall-clock time that is not set during the run.
        self._wall_offset_ns = clock.wall_ns() - clock.monotonic_ns()
        self._batches: dict[str, _SampledBatch] = {}
        self._lock = threading.Lock()
        self._waiter = Waiter()
        self._thread = StoppableThread("stacks", self._run, self._waiter.wake, clock)
        self._is_reading = False
        self._is_recording = threading.Event()
        self._has_recorded = threading.Event()
        self._source = self.name
        self._failures = 0
        self._last_failure: str | None = None
        self._failure: str | None = None

    @property
    def startup_error(self) -> str | None:
        return None if self._reader.is_installed else self._access.advice.missing

    @property
    def child_pid(self) -> int | None:
        return self._reader.pid

    def start(self) -> None:
        if not self._reader.is_installed:
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
            self._batches[batch_id] = _SampledBatch(find, PythonProcesses(self._access.runs_python))
        self._waiter.wake()

    def on_batch_started(self, container: ContainerMetadata) -> None:
        if container.docker_id and self._reader.is_installed:
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
            self._interrupt()

    def wants_waits(self, batch: str) -> bool:
        followed = self._batches.get(batch)
        # To find out what 2,000 threads hold back takes 5 ms.
        if followed is None or not followed.may_run_python:
            return False
        return followed.profile.moments.wants_waits

    def on_waits(self, batch: str, held_back_ns: Mapping[int, float]) -> None:
        with self._lock:
            followed = self._batches.get(batch)
            if followed is not None:
                followed.profile.moments.on_waits(held_back_ns)

    def forget(self, batch: str) -> None:
        with self._lock:
            self._batches.pop(batch, None)

    def final_reading(self, max_seconds: float) -> None:
        """Wait for what a recording has. Take no other sample: it may take longer."""
        if self._rate is None:
            return
        self._thread.is_stopping = True
        if self._is_recording.is_set():
            self._interrupt()
            self._has_recorded.wait(max_seconds)

    def _interrupt(self) -> None:
        if self._is_recording.is_set():
            self._reader.interrupt()

    def part(self, record: Record, batch: str) -> RecordPart:
        with self._lock:
            followed = self._batches.get(batch)
            stacks = NO_STACKS
            if followed is not None:
                stacks = followed.profile.stacks_of_run(self._source)
        has_ended = record.status != "running"
        if stacks.moments and not has_ended:
            # A checkpoint is written repeatedly, and log drivers split a line at 16 KB.
            moments = [
                replace(moment, stack=moment.stack[-8:], own=moment.own[-8:])
                for moment in stacks.moments
            ]
            stacks = replace(stacks, moments=tuple(moments))
        has_samples = stacks is not NO_STACKS
        return RecordPart(
            values={"stacks": stacks},
            warnings=self._warnings(followed, has_samples=has_samples, has_ended=has_ended),
            reader_cpu_ns=self._reader.cpu_ns,
        )

    def stacks_line(self, record: Record, batch: str) -> bytes | None:
        with self._lock:
            followed = self._batches.get(batch)
            if followed is None or not followed.profile.samples:
                return None
            steps = followed.profile.folded.steps_of_run(record.started_ns, record.finished_ns)
            line = StacksLine(
                type="task.stacks",
                task_id=record.task_id,
                container=record.container.name,
                steps=steps,
                own_files=followed.profile.own_files(steps),
            )
        return msgspec.json.encode(line)

    def stop(self, max_seconds: float) -> None:
        self._thread.is_stopping = True
        self._reader.kill()  # ends a call in progress
        self._thread.stop(max_seconds)

    def _warnings(
        self, batch: _SampledBatch | None, *, has_samples: bool, has_ended: bool
    ) -> tuple[str, ...]:
        advice = self._access.advice
        if not self._reader.is_installed:
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
        self, batch: _SampledBatch, *, has_samples: bool, has_ended: bool
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
            self._reader.close()

    def tick(self) -> float:
        """Take a sample if one is due; returns the seconds to wait."""
        now_ns = self._clock.monotonic_ns()
        if self._next_ns(now_ns) <= now_ns:
            self._sample(self._reader, now_ns)
        batches = list(self._batches.values())
        for batch in batches:  # to find out early whether processes are visible and readable
            if batch.is_to_look_for:
                batch.looks += 1
                batch.python.choose_busiest(
                    batch.find(), self._clock.monotonic_ns() / NS_PER_SECOND
                )
        max_wait_ns = _MAX_WAIT_NS
        if any(batch.is_to_look_for for batch in batches):
            max_wait_ns = _LOOK_NS
        now_ns = self._clock.monotonic_ns()
        return min(self._next_ns(now_ns) - now_ns, max_wait_ns) / NS_PER_SECOND

    def _next_ns(self, now_ns: int) -> float:
        with self._lock:
            batches = list(self._batches.values())
        if not batches:
            return NEVER_NS
        is_moment = any(batch.profile.moments.is_sampling(now_ns) for batch in batches)
        if self._rate is not None:
            return self._rate.next_ns(is_moment=is_moment)
        return self._schedule.next_ns(now_ns, is_moment=is_moment)

    def _sample(self, reader: PySpy, now_ns: int) -> None:
        recording = None
        reading_cost_ns = 0
        for batch in list(self._batches.values()):
            before_ns = self._spent_ns
            identities = self._dump(reader, batch)
            reading_cost_ns += self._spent_ns - before_ns
            if self._rate is not None and identities and not self._thread.is_stopping:
                is_moment = batch.profile.moments.is_sampling(now_ns)
                recording = self._rate.next_recording(now_ns, len(identities), is_moment=is_moment)
                self._record(reader, batch, identities, recording)
        spent_ns = self._spent_ns
        if self._rate is None:
            self._schedule.add_sample(now_ns, spent_ns)
        else:
            self._rate.add_recording(
                now_ns, self._clock.monotonic_ns(), spent_ns, recording, reading_cost_ns
            )

    @property
    def _spent_ns(self) -> int:
        """The CPU time of the calling thread, which samples, and of its programs, since their
        start.
        """
        return self._access.own_cpu_ns() + self._reader.cpu_ns

    def _dump(self, reader: PySpy, batch: _SampledBatch) -> list[Identity]:
        """Read the stacks of all threads once; returns the processes."""
        dumps = []
        now_ns = self._clock.monotonic_ns()
        now_seconds = now_ns / NS_PER_SECOND
        identities = batch.python.choose_busiest(batch.find(), now_seconds)
        for identity in identities:
            if self._thread.is_stopping:
                return []
            dumps.append(self._read(reader, batch, identity, now_seconds))
        if batch.rate_hz:
            since_ns = min(now_ns - batch.last_ns, _MAX_WAIT_WEIGHT_NS)
            weight = max(round(batch.rate_hz * since_ns / NS_PER_SECOND), 1)
            dumps = [_with_waits(stacks, weight) for stacks in dumps]
        batch.last_ns = now_ns
        with self._lock:
            batch.profile.add_dumps(dumps, self._wall_offset_ns + self._clock.monotonic_ns())
        if any(dumps):  # not earlier: the call may hang
            self._source = reader.version
        return identities

    def _record(
        self, reader: PySpy, batch: _SampledBatch, identities: list[Identity], recording: Recording
    ) -> None:
        """Record what runs; threads that wait are only in the readings before and after."""
        batch.rate_hz = recording.rate_hz
        from_ns = self._wall_offset_ns + self._clock.monotonic_ns()
        self._has_recorded.clear()
        self._is_recording.set()
        pids = [pid for pid, _ in identities]
        recordings = []
        dumps = reader.record_stacks(pids, recording.seconds, recording.rate_hz)
        for identity, dump in zip(identities, dumps, strict=True):
            if dump.failure is None:
                recordings.append(batch.python.note_read_and_drop_torn(identity, dump.stacks))
            else:
                now_seconds = self._clock.monotonic_ns() / NS_PER_SECOND
                self._add_failure(batch, identity, now_seconds, dump.failure)
        until_ns = self._wall_offset_ns + self._clock.monotonic_ns()
        with self._lock:
            batch.profile.add_recordings(recordings, from_ns, until_ns)
        self._is_recording.clear()
        self._has_recorded.set()

    def _read(
        self, reader: PySpy, batch: _SampledBatch, identity: Identity, now_seconds: float
    ) -> tuple[ThreadStack, ...]:
        """Read one process; again if it changed meanwhile."""
        reader.start()
        for _ in range(_MAX_ATTEMPTS):
            self._is_reading = True
            dump = reader.dump_stacks(identity[0])
            self._is_reading = False
            if (
                self._thread.is_stopping
                or dump.failure is None
                or batch.python.is_failing(identity)
            ):
                break
        if dump.failure is None:
            self._failures = 0
            return batch.python.note_read_and_drop_torn(identity, dump.stacks)
        self._add_failure(batch, identity, now_seconds, dump.failure)
        return ()

    def _add_failure(
        self, batch: _SampledBatch, identity: Identity, now_seconds: float, reason: str
    ) -> None:
        if identity not in batch.find() or self._thread.is_stopping:
            return  # the process has ended meanwhile
        self._failures += 1
        self._last_failure = reason.rstrip(".")
        if (
            batch.python.add_failure(identity, now_seconds, reason)
            or self._failures == _MAX_FAILURES
        ):
            self._failure = self._failure or self._last_failure
            self._log.warning("py-spy cannot read a Python process", reason=reason)
