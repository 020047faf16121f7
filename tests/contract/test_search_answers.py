"""What the reading commands make of answers of a search cluster that lack a part, or that have
another form.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import run_here
from tests.http_server import OneAnswer

# One index of two has no node: Elasticsearch 8, then OpenSearch.
LOST = [
    {"total": 2, "successful": 1, "skipped": 0, "failed": 1},
    {"total": 2, "successful": 1, "skipped": 0, "failed": 0},
]
SENTENCE = (
    "task-profiler: the indices task-reports-*: 1 shard of the search cluster did not answer, so "
    "runs are missing: check the health of its indices.\n"
)


def answer(hits: list[Any], **more: Any) -> bytes:
    return json.dumps({"hits": {"hits": hits}, **more}).encode()


def hit(**source: Any) -> dict[str, Any]:
    return {"_source": source, "sort": [0, "a", "b"]}


@pytest.mark.parametrize("shards", LOST)
def test_shards_that_did_not_answer_are_said(shards: dict[str, int]) -> None:
    with OneAnswer(200, answer([hit(task={"id": "a"})], _shards=shards)) as server:
        done = run_here({}, "history", "--from", server.url)
    assert done.returncode == 0, done.stderr
    assert SENTENCE in done.stderr


@pytest.mark.parametrize("shards", LOST)
def test_shards_that_did_not_answer_are_no_evidence_to_act_on(
    shards: dict[str, int], tmp_path: Path
) -> None:
    file = tmp_path / "nightly.json"
    file.write_text('{"family": "nightly", "containerDefinitions": [{"name": "batch"}]}')
    with OneAnswer(200, answer([], _shards=shards)) as server:
        done = run_here({}, "taskdef", "resize", "--from", server.url, "--apply", str(file))
    assert done.returncode == 1
    assert "could not be read, so nothing was changed" in done.stderr


def test_shards_that_were_skipped_are_not_missing() -> None:
    whole = {"total": 9, "successful": 9, "skipped": 8, "failed": 0}
    with OneAnswer(200, answer([hit(task={"id": "a"})], _shards=whole)) as server:
        done = run_here({}, "history", "--from", server.url)
    assert done.returncode == 0, done.stderr
    assert "shard" not in done.stderr


@pytest.mark.parametrize(
    "source",
    [
        {"task": [], "event": [], "usage": "x", "record": 5},
        {"task": {"id": ["a"]}, "event": {"end": 5, "start": {}}, "record": "{}"},
        {"task": None, "@timestamp": "x"},
    ],
)
@pytest.mark.parametrize("words", [("history",), ("recommend",), ("history", "--json")])
def test_a_document_of_another_form_is_no_traceback(
    source: dict[str, Any], words: tuple[str, ...]
) -> None:
    with OneAnswer(200, answer([hit(**source), "no object", None])) as server:
        done = run_here({}, *words, "--from", server.url)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ({"root_cause": [{"reason": "no sign-in"}], "reason": "all shards failed"}, "no sign-in"),
        ({"root_cause": [], "type": "x", "reason": "too many buckets"}, "too many buckets"),
        ("boom", "boom"),
        (None, "no reason given"),
    ],
)
def test_the_reason_of_a_refusal_is_the_clusters(error: Any, reason: str) -> None:
    with OneAnswer(500, json.dumps({"error": error}).encode()) as server:
        done = run_here({}, "history", "--from", server.url)
    assert done.returncode == 1
    assert f"rejected the search (HTTP 500: {reason}): " in done.stderr
