"""``task-profiler history``: past runs as a table."""

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice

import click

from profiler.cli.options import MAX_RUNS, SourceOptions, WholeNumber, source_options
from profiler.cli.printing import UNKNOWN, encodable, warn, write_out
from profiler.cli.styled_text import Column, Line, Span, table, table_width, write_lines
from profiler.cli.wiring.open_past_runs import open_source, run_filter
from profiler.core.clock import SystemClock
from profiler.core.errors import TaskProfilerError
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.past_runs.run_source import PastRun, no_run_sentence
from profiler.record.family_identity import family_key, place_columns
from profiler.record.record_model import Distribution, Metrics, Number, Record
from profiler.record.units import format_duration, format_memory

_COLOURS = {"success": "green", "failure": "red", "stopped": "yellow"}
_ID_LENGTH = 8
_AT_LEAST = "≥"
_FIRST_COLUMNS = (
    Column("Run"),
    Column("Started", folds=True),
    Column("Family", folds=True),
)
_COLUMNS = (
    Column("Result", folds=True),
    Column("Time", is_right=True),
    Column("CPU", is_right=True),
    Column("Memory", is_right=True),
    Column("", is_right=True),
)


@click.command("history", epilog="Example: task-profiler history --family 'nightly-*' --status failure --last 5")
@source_options
@click.option(
    "--last",
    metavar="N",
    type=WholeNumber(1, MAX_RUNS),
    default=20,
    show_default=True,
    help="Show the N newest runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the stored report lines instead of a table.")
def command(options: SourceOptions, last: int, as_json: bool) -> None:
    """List past runs, newest first.

    Runs come from the local history unless --from, --elasticsearch or --log-group is given.
    """
    clock = SystemClock()
    selection = run_filter(options, clock)
    source = open_source(options, os.environ, clock)
    runs = source.runs(selection)
    chosen = list(islice(runs, last))
    has_more = next(runs, None) is not None
    for note in source.notes:
        warn(note)
    if not chosen:
        raise TaskProfilerError(no_run_sentence(source, selection))
    _print(chosen, as_json=as_json)
    if has_more:
        warn(f"Only the {last} newest runs are shown: --last N shows more.")


def _print(runs: Sequence[PastRun], *, as_json: bool) -> None:
    if as_json:
        write_out(_lines(runs))
    else:
        write_lines(table_lines((run.report.record for run in runs), table_width()), os.environ)


def _lines(runs: Iterable[PastRun]) -> bytes:
    return b"".join(run.json_line() + b"\n" for run in runs)


def table_lines(records: Iterable[Record], width: int | None) -> list[Line]:
    """Build a table with one row per run, in ``width`` columns."""
    at_least = _AT_LEAST if encodable(_AT_LEAST) else ">"
    listed = [(record, family_key(record)) for record in records]
    places = place_columns([family for _, family in listed])
    columns = (*_FIRST_COLUMNS, *(Column(title) for title, _ in places), *_COLUMNS)
    rows = (
        (*_identity(record), *(get(family) or UNKNOWN for _, get in places), *_row(record, at_least))
        for record, family in listed
    )
    return table(columns, rows, gap=1, width=width)


def _identity(record: Record) -> tuple[str, ...]:
    return record.task_id[:_ID_LENGTH], _local_time(record.started_at), record.family or UNKNOWN


def _row(record: Record, at_least: str) -> tuple[str | Span, ...]:
    metrics = record.metrics
    cpu = metrics.cpu_utilization_percent or Distribution()
    return (
        Span(_result(record), _COLOURS.get(record.status, "")),
        UNKNOWN if metrics.duration_ms is None else format_duration(metrics.duration_ms),
        UNKNOWN if cpu.avg is None else f"{cpu.avg:.0f} %",
        _memory(metrics, at_least),
        _share(metrics.max_memory_used_mb, metrics.memory_size_mb),
    )


def _result(record: Record) -> str:
    """The status; a failure is named by its exit code, ``OOM`` is a run that probably ran out of memory."""
    code = "" if record.exit_code in (None, 0) else f" {record.exit_code}"
    return f"{record.status}{code}{' OOM' if record.likely_out_of_memory else ''}"


def _memory(metrics: Metrics, at_least: str) -> str:
    """The memory peak; one that was only sampled may have been higher."""
    peak_mb = metrics.max_memory_used_mb
    if peak_mb is None:
        return UNKNOWN
    return ("" if metrics.memory_peak_source == "kernel" else at_least) + format_memory(peak_mb)


def _share(used_mb: Number | None, size_mb: Number | None) -> str:
    return f"{100 * used_mb / size_mb:.0f} %" if used_mb is not None and size_mb else ""


def _local_time(text: str | None) -> str:
    moment_ns = parse_ns(text)
    if moment_ns is None:
        return UNKNOWN
    return f"{datetime.fromtimestamp(moment_ns // NS_PER_SECOND).astimezone():%Y-%m-%d %H:%M}"
