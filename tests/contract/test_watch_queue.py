"""``watch --queue``: what runs, starts and waits in a queue of AWS Batch."""

import json
import time
from collections.abc import Iterator
from subprocess import CompletedProcess
from typing import Any

import pytest

from profiler.aws_account.running_tasks.queued_jobs import read_queue
from profiler.cli.watch_queue import watch_queue
from tests.command_line import run_here
from tests.fake_batch import FakeBatch
from tests.fakes import FakeClock

AWS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-west-2"}


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.now_ms = time.time_ns() // 1_000_000 - 3_600_000
        fake.add_queue("nightly", "spot")
        fake.define("etl")
        yield fake


@pytest.fixture
def watch(batch: FakeBatch) -> Any:
    def run(*words: str) -> CompletedProcess[str]:
        return run_here(AWS | batch.environment(), "watch", *words)

    return run


def test_the_jobs_are_listed_with_awss_reason(batch: FakeBatch, watch: Any) -> None:
    batch.begin(batch.submit("runs", "nightly", "etl"))
    waiting = batch.submit("\x1b[2Jwaits", "nightly", "etl")
    waiting["statusReason"] = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
    batch.submit("starts", "nightly", "etl")["status"] = "STARTING"
    done = watch("--queue", "nightly")
    assert done.returncode == 0, done.stderr
    head, *_ = done.stdout.splitlines()
    assert head == "nightly  1 job RUNNING, 1 job STARTING, 1 job RUNNABLE"
    assert "1h 00m" in done.stdout
    assert "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY" in done.stdout
    assert f"task-profiler doctor {waiting['jobId']}" in done.stdout
    assert "\x1b" not in done.stdout


def test_json_has_one_object_for_each_job(batch: FakeBatch, watch: Any) -> None:
    job = batch.submit("waits", "nightly", "etl", arrayProperties={"size": 3})
    batch.submit("after", "nightly", "etl", dependsOn=[{"jobId": job["jobId"]}])
    batch.begin(batch.jobs[f"{job['jobId']}:1"])
    (row,) = map(json.loads, watch("--queue", "nightly", "--json").stdout.splitlines())
    assert row["jobId"] == job["jobId"]
    assert (row["status"], row["children"]) == ("PENDING", 3)
    assert row["reason"] == "2 RUNNABLE, 1 RUNNING"


def test_an_array_is_listed_with_its_children_by_their_status(batch: FakeBatch, watch: Any) -> None:
    """Batch lists no child in a queue, and the array is PENDING until the last one has ended."""
    job = batch.submit("waits", "nightly", "etl", arrayProperties={"size": 3})
    done = watch("--queue", "nightly")
    assert done.stdout.startswith("nightly  1 array PENDING\n")
    assert "waits [3]" in done.stdout
    assert "3 RUNNABLE" in done.stdout
    assert f"task-profiler doctor {job['jobId']}" in done.stdout


def test_a_long_queue_is_cut_and_said(batch: FakeBatch, watch: Any) -> None:
    for number in range(130):
        batch.submit(f"job-{number}", "nightly", "etl")
    assert "100+ jobs RUNNABLE" in watch("--queue", "nightly").stdout


def test_thousands_that_wait_for_other_jobs_take_one_call(batch: FakeBatch) -> None:
    first = batch.submit("first", "nightly", "etl")
    for number in range(2_100):
        batch.submit(f"after-{number}", "nightly", "etl", dependsOn=[{"jobId": first["jobId"]}])
    assert len(read_queue(lambda _: batch.client(), "nightly")) == 1
    listed = [one["jobStatus"] for name, one in batch.calls if name == "ListJobs"]
    assert listed == ["RUNNING", "STARTING", "RUNNABLE", "PENDING"]


def test_an_empty_queue_and_a_missing_right(batch: FakeBatch, watch: Any) -> None:
    assert "no job waits, starts or runs" in watch("--queue", "nightly").stdout
    batch.refused.add("ListJobs")
    done = watch("--queue", "nightly")
    assert done.returncode == 1
    assert "allow batch:ListJobs" in done.stderr


def test_a_queue_that_does_not_exist_is_said_with_a_similar_name(
    batch: FakeBatch, watch: Any
) -> None:
    done = watch("--queue", "nihgtly")
    assert done.returncode == 1
    assert done.stderr == (
        "task-profiler: There is no job queue 'nihgtly': check the name, --region and --profile. "
        "Did you mean nightly?\n"
    )
    batch.refused.add("DescribeJobQueues")
    assert "JobQueue nihgtly not found" in watch("--queue", "nihgtly").stderr


def test_a_queue_that_exists_keeps_awss_reason(batch: FakeBatch, watch: Any) -> None:
    (queue,) = batch.queues.values()
    batch.refused.add("ListJobs")
    assert "allow batch:ListJobs" in watch("--queue", queue["jobQueueArn"]).stderr


def test_a_family_and_a_queue_are_refused(watch: Any) -> None:
    assert watch("etl", "--queue", "nightly").returncode == 2


def test_a_terminal_is_drawn_again_after_an_error(batch: FakeBatch) -> None:
    drawn: list[bytes] = []
    batch.submit("waits", "nightly", "etl")

    def draw() -> str:
        watch_queue(lambda _service: batch.client(), "nightly", FakeClock(), drawn.append)
        return drawn[-1].decode()

    batch.throttled = 1
    assert "there are too many calls" in draw()
    assert "waits" in draw()
