"""Where the time of a run went: one bar with its parts, and what the run waited for."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Line, Span, length, line, shorten
from profiler.cli.terminal.page_parts import LABEL_WIDTH, label
from profiler.record.activity_model import TimeBreakdown, WaitTarget
from profiler.record.record_model import Record
from profiler.record.units import format_duration, format_percent
from profiler.record.worth_a_word import MIN_COVERED_PERCENT, MIN_WAIT_PERCENT, is_cpu_wait_partial, is_long_cpu_wait

# A smaller part is drawn as a part of the others.
_MIN_PART_PERCENT = 1
_MAX_TARGETS = 5
OTHER = "other"
_GAP = Span("  ")


class _Kind(Struct, frozen=True):
    """A part of the time: its name, its field in the record, its character and its style."""

    name: str
    field: str
    block: str
    style: str


_KINDS = (
    _Kind("on CPU", "on_cpu_percent", "█", "blue"),
    _Kind("waiting for CPU", "waiting_for_cpu_percent", "▓", "pink"),
    _Kind("disk", "disk_percent", "▒", ""),
    _Kind("network", "network_percent", "░", "cyan"),
    _Kind("sleep", "sleep_percent", "z", "dim"),
    _Kind("lock", "lock_percent", "!", "pink"),
    _Kind("pipe", "pipe_percent", "|", "cyan"),
    _Kind("child", "child_percent", "+", "dim"),
    _Kind(OTHER, "other_percent", "·", "dim"),
)
# The first parts, on a CPU and waiting for one, which the kernel counts. The others are waits.
CPU_PARTS = 2


def time_parts(times: TimeBreakdown) -> tuple[tuple[str, float | None], ...]:
    """The names of all parts and their shares of the run's time in percent."""
    return tuple((kind.name, getattr(times, kind.field)) for kind in _KINDS)


def time_lines(record: Record, width: int) -> Iterator[Line]:
    """The bar, its legend, the largest waits, and the wait for a CPU if it matters."""
    times, room = record.time_breakdown, width - len(INDENT) - LABEL_WIDTH
    if times is not None and _parts(times):
        yield line(label("Time", "bold"), *time_bar(times, room))
        rows: list[list[Span]] = [[]]
        for entry in (*_entries(_parts(times), record), *_seen(times)):
            if rows[-1] and length((*rows[-1], _GAP, *entry)) > room:
                rows.append([])
            rows[-1] += (_GAP, *entry) if rows[-1] else entry
        yield from (line(label("", ""), *row) for row in rows)
        yield from _waits(times, room)
    if is_long_cpu_wait(record):
        least = "≥" if is_cpu_wait_partial(record) else ""
        percent = least + format_percent(min(record.metrics.cpu_wait_percent or 0, 100))
        duration = format_duration((record.metrics.cpu_wait_seconds or 0) * 1000)
        yield line(label("CPU wait"), f"{percent:>5}  of the time that threads could run, {least}{duration} in total")


def short_legend(record: Record, width: int) -> Line:
    """The largest parts that fit, and whether only a part of the run was seen."""
    times = record.time_breakdown or TimeBreakdown()
    by_share = sorted(_parts(times), key=lambda part: -part[1])
    first, *others = _entries(by_share, record) or [()]
    spans: list[Span] = []
    for entry in (first, *_seen(times), *others):
        short = [Span(span.text.replace("waiting for CPU", "CPU wait"), span.style) for span in entry]
        added = [_GAP, *short] if spans else short
        if length((*spans, *added)) <= width:
            spans += added
    return line(*spans)


def longest_waits(times: TimeBreakdown) -> list[WaitTarget]:
    """The waits of the run, the longest one first, without short ones."""
    by_time = sorted(times.waiting_for, key=lambda target: -target.percent)
    return [target for target in by_time if target.percent >= MIN_WAIT_PERCENT][:_MAX_TARGETS]


def wait_name(target: WaitTarget) -> str:
    """The target with its kind: ``10.0.0.3:5432 (network)``."""
    return target.target if target.target == target.kind else f"{target.target} ({target.kind})"


def _parts(times: TimeBreakdown) -> list[tuple[_Kind, float]]:
    """The parts to draw with their shares of the time in percent; the small ones count as other."""
    *parts, (other, percent) = ((kind, getattr(times, kind.field) or 0.0) for kind in _KINDS)
    rest = percent + sum(share for _, share in parts if share < _MIN_PART_PERCENT)
    return [part for part in (*parts, (other, rest)) if part[1] >= _MIN_PART_PERCENT]


def time_bar(times: TimeBreakdown, width: int) -> Line:
    """The bar alone: each part has at least one character, and its end is where its share ends."""
    parts, spans = _parts(times), []
    total = max(sum(percent for _, percent in parts), 100)
    done, until = 0, 0.0
    for number, (kind, percent) in enumerate(parts, start=1):
        until += percent
        end = max(int(until / total * width + 0.5), done + 1)
        end = min(end, width - (len(parts) - number))
        spans.append(Span(kind.block * (end - done), kind.style))
        done = end
    return line(*spans)


def _entries(parts: Iterable[tuple[_Kind, float]], record: Record) -> list[Line]:
    marks = {"waiting_for_cpu_percent": "≥"} if is_cpu_wait_partial(record) else {}
    return [
        (
            Span(f"{kind.block} ", kind.style),
            Span(f"{kind.name} {marks.get(kind.field, '')}{format_percent(percent)}"),
        )
        for kind, percent in parts
    ]


def _seen(times: TimeBreakdown) -> Iterator[Line]:
    """A sentence if only a part of the run was seen."""
    if times.covered_percent is not None and times.covered_percent < MIN_COVERED_PERCENT:
        yield line(Span(f"seen for {format_percent(times.covered_percent)} of the run", "dim"))


def _waits(times: TimeBreakdown, width: int) -> Iterator[Line]:
    for number, target in enumerate(longest_waits(times)):
        percent = f"{format_percent(min(target.percent, 100)):>5}  "
        yield line(label("" if number else "waits"), percent, shorten(wait_name(target), width - 7))
