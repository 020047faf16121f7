"""Messages to a server with Slack's responses."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from profiler.forwarder.invocation import RESERVED_SECONDS, NoticeError
from profiler.forwarder.notifications import channels
from profiler.forwarder.notifications.channels import SlackTarget
from profiler.forwarder.notifications.slack_messages import SlackMessage
from tests.fake_slack import TOKEN, Answer, FakeSlack, rate_limited
from tests.fakes import FakeInvocationTime

SECRET = "hunter2"
MESSAGE = SlackMessage(
    text="Success &lt;etl&gt;",
    blocks=[
        {"type": "section", "text": {"type": "mrkdwn", "text": "*Grüße* ▰▱ 🧮", "verbatim": True}}
    ],
)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def webhook(slack: FakeSlack, *, url: str | None = None) -> SlackTarget:
    return SlackTarget(secret=url or slack.webhook_url, setting="SLACK_SUCCESS_WEBHOOK_URL")


def bot(slack: FakeSlack, *, token: str = TOKEN) -> SlackTarget:
    return SlackTarget(
        secret=token, channel="C0FAILURE", setting="SLACK_FAILURE_CHANNEL", base_url=slack.base_url
    )


def targets(slack: FakeSlack) -> list[SlackTarget]:
    return [webhook(slack), bot(slack)]


def send(target: SlackTarget, seconds: float = 60) -> FakeInvocationTime:
    time = FakeInvocationTime(seconds)
    channels.send_to_slack(target, MESSAGE, time)
    return time


def refused(target: SlackTarget, seconds: float = 60) -> str:
    """Return the error's sentence. Neither the sentence nor the traceback contains a secret."""
    with pytest.raises(NoticeError) as error:
        send(target, seconds)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is error.value.__context__ is None
    return str(error.value)


def test_a_message_is_sent_by_a_bot_to_its_channel(slack: FakeSlack) -> None:
    assert send(bot(slack)).pauses == []
    (received,) = slack.received
    assert received.path == "/api/chat.postMessage"
    assert received.authorization == f"Bearer {TOKEN}"
    sent = {"channel": "C0FAILURE", "text": MESSAGE.text, "blocks": MESSAGE.blocks}
    assert sent.items() <= received.body.items()


def rejected(code: str) -> Answer:
    return Answer(data={"ok": False, "error": code})


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, text="server_error"),
        Answer(503, data="Service Unavailable"),  # of a proxy, and JSON, but no object
        Answer(429),
        rate_limited("soon"),
        Answer(drop=True),
    ],
    ids=["server error", "proxy", "limit", "limit without a time", "no answer"],
)
def test_temporary_failures_are_retried_with_growing_pauses(
    slack: FakeSlack, answer: Answer
) -> None:
    for target in targets(slack):
        slack.script = [answer, answer, answer]
        assert send(target).pauses == [1.0, 2.0, 4.0]
    assert len(slack.received) == 2


@pytest.mark.parametrize(
    "code", ["ratelimited", "rate_limited", "internal_error", "fatal_error", "request_timeout"]
)
def test_a_bot_repeats_a_message_after_a_temporary_error_in_a_successful_answer(
    slack: FakeSlack, code: str
) -> None:
    slack.script = [rejected(code)]
    assert send(bot(slack)).pauses == [1.0]
    assert len(slack.received) == 1


def test_the_retry_after_header_sets_the_pause(
    slack: FakeSlack,
) -> None:
    """The retry after header sets the pause and raises if it is longer than the invocation."""
    for target in targets(slack):
        slack.script = [rate_limited(20)]
        assert send(target).pauses == [20.0]
    assert slack.requests == 4
    for target, setting in zip(
        targets(slack), ("SLACK_SUCCESS_WEBHOOK_URL", "SLACK_FAILURE_CHANNEL"), strict=True
    ):
        slack.script = [rate_limited(3600)]
        told = refused(target)
        assert setting in told
        assert "HTTP 429" in told
        assert (
            "one message a second, so where hundreds of runs end at once, set the stack's" in told
        )
        assert "network route" not in told
    assert slack.requests == 6


@pytest.mark.parametrize(
    ("after", "pause"),
    [
        ("Mon, 30 Nov 2026 12:00:20 GMT", 20.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 1.0),  # it is over
        ("9" * 5000, 1.0),
    ],
)
def test_a_date_in_the_retry_after_header_sets_the_pause(
    slack: FakeSlack, after: str, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy or another program with webhooks like Slack's may answer with one."""
    noon = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()
    monkeypatch.setattr("urllib3.util.retry.time", SimpleNamespace(time=lambda: noon))
    for target in targets(slack):
        slack.script = [rate_limited(after)]
        assert send(target).pauses == [pause]


def test_a_timeout_is_retried_and_without_time_nothing_is_sent(slack: FakeSlack) -> None:
    assert "raise the function's timeout" in refused(webhook(slack), seconds=RESERVED_SECONDS + 0.9)
    assert slack.requests == 0
    slack.script = [Answer(hang=True)]
    told = refused(webhook(slack), RESERVED_SECONDS + 1.5)  # so that the client waits one second
    assert "TimeoutError" in told or "URLError" in told
    assert slack.requests == 1


def test_an_unreachable_slack_is_retried_until_the_time_is_up(slack: FakeSlack) -> None:
    slack.close()
    for target in targets(slack):
        time = FakeInvocationTime(30, jitter=0.0)
        with pytest.raises(NoticeError, match="before the invocation ran out of time"):
            channels.send_to_slack(target, MESSAGE, time)
        assert time.pauses == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0]
        assert time.left >= RESERVED_SECONDS


@pytest.mark.parametrize(
    ("target", "answer", "words"),
    [
        (
            webhook,
            Answer(404, text="no_service"),
            "(HTTP 404 no_service): check that SLACK_SUCCESS_WEBHOOK_URL is the",
        ),
        (
            webhook,
            Answer(404, text="<html>hunter2</html>"),
            "(HTTP 404): check that SLACK_SUCCESS_WEBHOOK_URL is the",
        ),
        (
            webhook,
            Answer(200, text="<html>Sign in</html>"),
            "(HTTP 200): check that SLACK_SUCCESS_WEBHOOK_URL is the",
        ),
        (
            bot,
            rejected("something_new"),
            "(something_new): check SLACK_BOT_TOKEN, its scope chat:write",
        ),
        (bot, rejected(f"xoxb-{SECRET}"), "(HTTP 200): check SLACK_BOT_TOKEN"),
    ],
)
def test_a_message_that_is_rejected(
    slack: FakeSlack, target: Callable[[FakeSlack], SlackTarget], answer: Answer, words: str
) -> None:
    slack.script = [answer]
    assert words in refused(target(slack))
    assert slack.requests == 1


@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, text="ok"),
        Answer(200, text=""),
        Answer(201, text="created"),
        Answer(204),
        Answer(200, data={"success": True}),  # Rocket.Chat
        Answer(200, data={"ok": True}),  # Slack's workflow triggers
        Answer(200, data={"result": "success", "msg": "", "id": 7}),  # Zulip
        Answer(200, data=[]),
        Answer(200, data={"ok": "maybe"}),
        Answer(200, data={"ok": True, "error": "thread_not_found, posted to the channel"}),
        Answer(200, data={"error": None}),
        Answer(200, data={"error": ""}),
        Answer(200, data={"error": "None"}),
        Answer(200, data={"error": "0"}),
        Answer(200, data={"success": "true", "error": "not threaded"}),
        Answer(200, data={"status": "success", "error": "no user of this name"}),
        Answer(200, data={"attempt": "0199", "id": "0199", "status": "success"}),  # Zapier
        Answer(200, data={"message": "Workflow was started"}),  # n8n
        Answer(200, data={"errcode": 0, "errmsg": "ok"}),
        Answer(200, text="Accepted"),  # Make
        Answer(202),  # Teams' workflows
        Answer(202, data={"status": "success", "message": "enqueued 1 messages"}),
        Answer(
            200,
            text='<?xml version="1.0"?><SendMessageResponse xmlns="http://queue.amazonaws.com/doc/'
            '2012-11-05/"><SendMessageResult/></SendMessageResponse>',
        ),
        Answer(200, text="<PublishResponse xmlns='http://sns.amazonaws.com/doc/2010-03-31/'/>"),
        Answer(200, text="<Response/>"),
    ],
)
def test_a_webhook_that_answers_with_a_success_has_the_message(
    slack: FakeSlack, answer: Answer
) -> None:
    slack.script = [answer]
    assert send(webhook(slack)).pauses == []
    assert slack.requests == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (rejected("invalid_auth"), "(invalid_auth)"),
        (Answer(200, data={"success": False, "error": "no such channel"}), "(HTTP 200)"),
        (Answer(200, data={"success": False, "error": {"message": "no such flow"}}), "(HTTP 200)"),
        (Answer(200, data={"ok": False, "success": 0}), "(HTTP 200)"),
        (Answer(200, data={"result": "error", "msg": "Invalid API key"}), "(HTTP 200)"),  # Zulip
        (Answer(200, data={"error": "invalid_token"}), "(invalid_token)"),
        (Answer(200, data={"status": "down", "error": "no_service"}), "(no_service)"),
        # DingTalk and WeCom, which do not take a message of Slack's form.
        (Answer(200, data={"errcode": 40008, "errmsg": "invalid message type"}), "(HTTP 200)"),
        (Answer(200, text="\ufeff<!DOCTYPE html>"), "(HTTP 200)"),
        (Answer(200, text='<?xml version="1.0"?><!DOCTYPE html><html></html>'), "(HTTP 200)"),
        (Answer(200, text="<ErrorResponse><Error/></ErrorResponse>"), "(HTTP 200)"),
        (Answer(200, text="<h1>Sign in</h1>"), "(HTTP 200)"),
        (Answer(302, text="ok"), "(HTTP 302 ok)"),
    ],
)
def test_a_webhook_that_says_no_has_not(slack: FakeSlack, answer: Answer, words: str) -> None:
    slack.script = [answer]
    assert words in refused(webhook(slack))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "answer", [Answer(text="ok"), Answer(text="Welcome"), Answer(data={"status": "up"})]
)
def test_a_webhook_that_moved_has_not_got_the_message(
    slack: FakeSlack, status: int, answer: Answer
) -> None:
    """A redirected POST becomes a GET without the message, which any page answers."""
    slack.script = [Answer(status, headers={"Location": f"{slack.url}/elsewhere"}), answer]
    assert f"(HTTP {status}): check that SLACK_SUCCESS_WEBHOOK_URL" in refused(webhook(slack))
    assert slack.requests == 1


@pytest.mark.parametrize(
    "url",
    [f"file:///etc/{SECRET}", f"{SECRET}", f"http://127.0.0.1:1/{SECRET} x", f"https:// {SECRET}"],
)
@pytest.mark.parametrize("token", [f"xoxb-{SECRET}\r\nX: y", f"xoxb-{SECRET}-„", ""])
def test_an_invalid_address_or_token_is_not_quoted_and_not_tried_again(
    slack: FakeSlack, url: str, token: str
) -> None:
    told = refused(webhook(slack, url=url))
    assert "SLACK_SUCCESS_WEBHOOK_URL" in told
    assert "out of time" not in told
    assert "SLACK_BOT_TOKEN" in refused(bot(slack, token=token))


def test_the_repr_of_targets_has_no_secret(slack: FakeSlack) -> None:
    shown = ["SlackTarget(SLACK_SUCCESS_WEBHOOK_URL)", "SlackTarget(SLACK_FAILURE_CHANNEL)"]
    assert [repr(target) for target in targets(slack)] == shown


def test_the_usual_proxy_variables_are_used(
    slack: FakeSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", slack.url)
    slack.script = [Answer(text="ok")]
    send(webhook(slack, url=f"http://hooks.slack.invalid/services/{SECRET}"))
    assert slack.requests == 1
