"""The jobs of schedules, as a double of AWS Batch lists them."""

from collections.abc import Iterator

import pytest

from profiler.aws_account.submitted_jobs import read_queues
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_MS
from profiler.schedules.due_outcomes import JOB_TOO_OLD, JudgedSchedule, judge_schedules
from profiler.schedules.schedule_model import Schedule
from tests.batch_jobs import arn
from tests.fake_batch import FakeBatch

# 36 characters, at which ECS may cut a starter.
LONG = "load-the-orders-of-all-shops-nightly"


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("etl")
        yield fake


def submits(job: str, created_ns: int) -> Schedule:
    """A schedule of every ten days, so that a due time can be older than what Batch keeps."""
    return Schedule(
        kind="schedule",
        name=job,
        expression="rate(10 days)",
        created_ns=created_ns,
        modified_ns=created_ns,
        cluster_arn=arn("job-queue", "nightly"),
        definition_arn="etl:3",
        job_name=job,
    )


def judged(batch: FakeBatch, *schedules: Schedule) -> list[JudgedSchedule]:
    now_ns = batch.now_ms * NS_PER_MS
    queues = read_queues(lambda _: batch.client(), schedules, now_ns)
    return judge_schedules(schedules, queues, now_ns=now_ns, grace_ns=15 * NS_PER_MINUTE)


def after(batch: FakeBatch, days: float) -> None:
    batch.now_ms += round(days * NS_PER_DAY / NS_PER_MS)


def test_long_names_that_begin_alike_are_told_apart(batch: FakeBatch) -> None:
    begin_ns = batch.now_ms * NS_PER_MS
    first, second = (submits(f"{LONG}-{one}", begin_ns) for one in ("first", "second"))
    after(batch, 10)
    job = batch.submit(f"{LONG}-second", "nightly", "etl")
    batch.begin(job)
    batch.end(job)
    after(batch, 1)
    outcomes = [one.due_times[0] for one in judged(batch, first, second)]
    assert [one.outcome for one in outcomes] == ["missed", "ran"]
    assert outcomes[0].reason is None


def test_what_batch_forgot_is_unknown_and_never_missed(batch: FakeBatch) -> None:
    schedule = submits("load", batch.now_ms * NS_PER_MS)
    after(batch, 10)
    job = batch.submit("load", "nightly", "etl")
    batch.begin(job)
    batch.end(job)
    after(batch, 6.9)
    assert judged(batch, schedule)[0].due_times[0].outcome == "ran"
    after(batch, 0.2)
    (due,) = judged(batch, schedule)[0].due_times
    assert (due.outcome, due.reason) == ("unknown", JOB_TOO_OLD)


def test_of_a_very_frequent_name_the_newest_jobs_are_known(batch: FakeBatch) -> None:
    for _ in range(2_010):
        batch.now_ms += 1_000
        batch.submit("load", "nightly", "etl")
    schedule = submits("load", 0)
    queues = read_queues(lambda _: batch.client(), [schedule], batch.now_ms * NS_PER_MS)
    (queue,) = queues.values()
    assert len(queue.tasks or ()) == 2_000
    assert queue.known_since_ns == (batch.now_ms - 1_999_000) * NS_PER_MS
    assert len(batch.requests("ListJobs")) == 20


@pytest.mark.parametrize(
    ("more", "outcome"),
    [
        ({"statusReason": "no such role"}, "refused"),
        ({"isCancelled": True, "statusReason": "by hand"}, "ran"),
        ({"arrayProperties": {"size": 3}, "statusReason": "Array Child Job failed"}, "ran"),
    ],
    ids=["refused", "cancelled by a person", "an array"],
)
def test_only_a_job_that_batch_did_not_start_is_refused(
    batch: FakeBatch, more: dict[str, object], outcome: str
) -> None:
    schedule = submits("load", batch.now_ms * NS_PER_MS)
    after(batch, 10)
    job = batch.submit("load", "nightly", "etl")
    job |= {"status": "FAILED", "stoppedAt": batch.now_ms, **more}
    after(batch, 0.5)
    assert judged(batch, schedule)[0].due_times[0].outcome == outcome


def test_older_jobs_are_not_listed_and_not_known(batch: FakeBatch) -> None:
    for _ in range(300):
        batch.now_ms += 60_000
        batch.submit("load", "nightly", "etl")
    now_ns = batch.now_ms * NS_PER_MS
    since_ns = now_ns - 90 * NS_PER_MINUTE
    queues = read_queues(lambda _: batch.client(), [submits("load", 0)], now_ns, since_ns=since_ns)
    (queue,) = queues.values()
    assert len(queue.tasks or ()) == 91
    assert queue.known_since_ns == since_ns
    assert len(batch.requests("ListJobs")) == 1


def test_without_time_for_all_names_none_is_known(batch: FakeBatch) -> None:
    left = [True, False]
    schedules = [submits("load", 0), submits("store", 0)]
    queues = read_queues(lambda _: batch.client(), schedules, 1, may_continue=lambda: left.pop(0))
    (queue,) = queues.values()
    assert queue.tasks is None
    assert "increase its timeout" in (queue.problem or "")
    assert len(batch.requests("ListJobs")) == 1
