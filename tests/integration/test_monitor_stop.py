"""A task that is stopped, as a real monitor sees it: the verdict, and what was measured until then."""

import signal
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from benchmarks.endpoint import Task, serve, timestamp
from tests.faults.misbehaving import GROUP, STREAM, LogApi
from tests.integration.sidecar import Sidecar
from tests.waiting import wait_until

_RARELY = "3600"  # between two ticks there is only what the signal causes


class StoppedTask(Task):
    """A task that ECS stops before, after or without the end of its batch."""

    def __init__(self) -> None:
        super().__init__(2)
        self.exit_code = 0
        self.is_stopping = False
        self.execution_stopped: float | None = None
        self.has_batch_stats = True
        self.lists_batch = True
        self.task_reads = 0

    def task(self) -> dict[str, object]:
        document = super().task()
        if not self.lists_batch:
            document["Containers"] = [self.container("task-monitor")]
        document["DesiredStatus"] = "STOPPED" if self.is_stopping else "RUNNING"
        if self.execution_stopped is not None:
            document["ExecutionStoppedAt"] = timestamp(self.execution_stopped)
        self.task_reads += 1
        return document

    def container(self, name: str) -> dict[str, object]:
        document = super().container(name)
        return document | {"ExitCode": self.exit_code} if "ExitCode" in document else document

    def stats(self) -> dict[str, object]:
        document = super().stats()
        return document if self.has_batch_stats else {**document, self.docker_id("batch"): {}}

    def end_batch(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.ended = time.time()


class Played(NamedTuple):
    """The task and its address."""

    task: StoppedTask
    address: str


@pytest.fixture
def played() -> Iterator[Played]:
    task = StoppedTask()
    server = serve(task)
    yield Played(task, f"http://127.0.0.1:{server.server_address[1]}/v4/own")
    server.shutdown()
    server.server_close()


@pytest.fixture
def logs() -> Iterator[LogApi]:
    served = LogApi()
    yield served
    served.close()


def stricter_variant(task: StoppedTask, _sidecar: Sidecar) -> None:
    """The batch depends on the monitor: ECS stops the batch first, and the monitor has read nothing in between."""
    task.end_batch(143)
    task.is_stopping = True
    task.execution_stopped = time.time()


def second_essential_container(task: StoppedTask, _sidecar: Sidecar) -> None:
    """Another essential container has ended, so ECS stops the batch, which handles it well."""
    task.execution_stopped = time.time()
    task.end_batch(0)
    task.is_stopping = True


def without_depends_on(task: StoppedTask, sidecar: Sidecar) -> None:
    """All containers get their signal at once, and the batch ends a little later."""
    task.is_stopping = True
    before = task.task_reads
    sidecar.process.send_signal(signal.SIGTERM)
    wait_until(lambda: task.task_reads > before, 30, "the monitor to have seen the signal")
    task.end_batch(0)


def own_end(task: StoppedTask, _sidecar: Sidecar) -> None:
    """The essential batch is killed for its memory, which stops the task."""
    task.end_batch(137)
    task.execution_stopped = time.time()
    task.is_stopping = True


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (stricter_variant, ("stopped", 143)),
        (second_essential_container, ("stopped", 0)),
        (without_depends_on, ("stopped", 0)),
        (own_end, ("failure", 137)),
    ],
)
def test_a_batch_that_ends_between_two_reads_of_the_task(
    end: Callable[[StoppedTask, Sidecar], None], expected: tuple[str, int], played: Played, logs: LogApi
) -> None:
    with Sidecar(logs.environment(), beside=played, INTERVAL_SECONDS=_RARELY) as sidecar:
        sidecar.wait_for_samples(1)
        end(played.task, sidecar)
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.finish()
    (record,) = logs.records()
    assert (record["status"], record["exitCode"]) == expected


def test_a_stopped_run_is_measured_until_the_report(played: Played, logs: LogApi) -> None:
    """The last tick was at the start; the batch uses 0.4 vCPU all the time."""
    with Sidecar(logs.environment(), beside=played, INTERVAL_SECONDS=_RARELY) as sidecar:
        sidecar.wait_for_samples(1)
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.finish()
    (record,) = logs.records()
    assert record["status"] == "stopped"
    assert record["sampling"]["samples"] == 3
    measured_seconds = record["metrics"]["cpuSeconds"] / 0.4
    assert measured_seconds == pytest.approx(record["metrics"]["durationMs"] / 1000, rel=0.1)


def test_a_batch_stopped_before_docker_had_counted_it_has_a_sample(played: Played, logs: LogApi) -> None:
    played.task.has_batch_stats = False
    with Sidecar(logs.environment(), beside=played, INTERVAL_SECONDS=_RARELY) as sidecar:
        sidecar.wait_for_samples(1)
        sidecar.process.send_signal(signal.SIGTERM)
        played.task.has_batch_stats = True
        sidecar.finish()
    (record,) = logs.records()
    assert (record["status"], record["sampling"]["samples"]) == ("stopped", 2)
    assert record["metrics"]["memoryUsedMB"]["max"] > 0


@pytest.mark.parametrize("has_signal", [True, False])
def test_a_batch_that_version_3_never_lists_is_reported(*, has_signal: bool, played: Played, logs: LogApi) -> None:
    """It was over before the first reading: the report comes at SIGTERM, or by itself as no other container runs."""
    played.task.lists_batch = played.task.has_batch_stats = False
    version_3 = {"ECS_CONTAINER_METADATA_URI_V4": "", "ECS_CONTAINER_METADATA_URI": played.address}
    with Sidecar(
        logs.environment() | version_3,
        beside=played,
        INTERVAL_SECONDS=_RARELY if has_signal else "0.1",
        CONTAINER="batch",
        LOG_GROUP=GROUP,
        LOG_STREAM=STREAM,
    ) as sidecar:
        sidecar.wait_for_samples(1)
        if has_signal:
            sidecar.process.send_signal(signal.SIGTERM)
        sidecar.finish()
    (record,) = logs.records()
    assert (record["container"]["name"], record["status"], record["family"]) == ("batch", "unknown", "bench")
    assert record["sampling"]["sources"] == ["task-metadata-v3"]
