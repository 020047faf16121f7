"""What a run can have cost at most: a line can say anything, and sums have it.

The bound is generous, because prices are settings and lists change.
"""

from typing import Final

from profiler.core.optional_math import difference, max_known
from profiler.core.timestamps import MS_PER_DAY, MS_PER_HOUR, NS_PER_MS
from profiler.record.units import MB_PER_GB

# About a hundred times the highest price of a Region, in USD per hour.
MAX_VCPU_HOUR_USD: Final = 7.0
MAX_GB_HOUR_USD: Final = 0.8
# More than any machine of EC2.
MAX_MACHINE_HOUR_USD: Final = 1_000.0
# More than Fargate has, and a hundred times the price of its largest storage.
_MAX_VCPU = 64.0
_MAX_MEMORY_MB = 1024.0 * 1024
_STORAGE_HOUR_USD = 3.0
_MIN_BILLED_MS = MS_PER_HOUR
_MAX_BILLED_MS = 60.0 * MS_PER_DAY


def most_on_fargate_usd(vcpu: float, memory_mb: float, billed_ms: float) -> float:
    """The most that a task of this size can cost on Fargate."""
    of_vcpu_usd = min(vcpu, _MAX_VCPU) * MAX_VCPU_HOUR_USD
    of_memory_usd = min(memory_mb, _MAX_MEMORY_MB) / MB_PER_GB * MAX_GB_HOUR_USD
    hour_usd = of_vcpu_usd + of_memory_usd + _STORAGE_HOUR_USD
    return hour_usd * max(billed_ms, _MIN_BILLED_MS) / MS_PER_HOUR


def most_on_a_machine_usd(billed_ms: float) -> float:
    """The most that a run can cost whose size is unknown, or a machine's."""
    return MAX_MACHINE_HOUR_USD * max(billed_ms, _MIN_BILLED_MS) / MS_PER_HOUR


def longest_billed_ms(
    started_ns: int | None,
    finished_ns: int | None,
    init_ms: float | None,
    *durations_ms: float | None,
) -> float:
    """The longest time that can be billed: from the image pull to the end, and at most 60 days.

    ``durations_ms`` count if one of the times is unknown.
    """
    took_ns = difference(finished_ns, started_ns)
    if took_ns is None:
        billed_ms = max_known(*durations_ms) or 0
    else:
        billed_ms = took_ns / NS_PER_MS + min(init_ms or 0, MS_PER_DAY)
    return min(billed_ms, _MAX_BILLED_MS)
