"""What the morning message reads, on real search clusters."""

import json
import time
from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec.structs import replace

import handler
from profiler.core.aws_clients import bounded_client
from profiler.core.timestamps import (
    NS_PER_HOUR,
    NS_PER_MINUTE,
    NS_PER_MS,
    NS_PER_SECOND,
    format_ms,
)
from profiler.forwarder import night_period, night_searches
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import InvocationTime
from profiler.forwarder.morning_digest import DigestPlace, summarize_night
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import FamilyHistory, MissedTimes
from profiler.forwarder.night_savings import BudgetedSearchCluster, NightSavingPlanner, ReadBudget
from profiler.forwarder.night_searches import NightReader
from profiler.forwarder.notice_documents import schedule_notice_document
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.family_identity import PROOF_FAMILY
from profiler.record.measured import AtLeast, Exactly
from profiler.record.notice_model import ScheduleNoticeLine, encode_notice_line
from profiler.record.run_outcome import OUT_OF_MEMORY
from profiler.record.units import format_usd
from tests.printed_lines import runs_of_lines
from tests.resize_account import Account
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
from tools.moto_server import fake_aws
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = [pytest.mark.search, TWO_SERVERS]

ACCOUNT, REGION = "123456789012", "eu-west-1"
RUN_NS = 600 * NS_PER_SECOND


def whole(since_ns: int) -> RememberedNight:
    return RememberedNight(end_ns=since_ns, whole_ns=since_ns)


def night() -> NightPeriod:
    """The 24 hours until now."""
    now_ns = time.time_ns()
    return NightPeriod(last=whole(now_ns - 24 * NS_PER_HOUR), end_ns=now_ns, zone=UTC)


def evening_ns() -> int:
    """The start of a run that ended two hours ago."""
    return time.time_ns() - 2 * NS_PER_HOUR - RUN_NS


def cluster_night(*globs: str, with_services: bool = False) -> NightReader:
    return NightReader(
        cluster=handler._search_cluster(handler._settings()),
        prefix="task",
        account_id=ACCOUNT,
        region=REGION,
        timeout_seconds=LIMIT_SECONDS,
        globs=globs,
        with_services=with_services,
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
            "finishedAt": format_ms(began_ns + RUN_NS),
            "metrics": metrics,
            "cost": {"usd": 0.25},
            **record,
        },
    )


def change(
    server: SearchServer, task: dict[str, Any], *task_ids: str, container: str = "batch"
) -> None:
    """Set fields of the task in the documents of these runs, as their events would."""
    ids = {"terms": {"task.id": task_ids}}
    _update(
        server, lambda _: task, {"bool": {"filter": [ids, {"term": {"container.name": container}}]}}
    )


def become_known(server: SearchServer, *tasks: str, at_ns: int | None = None) -> None:
    """Confirm the runs as ECS's first events would, which came at ``at_ns``, or with each end."""
    names = {"task.id": list(tasks)} if tasks else {}
    query = {"bool": {"filter": [{"terms": {field: of}} for field, of in names.items()]}}

    def confirmed(source: dict[str, Any]) -> dict[str, Any]:
        at = source["event"]["end"] if at_ns is None else format_ms(at_ns)
        return {"confirmed": True, "known_at": at}

    _update(server, confirmed, query)


def _update(
    server: SearchServer,
    task_of: Callable[[dict[str, Any]], dict[str, Any]],
    query: dict[str, Any],
) -> None:
    rows: list[object] = []
    for hit in search(server, query=query, size=1000)["hits"]["hits"]:
        task = task_of(hit["_source"])
        rows += [{"update": {"_index": hit["_index"], "_id": hit["_id"]}}, {"doc": {"task": task}}]
    answer = requests.post(
        f"{server.url}/_bulk?refresh=true",
        data="".join(f"{json.dumps(row)}\n" for row in rows),
        headers={"Content-Type": "application/x-ndjson"},
        timeout=LIMIT_SECONDS,
    )
    assert answer.ok, answer.text
    assert rows
    assert not answer.json()["errors"]


def by_outcome(found: Any) -> dict[str, dict[str, int]]:
    return {outcome: dict(families) for outcome, families in found.counts.items()}


KILLED = {"status": "failure", "exitCode": 137, "likelyOutOfMemory": True}
FAILED = {"status": "failure", "exitCode": 3}


def test_the_runs_of_the_night_are_counted_by_outcome_and_family(
    forward: Forward, search_server: SearchServer
) -> None:
    at = evening_ns()
    runs = {
        "a1": run_at("a1", at),
        "a2": run_at("a2", at, **KILLED),
        "a3": run_at("a3", at, family="load", **FAILED),
        "a4": run_at("a4", at, family=PROOF_FAMILY, **FAILED),
        "a5": run_at("a5", at - 24 * NS_PER_HOUR),
        "a6": run_at("a6", at, region="us-east-1"),
        "a7": run_at("a7", at, status="stopped", cost=None),
        "a8": run_at("a8", at + 3 * NS_PER_HOUR),
    }
    for text in runs.values():
        forward(event(text), Context())
    become_known(search_server, *runs)
    forward(event(run_at("forged", at, family="payroll")), Context())
    search(search_server)
    found = cluster_night().read_runs(night())
    assert by_outcome(found) == {
        OUT_OF_MEMORY: {"nightly-etl": 1},
        "failure": {"load": 1},
        "stopped": {"nightly-etl": 1},
        "success": {"nightly-etl": 1},
    }
    assert [run.family for run in found.failed] == ["nightly-etl", "load"]
    assert present(found.cost.value) == pytest.approx(0.75)
    assert isinstance(found.cost, Exactly)
    assert found.reports == 4
    assert found.others == {}
    assert found.other_families == 0
    assert found.remembered == ()
    # Its report arrived a moment ago.
    assert found.unconfirmed == 0
    later = replace(night(), end_ns=time.time_ns() + NS_PER_HOUR)
    assert cluster_night().read_runs(later).unconfirmed == 0, "of a trusted log group"
    change(search_server, {"voucher": "container-id"}, "forged")
    assert cluster_night().read_runs(later).unconfirmed == 1


def test_a_task_of_several_containers_is_one_run_with_the_end_of_its_batch(
    forward: Forward, search_server: SearchServer
) -> None:
    at = evening_ns()
    side = {"container": {"name": "side"}, "cost": None}
    for task in ("t1", "t2", "t3", "t4"):
        forward(event(run_at(task, at, **(FAILED if task == "t2" else {}))), Context())
        sides = FAILED if task in {"t1", "t3"} else {}
        forward(event(run_at(task, at, **side, **sides)), Context())
    become_known(search_server)
    change(search_server, {"event_outcome": "success", "outcome": "success"}, "t1", "t4")
    change(search_server, {"event_outcome": "failure", "outcome": "failure"}, "t2")
    others = {"event_outcome": "unknown"}
    change(search_server, others, "t1", "t2", "t4", container="side")
    found = cluster_night().read_runs(night())
    # No event has told of the batch's end in t3, so its worst end counts.
    assert by_outcome(found) == {"failure": {"nightly-etl": 2}, "success": {"nightly-etl": 2}}
    assert found.reports == 4
    assert present(found.cost.value) == pytest.approx(1.0)


def test_a_run_of_any_age_is_in_the_message_after_its_first_event(
    forward: Forward, search_server: SearchServer
) -> None:
    """Such as after a redrive of a week's events."""
    now_ns = time.time_ns()
    runs = {"late": 30 * NS_PER_HOUR, "counted": 30 * NS_PER_HOUR, "old": 9 * 24 * NS_PER_HOUR}
    for task, ago_ns in runs.items():
        forward(event(run_at(task, now_ns - ago_ns)), Context())
    become_known(search_server, "late", "old", at_ns=now_ns - 10 * NS_PER_MINUTE)
    become_known(search_server, "counted", at_ns=now_ns - 12 * NS_PER_HOUR - NS_PER_SECOND)
    last = RememberedNight(
        end_ns=now_ns - 12 * NS_PER_HOUR,
        whole_ns=now_ns - 12 * NS_PER_HOUR - 20 * NS_PER_MINUTE,
        tasks=("counted",),
    )
    period = NightPeriod(last=last, end_ns=now_ns, zone=UTC)
    found = cluster_night().read_runs(period)
    assert by_outcome(found) == {"success": {"nightly-etl": 2}}
    assert set(found.remembered) == {"late", "old"}
    again = NightPeriod(
        last=period.next_remembered(found.remembered, until_ns=found.until_ns),
        end_ns=period.end_ns + NS_PER_HOUR,
        zone=UTC,
    )
    assert by_outcome(cluster_night().read_runs(again)) == {}
    first = NightPeriod(last=whole(last.end_ns), end_ns=period.end_ns, zone=UTC)
    assert by_outcome(cluster_night().read_runs(first)) == {"success": {"nightly-etl": 2}}


def test_of_more_runs_than_can_be_remembered_each_is_in_one_message(
    forward: Forward, search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that becomes known between the end of a message and its search, too."""
    monkeypatch.setattr(night_period, "MAX_REMEMBERED", 3)
    monkeypatch.setattr(night_searches, "MAX_REMEMBERED", 3)
    now_ns = time.time_ns() - NS_PER_HOUR
    ages = {"a": 60, "b": 21, "c": 15, "d": 10, "e": 5, "f": 1, "g": -1}
    forward(event(*(run_at(task, evening_ns(), family=task) for task in ages)), Context())
    for task, minutes in ages.items():
        become_known(search_server, task, at_ns=now_ns - minutes * NS_PER_MINUTE)
    last = whole(now_ns - 24 * NS_PER_HOUR)
    told = []
    for hours in range(3):
        period = NightPeriod(last=last, end_ns=now_ns + hours * NS_PER_HOUR, zone=UTC)
        found = cluster_night().read_runs(period)
        told.append(sorted(found.family_names))
        last = period.next_remembered(found.remembered, until_ns=found.until_ns)
    assert told == [["a", "b"], ["c", "d", "e", "f", "g"], []]


def test_documents_from_before_the_field_are_in_the_message_of_their_arrival(
    forward: Forward, search_server: SearchServer
) -> None:
    """Or of their end, without one; an index that does not know the field has it unsearchable."""
    at = evening_ns()
    old = run_at("old", at - 24 * NS_PER_HOUR, family="load")
    forward(event(run_at("ended", at), old), Context())
    _update(search_server, lambda _: {"confirmed": True}, {"match_all": {}})
    for hit in search(search_server)["hits"]["hits"]:
        path = f"{hit['_index']}/_update/{hit['_id'].replace('/', '%2F')}"
        ingested = None if hit["_id"].startswith("ended") else format_ms(at)
        call(search_server, "POST", path, {"doc": {"event": {"ingested": ingested}}})
    search(search_server)
    assert set(cluster_night().read_runs(night()).family_names) == {"nightly-etl", "load"}


def many(count: int, at: int, **record: Any) -> list[str]:
    return [
        run_at(f"m{one}", at, family=f"family-{one}", cost={"usd": 1}, **record)
        for one in range(count)
    ]


def test_no_family_is_dropped_and_globs_select_before_any_cut(
    forward: Forward, search_server: SearchServer
) -> None:
    at = evening_ns()
    billing = [
        run_at(f"b{one}", at - 4 * NS_PER_HOUR, family=f"billing-{one}", cost={"usd": 1}, **ended)
        for one, ended in enumerate(({}, {}, FAILED))
    ]
    forward(event(*many(260, at), *billing), Context())
    become_known(search_server)
    period = night()
    found = cluster_night().read_runs(period)
    summary = summarize_night(period, found, MissedTimes(), FamilyHistory(), DigestPlace())
    assert summary.sentence.endswith("UTC: 263 runs, 1 failed (billing-2), 262 succeeded, $263.00.")
    assert summary.lines[1].text == (
        "63 more families are counted above, and not compared with earlier runs"
    )
    assert len(found.family_names) == 200
    for globs in (("billing-*",), ("billing-?",), ("billing-[!x]", "none"), ("bill[h-j]ng-*",)):
        selected = cluster_night(*globs).read_runs(period)
        assert by_outcome(selected) == {
            "failure": {"billing-2": 1},
            "success": {"billing-0": 1, "billing-1": 1},
        }
    assert cluster_night("BILLING-*", "billing.*").read_runs(period).family_names == ()


def test_the_runs_of_a_family_with_one_container_are_no_estimate(
    forward: Forward, search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is far off with so little memory for it."""
    monkeypatch.setattr(night_searches, "_EXACT_TASKS_OF_FAMILY", 1)
    at = evening_ns()
    failed = [run_at(f"f{one}", at, **FAILED) for one in range(47)]
    forward(event(*failed, *(run_at(f"s{one}", at) for one in range(153))), Context())
    become_known(search_server)
    found = cluster_night().read_runs(night())
    assert by_outcome(found) == {"failure": {"nightly-etl": 47}, "success": {"nightly-etl": 153}}
    assert found.reports == 200
    assert found.others == {}


def test_tasks_of_services_count_where_they_are_announced(
    forward: Forward, search_server: SearchServer
) -> None:
    at = evening_ns()
    forward(event(run_at("a1", at)), Context())
    forward(event(run_at("w1", at, family="web", status="stopped")), Context())
    become_known(search_server)
    change(search_server, {"started_by": "ecs-svc/1234567890"}, "w1")
    assert cluster_night().read_runs(night()).family_names == ("nightly-etl",)
    assert set(cluster_night(with_services=True).read_runs(night()).family_names) == {
        "nightly-etl",
        "web",
    }


def test_a_run_that_became_known_late_is_in_the_next_night_alone(
    forward: Forward, search_server: SearchServer
) -> None:
    now_ns = time.time_ns()
    before_ns = now_ns - 12 * NS_PER_HOUR  # the last message
    at = before_ns - NS_PER_HOUR - RUN_NS
    forward(event(run_at("known", at)), Context())
    become_known(search_server)
    first = NightPeriod(last=whole(before_ns - 24 * NS_PER_HOUR), end_ns=before_ns, zone=UTC)
    found = cluster_night().read_runs(first)
    assert by_outcome(found) == {"success": {"nightly-etl": 1}}
    forward(
        event(run_at("late", at, family="load"), run_at("new", now_ns - NS_PER_HOUR)), Context()
    )
    become_known(search_server, "new")
    become_known(search_server, "late", at_ns=before_ns + NS_PER_HOUR)
    second = NightPeriod(last=first.next_remembered(found.remembered), end_ns=now_ns, zone=UTC)
    assert by_outcome(cluster_night().read_runs(second)) == {
        "success": {"nightly-etl": 1, "load": 1}
    }
    # A redriven event tells of another container of the run that the first message has.
    forward(event(run_at("known", at, container={"name": "side"})), Context())
    told = {"confirmed": True, "known_at": format_ms(before_ns + NS_PER_HOUR)}
    stopped = {"stopped_at": format_ms(at + RUN_NS)}
    change(search_server, {**told, **stopped}, "known", container="side")
    change(search_server, stopped, "late")
    assert by_outcome(cluster_night().read_runs(second)) == {
        "success": {"nightly-etl": 1, "load": 1}
    }


def ended_line(text: str, outcome: str, **more: Any) -> tuple[int, str]:
    """The ``task.ended`` line of the run of a report."""
    record = json.loads(text)["record"]
    ended = {
        "text": "ended",
        "taskId": record["taskId"],
        "family": record["family"],
        "container": "batch",
        "status": record["status"],
        "stopCategory": "exit",
        "outcome": outcome,
        "exitCode": record.get("exitCode"),
        "finishedAt": record["finishedAt"],
        "metrics": {"durationMs": 600_000, "billedDurationMs": 600_000},
        "cost": record["cost"],
        **more,
    }
    written_ms = (evening_ns() + RUN_NS) // NS_PER_MS + 60_000
    return written_ms, json.dumps(ended)


def test_both_ways_make_the_same_message(forward: Forward, search_server: SearchServer) -> None:
    at = evening_ns()
    runs: Sequence[tuple[str, str, dict[str, Any]]] = [
        ("a1", "success", {}),
        ("a2", "oom", KILLED),
        ("a3", "failure", {"family": "load", **FAILED}),
        ("a4", "user", {"family": "load", "status": "stopped"}),
        ("w1", "success", {"family": "web"}),
    ]
    lines = []
    for task, outcome, record in runs:
        text = run_at(task, at, **{"exitCode": 0, **record})
        forward(event(text), Context())
        lines.append(ended_line(text, outcome, service=task == "w1"))
    become_known(search_server)
    for task, outcome, _ in runs:
        change(search_server, {"event_outcome": outcome, "outcome": outcome}, task)
    change(search_server, {"started_by": "ecs-svc/1"}, "w1")
    period = night()
    of_cluster = cluster_night().read_runs(period)
    of_lines = runs_of_lines(lines, period, lambda run: not run.service)
    place = DigestPlace()
    first, second = (
        summarize_night(period, found, MissedTimes(), FamilyHistory(), place)
        for found in (of_cluster, of_lines)
    )
    assert first.sentence == second.sentence
    assert first.sentence.endswith(
        "UTC: 4 runs, 1 killed for memory (nightly-etl), 1 failed (load), 1 stopped (load), "
        "1 succeeded, $1.00."
    )
    assert [line.text for line in first.lines] == [line.text for line in second.lines]
    assert set(of_cluster.remembered) == set(of_lines.remembered) == set()


def test_a_job_that_has_succeeded_since_its_message_is_corrected(
    forward: Forward, search_server: SearchServer
) -> None:
    """Not one that failed again, or that no message has told, or whose success was told."""
    at = evening_ns()
    attempts: Sequence[tuple[str, str, dict[str, Any]]] = [
        ("b1", "job-1", {}),
        ("b2", "job-2", FAILED),
        ("b3", "job-3", {}),
        ("b4", "job-4", {}),
        ("b5", "job-5", {"family": "load"}),
    ]
    for task, job, record in attempts:
        batch = {"jobId": job, "attempt": 2}
        forward(event(run_at(task, at, **{"exitCode": 0, "batch": batch, **record})), Context())
    become_known(search_server)
    since_ns = night().start_ns
    last = RememberedNight(
        end_ns=since_ns,
        whole_ns=since_ns,
        tasks=("b4",),
        jobs=("job-1", "job-2", "job-4", "job-5"),
    )
    found = cluster_night().read_runs(NightPeriod(last=last, end_ns=time.time_ns(), zone=UTC))
    assert found.corrected == {"nightly-etl": 1, "load": 1}
    assert by_outcome(found) == {"success": {"nightly-etl": 1}}, "the job of b3 alone"
    first = NightPeriod(last=whole(since_ns), end_ns=time.time_ns(), zone=UTC)
    assert cluster_night().read_runs(first).corrected == {}


def test_a_night_with_a_run_on_spot_has_a_lower_bound_of_the_cost(
    forward: Forward, search_server: SearchServer
) -> None:
    at = evening_ns()
    forward(event(run_at("a1", at)), Context())
    forward(event(run_at("a2", at, family="load")), Context())
    become_known(search_server)
    change(search_server, {"capacity_provider": "FARGATE_SPOT"}, "a2")
    assert isinstance(cluster_night().read_runs(night()).cost, AtLeast)
    assert isinstance(cluster_night("nightly-etl").read_runs(night()).cost, Exactly)


def test_the_history_has_the_oldest_run_first_and_what_resized_runs_cost(
    forward: Forward, search_server: SearchServer
) -> None:
    now_ns = time.time_ns()
    days = [20, 10, 2, 1]
    for day in days:
        began_ns = now_ns - day * 24 * NS_PER_HOUR
        record: dict[str, Any] = {"taskSize": {"vcpu": 0.5, "memoryMB": 1024}}
        if day == 1:  # of the newest schema
            files = {"memoryMappedFileMB": {"avg": 0, "max": 0}}
            known = {"durationMs": 600_000, "maxMemoryUsedMB": 900.0, "memorySizeMB": 1000}
            record["metrics"] = known | files
        forward(event(run_at(f"d{day}", began_ns, **record)), Context())
    old_ns = now_ns - 100 * 24 * NS_PER_HOUR
    forward(event(run_at("old", old_ns)), Context())
    confirm(search_server, *(f"d{day}" for day in days), "old")
    for hit in search(search_server)["hits"]["hits"]:
        if hit["_source"]["task"]["id"] in {"d2", "d1"}:
            change = {"task": {"resized_from": "3/1024/2048"}}
            path = f"{hit['_index']}/_update/{hit['_id'].replace('/', '%2F')}"
            call(search_server, "POST", path, {"doc": change})
    search(search_server)
    history = cluster_night().read_history(["nightly-etl"])
    ends = [run.ended_ns for run in history.runs["nightly-etl"]]
    assert ends == sorted(ends)
    assert len(ends) == len(days)
    assert history.runs["nightly-etl"][0].peak_mb == 900.0
    assert [run.counts_files for run in history.runs["nightly-etl"]] == [True, True, True, False]
    (cost,) = history.resized
    assert cost.tag == "3/1024/2048"
    assert cost.size.vcpu == 0.5
    assert cost.usd == pytest.approx(0.5)


def noticed(name: str, kind: str, due_ns: int) -> ScheduleNoticeLine:
    line = missed_notice()
    notice = replace(line.notice, kind=kind, due_at=format_ms(due_ns), message=f"{name} is {kind}")
    return replace(
        line,
        time=format_ms(time.time_ns() - NS_PER_SECOND),
        notice=notice,
        schedule=replace(line.schedule, name=name),
        family=name,
        region=REGION,
        account_id=ACCOUNT,
    )


def index_notices(server: SearchServer, *lines: ScheduleNoticeLine) -> None:
    documents = [
        schedule_notice_document(line, encode_notice_line(line).decode(), ForwarderSettings())
        for line in lines
    ]
    cluster = handler._search_cluster(handler._settings())
    assert deliver_documents(cluster, InvocationTime(Context()), documents).indexed == len(lines)
    search(server, "task-notices-*")


def test_a_due_time_is_missed_unless_its_task_came_late(
    forward: Forward, search_server: SearchServer
) -> None:
    assert forward is not None
    due_ns = time.time_ns() - 30 * NS_PER_HOUR  # it became known since
    index_notices(
        search_server,
        noticed("load", "missed", due_ns),
        noticed("etl", "missed", due_ns),
        noticed("etl", "late", due_ns),
    )
    found = cluster_night().read_missed_times(night())
    assert [(one.family, one.message) for one in found.times] == [("load", "load is missed")]
    assert cluster_night("etl").read_missed_times(night()).times == ()
    next_night = replace(
        night(), last=replace(whole(time.time_ns() - NS_PER_HOUR), due_times=found.remembered)
    )
    assert cluster_night().read_missed_times(next_night).times == ()


def test_of_a_rule_with_several_targets_each_that_was_missed_is_told(
    forward: Forward, search_server: SearchServer
) -> None:
    """A family is found by its own name, and one that came late does not speak for the others."""
    assert forward is not None
    due_ns = time.time_ns() - 30 * NS_PER_HOUR
    index_notices(
        search_server,
        replace(noticed("rule", "missed", due_ns), family="etl, load"),
        replace(noticed("rule", "late", due_ns), family="etl"),
        replace(noticed("machine", "missed", due_ns), family="a, b"),
        replace(noticed("machine", "late", due_ns), family="a, b"),
    )
    found = [(one.family, one.message) for one in cluster_night().read_missed_times(night()).times]
    assert found == [("etl, load", "rule is missed")]
    for name, times in (("load", 1), ("etl", 0), ("other", 0)):
        assert len(cluster_night(name).read_missed_times(night()).times) == times


def test_of_more_notices_than_can_be_read_each_is_in_one_message(
    forward: Forward, search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forward is not None
    monkeypatch.setattr(night_searches, "_MAX_MISSED", 3)
    period = night()
    due_ns = time.time_ns() - NS_PER_HOUR
    names = [f"job-{one}" for one in range(5)]
    index_notices(search_server, *(noticed(name, "missed", due_ns) for name in names))
    late_ns = period.end_ns + NS_PER_HOUR
    told = []
    for end_ns in (period.end_ns, late_ns, late_ns + NS_PER_HOUR):
        period = replace(period, end_ns=end_ns)
        found = cluster_night().read_missed_times(period)
        told.append(len(found.times) + found.others)
        last = period.next_remembered((), found.remembered, due_until_ns=found.until_ns)
        period = replace(period, last=last)
    assert told == [0, 5, 0]


def test_each_of_many_missed_due_times_is_counted(
    forward: Forward, search_server: SearchServer
) -> None:
    assert forward is not None
    due_ns = time.time_ns() - NS_PER_HOUR
    lines = [noticed(f"job-{one}", "missed", due_ns) for one in range(120)]
    index_notices(search_server, *lines)
    found = cluster_night().read_missed_times(night())
    assert len(found.times) + found.others == 120


def test_the_shards_of_an_index_without_a_node_are_counted(
    forward: Forward, search_server: SearchServer
) -> None:
    forward(event(run_at("a1", evening_ns())), Context())
    assert cluster_night().read_runs(night()).completeness.is_whole
    index_without_a_node(search_server)
    completeness = cluster_night().read_runs(night()).completeness
    assert completeness.sentences == ("1 shard of the search cluster did not answer",)


def test_a_closed_index_of_the_night_is_said(forward: Forward, search_server: SearchServer) -> None:
    forward(event(run_at("a1", evening_ns())), Context())
    (index,) = call(search_server, "GET", "task-reports-*")
    call(search_server, "POST", f"{index}/_close")
    completeness = cluster_night().read_runs(night()).completeness
    assert completeness.sentences == (f"{index} is closed",)
    call(search_server, "PUT", "task-reports-2019.01")
    call(search_server, "POST", "task-reports-2019.01/_close")
    call(search_server, "POST", f"{index}/_open?wait_for_active_shards=1")
    assert cluster_night().read_runs(night()).completeness.is_whole


def test_a_cluster_without_an_index_has_an_empty_night(
    forward: Forward, search_server: SearchServer
) -> None:
    assert forward is not None
    assert search_server.url
    assert cluster_night().read_runs(night()).family_names == ()
    assert cluster_night().read_missed_times(night()).times == ()
    assert cluster_night().read_history([]).runs == {}


FAMILIES = tuple(f"job-{number}" for number in range(5))


def test_the_saving_is_what_the_command_says_of_the_same_documents(
    forward: Forward, search_server: SearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last family's newest run is an unusual one, whose own document advises a smaller size."""
    with fake_aws() as aws:
        account = Account(aws, tmp_path)
        six_hours = {"duration_ms": 21_590_000.0, "billed_duration_ms": 21_600_000.0}
        for family in FAMILIES:
            account.family(family)
            account.add_runs(family, 39, metrics=six_hours)
            peak_mb = 40.0 if family == FAMILIES[-1] else 300.0
            account.add_runs(family, 1, metrics={**six_hours, "max_memory_used_mb": peak_mb})
        account.write_runs()
        lines = account.file.read_text().splitlines()
        unusual = json.loads(lines[-1])
        small = {"vcpu": 0.25, "memoryMB": 512, "savingPercent": 90.0}
        unusual["record"]["recommendation"] = small
        lines[-1] = json.dumps(unusual, separators=(",", ":"))
        for family in FAMILIES:
            of_family = [line for line in lines if f'"family":"{family}"' in line]
            assert len(of_family) == 40
            assert forward(event(*of_family), Context())["indexed"] == 40
        advised = search(search_server, query={"exists": {"field": "recommendation.memory_mb"}})
        assert advised["hits"]["total"]["value"] == 1
        cluster = handler._search_cluster(handler._settings())
        become_known(search_server)
        search(search_server)  # refreshes
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)
        budget = ReadBudget(lambda: True)
        sizes = NightSavingPlanner(
            cluster=BudgetedSearchCluster(
                cluster=cluster, budget=budget, timeout_seconds=LIMIT_SECONDS
            ),
            prefix="task",
            open_client=budget.clients_with_counted_calls(bounded_client),
            on_problem=lambda _sentence: None,
            now_ns=time.time_ns(),
        )
        saving = sizes.plan_saving(FAMILIES)
        words = ("taskdef", "resize", *FAMILIES, "--from", search_server.url, "--json")
        done = account.command(*words)
    assert done.returncode == 0, done.stderr
    total = json.loads(done.stdout.splitlines()[-1])
    assert saving.problem is None
    assert saving.families == FAMILIES
    assert format_usd(saving.usd_per_month) == format_usd(total["savingUsdPerMonth"])
    assert saving.usd_per_month > 10
    assert budget.searches <= 25
