"""The evidence of families from the runs of a source."""

import json
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_DAY
from profiler.record.family_identity import FamilyKey, family_key
from profiler.record.family_statistics import UsualDuration
from profiler.record.record_model import Cost, TaskSize, encode
from profiler.record.stop_causes import EventEnd
from profiler.runs.past_runs.family_evidence import (
    FamilyCache,
    FoundFamilies,
    earlier_successes,
    evidence_of_family,
    evidence_of_past_runs,
    last_success,
    read_families,
    usual_since_ns,
)
from profiler.runs.past_runs.past_run import PastRun, TaskEvent
from profiler.runs.past_runs.run_source import RunFilter, filter_of
from profiler.runs.past_runs.search_runs import IndexedRuns
from profiler.search_setup.cluster_requests import Method, ServerResponse
from tests.cases import each_case
from tests.run_sources import ListedRuns
from tests.runs import checkpoint, report
from tests.values import present

NIGHTLY, OTHER = FamilyKey("nightly", None, "us-east-1"), FamilyKey("other", None, "us-east-1")


def past(number: int, **more: Any) -> PastRun:
    return PastRun(report=report(number, **more))


def test_each_family_has_the_evidence_of_its_newest_runs() -> None:
    listed = ListedRuns(
        [past(n, peak_mb=100 + n) for n in range(9)]
        + [past(20, family="weekly", peak_mb=None, p95=None)]
    )
    found = read_families(listed, RunFilter(), 3).families
    peaks = {
        family.name: evidence and evidence.needs.peaks_mb.values
        for family, evidence in found.items()
    }
    assert peaks == {"nightly": (106, 107, 108), "weekly": None}
    assert listed.read == 10


def last_success_of(run: PastRun, runs: Sequence[PastRun]) -> PastRun | None:
    listed = ListedRuns(runs)
    return last_success(run, earlier_successes(run, listed), listed)


def test_the_last_success_is_one_of_the_earlier_ones_which_are_read_once() -> None:
    """A run in a cluster without a success is compared with another cluster's."""
    listed = ListedRuns([past(n, task_id=str(n), cluster="other") for n in range(9)])
    failed = past(9, task_id="failed", status="failure", cluster="jobs")
    successes = earlier_successes(failed, listed)
    assert listed.read == len(successes) == 9
    assert last_success(failed, successes, listed) is successes[0]
    assert listed.read == 9


def test_a_success_in_the_cluster_is_the_last_one_behind_many_in_another() -> None:
    rare = past(1, task_id="rare", cluster="jobs")
    runs = [rare, *(past(n, task_id=str(n), cluster="tests") for n in range(2, 70))]
    failed = past(99, task_id="failed", status="failure", cluster="jobs")
    assert last_success_of(failed, runs) is rare
    elsewhere = past(99, task_id="failed", status="failure", cluster="new")
    assert last_success_of(elsewhere, runs) is runs[-1]


def test_the_last_success_is_of_the_same_account_and_region() -> None:
    """The last success is of the same account and region and if possible of the same cluster."""
    here = {"account_id": "1", "region": "eu-west-1", "cluster": "jobs"}
    failed = past(9, task_id="failed", status="failure", **here)
    runs = [
        past(1, task_id="in cluster", **here),
        past(2, task_id="other cluster", **{**here, "cluster": "test"}),
        past(3, task_id="other account", **{**here, "account_id": "2"}),
        past(4, task_id="other Region", **{**here, "region": "us-east-1"}),
        past(5, task_id="unknown account", **{**here, "account_id": None}),
    ]
    found = []
    while (success := last_success_of(failed, runs)) is not None:
        found.append(success.report.record.task_id)
        runs = [run for run in runs if run is not success]
    assert found == ["in cluster", "other cluster"]


@pytest.mark.parametrize(("last", "read"), [(3, 4), (9, 9), (50, 9)])
def test_reading_stops_when_the_only_family_is_complete(last: int, read: int) -> None:
    listed = ListedRuns(past(n) for n in range(9))
    only = filter_of(FamilyKey("nightly", None, "us-east-1"))
    (evidence,) = read_families(listed, only, last).families.values()
    assert present(evidence).outcomes.runs == min(last, 9)
    assert listed.read == read


@pytest.mark.parametrize("status", ["running", "failure", "pausing"])
def test_a_run_without_a_report_and_an_event_is_left_out_with_a_note(status: str) -> None:
    """Whatever its status says: only ECS's event brings the end of such a run."""
    last = checkpoint(report(1))
    report_of_status = replace(last, record=replace(last.record, status=status))
    seen = PastRun(report=report_of_status, line=encode(report_of_status))
    unfinished = read_families(ListedRuns([past(0), seen]), RunFilter(), 50)
    assert [present(evidence).outcomes.runs for evidence in unfinished.families.values()] == [1]
    assert unfinished.notes == ("the list: skipped 1 run with checkpoints but no report.",)
    ended = replace(seen, event=TaskEvent(end=EventEnd(cause="oom", out_of_memory=True)))
    assert read_families(ListedRuns([past(0), ended]), RunFilter(), 50).notes == ()


def test_a_task_that_never_started_is_none_of_the_last_runs() -> None:
    """The search for the last runs leaves it out, and the page reads it: both have the same
    evidence.
    """
    runs = [PastRun(report=report(number), line=encode(report(number))) for number in range(3)]
    never = report(
        9, peak_mb=None, p95=None, size=(4, 8192), started_at=None, status="failure", exit_code=None
    )
    (with_it,) = evidence_of_past_runs([*runs, PastRun(report=never)])
    (without,) = evidence_of_past_runs(runs)
    assert with_it == without
    assert evidence_of_family(PastRun(report=never), ListedRuns(runs)) == without


def test_the_last_successes_of_each_family_count_and_a_family_is_read_once() -> None:
    runs = [report(n, metrics={"duration_ms": 1000 * n}) for n in range(60)]
    runs += [report(80 + n, status="failure", metrics={"duration_ms": 1}) for n in range(9)]
    runs += [report(1, family="other", metrics={"duration_ms": None})]
    source = ListedRuns(PastRun(report=one) for one in runs)
    opened = count()
    known = FamilyCache(lambda: source if next(opened) < 2 else None, 0)
    assert known.known_family(NIGHTLY).usual_duration() is None
    known.read_families([NIGHTLY, NIGHTLY])
    usual = UsualDuration(median_ms=49_500, p95_ms=58_050, runs=20)
    assert known.known_family(NIGHTLY).usual_duration() == usual
    assert present(known.known_family(NIGHTLY).highest_peak("batch")).runs == 50
    assert source.read == 50, "no more is read than needed"
    known.read_families([NIGHTLY, OTHER])
    assert known.known_family(OTHER).usual_duration() is None
    assert next(opened) == 2
    assert not known.unread_families([NIGHTLY, OTHER])


ACCOUNTS = st.sampled_from((None, "111122223333", "444455556666"))
REGIONS = st.sampled_from((None, "eu-west-1", "us-east-1"))


@given(st.lists(st.tuples(ACCOUNTS, REGIONS, st.integers(1, 9000)), max_size=30), st.randoms())
def test_each_familys_evidence_is_that_of_its_own_runs_in_any_order(
    places: list[tuple[str | None, str | None, int]], random: Random
) -> None:
    runs = [
        past(number, account_id=account, region=region, peak_mb=peak_mb)
        for number, (account, region, peak_mb) in enumerate(places)
    ]
    found = read_families(ListedRuns(runs), RunFilter(), 5).families
    shuffled = list(runs)
    random.shuffle(shuffled)
    assert read_families(ListedRuns(shuffled), RunFilter(), 5).families == found
    for family, evidence in found.items():
        own = [run for run in runs if family_key(run.report.record) == family]
        assert read_families(ListedRuns(own), filter_of(family), 5).families == {family: evidence}
    assert len(found) == len({place[:2] for place in places})


class PlayedCluster:
    """A cluster with some families, and unconfirmed runs. Each search for runs finds the
    documents.
    """

    unconfirmed = 0

    def __init__(self, *sources: Mapping[str, Any], families: int = 1) -> None:
        keys = [
            {"name": f"f{number}", "account": None, "region": None} for number in range(families)
        ]
        self.buckets: list[dict[str, Any]] = [
            {"key": key, "starts": {"buckets": [{"key": 1_000}]}} for key in keys
        ]
        self.hits = [{"_source": source} for source in sources]
        self.found_by_search: list[int] = []
        self.family_pages = 0
        self.asked_for: list[int] = []

    def request(self, method: Method, path: str, body: Any = None) -> ServerResponse:
        if body["track_total_hits"]:
            found_hits = {"hits": [], "total": {"value": self.unconfirmed}}
            return ServerResponse(status=200, body={"hits": found_hits})
        if "aggs" not in body:
            self.found_by_search.append(len(body["query"]["bool"]["filter"][0]["bool"]["should"]))
            return ServerResponse(status=200, body={"hits": {"hits": self.hits}})
        of_family = body["aggs"]["families"]["aggs"]
        self.asked_for.append(of_family["starts"]["terms"]["size"])
        composite = body["aggs"]["families"]["composite"]
        first = int(composite.get("after", {}).get("name", 0))
        page = self.buckets[first : first + composite["size"]]
        found = {"families": {"buckets": page, "after_key": {"name": str(first + len(page))}}}
        self.family_pages += 1
        return ServerResponse(status=200, body={"hits": {"hits": []}, "aggregations": found})


def document(text: str | None, **more: Any) -> dict[str, Any]:
    """The document of a run, whose record is ``text``."""
    event = {"start": "2026-11-20T03:00:00.000Z"}  # the search asks for it
    source = {
        "task": {"id": "a", "family": "nightly"},
        "cloud": {"region": "us-east-1"},
        "event": event,
        **more,
    }
    return source if text is None else {**source, "record": text}


def families_in(document: Mapping[str, Any]) -> FoundFamilies:
    return read_families(IndexedRuns(PlayedCluster(document), "task"), RunFilter(), 50)


def test_the_record_of_a_document_is_the_evidence_with_the_price_on_spot() -> None:
    text = encode(
        report(cost=Cost(usd=0.02, price_basis="us-east-1 FARGATE X86_64 2026-09 on-demand price"))
    ).decode()
    task = {"id": "a", "family": "nightly", "capacity_provider": "FARGATE_SPOT"}
    for record in (
        text,
        json.dumps(json.loads(text)["record"]),
    ):  # the whole line, or its record alone
        families = families_in(document(record, task=task))
        found = present(families.families[FamilyKey("nightly", None, "us-east-1")])
        assert found.outcomes.runs == 1
        assert found.latest.container.name == "batch"
        assert present(found.latest.cost).usd == 0.006
        assert families.notes == ()


FORGED: dict[str, Any] = {
    "family": "payroll",
    "revision": "1",
    "cluster": "vault",
    "account_id": "999988887777",
    "region": "eu-west-1",
    "started_at": "2026-01-01T00:00:00Z",
}


def only_run(source: Mapping[str, Any]) -> PastRun:
    (run,) = IndexedRuns(PlayedCluster(source), "task").last_runs(RunFilter(), 50)
    return run


def test_the_identity_and_the_times_of_a_run_are_those_of_its_document() -> None:
    """ECS's event has corrected them there; the record is still the report's line."""
    start = "2026-03-01T10:11:07.314Z"
    run = only_run(
        document(
            encode(report(**FORGED)).decode(),
            task={"id": "a", "family": "nightly", "revision": "5", "confirmed": True},
            orchestrator={"cluster": {"name": "jobs"}},
            cloud={"account": {"id": "111122223333"}, "region": "us-west-2"},
            event={"start": start},
        )
    )
    record = run.report.record
    assert record.family == "nightly"
    assert record.revision == "5"
    assert record.cluster == "jobs"
    assert record.account_id == "111122223333"
    assert record.region == "us-west-2"
    assert record.started_at == start


@each_case(
    ("confirmed", "expected"),
    [
        ({"confirmed": True}, True),
        ({"confirmed": False}, False),
        ({"confirmed": "true"}, False),
        ({}, False),
    ],
)
@each_case("text", [encode(report()).decode(), None], ids=["report", "event alone"])
def test_a_run_is_confirmed_if_its_document_says_so(
    text: str | None, confirmed: dict[str, Any], *, expected: bool
) -> None:
    task = {"id": "a", "family": "nightly", **confirmed}
    assert only_run(document(text, task=task)).is_confirmed is expected


def test_without_the_record_the_numbers_of_the_document_are_the_evidence() -> None:
    usage: dict[str, Any] = {"memory": {"used_mb": {"max": 400.5}, "size_mb": 2048}}
    usage |= {"cpu": {"size": 1, "used": {"p95": 0.3}}, "duration_ms": 60_000.0}
    task: dict[str, Any] = {"id": "a", "family": "nightly", "launch_type": "FARGATE"}
    task |= {"size": {"vcpu": 1, "memory_mb": 2048}}
    found = present(*families_in(document(None, usage=usage, task=task)).families.values())
    assert found.needs.required_memory_mb == 400.5
    assert found.needs.required_vcpu == 0.3
    assert found.latest.task_size == TaskSize(vcpu=1, memory_mb=2048)
    assert json.dumps(found.latest.metrics.duration_ms) == "60000", "as in the record of the run"

    # The index accepts a document with values of another type, and ignores them.
    usage = {**usage, "cpu": {"size": "many", "used": {"p95": {}}}, "duration_ms": "long"}
    task = {**task, "stop_code": 5, "status": ["success"], "out_of_memory": "perhaps"}
    found = present(*families_in(document(None, usage=usage, task=task)).families.values())
    assert found.needs.required_memory_mb == 400.5
    assert found.needs.required_vcpu is None
    found = present(*families_in(document(encode(report()).decode(), task=task)).families.values())
    assert found.latest.status == "success"
    assert found.latest.likely_out_of_memory is False


@pytest.mark.parametrize(
    "text",
    ["no JSON", '{"more": ' + "[" * 200_000, "\ud800"],
    ids=["no JSON", "too deep", "half a character"],
)
def test_a_record_that_cannot_be_read_is_no_measurement_and_a_note(text: str) -> None:
    families = families_in(document(text))
    assert list(families.families.values()) == [None]
    assert families.notes == (
        "the indices task-reports-*: 1 record could not be read, so numbers are missing.",
    )


@pytest.mark.parametrize(
    ("families", "last", "searches", "family_pages"),
    [
        (80, 50, [36, 36, 8], 1),
        (250, 1, [100, 100, 50], 1),
        (3, 10_000, [1, 1, 1], 4),
        (392, 50, [*[36] * 10, 32], 2),
    ],
)
def test_one_page_holds_the_last_runs_of_the_families_of_a_search(
    families: int, last: int, searches: list[int], family_pages: int
) -> None:
    cluster = PlayedCluster(families=families)
    assert list(IndexedRuns(cluster, "task").last_runs(RunFilter(), last)) == []
    assert cluster.found_by_search == searches
    assert cluster.family_pages == family_pages


def test_of_a_definition_of_jobs_more_runs_are_read() -> None:
    cluster = PlayedCluster(families=3)
    cluster.buckets[1]["jobs"] = {"doc_count": 7}
    cluster.buckets[2]["jobs"] = {"doc_count": 0}
    assert list(IndexedRuns(cluster, "task").last_runs(RunFilter(), 50)) == []
    # The played cluster returns all families also for the question about one.
    assert cluster.found_by_search == [2, 3]
    assert cluster.asked_for == [50, 1_000]


def test_unconfirmed_runs_in_a_cluster_are_counted_in_one_sentence() -> None:
    cluster = PlayedCluster(document(None))
    cluster.unconfirmed = 25
    found = read_families(IndexedRuns(cluster, "task"), RunFilter(), 50)
    (note,) = found.notes
    assert note.startswith("the indices task-reports-*: 25 unconfirmed runs left out, because")


@pytest.mark.parametrize(("reads_logs", "days"), [(False, 90), (True, 14)])
def test_what_is_usual_is_of_90_days_and_of_log_groups_of_14(
    days: int, *, reads_logs: bool
) -> None:
    now_ns = 1000 * NS_PER_DAY
    assert usual_since_ns(now_ns, reads_logs=reads_logs) == (1000 - days) * NS_PER_DAY
