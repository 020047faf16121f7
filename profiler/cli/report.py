"""``task-profiler report``: past runs as one HTML page."""

import os
import webbrowser
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from profiler import __version__
from profiler.cli.output import printable
from profiler.core.clock import Clock, SystemClock
from profiler.core.errors import TaskProfilerError, UsageError
from profiler.core.files import write_atomically
from profiler.core.timestamps import format_ms
from profiler.history.recorder import history_path
from profiler.history.store import HistoryStore
from profiler.html_report.data import MAX_STEPS, PageData, build_page_data, steps_per_run
from profiler.html_report.page import Assets, render_page
from profiler.html_report.runs import Run, downsample, find_run, group_runs, newest_first, steps_of_points
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
    help="The page; an older one is replaced.",
)
@click.option(
    "--from", "source", metavar="FILE", help="Record lines instead of the local history; - is standard input."
)
@click.option("--run", "name", metavar="ID", help="Only the run with this task id, or the beginning of one.")
@click.option("--open", "opens", is_flag=True, help="Show the page in the browser.")
@click.option(
    "--history",
    "file",
    metavar="FILE",
    help="History file (default: TASK_PROFILER_HISTORY, else task-profiler/history.sqlite3 in XDG_DATA_HOME).",
)
def command(out: str, source: str | None, name: str | None, opens: bool, file: str | None) -> None:
    """Make one HTML page of past runs: counts, durations, use of CPU and memory, each run's course."""
    if source is not None and file is not None:
        raise UsageError("--from and --history are two sources: name one of them.")
    if not out:
        raise UsageError("--output is empty: name a file or leave the option out.")
    plotly = _plotly()
    clock = SystemClock()
    runs = _runs_of_history(file, clock, name) if source is None else _runs_of_lines(source, name)
    price_overrides, problems = read_price_settings(os.environ)
    if problems:
        click.echo(f"task-profiler: {problems_message(problems)}", err=True)
    data = build_page_data(
        runs,
        generated_at=format_ms(clock.wall_ns()),
        version=__version__,
        only_one=name is not None,
        price_overrides=price_overrides,
    )
    title = f"{runs[0].report.record.family or 'Task'} {runs[0].began}" if name is not None else "Task report"
    text = render_page(data.text, _assets(plotly), title=printable(title))
    path = Path(out)
    size_bytes = _write(path, text)
    click.echo(f"{path}: {_format_run_count(data.runs)}, {size_bytes / _BYTES_PER_MB:.1f} MB")
    _warn_about_omissions(data, len(runs))
    if opens and not webbrowser.open(path.resolve().as_uri()):
        click.echo(f"task-profiler: No browser could be started here: open {path} in one yourself.", err=True)


def _warn_about_omissions(data: PageData, runs: int) -> None:
    """A page that is too long to be opened or sent is of no use, and one that is silently short of no worth."""
    if data.runs < runs:
        click.echo(
            f"task-profiler: The oldest {runs - data.runs} of {runs} runs do not fit into a page of 8 MB and are left "
            "out: choose with task-profiler history --json --last N --family GLOB | task-profiler report --from -",
            err=True,
        )
    if data.without_details:
        click.echo(
            f"task-profiler: Labels, warnings and GPUs of {_format_run_count(data.without_details)} do not fit into a "
            "page of 8 MB and are left out: task-profiler report --run ID shows those of one run.",
            err=True,
        )


def _format_run_count(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs  # an extra, and half a second
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
        programs=tuple((folder / program).read_text("utf-8") for program in _SCRIPTS),
    )


def _runs_of_history(file: str | None, clock: Clock, name: str | None) -> tuple[Run, ...]:
    path = history_path(file, os.environ)
    history = HistoryStore(path, clock)
    runs = newest_first(Run(report=stored.report) for stored in history.runs())
    if history.unreadable_count:
        click.echo(
            f"task-profiler: {history.unreadable_count} lines of {path} could not be read and are left out.", err=True
        )
    if not runs:
        raise TaskProfilerError(f"There are no runs in {path} yet: make one with task-profiler run -- CMD")
    if name is not None:
        runs = (find_run(runs, name),)
    return tuple(_with_series(runs, history))


def _with_series(runs: tuple[Run, ...], history: HistoryStore) -> Iterator[Run]:
    """Read no more of the series than the page will hold: with 10,000 runs that is most of the time."""
    of_each, left = steps_per_run(len(runs)), MAX_STEPS
    for run in runs:
        steps = downsample(steps_of_points(history.points(run.report)), of_each) if left > 0 else ()
        left -= len(steps)
        yield Run(report=run.report, steps=steps)


def _runs_of_lines(source: str, name: str | None) -> tuple[Run, ...]:
    shown = source_name(source)
    invalid_lines: list[int] = []
    runs = group_runs(decode_lines(read_lines(source), invalid_lines))
    if invalid_lines:
        what = (
            "1 line is no record and is"
            if len(invalid_lines) == 1
            else f"{len(invalid_lines)} lines are no records and are"
        )
        click.echo(f"task-profiler: {shown}: {what} left out: {format_line_numbers(invalid_lines)}", err=True)
    if not runs:
        raise TaskProfilerError(f"There are no runs in {shown}: it should have the lines that task-profiler writes.")
    return runs if name is None else (find_run(runs, name),)


def _write(path: Path, text: str) -> int:
    data = text.encode("utf-8", errors="replace")
    try:
        write_atomically(path, data, mode=_FILE_MODE)
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be written ({error.strerror}): name another by --output.") from error
    return len(data)
