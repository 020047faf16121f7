"""A run compared with others: with one run number by number, with the last successes of its
family in one line.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.cli.styled_text import INDENT, Line, Span, length, line
from profiler.cli.terminal.page_parts import Part, indented
from profiler.core.ecs_terms import SHORT_ID_LENGTH
from profiler.core.optional_math import difference, known
from profiler.core.text import stated
from profiler.core.timestamps import NS_PER_SECOND, local_time, parse_ns
from profiler.record.activity_model import NO_BREAKDOWN
from profiler.record.fact_list import (
    CPU_TIME,
    DURATION,
    MEMORY_PEAK,
    NUMBERS,
    Fact,
    NumberRow,
    comparable,
    number_pair,
    number_value,
    usual_number,
)
from profiler.record.hardware import processor_difference
from profiler.record.mapped_files import INCLUDES_FILES, have_one_meaning
from profiler.record.measured import UNKNOWN, Exactly, Unknown
from profiler.record.record_model import Metrics, Record, known_status
from profiler.record.run_labels import short_commit
from profiler.record.time_shares import CPU_PARTS, time_shares
from profiler.record.units import (
    format_change,
    format_duration,
    format_memory,
    format_percent,
    format_value,
)
from profiler.record.unusual import FEW_RUNS, MIN_POINTS, MIN_RUNS, MIN_SHARE
from profiler.runs.past_runs.run_source import PastRun

if TYPE_CHECKING:
    from profiler.runs.history.run_database import LastNumbers

_NAME_WIDTH = 20
_VALUE_WIDTH = 12
_MAX_ROWS = 6
# These numbers are shown whenever they changed, even if others changed more.
_IMPORTANT = frozenset({"revision", "image", "duration", "memory peak"})
# A shorter run has no change that matters.
_MIN_RUN_MS = 50
# The numbers of the line, their names there, and the least difference, below which it is noise.
_NOTABLE = ((DURATION, "duration", 50), (MEMORY_PEAK, "memory", 1), (CPU_TIME, "CPU time", 0.05))
_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))


class ComparedRow(Struct, frozen=True, kw_only=True):
    """One number of both runs. ``has_few``: fewer than five runs of the family have it.

    ``change_percent`` is None if one is unknown, if the other run's is 0, or if both read the same.
    """

    name: str
    this: str
    other: str
    change: str = ""
    change_percent: float | None = None
    is_share: bool = False
    is_changed: bool = True
    has_few: bool = False


class RunComparison(Struct, frozen=True, kw_only=True):
    """The comparison with another run: the rows to show, and why they are hard to compare.

    ``is_found`` is false without another run; ``title`` then says it, or is "".
    """

    title: str
    is_found: bool
    rows: tuple[ComparedRow, ...] = ()
    notes: tuple[str, ...] = ()
    is_complete: bool = False
    has_few: bool = False


NO_COMPARISON: Final = RunComparison(title="", is_found=False)


def nothing_to_compare(role: str) -> RunComparison:
    """There is no run of the role, such as ``last success``."""
    return RunComparison(title=f"No {role} to compare with.", is_found=False)


def compare_runs(
    run: PastRun,
    other: PastRun,
    role: str,
    *,
    is_complete: bool,
    earlier: Sequence[Record] | None = None,
) -> RunComparison:
    """Compare two runs, the other one in its ``role``, such as ``last success``.

    Unless ``is_complete``, only changed numbers are shown, and what is usual for the ``earlier``
    successes has not changed.
    """
    this = run.record
    that = other.record
    usual_runs: Sequence[Record] = ()
    if earlier is not None and not is_complete:
        usual_runs = earlier
    rows = list(_size_rows(this, that))
    for number in NUMBERS:
        if not number.compared:
            continue
        row = _number_row(number, this, that, usual_runs)
        if row is not None:
            rows.append(row)
    rows += _time_rows(this, that)
    if earlier is None:
        has_few = not is_complete
    else:
        has_few = len(earlier) < MIN_RUNS
    shown = tuple(rows) if is_complete else changed_rows(rows)
    return RunComparison(
        title=_title(that, role),
        is_found=True,
        rows=shown,
        notes=tuple(_notes(this, that, role, shown)),
        is_complete=is_complete,
        has_few=has_few,
    )


def _title(that: Record, role: str) -> str:
    started = stated(" of {:%a %Y-%m-%d %H:%M}", known(local_time, that.started_ns))
    return f"Compared with the {role}{started} ({that.task_id[:SHORT_ID_LENGTH]}):"


def _notes(this: Record, that: Record, role: str, rows: Sequence[ComparedRow]) -> Iterator[str]:
    """Why the numbers are hard to compare."""
    have_one = have_one_meaning(this.metrics, that.metrics)
    if have_one and any(row.name == MEMORY_PEAK.name for row in rows):
        yield from _peak_note(this, that)
    if not have_one:
        older = "this" if this.metrics.counts_files else "that"
        yield f"The memory of {older} run may {INCLUDES_FILES}: its change is not known."
    other_processor = processor_difference(this, that, f"the {role}")
    if other_processor:
        yield f"This run {other_processor}."


def _peak_note(this: Record, that: Record) -> Iterator[str]:
    """A sentence if one memory peak is the kernel's and the other was sampled."""
    if comparable(MEMORY_PEAK, this, [that]):
        return
    if isinstance(this.metrics.memory_peak, Exactly):
        exact = "this"
        sampled = "that"
    else:
        exact = "that"
        sampled = "this"
    yield (
        f"The peak of {exact} run is the kernel's; that of {sampled} run was sampled and may have "
        "been higher."
    )


def changed_rows(rows: Sequence[ComparedRow]) -> tuple[ComparedRow, ...]:
    """The numbers that changed by at least 5 %: the important ones, the largest changes and the
    parts of the time.
    """
    changed = [row for row in rows if row.is_changed]
    numbers = [row for row in changed if not row.is_share]
    by_weight = sorted(
        numbers, key=lambda row: (row.name not in _IMPORTANT, -abs(row.change_percent or 0))
    )
    heaviest = by_weight[:_MAX_ROWS]
    return tuple(row for row in changed if row in heaviest or row.is_share)


def compared_lines(comparison: RunComparison) -> Iterator[Part]:
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
    yield line(Span(INDENT + head, "dim"))
    for row in rows:
        values = f"{row.this:>{_VALUE_WIDTH}}{row.other:>{_VALUE_WIDTH}}"
        change = Span(f"{row.change:>{_VALUE_WIDTH}}", "bold" if row.is_changed else "")
        yield line(Span(f"{INDENT}{row.name:<{_NAME_WIDTH}}", "dim"), values, change)


def _number_row(
    row: NumberRow, this: Record, that: Record, earlier: Sequence[Record]
) -> ComparedRow | None:
    """The number of both runs; None if neither has it. ``earlier`` are successes of the family."""
    pair = number_pair(row, this, that)
    if pair.is_unknown:
        return None
    new = pair.this
    old = pair.that
    shown = ComparedRow(name=row.name, this=_figure(new), other=_figure(old), is_changed=False)
    if not pair.has_change:
        return shown
    usual = usual_number(row, this, earlier)
    shown = replace(shown, has_few=bool(earlier) and usual is None)
    if isinstance(new.number, Unknown) or isinstance(old.number, Unknown):
        return replace(shown, is_changed=True)
    value = new.number.value
    before = old.number.value
    as_text = partial(format_value, unit=row.unit)
    shown = replace(shown, change=format_change(value, before, as_text))
    is_same = as_text(value) == as_text(before)
    if not before or is_same:
        return replace(shown, is_changed=not is_same)
    percent = 100 * (value - before) / before
    is_usual = usual is not None and usual.holds(value)
    is_changed = abs(percent) >= 100 * MIN_SHARE and not is_usual
    return replace(shown, change_percent=percent, is_changed=is_changed)


def _figure(fact: Fact) -> str:
    """The text of a fact in a table whose rows name the unit."""
    return fact.text.removesuffix(" vCPU")


def _size_rows(this: Record, that: Record) -> Iterator[ComparedRow]:
    if this.revision != that.revision:
        yield from _text_row("revision", this.revision, that.revision)
    new_tag, new_digest = _image(this)
    old_tag, old_digest = _image(that)
    if new_digest is not None and new_digest == old_digest:
        return
    if new_tag != old_tag:
        yield from _text_row("image", new_tag, old_tag)
    else:
        yield from _text_row("image", new_digest, old_digest)


def _text_row(name: str, new: str | None, old: str | None) -> Iterator[ComparedRow]:
    if new != old and (new or old):
        yield ComparedRow(name=name, this=new or "-", other=old or "-")


def _time_rows(this: Record, that: Record) -> Iterator[ComparedRow]:
    """The parts of the time whose shares differ much; of runs with different levels, only the
    CPU parts.
    """
    if NO_BREAKDOWN in (this.time_breakdown, that.time_breakdown):
        return
    shares = time_shares(this.time_breakdown), time_shares(that.time_breakdown)
    pairs = list(zip(*shares, strict=True))
    if any((new.percent is UNKNOWN) != (old.percent is UNKNOWN) for new, old in pairs):
        pairs = pairs[:CPU_PARTS]
    for share, earlier in pairs:
        if isinstance(share.percent, Unknown) or isinstance(earlier.percent, Unknown):
            continue
        new = share.percent.value
        old = earlier.percent.value
        if abs(new - old) >= MIN_POINTS:
            yield ComparedRow(
                name=f"time {share.name}",
                this=format_percent(new),
                other=format_percent(old),
                change=f"{new - old:+.0f} points",
                is_share=True,
            )


def _image(record: Record) -> tuple[str | None, str | None]:
    """The tag of the image, and the beginning of its digest."""
    name, _, digest = (record.container.image or "").rpartition("/")[2].partition("@")
    tag = name.rpartition(":")[2] if ":" in name else None
    digits = (record.container.image_digest or digest).rpartition(":")[2]
    return tag, digits[: _VALUE_WIDTH - 2] or None


def may_have_changed(metrics: Metrics, last: "LastNumbers") -> bool:
    """Whether :func:`change_spans` may say something of a success, by the numbers of the last one:
    it says nothing of a short run that is like the last.
    """
    if (metrics.duration_ms or 0) >= _MIN_RUN_MS:
        return True
    for number, _, least in _NOTABLE:
        read = attrgetter(number.path.removeprefix("metrics."))
        if abs(difference(read(metrics), read(last)) or 0) >= least:
            return True
    return False


def change_spans(record: Record, earlier: Sequence[Record], now_ns: int, width: int) -> Line:
    """The changes beyond what is usual for ``earlier``, the family's successes, the newest
    first; () if unknown.
    """
    if known_status(record) != "success":
        texts = _texts_of_the_last(record, earlier[0], _when(record, earlier[0], now_ns))
        return _first_fitting(map(line, texts), width)
    rows = tuple(_changes(record, earlier))
    if not rows and (record.metrics.duration_ms or 0) < _MIN_RUN_MS:
        return ()
    when = _when(record, earlier[0], now_ns)
    has_few = len(earlier) < MIN_RUNS or any(row.has_few for row in rows)
    few = f" ({FEW_RUNS})" if has_few else ""
    if rows:
        return _first_fitting(_shorter_and_shorter(rows, f"success{when}{few}"), width)
    nothing = (f"nothing notable since the last success{when}{few}", f"nothing notable{few}")
    return _first_fitting(map(line, nothing), width)


def _shorter_and_shorter(rows: Sequence[ComparedRow], since: str) -> Iterator[Line]:
    """The changes, with fewer rows and without values in turn; last only the first change."""
    for shown in (rows, rows[:2], rows[:1]):
        for has_values in (True, False):
            spans = tuple(_joined(shown, has_values=has_values))
            yield (*spans, Span(f" since the last {since}"))
            yield (*spans, Span(f" since the {since}"))
    yield tuple(_joined(rows[:1], has_values=False))


def _changes(record: Record, earlier: Sequence[Record]) -> Iterator[ComparedRow]:
    last = earlier[0]
    for number, name, least in _NOTABLE:
        new = number_value(number, record)
        old = number_value(number, last)
        if new is None or not old or abs(new - old) < least:
            continue
        if comparable(number, record, [last]):
            row = _number_row(number, record, last, earlier)
            if row is not None and row.is_changed:
                yield replace(row, name=name)


def _joined(rows: Sequence[ComparedRow], *, has_values: bool) -> Iterator[Span]:
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


def _first_fitting(lines: Iterable[Line], width: int) -> Line:
    return next((spans for spans in lines if length(spans) <= width), ())


def _texts_of_the_last(record: Record, last: Record, when: str) -> Iterator[str]:
    """The duration and the memory of the last success, for a run that did not succeed."""
    metrics = last.metrics
    if metrics.duration_ms is not None:
        text = f"the last success{when} took {format_duration(metrics.duration_ms)}"
        if metrics.max_memory_used_mb is not None and have_one_meaning(record.metrics, metrics):
            yield f"{text} and {format_memory(metrics.max_memory_used_mb)} of memory"
        yield text


def _when(record: Record, last: Record, now_ns: int) -> str:
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
    commit = short_commit(last)
    own = short_commit(record)
    if commit and own and commit != own:
        return f"{ago} at {commit}"
    return ago
