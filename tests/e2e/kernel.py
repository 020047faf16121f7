"""Reads the kernel's own accounting of a container, from the host: what the monitor's numbers
are held against.

Where the container has a parent cgroup of its own, the parent is read: its counters include the
container's and stay after the container and its cgroup are gone, so that the exact total of a
finished run can be read at leisure.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from profiler.readers.cgroup.hierarchy import parse_membership
from profiler.readers.linux import proc


class KernelReading(Struct, frozen=True, kw_only=True):
    """What the kernel charged to a cgroup so far."""

    cpu_seconds: float
    memory_usage_bytes: int
    memory_reclaimable_bytes: int
    memory_peak_bytes: int | None  # includes page cache; absent on cgroup v2 before Linux 5.19

    @property
    def memory_used_bytes(self) -> int:
        """Return the usage without what the kernel drops before it kills."""
        return max(0, self.memory_usage_bytes - self.memory_reclaimable_bytes)


class KernelAccounting(Struct, frozen=True, kw_only=True):
    """The folders of one cgroup, under version 1 (one folder per controller) or version 2 (one
    for all).
    """

    version: int
    cpu: Path
    memory: Path

    def read(self) -> KernelReading:
        """Read all counters now; raises FileNotFoundError when the cgroup is gone."""
        is_v1 = self.version == 1
        # Read first: where it is absent because the group has gone, so are the other files.
        peak = self.memory / ("memory.max_usage_in_bytes" if is_v1 else "memory.peak")
        peak_bytes = _number(peak) if peak.exists() else None
        usage_bytes = _number(
            self.memory / ("memory.usage_in_bytes" if is_v1 else "memory.current")
        )
        stat, prefix = _table(self.memory / "memory.stat"), "total_" if is_v1 else ""
        cpu_us = (
            _number(self.cpu / "cpuacct.usage") / 1e3
            if is_v1
            else _table(self.cpu / "cpu.stat")["usage_usec"]
        )
        return KernelReading(
            cpu_seconds=cpu_us / 1e6,
            memory_usage_bytes=usage_bytes,
            memory_reclaimable_bytes=stat[f"{prefix}active_file"]
            + stat[f"{prefix}inactive_file"]
            + stat.get("slab_reclaimable", 0),
            memory_peak_bytes=peak_bytes,
        )


def accounting_of(pid: int) -> KernelAccounting:
    """Find the cgroup of a process; on a machine with both versions, the one that has the memory
    controller.
    """
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
    """Delete an empty cgroup, given by its path from the root, and the one above it, in every
    hierarchy.
    """
    for mount in set(_mounts().values()):
        folder = mount / path.lstrip("/")
        with contextlib.suppress(
            OSError
        ):  # not in this hierarchy, or another task's cgroup is beside it
            folder.rmdir()
            folder.parent.rmdir()


def count_block_io(file: Path) -> None:
    """Let version 1 count the block I/O of the file's device.

    Since Linux 6.10 the kernel counts a device's only once it has had a limit, whoever's.
    """
    hierarchy = _mounts().get("blkio")
    if hierarchy is None:
        return
    device = file.stat().st_dev
    name = f"{os.major(device)}:{os.minor(device)}"
    folder = hierarchy / f"task-profiler-counted-{os.getpid()}"
    folder.mkdir()
    try:
        limit = folder / "blkio.throttle.write_bps_device"
        with contextlib.suppress(OSError):  # no disk of its own: an overlay
            limit.write_text(f"{name} {1 << 40}")
            limit.write_text(f"{name} 0")
    finally:
        folder.rmdir()


def _cgroup_paths(pid: int) -> Mapping[str, str]:
    """Return the process's cgroup path by controller; version 2 is the controller without a
    name.
    """
    return parse_membership(Path(f"/proc/{pid}/cgroup").read_text())


def _mounts() -> dict[str, Path]:
    """Return where each controller's hierarchy is mounted; version 2 is the controller without a
    name.
    """
    mounts = {}
    for mount in proc.parse_mountinfo(Path("/proc/self/mountinfo").read_text()):
        if mount.filesystem_type in {"cgroup", "cgroup2"}:
            names = mount.super_options.split(",") if mount.filesystem_type == "cgroup" else [""]
            mounts.update(dict.fromkeys(names, Path(mount.mount_point)))
    return mounts


def _number(path: Path) -> int:
    return int(path.read_text())


def _table(path: Path) -> dict[str, int]:
    pairs = (line.split(maxsplit=1) for line in path.read_text().splitlines())
    return {name: int(value) for name, value in pairs}
