"""The machine: its processors and its memory; what this process itself uses."""

import os
import re
import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from profiler.core.optional_math import (
    difference,
    excess,
    quotient,
    rounded,
    sum_of_both,
)
from profiler.core.timestamps import NS_PER_SECOND
from profiler.readers.linux import proc

MEMINFO = "/proc/meminfo"
MEMORY_TOTAL = b"MemTotal:"  # a line there
_FIRMWARE = "/sys/devices/virtual/dmi/id"
_INSTANCE_TYPE = r"[a-z][a-z0-9-]{0,20}\.[a-z0-9-]{1,20}"
_STAT = "/proc/stat"
_BUSY_COLUMNS = (1, 2, 3, 6, 7)  # user, nice, system, irq and softirq
_STATM_RESIDENT = 1
_STATM_SHARED = 2
# ARM machines have no model's name, but the numbers of the implementer and the part.
_ARM_MODELS = {
    ("0x41", "0xd08"): "Cortex-A72",  # Graviton
    ("0x41", "0xd0c"): "Neoverse-N1",  # Graviton2
    ("0x41", "0xd40"): "Neoverse-V1",  # Graviton3
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",  # Graviton4
}
_ARCHITECTURES = {"x86_64": "X86_64", "aarch64": "ARM64"}  # ECS's names for those of uname


class Host(Struct, frozen=True, kw_only=True):
    """The machine that the containers run on; None for unknown values."""

    vcpu: float | None = None
    memory_bytes: int | None = None
    cpu_architecture: str | None = None
    processor_model: str | None = None
    processor_count: int | None = None
    instance_type: str | None = None


class OwnUsage(Struct, frozen=True, kw_only=True):
    """CPU time and peak of the resident memory of this process."""

    cpu_seconds: float
    max_rss_mb: float | None = None


def read_host() -> Host:
    """The facts of the machine that are visible to this process."""
    cpus = os.cpu_count()
    machine = os.uname().machine
    return Host(
        vcpu=float(cpus) if cpus else None,
        memory_bytes=proc.bytes_after(proc.read_or_none(MEMINFO) or b"", MEMORY_TOTAL),
        cpu_architecture=_ARCHITECTURES.get(machine, machine),
    )


def with_processor(host: Host) -> Host:
    """Add the processor and EC2's type of the instance. Some kernels make a program wait 10 ms when
    it opens ``/proc/cpuinfo``.
    """
    # The file has a block for each CPU. The first one begins with the model.
    cpuinfo = proc.read_beginning("/proc/cpuinfo", 4096).decode(errors="replace")
    return replace(
        host,
        processor_model=parse_processor_model(cpuinfo),
        processor_count=os.cpu_count(),
        instance_type=parse_instance_type(
            proc.read_beginning(f"{_FIRMWARE}/sys_vendor", 100),
            proc.read_beginning(f"{_FIRMWARE}/product_name", 100),
        ),
    )


def parse_instance_type(vendor: bytes, product: bytes) -> str | None:
    """EC2's type of the instance by its firmware, which instances on Xen do not have."""
    name = product.strip().decode(errors="replace")
    if vendor.strip() != b"Amazon EC2" or not re.fullmatch(_INSTANCE_TYPE, name, re.ASCII):
        return None
    return name


def parse_processor_model(cpuinfo: str) -> str | None:
    """The first CPU's model in ``/proc/cpuinfo``; None if it is unknown."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    of_arm = _ARM_MODELS.get((fields.get("CPU implementer", ""), fields.get("CPU part", "")))
    return (of_arm or fields.get("model name", ""))[:200] or None


def read_busy_ns() -> int | None:
    """The CPU time that all programs of the machine have used since it booted; None where it cannot
    be read, and where a container has a ``/proc/stat`` of its own (LXCFS).
    """
    try:
        # The shortest runs do without pathlib.
        devices = {os.stat(path).st_dev for path in (_STAT, "/proc")}  # noqa: PTH116
    except OSError:
        return None
    if len(devices) > 1:
        return None
    return parse_busy_ns(proc.read_beginning(_STAT, 4096), proc.ns_per_tick())


def parse_busy_ns(stat: bytes, ns_per_tick: int) -> int | None:
    """The time in the first line of ``/proc/stat``, which is in ticks; None if it is damaged."""
    words = stat.partition(b"\n")[0].split()
    if words[:1] != [b"cpu"] or len(words) <= max(_BUSY_COLUMNS):
        return None
    return ns_per_tick * sum(int(words[column]) for column in _BUSY_COLUMNS)


def others_vcpu_used(
    busy_before_ns: int | None, read_busy: Callable[[], int | None], own_ns: int, length_ns: int
) -> float | None:
    """The mean number of CPUs that other programs used; None if it is unknown.

    ``own_ns`` is the CPU time of the command and the profiler in these ``length_ns``. The kernel
    counts in ticks of 10 ms: of less than a second, the number says nothing, and ``read_busy``
    is not called.
    """
    if busy_before_ns is None or length_ns < NS_PER_SECOND:
        return None
    others_ns = excess(read_busy(), busy_before_ns + own_ns)
    return rounded(quotient(others_ns, length_ns), 2)


def read_own_usage() -> OwnUsage:
    """The usage of this process so far. Unlike VmHWM, ``ru_maxrss`` starts at the parent's peak."""
    peak_bytes = proc.parse_status(proc.read_or_none("/proc/self/status") or b"").peak_bytes
    max_rss_mb = rounded(quotient(peak_bytes, 1024 * 1024), 1)
    return OwnUsage(cpu_seconds=time.process_time(), max_rss_mb=max_rss_mb)


def memory_of_others() -> int | None:
    """The anonymous memory and tmpfs of the machine, without this process's.

    Each page counts once.
    """
    memory = proc.read_or_none(MEMINFO) or b""
    own = (proc.read_or_none("/proc/self/statm") or b"").split()
    held_bytes = sum_of_both(
        proc.bytes_after(memory, b"AnonPages:"), proc.bytes_after(memory, b"Shmem:")
    )
    if len(own) <= _STATM_SHARED:
        return None
    own_pages = int(own[_STATM_RESIDENT]) - int(own[_STATM_SHARED])
    return difference(held_bytes, own_pages * os.sysconf("SC_PAGE_SIZE"))


def lazily_freed_pages() -> int | None:
    """How many pages all programs have freed lazily (MADV_FREE) since the machine booted; None if
    the kernel does not count them.
    """
    return proc.number_after(proc.read_or_none("/proc/vmstat") or b"", b"pglazyfree ")
