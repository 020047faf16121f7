"""Past runs as a table for people."""

from collections.abc import Iterable
from datetime import datetime

from rich.table import Table
from rich.text import Text

from profiler.cli.visible import printable
from profiler.record import Distribution, Number, Record
from profiler.times import NS_PER_SECOND, parse_ns

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
