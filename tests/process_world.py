"""A collector over played processes and their control group."""

import threading
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from profiler.collectors.processes.container_processes import ProcessSnapshot
from profiler.collectors.processes.process_collector import ProcessAccess, ProcessCollector
from profiler.readers.cgroup.container_group import GroupReading
from profiler.readers.ecs.task_metadata import ContainerMetadata
from profiler.readers.linux.followed_process import ProcessExitWaiter
from profiler.readers.linux.process_tree import ProcessReading
from profiler.record.record_model import Container, Distribution, Metrics, Monitor, Record, Sampling
from profiler.record.run_outcome import Status
from tests import fakes
from tests.collected import with_collected
from tests.fakes import START_NS, FakeClock, seconds

MIB = 2**20


BATCH = ContainerMetadata(name="batch", docker_id="b", known_status="RUNNING", started_ns=START_NS)


def process(
    pid: int = 7, *, cpu: float = 0, held: int = 100, mark: int | None = None, name: str = "job"
) -> ProcessReading:
    return fakes.process(
        pid, held=held * MIB, mark=(mark or held) * MIB, own_cpu_ns=seconds(cpu), name=name
    )


def alone(held_by: ProcessReading) -> ProcessSnapshot:
    return ProcessSnapshot(processes=(held_by,), main_pid=held_by.pid)


class FakeExitWaiter(ProcessExitWaiter):
    """Keeps the watched processes and counts the wake-ups; no process ends by itself."""

    def __init__(self) -> None:
        self.watched: tuple[int, ...] = ()
        self.watched_files: tuple[int, ...] = ()
        self.wakes = 0
        self.has_refused = threading.Event()

    def open(self) -> None: ...

    def watch_only(self, pids: Collection[int], events_descriptors: Collection[int] = ()) -> None:
        self.watched, self.watched_files = tuple(pids), tuple(events_descriptors)

    def wait(self, seconds: float) -> bool:
        self.has_refused.set()
        raise AssertionError("the tests tick themselves")

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None: ...


def fake_source(read: Callable[[], Any]) -> Any:
    """A source that reads by a function of the test."""

    def read_now(*_arguments: object) -> Any:
        return read()

    return SimpleNamespace(
        read_snapshot=read_now, read_counters=read_now, close=lambda: None, events_descriptor=42
    )


class CollectedBatch:
    """A batch with one process that uses half a vCPU and 100 MiB, unless other ``readings`` are
    given.
    """

    def __init__(self, threads: Any = None, **readings: Any) -> None:
        self.clock = FakeClock()
        self.exit_waiter = FakeExitWaiter()
        self.snapshot: Callable[[float], ProcessSnapshot] = lambda at: alone(process(cpu=at / 2))
        self.group: Callable[[float], GroupReading | None] | None = None
        self.host_kills: Callable[[float], int] = lambda _at: 40
        self.machine_mib: Callable[[float], int | None] = lambda _at: None
        self.ring_bytes = 0
        self.on_open: Callable[[], object] = lambda: None
        self.cost_ns = 0
        self.threads = threads
        self.process_reads = 0
        self.attempts: list[int] = []
        self._cpu_ns = 0
        vars(self).update(readings)
        machine = ProcessAccess(
            begin_tick=lambda: None,
            open_processes=self._open_processes,
            open_cgroup=self._group_of,
            oom_kills=lambda: self.host_kills(self.at),
            own_cpu_ns=self._own_cpu_ns,
            exit_waiter=self.exit_waiter,
            open_threads=None if threads is None else lambda _: threads,
            machine_memory=self._machine_bytes,
        )
        self.collector = ProcessCollector(
            machine, self.clock, seconds(1), lambda _: None, series_points=30
        )
        self.collector.on_batch_started(BATCH)

    @property
    def at(self) -> float:
        return self.clock.now_ns / 1e9

    def _machine_bytes(self) -> int | None:
        machine_mib = self.machine_mib(self.at)
        return None if machine_mib is None else machine_mib * MIB

    def _open_processes(self, _docker_id: str) -> Any:
        self.on_open()
        source = fake_source(self._read_processes)
        source.ring_bytes = lambda: self.ring_bytes
        return source

    def _read_processes(self) -> ProcessSnapshot:
        self.process_reads += 1
        return self.snapshot(self.at)

    def _group_of(self, pid: int, docker_id: str) -> Any | None:
        self.attempts.append(pid)
        read = self.group
        return None if read is None else fake_source(lambda: read(self.at))

    def _own_cpu_ns(self) -> int:
        self._cpu_ns += self.cost_ns
        return self._cpu_ns + (0 if self.threads is None else self.threads.used_ns)

    def run(self, until: float, step: float = 1) -> "CollectedBatch":
        while self.at < until:
            self.clock.advance(step)
            self.collector.tick()
        return self

    def record(
        self, status: Status = "success", exit_code: int | None = 0, **fields: Any
    ) -> Record:
        return with_collected(replace(base(status, exit_code), **fields), (self.collector,), "b")


def base(status: Status = "success", exit_code: int | None = 0) -> Record:
    """A record from task stats that change every ten seconds."""
    coarse = Distribution(avg=0.4, p50=0.4, p95=0.4, p99=0.4, max=0.4)
    return Record(
        task_id="t",
        container=Container(name="batch"),
        status=status,
        exit_code=exit_code,
        likely_out_of_memory=False if exit_code == 0 else None,
        sampling=Sampling(samples=6, stats_period_ms=10_000, sources=("task-metadata-v4",)),
        metrics=Metrics(
            vcpu_size=1,
            memory_size_mb=1024,
            cpu_seconds=25.0,
            vcpu_used=coarse,
            max_memory_used_mb=90,
            memory_used_mb=Distribution(avg=90, p50=90, p95=90, p99=90, max=90),
            memory_peak_source="sampled",
            max_pids=1,
        ),
        monitor=Monitor(),
    )
