"""The monitor as a process of its own, against a served task and a played CloudWatch Logs."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.endpoint import TASK_ID, Task, serve
from tests.aws import FakeAws, fake_aws
from tests.integration.sidecar import Sidecar, problems
from tests.search.server import free_ports
from tests.waiting import wait_until

GROUP = "/ecs/bench"
STREAM = f"ecs/batch/{TASK_ID}"
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as server:
        server.create_log_group(GROUP)
        server.create_log_stream(GROUP, STREAM)
        yield server


def tag_warnings(report: dict[str, Any]) -> list[str]:
    """The warnings about tags; the machine may swap, which is another warning."""
    return [text for text in report["record"]["monitor"]["warnings"] if "tags" in text]


def new_reports(aws: FakeAws, before: int) -> list[dict[str, Any]]:
    return [json.loads(event.message) for event in aws.events(GROUP, STREAM)[before:]]


def test_the_report_is_in_the_batchs_stream(aws: FakeAws) -> None:
    before = len(aws.events(GROUP, STREAM))
    with Sidecar(aws.environment()) as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        output, errors = sidecar.finish()
    assert (output, errors) == ([], [])
    (report,) = new_reports(aws, before)
    assert report["record"]["status"] == "success"
    assert report["record"]["metrics"]["vcpuUsed"]["avg"] == pytest.approx(0.4, rel=0.05)
    assert report["record"]["monitor"]["maxRssMB"] > 5


# As where the batch has used up the machine's limit on processes. Root, who runs tests in CI, has no such limit.
WITHOUT_THREADS = """
import threading

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
from profiler.cli import main
main()
"""


def test_a_monitor_that_can_start_no_thread_prints_samples_and_reports(aws: FakeAws) -> None:
    before = len(aws.events(GROUP, STREAM))
    with Sidecar(
        aws.environment(),
        program=("-c", WITHOUT_THREADS),
        CHECKPOINT_SECONDS="0.2",
        PROMETHEUS_PORT=str(free_ports(1)[0]),
    ) as sidecar:
        sidecar.wait_for_samples(10)
        sidecar.end_batch()
        output, errors = sidecar.finish()
    assert {line["type"] for line in output} == {"task.checkpoint"}
    assert problems(errors) == [
        "The system starts no further thread, so there are no live metrics: raise its limit on processes."
    ]
    (report,) = new_reports(aws, before)
    assert report["record"]["status"] == "success"
    assert report["record"]["sampling"]["samples"] >= 10


def test_sigterm_while_the_batch_runs_gives_a_stopped_report(aws: FakeAws) -> None:
    before = len(aws.events(GROUP, STREAM))
    with Sidecar(aws.environment()) as sidecar:
        sidecar.wait_for_samples()
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.finish()
    (report,) = new_reports(aws, before)
    assert report["record"]["status"] == "stopped"


def test_sigterm_before_python_has_imported_anything_is_not_lost(aws: FakeAws) -> None:
    """The handlers are there as soon as the first module is; a signal from then on gives a report."""
    before = len(aws.events(GROUP, STREAM))
    with Sidecar(aws.environment()) as sidecar:
        wait_until(lambda: catches_sigterm(sidecar.process.pid), 30, "the signal handlers")
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.finish()
    assert [report["record"]["status"] for report in new_reports(aws, before)] == ["stopped"]


def test_without_a_way_to_cloudwatch_the_report_is_printed_within_the_budget() -> None:
    unreachable = {"AWS_ENDPOINT_URL": NOBODY, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with Sidecar(unreachable, STOP_SECONDS="4") as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        output, errors = sidecar.finish()
    assert [document["type"] for document in output] == ["task.report"]
    assert [line["level"] for line in errors] == ["error"]
    assert "the rest of the stop budget: 127.0.0.1:1 refused the connection" in errors[0]["event"]


def test_without_credentials_the_report_is_printed() -> None:
    with Sidecar({"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}) as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        output, errors = sidecar.finish()
    assert [document["record"]["status"] for document in output] == ["success"]
    assert "Unable to locate credentials" in errors[0]["event"]


def test_a_standard_output_that_nobody_reads_changes_nothing() -> None:
    with Sidecar({"AWS_EC2_METADATA_DISABLED": "true", "HOME": "/nonexistent"}, CHECKPOINT_SECONDS="0.1") as sidecar:
        assert sidecar.process.stdout is not None
        sidecar.process.stdout.close()
        sidecar.process.stdout = None
        sidecar.wait_for_samples()
        sidecar.end_batch()
        _, errors = sidecar.process.communicate(timeout=60)
    assert sidecar.process.returncode == 0
    assert b"Lines of the monitor are lost" in errors
    assert b"Traceback" not in errors


def test_metrics_for_cloudwatch_are_in_the_report_and_with_live_in_the_checkpoints(aws: FakeAws) -> None:
    before = len(aws.events(GROUP, STREAM))
    chosen = "cpuSeconds,failed"
    with Sidecar(aws.environment(), EMF="live", EMF_METRICS=chosen, CHECKPOINT_SECONDS="0.2") as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        checkpoints, errors = sidecar.finish()
    (report,) = new_reports(aws, before)
    assert errors == []
    assert checkpoints
    assert (report["family"], report["failed"]) == ("bench", 0)
    for line in [*checkpoints, report]:
        assert line.get("cpuSeconds") == line["record"]["metrics"].get("cpuSeconds")
    assert report["cpuSeconds"] > 0
    assert not any("failed" in line for line in checkpoints)


def test_the_tasks_tags_are_in_the_record(aws: FakeAws) -> None:
    before = len(aws.events(GROUP, STREAM))
    with Sidecar(aws.environment(), TAGS="true") as sidecar:
        sidecar.wait_for_samples(10)
        sidecar.end_batch()
        sidecar.finish()
    (report,) = new_reports(aws, before)
    assert report["record"]["tags"] == {"team": "data"}
    assert tag_warnings(report) == []


class TaskWithoutTags(Task):
    """A task whose tags never come."""

    def __init__(self) -> None:
        super().__init__(2)
        self.asked = 0
        self.over = threading.Event()

    def task_with_tags(self) -> dict[str, object]:
        self.asked += 1
        self.over.wait(60)
        return {}


class Served(NamedTuple):
    """A task and its address."""

    task: Task
    address: str


@pytest.fixture
def hanging() -> Iterator[Served]:
    task = TaskWithoutTags()
    server = serve(task)
    yield Served(task, f"http://127.0.0.1:{server.server_address[1]}/v4/own")
    task.over.set()
    server.shutdown()
    server.server_close()


def test_tags_that_never_come_delay_neither_the_samples_nor_the_stop(aws: FakeAws, hanging: Served) -> None:
    """The request has 5 s: a report that had waited for it would say so."""
    before = len(aws.events(GROUP, STREAM))
    with Sidecar(aws.environment(), beside=hanging, TAGS="true") as sidecar:
        sidecar.wait_for_samples()
        sidecar.end_batch()
        sidecar.process.send_signal(signal.SIGTERM)
        _, errors = sidecar.finish()
    assert problems(errors) == []
    (report,) = new_reports(aws, before)
    record = report["record"]
    assert isinstance(hanging.task, TaskWithoutTags)
    assert (record["status"], hanging.task.asked) == ("success", 1)
    assert "tags" not in record
    assert tag_warnings(report) == ["The task's tags are missing: /taskWithTags had not answered when the run ended."]
    assert record["sampling"]["samples"] >= 3


def test_outside_of_ecs_one_sentence_says_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "profiler", "monitor"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "task-profiler run -- CMD" in done.stderr


def catches_sigterm(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM (bit 14 of SigCgt)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:")), 0)
    return bool(caught & (1 << (signal.SIGTERM - 1)))


class IdleTask(Task):
    """A task whose containers do nothing."""

    def _sample(self, name: str) -> dict[str, object]:
        return {**super()._sample(name), "cpu_stats": {"cpu_usage": {"total_usage": 10**8}}}


def test_a_batch_that_is_stuck_and_overdue_has_a_line_for_each(aws: FakeAws) -> None:
    before = len(aws.events(GROUP, STREAM))
    task = IdleTask(2)
    with serve(task) as server:
        beside = Served(task, f"http://127.0.0.1:{server.server_address[1]}/v4/own")
        with Sidecar(
            aws.environment(), beside=beside, STUCK_MINUTES="0.015", EXPECTED_SECONDS="0.5", CHECKPOINT_SECONDS="0"
        ) as sidecar:
            sidecar.wait_for_samples(15)
            sidecar.end_batch()
            output, errors = sidecar.finish()
        server.shutdown()
    assert problems(errors) == []
    assert {line["type"] for line in output} == {"task.notice"}
    assert sorted(line["notice"]["kind"] for line in output) == ["overdue", "stuck"]
    (report,) = new_reports(aws, before)
    raised = [{"kind": line["notice"]["kind"], "at": line["record"]["notices"][-1]["at"]} for line in output]
    assert report["record"]["notices"] == raised
