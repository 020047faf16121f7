"""``task-profiler show``: one run in the terminal, with the batch's own log lines at its
moments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click
from msgspec import Struct

from profiler.aws_account.aws_errors import aws_errors
from profiler.cli.options import (
    PastRunsCommand,
    SourceOptions,
    WholeNumber,
    completes,
    flag,
    gathered,
    option,
    source_options,
)
from profiler.cli.printing import warn_of_notes, write_json_lines, write_record_lines
from profiler.cli.standard_streams import terminal_columns
from profiler.cli.styled_text import (
    EMPTY,
    INDENT,
    Line,
    Span,
    build_line,
    with_empty_lines_between,
    write_lines,
)
from profiler.cli.terminal.page_parts import MAX_WIDTH, View
from profiler.cli.terminal.run_page import page_lines
from profiler.cli.terminal.stacks_page import stacks_lines
from profiler.cli.wiring.aws_options import open_clients
from profiler.cli.wiring.open_past_runs import open_source, price_overrides, run_filter
from profiler.core.aws_clients import pages_backwards
from profiler.core.clock import SystemClock
from profiler.core.commands_to_copy import command_line
from profiler.core.ecs_terms import run_id_in
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.optional_math import known
from profiler.core.timestamps import NS_PER_MS, local_time
from profiler.record.gpu_facts import gpu_cause_sentences, gpu_memory_sentence
from profiler.record.gpu_memory_texts import gpu_memory_error_line, with_gpu_memory_error
from profiler.record.line_trust import task_of_stream
from profiler.record.record_model import LOCAL, Record, Series
from profiler.record.stacks_line import StacksLine
from profiler.runs.comparison.run_changes import (
    NO_COMPARISON,
    RunComparison,
    compare_runs,
    comparison_without_run,
)
from profiler.runs.past_runs.family_advice import find_advice
from profiler.runs.past_runs.family_evidence import earlier_successes, last_success
from profiler.runs.past_runs.past_run import PastRun
from profiler.runs.past_runs.run_lookup import find_run, find_runs, no_stacks_sentence
from profiler.runs.past_runs.run_moments import RunMoment, find_moments, format_elapsed
from profiler.runs.past_runs.run_source import RunFilter, RunSource
from profiler.runs.step_series import steps_of_checkpoints, with_equal_steps
from profiler.sizing.prices import PriceOverrides, priced_record
from profiler.sizing.size_summary import size_story

_LAST_SUCCESS = "last-success"
_MIN_WIDTH = 40
_PIPE_WIDTH = 80
_LOG_LINES = 10
_MAX_PAGES = 20
_COMPARED_STATUSES = frozenset({"failure", "stopped", "unknown"})
# The report, the call stacks and the notices are in the same stream.
_OWN_LINES = '"type":"task.report"', '"type":"task.stacks"', '"type":"task.notice"'


@click.command(
    "show",
    cls=PastRunsCommand,
    epilog="Example: task-profiler show nightly-etl --from logs:/ecs/nightly-etl --logs",
)
@click.argument(
    "names", metavar="[RUN|FAMILY]", nargs=-1, shell_complete=completes(families=True, ids=True)
)
@source_options
@option(
    "--against",
    "RUN|last-success",
    "Compare with this run. A failed run is compared with its family's last success by default.",
    shell_complete=completes(ids=True),
)
@click.option(
    "--logs",
    "log_count",
    metavar="[N]",
    is_flag=False,
    flag_value=str(_LOG_LINES),
    type=WholeNumber(1, 1_000),
    help=f"Also show the batch's last N log lines ({_LOG_LINES}) before each moment and the end.",
)
@flag("--stacks as_stacks", "Show the call stacks: functions with their shares.")
@flag("--json as_json", "Print the report line; with --stacks, the line of the call stacks.")
@gathered(SourceOptions, "options")
def show(
    options: SourceOptions,
    names: tuple[str, ...],
    against: str | None,
    log_count: int | None,
    as_stacks: bool,
    as_json: bool,
) -> None:
    """Show one run: verdict, resource usage, comparison, advice.

    RUN is a task ID or its beginning, or TASK-ID/CONTAINER, or a task's ARN, or the id of a job of
    AWS Batch, of which the newest attempt is shown. FAMILY selects its newest run. The default is
    the newest run of all. If several containers of the task have a report, all are shown.
    """
    if names[1:]:
        raise UsageError(
            f"show is for one run: to compare two, write {command_line('compare', *names[:2])}"
        )
    name = known(run_id_in, next(iter(names), None))
    against = known(run_id_in, against)
    if name == "" or against == "":
        raise UsageError("The name of the run is empty: give a task ID or a family, or omit it.")
    alone = "--stacks shows nothing else" if as_stacks else "--json prints the record alone"
    if (as_stacks or as_json) and not (against is None and log_count is None):
        raise UsageError(f"{alone}: leave out --against and --logs.")
    selection = run_filter(options, run=name, reads_checkpoints=True)
    source = open_source(options, name=name, keeps_stacks=as_stacks)
    width = min(max(terminal_columns() or _PIPE_WIDTH, _MIN_WIDTH), MAX_WIDTH)
    reads_log = log_count is not None
    view = View(width=width, now_ns=SystemClock().wall_ns(), reads_log=reads_log)
    pages: list[_Page] = []
    stacks: list[_RunStacks] = []
    with warn_of_notes(source):
        runs = find_runs(source, selection)
        if as_stacks:
            stacks = _read_call_stacks(runs, source)
        elif not as_json:
            prices = price_overrides()
            pages = [
                _read_page(_with_cost(run, prices), source, against, prices, view) for run in runs
            ]
    if as_stacks:
        if not stacks:
            raise TaskProfilerError(no_stacks_sentence(source, runs[0].record))
        _print_call_stacks(stacks, view, as_json=as_json)
    elif as_json:
        write_record_lines(run.json_line() for run in runs)
    else:
        _print_pages(pages, log_count, options)


class _Page(Struct, frozen=True, kw_only=True):
    """A run with its series, and its lines on the terminal."""

    record: Record
    series: Series | None
    lines: Sequence[Line]


class _RunStacks(Struct, frozen=True, kw_only=True):
    """A run with its call stacks."""

    record: Record
    stacks: StacksLine


def _read_page(
    run: PastRun, source: RunSource, against: str | None, prices: PriceOverrides, view: View
) -> _Page:
    series = _series_of(run, source)
    family = source.family_source(run)
    comparison = _comparison_of_run(run, against, source, family, prices)
    sizes = size_story(find_advice(run, family, prices), run.story.usage)
    lines = page_lines(run, view, series, comparison, sizes)
    return _Page(record=run.record, series=series, lines=lines)


def _with_cost(run: PastRun, prices: PriceOverrides) -> PastRun:
    """The run with what it costs."""
    return run.with_record(priced_record(run.record, prices))


def _print_pages(pages: Sequence[_Page], log_count: int | None, options: SourceOptions) -> None:
    """Print the pages below each other, each with its log lines. Raises TaskProfilerError."""
    for number, page in enumerate(pages):
        if number:
            write_lines([EMPTY])
        write_lines(page.lines)
        if log_count is not None:
            _print_logs(page.record, page.series, log_count, options)


def _series_of(run: PastRun, source: RunSource) -> Series | None:
    """The series of the record, else of the checkpoints."""
    if run.record.series:
        return run.record.series
    steps = steps_of_checkpoints(run.checkpoints or source.checkpoints(run))
    return with_equal_steps(steps, run.started_at)


def _read_call_stacks(runs: Sequence[PastRun], source: RunSource) -> list[_RunStacks]:
    """The call stacks of the runs that have some."""
    found = []
    for run in runs:
        stacks = source.stacks(run.report)
        if stacks is not None:
            found.append(_RunStacks(record=run.record, stacks=stacks))
    return found


def _print_call_stacks(found: Sequence[_RunStacks], view: View, *, as_json: bool) -> None:
    if as_json:
        write_json_lines(one.stacks for one in found)
        return
    write_lines(
        with_empty_lines_between(stacks_lines(one.record, one.stacks, view.width) for one in found)
    )


def _comparison_of_run(
    run: PastRun,
    against: str | None,
    source: RunSource,
    family_source: RunSource,
    prices: PriceOverrides,
) -> RunComparison:
    """The requested comparison, or a failed run's with its family's last success."""
    if against is None and run.outcome.status not in _COMPARED_STATUSES:
        return NO_COMPARISON
    record = run.record
    successes = earlier_successes(run, family_source)
    earlier = [priced_record(success.record, prices) for success in successes]
    if against in (None, _LAST_SUCCESS):
        success = last_success(run, successes, family_source)
        if success is None:
            return comparison_without_run(f"earlier success of {run.family.name} in {source.place}")
        other = success.record
        role = "last success"
    else:
        other = find_run(source, RunFilter(run=against), record.container.name).record
        role = "run"
    that = priced_record(other, prices)
    return compare_runs(record, that, role, is_complete=against is not None, earlier=earlier)


def _print_logs(record: Record, series: Series | None, count: int, options: SourceOptions) -> None:
    """Show the batch's last lines before each moment. Raises TaskProfilerError."""
    if record.launch_type == LOCAL and record.log_group is None:
        raise TaskProfilerError(
            "The output of local runs is not kept: use --logs for batches in ECS."
        )
    moments = find_moments(record, series)
    what = f"The log of {record.task_id} cannot be read"
    gone = (
        f"{record.log_group} has no stream {record.log_stream}: check the retention of the group, "
        "--region and --profile."
    )
    with aws_errors(what, f"logs:GetLogEvents on {record.log_group}", not_found=gone):
        client = open_clients(
            options.region or record.log_region or record.region, options.profile
        )("logs")
        lines = [EMPTY, *log_lines(client.get_log_events, record, moments, count)]
    write_lines(lines)


def log_lines(
    get_log_events: Callable[..., Mapping[str, Any]],
    record: Record,
    moments: Sequence[RunMoment],
    count: int,
) -> Iterator[Line]:
    """The last ``count`` lines before each moment and the end, none twice.

    Raises TaskProfilerError.
    """
    if record.log_group is None or record.log_stream is None:
        raise TaskProfilerError(
            "The record contains no log stream: --logs needs a batch that logs with awslogs."
        )
    stream = task_of_stream(record.log_stream)
    if stream is not None and stream.task_id != record.task_id:
        raise TaskProfilerError(
            f"The record of task {record.task_id} names the log stream of task {stream.task_id}: "
            "its lines are not shown."
        )
    yield build_line(Span(f"{record.log_group} {record.log_stream}", "bold"))
    shown: set[str] = set()
    texts: list[str] = []
    where = {"logGroupName": record.log_group, "logStreamName": record.log_stream}
    for title, until_ms in _log_places(record, moments):
        events = _last_events(
            partial(get_log_events, **where, endTime=until_ms + 1, startFromHead=False), count
        )
        yield EMPTY
        yield build_line(Span(f"{INDENT}{title}", "dim"), "" if events else "  no lines before it")
        for event in events:
            text = event["message"].rstrip("\n")
            key = f"{event['timestamp']} {text}"
            if key not in shown:
                shown.add(key)
                at = local_time(event["timestamp"] * NS_PER_MS)
                yield build_line(INDENT, Span(f"{at:%H:%M:%S} ", "dim"), text)
                texts.append(text)
    lacking = with_gpu_memory_error(record, gpu_memory_error_line(texts))
    if lacking != record:
        yield EMPTY
        yield build_line(gpu_memory_sentence(record.container.name))
        yield from map(build_line, gpu_cause_sentences(lacking))


def _last_events(
    read_page: Callable[..., Mapping[str, Any]], count: int
) -> Sequence[Mapping[str, Any]]:
    events: list[Mapping[str, Any]] = []
    for page in pages_backwards(partial(read_page, limit=count + len(_OWN_LINES)), _MAX_PAGES):
        batch = []
        for event in page["events"]:
            if not any(own in event["message"] for own in _OWN_LINES):
                batch.append(event)
        events = [*batch, *events]
        if len(events) >= count:
            break
    return events[-count:]


def _log_places(record: Record, moments: Sequence[RunMoment]) -> Iterator[tuple[str, int]]:
    started_ns = record.started_ns
    if started_ns is not None:
        for moment in moments:
            title = f"before {format_elapsed(moment.start_ms)}: {moment.text}"
            yield title, started_ns // NS_PER_MS + round(moment.start_ms)
    finished_ns = record.finished_ns
    if finished_ns is not None:
        yield "before the end", finished_ns // NS_PER_MS + 1000
