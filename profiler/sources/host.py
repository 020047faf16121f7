"""What the machine has: its processors, its memory, its architecture."""

import os
from pathlib import Path

from msgspec import Struct

_MEMORY = Path("/proc/meminfo")
_MEMORY_TOTAL = "MemTotal:"
_BYTES_PER_KIB = 1024
# ECS has its own spelling of what uname calls the machine.
_ARCHITECTURES = {"x86_64": "X86_64", "amd64": "X86_64", "aarch64": "ARM64", "arm64": "ARM64"}


class Host(Struct, frozen=True, kw_only=True):
    """The machine below the containers; None where it cannot be known."""

    vcpu: float | None = None
    memory_bytes: int | None = None
    cpu_architecture: str | None = None


def host_facts() -> Host:
    """The machine as this process sees it; None for what it cannot see."""
    cpus = os.cpu_count()
    return Host(
        vcpu=None if cpus is None else float(cpus),
        memory_bytes=_memory_bytes(),
        cpu_architecture=architecture(os.uname().machine),
    )


def architecture(machine: str) -> str:
    """The name ECS gives to a machine type; one that ECS does not know is kept as it is."""
    return _ARCHITECTURES.get(machine.lower(), machine)


def parse_memory_total(meminfo: str) -> int | None:
    """``MemTotal`` of ``/proc/meminfo`` in bytes, None if it is not there."""
    for line in meminfo.splitlines():
        if line.startswith(_MEMORY_TOTAL):
            words = line.split()
            return int(words[1]) * _BYTES_PER_KIB if len(words) > 1 and words[1].isdecimal() else None
    return None


def _memory_bytes() -> int | None:
    try:
        return parse_memory_total(_MEMORY.read_text())
    except (OSError, UnicodeDecodeError):
        return None
