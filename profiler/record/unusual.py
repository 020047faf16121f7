"""What is unusual about a run of a family: the one rule of ``show``, the end of ``run``, notices
and the report page.

A number is usual within the family's own spread: the median of the earlier successes ± two median
absolute deviations (MAD), at least ± 5 %. A number can also be far outside all earlier ones, which
is worth a message (``Usual.is_far_outside``). ``compare``, which judges two sets of runs by their
confidence intervals, has the limits of this module.
"""

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from profiler.core.optional_math import difference, known_values, median
from profiler.record.model_base import json_name
from profiler.record.record_model import Metrics

# With fewer runs, nothing is known about what is usual, and a recommendation is not reliable.
MIN_RUNS = 5
FEW_RUNS = "fewer than five runs"
# At least this share of the median is the width of the usual range on both sides.
MIN_SHARE = 0.05
# Shares of the time that differ by fewer points are equal.
MIN_POINTS = 10
# With fewer runs, no value is far outside them.
MIN_FAR_RUNS = 8
# With fewer runs, no value is worth a line; from the second number on, the notable ratio is enough.
_MIN_LINE_RUNS = 10
_MANY_LINE_RUNS = 20
_USUAL_DEVIATIONS = 2
_FAR_DEVIATIONS = 6
_FAR_FROM_MEDIAN = math.log(3)
_FAR_FROM_ALL = math.log(2)
# From this ratio to the median on, a value outside the usual range is worth a sentence.
_NOTABLE_RATIO = 1.5
# A shorter run has no change that matters.
MIN_RUN_MS = 50
# The numbers that the end of a run compares with the last success, by their names in its metrics,
# and the least difference, below which it is noise.
LEAST_CHANGES = {"duration_ms": 50, "max_memory_used_mb": 1, "cpu_seconds": 0.05}


def is_long_enough_to_compare(metrics: Metrics, last: Mapping[str, object]) -> bool:
    """Whether a success is long enough for a sentence about its changes, or may have notable ones,
    by its metrics and those of the last one, as JSON has them.
    """
    if (metrics.duration_ms or 0) >= MIN_RUN_MS:
        return True
    for name, least in LEAST_CHANGES.items():
        before = last.get(json_name(name))
        if isinstance(before, int | float):
            change = difference(getattr(metrics, name), before)
            if abs(change or 0) >= least:
                return True
    return False


class UsualRange(Struct, frozen=True):
    """What is usual of one number: the values of at least five earlier successes, the newest
    first.
    """

    values: tuple[float, ...]
    middle: float
    width: float

    def is_within_spread(self, value: float) -> bool:
        """Whether the value is within the spread of the earlier ones."""
        return abs(value - self.middle) <= self.width

    def is_notably_different(self, value: float) -> bool:
        """Whether value and median differ by half of the smaller one: alone, that is usual."""
        return max(value, self.middle) >= _NOTABLE_RATIO * min(value, self.middle)

    def is_notably_more(self, value: float) -> bool:
        """Whether the value is so far above what is usual that it is worth a sentence."""
        return (
            value > self.middle
            and self.is_notably_different(value)
            and not self.is_within_spread(value)
        )

    def is_worth_a_line(self, value: float) -> bool:
        """Whether the value is worth a line in a message about many families: notably more than
        usual, and by a factor above all of at least ten earlier values but the latest, because of
        weekly larger runs.

        The chance that a run of n in random order is k times as large as all others is about
        1 / (n × k²): so the factor is 1.5 from 20 earlier runs on, and 1.5 × √(20 / n) for
        fewer. Of 56 families of three public workflows in random orders (22 families for 40), this
        share of single runs stood out:

        - 10 earlier runs: 0.8 % by duration, 0.4 % by memory peak (with a factor of 1.5: 1.6 and
          0.5 %)
        - 11, 12, 15, 20, 30 and 40 earlier runs: 0.4 to 0.7 %, and 0.1 to 0.3 %
        - the median of three runs after 10, 11 or 20: at most 0.3 %
        """
        runs = len(self.values)
        if runs < _MIN_LINE_RUNS or not self.is_notably_more(value):
            return False
        factor = _NOTABLE_RATIO * max(1, math.sqrt(_MANY_LINE_RUNS / runs))
        return value >= factor * max(self.values[1:])

    def is_far_outside(self, value: float, small: float) -> bool:
        """Whether the value is far outside at least eight earlier ones; values far below
        ``small`` count as equal.

        It lies beyond median ± 6 × MAD of the logarithms, below a third or above three times the
        median, and, because of weekly larger runs, below half or above twice of all earlier values
        but the latest: a second unusual run in a row is found.
        """
        if len(self.values) < MIN_FAR_RUNS:
            return False
        level = math.log(value + small)
        usual_level = math.log(self.middle + small)
        levels = [math.log(earlier + small) for earlier in self.values]
        middle = median(sorted(levels))
        deviation = median(sorted(abs(earlier - middle) for earlier in levels))
        if level > usual_level:
            beyond_all = level - max(levels[1:])
        else:
            beyond_all = min(levels[1:]) - level
        return (
            abs(level - middle) > _FAR_DEVIATIONS * deviation
            and abs(level - usual_level) > _FAR_FROM_MEDIAN
            and beyond_all > _FAR_FROM_ALL
        )


def usual_value_of(values: Iterable[float | None]) -> UsualRange | None:
    """What is usual by the values of earlier successes, the newest first; None for fewer than
    five known ones.
    """
    known = known_values(values)
    if len(known) < MIN_RUNS:
        return None
    middle = median(sorted(known))
    deviation = median(sorted(abs(value - middle) for value in known))
    width = max(_USUAL_DEVIATIONS * deviation, MIN_SHARE * abs(middle))
    return UsualRange(known, middle, width)
