"""Jobs of AWS Batch on real search clusters: in the morning message, in the reading commands, in the
filter of the dashboards, and the cost of a job.
"""

import json
import os
import time
from datetime import UTC
from typing import Any

import pytest

import handler
from profiler.core.timestamps import NS_PER_HOUR, NS_PER_SECOND, format_ms
from profiler.forwarder.invocation import InvocationTime
from profiler.forwarder.job_changed import JobChangedHandler, job_document
from profiler.forwarder.night_period import JUDGED_NS, NightPeriod, RememberedNight
from profiler.forwarder.night_searches import NightReader
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.batch_job_detail import parse_job
from profiler.record.measured import Exactly
from tests.batch_jobs import job_id
from tests.command_line import run_here
from tests.fake_batch import FakeBatch
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import Context, Forward, call, confirm, event, report, search
from tests.values import present
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = [pytest.mark.search, TWO_SERVERS]

ACCOUNT, REGION = "123456789012", "us-west-2"
RUN_NS = 600 * NS_PER_SECOND
FAILED: dict[str, Any] = {"status": "failure", "exitCode": 3}


def evening_ns() -> int:
    """The start of a run that ended two hours ago."""
    return time.time_ns() - 2 * NS_PER_HOUR - RUN_NS


def attempt_of(
    job: int, attempt: int, *, index: int | None = None, queue: str = "nightly", **record: Any
) -> str:
    """A report of ten minutes. The tenth attempt ended two hours ago, each other one before."""
    began_ns = evening_ns() - (10 - attempt) * NS_PER_HOUR // 4
    name = job_id(job)
    batch = {"jobId": name, "queue": queue, "attempt": attempt, "jobDefinition": "orders"}
    if index is not None:
        batch |= {"jobId": f"{name}:{index}", "arrayIndex": index}
    return report(
        f"task-{job}-{attempt}-{index or 0}",
        **{
            "family": "orders",
            "accountId": ACCOUNT,
            "region": REGION,
            "startedAt": format_ms(began_ns),
            "finishedAt": format_ms(began_ns + RUN_NS),
            "metrics": {"durationMs": 600_000, "maxMemoryUsedMB": 900.0, "memorySizeMB": 1000},
            "cost": {"usd": 0.25},
            "batch": batch,
            **record,
        },
    )


def indexed(forward: Forward, server: SearchServer, *texts: str) -> None:
    """Confirmed documents of these reports."""
    for text in texts:
        assert forward(event(text), Context())["indexed"] == 1
    confirm(server, *(json.loads(text)["record"]["taskId"] for text in texts))
    search(server)


def night() -> Any:
    """A message some minutes later: Batch says nothing of these jobs."""
    now_ns = time.time_ns()
    since_ns = now_ns - 24 * NS_PER_HOUR
    period = NightPeriod(
        last=RememberedNight(end_ns=since_ns, whole_ns=since_ns),
        end_ns=now_ns + JUDGED_NS,
        zone=UTC,
    )
    reader = NightReader(
        cluster=handler._search_cluster(handler._settings()),
        prefix="task",
        account_id=ACCOUNT,
        region=REGION,
        timeout_seconds=LIMIT_SECONDS,
    )
    return reader.read_runs(period)


def test_the_morning_message_counts_jobs_by_their_last_attempt(
    forward: Forward, search_server: SearchServer
) -> None:
    indexed(
        forward,
        search_server,
        attempt_of(1, 1, **FAILED),
        attempt_of(1, 2, **FAILED),
        attempt_of(1, 3),
        attempt_of(2, 1, **FAILED),
        attempt_of(2, 2, **FAILED),
        *(attempt_of(3, 1, index=index) for index in range(3)),
        attempt_of(3, 1, index=3, **FAILED),
        attempt_of(3, 2, index=3),
    )
    found = night()
    counts = {outcome: dict(families) for outcome, families in found.counts.items() if families}
    assert counts == {"failure": {"orders": 1}, "success": {"orders": 5}}
    assert isinstance(found.cost, Exactly)
    assert found.cost.value == pytest.approx(10 * 0.25)


def test_a_job_whose_next_attempt_still_runs_is_in_no_message_yet(
    forward: Forward, search_server: SearchServer
) -> None:
    indexed(forward, search_server, attempt_of(1, 1, **FAILED), attempt_of(2, 1, **FAILED))
    (hit,) = search(search_server, query={"term": {"task.id": "task-1-1-0"}})["hits"]["hits"]
    path = f"{hit['_index']}/_update/{hit['_id'].replace('/', '%2F')}"
    call(search_server, "POST", path, {"doc": {"task": {"repeated": True}}})
    search(search_server)
    found = night()
    counts = {outcome: dict(families) for outcome, families in found.counts.items() if families}
    assert counts == {"failure": {"orders": 1}}
    assert found.cost.value == pytest.approx(2 * 0.25)


def listed(server: SearchServer, *words: str) -> list[str]:
    """The tasks that ``history`` lists."""
    done = run_here(os.environ, "history", "--from", server.url, "--json", *words)
    assert done.returncode == 0, done.stderr
    return sorted(json.loads(line)["record"]["taskId"] for line in done.stdout.splitlines() if line)


def test_history_and_show_find_jobs_by_their_queue_index_and_id(
    forward: Forward, search_server: SearchServer
) -> None:
    indexed(
        forward,
        search_server,
        attempt_of(1, 1, **FAILED),
        attempt_of(1, 2),
        attempt_of(2, 1, queue="daily"),
        *(attempt_of(3, 1, index=index, queue="daily") for index in range(3)),
    )
    assert listed(search_server, "--label", "batch.queue=nightly") == ["task-1-1-0", "task-1-2-0"]
    assert listed(search_server, "--label", "batch.array_index=2") == ["task-3-1-2"]
    both = ("--label", "batch.queue=daily", "--label", "batch.attempt=1")
    assert len(listed(search_server, *both)) == 4
    none = ("--label", "batch.queue=night")
    assert run_here(os.environ, "history", "--from", search_server.url, *none).returncode == 1
    shown = run_here(os.environ, "show", job_id(1), "--from", search_server.url, "--json")
    assert json.loads(shown.stdout)["record"]["taskId"] == "task-1-2-0"
    child = run_here(os.environ, "show", f"{job_id(3)}:1", "--from", search_server.url, "--json")
    assert json.loads(child.stdout)["record"]["taskId"] == "task-3-1-1"


def test_the_filter_of_the_dashboards_lists_queues_and_definitions(
    forward: Forward, search_server: SearchServer
) -> None:
    """A control of options lists the values of its field, and filters by one."""
    indexed(
        forward,
        search_server,
        attempt_of(1, 1),
        attempt_of(2, 1, queue="daily"),
        attempt_of(4, 1, queue="daily"),
    )
    names = ("queue", "job_definition", "job_id")
    aggregations = {
        name: {"terms": {"field": f"batch.{name}", "order": {"_key": "asc"}}} for name in names
    }
    found = search(search_server, size=0, aggs=aggregations)["aggregations"]
    values = {name: [one["key"] for one in found[name]["buckets"]] for name in names}
    assert values["queue"] == ["daily", "nightly"]
    assert values["job_definition"] == ["orders"]
    assert len(values["job_id"]) == 3
    chosen = search(search_server, query={"match_phrase": {"batch.queue": "daily"}})
    assert chosen["hits"]["total"]["value"] == 2


def test_a_job_that_never_ran_is_a_document_of_the_night(
    forward: Forward, search_server: SearchServer
) -> None:
    """Its numbers are missing, and a mapping of each field is there."""
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("orders")
        job = batch.submit("orders", "nightly", "orders")
        now_ms = time.time_ns() // 1_000_000
        job |= {"status": "FAILED", "statusReason": "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"}
        job |= {"createdAt": now_ms - 7_200_000, "stoppedAt": now_ms - 3_600_000}
    settings = handler._settings()
    document = present(job_document(present(parse_job(job)), settings))
    result = deliver_documents(
        handler._search_cluster(settings), InvocationTime(Context()), [document]
    )
    assert result.indexed == 1
    (hit,) = search(search_server)["hits"]["hits"]
    assert hit["_source"]["batch"]["queue"] == "nightly"
    mapping = call(search_server, "GET", f"{hit['_index']}/_mapping")
    fields = mapping[hit["_index"]]["mappings"]["properties"]["batch"]["properties"]
    assert set(hit["_source"]["batch"]) <= set(fields)


def test_the_cost_of_a_job_is_that_of_all_its_attempts_whatever_their_containers(
    forward: Forward, search_server: SearchServer
) -> None:
    """Ten attempts of four containers are forty documents, of which ten have a cost."""
    side: dict[str, Any] = {"cost": None}
    texts = []
    for attempt in range(1, 11):
        texts.append(attempt_of(1, attempt, **({} if attempt == 10 else FAILED)))
        for name in ("a", "b", "c"):
            texts.append(attempt_of(1, attempt, container={"name": name}, **side))
    indexed(forward, search_server, *texts)
    with FakeBatch() as batch:
        batch.add_queue("nightly", "spot")
        batch.define("orders")
        job = batch.submit("orders", "nightly", "orders", retryStrategy={"attempts": 10})
        job["jobId"] = job_id(1)
        for attempt in range(1, 11):
            batch.begin(job)
            batch.end(job, 0 if attempt == 10 else 3)
    outputs = handler._InvocationOutputs(Context())
    changed = JobChangedHandler(
        outputs=outputs,
        list_failed=lambda _job: iter(()),
        definition=lambda _arn: None,
        start_again=lambda _job: None,
    )
    costs = changed._find_attempt_costs(present(parse_job(job)), outputs.document_index())
    assert sorted(costs) == [*range(1, 11)]
    assert sum(cost.value for cost in costs.values()) == pytest.approx(2.5)
