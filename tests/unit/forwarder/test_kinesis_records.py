"""Records of a Kinesis data stream: delivery in common requests, kept failures, and failed records."""

import base64
import gzip
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.forwarder.delivery_errors import DeliveryError, PayloadError
from profiler.forwarder.function_settings import ForwarderSettings
from profiler.forwarder.kinesis_records import StreamResult, forward_records, is_stream_event
from profiler.forwarder.search_cluster.document_delivery import deliver
from profiler.forwarder.subscription import Counts
from tests.fakes import FakeInvocationTime
from tests.unit.forwarder.search_cluster.test_document_delivery import FakeCluster, KeepingStore, fails, takes_all
from tests.unit.forwarder.test_subscription import CONTROL, DOCUMENT, REPORT, RecordingWriter

STREAM = "arn:aws:kinesis:eu-west-1:111122223333:stream/reports"
WITH_QUEUE, WITHOUT_QUEUE = ForwarderSettings(failed_items_queue_url="https://sqs/q"), ForwarderSettings()


def record(number: int, data: object) -> dict[str, Any]:
    """A record as Lambda delivers it, without the members that the forwarder does not read."""
    return {
        "kinesis": {"sequenceNumber": str(number), "data": data},
        "eventID": f"shardId-000000000000:{number}",
        "eventSource": "aws:kinesis",
        "eventSourceARN": STREAM,
    }


def packed(document: object) -> str:
    return base64.b64encode(gzip.compress(json.dumps(document).encode(), mtime=0)).decode()


def reports(*task_ids: str) -> str:
    lines = [json.dumps({**REPORT, "record": {**REPORT["record"], "taskId": task_id}}) for task_id in task_ids]  # type: ignore[dict-item]
    events = [{"id": str(index), "timestamp": 1, "message": line} for index, line in enumerate(lines)]
    return packed({**DOCUMENT, "logEvents": events})


def forwarded(
    cluster: FakeCluster, store: KeepingStore, settings: ForwarderSettings, *records: dict[str, Any]
) -> tuple[StreamResult, list[str]]:
    warnings: list[str] = []
    deliver_documents = partial(deliver, cluster, FakeInvocationTime(), lambda: 0.5)
    event = {"Records": list(records)}
    return forward_records(event, settings, deliver_documents, store.keep, warnings.append), warnings


def test_all_records_are_one_bulk_request() -> None:
    cluster = FakeCluster(takes_all)
    records = [record(number, reports(f"a{number}", f"b{number}")) for number in range(100)]
    result, _ = forwarded(cluster, KeepingStore(), WITH_QUEUE, *records, record(100, packed(CONTROL)))
    assert result == StreamResult(counts=Counts(indexed=200))
    assert result.as_response() == {"batchItemFailures": []}
    assert [len(request) for request in cluster.batches] == [200]


BAD_DATA: list[object] = [None, 5, "no base64!", base64.b64encode(b"plain").decode(), packed([1])]


@pytest.mark.parametrize("settings", [WITH_QUEUE, WITHOUT_QUEUE], ids=["queue", "no queue"])
@pytest.mark.parametrize("data", BAD_DATA, ids=["missing", "number", "no base64", "no gzip", "no document"])
def test_an_undecodable_record_is_kept_and_does_not_block_its_shard(data: object, settings: ForwarderSettings) -> None:
    cluster, store = FakeCluster(takes_all), KeepingStore()
    records = record(1, reports("a")), record(2, data), record(3, reports("b"))
    result, warnings = forwarded(cluster, store, settings, *records)
    assert set(cluster.taken) == {"a/batch", "b/batch"}
    if settings is WITH_QUEUE:
        assert result == StreamResult(counts=Counts(indexed=2, failed=1))
        assert [failure.document for failure in store.kept] == [
            {"eventID": "shardId-000000000000:2", "eventSourceARN": STREAM, "sequenceNumber": "2", "data": data}
        ]
    else:
        assert result.as_response() == {"batchItemFailures": [{"itemIdentifier": "2"}]}
        assert store.kept == []
        assert "Record 2 of the stream cannot be decoded" in warnings[0]


def test_a_cluster_that_stays_down_fails_the_invocation_and_nothing_is_kept() -> None:
    store = KeepingStore()
    with pytest.raises(DeliveryError):
        forwarded(FakeCluster(fails(503)), store, WITH_QUEUE, record(1, "bad"), record(2, reports("a")))
    assert store.kept == []


def test_records_of_another_source_are_an_error() -> None:
    event = {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]}
    assert is_stream_event(event)
    with pytest.raises(PayloadError, match="correct the function's trigger"):
        forward_records(event, WITH_QUEUE, RecordingWriter().deliver, KeepingStore().keep, print)


GOOD_DATA = (reports("a", "b"), packed(CONTROL), packed({**DOCUMENT, "logEvents": [5, "x"]}))
bad_data = st.none() | st.text(max_size=9) | st.binary(max_size=30).map(lambda data: packed(data.hex()))


@given(st.lists(st.sampled_from(GOOD_DATA) | bad_data, max_size=6), st.sampled_from([WITH_QUEUE, WITHOUT_QUEUE]))
def test_every_record_is_indexed_kept_or_reported(all_data: Sequence[object], settings: ForwarderSettings) -> None:
    store = KeepingStore()
    records = [record(number, data) for number, data in enumerate(all_data)]
    result, _ = forwarded(FakeCluster(takes_all), store, settings, *records)
    kept = {one.document["sequenceNumber"] for one in store.kept if isinstance(one.document, dict)}
    for number, data in enumerate(all_data):
        assert (str(number) in kept) + (str(number) in result.repeated) == (data not in GOOD_DATA)
    assert result.counts.indexed == 2 * all_data.count(GOOD_DATA[0])
    assert result.counts.failed == len(store.kept)
    assert not result.repeated or settings is WITHOUT_QUEUE
