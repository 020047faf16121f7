"""``task-profiler replay``: wires CloudWatch Logs, the forwarder function and the memory of a replay."""

import os
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.timestamps import NS_PER_MS, format_ms
from profiler.runs.replay import FILTER_PATTERN, LogEvent, ReplayCounts, ReplayProgressFile, parse_response, replay

_RELATIVE_TIME = re.compile(r"(\d{1,5})([mhd])", re.ASCII)
_MS_PER_UNIT = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MAX_CONCURRENCY = 32
_FUNCTION_TIMEOUT_SECONDS = 910  # Lambda's longest run, and some


@click.command("replay", epilog="Example: task-profiler replay --log-group /ecs/jobs --function forwarder --since 30d")
@click.option("--log-group", "group", metavar="GROUP", required=True, help="Log group to read.")
@click.option("--function", "function_name", metavar="NAME", required=True, help="The forwarder's name or ARN.")
@click.option("--since", metavar="TIME", default="7d", show_default=True, help="From: 30m, 12h, 7d, or an ISO time.")
@click.option("--until", metavar="TIME", default="0m", help="To: like --since (default: now).")
@click.option(
    "--concurrency", type=click.IntRange(1, _MAX_CONCURRENCY), default=4, show_default=True, help="Calls at a time."
)
@click.option("--dry-run", is_flag=True, help="Only count what would be sent.")
@click.option("--restart", is_flag=True, help="Forget how far an earlier replay of this log group came.")
def command(
    group: str, function_name: str, since: str, until: str, concurrency: int, dry_run: bool, restart: bool
) -> None:
    """Send the reports found in a log group through the forwarder function again.

    A replay that was broken off goes on where it was. Reports that are in the cluster already stay as
    they are.
    """
    now_ms = SystemClock().wall_ns() // 1_000_000
    start_ms, end_ms = parse_time(since, now_ms), parse_time(until, now_ms)
    if start_ms >= end_ms:
        raise UsageError("--since is not before --until: there is no time between them.")
    aws = _connect(group, None if dry_run else function_name)
    memory = ReplayProgressFile(_state_file(os.environ, group, function_name, aws.place), start_ms, end_ms)
    from_ms = start_ms
    if not dry_run:
        _create_state_folder(memory)
        if restart:
            memory.clear()
        from_ms = min(memory.resume_ms(), end_ms)
        if from_ms > start_ms:
            click.echo(f"A replay was broken off: going on from {format_ms(from_ms * NS_PER_MS)}.", err=True)
    selection = _ReplayRange(group=group, start_ms=from_ms, end_ms=end_ms, concurrency=concurrency)
    try:
        counts = _run(selection, aws, memory)
    except (OSError, ValueError) as error:
        raise TaskProfilerError(f"The replay broke off ({error}): run it again to go on.") from error
    if not dry_run:
        memory.complete()
    click.echo(_summary(counts, dry_run=dry_run))


def _create_state_folder(memory: ReplayProgressFile) -> None:
    try:
        memory.create_directory()
    except OSError as error:
        raise TaskProfilerError(
            f"There is no place to remember how far the replay came ({error}): make it writable, or set XDG_STATE_HOME."
        ) from error


class _ReplayRange(Struct, frozen=True, kw_only=True):
    group: str
    start_ms: int
    end_ms: int
    concurrency: int


class _Aws(Struct, frozen=True, kw_only=True):
    """``place`` is region and account: groups and functions elsewhere may have the same names."""

    lines: "_LogGroup"
    function: "_Lambda | None"
    place: str


def _connect(group: str, function_name: str | None) -> _Aws:
    import boto3  # heavy, and not for --help
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    retries = {"mode": "standard", "max_attempts": 8}
    config = Config(read_timeout=_FUNCTION_TIMEOUT_SECONDS, retries=retries, max_pool_connections=_MAX_CONCURRENCY)
    try:
        logs = boto3.client("logs", config=config)
        function = _Lambda(boto3.client("lambda", config=config), function_name) if function_name else None
    except BotoCoreError as error:
        raise TaskProfilerError(f"AWS cannot be asked: {error} Check credentials and region.") from error
    try:
        account = boto3.client("sts").get_caller_identity()["Account"]
    except (BotoCoreError, ClientError):  # it needs no permission, but a way there
        account = ""
    return _Aws(lines=_LogGroup(logs, group), function=function, place=f"{logs.meta.region_name} {account}")


def _run(selection: _ReplayRange, aws: _Aws, memory: ReplayProgressFile) -> ReplayCounts:
    from botocore.exceptions import BotoCoreError, ClientError  # heavy, see above

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    try:
        with Progress(*columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal) as bar:
            shown = bar.add_task("reports", total=selection.end_ms - selection.start_ms)
            progress = _Progress(bar, shown, selection.start_ms, memory if aws.function is not None else None)
            return replay(
                aws.lines,
                aws.function,
                progress,
                group=selection.group,
                start_ms=selection.start_ms,
                end_ms=selection.end_ms,
                concurrency=selection.concurrency,
            )
    except (BotoCoreError, ClientError) as error:
        raise TaskProfilerError(f"AWS refused: {error}. Check credentials, region, group and function.") from error


class _LogGroup:
    """FilterLogEvents, page by page."""

    def __init__(self, client: Any, group: str) -> None:  # noqa: ANN401  boto3 makes its clients at run time
        self._paginator = client.get_paginator("filter_log_events")
        self._group = group

    def between(self, start_ms: int, end_ms: int) -> Iterator[LogEvent]:
        """The service's end is inclusive."""
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
    """Synchronous calls: the answer tells what was indexed."""

    def __init__(self, client: Any, name: str) -> None:  # noqa: ANN401  as above
        self._client = client
        self._name = name

    def invoke(self, event: Mapping[str, object]) -> ReplayCounts:
        """One call."""
        answer = self._client.invoke(FunctionName=self._name, Payload=msgspec.json.encode(event))
        return parse_response(answer["Payload"].read(), answer.get("FunctionError"))


class _Progress:
    """Moves the bar, and remembers unless it is only a count."""

    def __init__(self, bar: Progress, shown: Any, start_ms: int, memory: ReplayProgressFile | None) -> None:  # noqa: ANN401  rich's own id
        self._bar = bar
        self._shown = shown
        self._start_ms = start_ms
        self._memory = memory

    def window_done(self, done_until_ms: int, counts: ReplayCounts) -> None:
        """See profiler.runs.replay."""
        if self._memory is not None:
            self._memory.save(done_until_ms)
        self._bar.update(self._shown, completed=done_until_ms - self._start_ms, description=f"{counts.found} reports")


def parse_time(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 of ``7d`` (ago) or an ISO time. Raises UsageError."""
    ago = _RELATIVE_TIME.fullmatch(text)
    if ago is not None:
        return _check_after_1970(text, now_ms - int(ago[1]) * _MS_PER_UNIT[ago[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no time: write 30m, 12h, 7d, or an ISO time like 2026-11-20T00:00:00Z."
        ) from error
    return _check_after_1970(text, round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000))


def _check_after_1970(text: str, time_ms: int) -> int:
    if time_ms < 0:
        raise UsageError(f"{text!r} is before 1970, and no log group is as old: write a later time.")
    return time_ms


def _state_file(environment: Mapping[str, str], group: str, function_name: str, place: str) -> Path:
    state = environment.get("XDG_STATE_HOME", "")
    folder = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    name = sha256(f"{group}\0{function_name}\0{place}".encode()).hexdigest()[:16]
    return folder / "task-profiler" / f"replay-{name}"


def _summary(counts: ReplayCounts, *, dry_run: bool) -> str:
    if dry_run:
        return f"{counts.found} reports and checkpoints would be sent."
    return f"{counts.found} reports and checkpoints sent: {counts.indexed} indexed, {counts.failed} failed."
