"""Where the time of a run went: the bar, its legend, and the largest waits."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Line, Span, build_line, cut_end, displayed_columns
from profiler.cli.terminal.page_parts import LABEL_WIDTH, PageText, Part, View, label_span
from profiler.record.activity_model import WaitTarget
from profiler.record.fact_list import wait_name
from profiler.record.measured import Exactly
from profiler.record.mention_limits import MIN_COVERED_PERCENT
from profiler.record.run_summary import Story
from profiler.record.time_shares import OTHER, TimeShare
from profiler.record.units import format_percent, format_time_share

# A smaller part is drawn as a part of the others.
_MIN_PART_PERCENT = 1
_GAP = Span("  ")


class _Block(Struct, frozen=True):
    """How a part of the time is drawn."""

    character: str
    style: str


_BLOCKS: Mapping[str, _Block] = {
    "on CPU": _Block("█", "blue"),
    "waiting for CPU": _Block("▓", "pink"),
    "disk": _Block("▒", ""),
    "network": _Block("░", "cyan"),
    "sleep": _Block("z", "dim"),
    "lock": _Block("!", "pink"),
    "pipe": _Block("|", "cyan"),
    "child": _Block("+", "dim"),
    OTHER: _Block("·", "dim"),
}


def time_parts(story: Story, view: View) -> Iterator[Part]:
    """The bar, its legend, the largest waits, and the wait for a CPU if it matters."""
    room = view.width - len(INDENT) - LABEL_WIDTH
    parts = _drawn_parts(story.time)
    if parts:
        yield build_line(label_span("Time", "bold"), *time_bar(story.time, room))
        rows: list[list[Span]] = [[]]
        for entry in (*map(_legend_entry, parts), *_seen_share_lines(story.covered_percent)):
            if rows[-1] and displayed_columns((*rows[-1], _GAP, *entry)) > room:
                rows.append([])
            rows[-1] += (_GAP, *entry) if rows[-1] else entry
        yield from (build_line(label_span("", ""), *row) for row in rows)
        yield from _wait_lines(story.waits, room)
    yield PageText(label_span("CPU wait"), story.first_text_named("CPU wait"))


def short_legend(story: Story, width: int) -> Line:
    """The largest parts that fit, and whether only a part of the run was seen."""
    by_share = sorted(_drawn_parts(story.time), key=lambda part: -part.value)
    entries = [_legend_entry(part) for part in by_share]
    entries[1:1] = _seen_share_lines(story.covered_percent)  # after the largest part
    spans: list[Span] = []
    for entry in entries:
        added = [_GAP] if spans else []
        for span in entry:
            added.append(Span(span.text.replace("waiting for CPU", "CPU wait"), span.style))
        if displayed_columns((*spans, *added)) <= width:
            spans += added
    return build_line(*spans)


class _DrawnPart(Struct, frozen=True):
    """A part with its name and its share in percent, also as text."""

    name: str
    value: float
    text: str


def _drawn_parts(shares: Iterable[TimeShare]) -> list[_DrawnPart]:
    """The parts to draw; the small ones count as other."""
    parts = []
    small_percent = 0.0
    for share in shares:
        percent = share.percent
        if share.name == OTHER:
            percent = Exactly((percent.value or 0) + small_percent)
        value = percent.value or 0.0
        if value >= _MIN_PART_PERCENT:
            parts.append(_DrawnPart(share.name, value, percent.text(format_percent)))
        else:
            small_percent += value
    return parts


def time_bar(shares: Iterable[TimeShare], width: int) -> Line:
    """The bar alone: each part has at least one character, and its end is where its share ends."""
    parts = _drawn_parts(shares)
    spans = []
    total = max(sum(part.value for part in parts), 100)
    done = 0
    until = 0.0
    for number, part in enumerate(parts, start=1):
        block = _BLOCKS[part.name]
        until += part.value
        end = max(int(until / total * width + 0.5), done + 1)
        end = min(end, width - (len(parts) - number))
        spans.append(Span(block.character * (end - done), block.style))
        done = end
    return build_line(*spans)


def _legend_entry(part: _DrawnPart) -> Line:
    block = _BLOCKS[part.name]
    return Span(f"{block.character} ", block.style), Span(f"{part.name} {part.text}")


def _seen_share_lines(covered_percent: float | None) -> Iterator[Line]:
    if covered_percent is not None and covered_percent < MIN_COVERED_PERCENT:
        yield build_line(Span(f"seen for {format_percent(covered_percent)} of the run", "dim"))


def _wait_lines(waits: Iterable[WaitTarget], width: int) -> Iterator[Line]:
    for number, target in enumerate(waits):
        percent = f"{format_time_share(target.percent):>5}  "
        yield build_line(
            label_span("" if number else "waits"), percent, cut_end(wait_name(target), width - 7)
        )
