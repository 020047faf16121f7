"""Samples the call stacks of the batch's Python processes in a thread, at a bounded cost."""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from profiler.aggregation.task_record import ResourceLimits
from profiler.collectors.collector import Collector, failure_warnings
from profiler.collectors.stacks.py_spy import Dump
from profiler.collectors.stacks.python_processes import Identity, PythonProcesses, runs_python
from profiler.collectors.stacks.sampling_schedule import SamplingSchedule
from profiler.collectors.stacks.stack_profile import StackProfile
from profiler.collectors.stacks.thread_stacks import ThreadStack, with_activity
from profiler.collectors.stacks.waiting_threads import waiting_thread_ids
from profiler.core.clock import Clock
from profiler.core.log import Log
from profiler.core.threads import StoppableThread, Waiter
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.record.activity_model import Stacks, StacksLine
from profiler.record.record_model import Record, with_warnings
from profiler.settings import StacksMode

# The name of the only batch of ``run``: its record's container has the name of the family.
COMMAND = ""
_MAX_WAIT_NS = 60 * NS_PER_SECOND
# A batch whose processes were not seen so often has none that are visible.
_MAX_LOOKS = 5
_LOOK_NS = NS_PER_SECOND
# After so many failed calls in a row, py-spy is not called again.
_MAX_FAILURES = 50
# Of a reading; the process runs on meanwhile.
_MAX_ATTEMPTS = 3
# Of the stack of a moment.
_CHECKPOINT_FRAMES = 8
_DEFECT = "The call stacks are left out because of an error in the profiler ({})."
_NO_PYTHON = "No Python process was seen, so there are no call stacks."

FindProcesses = Callable[[], Iterable[Identity]]


class StackReader(Protocol):
    """Reads the stacks of a process. Only one thread calls it; another one may ``kill`` it."""

    @property
    def pid(self) -> int | None: ...
    @property
    def version(self) -> str: ...
    def start(self) -> None: ...
    def dump(self, pid: int) -> Dump: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class StackAdvice(Struct, frozen=True, kw_only=True):
    """Sentences on what is missing and what to do about it: py-spy, visible processes, the right to read them."""

    missing: str
    invisible: str
    refused: str


class StackAccess(Struct, frozen=True, kw_only=True):
    """How stacks are read here.

    ``reader`` is None if py-spy is not installed. ``find_processes`` are the processes of a container by its Docker id,
    ``sizes`` those of a container by its name. ``is_local``: the reader is a child of the process whose children are
    measured, so it is started before the first measurement.
    """

    reader: StackReader | None
    find_processes: Callable[[str], Iterable[Identity]]
    sizes: Callable[[str], ResourceLimits]
    own_cpu_ns: Callable[[], int]
    advice: StackAdvice
    is_local: bool = False
    runs_python: Callable[[int], tuple[str, bool | None]] = runs_python


class _Batch:
    """One batch: how to find its processes, and what was seen in them."""

    def __init__(self, find: FindProcesses, python: PythonProcesses) -> None:
        self.find = find
        self.python = python
        self.profile = StackProfile()
        self.looks = 0

    @property
    def is_to_look_for(self) -> bool:
        return not self.python.scans and self.looks < _MAX_LOOKS


class StackCollector(Collector):
    """Samples the batches that :meth:`follow` or :meth:`on_batch_started` named."""

    name = "py-spy"

    def __init__(self, access: StackAccess, mode: StacksMode, clock: Clock, log: Log) -> None:
        self._access = access
        self._reader = access.reader
        self._mode = mode
        self._clock = clock
        self._log = log
        self._schedule = SamplingSchedule(mode, clock.monotonic_ns())
        # Wall-clock time that is not set during the run.
        self._wall_offset_ns = clock.wall_ns() - clock.monotonic_ns()
        self._batches: dict[str, _Batch] = {}
        self._containers: dict[str, str] = {}
        self._lock = threading.Lock()
        self._waiter = Waiter()
        self._thread = StoppableThread("stacks", self._run, self._waiter.wake, clock)
        self._is_reader_started = False
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
        if self._access.is_local:
            self._start_reader(self._reader)
        self._thread.start()

    def follow(self, name: str, find: FindProcesses) -> None:
        """Sample the processes of a batch. Its samples go on after a restart."""
        with self._lock:
            batch = self._batches.get(name)
            if batch is None:
                self._batches[name] = _Batch(find, PythonProcesses(self._access.runs_python))
            else:
                batch.find = find
        self._waiter.wake()

    def on_batch_started(self, container: ContainerMetadata) -> None:
        docker_id = container.docker_id
        if docker_id and self._reader is not None and self._containers.get(container.name) != docker_id:
            self._containers[container.name] = docker_id
            self.follow(container.name, lambda: self._access.find_processes(docker_id))

    def on_sample(self, name: str, sample: ContainerSample) -> None:
        now_ns = self._clock.monotonic_ns()
        with self._lock:
            batch = self._batches.get(name)
            if batch is None:
                return
            moments = batch.profile.moments
            was_sampling = moments.is_sampling(now_ns)
            moments.add_usage(sample, self._access.sizes(name), now_ns)
            begins = moments.is_sampling(now_ns) and not was_sampling
        if begins:
            self._waiter.wake()

    def add_to_record(self, record: Record) -> Record:
        """Return the record with ``stacks`` if there are samples, and with at most one warning."""
        with self._lock:
            batch = self._batch_of(record)
            try:
                stacks = None if batch is None else batch.profile.record(self._source)
            except Exception as error:  # noqa: BLE001  whatever it is, the rest of the record is worth more
                return with_warnings(record, (_DEFECT.format(type(error).__name__),))
        if stacks is not None:
            record = replace(record, stacks=_short(stacks) if record.status == "running" else stacks)
        record = _with_cost(record, self._reader_cpu_ns)
        return with_warnings(record, self._warnings(batch, has_samples=stacks is not None))

    def stacks_line(self, record: Record) -> bytes | None:
        with self._lock:
            batch = self._batch_of(record)
            if batch is None or not batch.profile.samples:
                return None
            try:
                steps = batch.profile.folded.steps(parse_ns(record.started_at), parse_ns(record.finished_at))
                name = record.container.name
                line = StacksLine(type="task.stacks", task_id=record.task_id, container=name, steps=steps)
                return msgspec.json.encode(line)
            except Exception:  # noqa: BLE001  the report goes on without the line
                return None

    def stop(self, max_seconds: float) -> None:
        self._thread.is_stopping = True
        if self._reader is not None:
            self._reader.kill()  # ends a call in progress
        self._thread.stop(max_seconds)

    def _batch_of(self, record: Record) -> _Batch | None:
        return self._batches.get(record.container.name) or self._batches.get(COMMAND)

    def _warnings(self, batch: _Batch | None, *, has_samples: bool) -> tuple[str, ...]:
        """The first sentence that applies."""
        advice = self._access.advice
        if self._reader is None:
            return (advice.missing,)
        stopped = failure_warnings(self._thread.failure, "call stacks")
        if stopped or batch is None:
            return stopped
        python = batch.python
        failure = self._failure if has_samples else self._failure or self._last_failure
        conditions = (
            (not has_samples and python.is_refused, advice.refused),
            (not has_samples and not python.scans and batch.looks >= _MAX_LOOKS, advice.invisible),
            (failure is not None, f"py-spy could not read a Python process: {failure}."),
            (python.scans >= _MAX_LOOKS and not python.found_python, _NO_PYTHON),
        )
        return tuple(sentence for applies, sentence in conditions if applies)[:1]

    def _run(self) -> None:
        try:
            while not self._thread.is_stopping and self._failures < _MAX_FAILURES:
                self._waiter.wait(self.tick())
        finally:
            if self._reader is not None:
                self._reader.close()

    def tick(self) -> float:
        """Take a sample if one is due; returns the seconds until the next one."""
        now_ns = self._clock.monotonic_ns()
        if self._reader is not None and self._next_ns(now_ns) <= now_ns:
            self._sample(self._reader, now_ns)
        max_wait_ns = _LOOK_NS if self._look_for_processes() else _MAX_WAIT_NS
        now_ns = self._clock.monotonic_ns()
        return min(self._next_ns(now_ns) - now_ns, max_wait_ns) / NS_PER_SECOND

    def _next_ns(self, now_ns: int) -> int:
        with self._lock:
            batches = list(self._batches.values())
        is_moment = any(batch.profile.moments.is_sampling(now_ns) for batch in batches)
        due_ns = self._schedule.next_ns(now_ns, is_moment=is_moment) if batches else None
        return now_ns + _MAX_WAIT_NS if due_ns is None else due_ns

    def _look_for_processes(self) -> bool:
        """See early whether processes are visible and readable, also if no sample is due for long.

        Returns True if there are batches to look for again.
        """
        batches = list(self._batches.values())
        for batch in batches:
            if batch.is_to_look_for:
                batch.looks += 1
                batch.python.choose(batch.find(), self._clock.monotonic_ns() / NS_PER_SECOND)
        return any(batch.is_to_look_for for batch in batches)

    def _sample(self, reader: StackReader, now_ns: int) -> None:
        """Read the Python processes of all batches once."""
        own_before_ns, cost_ns = self._access.own_cpu_ns(), 0
        for batch in list(self._batches.values()):
            dumps = []
            now_seconds = self._clock.monotonic_ns() / NS_PER_SECOND
            for identity in batch.python.choose(batch.find(), now_seconds):
                if self._thread.is_stopping:
                    return
                dump = self._dump(reader, batch, identity, now_seconds)
                cost_ns += dump.cpu_ns
                dumps.append(dump.stacks)
            with self._lock:
                batch.profile.add(dumps, self._wall_offset_ns + self._clock.monotonic_ns())
        self._schedule.add(now_ns, cost_ns + self._access.own_cpu_ns() - own_before_ns)

    def _dump(self, reader: StackReader, batch: _Batch, identity: Identity, now_seconds: float) -> Dump:
        """Read one process; again if its stacks changed meanwhile."""
        pid, cpu_ns = identity[0], 0
        self._start_reader(reader)
        self._source = reader.version
        for _ in range(_MAX_ATTEMPTS):
            dump = reader.dump(pid)
            cpu_ns += dump.cpu_ns
            self._reader_cpu_ns += dump.cpu_ns
            dump = replace(dump, stacks=_with_known_activity(pid, dump.stacks), cpu_ns=cpu_ns)
            if self._thread.is_stopping or not batch.python.is_worth_repeating(identity, dump):
                break
        if dump.failure is None:
            self._failures = 0
            return replace(dump, stacks=batch.python.add_stacks(identity, dump.stacks))
        if identity not in batch.find() or self._thread.is_stopping:
            return dump  # it has ended meanwhile
        self._failures += 1
        self._last_failure = dump.failure.rstrip(".")
        if batch.python.add_failure(identity, now_seconds, dump.failure) or self._failures == _MAX_FAILURES:
            self._failure = self._failure or self._last_failure
            self._log.warning("py-spy cannot read a Python process", reason=dump.failure)
        return dump

    def _start_reader(self, reader: StackReader) -> None:
        if not self._is_reader_started:
            self._is_reader_started = True
            reader.start()


def _short(stacks: Stacks) -> Stacks:
    """The stacks for a checkpoint. Log drivers split a line at 16 KB, and it is written again and again."""
    moments = (replace(moment, stack=moment.stack[-_CHECKPOINT_FRAMES:]) for moment in stacks.moments)
    return replace(stacks, moments=tuple(moments))


def _with_cost(record: Record, cpu_ns: int) -> Record:
    """The record with the CPU time of py-spy as a part of the monitor's."""
    monitor = record.monitor
    if monitor is None or monitor.cpu_seconds is None or not cpu_ns:
        return record
    seconds = round(monitor.cpu_seconds + cpu_ns / NS_PER_SECOND, 3)
    return replace(record, monitor=replace(monitor, cpu_seconds=seconds))


def _with_known_activity(pid: int, stacks: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """The stacks with the states of threads that py-spy does not know for Python up to 3.10."""
    unknown = [stack for stack in stacks if not stack.is_activity_known]
    if not unknown:
        return stacks
    main_id = next((stack.thread_id for stack in unknown if stack.is_main), None)
    return with_activity(stacks, waiting_thread_ids(pid, [stack.thread_id for stack in unknown], main_id))
