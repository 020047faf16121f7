"""The work of the monitor grows with the number of containers, not with its square."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from profiler.core.clock import Ticker
from profiler.monitor.loop import MonitorLoop, Runtime
from profiler.monitor.report_delivery import Delivery
from profiler.monitor.reporter import Reporter
from profiler.monitor.task_sampler import TaskSampler
from profiler.readers.ecs.endpoint_client import TaskMetadataSource
from profiler.readers.ecs.reported_containers import select_batch
from profiler.readers.linux.host import Host, OwnUsage
from profiler.settings import MonitorSettings
from tests.fakes import FakeCalls, FakeClock, FakeLog, FakeLogsSink, FakeStdout, FakeStop

SMALL, LARGE = 100, 400


class ManyContainers:
    """An endpoint whose task has many containers, which end with second 3."""

    def __init__(self, clock: FakeClock, containers: int, image: str) -> None:
        self._clock = clock
        self._ids = [f"{index:064x}" for index in range(containers)]
        self._image = image

    def get(self, path: str, _max_seconds: float | None = None) -> bytes:
        second = self._clock.now_ns // 10**9
        documents: dict[str, Callable[[str, int, int], dict[str, Any]]] = {
            "/task": self._container,
            "/task/stats": self._sample,
        }
        if path not in documents:
            return b'{"Name":"task-monitor"}'
        found = {one: documents[path](one, index, second) for index, one in enumerate(self._ids)}
        return json.dumps(found if path == "/task/stats" else {"Containers": list(found.values())}).encode()

    def _container(self, docker_id: str, index: int, second: int) -> dict[str, Any]:
        end = {"ExitCode": 0} if second >= 3 else {}
        # Half of the names occur twice, as after a restart.
        return {
            "Name": f"c{index % (3 * len(self._ids) // 4)}",
            "DockerId": docker_id,
            "Image": self._image,
            "KnownStatus": "STOPPED" if end else "RUNNING",
            "StartedAt": f"2025-11-20T00:00:{index % 60:02d}Z",
            **end,
        }

    def _sample(self, _docker_id: str, index: int, second: int) -> dict[str, Any]:
        cpu = {"cpu_usage": {"total_usage": 10**7 * second}}
        return {"read": f"2025-11-20T00:53:{20 + second}Z", "cpu_stats": cpu, "pids_stats": {"current": index}}


@contextmanager
def counted_operations() -> Iterator[list[int]]:
    """Count the instructions of the interpreter, which do not depend on the load of the machine."""
    counts = [0]

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        frame.f_trace_opcodes = True
        counts[0] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield counts
    finally:
        sys.settrace(before)


def operations_of_reads(containers: int, image: str) -> int:
    clock = FakeClock()
    source = TaskMetadataSource(ManyContainers(clock, containers, image), 4)
    sampler = TaskSampler(source, clock, FakeLog(), 10**9, series_points=2, host=Host())
    with counted_operations() as counts:
        watched: tuple[str, ...] = ()
        for _ in range(3):
            sampler.tick(watched)
            clock.advance(1)
            assert sampler.task is not None
            names = select_batch(sampler.task, requested=None, own=None).names
            assert len(names) == 20
            watched = tuple(sampler.task.current)
    return counts[0]


@pytest.mark.parametrize("image", ["etl:1", "task-profiler:1"])
def test_four_times_the_containers_take_four_times_the_work(image: str) -> None:
    """A quadratic step that dominates makes the ratio 16."""
    assert operations_of_reads(LARGE, image) < 1.15 * LARGE / SMALL * operations_of_reads(SMALL, image)


def operations_of_a_run(containers: int) -> int:
    clock, log = FakeClock(), FakeLog()
    settings = MonitorSettings(endpoint_address="http://x", endpoint_version=4, checkpoint_seconds=1.0)
    source = TaskMetadataSource(ManyContainers(clock, containers, "etl:1"), 4)
    sampler = TaskSampler(source, clock, log, 10**9, series_points=2, host=Host())
    ticker = Ticker(0, 10**9)
    reporter = Reporter(
        settings,
        sampler,
        ticker=ticker,
        clock=clock,
        host=Host(vcpu=2, memory_bytes=2**30, cpu_architecture="X86_64"),
        read_own_usage=lambda: OwnUsage(cpu_seconds=0, max_rss_mb=None),
    )
    output = FakeStdout()
    delivery = Delivery(FakeLogsSink(), output, log, FakeCalls(clock))
    runtime = Runtime(clock=clock, ticker=ticker, stop=FakeStop(clock), log=log)
    with counted_operations() as counts:
        MonitorLoop(settings, sampler, reporter, delivery, runtime).run()
    assert len([line for line in output.lines if b'"type":"task.report"' in line]) == 20
    return counts[0]


def test_a_run_with_many_possible_batches_is_not_quadratic() -> None:
    """Twenty of them get a report, which lists the other containers."""
    assert operations_of_a_run(60) < 1.15 * 2 * operations_of_a_run(30)


def operations_of_blocks(entries: int) -> int:
    blocks = [{"op": "read", "major": 259, "minor": index} for index in range(entries)]
    body = json.dumps({"id": {"read": "2025-11-20T00:53:20Z", "blkio_stats": {"io_service_bytes_recursive": blocks}}})

    class Endpoint:
        def get(self, _path: str, _max_seconds: float | None = None) -> bytes:
            return body.encode()

    source = TaskMetadataSource(Endpoint(), 4)
    with counted_operations() as counts:
        source.stats()
    return counts[0]


def test_four_times_the_block_devices_take_four_times_the_work() -> None:
    assert operations_of_blocks(LARGE) < 1.15 * LARGE / SMALL * operations_of_blocks(SMALL)
