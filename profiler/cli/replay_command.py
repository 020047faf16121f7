"""``task-profiler replay``: sends the reports of a log group through the forwarder function again."""

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from profiler.aws_account.aws_errors import aws_errors
from profiler.aws_account.replay import (
    FILTER_PATTERN,
    LogEvent,
    ReplayCounts,
    ReplayProgressFile,
    parse_response,
    replay,
)
from profiler.cli.options import WholeNumber, aws_options, parse_time
from profiler.cli.progress import ShowProgress, progress_row
from profiler.cli.wiring.aws_clients import AwsOptions, aws_client
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import NS_PER_MS, format_ms

_MAX_CONCURRENCY = 32
_PERMISSIONS = "logs:FilterLogEvents on the log group and lambda:InvokeFunction on the function"
_FUNCTION_TIMEOUT_SECONDS = 910  # above Lambda's maximum of 900


@click.command("replay", epilog="Example: task-profiler replay --log-group /ecs/jobs --function forwarder --since 30d")
@click.option("--log-group", "group", metavar="GROUP", required=True, help="The log group to read.")
@click.option(
    "--function", "function_name", metavar="NAME", required=True, help="Name or ARN of the forwarder function."
)
@click.option(
    "--since", metavar="TIME", default="7d", show_default=True, help="Start: 30m, 12h or 7d ago, or an ISO time."
)
@click.option("--until", metavar="TIME", default="0m", help="End, like --since (default: now).")
@click.option(
    "--concurrency",
    type=WholeNumber(1, _MAX_CONCURRENCY),
    default=4,
    show_default=True,
    help="Number of concurrent invocations.",
)
@aws_options
@click.option("--dry-run", is_flag=True, help="Count the reports without sending them.")
@click.option("--restart", is_flag=True, help="Ignore the progress of an interrupted replay of this log group.")
def command(
    *,
    group: str,
    function_name: str,
    since: str,
    until: str,
    concurrency: int,
    region: str | None,
    profile: str | None,
    dry_run: bool,
    restart: bool,
) -> None:
    """Send the reports in a log group through the forwarder again.

    An interrupted replay continues where it stopped. Reports that are already indexed do not change.
    """
    now_ms = SystemClock().wall_ns() // 1_000_000
    start_ms, end_ms = parse_time(since, now_ms), parse_time(until, now_ms)
    if start_ms >= end_ms:
        raise UsageError("--since is not before --until: use an earlier --since or a later --until.")
    aws = _connect(group, None if dry_run else function_name, AwsOptions(region=region, profile=profile))
    progress_file = ReplayProgressFile(_state_file(os.environ, group, function_name, aws.place), start_ms, end_ms)
    from_ms = start_ms
    if not dry_run:
        _create_state_folder(progress_file)
        if restart:
            progress_file.clear()
        from_ms = min(progress_file.resume_ms(), end_ms)
        if from_ms > start_ms:
            click.echo(f"Continuing an interrupted replay from {format_ms(from_ms * NS_PER_MS)}.", err=True)
    replay_range = _ReplayRange(group=group, start_ms=from_ms, end_ms=end_ms, concurrency=concurrency)
    try:
        counts = _run(replay_range, aws, progress_file)
    except (OSError, ValueError) as error:
        raise TaskProfilerError(f"The replay was interrupted ({error}): run it again to continue.") from error
    if not dry_run:
        progress_file.complete()
    click.echo(_summary(counts, dry_run=dry_run))


def _create_state_folder(progress_file: ReplayProgressFile) -> None:
    try:
        progress_file.create_directory()
    except OSError as error:
        raise TaskProfilerError(
            f"Cannot store the replay's progress ({error}): make this writable, or set XDG_STATE_HOME."
        ) from error


class _ReplayRange(Struct, frozen=True, kw_only=True):
    group: str
    start_ms: int
    end_ms: int
    concurrency: int


class _Aws(Struct, frozen=True, kw_only=True):
    """The services of one region and account.

    ``place`` names both, since other regions and accounts may have groups and functions of the same names.
    """

    lines: "_LogGroup"
    function: "_Lambda | None"
    place: str


def _connect(group: str, function_name: str | None, options: AwsOptions) -> _Aws:
    from botocore.config import Config  # heavy, and not for --help
    from botocore.exceptions import BotoCoreError, ClientError

    retries = {"mode": "standard", "max_attempts": 8}
    config = Config(read_timeout=_FUNCTION_TIMEOUT_SECONDS, retries=retries, max_pool_connections=_MAX_CONCURRENCY)
    with aws_errors(f"{group} cannot be read", _PERMISSIONS):
        logs = aws_client("logs", options, os.environ, config)
        function = None
        if function_name is not None:
            function = _Lambda(aws_client("lambda", options, os.environ, config), function_name)
        sts = aws_client("sts", options, os.environ)
    try:
        account = sts.get_caller_identity()["Account"]
    except (BotoCoreError, ClientError):  # needs no permission, but network access
        account = ""
    return _Aws(lines=_LogGroup(logs, group), function=function, place=f"{logs.meta.region_name} {account}")


def _run(replay_range: _ReplayRange, aws: _Aws, progress_file: ReplayProgressFile) -> ReplayCounts:
    with aws_errors(f"{replay_range.group} cannot be replayed", _PERMISSIONS), progress_row(os.environ) as show:
        progress = _Progress(show, replay_range, progress_file if aws.function is not None else None)
        return replay(
            aws.lines,
            aws.function,
            progress,
            group=replay_range.group,
            start_ms=replay_range.start_ms,
            end_ms=replay_range.end_ms,
            concurrency=replay_range.concurrency,
        )


class _LogGroup:
    """Reads a log group by FilterLogEvents, page by page."""

    def __init__(self, client: Any, group: str) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._paginator = client.get_paginator("filter_log_events")
        self._group = group

    def between(self, start_ms: int, end_ms: int) -> Iterator[LogEvent]:
        """Yield the events of the time. ``endTime`` of the service is inclusive, ``end_ms`` is not."""
        pages = self._paginator.paginate(
            logGroupName=self._group, startTime=start_ms, endTime=end_ms - 1, filterPattern=FILTER_PATTERN
        )
        for page in pages:
            for event in page["events"]:
                yield LogEvent(
                    stream=event["logStreamName"],
                    id=event["eventId"],
                    timestamp_ms=event["timestamp"],
                    message=event["message"],
                )


class _Lambda:
    """Calls the forwarder synchronously, because its response has the counts."""

    def __init__(self, client: Any, name: str) -> None:  # noqa: ANN401  as above
        self._client = client
        self._name = name

    def invoke(self, event: Mapping[str, object]) -> ReplayCounts:
        """Call the function once."""
        response = self._client.invoke(FunctionName=self._name, Payload=msgspec.json.encode(event))
        return parse_response(response["Payload"].read(), response.get("FunctionError"))


class _Progress:
    """Shows the progress, and stores it if reports are sent."""

    def __init__(self, show: ShowProgress, replay_range: _ReplayRange, file: ReplayProgressFile | None) -> None:
        self._show = show
        self._range = replay_range
        self._file = file

    def window_done(self, done_until_ms: int, counts: ReplayCounts) -> None:
        """See profiler.aws_account.replay."""
        if self._file is not None:
            self._file.save(done_until_ms)
        start_ms, end_ms = self._range.start_ms, self._range.end_ms
        self._show(f"{counts.found} reports", (done_until_ms - start_ms) / max(end_ms - start_ms, 1))


def _state_file(environment: Mapping[str, str], group: str, function_name: str, place: str) -> Path:
    state = environment.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    name = sha256(f"{group}\0{function_name}\0{place}".encode()).hexdigest()[:16]
    return folder / "task-profiler" / f"replay-{name}"


def _summary(counts: ReplayCounts, *, dry_run: bool) -> str:
    if dry_run:
        return f"{counts.found} reports and checkpoints would be sent."
    return f"{counts.found} reports and checkpoints sent: {counts.indexed} indexed, {counts.failed} failed."
