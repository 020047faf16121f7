"""The colours of the dashboards, and the bands of values that have them."""

from typing import Final

Band = tuple[float, float, str]

# Each colour of a line, a bar or a number differs from a white and from a dark background.
SUCCESS: Final = "#2e9e5b"
FAILURE: Final = "#e4605c"
OUT_OF_MEMORY: Final = "#c0392b"
STOPPED: Final = "#98a2b3"
UNKNOWN: Final = "#e6a817"
KILL: Final = "#e5484d"
"""The line and the word of a kill: dark red would be hard to see on a dark background."""
# The colours of numbers that are not outcomes differ from the colours above.
USED: Final = "#4a98c9"
HIGH: Final = "#2f6fa8"
SIZE: Final = "#8a94a6"
LIMIT: Final = FAILURE
_DARKEST_RED: Final = "#7b241c"

PERCENT_BANDS: Final[tuple[Band, ...]] = (
    (0, 10, "#e1e8f0"),
    (10, 25, "#c9ddf0"),
    (25, 50, "#9fc9e2"),
    (50, 75, "#4a98c9"),
    (75, 90, "#1764ab"),
    (90, 100, FAILURE),
    (100, 10_000, _DARKEST_RED),
)
"""The bands of a heatmap in percent: lower bound (inclusive), upper bound (exclusive), colour.

The bands are absolute, so that a low percentage never has the colour of a high one. Red means
close to the limit. The classic heatmap does not draw values outside all bands. The last band is
for exactly 100.
"""
DEVICE_USE_BANDS: Final[tuple[Band, ...]] = (*PERCENT_BANDS[:5], (90, 101, "#0b3d73"))
"""The bands of the use of GPUs and NeuronCores: a task that uses all is not in danger."""
CPU_USE_BANDS: Final[tuple[Band, ...]] = (*DEVICE_USE_BANDS, (101, 10_000, "#7b4fa3"))
"""The bands of the use of CPUs, which may be above a soft limit."""
NO_FAILURE_BANDS: Final[tuple[Band, ...]] = ((0, 1, SUCCESS), (1, 1_000_000_000, KILL))
"""The bands of a number that counts runs that ran out of memory."""
FAILURE_RATE_BANDS: Final[tuple[Band, ...]] = ((0, 0.000_001, SUCCESS), (0.000_001, 1, FAILURE))
"""The bands of a ratio of failed tasks, from 0 to 1."""
