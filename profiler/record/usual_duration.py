"""How long the runs of a family usually take: the median and the 95th percentile of its last successes."""

from collections.abc import Sequence
from statistics import median, quantiles

from msgspec import Struct

MAX_RUNS_OF_A_FAMILY = 20
_TWENTIETHS = 20


class UsualDuration(Struct, frozen=True, kw_only=True):
    """The median and the 95th percentile of the durations of some successes."""

    median_ms: float
    p95_ms: float
    runs: int


def usual_duration(durations_ms: Sequence[float]) -> UsualDuration | None:
    """The usual duration; None without a duration."""
    if not durations_ms:
        return None
    p95_ms = quantiles(durations_ms, n=_TWENTIETHS, method="inclusive")[-1] if durations_ms[1:] else durations_ms[0]
    return UsualDuration(median_ms=median(durations_ms), p95_ms=p95_ms, runs=len(durations_ms))
