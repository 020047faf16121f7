"""The night of the search cluster: tasks, not documents, and the same message as from the lines.

``tests/search`` asks real clusters.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import pytest

from profiler.core.timestamps import NS_PER_DAY, NS_PER_HOUR, NS_PER_MINUTE, NS_PER_MS, parse_ns
from profiler.forwarder.morning_digest import DigestPlace, summarize_night
from profiler.forwarder.night_period import NightPeriod, RememberedNight
from profiler.forwarder.night_runs import FamilyHistory, MissedTimes, NightRuns
from profiler.forwarder.night_searches import NightReader
from tests.batch_jobs import job_id
from tests.counting_search import CountingSearch
from tests.printed_lines import runs_of_lines
from tests.values import present

END = "2026-03-02T08:00:00Z"
END_NS = present(parse_ns(END))
LAST = RememberedNight(end_ns=END_NS - NS_PER_DAY, whole_ns=END_NS - NS_PER_DAY)
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
    requests: int = 2,
) -> NightRuns:
    cluster = kind(*documents)
    reader = NightReader(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )
    runs = reader.read_runs(period)
    assert len(cluster.bodies) == requests
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

    off_by = 1

    def _counted_one(self, found: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> Any:
        answer = super()._counted_one(found, asked)
        is_of_tasks = asked.get("cardinality", {}).get("field") == "task.id"
        is_wrong = is_of_tasks and answer["value"] > 0
        return {"value": answer["value"] + self.off_by} if is_wrong else answer


class Underestimating(Estimating):
    off_by = -1


def test_an_estimate_of_the_cluster_makes_no_run_that_has_no_document() -> None:
    """Elasticsearch 8 said 10,001 of 10,000 runs."""
    documents = [document(f"{one}") for one in range(3)]
    runs = found(*documents, document("failed", "failure"), kind=Estimating)
    assert counted(runs) == {"success": {"etl": 3}, "failure": {"etl": 1}}
    assert runs.others == {}
    assert runs.reports == 4


def test_the_runs_of_a_family_with_one_container_are_counted_and_not_estimated() -> None:
    """Of 3,300 runs, a cluster said 3,268."""
    documents = [
        {**document(f"{one}", outcome), "container": {"name": "batch"}}
        for one, outcome in enumerate(("success", "success", "failure", "oom", "user"))
    ]
    runs = found(*documents, kind=Underestimating)
    assert counted(runs) == {
        "out of memory": {"etl": 1},
        "failure": {"etl": 1},
        "stopped": {"etl": 1},
        "success": {"etl": 2},
    }
    assert runs.others == {}


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


def test_reports_without_an_event_are_counted_apart() -> None:
    """Not those of the last minutes, whose event may be on its way, nor those of a trusted group,
    nor what Batch alone has told.
    """
    no_event: dict[str, Any] = {"confirmed": None, "event_outcome": None}
    minute_ago = "2026-03-02T07:59:00Z"
    new = document("new", **no_event) | {"event": {"end": AT, "ingested": minute_ago}}
    of_job = document("job", **no_event) | {"event": {"end": AT, "dataset": "batch.job"}}
    late = document("late", **no_event) | {"event": {"end": "2026-02-20T08:00:00Z", "ingested": AT}}
    forged = document("forged", **{**no_event, "confirmed": False, "voucher": "monitor-stream"})
    trusted = document("trusted", **{**no_event, "voucher": "trusted-group"})
    runs = found(document("1"), new, of_job, late, of_side("late", "x") | late, forged, trusted)
    assert counted(runs) == {"success": {"etl": 1}}
    assert runs.unconfirmed == 2
    next_one = found(new, late, period=following(runs))
    assert next_one.unconfirmed == 1
    # Another container of a run that counts, such as one that `run` has started.
    side = {**document("1", **no_event), "container": {"name": "side"}}
    assert found(document("1"), side).unconfirmed == 0
    assert found(document("1"), side, document("forged", **no_event)).unconfirmed == 1
    assert found(document("1"), side, kind=Estimating).unconfirmed == 0


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
    at_ns = present(parse_ns(AT))
    minutes_ns = 10 * NS_PER_MINUTE
    last = RememberedNight(end_ns=at_ns + minutes_ns, whole_ns=at_ns - minutes_ns, tasks=("1",))
    period = NightPeriod(last=last, end_ns=END_NS, zone=UTC)
    runs = found(document("1"), document("late"), period=period)
    assert counted(runs) == {"success": {"etl": 1}}
    assert runs.remembered == ()


def test_what_a_message_of_an_earlier_version_counted_does_not_count_again() -> None:
    """It remembered the tasks that had ended in its last six hours, whenever they became known."""
    last = RememberedNight(
        end_ns=LAST.end_ns, whole_ns=LAST.end_ns - 6 * NS_PER_HOUR, tasks=("ended later",)
    )
    period = NightPeriod(last=last, end_ns=END_NS, zone=UTC)
    times = {
        # Half a minute after its end, which was before those six hours.
        "counted": ("2026-03-01T01:59:50Z", "2026-03-01T02:00:20Z"),
        "ended later": ("2026-03-01T07:49:00Z", "2026-03-01T07:50:00Z"),
        "unseen": ("2026-03-01T07:58:00Z", "2026-03-01T07:59:00Z"),
        "new": ("2026-03-01T07:59:00Z", "2026-03-01T08:01:00Z"),
    }
    documents = [
        document(task, family=task) | {"event": {"end": ended, "ingested": ingested}}
        for task, (ended, ingested) in times.items()
    ]
    assert set(found(*documents, period=period).family_names) == {"unseen", "new"}


class WrittenBetween(CountingSearch):
    """One document becomes visible after the first of the two searches."""

    between: Mapping[str, Any]
    place = "between"

    def request(self, path: str, body: Any, timeout_seconds: float) -> Any:
        answer = super().request(path, body, timeout_seconds)
        self.documents["task-reports-2026.03", self.place] = dict(self.between)
        return answer


@pytest.mark.parametrize("known_at", ["2026-03-02T07:59:58Z", "2026-03-02T07:41:00Z"])
def test_a_run_that_becomes_visible_between_the_searches_is_in_one_message(known_at: str) -> None:
    between = document("between", family="between", known_at=known_at)

    class Written(WrittenBetween):
        pass

    Written.between = between
    seen = document("seen", known_at="2026-03-02T07:59:50Z")
    runs = found(seen, kind=Written)
    assert counted(runs) == {"success": {"etl": 1}}
    assert runs.remembered == ("seen",)
    after = found(seen, between, period=following(runs))
    assert counted(after) == {"success": {"between": 1}}


def test_a_task_whose_other_container_was_counted_does_not_count_again() -> None:
    """A redriven event of yesterday's task writes its second document, or is a task's first one."""
    stopped = {"stopped_at": "2026-03-01T02:00:00Z"}
    times = {"known_at": "2026-03-02T06:00:00Z", **stopped}
    counted_before = document("1", known_at="2026-03-01T02:00:10Z", **stopped)
    documents = (
        counted_before,
        of_side("1", "success") | {"task": {**of_side("1", "success")["task"], **times}},
        document("late", "failure", **times),
        document("new", known_at=AT, stopped_at=AT),
    )
    runs = found(*documents, requests=3)
    assert counted(runs) == {"failure": {"etl": 1}, "success": {"etl": 1}}
    assert found(*documents[3:]).cost.value == 1


def test_a_waiting_job_that_somebody_ends_counts_though_its_other_container_was_known() -> None:
    first = attempt(1, 1, "oom")
    stopped = {"stopped_at": "2026-03-01T02:00:00Z", "known_at": "2026-03-01T02:00:10Z"}
    side = {**of_side("1-1", "failure"), "batch": first["batch"]}
    side["task"] |= {**stopped}
    first["task"] |= {**stopped, "known_at": AT, "repeated": True, "last_attempt": True}
    assert counted(found(first, side)) == {"out of memory": {"etl": 1}}


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
    last = period.next_remembered(before.remembered, until_ns=before.until_ns)
    return NightPeriod(last=last, end_ns=period.end_ns + NS_PER_DAY, zone=UTC)


@pytest.mark.parametrize("hour", ["02", "07"])
def test_a_job_that_somebody_ends_while_it_waits_is_in_the_message_after_its_end(
    hour: str,
) -> None:
    """Before the message, it waited for its second attempt; its cost was in that one."""
    first = attempt(1, 1, "oom")
    ended = f"2026-03-02T{hour}:00:00Z"
    first |= {"@timestamp": ended, "event": {"end": ended}}
    first["task"]["known_at"] = ended
    first["task"]["repeated"] = True
    before = found(first)
    assert counted(before) == {}
    assert before.cost.value == 1
    last = {**first, "task": {**first["task"], "last_attempt": True}}
    last["task"]["known_at"] = "2026-03-02T09:00:00Z"
    after = found(last, period=following(before))
    assert counted(after) == {"out of memory": {"etl": 1}}
    assert after.cost.value is None
    second = following(after, following(before))
    assert counted(found(last, period=second)) == {}


SPOKEN = {"allowed_attempts": 3}


def failed_at(clock: str, *, spoken: bool = False, number: int = 1) -> dict[str, Any]:
    """A failed attempt that became known then, of which Batch has ``spoken``."""
    source = attempt(1, number, "failure")
    source["task"]["known_at"] = f"2026-03-02T{clock}Z"
    source["batch"] |= SPOKEN if spoken else {}
    return source


def test_a_failed_attempt_of_the_last_minutes_waits_for_the_word_of_batch() -> None:
    """ECS's event came before the message, Batch's word that it repeats the attempt after it."""
    first = failed_at("07:59:55")
    before = found(first, attempt(2, 1, "failure"))
    assert counted(before) == {"failure": {"etl": 1}}
    assert before.remembered == ()
    # It was the last one.
    ended = failed_at("07:59:55", spoken=True)
    after = found(ended, period=following(before))
    assert counted(after) == {"failure": {"etl": 1}}
    assert after.cost.value == 1
    # There was another one.
    first["task"]["repeated"] = True
    second = attempt(1, 2)
    second["task"]["known_at"] = "2026-03-02T08:05:00Z"
    assert counted(found(first, second, period=following(before))) == {"success": {"etl": 1}}
    # Somebody ended the job days later.
    first["task"] |= {"last_attempt": True, "known_at": "2026-03-04T08:05:00Z"}
    third = following(before, following(before, following(before)))
    assert counted(found(first, period=third)) == {"failure": {"etl": 1}}


@pytest.mark.parametrize(
    ("clock", "of_first", "of_second"),
    [("07:59:55", {}, {"failure": {"etl": 1}}), ("07:50:00", {"failure": {"etl": 1}}, {})],
)
def test_the_word_of_batch_between_the_searches_changes_no_count(
    clock: str, of_first: dict[str, Any], of_second: dict[str, Any]
) -> None:
    """The message told the next one what it counts before the word came."""
    first = failed_at(clock)
    known = failed_at(clock, spoken=True)
    known["task"]["repeated"] = True

    class Spoken(WrittenBetween):
        place = "0"

    Spoken.between = known
    before = found(first, kind=Spoken)
    assert counted(before) == of_first
    known["task"] |= {"last_attempt": True, "known_at": "2026-03-02T09:00:00Z"}
    assert counted(found(known, period=following(before))) == of_second


@pytest.mark.parametrize("is_repeated", [False, True])
def test_an_attempt_with_a_second_container_waits_as_a_whole(*, is_repeated: bool) -> None:
    """The other container's document knows no word of Batch, and has an end of its own."""
    first = failed_at("07:59:55")
    first["task"]["repeated"] = is_repeated or None
    side = {**of_side("1-1", "success"), "batch": dict(first["batch"])}
    side["task"]["known_at"] = first["task"]["known_at"]
    before = found(first, side)
    assert counted(before) == {}
    assert before.remembered == ()
    first["task"] |= {"repeated": True, "last_attempt": True, "known_at": "2026-03-02T09:00:00Z"}
    assert counted(found(first, side, period=following(before))) == {"failure": {"etl": 1}}


@pytest.mark.parametrize(
    "source",
    [
        failed_at("07:59:55", spoken=True),
        failed_at("07:54:59"),
        attempt(1, 1) | {"event": {"ingested": "2026-03-02T07:59:55Z"}},
        document("1", "failure", known_at="2026-03-02T07:59:55Z"),
    ],
)
def test_no_other_run_waits(source: dict[str, Any]) -> None:
    """A last attempt, one of which Batch says nothing, a success, and a run without a job."""
    runs = found(source)
    assert sum(counts["etl"] for counts in runs.counts.values()) == 1
    assert runs.remembered == (source["task"]["id"],)
    assert counted(found(source, period=following(runs))) == {}


@pytest.mark.parametrize("field", ["known_at", "ingested"])
def test_a_repeated_attempt_of_the_last_minutes_costs_once(field: str) -> None:
    """Also in an index whose mapping does not know ``known_at``: nothing finds it there."""
    first = attempt(1, 1, "oom")
    ended = "2026-03-02T07:50:00Z"
    first["event"] = {"end": ended}
    first["event" if field == "ingested" else "task"][field] = ended
    first["task"]["repeated"] = True
    before = found(first)
    assert before.cost.value == 1
    assert before.remembered == ()
    assert found(first, period=following(before)).cost.value is None


def test_the_next_attempt_after_the_message_counts_alone_and_costs_alone() -> None:
    first = attempt(1, 1, "oom")
    at_seven = "2026-03-02T07:00:00Z"
    first |= {"@timestamp": at_seven, "event": {"end": at_seven}}
    first["task"]["known_at"] = at_seven
    first["task"]["repeated"] = True
    before = found(first)
    next_one = attempt(1, 2)
    at_nine = "2026-03-02T09:00:00Z"
    next_one |= {"@timestamp": at_nine, "event": {"end": at_nine}}
    next_one["task"]["known_at"] = at_nine
    after = found(first, next_one, period=following(before))
    assert counted(after) == {"success": {"etl": 1}}
    assert after.cost.value == 1


class PartialSearch(CountingSearch):
    """Breaks off the search that looks for the last attempts of jobs."""

    def request(self, path: str, body: Any, timeout_seconds: float) -> Any:
        answer = super().request(path, body, timeout_seconds)
        return {**answer, "timed_out": True} if "attempts" in body["aggs"] else answer


def test_where_the_attempts_of_jobs_are_known_in_part_so_is_the_night() -> None:
    cluster = PartialSearch(attempt(1, 1, "oom"), attempt(1, 2))
    reader = NightReader(
        cluster=cluster, prefix="task", account_id=None, region=None, timeout_seconds=5
    )
    assert not reader.read_runs(NIGHT).completeness.is_whole


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
        summarize_night(NIGHT, runs, MissedTimes(), FamilyHistory(), DigestPlace())
        for runs in (of_cluster, of_lines)
    )
    assert first == second
    assert first.sentence == (
        "Since yesterday 08:00 UTC: 4 runs, 1 killed for memory (etl), 1 failed (load), "
        "1 stopped (load), 1 succeeded, $4.00."
    )
    assert set(of_cluster.remembered) == set(of_lines.remembered)
