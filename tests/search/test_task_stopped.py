"""``handler.task_stopped`` on real search clusters, with a fake Slack and AWS simulated by moto."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest
import requests

import handler
from profiler.cli.options import SourceOptions
from profiler.cli.wiring.open_past_runs import open_source
from profiler.core.timestamps import format_datetime
from profiler.forwarder.document_updates import Document
from profiler.forwarder.family_runs import FamilyRunReader
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.indexed_report import find_indexed_report
from profiler.forwarder.invocation import ForwarderError, InvocationTime
from profiler.forwarder.line_kinds import decode_report_line
from profiler.forwarder.report_finder import ReportLine
from profiler.forwarder.report_verification import LogStreamClaim
from profiler.forwarder.run_documents import report_document
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.family_statistics import NeedAtSize
from profiler.record.record_model import Report, TaskSize
from profiler.record.stopped_task import EventContainer, parse_stopped_task
from profiler.runs.past_runs.run_source import RunFilter
from tests.fake_slack import FakeSlack
from tests.memory_retries import ended
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import (
    ACCOUNT,
    STREAM,
    TASK_ID,
    Context,
    Forward,
    call,
    confirm,
    event,
    played_aws,
    put,
    report,
    search,
)
from tests.task_events import event as task_event
from tests.values import present
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = [pytest.mark.search, TWO_SERVERS]

PLACE = {"accountId": "111122223333", "region": "us-west-2"}  # of the task's event


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack, forward: Forward) -> Iterator[Any]:
    assert forward is not None
    with played_aws(monkeypatch, slack) as logs:
        yield logs


def indexed_report() -> ReportLine | None:
    """Look up the report of the event's batch by its id."""
    task = present(parse_stopped_task(task_event()))
    cluster = handler._search_cluster(handler._settings())
    budget = InvocationTime(Context())
    return find_indexed_report(
        cluster, budget, ForwarderSettings(), task, EventContainer(name="batch")
    )


def test_a_report_is_found_by_its_id_before_a_refresh(
    aws: Any, forward: Forward, search_server: SearchServer
) -> None:
    assert indexed_report() is None  # the index does not exist
    other = report("0" * 32, startedAt="2026-03-01T10:11:29Z")
    assert forward(event(other), Context())["indexed"] == 1
    assert indexed_report() is None  # the index exists, the document does not
    text = run_report(status="failure", exitCode=1)
    call(search_server, "PUT", "task-reports-2026.03/_settings", {"index.refresh_interval": "-1"})
    assert forward(event(text, stream=STREAM), Context())["indexed"] == 1
    found = present(indexed_report())
    assert found.text == text
    assert found.is_final is True
    assert found.is_indexed is True


def run_report(**record: Any) -> str:
    times = {"startedAt": "2026-03-01T10:11:29Z", "finishedAt": "2026-03-01T10:12:32Z"}
    return report(TASK_ID, **{**times, **record})


def without_arrival(source: dict[str, Any]) -> dict[str, Any]:
    """The document without the times at which it came, which are those of the test."""
    event_fields = {**source["event"]}
    task_fields = {**source["task"]}
    event_fields.pop("ingested", None)
    task_fields.pop("known_at", None)
    return {**source, "event": event_fields, "task": task_fields}


def only_document(server: SearchServer) -> dict[str, Any]:
    (hit,) = search(server)["hits"]["hits"]
    assert hit["_index"] == "task-reports-2026.03"
    assert hit["_id"] == f"{TASK_ID}/batch"
    return without_arrival(hit["_source"])


def test_a_run_is_known_from_its_first_event_on(
    aws: Any, forward: Forward, search_server: SearchServer
) -> None:
    """So that its run is in the morning message after the event, and in no other one."""

    def known_at() -> object:
        (hit,) = search(search_server)["hits"]["hits"]
        return hit["_source"]["task"].get("known_at")

    forward(event(run_report(), stream=STREAM), Context())
    assert known_at() is None
    before = format_datetime(datetime.now(UTC))
    handler.task_stopped(task_event(), Context())
    with_event = known_at()
    assert before <= str(with_event)
    handler.task_stopped(task_event(), Context())
    forward(event(run_report(), stream=STREAM), Context())
    assert known_at() == with_event


def test_a_redrive_beside_a_replay_gives_one_notice_and_one_document(
    aws: Any, forward: Forward, slack: FakeSlack, search_server: SearchServer
) -> None:
    """At once, and again later; what is refused because another one is at work is sent again, as
    Lambda does.
    """
    text = run_report(status="failure", exitCode=1)
    put(aws, text)
    stopped = task_event(containers=[{"name": "batch", "exitCode": 1}])
    end_seconds = time.monotonic() + LIMIT_SECONDS

    def redriven() -> None:
        while time.monotonic() < end_seconds:
            with suppress(ForwarderError):
                handler.task_stopped(stopped, Context())
                return

    def replayed() -> None:
        assert forward(event(text, stream=STREAM), Context())["indexed"] == 1

    for works in ([redriven, replayed] * 3, [redriven, replayed]):
        with ThreadPoolExecutor(len(works)) as pool:
            for work in [pool.submit(work) for work in works]:
                work.result()
        assert len(slack.messages) == 1
        task = only_document(search_server)["task"]
        assert (task["status"], task["exit_code"]) == ("failure", 1)
        assert (task["complete"], task["confirmed"]) == (True, True)


ENDS: dict[str, dict[str, Any]] = {
    "stopped": {"stopCode": "UserInitiated", "stoppedReason": "Task stopped by user"},
    "failure": {"containers": [{"name": "batch", "exitCode": 3}]},
    "unknown": {"stopCode": None, "stoppedReason": None, "containers": [{"name": "batch"}]},
}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    ("status", "verdict"), [*(("success", verdict) for verdict in ENDS), ("unknown", "unknown")]
)
def test_any_order_and_repetition_give_the_same_document(
    aws: Any, forward: Forward, search_server: SearchServer, status: str, verdict: str
) -> None:
    """The report by subscription; the event when it finds the report, and when it finds only a
    checkpoint; a replay.
    """
    text = run_report(status=status, exitCode=0 if status == "success" else None)
    checkpoint = run_report(
        status="running", exitCode=9, finishedAt=None, metrics={"maxMemoryUsedMB": 5}
    )
    stopped = task_event(**ENDS[verdict])
    documents = []
    for order in permutations(["report", "event", "checkpoint-event"]):
        aws.delete_log_stream(logGroupName="/ecs/jobs", logStreamName=STREAM)
        aws.create_log_stream(logGroupName="/ecs/jobs", logStreamName=STREAM)
        requests.delete(f"{search_server.url}/task-reports-2026.03", timeout=LIMIT_SECONDS)
        put(
            aws, checkpoint.replace("task.report", "task.checkpoint"), f"ecs/task-monitor/{TASK_ID}"
        )
        for step in [*order, order[0], "report"]:
            if step == "report":
                assert forward(event(text, stream=STREAM), Context())["indexed"] == 1
            else:
                if step == "event":
                    put(aws, text)
                assert handler.task_stopped(stopped, Context())["indexed"] is True
        documents.append(only_document(search_server))
    assert all(document == documents[0] for document in documents)
    end = (documents[0]["task"]["status"], documents[0]["event"]["outcome"])
    expected = verdict if verdict != "unknown" else status
    assert end == (expected, expected if expected in {"success", "failure"} else "unknown")
    assert documents[0]["record"] == text
    assert "memory" not in documents[0]["usage"]  # only the checkpoint has it


FORGED = {
    "family": "payroll",
    "cluster": "vault",
    "accountId": "999988887777",
    "region": "eu-west-1",
}


@pytest.mark.diagonal
@pytest.mark.parametrize(
    "started", ["2026-03-01T10:11:29Z", "2026-01-10T00:00:00Z"], ids=["a true start", "a false one"]
)
def test_the_identity_and_the_place_of_a_run_are_the_events_in_any_order(
    aws: Any, forward: Forward, search_server: SearchServer, started: str
) -> None:
    """A report of another family, and with a start of another month, which names another index."""
    forged = run_report(**{**FORGED, "startedAt": started, "accountId": "111122223333"})
    stopped = task_event(containers=[{"name": "batch", "exitCode": 0}])
    documents = []
    for order in permutations(["report", "event"]):
        requests.delete(f"{search_server.url}/task-reports-2026.01", timeout=LIMIT_SECONDS)
        requests.delete(f"{search_server.url}/task-reports-2026.03", timeout=LIMIT_SECONDS)
        for step in [*order, *order]:
            if step == "report":
                assert forward(event(forged, stream=STREAM), Context())["indexed"] == 1
            else:
                assert handler.task_stopped(stopped, Context())["indexed"] is True
            call(search_server, "POST", "task-reports-*/_refresh")
        (hit,) = search(search_server)["hits"]["hits"]
        assert hit["_id"] == f"{TASK_ID}/batch"
        documents.append(without_arrival(hit["_source"]))
    assert documents[0] == documents[1]
    task_fields = documents[0]["task"]
    assert task_fields["family"] == "nightly"
    assert task_fields["confirmed"] is True
    assert task_fields["complete"] is True
    assert documents[0]["orchestrator"]["cluster"]["name"] == "jobs"
    assert documents[0]["cloud"]["region"] == "us-west-2"
    is_false = started.startswith("2026-01")
    expected = "2026-03-01T10:11:07.314Z" if is_false else "2026-03-01T10:11:29.000Z"
    assert documents[0]["event"]["start"] == expected
    (run,) = open_source(SourceOptions(sources=(search_server.url,))).runs(RunFilter())
    assert run.is_confirmed
    assert run.report.record.family == "nightly"
    assert run.report.record.started_at == expected.replace(":29.000Z", ":29Z")


DOCKER_ID, OTHER_ID = "ab" * 32, "cd" * 32


@pytest.mark.diagonal
@pytest.mark.parametrize("stream", [DOCKER_ID, OTHER_ID], ids=["own", "another container's"])
def test_an_unproven_report_counts_if_the_event_has_its_container_id(
    aws: Any, forward: Forward, search_server: SearchServer, stream: str
) -> None:
    """A report from a stream named by a container id counts if the event has the id."""
    settings = ForwarderSettings()
    line = run_report(status="success", exitCode=0, accountId=ACCOUNT)
    report_of_stream = present(decode_report_line(line))
    assert isinstance(report_of_stream, Report)
    claim = LogStreamClaim(voucher="container-id", stream=stream)
    reported = report_document(report_of_stream, line, settings, claim)
    assert isinstance(reported, Document)
    batch = {"name": "batch", "exitCode": 0, "runtimeId": DOCKER_ID}
    documents = []
    for order in permutations(["report", "event"]):
        requests.delete(f"{search_server.url}/task-reports-2026.03", timeout=LIMIT_SECONDS)
        for step in [*order, *order]:
            if step == "report":
                cluster = handler._search_cluster(handler._settings())
                deliver_documents(cluster, InvocationTime(Context()), [reported])
            else:
                assert handler.task_stopped(task_event(containers=[batch]), Context())["indexed"]
        documents.append(only_document(search_server))
    assert documents[0] == documents[1]
    assert documents[0]["task"]["confirmed"] is True
    assert documents[0]["task"]["complete"] is (stream == DOCKER_ID)
    assert ("record" in documents[0]) == (stream == DOCKER_ID)


def test_the_duration_is_compared_with_recent_runs(
    aws: Any, forward: Forward, slack: FakeSlack, search_server: SearchServer
) -> None:
    """Confirmed runs of the same account and Region.

    The notice of a run that took longer says what it waited for.
    """
    elsewhere = {**PLACE, "accountId": "999988887777"}
    last = {"processor": {"model": "Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz"}}
    recent = [
        report(f"{number}", metrics={"durationMs": 1000}, **PLACE, **last) for number in range(8)
    ]
    others = [
        report(f"other-{number}", metrics={"durationMs": 9000}, **elsewhere) for number in range(8)
    ]
    forward(event(*recent), Context())
    forward(event(*others), Context())
    forward(event(report("forged", metrics={"durationMs": 99_000}, **PLACE)), Context())
    confirm(search_server, *(str(number) for number in range(8)))
    confirm(search_server, *(f"other-{number}" for number in range(8)))
    search(search_server)
    waited = {
        "onCpuPercent": 20.0,
        "networkPercent": 80.0,
        "waitingFor": [{"kind": "network", "target": "10.0.3.9:5432", "percent": 75.0}],
    }
    processor = {"model": "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"}
    text = run_report(metrics={"durationMs": 3100}, timeBreakdown=waited, processor=processor)
    forward(event(text, stream=STREAM), Context())
    handler.task_stopped(task_event(containers=[{"name": "batch", "exitCode": 0}]), Context())
    posted = json.dumps(slack.messages, ensure_ascii=False)
    assert (
        "3.1× longer than the median of the last 8 successful runs. It ran on Xeon 8259CL, "
        "the last "
    ) in posted
    assert "success on 8375C." in posted
    assert "80 % of the time it waited for the network, 75 % for 10.0.3.9:5432." in posted


def test_what_a_retry_needs_of_its_family_is_found(
    aws: Any, forward: Forward, search_server: SearchServer
) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def run(number: int, size_mb: int, peak_mb: float, **record: Any) -> str:
        return report(
            str(number) * 32,
            **{**PLACE, "finishedAt": now, **record},
            taskSize={"vcpu": 0.25, "memoryMB": size_mb},
            metrics={"maxMemoryUsedMB": peak_mb},
        )

    killed_run = {"status": "failure", "exitCode": 137, "likelyOutOfMemory": True}
    runs = [
        run(1, 512, 700.5),
        run(2, 512, 650.0),
        run(3, 1024, 1020.0, **killed_run),
        run(4, 512, 900.0, region="eu-west-1"),
        run(6, 65_536, 52_000.0),
        run(7, 512, 9000.0, finishedAt="2026-03-01T10:00:02Z"),
    ]
    numbers = (1, 2, 3, 4, 6, 7)
    for number, text in zip(numbers, runs, strict=True):
        assert (
            forward(event(text, stream=f"ecs/batch/{str(number) * 32}"), Context())["indexed"] == 1
        )
    confirm(search_server, *(str(number) * 32 for number in numbers))
    forged = run(5, 512, 9000.0)
    assert forward(event(forged, stream=f"ecs/batch/{'5' * 32}"), Context())["indexed"] == 1
    search(search_server)  # refreshes
    family = FamilyRunReader(
        cluster=handler._search_cluster(handler._settings()),
        prefix="task",
        timeout_seconds=LIMIT_SECONDS,
        now=datetime.now(UTC),
    )
    retry = ended()
    assert family.read_need_at_size(retry, 512) == NeedAtSize(peak_mb=700.5)
    assert family.read_need_at_size(retry, 1024) == NeedAtSize(was_killed=True)
    assert family.read_need_at_size(retry, 65_536) == NeedAtSize(peak_mb=52_000)
    assert family.find_killed_run(retry, "33333333") == (
        "3" * 32,
        TaskSize(vcpu=0.25, memory_mb=1024),
    )
    assert family.find_killed_run(retry, "44444444") == (None, TaskSize())
    killed = task_event(cpu="256", memory="512", containers=[{"name": "batch", "exitCode": 137}])
    assert handler.task_stopped(killed, Context())["indexed"] is True  # without a report
    search(search_server)
    assert family.find_killed_run(retry, TASK_ID[:8]) == (
        TASK_ID,
        TaskSize(vcpu=0.25, memory_mb=512),
    )


@pytest.mark.diagonal
@pytest.mark.parametrize("is_over", [False, True])
def test_memory_above_everything_that_the_family_reached_is_announced_once(
    aws: Any, slack: FakeSlack, forward: Forward, search_server: SearchServer, *, is_over: bool
) -> None:
    """From checkpoints alone, and asked of a real cluster once; not of a run that has ended."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    reached = [
        report(str(number) * 32, **PLACE, metrics={"maxMemoryUsedMB": 300.0 + number})
        for number in range(1, 7)
    ]
    for number, text in enumerate(reached, 1):
        forward(event(text, stream=f"ecs/batch/{str(number) * 32}"), Context())
    confirm(search_server, *(str(number) * 32 for number in range(1, 7)))
    forged = report("9" * 32, **PLACE, metrics={"maxMemoryUsedMB": 9000.0})
    forward(event(forged, stream=f"ecs/batch/{'9' * 32}"), Context())
    if is_over:
        own = report(TASK_ID, **PLACE, finishedAt=now)
        forward(event(own, stream=STREAM), Context())
    search(search_server)  # refreshes

    def checkpoint(used_mb: float) -> dict[str, Any]:
        running = {
            "taskId": TASK_ID,
            "family": "nightly",
            "container": {"name": "batch"},
            "status": "running",
            "startedAt": now,
            "metrics": {"memorySizeMB": 512, "maxMemoryUsedMB": used_mb},
            **PLACE,
        }
        line = json.dumps({"time": now, "type": "task.checkpoint", "record": running})
        return event(line, stream=f"ecs/task-monitor/{TASK_ID}")

    for used_mb in (200, 310, 400, 450):
        assert handler.forward_logs(checkpoint(used_mb), Context())["indexed"] == 1
    posted = [json.dumps(message, ensure_ascii=False) for message in slack.messages]
    assert len(posted) == (not is_over)
    if is_over:
        return
    known = "above everything that 6 earlier runs reached (60 %)"
    assert f"The run's memory is at 78 % of 512 MB, {known}." in posted[0]
    (notice,) = search(search_server, "task-notices-*")["hits"]["hits"]
    assert notice["_id"] == f"{TASK_ID}/batch/memory"
    assert known in notice["_source"]["notice"]["message"]
