"""Where the time of a run went: the parts that outputs name, each with its share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from profiler.record.activity_model import TimeBreakdown
from profiler.record.measured import Measured, measured_from

OTHER: Final = "other"
_WAITING_FOR_CPU: Final = "waiting for CPU"
# The fields of the record by the names of the parts.
_PARTS: Final[Mapping[str, str]] = {
    "on CPU": "on_cpu_percent",
    _WAITING_FOR_CPU: "waiting_for_cpu_percent",
    "disk": "disk_percent",
    "network": "network_percent",
    "sleep": "sleep_percent",
    "lock": "lock_percent",
    "pipe": "pipe_percent",
    "child": "child_percent",
    OTHER: "other_percent",
}
# The first parts, on a CPU and waiting for one, which the kernel counts. The others are waits.
CPU_PARTS: Final = 2


class TimeShare(Struct, frozen=True):
    """A part of the time of a run, and its share in percent."""

    name: str
    percent: Measured


def time_shares(times: TimeBreakdown, *, is_wait_partial: bool = False) -> tuple[TimeShare, ...]:
    """All parts in their order, also the unknown ones.

    ``is_wait_partial``: the run may have waited longer for a CPU than was read.
    """
    shares: list[TimeShare] = []
    for name, field in _PARTS.items():
        is_least = is_wait_partial and name == _WAITING_FOR_CPU
        shares.append(TimeShare(name, measured_from(getattr(times, field), is_least=is_least)))
    return tuple(shares)
