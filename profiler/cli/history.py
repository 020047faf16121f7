"""``task-profiler history``: past runs of this machine as a table."""

import os
import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import islice

import click
from rich.table import Table
from rich.text import Text

from profiler.cli.output import printable, render, write_out
from profiler.core.clock import SystemClock
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.history.recorder import history_path
from profiler.history.store import HistoryStore, StoredRun
from profiler.record.model import Distribution, Number, Record, Status

_UNKNOWN = "-"
_COLOURS = {"success": "green", "failure": "red", "stopped": "yellow"}
_MS_PER_SECOND = 1000
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_MB_PER_GB = 1024


def table(records: Iterable[Record]) -> Table:
    """A line a run; nothing in it is taken for markup."""
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    shown.add_column("Started", no_wrap=True)
    shown.add_column("Family", overflow="fold")
    shown.add_column("Status", no_wrap=True)
    shown.add_column("Exit", no_wrap=True)
    for name in ("Duration", "Avg CPU", "Memory", "Used"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("Peak", no_wrap=True)
    for record in records:
        metrics = record.metrics
        cpu = metrics.cpu_utilization_percent or Distribution()
        shown.add_row(
            _local_time(record.started_at),
            Text(printable(record.family or _UNKNOWN)),
            Text(record.status, style=_COLOURS.get(record.status, "")),
            _exit(record),
            duration(metrics.duration_ms),
            _UNKNOWN if cpu.avg is None else f"{cpu.avg:.1f} %",
            memory(metrics.max_memory_used_mb),
            _share(metrics.max_memory_used_mb, metrics.memory_size_mb),
            metrics.memory_peak_source or _UNKNOWN,
        )
    return shown


def duration(milliseconds: Number | None) -> str:
    """``50 ms``, ``9.7 s``, ``1m 05s``, ``3h 12m``, ``2d 03h``."""
    if milliseconds is None:
        return _UNKNOWN
    if milliseconds < _MS_PER_SECOND:
        return f"{int(milliseconds)} ms"
    seconds = int(milliseconds / _MS_PER_SECOND)
    if seconds < _MINUTE:
        tenths = int(milliseconds / (_MS_PER_SECOND / 10))
        return f"{tenths / 10:.1f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE}m {seconds % _MINUTE:02d}s"
    if seconds < _DAY:
        return f"{seconds // _HOUR}h {seconds % _HOUR // _MINUTE:02d}m"
    return f"{seconds // _DAY}d {seconds % _DAY // _HOUR:02d}h"


def memory(megabytes: Number | None) -> str:
    """``386 MB``, ``1.2 GB``."""
    if megabytes is None:
        return _UNKNOWN
    if round(megabytes) < _MB_PER_GB:
        return f"{megabytes:.0f} MB"
    return f"{megabytes / _MB_PER_GB:.1f} GB"


def _exit(record: Record) -> str:
    code = _UNKNOWN if record.exit_code is None else str(record.exit_code)
    return f"{code} OOM" if record.likely_out_of_memory else code


def _share(used_mb: Number | None, size_mb: Number | None) -> str:
    return f"{100 * used_mb / size_mb:.0f} %" if used_mb is not None and size_mb else _UNKNOWN


def _local_time(text: str | None) -> str:
    moment_ns = parse_ns(text)
    if moment_ns is None:
        return _UNKNOWN
    return f"{datetime.fromtimestamp(moment_ns // NS_PER_SECOND).astimezone():%Y-%m-%d %H:%M}"


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

    return render(table(run.report.record for run in runs))
