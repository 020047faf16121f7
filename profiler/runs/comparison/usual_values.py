"""The usual range of a figure of a family: a difference within it is noise."""

from collections.abc import Iterable

from msgspec import Struct

from profiler.sizing.trend import median

MIN_RUNS = 5
FEW_RUNS = "fewer than five runs"
MIN_SHARE = 0.05


class UsualRange(Struct, frozen=True):
    """From ``least`` to ``most``."""

    least: float
    most: float

    def holds(self, value: float) -> bool:
        """Whether the value is usual."""
        return self.least <= value <= self.most


def usual_range(values: Iterable[float | None]) -> UsualRange | None:
    """The median ± two median absolute deviations, at least ± 5 %; None for fewer than five known values."""
    known = sorted(value for value in values if value is not None)
    if len(known) < MIN_RUNS:
        return None
    middle = median(known)
    deviation = median(sorted(abs(value - middle) for value in known))
    width = max(2 * deviation, MIN_SHARE * abs(middle))
    return UsualRange(middle - width, middle + width)
