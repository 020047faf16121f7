"""``task-profiler history``: past runs of this machine."""

import os
import sys
from collections.abc import Iterable
from itertools import islice

import click

from profiler.cli.history_settings import history_path
from profiler.cli.printed import render, write_out
from profiler.clock import SystemClock
from profiler.record import Status
from profiler.sinks.history import HistoryStore, StoredRun


@click.command("history", epilog="Example: task-profiler history --family 'nightly-*' --status failure --last 5")
@click.option(
    "--family", "families", metavar="GLOB", multiple=True, help="Only families that match the pattern; may be repeated."
)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(["success", "failure", "stopped", "unknown"]),
    multiple=True,
    help="Only runs that ended so; may be repeated.",
)
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, sys.maxsize),
    default=20,
    show_default=True,
    help="The N newest of these.",
)
@click.option("--json", "as_json", is_flag=True, help="The record lines as they were written, instead of a table.")
@click.option(
    "--history",
    "file",
    metavar="FILE",
    help="History file (default: TASK_PROFILER_HISTORY, else task-profiler/history.sqlite3 in XDG_DATA_HOME).",
)
def command(
    families: tuple[str, ...], statuses: tuple[Status, ...], last: int, as_json: bool, file: str | None
) -> None:
    """Show past runs of task-profiler run, newest first."""
    path = history_path(file, os.environ)
    history = HistoryStore(path, SystemClock())
    chosen = list(islice(history.runs(families=families, statuses=statuses), last))
    if history.unreadable_count:
        click.echo(
            f"task-profiler: {history.unreadable_count} lines of {path} could not be read and are left out.", err=True
        )
    if chosen:
        write_out(_lines(chosen) if as_json else _table(chosen))
    elif families or statuses:
        click.echo(f"No run in {path} is like that: ask for less.", err=True)
    else:
        click.echo(f"There are no runs in {path} yet: make one with task-profiler run -- CMD", err=True)


def _lines(runs: Iterable[StoredRun]) -> bytes:
    return b"".join(run.line + b"\n" for run in runs)


def _table(runs: Iterable[StoredRun]) -> bytes:
    from profiler.cli.run_table import table  # noqa: PLC0415  rich is not for --json

    return render(table(run.report.record for run in runs))
