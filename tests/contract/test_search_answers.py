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
LOST: list[dict[str, Any]] = [
    {
        "total": 2,
        "successful": 1,
        "skipped": 0,
        "failed": 1,
        "failures": [
            {
                "shard": 0,
                "index": "task-reports-2020.01",
                "node": None,
                "reason": {"type": "no_shard_available_action_exception", "reason": None},
            }
        ],
    },
    {"total": 2, "successful": 1, "skipped": 0, "failed": 0},
]
# One index of two was made without the templates: OpenSearch 2.19.1, asked to sort by the family.
FOREIGN = "task-reports-2026.09"
FOREIGN_MAPPING: dict[str, Any] = {
    **LOST[0],
    "failures": [
        {
            "shard": 0,
            "index": FOREIGN,
            "node": "H4OGT2EZQumP5qm0-RjU3w",
            "reason": {
                "type": "illegal_argument_exception",
                "reason": "Text fields are not optimised for operations that require per-document "
                "field data like aggregations and sorting, so these operations are disabled by "
                "default.",
            },
        }
    ],
}
OTHER_MAPPING = "was made without the index templates"
WHOLE = {"total": 2, "successful": 2, "skipped": 0, "failed": 0}
# An answer with HTTP 200 that lacks runs, and what it says.
PARTS: list[tuple[dict[str, Any], str]] = [
    *(({"_shards": shards}, "1 shard of the search cluster did not answer") for shards in LOST),
    (
        {"_shards": FOREIGN_MAPPING},
        f"1 shard of the search cluster did not answer ({FOREIGN} {OTHER_MAPPING})",
    ),
    (
        {"_shards": WHOLE, "timed_out": True},
        "the search cluster ran out of time in a search (timed_out)",
    ),
    (
        {"_shards": WHOLE, "terminated_early": True},
        "the search cluster ended a search early (terminated_early)",
    ),
]
RUN = {
    "task": {"id": "a", "family": "nightly", "status": "success", "complete": True},
    "event": {"start": "2026-11-01T00:00:00Z"},
}


ONE_FAMILY = {
    "families": {
        "buckets": [
            {
                "key": {"name": "nightly", "account": None, "region": None},
                "starts": {"buckets": [{"key": 0}]},
            }
        ]
    }
}


def sentence(why: str) -> str:
    remedy = "check the health of its indices"
    if FOREIGN in why:
        remedy = (
            "run task-profiler kibana import, reindex it into an index with the same prefix, and "
            "delete it"
        )
    return f"task-profiler: the indices task-reports-*: {why}, so runs are missing: {remedy}.\n"


def answer(hits: list[Any], **more: Any) -> bytes:
    return json.dumps({"hits": {"hits": hits}, **more}).encode()


def hit(**source: Any) -> dict[str, Any]:
    return {"_source": source, "sort": [0, "a", "b"]}


COMMANDS = {
    "history": (),
    "show": (),
    "show a": ("--json",),
    "report": ("-o", "-"),
    "report --run a": ("-o", "-"),
    "recommend": ("--json",),
    "compare a b": (),
}


@pytest.mark.diagonal
@pytest.mark.parametrize(("part", "why"), PARTS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_once_that_an_answer_is_a_part(
    command: str, part: dict[str, Any], why: str
) -> None:
    with OneAnswer(200, answer([hit(**RUN)], **part)) as server:
        done = run_here({}, *command.split(), *COMMANDS[command], "--from", server.url)
    assert done.stderr.count(sentence(why)) == 1, done.stderr


@pytest.mark.parametrize("part", [part for part, _ in PARTS] + [{"_shards": WHOLE}])
def test_a_check_of_a_part_is_not_passed(part: dict[str, Any]) -> None:
    with OneAnswer(200, answer([hit(**RUN)], **part, aggregations=ONE_FAMILY)) as server:
        done = run_here({}, "recommend", "--check", "--from", server.url)
    assert done.returncode == (0 if part == {"_shards": WHOLE} else 1), done.stderr


@pytest.mark.parametrize(("part", "why"), PARTS)
def test_a_part_is_no_evidence_to_act_on(part: dict[str, Any], why: str, tmp_path: Path) -> None:
    file = tmp_path / "nightly.json"
    file.write_text('{"family": "nightly", "containerDefinitions": [{"name": "batch"}]}')
    with OneAnswer(200, answer([], **part)) as server:
        done = run_here({}, "taskdef", "resize", "--from", server.url, "--apply", str(file))
    assert done.returncode == 1
    assert done.stderr.count(sentence(why)) == 1
    assert "could not be read as a whole, so nothing was changed" in done.stderr


@pytest.mark.parametrize(("shards", "code"), [(WHOLE, 0), (dict.fromkeys(WHOLE, 0), 1)])
def test_a_month_of_the_window_without_an_index_is_no_evidence_to_act_on(
    shards: dict[str, int], code: int, tmp_path: Path
) -> None:
    file = tmp_path / "nightly.json"
    file.write_text('{"family": "nightly", "containerDefinitions": [{"name": "batch"}]}')
    with OneAnswer(200, answer([], _shards=shards)) as server:
        done = run_here({}, "taskdef", "resize", "--from", server.url, "--apply", str(file))
    assert (", so runs may be missing." in done.stderr) is bool(code)
    assert done.returncode == code, done.stderr


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
        ({"root_cause": [{"reason": None}], "reason": "all shards failed"}, "all shards failed"),
        ("boom", "boom"),
        (None, "no reason given"),
    ],
)
def test_the_reason_of_a_refusal_is_the_clusters(error: Any, reason: str) -> None:
    with OneAnswer(500, json.dumps({"error": error}).encode()) as server:
        done = run_here({}, "history", "--from", server.url)
    assert done.returncode == 1
    assert f"rejected the search (HTTP 500: {reason}): " in done.stderr
