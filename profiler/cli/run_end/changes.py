"""How a run differs from the last success of its family, in one line."""

from collections.abc import Callable, Iterator

from msgspec import Struct

from profiler.cli.styled_text import Glyphs, Span
from profiler.core.timestamps import NS_PER_SECOND, parse_ns
from profiler.record.hardware import processor_difference
from profiler.record.record_model import Metrics, Record, known_status
from profiler.record.units import format_duration, format_memory

_PERCENT = 100
_MIN_CHANGE_PERCENT = 5
# Smaller differences are noise.
_MIN_CHANGE_MS = 50
_MIN_CHANGE_MB = 1
_MS_PER_SECOND = 1000
_UNITS = (("days", 86_400), ("h", 3600), ("min", 60))
_COMMIT_LENGTH = 7
_GIT_COMMIT = "gitCommit"


class _Change(Struct, frozen=True):
    name: str
    percent: float
    old: str
    new: str

    def text(self, glyphs: Glyphs, *, has_values: bool) -> str:
        percent = f"{self.percent:+.0f} %" if self.percent > 1 - _PERCENT else f"{max(self.percent, -99.9):+.1f} %"
        if self.percent >= 10 * _PERCENT:
            percent = f"{self.percent / _PERCENT + 1:.0f}{glyphs.times}"
        values = f" ({self.old} {glyphs.arrow} {self.new})" if has_values and self.old != self.new else ""
        return f"{self.name} {percent}{values}"


def change_spans(record: Record, last: Record, now_ns: int, width: int, glyphs: Glyphs) -> tuple[Span, ...]:
    """The changes that matter, each with both values as far as there is room; () if nothing can be said."""
    when = _when(record, last, now_ns)
    if known_status(record) != "success":
        return _of_the_last(last, when, width)
    changes = tuple(_changes(record.metrics, last.metrics))
    if not changes:
        texts = (f"nothing notable since the last success{when}", f"nothing notable{f' since{when}' if when else ''}")
        is_comparable = (record.metrics.duration_ms or 0) >= _MIN_CHANGE_MS
        return _first_fitting(texts, width) if is_comparable else ()
    for shown in (changes, changes[:2], changes[:1]):
        for has_values in (True, False):
            for since in (
                f" since the last success{when}",
                f" since the success{when}",
                f" since{when}" if when else "",
            ):
                spans = _joined(shown, glyphs, since, has_values=has_values)
                if sum(len(span.text) for span in spans) <= width:
                    return spans
    return ()


def _joined(changes: tuple[_Change, ...], glyphs: Glyphs, since: str, *, has_values: bool) -> tuple[Span, ...]:
    spans: list[Span] = []
    for change in changes:
        spans += [Span(", ")] if spans else []
        spans.append(Span(change.text(glyphs, has_values=has_values), "yellow" if change.percent > 0 else "green"))
    return (*spans, Span(since))


def _first_fitting(texts: tuple[str, ...], width: int) -> tuple[Span, ...]:
    return next(((Span(text),) for text in texts if len(text) <= width), ())


def _of_the_last(last: Record, when: str, width: int) -> tuple[Span, ...]:
    """For a run that did not succeed: what a success takes."""
    metrics = last.metrics
    if metrics.duration_ms is None:
        return ()
    text = f"the last success{when} took {format_duration(metrics.duration_ms)}"
    peak = "" if metrics.max_memory_used_mb is None else f" and {format_memory(metrics.max_memory_used_mb)} of memory"
    return _first_fitting((text + peak, text), width)


def _changes(new: Metrics, old: Metrics) -> Iterator[_Change]:
    def changed(
        name: str, this: float | None, that: float | None, least: float, format_value: Callable[[float], str]
    ) -> Iterator[_Change]:
        if this is not None and that and abs(this - that) >= least:
            percent = _PERCENT * (this - that) / that
            if abs(percent) >= _MIN_CHANGE_PERCENT:
                yield _Change(name, percent, format_value(that), format_value(this))

    yield from changed("duration", new.duration_ms, old.duration_ms, _MIN_CHANGE_MS, format_duration)
    if new.memory_peak_source == old.memory_peak_source:
        yield from changed("memory", new.max_memory_used_mb, old.max_memory_used_mb, _MIN_CHANGE_MB, format_memory)
    yield from changed("CPU time", _ms(new.cpu_seconds), _ms(old.cpu_seconds), _MIN_CHANGE_MS, format_duration)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MS_PER_SECOND


def _when(record: Record, last: Record, now_ns: int) -> str:
    """How long ago it ended, and what else differs: the processor, else the commit."""
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
