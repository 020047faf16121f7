"""Prints the notice of an event, to check it before deployment: ``python -m forwarder.preview < EVENT.json``.

Prints the Block Kit JSON that ``task_stopped`` would send for the event alone, without AWS and without a cluster.
``--send`` also sends it, to the channel in the environment's settings.
"""

import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence

from forwarder.errors import ForwarderError, SettingsError
from forwarder.invocation import InvocationTime
from forwarder.notices.channel import NoticeKind
from forwarder.notices.notice import Notice
from forwarder.notices.slack_message import message
from forwarder.notices.slack_sender import SlackSender
from forwarder.notices.slack_settings import read_targets
from forwarder.settings import fetch_secret, read_notice_settings
from forwarder.task.containers import LogStream
from forwarder.task.event import StoppedTask, parse_stopped_task
from forwarder.task.run_log import ReportFinder
from forwarder.task_stopped import TaskStoppedHandler

_BUDGET_MS = 60_000


class _PreviewBackend:
    """Has no task definitions and no log streams; keeps the notice instead of posting it."""

    def __init__(self) -> None:
        self.notice: Notice | None = None
        self.kind: NoticeKind = "failure"

    def describe(self, arn: str) -> Mapping[str, object] | None:  # noqa: ARG002  part of the interface
        return None

    def newest(self, stream: LogStream) -> Sequence[str]:  # noqa: ARG002  part of the interface
        return ()

    name = "preview"
    is_selective = True

    def accepts(self, kind: NoticeKind) -> bool:  # noqa: ARG002  part of the interface
        return True

    def post(self, notice: Notice, kind: NoticeKind) -> None:
        self.notice, self.kind = notice, kind


class _PreviewContext:
    """The context of an invocation that may take a minute."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def get_remaining_time_in_millis(self) -> int:
        return _BUDGET_MS - round((time.monotonic() - self._started) * 1000)


def preview(event: object) -> tuple[Notice, NoticeKind]:
    """Return the notice of an event and its kind. Raises SettingsError for an event without a notice."""
    task = parse_stopped_task(event)
    if task is None:
        raise SettingsError(
            'The event is not an "ECS Task State Change" with lastStatus STOPPED: only these events make notices.'
        )
    backend = _PreviewBackend()
    budget = InvocationTime(_PreviewContext())

    def run_log(of: StoppedTask, container: str | None) -> ReportFinder:
        return ReportFinder(backend, budget, of.id, container)

    settings = read_notice_settings({**os.environ, "NOTIFY_SERVICES": "true", "NOTIFY": "all", "NOTIFY_FAMILIES": ""})
    handler = TaskStoppedHandler(
        lambda: settings, definitions=backend, run_log=run_log, index=lambda: None, channels=lambda _settings: [backend]
    )
    handler.handle(task)
    if backend.notice is None:
        raise SettingsError("This event makes no notice.")
    return backend.notice, backend.kind


def main(arguments: Sequence[str]) -> int:
    """Print the message for the event on standard input; with ``--send``, also send it. Returns the exit code."""
    try:
        event = json.load(sys.stdin)
        notice, kind = preview(event)
        kibana_url = read_notice_settings(os.environ).kibana_url
        slack_message = message(notice, kibana_url=kibana_url)
        document = {"channel": kind, "text": slack_message.text, "blocks": slack_message.blocks}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        if "--send" in arguments:
            target = read_targets(os.environ, fetch_secret).get(kind)
            if target is None:
                raise SettingsError(f"No channel is set for {kind}: set SLACK_{kind.upper()}_WEBHOOK_URL.")
            SlackSender(target, InvocationTime(_PreviewContext()), random.random).send(slack_message)
    except json.JSONDecodeError as error:
        sys.stderr.write(f"task-profiler: The event is not JSON ({error}).\n")
        return 1
    except ForwarderError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
