"""What the machine has: its processors, its memory, its architecture."""

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

_MEMORY = Path("/proc/meminfo")
_MEMORY_TOTAL = "MemTotal"
_BYTES_PER_KIB = 1024
# ECS has its own spelling of what uname calls the machine.
_ARCHITECTURES = {"x86_64": "X86_64", "amd64": "X86_64", "aarch64": "ARM64", "arm64": "ARM64"}


class Host(Struct, frozen=True, kw_only=True):
    """The machine below the containers; None where it cannot be known."""

    vcpu: float | None = None
    memory_bytes: int | None = None
    cpu_architecture: str | None = None


def read_host() -> Host:
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
    return parse_memory(meminfo).get(_MEMORY_TOTAL)


def parse_memory(meminfo: str) -> Mapping[str, int]:
    """The sizes in ``/proc/meminfo`` in bytes, by their name without the colon."""
    found = {}
    for line in meminfo.splitlines():
        name, colon, value = line.partition(":")
        words = value.split()
        if colon and words and words[0].isascii() and words[0].isdecimal():
            found[name] = int(words[0]) * _BYTES_PER_KIB
    return found


def _memory_bytes() -> int | None:
    try:
        return parse_memory_total(_MEMORY.read_text())
    except (OSError, UnicodeDecodeError):
        return None
