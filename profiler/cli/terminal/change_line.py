"""How a run differs from the last successes of its family, in one line."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from profiler.cli.styled_text import BLOCKS, Glyphs, Span
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.hardware import processor_difference
from profiler.record.record_model import Metrics, Record, known_status
from profiler.record.units import format_change, format_duration, format_memory
from profiler.runs.comparison.usual_values import FEW_RUNS, MIN_RUNS, MIN_SHARE, usual_range

# Smaller differences are noise.
_MIN_CHANGE_MS = 50
_MIN_CHANGE_MB = 1
_MS_PER_SECOND = 1000
_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))
_COMMIT_LENGTH = 7
_GIT_COMMIT = "gitCommit"


class _Change(Struct, frozen=True):
    name: str
    difference: float | None
    change: str
    old: str
    new: str

    def text(self, glyphs: Glyphs, *, has_values: bool) -> str:
        if self.difference is None:
            return f"{self.name} {self.old} {glyphs.arrow} {self.new}"
        values = f" ({self.old} {glyphs.arrow} {self.new})" if has_values and self.old != self.new else ""
        return f"{self.name} {self.change.replace(BLOCKS.times, glyphs.times)}{values}"


def change_spans(
    record: Record, earlier: Sequence[Record], now_ns: int, width: int, glyphs: Glyphs
) -> tuple[Span, ...]:
    """The changes that matter, each with both values as far as there is room; () if nothing is known.

    ``earlier`` are successes of the family, the newest first. A change matters if it is beyond what is usual for them.
    """
    last = earlier[0]
    few = "" if len(earlier) >= MIN_RUNS else f" ({FEW_RUNS})"
    when = _when(record, last, now_ns)
    if known_status(record) != "success":
        return _of_the_last(last, when, width)
    changes = tuple(_changes(record.metrics, [one.metrics for one in earlier]))
    if any(change.difference is None for change in changes):  # fewer than five runs have the number
        few = f" ({FEW_RUNS})"
    if not changes:
        texts = (
            f"nothing notable since the last success{when}{few}",
            f"nothing notable since the success{when}{few}",
            f"nothing notable{few}",
        )
        is_comparable = (record.metrics.duration_ms or 0) >= _MIN_CHANGE_MS
        return _first_fitting(texts, width) if is_comparable else ()
    for shown in (changes, changes[:2], changes[:1]):
        for has_values in (True, False):
            for since in (f" since the last success{when}{few}", f" since the success{when}{few}"):
                spans = _joined(shown, glyphs, since, has_values=has_values)
                if sum(len(span.text) for span in spans) <= width:
                    return spans
    return _first_fitting((changes[0].text(glyphs, has_values=False),), width)


def _joined(changes: tuple[_Change, ...], glyphs: Glyphs, since: str, *, has_values: bool) -> tuple[Span, ...]:
    spans: list[Span] = []
    for change in changes:
        spans += [Span(", ")] if spans else []
        style = "" if change.difference is None else "yellow" if change.difference > 0 else "green"
        spans.append(Span(change.text(glyphs, has_values=has_values), style))
    return (*spans, Span(since))


def _first_fitting(texts: tuple[str, ...], width: int) -> tuple[Span, ...]:
    return next(((Span(text),) for text in texts if len(text) <= width), ())


def _of_the_last(last: Record, when: str, width: int) -> tuple[Span, ...]:
    """For a run that did not succeed: the duration and the memory of the last success."""
    metrics = last.metrics
    if metrics.duration_ms is None:
        return ()
    text = f"the last success{when} took {format_duration(metrics.duration_ms)}"
    peak = "" if metrics.max_memory_used_mb is None else f" and {format_memory(metrics.max_memory_used_mb)} of memory"
    return _first_fitting((text + peak, text), width)


def _changes(new: Metrics, earlier: Sequence[Metrics]) -> Iterator[_Change]:
    def changed(
        name: str, read: Callable[[Metrics], float | None], least: float, format_value: Callable[[float], str]
    ) -> Iterator[_Change]:
        this, old = read(new), [read(metrics) for metrics in earlier]
        that, usual = old[0], usual_range(old)
        if this is None or not that or abs(this - that) < max(least, MIN_SHARE * that):
            return
        if usual is None:
            yield _Change(name, None, "", format_value(that), format_value(this))
        elif not usual.holds(this):
            change = format_change(this, that, lambda value: f"{value}")
            yield _Change(name, this - that, change, format_value(that), format_value(this))

    def peak(metrics: Metrics) -> float | None:
        return metrics.max_memory_used_mb if metrics.memory_peak_source == new.memory_peak_source else None

    yield from changed("duration", lambda metrics: metrics.duration_ms, _MIN_CHANGE_MS, format_duration)
    yield from changed("memory", peak, _MIN_CHANGE_MB, format_memory)
    yield from changed("CPU time", lambda metrics: _ms(metrics.cpu_seconds), _MIN_CHANGE_MS, format_duration)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS_PER_SECOND


def _when(record: Record, last: Record, now_ns: int) -> str:
    """How long ago the other run ended, and another difference: the processor, else the commit."""
    ended_ns = parse_ns(last.finished_at or last.started_at)
    seconds = 0 if ended_ns is None else (now_ns - ended_ns) // NS_PER_SECOND
    ago = f" {_rounded(seconds)} ago" if seconds > 0 else ""
    if processor_difference(record, last) is not None:
        return f"{ago} on another processor"
    commit, own = (last.labels or {}).get(_GIT_COMMIT), (record.labels or {}).get(_GIT_COMMIT)
    return f"{ago} at {commit[:_COMMIT_LENGTH]}" if commit and own and commit != own else ago


def _rounded(seconds: int) -> str:
    """The time in its largest unit."""
    for name, unit in _UNITS:
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
