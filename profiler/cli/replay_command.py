"""``task-profiler replay``: sends the reports of a log group through the forwarder function
again.
"""

import os
from collections import Counter
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Literal

import click

from profiler.aws_account.aws_errors import OpenClient, aws_errors
from profiler.aws_account.clusters_and_log_groups import (
    matching_log_groups,
    missing_log_group_error,
)
from profiler.aws_account.log_retention import AwsLogRetention
from profiler.aws_account.replay import ReplayCounts, ReplayProgressFile, call_forwarder
from profiler.aws_account.replay import replay_reports as replay_group
from profiler.cli.aws_names import FUNCTION, LOG_GROUPS
from profiler.cli.options import SourceOptions, aws_options, flag, option, yes_option
from profiler.cli.printing import NOT_APPLIED, say_sentence, warn, write_json_lines
from profiler.cli.progress import progress_row
from profiler.cli.wiring.aws_options import check_region, open_clients
from profiler.cli.wiring.open_past_runs import run_filter
from profiler.core.aws_error_codes import cause_code
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_MS, format_local, local_zone
from profiler.record.units import format_count

_SENT: tuple[Literal["indexed", "failed", "untrusted"], ...] = ("indexed", "failed", "untrusted")
_READING = "FilterLogEvents"
_NOT_FOUND = "ResourceNotFoundException"
_PERMISSIONS = "logs:FilterLogEvents on the log group and lambda:InvokeFunction on the function"


@click.command(
    "replay",
    epilog=(
        "Example: task-profiler replay --log-group /ecs/jobs --function forwarder --since 30d --yes"
    ),
)
@option(
    *("--log-group name", "GROUP", "The log group to read, or those that match * ? []."),
    type=LOG_GROUPS,
    required=True,
)
@option(
    *("--function function_name", "NAME", "Name or ARN of the forwarder function."),
    type=FUNCTION,
    required=True,
)
@option("--since", "TIME", "Start: 30m, 12h or 7d ago, or an ISO time.", default="7d")
@option("--until", "TIME", "End, like --since (default: now).", default="0m", show_default=False)
@aws_options
@yes_option
@flag("--json as_json", "Print one JSON object instead of a sentence.")
def replay(
    *,
    name: str,
    function_name: str,
    since: str,
    until: str,
    region: str | None,
    profile: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Send the reports in a log group through the forwarder again.

    Without --yes, they are counted. An interrupted replay continues where it stopped. Reports that
    are already indexed do not change. Notifications are indexed, too, but not sent again.
    """
    times = run_filter(SourceOptions(since=since, until=until))
    window_ms = (times.since_ns or 0) // NS_PER_MS, (times.until_ns or 0) // NS_PER_MS
    check_region(region, profile)
    open_client = open_clients(region, profile)
    _check_function_exists(open_client, function_name)
    groups = matching_log_groups(open_client, (name,))
    with aws_errors("The account of the log groups could not be read"):
        account = str(open_client("sts").get_caller_identity()["Account"])  # needs no permission
    # Other accounts and Regions may have groups and functions of the same names.
    region_name = str(open_client("logs").meta.region_name)
    place = f"{region_name} {account}"
    counts: ReplayCounts = Counter()
    files = {}
    for group in groups if yes else ():
        path = _progress_file_path(group, function_name, place)
        files[group] = ReplayProgressFile(path, window_ms[0])
    for group in groups:
        counts += _replay_group(
            open_client, group, account, function_name, files.get(group), window_ms
        )
    for file in files.values():
        file.remove_file()
    kept = AwsLogRetention(open_client, region_name, SystemClock())
    kept.groups_lacking(groups, times.since_ns or 0)
    for sentence in kept.sentences:
        warn(sentence)
    if as_json:
        document: dict[str, object] = {
            "logGroups": groups,
            "lines": counts["read"],
            "isApplied": yes,
        }
        document.update({name: counts[name] if yes else None for name in _SENT})
        write_json_lines([document])
        return
    where = ""
    if len(groups) > 1:
        where = f" in {len(groups)} log groups"
    sent_text = "would be sent"
    if yes:
        sent_text = "sent: " + ", ".join(f"{counts[name]} {name}" for name in _SENT)
    say_sentence(f"{format_count(counts['read'], 'line')}{where} {sent_text}.")
    if not yes:
        say_sentence(NOT_APPLIED)


def _check_function_exists(open_client: OpenClient, name: str) -> None:
    """Raise TaskProfilerError if Lambda says that there is no such function. Whoever may not ask is
    told when the first report is sent.
    """
    functions = open_client("lambda")
    try:
        with aws_errors(f"The function {name}", "lambda:GetFunctionConfiguration"):
            functions.get_function_configuration(FunctionName=name)
    except TaskProfilerError as error:
        if cause_code(error) == _NOT_FOUND:
            raise TaskProfilerError(
                f"There is no Lambda function {name} in {functions.meta.region_name}: check "
                "--function, --region and --profile. The forwarder of a stack is "
                "STACK-forward-logs."
            ) from error


def _replay_group(
    open_client: OpenClient,
    group: str,
    account: str,
    function_name: str,
    progress_file: ReplayProgressFile | None,
    window_ms: tuple[int, int],
) -> ReplayCounts:
    """Send the reports between the two times; without a file for the progress, count them."""
    start_ms, end_ms = window_ms
    functions = open_client("lambda")  # not by several threads
    if progress_file is not None and (from_ms := min(progress_file.resume_ms(), end_ms)) > start_ms:
        start_ms = from_ms
        start = format_local(from_ms * NS_PER_MS)
        click.echo(
            f"Continuing an interrupted replay of {group} from {start} {local_zone()}.", err=True
        )

    sent = 0

    def on_window(done_until_ms: int, counts: ReplayCounts) -> None:
        nonlocal sent
        sent = counts["read"]
        if progress_file is not None:
            progress_file.save_progress(done_until_ms)
        show(
            f"{group}: {format_count(counts['read'], 'report')}",
            (done_until_ms - start_ms) / max(end_ms - start_ms, 1),
        )

    try:
        with aws_errors(f"{group} cannot be replayed", _PERMISSIONS), progress_row() as show:
            logs = open_client("logs")
            send = None
            if progress_file is not None:
                send = partial(call_forwarder, functions, function_name)
            return replay_group(
                logs, group, account, send, on_window, start_ms=start_ms, end_ms=end_ms
            )
    except KeyboardInterrupt:
        if progress_file is not None:
            warn(
                f"{format_count(sent, 'report')} of {group} were sent, and perhaps some more: run "
                "the command again to continue."
            )
        raise
    except TaskProfilerError as error:
        is_of_reading = getattr(error.__cause__, "operation_name", "") == _READING
        if is_of_reading and cause_code(error) == _NOT_FOUND:
            raise missing_log_group_error(open_client, group) from error
        raise
    except (OSError, ValueError) as error:
        raise TaskProfilerError(
            f"The replay was interrupted ({error}): run it again to continue."
        ) from error


def _progress_file_path(group: str, function_name: str, place: str) -> Path:
    """The file for the progress of a group, a function, and the place of both.

    Raises TaskProfilerError if its folder cannot be made.
    """
    state = os.environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):
        state = f"{Path.home()}/.local/state"
    folder = Path(state) / "task-profiler"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TaskProfilerError(
            f"Cannot store the replay's progress ({error}): make this writable, or set "
            "XDG_STATE_HOME."
        ) from error
    name = sha256(f"{group}\0{function_name}\0{place}".encode()).hexdigest()[:16]
    return folder / f"replay-{name}"
