"""What the pages of a run share: the terminal, labelled lines, the choice of lines that fit, curves and texts."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

from profiler.cli.styled_text import INDENT, Line, Span, line, separated, wrapped
from profiler.core.timestamps import local_time, parse_ns
from profiler.record.record_model import Metrics, Number, Record, Series
from profiler.record.sparkline import LEAST_MB, LEAST_PERCENT, LEAST_VCPU, curve_top, sparkline
from profiler.record.units import (
    MIB,
    format_count,
    format_memory,
    format_part,
    format_peak,
    format_percent,
    format_vcpu,
)
from profiler.record.worth_a_word import is_near_limit

MAX_WIDTH = 120
LABEL_WIDTH = 9
CPU, MEMORY, GPU = "CPU", "Memory", "GPU"
_STYLES = {CPU: "blue", MEMORY: "magenta"}
# The values of a series have three digits: rounded up, one may be above the peak.
_ROUNDING = 1.005


class View(Struct, frozen=True, kw_only=True):
    """The settings of a page: the width of the terminal, the time now, and the time zone."""

    width: int
    now_ns: int
    zone: tzinfo | None = None


def label(name: str, style: str = "dim", width: int = LABEL_WIDTH) -> Span:
    """The beginning of a line: a name, or as much space."""
    return Span(f"{INDENT}{name:<{width}}", style)


def labelled(name: str, text: str, view: View) -> tuple[Line, ...]:
    """A text after its label, on several lines if necessary; nothing without a text."""
    return wrapped(text, view.width, label(name))


def local(text: str | None, view: View) -> datetime | None:
    """A moment of a record in the time zone of the page."""
    moment_ns = parse_ns(text)
    return None if moment_ns is None else local_time(moment_ns, view.zone)


Section = tuple[int, Iterable[Line]]
"""A rank, and lines that belong together. If the page is too long, the highest ranks are left out first."""


def arrange(sections: Iterable[Section], max_lines: int) -> list[Line]:
    """Put the sections below each other, in at most ``max_lines`` lines. A section loses its last lines first."""
    ranked = [(rank, list(lines)) for rank, lines in sections]
    shown = [lines for _, lines in ranked]
    if len(separated(shown)) <= max_lines:
        return separated(shown)
    left_out, by_rank = 0, sorted(ranked, key=lambda section: section[0])
    for _, lines in reversed(by_rank):
        while lines and len(separated(shown)) >= max_lines:
            lines.pop()
            left_out += 1
    omitted = f"{INDENT}{format_count(left_out, 'line')} omitted: --json prints everything."
    return [*separated(shown), line(Span(omitted, "dim"))]


def peak_text(metrics: Metrics) -> str:
    """The peak of the memory; "" if it is unknown."""
    if metrics.max_memory_used_mb is None:
        return ""
    return format_peak(metrics.max_memory_used_mb, metrics.memory_peak_source)


def io_text(metrics: Metrics) -> str:
    """The bytes read and written, received and sent, as far as they were measured."""
    groups = (
        (("read", metrics.block_read_bytes), ("wrote", metrics.block_write_bytes)),
        (("received", metrics.network_rx_bytes), ("sent", metrics.network_tx_bytes)),
    )
    texts = (
        ", ".join(f"{verb} {format_memory(size / MIB)}" for verb, size in group if size is not None) for group in groups
    )
    return " · ".join(filter(None, texts))


def use_style(label: str, *, is_near_limit: bool) -> str:
    """The colour of a use, as in the report page: a full CPU is in use, a full memory is a kill."""
    return "red" if label == MEMORY and is_near_limit else _STYLES.get(label, "cyan")


class Curve:
    """A column of the series and its limit. ``peak``, the kernel's, may be above all values."""

    def __init__(
        self,
        label: str,
        values: Sequence[float | None] | None,
        limit: Number | None,
        least_top: float,
        format_value: Callable[[float], str],
        peak: Number | None = None,
    ) -> None:
        self.label, self._values = label, values or ()
        self.known = tuple(value for value in self._values if value is not None)
        highest = max((*self.known, 0.0))
        highest = highest if peak is None or highest > peak * _ROUNDING else float(peak)
        self._top, self.is_to_limit = curve_top(highest, limit, least_top)
        self.is_near_limit = self.is_to_limit and is_near_limit(highest, self._top)
        top = format_value(self._top)
        # The value at the top of the curve, and the limit if that is far above.
        self.limit_text = f"▔ {format_part(top, format_value(limit)) if limit and not self.is_to_limit else top}"

    def drawn(self, width: int) -> str:
        """The curve with ``width`` characters; values are repeated if there are fewer."""
        values = self._values
        if len(values) < width:
            values = [values[place * len(values) // width] for place in range(width)]
        return sparkline(values, width=width, top=self._top)


def run_curves(record: Record, series: Series) -> tuple[Curve, ...]:
    """The measured curves of a run."""
    metrics = record.metrics
    devices = {GPU: series.gpu_utilization_percent, "Neuron": series.neuron_utilization_percent}
    memory, size_mb, peak_mb = series.memory_used_mb, metrics.memory_size_mb, metrics.max_memory_used_mb
    curves = (
        Curve(CPU, series.vcpu_used, metrics.vcpu_size, LEAST_VCPU, format_vcpu),
        Curve(MEMORY, memory, size_mb, LEAST_MB, format_memory, peak_mb),
        *(Curve(label, values, 100, LEAST_PERCENT, format_percent) for label, values in devices.items()),
    )
    return tuple(curve for curve in curves if curve.known)
