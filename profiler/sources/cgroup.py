"""The limits that the kernel's control groups set this process, whichever version they are.

A limit holds for everything below it, so the smallest on the way from the own group up to the
mount's top counts. Version 1 has a hierarchy for each controller, version 2 one for all, and a
hybrid host both: a controller that a version 1 hierarchy holds is looked for there.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from profiler.sources.proc import parse_counter, unescape_path

UNIFIED = ""  # the controller name of the version 2 hierarchy in /proc/self/cgroup
# Version 1 writes "unlimited" as 2^63 - 1 rounded down to a page; no machine comes near this.
_UNLIMITED_BYTES = 2**60
OOM_KILLS = "oom_kill"


class Limits(Struct, frozen=True, kw_only=True):
    """What the control groups allow; None where they set no limit."""

    vcpu: float | None = None
    memory_bytes: int | None = None


class Mount(Struct, frozen=True, kw_only=True):
    """A mounted hierarchy: which group stands at its top, where, and for which controllers."""

    top_group: str
    folder: str
    controllers: frozenset[str]


class CgroupLocation(Struct, frozen=True, kw_only=True):
    """Where a process is in one hierarchy: the group's path, its folder, and who else counts there."""

    group: str
    folder: Path
    controllers: frozenset[str]


class Cgroups:
    """The control groups of one process, found under ``root``."""

    def __init__(self, root: Path, groups: Mapping[str, str], mounts: Iterable[Mount]) -> None:
        self._root = root
        self._groups = groups
        self._mounts = tuple(mounts)

    def limits(self) -> Limits:
        """The limits now."""
        return Limits(
            vcpu=min(self._vcpu_limits(), default=None),
            memory_bytes=min(self._memory_limits(), default=None),
        )

    def oom_kills(self) -> int | None:
        """How many processes of the own group the kernel has killed for want of memory, where it counts them."""
        for folder in self._folders("memory")[:1]:
            for name in ("memory.events", "memory.oom_control"):
                kills = parse_counter(_read(folder / name) or "", OOM_KILLS)
                if kills is not None:
                    return kills
        return None

    def location(self, hierarchy: str) -> CgroupLocation | None:
        """The own group in the hierarchy of a version 1 controller, or in version 2's (``UNIFIED``), if it is mounted.

        None also where the mount does not show the own group: then its folder would be another's.
        """
        group = self._groups.get(hierarchy, "..")
        if ".." in group.split("/"):
            return None
        for mount in self._mounts:
            if hierarchy in mount.controllers and _is_below(group, mount.top_group):
                folder = group_folders(self._root, mount, group)[0]
                # Version 1 lists the controllers among the mount's options.
                return CgroupLocation(group=group, folder=folder, controllers=mount.controllers & self._groups.keys())
        return None

    def has_v1_controller(self, controller: str) -> bool:
        """Whether a version 1 hierarchy has the controller."""
        return controller in self._groups

    def _vcpu_limits(self) -> Iterable[float]:
        for folder in self._folders("cpu"):
            found = parse_cpu_max(_read(folder / "cpu.max") or "")
            if found is None:
                quota, period = (_read(folder / f"cpu.cfs_{part}_us") or "" for part in ("quota", "period"))
                found = parse_cpu_max(f"{quota} {period}")
            if found is not None:
                yield found

    def _memory_limits(self) -> Iterable[int]:
        for folder in self._folders("memory"):
            for name in ("memory.max", "memory.limit_in_bytes"):
                found = parse_bytes(_read(folder / name) or "")
                if found is not None:
                    yield found

    def _folders(self, controller: str) -> tuple[Path, ...]:
        """The folders of the own group and of those above it, the own first."""
        hierarchy = controller if controller in self._groups else UNIFIED
        group = self._groups.get(hierarchy)
        if group is None:
            return ()
        mount = next((mount for mount in self._mounts if hierarchy in mount.controllers), None)
        return () if mount is None else group_folders(self._root, mount, group)


def read_own_cgroups(root: Path) -> Cgroups:
    """The control groups of this process; ``root`` is ``/`` except in tests."""
    groups = parse_membership(_read(root / "proc/self/cgroup") or "")
    mounts = parse_mounts(_read(root / "proc/self/mountinfo") or "")
    return Cgroups(root, groups, mounts)


def parse_membership(text: str) -> Mapping[str, str]:
    """``/proc/PID/cgroup``: the group's path by controller; version 2 under the empty name."""
    groups: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, separator, path = rest.partition(":")
        if separator:
            groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def parse_mounts(text: str) -> tuple[Mount, ...]:
    """The control group hierarchies among the lines of ``/proc/PID/mountinfo``."""
    mounts: list[Mount] = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        place, kind = before.split(), after.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):  # noqa: PLR2004  fields of a line
            continue
        controllers = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset((UNIFIED,))
        mounts.append(Mount(top_group=unescape_path(place[3]), folder=unescape_path(place[4]), controllers=controllers))
    return tuple(mounts)


def group_folders(root: Path, mount: Mount, group: str) -> tuple[Path, ...]:
    """The folders of a group and of those above it, as far as the mount shows them.

    In a container without a cgroup namespace the mount begins at the container's own group while
    the path is the host's. A group outside of the mount is seen as its top.
    """
    below = group.removeprefix(mount.top_group.rstrip("/")) if _is_below(group, mount.top_group) else ""
    names = [name for name in below.split("/") if name]
    if ".." in names:
        names = []
    folder = root / mount.folder.lstrip("/")
    return tuple(folder.joinpath(*names[:depth]) for depth in range(len(names), -1, -1))


def _is_below(group: str, top_group: str) -> bool:
    top = top_group.rstrip("/")
    return group == top or group.startswith(top + "/")


def parse_cpu_max(text: str) -> float | None:
    """CPUs from quota and period in microseconds; None for ``max``, -1 or something else."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):  # noqa: PLR2004  quota and period
        return None
    quota, period = (int(word) for word in words)
    return quota / period if quota and period else None


def parse_bytes(text: str) -> int | None:
    """A memory limit; None for ``max`` and for version 1's way to write it."""
    word = text.strip()
    if not word.isdecimal():
        return None
    value = int(word)
    return value if 0 < value < _UNLIMITED_BYTES else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
