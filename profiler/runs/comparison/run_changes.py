"""A run compared with another one, and with the last successes of its family: which numbers have
changed by more than is usual, and why the runs are hard to compare.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.ecs_terms import SHORT_ID_LENGTH
from profiler.core.optional_math import known
from profiler.core.text import words_if_known
from profiler.core.timestamps import local_time
from profiler.record.activity_model import NO_BREAKDOWN
from profiler.record.fact_list import (
    CPU_TIME,
    DURATION,
    MEMORY_PEAK,
    NUMBERS,
    Fact,
    NumberRow,
    number_of_row,
    number_pair,
)
from profiler.record.hardware import processor_difference
from profiler.record.mapped_files import INCLUDES_FILES, means_same_memory
from profiler.record.measured import UNKNOWN, Exactly, Unknown
from profiler.record.record_model import Record
from profiler.record.time_shares import CPU_PARTS, time_shares
from profiler.record.units import format_change, format_percent, format_value
from profiler.record.unusual import LEAST_CHANGES, MIN_POINTS, MIN_RUNS, MIN_SHARE
from profiler.record.usual_numbers import are_measured_alike, usual_number

# The numbers of the line, and their names there.
_NOTABLE = ((DURATION, "duration"), (MEMORY_PEAK, "memory"), (CPU_TIME, "CPU time"))
_MAX_ROWS = 6
_DIGEST_LENGTH = 10
# These numbers are shown whenever they changed, even if others changed more.
_IMPORTANT = frozenset({"revision", "image", "duration", "memory peak"})


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


def comparison_without_run(role: str) -> RunComparison:
    """There is no run of the role, such as ``last success``."""
    return RunComparison(title=f"No {role} to compare with.", is_found=False)


def compare_runs(
    this: Record,
    that: Record,
    role: str,
    *,
    is_complete: bool,
    earlier: Sequence[Record] | None = None,
) -> RunComparison:
    """Compare this run with that one in its ``role``, such as ``last success``.

    Unless ``is_complete``, only changed numbers are shown, and what is usual for the ``earlier``
    successes has not changed.
    """
    usual_runs: Sequence[Record] = ()
    if earlier is not None and not is_complete:
        usual_runs = earlier
    rows = list(_size_rows(this, that))
    for number in NUMBERS:
        if not number.compared:
            continue
        row = compared_number_row(number, this, that, usual_runs)
        if row is not None:
            rows.append(row)
    rows += _time_rows(this, that)
    if earlier is None:
        has_few = not is_complete
    else:
        has_few = len(earlier) < MIN_RUNS
    shown = tuple(rows) if is_complete else changed_rows(rows)
    return RunComparison(
        title=_comparison_title(that, role),
        is_found=True,
        rows=shown,
        notes=tuple(_comparison_notes(this, that, role, shown)),
        is_complete=is_complete,
        has_few=has_few,
    )


def _comparison_title(that: Record, role: str) -> str:
    started = words_if_known(" of {:%a %Y-%m-%d %H:%M}", known(local_time, that.started_ns))
    return f"Compared with the {role}{started} ({that.task_id[:SHORT_ID_LENGTH]}):"


def _comparison_notes(
    this: Record, that: Record, role: str, rows: Sequence[ComparedRow]
) -> Iterator[str]:
    """Why the numbers are hard to compare."""
    has_peak = any(row.name == MEMORY_PEAK.name for row in rows)
    if not means_same_memory(this.metrics, that.metrics):
        older = "this" if this.metrics.counts_files else "that"
        yield f"The memory of {older} run may {INCLUDES_FILES}: its change is not known."
    elif has_peak and not are_measured_alike(MEMORY_PEAK, this, that):
        is_exact = isinstance(this.metrics.memory_peak, Exactly)
        exact, sampled = ("this", "that") if is_exact else ("that", "this")
        yield (
            f"The peak of {exact} run is the kernel's; that of {sampled} run was sampled and may "
            "have been higher."
        )
    other_processor = processor_difference(this, that, f"the {role}")
    if other_processor:
        yield f"This run {other_processor}."


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


def compared_number_row(
    row: NumberRow, this: Record, that: Record, earlier: Sequence[Record]
) -> ComparedRow | None:
    """The number of both runs; None if neither has it. ``earlier`` are successes of the family."""
    pair = number_pair(row, this, that)
    if pair.is_unknown:
        return None
    new = pair.this
    old = pair.that
    shown = ComparedRow(
        name=row.name, this=_text_without_vcpu(new), other=_text_without_vcpu(old), is_changed=False
    )
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
    is_usual = usual is not None and usual.is_within_spread(value)
    is_changed = abs(percent) >= 100 * MIN_SHARE and not is_usual
    return replace(shown, change_percent=percent, is_changed=is_changed)


def _text_without_vcpu(fact: Fact) -> str:
    """The text of a fact in a table whose rows name the unit."""
    return fact.text.removesuffix(" vCPU")


def _size_rows(this: Record, that: Record) -> Iterator[ComparedRow]:
    if this.revision != that.revision:
        yield from _changed_text_rows("revision", this.revision, that.revision)
    new_tag, new_digest = _image_texts(this)
    old_tag, old_digest = _image_texts(that)
    if new_digest is not None and new_digest == old_digest:
        return
    if new_tag != old_tag:
        yield from _changed_text_rows("image", new_tag, old_tag)
    else:
        yield from _changed_text_rows("image", new_digest, old_digest)


def _changed_text_rows(name: str, new: str | None, old: str | None) -> Iterator[ComparedRow]:
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


def _image_texts(record: Record) -> tuple[str | None, str | None]:
    """The tag of the image, and the beginning of its digest."""
    name, _, digest = (record.container.image or "").rpartition("/")[2].partition("@")
    tag = name.rpartition(":")[2] if ":" in name else None
    digits = (record.container.image_digest or digest).rpartition(":")[2]
    return tag, digits[:_DIGEST_LENGTH] or None


def notable_changes(record: Record, earlier: Sequence[Record]) -> Iterator[ComparedRow]:
    """The changes of a success beyond what is usual for ``earlier``, its family's successes, the
    newest first.
    """
    last = earlier[0]
    for number, name in _NOTABLE:
        least = LEAST_CHANGES[number.path.removeprefix("metrics.")]
        new = number_of_row(number, record)
        old = number_of_row(number, last)
        if new is None or not old or abs(new - old) < least:
            continue
        if are_measured_alike(number, record, last):
            row = compared_number_row(number, record, last, earlier)
            if row is not None and row.is_changed:
                yield replace(row, name=name)
