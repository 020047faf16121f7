"""CloudWatch Logs Insights as a source: boto3's real client, held to the service's model by botocore's Stubber."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber

from profiler.core.errors import TaskProfilerError
from profiler.runs.logs_insights import MAX_LINES, TimeRange, find_lines, query_text
from tests.fakes import FakeClock
from tests.runs import lines, report

SPAN = TimeRange(start_ms=1_700_000_000_500, end_ms=1_700_086_400_001)
STARTED = {
    "logGroupNames": ["/ecs/jobs", "/ecs/more"],
    "startTime": 1_700_000_000,
    "endTime": 1_700_086_401,
    "queryString": query_text(()),
    "limit": MAX_LINES,
}
QUERY = {"queryId": "12ab3456-12ab-123a-789e-1234567890ab"}


@pytest.fixture
def logs() -> Iterator[tuple[Any, Stubber]]:
    client = boto3.client("logs", region_name="eu-west-1", aws_access_key_id="testing", aws_secret_access_key="testing")
    with Stubber(client) as stub:
        yield client, stub


def answer(status: str, *messages: str) -> dict[str, Any]:
    rows = [
        [{"field": "@message", "value": message}, {"field": "@ptr", "value": f"ptr-{number}"}]
        for number, message in enumerate(messages)
    ]
    return {"status": status, "results": rows, "statistics": {"recordsMatched": float(len(rows))}}


def asked(client: Any, clock: FakeClock) -> list[bytes]:
    return find_lines(client, clock, ("/ecs/jobs", "/ecs/more"), SPAN, ())


def test_the_query_is_for_final_reports_the_newest_first() -> None:
    assert query_text(()) == ('fields @message\n| filter type = "task.report"\n| sort @timestamp desc\n| limit 10000')


def test_families_are_named_in_the_query_and_patterns_are_not() -> None:
    named = query_text(("nightly", 'we"ird'))
    assert '| filter type = "task.report" and record.family in ["nightly", "we\\"ird"]' in named
    assert query_text(("nightly", "week*")) == query_text(())


def test_the_query_is_started_awaited_and_read(logs: tuple[Any, Stubber]) -> None:
    """The rows of a running query are not the final result."""
    client, stub = logs
    line = lines([report()]).decode().strip()
    stub.add_response("start_query", QUERY, STARTED)
    stub.add_response("get_query_results", answer("Scheduled"), QUERY)
    stub.add_response("get_query_results", answer("Running", "half"), QUERY)
    stub.add_response("get_query_results", answer("Complete", line, "ü"), QUERY)
    clock = FakeClock()
    assert asked(client, clock) == [line.encode(), "ü".encode()]
    assert clock.monotonic_ns() == 2_000_000_000
    stub.assert_no_pending_responses()


@pytest.mark.parametrize("status", ["Failed", "Cancelled", "Timeout", "Unknown"])
def test_a_query_that_failed_is_a_sentence(logs: tuple[Any, Stubber], status: str) -> None:
    client, stub = logs
    stub.add_response("start_query", QUERY, STARTED)
    stub.add_response("get_query_results", answer(status), QUERY)
    with pytest.raises(TaskProfilerError, match=f"ended the query as '{status}': use a later --since."):
        asked(client, FakeClock())


def test_a_query_that_does_not_end_is_given_up(logs: tuple[Any, Stubber]) -> None:
    client, stub = logs
    stub.add_response("start_query", QUERY, STARTED)
    for _ in range(3600):
        stub.add_response("get_query_results", answer("Running"), QUERY)
    with pytest.raises(TaskProfilerError, match="did not complete the query in an hour"):
        asked(client, FakeClock())


def test_an_interrupted_query_is_stopped_for_it_costs_money(logs: tuple[Any, Stubber]) -> None:
    class Interrupted(FakeClock):
        def sleep(self, seconds: float) -> None:
            raise KeyboardInterrupt

    client, stub = logs
    stub.add_response("start_query", QUERY, STARTED)
    stub.add_response("get_query_results", answer("Running"), QUERY)
    stub.add_response("stop_query", {"success": True}, QUERY)
    with pytest.raises(KeyboardInterrupt):
        asked(client, Interrupted())
    stub.assert_no_pending_responses()


def test_what_the_service_refuses_is_left_to_the_command(logs: tuple[Any, Stubber]) -> None:
    client, stub = logs
    stub.add_client_error("start_query", "ResourceNotFoundException", "Log group '/ecs/jobs' does not exist", 400)
    with pytest.raises(ClientError, match="does not exist"):
        asked(client, FakeClock())
