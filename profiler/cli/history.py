"""``task-profiler history``: past runs of this machine as a table."""

import os
import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

import click
from rich.table import Table
from rich.text import Text

from profiler.cli.options import history_option
from profiler.cli.output import UNKNOWN, plain_table, printable, render, warn_about_unreadable_lines, write_out
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.history.recorder import history_path
from profiler.history.store import HistoryStore, StoredRun
from profiler.record.model import Distribution, Number, Record, Status
from profiler.record.units import format_duration, format_memory

_COLOURS = {"success": "green", "failure": "red", "stopped": "yellow"}


@click.command("history", epilog="Example: task-profiler history --family 'nightly-*' --status failure --last 5")
@click.option(
    "--family", "families", metavar="GLOB", multiple=True, help="Show families that match the pattern. Repeatable."
)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(["success", "failure", "stopped", "unknown"]),
    multiple=True,
    help="Show runs with this status. Repeatable.",
)
@click.option(
    "--last",
    metavar="N",
    type=click.IntRange(1, sys.maxsize),
    default=20,
    show_default=True,
    help="Show the N newest of these runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the record lines as they were stored, without a table.")
@history_option("file")
def command(
    families: tuple[str, ...], statuses: tuple[Status, ...], last: int, as_json: bool, file: str | None
) -> None:
    """Show past runs of task-profiler run, newest first."""
    path = history_path(file, os.environ)
    history = HistoryStore(path, SystemClock())
    chosen = list(islice(history.runs(families=families, statuses=statuses), last))
    warn_about_unreadable_lines(history.unreadable_count, path)
    if chosen:
        write_out(_lines(chosen) if as_json else render(table(run.report.record for run in chosen)))
    elif families or statuses:
        click.echo(f"No run in {path} matches: use fewer filters.", err=True)
    else:
        click.echo(f"There are no runs in {path} yet: make one with task-profiler run -- CMD", err=True)


def _lines(runs: Iterable[StoredRun]) -> bytes:
    return b"".join(run.line + b"\n" for run in runs)


def table(records: Iterable[Record]) -> Table:
    """Build a table with one row per run. Texts from records are never read as markup."""
    runs = plain_table(column_gap=1)
    runs.add_column("Started", no_wrap=True)
    runs.add_column("Family", overflow="fold")
    runs.add_column("Status", no_wrap=True)
    runs.add_column("Exit", no_wrap=True)
    for name in ("Duration", "Avg CPU", "Memory", "Used"):
        runs.add_column(name, justify="right", no_wrap=True)
    runs.add_column("Peak", no_wrap=True)
    for record in records:
        metrics = record.metrics
        cpu = metrics.cpu_utilization_percent or Distribution()
        runs.add_row(
            _local_time(record.started_at),
            Text(printable(record.family or UNKNOWN)),
            Text(record.status, style=_COLOURS.get(record.status, "")),
            _exit(record),
            UNKNOWN if metrics.duration_ms is None else format_duration(metrics.duration_ms),
            UNKNOWN if cpu.avg is None else f"{cpu.avg:.1f} %",
            UNKNOWN if metrics.max_memory_used_mb is None else format_memory(metrics.max_memory_used_mb),
            _share(metrics.max_memory_used_mb, metrics.memory_size_mb),
            metrics.memory_peak_source or UNKNOWN,
        )
    return runs


def _exit(record: Record) -> str:
    code = UNKNOWN if record.exit_code is None else str(record.exit_code)
    return f"{code} OOM" if record.likely_out_of_memory else code


def _share(used_mb: Number | None, size_mb: Number | None) -> str:
    return f"{100 * used_mb / size_mb:.0f} %" if used_mb is not None and size_mb else UNKNOWN


def _local_time(text: str | None) -> str:
    moment_ns = parse_ns(text)
    if moment_ns is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(moment_ns // NS_PER_SECOND).astimezone():%Y-%m-%d %H:%M}"
