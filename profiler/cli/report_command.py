"""``task-profiler report``: the report page, one HTML file of past runs."""

import os
import webbrowser
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click

from profiler.cli.options import MAX_RUNS, SourceOptions, WholeNumber, on_fargate_option, source_options
from profiler.cli.printing import STANDARD_OUTPUT, warn, write_out
from profiler.cli.wiring.configured_prices import price_overrides
from profiler.cli.wiring.open_past_runs import open_source, run_filter
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import write_atomically
from profiler.core.text import printable
from profiler.core.timestamps import format_ms
from profiler.core.version import __version__
from profiler.html_report.html_document import read_assets, render_page
from profiler.html_report.page_data import PageData, build_page_data
from profiler.html_report.page_runs import (
    Run,
    Step,
    downsample,
    steps_of_checkpoints,
    steps_of_points,
    steps_of_series,
)
from profiler.html_report.page_series import steps_per_run
from profiler.past_runs.families import last_success
from profiler.past_runs.local_history import LocalRuns
from profiler.past_runs.run_source import PastRun, RunFilter, RunSource, find_run, no_run_sentence
from profiler.past_runs.schedule_notices import due_ns
from profiler.record.activity_model import StacksLine
from profiler.record.notice_model import ScheduleNoticeLine
from profiler.record.record_model import Report
from profiler.record.units import format_count, format_memory

_BYTES_PER_MB = 1_000_000
_FILE_MODE = 0o644
# Reading more than that from the history would take more than half a minute.
_MAX_POINTS = 1_500_000


@click.command("report", epilog="Example: task-profiler report --from report-lines.jsonl -o batches.html --open")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    default="task-report.html",
    show_default=True,
    help="File to write or replace (- for standard output).",
)
@source_options
@click.option("--last", metavar="N", type=WholeNumber(1, MAX_RUNS), help="Show the N newest runs.")
@click.option(
    "--run",
    "run_id",
    metavar="ID",
    help="Show only this run: a task ID or its beginning, or TASK-ID/CONTAINER.",
)
@on_fargate_option
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
def command(
    options: SourceOptions, out: str, last: int | None, run_id: str | None, on_fargate: str | None, opens: bool
) -> None:
    """Write an HTML page of past runs, with charts.

    Runs come from the local history unless --from, --elasticsearch or --log-group is given.
    """
    if not out:
        raise UsageError("--output is empty: name a file or omit the option.")
    if opens and out == STANDARD_OUTPUT:
        raise UsageError("--open needs a file: name one with --output.")
    assets = read_assets()
    clock = SystemClock()
    source = open_source(options, os.environ, clock, keeps_stacks=True, keeps_notices=run_id is None)
    selection = run_filter(options, clock, run=run_id)
    runs = _read_runs(source, selection, last)
    data = build_page_data(
        runs,
        generated_at=format_ms(clock.wall_ns()),
        version=__version__,
        only_one=run_id is not None,
        price_overrides=price_overrides(os.environ, on_fargate),
        on_fargate=on_fargate,
        stacks_of=StacksReader(source).read,
        notices=() if run_id is not None else _read_notices(source, selection, runs),
    )
    title = f"{runs[0].record.family or 'Task'} {runs[0].past.started_at}" if run_id is not None else "Task report"
    text = render_page(data, assets, title=printable(title))
    page = text.encode("utf-8", errors="replace")
    path = Path(out)
    if out == STANDARD_OUTPUT:
        write_out(page)
    else:
        _write(path, page)
        shown = data.runs if run_id is None else 1
        click.echo(f"{path}: {format_count(shown, 'run')}, {format_memory(len(page) / _BYTES_PER_MB)}")
    if run_id is None:
        _warn_about_omissions(data, len(runs))
    if opens and not webbrowser.open(path.resolve().as_uri()):
        warn(f"No browser could be started: open {path} yourself.")


def _warn_about_omissions(data: PageData, runs: int) -> None:
    """State what the limit on the page's size has left out."""
    if data.runs < runs:
        warn(
            f"The oldest {runs - data.runs} of {runs} runs do not fit into a page of 8 MB and are left out: select "
            "runs with --last, --family or --since."
        )
    if data.without_details:
        warn(
            f"Labels, processes, GPUs and the like of {format_count(data.without_details, 'run')} do not fit into a "
            "page of 8 MB and are left out: task-profiler report --run ID shows them for one run."
        )


class StacksReader:
    """Reads call stacks until that fails once: the page is worth more than they are."""

    def __init__(self, source: RunSource) -> None:
        self._source: RunSource | None = source

    def read(self, report: Report) -> StacksLine | None:
        """Return the stacks of a run; None if it has none, or after a failure."""
        try:
            return None if self._source is None else self._source.stacks(report)
        except TaskProfilerError as error:
            self._source = None
            warn(f"The page lacks call stacks. {error}")
            return None


def _read_runs(source: RunSource, selected: RunFilter, last: int | None) -> tuple[Run, ...]:
    is_one = selected.run is not None
    past = _run_and_last_success(source, selected) if is_one else tuple(islice(source.runs(selected), last))
    for note in source.notes:
        warn(note)
    if not past:
        raise TaskProfilerError(no_run_sentence(source, selected))
    return tuple(_with_series(past, source))


def _read_notices(source: RunSource, selection: RunFilter, runs: Sequence[Run]) -> tuple[ScheduleNoticeLine, ...]:
    """The notices about due times since the oldest run; none if they cannot be read: the runs are worth more."""
    oldest_ns = min((run.past.started_ns for run in runs if run.past.started_ns), default=0)
    try:
        notices = source.schedule_notices(selection)
    except TaskProfilerError as error:
        warn(f"The page lacks missed runs. {error}")
        return ()
    return tuple(line for line in notices if (due_ns(line) or 0) >= oldest_ns)


def _run_and_last_success(source: RunSource, selected: RunFilter) -> tuple[PastRun, ...]:
    run = find_run(source, selected)
    success = last_success(run, source)
    return (run,) if success is None else (run, success)


def _with_series(past: Sequence[PastRun], source: RunSource) -> Iterator[Run]:
    """Add the time series, as far as the page can hold them: reading all of 10,000 runs would take minutes."""
    max_steps, left_points = steps_per_run(len(past)), _MAX_POINTS
    for run in past:
        points = source.points(run) if isinstance(source, LocalRuns) and left_points > 0 else ()
        left_points -= len(points)
        steps = steps_of_points(points) if points else _steps_of_lines(run)
        yield Run(past=run, steps=downsample(steps, max_steps))


def _steps_of_lines(run: PastRun) -> tuple[Step, ...]:
    """The time series of the record, or of the checkpoints if they have more steps."""
    from_record = steps_of_series(run.report.record)
    from_checkpoints = steps_of_checkpoints(run.checkpoints)
    return from_checkpoints if len(from_checkpoints) > len(from_record) else from_record


def _write(path: Path, page: bytes) -> None:
    try:
        write_atomically(path, page, mode=_FILE_MODE)
    except OSError as error:
        raise TaskProfilerError(
            f"{path} cannot be written ({error.strerror}): name another file with --output."
        ) from error
