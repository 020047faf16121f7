"""The lines of a run's comparison with one run, and with the last successes of its family."""

from collections.abc import Iterable, Iterator, Sequence

from profiler.cli.styled_text import INDENT, Line, Span, build_line, displayed_columns
from profiler.cli.terminal.page_parts import Part, indented
from profiler.core.optional_math import difference
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.hardware import processor_difference
from profiler.record.mapped_files import means_same_memory
from profiler.record.record_model import Record, known_status
from profiler.record.run_labels import short_commit_label
from profiler.record.units import format_duration, format_memory
from profiler.record.unusual import FEW_RUNS, MIN_RUN_MS, MIN_RUNS
from profiler.runs.comparison.run_changes import (
    ComparedRow,
    RunComparison,
    notable_changes,
)

_NAME_WIDTH = 20
_VALUE_WIDTH = 12
_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))


def comparison_parts(comparison: RunComparison) -> Iterator[Part]:
    """The comparison below its title, and its notes."""
    if not comparison.is_found:
        yield indented(comparison.title, "dim")
        return
    yield indented(comparison.title, "bold")
    yield from _table_lines(comparison.rows, has_few=comparison.has_few)
    yield from map(indented, comparison.notes)


def _table_lines(rows: Sequence[ComparedRow], *, has_few: bool) -> Iterator[Line]:
    head = "No number differs by 5 % and by more than usual."
    if rows:
        titles = [f"{title:>{_VALUE_WIDTH}}" for title in ("this run", "that run", "change")]
        head = " " * _NAME_WIDTH + "".join(titles)
        if has_few:
            head += f", {FEW_RUNS}"
    yield build_line(Span(INDENT + head, "dim"))
    for row in rows:
        values = f"{row.this:>{_VALUE_WIDTH}}{row.other:>{_VALUE_WIDTH}}"
        change = Span(f"{row.change:>{_VALUE_WIDTH}}", "bold" if row.is_changed else "")
        yield build_line(Span(f"{INDENT}{row.name:<{_NAME_WIDTH}}", "dim"), values, change)


def change_spans(record: Record, earlier: Sequence[Record], now_ns: int, width: int) -> Line:
    """The changes beyond what is usual for ``earlier``, the family's successes, the newest
    first; () if unknown.
    """
    if known_status(record) != "success":
        texts = _last_success_texts(record, earlier[0], _when_text(record, earlier[0], now_ns))
        return _first_line_that_fits(map(build_line, texts), width)
    rows = tuple(notable_changes(record, earlier))
    if not rows and (record.metrics.duration_ms or 0) < MIN_RUN_MS:
        return ()
    when = _when_text(record, earlier[0], now_ns)
    has_few = len(earlier) < MIN_RUNS or any(row.has_few for row in rows)
    few = f" ({FEW_RUNS})" if has_few else ""
    if rows:
        return _first_line_that_fits(_shorter_and_shorter(rows, f"success{when}{few}"), width)
    nothing = (f"nothing notable since the last success{when}{few}", f"nothing notable{few}")
    return _first_line_that_fits(map(build_line, nothing), width)


def _shorter_and_shorter(rows: Sequence[ComparedRow], since: str) -> Iterator[Line]:
    """The changes, with fewer rows and without values in turn; last only the first change."""
    for shown in (rows, rows[:2], rows[:1]):
        for has_values in (True, False):
            spans = tuple(_joined_changes(shown, has_values=has_values))
            yield (*spans, Span(f" since the last {since}"))
            yield (*spans, Span(f" since the {since}"))
    yield tuple(_joined_changes(rows[:1], has_values=False))


def _joined_changes(rows: Sequence[ComparedRow], *, has_values: bool) -> Iterator[Span]:
    for number, row in enumerate(rows):
        values = f"{row.other} → {row.this}"
        text = row.change or values
        if row.change and has_values:
            text = f"{row.change} ({values})"
        if row.has_few:
            style = ""
        elif (row.change_percent or 0) > 0:
            style = "yellow"
        else:
            style = "green"
        yield Span(", " if number else "")
        yield Span(f"{row.name} {text}", style)


def _first_line_that_fits(lines: Iterable[Line], width: int) -> Line:
    return next((spans for spans in lines if displayed_columns(spans) <= width), ())


def _last_success_texts(record: Record, last: Record, when: str) -> Iterator[str]:
    """The duration and the memory of the last success, for a run that did not succeed."""
    metrics = last.metrics
    if metrics.duration_ms is not None:
        text = f"the last success{when} took {format_duration(metrics.duration_ms)}"
        if metrics.max_memory_used_mb is not None and means_same_memory(record.metrics, metrics):
            yield f"{text} and {format_memory(metrics.max_memory_used_mb)} of memory"
        yield text


def _when_text(record: Record, last: Record, now_ns: int) -> str:
    """How long ago the other run ended, and another difference: the processor, else the commit."""
    ended_ns = parse_ns(last.finished_at or last.started_at)
    seconds = (difference(now_ns, ended_ns) or 0) // NS_PER_SECOND
    ago = f" {seconds} s ago" if seconds > 0 else ""
    for name, unit in _UNITS:
        if seconds >= 2 * unit:
            ago = f" {seconds // unit} {name} ago"
            break
    if processor_difference(record, last):
        return f"{ago} on another processor"
    commit = short_commit_label(last)
    own = short_commit_label(record)
    if commit and own and commit != own:
        return f"{ago} at {commit}"
    return ago
