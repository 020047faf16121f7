"""``task-profiler report``: past runs as one HTML page."""

import os
import webbrowser
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import click

from profiler import __version__
from profiler.cli.history_settings import history_path
from profiler.cli.record_lines import decoded, listed, read_lines, shown_source
from profiler.cli.visible import visible
from profiler.cli.whole_file import write_whole
from profiler.clock import Clock, SystemClock
from profiler.dashboard.courses import MOST_STEPS, steps_of_each
from profiler.dashboard.data import Block, block
from profiler.dashboard.page import Assets, page
from profiler.dashboard.runs import Run, chosen, gathered, newest_first
from profiler.dashboard.series import steps_of_points, thinned
from profiler.errors import TaskProfilerError, UsageError
from profiler.settings import problems_message, read_price_settings
from profiler.sinks.history import History
from profiler.times import format_ms

_PROGRAMS = ("numbers.js", "charts.js", "page.js")
_BYTES_PER_MB = 1_000_000
_OTHERS_MAY_READ = 0o644


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
    own_prices, problems = read_price_settings(os.environ)
    if problems:
        click.echo(f"task-profiler: {problems_message(problems)}", err=True)
    data = block(
        runs,
        generated_at=format_ms(clock.wall_ns()),
        version=__version__,
        only_one=name is not None,
        own_prices=own_prices,
    )
    title = f"{runs[0].report.record.family or 'Task'} {runs[0].began}" if name is not None else "Task report"
    text = page(data.text, _assets(plotly), title=visible(title))
    path = Path(out)
    size_bytes = _write(path, text)
    click.echo(f"{path}: {_runs_in_words(data.runs)}, {size_bytes / _BYTES_PER_MB:.1f} MB")
    _say_what_is_left_out(data, len(runs))
    if opens and not webbrowser.open(path.resolve().as_uri()):
        click.echo(f"task-profiler: No browser could be started here: open {path} in one yourself.", err=True)


def _say_what_is_left_out(data: Block, runs: int) -> None:
    """A page that is too long to be opened or sent is of no use, and one that is silently short of no worth."""
    if data.runs < runs:
        click.echo(
            f"task-profiler: The oldest {runs - data.runs} of {runs} runs do not fit into a page of 8 MB and are left "
            "out: choose with task-profiler history --json --last N --family GLOB | task-profiler report --from -",
            err=True,
        )
    if data.without_details:
        click.echo(
            f"task-profiler: Labels, warnings and GPUs of {_runs_in_words(data.without_details)} do not fit into a "
            "page of 8 MB and are left out: task-profiler report --run ID shows those of one run.",
            err=True,
        )


def _runs_in_words(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs  # noqa: PLC0415  an extra, and half a second
    except ImportError as error:
        raise TaskProfilerError(
            "The page needs plotly, which is not installed: pip install 'task-profiler[dashboard]'"
        ) from error
    return str(get_plotlyjs())


def _assets(plotly: str) -> Assets:
    folder = resources.files("profiler.dashboard") / "assets"
    return Assets(
        body=(folder / "page.html").read_text("utf-8"),
        style=(folder / "page.css").read_text("utf-8"),
        plotly=plotly,
        programs=tuple((folder / program).read_text("utf-8") for program in _PROGRAMS),
    )


def _runs_of_history(file: str | None, clock: Clock, name: str | None) -> tuple[Run, ...]:
    path = history_path(file, os.environ)
    history = History(path, clock)
    runs = newest_first(Run(report=stored.report) for stored in history.runs())
    if history.unreadable:
        click.echo(f"task-profiler: {history.unreadable} lines of {path} could not be read and are left out.", err=True)
    if not runs:
        raise TaskProfilerError(f"There are no runs in {path} yet: make one with task-profiler run -- CMD")
    if name is not None:
        runs = (chosen(runs, name),)
    return tuple(_with_courses(runs, history))


def _with_courses(runs: tuple[Run, ...], history: History) -> Iterator[Run]:
    """Read no more of the series than the page will hold: with 10,000 runs that is most of the time."""
    of_each, left = steps_of_each(len(runs)), MOST_STEPS
    for run in runs:
        steps = thinned(steps_of_points(history.points(run.report)), of_each) if left > 0 else ()
        left -= len(steps)
        yield Run(report=run.report, steps=steps)


def _runs_of_lines(source: str, name: str | None) -> tuple[Run, ...]:
    shown = shown_source(source)
    refused: list[int] = []
    runs = gathered(decoded(read_lines(source), refused))
    if refused:
        what = "1 line is no record and is" if len(refused) == 1 else f"{len(refused)} lines are no records and are"
        click.echo(f"task-profiler: {shown}: {what} left out: {listed(refused)}", err=True)
    if not runs:
        raise TaskProfilerError(f"There are no runs in {shown}: it should have the lines that task-profiler writes.")
    return runs if name is None else (chosen(runs, name),)


def _write(path: Path, text: str) -> int:
    data = text.encode("utf-8", errors="replace")
    try:
        write_whole(path, data, mode=_OTHERS_MAY_READ)
    except OSError as error:
        raise TaskProfilerError(f"{path} cannot be written ({error.strerror}): name another by --output.") from error
    return len(data)
