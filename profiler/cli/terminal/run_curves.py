"""The curves of a run as text, each below its limit. The end of ``run`` and ``show`` print the same ones."""

from collections.abc import Callable, Sequence

from profiler.cli.styled_text import Glyphs
from profiler.record.record_model import Number, Record, Series
from profiler.record.sparkline import LEAST_MB, LEAST_PERCENT, LEAST_VCPU, curve_top, sparkline
from profiler.record.units import format_memory, format_part, format_percent, format_vcpu

CPU, MEMORY, GPU = "CPU", "Memory", "GPU"
_STYLES = {CPU: "blue", MEMORY: "magenta"}
NEAR_LIMIT = 0.9
# The values of a series have three digits: rounded up, one may be above the peak.
_ROUNDING = 1.005


def use_style(label: str, *, is_near_limit: bool) -> str:
    """The colour of a use, as in the report page: a full CPU is in use, a full memory is a kill."""
    return "red" if label == MEMORY and is_near_limit else _STYLES.get(label, "cyan")


class Curve:
    """A column of the series and its limit.

    ``peak`` may be above all values: the kernel sees it between two samples, too.
    """

    def __init__(
        self,
        label: str,
        values: Sequence[float | None] | None,
        limit: Number | None,
        format_value: Callable[[float], str],
        *,
        least_top: float,
        peak: Number | None = None,
    ) -> None:
        self.label = label
        self._values = values or ()
        self._limit = limit
        self._format = format_value
        self.known = tuple(value for value in self._values if value is not None)
        highest = max((*self.known, 0.0))
        self.highest = highest if peak is None or highest > peak * _ROUNDING else float(peak)
        self.top, self.is_to_limit = curve_top(self.highest, limit, least_top)

    @property
    def is_near_limit(self) -> bool:
        """Whether the highest value is near the limit."""
        return self.is_to_limit and self.highest >= NEAR_LIMIT * self.top

    def limit_text(self, glyphs: Glyphs) -> str:
        """The value at the top of the curve, and the limit if the limit is far above this value."""
        top = self._format(self.top)
        if self._limit and not self.is_to_limit:
            top = format_part(top, self._format(self._limit))
        return f"{glyphs.limit} {top}"

    def drawn(self, width: int, glyphs: Glyphs) -> str:
        """The curve with ``width`` characters; values are repeated if there are fewer."""
        values = self._values
        if len(values) < width:
            values = [values[place * len(values) // width] for place in range(width)]
        return sparkline(values, width=width, top=self.top, ascii_only=glyphs.is_ascii)


def run_curves(record: Record, series: Series) -> tuple[Curve, ...]:
    """The measured curves of a run."""
    metrics = record.metrics
    devices = {GPU: series.gpu_utilization_percent, "Neuron": series.neuron_utilization_percent}
    curves = (
        Curve(CPU, series.vcpu_used, metrics.vcpu_size, format_vcpu, least_top=LEAST_VCPU),
        Curve(
            MEMORY,
            series.memory_used_mb,
            metrics.memory_size_mb,
            format_memory,
            least_top=LEAST_MB,
            peak=metrics.max_memory_used_mb,
        ),
        *(Curve(label, values, 100, format_percent, least_top=LEAST_PERCENT) for label, values in devices.items()),
    )
    return tuple(curve for curve in curves if curve.known)
