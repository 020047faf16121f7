"""Whose word counts in a run's document: attacks by reports, in both orders of arrival.

A report's line can say anything. The task's event is ECS's.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace

from profiler.core.completeness import Completeness
from profiler.core.index_names import IndexNames, IndexPeriod
from profiler.core.timestamps import format_datetime
from profiler.forwarder.document_fields import event_fields, without_empty_values
from profiler.forwarder.document_updates import Document
from profiler.forwarder.ended_run import EndedRun
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.indexed_report import find_indexed_report
from profiler.forwarder.invocation import SearchClusterError
from profiler.forwarder.line_kinds import decode_report_line
from profiler.forwarder.merged_run import merge_report_and_event, run_of_event
from profiler.forwarder.report_verification import OWN_STREAM, LogStreamClaim
from profiler.forwarder.run_documents import event_documents, report_document
from profiler.forwarder.run_event import (
    EVENT_FIELDS,
    NOTHING_SEEN,
    RunEvent,
    run_event_of_document,
    run_event_of_task,
)
from profiler.forwarder.run_export import exported_run
from profiler.forwarder.search_cluster.bulk_client import ItemResult
from profiler.forwarder.search_cluster.document_delivery import DeliveryResult, deliver_documents
from profiler.record.batch_job import NO_JOB, BatchJob
from profiler.record.ecs_event_outcome import end_of_event, end_of_other
from profiler.record.fact_list import CPU_TIME, number_fact
from profiler.record.search_document_fields import FIELDS
from profiler.record.stop_causes import outcome_of
from profiler.record.stopped_task import StoppedTask
from profiler.runs.past_runs.search_documents import run_of_document
from tests.batch_jobs import CLUSTER as BATCH_CLUSTER
from tests.batch_jobs import job_id
from tests.counted_calls import counted_calls
from tests.ended_runs import run_of
from tests.fake_search import FakeSearchCluster
from tests.fakes import FakeInvocationTime
from tests.notices import report_line
from tests.stopped_tasks import report
from tests.task_events import task
from tests.values import present

KIBANA = "https://kibana.example.com"
SETTINGS = ForwarderSettings(kibana_url=KIBANA)
DOCKER_ID = "ab" * 32
OTHER_ID = "cd" * 32
MONITOR_ID = "ef" * 32
ON_EC2 = task(
    containers=[
        {"name": "batch", "exitCode": 0, "runtimeId": DOCKER_ID},
        {"name": "task-monitor", "runtimeId": MONITOR_ID},
        {"name": "xray", "runtimeId": "12" * 32},
    ]
)
NO_IDS = task(containers=[{"name": "batch", "exitCode": 0}])
PLACE = f"{task().id}"
NO_FAMILY = task(taskDefinitionArn=None)
FORGED = report(family="payroll", revision="1", cluster="vault", region="eu-west-1")


def of_report(text: str, claim: LogStreamClaim = OWN_STREAM) -> list[Document]:
    made = report_document(report_line(text).report, text, SETTINGS, claim)
    assert isinstance(made, Document)
    return [made]


def ended(stopped: StoppedTask, text: str | None = None) -> EndedRun:
    return run_of(
        task=stopped,
        end=end_of_event(stopped, stopped.container_or_name_only("batch")),
        container="batch",
        report_line=None if text is None else report_line(text),
    )


def of_event(stopped: StoppedTask, text: str | None = None) -> list[Document]:
    return [*event_documents(ended(stopped, text), SETTINGS)]


def write(cluster: FakeSearchCluster, *writes: Sequence[Document]) -> int:
    """Write each part in a delivery of its own; returns how many documents were written."""
    indexed = 0
    for documents in writes:
        result = deliver_documents(cluster, FakeInvocationTime(), documents)
        assert result.rejected == ()
        indexed += result.indexed
    return indexed


def written(*writes: Sequence[Document]) -> dict[str, Any]:
    cluster = FakeSearchCluster()
    write(cluster, *writes)
    (document,) = cluster.documents.values()
    return document


def in_both_orders(text: str, stopped: StoppedTask) -> dict[str, Any]:
    """The document, which is the same in each order. In the index, null is no value."""
    reported, of_task = of_report(text), of_event(stopped)
    first = without_empty_values(written(reported, of_task))
    assert without_empty_values(written(of_task, reported)) == first
    assert without_empty_values(written(of_task, of_task, reported)) == first
    assert without_empty_values(written(of_event(stopped, text))) == first
    assert without_empty_values(written(reported, of_task, of_task, reported)) == first
    return first


def test_a_run_is_known_from_its_first_event_on_in_each_order() -> None:
    stopped = present(task().stopped_at)
    moments = [format_datetime(stopped + timedelta(hours=hours)) for hours in range(3)]
    for text in (report(), FORGED):
        events = [of_event(task()), of_event(task())]
        for order in permutations([of_report(text), *events]):
            cluster = FakeSearchCluster()
            for moment, documents in zip(moments, order, strict=True):
                assert (
                    deliver_documents(cluster, FakeInvocationTime(), documents, moment).rejected
                    == ()
                )
            (document,) = cluster.documents.values()
            first = next(at for at, part in zip(moments, order, strict=True) if part in events)
            assert document["task"]["known_at"] == document["event"]["ingested"] == first
            assert document["task"]["confirmed"] is True


@pytest.mark.parametrize("text", [report(), FORGED, report(status="stopped", exitCode=143)])
def test_a_run_that_only_a_late_event_confirms_arrives_with_it_once(text: str) -> None:
    """Its morning message is the one after the event, however often that is sent again, and
    whatever a pipeline of the cluster does with ``event.ingested``.
    """
    stopped = present(task().stopped_at)
    moments = [format_datetime(stopped + timedelta(hours=hours)) for hours in (1, 8, 32, 56)]
    cluster = FakeSearchCluster()
    for moment, part in zip(moments, (of_report(text), *[of_event(task())] * 3), strict=True):
        assert deliver_documents(cluster, FakeInvocationTime(), part, moment).rejected == ()
        for document in cluster.documents.values():
            document["event"]["ingested"] = moment
    (document,) = cluster.documents.values()
    assert document["task"].pop("known_at") == moments[1]
    del document["event"]["ingested"]
    assert without_empty_values(document) == in_both_orders(text, task())


def test_a_line_without_an_account_keeps_that_of_its_log_group_in_each_order() -> None:
    """The line is read again where the event has come first."""
    text = report(accountId=None)
    line = report_line(text).report
    record = replace(line.record, account_id=task().account_id)
    made = report_document(replace(line, record=record), text, SETTINGS)
    assert isinstance(made, Document)
    for parts in permutations([[made], of_event(task())]):
        of_task = written(*parts)["task"]
        assert of_task["report_account"] == task().account_id
        assert of_task["confirmed"] is True


def test_an_event_that_is_sent_again_late_is_no_arrival() -> None:
    """Such as by a redrive, after a channel refused the notice of a run that was counted."""
    stopped = present(task().stopped_at)
    first = format_datetime(stopped + timedelta(minutes=1))
    late = format_datetime(stopped + timedelta(hours=30))
    for parts in ((of_report(report()), of_event(task())), (of_event(task()),)):
        cluster = FakeSearchCluster()
        for part in parts:
            deliver_documents(cluster, FakeInvocationTime(), part, first)
        for part in (of_event(task()), of_report(report()), of_event(task())):
            deliver_documents(cluster, FakeInvocationTime(), part, late)
        (document,) = cluster.documents.values()
        assert document["task"]["known_at"] == document["event"]["ingested"] == first


# Identity


def test_a_report_of_another_family_becomes_a_run_of_the_events_family() -> None:
    document = in_both_orders(FORGED, task())
    assert document["task"]["family"] == "nightly"
    assert document["service"]["name"] == "nightly"
    assert document["task"]["revision"] == "5"
    assert document["orchestrator"]["cluster"]["name"] == "jobs"
    assert document["cloud"]["region"] == "us-west-2"
    assert document["cloud"]["account"]["id"] == "111122223333"
    assert document["task"]["confirmed"] is True
    assert document["usage"]["memory"]["used_mb"]["max"] == 500
    assert "region=us-west-2" in document["links"]["task"]
    assert "payroll" not in json.dumps({**document, "record": ""})


def test_until_the_event_comes_a_run_is_not_confirmed() -> None:
    document = written(of_report(FORGED))
    assert document["task"]["family"] == "payroll"
    assert "confirmed" not in document["task"]


def test_a_report_of_a_container_that_the_task_does_not_have_stays_unconfirmed() -> None:
    cluster = FakeSearchCluster()
    ghost = report(container={"name": "ghost"})
    write(cluster, of_report(ghost), of_event(task()), of_report(ghost))
    confirmed = {name: one["task"].get("confirmed") for (_, name), one in cluster.documents.items()}
    assert confirmed == {f"{PLACE}/ghost": None, f"{PLACE}/batch": True}


@pytest.mark.parametrize(
    "stopped", [NO_FAMILY, replace(task(), account_id=None), replace(task(), region=None)]
)
def test_an_event_without_account_region_or_family_confirms_nothing(stopped: StoppedTask) -> None:
    event = present(ended(stopped).run.event)
    assert merge_report_and_event(report_line(report()).report, event).is_confirmed is False


def test_the_family_of_a_report_is_not_confirmed_by_an_event_without_one() -> None:
    document = in_both_orders(report(family="payroll"), NO_FAMILY)
    assert document["task"]["family"] == "payroll"
    assert document["task"]["confirmed"] is False


def test_an_event_of_nulls_leaves_the_report_as_it_is() -> None:
    """Account and Region are in the task's ARN, too."""
    whole = task()
    bare = StoppedTask(
        arn=whole.arn,
        account_id=whole.account_id,
        region=whole.region,
        created_at=whole.created_at,
    )
    document = in_both_orders(report(), bare)
    assert document["task"]["family"] == "nightly"
    assert document["task"]["status"] == "failure"
    assert document["task"]["confirmed"] is False
    assert document["usage"]["duration_ms"] == 60000


def test_sixty_lines_of_one_task_are_one_run() -> None:
    """With sixty starts, of three months."""
    lines = [report(startedAt=f"2026-0{1 + n % 3}-0{1 + n % 9}T00:00:00Z") for n in range(60)]
    together: list[Document] = []
    for line in lines:
        together += of_report(line)
    cluster = FakeSearchCluster()
    write(cluster, together)
    assert len(cluster.documents) == 1
    apart = FakeSearchCluster()
    write(apart, *(of_report(line) for line in lines), of_event(task()))
    (document,) = apart.documents.values()
    assert document["task"]["confirmed"] is True


# The job of AWS Batch

JOB = job_id(1)
IN_BATCH = {"jobId": JOB, "queue": "nightly", "attempt": 1}


def of_batch(job: str = JOB, cluster: str = BATCH_CLUSTER) -> StoppedTask:
    """A task with Batch's variables among the submitter's."""
    variables = {"AWS_BATCH_JOB_ID": job, "AWS_BATCH_JQ_NAME": "nightly", "DB_PASSWORD": "secret"}
    environment = [{"name": name, "value": value} for name, value in variables.items()]
    overrides = {"containerOverrides": [{"name": "batch", "environment": environment}]}
    place = f"arn:aws:ecs:us-west-2:111122223333:cluster/{cluster}"
    return task(clusterArn=place, overrides=overrides)


def test_the_job_is_the_events_and_the_report_adds_what_ecs_does_not_say() -> None:
    document = in_both_orders(report(batch=IN_BATCH), of_batch())
    assert document["batch"] == {"job_id": JOB, "queue": "nightly", "attempt": 1}
    assert in_both_orders(report(), of_batch())["batch"] == {"job_id": JOB, "queue": "nightly"}
    run = run_of_document(document)
    assert present(run.report.record.batch).attempt == 1
    assert b'"attempt":1' in run.json_line()


def test_an_event_reads_a_stored_report_once_and_merges_it_once() -> None:
    cluster = FakeSearchCluster()
    write(cluster, of_report(report(batch=IN_BATCH)))
    of_task = of_event(of_batch())
    with counted_calls(decode_report_line, merge_report_and_event, outcome_of) as calls:
        write(cluster, of_task)
    assert calls == ["decode_report_line", "merge_report_and_event", "outcome_of"]


def test_a_forged_job_of_a_report_is_replaced_by_the_events() -> None:
    forged = {"jobId": job_id(2), "queue": "payroll", "attempt": 9, "jobName": "<!channel>"}
    document = in_both_orders(report(batch=forged), of_batch())
    assert document["batch"] == {"job_id": JOB, "queue": "nightly"}
    run = run_of_document(document)
    assert run.report.record.batch == BatchJob(job_id=JOB, queue="nightly")
    assert b"payroll" not in run.json_line()


@pytest.mark.parametrize("stopped", [task(), of_batch(cluster="jobs")])
def test_a_task_in_no_cluster_of_batch_has_no_job(stopped: StoppedTask) -> None:
    """Anybody can set a variable of this name where Batch does not start the task."""
    document = in_both_orders(report(batch=IN_BATCH), stopped)
    assert "batch" not in document
    run = run_of_document(document)
    assert run.report.record.batch == NO_JOB
    assert b'batch":{' not in run.json_line()


def test_the_family_of_a_job_is_its_definitions_name() -> None:
    """Mapped by the job; the revision is that of the job definition, not of ECS."""
    named = BatchJob(job_id=JOB, job_definition="orders", job_definition_revision=41)
    document = in_both_orders(report(), replace(of_batch(), batch=named))
    assert document["task"]["family"] == document["service"]["name"] == "orders"
    assert document["task"]["revision"] == "41"
    assert document["batch"]["job_definition"] == "orders"
    assert of_batch().family == "nightly", "unknown until Batch says the definition"


def test_a_line_cannot_say_whose_definition_its_job_has() -> None:
    """A container does not know it, and the size of another definition would follow its numbers."""
    made_up = {"jobDefinition": "payroll", "jobDefinitionRevision": 1, "jobName": "pay"}
    for job in (made_up | IN_BATCH, made_up | {"jobId": JOB}):
        assert in_both_orders(report(batch=job), of_batch())["batch"]["job_id"] == JOB
        assert "job_definition" not in in_both_orders(report(batch=job), of_batch())["batch"]
    unnamed = replace(of_batch(), batch=NO_JOB)
    assert (
        "job_definition" not in in_both_orders(report(batch=made_up | IN_BATCH), unnamed)["batch"]
    )


# Start and end


def test_the_times_of_a_report_stay_within_the_tasks_life() -> None:
    text = report(startedAt="2026-03-01T09:00:00Z", finishedAt="2026-03-01T23:00:00Z")
    document = in_both_orders(text, task())
    assert document["event"]["start"] == "2026-03-01T10:11:07.314Z"
    assert document["event"]["end"] == "2026-03-01T10:12:56.341Z"
    assert document["@timestamp"] == "2026-03-01T10:12:56.341Z"
    assert (
        "from:'2026-03-01T10:06:07.314Z',to:'2026-03-01T10:17:56.341Z'"
        in (document["links"]["run"])
    )


def test_a_clock_that_is_a_minute_off_changes_nothing() -> None:
    text = report(startedAt="2026-03-01T10:10:08Z", finishedAt="2026-03-01T10:13:56Z")
    document = in_both_orders(text, task())
    assert document["event"]["start"] == "2026-03-01T10:10:08.000Z"
    assert document["event"]["end"] == "2026-03-01T10:13:56.000Z"


@pytest.mark.parametrize("text", [None, "never", ""])
def test_what_is_no_time_is_not_changed(text: str | None) -> None:
    event = present(ended(task()).run.event)
    reported = report_line(report()).report
    reported = replace(reported, record=replace(reported.record, started_at=text))
    run = merge_report_and_event(reported, event)
    assert run.started_at is None
    assert run.record.started_at == text


@pytest.mark.parametrize("start", ["2026-01-10T00:00:00Z", "2026-02-28T00:00:00Z"])
def test_a_false_start_makes_no_second_document_of_a_run(start: str) -> None:
    """The index is that of the start."""
    text = report(startedAt=start)
    periods: tuple[IndexPeriod, ...] = ("month", "day")
    for period in periods:
        settings = ForwarderSettings(indices=IndexNames(period=period))
        reported = report_document(report_line(text).report, text, settings)
        assert isinstance(reported, Document)
        of_task = [*event_documents(ended(task()), settings)]
        assert of_task[0].index != reported.index
        for writes in ([[reported], of_task], [of_task, [reported]]):
            document = written(*writes, *writes)
            assert document["task"]["confirmed"] is True
            assert document["task"]["complete"] is True
            assert document["event"]["start"] == "2026-03-01T10:11:07.314Z"


def test_a_report_after_two_weeks_completes_the_run_of_the_event() -> None:
    """CloudWatch Logs accepts lines that are as old."""
    late = json.loads(report(startedAt="2026-02-28T10:00:00Z"))
    text = json.dumps({**late, "time": "2026-03-15T10:00:00Z"})
    document = in_both_orders(text, task())
    assert document["@timestamp"] == "2026-03-01T10:12:56.341Z"


def test_where_a_search_is_late_only_one_document_is_confirmed() -> None:
    cluster = FakeSearchCluster()
    cluster.is_stale = True
    write(cluster, of_event(task()), of_report(report(startedAt="2026-01-10T00:00:00Z")))
    confirmed = [one["task"].get("confirmed") for one in cluster.documents.values()]
    assert confirmed == [True, None]


class Unsearchable(FakeSearchCluster):
    """Refuses each search, as it does a user without the privilege to read."""

    def indices_of_runs(
        self, searched: str, document_ids: Sequence[str], timeout_seconds: float
    ) -> tuple[dict[str, str], Completeness]:
        raise SearchClusterError("HTTP 403", status=403)


class PartlySearched(FakeSearchCluster):
    """A shard does not answer a search."""

    def request(self, path: str, body: bytes | Mapping[str, object], timeout_seconds: float) -> Any:
        answer = super().request(path, body, timeout_seconds)
        if "_search" not in path:
            return answer
        return {**answer, "_shards": {"total": 2, "successful": 1}}


def test_a_part_of_the_answer_moves_a_report_only_to_a_confirmed_document() -> None:
    """What is missing may be the confirmed one. The report is written in any case, and it is
    said.
    """
    early = of_report(report(startedAt="2026-01-10T00:00:00Z"))
    for first, count in ((of_report(report()), 2), (of_event(task()), 1)):
        cluster = PartlySearched()
        write(cluster, first)
        delivered = deliver_documents(cluster, FakeInvocationTime(), early)
        assert delivered.indexed == 1
        assert delivered.completeness.sentences == ("1 shard of the search cluster did not answer",)
        assert len(cluster.documents) == count


def test_without_an_answer_to_the_search_everything_is_written() -> None:
    cluster = Unsearchable()
    assert write(cluster, of_report(report()), of_event(task())) == 2
    (document,) = cluster.documents.values()
    assert document["task"]["confirmed"] is True
    delivered = deliver_documents(cluster, FakeInvocationTime(), of_report(report()))
    assert delivered.completeness.sentences == ("HTTP 403",)


def test_one_search_is_enough_for_all_reports_of_a_delivery() -> None:
    cluster = FakeSearchCluster()
    reports: list[Document] = []
    for number in range(1500):
        reports += of_report(report(taskId=f"{number:032}"))
    write(cluster, reports)
    assert cluster.searches == 2, "at most 1,000 ids a search"
    assert len(cluster.documents) == 1500, "at most 1,000 ids a search"


# Streams that do not name the task


def claim(stream: str = DOCKER_ID, voucher: str = "container-id") -> LogStreamClaim:
    return LogStreamClaim(voucher=voucher, stream=stream)


MONITORS = claim(f"ecs/task-monitor/{task().id}", "monitor-stream")


@pytest.mark.parametrize("stream", [DOCKER_ID, MONITOR_ID])
def test_the_event_confirms_the_stream_of_the_containers_docker_id(stream: str) -> None:
    reported = of_report(report(), claim(stream))
    assert written(reported)["task"]["confirmed"] is False
    document = written(reported, of_event(ON_EC2))
    assert document == written(of_event(ON_EC2), reported)
    assert document["task"]["confirmed"] is True
    assert document["task"]["complete"] is True


@pytest.mark.parametrize("stream", [OTHER_ID, "12" * 32], ids=["foreign", "sidecar"])
def test_a_report_from_the_stream_of_another_container_does_not_count(stream: str) -> None:
    foreign = of_report(FORGED, claim(stream))
    alone = written(of_event(ON_EC2))
    assert written(foreign, of_event(ON_EC2)) == alone
    assert written(of_event(ON_EC2), foreign) == alone
    cluster = FakeSearchCluster()
    assert write(cluster, of_event(ON_EC2), foreign) == 1, "it is not counted as indexed"


@pytest.mark.parametrize(
    ("stopped", "unproven"),
    [(NO_IDS, claim()), (ON_EC2, claim("build-7", "trusted-group")), (NO_IDS, claim("x", "later"))],
)
def test_a_report_that_the_event_cannot_vouch_for_stays_unconfirmed(
    stopped: StoppedTask, unproven: LogStreamClaim
) -> None:
    reported = of_report(report(), unproven)
    document = written(reported, of_event(stopped))
    assert document == written(of_event(stopped), reported)
    assert document["task"]["confirmed"] is False
    assert document["task"]["complete"] is True


@pytest.mark.parametrize("unproven", [claim(OTHER_ID), claim("build-7", "trusted-group")])
def test_an_unproven_report_never_replaces_one_of_the_tasks_own_stream(
    unproven: LogStreamClaim,
) -> None:
    own, forged = of_report(report()), of_report(FORGED, unproven)
    for event in ([], of_event(NO_IDS)):
        expected = written(own, event)
        assert written(own, forged, event) == expected
        assert written(forged, own, event) == expected
        assert written(own, event, forged) == expected


def of_instance(text: str) -> list[Document]:
    return of_report(text, claim("instance/task-monitor/1", "instance-monitor"))


@pytest.mark.parametrize("of_monitor", [of_instance(report()), of_report(report(), MONITORS)])
def test_the_event_confirms_what_a_monitor_says(of_monitor: list[Document]) -> None:
    """The instance monitor's report on EC2, and the task's monitor's of a container that there
    is.
    """
    on_ec2 = task(launchType="EC2")
    assert written(of_monitor)["task"]["confirmed"] is False
    document = written(of_monitor, of_event(on_ec2))
    assert document == written(of_event(on_ec2), of_monitor)
    assert document["task"]["confirmed"] is True
    assert document["task"]["complete"] is True


@pytest.mark.parametrize("voucher", ["instance-monitor", "unproven-monitor"])
def test_an_instance_monitor_says_nothing_of_a_task_on_fargate(voucher: str) -> None:
    """A run that ECS confirms does not become unconfirmed, and so uncounted, by a forged line."""
    on_fargate = task(launchType="FARGATE")
    forged = of_report(FORGED, claim("instance/task-monitor/1", voucher))
    alone = written(of_event(on_fargate))
    for writes in permutations([forged, of_event(on_fargate)]):
        assert written(*writes) == alone


@pytest.mark.parametrize("voucher", ["defined-monitor", "unproven-monitor"])
def test_a_stream_that_only_may_be_a_monitors_takes_nothing_from_the_event(voucher: str) -> None:
    """A failed run would become unconfirmed, and so uncounted, by a forged line."""
    on_ec2 = task(launchType="EC2")
    forged = of_report(FORGED, claim("instance/task-monitor/1", voucher))
    alone = written(of_event(on_ec2))
    assert alone["task"]["confirmed"] is True
    for writes in permutations([forged, of_event(on_ec2)]):
        assert written(*writes) == alone


@pytest.mark.parametrize("voucher", ["defined-monitor", "unproven-monitor"])
def test_without_an_event_a_repeated_report_of_such_a_stream_is_written(voucher: str) -> None:
    """A replay is later than the task, of which there may never be an event."""
    monitors = claim("instance/task-monitor/1", voucher)
    document = written(of_report(report(), monitors), of_report(report(status="stopped"), monitors))
    assert document["task"]["status"] == "stopped"
    assert document["task"]["confirmed"] is False


@pytest.mark.parametrize("launch_type", ["EC2", "FARGATE"])
def test_an_instance_monitor_replaces_no_report_of_the_tasks_own_stream(launch_type: str) -> None:
    parts = [of_report(report()), of_instance(FORGED), of_event(task(launchType=launch_type))]
    expected = written(parts[0], parts[2])
    for writes in permutations(parts):
        assert written(*writes) == expected


def test_the_event_bounds_the_cost_by_the_life_of_the_task() -> None:
    """A report can say that it ran on a large machine for weeks."""
    claimed: dict[str, Any] = {
        "launchType": "EC2",
        "startedAt": "2026-02-01T10:00:00Z",
        "finishedAt": "2026-03-01T10:00:00Z",
        "cost": {"usd": 9_000.0},
    }
    text = report(**claimed)
    assert written(of_report(text))["cost"]["usd"] == 9_000
    for writes in ([of_report(text), of_event(task(), text)], [of_event(task()), of_report(text)]):
        cost = written(*writes).get("cost", {})
        assert cost.get("usd") is None
    honest = report(cost={"usd": 0.01})
    assert written(of_event(task(), honest))["cost"]["usd"] == 0.01


class OneDocument(FakeSearchCluster):
    """Returns the only document, whatever is asked for."""

    def get_document(self, index: str, document_id: str, timeout_seconds: float) -> Any:
        (document,) = self.documents.values()
        return document


@pytest.mark.parametrize(
    ("stopped", "unproven", "is_found"),
    [
        (ON_EC2, OWN_STREAM, True),
        (ON_EC2, claim(), True),
        (ON_EC2, claim(OTHER_ID), False),
        (NO_IDS, claim(), False),
        (ON_EC2, claim("build-7", "trusted-group"), False),
    ],
)
def test_a_notification_has_the_numbers_of_a_confirmed_report_alone(
    stopped: StoppedTask, unproven: LogStreamClaim, *, is_found: bool
) -> None:
    cluster = OneDocument()
    write(cluster, of_report(report(), unproven))
    found = find_indexed_report(
        cluster, FakeInvocationTime(), SETTINGS, stopped, stopped.container_or_name_only("batch")
    )
    assert (found is not None) == is_found


# Two writers at once


class Racing(FakeSearchCluster):
    """Another writer comes before the second request of a writer, once."""

    def __init__(self, other: Sequence[Document]) -> None:
        super().__init__()
        self.other: Sequence[Document] = other

    def write_documents(
        self, documents: Sequence[Document], timeout_seconds: float
    ) -> list[ItemResult]:
        other = self.other
        if other and any(document.stored is not None for document in documents):
            self.other = ()
            super().write_documents(other, timeout_seconds)
        return super().write_documents(documents, timeout_seconds)


LATE = report(startedAt="2026-03-01T09:00:00Z", family="payroll")


@pytest.mark.parametrize(
    ("before", "writes", "between"),
    [
        (of_report(LATE), of_event(task()), of_report(LATE)),
        (of_event(task()), of_report(LATE), of_event(task())),
        (of_event(task()), of_report(LATE), of_report(LATE)),
    ],
    ids=["report before an event's correction", "event before a report", "two reports"],
)
def test_a_writer_between_the_two_requests_of_another_is_not_overwritten(
    before: list[Document], writes: list[Document], between: list[Document]
) -> None:
    cluster = Racing(between)
    write(cluster, before)
    assert deliver_documents(cluster, FakeInvocationTime(), writes) == DeliveryResult(indexed=1)
    assert cluster.other == (), "the other writer came"
    (document,) = cluster.documents.values()
    assert document == written(of_report(LATE), of_event(task()))


# Several accounts in one cluster


OTHER_ACCOUNT = "999988887777"


def of_account(account_id: str, kind: str = "task.report", **record: Any) -> list[Document]:
    """What the forwarder makes of a line in a log group of this account."""
    return of_report(report(kind, accountId=account_id, **record))


ATTACK = of_account(OTHER_ACCOUNT, exitCode=9, startedAt="2026-03-01T10:11:29Z")


@pytest.mark.parametrize("unproven", [OWN_STREAM, claim("x", "trusted-group")])
def test_no_account_writes_into_another_ones_run(unproven: LogStreamClaim) -> None:
    """Whatever came first: the account's report, its event with the report, or the attack."""
    attack = of_report(ATTACK[0].fields["record"], unproven)
    own = of_report(report())
    event = of_event(task(), report())
    expected = in_both_orders(report(), task())
    for writes in permutations([own, event, attack]):
        cluster = FakeSearchCluster()
        write(cluster, *writes)
        (document,) = cluster.documents.values()
        assert document == expected


def test_an_unproven_report_of_another_account_blocks_none_of_the_tasks_stream() -> None:
    unproven = LogStreamClaim(voucher="trusted-group", stream="x")
    cluster = FakeSearchCluster()
    write(cluster, of_report(ATTACK[0].fields["record"], unproven), of_report(report()))
    (document,) = cluster.documents.values()
    assert document["cloud"]["account"]["id"] == "111122223333"
    assert "voucher" not in document["task"]


def test_of_two_accounts_the_first_ones_report_counts_until_the_event() -> None:
    cluster = FakeSearchCluster()
    write(cluster, of_report(report()), ATTACK)
    (document,) = cluster.documents.values()
    assert document["cloud"]["account"]["id"] == "111122223333"
    assert document["task"]["exit_code"] != 9


def test_the_event_removes_the_numbers_of_another_account() -> None:
    cluster = FakeSearchCluster()
    write(cluster, ATTACK, of_event(task()))
    (document,) = cluster.documents.values()
    assert document["cloud"]["account"]["id"] == "111122223333"
    assert document["task"]["complete"] is False
    assert "memory" not in document.get("usage", {})


def test_a_run_whose_end_nobody_knows_does_not_run_any_more() -> None:
    """The status of the last checkpoint is older than the event."""
    unknown = task(containers=[{"name": "batch"}], stoppedReason=None)
    run = ended(unknown, report("task.checkpoint", status="running")).run
    assert run.record.status == "unknown"
    assert run.record.finished_at == "2026-03-01T10:12:32.316Z"


def test_the_numbers_of_the_last_checkpoint_are_lower_bounds_of_the_ended_run() -> None:
    """The monitor was killed half way: so are its mark of the kernel and its CPU time."""
    stopped = task()
    whole_ms = present(ended(stopped).duration_ms)
    metrics = {
        "durationMs": whole_ms / 2,
        "cpuSeconds": 9.5,
        "maxMemoryUsedMB": 500,
        "memoryPeakSource": "kernel",
    }
    sampling = {"samples": 30, "cpuCoveredPercent": 98.0}
    line = report("task.checkpoint", status="running", metrics=metrics, sampling=sampling)
    (document, *_) = of_event(stopped, line)
    for record in (
        ended(stopped, line).run.record,
        run_of_document(document.initial_fields).report.record,
    ):
        assert record.metrics.duration_ms == whole_ms
        assert record.metrics.memory_peak_source == "sampled"
        assert present(record.sampling).cpu_covered_percent == 49.0
        assert number_fact(CPU_TIME, record).text == "≥9.5 s"


def test_an_unproven_checkpoint_replaces_none_of_the_tasks_own_stream() -> None:
    cluster = FakeSearchCluster()
    own = of_report(report("task.checkpoint"))
    write(cluster, own, of_report(report("task.checkpoint"), claim("build-7", "trusted-group")))
    (kept,) = [fields for (_, name), fields in cluster.documents.items() if name == own[0].id]
    assert "confirmed" not in kept["task"]
    assert len(cluster.documents) == 2


def test_a_report_of_another_account_is_not_taken_for_the_tasks() -> None:
    cluster = FakeSearchCluster()
    write(cluster, ATTACK)
    found: list[str] = []

    def get(index: str, document_id: str, timeout_seconds: float) -> Any:
        found.append(document_id)
        return cluster.documents.get((index, document_id))

    cluster.get_document = get  # type: ignore[method-assign]
    batch = task().container_or_name_only("batch")
    time = FakeInvocationTime()
    assert find_indexed_report(cluster, time, SETTINGS, task(), batch) is None
    assert found == [f"{PLACE}/batch"]


# Several measured containers


PROXY = report(container={"name": "proxy"}, status="stopped", exitCode=143)
WITH_PROXY = task(
    containers=[
        {"name": "batch", "exitCode": 1},
        {"name": "proxy", "exitCode": 143},
        {"name": "task-monitor", "exitCode": 0},
    ]
)


def of_both(text: str | None = None) -> list[Document]:
    proxy, monitor = map(WITH_PROXY.container_or_name_only, ("proxy", "task-monitor"))
    of_proxy = run_event_of_task(WITH_PROXY, end_of_other(WITH_PROXY, proxy), proxy, monitor)
    both = replace(ended(WITH_PROXY, text), others=(run_of_event(of_proxy),))
    return [*event_documents(both, SETTINGS)]


def test_the_event_confirms_the_report_of_each_measured_container() -> None:
    batch, proxy = of_report(report()), of_report(PROXY)
    results = []
    for writes in permutations([batch, proxy, of_both(), of_both(report())]):
        cluster = FakeSearchCluster()
        write(cluster, *writes)
        results.append({name: fields for (_, name), fields in cluster.documents.items()})
    assert all(result == results[0] for result in results)
    assert set(results[0]) == {f"{PLACE}/batch", f"{PLACE}/proxy"}
    for document in results[0].values():
        assert document["task"]["confirmed"] is True
        assert document["task"]["complete"] is True
    of_proxy = results[0][f"{PLACE}/proxy"]
    assert of_proxy["task"]["status"] == "stopped", "the report's: the event judges the batch"
    assert of_proxy["task"]["exit_code"] == 143


def test_a_container_that_the_task_does_not_have_is_not_confirmed_with_several() -> None:
    cluster = FakeSearchCluster()
    write(cluster, of_both(), of_report(report(container={"name": "ghost"})))
    ghost = next(one for (_, name), one in cluster.documents.items() if name.endswith("/ghost"))
    assert "confirmed" not in ghost["task"]


# The other outputs


def test_notification_and_export_have_the_events_identity() -> None:
    run = ended(task(), FORGED)
    record = present(run.record)
    assert run.family == "nightly"
    assert record.family == "nightly"
    assert record.account_id == "111122223333"
    assert record.region == "us-west-2"
    assert record.cluster == "jobs"
    assert record.revision == "5"
    links = run.console_links(KIBANA)
    assert "region=us-west-2" in present(links.ecs_task)
    exported = exported_run(run, 1).record
    assert exported.family == "nightly"
    assert exported.region == "us-west-2"
    assert exported.metrics.max_memory_used_mb == 500


def test_a_run_has_a_report_or_an_event() -> None:
    with pytest.raises(ValueError, match="a report, or a task's event"):
        run_of_event(RunEvent())


def test_an_event_is_the_same_after_it_was_written_and_read() -> None:
    every = run_event_of_task(
        ON_EC2,
        end_of_event(
            task(capacityProviderName="FARGATE_SPOT"), ON_EC2.container_or_name_only("batch")
        ),
        ON_EC2.container_or_name_only("batch"),
        ON_EC2.container_or_name_only("task-monitor"),
    )
    every = replace(every, retry_of="8" * 32, retried_as="9" * 32)
    for event in (every, present(ended(task()).run.event)):
        fields = event_fields(event)
        fields["task"]["confirmed"] = True
        assert run_event_of_document(fields) == replace(event, alone=NOTHING_SEEN)
    assert run_event_of_document(of_report(report())[0].fields) is None


def test_the_events_fields_are_those_of_documents() -> None:
    assert set(EVENT_FIELDS) <= {field.name for field in FIELDS}
    assert set(EVENT_FIELDS.values()) == set(RunEvent.__struct_fields__) - {
        *("alone", "is_identified", "batch")
    }


def test_a_document_is_encoded_once() -> None:
    (document,) = of_report(report())
    assert document.bulk_lines is document.bulk_lines
