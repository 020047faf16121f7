"""The retry in ``handler.task_stopped``: off by default, and started once with the settings of the environment."""

from datetime import UTC, datetime
from typing import Any

import pytest

import handler
from profiler.core.timestamps import format_datetime
from tests.fake_slack import FakeSlack
from tests.lambda_environment import MinuteContext, create_idempotency_table, function_environment, register_revisions
from tests.unit.forwarder.test_memory_retry import NEW_ID, FakeAws
from tests.unit.forwarder.test_retry_plan import BATCH
from tests.unit.forwarder.test_task_event import container, definition, event


def killed(**detail: Any) -> dict[str, Any]:
    now = format_datetime(datetime.now(UTC))
    return event(containers=[BATCH], cpu="256", memory="512", stoppedAt=now, **detail)


@pytest.mark.parametrize("families", ["", "other", "night*"])
def test_a_killed_run_of_a_selected_family_is_started_once(
    families: str, slack: FakeSlack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"SLACK_FAILURE_WEBHOOK_URL": slack.webhook_url, "IDEMPOTENCY_TABLE": "done", "REPORT_WAIT_SECONDS": "0"}
    with function_environment(monkeypatch, RETRY_OUT_OF_MEMORY=families, **settings):
        described = definition(container("task-monitor", essential=False, memory=64), container("batch", memory=64))
        register_revisions("nightly", described["containerDefinitions"])
        create_idempotency_table("done")
        aws = FakeAws()
        read = handler._definitions()
        monkeypatch.setattr(handler, "_definitions", lambda: read)
        made, real = {name: aws.client(name) for name in ("ecs", "events", "scheduler")}, handler._client
        monkeypatch.setattr(handler, "_client", lambda name, *region: made.get(name) or real(name, *region))
        one = killed()
        for _ in range(2):
            assert handler.task_stopped(one, MinuteContext())["status"] == "failure"
        is_retried = families == "night*"
        assert len(aws.requests) == is_retried
        (message,) = slack.messages
        assert (f"Started again with 1 GB (was 512 MB): task {NEW_ID[:8]}" in str(message)) is is_retried
        if is_retried:
            limit = aws.requests[0]["overrides"]["containerOverrides"]
            assert limit == [{"name": "batch", "command": ["x"], "memory": 96}]
            retry = killed(taskArn=one["detail"]["taskArn"][:-8] + "0" * 8, startedBy=aws.requests[0]["startedBy"])
            handler.task_stopped(retry, MinuteContext())
            assert len(aws.requests) == 1
            assert "This was the retry of 4dd5853f" in str(slack.messages[-1])
    assert "Not started again" not in capsys.readouterr().out
