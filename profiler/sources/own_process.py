"""What this process itself has used, by the kernel's accounting."""

import time
from pathlib import Path

from msgspec import Struct

_STATUS = Path("/proc/self/status")
_PEAK = "VmHWM:"
_KIB_PER_MIB = 1024


class OwnUsage(Struct, frozen=True, kw_only=True):
    """CPU time and resident memory peak of this process; None where the kernel does not say."""

    cpu_seconds: float
    max_rss_mb: float | None = None


def read_own_usage() -> OwnUsage:
    """The state now.

    The peak is VmHWM, which begins anew at exec; getrusage's ru_maxrss begins at the parent's.
    """
    return OwnUsage(cpu_seconds=time.process_time(), max_rss_mb=_peak_mb())


def _peak_mb() -> float | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    peak = next((line for line in lines if line.startswith(_PEAK)), None)
    return None if peak is None else round(int(peak.split()[1]) / _KIB_PER_MIB, 1)
