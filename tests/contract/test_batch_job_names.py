"""What the functions ask AWS Batch for the names of jobs, and how often."""

from collections.abc import Iterator

import pytest

from profiler.aws_account.job_descriptions import BatchJobReader
from profiler.record.batch_job import BatchJob
from tests.fake_batch import FakeBatch


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("orders")
        yield fake


class Clock:
    """Goes on by the pauses."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.warnings: list[str] = []

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def asks(batch: FakeBatch, clock: Clock) -> BatchJobReader:
    return BatchJobReader(
        batch.client, clock.warnings.append, now_s=lambda: clock.now_s, pause=clock.pause
    )


def test_batch_is_asked_three_times_a_second_at_most(batch: FakeBatch) -> None:
    clock = Clock()
    jobs = asks(batch, clock)
    for _ in range(10):
        job = batch.submit("orders", "nightly", "orders")
        for _ in range(2):
            assert jobs.with_batch_names(BatchJob(job_id=job["jobId"])).job_definition == "orders"
    assert len(batch.requests("DescribeJobs")) == 10
    assert clock.now_s == pytest.approx(103)


def test_a_job_that_batch_has_forgotten_is_not_asked_for_again(batch: FakeBatch) -> None:
    clock = Clock()
    jobs = asks(batch, clock)
    gone = BatchJob(job_id="0a1b2c3d-1111-4222-8333-444455556666")
    assert [jobs.with_batch_names(gone) for _ in range(3)] == [gone] * 3
    assert len(batch.requests("DescribeJobs")) == 1
    clock.pause(601)
    jobs.with_batch_names(gone)
    assert len(batch.requests("DescribeJobs")) == 2


def test_a_refusal_is_remembered_for_all_jobs(batch: FakeBatch) -> None:
    clock = Clock()
    jobs = asks(batch, clock)
    batch.refused.add("DescribeJobs")
    submitted = [batch.submit("orders", "nightly", "orders")["jobId"] for _ in range(5)]
    for job_id in submitted:
        assert jobs.with_batch_names(BatchJob(job_id=job_id)).job_definition is None
    assert len(batch.requests("DescribeJobs")) == 1
    assert len(clock.warnings) == 1
    batch.refused.clear()
    clock.pause(61)
    assert jobs.with_batch_names(BatchJob(job_id=submitted[0])).job_definition == "orders"
