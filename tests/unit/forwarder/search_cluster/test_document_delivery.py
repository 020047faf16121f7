"""Delivery to a search cluster with the failures of real ones."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from profiler.core.aws_signature import NO_SERVERLESS
from profiler.forwarder.document_updates import Document
from profiler.forwarder.invocation import DeliveryError, SearchClusterError
from profiler.forwarder.search_cluster import document_delivery
from profiler.forwarder.search_cluster.bulk_client import ItemResult, bulk_lines, bulk_results
from profiler.forwarder.search_cluster.document_delivery import (
    MAX_DOCUMENTS_PER_REQUEST,
    DeliveryResult,
    FailedItem,
    deliver_documents,
    log_failures,
    send_failures,
)
from tests.cases import each_case
from tests.fake_search import Answer, FakeCluster, documents, fails, takes_all
from tests.fakes import FakeInvocationTime


def items(error: str | None = None, **statuses: int) -> Answer:
    """A status for each document id, and 200 for all others."""
    return lambda batch: [
        ItemResult(
            status=status,
            reason="because" if status >= 300 else None,
            error=error if status >= 300 else None,
        )
        for status in (statuses.get(f"n{document.id}", 200) for document in batch)
    ]


def delivered_documents(
    cluster: FakeCluster, count: int = 3, time: FakeInvocationTime | None = None
) -> DeliveryResult:
    return deliver_documents(cluster, time or FakeInvocationTime(60), documents(count))


@pytest.mark.parametrize("status", [429, 502, 503, 504, None])
def test_temporary_failures_are_retried_with_growing_pauses(status: int | None) -> None:
    cluster = FakeCluster(fails(status), fails(status), fails(status), takes_all)
    time = FakeInvocationTime(60)
    assert delivered_documents(cluster, time=time).indexed == 3
    assert time.pauses == [0.4, 0.8, 1.6]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 0, 500])
def test_any_other_failure_of_a_request_is_raised_at_once(status: int) -> None:
    cluster = FakeCluster(fails(status))
    with pytest.raises(SearchClusterError, match=f"HTTP {status}"):
        delivered_documents(cluster)
    assert len(cluster.batches) == 1


def test_a_request_that_is_too_large_is_halved_until_the_large_document_is_alone() -> None:
    def too_large_with_two(batch: Sequence[Document]) -> list[ItemResult]:
        if any(document.id == "2" for document in batch):
            raise SearchClusterError("HTTP 413", status=413)
        return takes_all(batch)

    cluster = FakeCluster(too_large_with_two)
    delivered = delivered_documents(cluster, 5)
    assert delivered.indexed == 4
    (rejected,) = delivered.rejected
    assert rejected.document == {"index": "task-reports-2026.03", "id": "2", "fields": {"n": 2}}


@each_case(
    ("status", "error"),
    [
        (401, None),
        (403, "cluster_block_exception"),
        (404, "index_not_found_exception"),
        (400, "validation_exception"),
        (400, "index_closed_exception"),
        (400, "strict_dynamic_mapping_exception"),
        (400, "routing_missing_exception"),
        (400, "document_source_missing_exception"),
        (400, "invalid_index_name_exception"),
        (500, None),
    ],
)
def test_an_index_fault_raises_after_the_other_documents_are_written(
    status: int, error: str | None
) -> None:
    cluster = FakeCluster(items(error, n1=status))
    with pytest.raises(DeliveryError, match=r"because.*the others are written"):
        delivered_documents(cluster)
    assert sorted(cluster.taken) == ["0", "2"]


def refused(
    status: int, error: str, reason: str | None = None, caused_by: str | None = None
) -> dict[str, Any]:
    """The item of a refused document, as both engines write it."""
    told: dict[str, Any] = {"type": error, "reason": reason}
    if caused_by is not None:
        told["caused_by"] = {"type": "illegal_argument_exception", "reason": caused_by}
    return {"update": {"status": status, "error": told}}


ARGUMENT = "illegal_argument_exception"
PARSING = "mapper_parsing_exception"
SHARDS = (
    "Validation Failed: 1: this action would add [2] total shards, but this cluster currently has "
    "[1000]/[1000] maximum shards open;"
)
ZONES = (
    "Validation Failed: 1: expected total copies needs to be a multiple of total awareness "
    "attributes [3];"
)
# Elasticsearch from 7.8 on, and OpenSearch; 403 before.
FULL = (
    "index [task-reports-2026.03] blocked by: [TOO_MANY_REQUESTS/12/disk usage exceeded "
    "flood-stage watermark, index has read-only-allow-delete block];"
)
NO_IDS = "Document ID is not supported in create/index operation request"
# The fault is the index's or the cluster's: keep the documents, and try again.
OF_INDEX = [
    refused(400, "validation_exception", SHARDS),  # the elected master
    refused(400, ARGUMENT, SHARDS),  # every other node
    refused(400, ARGUMENT, f"{SHARDS[:-1]} normal shards open;"),
    refused(400, ARGUMENT, "Limit of total fields [1000] in index [x] has been exceeded"),
    refused(
        400,
        PARSING,
        "failed to parse",
        "Limit of total fields [5] has been exceeded while adding new fields [3]",
    ),
    refused(
        400,
        "document_parsing_exception",
        "[1:2047] failed to parse: Limit of total fields [5] has been exceeded while adding new "
        "fields [3]",
    ),
    refused(400, "validation_exception", ZONES),
    refused(
        400,
        ARGUMENT,
        "Alias [x] has more than one index associated with it [x-2, x-1], can't execute a single "
        "index op",
    ),
    refused(400, ARGUMENT, "no write index is defined for alias [task-reports-2026.03]."),
    refused(400, ARGUMENT, "only write ops with an op_type of create are allowed in data streams"),
    refused(400, ARGUMENT, "pipeline with id [audit] does not exist"),
    # A failed processor of the index's pipeline.
    refused(400, ARGUMENT, "field [owner] doesn't exist"),
    refused(400, ARGUMENT, "field [service] not present as part of path [service.name]"),
    refused(400, ARGUMENT, "Provided Grok expressions do not match field value: [x]"),
    refused(400, "script_exception", "runtime error", "no such field [owner]"),
    refused(500, "fail_processor_exception", "this document lacks the field owner"),
    # An index without our template, and a data stream of time series.
    refused(400, ARGUMENT, "mapper [cost.usd] cannot be changed from type [long] to [float]"),
    refused(
        400,
        ARGUMENT,
        "the document timestamp [2026-03-01T10:00:00.000Z] is outside of ranges of currently "
        "writable indices [[2026-03-08T08:00:00.000Z,2026-03-08T12:00:00.000Z]]",
    ),
    refused(
        400,
        ARGUMENT,
        "Rejecting mapping update to [x] as the final mapping would have more than 1 type: [_doc, "
        "doc]",
    ),
    refused(
        400,
        ARGUMENT,
        "unknown setting [index.foo] please check that any required plugins are installed, or "
        "check the breaking changes documentation for removed settings",
    ),
    refused(400, ARGUMENT, "component template [base] does not exist"),
    refused(400, ARGUMENT, "Custom Analyzer [german] failed to find tokenizer under name [x]"),
    refused(400, "invalid_index_template_exception", "index_template [x] invalid, cause [y]"),
    refused(
        400,
        PARSING,
        "Failed to parse mapping [_doc]: analyzer [german] has not been configured in mappings",
    ),
    refused(
        400,
        PARSING,
        "Failed to parse mapping: No handler for type [flattened] declared on field [record]",
    ),
    refused(400, PARSING, "No handler for type [flattened] declared on field [labels]"),
    refused(400, "resource_already_exists_exception", "index [x/abc] already exists"),
    refused(400, "invalid_index_name_exception", "Invalid index name [X], must be lowercase"),
    refused(400, "invalid_alias_name_exception", "Invalid alias name [x]: an index exists"),
    refused(400, "index_closed_exception", "closed"),
    refused(400, "strict_dynamic_mapping_exception", "dynamic introduction of [a] within [_doc]"),
    refused(400, "routing_missing_exception", "routing is required for [_doc]/[1]"),
    refused(400, "document_source_missing_exception", "[1]: document source missing"),
    refused(401, "security_exception", "missing authentication credentials"),
    refused(403, "security_exception", "action [indices:admin/auto_create] is unauthorized"),
    refused(403, "cluster_block_exception", "blocked by: [FORBIDDEN/8/index write (api)];"),
    refused(403, "cluster_block_exception", "blocked by: [FORBIDDEN/12/index read-only];"),
    refused(404, "index_not_found_exception", "no such index [x] and auto_create is false"),
    refused(429, "cluster_block_exception", FULL),
    refused(400, ARGUMENT, NO_IDS),
    refused(500, "process_cluster_event_timeout_exception", "failed to process (put-mapping)"),
    refused(500, "illegal_state_exception", None),
]
# The cluster will never accept the document.
OF_DOCUMENT = [
    refused(
        400,
        PARSING,
        "failed to parse field [task.exit_code] of type [integer] in document with id '1/batch'. "
        "Preview of field's value: 'x'",
        'For input string: "x"',
    ),
    refused(400, "document_parsing_exception", "[1:22] failed to parse: invalid"),
    refused(400, PARSING, "failed to parse", "field name cannot be an empty string"),
    refused(
        400,
        PARSING,
        "failed to parse",
        "Limit of mapping depth [1] has been exceeded due to object field [task]",
    ),
    refused(400, PARSING, "failed to parse", "The depth of the field has exceeded the limit [1]"),
    refused(400, PARSING, "object mapping for [task] tried to parse [task] as object"),
    refused(400, ARGUMENT, 'Document contains at least one immense term in field="task.family"'),
    refused(400, ARGUMENT, "id [1/batch] is too long, must be no longer than 512 bytes but was: 9"),
    refused(400, PARSING, "The number of nested documents has exceeded the limit for field [a]"),
    refused(413, "content_too_large", "too large"),
]


def answers(*refused_items: dict[str, Any]) -> Answer:
    """These items, and success for all further documents."""

    def answer(batch: Sequence[Document]) -> list[ItemResult]:
        accepted = {"update": {"status": 201, "result": "created"}}
        items = [*refused_items, *[accepted] * len(batch)][: len(batch)]
        return bulk_results({"items": items}, len(batch))

    return answer


@each_case("item", OF_INDEX)
@each_case("count", [1, 3])
def test_an_index_that_takes_no_document_refuses_none_of_them_for_good(
    item: dict[str, Any], count: int
) -> None:
    with pytest.raises(DeliveryError, match="did not accept some documents"):
        delivered_documents(FakeCluster(answers(*[item] * count)), count)


EVEN_COPIES = "Its zones need 3 copies of each index: set cluster.default_number_of_replicas to 2."
MORE_SPACE = "Delete old indices, or add disk space: the search cluster then takes documents again."
FEWER_SHARDS = "Delete old indices, or raise cluster.max_shards_per_node."
PRIVILEGES = "Give the forwarder's user the privileges index and auto_configure on the indices."


DATA_STREAMS = (
    "An index template of others makes data streams of these names: run `task-profiler kibana "
    "import`, which names it."
)
PIPELINE = (
    "An ingest pipeline of the index fails (index.default_pipeline or index.final_pipeline): mend "
    "it, or take it off the index and its template."
)
READ_ONLY = (
    "Set index.blocks.read_only of task-reports-2026.03 to false: somebody has made it read-only."
)
CLOSED = (
    "Open the index task-reports-2026.03, or the one behind this alias: it is closed (POST "
    "task-reports-2026.03/_open)."
)
NO_WRITE_INDEX = (
    "Set is_write_index for one index of the alias task-reports-2026.03, or remove the alias."
)
OTHER_MAPPING = (
    "The index was made without the index templates: run task-profiler kibana import, reindex it "
    "into an index with the same prefix, and delete it."
)


@each_case(
    ("item", "sentence"),
    [
        # OpenSearch 2.19.1 with three balanced zones: the elected node, and the others.
        (refused(400, "validation_exception", ZONES), EVEN_COPIES),
        (refused(400, ARGUMENT, ZONES), EVEN_COPIES),
        (
            refused(
                400,
                ARGUMENT,
                "Validation Failed: 1: this action would add [3] total shards, but this cluster "
                "currently has [3]/[3] maximum shards open;",
            ),
            FEWER_SHARDS,
        ),
        (
            refused(
                400,
                "validation_exception",
                "Validation Failed: 1: this action would add [2] shards, but this cluster "
                "currently has [1]/[2] maximum normal shards open;",
            ),
            FEWER_SHARDS,
        ),
        *(
            (
                refused(400, error, reason),
                OTHER_MAPPING,
            )
            for error, reason in (
                (ARGUMENT, "Limit of total fields [1000] in index [x] has been exceeded"),
                (ARGUMENT, "the final mapping would have more than 1 type: [_doc, t]"),
                (ARGUMENT, "mapper [task.id] cannot be changed from type [long] to [text]"),
                ("strict_dynamic_mapping_exception", "dynamic introduction of [a] within [_doc]"),
            )
        ),
        (
            refused(
                403,
                "cluster_block_exception",
                "index [task-reports-2026.07] blocked by: [FORBIDDEN/8/index write (api)];",
            ),
            "Run `task-profiler kibana import`, which opens what a lifecycle policy has closed.",
        ),
        (refused(429, "cluster_block_exception", FULL), MORE_SPACE),
        (
            refused(
                403,
                "index_create_block_exception",
                "blocked by: [FORBIDDEN/10/cluster create-index blocked (api)];",
            ),
            MORE_SPACE,
        ),
        (refused(400, ARGUMENT, NO_IDS), NO_SERVERLESS),
        (
            refused(
                400,
                ARGUMENT,
                "only write ops with an op_type of create are allowed in data streams",
            ),
            DATA_STREAMS,
        ),
        (
            refused(
                400,
                ARGUMENT,
                "the document timestamp [x] is outside of ranges of currently writable indices []",
            ),
            DATA_STREAMS,
        ),
        *(
            (refused(status, error, reason), PIPELINE)
            for status, error, reason in (
                (400, ARGUMENT, "field [owner] doesn't exist"),
                (400, ARGUMENT, "pipeline with id [audit] does not exist"),
                (400, "script_exception", "runtime error"),
                (500, "fail_processor_exception", "no owner"),
                (500, "illegal_state_exception", "final pipeline [x] can't change the index"),
            )
        ),
        (refused(401, "security_exception", "missing authentication credentials"), PRIVILEGES),
        (
            refused(403, "security_exception", "no permissions for [indices:admin/create]"),
            PRIVILEGES,
        ),
        ({"update": {"status": 401}}, PRIVILEGES),
        (
            refused(403, "cluster_block_exception", "blocked by: [FORBIDDEN/12/index read-only];"),
            "Remove the block, limit or fault that the cluster names.",
        ),
        (
            refused(
                403, "cluster_block_exception", "blocked by: [FORBIDDEN/5/index read-only (api)];"
            ),
            READ_ONLY,
        ),
        (
            refused(400, "index_closed_exception", "closed"),
            CLOSED,
        ),
        (
            refused(
                400, ARGUMENT, "no write index is defined for alias [task-reports-2026.03]. The"
            ),
            NO_WRITE_INDEX,
        ),
        (
            refused(500, "illegal_state_exception", None),
            "Remove the block, limit or fault that the cluster names.",
        ),
    ],
)
def test_the_remedy_is_that_of_the_clusters_reason(item: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeliveryError) as raised:
        delivered_documents(FakeCluster(answers(item)), 1)
    _, _, remedy = str(raised.value).partition("; the others are written. ")
    assert remedy == sentence


@each_case("item", OF_DOCUMENT)
@each_case("count", [1, 3])
def test_a_bad_document_is_rejected_also_without_good_ones(
    item: dict[str, Any], count: int
) -> None:
    delivered = delivered_documents(FakeCluster(answers(item)), count)
    assert delivered.indexed == count - 1
    (rejected,) = delivered.rejected
    assert rejected.task_id is None
    assert item["update"]["error"]["type"] in rejected.reason


def test_a_reason_that_names_nothing_is_the_documents_where_its_index_takes_others() -> None:
    odd = refused(400, ARGUMENT, "something odd")
    assert delivered_documents(FakeCluster(answers(odd))).indexed == 2
    with pytest.raises(DeliveryError, match="something odd"):
        delivered_documents(FakeCluster(answers(odd, odd, odd)))


def test_a_document_that_the_index_had_does_not_show_that_it_takes_new_ones() -> None:
    stored = {
        "status": 200,
        "result": "noop",
        "get": {"_source": {}, "_seq_no": 1, "_primary_term": 1, "found": True},
    }
    pipeline = refused(400, ARGUMENT, "pipeline with id [audit] does not exist")
    cluster = FakeCluster(answers(pipeline, {"update": stored}, {"update": stored}))
    with pytest.raises(DeliveryError, match="pipeline with id"):
        delivered_documents(cluster)


# Elasticsearch 8 and OpenSearch 2.19 of an update that changes nothing, and OpenSearch of a document
# that a pipeline has dropped.
UNCHANGED = [
    {"result": "noop", "_shards": {"total": 0, "successful": 0}, "_seq_no": 4, "status": 200},
    {"result": "noop", "_shards": {"total": 1, "successful": 1}, "_seq_no": 4, "status": 200},
]
DROPPED = {"result": "noop", "_shards": {"total": 0, "successful": 0}, "_version": -3}


@pytest.mark.parametrize("unchanged", UNCHANGED)
def test_a_document_that_a_pipeline_drops_is_not_indexed_and_none_of_others(
    unchanged: dict[str, Any],
) -> None:
    cluster = FakeCluster(answers({"index": {**DROPPED, "status": 200}}, {"update": unchanged}))
    assert delivered_documents(cluster) == DeliveryResult(
        indexed=2, dropped={"task-reports-2026.03": 1}
    )


def test_that_documents_are_dropped_does_not_show_that_the_index_takes_others() -> None:
    pipeline = refused(400, ARGUMENT, "pipeline with id [audit] does not exist")
    dropped = {"index": {**DROPPED, "status": 200}}
    with pytest.raises(DeliveryError, match="pipeline with id"):
        delivered_documents(FakeCluster(answers(pipeline, dropped, dropped)))


def test_the_fault_of_one_index_is_not_that_of_another() -> None:
    limit = refused(400, ARGUMENT, SHARDS)
    bad = OF_DOCUMENT[0]
    first, second, third = documents(3)
    cluster = FakeCluster(answers(limit, bad))
    with pytest.raises(DeliveryError, match="maximum shards open"):
        deliver_documents(
            cluster,
            FakeInvocationTime(60),
            [replace(first, index="task-reports-2026.04"), second, third],
        )
    assert sorted(cluster.taken) == ["2"]


def test_only_throttled_items_are_retried() -> None:
    cluster = FakeCluster(items(n0=429, n2=409), items(n2=503), takes_all)
    assert delivered_documents(cluster) == DeliveryResult(indexed=3)
    assert cluster.batches == [["0", "1", "2"], ["0", "2"], ["2"]]


def test_a_busy_index_does_not_delay_the_other_requests() -> None:
    """Of more documents than a request has, those of a shard that stays busy."""

    def busy_with_one(batch: Sequence[Document]) -> list[ItemResult]:
        busy = str(MAX_DOCUMENTS_PER_REQUEST)
        return [ItemResult(status=429 if document.id == busy else 200) for document in batch]

    cluster = FakeCluster(busy_with_one)
    with pytest.raises(DeliveryError, match="ran out of time"):
        delivered_documents(cluster, MAX_DOCUMENTS_PER_REQUEST + 1)
    assert len(cluster.taken) == MAX_DOCUMENTS_PER_REQUEST


statuses = st.sampled_from([200, 201, 400, 409, 429, 503])


@given(st.integers(1, 40), st.data())
def test_every_document_is_indexed_or_rejected_exactly_once(
    count: int, data: st.DataObject
) -> None:
    refused: set[str] = set()

    def any_answer(batch: Sequence[Document]) -> list[ItemResult]:
        status = data.draw(st.sampled_from([None, 429, 413, 0]))
        if status != 0 and data.draw(st.booleans()):
            raise SearchClusterError("whole", status=status)
        results = [ItemResult(status=data.draw(statuses), reason="r") for _ in batch]
        refused.update(
            document.id
            for document, result in zip(batch, results, strict=True)
            if result.status == 400
        )
        return results

    cluster = FakeCluster(any_answer)
    try:
        delivered = delivered_documents(cluster, count, FakeInvocationTime(40))
    except DeliveryError:
        return
    assert delivered.indexed == len(cluster.taken)
    assert delivered.indexed + len(delivered.rejected) == count
    assert refused.isdisjoint(cluster.taken)


def test_the_lines_are_upserts_that_are_retried() -> None:
    """The lines are upserts that are retried and the reason of an error has its cause."""
    action, body = map(json.loads, bulk_lines(documents(1)).splitlines())
    assert action == {
        "update": {"_index": "task-reports-2026.03", "_id": "0", "retry_on_conflict": 5}
    }
    assert body == {"doc": {"n": 0}, "doc_as_upsert": True}
    error = {
        "type": "mapping",
        "reason": "no field [x]",
        "caused_by": {"type": "argument", "reason": "bad"},
    }
    (result,) = bulk_results({"items": [{"update": {"status": 400, "error": error}}]}, 1)
    assert result.is_refused_for_good(is_index_working=False)
    assert result.reason == "mapping: no field [x], because argument: bad"


@pytest.mark.parametrize("answer", [{}, {"items": []}, {"items": [{"update": {}}]}])
def test_an_unexpected_bulk_response_is_an_error(answer: object) -> None:
    with pytest.raises(ValueError, match="the response"):
        bulk_results(answer, 1)


ANY_TEXT = st.text(
    st.characters(codec=None) | st.sampled_from("\ufffe\uffff\x00\ud800\\u🧮"), max_size=2000
)


@given(ANY_TEXT, st.text(min_size=1, max_size=20), st.integers(0, 400_000))
def test_a_queue_message_is_never_larger_than_sqs_accepts(
    reason: str, some: str, length: int
) -> None:
    for document in (some * (length // len(some)), {"text": "é" * length, "more": some}):
        body = document_delivery.message_body(FailedItem(document, reason))
        assert len(body) <= document_delivery.MAX_MESSAGE_BYTES
        assert body.isascii(), "SQS rejects some other characters"
        kept = json.loads(body)
        if kept != {"document": document, "reason": reason}:
            text = (
                document
                if isinstance(document, str)
                else json.dumps(document, separators=(",", ":"))
            )
            assert text.startswith(kept["document"])
            assert kept["reason"] == f"{reason[:1000]} (the document is truncated)"


class FakeQueue:
    """Accepts batches like SQS, ten messages with one mebibyte in total; or gives an answer."""

    def __init__(self, answer: dict[str, Any] | Exception) -> None:
        self.answer = answer
        self.batches: list[list[str]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:
        bodies = [entry["MessageBody"] for entry in Entries]
        assert 1 <= len({entry["Id"] for entry in Entries}) == len(Entries) <= 10
        assert sum(len(body.encode()) for body in bodies) <= 1024 * 1024
        self.batches.append(bodies)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_large_failures_share_a_request_of_at_most_a_mebibyte() -> None:
    queue = FakeQueue({})
    send_failures("https://queue", queue, [FailedItem("é" * 20_000, "too large")] * 9)
    assert [len(batch) for batch in queue.batches] == [8, 1]


DENIED = ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessageBatch")


@pytest.mark.parametrize("answer", [DENIED, {"Failed": [{"Id": "0", "Code": "InternalError"}]}])
def test_an_unavailable_queue_is_an_error(answer: dict[str, Any] | Exception) -> None:
    with pytest.raises(DeliveryError, match="FAILED_ITEMS_QUEUE_URL"):
        send_failures("https://queue", FakeQueue(answer), [FailedItem("x", "y")])


@pytest.mark.parametrize(
    ("value", "shown"),
    [("--password=hunter2", "--password=…"), ("seven", "seven")],
)
def test_a_secret_that_the_cluster_quotes_is_not_logged(value: str, shown: str) -> None:
    """In the reason of a document that is refused for good, and of an index's fault."""
    reason = f"failed to parse field [task.revision]. Preview of field's value: '{value}'"
    logged: list[Mapping[str, object]] = []
    log_failures(logged.append, [FailedItem("{}", reason)])
    assert f"'{shown}'" in str(logged[0]["reason"])

    def refuses(batch: Sequence[Document]) -> list[ItemResult]:
        return [ItemResult(status=500, reason=reason) for _ in batch]

    with pytest.raises(DeliveryError) as raised:
        delivered_documents(FakeCluster(refuses))
    assert f"'{shown}'" in str(raised.value)
