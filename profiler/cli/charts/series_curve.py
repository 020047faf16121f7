"""A column of a time series as a curve of text, below its limit."""

from collections.abc import Callable, Sequence

from profiler.cli.styled_text import Glyphs
from profiler.record.record_model import Number
from profiler.record.sparkline import curve_top, sparkline

NEAR_LIMIT = 0.9


class Curve:
    """A column of the series and its limit.

    Args:
        label: The name of the column.
        values: The column; None: not measured.
        limit: The limit, if there is one.
        format_value: The text of a value.
        peak: The peak, which may be above all values: the kernel sees it between two samples, too.
        least_top: The top of the curve is at least this, because what is below is noise.
    """

    def __init__(
        self,
        label: str,
        values: Sequence[float | None] | None,
        limit: Number | None,
        format_value: Callable[[float], str],
        *,
        peak: Number | None = None,
        least_top: float = 0.0,
    ) -> None:
        self.label = label
        self._values = values or ()
        self._limit = limit
        self._format = format_value
        self.known = tuple(value for value in self._values if value is not None)
        self.highest = max(*self.known, peak or 0.0, least_top)
        self.top, self.is_to_limit = curve_top(self.highest, limit)

    @property
    def is_near_limit(self) -> bool:
        """Whether the highest value is near the limit."""
        return self.is_to_limit and self.highest >= NEAR_LIMIT * self.top

    @property
    def is_measured(self) -> bool:
        """Whether there is anything to draw."""
        return bool(self.known)

    def limit_text(self, glyphs: Glyphs) -> str:
        """The value at the top of the curve, and the limit if that is far above it."""
        text = f"{glyphs.limit} {self._format(self.top if self.is_to_limit else self.highest)}"
        return f"{text} of {self._format(self._limit)}" if self._limit and not self.is_to_limit else text

    def drawn(self, width: int, glyphs: Glyphs) -> str:
        """The curve with ``width`` characters; values are repeated if there are fewer."""
        values = self._values
        if len(values) < width:
            values = [values[place * len(values) // width] for place in range(width)]
        return sparkline(values, width=width, top=self.top, ascii_only=glyphs.is_ascii)


def percent_text(value: float) -> str:
    """Format as ``45 %``."""
    return f"{value:.0f} %"
