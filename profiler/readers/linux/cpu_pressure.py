"""For how long threads of a machine or of a control group have waited for a CPU, by the kernel's
own counters.
"""

from typing import Protocol

from msgspec import Struct

from profiler.core.timestamps import NS_PER_US


class CpuWaitLimits(Struct, frozen=True, kw_only=True):
    """For how long at least one thread of the batch can have waited for a CPU in a step."""

    least_ns: int = 0
    most_ns: int | None = None


class CpuPressure(Struct, frozen=True, kw_only=True):
    """The counters so far; None if the kernel does not count this.

    ``waited_ns`` is the pressure's ``some``: a mean over the CPUs of the time in which a thread
    waited, of the batch's group if ``is_of_group``, else of the whole machine. ``throttled_ns``:
    how long the group was stopped because its quota was used up, summed over ``cpus``.
    """

    waited_ns: int | None = None
    is_of_group: bool = False
    throttled_ns: int | None = None
    cpus: int = 1

    def limits_since(self, before: "CpuPressure | None") -> CpuWaitLimits:
        """What the growth since ``before`` shows.

        While a CPU is throttled, a thread of the group waits there: the time is at least its
        mean over all CPUs, and at most the sum. A mean of the group's pressure is no more than the
        time in which any of its threads waited. What the machine's threads waited may be others'.
        """
        if before is None:
            return CpuWaitLimits()
        throttled_ns = _growth_ns(before.throttled_ns, self.throttled_ns) or 0
        waited_ns = _growth_ns(before.waited_ns, self.waited_ns)
        if before.is_of_group != self.is_of_group:
            waited_ns = None
        least_ns = throttled_ns // self.cpus
        if waited_ns is None:
            return CpuWaitLimits(least_ns=least_ns)
        if self.is_of_group:
            least_ns = max(least_ns, waited_ns)
        return CpuWaitLimits(least_ns=least_ns, most_ns=waited_ns + throttled_ns)


class PressureFiles(Protocol):
    """The open counters of a group."""

    def read(self) -> CpuPressure: ...

    def close(self) -> None: ...


def _growth_ns(before_ns: int | None, now_ns: int | None) -> int | None:
    if before_ns is None or now_ns is None:
        return None
    return max(now_ns - before_ns, 0)


def parse_pressure_ns(text: bytes) -> int | None:
    """The total of ``some`` in a file ``cpu`` or ``cpu.pressure``: when at least one thread waited
    for a CPU.
    """
    line, _, _ = text.partition(b"\n")
    _, separator, total_us = line.rpartition(b" total=")
    if not separator or not line.startswith(b"some "):
        return None
    return int(total_us) * NS_PER_US if total_us.isdigit() else None
