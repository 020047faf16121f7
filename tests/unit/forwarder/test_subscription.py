"""Subscription payloads, valid and invalid, from CloudWatch Logs and as the records of a Kinesis
data stream.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.forwarder import subscription
from profiler.forwarder.document_updates import Document
from profiler.forwarder.function_settings import ForwarderSettings, NoticeSettings
from profiler.forwarder.invocation import DeliveryError, PayloadError
from profiler.forwarder.line_kinds import InvalidReport, decode_report_line
from profiler.forwarder.notifications.running_task_notices import RunningTaskNotices
from profiler.forwarder.run_documents import report_document
from profiler.forwarder.search_cluster import document_delivery
from profiler.forwarder.search_cluster.bulk_client import bulk_lines
from profiler.forwarder.search_cluster.document_delivery import (
    DeliveryResult,
    FailedItem,
    deliver_documents,
    message_body,
)
from profiler.forwarder.subscription import (
    LineCounts,
    LineForwarder,
    LogEvent,
    decode_subscription_event,
)
from profiler.record.line_trust import TrustedGroups
from profiler.record.record_model import Report, decode
from profiler.record.stacks_line import StackStep
from profiler.runs.past_runs.record_lines import read_run_line
from tests.cases import each_case
from tests.fake_search import FakeCluster, FakeSearchCluster, fails, takes_all
from tests.fakes import FakeInvocationTime
from tests.log_subscriptions import (
    DOCUMENT,
    STREAM,
    TASK_ID,
    WRITTEN_MS,
    event,
    packed,
    packed_data,
    record,
    subscription_event,
)
from tests.shown_runs import waiting_stacks

CONTROL = {
    "messageType": "CONTROL_MESSAGE",
    "owner": "CloudwatchLogs",
    "logGroup": "",
    "logStream": "",
    "subscriptionFilters": [],
    "logEvents": [
        {"id": "", "timestamp": 1, "message": "CWL CONTROL MESSAGE: Checking health of destination"}
    ],
}
RECORD = {"taskId": TASK_ID, "container": {"name": "batch"}, "status": "success"}
REPORT = {
    "time": "2026-03-01T10:00:03Z",
    "type": "task.report",
    "schemaVersion": "1.0",
    "record": RECORD,
}


def forwarder(
    deliver: document_delivery.DeliverDocuments,
    store: list[FailedItem],
    settings: ForwarderSettings,
) -> LineForwarder:
    no_notices = RunningTaskNotices(
        NoticeSettings, channels=lambda _settings: [], now=lambda: datetime.now(UTC)
    )
    return LineForwarder(settings, deliver, store.extend, no_notices)


HELLO = LogEvent("1", 1772359202500, "hello")


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
def test_reads_gzip_and_zlib(compress: Any) -> None:
    payload = decode_subscription_event(event(DOCUMENT, compress))
    assert list(payload.log_events_or_failures()) == [HELLO]
    assert payload.owner == "111122223333"
    assert payload.log_group == "/ecs/jobs"
    assert payload.log_stream == f"ecs/batch/{TASK_ID}"


def damaged_document(*events: bytes) -> dict[str, Any]:
    document = json.dumps({**DOCUMENT, "logEvents": "EVENTS"}).encode()
    return packed(gzip.compress(document.replace(b'"EVENTS"', b"[" + b",".join(events) + b"]")))


GOOD = b'{"id": "1", "timestamp": 1772359202500, "message": "hello"}'


@pytest.mark.parametrize(
    "bad", ['{"id": "2", "message": 7}', '{"id": "2", "timestamp": -1, "message": "x"}', "null"]
)
def test_a_damaged_log_event_does_not_affect_the_others(bad: str) -> None:
    damaged, good = decode_subscription_event(
        damaged_document(bad.encode(), GOOD)
    ).log_events_or_failures()
    assert isinstance(damaged, FailedItem)
    assert damaged.document == bad
    assert good == HELLO
    assert damaged.reason.startswith("The log event is damaged: ")


@pytest.mark.parametrize(
    ("written", "read"),
    [(b"caf\xe9", "caf\ufffd"), (b"a\\ud800b \\ud83d\\ude00", "a\ufffdb \U0001f600")],
)
def test_a_byte_that_is_not_utf_8_and_a_lone_surrogate_are_replaced(
    written: bytes, read: str
) -> None:
    payload = decode_subscription_event(
        damaged_document(b'{"id": "2", "timestamp": 1, "message": "%s"}' % written)
    )
    assert list(payload.log_events_or_failures()) == [LogEvent("2", 1, read)]


@pytest.mark.parametrize("surrogate", [r"\ud800", r"\uDFFF", r"\ud800\ud800", r"\udc00x\ud83d"])
def test_a_lone_surrogate_in_a_report_is_replaced(surrogate: str) -> None:
    line = json.dumps({**REPORT, "note": r"kept: \ud800"}).replace('"batch"', f'"b{surrogate}"')
    payload = decode_subscription_event(subscription_event(line))
    (log_event,) = payload.log_events_or_failures()
    assert isinstance(log_event, LogEvent)
    # The name of a container with a surrogate is in no log stream's name but the monitor's.
    trust = TrustedGroups().trust_in_stream(
        payload.owner, "/ecs/jobs", f"ecs/task-monitor/{TASK_ID}"
    )
    document = subscription.document_of_log_event(payload, log_event, ForwarderSettings(), trust)
    assert isinstance(document, Document)
    assert "\ufffd" in document.id
    assert json.loads(document.fields["record"])["note"] == r"kept: \ud800"
    assert json.loads(document.fields["record"])["record"]["container"][
        "name"
    ] == document.id.removeprefix(f"{TASK_ID}/")


def cut(document: object) -> dict[str, Any]:
    return packed(base64.b64decode(event(document)["awslogs"]["data"])[:-12])


@each_case(
    ("bad", "message"),
    [
        ({}, "neither awslogs.data nor Records"),
        ({"awslogs": {"data": 5}}, "neither awslogs.data nor Records"),
        ([], "neither awslogs.data nor Records"),
        ({"awslogs": {"data": "no base64!"}}, "not base64"),
        (packed(b"plain"), "neither gzip nor zlib"),
        (cut(DOCUMENT), "is incomplete"),
        (
            packed(gzip.compress(json.dumps(DOCUMENT).encode()) + gzip.compress(b"{}")),
            "is followed by more",
        ),
        (event([1, 2]), "not a CloudWatch Logs document"),
        (event({"logEvents": 7}), "not a CloudWatch Logs document"),
        (packed(gzip.compress(b"{not json")), "not a CloudWatch Logs document"),
        (packed(gzip.compress(b"")), "not a CloudWatch Logs document"),
        (packed(gzip.compress(b"[" * 100_000)), "not a CloudWatch Logs document"),
    ],
)
def test_an_undecodable_event_is_an_error_in_one_sentence(bad: Any, message: str) -> None:
    with pytest.raises(PayloadError, match=message):
        decode_subscription_event(bad)


def test_an_event_that_unpacks_to_more_than_the_limit_is_an_error() -> None:
    bomb = gzip.compress(b" " * (subscription.MAX_PAYLOAD_BYTES + 10))
    with pytest.raises(PayloadError, match="unpacks to more than"):
        decode_subscription_event(packed(bomb))


@pytest.mark.slow
def test_at_most_five_mebibytes_of_messages_are_held_as_documents() -> None:
    held: list[int] = []

    def measure(documents: Sequence[Document]) -> DeliveryResult:
        held.append(sum(len(str(document.fields["message"])) for document in documents))
        return deliver_all(documents)

    settings = ForwarderSettings(forward_log_lines=True)
    payload = decode_subscription_event(
        subscription_event(*("x" * (number % 7000) for number in range(10_000)))
    )
    assert forwarder(measure, [], settings).forward_payload(payload).indexed == 10_000
    assert max(held) <= 5 * 1024 * 1024
    assert len(held) > sum(held) // (5 * 1024 * 1024)
    assert min(held[:-1]) > 2 * 1024 * 1024


@given(st.binary(max_size=300))
def test_any_data_is_a_payload_or_a_payload_error(data: bytes) -> None:
    for some in (data, gzip.compress(data)):
        try:
            decode_subscription_event(packed(some))
        except PayloadError:
            continue


# Valid JSON that Python's own encoder writes: lone surrogates, numbers of any length.
odd_text = st.text(
    st.characters(codec=None) | st.sampled_from("\ud800\udc00\x00\uffff"), max_size=20
)
odd_number = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
odd = st.none() | st.booleans() | odd_number | odd_text | st.lists(odd_number, max_size=2)
odd_record = st.fixed_dictionaries(
    {"taskId": st.just(TASK_ID) | odd},
    optional={
        "container": st.just({"name": "batch"}) | odd,
        "status": odd,
        "exitCode": odd,
        "startedAt": st.sampled_from(["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
        | odd,
        "metrics": st.dictionaries(
            st.sampled_from(["durationMs", "initDurationMs", "networkRxBytes"]), odd
        ),
        "tags": st.dictionaries(odd_text, odd_text, max_size=2) | odd,
    },
)
odd_report = st.builds(lambda record: json.dumps({**REPORT, "record": record}), odd_record)
damaged_report = odd_text.map(lambda text: '{"type": "task.report", ' + text)
odd_line = st.just(json.dumps(REPORT)) | odd_report | damaged_report | odd_text | odd
odd_event = odd | st.fixed_dictionaries(
    {}, optional={"id": odd, "timestamp": odd, "message": odd_line}
)


def deliver_all(documents: Sequence[Document]) -> DeliveryResult:
    """Accept all documents that the real delivery can send."""
    bulk_lines(documents)
    return deliver_documents(FakeCluster(takes_all), FakeInvocationTime(), documents)


@pytest.mark.parametrize("forward_log_lines", [False, True])
@given(events=st.lists(odd_event, max_size=5), noise=st.binary(max_size=3))
def test_every_line_is_indexed_or_in_the_failure_store_or_raised(
    *, events: list[Any], noise: bytes, forward_log_lines: bool
) -> None:
    """Only ordinary lines are skipped, and only without FORWARD_LOG_LINES; reports of other
    tasks and containers are untrusted.
    """
    unpacked = (
        json.dumps({**DOCUMENT, "logEvents": events})
        .encode()
        .replace(b"ecs/batch", noise + b"ecs/batch", 1)
    )
    store = list[FailedItem]()
    try:
        payload = decode_subscription_event(packed(gzip.compress(unpacked)))
    except PayloadError:
        return
    settings = ForwarderSettings(forward_log_lines=forward_log_lines)
    counts = forwarder(deliver_all, store, settings).forward_payload(payload)
    assert counts.indexed + counts.skipped + counts.failed + counts.untrusted == len(events)
    assert counts.failed == len(store)
    assert all(json.loads(message_body(failure)) for failure in store)
    ordinary = [
        one
        for one in events
        if isinstance(one, dict) and "task.report" not in str(one.get("message"))
    ]
    assert counts.skipped <= (0 if forward_log_lines else len(ordinary))


@each_case(
    "line",
    [
        "",
        "plain text",
        '{"json": true}',
        '{"type": "platform.report"}',
        'we saw "task.report" in a log',
        '{"message": "a \\"task.report\\" quoted"}',
        '["task.report"]',
        '{"type": 5, "x": "task.report"}',
    ],
)
def test_lines_of_other_programs_are_skipped(line: str) -> None:
    assert decode_report_line(line) is None


LONG_STEP = StackStep(
    offset_ms=0, duration_ms=1, stacks={f"<module> (job.py);f{n} (a.py)": n for n in range(5000)}
)
STACKS = msgspec.json.encode(replace(waiting_stacks(), steps=(LONG_STEP,))).decode()


@pytest.mark.parametrize(
    "line", [STACKS, STACKS[: 16 * 1024], "  " + STACKS], ids=["whole", "cut", "indented"]
)
@pytest.mark.parametrize("forward_log_lines", [True, False])
def test_call_stacks_are_never_indexed(line: str, *, forward_log_lines: bool) -> None:
    """The line before the report may have 200 KB. A line that quotes one, or comes from another
    program, is a line.
    """
    assert len(STACKS) > 150_000
    quoted = [f"saw {STACKS}", json.dumps({"message": STACKS}), '{"type":"task.other"}']
    store, documents = list[FailedItem](), list[Document]()

    def write(part: Sequence[Document]) -> DeliveryResult:
        documents.extend(part)
        return DeliveryResult(indexed=len(part))

    lines = [line, json.dumps(REPORT), *quoted]
    payload = decode_subscription_event(subscription_event(*lines))
    counts = forwarder(
        write, store, ForwarderSettings(forward_log_lines=forward_log_lines)
    ).forward_payload(payload)
    skipped = 1 if forward_log_lines else 4
    assert counts == LineCounts(indexed=5 - skipped, skipped=skipped)
    assert store == []
    texts = [
        str(document.fields.get("message", document.fields.get("record"))) for document in documents
    ]
    assert texts == [json.dumps(REPORT), *(quoted if forward_log_lines else [])]


def test_huge_and_deeply_nested_lines_are_read_or_rejected() -> None:
    wide = {
        **REPORT,
        "extra": {f"k{index}": index for index in range(10_000)},
        "text": "x" * 1_000_000,
    }
    assert isinstance(decode_report_line(json.dumps(wide)), InvalidReport)
    deep = '{"type": "task.report", "record": ' + "[" * 100_000
    assert isinstance(decode_report_line(deep), InvalidReport)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_is_not_json_is_missing_as_on_the_command_line(number: str) -> None:
    measured = json.dumps({**REPORT, "record": {**RECORD, "metrics": {"durationMs": "NUMBER"}}})
    line = measured.replace('"NUMBER"', number)
    report = decode_report_line(line)
    assert isinstance(report, Report)
    assert report == decode(line)
    found = read_run_line(line.encode())
    assert found is not None
    assert found.head.type == "task.report"
    assert report.record.metrics.duration_ms is None
    assert isinstance(report_document(report, line, ForwarderSettings()), Document)


WITH_QUEUE, WITHOUT_QUEUE = (
    ForwarderSettings(failed_items_queue_url="https://sqs/q"),
    ForwarderSettings(),
)


def reports(*containers: str) -> str:
    """The reports of several containers of a task, in the monitor's stream."""
    lines = [
        json.dumps({**REPORT, "record": {**RECORD, "container": {"name": name}}})
        for name in containers
    ]
    events = [
        {"id": str(index), "timestamp": WRITTEN_MS, "message": line}
        for index, line in enumerate(lines)
    ]
    stream = f"ecs/task-monitor/{TASK_ID}"
    return packed_data({**DOCUMENT, "logStream": stream, "logEvents": events})


def forwarded(
    cluster: FakeCluster,
    store: list[FailedItem],
    settings: ForwarderSettings,
    *records: dict[str, Any],
) -> tuple[LineCounts, tuple[str, ...], list[str]]:
    """The counts, the records to deliver again, and the warnings."""
    warnings: list[str] = []
    deliver = partial(deliver_documents, cluster, FakeInvocationTime())
    counts, repeated = forwarder(deliver, store, settings).forward_kinesis_records(
        records, warnings.append
    )
    return counts, repeated, warnings


def test_all_records_are_one_bulk_request() -> None:
    cluster, store = FakeCluster(takes_all), list[FailedItem]()
    records = [record(number, reports(f"a{number}", f"b{number}")) for number in range(100)]
    counts, repeated, _ = forwarded(
        cluster, store, WITH_QUEUE, *records, record(100, packed_data(CONTROL))
    )
    assert counts == LineCounts(indexed=200)
    assert repeated == ()
    assert [len(request) for request in cluster.batches] == [200]


def line_at(
    written_ms: int, status: str = "success", *, is_checkpoint: bool = False, number: int = 0
) -> dict[str, Any]:
    """A log event with a line of the same run."""
    line = {
        **REPORT,
        "type": "task.checkpoint" if is_checkpoint else "task.report",
        "time": format_ms(written_ms * NS_PER_MS),
        "record": {**RECORD, "status": status},
    }
    return {"id": f"{written_ms}-{number}", "timestamp": written_ms, "message": json.dumps(line)}


def lines_of_stream(*events: dict[str, Any], stream: str = f"ecs/batch/{TASK_ID}") -> str:
    return packed_data({**DOCUMENT, "logStream": stream, "logEvents": list(events)})


def test_of_one_run_the_newest_report_of_a_delivery_is_one_update() -> None:
    events = [line_at(WRITTEN_MS + number, "failure", number=number) for number in range(400)]
    newest = line_at(WRITTEN_MS + 400, "stopped")
    older = line_at(WRITTEN_MS - 1)
    data = lines_of_stream(*events, newest, older)
    assert len(base64.b64decode(data)) < 9_800
    cluster = FakeSearchCluster()
    time = FakeInvocationTime(60)
    line_forwarder = forwarder(partial(deliver_documents, cluster, time), [], ForwarderSettings())
    counts, repeated = line_forwarder.forward_kinesis_records(
        [record(1, data), record(2, lines_of_stream(older))], print
    )
    assert counts == LineCounts(indexed=1, skipped=402)
    assert repeated == ()
    assert cluster.requests == 1
    assert time.pauses == []
    (document,) = cluster.documents.values()
    assert document["task"]["status"] == "stopped"


def test_many_streams_that_speak_of_one_run_take_no_time() -> None:
    """Such as those of containers on EC2 that name another task, of which none is proven."""
    cluster = FakeSearchCluster()
    time = FakeInvocationTime(60)
    line_forwarder = forwarder(partial(deliver_documents, cluster, time), [], ForwarderSettings())
    records = [
        record(number, lines_of_stream(line_at(WRITTEN_MS + number), stream=f"{number:064x}"))
        for number in range(400)
    ]
    counts, repeated = line_forwarder.forward_kinesis_records(records, print)
    assert counts.indexed == 400
    assert repeated == ()
    assert sum(time.pauses) < 1
    (document,) = cluster.documents.values()
    assert document["task"]["voucher_stream"] == f"{399:064x}"


def test_of_equal_times_the_last_line_counts() -> None:
    cluster = FakeSearchCluster()
    events = [line_at(WRITTEN_MS, status) for status in ("failure", "stopped", "success")]
    line_forwarder = forwarder(
        partial(deliver_documents, cluster, FakeInvocationTime(60)), [], ForwarderSettings()
    )
    line_forwarder.forward_kinesis_records([record(1, lines_of_stream(*events))], print)
    (document,) = cluster.documents.values()
    assert document["task"]["status"] == "success"


def test_every_checkpoint_is_a_document_and_a_repeated_one_is_written_once() -> None:
    cluster = FakeCluster(takes_all)
    events = [line_at(WRITTEN_MS + 1000 * (n % 40), is_checkpoint=True) for n in range(400)]
    counts, _, _ = forwarded(
        cluster, [], WITH_QUEUE, record(1, lines_of_stream(*events, line_at(WRITTEN_MS)))
    )
    assert counts == LineCounts(indexed=41, skipped=360)
    assert len(set(cluster.batches[0])) == 41


def test_a_line_of_another_stream_or_account_hides_no_line_of_the_task() -> None:
    """Which of them counts is decided where the stored document is known."""
    cluster = FakeCluster(takes_all)
    newer = [line_at(WRITTEN_MS + 1)]
    in_container_stream = lines_of_stream(*newer, stream="f" * 64)
    of_other_account = packed_data({**DOCUMENT, "owner": "999988887777", "logEvents": newer})
    counts, _, _ = forwarded(
        cluster,
        [],
        WITH_QUEUE,
        record(1, lines_of_stream(line_at(WRITTEN_MS))),
        record(2, in_container_stream),
        record(3, of_other_account),
    )
    assert counts == LineCounts(indexed=3)


BAD_DATA: list[object] = [
    None,
    5,
    "no base64!",
    base64.b64encode(b"plain").decode(),
    packed_data([1]),
]


@each_case("settings", [WITH_QUEUE, WITHOUT_QUEUE], ids=["queue", "no queue"])
@each_case("data", BAD_DATA, ids=["missing", "number", "no base64", "no gzip", "no document"])
def test_an_undecodable_record_is_kept_and_does_not_block_its_shard(
    data: object, settings: ForwarderSettings
) -> None:
    cluster, store = FakeCluster(takes_all), list[FailedItem]()
    records = record(1, reports("a")), record(2, data), record(3, reports("b"))
    counts, repeated, warnings = forwarded(cluster, store, settings, *records)
    assert set(cluster.taken) == {f"{TASK_ID}/a", f"{TASK_ID}/b"}
    if settings is WITH_QUEUE:
        assert counts == LineCounts(indexed=2, failed=1)
        assert repeated == ()
        place = {
            "eventID": "shardId-000000000000:2",
            "eventSourceARN": STREAM,
            "sequenceNumber": "2",
        }
        assert [failure.document for failure in store] == [{**place, "data": data}]
    else:
        assert repeated == ("2",)
        assert store == []
        assert "Record 2 of the stream cannot be decoded" in warnings[0]


def test_a_cluster_that_stays_down_fails_the_invocation_and_nothing_is_kept() -> None:
    store = list[FailedItem]()
    with pytest.raises(DeliveryError):
        forwarded(
            FakeCluster(fails(503)), store, WITH_QUEUE, record(1, "bad"), record(2, reports("a"))
        )
    assert store == []


GOOD_DATA = (
    reports("a", "b"),
    packed_data(CONTROL),
    packed_data({**DOCUMENT, "logEvents": [5, "x"]}),
)
bad_data = (
    st.none()
    | st.text(max_size=9)
    | st.binary(max_size=30).map(lambda data: packed_data(data.hex()))
)


@given(
    st.lists(st.sampled_from(GOOD_DATA) | bad_data, max_size=6),
    st.sampled_from([WITH_QUEUE, WITHOUT_QUEUE]),
)
def test_every_record_is_indexed_kept_or_reported(
    all_data: Sequence[object], settings: ForwarderSettings
) -> None:
    store = list[FailedItem]()
    records = [record(number, data) for number, data in enumerate(all_data)]
    counts, repeated, _ = forwarded(FakeCluster(takes_all), store, settings, *records)
    kept = {one.document["sequenceNumber"] for one in store if isinstance(one.document, dict)}
    for number, data in enumerate(all_data):
        assert (str(number) in kept) + (str(number) in repeated) == (data not in GOOD_DATA)
    assert counts.indexed == 2 * (GOOD_DATA[0] in all_data)  # a repeated record writes once
    assert counts.failed == len(store)
    assert not repeated or settings is WITHOUT_QUEUE
