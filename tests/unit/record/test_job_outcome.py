"""How jobs of AWS Batch ended, in words."""

from collections.abc import Iterator
from typing import Any

import pytest

from profiler.forwarder.job_notice import JobNotice
from profiler.record.batch_job_detail import JobDetail, parse_job
from profiler.record.job_outcome import EndedChild, failed_child, has_own_end_message
from profiler.record.measured import AtLeast, Exactly
from tests.batch_jobs import SECRETS, end_without_attempt, job_id
from tests.fake_batch import FakeBatch
from tests.values import present

KILLED = "OutOfMemoryError: Container killed due to memory usage"
MINUTE = 60_000


@pytest.fixture
def batch() -> Iterator[FakeBatch]:
    with FakeBatch() as fake:
        fake.add_queue("nightly", "spot")
        fake.define("etl", 1, 4096, retryStrategy={"attempts": 3})
        yield fake


def ran(batch: FakeBatch, job: dict[str, Any], code: int | None, *reason: Any, **more: Any) -> None:
    """An attempt of a minute."""
    batch.begin(job)
    batch.now_ms += MINUTE
    batch.end(job, code, *reason, **more)


def detail(job: dict[str, Any]) -> JobDetail:
    return present(parse_job(job))


def told(job: dict[str, Any], **more: Any) -> tuple[str, str]:
    notice = JobNotice(job=detail(job), **more)
    return notice.title, notice.facts_and_advice_text


def test_a_job_that_succeeded_at_its_third_attempt(batch: FakeBatch) -> None:
    job = batch.submit("orders", "nightly", "etl")
    ran(batch, job, 137, KILLED)
    assert not has_own_end_message(detail(job)), "Batch repeats it"
    ran(batch, job, 1, KILLED)
    ran(batch, job, 0)
    assert has_own_end_message(detail(job))
    assert told(job) == (
        "orders succeeded at its third attempt",
        "Attempts 1 and 2: ran out of memory with 4 GB; 3m 00s.",
    )
    costs = {1: Exactly(0.1), 2: Exactly(0.1), 3: Exactly(0.11)}
    assert told(job, costs=costs)[1].endswith("3m 00s; $0.31 ($0.20 of it for failed attempts).")
    least = {**costs, 2: AtLeast(0.1)}
    assert "; ≥ $0.31 (" in told(job, costs=least)[1]
    assert "$" not in told(job, costs={3: Exactly(0.11)})[1], "a part is no sum"


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ([137, 137, 137], "All 3 attempts: ran out of memory with 4 GB; 3m 00s."),
        ([3, 137, 137], "Attempts 2 and 3: ran out of memory with 4 GB; attempt 1: exit code 3; "),
        ([137, 3, 137], "Attempts 1 and 3: ran out of memory with 4 GB; attempt 2: exit code 3; "),
        ([137, 137, 3], "Exit code 3; attempts 1 and 2: ran out of memory with 4 GB; 3m 00s."),
    ],
)
def test_a_cause_of_several_attempts_is_told_once(
    batch: FakeBatch, codes: list[int], words: str
) -> None:
    job = batch.submit("orders", "nightly", "etl")
    for code in codes:
        ran(batch, job, code, *([KILLED] if code == 137 else []))
    assert told(job)[1].startswith(words)


@pytest.mark.parametrize(
    ("code", "reason", "status_reason", "words"),
    [
        (1, None, "Essential container in task exited", "Exit code 1"),
        (137, KILLED, "Essential container in task exited", "Ran out of memory with 4 GB"),
        (2, KILLED.lower(), "Essential container in task exited", "Ran out of memory with 4 GB"),
        (137, None, "Job attempt duration exceeded timeout", "Timed out"),
        (None, "CannotPullContainerError: x", "Task failed to start", "Image could not be pulled"),
        (None, None, "Your Spot Task was interrupted.", "Spot capacity reclaimed"),
        (None, None, "Host EC2 (instance i-0a) terminated.", "Lost its host i-0a"),
    ],
)
def test_why_a_job_failed(
    batch: FakeBatch, code: int | None, reason: str | None, status_reason: str, words: str
) -> None:
    job = batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    ran(batch, job, code, reason, status_reason=status_reason)
    title, sentence = told(job)
    assert title == "orders failed"
    assert sentence.startswith(words)


def test_a_text_of_terminate_job_is_no_cause(batch: FakeBatch) -> None:
    """Anybody with the right can write it."""
    job = batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    ran(batch, job, 143, status_reason="OutOfMemoryError: killed due to memory usage")
    job["isTerminated"] = True
    assert told(job) == ("orders was stopped", "Stopped on request; 1m 00s.")


@pytest.mark.parametrize("how", ["isCancelled", "isTerminated"])
def test_a_job_that_is_stopped_between_attempts_has_the_last_ones_cause(
    batch: FakeBatch, how: str
) -> None:
    job = batch.submit("orders", "nightly", "etl")
    ran(batch, job, 3)
    end_without_attempt(job, batch.now_ms + 5 * MINUTE, "no longer wanted", **{how: True})
    assert told(job) == ("orders was stopped", "Exit code 3; 6m 00s.")


def test_jobs_without_an_attempt(batch: FakeBatch) -> None:
    job = batch.submit("orders", "nightly", "etl")
    reason = "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - The job requires too much."
    end_without_attempt(job, batch.now_ms, reason)
    title, sentence = told(job)
    assert title == "orders failed before it started"
    assert sentence.startswith(f"{reason} No allowed instance has what the job asks for")
    job |= {"isCancelled": True, "statusReason": SECRETS[0]}
    assert told(job) == ("orders was cancelled before it started", "")


@pytest.mark.parametrize(
    ("reason", "more", "is_told"),
    [
        ("Dependent Job failed", {}, False),
        ("Dependent Job failed", {"isCancelled": True}, False),
        ("Dependent Job failed", {"isTerminated": True}, True),
        ("Array Child Job failed", {"arrayProperties": {"size": 3}}, True),
        ("anything", {}, True),
    ],
)
def test_what_failed_with_another_job_has_no_message(
    batch: FakeBatch, reason: str, more: dict[str, Any], *, is_told: bool
) -> None:
    job = batch.submit("orders", "nightly", "etl") | more
    end_without_attempt(job, batch.now_ms, reason)
    assert has_own_end_message(detail(job)) is is_told


def test_children_and_nodes_are_silent(batch: FakeBatch) -> None:
    parent = batch.submit("orders", "nightly", "etl", arrayProperties={"size": 2})
    child = batch.jobs[f"{parent['jobId']}:1"]
    ran(batch, child, 0)
    assert not has_own_end_message(detail(child))
    assert not has_own_end_message(detail({**child, "jobId": f"{job_id(7)}#1"}))


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_the_queues_time_limit_has_a_remedy(batch: FakeBatch, *, is_cancelled: bool) -> None:
    """Whether Batch says then that the job is cancelled is not documented."""
    job = batch.submit("orders", "nightly", "etl") | {"isCancelled": is_cancelled}
    reason = "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - too much"
    whole = f"Canceled by JobStateTimeLimit action due to reason: {reason}"
    end_without_attempt(job, batch.now_ms, whole)
    title, sentence = told(job)
    end = "was cancelled" if is_cancelled else "failed"
    assert title == f"orders {end} before it started"
    assert sentence.startswith(f"{whole}. Raise maxvCpus")


def test_a_job_of_several_nodes_is_judged_by_its_main_node(batch: FakeBatch) -> None:
    """Its attempts are the main node's."""
    job = batch.submit("orders", "nightly", "etl", retryStrategy={"attempts": 1})
    small, large = (
        {"targetNodes": nodes, "container": {"memory": memory}}
        for nodes, memory in (("0:2", 1024), ("3:", 8192))
    )
    nodes = {"numNodes": 5, "mainNode": 4, "nodeRangeProperties": [small, large]}
    ran(batch, job, 137, KILLED)
    job["nodeProperties"] = nodes
    del job["container"]
    assert has_own_end_message(detail(job))
    assert told(job) == ("orders failed", "Ran out of memory with 8 GB; 1m 00s.")
    node = {**job, "jobId": f"{job['jobId']}#1", "nodeDetails": {"nodeIndex": 1}}
    assert not has_own_end_message(detail(node))


def test_an_array_is_one_message(batch: FakeBatch) -> None:
    job = batch.submit("orders", "nightly", "etl", arrayProperties={"size": 1000})
    job["arrayProperties"]["statusSummary"] = {"SUCCEEDED": 997, "FAILED": 3}
    end_without_attempt(job, batch.now_ms + MINUTE, "Array Child Job failed")
    oom, code = "ran out of memory with 2 GB", "exit code 3"
    children = tuple(
        EndedChild(index=index, why=why) for index, why in ((998, code), (17, oom), (204, oom))
    )
    title, sentence = told(job, children=children)
    assert title == "orders failed"
    causes = f"{oom} (2), {code} (1)"
    assert sentence == f"997 of 1,000 succeeded; children 17, 204 and 998 failed: {causes}."
    one = told(job, children=children[:1])[1]
    assert one.endswith("; child 998 failed: exit code 3 (1).")
    unknown = "997 of 1,000 succeeded; which children failed is not known."
    assert told(job, children=None)[1] == unknown
    many = tuple(EndedChild(index=index, why=f"exit code {index}") for index in range(900))
    sentence = told(job, children=many)[1]
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 890 more failed" in sentence
    assert len(sentence) < 300


def test_a_failed_child_of_list_jobs() -> None:
    summary = {"arrayProperties": {"index": 17}, "startedAt": 5, "container": {"exitCode": 3}}
    assert failed_child(summary, 2048) == EndedChild(index=17, why="exit code 3")
    killed = {**summary, "container": {"exitCode": 1, "reason": KILLED}}
    assert present(failed_child(killed, 2048)).why == "ran out of memory with 2 GB"
    assert failed_child({"container": {}}, None) is None


def test_a_job_that_blocks_its_queue(batch: FakeBatch) -> None:
    job = batch.submit("orders", "nightly", "etl")
    job["statusReason"] = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - no instance"
    title, sentence = told(job, is_blocked=True)
    assert title == "orders cannot start and blocks the queue nightly"
    assert "allow more types, zones, or On-Demand" in sentence
