"""The courses of a run's use as curves of one line, each with its limit."""

from collections.abc import Callable, Sequence

from profiler.core.optional_math import known_values
from profiler.record.measured import UNKNOWN, Measured, Number
from profiler.record.mention_limits import is_near_limit
from profiler.record.record_model import Series
from profiler.record.run_usage import RunUsage
from profiler.record.sparkline import LEAST_MB, LEAST_PERCENT, LEAST_VCPU, curve_top, draw_sparkline
from profiler.record.units import format_memory, format_part, format_percent, format_vcpu

CPU = "CPU"
MEMORY = "Memory"
GPU = "GPU"
_STYLES = {CPU: "blue", MEMORY: "magenta"}
# The values of a series have three digits: rounded up, one may be above the peak.
_ROUNDING = 1.005


def use_style(name: str, *, is_full: bool) -> str:
    """The colour of a use, as in the report page: a full CPU is in use, a full memory is a kill."""
    if name == MEMORY and is_full:
        return "red"
    return _STYLES.get(name, "cyan")


class Curve:
    """A column of the series and its limit. ``peak`` may be above all values: the kernel's.

    ``whose`` says that the values are not the run's own.
    """

    def __init__(
        self,
        name: str,
        values: Sequence[float | None] | None,
        limit: Number | None,
        least_top: float,
        format_value: Callable[[float], str],
        peak: Measured = UNKNOWN,
        whose: str = "",
    ) -> None:
        self.label = name
        self._values = values or ()
        self.known = known_values(self._values)
        highest = max((*self.known, 0.0))
        is_peak = peak.value is not None and highest <= peak.value * _ROUNDING
        if peak.value is not None and is_peak:
            highest = float(peak.value)
        self._top, self.is_to_limit = curve_top(highest, limit, least_top)
        self.is_near_limit = self.is_to_limit and is_near_limit(highest, self._top)
        top = format_value(self._top)
        if is_peak and self._top == highest:
            top = peak.text(format_value)  # with its mark, as everywhere
        # The value at the top of the curve, and the limit if that is far above. Of a share, the
        # limit is known.
        if limit and not self.is_to_limit and format_value is not format_percent:
            top = format_part(top, format_value(limit))
        self.limit_text = f"▔ {top}{whose}"

    def draw_curve(self, width: int) -> str:
        """The curve with ``width`` characters; values are repeated if there are fewer."""
        values = self._values
        if len(values) < width:
            values = [values[place * len(values) // width] for place in range(width)]
        return draw_sparkline(values, width=width, top=self._top)


def run_curves(usage: RunUsage, series: Series) -> tuple[Curve, ...]:
    """The measured curves of a run."""
    memory = series.memory_used_mb
    size_mb = usage.memory.size_mb
    gpu = series.gpu_utilization_percent
    neuron = series.neuron_utilization_percent
    whose = ", of all programs" if usage.gpus.scope else ""
    curves = (
        Curve(CPU, series.vcpu_used, usage.cpu.curve_limit, LEAST_VCPU, format_vcpu),
        Curve(MEMORY, memory, size_mb, LEAST_MB, format_memory, usage.memory.peak),
        Curve(GPU, gpu, 100, LEAST_PERCENT, format_percent, whose=whose),
        Curve("Neuron", neuron, 100, LEAST_PERCENT, format_percent),
    )
    return tuple(curve for curve in curves if curve.known)
