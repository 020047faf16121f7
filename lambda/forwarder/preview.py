"""Prints the notice of an event, to check it before deployment: ``python -m forwarder.preview < EVENT.json``.

Prints what ``task_stopped`` would send for the event alone, without AWS or a search cluster: the Block Kit JSON of a
Slack message, and the detail of the EventBridge event. The numbers and the log lines of the run are missing. Instead of
an event, it accepts a line of type ``task.notice`` or ``schedule.notice``. ``--send`` also sends the notice, to every
channel in the environment's settings.
"""

import json
import os
import sys
import time
from collections.abc import Sequence

import msgspec

from forwarder.delivery_errors import ForwarderError, SettingsError
from forwarder.function_settings import NoticeSettings, read_notice_settings
from forwarder.invocation_time import InvocationTime
from forwarder.notices.channel import Announcement, ChannelKind, NoticeChannel, announce
from forwarder.notices.configured_channels import configured_channels
from forwarder.notices.event_bus import bus_event
from forwarder.notices.slack_channel import message_of
from forwarder.task.find_report import ReportFinder
from forwarder.task.task_event import parse_stopped_task
from forwarder.task_stopped import TaskStoppedHandler
from profiler.core.aws_clients import bounded_client
from profiler.record.notice_model import decode_notice

_BUDGET_MS = 60_000
_NOTICE_TYPES = ("task.notice", "schedule.notice")


class _PreviewChannel:
    """Keeps the notice instead of posting it."""

    name = "preview"
    is_selective = True

    def __init__(self) -> None:
        self.posted: tuple[Announcement, ChannelKind] | None = None

    def accepts(self, kind: ChannelKind) -> bool:  # noqa: ARG002  part of the interface
        return True

    def post(self, announcement: Announcement, kind: ChannelKind) -> None:
        self.posted = announcement, kind


class _PreviewContext:
    """The context of an invocation that may take a minute."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def get_remaining_time_in_millis(self) -> int:
        return _BUDGET_MS - round((time.monotonic() - self._started) * 1000)


def preview(event: object) -> tuple[Announcement, ChannelKind]:
    """Return what an event or a notice line announces, and its kind. Raises SettingsError if it announces nothing."""
    if isinstance(event, dict) and event.get("type") in _NOTICE_TYPES:
        try:
            return decode_notice(json.dumps(event)), "failure"
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise SettingsError(
                f"The line is not a valid notice ({error}): pass a line as it is in the log."
            ) from error
    task = parse_stopped_task(event)
    if task is None:
        raise SettingsError(
            'The event is neither an "ECS Task State Change" with lastStatus STOPPED nor the line of a notice: only '
            "these cause notifications."
        )
    channel = _PreviewChannel()
    budget = InvocationTime(_PreviewContext())
    settings = read_notice_settings({**os.environ, "NOTIFY_SERVICES": "true", "NOTIFY": "all", "NOTIFY_FAMILIES": ""})
    TaskStoppedHandler(
        lambda: settings,
        describe=lambda _arn: None,
        run_log=lambda task, container: ReportFinder(lambda _stream: iter(()), budget, task.id, container),
        index=lambda: None,
        channels=lambda _settings: [channel],
    ).handle(task)
    if channel.posted is None:
        raise SettingsError("This event causes no notification.")
    return channel.posted


def channels(settings: NoticeSettings) -> list[NoticeChannel]:
    """Return the channels that a notice is sent to, as the environment configures them."""
    budget = InvocationTime(_PreviewContext())
    return configured_channels(settings, os.environ, budget, lambda: bounded_client("events"))


def show(notice: Announcement, kind: ChannelKind, settings: NoticeSettings) -> str:
    """Return the JSON of the Slack message, and of the event's detail, which the ``task.ended`` line has as well."""
    slack = message_of(notice, kibana_url=settings.kibana_url)
    detail = msgspec.to_builtins(bus_event(notice, kibana_url=settings.kibana_url).detail)
    return json.dumps({"channel": kind, "text": slack.text, "blocks": slack.blocks, "detail": detail}, indent=2)


def send(notice: Announcement, kind: ChannelKind, settings: NoticeSettings) -> None:
    """Send the notice to every channel that is configured.

    Raises:
        ForwarderError: no channel is configured, or the first error of a channel; all were tried.
    """
    errors: list[ForwarderError] = []
    posted = announce(channels(settings), notice, kind, lambda _key, work: work(), errors)
    if errors:
        raise errors[0]
    if not posted:
        raise SettingsError(
            f"No channel is configured for {kind}: set SLACK_{kind.upper()}_WEBHOOK_URL or EVENT_BUS_NAME."
        )


def main(arguments: Sequence[str]) -> int:
    """Print the notice of the event on standard input; with ``--send``, also send it. Returns the exit code."""
    try:
        notice, kind = preview(json.load(sys.stdin))
        settings = read_notice_settings(os.environ)
        sys.stdout.write(show(notice, kind, settings) + "\n")
        if "--send" in arguments:
            send(notice, kind, settings)
    except json.JSONDecodeError as error:
        sys.stderr.write(f"task-profiler: The event is not JSON ({error}).\n")
        return 1
    except ForwarderError as error:
        sys.stderr.write(f"task-profiler: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
