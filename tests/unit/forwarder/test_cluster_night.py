"""The night of the search cluster: tasks, not documents, and the same message as from the lines.

``tests/search`` asks real clusters.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import pytest

from profiler.core.timestamps import NS_PER_DAY, NS_PER_MS, parse_ns
from profiler.forwarder.cluster_night import ClusterNight
from profiler.forwarder.morning_digest import DigestPlace, summarize
from profiler.forwarder.night_period import NightPeriod, Remembered
from profiler.forwarder.night_runs import FamilyHistory, MissedTimes, NightRuns, runs_of_lines
from tests.batch_jobs import job_id
from tests.counting_search import CountingSearch
from tests.values import present

END = "2026-03-02T08:00:00Z"
END_NS = present(parse_ns(END))
LAST = Remembered(end_ns=END_NS - NS_PER_DAY, whole_ns=END_NS - NS_PER_DAY)
NIGHT = NightPeriod(last=LAST, end_ns=END_NS, zone=UTC)
AT = "2026-03-02T02:00:00Z"


def document(task: str, outcome: str = "success", **more: Any) -> dict[str, Any]:
    """The document of a confirmed run that ended at two; ``more`` are fields of its task."""
    statuses = {"oom": "failure", "user": "stopped"}
    fields = {
        "id": task,
        "family": "etl",
        "confirmed": True,
        "complete": True,
        "outcome": outcome,
        "status": statuses.get(outcome, outcome),
        "event_outcome": outcome,
        **more,
    }
    return {"@timestamp": AT, "event": {"end": AT}, "task": fields, "cost": {"usd": 1.0}}


def of_side(task: str, outcome: str) -> dict[str, Any]:
    """Of another container, of whose end the event has no word, and without a cost."""
    return {**document(task, outcome, event_outcome="unknown"), "cost": {}}


def found(
    *documents: Mapping[str, Any],
    period: NightPeriod = NIGHT,
    kind: type[CountingSearch] = CountingSearch,
) -> NightRuns:
    cluster = kind(*documents)
    reader = ClusterNight(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )
    runs = reader.runs(period)
    assert len(cluster.bodies) == 2
    return runs


def counted(runs: NightRuns) -> dict[str, dict[str, int]]:
    return {group: dict(families) for group, families in runs.counts.items()}


def test_three_tasks_with_two_measured_containers_are_three_runs() -> None:
    documents = []
    for task in ("1", "2", "3"):
        documents += [document(task), of_side(task, "success")]
    runs = found(*documents)
    assert counted(runs) == {"success": {"etl": 3}}
    assert runs.reports == 3
    assert runs.cost.value == 3


class Estimating(CountingSearch):
    """A cluster whose estimates of tasks are too high by one."""

    def _counted_one(self, found: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> Any:
        answer = super()._counted_one(found, asked)
        is_of_tasks = asked.get("cardinality", {}).get("field") == "task.id"
        is_high = is_of_tasks and answer["value"] > 0
        return {"value": answer["value"] + 1} if is_high else answer


def test_an_estimate_of_the_cluster_makes_no_run_that_has_no_document() -> None:
    """Elasticsearch 8 said 10,001 of 10,000 runs."""
    documents = [document(f"{one}") for one in range(3)]
    runs = found(*documents, document("failed", "failure"), kind=Estimating)
    assert counted(runs) == {"success": {"etl": 3}, "failure": {"etl": 1}}
    assert runs.others == {}
    assert runs.reports == 4


def test_the_end_of_the_batch_decides_whatever_the_others_did() -> None:
    runs = found(
        *(document("1"), of_side("1", "failure")),
        *(document("2", "failure"), of_side("2", "success")),
        *(document("3", "oom"), of_side("3", "success")),
        *(document("4", "user"), of_side("4", "failure")),
    )
    assert counted(runs) == {
        "out of memory": {"etl": 1},
        "failure": {"etl": 1},
        "stopped": {"etl": 1},
        "success": {"etl": 1},
    }


def test_the_worst_end_counts_where_no_event_decides() -> None:
    runs = found(of_side("1", "success"), of_side("1", "failure"), document("2"))
    assert counted(runs) == {"failure": {"etl": 1}, "success": {"etl": 1}}
    assert counted(found(document("1", "unknown"))) == {"unknown": {"etl": 1}}


def test_what_is_unconfirmed_runs_or_is_a_services_does_not_count() -> None:
    runs = found(
        document("1", confirmed=False),
        document("2", status="running"),
        document("3", started_by="ecs-svc/1234"),
        document("4", started_by="chronos-schedule/nightly"),
    )
    assert counted(runs) == {"success": {"etl": 1}}


@pytest.mark.parametrize("voucher", ["trusted-group", "container-id"])
def test_a_line_that_nothing_confirms_takes_no_run_of_ecs_from_the_message(voucher: str) -> None:
    """Its numbers do not count."""
    claimed = {"confirmed": False, "voucher": voucher, "voucher_stream": "ab" * 32}
    runs = found(
        document("1", "failure", **claimed),
        document("2", "failure"),
        document("made up", "failure", **claimed, event_outcome=None),
    )
    assert counted(runs) == {"failure": {"etl": 2}}
    assert runs.cost.value == 1


def test_a_task_that_the_last_message_counted_does_not_count_again() -> None:
    last = Remembered(end_ns=END_NS - NS_PER_DAY // 8, whole_ns=LAST.end_ns, tasks=("1",))
    period = NightPeriod(last=last, end_ns=END_NS, zone=UTC)
    runs = found(document("1"), document("late"), period=period)
    assert counted(runs) == {"success": {"etl": 1}}
    assert {task for task, _ in runs.remembered} == {"1", "late"}


def attempt(job: int, number: int, outcome: str = "success") -> dict[str, Any]:
    """An attempt of a job of AWS Batch."""
    source = document(f"{job}-{number}", outcome)
    return {**source, "batch": {"job_id": job_id(job), "attempt": number}}


def job_of(source: Mapping[str, Any]) -> dict[str, Any]:
    """The job as a line has it."""
    job = source.get("batch")
    return {} if job is None else {"jobId": job["job_id"], "attempt": job["attempt"]}


def test_a_job_whose_next_attempt_still_runs_is_in_the_message_of_its_end() -> None:
    """Its cost is in the message of each attempt."""
    first = attempt(1, 1, "oom")
    first["task"]["repeated"] = True
    side = {**of_side("1-1", "failure"), "batch": first["batch"]}
    runs = found(first, side, attempt(2, 1, "failure"))
    assert counted(runs) == {"failure": {"etl": 1}}
    assert runs.cost.value == 2
    assert counted(found(attempt(1, 1, "oom"))) == {"out of memory": {"etl": 1}}
    # A person ended the job while it waited for its second attempt.
    terminated = attempt(1, 1, "oom")
    terminated["task"] |= {"repeated": True, "last_attempt": True}
    assert counted(found(terminated)) == {"out of memory": {"etl": 1}}
    runs = found(first, side, attempt(1, 2))
    assert counted(runs) == {"success": {"etl": 1}}


def following(before: NightRuns, period: NightPeriod = NIGHT) -> NightPeriod:
    """The period of the next message, a day later."""
    last = period.to_remember(before.remembered)
    return NightPeriod(last=last, end_ns=period.end_ns + NS_PER_DAY, zone=UTC)


@pytest.mark.parametrize("hour", ["02", "07"])
def test_a_job_that_somebody_ends_while_it_waits_is_in_the_message_after_its_end(
    hour: str,
) -> None:
    """Before the message, it waited for its second attempt; its cost was in that one."""
    first = attempt(1, 1, "oom")
    ended = f"2026-03-02T{hour}:00:00Z"
    first |= {"@timestamp": ended, "event": {"end": ended, "ingested": ended}}
    first["task"]["repeated"] = True
    before = found(first)
    assert counted(before) == {}
    assert before.cost.value == 1
    last = {**first, "task": {**first["task"], "last_attempt": True}}
    last["event"] = {"end": ended, "ingested": "2026-03-02T09:00:00Z"}
    after = found(last, period=following(before))
    assert counted(after) == {"out of memory": {"etl": 1}}
    assert after.cost.value is None
    second = following(after, following(before))
    assert counted(found(last, period=second)) == {}


def test_the_next_attempt_after_the_message_counts_alone_and_costs_alone() -> None:
    first = attempt(1, 1, "oom")
    at_seven = "2026-03-02T07:00:00Z"
    first |= {"@timestamp": at_seven, "event": {"end": at_seven, "ingested": at_seven}}
    first["task"]["repeated"] = True
    before = found(first)
    next_one = attempt(1, 2)
    at_nine = "2026-03-02T09:00:00Z"
    next_one |= {"@timestamp": at_nine, "event": {"end": at_nine, "ingested": at_nine}}
    after = found(first, next_one, period=following(before))
    assert counted(after) == {"success": {"etl": 1}}
    assert after.cost.value == 1


class PartialSearch(CountingSearch):
    """Breaks off the search that looks for the last attempts of jobs."""

    def request(self, path: str, body: Any, timeout_seconds: float) -> Any:
        answer = super().request(path, body, timeout_seconds)
        return {**answer, "timed_out": True} if "jobs" in body["aggs"] else answer


def test_where_the_attempts_of_jobs_are_known_in_part_so_is_the_night() -> None:
    cluster = PartialSearch(attempt(1, 1, "oom"), attempt(1, 2))
    reader = ClusterNight(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )
    assert not reader.runs(NIGHT).completeness.is_whole


def test_jobs_count_and_not_their_attempts_but_all_cost() -> None:
    """The same from the cluster and from the lines."""
    documents = [
        *(attempt(1, 1, "oom"), attempt(1, 2, "oom"), attempt(1, 3)),
        *(attempt(2, 1, "failure"), attempt(2, 2, "failure")),
        attempt(3, 1, "oom"),
        document("no job"),
    ]
    expected = {"out of memory": {"etl": 1}, "failure": {"etl": 1}, "success": {"etl": 2}}
    for runs in (found(*documents), runs_of_lines(map(line, documents), NIGHT)):
        assert counted(runs) == expected
        assert runs.reports == 4
        assert runs.cost.value == 7


def line(source: Mapping[str, Any]) -> tuple[int, str]:
    """The ``task.ended`` line of a document's run."""
    task = source["task"]
    ended = {
        "text": "ended",
        "taskId": task["id"],
        "family": task["family"],
        "status": task["status"],
        "outcome": task["outcome"],
        "stopCategory": "exit",
        "exitCode": task.get("exit_code"),
        "finishedAt": source["event"]["end"],
        "metrics": {"billedDurationMs": 1},
        "cost": source["cost"],
        **({"batch": of_job} if (of_job := job_of(source)) else {}),
    }
    return present(parse_ns(AT)) // NS_PER_MS + 30_000, json.dumps(ended)


def test_both_ways_make_the_same_message() -> None:
    sources = [
        document("1", exit_code=0),
        document("2", "oom", exit_code=137),
        document("3", "failure", family="load", exit_code=3),
        document("4", "user", family="load"),
    ]
    of_cluster = found(*sources, of_side("1", "failure"))
    of_lines = runs_of_lines(map(line, sources), NIGHT)
    first, second = (
        summarize(NIGHT, runs, MissedTimes(), FamilyHistory(), DigestPlace())
        for runs in (of_cluster, of_lines)
    )
    assert first == second
    assert first.sentence == (
        "Since yesterday 08:00 UTC: 4 runs, 1 killed for memory (etl), 1 failed (load), "
        "1 stopped (load), 1 succeeded, $4.00."
    )
    assert set(of_cluster.remembered) == set(of_lines.remembered)
