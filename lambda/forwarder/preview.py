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
from forwarder.run_log import RunLog
from forwarder.secrets import fetch_secret
from forwarder.settings import read_notice_settings
from forwarder.slack_message import message
from forwarder.slack_sender import SlackSender
from forwarder.slack_settings import read_targets
from forwarder.task_definition import LogPlace
from forwarder.task_ended import TaskEnded
from forwarder.task_event import StoppedTask, parse_stopped_task

_SECONDS = 60.0


class _Nothing:
    """No definitions, no log streams; keeps the notice instead of sending it."""

    def __init__(self) -> None:
        self.notice: Notice | None = None
        self.kind = ""

    def describe(self, arn: str) -> Mapping[str, object] | None:  # noqa: ARG002  nobody is asked
        return None

    def newest(self, place: LogPlace) -> Sequence[str]:  # noqa: ARG002  as above
        return ()

    def tell(self, notice: Notice, kind: str) -> bool:
        self.notice, self.kind = notice, kind
        return True


class _Minute:
    """The time of an invocation of a minute."""

    def __init__(self) -> None:
        self._end = time.monotonic() + _SECONDS

    def remaining_seconds(self) -> float:
        return self._end - time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def preview(event: object) -> tuple[Notice, str]:
    """The notice of an event and the channel's kind. Raises SettingsError for an event that makes none."""
    task = parse_stopped_task(event)
    if task is None:
        raise SettingsError('The event is no "ECS Task State Change" with lastStatus STOPPED: only these are told.')
    nothing = _Nothing()
    clock = _Minute()

    def run_log(of: StoppedTask, container: str | None) -> RunLog:
        return RunLog(nothing, clock, of.id, container)

    settings = read_notice_settings({**os.environ, "NOTIFY_SERVICES": "true", "NOTIFY": "all", "NOTIFY_FAMILIES": ""})
    ended = TaskEnded(
        lambda: settings, definitions=nothing, run_log=run_log, index=lambda: None, telling=lambda _settings: nothing
    )
    ended.handle(task)
    if nothing.notice is None:
        raise SettingsError("This event makes no notice.")
    return nothing.notice, nothing.kind


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
            SlackSender(target, _Minute(), random.random).send(shown)
    except json.JSONDecodeError as error:
        sys.stderr.write(f"task-profiler: The event is no JSON ({error}).\n")
        return 1
    except ForwarderError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
