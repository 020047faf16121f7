"""The monitor as a process of its own, against a served task and a played CloudWatch Logs; its
live metrics.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.sidecar import NO_AWS, Line, Sidecar, problems
from tests.task_endpoint import STREAM, Task, TaskEndpoint
from tools.moto_server import FakeAws
from tools.search_server import free_ports
from tools.waiting import LIMIT_SECONDS, has_signal_handler, wait_until

NewLines = Callable[[], list[Line]]
NOBODY = "http://127.0.0.1:1"


def tag_warnings(report: dict[str, Any]) -> list[str]:
    """The warnings about tags; the machine may swap, which is another warning."""
    return [text for text in report["record"]["monitor"]["warnings"] if "tags" in text]


def test_the_report_is_in_the_batchs_stream_with_the_tasks_tags(
    aws: FakeAws, new_lines: NewLines
) -> None:
    with Sidecar(aws.environment(), TAGS="true") as sidecar:
        output, errors = sidecar.watch(10)
    assert output == []
    assert problems(errors) == []
    (report,) = new_lines()
    assert report["record"]["status"] == "success"
    assert report["record"]["metrics"]["vcpuUsed"]["avg"] == pytest.approx(0.4, rel=0.05)
    assert report["record"]["monitor"]["maxRssMB"] > 5
    assert report["record"]["tags"] == {"team": "data"}
    assert tag_warnings(report) == []


def test_with_the_own_stream_the_report_is_printed_and_cloudwatch_is_not_asked(
    new_lines: NewLines,
) -> None:
    """Neither credentials nor a route are needed, and the record names the batch's stream."""
    with Sidecar(NO_AWS, REPORT_STREAM="monitor") as sidecar:
        (report,), errors = sidecar.watch()
    assert problems(errors) == []
    assert report["record"]["status"] == "success"
    assert report["record"]["logStream"] == STREAM
    assert new_lines() == []


# As where the batch has used up the machine's limit on processes. Root, who runs tests in CI, has
# no such limit.
WITHOUT_THREADS = """
import threading

def refuse(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
from profiler.cli import main
main()
"""


def test_a_monitor_that_can_start_no_thread_prints_samples_and_reports(
    aws: FakeAws, new_lines: NewLines
) -> None:
    program, port = ("-c", WITHOUT_THREADS), str(free_ports(1)[0])
    with Sidecar(
        aws.environment(), program=program, CHECKPOINT_SECONDS="0.2", PROMETHEUS_PORT=port
    ) as sidecar:
        # of which the last ones may come too late to count
        output, errors = sidecar.watch(15)
    assert {line["type"] for line in output} == {"task.checkpoint"}
    assert problems(errors) == [
        (
            "The system starts no further thread, so there are no live metrics: raise its limit "
            "on processes."
        )
    ]
    (report,) = new_lines()
    assert report["record"]["status"] == "success"
    assert report["record"]["sampling"]["samples"] >= 5


def test_sigterm_before_python_has_imported_anything_is_not_lost(
    aws: FakeAws, new_lines: NewLines
) -> None:
    """The handlers are there as soon as the first module is; a signal from then on gives a
    report.
    """
    with Sidecar(aws.environment()) as sidecar:
        wait_until(
            lambda: has_signal_handler(sidecar.process.pid, signal.SIGTERM), "the signal handlers"
        )
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.finish()
    assert [report["record"]["status"] for report in new_lines()] == ["stopped"]


def test_a_stop_that_is_asked_for_again_and_again_gives_one_report(
    aws: FakeAws, new_lines: NewLines
) -> None:
    """At once, and while the report is made and put."""
    with Sidecar(aws.environment()) as sidecar:
        sidecar.wait_for_samples(3)
        sidecar.process.send_signal(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT) * 10:
            sidecar.process.send_signal(number)
            sidecar.process.poll()
        sidecar.finish()
        assert sidecar.process.returncode == 0
    assert [report["record"]["status"] for report in new_lines()] == ["stopped"]


NO_SERVER = {"AWS_ENDPOINT_URL": NOBODY, "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
REFUSED = "the rest of the stop budget: 127.0.0.1:1 refused the connection"


@pytest.mark.diagonal(1)
@pytest.mark.parametrize(
    ("environment", "said"), [(NO_SERVER, REFUSED), (NO_AWS, "Unable to locate credentials")]
)
def test_without_a_way_to_cloudwatch_the_report_is_printed(
    environment: dict[str, str], said: str
) -> None:
    with Sidecar(environment, STOP_SECONDS="8") as sidecar:
        (document,), errors = sidecar.watch()
    assert document["type"] == "task.report"
    assert document["record"]["status"] == "success"
    (error,) = problems(errors)
    assert said in error


class TaskWithoutTags(Task):
    """A task with two batches whose tags never come."""

    def __init__(self) -> None:
        super().__init__(3)
        self.asked = 0
        self.over = threading.Event()

    def task_with_tags(self) -> dict[str, object]:
        self.asked += 1
        self.over.wait(LIMIT_SECONDS)
        return {}


def test_tags_that_never_come_are_asked_for_once() -> None:
    """The request has 5 s, which a busy machine may need for the samples."""
    with TaskEndpoint(TaskWithoutTags()) as endpoint:
        with Sidecar(NO_AWS, endpoint=endpoint, TAGS="true", REPORT_STREAM="monitor") as sidecar:
            sidecar.wait_for_samples(10)
            sidecar.end_batch()
            sidecar.process.send_signal(signal.SIGTERM)
            reports, _ = sidecar.finish()
        endpoint.task.over.set()
    assert endpoint.task.asked == 1
    statuses = {one["record"]["container"]["name"]: one["record"]["status"] for one in reports}
    assert statuses == {"batch": "success", "other-0": "stopped"}
    for report in reports:
        (warning,) = tag_warnings(report)
        assert "tags" not in report["record"]
        assert "missing: /taskWithTags " in warning
        assert report["record"]["sampling"]["samples"] >= 3


class TaskThatAwaitsTags(Task):
    """A task that ended before the monitor began.

    Its documents come when its tags were asked for.
    """

    def __init__(self) -> None:
        super().__init__(2)
        self.ended = self.started
        self.asked, self.was_asked_late = threading.Event(), False

    def task(self) -> dict[str, object]:
        if not self.asked.wait(LIMIT_SECONDS):
            self.was_asked_late = True
            self.asked.set()
        return super().task()

    def task_with_tags(self) -> dict[str, object]:
        self.asked.set()
        return super().task_with_tags()


def test_the_tags_are_asked_for_at_the_start(capfd: pytest.CaptureFixture[str]) -> None:
    """A report on a batch that was over by then waits for nothing."""
    task = TaskThatAwaitsTags()
    with (
        TaskEndpoint(task) as found,
        Sidecar(NO_AWS, endpoint=found, REPORT_STREAM="monitor", TAGS="true") as sidecar,
    ):
        (report,), _ = sidecar.finish()
    capfd.readouterr()  # a request that the monitor gave up
    assert report["record"]["status"] == "success"
    assert task.was_asked_late is False


def run_monitor_until_its_end(
    program: tuple[str, ...] = ("-m", "profiler"), **environment: str
) -> str:
    """What a monitor writes to standard error that ends by itself; it exits with 0 and without a
    traceback.
    """
    done = subprocess.run(
        [sys.executable, *program, "monitor"],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_outside_of_ecs_one_sentence_says_what_to_do() -> None:
    assert "task-profiler run -- CMD" in run_monitor_until_its_end()


# A defect outside of the loop, which has its own last handler.
BROKEN_START = """
import profiler.readers.linux.host

def read_host():
    raise ZeroDivisionError

profiler.readers.linux.host.read_host = read_host
from profiler.cli import main
main()
"""


def test_a_defect_before_the_first_reading_is_named_in_one_sentence() -> None:
    error = run_monitor_until_its_end(("-c", BROKEN_START), ECS_CONTAINER_METADATA_URI_V4=NOBODY)
    assert "ZeroDivisionError" in error
    assert "defect" in error


def scraped(port: int) -> dict[tuple[str, str], float]:
    """By name and container; empty while nobody listens."""
    try:
        text = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_SECONDS).text
    except requests.ConnectionError:
        return {}
    families = text_string_to_metric_families(text)
    return {
        (one.name.removeprefix("task_profiler_"), one.labels.get("container", "")): one.value
        for family in families
        for one in family.samples
    }


def test_the_task_can_be_scraped_until_its_report_is_out() -> None:
    (port,) = free_ports(1)
    used = ("container_cpu_used_vcpus", "batch")
    with Sidecar(NO_AWS, PROMETHEUS_PORT=str(port)) as sidecar:
        wait_until(lambda: used in scraped(port), "the batch's second sample")
        found = scraped(port)
        assert found[used] == pytest.approx(0.4, rel=0.1)
        assert found["container_memory_limit_bytes", "batch"] == 512 * 2**20
        assert found["instance_memory_size_bytes", ""] > 2**20
        assert found["monitor_memory_peak_bytes", ""] > 2**20
        sidecar.end_batch()
        (report,), _ = sidecar.finish()
    assert report["record"]["status"] == "success"
    assert report["record"]["monitor"]["warnings"] == []
    assert scraped(port) == {}
