"""``task-profiler notify``: what ``task_stopped`` would send for an event alone, without AWS or
a search cluster.
"""

import json
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import BinaryIO

import click
import msgspec

from profiler.cli.interruption import hold_stop_signals
from profiler.cli.options import aws_options, flag, yes_option
from profiler.cli.printing import say, warn
from profiler.cli.wiring.aws_options import aws_environment
from profiler.core.aws_clients import bounded_client
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import read_text_file
from profiler.core.json_levels import within_levels
from profiler.core.notice_channels import SENDERS, ChannelKind
from profiler.core.text import install_hint, listed
from profiler.forwarder.ended_run import EndedTask
from profiler.forwarder.function_settings import NoticeSettings, read_notice_settings
from profiler.forwarder.invocation import ForwarderError, InvocationTime, SettingsError
from profiler.forwarder.notifications.event_details import bus_event
from profiler.forwarder.notifications.notification import NoticeChannel, Notification
from profiler.forwarder.notifications.notification import post_to_accepting_channels as post_to
from profiler.forwarder.notifications.slack_messages import slack_message_of
from profiler.forwarder.report_finder import ReportFinder, TaskContainers
from profiler.forwarder.task_stopped import TaskStoppedHandler
from profiler.record.notice_model import decode_notice_json
from profiler.record.stopped_task import StoppedTask, parse_stopped_task

_NOTICE_TYPES = ("task.notice", "schedule.notice")


@click.command("notify", epilog="Example: task-profiler notify stopped-task.json --yes")
@click.argument("file", metavar="FILE", type=click.File("rb"))
@yes_option
@flag("--json as_json", "Print the notification, which is JSON, on one line.")
@aws_options
def notify(
    file: BinaryIO, yes: bool, as_json: bool, region: str | None, profile: str | None
) -> None:
    """Print the notification of a stopped task, and send it with --yes.

    FILE has ECS's event or a notification line; - is standard input. The notification is the Slack
    message and the detail of the EventBridge event. For a stopped task, it contains only data of
    ECS's event; the deployed function adds the run's numbers and log lines. The channels are
    configured by the function's environment variables.
    """
    if find_spec("slack_sdk") is None:
        hint = install_hint("slack-sdk aws-lambda-powertools")
        raise TaskProfilerError(f"notify needs packages of the forwarder: {hint}.")
    # The function's code finds the Region and the credentials in the environment, as in AWS.
    os.environ.update(aws_environment(region, profile, os.environ))
    text = read_text_file(file, "The event", "a stopped task's event")
    try:
        document = json.loads(within_levels(text))
    except ValueError as error:
        line = f" in line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(
            f"The event is not valid JSON: correct the mistake{line}, or pass it as EventBridge "
            "sends it."
        ) from error
    notice, kind = _notification_of(document)
    settings = read_notice_settings(os.environ)
    slack = slack_message_of(notice, kibana_url=settings.kibana_url)
    # The task.ended line contains the detail, too.
    _, detail = bus_event(notice, kibana_url=settings.kibana_url)
    shown = {
        "channel": kind,
        "text": slack.text,
        "blocks": slack.blocks,
        "detail": msgspec.to_builtins(detail),
    }
    say(json.dumps(shown, indent=None if as_json else 2))
    if yes:
        with hold_stop_signals("It stops when the notification is sent.") as stop:
            _send_to_channels(notice, kind, settings)
        stop.raise_if_stopped()
    else:
        warn("Nothing was sent; --yes sends it.")


class _CommandTime(InvocationTime):
    """The minute of a command, which nobody repeats for its user."""

    name = "command"
    more_time = next_attempt = "repeat it"
    last_remedy = "check the network route to {}"
    limit_remedy = "wait for its pause, or a minute"

    def __init__(self) -> None:
        super().__init__(_PreviewContext())


class _PreviewContext:
    """The context of an invocation that may take a minute."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def get_remaining_time_in_millis(self) -> int:
        return 60_000 - round((time.monotonic() - self._started) * 1000)


def _notification_of(event: object) -> tuple[Notification, ChannelKind]:
    """Return the notification of an event or a notice line, and its kind.

    Raises SettingsError if there is none.
    """
    if isinstance(event, dict) and event.get("type") in _NOTICE_TYPES:
        try:
            return decode_notice_json(json.dumps(event)), "failure"
        except msgspec.DecodeError as error:
            raise SettingsError(
                f"The line is not a valid notification line ({error}): pass the line unchanged, "
                "as in the log."
            ) from error
    task = parse_stopped_task(event)
    if task is None:
        raise SettingsError(
            'The event is neither an "ECS Task State Change" with lastStatus STOPPED nor a '
            "notification line: only these cause notifications."
        )
    preview = _Preview()
    TaskStoppedHandler(preview, preview).handle(task)
    if not preview.posted:
        raise SettingsError("This event causes no notification.")
    return preview.posted[0]


class _Preview:
    """An account of which nothing is known, and outputs that only keep the notification."""

    def __init__(self) -> None:
        self.posted: list[tuple[Notification, ChannelKind]] = []
        self._budget = _CommandTime()

    def describe_definition(self, _definition_arn: str) -> None:
        return None

    def report_finder(self, task: StoppedTask, containers: TaskContainers) -> ReportFinder:
        return ReportFinder(lambda _stream: iter(()), self._budget, task, containers)

    def is_on_instance(self, _task: StoppedTask) -> bool:
        return False

    def start_again(self, _ended: EndedTask, _definition: object) -> None:
        return None

    def settings(self) -> NoticeSettings:
        everything = {"NOTIFY_SERVICES": "true", "NOTIFY": "all", "NOTIFY_FAMILIES": ""}
        return read_notice_settings({**os.environ, **everything})

    def document_index(self) -> None:
        return None

    def channels(self, _settings: NoticeSettings) -> list[NoticeChannel]:
        return [NoticeChannel("preview", lambda *sent: self.posted.append(sent))]

    def run_once(self, _key: str, work: Callable[[], object]) -> object:
        return work()

    def print_line(self, line: str) -> None:
        pass

    def export(self, ended: EndedTask) -> None:
        pass

    def warn(self, sentence: str) -> None:
        pass


def _send_to_channels(notice: Notification, kind: ChannelKind, settings: NoticeSettings) -> None:
    """Send it to the configured channels. Raises TaskProfilerError with each channel's error, and
    with the channels that have it.
    """
    # HTTP, which only --yes needs.
    from profiler.forwarder.notifications.channels import configured_channels

    budget = _CommandTime()
    channels = configured_channels(settings, os.environ, budget, lambda: bounded_client("events"))
    errors: list[ForwarderError] = []
    posted = post_to(channels, notice, kind, lambda _key, work: work(), errors)
    if errors:
        sentences = [str(error) for error in errors]
        if posted:
            sentences.append(
                f"The channel {listed(posted)} has the notification, and gets it again if "
                "the command is repeated."
            )
        raise TaskProfilerError(" ".join(sentences)) from errors[0]
    if not posted:
        needed = listed((channel.setting_of(kind) for channel in SENDERS), "or")
        raise SettingsError(f"No channel is configured for {kind}: set {needed}.")
