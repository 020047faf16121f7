"""What the morning message reads, on real search clusters."""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

import handler
from profiler.core.timestamps import NS_PER_SECOND, format_ms
from profiler.forwarder.documents import schedule_notice_document
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import InvocationTime
from profiler.forwarder.night_runs import ClusterNight
from profiler.forwarder.search_cluster.document_delivery import deliver
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.last_night import Night, last_night
from profiler.record.notice_model import ScheduleNoticeLine, encode_notice
from profiler.record.run_outcome import OUT_OF_MEMORY
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import (
    Context,
    Forward,
    call,
    confirm,
    event,
    index_without_a_node,
    report,
    search,
)
from tests.shown_runs import missed_notice
from tests.values import present
from tools.search_server import SearchServer

pytestmark = [pytest.mark.search, TWO_SERVERS]

ACCOUNT, REGION = "123456789012", "eu-west-1"
HOUR_NS = 3600 * NS_PER_SECOND


def night() -> Night:
    return last_night(datetime.now(UTC))


def cluster_night() -> ClusterNight:
    return ClusterNight(
        cluster=handler._cluster(handler._settings()),
        prefix="task",
        account_id=ACCOUNT,
        region=REGION,
        timeout_seconds=60,
    )


def run_at(task_id: str, began_ns: int, **record: Any) -> str:
    metrics = {"durationMs": 600_000, "maxMemoryUsedMB": 900.0, "memorySizeMB": 1000}
    return report(
        task_id,
        **{
            "family": "nightly-etl",
            "accountId": ACCOUNT,
            "region": REGION,
            "cluster": "jobs",
            "startedAt": format_ms(began_ns),
            "finishedAt": format_ms(began_ns + 600 * NS_PER_SECOND),
            "metrics": metrics,
            "cost": {"usd": 0.25},
            **record,
        },
    )


def test_the_runs_of_the_night_are_counted_by_outcome_and_family(
    forward: Forward, search_server: SearchServer
) -> None:
    evening_ns = night().start_ns + min(HOUR_NS, (time.time_ns() - night().start_ns) // 2)
    killed = {"status": "failure", "exitCode": 137, "likelyOutOfMemory": True}
    runs = {
        "a1": run_at("a1", evening_ns),
        "a2": run_at("a2", evening_ns, **killed),
        "a3": run_at("a3", evening_ns, family="load", status="failure", exitCode=3),
        "a4": run_at("a4", evening_ns, family=PROOF_FAMILY, status="failure", exitCode=3),
        "a5": run_at("a5", night().start_ns - HOUR_NS),
        "a6": run_at("a6", evening_ns, region="us-east-1"),
        "a7": run_at("a7", evening_ns, status="stopped", cost=None),
    }
    for text in runs.values():
        forward(event(text), Context())
    confirm(search_server, *runs)
    forward(event(run_at("forged", evening_ns, family="payroll")), Context())
    search(search_server)
    found = cluster_night().runs(night())
    assert {outcome: dict(families) for outcome, families in found.counts.items()} == {
        OUT_OF_MEMORY: {"nightly-etl": 1},
        "failure": {"load": 1},
        "stopped": {"nightly-etl": 1},
        "success": {"nightly-etl": 1},
        "unknown": {},
    }
    assert [run.family for run in found.failed] == ["nightly-etl", "load"]
    assert present(found.cost).usd == pytest.approx(0.75)
    assert not present(found.cost).is_least
    assert found.reports == 4


def test_a_night_with_a_run_on_spot_has_a_lower_bound_of_the_cost(
    forward: Forward, search_server: SearchServer
) -> None:
    evening_ns = night().start_ns + min(HOUR_NS, (time.time_ns() - night().start_ns) // 2)
    forward(event(run_at("a1", evening_ns)), Context())
    forward(event(run_at("a2", evening_ns, family="load")), Context())
    confirm(search_server, "a1", "a2")
    (hit,) = search(search_server, query={"term": {"task.id": "a2"}})["hits"]["hits"]
    path = f"{hit['_index']}/_update/{hit['_id'].replace('/', '%2F')}"
    change = {"task": {"capacity_provider": "FARGATE_SPOT"}}
    call(search_server, "POST", path, {"doc": change})
    search(search_server)
    runs = cluster_night().runs(night())
    assert present(runs.cost).is_least
    assert not present(runs.selected(["nightly-etl"]).cost).is_least


def test_the_history_has_the_oldest_run_first_and_what_resized_runs_cost(
    forward: Forward, search_server: SearchServer
) -> None:
    now_ns = time.time_ns()
    days = [20, 10, 2, 1]
    for day in days:
        began_ns = now_ns - day * 24 * HOUR_NS
        size = {"taskSize": {"vcpu": 0.5, "memoryMB": 1024}}
        forward(event(run_at(f"d{day}", began_ns, **size)), Context())
    old_ns = now_ns - 40 * 24 * HOUR_NS
    forward(event(run_at("old", old_ns)), Context())
    confirm(search_server, *(f"d{day}" for day in days), "old")
    for hit in search(search_server)["hits"]["hits"]:
        if hit["_source"]["task"]["id"] in {"d2", "d1"}:
            change = {"task": {"resized_from": "3/1024/2048"}}
            path = f"{hit['_index']}/_update/{hit['_id'].replace('/', '%2F')}"
            call(search_server, "POST", path, {"doc": change})
    search(search_server)
    history = cluster_night().history(["nightly-etl"])
    ends = [run.ended_ns for run in history.runs["nightly-etl"]]
    assert ends == sorted(ends)
    assert len(ends) == len(days)
    assert history.runs["nightly-etl"][0].peak_mb == 900.0
    (cost,) = history.resized
    assert cost.tag == "3/1024/2048"
    assert cost.size.vcpu == 0.5
    assert cost.usd == pytest.approx(0.5)


def test_a_due_time_is_missed_unless_its_task_came_late(
    forward: Forward, search_server: SearchServer
) -> None:
    assert forward is not None
    due_at = format_ms(night().start_ns + HOUR_NS)

    def noticed(name: str, kind: str) -> ScheduleNoticeLine:
        line = missed_notice()
        return replace(
            line,
            time=format_ms(time.time_ns()),
            notice=replace(line.notice, kind=kind, due_at=due_at, message=f"{name} is {kind}"),
            schedule=replace(line.schedule, name=name),
            family=name,
            region=REGION,
            account_id=ACCOUNT,
        )

    lines = [noticed("load", "missed"), noticed("etl", "missed"), noticed("etl", "late")]
    documents = [
        schedule_notice_document(line, encode_notice(line).decode(), ForwarderSettings())
        for line in lines
    ]
    cluster = handler._cluster(handler._settings())
    assert deliver(cluster, InvocationTime(Context()), documents).indexed == 3
    search(search_server, "task-notices-*")
    (missed,) = cluster_night().missed(night()).times
    assert missed.family == "load"
    assert missed.message == "load is missed"


def test_the_shards_of_an_index_without_a_node_are_counted(
    forward: Forward, search_server: SearchServer
) -> None:
    forward(event(run_at("a1", night().start_ns)), Context())
    assert cluster_night().runs(night()).completeness.is_whole
    index_without_a_node(search_server)
    completeness = cluster_night().runs(night()).completeness
    assert completeness.sentences == ("1 shard of the search cluster did not answer",)


def test_a_cluster_without_an_index_has_an_empty_night(
    forward: Forward, search_server: SearchServer
) -> None:
    assert forward is not None
    assert search_server.url
    assert cluster_night().runs(night()).families == ()
    assert cluster_night().missed(night()).times == ()
    assert cluster_night().history([]).runs == {}
