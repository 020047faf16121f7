"""What the pages of a run share: labelled lines, the choice of lines that fit, texts, curves and
the time bar.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Line, Span, length, line, separated, shorten, wrapped
from profiler.core.optional_math import known, known_values
from profiler.core.timestamps import local_time, parse_ns
from profiler.record.activity_model import TimeBreakdown
from profiler.record.fact_list import longest_waits, wait_name
from profiler.record.hardware import own_gpus
from profiler.record.measured import measured
from profiler.record.mention_limits import (
    MIN_COVERED_PERCENT,
    is_cpu_wait_partial,
    is_near_limit,
)
from profiler.record.record_model import Number, Record, Series
from profiler.record.sparkline import LEAST_MB, LEAST_PERCENT, LEAST_VCPU, curve_top, sparkline
from profiler.record.story_rows import DOT, Story
from profiler.record.task_needs import vcpu_curve_limit
from profiler.record.units import (
    format_count,
    format_memory,
    format_part,
    format_percent,
    format_vcpu,
)

MAX_WIDTH = 120
LABEL_WIDTH = 9
CPU = "CPU"
MEMORY = "Memory"
GPU = "GPU"
_STYLES = {CPU: "blue", MEMORY: "magenta"}
# The values of a series have three digits: rounded up, one may be above the peak.
_ROUNDING = 1.005


class View(Struct, frozen=True, kw_only=True):
    """The settings of a page: the width of the terminal, and the time now."""

    width: int
    now_ns: int


def label(name: str, style: str = "dim", width: int = LABEL_WIDTH) -> Span:
    """The beginning of a line: a name, or as much space."""
    return Span(f"{INDENT}{name:<{width}}", style)


def labelled(name: str, text: str, view: View) -> tuple[Line, ...]:
    """A text after its label, on several lines if necessary; nothing without a text."""
    return wrapped(text, view.width, label(name))


def labelled_once(name: str, texts: Iterable[str], view: View) -> Iterator[Line]:
    """Texts below each other, the first one after the label."""
    for text in texts:
        yield from labelled(name, text, view)
        name = ""


def joined(texts: Iterable[str | None]) -> str:
    """The known texts on one line, with a dot between them."""
    return DOT.join(filter(None, texts))


def bare_vcpu(value: float) -> str:
    """A number of vCPUs in a place whose label gives the unit."""
    return format_vcpu(value).removesuffix(" vCPU")


def local(text: str | None) -> datetime | None:
    """A moment of a record in the time zone of this machine."""
    moment_ns = parse_ns(text)
    return known(local_time, moment_ns)


Section = tuple[int, Iterable[Line]]
"""A rank, and lines that belong together. Of a page that is too long, the highest ranks are left
out first.
"""


def arrange(sections: Iterable[Section], max_lines: int) -> list[Line]:
    """Put the sections below each other, in at most ``max_lines`` lines.

    A section loses its last lines first.
    """
    ranked = [(rank, list(lines)) for rank, lines in sections]
    shown = [lines for _, lines in ranked]
    if len(separated(shown)) <= max_lines:
        return separated(shown)
    left_out = 0
    by_rank = sorted(ranked, key=lambda section: section[0])
    for _, lines in reversed(by_rank):
        while lines and len(separated(shown)) >= max_lines:
            lines.pop()
            left_out += 1
    omitted = f"{INDENT}{format_count(left_out, 'line')} omitted: --json prints everything."
    return [*separated(shown), line(Span(omitted, "dim"))]


def use_style(name: str, *, is_full: bool) -> str:
    """The colour of a use, as in the report page: a full CPU is in use, a full memory is a kill."""
    if name == MEMORY and is_full:
        return "red"
    return _STYLES.get(name, "cyan")


class Curve:
    """A column of the series and its limit. ``peak``, the kernel's, may be above all values.

    ``whose`` says that the values are not the run's own.
    """

    def __init__(
        self,
        name: str,
        values: Sequence[float | None] | None,
        limit: Number | None,
        least_top: float,
        format_value: Callable[[float], str],
        peak: Number | None = None,
        whose: str = "",
    ) -> None:
        self.label = name
        self._values = values or ()
        self.known = known_values(self._values)
        highest = max((*self.known, 0.0))
        if peak is not None and highest <= peak * _ROUNDING:
            highest = float(peak)
        self._top, self.is_to_limit = curve_top(highest, limit, least_top)
        self.is_near_limit = self.is_to_limit and is_near_limit(highest, self._top)
        top = format_value(self._top)
        # The value at the top of the curve, and the limit if that is far above. Of a share, the
        # limit is known.
        if limit and not self.is_to_limit and format_value is not format_percent:
            top = format_part(top, format_value(limit))
        self.limit_text = f"▔ {top}{whose}"

    def drawn(self, width: int) -> str:
        """The curve with ``width`` characters; values are repeated if there are fewer."""
        values = self._values
        if len(values) < width:
            values = [values[place * len(values) // width] for place in range(width)]
        return sparkline(values, width=width, top=self._top)


def run_curves(record: Record, series: Series) -> tuple[Curve, ...]:
    """The measured curves of a run."""
    metrics = record.metrics
    memory = series.memory_used_mb
    size_mb = metrics.memory_size_mb
    peak_mb = metrics.max_memory_used_mb
    gpu = series.gpu_utilization_percent
    neuron = series.neuron_utilization_percent
    whose = "" if own_gpus(record.gpus) == list(record.gpus) else ", of all programs"
    curves = (
        Curve(CPU, series.vcpu_used, vcpu_curve_limit(record), LEAST_VCPU, format_vcpu),
        Curve(MEMORY, memory, size_mb, LEAST_MB, format_memory, peak_mb),
        Curve(GPU, gpu, 100, LEAST_PERCENT, format_percent, whose=whose),
        Curve("Neuron", neuron, 100, LEAST_PERCENT, format_percent),
    )
    return tuple(curve for curve in curves if curve.known)


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


def time_lines(record: Record, story: Story, view: View) -> Iterator[Line]:
    """The bar, its legend, the largest waits, and the wait for a CPU if it matters."""
    times = record.time_breakdown
    room = view.width - len(INDENT) - LABEL_WIDTH
    if _parts(times):
        yield line(label("Time", "bold"), *time_bar(times, room))
        rows: list[list[Span]] = [[]]
        for entry in (*_entries(_parts(times), record), *_seen(times)):
            if rows[-1] and length((*rows[-1], _GAP, *entry)) > room:
                rows.append([])
            rows[-1] += (_GAP, *entry) if rows[-1] else entry
        yield from (line(label("", ""), *row) for row in rows)
        yield from _waits(times, room)
    yield from labelled("CPU wait", story.text("CPU wait"), view)


def short_legend(record: Record, width: int) -> Line:
    """The largest parts that fit, and whether only a part of the run was seen."""
    times = record.time_breakdown
    by_share = sorted(_parts(times), key=lambda part: -part[1])
    entries = _entries(by_share, record)
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


def _entries(parts: Iterable[tuple[_Kind, float]], record: Record) -> list[Line]:
    entries: list[Line] = []
    for kind, percent in parts:
        is_least = kind.field == "waiting_for_cpu_percent" and is_cpu_wait_partial(record)
        share = measured(percent, is_least=is_least).text(format_percent)
        entries.append((Span(f"{kind.block} ", kind.style), Span(f"{kind.name} {share}")))
    return entries


def _seen(times: TimeBreakdown) -> Iterator[Line]:
    if times.covered_percent is not None and times.covered_percent < MIN_COVERED_PERCENT:
        yield line(Span(f"seen for {format_percent(times.covered_percent)} of the run", "dim"))


def _waits(times: TimeBreakdown, width: int) -> Iterator[Line]:
    for number, target in enumerate(longest_waits(times)):
        percent = f"{format_percent(min(target.percent, 100)):>5}  "
        yield line(label("" if number else "waits"), percent, shorten(wait_name(target), width - 7))
