"""``task-profiler replay`` against moto's CloudWatch Logs and a played forwarder function."""

import base64
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.aws_proxy import AwsProxy
from tests.command_line import run_here
from tools.moto_server import FakeAws, fake_aws

GROUP, INVOKE = "/ecs/jobs", "POST /2015-03-31/functions/forwarder/invocations"
FUNCTION = "GET /2015-03-31/functions/forwarder/configuration"
ANSWERS = {INVOKE: {"indexed": 2, "skipped": 0, "failed": 0, "untrusted": 1}, FUNCTION: {}}


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with fake_aws() as aws:
        aws.create_log_group(GROUP)
        aws.create_log_stream(GROUP, "ecs/batch/1")
        now_ms = time.time_ns() // 1_000_000
        messages = ("hello", '{"type":"task.report"}', '{"type":"task.checkpoint"}')
        events = [
            {"timestamp": now_ms - 3000 + place, "message": text}
            for place, text in enumerate(messages)
        ]
        aws.client("logs").put_log_events(
            logGroupName=GROUP, logStreamName="ecs/batch/1", logEvents=events
        )
        yield aws


@pytest.fixture
def proxy(aws: FakeAws) -> Iterator[AwsProxy]:
    with AwsProxy(aws.url, answers=dict(ANSWERS)) as proxy:
        yield proxy


def test_reports_are_counted_and_then_sent_once(
    aws: FakeAws, proxy: AwsProxy, tmp_path: Path
) -> None:
    environment = aws.environment() | {
        "AWS_ENDPOINT_URL": proxy.url,
        "XDG_STATE_HOME": str(tmp_path),
    }
    words = ("replay", "--log-group", GROUP, "--function", "forwarder", "--since", "1h")
    counted = run_here(environment, *words)
    (as_json,) = map(json.loads, run_here(environment, *words, "--json").stdout.splitlines())
    assert f"{as_json['lines']} lines would be sent." in counted.stdout
    assert as_json["isApplied"] is False
    assert as_json["indexed"] is None
    expected = "2 lines would be sent.\nNothing was changed; --yes carries this out.\n"
    assert counted.returncode == 0, counted.stderr
    assert counted.stdout == expected
    assert INVOKE not in proxy.operations
    sent = run_here(environment, *words, "--yes")
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout == "2 lines sent: 2 indexed, 0 failed, 1 untrusted.\n"
    (body,) = [json.loads(body) for operation, body in proxy.bodies if operation == INVOKE]
    document = json.loads(gzip.decompress(base64.b64decode(body["awslogs"]["data"])))
    assert document["owner"] == "123456789012"
    assert document["logGroup"] == GROUP
    assert len(document["logEvents"]) == 2
    assert list((tmp_path / "task-profiler").iterdir()) == []
    proxy.answers[INVOKE] = {"other": "function"}
    failed = run_here(environment, *words, "--yes")
    assert failed.returncode == 1, failed.stderr
    assert "does not respond like the forwarder" in failed.stderr


def test_a_log_group_that_no_longer_has_the_whole_window_is_said(
    aws: FakeAws, proxy: AwsProxy, tmp_path: Path
) -> None:
    """What it deleted is not among the lines that are sent."""
    environment = aws.environment() | {
        "AWS_ENDPOINT_URL": proxy.url,
        "XDG_STATE_HOME": str(tmp_path),
    }
    group = {"logGroupName": GROUP, "retentionInDays": 1, "creationTime": 0}
    proxy.answers["DescribeLogGroups"] = {"logGroups": [group]}
    words = ("replay", "--log-group", GROUP, "--function", "forwarder", "--since")
    for acts in ((), ("--yes",), ("--json",)):
        said = run_here(environment, *words, "3d", *acts)
        assert said.returncode == 0, said.stderr
        sentence = f"The log group {GROUP} keeps 1 day, the window has 3."
        assert sentence in " ".join(said.stderr.split())
    assert run_here(environment, *words, "1d").stderr == ""


def test_several_log_groups_are_replayed_by_a_pattern(
    aws: FakeAws, proxy: AwsProxy, tmp_path: Path
) -> None:
    aws.create_log_group("/ecs/joke")
    environment = aws.environment() | {
        "AWS_ENDPOINT_URL": proxy.url,
        "XDG_STATE_HOME": str(tmp_path),
    }
    words = ("--function", "forwarder", "--since", "1h", "--yes")
    sent = run_here(environment, "replay", "--log-group", "/ecs/jo[bk]*", *words)
    assert sent.returncode == 0, sent.stderr
    assert sent.stdout == "2 lines in 2 log groups sent: 2 indexed, 0 failed, 1 untrusted.\n"
    assert list((tmp_path / "task-profiler").iterdir()) == []
    listed = [
        json.loads(body) for operation, body in proxy.bodies if operation == "DescribeLogGroups"
    ]
    # Then how far back each reaches.
    prefixes = ("/ecs/jo", GROUP, "/ecs/joke")
    assert listed == [{"logGroupNamePrefix": prefix} for prefix in prefixes]
    nothing = run_here(environment, "replay", "--log-group", "/ecs/x*", *words)
    assert nothing.returncode == 1, nothing.stderr
    assert nothing.stdout == ""
    assert nothing.stderr.endswith(
        "No log group matches '/ecs/x*': check the name, --region and --profile.\n"
    )


def test_a_plan_names_a_function_or_a_log_group_that_does_not_exist(
    aws: FakeAws, proxy: AwsProxy
) -> None:
    """Lambda's and CloudWatch Logs' own answers, before a line is counted or sent."""
    environment = aws.environment() | {"AWS_ENDPOINT_URL": proxy.url}
    for act in ((), ("--yes",)):
        done = run_here(
            environment, "replay", "--log-group", GROUP, "--function", "forwrader", *act
        )
        assert done.returncode == 1, done.stdout
        assert "There is no Lambda function forwrader in us-east-1" in done.stderr
        assert done.stdout == ""
    assert INVOKE not in proxy.operations
    done = run_here(environment, "replay", "--log-group", "/ecs/job", "--function", "forwarder")
    assert done.returncode == 1, done.stdout
    assert "There is no log group /ecs/job in us-east-1" in done.stderr
    assert f"Did you mean {GROUP}?" in done.stderr


def test_whoever_may_not_ask_for_the_function_replays(aws: FakeAws, proxy: AwsProxy) -> None:
    proxy.refused.add(FUNCTION)
    environment = aws.environment() | {"AWS_ENDPOINT_URL": proxy.url}
    words = ("replay", "--log-group", GROUP, "--function", "forwarder", "--since", "1h")
    done = run_here(environment, *words)
    assert done.returncode == 0, done.stderr
    assert "would be sent" in done.stdout
