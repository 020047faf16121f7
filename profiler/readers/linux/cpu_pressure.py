"""For how long threads of a machine or of a control group have waited for a CPU, and whether those
of a group wait for memory, by the kernel's own counters.
"""

from msgspec import Struct

from profiler.core.files import close_files, open_or_none
from profiler.core.optional_math import excess, first_known, product
from profiler.core.timestamps import NS_PER_US
from profiler.readers.linux import proc


class CpuWaitBounds(Struct, frozen=True, kw_only=True):
    """For how long at least one thread of the batch can have waited for a CPU in a step.

    ``throttled_ns``: how long its group was stopped because its quota was used up, summed over the
    CPUs.
    """

    least_ns: int = 0
    most_ns: int | None = None
    throttled_ns: int = 0


class CpuPressure(Struct, frozen=True, kw_only=True, gc=False):
    """The counters so far, as the kernel wrote them: few readings are ever asked for their numbers.

    ``pressure`` is the file of the batch's group if it ``is_of_group``, else of one that others
    share, such as the whole machine, and ``cpu_stat`` is the group's; empty if there is none.
    """

    pressure: bytes = b""
    cpu_stat: bytes = b""
    is_of_group: bool = False
    cpus: int = 1

    @property
    def waited_ns(self) -> int | None:
        """A mean over the CPUs of the time in which a thread waited; None if it is not counted."""
        return parse_pressure_ns(self.pressure)

    @property
    def throttled_ns(self) -> int | None:
        """How long the group was stopped because its quota was used up, summed over ``cpus``;
        None if it is not counted.
        """
        return parse_throttled_ns(self.cpu_stat)

    def cpu_wait_bounds_since(self, before: "CpuPressure | None") -> CpuWaitBounds:
        """What the growth since ``before`` shows.

        While a CPU is throttled, a thread of the group waits there: the time is at least its
        mean over all CPUs, and at most the sum. A mean of the group's pressure is no more than the
        time in which any of its threads waited. What the machine's threads waited may be others'.
        """
        if before is None:
            return CpuWaitBounds()
        throttled_ns = 0
        if before.cpu_stat != self.cpu_stat:
            throttled_ns = excess(self.throttled_ns, before.throttled_ns) or 0
        waited_ns = excess(self.waited_ns, before.waited_ns)
        if before.is_of_group != self.is_of_group:
            waited_ns = None
        least_ns = throttled_ns // self.cpus
        if waited_ns is None:
            return CpuWaitBounds(least_ns=least_ns, throttled_ns=throttled_ns)
        if self.is_of_group:
            least_ns = max(least_ns, waited_ns)
        return CpuWaitBounds(
            least_ns=least_ns, most_ns=waited_ns + throttled_ns, throttled_ns=throttled_ns
        )


_FROZEN = b"frozen 1"
_UNDER_OOM = b"under_oom 1"
# Of version 1, in its file.
FROZEN_STATES = (b"FROZEN", b"FREEZING")


class PressureFiles:
    """The open files of :class:`CpuPressure`, and of a group of version 2 its ``events`` and the
    pressure of its ``memory``, of version 1 the state of its ``freezer`` and its
    ``memory.oom_control``; a descriptor is None where there is no file.
    """

    def __init__(
        self,
        pressure: int | None,
        cpu_stat: int | None = None,
        events: int | None = None,
        *,
        memory: int | None = None,
        freezer: int | None = None,
        is_of_group: bool = False,
        cpus: int = 1,
    ) -> None:
        self._pressure = pressure
        self._cpu_stat = cpu_stat
        self._events = events
        self._memory = memory
        self._freezer = freezer
        self._memory_full: tuple[int, int] | None = None  # when it was read, and the total
        self._is_of_group = is_of_group
        self._cpus = cpus

    def read_pressure(self) -> CpuPressure:
        return CpuPressure(
            pressure=proc.reread_descriptor(self._pressure),
            cpu_stat=proc.reread_descriptor(self._cpu_stat),
            is_of_group=self._is_of_group,
            cpus=self._cpus,
        )

    def is_frozen(self) -> bool:
        """Whether the group is frozen: the kernel shows its threads in the system calls in which
        they were, of version 2 as if they slept. Of version 1, most have not run since.
        """
        if proc.reread_descriptor(self._freezer).startswith(FROZEN_STATES):
            return True
        return _FROZEN in proc.reread_descriptor(self._events)

    def waits_for_memory(self, now_ns: int) -> bool:
        """Whether all threads of the group that had something to do waited for memory in most of
        the time since the last call; False the first time. Of version 1, whether threads wait at
        the limit now, because kills are off.
        """
        text = proc.reread_descriptor(self._memory)
        if _UNDER_OOM in text:
            return True
        total_ns = parse_pressure_ns(text, b"full ")
        before = self._memory_full
        self._memory_full = None if total_ns is None else (now_ns, total_ns)
        if before is None or total_ns is None:
            return False
        return now_ns > before[0] and 2 * (total_ns - before[1]) >= now_ns - before[0]

    def close(self) -> None:
        close_files((self._pressure, self._cpu_stat, self._events, self._memory, self._freezer))
        self._pressure = None
        self._cpu_stat = None
        self._events = None
        self._memory = None
        self._freezer = None


def open_machine_pressure(proc_folder: str = "/proc") -> int | None:
    """The descriptor of the machine's file; None if the kernel does not count this."""
    return open_or_none(f"{proc_folder}/pressure/cpu")


def parse_pressure_ns(text: bytes, name: bytes = b"some ") -> int | None:
    """The total of ``some`` in a file such as ``cpu.pressure``: when at least one thread waited; of
    ``full``: when all waited that were not idle.
    """
    beginning = 0
    if not text.startswith(name):
        beginning = text.find(b"\n" + name) + 1
        if not beginning:
            return None
    end = text.find(b"\n", beginning)
    line = text[beginning:] if end < 0 else text[beginning:end]
    _, separator, total_us = line.rpartition(b" total=")
    return int(total_us) * NS_PER_US if separator and total_us.isdigit() else None


def parse_throttled_ns(text: bytes) -> int | None:
    """The sum over all CPUs in ``cpu.stat``, of version 1 or 2."""
    throttled_us = proc.number_after(text, b"throttled_usec ")
    return first_known(
        proc.number_after(text, b"throttled_time "), product(throttled_us, NS_PER_US)
    )
