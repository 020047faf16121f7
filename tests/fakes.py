"""Stand-ins for what the program is given: clock, stop request, task, log and sinks.

Each has the shape of the Protocol it stands for and keeps what it was told, so that a test can
ask. Time passes only where a fake lets it pass.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import replace

from profiler.collectors.stacks.py_spy import ProcessStacks, PySpy
from profiler.core.background_call import BackgroundCall
from profiler.core.deadline_writer import Output
from profiler.core.log import Log
from profiler.core.timestamps import NS_PER_SECOND
from profiler.forwarder.invocation import InvocationTime
from profiler.monitor.task_sampler import TaskSource
from profiler.readers import Unavailable
from profiler.readers.container_sample import ContainerSample
from profiler.readers.ecs.container_stats import StatsReading
from profiler.readers.ecs.task_metadata import ContainerMetadata, TaskMetadata
from profiler.readers.linux.process_tree import ProcessReading
from profiler.settings import MonitorSettings, SettingsReader, TaskSettings
from profiler.sinks import DeliveryFailure, LogTarget
from profiler.sinks.report_upload import CloudWatchLogsSink

_T = TypeVar("_T")

START_NS = 1_763_600_000 * NS_PER_SECOND  # 2025-11-20T00:53:20Z


def monitor_settings(**given: Any) -> MonitorSettings:
    """The monitor's settings in an empty environment, with the ``given`` ones."""
    return replace(SettingsReader({}).monitor("http://x", 4), **given)


def task_settings(**given: Any) -> TaskSettings:
    return replace(monitor_settings().task, **given)


def seconds(value: float) -> int:
    """Nanoseconds."""
    return round(value * NS_PER_SECOND)


class FakeClock:
    """Both clocks move together, and only by sleeping, waiting or ``advance``."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.wall_offset_ns = START_NS

    def monotonic_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        return self.wall_offset_ns + self.now_ns

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        assert seconds >= 0
        self.now_ns += round(seconds * NS_PER_SECOND)


@dataclass
class FakeStop:
    """A stop request that comes at a second of the fake clock (None: never)."""

    clock: FakeClock
    at_seconds: float | None = None
    max_simulated_seconds: float = 100_000

    @property
    def requested_ns(self) -> int | None:
        at_ns = None if self.at_seconds is None else seconds(self.at_seconds)
        return at_ns if at_ns is not None and self.clock.now_ns >= at_ns else None

    def wait(self, seconds_to_wait: float) -> bool:
        if self.clock.now_ns > seconds(self.max_simulated_seconds):
            raise AssertionError(
                f"still running after {self.max_simulated_seconds} simulated seconds"
            )
        if self.requested_ns is None:
            end_ns = self.clock.now_ns + seconds(seconds_to_wait)
            if self.at_seconds is not None:
                end_ns = min(end_ns, max(seconds(self.at_seconds), self.clock.now_ns))
            self.clock.now_ns = end_ns
        return self.requested_ns is not None


@dataclass
class FakeLog(Log):
    """Keeps what was logged as (level, event, fields)."""

    lines: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        self.lines.append((level, event, fields))

    def events(self, level: str) -> list[str]:
        return [event for at, event, _ in self.lines if at == level]


@dataclass
class FakeTaskSource(TaskSource):
    """A task as functions of the fake clock's seconds; counts how often it is asked."""

    clock: FakeClock
    task_at: Callable[[float], TaskMetadata | Unavailable]
    stats_at: Callable[[float], StatsReading | Unavailable]
    own: ContainerMetadata | Unavailable
    name: str = "task-metadata-v4"
    has_news: bool = False
    is_resumed: bool = False
    task_reads: int = 0

    def read_task(self, max_seconds: float | None = None) -> TaskMetadata | Unavailable:
        assert max_seconds is None or max_seconds > 0
        self.task_reads += 1
        return self.task_at(self.clock.now_ns / NS_PER_SECOND)

    def read_stats(self, max_seconds: float | None = None) -> StatsReading | Unavailable:
        assert max_seconds is None or max_seconds > 0
        asked_ns = self.clock.now_ns
        reading = self.stats_at(asked_ns / NS_PER_SECOND)
        if max_seconds is not None and self.clock.now_ns > asked_ns + seconds(max_seconds):
            self.clock.now_ns = asked_ns + seconds(max_seconds)
            return Unavailable("/task/stats did not answer", timed_out=True)
        return reading

    def read_own_container(self) -> ContainerMetadata | Unavailable:
        return self.own


@dataclass
class FakeLogsSink(CloudWatchLogsSink):
    """A CloudWatch Logs that takes every line, or answers with ``failure``."""

    failure: DeliveryFailure | None = None
    error: Exception | None = None
    lines: list[tuple[LogTarget, bytes]] = field(default_factory=list)
    last_cause: str = "it throttles"
    has_report: bool = False

    def holds_report(self, target: LogTarget, batch: str, seconds: float) -> bool:
        return self.has_report

    def put(
        self, line: bytes, target: LogTarget, seconds: float, *, before: bytes | None = None
    ) -> DeliveryFailure | None:
        assert seconds > 0
        if self.error is not None:
            raise self.error
        if self.failure is None:
            self.lines += [] if before is None else [(target, before)]
            self.lines.append((target, line))
        return self.failure


@dataclass
class FakeStackReader(PySpy):
    """Returns the same stacks for every process, after the ``failures``.

    Keeps the processes it was asked for.
    """

    dumped: ProcessStacks
    dump_cpu_ns: int = 0
    record_cpu_ns: int = 0
    cpu_ns: int = 0
    failures: list[str] = field(default_factory=list)
    on_dump: Callable[[], object] = lambda: None
    asked: list[int] = field(default_factory=list)
    recorded: ProcessStacks = field(default_factory=ProcessStacks)
    recordings: list[tuple[tuple[int, ...], int, int]] = field(default_factory=list)
    on_record: Callable[[int], object] = lambda _: None
    is_installed: bool = True
    pid: int | None = None
    version: str = "py-spy 9"
    interrupts: int = 0
    is_killed: bool = False
    is_closed: bool = False

    def start(self) -> None:
        self.pid = 4242

    def dump_stacks(self, pid: int) -> ProcessStacks:
        self.asked.append(pid)
        self.on_dump()
        self.cpu_ns += self.dump_cpu_ns
        return ProcessStacks(failure=self.failures.pop(0)) if self.failures else self.dumped

    def record_stacks(
        self, pids: Sequence[int], seconds: int, rate_hz: int
    ) -> tuple[ProcessStacks, ...]:
        self.recordings.append((tuple(pids), seconds, rate_hz))
        self.on_record(seconds)
        self.cpu_ns += len(pids) * self.record_cpu_ns
        return tuple(self.recorded for _ in pids)

    def interrupt(self) -> None:
        self.interrupts += 1

    def kill(self) -> None:
        self.is_killed = True

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeStdout(Output):
    """The monitor's standard output. ``lines`` are without their newlines."""

    failure: str | None = None
    lines: list[bytes] = field(default_factory=list)

    def write(self, data: bytes) -> str | None:
        if self.failure is None:
            self.lines += data.splitlines()
        return self.failure

    def keep(self, data: bytes) -> str | None:
        return self.write(data)


@dataclass
class FakeCall(BackgroundCall[_T]):
    """A call that is over at a time of the fake clock, with or without its result."""

    clock: FakeClock
    over_ns: int
    value: _T | None

    @property
    def is_over(self) -> bool:
        return self.clock.now_ns >= self.over_ns

    def result(self) -> _T | None:
        self.clock.now_ns = max(self.clock.now_ns, self.over_ns)
        return self.value


@dataclass
class FakeCalls:
    """Plays calls in threads: each takes ``last_seconds`` of the fake clock.

    Keeps the calls' time limits.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    last_seconds: float = 0
    seconds: list[float] = field(default_factory=list)

    def __call__(self, limit_seconds: float, function: Callable[[], _T]) -> FakeCall[_T]:
        self.seconds.append(limit_seconds)
        value = function() if self.last_seconds <= limit_seconds else None
        return FakeCall(
            self.clock, self.clock.now_ns + seconds(min(self.last_seconds, limit_seconds)), value
        )


def sample(
    read_ns: int, cpu_seconds: float | None = None, memory_bytes: int | None = None, **more: Any
) -> ContainerSample:
    """A sample with only what a test is about."""
    cpu_ns = None if cpu_seconds is None else seconds(cpu_seconds)
    return ContainerSample(read_ns=read_ns, cpu_ns=cpu_ns, memory_used_bytes=memory_bytes, **more)


def process(
    pid: int = 7, *, held: int | None = None, mark: int | None = None, **more: Any
) -> ProcessReading:
    """A process that holds so many bytes and has held ``mark`` at most, with what else a test is
    about.
    """
    fields = {
        "rss_bytes": held,
        "share_bytes": held,
        "peak_bytes": mark,
        "own_cpu_ns": 0,
        "children_cpu_ns": 0,
        **more,
    }
    return ProcessReading(pid=pid, **{"started_ticks": 1, **fields})


class FakeInvocationTime(InvocationTime):
    """An invocation that has so many seconds left; only pauses use them up."""

    def __init__(self, seconds: float = 60, jitter: float = 1.0) -> None:
        self.left = seconds
        self.pauses: list[float] = []
        self._jitter = jitter

    def jitter(self) -> float:
        return self._jitter

    def remaining_seconds(self) -> float:
        return self.left

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.left -= seconds
