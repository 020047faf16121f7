"""``task-profiler setup redrive`` and ``replay`` with one of their calls to AWS refused, throttled,
or carried out without an answer, each in turn: the error is said, and the command, run again, sends
the rest.
"""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from profiler.aws_account.replay import RedriveProgress
from profiler.aws_account.replay import redrive_events as redrive_queue
from profiler.cli.replay_command import replay
from profiler.cli.setup.setup_commands import redrive
from profiler.core.errors import TaskProfilerError
from tests.dead_letter_queues import EVENTS, FUNCTIONS, Queues
from tests.nth_calls import SAID, Failure, NthCallFails


def tried(command: Any, monkeypatch: pytest.MonkeyPatch, calls: NthCallFails, **given: Any) -> str:
    """The error of a command."""
    monkeypatch.setitem(command.callback.__globals__, "open_clients", lambda *_: calls.open)
    try:
        command.callback(**given, region="eu-west-1", profile=None, yes=True, as_json=False)
    except TaskProfilerError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("failure", get_args(Failure))
def test_a_redrive_with_one_failed_call_loses_no_event(
    failure: Failure, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    whole = Queues()
    calls = NthCallFails(whole.open)
    assert tried(redrive, monkeypatch, calls, name="task-profiler") == ""
    assert set(whole.accepted.values()) == {1}
    assert len(whole.accepted) == EVENTS * len(FUNCTIONS)
    for nth, name in enumerate(calls.calls, 1):
        queues = Queues()
        failing = NthCallFails(queues.open, nth, failure)
        error = tried(redrive, monkeypatch, failing, name="task-profiler")
        assert SAID[failure] in error, (nth, name, error)
        if (name, failure) == ("receive_message", "lost"):
            check_hidden_events_are_said(error, queues, monkeypatch, capfd)
        queues.pass_the_timeout()
        assert tried(redrive, monkeypatch, NthCallFails(queues.open), name="task-profiler") == ""
        assert queues.accepted.keys() == whole.accepted.keys(), (nth, name)
        # An event may be sent twice, because the functions are idempotent.
        assert queues.accepted.total() <= len(queues.accepted) + 1, (nth, name)
        assert not any(queues.messages.values())


def check_hidden_events_are_said(
    error: str,
    queues: Queues,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Until the timeout, a redrive cannot read what a lost answer had in it."""
    assert "What was read last may be hidden for some minutes: run the command again" in error
    hidden = {name: sum(not one for one in queues.messages[name].values()) for name in FUNCTIONS}
    capfd.readouterr()
    assert tried(redrive, monkeypatch, NthCallFails(queues.open), name="task-profiler") == ""
    said = " ".join(capfd.readouterr().err.split())
    for name, count in hidden.items():
        noun = "event" if count == 1 else "events"
        sentence = f"About {count} more {noun} for {name} could not be read, because somebody has"
        assert (sentence in said) == bool(count), said


def test_events_of_an_answer_that_boto3_lost_and_repeated_are_said() -> None:
    """The first answer hides ten messages, and the second one has the others."""
    queues = Queues()
    queues.messages["task-stopped"] = {}
    receive = queues.receive
    sqs = queues.clients["sqs"]

    def lose_one(**given: Any) -> dict[str, Any]:
        receive(**given)
        sqs.receive_message = receive
        return receive(**given) | {"ResponseMetadata": {"IsAnswerLost": True}}

    sqs.receive_message = lose_one
    done = RedriveProgress()
    redrive_queue(queues.open, "forward-logs", "forward-logs", done, now_ms=1)
    assert (done.sent, done.refused) == (EVENTS - 10, {})
    assert done.loss == (
        "An answer of SQS was lost: the messages in it are hidden for a time, and are still in the "
        "queue."
    )


class Groups:
    """Two log groups with reports, and the forwarder's function."""

    def __init__(self) -> None:
        self.forwarded: Counter[str] = Counter()
        self.clients = {
            "logs": SimpleNamespace(
                get_paginator=lambda name: SimpleNamespace(
                    paginate=lambda **given: iter([self._page(name, given)])
                ),
                meta=SimpleNamespace(region_name="eu-west-1"),
            ),
            "sts": SimpleNamespace(get_caller_identity=lambda: {"Account": "123456789012"}),
            "lambda": SimpleNamespace(
                invoke=self._forward, get_function_configuration=lambda **_: {}
            ),
        }

    def open(self, service: str) -> Any:
        return self.clients[service]

    def _page(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        if name == "describe_log_groups":
            return {"logGroups": [{"logGroupName": "/ecs/a"}, {"logGroupName": "/ecs/b"}]}
        message = '{"type": "task.report"}'
        stream = f"{given['logGroupName']} {given['startTime']}"
        event = {"logStreamName": stream, "eventId": "1", "timestamp": 1, "message": message}
        return {"events": [event]}

    def _forward(self, **given: Any) -> dict[str, Any]:
        event = json.loads(given["Payload"])
        sent = json.loads(gzip.decompress(base64.b64decode(event["awslogs"]["data"])))
        self.forwarded[sent["logStream"]] += 1
        counts = b'{"indexed": 1, "failed": 0}'
        return {"Payload": BytesIO(counts)}


@pytest.mark.parametrize("failure", get_args(Failure))
def test_a_replay_with_one_failed_call_continues_where_it_stopped(
    failure: Failure,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The last calls ask how far back the groups reach: without an answer, that is unknown."""
    times = {"since": "2026-11-01T00:00:00Z", "until": "2026-11-01T12:00:00Z"}
    given = {"name": "/ecs/*", "function_name": "forward-logs", **times}

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    whole = Groups()
    calls = NthCallFails(whole.open)
    assert tried(replay, monkeypatch, calls, **given) == ""
    assert set(whole.forwarded.values()) == {1}
    for nth, name in enumerate(calls.calls, 1):
        groups = Groups()
        error = tried(replay, monkeypatch, NthCallFails(groups.open, nth, failure), **given)
        said = " ".join(capfd.readouterr().err.split())
        if name == "get_function_configuration":  # whether it exists, the first report shows
            assert error == ""
            assert groups.forwarded == whole.forwarded
            continue
        assert SAID[failure] in (error or said), (nth, name, error, said)
        if not error:
            assert name == "describe_log_groups"
            assert "It is unknown how far back" in said
            assert groups.forwarded == whole.forwarded
            continue
        assert tried(replay, monkeypatch, NthCallFails(groups.open), **given) == ""
        assert groups.forwarded.keys() == whole.forwarded.keys(), (nth, name)
        assert groups.forwarded.total() <= len(groups.forwarded) + 1, (nth, name)
        assert not [*(tmp_path / "state").rglob("replay-*")]
