"""``task-profiler notify``: its output, and the delivery to every configured channel."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from profiler.cli.commands.aws import notify as command
from profiler.record.notice_model import AnyNoticeLine, encode_notice
from tests.contract.test_handler_calls import event_queue, received
from tests.fake_slack import FakeSlack
from tests.lambda_environment import moto_account
from tests.shown_runs import missed_notice, stuck_notice
from tests.unit.forwarder.task.test_task_event import ARN, event


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, slack: FakeSlack) -> Iterator[None]:
    for name in ("SLACK_SECRET_ID", "EVENT_BUS_NAME", "KIBANA_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLACK_FAILURE_WEBHOOK_URL", slack.webhook_url)
    # CliRunner replaces the stream, not the file descriptor.
    monkeypatch.setattr("profiler.cli.printing.write_out", partial(click.echo, nl=False))
    with moto_account(monkeypatch, "us-west-2"):
        yield


def notify(*options: str, line: str | None = None) -> Result:
    return CliRunner().invoke(command, ["--event", "-", *options], input=line or json.dumps(event()))


def printed(result: Result) -> dict[str, Any]:
    assert result.exception is None
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_the_message_and_the_detail_of_the_event_are_printed(slack: FakeSlack) -> None:
    document = printed(notify("--dry-run"))
    assert document["channel"] == "failure"
    assert document["blocks"]
    assert (document["detail"]["taskArn"], document["detail"]["status"]) == (ARN, "failure")
    assert slack.messages == []


def test_a_notice_is_sent_to_every_channel(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVENT_BUS_NAME", "default")
    queue = event_queue()
    document = printed(notify())
    (posted,) = slack.messages
    assert posted["blocks"] == document["blocks"]
    (sent,) = received(queue)
    assert sent["detail"] == document["detail"]


@pytest.mark.parametrize("line", [stuck_notice(), missed_notice()], ids=["run", "schedule"])
def test_the_line_of_a_notice_is_accepted(line: AnyNoticeLine, slack: FakeSlack) -> None:
    document = printed(notify(line=encode_notice(line).decode()))
    assert (document["channel"], document["detail"]["notice"]["kind"]) == ("failure", line.notice.kind)
    assert [posted["blocks"] for posted in slack.messages] == [document["blocks"]]


def test_what_cannot_be_sent_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLACK_FAILURE_WEBHOOK_URL")
    assert "set SLACK_FAILURE_WEBHOOK_URL or EVENT_BUS_NAME" in str(notify().exception)
    invalid = notify("--dry-run", line='{"type": "task.notice"}')
    assert "pass the line unchanged, as in the log" in str(invalid.exception)
