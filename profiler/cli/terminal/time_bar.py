"""Where the time of a run went: one bar with its parts, and what the run waited for."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Glyphs, Line, Span, line, shorten
from profiler.cli.terminal.page_parts import LABEL_WIDTH, label
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Record
from profiler.record.units import format_duration, format_percent
from profiler.record.worth_a_word import MIN_COVERED_PERCENT, MIN_WAIT_PERCENT, is_long_cpu_wait

# A smaller part is drawn as a part of the others.
_MIN_PART_PERCENT = 1
_MAX_TARGETS = 5
_OTHER = "other"
# If at least this share of the time has no known kind because privileges are missing, the page shows a hint.
_MIN_UNKNOWN_PERCENT = 25
_UNKNOWN = "not known: see the level of task-profiler doctor"
_SHORT_NAME = ("waiting for CPU", "CPU wait")


class _Kind(Struct, frozen=True):
    """A part of the time: its name, its field in the record, its character and the one in ASCII, and its style."""

    name: str
    field: str
    block: str
    ascii: str
    style: str

    def glyph(self, glyphs: Glyphs) -> str:
        return self.ascii if glyphs.is_ascii else self.block


_KINDS = (
    _Kind("on CPU", "on_cpu_percent", "█", "#", "blue"),
    _Kind("waiting for CPU", "waiting_for_cpu_percent", "▓", "w", "pink"),
    _Kind("disk", "disk_percent", "▒", "=", ""),
    _Kind("network", "network_percent", "░", "-", "cyan"),
    _Kind("sleep", "sleep_percent", "z", "z", "dim"),
    _Kind("lock", "lock_percent", "!", "!", "pink"),
    _Kind("pipe", "pipe_percent", "|", "|", "cyan"),
    _Kind("child", "child_percent", "+", "+", "dim"),
    _Kind(_OTHER, "other_percent", "·", ".", "dim"),
)
BLOCK_CHARACTERS = "".join(kind.block for kind in _KINDS)


_Part = tuple[_Kind, float]  # a kind and its share of the time in percent


def time_parts(times: TimeBreakdown) -> tuple[tuple[str, float | None], ...]:
    """The names of all parts and their shares of the run's time in percent."""
    return tuple((kind.name, getattr(times, kind.field)) for kind in _KINDS)


def time_lines(record: Record, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """The bar, its legend, the largest waits, and the wait for a CPU if it matters."""
    times = record.time_breakdown
    parts = () if times is None else _parts(times)
    if times is not None and parts:
        room = width - len(INDENT) - LABEL_WIDTH
        yield line(label("Time", "bold"), *_bar(parts, room, glyphs))
        yield from _legend(parts, times.covered_percent, room, glyphs)
        yield from _waits(times, room, glyphs)
    yield from _cpu_wait(record)


def time_bar(times: TimeBreakdown, width: int, glyphs: Glyphs) -> Line:
    """The bar alone; empty without parts."""
    parts = _parts(times)
    return line(*_bar(parts, width, glyphs)) if parts else ()


def short_legend(times: TimeBreakdown, width: int, glyphs: Glyphs) -> Line:
    """The largest parts that fit, and whether only a part of the run was seen."""
    parts = sorted(_parts(times), key=lambda part: -part[1])
    entries = [(mark, Span(text.text.replace(*_SHORT_NAME))) for mark, text in _entries(parts, glyphs)]
    if times.covered_percent is not None and times.covered_percent < MIN_COVERED_PERCENT:
        entries.insert(1, _seen(times.covered_percent))
    spans: list[Span] = []
    for entry in entries:
        added = [Span("  "), *entry] if spans else entry
        length = sum(len(span.text) for span in added)
        if length <= width:
            spans += added
            width -= length
    return line(*spans)


def longest_waits(times: TimeBreakdown) -> list[WaitTarget]:
    """The waits of the run, the longest one first, without short ones."""
    by_time = sorted(times.waiting_for, key=lambda target: -target.percent)
    return [target for target in by_time if target.percent >= MIN_WAIT_PERCENT][:_MAX_TARGETS]


def wait_name(target: WaitTarget) -> str:
    """The target with its kind: ``10.0.0.3:5432 (network)``."""
    return target.target if target.target == target.kind else f"{target.target} ({target.kind})"


def _parts(times: TimeBreakdown) -> tuple[_Part, ...]:
    """The parts to draw; the small ones count as other."""
    *parts, (other, percent) = ((kind, getattr(times, kind.field) or 0.0) for kind in _KINDS)
    shown = [part for part in parts if part[1] >= _MIN_PART_PERCENT]
    rest = percent + sum(share for _, share in parts if share < _MIN_PART_PERCENT)
    return (*shown, (other, rest)) if rest >= _MIN_PART_PERCENT else tuple(shown)


def _bar(parts: Sequence[_Part], width: int, glyphs: Glyphs) -> Iterator[Span]:
    """Each part has at least one character, and its end is where its share ends."""
    total = max(sum(percent for _, percent in parts), 100)
    done, until = 0, 0.0
    for number, (kind, percent) in enumerate(parts, start=1):
        until += percent
        end = max(int(until / total * width + 0.5), done + 1)
        end = min(end, width - (len(parts) - number))
        yield Span(kind.glyph(glyphs) * (end - done), kind.style)
        done = end


def _legend(parts: Sequence[_Part], covered_percent: float | None, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """The characters with their names and percentages, on several lines if necessary."""
    entries = _entries(parts, glyphs)
    if covered_percent is not None and covered_percent < MIN_COVERED_PERCENT:
        entries.append(_seen(covered_percent))
    row: list[Span] = []
    used = 0
    for entry in entries:
        length = sum(len(span.text) for span in entry)
        if row and used + 2 + length > width:
            yield line(label("", ""), *row)
            row, used = [], 0
        row += [Span("  "), *entry] if row else entry
        used += length + (2 if used else 0)
    yield line(label("", ""), *row)


def _entries(parts: Sequence[_Part], glyphs: Glyphs) -> list[tuple[Span, Span]]:
    return [
        (Span(f"{kind.glyph(glyphs)} ", kind.style), Span(f"{kind.name} {format_percent(percent)}"))
        for kind, percent in parts
    ]


def _seen(covered_percent: float) -> tuple[Span, Span]:
    return Span(""), Span(f"seen for {format_percent(covered_percent)} of the run", "dim")


def _waits(times: TimeBreakdown, width: int, glyphs: Glyphs) -> Iterator[Line]:
    """The longest waits of the run."""
    shown = longest_waits(times)
    if not shown and times.network_percent is None and (times.other_percent or 0) >= _MIN_UNKNOWN_PERCENT:
        yield line(label("waits"), Span(shorten(_UNKNOWN, width, glyphs), "dim"))
    for number, target in enumerate(shown):
        percent = f"{format_percent(min(target.percent, 100)):>5}  "
        yield line(label("" if number else "waits"), percent, shorten(wait_name(target), width - 7, glyphs))


def _cpu_wait(record: Record) -> Iterator[Line]:
    if not is_long_cpu_wait(record):
        return
    metrics = record.metrics
    percent = format_percent(min(metrics.cpu_wait_percent or 0, 100))
    duration = format_duration((metrics.cpu_wait_seconds or 0) * 1000)
    yield line(label("CPU wait"), f"{percent:>5}  of the time that threads could run, {duration} in total")
