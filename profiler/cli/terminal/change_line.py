"""How a run differs from the last successes of its family, in one line."""

from collections.abc import Iterable, Iterator, Sequence

from profiler.cli.styled_text import BLOCKS, Glyphs, Span
from profiler.cli.terminal.two_runs import MEMORY_PEAK, Row, metric_row, peak_note
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.hardware import processor_difference
from profiler.record.metric_catalogue import Unit, reader, view_of
from profiler.record.record_model import Record, known_status
from profiler.record.units import format_duration, format_memory
from profiler.sizing.trend import FEW_RUNS, MIN_RUNS

# A shorter run has no change that matters.
_MIN_RUN_MS = 50
# Each number with its unit, its path, and the least difference, below which it is noise.
_METRICS: tuple[tuple[str, Unit, str, float], ...] = (
    ("duration", "ms", "metrics.duration_ms", 50),
    ("memory", "MB", MEMORY_PEAK, 1),
    ("CPU time", "s", "metrics.cpu_seconds", 0.05),
)
_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))
_GIT_COMMIT = "gitCommit"


def change_spans(
    record: Record, earlier: Sequence[Record], now_ns: int, width: int, glyphs: Glyphs
) -> tuple[Span, ...]:
    """The changes that matter, each with both values as far as there is room; () if nothing is known.

    ``earlier`` are successes of the family, the newest first. A change matters if it is beyond what is usual for them.
    """
    when = _when(record, earlier[0], now_ns)
    if known_status(record) != "success":
        return _first_fitting(map(_plain, _texts_of_the_last(earlier[0], when)), width)
    rows = tuple(_changes(record, earlier))
    has_few = len(earlier) < MIN_RUNS or not all(row.change for row in rows)
    few = f" ({FEW_RUNS})" if has_few else ""
    if not rows:
        texts = (f"nothing notable since the last success{when}{few}", f"nothing notable{few}")
        is_comparable = (record.metrics.duration_ms or 0) >= _MIN_RUN_MS
        return _first_fitting(map(_plain, texts), width) if is_comparable else ()
    lines = (
        (*_joined(shown, glyphs, has_values=has_values), Span(f" since the {last}success{when}{few}"))
        for shown in (rows, rows[:2], rows[:1])
        for has_values in (True, False)
        for last in ("last ", "")
    )
    return _first_fitting((*lines, tuple(_joined(rows[:1], glyphs, has_values=False))), width)


def _changes(record: Record, earlier: Sequence[Record]) -> Iterator[Row]:
    last = earlier[0]
    for name, unit, path, least in _METRICS:
        get = reader(path)
        new, old = get(view_of(record)), get(view_of(last))
        is_known = new is not None and old and (path != MEMORY_PEAK or peak_note(record, last) is None)
        if is_known and abs((new or 0) - (old or 0)) >= least:
            row = metric_row(name, unit, path, record, last, earlier)
            if row is not None and row.is_changed:
                yield row


def _joined(rows: Sequence[Row], glyphs: Glyphs, *, has_values: bool) -> Iterator[Span]:
    for number, row in enumerate(rows):
        values, change = f"{row.other} {glyphs.arrow} {row.this}", row.change.replace(BLOCKS.times, glyphs.times)
        text = f"{change} ({values})" if change and has_values else change or values
        style = ("yellow" if (row.change_percent or 0) > 0 else "green") if change else ""
        yield from (Span(", " if number else ""), Span(f"{row.name} {text}", style))


def _plain(text: str) -> tuple[Span, ...]:
    return (Span(text),)


def _first_fitting(lines: Iterable[tuple[Span, ...]], width: int) -> tuple[Span, ...]:
    return next((spans for spans in lines if sum(len(span.text) for span in spans) <= width), ())


def _texts_of_the_last(last: Record, when: str) -> Iterator[str]:
    """For a run that did not succeed: the duration and the memory of the last success."""
    metrics = last.metrics
    if metrics.duration_ms is not None:
        text = f"the last success{when} took {format_duration(metrics.duration_ms)}"
        if metrics.max_memory_used_mb is not None:
            yield f"{text} and {format_memory(metrics.max_memory_used_mb)} of memory"
        yield text


def _when(record: Record, last: Record, now_ns: int) -> str:
    """How long ago the other run ended, and another difference: the processor, else the commit."""
    ended_ns = parse_ns(last.finished_at or last.started_at)
    seconds = 0 if ended_ns is None else (now_ns - ended_ns) // NS_PER_SECOND
    name, unit = next(((name, unit) for name, unit in _UNITS if seconds >= 2 * unit), ("s", 1))
    ago = f" {seconds // unit} {name} ago" if seconds > 0 else ""
    if processor_difference(record, last) is not None:
        return f"{ago} on another processor"
    commit, own = (last.labels or {}).get(_GIT_COMMIT), (record.labels or {}).get(_GIT_COMMIT)
    return f"{ago} at {commit[:7]}" if commit and own and commit != own else ago
