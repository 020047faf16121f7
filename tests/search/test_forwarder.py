"""The forwarder's handler against real search clusters, one of which is killed during a bulk
request.
"""

import json
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import requests

import handler
from profiler.core.timestamps import format_datetime
from profiler.forwarder.family_runs import FamilyRunReader
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.invocation import (
    DeliveryError,
    InvocationTime,
    PartialAnswerError,
    SearchClusterError,
)
from profiler.forwarder.notice_documents import schedule_notice_document
from profiler.forwarder.search_cluster.document_delivery import deliver_documents
from profiler.record.notice_model import encode_notice_line
from tests.http_server import FakeHttpServer
from tests.lambda_environment import forget_environment, moto_account
from tests.search.conftest import TWO_SERVERS
from tests.search.forwarding import (
    TEMPLATES,
    Context,
    Forward,
    call,
    confirm,
    event,
    report,
    search,
)
from tests.shown_runs import missed_notice, stuck_notice
from tools.search_server import SearchServer
from tools.waiting import LIMIT_SECONDS

pytestmark = pytest.mark.search


def test_repeated_deliveries_of_a_report_give_one_document_with_the_templates_mapping(
    forward: Forward, search_server: SearchServer
) -> None:
    payload = event("hello", report(), '{"json": 1}')
    for _ in range(3):
        assert forward(payload, Context()) == {
            "indexed": 1,
            "skipped": 2,
            "failed": 0,
            "untrusted": 0,
        }
    hits = search(search_server)["hits"]["hits"]
    assert [(hit["_index"], hit["_id"]) for hit in hits] == [("task-reports-2026.03", "0123/batch")]
    source = hits[0]["_source"]
    assert source["task"]["complete"] is True
    assert json.loads(source["record"])["record"]["taskId"] == "0123"
    forward(
        event(
            report("0124", metrics={"durationMs": 4000, "cpuUtilizationPercent": {"avg": 100.0}})
        ),
        Context(),
    )
    found = search(
        search_server,
        query={"term": {"task.family": "nightly"}},
        aggs={
            "cpu": {"avg": {"field": "usage.cpu.percent.avg"}},
            "by": {"terms": {"field": "event.outcome"}},
        },
    )
    assert found["hits"]["total"]["value"] == 2
    assert found["aggregations"]["cpu"]["value"] == 75.0
    assert found["aggregations"]["by"]["buckets"] == [{"key": "success", "doc_count": 2}]
    mapping = call(search_server, "GET", "task-reports-2026.03/_mapping")
    assert mapping["task-reports-2026.03"]["mappings"]["dynamic"] == "false"


def test_user_data_is_never_rejected(forward: Forward, search_server: SearchServer) -> None:
    """Huge texts, numbers out of range, odd times, unknown fields: all are taken, searchable or
    not.
    """
    odd = [
        report("1", family="f" * 20_000, container={"name": "batch", "image": "i" * 40_000}),
        report("2", startedAt="not a time", exitCode=2**62),
        report("3", metrics={"durationMs": 1e300, "networkRxBytes": 2**63 - 1, "cpuSeconds": -1.5}),
        report("4", newField={"a": {"b": [1, "x", None]}}, labels={"x": "y"}),
        report("5", sampling={"samples": 5}, cluster="Ω≈ç" * 500, gpuScope="instance"),
    ]
    assert forward(event(*odd), Context()) == {
        "indexed": 5,
        "skipped": 0,
        "failed": 0,
        "untrusted": 0,
    }
    assert search(search_server)["hits"]["total"]["value"] == 5


def test_a_rejected_document_does_not_delay_the_others(
    forward: Forward, search_server: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that somebody made without the template, an invalid report, and an id that no
    engine takes.
    """
    mappings = {"mappings": {"properties": {"task": {"type": "keyword"}}}}
    other = {"index_patterns": ["task-reports-2026.05"], "priority": 900, "template": mappings}
    call(search_server, "PUT", "_index_template/other", other)
    with moto_account(monkeypatch, "eu-west-1"):
        sqs = boto3.client("sqs")
        queue_url = sqs.create_queue(QueueName="failed")["QueueUrl"]
        monkeypatch.setenv("FAILED_ITEMS_QUEUE_URL", queue_url)
        forget_environment()
        bad = [
            report("1", startedAt="2026-05-01T00:00:00Z"),
            report("t" * 600),
            report("3").replace('"success"', "7"),
        ]
        assert forward(event(*bad, report("2")), Context()) == {
            "indexed": 1,
            "skipped": 0,
            "failed": 3,
            "untrusted": 0,
        }
        messages = sqs.receive_message(QueueUrl=queue_url, MaxNumberOfMessages=10)["Messages"]
    kept = [json.loads(message["Body"]) for message in messages]
    reasons = " ".join(failure["reason"] for failure in kept)
    assert len(kept) == 3
    assert "exceed 512 bytes" in reasons
    assert "Expected `str" in reasons
    assert "parsing_exception" in reasons
    assert [hit["_id"] for hit in search(search_server)["hits"]["hits"]] == ["2/batch"]


def setting(name: str, value: object) -> list[tuple[str, str, Any]]:
    return [("PUT", "_cluster/settings", {"persistent": {name: one}}) for one in (value, None)]


APRIL = "task-reports-2026.04"
# By the error: the request after which no run of April can be indexed, and the one that undoes it.
FAULTS: dict[str, list[tuple[str, str, Any]]] = {
    "validation_exception": setting("cluster.max_shards_per_node", 1),
    "index_not_found_exception": setting("action.auto_create_index", "false"),
    "cluster_block_exception": [
        ("PUT", f"{APRIL}/_settings", {"index.blocks.write": one}) for one in (True, None)
    ],
    "index_closed_exception": [("POST", f"{APRIL}/{verb}", None) for verb in ("_close", "_open")],
}


@pytest.mark.diagonal
@pytest.mark.parametrize("error", FAULTS)
def test_an_index_fault_raises_and_the_retry_writes_the_run(
    forward: Forward, search_server: SearchServer, error: str
) -> None:
    """On the first of a month; the run of the other month, whose index works, is written at
    once.
    """
    begin, end = FAULTS[error]
    for index in ("task-reports-2026.03", *([APRIL] if APRIL in begin[1] else [])):
        call(search_server, "PUT", index)
    payload = event(
        report(),
        report("next", startedAt="2026-04-01T00:00:00Z", finishedAt="2026-04-01T00:00:05Z"),
    )
    call(search_server, *begin)
    try:
        with pytest.raises(DeliveryError, match=error):
            forward(payload, Context())
        assert [hit["_id"] for hit in search(search_server)["hits"]["hits"]] == ["0123/batch"]
    finally:
        call(search_server, *end)
    assert forward(payload, Context()) == {"indexed": 2, "skipped": 0, "failed": 0, "untrusted": 0}


def test_a_strict_index_of_an_earlier_version_loses_no_run(
    forward: Forward, search_server: SearchServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its documents lack the fields that it refuses, and the log says which."""
    template = json.loads((TEMPLATES / "task-reports.json").read_text())["template"]
    fields = template["mappings"]["properties"]
    del fields["event"]["properties"]["ingested"]
    del fields["usage"]["properties"]["duration_ms"]
    del fields["monitor"]
    for objects in (template["mappings"], *fields.values()):
        if "properties" in objects:
            objects["dynamic"] = "strict"
    older = {"index_patterns": ["task-reports-2026.03"], "priority": 900, "template": template}
    call(search_server, "PUT", "_index_template/other", older)
    lines = [report("1", monitor={"version": "9"}), report("2", monitor={"version": "9"})]
    for _ in range(2):
        assert forward(event(*lines), Context())["indexed"] == 2
    said = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    # What exists is not told again when it arrived.
    first, again = (text for text in said if "task-reports-2026.03" in text)
    assert "event.ingested" in first
    assert "usage.duration_ms" in first
    assert "usage.duration_ms" in again
    assert "task-profiler kibana import" in first
    hits = search(search_server)["hits"]["hits"]
    assert sorted(hit["_id"] for hit in hits) == ["1/batch", "2/batch"]
    for source in (hit["_source"] for hit in hits):
        assert "ingested" not in source["event"]
        assert "duration_ms" not in source["usage"]
        assert source["task"]["family"] == "nightly"


@pytest.mark.parametrize("search_server", ["opensearch"], indirect=True)
@pytest.mark.parametrize("setting_name", ["default_pipeline", "final_pipeline"])
def test_a_pipeline_that_fails_loses_no_run(
    forward: Forward, search_server: SearchServer, setting_name: str
) -> None:
    """The pipeline is the operator's, as is its index: nothing goes to the failure queue. (The
    Elasticsearch of the tests has no processors.)
    """
    pipeline = "_ingest/pipeline/task-profiler-test"
    rename = {"rename": {"field": "owner", "target_field": "team"}}
    call(search_server, "PUT", pipeline, {"processors": [rename]})
    settings = {f"index.{setting_name}": "task-profiler-test"}
    call(search_server, "PUT", "task-reports-2026.03", {"settings": settings})
    try:
        with pytest.raises(DeliveryError, match=r"field \[owner\].*ingest pipeline.*mend it"):
            forward(event(report("1"), report("2")), Context())
    finally:
        cleared = {f"index.{setting_name}": "_none"}
        call(search_server, "PUT", "task-reports-2026.03/_settings", cleared)
        call(search_server, "DELETE", pipeline)
    assert forward(event(report("1"), report("2")), Context())["indexed"] == 2


@pytest.mark.parametrize("search_server", ["opensearch"], indirect=True)
@pytest.mark.parametrize("setting_name", ["default_pipeline", "final_pipeline"])
def test_what_a_pipeline_drops_is_said_and_not_counted_as_indexed(
    forward: Forward,
    search_server: SearchServer,
    setting_name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The operator wants it so: the invocation does not fail, and nothing is kept."""
    pipeline = "_ingest/pipeline/task-profiler-test"
    drop = {"drop": {"if": "ctx.task?.family == 'test'"}}
    call(search_server, "PUT", pipeline, {"processors": [drop]})
    settings = {f"index.{setting_name}": "task-profiler-test"}
    call(search_server, "PUT", "task-reports-2026.03", {"settings": settings})
    lines = (report("1"), report("2", family="test"), report("3", family="test"))
    try:
        for _ in range(2):  # the second time, an update of the first run changes nothing
            counts = {"indexed": 1, "skipped": 2, "failed": 0, "untrusted": 0}
            assert forward(event(*lines), Context()) == counts
            said = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
            (sentence,) = (text for text in said if "dropped" in text)
            assert "dropped 2 documents of task-reports-2026.03" in sentence
    finally:
        cleared = {f"index.{setting_name}": "_none"}
        call(search_server, "PUT", "task-reports-2026.03/_settings", cleared)
        call(search_server, "DELETE", pipeline)
    assert [hit["_id"] for hit in search(search_server)["hits"]["hits"]] == ["1/batch"]


def test_the_wrong_engine_is_named(
    opensearch: SearchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only Elasticsearch's client refuses another product."""
    monkeypatch.setenv("ELASTICSEARCH_URL", opensearch.url)
    monkeypatch.setenv("SEARCH_ENGINE", "elasticsearch")
    forget_environment()
    task_id = "0" * 32
    own = event(report(task_id), stream=f"ecs/batch/{task_id}")
    with pytest.raises(SearchClusterError, match="SEARCH_ENGINE=opensearch"):
        handler.forward_logs(own, Context())
    forget_environment()


def test_both_kinds_of_notices_are_indexed_and_their_fields_can_be_searched(
    forward: Forward, search_server: SearchServer
) -> None:
    line = stuck_notice()
    payload = event(
        encode_notice_line(line).decode(), stream=f"ecs/task-monitor/{line.record.task_id}"
    )
    for _ in range(2):
        assert forward(payload, Context()) == {
            "indexed": 1,
            "skipped": 0,
            "failed": 0,
            "untrusted": 0,
        }
    missed = schedule_notice_document(
        missed_notice(), encode_notice_line(missed_notice()).decode(), ForwarderSettings()
    )
    cluster = handler._search_cluster(handler._settings())
    assert deliver_documents(cluster, InvocationTime(Context()), [missed]).indexed == 1
    for query, dataset in (
        ({"notice.kind": "stuck"}, "task.notice"),
        ({"container.name": "batch"}, "task.notice"),
        ({"schedule.name": "nightly-etl"}, "schedule.notice"),
        ({"notice.due_at": "2026-11-20T03:00:00.000Z"}, "schedule.notice"),
    ):
        (hit,) = search(search_server, "task-notices-*", query={"term": query})["hits"]["hits"]
        assert hit["_index"] == "task-notices-2026.11"
        assert hit["_source"]["event"]["dataset"] == dataset
    fields = ["service.name", "orchestrator.cluster.name", "cloud.region", "task.family"]
    found = call(search_server, "GET", f"task-notices-*/_mapping/field/{','.join(fields)}")
    mappings = found["task-notices-2026.11"]["mappings"]
    assert [mappings[field]["mapping"][field.rpartition(".")[2]]["type"] for field in fields] == [
        "keyword"
    ] * 4


def test_the_usual_durations_are_those_of_the_last_successes_of_each_family_and_cluster(
    forward: Forward, search_server: SearchServer
) -> None:
    def runs(name: str, minutes: list[int], family: str = "nightly", **record: Any) -> list[str]:
        """Runs that ended in the last hour, the latest one first."""
        ends = [time.time() - 60 * (number + 1) for number in range(len(minutes))]
        return [
            report(
                f"{name}-{number}",
                family=family,
                finishedAt=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end)),
                metrics={"durationMs": one * 60_000},
                **{"accountId": "123456789012", "region": "eu-west-1", "cluster": "jobs", **record},
            )
            for number, (one, end) in enumerate(zip(minutes, ends, strict=True))
        ]

    forward(
        event(
            *runs("new-and-old", [*range(1, 21), 900, 900]),
            *runs("other-cluster", [7] * 8, cluster="other"),
            *runs("few", [7] * 7, family="weekly"),
            *runs("failed", [500] * 9, status="failure"),
            *runs("elsewhere", [500] * 9, region="us-east-1"),
            report("of-last-year", accountId="123456789012", region="eu-west-1", cluster="jobs"),
        ),
        Context(),
    )
    hits = search(search_server)["hits"]["hits"]
    confirm(search_server, *(hit["_source"]["task"]["id"] for hit in hits))
    forward(event(*runs("forged", [9_000] * 20)), Context())  # no event confirms them
    search(search_server)
    family = FamilyRunReader(
        cluster=handler._search_cluster(handler._settings()),
        prefix="task",
        timeout_seconds=LIMIT_SECONDS,
        now=datetime.now(UTC),
    )
    found = family.read_usual_durations(
        {"nightly", "weekly", "unknown"}, "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"
    )
    assert {place: (usual.p95_ms, usual.runs) for place, usual in found.items()} == {
        ("nightly", "jobs"): (19.05 * 60_000, 20),
        ("nightly", "other"): (7 * 60_000, 8),
    }


@TWO_SERVERS
def test_a_closed_index_is_a_part_of_a_familys_past_and_of_the_places_of_runs(
    forward: Forward, search_server: SearchServer
) -> None:
    now = datetime.now(UTC)
    finished = format_datetime(now - timedelta(minutes=5))
    place = {"accountId": "123456789012", "region": "eu-west-1"}
    forward(event(report("closed", finishedAt=finished, **place)), Context())
    (index,) = call(search_server, "GET", "task-reports-*")
    cluster = handler._search_cluster(handler._settings())
    family = FamilyRunReader(cluster=cluster, prefix="task", timeout_seconds=LIMIT_SECONDS, now=now)
    arn = "arn:aws:ecs:eu-west-1:123456789012:cluster/jobs"
    searched = f"{index}*,task-reports-2020.01*"
    for closed, is_whole in ((index, False), ("task-reports-2020.01", True)):
        if closed != index:
            call(search_server, "POST", f"{index}/_open?wait_for_active_shards=1")
            call(search_server, "PUT", closed)
        call(search_server, "POST", f"{closed}/_close")
        _, completeness = cluster.indices_of_runs(searched, ["closed/batch"], 60)
        assert completeness.sentences == (f"{closed} is closed",)
        if is_whole:
            assert family.read_usual_durations({"nightly"}, arn) == {}
        else:
            with pytest.raises(PartialAnswerError, match=f"{closed} is closed"):
                family.read_usual_durations({"nightly"}, arn)


CUT, UNANSWERED = "after half of the request", "after the write and before the answer"


class Relay(FakeHttpServer):
    """Passes requests on to a server, which it kills in the middle of the next bulk when told
    to.
    """

    def __init__(self, server: SearchServer) -> None:
        super().__init__()
        self.crash: str | None = None
        self.crashes: list[str] = []
        self._real = server
        self._restart: threading.Thread | None = None

    def serve(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as the server does; nothing, where it does not."""
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        crash, self.crash = self.crash, None
        request.close_connection = True
        if crash == CUT:
            self._send_half(request, body)
            self._kill(CUT)
            return
        try:
            answer = requests.request(
                request.command,
                self._real.url + request.path,
                data=body,
                headers=dict(request.headers),
                timeout=LIMIT_SECONDS,
            )
        except requests.RequestException:
            return
        if crash == UNANSWERED:
            assert answer.ok
            self._kill(UNANSWERED)
            return
        request.send_response(answer.status_code)
        for name in ("X-Elastic-Product", "Content-Type"):
            if name in answer.headers:
                request.send_header(name, answer.headers[name])
        request.send_header("Content-Length", str(len(answer.content)))
        request.end_headers()
        request.wfile.write(answer.content)

    def _send_half(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        address = urlsplit(self._real.url)
        head = (
            f"{request.requestline}\r\n{request.headers}".replace("\r\n", "\n")
            .replace("\n", "\r\n")
            .encode()
        )
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(head + body[: len(body) // 2])

    def _kill(self, crash: str) -> None:
        self._real.kill()
        self.crashes.append(crash)
        self._restart = threading.Thread(target=self._real.restart)
        self._restart.start()

    def wait_for_the_server(self) -> None:
        if self._restart is not None:
            self._restart.join()


@pytest.fixture
def relay(
    search_server: SearchServer, forward: Forward, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Relay]:
    served = Relay(search_server)
    monkeypatch.setenv("ELASTICSEARCH_URL", served.url)
    forget_environment()
    yield served
    served.wait_for_the_server()
    served.close()


@pytest.mark.parametrize(
    "search_server",
    # Two starts of a server take a fifth of this file's time.
    ["opensearch", pytest.param("elasticsearch8", marks=pytest.mark.slow)],
    indirect=True,
)
def test_a_server_killed_in_the_middle_of_a_bulk_loses_and_doubles_nothing(
    relay: Relay, forward: Forward, search_server: SearchServer
) -> None:
    size = 200
    for number, crash in enumerate((None, CUT, UNANSWERED)):
        relay.crash = crash
        payload = event(*(report(f"{number}-{one}") for one in range(size)))
        assert forward(payload, Context(180)) == {
            "indexed": size,
            "skipped": 0,
            "failed": 0,
            "untrusted": 0,
        }
        relay.wait_for_the_server()
    assert relay.crashes == [CUT, UNANSWERED]
    assert search(search_server, track_total_hits=True)["hits"]["total"]["value"] == 3 * size
