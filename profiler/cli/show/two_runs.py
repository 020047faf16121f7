"""Two runs number by number, with the change in percent."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from profiler.cli.charts.time_lines import time_parts
from profiler.cli.styled_text import INDENT, Glyphs, Line, Span, line
from profiler.past_runs.run_source import PastRun
from profiler.record.metric_catalogue import RunView, Unit, reader, view_of
from profiler.record.record_model import Number, Record
from profiler.record.units import format_value

_NAME_WIDTH = 20
_VALUE_WIDTH = 12
_PERCENT = 100
_MIN_CHANGE_PERCENT = 5
_MIN_POINTS = 10
# The first parts of the time, which the kernel counts.
_CPU_PARTS = 2
_MAX_ROWS = 6
# These are shown whenever they changed, however much the others did.
_IMPORTANT = frozenset({"revision", "image", "duration", "memory peak"})


class Row(Struct, frozen=True, kw_only=True):
    """One number of both runs.

    ``change_percent`` is None if one is unknown or the other run's is 0. ``change_points`` is the difference of two
    shares of the time, in percentage points.
    """

    name: str
    this: str
    other: str
    change_percent: float | None = None
    change_points: float | None = None
    is_changed: bool = True


class Comparison(Struct, frozen=True, kw_only=True):
    """The run to compare with.

    Attributes:
        other: The other run; None if there is none.
        name: What it is, such as ``last success``.
        rows: The numbers that one of the runs has.
        is_complete: Whether to show all numbers, not only those that changed.
    """

    other: PastRun | None
    name: str
    rows: tuple[Row, ...] = ()
    is_complete: bool = False


def compare(run: PastRun, other: PastRun, name: str, *, is_complete: bool) -> Comparison:
    """Compare a run with another one."""
    this, that = view_of(run.report.record), view_of(other.report.record)
    rows = tuple(row for row in (_row(*metric, this, that) for metric in _METRICS) if row is not None)
    this_record, that_record = run.report.record, other.report.record
    rows = (*_size_rows(this_record, that_record), *rows, *_time_rows(this_record, that_record))
    return Comparison(other=other, name=name, rows=rows, is_complete=is_complete)


def changed_rows(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The numbers that changed by at least 5 %: the important ones and the largest changes, in the usual order.

    The parts of the time that changed come on top: they say why.
    """
    changed = [row for row in rows if row.is_changed]
    numbers = [row for row in changed if row.change_points is None]
    first = sorted(numbers, key=lambda row: (row.name not in _IMPORTANT, -abs(row.change_percent or 0)))[:_MAX_ROWS]
    return tuple(row for row in changed if row in first or row.change_points is not None)


def comparison_lines(rows: Sequence[Row], glyphs: Glyphs) -> Iterator[Line]:
    """Draw the numbers as a table."""
    if not rows:
        return
    head = f"{'this run':>{_VALUE_WIDTH}}{'that run':>{_VALUE_WIDTH}}{'change':>{_VALUE_WIDTH}}"
    yield line(Span(f"{INDENT}{'':<{_NAME_WIDTH}}{head}", "dim"))
    for row in rows:
        change = _change(row, glyphs)
        values = f"{row.this:>{_VALUE_WIDTH}}{row.other:>{_VALUE_WIDTH}}"
        style = "bold" if row.is_changed else ""
        yield line(Span(f"{INDENT}{row.name:<{_NAME_WIDTH}}", "dim"), values, Span(f"{change:>{_VALUE_WIDTH}}", style))


def _change(row: Row, glyphs: Glyphs) -> str:
    percent = row.change_percent
    if row.change_points is not None:
        return f"{row.change_points:+.0f} points"
    if percent is None:
        return ""
    if abs(percent) >= 10 * _PERCENT:
        return f"{percent / _PERCENT + 1:.0f}{glyphs.times}"
    return "=" if round(percent) == 0 else f"{percent:+.0f} %"


def _row(name: str, unit: Unit, path: str, this: RunView, that: RunView) -> Row | None:
    get = reader(path)
    new, old = get(this), get(that)
    if new is None and old is None:
        return None
    change = None if new is None or not old else _PERCENT * (new - old) / old
    return Row(
        name=name,
        this=_text(new, unit),
        other=_text(old, unit),
        change_percent=change,
        is_changed=new != old if change is None else abs(change) >= _MIN_CHANGE_PERCENT,
    )


def _size_rows(this: Record, that: Record) -> Iterator[Row]:
    """The revision and the image, if they differ."""
    for name, new, old in (
        ("revision", this.revision, that.revision),
        ("image", _image(this), _image(that)),
    ):
        if new != old and (new or old):
            yield Row(name=name, this=new or "-", other=old or "-")


def _time_rows(this: Record, that: Record) -> Iterator[Row]:
    """The parts of the time whose shares differ much.

    Of runs whose waits were not seen in the same way, only the CPU parts are compared: the others depend on the view.
    """
    if this.time_breakdown is None or that.time_breakdown is None:
        return
    pairs = list(zip(time_parts(this.time_breakdown), time_parts(that.time_breakdown), strict=True))
    are_same_kinds = all((new is None) == (old is None) for (_, new), (_, old) in pairs)
    for (name, new), (_, old) in pairs if are_same_kinds else pairs[:_CPU_PARTS]:
        if new is not None and old is not None and abs(new - old) >= _MIN_POINTS:
            this_text, other_text = _text(new, "%"), _text(old, "%")
            yield Row(name=f"time {name}", this=this_text, other=other_text, change_points=new - old)


def _image(record: Record) -> str | None:
    """The tag of the image, else the beginning of its digest."""
    tag = (record.container.image or "").rpartition("/")[2].partition("@")[0].rpartition(":")[2]
    digest = (record.container.image_digest or "").rpartition(":")[2][: _VALUE_WIDTH - 2]
    return tag if tag and "/" not in tag else digest or None


def _text(value: Number | None, unit: Unit) -> str:
    if value is None:
        return "-"
    return format_value(value, unit).removesuffix(" vCPU")


# The name of each number, its unit, and its path in the view of a record.
_METRICS: tuple[tuple[str, Unit, str], ...] = (
    ("duration", "ms", "metrics.duration_ms"),
    ("pull and start", "ms", "metrics.init_duration_ms"),
    ("cost", "USD", "cost.usd"),
    ("vCPU size", "vCPU", "metrics.vcpu_size"),
    ("CPU time", "s", "metrics.cpu_seconds"),
    ("vCPU average", "vCPU", "metrics.vcpu_used.avg"),
    ("vCPU 95 %", "vCPU", "metrics.vcpu_used.p95"),
    ("all vCPU in use", "%", "metrics.vcpu_saturated_percent"),
    ("memory size", "MB", "metrics.memory_size_mb"),
    ("memory average", "MB", "metrics.memory_used_mb.avg"),
    ("memory peak", "MB", "metrics.max_memory_used_mb"),
    ("read", "bytes", "metrics.block_read_bytes"),
    ("written", "bytes", "metrics.block_write_bytes"),
    ("received", "bytes", "metrics.network_rx_bytes"),
    ("sent", "bytes", "metrics.network_tx_bytes"),
    ("processes", "count", "metrics.max_pids"),
    ("GPU average", "%", "gpus.utilization_percent.avg"),
    ("GPU memory peak", "MB", "gpus.memory_used_mb.max"),
    ("NeuronCore average", "%", "neuron.utilization_percent.avg"),
)
