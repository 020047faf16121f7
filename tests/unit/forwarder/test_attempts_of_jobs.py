"""What Batch's event adds to the document of an attempt's task, in whatever order the task's event,
its report and Batch's event arrive.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import pytest

from profiler.core.ecs_terms import RETRY_OF
from profiler.forwarder.document_fields import without_empty_values
from profiler.forwarder.document_updates import Document
from profiler.forwarder.ended_run import NO_RETRY, MemoryRetry
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.job_changed import attempt_documents
from profiler.forwarder.run_documents import event_documents, report_document
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.batch_job_detail import parse_job, parse_job_event
from profiler.record.ecs_event_outcome import end_of_event, written_event_end
from profiler.record.stopped_task import parse_stopped_task
from tests.batch_jobs import job_id, task_event
from tests.ended_runs import run_of
from tests.fake_batch import NOW_MS, FakeBatch
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.stopped_tasks import report
from tests.values import present

SETTINGS = ForwarderSettings()
TIMEOUT = "Job attempt duration exceeded timeout"
HOST = "Host EC2 (instance i-0a1b) terminated."
Job = dict[str, Any]


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("etl", 1, 4096, retryStrategy={"attempts": 3})
        yield fake


def ended(batch: FakeBatch, reason: str, *, code: int | None = 143, **more: Any) -> Job:
    """A job with one attempt, which was its last one."""
    job = batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    batch.now_ms = NOW_MS - 90_000
    batch.begin(job)
    batch.now_ms = NOW_MS
    batch.end(job, code, status_reason=reason)
    return job | more


def of_job(job: Job) -> list[Document]:
    return [*attempt_documents(present(parse_job(job)), SETTINGS)]


def of_task(job: Job, text: str | None = None, **detail: Any) -> list[Document]:
    """ECS's event, which names no user, and a container that was stopped."""
    stopped = {"containers": [{"name": "default", "exitCode": 143}]} | detail
    task = present(parse_stopped_task(task_event(job, **stopped)))
    end = end_of_event(task, task.container_or_name_only("default"))
    line = None if text is None else report_line(text)
    run = run_of(task=task, end=end, container="default", report_line=line)
    return [*event_documents(run, SETTINGS)]


def text_of(job: Job, **more: Any) -> str:
    task = job["attempts"][0]["container"]["taskArn"].rpartition("/")[2]
    own = {"family": "etl", "container": {"name": "default"}, "taskId": task, "exitCode": 143}
    named = {"jobId": job["jobId"], "attempt": 1, "queue": "nightly"}
    return report(**own, batch=named, **more)


def of_report(text: str) -> list[Document]:
    made = report_document(report_line(text).report, text, SETTINGS)
    assert isinstance(made, Document)
    return [made]


def written(*writes: Sequence[Document]) -> Job:
    cluster = FakeSearchCluster()
    for documents in writes:
        assert deliver_documents(cluster, FakeInvocationTime(), documents).rejected == ()
    (document,) = cluster.documents.values()
    return without_empty_values(document)


@pytest.mark.parametrize(
    ("reason", "more", "outcome", "status"),
    [
        (TIMEOUT, {}, "timeout", "failure"),
        (HOST, {}, "infrastructure", "stopped"),
        (TIMEOUT, {"isTerminated": True}, "user", "stopped"),
        ("Essential container in task exited", {}, "failure", "failure"),
    ],
)
def test_every_order_gives_the_same_document(
    batch: FakeBatch, reason: str, more: Job, outcome: str, status: str
) -> None:
    job = ended(batch, reason, **more)
    text = text_of(job, status="failure")
    parts = [of_report(text), of_task(job), of_job(job)]
    expected = written(*parts)
    assert expected["task"]["outcome"] == outcome
    assert expected["task"]["status"] == status
    assert expected["task"]["confirmed"] is True
    assert expected["batch"]["allowed_attempts"] == expected["batch"]["attempt"] == 1
    assert expected["batch"]["job_name"] == "orders"
    assert expected["event"]["dataset"] == "task.report"
    assert expected["usage"]["memory"]["used_mb"]["max"] == 500
    for order in permutations([*parts, of_job(job)]):
        assert written(*order) == expected
    assert written(of_job(job), of_task(job, text)) == expected


@pytest.mark.parametrize("reason", [TIMEOUT, HOST, "Essential container in task exited"])
def test_without_a_report_too(batch: FakeBatch, reason: str) -> None:
    job = ended(batch, reason)
    expected = written(of_task(job), of_job(job))
    assert expected["event"]["dataset"] == "task.report"
    assert expected["task"].get("job_end") == {TIMEOUT: "timeout", HOST: "infrastructure"}.get(
        reason
    )
    assert expected["task"]["outcome"] == expected["task"].get("job_end", "failure")
    assert written(of_job(job), of_task(job)) == expected
    assert written(of_job(job), of_task(job), of_job(job), of_task(job)) == expected


@pytest.mark.parametrize("is_retry", [False, True])
def test_a_retry_and_the_job_before_it_name_each_other_in_any_order(
    batch: FakeBatch, *, is_retry: bool
) -> None:
    """A single success of a retry, too, of which Batch has nothing else to add."""
    other = job_id(7)
    more: Job = {"tags": {RETRY_OF: other}, "status": "SUCCEEDED"} if is_retry else {}
    job = ended(batch, "Essential container in task exited", code=0 if is_retry else 137, **more)
    retry = NO_RETRY if is_retry else MemoryRetry(sentence="Started again.", retried_as=other)
    by_batch = [*attempt_documents(present(parse_job(job)), SETTINGS, retry)]
    code: Job = {"containers": [{"name": "default", "exitCode": job["container"]["exitCode"]}]}
    parts = [of_report(text_of(job)), of_task(job, **code), by_batch]
    for order in permutations([*parts, by_batch]):
        task = written(*order)["task"]
        named = (task.get("retry_of"), task.get("retried_as"))
        assert named == ((other, None) if is_retry else (None, other))


@pytest.mark.parametrize(
    ("status", "allowed", "expected"),
    [
        ("RUNNABLE", 3, (True, None)),
        ("RUNNING", 3, (True, None)),
        ("FAILED", 1, (None, None)),
        ("FAILED", 3, (None, True)),
    ],
)
def test_an_attempt_says_whether_batch_makes_another_one_in_any_order(
    batch: FakeBatch, status: str, allowed: int, expected: tuple[object, object]
) -> None:
    reason = "Essential container in task exited"
    job = ended(batch, reason, code=1, status=status, retryStrategy={"attempts": allowed})
    for order in permutations([of_report(text_of(job)), of_task(job), of_job(job), of_job(job)]):
        task = written(*order)["task"]
        assert (task.get("repeated"), task.get("last_attempt")) == expected


def test_a_job_that_is_ended_while_it_waits_for_an_attempt_has_its_last_one_in_any_order(
    batch: FakeBatch,
) -> None:
    """It becomes known again with the job's end, so that the message after that counts it; but a
    run that had been counted when Batch said that it waits does not.
    """
    job = ended(batch, HOST, retryStrategy={"attempts": 3})
    waiting = {**job, "status": "RUNNABLE"}
    terminated = {**job, "status": "FAILED", "stoppedAt": NOW_MS + 7_200_000}
    parts = [of_report(text_of(job)), of_task(job), of_job(waiting), of_job(terminated)]
    of_ecs, waits, ends = range(1, 4)
    for order in permutations(range(4)):
        cluster = FakeSearchCluster()
        moments = [f"2026-03-01T{hour:02}:00:00.000Z" for hour in range(4)]
        for moment, number in zip(moments, order, strict=True):
            assert (
                deliver_documents(cluster, FakeInvocationTime(), parts[number], moment).rejected
                == ()
            )
        for number in order:  # and all of it again, later
            deliver_documents(
                cluster, FakeInvocationTime(), parts[number], "2026-03-05T00:00:00.000Z"
            )
        (document,) = cluster.documents.values()
        task = document["task"]
        assert (task["repeated"], task["last_attempt"]) == (True, True)
        at = {part: moments[order.index(part)] for part in (of_ecs, waits, ends)}
        waited = max(at[of_ecs], at[waits]) < at[ends]
        assert task["known_at"] == at[ends if waited else of_ecs], order


def test_a_users_text_is_no_timeout(batch: FakeBatch) -> None:
    """TerminateJob passes its text on to ECS, where it reads as Batch's own."""
    job = ended(batch, TIMEOUT, isTerminated=True)
    said = {"stoppedReason": TIMEOUT, "stopCode": "UserInitiated"}
    assert written(of_task(job, **said))["task"]["outcome"] == "timeout"
    for writes in permutations([of_task(job, **said), of_job(job)]):
        document = written(*writes)
        assert document["task"]["outcome"] == "user"
        assert present(written_event_end(document["task"])).cause == "user", "as show reads it"


def test_ecs_knows_that_a_lost_host_was_spot_capacity(batch: FakeBatch) -> None:
    job = ended(batch, HOST)
    said = {"stoppedReason": "Your Spot Task was interrupted.", "stopCode": "SpotInterruption"}
    for writes in permutations([of_task(job, **said), of_job(job)]):
        assert written(*writes)["task"]["outcome"] == "spot"


def test_of_batchs_event_alone_is_no_run(batch: FakeBatch) -> None:
    document = written(of_job(ended(batch, TIMEOUT)))
    assert document["event"]["dataset"] == "batch.job"
    assert document["task"]["outcome"] == "timeout"
    assert "usage" not in document
    assert "confirmed" not in document["task"]


def test_a_single_success_is_ecss_alone(batch: FakeBatch) -> None:
    """An array of 10,000 children that succeed is not written twice."""
    assert of_job(ended(batch, "Essential container in task exited", code=0)) == []


def test_the_attempts_of_several_containers_are_joined_by_their_tasks(batch: FakeBatch) -> None:
    containers: list[Job] = [
        {"name": name, "image": "x", "essential": name != "proxy", "resourceRequirements": []}
        for name in ("batch", "proxy", "task-monitor")
    ]
    job = ended(batch, HOST)
    job["ecsProperties"] = {"taskProperties": [{"containers": containers}]}
    task = job["attempts"][0].pop("container")["taskArn"]
    ends = [{"name": one["name"], "exitCode": 1} for one in containers]
    job["attempts"][0]["taskProperties"] = [{"taskArn": task, "containers": ends}]
    (document,) = of_job(job)
    assert document.id == f"{task.rpartition('/')[2]}/batch"


@pytest.mark.parametrize(
    ("change", "is_read"),
    [({}, True), ({"account": "999988887777"}, False), ({"region": "eu-west-1"}, False)],
)
def test_an_event_of_another_place_than_its_jobs_is_nothing(
    batch: FakeBatch, change: Job, *, is_read: bool
) -> None:
    job = ended(batch, TIMEOUT)
    assert (parse_job_event(batch.event(job) | change) is not None) is is_read


@pytest.mark.parametrize(
    ("own", "other"), [("111122223333", "999988887777"), ("us-west-2", "eu-west-1")]
)
def test_a_task_of_another_place_than_its_jobs_keeps_its_document(
    batch: FakeBatch, own: str, other: str
) -> None:
    job = ended(batch, TIMEOUT)
    container = job["attempts"][0]["container"]
    container["taskArn"] = container["taskArn"].replace(own, other)
    assert of_job(job) == []


def test_times_and_arns_that_are_none_cost_the_attempt_alone(batch: FakeBatch) -> None:
    job = ended(batch, TIMEOUT)
    (good,) = job["attempts"]
    job["attempts"] = [
        {"container": {}},
        {**good, "startedAt": 10**18, "stoppedAt": 10**18},
        {**good, "container": {"taskArn": 5}},
        good,
    ]
    (document,) = of_job(job)
    assert document.fields["batch"]["attempt"] == 4
    assert document.fields["batch"]["job_id"] == job["jobId"]
