"""Where the time of a run went: the bar, its legend, and the largest waits."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Line, Span, length, line, shorten
from profiler.cli.terminal.page_parts import LABEL_WIDTH, PageText, Part, View, label
from profiler.record.activity_model import TimeBreakdown
from profiler.record.fact_list import longest_waits, wait_name
from profiler.record.measured import measured
from profiler.record.mention_limits import MIN_COVERED_PERCENT
from profiler.record.run_usage import CpuUse
from profiler.record.story_rows import Story
from profiler.record.units import format_percent, format_time_share

# A smaller part is drawn as a part of the others.
_MIN_PART_PERCENT = 1
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


def time_lines(times: TimeBreakdown, story: Story, view: View) -> Iterator[Part]:
    """The bar, its legend, the largest waits, and the wait for a CPU if it matters."""
    room = view.width - len(INDENT) - LABEL_WIDTH
    if _parts(times):
        yield line(label("Time", "bold"), *time_bar(times, room))
        rows: list[list[Span]] = [[]]
        for entry in (*_entries(_parts(times), story.usage.cpu), *_seen(times)):
            if rows[-1] and length((*rows[-1], _GAP, *entry)) > room:
                rows.append([])
            rows[-1] += (_GAP, *entry) if rows[-1] else entry
        yield from (line(label("", ""), *row) for row in rows)
        yield from _waits(times, room)
    yield PageText(label("CPU wait"), story.text("CPU wait"))


def short_legend(times: TimeBreakdown, cpu: CpuUse, width: int) -> Line:
    """The largest parts that fit, and whether only a part of the run was seen."""
    by_share = sorted(_parts(times), key=lambda part: -part[1])
    entries = _entries(by_share, cpu)
    entries[1:1] = _seen(times)  # after the largest part
    spans: list[Span] = []
    for entry in entries:
        added = [_GAP] if spans else []
        for span in entry:
            added.append(Span(span.text.replace("waiting for CPU", "CPU wait"), span.style))
        if length((*spans, *added)) <= width:
            spans += added
    return line(*spans)


def _parts(times: TimeBreakdown) -> list[tuple[_Kind, float]]:
    """The parts to draw with their shares of the time in percent; the small ones count as other."""
    parts = []
    small_percent = 0.0
    for kind in _KINDS:
        percent: float = getattr(times, kind.field) or 0.0
        if kind.name == OTHER:
            percent += small_percent
        if percent >= _MIN_PART_PERCENT:
            parts.append((kind, percent))
        else:
            small_percent += percent
    return parts


def time_bar(times: TimeBreakdown, width: int) -> Line:
    """The bar alone: each part has at least one character, and its end is where its share ends."""
    parts = _parts(times)
    spans = []
    total = max(sum(percent for _, percent in parts), 100)
    done = 0
    until = 0.0
    for number, (kind, percent) in enumerate(parts, start=1):
        until += percent
        end = max(int(until / total * width + 0.5), done + 1)
        end = min(end, width - (len(parts) - number))
        spans.append(Span(kind.block * (end - done), kind.style))
        done = end
    return line(*spans)


def _entries(parts: Iterable[tuple[_Kind, float]], cpu: CpuUse) -> list[Line]:
    entries: list[Line] = []
    for kind, percent in parts:
        is_least = kind.field == "waiting_for_cpu_percent" and cpu.is_wait_partial
        share = measured(percent, is_least=is_least).text(format_percent)
        entries.append((Span(f"{kind.block} ", kind.style), Span(f"{kind.name} {share}")))
    return entries


def _seen(times: TimeBreakdown) -> Iterator[Line]:
    if times.covered_percent is not None and times.covered_percent < MIN_COVERED_PERCENT:
        yield line(Span(f"seen for {format_percent(times.covered_percent)} of the run", "dim"))


def _waits(times: TimeBreakdown, width: int) -> Iterator[Line]:
    for number, target in enumerate(longest_waits(times)):
        percent = f"{format_time_share(target.percent):>5}  "
        yield line(label("" if number else "waits"), percent, shorten(wait_name(target), width - 7))
