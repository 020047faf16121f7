"""``task-profiler show``: one run in the terminal."""

import os
import shutil
from collections.abc import Iterator, Sequence

import click
import msgspec
from msgspec.structs import replace

from profiler.cli.charts.time_lines import BLOCK_CHARACTERS
from profiler.cli.options import SourceOptions, WholeNumber, source_options
from profiler.cli.printing import encodable, is_terminal, warn, write_out
from profiler.cli.show.run_page import MAX_WIDTH, View, page_lines
from profiler.cli.show.size_lines import find_advice
from profiler.cli.show.two_runs import Comparison, compare
from profiler.cli.styled_text import ASCII, BLOCKS, EMPTY, write_lines
from profiler.cli.wiring.configured_prices import price_overrides
from profiler.cli.wiring.open_past_runs import aws_options_of, open_source, run_filter
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.past_runs.families import last_success
from profiler.past_runs.moments import find_moments, series_of_checkpoints
from profiler.past_runs.run_source import PastRun, RunFilter, RunSource, find_run, find_runs, no_stacks_sentence
from profiler.record.family_identity import family_key
from profiler.record.record_model import Record, Series, known_status

_LAST_SUCCESS = "last-success"
_MIN_WIDTH = 60
_PIPE_WIDTH = 80
_LOG_LINES = 10
_MAX_LOG_LINES = 1_000
_COMPARED_STATUSES = frozenset({"failure", "stopped", "unknown"})


@click.command("show", epilog="Example: task-profiler show nightly-etl --log-group /ecs/nightly-etl --logs")
@click.argument("name", metavar="[RUN|FAMILY]", required=False)
@source_options
@click.option(
    "--against",
    metavar="RUN|last-success",
    help="Compare with this run. A failed run is compared with its family's last success by default.",
)
@click.option(
    "--logs",
    "log_count",
    metavar="[N]",
    is_flag=False,
    flag_value=str(_LOG_LINES),
    type=WholeNumber(1, _MAX_LOG_LINES),
    help=f"Also show the batch's last N log lines ({_LOG_LINES}) before each moment and the end.",
)
@click.option("--stacks", "as_stacks", is_flag=True, help="Show the call stacks: functions with their shares.")
@click.option("--json", "as_json", is_flag=True, help="Print the report line; with --stacks, that of the call stacks.")
def command(
    options: SourceOptions, name: str | None, against: str | None, log_count: int | None, as_stacks: bool, as_json: bool
) -> None:
    """Show one run: verdict, resource usage, comparison, advice.

    RUN is a task ID or its beginning, or TASK-ID/CONTAINER. FAMILY selects its newest run. The default
    is the newest run of all. If several containers of the task have a report, all are shown.
    Runs come from the local history unless --from, --elasticsearch or --log-group is given.
    """
    if name == "" or against == "":
        raise UsageError("The name of the run is empty: give a task ID or a family, or omit it.")
    if as_stacks and not (against is None and log_count is None):
        raise UsageError("--stacks shows nothing else: leave out --against and --logs.")
    clock = SystemClock()
    selection = run_filter(options, clock, run=name, reads_checkpoints=True)
    source = open_source(options, os.environ, clock, keeps_stacks=as_stacks)
    runs = find_runs(source, selection)
    view = View(width=_width(), glyphs=BLOCKS if encodable("".join(_shown_glyphs())) else ASCII, now_ns=clock.wall_ns())
    if as_stacks:
        _show_stacks(runs, source, view, as_json=as_json)
        return
    if as_json:
        _warn_about(source)
        write_out(b"".join(run.json_line() + b"\n" for run in runs))
        return
    prices = price_overrides(os.environ)
    pages = []
    for run in runs:
        series = _series(run, source)
        comparison = _comparison(run, against, source)
        # A log group would be read over weeks, only for the advice.
        advice = find_advice(run, None if options.groups else source, prices)
        pages.append((run.report.record, series, page_lines(run, view, series, comparison, advice)))
    _warn_about(source)
    for number, (record, series, lines) in enumerate(pages):
        write_lines([EMPTY, *lines] if number else lines, os.environ)
        if log_count is not None:
            _print_logs(record, series, log_count, options)


def _show_stacks(runs: Sequence[PastRun], source: RunSource, view: View, *, as_json: bool) -> None:
    """Show the stacks of each container that has some."""
    found = [(run.report.record, stacks) for run in runs if (stacks := source.stacks(run.report)) is not None]
    _warn_about(source)
    if not found:
        raise TaskProfilerError(no_stacks_sentence(source, runs[0].report.record))
    if as_json:
        write_out(b"".join(msgspec.json.encode(stacks) + b"\n" for _, stacks in found))
        return
    from profiler.cli.show.stacks_page import stacks_lines  # only for --stacks

    for number, (record, stacks) in enumerate(found):
        lines = stacks_lines(record, stacks, view.width, view.glyphs)
        write_lines([EMPTY, *lines] if number else lines, os.environ)


def _shown_glyphs() -> Iterator[str]:
    yield from (BLOCKS.average, BLOCKS.p95, BLOCKS.peak, BLOCKS.limit, BLOCKS.dot, BLOCKS.at_least, BLOCKS.arrow, "▁")
    yield BLOCK_CHARACTERS


def _warn_about(source: RunSource) -> None:
    for note in source.notes:
        warn(note)


def _series(run: PastRun, source: RunSource) -> Series | None:
    """The record's series, else one made from the run's checkpoints."""
    record = run.report.record
    if record.series is not None:
        return record.series
    return series_of_checkpoints(run.checkpoints or source.checkpoints(run))


def _comparison(run: PastRun, against: str | None, source: RunSource) -> Comparison | None:
    """The comparison that was asked for; of a failed run, that with its family's last success."""
    if against is not None and against != _LAST_SUCCESS:
        other = find_run(source, RunFilter(run=against), run.report.record.container.name)
        return compare(run, other, "run", is_complete=True)
    if against is None and known_status(run.report.record) not in _COMPARED_STATUSES:
        return None
    success = last_success(run, source)
    if success is not None:
        return compare(run, success, "last success", is_complete=against is not None)
    family = family_key(run.report.record)
    return Comparison(other=None, name=f"earlier success of {family.name} in {source.place}")


def _width() -> int:
    """The columns of the terminal, within limits; 80 in a pipe."""
    columns = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns if is_terminal() else _PIPE_WIDTH
    return min(max(columns, _MIN_WIDTH), MAX_WIDTH)


def _print_logs(record: Record, series: Series | None, count: int, options: SourceOptions) -> None:
    from profiler.aws_account.aws_errors import aws_errors
    from profiler.cli.show.batch_log import log_lines  # boto3 is only for --logs
    from profiler.cli.wiring.aws_options import aws_client

    aws = aws_options_of(options)
    if aws.region is None and record.region is not None:
        aws = replace(aws, region=record.region)
    moments = find_moments(record, series)
    what = f"The log of {record.task_id} cannot be read"
    gone = (
        f"{record.log_group} has no stream {record.log_stream}: check the retention of the group, --region and "
        "--profile."
    )
    with aws_errors(what, f"logs:GetLogEvents on {record.log_group}", not_found=gone):
        client = aws_client("logs", aws, os.environ)
        lines = [EMPTY, *log_lines(client.get_log_events, record, moments, count, None)]
    write_lines(lines, os.environ)
