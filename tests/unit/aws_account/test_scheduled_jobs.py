"""The jobs of schedules, as a double of AWS Batch lists them."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from profiler.aws_account.scheduled_jobs import read_queues
from profiler.core.timestamps import NS_PER_DAY, NS_PER_MINUTE, NS_PER_MS
from profiler.schedules.due_outcomes import JOB_TOO_OLD, JudgedSchedule, judge_schedules
from profiler.schedules.schedule_model import ReadTasks, Schedule
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


def queues_of(
    batch: FakeBatch, schedules: Sequence[Schedule], now_ns: int, **more: Any
) -> tuple[dict[str, ReadTasks], list[float]]:
    """The jobs, and the pauses of their reading."""
    pauses: list[float] = []
    queues = read_queues(lambda _: batch.client(), schedules, now_ns, pause=pauses.append, **more)
    assert len(pauses) == len(batch.requests("ListJobs"))
    return queues, pauses


def judged(batch: FakeBatch, *schedules: Schedule) -> list[JudgedSchedule]:
    now_ns = batch.now_ms * NS_PER_MS
    queues = read_queues(lambda _: batch.client(), schedules, now_ns, pause=lambda _: None)
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


@pytest.mark.slow
def test_of_a_very_frequent_name_the_newest_jobs_are_known(batch: FakeBatch) -> None:
    for _ in range(2_010):
        batch.now_ms += 1_000
        batch.submit("load", "nightly", "etl")
    schedule = submits("load", 0)
    queues, _ = queues_of(batch, [schedule], batch.now_ms * NS_PER_MS)
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
    queues, _ = queues_of(batch, [submits("load", 0)], now_ns, since_ns=since_ns)
    (queue,) = queues.values()
    assert len(queue.tasks or ()) == 91
    assert queue.known_since_ns == since_ns
    # After the first old one, those of another version may follow: not after a page of old ones.
    assert len(batch.requests("ListJobs")) == 2


def test_without_time_for_all_names_none_is_known(batch: FakeBatch) -> None:
    for _ in range(210):
        batch.submit("other", "nightly", "etl")
    left = [True, True, False]
    schedules = [submits("load", 0), submits("store", 0)]
    queues, _ = queues_of(
        batch, schedules, batch.now_ms * NS_PER_MS, may_continue=lambda: left.pop(0)
    )
    (queue,) = queues.values()
    assert queue.tasks is None
    assert "increase its timeout" in (queue.problem or "")


@pytest.mark.parametrize(("others", "calls"), [(0, 1), (150, 2), (2_100, 41)])
def test_many_names_of_a_queue_take_few_calls_which_are_paced(
    batch: FakeBatch, others: int, calls: int
) -> None:
    """The queue is listed as a whole, unless that takes more calls than there are names."""
    names = [f"load-{number}" for number in range(20)]
    for name in names:
        batch.submit(name, "nightly", "etl")
    for _ in range(others):
        batch.submit("other", "nightly", "etl")
    now_ns = batch.now_ms * NS_PER_MS
    queues, pauses = queues_of(batch, [submits(name, 0) for name in names], now_ns)
    (queue,) = queues.values()
    assert sorted(job.job_name or "" for job in queue.tasks or ()) == sorted(names)
    assert len(pauses) == calls
    # A fifth of what AWS Batch takes of an account.
    assert min(pauses) >= 0.1


def test_jobs_of_an_older_version_and_of_another_spelling_are_known(batch: FakeBatch) -> None:
    """Batch lists the jobs of a name by its spellings and the versions of their definition."""
    schedule = submits("load", batch.now_ms * NS_PER_MS)
    begun_ms = batch.now_ms
    for hour in range(240):
        batch.now_ms = begun_ms + hour * 3_600_000
        batch.submit("Load", "nightly", "etl")
    newest = batch.submit("load", "nightly", "etl")
    batch.define("etl")
    batch.now_ms += 1
    batch.submit("Load", "nightly", "etl")
    queues, _ = queues_of(batch, [schedule], batch.now_ms * NS_PER_MS)
    (queue,) = queues.values()
    assert [job.arn for job in queue.tasks or ()] == [f"job/{newest['jobId']}"]
