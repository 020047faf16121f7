"""The preview of a notice: its output, and the delivery to every configured channel."""

import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from moto import mock_aws

from forwarder import preview
from profiler.record.notice_model import AnyNoticeLine, encode_notice
from tests.contract.test_task_stopped_calls import event_queue, received
from tests.fake_slack import Answer, FakeSlack
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.task.test_task_event import ARN, event


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("SLACK_FAILURE_WEBHOOK_URL", "SLACK_SECRET_ID", "EVENT_BUS_NAME", "KIBANA_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(event())))
    with mock_aws():
        yield


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_message_and_the_detail_of_the_event_are_printed(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    assert preview.main([]) == 0
    document = printed(capsys)
    assert document["channel"] == "failure"
    assert document["blocks"]
    assert (document["detail"]["taskArn"], document["detail"]["status"]) == (ARN, "failure")
    assert slack.messages == []


def test_a_notice_is_sent_to_every_channel(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    queue = event_queue()
    assert preview.main(["--send"]) == 0
    document = printed(capsys)
    (posted,) = slack.messages
    assert posted["blocks"] == document["blocks"]
    (sent,) = received(queue)
    assert sent["detail"] == document["detail"]


@pytest.mark.parametrize("line", [stuck_notice(), missed_notice()], ids=["run", "schedule"])
def test_the_line_of_a_notice_is_accepted(
    line: AnyNoticeLine, slack: FakeSlack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    monkeypatch.setattr(sys, "stdin", io.StringIO(encode_notice(line).decode()))
    assert preview.main(["--send"]) == 0
    document = printed(capsys)
    assert (document["channel"], document["detail"]["notice"]["kind"]) == ("failure", line.notice.kind)
    assert [posted["blocks"] for posted in slack.messages] == [document["blocks"]]


def test_an_invalid_notice_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO('{"type": "task.notice"}'))
    assert preview.main([]) == 1
    assert "pass a line as it is in the log" in capsys.readouterr().err


def test_a_channel_that_fails_does_not_prevent_the_others(
    slack: FakeSlack, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    slack.script = [Answer(404, "no_service")]
    queue = event_queue()
    assert preview.main(["--send"]) == 1
    assert "SLACK_FAILURE_WEBHOOK_URL" in capsys.readouterr().err
    assert len(received(queue)) == 1


def test_without_a_channel_the_settings_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert preview.main(["--send"]) == 1
    assert "set SLACK_FAILURE_WEBHOOK_URL or EVENT_BUS_NAME" in capsys.readouterr().err
