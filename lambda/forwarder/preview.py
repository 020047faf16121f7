"""A notice to look at before anything is deployed: ``python -m forwarder.preview EVENT.json``.

Prints the Block Kit JSON that ``task_stopped`` would send for the event alone: no AWS, no cluster.
``--send`` sends it too, to the channel of the environment's settings.
"""

import json
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence

from forwarder.errors import ForwarderError, SettingsError
from forwarder.notice import Notice
from forwarder.run_log import ReportFinder
from forwarder.secrets import fetch_secret
from forwarder.settings import read_notice_settings
from forwarder.slack_message import message
from forwarder.slack_sender import SlackSender
from forwarder.slack_settings import read_targets
from forwarder.task_definition import LogStream
from forwarder.task_ended import TaskStoppedHandler
from forwarder.task_event import StoppedTask, parse_stopped_task

_BUDGET_SECONDS = 60.0


class _PreviewBackend:
    """No definitions, no log streams; keeps the notice instead of sending it."""

    def __init__(self) -> None:
        self.notice: Notice | None = None
        self.kind = ""

    def describe(self, arn: str) -> Mapping[str, object] | None:  # noqa: ARG002  nobody is asked
        return None

    def newest(self, place: LogStream) -> Sequence[str]:  # noqa: ARG002  as above
        return ()

    def post(self, notice: Notice, kind: str) -> bool:
        self.notice, self.kind = notice, kind
        return True


class _PreviewTime:
    """The time of an invocation of a minute."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _BUDGET_SECONDS

    def remaining_seconds(self) -> float:
        return self._end - time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def preview(event: object) -> tuple[Notice, str]:
    """The notice of an event and the channel's kind. Raises SettingsError for an event that makes none."""
    task = parse_stopped_task(event)
    if task is None:
        raise SettingsError('The event is no "ECS Task State Change" with lastStatus STOPPED: only these are told.')
    backend = _PreviewBackend()
    clock = _PreviewTime()

    def run_log(of: StoppedTask, container: str | None) -> ReportFinder:
        return ReportFinder(backend, clock, of.id, container)

    settings = read_notice_settings({**os.environ, "NOTIFY_SERVICES": "true", "NOTIFY": "all", "NOTIFY_FAMILIES": ""})
    ended = TaskStoppedHandler(
        lambda: settings, definitions=backend, run_log=run_log, index=lambda: None, channel=lambda _settings: backend
    )
    ended.handle(task)
    if backend.notice is None:
        raise SettingsError("This event makes no notice.")
    return backend.notice, backend.kind


def main(arguments: Sequence[str]) -> int:
    """Print, and send if asked to."""
    try:
        event = json.load(sys.stdin)
        notice, kind = preview(event)
        kibana_url = read_notice_settings(os.environ).kibana_url
        shown = message(notice, kibana_url=kibana_url)
        document = {"channel": kind, "text": shown.text, "blocks": shown.blocks}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        if "--send" in arguments:
            target = read_targets(os.environ, fetch_secret).get(kind)
            if target is None:
                raise SettingsError(f"No channel is set for {kind}: set SLACK_{kind.upper()}_WEBHOOK_URL.")
            SlackSender(target, _PreviewTime(), random.random).send(shown)
    except json.JSONDecodeError as error:
        sys.stderr.write(f"task-profiler: The event is no JSON ({error}).\n")
        return 1
    except ForwarderError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
