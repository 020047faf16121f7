"""The monitor as a process of its own while what it lives with fails: what the record says, and
what is lost.
"""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.run_documents import report_document
from profiler.record.record_model import decode
from tests.faults.misbehaving import (
    IS_SILENT,
    TAKES_AND_IS_SILENT,
    FaultyEndpoint,
    FaultyTask,
    LogApi,
    Manner,
)
from tests.integration.sidecar import Line, Sidecar, problems
from tests.values import present
from tools.waiting import wait_until

INTERVAL_SECONDS = 0.1  # the sidecar's
TICKS = 30
NOBODY = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
}


@pytest.fixture
def endpoint() -> Iterator[FaultyEndpoint]:
    with FaultyEndpoint(FaultyTask()) as served:
        yield served


@pytest.fixture
def logs() -> Iterator[LogApi]:
    with LogApi() as served:
        yield served


def let_pass() -> None:
    """Real time: what stands still here is another process."""
    end = time.monotonic() + TICKS * INTERVAL_SECONDS
    wait_until(lambda: time.monotonic() >= end, "time to pass")


def whole_run(record: Line, cpu_seconds: float) -> None:
    """All CPU time until then is there, and the rate is the batch's own throughout."""
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    assert record["metrics"]["cpuSeconds"] >= cpu_seconds
    assert record["metrics"]["vcpuUsed"]["avg"] == pytest.approx(0.4, rel=0.05)


def test_an_endpoint_that_dies_and_returns_costs_samples_and_no_cpu_time(
    endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    with Sidecar(logs.environment(), endpoint=endpoint) as sidecar:
        sidecar.wait_for_samples()
        endpoint.close()
        let_pass()
        endpoint.come_back()
        used_by_then = endpoint.task.cpu_seconds()
        output, errors = sidecar.watch()
    assert output == []
    (record,) = logs.records()
    whole_run(record, used_by_then)
    assert record["sampling"]["failures"] > 0
    assert record["sampling"]["longestGapMs"] >= TICKS * INTERVAL_SECONDS * 1000
    said = {line["event"] for line in errors}
    assert {
        "/task/stats cannot be read and is tried again",
        "/task/stats can be read again",
    } <= said


def test_a_monitor_that_is_frozen_misses_ticks_and_no_cpu_time(
    endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    with Sidecar(logs.environment(), endpoint=endpoint) as sidecar:
        sidecar.wait_for_samples()
        sidecar.process.send_signal(signal.SIGSTOP)
        let_pass()
        used_by_then = endpoint.task.cpu_seconds()
        sidecar.process.send_signal(signal.SIGCONT)
        sidecar.watch()
    (record,) = logs.records()
    whole_run(record, used_by_then)
    assert record["sampling"]["missedTicks"] >= TICKS - 1
    assert record["sampling"]["longestGapMs"] >= TICKS * INTERVAL_SECONDS * 1000
    assert record["monitor"]["warnings"] == []


def test_an_end_and_a_stop_while_the_monitor_is_frozen_are_not_lost(
    endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    with Sidecar(logs.environment(), endpoint=endpoint) as sidecar:
        sidecar.wait_for_samples()
        sidecar.process.send_signal(signal.SIGSTOP)
        sidecar.end_batch()
        sidecar.process.send_signal(signal.SIGTERM)
        let_pass()
        sidecar.process.send_signal(signal.SIGCONT)
        sidecar.finish()
    (record,) = logs.records()
    assert record["status"] == "success"
    assert record["exitCode"] == 0
    assert record["sampling"]["samples"] > 0


def wait_for_a_checkpoint(sidecar: Sidecar) -> None:
    assert b"task.checkpoint" in present(sidecar.process.stdout).readline()


def test_a_monitor_killed_before_the_end_goes_on_from_the_counters(
    endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    """Peaks and percentiles from before stand in the checkpoints alone; CPU time is a counter
    and whole.
    """
    with Sidecar(logs.environment(), endpoint=endpoint, CHECKPOINT_SECONDS="0.3") as sidecar:
        wait_for_a_checkpoint(sidecar)
        sidecar.kill()
        endpoint.task.monitor_restarts = 1
        sidecar.start()
        sidecar.wait_for_samples()
        used_by_then = endpoint.task.cpu_seconds() - 2 * INTERVAL_SECONDS * 0.4
        sidecar.watch()
    (record,) = logs.records()
    whole_run(record, used_by_then)
    assert record["monitor"]["restarts"] == 1


@pytest.mark.diagonal(1)
@pytest.mark.parametrize("manner", [IS_SILENT, TAKES_AND_IS_SILENT], ids=["before", "after"])
def test_a_monitor_killed_while_it_reports_reports_again(
    manner: Manner, endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    """Before and after CloudWatch had the line; the second report has the end and the durations."""
    logs.manner = manner
    with Sidecar(logs.environment(), endpoint=endpoint, CHECKPOINT_SECONDS="0.3") as sidecar:
        sidecar.wait_for_samples()
        wait_for_a_checkpoint(sidecar)
        sidecar.end_batch()
        wait_until(lambda: logs.requests, "the put")
        sidecar.kill()
        logs.manner = Manner()
        endpoint.task.monitor_restarts = 1
        sidecar.start()
        sidecar.finish()
    *before, last = logs.records()
    assert bool(before) == manner.takes  # a put without an answer may be repeated before the kill
    assert last["status"] == "success"
    assert last["exitCode"] == 0
    assert last["monitor"]["restarts"] == 1
    assert last["sampling"]["samples"] == 0
    assert last["metrics"]["durationMs"] > 0
    assert "cpuSeconds" not in last["metrics"]
    assert len({place(line) for line in logs.lines}) == 1


def place(line: str) -> tuple[str, str]:
    """Where a line's document goes: its index and its id."""
    document = report_document(decode(line), line, ForwarderSettings())
    assert isinstance(document, Document)
    return document.index, document.id


def test_a_report_that_cloudwatch_does_not_answer_is_printed(logs: LogApi) -> None:
    """A busy machine may need more than the shortest time to begin the put."""
    logs.manner = IS_SILENT
    output, errors = list[Line](), list[Line]()
    for stop_seconds in (4, 16, 64):
        with (
            FaultyEndpoint(FaultyTask()) as endpoint,
            Sidecar(
                logs.environment(), endpoint=endpoint, STOP_SECONDS=str(stop_seconds)
            ) as sidecar,
        ):
            sidecar.wait_for_samples()
            sidecar.end_batch()
            output, errors = sidecar.finish()
        if logs.requests:
            break
    assert logs.lines == []
    assert logs.requests >= 1
    ((kind, status),) = [(line["type"], line["record"]["status"]) for line in output]
    assert kind == "task.report"
    assert status == "success"
    (error,) = problems(errors)
    assert "the rest of the stop budget" in error


def test_a_full_disk_under_stdout_costs_the_checkpoints_and_not_the_report(
    endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        Sidecar(
            logs.environment(), output=full, endpoint=endpoint, CHECKPOINT_SECONDS="0.2"
        ) as sidecar,
    ):
        _, errors = sidecar.watch()
    (record,) = logs.records()
    assert record["status"] == "success"
    lost = problems(errors)
    assert lost
    assert all("Lines of the monitor are lost" in line and "No space left" in line for line in lost)


def test_a_report_that_can_go_nowhere_is_said_to_be_lost(endpoint: FaultyEndpoint) -> None:
    with (
        Path("/dev/full").open("wb") as full,
        Sidecar(NOBODY, output=full, endpoint=endpoint, STOP_SECONDS="2") as sidecar,
    ):
        _, errors = sidecar.watch()
    not_put, lost = problems(errors)
    assert "The report goes to the monitor's own output" in not_put
    assert "The report is not printed" in lost


def test_sigterm_after_the_put_does_not_change_the_exit_code(
    endpoint: FaultyEndpoint, logs: LogApi
) -> None:
    """An essential batch that ends stops the task, so ECS signals a monitor that has just
    reported.
    """
    with Sidecar(logs.environment(), endpoint=endpoint) as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        wait_until(lambda: logs.lines, "the put")
        while sidecar.process.poll() is None:  # at every moment until the process is gone
            sidecar.process.send_signal(signal.SIGTERM)
        output, errors = sidecar.finish()
    assert output == []
    assert problems(errors) == []
    assert len(logs.lines) == 1


@pytest.mark.slow
def test_two_monitors_in_one_task_report_on_the_batch_and_make_one_document(logs: LogApi) -> None:
    task, name = FaultyTask("task-monitor-2"), "task-monitor-2"
    task.images[name] = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/task-profiler:1"
    with (
        FaultyEndpoint(task) as endpoint,
        Sidecar(logs.environment(), endpoint=endpoint) as one,
        Sidecar(logs.environment(), endpoint=endpoint, container=name) as another,
    ):
        one.wait_for_samples()
        wait_until(lambda: task.monitors_seen >= {"task-monitor", name}, "both monitors")
        one.end_batch()
        for monitor in (one, another):
            output, errors = monitor.finish()
            assert output == []
            assert problems(errors) == []
    assert [record["container"]["name"] for record in logs.records()] == ["batch", "batch"]
    assert len({place(line) for line in logs.lines}) == 1
