"""Reads the kernel's own accounting of a container, from the host: what the monitor's numbers are held against.

Where the container has a parent cgroup of its own, the parent is read: its counters include the container's and stay
after the container and its cgroup are gone, so that the exact total of a finished run can be read at leisure.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct


class KernelReading(Struct, frozen=True, kw_only=True):
    """What the kernel charged to a cgroup so far."""

    cpu_seconds: float
    memory_usage_bytes: int
    memory_unmapped_file_bytes: int
    memory_peak_bytes: int | None  # includes page cache; absent on cgroup v2 before Linux 5.19

    @property
    def memory_used_bytes(self) -> int:
        """Return the usage without the page cache that no process maps."""
        return max(0, self.memory_usage_bytes - self.memory_unmapped_file_bytes)


class KernelAccounting(Struct, frozen=True, kw_only=True):
    """The folders of one cgroup, under version 1 (one folder per controller) or version 2 (one for all)."""

    version: int
    cpu: Path
    memory: Path

    def read(self) -> KernelReading:
        """Read all counters now; raises FileNotFoundError when the cgroup is gone."""
        if self.version == 1:
            return KernelReading(
                cpu_seconds=_number(self.cpu / "cpuacct.usage") / 1e9,
                memory_usage_bytes=_number(self.memory / "memory.usage_in_bytes"),
                memory_unmapped_file_bytes=_unmapped_file_bytes(self.memory, "total_", "total_mapped_file"),
                memory_peak_bytes=_number(self.memory / "memory.max_usage_in_bytes"),
            )
        peak = self.memory / "memory.peak"
        return KernelReading(
            cpu_seconds=_table(self.cpu / "cpu.stat")["usage_usec"] / 1e6,
            memory_usage_bytes=_number(self.memory / "memory.current"),
            memory_unmapped_file_bytes=_unmapped_file_bytes(self.memory, "", "file_mapped"),
            memory_peak_bytes=_number(peak) if peak.exists() else None,
        )


def accounting_of(pid: int) -> KernelAccounting:
    """Find the cgroup of a process; on a machine with both versions, the one that has the memory controller."""
    return _accounting(_cgroup_paths(pid))


def accounting_at(path: str) -> KernelAccounting:
    """Find a cgroup by its path from the root of the hierarchies."""
    return _accounting(dict.fromkeys(_cgroup_paths(os.getpid()), path))


def _accounting(paths: Mapping[str, str]) -> KernelAccounting:
    """The cgroup with these paths by controller."""
    version, cpu, memory = (1, "cpuacct", "memory") if "memory" in paths else (2, "", "")
    mounts = _mounts()
    folders = {name: mounts[name] / paths[name].lstrip("/") for name in (cpu, memory)}
    return KernelAccounting(version=version, cpu=folders[cpu], memory=folders[memory])


def remove_cgroup(path: str) -> None:
    """Delete an empty cgroup, given by its path from the root, and the one above it, in every hierarchy."""
    for mount in set(_mounts().values()):
        folder = mount / path.lstrip("/")
        with contextlib.suppress(OSError):  # not in this hierarchy, or another task's cgroup is beside it
            folder.rmdir()
            folder.parent.rmdir()


def _cgroup_paths(pid: int) -> dict[str, str]:
    """Return the process's cgroup path by controller; version 2 is the controller without a name."""
    paths = {}
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    return paths


def _mounts() -> dict[str, Path]:
    """Return where each controller's hierarchy is mounted; version 2 is the controller without a name."""
    mounts = {}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, system = line.partition(" - ")
        kind, _, options = system.split(" ", 2)
        point = Path(mount.split(" ")[4])
        if kind == "cgroup":
            mounts.update(dict.fromkeys(options.split(","), point))
        elif kind == "cgroup2":
            mounts[""] = point
    return mounts


def _unmapped_file_bytes(group: Path, prefix: str, mapped: str) -> int:
    stat = _table(group / "memory.stat")
    return max(0, stat[f"{prefix}active_file"] + stat[f"{prefix}inactive_file"] - stat[mapped])


def _number(path: Path) -> int:
    return int(path.read_text())


def _table(path: Path) -> dict[str, int]:
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines())
    return {name: int(value) for name, value in pairs}
