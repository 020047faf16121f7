"""``task-profiler report``: past runs as one HTML page."""

import os
import webbrowser
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from profiler import __version__
from profiler.cli.options import history_option
from profiler.cli.output import printable, warn, warn_about_unreadable_lines
from profiler.core.clock import Clock, SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import write_atomically
from profiler.core.timestamps import format_ms
from profiler.history.recorder import history_path
from profiler.history.store import HistoryStore
from profiler.html_report.data import MAX_STEPS, PageData, build_page_data, steps_per_run
from profiler.html_report.page import Assets, render_page
from profiler.html_report.runs import Run, downsample, find_run, group_runs, newest_first, steps_of_points
from profiler.record.units import format_count, format_memory
from profiler.runs.files import decode_lines, format_line_numbers, read_lines, source_name
from profiler.settings import problems_message, read_price_settings

_SCRIPTS = ("numbers.js", "charts.js", "page.js")
_BYTES_PER_MB = 1_000_000
_FILE_MODE = 0o644


@click.command("report", epilog="Example: task-profiler report --from report-lines.jsonl -o batches.html --open")
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    default="task-report.html",
    show_default=True,
    help="The file to write or replace.",
)
@click.option("--from", "source", metavar="FILE", help="Read record lines from FILE; - is standard input.")
@click.option("--run", "run_id", metavar="ID", help="Show only the run with this task id, or this beginning of it.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@history_option("file")
def command(out: str, source: str | None, run_id: str | None, opens: bool, file: str | None) -> None:
    """Write an HTML page of past runs: counts, durations, CPU and memory use, time series of each run."""
    if source is not None and file is not None:
        raise UsageError("--from and --history are two sources: use one of them.")
    if not out:
        raise UsageError("--output is empty: name a file or leave the option out.")
    plotly = _plotly()
    clock = SystemClock()
    runs = _runs_of_history(file, clock, run_id) if source is None else _runs_of_lines(source, run_id)
    price_overrides, problems = read_price_settings(os.environ)
    if problems:
        warn(problems_message(problems))
    data = build_page_data(
        runs,
        generated_at=format_ms(clock.wall_ns()),
        version=__version__,
        only_one=run_id is not None,
        price_overrides=price_overrides,
    )
    title = f"{runs[0].report.record.family or 'Task'} {runs[0].started_at}" if run_id is not None else "Task report"
    text = render_page(data.text, _assets(plotly), title=printable(title))
    path = Path(out)
    size_bytes = _write(path, text)
    click.echo(f"{path}: {format_count(data.runs, 'run')}, {format_memory(size_bytes / _BYTES_PER_MB)}")
    _warn_about_omissions(data, len(runs))
    if opens and not webbrowser.open(path.resolve().as_uri()):
        warn(f"No browser could be started here: open {path} in a browser.")


def _warn_about_omissions(data: PageData, runs: int) -> None:
    """State what the limit on the page's size has left out."""
    if data.runs < runs:
        warn(
            f"The oldest {runs - data.runs} of {runs} runs do not fit into a page of 8 MB and are left out: select "
            "runs with task-profiler history --json --last N --family GLOB | task-profiler report --from -"
        )
    if data.without_details:
        warn(
            f"Labels, warnings and GPUs of {format_count(data.without_details, 'run')} do not fit into a page of 8 MB "
            "and are left out: task-profiler report --run ID shows them for one run."
        )


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs  # an extra, and its import takes half a second
    except ImportError as error:
        raise TaskProfilerError(
            "The page needs plotly, which is not installed: pip install 'task-profiler[dashboard]'"
        ) from error
    return str(get_plotlyjs())


def _assets(plotly: str) -> Assets:
    folder = resources.files("profiler.html_report") / "assets"
    return Assets(
        body=(folder / "page.html").read_text("utf-8"),
        style=(folder / "page.css").read_text("utf-8"),
        plotly=plotly,
        scripts=tuple((folder / script).read_text("utf-8") for script in _SCRIPTS),
    )


def _runs_of_history(file: str | None, clock: Clock, run_id: str | None) -> tuple[Run, ...]:
    path = history_path(file, os.environ)
    history = HistoryStore(path, clock)
    runs = newest_first(Run(report=stored.report) for stored in history.runs())
    warn_about_unreadable_lines(history.unreadable_count, path)
    if not runs:
        raise TaskProfilerError(f"There are no runs in {path} yet: make one with task-profiler run -- CMD")
    if run_id is not None:
        runs = (find_run(runs, run_id),)
    return tuple(_with_series(runs, history))


def _with_series(runs: tuple[Run, ...], history: HistoryStore) -> Iterator[Run]:
    """Add the time series, as far as the page can hold them: reading all of 10,000 runs would take minutes."""
    max_steps, left = steps_per_run(len(runs)), MAX_STEPS
    for run in runs:
        steps = downsample(steps_of_points(history.points(run.report)), max_steps) if left > 0 else ()
        left -= len(steps)
        yield Run(report=run.report, steps=steps)


def _runs_of_lines(source: str, run_id: str | None) -> tuple[Run, ...]:
    place = source_name(source)
    invalid_lines: list[int] = []
    runs = group_runs(decode_lines(read_lines(source), invalid_lines))
    if invalid_lines:
        lines = (
            "1 line is not a record and is"
            if len(invalid_lines) == 1
            else (f"{len(invalid_lines)} lines are not records and are")
        )
        warn(f"{place}: {lines} left out: {format_line_numbers(invalid_lines)}")
    if not runs:
        raise TaskProfilerError(f"There are no runs in {place}: it should contain the lines that task-profiler writes.")
    return runs if run_id is None else (find_run(runs, run_id),)


def _write(path: Path, text: str) -> int:
    data = text.encode("utf-8", errors="replace")
    try:
        write_atomically(path, data, mode=_FILE_MODE)
    except OSError as error:
        raise TaskProfilerError(
            f"{path} cannot be written ({error.strerror}): name another file by --output."
        ) from error
    return len(data)
